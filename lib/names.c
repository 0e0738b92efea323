/* names.c: the names of a caller's table, quoted, and put into the text of our statements.
 *
 * Names are quoted by libpq, which knows the client encoding.  A value never comes near a text. */
#include "names.h"
#include "quote.h"
#include "value.h"

#include <libpq-fe.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define NAME_MAX_LEN 63 /* longer ones are cut by the server, and two of them may then be one */

static bool is_name(const char *name)
{
    size_t len = strlen(name);
    return len > 0 && len <= NAME_MAX_LEN;
}

const char *pqtx__names_fault(const struct pqtx__names *n)
{
    if ((n->schema && !is_name(n->schema)) || !is_name(n->table) || !is_name(n->key) ||
        !is_name(n->value) || (n->slot && !is_name(n->slot)))
        return "a name of the table or of a column is empty or longer than 63 bytes";
    return NULL;
}

/* In every encoding that a server can have, a quote stands for itself only. */
static char *double_quotes(const char *name)
{
    char *text = malloc(2 * strlen(name) + 3), *at = text;
    if (!text)
        return NULL;
    *at++ = '"';
    for (; *name; name++) {
        if (*name == '"')
            *at++ = '"';
        *at++ = *name;
    }
    memcpy(at, "\"", 2);
    return text;
}

/* Notes in *status, unless it is bad already, why a name could not be quoted. */
static char *quote(PGconn *conn, const char *name, pqtx_status *status, const char **why)
{
    pqtx_status failed = PQTX_NO_MEMORY;
    char *quoted = !name ? NULL : conn ? pqtx__quote(conn, name, &failed) : double_quotes(name);
    if (quoted || !name || *status != PQTX_OK)
        return quoted;
    *status = failed;
    *why = failed == PQTX_MISUSE
               ? "a name of the table or of a column is not valid in the client encoding"
               : "no memory for the statement";
    return NULL;
}

pqtx_status pqtx__names_quote(const struct pqtx__names *names, PGconn *conn,
                              struct pqtx__quoted *quoted, const char **why)
{
    pqtx_status status = PQTX_OK;
    quoted->names = *names;
    quoted->schema = quote(conn, names->schema, &status, why);
    quoted->table = quote(conn, names->table, &status, why);
    quoted->key = quote(conn, names->key, &status, why);
    quoted->value = quote(conn, names->value, &status, why);
    quoted->slot = quote(conn, names->slot, &status, why);
    if (status != PQTX_OK)
        pqtx__names_free(quoted);
    return status;
}

void pqtx__names_free(struct pqtx__quoted *quoted)
{
    free(quoted->schema);
    free(quoted->table);
    free(quoted->key);
    free(quoted->value);
    free(quoted->slot);
}

/* Where a text is written, and its length even beyond the room. */
struct text {
    char *at;
    size_t size, len;
};

static void put(struct text *text, const char *part, size_t len)
{
    if (text->len < text->size)
        memcpy(text->at + text->len, part,
               len < text->size - text->len ? len : text->size - text->len);
    text->len += len;
}

static void put_all(struct text *text, const char *part)
{
    if (part)
        put(text, part, strlen(part));
}

static void expand(struct text *text, const struct pqtx__quoted *q, const char *template);

static void put_table(struct text *text, const struct pqtx__quoted *q)
{
    put_all(text, q->schema);
    put_all(text, q->schema ? "." : NULL);
    put_all(text, q->table);
}

static void put_number(struct text *text, int64_t number)
{
    char digits[32];
    put(text, digits, pqtx__int_text(number, digits));
}

/* What stands for one letter. */
static void put_letter(struct text *text, const struct pqtx__quoted *q, char letter)
{
    if (letter == 'T')
        put_table(text, q);
    else if (letter == 'K')
        put_all(text, q->key);
    else if (letter == 'V')
        put_all(text, q->value);
    else if (letter == 'S')
        put_all(text, q->slot);
    else if (letter == 'Y')
        put_all(text, q->names.type);
    else if (letter == 'N')
        put_number(text, q->names.slots);
    else if (letter == '.')
        put_all(text, "pg_catalog.");
    else if (letter == 'C' && q->names.check)
        expand(text, q, q->names.check);
}

static void put_operator(struct text *text, const char *symbol, size_t len)
{
    put_all(text, "OPERATOR(pg_catalog.");
    put(text, symbol, len);
    put_all(text, ")");
}

static void expand(struct text *text, const struct pqtx__quoted *q, const char *template)
{
    for (;;) {
        size_t plain = strcspn(template, "@");
        put(text, template, plain);
        if (!template[plain])
            return;
        template += plain + 1;
        size_t symbol = strspn(template, "=<>+-%/");
        if (symbol > 0)
            put_operator(text, template, symbol);
        else
            put_letter(text, q, *template);
        template += symbol > 0 ? symbol : 1;
    }
}

size_t pqtx__names_write(const struct pqtx__quoted *quoted, const char *template, char *buffer,
                         size_t size)
{
    struct text text = {buffer, size, 0};
    expand(&text, quoted, template);
    if (size > 0)
        buffer[text.len < size ? text.len : size - 1] = '\0';
    return text.len;
}

char *pqtx__names_text(const struct pqtx__quoted *quoted, const char *template)
{
    size_t len = pqtx__names_write(quoted, template, NULL, 0);
    char *text = malloc(len + 1);
    if (text)
        pqtx__names_write(quoted, template, text, len + 1);
    return text;
}
