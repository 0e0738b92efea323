/* check_fake_event.c: a lost answer to COMMIT, with an event id: the next attempt finds out.
 *
 * Until it has, no failure whatever is proof that nothing was committed. */
#include "support.h"
#include "support_fake_trial.h"

#define COUNT(array)     ((int)(sizeof(array) / sizeof((array)[0])))
#define ADD(tcase, test) tcase_add_loop_test(tcase, test, 0, COUNT(test##_table))

/* How COMMIT is lost. */
static const char *const losses[] = {
    "close",
    "fatal 57P01 ProcessInterrupts; close",
    "pooler FATAL 08P01 server conn crashed?; close",
    "error 40003",
    "hex 7900000004",
    "complete COMMITTED",
};

#define CLAIM      "pqtx_once (id, run"
#define CLAIMED    "columns new; row t; complete INSERT 0 1"
#define LOOK_UP    "SELECT void, run"
#define FOUND(row) "columns void run same answer; row " row "; complete SELECT 1"

struct claim {
    const char *on, *script; /* in the attempt that follows the one in doubt */
    pqtx_status result;
    int bodies;
};

static const struct claim the_event_tells_the_next_attempt_table[] = {
    {LOOK_UP, FOUND("f|another|NULL|NULL"), PQTX_DONE_BEFORE, 1},
    {LOOK_UP, FOUND("f|NULL|t|NULL"), PQTX_DONE_BEFORE, 1},
    {LOOK_UP, FOUND("t|NULL|NULL|NULL"), PQTX_KEY_MISMATCH, 1},
    {CLAIM, CLAIMED, PQTX_OK, 2},
    {CLAIM, "error 40001", PQTX_DONE_BEFORE, 1},
    {CLAIM, "error 55P03", PQTX_DONE_BEFORE, 1},
    {CLAIM, "fatal 57P01; close", PQTX_DONE_BEFORE, 1},
    {"(startup)", "fatal 57P03 ProcessStartupPacket; close", PQTX_DONE_BEFORE, 1},
};

static void answer_the_next_attempt(struct fake_trial *trial, pqtx_tx *tx)
{
    const struct claim *claim = trial->arg;
    (void)tx;
    if (trial->bodies > 1)
        return;
    fake_on(trial->fake, claim->on, claim->script);
    fake_always(trial->fake, LOOK_UP, FOUND("f|another|NULL|NULL"));
}

START_TEST(the_event_tells_the_next_attempt)
{
    struct fake_trial trial;
    const struct claim *claim = &the_event_tells_the_next_attempt_table[_i];
    fake_trial_begin(&trial);
    trial.options.event_id = "order 7";
    trial.inside = answer_the_next_attempt;
    trial.arg = claim;
    fake_on(trial.fake, CLAIM, CLAIMED);
    fake_on(trial.fake, "COMMIT", losses[_i % COUNT(losses)]);
    fake_trial_run(&trial);
    assert_status(trial.status, claim->result, &trial.error);
    ck_assert_int_eq(trial.bodies, claim->bodies);
    ck_assert_uint_eq(trial.flags, PQTX_RESOLVED);
    fake_trial_end(&trial);
}
END_TEST

static const struct claim no_later_failure_ends_the_doubt_table[] = {
    {CLAIM, "error 42P01 parserOpenTable", PQTX_IN_DOUBT, 1},
    {CLAIM, "error 42501 aclcheck_error", PQTX_IN_DOUBT, 1},
    {CLAIM, "error 25006 PreventCommandIfReadOnly", PQTX_IN_DOUBT, 1},
    {CLAIM, "error 40001", PQTX_IN_DOUBT, 1},
    {CLAIM, "error XX000", PQTX_IN_DOUBT, 1},
    {CLAIM, "fatal 25P03; close", PQTX_IN_DOUBT, 1},
    {CLAIM, "close", PQTX_IN_DOUBT, 1},
    {CLAIM, "mute", PQTX_IN_DOUBT, 1},
    {"BEGIN", "error 25001", PQTX_IN_DOUBT, 1},
    {"(startup)", "fatal 28P01 auth_failed; close", PQTX_IN_DOUBT, 1},
    {"(startup)", "fatal 53300 InitProcess; close", PQTX_IN_DOUBT, 1},
    {"(startup)", "mute", PQTX_IN_DOUBT, 1},
};

static void fail_from_now_on(struct fake_trial *trial, pqtx_tx *tx)
{
    const struct claim *claim = trial->arg;
    (void)tx;
    fake_always(trial->fake, claim->on, claim->script);
}

START_TEST(no_later_failure_ends_the_doubt)
{
    struct fake_trial trial;
    struct claim claim = no_later_failure_ends_the_doubt_table[_i];
    fake_trial_begin(&trial);
    trial.options.event_id = "order 7";
    trial.inside = fail_from_now_on;
    trial.arg = &claim;
    fake_on(trial.fake, CLAIM, CLAIMED);
    fake_on(trial.fake, "COMMIT", "close");
    fake_trial_run(&trial);
    assert_status(trial.status, claim.result, &trial.error);
    ck_assert_int_eq(trial.bodies, claim.bodies);
    fake_trial_end(&trial);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("fake_event");
    TCase *event = tcase_create("event");
    ADD(event, the_event_tells_the_next_attempt);
    ADD(event, no_later_failure_ends_the_doubt);
    suite_add_tcase(suite, event);
    return run_suite(suite);
}
