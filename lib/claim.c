/* claim.c: an event's row in pqtx_once, written before the body runs.
 *
 * INSERT … ON CONFLICT DO NOTHING and SELECT are two statements on purpose: in one, an insert that
 * had to wait for another sees neither its own row nor that one. */
#include "claim.h"
#include "call.h"
#include "fly.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SQL_SIZE 512

static unsigned char digit(char c)
{
    return (unsigned char)(c <= '9' ? c - '0' : c - 'a' + 10);
}

/* As hex digits, since how bytea is written depends on the session. */
static pqtx_status keep_answer(pqtx_tx *tx, const PGresult *row)
{
    struct pqtx__proof *proof = &tx->proof;
    const char *hex = PQgetvalue(row, 0, 3);
    size_t len = strlen(hex) / 2;
    if (PQgetisnull(row, 0, 3))
        return PQTX_OK;
    unsigned char *bytes = malloc(len + 1);
    if (!bytes)
        return pqtx__fail(tx, PQTX_NO_MEMORY, "no memory for the stored answer");
    for (size_t i = 0; i < len; i++)
        bytes[i] = (unsigned char)(digit(hex[2 * i]) << 4 | digit(hex[2 * i + 1]));
    proof->answer = bytes;
    proof->answer_len = len;
    return PQTX_OK;
}

/* The row that was there: is it ours, is it the same event? */
static pqtx_status judge(pqtx_tx *tx, const PGresult *row, bool *own)
{
    const struct pqtx__proof *proof = &tx->proof;
    if (!pqtx__is_row(row, 4))
        return pqtx__fail(tx, PQTX_BUSY, "the event's row went away while it was looked at");
    if (strcmp(PQgetvalue(row, 0, 0), "t") == 0)
        return pqtx__fail(tx, PQTX_KEY_MISMATCH, "the event's id is taken by a void token");
    *own = tx->doubtful && strcmp(PQgetvalue(row, 0, 1), proof->run) == 0;
    if (strcmp(PQgetvalue(row, 0, 2), "f") == 0)
        return pqtx__fail(tx, PQTX_KEY_MISMATCH,
                          "the event's id was used before with another fingerprint");
    if (keep_answer(tx, row) != PQTX_OK)
        return tx->mark;
    if (*own) /* the error of the attempt whose COMMIT was lost is worth more */
        return tx->mark = PQTX_DONE_BEFORE;
    return pqtx__fail(tx, PQTX_DONE_BEFORE, "the event was applied before");
}

/* `and` is what the statement says behind that. */
static void write_insert(const struct pqtx__proof *proof, const char *and, char sql[SQL_SIZE])
{
    snprintf(sql, SQL_SIZE,
             "INSERT INTO \"%s\".pqtx_once (id, run, fingerprint) VALUES ($1, $2, $3)"
             " ON CONFLICT (id) DO NOTHING%s",
             proof->schema, and);
}

static pqtx_status fly(pqtx_tx *tx, PGresult *results[2])
{
    struct pqtx__proof *proof = &tx->proof;
    char insert[SQL_SIZE], select[SQL_SIZE];
    write_insert(proof, " RETURNING true", insert);
    snprintf(select, sizeof select,
             "SELECT void, run, fingerprint OPERATOR(pg_catalog.=) $2::pg_catalog.bytea,"
             " pg_catalog.encode(answer, 'hex')"
             " FROM \"%s\".pqtx_once WHERE id OPERATOR(pg_catalog.=) $1",
             proof->schema);
    pqtx_value fingerprint = pqtx_bytes(proof->fingerprint, proof->fingerprint_len);
    pqtx_value whole[] = {pqtx_text(proof->event_id), pqtx_text(proof->run), fingerprint};
    pqtx_value key[] = {pqtx_text(proof->event_id), fingerprint};
    struct pqtx__params first, second;
    const char *why;
    pqtx_status status = PQTX_NO_MEMORY;
    bool encoded = pqtx__params_encode(&first, 3, whole, &why) == PQTX_OK;
    if (encoded && pqtx__params_encode(&second, 2, key, &why) == PQTX_OK) {
        const struct pqtx__statement statements[] = {{insert, &first}, {select, &second}};
        status = pqtx__fly(tx, statements, 2, results);
        pqtx__params_free(&second);
    } else {
        pqtx__fail(tx, status, "no memory for the event's id");
    }
    if (encoded)
        pqtx__params_free(&first);
    return status;
}

static pqtx_status meaning(int64_t rows, const char **why)
{
    (void)rows;
    *why = "the event's id is there already";
    return PQTX_DONE_BEFORE;
}

pqtx_status pqtx__claim_queue(pqtx_tx *tx)
{
    const struct pqtx__proof *proof = &tx->proof;
    char insert[SQL_SIZE];
    write_insert(proof, "", insert);
    const pqtx_value values[] = {pqtx_text(proof->event_id), pqtx_text(proof->run),
                                 pqtx_bytes(proof->fingerprint, proof->fingerprint_len)};
    return pqtx__call_queue(tx, &(struct pqtx__request){.sql = insert,
                                                        .kind = PQTX__KIND_WRITE,
                                                        .count = 3,
                                                        .values = values,
                                                        .rule = {PQTX__COUNT_EXACT, 1},
                                                        .meaning = meaning});
}

pqtx_status pqtx__claim(pqtx_tx *tx, bool *own)
{
    *own = false;
    if (!tx->proof.event_id || tx->claim_rides)
        return PQTX_OK;
    PGresult *results[2] = {NULL, NULL};
    pqtx_status status = fly(tx, results);
    if (status != PQTX_OK)
        pqtx__proof_explain(&tx->proof, &tx->error);
    if (status == PQTX_OK && PQntuples(results[0]) == 0)
        status = judge(tx, results[1], own);
    PQclear(results[0]);
    PQclear(results[1]);
    return status;
}
