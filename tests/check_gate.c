/* check_gate.c: one at a time for each key, in the order they came, and never for ever. */
#define _DEFAULT_SOURCE
#include "gate.h"
#include "clock.h"
#include "support.h"

#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#define LONG_US INT64_C(60000000)

static pqtx_gate *gate;

static void set_up(void)
{
    gate = pqtx_gate_open();
    ck_assert_ptr_nonnull(gate);
}

static void tear_down(void)
{
    pqtx_gate_close(gate);
}

static bool enter_within(int64_t key, int64_t us)
{
    const pqtx_clock *clock = pqtx__clock(NULL);
    return pqtx__gate_enter(gate, key, clock, pqtx__now(clock) + us);
}

static size_t waiting_at(int64_t key)
{
    struct pqtx__gate_slot *slot = pqtx__gate_slot(gate, key);
    pthread_mutex_lock(&slot->lock);
    size_t count = slot->turns.count;
    pthread_mutex_unlock(&slot->lock);
    return count;
}

static void wait_until_waiting(int64_t key, size_t count)
{
    while (waiting_at(key) != count) /* Check's timeout is the limit */
        sched_yield();
}

/* Another key, in the same slot or in another one. */
static int64_t key_beside(int64_t key, bool same_slot)
{
    int64_t other = key + 1;
    while ((pqtx__gate_slot(gate, other) == pqtx__gate_slot(gate, key)) != same_slot)
        other++;
    return other;
}

/* ---- one thread */

START_TEST(a_taken_gate_lets_nobody_through_until_it_is_left)
{
    ck_assert(enter_within(42, 0));
    ck_assert(!enter_within(42, 0));
    ck_assert(!enter_within(42, 1000));
    pqtx__gate_leave(gate, 42);
    ck_assert(enter_within(42, 0));
    pqtx__gate_leave(gate, 42);
}
END_TEST

START_TEST(keys_are_apart_unless_they_share_a_slot)
{
    ck_assert(enter_within(42, 0));
    ck_assert(enter_within(key_beside(42, false), 0));
    ck_assert(!enter_within(key_beside(42, true), 0));
}
END_TEST

START_TEST(any_key_has_a_slot_and_neighbours_have_others)
{
    bool used[PQTX__GATE_SLOTS] = {false};
    int count = 0;
    static const int64_t far[] = {0, -1, INT64_MIN, INT64_MAX};
    for (int i = 0; i < 4; i++) {
        ptrdiff_t slot = pqtx__gate_slot(gate, far[i]) - gate->slots;
        ck_assert(slot >= 0 && slot < PQTX__GATE_SLOTS);
    }
    for (int64_t key = 1; key <= PQTX__GATE_SLOTS; key++) {
        bool *one = &used[pqtx__gate_slot(gate, key) - gate->slots];
        count += !*one;
        *one = true;
    }
    ck_assert_int_ge(count, PQTX__GATE_SLOTS / 2);
}
END_TEST

START_TEST(no_gate_is_closed_without_harm)
{
    pqtx_gate_close(NULL);
}
END_TEST

/* ---- several threads */

struct visitor {
    pthread_t thread;
    int64_t key, within_us;
    bool passed;
    int place; /* in the order of passing */
};

static int places; /* who has passed the gate may touch it */

static void *visit(void *arg)
{
    struct visitor *visitor = arg;
    visitor->passed = enter_within(visitor->key, visitor->within_us);
    if (visitor->passed) {
        visitor->place = places++;
        pqtx__gate_leave(gate, visitor->key);
    }
    return NULL;
}

static void send(struct visitor *visitor, int64_t key, int64_t within_us)
{
    *visitor = (struct visitor){.key = key, .within_us = within_us};
    ck_assert(pthread_create(&visitor->thread, NULL, visit, visitor) == 0);
}

START_TEST(who_came_first_passes_first)
{
    enum { VISITORS = 6 };
    struct visitor visitors[VISITORS];
    ck_assert(enter_within(42, 0));
    for (size_t i = 0; i < VISITORS; i++) {
        send(&visitors[i], 42, LONG_US);
        wait_until_waiting(42, i + 1);
    }
    pqtx__gate_leave(gate, 42);
    for (int i = 0; i < VISITORS; i++) {
        pthread_join(visitors[i].thread, NULL);
        ck_assert(visitors[i].passed);
        ck_assert_int_eq(visitors[i].place, i);
    }
}
END_TEST

static void *enter_and_stay(void *arg)
{
    *(bool *)arg = enter_within(42, LONG_US);
    return NULL;
}

START_TEST(a_newcomer_cannot_slip_in_before_one_who_waits)
{
    pthread_t thread;
    bool passed = false;
    ck_assert(enter_within(42, 0));
    ck_assert(pthread_create(&thread, NULL, enter_and_stay, &passed) == 0);
    wait_until_waiting(42, 1);
    pqtx__gate_leave(gate, 42);
    ck_assert(!enter_within(42, 0)); /* whether or not the other one has woken up */
    pthread_join(thread, NULL);
    ck_assert(passed);
}
END_TEST

START_TEST(who_gives_up_is_not_waited_for)
{
    struct visitor first, second;
    ck_assert(enter_within(42, 0));
    send(&first, 42, 20000);
    wait_until_waiting(42, 1);
    send(&second, 42, LONG_US);
    pthread_join(first.thread, NULL);
    ck_assert(!first.passed);
    wait_until_waiting(42, 1);
    pqtx__gate_leave(gate, 42);
    pthread_join(second.thread, NULL);
    ck_assert(second.passed);
    ck_assert(enter_within(42, 0));
}
END_TEST

enum { THREADS = 8, ROUNDS = 2000, KEYS = 3 };

static int64_t keys[KEYS];
static int inside[KEYS], total[KEYS]; /* without a lock: the gate is one */
static atomic_int intruders;

static void *crowd(void *arg)
{
    unsigned seed = (unsigned)(size_t)arg;
    for (int i = 0; i < ROUNDS; i++) {
        seed = seed * 1103515245 + 12345;
        unsigned which = (seed >> 16) % KEYS;
        if (!enter_within(keys[which], LONG_US))
            continue;
        intruders += inside[which]++ != 0;
        total[which]++;
        inside[which]--;
        pqtx__gate_leave(gate, keys[which]);
    }
    return NULL;
}

START_TEST(a_crowd_passes_one_by_one_and_all_of_it)
{
    pthread_t threads[THREADS];
    keys[0] = 42;
    keys[1] = key_beside(42, false);
    keys[2] = key_beside(keys[1], false);
    for (size_t i = 0; i < THREADS; i++)
        ck_assert(pthread_create(&threads[i], NULL, crowd, (void *)i) == 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    ck_assert_int_eq(intruders, 0);
    ck_assert_int_eq(total[0] + total[1] + total[2], THREADS * ROUNDS);
}
END_TEST

/* ---- and transactions */

static pqtx_pool *lazy_pool(void)
{
    pqtx_pool_options options = PQTX_POOL_OPTIONS;
    pqtx_pool *pool;
    options.flags = PQTX_POOL_LAZY;
    ck_assert_int_eq(pqtx_pool_open(&options, &pool, NULL), PQTX_OK);
    return pool;
}

static pqtx_options with_gate(void)
{
    pqtx_options options = PQTX_OPTIONS;
    options.gate = gate;
    options.gate_key = 42;
    return options;
}

START_TEST(a_transaction_keeps_a_gate_that_was_closed)
{
    pqtx_options options = with_gate();
    pqtx_pool *pool = lazy_pool();
    pqtx_tx *tx = pqtx_new(pool, &options);
    pqtx_gate_close(gate);
    ck_assert(enter_within(42, 0));
    pqtx__gate_leave(gate, 42);
    pqtx_free(tx);
    pqtx_pool_close(pool);
    set_up();
}
END_TEST

START_TEST(a_child_cannot_use_its_parents_gate)
{
    pqtx_options options = with_gate();
    int status;
    pid_t child = fork();
    if (child == 0) {
        pqtx_pool *pool = lazy_pool();
        pqtx_tx *tx = pqtx_new(pool, &options);
        int refused = pqtx_result(tx) == PQTX_MISUSE && pqtx_get_outcome(tx) != PQTX_OUTCOME_OPEN;
        pqtx_free(tx);
        pqtx_pool_close(pool);
        _exit(refused ? 0 : 1);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("gate");
    TCase *c = tcase_create("gate");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_add_test(c, a_taken_gate_lets_nobody_through_until_it_is_left);
    tcase_add_test(c, keys_are_apart_unless_they_share_a_slot);
    tcase_add_test(c, any_key_has_a_slot_and_neighbours_have_others);
    tcase_add_test(c, no_gate_is_closed_without_harm);
    tcase_add_test(c, who_came_first_passes_first);
    tcase_add_test(c, a_newcomer_cannot_slip_in_before_one_who_waits);
    tcase_add_test(c, who_gives_up_is_not_waited_for);
    tcase_add_test(c, a_crowd_passes_one_by_one_and_all_of_it);
    tcase_add_test(c, a_transaction_keeps_a_gate_that_was_closed);
    tcase_add_test(c, a_child_cannot_use_its_parents_gate);
    suite_add_tcase(s, c);
    return s;
}

int main(void)
{
    return run_suite(suite());
}
