/* support_pooler.h: the way through PgBouncer.  For programs that run under tests/with-pooler;
 * test_conninfo() is the server itself. */
#ifndef PQTX_TESTS_SUPPORT_POOLER_H
#define PQTX_TESTS_SUPPORT_POOLER_H

#include <pqtx.h>

#include <libpq-fe.h>

/* With four connections behind it, or with one: there who comes next gets the session that was used
 * before.  A pooler takes no search_path from its clients: statements name the schema. */
const char *pooler_conninfo(void);
const char *pooler_one_conninfo(void);

pqtx_pool *pooler_pool(const char *conninfo, int max_count);
PGconn *pooler_session(const char *conninfo);

/* How many clients it has in this database of its own. */
int pooler_clients(const char *database);

/* A command for its console: "RECONNECT", "PAUSE pooled", … */
void pooler_do(const char *command);

/* Kills the pooler without a word, and waits until its successor takes connections. */
void pooler_kill(void);

/* Ends the backends that still work for a client that is gone: no pooler ends them. */
void pooler_end_orphans(PGconn *monitor);

#endif
