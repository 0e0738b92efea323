/* check_live_trace_pipeline.c: what a transaction in one flight looks like on the wire, in each of
 * its forms, when its statements come for the first, the second and the third time. */
#include "support.h"
#include "support_trace.h"

#include "lend.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define SCHEMA "pqtx_trace_flight"

static PGconn *other;
static pqtx_pool *pool; /* of one connection, which is traced */
static struct fake_clock fake;
static pqtx_options options;
static bool checks_client;

static pqtx_pool *open_traced(uint32_t flags)
{
    pqtx_pool_options pool_options = PQTX_POOL_OPTIONS;
    pqtx_error error = PQTX_ERROR;
    struct pqtx__wire *wire;
    pqtx_pool *opened;
    pool_options.conninfo = test_conninfo();
    pool_options.max_count = 1;
    pool_options.flags = flags;
    pool_options.clock = &fake.clock;
    assert_status(pqtx_pool_open(&pool_options, &opened, &error), PQTX_OK, &error);
    assert_status(pqtx__pool_acquire(opened, 1000000, &wire, &error), PQTX_OK, &error);
    trace_start(wire->conn, &fake);
    checks_client = wire->checks_client;
    pqtx__pool_release(opened, wire);
    return opened;
}

static void open_all(void)
{
    fresh_schema(SCHEMA);
    other = open_session();
    fake_clock_init(&fake);
    pool = open_traced(0);
    assert_status(pqtx_once_install(pool, SCHEMA, NULL), PQTX_OK, NULL);
    pqtx_pool_close(pool);
    trace_stop(NULL);
    sql(other, "CREATE TABLE mark (id int UNIQUE DEFERRABLE INITIALLY DEFERRED);"
               "CREATE TABLE account (id int PRIMARY KEY, value int NOT NULL);"
               "INSERT INTO account VALUES (1, 0)");
    pool = open_traced(0);
    options = (pqtx_options)PQTX_OPTIONS;
    options.clock = &fake.clock;
    options.flags = PQTX_PIPELINE;
    options.once_schema = SCHEMA;
}

static void close_all(void)
{
    pqtx_pool_close(pool);
    trace_stop(NULL);
    PQfinish(other);
}

/* Where the server is not asked to look for its client, its golden traces lack the question. */
static bool can_compare(void)
{
    if (!checks_client)
        puts("the server cannot look whether its client is there: the trace is not compared");
    return checks_client;
}

static pqtx_status mark(pqtx_tx *tx)
{
    return pqtx_exec(tx, "INSERT INTO mark DEFAULT VALUES", PQTX_NO_ARGS, NULL);
}

static pqtx_status add_one(pqtx_tx *tx)
{
    return pqtx_update_one(tx, "UPDATE account SET value = value + $2 WHERE id = $1",
                           PQTX_ARGS(PQTX_INT(1), PQTX_INT(1)));
}

/* A change and an insert, under a lock_timeout of its own if `arg` is one. */
static pqtx_status change(pqtx_tx *tx, void *arg)
{
    const int64_t *lock_timeout_ms = arg;
    add_one(tx);
    if (lock_timeout_ms)
        pqtx_set_lock_timeout(tx, *lock_timeout_ms);
    return mark(tx);
}

/* Runs it as often as there are traces, and compares each. */
static void assert_flights(void *arg, int count, const char *const *golden)
{
    for (int i = 0; i < count; i++) {
        trace_cut();
        ck_assert_int_eq(pqtx_run(pool, &options, change, arg, NULL), PQTX_OK);
        if (can_compare())
            assert_wire(golden[i]);
    }
}

#define ASSERT_FLIGHTS(arg, ...)                                                                   \
    assert_flights(arg, (int)(sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *)),             \
                   (const char *const[]){__VA_ARGS__})

#define CHECK  "pg_catalog.set_config('client_connection_check_interval', '1000', true) IS NULL\n"
#define LOCK   "pg_catalog.set_config('lock_timeout', '5000', true) IS NULL"
#define CHANGE "WITH pqtx_q AS (UPDATE account SET value = value + $2 WHERE id = $1\n"
#define MARK   "INSERT INTO mark DEFAULT VALUES\n"
#define TOKEN  "INSERT INTO \"" SCHEMA "\".pqtx_once (id) VALUES ($1)\n"

/* ---- Without BEGIN and COMMIT: the flight is the transaction */

#define SETTINGS "SELECT WHERE " LOCK " OR " CHECK
#define DONE                                                                                       \
    "< SELECT 0\n"                                                                                 \
    "< SELECT 0\n"                                                                                 \
    "< INSERT 0 1\n"
#define SENT                                                                                       \
    "> Sync\n"                                                                                     \
    "wait\n"

START_TEST(a_flight_that_is_a_transaction_needs_no_begin)
{
    ASSERT_FLIGHTS(NULL, "> " SETTINGS "> " CHANGE "> " MARK SENT DONE "< I\n",

                   "> parse 1: " SETTINGS "> 1\n"
                   "> parse 2: " CHANGE "> 2\n"
                   "> parse 3: " MARK "> 3\n" SENT DONE "< I\n",

                   "> 1\n"
                   "> 2\n"
                   "> 3\n" SENT DONE "< I\n");
}
END_TEST

START_TEST(a_statement_timeout_is_set_in_the_same_breath)
{
#define BOTH                                                                                       \
    "SELECT WHERE " LOCK " OR pg_catalog.set_config('statement_timeout', '9000', true) IS NULL"    \
    " OR " CHECK
    options.statement_timeout_ms = 9000;
    ASSERT_FLIGHTS(NULL, "> " BOTH "> " CHANGE "> " MARK SENT DONE "< I\n",

                   "> parse 1: " BOTH "> 1\n"
                   "> parse 2: " CHANGE "> 2\n"
                   "> parse 3: " MARK "> 3\n" SENT DONE "< I\n",

                   "> 1\n"
                   "> 2\n"
                   "> 3\n" SENT DONE "< I\n");
}
END_TEST

START_TEST(without_a_lock_timeout_only_the_client_is_looked_for)
{
    options.lock_timeout_ms = PQTX_NO_TIMEOUT;
    ASSERT_FLIGHTS(NULL, "> SELECT WHERE " CHECK "> " CHANGE "> " MARK SENT DONE "< I\n");
}
END_TEST

START_TEST(a_token_rides_behind_the_statements)
{
    options.in_doubt = PQTX_DOUBT_TOKEN;
    ASSERT_FLIGHTS(NULL,
                   "> " SETTINGS "> " CHANGE "> " MARK "> " TOKEN SENT DONE "< INSERT 0 1\n"
                   "< I\n",

                   "> parse 1: " SETTINGS "> 1\n"
                   "> parse 2: " CHANGE "> 2\n"
                   "> parse 3: " MARK "> 3\n"
                   "> parse 4: " TOKEN "> 4\n" SENT DONE "< INSERT 0 1\n"
                   "< I\n",

                   "> 1\n"
                   "> 2\n"
                   "> 3\n"
                   "> 4\n" SENT DONE "< INSERT 0 1\n"
                   "< I\n");
}
END_TEST

START_TEST(time_that_runs_short_is_told_to_the_server)
{
    options.deadline_ms = 2000;
    ck_assert_int_eq(pqtx_run(pool, &options, change, NULL, NULL), PQTX_OK);
    ck_assert_ptr_nonnull(strstr(trace_wire(), "set_config('lock_timeout', '1575', true)"));
}
END_TEST

START_TEST(a_flight_that_fails_needs_no_rollback)
{
    sql(other, "INSERT INTO mark VALUES (1); ALTER TABLE mark ALTER id SET DEFAULT 1");
    ck_assert_int_eq(pqtx_run(pool, &options, change, NULL, NULL), PQTX_DUPLICATE);
    sql(other, "DELETE FROM account");
    ck_assert_int_eq(pqtx_run(pool, &options, change, NULL, NULL), PQTX_NO_MATCH);
    if (can_compare())
        assert_wire("> " SETTINGS "> " CHANGE "> " MARK SENT DONE "< error 23505\n"
                    "< I\n"
                    "> parse 1: " SETTINGS "> 1\n"
                    "> parse 2: " CHANGE "> 2\n"
                    "> parse 3: " MARK "> 3\n" SENT "< SELECT 0\n"
                    "< error 22P02\n"
                    "< I\n");
}
END_TEST

/* ---- With them */

#define ANSWERS                                                                                    \
    "< BEGIN\n"                                                                                    \
    "< SET\n"                                                                                      \
    "< SET\n"
#define LOCAL_CHECK "SET LOCAL client_connection_check_interval = 1000\n"
#define LOCAL_LOCK  "SET LOCAL lock_timeout = 5000\n"
#define SYNC        "> Sync\n"
#define COMMITTED                                                                                  \
    "< T\n"                                                                                        \
    "< COMMIT\n"                                                                                   \
    "< I\n"

START_TEST(a_level_of_its_own_needs_begin)
{
#define BEGIN "BEGIN ISOLATION LEVEL REPEATABLE READ\n"
    options.isolation = PQTX_ISO_REPEATABLE_READ;
    ASSERT_FLIGHTS(NULL,
                   "> " BEGIN "> " LOCAL_CHECK "> " LOCAL_LOCK "> " CHANGE "> " MARK SYNC
                   "> COMMIT\n" SENT ANSWERS "< SELECT 0\n"
                   "< INSERT 0 1\n" COMMITTED,

                   "> parse 1: " BEGIN "> 1\n"
                   "> parse 2: " LOCAL_CHECK "> 2\n"
                   "> parse 3: " LOCAL_LOCK "> 3\n"
                   "> parse 4: " CHANGE "> 4\n"
                   "> parse 5: " MARK "> 5\n" SYNC "> parse 6: COMMIT\n"
                   "> 6\n" SENT ANSWERS "< SELECT 0\n"
                   "< INSERT 0 1\n" COMMITTED,

                   "> 1\n"
                   "> 2\n"
                   "> 3\n"
                   "> 4\n"
                   "> 5\n" SYNC "> 6\n" SENT ANSWERS "< SELECT 0\n"
                   "< INSERT 0 1\n" COMMITTED);
}
END_TEST

START_TEST(a_lock_timeout_in_between_needs_begin)
{
    int64_t seven = 7;
    ASSERT_FLIGHTS(&seven,
                   "> BEGIN\n"
                   "> " LOCAL_CHECK "> " LOCAL_LOCK "> " CHANGE "> SET LOCAL lock_timeout = 7\n"
                   "> " MARK SYNC "> COMMIT\n" SENT ANSWERS "< SELECT 0\n"
                   "< SET\n"
                   "< INSERT 0 1\n" COMMITTED,

                   "> parse 1: BEGIN\n"
                   "> 1\n"
                   "> parse 2: " LOCAL_CHECK "> 2\n"
                   "> parse 3: " LOCAL_LOCK "> 3\n"
                   "> parse 4: " CHANGE "> 4\n"
                   "> parse 5: SET LOCAL lock_timeout = 7\n"
                   "> 5\n"
                   "> parse 6: " MARK "> 6\n" SYNC "> parse 7: COMMIT\n"
                   "> 7\n" SENT ANSWERS "< SELECT 0\n"
                   "< SET\n"
                   "< INSERT 0 1\n" COMMITTED,

                   "> 1\n"
                   "> 2\n"
                   "> 3\n"
                   "> 4\n"
                   "> 5\n"
                   "> 6\n" SYNC "> 7\n" SENT ANSWERS "< SELECT 0\n"
                   "< SET\n"
                   "< INSERT 0 1\n" COMMITTED);
}
END_TEST

START_TEST(a_token_and_a_statement_timeout_ride_between_begin_and_the_sync)
{
    options.isolation = PQTX_ISO_READ_COMMITTED;
    options.in_doubt = PQTX_DOUBT_TOKEN;
    options.statement_timeout_ms = 9000;
    ASSERT_FLIGHTS(NULL, "> BEGIN ISOLATION LEVEL READ COMMITTED\n"
                         "> SET LOCAL statement_timeout = 9000\n"
                         "> " LOCAL_CHECK "> " LOCAL_LOCK "> " CHANGE "> " MARK "> " TOKEN SYNC
                         "> COMMIT\n" SENT ANSWERS "< SET\n"
                         "< SELECT 0\n"
                         "< INSERT 0 1\n"
                         "< INSERT 0 1\n" COMMITTED);
}
END_TEST

START_TEST(after_begin_a_flight_that_fails_is_rolled_back_by_its_own_commit)
{
    options.isolation = PQTX_ISO_READ_COMMITTED;
    sql(other, "DELETE FROM account");
    ck_assert_int_eq(pqtx_run(pool, &options, change, NULL, NULL), PQTX_NO_MATCH);
    if (can_compare())
        assert_wire("> BEGIN ISOLATION LEVEL READ COMMITTED\n"
                    "> " LOCAL_CHECK "> " LOCAL_LOCK "> " CHANGE "> " MARK SYNC
                    "> COMMIT\n" SENT ANSWERS "< error 22P02\n"
                    "< E\n"
                    "< ROLLBACK\n"
                    "< I\n");
}
END_TEST

static pqtx_status flush_between(pqtx_tx *tx, void *arg)
{
    (void)arg;
    mark(tx);
    pqtx_flush(tx);
    return add_one(tx);
}

/* Of an open transaction the first flight needs no watch over the client: it cannot commit. */
START_TEST(what_is_flushed_begins_and_the_last_flight_commits)
{
    ck_assert_int_eq(pqtx_run(pool, &options, flush_between, NULL, NULL), PQTX_OK);
    if (can_compare())
        assert_wire("> BEGIN\n"
                    "> " LOCAL_LOCK "> " MARK SENT "< BEGIN\n"
                    "< SET\n"
                    "< INSERT 0 1\n"
                    "< T\n"
                    "> " LOCAL_CHECK "> " CHANGE SYNC "> COMMIT\n" SENT "< SET\n"
                    "< SELECT 0\n" COMMITTED);
}
END_TEST

START_TEST(on_the_callers_connection_nothing_is_prepared)
{
    PGconn *own = open_session();
    pqtx_pool_close(pool);
    trace_stop(NULL);
    trace_start(own, &fake);
    for (int i = 0; i < 3; i++) {
        trace_cut();
        ck_assert_int_eq(pqtx_run_on(own, &options, change, NULL, NULL), PQTX_OK);
        assert_wire("> BEGIN\n"
                    "> " LOCAL_LOCK "> " CHANGE "> " MARK SYNC "> COMMIT\n" SENT "< BEGIN\n"
                    "< SET\n"
                    "< SELECT 0\n"
                    "< INSERT 0 1\n" COMMITTED);
    }
    trace_stop(own);
    PQfinish(own);
    pool = open_traced(0);
}
END_TEST

START_TEST(a_pool_may_prepare_nothing)
{
    pqtx_pool_close(pool);
    trace_stop(NULL);
    pool = open_traced(PQTX_POOL_PREPARE_NEVER);
#define PLAIN "> " SETTINGS "> " CHANGE "> " MARK SENT DONE "< I\n"
    ASSERT_FLIGHTS(NULL, PLAIN, PLAIN, PLAIN);
}
END_TEST

/* ---- Prepared statements that go */

static pqtx_status select_one(pqtx_tx *tx, void *arg)
{
    return pqtx_exec(tx, arg, PQTX_NO_ARGS, NULL);
}

START_TEST(what_was_not_used_for_longest_is_deallocated_in_front_of_the_sync)
{
    ck_assert_int_eq(pqtx_run(pool, &options, change, NULL, NULL), PQTX_OK);
    ck_assert_int_eq(pqtx_run(pool, &options, change, NULL, NULL), PQTX_OK);
    for (int i = 0; i < 128; i++) {
        char text[32];
        snprintf(text, sizeof text, "SELECT %d", i);
        trace_cut();
        ck_assert_int_eq(pqtx_run(pool, &options, select_one, text, NULL), PQTX_OK);
        ck_assert_int_eq(pqtx_run(pool, &options, select_one, text, NULL), PQTX_OK);
    }
    const char *leaves = strstr(trace_wire(), "> DEALLOCATE pqtx_");
    ck_assert_ptr_nonnull(leaves);
    ck_assert_ptr_nonnull(strstr(leaves, "\n> Sync\n"));
    ck_assert_ptr_nonnull(strstr(leaves, "\n< DEALLOCATE\n< I\n"));
    ck_assert_int_eq(trace_syncs(), 2);
}
END_TEST

/* ---- Round trips, whatever the form */

enum { WITHOUT_BEGIN, WITH_BEGIN, WAYS };

static pqtx_tx *begin(int way)
{
    if (way == WITH_BEGIN)
        options.isolation = PQTX_ISO_READ_COMMITTED;
    pqtx_tx *tx = pqtx_new(pool, &options);
    ck_assert_int_eq(pqtx_attempt(tx), 1);
    return tx;
}

static void end(pqtx_tx *tx, pqtx_status expected, int trips)
{
    ck_assert_int_eq(pqtx_commit(tx), expected);
    ck_assert_int_eq(pqtx_attempt(tx), 0);
    pqtx_free(tx);
    ck_assert_int_eq(trace_trips(), trips);
}

START_TEST(a_transfer_is_one_round_trip)
{
    pqtx_tx *tx = begin(_i);
    for (int64_t sign = -1; sign <= 1; sign += 2)
        pqtx_update_one(tx, "UPDATE account SET value = value + $2 WHERE id = $1",
                        PQTX_ARGS(PQTX_INT(1), PQTX_INT(sign)));
    ck_assert_int_eq(trace_trips(), 0);
    end(tx, PQTX_OK, 1);
    ck_assert_int_eq(trace_syncs(), _i == WITH_BEGIN ? 2 : 1);
}
END_TEST

START_TEST(to_read_decide_and_write_is_two_round_trips)
{
    const PGresult *row;
    int64_t value;
    pqtx_tx *tx = begin(_i);
    pqtx_exec_one(tx, "SELECT value FROM account WHERE id = 1 FOR NO KEY UPDATE", PQTX_NO_ARGS,
                  &row);
    ck_assert_int_eq(pqtx_flush(tx), PQTX_OK);
    ck_assert_int_eq(pqtx_get_int(row, 0, 0, &value), PQTX_OK);
    ck_assert_int_eq(trace_trips(), 1);
    pqtx_update_one(tx, "UPDATE account SET value = $1 WHERE id = 1",
                    PQTX_ARGS(PQTX_INT(value + 1)));
    ck_assert_int_eq(trace_trips(), 1);
    end(tx, PQTX_OK, 2);
}
END_TEST

START_TEST(a_body_that_waits_first_and_queues_then_is_two_round_trips)
{
    options.flags = 0;
    pqtx_tx *tx = begin(_i);
    ck_assert_int_eq(add_one(tx), PQTX_OK);
    ck_assert_int_eq(trace_trips(), 1);
    pqtx_pipeline(tx);
    add_one(tx);
    add_one(tx);
    end(tx, PQTX_OK, 2);
    ck_assert_int_eq(ask_int(other, "SELECT value FROM account"), 3);
}
END_TEST

static void queue_change(pqtx_tx *tx, const char *key)
{
    pqtx_change change = PQTX_CHANGE;
    change.table = "account";
    change.key = key;
    change.condition = "value >= 0";
    change.set = "value = value + 1";
    pqtx_update_if(tx, &change, PQTX_NO_ARGS, NULL);
}

START_TEST(a_miss_is_one_round_trip)
{
    static const char *const misses[] = {"UPDATE account SET value = 0 WHERE id = 9",
                                         "INSERT INTO account VALUES (7, 0), (8, 0)"};
    for (int i = 0; i < 2; i++) {
        trace_cut();
        pqtx_tx *tx = begin(_i);
        mark(tx);
        pqtx_update_one(tx, misses[i], PQTX_NO_ARGS);
        end(tx, i == 0 ? PQTX_NO_MATCH : PQTX_TOO_MANY, 1);
    }
    trace_cut();
    pqtx_tx *tx = begin(_i);
    mark(tx);
    queue_change(tx, "id = 9");
    end(tx, PQTX_NOT_FOUND, 1);
    ck_assert_int_eq(ask_int(other, "SELECT count(*) FROM mark"), 0);
}
END_TEST

START_TEST(changes_and_locks_are_one_round_trip)
{
    static const int64_t keys[] = {735117003, 735117002};
    pqtx_tx *tx = begin(_i);
    pqtx_lock(tx, 735117001);
    pqtx_lock_many(tx, keys, 2);
    queue_change(tx, "id = 1");
    queue_change(tx, "id = 1");
    end(tx, PQTX_OK, 1);
}
END_TEST

START_TEST(a_try_lock_takes_what_is_queued_along)
{
    pqtx_tx *tx = begin(_i);
    mark(tx);
    add_one(tx);
    ck_assert_int_eq(pqtx_try_lock(tx, 735117001), PQTX_OK);
    ck_assert_int_eq(trace_trips(), 1);
    ck_assert_int_eq(trace_syncs(), 1);
    end(tx, PQTX_OK, 2);
}
END_TEST

static pqtx_status change_inside(pqtx_tx *tx, void *status)
{
    add_one(tx);
    mark(tx);
    return *(pqtx_status *)status;
}

/* Its beginning lands what was queued, its end what it has queued itself. */
START_TEST(a_savepoint_is_one_round_trip_more)
{
    pqtx_status kept = PQTX_OK, undone = PQTX_STOPPED;
    pqtx_tx *tx = begin(_i);
    ck_assert_int_eq(pqtx_savepoint(tx, change_inside, &undone), PQTX_STOPPED);
    ck_assert_int_eq(trace_trips(), 0);
    mark(tx);
    ck_assert_int_eq(pqtx_savepoint(tx, change_inside, &kept), PQTX_OK);
    ck_assert_int_eq(trace_trips(), 2);
    mark(tx);
    end(tx, PQTX_OK, 3);
    ck_assert_int_eq(ask_int(other, "SELECT count(*) FROM mark"), 3);
}
END_TEST

START_TEST(an_event_is_claimed_in_a_round_trip_of_its_own)
{
    options.event_id = "event";
    end(begin(_i), PQTX_OK, 2);
    trace_cut();
    pqtx_tx *tx = pqtx_new(pool, &options);
    ck_assert_int_eq(pqtx_attempt(tx), 0);
    ck_assert_int_eq(pqtx_result(tx), PQTX_DONE_BEFORE);
    pqtx_free(tx);
    ck_assert_int_eq(trace_trips(), 2);
    options.event_id = "another";
    trace_cut();
    tx = begin(_i);
    mark(tx);
    add_one(tx);
    end(tx, PQTX_OK, 2);
}
END_TEST

/* ---- What is not to be committed is not even sent */

START_TEST(a_body_that_gives_up_sends_nothing)
{
    pqtx_tx *tx = begin(_i);
    mark(tx);
    add_one(tx);
    ck_assert_int_eq(pqtx_fail(tx, PQTX_STOPPED), PQTX_STOPPED);
    end(tx, PQTX_STOPPED, 0);
    assert_wire("");
}
END_TEST

static pqtx_status queue_and_say_no(pqtx_tx *tx, void *arg)
{
    (void)arg;
    mark(tx);
    add_one(tx);
    return (pqtx_status)(PQTX_USER + 1);
}

START_TEST(a_body_that_says_no_sends_nothing)
{
    if (_i == WITH_BEGIN)
        options.isolation = PQTX_ISO_READ_COMMITTED;
    ck_assert_int_eq(pqtx_run(pool, &options, queue_and_say_no, NULL, NULL), PQTX_USER + 1);
    assert_wire("");
}
END_TEST

START_TEST(what_is_freed_while_it_is_queued_is_not_sent)
{
    pqtx_tx *tx = begin(_i);
    mark(tx);
    add_one(tx);
    pqtx_free(tx);
    assert_wire("");
    ck_assert_int_eq(ask_int(other, "SELECT value FROM account"), 0);
}
END_TEST

START_TEST(what_is_queued_and_left_without_a_commit_is_not_sent)
{
    pqtx_tx *tx = begin(_i);
    mark(tx);
    add_one(tx);
    ck_assert_int_eq(pqtx_attempt(tx), 0);
    ck_assert_int_eq(pqtx_result(tx), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_answer(tx, 0, NULL, NULL), PQTX_MISUSE);
    pqtx_free(tx);
    assert_wire("");
}
END_TEST

START_TEST(a_wrong_call_among_good_ones_keeps_all_of_them_back)
{
    pqtx_tx *tx = begin(_i);
    mark(tx);
    ck_assert_int_eq(pqtx_exec(tx, "COMMIT", PQTX_NO_ARGS, NULL), PQTX_MISUSE);
    ck_assert_int_eq(add_one(tx), PQTX_MISUSE);
    end(tx, PQTX_MISUSE, 0);
    assert_wire("");
}
END_TEST

START_TEST(an_attempt_in_which_nothing_was_queued_sends_nothing)
{
    pqtx_tx *tx = begin(_i);
    ck_assert_int_eq(pqtx_flush(tx), PQTX_OK);
    end(tx, PQTX_OK, 0);
    assert_wire("");
}
END_TEST

/* ---- One flight for each attempt.  The rival makes room when the first one has failed. */

static void make_room(const pqtx_event *event, void *arg)
{
    if (event->type == PQTX_EVENT_FAILED && event->attempt == 1)
        sql(other, arg);
}

static void assert_two_flights(int way, pqtx_status lost)
{
    pqtx_evidence evidence = PQTX_EVIDENCE;
    options.evidence = &evidence;
    trace_cut();
    pqtx_tx *tx = pqtx_new(pool, &options);
    while (pqtx_attempt(tx)) {
        mark(tx);
        pqtx_update_one(tx, "UPDATE account SET value = value + 1 WHERE id = 1", PQTX_NO_ARGS);
        pqtx_update_one(tx, "UPDATE account SET value = value + 1 WHERE id = 2", PQTX_NO_ARGS);
        pqtx_commit(tx);
    }
    ck_assert_int_eq(pqtx_result(tx), PQTX_OK);
    ck_assert_uint_eq(pqtx_attempts(tx), 2);
    pqtx_free(tx);
    ck_assert_uint_eq(evidence.count, 1);
    ck_assert_int_eq(evidence.records[0].status, lost);
    ck_assert_int_eq(trace_trips(), 2);
    ck_assert_int_eq(trace_syncs(), way == WITH_BEGIN ? 4 : 2);
    ck_assert_ptr_null(strstr(trace_wire(), "> ROLLBACK"));
    ck_assert_int_eq(ask_int(other, "SELECT count(*) FROM mark"), 1);
}

static void set_way(int way)
{
    sql(other, "INSERT INTO account VALUES (2, 0)");
    if (way == WITH_BEGIN)
        options.isolation = PQTX_ISO_READ_COMMITTED;
    options.observer = make_room;
}

START_TEST(a_lock_that_is_held_costs_one_flight)
{
    set_way(_i);
    options.lock_timeout_ms = 10;
    options.observer_arg = (char[]){"COMMIT"};
    sql(other, "BEGIN; UPDATE account SET value = 0 WHERE id = 2");
    assert_two_flights(_i, PQTX_BUSY);
}
END_TEST

START_TEST(a_transaction_that_could_not_be_serialized_costs_one_flight)
{
    set_way(_i);
    options.observer_arg = (char[]){"DROP TRIGGER lose ON account"};
    sql(other, "CREATE FUNCTION lose() RETURNS trigger LANGUAGE plpgsql AS"
               " 'BEGIN RAISE USING ERRCODE = ''40001''; END';"
               "CREATE TRIGGER lose BEFORE UPDATE ON account EXECUTE FUNCTION lose()");
    assert_two_flights(_i, PQTX_SERIALIZATION);
}
END_TEST

/* ---- The same against a rival who is on the way.  Between its two rows a flight passes a gate. */

#define GATE "735117900"

struct racer {
    pqtx_status status;
    uint32_t attempts;
    pqtx_evidence evidence;
    pthread_t thread;
};

static void *race(void *arg)
{
    struct racer *racer = arg;
    racer->evidence = (pqtx_evidence)PQTX_EVIDENCE;
    options.evidence = &racer->evidence;
    pqtx_tx *tx = pqtx_new(pool, &options);
    while (pqtx_attempt(tx)) {
        mark(tx);
        pqtx_update_one(tx, "UPDATE account SET value = value + 1 WHERE id = 1", PQTX_NO_ARGS);
        pqtx_exec(tx, "SELECT pg_advisory_xact_lock_shared(" GATE ")", PQTX_NO_ARGS, NULL);
        pqtx_update_one(tx, "UPDATE account SET value = value + 1 WHERE id = 2", PQTX_NO_ARGS);
        pqtx_commit(tx);
    }
    racer->status = pqtx_result(tx);
    racer->attempts = pqtx_attempts(tx);
    pqtx_free(tx);
    return NULL;
}

static int traced_backend(void)
{
    struct pqtx__wire *wire;
    ck_assert_int_eq(pqtx__pool_acquire(pool, 1000000, &wire, NULL), PQTX_OK);
    int pid = PQbackendPID(wire->conn);
    pqtx__pool_release(pool, wire);
    return pid;
}

static void assert_raced(struct racer *racer, pqtx_status lost, int syncs)
{
    pthread_join(racer->thread, NULL);
    assert_status(racer->status, PQTX_OK, NULL);
    ck_assert_uint_eq(racer->attempts, 2);
    ck_assert_int_eq(racer->evidence.records[0].status, lost);
    ck_assert_int_eq(trace_trips(), 2);
    ck_assert_int_eq(trace_syncs(), syncs);
    ck_assert_int_eq(ask_int(other, "SELECT count(*) FROM mark"), 1);
    ck_assert_int_eq(ask_int(other, "SELECT sum(value) FROM account"), 12);
}

START_TEST(a_row_that_was_changed_meanwhile_costs_one_flight)
{
    struct racer racer;
    PGconn *monitor = open_session();
    sql(other, "INSERT INTO account VALUES (2, 0)");
    options.isolation = (pqtx_isolation)_i;
    int pid = traced_backend();
    trace_cut();
    sql(other, "BEGIN; UPDATE account SET value = 10 WHERE id = 2");
    pthread_create(&racer.thread, NULL, race, &racer);
    wait_until_blocked(monitor, pid);
    sql(other, "COMMIT");
    assert_raced(&racer, PQTX_SERIALIZATION, 4);
    PQfinish(monitor);
}
END_TEST

/* The rival was first: the next attempt must not overtake it. */
static void let_the_rival_go_first(const pqtx_event *event, void *monitor)
{
    char query[96];
    snprintf(query, sizeof query, "SELECT cardinality(pg_blocking_pids(%d)) = 0",
             PQbackendPID(other));
    if (event->type == PQTX_EVENT_FAILED)
        wait_until_true(monitor, query);
}

/* The rival waits already and never looks for a deadlock, so it is ours that finds it and loses. */
START_TEST(a_deadlock_costs_one_flight)
{
    struct racer racer;
    PGconn *monitor = open_session(), *holder = open_session();
    sql(other, "INSERT INTO account VALUES (2, 0); SET deadlock_timeout = '1h'");
    if (_i == WITH_BEGIN)
        options.isolation = PQTX_ISO_READ_COMMITTED;
    options.observer = let_the_rival_go_first;
    options.observer_arg = monitor;
    int pid = traced_backend();
    trace_cut();
    sql(holder, "SELECT pg_advisory_lock(" GATE ")");
    sql(other, "BEGIN; UPDATE account SET value = 10 WHERE id = 2");
    pthread_create(&racer.thread, NULL, race, &racer);
    wait_until_blocked(monitor, pid);
    start_sql(other, "UPDATE account SET value = value WHERE id = 1; COMMIT");
    wait_until_blocked(monitor, PQbackendPID(other));
    sql(holder, "SELECT pg_advisory_unlock(" GATE ")");
    ck_assert_str_eq(finish_sql(other), "");
    assert_raced(&racer, PQTX_DEADLOCK, _i == WITH_BEGIN ? 4 : 2);
    PQfinish(monitor);
    PQfinish(holder);
}
END_TEST

/* ---- Single statements */

static pqtx_status run_one(const char *statement, int64_t expected)
{
    trace_cut();
    return pqtx_run_one(pool, &options, statement, PQTX_NO_ARGS, expected, NULL, NULL);
}

START_TEST(a_single_statement_is_one_flight)
{
    ck_assert_int_eq(run_one("SELECT 1", PQTX_ANY_ROWS), PQTX_OK);
    if (can_compare())
        assert_wire("> " SETTINGS "> SELECT 1\n" SENT "< SELECT 0\n"
                    "< SELECT 1\n"
                    "< I\n");
    ck_assert_int_eq(run_one("SELECT 2", 1), PQTX_OK);
    if (can_compare())
        assert_wire("> parse 1: " SETTINGS "> 1\n"
                    "> WITH pqtx_q AS (SELECT 2\n" SENT "< SELECT 0\n"
                    "< SELECT 1\n"
                    "< I\n");
}
END_TEST

START_TEST(a_count_that_the_server_cannot_check_costs_a_second_flight)
{
    ck_assert_int_eq(run_one("SHOW server_version_num", 1), PQTX_OK);
    assert_wire("> BEGIN\n"
                "> " LOCAL_LOCK "> SHOW server_version_num\n" SENT "< BEGIN\n"
                "< SET\n"
                "< SHOW\n"
                "< T\n"
                "> COMMIT\n" SENT "< COMMIT\n"
                "< I\n");
}
END_TEST

START_TEST(many_statements_are_one_flight_and_a_sync_for_each)
{
    pqtx_item items[3] = {PQTX_ITEM, PQTX_ITEM, PQTX_ITEM};
    items[0].sql = "SELECT 0";
    items[1].sql = "SELECT 1 / 0";
    items[2].sql = "SELECT 2";
    items[0].expected = items[1].expected = items[2].expected = PQTX_ANY_ROWS;
    ck_assert_int_eq(pqtx_run_each(pool, &options, items, 3, NULL), PQTX_BAD_DATA);
    if (can_compare())
        assert_wire("> " SETTINGS "> SELECT 0\n" SYNC "> parse 1: " SETTINGS "> 1\n"
                    "> SELECT 1 / 0\n" SYNC "> 1\n"
                    "> SELECT 2\n" SENT "< SELECT 0\n"
                    "< SELECT 1\n"
                    "< I\n"
                    "< SELECT 0\n"
                    "< error 22012\n"
                    "< I\n"
                    "< SELECT 0\n"
                    "< SELECT 1\n"
                    "< I\n");
    for (int i = 0; i < 3; i++)
        PQclear(items[i].result);
}
END_TEST

static Suite *suite(void)
{
    Suite *suite = suite_create("live_trace_pipeline");
    TCase *tests = tcase_create("trace");
    tcase_add_checked_fixture(tests, open_all, close_all);
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, a_flight_that_is_a_transaction_needs_no_begin);
    tcase_add_test(tests, a_statement_timeout_is_set_in_the_same_breath);
    tcase_add_test(tests, without_a_lock_timeout_only_the_client_is_looked_for);
    tcase_add_test(tests, a_token_rides_behind_the_statements);
    tcase_add_test(tests, time_that_runs_short_is_told_to_the_server);
    tcase_add_test(tests, a_flight_that_fails_needs_no_rollback);
    tcase_add_test(tests, a_level_of_its_own_needs_begin);
    tcase_add_test(tests, a_lock_timeout_in_between_needs_begin);
    tcase_add_test(tests, a_token_and_a_statement_timeout_ride_between_begin_and_the_sync);
    tcase_add_test(tests, after_begin_a_flight_that_fails_is_rolled_back_by_its_own_commit);
    tcase_add_test(tests, what_is_flushed_begins_and_the_last_flight_commits);
    tcase_add_test(tests, on_the_callers_connection_nothing_is_prepared);
    tcase_add_test(tests, a_pool_may_prepare_nothing);
    tcase_add_test(tests, what_was_not_used_for_longest_is_deallocated_in_front_of_the_sync);
    tcase_add_loop_test(tests, a_transfer_is_one_round_trip, 0, WAYS);
    tcase_add_loop_test(tests, to_read_decide_and_write_is_two_round_trips, 0, WAYS);
    tcase_add_loop_test(tests, a_body_that_waits_first_and_queues_then_is_two_round_trips, 0, WAYS);
    tcase_add_loop_test(tests, a_miss_is_one_round_trip, 0, WAYS);
    tcase_add_loop_test(tests, changes_and_locks_are_one_round_trip, 0, WAYS);
    tcase_add_loop_test(tests, a_try_lock_takes_what_is_queued_along, 0, WAYS);
    tcase_add_loop_test(tests, a_savepoint_is_one_round_trip_more, 0, WAYS);
    tcase_add_loop_test(tests, an_event_is_claimed_in_a_round_trip_of_its_own, 0, WAYS);
    tcase_add_loop_test(tests, a_body_that_gives_up_sends_nothing, 0, WAYS);
    tcase_add_loop_test(tests, a_body_that_says_no_sends_nothing, 0, WAYS);
    tcase_add_loop_test(tests, what_is_freed_while_it_is_queued_is_not_sent, 0, WAYS);
    tcase_add_loop_test(tests, what_is_queued_and_left_without_a_commit_is_not_sent, 0, WAYS);
    tcase_add_loop_test(tests, a_wrong_call_among_good_ones_keeps_all_of_them_back, 0, WAYS);
    tcase_add_loop_test(tests, an_attempt_in_which_nothing_was_queued_sends_nothing, 0, WAYS);
    tcase_add_loop_test(tests, a_lock_that_is_held_costs_one_flight, 0, WAYS);
    tcase_add_loop_test(tests, a_transaction_that_could_not_be_serialized_costs_one_flight, 0,
                        WAYS);
    tcase_add_loop_test(tests, a_row_that_was_changed_meanwhile_costs_one_flight,
                        PQTX_ISO_REPEATABLE_READ, PQTX_ISO_SERIALIZABLE + 1);
    tcase_add_loop_test(tests, a_deadlock_costs_one_flight, 0, WAYS);
    tcase_add_test(tests, a_single_statement_is_one_flight);
    tcase_add_test(tests, a_count_that_the_server_cannot_check_costs_a_second_flight);
    tcase_add_test(tests, many_statements_are_one_flight_and_a_sync_for_each);
    suite_add_tcase(suite, tests);
    return suite;
}

int main(void)
{
    return run_suite(suite());
}
