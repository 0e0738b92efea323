/* check_live_evidence.c: what the last attempts met, readable after the call. */
#include "support.h"
#include "support_doubt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static PGconn *monitor;
static pqtx_pool *pool;

static void make(void)
{
    make_doubt("pqtx_evidence");
}

static void set_up(void)
{
    monitor = open_doubt();
    pool = open_pool(2);
}

static void tear_down(void)
{
    pqtx_pool_close(pool);
    PQfinish(monitor);
}

/* A body that fails with one SQLSTATE after another, and at the end of the list commits. */
struct plan {
    const char *const *sqlstates;
    const char *message;
    int next;
};

static pqtx_status follow(pqtx_tx *tx, void *arg)
{
    char statement[2048];
    struct plan *plan = arg;
    const char *sqlstate = plan->sqlstates[plan->next];
    if (!sqlstate)
        return pqtx_exec(tx, "SELECT 1", PQTX_NO_ARGS, NULL);
    plan->next++;
    snprintf(statement, sizeof statement, "DO $$ BEGIN RAISE '%s' USING ERRCODE = '%s'; END $$",
             plan->message, sqlstate);
    return pqtx_exec(tx, statement, PQTX_NO_ARGS, NULL);
}

/* What the observer was told, to be compared. */
struct story {
    pqtx_evidence evidence;
    int failures, waits;
    int64_t wait_us[64]; /* after failure n */
};

static void listen(const pqtx_event *event, void *arg)
{
    struct story *story = arg;
    if (event->type == PQTX_EVENT_FAILED)
        story->failures++;
    if (event->type == PQTX_EVENT_WAIT) {
        story->wait_us[story->failures - 1] = event->wait_us;
        story->waits++;
    }
}

static pqtx_options options_of(struct story *story)
{
    pqtx_options options = PQTX_OPTIONS;
    memset(story, 0, sizeof *story);
    story->evidence = (pqtx_evidence)PQTX_EVIDENCE;
    options.evidence = &story->evidence;
    options.observer = listen;
    options.observer_arg = story;
    options.wait_first_ms = 1;
    options.wait_max_ms = 1;
    options.max_attempts = 64;
    return options;
}

static const pqtx_record *record_of(const struct story *story, uint32_t number)
{
    return &story->evidence.records[number % PQTX_RECORD_COUNT];
}

START_TEST(each_failure_is_there_in_its_order)
{
    static const char *const sqlstates[] = {"40001", "40P01", "55P03", "40000", NULL};
    static const pqtx_status statuses[] = {PQTX_SERIALIZATION, PQTX_DEADLOCK, PQTX_BUSY,
                                           PQTX_ROLLED_BACK};
    struct plan plan = {sqlstates, "lost", 0};
    struct story story;
    pqtx_options options = options_of(&story);
    assert_status(pqtx_run(pool, &options, follow, &plan, NULL), PQTX_OK, NULL);
    ck_assert_uint_eq(story.evidence.count, 4);
    ck_assert_int_eq(story.waits, 4);
    int64_t before_us = 0;
    for (uint32_t i = 0; i < 4; i++) {
        const pqtx_record *record = record_of(&story, i);
        ck_assert_uint_eq(record->attempt, i + 1);
        ck_assert_int_eq(record->status, statuses[i]);
        ck_assert_str_eq(record->sqlstate, sqlstates[i]);
        ck_assert_str_eq(record->message, "lost");
        ck_assert_int_eq(record->phase, PQTX_PHASE_BODY);
        ck_assert_int_eq(record->origin, PQTX_ORIGIN_SERVER);
        ck_assert_uint_eq(record->flags, 0);
        ck_assert_uint_eq(record->reserved, 0);
        ck_assert_int_ge(record->elapsed_us, before_us);
        ck_assert_int_eq(record->wait_us, story.wait_us[i]);
        before_us = record->elapsed_us + record->wait_us;
    }
}
END_TEST

START_TEST(the_waits_are_those_that_were_slept)
{
    static const char *const sqlstates[] = {"40001", "40001", "40001", "40001", "40001", NULL};
    struct plan plan = {sqlstates, "lost", 0};
    struct story story;
    int64_t slept_us = 0;
    pqtx_options options = options_of(&story);
    options.max_attempts = 5;
    assert_status(pqtx_run(pool, &options, follow, &plan, NULL), PQTX_SERIALIZATION, NULL);
    ck_assert_uint_eq(story.evidence.count, 5);
    ck_assert_int_eq(story.waits, 4);
    for (uint32_t i = 0; i < 5; i++)
        slept_us += record_of(&story, i)->wait_us;
    ck_assert_int_eq(record_of(&story, 4)->wait_us, 0);
    pqtx_stats stats = PQTX_STATS;
    ck_assert_int_eq(pqtx_pool_stats(pool, &stats), PQTX_OK);
    ck_assert_uint_eq(stats.wait_us, (uint64_t)slept_us);
}
END_TEST

/* 20 failures in a ring of 16: the first four are overwritten. */
START_TEST(the_ring_wraps_around)
{
    const char *sqlstates[21];
    for (int i = 0; i < 20; i++)
        sqlstates[i] = i % 2 ? "40001" : "40P01";
    sqlstates[20] = NULL;
    struct plan plan = {sqlstates, "lost", 0};
    struct story story;
    pqtx_options options = options_of(&story);
    assert_status(pqtx_run(pool, &options, follow, &plan, NULL), PQTX_OK, NULL);
    ck_assert_uint_eq(story.evidence.count, 20);
    for (uint32_t number = 4; number < 20; number++) {
        const pqtx_record *record = record_of(&story, number);
        ck_assert_uint_eq(record->attempt, number + 1);
        ck_assert_str_eq(record->sqlstate, sqlstates[number]);
        ck_assert_int_eq(record->wait_us, story.wait_us[number]);
    }
}
END_TEST

START_TEST(exactly_as_many_as_the_ring_holds_are_all_there)
{
    const char *sqlstates[PQTX_RECORD_COUNT + 1];
    for (int i = 0; i < PQTX_RECORD_COUNT; i++)
        sqlstates[i] = "40001";
    sqlstates[PQTX_RECORD_COUNT] = NULL;
    struct plan plan = {sqlstates, "lost", 0};
    struct story story;
    pqtx_options options = options_of(&story);
    assert_status(pqtx_run(pool, &options, follow, &plan, NULL), PQTX_OK, NULL);
    ck_assert_uint_eq(story.evidence.count, PQTX_RECORD_COUNT);
    for (uint32_t i = 0; i < PQTX_RECORD_COUNT; i++)
        ck_assert_uint_eq(story.evidence.records[i].attempt, i + 1);
}
END_TEST

START_TEST(an_answer_is_one_record)
{
    static const char *const sqlstates[] = {"23505", NULL};
    struct plan plan = {sqlstates, "there is one", 0};
    struct story story;
    pqtx_options options = options_of(&story);
    assert_status(pqtx_run(pool, &options, follow, &plan, NULL), PQTX_DUPLICATE, NULL);
    ck_assert_uint_eq(story.evidence.count, 1);
    ck_assert_int_eq(record_of(&story, 0)->status, PQTX_DUPLICATE);
    ck_assert_int_eq(record_of(&story, 0)->wait_us, 0);
}
END_TEST

START_TEST(a_run_that_succeeds_at_once_leaves_none)
{
    static const char *const sqlstates[] = {NULL};
    struct plan plan = {sqlstates, "", 0};
    struct story story;
    pqtx_options options = options_of(&story);
    assert_status(pqtx_run(pool, &options, follow, &plan, NULL), PQTX_OK, NULL);
    ck_assert_uint_eq(story.evidence.count, 0);
}
END_TEST

static pqtx_status fail_by_itself(pqtx_tx *tx, void *arg)
{
    int *runs = arg;
    return ++*runs == 1 ? pqtx_fail(tx, PQTX_SERIALIZATION) : PQTX_OK;
}

START_TEST(what_the_body_asked_for_is_the_librarys)
{
    int runs = 0;
    struct story story;
    pqtx_options options = options_of(&story);
    assert_status(pqtx_run(pool, &options, fail_by_itself, &runs, NULL), PQTX_OK, NULL);
    ck_assert_uint_eq(story.evidence.count, 1);
    ck_assert_int_eq(record_of(&story, 0)->status, PQTX_SERIALIZATION);
    ck_assert_int_eq(record_of(&story, 0)->origin, PQTX_ORIGIN_LIBRARY);
    ck_assert_str_eq(record_of(&story, 0)->sqlstate, "");
}
END_TEST

START_TEST(a_connection_that_cannot_be_had_is_recorded_before_any_attempt)
{
    int runs = 0;
    struct story story;
    pqtx_pool *nowhere;
    pqtx_pool_options pool_options = PQTX_POOL_OPTIONS;
    pqtx_options options = options_of(&story);
    options.deadline_ms = 300;
    pool_options.conninfo = "host=/nonexistent";
    pool_options.flags = PQTX_POOL_LAZY;
    ck_assert_int_eq(pqtx_pool_open(&pool_options, &nowhere, NULL), PQTX_OK);
    assert_status(pqtx_run(nowhere, &options, fail_by_itself, &runs, NULL), PQTX_NO_CONNECTION,
                  NULL);
    pqtx_pool_close(nowhere);
    ck_assert_int_eq(runs, 0);
    ck_assert_uint_ge(story.evidence.count, 1);
    for (uint32_t i = 0; i < story.evidence.count && i < PQTX_RECORD_COUNT; i++) {
        ck_assert_uint_eq(story.evidence.records[i].attempt, 0);
        ck_assert_int_eq(story.evidence.records[i].phase, PQTX_PHASE_CONNECT);
        ck_assert_int_eq(story.evidence.records[i].status, PQTX_NO_CONNECTION);
    }
}
END_TEST

START_TEST(a_second_run_goes_on_where_the_first_ended)
{
    static const char *const sqlstates[] = {"40001", "40P01", NULL};
    struct plan plan = {sqlstates, "lost", 0};
    struct story story;
    pqtx_options options = options_of(&story);
    assert_status(pqtx_run(pool, &options, follow, &plan, NULL), PQTX_OK, NULL);
    plan.next = 1;
    assert_status(pqtx_run(pool, &options, follow, &plan, NULL), PQTX_OK, NULL);
    ck_assert_uint_eq(story.evidence.count, 3);
    ck_assert_uint_eq(record_of(&story, 2)->attempt, 1);
    ck_assert_str_eq(record_of(&story, 2)->sqlstate, "40P01");
}
END_TEST

/* ---- A message that is too long is cut between two characters */

static bool is_whole(const char *text)
{
    while (*text) {
        unsigned char lead = (unsigned char)*text;
        int more = lead < 0x80 ? 0 : lead >= 0xf0 ? 3 : lead >= 0xe0 ? 2 : lead >= 0xc0 ? 1 : -1;
        if (more < 0)
            return false;
        for (text++; more > 0; more--, text++)
            if (((unsigned char)*text & 0xc0) != 0x80)
                return false;
    }
    return true;
}

START_TEST(a_long_message_is_cut_between_characters)
{
    static const char *const sqlstates[] = {"23505", NULL};
    static const char *const characters[] = {"a", "\xc3\xbc", "\xe2\x82\xac", "\xf0\x9f\x92\xb6"};
    const size_t room = sizeof(((pqtx_record *)0)->message) - 1;
    for (int shift = 0; shift < 4; shift++) {
        char message[512] = "";
        memset(message, 'x', (size_t)shift);
        while (strlen(message) < 300)
            strcat(message, characters[_i]);
        struct plan plan = {sqlstates, message, 0};
        struct story story;
        pqtx_options options = options_of(&story);
        assert_status(pqtx_run(pool, &options, follow, &plan, NULL), PQTX_DUPLICATE, NULL);
        const char *kept = record_of(&story, 0)->message;
        size_t width = strlen(characters[_i]), len = strlen(kept);
        ck_assert(is_whole(kept));
        ck_assert_mem_eq(kept, message, len);
        ck_assert_uint_eq(len, (room - (size_t)shift) / width * width + (size_t)shift);
    }
}
END_TEST

START_TEST(a_message_that_just_fits_is_kept_whole)
{
    static const char *const sqlstates[] = {"23505", NULL};
    char message[sizeof(((pqtx_record *)0)->message)];
    memset(message, 'x', sizeof message);
    message[sizeof message - 1] = '\0';
    struct plan plan = {sqlstates, message, 0};
    struct story story;
    pqtx_options options = options_of(&story);
    assert_status(pqtx_run(pool, &options, follow, &plan, NULL), PQTX_DUPLICATE, NULL);
    ck_assert_str_eq(record_of(&story, 0)->message, message);
}
END_TEST

START_TEST(an_evidence_without_its_size_is_misuse)
{
    int runs = 0;
    pqtx_error error = PQTX_ERROR;
    struct story story;
    pqtx_options options = options_of(&story);
    story.evidence.size = 0;
    assert_status(pqtx_run(pool, &options, fail_by_itself, &runs, &error), PQTX_MISUSE, &error);
    ck_assert_ptr_nonnull(strstr(error.message, "evidence"));
    ck_assert_int_eq(runs, 0);
}
END_TEST

static Suite *suite(void)
{
    Suite *suite = suite_create("evidence");
    TCase *tests = tcase_create("evidence");
    tcase_add_unchecked_fixture(tests, make, NULL);
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, each_failure_is_there_in_its_order);
    tcase_add_test(tests, the_waits_are_those_that_were_slept);
    tcase_add_test(tests, the_ring_wraps_around);
    tcase_add_test(tests, exactly_as_many_as_the_ring_holds_are_all_there);
    tcase_add_test(tests, an_answer_is_one_record);
    tcase_add_test(tests, a_run_that_succeeds_at_once_leaves_none);
    tcase_add_test(tests, what_the_body_asked_for_is_the_librarys);
    tcase_add_test(tests, a_connection_that_cannot_be_had_is_recorded_before_any_attempt);
    tcase_add_test(tests, a_second_run_goes_on_where_the_first_ended);
    tcase_add_loop_test(tests, a_long_message_is_cut_between_characters, 0, 4);
    tcase_add_test(tests, a_message_that_just_fits_is_kept_whole);
    tcase_add_test(tests, an_evidence_without_its_size_is_misuse);
    suite_add_tcase(suite, tests);
    return suite;
}

int main(void)
{
    return run_suite(suite());
}
