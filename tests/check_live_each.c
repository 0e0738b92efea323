/* check_live_each.c: many statements at once, each a transaction by itself: every item gets its own
 * answer, and none of them another's. */
#define _DEFAULT_SOURCE
#include "support.h"
#include "support_form.h"

#include "lend.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCHEMA "pqtx_each"

static PGconn *monitor, *other;
static pqtx_pool *pool; /* of one connection: what is left over must not want another one */
static pqtx_options options;
static pqtx_error error;

static void set_up(void)
{
    fresh_schema(SCHEMA);
    monitor = open_session();
    other = open_session();
    sql(monitor, "CREATE TABLE account (id int PRIMARY KEY, v bigint NOT NULL CHECK (v >= 0));"
                 "INSERT INTO account SELECT i, 10 * i FROM generate_series(1, 300) AS i;"
                 "CREATE TABLE log (line text);"
                 "CREATE TABLE late (id int UNIQUE DEFERRABLE INITIALLY DEFERRED);"
                 "CREATE SEQUENCE tries;"
                 "CREATE FUNCTION lose(bigint) RETURNS bigint LANGUAGE plpgsql AS"
                 " 'BEGIN IF nextval(''" SCHEMA ".tries'') <= $1 THEN"
                 " RAISE USING ERRCODE = ''40001''; END IF; RETURN 1; END'");
    pool = open_pool(1);
    options = (pqtx_options)PQTX_OPTIONS;
    error = (pqtx_error)PQTX_ERROR;
}

static void tear_down(void)
{
    pqtx_pool_close(pool);
    PQfinish(monitor);
    PQfinish(other);
}

static int64_t log_lines(void)
{
    return ask_int(monitor, "SELECT count(*) FROM log");
}

/* What is an answer holds rubbish at first. */
static pqtx_item item_of(const char *statement, int64_t expected)
{
    pqtx_item item = PQTX_ITEM;
    item.sql = statement;
    item.expected = expected;
    item.status = (pqtx_status)77;
    item.attempts = 77;
    item.rows = 77;
    item.result = (PGresult *)&error;
    return item;
}

static pqtx_status run(pqtx_item *items, size_t count)
{
    return pqtx_run_each(pool, &options, items, count, &error);
}

static void assert_committed(const pqtx_item *item, int64_t rows)
{
    assert_status(item->status, PQTX_OK, NULL);
    ck_assert_int_eq(item->outcome, PQTX_OUTCOME_COMMITTED);
    ck_assert_uint_eq(item->attempts, 1);
    ck_assert_uint_eq(item->flags, 0);
    ck_assert_int_eq(item->rows, rows);
    ck_assert_ptr_nonnull(item->result);
}

static void assert_not(const pqtx_item *item, pqtx_status status)
{
    assert_status(item->status, status, NULL);
    ck_assert_int_eq(item->outcome, PQTX_OUTCOME_ROLLED_BACK);
    ck_assert_int_eq(item->rows, 0);
    ck_assert_ptr_null(item->result);
}

static void clear(pqtx_item *items, size_t count)
{
    for (size_t i = 0; i < count; i++)
        PQclear(items[i].result);
}

/* ---- Every item its own answer */

#define ADD "UPDATE account SET v = v + $2 WHERE id = $1 RETURNING id, v"

enum { MOST = 200 };

static pqtx_value values[MOST][2];
static pqtx_item many[MOST];

static void fill_many(size_t count)
{
    for (size_t i = 0; i < count; i++) {
        values[i][0] = PQTX_INT((int64_t)i + 1);
        values[i][1] = PQTX_INT(1);
        many[i] = item_of(ADD, 1);
        many[i].values = values[i];
        many[i].count = 2;
    }
}

static void assert_own_row(size_t i, int64_t turn)
{
    int64_t id, v;
    assert_committed(&many[i], 1);
    ck_assert_int_eq(pqtx_get_int(many[i].result, 0, 0, &id), PQTX_OK);
    ck_assert_int_eq(pqtx_get_int(many[i].result, 0, 1, &v), PQTX_OK);
    ck_assert_int_eq(id, (int64_t)i + 1);
    ck_assert_int_eq(v, 10 * ((int64_t)i + 1) + turn);
}

START_TEST(as_many_items_as_one_likes_get_an_answer_each)
{
    static const size_t counts[] = {1, 2, 3, 63, 64, 65, 128, 129, MOST};
    for (size_t n = 0; n < sizeof counts / sizeof counts[0]; n++) {
        sql(monitor, "UPDATE account SET v = 10 * id");
        for (int64_t turn = 1; turn <= 3; turn++) {
            fill_many(counts[n]);
            assert_status(run(many, counts[n]), PQTX_OK, &error);
            ck_assert_int_eq(error.call, 0);
            for (size_t i = 0; i < counts[n]; i++)
                assert_own_row(i, turn);
            clear(many, counts[n]);
        }
    }
}
END_TEST

START_TEST(results_are_the_callers_and_outlive_the_pool)
{
    fill_many(3);
    assert_status(run(many, 3), PQTX_OK, &error);
    pqtx_pool_close(pool);
    pool = open_pool(1);
    for (size_t i = 0; i < 3; i++)
        assert_own_row(i, 1);
    clear(many, 3);
}
END_TEST

START_TEST(no_items_are_no_work)
{
    pqtx_stats before = stats_of(pool);
    ck_assert_int_eq(run(NULL, 0), PQTX_OK);
    ck_assert_int_eq(run(many, 0), PQTX_OK);
    ck_assert_uint_eq(stats_of(pool).starts, before.starts);
}
END_TEST

/* Their values are in the flight at the same time. */
START_TEST(items_may_be_large)
{
    enum { LARGE = 1000000, ITEMS = 6 };
    pqtx_item items[ITEMS];
    char *text = malloc(LARGE + 1);
    ck_assert_ptr_nonnull(text);
    memset(text, 'x', LARGE);
    text[LARGE] = '\0';
    for (int i = 0; i < ITEMS; i++) {
        values[i][0] = pqtx_text_n(text, (size_t)(LARGE - i));
        items[i] = item_of("INSERT INTO log VALUES ($1) RETURNING line, line", 1);
        items[i].values = values[i];
        items[i].count = 1;
    }
    assert_status(run(items, ITEMS), PQTX_OK, &error);
    for (int i = 0; i < ITEMS; i++) {
        assert_committed(&items[i], 1);
        ck_assert_int_eq(PQgetlength(items[i].result, 0, 1), LARGE - i);
    }
    clear(items, ITEMS);
    free(text);
}
END_TEST

/* What a transaction of its own would send at once must not fly among the others. */
START_TEST(a_very_large_item_does_not_mix_the_answers_up)
{
    enum { LARGE = 1048576, ITEMS = 5 };
    pqtx_item items[ITEMS];
    char *text = malloc(LARGE + 1);
    ck_assert_ptr_nonnull(text);
    memset(text, 'x', LARGE);
    text[LARGE] = '\0';
    for (int place = 0; place < ITEMS; place++) {
        for (int i = 0; i < ITEMS; i++)
            items[i] = item_of("INSERT INTO log VALUES ('x')", 1);
        int missed = place == 0 ? 1 : 0;
        items[missed].sql = "INSERT INTO log SELECT 'x' WHERE false";
        values[0][0] = PQTX_TEXT(text);
        items[place].sql = "INSERT INTO log VALUES ($1)";
        items[place].values = values[0];
        items[place].count = 1;
        assert_status(run(items, ITEMS), PQTX_NO_MATCH, &error);
        ck_assert_int_eq(error.call, missed + 1);
        for (int i = 0; i < ITEMS; i++)
            if (i == missed)
                assert_not(&items[i], PQTX_NO_MATCH);
            else
                assert_committed(&items[i], 1);
        clear(items, ITEMS);
        ck_assert_int_eq(log_lines(), ITEMS - 1);
        sql(monitor, "TRUNCATE log");
    }
    free(text);
}
END_TEST

/* ---- Items that fail */

static const struct {
    const char *statement;
    int64_t expected;
    pqtx_status status;
} failing[] = {
    {"SELECT 1 / 0", PQTX_ANY_ROWS, PQTX_BAD_DATA},
    {"SELECT 1 / 0", 1, PQTX_BAD_DATA},
    {"INSERT INTO account VALUES (1, 1)", 1, PQTX_DUPLICATE},
    {"UPDATE account SET v = -1", 1, PQTX_CHECK},
    {"UPDATE account SET v = 0 WHERE id = 999", 1, PQTX_NO_MATCH},
    {"UPDATE account SET v = 0", 1, PQTX_TOO_MANY},
    {"UPDATE account SET v = 0", 0, PQTX_TOO_MANY},
    {"SELECT 1 WHERE false", 1, PQTX_NO_MATCH},
    {"INSERT INTO late VALUES (1), (1)", PQTX_ANY_ROWS, PQTX_DUPLICATE},
    {"INSERT INTO late VALUES (1), (1)", 2, PQTX_DUPLICATE},
    {"SELECT nowhere", PQTX_ANY_ROWS, PQTX_BAD_STATEMENT},
    {"WITH w AS (SELECT 1) SELECT FROM w", 2, PQTX_NO_MATCH},
    {"SHOW server_version", 2, PQTX_NO_MATCH},
    {"VACUUM account", PQTX_ANY_ROWS, PQTX_BAD_STATEMENT},
    {"CREATE TABLE made ()", 1, PQTX_MISUSE},
    {"COMMIT", PQTX_ANY_ROWS, PQTX_MISUSE},
    {"COPY log FROM stdin", PQTX_ANY_ROWS, PQTX_MISUSE},
    {NULL, PQTX_ANY_ROWS, PQTX_MISUSE},
    {NULL, 1, PQTX_MISUSE},
    {"SELECT $1", 1, PQTX_MISUSE}, /* a value, and none is given */
};
enum { FAILING = sizeof failing / sizeof failing[0], PLACES = 5 };

static pqtx_item failing_item(int i)
{
    pqtx_item item = item_of(failing[i].statement, failing[i].expected);
    item.count = item.sql && strchr(item.sql, '$') ? 1 : 0;
    return item;
}

START_TEST(an_item_that_fails_harms_no_other)
{
    pqtx_item items[PLACES];
    for (int i = 0; i < FAILING; i++)
        for (int place = 0; place < PLACES; place++) {
            for (int at = 0; at < PLACES; at++)
                items[at] = item_of("INSERT INTO log VALUES ('x') RETURNING line", 1);
            items[place] = failing_item(i);
            assert_status(run(items, PLACES), failing[i].status, &error);
            ck_assert_int_eq(error.status, failing[i].status);
            ck_assert_int_eq(error.call, place + 1);
            for (int at = 0; at < PLACES; at++)
                if (at == place)
                    assert_not(&items[at], failing[i].status);
                else
                    assert_committed(&items[at], 1);
            clear(items, PLACES);
            ck_assert_int_eq(log_lines(), PLACES - 1);
            sql(monitor, "TRUNCATE log");
        }
    ck_assert_int_eq(ask_int(monitor, "SELECT count(*) FROM late"), 0);
    ck_assert_uint_eq(stats_of(pool).drops, 0);
}
END_TEST

START_TEST(all_items_may_fail_and_each_in_its_own_way)
{
    pqtx_item items[2 * FAILING];
    for (int i = 0; i < 2 * FAILING; i++)
        items[i] = failing_item(i % FAILING);
    assert_status(run(items, 2 * FAILING), failing[0].status, &error);
    ck_assert_int_eq(error.call, 1);
    ck_assert_str_eq(error.sqlstate, "22012");
    for (int i = 0; i < 2 * FAILING; i++)
        assert_not(&items[i], failing[i % FAILING].status);
    ck_assert_str_eq(ask(monitor, "SELECT to_regclass('made') IS NULL"), "t");
}
END_TEST

START_TEST(the_first_of_the_failures_is_reported)
{
    fill_many(MOST);
    many[150].sql = "UPDATE account SET v = 0 WHERE id = $1 AND false AND $2 = 1";
    many[151].sql = "SELECT $1 / 0, $2";
    assert_status(run(many, MOST), PQTX_NO_MATCH, &error);
    ck_assert_int_eq(error.call, 151);
    ck_assert_str_eq(error.message, "no row, where one was expected");
    for (size_t i = 0; i < MOST; i++)
        if (i != 150 && i != 151)
            assert_own_row(i, 1);
    assert_not(&many[150], PQTX_NO_MATCH);
    assert_not(&many[151], PQTX_BAD_DATA);
    clear(many, MOST);
}
END_TEST

START_TEST(of_two_that_want_the_same_key_one_gets_it)
{
    pqtx_item items[4];
    for (int i = 0; i < 4; i++)
        items[i] = item_of("INSERT INTO account VALUES (1000, 0)", 1);
    assert_status(run(items, 4), PQTX_DUPLICATE, &error);
    int got = 0;
    for (int i = 0; i < 4; i++)
        got += items[i].status == PQTX_OK;
    ck_assert_int_eq(got, 1);
    clear(items, 4);
}
END_TEST

/* ---- Wrong arguments: nothing runs */

static void assert_refused(pqtx_pool *on, pqtx_item *items, size_t count)
{
    ck_assert_int_eq(pqtx_run_each(on, &options, items, count, &error), PQTX_MISUSE);
    ck_assert_int_eq(error.status, PQTX_MISUSE);
    ck_assert_str_ne(error.message, "");
    ck_assert_int_eq(log_lines(), 0);
}

START_TEST(what_is_wrong_with_one_item_is_seen_before_any_runs)
{
    pqtx_item items[100];
    for (int way = 0; way < 5; way++) {
        for (int i = 0; i < 100; i++)
            items[i] = item_of("INSERT INTO log VALUES ('x')", 1);
        if (way == 0)
            items[99].expected = -2;
        if (way == 1)
            items[99].size = 0;
        if (way == 2)
            items[99].size--;
        if (way == 3)
            items[0].size = 0;
        if (way == 4)
            items[0].size = SIZE_MAX;
        assert_refused(pool, items, 100);
        ck_assert_int_eq(items[0].status, 77);
    }
}
END_TEST

START_TEST(wrong_arguments_are_misuse)
{
    pqtx_item item = item_of("INSERT INTO log VALUES ('x')", 1);
    pqtx_error sizeless = {0};
    assert_refused(NULL, &item, 1);
    assert_refused(pool, NULL, 1);
    ck_assert_int_eq(pqtx_run_each(pool, NULL, &item, 1, &sizeless), PQTX_MISUSE);
    options.event_id = "event";
    assert_refused(pool, &item, 1);
    options.event_id = NULL;
    options.max_attempts = -1;
    ck_assert_int_eq(run(&item, 1), PQTX_MISUSE);
    ck_assert_int_eq(item.status, PQTX_MISUSE);
    ck_assert_int_eq(log_lines(), 0);
    ck_assert_int_eq(pqtx_run_each(pool, NULL, &item, 1, NULL), PQTX_OK);
    clear(&item, 1);
}
END_TEST

/* A caller built against a newer header, whose items are longer. */
struct longer {
    pqtx_item item;
    uint64_t newer;
};

START_TEST(items_of_a_newer_caller_are_taken_if_they_ask_for_nothing_new)
{
    struct longer items[70];
    for (int i = 0; i < 70; i++) {
        items[i] = (struct longer){.item = item_of("INSERT INTO log VALUES ('x')", 1)};
        items[i].item.size = sizeof items[i];
    }
    assert_status(run(&items[0].item, 70), PQTX_OK, &error);
    for (int i = 0; i < 70; i++) {
        assert_committed(&items[i].item, 1);
        ck_assert_uint_eq(items[i].item.size, sizeof items[i]);
        ck_assert_uint_eq(items[i].newer, 0);
        clear(&items[i].item, 1);
    }
    sql(monitor, "TRUNCATE log");
    items[69].newer = 1;
    assert_refused(pool, &items[0].item, 70);
}
END_TEST

START_TEST(an_item_that_has_no_room_for_its_result_is_misuse)
{
    pqtx_item item = item_of("INSERT INTO log VALUES ('x')", 1);
    item.size = offsetof(pqtx_item, result);
    assert_refused(pool, &item, 1);
}
END_TEST

/* ---- Lost races */

START_TEST(an_item_that_lost_a_race_is_begun_again_by_itself)
{
    pqtx_item items[PLACES];
    for (int place = 0; place < PLACES; place++) {
        for (int i = 0; i < PLACES; i++)
            items[i] = item_of("INSERT INTO log VALUES ('x')", 1);
        items[place] = item_of("INSERT INTO log SELECT lose(2) RETURNING line", 1);
        sql(monitor, "ALTER SEQUENCE tries RESTART");
        assert_status(run(items, PLACES), PQTX_OK, &error);
        for (int i = 0; i < PLACES; i++) {
            ck_assert_uint_eq(items[i].attempts, i == place ? 3 : 1);
            ck_assert_int_eq(items[i].status, PQTX_OK);
            ck_assert_int_eq(items[i].rows, 1);
        }
        clear(items, PLACES);
        ck_assert_int_eq(log_lines(), PLACES);
        sql(monitor, "TRUNCATE log");
    }
}
END_TEST

START_TEST(attempts_and_retries_are_limited_for_each_item)
{
    pqtx_item items[3] = {item_of("SELECT lose(1000)", 1), item_of("SELECT 1", 1),
                          item_of("SELECT lose(1000)", PQTX_ANY_ROWS)};
    options.max_attempts = 4;
    assert_status(run(items, 3), PQTX_SERIALIZATION, &error);
    ck_assert(error.flags & PQTX_ERROR_ATTEMPTS);
    ck_assert_int_eq(error.call, 1);
    assert_not(&items[0], PQTX_SERIALIZATION);
    assert_committed(&items[1], 1);
    assert_not(&items[2], PQTX_SERIALIZATION);
    ck_assert_uint_eq(items[0].attempts, 4);
    ck_assert_uint_eq(items[2].attempts, 4);
    clear(items, 3);
}
END_TEST

static void make_room(const pqtx_event *event, void *arg)
{
    if (event->type == PQTX_EVENT_FAILED && event->status == PQTX_BUSY)
        sql(other, arg);
}

START_TEST(an_item_that_met_a_lock_is_begun_again_when_the_others_are_done)
{
    fill_many(5);
    options.lock_timeout_ms = 20;
    options.observer = make_room;
    options.observer_arg = (char[]){"COMMIT"};
    sql(other, "BEGIN; UPDATE account SET v = v WHERE id = 2");
    assert_status(run(many, 5), PQTX_OK, &error);
    for (size_t i = 0; i < 5; i++) {
        ck_assert_uint_eq(many[i].attempts, i == 1 ? 2 : 1);
        ck_assert_int_eq(many[i].rows, 1);
    }
    clear(many, 5);
}
END_TEST

START_TEST(every_item_that_meets_a_lock_is_busy_and_the_others_are_not)
{
    fill_many(8);
    options.lock_timeout_ms = 10;
    options.retry_mask = PQTX_RETRY_NOTHING;
    sql(other, "BEGIN; UPDATE account SET v = v WHERE id IN (2, 5, 8)");
    assert_status(run(many, 8), PQTX_BUSY, &error);
    ck_assert_int_eq(error.call, 2);
    for (size_t i = 0; i < 8; i++)
        if (i % 3 == 1)
            assert_not(&many[i], PQTX_BUSY);
        else
            assert_own_row(i, 1);
    clear(many, 8);
}
END_TEST

START_TEST(an_item_that_waits_too_long_ends_by_the_deadline_and_the_others_commit)
{
    for (size_t place = 0; place < 3; place++) {
        sql(monitor, "UPDATE account SET v = 10 * id");
        fill_many(3);
        options.lock_timeout_ms = PQTX_NO_TIMEOUT;
        options.deadline_ms = 3000;
        sql(other, "BEGIN");
        many[place].sql = "UPDATE account SET v = v + $2 WHERE id = 300 AND $1 > 0";
        sql(other, "UPDATE account SET v = v WHERE id = 300");
        assert_status(run(many, 3), PQTX_TIMEOUT, &error);
        ck_assert_int_eq(error.call, (int)place + 1);
        ck_assert(error.flags & PQTX_ERROR_DEADLINE);
        ck_assert_int_lt(error.elapsed_us, 6000000);
        for (size_t i = 0; i < 3; i++)
            if (i == place)
                assert_not(&many[i], PQTX_TIMEOUT);
            else
                assert_own_row(i, 1);
        clear(many, 3);
        sql(other, "ROLLBACK");
    }
    ck_assert_uint_eq(stats_of(pool).drops, 0);
}
END_TEST

/* Each waits for another lock, and the time is up before their turn comes. */
START_TEST(several_items_that_wait_too_long_end_by_the_deadline_and_the_others_commit)
{
    fill_many(8);
    options.lock_timeout_ms = PQTX_NO_TIMEOUT;
    options.deadline_ms = 3000;
    sql(other, "BEGIN; UPDATE account SET v = v WHERE id IN (2, 5, 8)");
    assert_status(run(many, 8), PQTX_TIMEOUT, &error);
    ck_assert_int_lt(error.elapsed_us, 6000000);
    for (size_t i = 0; i < 8; i++)
        if (i % 3 == 1)
            assert_not(&many[i], PQTX_TIMEOUT);
        else
            assert_own_row(i, 1);
    clear(many, 8);
    ck_assert_uint_eq(stats_of(pool).drops, 0);
}
END_TEST

/* ---- One by one, where a flight cannot be shared */

static void assert_each_its_own(void)
{
    sql(monitor, "UPDATE account SET v = 10 * id");
    fill_many(70);
    many[7].sql = "SELECT $1 / 0, $2";
    assert_status(run(many, 70), PQTX_BAD_DATA, &error);
    ck_assert_int_eq(error.call, 8);
    for (size_t i = 0; i < 70; i++)
        if (i == 7)
            assert_not(&many[i], PQTX_BAD_DATA);
        else
            assert_own_row(i, 1);
    clear(many, 70);
}

START_TEST(options_that_need_a_block_take_the_items_one_by_one)
{
    options.isolation = PQTX_ISO_SERIALIZABLE;
    assert_each_its_own();
    options.isolation = PQTX_ISO_DEFAULT;
    options.access = PQTX_ACCESS_READ_WRITE;
    assert_each_its_own();
    options.access = PQTX_ACCESS_DEFAULT;
    options.flags = PQTX_SERVER_DEADLINE;
    assert_each_its_own();
    options.flags = PQTX_PIN_SNAPSHOT;
    assert_each_its_own();
    options.flags = PQTX_PIPELINE;
    assert_each_its_own();
}
END_TEST

/* As it is behind a pooler. */
START_TEST(a_connection_to_an_unknown_backend_takes_the_items_one_by_one)
{
    struct pqtx__wire *wire;
    ck_assert_int_eq(pqtx__pool_acquire(pool, 1000000, &wire, &error), PQTX_OK);
    wire->backend.pid = 0;
    pqtx__pool_release(pool, wire);
    assert_each_its_own();
    ck_assert_int_eq(pqtx__pool_acquire(pool, 1000000, &wire, &error), PQTX_OK);
    ck_assert_int_eq(wire->backend.pid, 0);
    pqtx__pool_release(pool, wire);
}
END_TEST

START_TEST(a_pool_without_a_free_connection_makes_every_item_wait_for_one)
{
    pqtx_pool_options pool_options = PQTX_POOL_OPTIONS;
    pqtx_pool_close(pool);
    pool_options.conninfo = test_conninfo();
    pool_options.max_count = 1;
    pool_options.acquire_timeout_ms = 20;
    ck_assert_int_eq(pqtx_pool_open(&pool_options, &pool, &error), PQTX_OK);
    pqtx_tx *tx = hold_tx(pool, NULL, NULL);
    fill_many(3);
    options.retry_mask = PQTX_RETRY_NOTHING;
    pqtx_status status = run(many, 3);
    ck_assert_int_ne(status, PQTX_OK);
    for (size_t i = 0; i < 3; i++)
        assert_not(&many[i], status);
    end_tx(tx);
    assert_each_its_own();
}
END_TEST

/* ---- What is counted */

START_TEST(statistics_count_every_item_as_a_transaction)
{
    pqtx_stats before = stats_of(pool);
    pqtx_item items[4] = {item_of("SELECT 1", 1), item_of("SELECT 1", 0),
                          item_of("SELECT lose(1)", 1), item_of("SHOW server_version", 1)};
    ck_assert_int_eq(run(items, 4), PQTX_TOO_MANY);
    pqtx_stats after = stats_of(pool);
    ck_assert_uint_eq(after.starts - before.starts, 4);
    ck_assert_uint_eq(after.attempts - before.attempts, 5);
    ck_assert_uint_eq(after.commits - before.commits, 3);
    ck_assert_uint_eq(after.rollbacks - before.rollbacks, 1);
    ck_assert_uint_eq(after.retries_serialization - before.retries_serialization, 1);
    ck_assert_uint_eq(after.drops, 0);
    ck_assert_uint_eq(after.open_count, 1);
    ck_assert_uint_eq(after.idle_count, 1);
    clear(items, 4);
}
END_TEST

START_TEST(every_item_has_a_token_of_its_own)
{
    assert_status(pqtx_once_install(pool, SCHEMA, &error), PQTX_OK, &error);
    options.in_doubt = PQTX_DOUBT_TOKEN;
    options.once_schema = SCHEMA;
    fill_many(100);
    many[3].sql = "SELECT $1 / 0, $2";
    assert_status(run(many, 100), PQTX_BAD_DATA, &error);
    ck_assert_int_eq(ask_int(monitor, "SELECT count(DISTINCT id) FROM pqtx_once"), 99);
    clear(many, 100);
}
END_TEST

START_TEST(evidence_is_kept_of_every_item)
{
    pqtx_evidence evidence = PQTX_EVIDENCE;
    pqtx_item items[3] = {item_of("SELECT 1", 1), item_of("SELECT 1", 0),
                          item_of("SELECT 1 / 0", 1)};
    options.evidence = &evidence;
    ck_assert_int_eq(run(items, 3), PQTX_TOO_MANY);
    ck_assert_uint_eq(evidence.count, 2);
    ck_assert_int_eq(evidence.records[0].status, PQTX_TOO_MANY);
    ck_assert_int_eq(evidence.records[1].status, PQTX_BAD_DATA);
    clear(items, 3);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("live_each");
    TCase *c = tcase_create("each");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_set_timeout(c, 60);
    tcase_add_test(c, as_many_items_as_one_likes_get_an_answer_each);
    tcase_add_test(c, results_are_the_callers_and_outlive_the_pool);
    tcase_add_test(c, no_items_are_no_work);
    tcase_add_test(c, items_may_be_large);
    tcase_add_test(c, a_very_large_item_does_not_mix_the_answers_up);
    add_direct_test(c, several_items_that_wait_too_long_end_by_the_deadline_and_the_others_commit,
                    INVENTED_PID);
    tcase_add_test(c, an_item_that_has_no_room_for_its_result_is_misuse);
    tcase_add_test(c, an_item_that_fails_harms_no_other);
    tcase_add_test(c, all_items_may_fail_and_each_in_its_own_way);
    tcase_add_test(c, the_first_of_the_failures_is_reported);
    tcase_add_test(c, of_two_that_want_the_same_key_one_gets_it);
    tcase_add_test(c, what_is_wrong_with_one_item_is_seen_before_any_runs);
    tcase_add_test(c, wrong_arguments_are_misuse);
    tcase_add_test(c, items_of_a_newer_caller_are_taken_if_they_ask_for_nothing_new);
    tcase_add_test(c, an_item_that_lost_a_race_is_begun_again_by_itself);
    tcase_add_test(c, attempts_and_retries_are_limited_for_each_item);
    tcase_add_test(c, an_item_that_met_a_lock_is_begun_again_when_the_others_are_done);
    tcase_add_test(c, every_item_that_meets_a_lock_is_busy_and_the_others_are_not);
    add_direct_test(c, an_item_that_waits_too_long_ends_by_the_deadline_and_the_others_commit,
                    INVENTED_PID);
    tcase_add_test(c, options_that_need_a_block_take_the_items_one_by_one);
    tcase_add_test(c, a_connection_to_an_unknown_backend_takes_the_items_one_by_one);
    tcase_add_test(c, a_pool_without_a_free_connection_makes_every_item_wait_for_one);
    tcase_add_test(c, statistics_count_every_item_as_a_transaction);
    tcase_add_test(c, every_item_has_a_token_of_its_own);
    tcase_add_test(c, evidence_is_kept_of_every_item);
    suite_add_tcase(s, c);
    return s;
}

int main(void)
{
    return run_suite(suite());
}
