/* attempt.c: one attempt, from BEGIN to ROLLBACK or the end, on one connection.
 *
 * BEGIN, the settings and the savepoint commands ride in front of the statement that follows, in
 * one flight.  Never a Sync between BEGIN and the body: if BEGIN failed, the body would commit by
 * itself. */
#include "attempt.h"
#include "clock.h"
#include "connect.h"
#include "observer.h"
#include "statement.h"
#include "status.h"

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

/* The flight was lost and no error came with it. */
static pqtx_status fail_by_loss(pqtx_tx *tx)
{
    bool unsent = tx->wire->unsent;
    pqtx__error_set(&tx->error, unsent ? PQTX_NO_MEMORY : PQTX_NO_CONNECTION, PQTX_PHASE_BODY,
                    PQTX_ORIGIN_LIBPQ, "%s",
                    unsent ? "no memory to send the statement"
                           : "the connection to the server was lost");
    pqtx__note_error(tx);
    return tx->mark = tx->error.status;
}

/* The commit record is safe when the wait for a standby is broken off, by a cancel or by the end of
 * the session. */
static bool is_local_commit(const pqtx_error *said)
{
    return strcmp(said->source_function, "SyncRepWaitForLSN") == 0 &&
           (strcmp(said->sqlstate, "01000") == 0 || strcmp(said->sqlstate, "57P01") == 0);
}

static void hear(void *arg, const PGresult *notice)
{
    pqtx_tx *tx = arg;
    pqtx_error said = PQTX_ERROR;
    pqtx__error_from_result(&said, notice, tx->begun ? PQTX_PHASE_BODY : PQTX_PHASE_BEGIN);
    tx->local_only |= is_local_commit(&said);
    pqtx_event event = {.type = PQTX_EVENT_NOTICE, .attempt = tx->attempts};
    event.elapsed_us = pqtx__now(tx->clock) - tx->started_us;
    memcpy(event.severity, said.severity, sizeof event.severity);
    pqtx__observe(&tx->options, event, &said);
}

void pqtx__attempt_begin(pqtx_tx *tx, struct pqtx__wire *wire)
{
    tx->wire = wire;
    wire->clock = tx->clock;
    tx->begun = false;
    tx->mark = PQTX_OK;
    tx->final = false;
    tx->depth = 0;
    tx->savepoints = 0;
    tx->pending.count = 0;
    tx->lock_timeout = (struct pqtx__lock_timeout){
        .wanted_ms = tx->options.lock_timeout_ms,
        .sent_ms = PQTX_NO_TIMEOUT,
        .sent_for_ms = PQTX_NO_TIMEOUT,
    };
    tx->local_only = false;
    tx->state = PQTX__OPEN;
    pqtx__proof_begin(&tx->proof, tx->attempts);
    if (tx->pool) {
        wire->notice = hear;
        wire->notice_arg = tx;
    }
}

static const char *begin_sql(const pqtx_options *options, char *sql, size_t size)
{
    static const char *const isolation[] = {"", " ISOLATION LEVEL READ COMMITTED",
                                            " ISOLATION LEVEL REPEATABLE READ",
                                            " ISOLATION LEVEL SERIALIZABLE"};
    static const char *const access[] = {"", " READ WRITE", " READ ONLY", " READ ONLY DEFERRABLE"};
    snprintf(sql, size, "BEGIN%s%s", isolation[options->isolation], access[options->access]);
    return sql;
}

/* SET LOCAL, not set_config(): a SELECT would take the snapshot. */
static bool send_timeout(pqtx_tx *tx, const char *name, int64_t ms)
{
    char sql[96];
    snprintf(sql, sizeof sql, "SET LOCAL %s = %lld", name, (long long)ms);
    return pqtx__wire_send(tx->wire, sql, NULL);
}

/* The wanted timeout, but less than the time left, so that the server ends the wait and says for
 * what before we have to.  Sent again only when what the server has is longer than that. */
static bool send_lock_timeout(pqtx_tx *tx)
{
    struct pqtx__lock_timeout *timeout = &tx->lock_timeout;
    int64_t wanted_ms = timeout->wanted_ms;
    int64_t left_ms = pqtx__left(tx->clock, tx->give_up_us) / 1000;
    if (timeout->sent_for_ms == wanted_ms && (wanted_ms <= 0 || timeout->sent_ms <= left_ms))
        return true;
    timeout->sent_for_ms = timeout->sent_ms = wanted_ms;
    if (wanted_ms == PQTX_NO_TIMEOUT)
        return pqtx__wire_send(tx->wire, "SET LOCAL lock_timeout TO DEFAULT", NULL);
    left_ms -= left_ms / 8;
    if (wanted_ms > left_ms && wanted_ms > 0)
        timeout->sent_ms = left_ms > 0 ? left_ms : 1;
    return send_timeout(tx, "lock_timeout", timeout->sent_ms);
}

/* The limits that the server keeps for the whole attempt, each at most the time left. */
static bool send_limits(pqtx_tx *tx)
{
    int64_t left_ms = pqtx__left(tx->clock, tx->deadline_us) / 1000 + 1;
    int64_t statement_ms = tx->options.statement_timeout_ms;
    if (statement_ms > left_ms)
        statement_ms = left_ms;
    if (statement_ms > 0 && !send_timeout(tx, "statement_timeout", statement_ms))
        return false;
    if (!(tx->options.flags & PQTX_SERVER_DEADLINE))
        return true;
    return send_timeout(tx, "idle_in_transaction_session_timeout", left_ms) &&
           (PQserverVersion(tx->wire->conn) < 170000 ||
            send_timeout(tx, "transaction_timeout", left_ms));
}

bool pqtx__attempt_lead(pqtx_tx *tx)
{
    char sql[96];
    if (!tx->begun) {
        tx->begun = true;
        if (!pqtx__wire_send(tx->wire, begin_sql(&tx->options, sql, sizeof sql), NULL))
            return false;
        if (!send_limits(tx))
            return false;
    }
    for (size_t i = 0; i < tx->pending.count; i++)
        if (!pqtx__wire_send(tx->wire, tx->pending.list[i], NULL))
            return false;
    tx->pending.count = 0;
    tx->flights++;
    return send_lock_timeout(tx);
}

/* A statement_timeout and a stranger's cancel have the same SQLSTATE and the same fields. */
static bool is_statement_timeout(const pqtx_tx *tx, int64_t sent_us)
{
    int64_t limit_ms = tx->options.statement_timeout_ms;
    return tx->error.status == PQTX_CANCELLED && limit_ms > 0 &&
           (pqtx__now(tx->clock) - sent_us) / 1000 >= limit_ms;
}

void pqtx__attempt_heed(pqtx_tx *tx, const PGresult *result, pqtx_phase phase, int64_t sent_us)
{
    pqtx__error_from_result(&tx->error, result, phase);
    if (is_statement_timeout(tx, sent_us))
        tx->error.status = PQTX_TIMEOUT;
    pqtx__note_error(tx);
}

static pqtx_status fail_by_result(pqtx_tx *tx, const PGresult *result, pqtx_phase phase,
                                  int64_t sent_us)
{
    pqtx__attempt_heed(tx, result, phase, sent_us);
    if (tx->error.status == PQTX_IN_DOUBT) /* 40003, 08007: not before COMMIT was sent */
        tx->error.status = PQTX_SERVER_ERROR;
    return tx->mark = tx->error.status;
}

/* The time is up while a statement runs: it is cancelled, and the connection is kept if the server
 * says within the rest of the deadline that the statement has ended. */
static pqtx_status fail_by_deadline(pqtx_tx *tx, const struct pqtx__statement *statements,
                                    size_t count)
{
    pqtx__cancel(tx->wire, statements, count, tx->deadline_us);
    if (pqtx__wire_land(tx->wire, tx->deadline_us) != PQTX__LANDED)
        tx->wire->lost = true;
    pqtx__fail(tx, PQTX_TIMEOUT, "the deadline of %lld ms came while a statement was running",
               (long long)tx->options.deadline_ms);
    tx->error.flags |= PQTX_ERROR_DEADLINE;
    return tx->mark;
}

/* What a flight that has landed or not came to.  `lead` commands of ours went before the body's. */
static pqtx_status judge(pqtx_tx *tx, enum pqtx__flight flight, size_t lead, int64_t sent_us)
{
    size_t error = pqtx__wire_error(tx->wire);
    if (error < tx->wire->count)
        return fail_by_result(tx, tx->wire->replies[error].result,
                              error < lead ? PQTX_PHASE_BEGIN : PQTX_PHASE_BODY, sent_us);
    if (flight == PQTX__LOST)
        return fail_by_loss(tx);
    if (PQtransactionStatus(tx->wire->conn) != PQTRANS_INTRANS) {
        tx->wire->lost = true;
        return pqtx__fail(tx, PQTX_MISUSE,
                          "a statement ended the transaction itself; what went "
                          "before it may be committed");
    }
    return PQTX_OK;
}

void pqtx__attempt_fault(pqtx_tx *tx, pqtx_point point)
{
    if (tx->options.fault &&
        tx->options.fault(point, tx->attempts, tx->options.fault_arg) == PQTX_FAULT_CUT)
        pqtx__wire_cut(tx->wire);
}

/* Queues the whole flight; *lead is how many commands of ours go before the statements. */
static bool send_flight(pqtx_tx *tx, const struct pqtx__statement *statements, size_t count,
                        bool with_xid, size_t *lead)
{
    bool sent = pqtx__attempt_lead(tx);
    *lead = tx->wire->count;
    for (size_t i = 0; sent && i < count; i++)
        sent = pqtx__wire_send(tx->wire, statements[i].sql, statements[i].params);
    return sent && (!with_xid || pqtx__proof_send_xid(tx->wire)) && pqtx__wire_sync(tx->wire);
}

pqtx_status pqtx__attempt_fly(pqtx_tx *tx, const struct pqtx__statement *statements, size_t count,
                              PGresult **results)
{
    for (size_t i = 0; i < count; i++)
        results[i] = NULL;
    struct pqtx__wire *wire = tx->wire;
    int64_t sent_us = pqtx__now(tx->clock);
    if (sent_us >= tx->give_up_us) {
        pqtx__fail(tx, PQTX_TIMEOUT, "the deadline of %lld ms came before the statement",
                   (long long)tx->options.deadline_ms);
        tx->error.flags |= PQTX_ERROR_DEADLINE;
        return tx->mark;
    }
    size_t lead;
    bool with_xid = count > 0 && pqtx__proof_rides(&tx->proof) &&
                    pqtx__statement_reads(statements[count - 1].sql);
    pqtx__attempt_fault(tx, PQTX_POINT_STATEMENT);
    bool sent = send_flight(tx, statements, count, with_xid, &lead);
    pqtx__attempt_fault(tx, PQTX_POINT_STATEMENT_SENT);
    enum pqtx__flight flight = sent ? pqtx__wire_land(wire, tx->give_up_us) : PQTX__LOST;
    pqtx_status status = flight == PQTX__FLYING ? fail_by_deadline(tx, statements, count)
                                                : judge(tx, flight, lead, sent_us);
    for (size_t i = 0; status == PQTX_OK && i < count; i++)
        results[i] = pqtx__wire_take(wire, lead + i);
    if (status == PQTX_OK && with_xid)
        pqtx__proof_heed_xid(&tx->proof, wire->replies[lead + count].result);
    pqtx__wire_clear(wire);
    return status;
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

void pqtx__attempt_end(pqtx_tx *tx)
{
    struct pqtx__wire *wire = tx->wire;
    if (wire && wire->lost && tx->begun)
        tx->orphan.backend = wire->backend;
    tx->wire = NULL;
    tx->begun = false;
    if (wire == &tx->lent)
        pqtx__wire_detach(wire);
    else if (wire)
        pqtx__pool_release(tx->pool, wire);
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
