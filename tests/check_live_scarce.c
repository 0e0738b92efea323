/* check_live_scarce.c: counters where any allocation may fail. */
#define _DEFAULT_SOURCE
#include "support.h"
#include "support_clock.h"
#include "support_fault.h"

#include <stdio.h>
#include <stdlib.h>

static PGconn *monitor;
static pqtx_counter counter;
static pqtx_shards shards;

static void set_up(void)
{
    pqtx_error error = PQTX_ERROR;
    fresh_schema("pqtx_scarce");
    monitor = open_session();
    setenv("PGAPPNAME", "pqtx_scarce", 1);
    counter = (pqtx_counter)PQTX_COUNTER;
    shards = (pqtx_shards)PQTX_SHARDS;
    pqtx_pool *pool = open_pool(1);
    assert_status(pqtx_counter_install(pool, &counter, &error), PQTX_OK, &error);
    assert_status(pqtx_shards_install(pool, &shards, &error), PQTX_OK, &error);
    assert_status(pqtx_once_install(pool, "pqtx_scarce", &error), PQTX_OK, &error);
    pqtx_pool_close(pool);
}

static void tear_down(void)
{
    PQfinish(monitor);
}

/* One more on the counter, in one of the ways. */
typedef pqtx_status (*increment)(pqtx_pool *pool, const pqtx_options *options, pqtx_error *error);

static pqtx_status by_add(pqtx_pool *pool, const pqtx_options *options, pqtx_error *error)
{
    int64_t value;
    return pqtx_counter_add_now(pool, options, &counter, PQTX_TEXT("kz"), 1, &value, error);
}

static pqtx_status by_bump_in_body(pqtx_tx *tx, void *arg)
{
    (void)arg;
    pqtx_counter_add(tx, &counter, PQTX_TEXT("kz"), 2, NULL);
    return pqtx_counter_take(tx, &counter, PQTX_TEXT("kz"), 1, NULL);
}

static pqtx_status in_body(pqtx_pool *pool, const pqtx_options *options, pqtx_error *error)
{
    return pqtx_run(pool, options, by_bump_in_body, NULL, error);
}

static pqtx_status in_queue(pqtx_pool *pool, const pqtx_options *options, pqtx_error *error)
{
    pqtx_options queued = *options;
    queued.flags = PQTX_PIPELINE;
    return pqtx_run(pool, &queued, by_bump_in_body, NULL, error);
}

static pqtx_status by_many(pqtx_pool *pool, const pqtx_options *options, pqtx_error *error)
{
    const pqtx_increment increments[] = {{PQTX_TEXT("kz"), 3}, {PQTX_TEXT("kz"), -2}};
    int64_t values[2];
    return pqtx_counter_add_many_now(pool, options, &counter, increments, 2, values, error);
}

static pqtx_status by_group(pqtx_pool *pool, const pqtx_options *options, pqtx_error *error)
{
    pqtx_group_options group_options = PQTX_GROUP_OPTIONS;
    pqtx_group *group;
    int64_t value;
    group_options.run = options;
    pqtx_status status = pqtx_group_open(pool, &counter, &group_options, &group, error);
    if (status == PQTX_OK)
        status = pqtx_group_add(group, PQTX_TEXT("kz"), 1, 0, &value, error);
    pqtx_group_close(group);
    return status;
}

/* What was taken is written in the end, by a flush that nothing is wrong with. */
static pqtx_status by_tally(pqtx_pool *pool, const pqtx_options *options, pqtx_error *error)
{
    pqtx_tally_options tally_options = PQTX_TALLY_OPTIONS;
    pqtx_tally *tally;
    tally_options.run = options;
    pqtx_status status = pqtx_tally_open(pool, &counter, &tally_options, &tally, error);
    if (status == PQTX_OK)
        status = pqtx_tally_add(tally, PQTX_TEXT("kz"), 1, error);
    bool taken = status == PQTX_OK;
    if (taken)
        pqtx_tally_flush(tally, error);
    fault_arm(0, false); /* from now on there is memory */
    while (taken && (status = pqtx_tally_flush(tally, error)) != PQTX_OK)
        ck_assert_msg(status == PQTX_IN_DOUBT || status == PQTX_NO_CONNECTION, "%s",
                      pqtx_status_name(status));
    pqtx_tally_close(tally, NULL);
    return status;
}

static bool libpq_lacks_memory(void)
{
    return fault_so_far() == FAULT_OTHERS;
}

/* The n-th allocation fails: it is counted if, and only if, the call said so; in doubt either.
 * False if there were not as many allocations. */
static bool run_short(increment call, unsigned long n)
{
    struct test_clock clock;
    pqtx_options options = PQTX_OPTIONS;
    pqtx_error error = PQTX_ERROR;
    char text[1024];
    pqtx_pool *pool = open_pool(1);
    test_clock_init(&clock);
    clock.skips_sleep = true;
    clock.is_hopeless = libpq_lacks_memory;
    options.clock = &clock.clock;
    options.once_schema = "pqtx_scarce";
    sql(monitor, "TRUNCATE counter");
    fault_arm(n, false);
    pqtx_status status = call(pool, &options, &error);
    enum fault fault = fault_disarm();
    pqtx_pool_close(pool);
    wait_until_true(monitor, "SELECT count(*) = 0 FROM pg_stat_activity"
                             " WHERE application_name = 'pqtx_scarce'");
    int64_t value = ask_int(monitor, "SELECT coalesce(sum(value), 0) FROM counter");
    pqtx_error_format(&error, text, sizeof text);
    ck_assert_msg(value == (status == PQTX_OK) || (status == PQTX_IN_DOUBT && value <= 1),
                  "%lu: %s, and the counter is %lld\n  %s", n, pqtx_status_name(status),
                  (long long)value, text);
    bool ours = status == PQTX_OK || status == PQTX_NO_MEMORY || status == PQTX_IN_DOUBT;
    bool others = status == PQTX_NO_CONNECTION || status == PQTX_TIMEOUT || status == PQTX_MISUSE;
    ck_assert_msg(ours || (fault != FAULT_OURS && others), "%lu: %s", n, text);
    return fault != FAULT_NONE;
}

static const increment increments[] = {by_add, in_body, in_queue, by_many, by_group};

START_TEST(any_allocation_may_fail)
{
    unsigned long n = 1;
    if (!fault_is_possible())
        return;
    while (run_short(increments[_i], n))
        n++;
    ck_assert_uint_gt(n, 10);
}
END_TEST

START_TEST(any_allocation_of_a_tally_may_fail)
{
    if (!fault_is_possible())
        return;
    for (unsigned long n = 1; n <= 60; n++) {
        sql(monitor, "TRUNCATE pqtx_once");
        run_short(by_tally, n);
    }
}
END_TEST

static Suite *suite(void)
{
    Suite *suite = suite_create("scarce");
    TCase *tests = tcase_create("scarce");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, any_allocation_may_fail, 0,
                        (int)(sizeof increments / sizeof increments[0]));
    tcase_add_test(tests, any_allocation_of_a_tally_may_fail);
    suite_add_tcase(suite, tests);
    return suite;
}

int main(void)
{
    return run_suite(suite());
}
