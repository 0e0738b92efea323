/* support_tx.h: transactions as tests run them: in one go, held open, or on a thread of their own.
 */
#ifndef PQTX_TESTS_SUPPORT_TX_H
#define PQTX_TESTS_SUPPORT_TX_H

#include <pqtx.h>

#include <pthread.h>

/* A body that puts the backend's process id into an int64_t. */
pqtx_status ask_pid(pqtx_tx *tx, void *pid);

/* Runs it; the test fails if that does not commit. */
int64_t run_for_pid(pqtx_pool *pool, const pqtx_options *options);

/* A transaction that has a connection until end_tx() commits it.  `pid` may be NULL. */
pqtx_tx *hold_tx(pqtx_pool *pool, const pqtx_options *options, int64_t *pid);
void end_tx(pqtx_tx *tx);

pqtx_stats stats_of(pqtx_pool *pool);

/* One run on a thread of its own.  Fill in the first part; the second is its outcome. */
struct task {
    pqtx_pool *pool; /* or: */
    PGconn *conn;
    const pqtx_options *options;
    pqtx_work work;
    void *arg;

    pthread_t thread;
    pqtx_status status;
    pqtx_error error;
    int64_t elapsed_us;
};

void start_task(struct task *task);
void join_task(struct task *task, pqtx_status expected);

/* The same here and now. */
void run_task(struct task *task, pqtx_status expected);

/* Whether the run took no longer than `percent` of `ms`. */
int took_at_most(const struct task *task, int percent, int64_t ms);

#endif
