/* blocker.h: a session, or a prepared transaction, that somebody waits for.
 *
 * The calls that find them are in diagnose.h; with PQTX_NAME_BLOCKER in pqtx_options.flags a
 * PQTX_BUSY after lock_timeout names one in pqtx_error.detail. */
#ifndef PQTX_BLOCKER_H
#define PQTX_BLOCKER_H

#include <pqtx/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* pqtx_blocker.flags */
#define PQTX_BLOCKER_WAITS    0x1u /* it waits for a lock itself */
#define PQTX_BLOCKER_PREPARED 0x2u /* a prepared transaction: it belongs to no session */
#define PQTX_BLOCKER_GONE     0x4u /* the session has ended meanwhile */
#define PQTX_BLOCKER_HIDDEN                                                                        \
    0x8u /* it is another role's, and this one is no member of pg_read_all_stats: pid, user,       \
          * application, database and what it waits for are all that is shown */

/* Flat and of fixed size.  What is not known is an empty text, and -1 of a time. */
typedef struct pqtx_blocker {
    size_t size;
    int32_t pid;        /* of its backend, of a parallel query the leader's; 0: prepared */
    int32_t blocks_pid; /* the backend that waits for it; 0: none, or it was not asked for one */
    uint32_t flags;     /* PQTX_BLOCKER_… */
    uint32_t level;     /* how far up from the backend that was asked for, from 1; else 1 */
    int64_t transaction_us; /* since its transaction began, or was prepared */
    int64_t query_us;       /* since its query, the newest one, began */
    int64_t state_us;       /* since its state changed */
    int64_t wait_us;        /* since it waits for a lock; from PostgreSQL 14 on */
    char user_name[64];
    char application_name[64];
    char database_name[64];
    char client[64];     /* address, or empty on a Unix socket */
    char state[32];      /* "active", "idle in transaction", … */
    char waits_for[256]; /* "ShareLock on transactionid 761", "ExclusiveLock on advisory key 7" */
    char gid[208];       /* of a prepared transaction: ROLLBACK PREPARED takes it */
    char query[512];     /* the beginning of it; it may hold values, of whoever wrote it */
} pqtx_blocker;

#define PQTX_BLOCKER PQTX_SIZED(pqtx_blocker)

/* Writes it as one line, "pid 4711 (user ann, application shop, idle in transaction for 12 s)",
 * control bytes as "?", always terminated if size > 0.  The query is left out.  Returns the length
 * it would have without the limit, as snprintf does. */
PQTX_API size_t pqtx_blocker_format(const pqtx_blocker *blocker, char *buffer, size_t size);

#ifdef __cplusplus
}
#endif

#endif
