#ifndef PQTX_LIB_LOOP_H
#define PQTX_LIB_LOOP_H

#include "attempt.h"

/* Ends the run.  Once in doubt, no later failure is proof that nothing was committed. */
void pqtx__decide(pqtx_tx *tx, pqtx_status result, pqtx_outcome outcome);

/* Starts the run's clock, unless it runs: the first pqtx_attempt() does. */
void pqtx__loop_start(pqtx_tx *tx);

/* Ends an attempt by what COMMIT has come to, or by its mark. */
pqtx_status pqtx__loop_end(pqtx_tx *tx, pqtx_status status, bool marked);

#endif
