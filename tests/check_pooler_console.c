/* check_pooler_console.c: what PgBouncer does to transactions by itself or at its console's word:
 * it lets go of its sessions, ends its clients, and sends away who waits too long. */
#define _DEFAULT_SOURCE
#include "support.h"
#include "support_pooler.h"
#include "support_tx.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define SCHEMA "pqtx_console"

static PGconn *monitor; /* on the server itself */

static void set_up(void)
{
    char name[32];
    snprintf(name, sizeof name, "check_console_%d", (int)getpid());
    setenv("PGAPPNAME", name, 1); /* tells this test's sessions from all others */
    fresh_schema(SCHEMA);
    monitor = open_session();
    sql(monitor, pqtx_once_ddl());
    sql(monitor, "CREATE TABLE counter (value bigint NOT NULL); INSERT INTO counter VALUES (0)");
}

/* What was set at the console holds until the file is read again. */
static void tear_down(void)
{
    pooler_do("RELOAD");
    PQfinish(monitor);
}

static pqtx_status count_up(pqtx_tx *tx, void *arg)
{
    (void)arg;
    return pqtx_update_one(tx, "UPDATE " SCHEMA ".counter SET value = value + 1", PQTX_NO_ARGS);
}

static int64_t counted(void)
{
    return ask_int(monitor, "SELECT value FROM counter");
}

/* ---- under load */

enum { WORKERS = 6 }; /* more workers than the pooler has sessions */

struct worker {
    pqtx_pool *pool;
    atomic_bool *stop;
    int number;
    pthread_t thread;
    atomic_int count; /* events that are done, … */
    pqtx_status status;
    pqtx_error error; /* … the last one so */
};

static void *work(void *arg)
{
    struct worker *worker = arg;
    while (worker->status == PQTX_OK && !atomic_load(worker->stop)) {
        char id[32];
        pqtx_options options = PQTX_OPTIONS;
        snprintf(id, sizeof id, "%d %d", worker->number, atomic_load(&worker->count));
        options.event_id = id;
        options.once_schema = SCHEMA;
        options.in_doubt = PQTX_DOUBT_TOKEN;
        options.max_attempts = 1000;
        options.deadline_ms = 60000;
        worker->error = (pqtx_error)PQTX_ERROR;
        worker->status = pqtx_run(worker->pool, &options, count_up, NULL, &worker->error);
        atomic_fetch_add(&worker->count, worker->status == PQTX_OK);
    }
    return NULL;
}

/* Until each has done some more events. */
static void wait_for_progress(struct worker *workers)
{
    for (int i = 0; i < WORKERS; i++) {
        int wanted = atomic_load(&workers[i].count) + 3;
        while (atomic_load(&workers[i].count) < wanted)
            poll(NULL, 0, 1); /* only between questions; Check's time limit ends it */
    }
}

/* Under these blows no event is lost or counted twice; returns how often a connection was lost. */
static uint64_t endure(void (*blow)(void), int times)
{
    struct worker workers[WORKERS];
    atomic_bool stop = false;
    pqtx_pool *pool = pooler_pool(pooler_conninfo(), WORKERS);
    for (int i = 0; i < WORKERS; i++) {
        workers[i] = (struct worker){.pool = pool, .stop = &stop, .number = i};
        ck_assert(pthread_create(&workers[i].thread, NULL, work, &workers[i]) == 0);
    }
    for (int i = 0; i < times; i++) {
        wait_for_progress(workers);
        blow();
    }
    wait_for_progress(workers);
    atomic_store(&stop, true);
    int64_t done = 0;
    for (int i = 0; i < WORKERS; i++) {
        pthread_join(workers[i].thread, NULL);
        assert_status(workers[i].status, PQTX_OK, &workers[i].error);
        done += atomic_load(&workers[i].count);
    }
    ck_assert_int_eq(counted(), done);
    pqtx_stats stats = stats_of(pool);
    pqtx_pool_close(pool);
    return stats.retries_connection + stats.drops;
}

static void reconnect(void)
{
    pooler_do("RECONNECT");
}

START_TEST(sessions_that_the_pooler_lets_go_of_cost_nothing)
{
    ck_assert_uint_eq(endure(reconnect, 10), 0);
}
END_TEST

/* All its clients are ended at once, and the sessions under them. */
static void kill_all(void)
{
    pooler_do("KILL pooled");
    pooler_do("RESUME pooled");
}

START_TEST(clients_that_the_pooler_ends_lose_and_double_nothing)
{
    ck_assert_uint_gt(endure(kill_all, 3), 0);
}
END_TEST

static void hold_back(void)
{
    pooler_do("PAUSE pooled");
    pooler_do("RESUME pooled");
}

START_TEST(a_pause_of_the_pooler_costs_nothing)
{
    ck_assert_uint_eq(endure(hold_back, 10), 0);
}
END_TEST

/* ---- by itself */

START_TEST(a_session_past_its_lifetime_is_replaced_unnoticed)
{
    pqtx_pool *pool = pooler_pool(pooler_one_conninfo(), 1);
    int64_t first = run_for_pid(pool, NULL);
    pooler_do("SET server_lifetime = 1");
    while (run_for_pid(pool, NULL) == first) /* Check's time limit ends it */
        poll(NULL, 0, 1);
    pqtx_stats stats = stats_of(pool);
    ck_assert_uint_eq(stats.connects, 1);
    ck_assert_uint_eq(stats.attempts, stats.commits);
    pqtx_pool_close(pool);
}
END_TEST

static void make_room(const pqtx_event *event, void *holder)
{
    if (event->type == PQTX_EVENT_FAILED)
        end_tx(holder);
}

/* Both are its clients, and it has one session. */
START_TEST(who_waits_too_long_at_the_pooler_is_sent_away_and_comes_again)
{
    pqtx_pool *other = pooler_pool(pooler_one_conninfo(), 1);
    pqtx_pool *pool = pooler_pool(pooler_one_conninfo(), 1);
    pqtx_tx *holder = hold_tx(other, NULL, NULL);
    pqtx_options options = PQTX_OPTIONS;
    pqtx_evidence evidence = PQTX_EVIDENCE;
    pqtx_error error = PQTX_ERROR;
    options.evidence = &evidence;
    options.observer = make_room;
    options.observer_arg = holder;
    pooler_do("SET query_wait_timeout = 1");
    pqtx_status status = pqtx_run(pool, &options, count_up, NULL, &error);
    assert_status(status, PQTX_OK, &error);
    ck_assert_uint_eq(evidence.count, 1);
    assert_status(evidence.records[0].status, PQTX_NO_CONNECTION, NULL);
    ck_assert_str_eq(evidence.records[0].sqlstate, "08P01");
    ck_assert_int_eq(evidence.records[0].origin, PQTX_ORIGIN_POOLER);
    ck_assert_int_eq(counted(), 1);
    pqtx_pool_close(other);
    pqtx_pool_close(pool);
}
END_TEST

/* The same once the transaction has begun: its session is the pooler's to end. */
START_TEST(a_transaction_idle_too_long_for_the_pooler_is_rolled_back)
{
    pqtx_pool *pool = pooler_pool(pooler_one_conninfo(), 1);
    pqtx_error error = PQTX_ERROR;
    pqtx_tx *tx = pqtx_new(pool, NULL);
    pooler_do("SET idle_transaction_timeout = 1");
    ck_assert_int_eq(pqtx_attempt(tx), 1);
    assert_status(count_up(tx, NULL), PQTX_OK, NULL);
    wait_until_true(monitor, "SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name ="
                             " current_setting('application_name') AND pid <> pg_backend_pid()"
                             " AND xact_start IS NOT NULL");
    pqtx_status status = count_up(tx, NULL);
    pqtx_get_error(tx, &error);
    assert_status(status, PQTX_NO_CONNECTION, &error);
    ck_assert_int_eq(error.origin, PQTX_ORIGIN_POOLER);
    assert_status(pqtx_commit(tx), PQTX_NO_CONNECTION, NULL);
    ck_assert_int_eq(pqtx_attempt(tx), 1);
    assert_status(count_up(tx, NULL), PQTX_OK, NULL);
    end_tx(tx);
    ck_assert_int_eq(counted(), 1);
    pqtx_pool_close(pool);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("a pooler and its console");
    TCase *tcase = tcase_create("a pooler and its console");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, sessions_that_the_pooler_lets_go_of_cost_nothing);
    tcase_add_test(tcase, clients_that_the_pooler_ends_lose_and_double_nothing);
    tcase_add_test(tcase, a_pause_of_the_pooler_costs_nothing);
    tcase_add_test(tcase, a_session_past_its_lifetime_is_replaced_unnoticed);
    tcase_add_test(tcase, who_waits_too_long_at_the_pooler_is_sent_away_and_comes_again);
    tcase_add_test(tcase, a_transaction_idle_too_long_for_the_pooler_is_rolled_back);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
