#ifndef PQTX_LIB_COMMIT_H
#define PQTX_LIB_COMMIT_H

#include "attempt.h"

/* A flight that commits: where it begins and ends among the replies, where the body's part of it
 * ends, and where COMMIT is.  In the implicit form the Sync itself commits, and `commit` is its
 * place. */
struct pqtx__flight_plan {
    size_t begin, body_end, commit, end;
    int64_t sent_us;
    bool sent, cancelled;
};

/* Commits: PQTX_OK, PQTX_IN_DOUBT, or the mark (then it is still to be rolled back). */
pqtx_status pqtx__commit(pqtx_tx *tx);

/* The two halves of it, between which the wire is to land: for several in one flight. */
void pqtx__commit_send(pqtx_tx *tx, int64_t now_us, struct pqtx__flight_plan *plan);
pqtx_status pqtx__commit_judge(pqtx_tx *tx, const struct pqtx__flight_plan *plan);

#endif
