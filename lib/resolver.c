/* resolver.c: what became of a COMMIT whose answer was lost.
 *
 * It asks over a new connection, since an old one may lead to a server that is the primary no more,
 * and it asks again until the transaction is over or the time is.  Once in doubt, no failure of the
 * asking turns into "rolled back". */
#include "resolver.h"
#include "backend.h"
#include "backoff.h"
#include "clock.h"
#include "connect.h"
#include "error.h"
#include "proof.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WAIT_FIRST_US 20000
#define WAIT_MAX_US   1000000

enum verdict { UNDER_WAY, UNKNOWABLE, COMMITTED, ROLLED_BACK };

static enum verdict unknowable(pqtx_error *error, const char *why)
{
    pqtx__error_set(error, PQTX_IN_DOUBT, PQTX_PHASE_COMMIT, PQTX_ORIGIN_LIBRARY, "%s", why);
    return UNKNOWABLE;
}

/* A failed question: worth another one, or not. */
static enum verdict heed_error(const PGresult *result, pqtx_error *error)
{
    if (!result)
        return UNDER_WAY;
    pqtx__error_from_result(error, result, PQTX_PHASE_COMMIT);
    switch (error->advice) {
    case PQTX_ADVICE_FIX:
    case PQTX_ADVICE_OPERATOR:
        return UNKNOWABLE;
    default:
        return UNDER_WAY;
    }
}

static bool says(const PGresult *row, int column, const char *word)
{
    return strcmp(PQgetvalue(row, 0, column), word) == 0;
}

/* A void token that is not committed itself forbids nothing. */
static enum verdict judge_token(const PGresult *row, PGresult *commit)
{
    if (!pqtx__is_row(row, 1))
        return UNDER_WAY;
    if (says(row, 0, "f"))
        return COMMITTED;
    return says(row, 0, "t") && strcmp(PQcmdStatus(commit), "COMMIT") == 0 ? ROLLED_BACK
                                                                           : UNDER_WAY;
}

/* Voids the token, or finds it there.  The INSERT waits while its transaction is under way; that
 * wait is cut short, so that the orphan can be ended.  One explicit transaction: what the session's
 * defaults are must not matter. */
static enum verdict ask_by_token(struct pqtx__wire *wire, const pqtx_ticket *ticket,
                                 int64_t until_us, pqtx_error *error)
{
    enum { SELECT = 3, COMMIT = 4 };
    const pqtx_value token = pqtx_text(ticket->token);
    bool sent =
        pqtx__wire_send(wire, "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE", NULL) &&
        pqtx__wire_send(wire, "SET LOCAL lock_timeout = 500", NULL) &&
        pqtx__once_send(ticket->schema, wire, "INSERT INTO ",
                        " (id, void) VALUES ($1, true) ON CONFLICT (id) DO NOTHING", 1, &token) &&
        pqtx__once_send(ticket->schema, wire, "SELECT void FROM ",
                        " WHERE id OPERATOR(pg_catalog.=) $1", 1, &token) &&
        pqtx__wire_send(wire, "COMMIT", NULL) && pqtx__wire_sync(wire);
    enum pqtx__flight flight = sent ? pqtx__wire_land(wire, until_us) : PQTX__LOST;
    size_t failed = pqtx__wire_error(wire, 0, wire->count);
    const PGresult *row = SELECT < wire->count ? wire->replies[SELECT].result : NULL;
    enum verdict verdict = UNDER_WAY;
    if (failed < wire->count)
        verdict = heed_error(wire->replies[failed].result, error);
    else if (flight == PQTX__LANDED)
        verdict = judge_token(row, wire->replies[COMMIT].result);
    if (flight != PQTX__LANDED)
        wire->lost = true;
    pqtx__wire_clear(wire);
    if (!wire->lost && PQtransactionStatus(wire->conn) != PQTRANS_IDLE)
        PQclear(pqtx__wire_ask(wire, "ROLLBACK", NULL, until_us)); /* it has failed half-way */
    return verdict;
}

/* The identifiers come first: without them pg_xact_status() may speak of another transaction. */
static const char xid_sql[] =
    "SELECT s.here, CASE WHEN s.here THEN pg_catalog.pg_xact_status($3::pg_catalog.xid8) END,"
    " " PQTX__ERA_SQL " OPERATOR(pg_catalog.=) $4::pg_catalog.int8"
    " FROM (SELECT CASE WHEN pg_catalog.pg_is_in_recovery() THEN false ELSE"
    " (SELECT c.system_identifier OPERATOR(pg_catalog.=) $1::pg_catalog.int8"
    " FROM pg_catalog.pg_control_system() AS c)"
    " AND pg_catalog.\"left\"(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 8)"
    " OPERATOR(pg_catalog.=) $2 END) AS s(here)";

static enum verdict read_status(const PGresult *answer, pqtx_error *error)
{
    if (!pqtx__is_row(answer, 3))
        return UNDER_WAY;
    if (!says(answer, 0, "t"))
        return unknowable(error, "the server is a standby, or on another timeline since: an xid of "
                                 "before proves nothing there");
    if (PQgetisnull(answer, 0, 1))
        return unknowable(error, "the transaction is too old: its status is gone");
    if (says(answer, 1, "committed") && !says(answer, 2, "t"))
        return unknowable(error,
                          "the server may have crashed since, and have given the xid, if it had "
                          "not reached the disk, to another transaction");
    if (says(answer, 1, "committed"))
        return COMMITTED;
    return says(answer, 1, "aborted") ? ROLLED_BACK : UNDER_WAY;
}

static enum verdict ask_by_xid(struct pqtx__wire *wire, const pqtx_ticket *ticket, int64_t until_us,
                               pqtx_error *error)
{
    char system_identifier[24], timeline[12], xid[24];
    snprintf(system_identifier, sizeof system_identifier, "%lld",
             (long long)ticket->system_identifier);
    snprintf(timeline, sizeof timeline, "%08X", (unsigned)ticket->timeline);
    snprintf(xid, sizeof xid, "%llu", (unsigned long long)ticket->xid);
    const pqtx_value values[] = {pqtx_text(system_identifier), pqtx_text(timeline), pqtx_text(xid),
                                 pqtx_int(ticket->era)};
    struct pqtx__params params;
    const char *why;
    if (pqtx__params_encode(&params, 4, values, &why) != PQTX_OK)
        return UNDER_WAY;
    PGresult *answer = pqtx__wire_ask(wire, xid_sql, &params, until_us);
    pqtx__params_free(&params);
    enum verdict verdict = PQresultStatus(answer) == PGRES_TUPLES_OK ? read_status(answer, error)
                                                                     : heed_error(answer, error);
    PQclear(answer);
    return verdict;
}

static struct pqtx__wire *reach(const struct pqtx__source *source, int64_t until_us,
                                pqtx_error *error)
{
    struct pqtx__wire *wire = NULL;
    if (source->pool)
        pqtx__pool_acquire_new(source->pool, pqtx__left(source->clock, until_us), &wire, error);
    else
        pqtx__connect_like(source->like, source->clock, until_us, &wire, error);
    if (wire)
        wire->clock = source->clock;
    return wire;
}

static void leave(const struct pqtx__source *source, struct pqtx__wire *wire)
{
    if (source->pool)
        pqtx__pool_release(source->pool, wire);
    else
        pqtx__wire_close(wire, false);
}

static enum verdict ask(const struct pqtx__source *source, const pqtx_ticket *ticket,
                        struct pqtx__orphan *orphan, int64_t until_us, pqtx_error *error)
{
    struct pqtx__wire *wire = reach(source, until_us, error);
    if (!wire)
        return UNDER_WAY;
    enum verdict verdict = ticket->by == PQTX_DOUBT_TOKEN
                               ? ask_by_token(wire, ticket, until_us, error)
                               : ask_by_xid(wire, ticket, until_us, error);
    if (verdict == UNDER_WAY && orphan->backend.pid != 0 && !wire->lost)
        orphan->ended |= pqtx__backend_end(wire, &orphan->backend, until_us);
    leave(source, wire);
    return verdict;
}

pqtx_outcome pqtx__resolve(const struct pqtx__source *source, const pqtx_ticket *ticket,
                           struct pqtx__orphan *orphan, int64_t until_us, pqtx_error *error)
{
    const pqtx_clock *clock = source->clock;
    pqtx__error_set(error, PQTX_IN_DOUBT, PQTX_PHASE_COMMIT, PQTX_ORIGIN_LIBRARY,
                    "the transaction was still under way when the time was up");
    enum verdict verdict = UNDER_WAY;
    for (uint32_t n = 1; verdict == UNDER_WAY && pqtx__left(clock, until_us) > 0; n++) {
        verdict = ask(source, ticket, orphan, until_us, error);
        if (verdict == UNDER_WAY) {
            uint64_t random = clock->random(clock->arg);
            int64_t wait_us = pqtx__backoff_us(WAIT_FIRST_US, WAIT_MAX_US, n, random);
            int64_t wake_us = pqtx__now(clock) + wait_us;
            pqtx__sleep(clock, wake_us < until_us ? wake_us : until_us);
        }
    }
    if (verdict == COMMITTED)
        return PQTX_OUTCOME_COMMITTED;
    return verdict == ROLLED_BACK ? PQTX_OUTCOME_ROLLED_BACK : PQTX_OUTCOME_IN_DOUBT;
}
