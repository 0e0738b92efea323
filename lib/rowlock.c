/* rowlock.c: SELECT … FOR UPDATE and its kin, and one row that is read under it and written back.
 */
#include "statement.h"
#include "table.h"
#include "tx.h"

#include <pqtx/rowlock.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRIES 5 /* of a row that comes and goes */

static const char *const lock_clauses[] = {"FOR NO KEY UPDATE", "FOR UPDATE", "FOR SHARE",
                                           "FOR KEY SHARE"};
static const char *const wait_clauses[] = {"", " NOWAIT", " SKIP LOCKED"};

static const char *fault_of_clause(pqtx_row_lock lock, pqtx_row_wait wait)
{
    if ((unsigned)lock >= sizeof lock_clauses / sizeof lock_clauses[0])
        return "the lock is none of PQTX_FOR_…";
    if ((unsigned)wait >= sizeof wait_clauses / sizeof wait_clauses[0])
        return "the wait is none of PQTX_WAIT, PQTX_NOWAIT, PQTX_SKIP_LOCKED";
    return NULL;
}

static const char *fault_of_select(const char *sql)
{
    if (!sql)
        return "the statement is NULL";
    if (pqtx__statement_kind(sql) != PQTX__KIND_READ)
        return "only a statement that begins with SELECT or TABLE locks the rows it reads: behind "
               "WITH, what the WITH query has read would not be locked";
    if (pqtx__statement_locks(sql))
        return "the statement has a locking clause already, which the library appends";
    if (!pqtx__statement_has_from(sql))
        return "a statement without FROM has no rows to lock";
    return NULL;
}

/* In front of the semicolon, if there is one; on a line of its own, since what stands before may
 * end in a comment. */
static char *append(const char *sql, pqtx_row_lock lock, pqtx_row_wait wait)
{
    size_t size = strlen(sql) + 64;
    const char *end = pqtx__statement_end(pqtx__statement_begin(sql));
    char *text = malloc(size);
    if (text)
        snprintf(text, size, "%.*s\n%s%s%s", (int)(end - sql), sql, lock_clauses[lock],
                 wait_clauses[wait], end);
    return text;
}

static pqtx_status select_for(pqtx_tx *tx, const char *sql, pqtx_row_lock lock, pqtx_row_wait wait,
                              struct pqtx__request request)
{
    if (request.result)
        *request.result = NULL;
    pqtx_status status = pqtx__tx_enter(tx);
    if (status != PQTX_OK)
        return status;
    const char *why = fault_of_clause(lock, wait);
    if (!why)
        why = fault_of_select(sql);
    char *text = why ? NULL : append(sql, lock, wait);
    request.sql = text;
    if (why)
        status = pqtx__fail(tx, PQTX_MISUSE, "%s", why);
    else if (!text)
        status = pqtx__fail(tx, PQTX_NO_MEMORY, "no memory for the statement");
    else
        status = pqtx__tx_ask(tx, &request);
    free(text);
    pqtx__tx_leave(tx);
    return status;
}

pqtx_status pqtx_select_for(pqtx_tx *tx, const char *sql, pqtx_row_lock lock, pqtx_row_wait wait,
                            int count, const pqtx_value *values, const PGresult **result)
{
    return select_for(tx, sql, lock, wait,
                      (struct pqtx__request){.count = count, .values = values, .result = result});
}

pqtx_status pqtx_select_one_for(pqtx_tx *tx, const char *sql, pqtx_row_lock lock,
                                pqtx_row_wait wait, int count, const pqtx_value *values,
                                const PGresult **result)
{
    return select_for(
        tx, sql, lock, wait,
        (struct pqtx__request){
            .count = count, .values = values, .rule = {PQTX__COUNT_EXACT, 1}, .result = result});
}

/* ---- one row, by its key */

static pqtx_status meaning(int64_t rows, const char **why)
{
    *why = rows == 0 ? "there is no row with this key" : "the key meets more than one row";
    return rows == 0 ? PQTX_NOT_FOUND : PQTX_TOO_MANY;
}

/* The statement that reads under the lock, and the one that only looks. */
struct reader {
    char *read, *look;
    int count;
    const pqtx_value *values;
    bool skips;
};

static bool write_reader(pqtx_tx *tx, const struct pqtx__table *table, pqtx_row_lock lock,
                         pqtx_row_wait wait, struct reader *reader)
{
    char sql[96];
    snprintf(sql, sizeof sql, "SELECT @r FROM @t WHERE @w\n%s%s", lock_clauses[lock],
             wait_clauses[wait]);
    reader->skips = wait == PQTX_SKIP_LOCKED;
    reader->read = pqtx__table_sql(tx, table, sql);
    reader->look =
        reader->read ? pqtx__table_sql(tx, table, "SELECT FROM @t WHERE @w LIMIT 1") : NULL;
    return reader->look != NULL;
}

/* None came: is there really none?  One that was deleted and inserted anew while we waited is newer
 * than the statement.  PQTX_BUSY, unmarked, if there is one. */
static pqtx_status look(pqtx_tx *tx, const struct reader *reader)
{
    PGresult *result;
    const char *why;
    pqtx_status status = pqtx__tx_exec(tx, reader->look, reader->count, reader->values, &result);
    bool found = status == PQTX_OK && PQntuples(result) > 0;
    PQclear(result);
    if (status != PQTX_OK)
        return status;
    if (found)
        return PQTX_BUSY;
    status = meaning(0, &why);
    return pqtx__fail(tx, status, "%s", why);
}

static pqtx_status read_once(pqtx_tx *tx, const struct reader *reader, const PGresult **row)
{
    PGresult *result;
    const char *why;
    pqtx_status status = pqtx__tx_exec(tx, reader->read, reader->count, reader->values, &result);
    int rows = status == PQTX_OK ? PQntuples(result) : 0;
    if (status == PQTX_OK && rows == 1 && row)
        return pqtx__tx_keep(tx, result, row);
    PQclear(result);
    if (status != PQTX_OK || rows == 1)
        return status;
    if (rows == 0)
        return look(tx, reader);
    status = meaning(rows, &why);
    return pqtx__fail(tx, status, "%s", why);
}

static pqtx_status read_row(pqtx_tx *tx, const struct reader *reader, const PGresult **row)
{
    pqtx_status status = PQTX_BUSY;
    int tries = reader->skips ? 1 : TRIES;
    for (int i = 0; i < tries && tx->mark == PQTX_OK && status == PQTX_BUSY; i++)
        status = read_once(tx, reader, row);
    if (status == PQTX_BUSY && !reader->skips)
        return pqtx__fail(tx, status, "the row came and went %d times", TRIES);
    return status;
}

pqtx_status pqtx_row_read(pqtx_tx *tx, const pqtx_table *given, pqtx_row_lock lock,
                          pqtx_row_wait wait, int count, const pqtx_value *values,
                          const PGresult **row)
{
    if (row)
        *row = NULL;
    pqtx_status status = pqtx__tx_enter(tx);
    if (status != PQTX_OK)
        return status;
    struct pqtx__table table;
    struct reader reader = {.count = count, .values = values};
    const char *why = fault_of_clause(lock, wait);
    if (why)
        status = pqtx__fail(tx, PQTX_MISUSE, "%s", why);
    else
        status = pqtx__table_read(tx, given, PQTX__KEY, count, &table);
    if (status == PQTX_OK)
        status =
            write_reader(tx, &table, lock, wait, &reader) ? read_row(tx, &reader, row) : tx->mark;
    free(reader.read);
    free(reader.look);
    pqtx__tx_leave(tx);
    return status;
}

pqtx_status pqtx_row_write(pqtx_tx *tx, const pqtx_table *given, int count,
                           const pqtx_value *values)
{
    pqtx_status status = pqtx__tx_enter(tx);
    if (status != PQTX_OK)
        return status;
    struct pqtx__table table;
    char *sql = NULL;
    status = pqtx__table_read(tx, given, PQTX__KEY_AND_COLUMNS, count, &table);
    if (status == PQTX_OK && (table.key_count == 0 || table.column_count == 0))
        status = pqtx__fail(tx, PQTX_MISUSE, "table.key or table.columns is missing");
    if (status == PQTX_OK) {
        sql = pqtx__table_sql(tx, &table, "UPDATE @t SET @s WHERE @w");
        status = sql ? pqtx__tx_ask(tx, &(struct pqtx__request){.sql = sql,
                                                                .count = count,
                                                                .values = values,
                                                                .rule = {PQTX__COUNT_EXACT, 1},
                                                                .meaning = meaning})
                     : tx->mark;
    }
    free(sql);
    pqtx__tx_leave(tx);
    return status;
}
