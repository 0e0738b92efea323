/* resolve.h: what became of a COMMIT whose answer was lost.
 *
 * By token (PQTX_DOUBT_TOKEN): the transaction writes a random token into pqtx_once in front of
 * COMMIT.  The resolver writes the same token as void: if that succeeds, the transaction can never
 * commit any more; if the token is there, it has committed.  It waits while the transaction is
 * still under way.  The answer is final, behind poolers and after a failover too.
 *
 * By xid (PQTX_DOUBT_XID): the transaction's xid, the system's identifier and the timeline are read
 * along with the writes, and pg_xact_status() is asked.  It needs no table.  After a failover the
 * timeline differs, and the answer stays in doubt: an xid of another timeline proves nothing.
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
 * PQTX_OUTCOME_ROLLED_BACK, for good.  PQTX_IN_DOUBT: it cannot be known, or not yet; the error
 * says why.  Other errors mean that nobody could be asked; the outcome is in doubt then too. */
PQTX_API pqtx_status pqtx_resolve(pqtx_pool *pool, const pqtx_ticket *ticket, int64_t timeout_ms,
                                  pqtx_outcome *outcome, pqtx_error *error);

#ifdef __cplusplus
}
#endif

#endif
