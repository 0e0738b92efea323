/* one.h: single statements, each a transaction of its own: one, or many at once.
 *
 * Everything that a transaction has is there: lock_timeout, the whole attempt again after a lost
 * race, the deadline, the proof of the outcome, all by pqtx_options; and a statement takes one
 * round trip, its COMMIT, the check of its rows and an event's row (once.h) included (see
 * pipeline.h for how, and for what cannot: a count that the server cannot check in the same flight
 * costs a second one). */
#ifndef PQTX_ONE_H
#define PQTX_ONE_H

#include <pqtx/pipeline.h>
#include <pqtx/pool.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PQTX_ANY_ROWS (-1)

/* Runs one statement with $1 … $count and commits it, if it returns or affects as many rows as
 * `expected`; PQTX_ANY_ROWS takes any number.  PQTX_NO_MATCH (too few) and PQTX_TOO_MANY roll back.
 *
 * *result (or NULL) gets the answer, the caller's to PQclear(); NULL unless PQTX_OK, and even then
 * where the answer was lost and the outcome found out, by token or event_id.  Where a count was
 * expected and the statement has no RETURNING, there is nothing in it, its tag included.
 * Returns what pqtx_run() would. */
PQTX_API pqtx_status pqtx_run_one(pqtx_pool *pool, const pqtx_options *options, const char *sql,
                                  int count, const pqtx_value *values, int64_t expected,
                                  PGresult **result, pqtx_error *error);

/* One of many: what to run, and what it came to. */
typedef struct pqtx_item {
    size_t size; /* start from PQTX_ITEM; the same in all items of an array */
    const char *sql;
    const pqtx_value *values;
    int32_t count;
    uint32_t attempts; /* out, as all that follow `expected` */
    int64_t expected;  /* rows, or PQTX_ANY_ROWS */

    pqtx_status status;
    pqtx_outcome outcome;
    uint32_t flags;    /* PQTX_LOCAL_ONLY, … */
    uint32_t reserved; /* 0 */
    int64_t rows;      /* returned or affected */
    PGresult *result;  /* the caller's to PQclear(), or NULL */
} pqtx_item;

/* clang-format off */
#ifdef __cplusplus
#define PQTX_ITEM {sizeof(pqtx_item)}
#else
#define PQTX_ITEM {.size = sizeof(pqtx_item)}
#endif
/* clang-format on */

/* Runs many statements, each a transaction by itself, up to 64 under way at once on one connection:
 * a round trip for all of them, where each alone would take one.  One that fails does not keep the
 * others from committing; one that lost a race is begun again by itself.  They are independent: in
 * which order they commit is not said, and two of them must not wait for one another's locks.  The
 * deadline counts anew for each 64.
 *
 * PQTX_OK if all of them committed; else the status of the first that did not, `error` (or NULL) is
 * its error, and error->call its place, from 1.  An event_id in the options is PQTX_MISUSE: it
 * would stand for all of them.  Where call is 0, items that were not touched keep
 * PQTX_OUTCOME_OPEN. */
PQTX_API pqtx_status pqtx_run_each(pqtx_pool *pool, const pqtx_options *options, pqtx_item *items,
                                   size_t item_count, pqtx_error *error);

#ifdef __cplusplus
}
#endif

#endif
