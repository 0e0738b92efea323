#ifndef PQTX_LIB_LEAD_H
#define PQTX_LIB_LEAD_H

#include "attempt.h"

/* Queues what must go in front of a command: BEGIN and the settings once, then what was put off. */
bool pqtx__lead(pqtx_tx *tx);

/* Queues the lock_timeout wanted for the next command, unless the server has it. */
bool pqtx__lead_lock_timeout(pqtx_tx *tx, int64_t wanted_ms);

/* In front of a whole transaction in one flight: the server is to look whether its client is still
 * there, so that a statement that waits for a lock does not commit long after that has died. */
bool pqtx__lead_client_check(pqtx_tx *tx);

/* Whether a transaction can do without BEGIN and COMMIT, the flight itself being one: by options
 * and connection; and by its statements as well. */
bool pqtx__lead_suits(const pqtx_options *options, const struct pqtx__wire *wire);
bool pqtx__lead_may_be_implicit(const pqtx_tx *tx);

/* The settings of such a flight. */
bool pqtx__lead_implicit(pqtx_tx *tx, int64_t now_us);

#endif
