/* check_fake_flight.c: a whole transaction in one flight, on a server that gives every answer: what
 * proves that it was committed, and what does not. */
#include "support.h"
#include "support_fake_trial.h"

#include <stdio.h>
#include <string.h>

#define COUNT(array)     ((int)(sizeof(array) / sizeof((array)[0])))
#define ADD(tcase, test) tcase_add_loop_test(tcase, test, 0, COUNT(test##_table))
#define FIRST            "INSERT INTO mark"
#define LAST             "UPDATE mark"
#define BODY             FIRST

/* With an isolation level of its own the flight has BEGIN and COMMIT, else it is implicit. */
static void begin_flight(struct fake_trial *trial, bool explicitly)
{
    fake_trial_begin(trial);
    trial->options.flags = PQTX_PIPELINE;
    if (explicitly)
        trial->options.isolation = PQTX_ISO_SERIALIZABLE;
}

/* ---- what the server says in the middle of it */

enum form { IMPLICIT = 1, EXPLICIT = 2, BOTH = 3 };

struct answer {
    enum form form;
    const char *on, *script;
    pqtx_status result;
    uint32_t attempts, flags;
    const char *sqlstate;
};

/* In both forms, at once and byte by byte. */
#define WAYS                  4
#define ADD_EACH(tcase, test) tcase_add_loop_test(tcase, test, 0, COUNT(test##_table) * WAYS)
#define EACH(table)           check_answer(&(table)[_i / WAYS], _i % 2 == 1, _i % WAYS >= 2)

static void write_once_more(struct fake_trial *trial, pqtx_tx *tx)
{
    (void)trial;
    pqtx_exec(tx, "UPDATE mark SET id = 2", PQTX_NO_ARGS, NULL);
}

static void check_answer(const struct answer *a, bool explicitly, bool trickled)
{
    struct fake_trial trial;
    if (!(a->form & (explicitly ? EXPLICIT : IMPLICIT)))
        return;
    begin_flight(&trial, explicitly);
    trial.fake->chunk = trickled;
    trial.inside = write_once_more;
    fake_on(trial.fake, a->on, a->script);
    fake_trial_run(&trial);
    assert_status(trial.status, a->result, &trial.error);
    ck_assert_uint_eq(trial.attempts, a->attempts);
    ck_assert_uint_eq(trial.flags, a->flags);
    ck_assert_int_eq(fake_ran(trial.fake, explicitly ? "BEGIN" : "set_config"), (int)a->attempts);
    if (a->sqlstate)
        ck_assert_str_eq(trial.error.sqlstate, a->sqlstate);
    fake_trial_end(&trial);
}

#define AGAIN(form, on, script, code)                                                              \
    {                                                                                              \
        form, on, script, PQTX_OK, 2, 0, code                                                      \
    }
#define REFUSED(form, on, script, status, code)                                                    \
    {                                                                                              \
        form, on, script, PQTX_##status, 1, 0, code                                                \
    }
#define DOUBT(form, on, script)                                                                    \
    {                                                                                              \
        form, on, script, PQTX_IN_DOUBT, 1, 0, NULL                                                \
    }
#define COMMITTED(form, on, script, flags)                                                         \
    {                                                                                              \
        form, on, script, PQTX_OK, 1, flags, ""                                                    \
    }

#define TERMINATED "fatal 57P01 ProcessInterrupts; close"
#define SYNC_REP   "SyncRepWaitForLSN canceling the wait for synchronous replication"

/* Whatever becomes of the line after it: the server had not come to COMMIT. */
static const struct answer what_the_server_says_of_the_body_is_rolled_back_table[] = {
    AGAIN(BOTH, FIRST, "error 40001 ExecUpdate; close", "40001"),
    AGAIN(BOTH, LAST, "error 40P01 DeadLockReport; close", "40P01"),
    AGAIN(BOTH, LAST, "error 55P03 ProcessInterrupts", "55P03"),
    AGAIN(BOTH, FIRST, TERMINATED, "57P01"),
    AGAIN(BOTH, FIRST, "complete INSERT 0 1; " TERMINATED, "57P01"),
    AGAIN(BOTH, LAST, TERMINATED, "57P01"),
    AGAIN(BOTH, LAST, "fatal 57P01 ProcessInterrupts", "57P01"),
    AGAIN(BOTH, LAST, "fatal 57P02 quickdie; close", "57P02"),
    AGAIN(BOTH, LAST, "fatal 40001 ProcessInterrupts; close", "40001"),
    AGAIN(BOTH, LAST, "fatal 57P01 ProcessInterrupts; pooler FATAL 08P01 lost; close", "57P01"),
    AGAIN(IMPLICIT, "set_config", TERMINATED, "57P01"),
    AGAIN(EXPLICIT, "BEGIN", TERMINATED, "57P01"),
    REFUSED(BOTH, FIRST, "error 23505 _bt_check_unique; close", DUPLICATE, "23505"),
    REFUSED(BOTH, LAST, "error 23505 _bt_check_unique", DUPLICATE, "23505"),
    REFUSED(BOTH, LAST, "fatal 25P04 ProcessInterrupts; close", TIMEOUT, "25P04"),
    REFUSED(BOTH, LAST, "panic XX000 XLogWrite; close", SERVER_ERROR, "XX000"),
    REFUSED(BOTH, LAST, "error XX000 mdread; panic XX000; close", SERVER_ERROR, "XX000"),
    REFUSED(BOTH, LAST, "error 40003; close", SERVER_ERROR, "40003"),
    REFUSED(BOTH, "(parse) " FIRST, "error 42P01 parserOpenTable; close", BAD_STATEMENT, "42P01"),
    REFUSED(BOTH, "(parse) " LAST, "error 42P01 parserOpenTable", BAD_STATEMENT, "42P01"),
};

START_TEST(what_the_server_says_of_the_body_is_rolled_back)
{
    EACH(what_the_server_says_of_the_body_is_rolled_back_table);
}
END_TEST

/* But it is not known what the server did that it speaks for. */
static const struct answer what_a_pooler_says_of_the_body_is_doubt_table[] = {
    DOUBT(BOTH, FIRST, "pooler FATAL 08P01 server conn crashed?; close"),
    DOUBT(BOTH, LAST, "pooler FATAL 08P01 server conn crashed?"),
    DOUBT(BOTH, LAST, "pooler ERROR 08P01 query_wait_timeout; close"),
    DOUBT(IMPLICIT, LAST, "pooler ERROR 40001"),
    DOUBT(BOTH, LAST, "close"),
    DOUBT(BOTH, FIRST, "notice 00000; close"),
    DOUBT(BOTH, LAST, "pooler FATAL 08P01 lost; fatal 57P01; close"),
};

START_TEST(what_a_pooler_says_of_the_body_is_doubt)
{
    EACH(what_a_pooler_says_of_the_body_is_doubt_table);
}
END_TEST

/* The server's tag tells that nothing was committed, whoever said what before. */
static const struct answer the_tag_rollback_is_believed_table[] = {
    {EXPLICIT, LAST, "pooler ERROR 40001", PQTX_OK, 2, 0, "40001"},
    REFUSED(EXPLICIT, "COMMIT", "complete ROLLBACK", SWALLOWED, ""),
    REFUSED(EXPLICIT, "COMMIT", "warning 25P01 EndTransactionBlock; complete ROLLBACK", SWALLOWED,
            ""),
};

START_TEST(the_tag_rollback_is_believed)
{
    EACH(the_tag_rollback_is_believed_table);
}
END_TEST

static const struct answer behind_the_last_statement_the_end_of_the_session_is_doubt_table[] = {
    DOUBT(BOTH, LAST, "complete UPDATE 1; close"),
    DOUBT(IMPLICIT, LAST, "complete UPDATE 1; " TERMINATED),
    DOUBT(IMPLICIT, LAST, "complete UPDATE 1; fatal 57P01 ProcessInterrupts"),
    DOUBT(IMPLICIT, "(sync)", TERMINATED),
    DOUBT(IMPLICIT, "(sync)", "fatal 57P01 ProcessInterrupts"),
    DOUBT(IMPLICIT, "(sync)", "panic XX000 RecordTransactionCommit; close"),
    DOUBT(IMPLICIT, "(sync)", "error 40001; close"),
    DOUBT(IMPLICIT, "(sync)", "error 40003"),
    DOUBT(IMPLICIT, "(sync)", "pooler ERROR 40001"),
    DOUBT(IMPLICIT, "(sync)", "pooler FATAL 08P01 server conn crashed?; close"),
    DOUBT(IMPLICIT, "(sync)", "warning 57P01 exec_stmt_raise; " TERMINATED),
    DOUBT(IMPLICIT, "(sync)", "mute"),
    DOUBT(IMPLICIT, "(sync)", "ready T; mute"),
    DOUBT(IMPLICIT, "(sync)", "ready E; mute"),
    DOUBT(EXPLICIT, "COMMIT", TERMINATED),
    DOUBT(EXPLICIT, "COMMIT", "fatal 57P01 ProcessInterrupts"),
    DOUBT(EXPLICIT, "COMMIT", "panic XX000 RecordTransactionCommit; close"),
    DOUBT(EXPLICIT, "COMMIT", "error 40001; close"),
    DOUBT(EXPLICIT, "COMMIT", "pooler ERROR 40001"),
    DOUBT(EXPLICIT, "COMMIT", "pooler FATAL 08P01 server conn crashed?; close"),
    DOUBT(EXPLICIT, "COMMIT", "complete COMMITTED"),
    DOUBT(EXPLICIT, "COMMIT", "ready I; close"),
    DOUBT(EXPLICIT, "COMMIT", "mute"),
};

START_TEST(behind_the_last_statement_the_end_of_the_session_is_doubt)
{
    EACH(behind_the_last_statement_the_end_of_the_session_is_doubt_table);
}
END_TEST

/* Deferred constraints, and races that are found out late. */
static const struct answer an_error_of_the_commit_itself_is_rolled_back_table[] = {
    AGAIN(IMPLICIT, "(sync)", "error 40001 PreCommit_CheckForSerializationFailure", "40001"),
    AGAIN(EXPLICIT, "COMMIT", "error 40001 PreCommit_CheckForSerializationFailure", "40001"),
    AGAIN(IMPLICIT, "(sync)", "notice 00000; error 40P01; notice 00000", "40P01"),
    REFUSED(IMPLICIT, "(sync)", "error 23503 ri_ReportViolation", FOREIGN_KEY, "23503"),
    REFUSED(EXPLICIT, "COMMIT", "error 23503 ri_ReportViolation", FOREIGN_KEY, "23503"),
    REFUSED(IMPLICIT, "(sync)", "error 57014 ProcessInterrupts", CANCELLED, "57014"),
};

START_TEST(an_error_of_the_commit_itself_is_rolled_back)
{
    EACH(an_error_of_the_commit_itself_is_rolled_back_table);
}
END_TEST

static const struct answer a_wait_for_a_standby_that_is_broken_off_is_a_local_commit_table[] = {
    COMMITTED(IMPLICIT, "(sync)", "warning 01000 " SYNC_REP, PQTX_LOCAL_ONLY),
    COMMITTED(IMPLICIT, "(sync)", "warning 01000 " SYNC_REP "; close", PQTX_LOCAL_ONLY),
    COMMITTED(IMPLICIT, "(sync)", "warning 57P01 " SYNC_REP "; " TERMINATED, PQTX_LOCAL_ONLY),
    COMMITTED(EXPLICIT, "COMMIT", "warning 01000 " SYNC_REP "; complete COMMIT", PQTX_LOCAL_ONLY),
    COMMITTED(EXPLICIT, "COMMIT", "warning 57P01 " SYNC_REP "; " TERMINATED, PQTX_LOCAL_ONLY),
    DOUBT(IMPLICIT, "(sync)", "warning 01000 " SYNC_REP "; error 40001"),
    DOUBT(EXPLICIT, "COMMIT", "warning 01000 " SYNC_REP "; complete ROLLBACK"),
};

START_TEST(a_wait_for_a_standby_that_is_broken_off_is_a_local_commit)
{
    EACH(a_wait_for_a_standby_that_is_broken_off_is_a_local_commit_table);
}
END_TEST

/* Too few answers, and too many. */
static const struct answer an_answer_in_the_wrong_place_proves_nothing_table[] = {
    DOUBT(BOTH, FIRST, ""),
    DOUBT(BOTH, LAST, ""),
    DOUBT(EXPLICIT, "COMMIT", ""),
    DOUBT(EXPLICIT, "COMMIT", "complete UPDATE 1; complete COMMIT"),
    DOUBT(EXPLICIT, LAST, "complete UPDATE 1; complete COMMIT; " TERMINATED),
    DOUBT(EXPLICIT, FIRST, "complete INSERT 0 1; complete COMMIT; complete COMMIT; close"),
    DOUBT(BOTH, FIRST, "complete INSERT 0 1; ready I; close"),
    DOUBT(BOTH, FIRST, "copyin; close"),
    DOUBT(BOTH, LAST, "hex 7900000008deadbeef"),
    DOUBT(IMPLICIT, "(sync)", "hex 7900000008deadbeef"),
    DOUBT(EXPLICIT, LAST, "complete UPDATE 1; " TERMINATED),
};

START_TEST(an_answer_in_the_wrong_place_proves_nothing)
{
    EACH(an_answer_in_the_wrong_place_proves_nothing_table);
}
END_TEST

#define FLOOD "times 100 notice 00000; times 100 parameter TimeZone UTC; times 100 notify jobs; "

static const struct answer what_is_no_answer_changes_nothing_table[] = {
    COMMITTED(BOTH, FIRST, FLOOD "complete INSERT 0 1; " FLOOD, 0),
    COMMITTED(BOTH, LAST, FLOOD "complete UPDATE 1; " FLOOD, 0),
    COMMITTED(IMPLICIT, "set_config", FLOOD "columns a; complete SELECT 0; " FLOOD, 0),
    COMMITTED(IMPLICIT, "(sync)", FLOOD, 0),
    COMMITTED(EXPLICIT, "(sync)", FLOOD, 0),
    COMMITTED(EXPLICIT, "COMMIT", FLOOD "complete COMMIT; " FLOOD, 0),
    COMMITTED(BOTH, FIRST, "columns a b; times 100 row 1|NULL; complete INSERT 0 100", 0),
    AGAIN(BOTH, LAST, "columns a b; times 100 row 1|NULL; " FLOOD "error 40001", "40001"),
    AGAIN(BOTH, LAST, FLOOD TERMINATED, "57P01"),
};

START_TEST(what_is_no_answer_changes_nothing)
{
    EACH(what_is_no_answer_changes_nothing_table);
}
END_TEST

/* The error stands, but its end does not come: what is left of the time is waited for. */
START_TEST(an_error_after_which_nothing_comes_is_rolled_back_at_the_deadline)
{
    struct fake_trial trial;
    begin_flight(&trial, _i == 1);
    fake_on(trial.fake, FIRST, "error 40001 ExecUpdate; mute");
    fake_always(trial.fake, "(startup)", "mute"); /* that of the cancel */
    fake_trial_run(&trial);
    assert_status(trial.status, PQTX_SERIALIZATION, &trial.error);
    ck_assert_uint_eq(trial.attempts, 1);
    fake_forget(trial.fake);
    fake_trial_end(&trial);
}
END_TEST

/* ---- broken off */

/* Of CommandComplete with the tag COMMIT, of ReadyForQuery, and of "error 40001". */
#define COMMIT_LEN 12
#define READY_LEN  6
#define ERROR_LEN  75

static void run_broken_off(struct fake_trial *trial, bool explicitly, const char *on,
                           const char *script, int len)
{
    char cut_off[128];
    begin_flight(trial, explicitly);
    snprintf(cut_off, sizeof cut_off, "%s; cut %d", script, len);
    fake_on(trial->fake, on, cut_off);
    fake_trial_run(trial);
}

START_TEST(an_explicit_commit_is_known_with_the_last_byte_of_its_tag)
{
    struct fake_trial trial;
    run_broken_off(&trial, true, "COMMIT", "complete COMMIT; ready I", _i);
    assert_status(trial.status, _i < COMMIT_LEN ? PQTX_IN_DOUBT : PQTX_OK, &trial.error);
    fake_trial_end(&trial);
}
END_TEST

START_TEST(an_implicit_commit_is_not_known_before_the_last_byte_of_ready_for_query)
{
    struct fake_trial trial;
    run_broken_off(&trial, false, "(sync)", "ready I", _i);
    assert_status(trial.status, PQTX_IN_DOUBT, &trial.error);
    fake_trial_end(&trial);
}
END_TEST

START_TEST(an_error_in_the_body_is_known_with_its_last_byte)
{
    struct fake_trial trial;
    run_broken_off(&trial, _i % 2 == 1, FIRST, "error 40001", _i / 2);
    assert_status(trial.status, _i / 2 < ERROR_LEN ? PQTX_IN_DOUBT : PQTX_OK, &trial.error);
    ck_assert_uint_eq(trial.attempts, _i / 2 < ERROR_LEN ? 1 : 2);
    fake_trial_end(&trial);
}
END_TEST

START_TEST(an_error_of_the_commit_that_breaks_off_is_doubt)
{
    struct fake_trial trial;
    run_broken_off(&trial, _i % 2 == 1, _i % 2 == 1 ? "COMMIT" : "(sync)", "error 40001; ready I",
                   _i / 2);
    assert_status(trial.status, PQTX_IN_DOUBT, &trial.error);
    fake_trial_end(&trial);
}
END_TEST

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

/* ---- statements that are prepared */

/* The same body twice before, so that its statement is prepared. */
static pqtx_status write_mark(pqtx_tx *tx, void *arg)
{
    (void)arg;
    return pqtx_exec(tx, "INSERT INTO mark VALUES ($1)", PQTX_ARGS(PQTX_INT(1)), NULL);
}

static void begin_prepared(struct fake_trial *trial, bool explicitly, int times)
{
    begin_flight(trial, explicitly);
    pqtx_options options = trial->options;
    options.observer = NULL;
    options.evidence = NULL;
    for (int i = 0; i < times; i++)
        assert_status(pqtx_run(trial->pool, &options, write_mark, NULL, NULL), PQTX_OK, NULL);
}

struct stale {
    int times; /* it came before */
    const char *on, *script;
};

static const struct stale a_statement_that_went_stale_is_begun_again_unprepared_table[] = {
    {2, FIRST, "error 26000 FetchPreparedStatement"},
    {2, FIRST, "error 26000 FetchPreparedStatement; close"},
    {2, FIRST, "error 0A000 RevalidateCachedQuery cached plan must not change result type"},
    {1, "(parse) " FIRST, "error 42P05 StorePreparedStatement"},
};

START_TEST(a_statement_that_went_stale_is_begun_again_unprepared)
{
    const struct stale *stale =
        &a_statement_that_went_stale_is_begun_again_unprepared_table[_i / 2];
    struct fake_trial trial;
    begin_prepared(&trial, _i % 2 == 1, stale->times);
    fake_on(trial.fake, stale->on, stale->script);
    fake_trial_run(&trial);
    assert_status(trial.status, PQTX_OK, &trial.error);
    assert_status(trial.error.status, PQTX_STALE_STATEMENT, &trial.error);
    ck_assert_uint_eq(trial.attempts, 2);
    fake_trial_end(&trial);
}
END_TEST

START_TEST(a_statement_that_stays_stale_is_told_after_the_second_time)
{
    struct fake_trial trial;
    begin_prepared(&trial, _i % 2 == 1, 2);
    fake_on(trial.fake, FIRST, "error 26000 FetchPreparedStatement");
    fake_on(trial.fake, FIRST, "error 26000 FetchPreparedStatement");
    fake_trial_run(&trial);
    assert_status(trial.status, PQTX_STALE_STATEMENT, &trial.error);
    ck_assert_uint_eq(trial.attempts, 2);
    fake_trial_end(&trial);
}
END_TEST

/* What is no longer to be used goes with the next flight; if it has gone already, so does that. */
START_TEST(a_statement_that_cannot_be_taken_away_takes_the_flight_along)
{
    struct fake_trial trial;
    begin_prepared(&trial, _i % 2 == 1, 2);
    fake_on(trial.fake, FIRST,
            "error 0A000 RevalidateCachedQuery cached plan must not change result type");
    fake_on(trial.fake, "DEALLOCATE", "error 26000 FetchPreparedStatement");
    fake_trial_run(&trial);
    ck_assert_int_eq(trial.outcome, PQTX_OUTCOME_ROLLED_BACK);
    ck_assert_int_eq(fake_ran(trial.fake, "DEALLOCATE"), 1);
    fake_trial_end(&trial);
}
END_TEST

/* ---- several under way */

struct fate {
    const char *on, *script; /* the third of five */
    pqtx_status third;
    uint32_t attempts; /* of the third */
    uint32_t flags;
    pqtx_status rest; /* the fourth and the fifth */
};

#define THIRD "VALUES (3)"

static const struct fate each_of_several_has_its_own_fate_table[] = {
    {THIRD, "error 23505 _bt_check_unique", PQTX_DUPLICATE, 1, 0, PQTX_OK},
    {THIRD, "error 40001", PQTX_OK, 2, 0, PQTX_OK},
    {THIRD, "error 40001; close", PQTX_OK, 2, 0, PQTX_IN_DOUBT},
    {THIRD, "error 23505; close", PQTX_DUPLICATE, 1, 0, PQTX_IN_DOUBT},
    {THIRD, TERMINATED, PQTX_OK, 2, 0, PQTX_OK},
    {THIRD, "complete INSERT 0 1; " TERMINATED, PQTX_IN_DOUBT, 1, 0, PQTX_OK},
    {THIRD, "pooler FATAL 08P01 server conn crashed?; close", PQTX_IN_DOUBT, 1, 0, PQTX_IN_DOUBT},
    {THIRD, "pooler ERROR 08P01 query_wait_timeout", PQTX_IN_DOUBT, 1, 0, PQTX_OK},
    {THIRD, "complete INSERT 0 1; ready I; close", PQTX_OK, 1, 0, PQTX_IN_DOUBT},
    {THIRD, "", PQTX_IN_DOUBT, 1, 0, PQTX_IN_DOUBT},
    {THIRD, "close", PQTX_IN_DOUBT, 1, 0, PQTX_IN_DOUBT},
    {THIRD, "mute", PQTX_IN_DOUBT, 1, 0, PQTX_IN_DOUBT},
    {THIRD, "complete INSERT 0 1; warning 57P01 " SYNC_REP "; " TERMINATED, PQTX_OK, 1,
     PQTX_LOCAL_ONLY, PQTX_OK},
    {THIRD, "complete INSERT 0 1; warning 01000 " SYNC_REP, PQTX_OK, 1, PQTX_LOCAL_ONLY, PQTX_OK},
};

enum { ITEMS = 5 };

static void check_item(const pqtx_item *item, pqtx_status status, uint32_t attempts, uint32_t flags)
{
    bool committed = status == PQTX_OK, in_doubt = status == PQTX_IN_DOUBT;
    assert_status(item->status, status, NULL);
    ck_assert_int_eq(item->outcome, committed  ? PQTX_OUTCOME_COMMITTED
                                    : in_doubt ? PQTX_OUTCOME_IN_DOUBT
                                               : PQTX_OUTCOME_ROLLED_BACK);
    ck_assert_uint_eq(item->attempts, attempts);
    ck_assert_uint_eq(item->flags, flags);
    ck_assert_int_eq(item->rows, committed);
}

START_TEST(each_of_several_has_its_own_fate)
{
    const struct fate *fate = &each_of_several_has_its_own_fate_table[_i / 2];
    struct fake_trial trial;
    pqtx_item items[ITEMS];
    char sql[ITEMS][64];
    pqtx_error error = PQTX_ERROR;
    fake_trial_begin(&trial);
    trial.fake->chunk = _i % 2 == 1;
    trial.options.observer = NULL;
    fake_on(trial.fake, fate->on, fate->script);
    for (int i = 0; i < ITEMS; i++) {
        snprintf(sql[i], sizeof sql[i], "INSERT INTO mark VALUES (%d)", i + 1);
        items[i] = (pqtx_item)PQTX_ITEM;
        items[i].sql = sql[i];
        items[i].expected = PQTX_ANY_ROWS;
    }
    bool over = strstr(fate->script, TERMINATED); /* and the server did not reach the rest */
    pqtx_status status = pqtx_run_each(trial.pool, &trial.options, items, ITEMS, &error);
    assert_status(status, fate->third != PQTX_OK ? fate->third : fate->rest, &error);
    for (int i = 0; i < ITEMS; i++) {
        if (i == 2)
            check_item(&items[i], fate->third, fate->attempts, fate->flags);
        else
            check_item(&items[i], i < 2 ? PQTX_OK : fate->rest, i > 2 && over ? 2 : 1, 0);
        PQclear(items[i].result);
    }
    fake_trial_end(&trial);
}
END_TEST

/* ---- an event whose row is in the same flight */

#define CLAIM    "pqtx_once (id, run"
#define LOOK_UP  "SELECT void, run"
#define FOUND    "columns void run same answer; row f|another|t|NULL; complete SELECT 1"
#define IS_THERE "error 22P02 pg_lsn_in invalid input syntax for type pg_lsn: \"pqtx_guard:0\""
#define CLAIMED  "columns new; row t; complete INSERT 0 1"

struct ride {
    const char *on, *script;
    const char *claim; /* the answer to the next one */
    pqtx_status result;
    int heard; /* how often the statement came, while somebody listened */
};

static const struct ride an_event_in_the_same_flight_is_applied_once_table[] = {
    {CLAIM, IS_THERE, "complete INSERT 0 0", PQTX_DONE_BEFORE, 1},
    {CLAIM, IS_THERE "; close", "complete INSERT 0 0", PQTX_DONE_BEFORE, 0},
    {CLAIM, IS_THERE, CLAIMED, PQTX_OK, 2}, /* it has gone again */
    {CLAIM, "error 40001", CLAIMED, PQTX_OK, 2},
    {CLAIM, TERMINATED, CLAIMED, PQTX_OK, 1},
    {FIRST, "error 40001", CLAIMED, PQTX_OK, 2},
    {FIRST, TERMINATED, CLAIMED, PQTX_OK, 2},
    {"(sync)", "error 40001", CLAIMED, PQTX_OK, 2},
    {"(sync)", TERMINATED, CLAIMED, PQTX_OK, 2}, /* its row is not there */
    {"(sync)", TERMINATED, "complete INSERT 0 0", PQTX_DONE_BEFORE, 1},
    {"(sync)", "close", CLAIMED, PQTX_OK, 2},
    {"(sync)", "close", "complete INSERT 0 0", PQTX_DONE_BEFORE, 1},
    {FIRST, "pooler FATAL 08P01 lost; close", "complete INSERT 0 0", PQTX_DONE_BEFORE, 1},
    {FIRST, "pooler FATAL 08P01 lost; close", "error 42P01", PQTX_IN_DOUBT, 1},
};

START_TEST(an_event_in_the_same_flight_is_applied_once)
{
    const struct ride *ride = &an_event_in_the_same_flight_is_applied_once_table[_i / 2];
    struct fake_trial trial;
    pqtx_error error = PQTX_ERROR;
    fake_trial_begin(&trial);
    trial.fake->chunk = _i % 2 == 1;
    trial.options.observer = NULL;
    trial.options.event_id = "order 7";
    fake_on(trial.fake, ride->on, ride->script);
    fake_on(trial.fake, "RETURNING true", ride->claim);
    fake_always(trial.fake, LOOK_UP, FOUND);
    pqtx_status status = pqtx_run_one(trial.pool, &trial.options, "INSERT INTO mark VALUES ($1)",
                                      PQTX_ARGS(PQTX_INT(1)), PQTX_ANY_ROWS, NULL, &error);
    assert_status(status, ride->result, &error);
    ck_assert_int_eq(fake_heard(trial.fake, FIRST), ride->heard);
    fake_trial_end(&trial);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("fake_flight");
    TCase *middle = tcase_create("in the middle"), *flight = tcase_create("flight");
    TCase *pieces = tcase_create("pieces"), *several = tcase_create("several");

    ADD_EACH(middle, what_the_server_says_of_the_body_is_rolled_back);
    ADD_EACH(middle, what_a_pooler_says_of_the_body_is_doubt);
    ADD_EACH(middle, the_tag_rollback_is_believed);
    ADD_EACH(middle, behind_the_last_statement_the_end_of_the_session_is_doubt);
    ADD_EACH(middle, an_error_of_the_commit_itself_is_rolled_back);
    ADD_EACH(middle, a_wait_for_a_standby_that_is_broken_off_is_a_local_commit);
    ADD_EACH(middle, an_answer_in_the_wrong_place_proves_nothing);
    ADD_EACH(middle, what_is_no_answer_changes_nothing);
    tcase_add_loop_test(middle, an_error_after_which_nothing_comes_is_rolled_back_at_the_deadline,
                        0, 2);
    suite_add_tcase(suite, middle);

    tcase_add_loop_test(pieces, an_explicit_commit_is_known_with_the_last_byte_of_its_tag, 0,
                        COMMIT_LEN + READY_LEN);
    tcase_add_loop_test(pieces,
                        an_implicit_commit_is_not_known_before_the_last_byte_of_ready_for_query, 0,
                        READY_LEN);
    tcase_add_loop_test(pieces, an_error_in_the_body_is_known_with_its_last_byte, 0,
                        2 * (ERROR_LEN + 1));
    tcase_add_loop_test(pieces, an_error_of_the_commit_that_breaks_off_is_doubt, 0,
                        2 * (ERROR_LEN + READY_LEN));
    suite_add_tcase(suite, pieces);

    ADD(flight, where_begin_fails_a_commit_behind_it_is_none);
    ADD(flight, an_answer_that_comes_too_early_is_doubt);
    tcase_add_loop_test(flight,
                        what_was_written_after_the_xid_was_asked_for_is_not_called_no_change, 0, 2);
    tcase_add_loop_test(flight, a_statement_that_went_stale_is_begun_again_unprepared, 0,
                        2 * COUNT(a_statement_that_went_stale_is_begun_again_unprepared_table));
    tcase_add_loop_test(flight, a_statement_that_stays_stale_is_told_after_the_second_time, 0, 2);
    tcase_add_loop_test(flight, a_statement_that_cannot_be_taken_away_takes_the_flight_along, 0, 2);
    suite_add_tcase(suite, flight);

    tcase_add_loop_test(several, each_of_several_has_its_own_fate, 0,
                        2 * COUNT(each_of_several_has_its_own_fate_table));
    tcase_add_loop_test(several, an_event_in_the_same_flight_is_applied_once, 0,
                        2 * COUNT(an_event_in_the_same_flight_is_applied_once_table));
    suite_add_tcase(suite, several);
    return run_suite(suite);
}
