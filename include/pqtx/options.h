/* options.h: how a transaction is to run.  0 in a field is its default. */
#ifndef PQTX_OPTIONS_H
#define PQTX_OPTIONS_H

#include <pqtx/clock.h>
#include <pqtx/evidence.h>
#include <pqtx/fault.h>
#include <pqtx/observer.h>
#include <pqtx/ticket.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum pqtx_isolation {
    PQTX_ISO_DEFAULT = 0, /* the session's default_transaction_isolation */
    PQTX_ISO_READ_COMMITTED = 1,
    PQTX_ISO_REPEATABLE_READ = 2,
    PQTX_ISO_SERIALIZABLE = 3,
    PQTX_ISO_MAX = 0x7fffffff
} pqtx_isolation;

typedef enum pqtx_access {
    PQTX_ACCESS_DEFAULT = 0, /* the session's default_transaction_read_only */
    PQTX_ACCESS_READ_WRITE = 1,
    PQTX_ACCESS_READ_ONLY = 2,
    PQTX_ACCESS_DEFERRABLE = 3, /* read only, deferrable: with PQTX_ISO_SERIALIZABLE it waits for a
                                 * snapshot that can neither fail nor make others fail */
    PQTX_ACCESS_MAX = 0x7fffffff
} pqtx_access;

/* pqtx_options.flags */

/* Under REPEATABLE READ and SERIALIZABLE the first statement takes the snapshot; BEGIN does not.
 * With this flag each attempt takes it at once, before pqtx_attempt() returns, for one more round
 * trip: for a body that looks at something outside the database first. */
#define PQTX_PIN_SNAPSHOT 0x1u

/* Allows pqtx_lock() and its kin under REPEATABLE READ and SERIALIZABLE, where the lock call takes
 * the snapshot before it waits, so that what is read afterwards can be older than the lock. */
#define PQTX_LOCK_ANY_ISOLATION 0x2u

/* Also lets the server end the transaction at the deadline, should this program stall or vanish:
 * SET LOCAL idle_in_transaction_session_timeout and, from PostgreSQL 17 on, transaction_timeout. */
#define PQTX_SERVER_DEADLINE 0x4u

/* Each attempt begins in pipeline mode (pipeline.h). */
#define PQTX_PIPELINE 0x8u

/* PQTX_BUSY after lock_timeout says for whom it waited, in pqtx_error.detail: "blocked by pid 4711
 * (user ann, application shop, idle in transaction for 12 s)".  When three quarters of lock_timeout
 * are over and the answer has not come, another connection of the pool asks the server, once, and
 * again for each further wait; before that it costs nothing.  An answer that comes meanwhile is
 * heeded a little later, within lock_timeout.
 *
 * Not where no other connection is free, behind a pooler, on a connection of the caller's own, in
 * pqtx_run_each(), with PQTX_NO_TIMEOUT, in a COMMIT that is sent by itself, and with NOWAIT, which
 * does not wait: there pqtx_row_holders() of diagnose.h helps. */
#define PQTX_NAME_BLOCKER 0x10u

/* pqtx_options.retry_mask: which failures begin the whole transaction again. */
#define PQTX_RETRY_SERIALIZATION 0x001u /* 40001 */
#define PQTX_RETRY_DEADLOCK      0x002u /* 40P01 */
#define PQTX_RETRY_BUSY          0x004u /* 55P03; without it "busy" is the answer at once */
#define PQTX_RETRY_ROLLED_BACK   0x008u /* 40000, 72000 */
#define PQTX_RETRY_STALE         0x010u /* 26000, 42P05, a cached plan that must change: once */
#define PQTX_RETRY_CONNECTION    0x020u /* lost before COMMIT began, or none to be had (pool only) */
#define PQTX_RETRY_READ_ONLY                                                                       \
    0x040u                          /* 25006 though the transaction is not read only: the server   \
                                     * is not the primary any more (pool only) */
#define PQTX_RETRY_DUPLICATE 0x080u /* 23505: can be a serialization failure in disguise */
#define PQTX_RETRY_OVERLAP   0x100u /* 23P01: the same */
#define PQTX_RETRY_DEFAULT   0x07fu /* what 0 means */
#define PQTX_RETRY_NOTHING   0x80000000u

#define PQTX_NO_TIMEOUT (-1)

typedef struct pqtx_options {
    size_t size;
    pqtx_isolation isolation;
    pqtx_access access;

    /* SET LOCAL lock_timeout, per wait for a lock.  0: 5000; PQTX_NO_TIMEOUT: the session's own.
     * It is never longer than the time left. */
    int64_t lock_timeout_ms;

    /* SET LOCAL statement_timeout.  0: the session's own.  It does not bound COMMIT; the deadline
     * does. */
    int64_t statement_timeout_ms;

    /* The whole run: every attempt, wait, connect, cancel and rollback.  0: 30000.  It counts from
     * the first pqtx_attempt(); there is no run without one.  Statements are given up a little
     * before it (a tenth of it, at most a second), so that cancel and rollback fit inside. */
    int64_t deadline_ms;

    int32_t max_attempts; /* 0: 10; 1: never again */
    uint32_t flags;       /* PQTX_PIN_SNAPSHOT, … */

    /* Before attempt n + 1 the runner sleeps a random time up to wait_first_ms * 2^(n-1), and not
     * longer than wait_max_ms.  0: 5 and 500. */
    int64_t wait_first_ms;
    int64_t wait_max_ms;

    uint32_t retry_mask; /* PQTX_RETRY_…; 0: PQTX_RETRY_DEFAULT */
    pqtx_doubt in_doubt;
    int64_t resolve_ms; /* the least time for resolving, even past the deadline; 0: 5000 */

    /* Exactly once (once.h; needs the table pqtx_once, as PQTX_DOUBT_TOKEN does): at most 200
     * bytes; NULL: none.  Copied, as the fingerprint is. */
    const char *event_id;
    const void *fingerprint; /* of what the id stands for, at most 1024 bytes; NULL: not compared */
    size_t fingerprint_len;
    const char *once_schema; /* where pqtx_once is; NULL: "public" */

    pqtx_observer observer; /* or NULL */
    void *observer_arg;
    const pqtx_clock *clock; /* NULL: the system's; must outlive the transaction */
    pqtx_evidence *evidence; /* or NULL; must outlive the transaction, as the next one */
    pqtx_ticket *ticket;     /* or NULL: gets the ticket of an attempt that is in doubt */
    pqtx_fault_hook fault;   /* or NULL; for tests */
    void *fault_arg;

    /* What the violation of a constraint means to your program (error.h): the call that met it, and
     * the result, have that status.  Whether it is begun again is still told by the SQLSTATE and
     * retry_mask.  Must outlive the transaction. */
    const pqtx_constraint *constraints;
    size_t constraint_count;

    pqtx_gate *gate; /* or NULL; see gate.h */
    int64_t gate_key;
} pqtx_options;

#define PQTX_OPTIONS PQTX_SIZED(pqtx_options)

/* All defaults, for languages without the macro.  `size` is the caller's sizeof(pqtx_options). */
PQTX_API pqtx_status pqtx_options_init(pqtx_options *options, size_t size);

#ifdef __cplusplus
}
#endif

#endif
