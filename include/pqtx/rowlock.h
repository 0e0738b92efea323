/* rowlock.h: read a row and keep others from changing it until the transaction ends.
 *
 * For what must be decided between reading and writing.  What one UPDATE can decide by its WHERE
 * (update.h) needs no lock, and one round trip less.
 *
 * A row lock is held to the end of the transaction, or until the savepoint that took it is undone.
 * A row that is not there cannot be locked: another session may insert it meanwhile; see insert.h.
 *
 * READ COMMITTED: sound.  After a wait the server looks at the newest version of the row and asks
 * the WHERE again, of that row alone: what comes from other tables and subqueries is as old as the
 * statement.  So after a wait
 *   - rows stand in the order of before, and LIMIT takes the first of that order, though what they
 *     are ordered by may have changed;
 *   - a row that has come to meet the condition meanwhile is missed, so that there may be none;
 *   - so is one that was deleted and inserted anew (pqtx_row_read() looks again).
 * REPEATABLE READ and SERIALIZABLE: sound.  A row that was changed since the snapshot is 40001, and
 * the transaction begins again.
 * A row of a partitioned table that moves to another partition is 40001 at every level.
 *
 * Waiting is bounded by lock_timeout, for each row by itself, and so is waiting for a table, which
 * NOWAIT and SKIP LOCKED do as well.  Transactions that lock several rows must do it in one order,
 * by ORDER BY on the key, else they can deadlock; and whoever is to write a row later must not lock
 * it PQTX_FOR_SHARE first: two of these wait for each other. */
#ifndef PQTX_ROWLOCK_H
#define PQTX_ROWLOCK_H

#include <pqtx/table.h>
#include <pqtx/tx.h>

#ifdef __cplusplus
extern "C" {
#endif

/* From the one that suits almost always.  Who refers to the row by a foreign key is let through by
 * all but PQTX_FOR_UPDATE. */
typedef enum pqtx_row_lock {
    PQTX_FOR_NO_KEY_UPDATE = 0, /* to change it, but not its key */
    PQTX_FOR_UPDATE = 1,        /* to delete it or change its key */
    PQTX_FOR_SHARE = 2,         /* that nobody changes it; others may share */
    PQTX_FOR_KEY_SHARE = 3,     /* that nobody deletes it or changes its key; others may */
    PQTX_FOR_MAX = 0x7fffffff
} pqtx_row_lock;

typedef enum pqtx_row_wait {
    PQTX_WAIT = 0,        /* within lock_timeout */
    PQTX_NOWAIT = 1,      /* PQTX_BUSY if another holds a row: it is a failure as any other */
    PQTX_SKIP_LOCKED = 2, /* as if rows that another holds were not there: for queues */
    PQTX_ROW_WAIT_MAX = 0x7fffffff
} pqtx_row_wait;

/* Runs a SELECT and locks the rows that it gives, any number of them.  The library appends the
 * locking clause.
 *
 * PQTX_MISUSE for a statement that has one, does not begin with SELECT or TABLE (behind WITH it
 * would not lock what the WITH query read), or has no FROM.  What the server cannot lock it refuses
 * as PQTX_BAD_STATEMENT, and says why: DISTINCT, GROUP BY, aggregates, UNION, the empty side of an
 * outer join.  Rows of functions and VALUES in FROM are not locked.
 *
 * The rest is as with pqtx_exec(): *result (or NULL), its lifetime, pipeline mode. */
PQTX_API pqtx_status pqtx_select_for(pqtx_tx *tx, const char *sql, pqtx_row_lock lock,
                                     pqtx_row_wait wait, int count, const pqtx_value *values,
                                     const PGresult **result);

/* The same for exactly one row: PQTX_NO_MATCH and PQTX_TOO_MANY mark the attempt. */
PQTX_API pqtx_status pqtx_select_one_for(pqtx_tx *tx, const char *sql, pqtx_row_lock lock,
                                         pqtx_row_wait wait, int count, const pqtx_value *values,
                                         const PGresult **result);

/* Read, decide, write, for one row that is picked by its key (table.h):
 *
 *     pqtx_row_read(tx, &stock, PQTX_FOR_NO_KEY_UPDATE, PQTX_WAIT, PQTX_ARGS(key), &row);
 *     …
 *     pqtx_row_write(tx, &stock, PQTX_ARGS(key, left));
 *
 * The body may run several times, so what it decides must come from this row.
 *
 * Reads and locks it; the values are those of the key.  PQTX_OK: *row has table.returning, or key
 * and columns.  PQTX_NOT_FOUND: there is no row with this key.  PQTX_TOO_MANY: the key meets
 * several.  These mark the attempt, as does PQTX_BUSY after a wait or with PQTX_NOWAIT; with
 * PQTX_SKIP_LOCKED PQTX_BUSY is an answer, and the body goes on.
 *
 * The answer is needed at once, so in pipeline mode the call lands what is queued, in the same
 * round trip.  A miss is looked at again, in a statement of its own, so that it rests on one state
 * of the table; where the row comes and goes meanwhile, five times, it is PQTX_BUSY. */
PQTX_API pqtx_status pqtx_row_read(pqtx_tx *tx, const pqtx_table *table, pqtx_row_lock lock,
                                   pqtx_row_wait wait, int count, const pqtx_value *values,
                                   const PGresult **row);

/* Writes all of table.columns of the row that was read; the values are those of key and columns.
 * To write other columns than were read, give another description.  PQTX_NOT_FOUND, PQTX_TOO_MANY
 * as above.  In pipeline mode it rides with COMMIT: read, decide, write take two round trips. */
PQTX_API pqtx_status pqtx_row_write(pqtx_tx *tx, const pqtx_table *table, int count,
                                    const pqtx_value *values);

#ifdef __cplusplus
}
#endif

#endif
