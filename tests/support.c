/* support.c: what the tests share. */
#define _DEFAULT_SOURCE
#include "support.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char conninfo[2048];

const char *test_conninfo(void)
{
    if (!conninfo[0]) {
        const char *given = getenv("PQTX_TEST_CONNINFO");
        ck_assert_msg(given, "PQTX_TEST_CONNINFO is not set: run me under tests/with-server");
        snprintf(conninfo, sizeof conninfo, "%s", given);
    }
    return conninfo;
}

const char *fresh_schema(const char *schema)
{
    char statement[256];
    PGconn *session = open_session();
    snprintf(statement, sizeof statement, "DROP SCHEMA IF EXISTS %s CASCADE; CREATE SCHEMA %s",
             schema, schema);
    sql(session, statement);
    PQfinish(session);
    snprintf(conninfo, sizeof conninfo, "%s options='-c search_path=%s,public'",
             getenv("PQTX_TEST_CONNINFO"), schema);
    return conninfo;
}

pqtx_pool *open_pool(int max_count)
{
    pqtx_pool_options options = PQTX_POOL_OPTIONS;
    pqtx_error error = PQTX_ERROR;
    pqtx_pool *pool;
    options.conninfo = test_conninfo();
    options.max_count = max_count;
    assert_status(pqtx_pool_open(&options, &pool, &error), PQTX_OK, &error);
    return pool;
}

static void ignore(void *arg, const PGresult *notice)
{
    (void)arg;
    (void)notice;
}

PGconn *open_session(void)
{
    PGconn *session = PQconnectdb(test_conninfo());
    ck_assert_msg(PQstatus(session) == CONNECTION_OK, "%s", PQerrorMessage(session));
    PQsetNoticeReceiver(session, ignore, NULL);
    return session;
}

static PGresult *run(PGconn *session, const char *statement)
{
    PGresult *result = PQexec(session, statement);
    ExecStatusType status = PQresultStatus(result);
    ck_assert_msg(status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK, "%s\n%s", statement,
                  PQerrorMessage(session));
    return result;
}

void sql(PGconn *session, const char *statement)
{
    PQclear(run(session, statement));
}

const char *ask(PGconn *session, const char *query)
{
    static char answer[4096];
    PGresult *result = run(session, query);
    ck_assert_msg(PQntuples(result) > 0, "no row: %s", query);
    snprintf(answer, sizeof answer, "%s", PQgetvalue(result, 0, 0));
    PQclear(result);
    return answer;
}

int64_t ask_int(PGconn *session, const char *query)
{
    return strtoll(ask(session, query), NULL, 10);
}

void wait_until_true(PGconn *monitor, const char *query)
{
    for (int i = 0; i < 6000; i++) {
        if (strcmp(ask(monitor, query), "t") == 0)
            return;
        poll(NULL, 0, 10); /* only between questions: a slow machine makes more of them */
    }
    ck_abort_msg("never became true: %s", query);
}

void wait_until_blocked(PGconn *monitor, int backend_pid)
{
    char query[128];
    snprintf(query, sizeof query, "SELECT cardinality(pg_blocking_pids(%d)) > 0", backend_pid);
    wait_until_true(monitor, query);
}

void start_sql(PGconn *session, const char *statement)
{
    ck_assert_msg(PQsendQuery(session, statement), "%s", PQerrorMessage(session));
}

const char *finish_sql(PGconn *session)
{
    static char sqlstate[6];
    sqlstate[0] = '\0';
    for (PGresult *result; (result = PQgetResult(session)) != NULL; PQclear(result)) {
        const char *code = PQresultErrorField(result, PG_DIAG_SQLSTATE);
        if (code && !sqlstate[0])
            snprintf(sqlstate, sizeof sqlstate, "%s", code);
    }
    return sqlstate;
}

void assert_status_at(const char *file, int line, pqtx_status actual, pqtx_status expected,
                      const pqtx_error *error)
{
    char text[4096] = "no error";
    if (error)
        pqtx_error_format(error, text, sizeof text);
    ck_assert_msg(actual == expected, "%s:%d: %s, expected %s\n  %s", file, line,
                  pqtx_status_name(actual), pqtx_status_name(expected), text);
}

int run_suite(Suite *suite)
{
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
