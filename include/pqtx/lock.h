/* lock.h: one at a time, by PostgreSQL's transaction-level advisory locks.
 *
 * A lock is a number that means something to your programs: fixed, a pair, or a name's.  It is held
 * to the end of the transaction (or until the savepoint that took it is undone) and works behind
 * transaction poolers.  int8 keys and int4 pairs are two separate spaces; both belong to one
 * database.  The lock is a statement of its own, so what is read after it is newer than it.
 *
 * That holds at READ COMMITTED only.  Under REPEATABLE READ and SERIALIZABLE the lock call takes
 * the snapshot before it waits: four fifths of those who got the lock then failed with 40001, or
 * read stale data.  There these calls take no lock and return PQTX_WRONG_ISOLATION, unless
 * pqtx_options.flags has PQTX_LOCK_ANY_ISOLATION.
 *
 * Waiting is bounded by lock_timeout: PQTX_BUSY, which marks the attempt and by default begins the
 * transaction again. */
#ifndef PQTX_LOCK_H
#define PQTX_LOCK_H

#include <pqtx/tx.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The key of a name, for any of these calls: pqtx_lock(tx, pqtx_lock_key("nightly report")).
 *
 * It is the first eight bytes of the SHA-256 of the name's bytes, the most significant first, as
 * a signed number, and stays that in every version.  The same in SQL, where the names are UTF-8:
 *     ('x' || left(encode(sha256(convert_to(name, 'UTF8')), 'hex'), 16))::bit(64)::bigint
 * Names share the space of int8 keys with fixed numbers: that a given one meets a name has a chance
 * of one in 2^64, and that any two of a million names meet, of one in 37 million.  NULL is "". */
PQTX_API int64_t pqtx_lock_key(const char *name);

PQTX_API pqtx_status pqtx_lock(pqtx_tx *tx, int64_t key);
PQTX_API pqtx_status pqtx_lock_shared(pqtx_tx *tx, int64_t key);
PQTX_API pqtx_status pqtx_lock_pair(pqtx_tx *tx, int32_t group, int32_t key);
PQTX_API pqtx_status pqtx_lock_pair_shared(pqtx_tx *tx, int32_t group, int32_t key);

/* Never wait: PQTX_BUSY, with the attempt unmarked, if someone else holds it. */
PQTX_API pqtx_status pqtx_try_lock(pqtx_tx *tx, int64_t key);
PQTX_API pqtx_status pqtx_try_lock_shared(pqtx_tx *tx, int64_t key);
PQTX_API pqtx_status pqtx_try_lock_pair(pqtx_tx *tx, int32_t group, int32_t key);
PQTX_API pqtx_status pqtx_try_lock_pair_shared(pqtx_tx *tx, int32_t group, int32_t key);

/* Waits up to the deadline, in slices of lock_timeout: for work that may well find another one busy
 * for longer than a lock should be waited for.  It must come before everything else of its attempt,
 * else PQTX_MISUSE: so it holds nothing while it waits, and each slice is a transaction of its own,
 * with a snapshot of its own.  One wait as long as that would keep VACUUM from cleaning up, and
 * CREATE INDEX CONCURRENTLY by anybody would wait for the waiter.
 *
 * PQTX_BUSY or PQTX_TIMEOUT at the deadline; a run that is to wait long needs a long deadline_ms.
 * After each slice it goes to the end of the queue.  In pipeline mode too it is not queued. */
PQTX_API pqtx_status pqtx_lock_wait(pqtx_tx *tx, int64_t key);

/* Several keys in one round trip, in ascending order and each once, so that two callers with the
 * same keys in another order cannot deadlock.  count 0 locks nothing and is PQTX_OK. */
PQTX_API pqtx_status pqtx_lock_many(pqtx_tx *tx, const int64_t *keys, size_t count);
PQTX_API pqtx_status pqtx_lock_many_shared(pqtx_tx *tx, const int64_t *keys, size_t count);

/* SET LOCAL lock_timeout for the statements that follow in this attempt, of any kind; rides with
 * the next one.  1 … 2147483647; 0: back to the options' (where that is PQTX_NO_TIMEOUT, to the
 * value that the session began with); PQTX_NO_TIMEOUT: no limit but the deadline.  Never longer
 * than the time left. */
PQTX_API pqtx_status pqtx_set_lock_timeout(pqtx_tx *tx, int64_t timeout_ms);

#ifdef __cplusplus
}
#endif

#endif
