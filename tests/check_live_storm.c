/* check_live_storm.c: threads count up, each time for an event of its own, while the server and the
 * lines to it are ended again and again: nothing is lost, and nothing is counted twice. */
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
                 "INSERT INTO counter VALUES (0)");
    sql(monitor, pqtx_once_ddl());
}

static void tear_down(void)
{
    PQfinish(monitor);
}

/* ---- those who count */

struct team {
    pqtx_pool *pool;
    int32_t max_attempts;
    long goal; /* events for each worker */
    atomic_bool stop;
    struct worker {
        struct team *team;
        pthread_t thread;
        int number;
        atomic_long decided; /* events */
        long applied, refused, doubts;
        pqtx_status refusal; /* the last one that was no lost connection */
        pqtx_error error;
    } worker[WORKERS];
};

static pqtx_status count_up(pqtx_tx *tx, void *arg)
{
    (void)arg;
    return pqtx_update_one(tx, "UPDATE counter SET value = value + 1", PQTX_NO_ARGS);
}

/* Runs the event until it is decided.  Once in doubt, it is only by its row: that a later run was
 * rolled back says nothing about an earlier one. */
static void work_off(struct worker *worker, long event)
{
    char id[64];
    bool in_doubt = false;
    pqtx_options options = PQTX_OPTIONS;
    snprintf(id, sizeof id, "worker %d, event %ld", worker->number, event);
    options.event_id = id;
    options.once_schema = SCHEMA;
    options.max_attempts = worker->team->max_attempts;
    options.deadline_ms = 60000;
    for (;;) {
        pqtx_error error = PQTX_ERROR;
        pqtx_status status = pqtx_run(worker->team->pool, &options, count_up, NULL, &error);
        if (status == PQTX_OK || status == PQTX_DONE_BEFORE) {
            worker->applied++;
            return;
        }
        if (status != PQTX_NO_CONNECTION && status != PQTX_IN_DOUBT) {
            worker->refusal = status;
            worker->error = error;
        }
        if (status == PQTX_IN_DOUBT) {
            worker->doubts++;
            in_doubt = true;
        } else if (!in_doubt) {
            worker->refused++;
            return;
        }
    }
}

static void *work(void *arg)
{
    struct worker *worker = arg;
    for (long event = 0; event < worker->team->goal && !atomic_load(&worker->team->stop); event++) {
        work_off(worker, event);
        atomic_fetch_add(&worker->decided, 1);
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

/* Until each has decided two more events, so that one was begun after this call. */
static void wait_for_progress(struct team *team)
{
    for (int i = 0; i < WORKERS; i++) {
        long wanted = atomic_load(&team->worker[i].decided) + 2;
        while (atomic_load(&team->worker[i].decided) < wanted)
            poll(NULL, 0, 1); /* only between questions; Check's time limit ends it */
    }
}

/* The counter is the number of events that were reported as applied, and so are their rows. */
static void judge_team(struct team *team, const char *what)
{
    long decided = 0, applied = 0, refused = 0, doubts = 0;
    for (int i = 0; i < WORKERS; i++) {
        struct worker *worker = &team->worker[i];
        pthread_join(worker->thread, NULL);
        assert_status(worker->refusal, PQTX_OK, &worker->error);
        decided += atomic_load(&worker->decided);
        applied += worker->applied;
        refused += worker->refused;
        doubts += worker->doubts;
    }
    pqtx_stats stats = stats_of(team->pool);
    printf("%s: %ld events, %ld applied, %ld rolled back for good, %ld runs left in doubt, "
           "%ld attempts, %ld answers to COMMIT found out\n",
           what, decided, applied, refused, doubts, (long)stats.attempts, (long)stats.resolved);
    fflush(stdout);
    ck_assert_int_eq(applied + refused, decided);
    ck_assert_int_eq(ask_int(monitor, "SELECT value FROM counter"), applied);
    ck_assert_int_eq(ask_int(monitor, "SELECT count(*) FROM pqtx_once WHERE NOT void"), applied);
    ck_assert_int_gt(applied, 0);
    ck_assert_uint_gt(stats.retries_connection, 0);
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

static void endure(void (*blow)(void), int count, const char *what)
{
    struct team team = {.max_attempts = 50, .goal = INT32_MAX};
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
    endure(terminate_all, 50, "terminated 50 times");
}
END_TEST

START_TEST(a_backend_killed_outright_loses_and_doubles_nothing)
{
    if (is_own_server())
        endure(kill_one_backend, 3, "killed 3 times");
}
END_TEST

START_TEST(an_immediate_restart_of_the_server_loses_and_doubles_nothing)
{
    if (is_own_server())
        endure(restart_at_once, 2, "restarted 2 times");
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
    struct team team = {.max_attempts = 2, .goal = events_wanted() / WORKERS};
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
    tcase_add_test(c, sessions_that_are_terminated_again_and_again_lose_and_double_nothing);
    tcase_add_test(c, a_backend_killed_outright_loses_and_doubles_nothing);
    tcase_add_test(c, an_immediate_restart_of_the_server_loses_and_doubles_nothing);
    tcase_add_test(c, lines_cut_at_random_lose_and_double_no_event);
    suite_add_tcase(s, c);
    return s;
}

int main(void)
{
    return run_suite(suite());
}
