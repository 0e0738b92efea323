#ifndef PQTX_LIB_CLOCK_H
#define PQTX_LIB_CLOCK_H

#include <pqtx/clock.h>

/* The system's clock for NULL, else the caller's; NULL if that one is not complete. */
const pqtx_clock *pqtx__clock(const pqtx_clock *given);

int64_t pqtx__now(const pqtx_clock *clock);

/* Microseconds from now to `until`, not below 0. */
int64_t pqtx__left(const pqtx_clock *clock, int64_t until_us);

/* Sleeps to `until`, in spite of signals. */
void pqtx__sleep(const pqtx_clock *clock, int64_t until_us);

#endif
