/* bench_workloads.c: what is measured, by whom, on how many threads. */
#define _DEFAULT_SOURCE
#include "bench_workloads.h"
#include "bench_pgbench.h"
#include "bench_pqtx.h"
#include "bench_pqxx.h"
#include "bench_raw.h"

#define TEXT(number)  TEXT_(number)
#define TEXT_(number) #number

#define TAKEN "SELECT sum(" TEXT(BENCH_STOCK) " - left_over) FROM bench_stock"

/* Taken from odd rows, and nothing is lost in between. */
#define MOVED                                                                                      \
    "SELECT CASE WHEN sum(left_over) = " TEXT(BENCH_STOCK) "::bigint * " TEXT(                     \
        BENCH_ROWS) " THEN sum(" TEXT(BENCH_STOCK) " - left_over) FILTER (WHERE id % 2 = 1) ELSE " \
                                                   "-1 END"                                        \
                                                   " FROM bench_stock"

#define COUNTED "SELECT coalesce(sum(value), 0) FROM bench_counter"

/* The best of the ways to write it by hand, call by call, and as one flight. */
#define FOUR   "libpq: 4 trips, PQexec, prepared UPDATE"
#define FLIGHT "libpq: one flight"

#define FIVE           "libpq: 5 trips, prepared"
#define TWO_FLIGHTS    "libpq: 2 flights"
#define GUARDED_FLIGHT "libpq: one flight, guarded"
#define FOUR_INSERT    "libpq: 4 trips, PQexec, prepared INSERT"

static const struct contestant of_one[] = {
    {"empty query", RAW, raw_nothing, NULL, 1},
    {FOUR, RAW, raw_take_frame, NULL, 0},
    {"libpq: 4 trips, PQexec, PQexecParams", RAW, raw_take_params, NULL, 0},
    {"libpq: 4 trips, all prepared", RAW, raw_take_prepared, NULL, 0},
    {FLIGHT, RAW, raw_take_flight, NULL, 0},
    {GUARDED_FLIGHT, RAW, raw_take_guarded, NULL, 0},
    {"pqtx_run", PQTX, ours_take, NULL, 0},
    {"pqtx_run, pqtx_pipeline", PQTX, ours_take_flight, NULL, 0},
    {"pqtx_run_one", PQTX, ours_take_one, NULL, 0},
    {"libpqxx: perform, work", PQXX, peer_take, NULL, 0},
    {"pgbench: 4 trips", PGBENCH, NULL, pgbench_take, 0},
    {"pgbench: one flight", PGBENCH, NULL, pgbench_take_flight, 0},
    {0},
};

static const struct contestant of_crowd[] = {
    {FOUR, RAW, raw_take_frame, NULL, 0},
    {FLIGHT, RAW, raw_take_flight, NULL, 0},
    {GUARDED_FLIGHT, RAW, raw_take_guarded, NULL, 0},
    {"pqtx_run", PQTX, ours_take, NULL, 0},
    {"pqtx_run, pqtx_pipeline", PQTX, ours_take_flight, NULL, 0},
    {"pqtx_run_one", PQTX, ours_take_one, NULL, 0},
    {"libpqxx: perform, work", PQXX, peer_take, NULL, 0},
    {0},
};

static const struct contestant of_decision[] = {
    {FIVE, RAW, raw_decide, NULL, 0},
    {TWO_FLIGHTS, RAW, raw_decide_flights, NULL, 0},
    {"pqtx_run", PQTX, ours_decide, NULL, 0},
    {"pqtx_run, pqtx_pipeline", PQTX, ours_decide_flights, NULL, 0},
    {0},
};

static const struct contestant of_transfer[] = {
    {FIVE, RAW, raw_transfer, NULL, 0},
    {GUARDED_FLIGHT, RAW, raw_transfer_guarded, NULL, 0},
    {"pqtx_run", PQTX, ours_transfer, NULL, 0},
    {"pqtx_run, pqtx_pipeline", PQTX, ours_transfer_flight, NULL, 0},
    {0},
};

static const struct contestant of_upsert[] = {
    {FOUR_INSERT, RAW, raw_upsert_frame, NULL, 0},
    {FLIGHT, RAW, raw_upsert_flight, NULL, 0},
    {"libpq: autocommit, no lock_timeout", RAW, raw_upsert, NULL, 0},
    {"pqtx_run", PQTX, ours_upsert, NULL, 0},
    {"pqtx_run_one", PQTX, ours_upsert_one, NULL, 0},
    {0},
};

static const int alone[] = {1, 0}, few_and_many[] = {1, 8, 0}, crowds[] = {2, 4, 8, 16, 0};

const struct workload workloads[] = {
    {"one", "conditional UPDATE, lock_timeout, row count checked", of_one, FOUR, FLIGHT, alone, 0,
     0, TAKEN},
    {"spread", "the same, each thread on a row of its own", of_crowd, FOUR, FLIGHT, crowds, 0, 0,
     TAKEN},
    {"hot", "the same, all threads on one row", of_crowd, FOUR, FLIGHT, crowds, 32, 1, TAKEN},
    {"decide", "read a row, decide, write it; all threads on one row", of_decision, FIVE,
     TWO_FLIGHTS, few_and_many, 0, 1, TAKEN},
    {"transfer", "take from one row, give to another, both row counts checked", of_transfer, FIVE,
     GUARDED_FLIGHT, few_and_many, 0, 0, MOVED},
    {"upsert", "add to a counter, INSERT ON CONFLICT DO UPDATE RETURNING", of_upsert, FOUR_INSERT,
     FLIGHT, few_and_many, 0, 0, COUNTED},
    {0},
};
