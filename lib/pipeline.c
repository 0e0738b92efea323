/* pipeline.c: a body whose calls leave in one flight, COMMIT with them. */
#include "fly.h"
#include "tx.h"

#include <pqtx/pipeline.h>

pqtx_status pqtx_pipeline(pqtx_tx *tx)
{
    pqtx_status status = pqtx__tx_enter(tx);
    if (status != PQTX_OK)
        return status;
    tx->pipelined = true;
    pqtx__tx_leave(tx);
    return PQTX_OK;
}

pqtx_status pqtx_flush(pqtx_tx *tx)
{
    pqtx_status status = pqtx__tx_enter(tx);
    if (status != PQTX_OK)
        return status;
    if (tx->batch.count > 0)
        status = pqtx__fly(tx, NULL, 0, NULL);
    pqtx__tx_leave(tx);
    return status;
}

uint32_t pqtx_queued(const pqtx_tx *tx)
{
    return tx ? tx->call_count : 0;
}

/* What did not run for a call before it has failed answers with that call's status, as every call
 * on a marked attempt does. */
pqtx_status pqtx_answer(const pqtx_tx *tx, uint32_t call, const PGresult **result, int64_t *rows)
{
    if (result)
        *result = NULL;
    if (rows)
        *rows = 0;
    if (!tx || call >= tx->call_count)
        return PQTX_MISUSE;
    const struct pqtx__call *c = &tx->calls[call];
    if (!c->landed && tx->outcome == PQTX_OUTCOME_COMMITTED)
        return PQTX_NO_CONNECTION; /* the answer was lost, and that it committed was found out */
    if (!c->landed)
        return tx->mark != PQTX_OK ? tx->mark : PQTX_MISUSE;
    if (c->status != PQTX_OK)
        return c->status;
    if (result)
        *result = c->answer;
    if (rows)
        *rows = pqtx__call_rows(c);
    return PQTX_OK;
}
