#ifndef PQTX_LIB_CLAIM_H
#define PQTX_LIB_CLAIM_H

#include "attempt.h"

/* Writes the event's row, if the run has an event.  PQTX_OK: it is new, and the body may run.
 * PQTX_DONE_BEFORE: it was applied, and its stored answer is in the proof; *own tells whether by an
 * earlier attempt of this run.  Both of these and PQTX_KEY_MISMATCH are marks, as is any failure.
 */
pqtx_status pqtx__claim(pqtx_tx *tx, bool *own);

/* Queues the row instead, in front of a single statement: one that was there already makes the
 * flight fail with PQTX_DONE_BEFORE, and the next attempt finds out whose it is. */
pqtx_status pqtx__claim_queue(pqtx_tx *tx);

#endif
