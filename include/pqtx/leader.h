/* leader.h: one leader among many programs, and writes that only the leader can make.
 *
 * A leader holds an advisory lock of a session of its own, beside the pool and to where that leads.
 * The server lets go of it when the session ends, whatever ended it.  So the leader's machine may
 * vanish, and the next one take over; but also, the leader may have lost its session and not know
 * it yet, or be a program that was stopped for a minute and goes on.  Being asked can never prevent
 * that: pqtx_leader_is() tells what was known a moment ago.
 *
 * What prevents it is the epoch: a number that grows with each take-over, in the transaction that
 * takes over.  A transaction with pqtx_fence() commits only while its epoch is the newest: a
 * take-over waits for those under way, and those that come later fail with PQTX_LEASE_LOST.  For
 * anything outside the database send the epoch along, and refuse a smaller one than the last.
 *
 *     pqtx_leader_open(pool, "scheduler", NULL, &leader, &error);
 *     while (running)
 *         if (pqtx_leader_is(leader))
 *             work_for_a_moment(pool, pqtx_leader_epoch(leader));    … pqtx_fence() in each write
 *         else
 *             pqtx_leader_wait(leader, 1000, &error);
 *     pqtx_leader_close(leader);
 *
 * A handle is for one thread at a time: a second one in a call gets PQTX_MISUSE, except in
 * pqtx_leader_is() and pqtx_leader_epoch(), which any thread may call.  In a forked child it is
 * nobody's: all calls return PQTX_MISUSE, 0 or -1, and pqtx_leader_close() leaves the parent's
 * session alone.
 *
 * Every call that asks the server gives up on a connection that does not answer within answer_ms.
 * With a pooler in between nothing is taken, and the status is PQTX_MISUSE: the session would be
 * anybody's.  pqtx_fence() works behind one. */
#ifndef PQTX_LEADER_H
#define PQTX_LEADER_H

#include <pqtx/pool.h>
#include <pqtx/tx.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pqtx_leader pqtx_leader;

typedef struct pqtx_leader_options {
    size_t size;
    const char *schema; /* where the table pqtx_leader is; NULL: "public".  Copied. */
    int64_t answer_ms;  /* how long the server may keep silent; 0: 5000 */

    /* pqtx_leader_wait() waits in slices of this, each a transaction of its own: one that waited
     * for days would hold its snapshot for days.  The server logs each slice as a lock_timeout.
     * Also the longest wait for fenced transactions under way.  0: 5000. */
    int64_t slice_ms;
} pqtx_leader_options;

#define PQTX_LEADER_OPTIONS PQTX_SIZED(pqtx_leader_options)

/* The table pqtx_leader, in the schema that is first in the search_path of whoever runs this:
 * static text, idempotent.  One row for each name: its epoch, and for people to read, since when,
 * and which application and backend.  Leaders need SELECT, INSERT and UPDATE on it, those who only
 * write fenced SELECT and UPDATE. */
PQTX_API const char *pqtx_leader_ddl(void);

/* Creates the table in this schema (NULL: "public") if it is not there. */
PQTX_API pqtx_status pqtx_leader_install(pqtx_pool *pool, const char *schema, pqtx_error *error);

/* Makes a candidate for the leadership of this name, of 1 to 200 bytes; connects to nothing yet.
 * PQTX_OK and *leader, else *leader is NULL.  `options` and `error` may be NULL.  The pool may be
 * closed before it.
 *
 * The lock is pqtx_lock_key() of "pqtx_leader:SCHEMA:NAME". */
PQTX_API pqtx_status pqtx_leader_open(pqtx_pool *pool, const char *name,
                                      const pqtx_leader_options *options, pqtx_leader **leader,
                                      pqtx_error *error);

/* Takes over if nobody leads.  PQTX_OK: it leads, with a new epoch, or did already, and the lock is
 * held once.  PQTX_BUSY: another one leads, or did, and its fenced transactions are under way for
 * longer than slice_ms.  Anything else: no connection, no table, no permission; then it holds no
 * lock and no connection. */
PQTX_API pqtx_status pqtx_leader_try(pqtx_leader *leader, pqtx_error *error);

/* The same, waiting until timeout_ms have passed (0: 30000), in the order of those who wait, but
 * after each slice as the last of them.  A connection that is lost, not to be had, or to a standby
 * is made anew meanwhile, after a wait. */
PQTX_API pqtx_status pqtx_leader_wait(pqtx_leader *leader, int64_t timeout_ms, pqtx_error *error);

/* 1 if it leads as far as this side can know.  Looks whether the connection was closed, asks the
 * server nothing, and never waits: cheap enough before each piece of work.  While another thread is
 * in a call of this handle it is what was known before.  Once 0, it stays so until the next try. */
PQTX_API int pqtx_leader_is(pqtx_leader *leader);

/* The epoch, 0 if it does not lead, as last known: looks at nothing.  The server's time in
 * microseconds at the take-over, or one more than the epoch before, if that is larger: so it grows
 * even if a backup is restored, or a failover loses the last take-over. */
PQTX_API int64_t pqtx_leader_epoch(const pqtx_leader *leader);

/* The socket, for a loop of the caller's own, while it leads; else -1.  When it becomes readable,
 * call pqtx_leader_is(), which closes it if the leadership is lost.  Not for reading or writing. */
PQTX_API int pqtx_leader_fd(const pqtx_leader *leader);

/* Asks the server, for what the socket cannot tell: a line that leads nowhere any more.  PQTX_OK:
 * the session stood, and nobody had taken over, when it was asked.  PQTX_LEASE_LOST: it does not
 * lead, or no answer came, and so does not any more. */
PQTX_API pqtx_status pqtx_leader_check(pqtx_leader *leader, pqtx_error *error);

/* Gives the leadership up and keeps the connection for the next try.  PQTX_OK: nobody leads now, or
 * the next one already; also if it did not lead.  PQTX_NO_CONNECTION: the server did not confirm;
 * it lets go as soon as it sees that the connection is gone.
 *
 * The epoch is the newest until the next take-over: what is fenced with it commits until then. */
PQTX_API pqtx_status pqtx_leader_release(pqtx_leader *leader, pqtx_error *error);

/* Releases, closes and frees it; NULL is harmless. */
PQTX_API void pqtx_leader_close(pqtx_leader *leader);

/* In a transaction, before or after its writes: lets it commit only if `epoch` is the newest of
 * this leader, whose table is in `schema` (NULL: "public"), and keeps it so until the end.
 *
 * PQTX_LEASE_LOST, which marks the attempt: another one has taken over, or there is no such leader.
 * It waits for a take-over under way, as a row lock does: PQTX_BUSY after lock_timeout.
 *
 * Sound at every isolation level: under REPEATABLE READ and SERIALIZABLE a take-over since the
 * snapshot is PQTX_SERIALIZATION, and the next attempt sees it.  A savepoint that is undone undoes
 * the fence in it.  It locks the epoch's row FOR SHARE, so fenced transactions do not wait for each
 * other; a leader that has been superseded in all but the row and never pauses can keep the next
 * one waiting, so look at pqtx_leader_is() between them. */
PQTX_API pqtx_status pqtx_fence(pqtx_tx *tx, const char *schema, const char *name, int64_t epoch);

#ifdef __cplusplus
}
#endif

#endif
