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

/* ---- the same in one flight */

/* What the flight brings is there when the end of it is known. */
struct flight {
    struct story story;
    const PGresult *row;
    int rows; /* as seen on commit */
};

static void look_at_row(void *arg)
{
    struct flight *flight = arg;
    flight->rows = flight->row ? PQntuples(flight->row) : -1;
}

static pqtx_status queue(pqtx_tx *tx, struct flight *flight)
{
    char note[600];
    pqtx_change change = rise("v >= 0");
    const PGresult *changed;
    memset(note, 'x', sizeof note);
    flight->story.runs++;
    flight->row = NULL;
    pqtx_on_commit(tx, count_up, &flight->story.committed);
    pqtx_on_commit(tx, look_at_row, flight);
    pqtx_on_rollback(tx, count_up, &flight->story.rolled_back);
    pqtx_exec_one(tx, "INSERT INTO mark VALUES ($1, $2) RETURNING id, note, repeat(note, 50)",
                  PQTX_ARGS(PQTX_INT(flight->story.id), pqtx_text_n(note, sizeof note)),
                  &flight->row);
    return pqtx_update_if(tx, &change, PQTX_ARGS(PQTX_INT(1)), &changed);
}

static pqtx_status tell_in_one_flight(pqtx_tx *tx, void *arg)
{
    return queue(tx, arg);
}

/* The last statement but one fails: that must never get lost. */
static pqtx_status tell_in_vain(pqtx_tx *tx, void *arg)
{
    pqtx_status status = queue(tx, arg);
    pqtx_exec(tx, "SELECT 1 / v FROM (SELECT 0) AS z(v)", PQTX_NO_ARGS, NULL);
    pqtx_exec(tx, "UPDATE stock SET v = 1", PQTX_NO_ARGS, NULL);
    return status;
}

static const struct way {
    const char *name;
    pqtx_work work;
    uint32_t flags;
    pqtx_isolation isolation; /* other than the session's: with BEGIN and COMMIT in the flight */
    pqtx_status expected;
} ways[] = {
    {"with all there is", tell, 0, PQTX_ISO_DEFAULT, PQTX_OK},
    {"in one flight", tell_in_one_flight, PQTX_PIPELINE, PQTX_ISO_DEFAULT, PQTX_OK},
    {"in one flight with BEGIN", tell_in_one_flight, PQTX_PIPELINE, PQTX_ISO_SERIALIZABLE, PQTX_OK},
    {"in vain", tell_in_vain, PQTX_PIPELINE, PQTX_ISO_DEFAULT, PQTX_BAD_DATA},
    {"in vain with BEGIN", tell_in_vain, PQTX_PIPELINE, PQTX_ISO_SERIALIZABLE, PQTX_BAD_DATA},
};

enum { WAYS = sizeof ways / sizeof ways[0] };

static pqtx_options options_of(const struct way *way, const struct test_clock *clock)
{
    pqtx_options options = PQTX_OPTIONS;
    options.flags = way->flags;
    options.isolation = way->isolation;
    options.clock = &clock->clock;
    return options;
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
static void expect_no_memory(unsigned long n, const struct way *way, enum fault fault,
                             pqtx_status status, const pqtx_error *error)
{
    char text[2048];
    pqtx_error_format(error, text, sizeof text);
    bool ours = status == way->expected || status == PQTX_NO_MEMORY || status == PQTX_IN_DOUBT;
    bool others = status == PQTX_NO_CONNECTION || status == PQTX_TIMEOUT || status == PQTX_MISUSE;
    ck_assert_msg(ours || (fault == FAULT_OTHERS && others), "%lu: %s", n, text);
    if (fault == FAULT_NONE)
        assert_status(status, way->expected, error);
}

/* A transaction that was committed has its answers; one that cannot be has failed. */
static void judge_flight(unsigned long n, const struct way *way, const struct flight *flight,
                         pqtx_status status, const pqtx_error *error)
{
    judge(n, &flight->story, status, error);
    if (way->expected != PQTX_OK)
        ck_assert_msg(status != PQTX_OK, "%lu: %s: ok", n, way->name);
    else if (status == PQTX_OK && way->flags)
        ck_assert_msg(flight->rows == 1, "%lu: %s: %d rows", n, way->name, flight->rows);
}

/* Opens, runs and closes with the n-th allocation failing; false if there were not as many. */
static bool run_out_of_memory(unsigned long n, const struct way *way, bool for_good)
{
    struct test_clock clock;
    struct flight flight = {.story.id = (int64_t)n};
    pqtx_error error = PQTX_ERROR;
    pqtx_pool *pool;
    test_clock_init(&clock);
    clock.skips_sleep = true;
    clock.is_hopeless = for_good ? all_lack_memory : libpq_lacks_memory;
    pqtx_options options = options_of(way, &clock);
    pqtx_pool_options pool_options = pool_options_of(&clock);
    fault_arm(n, for_good);
    pqtx_status status = pqtx_pool_open(&pool_options, &pool, &error);
    if (status == PQTX_OK)
        status = pqtx_run(pool, &options, way->work, &flight, &error);
    pqtx_pool_close(pool);
    enum fault fault = fault_disarm();
    judge_flight(n, way, &flight, status, &error);
    if (for_good && fault != FAULT_NONE) /* libpq lacked it as well, after us */
        fault = FAULT_OTHERS;
    expect_no_memory(n, way, fault, status, &error);
    return fault != FAULT_NONE;
}

static void run_out_everywhere(const struct way *way, bool for_good)
{
    unsigned long n = 1;
    if (!fault_is_possible()) {
        puts("malloc() cannot be replaced here: no allocation fails");
        return;
    }
    while (run_out_of_memory(n, way, for_good))
        n++;
    ck_assert_uint_gt(n, 50);
}

START_TEST(any_allocation_may_fail)
{
    run_out_everywhere(&ways[_i], false);
}
END_TEST

START_TEST(memory_may_be_gone_for_good_at_any_time)
{
    run_out_everywhere(&ways[_i], true);
}
END_TEST

/* On the caller's connection.  Where only the library had no memory, the connection is in no
 * transaction afterwards, or is said to be lost. */
static bool run_out_on(PGconn *conn, const struct way *way, unsigned long n)
{
    struct test_clock clock;
    struct flight flight = {.story.id = (int64_t)n};
    pqtx_error error = PQTX_ERROR;
    test_clock_init(&clock);
    clock.is_hopeless = libpq_lacks_memory;
    pqtx_options options = options_of(way, &clock);
    fault_arm(n, false);
    pqtx_status status = pqtx_run_on(conn, &options, way->work, &flight, &error);
    enum fault fault = fault_disarm();
    if (fault != FAULT_OTHERS && !(error.flags & PQTX_ERROR_CONNECTION)) {
        ck_assert_msg(PQtransactionStatus(conn) == PQTRANS_IDLE, "%lu: the connection is busy", n);
        ck_assert_int_eq(PQpipelineStatus(conn), PQ_PIPELINE_OFF);
    }
    PQfinish(conn); /* ends what a lost one may still be at */
    judge_flight(n, way, &flight, status, &error);
    expect_no_memory(n, way, fault, status, &error);
    return fault != FAULT_NONE;
}

START_TEST(any_allocation_may_fail_on_the_callers_connection)
{
    unsigned long n = 1;
    while (run_out_on(open_session(), &ways[_i], n))
        n++;
    ck_assert_uint_gt(n, fault_is_possible() ? 20 : 0);
}
END_TEST

/* ---- single statements, where each is judged apart */

enum { SINGLES = 3 };

struct single {
    pqtx_status status;
    int rows;
};

/* The second one divides by zero. */
static void run_singles(pqtx_pool *pool, const pqtx_options *options, unsigned long n, bool each,
                        struct single singles[SINGLES], pqtx_error *error)
{
    pqtx_item items[SINGLES];
    pqtx_value values[SINGLES][2];
    for (int i = 0; i < SINGLES; i++) {
        values[i][0] = pqtx_int((int64_t)n * SINGLES + i);
        values[i][1] = pqtx_int(i != 1);
        items[i] = (pqtx_item)PQTX_ITEM;
        items[i].sql = "INSERT INTO mark VALUES ($1, 1 / $2::int) RETURNING *";
        items[i].count = 2;
        items[i].values = values[i];
        items[i].expected = 1;
    }
    if (each)
        pqtx_run_each(pool, options, items, SINGLES, error);
    for (int i = 0; i < SINGLES && !each; i++)
        items[i].status =
            pqtx_run_one(pool, options, items[i].sql, 2, values[i], 1, &items[i].result, error);
    for (int i = 0; i < SINGLES; i++) {
        singles[i] = (struct single){items[i].status, PQntuples(items[i].result)};
        PQclear(items[i].result);
    }
}

static void judge_singles(unsigned long n, const struct single singles[SINGLES], enum fault fault)
{
    char query[96];
    wait_until_alone();
    for (int i = 0; i < SINGLES; i++) {
        pqtx_status status = singles[i].status;
        snprintf(query, sizeof query, "SELECT count(*) FROM mark WHERE id = %lu",
                 n * SINGLES + (unsigned long)i);
        bool marked = ask_int(monitor, query) == 1;
        ck_assert_msg(marked == (status == PQTX_OK) || status == PQTX_IN_DOUBT,
                      "%lu, %d: %s, but the mark is %s", n, i, pqtx_status_name(status),
                      marked ? "there" : "not there");
        ck_assert_msg(i != 1 || (!marked && status != PQTX_OK), "%lu: divided by zero", n);
        ck_assert_int_eq(singles[i].rows, status == PQTX_OK);
        if (fault == FAULT_NONE)
            assert_status(status, i == 1 ? PQTX_BAD_DATA : PQTX_OK, NULL);
    }
    forget();
}

START_TEST(any_allocation_of_single_statements_may_fail)
{
    enum fault fault = FAULT_OURS;
    for (unsigned long n = 1; fault != FAULT_NONE; n++) {
        struct test_clock clock;
        struct single singles[SINGLES];
        pqtx_options options = PQTX_OPTIONS;
        pqtx_error error = PQTX_ERROR;
        pqtx_pool *pool;
        test_clock_init(&clock);
        clock.skips_sleep = true;
        clock.is_hopeless = libpq_lacks_memory;
        options.clock = &clock.clock;
        pqtx_pool_options pool_options = pool_options_of(&clock);
        assert_status(pqtx_pool_open(&pool_options, &pool, &error), PQTX_OK, &error);
        fault_arm(n, false);
        run_singles(pool, &options, n, _i == 1, singles, &error);
        pqtx_pool_close(pool);
        fault = fault_disarm();
        judge_singles(n, singles, fault);
    }
}
END_TEST

/* ---- waiting */

/* Runs with the n-th wait gone wrong; the first ones are for the connection.  False if there were
 * fewer. */
static bool spring(const struct way *way, enum clock_trap trap, unsigned long n)
{
    struct test_clock clock;
    struct flight flight = {.story.id = (int64_t)n};
    pqtx_error error = PQTX_ERROR;
    pqtx_pool *pool;
    test_clock_init(&clock);
    clock.skips_sleep = true;
    clock.trap = trap;
    clock.trap_at = n;
    pqtx_options options = options_of(way, &clock);
    pqtx_pool_options pool_options = pool_options_of(&clock);
    pool_options.flags = PQTX_POOL_LAZY;
    assert_status(pqtx_pool_open(&pool_options, &pool, &error), PQTX_OK, &error);
    pqtx_status status = pqtx_run(pool, &options, way->work, &flight, &error);
    pqtx_pool_close(pool);
    judge_flight(n, way, &flight, status, &error);
    if (status != PQTX_IN_DOUBT || trap != CLOCK_FAILS)
        assert_status(status, way->expected, &error);
    return atomic_load(&clock.waits) >= n;
}

static void spring_everywhere(const struct way *way, enum clock_trap trap)
{
    unsigned long n = 1;
    while (spring(way, trap, n))
        n++;
    ck_assert_uint_gt(n, way->flags ? 2 : 5);
}

/* A connection on which it is impossible to wait is as good as lost. */
START_TEST(any_wait_may_fail)
{
    spring_everywhere(&ways[_i], CLOCK_FAILS);
}
END_TEST

START_TEST(any_wait_may_end_early)
{
    spring_everywhere(&ways[_i], CLOCK_IS_EARLY);
    spring(&ways[_i], CLOCK_ALWAYS_EARLY, 1);
}
END_TEST

START_TEST(any_wait_may_end_late)
{
    spring_everywhere(&ways[_i], CLOCK_IS_LATE);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("live_fault");
    TCase *c = tcase_create("fault");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_set_timeout(c, 240);
    tcase_add_loop_test(c, any_allocation_may_fail, 0, WAYS);
    tcase_add_loop_test(c, memory_may_be_gone_for_good_at_any_time, 0, WAYS);
    tcase_add_loop_test(c, any_allocation_may_fail_on_the_callers_connection, 0, WAYS);
    tcase_add_loop_test(c, any_allocation_of_single_statements_may_fail, 0, 2);
    tcase_add_loop_test(c, any_wait_may_fail, 0, WAYS);
    tcase_add_loop_test(c, any_wait_may_end_early, 0, WAYS);
    tcase_add_loop_test(c, any_wait_may_end_late, 0, WAYS);
    suite_add_tcase(s, c);
    return s;
}

int main(void)
{
    return run_suite(suite());
}
