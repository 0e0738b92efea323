/* diagnose.c: who is in the way. */
#include "blocker.h"
#include "fly.h"
#include "options.h"
#include "size.h"
#include "tx.h"

#include <pqtx/diagnose.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROWS_MAX 1000

#define XID_TYPE 28
#define OID_TYPE 26

/* A question, and the caller's array that takes the answer. */
struct job {
    const char *sql;
    int count;
    pqtx_value values[3];
    pqtx_blocker *blockers;
    size_t capacity, found;
};

static const char *fault_of(const struct job *job)
{
    if (job->capacity > 0 && !job->blockers)
        return "the blockers are NULL";
    if (job->capacity > 0 &&
        (job->blockers->size < sizeof(size_t) || job->blockers->size > PQTX__SIZE_MAX))
        return "the first blocker has no size (start from PQTX_BLOCKER)";
    return NULL;
}

/* The caller's struct may be shorter or longer than ours. */
static void fill(struct job *job, const PGresult *answer)
{
    size_t size = job->capacity > 0 ? job->blockers->size : 0;
    job->found = (size_t)PQntuples(answer);
    for (size_t i = 0; i < job->found && i < job->capacity; i++) {
        pqtx_blocker blocker;
        char *theirs = (char *)job->blockers + i * size;
        pqtx__blocker_read(answer, (int)i, &blocker);
        blocker.size = size;
        if (size > sizeof blocker)
            memset(theirs, 0, size);
        memcpy(theirs, &blocker, size < sizeof blocker ? size : sizeof blocker);
    }
}

/* Asks in one flight.  What this transaction has seen of other sessions before is forgotten first,
 * else it would be shown again.  The search_path stays as it is set. */
static pqtx_status ask(pqtx_tx *tx, struct job *job)
{
    pqtx_status status = pqtx__tx_enter(tx);
    if (status != PQTX_OK)
        return status;
    struct pqtx__params params;
    PGresult *results[3];
    const char *why;
    if (pqtx__params_encode(&params, job->count, job->values, &why) != PQTX_OK) {
        status = pqtx__fail(tx, PQTX_NO_MEMORY, "no memory for the question");
    } else {
        const struct pqtx__statement statements[] = {
            {"SET LOCAL search_path = " PQTX__BLOCKER_PATH, NULL},
            {"SELECT pg_catalog.pg_stat_clear_snapshot()", NULL},
            {job->sql, &params},
        };
        status = pqtx__fly(tx, statements, 3, results);
        pqtx__params_free(&params);
        if (status == PQTX_OK)
            fill(job, results[2]);
        for (int i = 0; i < 3; i++)
            PQclear(results[i]);
    }
    pqtx__tx_leave(tx);
    return status;
}

/* ---- in a transaction of its own */

static pqtx_status run(pqtx_tx *tx, void *arg)
{
    return ask(tx, arg);
}

/* Nothing is written, so a standby can be asked as well, unless the caller wants it otherwise. */
static pqtx_status run_job(pqtx_pool *pool, const pqtx_options *options, struct job *job,
                           pqtx_error *error)
{
    pqtx_options own = PQTX_OPTIONS;
    if (options && pqtx__import(&own, sizeof own, options, options->size) != PQTX_OK)
        return pqtx_run(pool, options, run, job, error); /* which says what is wrong with them */
    if (own.isolation == PQTX_ISO_DEFAULT)
        own.isolation = PQTX_ISO_READ_COMMITTED;
    if (own.access == PQTX_ACCESS_DEFAULT)
        own.access = PQTX_ACCESS_READ_ONLY;
    return pqtx_run(pool, &own, run, job, error);
}

pqtx_status pqtx_blockers(pqtx_pool *pool, const pqtx_options *options, int32_t pid,
                          pqtx_blocker *blockers, size_t capacity, size_t *found, pqtx_error *error)
{
    struct job job = {.sql = pid ? pqtx__blocker_of_pid : pqtx__blocker_of_all,
                      .count = pid ? 1 : 0,
                      .values = {pqtx_int(pid)},
                      .blockers = blockers,
                      .capacity = capacity};
    if (found)
        *found = 0;
    const char *why = pid < 0 ? "the pid is negative" : fault_of(&job);
    if (why)
        return pqtx__error_report(error, PQTX_MISUSE, why);
    pqtx_status status = run_job(pool, options, &job, error);
    if (status == PQTX_OK && found)
        *found = job.found;
    return status;
}

/* ---- in a transaction of the caller's */

/* Said by the work to have the search_path undone. */
#define ASKED PQTX_USER

static pqtx_status ask_and_undo(pqtx_tx *tx, void *arg)
{
    pqtx_status status = ask(tx, arg);
    return status == PQTX_OK ? ASKED : status;
}

static pqtx_status ask_within(pqtx_tx *tx, struct job *job, size_t *found)
{
    pqtx_status status = pqtx_savepoint(tx, ask_and_undo, job);
    if (status != ASKED)
        return status;
    if (found)
        *found = job->found;
    return PQTX_OK;
}

static pqtx_status refuse(pqtx_tx *tx, pqtx_status status, const char *why)
{
    pqtx_status mark = pqtx__tx_enter(tx);
    if (mark != PQTX_OK)
        return mark;
    pqtx__fail(tx, status, "%s", why);
    pqtx__tx_leave(tx);
    return status;
}

/* "{761,762}" and "{16385,16385}" of the rows; NULL without memory. */
static char *array_of(const PGresult *rows, int column)
{
    enum { EACH = 11 }; /* "4294967295" and a comma */
    int count = PQntuples(rows) < ROWS_MAX ? PQntuples(rows) : ROWS_MAX;
    size_t size = (size_t)count * EACH + 3, len = 1;
    char *text = malloc(size);
    if (!text)
        return NULL;
    text[0] = '{';
    for (int i = 0; i < count; i++)
        len += (size_t)snprintf(text + len, size - len, "%s%.10s", i ? "," : "",
                                PQgetvalue(rows, i, column));
    memcpy(text + len, "}", 2);
    return text;
}

/* The rows' xmax and tableoid, under the caller's own search_path. */
static pqtx_status look_up(pqtx_tx *tx, const char *sql, int count, const pqtx_value *values,
                           char *arrays[2])
{
    PGresult *rows = NULL;
    pqtx_status status = pqtx__tx_enter(tx);
    if (status != PQTX_OK)
        return status;
    const char *why = sql ? pqtx__statement_fault(sql, pqtx__statement_kind(sql)) : "it is NULL";
    status = why ? pqtx__fail(tx, PQTX_MISUSE, "the statement: %s", why)
                 : pqtx__tx_exec(tx, sql, count, values, &rows);
    if (status == PQTX_OK &&
        (PQnfields(rows) != 2 || PQftype(rows, 0) != XID_TYPE || PQftype(rows, 1) != OID_TYPE))
        status = pqtx__fail(tx, PQTX_MISUSE, "the statement does not select xmax and tableoid");
    if (status == PQTX_OK) {
        arrays[0] = array_of(rows, 0);
        arrays[1] = array_of(rows, 1);
        if (!arrays[0] || !arrays[1])
            status = pqtx__fail(tx, PQTX_NO_MEMORY, "no memory for the rows");
    }
    PQclear(rows);
    pqtx__tx_leave(tx);
    return status;
}

pqtx_status pqtx_row_holders(pqtx_tx *tx, const char *sql, int count, const pqtx_value *values,
                             pqtx_blocker *blockers, size_t capacity, size_t *found)
{
    struct job job = {.sql = pqtx__blocker_of_rows, .blockers = blockers, .capacity = capacity};
    char *arrays[2] = {NULL, NULL};
    if (found)
        *found = 0;
    const char *why = fault_of(&job);
    if (why)
        return refuse(tx, PQTX_MISUSE, why);
    pqtx_status status = look_up(tx, sql, count, values, arrays);
    job.count = 2;
    job.values[0] = pqtx_text(arrays[0]);
    job.values[1] = pqtx_text(arrays[1]);
    if (status == PQTX_OK)
        status = ask_within(tx, &job, found);
    free(arrays[0]);
    free(arrays[1]);
    return status;
}

/* As pg_locks shows it: two unsigned halves, and 1 for a key or 2 for a pair. */
static pqtx_status lock_holders(pqtx_tx *tx, uint32_t high, uint32_t low, int kind,
                                pqtx_blocker *blockers, size_t capacity, size_t *found)
{
    struct job job = {.sql = pqtx__blocker_of_locks,
                      .count = 3,
                      .values = {pqtx_int(high), pqtx_int(low), pqtx_int(kind)},
                      .blockers = blockers,
                      .capacity = capacity};
    if (found)
        *found = 0;
    const char *why = fault_of(&job);
    return why ? refuse(tx, PQTX_MISUSE, why) : ask_within(tx, &job, found);
}

pqtx_status pqtx_lock_holders(pqtx_tx *tx, int64_t key, pqtx_blocker *blockers, size_t capacity,
                              size_t *found)
{
    return lock_holders(tx, (uint32_t)((uint64_t)key >> 32), (uint32_t)key, 1, blockers, capacity,
                        found);
}

pqtx_status pqtx_lock_pair_holders(pqtx_tx *tx, int32_t group, int32_t key, pqtx_blocker *blockers,
                                   size_t capacity, size_t *found)
{
    return lock_holders(tx, (uint32_t)group, (uint32_t)key, 2, blockers, capacity, found);
}
