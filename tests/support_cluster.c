/* support_cluster.c: a primary, its hot standby, and what becomes of them. */
#define _DEFAULT_SOURCE
#include "support_cluster.h"
#include "support.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *given(const char *name)
{
    const char *value = getenv(name);
    ck_assert_msg(value, "%s is not set: run me under tests/with-cluster", name);
    return value;
}

const char *primary_conninfo(void)
{
    return given("PQTX_TEST_PRIMARY");
}

const char *standby_conninfo(void)
{
    return given("PQTX_TEST_STANDBY");
}

void cluster_do(const char *deed)
{
    char command[512];
    snprintf(command, sizeof command, "'%s' %s", given("PQTX_TEST_CLUSTER"), deed);
    ck_assert_msg(system(command) == 0, "failed: %s", command);
}

pqtx_pool *cluster_pool(const char *conninfo)
{
    pqtx_pool_options options = PQTX_POOL_OPTIONS;
    pqtx_error error = PQTX_ERROR;
    pqtx_pool *pool;
    options.conninfo = conninfo;
    assert_status(pqtx_pool_open(&options, &pool, &error), PQTX_OK, &error);
    return pool;
}

static void ignore(void *arg, const PGresult *notice)
{
    (void)arg;
    (void)notice;
}

PGconn *cluster_session(const char *conninfo)
{
    PGconn *session = PQconnectdb(conninfo);
    ck_assert_msg(PQstatus(session) == CONNECTION_OK, "%s", PQerrorMessage(session));
    PQsetNoticeReceiver(session, ignore, NULL);
    return session;
}

void cluster_wait(PGconn *standby, const char *query)
{
    for (int i = 0; i < 6000; i++) {
        PGresult *result = PQexec(standby, query);
        bool answered = PQresultStatus(result) == PGRES_TUPLES_OK;
        bool yes = answered && strcmp(PQgetvalue(result, 0, 0), "t") == 0;
        const char *sqlstate = PQresultErrorField(result, PG_DIAG_SQLSTATE);
        bool cancelled = sqlstate && strcmp(sqlstate, "40001") == 0;
        PQclear(result);
        ck_assert_msg(answered || cancelled, "%s\n%s", query, PQerrorMessage(standby));
        if (yes)
            return;
        poll(NULL, 0, 10); /* only between questions: a slow machine makes more of them */
    }
    ck_abort_msg("never became true: %s", query);
}

void cluster_catch_up(PGconn *primary, PGconn *standby)
{
    char query[128];
    snprintf(query, sizeof query, "SELECT pg_last_wal_replay_lsn() >= '%s'",
             ask(primary, "SELECT pg_current_wal_lsn()"));
    cluster_wait(standby, query);
}

void cluster_confirm(PGconn *primary)
{
    sql(primary, "ALTER SYSTEM SET synchronous_commit = remote_apply");
    sql(primary, "ALTER SYSTEM SET synchronous_standby_names = standby");
    sql(primary, "SELECT pg_reload_conf()");
    wait_until_true(primary, "SELECT count(*) = 1 FROM pg_stat_replication"
                             " WHERE sync_state = 'sync' AND state = 'streaming'");
    wait_until_true(primary, "SELECT current_setting('synchronous_commit') = 'remote_apply'");
}

void cluster_detach(PGconn *standby)
{
    sql(standby, "ALTER SYSTEM SET primary_conninfo = ''");
    sql(standby, "SELECT pg_reload_conf()");
    cluster_wait(standby, "SELECT count(*) = 0 FROM pg_stat_wal_receiver");
}
