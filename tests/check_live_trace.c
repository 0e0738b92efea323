/* check_live_trace.c: what goes over the wire, message by message: how many round trips a
 * transaction costs is a promise. */
#include "support.h"
#include "support_trace.h"

static PGconn *own, *other;
static struct fake_clock fake;

static void open_all(void)
{
    fresh_schema("pqtx_trace");
    own = open_own();
    other = open_session();
    sql(other, "CREATE TABLE mark (id int UNIQUE DEFERRABLE INITIALLY DEFERRED);"
               "CREATE TABLE account (id int PRIMARY KEY, value int NOT NULL);"
               "INSERT INTO account VALUES (1, 0)");
    fake_clock_init(&fake);
    trace_start(own, &fake);
}

static void close_all(void)
{
    trace_stop(own);
    PQfinish(own);
    PQfinish(other);
}

/* ---- Transactions on the fake clock, which notes the waits */

static pqtx_options traced_options(void)
{
    pqtx_options options = PQTX_OPTIONS;
    options.clock = &fake.clock;
    return options;
}

static pqtx_tx *begin_with(const pqtx_options *options)
{
    pqtx_tx *tx = pqtx_new_on(own, options);
    ck_assert_int_eq(pqtx_attempt(tx), 1);
    return tx;
}

static pqtx_tx *begin(void)
{
    pqtx_options options = traced_options();
    return begin_with(&options);
}

static void commit_and_free(pqtx_tx *tx)
{
    ck_assert_int_eq(pqtx_commit(tx), PQTX_OK);
    pqtx_free(tx);
}

static pqtx_status mark(pqtx_tx *tx)
{
    return pqtx_exec(tx, "INSERT INTO mark DEFAULT VALUES", PQTX_NO_ARGS, NULL);
}

#define MARK "> INSERT INTO mark DEFAULT VALUES\n"

/* A flight lands before anything else is sent: one Sync, one wait, one ready. */
#define FIRST_MARK                                                                                 \
    "> BEGIN\n"                                                                                    \
    "> SET LOCAL lock_timeout = 5000\n" MARK "> Sync\n"                                            \
    "wait\n"                                                                                       \
    "< BEGIN\n"                                                                                    \
    "< SET\n"                                                                                      \
    "< INSERT 0 1\n"                                                                               \
    "< T\n"
#define COMMIT                                                                                     \
    "> COMMIT\n"                                                                                   \
    "> Sync\n"                                                                                     \
    "wait\n"                                                                                       \
    "< COMMIT\n"                                                                                   \
    "< I\n"
#define ROLLBACK                                                                                   \
    "> ROLLBACK\n"                                                                                 \
    "> Sync\n"                                                                                     \
    "wait\n"                                                                                       \
    "< ROLLBACK\n"                                                                                 \
    "< I\n"

START_TEST(begin_and_settings_ride_with_the_first_statement)
{
    pqtx_tx *tx = begin();
    assert_wire("");
    mark(tx);
    assert_wire(FIRST_MARK);
    commit_and_free(tx);
    assert_wire(FIRST_MARK COMMIT);
    ck_assert_int_eq(trace_syncs(), 2);
}
END_TEST

START_TEST(each_further_statement_costs_one_round_trip)
{
    pqtx_tx *tx = begin();
    mark(tx);
    pqtx_exec_one(tx, "SELECT $1::int, $2::text", PQTX_ARGS(PQTX_INT(1), PQTX_TEXT("a")), NULL);
    commit_and_free(tx);
    assert_wire(FIRST_MARK "> SELECT $1::int, $2::text\n"
                           "> Sync\n"
                           "wait\n"
                           "< SELECT 1\n"
                           "< T\n" COMMIT);
}
END_TEST

START_TEST(all_settings_ride_with_the_first_statement)
{
    pqtx_options options = traced_options();
    options.isolation = PQTX_ISO_SERIALIZABLE;
    options.access = PQTX_ACCESS_DEFERRABLE;
    options.lock_timeout_ms = 11;
    options.statement_timeout_ms = 12000;
    pqtx_tx *tx = begin_with(&options);
    pqtx_exec(tx, "SELECT 1", PQTX_NO_ARGS, NULL);
    commit_and_free(tx);
    assert_wire("> BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY DEFERRABLE\n"
                "> SET LOCAL statement_timeout = 12000\n"
                "> SET LOCAL lock_timeout = 11\n"
                "> SELECT 1\n"
                "> Sync\n"
                "wait\n"
                "< BEGIN\n"
                "< SET\n"
                "< SET\n"
                "< SELECT 1\n"
                "< T\n" COMMIT);
}
END_TEST

START_TEST(without_timeouts_there_is_nothing_to_set)
{
    pqtx_options options = traced_options();
    options.lock_timeout_ms = PQTX_NO_TIMEOUT;
    pqtx_tx *tx = begin_with(&options);
    mark(tx);
    commit_and_free(tx);
    assert_wire("> BEGIN\n" MARK "> Sync\n"
                "wait\n"
                "< BEGIN\n"
                "< INSERT 0 1\n"
                "< T\n" COMMIT);
}
END_TEST

START_TEST(a_pinned_snapshot_costs_one_round_trip_more)
{
    pqtx_options options = traced_options();
    options.isolation = PQTX_ISO_REPEATABLE_READ;
    options.flags = PQTX_PIN_SNAPSHOT;
    pqtx_tx *tx = begin_with(&options);
    ck_assert_int_eq(trace_syncs(), 1);
    mark(tx);
    commit_and_free(tx);
    ck_assert_int_eq(trace_syncs(), 3);
}
END_TEST

START_TEST(a_lock_timeout_rides_with_the_next_statement_if_it_changed)
{
    pqtx_tx *tx = begin();
    mark(tx);
    pqtx_set_lock_timeout(tx, 7);
    pqtx_set_lock_timeout(tx, 0);
    mark(tx);
    pqtx_set_lock_timeout(tx, 7);
    mark(tx);
    commit_and_free(tx);
    assert_wire(FIRST_MARK MARK "> Sync\n"
                                "wait\n"
                                "< INSERT 0 1\n"
                                "< T\n"
                                "> SET LOCAL lock_timeout = 7\n" MARK "> Sync\n"
                                "wait\n"
                                "< SET\n"
                                "< INSERT 0 1\n"
                                "< T\n" COMMIT);
}
END_TEST

/* ---- Nothing to do */

static pqtx_status nothing(pqtx_tx *tx, void *arg)
{
    (void)tx;
    return arg ? *(pqtx_status *)arg : PQTX_OK;
}

START_TEST(an_empty_transaction_sends_nothing)
{
    pqtx_options options = traced_options();
    pqtx_status own_status = (pqtx_status)(PQTX_USER + 1);
    options.isolation = PQTX_ISO_SERIALIZABLE;
    options.statement_timeout_ms = 1000;
    ck_assert_int_eq(pqtx_run_on(own, &options, nothing, NULL, NULL), PQTX_OK);
    ck_assert_int_eq(pqtx_run_on(own, &options, nothing, &own_status, NULL), PQTX_USER + 1);
    pqtx_tx *tx = begin_with(&options);
    pqtx_fail(tx, PQTX_STOPPED);
    pqtx_commit(tx);
    pqtx_free(tx);
    assert_wire("");
}
END_TEST

START_TEST(misuse_is_refused_before_anything_is_sent)
{
    pqtx_tx *tx = begin();
    ck_assert_int_eq(pqtx_exec(tx, "COMMIT", PQTX_NO_ARGS, NULL), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_exec(tx, "SELECT 1", PQTX_NO_ARGS, NULL), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_commit(tx), PQTX_MISUSE);
    pqtx_free(tx);
    assert_wire("");
}
END_TEST

/* ---- Failures */

START_TEST(a_failed_body_costs_one_rollback)
{
    pqtx_tx *tx = begin();
    mark(tx);
    pqtx_fail(tx, PQTX_STOPPED);
    ck_assert_int_eq(pqtx_commit(tx), PQTX_STOPPED);
    pqtx_free(tx);
    assert_wire(FIRST_MARK ROLLBACK);
}
END_TEST

START_TEST(what_is_left_without_commit_costs_one_rollback)
{
    pqtx_tx *tx = begin();
    mark(tx);
    pqtx_free(tx);
    assert_wire(FIRST_MARK ROLLBACK);
}
END_TEST

static pqtx_status go_on(pqtx_tx *tx, void *arg)
{
    (void)arg;
    return mark(tx);
}

/* Every call on the marked attempt, and then the end. */
START_TEST(a_marked_attempt_sends_nothing_more_but_its_rollback)
{
    static const int64_t keys[] = {1, 2};
    pqtx_change change = PQTX_CHANGE;
    const PGresult *result;
    int64_t rows;
    change.table = "account";
    change.key = "id = 1";
    change.condition = "true";
    change.set = "value = 1";
    pqtx_tx *tx = begin();
    mark(tx);
    ck_assert_int_eq(pqtx_exec(tx, "SELECT 1/0", PQTX_NO_ARGS, NULL), PQTX_BAD_DATA);
    ck_assert_int_eq(pqtx_exec(tx, "SELECT 1", PQTX_NO_ARGS, &result), PQTX_BAD_DATA);
    ck_assert_int_eq(pqtx_exec_one(tx, "SELECT 1", PQTX_NO_ARGS, NULL), PQTX_BAD_DATA);
    ck_assert_int_eq(pqtx_update(tx, "DELETE FROM mark", PQTX_NO_ARGS, &rows), PQTX_BAD_DATA);
    ck_assert_int_eq(pqtx_update_one(tx, "DELETE FROM mark", PQTX_NO_ARGS), PQTX_BAD_DATA);
    ck_assert_int_eq(pqtx_update_if(tx, &change, PQTX_NO_ARGS, NULL), PQTX_BAD_DATA);
    ck_assert_int_eq(pqtx_lock(tx, 1), PQTX_BAD_DATA);
    ck_assert_int_eq(pqtx_try_lock_pair(tx, 1, 2), PQTX_BAD_DATA);
    ck_assert_int_eq(pqtx_lock_many(tx, keys, 2), PQTX_BAD_DATA);
    ck_assert_int_eq(pqtx_set_lock_timeout(tx, 1), PQTX_BAD_DATA);
    ck_assert_int_eq(pqtx_savepoint(tx, go_on, NULL), PQTX_BAD_DATA);
    ck_assert_int_eq(pqtx_exec(tx, "COMMIT", PQTX_NO_ARGS, NULL), PQTX_BAD_DATA);
    ck_assert_int_eq(pqtx_commit(tx), PQTX_BAD_DATA);
    pqtx_free(tx);
    assert_wire(FIRST_MARK "> SELECT 1/0\n"
                           "> Sync\n"
                           "wait\n"
                           "< error 22012\n"
                           "< E\n" ROLLBACK);
}
END_TEST

START_TEST(a_commit_that_fails_needs_no_rollback)
{
    pqtx_tx *tx = begin();
    ck_assert_int_eq(pqtx_exec(tx, "INSERT INTO mark VALUES (1), (1)", PQTX_NO_ARGS, NULL),
                     PQTX_OK);
    ck_assert_int_eq(pqtx_commit(tx), PQTX_DUPLICATE);
    ck_assert_int_eq(pqtx_attempt(tx), 0);
    pqtx_free(tx);
    assert_wire("> BEGIN\n"
                "> SET LOCAL lock_timeout = 5000\n"
                "> INSERT INTO mark VALUES (1), (1)\n"
                "> Sync\n"
                "wait\n"
                "< BEGIN\n"
                "< SET\n"
                "< INSERT 0 2\n"
                "< T\n"
                "> COMMIT\n"
                "> Sync\n"
                "wait\n"
                "< error 23505\n"
                "< I\n");
}
END_TEST

static pqtx_status lose_once(pqtx_tx *tx, void *arg)
{
    int *runs = arg;
    if (++*runs == 1)
        return pqtx_exec(tx, "DO $$ BEGIN RAISE USING ERRCODE = '40001'; END $$", PQTX_NO_ARGS,
                         NULL);
    return mark(tx);
}

START_TEST(a_lost_race_begins_with_begin_again)
{
    int runs = 0;
    pqtx_options options = traced_options();
    options.isolation = PQTX_ISO_REPEATABLE_READ;
    ck_assert_int_eq(pqtx_run_on(own, &options, lose_once, &runs, NULL), PQTX_OK);
    ck_assert_int_eq(fake.sleep_count, 1);
    assert_wire("> BEGIN ISOLATION LEVEL REPEATABLE READ\n"
                "> SET LOCAL lock_timeout = 5000\n"
                "> DO $$ BEGIN RAISE USING ERRCODE = '40001'; END $$\n"
                "> Sync\n"
                "wait\n"
                "< BEGIN\n"
                "< SET\n"
                "< error 40001\n"
                "< E\n" ROLLBACK "> BEGIN ISOLATION LEVEL REPEATABLE READ\n"
                "> SET LOCAL lock_timeout = 5000\n" MARK "> Sync\n"
                "wait\n"
                "< BEGIN\n"
                "< SET\n"
                "< INSERT 0 1\n"
                "< T\n" COMMIT);
}
END_TEST

/* ---- Savepoints */

static pqtx_status kept(pqtx_tx *tx, void *arg)
{
    return arg ? pqtx_savepoint(tx, kept, NULL) : mark(tx);
}

static pqtx_status undone(pqtx_tx *tx, void *arg)
{
    (void)arg;
    mark(tx);
    return (pqtx_status)(PQTX_USER + 1);
}

START_TEST(a_savepoint_costs_no_round_trip)
{
    pqtx_tx *tx = begin();
    ck_assert_int_eq(pqtx_savepoint(tx, kept, NULL), PQTX_OK);
    commit_and_free(tx);
    assert_wire("> BEGIN\n"
                "> SAVEPOINT pqtx_1\n"
                "> SET LOCAL lock_timeout = 5000\n" MARK "> Sync\n"
                "wait\n"
                "< BEGIN\n"
                "< SAVEPOINT\n"
                "< SET\n"
                "< INSERT 0 1\n"
                "< T\n"
                "> RELEASE SAVEPOINT pqtx_1\n"
                "> COMMIT\n"
                "> Sync\n"
                "wait\n"
                "< RELEASE\n"
                "< COMMIT\n"
                "< I\n");
}
END_TEST

START_TEST(nested_savepoints_cost_no_round_trip)
{
    pqtx_tx *tx = begin();
    mark(tx);
    ck_assert_int_eq(pqtx_savepoint(tx, kept, tx), PQTX_OK);
    commit_and_free(tx);
    assert_wire(FIRST_MARK "> SAVEPOINT pqtx_1\n"
                           "> SAVEPOINT pqtx_2\n" MARK "> Sync\n"
                           "wait\n"
                           "< SAVEPOINT\n"
                           "< SAVEPOINT\n"
                           "< INSERT 0 1\n"
                           "< T\n"
                           "> RELEASE SAVEPOINT pqtx_2\n"
                           "> RELEASE SAVEPOINT pqtx_1\n"
                           "> COMMIT\n"
                           "> Sync\n"
                           "wait\n"
                           "< RELEASE\n"
                           "< RELEASE\n"
                           "< COMMIT\n"
                           "< I\n");
}
END_TEST

START_TEST(an_undone_savepoint_costs_no_round_trip)
{
    pqtx_tx *tx = begin();
    mark(tx);
    ck_assert_int_eq(pqtx_savepoint(tx, undone, NULL), PQTX_USER + 1);
    mark(tx);
    commit_and_free(tx);
    assert_wire(FIRST_MARK "> SAVEPOINT pqtx_1\n" MARK "> Sync\n"
                           "wait\n"
                           "< SAVEPOINT\n"
                           "< INSERT 0 1\n"
                           "< T\n"
                           "> ROLLBACK TO SAVEPOINT pqtx_1\n"
                           "> RELEASE SAVEPOINT pqtx_1\n" MARK "> Sync\n"
                           "wait\n"
                           "< ROLLBACK\n"
                           "< RELEASE\n"
                           "< INSERT 0 1\n"
                           "< T\n" COMMIT);
}
END_TEST

static pqtx_status nest_nothing(pqtx_tx *tx, void *arg)
{
    pqtx_status own_status = (pqtx_status)(PQTX_USER + 1);
    ck_assert_int_eq(pqtx_savepoint(tx, nothing, NULL), PQTX_OK);
    ck_assert_int_eq(pqtx_savepoint(tx, nothing, &own_status), PQTX_USER + 1);
    return nothing(tx, arg);
}

START_TEST(an_empty_savepoint_sends_nothing)
{
    pqtx_status own_status = (pqtx_status)(PQTX_USER + 2);
    pqtx_tx *tx = begin();
    ck_assert_int_eq(pqtx_savepoint(tx, nest_nothing, NULL), PQTX_OK);
    mark(tx);
    ck_assert_int_eq(pqtx_savepoint(tx, nest_nothing, NULL), PQTX_OK);
    ck_assert_int_eq(pqtx_savepoint(tx, nest_nothing, &own_status), PQTX_USER + 2);
    commit_and_free(tx);
    assert_wire(FIRST_MARK COMMIT);
}
END_TEST

/* ---- Helpers: a round trip each, beside the commit */

START_TEST(a_change_with_its_explanation_costs_one_round_trip)
{
    pqtx_change change = PQTX_CHANGE;
    const PGresult *row;
    change.table = "account";
    change.key = "id = $1";
    change.condition = "value >= $2";
    change.set = "value = value - $2";
    pqtx_tx *tx = begin();
    ck_assert_int_eq(pqtx_update_if(tx, &change, PQTX_ARGS(PQTX_INT(1), PQTX_INT(_i)), &row),
                     _i ? PQTX_CONDITION_FALSE : PQTX_OK);
    ck_assert_int_eq(trace_syncs(), 1);
    ck_assert_int_eq(pqtx_commit(tx), _i ? PQTX_CONDITION_FALSE : PQTX_OK);
    ck_assert_int_eq(trace_syncs(), 2);
    pqtx_free(tx);
}
END_TEST

START_TEST(many_locks_cost_one_round_trip)
{
    static const int64_t keys[] = {735117003, 735117002, 735117003};
    pqtx_tx *tx = begin();
    ck_assert_int_eq(pqtx_lock_many(tx, keys, 3), PQTX_OK);
    ck_assert_int_eq(trace_syncs(), 1);
    ck_assert_int_eq(pqtx_lock_many(tx, keys, 0), PQTX_OK);
    commit_and_free(tx);
    ck_assert_int_eq(trace_syncs(), 2);
}
END_TEST

static Suite *suite(void)
{
    Suite *suite = suite_create("live_trace");
    TCase *tests = tcase_create("trace");
    tcase_add_checked_fixture(tests, open_all, close_all);
    tcase_set_timeout(tests, 30);
    tcase_add_test(tests, begin_and_settings_ride_with_the_first_statement);
    tcase_add_test(tests, each_further_statement_costs_one_round_trip);
    tcase_add_test(tests, all_settings_ride_with_the_first_statement);
    tcase_add_test(tests, without_timeouts_there_is_nothing_to_set);
    tcase_add_test(tests, a_pinned_snapshot_costs_one_round_trip_more);
    tcase_add_test(tests, a_lock_timeout_rides_with_the_next_statement_if_it_changed);
    tcase_add_test(tests, an_empty_transaction_sends_nothing);
    tcase_add_test(tests, misuse_is_refused_before_anything_is_sent);
    tcase_add_test(tests, a_failed_body_costs_one_rollback);
    tcase_add_test(tests, what_is_left_without_commit_costs_one_rollback);
    tcase_add_test(tests, a_marked_attempt_sends_nothing_more_but_its_rollback);
    tcase_add_test(tests, a_commit_that_fails_needs_no_rollback);
    tcase_add_test(tests, a_lost_race_begins_with_begin_again);
    tcase_add_test(tests, a_savepoint_costs_no_round_trip);
    tcase_add_test(tests, nested_savepoints_cost_no_round_trip);
    tcase_add_test(tests, an_undone_savepoint_costs_no_round_trip);
    tcase_add_test(tests, an_empty_savepoint_sends_nothing);
    tcase_add_loop_test(tests, a_change_with_its_explanation_costs_one_round_trip, 0, 2);
    tcase_add_test(tests, many_locks_cost_one_round_trip);
    suite_add_tcase(suite, tests);
    return suite;
}

int main(void)
{
    return run_suite(suite());
}
