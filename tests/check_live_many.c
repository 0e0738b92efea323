/* check_live_many.c: many counters in one statement, in one order. */
#include "support.h"
#include "support_tx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static PGconn *other, *monitor;
static pqtx_pool *pool; /* of one connection */
static pqtx_counter counter;

static void set_up(void)
{
    pqtx_error error = PQTX_ERROR;
    fresh_schema("pqtx_many");
    other = open_session();
    monitor = open_session();
    pool = open_pool(1);
    counter = (pqtx_counter)PQTX_COUNTER;
    assert_status(pqtx_counter_install(pool, &counter, &error), PQTX_OK, &error);
}

static void tear_down(void)
{
    pqtx_pool_close(pool);
    PQfinish(other);
    PQfinish(monitor);
}

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static void add_all(pqtx_pool *where, const pqtx_increment *increments, size_t count,
                    int64_t *values, pqtx_status expected)
{
    pqtx_error error = PQTX_ERROR;
    assert_status(
        pqtx_counter_add_many_now(where, NULL, &counter, increments, count, values, &error),
        expected, &error);
}

static const char *counters(void)
{
    return ask(monitor, "SELECT string_agg(key || '=' || value, ' ' ORDER BY key COLLATE \"C\")"
                        " FROM counter");
}

/* ---- what it does */

static const pqtx_increment *mixed(void)
{
    static pqtx_increment increments[5];
    increments[0] = (pqtx_increment){PQTX_TEXT("z"), 1};
    increments[1] = (pqtx_increment){PQTX_TEXT("a"), 10};
    increments[2] = (pqtx_increment){PQTX_TEXT("z"), 5};
    increments[3] = (pqtx_increment){PQTX_TEXT(""), 7};
    increments[4] = (pqtx_increment){PQTX_TEXT("a"), -3};
    return increments;
}

static void assert_values(const int64_t *values, const int64_t *expected)
{
    for (int i = 0; i < 5; i++)
        ck_assert_int_eq(values[i], expected[i]);
}

START_TEST(equal_keys_are_added_up_and_each_caller_gets_the_end)
{
    static const int64_t first[] = {6, 7, 6, 7, 7}, second[] = {12, 14, 12, 14, 14};
    int64_t values[5];
    add_all(pool, mixed(), 5, values, PQTX_OK);
    assert_values(values, first);
    ck_assert_str_eq(counters(), "=7 a=7 z=6");
    add_all(pool, mixed(), 5, values, PQTX_OK);
    assert_values(values, second);
    add_all(pool, mixed(), 5, NULL, PQTX_OK);
    ck_assert_str_eq(counters(), "=21 a=21 z=18");
}
END_TEST

static pqtx_status add_twice(pqtx_tx *tx, void *arg)
{
    int64_t *values = arg;
    pqtx_counter_add_many(tx, &counter, mixed(), 5, values);
    pqtx_counter_add(tx, &counter, PQTX_TEXT("a"), 1, &values[5]);
    return pqtx_counter_add_many(tx, &counter, mixed(), 5, values + 6);
}

START_TEST(it_works_in_a_body_that_waits_and_in_one_that_queues)
{
    static const int64_t first[] = {6, 7, 6, 7, 7}, second[] = {12, 15, 12, 14, 15};
    for (int queued = 0; queued < 2; queued++) {
        pqtx_options options = PQTX_OPTIONS;
        pqtx_error error = PQTX_ERROR;
        int64_t values[11];
        options.flags = queued ? PQTX_PIPELINE : 0;
        sql(monitor, "TRUNCATE counter");
        assert_status(pqtx_run(pool, &options, add_twice, values, &error), PQTX_OK, &error);
        assert_values(values, first);
        ck_assert_int_eq(values[5], 8);
        assert_values(values + 6, second);
    }
}
END_TEST

START_TEST(nothing_is_nothing)
{
    add_all(pool, NULL, 0, NULL, PQTX_OK);
    add_all(pool, NULL, 1, NULL, PQTX_MISUSE);
    add_all(NULL, mixed(), 5, NULL, PQTX_MISUSE);
    pqtx_increment increment = {PQTX_INT(1), 1};
    add_all(pool, &increment, 1, NULL, PQTX_MISUSE);
    increment.key = PQTX_NULL;
    add_all(pool, &increment, 1, NULL, PQTX_MISUSE);
    ck_assert_int_eq(pqtx_counter_add_many(NULL, &counter, mixed(), 5, NULL), PQTX_MISUSE);
    ck_assert_int_eq(ask_int(monitor, "SELECT count(*) FROM counter"), 0);
}
END_TEST

/* ---- keys */

static int64_t value_of(const char *key)
{
    const char *const values[] = {key};
    PGresult *result = PQexecParams(monitor, "SELECT value FROM counter WHERE key = $1", 1, NULL,
                                    values, NULL, NULL, 0);
    ck_assert_msg(PQntuples(result) == 1, "%s", key);
    int64_t value = strtoll(PQgetvalue(result, 0, 0), NULL, 10);
    PQclear(result);
    return value;
}

START_TEST(a_key_may_hold_any_character)
{
    static const char *const keys[] = {"\x01", "\x01\x02\x03", "a,b", "{}",   "NULL",    "\"",
                                       "\\",   "a\nb",         " ",   "\x1f", "\xc3\xa4"};
    pqtx_increment increments[COUNT(keys)];
    int64_t values[COUNT(keys)];
    for (size_t i = 0; i < COUNT(keys); i++)
        increments[i] = (pqtx_increment){PQTX_TEXT(keys[i]), (int64_t)i + 1};
    add_all(pool, increments, COUNT(keys), values, PQTX_OK);
    for (size_t i = 0; i < COUNT(keys); i++) {
        ck_assert_int_eq(values[i], (int64_t)i + 1);
        ck_assert_int_eq(value_of(keys[i]), (int64_t)i + 1);
    }
}
END_TEST

START_TEST(a_key_with_every_control_character_is_misuse)
{
    char every[32];
    for (char c = 1; c < 32; c++)
        every[c - 1] = c;
    every[31] = '\0';
    pqtx_increment increment = {PQTX_TEXT(every), 1};
    add_all(pool, &increment, 1, NULL, PQTX_MISUSE);
}
END_TEST

static pqtx_pool *open_with(const char *more)
{
    char conninfo[2200];
    pqtx_pool_options options = PQTX_POOL_OPTIONS;
    pqtx_error error = PQTX_ERROR;
    pqtx_pool *made;
    snprintf(conninfo, sizeof conninfo, "%s %s", test_conninfo(), more);
    options.conninfo = conninfo;
    assert_status(pqtx_pool_open(&options, &made, &error), PQTX_OK, &error);
    return made;
}

/* In SJIS the second byte of this character is a backslash. */
START_TEST(a_key_in_another_encoding_arrives_whole)
{
    pqtx_pool *sjis = open_with("client_encoding=SJIS");
    pqtx_increment increments[] = {{PQTX_TEXT("\x95\x5c"), 3}, {PQTX_TEXT("b"), 4}};
    int64_t values[2];
    add_all(sjis, increments, 2, values, PQTX_OK);
    ck_assert_int_eq(values[0], 3);
    ck_assert_int_eq(value_of("\xe8\xa1\xa8"), 3);
    counter.table = "\x95\x5c";
    add_all(sjis, increments, 2, values, PQTX_BAD_STATEMENT); /* no such table, and no worse */
    counter.table = "\x95";
    add_all(sjis, increments, 2, values, PQTX_MISUSE);
    pqtx_pool_close(sjis);
}
END_TEST

START_TEST(one_uuid_is_one_key_however_it_is_written)
{
    pqtx_increment increments[] = {{PQTX_TEXT("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"), 1},
                                   {PQTX_TEXT("{A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11}"), 2},
                                   {PQTX_TEXT("10000000-0000-0000-0000-000000000000"), 10},
                                   {PQTX_TEXT("a0eebc999c0b4ef8bb6d6bb9bd380a11"), 4}};
    int64_t values[4];
    pqtx_error error = PQTX_ERROR;
    counter.table = "by_uuid";
    counter.key_type = PQTX_KEY_UUID;
    assert_status(pqtx_counter_install(pool, &counter, &error), PQTX_OK, &error);
    add_all(pool, increments, 4, values, PQTX_OK);
    ck_assert_int_eq(values[0], 7);
    ck_assert_int_eq(values[1], 7);
    ck_assert_int_eq(values[2], 10);
    ck_assert_int_eq(values[3], 7);
    increments[2].key = PQTX_TEXT("a0eebc99");
    add_all(pool, increments, 4, values, PQTX_BAD_DATA);
    increments[2].key = PQTX_TEXT("");
    add_all(pool, increments, 4, values, PQTX_BAD_DATA);
    ck_assert_int_eq(ask_int(monitor, "SELECT sum(value) FROM by_uuid"), 17);
}
END_TEST

START_TEST(keys_may_be_integers_of_any_size)
{
    static const int64_t keys[] = {INT64_MAX, 0, -1, INT64_MIN, 7};
    pqtx_increment increments[COUNT(keys)];
    int64_t values[COUNT(keys)];
    pqtx_error error = PQTX_ERROR;
    for (size_t i = 0; i < COUNT(keys); i++)
        increments[i] = (pqtx_increment){PQTX_INT(keys[i]), (int64_t)i};
    counter.table = "by_int";
    counter.key_type = PQTX_KEY_INT;
    assert_status(pqtx_counter_install(pool, &counter, &error), PQTX_OK, &error);
    add_all(pool, increments, COUNT(keys), values, PQTX_OK);
    for (size_t i = 0; i < COUNT(keys); i++)
        ck_assert_int_eq(values[i], (int64_t)i);
    sql(monitor, "CREATE TABLE by_small (key smallint PRIMARY KEY, value int NOT NULL)");
    counter.table = "by_small";
    add_all(pool, increments, COUNT(keys), values, PQTX_BAD_DATA);
    add_all(pool, increments + 1, 2, values, PQTX_OK);
    ck_assert_int_eq(values[1], 2);
}
END_TEST

START_TEST(ten_thousand_keys_are_one_call)
{
    enum { MANY = 10000 };
    static pqtx_increment increments[MANY];
    static int64_t values[MANY];
    static char keys[MANY][16];
    for (int i = 0; i < MANY; i++) {
        snprintf(keys[i], sizeof keys[i], "key %d", i * 7919 % (MANY / 2));
        increments[i] = (pqtx_increment){PQTX_TEXT(keys[i]), i};
    }
    add_all(pool, increments, MANY, values, PQTX_OK);
    ck_assert_int_eq(ask_int(monitor, "SELECT count(*) FROM counter"), MANY / 2);
    ck_assert_int_eq(ask_int(monitor, "SELECT sum(value) FROM counter"),
                     (int64_t)MANY * (MANY - 1) / 2);
    for (int i = 0; i < MANY; i += 997)
        ck_assert_int_eq(value_of(keys[i]), values[i]);
}
END_TEST

/* ---- overflow */

START_TEST(a_sum_that_does_not_fit_is_an_error_here_as_well)
{
    pqtx_increment increments[] = {
        {PQTX_TEXT("a"), INT64_MAX}, {PQTX_TEXT("b"), 1}, {PQTX_TEXT("a"), 1}};
    pqtx_error error = PQTX_ERROR;
    pqtx_status status =
        pqtx_counter_add_many_now(pool, NULL, &counter, increments, 3, NULL, &error);
    assert_status(status, PQTX_BAD_DATA, &error);
    ck_assert_int_eq(error.origin, PQTX_ORIGIN_LIBRARY);
    increments[0].delta = INT64_MIN;
    increments[2].delta = -1;
    add_all(pool, increments, 3, NULL, PQTX_BAD_DATA);
    ck_assert_int_eq(ask_int(monitor, "SELECT count(*) FROM counter"), 0);
    increments[0].delta = INT64_MAX - 1;
    increments[2].delta = 1;
    add_all(pool, increments, 3, NULL, PQTX_OK);
    status = pqtx_counter_add_many_now(pool, NULL, &counter, increments, 3, NULL, &error);
    assert_status(status, PQTX_BAD_DATA, &error);
    ck_assert_str_eq(error.sqlstate, "22003");
    ck_assert_str_eq(counters(), "a=9223372036854775807 b=1");
}
END_TEST

/* ---- order */

struct adder {
    pqtx_pool *pool;
    const pqtx_increment *increments;
    size_t count;
    pthread_t thread;
    pqtx_status status;
    pqtx_error error;
};

static void *add_on_thread(void *arg)
{
    struct adder *adder = arg;
    adder->error = (pqtx_error)PQTX_ERROR;
    adder->status = pqtx_counter_add_many_now(adder->pool, NULL, &counter, adder->increments,
                                              adder->count, NULL, &adder->error);
    return NULL;
}

/* P25: bytewise, not as a locale has it.  One in the middle is someone else's: what is locked while
 * we wait for it shows the order. */
START_TEST(rows_are_locked_in_the_order_of_their_bytes)
{
    static const char *const keys[] = {"b", "c", "a", "\xc3\xa4", "B"};
    pqtx_increment increments[COUNT(keys)];
    for (size_t i = 0; i < COUNT(keys); i++)
        increments[i] = (pqtx_increment){PQTX_TEXT(keys[i]), 1};
    add_all(pool, increments, COUNT(keys), NULL, PQTX_OK);
    struct adder adder = {.pool = pool, .increments = increments, .count = COUNT(keys)};
    int pid = (int)run_for_pid(pool, NULL);
    sql(other, "BEGIN; SELECT FROM counter WHERE key = 'b' FOR UPDATE");
    ck_assert(pthread_create(&adder.thread, NULL, add_on_thread, &adder) == 0);
    wait_until_blocked(monitor, pid);
    ck_assert_str_eq(ask(monitor, "SELECT string_agg(key, ' ' ORDER BY key COLLATE \"C\") FROM"
                                  " (SELECT key FROM counter FOR UPDATE SKIP LOCKED) AS free"),
                     "c \xc3\xa4");
    sql(other, "COMMIT");
    pthread_join(adder.thread, NULL);
    assert_status(adder.status, PQTX_OK, &adder.error);
}
END_TEST

enum { CLIENTS = 8, KEYS = 20, ROUNDS = 120 };

struct racer {
    pqtx_pool *pool;
    pthread_t thread;
    char keys[KEYS][8];
    pqtx_increment increments[KEYS];
    unsigned seed;
    int failed;
};

static void shuffle(struct racer *racer)
{
    for (int i = 0; i < KEYS; i++) {
        racer->seed = racer->seed * 1103515245 + 12345;
        int j = (int)(racer->seed >> 16) % KEYS;
        pqtx_increment increment = racer->increments[i];
        racer->increments[i] = racer->increments[j];
        racer->increments[j] = increment;
    }
}

static void *race(void *arg)
{
    struct racer *racer = arg;
    pqtx_options options = PQTX_OPTIONS;
    options.retry_mask = PQTX_RETRY_NOTHING;
    for (int round = 0; round < ROUNDS; round++) {
        int64_t values[KEYS];
        shuffle(racer);
        racer->failed +=
            pqtx_counter_add_many_now(racer->pool, &options, &counter, racer->increments, KEYS,
                                      round % 2 ? values : NULL, NULL) != PQTX_OK;
    }
    return NULL;
}

/* P22, P24: new keys at first, then old ones. */
START_TEST(callers_with_the_same_keys_in_any_order_never_deadlock)
{
    static struct racer racers[CLIENTS];
    pqtx_pool *many = open_pool(CLIENTS);
    for (int i = 0; i < CLIENTS; i++) {
        racers[i] = (struct racer){.pool = many, .seed = (unsigned)i};
        for (int key = 0; key < KEYS; key++) {
            snprintf(racers[i].keys[key], sizeof racers[i].keys[key], "k%04d", key);
            racers[i].increments[key] = (pqtx_increment){PQTX_TEXT(racers[i].keys[key]), 1};
        }
        ck_assert(pthread_create(&racers[i].thread, NULL, race, &racers[i]) == 0);
    }
    for (int i = 0; i < CLIENTS; i++) {
        pthread_join(racers[i].thread, NULL);
        ck_assert_int_eq(racers[i].failed, 0);
    }
    pqtx_pool_close(many);
    ck_assert_int_eq(ask_int(monitor, "SELECT min(value) FROM counter"), CLIENTS * ROUNDS);
    ck_assert_int_eq(ask_int(monitor, "SELECT max(value) FROM counter"), CLIENTS * ROUNDS);
}
END_TEST

/* ---- what is kept back */

START_TEST(a_row_that_is_kept_back_spoils_the_whole)
{
    sql(monitor, "CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS"
                 " 'BEGIN IF NEW.key = ''a'' THEN RETURN NULL; END IF; RETURN NEW; END';"
                 "CREATE TRIGGER keep BEFORE INSERT ON counter FOR EACH ROW"
                 " EXECUTE FUNCTION keep()");
    add_all(pool, mixed(), 5, NULL, PQTX_NO_MATCH);
    pqtx_options options = PQTX_OPTIONS;
    pqtx_error error = PQTX_ERROR;
    int64_t values[11];
    for (int queued = 0; queued < 2; queued++) {
        options.flags = queued ? PQTX_PIPELINE : 0;
        assert_status(pqtx_run(pool, &options, add_twice, values, &error), PQTX_NO_MATCH, &error);
    }
    ck_assert_int_eq(ask_int(monitor, "SELECT count(*) FROM counter"), 0);
}
END_TEST

START_TEST(an_event_of_many_is_counted_once)
{
    pqtx_options options = PQTX_OPTIONS;
    pqtx_error error = PQTX_ERROR;
    options.event_id = "many";
    options.once_schema = "pqtx_many";
    assert_status(pqtx_once_install(pool, "pqtx_many", &error), PQTX_OK, &error);
    for (int i = 0; i < 3; i++)
        assert_status(pqtx_counter_add_many_now(pool, &options, &counter, mixed(), 5, NULL, &error),
                      i == 0 ? PQTX_OK : PQTX_DONE_BEFORE, &error);
    ck_assert_str_eq(counters(), "=7 a=7 z=6");
}
END_TEST

static Suite *suite(void)
{
    Suite *suite = suite_create("many");
    TCase *tests = tcase_create("many");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, equal_keys_are_added_up_and_each_caller_gets_the_end);
    tcase_add_test(tests, it_works_in_a_body_that_waits_and_in_one_that_queues);
    tcase_add_test(tests, nothing_is_nothing);
    tcase_add_test(tests, a_key_may_hold_any_character);
    tcase_add_test(tests, a_key_with_every_control_character_is_misuse);
    tcase_add_test(tests, a_key_in_another_encoding_arrives_whole);
    tcase_add_test(tests, one_uuid_is_one_key_however_it_is_written);
    tcase_add_test(tests, keys_may_be_integers_of_any_size);
    tcase_add_test(tests, ten_thousand_keys_are_one_call);
    tcase_add_test(tests, a_sum_that_does_not_fit_is_an_error_here_as_well);
    tcase_add_test(tests, rows_are_locked_in_the_order_of_their_bytes);
    tcase_add_test(tests, callers_with_the_same_keys_in_any_order_never_deadlock);
    tcase_add_test(tests, a_row_that_is_kept_back_spoils_the_whole);
    tcase_add_test(tests, an_event_of_many_is_counted_once);
    suite_add_tcase(suite, tests);
    return suite;
}

int main(void)
{
    return run_suite(suite());
}
