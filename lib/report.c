/* report.c: what happens, told to the observer, the caller's evidence and the pool's statistics. */
#include "report.h"
#include "clock.h"
#include "observer.h"

#include <string.h>

static void count(pqtx_tx *tx, size_t field)
{
    if (tx->pool)
        pqtx__pool_count(tx->pool, field);
}

static void tell(pqtx_tx *tx, pqtx_event_type type, pqtx_status status, int64_t wait_us)
{
    if (!tx->options.observer)
        return;
    pqtx_event event = {.type = type, .attempt = tx->attempts, .status = status};
    event.outcome = tx->outcome;
    event.flags = tx->flags;
    event.wait_us = wait_us;
    event.elapsed_us = pqtx__now(tx->clock) - tx->started_us;
    pqtx__observe(&tx->options, event, status == PQTX_OK ? NULL : &tx->error);
}

static void note(pqtx_tx *tx, pqtx_status status)
{
    pqtx_evidence *evidence = tx->options.evidence;
    if (!evidence)
        return;
    pqtx_record *record = &evidence->records[evidence->count++ % PQTX_RECORD_COUNT];
    memset(record, 0, sizeof *record);
    record->attempt = tx->error.attempt;
    record->status = status;
    record->phase = tx->error.phase;
    record->origin = tx->error.origin;
    record->flags = tx->error.flags;
    record->elapsed_us = tx->error.elapsed_us;
    memcpy(record->sqlstate, tx->error.sqlstate, sizeof record->sqlstate);
    pqtx__text_copy(record->message, sizeof record->message, tx->error.message);
}

void pqtx__report_start(pqtx_tx *tx)
{
    if (tx->pool)
        pqtx__pool_earn(tx->pool);
}

void pqtx__report_attempt(pqtx_tx *tx)
{
    count(tx, offsetof(pqtx_stats, attempts));
    tell(tx, PQTX_EVENT_ATTEMPT, PQTX_OK, 0);
}

void pqtx__report_failure(pqtx_tx *tx, pqtx_status status)
{
    note(tx, status);
    tell(tx, PQTX_EVENT_FAILED, status, 0);
}

void pqtx__report_wait(pqtx_tx *tx, int64_t wait_us)
{
    pqtx_evidence *evidence = tx->options.evidence;
    tx->waited_us += wait_us;
    if (evidence && evidence->count > 0)
        evidence->records[(evidence->count - 1) % PQTX_RECORD_COUNT].wait_us = wait_us;
    tell(tx, PQTX_EVENT_WAIT, tx->error.status, wait_us);
}

void pqtx__report_retry(pqtx_tx *tx, size_t counter)
{
    count(tx, counter);
}

void pqtx__report_resolved(pqtx_tx *tx)
{
    tx->flags |= PQTX_RESOLVED;
    count(tx, offsetof(pqtx_stats, resolved));
}

static size_t ending(const pqtx_tx *tx)
{
    if (tx->outcome == PQTX_OUTCOME_IN_DOUBT)
        return offsetof(pqtx_stats, in_doubt);
    if (tx->outcome != PQTX_OUTCOME_COMMITTED)
        return offsetof(pqtx_stats, rollbacks);
    return tx->result == PQTX_DONE_BEFORE ? offsetof(pqtx_stats, done_before)
                                          : offsetof(pqtx_stats, commits);
}

void pqtx__report_end(pqtx_tx *tx)
{
    if (tx->pool)
        pqtx__pool_end(tx->pool, ending(tx), tx->result == PQTX_BUSY, tx->waited_us,
                       pqtx__now(tx->clock) - tx->started_us);
    tell(tx, PQTX_EVENT_END, tx->result, 0);
}
