#ifndef PQTX_LIB_LOOP_H
#define PQTX_LIB_LOOP_H

#include "attempt.h"

/* Ends the run.  Once in doubt, no later failure is proof that nothing was committed. */
void pqtx__decide(pqtx_tx *tx, pqtx_status result, pqtx_outcome outcome);

#endif
