/* loop.c: the loop that begins the whole transaction again until it is decided.
 *
 * Between attempts nothing is held: the last one has been rolled back and its connection is in the
 * pool again before the runner sleeps. */
#include "backend.h"
#include "backoff.h"
#include "claim.h"
#include "clock.h"
#include "commit.h"
#include "doubt.h"
#include "loop.h"
#include "report.h"
#include "retry.h"
#include "tx.h"

#include <pqtx/run.h>

/* A server that cannot take a connection needs longer than one that lost a race. */
#define CONNECT_FIRST_US 50000
#define CONNECT_MAX_US   2000000

#define RESERVE_MAX_US 1000000

void pqtx__decide(pqtx_tx *tx, pqtx_status result, pqtx_outcome outcome)
{
    if (tx->doubtful && outcome == PQTX_OUTCOME_ROLLED_BACK) {
        tx->error.status = result = PQTX_IN_DOUBT;
        tx->error.advice = PQTX_ADVICE_RESOLVE;
        outcome = PQTX_OUTCOME_IN_DOUBT;
    }
    if (outcome == PQTX_OUTCOME_IN_DOUBT)
        tx->flags &= ~PQTX_RESOLVED; /* that was an earlier attempt */
    tx->state = PQTX__DECIDED;
    tx->result = result;
    tx->outcome = outcome;
    if (outcome == PQTX_OUTCOME_IN_DOUBT && tx->options.ticket)
        *tx->options.ticket = tx->ticket;
    pqtx__report_end(tx);
}

void pqtx__loop_start(pqtx_tx *tx)
{
    if (tx->deadline_us != 0)
        return;
    int64_t whole_us = tx->options.deadline_ms * 1000;
    int64_t reserve_us = whole_us / 10 < RESERVE_MAX_US ? whole_us / 10 : RESERVE_MAX_US;
    tx->started_us = pqtx__now(tx->clock);
    tx->deadline_us = tx->started_us + whole_us;
    tx->give_up_us = tx->deadline_us - reserve_us;
    pqtx__report_start(tx);
}

/* Sleeps before the next try; false, and nothing is slept, if the deadline would pass meanwhile. */
static bool wait_for_next(pqtx_tx *tx, int64_t first_us, int64_t max_us, uint32_t n)
{
    uint64_t random = tx->clock->random(tx->clock->arg);
    int64_t wait_us = pqtx__backoff_us(first_us, max_us, n, random);
    int64_t until_us = pqtx__now(tx->clock) + wait_us;
    if (until_us >= tx->give_up_us) {
        tx->error.flags |= PQTX_ERROR_DEADLINE;
        return false;
    }
    pqtx__report_wait(tx, wait_us);
    pqtx__sleep(tx->clock, until_us);
    return true;
}

static pqtx_status borrow(pqtx_tx *tx, struct pqtx__wire **wire)
{
    *wire = &tx->lent;
    if (pqtx__wire_attach(&tx->lent, tx->own, tx->clock))
        return PQTX_OK;
    bool dead = PQstatus(tx->own) != CONNECTION_OK;
    pqtx__error_set(&tx->error, dead ? PQTX_NO_CONNECTION : PQTX_MISUSE, PQTX_PHASE_CONNECT,
                    PQTX_ORIGIN_LIBRARY, "%s",
                    dead ? "the caller's connection is not connected"
                         : "the caller's connection is in a transaction, a pipeline, or busy");
    return tx->error.status;
}

static pqtx_status acquire(pqtx_tx *tx, struct pqtx__wire **wire)
{
    if (!tx->pool)
        return borrow(tx, wire);
    *wire = tx->given;
    if (tx->given)
        return PQTX_OK;
    return pqtx__pool_acquire(tx->pool, pqtx__left(tx->clock, tx->give_up_us), wire, &tx->error);
}

/* Worth another try: nothing ran, and the server may take a connection later. */
static bool may_connect_later(const pqtx_tx *tx)
{
    return tx->pool && (tx->options.retry_mask & PQTX_RETRY_CONNECTION) &&
           (tx->error.advice == PQTX_ADVICE_LATER || tx->error.advice == PQTX_ADVICE_RECONNECT);
}

/* The backend of a lost attempt may still hold its locks, or be about to commit a statement that it
 * has already got: it goes first. */
static void end_orphan(pqtx_tx *tx, struct pqtx__wire *wire)
{
    if (tx->orphan.backend.pid == 0)
        return;
    tx->orphan.ended |= pqtx__backend_end(wire, &tx->orphan.backend, tx->give_up_us);
    tx->orphan.backend.pid = 0;
}

static pqtx_status enter_gate(pqtx_tx *tx)
{
    const pqtx_options *o = &tx->options;
    if (!o->gate || pqtx__gate_enter(o->gate, o->gate_key, tx->clock, tx->give_up_us)) {
        tx->gated = o->gate != NULL;
        return PQTX_OK;
    }
    pqtx__error_set(&tx->error, PQTX_TIMEOUT, PQTX_PHASE_CONNECT, PQTX_ORIGIN_LIBRARY,
                    "the gate was not free before the deadline");
    tx->error.flags |= PQTX_ERROR_DEADLINE;
    return PQTX_TIMEOUT;
}

/* The gate comes first, so that who waits there keeps no connection from anyone. */
static pqtx_status prepare_to_begin(pqtx_tx *tx, struct pqtx__wire **wire)
{
    pqtx_status status = enter_gate(tx);
    if (status == PQTX_OK)
        status = acquire(tx, wire);
    if (status != PQTX_OK)
        pqtx__attempt_leave_gate(tx);
    return status;
}

/* Gets a connection and begins an attempt on it; false if the run ends for want of one. */
static bool begin(pqtx_tx *tx)
{
    for (uint32_t n = 1;; n++) {
        struct pqtx__wire *wire = NULL;
        pqtx_status status = prepare_to_begin(tx, &wire);
        if (status == PQTX_OK) {
            tx->claim_rides &= tx->attempts++ == 0;
            pqtx__attempt_begin(tx, wire);
            end_orphan(tx, wire);
            pqtx__report_attempt(tx);
            return true;
        }
        pqtx__note_error(tx);
        pqtx__report_failure(tx, status);
        if (!may_connect_later(tx) || !wait_for_next(tx, CONNECT_FIRST_US, CONNECT_MAX_US, n)) {
            pqtx__decide(tx, status, PQTX_OUTCOME_ROLLED_BACK);
            return false;
        }
    }
}

/* Whether the limits allow one more attempt; otherwise which of them forbids it is noted. */
static bool may_go_again(pqtx_tx *tx)
{
    if (tx->attempts >= (uint32_t)tx->options.max_attempts) {
        tx->error.flags |= PQTX_ERROR_ATTEMPTS;
        return false;
    }
    if (tx->pool && !pqtx__pool_spend(tx->pool)) {
        tx->error.flags |= PQTX_ERROR_BUDGET;
        return false;
    }
    return wait_for_next(tx, tx->options.wait_first_ms * 1000, tx->options.wait_max_ms * 1000,
                         tx->attempts);
}

/* Rolled back and not decided: waits for the next attempt, or ends the run with the mark. */
static bool go_again(pqtx_tx *tx)
{
    if (tx->claim_rides && tx->mark == PQTX_DONE_BEFORE)
        return true; /* to look at the event's row, which costs nobody a race */
    if (pqtx__retry_is_due(tx) && may_go_again(tx)) {
        tx->was_stale |= tx->mark == PQTX_STALE_STATEMENT;
        pqtx__report_retry(tx, pqtx__retry_counter(tx->mark));
        return true;
    }
    pqtx__decide(tx, tx->mark, PQTX_OUTCOME_ROLLED_BACK);
    return false;
}

/* Ends a failed attempt; whether another one follows is still open. */
static void roll_back(pqtx_tx *tx)
{
    pqtx__retry_leave_standby(tx);
    pqtx__attempt_rollback(tx);
    pqtx__report_failure(tx, tx->mark);
}

/* Takes the snapshot now, not with the body's first statement. */
static pqtx_status pin_snapshot(pqtx_tx *tx)
{
    if (!(tx->options.flags & PQTX_PIN_SNAPSHOT))
        return PQTX_OK;
    PGresult *result;
    pqtx_status status = pqtx__tx_exec(tx, "SELECT 1", 0, NULL, &result);
    PQclear(result);
    return status;
}

/* The event's row is another run's, or is written anew: an earlier attempt that was in doubt has
 * not committed. */
static void dispel_doubt(pqtx_tx *tx)
{
    if (!tx->doubtful)
        return;
    tx->doubtful = false;
    pqtx__report_resolved(tx);
    pqtx__actions_rollback(&tx->actions, 0);
}

/* The event was applied before: the attempt ends without its body.  Where an earlier attempt of
 * this run did it, whose COMMIT was not answered, the run has succeeded. */
static void end_done(pqtx_tx *tx, bool own)
{
    if (!own)
        dispel_doubt(tx);
    bool was_doubtful = tx->doubtful;
    pqtx__attempt_rollback(tx);
    tx->doubtful = false;
    if (was_doubtful)
        pqtx__report_resolved(tx);
    if (own && tx->orphan.ended)
        tx->flags |= PQTX_LOCAL_ONLY;
    pqtx__decide(tx, own ? PQTX_OK : PQTX_DONE_BEFORE, PQTX_OUTCOME_COMMITTED);
    if (own)
        pqtx__actions_commit(&tx->actions);
}

/* What comes before the body: the snapshot, if it is to be pinned, and the event's row. */
static pqtx_status prepare(pqtx_tx *tx)
{
    bool own;
    pqtx_status status = pin_snapshot(tx);
    if (status == PQTX_OK)
        status = pqtx__claim(tx, &own);
    if (status == PQTX_DONE_BEFORE)
        end_done(tx, own);
    else if (status == PQTX_OK || status == PQTX_KEY_MISMATCH)
        dispel_doubt(tx);
    return status;
}

static int attempt(pqtx_tx *tx)
{
    if (tx->state == PQTX__OPEN && tx->mark == PQTX_OK) {
        pqtx__fail(tx, PQTX_MISUSE, "the attempt was left without pqtx_commit() or a failed call");
        tx->final = true;
    }
    for (;;) {
        if (tx->state == PQTX__OPEN)
            roll_back(tx);
        if (tx->state == PQTX__IDLE)
            pqtx__loop_start(tx);
        else if (tx->state == PQTX__DECIDED || !go_again(tx))
            return 0;
        pqtx__tx_forget_results(tx);
        if (!begin(tx))
            return 0;
        if (prepare(tx) == PQTX_OK)
            return 1;
    }
}

/* The calls that drive a run are not for its body. */
static pqtx_status enter_driver(pqtx_tx *tx)
{
    if (!tx || atomic_exchange(&tx->busy, 1))
        return PQTX_MISUSE;
    if (tx->depth == 0 && pqtx__born_here(tx->birth))
        return PQTX_OK;
    if (tx->depth > 0)
        pqtx__fail(tx, PQTX_MISUSE,
                   "pqtx_attempt() and pqtx_commit() are not for the inside of a "
                   "pqtx_run() body or a savepoint");
    pqtx__tx_leave(tx);
    return PQTX_MISUSE;
}

int pqtx_attempt(pqtx_tx *tx)
{
    if (enter_driver(tx) != PQTX_OK)
        return 0;
    int again = attempt(tx);
    pqtx__tx_leave(tx);
    return again;
}

static pqtx_status committed(pqtx_tx *tx)
{
    if (tx->local_only)
        tx->flags |= PQTX_LOCAL_ONLY;
    pqtx__decide(tx, PQTX_OK, PQTX_OUTCOME_COMMITTED);
    pqtx__actions_commit(&tx->actions);
    return PQTX_OK;
}

/* COMMIT was not answered: it was committed, or rolled back and may be run again, or is in doubt.
 */
static pqtx_status in_doubt(pqtx_tx *tx)
{
    pqtx__attempt_end(tx);
    pqtx__report_failure(tx, PQTX_IN_DOUBT);
    tx->state = PQTX__CLOSED;
    switch (pqtx__doubt_settle(tx)) {
    case PQTX_OUTCOME_COMMITTED:
        return committed(tx);
    case PQTX_OUTCOME_ROLLED_BACK:
        tx->error.status = tx->mark = PQTX_NO_CONNECTION;
        tx->error.advice = PQTX_ADVICE_RECONNECT;
        pqtx__actions_rollback(&tx->actions, 0);
        break;
    default:
        tx->doubtful = true;
        if (!pqtx__retry_is_due(tx))
            pqtx__decide(tx, PQTX_IN_DOUBT, PQTX_OUTCOME_IN_DOUBT);
    }
    return tx->mark;
}

/* By what COMMIT has come to, or the mark, by whatever word the body chose. */
pqtx_status pqtx__loop_end(pqtx_tx *tx, pqtx_status status, bool marked)
{
    if (status == PQTX_IN_DOUBT && !marked)
        return in_doubt(tx);
    if (status != PQTX_OK) {
        roll_back(tx);
        return status;
    }
    pqtx__attempt_end(tx);
    return committed(tx);
}

static pqtx_status commit(pqtx_tx *tx)
{
    bool marked = tx->mark != PQTX_OK;
    return pqtx__loop_end(tx, marked ? tx->mark : pqtx__commit(tx), marked);
}

pqtx_status pqtx_commit(pqtx_tx *tx)
{
    if (enter_driver(tx) != PQTX_OK)
        return PQTX_MISUSE;
    pqtx_status status = tx->state == PQTX__OPEN ? commit(tx) : PQTX_MISUSE;
    pqtx__tx_leave(tx);
    return status;
}
