/* session.c: a session of one's own beside the pool, for what has to outlive a transaction. */
#include "session.h"
#include "clock.h"
#include "connect.h"
#include "error.h"

#include <string.h>

/* The server ends an idle session in the middle with a FATAL, which comes before it lets go of the
 * session's locks; the close of the socket comes after that. */
static void heed(void *arg, const PGresult *notice)
{
    struct pqtx__wire *wire = arg;
    const char *severity = PQresultErrorField(notice, PG_DIAG_SEVERITY_NONLOCALIZED);
    if (severity && (strcmp(severity, "FATAL") == 0 || strcmp(severity, "PANIC") == 0))
        wire->lost = true;
}

/* Limits of the role or database must not end it; what it commits must survive a crash; and the
 * server must find out by itself that the client's machine has gone, in 25 seconds.  Not every
 * version has all of these. */
static const char settings_sql[] =
    "SELECT pg_catalog.set_config(s.name, v.value, false) FROM (VALUES"
    " ('default_transaction_isolation', 'read committed'),"
    " ('default_transaction_read_only', 'off'),"
    " ('synchronous_commit', 'on'),"
    " ('statement_timeout', '0'), ('transaction_timeout', '0'), ('idle_session_timeout', '0'),"
    " ('tcp_keepalives_idle', '10'), ('tcp_keepalives_interval', '5'),"
    " ('tcp_keepalives_count', '3')) AS v (name, value)"
    " INNER JOIN pg_catalog.pg_settings AS s ON s.name OPERATOR(pg_catalog.=) v.name"
    " WHERE v.name OPERATOR(pg_catalog.<>) 'synchronous_commit'"
    " OR s.setting OPERATOR(pg_catalog.=) 'off'";

static bool set_up(struct pqtx__wire *wire, int64_t until_us)
{
    PGresult *answer = pqtx__wire_ask(wire, settings_sql, NULL, until_us);
    bool done = PQresultStatus(answer) == PGRES_TUPLES_OK;
    PQclear(answer);
    return done;
}

static pqtx_status refuse(pqtx_error *error, pqtx_status status, const char *why)
{
    pqtx__error_set(error, status, PQTX_PHASE_CONNECT, PQTX_ORIGIN_LIBRARY, "%s", why);
    return status;
}

pqtx_status pqtx__session_open(pqtx_pool *pool, int64_t until_us, int64_t answer_us,
                               struct pqtx__wire **wire, pqtx_error *error)
{
    int64_t limit_us = pqtx__now(pool->clock) + pool->options.connect_timeout_ms * 1000;
    bool raw = pool->options.flags & PQTX_POOL_RAW_ERRORS;
    pqtx_status status = pqtx__connect(&pool->hosts, raw, pool->clock,
                                       limit_us < until_us ? limit_us : until_us, wire, error);
    if (status != PQTX_OK)
        return status;
    (*wire)->notice = heed;
    (*wire)->notice_arg = *wire;
    if ((*wire)->backend.pid == 0)
        status = refuse(error, PQTX_MISUSE,
                        "the connection leads through a pooler, which may give its session to "
                        "others: use one to the server itself");
    else if (!set_up(*wire, pqtx__now(pool->clock) + answer_us))
        status = refuse(error, PQTX_NO_CONNECTION, "the session could not be set up");
    if (status != PQTX_OK) {
        pqtx__wire_close(*wire, false);
        *wire = NULL;
    }
    return status;
}

bool pqtx__session_stands(struct pqtx__wire *wire)
{
    if (pqtx__wire_is_stale(wire))
        wire->lost = true;
    else
        PQisBusy(wire->conn); /* has libpq read what came */
    return !wire->lost;
}
