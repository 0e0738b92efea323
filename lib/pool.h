#ifndef PQTX_LIB_POOL_H
#define PQTX_LIB_POOL_H

#include "lend.h"

#include <pqtx/pool.h>

/* A transaction keeps the pool's memory alive until it is freed, closed or not. */
void pqtx__pool_ref(pqtx_pool *pool);
void pqtx__pool_unref(pqtx_pool *pool);

/* The process that opened it. */
const struct pqtx__birth *pqtx__pool_birth(const pqtx_pool *pool);

/* Whether this process is a child of the one that opened the pool, and so must not use it. */
bool pqtx__pool_is_foreign(const pqtx_pool *pool);

const pqtx_clock *pqtx__pool_clock(const pqtx_pool *pool);

/* The retry budget: a start earns, a further attempt spends; false if nothing is left. */
void pqtx__pool_earn(pqtx_pool *pool);
bool pqtx__pool_spend(pqtx_pool *pool);

/* Counts a transaction that has ended: one more in `field`, whether it ended with PQTX_BUSY, how
 * long it slept and took. */
void pqtx__pool_end(pqtx_pool *pool, size_t field, bool busy, int64_t wait_us, int64_t run_us);

/* Adds one to a counter of the pool's statistics: offsetof(pqtx_stats, commits). */
void pqtx__pool_count(pqtx_pool *pool, size_t field);

#endif
