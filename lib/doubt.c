/* doubt.c: a lost answer to COMMIT, settled as far as the options allow. */
#include "doubt.h"
#include "clock.h"
#include "report.h"

#include <stdio.h>

static pqtx_outcome resolve(pqtx_tx *tx)
{
    const struct pqtx__source source = {tx->pool, tx->own, tx->clock};
    int64_t least_us = pqtx__now(tx->clock) + tx->options.resolve_ms * 1000;
    int64_t until_us = least_us > tx->deadline_us ? least_us : tx->deadline_us;
    pqtx_error why = PQTX_ERROR;
    pqtx_outcome outcome = pqtx__resolve(&source, &tx->ticket, &tx->orphan, until_us, &why);
    if (outcome == PQTX_OUTCOME_IN_DOUBT && !tx->error.detail[0])
        pqtx__text_copy(tx->error.detail, sizeof tx->error.detail, why.message);
    else if (outcome != PQTX_OUTCOME_IN_DOUBT)
        tx->orphan.pid = 0; /* it has ended */
    return outcome;
}

pqtx_outcome pqtx__doubt_settle(pqtx_tx *tx)
{
    const struct pqtx__proof *proof = &tx->proof;
    pqtx_status status = pqtx__proof_ticket(proof, &tx->ticket);
    if (proof->by == PQTX_DOUBT_XID && proof->xid_heard && proof->xid == 0) {
        tx->flags |= PQTX_NO_CHANGE;
        return PQTX_OUTCOME_ROLLED_BACK;
    }
    if (status != PQTX_OK)
        return PQTX_OUTCOME_IN_DOUBT;
    pqtx_outcome outcome = resolve(tx);
    if (outcome != PQTX_OUTCOME_IN_DOUBT)
        pqtx__report_resolved(tx);
    return outcome;
}
