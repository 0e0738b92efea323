#ifndef PQTX_LIB_GUARD_H
#define PQTX_LIB_GUARD_H

#include "statement.h"

#include <libpq-fe.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How many rows a statement must touch or return. */
enum pqtx__count { PQTX__COUNT_ANY, PQTX__COUNT_EXACT, PQTX__COUNT_AT_MOST };

struct pqtx__rule {
    enum pqtx__count count;
    int64_t rows;
};

/* Whether a statement of this kind can carry a guard. */
bool pqtx__guard_fits(enum pqtx__kind kind);

/* The statement with its guard, as text of at most `size` bytes; returns the length it would have
 * without the limit.  *shift is how far the guard moved it, to mend error positions. */
size_t pqtx__guard_write(char *text, size_t size, const char *sql, enum pqtx__kind kind,
                         struct pqtx__rule rule, int32_t *shift);

/* Raises the guard's error with a code of its own: an SQL expression that is never true, made of
 * another whose value is the code.  With two more, "':', value", an integer goes along. */
#define PQTX__GUARD_RAISE(code)                                                                    \
    "pg_catalog.concat('pqtx_guard:', " code ")::pg_catalog.pg_lsn IS NULL"

/* Whether an error is a guard's: then *code is the number of rows, or the code of its own, and
 * *value the integer that went along, or untouched. */
bool pqtx__guard_read(const PGresult *error, int64_t *code, int64_t *value);

#endif
