#ifndef PQTX_LIB_TAKEOVER_H
#define PQTX_LIB_TAKEOVER_H

#include "wire.h"

#define PQTX__LEADER_TABLE "pqtx_leader"

struct pqtx__takeover {
    const char *schema, *name;
    int64_t key;
    bool waits;      /* for the lock; a try still waits for what is fenced by the epoch before */
    int64_t lock_us; /* how long each of these waits may last */
    int64_t answer_us;
};

/* On a session of one's own, at READ COMMITTED, that does not hold the lock.
 *
 * PQTX_OK: it holds it once, and *epoch is committed.  PQTX_BUSY: another one has it, and this
 * session holds nothing, or is lost.  Anything else: it is to be closed, since it may hold the
 * lock.
 */
pqtx_status pqtx__takeover(struct pqtx__wire *wire, const struct pqtx__takeover *takeover,
                           int64_t *epoch, pqtx_error *error);

#endif
