/* check_fake_doubt.c: a lost answer to COMMIT, and a server that answers the resolver in every way.
 *
 * Once in doubt, nothing but proof ends it. */
#include "support.h"
#include "support_fake_trial.h"

#define COUNT(array)     ((int)(sizeof(array) / sizeof((array)[0])))
#define ADD(tcase, test) tcase_add_loop_test(tcase, test, 0, COUNT(test##_table))

/* What the resolver asks, and what rides with the transaction for it. */
#define TOKEN_ROW "(id) VALUES ($1)"
#define VOID_ROW  "(id, void) VALUES ($1, true)"
#define TOKEN_ASK "SELECT void FROM"
#define XID_RIDES "pg_current_xact_id_if_assigned"
#define XID_ASK   "pg_xact_status"
#define END_ASK   "pg_terminate_backend"

/* How COMMIT is lost. */
static const char *const losses[] = {
    "close",
    "fatal 57P01 ProcessInterrupts; close",
    "pooler FATAL 08P01 server conn crashed?; close",
    "error 40003",
    "hex 7900000004",
    "complete COMMITTED",
};

struct verdict {
    const char *on, *script; /* of the resolver's statements, the first that holds `on` */
    pqtx_status result;
    uint32_t attempts;
};

#define COMMITTED(on, script)                                                                      \
    {                                                                                              \
        on, script, PQTX_OK, 1                                                                     \
    }
#define ROLLED_BACK(on, script)                                                                    \
    {                                                                                              \
        on, script, PQTX_OK, 2                                                                     \
    }
#define UNKNOWN(on, script)                                                                        \
    {                                                                                              \
        on, script, PQTX_IN_DOUBT, 1                                                               \
    }

#define VOID(value) "columns void; row " value "; complete SELECT 1"
#define XID(value)  "columns here status same; row " value "|t; complete SELECT 1"
#define XID_ROW                                                                                    \
    "columns xid system timeline era; row 700|7300000000000000000|00000001|24000; complete "       \
    "SELECT 1"

static void lose_commit(struct fake_trial *trial, pqtx_doubt by)
{
    fake_trial_begin(trial);
    trial->options.in_doubt = by;
    trial->options.deadline_ms = 10000;
    trial->options.max_attempts = 2;
    if (by == PQTX_DOUBT_XID)
        fake_on(trial->fake, XID_RIDES, XID_ROW);
}

static void check_verdict(struct fake_trial *trial, const struct verdict *verdict)
{
    fake_trial_run(trial);
    assert_status(trial->status, verdict->result, &trial->error);
    ck_assert_uint_eq(trial->attempts, verdict->attempts);
    ck_assert_uint_eq(trial->flags, verdict->result == PQTX_OK ? PQTX_RESOLVED : 0);
    ck_assert_int_eq(trial->error.phase, PQTX_PHASE_COMMIT);
    ck_assert_int_le(trial->ended_us - trial->began_us, 15000000);
    if (verdict->result != PQTX_IN_DOUBT)
        return;
    ck_assert_int_eq(trial->error.advice, PQTX_ADVICE_RESOLVE);
    ck_assert_str_ne(trial->error.detail, "");
    ck_assert_int_eq(trial->ticket.by, trial->options.in_doubt);
}

/* ---- by token */

static const struct verdict the_token_tells_table[] = {
    COMMITTED(TOKEN_ASK, VOID("f")),
    ROLLED_BACK(TOKEN_ASK, VOID("t")),
    UNKNOWN(TOKEN_ASK, VOID("NULL")),
    UNKNOWN(TOKEN_ASK, VOID("maybe")),
    UNKNOWN(TOKEN_ASK, "columns; row; complete SELECT 1"),
    UNKNOWN(TOKEN_ASK, "columns void; complete SELECT 0"),
    UNKNOWN(TOKEN_ASK, "complete SELECT 1"),
    UNKNOWN(TOKEN_ASK, "complete COMMIT"),
    UNKNOWN(TOKEN_ASK, "copyout"),
    UNKNOWN(TOKEN_ASK, "mute"),
    UNKNOWN(TOKEN_ASK, "columns void; row f; close"),
    UNKNOWN(TOKEN_ASK, "columns void; row f; error XX000"),
    UNKNOWN(VOID_ROW, "error 42P01 parserOpenTable"),
    UNKNOWN(VOID_ROW, "error 42501 aclcheck_error"),
    UNKNOWN(VOID_ROW, "error 25006 PreventCommandIfReadOnly"),
    UNKNOWN(VOID_ROW, "error 22023"),
    UNKNOWN(VOID_ROW, "error 55P03 ProcessInterrupts"),
    UNKNOWN(VOID_ROW, "error 40001"),
    UNKNOWN(VOID_ROW, "error 23505"),
    UNKNOWN(VOID_ROW, "error XX000"),
    UNKNOWN(VOID_ROW, "pooler ERROR 08P01 query_wait_timeout"),
    UNKNOWN(VOID_ROW, "fatal 57P01; close"),
    UNKNOWN("BEGIN ISOLATION", "error 25001"),
    UNKNOWN("(startup)", "fatal 28P01 auth_failed; close"),
    UNKNOWN("(startup)", "fatal 3D000 InitPostgres; close"),
    UNKNOWN("(startup)", "fatal 53300 InitProcess; close"),
    UNKNOWN("(startup)", "fatal 57P03 ProcessStartupPacket; close"),
    UNKNOWN("(startup)", "close"),
    UNKNOWN("(startup)", "mute"),
};

/* The connection of the transaction has been made; what follows is the resolver's. */
START_TEST(the_token_tells)
{
    struct fake_trial trial;
    const struct verdict *verdict = &the_token_tells_table[_i];
    lose_commit(&trial, PQTX_DOUBT_TOKEN);
    fake_on(trial.fake, "COMMIT", losses[_i % COUNT(losses)]);
    fake_always(trial.fake, verdict->on, verdict->script);
    check_verdict(&trial, verdict);
    fake_trial_end(&trial);
}
END_TEST

static const struct verdict the_resolver_asks_again_table[] = {
    COMMITTED(VOID_ROW, "error 55P03 ProcessInterrupts"),
    COMMITTED(VOID_ROW, "error 25006 PreventCommandIfReadOnly"),
    COMMITTED(VOID_ROW, "error 40001"),
    COMMITTED(VOID_ROW, "pooler ERROR 08P01 query_wait_timeout"),
    COMMITTED(VOID_ROW, "fatal 57P01; close"),
    COMMITTED(VOID_ROW, "close"),
    COMMITTED(TOKEN_ASK, "columns void; complete SELECT 0"),
    COMMITTED("(startup)", "fatal 53300 InitProcess; close"),
    COMMITTED("(startup)", "fatal 57P03 ProcessStartupPacket; close"),
    COMMITTED("(startup)", "close"),
};

START_TEST(the_resolver_asks_again)
{
    struct fake_trial trial;
    const struct verdict *first = &the_resolver_asks_again_table[_i];
    lose_commit(&trial, PQTX_DOUBT_TOKEN);
    fake_on(trial.fake, "COMMIT", losses[_i % COUNT(losses)]);
    fake_on(trial.fake, first->on, first->script);
    fake_always(trial.fake, TOKEN_ASK, VOID("f"));
    check_verdict(&trial, first);
    fake_trial_end(&trial);
}
END_TEST

/* The void row forbids the commit only once it is committed itself. */
static const char *const a_void_token_that_was_not_committed_forbids_nothing_table[] = {
    "complete ROLLBACK",
    "complete COMMITTED",
    "error 40001",
    "error 40003",
    "fatal 57P01; close",
    "close",
    "mute",
};

START_TEST(a_void_token_that_was_not_committed_forbids_nothing)
{
    struct fake_trial trial;
    lose_commit(&trial, PQTX_DOUBT_TOKEN);
    fake_on(trial.fake, "COMMIT", "close");
    fake_always(trial.fake, "COMMIT",
                a_void_token_that_was_not_committed_forbids_nothing_table[_i]);
    fake_always(trial.fake, TOKEN_ASK, VOID("t"));
    fake_trial_run(&trial);
    assert_status(trial.status, PQTX_IN_DOUBT, &trial.error);
    ck_assert_uint_eq(trial.attempts, 1);
    fake_trial_end(&trial);
}
END_TEST

/* The token goes in front of COMMIT, in the same flight: what becomes of it becomes of COMMIT. */
struct token {
    const char *script;
    pqtx_status result;
    uint32_t attempts, flags;
};

static const struct token an_answer_to_the_token_is_not_one_to_commit_table[] = {
    {"complete INSERT 0 1", PQTX_OK, 1, 0},
    {"notice 00000; complete INSERT 0 1; warning 01000", PQTX_OK, 1, 0},
    {"hex 7900000004", PQTX_OK, 1, 0}, /* and COMMIT has an answer of its own */
    {"error 40001", PQTX_OK, 2, 0},
    {"error 40P01", PQTX_OK, 2, 0},
    {"error 55P03", PQTX_OK, 2, 0},
    {"error 42P01 parserOpenTable", PQTX_BAD_STATEMENT, 1, 0},
    {"error 42501 aclcheck_error", PQTX_DENIED, 1, 0},
    {"error 23505", PQTX_DUPLICATE, 1, 0},
    {"error 25006 PreventCommandIfReadOnly", PQTX_READ_ONLY, 1, 0},
    {"error 57014 ProcessInterrupts", PQTX_CANCELLED, 1, 0},
    {"error 53100", PQTX_RESOURCES, 1, 0},
    {"error XX000", PQTX_SERVER_ERROR, 1, 0},
    {"error 40003", PQTX_OK, 1, PQTX_RESOLVED},
    {"pooler ERROR 08P01", PQTX_OK, 1, PQTX_RESOLVED},
    {"fatal 57P01 ProcessInterrupts; close", PQTX_OK, 1, PQTX_RESOLVED},
    {"fatal 40001 ProcessInterrupts; close", PQTX_OK, 1, PQTX_RESOLVED},
    {"panic XX000; close", PQTX_OK, 1, PQTX_RESOLVED},
    {"error 40001; close", PQTX_OK, 1, PQTX_RESOLVED},
    {"complete INSERT 0 1; close", PQTX_OK, 1, PQTX_RESOLVED},
    {"complete COMMIT; close", PQTX_OK, 1, PQTX_RESOLVED},
    {"complete COMMIT; mute", PQTX_OK, 1, PQTX_RESOLVED},
    {"complete COMMIT; cut 20", PQTX_OK, 1, PQTX_RESOLVED},
    {"copyin", PQTX_OK, 1, PQTX_RESOLVED},
    {"mute", PQTX_OK, 1, PQTX_RESOLVED},
    {"close", PQTX_OK, 1, PQTX_RESOLVED},
};

START_TEST(an_answer_to_the_token_is_not_one_to_commit)
{
    struct fake_trial trial;
    const struct token *token = &an_answer_to_the_token_is_not_one_to_commit_table[_i];
    lose_commit(&trial, PQTX_DOUBT_TOKEN);
    fake_on(trial.fake, TOKEN_ROW, token->script);
    fake_always(trial.fake, TOKEN_ASK, VOID("f"));
    fake_trial_run(&trial);
    assert_status(trial.status, token->result, &trial.error);
    ck_assert_uint_eq(trial.attempts, token->attempts);
    ck_assert_uint_eq(trial.flags, token->flags);
    ck_assert_int_eq(fake_heard(trial.fake, TOKEN_ROW), (int)trial.attempts);
    fake_trial_end(&trial);
}
END_TEST

START_TEST(a_commit_that_was_answered_is_not_asked_about)
{
    static const char *const answers[] = {"complete COMMIT; close", "complete ROLLBACK",
                                          "error 23503"};
    struct fake_trial trial;
    lose_commit(&trial, PQTX_DOUBT_TOKEN);
    fake_on(trial.fake, "COMMIT", answers[_i]);
    fake_trial_run(&trial);
    ck_assert_int_eq(fake_heard(trial.fake, TOKEN_ASK), 0);
    ck_assert_uint_eq(trial.flags, 0);
    fake_trial_end(&trial);
}
END_TEST

/* ---- by xid */

static const struct verdict the_xid_tells_table[] = {
    COMMITTED(XID_ASK, XID("t|committed")),
    ROLLED_BACK(XID_ASK, XID("t|aborted")),
    UNKNOWN(XID_ASK, XID("t|in progress")),
    UNKNOWN(XID_ASK, XID("t|NULL")), /* too old */
    UNKNOWN(XID_ASK, XID("f|NULL")), /* another timeline, or a standby */
    UNKNOWN(XID_ASK, XID("f|committed")),
    UNKNOWN(XID_ASK, XID("NULL|NULL")),
    UNKNOWN(XID_ASK, XID("NULL|aborted")),
    UNKNOWN(XID_ASK, XID("t|COMMITTED")),
    UNKNOWN(XID_ASK, "columns here status; complete SELECT 0"),
    UNKNOWN(XID_ASK, "columns here; row t; complete SELECT 1"),
    UNKNOWN(XID_ASK, "complete SELECT 1"),
    UNKNOWN(XID_ASK, "error 22023 TransactionIdInRecentPast"),
    UNKNOWN(XID_ASK, "error 25006 PreventCommandIfReadOnly"),
    UNKNOWN(XID_ASK, "error 42883 ParseFuncOrColumn"),
    UNKNOWN(XID_ASK, "error 55000"),
    UNKNOWN(XID_ASK, "error XX000"),
    UNKNOWN(XID_ASK, "pooler ERROR 08P01"),
    UNKNOWN(XID_ASK, "fatal 57P01; close"),
    UNKNOWN(XID_ASK,
            "columns here status same; row t|committed|f; complete SELECT 1"), /* a crash */
    UNKNOWN(XID_ASK, "columns here status same; row t|committed|NULL; complete SELECT 1"),
    ROLLED_BACK(XID_ASK, "columns here status same; row t|aborted|f; complete SELECT 1"),
    UNKNOWN(XID_ASK, "columns here status same; row t|aborted|t; close"),
    UNKNOWN(XID_ASK, "columns here status same; row t|aborted|t; error XX000"),
    UNKNOWN(XID_ASK, "mute"),
    UNKNOWN("(startup)", "fatal 28P01 auth_failed; close"),
    UNKNOWN("(startup)", "fatal 53300 InitProcess; close"),
    UNKNOWN("(startup)", "mute"),
};

START_TEST(the_xid_tells)
{
    struct fake_trial trial;
    const struct verdict *verdict = &the_xid_tells_table[_i];
    lose_commit(&trial, PQTX_DOUBT_XID);
    fake_on(trial.fake, "COMMIT", losses[_i % COUNT(losses)]);
    fake_always(trial.fake, verdict->on, verdict->script);
    check_verdict(&trial, verdict);
    fake_trial_end(&trial);
}
END_TEST

START_TEST(what_is_in_progress_is_ended_and_asked_about_again)
{
    struct fake_trial trial;
    lose_commit(&trial, PQTX_DOUBT_XID);
    fake_on(trial.fake, "COMMIT", "close");
    for (int i = 0; i < 3; i++)
        fake_on(trial.fake, XID_ASK, XID("t|in progress"));
    fake_on(trial.fake, XID_ASK, XID("t|aborted"));
    fake_trial_run(&trial);
    assert_status(trial.status, PQTX_OK, &trial.error);
    ck_assert_uint_eq(trial.attempts, 2);
    ck_assert_int_eq(fake_ran(trial.fake, END_ASK), 3);
    fake_trial_end(&trial);
}
END_TEST

/* But it may have notified, or written elsewhere: only a reader is run again. */
START_TEST(a_transaction_without_an_xid_has_changed_nothing)
{
    struct fake_trial trial;
    fake_trial_begin(&trial);
    trial.options.in_doubt = PQTX_DOUBT_XID;
    trial.options.access = _i == 0 ? PQTX_ACCESS_READ_ONLY : PQTX_ACCESS_READ_WRITE;
    fake_on(trial.fake, XID_RIDES,
            "columns xid system timeline era; row NULL|NULL|NULL|NULL;"
            " complete SELECT 1");
    fake_on(trial.fake, "COMMIT", "close");
    fake_trial_run(&trial);
    assert_status(trial.status, _i == 0 ? PQTX_OK : PQTX_IN_DOUBT, &trial.error);
    ck_assert_uint_eq(trial.attempts, _i == 0 ? 2 : 1);
    ck_assert_uint_eq(trial.flags & PQTX_NO_CHANGE, PQTX_NO_CHANGE);
    ck_assert_int_eq(fake_heard(trial.fake, XID_ASK), 0);
    fake_trial_end(&trial);
}
END_TEST

static const char *const an_xid_that_was_not_told_proves_nothing_table[] = {
    "columns xid system timeline era; complete SELECT 0",
    ("columns xid system timeline era; row many|7300000000000000000|00000001|24000;"
     " complete SELECT 1"),
    "columns xid; row 700; complete SELECT 1",
    "complete SELECT 1",
};

START_TEST(an_xid_that_was_not_told_proves_nothing)
{
    struct fake_trial trial;
    fake_trial_begin(&trial);
    trial.options.in_doubt = PQTX_DOUBT_XID;
    fake_on(trial.fake, XID_RIDES, an_xid_that_was_not_told_proves_nothing_table[_i]);
    fake_on(trial.fake, "COMMIT", "close");
    fake_trial_run(&trial);
    assert_status(trial.status, PQTX_IN_DOUBT, &trial.error);
    ck_assert_uint_eq(trial.flags, 0);
    fake_trial_end(&trial);
}
END_TEST

/* ---- not at all, and later */

START_TEST(without_a_resolver_nobody_is_asked)
{
    struct fake_trial trial;
    fake_trial_begin(&trial);
    fake_on(trial.fake, "COMMIT", losses[_i]);
    fake_trial_run(&trial);
    assert_status(trial.status, PQTX_IN_DOUBT, &trial.error);
    ck_assert_int_eq(trial.fake->connection_count, 1);
    ck_assert_int_eq(trial.ticket.by, PQTX_DOUBT_REPORT);
    fake_trial_end(&trial);
}
END_TEST

START_TEST(a_ticket_resolves_what_could_not_be_resolved_then)
{
    static const struct {
        const char *script;
        pqtx_status status;
        pqtx_outcome outcome;
    } later[] = {
        {VOID("f"), PQTX_OK, PQTX_OUTCOME_COMMITTED},
        {VOID("t"), PQTX_OK, PQTX_OUTCOME_ROLLED_BACK},
        {"error 42P01 parserOpenTable", PQTX_IN_DOUBT, PQTX_OUTCOME_IN_DOUBT},
        {"close", PQTX_IN_DOUBT, PQTX_OUTCOME_IN_DOUBT},
    };
    struct fake_trial trial;
    pqtx_outcome outcome;
    pqtx_error error = PQTX_ERROR;
    lose_commit(&trial, PQTX_DOUBT_TOKEN);
    fake_on(trial.fake, "COMMIT", "close");
    fake_on(trial.fake, VOID_ROW, "error 42501 aclcheck_error");
    fake_trial_run(&trial);
    assert_status(trial.status, PQTX_IN_DOUBT, &trial.error);
    fake_always(trial.fake, TOKEN_ASK, later[_i].script);
    assert_status(pqtx_resolve(trial.pool, &trial.ticket, 0, &outcome, &error), later[_i].status,
                  &error);
    ck_assert_int_eq(outcome, later[_i].outcome);
    fake_trial_end(&trial);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("fake_doubt");
    TCase *token = tcase_create("token"), *xid = tcase_create("xid");
    TCase *later = tcase_create("later");

    ADD(token, the_token_tells);
    ADD(token, the_resolver_asks_again);
    ADD(token, a_void_token_that_was_not_committed_forbids_nothing);
    ADD(token, an_answer_to_the_token_is_not_one_to_commit);
    tcase_add_loop_test(token, a_commit_that_was_answered_is_not_asked_about, 0, 3);
    suite_add_tcase(suite, token);

    ADD(xid, the_xid_tells);
    tcase_add_test(xid, what_is_in_progress_is_ended_and_asked_about_again);
    tcase_add_loop_test(xid, a_transaction_without_an_xid_has_changed_nothing, 0, 2);
    ADD(xid, an_xid_that_was_not_told_proves_nothing);
    suite_add_tcase(suite, xid);

    tcase_add_loop_test(later, without_a_resolver_nobody_is_asked, 0, COUNT(losses));
    tcase_add_loop_test(later, a_ticket_resolves_what_could_not_be_resolved_then, 0, 4);
    suite_add_tcase(suite, later);
    return run_suite(suite);
}
