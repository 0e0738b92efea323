#ifndef PQTX_LIB_DOUBT_H
#define PQTX_LIB_DOUBT_H

#include "attempt.h"

/* The answer to COMMIT was lost, and the connection with it.  Finds out what became of it by what
 * the transaction carried.  IN_DOUBT leaves the error as it is, with the reason in its detail. */
pqtx_outcome pqtx__doubt_settle(pqtx_tx *tx);

#endif
