#ifndef PQTX_LIB_BUDGET_H
#define PQTX_LIB_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

/* A bucket of further attempts, in hundredths. */
struct pqtx__budget {
    int64_t left, earned, most; /* earned by one start; -1: without bound */
};

void pqtx__budget_init(struct pqtx__budget *budget, int32_t percent, int32_t burst);
void pqtx__budget_earn(struct pqtx__budget *budget);
bool pqtx__budget_spend(struct pqtx__budget *budget);

#endif
