#ifndef PQTX_LIB_ONE_H
#define PQTX_LIB_ONE_H

#include "tx.h"

/* Begins an attempt of which everything is queued, the event's row with it. */
pqtx_status pqtx__one_begin(pqtx_tx *tx);

/* Queues the one statement of an attempt. */
pqtx_status pqtx__one_queue(pqtx_tx *tx, const char *sql, int count, const pqtx_value *values,
                            int64_t expected);

/* Its answer, which is the caller's from then on, and its rows (or NULL). */
PGresult *pqtx__one_take(pqtx_tx *tx, int64_t *rows);

#endif
