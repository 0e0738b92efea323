/* check_fake_bytes.c: the same words in other pieces, broken off, or among a hundred thousand
 * others.
 */
#include "support.h"
#include "support_fake_trial.h"

#include <stdio.h>

#define BODY "INSERT INTO mark"

/* Of CommandComplete with the tag COMMIT, of ReadyForQuery, and of "error 40001". */
#define COMMIT_LEN 12
#define READY_LEN  6
#define ERROR_LEN  75

START_TEST(a_commit_is_known_with_the_last_byte_of_its_tag)
{
    char script[64];
    struct fake_trial trial;
    fake_trial_begin(&trial);
    snprintf(script, sizeof script, "complete COMMIT; ready I; cut %d", _i);
    fake_on(trial.fake, "COMMIT", script);
    fake_trial_run(&trial);
    assert_status(trial.status, _i < COMMIT_LEN ? PQTX_IN_DOUBT : PQTX_OK, &trial.error);
    fake_trial_end(&trial);
}
END_TEST

START_TEST(pieces_of_any_size_are_the_same_answer)
{
    struct fake_trial trial;
    fake_trial_begin(&trial);
    trial.fake->chunk = (size_t)_i / 2 + 1;
    if (_i % 2 == 1)
        fake_on(trial.fake, "COMMIT", "warning 01000 other; error 40001");
    fake_trial_run(&trial);
    assert_status(trial.status, PQTX_OK, &trial.error);
    ck_assert_uint_eq(trial.attempts, 1 + (uint32_t)_i % 2);
    fake_trial_end(&trial);
}
END_TEST

START_TEST(an_error_that_breaks_off_in_the_body_is_begun_again)
{
    char script[64];
    struct fake_trial trial;
    fake_trial_begin(&trial);
    snprintf(script, sizeof script, "error 40001; cut %d", _i);
    fake_on(trial.fake, BODY, script);
    fake_trial_run(&trial);
    assert_status(trial.status, PQTX_OK, &trial.error);
    assert_status(trial.error.status, PQTX_NO_CONNECTION, &trial.error);
    fake_trial_end(&trial);
}
END_TEST

START_TEST(an_error_that_breaks_off_at_commit_is_doubt)
{
    char script[64];
    struct fake_trial trial;
    fake_trial_begin(&trial);
    snprintf(script, sizeof script, "error 40001; ready I; cut %d", _i);
    fake_on(trial.fake, "COMMIT", script);
    fake_trial_run(&trial);
    assert_status(trial.status, PQTX_IN_DOUBT, &trial.error);
    fake_trial_end(&trial);
}
END_TEST

/* What is announced and does not come is not waited for for ever, nor is memory taken for it. */
static const char *const lengths[] = {
    "hex 4300000000", "hex 4300000003", "hex 43ffffffff", "hex 4380000000",
    "hex 437fffffff", "hex 4300007531", "hex 4400000000", "hex 44ffffffff",
    "hex 4580000000", "hex 4e7fffffff", "hex 457fffffff", "hex 5affffffff",
};

#define LENGTH_COUNT ((int)(sizeof lengths / sizeof lengths[0]))

START_TEST(an_impossible_length_in_the_body_is_a_lost_connection_or_the_deadline)
{
    struct fake_trial trial;
    fake_trial_begin(&trial);
    fake_on(trial.fake, BODY, lengths[_i]);
    fake_trial_run(&trial);
    if (trial.status != PQTX_TIMEOUT)
        assert_status(trial.status, PQTX_OK, &trial.error);
    ck_assert_uint_eq(trial.attempts, trial.status == PQTX_OK ? 2 : 1);
    fake_trial_end(&trial);
}
END_TEST

START_TEST(an_impossible_length_at_commit_is_doubt)
{
    struct fake_trial trial;
    fake_trial_begin(&trial);
    fake_on(trial.fake, "COMMIT", lengths[_i]);
    fake_trial_run(&trial);
    assert_status(trial.status, PQTX_IN_DOUBT, &trial.error);
    fake_trial_end(&trial);
}
END_TEST

/* ---- floods */

#define FLOOD     "times 10000 notice 00000; "
#define BIG_FLOOD "times 100000 notice 00000; "

START_TEST(a_flood_of_notices_is_heard_and_changes_nothing)
{
    static const char *const where[] = {BODY, "COMMIT", "BEGIN"};
    char script[128];
    struct fake_trial trial;
    fake_trial_begin(&trial);
    snprintf(script, sizeof script, "%scomplete %s", _i == 0 ? BIG_FLOOD : FLOOD,
             _i == 0 ? "INSERT 0 1" : where[_i]);
    fake_on(trial.fake, where[_i], script);
    fake_trial_run(&trial);
    assert_status(trial.status, PQTX_OK, &trial.error);
    ck_assert_uint_eq(trial.attempts, 1);
    ck_assert_int_eq(trial.notices, _i == 0 ? 100000 : 10000);
    fake_trial_end(&trial);
}
END_TEST

static void flood(struct fake_trial *trial, pqtx_tx *tx)
{
    (void)tx;
    if (trial->bodies == 1)
        fake_say(trial->fake, trial->arg);
}

START_TEST(a_flood_before_commit_is_heard_out)
{
    struct fake_trial trial;
    fake_trial_begin(&trial);
    trial.inside = flood;
    trial.arg = _i == 0 ? BIG_FLOOD : FLOOD "fatal 57P01 ProcessInterrupts; close";
    fake_trial_run(&trial);
    assert_status(trial.status, PQTX_OK, &trial.error);
    ck_assert_uint_eq(trial.attempts, 1 + (uint32_t)_i);
    ck_assert_int_eq(trial.notices, _i == 0 ? 100000 : 10000);
    ck_assert_int_eq(fake_heard(trial.fake, "COMMIT"), 1);
    fake_trial_end(&trial);
}
END_TEST

START_TEST(a_flood_on_an_idle_connection_does_not_make_it_stale)
{
    struct fake_trial trial;
    fake_trial_begin(&trial);
    fake_say(trial.fake, FLOOD);
    trial.fake->now_us += 5000000; /* idle for long: it is looked at before it is used */
    fake_trial_run(&trial);
    assert_status(trial.status, PQTX_OK, &trial.error);
    ck_assert_int_eq(trial.fake->connection_count, 1);
    fake_trial_end(&trial);
}
END_TEST

START_TEST(a_flood_of_everything_that_is_no_answer_changes_nothing)
{
    struct fake_trial trial;
    fake_trial_begin(&trial);
    trial.options.observer = NULL;
    fake_on(trial.fake, BODY,
            "times 10000 parameter TimeZone UTC; times 10000 notify jobs; " FLOOD
            "complete INSERT 0 1; times 10000 notify jobs");
    fake_on(trial.fake, "COMMIT", FLOOD "complete COMMIT; times 10000 parameter TimeZone UTC");
    fake_trial_run(&trial);
    assert_status(trial.status, PQTX_OK, &trial.error);
    ck_assert_uint_eq(trial.attempts, 1);
    fake_trial_end(&trial);
}
END_TEST

START_TEST(a_flood_of_rows_that_nobody_takes_is_let_go)
{
    struct fake_trial trial;
    fake_trial_begin(&trial);
    fake_on(trial.fake, BODY,
            _i == 0 ? "columns a b; times 20000 row 1|NULL; complete INSERT 0 20000"
                    : "columns a b; times 20000 row 1|NULL; error 40001");
    fake_trial_run(&trial);
    assert_status(trial.status, PQTX_OK, &trial.error);
    ck_assert_uint_eq(trial.attempts, 1 + (uint32_t)_i);
    fake_trial_end(&trial);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("fake_bytes");
    TCase *pieces = tcase_create("pieces"), *lies = tcase_create("lengths");
    TCase *floods = tcase_create("floods");

    tcase_add_loop_test(pieces, a_commit_is_known_with_the_last_byte_of_its_tag, 0,
                        COMMIT_LEN + READY_LEN);
    tcase_add_loop_test(pieces, pieces_of_any_size_are_the_same_answer, 0, 80);
    tcase_add_loop_test(pieces, an_error_that_breaks_off_in_the_body_is_begun_again, 0, ERROR_LEN);
    tcase_add_loop_test(pieces, an_error_that_breaks_off_at_commit_is_doubt, 0,
                        ERROR_LEN + READY_LEN);
    suite_add_tcase(suite, pieces);

    tcase_add_loop_test(lies, an_impossible_length_in_the_body_is_a_lost_connection_or_the_deadline,
                        0, LENGTH_COUNT);
    tcase_add_loop_test(lies, an_impossible_length_at_commit_is_doubt, 0, LENGTH_COUNT);
    suite_add_tcase(suite, lies);

    tcase_set_timeout(floods, 30);
    tcase_add_loop_test(floods, a_flood_of_notices_is_heard_and_changes_nothing, 0, 3);
    tcase_add_loop_test(floods, a_flood_before_commit_is_heard_out, 0, 2);
    tcase_add_test(floods, a_flood_on_an_idle_connection_does_not_make_it_stale);
    tcase_add_test(floods, a_flood_of_everything_that_is_no_answer_changes_nothing);
    tcase_add_loop_test(floods, a_flood_of_rows_that_nobody_takes_is_let_go, 0, 2);
    suite_add_tcase(suite, floods);
    return run_suite(suite);
}
