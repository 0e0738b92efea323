#ifndef PQTX_LIB_TURN_H
#define PQTX_LIB_TURN_H

#include "wire.h"

/* Threads that wait for a connection, in the order they came.  All calls are made under the pool's
 * lock. */
struct pqtx__turns {
    struct pqtx__turn *first, **last;
    size_t count;
};

void pqtx__turns_init(struct pqtx__turns *turns);

/* Waits, giving up the lock meanwhile.  True: it was served, and *wire is what with.  False: the
 * time was up, or `*closed` was set and pqtx__turns_wake() called. */
bool pqtx__turns_wait(struct pqtx__turns *turns, pthread_mutex_t *lock, const bool *closed,
                      const pqtx_clock *clock, int64_t until_us, struct pqtx__wire **wire);

/* Serves whoever has waited longest; false if nobody waits. */
bool pqtx__turns_serve(struct pqtx__turns *turns, struct pqtx__wire *wire);

void pqtx__turns_wake(struct pqtx__turns *turns);

#endif
