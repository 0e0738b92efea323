#ifndef PQTX_LIB_TABLE_H
#define PQTX_LIB_TABLE_H

#include "attempt.h"

#include <pqtx/table.h>

/* A caller's table, read and checked. */
struct pqtx__table {
    pqtx_table is;
    int key_count, column_count;
};

/* Which values a call takes. */
enum pqtx__part { PQTX__KEY, PQTX__KEY_AND_COLUMNS };

/* Reads it for a call with so many values; PQTX_OK or the mark. */
pqtx_status pqtx__table_read(pqtx_tx *tx, const pqtx_table *given, enum pqtx__part part, int count,
                             struct pqtx__table *table);

/* A statement about it, malloc'ed, made of a text in which stand
 *
 *     @t  the table                      @w  "key" = $1 AND …
 *     @k  the key's names                @s  "column" = $2, …
 *     @n  those of key and columns       @x  "column" = EXCLUDED."column", …
 *     @v  $1, $2, …, one for each        @r  the names of what comes back
 *
 * NULL, and the attempt is marked, without memory, or if a name is not valid in the client
 * encoding. */
char *pqtx__table_sql(pqtx_tx *tx, const struct pqtx__table *table, const char *sql);

#endif
