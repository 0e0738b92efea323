#ifndef PQTX_LIB_FLY_H
#define PQTX_LIB_FLY_H

#include "attempt.h"

/* Sends what is queued and then the statements, from none up, in one flight, with whatever must
 * precede them, and waits for it.  PQTX_OK and each result, the caller's; or the mark. */
pqtx_status pqtx__fly(pqtx_tx *tx, const struct pqtx__statement *statements, size_t count,
                      PGresult **results);

/* The parts of it, for a flight that commits as well.
 *
 * Queues the statements that wait, with their guards or without: those are needed where COMMIT is
 * in the same flight. */
bool pqtx__fly_batch(pqtx_tx *tx, bool guarded);

/* Waits for the flight; where the time is up, what runs is cancelled, and PQTX__FLYING says that
 * nothing more was heard. */
enum pqtx__flight pqtx__fly_land(pqtx_tx *tx, const struct pqtx__statement *statements,
                                 size_t count, bool *cancelled);

/* The rows that a call which has landed returned or affected. */
int64_t pqtx__call_rows(const struct pqtx__call *call);

/* Hands out what the queued calls have come to, after a flight without an error. */
void pqtx__fly_deliver(pqtx_tx *tx);

/* Puts what the server said, at this place of the flight, into tx->error. */
void pqtx__fly_heed(pqtx_tx *tx, size_t reply, pqtx_phase phase, int64_t sent_us);

/* The error of the library's own for a time that was up. */
pqtx_status pqtx__fly_late(pqtx_tx *tx, const char *when);

#endif
