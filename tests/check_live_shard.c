/* check_live_shard.c: one counter in several rows: never oversold, and its verdicts right. */
#include "support.h"
#include "support_tx.h"

#include <stdio.h>
#include <string.h>

static PGconn *other, *monitor;
static pqtx_pool *pool; /* of one connection */
static pqtx_shards shards;

static void set_up(void)
{
    pqtx_error error = PQTX_ERROR;
    fresh_schema("pqtx_shard");
    other = open_session();
    monitor = open_session();
    pool = open_pool(1);
    shards = (pqtx_shards)PQTX_SHARDS;
    shards.slot_count = 4;
    shards.flags = PQTX_COUNTER_BOUNDED;
    shards.table = "slots";
    assert_status(pqtx_shards_install(pool, &shards, &error), PQTX_OK, &error);
}

static void tear_down(void)
{
    pqtx_pool_close(pool);
    PQfinish(other);
    PQfinish(monitor);
}

#define KEY PQTX_TEXT("kz")

static void fill(int64_t amount)
{
    pqtx_error error = PQTX_ERROR;
    assert_status(pqtx_shards_fill_now(pool, NULL, &shards, KEY, amount, &error), PQTX_OK, &error);
}

static void add(int64_t delta, pqtx_status expected)
{
    pqtx_error error = PQTX_ERROR;
    assert_status(pqtx_shards_add_now(pool, NULL, &shards, KEY, delta, &error), expected, &error);
}

static void take(int64_t n, pqtx_status expected)
{
    pqtx_error error = PQTX_ERROR;
    assert_status(pqtx_shards_take_now(pool, NULL, &shards, KEY, n, &error), expected, &error);
}

static int64_t sum(void)
{
    int64_t value;
    pqtx_error error = PQTX_ERROR;
    assert_status(pqtx_shards_sum_now(pool, NULL, &shards, KEY, &value, &error), PQTX_OK, &error);
    return value;
}

static const char *slots(void)
{
    return ask(monitor, "SELECT string_agg(slot || '=' || value, ' ' ORDER BY slot) FROM slots");
}

/* Sets the slots 0, 1, … to these values. */
static void set_slots(const char *values)
{
    char statement[256];
    snprintf(statement, sizeof statement,
             "TRUNCATE slots; INSERT INTO slots SELECT 'kz', n - 1, v"
             " FROM unnest('{%s}'::int[]) WITH ORDINALITY AS u(v, n)",
             values);
    sql(monitor, statement);
}

START_TEST(a_stock_is_spread_evenly)
{
    fill(10);
    ck_assert_str_eq(slots(), "0=3 1=3 2=2 3=2");
    fill(3);
    ck_assert_str_eq(slots(), "0=4 1=4 2=3 3=2");
    fill(0);
    ck_assert_int_eq(sum(), 13);
}
END_TEST

START_TEST(adding_goes_to_one_slot)
{
    char expected[32];
    add(5, PQTX_OK);
    add(2, PQTX_OK);
    snprintf(expected, sizeof expected, "%d=7", (int)(run_for_pid(pool, NULL) % 4));
    ck_assert_str_eq(slots(), expected);
    ck_assert_int_eq(sum(), 7);
    add(-8, PQTX_CHECK);
    add(-7, PQTX_OK);
    ck_assert_int_eq(sum(), 0);
}
END_TEST

START_TEST(taking_tells_exhausted_from_not_found)
{
    take(1, PQTX_NOT_FOUND);
    int64_t value = 0;
    ck_assert_int_eq(pqtx_shards_sum_now(pool, NULL, &shards, KEY, &value, NULL), PQTX_NOT_FOUND);
    ck_assert_int_eq(value, PQTX_VALUE_UNKNOWN);
    fill(2);
    take(3, PQTX_EXHAUSTED);
    take(1, PQTX_OK);
    take(1, PQTX_OK);
    take(1, PQTX_EXHAUSTED);
    ck_assert_str_eq(slots(), "0=0 1=0 2=0 3=0");
}
END_TEST

START_TEST(what_no_slot_has_is_taken_from_several)
{
    set_slots("1,0,2,3");
    take(5, PQTX_OK);
    ck_assert_str_eq(slots(), "0=0 1=0 2=0 3=1");
    set_slots("1,0,2,3");
    take(7, PQTX_EXHAUSTED);
    ck_assert_str_eq(slots(), "0=1 1=0 2=2 3=3");
    take(6, PQTX_OK);
    ck_assert_int_eq(sum(), 0);
}
END_TEST

START_TEST(slots_beyond_their_number_are_counted_and_taken)
{
    set_slots("0,0,0,0,0,0,3,4");
    ck_assert_int_eq(sum(), 7);
    take(4, PQTX_OK);
    take(3, PQTX_OK);
    take(1, PQTX_EXHAUSTED);
}
END_TEST

/* ---- in a body */

static pqtx_status all_of_it(pqtx_tx *tx, void *arg)
{
    int64_t *value = arg;
    pqtx_shards_fill(tx, &shards, KEY, 8);
    pqtx_shards_add(tx, &shards, KEY, 1);
    pqtx_shards_take(tx, &shards, KEY, 2);
    pqtx_shards_take(tx, &shards, KEY, 5);
    return pqtx_shards_sum(tx, &shards, KEY, value);
}

static pqtx_status too_much(pqtx_tx *tx, void *arg)
{
    pqtx_status status = all_of_it(tx, arg);
    return status ? status : pqtx_shards_take(tx, &shards, KEY, 3);
}

START_TEST(a_body_may_wait_or_queue)
{
    for (int queued = 0; queued < 2; queued++) {
        pqtx_options options = PQTX_OPTIONS;
        pqtx_error error = PQTX_ERROR;
        int64_t value = 0;
        options.flags = queued ? PQTX_PIPELINE : 0;
        sql(monitor, "TRUNCATE slots");
        assert_status(pqtx_run(pool, &options, all_of_it, &value, &error), PQTX_OK, &error);
        ck_assert_int_eq(value, 2);
        sql(monitor, "TRUNCATE slots");
        assert_status(pqtx_run(pool, &options, too_much, &value, &error), PQTX_EXHAUSTED, &error);
        ck_assert_int_eq(error.call, queued ? 6 : 0);
        ck_assert_int_eq(ask_int(monitor, "SELECT count(*) FROM slots"), 0);
    }
}
END_TEST

/* ---- beside others */

static pqtx_status take_in_body(pqtx_tx *tx, void *n)
{
    return pqtx_shards_take(tx, &shards, KEY, *(int64_t *)n);
}

START_TEST(a_slot_that_somebody_holds_is_passed_over)
{
    set_slots("1,1,1,0");
    sql(other, "BEGIN; UPDATE slots SET value = value WHERE slot IN (0, 1)");
    take(1, PQTX_OK); /* without waiting */
    sql(other, "ROLLBACK");
    ck_assert_str_eq(slots(), "0=1 1=1 2=0 3=0");
}
END_TEST

/* What the other does with the slots that ours must wait for, and what ours then comes to. */
static void take_beside(const char *start, const char *change, int64_t n, pqtx_status expected,
                        const char *final_slots)
{
    struct task task = {.pool = pool, .work = take_in_body, .arg = &n};
    pqtx_options options = PQTX_OPTIONS;
    options.isolation = PQTX_ISO_READ_COMMITTED;
    options.max_attempts = 1;
    task.options = &options;
    set_slots(start);
    int pid = (int)run_for_pid(pool, NULL);
    sql(other, "BEGIN");
    sql(other, change);
    start_task(&task);
    wait_until_blocked(monitor, pid);
    sql(other, "COMMIT");
    join_task(&task, expected);
    ck_assert_str_eq(slots(), final_slots);
}

START_TEST(where_all_are_held_one_is_waited_for)
{
    take_beside("5,0", "UPDATE slots SET value = value - 1 WHERE slot = 0", 1, PQTX_OK, "0=3 1=0");
    take_beside("5,0", "UPDATE slots SET value = 0 WHERE slot = 0", 1, PQTX_EXHAUSTED, "0=0 1=0");
    take_beside("2,1", "UPDATE slots SET value = 1 WHERE slot = 0", 2, PQTX_OK, "0=0 1=0");
    take_beside("2,1", "UPDATE slots SET value = 0 WHERE slot = 0", 2, PQTX_EXHAUSTED, "0=0 1=1");
    take_beside("1,1,1", "UPDATE slots SET value = 0 WHERE slot = 1", 3, PQTX_EXHAUSTED,
                "0=1 1=0 2=1");
    take_beside("1,1,1", "UPDATE slots SET value = 4 WHERE slot = 1", 3, PQTX_OK, "0=0 1=2 2=1");
    take_beside("1,1,1", "DELETE FROM slots WHERE slot = 1", 3, PQTX_EXHAUSTED, "0=1 2=1");
}
END_TEST

START_TEST(a_slot_being_filled_is_judged_as_it_was)
{
    set_slots("0,0");
    sql(other, "BEGIN; UPDATE slots SET value = 5 WHERE slot = 0");
    take(1, PQTX_EXHAUSTED);
    sql(other, "COMMIT");
    take(5, PQTX_OK);
}
END_TEST

enum { SELLERS = 6, RUNS = 6, STOCK = 150 };

struct seller {
    pqtx_pool *pool;
    pthread_t thread;
    unsigned seed;
    int64_t sold;
    pqtx_status last;
    bool queued;
};

static void *sell(void *arg)
{
    struct seller *seller = arg;
    pqtx_options options = PQTX_OPTIONS;
    int64_t n = 1;
    if (seller->queued)
        options.flags = PQTX_PIPELINE;
    do {
        seller->last = seller->queued
                           ? pqtx_run(seller->pool, &options, take_in_body, &n, NULL)
                           : pqtx_shards_take_now(seller->pool, NULL, &shards, KEY, n, NULL);
        if (seller->last == PQTX_OK)
            seller->sold += n;
        seller->seed = seller->seed * 1103515245 + 12345;
        n = 1 + (seller->seed >> 16) % 3;
        if (seller->last == PQTX_EXHAUSTED && n > 1) /* what is left in ones */
            seller->last = PQTX_OK, n = 1;
    } while (seller->last == PQTX_OK);
    return NULL;
}

START_TEST(a_crowd_sells_the_stock_and_no_more)
{
    pqtx_pool *many = open_pool(SELLERS);
    for (int round = 0; round < RUNS; round++) {
        struct seller sellers[SELLERS];
        int64_t sold = 0;
        sql(monitor, "TRUNCATE slots");
        fill(STOCK);
        for (int i = 0; i < SELLERS; i++) {
            sellers[i] = (struct seller){
                .pool = many, .seed = (unsigned)(round * SELLERS + i), .queued = round % 2 == 1};
            ck_assert(pthread_create(&sellers[i].thread, NULL, sell, &sellers[i]) == 0);
        }
        for (int i = 0; i < SELLERS; i++) {
            pthread_join(sellers[i].thread, NULL);
            assert_status(sellers[i].last, PQTX_EXHAUSTED, NULL);
            sold += sellers[i].sold;
        }
        ck_assert_int_eq(sold, STOCK);
        ck_assert_int_eq(ask_int(monitor, "SELECT max(value) FROM slots"), 0);
        ck_assert_int_eq(ask_int(monitor, "SELECT min(value) FROM slots"), 0);
    }
    pqtx_pool_close(many);
}
END_TEST

struct adder {
    pqtx_pool *pool;
    pthread_t thread;
    int failed;
};

static void *add_on_thread(void *arg)
{
    struct adder *adder = arg;
    for (int i = 0; i < 100; i++)
        adder->failed += pqtx_shards_add_now(adder->pool, NULL, &shards, KEY, 1, NULL) != PQTX_OK;
    return NULL;
}

START_TEST(no_increment_is_lost_in_a_crowd)
{
    struct adder adders[SELLERS];
    pqtx_pool *many = open_pool(SELLERS);
    for (int i = 0; i < SELLERS; i++) {
        adders[i] = (struct adder){.pool = many};
        ck_assert(pthread_create(&adders[i].thread, NULL, add_on_thread, &adders[i]) == 0);
    }
    for (int i = 0; i < SELLERS; i++) {
        pthread_join(adders[i].thread, NULL);
        ck_assert_int_eq(adders[i].failed, 0);
    }
    pqtx_pool_close(many);
    ck_assert_int_eq(sum(), SELLERS * 100);
}
END_TEST

/* ---- limits */

START_TEST(a_sum_that_does_not_fit_is_an_error)
{
    pqtx_error error = PQTX_ERROR;
    int64_t value;
    sql(monitor, "INSERT INTO slots VALUES ('kz', 0, 9223372036854775807), ('kz', 1, 1)");
    pqtx_status status = pqtx_shards_sum_now(pool, NULL, &shards, KEY, &value, &error);
    assert_status(status, PQTX_BAD_DATA, &error);
    ck_assert_str_eq(error.sqlstate, "22003");
    take(INT64_MAX, PQTX_OK);
    take(1, PQTX_OK);
    take(1, PQTX_EXHAUSTED);
}
END_TEST

START_TEST(names_are_quoted_and_keys_are_typed)
{
    pqtx_error error = PQTX_ERROR;
    shards.table = "Order";
    shards.key = "select";
    shards.slot = "S\"lot";
    shards.value = "from";
    shards.key_type = PQTX_KEY_INT;
    assert_status(pqtx_shards_install(pool, &shards, &error), PQTX_OK, &error);
    assert_status(pqtx_shards_fill_now(pool, NULL, &shards, PQTX_INT(7), 9, &error), PQTX_OK,
                  &error);
    assert_status(pqtx_shards_take_now(pool, NULL, &shards, PQTX_INT(7), 9, &error), PQTX_OK,
                  &error);
    assert_status(pqtx_shards_add_now(pool, NULL, &shards, PQTX_INT(7), 3, &error), PQTX_OK,
                  &error);
    ck_assert_int_eq(ask_int(monitor, "SELECT sum(\"from\") FROM \"Order\" WHERE \"select\" = 7"),
                     3);
}
END_TEST

START_TEST(what_is_no_shard_is_misuse)
{
    pqtx_shards wrong = shards;
    take(0, PQTX_MISUSE);
    ck_assert_int_eq(pqtx_shards_fill_now(pool, NULL, &shards, KEY, -1, NULL), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_shards_take_now(pool, NULL, NULL, KEY, 1, NULL), PQTX_MISUSE);
    wrong.slot_count = 1001;
    ck_assert_int_eq(pqtx_shards_take_now(pool, NULL, &wrong, KEY, 1, NULL), PQTX_MISUSE);
    wrong = shards;
    wrong.slot = "";
    ck_assert_int_eq(pqtx_shards_install(pool, &wrong, NULL), PQTX_MISUSE);
    ck_assert_uint_eq(pqtx_shards_ddl(&wrong, NULL, 0), 0);
    ck_assert_uint_gt(pqtx_shards_ddl(&shards, NULL, 0), 0);
    ck_assert_int_eq(pqtx_shards_take(NULL, &shards, KEY, 1), PQTX_MISUSE);
}
END_TEST

static Suite *suite(void)
{
    Suite *suite = suite_create("shard");
    TCase *tests = tcase_create("shard");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, a_stock_is_spread_evenly);
    tcase_add_test(tests, adding_goes_to_one_slot);
    tcase_add_test(tests, taking_tells_exhausted_from_not_found);
    tcase_add_test(tests, what_no_slot_has_is_taken_from_several);
    tcase_add_test(tests, slots_beyond_their_number_are_counted_and_taken);
    tcase_add_test(tests, a_body_may_wait_or_queue);
    tcase_add_test(tests, a_slot_that_somebody_holds_is_passed_over);
    tcase_add_test(tests, where_all_are_held_one_is_waited_for);
    tcase_add_test(tests, a_slot_being_filled_is_judged_as_it_was);
    tcase_add_test(tests, a_crowd_sells_the_stock_and_no_more);
    tcase_add_test(tests, no_increment_is_lost_in_a_crowd);
    tcase_add_test(tests, a_sum_that_does_not_fit_is_an_error);
    tcase_add_test(tests, names_are_quoted_and_keys_are_typed);
    tcase_add_test(tests, what_is_no_shard_is_misuse);
    suite_add_tcase(suite, tests);
    return suite;
}

int main(void)
{
    return run_suite(suite());
}
