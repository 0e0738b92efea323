/* run.c: the callback runner, on top of the loop. */
#include "retry.h"
#include "tx.h"

#include <pqtx/run.h>

/* What a savepoint answered and the body passes on has an error that says more. */
static void say(pqtx_tx *tx, pqtx_status status)
{
    if (status == tx->error.status && tx->error.attempt == tx->attempts)
        tx->mark = status;
    else
        pqtx__fail(tx, status, "the body returned %s", pqtx_status_name(status));
    tx->final = true;
}

/* The body's word, and what it may have swallowed: the first error decides. */
static void run_body(pqtx_tx *tx, pqtx_work work, void *arg)
{
    tx->depth = 1;
    pqtx_status status = work(tx, arg);
    tx->depth = 0;
    bool sayable = status == PQTX_OK || pqtx__body_may_say(status);
    if (tx->mark == PQTX_OK && !sayable) {
        pqtx__fail(tx, PQTX_MISUSE,
                   "the body returned %d (%s), which only the library can say: return a status of "
                   "your own, from PQTX_USER (1000) up",
                   (int)status, pqtx_status_name(status));
    } else if (tx->mark == PQTX_OK && status != PQTX_OK) {
        say(tx, status);
    } else if (tx->mark != PQTX_OK && status == PQTX_OK) {
        tx->error.flags |= PQTX_ERROR_SWALLOWED;
    } else if (sayable && status != tx->mark && !pqtx__retry_is_due(tx)) {
        tx->mark = status; /* its own word for the failure */
        tx->final = true;
    }
    pqtx_commit(tx);
}

static pqtx_status run(pqtx_tx *tx, pqtx_work work, void *arg, pqtx_error *error)
{
    if (!tx)
        return pqtx__error_report(error, PQTX_NO_MEMORY, "no memory for a transaction");
    while (pqtx_attempt(tx))
        run_body(tx, work, arg);
    pqtx_status status = pqtx_result(tx);
    pqtx_get_error(tx, error);
    pqtx_free(tx);
    return status;
}

static pqtx_status check(pqtx_work work, pqtx_error *error)
{
    if (!pqtx__error_is_open(error))
        return PQTX_MISUSE;
    return work ? PQTX_OK : pqtx__error_report(error, PQTX_MISUSE, "the work is NULL");
}

pqtx_status pqtx_run(pqtx_pool *pool, const pqtx_options *options, pqtx_work work, void *arg,
                     pqtx_error *error)
{
    pqtx_status status = check(work, error);
    return status == PQTX_OK ? run(pqtx_new(pool, options), work, arg, error) : status;
}

pqtx_status pqtx_run_on(PGconn *conn, const pqtx_options *options, pqtx_work work, void *arg,
                        pqtx_error *error)
{
    pqtx_status status = check(work, error);
    return status == PQTX_OK ? run(pqtx_new_on(conn, options), work, arg, error) : status;
}
