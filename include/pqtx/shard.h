/* shard.h: one counter in several rows, its slots, so that sessions need not wait for one another.
 *
 * For a counter that many programs change at once, each holding the row for a while.  Its value is
 * the sum of the slots.  Where all who add are threads of one program, group.h is faster and exact,
 * and one row is simpler: measured with 8 clients and a disk that is waited for, 8 slots
 * carried 4.8 times the increments of one row, and a stock of 8 slots was sold 2.2 times as fast.
 *
 * Each call comes in the body of a transaction and as ..._now(), as in counter.h; so do the events.
 * Sound at every isolation level, best at READ COMMITTED. */
#ifndef PQTX_SHARD_H
#define PQTX_SHARD_H

#include <pqtx/counter.h>

#ifdef __cplusplus
extern "C" {
#endif

/* As pqtx_counter, but for a table with a slot column and a unique index over key and slot. */
typedef struct pqtx_shards {
    size_t size;
    const char *schema; /* NULL: search_path decides */
    const char *table;  /* NULL: "counter_slot" */
    const char *key;    /* NULL: "key" */
    const char *slot;   /* NULL: "slot"; integer */
    const char *value;  /* NULL: "value" */
    pqtx_key_type key_type;
    uint32_t flags;     /* PQTX_COUNTER_BOUNDED: the ready-made table refuses slots below 0 */
    int32_t slot_count; /* 1 … 1000; 0: 8.  May be changed at any time: what stands in slots beyond
                         * it is still counted and taken */
    uint32_t reserved;  /* 0 */
} pqtx_shards;

#define PQTX_SHARDS PQTX_SIZED(pqtx_shards)

/* As pqtx_counter_ddl() and pqtx_counter_install(). */
PQTX_API size_t pqtx_shards_ddl(const pqtx_shards *shards, char *buffer, size_t size);
PQTX_API pqtx_status pqtx_shards_install(pqtx_pool *pool, const pqtx_shards *shards,
                                         pqtx_error *error);

/* Adds to the slot of the server's process that runs it, which is made if it is not there.  A slot
 * can fall below 0 by that, unless the table forbids it; a stock is lessened by pqtx_shards_take().
 * PQTX_NO_MATCH as in pqtx_counter_add(). */
PQTX_API pqtx_status pqtx_shards_add(pqtx_tx *tx, const pqtx_shards *shards, pqtx_value key,
                                     int64_t delta);

/* Adds `amount`, from 0 up, spread evenly over all slots, which are made: how a stock begins.  It
 * locks them in order. */
PQTX_API pqtx_status pqtx_shards_fill(pqtx_tx *tx, const pqtx_shards *shards, pqtx_value key,
                                      int64_t amount);

/* Takes n, from 1 up, never more than there is: from a slot that nobody holds and that has as much;
 * else from one that has, after waiting for it; else from several, which are locked in order.  For
 * that no slot may be below 0.  PQTX_EXHAUSTED: all of them together have less; PQTX_NOT_FOUND:
 * there are none.  PQTX_BUSY, a lost race, if slots were deleted meanwhile. */
PQTX_API pqtx_status pqtx_shards_take(pqtx_tx *tx, const pqtx_shards *shards, pqtx_value key,
                                      int64_t n);

/* *value is the sum, of one moment.  PQTX_NOT_FOUND: there are no slots. */
PQTX_API pqtx_status pqtx_shards_sum(pqtx_tx *tx, const pqtx_shards *shards, pqtx_value key,
                                     int64_t *value);

/* The same, each a transaction of its own, in one round trip. */
PQTX_API pqtx_status pqtx_shards_add_now(pqtx_pool *pool, const pqtx_options *options,
                                         const pqtx_shards *shards, pqtx_value key, int64_t delta,
                                         pqtx_error *error);
PQTX_API pqtx_status pqtx_shards_fill_now(pqtx_pool *pool, const pqtx_options *options,
                                          const pqtx_shards *shards, pqtx_value key, int64_t amount,
                                          pqtx_error *error);
PQTX_API pqtx_status pqtx_shards_take_now(pqtx_pool *pool, const pqtx_options *options,
                                          const pqtx_shards *shards, pqtx_value key, int64_t n,
                                          pqtx_error *error);
PQTX_API pqtx_status pqtx_shards_sum_now(pqtx_pool *pool, const pqtx_options *options,
                                         const pqtx_shards *shards, pqtx_value key, int64_t *value,
                                         pqtx_error *error);

#ifdef __cplusplus
}
#endif

#endif
