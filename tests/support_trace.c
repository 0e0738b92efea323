/* support_trace.c: libpq's trace of a connection, read again.
 *
 * A message is one line of side, length, type and fields between tabs; a line that does not begin
 * so belongs to the statement before. */
#define _DEFAULT_SOURCE
#include "support_trace.h"
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct fake_clock *noted;
static FILE *trace;
static char *traced;
static size_t traced_len, cut_at;

/* Into the trace itself, so that it stands where it happened. */
static void note_wait(struct fake_clock *clock, int events)
{
    (void)clock;
    if (events & PQTX_WAIT_READ)
        fputs("wait\n", trace);
}

void trace_start(PGconn *conn, struct fake_clock *fake)
{
    noted = fake;
    cut_at = 0;
    trace = open_memstream(&traced, &traced_len);
    ck_assert_ptr_nonnull(trace);
    PQtrace(conn, trace);
    PQsetTraceFlags(conn, PQTRACE_SUPPRESS_TIMESTAMPS | PQTRACE_REGRESS_MODE);
    fake->waiting = note_wait;
}

void trace_stop(PGconn *conn)
{
    noted->waiting = NULL;
    if (conn)
        PQuntrace(conn);
    fclose(trace);
    free(traced);
}

void trace_cut(void)
{
    fflush(trace);
    cut_at = traced_len;
}

static char reduced[16384];

static void add(const char *mark, const char *text, int len)
{
    size_t at = strlen(reduced);
    ck_assert_uint_lt(at + strlen(mark) + (size_t)len + 2, sizeof reduced);
    sprintf(reduced + at, "%s%.*s\n", mark, len, text);
}

/* Of `"name" …` the text between its quotes. */
static const char *quoted(const char *fields, int *len)
{
    const char *begin = strchr(fields, '"') + 1;
    *len = (int)strcspn(begin, "\"");
    return begin;
}

/* The number that a prepared statement's name ends with; 0 for one without a name. */
static int number_of(const char *name, int len)
{
    int at = len;
    while (at > 0 && name[at - 1] != '_')
        at--;
    return len == 0 ? 0 : (int)strtol(name + at, NULL, 10);
}

/* `"name" "text" 0 …`; of a text with lines, the first of them. */
static void add_parse(const char *fields)
{
    char mark[32] = "> ";
    int len;
    const char *name = quoted(fields, &len);
    const char *text = name + len + 3;
    const char *end = strrchr(text, '"');
    if (len > 0)
        snprintf(mark, sizeof mark, "> parse %d: ", number_of(name, len));
    add(mark, text, end ? (int)(end - text) : (int)strlen(text));
}

static void add_tag(const char *fields)
{
    int len;
    const char *tag = quoted(fields, &len);
    add("< ", tag, len);
}

static void add_error(const char *fields)
{
    const char *code = strstr(fields, " C \"");
    ck_assert_ptr_nonnull(code);
    add("< error ", code + 4, 5);
}

static bool is(const char *type, const char *name)
{
    size_t len = strlen(name);
    return strncmp(type, name, len) == 0 && (type[len] == '\t' || type[len] == '\0');
}

/* Bind names the portal and then the statement. */
static int bound(const char *fields)
{
    int len;
    const char *portal = quoted(fields, &len);
    const char *name = quoted(portal + len + 1, &len);
    return number_of(name, len);
}

/* Which message of a statement's group must come next, if any. */
enum { PARSE, BIND, DESCRIBE, EXECUTE, GROUP };
static int next;

static void reduce_sent(const char *type, const char *fields)
{
    static const char *const group[GROUP] = {"Parse", "Bind", "Describe", "Execute"};
    int len;
    char number[16];
    if (next == PARSE && is(type, "Bind")) {
        snprintf(number, sizeof number, "%d", bound(fields));
        add("> ", number, (int)strlen(number));
        next = DESCRIBE;
    } else if (is(type, group[next])) {
        if (next == PARSE)
            add_parse(fields);
        quoted(fields, &len);
        if (next != PARSE || len == 0)
            next = (next + 1) % GROUP;
    } else {
        ck_assert_int_eq(next, PARSE);
        add("> ", type, (int)strcspn(type, "\t"));
    }
}

static void reduce_message(char side, const char *type, const char *fields)
{
    if (side == 'F')
        reduce_sent(type, fields);
    else if (is(type, "CommandComplete"))
        add_tag(fields);
    else if (is(type, "ErrorResponse"))
        add_error(fields);
    else if (is(type, "ReadyForQuery"))
        add("< ", fields + strspn(fields, " \t"), 1);
}

const char *trace_wire(void)
{
    bool waited = true; /* since the last Sync */
    fflush(trace);
    reduced[0] = '\0';
    next = PARSE;
    char *copy = strdup(traced + cut_at);
    ck_assert_ptr_nonnull(copy);
    for (char *line = copy, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        *end = '\0';
        if (strcmp(line, "wait") == 0) {
            if (!waited)
                add("", line, 4);
            waited = true;
        } else if ((line[0] == 'F' || line[0] == 'B') && line[1] == '\t') {
            const char *type = line + 2 + strcspn(line + 2, "\t") + 1;
            reduce_message(line[0], type, type + strcspn(type, "\t"));
            waited &= line[0] == 'B';
        }
    }
    free(copy);
    return reduced;
}

/* In lines of their own. */
static int count(const char *line)
{
    int count = 0;
    for (const char *at = trace_wire(); (at = strstr(at, line)) != NULL; at++)
        count += at == reduced || at[-1] == '\n';
    return count;
}

int trace_syncs(void)
{
    return count("> Sync\n");
}

int trace_trips(void)
{
    return count("wait\n");
}
