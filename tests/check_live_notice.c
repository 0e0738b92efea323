/* check_live_notice.c: whatever the server remarks, and whenever, nothing of it is printed.
 *
 * libpq prints it to stderr by itself unless it is told not to, from the first message of a
 * connection on. */
#define _DEFAULT_SOURCE
#include "support.h"
#include "support_doubt.h"
#include "support_tx.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SCHEMA "pqtx_notice"

static PGconn *monitor;
static char conninfo[4096];

/* Whoever is pqtx_talked_to hears a warning with the welcome, and much else besides. */
static void make(void)
{
    make_doubt(SCHEMA);
    PGconn *session = open_session();
    sql(session, "DROP ROLE IF EXISTS pqtx_talked_to; CREATE ROLE pqtx_talked_to SUPERUSER LOGIN;"
                 "ALTER ROLE pqtx_talked_to SET role = pqtx_nobody_there;"
                 "ALTER ROLE pqtx_talked_to SET client_min_messages = debug2");
    PQfinish(session);
}

static void set_up(void)
{
    monitor = open_doubt();
    snprintf(conninfo, sizeof conninfo, "%s user=pqtx_talked_to", test_conninfo());
}

static void tear_down(void)
{
    PQfinish(monitor);
}

/* ---- what is printed */

static struct {
    FILE *file;
    int out, err; /* where they led before */
} caught;

static void catch_output(void)
{
    fflush(NULL);
    caught.file = tmpfile();
    ck_assert_ptr_nonnull(caught.file);
    caught.out = dup(STDOUT_FILENO);
    caught.err = dup(STDERR_FILENO);
    ck_assert(dup2(fileno(caught.file), STDOUT_FILENO) >= 0);
    ck_assert(dup2(fileno(caught.file), STDERR_FILENO) >= 0);
}

/* Static text. */
static const char *caught_output(void)
{
    static char text[4096];
    fflush(NULL);
    dup2(caught.out, STDOUT_FILENO);
    dup2(caught.err, STDERR_FILENO);
    rewind(caught.file);
    text[fread(text, 1, sizeof text - 1, caught.file)] = '\0';
    fclose(caught.file);
    return text;
}

static pqtx_pool *open_talked_to(int max_count)
{
    pqtx_pool_options options = PQTX_POOL_OPTIONS;
    pqtx_error error = PQTX_ERROR;
    pqtx_pool *pool;
    options.conninfo = conninfo;
    options.max_count = max_count;
    assert_status(pqtx_pool_open(&options, &pool, &error), PQTX_OK, &error);
    return pool;
}

static void ignore(void *arg, const PGresult *notice)
{
    (void)arg;
    (void)notice;
}

/* A connection of the caller's, who does not want to hear either. */
static PGconn *connect_talked_to(void)
{
    PGconn *conn = PQconnectStart(conninfo);
    PQsetNoticeReceiver(conn, ignore, NULL);
    while (PQconnectPoll(conn) != PGRES_POLLING_OK)
        ck_assert_msg(PQstatus(conn) != CONNECTION_BAD, "%s", PQerrorMessage(conn));
    return conn;
}

/* ---- occasions */

static pqtx_status provoke(pqtx_tx *tx, void *arg)
{
    (void)arg;
    return pqtx_exec(tx,
                     "DO $$ BEGIN RAISE NOTICE 'remark'; RAISE WARNING 'remark'; RAISE INFO"
                     " 'remark'; RAISE LOG 'remark'; RAISE DEBUG 'remark'; END $$",
                     PQTX_NO_ARGS, NULL);
}

static void open_and_close(void)
{
    pqtx_pool *pool = open_talked_to(2);
    pqtx_tx *first = hold_tx(pool, NULL, NULL), *second = hold_tx(pool, NULL, NULL);
    end_tx(first);
    end_tx(second);
    pqtx_pool_close(pool);
}

static void note(const pqtx_event *event, void *count)
{
    *(int *)count += event->type == PQTX_EVENT_NOTICE && strcmp(event->message, "remark") == 0;
}

static void run_and_provoke(void)
{
    pqtx_pool *pool = open_talked_to(1);
    pqtx_options options = PQTX_OPTIONS;
    pqtx_error error = PQTX_ERROR;
    int heard = 0;
    assert_status(pqtx_run(pool, NULL, provoke, NULL, &error), PQTX_OK, &error);
    options.observer = note;
    options.observer_arg = &heard;
    assert_status(pqtx_run(pool, &options, provoke, NULL, &error), PQTX_OK, &error);
    pqtx_pool_close(pool);
    ck_assert_int_eq(heard, 5);
}

static pqtx_status sleep_long(pqtx_tx *tx, void *arg)
{
    (void)arg;
    return pqtx_exec(tx, "SELECT pg_sleep(600)", PQTX_NO_ARGS, NULL);
}

static void assert_cancelled(struct task *task)
{
    pqtx_options options = PQTX_OPTIONS;
    options.deadline_ms = 3000;
    task->options = &options;
    task->work = sleep_long;
    run_task(task, PQTX_TIMEOUT);
    ck_assert(!(task->error.flags & PQTX_ERROR_CONNECTION));
}

static void cancel_on_the_pools(void)
{
    struct task task = {.pool = open_talked_to(1)};
    assert_cancelled(&task);
    pqtx_pool_close(task.pool);
}

static void cancel_on_the_callers(void)
{
    struct task task = {.conn = connect_talked_to()};
    assert_cancelled(&task);
    PQfinish(task.conn);
}

static void assert_resolved(struct trial *trial)
{
    trial->point = PQTX_POINT_COMMIT_BEGUN;
    trial->last = 1;
    trial->options.max_attempts = 1;
    trial_run(trial);
    assert_trial(trial, PQTX_NO_CONNECTION);
    ck_assert_int_eq(trial->outcome, PQTX_OUTCOME_ROLLED_BACK);
}

static void resolve_for_the_pool(void)
{
    struct trial trial;
    trial_init(&trial, open_talked_to(1), PQTX_DOUBT_TOKEN);
    assert_resolved(&trial);
    pqtx_pool_close(trial.pool);
}

static void resolve_for_the_caller(void)
{
    struct trial trial;
    trial_init(&trial, NULL, PQTX_DOUBT_TOKEN);
    trial.own = connect_talked_to();
    assert_resolved(&trial);
    PQfinish(trial.own);
}

/* The server says goodbye when nobody has asked for anything. */
static void end_an_idle_one(void)
{
    char statement[128];
    pqtx_pool *pool = open_talked_to(1);
    int64_t pid = run_for_pid(pool, NULL);
    snprintf(statement, sizeof statement, "SELECT pg_terminate_backend(%d)", (int)pid);
    sql(monitor, statement);
    snprintf(statement, sizeof statement,
             "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = %d", (int)pid);
    wait_until_true(monitor, statement);
    ck_assert_int_ne(run_for_pid(pool, NULL), pid);
    pqtx_pool_close(pool);
}

static void be_refused(void)
{
    char wrong[4200];
    pqtx_pool_options options = PQTX_POOL_OPTIONS;
    pqtx_pool *pool;
    snprintf(wrong, sizeof wrong, "%s options='-c pqtx_no_such_setting=1'", conninfo);
    options.conninfo = wrong;
    ck_assert_int_eq(pqtx_pool_open(&options, &pool, NULL), PQTX_BAD_STATEMENT);
}

static void (*const occasions[])(void) = {
    open_and_close,       run_and_provoke,        cancel_on_the_pools, cancel_on_the_callers,
    resolve_for_the_pool, resolve_for_the_caller, end_an_idle_one,     be_refused,
};

START_TEST(nothing_that_the_server_remarks_is_printed)
{
    catch_output();
    occasions[_i]();
    ck_assert_str_eq(caught_output(), "");
}
END_TEST

/* Or there would be nothing to keep off. */
START_TEST(libpq_by_itself_would_print_it)
{
    catch_output();
    PGconn *conn = PQconnectdb(conninfo);
    PQclear(PQexec(conn, "DO $$ BEGIN RAISE NOTICE 'remark'; END $$"));
    PQfinish(conn);
    const char *printed = caught_output();
    ck_assert_msg(strstr(printed, "pqtx_nobody_there"), "%s", printed);
    ck_assert_msg(strstr(printed, "NOTICE:  remark"), "%s", printed);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("live_notice");
    TCase *tcase = tcase_create("notice");
    tcase_add_unchecked_fixture(tcase, make, NULL);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, nothing_that_the_server_remarks_is_printed, 0,
                        sizeof occasions / sizeof occasions[0]);
    tcase_add_test(tcase, libpq_by_itself_would_print_it);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
