/* schema.h: whether a database can keep what the calls of this library rely on.
 *
 * What is a counter and what a queue, no catalogue says: the caller describes the tables.  The
 * library's own are known by their names, pqtx_once in any schema.  Functions, settings, old
 * transactions and replication slots are looked at in the whole database.
 *
 * Any role may ask.  What it is not shown is a finding too, PQTX_FIND_NOT_SEEN: with
 * pg_read_all_stats, that is nothing.  Functions are judged by their text, in SQL and PL/pgSQL;
 * what they do by EXECUTE is not seen.  Nothing is changed, and no function of the database is
 * called. */
#ifndef PQTX_SCHEMA_H
#define PQTX_SCHEMA_H

#include <pqtx/finding.h>
#include <pqtx/run.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum pqtx_subject_kind {
    PQTX_SUBJECT_KEYED = 1,   /* rows are found, or made, by their key */
    PQTX_SUBJECT_COUNTER = 2, /* and `value` is added to */
    PQTX_SUBJECT_STOCK = 3,   /* and must not go below 0 */
    PQTX_SUBJECT_QUEUE = 4,   /* jobs, claimed in `order`; `value` is the time that a lease ends */
    PQTX_SUBJECT_INTERVALS = 5, /* of one key, no two ranges in `value` may overlap */
    PQTX_SUBJECT_KIND_MAX = 0x7fffffff
} pqtx_subject_kind;

/* Column lists are separated by commas, "tenant,name"; the names are taken as they are, in their
 * own case and without quotes.  An absent list is NULL: what is about it is not checked. */
typedef struct pqtx_subject {
    size_t size; /* start from PQTX_SUBJECT; the same in all tables of an array */
    pqtx_subject_kind kind;
    uint32_t reserved;  /* 0 */
    const char *schema; /* NULL: search_path decides */
    const char *table;
    const char *key;
    const char *value;
    const char *order;
} pqtx_subject;

#define PQTX_SUBJECT PQTX_SIZED(pqtx_subject)

typedef struct pqtx_schema {
    size_t size;
    const pqtx_subject *tables;
    size_t table_count;
    const char *schema; /* functions and the library's tables only of this one; NULL: of all */
    int64_t old_ms;     /* sessions and transactions from this age on; 0: 60000 */
} pqtx_schema;

#define PQTX_SCHEMA PQTX_SIZED(pqtx_schema)

/* Looks, in one read-only transaction, and writes what it finds into the caller's array, the worst
 * first; findings[0].size is set (start from PQTX_FINDING).  *found (or NULL) is how many there
 * are, which can be more than `capacity`: those are left out.  With capacity 0 the array may be
 * NULL; `schema` may be NULL.  *worst (or NULL) is the greatest severity of all.
 *
 * PQTX_OK whatever is found; else what pqtx_run() would return, or PQTX_MISUSE. */
PQTX_API pqtx_status pqtx_check_schema(pqtx_pool *pool, const pqtx_options *options,
                                       const pqtx_schema *schema, pqtx_finding *findings,
                                       size_t capacity, size_t *found, pqtx_severity *worst,
                                       pqtx_error *error);

#ifdef __cplusplus
}
#endif

#endif
