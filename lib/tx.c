/* tx.c: the calls of a body, between BEGIN and COMMIT. */
#include "tx.h"
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

pqtx_status pqtx__tx_exec(pqtx_tx *tx, const char *sql, int count, const pqtx_value *values,
                          PGresult **result)
{
    *result = NULL;
    const char *why = sql ? pqtx__statement_fault(sql) : "the statement is NULL";
    if (why)
        return pqtx__fail(tx, PQTX_MISUSE, "%s", why);
    struct pqtx__params params;
    pqtx_status status = pqtx__params_encode(&params, count, values, &why);
    if (status == PQTX_NO_MEMORY)
        return pqtx__fail(tx, status, "no memory for the statement's values");
    if (status != PQTX_OK)
        return pqtx__fail(tx, status, "%s", why);
    status = pqtx__attempt_fly(tx, &(struct pqtx__statement){sql, &params}, 1, result);
    pqtx__params_free(&params);
    return status;
}

pqtx_status pqtx__tx_rows(pqtx_tx *tx, PGresult *result, bool one, int64_t *rows)
{
    const char *text = PQcmdTuples(result);
    if (!*text && strncmp(PQcmdStatus(result), "MERGE ", 6) == 0)
        text = PQcmdStatus(result) + 6;                       /* libpq 14 does not know it */
    bool returns = PQresultStatus(result) == PGRES_TUPLES_OK; /* SHOW and CALL count nothing */
    if (!*text && !returns)
        return pqtx__fail(tx, PQTX_MISUSE, "%s has no row count", PQcmdStatus(result));
    *rows = returns ? PQntuples(result) : strtoll(text, NULL, 10);
    if (one && *rows == 0)
        return pqtx__fail(tx, PQTX_NO_MATCH, "no row, where one was expected");
    if (one && *rows > 1)
        return pqtx__fail(tx, PQTX_TOO_MANY, "%lld rows, where one was expected", (long long)*rows);
    return PQTX_OK;
}

static pqtx_status exec(pqtx_tx *tx, const char *sql, int count, const pqtx_value *values, bool one,
                        const PGresult **out)
{
    if (out)
        *out = NULL;
    pqtx_status status = pqtx__tx_enter(tx);
    if (status != PQTX_OK)
        return status;
    PGresult *result;
    int64_t rows;
    status = pqtx__tx_exec(tx, sql, count, values, &result);
    if (status == PQTX_OK && one)
        status = pqtx__tx_rows(tx, result, one, &rows);
    if (status == PQTX_OK && out)
        status = pqtx__tx_keep(tx, result, out);
    else
        PQclear(result);
    pqtx__tx_leave(tx);
    return status;
}

pqtx_status pqtx_exec(pqtx_tx *tx, const char *sql, int count, const pqtx_value *values,
                      const PGresult **result)
{
    return exec(tx, sql, count, values, false, result);
}

pqtx_status pqtx_exec_one(pqtx_tx *tx, const char *sql, int count, const pqtx_value *values,
                          const PGresult **result)
{
    return exec(tx, sql, count, values, true, result);
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
