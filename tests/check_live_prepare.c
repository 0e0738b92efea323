/* check_live_prepare.c: which statements a pool's connection has prepared, as the server knows
 * them, and what it costs when they are lost or stale. */
#define _DEFAULT_SOURCE
#include "prepared.h"
#include "support.h"
#include "support_cut.h"
#include "support_tx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (int)(sizeof(array) / sizeof((array)[0]))

static PGconn *other;
static pqtx_pool *pool; /* of one connection */

static pqtx_pool *open_with(const char *conninfo, uint32_t flags)
{
    pqtx_pool_options options = PQTX_POOL_OPTIONS;
    pqtx_error error = PQTX_ERROR;
    pqtx_pool *opened;
    options.conninfo = conninfo;
    options.max_count = 1;
    options.flags = flags;
    assert_status(pqtx_pool_open(&options, &opened, &error), PQTX_OK, &error);
    return opened;
}

static void set_up(void)
{
    fresh_schema("pqtx_prepare");
    other = open_session();
    sql(other, "CREATE TABLE item (id int PRIMARY KEY, v int NOT NULL DEFAULT 0);"
               "INSERT INTO item SELECT generate_series(1, 3)");
    pool = open_with(test_conninfo(), 0);
}

static void tear_down(void)
{
    pqtx_pool_close(pool);
    PQfinish(other);
}

/* ---- Bodies */

/* Up to so many statements, one after the other; the status of each of them. */
struct body {
    const char *texts[8];
    bool pipelined;

    uint32_t attempts;
    pqtx_status status;
    pqtx_error error;
};

static pqtx_status run_texts(pqtx_tx *tx, void *arg)
{
    struct body *body = arg;
    body->attempts = pqtx_attempts(tx);
    if (body->pipelined)
        pqtx_pipeline(tx);
    for (int i = 0; i < COUNT(body->texts) && body->texts[i]; i++)
        pqtx_exec(tx, body->texts[i], PQTX_NO_ARGS, NULL);
    return PQTX_OK;
}

static pqtx_status run_body(struct body *body)
{
    body->error = (pqtx_error)PQTX_ERROR;
    return body->status = pqtx_run(pool, NULL, run_texts, body, &body->error);
}

static void assert_body(struct body body, pqtx_status expected, uint32_t attempts)
{
    run_body(&body);
    assert_status(body.status, expected, &body.error);
    ck_assert_msg(body.attempts == attempts, "%u attempts, expected %u: %s", body.attempts,
                  attempts, body.texts[0]);
}

/* One statement in a transaction, at the first attempt. */
static void run(const char *text)
{
    assert_body((struct body){.texts = {text}}, PQTX_OK, 1);
}

static void run_times(const char *text, int times)
{
    for (int i = 0; i < times; i++)
        run(text);
}

/* The n-th of many statements. */
static const char *numbered(int n)
{
    static char text[8][64];
    static int turn;
    turn = (turn + 1) % COUNT(text);
    snprintf(text[turn], sizeof text[turn], "SELECT %d AS numbered", n);
    return text[turn];
}

/* ---- What the server knows */

struct question {
    char sql[PQTX__PREPARED_SIZE + 512];
    char answer[64];
};

static pqtx_status put_question(pqtx_tx *tx, void *arg)
{
    struct question *question = arg;
    const PGresult *result;
    pqtx_status status = pqtx_exec_one(tx, question->sql, PQTX_NO_ARGS, &result);
    if (status == PQTX_OK)
        snprintf(question->answer, sizeof question->answer, "%s", PQgetvalue(result, 0, 0));
    return status;
}

/* Of the prepared statements with this text (a LIKE pattern).  The question itself is too long to
 * be kept. */
static const char *known(const char *what, const char *pattern)
{
    static struct question question;
    pqtx_error error = PQTX_ERROR;
    snprintf(question.sql, sizeof question.sql,
             "SELECT %s FROM pg_prepared_statements WHERE statement LIKE '%s' /* %*s */", what,
             pattern, PQTX__PREPARED_SIZE, "");
    assert_status(pqtx_run(pool, NULL, put_question, &question, &error), PQTX_OK, &error);
    return question.answer;
}

static int count_of(const char *pattern)
{
    return atoi(known("count(*)", pattern));
}

static int count_of_numbered(int n)
{
    return count_of(numbered(n));
}

/* ---- When a statement is prepared */

START_TEST(a_statement_is_prepared_when_it_comes_for_the_second_time)
{
    run("SELECT 'once'");
    ck_assert_int_eq(count_of("SELECT ''once''"), 0);
    run("SELECT 'once'");
    ck_assert_int_eq(count_of("SELECT ''once''"), 1);
    char name[64];
    snprintf(name, sizeof name, "%s", known("min(name)", "SELECT ''once''"));
    ck_assert_ptr_eq(strstr(name, "pqtx_"), name);
    run_times("SELECT 'once'", 5);
    ck_assert_str_eq(known("string_agg(name, ' ')", "SELECT ''once''"), name);
    if (PQserverVersion(other) >= 140000)
        ck_assert_str_eq(known("sum(custom_plans + generic_plans)", "SELECT ''once''"), "6");
}
END_TEST

START_TEST(twice_in_one_transaction_is_twice)
{
    assert_body((struct body){.texts = {"SELECT 1", "SELECT 2", "SELECT 1"}}, PQTX_OK, 1);
    ck_assert_int_eq(count_of("SELECT 1"), 1);
    ck_assert_int_eq(count_of("SELECT 2"), 0);
    assert_body((struct body){.texts = {"SELECT 3", "SELECT 4", "SELECT 3"}, .pipelined = true},
                PQTX_OK, 1);
    ck_assert_int_eq(count_of("SELECT 3"), 1);
    ck_assert_int_eq(count_of("SELECT 4"), 0);
}
END_TEST

static void run_with(const char *text, int count, const pqtx_value *values, int64_t expected)
{
    pqtx_error error = PQTX_ERROR;
    assert_status(pqtx_run_one(pool, NULL, text, count, values, expected, NULL, &error), PQTX_OK,
                  &error);
}

START_TEST(other_types_make_another_prepared_statement)
{
    static const char text[] = "SELECT $1::bytea";
    for (int i = 0; i < 3; i++)
        run_with(text, PQTX_ARGS(PQTX_TEXT("a")), PQTX_ANY_ROWS);
    ck_assert_int_eq(count_of(text), 1);
    for (int i = 0; i < 3; i++)
        run_with(text, PQTX_ARGS(PQTX_BYTES("a", 1)), PQTX_ANY_ROWS);
    ck_assert_int_eq(count_of(text), 2);
}
END_TEST

START_TEST(a_guarded_statement_is_prepared_with_its_guard)
{
    for (int i = 0; i < 8; i++) {
        pqtx_error error = PQTX_ERROR;
        const pqtx_value value = pqtx_int(i % 4 == 3 ? 7 : 1);
        pqtx_status status = pqtx_run_one(pool, NULL, "UPDATE item SET v = v + 1 WHERE id = $1", 1,
                                          &value, 1, NULL, &error);
        assert_status(status, i % 4 == 3 ? PQTX_NO_MATCH : PQTX_OK, &error);
        ck_assert_int_eq(count_of("WITH pqtx_q AS (UPDATE item SET%"), i > 0);
    }
    ck_assert_int_eq(ask_int(other, "SELECT sum(v) FROM item"), 6);
}
END_TEST

START_TEST(a_long_text_is_never_prepared)
{
    char text[PQTX__PREPARED_SIZE + 2];
    for (int more = 0; more < 2; more++) {
        int len = PQTX__PREPARED_SIZE + more;
        snprintf(text, sizeof text, "SELECT 'long%d' /*%*s*/", more, len - 19, "");
        ck_assert_int_eq((int)strlen(text), len);
        run_times(text, 3);
    }
    ck_assert_int_eq(count_of("SELECT ''long0''%"), 1);
    ck_assert_int_eq(count_of("SELECT ''long1''%"), 0);
}
END_TEST

/* ---- No more than 128, and no round trip for it */

START_TEST(the_limits_are_those_of_the_contract)
{
    ck_assert_int_eq(PQTX__PREPARED_MAX, 128);
    ck_assert_int_eq(PQTX__PREPARED_SIZE, 8192);
}
END_TEST

START_TEST(the_one_that_was_not_used_for_longest_goes)
{
    enum { MORE = PQTX__PREPARED_MAX + 50 };
    for (int i = 0; i < MORE; i++) {
        run_times(numbered(i), 2);
        run(numbered(0)); /* which is never old */
        if (i % 25 == 0)
            ck_assert_int_le(count_of("%"), PQTX__PREPARED_MAX);
    }
    ck_assert_int_eq(count_of_numbered(0), 1);
    ck_assert_int_eq(count_of_numbered(1), 0);
    ck_assert_int_eq(count_of_numbered(MORE - PQTX__PREPARED_MAX - 5), 0);
    ck_assert_int_eq(count_of_numbered(MORE - PQTX__PREPARED_MAX + 10), 1);
    ck_assert_int_eq(count_of_numbered(MORE - 1), 1);
    ck_assert_int_eq(count_of("%"), PQTX__PREPARED_MAX);
    run_times(numbered(1), 2); /* and it can come back */
    ck_assert_int_eq(count_of_numbered(1), 1);
    ck_assert_int_eq(count_of("%"), PQTX__PREPARED_MAX);
}
END_TEST

static void swap_pool(pqtx_pool *with)
{
    pqtx_pool_close(pool);
    pool = with;
}

START_TEST(to_prepare_and_to_forget_costs_no_round_trip)
{
    struct cut *cut = cut_open();
    swap_pool(open_with(cut_conninfo(cut), 0));
    cut_arm(cut, NULL);
    for (int i = 0; i < 2 * PQTX__PREPARED_MAX; i++)
        for (int times = 0; times < 2; times++)
            run_with(numbered(i), PQTX_NO_ARGS, 1);
    ck_assert_uint_eq(cut_count(cut, CUT_CLIENT).flights, 4 * PQTX__PREPARED_MAX);
    ck_assert_int_ge(count_of("%numbered%"), PQTX__PREPARED_MAX - 8); /* and BEGIN, … */
    ck_assert_int_le(count_of("%"), PQTX__PREPARED_MAX);
    cut_arm(cut, NULL);
    for (int i = 0; i < PQTX__PREPARED_MAX; i++)
        run(numbered(1000 + i / 2));
    ck_assert_uint_eq(cut_count(cut, CUT_CLIENT).flights, 2 * PQTX__PREPARED_MAX);
    swap_pool(open_with(test_conninfo(), 0));
    cut_close(cut);
}
END_TEST

/* In one flight more can come than there is room for; what is on its way stays. */
static pqtx_status queue_many(pqtx_tx *tx, void *arg)
{
    const int *order = arg;
    pqtx_pipeline(tx);
    for (int i = 0; i < 300; i++)
        pqtx_exec(tx, numbered(*order > 0 ? i : 299 - i), PQTX_NO_ARGS, NULL);
    return PQTX_OK;
}

START_TEST(one_flight_may_hold_more_than_there_is_room_for)
{
    for (int order = 1, times = 0; times < 6; order = -order, times++) {
        pqtx_error error = PQTX_ERROR;
        assert_status(pqtx_run(pool, NULL, queue_many, &order, &error), PQTX_OK, &error);
        ck_assert_uint_eq(stats_of(pool).attempts - stats_of(pool).starts, 0);
        int count = count_of("%");
        ck_assert_int_le(count, PQTX__PREPARED_MAX);
        if (order < 0) /* the last ones of the flight before come first */
            ck_assert_int_ge(count, PQTX__PREPARED_MAX - 10);
    }
}
END_TEST

START_TEST(items_that_fly_together_are_prepared_too)
{
    enum { MANY = 200 };
    static char texts[MANY][64];
    static pqtx_item items[MANY];
    for (int round = 0; round < 6; round++) {
        pqtx_error error = PQTX_ERROR;
        for (int i = 0; i < MANY; i++) {
            snprintf(texts[i], sizeof texts[i], "SELECT %d AS item", round < 3 ? i % 100 : i);
            items[i] = (pqtx_item)PQTX_ITEM;
            items[i].sql = texts[i];
            items[i].expected = 1;
        }
        assert_status(pqtx_run_each(pool, NULL, items, MANY, &error), PQTX_OK, &error);
        for (int i = 0; i < MANY; i++) {
            ck_assert_uint_eq(items[i].attempts, 1);
            PQclear(items[i].result);
        }
        ck_assert_int_le(count_of("%"), PQTX__PREPARED_MAX);
        if (round > 0 && round < 3)
            ck_assert_int_eq(count_of("%AS item%"), 100);
    }
}
END_TEST

/* ---- What a session can lose */

START_TEST(statements_that_were_deallocated_cost_one_retry_and_no_error)
{
    run_times("SELECT 'kept'", 3);
    assert_body((struct body){.texts = {"DEALLOCATE ALL", "SELECT 'kept'"}}, PQTX_OK, 2);
    run_times("SELECT 'kept'", 3);
    ck_assert_int_eq(count_of("SELECT ''kept''"), 1);
    assert_body((struct body){.texts = {"SELECT 'kept'", "DEALLOCATE ALL"}}, PQTX_OK, 2);
    run_times("SELECT 'kept'", 3);
    ck_assert_int_eq(count_of("SELECT ''kept''"), 1);
    ck_assert_int_eq(count_of("BEGIN"), 1);
}
END_TEST

/* As a pooler's reset does it, behind the pool's back: here by another road into the same session.
 */
static pqtx_status deallocate_behind(pqtx_tx *tx, void *arg)
{
    (void)arg;
    return pqtx_exec(tx, "DO $$ BEGIN EXECUTE 'DEALLOCATE ALL'; END $$", PQTX_NO_ARGS, NULL);
}

START_TEST(a_session_that_lost_them_between_two_runs_costs_one_retry)
{
    for (int round = 0; round < 3; round++) {
        run_times("SELECT 'kept'", 3);
        pqtx_error error = PQTX_ERROR;
        assert_status(pqtx_run(pool, NULL, deallocate_behind, NULL, &error), PQTX_OK, &error);
        uint64_t retries = stats_of(pool).retries_other;
        for (int i = 0; i < 4; i++)
            run_with("UPDATE item SET v = v + 1 WHERE id = 1", PQTX_NO_ARGS, 1);
        ck_assert_uint_le(stats_of(pool).retries_other - retries, 1);
    }
    ck_assert_int_eq(ask_int(other, "SELECT v FROM item WHERE id = 1"), 12);
    ck_assert_uint_eq(stats_of(pool).rollbacks, 0);
}
END_TEST

/* BEGIN is known to the cache and not to the server, COMMIT to neither: it is answered, outside a
 * transaction, with its tag. */
START_TEST(a_begin_that_was_lost_is_no_commit)
{
    struct body body = {.texts = {"SELECT 1 / 0"}};
    pqtx_options options = PQTX_OPTIONS;
    pqtx_error error = PQTX_ERROR;
    sql(other, "CREATE FUNCTION lose() RETURNS int LANGUAGE plpgsql AS $$ BEGIN"
               " EXECUTE 'DEALLOCATE ALL'; RETURN 1; END $$");
    options.isolation = PQTX_ISO_SERIALIZABLE;
    for (int i = 0; i < 3; i++)
        assert_status(pqtx_run(pool, &options, run_texts, &body, &error), PQTX_BAD_DATA, &error);
    run_with("SELECT lose()", PQTX_NO_ARGS, 1);
    body = (struct body){.texts = {"UPDATE item SET v = 7 WHERE id = 1"}, .pipelined = true};
    assert_status(pqtx_run(pool, &options, run_texts, &body, &error), PQTX_OK, &error);
    ck_assert_uint_eq(body.attempts, 2);
    ck_assert_int_eq(ask_int(other, "SELECT v FROM item WHERE id = 1"), 7);
}
END_TEST

/* Behind the cache's back; it says nothing if another attempt has done it already. */
static void lose_an_old_one(void)
{
    char name[64], text[256];
    struct body body = {.texts = {text}};
    snprintf(name, sizeof name, "%s",
             known("(array_agg(name ORDER BY split_part(name, '_', 3)::int))[10]", "%numbered"));
    snprintf(text, sizeof text,
             "DO $$ BEGIN IF EXISTS (SELECT FROM pg_prepared_statements WHERE name = '%s') THEN"
             " DEALLOCATE %s; END IF; END $$",
             name, name);
    assert_status(run_body(&body), PQTX_OK, &body.error);
}

/* The DEALLOCATE that was to ride along finds nothing: that is one retry at most, and nothing is
 * done twice. */
START_TEST(one_that_is_gone_can_be_evicted)
{
    for (int i = 0; i < PQTX__PREPARED_MAX + 20; i++)
        run_times(numbered(i), 2);
    for (int i = 0; i < 30; i++) {
        lose_an_old_one();
        for (int n = 0; n < 12; n++) { /* by then it was the oldest */
            uint64_t retries = stats_of(pool).retries_other;
            struct body body = {.texts = {numbered(1000 + 12 * i + n)}, .pipelined = n % 2};
            assert_status(run_body(&body), PQTX_OK, &body.error);
            run_with("UPDATE item SET v = v + 1 WHERE id = 1", PQTX_NO_ARGS,
                     n % 3 ? 1 : PQTX_ANY_ROWS);
            ck_assert_uint_le(stats_of(pool).retries_other - retries, 1);
        }
        run_times(numbered(2000 + i), 2);
    }
    ck_assert_int_eq(ask_int(other, "SELECT v FROM item WHERE id = 1"), 360);
    ck_assert_uint_gt(stats_of(pool).retries_other, 0);
    ck_assert_uint_eq(stats_of(pool).rollbacks, 0);
}
END_TEST

/* ---- Plans whose columns have changed */

START_TEST(a_changed_result_costs_one_retry_and_is_prepared_anew)
{
    run_times("SELECT * FROM item", 3);
    for (int i = 0; i < 3; i++) {
        sql(other, "ALTER TABLE item ADD COLUMN IF NOT EXISTS more int");
        assert_body((struct body){.texts = {"SELECT * FROM item"}}, PQTX_OK, 2);
        run_times("SELECT * FROM item", 3);
        ck_assert_int_eq(count_of("SELECT * FROM item"), 1);
        sql(other, "ALTER TABLE item DROP COLUMN more");
        assert_body((struct body){.texts = {"SELECT * FROM item"}, .pipelined = true}, PQTX_OK, 2);
        run_times("SELECT * FROM item", 3);
        ck_assert_int_eq(count_of("SELECT * FROM item"), 1);
    }
    ck_assert_uint_eq(stats_of(pool).retries_other, 6);
}
END_TEST

START_TEST(a_changed_result_under_a_guard_costs_one_retry)
{
    static const char text[] = "UPDATE item SET v = v + 1 WHERE id = 1 RETURNING *";
    for (int i = 0; i < 3; i++)
        run_with(text, PQTX_NO_ARGS, 1);
    sql(other, "ALTER TABLE item ADD COLUMN more int");
    PGresult *result;
    pqtx_error error = PQTX_ERROR;
    assert_status(pqtx_run_one(pool, NULL, text, PQTX_NO_ARGS, 1, &result, &error), PQTX_OK,
                  &error);
    ck_assert_int_eq(PQnfields(result), 3);
    PQclear(result);
    ck_assert_uint_eq(stats_of(pool).retries_other, 1);
    ck_assert_int_eq(ask_int(other, "SELECT v FROM item WHERE id = 1"), 4);
    for (int i = 0; i < 3; i++)
        run_with(text, PQTX_NO_ARGS, 1);
    ck_assert_int_eq(count_of("WITH pqtx_q AS (UPDATE%"), 1);
}
END_TEST

enum { MANY = 8 };

static void begin_many(pqtx_pool *many, pqtx_tx **txs)
{
    for (int i = 0; i < MANY; i++) {
        txs[i] = pqtx_new(many, NULL);
        ck_assert_int_eq(pqtx_attempt(txs[i]), 1);
    }
}

/* Prepares it on all the connections of a pool. */
static pqtx_pool *open_and_prepare(const char *text)
{
    pqtx_tx *txs[MANY];
    pqtx_pool *many = open_pool(MANY);
    for (int times = 0; times < 3; times++) {
        begin_many(many, txs);
        for (int i = 0; i < MANY; i++) {
            ck_assert_int_eq(pqtx_exec(txs[i], text, PQTX_NO_ARGS, NULL), PQTX_OK);
            end_tx(txs[i]);
        }
    }
    return many;
}

static void assert_second_attempt(pqtx_tx *tx, const char *text)
{
    const PGresult *result;
    ck_assert_int_eq(pqtx_attempt(tx), 1);
    ck_assert_int_eq(pqtx_exec(tx, text, PQTX_NO_ARGS, &result), PQTX_OK);
    ck_assert_int_eq(PQnfields(result), 3);
    ck_assert_uint_eq(pqtx_attempts(tx), 2);
}

START_TEST(eight_stale_connections_cost_each_run_one_retry)
{
    static const char text[] = "SELECT * FROM item";
    pqtx_tx *txs[MANY];
    pqtx_pool *many = open_and_prepare(text);
    sql(other, "ALTER TABLE item ADD COLUMN more int");
    begin_many(many, txs);
    for (int i = 0; i < MANY; i++)
        ck_assert_int_eq(pqtx_exec(txs[i], text, PQTX_NO_ARGS, NULL), PQTX_STALE_STATEMENT);
    for (int i = 0; i < MANY; i++) {
        assert_second_attempt(txs[i], text);
        end_tx(txs[i]);
    }
    ck_assert_uint_eq(stats_of(many).rollbacks, 0);
    pqtx_pool_close(many);
}
END_TEST

/* Somebody else takes the connection that is mended, so that the next one is met with a stale plan
 * too. */
START_TEST(a_second_stale_connection_costs_no_second_retry)
{
    static const char text[] = "SELECT * FROM item";
    pqtx_tx *holders[MANY];
    pqtx_pool *many = open_and_prepare(text);
    sql(other, "ALTER TABLE item ADD COLUMN more int");
    for (int i = 0; i < MANY / 2; i++) {
        pqtx_tx *tx = pqtx_new(many, NULL);
        ck_assert_int_eq(pqtx_attempt(tx), 1);
        ck_assert_int_eq(pqtx_exec(tx, text, PQTX_NO_ARGS, NULL), PQTX_STALE_STATEMENT);
        ck_assert_int_eq(pqtx_commit(tx), PQTX_STALE_STATEMENT);
        holders[2 * i] = hold_tx(many, NULL, NULL);
        assert_second_attempt(tx, text);
        end_tx(tx);
        holders[2 * i + 1] = hold_tx(many, NULL, NULL);
    }
    for (int i = 0; i < MANY; i++)
        end_tx(holders[i]);
    pqtx_pool_close(many);
}
END_TEST

/* ---- A Parse in a flight that fails */

START_TEST(a_parse_that_was_passed_over_is_sent_again)
{
    run("SELECT 'later'");
    assert_body((struct body){.texts = {"SELECT 1 / 0", "SELECT 'later'"}, .pipelined = true},
                PQTX_BAD_DATA, 1);
    ck_assert_int_eq(count_of("SELECT ''later''"), 0);
    assert_body((struct body){.texts = {"SELECT 'later'", "SELECT 1 / 0"}, .pipelined = true},
                PQTX_BAD_DATA, 1);
    ck_assert_int_eq(count_of("SELECT ''later''"), 1);
    run_times("SELECT 'later'", 3);
    ck_assert_int_eq(count_of("SELECT ''later''"), 1);
}
END_TEST

START_TEST(a_statement_that_fails_at_its_first_run_is_prepared_all_the_same)
{
    static const char text[] = "SELECT 1 / $1::int";
    const pqtx_value zero = pqtx_int(0);
    pqtx_error error = PQTX_ERROR;
    run_with(text, PQTX_ARGS(PQTX_INT(1)), 1);
    for (int i = 0; i < 3; i++)
        assert_status(pqtx_run_one(pool, NULL, text, 1, &zero, 1, NULL, &error), PQTX_BAD_DATA,
                      &error);
    for (int i = 0; i < 3; i++)
        run_with(text, PQTX_ARGS(PQTX_INT(1)), 1);
    ck_assert_int_eq(count_of("%SELECT 1 / $1::int%"), 1);
}
END_TEST

START_TEST(a_parse_that_failed_is_tried_again)
{
    static const char text[] = "SELECT * FROM later";
    for (int i = 0; i < 4; i++)
        assert_body((struct body){.texts = {text}}, PQTX_BAD_STATEMENT, 1);
    sql(other, "CREATE TABLE later (id int)");
    run_times(text, 2);
    ck_assert_int_eq(count_of(text), 1);
    sql(other, "DROP TABLE later");
    assert_body((struct body){.texts = {text}}, PQTX_BAD_STATEMENT, 1);
    sql(other, "CREATE TABLE later (id int)");
    run_times(text, 2);
    ck_assert_int_eq(count_of(text), 1);
    for (int i = 0; i < 3; i++)
        assert_body((struct body){.texts = {"SELEKT 1"}}, PQTX_BAD_STATEMENT, 1);
    ck_assert_int_eq(count_of("SELEKT%"), 0);
}
END_TEST

/* What is prepared in a transaction, or in a savepoint, stays when that is undone. */
static pqtx_status use_and_undo(pqtx_tx *tx, void *arg)
{
    pqtx_status status = pqtx_exec(tx, arg, PQTX_NO_ARGS, NULL);
    return status == PQTX_OK ? PQTX_USER : status;
}

static pqtx_status undo_the_first_use(pqtx_tx *tx, void *arg)
{
    ck_assert_int_eq(pqtx_savepoint(tx, use_and_undo, arg), PQTX_USER);
    ck_assert_int_eq(pqtx_savepoint(tx, use_and_undo, arg), PQTX_USER);
    ck_assert_uint_eq(pqtx_attempts(tx), 1);
    return pqtx_exec(tx, arg, PQTX_NO_ARGS, NULL);
}

START_TEST(a_savepoint_that_is_undone_takes_no_statement_along)
{
    char text[] = "SELECT 'inside'";
    pqtx_error error = PQTX_ERROR;
    run(text);
    assert_status(pqtx_run(pool, NULL, undo_the_first_use, text, &error), PQTX_OK, &error);
    run_times(text, 3);
    ck_assert_int_eq(count_of("SELECT ''inside''"), 1);
}
END_TEST

START_TEST(a_transaction_that_is_undone_takes_no_statement_along)
{
    char text[] = "SELECT 'inside'";
    pqtx_error error = PQTX_ERROR;
    for (int i = 0; i < 3; i++)
        assert_status(pqtx_run(pool, NULL, use_and_undo, text, &error), PQTX_USER, &error);
    ck_assert_int_eq(count_of("SELECT ''inside''"), 1);
    run_times(text, 3);
    ck_assert_int_eq(count_of("SELECT ''inside''"), 1);
}
END_TEST

/* ---- Where nothing is prepared */

START_TEST(on_the_callers_connection_nothing_is_prepared)
{
    struct body body = {.texts = {"SELECT 1", "SELECT 1", "UPDATE item SET v = 0"}};
    for (int i = 0; i < 6; i++) {
        pqtx_error error = PQTX_ERROR;
        body.pipelined = i % 2;
        assert_status(pqtx_run_on(other, NULL, run_texts, &body, &error), PQTX_OK, &error);
    }
    ck_assert_int_eq(ask_int(other, "SELECT count(*) FROM pg_prepared_statements"), 0);
}
END_TEST

START_TEST(a_pool_that_is_told_never_to_prepares_nothing)
{
    swap_pool(open_with(test_conninfo(), PQTX_POOL_PREPARE_NEVER));
    for (int i = 0; i < 3; i++) {
        assert_body((struct body){.texts = {"SELECT 1", "SELECT 1"}, .pipelined = i % 2}, PQTX_OK,
                    1);
        run_with("UPDATE item SET v = 0 WHERE id = $1", PQTX_ARGS(PQTX_INT(1)), 1);
    }
    ck_assert_int_eq(count_of("%"), 0);
}
END_TEST

/* ---- Statements that the caller prepares */

START_TEST(an_unknown_statement_of_the_callers_own_is_an_error)
{
    run_times("SELECT 'ours'", 3);
    for (int i = 0; i < 3; i++)
        assert_body((struct body){.texts = {"EXECUTE nobody"}}, PQTX_STALE_STATEMENT, 2);
    run_times("SELECT 'ours'", 3);
    ck_assert_int_eq(count_of("SELECT ''ours''"), 1); /* it was not forgotten */
    run("PREPARE twice AS SELECT 1");
    for (int i = 0; i < 3; i++)
        assert_body((struct body){.texts = {"PREPARE twice AS SELECT 1"}}, PQTX_STALE_STATEMENT, 2);
    run_times("SELECT 'ours'", 3);
    ck_assert_int_eq(count_of("SELECT ''ours''"), 1);
}
END_TEST

START_TEST(a_statement_of_the_callers_own_goes_its_own_way)
{
    static const char count[] = "count(*) FILTER (WHERE name = 'mine')";
    for (int i = 0; i < 3; i++) {
        run("PREPARE mine AS SELECT id FROM item");
        run("EXECUTE mine");
        ck_assert_str_eq(known(count, "%"), "1");
        run("DEALLOCATE mine");
        ck_assert_str_eq(known(count, "%"), "0");
    }
}
END_TEST

static Suite *suite(void)
{
    Suite *suite = suite_create("live_prepare");
    TCase *tcase = tcase_create("prepare");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, a_statement_is_prepared_when_it_comes_for_the_second_time);
    tcase_add_test(tcase, twice_in_one_transaction_is_twice);
    tcase_add_test(tcase, other_types_make_another_prepared_statement);
    tcase_add_test(tcase, a_guarded_statement_is_prepared_with_its_guard);
    tcase_add_test(tcase, a_long_text_is_never_prepared);
    tcase_add_test(tcase, the_limits_are_those_of_the_contract);
    tcase_add_test(tcase, the_one_that_was_not_used_for_longest_goes);
    tcase_add_test(tcase, to_prepare_and_to_forget_costs_no_round_trip);
    tcase_add_test(tcase, one_flight_may_hold_more_than_there_is_room_for);
    tcase_add_test(tcase, items_that_fly_together_are_prepared_too);
    tcase_add_test(tcase, statements_that_were_deallocated_cost_one_retry_and_no_error);
    tcase_add_test(tcase, a_session_that_lost_them_between_two_runs_costs_one_retry);
    tcase_add_test(tcase, a_begin_that_was_lost_is_no_commit);
    tcase_add_test(tcase, one_that_is_gone_can_be_evicted);
    tcase_add_test(tcase, a_changed_result_costs_one_retry_and_is_prepared_anew);
    tcase_add_test(tcase, a_changed_result_under_a_guard_costs_one_retry);
    tcase_add_test(tcase, eight_stale_connections_cost_each_run_one_retry);
    tcase_add_test(tcase, a_second_stale_connection_costs_no_second_retry);
    tcase_add_test(tcase, a_parse_that_was_passed_over_is_sent_again);
    tcase_add_test(tcase, a_statement_that_fails_at_its_first_run_is_prepared_all_the_same);
    tcase_add_test(tcase, a_parse_that_failed_is_tried_again);
    tcase_add_test(tcase, a_savepoint_that_is_undone_takes_no_statement_along);
    tcase_add_test(tcase, a_transaction_that_is_undone_takes_no_statement_along);
    tcase_add_test(tcase, on_the_callers_connection_nothing_is_prepared);
    tcase_add_test(tcase, a_pool_that_is_told_never_to_prepares_nothing);
    tcase_add_test(tcase, an_unknown_statement_of_the_callers_own_is_an_error);
    tcase_add_test(tcase, a_statement_of_the_callers_own_goes_its_own_way);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return run_suite(suite());
}
