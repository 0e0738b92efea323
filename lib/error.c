/* error.c: what went wrong, copied out of a result before that is freed. */
#include "error.h"
#include "size.h"
#include "status.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What the first release had: a caller's struct must reach at least past sqlstate. */
#define SIZE_MIN (offsetof(pqtx_error, sqlstate) + sizeof(((pqtx_error *)0)->sqlstate))

static int is_believable(size_t size)
{
    return size >= SIZE_MIN && size <= PQTX__SIZE_MAX;
}

pqtx_status pqtx_error_init(pqtx_error *error, size_t size)
{
    if (!error || !is_believable(size))
        return PQTX_MISUSE;
    memset(error, 0, size);
    error->size = size;
    return PQTX_OK;
}

static int is_inside_character(char c)
{
    return ((unsigned char)c & 0xc0) == 0x80;
}

/* How much of a text of more than `limit` bytes to keep: never half a UTF-8 character, whose inside
 * is at most three bytes; what has a longer one is in another encoding. */
static size_t cut(const char *text, size_t limit)
{
    size_t len = limit;
    while (len > 0 && limit - len < 3 && is_inside_character(text[len]))
        len--;
    return is_inside_character(text[len]) ? limit : len;
}

bool pqtx__text_copy(char *to, size_t size, const char *from)
{
    size_t len = from ? strlen(from) : 0;
    bool fits = len < size;
    if (!fits)
        len = cut(from, size - 1);
    if (len > 0)
        memcpy(to, from, len);
    to[len] = '\0';
    return fits;
}

static void copy_text(pqtx_error *error, char *to, size_t size, const char *from)
{
    if (!pqtx__text_copy(to, size, from))
        error->flags |= PQTX_ERROR_TRUNCATED;
}

#define COPY(error, field, from) copy_text(error, (error)->field, sizeof(error)->field, from)

struct field {
    size_t offset, size;
};

#define FIELD(name)                                                                                \
    {                                                                                              \
        offsetof(pqtx_error, name), sizeof((pqtx_error *)0)->name                                  \
    }

/* The texts; what stands before the first of them is numbers. */
static const struct field texts[] = {
    FIELD(sqlstate),        FIELD(severity),       FIELD(schema_name),     FIELD(table_name),
    FIELD(column_name),     FIELD(datatype_name),  FIELD(constraint_name), FIELD(source_file),
    FIELD(source_function), FIELD(message),        FIELD(detail),          FIELD(hint),
    FIELD(context),         FIELD(internal_query),
};

#define TEXT_COUNT   (sizeof texts / sizeof texts[0])
#define NUMBERS_SIZE offsetof(pqtx_error, sqlstate)

/* Every transaction does this, so of the texts only the first byte is touched. */
void pqtx__error_clear(pqtx_error *error)
{
    memset(error, 0, NUMBERS_SIZE);
    error->size = sizeof *error;
    for (size_t i = 0; i < TEXT_COUNT; i++)
        ((char *)error)[texts[i].offset] = '\0';
}

static void clear(pqtx_error *error, pqtx_status status, pqtx_phase phase, pqtx_origin origin)
{
    memset(error, 0, sizeof *error);
    error->size = sizeof *error;
    error->status = status;
    error->phase = phase;
    error->origin = origin;
    error->advice = pqtx__advice_of_status(status);
}

void pqtx__error_set(pqtx_error *error, pqtx_status status, pqtx_phase phase, pqtx_origin origin,
                     const char *format, ...)
{
    clear(error, status, phase, origin);
    char text[sizeof error->message + 1]; /* one byte more, to see where to cut */
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    COPY(error, message, text);
}

static int32_t number_field(const PGresult *result, int field)
{
    const char *text = PQresultErrorField(result, field);
    return text ? (int32_t)strtol(text, NULL, 10) : 0;
}

/* A cached plan that must change is 0A000 like any missing feature; only its source tells. */
static int is_stale_plan(const char *sqlstate, const char *source_function)
{
    return strcmp(sqlstate, "0A000") == 0 && source_function &&
           strcmp(source_function, "RevalidateCachedQuery") == 0;
}

/* Our own message was wrong, as with too few values for the parameters, and the session goes on.  A
 * pooler uses the same code for a connection that is gone, without this severity. */
static int is_wrong_message(const char *sqlstate, const char *severity)
{
    return strcmp(sqlstate, "08P01") == 0 && severity && strcmp(severity, "ERROR") == 0;
}

/* libpq's own errors have no fields, only a text for people, which ends in a newline. */
static void from_libpq(pqtx_error *error, const PGresult *result, pqtx_phase phase)
{
    clear(error, PQTX_NO_CONNECTION, phase, PQTX_ORIGIN_LIBPQ);
    COPY(error, message, PQresultErrorMessage(result));
    size_t len = strlen(error->message);
    while (len > 0 && error->message[len - 1] == '\n')
        error->message[--len] = '\0';
    if (len == 0)
        COPY(error, message, "the connection was lost, or libpq had no memory for the answer");
}

void pqtx__error_from_result(pqtx_error *error, const PGresult *result, pqtx_phase phase)
{
    const char *sqlstate = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    if (!sqlstate) {
        from_libpq(error, result, phase);
        return;
    }
    const char *function = PQresultErrorField(result, PG_DIAG_SOURCE_FUNCTION);
    const char *severity = PQresultErrorField(result, PG_DIAG_SEVERITY_NONLOCALIZED);
    clear(error, pqtx_status_of_sqlstate(sqlstate), phase,
          function ? PQTX_ORIGIN_SERVER : PQTX_ORIGIN_POOLER);
    error->advice = pqtx_advice_of_sqlstate(sqlstate);
    if (error->status == PQTX_OK) { /* RAISE can give an error a success code */
        error->status = PQTX_RAISED;
        error->advice = PQTX_ADVICE_DECIDE;
    }
    if (is_stale_plan(sqlstate, function)) {
        error->status = PQTX_STALE_STATEMENT;
        error->advice = PQTX_ADVICE_REPREPARE;
    }
    if (is_wrong_message(sqlstate, severity)) {
        error->status = PQTX_MISUSE;
        error->advice = PQTX_ADVICE_FIX;
    }
    error->statement_position = number_field(result, PG_DIAG_STATEMENT_POSITION);
    error->internal_position = number_field(result, PG_DIAG_INTERNAL_POSITION);
    error->source_line = number_field(result, PG_DIAG_SOURCE_LINE);
    COPY(error, sqlstate, sqlstate);
    COPY(error, severity, severity);
    COPY(error, schema_name, PQresultErrorField(result, PG_DIAG_SCHEMA_NAME));
    COPY(error, table_name, PQresultErrorField(result, PG_DIAG_TABLE_NAME));
    COPY(error, column_name, PQresultErrorField(result, PG_DIAG_COLUMN_NAME));
    COPY(error, datatype_name, PQresultErrorField(result, PG_DIAG_DATATYPE_NAME));
    COPY(error, constraint_name, PQresultErrorField(result, PG_DIAG_CONSTRAINT_NAME));
    COPY(error, source_file, PQresultErrorField(result, PG_DIAG_SOURCE_FILE));
    COPY(error, source_function, function);
    COPY(error, message, PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY));
    COPY(error, detail, PQresultErrorField(result, PG_DIAG_MESSAGE_DETAIL));
    COPY(error, hint, PQresultErrorField(result, PG_DIAG_MESSAGE_HINT));
    COPY(error, context, PQresultErrorField(result, PG_DIAG_CONTEXT));
    COPY(error, internal_query, PQresultErrorField(result, PG_DIAG_INTERNAL_QUERY));
}

bool pqtx__error_is_open(const pqtx_error *error)
{
    return !error || is_believable(error->size);
}

/* What stands behind a text's end is nobody's business, and is not copied. */
pqtx_status pqtx__error_export(const pqtx_error *from, pqtx_error *to)
{
    if (!to || !is_believable(to->size))
        return PQTX_MISUSE;
    size_t size = to->size, end = 0;
    if (from->status == PQTX_OK && size == sizeof *from) {
        pqtx__error_clear(to); /* as after most transactions */
        return PQTX_OK;
    }
    memcpy(to, from, NUMBERS_SIZE);
    for (size_t i = 0; i < TEXT_COUNT && texts[i].offset + texts[i].size <= size; i++) {
        const char *text = (const char *)from + texts[i].offset;
        memcpy((char *)to + texts[i].offset, text, *text ? strlen(text) + 1 : 1);
        end = texts[i].offset + texts[i].size;
    }
    if (size != sizeof *from)
        memset((char *)to + end, 0, size - end);
    to->size = size;
    return PQTX_OK;
}

pqtx_status pqtx__error_report(pqtx_error *to, pqtx_status status, const char *why)
{
    pqtx_error error = PQTX_ERROR;
    pqtx__error_set(&error, status, PQTX_PHASE_NONE, PQTX_ORIGIN_LIBRARY, "%s", why);
    pqtx__error_export(&error, to);
    return status;
}

/* Where pqtx_error_format() writes: counts on past the end, as snprintf does. */
struct line {
    char *buffer;
    size_t size;
    size_t len;
};

static void put_byte(struct line *line, char c)
{
    if (line->len + 1 < line->size)
        line->buffer[line->len] = c;
    line->len++;
}

/* Server text is not trusted: a newline or an escape sequence must not reach a log as it is.  Nor
 * is a caller's struct: its texts need not end. */
static void put_text(struct line *line, const char *text, size_t size)
{
    static const char digits[] = "0123456789abcdef";
    for (; size > 0 && *text; text++, size--) {
        unsigned char c = (unsigned char)*text;
        if (c >= 0x20 && c != 0x7f) {
            put_byte(line, *text);
            continue;
        }
        put_byte(line, '\\');
        put_byte(line, 'x');
        put_byte(line, digits[c >> 4]);
        put_byte(line, digits[c & 0xf]);
    }
}

static void put_field(struct line *line, const char *label, const char *text, size_t size)
{
    if (!text[0])
        return;
    put_text(line, label, SIZE_MAX);
    put_text(line, text, size);
}

#define PUT(line, label, field) put_field(line, label, field, sizeof(field))

size_t pqtx_error_format(const pqtx_error *error, char *buffer, size_t size)
{
    struct line line = {buffer, buffer ? size : 0, 0};
    pqtx_error whole = PQTX_ERROR;
    if (error && is_believable(error->size))
        memcpy(&whole, error, error->size < sizeof whole ? error->size : sizeof whole);
    else
        pqtx__error_set(&whole, PQTX_MISUSE, PQTX_PHASE_NONE, PQTX_ORIGIN_LIBRARY,
                        "the error is NULL or was not initialised");
    put_text(&line, pqtx_status_name(whole.status), SIZE_MAX);
    PUT(&line, " ", whole.sqlstate);
    PUT(&line, ": ", whole.message);
    PUT(&line, "; detail: ", whole.detail);
    PUT(&line, "; hint: ", whole.hint);
    PUT(&line, "; constraint: ", whole.constraint_name);
    PUT(&line, "; table: ", whole.table_name);
    PUT(&line, "; column: ", whole.column_name);
    PUT(&line, "; context: ", whole.context);
    if (line.size > 0)
        line.buffer[line.len < line.size ? line.len : line.size - 1] = '\0';
    return line.len;
}

/* What the SQLSTATE says by itself, since the status may be another's already. */
pqtx_status pqtx_status_of_constraint(const pqtx_error *error, const pqtx_constraint *constraints,
                                      size_t count)
{
    const size_t needed = offsetof(pqtx_error, constraint_name) + sizeof error->constraint_name;
    if (!error || !is_believable(error->size) || (!constraints && count > 0))
        return PQTX_MISUSE;
    pqtx_status cause = error->sqlstate[0] ? pqtx_status_of_sqlstate(error->sqlstate) : PQTX_OK;
    if (error->size < needed || (!pqtx_is_answer(cause) && cause != PQTX_RAISED))
        return error->status;
    for (size_t i = 0; i < count; i++)
        if (constraints[i].name && strcmp(constraints[i].name, error->constraint_name) == 0)
            return constraints[i].status;
    return error->status;
}

const char *pqtx_phase_name(pqtx_phase phase)
{
    static const char *const names[] = {"none", "connect", "begin", "body", "commit", "rollback"};
    return (unsigned)phase < sizeof names / sizeof names[0] ? names[phase] : "unknown";
}

const char *pqtx_origin_name(pqtx_origin origin)
{
    static const char *const names[] = {"none", "server", "pooler", "libpq", "library"};
    return (unsigned)origin < sizeof names / sizeof names[0] ? names[origin] : "unknown";
}
