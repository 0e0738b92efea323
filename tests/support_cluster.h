/* support_cluster.h: a primary, its hot standby, and what becomes of them.  For programs that run
 * under tests/with-cluster. */
#ifndef PQTX_TESTS_SUPPORT_CLUSTER_H
#define PQTX_TESTS_SUPPORT_CLUSTER_H

#include <pqtx.h>

#include <libpq-fe.h>

/* The two servers themselves; test_conninfo() names both, and leads to the one that takes writes.
 */
const char *primary_conninfo(void);
const char *standby_conninfo(void);

/* Runs tests/cluster: "renew", "promote", "crash primary", …; the test fails if that fails. */
void cluster_do(const char *deed);

pqtx_pool *cluster_pool(const char *conninfo);
PGconn *cluster_session(const char *conninfo);

/* Asks the standby until the query, of one boolean, answers true.  Replay cancels what is in its
 * way, even such a question: then it is asked again. */
void cluster_wait(PGconn *standby, const char *query);

/* Waits until the standby shows what the primary has committed so far. */
void cluster_catch_up(PGconn *primary, PGconn *standby);

/* From now on a COMMIT on the primary waits until the standby shows it. */
void cluster_confirm(PGconn *primary);

/* From now on the standby gets nothing any more. */
void cluster_detach(PGconn *standby);

#endif
