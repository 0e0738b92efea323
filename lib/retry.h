#ifndef PQTX_LIB_RETRY_H
#define PQTX_LIB_RETRY_H

#include "attempt.h"

/* Whether the failed attempt is of a kind that another one may mend, by its mark, the retry mask
 * and the state of the connection. */
bool pqtx__retry_is_due(const pqtx_tx *tx);

/* The field of pqtx_stats that counts further attempts after this status. */
size_t pqtx__retry_counter(pqtx_status status);

/* Drops the connection of an attempt that met a standby: the pool must look for the new primary. */
void pqtx__retry_leave_standby(pqtx_tx *tx);

#endif
