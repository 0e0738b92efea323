#ifndef PQTX_LIB_NAMES_H
#define PQTX_LIB_NAMES_H

#include <pqtx/status.h>

/* The names of a caller's table and of columns in it, and what else differs between one table and
 * another. */
struct pqtx__names {
    const char *schema; /* NULL: search_path decides */
    const char *table;
    const char *key, *value;
    const char *slot;  /* or NULL */
    const char *type;  /* of the key column, as SQL text of ours */
    int32_t slots;     /* how many */
    const char *check; /* of the value column, as a template of ours */
};

/* The same, quoted. */
struct pqtx__quoted {
    struct pqtx__names names;
    char *schema, *table, *key, *value, *slot;
};

/* Why these cannot be names, or NULL. */
const char *pqtx__names_fault(const struct pqtx__names *names);

/* Quotes them for this connection, or, with NULL, for a text that is printed.  PQTX_OK; else
 * PQTX_NO_MEMORY or PQTX_MISUSE with *why, and there is nothing to free. */
pqtx_status pqtx__names_quote(const struct pqtx__names *names, PGconn *conn,
                              struct pqtx__quoted *quoted, const char **why);
void pqtx__names_free(struct pqtx__quoted *quoted);

/* Writes a template with all in its place:
 *
 *     @T        the table            @= @< @>= …  the operator, as OPERATOR(pg_catalog.=)
 *     @K @V @S  the columns          @.           pg_catalog.
 *     @Y        the key's type       @N           the number of slots
 *     @C        the check
 *
 * so that no search_path can put another function, type or operator in the place of PostgreSQL's
 * own.  All operators written so have the same precedence: set parentheses.  (CASE x WHEN, IN,
 * BETWEEN, NULLIF, USING and IS DISTINCT FROM look their operators up there: they are not for
 * templates.)  At most `size` bytes; returns the length it would have without the limit. */
size_t pqtx__names_write(const struct pqtx__quoted *quoted, const char *template, char *buffer,
                         size_t size);

/* The same as a malloc'ed text; NULL without memory. */
char *pqtx__names_text(const struct pqtx__quoted *quoted, const char *template);

#endif
