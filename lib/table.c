/* table.c: statements about a caller's table, its names quoted. */
#include "table.h"
#include "options.h"
#include "quote.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_MAX_LEN 63 /* a longer one would be cut, and mean another column */

static const char *fault_of_names(const char *const *names, int *count)
{
    *count = 0;
    for (; names && names[*count]; ++*count)
        if (!*names[*count] || strlen(names[*count]) > NAME_MAX_LEN)
            return "a column's name in table.key, columns or returning is empty, or longer than 63 "
                   "bytes";
    return NULL;
}

static const char *fault_of(struct pqtx__table *table, enum pqtx__part part)
{
    const pqtx_table *is = &table->is;
    int returning_count;
    if (!is->name || !*is->name)
        return "table.name is missing";
    if (strlen(is->name) > NAME_MAX_LEN || (is->schema && strlen(is->schema) > NAME_MAX_LEN))
        return "table.schema or table.name is longer than 63 bytes";
    const char *why = fault_of_names(is->key, &table->key_count);
    if (!why)
        why = fault_of_names(is->columns, &table->column_count);
    if (!why)
        why = fault_of_names(is->returning, &returning_count);
    if (!why && part == PQTX__KEY && table->key_count == 0)
        why = "table.key is missing";
    return why;
}

pqtx_status pqtx__table_read(pqtx_tx *tx, const pqtx_table *given, enum pqtx__part part, int count,
                             struct pqtx__table *table)
{
    const char *why = "the table is NULL, has no size (start from PQTX_TABLE), or comes from a "
                      "newer version and uses what this one does not know";
    if (given && pqtx__import(&table->is, sizeof table->is, given, given->size) == PQTX_OK)
        why = fault_of(table, part);
    if (why)
        return pqtx__fail(tx, PQTX_MISUSE, "%s", why);
    int wanted = table->key_count + (part == PQTX__KEY ? 0 : table->column_count);
    if (count != wanted)
        return pqtx__fail(tx, PQTX_MISUSE, "%d values, where table.%s has %d columns", count,
                          part == PQTX__KEY ? "key" : "key with table.columns", wanted);
    return PQTX_OK;
}

/* ---- the text */

struct text {
    PGconn *conn;
    char *at;
    size_t len, size;
    pqtx_status status;
};

static void put(struct text *text, const char *part, size_t len)
{
    if (!text->at || text->len + len >= text->size) {
        size_t size = 2 * text->size + len + 256;
        char *bigger = realloc(text->at, size);
        if (!bigger) {
            text->status = PQTX_NO_MEMORY;
            return;
        }
        text->at = bigger;
        text->size = size;
    }
    memcpy(text->at + text->len, part, len);
    text->len += len;
    text->at[text->len] = '\0';
}

static void put_all(struct text *text, const char *part)
{
    put(text, part, strlen(part));
}

static void put_name(struct text *text, const char *name)
{
    char *quoted = pqtx__quote(text->conn, name, &text->status);
    if (quoted)
        put_all(text, quoted);
    free(quoted);
}

static void put_number(struct text *text, int number)
{
    char digits[16];
    snprintf(digits, sizeof digits, "$%d", number);
    put_all(text, digits);
}

static void put_table(struct text *text, const pqtx_table *is)
{
    if (is->schema && *is->schema) {
        put_name(text, is->schema);
        put_all(text, ".");
    }
    put_name(text, is->name);
}

/* One of the list that a letter stands for. */
static void put_item(struct text *text, const pqtx_table *is, char letter, const char *name,
                     int number)
{
    if (letter != 'v')
        put_name(text, name);
    if (letter == 'w') {
        put_all(text, " ");
        put_all(text, is->equal ? is->equal : "OPERATOR(pg_catalog.=)");
        put_all(text, " ");
    } else if (letter == 's') {
        put_all(text, " = ");
    } else if (letter == 'x') {
        put_all(text, " = EXCLUDED.");
        put_name(text, name);
    }
    if (letter == 'v' || letter == 'w' || letter == 's')
        put_number(text, number);
}

static void put_list(struct text *text, const struct pqtx__table *table, char letter)
{
    const pqtx_table *is = &table->is;
    int keys = table->key_count, all = keys + table->column_count;
    int begin = letter == 's' || letter == 'x' ? keys : 0;
    int end = letter == 'k' || letter == 'w' ? keys : all;
    for (int i = begin; i < end; i++) {
        if (i > begin)
            put_all(text, letter == 'w' ? " AND " : ", ");
        put_item(text, is, letter, i < keys ? is->key[i] : is->columns[i - keys], i + 1);
    }
}

static void put_returning(struct text *text, const struct pqtx__table *table)
{
    const char *const *names = table->is.returning;
    if (!names)
        put_list(text, table, 'n');
    for (size_t i = 0; names && names[i]; i++) {
        if (i > 0)
            put_all(text, ", ");
        put_name(text, names[i]);
    }
}

static void put_letter(struct text *text, const struct pqtx__table *table, char letter)
{
    if (letter == 't')
        put_table(text, &table->is);
    else if (letter == 'r')
        put_returning(text, table);
    else
        put_list(text, table, letter);
}

char *pqtx__table_sql(pqtx_tx *tx, const struct pqtx__table *table, const char *sql)
{
    struct text text = {.conn = tx->wire->conn};
    while (text.status == PQTX_OK) {
        size_t plain = strcspn(sql, "@");
        put(&text, sql, plain);
        sql += plain;
        if (!*sql)
            break;
        if (text.status == PQTX_OK)
            put_letter(&text, table, sql[1]);
        sql += 2;
    }
    if (text.status == PQTX_OK)
        return text.at;
    free(text.at);
    pqtx__fail(tx, text.status, "%s",
               text.status == PQTX_NO_MEMORY
                   ? "no memory for the statement"
                   : "a name of the table is not valid in the client encoding");
    return NULL;
}
