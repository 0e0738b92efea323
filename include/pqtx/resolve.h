/* resolve.h: what became of a COMMIT whose answer was lost.
 *
 * By token (PQTX_DOUBT_TOKEN): the transaction writes a random token into pqtx_once in front of
 * COMMIT.  The resolver writes the same token as void: if that succeeds, the transaction can never
 * commit any more; if the token is there, it has committed.  It waits while the transaction is
 * still under way.  The answer is final, behind poolers and after a failover too.
 *
 * By xid (PQTX_DOUBT_XID): the transaction's xid, the system's identifier and the timeline are read
 * along with the writes, and pg_xact_status() is asked.  It needs no table.  After a failover the
 * timeline differs, and the answer stays in doubt: an xid of another timeline proves nothing. After
 * a crash of the server "committed" proves nothing either: an xid that had not reached the disk is
 * given out again.  That there was none shows only in an unchanged last checkpoint, so a ticket by
 * xid is for seconds.  Without an xid no row was changed: a transaction with PQTX_ACCESS_READ_ONLY
 * is then rolled back and run again, any other is in doubt with PQTX_NO_CHANGE, since a NOTIFY or a
 * write to a foreign table takes effect without one.
 *
 * pqtx_run() and pqtx_commit() do this by themselves when asked to by pqtx_options.in_doubt, within
 * what is left of the deadline and at least resolve_ms.  Where the time was not enough, the ticket
 * serves for later, in another process too. */
#ifndef PQTX_RESOLVE_H
#define PQTX_RESOLVE_H

#include <pqtx/pool.h>
#include <pqtx/run.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The ticket of the attempt that is in doubt, or was.  PQTX_NOT_FOUND if there is none. */
PQTX_API pqtx_status pqtx_get_ticket(const pqtx_tx *tx, pqtx_ticket *ticket);

/* Finds out within timeout_ms (0: 10000).  PQTX_OK: *outcome is PQTX_OUTCOME_COMMITTED or
 * PQTX_OUTCOME_ROLLED_BACK, for good.  PQTX_IN_DOUBT: it cannot be known, not yet, or nobody could
 * be asked; the error says why.  PQTX_MISUSE: an argument is NULL or wrong, or the ticket is none.
 * `error` may be NULL. */
PQTX_API pqtx_status pqtx_resolve(pqtx_pool *pool, const pqtx_ticket *ticket, int64_t timeout_ms,
                                  pqtx_outcome *outcome, pqtx_error *error);

#ifdef __cplusplus
}
#endif

#endif
