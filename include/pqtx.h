/* pqtx.h: safe concurrent writes to PostgreSQL, over libpq.
 *
 * Read in this order: run.h (the loop), tx.h (statements in it), update.h, insert.h, rowlock.h and
 * lock.h (helpers), then status.h for what can come back.  pqtx(7) is the tour. */
#ifndef PQTX_H
#define PQTX_H

#define PQTX_VERSION_MAJOR 0
#define PQTX_VERSION_MINOR 1
#define PQTX_VERSION_PATCH 0

#include <pqtx/api.h>
#include <pqtx/blocker.h>
#include <pqtx/clock.h>
#include <pqtx/counter.h>
#include <pqtx/diagnose.h>
#include <pqtx/error.h>
#include <pqtx/evidence.h>
#include <pqtx/fault.h>
#include <pqtx/finding.h>
#include <pqtx/gate.h>
#include <pqtx/group.h>
#include <pqtx/insert.h>
#include <pqtx/leader.h>
#include <pqtx/lock.h>
#include <pqtx/observer.h>
#include <pqtx/once.h>
#include <pqtx/one.h>
#include <pqtx/options.h>
#include <pqtx/pipeline.h>
#include <pqtx/pool.h>
#include <pqtx/resolve.h>
#include <pqtx/rowlock.h>
#include <pqtx/run.h>
#include <pqtx/schema.h>
#include <pqtx/serializable.h>
#include <pqtx/shard.h>
#include <pqtx/status.h>
#include <pqtx/table.h>
#include <pqtx/tally.h>
#include <pqtx/ticket.h>
#include <pqtx/tx.h>
#include <pqtx/update.h>
#include <pqtx/value.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version that runs, "0.1.0"; the macros above are the one that was compiled against. */
PQTX_API const char *pqtx_version(void);

#ifdef __cplusplus
}
#endif

#endif
