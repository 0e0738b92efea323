/* support_tx.c: transactions as tests run them. */
#include "support_tx.h"
#include "support.h"
#include "support_clock.h"

pqtx_status ask_pid(pqtx_tx *tx, void *pid)
{
    const PGresult *result;
    pqtx_status status = pqtx_exec(tx, "SELECT pg_backend_pid()", PQTX_NO_ARGS, &result);
    return status == PQTX_OK ? pqtx_get_int(result, 0, 0, pid) : status;
}

int64_t run_for_pid(pqtx_pool *pool, const pqtx_options *options)
{
    int64_t pid = 0;
    pqtx_error error = PQTX_ERROR;
    assert_status(pqtx_run(pool, options, ask_pid, &pid, &error), PQTX_OK, &error);
    return pid;
}

pqtx_tx *hold_tx(pqtx_pool *pool, const pqtx_options *options, int64_t *pid)
{
    int64_t ignored;
    pqtx_error error = PQTX_ERROR;
    pqtx_tx *tx = pqtx_new(pool, options);
    pqtx_status status = pqtx_attempt(tx) ? ask_pid(tx, pid ? pid : &ignored) : pqtx_result(tx);
    pqtx_get_error(tx, &error);
    assert_status(status, PQTX_OK, &error);
    return tx;
}

void end_tx(pqtx_tx *tx)
{
    pqtx_error error = PQTX_ERROR;
    pqtx_status status = pqtx_commit(tx);
    pqtx_get_error(tx, &error);
    pqtx_free(tx);
    assert_status(status, PQTX_OK, &error);
}

pqtx_stats stats_of(pqtx_pool *pool)
{
    pqtx_stats stats = PQTX_STATS;
    ck_assert_int_eq(pqtx_pool_stats(pool, &stats), PQTX_OK);
    return stats;
}

static void *run(void *arg)
{
    struct task *task = arg;
    int64_t began = monotonic_us();
    task->error = (pqtx_error)PQTX_ERROR;
    task->status = task->conn
                       ? pqtx_run_on(task->conn, task->options, task->work, task->arg, &task->error)
                       : pqtx_run(task->pool, task->options, task->work, task->arg, &task->error);
    task->elapsed_us = monotonic_us() - began;
    return NULL;
}

void start_task(struct task *task)
{
    ck_assert(pthread_create(&task->thread, NULL, run, task) == 0);
}

void join_task(struct task *task, pqtx_status expected)
{
    pthread_join(task->thread, NULL);
    assert_status(task->status, expected, &task->error);
}

void run_task(struct task *task, pqtx_status expected)
{
    run(task);
    assert_status(task->status, expected, &task->error);
}

int took_at_most(const struct task *task, int percent, int64_t ms)
{
    return task->elapsed_us <= ms * 1000 * percent / 100;
}
