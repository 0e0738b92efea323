/* counter.h: counters: rows with a key and an integer, in a table of yours.
 *
 * The server does the sum, on the newest version of the row and under its lock, so no increment is
 * lost, however many sessions add at once.  Sound at every isolation level; but at REPEATABLE READ
 * and SERIALIZABLE whoever had to wait for the row begins again (measured: four of five on one hot
 * row), so counters belong in READ COMMITTED.
 *
 * Each call comes twice: in the body of a transaction, waiting or in pipeline mode (pipeline.h),
 * and as ..._now(), a transaction of its own that takes one round trip.  With options.event_id the
 * latter is applied once, however often it is asked for (once.h), also when the answer was lost:
 * ask again with the same id, and PQTX_DONE_BEFORE says that it counted.  What ended with a failure
 * or an answer leaves no event behind.
 *
 * A value that goes past the end of its column's type is an error, PQTX_BAD_DATA with 22003, and
 * changes nothing; it never wraps.
 *
 * One row is as fast as its lock is free: who holds it longer (more statements before COMMIT, a
 * long line to the server, a slow disk) holds up all others.  For what comes next see group.h (many
 * threads of one program, exact), tally.h (increments that may be late, or lost in a crash) and
 * shard.h (several rows). */
#ifndef PQTX_COUNTER_H
#define PQTX_COUNTER_H

#include <pqtx/pool.h>
#include <pqtx/tx.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What the key column holds, and with what a key is given. */
typedef enum pqtx_key_type {
    PQTX_KEY_TEXT = 0, /* text or varchar; PQTX_TEXT */
    PQTX_KEY_INT = 1,  /* smallint, integer or bigint; PQTX_INT */
    PQTX_KEY_UUID = 2, /* uuid; PQTX_TEXT, in any of the ways to write one */
    PQTX_KEY_MAX = 0x7fffffff
} pqtx_key_type;

/* pqtx_counter.flags */

/* The ready-made table refuses values below 0.  A value is lessened by pqtx_counter_take(), which
 * never meets that CHECK; a negative delta may meet it, PQTX_CHECK, and at READ COMMITTED even on a
 * version of the row that has just been replaced. */
#define PQTX_COUNTER_BOUNDED 0x1u

/* Where the counters are.  Names are quoted, schema and table apart, so capitals and reserved words
 * are welcome.  The key column needs a unique index of its own; the value column is bigint or
 * integer, NOT NULL, and must not be indexed (no update would be HOT); other columns need
 * defaults.  A row whose value is NULL is no counter. */
typedef struct pqtx_counter {
    size_t size;
    const char *schema; /* NULL: search_path decides */
    const char *table;  /* NULL: "counter" */
    const char *key;    /* NULL: "key" */
    const char *value;  /* NULL: "value" */
    pqtx_key_type key_type;
    uint32_t flags;
} pqtx_counter;

#define PQTX_COUNTER PQTX_SIZED(pqtx_counter)

/* What *value is until the answer comes; and what it stays, after PQTX_OK, where the answer was
 * lost and it was found out afterwards that the increment is committed. */
#define PQTX_VALUE_UNKNOWN INT64_MIN

/* Writes the CREATE TABLE of such a table, idempotent, as snprintf does: at most `size` bytes,
 * always terminated if size > 0, and returns the length it would have without the limit; 0 if the
 * counter is not valid.  fillfactor 50: under an old snapshot, which keeps dead versions alive,
 * 64 % of the updates were HOT, and 25 % at 100.  Autovacuum has nothing to do where all are. */
PQTX_API size_t pqtx_counter_ddl(const pqtx_counter *counter, char *buffer, size_t size);

/* Creates it, if it is not there. */
PQTX_API pqtx_status pqtx_counter_install(pqtx_pool *pool, const pqtx_counter *counter,
                                          pqtx_error *error);

/* In all that follow: `value` may be NULL; in pipeline mode *value is set when the flight lands,
 * and must live as long.  Any status but PQTX_OK marks the attempt; run it in a savepoint to go on
 * after one.
 *
 * Adds `delta` to the counter, which begins at 0 if it is not there: *value is what it has then.
 * UPDATE first and INSERT … ON CONFLICT only for a new row, so a column with a sequence loses no
 * numbers.  PQTX_NO_MATCH: a trigger or a policy kept the row back, or its value is NULL. */
PQTX_API pqtx_status pqtx_counter_add(pqtx_tx *tx, const pqtx_counter *counter, pqtx_value key,
                                      int64_t delta, int64_t *value);

/* The same for one that is there: PQTX_NOT_FOUND. */
PQTX_API pqtx_status pqtx_counter_bump(pqtx_tx *tx, const pqtx_counter *counter, pqtx_value key,
                                       int64_t delta, int64_t *value);

/* Takes n, from 1 up, if as much is left.  PQTX_EXHAUSTED: the counter is there and has less;
 * PQTX_NOT_FOUND: it is not there.  *value is what is left, also with PQTX_EXHAUSTED.  Each verdict
 * rests on one committed state of the row, in one round trip, and no lock is kept where nothing was
 * taken.  PQTX_BUSY if the row was replaced again and again meanwhile. */
PQTX_API pqtx_status pqtx_counter_take(pqtx_tx *tx, const pqtx_counter *counter, pqtx_value key,
                                       int64_t n, int64_t *value);

/* PQTX_NOT_FOUND: it is not there. */
PQTX_API pqtx_status pqtx_counter_get(pqtx_tx *tx, const pqtx_counter *counter, pqtx_value key,
                                      int64_t *value);

/* Sets it to `wanted` if it is `expected`.  PQTX_CONDITION_FALSE: it is another, which is *value;
 * PQTX_NOT_FOUND, PQTX_BUSY as above. */
PQTX_API pqtx_status pqtx_counter_set_if(pqtx_tx *tx, const pqtx_counter *counter, pqtx_value key,
                                         int64_t expected, int64_t wanted, int64_t *value);

/* One of many. */
typedef struct pqtx_increment {
    pqtx_value key;
    int64_t delta;
} pqtx_increment;

/* Adds to many counters, as pqtx_counter_add() does, in one statement.  Equal keys are added up,
 * and the rows are locked in one order, whoever calls (integers by size, texts and uuids bytewise),
 * so callers with the same keys in any order cannot deadlock.  values[i], unless `values` is NULL,
 * is what the counter of increments[i] has when all is added.  count 0 is PQTX_OK.
 *
 * It is INSERT … ON CONFLICT DO UPDATE throughout: a column with a sequence loses a number per key
 * and call.  PQTX_BAD_DATA also for a sum of deltas of one key that does not fit into 64 bits. */
PQTX_API pqtx_status pqtx_counter_add_many(pqtx_tx *tx, const pqtx_counter *counter,
                                           const pqtx_increment *increments, size_t count,
                                           int64_t *values);

/* The same, each a transaction of its own, run as pqtx_run() runs one. */
PQTX_API pqtx_status pqtx_counter_add_now(pqtx_pool *pool, const pqtx_options *options,
                                          const pqtx_counter *counter, pqtx_value key,
                                          int64_t delta, int64_t *value, pqtx_error *error);
PQTX_API pqtx_status pqtx_counter_bump_now(pqtx_pool *pool, const pqtx_options *options,
                                           const pqtx_counter *counter, pqtx_value key,
                                           int64_t delta, int64_t *value, pqtx_error *error);
PQTX_API pqtx_status pqtx_counter_take_now(pqtx_pool *pool, const pqtx_options *options,
                                           const pqtx_counter *counter, pqtx_value key, int64_t n,
                                           int64_t *value, pqtx_error *error);
PQTX_API pqtx_status pqtx_counter_get_now(pqtx_pool *pool, const pqtx_options *options,
                                          const pqtx_counter *counter, pqtx_value key,
                                          int64_t *value, pqtx_error *error);
PQTX_API pqtx_status pqtx_counter_set_if_now(pqtx_pool *pool, const pqtx_options *options,
                                             const pqtx_counter *counter, pqtx_value key,
                                             int64_t expected, int64_t wanted, int64_t *value,
                                             pqtx_error *error);
PQTX_API pqtx_status pqtx_counter_add_many_now(pqtx_pool *pool, const pqtx_options *options,
                                               const pqtx_counter *counter,
                                               const pqtx_increment *increments, size_t count,
                                               int64_t *values, pqtx_error *error);

#ifdef __cplusplus
}
#endif

#endif
