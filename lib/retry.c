/* retry.c: which failures begin the whole transaction again. */
#include "retry.h"

struct retry {
    pqtx_status status;
    uint32_t bit;
    size_t counter;
};

static const struct retry *retry_of(pqtx_status status)
{
    static const struct retry retries[] = {
        {PQTX_SERIALIZATION, PQTX_RETRY_SERIALIZATION, offsetof(pqtx_stats, retries_serialization)},
        {PQTX_DEADLOCK, PQTX_RETRY_DEADLOCK, offsetof(pqtx_stats, retries_deadlock)},
        {PQTX_BUSY, PQTX_RETRY_BUSY, offsetof(pqtx_stats, retries_busy)},
        {PQTX_NO_CONNECTION, PQTX_RETRY_CONNECTION, offsetof(pqtx_stats, retries_connection)},
        {PQTX_READ_ONLY, PQTX_RETRY_READ_ONLY, offsetof(pqtx_stats, retries_connection)},
        {PQTX_ROLLED_BACK, PQTX_RETRY_ROLLED_BACK, offsetof(pqtx_stats, retries_other)},
        {PQTX_STALE_STATEMENT, PQTX_RETRY_STALE, offsetof(pqtx_stats, retries_other)},
        {PQTX_DUPLICATE, PQTX_RETRY_DUPLICATE, offsetof(pqtx_stats, retries_other)},
        {PQTX_OVERLAP, PQTX_RETRY_OVERLAP, offsetof(pqtx_stats, retries_other)},
    };
    for (size_t i = 0; i < sizeof retries / sizeof retries[0]; i++)
        if (retries[i].status == status)
            return &retries[i];
    return NULL;
}

/* The mark, or what stands behind one that options.constraints has given its name. */
static pqtx_status cause_of(const pqtx_tx *tx)
{
    bool renamed = tx->mark >= PQTX_USER && tx->error.sqlstate[0];
    return renamed ? pqtx_status_of_sqlstate(tx->error.sqlstate) : tx->mark;
}

bool pqtx__retry_is_due(const pqtx_tx *tx)
{
    if (tx->mark == PQTX_IN_DOUBT) /* the event's row tells the next attempt what became of it */
        return tx->doubtful && tx->pool && tx->proof.event_id &&
               (tx->options.retry_mask & PQTX_RETRY_CONNECTION);
    const struct retry *retry = retry_of(cause_of(tx));
    bool lost = tx->error.flags & PQTX_ERROR_CONNECTION;
    if (tx->final || !retry || !(tx->options.retry_mask & retry->bit))
        return false;
    if (lost && !tx->pool)
        return false;
    /* A server that refuses to write does so again, unless it was left; and 08xxx can also be
     * raised by a statement, about another connection than ours. */
    if (tx->error.origin != PQTX_ORIGIN_LIBRARY &&
        (tx->mark == PQTX_READ_ONLY || tx->mark == PQTX_NO_CONNECTION))
        return lost;
    return tx->mark != PQTX_STALE_STATEMENT || !tx->was_stale;
}

size_t pqtx__retry_counter(pqtx_status status)
{
    const struct retry *retry = retry_of(status);
    return retry ? retry->counter : offsetof(pqtx_stats, retries_other);
}

void pqtx__retry_leave_standby(pqtx_tx *tx)
{
    bool reading = tx->options.access >= PQTX_ACCESS_READ_ONLY;
    if (tx->mark != PQTX_READ_ONLY || reading || !tx->pool || !tx->wire)
        return;
    const char *standby = PQparameterStatus(tx->wire->conn, "in_hot_standby"); /* since 14 */
    if (!standby || standby[1] == 'n')
        tx->wire->lost = true;
}
