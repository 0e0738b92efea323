#ifndef PQTX_LIB_REPORT_H
#define PQTX_LIB_REPORT_H

#include "attempt.h"

/* Each tells whoever wants to know: the observer, the caller's evidence, the pool's statistics. */
void pqtx__report_start(pqtx_tx *tx);
void pqtx__report_attempt(pqtx_tx *tx);
void pqtx__report_failure(pqtx_tx *tx, pqtx_status status);
void pqtx__report_wait(pqtx_tx *tx, int64_t wait_us);
void pqtx__report_retry(pqtx_tx *tx, size_t counter);
void pqtx__report_resolved(pqtx_tx *tx);
void pqtx__report_end(pqtx_tx *tx);

#endif
