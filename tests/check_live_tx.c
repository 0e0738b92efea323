/* check_live_tx.c: one transaction on a real server: its modes and times, its calls rightly and
 * wrongly used, what it hands out, and the connection it was lent. */
#include "support.h"
#include "support_fake_clock.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pqtx_pool *pool;
static PGconn *own, *other, *monitor; /* lent to transactions; a rival; one who asks */

static void open_all(void)
{
    fresh_schema("pqtx_tx");
    own = open_own();
    other = open_session();
    monitor = open_session();
    sql(other, "CREATE TABLE mark (id int); CREATE TABLE account (id int, value int NOT NULL);"
               "INSERT INTO account VALUES (1, 0)");
    pool = open_pool(2);
}

static void close_all(void)
{
    pqtx_pool_close(pool);
    PQfinish(own);
    PQfinish(other);
    PQfinish(monitor);
}

static pqtx_status mark(pqtx_tx *tx)
{
    return pqtx_exec(tx, "INSERT INTO mark VALUES (1)", PQTX_NO_ARGS, NULL);
}

static int64_t marks(void)
{
    return ask_int(monitor, "SELECT count(*) FROM mark");
}

static const char *show(pqtx_tx *tx, const char *query)
{
    const PGresult *row;
    const char *text;
    ck_assert_int_eq(pqtx_exec_one(tx, query, PQTX_NO_ARGS, &row), PQTX_OK);
    ck_assert_int_eq(pqtx_get_text(row, 0, 0, &text), PQTX_OK);
    return text;
}

/* The one attempt of a run that is not to have more. */
static pqtx_tx *begin_on(PGconn *conn, const pqtx_options *options)
{
    pqtx_tx *tx = pqtx_new_on(conn, options);
    pqtx_error error = PQTX_ERROR;
    int begun = pqtx_attempt(tx);
    pqtx_get_error(tx, &error);
    ck_assert_msg(begun, "%s", error.message);
    return tx;
}

static void commit_and_free(pqtx_tx *tx)
{
    pqtx_error error = PQTX_ERROR;
    pqtx_status status = pqtx_commit(tx);
    pqtx_get_error(tx, &error);
    assert_status(status, PQTX_OK, &error);
    pqtx_free(tx);
}

/* Ends a transaction that has failed. */
static void end_and_free(pqtx_tx *tx, pqtx_status expected)
{
    pqtx_error error = PQTX_ERROR;
    ck_assert_int_eq(pqtx_attempt(tx), 0);
    pqtx_get_error(tx, &error);
    assert_status(pqtx_result(tx), expected, &error);
    ck_assert_int_eq(pqtx_get_outcome(tx), PQTX_OUTCOME_ROLLED_BACK);
    pqtx_free(tx);
}

/* As it was before: idle, blocking, out of the pipeline, and of use. */
static void assert_given_back(PGconn *conn)
{
    ck_assert_int_eq(PQstatus(conn), CONNECTION_OK);
    ck_assert_int_eq(PQtransactionStatus(conn), PQTRANS_IDLE);
    ck_assert_int_eq(PQpipelineStatus(conn), PQ_PIPELINE_OFF);
    ck_assert_int_eq(PQisnonblocking(conn), 0);
    ck_assert_str_eq(ask(conn, "SELECT 'alive'"), "alive");
}

/* ---- Modes */

static const struct mode {
    pqtx_isolation isolation;
    pqtx_access access;
    const char *shown; /* isolation, read only, deferrable */
} modes[] = {
    {PQTX_ISO_DEFAULT, PQTX_ACCESS_DEFAULT, "read committed, off, off"},
    {PQTX_ISO_READ_COMMITTED, PQTX_ACCESS_READ_WRITE, "read committed, off, off"},
    {PQTX_ISO_READ_COMMITTED, PQTX_ACCESS_READ_ONLY, "read committed, on, off"},
    {PQTX_ISO_REPEATABLE_READ, PQTX_ACCESS_DEFAULT, "repeatable read, off, off"},
    {PQTX_ISO_REPEATABLE_READ, PQTX_ACCESS_READ_ONLY, "repeatable read, on, off"},
    {PQTX_ISO_SERIALIZABLE, PQTX_ACCESS_DEFAULT, "serializable, off, off"},
    {PQTX_ISO_SERIALIZABLE, PQTX_ACCESS_READ_WRITE, "serializable, off, off"},
    {PQTX_ISO_SERIALIZABLE, PQTX_ACCESS_READ_ONLY, "serializable, on, off"},
    {PQTX_ISO_SERIALIZABLE, PQTX_ACCESS_DEFERRABLE, "serializable, on, on"},
    {PQTX_ISO_DEFAULT, PQTX_ACCESS_READ_ONLY, "read committed, on, off"},
};

#define SHOW_MODE                                                                                  \
    "SELECT concat_ws(', ', current_setting('transaction_isolation'),"                             \
    " current_setting('transaction_read_only'), current_setting('transaction_deferrable'))"

START_TEST(the_modes_reach_the_server)
{
    const struct mode *mode = &modes[_i];
    pqtx_options options = PQTX_OPTIONS;
    options.isolation = mode->isolation;
    options.access = mode->access;
    pqtx_tx *tx = begin_on(own, &options);
    ck_assert_str_eq(show(tx, SHOW_MODE), mode->shown);
    commit_and_free(tx);
    ck_assert_str_eq(ask(own, SHOW_MODE), "read committed, off, off");
}
END_TEST

START_TEST(without_a_mode_the_sessions_own_holds)
{
    sql(own, "SET default_transaction_isolation = serializable;"
             "SET default_transaction_read_only = on; SET default_transaction_deferrable = on");
    pqtx_tx *tx = begin_on(own, NULL);
    ck_assert_str_eq(show(tx, SHOW_MODE), "serializable, on, on");
    commit_and_free(tx);
    pqtx_options options = PQTX_OPTIONS;
    options.isolation = PQTX_ISO_READ_COMMITTED;
    options.access = PQTX_ACCESS_READ_WRITE;
    tx = begin_on(own, &options);
    ck_assert_str_eq(show(tx, SHOW_MODE), "read committed, off, on");
    commit_and_free(tx);
}
END_TEST

/* ---- The snapshot: what a REPEATABLE READ transaction sees of a rival's commit, which happens
 * after its attempt has begun and after `first`, if there is one. */
static int64_t seen_after(const char *first, uint32_t flags)
{
    pqtx_options options = PQTX_OPTIONS;
    options.isolation = PQTX_ISO_REPEATABLE_READ;
    options.flags = flags;
    pqtx_tx *tx = begin_on(own, &options);
    if (first)
        ck_assert_int_eq(pqtx_exec(tx, first, PQTX_NO_ARGS, NULL), PQTX_OK);
    sql(other, "INSERT INTO mark VALUES (1)");
    int64_t seen = strtoll(show(tx, "SELECT count(*) FROM mark"), NULL, 10);
    commit_and_free(tx);
    return seen;
}

START_TEST(the_first_statement_takes_the_snapshot)
{
    ck_assert_int_eq(seen_after(NULL, 0), 1);
    sql(other, "TRUNCATE mark");
    ck_assert_int_eq(seen_after("SELECT 1", 0), 0);
}
END_TEST

START_TEST(begin_and_the_settings_take_no_snapshot)
{
    ck_assert_int_eq(seen_after("SHOW lock_timeout", 0), 1); /* SHOW needs none itself */
}
END_TEST

START_TEST(a_pinned_snapshot_is_taken_before_the_body)
{
    ck_assert_int_eq(seen_after(NULL, PQTX_PIN_SNAPSHOT), 0);
}
END_TEST

/* ---- Timeouts */

static const char *timeouts(pqtx_tx *tx)
{
    return show(tx, "SELECT concat_ws(' ', current_setting('lock_timeout'),"
                    " current_setting('statement_timeout'))");
}

START_TEST(the_timeouts_hold_for_the_transaction_and_no_longer)
{
    pqtx_options options = PQTX_OPTIONS;
    sql(own, "SET lock_timeout = 77; SET statement_timeout = 78000");
    pqtx_tx *tx = begin_on(own, NULL);
    ck_assert_str_eq(timeouts(tx), "5s 78s");
    commit_and_free(tx);
    options.lock_timeout_ms = 1234;
    options.statement_timeout_ms = 5678;
    tx = begin_on(own, &options);
    ck_assert_str_eq(timeouts(tx), "1234ms 5678ms");
    commit_and_free(tx);
    tx = begin_on(own, &options);
    ck_assert_str_eq(timeouts(tx), "1234ms 5678ms");
    pqtx_fail(tx, PQTX_STOPPED);
    end_and_free(tx, PQTX_STOPPED);
    ck_assert_str_eq(ask(own, "SHOW lock_timeout"), "77ms");
    ck_assert_str_eq(ask(own, "SHOW statement_timeout"), "78s");
    options.lock_timeout_ms = PQTX_NO_TIMEOUT;
    tx = begin_on(own, &options);
    ck_assert_str_eq(timeouts(tx), "77ms 5678ms");
    commit_and_free(tx);
}
END_TEST

static int64_t lock_timeout_ms(pqtx_tx *tx)
{
    return strtoll(show(tx, "SELECT setting FROM pg_settings WHERE name = 'lock_timeout'"), NULL,
                   10);
}

START_TEST(lock_timeout_is_never_longer_than_the_time_left)
{
    struct fake_clock fake;
    pqtx_options options = PQTX_OPTIONS;
    fake_clock_init(&fake);
    options.clock = &fake.clock;
    options.deadline_ms = 10000;
    options.lock_timeout_ms = 60000;
    pqtx_tx *tx = begin_on(own, &options);
    int64_t timeout_ms = lock_timeout_ms(tx);
    ck_assert_int_gt(timeout_ms, 5000);
    ck_assert_int_lt(timeout_ms, 10000);
    fake.now_us += 8000000;
    timeout_ms = lock_timeout_ms(tx);
    ck_assert_int_gt(timeout_ms, 0);
    ck_assert_int_lt(timeout_ms, 2000);
    commit_and_free(tx);
}
END_TEST

/* ---- Statements that are the runner's own */

static const char *const typed[] = {
    "COMMIT",
    "commit",
    "COMMIT AND CHAIN",
    "END",
    "ROLLBACK",
    "ROLLBACK TO SAVEPOINT a",
    "ABORT",
    "BEGIN",
    "START TRANSACTION",
    "SAVEPOINT a",
    "RELEASE a",
    "PREPARE TRANSACTION 'a'",
    "PREPARE /* a */ TRANSACTION 'a'",
    "  ;\n COMMIT",
    "-- a comment\nCOMMIT",
    "/* a /* nested */ comment */ COMMIT",
    "COPY mark FROM STDIN",
    "COPY mark TO STDOUT",
    "COPY (SELECT 1) TO STDOUT",
};

START_TEST(a_typed_end_of_the_transaction_is_misuse)
{
    pqtx_tx *tx = begin_on(own, NULL);
    ck_assert_int_eq(mark(tx), PQTX_OK);
    ck_assert_int_eq(pqtx_exec(tx, typed[_i], PQTX_NO_ARGS, NULL), PQTX_MISUSE);
    ck_assert_int_eq(mark(tx), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_commit(tx), PQTX_MISUSE);
    end_and_free(tx, PQTX_MISUSE);
    assert_given_back(own);
    ck_assert_int_eq(marks(), 0);
}
END_TEST

static const char *const hidden[] = {
    "DO $$ BEGIN COMMIT; END $$",
    "DO $$ BEGIN ROLLBACK; END $$",
    "CALL end_it()",
    "SELECT end_it_all()",
    "SELECT 1; COMMIT",
};

START_TEST(a_hidden_end_of_the_transaction_commits_nothing)
{
    sql(other, "CREATE PROCEDURE end_it() LANGUAGE plpgsql AS 'BEGIN COMMIT; END';"
               "CREATE FUNCTION end_it_all() RETURNS void LANGUAGE plpgsql AS 'BEGIN COMMIT; END'");
    pqtx_tx *tx = begin_on(own, NULL);
    ck_assert_int_eq(mark(tx), PQTX_OK);
    ck_assert_int_eq(pqtx_exec(tx, hidden[_i], PQTX_NO_ARGS, NULL), PQTX_BAD_STATEMENT);
    end_and_free(tx, PQTX_BAD_STATEMENT);
    assert_given_back(own);
    ck_assert_int_eq(marks(), 0);
}
END_TEST

/* ---- Any SQLSTATE may come from a RAISE */

static const char *const raised[] = {
    "00000", "01000", "02000", "03000", "08000", "08006", "08007", "08P01", "22012",
    "23505", "25006", "25P02", "25P03", "26000", "40000", "40001", "40002", "40003",
    "40P01", "42P05", "53300", "55P03", "57014", "57P01", "57P02", "57P03", "57P05",
    "58030", "72000", "P0001", "P0000", "XX000", "XX001", "ZZ001", "ZZZZZ", "A0000",
};

static pqtx_status raise_it(pqtx_tx *tx, void *arg)
{
    char statement[128];
    mark(tx);
    snprintf(statement, sizeof statement, "DO $$ BEGIN RAISE 'odd' USING ERRCODE = '%s'; END $$",
             (const char *)arg);
    pqtx_exec(tx, statement, PQTX_NO_ARGS, NULL);
    return PQTX_OK;
}

/* Whatever it says, it is an error of a statement: it has failed, and cannot be in doubt. */
START_TEST(a_raised_error_is_neither_success_nor_doubt)
{
    char sqlstate[6];
    pqtx_options options = PQTX_OPTIONS;
    pqtx_error error = PQTX_ERROR;
    options.retry_mask = PQTX_RETRY_NOTHING;
    snprintf(sqlstate, sizeof sqlstate, "%s", raised[_i]);
    pqtx_status status = pqtx_run_on(own, &options, raise_it, sqlstate, &error);
    ck_assert_msg(status != PQTX_OK && status != PQTX_IN_DOUBT, "%s: %s", sqlstate,
                  pqtx_status_name(status));
    assert_status(error.status, status, &error);
    ck_assert_str_eq(error.message, "odd");
    ck_assert_int_eq(error.flags & PQTX_ERROR_CONNECTION, 0);
    assert_given_back(own);
    ck_assert_int_eq(pqtx_run(pool, &options, raise_it, sqlstate, &error), status);
    ck_assert_int_eq(marks(), 0);
}
END_TEST

/* The same from a deferred trigger, whose error is the answer to COMMIT. */
START_TEST(an_error_raised_at_commit_is_no_success)
{
    char definition[512];
    pqtx_options options = PQTX_OPTIONS;
    options.retry_mask = PQTX_RETRY_NOTHING;
    snprintf(definition, sizeof definition,
             "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
             " $$ BEGIN RAISE 'odd' USING ERRCODE = '%s'; END $$;"
             "CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON mark DEFERRABLE INITIALLY DEFERRED"
             " FOR EACH ROW EXECUTE FUNCTION refuse()",
             raised[_i]);
    sql(other, definition);
    pqtx_tx *tx = pqtx_new_on(own, &options);
    while (pqtx_attempt(tx)) {
        ck_assert_int_eq(mark(tx), PQTX_OK);
        ck_assert_int_ne(pqtx_commit(tx), PQTX_OK);
    }
    ck_assert_int_ne(pqtx_result(tx), PQTX_OK);
    ck_assert_int_ne(pqtx_get_outcome(tx), PQTX_OUTCOME_COMMITTED);
    ck_assert_uint_eq(pqtx_attempts(tx), 1);
    pqtx_free(tx);
    ck_assert_int_eq(marks(), 0);
}
END_TEST

/* ---- The caller's connection */

START_TEST(a_lent_connection_comes_back_as_it_was)
{
    pqtx_tx *tx = begin_on(own, NULL);
    mark(tx);
    commit_and_free(tx);
    assert_given_back(own);
    tx = begin_on(own, NULL);
    pqtx_exec(tx, "no such thing", PQTX_NO_ARGS, NULL);
    end_and_free(tx, PQTX_BAD_STATEMENT);
    assert_given_back(own);
    tx = begin_on(own, NULL);
    mark(tx);
    pqtx_free(tx);
    assert_given_back(own);
    ck_assert_int_eq(marks(), 1);
}
END_TEST

START_TEST(a_non_blocking_connection_stays_non_blocking)
{
    PQsetnonblocking(own, 1);
    pqtx_tx *tx = begin_on(own, NULL);
    mark(tx);
    commit_and_free(tx);
    ck_assert_int_eq(PQisnonblocking(own), 1);
    ck_assert_int_eq(PQpipelineStatus(own), PQ_PIPELINE_OFF);
}
END_TEST

static void use_it_meanwhile(struct fake_clock *fake)
{
    (void)fake;
    assert_given_back(own);
}

START_TEST(between_attempts_a_lent_connection_is_the_callers)
{
    struct fake_clock fake;
    pqtx_options options = PQTX_OPTIONS;
    fake_clock_init(&fake);
    fake.asleep = use_it_meanwhile;
    options.clock = &fake.clock;
    pqtx_tx *tx = pqtx_new_on(own, &options);
    while (pqtx_attempt(tx)) {
        mark(tx);
        if (pqtx_attempts(tx) < 3)
            pqtx_fail(tx, PQTX_BUSY);
        pqtx_commit(tx);
    }
    ck_assert_int_eq(pqtx_result(tx), PQTX_OK);
    pqtx_free(tx);
    ck_assert_int_eq(fake.sleep_count, 2);
    ck_assert_int_eq(marks(), 1);
}
END_TEST

static pqtx_status never(pqtx_tx *tx, void *arg)
{
    (void)tx;
    (void)arg;
    ck_abort_msg("the body ran");
    return PQTX_OK;
}

static pqtx_status refused(PGconn *conn)
{
    pqtx_error error = PQTX_ERROR;
    pqtx_status status = pqtx_run_on(conn, NULL, never, NULL, &error);
    assert_status(error.status, status, &error);
    ck_assert_int_eq(error.phase, PQTX_PHASE_CONNECT);
    ck_assert_int_gt((int)strlen(error.message), 0);
    return status;
}

START_TEST(a_connection_in_a_transaction_is_refused_and_left_alone)
{
    sql(own, "BEGIN; INSERT INTO mark VALUES (1)");
    ck_assert_int_eq(refused(own), PQTX_MISUSE);
    ck_assert_int_eq(PQtransactionStatus(own), PQTRANS_INTRANS);
    sql(own, "COMMIT");
    assert_given_back(own);
    ck_assert_int_eq(marks(), 1);
}
END_TEST

START_TEST(a_connection_in_a_failed_transaction_is_refused)
{
    sql(own, "BEGIN");
    start_sql(own, "SELECT 1/0");
    ck_assert_str_eq(finish_sql(own), "22012");
    ck_assert_int_eq(refused(own), PQTX_MISUSE);
    sql(own, "ROLLBACK");
    assert_given_back(own);
}
END_TEST

START_TEST(a_busy_connection_is_refused_and_left_alone)
{
    start_sql(own, "INSERT INTO mark VALUES (1)");
    ck_assert_int_eq(refused(own), PQTX_MISUSE);
    ck_assert_str_eq(finish_sql(own), "");
    assert_given_back(own);
    ck_assert_int_eq(marks(), 1);
}
END_TEST

START_TEST(a_connection_in_a_pipeline_is_refused_and_left_alone)
{
    PQenterPipelineMode(own);
    ck_assert_int_eq(refused(own), PQTX_MISUSE);
    ck_assert_int_eq(PQpipelineStatus(own), PQ_PIPELINE_ON);
    PQexitPipelineMode(own);
    assert_given_back(own);
}
END_TEST

START_TEST(a_connection_that_never_stood_is_no_connection)
{
    PGconn *nowhere = PQconnectdb("host=/nowhere/at/all");
    ck_assert_int_eq(refused(nowhere), PQTX_NO_CONNECTION);
    PQfinish(nowhere);
}
END_TEST

static void terminate(int pid)
{
    char query[128];
    snprintf(query, sizeof query, "SELECT pg_terminate_backend(%d)", pid);
    sql(monitor, query);
    snprintf(query, sizeof query, "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = %d)",
             pid);
    wait_until_true(monitor, query);
}

/* Ended before, or in the middle of, the attempt. */
START_TEST(a_lent_connection_that_is_lost_is_not_begun_again)
{
    pqtx_error error = PQTX_ERROR;
    if (_i == 0)
        terminate(PQbackendPID(own));
    pqtx_tx *tx = begin_on(own, NULL);
    if (_i == 1) {
        ck_assert_int_eq(mark(tx), PQTX_OK);
        terminate((int)strtol(show(tx, "SELECT pg_backend_pid()"), NULL, 10));
    }
    ck_assert_int_eq(mark(tx), PQTX_NO_CONNECTION);
    ck_assert_int_eq(pqtx_attempt(tx), 0);
    pqtx_get_error(tx, &error);
    ck_assert_str_eq(error.sqlstate, "57P01");
    ck_assert_uint_eq(error.flags, PQTX_ERROR_CONNECTION);
    end_and_free(tx, PQTX_NO_CONNECTION);
    ck_assert_int_eq(marks(), 0);
    PQreset(own); /* which is the caller's to do */
    PQsetnonblocking(own, 0);
    assert_given_back(own);
    tx = begin_on(own, NULL);
    mark(tx);
    commit_and_free(tx);
}
END_TEST

static pqtx_status nest(pqtx_tx *tx, void *arg)
{
    if (arg)
        mark(tx);
    ck_assert_int_eq(refused(own), PQTX_MISUSE);
    return mark(tx);
}

/* Before the first statement and after it; the outer one does not notice. */
START_TEST(a_run_inside_a_run_on_the_same_connection_is_misuse)
{
    pqtx_error error = PQTX_ERROR;
    pqtx_status status = pqtx_run_on(own, NULL, nest, _i ? &error : NULL, &error);
    assert_status(status, PQTX_OK, &error);
    assert_given_back(own);
    ck_assert_int_eq(marks(), _i + 1);
}
END_TEST

START_TEST(what_the_server_notifies_reaches_the_caller)
{
    sql(own, "LISTEN news");
    pqtx_tx *tx = begin_on(own, NULL);
    ck_assert_int_eq(pqtx_exec(tx, "NOTIFY news, 'hello'", PQTX_NO_ARGS, NULL), PQTX_OK);
    commit_and_free(tx);
    PGnotify *notification = PQnotifies(own);
    ck_assert_ptr_nonnull(notification);
    ck_assert_str_eq(notification->extra, "hello");
    PQfreemem(notification);
}
END_TEST

/* ---- Calls at the wrong time */

static void nothing(void *arg)
{
    (void)arg;
}

/* Every call of a body, on a handle that is in no attempt. */
static void assert_no_call_works(pqtx_tx *tx)
{
    static const int64_t key = 1;
    const PGresult *result = (const PGresult *)&key; /* must be set to NULL */
    pqtx_change change = PQTX_CHANGE;
    int64_t rows;
    change.table = "account";
    change.key = "id = 1";
    change.condition = "true";
    change.set = "value = 2";
    ck_assert_int_eq(pqtx_exec(tx, "SELECT 1", PQTX_NO_ARGS, &result), PQTX_MISUSE);
    ck_assert_ptr_null(result);
    ck_assert_int_eq(pqtx_exec_one(tx, "SELECT 1", PQTX_NO_ARGS, NULL), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_savepoint(tx, never, NULL), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_fail(tx, PQTX_STOPPED), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_on_commit(tx, nothing, NULL), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_on_rollback(tx, nothing, NULL), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_update(tx, "DELETE FROM mark", PQTX_NO_ARGS, &rows), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_update_one(tx, "DELETE FROM mark", PQTX_NO_ARGS), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_update_if(tx, &change, PQTX_NO_ARGS, NULL), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_lock(tx, 1), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_lock_shared(tx, 1), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_lock_pair(tx, 1, 1), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_lock_pair_shared(tx, 1, 1), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_try_lock(tx, 1), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_try_lock_shared(tx, 1), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_try_lock_pair(tx, 1, 1), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_try_lock_pair_shared(tx, 1, 1), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_lock_many(tx, &key, 1), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_lock_many(tx, NULL, 0), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_lock_many_shared(tx, &key, 1), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_set_lock_timeout(tx, 1), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_commit(tx), PQTX_MISUSE);
}

START_TEST(every_call_takes_a_null_handle)
{
    pqtx_error error = PQTX_ERROR;
    assert_no_call_works(NULL);
    ck_assert_int_eq(pqtx_attempt(NULL), 0);
    ck_assert_int_eq(pqtx_result(NULL), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_get_outcome(NULL), PQTX_OUTCOME_ROLLED_BACK);
    ck_assert_int_eq(pqtx_get_error(NULL, &error), PQTX_MISUSE);
    ck_assert_int_eq(error.status, PQTX_MISUSE);
    ck_assert_int_eq(pqtx_get_error(NULL, NULL), PQTX_MISUSE);
    ck_assert_uint_eq(pqtx_attempts(NULL), 0);
    pqtx_free(NULL);
    pqtx_pool_close(NULL);
}
END_TEST

START_TEST(a_run_on_nothing_is_misuse)
{
    pqtx_error error = PQTX_ERROR;
    ck_assert_int_eq(pqtx_run(NULL, NULL, never, NULL, &error), PQTX_MISUSE);
    ck_assert_int_eq(error.status, PQTX_MISUSE);
    ck_assert_int_eq(pqtx_run_on(NULL, NULL, never, NULL, &error), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_run(pool, NULL, NULL, NULL, &error), PQTX_MISUSE);
    ck_assert_int_gt((int)strlen(error.message), 0);
    ck_assert_int_eq(pqtx_run_on(own, NULL, NULL, NULL, NULL), PQTX_MISUSE);
    pqtx_tx *tx = pqtx_new(NULL, NULL);
    ck_assert_int_eq(pqtx_attempt(tx), 0);
    ck_assert_int_eq(pqtx_result(tx), PQTX_MISUSE);
    pqtx_free(tx);
}
END_TEST

START_TEST(before_the_first_attempt_no_call_works)
{
    pqtx_tx *tx = pqtx_new(pool, NULL);
    assert_no_call_works(tx);
    ck_assert_int_eq(pqtx_result(tx), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_get_outcome(tx), PQTX_OUTCOME_OPEN);
    ck_assert_int_eq(pqtx_attempt(tx), 1);
    ck_assert_int_eq(pqtx_result(tx), PQTX_MISUSE);
    mark(tx);
    commit_and_free(tx);
    ck_assert_int_eq(marks(), 1);
}
END_TEST

START_TEST(after_the_commit_no_call_works_and_the_result_stands)
{
    pqtx_tx *tx = pqtx_new(pool, NULL);
    ck_assert_int_eq(pqtx_attempt(tx), 1);
    mark(tx);
    ck_assert_int_eq(pqtx_commit(tx), PQTX_OK);
    assert_no_call_works(tx);
    ck_assert_int_eq(pqtx_attempt(tx), 0);
    ck_assert_int_eq(pqtx_attempt(tx), 0);
    assert_no_call_works(tx);
    ck_assert_int_eq(pqtx_result(tx), PQTX_OK);
    ck_assert_int_eq(pqtx_get_outcome(tx), PQTX_OUTCOME_COMMITTED);
    pqtx_free(tx);
    ck_assert_int_eq(marks(), 1);
}
END_TEST

START_TEST(after_a_failed_commit_no_call_works_and_the_failure_stands)
{
    pqtx_tx *tx = pqtx_new(pool, NULL);
    ck_assert_int_eq(pqtx_attempt(tx), 1);
    mark(tx);
    pqtx_fail(tx, PQTX_STOPPED);
    ck_assert_int_eq(pqtx_commit(tx), PQTX_STOPPED);
    assert_no_call_works(tx);
    end_and_free(tx, PQTX_STOPPED);
    ck_assert_int_eq(marks(), 0);
}
END_TEST

static pqtx_status commit_inside(pqtx_tx *tx, void *arg)
{
    (void)arg;
    mark(tx);
    ck_assert_int_eq(pqtx_commit(tx), PQTX_MISUSE);
    return mark(tx);
}

static pqtx_status attempt_inside(pqtx_tx *tx, void *arg)
{
    (void)arg;
    mark(tx);
    ck_assert_int_eq(pqtx_attempt(tx), 0);
    return PQTX_OK;
}

START_TEST(a_body_may_not_drive_its_own_run)
{
    pqtx_error error = PQTX_ERROR;
    pqtx_status status = pqtx_run(pool, NULL, _i ? commit_inside : attempt_inside, NULL, &error);
    assert_status(status, PQTX_MISUSE, &error);
    ck_assert_int_eq(error.status, PQTX_MISUSE);
    ck_assert_int_eq(marks(), 0);
}
END_TEST

START_TEST(a_savepoint_may_not_drive_the_run)
{
    pqtx_tx *tx = begin_on(own, NULL);
    ck_assert_int_eq(pqtx_savepoint(tx, _i ? commit_inside : attempt_inside, NULL), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_commit(tx), PQTX_MISUSE);
    end_and_free(tx, PQTX_MISUSE);
    assert_given_back(own);
    ck_assert_int_eq(marks(), 0);
}
END_TEST

static pqtx_status free_inside(pqtx_tx *tx, void *arg)
{
    (void)arg;
    pqtx_free(tx);
    return mark(tx);
}

START_TEST(a_body_cannot_free_its_own_run)
{
    ck_assert_int_eq(pqtx_run(pool, NULL, free_inside, NULL, NULL), PQTX_OK);
    ck_assert_int_eq(marks(), 1);
}
END_TEST

struct call {
    pqtx_tx *tx;
    pqtx_status status;
};

static void *update_account(void *arg)
{
    struct call *call = arg;
    call->status = pqtx_exec(call->tx, "UPDATE account SET value = value + 1", PQTX_NO_ARGS, NULL);
    return NULL;
}

START_TEST(a_second_thread_inside_is_misuse_and_harms_nothing)
{
    pthread_t thread;
    sql(other, "BEGIN; UPDATE account SET value = 10");
    struct call call = {.tx = begin_on(own, NULL)};
    mark(call.tx);
    ck_assert_int_eq(pthread_create(&thread, NULL, update_account, &call), 0);
    wait_for_blocked(monitor, PQbackendPID(other));
    assert_no_call_works(call.tx);
    ck_assert_int_eq(pqtx_attempt(call.tx), 0);
    sql(other, "COMMIT");
    pthread_join(thread, NULL);
    ck_assert_int_eq(call.status, PQTX_OK);
    commit_and_free(call.tx);
    ck_assert_int_eq(ask_int(monitor, "SELECT value FROM account"), 11);
    ck_assert_int_eq(marks(), 1);
}
END_TEST

/* ---- Wrong options, wrong errors, wrong arguments */

static void spoil(pqtx_options *options, int how)
{
    switch (how) {
    case 0:
        options->size = 0;
        break;
    case 1:
        options->isolation = (pqtx_isolation)4;
        break;
    case 2:
        options->isolation = (pqtx_isolation)-1;
        break;
    case 3:
        options->access = (pqtx_access)4;
        break;
    case 4:
        options->flags = 0x80000000u;
        break;
    case 5:
        options->retry_mask = 0x40000000u;
        break;
    case 6:
        options->lock_timeout_ms = -2;
        break;
    case 7:
        options->statement_timeout_ms = -1;
        break;
    case 8:
        options->deadline_ms = -1;
        break;
    case 9:
        options->max_attempts = -1;
        break;
    case 10:
        options->isolation = PQTX_ISO_READ_COMMITTED;
        options->flags = PQTX_PIN_SNAPSHOT;
        break;
    default:
        ck_abort();
    }
}

START_TEST(wrong_options_are_misuse_with_a_word_about_it)
{
    pqtx_options options = PQTX_OPTIONS;
    pqtx_error error = PQTX_ERROR;
    spoil(&options, _i);
    ck_assert_int_eq(pqtx_run(pool, &options, never, NULL, &error), PQTX_MISUSE);
    ck_assert_int_eq(error.status, PQTX_MISUSE);
    ck_assert_int_gt((int)strlen(error.message), 0);
    ck_assert_int_eq(pqtx_run_on(own, &options, never, NULL, NULL), PQTX_MISUSE);
    pqtx_tx *tx = pqtx_new(pool, &options);
    ck_assert_ptr_nonnull(tx);
    assert_no_call_works(tx);
    end_and_free(tx, PQTX_MISUSE);
}
END_TEST

static pqtx_status mark_only(pqtx_tx *tx, void *arg)
{
    (void)arg;
    return mark(tx);
}

START_TEST(a_run_needs_no_error)
{
    ck_assert_int_eq(pqtx_run(pool, NULL, mark_only, NULL, NULL), PQTX_OK);
    ck_assert_int_eq(marks(), 1);
}
END_TEST

START_TEST(a_run_without_trouble_has_an_empty_error)
{
    pqtx_error error = PQTX_ERROR, empty = PQTX_ERROR;
    char said[256];
    memset((char *)&error + sizeof error.size, 'x', sizeof error - sizeof error.size);
    ck_assert_int_eq(pqtx_run(pool, NULL, mark_only, NULL, &error), PQTX_OK);
    ck_assert_mem_eq(&error, &empty, offsetof(pqtx_error, sqlstate));
    pqtx_error_format(&error, said, sizeof said);
    ck_assert_str_eq(said, "ok");
}
END_TEST

START_TEST(an_error_without_its_size_is_misuse_and_nothing_is_run)
{
    pqtx_error error;
    memset(&error, _i ? 0xa5 : 0, sizeof error);
    ck_assert_int_eq(pqtx_run(pool, NULL, mark_only, NULL, &error), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_run_on(own, NULL, mark_only, NULL, &error), PQTX_MISUSE);
    ck_assert_int_eq(marks(), 0);
}
END_TEST

START_TEST(wrong_arguments_of_a_statement_are_misuse)
{
    static const pqtx_value values[1] = {{.type = (pqtx_type)77}};
    pqtx_error error = PQTX_ERROR;
    pqtx_tx *tx = begin_on(own, NULL);
    mark(tx);
    pqtx_status status = PQTX_OK;
    switch (_i) {
    case 0:
        status = pqtx_exec(tx, NULL, PQTX_NO_ARGS, NULL);
        break;
    case 1:
        status = pqtx_exec(tx, "SELECT $1::int", 1, NULL, NULL);
        break;
    case 2:
        status = pqtx_exec(tx, "SELECT 1", -1, NULL, NULL);
        break;
    case 3:
        status = pqtx_exec(tx, "SELECT $1::int", 1, values, NULL);
        break;
    case 4:
        status =
            pqtx_exec(tx, "SELECT $1::text", 1, (const pqtx_value[]){pqtx_text_n("a\0b", 3)}, NULL);
        break;
    case 5:
        status = pqtx_exec(tx, "SELECT $1::int, $2::int", PQTX_ARGS(PQTX_INT(1)), NULL);
        break;
    case 6:
        status = pqtx_exec(tx, "SELECT 1", 65536, values, NULL);
        break;
    case 7:
        status = pqtx_on_commit(tx, NULL, NULL);
        break;
    case 8:
        status = pqtx_on_rollback(tx, NULL, NULL);
        break;
    case 9:
        status = pqtx_savepoint(tx, NULL, NULL);
        break;
    default:
        ck_abort();
    }
    pqtx_get_error(tx, &error);
    assert_status(status, PQTX_MISUSE, &error);
    ck_assert_int_gt((int)strlen(error.message), 0);
    end_and_free(tx, PQTX_MISUSE);
    assert_given_back(own);
    ck_assert_int_eq(marks(), 0);
}
END_TEST

/* ---- Rows and results */

START_TEST(exec_one_wants_exactly_one_row)
{
    static const struct {
        const char *statement;
        pqtx_status status;
    } cases[] = {
        {"SELECT 1 WHERE false", PQTX_NO_MATCH},
        {"SELECT generate_series(1, 2)", PQTX_TOO_MANY},
        {"UPDATE account SET value = 1 WHERE id = 2", PQTX_NO_MATCH},
        {"INSERT INTO mark VALUES (1), (2)", PQTX_TOO_MANY},
        {"CREATE TABLE no_count ()", PQTX_MISUSE},
    };
    const PGresult *result = (const PGresult *)&cases;
    pqtx_tx *tx = begin_on(own, NULL);
    mark(tx);
    ck_assert_int_eq(pqtx_exec_one(tx, cases[_i].statement, PQTX_NO_ARGS, &result),
                     cases[_i].status);
    ck_assert_ptr_null(result);
    ck_assert_int_eq(pqtx_commit(tx), cases[_i].status);
    end_and_free(tx, cases[_i].status);
    ck_assert_int_eq(marks(), 0);
}
END_TEST

START_TEST(results_live_until_the_next_attempt)
{
    const PGresult *first, *second;
    pqtx_tx *tx = pqtx_new(pool, NULL);
    ck_assert_int_eq(pqtx_attempt(tx), 1);
    ck_assert_int_eq(pqtx_exec(tx, "SELECT 'first'", PQTX_NO_ARGS, &first), PQTX_OK);
    for (int i = 0; i < 100; i++)
        ck_assert_int_eq(pqtx_exec(tx, "SELECT 'another'", PQTX_NO_ARGS, &second), PQTX_OK);
    pqtx_fail(tx, PQTX_SERIALIZATION);
    ck_assert_str_eq(PQgetvalue(first, 0, 0), "first");
    pqtx_commit(tx);
    ck_assert_str_eq(PQgetvalue(first, 0, 0), "first");
    ck_assert_int_eq(pqtx_attempt(tx), 1);
    ck_assert_int_eq(pqtx_exec(tx, "SELECT 'second'", PQTX_NO_ARGS, &second), PQTX_OK);
    ck_assert_int_eq(pqtx_commit(tx), PQTX_OK);
    ck_assert_str_eq(PQgetvalue(second, 0, 0), "second");
    pqtx_free(tx);
}
END_TEST

START_TEST(no_result_comes_of_a_failed_statement)
{
    const PGresult *result = (const PGresult *)&pool;
    pqtx_tx *tx = begin_on(own, NULL);
    ck_assert_int_eq(pqtx_exec(tx, "SELECT 1/0", PQTX_NO_ARGS, &result), PQTX_BAD_DATA);
    ck_assert_ptr_null(result);
    result = (const PGresult *)&pool;
    ck_assert_int_eq(pqtx_exec(tx, "SELECT 1", PQTX_NO_ARGS, &result), PQTX_BAD_DATA);
    ck_assert_ptr_null(result);
    end_and_free(tx, PQTX_BAD_DATA);
}
END_TEST

/* ---- The wire */

START_TEST(a_large_value_goes_out_and_comes_back)
{
    size_t len = 16 * 1024 * 1024;
    char *text = malloc(len + 1);
    const PGresult *result;
    ck_assert_ptr_nonnull(text);
    for (size_t i = 0; i < len; i++)
        text[i] = (char)('a' + i * 7 % 26);
    text[len] = '\0';
    pqtx_tx *tx = begin_on(own, NULL);
    ck_assert_int_eq(
        pqtx_exec(tx, "SELECT $1::text, repeat('x', 1000000)", PQTX_ARGS(PQTX_TEXT(text)), &result),
        PQTX_OK);
    ck_assert_int_eq(PQgetlength(result, 0, 0), (int)len);
    ck_assert_int_eq(memcmp(PQgetvalue(result, 0, 0), text, len), 0);
    commit_and_free(tx);
    free(text);
}
END_TEST

START_TEST(many_rows_come_back)
{
    const PGresult *result;
    pqtx_tx *tx = pqtx_new(pool, NULL);
    ck_assert_int_eq(pqtx_attempt(tx), 1);
    ck_assert_int_eq(pqtx_exec(tx,
                               "SELECT n, repeat('x', 100) FROM generate_series(1, 100000) AS n",
                               PQTX_NO_ARGS, &result),
                     PQTX_OK);
    ck_assert_int_eq(PQntuples(result), 100000);
    ck_assert_str_eq(PQgetvalue(result, 99999, 0), "100000");
    commit_and_free(tx);
}
END_TEST

START_TEST(many_notices_do_no_harm)
{
    pqtx_tx *tx = pqtx_new(pool, NULL);
    ck_assert_int_eq(pqtx_attempt(tx), 1);
    mark(tx);
    ck_assert_int_eq(
        pqtx_exec(tx, "DO $$ BEGIN FOR i IN 1..20000 LOOP RAISE NOTICE 'again'; END LOOP; END $$",
                  PQTX_NO_ARGS, NULL),
        PQTX_OK);
    commit_and_free(tx);
    ck_assert_int_eq(marks(), 1);
}
END_TEST

START_TEST(a_statement_takes_all_the_parameters_the_protocol_has)
{
    enum { MOST = 65535, EACH = sizeof "($65535::int)," };
    char *statement = malloc((size_t)MOST * EACH + 64), *at = statement;
    pqtx_value *values = malloc(MOST * sizeof *values);
    const PGresult *row;
    int64_t sum = 0;
    ck_assert(statement && values);
    at += sprintf(at, "SELECT sum(n) FROM (VALUES ");
    for (int i = 1; i <= MOST; i++) {
        at += sprintf(at, "%s($%d::int)", i > 1 ? "," : "", i);
        values[i - 1] = pqtx_int(i);
    }
    sprintf(at, ") AS v(n)");
    pqtx_tx *tx = begin_on(own, NULL);
    ck_assert_int_eq(pqtx_exec_one(tx, statement, MOST, values, &row), PQTX_OK);
    ck_assert_int_eq(pqtx_get_int(row, 0, 0, &sum), PQTX_OK);
    ck_assert_int_eq(sum, (int64_t)MOST * (MOST + 1) / 2);
    ck_assert_int_eq(pqtx_exec(tx, statement, MOST + 1, values, NULL), PQTX_MISUSE);
    end_and_free(tx, PQTX_MISUSE);
    free(statement);
    free(values);
}
END_TEST

START_TEST(a_statement_of_nothing_is_no_failure)
{
    pqtx_tx *tx = begin_on(own, NULL);
    ck_assert_int_eq(pqtx_exec(tx, "", PQTX_NO_ARGS, NULL), PQTX_OK);
    ck_assert_int_eq(pqtx_exec(tx, "-- nothing", PQTX_NO_ARGS, NULL), PQTX_OK);
    mark(tx);
    commit_and_free(tx);
    ck_assert_int_eq(marks(), 1);
}
END_TEST

/* ---- Actions outside the database, each of which writes its letter down */

static char written[64];
static char letters[] = "abcdefghijklmnopqrstuvwxyz";

static void write_down(void *arg)
{
    size_t len = strlen(written);
    ck_assert_uint_lt(len + 1, sizeof written);
    written[len] = *(char *)arg;
    written[len + 1] = '\0';
}

static void promise(pqtx_tx *tx)
{
    ck_assert_int_eq(pqtx_on_commit(tx, write_down, &letters[0]), PQTX_OK);
    ck_assert_int_eq(pqtx_on_rollback(tx, write_down, &letters[23]), PQTX_OK);
    ck_assert_int_eq(pqtx_on_commit(tx, write_down, &letters[1]), PQTX_OK);
    ck_assert_int_eq(pqtx_on_rollback(tx, write_down, &letters[24]), PQTX_OK);
    ck_assert_int_eq(pqtx_on_commit(tx, write_down, &letters[2]), PQTX_OK);
    ck_assert_str_eq(written, "");
}

START_TEST(actions_on_commit_run_in_order_inside_it)
{
    pqtx_tx *tx = begin_on(own, NULL);
    mark(tx);
    promise(tx);
    ck_assert_int_eq(pqtx_commit(tx), PQTX_OK);
    ck_assert_str_eq(written, "abc");
    ck_assert_int_eq(pqtx_attempt(tx), 0);
    pqtx_free(tx);
    ck_assert_str_eq(written, "abc");
}
END_TEST

START_TEST(actions_on_commit_run_when_there_was_nothing_to_commit)
{
    pqtx_tx *tx = begin_on(own, NULL);
    promise(tx);
    commit_and_free(tx);
    ck_assert_str_eq(written, "abc");
}
END_TEST

START_TEST(actions_on_rollback_run_last_first)
{
    pqtx_tx *tx = begin_on(own, NULL);
    mark(tx);
    promise(tx);
    switch (_i) {
    case 0:
        pqtx_fail(tx, PQTX_STOPPED);
        end_and_free(tx, PQTX_STOPPED);
        break;
    case 1:
        pqtx_exec(tx, "SELECT 1/0", PQTX_NO_ARGS, NULL);
        ck_assert_int_eq(pqtx_commit(tx), PQTX_BAD_DATA);
        ck_assert_str_eq(written, "yx");
        end_and_free(tx, PQTX_BAD_DATA);
        break;
    case 2:
        end_and_free(tx, PQTX_MISUSE); /* left in silence */
        break;
    default:
        pqtx_free(tx);
    }
    ck_assert_str_eq(written, "yx");
}
END_TEST

START_TEST(actions_on_rollback_run_when_the_commit_fails)
{
    sql(other, "CREATE TABLE unique_mark (id int UNIQUE DEFERRABLE INITIALLY DEFERRED)");
    pqtx_tx *tx = begin_on(own, NULL);
    pqtx_exec(tx, "INSERT INTO unique_mark VALUES (1), (1)", PQTX_NO_ARGS, NULL);
    promise(tx);
    ck_assert_int_eq(pqtx_commit(tx), PQTX_DUPLICATE);
    ck_assert_str_eq(written, "yx");
    end_and_free(tx, PQTX_DUPLICATE);
    ck_assert_str_eq(written, "yx");
}
END_TEST

static pqtx_status promise_and_lose(pqtx_tx *tx, void *arg)
{
    int *runs = arg;
    written[0] = '\0';
    ++*runs;
    mark(tx);
    if (*runs < 3) {
        pqtx_on_rollback(tx, write_down, &letters[*runs]);
        return pqtx_fail(tx, PQTX_SERIALIZATION);
    }
    promise(tx);
    return PQTX_OK;
}

START_TEST(actions_are_forgotten_with_their_attempt)
{
    int runs = 0;
    ck_assert_int_eq(pqtx_run(pool, NULL, promise_and_lose, &runs, NULL), PQTX_OK);
    ck_assert_int_eq(runs, 3);
    ck_assert_str_eq(written, "abc");
}
END_TEST

static pqtx_tx *acting;
static pqtx_status acted;

static void call_in(void *arg)
{
    (void)arg;
    acted = mark(acting);
}

START_TEST(an_action_cannot_call_into_its_transaction)
{
    acting = begin_on(own, NULL);
    mark(acting);
    pqtx_on_commit(acting, call_in, NULL);
    commit_and_free(acting);
    ck_assert_int_eq(acted, PQTX_MISUSE);
    acted = PQTX_OK;
    acting = begin_on(own, NULL);
    mark(acting);
    pqtx_on_rollback(acting, call_in, NULL);
    pqtx_fail(acting, PQTX_STOPPED);
    end_and_free(acting, PQTX_STOPPED);
    ck_assert_int_eq(acted, PQTX_MISUSE);
    ck_assert_int_eq(marks(), 1);
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

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

static Suite *suite(void)
{
    Suite *suite = suite_create("live_tx");

    TCase *mode = add_case(suite, "mode");
    tcase_add_loop_test(mode, the_modes_reach_the_server, 0, COUNT(modes));
    add_direct_test(mode, without_a_mode_the_sessions_own_holds, SESSION_STATE);
    tcase_add_test(mode, the_first_statement_takes_the_snapshot);
    tcase_add_test(mode, begin_and_the_settings_take_no_snapshot);
    tcase_add_test(mode, a_pinned_snapshot_is_taken_before_the_body);

    TCase *timeout = add_case(suite, "timeout");
    add_direct_test(timeout, the_timeouts_hold_for_the_transaction_and_no_longer, SESSION_STATE);
    tcase_add_test(timeout, lock_timeout_is_never_longer_than_the_time_left);

    TCase *statement = add_case(suite, "statement");
    tcase_add_loop_test(statement, a_typed_end_of_the_transaction_is_misuse, 0, COUNT(typed));
    tcase_add_loop_test(statement, a_hidden_end_of_the_transaction_commits_nothing, 0,
                        COUNT(hidden));
    tcase_add_loop_test(statement, a_raised_error_is_neither_success_nor_doubt, 0, COUNT(raised));
    tcase_add_loop_test(statement, an_error_raised_at_commit_is_no_success, 0, COUNT(raised));

    TCase *lent = add_case(suite, "lent connection");
    tcase_add_test(lent, a_lent_connection_comes_back_as_it_was);
    tcase_add_test(lent, a_non_blocking_connection_stays_non_blocking);
    tcase_add_test(lent, between_attempts_a_lent_connection_is_the_callers);
    tcase_add_test(lent, a_connection_in_a_transaction_is_refused_and_left_alone);
    tcase_add_test(lent, a_connection_in_a_failed_transaction_is_refused);
    tcase_add_test(lent, a_busy_connection_is_refused_and_left_alone);
    tcase_add_test(lent, a_connection_in_a_pipeline_is_refused_and_left_alone);
    tcase_add_test(lent, a_connection_that_never_stood_is_no_connection);
    add_direct_loop_test(lent, a_lent_connection_that_is_lost_is_not_begun_again, 0, 1,
                         ANY_SESSION);
    tcase_add_loop_test(lent, a_lent_connection_that_is_lost_is_not_begun_again, 1, 2);
    tcase_add_loop_test(lent, a_run_inside_a_run_on_the_same_connection_is_misuse, 0, 2);
    add_direct_test(lent, what_the_server_notifies_reaches_the_caller, SESSION_STATE);

    TCase *misuse = add_case(suite, "misuse");
    tcase_add_test(misuse, every_call_takes_a_null_handle);
    tcase_add_test(misuse, a_run_on_nothing_is_misuse);
    tcase_add_test(misuse, before_the_first_attempt_no_call_works);
    tcase_add_test(misuse, after_the_commit_no_call_works_and_the_result_stands);
    tcase_add_test(misuse, after_a_failed_commit_no_call_works_and_the_failure_stands);
    tcase_add_loop_test(misuse, a_body_may_not_drive_its_own_run, 0, 2);
    tcase_add_loop_test(misuse, a_savepoint_may_not_drive_the_run, 0, 2);
    tcase_add_test(misuse, a_body_cannot_free_its_own_run);
    tcase_add_test(misuse, a_second_thread_inside_is_misuse_and_harms_nothing);
    tcase_add_loop_test(misuse, wrong_options_are_misuse_with_a_word_about_it, 0, 11);
    tcase_add_test(misuse, a_run_needs_no_error);
    tcase_add_test(misuse, a_run_without_trouble_has_an_empty_error);
    tcase_add_loop_test(misuse, an_error_without_its_size_is_misuse_and_nothing_is_run, 0, 2);
    tcase_add_loop_test(misuse, wrong_arguments_of_a_statement_are_misuse, 0, 10);

    TCase *result = add_case(suite, "result");
    tcase_add_loop_test(result, exec_one_wants_exactly_one_row, 0, 5);
    tcase_add_test(result, results_live_until_the_next_attempt);
    tcase_add_test(result, no_result_comes_of_a_failed_statement);

    TCase *wire = add_case(suite, "wire");
    tcase_add_test(wire, a_large_value_goes_out_and_comes_back);
    tcase_add_test(wire, many_rows_come_back);
    tcase_add_test(wire, many_notices_do_no_harm);
    tcase_add_test(wire, a_statement_takes_all_the_parameters_the_protocol_has);
    tcase_add_test(wire, a_statement_of_nothing_is_no_failure);

    TCase *action = add_case(suite, "action");
    tcase_add_test(action, actions_on_commit_run_in_order_inside_it);
    tcase_add_test(action, actions_on_commit_run_when_there_was_nothing_to_commit);
    tcase_add_loop_test(action, actions_on_rollback_run_last_first, 0, 4);
    tcase_add_test(action, actions_on_rollback_run_when_the_commit_fails);
    tcase_add_test(action, actions_are_forgotten_with_their_attempt);
    tcase_add_test(action, an_action_cannot_call_into_its_transaction);
    return suite;
}

int main(void)
{
    return run_suite(suite());
}
