/* connect.c: a connection made before a deadline, and the second one that cancels on the first.
 *
 * PQconnectdb and PQcancel wait as long as the network likes; PQconnectPoll does not.  Only the
 * look-up of a host name cannot be bounded (libpq's own documentation of PQconnectPoll says so).
 * Of several hosts each gets a part of the time, so that a silent one does not use up all of it. */
#define _DEFAULT_SOURCE
#include "connect.h"
#include "backend.h"
#include "clock.h"
#include "error.h"

#include <stdio.h>
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

/* Of the failures of several hosts the one that tells most is kept, of equal ones the first.  What
 * another host would not mend ends the search. */
struct failure {
    pqtx_error error;
    enum weight { NONE, UNFIT, SILENT, SPOKEN, FINAL } weight;
};

/* Whether libpq broke off a session that stood, as not what target_session_attrs asks for: then it
 * has said goodbye, and left the socket to PQfinish. */
static bool is_unfit(PGconn *conn)
{
    return PQparameterStatus(conn, "server_version") && PQsocket(conn) >= 0;
}

struct place {
    const char *host, *port;
};

/* What can be a piece of a misplaced password has no digits alone for a port. */
static struct place place_of(const struct pqtx__hosts *hosts, PGconn *conn)
{
    struct place place = {PQhost(conn), PQport(conn)};
    bool plausible = place.host && place.port && !place.port[strspn(place.port, "0123456789")];
    return hosts->showable && plausible ? place : (struct place){"(not shown)", "(not shown)"};
}

static void describe(struct failure *failure, const struct pqtx__hosts *hosts, bool raw,
                     PGconn *conn)
{
    struct place place = place_of(hosts, conn);
    const char *message = PQerrorMessage(conn);
    const char *code = find_sqlstate(message);
    char sqlstate[6] = "";
    pqtx_status status = PQTX_NO_CONNECTION;
    pqtx_advice advice = PQTX_ADVICE_LATER;
    const char *text = "no answer that could be used: is the server running there, and reachable, "
                       "and are the TLS settings right? (libpq's reason can quote the connection "
                       "string; PQTX_POOL_RAW_ERRORS shows it)";
    failure->weight = SILENT;
    if (code) {
        memcpy(sqlstate, code, 5);
        status = pqtx_status_of_sqlstate(sqlstate);
        advice = pqtx_advice_of_sqlstate(sqlstate);
        text = code + 7;
        failure->weight = SPOKEN;
        if (status == PQTX_OK) { /* a code of success is no success */
            status = PQTX_NO_CONNECTION;
            advice = PQTX_ADVICE_LATER;
        }
    } else if (PQconnectionNeedsPassword(conn)) {
        status = PQTX_DENIED;
        advice = PQTX_ADVICE_FIX;
        text = "the server wants a password, and none was given";
    } else if (is_unfit(conn)) {
        text = "the server is not one that target_session_attrs asks for";
        failure->weight = UNFIT;
    }
    if (status != PQTX_NO_CONNECTION)
        failure->weight = FINAL;
    if (raw)
        text = message;
    pqtx__error_set(&failure->error, status, PQTX_PHASE_CONNECT,
                    code ? PQTX_ORIGIN_SERVER : PQTX_ORIGIN_LIBPQ,
                    "cannot connect to host %s port %s: %.*s", place.host, place.port,
                    (int)strcspn(text, raw ? "" : "\n"), text);
    pqtx__text_copy(failure->error.sqlstate, sizeof failure->error.sqlstate, sqlstate);
    failure->error.advice = advice;
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

static struct failure explain(const struct pqtx__hosts *hosts, bool raw, PGconn *conn,
                              bool attached)
{
    struct failure failure = {PQTX_ERROR, SILENT};
    struct place place = place_of(hosts, conn);
    if (!conn || (PQstatus(conn) == CONNECTION_OK && !attached)) {
        pqtx__error_set(&failure.error, PQTX_NO_MEMORY, PQTX_PHASE_CONNECT, PQTX_ORIGIN_LIBRARY,
                        "no memory for a connection");
        failure.weight = FINAL;
    } else if (PQstatus(conn) == CONNECTION_BAD) {
        describe(&failure, hosts, raw, conn);
    } else if (hosts->list) {
        pqtx__error_set(&failure.error, PQTX_NO_CONNECTION, PQTX_PHASE_CONNECT, PQTX_ORIGIN_LIBRARY,
                        "cannot connect to host %s port %s: no answer in its part of the time",
                        place.host, place.port);
    } else {
        pqtx__error_set(&failure.error, PQTX_NO_CONNECTION, PQTX_PHASE_CONNECT, PQTX_ORIGIN_LIBRARY,
                        "no connection in the time allowed, or it ended as soon as it stood");
    }
    return failure;
}

/* What every try of a search goes by. */
struct search {
    struct pqtx__hosts *hosts;
    bool raw;
    const pqtx_clock *clock;
    int64_t until_us;
    struct failure failure;
};

/* The wire of a connection that has been started; NULL: the failure is noted. */
static struct pqtx__wire *take(struct search *search, PGconn *conn, int64_t until_us)
{
    struct pqtx__wire *made = conn ? calloc(1, sizeof *made) : NULL;
    bool attached = made && finish(made, conn, search->clock, until_us);
    if (attached)
        pqtx__backend_learn(made, until_us);
    if (attached && !made->lost)
        return made;
    struct failure failure =
        explain(search->hosts, search->raw, made && !made->unsent ? conn : NULL, attached);
    if (failure.weight > search->failure.weight)
        search->failure = failure;
    if (attached) {
        pqtx__wire_close(made, false);
    } else {
        PQfinish(conn);
        free(made);
    }
    return NULL;
}

/* Until when a host may be tried if so many, itself included, are to be. */
static int64_t part_of_time(const struct search *search, size_t tries)
{
    int64_t until_us = search->until_us, now_us = pqtx__now(search->clock);
    int64_t timeout_us = search->hosts->timeout_us;
    if (tries > 1)
        until_us = now_us + pqtx__left(search->clock, until_us) / (int64_t)tries;
    return timeout_us > 0 && timeout_us < until_us - now_us ? now_us + timeout_us : until_us;
}

static void count_tried(pqtx_error *error, size_t tried, size_t count)
{
    char text[sizeof error->message + 64];
    snprintf(text, sizeof text, "tried %zu of %zu hosts: %s", tried, count, error->message);
    if (!pqtx__text_copy(error->message, sizeof error->message, text))
        error->flags |= PQTX_ERROR_TRUNCATED;
}

/* The tries are numbered: what prefers a standby goes through the hosts twice.  Where any server
 * will do, the order of the list is a preference, and only lost time a reason to leave it. */
static struct pqtx__wire *try_each(struct search *search, const size_t *order)
{
    struct pqtx__hosts *hosts = search->hosts;
    size_t tries = hosts->prefers_standby ? 2 * hosts->count : hosts->count, n = 0;
    struct pqtx__wire *wire = NULL;
    bool slow = false;
    do {
        size_t i = order[n % hosts->count];
        const char *target = !hosts->prefers_standby ? NULL : n < hosts->count ? "standby" : "any";
        int64_t until_us = part_of_time(search, tries - n);
        wire = take(search, pqtx__hosts_start(hosts, &hosts->list[i], target), until_us);
        slow |= !wire && pqtx__left(search->clock, until_us) == 0;
        if (wire && n > 0)
            atomic_store(&hosts->best, hosts->is_choosy || slow ? i : 0);
        n++;
    } while (!wire && n < tries && search->failure.weight < FINAL &&
             pqtx__left(search->clock, search->until_us) > 0);
    if (!wire)
        count_tried(&search->failure.error, n < hosts->count ? n : hosts->count, hosts->count);
    return wire;
}

pqtx_status pqtx__connect(struct pqtx__hosts *hosts, bool raw, const pqtx_clock *clock,
                          int64_t until_us, struct pqtx__wire **wire, pqtx_error *error)
{
    struct search search = {hosts, raw, clock, until_us, {PQTX_ERROR, NONE}};
    if (hosts->list) {
        size_t *order = pqtx__hosts_order(hosts, clock);
        *wire = order ? try_each(&search, order) : take(&search, NULL, until_us);
        free(order);
    } else {
        int64_t limit_us = part_of_time(&search, 1);
        *wire = take(&search, pqtx__hosts_start(hosts, NULL, NULL), limit_us);
    }
    if (*wire)
        return PQTX_OK;
    pqtx__error_export(&search.failure.error, error);
    return error->status;
}

pqtx_status pqtx__connect_like(PGconn *conn, const pqtx_clock *clock, int64_t until_us,
                               struct pqtx__wire **wire, pqtx_error *error)
{
    struct pqtx__hosts hosts;
    pqtx_status status = PQTX_NO_MEMORY;
    if (pqtx__hosts_read_from(&hosts, conn))
        status = pqtx__connect(&hosts, false, clock, until_us, wire, error);
    else
        pqtx__error_set(error, status, PQTX_PHASE_CONNECT, PQTX_ORIGIN_LIBRARY,
                        "no memory for a connection");
    pqtx__hosts_free(&hosts);
    return status;
}

/* Starts a connection to the same server with all the settings of this one, security settings
 * included. */
static PGconn *start_beside(PGconn *conn)
{
    struct pqtx__hosts hosts;
    bool read = pqtx__hosts_read_from(&hosts, conn);
    PGconn *second = read ? pqtx__hosts_start_beside(&hosts, conn) : NULL;
    pqtx__hosts_free(&hosts);
    return second;
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
    PGconn *second = wire->lost ? NULL : start_beside(wire->conn);
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
