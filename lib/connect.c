/* connect.c: a connection made before a deadline, and the second one that cancels on the first.
 *
 * PQconnectdb and PQcancel wait as long as the network likes; PQconnectPoll does not.  Only the
 * look-up of a host name cannot be bounded (libpq's own documentation of PQconnectPoll says so). */
#define _DEFAULT_SOURCE
#include "connect.h"
#include "backend.h"
#include "clock.h"
#include "error.h"

#include <stdlib.h>
#include <string.h>

/* libpq's own receiver would print to stderr. */
static void hear(void *arg, const PGresult *notice)
{
    struct pqtx__wire *wire = arg;
    if (wire->notice)
        wire->notice(wire->notice_arg, notice);
}

/* "SEVERITY:  SQLSTATE: text" of what the last server said while we were connecting.  There is no
 * result to ask for its fields; PQERRORS_VERBOSE puts them into the message in this fixed form, in
 * front of what else it says. */
static const char *find_sqlstate(const char *message)
{
    const char *said = message;
    for (const char *at = message; (at = strstr(at, "\nconnection to server")) != NULL; at++)
        said = at;
    for (const char *at = said; (at = strstr(at, ":  ")) != NULL; at += 3)
        if (strspn(at + 3, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ") == 5 && at[8] == ':')
            return at + 3;
    return NULL;
}

/* A password with an '@' or a '/' in a URI makes libpq take a part of it for the host or the port.
 * Shown is only what such a mistake cannot have made: a port of digits, no '@' but before the host.
 */
static bool may_show_host(const char *conninfo)
{
    const char *at = strrchr(conninfo, '@');
    const char *host = strstr(conninfo, "://");
    if (!at)
        return true;
    return host && strchr(conninfo, '@') == at &&
           strcspn(host + 3, "/?#") > (size_t)(at - host - 3);
}

static void describe(pqtx_error *error, const char *conninfo, bool raw, PGconn *conn)
{
    const char *host = PQhost(conn), *port = PQport(conn);
    const char *message = PQerrorMessage(conn);
    const char *code = find_sqlstate(message);
    char sqlstate[6] = "";
    pqtx_status status = PQTX_NO_CONNECTION;
    pqtx_advice advice = PQTX_ADVICE_LATER;
    const char *text = "no answer: is the server running there, and reachable? (libpq's reason can "
                       "quote the connection string; PQTX_POOL_RAW_ERRORS shows it)";
    if (code) {
        memcpy(sqlstate, code, 5);
        status = pqtx_status_of_sqlstate(sqlstate);
        advice = pqtx_advice_of_sqlstate(sqlstate);
        text = code + 7;
        if (status == PQTX_OK) { /* a code of success is no success */
            status = PQTX_NO_CONNECTION;
            advice = PQTX_ADVICE_LATER;
        }
    } else if (PQconnectionNeedsPassword(conn)) {
        status = PQTX_DENIED;
        advice = PQTX_ADVICE_FIX;
        text = "the server wants a password, and none was given";
    }
    if (!host || !port || port[strspn(port, "0123456789")] || !may_show_host(conninfo))
        host = port = "(not shown)";
    if (raw)
        text = message;
    pqtx__error_set(error, status, PQTX_PHASE_CONNECT,
                    code ? PQTX_ORIGIN_SERVER : PQTX_ORIGIN_LIBPQ,
                    "cannot connect to host %s port %s: %.*s", host, port,
                    (int)strcspn(text, raw ? "" : "\n"), text);
    memcpy(error->sqlstate, sqlstate, sizeof sqlstate);
    error->advice = advice;
}

/* Drives PQconnectPoll; false with time left over means that it failed. */
static bool poll_until_connected(PGconn *conn, const pqtx_clock *clock, int64_t until_us)
{
    PostgresPollingStatusType poll = PGRES_POLLING_WRITING;
    while (PQstatus(conn) != CONNECTION_BAD && poll != PGRES_POLLING_FAILED) {
        if (poll == PGRES_POLLING_OK)
            return true;
        int64_t left = pqtx__left(clock, until_us);
        int events = poll == PGRES_POLLING_READING ? PQTX_WAIT_READ : PQTX_WAIT_WRITE;
        int ready = left == 0 ? 0 : clock->wait(clock->arg, PQsocket(conn), events, left);
        if (ready < 0 || (ready == 0 && left == 0))
            return false;
        if (ready > 0)
            poll = PQconnectPoll(conn);
    }
    return false;
}

/* Takes a connection that has been started to its end and attaches it; on failure it is still the
 * caller's. */
static bool finish(struct pqtx__wire *wire, PGconn *conn, const pqtx_clock *clock, int64_t until_us)
{
    PQsetNoticeReceiver(conn, hear, wire);
    PQsetErrorVerbosity(conn, PQERRORS_VERBOSE);
    if (!poll_until_connected(conn, clock, until_us) || !pqtx__wire_attach(wire, conn, clock))
        return false;
    PQsetErrorVerbosity(conn, PQERRORS_DEFAULT);
    wire->opened_us = pqtx__now(clock);
    return true;
}

static void explain(pqtx_error *error, PGconn *conn, const char *conninfo, bool raw, bool attached)
{
    if (!conn || (PQstatus(conn) == CONNECTION_OK && !attached))
        pqtx__error_set(error, PQTX_NO_MEMORY, PQTX_PHASE_CONNECT, PQTX_ORIGIN_LIBRARY,
                        "no memory for a connection");
    else if (PQstatus(conn) == CONNECTION_BAD)
        describe(error, conninfo, raw, conn);
    else
        pqtx__error_set(error, PQTX_NO_CONNECTION, PQTX_PHASE_CONNECT, PQTX_ORIGIN_LIBRARY,
                        "no connection in the time allowed, or it ended as soon as it stood");
}

/* The wire of a connection that has been started, or why there is none. */
static pqtx_status take(PGconn *conn, const char *conninfo, bool raw, const pqtx_clock *clock,
                        int64_t until_us, struct pqtx__wire **wire, pqtx_error *error)
{
    struct pqtx__wire *made = conn ? calloc(1, sizeof *made) : NULL;
    bool attached = made && finish(made, conn, clock, until_us);
    if (attached)
        pqtx__backend_learn(made, until_us);
    *wire = attached && !made->lost ? made : NULL;
    if (*wire)
        return PQTX_OK;
    explain(error, made && !made->unsent ? conn : NULL, conninfo, raw, attached);
    if (attached) {
        pqtx__wire_close(made, false);
    } else {
        PQfinish(conn);
        free(made);
    }
    return error->status;
}

pqtx_status pqtx__connect(const char *conninfo, bool raw, const pqtx_clock *clock, int64_t until_us,
                          struct pqtx__wire **wire, pqtx_error *error)
{
    static const char *const names[] = {"dbname", "fallback_application_name", NULL};
    const char *const values[] = {conninfo, "pqtx", NULL};
    return take(PQconnectStartParams(names, values, 1), conninfo, raw, clock, until_us, wire,
                error);
}

/* Starts a connection with all the settings of another, security settings included.  Of several
 * hosts PQconninfo() gives the list; with `same_server`, the one that is connected. */
static PGconn *start_like(PGconn *conn, bool same_server)
{
    PQconninfoOption *options = PQconninfo(conn);
    size_t count = 0;
    for (PQconninfoOption *o = options; o && o->keyword; o++)
        count++;
    const char **names = calloc(2 * (count + 6), sizeof *names);
    PGconn *second = NULL;
    if (options && names) {
        const char **values = names + count + 6;
        size_t n = 0;
        for (PQconninfoOption *o = options; o->keyword; o++) {
            if (!o->val || (same_server && strcmp(o->keyword, "load_balance_hosts") == 0))
                continue;
            names[n] = o->keyword;
            values[n++] = o->val;
        }
        const char *const own[][2] = {{"host", PQhost(conn)},
                                      {"hostaddr", PQhostaddr(conn)},
                                      {"port", PQport(conn)},
                                      {"password", PQpass(conn)},
                                      {"target_session_attrs", "any"}};
        for (size_t i = 0; same_server && i < sizeof own / sizeof own[0]; i++) {
            names[n] = own[i][0]; /* of the same name twice, the last counts */
            values[n++] = own[i][1];
        }
        second = PQconnectStartParams(names, values, 0);
    }
    free(names);
    PQconninfoFree(options);
    return second;
}

pqtx_status pqtx__connect_like(PGconn *conn, const pqtx_clock *clock, int64_t until_us,
                               struct pqtx__wire **wire, pqtx_error *error)
{
    return take(start_like(conn, false), "", false, clock, until_us, wire, error);
}

/* Where nobody asked for the backend, the number is the connection's word, and a pooler invents
 * that: so it must be a client of the same role that runs this very statement now.  200 characters
 * of it are always kept by the server. */
static const char cancel_sql[] =
    "SELECT pg_catalog.pg_cancel_backend(a.pid) FROM pg_catalog.pg_stat_activity AS a"
    " WHERE a.pid OPERATOR(pg_catalog.=) $1::pg_catalog.int4"
    " AND a.usename OPERATOR(pg_catalog.=) SESSION_USER"
    " AND a.state OPERATOR(pg_catalog.=) 'active'"
    " AND pg_catalog.\"left\"(a.query, 200) OPERATOR(pg_catalog.=)"
    " pg_catalog.\"left\"($2::pg_catalog.text, 200)";

static bool cancel_by_text(struct pqtx__wire *beside, PGconn *conn, const char *sql,
                           int64_t until_us)
{
    const pqtx_value values[] = {pqtx_int(PQbackendPID(conn)), pqtx_text(sql)};
    return pqtx__wire_confirms(beside, cancel_sql, 2, values, until_us);
}

bool pqtx__cancel(const struct pqtx__wire *wire, const struct pqtx__statement *statements,
                  size_t count, int64_t until_us)
{
    PGconn *second = wire->lost ? NULL : start_like(wire->conn, true);
    struct pqtx__wire *beside = calloc(1, sizeof *beside);
    bool ready = second && beside && finish(beside, second, wire->clock, until_us);
    bool asked =
        ready && wire->backend.pid != 0 && pqtx__backend_cancel(beside, &wire->backend, until_us);
    for (size_t i = 0; ready && wire->backend.pid == 0 && i < count && !asked; i++)
        asked = !beside->lost && cancel_by_text(beside, wire->conn, statements[i].sql, until_us);
    if (ready) {
        pqtx__wire_close(beside, false);
    } else {
        PQfinish(second);
        free(beside);
    }
    return asked;
}
