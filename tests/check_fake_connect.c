/* check_fake_connect.c: what a server can say to a new connection: nothing ran, and no secret is
 * told. */
#include "support.h"
#include "support_fake_trial.h"

#include <stdio.h>
#include <string.h>

#define COUNT(array)     ((int)(sizeof(array) / sizeof((array)[0])))
#define ADD(tcase, test) tcase_add_loop_test(tcase, test, 0, COUNT(test##_table))
#define STARTUP          "(startup)"

struct refusal {
    const char *script;
    pqtx_status status;
    const char *sqlstate, *message;
};

static void check_refusal(const pqtx_error *error, const struct refusal *refusal)
{
    assert_status(error->status, refusal->status, error);
    ck_assert_str_eq(error->sqlstate, refusal->sqlstate);
    ck_assert_int_eq(error->phase, PQTX_PHASE_CONNECT);
    ck_assert_msg(strstr(error->message, refusal->message), "%s", error->message);
    ck_assert_msg(!strstr(error->message, FAKE_PASSWORD), "%s", error->message);
    ck_assert_msg(!strpbrk(error->message, "\r\n"), "%s", error->message);
}

/* ---- for good */

static const struct refusal a_refusal_for_good_is_reported_at_once_table[] = {
    {"fatal 28P01 auth_failed password authentication failed for user \"nobody\"; close",
     PQTX_DENIED, "28P01", "password authentication failed for user \"nobody\""},
    {"fatal 28000 ClientAuthentication no pg_hba.conf entry; close", PQTX_DENIED, "28000",
     "no pg_hba.conf entry"},
    {"fatal 3D000 InitPostgres database \"nothing\" does not exist; close", PQTX_BAD_STATEMENT,
     "3D000", "database \"nothing\" does not exist"},
    {"fatal 28P01 auth_failed no: DETAIL:  08006: no|and ERROR:  57P03: no; close", PQTX_DENIED,
     "28P01", "no: DETAIL"},
    {"fatal 28P01 auth_failed no|NOTES:  00000: none; close", PQTX_DENIED, "28P01", "no"},
    {"authenticated; parameter server_version 15.0; fatal 3D000 InitPostgres none; close",
     PQTX_BAD_STATEMENT, "3D000", "none"},
};

START_TEST(a_refusal_for_good_is_reported_at_once)
{
    struct fake_trial trial;
    const struct refusal *refusal = &a_refusal_for_good_is_reported_at_once_table[_i];
    fake_trial_begin_lazily(&trial);
    fake_on(trial.fake, STARTUP, refusal->script);
    fake_trial_run(&trial);
    assert_status(trial.status, refusal->status, &trial.error);
    check_refusal(&trial.error, refusal);
    ck_assert_uint_eq(trial.attempts, 0);
    ck_assert_int_eq(trial.fake->connection_count, 1);
    fake_trial_end(&trial);
}
END_TEST

START_TEST(a_pool_that_is_refused_is_not_opened)
{
    const struct refusal *refusal = &a_refusal_for_good_is_reported_at_once_table[_i];
    struct fake *fake = fake_open();
    pqtx_pool_options options = PQTX_POOL_OPTIONS;
    pqtx_error error = PQTX_ERROR;
    pqtx_pool *pool;
    options.conninfo = fake->conninfo;
    options.clock = &fake->clock;
    fake_on(fake, STARTUP, refusal->script);
    assert_status(pqtx_pool_open(&options, &pool, &error), refusal->status, &error);
    ck_assert_ptr_null(pool);
    check_refusal(&error, refusal);
    fake_close(fake);
}
END_TEST

/* Whatever a server puts where the SQLSTATE should be, a connection that failed has failed. */
static const char *const a_failure_that_calls_itself_success_is_a_failure_table[] = {
    "fatal 00000 InitPostgres; close",
    "fatal 01000 InitPostgres; close",
    "fatal 02000 InitPostgres; close",
    "pooler FATAL 00000; close",
    "fatal 57P03 said:  00000: all is well; close",
    "fatal 57P03 said all is well|HINT:  00000: all is well; close",
};

START_TEST(a_failure_that_calls_itself_success_is_a_failure)
{
    struct fake_trial trial;
    fake_trial_begin_lazily(&trial);
    trial.options.retry_mask = PQTX_RETRY_NOTHING;
    fake_on(trial.fake, STARTUP, a_failure_that_calls_itself_success_is_a_failure_table[_i]);
    fake_trial_run(&trial);
    ck_assert_int_ne(trial.status, PQTX_OK);
    ck_assert_int_eq(trial.error.phase, PQTX_PHASE_CONNECT);
    fake_trial_end(&trial);
}
END_TEST

/* ---- for now */

static const struct refusal a_refusal_for_now_is_tried_again_table[] = {
    {"fatal 57P03 ProcessStartupPacket the database system is starting up; close",
     PQTX_NO_CONNECTION, "57P03", "the database system is starting up"},
    {"fatal 53300 InitProcess sorry, too many clients already; close", PQTX_RESOURCES, "53300",
     "sorry, too many clients already"},
    {"fatal 57P01 ProcessInterrupts going down; close", PQTX_NO_CONNECTION, "57P01", "going down"},
    {"pooler FATAL 08P01 no more connections allowed; close", PQTX_NO_CONNECTION, "08P01",
     "no more connections allowed"},
    {"fatal 57P03 ProcessStartupPacket not yet", PQTX_NO_CONNECTION, "57P03", "not yet"},
    {"close", PQTX_NO_CONNECTION, "", "no answer"},
    {"authenticated; close", PQTX_NO_CONNECTION, "", "no answer"},
    {"hex 485454502f312e31203430302042616420526571756573740d0a; close", PQTX_NO_CONNECTION, "",
     "no answer"}, /* "HTTP/1.1 400 Bad Request" */
    {"hex 52ffffffff; close", PQTX_NO_CONNECTION, "", "no answer"},
};

START_TEST(a_refusal_for_now_is_tried_again)
{
    struct fake_trial trial;
    const struct refusal *refusal = &a_refusal_for_now_is_tried_again_table[_i];
    fake_trial_begin_lazily(&trial);
    fake_on(trial.fake, STARTUP, refusal->script);
    fake_on(trial.fake, STARTUP, refusal->script);
    fake_trial_run(&trial);
    assert_status(trial.status, PQTX_OK, &trial.error);
    check_refusal(&trial.error, refusal);
    ck_assert_uint_eq(trial.attempts, 1);
    ck_assert_int_eq(trial.failures, 2);
    ck_assert_int_eq(trial.fake->connection_count, 3);
    ck_assert_int_eq(trial.fake->slept_us, 75000); /* half of 50 and of 100 ms */
    fake_trial_end(&trial);
}
END_TEST

START_TEST(a_welcome_that_breaks_off_anywhere_is_tried_again)
{
    char script[512];
    struct fake_trial trial;
    fake_trial_begin_lazily(&trial);
    snprintf(script, sizeof script, "%s; cut %d", FAKE_WELCOME, _i);
    fake_on(trial.fake, STARTUP, script);
    fake_trial_run(&trial);
    assert_status(trial.status, PQTX_OK, &trial.error);
    assert_status(trial.error.status, PQTX_NO_CONNECTION, &trial.error);
    fake_trial_end(&trial);
}
END_TEST

/* ---- silence */

START_TEST(a_server_that_never_speaks_is_given_up_in_time)
{
    static const char *const starts[] = {"mute", "authenticated; mute",
                                         "authenticated; parameter server_version 15.0; mute"};
    struct fake_trial trial;
    fake_trial_begin_lazily(&trial);
    trial.options.deadline_ms = 25000;
    fake_always(trial.fake, STARTUP, starts[_i]);
    fake_trial_run(&trial);
    assert_status(trial.status, PQTX_NO_CONNECTION, &trial.error);
    ck_assert_uint_ne(trial.error.flags & PQTX_ERROR_DEADLINE, 0);
    ck_assert_int_eq(trial.fake->connection_count, 3); /* of 10 s each, and the rest */
    ck_assert_int_le(trial.ended_us - trial.began_us, 25000000);
    fake_trial_end(&trial);
}
END_TEST

START_TEST(a_pool_on_a_server_that_never_speaks_is_not_opened)
{
    struct fake *fake = fake_open();
    pqtx_pool_options options = PQTX_POOL_OPTIONS;
    pqtx_error error = PQTX_ERROR;
    pqtx_pool *pool;
    options.conninfo = fake->conninfo;
    options.clock = &fake->clock;
    options.connect_timeout_ms = 700;
    int64_t began_us = fake->now_us;
    fake_on(fake, _i == 0 ? STARTUP : "pg_backend_pid()", "mute");
    assert_status(pqtx_pool_open(&options, &pool, &error), PQTX_NO_CONNECTION, &error);
    ck_assert_ptr_null(pool);
    ck_assert_int_eq(fake->now_us - began_us, 700000);
    fake_close(fake);
}
END_TEST

/* ---- between the welcome and the first statement */

static const char *const what_becomes_of_the_first_question_is_mended_table[] = {
    "error 42501 aclcheck_error",
    "error 42P01 parserOpenTable",
    "pooler ERROR 08P01",
    "columns pid start version; complete SELECT 0",
    "columns pid start version; row 4712|2000-01-01|linux; complete SELECT 1",
    "columns pid start version; row NULL|NULL|NULL; complete SELECT 1",
    "complete SELECT 1",
    "fatal 57P01 ProcessInterrupts; close",
    "hex 7900000004",
    "copyout",
    "close",
    "mute",
};

START_TEST(what_becomes_of_the_first_question_is_mended)
{
    struct fake_trial trial;
    fake_trial_begin_lazily(&trial);
    fake_on(trial.fake, "pg_backend_pid()", what_becomes_of_the_first_question_is_mended_table[_i]);
    fake_trial_run(&trial);
    assert_status(trial.status, PQTX_OK, &trial.error);
    fake_trial_end(&trial);
}
END_TEST

START_TEST(an_orphan_is_ended_only_if_its_server_is_known)
{
    struct fake_trial trial;
    fake_trial_begin_lazily(&trial);
    if (_i == 1) /* a pooler: its number is not the server's */
        fake_always(trial.fake, "pg_backend_pid()",
                    "columns pid start version; row 9|946684800000000|linux; complete SELECT 1");
    fake_on(trial.fake, "INSERT INTO mark", "close");
    fake_trial_run(&trial);
    assert_status(trial.status, PQTX_OK, &trial.error);
    ck_assert_int_eq(fake_ran(trial.fake, "pg_terminate_backend"), _i == 0);
    fake_trial_end(&trial);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("fake_connect");
    TCase *refused = tcase_create("refused"), *silent = tcase_create("silent");
    TCase *first = tcase_create("first question");

    ADD(refused, a_refusal_for_good_is_reported_at_once);
    tcase_add_loop_test(refused, a_pool_that_is_refused_is_not_opened, 0,
                        COUNT(a_refusal_for_good_is_reported_at_once_table));
    ADD(refused, a_failure_that_calls_itself_success_is_a_failure);
    ADD(refused, a_refusal_for_now_is_tried_again);
    tcase_add_loop_test(refused, a_welcome_that_breaks_off_anywhere_is_tried_again, 0, 160);
    suite_add_tcase(suite, refused);

    tcase_add_loop_test(silent, a_server_that_never_speaks_is_given_up_in_time, 0, 3);
    tcase_add_loop_test(silent, a_pool_on_a_server_that_never_speaks_is_not_opened, 0, 2);
    suite_add_tcase(suite, silent);

    ADD(first, what_becomes_of_the_first_question_is_mended);
    tcase_add_loop_test(first, an_orphan_is_ended_only_if_its_server_is_known, 0, 2);
    suite_add_tcase(suite, first);
    return run_suite(suite);
}
