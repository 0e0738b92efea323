/* doubt.c: a lost answer to COMMIT, settled as far as the options allow. */
#include "doubt.h"
#include "clock.h"
#include "report.h"

static pqtx_outcome resolve(pqtx_tx *tx)
{
    const struct pqtx__source source = {tx->pool, tx->own, tx->clock};
    int64_t least_us = pqtx__now(tx->clock) + tx->options.resolve_ms * 1000;
    int64_t until_us = least_us > tx->deadline_us ? least_us : tx->deadline_us;
    pqtx_error why = PQTX_ERROR;
    pqtx_outcome outcome = pqtx__resolve(&source, &tx->ticket, &tx->orphan, until_us, &why);
    if (outcome == PQTX_OUTCOME_IN_DOUBT && !tx->error.detail[0])
        pqtx__text_copy(tx->error.detail, sizeof tx->error.detail, why.message);
    else if (outcome == PQTX_OUTCOME_COMMITTED || tx->ticket.by == PQTX_DOUBT_XID)
        tx->orphan.backend.pid = 0; /* else it may still wait for a lock in front of its token */
    if (outcome == PQTX_OUTCOME_COMMITTED && tx->orphan.ended)
        tx->flags |= PQTX_LOCAL_ONLY;
    return outcome;
}

/* No row of this server was changed.  But a NOTIFY, or a write to a foreign table, takes effect at
 * COMMIT without an xid before: only one that was declared to read is safe to run again. */
static pqtx_outcome settle_without_xid(pqtx_tx *tx)
{
    tx->flags |= PQTX_NO_CHANGE;
    return tx->options.access >= PQTX_ACCESS_READ_ONLY ? PQTX_OUTCOME_ROLLED_BACK
                                                       : PQTX_OUTCOME_IN_DOUBT;
}

pqtx_outcome pqtx__doubt_settle(pqtx_tx *tx)
{
    const struct pqtx__proof *proof = &tx->proof;
    pqtx_status status = pqtx__proof_ticket(proof, &tx->ticket);
    bool reads = tx->options.access >= PQTX_ACCESS_READ_ONLY;
    if (proof->by == PQTX_DOUBT_XID && (reads || (proof->xid_heard && proof->xid == 0)))
        return settle_without_xid(tx);
    if (status != PQTX_OK)
        return PQTX_OUTCOME_IN_DOUBT;
    pqtx_outcome outcome = resolve(tx);
    if (outcome != PQTX_OUTCOME_IN_DOUBT)
        pqtx__report_resolved(tx);
    return outcome;
}
