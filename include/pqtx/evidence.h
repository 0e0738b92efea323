/* evidence.h: what the last attempts met, readable after the call.
 *
 * The caller owns the memory, so it outlives pqtx_run(): one struct on the stack, its address in
 * pqtx_options.evidence. */
#ifndef PQTX_EVIDENCE_H
#define PQTX_EVIDENCE_H

#include <pqtx/error.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One failure: of an attempt, or of getting a connection for one. */
typedef struct pqtx_record {
    uint32_t attempt; /* from 1; 0: before any had begun */
    pqtx_status status;
    pqtx_phase phase;
    pqtx_origin origin;
    uint32_t flags;     /* PQTX_ERROR_… */
    uint32_t reserved;  /* 0 */
    int64_t elapsed_us; /* since the first attempt began */
    int64_t wait_us;    /* slept afterwards; 0: it was the last one */
    char sqlstate[8];
    char message[112];
} pqtx_record;

#define PQTX_RECORD_COUNT 16

/* A ring: record number n, from 0, is at records[n % PQTX_RECORD_COUNT], and the newest is number
 * count - 1. */
typedef struct pqtx_evidence {
    size_t size;
    uint32_t count;    /* failures so far, those that were overwritten included */
    uint32_t reserved; /* 0 */
    pqtx_record records[PQTX_RECORD_COUNT];
} pqtx_evidence;

#define PQTX_EVIDENCE PQTX_SIZED(pqtx_evidence)

#ifdef __cplusplus
}
#endif

#endif
