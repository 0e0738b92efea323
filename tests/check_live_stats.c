/* check_live_stats.c: what a pool counts, whatever end a transaction comes to, and the budget that
 * its further attempts are taken from. */
#define _DEFAULT_SOURCE
#include "support.h"
#include "support_doubt.h"
#include "support_tx.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static PGconn *monitor;
static pqtx_pool *pool;

static void make(void)
{
    make_doubt("pqtx_stats");
}

static void set_up(void)
{
    monitor = open_doubt();
    pool = open_pool(2);
}

static void tear_down(void)
{
    pqtx_pool_close(pool);
    PQfinish(monitor);
}

/* ---- Every kind of end, and which counter it adds one to */

enum end { NO_END, COMMITTED, ROLLED_BACK, IN_DOUBT, DONE_BEFORE };

static struct trial trial_of(pqtx_doubt in_doubt, pqtx_point point, uint32_t last)
{
    struct trial trial;
    trial_init(&trial, pool, in_doubt);
    trial.point = point;
    trial.last = last;
    return trial;
}

static void run(struct trial trial, pqtx_status expected)
{
    trial_run(&trial);
    assert_trial(&trial, expected);
}

static void commits(void)
{
    run(trial_of(PQTX_DOUBT_REPORT, 0, 0), PQTX_OK);
}

static void asks_nothing(void)
{
    pqtx_tx *tx = pqtx_new(pool, NULL);
    while (pqtx_attempt(tx))
        pqtx_commit(tx);
    pqtx_free(tx);
}

static void fails(void)
{
    struct trial trial = trial_of(PQTX_DOUBT_REPORT, 0, 0);
    trial.fail = PQTX_NO_MATCH;
    run(trial, PQTX_NO_MATCH);
}

static void is_busy(void)
{
    struct trial trial = trial_of(PQTX_DOUBT_REPORT, 0, 0);
    trial.fail = PQTX_BUSY;
    run(trial, PQTX_BUSY);
}

static void loses_every_race(void)
{
    struct trial trial = trial_of(PQTX_DOUBT_REPORT, 0, 0);
    trial.fail = PQTX_SERIALIZATION;
    run(trial, PQTX_SERIALIZATION);
}

static void is_left_without_commit(void)
{
    pqtx_tx *tx = pqtx_new(pool, NULL);
    while (pqtx_attempt(tx))
        pqtx_exec(tx, "SELECT 1", PQTX_NO_ARGS, NULL);
    pqtx_free(tx);
}

static void stays_in_doubt(void)
{
    run(trial_of(PQTX_DOUBT_REPORT, PQTX_POINT_COMMIT_ANSWERED, 1), PQTX_IN_DOUBT);
}

static void is_resolved_committed(void)
{
    run(trial_of(PQTX_DOUBT_TOKEN, PQTX_POINT_COMMIT_ANSWERED, 1), PQTX_OK);
}

static void is_resolved_rolled_back_and_runs_again(void)
{
    run(trial_of(PQTX_DOUBT_XID, PQTX_POINT_COMMIT_BEGUN, 1), PQTX_OK);
}

static void is_resolved_rolled_back_each_time(void)
{
    run(trial_of(PQTX_DOUBT_XID, PQTX_POINT_COMMIT_BEGUN, UINT32_MAX), PQTX_NO_CONNECTION);
}

static struct trial event(const char *id, pqtx_point point, uint32_t last)
{
    struct trial trial = trial_of(PQTX_DOUBT_REPORT, point, last);
    trial.options.event_id = id;
    return trial;
}

static void applies_an_event(void)
{
    run(event("event", 0, 0), PQTX_OK);
}

static void finds_its_event_done(void)
{
    run(event("event", 0, 0), PQTX_DONE_BEFORE);
}

static void finds_another_fingerprint(void)
{
    struct trial trial = event("event", 0, 0);
    trial.options.fingerprint = "a";
    trial.options.fingerprint_len = 1;
    sql(monitor, "UPDATE pqtx_once SET fingerprint = 'b'");
    run(trial, PQTX_KEY_MISMATCH);
}

static void applies_an_event_whose_answer_is_lost(void)
{
    run(event("lost", PQTX_POINT_COMMIT_ANSWERED, UINT32_MAX), PQTX_OK);
}

static void never_commits_its_event(void)
{
    run(event("never", PQTX_POINT_COMMIT_BEGUN, UINT32_MAX), PQTX_IN_DOUBT);
}

static void is_freed_before_it_began(void)
{
    pqtx_free(pqtx_new(pool, NULL));
}

static void is_freed_in_an_attempt(void)
{
    pqtx_tx *tx = pqtx_new(pool, NULL);
    ck_assert_int_eq(pqtx_attempt(tx), 1);
    pqtx_exec(tx, "INSERT INTO mark VALUES (1)", PQTX_NO_ARGS, NULL);
    pqtx_free(tx);
}

static void is_freed_after_an_attempt(void)
{
    pqtx_tx *tx = pqtx_new(pool, NULL);
    ck_assert_int_eq(pqtx_attempt(tx), 1);
    pqtx_fail(tx, PQTX_SERIALIZATION);
    pqtx_commit(tx);
    pqtx_free(tx);
}

static void is_freed_in_doubt(void)
{
    struct trial trial = event("freed", PQTX_POINT_COMMIT_ANSWERED, 1);
    pqtx_tx *tx = pqtx_new(pool, trial_options(&trial));
    ck_assert_int_eq(pqtx_attempt(tx), 1);
    ck_assert_int_eq(pqtx_commit(tx), PQTX_IN_DOUBT);
    pqtx_free(tx);
}

static void is_misuse(void)
{
    pqtx_options options = PQTX_OPTIONS;
    options.deadline_ms = -1;
    run((struct trial){.pool = pool, .options = options}, PQTX_MISUSE);
}

static const struct {
    const char *name;
    void (*run)(void);
    enum end end;
    uint64_t attempts, resolved, busy;
} kinds[] = {
    {"commits", commits, COMMITTED, 1, 0, 0},
    {"asks nothing", asks_nothing, COMMITTED, 1, 0, 0},
    {"fails", fails, ROLLED_BACK, 1, 0, 0},
    {"is busy", is_busy, ROLLED_BACK, 3, 0, 1},
    {"loses every race", loses_every_race, ROLLED_BACK, 3, 0, 0},
    {"is left without commit", is_left_without_commit, ROLLED_BACK, 1, 0, 0},
    {"stays in doubt", stays_in_doubt, IN_DOUBT, 1, 0, 0},
    {"is resolved committed", is_resolved_committed, COMMITTED, 1, 1, 0},
    {"is resolved rolled back and runs again", is_resolved_rolled_back_and_runs_again, COMMITTED, 2,
     1, 0},
    {"is resolved rolled back each time", is_resolved_rolled_back_each_time, ROLLED_BACK, 3, 3, 0},
    {"applies an event", applies_an_event, COMMITTED, 1, 0, 0},
    {"finds its event done", finds_its_event_done, DONE_BEFORE, 1, 0, 0},
    {"finds another fingerprint", finds_another_fingerprint, ROLLED_BACK, 1, 0, 0},
    {"applies an event whose answer is lost", applies_an_event_whose_answer_is_lost, COMMITTED, 2,
     1, 0},
    {"never commits its event", never_commits_its_event, IN_DOUBT, 3, 2, 0},
    {"is freed before it began", is_freed_before_it_began, NO_END, 0, 0, 0},
    {"is freed in an attempt", is_freed_in_an_attempt, ROLLED_BACK, 1, 0, 0},
    {"is freed after an attempt", is_freed_after_an_attempt, ROLLED_BACK, 1, 0, 0},
    {"is freed in doubt", is_freed_in_doubt, IN_DOUBT, 1, 0, 0},
    {"is misuse", is_misuse, NO_END, 0, 0, 0},
};

enum { KINDS = sizeof kinds / sizeof kinds[0] };

static uint64_t sum_of(const uint64_t buckets[PQTX_BUCKET_COUNT])
{
    uint64_t sum = 0;
    for (int i = 0; i < PQTX_BUCKET_COUNT; i++)
        sum += buckets[i];
    return sum;
}

static uint64_t retries_of(const pqtx_stats *s)
{
    return s->retries_serialization + s->retries_deadlock + s->retries_busy +
           s->retries_connection + s->retries_other;
}

/* What holds at any time when nothing is under way. */
static void assert_sums(const pqtx_stats *s, const char *after)
{
    uint64_t ends = s->commits + s->rollbacks + s->in_doubt + s->done_before;
    ck_assert_msg(s->starts == ends, "after one that %s: %d starts, %d ends", after, (int)s->starts,
                  (int)ends);
    ck_assert_msg(s->attempts == s->starts + retries_of(s),
                  "after one that %s: %d attempts, %d starts and %d retries", after,
                  (int)s->attempts, (int)s->starts, (int)retries_of(s));
    ck_assert_uint_eq(sum_of(s->run_us_buckets), ends);
    ck_assert_uint_eq(sum_of(s->wait_us_buckets), ends);
}

#define assert_added(now, before, field, count)                                                    \
    ck_assert_msg((now).field == (before).field + (count), "one that %s: %s %d, was %d",           \
                  kinds[i].name, #field, (int)(now).field, (int)(before).field)

START_TEST(the_sums_are_right_after_every_kind_of_end)
{
    for (int i = 0; i < KINDS; i++) {
        pqtx_stats before = stats_of(pool);
        kinds[i].run();
        pqtx_stats now = stats_of(pool);
        assert_sums(&now, kinds[i].name);
        assert_added(now, before, starts, kinds[i].end != NO_END);
        assert_added(now, before, commits, kinds[i].end == COMMITTED);
        assert_added(now, before, rollbacks, kinds[i].end == ROLLED_BACK);
        assert_added(now, before, in_doubt, kinds[i].end == IN_DOUBT);
        assert_added(now, before, done_before, kinds[i].end == DONE_BEFORE);
        assert_added(now, before, attempts, kinds[i].attempts);
        assert_added(now, before, resolved, kinds[i].resolved);
        assert_added(now, before, busy, kinds[i].busy);
    }
}
END_TEST

static pqtx_status lose_once(pqtx_tx *tx, void *arg)
{
    char statement[96];
    const char **sqlstate = arg;
    const char *code = *sqlstate;
    *sqlstate = NULL;
    if (!code)
        return PQTX_OK;
    if (strcmp(code, "57P01") == 0) /* no statement can only say so */
        return pqtx_exec(tx, "SELECT pg_terminate_backend(pg_backend_pid())", PQTX_NO_ARGS, NULL);
    snprintf(statement, sizeof statement, "DO $$ BEGIN RAISE 'lost' USING ERRCODE = '%s'; END $$",
             code);
    return pqtx_exec(tx, statement, PQTX_NO_ARGS, NULL);
}

START_TEST(further_attempts_are_counted_by_what_made_them_necessary)
{
    static const char *const sqlstates[] = {"40001", "40P01", "55P03", "40000", "57P01"};
    for (int i = 0; i < 5; i++) {
        const char *sqlstate = sqlstates[i];
        pqtx_error error = PQTX_ERROR;
        assert_status(pqtx_run(pool, NULL, lose_once, &sqlstate, &error), PQTX_OK, &error);
    }
    pqtx_stats stats = stats_of(pool);
    ck_assert_uint_eq(stats.retries_serialization, 1);
    ck_assert_uint_eq(stats.retries_deadlock, 1);
    ck_assert_uint_eq(stats.retries_busy, 1);
    ck_assert_uint_eq(stats.retries_connection, 1);
    ck_assert_uint_eq(stats.retries_other, 1);
    assert_sums(&stats, "lost once");
}
END_TEST

/* ---- The budget */

static void open_with_budget(int32_t percent, int32_t burst)
{
    pqtx_pool_options options = PQTX_POOL_OPTIONS;
    pqtx_error error = PQTX_ERROR;
    options.conninfo = pool_conninfo();
    options.retry_percent = percent;
    options.retry_burst = burst;
    pqtx_pool_close(pool);
    assert_status(pqtx_pool_open(&options, &pool, &error), PQTX_OK, &error);
}

/* How many attempts one run makes that would never stop by itself. */
static uint32_t attempts_of_a_hopeless_run(int32_t max_attempts, uint32_t flag)
{
    struct trial trial = trial_of(PQTX_DOUBT_REPORT, 0, 0);
    trial.fail = PQTX_SERIALIZATION;
    trial.options.max_attempts = max_attempts;
    trial.options.wait_first_ms = trial.options.wait_max_ms = 1;
    trial_run(&trial);
    assert_trial(&trial, PQTX_SERIALIZATION);
    ck_assert_int_eq(trial.outcome, PQTX_OUTCOME_ROLLED_BACK);
    ck_assert_uint_eq(trial.error.flags & (PQTX_ERROR_BUDGET | PQTX_ERROR_ATTEMPTS), flag);
    ck_assert_uint_eq(trial.attempts, (uint32_t)trial.runs);
    return trial.attempts;
}

START_TEST(a_run_ends_when_the_budget_is_used_up)
{
    open_with_budget(1, 5);
    ck_assert_uint_eq(attempts_of_a_hopeless_run(1000, PQTX_ERROR_BUDGET), 6);
    ck_assert_uint_eq(stats_of(pool).retries_refused, 1);
    ck_assert_uint_eq(attempts_of_a_hopeless_run(1000, PQTX_ERROR_BUDGET), 1);
    ck_assert_uint_eq(stats_of(pool).retries_refused, 2);
    pqtx_stats stats = stats_of(pool);
    ck_assert_uint_eq(stats.retries_serialization, 5);
    assert_sums(&stats, "was refused");
}
END_TEST

START_TEST(a_first_attempt_needs_no_budget)
{
    open_with_budget(1, 1);
    attempts_of_a_hopeless_run(1000, PQTX_ERROR_BUDGET);
    for (int i = 0; i < 10; i++)
        run(trial_of(PQTX_DOUBT_REPORT, 0, 0), PQTX_OK);
}
END_TEST

START_TEST(the_budget_is_earned_back)
{
    open_with_budget(100, 3);
    ck_assert_uint_eq(attempts_of_a_hopeless_run(1000, PQTX_ERROR_BUDGET), 4);
    ck_assert_uint_eq(attempts_of_a_hopeless_run(1000, PQTX_ERROR_BUDGET), 2);
    run(trial_of(PQTX_DOUBT_REPORT, 0, 0), PQTX_OK);
    ck_assert_uint_eq(attempts_of_a_hopeless_run(1000, PQTX_ERROR_BUDGET), 3);
    for (int i = 0; i < 10; i++)
        run(trial_of(PQTX_DOUBT_REPORT, 0, 0), PQTX_OK);
    ck_assert_uint_eq(attempts_of_a_hopeless_run(1000, PQTX_ERROR_BUDGET), 4);
}
END_TEST

START_TEST(a_run_that_its_attempts_end_spends_only_those)
{
    open_with_budget(1, 5);
    ck_assert_uint_eq(attempts_of_a_hopeless_run(3, PQTX_ERROR_ATTEMPTS), 3);
    ck_assert_uint_eq(attempts_of_a_hopeless_run(1000, PQTX_ERROR_BUDGET), 4);
}
END_TEST

START_TEST(without_a_budget_only_the_attempts_count)
{
    open_with_budget(-1, 1);
    ck_assert_uint_eq(attempts_of_a_hopeless_run(200, PQTX_ERROR_ATTEMPTS), 200);
    ck_assert_uint_eq(stats_of(pool).retries_refused, 0);
}
END_TEST

START_TEST(the_callers_connection_has_no_budget)
{
    struct trial trial = trial_of(PQTX_DOUBT_REPORT, 0, 0);
    trial.pool = NULL;
    trial.own = open_own();
    trial.fail = PQTX_SERIALIZATION;
    trial.options.max_attempts = 50;
    trial.options.wait_first_ms = trial.options.wait_max_ms = 1;
    trial_run(&trial);
    ck_assert_uint_eq(trial.attempts, 50);
    PQfinish(trial.own);
}
END_TEST

/* ---- The default is not in the way of honest work */

enum { THREADS = 8 };

static int rounds(void)
{
    const char *given = getenv("PQTX_TEST_INCREMENTS");
    return given ? atoi(given) : 100;
}

static pqtx_status increment(pqtx_tx *tx, void *arg)
{
    const PGresult *row;
    int64_t value = 0;
    (void)arg;
    if (pqtx_exec_one(tx, "SELECT value FROM counter", PQTX_NO_ARGS, &row) == PQTX_OK)
        pqtx_get_int(row, 0, 0, &value);
    return pqtx_exec(tx, "UPDATE counter SET value = $1", PQTX_ARGS(PQTX_INT(value + 1)), NULL);
}

static void *increment_many(void *arg)
{
    pqtx_status *status = arg;
    pqtx_options options = PQTX_OPTIONS;
    options.isolation = PQTX_ISO_SERIALIZABLE;
    options.max_attempts = 1000;
    for (int i = rounds(); i > 0 && *status == PQTX_OK; i--)
        *status = pqtx_run(pool, &options, increment, NULL, NULL);
    return NULL;
}

START_TEST(the_default_budget_lets_eight_writers_of_one_row_finish)
{
    pthread_t threads[THREADS];
    pqtx_status statuses[THREADS] = {PQTX_OK};
    pqtx_pool_close(pool);
    pool = open_pool(THREADS);
    sql(monitor, "DROP TABLE IF EXISTS counter; CREATE TABLE counter (value bigint);"
                 "INSERT INTO counter VALUES (0)");
    for (int i = 0; i < THREADS; i++)
        ck_assert(pthread_create(&threads[i], NULL, increment_many, &statuses[i]) == 0);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_status(statuses[i], PQTX_OK, NULL);
    }
    ck_assert_int_eq(ask_int(monitor, "SELECT value FROM counter"), THREADS * rounds());
    pqtx_stats stats = stats_of(pool);
    printf("%llu serializable increments took %llu attempts\n", (unsigned long long)stats.commits,
           (unsigned long long)stats.attempts);
    ck_assert_uint_eq(stats.retries_refused, 0);
    assert_sums(&stats, "was incremented");
}
END_TEST

static Suite *suite(void)
{
    Suite *suite = suite_create("stats");
    TCase *tests = tcase_create("stats");
    tcase_add_unchecked_fixture(tests, make, NULL);
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, the_sums_are_right_after_every_kind_of_end);
    tcase_add_test(tests, further_attempts_are_counted_by_what_made_them_necessary);
    tcase_add_test(tests, a_run_ends_when_the_budget_is_used_up);
    tcase_add_test(tests, a_first_attempt_needs_no_budget);
    tcase_add_test(tests, the_budget_is_earned_back);
    tcase_add_test(tests, a_run_that_its_attempts_end_spends_only_those);
    tcase_add_test(tests, without_a_budget_only_the_attempts_count);
    tcase_add_test(tests, the_callers_connection_has_no_budget);
    tcase_add_test(tests, the_default_budget_lets_eight_writers_of_one_row_finish);
    suite_add_tcase(suite, tests);
    return suite;
}

int main(void)
{
    return run_suite(suite());
}
