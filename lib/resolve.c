/* resolve.c: resolving later, by a ticket. */
#include "clock.h"
#include "error.h"
#include "resolver.h"
#include "tx.h"

#include <pqtx/resolve.h>

#define TIMEOUT_MS 10000

pqtx_status pqtx_get_ticket(const pqtx_tx *tx, pqtx_ticket *ticket)
{
    if (!tx || !ticket || ticket->size != sizeof *ticket)
        return PQTX_MISUSE;
    *ticket = (pqtx_ticket)PQTX_TICKET;
    if (tx->ticket.by != PQTX_DOUBT_TOKEN && tx->ticket.xid == 0)
        return PQTX_NOT_FOUND;
    *ticket = tx->ticket;
    return PQTX_OK;
}

static const char *fault_of(const pqtx_pool *pool, const pqtx_ticket *ticket, int64_t timeout_ms,
                            const pqtx_outcome *outcome)
{
    if (!pool || !outcome || !ticket || ticket->size != sizeof *ticket)
        return "the pool, the ticket or the outcome is NULL, or the ticket has no size";
    if (pqtx__pool_is_foreign(pool))
        return "the pool belongs to the parent process: open one in this one";
    if (timeout_ms < 0 || timeout_ms > 2147483647)
        return "timeout_ms is not within 0 … 2147483647";
    if (!pqtx__ticket_is_good(ticket))
        return "the ticket holds nothing to resolve by, or was damaged";
    return NULL;
}

pqtx_status pqtx_resolve(pqtx_pool *pool, const pqtx_ticket *ticket, int64_t timeout_ms,
                         pqtx_outcome *outcome, pqtx_error *error)
{
    if (outcome)
        *outcome = PQTX_OUTCOME_IN_DOUBT;
    const char *why = fault_of(pool, ticket, timeout_ms, outcome);
    if (why)
        return pqtx__error_report(error, PQTX_MISUSE, why);
    struct pqtx__orphan unknown = {.ended = false};
    const pqtx_clock *clock = pqtx__pool_clock(pool);
    const struct pqtx__source source = {pool, NULL, clock};
    int64_t until_us = pqtx__now(clock) + (timeout_ms ? timeout_ms : TIMEOUT_MS) * 1000;
    pqtx_error last = PQTX_ERROR;
    pqtx__pool_ref(pool); /* it may be closed meanwhile */
    *outcome = pqtx__resolve(&source, ticket, &unknown, until_us, &last);
    pqtx__pool_unref(pool);
    if (*outcome != PQTX_OUTCOME_IN_DOUBT)
        return PQTX_OK;
    last.status = PQTX_IN_DOUBT;
    pqtx__error_export(&last, error);
    return PQTX_IN_DOUBT;
}
