#ifndef PQTX_LIB_RESOLVER_H
#define PQTX_LIB_RESOLVER_H

#include "pool.h"

#include <pqtx/observer.h>
#include <pqtx/ticket.h>

/* Whom the resolver asks: a new connection of a pool's, or one like the caller's. */
struct pqtx__source {
    pqtx_pool *pool;
    PGconn *like;
    const pqtx_clock *clock;
};

/* The backend that may still be at work on a transaction; its pid 0 if it is not known.  Once it
 * was ended, a commit may be one that was waiting for a standby. */
struct pqtx__orphan {
    struct pqtx__backend backend;
    bool ended;
};

/* COMMITTED or ROLLED_BACK for good, or IN_DOUBT with the error that says why. */
pqtx_outcome pqtx__resolve(const struct pqtx__source *source, const pqtx_ticket *ticket,
                           struct pqtx__orphan *orphan, int64_t until_us, pqtx_error *error);

#endif
