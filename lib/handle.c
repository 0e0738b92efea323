/* handle.c: a transaction made, asked how it ended, and freed. */
#include "loop.h"
#include "options.h"
#include "tx.h"

#include <pqtx/run.h>

#include <stdlib.h>
#include <string.h>

static pqtx_tx *create(pqtx_pool *pool, PGconn *conn, const pqtx_options *options)
{
    pqtx_tx *tx = malloc(sizeof *tx);
    if (!tx)
        return NULL;
    memset(tx, 0, offsetof(pqtx_tx, error)); /* which is large, and cleared by itself */
    const char *why;
    pqtx__options_read(&tx->options, options, &why);
    tx->clock = tx->options.clock;
    pqtx__batch_init(&tx->batch);
    tx->pool = pool;
    tx->own = conn;
    if (!pool)
        tx->own_birth = pqtx__birth_note(false);
    tx->birth = pool ? pqtx__pool_birth(pool) : &tx->own_birth;
    pqtx__error_clear(&tx->error);
    if (pool)
        pqtx__pool_ref(pool);
    if (tx->options.gate)
        pqtx__gate_ref(tx->options.gate);
    if (!pool && !conn)
        why = "the pool or connection is NULL";
    else if (pool && pqtx__pool_is_foreign(pool))
        why = "the pool belongs to the parent process: open one in this one";
    else if (tx->options.gate && pqtx__gate_is_foreign(tx->options.gate))
        why = "options.gate belongs to the parent process: open one in this one";
    pqtx_status status = why ? PQTX_MISUSE : pqtx__proof_init(&tx->proof, &tx->options, &why);
    if (status == PQTX_OK)
        return tx;
    pqtx__error_set(&tx->error, status, PQTX_PHASE_NONE, PQTX_ORIGIN_LIBRARY, "%s", why);
    tx->state = PQTX__DECIDED;
    tx->result = status;
    tx->outcome = PQTX_OUTCOME_ROLLED_BACK;
    return tx;
}

pqtx_tx *pqtx_new(pqtx_pool *pool, const pqtx_options *options)
{
    return create(pool, NULL, options);
}

pqtx_tx *pqtx_new_on(PGconn *conn, const pqtx_options *options)
{
    return create(NULL, conn, options);
}

pqtx_status pqtx_result(const pqtx_tx *tx)
{
    return tx && tx->state == PQTX__DECIDED ? tx->result : PQTX_MISUSE;
}

pqtx_outcome pqtx_get_outcome(const pqtx_tx *tx)
{
    return tx ? tx->outcome : PQTX_OUTCOME_ROLLED_BACK;
}

uint32_t pqtx_get_flags(const pqtx_tx *tx)
{
    return tx ? tx->flags : 0;
}

uint32_t pqtx_attempts(const pqtx_tx *tx)
{
    return tx ? tx->attempts : 0;
}

pqtx_status pqtx_get_error(const pqtx_tx *tx, pqtx_error *error)
{
    if (!tx)
        return pqtx__error_report(
            error, PQTX_MISUSE,
            "the transaction is NULL: pqtx_new() had no memory, or was not called");
    return pqtx__error_export(&tx->error, error);
}

static void abandon(pqtx_tx *tx)
{
    if (tx->wire)
        pqtx__batch_clear(&tx->batch, &tx->wire->store);
    if (tx->wire && tx->wire != &tx->lent)
        pqtx__wire_close(tx->wire, true);
    else if (tx->wire)
        pqtx__wire_abandon(tx->wire);
    tx->wire = NULL;
}

/* A run that its owner breaks off. */
static void give_up(pqtx_tx *tx)
{
    if (tx->state == PQTX__OPEN)
        pqtx__attempt_rollback(tx);
    if (tx->state == PQTX__CLOSED)
        pqtx__decide(tx, tx->mark != PQTX_OK ? tx->mark : PQTX_STOPPED, PQTX_OUTCOME_ROLLED_BACK);
}

void pqtx_free(pqtx_tx *tx)
{
    if (!tx || tx->depth > 0)
        return;
    if (!pqtx__born_here(tx->birth))
        abandon(tx);
    else
        give_up(tx);
    pqtx__tx_forget_results(tx);
    pqtx__actions_forget(&tx->actions);
    pqtx__proof_free(&tx->proof);
    if (tx->pool)
        pqtx__pool_unref(tx->pool);
    if (tx->options.gate)
        pqtx__gate_unref(tx->options.gate);
    free(tx->results);
    if (tx->calls != tx->first_calls)
        free(tx->calls);
    free(tx->pending.list);
    free(tx);
}
