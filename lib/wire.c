/* wire.c: one flight of commands over one connection, never waiting longer than it may.
 *
 * A state machine driven by the readiness of the socket; a blocking call is a loop around it with a
 * deadline.  Only the PQsend… calls in pipeline mode are used: PQexec loses the SQLSTATE of FATAL
 * errors, and a blocking flush can dead-lock with a server that is itself waiting to send.
 *
 * A statement that comes again is prepared, its Parse in front of it in the same flight. */
#define _DEFAULT_SOURCE
#include "wire.h"
#include "clock.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* PQgetResult ends each command with a NULL; more in a row than this mean that we are out of step.
 */
#define IDLE_TURNS_MAX 64

bool pqtx__wire_attach(struct pqtx__wire *wire, PGconn *conn, const pqtx_clock *clock)
{
    if (PQstatus(conn) != CONNECTION_OK || PQtransactionStatus(conn) != PQTRANS_IDLE ||
        PQpipelineStatus(conn) != PQ_PIPELINE_OFF)
        return false;
    *wire = (struct pqtx__wire){.conn = conn, .clock = clock};
    wire->was_blocking = !PQisnonblocking(conn);
    return PQsetnonblocking(conn, 1) == 0 && PQenterPipelineMode(conn) == 1;
}

void pqtx__wire_abandon(struct pqtx__wire *wire)
{
    pqtx__wire_clear(wire);
    pqtx__store_free(&wire->store);
    free(wire->replies);
    wire->replies = NULL;
    wire->capacity = 0;
}

void pqtx__wire_detach(struct pqtx__wire *wire)
{
    pqtx__wire_abandon(wire);
    if (wire->lost)
        return;
    PQexitPipelineMode(wire->conn);
    if (wire->was_blocking)
        PQsetnonblocking(wire->conn, 0);
}

static struct pqtx__reply *add_reply(struct pqtx__wire *wire)
{
    if (wire->count == wire->capacity) {
        size_t capacity = wire->capacity ? 2 * wire->capacity : 8;
        void *bigger = realloc(wire->replies, capacity * sizeof *wire->replies);
        if (!bigger)
            return NULL;
        wire->replies = bigger;
        wire->capacity = capacity;
    }
    struct pqtx__reply *reply = &wire->replies[wire->count++];
    *reply = (struct pqtx__reply){.result = NULL};
    wire->flushed = false;
    return reply;
}

static bool send_prepared(struct pqtx__wire *wire, struct pqtx__reply *reply,
                          struct pqtx__prepared *statement, const struct pqtx__params *p)
{
    reply->statement = statement;
    if (statement->state == PQTX__SEEN) {
        if (!PQsendPrepare(wire->conn, statement->name, statement->sql, p->count, p->types))
            return false;
        statement->state = PQTX__PREPARING;
        reply->parses = true;
    }
    return PQsendQueryPrepared(wire->conn, statement->name, p->count, p->values, p->lengths,
                               p->formats, 0);
}

/* Half a flight is left behind, which cannot be taken back. */
static bool fail_to_queue(struct pqtx__wire *wire)
{
    wire->lost = true;
    wire->unsent = PQstatus(wire->conn) == CONNECTION_OK;
    return false;
}

bool pqtx__wire_send(struct pqtx__wire *wire, const char *sql, const struct pqtx__params *params)
{
    static const struct pqtx__params none = {0};
    const struct pqtx__params *p = params ? params : &none;
    struct pqtx__reply *reply = wire->lost ? NULL : add_reply(wire);
    struct pqtx__prepared *statement = reply ? pqtx__cache_meet(wire->cache, sql, p) : NULL;
    if (wire->lost)
        return false;
    if (!reply)
        return fail_to_queue(wire);
    if (statement)
        return send_prepared(wire, reply, statement, p) || fail_to_queue(wire);
    return PQsendQueryParams(wire->conn, sql, p->count, p->types, p->values, p->lengths, p->formats,
                             0) ||
           fail_to_queue(wire);
}

/* What had to go from the cache goes from the server too, behind all that may still use it. */
static bool send_burial(struct pqtx__wire *wire, struct pqtx__prepared *statement)
{
    char sql[sizeof statement->name + 16];
    snprintf(sql, sizeof sql, "DEALLOCATE %s", statement->name);
    struct pqtx__reply *reply = add_reply(wire);
    if (!reply)
        return false;
    reply->statement = statement;
    reply->buries = true;
    statement->state = PQTX__LEAVING;
    return PQsendQueryParams(wire->conn, sql, 0, NULL, NULL, NULL, NULL, 0);
}

/* PQpipelineSync() writes to the socket, which would make two segments of a flight with two Syncs;
 * here the first step does. */
static int send_sync(PGconn *conn)
{
#ifdef LIBPQ_HAS_SEND_PIPELINE_SYNC
    return PQsendPipelineSync(conn);
#else
    return PQpipelineSync(conn);
#endif
}

bool pqtx__wire_sync(struct pqtx__wire *wire)
{
    if (wire->lost)
        return false;
    for (size_t i = 0; wire->cache && i < wire->cache->doomed_count; i++)
        if (wire->cache->doomed[i]->state != PQTX__LEAVING &&
            !send_burial(wire, wire->cache->doomed[i]))
            return fail_to_queue(wire);
    struct pqtx__reply *reply = add_reply(wire);
    if (!reply || !send_sync(wire->conn))
        return fail_to_queue(wire);
    reply->is_sync = true;
    return true;
}

static bool is_error(const PGresult *result)
{
    return PQresultStatus(result) == PGRES_FATAL_ERROR ||
           PQresultStatus(result) == PGRES_BAD_RESPONSE;
}

/* Every command before a Sync is answered, if only as passed over.  A Sync that comes too early is
 * another's, and all that follows stands in the wrong place. */
static void accept_sync(struct pqtx__wire *wire)
{
    if (wire->replies[wire->landed].is_sync)
        wire->landed++;
    else
        wire->lost = true;
    wire->answered = false;
}

/* After FATAL and PANIC the session is over: no Sync will come, even if the close is late.  A
 * pooler has only the severity that may be translated. */
static bool ends_session(const PGresult *result)
{
    const char *severity = PQresultErrorField(result, PG_DIAG_SEVERITY_NONLOCALIZED);
    if (!severity)
        severity = PQresultErrorField(result, PG_DIAG_SEVERITY);
    return severity && (strcmp(severity, "FATAL") == 0 || strcmp(severity, "PANIC") == 0);
}

/* Keeps a command's result, and above that its first error: what follows is only its echo. */
static void accept_result(struct pqtx__wire *wire, PGresult *result)
{
    struct pqtx__reply *reply = &wire->replies[wire->landed];
    wire->answered = true;
    switch (PQresultStatus(result)) {
    case PGRES_PIPELINE_SYNC:
        PQclear(result);
        accept_sync(wire);
        return;
    case PGRES_COPY_IN:
    case PGRES_COPY_OUT:
    case PGRES_COPY_BOTH:
        PQclear(result);
        wire->lost = true; /* no COPY ends in a pipeline */
        return;
    default:
        break;
    }
    if (is_error(result) && ends_session(result))
        wire->lost = true;
    bool parsed = reply->parses && PQresultStatus(result) == PGRES_COMMAND_OK;
    if (parsed)
        reply->statement->state = PQTX__READY;
    if (parsed || (reply->result && (is_error(reply->result) || !is_error(result)))) {
        PQclear(result);
        return;
    }
    PQclear(reply->result);
    reply->result = result;
}

/* A Parse and its statement are two commands, and one reply. */
static void end_command(struct pqtx__wire *wire, struct pqtx__reply *reply)
{
    if (!reply->parses)
        wire->landed++;
    reply->parses = false;
    wire->answered = false;
}

/* Takes what libpq has buffered.  After a FATAL no Sync will come: the NULLs must not spin. */
static void read_replies(struct pqtx__wire *wire)
{
    int idle = 0;
    while (!wire->lost && wire->landed < wire->count && !PQisBusy(wire->conn)) {
        PGresult *result = PQgetResult(wire->conn);
        struct pqtx__reply *reply = &wire->replies[wire->landed];
        if (result) {
            accept_result(wire, result);
            idle = 0;
        } else if (wire->answered && !reply->is_sync) {
            end_command(wire, reply);
        } else if (PQstatus(wire->conn) == CONNECTION_BAD || ++idle > IDLE_TURNS_MAX) {
            wire->lost = true;
        }
    }
}

enum pqtx__flight pqtx__wire_step(struct pqtx__wire *wire, int ready, int *wants)
{
    *wants = PQTX_WAIT_READ;
    if (!wire->lost) {
        int left = wire->flushed ? 0 : PQflush(wire->conn);
        wire->flushed = left == 0;
        if (left > 0)
            *wants |= PQTX_WAIT_WRITE;
        /* A failed write or read is no reason to stop: the answer may be in the buffer already. */
        bool failed = left < 0;
        if ((ready & PQTX_WAIT_READ) || failed)
            failed |= PQconsumeInput(wire->conn) == 0;
        read_replies(wire);
        if (failed && wire->landed < wire->count)
            wire->lost = true;
    }
    if (wire->landed == wire->count)
        return PQTX__LANDED;
    return wire->lost ? PQTX__LOST : PQTX__FLYING;
}

enum pqtx__flight pqtx__wire_land(struct pqtx__wire *wire, int64_t until_us)
{
    int ready = 0;
    for (;;) {
        int wants;
        enum pqtx__flight flight = pqtx__wire_step(wire, ready, &wants);
        int64_t left = flight == PQTX__FLYING ? pqtx__left(wire->clock, until_us) : 0;
        if (left == 0)
            return flight;
        ready = wire->clock->wait(wire->clock->arg, PQsocket(wire->conn), wants, left);
        if (ready < 0) {
            wire->lost = true;
            return PQTX__LOST;
        }
    }
}

size_t pqtx__wire_error(const struct pqtx__wire *wire, size_t begin, size_t end)
{
    size_t i = begin;
    while (i < end && !(wire->replies[i].result && is_error(wire->replies[i].result)))
        i++;
    return i;
}

size_t pqtx__wire_last_word(const struct pqtx__wire *wire)
{
    for (size_t i = 0; i < wire->count; i++) {
        const PGresult *result = wire->replies[i].result;
        if (result && is_error(result) && ends_session(result) &&
            PQresultErrorField(result, PG_DIAG_SOURCE_FUNCTION))
            return i;
    }
    return wire->count;
}

PGresult *pqtx__wire_take(struct pqtx__wire *wire, size_t i)
{
    PGresult *result = wire->replies[i].result;
    wire->replies[i].result = NULL;
    return result;
}

/* The server names the statement, in whatever language; where it is one of the caller's own, ours
 * are still there.  A pooler may say it in its own words. */
static bool is_about(const PGresult *error, const char *name)
{
    const char *message = PQresultErrorField(error, PG_DIAG_MESSAGE_PRIMARY);
    return !PQresultErrorField(error, PG_DIAG_SOURCE_FUNCTION) ||
           (message && strstr(message, name));
}

/* What an error tells about the statement that was thought to be prepared.  A plan that cannot
 * change its columns is 0A000, and the statement is still there. */
static bool is_stale(struct pqtx__wire *wire, const struct pqtx__reply *reply)
{
    const char *code = PQresultErrorField(reply->result, PG_DIAG_SQLSTATE);
    if (code && strcmp(code, "0A000") == 0)
        pqtx__cache_doom(wire->cache, reply->statement);
    return code && (strcmp(code, "26000") == 0 || strcmp(code, "42P05") == 0) &&
           is_about(reply->result, reply->statement->name);
}

/* Notes what became of its statement; true if the session does not have ours any more. */
static bool settle_statement(struct pqtx__wire *wire, const struct pqtx__reply *reply)
{
    struct pqtx__prepared *statement = reply->statement;
    if (statement->state == PQTX__PREPARING)
        statement->state = PQTX__SEEN; /* its Parse was not answered */
    else if (statement->state == PQTX__LEAVING)
        statement->state = PQTX__READY;
    if (is_error(reply->result))
        return is_stale(wire, reply);
    if (reply->buries && PQresultStatus(reply->result) == PGRES_COMMAND_OK)
        pqtx__cache_bury(wire->cache, statement);
    return false;
}

void pqtx__wire_clear(struct pqtx__wire *wire)
{
    bool stale = false;
    for (size_t i = 0; i < wire->count; i++) {
        if (wire->replies[i].statement)
            stale |= settle_statement(wire, &wire->replies[i]);
        PQclear(wire->replies[i].result);
    }
    if (stale)
        pqtx__cache_forget(wire->cache);
    wire->stale |= stale;
    wire->count = wire->landed = 0;
    wire->answered = false;
}

PGresult *pqtx__wire_ask(struct pqtx__wire *wire, const char *sql,
                         const struct pqtx__params *params, int64_t until_us)
{
    bool sent = pqtx__wire_send(wire, sql, params) && pqtx__wire_sync(wire);
    if (!sent || pqtx__wire_land(wire, until_us) != PQTX__LANDED)
        wire->lost = true;
    size_t error = pqtx__wire_error(wire, 0, wire->count);
    PGresult *answer = NULL;
    if (error < wire->count)
        answer = pqtx__wire_take(wire, error);
    else if (!wire->lost)
        answer = pqtx__wire_take(wire, 0);
    pqtx__wire_clear(wire);
    return answer;
}

bool pqtx__is_row(const PGresult *result, int columns)
{
    return PQresultStatus(result) == PGRES_TUPLES_OK && PQntuples(result) == 1 &&
           PQnfields(result) == columns;
}

bool pqtx__wire_confirms(struct pqtx__wire *wire, const char *sql, int count,
                         const pqtx_value *values, int64_t until_us)
{
    struct pqtx__params params;
    const char *why;
    if (pqtx__params_encode(&params, count, values, &why) != PQTX_OK)
        return false;
    PGresult *answer = pqtx__wire_ask(wire, sql, &params, until_us);
    bool confirmed = pqtx__is_row(answer, 1) && strcmp(PQgetvalue(answer, 0, 0), "t") == 0;
    PQclear(answer);
    pqtx__params_free(&params);
    return confirmed;
}

void pqtx__wire_cut(struct pqtx__wire *wire)
{
    shutdown(PQsocket(wire->conn), SHUT_RDWR);
}

bool pqtx__wire_has_input(struct pqtx__wire *wire)
{
    return wire->clock->wait(wire->clock->arg, PQsocket(wire->conn), PQTX_WAIT_READ, 0) != 0;
}

/* The first read can bring the FATAL, and only the second one the close. */
bool pqtx__wire_is_stale(struct pqtx__wire *wire)
{
    return pqtx__wire_has_input(wire) &&
           (!PQconsumeInput(wire->conn) || !PQconsumeInput(wire->conn) ||
            PQstatus(wire->conn) != CONNECTION_OK);
}

/* PQfinish says goodbye to the server, and would end the session that the parent still uses; so the
 * child's copy of the socket is replaced by something that cannot carry the word. */
static bool silence(PGconn *conn)
{
    int nowhere = open("/dev/null", O_RDONLY | O_CLOEXEC);
    bool silent = nowhere >= 0 && dup2(nowhere, PQsocket(conn)) >= 0;
    if (nowhere >= 0)
        close(nowhere);
    return silent;
}

void pqtx__wire_close(struct pqtx__wire *wire, bool in_child)
{
    pqtx__wire_clear(wire);
    pqtx__cache_free(wire->cache);
    pqtx__store_free(&wire->store);
    free(wire->replies);
    /* Better the memory of one connection lost in the child than the parent's session. */
    if (!in_child || PQsocket(wire->conn) < 0 || silence(wire->conn))
        PQfinish(wire->conn);
    free(wire);
}
