/* schema.c: checks a database, and the tables that the caller describes, for what finding.c lists.
 *
 * Each question stands in a savepoint: one that the server refuses, as to a role that may not see a
 * catalogue, becomes a finding itself, and the others are asked. */
#include "error.h"
#include "finding.h"
#include "options.h"
#include "size.h"
#include "tx.h"

#include <pqtx/schema.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OLD_MS 60000

#define PATH "SET LOCAL search_path = pg_catalog, pg_temp"

/* By search_path, or in its schema; NULL if there is no such table. */
#define RESOLVE                                                                                    \
    "SELECT pg_catalog.to_regclass(n.name)::pg_catalog.oid::pg_catalog.int8, n.name FROM"          \
    " pg_catalog.concat_ws('.', pg_catalog.quote_ident($1), pg_catalog.quote_ident($2)) AS "       \
    "n(name)"

/* The library's own. */
#define OWN                                                                                        \
    "SELECT c.oid::int8 FROM pg_class AS c INNER JOIN pg_namespace AS n ON n.oid = c.relnamespace" \
    " WHERE c.relname = 'pqtx_once' AND c.relkind IN ('r', 'p')"                                   \
    " AND n.nspname = coalesce($1::text, n.nspname) AND n.nspname !~ '^pg_'"

static const pqtx_subject own_table = {
    .size = sizeof own_table, .kind = PQTX_SUBJECT_KEYED, .table = "pqtx_once", .key = "id"};

/* What has been found, in an array that grows. */
struct job {
    pqtx_schema schema;
    pqtx_finding *list;
    size_t count, capacity;
    int64_t *oids; /* of the tables described; 0: there is none */
};

/* One question, for one table or the whole database. */
struct question {
    struct job *job;
    const struct pqtx__check *check;
    pqtx_value values[4];
    int count;
    size_t found;
};

static pqtx_finding *add(struct job *job, pqtx_finding_code code, pqtx_severity severity)
{
    if (job->count == job->capacity) {
        size_t capacity = job->capacity ? 2 * job->capacity : 16;
        void *bigger = realloc(job->list, capacity * sizeof *job->list);
        if (!bigger)
            return NULL;
        job->list = bigger;
        job->capacity = capacity;
    }
    pqtx_finding *finding = &job->list[job->count++];
    *finding = (pqtx_finding)PQTX_FINDING;
    finding->code = code;
    finding->severity = severity;
    return finding;
}

#define TEXT(finding, field, from) pqtx__text_copy((finding)->field, sizeof(finding)->field, from)

/* Names and queries are other people's: no control byte reaches a terminal.  False if there was
 * one.
 */
static bool is_plain(char *text)
{
    bool plain = true;
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f) {
            *text = '?';
            plain = false;
        }
    return plain;
}

/* A statement of which a part is missing, or that looks other than it is, must not be run. */
static void write(pqtx_finding *finding, const PGresult *rows, int row, const char *why)
{
    TEXT(finding, object, PQgetvalue(rows, row, 0));
    TEXT(finding, what, PQgetvalue(rows, row, 1));
    TEXT(finding, why, why);
    bool whole = TEXT(finding, mend, PQgetvalue(rows, row, 2));
    if (!is_plain(finding->mend) || !whole)
        finding->mend[0] = '\0';
    is_plain(finding->object);
    is_plain(finding->what);
}

static pqtx_status ask(pqtx_tx *tx, void *arg)
{
    struct question *q = arg;
    const PGresult *rows;
    pqtx_status status = pqtx_exec(tx, q->check->sql, q->count, q->values, &rows);
    for (int i = 0; status == PQTX_OK && i < PQntuples(rows); i++) {
        pqtx_finding *finding = add(q->job, q->check->code, q->check->severity);
        if (!finding)
            return pqtx_fail(tx, PQTX_NO_MEMORY);
        write(finding, rows, i, q->check->why);
        q->found++;
    }
    return status;
}

/* A refusal is the end of this question only; what a savepoint cannot mend ends the run. */
static pqtx_status put(pqtx_tx *tx, pqtx_work work, struct question *q)
{
    pqtx_error error = PQTX_ERROR;
    pqtx_status status = pqtx_savepoint(tx, work, q);
    if (status == PQTX_OK || tx->mark != PQTX_OK || status == PQTX_NO_MEMORY)
        return status;
    pqtx_finding *finding = add(q->job, PQTX_FIND_NOT_SEEN, PQTX_SEVERITY_NOTE);
    if (!finding)
        return PQTX_NO_MEMORY;
    pqtx_get_error(tx, &error);
    TEXT(finding, object, pqtx_finding_name(q->check->code));
    snprintf(finding->what, sizeof finding->what, "the server refused to answer: %.400s",
             error.message);
    is_plain(finding->what);
    TEXT(finding, why, "This was not checked.");
    return PQTX_OK;
}

static const pqtx_subject *table_at(const pqtx_schema *schema, size_t i)
{
    return (const pqtx_subject *)(const void *)((const char *)schema->tables +
                                                i * schema->tables->size);
}

static bool read_table(const pqtx_schema *schema, size_t i, pqtx_subject *table)
{
    const pqtx_subject *theirs = table_at(schema, i);
    *table = (pqtx_subject)PQTX_SUBJECT;
    return theirs->size == schema->tables->size &&
           pqtx__import(table, sizeof *table, theirs, theirs->size) == PQTX_OK;
}

/* ---- the tables */

static pqtx_status check_table(pqtx_tx *tx, struct job *job, const pqtx_subject *table, int64_t oid)
{
    for (size_t i = 0; i < pqtx__check_count; i++) {
        struct question q = {.job = job, .check = &pqtx__checks[i], .count = 4};
        if (!(q.check->kinds & (1u << table->kind)))
            continue;
        q.values[0] = pqtx_int(oid);
        q.values[1] = pqtx_text(table->key);
        q.values[2] = pqtx_text(table->value);
        q.values[3] = pqtx_text(table->order);
        pqtx_status status = put(tx, ask, &q);
        if (status != PQTX_OK)
            return status;
        if (q.check->code == PQTX_FIND_NO_TABLE && q.found > 0)
            break;
    }
    return PQTX_OK;
}

static pqtx_status look_up(pqtx_tx *tx, void *arg)
{
    struct question *q = arg;
    const PGresult *row;
    int64_t oid;
    pqtx_status status = pqtx_exec_one(tx, RESOLVE, 2, q->values, &row);
    if (status == PQTX_OK && pqtx_get_int(row, 0, 0, &oid) == PQTX_OK) {
        q->found = (size_t)oid;
    } else if (status == PQTX_OK) {
        pqtx_finding *finding = add(q->job, q->check->code, q->check->severity);
        if (!finding)
            return pqtx_fail(tx, PQTX_NO_MEMORY);
        TEXT(finding, object, PQgetvalue(row, 0, 1));
        is_plain(finding->object);
        TEXT(finding, what, "there is no such table, or it is not in the search_path");
        TEXT(finding, why, q->check->why);
    }
    return status;
}

/* Before the search_path is set: whoever leaves the schema out means the caller's. */
static pqtx_status resolve(pqtx_tx *tx, struct job *job)
{
    pqtx_status status = PQTX_OK;
    for (size_t i = 0; status == PQTX_OK && i < job->schema.table_count; i++) {
        struct question q = {.job = job, .check = &pqtx__checks[0]};
        pqtx_subject table;
        read_table(&job->schema, i, &table);
        q.values[0] = pqtx_text(table.schema);
        q.values[1] = pqtx_text(table.table);
        status = put(tx, look_up, &q);
        job->oids[i] = (int64_t)q.found;
    }
    return status;
}

static pqtx_status check_tables(pqtx_tx *tx, struct job *job)
{
    pqtx_status status = PQTX_OK;
    for (size_t i = 0; status == PQTX_OK && i < job->schema.table_count; i++) {
        pqtx_subject table;
        read_table(&job->schema, i, &table);
        if (job->oids[i] != 0)
            status = check_table(tx, job, &table, job->oids[i]);
    }
    const PGresult *own = NULL;
    if (status == PQTX_OK)
        status = pqtx_exec(tx, OWN, PQTX_ARGS(PQTX_TEXT(job->schema.schema)), &own);
    for (int i = 0; status == PQTX_OK && i < PQntuples(own); i++) {
        int64_t oid = 0;
        pqtx_get_int(own, i, 0, &oid);
        status = check_table(tx, job, &own_table, oid);
    }
    return status;
}

/* ---- all of it */

static pqtx_status check_database(pqtx_tx *tx, struct job *job)
{
    pqtx_status status = PQTX_OK;
    for (size_t i = 0; status == PQTX_OK && i < pqtx__check_count; i++) {
        struct question q = {.job = job, .check = &pqtx__checks[i], .count = 2};
        q.values[0] = pqtx_text(job->schema.schema);
        q.values[1] = pqtx_int(job->schema.old_ms);
        if (q.check->kinds == 0)
            status = put(tx, ask, &q);
    }
    return status;
}

static pqtx_status check(pqtx_tx *tx, void *arg)
{
    struct job *job = arg;
    job->count = 0;
    pqtx_status status = resolve(tx, job);
    if (status == PQTX_OK)
        status = pqtx_exec(tx, PATH, PQTX_NO_ARGS, NULL);
    if (status == PQTX_OK)
        status = check_tables(tx, job);
    return status == PQTX_OK ? check_database(tx, job) : status;
}

/* The worst first, of equal ones in the order of their codes, which is an order to mend them in. */
static int compare(const void *a, const void *b)
{
    const pqtx_finding *left = a, *right = b;
    if (left->severity != right->severity)
        return left->severity > right->severity ? -1 : 1;
    if (left->code != right->code)
        return left->code < right->code ? -1 : 1;
    return strcmp(left->object, right->object);
}

static void hand_out(struct job *job, pqtx_finding *findings, size_t capacity)
{
    size_t size = capacity > 0 ? findings->size : 0;
    if (job->count > 0)
        qsort(job->list, job->count, sizeof *job->list, compare);
    for (size_t i = 0; i < job->count && i < capacity; i++) {
        char *theirs = (char *)findings + i * size;
        job->list[i].size = size;
        if (size > sizeof *job->list)
            memset(theirs, 0, size);
        memcpy(theirs, &job->list[i], size < sizeof *job->list ? size : sizeof *job->list);
    }
}

static const char *fault_of(const pqtx_schema *schema, const pqtx_finding *findings,
                            size_t capacity)
{
    if (capacity > 0 && !findings)
        return "the findings are NULL";
    if (capacity > 0 && (findings->size < sizeof(size_t) || findings->size > PQTX__SIZE_MAX))
        return "the first finding has no size (start from PQTX_FINDING)";
    if (schema->old_ms < 0)
        return "schema.old_ms is negative";
    if (schema->table_count > 0 && !schema->tables)
        return "schema.tables is NULL";
    for (size_t i = 0; i < schema->table_count; i++) {
        pqtx_subject table;
        if (!read_table(schema, i, &table))
            return "a table has no size (start from PQTX_SUBJECT), or another one than the first";
        if (table.kind < PQTX_SUBJECT_KEYED || table.kind > PQTX_SUBJECT_INTERVALS ||
            table.reserved)
            return "a table's kind is none of PQTX_SUBJECT_…, or its reserved is not 0";
        if (!table.table || !*table.table)
            return "a table has no name";
    }
    return NULL;
}

static pqtx_status run(pqtx_pool *pool, const pqtx_options *options, struct job *job,
                       pqtx_error *error)
{
    pqtx_options own = PQTX_OPTIONS;
    if (options && pqtx__import(&own, sizeof own, options, options->size) != PQTX_OK)
        return pqtx_run(pool, options, check, job, error); /* which says what is wrong with them */
    if (own.isolation == PQTX_ISO_DEFAULT)
        own.isolation = PQTX_ISO_READ_COMMITTED;
    if (own.access == PQTX_ACCESS_DEFAULT)
        own.access = PQTX_ACCESS_READ_ONLY;
    own.flags &= ~PQTX_PIPELINE; /* each answer is looked at */
    job->oids = calloc(job->schema.table_count + 1, sizeof *job->oids);
    if (!job->oids)
        return pqtx__error_report(error, PQTX_NO_MEMORY, "no memory for the tables");
    return pqtx_run(pool, &own, check, job, error);
}

pqtx_status pqtx_check_schema(pqtx_pool *pool, const pqtx_options *options,
                              const pqtx_schema *schema, pqtx_finding *findings, size_t capacity,
                              size_t *found, pqtx_severity *worst, pqtx_error *error)
{
    struct job job = {.schema = PQTX_SCHEMA};
    if (found)
        *found = 0;
    if (worst)
        *worst = PQTX_SEVERITY_NONE;
    const char *why = "the schema has no size (start from PQTX_SCHEMA), or comes from a newer "
                      "version and uses what this one does not know";
    if (!schema || pqtx__import(&job.schema, sizeof job.schema, schema, schema->size) == PQTX_OK)
        why = fault_of(&job.schema, findings, capacity);
    if (why)
        return pqtx__error_report(error, PQTX_MISUSE, why);
    if (job.schema.old_ms == 0)
        job.schema.old_ms = OLD_MS;
    pqtx_status status = run(pool, options, &job, error);
    if (status == PQTX_OK) {
        hand_out(&job, findings, capacity);
        if (found)
            *found = job.count;
        if (worst && job.count > 0)
            *worst = job.list[0].severity;
    }
    free(job.list);
    free(job.oids);
    return status;
}
