/* check_live_storm.c: threads count up, each time for an event of its own, while the server and the
 * lines to it are ended again and again: nothing is lost, and nothing is counted twice.  Round trip
 * by round trip, in one flight, and many in one flight. */
#define _DEFAULT_SOURCE
#include "support.h"
#include "support_cut.h"
#include "support_random.h"
#include "support_tx.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SCHEMA  "pqtx_storm"
#define WORKERS 4

static PGconn *monitor;

static void set_up(void)
{
    char name[32];
    snprintf(name, sizeof name, "check_storm_%d", (int)getpid());
    setenv("PGAPPNAME", name, 1); /* tells this test's sessions from all others */
    fresh_schema(SCHEMA);
    monitor = open_session();
    sql(monitor, "CREATE TABLE counter (value bigint NOT NULL);"
                 "INSERT INTO counter VALUES (0);"
                 "CREATE TABLE mark (id bigint NOT NULL)");
    sql(monitor, pqtx_once_ddl());
}

static void tear_down(void)
{
    PQfinish(monitor);
}

/* ---- those who count */

struct worker;

/* How an event is run, or, with a token for each, some at once. */
struct way {
    const char *name;
    pqtx_isolation isolation; /* any but the session's own: with BEGIN and COMMIT */
    pqtx_status (*run)(struct worker *worker, const pqtx_options *options, pqtx_error *error);
};

struct team {
    pqtx_pool *pool;
    const struct way *way;
    int32_t max_attempts;
    long goal; /* events for each worker */
    atomic_bool stop;
    struct worker {
        struct team *team;
        pthread_t thread;
        int number;
        atomic_long decided; /* events */
        long applied, refused, doubts;
        int64_t marks;       /* the sum of those applied */
        pqtx_status refusal; /* the last one that was no lost connection */
        pqtx_error error;
    } worker[WORKERS];
};

#define COUNT_UP "UPDATE counter SET value = value + 1"

static pqtx_status count_up(pqtx_tx *tx, void *arg)
{
    (void)arg;
    return pqtx_update_one(tx, COUNT_UP, PQTX_NO_ARGS);
}

static pqtx_status run_body(struct worker *worker, const pqtx_options *options, pqtx_error *error)
{
    return pqtx_run(worker->team->pool, options, count_up, NULL, error);
}

static pqtx_status run_one(struct worker *worker, const pqtx_options *options, pqtx_error *error)
{
    return pqtx_run_one(worker->team->pool, options, COUNT_UP, PQTX_NO_ARGS, 1, NULL, error);
}

static const struct way ways[] = {
    {"pqtx_run", PQTX_ISO_DEFAULT, run_body},
    {"pqtx_run_one", PQTX_ISO_DEFAULT, run_one},
    {"pqtx_run_one with BEGIN", PQTX_ISO_READ_COMMITTED, run_one},
    {"pqtx_run_each", PQTX_ISO_DEFAULT, NULL},
};

enum { WAYS = sizeof ways / sizeof ways[0] };

static pqtx_options options_for(const struct worker *worker)
{
    pqtx_options options = PQTX_OPTIONS;
    options.isolation = worker->team->way->isolation;
    options.once_schema = SCHEMA;
    options.max_attempts = worker->team->max_attempts;
    options.deadline_ms = 60000;
    return options;
}

static void note_refusal(struct worker *worker, pqtx_status status, const pqtx_error *error)
{
    if (status == PQTX_NO_CONNECTION || status == PQTX_IN_DOUBT)
        return;
    worker->refusal = status;
    worker->error = *error;
}

/* Runs the event until it is decided.  Once in doubt, it is only by its row: that a later run was
 * rolled back says nothing about an earlier one. */
static void work_off(struct worker *worker, long event)
{
    char id[64];
    bool in_doubt = false;
    pqtx_options options = options_for(worker);
    snprintf(id, sizeof id, "worker %d, event %ld", worker->number, event);
    options.event_id = id;
    for (;;) {
        pqtx_error error = PQTX_ERROR;
        pqtx_status status = worker->team->way->run(worker, &options, &error);
        if (status == PQTX_OK || status == PQTX_DONE_BEFORE) {
            worker->applied++;
            return;
        }
        note_refusal(worker, status, &error);
        if (status == PQTX_IN_DOUBT) {
            worker->doubts++;
            in_doubt = true;
        } else if (!in_doubt) {
            worker->refused++;
            return;
        }
    }
}

/* Marks are the events of single statements, which have no ids. */
#define COUNT_AND_MARK "WITH up AS (" COUNT_UP ") INSERT INTO mark VALUES ($1)"

enum { TOGETHER = 8 };

/* With time enough, a token leaves none of them in doubt. */
static void work_off_together(struct worker *worker, long first)
{
    pqtx_options options = options_for(worker);
    pqtx_error error = PQTX_ERROR;
    pqtx_item items[TOGETHER];
    pqtx_value values[TOGETHER];
    options.in_doubt = PQTX_DOUBT_TOKEN;
    for (int i = 0; i < TOGETHER; i++) {
        values[i] = pqtx_int((first + i) * WORKERS + worker->number);
        items[i] = (pqtx_item)PQTX_ITEM;
        items[i].sql = COUNT_AND_MARK;
        items[i].count = 1;
        items[i].values = &values[i];
        items[i].expected = PQTX_ANY_ROWS;
    }
    note_refusal(worker, pqtx_run_each(worker->team->pool, &options, items, TOGETHER, &error),
                 &error);
    for (int i = 0; i < TOGETHER; i++) {
        bool applied = items[i].outcome == PQTX_OUTCOME_COMMITTED;
        worker->applied += applied;
        worker->marks += applied ? (first + i) * WORKERS + worker->number : 0;
        worker->refused += items[i].outcome == PQTX_OUTCOME_ROLLED_BACK;
        worker->doubts += items[i].outcome == PQTX_OUTCOME_IN_DOUBT;
        PQclear(items[i].result);
    }
}

static void *work(void *arg)
{
    struct worker *worker = arg;
    long step = worker->team->way->run ? 1 : TOGETHER;
    for (long event = 0; event < worker->team->goal && !atomic_load(&worker->team->stop);
         event += step) {
        if (worker->team->way->run)
            work_off(worker, event);
        else
            work_off_together(worker, event);
        atomic_fetch_add(&worker->decided, step);
    }
    return NULL;
}

static void start_team(struct team *team)
{
    for (int i = 0; i < WORKERS; i++) {
        team->worker[i].team = team;
        team->worker[i].number = i;
        ck_assert(pthread_create(&team->worker[i].thread, NULL, work, &team->worker[i]) == 0);
    }
}

/* Until each has gone two steps further, so that one was begun after this call. */
static void wait_for_progress(struct team *team)
{
    for (int i = 0; i < WORKERS; i++) {
        long wanted = atomic_load(&team->worker[i].decided) + (team->way->run ? 2 : 2 * TOGETHER);
        while (atomic_load(&team->worker[i].decided) < wanted)
            poll(NULL, 0, 1); /* only between questions; Check's time limit ends it */
    }
}

/* The events, or the marks, are those that were reported as applied, each of them once. */
static void judge_rows(const struct team *team, int64_t applied, int64_t marks)
{
    ck_assert_int_eq(ask_int(monitor, "SELECT value FROM counter"), applied);
    ck_assert_int_eq(ask_int(monitor, "SELECT count(*) FROM mark"), team->way->run ? 0 : applied);
    ck_assert_int_eq(ask_int(monitor, "SELECT count(DISTINCT id) FROM mark"),
                     team->way->run ? 0 : applied);
    ck_assert_int_eq(ask_int(monitor, "SELECT coalesce(sum(id), 0) FROM mark"), marks);
    if (team->way->run)
        ck_assert_int_eq(ask_int(monitor, "SELECT count(*) FROM pqtx_once WHERE NOT void"),
                         applied);
}

static void judge_team(struct team *team, const char *what)
{
    long decided = 0, applied = 0, refused = 0, doubts = 0;
    int64_t marks = 0;
    for (int i = 0; i < WORKERS; i++) {
        struct worker *worker = &team->worker[i];
        pthread_join(worker->thread, NULL);
        assert_status(worker->refusal, PQTX_OK, &worker->error);
        decided += atomic_load(&worker->decided);
        applied += worker->applied;
        refused += worker->refused;
        doubts += worker->doubts;
        marks += worker->marks;
    }
    pqtx_stats stats = stats_of(team->pool);
    printf("%s, %s: %ld events, %ld applied, %ld rolled back for good, %ld runs left in doubt, "
           "%ld attempts, %ld answers to COMMIT found out\n",
           team->way->name, what, decided, applied, refused, doubts, (long)stats.attempts,
           (long)stats.resolved);
    fflush(stdout);
    ck_assert_int_eq(applied + refused, decided);
    judge_rows(team, applied, marks);
    ck_assert_int_gt(applied, 0);
    ck_assert_uint_gt(stats.retries_connection + stats.retries_other, 0);
}

/* ---- the server */

#define OUR_SESSIONS                                                                               \
    " FROM pg_stat_activity WHERE application_name = current_setting('application_name')"          \
    " AND pid <> pg_backend_pid()"

static bool is_own_server(void)
{
    const char *data = getenv("PQTX_TEST_PGDATA");
    if (data && *data)
        return true;
    puts("the server is not ours (PQTX_TEST_PGDATA is not set): it is left alone");
    return false;
}

static void reconnect(void)
{
    while (PQreset(monitor), PQstatus(monitor) != CONNECTION_OK)
        poll(NULL, 0, 10); /* only between questions; Check's time limit ends it */
}

/* The server ends all sessions and recovers when one of them has crashed. */
static void kill_one_backend(void)
{
    int64_t pid = ask_int(monitor, "SELECT max(pid)" OUR_SESSIONS);
    ck_assert_int_gt(pid, 0);
    ck_assert(kill((pid_t)pid, SIGKILL) == 0);
    while (PQconsumeInput(monitor) && PQstatus(monitor) == CONNECTION_OK)
        poll(&(struct pollfd){.fd = PQsocket(monitor), .events = POLLIN}, 1, -1);
    reconnect();
}

static void restart_at_once(void)
{
    ck_assert(system("cd \"$PQTX_TEST_PGDATA\" && $PQTX_TEST_AS \"$PQTX_TEST_BINDIR/pg_ctl\" -s -w"
                     " -D \"$PQTX_TEST_PGDATA\" -l \"$PQTX_TEST_PGDATA/server.log\" -m immediate"
                     " restart") == 0);
    reconnect();
}

static void terminate_all(void)
{
    sql(monitor, "SELECT pg_terminate_backend(pid)" OUR_SESSIONS);
}

static void endure(int way, void (*blow)(void), int count, const char *what)
{
    struct team team = {.way = &ways[way], .max_attempts = 50, .goal = INT32_MAX};
    team.pool = open_pool(WORKERS);
    start_team(&team);
    for (int i = 0; i < count; i++) {
        wait_for_progress(&team);
        blow();
    }
    wait_for_progress(&team);
    atomic_store(&team.stop, true);
    judge_team(&team, what);
    pqtx_pool_close(team.pool);
}

START_TEST(sessions_that_are_terminated_again_and_again_lose_and_double_nothing)
{
    endure(_i, terminate_all, 50, "terminated 50 times");
}
END_TEST

START_TEST(a_backend_killed_outright_loses_and_doubles_nothing)
{
    if (is_own_server())
        endure(_i, kill_one_backend, 3, "killed 3 times");
}
END_TEST

START_TEST(an_immediate_restart_of_the_server_loses_and_doubles_nothing)
{
    if (is_own_server())
        endure(_i, restart_at_once, 2, "restarted 2 times");
}
END_TEST

/* ---- the lines */

static long events_wanted(void)
{
    const char *given = getenv("PQTX_TEST_EVENTS");
    return given ? strtol(given, NULL, 10) : is_pooled() ? 1000 : 10000;
}

/* Two attempts are few, so that runs end in doubt, and are rolled back for good, as well. */
START_TEST(lines_cut_at_random_lose_and_double_no_event)
{
    struct cut *cut = cut_open();
    struct team team = {.way = &ways[_i], .max_attempts = 2};
    team.goal = events_wanted() / WORKERS / (_i == 0 ? 1 : 4);
    pqtx_pool_options options = PQTX_POOL_OPTIONS;
    pqtx_error error = PQTX_ERROR;
    start_random();
    options.conninfo = cut_conninfo(cut);
    options.max_count = WORKERS;
    assert_status(pqtx_pool_open(&options, &team.pool, &error), PQTX_OK, &error);
    cut_at_random(cut, 25);
    start_team(&team);
    judge_team(&team, "cut at random");
    printf("%ld cuts\n", (long)cut_done(cut));
    pqtx_pool_close(team.pool);
    cut_close(cut);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("live_storm");
    TCase *c = tcase_create("storm");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_set_timeout(c, 300);
    tcase_add_loop_test(c, sessions_that_are_terminated_again_and_again_lose_and_double_nothing, 0,
                        WAYS);
    tcase_add_loop_test(c, a_backend_killed_outright_loses_and_doubles_nothing, 0, WAYS);
    tcase_add_loop_test(c, an_immediate_restart_of_the_server_loses_and_doubles_nothing, 0, WAYS);
    tcase_add_loop_test(c, lines_cut_at_random_lose_and_double_no_event, 0, WAYS);
    suite_add_tcase(s, c);
    return s;
}

int main(void)
{
    return run_suite(suite());
}
