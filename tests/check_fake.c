/* check_fake.c: what an answer to COMMIT proves, from a server that gives every one of them. */
#include "support.h"
#include "support_fake_trial.h"

#include <string.h>

/* How an answer comes: at once, byte by byte, or on the caller's own connection. */
enum { WHOLE, TRICKLED, OWN, DELIVERIES };

struct answer {
    const char *script;
    pqtx_status result;
    uint32_t attempts, flags;
    pqtx_status error; /* what pqtx_get_error() tells */
    const char *sqlstate;
    pqtx_origin origin;
};

#define COUNT(array)     ((int)(sizeof(array) / sizeof((array)[0])))
#define ADD(tcase, test) tcase_add_loop_test(tcase, test, 0, COUNT(test##_table) * DELIVERIES)
#define EACH(table)      check_answer(&(table)[_i / DELIVERIES], _i % DELIVERIES)

/* Notices are not seen on the caller's connection, so only the tag counts there. */
static void expect_no_notice(struct answer *a)
{
    if (!(a->flags & PQTX_LOCAL_ONLY))
        return;
    a->flags = 0;
    if (strstr(a->script, "complete COMMIT"))
        return;
    a->result = a->error = PQTX_IN_DOUBT;
    a->sqlstate = NULL;
}

static void check_error(const struct fake_trial *trial, const struct answer *a)
{
    const pqtx_error *error = &trial->error;
    bool lost = a->error == PQTX_IN_DOUBT;
    assert_status(error->status, a->error, error);
    if (a->error == PQTX_OK)
        return;
    if (a->sqlstate)
        ck_assert_str_eq(error->sqlstate, a->sqlstate);
    if (a->origin)
        ck_assert_int_eq(error->origin, a->origin);
    ck_assert_int_eq(error->phase, PQTX_PHASE_COMMIT);
    ck_assert_uint_eq(error->attempt, 1);
    ck_assert_int_eq((error->flags & PQTX_ERROR_CONNECTION) != 0, lost);
    ck_assert_int_eq(error->advice == PQTX_ADVICE_RESOLVE, lost);
}

static void check_answer(const struct answer *given, int delivery)
{
    struct fake_trial trial;
    struct answer a = *given;
    fake_trial_begin(&trial);
    trial.fake->chunk = delivery == TRICKLED;
    if (delivery == OWN) {
        trial.own = fake_connect(trial.fake);
        expect_no_notice(&a);
    }
    fake_on(trial.fake, "COMMIT", a.script);
    fake_trial_run(&trial);
    assert_status(trial.status, a.result, &trial.error);
    ck_assert_uint_eq(trial.attempts, a.attempts);
    ck_assert_uint_eq(trial.flags, a.flags);
    ck_assert_int_eq(fake_heard(trial.fake, "COMMIT"), (int)a.attempts);
    check_error(&trial, &a);
    fake_trial_end(&trial);
}

/* ---- in doubt */

#define DOUBT(script, code, origin)                                                                \
    {                                                                                              \
        script, PQTX_IN_DOUBT, 1, 0, PQTX_IN_DOUBT, code, PQTX_ORIGIN_##origin                     \
    }

static const struct answer a_fatal_error_is_doubt_table[] = {
    DOUBT("fatal 57P01 ProcessInterrupts; close", "57P01", SERVER),
    DOUBT("fatal 57P01 ProcessInterrupts", "57P01", SERVER),
    DOUBT("fatal 57P02 quickdie; close", "57P02", SERVER),
    DOUBT("fatal 57P02 quickdie", "57P02", SERVER),
    DOUBT("fatal 57P05 ProcessInterrupts; close", "57P05", SERVER),
    DOUBT("fatal 57P05 ProcessInterrupts", "57P05", SERVER),
    DOUBT("fatal 25P03 ProcessInterrupts; close", "25P03", SERVER),
    DOUBT("fatal 25P03 ProcessInterrupts", "25P03", SERVER),
    DOUBT("fatal 25P04 ProcessInterrupts; close", "25P04", SERVER),
    DOUBT("fatal 25P04 ProcessInterrupts", "25P04", SERVER),
    DOUBT("fatal 08P01; close", "08P01", SERVER),
    DOUBT("fatal 08P01", "08P01", SERVER),
    DOUBT("fatal 40001 ProcessInterrupts; close", "40001", SERVER),
    DOUBT("fatal 40001 ProcessInterrupts", "40001", SERVER),
    DOUBT("fatal 40003; close", "40003", SERVER),
    DOUBT("fatal 40003", "40003", SERVER),
    DOUBT("fatal XX000; close", "XX000", SERVER),
    DOUBT("fatal XX000", "XX000", SERVER),
    DOUBT("fatal 57P01; ready I", "57P01", SERVER),
    DOUBT("fatal 57P01; complete COMMIT; ready I", "57P01", SERVER),
    DOUBT("panic XX000 RecordTransactionAbort; close", "XX000", SERVER),
    DOUBT("panic XX000", "XX000", SERVER),
    DOUBT("error XX000; panic XX000 RecordTransactionAbort; close", "XX000", SERVER),
    DOUBT("pooler FATAL 08P01 server conn crashed?; close", "08P01", POOLER),
    DOUBT("pooler FATAL 08P01 server conn crashed?", "08P01", POOLER),
    DOUBT("fatal 57P01; pooler FATAL 08P01 server conn crashed?; close", "57P01", SERVER),
};

START_TEST(a_fatal_error_is_doubt)
{
    EACH(a_fatal_error_is_doubt_table);
}
END_TEST

static const struct answer an_error_without_ready_for_query_is_doubt_table[] = {
    DOUBT("error 40001; close", "40001", SERVER), DOUBT("error 40001; mute", "40001", SERVER),
    DOUBT("error 23505; close", "23505", SERVER), DOUBT("error 23505; mute", "23505", SERVER),
    DOUBT("error XX000; close", "XX000", SERVER), DOUBT("error XX000; mute", "XX000", SERVER),
};

START_TEST(an_error_without_ready_for_query_is_doubt)
{
    EACH(an_error_without_ready_for_query_is_doubt_table);
}
END_TEST

static const struct answer an_error_that_proves_nothing_is_doubt_table[] = {
    DOUBT("error 40003", "40003", SERVER),
    DOUBT("error 08007", "08007", SERVER),
    DOUBT("pooler ERROR 08P01 query_wait_timeout", "08P01", POOLER),
    DOUBT("pooler ERROR 40001", "40001", POOLER),
    DOUBT("pooler ERROR XX000", "XX000", POOLER),
};

START_TEST(an_error_that_proves_nothing_is_doubt)
{
    EACH(an_error_that_proves_nothing_is_doubt_table);
}
END_TEST

static const struct answer an_answer_that_was_not_expected_is_doubt_table[] = {
    DOUBT("complete COMMITTED", "", NONE),
    DOUBT("complete commit", "", NONE),
    DOUBT("complete COMMIT PREPARED", "", NONE),
    DOUBT("complete INSERT 0 1", "", NONE),
    DOUBT("complete", "", NONE),
    DOUBT("columns a; row COMMIT; complete SELECT 1", "", NONE),
    DOUBT("columns a; row COMMIT; complete COMMIT", "", NONE),
    DOUBT("hex 4900000004", "", NONE), /* EmptyQueryResponse */
    DOUBT("hex 7300000004", "", NONE), /* PortalSuspended */
    DOUBT("hex 7900000008deadbeef", "", LIBPQ),
    DOUBT("copyin", "", LIBPQ),
    DOUBT("copyout", "", LIBPQ),
    DOUBT("copyboth", "", LIBPQ),
    DOUBT("", "", LIBPQ), /* ReadyForQuery alone */
    DOUBT("mute", "", LIBPQ),
    DOUBT("close", "", LIBPQ),
};

START_TEST(an_answer_that_was_not_expected_is_doubt)
{
    EACH(an_answer_that_was_not_expected_is_doubt_table);
}
END_TEST

static const struct answer a_message_that_is_out_of_shape_is_doubt_table[] = {
    DOUBT("hex 4300000003; complete COMMIT", "", LIBPQ),            /* shorter than its length */
    DOUBT("hex 43ffffffff434f4d4d495400; ready I", "", LIBPQ),      /* a negative length */
    DOUBT("hex 437fffffff434f4d4d495400; close", "", LIBPQ),        /* of two gigabytes */
    DOUBT("hex 430000000a434f4d4d495400", "", LIBPQ),               /* one byte too short … */
    DOUBT("hex 430000000c434f4d4d49540043; ready I", "", LIBPQ),    /* … and too long */
    DOUBT("hex 430000000a434f4d4d4954; ready I; close", "", LIBPQ), /* no end of the tag */
    DOUBT("hex 4500000005; close", "", LIBPQ),                      /* an error without an end */
    DOUBT("hex 4400000006ffff; complete COMMIT", "", LIBPQ),        /* a row that is not one */
};

START_TEST(a_message_that_is_out_of_shape_is_doubt)
{
    EACH(a_message_that_is_out_of_shape_is_doubt_table);
}
END_TEST

/* The session has said its last word, whether its end is seen or not. */
START_TEST(a_fatal_error_is_not_waited_out)
{
    static const char *const scripts[] = {"fatal 57P01 ProcessInterrupts", "panic XX000",
                                          "pooler FATAL 08P01 server conn crashed?"};
    struct fake_trial trial;
    fake_trial_begin(&trial);
    fake_on(trial.fake, "COMMIT", scripts[_i]);
    fake_trial_run(&trial);
    assert_status(trial.status, PQTX_IN_DOUBT, &trial.error);
    ck_assert_int_eq(trial.ended_us, trial.began_us);
    fake_trial_end(&trial);
}
END_TEST

/* ---- rolled back */

#define AGAIN(script, status, code)                                                                \
    {                                                                                              \
        script, PQTX_OK, 2, 0, PQTX_##status, code, PQTX_ORIGIN_SERVER                             \
    }

static const struct answer a_race_lost_at_commit_begins_again_table[] = {
    AGAIN("error 40001 PreCommit_CheckForSerializationFailure", SERIALIZATION, "40001"),
    AGAIN("error 40P01 DeadLockReport", DEADLOCK, "40P01"),
    AGAIN("error 55P03 ProcessInterrupts", BUSY, "55P03"),
    AGAIN("error 40000", ROLLED_BACK, "40000"),
    AGAIN("notice 00000; error 40001; notice 00000", SERIALIZATION, "40001"),
    AGAIN("error 40001; error 23505", SERIALIZATION, "40001"),
};

START_TEST(a_race_lost_at_commit_begins_again)
{
    EACH(a_race_lost_at_commit_begins_again_table);
}
END_TEST

#define REFUSED(script, status, code)                                                              \
    {                                                                                              \
        script, PQTX_##status, 1, 0, PQTX_##status, code, PQTX_ORIGIN_SERVER                       \
    }

static const struct answer an_error_with_ready_for_query_is_rolled_back_table[] = {
    REFUSED("error 23505 check_exclusion_or_unique_constraint", DUPLICATE, "23505"),
    REFUSED("error 23503 ri_ReportViolation", FOREIGN_KEY, "23503"),
    REFUSED("error 23P01", OVERLAP, "23P01"),
    REFUSED("error 23514", CHECK, "23514"),
    REFUSED("error 40002", CONSTRAINT, "40002"),
    REFUSED("error P0001 exec_stmt_raise", RAISED, "P0001"),
    REFUSED("error 57014 ProcessInterrupts", CANCELLED, "57014"),
    REFUSED("error 53100", RESOURCES, "53100"),
    REFUSED("error XX000", SERVER_ERROR, "XX000"),
    REFUSED("error 00000", RAISED, "00000"),
    /* postgres_fdw has lost another server, and what became of its part is not known */
    REFUSED("error 08006 pgfdw_report_error", NO_CONNECTION, "08006"),
};

START_TEST(an_error_with_ready_for_query_is_rolled_back)
{
    EACH(an_error_with_ready_for_query_is_rolled_back_table);
}
END_TEST

static const struct answer the_tag_rollback_is_an_error_that_nobody_saw_table[] = {
    {"complete ROLLBACK", PQTX_SWALLOWED, 1, 0, PQTX_SWALLOWED, "", PQTX_ORIGIN_LIBRARY},
};

START_TEST(the_tag_rollback_is_an_error_that_nobody_saw)
{
    EACH(the_tag_rollback_is_an_error_that_nobody_saw_table);
}
END_TEST

/* ---- committed */

#define COMMITTED(script, flags)                                                                   \
    {                                                                                              \
        script, PQTX_OK, 1, flags, PQTX_OK, "", PQTX_ORIGIN_NONE                                   \
    }

static const struct answer the_tag_commit_is_a_commit_whatever_follows_table[] = {
    COMMITTED("complete COMMIT", 0),
    COMMITTED("complete COMMIT; close", 0),
    COMMITTED("complete COMMIT; mute", 0),
    COMMITTED("complete COMMIT; fatal 57P01 ProcessInterrupts; close", 0),
    COMMITTED("complete COMMIT; panic XX000; close", 0),
    COMMITTED("complete COMMIT; cut 13", 0),
    COMMITTED("complete COMMIT; error XX000", 0),
    COMMITTED("notice 00000; complete COMMIT; notice 00000", 0),
    COMMITTED("parameter TimeZone UTC; notify jobs; complete COMMIT; notify jobs", 0),
};

START_TEST(the_tag_commit_is_a_commit_whatever_follows)
{
    EACH(the_tag_commit_is_a_commit_whatever_follows_table);
}
END_TEST

#define SYNC_REP "SyncRepWaitForLSN canceling the wait for synchronous replication"

static const struct answer a_wait_for_a_standby_that_was_broken_off_is_a_local_commit_table[] = {
    COMMITTED("warning 01000 " SYNC_REP "; complete COMMIT", PQTX_LOCAL_ONLY),
    COMMITTED("warning 01000 " SYNC_REP "; complete COMMIT; close", PQTX_LOCAL_ONLY),
    COMMITTED("warning 01000 " SYNC_REP "; close", PQTX_LOCAL_ONLY),
    COMMITTED("warning 57P01 " SYNC_REP "; close", PQTX_LOCAL_ONLY),
    COMMITTED("warning 57P01 " SYNC_REP "; fatal 57P01; close", PQTX_LOCAL_ONLY),
    COMMITTED("warning 57P01 " SYNC_REP "; error XX000; panic XX000; close", PQTX_LOCAL_ONLY),
    COMMITTED("warning 57P01 " SYNC_REP "; mute", PQTX_LOCAL_ONLY),
};

START_TEST(a_wait_for_a_standby_that_was_broken_off_is_a_local_commit)
{
    EACH(a_wait_for_a_standby_that_was_broken_off_is_a_local_commit_table);
}
END_TEST

static const struct answer the_same_warning_from_elsewhere_proves_nothing_table[] = {
    COMMITTED("warning 01000 exec_stmt_raise; complete COMMIT", 0),
    COMMITTED("warning 57P01 exec_stmt_raise; complete COMMIT", 0),
    COMMITTED("warning 25P01 SyncRepWaitForLSN; complete COMMIT", 0),
    DOUBT("warning 01000 exec_stmt_raise " SYNC_REP "; close", "", NONE),
    DOUBT("warning 57P01 ProcessInterrupts " SYNC_REP "; close", "", NONE),
    DOUBT("warning 57P01 ProcessInterrupts; mute", "", NONE),
    DOUBT("warning 57P02 SyncRepWaitForLSN; close", "", NONE),
    DOUBT("notice 00000 SyncRepWaitForLSN; close", "", NONE),
};

START_TEST(the_same_warning_from_elsewhere_proves_nothing)
{
    EACH(the_same_warning_from_elsewhere_proves_nothing_table);
}
END_TEST

/* ---- whose words count */

static void warn(struct fake_trial *trial, pqtx_tx *tx)
{
    fake_on(trial->fake, "SELECT", "warning 57P01 " SYNC_REP "; columns a; complete SELECT 0");
    if (trial->bodies == 1)
        pqtx_exec(tx, "SELECT 1", PQTX_NO_ARGS, NULL);
    else
        fake_forget(trial->fake);
}

START_TEST(a_warning_heard_before_commit_says_nothing_of_it)
{
    struct fake_trial trial;
    fake_trial_begin(&trial);
    trial.inside = warn;
    fake_on(trial.fake, "COMMIT", _i == 0 ? "close" : "error 40001");
    fake_trial_run(&trial);
    assert_status(trial.status, _i == 0 ? PQTX_IN_DOUBT : PQTX_OK, &trial.error);
    ck_assert_uint_eq(trial.attempts, _i == 0 ? 1 : 2);
    ck_assert_uint_eq(trial.flags, 0);
    fake_trial_end(&trial);
}
END_TEST

START_TEST(a_local_commit_that_then_fails_is_no_commit)
{
    struct fake_trial trial;
    fake_trial_begin(&trial);
    fake_on(trial.fake, "COMMIT",
            _i == 0 ? "warning 01000 " SYNC_REP "; error 40001"
                    : "warning 01000 " SYNC_REP "; complete ROLLBACK");
    fake_trial_run(&trial);
    ck_assert_int_ne(trial.outcome, PQTX_OUTCOME_COMMITTED);
    ck_assert_uint_eq(trial.attempts, 1);
    fake_trial_end(&trial);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("fake");
    TCase *doubt = tcase_create("doubt");
    TCase *rolled_back = tcase_create("rolled back");
    TCase *committed = tcase_create("committed");

    ADD(doubt, a_fatal_error_is_doubt);
    ADD(doubt, an_error_without_ready_for_query_is_doubt);
    ADD(doubt, an_error_that_proves_nothing_is_doubt);
    ADD(doubt, an_answer_that_was_not_expected_is_doubt);
    tcase_add_loop_test(doubt, a_fatal_error_is_not_waited_out, 0, 3);
    ADD(doubt, a_message_that_is_out_of_shape_is_doubt);
    suite_add_tcase(suite, doubt);

    ADD(rolled_back, a_race_lost_at_commit_begins_again);
    ADD(rolled_back, an_error_with_ready_for_query_is_rolled_back);
    ADD(rolled_back, the_tag_rollback_is_an_error_that_nobody_saw);
    suite_add_tcase(suite, rolled_back);

    ADD(committed, the_tag_commit_is_a_commit_whatever_follows);
    ADD(committed, a_wait_for_a_standby_that_was_broken_off_is_a_local_commit);
    ADD(committed, the_same_warning_from_elsewhere_proves_nothing);
    tcase_add_loop_test(committed, a_warning_heard_before_commit_says_nothing_of_it, 0, 2);
    tcase_add_loop_test(committed, a_local_commit_that_then_fails_is_no_commit, 0, 2);
    suite_add_tcase(suite, committed);
    return run_suite(suite);
}
