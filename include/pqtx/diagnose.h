/* diagnose.h: who is in the way.
 *
 * These calls look at pg_locks, pg_stat_activity and pg_prepared_xacts, and ask pg_blocking_pids().
 * Each of those holds all of the server's lock table for a moment, so none is for the hot path: ask
 * after a failure, or now and then.  No privilege is needed; without pg_read_all_stats other roles'
 * states, times and queries stay hidden.  What is found was so when it was looked at, and a session
 * can have ended since: nothing here is to be taken for proof.  Sound at every isolation level.
 *
 * All of them fill the caller's array, in which blockers[0].size is set (start from PQTX_BLOCKER).
 * *found (or NULL) is how many there are, which can be more than `capacity`: those are left out.
 * With capacity 0 the array may be NULL. */
#ifndef PQTX_DIAGNOSE_H
#define PQTX_DIAGNOSE_H

#include <pqtx/blocker.h>
#include <pqtx/tx.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Who blocks the backend `pid`, and, where all of those wait as well, who blocks the one that waits
 * the longest, and so on, at most eight levels up.  So those of the highest level that do not wait
 * are at the root of it.  A backend that waits for nothing, or has ended, has none.
 *
 * With pid 0 it is every wait of this database: one row for each pair of a waiting backend and one
 * that it waits for, and one with blocks_pid 0 for each backend that waits and blocks nobody.  A
 * session that does not wait is a root of the tree; examples/whoblocks.c prints it.
 *
 * Runs in a transaction of its own, on a connection of the pool.  Returns what pqtx_run() would, or
 * PQTX_MISUSE. */
PQTX_API pqtx_status pqtx_blockers(pqtx_pool *pool, const pqtx_options *options, int32_t pid,
                                   pqtx_blocker *blockers, size_t capacity, size_t *found,
                                   pqtx_error *error);

/* Who holds the locks of rows, looked up after the fact and on the same connection: in a savepoint
 * after PQTX_BUSY undid one, or in the next transaction.  `sql` selects the rows' xmax and
 * tableoid, and nothing else: "SELECT xmax, tableoid FROM seat WHERE id = $1"; at most 1000 rows
 * are looked at.  Not found are those who let go since, and those whose savepoint, in which they
 * took the lock, is released: only pqtx_blockers(), while one waits, finds those.
 *
 * The other two: who holds an advisory lock (lock.h), of either kind, shared or not.
 *
 * Calls of a body, as in tx.h; in pipeline mode they land what is queued. */
PQTX_API pqtx_status pqtx_row_holders(pqtx_tx *tx, const char *sql, int count,
                                      const pqtx_value *values, pqtx_blocker *blockers,
                                      size_t capacity, size_t *found);
PQTX_API pqtx_status pqtx_lock_holders(pqtx_tx *tx, int64_t key, pqtx_blocker *blockers,
                                       size_t capacity, size_t *found);
PQTX_API pqtx_status pqtx_lock_pair_holders(pqtx_tx *tx, int32_t group, int32_t key,
                                            pqtx_blocker *blockers, size_t capacity, size_t *found);

#ifdef __cplusplus
}
#endif

#endif
