/* pipeline.h: a whole transaction in one round trip.
 *
 * In pipeline mode the calls of a body are queued instead of waited for, and leave together, COMMIT
 * with them:
 *
 *     while (pqtx_attempt(tx)) {
 *         pqtx_pipeline(tx);
 *         pqtx_update_one(tx, take, PQTX_ARGS(PQTX_INT(from), PQTX_INT(amount)));
 *         pqtx_update_one(tx, give, PQTX_ARGS(PQTX_INT(to), PQTX_INT(amount)));
 *         pqtx_commit(tx);
 *     }
 *
 * So no lock is held while anything travels, which is what limits the rate on one row.  PQTX_OK
 * from a call means that it is queued.  What it hands out (a result, a count) is filled in when the
 * flight lands: in pqtx_flush(), in a call that cannot wait, or in pqtx_commit(); until then
 * *result is NULL and *rows is 0, and the variables must live as long: in pqtx_run(), which commits
 * after the body has returned, longer than the body's own.  A queue of 1000 statements, or about a
 * mebibyte, is sent without being asked.
 *
 * How many rows a call must have is checked before COMMIT, and where that is in the same flight, by
 * the server: there pqtx_update_one() and its like become a WITH query that fails if the count is
 * wrong, so that nothing is committed, and the failure comes back as the status of that call, with
 * its number in pqtx_error.call.  PostgreSQL refuses such a query (0A000, PQTX_BAD_STATEMENT) where
 * the table has rules; without an expectation the statement is sent as it is.
 *
 * What needs an answer lands what is queued, in the same round trip as itself: pqtx_try_lock(), and
 * a statement with an expectation that no WITH query can hold (one that begins with WITH itself,
 * MERGE, CALL, SHOW, …).  pqtx_savepoint() lands what is queued before its work, and again what is
 * queued at the end of it.  Sound wherever the same calls are without it.
 *
 * The whole last flight is "committing": if its answer is lost, the outcome is in doubt, unless the
 * server had already said that a statement failed.  Of the ways to resolve that, only
 * PQTX_DOUBT_TOKEN works, and a READ ONLY access: an xid would be in the answer that was lost.
 *
 * At the deadline the flight is cancelled, whatever it is at: a wait for a synchronous standby that
 * is broken off so ends committed, with PQTX_LOCAL_ONLY.
 *
 * A flight that is also the first of its transaction goes without BEGIN and COMMIT where isolation
 * and access are the session's own, on a pool's connection to the server itself: the server takes
 * all that comes before one Sync for a transaction.  That is the cheapest form. */
#ifndef PQTX_PIPELINE_H
#define PQTX_PIPELINE_H

#include <pqtx/tx.h>

#ifdef __cplusplus
extern "C" {
#endif

/* From now on, to the end of the attempt, calls are queued.  PQTX_PIPELINE in pqtx_options.flags
 * does the same from the start. */
PQTX_API pqtx_status pqtx_pipeline(pqtx_tx *tx);

/* Sends what is queued and waits for the answers; a round trip, or none if nothing is queued.
 * PQTX_OK, or the status of the first call that failed. */
PQTX_API pqtx_status pqtx_flush(pqtx_tx *tx);

/* How many calls the attempt has queued so far: the ordinal of the next one, from 0.  Calls that
 * answer at once, as pqtx_try_lock() and pqtx_savepoint() do, do not count. */
PQTX_API uint32_t pqtx_queued(const pqtx_tx *tx);

/* What a queued call came to, by its ordinal, for those who cannot give it variables: after the
 * flight has landed, until the next pqtx_attempt() or pqtx_free(), after pqtx_commit() too.
 *
 * PQTX_OK, *result as pqtx_exec() gives it (NULL or without rows where the call has none to give),
 * and *rows the rows returned or affected; the attempt's status, if this call or another one of its
 * flight failed, or it was not sent for that; PQTX_MISUSE if there is no such call or it has not
 * landed.  Not PQTX_OK where the answer was lost, even if it was found out that the transaction
 * committed.  `result` and `rows` may be NULL. */
PQTX_API pqtx_status pqtx_answer(const pqtx_tx *tx, uint32_t call, const PGresult **result,
                                 int64_t *rows);

#ifdef __cplusplus
}
#endif

#endif
