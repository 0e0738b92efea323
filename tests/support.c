/* support.c: what the tests share. */
#define _DEFAULT_SOURCE
#include "support.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char conninfo[2048], pooled[2048];
static int left_out;

const char *test_conninfo(void)
{
    if (!conninfo[0]) {
        const char *given = getenv("PQTX_TEST_CONNINFO");
        ck_assert_msg(given, "PQTX_TEST_CONNINFO is not set: run me under tests/with-server");
        snprintf(conninfo, sizeof conninfo, "%s", given);
    }
    return conninfo;
}

bool is_pooled(void)
{
    return getenv("PQTX_TEST_POOLER") != NULL;
}

unsigned step_of_cases(void)
{
    return is_pooled() ? 3 : 1;
}

const char *pool_conninfo(void)
{
    if (!is_pooled())
        return test_conninfo();
    return pooled[0] ? pooled : getenv("PQTX_TEST_POOLER");
}

static PGconn *connect_to(const char *where)
{
    PGconn *session = PQconnectdb(where);
    ck_assert_msg(PQstatus(session) == CONNECTION_OK, "%s", PQerrorMessage(session));
    return session;
}

/* A pooler takes no search_path from its clients; so there each schema is a database, whose
 * sessions begin with the right one. */
static void tell_pooler(PGconn *session, const char *schema)
{
    FILE *file = fopen(getenv("PQTX_TEST_POOLER_MORE"), "w");
    ck_assert_ptr_nonnull(file);
    fprintf(file,
            "[databases]\n%s = host='%s' port=%s dbname='%s' pool_size=20"
            " connect_query='SET search_path = %s, public'\n",
            schema, PQhost(session), PQport(session), PQdb(session), schema);
    ck_assert(fclose(file) == 0);
    PGconn *console = connect_to(getenv("PQTX_TEST_POOLER_ADMIN"));
    sql(console, "RELOAD");
    PQfinish(console);
    /* Of a keyword twice the last one counts. */
    snprintf(pooled, sizeof pooled, "%s dbname=%s", getenv("PQTX_TEST_POOLER"), schema);
}

const char *fresh_schema(const char *schema)
{
    char statement[256];
    PGconn *session = open_session();
    snprintf(statement, sizeof statement, "DROP SCHEMA IF EXISTS %s CASCADE; CREATE SCHEMA %s",
             schema, schema);
    sql(session, statement);
    if (is_pooled())
        tell_pooler(session, schema);
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
    options.conninfo = pool_conninfo();
    options.max_count = max_count;
    assert_status(pqtx_pool_open(&options, &pool, &error), PQTX_OK, &error);
    return pool;
}

static void ignore(void *arg, const PGresult *notice)
{
    (void)arg;
    (void)notice;
}

static PGconn *open_quietly(const char *where)
{
    PGconn *session = connect_to(where);
    PQsetNoticeReceiver(session, ignore, NULL);
    return session;
}

PGconn *open_session(void)
{
    return open_quietly(test_conninfo());
}

PGconn *open_own(void)
{
    return open_quietly(pool_conninfo());
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

int wait_for_blocked(PGconn *monitor, int holder_pid)
{
    char query[128], condition[160];
    snprintf(query, sizeof query,
             "SELECT coalesce(max(pid), 0) FROM pg_stat_activity"
             " WHERE %d = ANY (pg_blocking_pids(pid))",
             holder_pid);
    snprintf(condition, sizeof condition, "SELECT (%s) > 0", query);
    wait_until_true(monitor, condition);
    return (int)ask_int(monitor, query);
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

bool is_left_out(const char *test, const char *reason)
{
    if (!is_pooled())
        return false;
    printf("left out behind the pooler: %s: %s\n", test, reason);
    left_out++;
    return true;
}

int run_suite(Suite *suite)
{
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    if (left_out > 0)
        printf("Left out behind the pooler: %d\n", left_out);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
