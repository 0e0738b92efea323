/* insert.c: insert if absent, and insert or update.
 *
 * ON CONFLICT waits for whoever inserts the same key.  But it computes the defaults of a row that
 * is not inserted, so that a sequence loses a number each time: therefore each statement looks for
 * the row first.  What it looks with stands in FROM, where the parameters of the key get the types
 * that the comparison gives them; in WHERE it would come after the list of values, which gives them
 * others. */
#include "fly.h"
#include "table.h"
#include "tx.h"

#include <pqtx/insert.h>

#include <stdlib.h>

#define TRIES 5 /* of a row that is deleted between the two statements */

#define INSERT_NEW                                                                                 \
    "INSERT INTO @t (@n) SELECT @v FROM (SELECT WHERE NOT EXISTS (SELECT FROM @t WHERE @w))"       \
    " AS pqtx_new ON CONFLICT (@k) DO NOTHING"
#define INSERT_ANY "INSERT INTO @t (@n) VALUES (@v) ON CONFLICT DO NOTHING"
#define RETURNING  " RETURNING @r"

/* Enters for one of the calls below; PQTX_OK: the caller must leave. */
static pqtx_status enter(pqtx_tx *tx, const pqtx_table *given, int count, const pqtx_value *values,
                         const PGresult **row, struct pqtx__table *table)
{
    if (row)
        *row = NULL;
    pqtx_status status = pqtx__tx_enter(tx);
    if (status != PQTX_OK)
        return status;
    status = pqtx__table_read(tx, given, PQTX__KEY_AND_COLUMNS, count, table);
    if (status == PQTX_OK && count == 0)
        status = pqtx__fail(tx, PQTX_MISUSE, "table.key and table.columns are missing");
    for (int i = 0; status == PQTX_OK && values && i < table->key_count; i++)
        if (values[i].type == PQTX_TYPE_NULL)
            status = pqtx__fail(tx, PQTX_MISUSE, "a value of the key is NULL, which equals none");
    if (status != PQTX_OK)
        pqtx__tx_leave(tx);
    return status;
}

/* ---- if absent */

static pqtx_status meaning(int64_t rows, const char **why)
{
    (void)rows;
    *why = "there is a row with this key";
    return PQTX_DUPLICATE;
}

static char *write_insert(pqtx_tx *tx, const struct pqtx__table *table, bool returning)
{
    if (table->key_count == 0)
        return pqtx__table_sql(tx, table, returning ? INSERT_ANY RETURNING : INSERT_ANY);
    return pqtx__table_sql(tx, table, returning ? INSERT_NEW RETURNING : INSERT_NEW);
}

/* Two statements, since one that had to wait sees neither its own row nor the other's; the second
 * only if the row is wanted. */
struct pair {
    char *insert, *select;
    struct pqtx__params all, key;
};

/* PQTX_OK and the new row, PQTX_DUPLICATE and the one that was there, or PQTX_BUSY, unmarked, if
 * that one has gone. */
static pqtx_status judge(pqtx_tx *tx, PGresult *results[2], const PGresult **row)
{
    int64_t inserted = 0;
    pqtx_get_rows(results[0], &inserted);
    PGresult **telling = inserted == 1 ? &results[0] : &results[1];
    pqtx_status status = inserted == 1 ? PQTX_OK : PQTX_DUPLICATE;
    if (!row)
        return status;
    if (inserted == 0 && PQntuples(*telling) == 0)
        return PQTX_BUSY;
    if (inserted == 0 && PQntuples(*telling) > 1)
        return pqtx__fail(tx, PQTX_TOO_MANY, "the key meets more than one row");
    PGresult *result = *telling;
    *telling = NULL;
    return pqtx__tx_keep(tx, result, row) == PQTX_OK ? status : tx->mark;
}

static pqtx_status try_once(pqtx_tx *tx, const struct pair *pair, const PGresult **row)
{
    const struct pqtx__statement statements[] = {{pair->insert, &pair->all},
                                                 {pair->select, &pair->key}};
    PGresult *results[2] = {NULL, NULL};
    pqtx_status status = pqtx__fly(tx, statements, row ? 2 : 1, results);
    if (status == PQTX_OK)
        status = judge(tx, results, row);
    PQclear(results[0]);
    PQclear(results[1]);
    return status;
}

static pqtx_status insert_new(pqtx_tx *tx, struct pair *pair, const PGresult **row)
{
    pqtx_status status = PQTX_BUSY;
    for (int i = 0; i < TRIES && tx->mark == PQTX_OK && status == PQTX_BUSY; i++)
        status = try_once(tx, pair, row);
    if (status == PQTX_BUSY)
        return pqtx__fail(tx, status, "the row was there and gone %d times", TRIES);
    return status;
}

static pqtx_status insert_with(pqtx_tx *tx, const struct pqtx__table *table, int count,
                               const pqtx_value *values, const PGresult **row)
{
    struct pair pair = {.insert = write_insert(tx, table, row)};
    if (row && pair.insert)
        pair.select = pqtx__table_sql(tx, table, "SELECT @r FROM @t WHERE @w");
    pqtx_status answer = PQTX_OK;
    if (tx->mark == PQTX_OK && pqtx__tx_encode(tx, &pair.all, count, values) == PQTX_OK) {
        if (pqtx__tx_encode(tx, &pair.key, table->key_count, values) == PQTX_OK) {
            answer = insert_new(tx, &pair, row);
            pqtx__params_free(&pair.key);
        }
        pqtx__params_free(&pair.all);
    }
    free(pair.insert);
    free(pair.select);
    return tx->mark != PQTX_OK ? tx->mark : answer;
}

pqtx_status pqtx_insert_new(pqtx_tx *tx, const pqtx_table *given, int count,
                            const pqtx_value *values, const PGresult **row)
{
    struct pqtx__table table;
    pqtx_status status = enter(tx, given, count, values, row, &table);
    if (status != PQTX_OK)
        return status;
    if (row && table.key_count == 0)
        status = pqtx__fail(tx, PQTX_MISUSE, "table.key is missing, by which the row is found");
    else
        status = insert_with(tx, &table, count, values, row);
    pqtx__tx_leave(tx);
    return status;
}

pqtx_status pqtx_insert_one(pqtx_tx *tx, const pqtx_table *given, int count,
                            const pqtx_value *values, const PGresult **row)
{
    struct pqtx__table table;
    pqtx_status status = enter(tx, given, count, values, row, &table);
    if (status != PQTX_OK)
        return status;
    char *sql = write_insert(tx, &table, row);
    if (sql)
        pqtx__tx_ask(tx, &(struct pqtx__request){.sql = sql,
                                                 .count = count,
                                                 .values = values,
                                                 .rule = {PQTX__COUNT_EXACT, 1},
                                                 .meaning = meaning,
                                                 .result = row});
    free(sql);
    status = tx->mark;
    pqtx__tx_leave(tx);
    return status;
}

/* ---- insert or update */

/* The UPDATE first; where it meets nothing, the INSERT, which a rival can turn into an update yet.
 * Whether that happened is noted in a setting of the transaction: what a system column (xmax) says
 * of it is an accident. */
#define SAY(word) "pg_catalog.set_config('pqtx.upsert', '" word "', true) IS NOT NULL"
#define HEARD     "pg_catalog.current_setting('pqtx.upsert') OPERATOR(pg_catalog.=) 'insert'"

#define UPDATED "UPDATE @t SET @s WHERE @w RETURNING @r, false AS pqtx_inserted"
#define MISSING "SELECT WHERE NOT EXISTS (SELECT FROM pqtx_u) AND " SAY("insert")
#define INSERTED                                                                                   \
    "INSERT INTO @t (@n) SELECT @v FROM (" MISSING ") AS pqtx_new"                                 \
    " ON CONFLICT (@k) DO UPDATE SET @x WHERE " SAY("update") " RETURNING @r, " HEARD

#define UPSERT                                                                                     \
    "WITH pqtx_u AS (" UPDATED "), pqtx_i AS (" INSERTED "), pqtx_q AS ("                          \
    "SELECT * FROM pqtx_u UNION ALL SELECT * FROM pqtx_i) "
#define COUNT  "pg_catalog.count(*)"
#define WAITED UPSERT "SELECT * FROM pqtx_q"
#define QUEUED                                                                                     \
    UPSERT "SELECT pqtx_q.* FROM (SELECT CASE WHEN " COUNT " OPERATOR(pg_catalog.=) 1"             \
           " THEN true ELSE " PQTX__GUARD_RAISE(COUNT) " END AS ok FROM pqtx_q) AS g"              \
                                                       " LEFT JOIN pqtx_q ON g.ok"

static pqtx_status wait_for(pqtx_tx *tx, const struct pqtx__request *request)
{
    PGresult *result;
    pqtx_status status = pqtx__tx_exec(tx, request->sql, request->count, request->values, &result);
    if (status == PQTX_OK && PQntuples(result) != 1)
        status = pqtx__fail_by_count(tx, request->rule, PQntuples(result));
    if (status == PQTX_OK && request->result)
        return pqtx__tx_keep(tx, result, request->result);
    PQclear(result);
    return status;
}

/* The guard is in the statement, and the call has its rule. */
static pqtx_status queue(pqtx_tx *tx, const struct pqtx__request *request)
{
    struct pqtx__request unguarded = *request;
    unguarded.kind = PQTX__KIND_PLAIN;
    unguarded.rule.count = PQTX__COUNT_ANY;
    uint32_t call;
    pqtx_status status = pqtx__call_open(tx, request, &call);
    if (status == PQTX_OK)
        status = pqtx__call_add(tx, call, &unguarded, true);
    return status == PQTX_OK ? pqtx__call_close(tx) : status;
}

pqtx_status pqtx_upsert(pqtx_tx *tx, const pqtx_table *given, int count, const pqtx_value *values,
                        const PGresult **row)
{
    struct pqtx__table table;
    pqtx_status status = enter(tx, given, count, values, row, &table);
    if (status != PQTX_OK)
        return status;
    struct pqtx__request request = {
        .count = count, .values = values, .rule = {PQTX__COUNT_EXACT, 1}, .result = row};
    char *sql = NULL;
    if (table.key_count == 0 || table.column_count == 0)
        pqtx__fail(tx, PQTX_MISUSE, "table.key or table.columns is missing");
    else
        sql = pqtx__table_sql(tx, &table, tx->pipelined ? QUEUED : WAITED);
    request.sql = sql;
    if (sql)
        (tx->pipelined ? queue : wait_for)(tx, &request);
    free(sql);
    status = tx->mark;
    pqtx__tx_leave(tx);
    return status;
}
