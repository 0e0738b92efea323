#ifndef PQTX_LIB_BLOCKER_H
#define PQTX_LIB_BLOCKER_H

#include "wire.h"

#include <pqtx/blocker.h>

/* The questions of diagnose.h, each of which is to be asked under this search_path, and their
 * parameters. */
#define PQTX__BLOCKER_PATH "pg_catalog, pg_temp"

extern const char pqtx__blocker_of_pid[];   /* the backend */
extern const char pqtx__blocker_of_all[];   /* none */
extern const char pqtx__blocker_of_rows[];  /* arrays of xmax and tableoid */
extern const char pqtx__blocker_of_locks[]; /* classid, objid and objsubid */

/* One row of an answer. */
void pqtx__blocker_read(const PGresult *answer, int row, pqtx_blocker *blocker);

/* Asks over a connection that does nothing else who blocks the backend, and puts it in words: the
 * one at the root of it.  Empty if there is none, or no answer in time. */
void pqtx__blocker_tell(struct pqtx__wire *wire, int pid, int64_t until_us, char *text,
                        size_t size);

#endif
