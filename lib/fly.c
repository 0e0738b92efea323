/* fly.c: one flight of a transaction's statements, and what it came to. */
#include "fly.h"
#include "blame.h"
#include "clock.h"
#include "connect.h"
#include "lead.h"
#include "statement.h"

#include <stdlib.h>
#include <string.h>

pqtx_status pqtx__fly_late(pqtx_tx *tx, const char *when)
{
    pqtx__fail(tx, PQTX_TIMEOUT, "the deadline of %lld ms came %s",
               (long long)tx->options.deadline_ms, when);
    tx->error.flags |= PQTX_ERROR_DEADLINE;
    return tx->mark;
}

bool pqtx__fly_batch(pqtx_tx *tx, bool guarded)
{
    struct pqtx__wire *wire = tx->wire;
    tx->guarded = guarded;
    bool explicitly = !tx->implicit;
    for (struct pqtx__command *c = tx->batch.first; c; c = c->next) {
        if (explicitly && !pqtx__lead_lock_timeout(tx, c->lock_timeout_ms))
            return false;
        c->reply = wire->count;
        if (!pqtx__wire_send(wire, guarded ? c->sql : c->text, &c->params))
            return false;
    }
    return true;
}

/* Queues the whole flight; *lead is how many commands go before the statements. */
static bool send_flight(pqtx_tx *tx, const struct pqtx__statement *statements, size_t count,
                        bool with_xid, size_t *lead)
{
    bool sent = pqtx__lead(tx) && pqtx__fly_batch(tx, false) &&
                pqtx__lead_lock_timeout(tx, tx->lock_timeout.wanted_ms);
    *lead = tx->wire->count;
    for (size_t i = 0; sent && i < count; i++)
        sent = pqtx__wire_send(tx->wire, statements[i].sql, statements[i].params);
    return sent && (!with_xid || pqtx__proof_send_xid(tx->wire)) && pqtx__wire_sync(tx->wire);
}

/* Without knowing the backend, a cancel has to know what runs. */
static bool cancel(pqtx_tx *tx, const struct pqtx__statement *statements, size_t count)
{
    size_t all = tx->batch.count + count, n = 0;
    if (tx->wire->backend.pid != 0)
        return pqtx__cancel(tx->wire, NULL, 0, tx->deadline_us);
    struct pqtx__statement *list = calloc(all + 1, sizeof *list);
    if (!list)
        return false;
    for (struct pqtx__command *c = tx->batch.first; c; c = c->next)
        list[n++].sql = tx->guarded ? c->sql : c->text;
    for (size_t i = 0; i < count; i++)
        list[n++] = statements[i];
    bool asked = pqtx__cancel(tx->wire, list, n, tx->deadline_us);
    free(list);
    return asked;
}

enum pqtx__flight pqtx__fly_land(pqtx_tx *tx, const struct pqtx__statement *statements,
                                 size_t count, bool *cancelled)
{
    enum pqtx__flight flight = pqtx__blame_land(tx);
    *cancelled = flight == PQTX__FLYING;
    if (*cancelled) {
        cancel(tx, statements, count);
        flight = pqtx__wire_land(tx->wire, tx->deadline_us);
    }
    return flight;
}

/* A statement_timeout and a stranger's cancel have the same SQLSTATE and the same fields. */
static bool is_statement_timeout(const pqtx_tx *tx, int64_t sent_us)
{
    int64_t limit_ms = tx->options.statement_timeout_ms;
    return tx->error.status == PQTX_CANCELLED && limit_ms > 0 &&
           (pqtx__now(tx->clock) - sent_us) / 1000 >= limit_ms;
}

static const struct pqtx__command *command_of(const pqtx_tx *tx, size_t reply)
{
    const struct pqtx__command *c = tx->batch.first;
    while (c && c->reply != reply)
        c = c->next;
    return c;
}

/* A queued call did not do what it had to, as a guard of ours or its count of rows tells. */
static void heed_miss(pqtx_tx *tx, const struct pqtx__call *call, int64_t code)
{
    const char *why = "";
    pqtx_status status = call->meaning ? call->meaning(code, &why) : PQTX_OK;
    if (call->meaning)
        pqtx__fail(tx, status, "%s", why);
    else
        pqtx__fail_by_count(tx, call->rule, code);
}

void pqtx__fly_heed(pqtx_tx *tx, size_t reply, pqtx_phase phase, int64_t sent_us)
{
    const PGresult *result = tx->wire->replies[reply].result;
    const struct pqtx__command *command = command_of(tx, reply);
    struct pqtx__call *call = command ? &tx->calls[command->call] : NULL;
    int64_t code, ignored = 0;
    int64_t *value = call && call->integers ? call->integers : &ignored;
    if (call && call->rule.count != PQTX__COUNT_ANY && pqtx__guard_read(result, &code, value)) {
        heed_miss(tx, call, code);
        tx->error.phase = phase;
    } else {
        pqtx__error_from_result(&tx->error, result, phase);
        if (is_statement_timeout(tx, sent_us))
            tx->error.status = PQTX_TIMEOUT;
        tx->error.status = pqtx_status_of_constraint(&tx->error, tx->options.constraints,
                                                     tx->options.constraint_count);
        if (command && tx->guarded && tx->error.statement_position > command->shift)
            tx->error.statement_position -= command->shift;
        pqtx__blame(tx);
    }
    if (command && tx->error.status == PQTX_IN_DOUBT) /* 40003, 08007: not before COMMIT */
        tx->error.status = PQTX_SERVER_ERROR;
    pqtx__note_error(tx);
    if (!call)
        return;
    tx->error.call = (int32_t)command->call + 1;
    call->landed = true;
    call->status = tx->error.status;
}

static bool is_met(struct pqtx__rule rule, int64_t rows)
{
    return rule.count == PQTX__COUNT_EXACT ? rows == rule.rows : rows <= rule.rows;
}

/* Without guards, the first call before this place of the flight that has a wrong number of rows
 * marks the attempt. */
static pqtx_status check_counts(pqtx_tx *tx, size_t end)
{
    int64_t rows;
    for (struct pqtx__command *c = tx->batch.first; c && c->reply < end; c = c->next) {
        struct pqtx__call *call = &tx->calls[c->call];
        if (c->rule.count == PQTX__COUNT_ANY ||
            pqtx_get_rows(tx->wire->replies[c->reply].result, &rows) != PQTX_OK ||
            is_met(c->rule, rows))
            continue;
        heed_miss(tx, call, rows);
        tx->error.call = (int32_t)c->call + 1;
        call->landed = true;
        call->status = tx->mark;
        break;
    }
    return tx->mark;
}

/* The place of the first of our own commands that are not of the body. */
static size_t body_begin(const pqtx_tx *tx, size_t lead)
{
    return tx->batch.first ? tx->batch.first->reply : lead;
}

static pqtx_status fail_by_result(pqtx_tx *tx, size_t reply, size_t lead, int64_t sent_us)
{
    bool in_body = reply >= body_begin(tx, lead);
    pqtx__fly_heed(tx, reply, in_body ? PQTX_PHASE_BODY : PQTX_PHASE_BEGIN, sent_us);
    if (tx->error.status == PQTX_IN_DOUBT) /* 40003, 08007: not before COMMIT was sent */
        tx->error.status = PQTX_SERVER_ERROR;
    return tx->mark = tx->error.status;
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

/* What a flight that has landed or not came to.  `lead` commands of ours went before the body's. */
static pqtx_status judge(pqtx_tx *tx, enum pqtx__flight flight, size_t lead, int64_t sent_us)
{
    size_t error = pqtx__wire_error(tx->wire, 0, tx->wire->count);
    if (check_counts(tx, error) != PQTX_OK)
        return tx->mark;
    if (error < tx->wire->count)
        return fail_by_result(tx, error, lead, sent_us);
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

int64_t pqtx__call_rows(const struct pqtx__call *call)
{
    int64_t rows = call->rule.rows;
    if (call->rule.count != PQTX__COUNT_EXACT && pqtx_get_rows(call->answer, &rows) != PQTX_OK)
        rows = 0;
    return rows;
}

/* NULL and what is no integer leave the caller's as it is. */
static void read_integers(const struct pqtx__call *call)
{
    int rows = PQntuples(call->answer);
    for (int i = 0; i < rows && (size_t)i < call->integer_count; i++)
        pqtx_get_int(call->answer, i, 0, &call->integers[i]);
}

void pqtx__fly_deliver(pqtx_tx *tx)
{
    for (struct pqtx__command *c = tx->batch.first; c; c = c->next) {
        struct pqtx__call *call = &tx->calls[c->call];
        if (!c->answers)
            continue;
        call->answer = pqtx__wire_take(tx->wire, c->reply);
        call->landed = true;
        if (call->result)
            *call->result = call->answer;
        if (call->rows)
            *call->rows = pqtx__call_rows(call);
        read_integers(call);
    }
}

/* Whether the question for the xid is to ride along: behind a statement that takes a snapshot. */
static bool takes_xid(const pqtx_tx *tx, const struct pqtx__statement *statements, size_t count)
{
    if (!pqtx__proof_rides(&tx->proof))
        return false;
    if (count > 0)
        return pqtx__statement_reads(statements[count - 1].sql);
    return tx->batch.count > 0 && !tx->needs_block;
}

pqtx_status pqtx__fly(pqtx_tx *tx, const struct pqtx__statement *statements, size_t count,
                      PGresult **results)
{
    for (size_t i = 0; i < count; i++)
        results[i] = NULL;
    struct pqtx__wire *wire = tx->wire;
    int64_t sent_us = pqtx__now(tx->clock);
    if (sent_us >= tx->give_up_us)
        return pqtx__fly_late(tx, "before the statement");
    size_t lead;
    bool with_xid = takes_xid(tx, statements, count), cancelled = false;
    if (!with_xid && (count > 0 || tx->batch.count > 0))
        tx->proof.xid_heard = false; /* that was before these */
    pqtx__attempt_fault(tx, PQTX_POINT_STATEMENT);
    bool sent = send_flight(tx, statements, count, with_xid, &lead);
    pqtx__attempt_fault(tx, PQTX_POINT_STATEMENT_SENT);
    enum pqtx__flight flight =
        sent ? pqtx__fly_land(tx, statements, count, &cancelled) : PQTX__LOST;
    if (cancelled && flight != PQTX__LANDED)
        wire->lost = true;
    pqtx_status status = cancelled ? pqtx__fly_late(tx, "while a statement was running")
                                   : judge(tx, flight, lead, sent_us);
    for (size_t i = 0; status == PQTX_OK && i < count; i++)
        results[i] = pqtx__wire_take(wire, lead + i);
    if (status == PQTX_OK && with_xid)
        pqtx__proof_heed_xid(&tx->proof, wire->replies[lead + count].result);
    if (status == PQTX_OK)
        pqtx__fly_deliver(tx);
    pqtx__wire_clear(wire);
    pqtx__batch_clear(&tx->batch, &tx->wire->store);
    return status;
}
