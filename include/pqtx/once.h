/* once.h: never twice: an id recorded in the same transaction as the work.
 *
 * The library's table (see pqtx_once_ddl()) holds one row for each event id that was applied.  With
 * pqtx_options.event_id an attempt begins by writing that row: a second run with the same id waits
 * for the first, within lock_timeout, and then returns PQTX_DONE_BEFORE without running its body.
 * Row and work commit together or not at all, so the id is never "in progress" for ever.
 * In pqtx_run_one() and pqtx_run() alike; in the former the row costs no round trip of its own.
 *
 * The same table proves what became of a COMMIT whose answer was lost: see resolve.h.
 * Sound at every isolation level. */
#ifndef PQTX_ONCE_H
#define PQTX_ONCE_H

#include <pqtx/pool.h>
#include <pqtx/tx.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The table pqtx_once, in the schema that is first in the search_path of whoever runs this: static
 * text, idempotent.  Run it with your migrations, or by pqtx_once_install(). */
PQTX_API const char *pqtx_once_ddl(void);

/* Creates the table in this schema (NULL: "public") if it is not there. */
PQTX_API pqtx_status pqtx_once_install(pqtx_pool *pool, const char *schema, pqtx_error *error);

/* In the body of a run with an event id: stores a small answer, at most 65535 bytes, that later
 * runs with the same id get.  The last call of the attempt counts. */
PQTX_API pqtx_status pqtx_once_store(pqtx_tx *tx, const void *bytes, size_t len);

/* After PQTX_DONE_BEFORE (or a commit): the stored answer.  Copies at most `size` bytes, *len is
 * the whole length, 0 if none was stored.  PQTX_TOO_MANY, with nothing copied, if it does not fit.
 * For the loop: pqtx_run() leaves no handle to ask. */
PQTX_API pqtx_status pqtx_once_answer(const pqtx_tx *tx, void *buffer, size_t size, size_t *len);

/* Deletes ids older than `age_s` seconds, at most `batch` (0: 1000) of them in a transaction of its
 * own; *deleted (or NULL) is how many.  Keep ids for longer than any client may try again, any
 * transaction may last and any ticket is kept: an id that is gone can be applied anew, and a token
 * that is gone resolves to "rolled back".  Several reapers do not wait for one another. */
PQTX_API pqtx_status pqtx_once_reap(pqtx_pool *pool, const char *schema, int64_t age_s,
                                    int64_t batch, int64_t *deleted, pqtx_error *error);

#ifdef __cplusplus
}
#endif

#endif
