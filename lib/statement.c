/* statement.c: the first word of a statement, to keep the runner's own words out of a body.
 *
 * A body that typed COMMIT would end the transaction under the runner, and what follows would
 * commit by itself.  The extended protocol takes one statement at a time, so its first word tells.
 */
#include "statement.h"

#include <stddef.h>
#include <string.h>

static const char *skip_line(const char *at)
{
    return at + strcspn(at, "\r\n");
}

/* Comments nest, as they do in PostgreSQL. */
static const char *skip_comment(const char *at)
{
    int depth = 0;
    do {
        if (at[0] == '/' && at[1] == '*') {
            depth++;
            at += 2;
        } else if (at[0] == '*' && at[1] == '/') {
            depth--;
            at += 2;
        } else {
            at++;
        }
    } while (depth > 0 && *at);
    return at;
}

/* Past all that the grammar allows before a statement, empty statements included. */
static const char *skip_blank(const char *at)
{
    for (;;) {
        at += strspn(at, " \t\n\r\f\v;");
        if (at[0] == '-' && at[1] == '-')
            at = skip_line(at);
        else if (at[0] == '/' && at[1] == '*')
            at = skip_comment(at);
        else
            return at;
    }
}

static int is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Compares the word at `at` with one in capitals, in ASCII whatever the locale. */
static int is_word(const char *at, const char *word)
{
    for (; *word; at++, word++)
        if (*at != *word && (!is_letter(*at) || *at - 'a' != *word - 'A'))
            return 0;
    return !is_letter(*at) && *at != '_' && *at != '$' && !(*at >= '0' && *at <= '9') &&
           (unsigned char)*at < 0x80;
}

static const char *next_word(const char *at)
{
    while (is_letter(*at))
        at++;
    return skip_blank(at);
}

/* The words that tell, those of most statements first. */
enum pqtx__kind pqtx__statement_kind(const char *sql)
{
    static const struct {
        const char *word;
        enum pqtx__kind kind;
    } kinds[] = {
        {"UPDATE", PQTX__KIND_WRITE},    {"SELECT", PQTX__KIND_READ},
        {"INSERT", PQTX__KIND_WRITE},    {"DELETE", PQTX__KIND_WRITE},
        {"WITH", PQTX__KIND_PLAIN},      {"VALUES", PQTX__KIND_READ},
        {"TABLE", PQTX__KIND_READ},      {"MERGE", PQTX__KIND_PLAIN},
        {"CALL", PQTX__KIND_CALL},       {"BEGIN", PQTX__KIND_RUNNER},
        {"START", PQTX__KIND_RUNNER},    {"COMMIT", PQTX__KIND_RUNNER},
        {"END", PQTX__KIND_RUNNER},      {"ROLLBACK", PQTX__KIND_RUNNER},
        {"ABORT", PQTX__KIND_RUNNER},    {"SAVEPOINT", PQTX__KIND_RUNNER},
        {"RELEASE", PQTX__KIND_RUNNER},  {"COPY", PQTX__KIND_COPY},
        {"PREPARE", PQTX__KIND_PREPARE},
    };
    const char *word = skip_blank(sql);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (is_word(word, kinds[i].word))
            return kinds[i].kind;
    return PQTX__KIND_OTHER;
}

const char *pqtx__statement_fault(const char *sql, enum pqtx__kind kind)
{
    switch (kind) {
    case PQTX__KIND_RUNNER:
        return "BEGIN, COMMIT, ROLLBACK, SAVEPOINT and their kin are the runner's to send: "
               "return from the body, or use pqtx_commit(), pqtx_fail(), pqtx_savepoint()";
    case PQTX__KIND_PREPARE:
        if (is_word(next_word(skip_blank(sql)), "TRANSACTION"))
            return "PREPARE TRANSACTION would take the transaction away from the runner";
        return NULL;
    case PQTX__KIND_COPY:
        return "COPY does not work in pipeline mode, in which every statement is sent";
    default:
        return NULL;
    }
}

int pqtx__kind_is_plain(enum pqtx__kind kind)
{
    return kind == PQTX__KIND_WRITE || kind == PQTX__KIND_READ || kind == PQTX__KIND_PLAIN;
}

int pqtx__statement_reads(const char *sql)
{
    enum pqtx__kind kind = pqtx__statement_kind(sql);
    return pqtx__kind_is_plain(kind) || kind == PQTX__KIND_CALL;
}

static int is_name_byte(char c)
{
    return is_letter(c) || c == '_' || (c >= '0' && c <= '9') || (unsigned char)c >= 0x80;
}

/* Past 'text' or "name".  A quote that is doubled is inside; in E'text' a backslash takes the byte
 * after it along. */
static const char *skip_quoted(const char *at, int escapes)
{
    char quote = *at++;
    while (*at && (*at != quote || at[1] == quote))
        at += (*at == quote || (escapes && *at == '\\')) && at[1] ? 2 : 1;
    return *at ? at + 1 : at;
}

/* Past $tag$text$tag$; a dollar that begins none is past itself. */
static const char *skip_dollar(const char *at)
{
    const char *tag = at + 1;
    while (is_name_byte(*tag))
        tag++;
    if (*tag != '$' || (at[1] >= '0' && at[1] <= '9'))
        return at + 1;
    size_t len = (size_t)(tag - at) + 1;
    const char *end = tag + 1;
    while (*end && strncmp(end, at, len) != 0)
        end++;
    return *end ? end + len : end;
}

/* Past one piece of a statement: a comment, a quoted text, a name or word, or one byte. */
static const char *skip_piece(const char *at)
{
    if (at[0] == '-' && at[1] == '-')
        return skip_line(at);
    if (at[0] == '/' && at[1] == '*')
        return skip_comment(at);
    if (at[0] == '\'' || at[0] == '"')
        return skip_quoted(at, 0);
    if ((at[0] == 'E' || at[0] == 'e') && at[1] == '\'')
        return skip_quoted(at + 1, 1);
    if (at[0] == '$')
        return skip_dollar(at);
    if (!is_name_byte(*at))
        return at + 1;
    while (is_name_byte(*at) || *at == '$')
        at++;
    return at;
}

const char *pqtx__statement_begin(const char *sql)
{
    const char *word = skip_blank(sql);
    for (const char *at = sql; at < word; at = skip_piece(at))
        if (*at == ';')
            sql = at + 1;
    return sql + strspn(sql, " \t\n\r\f\v");
}

int pqtx__statement_is_alone(const char *end)
{
    return *skip_blank(end) == '\0';
}

const char *pqtx__statement_end(const char *sql)
{
    if (!strchr(sql, ';'))
        return sql + strlen(sql);
    while (*sql && *sql != ';')
        sql = skip_piece(sql);
    return sql;
}

/* The first such word outside of parentheses, or NULL. */
static const char *find_word(const char *at, const char *word)
{
    int depth = 0;
    for (; *at; at = skip_piece(at)) {
        depth += (*at == '(') - (*at == ')');
        if (depth == 0 && (*at | 0x20) == (*word | 0x20) && is_word(at, word))
            return at;
    }
    return NULL;
}

/* Most have no G at all, which is quick to see. */
int pqtx__statement_returns(const char *sql)
{
    if (!strchr(sql, 'G') && !strchr(sql, 'g'))
        return 0;
    return find_word(skip_blank(sql), "RETURNING") != NULL;
}

/* A column may be called AS for. */
int pqtx__statement_locks(const char *sql)
{
    static const char *const words[] = {"UPDATE", "NO", "SHARE", "KEY", "READ"};
    const char *at = find_word(skip_blank(sql), "FOR");
    for (; at; at = find_word(skip_piece(at), "FOR"))
        for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
            if (is_word(next_word(at), words[i]))
                return 1;
    return 0;
}

int pqtx__statement_has_from(const char *sql)
{
    const char *at = skip_blank(sql);
    return !is_word(at, "SELECT") || find_word(at, "FROM") != NULL;
}
