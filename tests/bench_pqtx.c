/* bench_pqtx.c: the same work with this library. */
#define _DEFAULT_SOURCE
#include "bench_pqtx.h"
#include "bench_sql.h"

#include <pthread.h>

/* Made once and used again, as a loop would. */
static _Thread_local pqtx_error error = PQTX_ERROR;

static void must(pqtx_status status, const pqtx_error *said)
{
    char text[1024];
    if (status == PQTX_OK)
        return;
    pqtx_error_format(said, text, sizeof text);
    die("pqtx: %s: %s", pqtx_status_name(status), text);
}

pqtx_pool *ours_open(const char *conninfo, int threads)
{
    pqtx_pool_options options = PQTX_POOL_OPTIONS;
    pqtx_pool *pool;
    options.conninfo = conninfo;
    options.max_count = threads;
    must(pqtx_pool_open(&options, &pool, &error), &error);
    return pool;
}

static void run(struct seat *seat, pqtx_work work)
{
    must(pqtx_run(seat->pool, NULL, work, seat, &error), &error);
}

static pqtx_status meet(pqtx_tx *tx, void *all)
{
    pqtx_status status = pqtx_exec(tx, "SELECT 1", PQTX_NO_ARGS, NULL);
    pthread_barrier_wait(all);
    return status;
}

void ours_warm(pqtx_pool *pool, void *all)
{
    must(pqtx_run(pool, NULL, meet, all, &error), &error);
}

/* ---- one conditional UPDATE */

static pqtx_status take(pqtx_tx *tx, void *arg)
{
    const struct seat *seat = arg;
    return pqtx_update_one(tx, SQL_TAKE, PQTX_ARGS(PQTX_INT(seat->row), PQTX_INT(1)));
}

void ours_take(struct seat *seat)
{
    run(seat, take);
}

/* ---- read, decide, write */

static pqtx_status write_one_less(pqtx_tx *tx, const struct seat *seat, const PGresult *row)
{
    int64_t left;
    pqtx_status status = pqtx_get_int(row, 0, 0, &left);
    if (status == PQTX_OK && left < 1)
        status = PQTX_EXHAUSTED;
    if (status != PQTX_OK)
        return status;
    return pqtx_update_one(tx, SQL_WRITE, PQTX_ARGS(PQTX_INT(seat->row), PQTX_INT(left - 1)));
}

static pqtx_status decide(pqtx_tx *tx, void *arg)
{
    const struct seat *seat = arg;
    const PGresult *row;
    pqtx_status status = pqtx_exec_one(tx, SQL_READ, PQTX_ARGS(PQTX_INT(seat->row)), &row);
    return status == PQTX_OK ? write_one_less(tx, seat, row) : status;
}

void ours_decide(struct seat *seat)
{
    run(seat, decide);
}

/* ---- a transfer */

static pqtx_status transfer(pqtx_tx *tx, void *arg)
{
    const struct seat *seat = arg;
    pqtx_update_one(tx, SQL_TAKE, PQTX_ARGS(PQTX_INT(seat->row), PQTX_INT(1)));
    return pqtx_update_one(tx, SQL_GIVE, PQTX_ARGS(PQTX_INT(seat->other_row), PQTX_INT(1)));
}

void ours_transfer(struct seat *seat)
{
    run(seat, transfer);
}

/* ---- a counter */

static pqtx_status upsert(pqtx_tx *tx, void *arg)
{
    const struct seat *seat = arg;
    return pqtx_exec_one(tx, SQL_UPSERT, PQTX_ARGS(PQTX_INT(seat->row), PQTX_INT(1)), NULL);
}

void ours_upsert(struct seat *seat)
{
    run(seat, upsert);
}

/* ---- in one flight */

static pqtx_status take_in_flight(pqtx_tx *tx, void *seat)
{
    pqtx_pipeline(tx);
    return take(tx, seat);
}

void ours_take_flight(struct seat *seat)
{
    run(seat, take_in_flight);
}

static void run_one(struct seat *seat, const char *sql)
{
    must(pqtx_run_one(seat->pool, NULL, sql, PQTX_ARGS(PQTX_INT(seat->row), PQTX_INT(1)), 1, NULL,
                      &error),
         &error);
}

void ours_take_one(struct seat *seat)
{
    run_one(seat, SQL_TAKE);
}

static pqtx_status decide_in_flights(pqtx_tx *tx, void *arg)
{
    const struct seat *seat = arg;
    const PGresult *row;
    pqtx_pipeline(tx);
    pqtx_exec_one(tx, SQL_READ, PQTX_ARGS(PQTX_INT(seat->row)), &row);
    pqtx_status status = pqtx_flush(tx);
    return status == PQTX_OK ? write_one_less(tx, seat, row) : status;
}

void ours_decide_flights(struct seat *seat)
{
    run(seat, decide_in_flights);
}

static pqtx_status transfer_in_flight(pqtx_tx *tx, void *seat)
{
    pqtx_pipeline(tx);
    return transfer(tx, seat);
}

void ours_transfer_flight(struct seat *seat)
{
    run(seat, transfer_in_flight);
}

void ours_upsert_one(struct seat *seat)
{
    run_one(seat, SQL_UPSERT);
}
