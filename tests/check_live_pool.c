/* check_live_pool.c: whose connection, for how long, on a real server. */
#define _DEFAULT_SOURCE
#include "support.h"
#include "support_clock.h"
#include "support_pooler.h"
#include "support_tx.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- what the tests share */

#define SCHEMA "pqtx_pool"

static PGconn *monitor;

static void set_up(void)
{
    char name[32];
    snprintf(name, sizeof name, "check_pool_%d", (int)getpid());
    setenv("PGAPPNAME", name, 1); /* tells this test's sessions from all others */
    fresh_schema(SCHEMA);
    monitor = open_session();
}

static void tear_down(void)
{
    PQfinish(monitor);
}

/* Those of a pooler stay as they are: there it is its clients that come and go. */
static int64_t count_sessions(void)
{
    if (is_pooled())
        return pooler_clients(SCHEMA);
    return ask_int(monitor, "SELECT count(*) FROM pg_stat_activity"
                            " WHERE application_name = current_setting('application_name')"
                            " AND pid <> pg_backend_pid()");
}

static void wait_for_sessions(int count)
{
    while (count_sessions() != count)
        poll(NULL, 0, 10); /* only between questions; Check's time limit ends it */
}

static pqtx_pool *open_with(pqtx_pool_options options)
{
    pqtx_error error = PQTX_ERROR;
    pqtx_pool *pool;
    options.conninfo = pool_conninfo();
    assert_status(pqtx_pool_open(&options, &pool, &error), PQTX_OK, &error);
    return pool;
}

static pqtx_pool *open_of(int max_count)
{
    pqtx_pool_options options = PQTX_POOL_OPTIONS;
    options.max_count = max_count;
    return open_with(options);
}

/* A run on another thread, which asks for its backend. */
struct asker {
    struct task task;
    pqtx_options options;
    int64_t pid;
};

static void start_asking(struct asker *asker, pqtx_pool *pool, int64_t deadline_ms)
{
    *asker = (struct asker){.options = PQTX_OPTIONS};
    asker->options.deadline_ms = deadline_ms;
    asker->task = (struct task){
        .pool = pool, .options = &asker->options, .work = ask_pid, .arg = &asker->pid};
    start_task(&asker->task);
}

static void wait_for_waiting(pqtx_pool *pool, unsigned count)
{
    while (stats_of(pool).waiting_count != count)
        poll(NULL, 0, 1); /* only between questions; Check's time limit ends it */
}

/* ---- how many, and in which order */

struct crowd {
    pqtx_pool *pool;
    atomic_int running, failed;
};

static void *run_many(void *arg)
{
    struct crowd *crowd = arg;
    int64_t pid;
    for (int i = 0; i < 40; i++)
        if (pqtx_run(crowd->pool, NULL, ask_pid, &pid, NULL) != PQTX_OK)
            atomic_fetch_add(&crowd->failed, 1);
    atomic_fetch_sub(&crowd->running, 1);
    return NULL;
}

START_TEST(sixteen_threads_never_have_more_connections_than_max_count)
{
    enum { THREADS = 16, MAX = 4 };
    pthread_t threads[THREADS];
    struct crowd crowd = {.pool = open_of(MAX), .running = THREADS};
    int64_t most = 0;
    for (int i = 0; i < THREADS; i++)
        ck_assert(pthread_create(&threads[i], NULL, run_many, &crowd) == 0);
    do {
        int64_t count = count_sessions();
        most = count > most ? count : most;
    } while (atomic_load(&crowd.running) > 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    ck_assert_int_eq(atomic_load(&crowd.failed), 0);
    ck_assert_int_ge(most, 1);
    ck_assert_int_le(most, MAX);
    ck_assert_uint_le(stats_of(crowd.pool).connects, MAX);
    ck_assert_uint_eq(stats_of(crowd.pool).commits, THREADS * 40);
    pqtx_pool_close(crowd.pool);
    wait_for_sessions(0);
}
END_TEST

struct queuer {
    struct task task;
    atomic_int *turns;
    int turn;
};

static pqtx_status note_turn(pqtx_tx *tx, void *arg)
{
    struct queuer *queuer = arg;
    (void)tx;
    queuer->turn = atomic_fetch_add(queuer->turns, 1);
    return PQTX_OK;
}

START_TEST(threads_that_wait_are_served_in_the_order_they_came)
{
    enum { COUNT = 12 };
    struct queuer queuers[COUNT];
    atomic_int turns = 0;
    pqtx_pool *pool = open_of(1);
    pqtx_tx *holder = hold_tx(pool, NULL, NULL);
    for (int i = 0; i < COUNT; i++) {
        queuers[i] =
            (struct queuer){{.pool = pool, .work = note_turn, .arg = &queuers[i]}, &turns, -1};
        start_task(&queuers[i].task);
        wait_for_waiting(pool, (unsigned)i + 1);
    }
    end_tx(holder);
    for (int i = 0; i < COUNT; i++) {
        join_task(&queuers[i].task, PQTX_OK);
        ck_assert_int_eq(queuers[i].turn, i);
    }
    ck_assert_uint_eq(stats_of(pool).waiting_count, 0);
    pqtx_pool_close(pool);
}
END_TEST

START_TEST(who_gives_up_waiting_leaves_the_queue_to_the_others)
{
    struct asker hasty, patient;
    pqtx_pool *pool = open_of(1);
    pqtx_tx *holder = hold_tx(pool, NULL, NULL);
    start_asking(&hasty, pool, 500);
    wait_for_waiting(pool, 1);
    start_asking(&patient, pool, 0);
    wait_for_waiting(pool, 2);
    join_task(&hasty.task, PQTX_TIMEOUT);
    ck_assert_uint_eq(stats_of(pool).waiting_count, 1);
    end_tx(holder);
    join_task(&patient.task, PQTX_OK);
    pqtx_pool_close(pool);
}
END_TEST

START_TEST(the_acquire_timeout_ends_the_wait_long_before_the_deadline)
{
    struct asker asker;
    pqtx_pool_options options = PQTX_POOL_OPTIONS;
    options.max_count = 1;
    options.acquire_timeout_ms = 200;
    pqtx_pool *pool = open_with(options);
    pqtx_tx *holder = hold_tx(pool, NULL, NULL);
    start_asking(&asker, pool, 100 * options.acquire_timeout_ms);
    join_task(&asker.task, PQTX_TIMEOUT);
    ck_assert_int_eq(asker.task.error.phase, PQTX_PHASE_CONNECT);
    ck_assert(!took_at_most(&asker.task, 99, options.acquire_timeout_ms));
    ck_assert(took_at_most(&asker.task, 25, asker.options.deadline_ms));
    end_tx(holder);
    pqtx_pool_close(pool);
}
END_TEST

START_TEST(the_deadline_ends_the_wait_for_a_connection)
{
    struct asker asker;
    pqtx_pool *pool = open_of(1);
    pqtx_tx *holder = hold_tx(pool, NULL, NULL);
    start_asking(&asker, pool, 1000);
    join_task(&asker.task, PQTX_TIMEOUT);
    ck_assert(took_at_most(&asker.task, 200, asker.options.deadline_ms));
    end_tx(holder);
    ck_assert_int_gt(run_for_pid(pool, NULL), 0);
    pqtx_pool_close(pool);
}
END_TEST

/* ---- which one */

struct holder {
    pqtx_pool *pool;
    pqtx_tx *tx;
    int64_t pid;
};

static void *hold_on_thread(void *arg)
{
    struct holder *holder = arg;
    holder->tx = hold_tx(holder->pool, NULL, &holder->pid);
    return NULL;
}

/* Leaves a pool with the connection that this thread had last, and on top of it one that another
 * thread had last. */
static void stack_two(pqtx_pool *pool, int64_t *mine, int64_t *top)
{
    pthread_t thread;
    struct holder other = {.pool = pool};
    pqtx_tx *tx = hold_tx(pool, NULL, mine);
    ck_assert(pthread_create(&thread, NULL, hold_on_thread, &other) == 0);
    pthread_join(thread, NULL);
    end_tx(tx);
    end_tx(other.tx);
    *top = other.pid;
}

START_TEST(a_thread_gets_the_connection_that_it_had_last)
{
    int64_t mine, top;
    pqtx_pool *pool = open_of(2);
    for (int i = 0; i < 20; i++) {
        stack_two(pool, &mine, &top);
        ck_assert_int_ne(mine, top);
        ck_assert_int_eq(run_for_pid(pool, NULL), mine);
        ck_assert_int_eq(run_for_pid(pool, NULL), mine);
    }
    pqtx_pool_close(pool);
}
END_TEST

START_TEST(a_new_thread_gets_the_connection_that_was_used_last)
{
    int64_t mine, top;
    pqtx_pool *pool = open_of(2);
    stack_two(pool, &mine, &top);
    struct asker asker;
    start_asking(&asker, pool, 0);
    join_task(&asker.task, PQTX_OK);
    ck_assert_int_eq(asker.pid, top);
    pqtx_pool_close(pool);
}
END_TEST

/* ---- for how long */

/* A clock to set forward, a pool that goes by it, and how transactions go by it too. */
struct aging {
    struct test_clock clock;
    pqtx_options options;
    pqtx_pool *pool;
};

static void open_aging(struct aging *aging, pqtx_pool_options options)
{
    test_clock_init(&aging->clock);
    aging->options = (pqtx_options)PQTX_OPTIONS;
    aging->options.clock = options.clock = &aging->clock.clock;
    aging->pool = open_with(options);
}

static int64_t pid_of(struct aging *aging)
{
    return run_for_pid(aging->pool, &aging->options);
}

START_TEST(connections_idle_past_their_limit_are_closed_down_to_min_count)
{
    struct aging aging;
    pqtx_tx *held[6];
    pqtx_pool_options options = PQTX_POOL_OPTIONS;
    options.max_count = 6;
    options.min_count = 2;
    options.idle_limit_ms = 60000;
    open_aging(&aging, options);
    for (int i = 0; i < 6; i++)
        held[i] = hold_tx(aging.pool, &aging.options, NULL);
    for (int i = 0; i < 6; i++)
        end_tx(held[i]);
    test_clock_forward(&aging.clock, 59000);
    pid_of(&aging);
    ck_assert_uint_eq(stats_of(aging.pool).open_count, 6);
    test_clock_forward(&aging.clock, 61000);
    for (int i = 0; i < 12; i++)
        pid_of(&aging);
    ck_assert_uint_eq(stats_of(aging.pool).open_count, 2);
    ck_assert_uint_eq(stats_of(aging.pool).idle_count, 2);
    ck_assert_uint_eq(stats_of(aging.pool).drops, 0);
    wait_for_sessions(2);
    pqtx_pool_close(aging.pool);
}
END_TEST

START_TEST(a_connection_idle_past_its_limit_is_not_used_again)
{
    struct aging aging;
    pqtx_pool_options options = PQTX_POOL_OPTIONS;
    options.max_count = 1;
    options.idle_limit_ms = 60000;
    open_aging(&aging, options);
    int64_t first = pid_of(&aging);
    test_clock_forward(&aging.clock, 59000);
    ck_assert_int_eq(pid_of(&aging), first);
    test_clock_forward(&aging.clock, 61000);
    ck_assert_int_ne(pid_of(&aging), first);
    pqtx_pool_close(aging.pool);
}
END_TEST

START_TEST(a_connection_past_its_age_is_replaced_and_counts_as_no_drop)
{
    struct aging aging;
    pqtx_pool_options options = PQTX_POOL_OPTIONS;
    options.max_count = 1;
    options.min_count = 1;
    options.age_limit_ms = 60000;
    open_aging(&aging, options);
    int64_t first = pid_of(&aging);
    for (int i = 0; i < 5; i++) { /* in use all the time */
        ck_assert_int_eq(pid_of(&aging), first);
        test_clock_forward(&aging.clock, 11000);
    }
    test_clock_forward(&aging.clock, 11000);
    ck_assert_int_ne(pid_of(&aging), first);
    ck_assert_uint_eq(stats_of(aging.pool).connects, 2);
    ck_assert_uint_eq(stats_of(aging.pool).drops, 0);
    wait_for_sessions(1);
    pqtx_pool_close(aging.pool);
}
END_TEST

START_TEST(a_pool_and_its_transactions_may_have_clocks_of_their_own)
{
    struct aging aging;
    open_aging(&aging, (pqtx_pool_options)PQTX_POOL_OPTIONS);
    test_clock_forward(&aging.clock, 1000000);
    ck_assert_int_gt(run_for_pid(aging.pool, NULL), 0);
    pqtx_pool_close(aging.pool);
    aging.pool = open_of(1);
    ck_assert_int_gt(pid_of(&aging), 0);
    pqtx_pool_close(aging.pool);
}
END_TEST

START_TEST(opening_makes_min_count_connections)
{
    pqtx_pool_options options = PQTX_POOL_OPTIONS;
    options.max_count = 5;
    options.min_count = 3;
    pqtx_pool *pool = open_with(options);
    ck_assert_int_eq(count_sessions(), 3);
    ck_assert_uint_eq(stats_of(pool).idle_count, 3);
    pqtx_pool_close(pool);
    pool = open_of(5);
    wait_for_sessions(1);
    pqtx_pool_close(pool);
}
END_TEST

START_TEST(a_lazy_pool_connects_when_it_is_used)
{
    pqtx_pool_options options = PQTX_POOL_OPTIONS;
    options.flags = PQTX_POOL_LAZY;
    options.min_count = 3;
    pqtx_pool *pool = open_with(options);
    ck_assert_int_eq(count_sessions(), 0);
    ck_assert_uint_eq(stats_of(pool).open_count, 0);
    ck_assert_int_gt(run_for_pid(pool, NULL), 0);
    ck_assert_int_eq(count_sessions(), 1);
    pqtx_pool_close(pool);
}
END_TEST

/* ---- closing, counting */

START_TEST(closing_lets_the_transactions_under_way_finish)
{
    pqtx_pool *pool = open_of(3);
    pqtx_tx *tx = hold_tx(pool, NULL, NULL), *other = hold_tx(pool, NULL, NULL);
    end_tx(other);
    ck_assert_int_eq(count_sessions(), 2);
    pqtx_pool_close(pool);
    wait_for_sessions(1);
    assert_status(pqtx_exec(tx, "CREATE TEMP TABLE t (id int)", PQTX_NO_ARGS, NULL), PQTX_OK, NULL);
    end_tx(tx);
    wait_for_sessions(0);
}
END_TEST

START_TEST(after_closing_a_lost_race_is_not_begun_again)
{
    pqtx_pool *pool = open_of(1);
    pqtx_tx *tx = hold_tx(pool, NULL, NULL);
    pqtx_pool_close(pool);
    assert_status(pqtx_fail(tx, PQTX_SERIALIZATION), PQTX_SERIALIZATION, NULL);
    ck_assert_int_ne(pqtx_commit(tx), PQTX_OK);
    ck_assert_int_eq(pqtx_attempt(tx), 0);
    ck_assert_int_eq(pqtx_attempts(tx), 1);
    ck_assert_int_ne(pqtx_result(tx), PQTX_OK);
    ck_assert_int_eq(pqtx_get_outcome(tx), PQTX_OUTCOME_ROLLED_BACK);
    pqtx_free(tx);
}
END_TEST

START_TEST(closing_wakes_the_threads_that_wait)
{
    enum { COUNT = 5 };
    struct asker askers[COUNT];
    pqtx_pool *pool = open_of(1);
    pqtx_tx *holder = hold_tx(pool, NULL, NULL);
    for (int i = 0; i < COUNT; i++)
        start_asking(&askers[i], pool, 60000);
    wait_for_waiting(pool, COUNT);
    pqtx_pool_close(pool);
    for (int i = 0; i < COUNT; i++) {
        join_task(&askers[i].task, PQTX_MISUSE);
        ck_assert(took_at_most(&askers[i].task, 50, askers[i].options.deadline_ms));
    }
    end_tx(holder);
    wait_for_sessions(0);
}
END_TEST

static pqtx_status lose_twice(pqtx_tx *tx, void *arg)
{
    pqtx_status cause = *(pqtx_status *)arg;
    if (pqtx_attempts(tx) > 2)
        return PQTX_OK;
    if (cause == PQTX_NO_CONNECTION)
        return pqtx_exec(tx, "SELECT pg_terminate_backend(pg_backend_pid())", PQTX_NO_ARGS, NULL);
    return pqtx_fail(tx, cause);
}

START_TEST(the_statistics_add_up)
{
    static const pqtx_status causes[] = {PQTX_SERIALIZATION, PQTX_DEADLOCK, PQTX_BUSY,
                                         PQTX_NO_CONNECTION, PQTX_ROLLED_BACK};
    pqtx_status refused = PQTX_CHECK;
    pqtx_pool *pool = open_of(2);
    for (size_t i = 0; i < sizeof causes / sizeof causes[0]; i++) {
        pqtx_status cause = causes[i];
        pqtx_error error = PQTX_ERROR;
        assert_status(pqtx_run(pool, NULL, lose_twice, &cause, &error), PQTX_OK, &error);
    }
    assert_status(pqtx_run(pool, NULL, lose_twice, &refused, NULL), PQTX_CHECK, NULL);
    pqtx_tx *open = hold_tx(pool, NULL, NULL);
    pqtx_stats s = stats_of(pool);
    ck_assert_uint_eq(s.starts, 7);
    ck_assert_uint_eq(s.attempts, 3 * 5 + 1 + 1);
    ck_assert_uint_eq(s.commits, 5);
    ck_assert_uint_eq(s.rollbacks, 1);
    ck_assert_uint_eq(s.in_doubt, 0);
    ck_assert_uint_eq(s.retries_serialization, 2);
    ck_assert_uint_eq(s.retries_deadlock, 2);
    ck_assert_uint_eq(s.retries_busy, 2);
    ck_assert_uint_eq(s.retries_connection, 2);
    ck_assert_uint_eq(s.retries_other, 2);
    ck_assert_uint_eq(s.drops, 2);
    ck_assert_uint_eq(s.open_count, 1);
    ck_assert_uint_eq(s.idle_count, 0);
    pqtx_free(open); /* left in the middle: it ended, rolled back */
    s = stats_of(pool);
    ck_assert_uint_eq(s.starts, s.commits + s.rollbacks + s.in_doubt);
    ck_assert_uint_eq(s.idle_count, s.open_count);
    ck_assert_uint_eq(s.connects, s.open_count + s.drops);
    pqtx_pool_close(pool);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("live_pool");
    TCase *c = tcase_create("pool");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_set_timeout(c, 60);
    tcase_add_test(c, sixteen_threads_never_have_more_connections_than_max_count);
    tcase_add_test(c, threads_that_wait_are_served_in_the_order_they_came);
    tcase_add_test(c, who_gives_up_waiting_leaves_the_queue_to_the_others);
    tcase_add_test(c, the_acquire_timeout_ends_the_wait_long_before_the_deadline);
    tcase_add_test(c, the_deadline_ends_the_wait_for_a_connection);
    add_direct_test(c, a_thread_gets_the_connection_that_it_had_last, ANY_SESSION);
    add_direct_test(c, a_new_thread_gets_the_connection_that_was_used_last, ANY_SESSION);
    tcase_add_test(c, connections_idle_past_their_limit_are_closed_down_to_min_count);
    add_direct_test(c, a_connection_idle_past_its_limit_is_not_used_again, ANY_SESSION);
    add_direct_test(c, a_connection_past_its_age_is_replaced_and_counts_as_no_drop, ANY_SESSION);
    tcase_add_test(c, a_pool_and_its_transactions_may_have_clocks_of_their_own);
    tcase_add_test(c, opening_makes_min_count_connections);
    tcase_add_test(c, a_lazy_pool_connects_when_it_is_used);
    tcase_add_test(c, closing_lets_the_transactions_under_way_finish);
    tcase_add_test(c, after_closing_a_lost_race_is_not_begun_again);
    tcase_add_test(c, closing_wakes_the_threads_that_wait);
    tcase_add_test(c, the_statistics_add_up);
    suite_add_tcase(s, c);
    return s;
}

int main(void)
{
    return run_suite(suite());
}
