#ifndef PQTX_LIB_LEND_H
#define PQTX_LIB_LEND_H

#include "budget.h"
#include "fork.h"
#include "hosts.h"
#include "turn.h"
#include "wire.h"

#include <pqtx/pool.h>

#include <stdatomic.h>

/* `open` counts connections and permissions to make one: who finds none idle takes a permission. */
struct pqtx_pool {
    atomic_uint refs;
    struct pqtx__birth birth;
    pqtx_pool_options options;
    char *conninfo;
    struct pqtx__hosts hosts;
    const pqtx_clock *clock;

    pthread_mutex_t lock;
    bool closed;
    bool never_prepares;
    int32_t open, idle_count;
    struct pqtx__wire *idle; /* the newest first */
    struct pqtx__turns turns;
    int64_t suspect_us; /* a connection was lost then */
    struct pqtx__budget budget;
    pqtx_stats stats;
};

/* Times are spans, since a pool may have another clock than its transactions.
 *
 * A connection of the caller's own until it is released: clean, attached, outside a transaction.
 * The second form: certainly made just now. */
pqtx_status pqtx__pool_acquire(pqtx_pool *pool, int64_t timeout_us, struct pqtx__wire **wire,
                               pqtx_error *error);
pqtx_status pqtx__pool_acquire_new(pqtx_pool *pool, int64_t timeout_us, struct pqtx__wire **wire,
                                   pqtx_error *error);

/* Takes it back.  What is not idle and outside a transaction is closed, and where it was lost, the
 * idle ones are looked at before they are used again: what killed one may have killed them all. */
void pqtx__pool_release(pqtx_pool *pool, struct pqtx__wire *wire);

#endif
