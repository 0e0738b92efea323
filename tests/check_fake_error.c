/* check_fake_error.c: errors and silence of a server before COMMIT has begun, and a COMMIT that
 * never ends. */
#include "support.h"
#include "support_fake_trial.h"

#include <string.h>

#define COUNT(array)     ((int)(sizeof(array) / sizeof((array)[0])))
#define ADD(tcase, test) tcase_add_loop_test(tcase, test, 0, COUNT(test##_table))
#define BODY             "INSERT INTO mark"

struct answer {
    const char *script;
    pqtx_status result;
    uint32_t attempts;
    pqtx_status error;
    const char *sqlstate;
};

#define AGAIN(script, status, code)                                                                \
    {                                                                                              \
        script, PQTX_OK, 2, PQTX_##status, code                                                    \
    }
#define FAILED(script, status, code)                                                               \
    {                                                                                              \
        script, PQTX_##status, 1, PQTX_##status, code                                              \
    }

static void check_error(const struct fake_trial *trial, const struct answer *a)
{
    assert_status(trial->error.status, a->error, &trial->error);
    ck_assert_str_eq(trial->error.sqlstate, a->sqlstate);
    ck_assert_uint_eq(trial->error.attempt, 1);
}

static void run_and_check(struct fake_trial *trial, const struct answer *a)
{
    fake_trial_run(trial);
    assert_status(trial->status, a->result, &trial->error);
    ck_assert_uint_eq(trial->attempts, a->attempts);
    ck_assert_uint_eq(trial->flags, 0);
    check_error(trial, a);
}

/* ---- BEGIN and the settings */

static const struct answer where_begin_fails_the_body_does_not_run_table[] = {
    FAILED("error 25001 set_transaction", BAD_STATEMENT, "25001"),
    FAILED("error 0A000 PreventCommandDuringRecovery", BAD_STATEMENT, "0A000"),
    FAILED("error 53200", RESOURCES, "53200"),
    AGAIN("error 40001", SERIALIZATION, "40001"),
    AGAIN("fatal 57P01 ProcessInterrupts; close", NO_CONNECTION, "57P01"),
    AGAIN("pooler FATAL 08P01 query_wait_timeout; close", NO_CONNECTION, "08P01"),
};

/* Of what came between this BEGIN and the next one: one Sync at most, and nothing was run. */
static void check_nothing_ran_after(const struct fake *fake, size_t at)
{
    int syncs = 0;
    for (at++; at < fake->event_count && !strstr(fake->events[at].text, "BEGIN"); at++) {
        const struct fake_event *event = &fake->events[at];
        bool is_sync = strcmp(event->text, "(sync)") == 0;
        if (strcmp(event->text, "(startup)") == 0)
            return;
        syncs += is_sync;
        ck_assert_msg(is_sync || !event->ran, "ran without BEGIN: %s", event->text);
    }
    ck_assert_int_le(syncs, 1);
}

static void check_where_begin_fails(const struct answer *a, bool own)
{
    struct fake_trial trial;
    size_t at = 0;
    fake_trial_begin(&trial);
    if (own)
        trial.own = fake_connect(trial.fake);
    fake_on(trial.fake, "BEGIN", a->script);
    fake_trial_run(&trial);
    bool retried = !own || a->error == PQTX_SERIALIZATION;
    assert_status(trial.status, retried ? a->result : a->error, &trial.error);
    check_error(&trial, a);
    ck_assert_int_eq(trial.error.phase, PQTX_PHASE_BEGIN);
    while (!strstr(trial.fake->events[at].text, "BEGIN"))
        at++;
    check_nothing_ran_after(trial.fake, at);
    fake_trial_end(&trial);
}

START_TEST(where_begin_fails_the_body_does_not_run)
{
    check_where_begin_fails(&where_begin_fails_the_body_does_not_run_table[_i], false);
}
END_TEST

START_TEST(where_begin_fails_the_body_does_not_run_on_a_lent_connection)
{
    check_where_begin_fails(&where_begin_fails_the_body_does_not_run_table[_i], true);
}
END_TEST

START_TEST(where_a_setting_fails_the_body_does_not_run)
{
    struct fake_trial trial;
    fake_trial_begin(&trial);
    fake_on(trial.fake, "SET LOCAL lock_timeout", "error 22023 parse_and_validate_value");
    fake_trial_run(&trial);
    assert_status(trial.status, PQTX_BAD_DATA, &trial.error);
    ck_assert_int_eq(trial.error.phase, PQTX_PHASE_BEGIN);
    ck_assert_int_eq(fake_ran(trial.fake, BODY), 0);
    ck_assert_int_eq(fake_ran(trial.fake, "ROLLBACK"), 1);
    fake_trial_end(&trial);
}
END_TEST

/* ---- errors in the body */

static const struct answer an_error_in_the_body_is_never_doubt_table[] = {
    FAILED("error 40003", SERVER_ERROR, "40003"),
    FAILED("error 08007", SERVER_ERROR, "08007"),
    FAILED("error XX000", SERVER_ERROR, "XX000"),
    FAILED("error 23505; error 25P02", DUPLICATE, "23505"),
    FAILED("warning 01000; error 23505", DUPLICATE, "23505"),
    FAILED("columns a; row 1; error 22012", BAD_DATA, "22012"),
    FAILED("complete INSERT 0 1; error 23505", DUPLICATE, "23505"),
    AGAIN("error 40001", SERIALIZATION, "40001"),
    AGAIN("pooler ERROR 40001", SERIALIZATION, "40001"),
};

START_TEST(an_error_in_the_body_is_never_doubt)
{
    struct fake_trial trial;
    const struct answer *a = &an_error_in_the_body_is_never_doubt_table[_i];
    fake_trial_begin(&trial);
    fake_on(trial.fake, BODY, a->script);
    run_and_check(&trial, a);
    ck_assert_int_eq(fake_heard(trial.fake, "COMMIT"), (int)a->attempts - 1);
    ck_assert_int_eq(fake_ran(trial.fake, "ROLLBACK"), 1);
    ck_assert_int_eq(trial.fake->connection_count, 1);
    fake_trial_end(&trial);
}
END_TEST

/* A deferred constraint, checked when the Sync ends an implicit transaction, belongs to no command
 * and comes as a result too many. */
START_TEST(an_error_found_at_the_sync_is_seen)
{
    struct fake_trial trial;
    fake_trial_begin(&trial);
    fake_on(trial.fake, BODY, "complete INSERT 0 1");
    fake_on(trial.fake, "(sync)", "error 23503 ri_ReportViolation");
    fake_trial_run(&trial);
    assert_status(trial.status, PQTX_FOREIGN_KEY, &trial.error);
    ck_assert_int_eq(fake_heard(trial.fake, "COMMIT"), 0);
    fake_trial_end(&trial);
}
END_TEST

static const char *const a_copy_that_nobody_asked_for_ends_the_attempt_table[] = {
    "copyin",
    "copyout",
    "copyboth",
    "copyout; hex 6400000005610a; hex 6300000004; complete COPY 1",
};

START_TEST(a_copy_that_nobody_asked_for_ends_the_attempt)
{
    struct fake_trial trial;
    fake_trial_begin(&trial);
    trial.options.max_attempts = 1;
    fake_on(trial.fake, BODY, a_copy_that_nobody_asked_for_ends_the_attempt_table[_i]);
    fake_trial_run(&trial);
    assert_status(trial.status, PQTX_NO_CONNECTION, &trial.error);
    ck_assert_uint_ne(trial.error.flags & PQTX_ERROR_CONNECTION, 0);
    ck_assert_int_eq(fake_heard(trial.fake, "COMMIT"), 0);
    fake_trial_end(&trial);
}
END_TEST

static const char *const an_answer_to_rollback_changes_nothing_table[] = {
    "fatal 57P01 ProcessInterrupts; close",
    "pooler FATAL 08P01; close",
    "error 40001",
    "error 57014",
    "complete COMMIT",
    "hex 7900000004",
    "copyin",
    "close",
    "mute",
};

START_TEST(an_answer_to_rollback_changes_nothing)
{
    struct fake_trial trial;
    fake_trial_begin(&trial);
    fake_on(trial.fake, BODY, "error 23505");
    fake_on(trial.fake, "ROLLBACK", an_answer_to_rollback_changes_nothing_table[_i]);
    fake_trial_run(&trial);
    assert_status(trial.status, PQTX_DUPLICATE, &trial.error);
    ck_assert_str_eq(trial.error.sqlstate, "23505");
    ck_assert_int_eq(trial.error.phase, PQTX_PHASE_BODY);
    fake_trial_end(&trial);
}
END_TEST

/* ---- a server that is read only */

struct standby {
    const char *welcome; /* what follows in_hot_standby */
    pqtx_access access;
    pqtx_status result;
    int connections;
};

#define WELCOME "authenticated; parameter server_version 15.0; key 4711; "

static const struct standby a_standby_is_left_and_a_read_only_session_is_not_table[] = {
    {WELCOME "parameter in_hot_standby on; ready I", PQTX_ACCESS_DEFAULT, PQTX_OK, 2},
    {WELCOME "parameter in_hot_standby on; ready I", PQTX_ACCESS_READ_WRITE, PQTX_OK, 2},
    {WELCOME "ready I", PQTX_ACCESS_DEFAULT, PQTX_OK, 2}, /* a server before 14 */
    {WELCOME "parameter in_hot_standby off; ready I", PQTX_ACCESS_DEFAULT, PQTX_READ_ONLY, 1},
    {WELCOME "parameter in_hot_standby on; ready I", PQTX_ACCESS_READ_ONLY, PQTX_READ_ONLY, 1},
};

START_TEST(a_standby_is_left_and_a_read_only_session_is_not)
{
    struct fake_trial trial;
    const struct standby *given = &a_standby_is_left_and_a_read_only_session_is_not_table[_i];
    fake_trial_begin_lazily(&trial);
    trial.options.access = given->access;
    fake_on(trial.fake, "(startup)", given->welcome);
    fake_on(trial.fake, BODY, "error 25006 PreventCommandIfReadOnly");
    fake_trial_run(&trial);
    assert_status(trial.status, given->result, &trial.error);
    assert_status(trial.error.status, PQTX_READ_ONLY, &trial.error);
    ck_assert_str_eq(trial.error.sqlstate, "25006");
    ck_assert_int_eq(trial.fake->connection_count, given->connections);
    fake_trial_end(&trial);
}
END_TEST

START_TEST(a_primary_that_has_become_a_standby_is_left)
{
    struct fake_trial trial;
    fake_trial_begin(&trial);
    fake_on(trial.fake, BODY, "parameter in_hot_standby on; error 25006 PreventCommandIfReadOnly");
    fake_trial_run(&trial);
    assert_status(trial.status, PQTX_OK, &trial.error);
    ck_assert_uint_eq(trial.attempts, 2);
    ck_assert_int_eq(trial.fake->connection_count, 2);
    fake_trial_end(&trial);
}
END_TEST

/* ---- a server that says nothing */

START_TEST(a_server_that_falls_silent_in_the_body_is_given_up_at_the_deadline)
{
    struct fake_trial trial;
    fake_trial_begin(&trial);
    trial.options.deadline_ms = 4000;
    fake_on(trial.fake, BODY, "mute");
    if (_i == 1) /* the cancel is asked for, and that is all */
        fake_on(trial.fake, "pg_cancel_backend", "columns a; row t; complete SELECT 1");
    if (_i == 2) /* nobody listens there either */
        fake_on(trial.fake, "(startup)", "mute");
    fake_trial_run(&trial);
    assert_status(trial.status, PQTX_TIMEOUT, &trial.error);
    ck_assert_uint_ne(trial.error.flags & PQTX_ERROR_DEADLINE, 0);
    ck_assert_uint_eq(trial.attempts, 1);
    ck_assert_int_le(trial.ended_us - trial.began_us, 4000000);
    fake_trial_end(&trial);
}
END_TEST

START_TEST(a_server_that_never_answers_rollback_gets_its_grace_and_no_more)
{
    struct fake_trial trial;
    fake_trial_begin(&trial);
    trial.options.deadline_ms = 4000;
    fake_on(trial.fake, BODY, "late 3900; error 23505");
    fake_on(trial.fake, "ROLLBACK", "mute");
    fake_trial_run(&trial);
    assert_status(trial.status, PQTX_DUPLICATE, &trial.error);
    ck_assert_int_eq(trial.ended_us - trial.began_us, 4300000);
    fake_trial_end(&trial);
}
END_TEST

START_TEST(a_server_that_never_answers_commit_is_doubt_at_the_deadline)
{
    struct fake_trial trial;
    fake_trial_begin(&trial);
    trial.options.deadline_ms = 4000;
    fake_on(trial.fake, "COMMIT", "mute");
    fake_trial_run(&trial);
    assert_status(trial.status, PQTX_IN_DOUBT, &trial.error);
    ck_assert_int_eq(trial.ended_us - trial.began_us, 4000000);
    fake_trial_end(&trial);
}
END_TEST

START_TEST(a_commit_that_meets_the_statement_timeout_is_a_timeout)
{
    struct fake_trial trial;
    fake_trial_begin(&trial);
    trial.options.statement_timeout_ms = 500;
    fake_on(trial.fake, "COMMIT", "late 501; error 57014 ProcessInterrupts");
    fake_trial_run(&trial);
    assert_status(trial.status, PQTX_TIMEOUT, &trial.error);
    ck_assert_str_eq(trial.error.sqlstate, "57014");
    fake_trial_end(&trial);
}
END_TEST

static void add_errors(Suite *suite)
{
    TCase *tcase = tcase_create("errors");
    ADD(tcase, where_begin_fails_the_body_does_not_run);
    tcase_add_loop_test(tcase, where_begin_fails_the_body_does_not_run_on_a_lent_connection, 0,
                        COUNT(where_begin_fails_the_body_does_not_run_table));
    tcase_add_test(tcase, where_a_setting_fails_the_body_does_not_run);
    ADD(tcase, an_error_in_the_body_is_never_doubt);
    tcase_add_test(tcase, an_error_found_at_the_sync_is_seen);
    ADD(tcase, a_copy_that_nobody_asked_for_ends_the_attempt);
    ADD(tcase, an_answer_to_rollback_changes_nothing);
    ADD(tcase, a_standby_is_left_and_a_read_only_session_is_not);
    tcase_add_test(tcase, a_primary_that_has_become_a_standby_is_left);
    suite_add_tcase(suite, tcase);
}

static void add_silences(Suite *suite)
{
    TCase *tcase = tcase_create("silences");
    tcase_add_loop_test(tcase, a_server_that_falls_silent_in_the_body_is_given_up_at_the_deadline,
                        0, 3);
    tcase_add_test(tcase, a_server_that_never_answers_rollback_gets_its_grace_and_no_more);
    tcase_add_test(tcase, a_server_that_never_answers_commit_is_doubt_at_the_deadline);
    tcase_add_test(tcase, a_commit_that_meets_the_statement_timeout_is_a_timeout);
    suite_add_tcase(suite, tcase);
}

int main(void)
{
    Suite *suite = suite_create("fake_error");
    add_errors(suite);
    add_silences(suite);
    return run_suite(suite);
}
