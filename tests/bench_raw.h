/* bench_raw.h: what a C programmer writes with libpq alone: call by call, or as one flight. */
#ifndef PQTX_TESTS_BENCH_RAW_H
#define PQTX_TESTS_BENCH_RAW_H

#include "bench.h"

/* A session with every statement of the contestants prepared, in one round trip. */
struct pg_conn *raw_open(const char *conninfo);

void raw_nothing(struct seat *seat); /* an empty query, as a measure of the line */

/* One conditional UPDATE, under a lock_timeout, with its row count checked. */
void raw_take_params(struct seat *seat);
void raw_take_frame(struct seat *seat);
void raw_take_prepared(struct seat *seat);
void raw_take_flight(struct seat *seat);
void raw_take_guarded(struct seat *seat);

/* Reads a row, decides, and writes it. */
void raw_decide(struct seat *seat);
void raw_decide_flights(struct seat *seat);

/* Takes from one row, and gives to another. */
void raw_transfer(struct seat *seat);
void raw_transfer_guarded(struct seat *seat);

/* Adds to a counter, and reads it. */
void raw_upsert(struct seat *seat);
void raw_upsert_frame(struct seat *seat);
void raw_upsert_flight(struct seat *seat);

#endif
