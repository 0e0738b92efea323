/* tally.h: increments that are added up in memory and written now and then.
 *
 * For counts that may be late, and of which a crash may lose the last ones: page views, hits,
 * bytes. pqtx_tally_add() most often only adds in memory.  The library has no thread of its own: a
 * tally is written ("flushed") inside pqtx_tally_add() when it is full or old, by
 * pqtx_tally_flush(), which a host calls from its timer, and by pqtx_tally_close().
 *
 * A flush is one transaction, pqtx_counter_add_many_now(), with an event id that is drawn for what
 * is in it and kept until that is written: a flush that failed or is in doubt is asked for again,
 * and is applied once.  It needs the table pqtx_once (once.h).
 *
 * What a crash loses: what was added since the last flush that succeeded: at most twice max_count
 * increments.  Nothing is counted twice.  Isolation as in counter.h. */
#ifndef PQTX_TALLY_H
#define PQTX_TALLY_H

#include <pqtx/counter.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pqtx_tally pqtx_tally;

/* Told of the sum for one key that the database has refused for good (PQTX_BAD_DATA for an
 * overflow, PQTX_CHECK, …): it is not kept.  On the thread that flushes; it must not call into the
 * tally. */
typedef void (*pqtx_tally_refused)(void *arg, const pqtx_increment *increment,
                                   const pqtx_error *error);

typedef struct pqtx_tally_options {
    size_t size;

    /* How a flush runs, or NULL.  Copied, but not what it points to, which must outlive the tally.
     * event_id, evidence and ticket are PQTX_MISUSE. */
    const pqtx_options *run;

    int32_t max_count; /* increments in one flush; 0: 10000 */
    int32_t max_keys;  /* different keys in one flush, each of at most 1024 bytes; 0: 1000 */
    int64_t max_ms;    /* older than that: written by whoever adds next; 0: 1000 */
    int64_t again_ms;  /* after a flush that failed none is tried by pqtx_tally_add(); 0: 1000 */

    pqtx_tally_refused refused; /* or NULL */
    void *refused_arg;
} pqtx_tally_options;

#define PQTX_TALLY_OPTIONS PQTX_SIZED(pqtx_tally_options)

/* A tally for the counters of a table.  Thread-safe.  `counter` is copied with its names; `options`
 * may be NULL.  The pool must outlive the tally. */
PQTX_API pqtx_status pqtx_tally_open(pqtx_pool *pool, const pqtx_counter *counter,
                                     const pqtx_tally_options *options, pqtx_tally **tally,
                                     pqtx_error *error);

/* Adds.  PQTX_OK: it is taken, whatever became of a flush that this call made.  Else it is not:
 * with the status of a failed flush where there is no room, PQTX_TIMEOUT after waiting for one as
 * long as the options' deadline says, PQTX_BAD_DATA where the sum of one key does not fit into 64
 * bits, PQTX_STOPPED while it is being closed, PQTX_NO_MEMORY, PQTX_MISUSE. */
PQTX_API pqtx_status pqtx_tally_add(pqtx_tally *tally, pqtx_value key, int64_t delta,
                                    pqtx_error *error);

/* Writes all that was added before this call.  PQTX_OK: it is committed.  Else the status of the
 * flush that failed, of which nothing is lost: call again.  Or that of a refused sum, which is
 * gone, while all else is written. */
PQTX_API pqtx_status pqtx_tally_flush(pqtx_tally *tally, pqtx_error *error);

/* Flushes, waits until all who are inside have left, and frees it, whatever became of the flush;
 * its status is returned.  So where nothing must be lost, call pqtx_tally_flush() first until it is
 * PQTX_OK.  NULL is harmless. */
PQTX_API pqtx_status pqtx_tally_close(pqtx_tally *tally, pqtx_error *error);

#ifdef __cplusplus
}
#endif

#endif
