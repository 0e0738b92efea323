/* attempt.c: one attempt, from BEGIN to ROLLBACK or the end, on one connection. */
#include "attempt.h"
#include "clock.h"
#include "observer.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void pqtx__note_error(pqtx_tx *tx)
{
    tx->error.attempt = tx->attempts;
    tx->error.elapsed_us = pqtx__now(tx->clock) - tx->started_us;
    if (tx->wire && tx->wire->lost)
        tx->error.flags |= PQTX_ERROR_CONNECTION;
}

pqtx_status pqtx__fail(pqtx_tx *tx, pqtx_status status, const char *format, ...)
{
    if (tx->mark != PQTX_OK)
        return tx->mark;
    char message[sizeof tx->error.message];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    pqtx__error_set(&tx->error, status, tx->begun ? PQTX_PHASE_BODY : PQTX_PHASE_BEGIN,
                    PQTX_ORIGIN_LIBRARY, "%s", message);
    pqtx__note_error(tx);
    return tx->mark = status;
}

pqtx_status pqtx__fail_by_count(pqtx_tx *tx, struct pqtx__rule rule, int64_t rows)
{
    pqtx_status status = rows < rule.rows ? PQTX_NO_MATCH : PQTX_TOO_MANY;
    if (rule.rows != 1)
        return pqtx__fail(tx, status, "%lld rows, where %lld were expected", (long long)rows,
                          (long long)rule.rows);
    if (rows == 0)
        return pqtx__fail(tx, status, "no row, where one was expected");
    return pqtx__fail(tx, status, "%lld rows, where one was expected", (long long)rows);
}

/* The commit record is safe when the wait for a standby is broken off, by a cancel or by the end of
 * the session. */
static bool is_local_commit(const pqtx_error *said)
{
    return strcmp(said->source_function, "SyncRepWaitForLSN") == 0 &&
           (strcmp(said->sqlstate, "01000") == 0 || strcmp(said->sqlstate, "57P01") == 0);
}

void pqtx__attempt_hear(pqtx_tx *tx, const PGresult *notice)
{
    pqtx_error said = PQTX_ERROR;
    pqtx__error_from_result(&said, notice, tx->begun ? PQTX_PHASE_BODY : PQTX_PHASE_BEGIN);
    tx->local_only |= is_local_commit(&said);
    pqtx_event event = {.type = PQTX_EVENT_NOTICE, .attempt = tx->attempts};
    event.elapsed_us = pqtx__now(tx->clock) - tx->started_us;
    memcpy(event.severity, said.severity, sizeof event.severity);
    pqtx__observe(&tx->options, event, &said);
}

static void hear(void *arg, const PGresult *notice)
{
    pqtx__attempt_hear(arg, notice);
}

void pqtx__attempt_begin(pqtx_tx *tx, struct pqtx__wire *wire)
{
    tx->wire = wire;
    wire->clock = tx->clock;
    if (wire->cache)
        wire->cache->paused = tx->was_stale;
    tx->begun = false;
    tx->mark = PQTX_OK;
    tx->final = false;
    tx->depth = 0;
    tx->savepoints = 0;
    tx->pipelined = tx->options.flags & PQTX_PIPELINE;
    tx->needs_block = tx->implicit = false;
    tx->pending.count = 0;
    tx->lock_timeout.wanted_ms = tx->options.lock_timeout_ms;
    tx->lock_timeout.sent_ms = tx->lock_timeout.sent_for_ms = PQTX_NO_TIMEOUT;
    tx->local_only = false;
    tx->state = PQTX__OPEN;
    pqtx__proof_begin(&tx->proof, tx->attempts);
    if (tx->pool) {
        wire->notice = hear;
        wire->notice_arg = tx;
    }
}

void pqtx__attempt_fault(pqtx_tx *tx, pqtx_point point)
{
    if (tx->options.fault &&
        tx->options.fault(point, tx->attempts, tx->options.fault_arg) == PQTX_FAULT_CUT)
        pqtx__wire_cut(tx->wire);
}

pqtx_status pqtx__attempt_defer(pqtx_tx *tx, const char *verb, uint32_t savepoint)
{
    struct pqtx__pending *pending = &tx->pending;
    if (pending->count == pending->capacity) {
        size_t capacity = pending->capacity ? 2 * pending->capacity : 4;
        void *bigger = realloc(pending->list, capacity * sizeof *pending->list);
        if (!bigger)
            return pqtx__fail(tx, PQTX_NO_MEMORY, "no memory for a savepoint");
        pending->list = bigger;
        pending->capacity = capacity;
    }
    snprintf(pending->list[pending->count++], sizeof *pending->list, "%s pqtx_%u", verb, savepoint);
    return PQTX_OK;
}

void pqtx__attempt_leave_gate(pqtx_tx *tx)
{
    if (tx->gated)
        pqtx__gate_leave(tx->options.gate, tx->options.gate_key);
    tx->gated = false;
}

void pqtx__attempt_end(pqtx_tx *tx)
{
    struct pqtx__wire *wire = tx->wire;
    if (wire && wire->lost && tx->begun)
        tx->orphan.backend = wire->backend;
    if (wire)
        pqtx__batch_clear(&tx->batch, &wire->store);
    tx->wire = NULL;
    tx->begun = false;
    if (wire == &tx->lent)
        pqtx__wire_detach(wire);
    else if (wire && wire != tx->given)
        pqtx__pool_release(tx->pool, wire);
    pqtx__attempt_leave_gate(tx);
}

/* Rolling back has a small time of its own, where a slow body has used up the deadline. */
static void send_rollback(pqtx_tx *tx)
{
    struct pqtx__wire *wire = tx->wire;
    int64_t least_us = pqtx__now(tx->clock) + (tx->deadline_us - tx->give_up_us);
    int64_t until_us = least_us > tx->deadline_us ? least_us : tx->deadline_us;
    pqtx__attempt_fault(tx, PQTX_POINT_ROLLBACK);
    if (!pqtx__wire_send(wire, "ROLLBACK", NULL) || !pqtx__wire_sync(wire) ||
        pqtx__wire_land(wire, until_us) != PQTX__LANDED ||
        PQtransactionStatus(wire->conn) != PQTRANS_IDLE)
        wire->lost = true;
    pqtx__wire_clear(wire);
}

bool pqtx__attempt_rewind(pqtx_tx *tx)
{
    send_rollback(tx);
    if (tx->wire->lost)
        return false;
    tx->begun = false;
    tx->mark = PQTX_OK;
    tx->lock_timeout.sent_ms = tx->lock_timeout.sent_for_ms = PQTX_NO_TIMEOUT;
    return true;
}

void pqtx__attempt_rollback(pqtx_tx *tx)
{
    if (tx->wire && tx->begun && !tx->wire->lost &&
        PQtransactionStatus(tx->wire->conn) != PQTRANS_IDLE)
        send_rollback(tx);
    if (tx->wire && tx->wire->lost)
        tx->error.flags |= PQTX_ERROR_CONNECTION;
    pqtx__attempt_end(tx);
    tx->state = PQTX__CLOSED;
    if (!tx->doubtful)
        pqtx__actions_rollback(&tx->actions, 0);
}
