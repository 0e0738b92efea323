/* bench_pqtx.h: the same work with this library. */
#ifndef PQTX_TESTS_BENCH_PQTX_H
#define PQTX_TESTS_BENCH_PQTX_H

#include "bench.h"

#include <pqtx.h>

pqtx_pool *ours_open(const char *conninfo, int threads);

/* Makes the calling thread's connection.  Every thread must call it, and waits in `all` (a
 * pthread_barrier_t) while it holds one, so that each gets one of its own, which it keeps. */
void ours_warm(pqtx_pool *pool, void *all);

void ours_take(struct seat *seat);
void ours_decide(struct seat *seat);
void ours_transfer(struct seat *seat);
void ours_upsert(struct seat *seat);

void ours_take_flight(struct seat *seat);
void ours_take_one(struct seat *seat);
void ours_decide_flights(struct seat *seat);
void ours_transfer_flight(struct seat *seat);
void ours_upsert_one(struct seat *seat);

#endif
