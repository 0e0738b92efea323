/* check_live_flight.c: what a transaction in one flight may hold, what limits it, and what is told
 * about it, in each form. */
#define _DEFAULT_SOURCE
#include "support.h"
#include "support_cut.h"
#include "support_form.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SCHEMA "pqtx_flight"

static PGconn *monitor, *other; /* one who asks, and a rival */
static struct forms forms;
static pqtx_options options;

static void set_up(void)
{
    fresh_schema(SCHEMA);
    monitor = open_session();
    other = open_session();
    sql(monitor, "CREATE TABLE account (id int PRIMARY KEY, v bigint NOT NULL);"
                 "INSERT INTO account SELECT i, 10 * i FROM generate_series(1, 5) AS i;"
                 "CREATE TABLE log (line text);"
                 "CREATE PROCEDURE write_log() LANGUAGE sql"
                 " AS 'INSERT INTO " SCHEMA ".log VALUES (''called'')';"
                 "CREATE PROCEDURE write_and_commit() LANGUAGE plpgsql AS"
                 " 'BEGIN INSERT INTO " SCHEMA ".log VALUES (''called''); COMMIT; END'");
    forms_open(&forms);
}

static void tear_down(void)
{
    forms_close(&forms);
    PQfinish(monitor);
    PQfinish(other);
}

static pqtx_status write_log(pqtx_tx *tx)
{
    return pqtx_exec(tx, "INSERT INTO log VALUES ('x')", PQTX_NO_ARGS, NULL);
}

static int64_t log_lines(void)
{
    return ask_int(monitor, "SELECT count(*) FROM log");
}

static void choose(int form)
{
    options = form_options((enum form)form);
}

/* ---- Statements that need a transaction block, or refuse one */

struct special {
    const char *statement;
    bool refused;
    int64_t lines; /* that it writes itself */
};

static const struct special specials[] = {
    {"LOCK TABLE log IN SHARE ROW EXCLUSIVE MODE", false, 0},
    {"DECLARE mine CURSOR FOR SELECT v FROM account", false, 0},
    {"SET TimeZone = 'UTC'", false, 0},
    {"SET LOCAL work_mem = '1MB'", false, 0},
    {"SET CONSTRAINTS ALL DEFERRED", false, 0},
    {"RESET TimeZone", false, 0},
    {"SHOW TimeZone", false, 0},
    {"CALL write_log()", false, 1},
    {"DO $$ BEGIN INSERT INTO log VALUES ('done'); END $$", false, 1},
    {"NOTIFY channel, 'text'", false, 0},
    {"CREATE TABLE IF NOT EXISTS made (id int)", false, 0},
    {"CREATE INDEX ON log (line)", false, 0},
    {"COMMENT ON TABLE log IS 'text'", false, 0},
    {"ANALYZE log", false, 0},
    {"EXPLAIN SELECT 1", false, 0},
    {"WITH w AS (INSERT INTO log VALUES ('with') RETURNING 1) SELECT * FROM w", false, 1},
    {"(SELECT 1)", false, 0},
    {"", false, 0},
    {"VACUUM log", true, 0},
    {"CREATE DATABASE pqtx_never", true, 0},
    {"CREATE INDEX CONCURRENTLY ON log (line)", true, 0},
    {"REINDEX TABLE CONCURRENTLY log", true, 0},
    {"ALTER SYSTEM SET work_mem = '1MB'", true, 0},
    {"DISCARD ALL", true, 0},
    {"CALL write_and_commit()", true, 0},
    {"DO $$ BEGIN INSERT INTO log VALUES ('done'); COMMIT; END $$", true, 0},
};
enum { SPECIALS = sizeof specials / sizeof specials[0] };

static pqtx_error run_special(int form, const struct special *s, int before, int after)
{
    choose(form);
    pqtx_tx *tx = form_new(&forms, (enum form)form, &options);
    ck_assert_int_eq(pqtx_attempt(tx), 1);
    for (int i = 0; i < before; i++)
        ck_assert_int_eq(write_log(tx), PQTX_OK);
    ck_assert_int_eq(pqtx_exec(tx, s->statement, PQTX_NO_ARGS, NULL), PQTX_OK);
    for (int i = 0; i < after; i++)
        ck_assert_int_eq(write_log(tx), PQTX_OK);
    pqtx_commit(tx);
    pqtx_error error = error_of(tx);
    ck_assert_int_eq(pqtx_attempt(tx), 0);
    ck_assert_int_eq(pqtx_get_outcome(tx),
                     s->refused ? PQTX_OUTCOME_ROLLED_BACK : PQTX_OUTCOME_COMMITTED);
    pqtx_free(tx);
    return error;
}

/* What the statement comes to in a call that waits. */
static pqtx_error wait_for_special(const struct special *s)
{
    pqtx_error error = PQTX_ERROR;
    pqtx_tx *tx = pqtx_new_on(forms.own, NULL);
    ck_assert_int_eq(pqtx_attempt(tx), 1);
    pqtx_exec(tx, s->statement, PQTX_NO_ARGS, NULL);
    pqtx_get_error(tx, &error);
    pqtx_free(tx);
    return error;
}

START_TEST(a_statement_is_taken_or_refused_as_in_a_transaction_block)
{
    for (int i = 0; i < SPECIALS; i++) {
        const struct special *s = &specials[i];
        pqtx_error waited = wait_for_special(s);
        for (int place = 0; place < 4; place++) {
            int before = place & 1, after = place >> 1;
            sql(monitor, "TRUNCATE log");
            pqtx_error error = run_special(_i, s, before, after);
            ck_assert_msg(error.status == waited.status, "%s: %s, and %s where it waits",
                          s->statement, pqtx_status_name(error.status),
                          pqtx_status_name(waited.status));
            ck_assert_int_eq(error.status != PQTX_OK, s->refused);
            ck_assert_str_eq(error.sqlstate, waited.sqlstate);
            ck_assert_int_eq(error.call, s->refused ? before + 1 : 0);
            ck_assert_int_eq(log_lines(), s->refused ? 0 : before + after + s->lines);
        }
    }
    ck_assert_int_eq(
        ask_int(monitor, "SELECT count(*) FROM pg_database WHERE datname = 'pqtx_never'"), 0);
}
END_TEST

START_TEST(a_cursor_lives_as_long_as_its_transaction)
{
    const PGresult *first, *second;
    pqtx_tx *tx = form_begin(&forms, (enum form)_i);
    pqtx_exec(tx, "DECLARE mine CURSOR FOR SELECT v FROM account ORDER BY id", PQTX_NO_ARGS, NULL);
    pqtx_exec(tx, "FETCH 2 FROM mine", PQTX_NO_ARGS, &first);
    ck_assert_int_eq(pqtx_flush(tx), PQTX_OK);
    pqtx_update_one(tx, "UPDATE account SET v = 0 WHERE CURRENT OF mine", PQTX_NO_ARGS);
    pqtx_exec(tx, "FETCH ALL FROM mine", PQTX_NO_ARGS, &second);
    commit_as(tx, PQTX_OK);
    ck_assert_int_eq(PQntuples(first), 2);
    ck_assert_int_eq(PQntuples(second), 3);
    ck_assert_int_eq(ask_int(monitor, "SELECT v FROM account WHERE id = 2"), 0);
    pqtx_free(tx);
}
END_TEST

START_TEST(what_a_flight_creates_it_can_use)
{
    int64_t rows;
    pqtx_tx *tx = form_begin(&forms, (enum form)_i);
    pqtx_exec(tx, "CREATE TEMP TABLE mine (id int) ON COMMIT DROP", PQTX_NO_ARGS, NULL);
    pqtx_update(tx, "INSERT INTO mine SELECT generate_series(1, 3)", PQTX_NO_ARGS, &rows);
    pqtx_exec(tx, "PREPARE ours AS INSERT INTO log SELECT 'x' FROM mine", PQTX_NO_ARGS, NULL);
    pqtx_exec(tx, "EXECUTE ours", PQTX_NO_ARGS, NULL);
    pqtx_exec(tx, "DEALLOCATE ours", PQTX_NO_ARGS, NULL);
    commit_as(tx, PQTX_OK);
    ck_assert_int_eq(rows, 3);
    pqtx_free(tx);
    ck_assert_int_eq(log_lines(), 3);
}
END_TEST

START_TEST(a_setting_of_a_flight_that_failed_is_not_kept)
{
    const PGresult *row;
    pqtx_tx *tx = form_begin(&forms, (enum form)_i);
    pqtx_exec(tx, "SET application_name = 'changed'", PQTX_NO_ARGS, NULL);
    pqtx_exec(tx, "SELECT 1 / 0", PQTX_NO_ARGS, NULL);
    commit_as(tx, PQTX_BAD_DATA);
    pqtx_free(tx);
    tx = form_begin(&forms, (enum form)_i);
    pqtx_exec_one(tx, "SELECT current_setting('application_name') = 'changed'", PQTX_NO_ARGS, &row);
    commit_as(tx, PQTX_OK);
    ck_assert_str_eq(PQgetvalue(row, 0, 0), "f");
    pqtx_free(tx);
}
END_TEST

static void queue_notes(pqtx_tx *tx, bool fails)
{
    pqtx_exec(tx, "NOTIFY channel, 'statement'", PQTX_NO_ARGS, NULL);
    pqtx_exec_one(tx, "SELECT pg_notify('channel', $1)", PQTX_ARGS(PQTX_TEXT("function")), NULL);
    if (fails)
        pqtx_exec(tx, "SELECT 1 / 0", PQTX_NO_ARGS, NULL);
}

START_TEST(a_note_is_delivered_if_its_flight_committed)
{
    pqtx_tx *tx = form_begin(&forms, (enum form)_i);
    sql(other, "LISTEN channel");
    queue_notes(tx, true);
    commit_as(tx, PQTX_BAD_DATA);
    pqtx_free(tx);
    sql(other, "SELECT 1");
    ck_assert_ptr_null(PQnotifies(other));
    tx = form_begin(&forms, (enum form)_i);
    queue_notes(tx, false);
    commit_as(tx, PQTX_OK);
    pqtx_free(tx);
    sql(other, "SELECT 1");
    for (int i = 0; i < 2; i++) {
        PGnotify *note = PQnotifies(other);
        ck_assert_ptr_nonnull(note);
        ck_assert_str_eq(note->extra, i == 0 ? "statement" : "function");
        PQfreemem(note);
    }
}
END_TEST

START_TEST(a_flight_may_listen_on_the_callers_connection)
{
    pqtx_tx *tx = form_begin(&forms, FORM_OWN);
    pqtx_exec(tx, "LISTEN channel", PQTX_NO_ARGS, NULL);
    commit_as(tx, PQTX_OK);
    pqtx_free(tx);
    sql(other, "NOTIFY channel, 'text'");
    sql(forms.own, "SELECT 1");
    PGnotify *note = PQnotifies(forms.own);
    ck_assert_ptr_nonnull(note);
    PQfreemem(note);
}
END_TEST

/* ---- Levels, access, snapshots */

START_TEST(a_flight_has_the_level_and_access_that_were_asked_for)
{
    static const char *const levels[] = {"read committed", "read committed", "repeatable read",
                                         "serializable"};
    for (int level = PQTX_ISO_DEFAULT; level <= PQTX_ISO_SERIALIZABLE; level++)
        for (int access = PQTX_ACCESS_DEFAULT; access <= PQTX_ACCESS_DEFERRABLE; access++) {
            const PGresult *row;
            choose(_i);
            options.isolation = (pqtx_isolation)level;
            options.access = (pqtx_access)access;
            pqtx_tx *tx = form_new(&forms, (enum form)_i, &options);
            if (!pqtx_attempt(tx)) { /* deferrable makes no sense at every level */
                ck_assert_int_eq(pqtx_result(tx), PQTX_MISUSE);
                pqtx_free(tx);
                continue;
            }
            pqtx_exec_one(tx,
                          "SELECT current_setting('transaction_isolation'),"
                          " current_setting('transaction_read_only'),"
                          " current_setting('transaction_deferrable')",
                          PQTX_NO_ARGS, &row);
            commit_as(tx, PQTX_OK);
            ck_assert_str_eq(PQgetvalue(row, 0, 0), levels[level]);
            ck_assert_str_eq(PQgetvalue(row, 0, 1), access >= PQTX_ACCESS_READ_ONLY ? "on" : "off");
            ck_assert_str_eq(PQgetvalue(row, 0, 2),
                             access == PQTX_ACCESS_DEFERRABLE ? "on" : "off");
            pqtx_free(tx);
        }
}
END_TEST

START_TEST(a_flight_that_only_reads_must_not_write)
{
    const PGresult *row;
    choose(_i);
    options.access = PQTX_ACCESS_READ_ONLY;
    pqtx_tx *tx = form_new(&forms, (enum form)_i, &options);
    ck_assert_int_eq(pqtx_attempt(tx), 1);
    pqtx_exec(tx, "SELECT 1", PQTX_NO_ARGS, &row);
    write_log(tx);
    commit_as(tx, PQTX_READ_ONLY);
    ck_assert_int_eq(error_of(tx).call, 2);
    ck_assert_ptr_null(row);
    ck_assert_int_eq(pqtx_attempt(tx), 0);
    pqtx_free(tx);
    ck_assert_int_eq(log_lines(), 0);
}
END_TEST

#define GATE "735119900"

struct two_looks {
    int64_t first, second;
};

static pqtx_status look_twice(pqtx_tx *tx, void *arg)
{
    static const char count[] = "SELECT count(*) FROM account";
    struct two_looks *looks = arg;
    const PGresult *first, *second;
    pqtx_exec(tx, count, PQTX_NO_ARGS, &first);
    pqtx_exec(tx, "SELECT pg_advisory_xact_lock_shared(" GATE ")", PQTX_NO_ARGS, NULL);
    pqtx_exec(tx, count, PQTX_NO_ARGS, &second);
    pqtx_status status = pqtx_flush(tx);
    if (status == PQTX_OK)
        status = pqtx_get_int(first, 0, 0, &looks->first);
    return status == PQTX_OK ? pqtx_get_int(second, 0, 0, &looks->second) : status;
}

START_TEST(a_row_that_comes_in_the_middle_of_a_flight_is_seen_as_the_level_says)
{
    for (int level = PQTX_ISO_DEFAULT; level <= PQTX_ISO_SERIALIZABLE; level++) {
        struct two_looks looks = {0, 0};
        choose(_i);
        options.isolation = (pqtx_isolation)level;
        struct task task = form_task(&forms, (enum form)_i, &options, look_twice, &looks);
        int pid = form_backend(&forms, (enum form)_i);
        sql(other, "DELETE FROM account WHERE id > 5; SELECT pg_advisory_lock(" GATE ")");
        start_task(&task);
        wait_until_blocked(monitor, pid);
        sql(other, "INSERT INTO account VALUES (6, 0)");
        sql(other, "SELECT pg_advisory_unlock(" GATE ")");
        join_task(&task, PQTX_OK);
        ck_assert_int_eq(looks.first, 5);
        ck_assert_int_eq(looks.second, level >= PQTX_ISO_REPEATABLE_READ ? 5 : 6);
    }
}
END_TEST

START_TEST(a_pinned_snapshot_is_older_than_the_body)
{
    const PGresult *row;
    choose(_i);
    options.isolation = PQTX_ISO_REPEATABLE_READ;
    options.flags |= PQTX_PIN_SNAPSHOT;
    pqtx_tx *tx = form_new(&forms, (enum form)_i, &options);
    ck_assert_int_eq(pqtx_attempt(tx), 1);
    sql(other, "INSERT INTO account VALUES (6, 0)");
    pqtx_exec_one(tx, "SELECT count(*) FROM account", PQTX_NO_ARGS, &row);
    ck_assert_ptr_null(row);
    commit_as(tx, PQTX_OK);
    ck_assert_str_eq(PQgetvalue(row, 0, 0), "5");
    ck_assert_uint_eq(pqtx_queued(tx), 1);
    pqtx_free(tx);
}
END_TEST

/* ---- Settings */

static const char *setting(int form, const char *name)
{
    static char value[64];
    const PGresult *row;
    pqtx_tx *tx = form_new(&forms, (enum form)form, &options);
    ck_assert_int_eq(pqtx_attempt(tx), 1);
    pqtx_exec_one(tx, "SELECT current_setting($1, true)", PQTX_ARGS(PQTX_TEXT(name)), &row);
    commit_as(tx, PQTX_OK);
    snprintf(value, sizeof value, "%s", PQgetvalue(row, 0, 0));
    pqtx_free(tx);
    return value;
}

START_TEST(every_limit_is_in_force_in_the_flight_that_it_is_for)
{
    for (int turn = 0; turn < 3; turn++) {
        choose(_i);
        ck_assert_str_eq(setting(_i, "lock_timeout"), "5s");
        ck_assert_str_eq(setting(_i, "statement_timeout"), "0");
        options.lock_timeout_ms = 77;
        options.statement_timeout_ms = 8000;
        ck_assert_str_eq(setting(_i, "lock_timeout"), "77ms");
        ck_assert_str_eq(setting(_i, "statement_timeout"), "8s");
        options.lock_timeout_ms = PQTX_NO_TIMEOUT;
        ck_assert_str_eq(setting(_i, "lock_timeout"), "0");
        ck_assert_str_eq(setting(_i, "statement_timeout"), "8s");
        ck_assert_str_eq(setting(_i, "idle_in_transaction_session_timeout"), "0");
        options.flags |= PQTX_SERVER_DEADLINE;
        ck_assert_str_ne(setting(_i, "idle_in_transaction_session_timeout"), "0");
        ck_assert_str_eq(setting(_i, "lock_timeout"), "0");
    }
}
END_TEST

static bool server_can_look(void)
{
    return PQserverVersion(monitor) >= 140000 && strstr(ask(monitor, "SELECT version()"), "linux");
}

START_TEST(the_server_looks_for_its_client_while_a_flight_commits)
{
    choose(_i);
    const char *expected = server_can_look() ? "1s" : "0";
    for (int turn = 0; turn < 3; turn++)
        ck_assert_str_eq(setting(_i, "client_connection_check_interval"),
                         _i == FORM_OWN ? "0" : expected);
    /* … and in no other, nor afterwards. */
    options.flags = 0;
    if (server_can_look())
        ck_assert_str_eq(setting(_i, "client_connection_check_interval"), "0");
}
END_TEST

static pqtx_status add_one(pqtx_tx *tx, void *arg)
{
    (void)arg;
    write_log(tx);
    return pqtx_update_one(tx, "UPDATE account SET v = v + 1 WHERE id = 1", PQTX_NO_ARGS);
}

/* The lock is still held when its session has gone. */
START_TEST(a_flight_that_waits_for_a_lock_does_not_outlive_its_client)
{
    if (!server_can_look())
        return;
    struct cut *cut = cut_open();
    pqtx_pool_options pool_options = PQTX_POOL_OPTIONS;
    pqtx_pool *pool;
    char query[96];
    pool_options.conninfo = cut_conninfo(cut);
    assert_status(pqtx_pool_open(&pool_options, &pool, NULL), PQTX_OK, NULL);
    choose(_i);
    options.lock_timeout_ms = PQTX_NO_TIMEOUT;
    int pid = (int)run_for_pid(pool, NULL);
    struct task task = {.pool = pool, .options = &options, .work = add_one};
    sql(other, "BEGIN; UPDATE account SET v = v WHERE id = 1");
    start_task(&task);
    wait_until_blocked(monitor, pid);
    cut_now(cut);
    join_task(&task, PQTX_IN_DOUBT);
    snprintf(query, sizeof query, "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = %d", pid);
    wait_until_true(monitor, query);
    sql(other, "COMMIT");
    ck_assert_int_eq(log_lines(), 0);
    ck_assert_int_eq(ask_int(monitor, "SELECT v FROM account WHERE id = 1"), 10);
    pqtx_pool_close(pool);
    cut_close(cut);
}
END_TEST

/* ---- Limits that come true */

static const char *const obstacles[] = {"BEGIN; UPDATE account SET v = v WHERE id = 1",
                                        "BEGIN; LOCK TABLE account"};

/* Three times: as it is, being prepared, and prepared. */
START_TEST(a_lock_that_another_has_is_waited_for_as_long_as_lock_timeout_says)
{
    for (int i = 0; i < 2; i++) {
        choose(_i);
        options.lock_timeout_ms = 40;
        options.deadline_ms = 30000;
        options.retry_mask = PQTX_RETRY_NOTHING;
        sql(other, obstacles[i]);
        for (int turn = 0; turn < 3; turn++) {
            struct task task = form_task(&forms, (enum form)_i, &options, add_one, NULL);
            run_task(&task, PQTX_BUSY);
            ck_assert_str_eq(task.error.sqlstate, "55P03");
            ck_assert_int_eq(task.error.call, 2);
            ck_assert_int_eq(task.error.phase, PQTX_PHASE_BODY);
            ck_assert(took_at_most(&task, 50, options.deadline_ms));
            ck_assert_int_ge(task.elapsed_us, 40000);
        }
        sql(other, "ROLLBACK");
    }
    ck_assert_int_eq(log_lines(), 0);
}
END_TEST

static pqtx_status lock_for_seven_ms(pqtx_tx *tx, void *arg)
{
    write_log(tx);
    pqtx_set_lock_timeout(tx, 7);
    add_one(tx, arg);
    return pqtx_set_lock_timeout(tx, 0);
}

START_TEST(a_lock_timeout_of_one_call_ends_the_wait_of_that_call)
{
    choose(_i);
    options.lock_timeout_ms = PQTX_NO_TIMEOUT;
    options.retry_mask = PQTX_RETRY_NOTHING;
    sql(other, obstacles[0]);
    for (int turn = 0; turn < 3; turn++) {
        struct task task = form_task(&forms, (enum form)_i, &options, lock_for_seven_ms, NULL);
        run_task(&task, PQTX_BUSY);
        ck_assert_int_eq(task.error.call, 3);
    }
}
END_TEST

static pqtx_status sleep_long(pqtx_tx *tx, void *arg)
{
    (void)arg;
    write_log(tx);
    pqtx_exec(tx, "SELECT pg_sleep(600)", PQTX_NO_ARGS, NULL);
    return write_log(tx);
}

START_TEST(a_statement_timeout_ends_a_flight)
{
    choose(_i);
    options.statement_timeout_ms = 40;
    struct task task = form_task(&forms, (enum form)_i, &options, sleep_long, NULL);
    for (int turn = 0; turn < 3; turn++) {
        run_task(&task, PQTX_TIMEOUT);
        ck_assert_str_eq(task.error.sqlstate, "57014");
        ck_assert_int_eq(task.error.call, 2);
        ck_assert(!(task.error.flags & PQTX_ERROR_DEADLINE));
    }
    ck_assert_int_eq(log_lines(), 0);
}
END_TEST

START_TEST(a_strangers_cancel_is_told_from_a_timeout)
{
    choose(_i);
    struct task task = form_task(&forms, (enum form)_i, &options, sleep_long, NULL);
    char query[160];
    int pid = form_backend(&forms, (enum form)_i);
    snprintf(query, sizeof query,
             "SELECT count(pg_cancel_backend(pid)) = 1 FROM pg_stat_activity"
             " WHERE pid = %d AND wait_event = 'PgSleep'",
             pid);
    start_task(&task);
    wait_until_true(monitor, query);
    join_task(&task, PQTX_CANCELLED);
    ck_assert_int_eq(task.error.call, 2);
    ck_assert_int_eq(log_lines(), 0);
}
END_TEST

/* In time, certain, and the connection is as good as before. */
static void assert_ended(const struct task *task, int form, int pid)
{
    ck_assert(task->error.flags & PQTX_ERROR_DEADLINE);
    ck_assert(!(task->error.flags & PQTX_ERROR_CONNECTION));
    ck_assert(took_at_most(task, 200, options.deadline_ms));
    ck_assert_int_eq(form_backend(&forms, (enum form)form), pid);
    if (form != FORM_OWN)
        ck_assert_uint_eq(stats_of(forms.pool).drops, 0);
    ck_assert_uint_eq(stats_of(forms.pool).in_doubt, 0);
    ck_assert_int_eq(log_lines(), 0);
}

START_TEST(a_flight_that_waits_for_a_lock_ends_by_the_deadline)
{
    for (int i = 0; i < 2; i++) {
        choose(_i);
        options.lock_timeout_ms = PQTX_NO_TIMEOUT;
        options.deadline_ms = 2000;
        struct task task = form_task(&forms, (enum form)_i, &options, add_one, NULL);
        int pid = form_backend(&forms, (enum form)_i);
        sql(other, obstacles[i]);
        run_task(&task, PQTX_TIMEOUT);
        assert_ended(&task, _i, pid);
        ck_assert_int_eq(task.error.call, 2);
        sql(other, "ROLLBACK");
        run_task(&task, PQTX_OK);
        sql(monitor, "TRUNCATE log");
    }
}
END_TEST

START_TEST(a_flight_that_takes_too_long_ends_by_the_deadline)
{
    choose(_i);
    options.deadline_ms = 2000;
    struct task task = form_task(&forms, (enum form)_i, &options, sleep_long, NULL);
    int pid = form_backend(&forms, (enum form)_i);
    run_task(&task, PQTX_TIMEOUT);
    assert_ended(&task, _i, pid);
    ck_assert_int_eq(task.error.call, 2);
}
END_TEST

static pqtx_status write_late(pqtx_tx *tx, void *arg)
{
    (void)arg;
    return pqtx_exec(tx, "INSERT INTO slow VALUES (1)", PQTX_NO_ARGS, NULL);
}

/* A check that is deferred, and takes long: at COMMIT.  On the caller's connection a COMMIT cannot
 * be told from another's, and is not cancelled. */
START_TEST(a_commit_that_takes_too_long_ends_by_the_deadline)
{
    sql(monitor, "CREATE TABLE slow (id int);"
                 "CREATE FUNCTION sleep() RETURNS trigger LANGUAGE plpgsql AS"
                 " 'BEGIN PERFORM pg_sleep(600); RETURN NULL; END';"
                 "CREATE CONSTRAINT TRIGGER late AFTER INSERT ON slow DEFERRABLE"
                 " INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION sleep()");
    choose(_i);
    options.deadline_ms = 2000;
    struct task task = form_task(&forms, (enum form)_i, &options, write_late, NULL);
    int pid = form_backend(&forms, (enum form)_i);
    run_task(&task, PQTX_TIMEOUT);
    assert_ended(&task, _i, pid);
    ck_assert_int_eq(task.error.phase, PQTX_PHASE_COMMIT);
    ck_assert_int_eq(ask_int(monitor, "SELECT count(*) FROM slow"), 0);
}
END_TEST

static pqtx_status flush_long(pqtx_tx *tx, void *arg)
{
    sleep_long(tx, arg);
    return pqtx_flush(tx);
}

START_TEST(a_flush_ends_by_the_deadline)
{
    choose(_i);
    options.deadline_ms = 2000;
    struct task task = form_task(&forms, (enum form)_i, &options, flush_long, NULL);
    int pid = form_backend(&forms, (enum form)_i);
    run_task(&task, PQTX_TIMEOUT);
    assert_ended(&task, _i, pid);
}
END_TEST

START_TEST(a_busy_row_is_tried_until_the_deadline_and_then_given_up)
{
    choose(_i);
    options.lock_timeout_ms = 30;
    options.deadline_ms = 2000;
    options.max_attempts = 1000000;
    options.wait_max_ms = 10;
    struct task task = form_task(&forms, (enum form)_i, &options, add_one, NULL);
    sql(other, obstacles[0]);
    start_task(&task);
    pthread_join(task.thread, NULL);
    /* The time is up after a wait for the lock, or before the next one. */
    ck_assert(task.status == PQTX_BUSY || task.status == PQTX_TIMEOUT);
    ck_assert(task.error.flags & PQTX_ERROR_DEADLINE);
    ck_assert(took_at_most(&task, 200, options.deadline_ms));
    ck_assert_uint_gt(task.error.attempt, 2);
    ck_assert_int_eq(log_lines(), 0);
}
END_TEST

/* ---- An event is applied once */

static void install(void)
{
    assert_status(pqtx_once_install(forms.pool, SCHEMA, NULL), PQTX_OK, NULL);
}

static pqtx_tx *begin_event(int form, const char *id)
{
    choose(form);
    options.event_id = id;
    options.once_schema = SCHEMA;
    pqtx_tx *tx = form_new(&forms, (enum form)form, &options);
    return tx;
}

START_TEST(an_event_is_applied_once_and_its_answer_kept)
{
    char answer[8];
    size_t len;
    install();
    pqtx_tx *tx = begin_event(_i, "event");
    ck_assert_int_eq(pqtx_attempt(tx), 1);
    write_log(tx);
    ck_assert_int_eq(pqtx_once_store(tx, "first", 5), PQTX_OK);
    write_log(tx);
    commit_as(tx, PQTX_OK);
    pqtx_free(tx);
    for (int turn = 0; turn < 3; turn++) {
        tx = begin_event(_i, "event");
        ck_assert_int_eq(pqtx_attempt(tx), 0);
        ck_assert_int_eq(pqtx_result(tx), PQTX_DONE_BEFORE);
        ck_assert_int_eq(pqtx_once_answer(tx, answer, sizeof answer, &len), PQTX_OK);
        ck_assert_uint_eq(len, 5);
        ck_assert_mem_eq(answer, "first", 5);
        pqtx_free(tx);
    }
    ck_assert_int_eq(log_lines(), 2);
}
END_TEST

START_TEST(an_event_whose_flight_failed_is_left_to_the_next)
{
    install();
    pqtx_tx *tx = begin_event(_i, "event");
    ck_assert_int_eq(pqtx_attempt(tx), 1);
    write_log(tx);
    pqtx_update_one(tx, "UPDATE account SET v = 0 WHERE id = 9", PQTX_NO_ARGS);
    commit_as(tx, PQTX_NO_MATCH);
    ck_assert_int_eq(error_of(tx).call, 2);
    pqtx_free(tx);
    ck_assert_int_eq(ask_int(monitor, "SELECT count(*) FROM pqtx_once"), 0);
    tx = begin_event(_i, "event");
    ck_assert_int_eq(pqtx_attempt(tx), 1);
    write_log(tx);
    commit_as(tx, PQTX_OK);
    pqtx_free(tx);
    ck_assert_int_eq(log_lines(), 1);
}
END_TEST

START_TEST(a_token_is_written_in_the_same_flight)
{
    install();
    choose(_i);
    options.in_doubt = PQTX_DOUBT_TOKEN;
    options.once_schema = SCHEMA;
    for (int64_t turn = 1; turn <= 3; turn++) {
        pqtx_tx *tx = form_new(&forms, (enum form)_i, &options);
        ck_assert_int_eq(pqtx_attempt(tx), 1);
        write_log(tx);
        commit_as(tx, PQTX_OK);
        pqtx_free(tx);
        ck_assert_int_eq(ask_int(monitor, "SELECT count(DISTINCT id) FROM pqtx_once"), turn);
    }
    options.once_schema = "public_and_absent";
    pqtx_tx *tx = form_new(&forms, (enum form)_i, &options);
    ck_assert_int_eq(pqtx_attempt(tx), 1);
    write_log(tx);
    commit_as(tx, PQTX_BAD_STATEMENT);
    ck_assert_int_eq(error_of(tx).call, 0);
    ck_assert_ptr_nonnull(strstr(error_of(tx).hint, "pqtx_once_install()"));
    pqtx_free(tx);
    ck_assert_int_eq(log_lines(), 3);
}
END_TEST

/* ---- What is told */

static void count_up(void *arg)
{
    ++*(int *)arg;
}

static pqtx_status count_inside(pqtx_tx *tx, void *counts)
{
    pqtx_on_commit(tx, count_up, (int *)counts);
    pqtx_on_rollback(tx, count_up, (int *)counts + 1);
    write_log(tx);
    return PQTX_STOPPED;
}

START_TEST(actions_run_when_the_flight_has_come_to_an_end)
{
    int inside[2] = {0, 0}, counts[2] = {0, 0};
    choose(_i);
    pqtx_tx *tx = form_new(&forms, (enum form)_i, &options);
    while (pqtx_attempt(tx)) {
        pqtx_on_commit(tx, count_up, &counts[0]);
        pqtx_on_rollback(tx, count_up, &counts[1]);
        ck_assert_int_eq(pqtx_savepoint(tx, count_inside, inside), PQTX_STOPPED);
        ck_assert_int_eq(inside[1], pqtx_attempts(tx));
        write_log(tx);
        if (pqtx_attempts(tx) < 3)
            pqtx_exec(tx, "DO $$ BEGIN RAISE USING ERRCODE = '40001'; END $$", PQTX_NO_ARGS, NULL);
        ck_assert_int_eq(counts[0], 0);
        ck_assert_int_eq(counts[1], pqtx_attempts(tx) - 1);
        pqtx_commit(tx);
    }
    ck_assert_int_eq(pqtx_result(tx), PQTX_OK);
    ck_assert_int_eq(counts[0], 1);
    ck_assert_int_eq(counts[1], 2);
    ck_assert_int_eq(inside[0], 0);
    pqtx_free(tx);
    ck_assert_int_eq(log_lines(), 1);
}
END_TEST

struct told {
    char events[1024];
};

static void tell(const pqtx_event *event, void *arg)
{
    static const char *const types[] = {"", "attempt", "failed", "wait", "end", "notice"};
    struct told *told = arg;
    size_t at = strlen(told->events);
    const char *heard = event->type == PQTX_EVENT_NOTICE ? event->message : "";
    snprintf(told->events + at, sizeof told->events - at, "%s %u %s %s %s|", types[event->type],
             event->attempt, pqtx_phase_name(event->phase), pqtx_status_name(event->status), heard);
}

/* Every call says something, and the first of them loses a race. */
static void make_loser(void)
{
    sql(monitor, "CREATE SEQUENCE tries;"
                 "CREATE FUNCTION lose_once() RETURNS bigint LANGUAGE plpgsql AS"
                 " 'BEGIN RAISE NOTICE ''hear''; IF nextval(''tries'') = 1 THEN"
                 " RAISE ''lost'' USING ERRCODE = ''40001''; END IF; RETURN 1; END'");
}

static pqtx_status lose(pqtx_tx *tx, void *arg)
{
    (void)arg;
    write_log(tx);
    return pqtx_exec_one(tx, "SELECT lose_once()", PQTX_NO_ARGS, NULL);
}

START_TEST(the_observer_is_told_of_a_flight_as_of_a_body_that_waits)
{
    struct told told[2] = {{""}, {""}};
    make_loser();
    for (int waits = 0; waits < 2; waits++) {
        choose(_i);
        if (waits)
            options.flags = 0;
        options.observer = tell;
        options.observer_arg = &told[waits];
        struct task task = form_task(&forms, (enum form)_i, &options, lose, NULL);
        sql(monitor, "ALTER SEQUENCE tries RESTART");
        run_task(&task, PQTX_OK);
    }
    ck_assert_str_eq(told[0].events, told[1].events);
    ck_assert_ptr_nonnull(strstr(told[0].events, "failed 1 body serialization |wait 1 "));
    ck_assert_ptr_nonnull(strstr(told[0].events, "end 2 none ok |"));
    ck_assert_int_eq(_i != FORM_OWN, strstr(told[0].events, "notice 2 body ok hear|") != NULL);
}
END_TEST

START_TEST(statistics_and_evidence_count_a_flight_as_any_other_attempt)
{
    pqtx_evidence evidence = PQTX_EVIDENCE;
    make_loser();
    choose(_i);
    options.evidence = &evidence;
    pqtx_stats before = stats_of(forms.pool);
    struct task task = form_task(&forms, (enum form)_i, &options, lose, NULL);
    run_task(&task, PQTX_OK);
    ck_assert_uint_eq(evidence.count, 1);
    const pqtx_record *record = &evidence.records[0];
    ck_assert_uint_eq(record->attempt, 1);
    ck_assert_int_eq(record->status, PQTX_SERIALIZATION);
    ck_assert_int_eq(record->phase, PQTX_PHASE_BODY);
    ck_assert_int_eq(record->origin, PQTX_ORIGIN_SERVER);
    ck_assert_str_eq(record->sqlstate, "40001");
    ck_assert_str_eq(record->message, "lost");
    pqtx_stats after = stats_of(forms.pool);
    uint64_t one = _i == FORM_OWN ? 0 : 1;
    ck_assert_uint_eq(after.starts - before.starts, one);
    ck_assert_uint_eq(after.attempts - before.attempts, 2 * one);
    ck_assert_uint_eq(after.commits - before.commits, one);
    ck_assert_uint_eq(after.rollbacks - before.rollbacks, 0);
    ck_assert_uint_eq(after.retries_serialization - before.retries_serialization, one);
    ck_assert_uint_eq(after.drops, 0);
    ck_assert_int_eq(log_lines(), 1);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("live_flight");
    TCase *c = tcase_create("flight");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_set_timeout(c, 60);
    tcase_add_loop_test(c, a_statement_is_taken_or_refused_as_in_a_transaction_block, 0, FORMS);
    tcase_add_loop_test(c, a_cursor_lives_as_long_as_its_transaction, 0, FORMS);
    tcase_add_loop_test(c, what_a_flight_creates_it_can_use, 0, FORMS);
    tcase_add_loop_test(c, a_setting_of_a_flight_that_failed_is_not_kept, 0, FORMS);
    tcase_add_loop_test(c, a_note_is_delivered_if_its_flight_committed, 0, FORMS);
    tcase_add_test(c, a_flight_may_listen_on_the_callers_connection);
    tcase_add_loop_test(c, a_flight_has_the_level_and_access_that_were_asked_for, 0, FORMS);
    tcase_add_loop_test(c, a_flight_that_only_reads_must_not_write, 0, FORMS);
    tcase_add_loop_test(c, a_row_that_comes_in_the_middle_of_a_flight_is_seen_as_the_level_says, 0,
                        FORMS);
    tcase_add_loop_test(c, a_pinned_snapshot_is_older_than_the_body, 0, FORMS);
    tcase_add_loop_test(c, every_limit_is_in_force_in_the_flight_that_it_is_for, 0, FORMS);
    tcase_add_loop_test(c, the_server_looks_for_its_client_while_a_flight_commits, 0, FORMS);
    tcase_add_loop_test(c, a_flight_that_waits_for_a_lock_does_not_outlive_its_client, 0, FORMS);
    tcase_add_loop_test(c, a_lock_that_another_has_is_waited_for_as_long_as_lock_timeout_says, 0,
                        FORMS);
    tcase_add_loop_test(c, a_lock_timeout_of_one_call_ends_the_wait_of_that_call, 0, FORMS);
    tcase_add_loop_test(c, a_statement_timeout_ends_a_flight, 0, FORMS);
    tcase_add_loop_test(c, a_strangers_cancel_is_told_from_a_timeout, 0, FORMS);
    tcase_add_loop_test(c, a_flight_that_waits_for_a_lock_ends_by_the_deadline, 0, FORMS);
    tcase_add_loop_test(c, a_flight_that_takes_too_long_ends_by_the_deadline, 0, FORMS);
    tcase_add_loop_test(c, a_commit_that_takes_too_long_ends_by_the_deadline, 0, FORM_OWN);
    tcase_add_loop_test(c, a_flush_ends_by_the_deadline, 0, FORMS);
    tcase_add_loop_test(c, a_busy_row_is_tried_until_the_deadline_and_then_given_up, 0, FORMS);
    tcase_add_loop_test(c, an_event_is_applied_once_and_its_answer_kept, 0, FORMS);
    tcase_add_loop_test(c, an_event_whose_flight_failed_is_left_to_the_next, 0, FORMS);
    tcase_add_loop_test(c, a_token_is_written_in_the_same_flight, 0, FORMS);
    tcase_add_loop_test(c, actions_run_when_the_flight_has_come_to_an_end, 0, FORMS);
    tcase_add_loop_test(c, the_observer_is_told_of_a_flight_as_of_a_body_that_waits, 0, FORMS);
    tcase_add_loop_test(c, statistics_and_evidence_count_a_flight_as_any_other_attempt, 0, FORMS);
    suite_add_tcase(s, c);
    return s;
}

int main(void)
{
    return run_suite(suite());
}
