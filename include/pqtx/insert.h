/* insert.h: insert a row if there is none with its key, or write over the one that is there.
 *
 * The table must have a unique index on exactly the columns of table.key (table.h), else
 * PQTX_BAD_STATEMENT.  Another unique index, an exclusion constraint, a CHECK or a foreign key that
 * is violated is a failure as anywhere, PQTX_DUPLICATE with its name in pqtx_error.constraint_name;
 * pqtx_options.constraints makes them statuses of your own.  Of two sessions that insert the same
 * row at the same time, one can be told of another unique index than the key's, if both hold.
 *
 * Sound at every isolation level.  A session that inserts the same key at the same time is waited
 * for, within lock_timeout, and its row counts if it commits.  READ COMMITTED goes on with that
 * row; REPEATABLE READ and SERIALIZABLE, whose snapshot has no such row, fail with 40001 and begin
 * again (a plain INSERT would say 23505 there).
 *
 * Where the row is there already, no default is computed: an identity or serial column does not
 * lose a number, as it does by INSERT … ON CONFLICT alone. */
#ifndef PQTX_INSERT_H
#define PQTX_INSERT_H

#include <pqtx/table.h>
#include <pqtx/tx.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Inserts the row, if there is none; the values are those of key and columns.
 *
 * PQTX_OK: inserted, *row (or NULL) is the new one, with table.returning, or key and columns.
 * PQTX_DUPLICATE: there is one, *row is that one, as it was just now, not locked.  It is an answer:
 * the attempt is unmarked and the body goes on.  All else marks.
 *
 * Without a key in the table any unique or exclusion constraint counts as there, and `row` must be
 * NULL.  A NULL among the key's values is PQTX_MISUSE: it equals nothing.
 *
 * One round trip, and in pipeline mode the same one lands what is queued.  With `row` it is two
 * statements; where the row was deleted between them they are run again, at most five times, then
 * PQTX_BUSY, which marks. */
PQTX_API pqtx_status pqtx_insert_new(pqtx_tx *tx, const pqtx_table *table, int count,
                                     const pqtx_value *values, const PGresult **row);

/* The same where a row that is there is a failure: PQTX_DUPLICATE marks the attempt, and *row is
 * NULL.  In pipeline mode it rides with the rest. */
PQTX_API pqtx_status pqtx_insert_one(pqtx_tx *tx, const pqtx_table *table, int count,
                                     const pqtx_value *values, const PGresult **row);

/* Inserts the row, or sets table.columns of the one that is there.  *row (or NULL) is the row as it
 * is now, and one more column at its end, a boolean, true if it was inserted:
 *
 *     pqtx_get_bool(row, 0, PQnfields(row) - 1, &inserted);
 *
 * One statement, one round trip, also in pipeline mode.  It writes even if nothing differs.
 * PQTX_NO_MATCH or PQTX_TOO_MANY if a trigger keeps the row from being written, or a child table
 * has the key as well.  To compute a value from the old one, write the statement yourself, and do
 * not compare EXCLUDED with itself. */
PQTX_API pqtx_status pqtx_upsert(pqtx_tx *tx, const pqtx_table *table, int count,
                                 const pqtx_value *values, const PGresult **row);

#ifdef __cplusplus
}
#endif

#endif
