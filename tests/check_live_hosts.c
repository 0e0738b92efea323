/* check_live_hosts.c: lists of hosts in which only one is the test server. */
#define _DEFAULT_SOURCE
#include "support.h"
#include "support_silent.h"
#include "support_tx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

static struct silent *silent;
static PGconn *session;

static void set_up(void)
{
    silent = silent_open();
    session = open_session();
}

static void tear_down(void)
{
    silent_close(silent);
    PQfinish(session);
}

/* The test server's settings with other hosts; in `lists`, $S stands for the silent host, $H and $P
 * for the server's own host and port. */
static const char *with(const char *lists)
{
    static char conninfo[4096];
    size_t len = (size_t)snprintf(conninfo, sizeof conninfo, "%s ", test_conninfo());
    while (*lists) {
        size_t plain = strcspn(lists, "$");
        const char *value = "";
        if (lists[plain])
            value = lists[plain + 1] == 'S'   ? silent->host
                    : lists[plain + 1] == 'H' ? PQhost(session)
                                              : PQport(session);
        len += (size_t)snprintf(conninfo + len, sizeof conninfo - len, "%.*s%s", (int)plain, lists,
                                value);
        lists += plain + (lists[plain] ? 2 : 0);
    }
    return conninfo;
}

static pqtx_pool *open_pool_to(const char *conninfo)
{
    pqtx_pool_options options = PQTX_POOL_OPTIONS;
    pqtx_error error = PQTX_ERROR;
    pqtx_pool *pool;
    options.conninfo = conninfo;
    options.min_count = 3;
    assert_status(pqtx_pool_open(&options, &pool, &error), PQTX_OK, &error);
    ck_assert_uint_eq(stats_of(pool).connects, 3);
    return pool;
}

static const struct {
    const char *lists;
    int silences;
} the_server_is_found_among_others_table[] = {
    {"host=$S,$H port=1,$P connect_timeout=1", 1},
    {"host=$S,/nonexistent,$H port=1,1,$P connect_timeout=1", 1},
    {"host=$H,$S port=$P,1", 0},
    {"host=/nonexistent,$H port=$P", 0},
    {"host=/nonexistent,$H,$S hostaddr=,, port=$P", 0},
    {"host=localhost,$H hostaddr=127.0.0.1, port=1,$P", 0}, /* port 1 refuses */
    {"host=$H,$H port=$P target_session_attrs=prefer-standby", 0},
    {"host=/nonexistent,$H port=1,$P target_session_attrs=primary", 0},
};

START_TEST(the_server_is_found_among_others)
{
    pqtx_pool *pool = open_pool_to(with(the_server_is_found_among_others_table[_i].lists));
    ck_assert_int_gt(run_for_pid(pool, NULL), 0);
    ck_assert_int_eq(silent_count(silent), the_server_is_found_among_others_table[_i].silences);
    pqtx_pool_close(pool);
}
END_TEST

START_TEST(hosts_of_a_service_file_are_tried_one_by_one)
{
    char path[] = "/tmp/pqtx-service.XXXXXX", conninfo[4096];
    FILE *file = fdopen(mkstemp(path), "w");
    ck_assert_ptr_nonnull(file);
    fprintf(file, "[pair]\nhost=%s,%s\nport=1,%s\nuser=%s\ndbname=%s\nconnect_timeout=1\n",
            silent->host, PQhost(session), PQport(session), PQuser(session), PQdb(session));
    fclose(file);
    setenv("PGSERVICEFILE", path, 1);
    snprintf(conninfo, sizeof conninfo, "service=pair password='%s'", PQpass(session));
    pqtx_pool *pool = open_pool_to(conninfo);
    ck_assert_int_eq(silent_count(silent), 1);
    pqtx_pool_close(pool);
    unsetenv("PGSERVICEFILE");
    unlink(path);
}
END_TEST

/* ---- the second connection */

static pqtx_status sleep_long(pqtx_tx *tx, void *arg)
{
    (void)arg;
    return pqtx_exec(tx, "SELECT pg_sleep(600)", PQTX_NO_ARGS, NULL);
}

/* Where it cannot be cancelled the connection is closed instead. */
static const char *const a_statement_is_cancelled_at_the_right_host_table[] = {
    "host=$S,$H port=1,$P connect_timeout=1",
    "host=/nonexistent,$H,$S hostaddr=,, port=$P,$P,1",
};

START_TEST(a_statement_is_cancelled_at_the_right_host)
{
    pqtx_pool *pool = open_pool_to(with(a_statement_is_cancelled_at_the_right_host_table[_i]));
    pqtx_options options = PQTX_OPTIONS;
    pqtx_error error = PQTX_ERROR;
    int before = silent_count(silent);
    options.deadline_ms = 3000;
    assert_status(pqtx_run(pool, &options, sleep_long, NULL, &error), PQTX_TIMEOUT, &error);
    ck_assert_uint_eq(stats_of(pool).drops, 0);
    ck_assert_int_eq(silent_count(silent), before);
    pqtx_pool_close(pool);
}
END_TEST

/* Libpq has gone through the list by itself. */
static const char *const so_it_is_on_a_connection_of_the_callers_table[] = {
    "host=/nonexistent,$H port=1,$P",
    "host=/nonexistent,$H,$S hostaddr=,, port=1,$P,1",
};

START_TEST(so_it_is_on_a_connection_of_the_callers)
{
    PGconn *own = PQconnectdb(with(so_it_is_on_a_connection_of_the_callers_table[_i]));
    ck_assert_msg(PQstatus(own) == CONNECTION_OK, "%s", PQerrorMessage(own));
    pqtx_options options = PQTX_OPTIONS;
    pqtx_error error = PQTX_ERROR;
    options.deadline_ms = 3000;
    assert_status(pqtx_run_on(own, &options, sleep_long, NULL, &error), PQTX_TIMEOUT, &error);
    ck_assert_int_eq(ask_int(own, "SELECT 1"), 1);
    ck_assert_int_eq(silent_count(silent), 0);
    PQfinish(own);
}
END_TEST

/* ---- what is told */

static pqtx_error opening_error(const char *conninfo, uint32_t flags)
{
    pqtx_pool_options options = PQTX_POOL_OPTIONS;
    pqtx_error error = PQTX_ERROR;
    pqtx_pool *pool;
    options.conninfo = conninfo;
    options.flags = flags;
    ck_assert_msg(pqtx_pool_open(&options, &pool, &error) != PQTX_OK, "opened: %s", conninfo);
    return error;
}

START_TEST(lists_that_do_not_match_are_libpqs_error)
{
    const char *conninfo = with("host=$H,$H,$H port=$P,$P");
    pqtx_error plain = opening_error(conninfo, 0);
    pqtx_error raw = opening_error(conninfo, PQTX_POOL_RAW_ERRORS);
    PGconn *theirs = PQconnectStart(conninfo);
    assert_status(plain.status, PQTX_NO_CONNECTION, &plain);
    ck_assert_ptr_null(strstr(plain.message, "tried"));
    ck_assert_msg(strstr(raw.message, PQerrorMessage(theirs)), "%s", raw.message);
    PQfinish(theirs);
}
END_TEST

START_TEST(the_first_of_many_that_are_not_there_is_told)
{
    pqtx_error error = opening_error("host=/nonexistent/a,/nonexistent/b port=1,2", 0);
    assert_status(error.status, PQTX_NO_CONNECTION, &error);
    ck_assert_msg(strstr(error.message, "tried 2 of 2 hosts: cannot connect to host /nonexistent/a"
                                        " port 1: no answer"),
                  "%s", error.message);
    error = opening_error("host=/nonexistent/a,/nonexistent/b port=1,2", PQTX_POOL_RAW_ERRORS);
    ck_assert_msg(strstr(error.message, "/nonexistent/a/.s.PGSQL.1"), "%s", error.message);
}
END_TEST

/* Pieces of it can stand where a host, a port or a comma belongs. */
static const char *const no_list_shows_a_part_of_a_password_table[] = {
    "host=/nonexistent,/nonexistent password=s3cret",
    "host=/nonexistent,/nonexistent port=1,2 password='s3cret,1'",
    "postgresql://u:s3cret@localhost:1,localhost:2/db",
    "postgresql://u:s3cret@localhost:1,localhost:2/db?connect_timeout=1",
    "postgresql://u:a@s3cret,b@localhost:1,localhost:2/db",
    "postgresql://u:a@b,s3cret@localhost:1,localhost:2/db",
    "postgresql://u:1,s3cret/b@localhost:1,localhost:2/db",
    "postgresql://s3cret:1,s3cret:2/b@localhost:1,localhost:2/db",
    "postgresql://u:s3cret,b/c@localhost:1,localhost:2/db",
    "postgresql://u@localhost:1,localhost:2/db?password=s3cret",
    "postgresql://u@localhost:1,localhost:2/db?password=a@s3cret&host=s3cret,s3cret",
    "postgresql://u:s3cret@localhost:1,localhost:2,localhost:3/db?port=1,2",
};

START_TEST(no_list_shows_a_part_of_a_password)
{
    const char *conninfo = no_list_shows_a_part_of_a_password_table[_i];
    pqtx_error error = opening_error(conninfo, 0);
    const char *bytes = (const char *)&error;
    for (size_t at = 0; at + 6 <= sizeof error; at++)
        ck_assert_msg(memcmp(bytes + at, "s3cret", 6) != 0, "%s\n  %s", conninfo, error.message);
}
END_TEST

#define ADD(tcase, test) tcase_add_loop_test(tcase, test, 0, COUNT(test##_table))

int main(void)
{
    Suite *suite = suite_create("live_hosts");
    TCase *tcase = tcase_create("hosts");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    ADD(tcase, the_server_is_found_among_others);
    tcase_add_test(tcase, hosts_of_a_service_file_are_tried_one_by_one);
    ADD(tcase, a_statement_is_cancelled_at_the_right_host);
    ADD(tcase, so_it_is_on_a_connection_of_the_callers);
    tcase_add_test(tcase, lists_that_do_not_match_are_libpqs_error);
    tcase_add_test(tcase, the_first_of_many_that_are_not_there_is_told);
    ADD(tcase, no_list_shows_a_part_of_a_password);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
