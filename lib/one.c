/* one.c: a statement that is a transaction by itself. */
#include "one.h"
#include "claim.h"

#include <pqtx/one.h>

pqtx_status pqtx__one_begin(pqtx_tx *tx)
{
    pqtx_status status = pqtx_pipeline(tx);
    return status == PQTX_OK && tx->claim_rides ? pqtx__claim_queue(tx) : status;
}

pqtx_status pqtx__one_queue(pqtx_tx *tx, const char *sql, int count, const pqtx_value *values,
                            int64_t expected)
{
    enum pqtx__count rule = expected == PQTX_ANY_ROWS ? PQTX__COUNT_ANY : PQTX__COUNT_EXACT;
    pqtx_status status = pqtx__one_begin(tx);
    if (status != PQTX_OK)
        return status;
    return pqtx__tx_call(
        tx, &(struct pqtx__request){
                .sql = sql, .count = count, .values = values, .rule = {rule, expected}});
}

PGresult *pqtx__one_take(pqtx_tx *tx, int64_t *rows)
{
    uint32_t last = pqtx_queued(tx) - 1;
    if (pqtx_answer(tx, last, NULL, rows) != PQTX_OK)
        return NULL;
    PGresult *result = tx->calls[last].answer;
    tx->calls[last].answer = NULL;
    return result;
}

static pqtx_status run(pqtx_tx *tx, const char *sql, int count, const pqtx_value *values,
                       int64_t expected, PGresult **result, pqtx_error *error)
{
    if (!tx)
        return pqtx__error_report(error, PQTX_NO_MEMORY, "no memory for a transaction");
    tx->claim_rides = tx->proof.event_id != NULL;
    while (pqtx_attempt(tx)) {
        pqtx__one_queue(tx, sql, count, values, expected);
        pqtx_commit(tx);
    }
    pqtx_status status = pqtx_result(tx);
    pqtx_get_error(tx, error);
    if (status == PQTX_OK && result)
        *result = pqtx__one_take(tx, NULL);
    pqtx_free(tx);
    return status;
}

pqtx_status pqtx_run_one(pqtx_pool *pool, const pqtx_options *options, const char *sql, int count,
                         const pqtx_value *values, int64_t expected, PGresult **result,
                         pqtx_error *error)
{
    if (result)
        *result = NULL;
    if (!pqtx__error_is_open(error))
        return PQTX_MISUSE;
    if (expected < PQTX_ANY_ROWS)
        return pqtx__error_report(error, PQTX_MISUSE, "the expected rows are negative");
    return run(pqtx_new(pool, options), sql, count, values, expected, result, error);
}
