/* fault.h: faults on request, for those who wrap the library or test their own in-doubt branch.
 *
 * A hook in pqtx_options is asked at each named point of each attempt and says what is to go wrong
 * there.  Without a hook, the default, nothing is asked. */
#ifndef PQTX_FAULT_H
#define PQTX_FAULT_H

#include <pqtx/api.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum pqtx_point {
    PQTX_POINT_STATEMENT = 1,       /* before a flight of statements is sent */
    PQTX_POINT_STATEMENT_SENT = 2,  /* after it was sent, before its answer is read */
    PQTX_POINT_COMMIT = 3,          /* before COMMIT has begun: surely rolled back */
    PQTX_POINT_COMMIT_BEGUN = 4,    /* COMMIT has begun and no byte of it was sent: in doubt, and in
                                     * fact rolled back */
    PQTX_POINT_COMMIT_SENT = 5,     /* COMMIT is on its way: in doubt, and in fact either; rarely
                                     * the answer is faster than the cut */
    PQTX_POINT_COMMIT_ANSWERED = 6, /* the answer is there and is thrown away: in doubt, and in fact
                                     * what the server decided, mostly committed */
    PQTX_POINT_ROLLBACK = 7,
    PQTX_POINT_MAX = 0x7fffffff
} pqtx_point;

typedef enum pqtx_fault {
    PQTX_FAULT_NONE = 0,
    PQTX_FAULT_CUT =
        1, /* both directions of the connection are shut down, as by a broken network */
    PQTX_FAULT_MAX = 0x7fffffff
} pqtx_fault;

/* Called on the thread of the transaction; must not call into it. */
typedef pqtx_fault (*pqtx_fault_hook)(pqtx_point point, uint32_t attempt, void *arg);

PQTX_API const char *pqtx_point_name(pqtx_point point);

#ifdef __cplusplus
}
#endif

#endif
