/* support_pooler.c: the way through PgBouncer. */
#define _DEFAULT_SOURCE
#include "support_pooler.h"
#include "support.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

static const char *given(const char *name)
{
    const char *value = getenv(name);
    ck_assert_msg(value, "%s is not set: run me under tests/with-pooler", name);
    return value;
}

const char *pooler_conninfo(void)
{
    return given("PQTX_TEST_POOLER");
}

const char *pooler_one_conninfo(void)
{
    return given("PQTX_TEST_POOLER_ONE");
}

pqtx_pool *pooler_pool(const char *conninfo, int max_count)
{
    pqtx_pool_options options = PQTX_POOL_OPTIONS;
    pqtx_error error = PQTX_ERROR;
    pqtx_pool *pool;
    options.conninfo = conninfo;
    options.max_count = max_count;
    assert_status(pqtx_pool_open(&options, &pool, &error), PQTX_OK, &error);
    return pool;
}

PGconn *pooler_session(const char *conninfo)
{
    PGconn *session = PQconnectdb(conninfo);
    ck_assert_msg(PQstatus(session) == CONNECTION_OK, "%s", PQerrorMessage(session));
    return session;
}

int pooler_clients(const char *database)
{
    int count = 0;
    PGconn *console = pooler_session(given("PQTX_TEST_POOLER_ADMIN"));
    PGresult *clients = PQexec(console, "SHOW CLIENTS");
    int column = PQfnumber(clients, "database");
    ck_assert_msg(column >= 0, "%s", PQerrorMessage(console));
    for (int row = 0; row < PQntuples(clients); row++)
        count += strcmp(PQgetvalue(clients, row, column), database) == 0;
    PQclear(clients);
    PQfinish(console);
    return count;
}

void pooler_do(const char *command)
{
    PGconn *console = pooler_session(given("PQTX_TEST_POOLER_ADMIN"));
    sql(console, command);
    PQfinish(console);
}

static pid_t pooler_pid(void)
{
    FILE *file = fopen(given("PQTX_TEST_POOLER_PID"), "r");
    int pid = 0;
    if (file) {
        if (fscanf(file, "%d", &pid) != 1)
            pid = 0;
        fclose(file);
    }
    return pid;
}

void pooler_kill(void)
{
    pid_t old = pooler_pid();
    ck_assert(old > 0 && kill(old, SIGKILL) == 0);
    for (int i = 0; i < 6000; i++) {
        pid_t new = pooler_pid();
        if (new > 0 && new != old && PQping(pooler_conninfo()) == PQPING_OK)
            return;
        poll(NULL, 0, 10); /* only between questions */
    }
    ck_abort_msg("the pooler did not come back");
}

#define ORPHANS                                                                                    \
    " FROM pg_stat_activity WHERE usename = session_user AND pid <> pg_backend_pid()"              \
    " AND application_name = current_setting('application_name') AND state = 'active'"

void pooler_end_orphans(PGconn *monitor)
{
    sql(monitor, "SELECT pg_terminate_backend(pid)" ORPHANS);
    wait_until_true(monitor, "SELECT count(*) = 0" ORPHANS);
}
