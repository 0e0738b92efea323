/* guard.c: a statement that must touch so many rows, made to fail on the server if it does not.
 *
 * Where COMMIT is in the same flight, the client hears of a wrong count too late.  So the statement
 * becomes part of a WITH query that counts its rows, and a wrong count is cast to a pg_lsn, which
 * it is not.  Nobody else casts such a text to that type: the error tells itself.  concat() is not
 * immutable, so that the planner does not raise the error beforehand. */
#include "guard.h"

#include <stdlib.h>
#include <string.h>

#define MARK "pqtx_guard:"

/* Where the statement begins and ends, without the semicolons around it, and whether rows come
 * back.  Of two statements both are taken, so that the server refuses them as it does elsewhere. */
struct shape {
    const char *begin, *end;
    bool returns;
};

static struct shape shape_of(const char *sql, enum pqtx__kind kind)
{
    const char *begin = pqtx__statement_begin(sql), *end = pqtx__statement_end(begin);
    if (!pqtx__statement_is_alone(end))
        end += strlen(end);
    return (struct shape){begin, end, kind == PQTX__KIND_READ || pqtx__statement_returns(sql)};
}

bool pqtx__guard_fits(enum pqtx__kind kind)
{
    return kind == PQTX__KIND_READ || kind == PQTX__KIND_WRITE;
}

/* Where the text is written, and its length even beyond the room. */
struct text {
    char *at;
    size_t size, len;
};

static void put(struct text *text, const char *part, size_t len)
{
    if (text->len + len < text->size)
        memcpy(text->at + text->len, part, len);
    text->len += len;
}

static void put_all(struct text *text, const char *part)
{
    put(text, part, strlen(part));
}

static void put_number(struct text *text, int64_t number)
{
    char digits[24];
    size_t at = sizeof digits;
    do
        digits[--at] = (char)('0' + number % 10);
    while ((number /= 10) > 0);
    put(text, digits + at, sizeof digits - at);
}

#define CASE(count)  "CASE WHEN " count " OPERATOR(pg_catalog."
#define RAISE(count) " ELSE " PQTX__GUARD_RAISE(count) " END"

/* No row comes back.  Before what follows the caller's text stands a line end, since the text may
 * end in a comment. */
static void write_bare(struct text *text, const char *compare, int64_t rows)
{
    put_all(text, "\nRETURNING 1) SELECT FROM (SELECT pg_catalog.count(*) AS n FROM pqtx_q) AS g"
                  " WHERE " CASE("g.n"));
    put_all(text, compare);
    put_number(text, rows);
    put_all(text, " THEN false" RAISE("g.n"));
}

/* The rows come back.  The outer join makes sure that the count is looked at where there is none;
 * where none is allowed, there is nothing to look at. */
static void write_returning(struct text *text, const char *compare, int64_t rows, bool none_allowed)
{
    put_all(text, "\n) SELECT pqtx_q.* FROM (SELECT " CASE("pg_catalog.count(*)"));
    put_all(text, compare);
    put_number(text, rows);
    put_all(text, " THEN true" RAISE("pg_catalog.count(*)") " AS ok FROM pqtx_q) AS g ");
    put_all(text, none_allowed ? "INNER" : "LEFT");
    put_all(text, " JOIN pqtx_q ON g.ok");
}

size_t pqtx__guard_write(char *buffer, size_t size, const char *sql, enum pqtx__kind kind,
                         struct pqtx__rule rule, int32_t *shift)
{
    static const char before[] = "WITH pqtx_q AS (";
    struct text text = {buffer, size, 0};
    struct shape shape = shape_of(sql, kind);
    bool at_most = rule.count == PQTX__COUNT_AT_MOST;
    const char *compare = at_most ? "<=) " : "=) ";
    put_all(&text, before);
    put(&text, shape.begin, (size_t)(shape.end - shape.begin));
    if (shape.returns)
        write_returning(&text, compare, rule.rows, at_most || rule.rows == 0);
    else
        write_bare(&text, compare, rule.rows);
    if (size > 0)
        buffer[text.len < size ? text.len : size - 1] = '\0';
    *shift = (int32_t)(sizeof before - 1) - (int32_t)(shape.begin - sql);
    return text.len;
}

bool pqtx__guard_read(const PGresult *error, int64_t *code, int64_t *value)
{
    const char *sqlstate = PQresultErrorField(error, PG_DIAG_SQLSTATE);
    const char *function = PQresultErrorField(error, PG_DIAG_SOURCE_FUNCTION);
    const char *message = PQresultErrorField(error, PG_DIAG_MESSAGE_PRIMARY);
    if (!sqlstate || !function || !message || strcmp(sqlstate, "22P02") != 0 ||
        strncmp(function, "pg_lsn_in", 9) != 0) /* from PostgreSQL 19 on pg_lsn_in_safe */
        return false;
    const char *mark = strstr(message, MARK);
    if (!mark)
        return false;
    char *end;
    *code = strtoll(mark + sizeof MARK - 1, &end, 10);
    if (end[0] == ':' && (end[1] == '-' || (end[1] >= '0' && end[1] <= '9')))
        *value = strtoll(end + 1, NULL, 10);
    return true;
}
