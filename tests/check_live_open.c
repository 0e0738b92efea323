/* check_live_open.c: what opening a pool comes to, and that no error tells a secret. */
#define _DEFAULT_SOURCE
#include "support.h"
#include "support_tx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pqtx_error opening_error(const char *conninfo, uint32_t flags)
{
    pqtx_pool_options options = PQTX_POOL_OPTIONS;
    pqtx_error error = PQTX_ERROR;
    pqtx_pool *pool;
    options.conninfo = conninfo;
    options.flags = flags;
    pqtx_status status = pqtx_pool_open(&options, &pool, &error);
    ck_assert_msg(status != PQTX_OK, "opened: %s", conninfo);
    ck_assert_ptr_null(pool);
    ck_assert_int_eq(error.status, status);
    return error;
}

/* The test server's connection string with something changed. */
static const char *but(const char *changed)
{
    static char text[4096];
    snprintf(text, sizeof text, "%s %s", test_conninfo(), changed);
    return text;
}

static void assert_open_fails(const char *changed, pqtx_status status, const char *sqlstate)
{
    pqtx_error error = opening_error(but(changed), 0);
    assert_status(error.status, status, &error);
    ck_assert_str_eq(error.sqlstate, sqlstate);
    ck_assert_int_eq(error.phase, PQTX_PHASE_CONNECT);
    ck_assert_str_ne(error.message, "");
}

/* ---- what opening comes to */

START_TEST(a_server_that_is_not_there_is_no_connection)
{
    assert_open_fails("host=/nonexistent hostaddr=''", PQTX_NO_CONNECTION, "");
    assert_open_fails("host=localhost hostaddr=127.0.0.1 port=1", PQTX_NO_CONNECTION, "");
    assert_open_fails("port=1", PQTX_NO_CONNECTION, "");
    assert_open_fails("host=no-such-host.invalid", PQTX_NO_CONNECTION, "");
}
END_TEST

START_TEST(an_unknown_user_is_denied)
{
    assert_open_fails("user=pqtx_nobody", PQTX_DENIED, "28000");
}
END_TEST

START_TEST(a_role_that_may_not_log_in_is_denied)
{
    PGconn *session = open_session();
    sql(session, "CREATE ROLE pqtx_locked_out NOLOGIN");
    pqtx_error error = opening_error(but("user=pqtx_locked_out"), 0);
    sql(session, "DROP ROLE pqtx_locked_out");
    assert_status(error.status, PQTX_DENIED, &error);
    PQfinish(session);
}
END_TEST

START_TEST(an_unknown_database_is_a_bad_statement)
{
    assert_open_fails("dbname=pqtx_nowhere", PQTX_BAD_STATEMENT, "3D000");
}
END_TEST

START_TEST(an_unknown_server_setting_is_a_bad_statement)
{
    assert_open_fails("options='-c pqtx_no_such_setting=1'", PQTX_BAD_STATEMENT, "42704");
}
END_TEST

START_TEST(no_connection_left_for_the_role_is_want_of_resources)
{
    PGconn *session = open_session();
    sql(session, "CREATE ROLE pqtx_crowded LOGIN CONNECTION LIMIT 0");
    pqtx_error error = opening_error(but("user=pqtx_crowded"), 0);
    sql(session, "DROP ROLE pqtx_crowded");
    assert_status(error.status, PQTX_RESOURCES, &error);
    ck_assert_str_eq(error.sqlstate, "53300");
    PQfinish(session);
}
END_TEST

START_TEST(a_connection_string_that_libpq_cannot_parse_is_misuse)
{
    static const char *const wrong[] = {"nonsense", "no_such_keyword=1", "host='open",
                                        "postgresql://[::1", "postgresql://host/%zz"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        pqtx_error error = opening_error(wrong[i], 0);
        assert_status(error.status, PQTX_MISUSE, &error);
        error = opening_error(wrong[i], PQTX_POOL_LAZY);
        assert_status(error.status, PQTX_MISUSE, &error);
    }
}
END_TEST

START_TEST(a_lazy_pool_tells_at_the_first_transaction)
{
    pqtx_pool_options options = PQTX_POOL_OPTIONS;
    pqtx_error error = PQTX_ERROR;
    pqtx_pool *pool;
    int64_t pid;
    options.conninfo = but("dbname=pqtx_nowhere");
    options.flags = PQTX_POOL_LAZY;
    ck_assert_int_eq(pqtx_pool_open(&options, &pool, &error), PQTX_OK);
    assert_status(pqtx_run(pool, NULL, ask_pid, &pid, &error), PQTX_BAD_STATEMENT, &error);
    ck_assert_int_eq(error.phase, PQTX_PHASE_CONNECT);
    ck_assert_uint_eq(error.attempt, 0);
    ck_assert_uint_eq(stats_of(pool).connect_failures, 1);
    ck_assert_uint_eq(stats_of(pool).open_count, 0);
    ck_assert_uint_eq(stats_of(pool).rollbacks, 1);
    pqtx_pool_close(pool);
}
END_TEST

START_TEST(a_connection_that_cannot_be_made_is_tried_until_the_deadline)
{
    pqtx_pool_options options = PQTX_POOL_OPTIONS;
    pqtx_options hasty = PQTX_OPTIONS;
    pqtx_pool *pool;
    int64_t pid;
    options.conninfo = but("host=/nonexistent hostaddr=''");
    options.flags = PQTX_POOL_LAZY;
    hasty.deadline_ms = 1000;
    ck_assert_int_eq(pqtx_pool_open(&options, &pool, NULL), PQTX_OK);
    struct task task = {.pool = pool, .options = &hasty, .work = ask_pid, .arg = &pid};
    run_task(&task, PQTX_NO_CONNECTION);
    ck_assert(task.error.flags & PQTX_ERROR_DEADLINE);
    ck_assert(took_at_most(&task, 200, hasty.deadline_ms));
    ck_assert_uint_gt(stats_of(pool).connect_failures, 1);
    ck_assert_uint_eq(stats_of(pool).attempts, 0);
    pqtx_pool_close(pool);
}
END_TEST

/* ---- secrets */

/* Opens pg_hba.conf of a server that is ours; NULL if it is someone else's. */
static FILE *open_hba(const char *mode)
{
    const char *data = getenv("PQTX_TEST_PGDATA");
    char path[1024];
    if (!data || !*data)
        return NULL;
    snprintf(path, sizeof path, "%s/pg_hba.conf", data);
    FILE *file = fopen(path, mode);
    ck_assert_ptr_nonnull(file);
    return file;
}

static void write_hba(PGconn *session, const char *first, const char *rest)
{
    FILE *file = open_hba("w");
    fprintf(file, "%s%s", first, rest);
    fclose(file);
    sql(session, "SELECT pg_reload_conf()");
}

/* The server rereads its settings a little later than it is asked to. */
static void wait_until_refused(const char *conninfo)
{
    ConnStatusType status;
    do {
        PGconn *session = PQconnectdb(conninfo);
        status = PQstatus(session);
        PQfinish(session);
    } while (status == CONNECTION_OK);
}

START_TEST(a_wrong_password_is_denied_and_not_shown)
{
    static char rules[16384];
    PGconn *session = open_session();
    FILE *file = open_hba("r");
    if (!file) {
        puts("the server is not ours (PQTX_TEST_PGDATA is not set): passwords are not tried");
        PQfinish(session);
        return;
    }
    rules[fread(rules, 1, sizeof rules - 1, file)] = '\0';
    fclose(file);
    sql(session, "CREATE ROLE pqtx_secretive LOGIN PASSWORD 'right'");
    write_hba(session, "local all pqtx_secretive scram-sha-256\n", rules);
    wait_until_refused(but("user=pqtx_secretive"));
    pqtx_error none = opening_error(but("user=pqtx_secretive"), 0);
    pqtx_error wrong = opening_error(but("user=pqtx_secretive password=wr0ng"), 0);
    write_hba(session, "", rules);
    sql(session, "DROP ROLE pqtx_secretive");
    assert_status(none.status, PQTX_DENIED, &none);
    assert_status(wrong.status, PQTX_DENIED, &wrong);
    ck_assert_str_eq(wrong.sqlstate, "28P01");
    ck_assert_ptr_null(strstr(wrong.message, "wr0ng"));
    PQfinish(session);
}
END_TEST

static bool holds(const pqtx_error *error, const char *text)
{
    const char *bytes = (const char *)error;
    for (size_t at = 0; at + strlen(text) <= sizeof *error; at++)
        if (memcmp(bytes + at, text, strlen(text)) == 0)
            return true;
    return false;
}

/* Each is a way to mistype a password; libpq's own words about most of them would quote it. */
START_TEST(no_error_shows_a_part_of_a_password)
{
    static const char *const strings[] = {
        "host=/nonexistent password=s3cret",
        "host=/nonexistent password='a\\'s3cret'",
        "host=/nonexistent password='s3cret",
        "host=/nonexistent password=top s3cret",
        "host=/nonexistent password=top s3cret=1",
        "password=\"top s3cret\" host=/nonexistent",
        "host=/nonexistent password=x=s3cret",
        "postgresql://u:s3cret@localhost:1/db",
        "postgresql://u:s3cret@localhost:1,localhost:2/db",
        "postgresql://u:s3cret%zz@localhost:1/db",
        "postgresql://u:s3cret@localhost:port/db",
        "postgresql://u:s3cret@[::1/db",
        "postgresql://u:s3cret@localhost:1/db?nonsense=1",
        "postgresql://u@localhost:1/db?password=s3cret%zz",
        "postgresql://u@localhost:1/db?pasword=s3cret",
        "postgresql://u:to@s3cret/x@localhost:1/db",
        "postgresql://u:p@s3cret@localhost:1/db",
        "postgresql://u:s3cret/x@localhost:1/db",
        "postgresql://u:s3cret/x@y@localhost:1/db",
        "postgresql://u:s3cret",
        "postgres:/u:s3cret@localhost:1/db?connect_timeout=1",
        "pg://u:s3cret@localhost:1/db",
        "jdbc:postgresql://localhost:1/db?user=u&password=s3cret",
    };
    for (size_t i = 0; i < sizeof strings / sizeof strings[0]; i++) {
        pqtx_error error = opening_error(strings[i], 0);
        ck_assert_msg(!holds(&error, "s3cret"), "%s\n  %s", strings[i], error.message);
    }
}
END_TEST

START_TEST(libpqs_own_words_come_only_when_asked_for)
{
    const char *conninfo = but("host=/nonexistent hostaddr='' port=5432");
    pqtx_error plain = opening_error(conninfo, 0);
    pqtx_error raw = opening_error(conninfo, PQTX_POOL_RAW_ERRORS);
    ck_assert_int_eq(raw.status, plain.status);
    ck_assert_ptr_null(strstr(plain.message, ".s.PGSQL.5432"));
    ck_assert_ptr_nonnull(strstr(raw.message, ".s.PGSQL.5432"));
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("live_open");
    TCase *c = tcase_create("open");
    tcase_set_timeout(c, 60);
    tcase_add_test(c, a_server_that_is_not_there_is_no_connection);
    tcase_add_test(c, an_unknown_user_is_denied);
    tcase_add_test(c, a_role_that_may_not_log_in_is_denied);
    tcase_add_test(c, an_unknown_database_is_a_bad_statement);
    tcase_add_test(c, an_unknown_server_setting_is_a_bad_statement);
    tcase_add_test(c, no_connection_left_for_the_role_is_want_of_resources);
    tcase_add_test(c, a_connection_string_that_libpq_cannot_parse_is_misuse);
    tcase_add_test(c, a_lazy_pool_tells_at_the_first_transaction);
    tcase_add_test(c, a_connection_that_cannot_be_made_is_tried_until_the_deadline);
    tcase_add_test(c, a_wrong_password_is_denied_and_not_shown);
    tcase_add_test(c, no_error_shows_a_part_of_a_password);
    tcase_add_test(c, libpqs_own_words_come_only_when_asked_for);
    suite_add_tcase(s, c);
    return s;
}

int main(void)
{
    return run_suite(suite());
}
