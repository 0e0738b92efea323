#ifndef PQTX_LIB_TX_H
#define PQTX_LIB_TX_H

#include "call.h"

/* For calls of a body.  PQTX_OK: the caller is alone inside and must leave; else nothing is held.
 */
pqtx_status pqtx__tx_enter(pqtx_tx *tx);
void pqtx__tx_leave(pqtx_tx *tx);

/* Whether a body may give this status as its own word for a failure. */
bool pqtx__body_may_say(pqtx_status status);

/* Keeps a result for the caller until the attempt ends; takes it over in any case. */
pqtx_status pqtx__tx_keep(pqtx_tx *tx, PGresult *result, const PGresult **out);
void pqtx__tx_forget_results(pqtx_tx *tx);

/* pqtx__params_encode(), PQTX_OK or the mark. */
pqtx_status pqtx__tx_encode(pqtx_tx *tx, struct pqtx__params *params, int count,
                            const pqtx_value *values);

/* pqtx_exec() for those who have entered and need the answer now.  *result is the caller's. */
pqtx_status pqtx__tx_exec(pqtx_tx *tx, const char *sql, int count, const pqtx_value *values,
                          PGresult **result);

/* Queues it in pipeline mode, else waits for the answer.  For those who have entered. */
pqtx_status pqtx__tx_ask(pqtx_tx *tx, const struct pqtx__request *request);

/* The same, entering and leaving. */
pqtx_status pqtx__tx_call(pqtx_tx *tx, const struct pqtx__request *request);

#endif
