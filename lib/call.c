/* call.c: the calls of a body in pipeline mode, which are queued now and answered later. */
#include "call.h"
#include "fly.h"

#include <stdlib.h>
#include <string.h>

/* What waits for longer would hold up nothing but memory. */
#define BATCH_COUNT_MAX 1000
#define BATCH_BYTES_MAX 1048576

bool pqtx__call_can_wait(const struct pqtx__request *r)
{
    if (r->rule.count != PQTX__COUNT_ANY)
        return pqtx__guard_fits(r->kind);
    return !r->counts || pqtx__kind_is_plain(r->kind);
}

static bool make_room(pqtx_tx *tx)
{
    if (!tx->calls) {
        tx->calls = tx->first_calls;
        tx->call_capacity = PQTX__CALLS_INLINE;
    }
    if (tx->call_count < tx->call_capacity)
        return true;
    struct pqtx__call *old = tx->calls == tx->first_calls ? NULL : tx->calls;
    struct pqtx__call *bigger = realloc(old, 2 * (size_t)tx->call_capacity * sizeof *bigger);
    if (!bigger)
        return false;
    if (!old)
        memcpy(bigger, tx->first_calls, sizeof tx->first_calls);
    tx->calls = bigger;
    tx->call_capacity *= 2;
    return true;
}

pqtx_status pqtx__call_open(pqtx_tx *tx, const struct pqtx__request *r, uint32_t *call)
{
    if (!make_room(tx))
        return pqtx__fail(tx, PQTX_NO_MEMORY, "no memory for a call");
    *call = tx->call_count++;
    tx->calls[*call] = (struct pqtx__call){.rule = r->rule,
                                           .meaning = r->meaning,
                                           .result = r->result,
                                           .rows = r->rows,
                                           .integers = r->integers,
                                           .integer_count = r->integer_count};
    return PQTX_OK;
}

pqtx_status pqtx__call_add(pqtx_tx *tx, uint32_t call, const struct pqtx__request *r, bool answers)
{
    pqtx_status status;
    const char *why;
    struct pqtx__command *command = pqtx__batch_add(&tx->batch, &tx->wire->store, r->sql, r->kind,
                                                    r->rule, r->count, r->values, &status, &why);
    if (!command)
        return pqtx__fail(tx, status, "%s",
                          status == PQTX_NO_MEMORY ? "no memory to queue the statement" : why);
    command->call = call;
    command->answers = answers;
    command->lock_timeout_ms = tx->lock_timeout.wanted_ms;
    tx->needs_block |=
        !pqtx__kind_is_plain(r->kind) || tx->lock_timeout.wanted_ms != tx->options.lock_timeout_ms;
    return PQTX_OK;
}

pqtx_status pqtx__call_close(pqtx_tx *tx)
{
    const struct pqtx__batch *batch = &tx->batch;
    /* A connection that is shared has the others' flights on it as well. */
    if (tx->given || (batch->count < BATCH_COUNT_MAX && batch->bytes < BATCH_BYTES_MAX))
        return PQTX_OK;
    return pqtx__fly(tx, NULL, 0, NULL);
}

pqtx_status pqtx__call_queue(pqtx_tx *tx, const struct pqtx__request *r)
{
    uint32_t call;
    pqtx_status status = pqtx__call_open(tx, r, &call);
    if (status == PQTX_OK)
        status = pqtx__call_add(tx, call, r, true);
    return status == PQTX_OK ? pqtx__call_close(tx) : status;
}

pqtx_status pqtx__call_landed(pqtx_tx *tx, const struct pqtx__request *r, PGresult *result,
                              int64_t rows)
{
    uint32_t at;
    if (pqtx__call_open(tx, r, &at) != PQTX_OK) {
        PQclear(result);
        return tx->mark;
    }
    struct pqtx__call *call = &tx->calls[at];
    call->landed = true;
    call->answer = result;
    if (call->result)
        *call->result = result;
    if (call->rows)
        *call->rows = rows;
    return PQTX_OK;
}

void pqtx__call_failed(pqtx_tx *tx, const struct pqtx__request *r)
{
    uint32_t at;
    if (tx->error.call != 0 || pqtx__call_open(tx, r, &at) != PQTX_OK)
        return; /* an earlier one failed, which was queued */
    tx->error.call = (int32_t)at + 1;
    tx->calls[at].landed = true;
    tx->calls[at].status = tx->mark;
}

void pqtx__calls_forget(pqtx_tx *tx)
{
    for (uint32_t i = 0; i < tx->call_count; i++)
        PQclear(tx->calls[i].answer);
    tx->call_count = 0;
}
