/* update.h: change a row only if its condition still holds.
 *
 * Put the condition into the statement and let the server check it on the newest version of the
 * row: `UPDATE seat SET taken_by = $2 WHERE id = $1 AND taken_by IS NULL`.  Sound at every
 * isolation level: READ COMMITTED evaluates the condition again after waiting for the row's lock;
 * REPEATABLE READ and SERIALIZABLE fail with 40001 instead and begin again. */
#ifndef PQTX_UPDATE_H
#define PQTX_UPDATE_H

#include <pqtx/tx.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Runs one INSERT, UPDATE, DELETE or MERGE; *rows (or NULL) gets the rows affected, from 0 up, and
 * none of these counts is a failure.  PQTX_MISUSE for a statement that has no row count. */
PQTX_API pqtx_status pqtx_update(pqtx_tx *tx, const char *sql, int count, const pqtx_value *values,
                                 int64_t *rows);

/* The same for exactly one row.  PQTX_NO_MATCH: none met the condition; PQTX_TOO_MANY: several did.
 * Both mark the attempt, so nothing is committed. */
PQTX_API pqtx_status pqtx_update_one(pqtx_tx *tx, const char *sql, int count,
                                     const pqtx_value *values);

/* A conditional change of one row, in parts, so that a miss can be explained.
 * schema and table are names and are quoted; the rest is SQL text of the program (never of a user)
 * and may use the parameters $1 … $count. */
typedef struct pqtx_change {
    size_t size;
    const char *schema;    /* NULL: search_path decides */
    const char *table;     /* "stock" */
    const char *key;       /* "id = $1": at most one row */
    const char *condition; /* "left_over >= $2" */
    const char *set;       /* "left_over = left_over - $2" */
    const char *returning; /* NULL: "*" */
} pqtx_change;

#define PQTX_CHANGE PQTX_SIZED(pqtx_change)

/* PQTX_OK: changed, *row is the row as it is now.
 * PQTX_CONDITION_FALSE: the row is there and the condition is not met, *row is the row as it is.
 * PQTX_NOT_FOUND: there is no row with this key, *row is NULL.  PQTX_TOO_MANY: the key meets more.
 * All but PQTX_OK mark the attempt; run it in a savepoint to go on after them.
 *
 * *row (or NULL) has the columns of `returning`, and one more at the end that is the library's.
 * Lifetime as in pqtx_exec().
 *
 * One round trip, no lock is kept when nothing was changed, and each verdict rests on one committed
 * state of the row.  Where the row changed between the two statements that this takes, they are run
 * again, at most five times, then PQTX_BUSY.
 *
 * In pipeline mode a miss comes with the flight: PQTX_CONDITION_FALSE then has no row, and a row
 * that changed in between is PQTX_BUSY at once. */
PQTX_API pqtx_status pqtx_update_if(pqtx_tx *tx, const pqtx_change *change, int count,
                                    const pqtx_value *values, const PGresult **row);

#ifdef __cplusplus
}
#endif

#endif
