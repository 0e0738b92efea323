/* commit.c: COMMIT, and what its answer proves.
 *
 * From before the first byte of COMMIT is offered to libpq, everything that is no proof is doubt.
 */
#include "commit.h"
#include "clock.h"

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

/* The tag of COMMIT is the proof: the server sends it after the commit record is safe, and answers
 * ROLLBACK, without an error, to the COMMIT of a transaction that had failed. */
static pqtx_status judge_commit(pqtx_tx *tx, enum pqtx__flight flight, size_t commit,
                                int64_t sent_us)
{
    struct pqtx__wire *wire = tx->wire;
    size_t at = pqtx__wire_error(wire);
    const PGresult *error = at < wire->count ? wire->replies[at].result : NULL;
    PGresult *answer = commit < wire->count ? wire->replies[commit].result : NULL;
    const char *tag = PQresultStatus(answer) == PGRES_COMMAND_OK ? PQcmdStatus(answer) : "";
    if (strcmp(tag, "COMMIT") == 0)
        return PQTX_OK;
    if (flight != PQTX__LANDED) /* the session can be ended in the wait after the commit record */
        return tx->local_only ? PQTX_OK : doubt(tx, error);
    if (tx->local_only) /* and still it answers something else: who is to be believed? */
        return doubt(tx, error);
    if (strcmp(tag, "ROLLBACK") == 0) {
        pqtx__fail(tx, PQTX_SWALLOWED,
                   "COMMIT was answered with ROLLBACK: a statement had failed unseen");
        tx->error.phase = PQTX_PHASE_COMMIT;
        return tx->mark;
    }
    if (!error)
        return doubt(tx, NULL);
    pqtx__attempt_heed(tx, error, PQTX_PHASE_COMMIT, sent_us);
    pqtx__proof_explain(&tx->proof, &tx->error);
    if (!proves_rollback(&tx->error))
        return doubt(tx, error);
    return tx->mark = tx->error.status;
}

/* What the server has said on its own since the last flight, most often FATAL, is heard before
 * COMMIT begins: then it is sure that nothing was committed. */
static pqtx_status hear_out(pqtx_tx *tx)
{
    pqtx__attempt_fault(tx, PQTX_POINT_COMMIT);
    if (!pqtx__wire_has_input(tx->wire))
        return PQTX_OK;
    return pqtx__attempt_fly(tx, NULL, 0, NULL);
}

static bool is_thrown_away(const pqtx_tx *tx)
{
    return tx->options.fault && tx->options.fault(PQTX_POINT_COMMIT_ANSWERED, tx->attempts,
                                                  tx->options.fault_arg) == PQTX_FAULT_CUT;
}

pqtx_status pqtx__commit(pqtx_tx *tx)
{
    struct pqtx__wire *wire = tx->wire;
    if (!tx->begun || hear_out(tx) != PQTX_OK)
        return tx->mark; /* nothing was asked of the server, or all is over already */
    if (pqtx__now(tx->clock) >= tx->deadline_us) {
        pqtx__fail(tx, PQTX_TIMEOUT, "the deadline of %lld ms came before COMMIT",
                   (long long)tx->options.deadline_ms);
        tx->error.flags |= PQTX_ERROR_DEADLINE;
        return tx->mark;
    }
    int64_t sent_us = pqtx__now(tx->clock);
    tx->local_only = false;
    pqtx__attempt_fault(tx, PQTX_POINT_COMMIT_BEGUN);
    bool sent = pqtx__attempt_lead(tx) && pqtx__proof_send_token(&tx->proof, wire);
    size_t commit = wire->count;
    sent = sent && pqtx__wire_send(wire, "COMMIT", NULL) && pqtx__wire_sync(wire);
    pqtx__attempt_fault(tx, PQTX_POINT_COMMIT_SENT);
    enum pqtx__flight flight = sent ? pqtx__wire_land(wire, tx->deadline_us) : PQTX__LOST;
    if (is_thrown_away(tx)) {
        pqtx__wire_clear(wire);
        return doubt(tx, NULL);
    }
    pqtx_status status = judge_commit(tx, flight, commit, sent_us);
    if (flight != PQTX__LANDED)
        wire->lost = true;
    pqtx__wire_clear(wire);
    return status;
}
