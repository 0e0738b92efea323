/* pool.h: whose connection, for how long.
 *
 * A pool is thread-safe.  It hands a connection to one transaction attempt at a time, first come
 * first served, preferably the one that the thread had last; takes it back clean, or drops it.
 * While a transaction waits between attempts it holds none. */
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

typedef struct pqtx_pool_options {
    size_t size;
    const char *conninfo; /* libpq's: key=value or URI; NULL or "": libpq's environment and
                           * defaults. Handed over whole, several hosts and target_session_attrs
                           * included; only fallback_application_name is added.  Copied. */
    int32_t max_count;    /* connections at most; 0: 8 */
    int32_t min_count;    /* kept open in spite of the idle limit; 0: none */
    uint32_t flags;       /* PQTX_POOL_… */
    uint32_t reserved;    /* 0 */

    int64_t connect_timeout_ms; /* for one connection; 0: 10000; never past the deadline */
    int64_t acquire_timeout_ms; /* waiting for a free one; 0: up to the deadline */
    int64_t idle_limit_ms;  /* idle for longer: closed when the next one comes back; 0: 600000 */
    int64_t age_limit_ms;   /* older: closed instead of handed out; 0: 3600000 */
    int64_t check_after_ms; /* idle for longer: look whether the socket was closed; 0: 1000 */

    const pqtx_clock *clock; /* NULL: the system's; must outlive the pool */
} pqtx_pool_options;

#define PQTX_POOL_OPTIONS PQTX_SIZED(pqtx_pool_options)

PQTX_API pqtx_status pqtx_pool_options_init(pqtx_pool_options *options, size_t size);

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
    uint64_t rollbacks; /* transactions that ended rolled back or never began */
    uint64_t in_doubt;
    uint64_t retries_serialization; /* further attempts, by what the one before came to */
    uint64_t retries_deadlock;
    uint64_t retries_busy;
    uint64_t retries_connection;
    uint64_t retries_other;
} pqtx_stats;

#define PQTX_STATS PQTX_SIZED(pqtx_stats)

PQTX_API pqtx_status pqtx_pool_stats(pqtx_pool *pool, pqtx_stats *stats);

#ifdef __cplusplus
}
#endif

#endif
