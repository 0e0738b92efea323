/* tx.h: statements inside a transaction.
 *
 * These calls are for the body: between pqtx_attempt() and pqtx_commit(), or in a pqtx_work.
 * Elsewhere they return PQTX_MISUSE.  BEGIN, the settings, SAVEPOINT, RELEASE and ROLLBACK TO cost
 * no round trip of their own: they ride in front of the next statement. */
#ifndef PQTX_TX_H
#define PQTX_TX_H

#include <pqtx/run.h>
#include <pqtx/value.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Runs one statement with $1 … $count, at most 65535.
 *
 * *result (or NULL) gets the answer: it belongs to the attempt and dies with the next
 * pqtx_attempt() or pqtx_free(); read it with libpq's PQ… calls or pqtx_get_…(), never PQclear()
 * it.  It is NULL unless PQTX_OK.
 *
 * Any failure marks the attempt.  PQTX_MISUSE without anything sent for: a statement that would end
 * or begin the transaction (BEGIN, COMMIT, ROLLBACK, SAVEPOINT, … : use the calls for them), COPY,
 * a NULL or wrong argument, a text with a NUL inside. */
PQTX_API pqtx_status pqtx_exec(pqtx_tx *tx, const char *sql, int count, const pqtx_value *values,
                               const PGresult **result);

/* The same, for exactly one row returned or affected: PQTX_NO_MATCH and PQTX_TOO_MANY mark the
 * attempt. */
PQTX_API pqtx_status pqtx_exec_one(pqtx_tx *tx, const char *sql, int count,
                                   const pqtx_value *values, const PGresult **result);

/* Runs `work` inside a savepoint.
 *
 * If it returns PQTX_OK and no call in it failed, its changes stay.  If it returns another status,
 * or a call in it failed, the changes since the savepoint are undone, locks included, in front of
 * the next statement, and that status is returned: as an answer, with the attempt unmarked, so that
 * the body can go on.  Failures that no savepoint can mend keep the mark and unwind to the top:
 * 40001, 40P01, 40000, a stale statement, a read-only server, a lost connection, the deadline, no
 * memory, misuse.
 *
 * Savepoints nest.  PQTX_BUSY inside one may be tried again inside the same transaction. */
PQTX_API pqtx_status pqtx_savepoint(pqtx_tx *tx, pqtx_work work, void *arg);

/* Marks the attempt: it will be rolled back, and `status` is the result; a status of the retry mask
 * (PQTX_SERIALIZATION, …) begins the transaction again.  Returns `status`, or PQTX_MISUSE (and
 * marks with it) for what only the library can say: PQTX_OK, PQTX_DONE_BEFORE, PQTX_IN_DOUBT, a
 * negative number.  A mark that stands is kept and returned. */
PQTX_API pqtx_status pqtx_fail(pqtx_tx *tx, pqtx_status status);

/* Actions outside the database.  on_commit ones run once, in order, when the commit is known,
 * inside pqtx_commit(); on_rollback ones once for each attempt that was rolled back, or savepoint
 * that was undone, last first.  In doubt neither runs.  They are forgotten with the attempt: the
 * body registers them anew.  They must not call into the transaction.  `arg` must live until the
 * attempt has ended, not only as long as the savepoint or body that asked. */
typedef void (*pqtx_action)(void *arg);
PQTX_API pqtx_status pqtx_on_commit(pqtx_tx *tx, pqtx_action action, void *arg);
PQTX_API pqtx_status pqtx_on_rollback(pqtx_tx *tx, pqtx_action action, void *arg);

#ifdef __cplusplus
}
#endif

#endif
