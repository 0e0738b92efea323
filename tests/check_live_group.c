/* check_live_group.c: callers that meet on a counter share a transaction, and each gets its own
 * value. */
#define _DEFAULT_SOURCE
#include "support.h"
#include "support_cut.h"
#include "support_doubt.h"
#include "support_tx.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static PGconn *other, *third, *monitor;
static pqtx_pool *pool;
static pqtx_counter counter;
static pqtx_options run_options;
static pqtx_group_options options;
static pqtx_group *group;

static void set_up(void)
{
    pqtx_error error = PQTX_ERROR;
    fresh_schema("pqtx_group");
    other = open_session();
    third = open_session();
    monitor = open_session();
    pool = open_pool(8);
    counter = (pqtx_counter)PQTX_COUNTER;
    run_options = (pqtx_options)PQTX_OPTIONS;
    options = (pqtx_group_options)PQTX_GROUP_OPTIONS;
    options.run = &run_options;
    assert_status(pqtx_counter_install(pool, &counter, &error), PQTX_OK, &error);
    sql(monitor, "INSERT INTO counter VALUES ('hot', 100), ('warm', 0)");
}

static void tear_down(void)
{
    pqtx_group_close(group);
    group = NULL;
    pqtx_pool_close(pool);
    PQfinish(other);
    PQfinish(third);
    PQfinish(monitor);
}

static void open_group(void)
{
    pqtx_error error = PQTX_ERROR;
    assert_status(pqtx_group_open(pool, &counter, &options, &group, &error), PQTX_OK, &error);
}

static int64_t value_of(const char *key)
{
    char query[96];
    snprintf(query, sizeof query, "SELECT value FROM counter WHERE key = '%s'", key);
    return ask_int(monitor, query);
}

/* ---- callers, each on a thread of its own */

struct caller {
    const char *key;
    int64_t delta, deadline_ms;

    pthread_t thread;
    pqtx_status status;
    int64_t value;
    pqtx_error error;
};

static void *call(void *arg)
{
    struct caller *caller = arg;
    caller->error = (pqtx_error)PQTX_ERROR;
    caller->status = pqtx_group_add(group, PQTX_TEXT(caller->key), caller->delta,
                                    caller->deadline_ms, &caller->value, &caller->error);
    return NULL;
}

/* Begins it, and returns when it is inside. */
static void start(struct caller *caller)
{
    size_t before = pqtx_group_callers(group);
    ck_assert(pthread_create(&caller->thread, NULL, call, caller) == 0);
    while (pqtx_group_callers(group) == before)
        poll(NULL, 0, 1);
}

static void join(struct caller *caller, pqtx_status expected)
{
    pthread_join(caller->thread, NULL);
    assert_status(caller->status, expected, &caller->error);
}

/* From now on the row is somebody else's. */
static void hold(PGconn *holder, const char *key)
{
    char statement[128];
    snprintf(statement, sizeof statement, "BEGIN; SELECT FROM counter WHERE key = '%s' FOR UPDATE",
             key);
    sql(holder, statement);
}

/* A caller whose transaction waits for the row. */
static struct caller *start_first(struct caller *first)
{
    hold(other, first->key);
    start(first);
    wait_for_blocked(monitor, PQbackendPID(other));
    return first;
}

static void let_go(PGconn *holder)
{
    sql(holder, "COMMIT");
}

#define CALLER(k, d) ((struct caller){.key = k, .delta = d})

/* ---- what it does */

START_TEST(one_caller_gets_what_a_plain_add_gets)
{
    int64_t value;
    pqtx_error error = PQTX_ERROR;
    open_group();
    for (int i = 1; i <= 3; i++) {
        assert_status(pqtx_group_add(group, PQTX_TEXT("hot"), 5, 0, &value, &error), PQTX_OK,
                      &error);
        ck_assert_int_eq(value, 100 + 5 * i);
    }
    assert_status(pqtx_group_add(group, PQTX_TEXT("new"), -7, 0, &value, &error), PQTX_OK, &error);
    ck_assert_int_eq(value, -7);
    assert_status(pqtx_group_add(group, PQTX_TEXT("new"), 1, 0, NULL, NULL), PQTX_OK, NULL);
    ck_assert_int_eq(value_of("new"), -6);
}
END_TEST

START_TEST(alone_it_takes_one_round_trip)
{
    struct cut *line = cut_open();
    pqtx_pool_options through = PQTX_POOL_OPTIONS;
    pqtx_pool *ours = pool;
    through.conninfo = cut_conninfo(line);
    ck_assert_int_eq(pqtx_pool_open(&through, &pool, NULL), PQTX_OK);
    open_group();
    for (int i = 0; i < 3; i++) {
        cut_arm(line, NULL);
        ck_assert_int_eq(pqtx_group_add(group, PQTX_TEXT("hot"), 1, 0, NULL, NULL), PQTX_OK);
        ck_assert_uint_eq(cut_count(line, CUT_CLIENT).flights, 1);
    }
    pqtx_group_close(group);
    group = NULL;
    pqtx_pool_close(pool);
    cut_close(line);
    pool = ours;
}
END_TEST

/* Callers that come while the first is under way. */
START_TEST(those_who_meet_share_a_transaction_and_each_gets_its_own_value)
{
    enum { OTHERS = 6 };
    struct caller first = CALLER("hot", 1000), others[OTHERS];
    open_group();
    start_first(&first);
    uint64_t starts = stats_of(pool).starts;
    for (int i = 0; i < OTHERS; i++) {
        others[i] = CALLER("hot", i); /* 0 among them */
        start(&others[i]);
    }
    let_go(other);
    join(&first, PQTX_OK);
    ck_assert_int_eq(first.value, 1100);
    int64_t expected = 1100;
    bool zero_came = false;
    for (int i = 0; i < OTHERS; i++)
        join(&others[i], PQTX_OK);
    for (int i = 1; i < OTHERS; i++) {
        expected += i;
        ck_assert_int_eq(others[i].value, expected);
    }
    zero_came = others[0].value == 1100;
    ck_assert(zero_came);
    ck_assert_int_eq(value_of("hot"), 1115);
    /* The 0 leads and takes no other sign along; the five are one. */
    ck_assert_uint_eq(stats_of(pool).starts - starts, 2);
}
END_TEST

START_TEST(a_crowd_of_equals_is_one_transaction)
{
    enum { OTHERS = 20 };
    struct caller first = CALLER("hot", 1), others[OTHERS];
    open_group();
    start_first(&first);
    uint64_t starts = stats_of(pool).starts;
    for (int i = 0; i < OTHERS; i++) {
        others[i] = CALLER("hot", 1);
        start(&others[i]);
    }
    let_go(other);
    join(&first, PQTX_OK);
    for (int i = 0; i < OTHERS; i++) {
        join(&others[i], PQTX_OK);
        ck_assert_int_eq(others[i].value, 102 + i); /* in the order they came */
    }
    ck_assert_uint_eq(stats_of(pool).starts - starts, 1);
}
END_TEST

START_TEST(keys_do_not_wait_for_one_another)
{
    struct caller hot = CALLER("hot", 1), warm = CALLER("warm", 1);
    open_group();
    start_first(&hot);
    start(&warm);
    join(&warm, PQTX_OK);
    let_go(other);
    join(&hot, PQTX_OK);
}
END_TEST

START_TEST(several_flights_may_be_under_way)
{
    struct caller callers[4];
    options.max_flights = 2;
    open_group();
    hold(other, "hot");
    for (int i = 0; i < 4; i++) {
        callers[i] = CALLER("hot", 1);
        start(&callers[i]);
        if (i < 2) /* each is alone in its transaction: the server has it */
            wait_until_true(monitor, i == 0
                                         ? "SELECT count(*) >= 1 FROM pg_locks WHERE NOT granted"
                                         : "SELECT count(*) >= 2 FROM pg_locks WHERE NOT granted");
    }
    ck_assert_uint_eq(stats_of(pool).starts, 3); /* with the one that made the table */
    let_go(other);
    int64_t seen = 0;
    for (int i = 0; i < 4; i++) {
        join(&callers[i], PQTX_OK);
        ck_assert_int_ge(callers[i].value, 101);
        ck_assert_int_le(callers[i].value, 104);
        seen |= 1 << (callers[i].value - 101);
    }
    ck_assert_int_eq(seen, 15);
    ck_assert_uint_eq(stats_of(pool).starts, 4);
}
END_TEST

/* ---- values that do not fit */

START_TEST(nobody_fails_for_the_increment_of_another)
{
    struct caller first = CALLER("hot", 1), small = CALLER("hot", 5), large = CALLER("hot", 50),
                  last = CALLER("hot", 5);
    sql(monitor, "UPDATE counter SET value = 9223372036854775807 - 21 WHERE key = 'hot'");
    open_group();
    start_first(&first);
    start(&small);
    start(&large);
    start(&last);
    let_go(other);
    join(&first, PQTX_OK);
    join(&small, PQTX_OK);
    join(&large, PQTX_BAD_DATA);
    join(&last, PQTX_OK);
    ck_assert_str_eq(large.error.sqlstate, "22003");
    ck_assert_int_eq(large.value, PQTX_VALUE_UNKNOWN);
    ck_assert_int_eq(value_of("hot"), INT64_MAX - 10);
}
END_TEST

START_TEST(a_sum_that_does_not_fit_is_not_made)
{
    struct caller first = CALLER("warm", 0), a = CALLER("warm", INT64_MAX),
                  b = CALLER("warm", INT64_MAX), c = CALLER("warm", INT64_MIN);
    open_group();
    start_first(&first);
    start(&a);
    start(&b);
    start(&c);
    let_go(other);
    join(&first, PQTX_OK);
    join(&a, PQTX_OK);
    join(&b, PQTX_BAD_DATA);
    join(&c, PQTX_OK);
    ck_assert_int_eq(value_of("warm"), -1);
}
END_TEST

START_TEST(signs_do_not_mix_so_that_each_value_is_one_that_was_there)
{
    struct caller first = CALLER("warm", 0), more = CALLER("warm", 2), less = CALLER("warm", -2),
                  again = CALLER("warm", 3);
    sql(monitor, "ALTER TABLE counter ADD CHECK (value >= 0)");
    open_group();
    start_first(&first);
    start(&more);
    start(&less);
    start(&again);
    let_go(other);
    join(&first, PQTX_OK);
    join(&more, PQTX_OK);
    join(&less, PQTX_OK);
    join(&again, PQTX_OK);
    ck_assert_int_eq(more.value, 2);
    ck_assert_int_eq(again.value, 5);
    ck_assert_int_eq(less.value, 3);
}
END_TEST

/* ---- deadlines */

START_TEST(who_waits_too_long_has_added_nothing)
{
    struct caller first = CALLER("hot", 1), late = CALLER("hot", 10), patient = CALLER("hot", 100);
    open_group();
    start_first(&first);
    late.deadline_ms = 50;
    start(&late);
    start(&patient);
    join(&late, PQTX_TIMEOUT);
    let_go(other);
    join(&first, PQTX_OK);
    join(&patient, PQTX_OK);
    ck_assert_int_eq(patient.value, 201);
    ck_assert_int_eq(value_of("hot"), 201);
}
END_TEST

/* The third session gets the row between the first transaction and the second. */
START_TEST(who_is_on_board_when_its_time_is_up_is_in_doubt)
{
    struct caller first = CALLER("hot", 1), leader = CALLER("hot", 10), member = CALLER("hot", 100);
    open_group();
    start_first(&first);
    start_sql(third, "BEGIN; SELECT FROM counter WHERE key = 'hot' FOR UPDATE");
    wait_until_blocked(monitor, PQbackendPID(third));
    start(&leader);
    member.deadline_ms = 2000;
    start(&member);
    let_go(other);
    join(&first, PQTX_OK);
    ck_assert_str_eq(finish_sql(third), "");
    join(&member, PQTX_IN_DOUBT);
    ck_assert_int_eq(member.value, PQTX_VALUE_UNKNOWN);
    let_go(third);
    join(&leader, PQTX_OK);
    ck_assert_int_eq(leader.value, 111);
    ck_assert_int_eq(value_of("hot"), 211); /* it was on its way */
}
END_TEST

START_TEST(an_impatient_leader_does_not_take_the_patient_along)
{
    struct caller first = CALLER("hot", 1), leader = CALLER("hot", 10),
                  patient = CALLER("hot", 100);
    open_group();
    start_first(&first);
    start_sql(third, "BEGIN; SELECT FROM counter WHERE key = 'hot' FOR UPDATE");
    wait_until_blocked(monitor, PQbackendPID(third));
    leader.deadline_ms = 4000;
    start(&leader);
    start(&patient);
    let_go(other);
    join(&first, PQTX_OK);
    ck_assert_str_eq(finish_sql(third), "");
    pthread_join(leader.thread, NULL);
    ck_assert(leader.status == PQTX_TIMEOUT || leader.status == PQTX_BUSY);
    let_go(third);
    join(&patient, PQTX_OK);
    ck_assert_int_eq(value_of("hot"), 201);
}
END_TEST

/* ---- transactions that fail */

struct fault {
    pqtx_point point;
    _Atomic bool armed;
};

static pqtx_fault go_wrong(pqtx_point point, uint32_t attempt, void *arg)
{
    struct fault *fault = arg;
    (void)attempt;
    return atomic_load(&fault->armed) && point == fault->point ? PQTX_FAULT_CUT : PQTX_FAULT_NONE;
}

static void go_through(struct fault *fault, struct caller callers[4])
{
    run_options.fault = go_wrong;
    run_options.fault_arg = fault;
    open_group();
    callers[0] = CALLER("hot", 1);
    start_first(&callers[0]);
    for (int i = 1; i < 4; i++) {
        callers[i] = CALLER("hot", 1);
        start(&callers[i]);
    }
    atomic_store(&fault->armed, true);
    let_go(other);
    for (int i = 0; i < 4; i++)
        pthread_join(callers[i].thread, NULL);
}

START_TEST(in_doubt_is_in_doubt_for_all_of_them)
{
    struct fault fault = {.point = PQTX_POINT_COMMIT_ANSWERED};
    struct caller callers[4];
    go_through(&fault, callers);
    for (int i = 0; i < 4; i++) {
        assert_status(callers[i].status, PQTX_IN_DOUBT, &callers[i].error);
        ck_assert_int_eq(callers[i].value, PQTX_VALUE_UNKNOWN);
        ck_assert_int_eq(callers[i].error.phase, PQTX_PHASE_COMMIT);
    }
    ck_assert_int_eq(value_of("hot"), 104);
}
END_TEST

START_TEST(a_token_resolves_it_for_all_of_them)
{
    struct fault fault = {.point = PQTX_POINT_COMMIT_ANSWERED};
    struct caller callers[4];
    pqtx_error error = PQTX_ERROR;
    assert_status(pqtx_once_install(pool, "pqtx_group", &error), PQTX_OK, &error);
    run_options.in_doubt = PQTX_DOUBT_TOKEN;
    run_options.once_schema = "pqtx_group";
    go_through(&fault, callers);
    for (int i = 0; i < 4; i++) {
        assert_status(callers[i].status, PQTX_OK, &callers[i].error);
        ck_assert_int_eq(callers[i].value, PQTX_VALUE_UNKNOWN);
    }
    ck_assert_int_eq(value_of("hot"), 104);
}
END_TEST

START_TEST(what_is_wrong_is_told_to_all_of_them)
{
    struct caller first = CALLER("hot", 1), a = CALLER("hot", 1), b = CALLER("hot", 1);
    run_options.lock_timeout_ms = 100;
    run_options.retry_mask = PQTX_RETRY_NOTHING;
    open_group();
    hold(other, "hot");
    start(&first);
    start(&a);
    start(&b);
    join(&first, PQTX_BUSY);
    join(&a, PQTX_BUSY);
    join(&b, PQTX_BUSY);
    ck_assert_str_eq(b.error.sqlstate, "55P03");
    let_go(other);
    sql(other, "DROP TABLE counter");
    start(&a);
    join(&a, PQTX_BAD_STATEMENT);
}
END_TEST

/* ---- closing */

static void *close_on_thread(void *arg)
{
    pqtx_group_close(group);
    *(_Atomic bool *)arg = true;
    return NULL;
}

START_TEST(closing_waits_for_those_inside)
{
    struct caller first = CALLER("hot", 1), second = CALLER("hot", 1);
    _Atomic bool closed = false;
    pthread_t thread;
    open_group();
    start_first(&first);
    start(&second);
    ck_assert(pthread_create(&thread, NULL, close_on_thread, &closed) == 0);
    pqtx_status status;
    do { /* until the closing has begun */
        status = pqtx_group_add(group, PQTX_TEXT("warm"), 1, 0, NULL, NULL);
    } while (status == PQTX_OK);
    ck_assert_int_eq(status, PQTX_STOPPED);
    ck_assert(!atomic_load(&closed));
    let_go(other);
    join(&first, PQTX_OK);
    join(&second, PQTX_OK);
    pthread_join(thread, NULL);
    group = NULL;
    ck_assert_int_eq(value_of("hot"), 102);
}
END_TEST

START_TEST(a_child_leaves_its_parents_group_alone)
{
    open_group();
    pid_t child = fork();
    if (child == 0) {
        int wrong = pqtx_group_add(group, PQTX_TEXT("hot"), 1, 0, NULL, NULL) != PQTX_MISUSE;
        wrong |= pqtx_group_callers(group) != 0;
        pqtx_group_close(group);
        pqtx_pool_close(pool);
        _exit(wrong);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    ck_assert_int_eq(pqtx_group_add(group, PQTX_TEXT("hot"), 1, 0, NULL, NULL), PQTX_OK);
}
END_TEST

START_TEST(what_is_no_group_is_misuse)
{
    pqtx_group *made = (pqtx_group *)&pool;
    pqtx_group_options wrong = options;
    pqtx_options wrong_run = PQTX_OPTIONS;
    ck_assert_int_eq(pqtx_group_open(NULL, &counter, NULL, &made, NULL), PQTX_MISUSE);
    ck_assert_ptr_null(made);
    ck_assert_int_eq(pqtx_group_open(pool, NULL, NULL, &made, NULL), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_group_open(pool, &counter, NULL, NULL, NULL), PQTX_MISUSE);
    wrong.max_flights = -1;
    ck_assert_int_eq(pqtx_group_open(pool, &counter, &wrong, &made, NULL), PQTX_MISUSE);
    wrong = options;
    wrong.run = &wrong_run;
    wrong_run.event_id = "one for all";
    ck_assert_int_eq(pqtx_group_open(pool, &counter, &wrong, &made, NULL), PQTX_MISUSE);
    wrong_run = (pqtx_options)PQTX_OPTIONS;
    wrong_run.max_attempts = -1;
    ck_assert_int_eq(pqtx_group_open(pool, &counter, &wrong, &made, NULL), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_group_add(NULL, PQTX_TEXT("hot"), 1, 0, NULL, NULL), PQTX_MISUSE);
    open_group();
    ck_assert_int_eq(pqtx_group_add(group, PQTX_INT(7), 1, 0, NULL, NULL), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_group_add(group, PQTX_NULL, 1, 0, NULL, NULL), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_group_add(group, PQTX_TEXT("hot"), 1, -1, NULL, NULL), PQTX_MISUSE);
    pqtx_group_close(NULL);
    ck_assert_uint_eq(pqtx_group_callers(NULL), 0);
}
END_TEST

START_TEST(more_keys_than_are_remembered)
{
    char key[16];
    open_group();
    for (int i = 0; i < 2100; i++) {
        snprintf(key, sizeof key, "key %d", i % 1050);
        ck_assert_int_eq(pqtx_group_add(group, PQTX_TEXT(key), 1, 0, NULL, NULL), PQTX_OK);
    }
    ck_assert_int_eq(
        ask_int(monitor, "SELECT count(*) FROM counter WHERE key LIKE 'key %' AND value = 2"),
        1050);
}
END_TEST

/* ---- a crowd */

enum { THREADS = 16, ROUNDS = 120, KEYS = 3 };

struct racer {
    pthread_t thread;
    int number;
    int64_t values[ROUNDS];
};

static void *race(void *arg)
{
    static const char *const keys[KEYS] = {"hot", "warm", "cold"};
    struct racer *racer = arg;
    for (int i = 0; i < ROUNDS; i++) {
        pqtx_error error = PQTX_ERROR;
        pqtx_status status = pqtx_group_add(group, PQTX_TEXT(keys[(racer->number + i) % KEYS]), 1,
                                            0, &racer->values[i], &error);
        assert_status(status, PQTX_OK, &error);
    }
    return NULL;
}

/* Of each key every value between the first and the last is somebody's, once. */
static void race_for_values(void)
{
    static struct racer racers[THREADS];
    static char seen[KEYS][THREADS * ROUNDS + 1];
    memset(seen, 0, sizeof seen);
    sql(monitor, "TRUNCATE counter");
    open_group();
    for (int i = 0; i < THREADS; i++) {
        racers[i].number = i;
        ck_assert(pthread_create(&racers[i].thread, NULL, race, &racers[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(racers[i].thread, NULL);
    for (int i = 0; i < THREADS; i++)
        for (int j = 0; j < ROUNDS; j++) {
            int64_t value = racers[i].values[j];
            ck_assert_int_ge(value, 1);
            ck_assert_int_le(value, THREADS * ROUNDS / KEYS);
            ck_assert_int_eq(seen[(i + j) % KEYS][value]++, 0);
        }
    ck_assert_int_eq(ask_int(monitor, "SELECT sum(value) FROM counter"), THREADS * ROUNDS);
}

START_TEST(in_a_crowd_each_value_is_somebodys_once)
{
    race_for_values();
    ck_assert_uint_lt(stats_of(pool).starts, THREADS * ROUNDS * 3 / 4);
}
END_TEST

START_TEST(in_a_crowd_with_several_flights_too)
{
    options.max_flights = 3;
    race_for_values();
}
END_TEST

/* Some give up at once, some wait: whoever was told OK is counted, and nobody else but those in
 * doubt. */
static void *hurry(void *arg)
{
    struct racer *racer = arg;
    memset(racer->values, 0, sizeof racer->values);
    for (int i = 0; i < ROUNDS; i++) {
        pqtx_status status =
            pqtx_group_add(group, PQTX_TEXT("hot"), 1, 1 + (racer->number + i) % 5, NULL, NULL);
        racer->values[0] += status == PQTX_OK;
        racer->values[1] += pqtx_maybe_committed(status) != 0;
    }
    return NULL;
}

START_TEST(in_a_hurry_the_count_is_right)
{
    static struct racer racers[THREADS];
    int64_t sure = 0, perhaps = 0;
    pqtx_pool_close(pool);
    setenv("PGAPPNAME", "pqtx_group_hurry", 1);
    pool = open_pool(8);
    open_group();
    for (int i = 0; i < THREADS; i++) {
        racers[i].number = i;
        ck_assert(pthread_create(&racers[i].thread, NULL, hurry, &racers[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(racers[i].thread, NULL);
        sure += racers[i].values[0];
        perhaps += racers[i].values[1];
    }
    pqtx_group_close(group);
    group = NULL;
    pqtx_pool_close(pool);
    pool = NULL;
    wait_until_true(monitor, "SELECT count(*) = 0 FROM pg_stat_activity"
                             " WHERE application_name = 'pqtx_group_hurry'");
    ck_assert_int_ge(value_of("hot"), 100 + sure);
    ck_assert_int_le(value_of("hot"), 100 + sure + perhaps);
}
END_TEST

static Suite *suite(void)
{
    Suite *suite = suite_create("group");
    TCase *tests = tcase_create("group");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, one_caller_gets_what_a_plain_add_gets);
    tcase_add_test(tests, alone_it_takes_one_round_trip);
    tcase_add_test(tests, those_who_meet_share_a_transaction_and_each_gets_its_own_value);
    tcase_add_test(tests, a_crowd_of_equals_is_one_transaction);
    tcase_add_test(tests, keys_do_not_wait_for_one_another);
    tcase_add_test(tests, several_flights_may_be_under_way);
    tcase_add_test(tests, nobody_fails_for_the_increment_of_another);
    tcase_add_test(tests, a_sum_that_does_not_fit_is_not_made);
    tcase_add_test(tests, signs_do_not_mix_so_that_each_value_is_one_that_was_there);
    tcase_add_test(tests, who_waits_too_long_has_added_nothing);
    tcase_add_test(tests, who_is_on_board_when_its_time_is_up_is_in_doubt);
    tcase_add_test(tests, an_impatient_leader_does_not_take_the_patient_along);
    tcase_add_test(tests, in_doubt_is_in_doubt_for_all_of_them);
    tcase_add_test(tests, a_token_resolves_it_for_all_of_them);
    tcase_add_test(tests, what_is_wrong_is_told_to_all_of_them);
    tcase_add_test(tests, closing_waits_for_those_inside);
    tcase_add_test(tests, a_child_leaves_its_parents_group_alone);
    tcase_add_test(tests, what_is_no_group_is_misuse);
    tcase_add_test(tests, more_keys_than_are_remembered);
    tcase_add_test(tests, in_a_crowd_each_value_is_somebodys_once);
    tcase_add_test(tests, in_a_crowd_with_several_flights_too);
    tcase_add_test(tests, in_a_hurry_the_count_is_right);
    suite_add_tcase(suite, tests);
    return suite;
}

int main(void)
{
    return run_suite(suite());
}
