/* check_live_deadline.c: every call ends in time, whatever the server, the network or another
 * session does, and leaves the connection clean or drops it. */
#define _DEFAULT_SOURCE
#include "support.h"
#include "support_clock.h"
#include "support_pooler.h"
#include "support_proxy.h"
#include "support_tx.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#define DEADLINE_MS (is_pooled() ? 1000 : 1500)

static PGconn *monitor, *holder; /* one who asks, and one who is in the way */
static pqtx_options options;     /* of the run that is tried */

static void set_up(void)
{
    char name[32];
    snprintf(name, sizeof name, "check_deadline_%d", (int)getpid());
    setenv("PGAPPNAME", name, 1); /* tells this test's sessions from all others */
    fresh_schema("pqtx_deadline");
    monitor = open_session();
    holder = open_session();
    sql(monitor, "CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 0), (2, 0)");
    options = (pqtx_options)PQTX_OPTIONS;
    options.deadline_ms = DEADLINE_MS;
}

static void tear_down(void)
{
    if (is_pooled())
        pooler_end_orphans(monitor);
    PQfinish(monitor);
    PQfinish(holder);
}

static pqtx_pool *open_on(const char *conninfo, uint32_t flags)
{
    pqtx_pool_options pool_options = PQTX_POOL_OPTIONS;
    pqtx_error error = PQTX_ERROR;
    pqtx_pool *pool;
    pool_options.conninfo = conninfo;
    pool_options.max_count = 2;
    pool_options.flags = flags;
    assert_status(pqtx_pool_open(&pool_options, &pool, &error), PQTX_OK, &error);
    return pool;
}

static pqtx_status run_sql(pqtx_tx *tx, void *statement)
{
    return pqtx_exec(tx, statement, PQTX_NO_ARGS, NULL);
}

static struct task task_of(pqtx_pool *pool, const char *statement)
{
    return (struct task){
        .pool = pool, .options = &options, .work = run_sql, .arg = (void *)(uintptr_t)statement};
}

static void lock_row(void)
{
    sql(holder, "BEGIN; UPDATE t SET v = v WHERE id = 1");
}

static bool ended_in_time(const struct task *task)
{
    return took_at_most(task, 200, options.deadline_ms);
}

/* The next transaction has the same backend, and that has nothing of the last one about it. */
static void assert_kept(pqtx_pool *pool, int64_t pid)
{
    const PGresult *row;
    char query[128];
    ck_assert_uint_eq(stats_of(pool).drops, 0);
    snprintf(query, sizeof query, "SELECT state = 'idle' FROM pg_stat_activity WHERE pid = %d",
             (int)pid);
    wait_until_true(monitor, query);
    pqtx_options plain = PQTX_OPTIONS;
    plain.lock_timeout_ms = PQTX_NO_TIMEOUT;
    pqtx_tx *tx = pqtx_new(pool, &plain);
    ck_assert_int_eq(pqtx_attempt(tx), 1);
    assert_status(pqtx_exec_one(tx, "SELECT pg_backend_pid(), current_setting('lock_timeout')",
                                PQTX_NO_ARGS, &row),
                  PQTX_OK, NULL);
    ck_assert_int_eq(strtoll(PQgetvalue(row, 0, 0), NULL, 10), pid);
    ck_assert_str_eq(PQgetvalue(row, 0, 1), "0");
    end_tx(tx);
}

static void assert_dropped(pqtx_pool *pool, int64_t pid)
{
    ck_assert_uint_eq(stats_of(pool).drops, 1);
    /* A pooler may have rolled back, and lend the same backend again. */
    ck_assert(run_for_pid(pool, NULL) != pid || is_pooled());
}

/* ---- waiting for a lock */

static const char update_row[] = "UPDATE t SET v = v + 1 WHERE id = 1";

START_TEST(a_locked_row_is_busy_after_the_lock_timeout_and_little_more)
{
    pqtx_pool *pool = open_pool(1);
    int64_t pid = run_for_pid(pool, NULL);
    struct task task = task_of(pool, update_row);
    options.lock_timeout_ms = 500;
    options.deadline_ms = 30000;
    options.retry_mask = PQTX_RETRY_SERIALIZATION;
    lock_row();
    int tries = 0;
    do /* a busy machine may be late, but not each time */
        run_task(&task, PQTX_BUSY);
    while (!took_at_most(&task, 120, options.lock_timeout_ms) && ++tries < 3);
    ck_assert_msg(tries < 3, "never within lock_timeout + 20 %%");
    ck_assert_str_eq(task.error.sqlstate, "55P03");
    ck_assert(!took_at_most(&task, 99, options.lock_timeout_ms));
    assert_kept(pool, pid);
    sql(holder, "ROLLBACK");
    run_task(&task, PQTX_OK);
    pqtx_pool_close(pool);
}
END_TEST

START_TEST(a_row_that_stays_locked_is_tried_again_until_the_deadline)
{
    pqtx_pool *pool = open_pool(1);
    struct task task = task_of(pool, update_row);
    options.lock_timeout_ms = DEADLINE_MS / 10;
    options.max_attempts = 1000;
    lock_row();
    run_task(&task, PQTX_BUSY);
    ck_assert(task.error.flags & PQTX_ERROR_DEADLINE);
    ck_assert_uint_gt(stats_of(pool).retries_busy, 1);
    ck_assert(ended_in_time(&task));
    pqtx_pool_close(pool);
}
END_TEST

START_TEST(a_lock_timeout_longer_than_the_deadline_still_says_busy)
{
    pqtx_pool *pool = open_pool(1);
    int64_t pid = run_for_pid(pool, NULL);
    struct task task = task_of(pool, update_row);
    options.lock_timeout_ms = 100 * DEADLINE_MS;
    options.retry_mask = PQTX_RETRY_SERIALIZATION;
    lock_row();
    run_task(&task, PQTX_BUSY);
    ck_assert(ended_in_time(&task));
    assert_kept(pool, pid);
    pqtx_pool_close(pool);
}
END_TEST

/* ---- cancelling */

static void assert_cancelled(struct task *task, int64_t pid)
{
    options.deadline_ms =
        2 * DEADLINE_MS; /* connecting and cancelling must fit into its last tenth */
    run_task(task, PQTX_TIMEOUT);
    ck_assert(task->error.flags & PQTX_ERROR_DEADLINE);
    ck_assert_int_eq(task->error.phase, PQTX_PHASE_BODY);
    ck_assert(ended_in_time(task));
    assert_kept(task->pool, pid);
}

START_TEST(a_statement_that_runs_past_the_deadline_is_cancelled)
{
    pqtx_pool *pool = open_pool(1);
    struct task task = task_of(pool, "SELECT pg_sleep(600)");
    assert_cancelled(&task, run_for_pid(pool, NULL));
    pqtx_pool_close(pool);
}
END_TEST

START_TEST(a_wait_without_a_lock_timeout_is_cancelled)
{
    pqtx_pool *pool = open_pool(1);
    struct task task = task_of(pool, update_row);
    options.lock_timeout_ms = PQTX_NO_TIMEOUT;
    lock_row();
    assert_cancelled(&task, run_for_pid(pool, NULL));
    pqtx_pool_close(pool);
}
END_TEST

static pqtx_status wait_for_advisory_lock(pqtx_tx *tx, void *arg)
{
    (void)arg;
    pqtx_set_lock_timeout(tx, PQTX_NO_TIMEOUT);
    return pqtx_lock(tx, 4711);
}

START_TEST(a_wait_for_an_advisory_lock_is_cancelled)
{
    pqtx_pool *pool = open_pool(1);
    struct task task = {.pool = pool, .options = &options, .work = wait_for_advisory_lock};
    sql(holder, "BEGIN; SELECT pg_advisory_xact_lock(4711)");
    assert_cancelled(&task, run_for_pid(pool, NULL));
    pqtx_pool_close(pool);
}
END_TEST

static pqtx_status change_row(pqtx_tx *tx, void *arg)
{
    pqtx_change change = PQTX_CHANGE;
    (void)arg;
    change.table = "t";
    change.key = "id = 1";
    change.condition = "v >= 0";
    change.set = "v = v + 1";
    return pqtx_update_if(tx, &change, PQTX_NO_ARGS, NULL);
}

START_TEST(a_conditional_change_that_waits_past_the_deadline_is_cancelled)
{
    pqtx_pool *pool = open_pool(1);
    struct task task = {.pool = pool, .options = &options, .work = change_row};
    options.lock_timeout_ms = PQTX_NO_TIMEOUT;
    lock_row();
    assert_cancelled(&task, run_for_pid(pool, NULL));
    pqtx_pool_close(pool);
}
END_TEST

START_TEST(a_long_statement_beyond_ascii_is_cancelled)
{
    char statement[20000] = "SELECT pg_sleep(600) -- ";
    while (strlen(statement) < sizeof statement - 3)
        strcat(statement, "\xc3\xa9");
    pqtx_pool *pool = open_pool(1);
    struct task task = task_of(pool, statement);
    assert_cancelled(&task, run_for_pid(pool, NULL));
    pqtx_pool_close(pool);
}
END_TEST

START_TEST(decoys_in_the_search_path_do_not_keep_a_cancel_away)
{
    char conninfo[4096];
    sql(monitor,
        "DROP SCHEMA IF EXISTS pqtx_decoys CASCADE; CREATE SCHEMA pqtx_decoys;"
        "CREATE FUNCTION pqtx_decoys.pg_cancel_backend(int) RETURNS bool LANGUAGE sql"
        " AS 'SELECT true';"
        "CREATE FUNCTION pqtx_decoys.left(text, int) RETURNS text LANGUAGE sql AS 'SELECT $1 || 1';"
        "CREATE FUNCTION pqtx_decoys.never(text, text) RETURNS bool LANGUAGE sql"
        " AS 'SELECT false';"
        "CREATE OPERATOR pqtx_decoys.= (LEFTARG = text, RIGHTARG = text,"
        " FUNCTION = pqtx_decoys.never);"
        "CREATE VIEW pqtx_decoys.pg_stat_activity AS SELECT 0 AS pid WHERE false");
    snprintf(conninfo, sizeof conninfo,
             "%s options='-c search_path=pqtx_decoys,pg_catalog,pqtx_deadline'", test_conninfo());
    pqtx_pool *pool = open_on(conninfo, 0);
    struct task task = task_of(pool, "SELECT pg_sleep(600)");
    assert_cancelled(&task, run_for_pid(pool, NULL));
    pqtx_pool_close(pool);
    sql(monitor, "DROP SCHEMA pqtx_decoys CASCADE");
}
END_TEST

START_TEST(the_callers_connection_survives_a_cancelled_statement)
{
    PGconn *own = open_own();
    int pid = PQbackendPID(own);
    options.deadline_ms = 2 * DEADLINE_MS;
    struct task task = {.conn = own,
                        .options = &options,
                        .work = run_sql,
                        .arg = (void *)(uintptr_t) "SELECT pg_sleep(600)"};
    run_task(&task, PQTX_TIMEOUT);
    ck_assert(ended_in_time(&task));
    ck_assert(!(task.error.flags & PQTX_ERROR_CONNECTION));
    ck_assert_int_eq(PQtransactionStatus(own), PQTRANS_IDLE);
    ck_assert_int_eq(PQpipelineStatus(own), PQ_PIPELINE_OFF);
    ck_assert_int_eq(PQisnonblocking(own), 0);
    ck_assert_int_eq(ask_int(own, "SELECT pg_backend_pid()"), pid);
    ck_assert_str_eq(ask(own, "SHOW lock_timeout"), "0");
    PQfinish(own);
}
END_TEST

START_TEST(a_statement_timeout_is_not_the_deadline)
{
    pqtx_pool *pool = open_pool(1);
    int64_t pid = run_for_pid(pool, NULL);
    struct task task = task_of(pool, "SELECT pg_sleep(600)");
    options.statement_timeout_ms = DEADLINE_MS / 10;
    run_task(&task, PQTX_TIMEOUT);
    ck_assert(!(task.error.flags & PQTX_ERROR_DEADLINE));
    ck_assert_str_eq(task.error.sqlstate, "57014");
    assert_kept(pool, pid);
    pqtx_pool_close(pool);
}
END_TEST

START_TEST(a_strangers_cancel_is_told_from_a_timeout)
{
    char statement[128];
    pqtx_pool *pool = open_pool(1);
    int64_t pid = run_for_pid(pool, NULL);
    struct task task = task_of(pool, "SELECT pg_sleep(600)");
    options.deadline_ms = 60000;
    options.statement_timeout_ms = 60000;
    start_task(&task);
    snprintf(statement, sizeof statement,
             "SELECT wait_event = 'PgSleep' FROM pg_stat_activity WHERE pid = %d", (int)pid);
    wait_until_true(monitor, statement);
    snprintf(statement, sizeof statement, "SELECT pg_cancel_backend(%d)", (int)pid);
    sql(monitor, statement);
    join_task(&task, PQTX_CANCELLED);
    assert_kept(pool, pid);
    pqtx_pool_close(pool);
}
END_TEST

/* ---- when cancelling is impossible */

static void terminate(int64_t pid)
{
    char statement[64];
    snprintf(statement, sizeof statement, "SELECT pg_terminate_backend(%d)", (int)pid);
    sql(monitor, statement);
}

START_TEST(without_a_connection_to_cancel_on_this_one_is_dropped_in_time)
{
    char conninfo[4096];
    sql(monitor, "CREATE ROLE pqtx_lonely LOGIN CONNECTION LIMIT 1");
    snprintf(conninfo, sizeof conninfo, "%s user=pqtx_lonely", test_conninfo());
    pqtx_pool *pool = open_on(conninfo, 0);
    int64_t pid = run_for_pid(pool, NULL);
    struct task task = task_of(pool, "SELECT pg_sleep(600)");
    run_task(&task, PQTX_TIMEOUT);
    ck_assert(task.error.flags & PQTX_ERROR_DEADLINE);
    ck_assert(ended_in_time(&task));
    terminate(pid); /* and with it the role's only connection becomes free */
    assert_dropped(pool, pid);
    pqtx_pool_close(pool);
    wait_until_true(monitor, "SELECT count(*) = 0 FROM pg_stat_activity"
                             " WHERE usename = 'pqtx_lonely'");
    sql(monitor, "DROP ROLE pqtx_lonely");
}
END_TEST

START_TEST(a_stopped_backend_is_left_in_time)
{
    pqtx_pool *pool = open_pool(2);
    int64_t pid = run_for_pid(pool, NULL);
    struct task task = task_of(pool, "SELECT 1");
    if (!getenv("PQTX_TEST_PGDATA") || kill((pid_t)pid, SIGSTOP) != 0) {
        puts("the server is not ours to stop: no backend is stopped");
        pqtx_pool_close(pool);
        return;
    }
    start_task(&task);
    pthread_join(task.thread, NULL);
    kill((pid_t)pid, SIGCONT);
    assert_status(task.status, PQTX_TIMEOUT, &task.error);
    ck_assert(task.error.flags & PQTX_ERROR_DEADLINE);
    ck_assert(ended_in_time(&task));
    assert_dropped(pool, pid);
    pqtx_pool_close(pool);
}
END_TEST

/* ---- half-open connections */

static pqtx_status insert_row(pqtx_tx *tx, void *arg)
{
    (void)arg;
    return pqtx_exec(tx, "INSERT INTO t VALUES (3, 0)", PQTX_NO_ARGS, NULL);
}

static pqtx_status insert_and_fail(pqtx_tx *tx, void *arg)
{
    pqtx_status status = insert_row(tx, arg);
    return status == PQTX_OK ? PQTX_CHECK : status;
}

/* Runs `work` through a proxy that falls silent when it sees `text`. */
static struct task fall_silent(enum proxy_trap trap, const char *text, pqtx_work work,
                               pqtx_status expected)
{
    struct proxy *proxy = proxy_open();
    pqtx_pool *pool = open_on(proxy_conninfo(proxy), 0);
    int64_t pid = run_for_pid(pool, NULL);
    struct task task = {.pool = pool, .options = &options, .work = work};
    proxy_set_trap(proxy, trap, text);
    run_task(&task, expected);
    ck_assert(ended_in_time(&task));
    ck_assert(task.error.flags & PQTX_ERROR_CONNECTION);
    proxy_thaw(proxy);
    assert_dropped(pool, pid);
    pqtx_pool_close(pool);
    proxy_close(proxy);
    return task;
}

START_TEST(silence_in_the_body_ends_at_the_deadline)
{
    struct task task = fall_silent(PROXY_FREEZE_BEFORE, "INSERT INTO t", insert_row, PQTX_TIMEOUT);
    ck_assert(task.error.flags & PQTX_ERROR_DEADLINE);
    task = fall_silent(PROXY_FREEZE_AFTER, "INSERT INTO t", insert_row, PQTX_TIMEOUT);
    ck_assert(task.error.flags & PQTX_ERROR_DEADLINE);
    ck_assert_int_eq(ask_int(monitor, "SELECT count(*) FROM t WHERE id = 3"), 0);
}
END_TEST

START_TEST(silence_while_rolling_back_ends_at_the_deadline_with_the_cause)
{
    struct task task = fall_silent(PROXY_FREEZE_BEFORE, "ROLLBACK", insert_and_fail, PQTX_CHECK);
    ck_assert_int_eq(task.error.status, PQTX_CHECK);
    fall_silent(PROXY_FREEZE_AFTER, "ROLLBACK", insert_and_fail, PQTX_CHECK);
}
END_TEST

START_TEST(silence_after_commit_was_sent_is_doubt_at_the_deadline)
{
    struct task task = fall_silent(PROXY_FREEZE_AFTER, "COMMIT", insert_row, PQTX_IN_DOUBT);
    ck_assert_int_eq(task.error.phase, PQTX_PHASE_COMMIT);
    ck_assert_int_eq(ask_int(monitor, "SELECT count(*) FROM t WHERE id = 3"), 1);
    sql(monitor, "DELETE FROM t WHERE id = 3");
    fall_silent(PROXY_FREEZE_BEFORE, "COMMIT", insert_row, PQTX_IN_DOUBT);
    ck_assert_int_eq(ask_int(monitor, "SELECT count(*) FROM t WHERE id = 3"), 0);
}
END_TEST

START_TEST(silence_while_connecting_ends_at_the_deadline)
{
    struct proxy *proxy = proxy_open();
    pqtx_pool *pool = open_on(proxy_conninfo(proxy), PQTX_POOL_LAZY);
    struct task task = task_of(pool, "SELECT 1");
    proxy_freeze(proxy);
    run_task(&task, PQTX_NO_CONNECTION);
    ck_assert(ended_in_time(&task));
    ck_assert_int_eq(task.error.phase, PQTX_PHASE_CONNECT);
    ck_assert(task.error.flags & PQTX_ERROR_DEADLINE);
    ck_assert_uint_eq(stats_of(pool).open_count, 0);
    proxy_thaw(proxy);
    run_task(&task, PQTX_OK);
    pqtx_pool_close(pool);
    proxy_close(proxy);
}
END_TEST

START_TEST(silence_while_opening_a_pool_ends_at_the_connect_timeout)
{
    struct proxy *proxy = proxy_open();
    pqtx_pool_options pool_options = PQTX_POOL_OPTIONS;
    pqtx_pool *pool;
    pool_options.conninfo = proxy_conninfo(proxy);
    pool_options.connect_timeout_ms = 500;
    proxy_freeze(proxy);
    int64_t began = monotonic_us();
    assert_status(pqtx_pool_open(&pool_options, &pool, NULL), PQTX_NO_CONNECTION, NULL);
    ck_assert_int_le(monotonic_us() - began, 2 * 1000 * pool_options.connect_timeout_ms);
    proxy_close(proxy);
}
END_TEST

START_TEST(silence_while_much_is_being_sent_ends_at_the_deadline)
{
    enum { MUCH = 8 << 20 };
    char *text = malloc(MUCH);
    struct proxy *proxy = proxy_open();
    pqtx_pool *pool = open_on(proxy_conninfo(proxy), 0);
    ck_assert_ptr_nonnull(text);
    memset(text, 'x', MUCH);
    int64_t began = monotonic_us();
    pqtx_tx *tx = pqtx_new(pool, &options);
    ck_assert_int_eq(pqtx_attempt(tx), 1);
    proxy_freeze(proxy);
    const pqtx_value value = pqtx_text_n(text, MUCH);
    assert_status(pqtx_exec(tx, "SELECT length($1)", 1, &value, NULL), PQTX_TIMEOUT, NULL);
    pqtx_commit(tx);
    ck_assert_int_eq(pqtx_attempt(tx), 0);
    assert_status(pqtx_result(tx), PQTX_TIMEOUT, NULL);
    ck_assert_int_le(monotonic_us() - began, 2 * 1000 * options.deadline_ms);
    pqtx_free(tx);
    pqtx_pool_close(pool);
    proxy_close(proxy);
    free(text);
}
END_TEST

START_TEST(silence_on_the_callers_connection_ends_at_the_deadline)
{
    struct proxy *proxy = proxy_open();
    PGconn *own = PQconnectdb(proxy_conninfo(proxy));
    struct task task = {.conn = own, .options = &options, .work = insert_row};
    ck_assert_int_eq(PQstatus(own), CONNECTION_OK);
    proxy_set_trap(proxy, PROXY_FREEZE_AFTER, "COMMIT");
    run_task(&task, PQTX_IN_DOUBT);
    ck_assert(ended_in_time(&task));
    ck_assert(task.error.flags & PQTX_ERROR_CONNECTION);
    proxy_thaw(proxy);
    PQreset(own);
    ck_assert_int_eq(ask_int(own, "SELECT count(*) FROM t WHERE id = 3"), 1);
    PQfinish(own);
    proxy_close(proxy);
}
END_TEST

/* ---- time that the body itself uses up */

static pqtx_status sleep_on_the_job(pqtx_tx *tx, void *arg)
{
    int64_t pid;
    pqtx_status status = ask_pid(tx, &pid);
    test_clock_forward(arg, 2 * DEADLINE_MS);
    return status;
}

static pqtx_status sleep_then_write(pqtx_tx *tx, void *arg)
{
    pqtx_status status = sleep_on_the_job(tx, arg);
    return status == PQTX_OK ? insert_row(tx, NULL) : status;
}

/* The body is over, or half done, when the deadline has passed already. */
static void come_late(pqtx_work work)
{
    struct test_clock clock;
    pqtx_pool_options pool_options = PQTX_POOL_OPTIONS;
    pqtx_pool *pool;
    test_clock_init(&clock);
    pool_options.conninfo = pool_conninfo();
    options.clock = pool_options.clock = &clock.clock;
    ck_assert_int_eq(pqtx_pool_open(&pool_options, &pool, NULL), PQTX_OK);
    int64_t pid = run_for_pid(pool, &options);
    struct task task = {.pool = pool, .options = &options, .work = work, .arg = &clock};
    run_task(&task, PQTX_TIMEOUT);
    ck_assert(task.error.flags & PQTX_ERROR_DEADLINE);
    ck_assert_int_eq(run_for_pid(pool, &options), pid);
    ck_assert_uint_eq(stats_of(pool).drops, 0);
    ck_assert_int_eq(ask_int(monitor, "SELECT count(*) FROM t WHERE id = 3"), 0);
    pqtx_pool_close(pool);
}

START_TEST(after_the_deadline_no_statement_is_sent)
{
    come_late(sleep_then_write);
}
END_TEST

START_TEST(after_the_deadline_nothing_is_committed)
{
    come_late(sleep_on_the_job);
}
END_TEST

/* ---- signals */

static volatile sig_atomic_t alarms;

static void count_alarm(int number)
{
    (void)number;
    alarms = alarms + 1;
}

static void set_alarms(long interval_us)
{
    struct itimerval every = {{0, interval_us}, {0, interval_us}};
    struct sigaction action = {.sa_handler = count_alarm}; /* without SA_RESTART */
    ck_assert_int_eq(sigaction(SIGALRM, &action, NULL), 0);
    ck_assert_int_eq(setitimer(ITIMER_REAL, &every, NULL), 0);
}

START_TEST(a_signal_every_millisecond_breaks_no_wait)
{
    pqtx_pool *pool = open_on(pool_conninfo(), PQTX_POOL_LAZY);
    struct task connecting = task_of(pool, "SELECT 1"),
                sleeping = task_of(pool, "SELECT pg_sleep(0.3)"),
                waiting = task_of(pool, update_row),
                endless = task_of(pool, "SELECT pg_sleep(600)");
    lock_row();
    options.deadline_ms = 3000;
    options.lock_timeout_ms = 300;
    options.max_attempts = 2;
    set_alarms(1000);
    run_task(&connecting, PQTX_OK);
    run_task(&sleeping, PQTX_OK);
    run_task(&waiting, PQTX_BUSY);
    run_task(&endless, PQTX_TIMEOUT);
    set_alarms(0);
    ck_assert_int_gt(alarms, 100);
    ck_assert(!took_at_most(&sleeping, 99, 300));
    ck_assert(!took_at_most(&waiting, 199, options.lock_timeout_ms));
    ck_assert_int_eq(waiting.error.attempt, 2);
    ck_assert(ended_in_time(&endless));
    ck_assert_uint_eq(stats_of(pool).connects, 1);
    pqtx_pool_close(pool);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("live_deadline");
    TCase *c = tcase_create("deadline");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_set_timeout(c, 90);
    tcase_add_test(c, a_locked_row_is_busy_after_the_lock_timeout_and_little_more);
    tcase_add_test(c, a_row_that_stays_locked_is_tried_again_until_the_deadline);
    tcase_add_test(c, a_lock_timeout_longer_than_the_deadline_still_says_busy);
    add_direct_test(c, a_statement_that_runs_past_the_deadline_is_cancelled, INVENTED_PID);
    add_direct_test(c, a_wait_without_a_lock_timeout_is_cancelled, INVENTED_PID);
    add_direct_test(c, a_wait_for_an_advisory_lock_is_cancelled, INVENTED_PID);
    add_direct_test(c, a_conditional_change_that_waits_past_the_deadline_is_cancelled,
                    INVENTED_PID);
    add_direct_test(c, a_long_statement_beyond_ascii_is_cancelled, INVENTED_PID);
    add_direct_test(c, decoys_in_the_search_path_do_not_keep_a_cancel_away, INVENTED_PID);
    add_direct_test(c, the_callers_connection_survives_a_cancelled_statement, INVENTED_PID);
    tcase_add_test(c, a_statement_timeout_is_not_the_deadline);
    tcase_add_test(c, a_strangers_cancel_is_told_from_a_timeout);
    add_direct_test(c, without_a_connection_to_cancel_on_this_one_is_dropped_in_time, INVENTED_PID);
    tcase_add_test(c, a_stopped_backend_is_left_in_time);
    tcase_add_test(c, silence_in_the_body_ends_at_the_deadline);
    tcase_add_test(c, silence_while_rolling_back_ends_at_the_deadline_with_the_cause);
    tcase_add_test(c, silence_after_commit_was_sent_is_doubt_at_the_deadline);
    tcase_add_test(c, silence_while_connecting_ends_at_the_deadline);
    tcase_add_test(c, silence_while_opening_a_pool_ends_at_the_connect_timeout);
    tcase_add_test(c, silence_while_much_is_being_sent_ends_at_the_deadline);
    tcase_add_test(c, silence_on_the_callers_connection_ends_at_the_deadline);
    tcase_add_test(c, after_the_deadline_no_statement_is_sent);
    tcase_add_test(c, after_the_deadline_nothing_is_committed);
    tcase_add_test(c, a_signal_every_millisecond_breaks_no_wait);
    suite_add_tcase(s, c);
    return s;
}

int main(void)
{
    return run_suite(suite());
}
