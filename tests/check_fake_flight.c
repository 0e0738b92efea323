/* check_fake_flight.c: a whole transaction in one flight, on a server that gives every answer: what
 * proves that it was committed, and what does not. */
#include "support.h"
#include "support_fake_trial.h"

#define COUNT(array)     ((int)(sizeof(array) / sizeof((array)[0])))
#define ADD(tcase, test) tcase_add_loop_test(tcase, test, 0, COUNT(test##_table))
#define BODY             "INSERT INTO mark"

/* With an isolation level of its own the flight has BEGIN and COMMIT, else it is implicit. */
static void begin_flight(struct fake_trial *trial, bool explicitly)
{
    fake_trial_begin(trial);
    trial->options.flags = PQTX_PIPELINE;
    if (explicitly)
        trial->options.isolation = PQTX_ISO_SERIALIZABLE;
}

/* ---- BEGIN fails: COMMIT, which is under way, finds no transaction and is answered all the same
 */

struct begin {
    const char *script;
    pqtx_status result;
    uint32_t attempts;
};

static const struct begin where_begin_fails_a_commit_behind_it_is_none_table[] = {
    {"error 0A000 PreventCommandDuringRecovery", PQTX_BAD_STATEMENT, 1},
    {"error 25001 set_transaction", PQTX_BAD_STATEMENT, 1},
    {"error 53200", PQTX_RESOURCES, 1},
    {"error 57014 ProcessInterrupts", PQTX_CANCELLED, 1},
    {"error 40001", PQTX_OK, 2},
    {"pooler ERROR 08P01 query_wait_timeout", PQTX_IN_DOUBT, 1},
};

START_TEST(where_begin_fails_a_commit_behind_it_is_none)
{
    const struct begin *begin = &where_begin_fails_a_commit_behind_it_is_none_table[_i];
    struct fake_trial trial;
    begin_flight(&trial, true);
    fake_on(trial.fake, "BEGIN", begin->script);
    fake_trial_run(&trial);
    assert_status(trial.status, begin->result, &trial.error);
    ck_assert_uint_eq(trial.attempts, begin->attempts);
    ck_assert_int_eq(fake_ran(trial.fake, BODY), (int)begin->attempts - 1);
    ck_assert_int_eq(fake_ran(trial.fake, "COMMIT"), (int)begin->attempts);
    fake_trial_end(&trial);
}
END_TEST

/* ---- a Sync that is answered too early is not the one that commits */

static const char *const an_answer_that_comes_too_early_is_doubt_table[] = {
    "ready I",
    "ready I; mute",
    "ready I; close",
    "mute; ready I",
};

START_TEST(an_answer_that_comes_too_early_is_doubt)
{
    struct fake_trial trial;
    begin_flight(&trial, _i % 2 == 1);
    fake_on(trial.fake, BODY, an_answer_that_comes_too_early_is_doubt_table[_i]);
    fake_trial_run(&trial);
    assert_status(trial.status, PQTX_IN_DOUBT, &trial.error);
    fake_trial_end(&trial);
}
END_TEST

/* ---- an earlier flight had no xid: that says nothing about the last one */

static void flush_and_write(struct fake_trial *trial, pqtx_tx *tx)
{
    (void)trial;
    pqtx_flush(tx);
    pqtx_update_one(tx, "UPDATE mark SET id = 2", PQTX_NO_ARGS);
}

/* No question rides behind a word that may take no snapshot. */
static void do_something(struct fake_trial *trial, pqtx_tx *tx)
{
    (void)trial;
    pqtx_exec(tx, "DO 'anything'", PQTX_NO_ARGS, NULL);
}

START_TEST(what_was_written_after_the_xid_was_asked_for_is_not_called_no_change)
{
    struct fake_trial trial;
    fake_trial_begin(&trial);
    trial.options.flags = _i == 0 ? PQTX_PIPELINE : 0;
    trial.options.in_doubt = PQTX_DOUBT_XID;
    trial.inside = _i == 0 ? flush_and_write : do_something;
    fake_on(trial.fake, "pg_current_xact_id_if_assigned",
            "columns xid system timeline era; row NULL|NULL|NULL|NULL; complete SELECT 1");
    fake_on(trial.fake, "COMMIT", "close");
    fake_trial_run(&trial);
    assert_status(trial.status, PQTX_IN_DOUBT, &trial.error);
    ck_assert_uint_eq(trial.flags, 0);
    fake_trial_end(&trial);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("fake_flight");
    TCase *flight = tcase_create("flight");
    ADD(flight, where_begin_fails_a_commit_behind_it_is_none);
    ADD(flight, an_answer_that_comes_too_early_is_doubt);
    tcase_add_loop_test(flight,
                        what_was_written_after_the_xid_was_asked_for_is_not_called_no_change, 0, 2);
    suite_add_tcase(suite, flight);
    return run_suite(suite);
}
