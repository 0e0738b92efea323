/* check_live_once.c: events that are applied once, whatever happens. */
#define _DEFAULT_SOURCE
#include "support.h"
#include "support_doubt.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static PGconn *monitor, *own;
static pqtx_pool *pool;

static void make(void)
{
    make_doubt("pqtx_events");
}

static void set_up(void)
{
    monitor = open_doubt();
    own = open_own();
    pool = open_pool(3);
}

static void tear_down(void)
{
    pqtx_pool_close(pool);
    PQfinish(own);
    PQfinish(monitor);
}

/* Every test of WAYS: at each isolation level, on the pool and on the caller's connection. */
enum { WAYS = 6 };

static struct trial event_trial(int way, const char *id)
{
    struct trial trial;
    trial_init(&trial, way < 3 ? pool : NULL, PQTX_DOUBT_REPORT);
    trial.own = way < 3 ? NULL : own;
    trial.options.isolation = (pqtx_isolation)(PQTX_ISO_READ_COMMITTED + way % 3);
    trial.options.event_id = id;
    return trial;
}

static void assert_ran(struct trial *trial, pqtx_status expected, int runs)
{
    trial_run(trial);
    assert_trial(trial, expected);
    ck_assert_int_eq(trial->runs, runs);
    ck_assert_int_eq(trial->committed, expected == PQTX_OK);
}

static int64_t events(void)
{
    return ask_int(monitor, "SELECT count(*) FROM pqtx_once");
}

/* ---- One after the other */

START_TEST(a_second_run_finds_it_done)
{
    struct trial trial = event_trial(_i, "event");
    assert_ran(&trial, PQTX_OK, 1);
    for (int times = 0; times < 3; times++) {
        assert_ran(&trial, PQTX_DONE_BEFORE, 0);
        ck_assert_int_eq(trial.outcome, PQTX_OUTCOME_COMMITTED);
        ck_assert_uint_eq(trial.flags, 0);
        ck_assert_uint_eq(trial.attempts, 1);
        ck_assert_uint_eq(trial.evidence.count, 0);
        ck_assert_uint_eq(trial.answer_len, 4);
        ck_assert_mem_eq(trial.answer, "done", 4);
    }
    ck_assert_int_eq(rows_of(monitor, &trial, true), 1);
    ck_assert_int_eq(events(), 1);
}
END_TEST

START_TEST(a_run_that_failed_leaves_the_event_to_the_next)
{
    struct trial trial = event_trial(_i, "event");
    trial.fail = PQTX_STOPPED;
    assert_ran(&trial, PQTX_STOPPED, 1);
    ck_assert_int_eq(events(), 0);
    trial.fail = PQTX_OK;
    assert_ran(&trial, PQTX_OK, 1);
    assert_ran(&trial, PQTX_DONE_BEFORE, 0);
    ck_assert_int_eq(rows_of(monitor, &trial, true), 1);
}
END_TEST

START_TEST(an_attempt_that_lost_a_race_applies_it_once)
{
    struct trial trial = event_trial(_i, "event");
    pqtx_tx *tx =
        trial.own ? pqtx_new_on(own, trial_options(&trial)) : pqtx_new(pool, trial_options(&trial));
    while (pqtx_attempt(tx)) {
        pqtx_exec(tx, "INSERT INTO mark VALUES (1)", PQTX_NO_ARGS, NULL);
        if (pqtx_attempts(tx) < 3)
            pqtx_fail(tx, PQTX_SERIALIZATION);
        pqtx_commit(tx);
    }
    assert_status(pqtx_result(tx), PQTX_OK, NULL);
    ck_assert_uint_eq(pqtx_attempts(tx), 3);
    pqtx_free(tx);
    ck_assert_int_eq(ask_int(monitor, "SELECT count(*) FROM mark"), 1);
    ck_assert_int_eq(events(), 1);
}
END_TEST

/* ---- Two at once */

struct rival {
    pthread_t thread;
    struct trial trial;
    atomic_int busy; /* attempts that ended so */
};

static void count_busy(const pqtx_event *event, void *arg)
{
    struct rival *rival = arg;
    if (event->type == PQTX_EVENT_FAILED && event->status == PQTX_BUSY)
        atomic_fetch_add(&rival->busy, 1);
}

static void *run_rival(void *arg)
{
    trial_run(&((struct rival *)arg)->trial);
    return NULL;
}

static void start_rival(struct rival *rival, int way)
{
    rival->trial = event_trial(way, "event");
    rival->trial.options.observer = count_busy;
    rival->trial.options.observer_arg = rival;
    atomic_init(&rival->busy, 0);
}

static void go(struct rival *rival)
{
    ck_assert(pthread_create(&rival->thread, NULL, run_rival, rival) == 0);
}

/* The first run, in the middle of its body. */
static pqtx_tx *hold_event(int *pid)
{
    static struct trial trial;
    const PGresult *result;
    int64_t number = 0;
    trial = event_trial(0, "event");
    pqtx_tx *tx = pqtx_new(pool, trial_options(&trial));
    ck_assert_int_eq(pqtx_attempt(tx), 1);
    pqtx_exec(tx, "INSERT INTO mark VALUES (0)", PQTX_NO_ARGS, NULL);
    ck_assert_int_eq(pqtx_exec(tx, "SELECT pg_backend_pid()", PQTX_NO_ARGS, &result), PQTX_OK);
    ck_assert_int_eq(pqtx_get_int(result, 0, 0, &number), PQTX_OK);
    *pid = (int)number;
    return tx;
}

START_TEST(a_second_run_waits_for_the_first_and_finds_it_done)
{
    int pid;
    struct rival rival;
    pqtx_tx *first = hold_event(&pid);
    start_rival(&rival, _i);
    go(&rival);
    wait_for_blocked(monitor, pid);
    ck_assert_int_eq(pqtx_commit(first), PQTX_OK);
    pthread_join(rival.thread, NULL);
    assert_trial(&rival.trial, PQTX_DONE_BEFORE);
    ck_assert_int_eq(rival.trial.runs, 0);
    ck_assert_int_eq(rows_of(monitor, &rival.trial, true), 0);
    pqtx_free(first);
}
END_TEST

START_TEST(a_second_run_waits_for_the_first_and_runs_if_that_rolled_back)
{
    int pid;
    struct rival rival;
    pqtx_tx *first = hold_event(&pid);
    start_rival(&rival, _i);
    go(&rival);
    wait_for_blocked(monitor, pid);
    pqtx_fail(first, PQTX_STOPPED);
    ck_assert_int_eq(pqtx_commit(first), PQTX_STOPPED);
    pthread_join(rival.thread, NULL);
    assert_trial(&rival.trial, PQTX_OK);
    ck_assert_int_eq(rival.trial.runs, 1);
    ck_assert_int_eq(rows_of(monitor, &rival.trial, true), 1);
    ck_assert_int_eq(ask_int(monitor, "SELECT count(*) FROM mark"), 1);
    pqtx_free(first);
}
END_TEST

START_TEST(a_second_run_that_may_not_wait_is_busy)
{
    int pid;
    struct rival rival;
    pqtx_tx *first = hold_event(&pid);
    start_rival(&rival, _i);
    rival.trial.options.lock_timeout_ms = 1;
    trial_run(&rival.trial);
    assert_trial(&rival.trial, PQTX_BUSY);
    ck_assert_str_eq(rival.trial.error.sqlstate, "55P03");
    ck_assert(rival.trial.error.flags & PQTX_ERROR_ATTEMPTS);
    ck_assert_uint_eq(rival.trial.attempts, 3);
    ck_assert_int_eq(rival.trial.runs, 0);
    ck_assert_int_eq(pqtx_commit(first), PQTX_OK);
    pqtx_free(first);
}
END_TEST

START_TEST(a_busy_run_goes_again_and_finds_it_done)
{
    int pid;
    struct rival rival;
    pqtx_tx *first = hold_event(&pid);
    start_rival(&rival, _i);
    rival.trial.options.lock_timeout_ms = 1;
    rival.trial.options.max_attempts = INT32_MAX;
    go(&rival);
    while (atomic_load(&rival.busy) < 2)
        poll(NULL, 0, 1); /* only between questions; Check's time limit ends it */
    ck_assert_int_eq(pqtx_commit(first), PQTX_OK);
    pthread_join(rival.thread, NULL);
    assert_trial(&rival.trial, PQTX_DONE_BEFORE);
    ck_assert_int_eq(rival.trial.runs, 0);
    pqtx_free(first);
}
END_TEST

START_TEST(runs_of_different_events_do_not_wait)
{
    int pid;
    pqtx_tx *first = hold_event(&pid);
    struct trial other = event_trial(_i, "another event");
    other.options.lock_timeout_ms = 1;
    other.options.max_attempts = 1;
    assert_ran(&other, PQTX_OK, 1);
    ck_assert_int_eq(pqtx_commit(first), PQTX_OK);
    pqtx_free(first);
}
END_TEST

/* Many threads with few events: each is applied by exactly one of them. */
enum { THREADS = 8, EVENTS = 20 };

static void *run_all_events(void *arg)
{
    int *applied = arg;
    for (int i = 0; i < EVENTS; i++) {
        char id[16];
        snprintf(id, sizeof id, "event %d", i);
        struct trial trial = event_trial(i % 3, id);
        trial.id = 1000 + i;
        trial.options.max_attempts = 100;
        trial_run(&trial);
        if (trial.status == PQTX_OK)
            ++*applied;
        else if (trial.status != PQTX_DONE_BEFORE)
            *applied += 1000000;
    }
    return NULL;
}

START_TEST(each_event_is_applied_by_one_of_many)
{
    pthread_t threads[THREADS];
    int applied[THREADS] = {0}, sum = 0;
    for (int i = 0; i < THREADS; i++)
        ck_assert(pthread_create(&threads[i], NULL, run_all_events, &applied[i]) == 0);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        sum += applied[i];
    }
    ck_assert_int_eq(sum, EVENTS);
    ck_assert_int_eq(events(), EVENTS);
    ck_assert_int_eq(ask_int(monitor, "SELECT count(*) FROM mark"), EVENTS);
    ck_assert_int_eq(ask_int(monitor, "SELECT count(DISTINCT id) FROM mark"), EVENTS);
}
END_TEST

/* ---- Fingerprints: only two that are both there can differ */

START_TEST(a_different_fingerprint_is_a_mismatch)
{
    static const char zeros[1024], ones[1024] = {1};
    static const struct {
        const void *first, *second;
        size_t first_len, second_len;
        bool same;
    } pairs[] = {
        {NULL, NULL, 0, 0, true},         {"a", "a", 1, 1, true},
        {"a", "b", 1, 1, false},          {"a", "ab", 1, 2, false},
        {"ab", "a", 2, 1, false},         {"", "", 0, 0, true},
        {"", "a", 0, 1, false},           {"a", "", 1, 0, false},
        {NULL, "a", 0, 1, true},          {"a", NULL, 1, 0, true},
        {NULL, "", 0, 0, true},           {"a\0b", "a\0b", 3, 3, true},
        {"a\0b", "a\0c", 3, 3, false},    {zeros, zeros, 1024, 1024, true},
        {zeros, ones, 1024, 1024, false}, {"\\x61", "a", 4, 1, false},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        char id[16];
        snprintf(id, sizeof id, "event %zu", i);
        struct trial trial = event_trial(_i, id);
        trial.options.fingerprint = pairs[i].first;
        trial.options.fingerprint_len = pairs[i].first_len;
        assert_ran(&trial, PQTX_OK, 1);
        trial.options.fingerprint = pairs[i].second;
        trial.options.fingerprint_len = pairs[i].second_len;
        assert_ran(&trial, pairs[i].same ? PQTX_DONE_BEFORE : PQTX_KEY_MISMATCH, 0);
        ck_assert_int_eq(trial.outcome,
                         pairs[i].same ? PQTX_OUTCOME_COMMITTED : PQTX_OUTCOME_ROLLED_BACK);
        ck_assert_int_eq(rows_of(monitor, &trial, true), 1);
    }
}
END_TEST

START_TEST(a_void_token_is_no_event)
{
    struct trial trial = event_trial(_i, "0123456789abcdef0123456789abcdef");
    sql(monitor,
        "INSERT INTO pqtx_once (id, void) VALUES ('0123456789abcdef0123456789abcdef', true)");
    assert_ran(&trial, PQTX_KEY_MISMATCH, 0);
}
END_TEST

/* ---- Ids */

START_TEST(an_id_is_any_text_of_up_to_200_bytes)
{
    static char longest[201], umlauts[201];
    memset(longest, 'x', 200);
    for (int i = 0; i < 200; i += 2)
        memcpy(umlauts + i, "\xc3\xbc", 2);
    const char *const ids[] = {"x",
                               "X",
                               "x ",
                               " x",
                               longest,
                               umlauts,
                               "order 1/7",
                               "it's",
                               "a\"b",
                               "a\\b",
                               "\\x61",
                               "%s%n",
                               "$1",
                               "a;DROP TABLE mark",
                               "a\nb",
                               "\xe2\x82\xac",
                               "e\xcc\x81",
                               "\xc3\xa9",
                               "\xf0\x9f\x92\xb6",
                               "NULL",
                               "0123456789abcdef0123456789abcdef"};
    enum { IDS = sizeof ids / sizeof ids[0] };
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < IDS; i++) {
            struct trial trial = event_trial(_i, ids[i]);
            trial.id = 1 + i;
            assert_ran(&trial, round ? PQTX_DONE_BEFORE : PQTX_OK, !round);
            ck_assert_int_eq(rows_of(monitor, &trial, false), 1);
        }
    }
    ck_assert_int_eq(events(), IDS);
}
END_TEST

START_TEST(an_id_that_cannot_be_is_misuse)
{
    static char too_long[202];
    memset(too_long, 'x', 201);
    const char *const ids[] = {"", too_long};
    for (int i = 0; i < 2; i++) {
        struct trial trial = event_trial(_i, ids[i]);
        assert_ran(&trial, PQTX_MISUSE, 0);
    }
    ck_assert_int_eq(events(), 0);
}
END_TEST

START_TEST(an_id_that_is_no_text_is_bad_data)
{
    struct trial trial = event_trial(_i, "\xc3(");
    assert_ran(&trial, PQTX_BAD_DATA, 0);
    ck_assert_str_eq(trial.error.sqlstate, "22021");
}
END_TEST

/* ---- Stored answers */

struct storing {
    const void *bytes[2]; /* stored one after the other */
    size_t len[2];
    int times;
    pqtx_status then; /* what the body gives up with */
};

static pqtx_status store(pqtx_tx *tx, void *arg)
{
    const struct storing *storing = arg;
    for (int i = 0; i < storing->times; i++)
        pqtx_once_store(tx, storing->bytes[i], storing->len[i]);
    return storing->then;
}

/* Runs it in the loop form, and leaves the handle to be asked for the answer. */
static pqtx_tx *run_storing(struct trial *trial, struct storing *storing, pqtx_status expected)
{
    const pqtx_options *options = trial_options(trial);
    pqtx_tx *tx = trial->own ? pqtx_new_on(own, options) : pqtx_new(pool, options);
    while (pqtx_attempt(tx)) {
        pqtx_status status = store(tx, storing);
        if (status != PQTX_OK)
            pqtx_fail(tx, status);
        pqtx_commit(tx);
    }
    pqtx_get_error(tx, &trial->error);
    assert_status(pqtx_result(tx), expected, &trial->error);
    return tx;
}

static void assert_answer(pqtx_tx *tx, const void *bytes, size_t len)
{
    static char answer[65536];
    size_t told = 12345;
    memset(answer, '#', sizeof answer);
    if (len > 0) {
        ck_assert_int_eq(pqtx_once_answer(tx, NULL, 0, &told), PQTX_TOO_MANY);
        ck_assert_uint_eq(told, len);
        ck_assert_int_eq(pqtx_once_answer(tx, answer, len - 1, &told), PQTX_TOO_MANY);
        ck_assert_int_eq(answer[0], '#');
    }
    ck_assert_int_eq(pqtx_once_answer(tx, answer, len, &told), PQTX_OK);
    ck_assert_uint_eq(told, len);
    ck_assert_int_eq(answer[len], '#');
    if (len > 0)
        ck_assert_mem_eq(answer, bytes, len);
    pqtx_free(tx);
}

START_TEST(an_answer_comes_back_as_it_was_stored)
{
    static char bytes[65535];
    static const size_t lens[] = {0, 1, 2, 255, 256, 65534, 65535};
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (char)(i * 7);
    for (size_t i = 0; i < sizeof lens / sizeof lens[0]; i++) {
        char id[16];
        struct storing storing = {{bytes}, {lens[i]}, 1, PQTX_OK};
        snprintf(id, sizeof id, "event %zu", i);
        struct trial trial = event_trial(_i, id);
        assert_answer(run_storing(&trial, &storing, PQTX_OK), bytes, lens[i]);
        assert_answer(run_storing(&trial, &storing, PQTX_DONE_BEFORE), bytes, lens[i]);
    }
}
END_TEST

START_TEST(an_answer_that_is_too_long_ends_the_run)
{
    static char bytes[65536];
    struct trial trial = event_trial(_i, "event");
    struct storing storing = {{bytes}, {sizeof bytes}, 1, PQTX_OK};
    pqtx_free(run_storing(&trial, &storing, PQTX_MISUSE));
    storing.len[0] = SIZE_MAX;
    pqtx_free(run_storing(&trial, &storing, PQTX_MISUSE));
    storing.bytes[0] = NULL;
    storing.len[0] = 1;
    pqtx_free(run_storing(&trial, &storing, PQTX_MISUSE));
    ck_assert_int_eq(events(), 0);
}
END_TEST

START_TEST(the_last_answer_counts)
{
    struct storing storing = {{"first", "2nd"}, {5, 3}, 2, PQTX_OK};
    struct trial trial = event_trial(_i, "event");
    assert_answer(run_storing(&trial, &storing, PQTX_OK), "2nd", 3);
    assert_answer(run_storing(&trial, &storing, PQTX_DONE_BEFORE), "2nd", 3);
    trial = event_trial(_i, "emptied");
    storing.bytes[1] = NULL;
    storing.len[1] = 0;
    assert_answer(run_storing(&trial, &storing, PQTX_OK), "", 0);
    assert_answer(run_storing(&trial, &storing, PQTX_DONE_BEFORE), "", 0);
}
END_TEST

START_TEST(an_answer_is_rolled_back_with_its_run)
{
    size_t len;
    char buffer[8];
    struct storing storing = {{"first"}, {5}, 1, PQTX_STOPPED}, none = {.then = PQTX_OK};
    struct trial trial = event_trial(_i, "event");
    pqtx_tx *tx = run_storing(&trial, &storing, PQTX_STOPPED);
    ck_assert_int_ne(pqtx_once_answer(tx, buffer, sizeof buffer, &len), PQTX_OK);
    pqtx_free(tx);
    assert_answer(run_storing(&trial, &none, PQTX_OK), "", 0);
    assert_answer(run_storing(&trial, &none, PQTX_DONE_BEFORE), "", 0);
}
END_TEST

START_TEST(without_an_event_there_is_no_answer)
{
    size_t len;
    char buffer[8];
    struct storing storing = {{"first"}, {5}, 1, PQTX_OK}, none = {.then = PQTX_OK};
    struct trial trial = event_trial(_i, NULL);
    pqtx_free(run_storing(&trial, &storing, PQTX_MISUSE));
    pqtx_tx *tx = run_storing(&trial, &none, PQTX_OK);
    ck_assert_int_eq(pqtx_once_answer(tx, buffer, sizeof buffer, &len), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_once_store(tx, "a", 1), PQTX_MISUSE); /* the run is over */
    pqtx_free(tx);
    ck_assert_int_eq(pqtx_once_store(NULL, "a", 1), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_once_answer(NULL, buffer, sizeof buffer, &len), PQTX_MISUSE);
    trial = event_trial(_i, "event");
    tx =
        trial.own ? pqtx_new_on(own, trial_options(&trial)) : pqtx_new(pool, trial_options(&trial));
    ck_assert_int_eq(pqtx_attempt(tx), 1);
    ck_assert_int_eq(pqtx_once_answer(tx, buffer, sizeof buffer, &len), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_commit(tx), PQTX_OK);
    ck_assert_int_eq(pqtx_once_answer(tx, buffer, sizeof buffer, NULL), PQTX_MISUSE);
    pqtx_free(tx);
}
END_TEST

static Suite *suite(void)
{
    Suite *suite = suite_create("once");
    TCase *tests = tcase_create("once");
    tcase_add_unchecked_fixture(tests, make, NULL);
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_set_timeout(tests, 60);
    tcase_add_loop_test(tests, a_second_run_finds_it_done, 0, WAYS);
    tcase_add_loop_test(tests, a_run_that_failed_leaves_the_event_to_the_next, 0, WAYS);
    tcase_add_loop_test(tests, an_attempt_that_lost_a_race_applies_it_once, 0, WAYS);
    tcase_add_loop_test(tests, a_second_run_waits_for_the_first_and_finds_it_done, 0, WAYS);
    tcase_add_loop_test(tests, a_second_run_waits_for_the_first_and_runs_if_that_rolled_back, 0,
                        WAYS);
    tcase_add_loop_test(tests, a_second_run_that_may_not_wait_is_busy, 0, WAYS);
    tcase_add_loop_test(tests, a_busy_run_goes_again_and_finds_it_done, 0, WAYS);
    tcase_add_loop_test(tests, runs_of_different_events_do_not_wait, 0, WAYS);
    tcase_add_test(tests, each_event_is_applied_by_one_of_many);
    tcase_add_loop_test(tests, a_different_fingerprint_is_a_mismatch, 0, WAYS);
    tcase_add_loop_test(tests, a_void_token_is_no_event, 0, WAYS);
    tcase_add_loop_test(tests, an_id_is_any_text_of_up_to_200_bytes, 0, WAYS);
    tcase_add_loop_test(tests, an_id_that_cannot_be_is_misuse, 0, WAYS);
    tcase_add_loop_test(tests, an_id_that_is_no_text_is_bad_data, 0, WAYS);
    tcase_add_loop_test(tests, an_answer_comes_back_as_it_was_stored, 0, WAYS);
    tcase_add_loop_test(tests, an_answer_that_is_too_long_ends_the_run, 0, WAYS);
    tcase_add_loop_test(tests, the_last_answer_counts, 0, WAYS);
    tcase_add_loop_test(tests, an_answer_is_rolled_back_with_its_run, 0, WAYS);
    tcase_add_loop_test(tests, without_an_event_there_is_no_answer, 0, WAYS);
    suite_add_tcase(suite, tests);
    return suite;
}

int main(void)
{
    return run_suite(suite());
}
