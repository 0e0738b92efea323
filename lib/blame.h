#ifndef PQTX_LIB_BLAME_H
#define PQTX_LIB_BLAME_H

#include "attempt.h"

/* Lands the flight, until statements are to be given up.  With PQTX_NAME_BLOCKER the server is
 * asked, near the end of each lock_timeout, whom it waits for. */
enum pqtx__flight pqtx__blame_land(pqtx_tx *tx);

/* Tells it in tx->error, if that is a lock that was not had in time. */
void pqtx__blame(pqtx_tx *tx);

#endif
