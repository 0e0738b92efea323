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

const char *pqtx__statement_fault(const char *sql)
{
    static const char *const runner[] = {"BEGIN",    "START", "COMMIT",    "END",
                                         "ROLLBACK", "ABORT", "SAVEPOINT", "RELEASE"};
    const char *word = skip_blank(sql);
    for (size_t i = 0; i < sizeof runner / sizeof runner[0]; i++)
        if (is_word(word, runner[i]))
            return "BEGIN, COMMIT, ROLLBACK, SAVEPOINT and their kin are the runner's to send: "
                   "return from the body, or use pqtx_commit(), pqtx_fail(), pqtx_savepoint()";
    if (is_word(word, "PREPARE") && is_word(next_word(word), "TRANSACTION"))
        return "PREPARE TRANSACTION would take the transaction away from the runner";
    if (is_word(word, "COPY"))
        return "COPY does not work in pipeline mode, in which every statement is sent";
    return NULL;
}

int pqtx__statement_reads(const char *sql)
{
    static const char *const readers[] = {"SELECT", "INSERT", "UPDATE", "DELETE", "MERGE",
                                          "WITH",   "VALUES", "TABLE",  "CALL"};
    const char *word = skip_blank(sql);
    for (size_t i = 0; i < sizeof readers / sizeof readers[0]; i++)
        if (is_word(word, readers[i]))
            return 1;
    return 0;
}
