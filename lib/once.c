/* once.c: the table of event ids and tokens, and what is kept in it. */
#include "tx.h"

#include <pqtx/once.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ANSWER_MAX 65535
#define BATCH      1000

/* Ids compare bytewise, whatever the database's locale. */
#define TABLE_NAME "pqtx_once"
#define COLUMNS                                                                                    \
    " (\n"                                                                                         \
    "    id text COLLATE \"C\" PRIMARY KEY,\n"                                                     \
    "    void boolean NOT NULL DEFAULT false,\n"                                                   \
    "    run text,\n"                                                                              \
    "    fingerprint bytea,\n"                                                                     \
    "    answer bytea,\n"                                                                          \
    "    at timestamptz NOT NULL DEFAULT clock_timestamp()\n"                                      \
    ")"

const char *pqtx_once_ddl(void)
{
    return "CREATE TABLE IF NOT EXISTS " TABLE_NAME COLUMNS ";\n"
           "CREATE INDEX IF NOT EXISTS pqtx_once_at ON " TABLE_NAME " (at);\n";
}

/* A body of one or two statements, written out, with one parameter or none. */
struct job {
    char first[512], second[256];
    int count;
    pqtx_value values[2];
    int64_t rows;
};

/* Two that create the table at once must not meet: IF NOT EXISTS is no lock.  The number is the
 * first eight bytes of the table's name. */
#define INSTALL_LOCK INT64_C(0x707174785f6f6e63)

static pqtx_status install(pqtx_tx *tx, void *arg)
{
    const struct job *job = arg;
    pqtx_exec(tx, "SELECT pg_catalog.pg_advisory_xact_lock($1::pg_catalog.int8)",
              PQTX_ARGS(PQTX_INT(INSTALL_LOCK)), NULL);
    /* What stands in the columns without a schema is PostgreSQL's own. */
    pqtx_exec(tx, "SET LOCAL search_path = pg_catalog, pg_temp", PQTX_NO_ARGS, NULL);
    pqtx_exec(tx, job->first, PQTX_NO_ARGS, NULL);
    return pqtx_exec(tx, job->second, PQTX_NO_ARGS, NULL);
}

static pqtx_status reap(pqtx_tx *tx, void *arg)
{
    struct job *job = arg;
    const PGresult *result;
    pqtx_status status = pqtx_exec(tx, job->first, job->count, job->values, &result);
    return status == PQTX_OK ? pqtx_get_int(result, 0, 0, &job->rows) : status;
}

static pqtx_status run(pqtx_pool *pool, pqtx_work work, struct job *job, pqtx_error *error)
{
    pqtx_options options = PQTX_OPTIONS;
    options.isolation = PQTX_ISO_READ_COMMITTED;
    options.access = PQTX_ACCESS_READ_WRITE;
    return pqtx_run(pool, &options, work, job, error);
}

pqtx_status pqtx_once_install(pqtx_pool *pool, const char *schema, pqtx_error *error)
{
    struct job job = {.count = 0};
    const char *name = pqtx__once_schema(schema);
    if (!name)
        return pqtx__error_report(error, PQTX_MISUSE, "the schema is not a plain name");
    snprintf(job.first, sizeof job.first, "CREATE TABLE IF NOT EXISTS \"%s\"." TABLE_NAME COLUMNS,
             name);
    snprintf(job.second, sizeof job.second,
             "CREATE INDEX IF NOT EXISTS pqtx_once_at ON \"%s\"." TABLE_NAME " (at)", name);
    return run(pool, install, &job, error);
}

pqtx_status pqtx_once_reap(pqtx_pool *pool, const char *schema, int64_t age_s, int64_t batch,
                           int64_t *deleted, pqtx_error *error)
{
    struct job job = {.count = 2, .values = {pqtx_int(age_s), pqtx_int(batch ? batch : BATCH)}};
    const char *name = pqtx__once_schema(schema);
    if (deleted)
        *deleted = 0;
    if (!name || age_s < 0 || batch < 0)
        return pqtx__error_report(error, PQTX_MISUSE,
                                  "the schema is not a plain name, or a number is negative");
    snprintf(job.first, sizeof job.first,
             "WITH gone AS (DELETE FROM \"%s\"." TABLE_NAME
             " WHERE id OPERATOR(pg_catalog.=) ANY (ARRAY("
             "SELECT id FROM \"%s\"." TABLE_NAME " WHERE at OPERATOR(pg_catalog.<)"
             " (pg_catalog.now() OPERATOR(pg_catalog.-)"
             " pg_catalog.make_interval(secs => $1::pg_catalog.int8))"
             " ORDER BY at LIMIT $2::pg_catalog.int8 FOR UPDATE SKIP LOCKED))"
             " RETURNING 1) SELECT pg_catalog.count(*) FROM gone",
             name, name);
    pqtx_status status = run(pool, reap, &job, error);
    if (status == PQTX_OK && deleted)
        *deleted = job.rows;
    return status;
}

pqtx_status pqtx_once_store(pqtx_tx *tx, const void *bytes, size_t len)
{
    pqtx_status status = pqtx__tx_enter(tx);
    if (status != PQTX_OK)
        return status;
    char *copy = len <= ANSWER_MAX ? malloc(len + 1) : NULL;
    if (!tx->proof.event_id || (!bytes && len > 0) || len > ANSWER_MAX) {
        status = pqtx__fail(tx, PQTX_MISUSE,
                            "the run has no event id, or the answer is NULL or over 65535 bytes");
    } else if (!copy) {
        status = pqtx__fail(tx, PQTX_NO_MEMORY, "no memory for the answer");
    } else {
        if (len > 0)
            memcpy(copy, bytes, len);
        free(tx->proof.answer);
        tx->proof.answer = copy;
        tx->proof.answer_len = len;
        copy = NULL;
    }
    free(copy);
    pqtx__tx_leave(tx);
    return status;
}

pqtx_status pqtx_once_answer(const pqtx_tx *tx, void *buffer, size_t size, size_t *len)
{
    if (!tx || !len || tx->outcome != PQTX_OUTCOME_COMMITTED || !tx->proof.event_id)
        return PQTX_MISUSE;
    const struct pqtx__proof *proof = &tx->proof;
    *len = proof->answer ? proof->answer_len : 0;
    if (*len > size)
        return PQTX_TOO_MANY;
    if (*len > 0 && !buffer)
        return PQTX_MISUSE;
    if (*len > 0)
        memcpy(buffer, proof->answer, *len);
    return PQTX_OK;
}
