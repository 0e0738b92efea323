/* table.h: a table of yours, described once, for the calls that read and write one row by its key.
 *
 * Every name is quoted by the library, so it is taken as it is written: capitals, reserved words
 * and dots are part of it.  The values of a call stand in the order of key and columns, and so do
 * the columns of the rows that come back.  Keys are of any type: an integer, a text for a text, a
 * uuid or an enum. */
#ifndef PQTX_TABLE_H
#define PQTX_TABLE_H

#include <pqtx/api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Lists of names end in a NULL.  Everything is borrowed during the call. */
typedef struct pqtx_table {
    size_t size;
    const char *schema; /* NULL: search_path decides */
    const char *name;
    const char *const *key;       /* the columns of one unique index */
    const char *const *columns;   /* the others that are read and written; NULL: none */
    const char *const *returning; /* of the rows that come back; NULL: key and columns */

    /* How the key's columns are compared, SQL text of the program.  NULL: OPERATOR(pg_catalog.=),
     * which is right for PostgreSQL's own types and which no search_path can replace.  The type of
     * an extension has its own, as citext has: "OPERATOR(public.=)". */
    const char *equal;
} pqtx_table;

#define PQTX_TABLE PQTX_SIZED(pqtx_table)

#ifdef __cplusplus
}
#endif

#endif
