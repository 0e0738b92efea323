/* check_live_server.c: what a server may do to a transaction: keep COMMIT waiting for a standby,
 * end it in the middle, refuse it a connection, work on for a client that is gone. */
#define _DEFAULT_SOURCE
#include "support.h"
#include "support_cut.h"
#include "support_pooler.h"
#include "support_tx.h"

#include "clock.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SCHEMA "pqtx_server"

static PGconn *monitor;

static bool is_own_server(void)
{
    const char *data = getenv("PQTX_TEST_PGDATA");
    bool own = data && *data;
    if (!own)
        puts("the server is not ours (PQTX_TEST_PGDATA is not set): it is left alone");
    return own;
}

/* A standby that a failed test has demanded is not waited for any more.  That needs no COMMIT
 * record, so it does not wait itself. */
static void demand_none(void)
{
    const char *data = getenv("PQTX_TEST_PGDATA");
    if (!data || !*data)
        return;
    PGconn *session = open_session();
    sql(session, "ALTER SYSTEM RESET synchronous_standby_names");
    sql(session, "SELECT pg_reload_conf()");
    PQfinish(session);
}

static void set_up(void)
{
    char name[32];
    snprintf(name, sizeof name, "check_server_%d", (int)getpid());
    setenv("PGAPPNAME", name, 1); /* tells this test's sessions from all others */
    demand_none();
    fresh_schema(SCHEMA);
    monitor = open_session();
    sql(monitor, "CREATE TABLE mark (id bigint NOT NULL);"
                 "CREATE TABLE counter (value bigint NOT NULL);"
                 "INSERT INTO counter VALUES (0)");
    sql(monitor, pqtx_once_ddl());
}

static void tear_down(void)
{
    PQfinish(monitor);
}

#define OUR_SESSIONS                                                                               \
    " FROM pg_stat_activity WHERE application_name = current_setting('application_name')"          \
    " AND pid <> pg_backend_pid()"

static void wait_until_gone(int64_t pid)
{
    char query[96];
    snprintf(query, sizeof query,
             "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = %lld)", (long long)pid);
    wait_until_true(monitor, query);
}

static int64_t count_marks(void)
{
    return ask_int(monitor, "SELECT count(*) FROM mark");
}

/* ---- a run, and how it ended */

struct job {
    int runs;
    bool in_one_flight; /* which cannot know the pid */
    int64_t pid;        /* of the newest run's backend */
    atomic_int refused; /* attempts that found no connection */
    pqtx_event end;
};

static void watch(const pqtx_event *event, void *arg)
{
    struct job *job = arg;
    if (event->type == PQTX_EVENT_FAILED && event->phase == PQTX_PHASE_CONNECT)
        atomic_fetch_add(&job->refused, 1);
    if (event->type == PQTX_EVENT_END)
        job->end = *event;
}

static pqtx_options options_for(struct job *job)
{
    pqtx_options options = PQTX_OPTIONS;
    options.once_schema = SCHEMA;
    options.observer = watch;
    options.observer_arg = job;
    return options;
}

#define MARK "INSERT INTO mark VALUES (1)"

static pqtx_status write_mark(pqtx_tx *tx, void *arg)
{
    struct job *job = arg;
    job->runs++;
    pqtx_status status = pqtx_exec(tx, MARK, PQTX_NO_ARGS, NULL);
    return status == PQTX_OK && !job->in_one_flight ? ask_pid(tx, &job->pid) : status;
}

/* Round trip by round trip, in one flight, and in one flight with BEGIN and COMMIT. */
enum { STEP_BY_STEP, IMPLICIT, EXPLICIT, FORMS };

static void set_form(int form, struct job *job, pqtx_options *options)
{
    job->in_one_flight = form != STEP_BY_STEP;
    if (form != STEP_BY_STEP)
        options->flags |= PQTX_PIPELINE;
    if (form == EXPLICIT)
        options->isolation = PQTX_ISO_READ_COMMITTED;
}

enum { SEVERAL = 3 };

/* ---- COMMIT waits for a standby that is not there */

#define WAITS_FOR_STANDBY OUR_SESSIONS " AND wait_event = 'SyncRep'"

/* The setting is in force when a session is seen to wait: not every process reads it at once. */
static void demand_standby(void)
{
    bool waits = false;
    PGconn *probe = open_session();
    sql(monitor, "SET synchronous_commit = local");
    sql(monitor, "ALTER SYSTEM SET synchronous_standby_names = 'ghost'");
    sql(monitor, "SELECT pg_reload_conf()");
    while (!waits) {
        start_sql(probe, "CREATE TABLE probe (); DROP TABLE probe");
        while (!waits && PQisBusy(probe)) {
            waits = ask_int(monitor, "SELECT count(pg_cancel_backend(pid))" WAITS_FOR_STANDBY) == 1;
            ck_assert(PQconsumeInput(probe));
        }
        ck_assert_str_eq(finish_sql(probe), "");
    }
    PQfinish(probe);
}

static void wait_until_committing(void)
{
    wait_until_true(monitor, "SELECT count(*) = 1" WAITS_FOR_STANDBY);
}

static void break_the_wait_off(const char *how, int form)
{
    struct job job = {.runs = 0};
    pqtx_options options = options_for(&job);
    struct task task = {.options = &options, .work = write_mark, .arg = &job};
    char query[256];
    set_form(form, &job, &options);
    task.pool = open_pool(2);
    demand_standby();
    start_task(&task);
    wait_until_committing();
    snprintf(query, sizeof query, "SELECT %s(pid)%s", how, WAITS_FOR_STANDBY);
    sql(monitor, query);
    join_task(&task, PQTX_OK);
    ck_assert_int_eq(job.end.outcome, PQTX_OUTCOME_COMMITTED);
    ck_assert_uint_eq(job.end.flags, PQTX_LOCAL_ONLY);
    ck_assert_int_eq(job.runs, 1);
    ck_assert_int_eq(count_marks(), 1);
    demand_none();
    pqtx_pool_close(task.pool);
}

START_TEST(a_cancelled_wait_for_a_standby_is_a_commit_that_is_only_local)
{
    if (is_own_server())
        break_the_wait_off("pg_cancel_backend", _i);
}
END_TEST

START_TEST(a_session_ended_in_its_wait_for_a_standby_has_committed_locally)
{
    if (is_own_server())
        break_the_wait_off("pg_terminate_backend", _i);
}
END_TEST

/* A session that is ended in its wait says nothing more: what stood behind it is in doubt. */
static void *run_each(void *arg)
{
    pqtx_pool *pool = open_pool(2);
    pqtx_item *items = arg;
    pqtx_options options = PQTX_OPTIONS;
    pqtx_error error = PQTX_ERROR;
    options.once_schema = SCHEMA;
    options.in_doubt = PQTX_DOUBT_TOKEN;
    options.resolve_ms = 20000;
    assert_status(pqtx_run_each(pool, &options, items, SEVERAL, &error), PQTX_OK, &error);
    pqtx_pool_close(pool);
    return NULL;
}

/* The first waits for the standby; whichever way that ends, it is the only one it is said of, and
 * those behind it commit as well, once. */
START_TEST(of_several_in_one_flight_one_whose_wait_is_broken_off_is_only_local)
{
    static const char *const ways[] = {"pg_cancel_backend", "pg_terminate_backend"};
    pqtx_item items[SEVERAL] = {PQTX_ITEM, PQTX_ITEM, PQTX_ITEM};
    pthread_t thread;
    char query[256];
    if (!is_own_server())
        return;
    for (int i = 0; i < SEVERAL; i++) {
        items[i].sql = MARK;
        items[i].expected = 1;
    }
    demand_standby();
    ck_assert(pthread_create(&thread, NULL, run_each, items) == 0);
    wait_until_committing();
    snprintf(query, sizeof query, "SELECT %s(pid)%s", ways[_i], WAITS_FOR_STANDBY);
    sql(monitor, query);
    wait_until_true(monitor, "SELECT count(*) > 0 FROM mark");
    demand_none();
    ck_assert(pthread_join(thread, NULL) == 0);
    for (int i = 0; i < SEVERAL; i++) {
        ck_assert_int_eq(items[i].outcome, PQTX_OUTCOME_COMMITTED);
        ck_assert_uint_eq(items[i].flags & PQTX_LOCAL_ONLY, i == 0 ? PQTX_LOCAL_ONLY : 0);
        ck_assert_uint_eq(items[i].attempts, i == 0 || _i == 0 ? 1 : 2);
        PQclear(items[i].result);
    }
    ck_assert_int_eq(count_marks(), SEVERAL);
}
END_TEST

/* In one flight the deadline is none of COMMIT alone, so there the line is cut; and an xid is of no
 * use. */
static const struct {
    pqtx_doubt in_doubt;
    int form;
} resolvers[] = {
    {PQTX_DOUBT_XID, STEP_BY_STEP},
    {PQTX_DOUBT_TOKEN, STEP_BY_STEP},
    {PQTX_DOUBT_TOKEN, IMPLICIT},
    {PQTX_DOUBT_TOKEN, EXPLICIT},
};

enum { RESOLVERS = sizeof resolvers / sizeof resolvers[0] };

/* A clock that goes on by a little more whenever it is looked at: a limit of 1 ms is over at the
 * next look. */
static atomic_llong looks;

static int64_t now_us(void *arg)
{
    struct timespec now;
    (void)arg;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000 + 1100 * atomic_fetch_add(&looks, 1);
}

static pqtx_fault cut_in_the_wait(pqtx_point point, uint32_t attempt, void *arg)
{
    (void)arg;
    if (point != PQTX_POINT_COMMIT_SENT || attempt != 1)
        return PQTX_FAULT_NONE;
    wait_until_committing();
    atomic_fetch_add(&looks, 1000);
    return PQTX_FAULT_CUT;
}

static void set_resolver(int resolver, struct job *job, pqtx_options *options)
{
    set_form(resolvers[resolver].form, job, options);
    options->in_doubt = resolvers[resolver].in_doubt;
    if (resolvers[resolver].form != STEP_BY_STEP)
        options->fault = cut_in_the_wait;
}

START_TEST(a_deadline_in_the_wait_for_a_standby_is_resolved_as_committed)
{
    struct job job = {.runs = 0};
    pqtx_options options = options_for(&job);
    pqtx_error error = PQTX_ERROR;
    if (!is_own_server())
        return;
    pqtx_pool *pool = open_pool(2);
    demand_standby();
    options.resolve_ms = 20000;
    if (resolvers[_i].form == STEP_BY_STEP)
        options.deadline_ms = 500;
    set_resolver(_i, &job, &options);
    assert_status(pqtx_run(pool, &options, write_mark, &job, &error), PQTX_OK, &error);
    ck_assert_int_eq(job.end.outcome, PQTX_OUTCOME_COMMITTED);
    ck_assert(job.end.flags & PQTX_RESOLVED);
    ck_assert_int_eq(job.runs, 1);
    ck_assert_int_eq(count_marks(), 1);
    demand_none();
    pqtx_pool_close(pool);
}
END_TEST

START_TEST(a_transaction_that_still_waits_for_a_standby_is_resolved_later)
{
    struct job job = {.runs = 0};
    pqtx_options options = options_for(&job);
    pqtx_error error = PQTX_ERROR;
    pqtx_ticket ticket = PQTX_TICKET;
    pqtx_clock clock = *pqtx__clock(NULL);
    pqtx_outcome outcome;
    if (!is_own_server())
        return;
    pqtx_pool *pool = open_pool(2);
    demand_standby();
    clock.now_us = now_us;
    options.clock = &clock;
    options.deadline_ms = 500;
    options.resolve_ms = 1;
    set_resolver(_i, &job, &options);
    options.ticket = &ticket;
    assert_status(pqtx_run(pool, &options, write_mark, &job, &error), PQTX_IN_DOUBT, &error);
    ck_assert_int_eq(job.end.outcome, PQTX_OUTCOME_IN_DOUBT);
    ck_assert_int_eq(ticket.by, resolvers[_i].in_doubt);
    wait_until_committing();
    assert_status(pqtx_resolve(pool, &ticket, 100, &outcome, &error), PQTX_IN_DOUBT, &error);
    ck_assert_int_eq(outcome, PQTX_OUTCOME_IN_DOUBT);
    ck_assert_int_eq(count_marks(), 0);
    demand_none();
    assert_status(pqtx_resolve(pool, &ticket, 60000, &outcome, &error), PQTX_OK, &error);
    ck_assert_int_eq(outcome, PQTX_OUTCOME_COMMITTED);
    ck_assert_int_eq(count_marks(), 1);
    pqtx_pool_close(pool);
}
END_TEST

START_TEST(a_deadline_in_the_wait_for_a_standby_is_in_doubt_where_nothing_resolves_it)
{
    struct job job = {.runs = 0};
    pqtx_options options = options_for(&job);
    pqtx_error error = PQTX_ERROR;
    if (!is_own_server())
        return;
    pqtx_pool *pool = open_pool(2);
    demand_standby();
    options.deadline_ms = 500;
    assert_status(pqtx_run(pool, &options, write_mark, &job, &error), PQTX_IN_DOUBT, &error);
    ck_assert_int_eq(error.advice, PQTX_ADVICE_RESOLVE);
    ck_assert_int_eq(job.runs, 1);
    demand_none();
    wait_until_true(monitor, "SELECT count(*) = 0" WAITS_FOR_STANDBY);
    ck_assert_int_eq(count_marks(), 1);
    pqtx_pool_close(pool);
}
END_TEST

/* There the server is asked to cancel whatever it is at. */
START_TEST(a_deadline_of_one_flight_breaks_the_wait_for_a_standby_off)
{
    struct job job = {.runs = 0};
    pqtx_options options = options_for(&job);
    pqtx_error error = PQTX_ERROR;
    if (!is_own_server())
        return;
    pqtx_pool *pool = open_pool(2);
    set_form(_i, &job, &options);
    demand_standby();
    options.deadline_ms = 2000;
    assert_status(pqtx_run(pool, &options, write_mark, &job, &error), PQTX_OK, &error);
    ck_assert_int_eq(job.end.outcome, PQTX_OUTCOME_COMMITTED);
    ck_assert_uint_eq(job.end.flags, PQTX_LOCAL_ONLY);
    ck_assert_int_eq(job.runs, 1);
    ck_assert_int_eq(count_marks(), 1);
    demand_none();
    pqtx_pool_close(pool);
}
END_TEST

/* ---- ended in the middle */

/* Writes, and does nothing until the server has lost its patience. */
static pqtx_status write_and_dawdle(pqtx_tx *tx, void *arg)
{
    struct job *job = arg;
    pqtx_status status = write_mark(tx, job);
    if (status == PQTX_OK)
        status =
            pqtx_exec(tx, "SET LOCAL idle_in_transaction_session_timeout = 5", PQTX_NO_ARGS, NULL);
    if (status == PQTX_OK)
        wait_until_gone(job->pid);
    return status;
}

static pqtx_status write_dawdle_and_write(pqtx_tx *tx, void *arg)
{
    pqtx_status status = write_and_dawdle(tx, arg);
    return status == PQTX_OK ? pqtx_exec(tx, "INSERT INTO mark VALUES (2)", PQTX_NO_ARGS, NULL)
                             : status;
}

static const pqtx_work slow_bodies[] = {write_and_dawdle, write_dawdle_and_write};

START_TEST(a_body_too_slow_for_the_server_is_rolled_back_and_not_run_again)
{
    struct job job = {.runs = 0};
    pqtx_options options = options_for(&job);
    pqtx_error error = PQTX_ERROR;
    pqtx_pool *pool = open_pool(2);
    pqtx_status status = pqtx_run(pool, &options, slow_bodies[_i], &job, &error);
    assert_status(status, PQTX_TIMEOUT, &error);
    ck_assert_str_eq(error.sqlstate, "25P03");
    ck_assert_int_eq(job.end.outcome, PQTX_OUTCOME_ROLLED_BACK);
    ck_assert_int_eq(job.runs, 1);
    ck_assert_int_eq(count_marks(), 0);
    pqtx_pool_close(pool);
}
END_TEST

struct limits {
    struct job job;
    int64_t idle_ms, transaction_ms; /* -1: there is no such setting */
};

static pqtx_status read_limits(pqtx_tx *tx, void *arg)
{
    struct limits *limits = arg;
    const PGresult *result;
    pqtx_status status = pqtx_exec_one(
        tx,
        "SELECT max(setting) FILTER (WHERE name = 'idle_in_transaction_session_timeout'),"
        " coalesce(max(setting) FILTER (WHERE name = 'transaction_timeout'), '-1')"
        " FROM pg_settings",
        PQTX_NO_ARGS, &result);
    if (status != PQTX_OK)
        return status;
    pqtx_get_int(result, 0, 0, &limits->idle_ms);
    return pqtx_get_int(result, 0, 1, &limits->transaction_ms);
}

START_TEST(the_server_is_told_the_deadline_for_one_transaction)
{
    struct limits limits = {.job.runs = 0}, usual = limits;
    pqtx_options options = options_for(&limits.job);
    pqtx_pool *pool = open_pool(1);
    options.deadline_ms = 20000;
    assert_status(pqtx_run(pool, &options, read_limits, &usual, NULL), PQTX_OK, NULL);
    options.flags = PQTX_SERVER_DEADLINE;
    assert_status(pqtx_run(pool, &options, read_limits, &limits, NULL), PQTX_OK, NULL);
    ck_assert_int_ge(limits.idle_ms, 1);
    ck_assert_int_le(limits.idle_ms, 20001);
    ck_assert_int_eq(limits.transaction_ms < 0, PQserverVersion(monitor) < 170000);
    if (limits.transaction_ms >= 0) {
        ck_assert_int_ge(limits.transaction_ms, 1);
        ck_assert_int_le(limits.transaction_ms, 20001);
    }
    options.flags = 0;
    assert_status(pqtx_run(pool, &options, read_limits, &limits, NULL), PQTX_OK, NULL);
    ck_assert_int_eq(limits.idle_ms, usual.idle_ms);
    ck_assert_int_eq(limits.transaction_ms, usual.transaction_ms);
    ck_assert_uint_eq(stats_of(pool).connects, 1);
    pqtx_pool_close(pool);
}
END_TEST

static pqtx_status write_and_stall(pqtx_tx *tx, void *arg)
{
    struct job *job = arg;
    pqtx_status status = write_mark(tx, job);
    if (status == PQTX_OK)
        wait_until_gone(job->pid);
    return status;
}

START_TEST(a_program_that_stalls_is_ended_by_the_server_at_the_deadline)
{
    struct job job = {.runs = 0};
    pqtx_options options = options_for(&job);
    pqtx_error error = PQTX_ERROR;
    pqtx_pool *pool = open_pool(2);
    options.deadline_ms = 500;
    options.flags = PQTX_SERVER_DEADLINE;
    pqtx_status status = pqtx_run(pool, &options, write_and_stall, &job, &error);
    assert_status(status, PQTX_TIMEOUT, &error);
    ck_assert_int_eq(job.end.outcome, PQTX_OUTCOME_ROLLED_BACK);
    ck_assert_int_eq(job.runs, 1);
    ck_assert_int_eq(count_marks(), 0);
    pqtx_pool_close(pool);
}
END_TEST

/* ---- several in one flight, ended in the middle */

struct several {
    PGconn *holder; /* of the row that the one in the middle waits for */
    pqtx_pool *pool;
    pqtx_options options;
    pqtx_item items[SEVERAL];
    pthread_t thread;
    pqtx_status status;
    pqtx_error error;
};

static void *run_several(void *arg)
{
    struct several *several = arg;
    several->status =
        pqtx_run_each(several->pool, &several->options, several->items, SEVERAL, &several->error);
    return NULL;
}

#define WAITS_FOR_ROW OUR_SESSIONS " AND wait_event_type = 'Lock'"

/* Returns when the first is answered and the one in the middle waits. */
static void start_several(struct several *several, struct cut *cut, pqtx_options options)
{
    pqtx_pool_options pool_options = PQTX_POOL_OPTIONS;
    *several = (struct several){.holder = open_session(), .options = options, .error = PQTX_ERROR};
    sql(several->holder, "BEGIN; UPDATE counter SET value = value + 10");
    several->options.once_schema = SCHEMA;
    several->options.lock_timeout_ms = PQTX_NO_TIMEOUT;
    several->options.deadline_ms = 100000;
    for (int i = 0; i < SEVERAL; i++) {
        several->items[i] = (pqtx_item)PQTX_ITEM;
        several->items[i].sql = i == 1 ? "UPDATE counter SET value = value + 1" : MARK;
        several->items[i].expected = 1;
    }
    pool_options.conninfo = cut_conninfo(cut);
    assert_status(pqtx_pool_open(&pool_options, &several->pool, NULL), PQTX_OK, NULL);
    cut_arm(cut, NULL);
    ck_assert(pthread_create(&several->thread, NULL, run_several, several) == 0);
    wait_until_true(monitor, "SELECT count(*) = 1" WAITS_FOR_ROW);
    while (cut_count(cut, CUT_SERVER).flights < 1)
        wait_until_true(monitor, "SELECT true"); /* Check's time limit ends it */
}

static void join_several(struct several *several, pqtx_status expected)
{
    ck_assert(pthread_join(several->thread, NULL) == 0);
    assert_status(several->status, expected, &several->error);
    ck_assert_int_eq(several->items[0].outcome, PQTX_OUTCOME_COMMITTED);
    ck_assert_uint_eq(several->items[0].attempts, 1);
    ck_assert_uint_eq(several->items[0].flags, 0);
    for (int i = 0; i < SEVERAL; i++)
        PQclear(several->items[i].result);
    pqtx_pool_close(several->pool);
    PQfinish(several->holder);
}

/* What it was at is rolled back, and what stands behind that was not reached. */
START_TEST(a_session_ended_at_one_of_several_leaves_none_in_doubt)
{
    struct several several;
    struct cut *cut = cut_open();
    pqtx_options options = PQTX_OPTIONS;
    options.max_attempts = 1;
    start_several(&several, cut, options);
    sql(monitor, "SELECT pg_terminate_backend(pid)" WAITS_FOR_ROW);
    join_several(&several, PQTX_NO_CONNECTION);
    ck_assert_str_eq(several.error.sqlstate, "57P01");
    ck_assert_int_eq(several.error.call, 2);
    for (int i = 1; i < SEVERAL; i++) {
        ck_assert_int_eq(several.items[i].status, PQTX_NO_CONNECTION);
        ck_assert_int_eq(several.items[i].outcome, PQTX_OUTCOME_ROLLED_BACK);
    }
    ck_assert_int_eq(count_marks(), 1);
    ck_assert_int_eq(ask_int(monitor, "SELECT value FROM counter"), 0);
    cut_close(cut);
}
END_TEST

/* Where the line is cut nobody says how far the server has come: there a token is needed. */
START_TEST(several_that_were_cut_off_in_the_middle_are_in_doubt_or_resolved)
{
    struct several several;
    struct cut *cut = cut_open();
    pqtx_options options = PQTX_OPTIONS;
    bool resolves = _i == 1;
    options.in_doubt = resolves ? PQTX_DOUBT_TOKEN : PQTX_DOUBT_REPORT;
    start_several(&several, cut, options);
    int64_t orphan = ask_int(monitor, "SELECT max(pid)" WAITS_FOR_ROW);
    cut_now(cut);
    if (resolves) {
        wait_until_gone(orphan);
        sql(several.holder, "COMMIT");
    }
    join_several(&several, resolves ? PQTX_OK : PQTX_IN_DOUBT);
    for (int i = 1; i < SEVERAL; i++) {
        ck_assert_int_eq(several.items[i].outcome,
                         resolves ? PQTX_OUTCOME_COMMITTED : PQTX_OUTCOME_IN_DOUBT);
        ck_assert_uint_eq(several.items[i].attempts, resolves ? 2 : 1);
    }
    if (resolves) {
        ck_assert_int_eq(count_marks(), 2);
        ck_assert_int_eq(ask_int(monitor, "SELECT value FROM counter"), 11);
    }
    cut_close(cut);
}
END_TEST

START_TEST(several_whose_session_was_ended_are_begun_again_from_there)
{
    struct several several;
    struct cut *cut = cut_open();
    start_several(&several, cut, (pqtx_options)PQTX_OPTIONS);
    int64_t ended = ask_int(monitor, "SELECT max(pid)" WAITS_FOR_ROW);
    sql(monitor, "SELECT pg_terminate_backend(pid)" WAITS_FOR_ROW);
    wait_until_gone(ended);
    sql(several.holder, "COMMIT");
    join_several(&several, PQTX_OK);
    ck_assert_uint_eq(several.items[1].attempts, 2);
    ck_assert_uint_eq(several.items[2].attempts, 2);
    ck_assert_int_eq(count_marks(), 2);
    ck_assert_int_eq(ask_int(monitor, "SELECT value FROM counter"), 11);
    cut_close(cut);
}
END_TEST

/* ---- out of connections */

/* A role that may have one connection, and that one. */
static PGconn *take_the_only_connection(char conninfo[2560])
{
    sql(monitor, "DO $$ BEGIN CREATE ROLE pqtx_few LOGIN CONNECTION LIMIT 1;"
                 " EXCEPTION WHEN duplicate_object THEN NULL; END $$");
    sql(monitor, "GRANT USAGE ON SCHEMA " SCHEMA " TO pqtx_few;"
                 "GRANT INSERT ON mark TO pqtx_few");
    snprintf(conninfo, 2560, "%s user=pqtx_few", test_conninfo());
    PGconn *only = PQconnectdb(conninfo);
    snprintf(conninfo, 2560, "%s user=pqtx_few", pool_conninfo());
    ck_assert_msg(PQstatus(only) == CONNECTION_OK, "%s", PQerrorMessage(only));
    return only;
}

static void drop_role(void)
{
    if (is_pooled())
        pooler_do("RECONNECT"); /* lets go of what it keeps for the role */
    wait_until_true(monitor, "SELECT count(*) = 0" OUR_SESSIONS " AND usename = 'pqtx_few'");
    sql(monitor, "DROP OWNED BY pqtx_few; DROP ROLE pqtx_few");
}

static pqtx_pool *open_lazy(const char *conninfo)
{
    pqtx_pool_options options = PQTX_POOL_OPTIONS;
    pqtx_pool *pool;
    options.conninfo = conninfo;
    options.flags = PQTX_POOL_LAZY;
    assert_status(pqtx_pool_open(&options, &pool, NULL), PQTX_OK, NULL);
    return pool;
}

/* A pooler refuses with a code of its own, or keeps one waiting. */
static void assert_refused(pqtx_status status, const char *sqlstate)
{
    assert_status(status, is_pooled() ? PQTX_NO_CONNECTION : PQTX_RESOURCES, NULL);
    if (!is_pooled())
        ck_assert_str_eq(sqlstate, "53300");
}

static uint64_t greatest(void *arg)
{
    (void)arg;
    return UINT64_MAX;
}

START_TEST(a_server_out_of_connections_is_asked_again_after_a_longer_wait)
{
    char conninfo[2560];
    struct job job = {.runs = 0};
    pqtx_options options = options_for(&job);
    pqtx_clock clock = *pqtx__clock(NULL);
    pqtx_evidence evidence = PQTX_EVIDENCE;
    struct task task = {.options = &options, .work = write_mark, .arg = &job};
    if (!is_own_server())
        return;
    PGconn *only = take_the_only_connection(conninfo);
    task.pool = open_lazy(conninfo);
    clock.random = greatest; /* no wait is short by chance */
    options.clock = &clock;
    options.evidence = &evidence;
    start_task(&task);
    while (atomic_load(&job.refused) < 2)
        wait_until_true(monitor, "SELECT true"); /* Check's time limit ends it */
    PQfinish(only);
    join_task(&task, PQTX_OK);
    ck_assert_int_eq(job.runs, 1);
    ck_assert_int_eq(count_marks(), 1);
    ck_assert_uint_ge(evidence.count, 2);
    assert_refused(evidence.records[0].status, evidence.records[0].sqlstate);
    ck_assert_int_gt(evidence.records[0].wait_us, 5000); /* that of a lost race */
    ck_assert_int_gt(evidence.records[1].wait_us, evidence.records[0].wait_us);
    pqtx_pool_close(task.pool);
    drop_role();
}
END_TEST

START_TEST(a_server_that_stays_out_of_connections_is_told_as_such)
{
    char conninfo[2560];
    struct job job = {.runs = 0};
    pqtx_options options = options_for(&job);
    pqtx_error error = PQTX_ERROR;
    if (!is_own_server())
        return;
    PGconn *only = take_the_only_connection(conninfo);
    pqtx_pool *pool = open_lazy(conninfo);
    options.deadline_ms = 500;
    pqtx_status status = pqtx_run(pool, &options, write_mark, &job, &error);
    assert_refused(status, error.sqlstate);
    ck_assert(error.flags & PQTX_ERROR_DEADLINE);
    ck_assert_int_eq(job.end.outcome, PQTX_OUTCOME_ROLLED_BACK);
    ck_assert_int_eq(job.runs, 0);
    pqtx_pool_close(pool);
    PQfinish(only);
    drop_role();
}
END_TEST

/* ---- a backend whose client is gone */

struct waiter {
    atomic_int pid; /* of the newest attempt's backend */
    atomic_int attempts;
};

static pqtx_status count_up(pqtx_tx *tx, void *arg)
{
    struct waiter *waiter = arg;
    int64_t pid;
    pqtx_status status = ask_pid(tx, &pid);
    if (status != PQTX_OK)
        return status;
    atomic_store(&waiter->pid, (int)pid);
    atomic_fetch_add(&waiter->attempts, 1);
    return pqtx_update_one(tx, "UPDATE counter SET value = value + 1", PQTX_NO_ARGS);
}

static int wait_for_attempt(struct waiter *waiter, int number)
{
    while (atomic_load(&waiter->attempts) < number)
        wait_until_true(monitor, "SELECT true"); /* Check's time limit ends it */
    wait_until_blocked(monitor, atomic_load(&waiter->pid));
    return atomic_load(&waiter->pid);
}

/* The one who holds the row lets go only after the orphan has gone, so nothing but the next attempt
 * can have ended it. */
START_TEST(the_backend_of_a_lost_attempt_is_ended_before_the_next_one)
{
    struct waiter waiter = {.pid = 0};
    struct cut *cut = cut_open();
    PGconn *holder = open_session();
    pqtx_options options = PQTX_OPTIONS;
    pqtx_pool_options pool_options = PQTX_POOL_OPTIONS;
    struct task task = {.options = &options, .work = count_up, .arg = &waiter};
    options.lock_timeout_ms = PQTX_NO_TIMEOUT;
    options.deadline_ms = 100000;
    pool_options.conninfo = cut_conninfo(cut);
    assert_status(pqtx_pool_open(&pool_options, &task.pool, NULL), PQTX_OK, NULL);
    sql(holder, "BEGIN; UPDATE counter SET value = value + 10");
    start_task(&task);
    int orphan = wait_for_attempt(&waiter, 1);
    cut_now(cut);
    int heir = wait_for_attempt(&waiter, 2);
    ck_assert_int_ne(heir, orphan);
    wait_until_gone(orphan);
    sql(holder, "COMMIT");
    join_task(&task, PQTX_OK);
    ck_assert_int_eq(ask_int(monitor, "SELECT value FROM counter"), 11);
    ck_assert_int_eq(atomic_load(&waiter.attempts), 2);
    pqtx_pool_close(task.pool);
    PQfinish(holder);
    cut_close(cut);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("live_server");
    TCase *c = tcase_create("server");
    tcase_add_unchecked_fixture(c, NULL, demand_none);
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_set_timeout(c, 120);
    tcase_add_loop_test(c, a_cancelled_wait_for_a_standby_is_a_commit_that_is_only_local, 0, FORMS);
    tcase_add_loop_test(c, a_session_ended_in_its_wait_for_a_standby_has_committed_locally, 0,
                        FORMS);
    tcase_add_loop_test(c, of_several_in_one_flight_one_whose_wait_is_broken_off_is_only_local, 0,
                        2);
    add_direct_loop_test(c, a_deadline_in_the_wait_for_a_standby_is_resolved_as_committed, 0,
                         RESOLVERS, INVENTED_PID);
    tcase_add_loop_test(c, a_transaction_that_still_waits_for_a_standby_is_resolved_later, 0,
                        RESOLVERS);
    tcase_add_test(c, a_deadline_in_the_wait_for_a_standby_is_in_doubt_where_nothing_resolves_it);
    tcase_add_loop_test(c, a_deadline_of_one_flight_breaks_the_wait_for_a_standby_off, IMPLICIT,
                        FORMS);
    tcase_add_loop_test(c, a_body_too_slow_for_the_server_is_rolled_back_and_not_run_again, 0, 2);
    tcase_add_test(c, the_server_is_told_the_deadline_for_one_transaction);
    tcase_add_test(c, a_program_that_stalls_is_ended_by_the_server_at_the_deadline);
    tcase_add_test(c, a_session_ended_at_one_of_several_leaves_none_in_doubt);
    tcase_add_test(c, several_whose_session_was_ended_are_begun_again_from_there);
    tcase_add_loop_test(c, several_that_were_cut_off_in_the_middle_are_in_doubt_or_resolved, 0, 2);
    tcase_add_test(c, a_server_out_of_connections_is_asked_again_after_a_longer_wait);
    tcase_add_test(c, a_server_that_stays_out_of_connections_is_told_as_such);
    add_direct_test(c, the_backend_of_a_lost_attempt_is_ended_before_the_next_one, INVENTED_PID);
    suite_add_tcase(s, c);
    return s;
}

int main(void)
{
    return run_suite(suite());
}
