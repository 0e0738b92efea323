/* serializable.c: SERIALIZABLE by everyone who touches a rule: asked for, enforced, looked into. */
#include "options.h"
#include "tx.h"

#include <pqtx/serializable.h>

#include <string.h>

/* ---- asked for */

#define LEVEL "pg_catalog.current_setting('transaction_isolation')"

static const char is_snapshot[] =
    "SELECT 1 WHERE pg_catalog.\"left\"(" LEVEL ", 4) OPERATOR(pg_catalog.<>) 'read'";
static const char is_serializable[] =
    "SELECT 1 WHERE " LEVEL " OPERATOR(pg_catalog.=) 'serializable'";

/* No row: the WHERE has refused. */
static pqtx_status needs_snapshot(int64_t code, const char **why)
{
    (void)code;
    *why = "this is sound at REPEATABLE READ and SERIALIZABLE only: set options.isolation";
    return PQTX_WRONG_ISOLATION;
}

static pqtx_status needs_serializable(int64_t code, const char **why)
{
    (void)code;
    *why = "this is sound at SERIALIZABLE only: set options.isolation";
    return PQTX_WRONG_ISOLATION;
}

static pqtx_status ask(pqtx_tx *tx, pqtx_isolation least)
{
    struct pqtx__request request = {.rule = {PQTX__COUNT_EXACT, 1}};
    switch (least) {
    case PQTX_ISO_READ_COMMITTED:
        return PQTX_OK; /* the server has nothing below it */
    case PQTX_ISO_REPEATABLE_READ:
        request.sql = is_snapshot;
        request.meaning = needs_snapshot;
        return pqtx__tx_ask(tx, &request);
    case PQTX_ISO_SERIALIZABLE:
        request.sql = is_serializable;
        request.meaning = needs_serializable;
        return pqtx__tx_ask(tx, &request);
    default:
        return pqtx__fail(tx, PQTX_MISUSE, "the isolation is none of PQTX_ISO_…, or the default");
    }
}

pqtx_status pqtx_require_isolation(pqtx_tx *tx, pqtx_isolation least)
{
    pqtx_status status = pqtx__tx_enter(tx);
    if (status != PQTX_OK)
        return status;
    status = ask(tx, least);
    pqtx__tx_leave(tx);
    return status;
}

/* ---- enforced */

#define NAME_MAX_LEN 63

/* Where the text is written, and its length even beyond the room. */
struct text {
    char *at;
    size_t size, len;
};

static void put_byte(struct text *text, char byte)
{
    if (text->len + 1 < text->size)
        text->at[text->len] = byte;
    text->len++;
}

static void put(struct text *text, const char *part)
{
    while (*part)
        put_byte(text, *part++);
}

/* In none of the client encodings is the byte of a quote part of another character. */
static void put_quoted(struct text *text, const char *name)
{
    put_byte(text, '"');
    for (; *name; name++) {
        if (*name == '"')
            put_byte(text, '"');
        put_byte(text, *name);
    }
    put_byte(text, '"');
}

static void put_name(struct text *text, const char *schema, const char *name)
{
    if (schema) {
        put_quoted(text, schema);
        put_byte(text, '.');
    }
    put_quoted(text, name);
}

/* No name of the caller's stands in here, so that none can end the quotes. */
static const char refusal[] =
    "() RETURNS trigger LANGUAGE plpgsql\n"
    "SET search_path = pg_catalog, pg_temp AS $pqtx$\n"
    "BEGIN\n"
    "    RAISE EXCEPTION 'table \"%\" is written at isolation level SERIALIZABLE only', "
    "TG_TABLE_NAME\n"
    "        USING ERRCODE = 'PQ094', SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME,\n"
    "        HINT = 'BEGIN ISOLATION LEVEL SERIALIZABLE, and the whole again on 40001.';\n"
    "END\n"
    "$pqtx$;\n";

/* CREATE OR REPLACE TRIGGER is not known to PostgreSQL 13.  The condition stands in the trigger,
 * so that nothing is called where all is well. */
static void put_ddl(struct text *text, const char *schema, const char *table)
{
    static const char name[] = "pqtx_serializable";
    put(text, "CREATE OR REPLACE FUNCTION ");
    put_name(text, schema, name);
    put(text, refusal);
    put(text, "DROP TRIGGER IF EXISTS pqtx_serializable ON ");
    put_name(text, schema, table);
    put(text, ";\nCREATE TRIGGER pqtx_serializable\n"
              "BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON ");
    put_name(text, schema, table);
    put(text, "\nFOR EACH STATEMENT WHEN (" LEVEL "\n"
              "    OPERATOR(pg_catalog.<>) 'serializable')\nEXECUTE FUNCTION ");
    put_name(text, schema, name);
    put(text, "();\n");
}

static bool is_name(const char *name)
{
    size_t len = strlen(name);
    return len > 0 && len <= NAME_MAX_LEN;
}

size_t pqtx_serializable_ddl(const char *schema, const char *table, char *buffer, size_t size)
{
    struct text text = {buffer, buffer ? size : 0, 0};
    if (table && is_name(table) && (!schema || is_name(schema)))
        put_ddl(&text, schema, table);
    if (text.size > 0)
        buffer[text.len < text.size ? text.len : text.size - 1] = '\0';
    return text.len;
}

/* ---- looked into */

/* A session's earlier transactions can have locks left, under the same pid; the virtual transaction
 * tells them apart. */
static const char predicate_sql[] =
    "WITH l AS MATERIALIZED (SELECT k.locktype, k.mode, k.relation, k.virtualtransaction"
    " FROM pg_catalog.pg_locks AS k"
    " WHERE k.pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid())"
    " SELECT n.nspname, c.relname, c.relkind OPERATOR(pg_catalog.=) 'i',"
    " pg_catalog.count(*) FILTER (WHERE l.locktype OPERATOR(pg_catalog.=) 'tuple') AS tuples,"
    " pg_catalog.count(*) FILTER (WHERE l.locktype OPERATOR(pg_catalog.=) 'page') AS pages,"
    " pg_catalog.count(*) FILTER (WHERE l.locktype OPERATOR(pg_catalog.=) 'relation') AS whole"
    " FROM l"
    " JOIN pg_catalog.pg_class AS c ON c.oid OPERATOR(pg_catalog.=) l.relation"
    " JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace"
    " WHERE l.mode OPERATOR(pg_catalog.=) 'SIReadLock'"
    " AND l.virtualtransaction OPERATOR(pg_catalog.=) (SELECT v.virtualtransaction FROM l AS v"
    " WHERE v.locktype OPERATOR(pg_catalog.=) 'virtualxid'"
    " AND v.mode OPERATOR(pg_catalog.=) 'ExclusiveLock')"
    " GROUP BY c.oid, n.nspname, c.relname, c.relkind"
    " ORDER BY whole DESC, pages DESC, tuples DESC, n.nspname, c.relname";

static int64_t number(const PGresult *result, int row, int column)
{
    int64_t value = 0;
    pqtx_get_int(result, row, column, &value);
    return value;
}

static void write_lock(pqtx_predicate_lock *theirs, size_t size, const PGresult *result, int row)
{
    pqtx_predicate_lock lock = PQTX_PREDICATE_LOCK;
    pqtx__text_copy(lock.schema, sizeof lock.schema, PQgetvalue(result, row, 0));
    pqtx__text_copy(lock.relation, sizeof lock.relation, PQgetvalue(result, row, 1));
    lock.is_index = PQgetvalue(result, row, 2)[0] == 't';
    lock.tuples = number(result, row, 3);
    lock.pages = number(result, row, 4);
    lock.whole = number(result, row, 5) > 0;
    memcpy(theirs, &lock, size < sizeof lock ? size : sizeof lock);
    theirs->size = size;
}

static pqtx_status look(pqtx_tx *tx, pqtx_predicate_lock *locks, size_t capacity, size_t *count)
{
    PGresult *result;
    pqtx_predicate_lock first;
    size_t size = capacity > 0 && locks ? locks->size : 0;
    if (!count || (capacity > 0 && !locks))
        return pqtx__fail(tx, PQTX_MISUSE, "the locks or their count are NULL");
    if (capacity > 0 && pqtx__import(&first, sizeof first, locks, size) != PQTX_OK)
        return pqtx__fail(tx, PQTX_MISUSE,
                          "the locks have no size (start from PQTX_PREDICATE_LOCK), or come from a "
                          "newer version and use what this one does not know");
    pqtx_status status = pqtx__tx_exec(tx, predicate_sql, 0, NULL, &result);
    if (status == PQTX_OK)
        *count = (size_t)PQntuples(result);
    for (size_t i = 0; status == PQTX_OK && i < *count && i < capacity; i++)
        write_lock((pqtx_predicate_lock *)(void *)((char *)locks + i * size), size, result, (int)i);
    PQclear(result);
    return status;
}

pqtx_status pqtx_predicate_locks(pqtx_tx *tx, pqtx_predicate_lock *locks, size_t capacity,
                                 size_t *count)
{
    if (count)
        *count = 0;
    pqtx_status status = pqtx__tx_enter(tx);
    if (status != PQTX_OK)
        return status;
    status = look(tx, locks, capacity, count);
    pqtx__tx_leave(tx);
    return status;
}
