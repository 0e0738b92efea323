/* run.h: the runner, twice: a loop that any language can wrap, and a callback on top of it.
 *
 * Both begin the *whole* transaction again, from a fresh BEGIN, when the database says that it
 * lost a race; both stop at max_attempts and at the deadline; both say PQTX_OK only if the server
 * confirmed COMMIT.
 *
 *     pqtx_tx *tx = pqtx_new(pool, NULL);
 *     while (pqtx_attempt(tx)) {
 *         pqtx_update_one(tx, "UPDATE … WHERE …", PQTX_ARGS(…));
 *         pqtx_commit(tx);
 *     }
 *     status = pqtx_result(tx);
 *     pqtx_free(tx);
 *
 * The marked attempt: after a call that failed, every later call on the same attempt returns the
 * same status at once and sends nothing, and pqtx_commit() rolls back.  So the body above need not
 * check each call, but must not use what a failed one did not deliver.
 *
 * After fork(), a child cannot use its parent's transactions or pools: calls return PQTX_MISUSE,
 * and freeing and closing them there leaves the parent's sessions alone.
 *
 * A transaction belongs to one thread at a time.  A second thread that calls in meanwhile gets
 * PQTX_MISUSE, but for pqtx_result() and its like, which only look; using a handle after
 * pqtx_free() cannot be detected. */
#ifndef PQTX_RUN_H
#define PQTX_RUN_H

#include <pqtx/options.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A transaction on a pool's connections, or on the caller's own.  Nothing is sent yet.  `options`
 * may be NULL and is copied.  Wrong arguments make a handle whose result is PQTX_MISUSE; without
 * memory it is NULL, or the result PQTX_NO_MEMORY (and every call takes NULL: the loop does not
 * run, the result is PQTX_MISUSE).
 *
 * The caller's connection must be idle, outside a transaction and a pipeline, and must not be used
 * by anyone else until pqtx_free().  It is non-blocking and in pipeline mode while an attempt runs
 * and as it was before in between.  It is never closed: an error with PQTX_ERROR_CONNECTION,
 * whatever its status and whatever PQstatus() says, means that it was lost or left in the middle of
 * something, and PQreset() is the caller's. */
PQTX_API pqtx_tx *pqtx_new(pqtx_pool *pool, const pqtx_options *options);
PQTX_API pqtx_tx *pqtx_new_on(PGconn *conn, const pqtx_options *options);

/* Begins the first attempt, or the next one after rolling the last one back and waiting.
 * 1: run the body.  0: the transaction is decided, ask pqtx_result().
 * An attempt that was left without pqtx_commit() and had not failed is rolled back and ends the
 * run with PQTX_MISUSE: silence is never success. */
PQTX_API int pqtx_attempt(pqtx_tx *tx);

/* Commits.  PQTX_OK: the server confirmed it.  Anything else: it failed, and pqtx_attempt() decides
 * what is next.  On a marked attempt it rolls back and returns the mark.  PQTX_IN_DOUBT: the
 * answer to COMMIT did not come, and what became of it could not be found out.  Then the
 * transaction is over and is not run again; only with an event id, on a pool, pqtx_attempt() goes
 * on, since the event's row keeps it from being applied twice. */
PQTX_API pqtx_status pqtx_commit(pqtx_tx *tx);

/* How it ended; before the end, PQTX_MISUSE. */
PQTX_API pqtx_status pqtx_result(const pqtx_tx *tx);
PQTX_API pqtx_outcome pqtx_get_outcome(const pqtx_tx *tx);

/* How good the answer is: PQTX_LOCAL_ONLY, … of observer.h, 0 for none. */
PQTX_API uint32_t pqtx_get_flags(const pqtx_tx *tx);

/* The first error of the newest attempt that had one, status PQTX_OK and empty if there was none.
 * After a success it tells what the last failed attempt met.  PQTX_MISUSE for a NULL pointer or
 * an error without its size. */
PQTX_API pqtx_status pqtx_get_error(const pqtx_tx *tx, pqtx_error *error);

/* Attempts begun so far. */
PQTX_API uint32_t pqtx_attempts(const pqtx_tx *tx);

/* Rolls back what is open and frees the handle with every result it handed out; NULL is harmless.
 */
PQTX_API void pqtx_free(pqtx_tx *tx);

/* The body of a transaction.  PQTX_OK commits; any other status rolls back and is returned by
 * pqtx_run() unchanged, unless a call failed in a way that begins the transaction again.  It may
 * run several times, so it must reset what it computes, and touch nothing outside the database
 * (see pqtx_on_commit() in tx.h).  PQTX_OK after a failed call is no success: the failure decides.
 * A plain 1 or -1, PQTX_DONE_BEFORE and PQTX_IN_DOUBT are
 * PQTX_MISUSE: for words of its own there is PQTX_USER.  It must not unwind through the library
 * (longjmp, C++ exceptions). */
typedef pqtx_status (*pqtx_work)(pqtx_tx *tx, void *arg);

/* Runs the body until the transaction is decided.  Returns the result; `error` (or NULL) gets what
 * pqtx_get_error() gives. */
PQTX_API pqtx_status pqtx_run(pqtx_pool *pool, const pqtx_options *options, pqtx_work work,
                              void *arg, pqtx_error *error);
PQTX_API pqtx_status pqtx_run_on(PGconn *conn, const pqtx_options *options, pqtx_work work,
                                 void *arg, pqtx_error *error);

#ifdef __cplusplus
}
#endif

#endif
