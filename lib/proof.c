/* proof.c: what rides with a transaction so that its outcome can be proved.
 *
 * The event's row goes first, so that a second run of the same event waits; the token goes in front
 * of COMMIT, so that it costs no round trip; the xid is asked for along with the statements until
 * there is one. */
#define _DEFAULT_SOURCE
#include "proof.h"
#include "error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef __APPLE__
#include <sys/random.h>
#endif

#define EVENT_ID_MAX    200
#define FINGERPRINT_MAX 1024

/* Only names that need no escaping: such a one cannot break out of its quotes. */
static bool is_plain_name(const char *name)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_";
    static const char further[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";
    size_t len = strlen(name);
    return len > 0 && len < 64 && strspn(name, letters) > 0 && strspn(name, further) == len;
}

const char *pqtx__once_schema(const char *given)
{
    const char *schema = given ? given : "public";
    return is_plain_name(schema) ? schema : NULL;
}

static void *copy(const void *bytes, size_t len)
{
    char *copied = malloc(len + 1);
    if (copied) {
        memcpy(copied, bytes, len);
        copied[len] = '\0';
    }
    return copied;
}

/* 128 bits that nobody else draws: from the system, since the clock's random numbers may repeat. */
static bool draw(uint64_t identity[2])
{
    return getentropy(identity, 2 * sizeof identity[0]) == 0;
}

static void write_token(const uint64_t identity[2], uint64_t number, char token[PQTX__TOKEN_SIZE])
{
    snprintf(token, PQTX__TOKEN_SIZE, "%016llx%016llx", (unsigned long long)identity[0],
             (unsigned long long)(identity[1] + number));
}

static const char *fault_of(const pqtx_options *o)
{
    size_t len = o->event_id ? strlen(o->event_id) : 1;
    if (!pqtx__once_schema(o->once_schema))
        return "options.once_schema is not a plain name: letters, digits and _, at most 63";
    if (len == 0 || len > EVENT_ID_MAX)
        return "options.event_id is empty or longer than 200 bytes";
    if (o->event_id && o->fingerprint_len > FINGERPRINT_MAX)
        return "options.fingerprint is longer than 1024 bytes";
    return NULL;
}

pqtx_status pqtx__proof_init(struct pqtx__proof *proof, const pqtx_options *o, const char **why)
{
    *why = fault_of(o);
    if (*why)
        return PQTX_MISUSE;
    proof->by = o->in_doubt == PQTX_DOUBT_DEFAULT ? PQTX_DOUBT_REPORT : o->in_doubt;
    if (proof->by == PQTX_DOUBT_TOKEN && o->access >= PQTX_ACCESS_READ_ONLY)
        proof->by = PQTX_DOUBT_XID; /* it cannot write a token, and will have no xid either */
    pqtx__text_copy(proof->schema, sizeof proof->schema, pqtx__once_schema(o->once_schema));
    bool named = o->event_id || proof->by == PQTX_DOUBT_TOKEN;
    if (named && !draw(proof->identity)) {
        *why = "the system gives no random numbers, which an identity needs";
        return PQTX_RESOURCES;
    }
    if (!o->event_id)
        return PQTX_OK;
    write_token(proof->identity, 0, proof->run);
    proof->event_id = copy(o->event_id, strlen(o->event_id));
    if (o->fingerprint)
        proof->fingerprint = copy(o->fingerprint, o->fingerprint_len);
    proof->fingerprint_len = o->fingerprint_len;
    if (proof->event_id && (proof->fingerprint || !o->fingerprint))
        return PQTX_OK;
    *why = "no memory for the event's id";
    return PQTX_NO_MEMORY;
}

void pqtx__proof_free(struct pqtx__proof *proof)
{
    free(proof->event_id);
    free(proof->fingerprint);
    free(proof->answer);
}

void pqtx__proof_begin(struct pqtx__proof *proof, uint32_t attempt)
{
    proof->xid = 0;
    proof->xid_heard = false;
    if (proof->by == PQTX_DOUBT_TOKEN)
        write_token(proof->identity, attempt, proof->token);
    free(proof->answer);
    proof->answer = NULL;
    proof->answer_len = 0;
}

/* The identifiers are read only once there is an xid: they cost a look at the control file. */
static const char xid_sql[] =
    "SELECT x.xid, CASE WHEN x.xid IS NOT NULL THEN"
    " (SELECT c.system_identifier FROM pg_catalog.pg_control_system() AS c) END,"
    " CASE WHEN x.xid IS NOT NULL THEN pg_catalog.\"left\"("
    "pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 8) END,"
    " CASE WHEN x.xid IS NOT NULL THEN " PQTX__ERA_SQL " END"
    " FROM (SELECT pg_catalog.pg_current_xact_id_if_assigned()) AS x(xid)";

bool pqtx__proof_rides(const struct pqtx__proof *proof)
{
    return proof->by == PQTX_DOUBT_XID && proof->xid == 0;
}

bool pqtx__proof_send_xid(struct pqtx__wire *wire)
{
    return pqtx__wire_send(wire, xid_sql, NULL);
}

/* Digits and no more, or 0. */
static uint64_t number_of(const PGresult *answer, int column, const char *digits, int base)
{
    const char *text = PQgetvalue(answer, 0, column);
    return text[strspn(text, digits)] == '\0' ? strtoull(text, NULL, base) : 0;
}

void pqtx__proof_heed_xid(struct pqtx__proof *proof, const PGresult *answer)
{
    proof->xid_heard = false;
    if (!pqtx__is_row(answer, 4))
        return;
    proof->xid = number_of(answer, 0, "0123456789", 10);
    proof->system_identifier = number_of(answer, 1, "0123456789", 10);
    proof->timeline = (int32_t)number_of(answer, 2, "0123456789ABCDEF", 16);
    proof->era = (int64_t)number_of(answer, 3, "0123456789", 10);
    proof->xid_heard = PQgetisnull(answer, 0, 0) || proof->xid != 0;
}

bool pqtx__once_send(const char *schema, struct pqtx__wire *wire, const char *before,
                     const char *after, int count, const pqtx_value *values)
{
    char sql[512];
    struct pqtx__params params;
    const char *why;
    snprintf(sql, sizeof sql, "%s\"%s\".pqtx_once%s", before, schema, after);
    if (pqtx__params_encode(&params, count, values, &why) != PQTX_OK)
        return false;
    bool sent = pqtx__wire_send(wire, sql, &params);
    pqtx__params_free(&params);
    return sent;
}

bool pqtx__proof_send_token(const struct pqtx__proof *proof, struct pqtx__wire *wire)
{
    if (proof->event_id && proof->answer &&
        !pqtx__once_send(
            proof->schema, wire, "UPDATE ", " SET answer = $2 WHERE id OPERATOR(pg_catalog.=) $1",
            PQTX_ARGS(pqtx_text(proof->event_id), pqtx_bytes(proof->answer, proof->answer_len))))
        return false;
    return proof->by != PQTX_DOUBT_TOKEN ||
           pqtx__once_send(proof->schema, wire, "INSERT INTO ", " (id) VALUES ($1)",
                           PQTX_ARGS(pqtx_text(proof->token)));
}

void pqtx__proof_explain(const struct pqtx__proof *proof, pqtx_error *error)
{
    bool needs_table = proof->event_id || proof->by == PQTX_DOUBT_TOKEN;
    if (needs_table && strcmp(error->sqlstate, "42P01") == 0 && !error->hint[0])
        pqtx__text_copy(error->hint, sizeof error->hint,
                        "an event_id, or in_doubt by token, needs the table pqtx_once: "
                        "pqtx_once_install() makes it, pqtx_once_ddl() prints it");
}

pqtx_status pqtx__proof_ticket(const struct pqtx__proof *proof, pqtx_ticket *ticket)
{
    *ticket = (pqtx_ticket)PQTX_TICKET;
    ticket->by = proof->by;
    memcpy(ticket->schema, proof->schema, sizeof proof->schema);
    if (proof->by == PQTX_DOUBT_TOKEN)
        memcpy(ticket->token, proof->token, sizeof proof->token);
    if (proof->by == PQTX_DOUBT_XID) {
        ticket->xid = proof->xid;
        ticket->system_identifier = proof->system_identifier;
        ticket->timeline = proof->timeline;
        ticket->era = proof->era;
    }
    return ticket->by == PQTX_DOUBT_TOKEN || ticket->xid ? PQTX_OK : PQTX_NOT_FOUND;
}
