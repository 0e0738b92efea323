/* commit.c: COMMIT, and what its answer proves.
 *
 * From before the first byte of COMMIT is offered to libpq, everything that is no proof is doubt.
 */
#include "commit.h"
#include "clock.h"
#include "fly.h"
#include "lead.h"

#include <string.h>

static pqtx_status doubt(pqtx_tx *tx, const PGresult *error)
{
    if (error)
        pqtx__error_from_result(&tx->error, error, PQTX_PHASE_COMMIT);
    else
        pqtx__error_set(&tx->error, PQTX_IN_DOUBT, PQTX_PHASE_COMMIT, PQTX_ORIGIN_LIBPQ,
                        "no answer to COMMIT came");
    tx->wire->lost = true;
    tx->error.status = PQTX_IN_DOUBT;
    tx->error.advice = PQTX_ADVICE_RESOLVE;
    pqtx__note_error(tx);
    return tx->mark = PQTX_IN_DOUBT;
}

/* An error is proof that nothing was committed only if it is the server's own, about this
 * transaction, and the session went on after it. */
static bool proves_rollback(const pqtx_error *error)
{
    return error->origin == PQTX_ORIGIN_SERVER && error->status != PQTX_IN_DOUBT &&
           strcmp(error->severity, "ERROR") == 0;
}

static bool has_landed(const pqtx_tx *tx, const struct pqtx__flight_plan *plan)
{
    return plan->sent && tx->wire->landed >= plan->end;
}

/* The state of ReadyForQuery, which is known of the last flight: the implicit form leaves nothing
 * open. */
static bool is_open(const pqtx_tx *tx, const struct pqtx__flight_plan *plan)
{
    return plan->end == tx->wire->count && PQtransactionStatus(tx->wire->conn) != PQTRANS_IDLE;
}

/* It was ourselves who cancelled it. */
static void heed_deadline(pqtx_tx *tx, const struct pqtx__flight_plan *plan)
{
    if (!plan->cancelled || tx->error.status != PQTX_CANCELLED)
        return;
    tx->error.status = PQTX_TIMEOUT;
    tx->error.flags |= PQTX_ERROR_DEADLINE;
}

/* A statement of the body has failed, in the same flight.  The server answers in order: where it
 * was PostgreSQL that said so, COMMIT was still to come, whatever became of the line since. */
static pqtx_status judge_body(pqtx_tx *tx, const struct pqtx__flight_plan *plan, size_t error,
                              const char *tag)
{
    const PGresult *result = tx->wire->replies[error].result;
    pqtx_error said = PQTX_ERROR;
    pqtx__error_from_result(&said, result, PQTX_PHASE_BODY);
    bool rolled_back = has_landed(tx, plan) && strcmp(tag, "ROLLBACK") == 0;
    if (said.origin != PQTX_ORIGIN_SERVER && !rolled_back)
        return doubt(tx, result);
    pqtx__fly_heed(tx, error, PQTX_PHASE_BODY, plan->sent_us);
    pqtx__proof_explain(&tx->proof, &tx->error);
    heed_deadline(tx, plan);
    if (tx->error.status == PQTX_IN_DOUBT) /* 40003, 08007: not before COMMIT */
        tx->error.status = PQTX_SERVER_ERROR;
    return tx->mark = tx->error.status;
}

/* The tag of COMMIT is the proof: the server sends it after the commit record is safe, and answers
 * ROLLBACK, without an error, to the COMMIT of a transaction that had failed.  But it answers
 * COMMIT as well where there is no transaction, since BEGIN has failed in the same flight: so the
 * body's error comes first.  In the implicit form it is the Sync, answered without any error before
 * it. */
static pqtx_status judge_commit(pqtx_tx *tx, const struct pqtx__flight_plan *plan)
{
    struct pqtx__wire *wire = tx->wire;
    size_t at = pqtx__wire_error(wire, plan->begin, plan->end);
    const PGresult *error = at < plan->end ? wire->replies[at].result : NULL;
    PGresult *answer = plan->commit < plan->end ? wire->replies[plan->commit].result : NULL;
    const char *tag = PQresultStatus(answer) == PGRES_COMMAND_OK ? PQcmdStatus(answer) : "";
    bool landed = has_landed(tx, plan);
    if (at < plan->body_end)
        return judge_body(tx, plan, at, tag);
    if (strcmp(tag, "COMMIT") == 0 || (tx->implicit && landed && !error && !is_open(tx, plan)))
        return PQTX_OK;
    if (!landed) /* the session can be ended in the wait after the commit record */
        return tx->local_only ? PQTX_OK : doubt(tx, error);
    if (tx->local_only) /* and still it answers something else: who is to be believed? */
        return doubt(tx, error);
    bool rolled_back = strcmp(tag, "ROLLBACK") == 0;
    if (rolled_back && !error) {
        pqtx__fail(tx, PQTX_SWALLOWED,
                   "COMMIT was answered with ROLLBACK: a statement had failed unseen");
        tx->error.phase = PQTX_PHASE_COMMIT;
        return tx->mark;
    }
    if (!error)
        return doubt(tx, NULL);
    pqtx__fly_heed(tx, at, PQTX_PHASE_COMMIT, plan->sent_us);
    pqtx__proof_explain(&tx->proof, &tx->error);
    heed_deadline(tx, plan);
    if (!rolled_back && !proves_rollback(&tx->error))
        return doubt(tx, error);
    return tx->mark = tx->error.status;
}

/* What the server has said on its own since the last flight, most often FATAL, is heard before
 * COMMIT begins: then it is sure that nothing was committed. */
static pqtx_status hear_out(pqtx_tx *tx)
{
    pqtx__attempt_fault(tx, PQTX_POINT_COMMIT);
    if (tx->batch.count > 0 || !pqtx__wire_has_input(tx->wire))
        return PQTX_OK;
    return pqtx__fly(tx, NULL, 0, NULL);
}

static bool is_thrown_away(const pqtx_tx *tx)
{
    return tx->options.fault && tx->options.fault(PQTX_POINT_COMMIT_ANSWERED, tx->attempts,
                                                  tx->options.fault_arg) == PQTX_FAULT_CUT;
}

/* What waits, then COMMIT behind a Sync of its own, so that it answers also where the body has
 * failed, and leaves the session outside a transaction. */
static bool send_explicit(pqtx_tx *tx, struct pqtx__flight_plan *plan)
{
    struct pqtx__wire *wire = tx->wire;
    bool whole = tx->batch.count > 0;
    if (!pqtx__lead(tx) || (whole && !pqtx__lead_client_check(tx)) || !pqtx__fly_batch(tx, true) ||
        !pqtx__lead_lock_timeout(tx, tx->lock_timeout.wanted_ms) || /* deferred checks wait too */
        !pqtx__proof_send_token(&tx->proof, wire))
        return false;
    plan->body_end = whole ? wire->count : 0;
    if (whole && !pqtx__wire_sync(wire))
        return false;
    plan->commit = wire->count;
    return pqtx__wire_send(wire, "COMMIT", NULL) && pqtx__wire_sync(wire);
}

static bool send_implicit(pqtx_tx *tx, struct pqtx__flight_plan *plan)
{
    struct pqtx__wire *wire = tx->wire;
    if (!pqtx__lead_implicit(tx, plan->sent_us) || !pqtx__fly_batch(tx, true) ||
        !pqtx__proof_send_token(&tx->proof, wire))
        return false;
    plan->body_end = wire->count;
    bool sent = pqtx__wire_sync(wire);
    plan->commit = wire->count - 1;
    return sent;
}

/* From the first byte on, what is no proof is doubt. */
void pqtx__commit_send(pqtx_tx *tx, int64_t now_us, struct pqtx__flight_plan *plan)
{
    struct pqtx__wire *wire = tx->wire;
    *plan = (struct pqtx__flight_plan){.begin = wire->count, .commit = SIZE_MAX, .sent_us = now_us};
    tx->local_only = false;
    if (tx->batch.count > 0)
        tx->proof.xid_heard = false; /* that was before these */
    tx->implicit = tx->batch.count > 0 && pqtx__lead_may_be_implicit(tx);
    pqtx__attempt_fault(tx, PQTX_POINT_COMMIT_BEGUN);
    plan->sent = tx->implicit ? send_implicit(tx, plan) : send_explicit(tx, plan);
    plan->end = wire->count;
    pqtx__attempt_fault(tx, PQTX_POINT_COMMIT_SENT);
}

pqtx_status pqtx__commit_judge(pqtx_tx *tx, const struct pqtx__flight_plan *plan)
{
    pqtx_status status = is_thrown_away(tx) ? doubt(tx, NULL) : judge_commit(tx, plan);
    if (!has_landed(tx, plan))
        tx->wire->lost = true;
    if (status == PQTX_OK)
        pqtx__fly_deliver(tx);
    pqtx__batch_clear(&tx->batch, &tx->wire->store);
    return status;
}

pqtx_status pqtx__commit(pqtx_tx *tx)
{
    struct pqtx__flight_plan plan;
    bool whole = tx->batch.count > 0;
    if (!tx->begun && !whole)
        return tx->mark; /* nothing was asked of the server */
    if (hear_out(tx) != PQTX_OK)
        return tx->mark;
    int64_t now_us = pqtx__now(tx->clock);
    if (now_us >= (whole ? tx->give_up_us : tx->deadline_us))
        return pqtx__fly_late(tx, "before COMMIT");
    pqtx__commit_send(tx, now_us, &plan);
    if (plan.sent && whole)
        pqtx__fly_land(tx, NULL, 0, &plan.cancelled);
    else if (plan.sent)
        pqtx__wire_land(tx->wire, tx->deadline_us);
    struct pqtx__wire *wire = tx->wire;
    pqtx_status status = pqtx__commit_judge(tx, &plan);
    pqtx__wire_clear(wire);
    return status;
}
