/* check_live_fault.c: memory runs out and waiting fails, at every place there is: no crash, no
 * leak, and never a wrong outcome.  A marker row is the judge. */
#include "support.h"
#include "support_clock.h"
#include "support_fault.h"
#include "support_tx.h"

#include <stdio.h>
#include <string.h>

static PGconn *monitor;

static void set_up(void)
{
    fresh_schema("pqtx_fault");
    monitor = open_session();
    sql(monitor, "CREATE TABLE mark (id bigint PRIMARY KEY, note text);"
                 "CREATE TABLE stock (id int PRIMARY KEY, v int); INSERT INTO stock VALUES (1, 0)");
}

static void tear_down(void)
{
    PQfinish(monitor);
}

static void count_up(void *arg)
{
    ++*(int *)arg;
}

/* ---- a run that uses what there is to use, and leaves its mark */

struct story {
    int64_t id;
    int runs, committed, rolled_back;
};

static pqtx_change rise(const char *condition)
{
    pqtx_change change = PQTX_CHANGE;
    change.table = "stock";
    change.key = "id = $1";
    change.condition = condition;
    change.set = "v = v + 1";
    return change;
}

static pqtx_status change_nothing(pqtx_tx *tx, void *arg)
{
    pqtx_change change = rise("v < 0");
    const PGresult *row;
    int *undone = arg;
    pqtx_on_rollback(tx, count_up, undone);
    pqtx_update_one(tx, "UPDATE stock SET v = 100 WHERE id = 1", PQTX_NO_ARGS);
    return pqtx_update_if(tx, &change, PQTX_ARGS(PQTX_INT(1)), &row);
}

/* Nothing here may call Check, which allocates. */
static pqtx_status leave_mark(pqtx_tx *tx, struct story *story)
{
    char note[600];
    int64_t id = 0;
    const PGresult *row;
    memset(note, 'x', sizeof note);
    pqtx_status status =
        pqtx_exec_one(tx, "INSERT INTO mark VALUES ($1, $2) RETURNING id, note, repeat(note, 50)",
                      PQTX_ARGS(PQTX_INT(story->id), pqtx_text_n(note, sizeof note)), &row);
    if (status != PQTX_OK)
        return status;
    status = pqtx_get_int(row, 0, 0, &id);
    return status == PQTX_OK && id != story->id ? PQTX_USER : status;
}

static pqtx_status tell(pqtx_tx *tx, void *arg)
{
    static const int64_t keys[] = {3, 2, 1};
    struct story *story = arg;
    pqtx_change change = rise("v >= 0");
    const PGresult *row;
    int undone = 0;
    story->runs++;
    pqtx_on_commit(tx, count_up, &story->committed);
    pqtx_on_rollback(tx, count_up, &story->rolled_back);
    pqtx_set_lock_timeout(tx, 1000);
    pqtx_lock_many(tx, keys, 3);
    pqtx_status status = leave_mark(tx, story);
    if (status != PQTX_OK)
        return status;
    status = pqtx_savepoint(tx, change_nothing, &undone);
    if (status != PQTX_CONDITION_FALSE)
        return status;
    if (undone != 1)
        return pqtx_fail(tx, PQTX_USER);
    return pqtx_update_if(tx, &change, PQTX_ARGS(PQTX_INT(1)), &row);
}

/* ---- the judge */

static void forget(void)
{
    sql(monitor, "TRUNCATE mark; UPDATE stock SET v = 0");
}

/* A session in doubt may be at its COMMIT still. */
static void wait_until_alone(void)
{
    wait_until_true(monitor, "SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = "
                             "'client backend' AND application_name IN ('pqtx', '') "
                             "AND pid <> pg_backend_pid()");
}

/* Committed if, and only if, the runner said so; in doubt it may be or not, but whole. */
static void judge(unsigned long n, const struct story *story, pqtx_status status,
                  const pqtx_error *error)
{
    wait_until_alone();
    bool marked = ask_int(monitor, "SELECT count(*) FROM mark") == 1;
    bool changed = ask_int(monitor, "SELECT v FROM stock") == 1;
    char text[2048];
    pqtx_error_format(error, text, sizeof text);
    ck_assert_msg(marked == changed, "%lu: half a transaction; %s", n, text);
    ck_assert_msg(marked == (status == PQTX_OK) || status == PQTX_IN_DOUBT,
                  "%lu: %s, but the mark is %s\n  %s", n, pqtx_status_name(status),
                  marked ? "there" : "not there", text);
    ck_assert_msg(story->committed == (status == PQTX_OK), "%lu: on_commit %d times, %s", n,
                  story->committed, pqtx_status_name(status));
    ck_assert_int_le(story->committed + story->rolled_back, story->runs);
    forget();
}

static pqtx_pool_options pool_options_of(struct test_clock *clock)
{
    pqtx_pool_options options = PQTX_POOL_OPTIONS;
    options.conninfo = test_conninfo();
    options.max_count = 2;
    options.clock = &clock->clock;
    return options;
}

/* ---- memory */

/* libpq can lose the end of a flight for want of memory, and then only the deadline is left. */
static bool libpq_lacks_memory(void)
{
    return fault_so_far() == FAULT_OTHERS;
}

static bool all_lack_memory(void)
{
    return fault_so_far() != FAULT_NONE;
}

/* Where the library itself had no memory it says so, or that it is in doubt, or goes on.  libpq
 * does not always tell: a string it cannot parse or quote may be wrong as well. */
static void expect_no_memory(unsigned long n, enum fault fault, pqtx_status status,
                             const pqtx_error *error)
{
    char text[2048];
    pqtx_error_format(error, text, sizeof text);
    bool ours = status == PQTX_OK || status == PQTX_NO_MEMORY || status == PQTX_IN_DOUBT;
    bool others = status == PQTX_NO_CONNECTION || status == PQTX_TIMEOUT || status == PQTX_MISUSE;
    ck_assert_msg(ours || (fault == FAULT_OTHERS && others), "%lu: %s", n, text);
    if (fault == FAULT_NONE)
        assert_status(status, PQTX_OK, error);
}

/* Opens, runs and closes with the n-th allocation failing; false if there were not as many. */
static bool run_out_of_memory(unsigned long n, bool for_good)
{
    struct test_clock clock;
    struct story story = {.id = (int64_t)n};
    pqtx_options options = PQTX_OPTIONS;
    pqtx_error error = PQTX_ERROR;
    pqtx_pool *pool;
    test_clock_init(&clock);
    clock.skips_sleep = true;
    clock.is_hopeless = for_good ? all_lack_memory : libpq_lacks_memory;
    options.clock = &clock.clock;
    pqtx_pool_options pool_options = pool_options_of(&clock);
    fault_arm(n, for_good);
    pqtx_status status = pqtx_pool_open(&pool_options, &pool, &error);
    if (status == PQTX_OK)
        status = pqtx_run(pool, &options, tell, &story, &error);
    pqtx_pool_close(pool);
    enum fault fault = fault_disarm();
    judge(n, &story, status, &error);
    if (for_good && fault != FAULT_NONE) /* libpq lacked it as well, after us */
        fault = FAULT_OTHERS;
    expect_no_memory(n, fault, status, &error);
    return fault != FAULT_NONE;
}

static void run_out_everywhere(bool for_good)
{
    unsigned long n = 1;
    if (!fault_is_possible()) {
        puts("malloc() cannot be replaced here: no allocation fails");
        return;
    }
    while (run_out_of_memory(n, for_good))
        n++;
    ck_assert_uint_gt(n, 50);
}

START_TEST(any_allocation_may_fail)
{
    run_out_everywhere(false);
}
END_TEST

START_TEST(memory_may_be_gone_for_good_at_any_time)
{
    run_out_everywhere(true);
}
END_TEST

/* On the caller's connection.  Where only the library had no memory, the connection is in no
 * transaction afterwards, or is said to be lost. */
static bool run_out_on(PGconn *conn, unsigned long n)
{
    struct test_clock clock;
    struct story story = {.id = (int64_t)n};
    pqtx_options options = PQTX_OPTIONS;
    pqtx_error error = PQTX_ERROR;
    test_clock_init(&clock);
    clock.is_hopeless = libpq_lacks_memory;
    options.clock = &clock.clock;
    fault_arm(n, false);
    pqtx_status status = pqtx_run_on(conn, &options, tell, &story, &error);
    enum fault fault = fault_disarm();
    if (fault != FAULT_OTHERS && !(error.flags & PQTX_ERROR_CONNECTION)) {
        ck_assert_msg(PQtransactionStatus(conn) == PQTRANS_IDLE, "%lu: the connection is busy", n);
        ck_assert_int_eq(PQpipelineStatus(conn), PQ_PIPELINE_OFF);
    }
    PQfinish(conn); /* ends what a lost one may still be at */
    judge(n, &story, status, &error);
    expect_no_memory(n, fault, status, &error);
    return fault != FAULT_NONE;
}

START_TEST(any_allocation_may_fail_on_the_callers_connection)
{
    unsigned long n = 1;
    while (run_out_on(open_session(), n))
        n++;
    ck_assert_uint_gt(n, fault_is_possible() ? 20 : 0);
}
END_TEST

/* ---- waiting */

/* Runs with the n-th wait gone wrong; the first ones are for the connection.  False if there were
 * fewer. */
static bool spring(enum clock_trap trap, unsigned long n)
{
    struct test_clock clock;
    struct story story = {.id = (int64_t)n};
    pqtx_options options = PQTX_OPTIONS;
    pqtx_error error = PQTX_ERROR;
    pqtx_pool *pool;
    test_clock_init(&clock);
    clock.skips_sleep = true;
    clock.trap = trap;
    clock.trap_at = n;
    options.clock = &clock.clock;
    pqtx_pool_options pool_options = pool_options_of(&clock);
    pool_options.flags = PQTX_POOL_LAZY;
    assert_status(pqtx_pool_open(&pool_options, &pool, &error), PQTX_OK, &error);
    pqtx_status status = pqtx_run(pool, &options, tell, &story, &error);
    pqtx_pool_close(pool);
    judge(n, &story, status, &error);
    if (status != PQTX_IN_DOUBT || trap != CLOCK_FAILS)
        assert_status(status, PQTX_OK, &error);
    return atomic_load(&clock.waits) >= n;
}

static void spring_everywhere(enum clock_trap trap)
{
    unsigned long n = 1;
    while (spring(trap, n))
        n++;
    ck_assert_uint_gt(n, 5);
}

/* A connection on which it is impossible to wait is as good as lost. */
START_TEST(any_wait_may_fail)
{
    spring_everywhere(CLOCK_FAILS);
}
END_TEST

START_TEST(any_wait_may_end_early)
{
    spring_everywhere(CLOCK_IS_EARLY);
    spring(CLOCK_ALWAYS_EARLY, 1);
}
END_TEST

START_TEST(any_wait_may_end_late)
{
    spring_everywhere(CLOCK_IS_LATE);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("live_fault");
    TCase *c = tcase_create("fault");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_set_timeout(c, 240);
    tcase_add_test(c, any_allocation_may_fail);
    tcase_add_test(c, memory_may_be_gone_for_good_at_any_time);
    tcase_add_test(c, any_allocation_may_fail_on_the_callers_connection);
    tcase_add_test(c, any_wait_may_fail);
    tcase_add_test(c, any_wait_may_end_early);
    tcase_add_test(c, any_wait_may_end_late);
    suite_add_tcase(s, c);
    return s;
}

int main(void)
{
    return run_suite(suite());
}
