/* check_live_one.c: a statement that is a transaction by itself. */
#include "support.h"
#include "support_tx.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCHEMA "pqtx_one"

static PGconn *monitor, *other;
static pqtx_pool *pool;
static pqtx_options options;
static pqtx_error error;

static void set_up(void)
{
    fresh_schema(SCHEMA);
    monitor = open_session();
    other = open_session();
    sql(monitor, "CREATE TABLE account (id int PRIMARY KEY, v bigint NOT NULL CHECK (v >= 0));"
                 "INSERT INTO account SELECT i, 10 * i FROM generate_series(1, 5) AS i;"
                 "CREATE TABLE log (line text);"
                 "CREATE TABLE late (id int UNIQUE DEFERRABLE INITIALLY DEFERRED);"
                 "CREATE SEQUENCE tries;"
                 "CREATE FUNCTION note(text) RETURNS int LANGUAGE sql AS"
                 " 'INSERT INTO " SCHEMA ".log VALUES ($1); SELECT 1'");
    pool = open_pool(4);
    options = (pqtx_options)PQTX_OPTIONS;
    error = (pqtx_error)PQTX_ERROR;
}

static void tear_down(void)
{
    pqtx_pool_close(pool);
    PQfinish(monitor);
    PQfinish(other);
}

/* What is in *result before must not stay there. */
static pqtx_status run(const char *statement, int64_t expected, PGresult **result)
{
    if (result)
        *result = (PGresult *)&error;
    return pqtx_run_one(pool, &options, statement, PQTX_NO_ARGS, expected, result, &error);
}

static void assert_run(const char *statement, int64_t expected, pqtx_status status)
{
    PGresult *result;
    assert_status(run(statement, expected, &result), status, &error);
    ck_assert_int_eq(result != NULL, status == PQTX_OK);
    PQclear(result);
}

static int64_t sum(void)
{
    return ask_int(monitor, "SELECT sum(v) FROM account");
}

static int64_t log_lines(void)
{
    return ask_int(monitor, "SELECT count(*) FROM log");
}

/* ---- How many rows it has, and how many it must have */

static const struct {
    const char *statement;
    int64_t rows;
    bool returns;
} counted[] = {
    {"UPDATE account SET v = v WHERE id = 9", 0, false},
    {"UPDATE account SET v = v WHERE id = 1", 1, false},
    {"UPDATE account SET v = v", 5, false},
    {"UPDATE account SET v = v RETURNING id", 5, true},
    {"INSERT INTO log VALUES ('x')", 1, false},
    {"INSERT INTO log VALUES ('x'), ('y') RETURNING line;", 2, true},
    {"DELETE FROM log WHERE false", 0, false},
    {"DELETE FROM log WHERE false RETURNING 'a', 'b'", 0, true},
    {"INSERT INTO account VALUES (1, 1) ON CONFLICT DO NOTHING", 0, false},
    {"SELECT id, id, v FROM account WHERE id < 4 -- three of them", 3, true},
    {"SELECT FROM account", 5, true},
    {"VALUES (1), (2)", 2, true},
    {"TABLE account", 5, true},
    {" ;; /* a; */ -- b;\n SELECT 1 WHERE 'RETURNING; ' <> ''", 1, true},
    {"WITH w AS (SELECT 1) SELECT * FROM w", 1, true},
    {"WITH w AS (SELECT 1) UPDATE account SET v = v WHERE id < 3", 2, false},
    {"(SELECT 1 UNION SELECT 2)", 2, true},
    {"SHOW server_version", 1, true},
    {"/* a */ -- b\n ;; SELECT 1 WHERE 'RETURNING; ' <> ''", 1, true},
};
enum { COUNTED = sizeof counted / sizeof counted[0] };

START_TEST(any_number_of_rows_may_be_taken)
{
    for (int i = 0; i < COUNTED; i++) {
        PGresult *result;
        int64_t rows;
        assert_status(run(counted[i].statement, PQTX_ANY_ROWS, &result), PQTX_OK, &error);
        if (strncmp(counted[i].statement, "SHOW", 4) != 0) {
            ck_assert_int_eq(pqtx_get_rows(result, &rows), PQTX_OK);
            ck_assert_int_eq(rows, counted[i].rows);
        }
        ck_assert_int_eq(PQntuples(result), counted[i].returns ? counted[i].rows : 0);
        PQclear(result);
        sql(monitor, "TRUNCATE log");
    }
}
END_TEST

START_TEST(as_many_rows_as_expected_are_committed)
{
    for (int i = 0; i < COUNTED; i++) {
        PGresult *result;
        assert_status(run(counted[i].statement, counted[i].rows, &result), PQTX_OK, &error);
        ck_assert_ptr_nonnull(result);
        ck_assert_int_eq(PQntuples(result), counted[i].returns ? counted[i].rows : 0);
        PQclear(result);
    }
    ck_assert_int_eq(log_lines(), 3);
}
END_TEST

START_TEST(fewer_or_more_rows_than_expected_are_not)
{
    char message[64];
    for (int i = 0; i < COUNTED; i++)
        for (int64_t expected = 0; expected <= 7; expected++) {
            int64_t rows = counted[i].rows;
            if (expected == rows)
                continue;
            assert_run(counted[i].statement, expected,
                       rows < expected ? PQTX_NO_MATCH : PQTX_TOO_MANY);
            ck_assert_str_eq(error.sqlstate, "");
            ck_assert_int_eq(error.call, 1);
            snprintf(message, sizeof message, "%lld rows, where %lld were expected",
                     (long long)rows, (long long)expected);
            if (expected != 1)
                ck_assert_str_eq(error.message, message);
        }
    ck_assert_int_eq(log_lines(), 0);
}
END_TEST

START_TEST(a_miss_undoes_what_the_statement_did_besides)
{
    assert_run("SELECT note(id::text) FROM account", 4, PQTX_TOO_MANY);
    assert_run("SELECT note(id::text) FROM account", 6, PQTX_NO_MATCH);
    assert_run("WITH w AS (SELECT note('x')) SELECT * FROM w", 2, PQTX_NO_MATCH);
    ck_assert_int_eq(log_lines(), 0);
    assert_run("SELECT note(id::text) FROM account", 5, PQTX_OK);
    ck_assert_int_eq(log_lines(), 5);
}
END_TEST

START_TEST(very_many_rows_may_be_expected)
{
    PGresult *result;
    assert_status(run("INSERT INTO log SELECT i FROM generate_series(1, 70000) AS i", 70000, NULL),
                  PQTX_OK, &error);
    assert_run("UPDATE log SET line = 'x'", 69999, PQTX_TOO_MANY);
    assert_run("UPDATE log SET line = 'x'", INT64_MAX, PQTX_NO_MATCH);
    assert_status(run("SELECT line FROM log ORDER BY line::int DESC", 70000, &result), PQTX_OK,
                  &error);
    for (int i = 0; i < 70000; i++)
        ck_assert_int_eq(strtol(PQgetvalue(result, i, 0), NULL, 10), 70000 - i);
    PQclear(result);
}
END_TEST

/* ---- What it returns */

START_TEST(the_result_is_the_callers_and_outlives_the_pool)
{
    PGresult *result;
    const char *name;
    int64_t v;
    assert_status(pqtx_run_one(pool, NULL,
                               "UPDATE account SET v = v + $2 WHERE id = $1"
                               " RETURNING v, 'ann' AS name",
                               PQTX_ARGS(PQTX_INT(3), PQTX_INT(4)), 1, &result, &error),
                  PQTX_OK, &error);
    pqtx_pool_close(pool);
    pool = open_pool(1);
    ck_assert_str_eq(PQfname(result, 1), "name");
    ck_assert_int_eq(pqtx_get_int(result, 0, 0, &v), PQTX_OK);
    ck_assert_int_eq(pqtx_get_text(result, 0, 1, &name), PQTX_OK);
    ck_assert_int_eq(v, 34);
    ck_assert_str_eq(name, "ann");
    PQclear(result);
}
END_TEST

START_TEST(neither_options_nor_result_nor_error_must_be_asked_for)
{
    ck_assert_int_eq(
        pqtx_run_one(pool, NULL, "UPDATE account SET v = v + 1", PQTX_NO_ARGS, 5, NULL, NULL),
        PQTX_OK);
    ck_assert_int_eq(
        pqtx_run_one(pool, NULL, "UPDATE account SET v = v + 1", PQTX_NO_ARGS, 4, NULL, NULL),
        PQTX_TOO_MANY);
    ck_assert_int_eq(sum(), 155);
}
END_TEST

START_TEST(values_of_every_type_arrive)
{
    PGresult *result;
    assert_status(pqtx_run_one(pool, NULL,
                               "SELECT $1::int, $2::real, $3::bool, $4, encode($5, 'hex'),"
                               " $6::text IS NULL",
                               PQTX_ARGS(PQTX_INT(-5), PQTX_REAL(0.25), PQTX_BOOL(1),
                                         PQTX_TEXT("a'b;"), PQTX_BYTES("\0\xff", 2), PQTX_NULL),
                               1, &result, &error),
                  PQTX_OK, &error);
    static const char *const values[] = {"-5", "0.25", "t", "a'b;", "00ff", "t"};
    for (int i = 0; i < 6; i++)
        ck_assert_str_eq(PQgetvalue(result, 0, i), values[i]);
    PQclear(result);
}
END_TEST

/* ---- What it fails with */

static const struct {
    const char *statement;
    pqtx_status status;
    const char *sqlstate;
} failures[] = {
    {"INSERT INTO account VALUES (1, 1)", PQTX_DUPLICATE, "23505"},
    {"UPDATE account SET v = -1", PQTX_CHECK, "23514"},
    {"INSERT INTO account VALUES (7, NULL)", PQTX_NOT_NULL, "23502"},
    {"INSERT INTO late VALUES (1), (1)", PQTX_DUPLICATE, "23505"},
    {"UPDATE account SET nowhere = 1", PQTX_BAD_STATEMENT, "42703"},
    {"UPDATE nowhere SET v = 1", PQTX_BAD_STATEMENT, "42P01"},
    {"UPDATE account SET", PQTX_BAD_STATEMENT, "42601"},
    {"UPDATE account SET v = 0 WHERE id < 3; DELETE FROM log", PQTX_BAD_STATEMENT, "42601"},
    {"UPDATE account SET v = 'many'", PQTX_BAD_DATA, "22P02"},
    {"UPDATE account SET v = v / 0", PQTX_BAD_DATA, "22012"},
    {"INSERT INTO log SELECT 'x'::pg_lsn::text", PQTX_BAD_DATA, "22P02"},
};

START_TEST(a_failure_is_told_and_nothing_is_left)
{
    for (size_t i = 0; i < sizeof failures / sizeof failures[0]; i++)
        for (int64_t expected = PQTX_ANY_ROWS; expected <= 2; expected++) {
            bool at_commit = strstr(failures[i].statement, "late") != NULL;
            if (at_commit && expected != PQTX_ANY_ROWS && expected != 2)
                continue; /* it is missed before */
            assert_run(failures[i].statement, expected, failures[i].status);
            ck_assert_str_eq(error.sqlstate, failures[i].sqlstate);
            ck_assert_int_eq(error.phase, at_commit ? PQTX_PHASE_COMMIT : PQTX_PHASE_BODY);
            ck_assert_int_eq(error.origin, PQTX_ORIGIN_SERVER);
            ck_assert_uint_eq(error.attempt, 1);
        }
    ck_assert_int_eq(sum(), 150);
    ck_assert_int_eq(ask_int(monitor, "SELECT count(*) FROM late"), 0);
    ck_assert_uint_eq(stats_of(pool).drops, 0);
    ck_assert_uint_eq(stats_of(pool).in_doubt, 0);
}
END_TEST

START_TEST(a_wrong_call_is_misuse_and_nothing_is_sent)
{
    static const char *const refused[] = {
        "COMMIT", "BEGIN", "SAVEPOINT mine", "COPY log FROM stdin", "PREPARE TRANSACTION 'x'",
        NULL};
    static const char text[] = "a\0b";
    pqtx_error sizeless = {0};
    PGresult *result;
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        assert_run(refused[i], PQTX_ANY_ROWS, PQTX_MISUSE);
        assert_run(refused[i], 1, PQTX_MISUSE);
    }
    assert_run("SELECT note('x')", -2, PQTX_MISUSE);
    assert_run("SELECT note('x')", INT64_MIN, PQTX_MISUSE);
    result = (PGresult *)&error;
    ck_assert_int_eq(pqtx_run_one(NULL, NULL, "SELECT 1", PQTX_NO_ARGS, 1, &result, &error),
                     PQTX_MISUSE);
    ck_assert_ptr_null(result);
    ck_assert_int_eq(pqtx_run_one(pool, NULL, "SELECT note('x')", 1, NULL, 1, &result, &error),
                     PQTX_MISUSE);
    ck_assert_int_eq(pqtx_run_one(pool, NULL, "SELECT note($1)", PQTX_ARGS(pqtx_text_n(text, 3)), 1,
                                  &result, &error),
                     PQTX_MISUSE);
    ck_assert_int_eq(
        pqtx_run_one(pool, NULL, "SELECT note('x')", PQTX_NO_ARGS, 1, &result, &sizeless),
        PQTX_MISUSE);
    options.max_attempts = -1;
    assert_run("SELECT note('x')", 1, PQTX_MISUSE);
    ck_assert_int_eq(log_lines(), 0);
}
END_TEST

START_TEST(a_statement_without_a_count_is_misuse_where_one_is_expected)
{
    static const char *const statements[] = {"CREATE TABLE made (id int)", "SET TimeZone = 'UTC'",
                                             "DO $$ BEGIN END $$", ""};
    for (size_t i = 0; i < sizeof statements / sizeof statements[0]; i++) {
        assert_run(statements[i], 0, PQTX_MISUSE);
        assert_run(statements[i], 1, PQTX_MISUSE);
        ck_assert_str_eq(ask(monitor, "SELECT to_regclass('made') IS NULL"), "t");
    }
    for (size_t i = 0; i < sizeof statements / sizeof statements[0]; i++)
        assert_run(statements[i], PQTX_ANY_ROWS, PQTX_OK);
    assert_run("VACUUM account", PQTX_ANY_ROWS, PQTX_BAD_STATEMENT);
}
END_TEST

START_TEST(a_merge_is_counted_too)
{
    static const char merge[] = "MERGE INTO account USING (VALUES (1), (8)) AS n (id)"
                                " ON n.id = account.id"
                                " WHEN MATCHED THEN UPDATE SET v = v + 1"
                                " WHEN NOT MATCHED THEN INSERT VALUES (n.id, 1)";
    if (PQserverVersion(monitor) < 150000)
        return;
    assert_run(merge, 1, PQTX_TOO_MANY);
    assert_run(merge, 3, PQTX_NO_MATCH);
    ck_assert_int_eq(sum(), 150);
    assert_run(merge, 2, PQTX_OK);
    ck_assert_int_eq(sum(), 152);
}
END_TEST

/* ---- Options */

START_TEST(every_option_holds_for_a_single_statement)
{
    static const char look[] = "SELECT current_setting('transaction_isolation'),"
                               " current_setting('transaction_read_only'),"
                               " current_setting('lock_timeout'),"
                               " current_setting('statement_timeout')";
    PGresult *result;
    options.isolation = PQTX_ISO_SERIALIZABLE;
    options.access = PQTX_ACCESS_DEFERRABLE;
    options.lock_timeout_ms = 70;
    options.statement_timeout_ms = 8000;
    options.flags = PQTX_PIPELINE | PQTX_PIN_SNAPSHOT | PQTX_SERVER_DEADLINE;
    assert_status(run(look, 1, &result), PQTX_OK, &error);
    ck_assert_str_eq(PQgetvalue(result, 0, 0), "serializable");
    ck_assert_str_eq(PQgetvalue(result, 0, 1), "on");
    ck_assert_str_eq(PQgetvalue(result, 0, 2), "70ms");
    ck_assert_str_eq(PQgetvalue(result, 0, 3), "8s");
    PQclear(result);
    assert_run("SELECT note('x')", 1, PQTX_READ_ONLY);
}
END_TEST

START_TEST(a_single_statement_may_be_an_event)
{
    assert_status(pqtx_once_install(pool, SCHEMA, &error), PQTX_OK, &error);
    options.event_id = "event";
    options.once_schema = SCHEMA;
    assert_run("UPDATE account SET v = v + 1", 4, PQTX_TOO_MANY);
    assert_run("UPDATE account SET v = v + 1", 5, PQTX_OK);
    for (int turn = 0; turn < 3; turn++)
        assert_run("UPDATE account SET v = v + 1", 5, PQTX_DONE_BEFORE);
    ck_assert_int_eq(sum(), 155);
}
END_TEST

static void make_room(const pqtx_event *event, void *arg)
{
    if (event->type == PQTX_EVENT_FAILED && event->attempt == 2)
        sql(other, arg);
}

START_TEST(a_statement_that_lost_a_race_is_run_again)
{
    pqtx_evidence evidence = PQTX_EVIDENCE;
    for (int level = PQTX_ISO_DEFAULT; level <= PQTX_ISO_SERIALIZABLE; level++) {
        options.isolation = (pqtx_isolation)level;
        options.lock_timeout_ms = 10;
        options.observer = make_room;
        options.observer_arg = (char[]){"COMMIT"};
        options.evidence = &evidence;
        evidence.count = 0;
        sql(other, "BEGIN; UPDATE account SET v = v + 100 WHERE id = 1");
        assert_run("UPDATE account SET v = v + 1 WHERE id = 1", 1, PQTX_OK);
        ck_assert_uint_eq(evidence.count, 2);
        ck_assert_int_eq(evidence.records[0].status, PQTX_BUSY);
        ck_assert_int_eq(error.status, PQTX_BUSY); /* what the last failed attempt met */
        ck_assert_uint_eq(error.attempt, 2);
    }
    ck_assert_int_eq(sum(), 150 + 4 * 101);
    options.max_attempts = 3;
    options.observer = NULL;
    sql(other, "BEGIN; UPDATE account SET v = v WHERE id = 1");
    assert_run("UPDATE account SET v = v + 1 WHERE id = 1", 1, PQTX_BUSY);
    ck_assert_uint_eq(error.attempt, 3);
    ck_assert(error.flags & PQTX_ERROR_ATTEMPTS);
}
END_TEST

static const char *const too_long[] = {"UPDATE account SET v = v + 1 WHERE id = 1",
                                       "SELECT pg_sleep(600), note('x')",
                                       "SELECT note('x') FROM late"};

struct one {
    pthread_t thread;
    const char *statement;
    int64_t expected;
    pqtx_status status;
    pqtx_error error;
};

static void *run_in_thread(void *arg)
{
    struct one *one = arg;
    one->error = (pqtx_error)PQTX_ERROR;
    one->status = pqtx_run_one(pool, &options, one->statement, PQTX_NO_ARGS, one->expected, NULL,
                               &one->error);
    return NULL;
}

START_TEST(a_statement_ends_by_the_deadline)
{
    options.deadline_ms = 3000;
    options.lock_timeout_ms = PQTX_NO_TIMEOUT;
    sql(other, "BEGIN; UPDATE account SET v = v WHERE id = 1; LOCK TABLE late");
    int64_t pid = run_for_pid(pool, NULL);
    for (size_t i = 0; i < sizeof too_long / sizeof too_long[0]; i++) {
        struct one one = {.statement = too_long[i], .expected = _i == 0 ? PQTX_ANY_ROWS : 1};
        run_in_thread(&one);
        assert_status(one.status, PQTX_TIMEOUT, &one.error);
        ck_assert(one.error.flags & PQTX_ERROR_DEADLINE);
        ck_assert_int_lt(one.error.elapsed_us, 6000000);
        ck_assert_int_eq(run_for_pid(pool, NULL), pid);
    }
    ck_assert_int_eq(log_lines(), 0);
}
END_TEST

/* ---- Many at once */

START_TEST(a_row_changed_meanwhile_is_changed_from_its_newest_value)
{
    struct one one = {.statement = "UPDATE account SET v = v - 10 WHERE id = 1 AND v >= 10",
                      .expected = 1};
    pqtx_pool_close(pool);
    pool = open_pool(1);
    int pid = (int)run_for_pid(pool, NULL);
    sql(other, "BEGIN; UPDATE account SET v = 9 WHERE id = 1");
    pthread_create(&one.thread, NULL, run_in_thread, &one);
    wait_until_blocked(monitor, pid);
    sql(other, "COMMIT");
    pthread_join(one.thread, NULL);
    assert_status(one.status, PQTX_NO_MATCH, &one.error);
    ck_assert_int_eq(sum(), 149);
}
END_TEST

enum { TAKERS = 8, TRIES = 25 };

static void *take(void *arg)
{
    int *taken = arg;
    for (int i = 0; i < TRIES; i++) {
        pqtx_status status =
            pqtx_run_one(pool, NULL, "UPDATE account SET v = v - 1 WHERE id = 2 AND v >= 1",
                         PQTX_NO_ARGS, 1, NULL, NULL);
        *taken += status == PQTX_OK;
        if (status != PQTX_OK && status != PQTX_NO_MATCH)
            *taken = -1000;
    }
    return NULL;
}

START_TEST(no_more_is_taken_than_there_is)
{
    pthread_t threads[TAKERS];
    int taken[TAKERS] = {0}, all = 0;
    sql(monitor, "UPDATE account SET v = 150 WHERE id = 2");
    for (int i = 0; i < TAKERS; i++)
        ck_assert(pthread_create(&threads[i], NULL, take, &taken[i]) == 0);
    for (int i = 0; i < TAKERS; i++) {
        pthread_join(threads[i], NULL);
        all += taken[i];
    }
    ck_assert_int_eq(all, 150);
    ck_assert_int_eq(ask_int(monitor, "SELECT v FROM account WHERE id = 2"), 0);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("live_one");
    TCase *c = tcase_create("one");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_set_timeout(c, 60);
    tcase_add_test(c, any_number_of_rows_may_be_taken);
    tcase_add_test(c, as_many_rows_as_expected_are_committed);
    tcase_add_test(c, fewer_or_more_rows_than_expected_are_not);
    tcase_add_test(c, a_miss_undoes_what_the_statement_did_besides);
    tcase_add_test(c, very_many_rows_may_be_expected);
    tcase_add_test(c, the_result_is_the_callers_and_outlives_the_pool);
    tcase_add_test(c, neither_options_nor_result_nor_error_must_be_asked_for);
    tcase_add_test(c, values_of_every_type_arrive);
    tcase_add_test(c, a_failure_is_told_and_nothing_is_left);
    tcase_add_test(c, a_wrong_call_is_misuse_and_nothing_is_sent);
    tcase_add_test(c, a_statement_without_a_count_is_misuse_where_one_is_expected);
    tcase_add_test(c, a_merge_is_counted_too);
    tcase_add_test(c, every_option_holds_for_a_single_statement);
    tcase_add_test(c, a_single_statement_may_be_an_event);
    tcase_add_test(c, a_statement_that_lost_a_race_is_run_again);
    add_direct_loop_test(c, a_statement_ends_by_the_deadline, 0, 2, INVENTED_PID);
    tcase_add_test(c, a_row_changed_meanwhile_is_changed_from_its_newest_value);
    tcase_add_test(c, no_more_is_taken_than_there_is);
    suite_add_tcase(s, c);
    return s;
}

int main(void)
{
    return run_suite(suite());
}
