/* check_fake_body.c: a session that ends, or says that it does, before COMMIT has begun: never
 * doubt, never a commit. */
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

/* Nothing but the sleep between attempts may take time: the rest is known at once. */
static void check_no_wait(const struct fake_trial *trial)
{
    int64_t waited_us = trial->ended_us - trial->began_us - trial->fake->slept_us;
    ck_assert_int_eq(waited_us, 0);
}

/* ---- the session ends in the body */

static const struct answer a_session_that_ends_in_the_body_is_begun_again_table[] = {
    AGAIN("fatal 57P01 ProcessInterrupts; close", NO_CONNECTION, "57P01"),
    AGAIN("fatal 57P02 quickdie; close", NO_CONNECTION, "57P02"),
    AGAIN("fatal 57P05 ProcessInterrupts; close", NO_CONNECTION, "57P05"),
    AGAIN("fatal 08P01; close", NO_CONNECTION, "08P01"),
    AGAIN("fatal 40001 ProcessInterrupts; close", SERIALIZATION, "40001"),
    AGAIN("pooler FATAL 08P01 server conn crashed?; close", NO_CONNECTION, "08P01"),
    AGAIN("fatal 57P01; pooler FATAL 08P01; close", NO_CONNECTION, "57P01"),
    AGAIN("warning 57P02 quickdie; close", NO_CONNECTION, ""),
    AGAIN("close", NO_CONNECTION, ""),
    AGAIN("cut 0", NO_CONNECTION, ""),
    AGAIN("fatal 57P01 ProcessInterrupts; cut 20", NO_CONNECTION, ""),
    AGAIN("complete INSERT 0 1; close", NO_CONNECTION, ""),
    AGAIN("hex 43ffffffff00", NO_CONNECTION, ""),
    FAILED("fatal 25P03 ProcessInterrupts; close", TIMEOUT, "25P03"),
    FAILED("fatal 25P04 ProcessInterrupts; close", TIMEOUT, "25P04"),
    FAILED("fatal XX000; close", SERVER_ERROR, "XX000"),
    FAILED("panic XX000; close", SERVER_ERROR, "XX000"),
};

START_TEST(a_session_that_ends_in_the_body_is_begun_again)
{
    struct fake_trial trial;
    const struct answer *a = &a_session_that_ends_in_the_body_is_begun_again_table[_i];
    fake_trial_begin(&trial);
    fake_on(trial.fake, BODY, a->script);
    run_and_check(&trial, a);
    check_no_wait(&trial);
    ck_assert_uint_ne(trial.error.flags & PQTX_ERROR_CONNECTION, 0);
    ck_assert_int_eq(fake_heard(trial.fake, "COMMIT"), (int)a->attempts - 1);
    fake_trial_end(&trial);
}
END_TEST

START_TEST(a_lost_session_of_the_caller_is_not_begun_again)
{
    struct fake_trial trial;
    const struct answer *a = &a_session_that_ends_in_the_body_is_begun_again_table[_i];
    fake_trial_begin(&trial);
    trial.own = fake_connect(trial.fake);
    fake_on(trial.fake, BODY, a->script);
    fake_trial_run(&trial);
    assert_status(trial.status, a->error, &trial.error);
    ck_assert_uint_eq(trial.attempts, 1);
    ck_assert_int_eq(fake_heard(trial.fake, "COMMIT"), 0);
    check_error(&trial, a);
    fake_trial_end(&trial);
}
END_TEST

static const struct answer a_session_that_says_it_ends_is_not_waited_for_table[] = {
    AGAIN("fatal 57P01 ProcessInterrupts", NO_CONNECTION, "57P01"),
    AGAIN("pooler FATAL 08P01 server conn crashed?", NO_CONNECTION, "08P01"),
    AGAIN("fatal 40001 ProcessInterrupts", SERIALIZATION, "40001"),
    AGAIN("fatal 57P01; complete INSERT 0 1; ready T", NO_CONNECTION, "57P01"),
    FAILED("fatal 25P03 ProcessInterrupts", TIMEOUT, "25P03"),
    FAILED("panic XX000", SERVER_ERROR, "XX000"),
};

START_TEST(a_session_that_says_it_ends_is_not_waited_for)
{
    struct fake_trial trial;
    const struct answer *a = &a_session_that_says_it_ends_is_not_waited_for_table[_i];
    fake_trial_begin(&trial);
    fake_on(trial.fake, BODY, a->script);
    run_and_check(&trial, a);
    check_no_wait(&trial);
    fake_trial_end(&trial);
}
END_TEST

/* ---- the session ends between the body and COMMIT */

static void say_before_commit(struct fake_trial *trial, pqtx_tx *tx)
{
    (void)tx;
    if (trial->bodies == 1)
        fake_say(trial->fake, trial->arg);
}

static const struct answer an_end_heard_before_commit_is_surely_rolled_back_table[] = {
    AGAIN("fatal 57P01 ProcessInterrupts; close", NO_CONNECTION, "57P01"),
    AGAIN("fatal 57P01 ProcessInterrupts", NO_CONNECTION, "57P01"),
    AGAIN("notice 00000; fatal 57P01 ProcessInterrupts; close", NO_CONNECTION, "57P01"),
    AGAIN("fatal 40001 ProcessInterrupts; close", SERIALIZATION, "40001"),
    AGAIN("pooler FATAL 08P01 server conn crashed?; close", NO_CONNECTION, "08P01"),
    AGAIN("warning 57P02 quickdie; close", NO_CONNECTION, ""),
    AGAIN("close", NO_CONNECTION, ""),
    FAILED("fatal 25P03 ProcessInterrupts; close", TIMEOUT, "25P03"),
    FAILED("fatal 25P04 ProcessInterrupts; close", TIMEOUT, "25P04"),
};

START_TEST(an_end_heard_before_commit_is_surely_rolled_back)
{
    struct fake_trial trial;
    const struct answer *a = &an_end_heard_before_commit_is_surely_rolled_back_table[_i];
    fake_trial_begin(&trial);
    trial.inside = say_before_commit;
    trial.arg = a->script;
    run_and_check(&trial, a);
    check_no_wait(&trial);
    ck_assert_int_eq(fake_heard(trial.fake, "COMMIT"), (int)a->attempts - 1);
    fake_trial_end(&trial);
}
END_TEST

static const struct answer an_end_that_came_with_the_last_answer_is_surely_rolled_back_table[] = {
    AGAIN("ready T; fatal 57P01 ProcessInterrupts; close", NO_CONNECTION, "57P01"),
    AGAIN("ready T; close", NO_CONNECTION, ""),
    FAILED("ready T; fatal 25P03 ProcessInterrupts; close", TIMEOUT, "25P03"),
};

static void end_with_the_answer(struct fake_trial *trial, pqtx_tx *tx)
{
    if (trial->bodies == 1)
        fake_on(trial->fake, "(sync)", trial->arg);
    pqtx_exec(tx, "UPDATE mark SET id = 2", PQTX_NO_ARGS, NULL);
}

START_TEST(an_end_that_came_with_the_last_answer_is_surely_rolled_back)
{
    struct fake_trial trial;
    const struct answer *a = &an_end_that_came_with_the_last_answer_is_surely_rolled_back_table[_i];
    fake_trial_begin(&trial);
    trial.inside = end_with_the_answer;
    trial.arg = a->script;
    run_and_check(&trial, a);
    ck_assert_int_eq(fake_heard(trial.fake, "COMMIT"), (int)a->attempts - 1);
    fake_trial_end(&trial);
}
END_TEST

static const char *const what_is_no_end_changes_nothing_table[] = {
    "notice 00000",
    "warning 01000; warning 25P01",
    "parameter TimeZone UTC",
    "parameter in_hot_standby on",
    "notify jobs; notify jobs",
    "parameter TimeZone UTC; notify jobs; notice 00000; parameter client_encoding LATIN1",
};

START_TEST(what_is_no_end_changes_nothing)
{
    struct fake_trial trial;
    fake_trial_begin(&trial);
    trial.inside = say_before_commit;
    trial.arg = what_is_no_end_changes_nothing_table[_i];
    fake_trial_run(&trial);
    assert_status(trial.status, PQTX_OK, &trial.error);
    ck_assert_uint_eq(trial.attempts, 1);
    ck_assert_uint_eq(trial.flags, 0);
    ck_assert_int_eq(fake_ran(trial.fake, "COMMIT"), 1);
    fake_trial_end(&trial);
}
END_TEST

/* An answer too many puts every later one in the wrong place. */
static const char *const an_answer_too_many_is_no_answer_to_commit_table[] = {
    "ready T; ready T",
    "ready T; complete INSERT 0 1; ready T",
    "ready T; columns a; row COMMIT; complete SELECT 1; ready T",
};

START_TEST(an_answer_too_many_is_no_answer_to_commit)
{
    struct fake_trial trial;
    fake_trial_begin(&trial);
    fake_on(trial.fake, BODY, "complete INSERT 0 1");
    fake_on(trial.fake, "(sync)", "");
    trial.inside = end_with_the_answer;
    trial.arg = an_answer_too_many_is_no_answer_to_commit_table[_i];
    fake_trial_run(&trial);
    assert_status(trial.status, PQTX_IN_DOUBT, &trial.error);
    fake_trial_end(&trial);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("fake_body");
    TCase *tcase = tcase_create("ends");
    ADD(tcase, a_session_that_ends_in_the_body_is_begun_again);
    tcase_add_loop_test(tcase, a_lost_session_of_the_caller_is_not_begun_again, 0,
                        COUNT(a_session_that_ends_in_the_body_is_begun_again_table));
    ADD(tcase, a_session_that_says_it_ends_is_not_waited_for);
    ADD(tcase, an_end_heard_before_commit_is_surely_rolled_back);
    ADD(tcase, an_end_that_came_with_the_last_answer_is_surely_rolled_back);
    ADD(tcase, what_is_no_end_changes_nothing);
    ADD(tcase, an_answer_too_many_is_no_answer_to_commit);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
