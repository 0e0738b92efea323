/* check_live_run.c: the runner on a real server: what begins the transaction again, what ends it,
 * and what is held and told meanwhile. */
#include "support.h"
#include "support_fake_clock.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pqtx_pool *pool;
static PGconn *other, *monitor; /* a rival, and one who asks the server how things stand */

static void open_all(void)
{
    fresh_schema("pqtx_run");
    other = open_session();
    monitor = open_session();
    sql(other, "CREATE TABLE mark (run int PRIMARY KEY, xid text);"
               "CREATE TABLE account (id int PRIMARY KEY, value int NOT NULL);"
               "INSERT INTO account VALUES (1, 0), (2, 0);"
               "CREATE TABLE seat (id int PRIMARY KEY, taken_by text,"
               " CONSTRAINT one_each UNIQUE (taken_by) DEFERRABLE INITIALLY DEFERRED);"
               "INSERT INTO seat VALUES (1, 'ann');"
               "CREATE TABLE booking (during int4range,"
               " CONSTRAINT no_overlap EXCLUDE USING gist (during WITH &&));"
               "INSERT INTO booking VALUES ('[10,20)')");
    pool = open_pool(8);
}

static void close_all(void)
{
    pqtx_pool_close(pool);
    PQfinish(other);
    PQfinish(monitor);
}

/* ---- A body that leaves a mark of each run in the database, and then does what it is told. */

typedef pqtx_status (*meeting)(pqtx_tx *tx, int run);

struct story {
    meeting meet;
    int runs;
    int64_t last_xid;
};

static pqtx_status tell(pqtx_tx *tx, void *arg)
{
    struct story *story = arg;
    const PGresult *row;
    int64_t xid;
    story->runs++;
    if (pqtx_exec_one(tx, "INSERT INTO mark VALUES ($1, pg_current_xact_id()::text) RETURNING xid",
                      PQTX_ARGS(PQTX_INT(story->runs)), &row) == PQTX_OK) {
        ck_assert_int_eq(pqtx_get_int(row, 0, 0, &xid), PQTX_OK);
        ck_assert_int_ne(xid, story->last_xid);
        story->last_xid = xid;
    }
    return story->meet(tx, story->runs);
}

static const char *marks(void)
{
    return ask(monitor, "SELECT coalesce(string_agg(run::text, ' ' ORDER BY run), '') FROM mark");
}

/* The first attempt fails as said and leaves nothing behind; the second one, begun anew, commits.
 */
static void assert_begins_again(meeting meet, const pqtx_options *options, pqtx_status status,
                                const char *sqlstate, pqtx_phase phase)
{
    struct story story = {.meet = meet};
    pqtx_error error = PQTX_ERROR;
    assert_status(pqtx_run(pool, options, tell, &story, &error), PQTX_OK, &error);
    ck_assert_int_eq(story.runs, 2);
    assert_status(error.status, status, &error);
    ck_assert_str_eq(error.sqlstate, sqlstate);
    ck_assert_str_eq(pqtx_phase_name(error.phase), pqtx_phase_name(phase));
    ck_assert_uint_eq(error.attempt, 1);
    ck_assert_str_eq(marks(), "2");
}

/* One attempt, rolled back: this is the answer. */
static void assert_ends(meeting meet, const pqtx_options *options, pqtx_status status,
                        const char *sqlstate, pqtx_error *error)
{
    struct story story = {.meet = meet};
    assert_status(pqtx_run(pool, options, tell, &story, error), status, error);
    ck_assert_int_eq(story.runs, 1);
    assert_status(error->status, status, error);
    ck_assert_str_eq(error->sqlstate, sqlstate);
    ck_assert_uint_eq(error->attempt, 1);
    ck_assert_str_eq(marks(), "");
}

static pqtx_status add_one(pqtx_tx *tx, int account)
{
    return pqtx_update_one(tx, "UPDATE account SET value = value + 1 WHERE id = $1",
                           PQTX_ARGS(PQTX_INT(account)));
}

/* ---- Lost races */

static pqtx_status lose_to_a_newer_row(pqtx_tx *tx, int run)
{
    if (run == 1)
        sql(other, "UPDATE account SET value = value + 1 WHERE id = 1");
    return add_one(tx, 1);
}

START_TEST(a_serialization_failure_at_a_statement_begins_again)
{
    pqtx_options options = PQTX_OPTIONS;
    options.isolation = PQTX_ISO_REPEATABLE_READ;
    assert_begins_again(lose_to_a_newer_row, &options, PQTX_SERIALIZATION, "40001",
                        PQTX_PHASE_BODY);
    ck_assert_int_eq(ask_int(monitor, "SELECT value FROM account WHERE id = 1"), 2);
}
END_TEST

/* Each reads both accounts and writes one.  The rival commits first, so the server finds us out at
 * COMMIT. */
static pqtx_status skew(pqtx_tx *tx, int run)
{
    pqtx_exec(tx, "SELECT sum(value) FROM account", PQTX_NO_ARGS, NULL);
    if (run == 1)
        sql(other, "BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT sum(value) FROM account;"
                   "UPDATE account SET value = value + 1 WHERE id = 2");
    pqtx_status status = add_one(tx, 1);
    if (run == 1)
        sql(other, "COMMIT");
    assert_status(status, PQTX_OK, NULL);
    return status;
}

START_TEST(a_serialization_failure_at_commit_begins_again)
{
    pqtx_options options = PQTX_OPTIONS;
    options.isolation = PQTX_ISO_SERIALIZABLE;
    assert_begins_again(skew, &options, PQTX_SERIALIZATION, "40001", PQTX_PHASE_COMMIT);
    ck_assert_int_eq(ask_int(monitor, "SELECT sum(value) FROM account"), 2);
}
END_TEST

/* The rival looks for deadlocks too late to be the one who finds this one. */
static pqtx_status cross(pqtx_tx *tx, int run)
{
    if (run == 2) {
        ck_assert_str_eq(finish_sql(other), "");
        sql(other, "COMMIT");
    }
    add_one(tx, 1);
    if (run == 1) {
        sql(other, "SET deadlock_timeout = '1h'; BEGIN;"
                   "UPDATE account SET value = value + 10 WHERE id = 2");
        start_sql(other, "UPDATE account SET value = value + 10 WHERE id = 1");
        wait_until_blocked(monitor, PQbackendPID(other));
    }
    return add_one(tx, 2);
}

START_TEST(a_deadlock_begins_again)
{
    assert_begins_again(cross, NULL, PQTX_DEADLOCK, "40P01", PQTX_PHASE_BODY);
    ck_assert_int_eq(ask_int(monitor, "SELECT sum(value) FROM account"), 22);
}
END_TEST

static void hold_row(int run)
{
    sql(other, run == 1 ? "BEGIN; UPDATE account SET value = value + 1 WHERE id = 1" : "COMMIT");
}

static pqtx_status ask_at_once(pqtx_tx *tx, int run)
{
    hold_row(run);
    return pqtx_exec(tx, "SELECT FROM account WHERE id = 1 FOR UPDATE NOWAIT", PQTX_NO_ARGS, NULL);
}

START_TEST(a_row_held_by_another_begins_again_with_nowait)
{
    assert_begins_again(ask_at_once, NULL, PQTX_BUSY, "55P03", PQTX_PHASE_BODY);
}
END_TEST

static pqtx_status wait_a_little(pqtx_tx *tx, int run)
{
    hold_row(run);
    return add_one(tx, 1);
}

START_TEST(a_row_held_by_another_begins_again_after_lock_timeout)
{
    pqtx_options options = PQTX_OPTIONS;
    options.lock_timeout_ms = 20;
    assert_begins_again(wait_a_little, &options, PQTX_BUSY, "55P03", PQTX_PHASE_BODY);
}
END_TEST

static pqtx_status lose_the_connection(pqtx_tx *tx, int run)
{
    if (run == 1)
        ck_assert_int_eq(
            pqtx_exec(tx, "SELECT pg_terminate_backend(pg_backend_pid())", PQTX_NO_ARGS, NULL),
            PQTX_NO_CONNECTION);
    return add_one(tx, 1);
}

START_TEST(a_connection_lost_before_commit_begins_again_on_another)
{
    assert_begins_again(lose_the_connection, NULL, PQTX_NO_CONNECTION, "57P01", PQTX_PHASE_BODY);
    ck_assert_int_eq(ask_int(monitor, "SELECT value FROM account WHERE id = 1"), 1);
}
END_TEST

/* ---- Answers */

static pqtx_status book_again(pqtx_tx *tx, int run)
{
    (void)run;
    return pqtx_exec(tx, "INSERT INTO seat VALUES (1, 'bob')", PQTX_NO_ARGS, NULL);
}

START_TEST(a_duplicate_is_an_answer_with_the_constraints_name)
{
    pqtx_error error = PQTX_ERROR;
    assert_ends(book_again, NULL, PQTX_DUPLICATE, "23505", &error);
    ck_assert_str_eq(error.constraint_name, "seat_pkey");
    ck_assert_str_eq(error.schema_name, "pqtx_run");
    ck_assert_str_eq(error.table_name, "seat");
    ck_assert_str_eq(error.detail, "Key (id)=(1) already exists.");
    ck_assert_int_eq(error.origin, PQTX_ORIGIN_SERVER);
    ck_assert_int_eq(error.advice, PQTX_ADVICE_DECIDE);
    ck_assert_uint_eq(error.flags, 0);
}
END_TEST

static pqtx_status overlap(pqtx_tx *tx, int run)
{
    (void)run;
    return pqtx_exec(tx, "INSERT INTO booking VALUES ('[15,25)')", PQTX_NO_ARGS, NULL);
}

START_TEST(an_overlap_is_an_answer_with_the_constraints_name)
{
    pqtx_error error = PQTX_ERROR;
    assert_ends(overlap, NULL, PQTX_OVERLAP, "23P01", &error);
    ck_assert_str_eq(error.constraint_name, "no_overlap");
    ck_assert_str_eq(error.schema_name, "pqtx_run");
    ck_assert_str_eq(error.table_name, "booking");
    ck_assert_int_eq(error.phase, PQTX_PHASE_BODY);
}
END_TEST

static pqtx_status break_at_commit(pqtx_tx *tx, int run)
{
    (void)run;
    return pqtx_exec(tx, "INSERT INTO seat VALUES (2, 'ann')", PQTX_NO_ARGS, NULL);
}

START_TEST(a_deferred_constraint_answers_at_commit)
{
    pqtx_error error = PQTX_ERROR;
    assert_ends(break_at_commit, NULL, PQTX_DUPLICATE, "23505", &error);
    ck_assert_str_eq(error.constraint_name, "one_each");
    ck_assert_int_eq(error.phase, PQTX_PHASE_COMMIT);
    ck_assert_int_eq(ask_int(monitor, "SELECT count(*) FROM seat"), 1);
}
END_TEST

static pqtx_status book_until_free(pqtx_tx *tx, int run)
{
    if (run == 2)
        sql(other, "DELETE FROM seat");
    return book_again(tx, run);
}

START_TEST(a_duplicate_begins_again_when_the_mask_says_so)
{
    pqtx_options options = PQTX_OPTIONS;
    options.retry_mask = PQTX_RETRY_DEFAULT | PQTX_RETRY_DUPLICATE;
    assert_begins_again(book_until_free, &options, PQTX_DUPLICATE, "23505", PQTX_PHASE_BODY);
}
END_TEST

static pqtx_status write_read_only(pqtx_tx *tx, int run)
{
    (void)run;
    return add_one(tx, 1);
}

START_TEST(a_write_in_a_read_only_transaction_is_not_begun_again)
{
    pqtx_options options = PQTX_OPTIONS;
    pqtx_error error = PQTX_ERROR;
    options.access = PQTX_ACCESS_READ_ONLY;
    assert_ends(write_read_only, &options, PQTX_READ_ONLY, "25006", &error);
}
END_TEST

static pqtx_status dawdle(pqtx_tx *tx, int run)
{
    (void)run;
    const PGresult *row;
    const char *pid;
    char query[128];
    ck_assert_int_eq(pqtx_exec_one(tx, "SELECT pg_backend_pid()", PQTX_NO_ARGS, &row), PQTX_OK);
    ck_assert_int_eq(pqtx_get_text(row, 0, 0, &pid), PQTX_OK);
    snprintf(query, sizeof query, "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = %s)",
             pid);
    pqtx_exec(tx, "SET LOCAL idle_in_transaction_session_timeout = 1", PQTX_NO_ARGS, NULL);
    wait_until_true(monitor, query);
    return add_one(tx, 1);
}

START_TEST(a_body_too_slow_for_the_server_is_not_begun_again)
{
    pqtx_error error = PQTX_ERROR;
    assert_ends(dawdle, NULL, PQTX_TIMEOUT, "25P03", &error);
    ck_assert_uint_eq(error.flags, PQTX_ERROR_CONNECTION);
}
END_TEST

/* ---- The mask, and how often */

static pqtx_status count_and_raise(pqtx_tx *tx, void *arg)
{
    struct raise {
        const char *sqlstate;
        int runs;
    } *raise = arg;
    char statement[128];
    raise->runs++;
    snprintf(statement, sizeof statement,
             "DO $$ BEGIN RAISE 'as told' USING ERRCODE = '%s'; END $$", raise->sqlstate);
    return pqtx_exec(tx, statement, PQTX_NO_ARGS, NULL);
}

#define EVERYTHING (PQTX_RETRY_DEFAULT | PQTX_RETRY_DUPLICATE | PQTX_RETRY_OVERLAP)

static const struct mask {
    const char *sqlstate;
    uint32_t mask;
    int runs; /* of three at most */
} masks[] = {
    {"40001", 0, 3},
    {"40P01", 0, 3},
    {"55P03", 0, 3},
    {"40000", 0, 3},
    {"72000", 0, 3},
    {"26000", 0, 2},
    {"42P05", 0, 2},
    {"40002", 0, 1},
    {"23505", 0, 1},
    {"23P01", 0, 1},
    {"P0001", EVERYTHING, 1},
    {"57014", EVERYTHING, 1},
    {"25P02", EVERYTHING, 1},
    {"40001", PQTX_RETRY_NOTHING, 1},
    {"40P01", PQTX_RETRY_NOTHING, 1},
    {"55P03", PQTX_RETRY_NOTHING, 1},
    {"26000", PQTX_RETRY_NOTHING, 1},
    {"40001", PQTX_RETRY_SERIALIZATION, 3},
    {"40P01", PQTX_RETRY_SERIALIZATION, 1},
    {"40P01", PQTX_RETRY_DEADLOCK, 3},
    {"55P03", PQTX_RETRY_DEFAULT & ~PQTX_RETRY_BUSY, 1},
    {"55P03", PQTX_RETRY_BUSY, 3},
    {"40000", PQTX_RETRY_ROLLED_BACK, 3},
    {"26000", PQTX_RETRY_STALE, 2},
    {"23505", PQTX_RETRY_DUPLICATE, 3},
    {"23505", PQTX_RETRY_OVERLAP, 1},
    {"23P01", PQTX_RETRY_OVERLAP, 3},
    {"40001", PQTX_RETRY_DUPLICATE, 1},
};

START_TEST(the_mask_says_what_begins_again)
{
    const struct mask *mask = &masks[_i];
    pqtx_options options = PQTX_OPTIONS;
    pqtx_error error = PQTX_ERROR;
    struct {
        const char *sqlstate;
        int runs;
    } raise = {mask->sqlstate, 0};
    options.retry_mask = mask->mask;
    options.max_attempts = 3;
    options.wait_first_ms = options.wait_max_ms = 1;
    pqtx_status status = pqtx_run(pool, &options, count_and_raise, &raise, &error);
    assert_status(status, pqtx_status_of_sqlstate(mask->sqlstate), &error);
    ck_assert_int_eq(raise.runs, mask->runs);
    ck_assert_uint_eq(error.flags, mask->runs == 3 ? PQTX_ERROR_ATTEMPTS : 0);
    ck_assert_str_eq(error.sqlstate, mask->sqlstate);
}
END_TEST

START_TEST(one_attempt_means_never_again)
{
    pqtx_options options = PQTX_OPTIONS;
    pqtx_error error = PQTX_ERROR;
    options.isolation = PQTX_ISO_REPEATABLE_READ;
    options.max_attempts = 1;
    assert_ends(lose_to_a_newer_row, &options, PQTX_SERIALIZATION, "40001", &error);
    ck_assert_uint_eq(error.flags, PQTX_ERROR_ATTEMPTS);
}
END_TEST

/* ---- Waits, on a clock of our own */

/* Always busy; returns the runs. */
static int run_busy(PGconn *conn, const pqtx_options *options, pqtx_error *error)
{
    struct {
        const char *sqlstate;
        int runs;
    } raise = {"55P03", 0};
    assert_status(pqtx_run_on(conn, options, count_and_raise, &raise, error), PQTX_BUSY, error);
    return raise.runs;
}

START_TEST(waits_double_from_the_first_to_the_longest)
{
    static const int64_t ceiling_us[] = {5000,   10000,  20000,  40000,  80000,
                                         160000, 320000, 500000, 500000, 500000};
    static const uint64_t dice[] = {0, FAKE_HALF, UINT64_MAX};
    for (int i = 0; i < 3; i++) {
        struct fake_clock fake;
        pqtx_options options = PQTX_OPTIONS;
        pqtx_error error = PQTX_ERROR;
        fake_clock_init(&fake);
        fake.random = dice[i];
        options.clock = &fake.clock;
        options.max_attempts = 11;
        ck_assert_int_eq(run_busy(monitor, &options, &error), 11);
        ck_assert_uint_eq(error.flags, PQTX_ERROR_ATTEMPTS);
        ck_assert_int_eq(fake.sleep_count, dice[i] ? 10 : 0); /* no time, no sleep */
        for (int n = 0; n < fake.sleep_count; n++)
            ck_assert_int_eq(fake.slept_us[n],
                             dice[i] == FAKE_HALF ? ceiling_us[n] / 2 : ceiling_us[n] - 1);
    }
}
END_TEST

START_TEST(the_options_set_the_first_wait_and_the_longest)
{
    static const int64_t slept_us[] = {50000, 100000, 150000, 150000};
    struct fake_clock fake;
    pqtx_options options = PQTX_OPTIONS;
    pqtx_error error = PQTX_ERROR;
    fake_clock_init(&fake);
    options.clock = &fake.clock;
    options.max_attempts = 5;
    options.wait_first_ms = 100;
    options.wait_max_ms = 300;
    run_busy(monitor, &options, &error);
    ck_assert_int_eq(fake.sleep_count, 4);
    for (int n = 0; n < 4; n++)
        ck_assert_int_eq(fake.slept_us[n], slept_us[n]);
    fake.sleep_count = 0;
    options.wait_max_ms = 60;
    run_busy(monitor, &options, &error);
    ck_assert_int_eq(fake.slept_us[0], 30000);
}
END_TEST

START_TEST(a_wait_that_would_pass_the_deadline_is_not_begun)
{
    struct fake_clock fake;
    pqtx_options options = PQTX_OPTIONS;
    pqtx_error error = PQTX_ERROR;
    fake_clock_init(&fake);
    options.clock = &fake.clock;
    options.deadline_ms = 100;
    options.wait_first_ms = 80; /* 40 ms, and then 80 ms of the 60 ms left */
    ck_assert_int_eq(run_busy(monitor, &options, &error), 2);
    ck_assert_int_eq(fake.sleep_count, 1);
    ck_assert_uint_eq(error.flags, PQTX_ERROR_DEADLINE);
    ck_assert_str_eq(error.sqlstate, "55P03");
    ck_assert_uint_eq(error.attempt, 2);
    ck_assert_int_eq(error.elapsed_us, 40000);
}
END_TEST

START_TEST(the_deadline_ends_an_endless_series_with_the_last_real_error)
{
    struct fake_clock fake;
    pqtx_options options = PQTX_OPTIONS;
    pqtx_error error = PQTX_ERROR;
    fake_clock_init(&fake);
    int64_t started_us = fake.now_us;
    options.clock = &fake.clock;
    options.max_attempts = INT32_MAX;
    options.deadline_ms = 1000;
    options.wait_max_ms = 50;
    int runs = run_busy(monitor, &options, &error);
    ck_assert_int_eq(runs, fake.sleep_count + 1);
    ck_assert_int_gt(fake.now_us - started_us, 500000);
    ck_assert_int_le(fake.now_us - started_us, 1000000);
    ck_assert_uint_eq(error.flags, PQTX_ERROR_DEADLINE);
    ck_assert_str_eq(error.sqlstate, "55P03");
    ck_assert_uint_eq(error.attempt, (unsigned)runs);
}
END_TEST

static void nothing_is_held(struct fake_clock *fake)
{
    struct story *story = fake->arg;
    pqtx_stats stats = PQTX_STATS;
    ck_assert_int_eq(story->runs, 1);
    ck_assert_int_eq(pqtx_pool_stats(pool, &stats), PQTX_OK);
    ck_assert_uint_eq(stats.open_count, 1);
    ck_assert_uint_eq(stats.idle_count, 1);
    ck_assert_str_eq(ask(monitor, "SELECT state = 'idle' AND xact_start IS NULL"
                                  " FROM pg_stat_activity"
                                  " WHERE pid = (SELECT value FROM account WHERE id = 2)"),
                     "t");
    sql(monitor, "SELECT FROM account WHERE id = 1 FOR UPDATE NOWAIT");
}

static pqtx_status lock_and_lose(pqtx_tx *tx, int run)
{
    const PGresult *row;
    const char *pid;
    char statement[128];
    pqtx_exec_one(tx, "SELECT pg_backend_pid()", PQTX_NO_ARGS, &row);
    ck_assert_int_eq(pqtx_get_text(row, 0, 0, &pid), PQTX_OK);
    snprintf(statement, sizeof statement, "UPDATE account SET value = %s WHERE id = 2", pid);
    sql(other, statement);
    add_one(tx, 1);
    return run == 1 ? pqtx_fail(tx, PQTX_SERIALIZATION) : PQTX_OK;
}

START_TEST(no_lock_and_no_connection_is_held_during_a_wait)
{
    struct fake_clock fake;
    struct story story = {.meet = lock_and_lose};
    pqtx_options options = PQTX_OPTIONS;
    pqtx_error error = PQTX_ERROR;
    fake_clock_init(&fake);
    fake.asleep = nothing_is_held;
    fake.arg = &story;
    options.clock = &fake.clock;
    pqtx_pool_close(pool);
    pool = open_pool_on(&fake, 1);
    assert_status(pqtx_run(pool, &options, tell, &story, &error), PQTX_OK, &error);
    ck_assert_int_eq(fake.sleep_count, 1);
    ck_assert_str_eq(marks(), "2");
}
END_TEST

/* ---- The body's word */

static pqtx_status say_own(pqtx_tx *tx, int run)
{
    (void)tx;
    (void)run;
    return (pqtx_status)(PQTX_USER + 7);
}

START_TEST(a_status_of_the_bodys_own_rolls_back_and_is_returned_unchanged)
{
    struct story story = {.meet = say_own};
    pqtx_error error = PQTX_ERROR;
    ck_assert_int_eq(pqtx_run(pool, NULL, tell, &story, &error), PQTX_USER + 7);
    ck_assert_int_eq(story.runs, 1);
    ck_assert_int_eq(error.status, PQTX_USER + 7);
    ck_assert_int_eq(error.origin, PQTX_ORIGIN_LIBRARY);
    ck_assert_str_eq(marks(), "");
}
END_TEST

static const pqtx_status words[] = {PQTX_SERIALIZATION, PQTX_BUSY,     PQTX_NO_CONNECTION,
                                    PQTX_STOPPED,       PQTX_IN_DOUBT, PQTX_DONE_BEFORE,
                                    (pqtx_status)-1};

/* Only the library can say that it is done, or in doubt; and -1 is no status. */
static pqtx_status heard(pqtx_status said)
{
    return (int)said > PQTX_DONE_BEFORE && said != PQTX_IN_DOUBT ? said : PQTX_MISUSE;
}

static pqtx_status word;

static pqtx_status say_word(pqtx_tx *tx, int run)
{
    (void)tx;
    (void)run;
    return word;
}

START_TEST(a_status_without_a_failed_call_is_never_begun_again)
{
    pqtx_error error = PQTX_ERROR;
    pqtx_stats stats = PQTX_STATS;
    word = words[_i];
    assert_ends(say_word, NULL, heard(word), "", &error);
    pqtx_pool_stats(pool, &stats);
    ck_assert_uint_eq(stats.rollbacks, 1);
    ck_assert_uint_eq(stats.in_doubt, 0);
    ck_assert_uint_eq(stats.drops, 0);
}
END_TEST

START_TEST(a_status_without_a_failed_call_leaves_the_callers_connection_idle)
{
    struct story story = {.meet = say_word};
    word = words[_i];
    ck_assert_int_eq(pqtx_run_on(other, NULL, tell, &story, NULL), heard(word));
    ck_assert_int_eq(PQtransactionStatus(other), PQTRANS_IDLE);
    ck_assert_str_eq(marks(), "");
}
END_TEST

static pqtx_status rename_lost_race(pqtx_tx *tx, int run)
{
    return lose_to_a_newer_row(tx, run) == PQTX_OK ? PQTX_OK : (pqtx_status)(PQTX_USER + 1);
}

START_TEST(another_word_for_a_lost_race_does_not_stop_it_from_beginning_again)
{
    pqtx_options options = PQTX_OPTIONS;
    options.isolation = PQTX_ISO_REPEATABLE_READ;
    assert_begins_again(rename_lost_race, &options, PQTX_SERIALIZATION, "40001", PQTX_PHASE_BODY);
}
END_TEST

static pqtx_status rename_duplicate(pqtx_tx *tx, int run)
{
    ck_assert_int_eq(book_again(tx, run), PQTX_DUPLICATE);
    return (pqtx_status)(PQTX_USER + 1);
}

START_TEST(another_word_for_an_answer_is_returned_and_the_error_kept)
{
    struct story story = {.meet = rename_duplicate};
    pqtx_error error = PQTX_ERROR;
    ck_assert_int_eq(pqtx_run(pool, NULL, tell, &story, &error), PQTX_USER + 1);
    ck_assert_int_eq(story.runs, 1);
    ck_assert_str_eq(error.sqlstate, "23505");
    ck_assert_str_eq(error.constraint_name, "seat_pkey");
}
END_TEST

static pqtx_status swallow_duplicate(pqtx_tx *tx, int run)
{
    book_again(tx, run);
    return PQTX_OK;
}

START_TEST(a_swallowed_answer_is_no_success)
{
    pqtx_error error = PQTX_ERROR;
    assert_ends(swallow_duplicate, NULL, PQTX_DUPLICATE, "23505", &error);
    ck_assert_uint_eq(error.flags, PQTX_ERROR_SWALLOWED);
}
END_TEST

static pqtx_status swallow_lost_race(pqtx_tx *tx, int run)
{
    lose_to_a_newer_row(tx, run);
    return PQTX_OK;
}

START_TEST(a_swallowed_lost_race_begins_again)
{
    pqtx_options options = PQTX_OPTIONS;
    options.isolation = PQTX_ISO_REPEATABLE_READ;
    assert_begins_again(swallow_lost_race, &options, PQTX_SERIALIZATION, "40001", PQTX_PHASE_BODY);
}
END_TEST

static pqtx_status call_it_lost(pqtx_tx *tx, int run)
{
    return run == 1 ? pqtx_fail(tx, PQTX_SERIALIZATION) : add_one(tx, 1);
}

START_TEST(the_body_can_ask_to_begin_again)
{
    assert_begins_again(call_it_lost, NULL, PQTX_SERIALIZATION, "", PQTX_PHASE_BODY);
}
END_TEST

static pqtx_status stop(pqtx_tx *tx, int run)
{
    (void)run;
    ck_assert_int_eq(pqtx_fail(tx, PQTX_STOPPED), PQTX_STOPPED);
    ck_assert_int_eq(pqtx_fail(tx, PQTX_SERIALIZATION), PQTX_STOPPED);
    return PQTX_OK;
}

START_TEST(the_body_can_stop_the_run)
{
    pqtx_error error = PQTX_ERROR;
    assert_ends(stop, NULL, PQTX_STOPPED, "", &error);
}
END_TEST

static pqtx_status fail_with_word(pqtx_tx *tx, int run)
{
    (void)run;
    return pqtx_fail(tx, word);
}

START_TEST(what_is_no_failure_cannot_be_asked_for)
{
    static const pqtx_status no_failures[] = {PQTX_OK, PQTX_IN_DOUBT, (pqtx_status)-1};
    pqtx_error error = PQTX_ERROR;
    word = no_failures[_i];
    assert_ends(fail_with_word, NULL, PQTX_MISUSE, "", &error);
}
END_TEST

/* ---- The loop */

START_TEST(the_loop_begins_again_like_the_callback)
{
    pqtx_options options = PQTX_OPTIONS;
    options.isolation = PQTX_ISO_REPEATABLE_READ;
    pqtx_tx *tx = pqtx_new(pool, &options);
    int runs = 0;
    while (pqtx_attempt(tx)) {
        pqtx_exec(tx, "INSERT INTO mark VALUES ($1)", PQTX_ARGS(PQTX_INT(++runs)), NULL);
        lose_to_a_newer_row(tx, runs);
        ck_assert_int_eq(pqtx_commit(tx), runs == 1 ? PQTX_SERIALIZATION : PQTX_OK);
        ck_assert_uint_eq(pqtx_attempts(tx), (unsigned)runs);
    }
    ck_assert_int_eq(pqtx_result(tx), PQTX_OK);
    ck_assert_int_eq(pqtx_get_outcome(tx), PQTX_OUTCOME_COMMITTED);
    ck_assert_uint_eq(pqtx_attempts(tx), 2);
    pqtx_free(tx);
    ck_assert_str_eq(marks(), "2");
}
END_TEST

START_TEST(the_loop_need_not_commit_what_has_failed)
{
    pqtx_tx *tx = pqtx_new(pool, NULL);
    int runs = 0;
    while (pqtx_attempt(tx)) {
        pqtx_exec(tx, "INSERT INTO mark VALUES ($1)", PQTX_ARGS(PQTX_INT(++runs)), NULL);
        if (runs == 1 && pqtx_fail(tx, PQTX_DEADLOCK) != PQTX_OK)
            continue;
        pqtx_commit(tx);
    }
    ck_assert_int_eq(pqtx_result(tx), PQTX_OK);
    pqtx_free(tx);
    ck_assert_str_eq(marks(), "2");
}
END_TEST

START_TEST(an_attempt_left_in_silence_is_misuse_and_rolled_back)
{
    pqtx_tx *tx = pqtx_new(pool, NULL);
    pqtx_error error = PQTX_ERROR;
    int runs = 0;
    while (pqtx_attempt(tx))
        pqtx_exec(tx, "INSERT INTO mark VALUES ($1)", PQTX_ARGS(PQTX_INT(++runs)), NULL);
    pqtx_get_error(tx, &error);
    assert_status(pqtx_result(tx), PQTX_MISUSE, &error);
    ck_assert_int_eq(pqtx_get_outcome(tx), PQTX_OUTCOME_ROLLED_BACK);
    ck_assert_int_eq(runs, 1);
    pqtx_free(tx);
    ck_assert_str_eq(marks(), "");
}
END_TEST

START_TEST(a_loop_left_early_is_rolled_back)
{
    pqtx_stats stats = PQTX_STATS;
    pqtx_tx *tx = pqtx_new(pool, NULL);
    ck_assert_int_eq(pqtx_attempt(tx), 1);
    pqtx_exec(tx, "INSERT INTO mark VALUES (1)", PQTX_NO_ARGS, NULL);
    pqtx_free(tx);
    ck_assert_str_eq(marks(), "");
    pqtx_pool_stats(pool, &stats);
    ck_assert_uint_eq(stats.idle_count, stats.open_count);
    ck_assert_uint_eq(stats.drops, 0);
}
END_TEST

/* ---- The observer */

struct record {
    char text[2048];
};

static void note(const pqtx_event *event, void *arg)
{
    static const char *const types[] = {"", "attempt", "failed", "wait", "end", "notice"};
    static const char *const outcomes[] = {"open", "committed", "rolled back", "in doubt"};
    struct record *record = arg;
    size_t len = strlen(record->text);
    ck_assert_uint_eq(event->size, sizeof *event);
    ck_assert_ptr_nonnull(event->message);
    ck_assert_int_ge(event->elapsed_us, 0);
    snprintf(record->text + len, sizeof record->text - len, "%s %u", types[event->type],
             event->attempt);
    len = strlen(record->text);
    if (event->type == PQTX_EVENT_NOTICE)
        snprintf(record->text + len, sizeof record->text - len, " %s %s", event->severity,
                 event->message);
    else if (event->type == PQTX_EVENT_WAIT)
        snprintf(record->text + len, sizeof record->text - len, " %lld us",
                 (long long)event->wait_us);
    else if (event->type != PQTX_EVENT_ATTEMPT)
        snprintf(record->text + len, sizeof record->text - len, " %s %s %s, %s",
                 pqtx_status_name(event->status), event->sqlstate, pqtx_phase_name(event->phase),
                 outcomes[event->outcome]);
    strncat(record->text, "\n", sizeof record->text - strlen(record->text) - 1);
}

/* What the observer was told of a run on a clock that throws halves. */
static const char *observe(meeting meet, pqtx_options *options, pqtx_status status)
{
    static struct record record;
    struct fake_clock fake;
    struct story story = {.meet = meet};
    pqtx_error error = PQTX_ERROR;
    fake_clock_init(&fake);
    record.text[0] = '\0';
    options->observer = note;
    options->observer_arg = &record;
    options->clock = &fake.clock;
    pqtx_pool_close(pool);
    pool = open_pool_on(&fake, 1);
    assert_status(pqtx_run(pool, options, tell, &story, &error), status, &error);
    return record.text;
}

START_TEST(the_observer_hears_of_a_lost_race)
{
    pqtx_options options = PQTX_OPTIONS;
    options.isolation = PQTX_ISO_REPEATABLE_READ;
    ck_assert_str_eq(observe(lose_to_a_newer_row, &options, PQTX_OK),
                     "attempt 1\n"
                     "failed 1 serialization 40001 body, open\n"
                     "wait 1 2500 us\n"
                     "attempt 2\n"
                     "end 2 ok  none, committed\n");
}
END_TEST

START_TEST(the_observer_hears_of_a_race_lost_at_commit)
{
    pqtx_options options = PQTX_OPTIONS;
    options.isolation = PQTX_ISO_SERIALIZABLE;
    ck_assert_str_eq(observe(skew, &options, PQTX_OK), "attempt 1\n"
                                                       "failed 1 serialization 40001 commit, open\n"
                                                       "wait 1 2500 us\n"
                                                       "attempt 2\n"
                                                       "end 2 ok  none, committed\n");
}
END_TEST

START_TEST(the_observer_hears_of_an_answer)
{
    pqtx_options options = PQTX_OPTIONS;
    ck_assert_str_eq(observe(book_again, &options, PQTX_DUPLICATE),
                     "attempt 1\n"
                     "failed 1 duplicate 23505 body, open\n"
                     "end 1 duplicate 23505 body, rolled back\n");
}
END_TEST

static pqtx_status raise_notice(pqtx_tx *tx, int run)
{
    (void)run;
    return pqtx_exec(tx, "DO $$ BEGIN RAISE NOTICE 'look'; RAISE WARNING 'here'; END $$",
                     PQTX_NO_ARGS, NULL);
}

START_TEST(the_observer_hears_what_the_server_remarks)
{
    pqtx_options options = PQTX_OPTIONS;
    ck_assert_str_eq(observe(raise_notice, &options, PQTX_OK), "attempt 1\n"
                                                               "notice 1 NOTICE look\n"
                                                               "notice 1 WARNING here\n"
                                                               "end 1 ok  none, committed\n");
}
END_TEST

START_TEST(the_observer_hears_of_a_run_without_a_connection)
{
    static struct record record;
    pqtx_options options = PQTX_OPTIONS;
    PGconn *nowhere = PQconnectdb("host=/nowhere/at/all");
    options.observer = note;
    options.observer_arg = &record;
    struct story story = {.meet = say_own};
    ck_assert_int_eq(pqtx_run_on(nowhere, &options, tell, &story, NULL), PQTX_NO_CONNECTION);
    ck_assert_str_eq(record.text, "failed 0 no_connection  connect, open\n"
                                  "end 0 no_connection  connect, rolled back\n");
    PQfinish(nowhere);
}
END_TEST

START_TEST(the_pool_counts_what_became_of_the_transactions)
{
    pqtx_options options = PQTX_OPTIONS;
    pqtx_stats stats = PQTX_STATS;
    struct story lost = {.meet = lose_to_a_newer_row}, answered = {.meet = book_again};
    options.isolation = PQTX_ISO_REPEATABLE_READ;
    ck_assert_int_eq(pqtx_run(pool, &options, tell, &lost, NULL), PQTX_OK);
    ck_assert_int_eq(pqtx_run(pool, NULL, tell, &answered, NULL), PQTX_DUPLICATE);
    ck_assert_int_eq(pqtx_pool_stats(pool, &stats), PQTX_OK);
    ck_assert_uint_eq(stats.starts, 2);
    ck_assert_uint_eq(stats.attempts, 3);
    ck_assert_uint_eq(stats.commits, 1);
    ck_assert_uint_eq(stats.rollbacks, 1);
    ck_assert_uint_eq(stats.in_doubt, 0);
    ck_assert_uint_eq(stats.retries_serialization, 1);
    ck_assert_uint_eq(stats.retries_deadlock + stats.retries_busy + stats.retries_connection +
                          stats.retries_other,
                      0);
    ck_assert_uint_eq(stats.drops, 0);
}
END_TEST

/* ---- Many at once */

enum { THREADS = 8 };

struct counter {
    pthread_t thread;
    int increments;
    pqtx_status status;
    pqtx_error error;
};

static pqtx_status read_then_write(pqtx_tx *tx, void *arg)
{
    (void)arg;
    const PGresult *row;
    int64_t value;
    if (pqtx_exec_one(tx, "SELECT value FROM account WHERE id = 1", PQTX_NO_ARGS, &row) ||
        pqtx_get_int(row, 0, 0, &value))
        return PQTX_OK; /* the mark decides */
    return pqtx_update_one(tx, "UPDATE account SET value = $1 WHERE id = 1",
                           PQTX_ARGS(PQTX_INT(value + 1)));
}

static void *count_up(void *arg)
{
    struct counter *counter = arg;
    pqtx_options options = PQTX_OPTIONS;
    options.isolation = PQTX_ISO_SERIALIZABLE;
    options.max_attempts = INT32_MAX;
    options.deadline_ms = 600000;
    options.wait_max_ms = 50;
    for (int i = 0; i < counter->increments && counter->status == PQTX_OK; i++)
        counter->status = pqtx_run(pool, &options, read_then_write, NULL, &counter->error);
    return NULL;
}

/* PQTX_TEST_INCREMENTS makes it shorter, where a sanitizer makes it slow; never less exact. */
START_TEST(serializable_increments_by_many_threads_are_all_counted)
{
    const char *given = getenv("PQTX_TEST_INCREMENTS");
    int increments = given ? atoi(given) : 500;
    struct counter counters[THREADS];
    ck_assert_int_gt(increments, 0);
    for (int i = 0; i < THREADS; i++) {
        counters[i] = (struct counter){.increments = increments, .error = PQTX_ERROR};
        ck_assert_int_eq(pthread_create(&counters[i].thread, NULL, count_up, &counters[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(counters[i].thread, NULL);
    for (int i = 0; i < THREADS; i++)
        assert_status(counters[i].status, PQTX_OK, &counters[i].error);
    ck_assert_int_eq(ask_int(monitor, "SELECT value FROM account WHERE id = 1"),
                     THREADS * increments);
}
END_TEST

static TCase *add_case(Suite *suite, const char *name)
{
    TCase *tests = tcase_create(name);
    tcase_add_checked_fixture(tests, open_all, close_all);
    tcase_set_timeout(tests, 30);
    suite_add_tcase(suite, tests);
    return tests;
}

static Suite *suite(void)
{
    Suite *suite = suite_create("live_run");

    TCase *again = add_case(suite, "again");
    tcase_add_test(again, a_serialization_failure_at_a_statement_begins_again);
    tcase_add_test(again, a_serialization_failure_at_commit_begins_again);
    tcase_add_test(again, a_deadlock_begins_again);
    tcase_add_test(again, a_row_held_by_another_begins_again_with_nowait);
    tcase_add_test(again, a_row_held_by_another_begins_again_after_lock_timeout);
    tcase_add_test(again, a_connection_lost_before_commit_begins_again_on_another);

    TCase *answer = add_case(suite, "answer");
    tcase_add_test(answer, a_duplicate_is_an_answer_with_the_constraints_name);
    tcase_add_test(answer, an_overlap_is_an_answer_with_the_constraints_name);
    tcase_add_test(answer, a_deferred_constraint_answers_at_commit);
    tcase_add_test(answer, a_duplicate_begins_again_when_the_mask_says_so);
    tcase_add_test(answer, a_write_in_a_read_only_transaction_is_not_begun_again);
    tcase_add_test(answer, a_body_too_slow_for_the_server_is_not_begun_again);

    TCase *mask = add_case(suite, "mask");
    tcase_add_loop_test(mask, the_mask_says_what_begins_again, 0, sizeof masks / sizeof masks[0]);
    tcase_add_test(mask, one_attempt_means_never_again);

    TCase *wait = add_case(suite, "wait");
    tcase_add_test(wait, waits_double_from_the_first_to_the_longest);
    tcase_add_test(wait, the_options_set_the_first_wait_and_the_longest);
    tcase_add_test(wait, a_wait_that_would_pass_the_deadline_is_not_begun);
    tcase_add_test(wait, the_deadline_ends_an_endless_series_with_the_last_real_error);
    tcase_add_test(wait, no_lock_and_no_connection_is_held_during_a_wait);

    TCase *body = add_case(suite, "body");
    tcase_add_test(body, a_status_of_the_bodys_own_rolls_back_and_is_returned_unchanged);
    tcase_add_loop_test(body, a_status_without_a_failed_call_is_never_begun_again, 0,
                        sizeof words / sizeof words[0]);
    tcase_add_loop_test(body, a_status_without_a_failed_call_leaves_the_callers_connection_idle, 0,
                        sizeof words / sizeof words[0]);
    tcase_add_test(body, another_word_for_a_lost_race_does_not_stop_it_from_beginning_again);
    tcase_add_test(body, another_word_for_an_answer_is_returned_and_the_error_kept);
    tcase_add_test(body, a_swallowed_answer_is_no_success);
    tcase_add_test(body, a_swallowed_lost_race_begins_again);
    tcase_add_test(body, the_body_can_ask_to_begin_again);
    tcase_add_test(body, the_body_can_stop_the_run);
    tcase_add_loop_test(body, what_is_no_failure_cannot_be_asked_for, 0, 3);

    TCase *loop = add_case(suite, "loop");
    tcase_add_test(loop, the_loop_begins_again_like_the_callback);
    tcase_add_test(loop, the_loop_need_not_commit_what_has_failed);
    tcase_add_test(loop, an_attempt_left_in_silence_is_misuse_and_rolled_back);
    tcase_add_test(loop, a_loop_left_early_is_rolled_back);

    TCase *observer = add_case(suite, "observer");
    tcase_add_test(observer, the_observer_hears_of_a_lost_race);
    tcase_add_test(observer, the_observer_hears_of_a_race_lost_at_commit);
    tcase_add_test(observer, the_observer_hears_of_an_answer);
    tcase_add_test(observer, the_observer_hears_what_the_server_remarks);
    tcase_add_test(observer, the_observer_hears_of_a_run_without_a_connection);
    tcase_add_test(observer, the_pool_counts_what_became_of_the_transactions);

    TCase *many = add_case(suite, "many");
    tcase_set_timeout(many, 300);
    tcase_add_test(many, serializable_increments_by_many_threads_are_all_counted);
    return suite;
}

int main(void)
{
    return run_suite(suite());
}
