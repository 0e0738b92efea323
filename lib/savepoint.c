/* savepoint.c: a part of a body that can be undone by itself. */
#include "fly.h"
#include "tx.h"

/* After these nothing in this transaction can be mended: the snapshot or the locks are the cause,
 * the connection is gone, or the time is up. */
static bool unwinds(const pqtx_tx *tx)
{
    if (tx->wire->lost || tx->final)
        return true;
    switch (tx->mark) {
    case PQTX_SERIALIZATION:
    case PQTX_DEADLOCK:
    case PQTX_ROLLED_BACK:
    case PQTX_STALE_STATEMENT:
    case PQTX_NO_CONNECTION:
    case PQTX_READ_ONLY:
    case PQTX_NO_MEMORY:
    case PQTX_MISUSE:
    case PQTX_SWALLOWED:
        return true;
    case PQTX_TIMEOUT:
        return tx->error.flags & PQTX_ERROR_DEADLINE;
    default:
        return false;
    }
}

/* How things stood when a savepoint began. */
struct savepoint {
    uint32_t number;
    size_t pending, actions;
    uint64_t flights;
    struct pqtx__lock_timeout lock_timeout;
};

static struct savepoint next(pqtx_tx *tx)
{
    return (struct savepoint){
        .number = ++tx->savepoints,
        .pending = tx->pending.count,
        .actions = tx->actions.count,
        .flights = tx->flights,
        .lock_timeout = tx->lock_timeout,
    };
}

/* Keeps or undoes it on the server, in front of the next statement, which comes before anything
 * else can happen there.  Where nothing was sent since, SAVEPOINT itself is taken back. */
static pqtx_status finish(pqtx_tx *tx, const struct savepoint *savepoint, bool keep)
{
    if (tx->flights == savepoint->flights) {
        tx->pending.count = savepoint->pending;
        return PQTX_OK;
    }
    pqtx_status status = PQTX_OK;
    if (!keep)
        status = pqtx__attempt_defer(tx, "ROLLBACK TO SAVEPOINT", savepoint->number);
    if (status == PQTX_OK)
        status = pqtx__attempt_defer(tx, "RELEASE SAVEPOINT", savepoint->number);
    return status;
}

/* What is queued belongs to one side of a savepoint, and its answer is needed there. */
static pqtx_status land(pqtx_tx *tx)
{
    return tx->batch.count > 0 ? pqtx__fly(tx, NULL, 0, NULL) : PQTX_OK;
}

/* What the work came to: kept, undone to an answer, or on the way to the top. */
static pqtx_status settle(pqtx_tx *tx, const struct savepoint *savepoint, pqtx_status status)
{
    if (tx->mark == PQTX_OK && status == PQTX_OK)
        land(tx);
    pqtx__batch_clear(&tx->batch, &tx->wire->store); /* of work that is undone */
    if (tx->mark != PQTX_OK && unwinds(tx))
        return tx->mark;
    if (status == PQTX_OK)
        status = tx->mark;
    if (status == PQTX_OK)
        return finish(tx, savepoint, true);
    tx->mark = PQTX_OK;
    tx->lock_timeout = savepoint->lock_timeout; /* SET LOCAL is undone as well */
    pqtx_status undone = finish(tx, savepoint, false);
    pqtx__actions_rollback(&tx->actions, savepoint->actions);
    return undone == PQTX_OK ? status : undone;
}

pqtx_status pqtx_savepoint(pqtx_tx *tx, pqtx_work work, void *arg)
{
    pqtx_status status = pqtx__tx_enter(tx);
    if (status != PQTX_OK)
        return status;
    if (land(tx) != PQTX_OK) {
        status = tx->mark;
        pqtx__tx_leave(tx);
        return status;
    }
    struct savepoint savepoint = next(tx);
    status = work ? pqtx__attempt_defer(tx, "SAVEPOINT", savepoint.number)
                  : pqtx__fail(tx, PQTX_MISUSE, "the work is NULL");
    if (status == PQTX_OK)
        tx->depth++;
    pqtx__tx_leave(tx);
    if (status != PQTX_OK)
        return status;
    status = work(tx, arg);
    tx->depth--;
    /* In a forked child, or with another thread inside, nothing here is ours to touch. */
    if (!pqtx__born_here(tx->birth) || atomic_exchange(&tx->busy, 1))
        return PQTX_MISUSE;
    status = settle(tx, &savepoint, status);
    pqtx__tx_leave(tx);
    return status;
}
