/* support_fault.h: allocations that fail when a test wants them to: the library's and libpq's. */
#ifndef PQTX_TESTS_SUPPORT_FAULT_H
#define PQTX_TESTS_SUPPORT_FAULT_H

#include <stdbool.h>

enum fault {
    FAULT_NONE,  /* there were fewer allocations */
    FAULT_OURS,  /* one that this program's own code asked for, the library's included */
    FAULT_OTHERS /* one of libpq's, or of libc's */
};

/* From now on the n-th allocation of this thread, from 1, fails; with `for_good` all that follow
 * it as well. */
void fault_arm(unsigned long n, bool for_good);

/* Which one has failed so far. */
enum fault fault_so_far(void);

/* Ends that, and tells which one failed first. */
enum fault fault_disarm(void);

/* False where malloc() cannot be replaced: then nothing ever fails. */
bool fault_is_possible(void);

#endif
