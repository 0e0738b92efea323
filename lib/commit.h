#ifndef PQTX_LIB_COMMIT_H
#define PQTX_LIB_COMMIT_H

#include "attempt.h"

/* Commits: PQTX_OK, PQTX_IN_DOUBT, or the mark (then it is still to be rolled back). */
pqtx_status pqtx__commit(pqtx_tx *tx);

#endif
