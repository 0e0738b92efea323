/* tx.c: the calls of a body, between BEGIN and COMMIT. */
#include "tx.h"
#include "fly.h"
#include "statement.h"

#include <stdlib.h>
#include <string.h>

pqtx_status pqtx__tx_enter(pqtx_tx *tx)
{
    if (!tx || !pqtx__born_here(tx->birth) || atomic_exchange(&tx->busy, 1))
        return PQTX_MISUSE;
    pqtx_status status = tx->state == PQTX__OPEN ? tx->mark : PQTX_MISUSE;
    if (status != PQTX_OK)
        pqtx__tx_leave(tx);
    return status;
}

void pqtx__tx_leave(pqtx_tx *tx)
{
    atomic_store(&tx->busy, 0);
}

void pqtx__tx_forget_results(pqtx_tx *tx)
{
    for (size_t i = 0; i < tx->result_count; i++)
        PQclear(tx->results[i]);
    tx->result_count = 0;
    pqtx__calls_forget(tx);
}

pqtx_status pqtx__tx_keep(pqtx_tx *tx, PGresult *result, const PGresult **out)
{
    if (tx->result_count == tx->result_capacity) {
        size_t capacity = tx->result_capacity ? 2 * tx->result_capacity : 8;
        void *bigger = realloc(tx->results, capacity * sizeof(PGresult *));
        if (!bigger) {
            PQclear(result);
            return pqtx__fail(tx, PQTX_NO_MEMORY, "no memory to keep a result");
        }
        tx->results = bigger;
        tx->result_capacity = capacity;
    }
    tx->results[tx->result_count++] = result;
    *out = result;
    return PQTX_OK;
}

pqtx_status pqtx__tx_encode(pqtx_tx *tx, struct pqtx__params *params, int count,
                            const pqtx_value *values)
{
    const char *why = "no memory for the statement's values";
    pqtx_status status = pqtx__params_encode(params, count, values, &why);
    return status == PQTX_OK ? PQTX_OK : pqtx__fail(tx, status, "%s", why);
}

pqtx_status pqtx__tx_exec(pqtx_tx *tx, const char *sql, int count, const pqtx_value *values,
                          PGresult **result)
{
    *result = NULL;
    struct pqtx__params params;
    pqtx_status status = pqtx__tx_encode(tx, &params, count, values);
    if (status != PQTX_OK)
        return status;
    status = pqtx__fly(tx, &(struct pqtx__statement){sql, &params}, 1, result);
    pqtx__params_free(&params);
    return status;
}

/* Marks the attempt if the rows are not as many as they have to be. */
static pqtx_status check_rows(pqtx_tx *tx, const struct pqtx__request *r, const PGresult *result,
                              int64_t *rows)
{
    const char *why;
    *rows = 0;
    if (r->rule.count == PQTX__COUNT_ANY && !r->counts)
        return PQTX_OK;
    if (pqtx_get_rows(result, rows) != PQTX_OK)
        return pqtx__fail(tx, PQTX_MISUSE, "%s has no row count",
                          PQcmdStatus((PGresult *)(uintptr_t)result));
    if (r->rule.count == PQTX__COUNT_ANY || *rows == r->rule.rows)
        return PQTX_OK;
    if (!r->meaning)
        return pqtx__fail_by_count(tx, r->rule, *rows);
    pqtx_status status = r->meaning(*rows, &why);
    return pqtx__fail(tx, status, "%s", why);
}

static pqtx_status wait_for(pqtx_tx *tx, const struct pqtx__request *r)
{
    PGresult *result;
    int64_t rows;
    pqtx_status status = pqtx__tx_exec(tx, r->sql, r->count, r->values, &result);
    if (status == PQTX_OK)
        status = check_rows(tx, r, result, &rows);
    if (status == PQTX_OK && tx->pipelined)
        return pqtx__call_landed(tx, r, result, rows);
    if (status == PQTX_OK && r->rows)
        *r->rows = rows;
    if (status == PQTX_OK && r->result)
        return pqtx__tx_keep(tx, result, r->result);
    PQclear(result);
    if (status != PQTX_OK && tx->pipelined)
        pqtx__call_failed(tx, r);
    return status;
}

pqtx_status pqtx__tx_ask(pqtx_tx *tx, const struct pqtx__request *request)
{
    struct pqtx__request r = *request;
    if (!r.sql)
        return pqtx__fail(tx, PQTX_MISUSE, "the statement is NULL");
    r.kind = pqtx__statement_kind(r.sql);
    const char *why = pqtx__statement_fault(r.sql, r.kind);
    if (why)
        return pqtx__fail(tx, PQTX_MISUSE, "%s", why);
    return tx->pipelined && pqtx__call_can_wait(&r) ? pqtx__call_queue(tx, &r) : wait_for(tx, &r);
}

pqtx_status pqtx__tx_call(pqtx_tx *tx, const struct pqtx__request *r)
{
    if (r->result)
        *r->result = NULL;
    if (r->rows)
        *r->rows = 0;
    pqtx_status status = pqtx__tx_enter(tx);
    if (status != PQTX_OK)
        return status;
    status = pqtx__tx_ask(tx, r);
    pqtx__tx_leave(tx);
    return status;
}

pqtx_status pqtx_exec(pqtx_tx *tx, const char *sql, int count, const pqtx_value *values,
                      const PGresult **result)
{
    return pqtx__tx_call(tx, &(struct pqtx__request){
                                 .sql = sql, .count = count, .values = values, .result = result});
}

pqtx_status pqtx_exec_one(pqtx_tx *tx, const char *sql, int count, const pqtx_value *values,
                          const PGresult **result)
{
    return pqtx__tx_call(tx, &(struct pqtx__request){.sql = sql,
                                                     .count = count,
                                                     .values = values,
                                                     .rule = {PQTX__COUNT_EXACT, 1},
                                                     .result = result});
}

/* A plain 1 or -1 is how many a function says that it failed; taken for PQTX_DONE_BEFORE it would
 * say that the work was done. */
bool pqtx__body_may_say(pqtx_status status)
{
    return (int)status > PQTX_DONE_BEFORE && status != PQTX_IN_DOUBT;
}

pqtx_status pqtx_fail(pqtx_tx *tx, pqtx_status status)
{
    pqtx_status mark = pqtx__tx_enter(tx);
    if (mark != PQTX_OK)
        return mark;
    if (!pqtx__body_may_say(status))
        status =
            pqtx__fail(tx, PQTX_MISUSE, "pqtx_fail() with %d (%s), which only the library can say",
                       (int)status, pqtx_status_name(status));
    else
        pqtx__fail(tx, status, "the body asked for it");
    pqtx__tx_leave(tx);
    return status;
}

static pqtx_status add_action(pqtx_tx *tx, pqtx_action action, void *arg, bool on_commit)
{
    pqtx_status status = pqtx__tx_enter(tx);
    if (status != PQTX_OK)
        return status;
    if (!action)
        status = pqtx__fail(tx, PQTX_MISUSE, "the action is NULL");
    else if (!pqtx__actions_add(&tx->actions, action, arg, on_commit))
        status = pqtx__fail(tx, PQTX_NO_MEMORY, "no memory for an action");
    pqtx__tx_leave(tx);
    return status;
}

pqtx_status pqtx_on_commit(pqtx_tx *tx, pqtx_action action, void *arg)
{
    return add_action(tx, action, arg, true);
}

pqtx_status pqtx_on_rollback(pqtx_tx *tx, pqtx_action action, void *arg)
{
    return add_action(tx, action, arg, false);
}
