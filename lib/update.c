/* update.c: change a row only if its condition still holds.
 *
 * pqtx_update_if() sends UPDATE … RETURNING and then SELECT of the same key in one flight.  No
 * single statement tells a missing row from a condition that is not met: under READ COMMITTED the
 * parts of one statement look at the row at different times. */
#include "fly.h"
#include "options.h"
#include "quote.h"
#include "tx.h"

#include <pqtx/update.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRIES 5 /* of a row that changes between the two statements */

pqtx_status pqtx_update(pqtx_tx *tx, const char *sql, int count, const pqtx_value *values,
                        int64_t *rows)
{
    return pqtx__tx_call(
        tx, &(struct pqtx__request){
                .sql = sql, .count = count, .values = values, .counts = true, .rows = rows});
}

pqtx_status pqtx_update_one(pqtx_tx *tx, const char *sql, int count, const pqtx_value *values)
{
    return pqtx__tx_call(
        tx, &(struct pqtx__request){
                .sql = sql, .count = count, .values = values, .rule = {PQTX__COUNT_EXACT, 1}});
}

/* All the parts, up to NULL, in one malloc'ed text; NULL without memory. */
static char *join(const char *const *parts)
{
    size_t size = 1;
    for (size_t i = 0; parts[i]; i++)
        size += strlen(parts[i]);
    char *text = malloc(size), *at = text;
    for (size_t i = 0; text && parts[i]; i++) {
        size_t len = strlen(parts[i]);
        memcpy(at, parts[i], len);
        at += len;
    }
    if (text)
        *at = '\0';
    return text;
}

/* Schema and table quoted apart; NULL with *status where that cannot be. */
static char *table_name(PGconn *conn, const pqtx_change *change, pqtx_status *status)
{
    const char *schema = change->schema ? change->schema : "";
    char *first = pqtx__quote(conn, schema, status);
    char *second = first ? pqtx__quote(conn, change->table, status) : NULL;
    char *name = NULL;
    if (second)
        name = join((const char *const[]){*schema ? first : "", *schema ? "." : "", second, NULL});
    free(first);
    free(second);
    return name;
}

/* Names every parameter, so that the SELECT may be given those that only SET uses.  LIMIT is the
 * last clause whose types are resolved: there a parameter keeps the type it has got before. */
static char *limit_clause(int count)
{
    enum { EACH = sizeof "$65535::pg_catalog.text IS NULL OR " };
    size_t size = (size_t)count * EACH + 64;
    char *text = malloc(size);
    if (!text)
        return NULL;
    size_t len = (size_t)snprintf(text, size, " LIMIT CASE WHEN ");
    for (int i = 1; i <= count; i++)
        len += (size_t)snprintf(text + len, size - len, "$%d::pg_catalog.text IS NULL OR ", i);
    snprintf(text + len, size - len, "false THEN 2 ELSE 2 END");
    return text;
}

/* UPDATE and SELECT, malloc'ed.  Before what follows a part of the caller's stands a line end,
 * since the part may end in a comment. */
struct pair {
    char *update, *select;
    char word[40];
    pqtx_status status; /* why they are not there */
};

#define IS_CHANGED(word)                                                                           \
    "pg_catalog.current_setting('pqtx.changed', true) OPERATOR(pg_catalog.=) '", word, "'"

#define NO_ROW       "'-1'"
#define NOT_MET      "'-2'"
#define MET_MEANTIME "'-3'"

/* Raises what the condition tells, but first that there is more than one row to tell it of. */
#define AFTER " THEN " MET_MEANTIME " ELSE " NOT_MET " END)::pg_catalog.pg_lsn IS NULL"

static char *raise_clause(const pqtx_change *c, const char *name)
{
    return join((const char *const[]){
        "pg_catalog.concat('pqtx_guard:', CASE WHEN (SELECT pg_catalog.count(*) FROM (SELECT FROM ",
        name, " INNER JOIN (SELECT) AS pqtx_two ON (", c->key,
        "\n) LIMIT 2) AS pqtx_found) OPERATOR(pg_catalog.>) 1 THEN '2' WHEN ", NULL});
}

/* The SELECT must not evaluate the condition on the row as the UPDATE has changed it, where it
 * could fail: so the UPDATE leaves a word, of this call alone, and the SELECT looks for it.  The
 * key stands in ON, which is looked at before the select list, so that it gives the parameters
 * their types.  `before` and `after` stand around the condition. */
static struct pair write_pair(pqtx_tx *tx, const pqtx_change *c, int count, bool raises)
{
    struct pair pair = {.status = PQTX_NO_MEMORY};
    const char *returning = c->returning ? c->returning : "*";
    char *name = table_name(tx->wire->conn, c, &pair.status);
    char *limit = limit_clause(count);
    snprintf(pair.word, sizeof pair.word, "%llu.%u", (unsigned long long)tx->flights + 1,
             tx->call_count);
    char *before = name && raises ? raise_clause(c, name) : NULL;
    if (name && limit && (before || !raises)) {
        pair.update = join((const char *const[]){
            "UPDATE ", name, " SET ", c->set, "\nWHERE (", c->key, "\n) AND (", c->condition,
            "\n) RETURNING ", returning, "\n, pg_catalog.set_config('pqtx.changed', '", pair.word,
            "', true) IS NOT NULL", NULL});
        pair.select = join((const char *const[]){
            "SELECT ", returning, "\n, CASE WHEN ", IS_CHANGED(pair.word), " THEN true ELSE ",
            raises ? before : "", "(", c->condition, "\n)", raises ? AFTER : "", " END FROM ", name,
            " INNER JOIN (SELECT) AS pqtx_one ON (", c->key, "\n)", limit, NULL});
    }
    free(name);
    free(limit);
    free(before);
    return pair;
}

static void free_pair(struct pair *pair)
{
    free(pair->update);
    free(pair->select);
}

/* PQTX_OK with the row that tells, in *row; PQTX_BUSY, unmarked, if the row changed in between. */
static pqtx_status judge(pqtx_tx *tx, PGresult *const results[2], PGresult **row)
{
    int updated = PQntuples(results[0]), found = PQntuples(results[1]);
    *row = NULL;
    if (updated > 1 || found > 1)
        return pqtx__fail(tx, PQTX_TOO_MANY, "the key meets more than one row");
    if (updated == 1) {
        *row = results[0];
        return PQTX_OK;
    }
    if (found == 0)
        return pqtx__fail(tx, PQTX_NOT_FOUND, "there is no row with this key");
    *row = results[1];
    if (strcmp(PQgetvalue(*row, 0, PQnfields(*row) - 1), "t") == 0)
        return PQTX_BUSY;
    return pqtx__fail(tx, PQTX_CONDITION_FALSE, "the row is there, its condition is not met");
}

/* One flight of the two statements; hands the row out where there is one. */
static pqtx_status try_once(pqtx_tx *tx, const struct pair *pair, const struct pqtx__params *params,
                            const PGresult **row)
{
    const struct pqtx__statement statements[] = {{pair->update, params}, {pair->select, params}};
    PGresult *results[2], *telling = NULL;
    pqtx_status status = pqtx__fly(tx, statements, 2, results);
    if (status == PQTX_OK)
        status = judge(tx, results, &telling);
    for (int i = 0; i < 2; i++) {
        if (results[i] != telling || !row || status == PQTX_BUSY)
            PQclear(results[i]);
        else if (telling && pqtx__tx_keep(tx, telling, row) != PQTX_OK)
            status = tx->mark;
    }
    return status;
}

static pqtx_status refuse_pair(pqtx_tx *tx, const struct pair *pair)
{
    return pqtx__fail(tx, pair->status, "%s",
                      pair->status == PQTX_NO_MEMORY
                          ? "no memory for the statement"
                          : "the table's name is not valid in the client encoding");
}

static pqtx_status wait_for(pqtx_tx *tx, const pqtx_change *change, int count,
                            const pqtx_value *values, const PGresult **row)
{
    struct pqtx__params params;
    pqtx_status status = pqtx__tx_encode(tx, &params, count, values);
    if (status != PQTX_OK)
        return status;
    struct pair pair = write_pair(tx, change, count, false);
    status = pair.update && pair.select ? PQTX_BUSY : refuse_pair(tx, &pair);
    for (int i = 0; i < TRIES && tx->mark == PQTX_OK && status == PQTX_BUSY; i++)
        status = try_once(tx, &pair, &params, row);
    if (status == PQTX_BUSY)
        status =
            pqtx__fail(tx, status, "the row changed %d times between UPDATE and SELECT", TRIES);
    free_pair(&pair);
    pqtx__params_free(&params);
    return status;
}

/* ---- In pipeline mode the server must tell before COMMIT, so each miss is a guard's error. */

static pqtx_status meaning(int64_t code, const char **why)
{
    switch (code) {
    case -1:
        *why = "there is no row with this key";
        return PQTX_NOT_FOUND;
    case -2:
        *why = "the row is there, its condition is not met";
        return PQTX_CONDITION_FALSE;
    case -3:
        *why = "the row changed between UPDATE and SELECT";
        return PQTX_BUSY;
    default:
        *why = "the key meets more than one row";
        return PQTX_TOO_MANY;
    }
}

static pqtx_status add(pqtx_tx *tx, uint32_t call, const char *sql, enum pqtx__count rule,
                       int count, const pqtx_value *values, bool answers)
{
    return pqtx__call_add(tx, call,
                          &(struct pqtx__request){.sql = sql,
                                                  .kind = pqtx__statement_kind(sql),
                                                  .rule = {rule, 1},
                                                  .count = count,
                                                  .values = values},
                          answers);
}

/* The UPDATE, the SELECT that fails if there is a row that was not changed, and one that fails if
 * there was none. */
static pqtx_status queue_pair(pqtx_tx *tx, const struct pair *pair, int count,
                              const pqtx_value *values, const PGresult **row)
{
    struct pqtx__request request = {
        .rule = {PQTX__COUNT_AT_MOST, 1}, .meaning = meaning, .result = row};
    char *none =
        join((const char *const[]){"SELECT WHERE CASE WHEN ", IS_CHANGED(pair->word),
                                   " THEN false ELSE " PQTX__GUARD_RAISE(NO_ROW) " END", NULL});
    uint32_t call = 0;
    pqtx_status status = none ? pqtx__call_open(tx, &request, &call)
                              : pqtx__fail(tx, PQTX_NO_MEMORY, "no memory for the statement");
    if (status == PQTX_OK)
        status = add(tx, call, pair->update, PQTX__COUNT_AT_MOST, count, values, true);
    if (status == PQTX_OK)
        status = add(tx, call, pair->select, PQTX__COUNT_AT_MOST, count, values, false);
    if (status == PQTX_OK)
        status = add(tx, call, none, PQTX__COUNT_ANY, 0, NULL, false);
    free(none);
    return status == PQTX_OK ? pqtx__call_close(tx) : status;
}

static pqtx_status queue(pqtx_tx *tx, const pqtx_change *change, int count,
                         const pqtx_value *values, const PGresult **row)
{
    struct pair pair = write_pair(tx, change, count, true);
    pqtx_status status = pair.update && pair.select ? queue_pair(tx, &pair, count, values, row)
                                                    : refuse_pair(tx, &pair);
    free_pair(&pair);
    return status;
}

static const char *fault_of(const pqtx_change *change)
{
    if (!change->table || !*change->table)
        return "change.table is missing";
    if (strlen(change->table) > 63 || (change->schema && strlen(change->schema) > 63))
        return "change.schema or change.table is longer than 63 bytes";
    if (!change->key || !change->condition || !change->set)
        return "change.key, change.condition or change.set is missing";
    return NULL;
}

pqtx_status pqtx_update_if(pqtx_tx *tx, const pqtx_change *change, int count,
                           const pqtx_value *values, const PGresult **row)
{
    if (row)
        *row = NULL;
    pqtx_status status = pqtx__tx_enter(tx);
    if (status != PQTX_OK)
        return status;
    pqtx_change read;
    const char *why = "the change is NULL, has no size (start from PQTX_CHANGE), or comes from a "
                      "newer version and uses what this one does not know";
    if (change && pqtx__import(&read, sizeof read, change, change->size) == PQTX_OK)
        why = fault_of(&read);
    if (why)
        status = pqtx__fail(tx, PQTX_MISUSE, "%s", why);
    else
        status = (tx->pipelined ? queue : wait_for)(tx, &read, count, values, row);
    pqtx__tx_leave(tx);
    return status;
}
