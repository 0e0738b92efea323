/* check_live_gate.c: runs behind a gate: what they hold it for, that each of them leaves it, and
 * that it spares retries. */
#define _DEFAULT_SOURCE
#include "gate.h"
#include "support.h"
#include "support_fake_clock.h"
#include "support_tx.h"

#include <pqtx/one.h>

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#define KEY 42

static pqtx_pool *pool;
static pqtx_gate *gate;
static pqtx_options options;

static void set_up(void)
{
    fresh_schema("pqtx_gate");
    pool = open_pool(2);
    gate = pqtx_gate_open();
    options = (pqtx_options)PQTX_OPTIONS;
    options.isolation = PQTX_ISO_SERIALIZABLE;
    options.gate = gate;
    options.gate_key = KEY;
}

static void tear_down(void)
{
    pqtx_pool_close(pool);
    pqtx_gate_close(gate);
}

static bool is_taken(void)
{
    struct pqtx__gate_slot *slot = pqtx__gate_slot(gate, KEY);
    pthread_mutex_lock(&slot->lock);
    bool taken = slot->taken;
    pthread_mutex_unlock(&slot->lock);
    return taken;
}

static void wait_until_waiting(size_t count)
{
    struct pqtx__gate_slot *slot = pqtx__gate_slot(gate, KEY);
    for (bool there = false; !there; sched_yield()) {
        pthread_mutex_lock(&slot->lock);
        there = slot->turns.count == count;
        pthread_mutex_unlock(&slot->lock);
    }
}

static int64_t key_elsewhere(void)
{
    int64_t key = KEY + 1;
    while (pqtx__gate_slot(gate, key) == pqtx__gate_slot(gate, KEY))
        key++;
    return key;
}

static pqtx_status do_nothing(pqtx_tx *tx, void *arg)
{
    (void)arg;
    return pqtx_exec(tx, "SELECT 1", PQTX_NO_ARGS, NULL);
}

/* ---- held for an attempt, and left on every path */

START_TEST(the_gate_is_held_from_begin_to_commit)
{
    pqtx_tx *tx = pqtx_new(pool, &options);
    ck_assert(!is_taken());
    ck_assert_int_eq(pqtx_attempt(tx), 1);
    ck_assert(is_taken());
    ck_assert_int_eq(pqtx_exec(tx, "SELECT 1", PQTX_NO_ARGS, NULL), PQTX_OK);
    ck_assert(is_taken());
    ck_assert_int_eq(pqtx_commit(tx), PQTX_OK);
    ck_assert(!is_taken());
    pqtx_free(tx);
}
END_TEST

static void assert_left_after(void (*end)(pqtx_tx *tx))
{
    for (int pipelined = 0; pipelined < 2; pipelined++) {
        options.flags = pipelined ? PQTX_PIPELINE : 0;
        pqtx_tx *tx = pqtx_new(pool, &options);
        ck_assert_int_eq(pqtx_attempt(tx), 1);
        ck_assert(is_taken());
        end(tx);
        ck_assert(!is_taken());
    }
}

static void give_up_at_once(pqtx_tx *tx)
{
    pqtx_free(tx);
}

static void give_up_after_a_call(pqtx_tx *tx)
{
    pqtx_exec(tx, "SELECT 1", PQTX_NO_ARGS, NULL);
    pqtx_free(tx);
}

static void leave_undecided(pqtx_tx *tx)
{
    pqtx_exec(tx, "SELECT 1", PQTX_NO_ARGS, NULL);
    ck_assert_int_eq(pqtx_attempt(tx), 0);
    ck_assert_int_eq(pqtx_result(tx), PQTX_MISUSE);
    pqtx_free(tx);
}

static void stop(pqtx_tx *tx)
{
    pqtx_exec(tx, "SELECT 1", PQTX_NO_ARGS, NULL);
    pqtx_fail(tx, PQTX_STOPPED);
    ck_assert_int_eq(pqtx_commit(tx), PQTX_STOPPED);
    pqtx_free(tx);
}

static void fail_in_sql(pqtx_tx *tx)
{
    pqtx_exec(tx, "SELECT 1/0", PQTX_NO_ARGS, NULL);
    ck_assert_int_eq(pqtx_commit(tx), PQTX_BAD_DATA);
    pqtx_free(tx);
}

static void commit_in_one_flight(pqtx_tx *tx)
{
    pqtx_exec(tx, "SELECT 1", PQTX_NO_ARGS, NULL);
    ck_assert_int_eq(pqtx_commit(tx), PQTX_OK);
    pqtx_free(tx);
}

START_TEST(each_way_to_end_leaves_the_gate)
{
    assert_left_after(give_up_at_once);
    assert_left_after(give_up_after_a_call);
    assert_left_after(leave_undecided);
    assert_left_after(stop);
    assert_left_after(fail_in_sql);
    assert_left_after(commit_in_one_flight);
}
END_TEST

static pqtx_fault cut_at(pqtx_point point, uint32_t attempt, void *arg)
{
    return attempt == 1 && point == *(pqtx_point *)arg ? PQTX_FAULT_CUT : PQTX_FAULT_NONE;
}

START_TEST(in_doubt_or_with_a_lost_connection_it_is_left_too)
{
    pqtx_point point = PQTX_POINT_COMMIT_BEGUN;
    options.fault = cut_at;
    options.fault_arg = &point;
    run_task(&(struct task){.pool = pool, .options = &options, .work = do_nothing}, PQTX_IN_DOUBT);
    ck_assert(!is_taken());
    point = PQTX_POINT_STATEMENT_SENT;
    run_task(&(struct task){.pool = pool, .options = &options, .work = do_nothing}, PQTX_OK);
    ck_assert(!is_taken());
}
END_TEST

START_TEST(work_that_was_done_before_leaves_it)
{
    ck_assert_int_eq(pqtx_once_install(pool, NULL, NULL), PQTX_OK);
    ck_assert_int_eq(pqtx_once_reap(pool, NULL, 0, 0, NULL, NULL), PQTX_OK);
    options.event_id = "gate";
    run_task(&(struct task){.pool = pool, .options = &options, .work = do_nothing}, PQTX_OK);
    run_task(&(struct task){.pool = pool, .options = &options, .work = do_nothing},
             PQTX_DONE_BEFORE);
    ck_assert(!is_taken());
    ck_assert_int_eq(pqtx_run_one(pool, &options, "SELECT 1", PQTX_NO_ARGS, 1, NULL, NULL),
                     PQTX_DONE_BEFORE);
    ck_assert(!is_taken());
}
END_TEST

/* ---- not held while the runner sleeps */

static int free_sleeps;

static void look_at_the_gate(struct fake_clock *fake)
{
    (void)fake;
    free_sleeps += !is_taken();
}

static pqtx_status lose_twice(pqtx_tx *tx, void *arg)
{
    (void)arg;
    ck_assert(is_taken());
    return pqtx_attempts(tx) < 3
               ? pqtx_exec(tx, "DO $$BEGIN RAISE 'lost' USING ERRCODE = '40001'; END$$",
                           PQTX_NO_ARGS, NULL)
               : PQTX_OK;
}

START_TEST(others_pass_while_the_runner_sleeps)
{
    struct fake_clock fake;
    fake_clock_init(&fake);
    fake.asleep = look_at_the_gate;
    options.clock = &fake.clock;
    run_task(&(struct task){.pool = pool, .options = &options, .work = lose_twice}, PQTX_OK);
    ck_assert_int_eq(fake.sleep_count, 2);
    ck_assert_int_eq(free_sleeps, 2);
    ck_assert(!is_taken());
}
END_TEST

START_TEST(others_pass_while_no_server_is_to_be_had)
{
    struct fake_clock fake;
    pqtx_pool_options nowhere = PQTX_POOL_OPTIONS;
    pqtx_pool *closed;
    nowhere.flags = PQTX_POOL_LAZY;
    nowhere.conninfo = "host=/nonexistent";
    ck_assert_int_eq(pqtx_pool_open(&nowhere, &closed, NULL), PQTX_OK);
    fake_clock_init(&fake);
    fake.asleep = look_at_the_gate;
    options.clock = &fake.clock;
    options.deadline_ms = 3000;
    run_task(&(struct task){.pool = closed, .options = &options, .work = do_nothing},
             PQTX_NO_CONNECTION);
    ck_assert_int_gt(fake.sleep_count, 0);
    ck_assert_int_eq(free_sleeps, fake.sleep_count);
    ck_assert(!is_taken());
    pqtx_pool_close(closed);
}
END_TEST

/* ---- waiting */

START_TEST(the_wait_ends_at_the_deadline)
{
    pqtx_tx *holder = hold_tx(pool, &options, NULL);
    options.deadline_ms = 50;
    struct task task = {.pool = pool, .options = &options, .work = do_nothing};
    run_task(&task, PQTX_TIMEOUT);
    ck_assert_uint_eq(task.error.flags & PQTX_ERROR_DEADLINE, PQTX_ERROR_DEADLINE);
    ck_assert_uint_eq(task.error.attempt, 0);
    ck_assert_int_eq(pqtx_run_one(pool, &options, "SELECT 1", PQTX_NO_ARGS, 1, NULL, NULL),
                     PQTX_TIMEOUT);
    end_tx(holder);
    run_task(&task, PQTX_OK);
}
END_TEST

START_TEST(who_waits_at_the_gate_keeps_no_connection_from_others)
{
    pqtx_options free_of_it = PQTX_OPTIONS;
    pqtx_tx *holder = hold_tx(pool, &options, NULL); /* one of two connections */
    struct task waiting[3];
    for (size_t i = 0; i < 3; i++) {
        waiting[i] = (struct task){.pool = pool, .options = &options, .work = do_nothing};
        start_task(&waiting[i]);
        wait_until_waiting(i + 1);
    }
    run_for_pid(pool, &free_of_it);
    end_tx(holder);
    for (size_t i = 0; i < 3; i++)
        join_task(&waiting[i], PQTX_OK);
}
END_TEST

START_TEST(another_key_does_not_wait)
{
    pqtx_options other = options;
    other.gate_key = key_elsewhere();
    pqtx_tx *holder = hold_tx(pool, &options, NULL);
    run_for_pid(pool, &other);
    end_tx(holder);
}
END_TEST

START_TEST(the_callers_own_connection_waits_as_well)
{
    PGconn *own = open_session();
    pqtx_tx *holder = hold_tx(pool, &options, NULL);
    struct task task = {.conn = own, .options = &options, .work = do_nothing};
    start_task(&task);
    wait_until_waiting(1);
    end_tx(holder);
    join_task(&task, PQTX_OK);
    ck_assert(!is_taken());
    PQfinish(own);
}
END_TEST

START_TEST(many_single_statements_go_one_after_the_other)
{
    pqtx_item items[3];
    for (int i = 0; i < 3; i++)
        items[i] = (pqtx_item){.size = sizeof *items, .sql = "SELECT 1", .expected = 1};
    options.isolation = PQTX_ISO_DEFAULT; /* where they would share a flight */
    options.deadline_ms = 5000;
    ck_assert_int_eq(pqtx_run_each(pool, &options, items, 3, NULL), PQTX_OK);
    for (int i = 0; i < 3; i++)
        PQclear(items[i].result);
    ck_assert(!is_taken());
}
END_TEST

/* ---- what it is for */

enum { THREADS = 6, ROUNDS = 25 };

static atomic_int inside, crowded;

/* Reads what all others write: without a gate most of those that run at once must fail. */
static pqtx_status move_on(pqtx_tx *tx, void *arg)
{
    int64_t sum;
    const PGresult *row;
    (void)arg;
    crowded += inside++ != 0;
    pqtx_status status = pqtx_exec_one(tx, "SELECT sum(v) FROM shift", PQTX_NO_ARGS, &row);
    if (status == PQTX_OK)
        status = pqtx_get_int(row, 0, 0, &sum);
    if (status == PQTX_OK)
        status = pqtx_update_one(tx, "UPDATE shift SET v = $2 WHERE id = $1",
                                 PQTX_ARGS(PQTX_INT(sum % 4), PQTX_INT(sum + 1)));
    inside--;
    return status;
}

static void *work(void *arg)
{
    for (int i = 0; i < ROUNDS; i++)
        *(int *)arg += pqtx_run(pool, &options, move_on, NULL, NULL) != PQTX_OK;
    return NULL;
}

START_TEST(behind_a_gate_no_race_is_lost)
{
    pthread_t threads[THREADS];
    int failed[THREADS] = {0};
    PGconn *session = open_session();
    sql(session, "CREATE TABLE shift (id int PRIMARY KEY, v numeric);"
                 "INSERT INTO shift SELECT i, 0 FROM generate_series(0, 3) AS i");
    for (int i = 0; i < THREADS; i++)
        ck_assert(pthread_create(&threads[i], NULL, work, &failed[i]) == 0);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        ck_assert_int_eq(failed[i], 0);
    }
    ck_assert_int_eq(crowded, 0);
    ck_assert_uint_eq(stats_of(pool).retries_serialization, 0);
    ck_assert_uint_eq(stats_of(pool).commits, THREADS * ROUNDS);
    PQfinish(session);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("live_gate");
    TCase *c = tcase_create("gate");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_add_test(c, the_gate_is_held_from_begin_to_commit);
    tcase_add_test(c, each_way_to_end_leaves_the_gate);
    tcase_add_test(c, in_doubt_or_with_a_lost_connection_it_is_left_too);
    tcase_add_test(c, work_that_was_done_before_leaves_it);
    tcase_add_test(c, others_pass_while_the_runner_sleeps);
    tcase_add_test(c, others_pass_while_no_server_is_to_be_had);
    tcase_add_test(c, the_wait_ends_at_the_deadline);
    tcase_add_test(c, who_waits_at_the_gate_keeps_no_connection_from_others);
    tcase_add_test(c, another_key_does_not_wait);
    tcase_add_test(c, the_callers_own_connection_waits_as_well);
    tcase_add_test(c, many_single_statements_go_one_after_the_other);
    tcase_add_test(c, behind_a_gate_no_race_is_lost);
    suite_add_tcase(s, c);
    return s;
}

int main(void)
{
    return run_suite(suite());
}
