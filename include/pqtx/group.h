/* group.h: group commit: the threads of one program that add to one counter share a commit.
 *
 * One row takes one commit at a time, however many sessions come.  So the callers who meet on a key
 * while a transaction for it is under way are added up, and the next transaction carries the sum.
 * Nothing is given up: each caller waits until its own increment is committed, and gets its own
 * exact value, as if they had come one after the other.  The library has no thread of its own: one
 * of the callers runs the transaction for all of them.
 *
 * A caller who is alone runs a plain pqtx_counter_add_now().  Isolation as in counter.h. */
#ifndef PQTX_GROUP_H
#define PQTX_GROUP_H

#include <pqtx/counter.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pqtx_group pqtx_group;

typedef struct pqtx_group_options {
    size_t size;

    /* How each transaction runs, or NULL.  Copied, but not what it points to, which must outlive
     * the group; its deadline is the least patient caller's.  event_id, evidence and ticket, which
     * would stand for several, are PQTX_MISUSE.  An observer is called on the callers' threads. */
    const pqtx_options *run;

    /* Transactions under way for one key at once; 0: 1.  Where the line to the server is long, more
     * shorten the wait of a caller for the one before; each needs a connection. */
    int32_t max_flights;
    uint32_t reserved; /* 0 */
} pqtx_group_options;

#define PQTX_GROUP_OPTIONS PQTX_SIZED(pqtx_group_options)

/* A group for the counters of a table.  Thread-safe.  `counter` is copied with its names; `options`
 * may be NULL.  The pool must outlive the group. */
PQTX_API pqtx_status pqtx_group_open(pqtx_pool *pool, const pqtx_counter *counter,
                                     const pqtx_group_options *options, pqtx_group **group,
                                     pqtx_error *error);

/* Adds, and waits until that is committed: at most deadline_ms, or with 0 as long as the options
 * say.  *value (or NULL) is what the counter has just after this increment.
 *
 * A transaction that fails tells each of its callers how: PQTX_IN_DOUBT is in doubt for all of
 * them, unless the options resolve it (PQTX_DOUBT_TOKEN; then *value can stay PQTX_VALUE_UNKNOWN).
 * What the database has refused for one of the increments (PQTX_BAD_DATA, PQTX_CHECK, …) is done
 * again for each alone, so that nobody fails for another's.
 *
 * PQTX_TIMEOUT: the deadline came and nothing was added.  PQTX_IN_DOUBT also if it came while the
 * transaction with this increment was under way, which goes on.  PQTX_STOPPED: the group is being
 * closed.  PQTX_NO_MEMORY; PQTX_MISUSE. */
PQTX_API pqtx_status pqtx_group_add(pqtx_group *group, pqtx_value key, int64_t delta,
                                    int64_t deadline_ms, int64_t *value, pqtx_error *error);

/* How many callers are inside at this moment: a gauge.  0 for NULL. */
PQTX_API size_t pqtx_group_callers(pqtx_group *group);

/* Waits until all who are inside have left, and frees it; NULL is harmless.  Who comes meanwhile
 * gets PQTX_STOPPED; afterwards the handle is gone. */
PQTX_API void pqtx_group_close(pqtx_group *group);

#ifdef __cplusplus
}
#endif

#endif
