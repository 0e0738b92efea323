/* takeover.c: one try to become the leader, in one flight.
 *
 * The lock is waited for as one of the transaction, and is made one of the session by the statement
 * that writes the epoch.  The call that waits for a session's lock can fail by lock_timeout and
 * hold the lock all the same; and an epoch must not be had without the lock, nor the other way. */
#include "takeover.h"
#include "clock.h"
#include "error.h"

#include <stdio.h>

#define KEY "$2::pg_catalog.int8"

/* Asks for the lock, which those who have waited hold already; writes the epoch over the newest
 * row, for which it waits; and where that is done takes the lock beyond the transaction. */
static const char take_sql[] =
    "INSERT INTO \"%s\"." PQTX__LEADER_TABLE " AS l (name, epoch, since, application, pid)"
    " SELECT $1::pg_catalog.text, (pg_catalog.date_part('epoch', pg_catalog.clock_timestamp())"
    " OPERATOR(pg_catalog.*) 1000000)::pg_catalog.int8, pg_catalog.clock_timestamp(),"
    " pg_catalog.current_setting('application_name'), pg_catalog.pg_backend_pid()"
    " WHERE pg_catalog.pg_try_advisory_xact_lock(" KEY ")"
    " ON CONFLICT (name) DO UPDATE SET"
    " epoch = GREATEST(excluded.epoch, l.epoch OPERATOR(pg_catalog.+) 1),"
    " since = excluded.since, application = excluded.application, pid = excluded.pid"
    " RETURNING l.epoch, pg_catalog.pg_try_advisory_lock(" KEY ")";

static const char wait_sql[] = "SELECT pg_catalog.pg_advisory_xact_lock($1::pg_catalog.int8)";

static const char timeout_sql[] =
    "SELECT pg_catalog.set_config('lock_timeout', $1::pg_catalog.text, true)";

static bool send(struct pqtx__wire *wire, const char *sql, int count, const pqtx_value *values)
{
    struct pqtx__params params;
    const char *why;
    if (pqtx__params_encode(&params, count, values, &why) != PQTX_OK)
        return false;
    bool sent = pqtx__wire_send(wire, sql, &params);
    pqtx__params_free(&params);
    return sent;
}

/* One transaction: what comes before one Sync is, without BEGIN and COMMIT. */
static bool send_all(struct pqtx__wire *wire, const struct pqtx__takeover *t)
{
    char sql[sizeof take_sql + 64];
    int64_t lock_ms = t->lock_us >= 1000 ? t->lock_us / 1000 : 1; /* 0 would be no limit */
    snprintf(sql, sizeof sql, take_sql, t->schema);
    return send(wire, timeout_sql, PQTX_ARGS(PQTX_INT(lock_ms))) &&
           (!t->waits || send(wire, wait_sql, PQTX_ARGS(PQTX_INT(t->key)))) &&
           send(wire, sql, PQTX_ARGS(PQTX_TEXT(t->name), PQTX_INT(t->key))) &&
           pqtx__wire_sync(wire);
}

/* The result of the statement that takes over, or the first error; NULL: the connection is lost. */
static PGresult *fly(struct pqtx__wire *wire, const struct pqtx__takeover *t)
{
    int64_t until_us = pqtx__now(wire->clock) + t->lock_us + t->answer_us;
    if (!send_all(wire, t) || pqtx__wire_land(wire, until_us) != PQTX__LANDED)
        wire->lost = true;
    size_t error = pqtx__wire_error(wire, 0, wire->count);
    PGresult *result = NULL;
    if (error < wire->count)
        result = pqtx__wire_take(wire, error);
    else if (!wire->lost)
        result = pqtx__wire_take(wire, wire->count - 2); /* before the Sync */
    pqtx__wire_clear(wire);
    return result;
}

/* A deadlock is busy too: with the holder's CREATE INDEX CONCURRENTLY, which waits for our
 * snapshot. An error says that nothing was committed, and not that nothing is held: one that came
 * late, as at COMMIT, has left the session its lock. */
static void heed_error(struct pqtx__wire *wire, const struct pqtx__takeover *t,
                       const PGresult *result, pqtx_error *error)
{
    pqtx__error_from_result(error, result, PQTX_PHASE_BODY);
    if (error->status == PQTX_BUSY &&
        !pqtx__wire_confirms(wire, "SELECT pg_catalog.pg_advisory_unlock_all() IS NOT NULL", 0,
                             NULL, pqtx__now(wire->clock) + t->answer_us))
        wire->lost = true;
}

pqtx_status pqtx__takeover(struct pqtx__wire *wire, const struct pqtx__takeover *takeover,
                           int64_t *epoch, pqtx_error *error)
{
    int held = 0;
    PGresult *result = fly(wire, takeover);
    *epoch = 0;
    if (result && PQresultStatus(result) != PGRES_TUPLES_OK)
        heed_error(wire, takeover, result, error);
    else if (result && PQntuples(result) == 0)
        pqtx__error_set(error, PQTX_BUSY, PQTX_PHASE_BODY, PQTX_ORIGIN_LIBRARY,
                        "another session leads");
    else if (!result || pqtx_get_int(result, 0, 0, epoch) != PQTX_OK ||
             pqtx_get_bool(result, 0, 1, &held) != PQTX_OK || !held)
        pqtx__error_set(error, PQTX_NO_CONNECTION, PQTX_PHASE_BODY, PQTX_ORIGIN_LIBPQ,
                        "the connection to the server was lost");
    PQclear(result);
    return error->status;
}
