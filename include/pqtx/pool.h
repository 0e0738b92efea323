/* pool.h: whose connection, for how long.
 *
 * A pool is thread-safe.  It hands a connection to one transaction attempt at a time, first come
 * first served, preferably the one that the thread had last; takes it back outside a transaction,
 * or drops it.  While a transaction waits between attempts it holds none.
 *
 * What a body changes in the session stays there for whoever gets the connection next: SET without
 * LOCAL, SET ROLE, PREPARE, LISTEN, temporary tables, WITH HOLD cursors, pg_advisory_lock().  Use
 * SET LOCAL, ON COMMIT DROP and pqtx_lock() instead, or a connection of your own beside the pool.
 */
#ifndef PQTX_POOL_H
#define PQTX_POOL_H

#include <pqtx/clock.h>
#include <pqtx/error.h>

#ifdef __cplusplus
extern "C" {
#endif

/* pqtx_pool_options.flags */
#define PQTX_POOL_LAZY 0x1u /* pqtx_pool_open() connects to nothing */

/* libpq's own words about a failed connection instead of this library's.  They can quote parts of
 * the connection string, a misplaced password included. */
#define PQTX_POOL_RAW_ERRORS 0x2u

/* A statement that a connection meets again is prepared on it, its Parse in front of it in the same
 * round trip; a connection knows 128 statements of at most 8192 bytes, and forgets the one that was
 * not used for longest.  Not behind a pooler, where what is prepared stays with a session that is
 * somebody else's next.
 *
 * NEVER: for statements that must be planned anew each time.  ALWAYS: also behind a pooler, for one
 * that keeps track of prepared statements itself (PgBouncer from 1.21 on, max_prepared_statements);
 * where it then does not know one (26000, 42P05), the attempt is begun again, and from then on the
 * pool prepares nothing. */
#define PQTX_POOL_PREPARE_NEVER  0x4u
#define PQTX_POOL_PREPARE_ALWAYS 0x8u

typedef struct pqtx_pool_options {
    size_t size;
    const char *conninfo; /* libpq's: key=value or URI; NULL or "": libpq's environment and
                           * defaults.  Only fallback_application_name is added.  Its
                           * connect_timeout holds for each host.  Several hosts: below.  Copied. */
    int32_t max_count;    /* connections at most; 0: 8 */
    int32_t min_count;    /* kept open in spite of the idle limit; 0: none */
    uint32_t flags;       /* PQTX_POOL_… */
    uint32_t reserved;    /* 0 */

    int64_t connect_timeout_ms; /* for one connection, all its hosts; 0: 10000; never past the
                                 * deadline */
    int64_t acquire_timeout_ms; /* waiting for a free one; 0: up to the deadline */
    int64_t idle_limit_ms;  /* idle for longer: closed when the next one comes back; 0: 600000 */
    int64_t age_limit_ms;   /* older: closed instead of handed out; 0: 3600000 */
    int64_t check_after_ms; /* idle for longer: look whether the socket was closed; 0: 100 */

    /* The retry budget: a start earns retry_percent / 100 further attempts, a further attempt
     * spends one, and retry_burst can be saved up.  With nothing left a run ends with its last
     * error and PQTX_ERROR_BUDGET, so that a storm of lost races cannot multiply the load without
     * bound. 0: 300 and 1000; retry_percent -1: no budget. */
    int32_t retry_percent;
    int32_t retry_burst;

    const pqtx_clock *clock; /* NULL: the system's; must outlive the pool */
} pqtx_pool_options;

#define PQTX_POOL_OPTIONS PQTX_SIZED(pqtx_pool_options)

PQTX_API pqtx_status pqtx_pool_options_init(pqtx_pool_options *options, size_t size);

/* Several hosts in the connection string, in the environment or in a service file, as they are when
 * the pool is opened, are tried one by one, for each connection anew: first the one that worked
 * last, then the others in their order; at random with load_balance_hosts=random.  With
 * target_session_attrs=any the order of the list is a preference, and another one than its first
 * comes first only after one before it was silent.
 *
 * Each has connect_timeout, and no more than an equal part of the time left for those still to be
 * tried, so that one that takes a connection and then says nothing does not keep the others from
 * their turn; the last one has all the rest.  A name with several addresses is one host.
 *
 * The next host is tried after silence, after a connection that ended without a word, where the
 * server is not what target_session_attrs asks for, is starting or stopping, or a pooler has no
 * connection.  What another host would not mend ends the search, as it does with libpq: a wrong
 * password, no such database, too many connections.  With prefer-standby all are tried as standbys,
 * and then all again as anything.
 *
 * Where all fail, the error is that of one of them: what a server said before silence, and that
 * before a server that is not what was asked for; of equal ones the first. */

/* Opens a pool and, unless PQTX_POOL_LAZY, makes min_count connections, at least one, which proves
 * that the connection string is right.
 *
 * PQTX_OK and *pool; else *pool is NULL and the status is that of the failed connection:
 * PQTX_NO_CONNECTION, PQTX_DENIED (password, pg_hba.conf), PQTX_BAD_STATEMENT (no such database),
 * PQTX_RESOURCES; or PQTX_MISUSE (options; a connection string libpq cannot parse),
 * PQTX_NO_MEMORY.  `error` may be NULL. */
PQTX_API pqtx_status pqtx_pool_open(const pqtx_pool_options *options, pqtx_pool **pool,
                                    pqtx_error *error);

/* Closes the idle connections and gives the handle up; NULL is harmless.  Transactions still under
 * way keep their connection and what they need of the pool, finish, and then it is freed; they are
 * not begun again.
 * In a forked child it frees memory and sockets and leaves the parent's sessions alone. */
PQTX_API void pqtx_pool_close(pqtx_pool *pool);

/* A snapshot; counters since the pool was opened, gauges as they stand. */
#define PQTX_BUCKET_COUNT 32

typedef struct pqtx_stats {
    size_t size;
    uint64_t open_count;    /* gauge: connections that stand or are being made */
    uint64_t idle_count;    /* gauge */
    uint64_t waiting_count; /* gauge: threads that wait for a connection */
    uint64_t connects;
    uint64_t connect_failures;
    uint64_t drops;    /* connections closed because they were lost or not clean */
    uint64_t starts;   /* transactions */
    uint64_t attempts; /* begun attempts, the first ones included */
    uint64_t commits;
    uint64_t rollbacks;             /* transactions that ended rolled back or never began */
    uint64_t in_doubt;              /* transactions that ended in doubt */
    uint64_t resolved;              /* lost answers to COMMIT whose outcome was found out */
    uint64_t done_before;           /* runs whose event id had been applied */
    uint64_t busy;                  /* transactions that ended with PQTX_BUSY */
    uint64_t retries_serialization; /* further attempts, by what the one before came to */
    uint64_t retries_deadlock;
    uint64_t retries_busy;
    uint64_t retries_connection;
    uint64_t retries_other;
    uint64_t retries_refused; /* the budget was used up */
    uint64_t wait_us;         /* slept between attempts, in all */
    uint64_t run_us;          /* from the first attempt to the end, in all */

    /* Transactions by how long they slept, and how long they took: bucket i counts those of less
     * than 2^i microseconds that are in no bucket before it; the last one counts all the rest. */
    uint64_t wait_us_buckets[PQTX_BUCKET_COUNT];
    uint64_t run_us_buckets[PQTX_BUCKET_COUNT];
} pqtx_stats;

#define PQTX_STATS PQTX_SIZED(pqtx_stats)

PQTX_API pqtx_status pqtx_pool_stats(pqtx_pool *pool, pqtx_stats *stats);

/* Writes a snapshot in the Prometheus text format, with the label pool="name" (quotes, backslashes
 * and line ends are escaped).  Always terminated if size > 0; returns the length it would have
 * without the limit, as snprintf does: about 6,000 bytes. */
PQTX_API size_t pqtx_stats_prometheus(const pqtx_stats *stats, const char *name, char *buffer,
                                      size_t size);

#ifdef __cplusplus
}
#endif

#endif
