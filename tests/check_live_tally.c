/* check_live_tally.c: increments added up in memory are written once, whatever happens meanwhile.
 */
#define _DEFAULT_SOURCE
#include "support.h"
#include "support_clock.h"
#include "support_doubt.h"
#include "support_tx.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static PGconn *other, *monitor;
static pqtx_pool *pool;
static pqtx_counter counter;
static pqtx_options run_options;
static pqtx_tally_options options;
static pqtx_tally *tally;

static void set_up(void)
{
    pqtx_error error = PQTX_ERROR;
    fresh_schema("pqtx_tally");
    other = open_session();
    monitor = open_session();
    pool = open_pool(4);
    counter = (pqtx_counter)PQTX_COUNTER;
    counter.table = "hits";
    run_options = (pqtx_options)PQTX_OPTIONS;
    run_options.once_schema = "pqtx_tally";
    options = (pqtx_tally_options)PQTX_TALLY_OPTIONS;
    options.run = &run_options;
    options.max_ms = 3600000;
    assert_status(pqtx_counter_install(pool, &counter, &error), PQTX_OK, &error);
    assert_status(pqtx_once_install(pool, "pqtx_tally", &error), PQTX_OK, &error);
}

static void close_tally(pqtx_status expected)
{
    pqtx_error error = PQTX_ERROR;
    pqtx_status status = pqtx_tally_close(tally, &error);
    tally = NULL;
    assert_status(status, expected, &error);
}

static void tear_down(void)
{
    pqtx_tally_close(tally, NULL);
    tally = NULL;
    pqtx_pool_close(pool);
    PQfinish(other);
    PQfinish(monitor);
}

static void open_tally(void)
{
    pqtx_error error = PQTX_ERROR;
    assert_status(pqtx_tally_open(pool, &counter, &options, &tally, &error), PQTX_OK, &error);
}

static void add(const char *key, int64_t delta, pqtx_status expected)
{
    pqtx_error error = PQTX_ERROR;
    assert_status(pqtx_tally_add(tally, PQTX_TEXT(key), delta, &error), expected, &error);
}

static void flush(pqtx_status expected)
{
    pqtx_error error = PQTX_ERROR;
    pqtx_status status = pqtx_tally_flush(tally, &error);
    assert_status(status, expected, &error);
    assert_status(error.status, expected, &error);
}

static int64_t written(void)
{
    return ask_int(monitor, "SELECT coalesce(sum(value), 0) FROM hits");
}

/* ---- when it is written */

START_TEST(nothing_is_written_before_a_flush)
{
    open_tally();
    for (int i = 0; i < 100; i++)
        add(i % 2 ? "odd" : "even", i, PQTX_OK);
    ck_assert_int_eq(written(), 0);
    flush(PQTX_OK);
    ck_assert_str_eq(ask(monitor, "SELECT string_agg(key || '=' || value, ' ' ORDER BY key)"
                                  " FROM hits"),
                     "even=2450 odd=2500");
    flush(PQTX_OK);
    ck_assert_int_eq(written(), 4950);
    ck_assert_int_eq(ask_int(monitor, "SELECT count(*) FROM pqtx_once"), 1);
}
END_TEST

START_TEST(a_full_tally_is_written)
{
    options.max_count = 10;
    open_tally();
    for (int i = 0; i < 25; i++)
        add("hit", 1, PQTX_OK);
    ck_assert_int_eq(written(), 20);
    close_tally(PQTX_OK);
    ck_assert_int_eq(written(), 25);
}
END_TEST

START_TEST(a_tally_full_of_keys_is_written)
{
    char key[16];
    options.max_keys = 10;
    open_tally();
    for (int i = 0; i < 45; i++) {
        snprintf(key, sizeof key, "key %d", i / 2);
        add(key, 1, PQTX_OK);
    }
    ck_assert_int_eq(written(), 37); /* each time with the first increment of a tenth key */
    flush(PQTX_OK);
    ck_assert_int_eq(written(), 45);
}
END_TEST

static struct runaway_clock ahead;

static void use_clock(void)
{
    runaway_init(&ahead);
    run_options.clock = &ahead.clock;
}

static void pass_ms(int64_t ms)
{
    atomic_fetch_add(&ahead.ahead_us, ms * 1000);
}

START_TEST(an_old_tally_is_written_by_who_comes_next)
{
    use_clock();
    options.max_ms = 600000;
    open_tally();
    add("hit", 1, PQTX_OK);
    pass_ms(300000);
    add("hit", 1, PQTX_OK);
    ck_assert_int_eq(written(), 0);
    pass_ms(300001);
    add("hit", 1, PQTX_OK);
    ck_assert_int_eq(written(), 3);
    add("hit", 1, PQTX_OK); /* a young one again */
    ck_assert_int_eq(written(), 3);
}
END_TEST

/* ---- once, whatever happens */

static pqtx_fault go_wrong(pqtx_point point, uint32_t attempt, void *arg)
{
    (void)attempt;
    return point == *(pqtx_point *)arg ? PQTX_FAULT_CUT : PQTX_FAULT_NONE;
}

/* Left in doubt, and asked for again: it is counted once, whether it was committed or not. */
START_TEST(a_flush_in_doubt_is_written_once)
{
    pqtx_point point = PQTX_POINT_MAX;
    run_options.retry_mask = PQTX_RETRY_NOTHING;
    run_options.fault = go_wrong;
    run_options.fault_arg = &point;
    open_tally();
    for (int i = 0; i < 9; i++) {
        add("hit", 5, PQTX_OK);
        add("other", 6, PQTX_OK);
        point = (pqtx_point)(PQTX_POINT_COMMIT_BEGUN + i % 3);
        pqtx_status status = pqtx_tally_flush(tally, NULL);
        if (point != PQTX_POINT_COMMIT_SENT || status != PQTX_OK)
            assert_status(status, PQTX_IN_DOUBT, NULL);
        add("hit", 7, PQTX_OK); /* of another flush */
        point = PQTX_POINT_MAX;
        /* An answer that was faster than the cut leaves a connection that is cut all the same. */
        while ((status = pqtx_tally_flush(tally, NULL)) != PQTX_OK)
            assert_status(status, PQTX_IN_DOUBT, NULL);
        ck_assert_int_eq(written(), 18 * (i + 1));
    }
}
END_TEST

START_TEST(a_flush_that_begins_again_by_itself_is_written_once)
{
    pqtx_point point = PQTX_POINT_COMMIT_ANSWERED;
    run_options.max_attempts = 3;
    run_options.fault = go_wrong;
    run_options.fault_arg = &point;
    open_tally();
    add("hit", 5, PQTX_OK);
    pqtx_status status = pqtx_tally_flush(tally, NULL);
    assert_status(status, PQTX_OK, NULL);
    ck_assert_int_eq(written(), 5);
}
END_TEST

/* Nobody can write for a while. */
static void lock_table(void)
{
    sql(other, "BEGIN; LOCK TABLE hits");
}

START_TEST(what_cannot_be_written_is_kept_until_it_can)
{
    use_clock();
    run_options.lock_timeout_ms = 20;
    run_options.retry_mask = PQTX_RETRY_NOTHING;
    options.max_count = 10;
    options.again_ms = 60000;
    open_tally();
    lock_table();
    for (int i = 0; i < 20; i++)
        add("hit", 1, PQTX_OK); /* ten that could not be written, and ten more */
    uint64_t starts = stats_of(pool).starts;
    add("hit", 1, PQTX_BUSY); /* that is not taken */
    add("hit", 1, PQTX_BUSY);
    ck_assert_uint_eq(stats_of(pool).starts, starts); /* nor was it tried again so soon */
    flush(PQTX_BUSY);
    sql(other, "COMMIT");
    ck_assert_int_eq(written(), 0);
    add("hit", 1, PQTX_BUSY);
    pass_ms(60001);
    add("hit", 1, PQTX_OK);
    ck_assert_int_eq(written(), 20);
    flush(PQTX_OK);
    ck_assert_int_eq(written(), 21);
}
END_TEST

START_TEST(a_failed_flush_is_tried_again_by_who_comes_later)
{
    use_clock();
    run_options.lock_timeout_ms = 20;
    run_options.retry_mask = PQTX_RETRY_NOTHING;
    options.again_ms = 60000;
    open_tally();
    add("hit", 1, PQTX_OK);
    lock_table();
    flush(PQTX_BUSY);
    sql(other, "COMMIT");
    add("hit", 1, PQTX_OK);
    ck_assert_int_eq(written(), 0);
    pass_ms(60001);
    add("hit", 1, PQTX_OK);
    ck_assert_int_eq(written(), 1); /* the failed one; the two are young */
}
END_TEST

START_TEST(without_the_table_of_events_nothing_is_written)
{
    sql(monitor, "DROP TABLE pqtx_once");
    open_tally();
    add("hit", 1, PQTX_OK);
    flush(PQTX_BAD_STATEMENT);
    ck_assert_int_eq(written(), 0);
    pqtx_error error = PQTX_ERROR;
    assert_status(pqtx_once_install(pool, "pqtx_tally", &error), PQTX_OK, &error);
    close_tally(PQTX_OK);
    ck_assert_int_eq(written(), 1);
}
END_TEST

START_TEST(closing_says_what_became_of_the_last_flush)
{
    open_tally();
    add("hit", 1, PQTX_OK);
    sql(monitor, "DROP TABLE hits");
    close_tally(PQTX_BAD_STATEMENT);
}
END_TEST

/* ---- what is refused */

struct refused {
    int count;
    char key[16];
    int64_t delta;
    pqtx_status status;
};

static void note_refused(void *arg, const pqtx_increment *increment, const pqtx_error *error)
{
    struct refused *refused = arg;
    refused->count++;
    snprintf(refused->key, sizeof refused->key, "%.*s", (int)increment->key.len,
             (const char *)increment->key.as.data);
    refused->delta = increment->delta;
    refused->status = error->status;
}

START_TEST(what_is_refused_is_told_and_the_rest_is_written)
{
    struct refused refused = {0};
    options.refused = note_refused;
    options.refused_arg = &refused;
    sql(monitor, "INSERT INTO hits VALUES ('full', 9223372036854775807 - 3)");
    open_tally();
    for (int i = 0; i < 3; i++) {
        add("a", 1, PQTX_OK);
        add("full", 2, PQTX_OK);
        add("z", 1, PQTX_OK);
    }
    flush(PQTX_BAD_DATA);
    ck_assert_int_eq(refused.count, 1);
    ck_assert_str_eq(refused.key, "full");
    ck_assert_int_eq(refused.delta, 6);
    ck_assert_int_eq(refused.status, PQTX_BAD_DATA);
    flush(PQTX_OK);
    ck_assert_str_eq(ask(monitor, "SELECT string_agg(value::text, ' ' ORDER BY key) FROM hits"),
                     "3 9223372036854775804 3");
}
END_TEST

/* Each key of such a flush is an event of its own. */
START_TEST(a_refusal_and_a_doubt_together_count_once)
{
    pqtx_point point = PQTX_POINT_MAX;
    struct refused refused = {0};
    options.refused = note_refused;
    options.refused_arg = &refused;
    run_options.retry_mask = PQTX_RETRY_NOTHING;
    run_options.fault = go_wrong;
    run_options.fault_arg = &point;
    sql(monitor, "INSERT INTO hits VALUES ('full', 9223372036854775807)");
    open_tally();
    for (int i = 0; i < 5; i++) {
        char key[8];
        snprintf(key, sizeof key, "key %d", i);
        add(key, 1, PQTX_OK);
    }
    add("full", 1, PQTX_OK);
    point = PQTX_POINT_COMMIT_ANSWERED;
    for (int i = 0; i < 5; i++) /* the whole first, then key by key, each once in vain */
        assert_status(pqtx_tally_flush(tally, NULL), PQTX_IN_DOUBT, NULL);
    point = PQTX_POINT_MAX;
    flush(PQTX_BAD_DATA);
    ck_assert_int_eq(refused.count, 1);
    ck_assert_int_eq(ask_int(monitor, "SELECT count(*) FROM hits WHERE value = 1"), 5);
}
END_TEST

START_TEST(a_sum_that_does_not_fit_is_not_taken)
{
    open_tally();
    add("hit", INT64_MAX, PQTX_OK);
    add("hit", 1, PQTX_BAD_DATA);
    add("hit", -1, PQTX_OK);
    add("hit", 1, PQTX_OK);
    flush(PQTX_OK);
    ck_assert_int_eq(written(), INT64_MAX);
}
END_TEST

/* ---- threads */

enum { THREADS = 8, ROUNDS = 2000 };

struct racer {
    pthread_t thread;
    int number, failed;
};

static void *race(void *arg)
{
    static const char *const keys[] = {"a", "b", "c", "d", "e"};
    struct racer *racer = arg;
    for (int i = 0; i < ROUNDS; i++) {
        racer->failed +=
            pqtx_tally_add(tally, PQTX_TEXT(keys[(racer->number + i) % 5]), 1, NULL) != PQTX_OK;
        if (i % 500 == 499)
            racer->failed += pqtx_tally_flush(tally, NULL) != PQTX_OK;
    }
    return NULL;
}

START_TEST(a_crowd_loses_nothing)
{
    struct racer racers[THREADS];
    options.max_count = 300;
    options.max_keys = 4; /* fewer than there are */
    open_tally();
    for (int i = 0; i < THREADS; i++) {
        racers[i] = (struct racer){.number = i};
        ck_assert(pthread_create(&racers[i].thread, NULL, race, &racers[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(racers[i].thread, NULL);
        ck_assert_int_eq(racers[i].failed, 0);
    }
    close_tally(PQTX_OK);
    ck_assert_int_eq(written(), THREADS * ROUNDS);
}
END_TEST

static void *flush_on_thread(void *arg)
{
    *(pqtx_status *)arg = pqtx_tally_flush(tally, NULL);
    return NULL;
}

START_TEST(others_add_while_one_flushes_and_wait_no_longer_than_they_may)
{
    pthread_t thread;
    pqtx_status status;
    run_options.deadline_ms = 2000;
    run_options.lock_timeout_ms = PQTX_NO_TIMEOUT;
    options.max_count = 5;
    open_tally();
    add("hit", 1, PQTX_OK);
    lock_table();
    ck_assert(pthread_create(&thread, NULL, flush_on_thread, &status) == 0);
    wait_for_blocked(monitor, PQbackendPID(other));
    for (int i = 0; i < 5; i++)
        add("hit", 1, PQTX_OK);
    pqtx_status late = pqtx_tally_add(tally, PQTX_TEXT("hit"), 1, NULL); /* there is no room */
    ck_assert_msg(late != PQTX_OK, "%s", pqtx_status_name(late));
    pthread_join(thread, NULL);
    ck_assert(status != PQTX_OK);
    sql(other, "COMMIT");
    flush(PQTX_OK);
    ck_assert_int_eq(written(), 6);
}
END_TEST

static void *close_on_thread(void *arg)
{
    *(pqtx_status *)arg = pqtx_tally_close(tally, NULL);
    return NULL;
}

START_TEST(closing_waits_for_a_flush_and_takes_nothing_more)
{
    pthread_t flushing, closing;
    pqtx_status flushed, closed, status;
    open_tally();
    add("hit", 1, PQTX_OK);
    lock_table();
    ck_assert(pthread_create(&flushing, NULL, flush_on_thread, &flushed) == 0);
    wait_for_blocked(monitor, PQbackendPID(other));
    ck_assert(pthread_create(&closing, NULL, close_on_thread, &closed) == 0);
    int64_t taken = 1;
    while ((status = pqtx_tally_add(tally, PQTX_TEXT("hit"), 1, NULL)) == PQTX_OK) {
        taken++;
        poll(NULL, 0, 1); /* so that it does not get full before the closing has begun */
    }
    ck_assert_int_eq(status, PQTX_STOPPED);
    ck_assert_int_eq(pqtx_tally_flush(tally, NULL), PQTX_STOPPED);
    sql(other, "COMMIT");
    pthread_join(flushing, NULL);
    pthread_join(closing, NULL);
    tally = NULL;
    assert_status(flushed, PQTX_OK, NULL);
    assert_status(closed, PQTX_OK, NULL);
    ck_assert_int_eq(written(), taken);
}
END_TEST

/* ---- processes */

/* A program that counts what it has added, in memory that outlives it. */
static void count_until_killed(_Atomic int64_t *added)
{
    setenv("PGAPPNAME", "pqtx_tally_child", 1);
    pool = open_pool(2);
    open_tally();
    for (;;) {
        if (pqtx_tally_add(tally, PQTX_TEXT("hit"), 1, NULL) != PQTX_OK)
            _exit(1);
        atomic_fetch_add(added, 1);
    }
}

START_TEST(a_crash_loses_two_flushes_at_most_and_counts_nothing_twice)
{
    enum { COUNT = 50 };
    _Atomic int64_t *added =
        mmap(NULL, sizeof *added, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert(added != MAP_FAILED);
    options.max_count = COUNT;
    for (int round = 1; round <= 5; round++) {
        int status;
        sql(monitor, "TRUNCATE hits");
        atomic_store(added, 0);
        pid_t child = fork();
        if (child == 0)
            count_until_killed(added);
        while (atomic_load(added) < 777 * round)
            poll(NULL, 0, 1);
        kill(child, SIGKILL);
        ck_assert_int_eq(waitpid(child, &status, 0), child);
        ck_assert(WIFSIGNALED(status));
        wait_until_true(monitor, "SELECT count(*) = 0 FROM pg_stat_activity"
                                 " WHERE application_name = 'pqtx_tally_child'");
        int64_t in_all = atomic_load(added), kept = written();
        ck_assert_int_ge(kept, in_all - 2 * COUNT);
        ck_assert_int_le(kept, in_all + 1); /* the last one may have been added and not noted */
        ck_assert_int_eq(kept % COUNT, 0);
    }
    munmap((void *)added, sizeof *added);
}
END_TEST

START_TEST(a_child_leaves_its_parents_tally_alone)
{
    open_tally();
    add("hit", 1, PQTX_OK);
    pid_t child = fork();
    if (child == 0) {
        int wrong = pqtx_tally_add(tally, PQTX_TEXT("hit"), 1, NULL) != PQTX_MISUSE;
        wrong |= pqtx_tally_flush(tally, NULL) != PQTX_MISUSE;
        wrong |= pqtx_tally_close(tally, NULL) != PQTX_OK;
        pqtx_pool_close(pool);
        _exit(wrong);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    ck_assert_int_eq(written(), 0);
    flush(PQTX_OK);
    ck_assert_int_eq(written(), 1);
}
END_TEST

START_TEST(what_is_no_tally_is_misuse)
{
    static char longer[1026];
    pqtx_tally *made = (pqtx_tally *)&pool;
    pqtx_tally_options wrong = options;
    memset(longer, 'x', 1025);
    ck_assert_int_eq(pqtx_tally_open(NULL, &counter, NULL, &made, NULL), PQTX_MISUSE);
    ck_assert_ptr_null(made);
    ck_assert_int_eq(pqtx_tally_open(pool, NULL, NULL, &made, NULL), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_tally_open(pool, &counter, NULL, NULL, NULL), PQTX_MISUSE);
    wrong.max_keys = -1;
    ck_assert_int_eq(pqtx_tally_open(pool, &counter, &wrong, &made, NULL), PQTX_MISUSE);
    wrong = options;
    wrong.max_ms = INT64_MAX;
    ck_assert_int_eq(pqtx_tally_open(pool, &counter, &wrong, &made, NULL), PQTX_MISUSE);
    run_options.event_id = "one for all";
    ck_assert_int_eq(pqtx_tally_open(pool, &counter, &options, &made, NULL), PQTX_MISUSE);
    run_options.event_id = NULL;
    ck_assert_int_eq(pqtx_tally_add(NULL, PQTX_TEXT("hit"), 1, NULL), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_tally_flush(NULL, NULL), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_tally_close(NULL, NULL), PQTX_OK);
    open_tally();
    add(longer, 1, PQTX_MISUSE);
    longer[1024] = '\0';
    add(longer, 1, PQTX_OK);
    ck_assert_int_eq(pqtx_tally_add(tally, PQTX_INT(1), 1, NULL), PQTX_MISUSE);
}
END_TEST

static Suite *suite(void)
{
    Suite *suite = suite_create("tally");
    TCase *tests = tcase_create("tally");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, nothing_is_written_before_a_flush);
    tcase_add_test(tests, a_full_tally_is_written);
    tcase_add_test(tests, a_tally_full_of_keys_is_written);
    tcase_add_test(tests, an_old_tally_is_written_by_who_comes_next);
    tcase_add_test(tests, a_flush_in_doubt_is_written_once);
    tcase_add_test(tests, a_flush_that_begins_again_by_itself_is_written_once);
    tcase_add_test(tests, what_cannot_be_written_is_kept_until_it_can);
    tcase_add_test(tests, a_failed_flush_is_tried_again_by_who_comes_later);
    tcase_add_test(tests, without_the_table_of_events_nothing_is_written);
    tcase_add_test(tests, closing_says_what_became_of_the_last_flush);
    tcase_add_test(tests, what_is_refused_is_told_and_the_rest_is_written);
    tcase_add_test(tests, a_refusal_and_a_doubt_together_count_once);
    tcase_add_test(tests, a_sum_that_does_not_fit_is_not_taken);
    tcase_add_test(tests, a_crowd_loses_nothing);
    tcase_add_test(tests, others_add_while_one_flushes_and_wait_no_longer_than_they_may);
    tcase_add_test(tests, closing_waits_for_a_flush_and_takes_nothing_more);
    tcase_add_test(tests, a_crash_loses_two_flushes_at_most_and_counts_nothing_twice);
    tcase_add_test(tests, a_child_leaves_its_parents_tally_alone);
    tcase_add_test(tests, what_is_no_tally_is_misuse);
    suite_add_tcase(suite, tests);
    return suite;
}

int main(void)
{
    return run_suite(suite());
}
