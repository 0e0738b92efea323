/* observer.h: what the runner is doing, told while it happens.
 *
 * One function, called on the thread that runs the transaction and with no lock held.  It must
 * not call back into that transaction. */
#ifndef PQTX_OBSERVER_H
#define PQTX_OBSERVER_H

#include <pqtx/error.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum pqtx_event_type {
    PQTX_EVENT_ATTEMPT = 1, /* an attempt has a connection and begins */
    PQTX_EVENT_FAILED = 2,  /* it failed: status, sqlstate and phase say how */
    PQTX_EVENT_WAIT = 3,    /* the next attempt begins after wait_us */
    PQTX_EVENT_END = 4,     /* the transaction is decided: status is what pqtx_result() returns */
    PQTX_EVENT_NOTICE = 5,  /* the server sent a notice or warning (pool connections only) */
    PQTX_EVENT_MAX = 0x7fffffff
} pqtx_event_type;

typedef enum pqtx_outcome {
    PQTX_OUTCOME_OPEN = 0, /* not decided yet */
    PQTX_OUTCOME_COMMITTED = 1,
    PQTX_OUTCOME_ROLLED_BACK = 2, /* also: nothing was ever begun */
    PQTX_OUTCOME_IN_DOUBT = 3,
    PQTX_OUTCOME_MAX = 0x7fffffff
} pqtx_outcome;

/* How good the answer is: in pqtx_event.flags and pqtx_get_flags(). */
#define PQTX_LOCAL_ONLY                                                                            \
    0x1u /* committed here, but the wait for a synchronous standby was broken off                  \
          * (seen on pool connections only) */
#define PQTX_RESOLVED 0x2u /* the answer to COMMIT was lost, and the outcome was found out */
#define PQTX_NO_CHANGE                                                                             \
    0x4u /* an attempt whose answer was lost had changed no row here; with                         \
          * PQTX_IN_DOUBT, only NOTIFY or a foreign table is in doubt */

typedef struct pqtx_event {
    size_t size;
    pqtx_event_type type;
    uint32_t attempt; /* from 1 */
    pqtx_phase phase;
    pqtx_status status;
    pqtx_outcome outcome;
    uint32_t flags; /* PQTX_LOCAL_ONLY, … */
    char sqlstate[8];
    char severity[12];   /* of a notice: WARNING, NOTICE, …; else empty */
    int64_t wait_us;     /* of PQTX_EVENT_WAIT */
    int64_t elapsed_us;  /* since the first attempt began */
    const char *message; /* of an error or a notice; lives during the call; never NULL */
} pqtx_event;

typedef void (*pqtx_observer)(const pqtx_event *event, void *arg);

#ifdef __cplusplus
}
#endif

#endif
