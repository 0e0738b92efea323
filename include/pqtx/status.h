/* status.h: what a call came to, and what to do about it.
 *
 * Every call answers with a pqtx_status; 0 is success.  The tens group the codes:
 *
 *     0x  done                          4x  cannot be known
 *     1x  the database answered "no"    5x  refused by the server, for now or for good
 *     2x  a lost race: again            9x  broken: memory, misuse
 *     3x  a constraint held             1000 and above: the caller's own
 *
 * Codes are added, never changed or taken away: treat a number you do not know by the
 * predicates below.  How SQLSTATEs map to them is in pqtx_errors(7). */
#ifndef PQTX_STATUS_H
#define PQTX_STATUS_H

#include <pqtx/api.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum pqtx_status {
    PQTX_OK = 0,
    PQTX_DONE_BEFORE = 1, /* this event id was applied before; the body did not run */

    PQTX_NO_MATCH = 10,  /* no row met the condition, or there is no such row */
    PQTX_TOO_MANY = 11,  /* more rows met it than the call allows */
    PQTX_NOT_FOUND = 12, /* the row itself is missing (calls that can tell) */
    PQTX_CONDITION_FALSE =
        13,                 /* the row is there, its condition is not met (calls that can tell) */
    PQTX_EXHAUSTED = 14,    /* the counter is there, too little is left */
    PQTX_EMPTY = 15,        /* the queue holds nothing that is free */
    PQTX_LEASE_LOST = 16,   /* another worker took the job over */
    PQTX_GONE = 17,         /* the job is finished and deleted */
    PQTX_SUPERSEDED = 18,   /* a newer job with the same key replaced it */
    PQTX_KEY_MISMATCH = 19, /* the event id is known, but for other content */

    PQTX_SERIALIZATION = 20,   /* 40001 */
    PQTX_DEADLOCK = 21,        /* 40P01 */
    PQTX_BUSY = 22,            /* 55P03: NOWAIT, lock_timeout, or a try-lock that was held */
    PQTX_ROLLED_BACK = 23,     /* 40000, 72000: the server gave up for a passing reason */
    PQTX_STALE_STATEMENT = 24, /* 26000, 42P05: a prepared statement must be prepared again */

    PQTX_DUPLICATE = 30,   /* 23505 */
    PQTX_OVERLAP = 31,     /* 23P01 */
    PQTX_FOREIGN_KEY = 32, /* 23503, 23001: parent missing, or still referenced */
    PQTX_CHECK = 33,       /* 23514, 44000 */
    PQTX_NOT_NULL = 34,    /* 23502 */
    PQTX_CONSTRAINT = 35,  /* 23000, 27000, 40002: another integrity rule */

    PQTX_IN_DOUBT = 40, /* the connection went while COMMIT was under way: it may have committed */

    PQTX_TIMEOUT = 50,   /* the deadline, options.statement_timeout_ms, 25P03, 25P04 */
    PQTX_CANCELLED = 51, /* 57014 otherwise: somebody's cancel, the session's timeout */
    PQTX_READ_ONLY = 52, /* 25006: a standby, or a read-only transaction */
    PQTX_NO_CONNECTION =
        53,              /* none to be had, or lost before COMMIT began: nothing was committed */
    PQTX_RESOURCES = 54, /* 53xxx: disk, memory, locks, connections */
    PQTX_DENIED = 55,    /* 28xxx, 42501: no permission, wrong password */
    PQTX_BAD_STATEMENT = 56, /* 42xxx and kin: the statement or the schema is wrong */
    PQTX_BAD_DATA = 57,      /* 22xxx, 21000: a value does not fit */
    PQTX_SERVER_ERROR = 58,  /* 58xxx, XXxxx, HVxxx, and codes this version does not know */
    PQTX_RAISED = 59,        /* P0xxx, or a code of your own: RAISE in your SQL */
    PQTX_WRONG_STATE = 60,   /* 55xxx other than 55P03: the object is in use or not ready */

    PQTX_NO_MEMORY = 90,
    PQTX_MISUSE = 91,          /* the call is wrong; the message says how */
    PQTX_SWALLOWED = 92,       /* COMMIT answered ROLLBACK, and no failed call was seen */
    PQTX_STOPPED = 93,         /* pqtx_fail() by a caller who wants no other status */
    PQTX_WRONG_ISOLATION = 94, /* the call is not sound at this isolation level */

    PQTX_USER = 1000, /* this and above: yours, passed through unchanged */
    PQTX_STATUS_MAX = 0x7fffffff
} pqtx_status;

/* What to do about an SQLSTATE. */
typedef enum pqtx_advice {
    PQTX_ADVICE_NONE = 0,      /* no error */
    PQTX_ADVICE_AGAIN = 1,     /* the whole transaction again, after a short random wait */
    PQTX_ADVICE_LATER = 2,     /* again, after a growing wait */
    PQTX_ADVICE_RECONNECT = 3, /* again, on a new connection */
    PQTX_ADVICE_RESOLVE = 4,   /* find out first whether it committed */
    PQTX_ADVICE_REPREPARE = 5, /* prepare the statement again, then once more */
    PQTX_ADVICE_DECIDE = 6,    /* an answer: the caller's business */
    PQTX_ADVICE_FIX = 7,       /* program, rights or schema are wrong; again is no use */
    PQTX_ADVICE_OPERATOR = 8,  /* somebody must look after the server */
    PQTX_ADVICE_MAX = 0x7fffffff
} pqtx_advice;

/* The code's name in lower case without the prefix, "no_match"; "user" from PQTX_USER up,
 * "unknown" for any other number.  Static text, never NULL. */
PQTX_API const char *pqtx_status_name(pqtx_status status);
PQTX_API const char *pqtx_advice_name(pqtx_advice advice);

/* What a five-character SQLSTATE means by itself.  A code of a class that PostgreSQL does not
 * define is PQTX_RAISED; NULL or text that is no SQLSTATE is PQTX_SERVER_ERROR.  The classes
 * 00, 01 and 02 (success, warning, no data) are PQTX_OK. */
PQTX_API pqtx_status pqtx_status_of_sqlstate(const char *sqlstate);
PQTX_API pqtx_advice pqtx_advice_of_sqlstate(const char *sqlstate);

/* Each 1 or 0, for any number at all:
 * retryable: nothing was committed, and the same work may succeed if it is run again;
 * maybe committed: it may have been applied, so running it again may apply it twice;
 * answer: the database said no for a reason of the data (1x, 3x), not of the system. */
PQTX_API int pqtx_is_retryable(pqtx_status status);
PQTX_API int pqtx_maybe_committed(pqtx_status status);
PQTX_API int pqtx_is_answer(pqtx_status status);

#ifdef __cplusplus
}
#endif

#endif
