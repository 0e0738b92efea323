/* check_live_points.c: the connection goes at each point where one can ask for it, with each way of
 * resolving, at each isolation level; a marker row is the judge. */
#include "support.h"
#include "support_doubt.h"

#include <stdio.h>
#include <string.h>

enum { MODES = 6, LEVELS = 3, ALL = MODES * LEVELS };

static PGconn *monitor;
static pqtx_pool *pool;

static void make(void)
{
    make_doubt("pqtx_points");
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

/* ---- How a run resolves its doubt: 0 … 2 by report, xid, token; 3 … 5 the same with an event */

static bool has_event(int i)
{
    return i / LEVELS >= 3;
}

static pqtx_doubt doubt_of(int i)
{
    return (pqtx_doubt)(PQTX_DOUBT_REPORT + i / LEVELS % 3);
}

/* Whether it finds out by itself. */
static bool resolves(int i)
{
    return has_event(i) || doubt_of(i) != PQTX_DOUBT_REPORT;
}

static struct trial trial_of(int i, pqtx_point point, uint32_t last)
{
    struct trial trial;
    trial_init(&trial, pool, doubt_of(i));
    trial.options.isolation = (pqtx_isolation)(PQTX_ISO_READ_COMMITTED + i % LEVELS);
    trial.options.event_id = has_event(i) ? "event" : NULL;
    trial.point = point;
    trial.last = last;
    return trial;
}

/* What must hold whatever happened: the hooks agree with the outcome, and the row with both. */
static void judge(const struct trial *trial)
{
    static const pqtx_outcome outcomes[] = {PQTX_OUTCOME_ROLLED_BACK, PQTX_OUTCOME_COMMITTED};
    bool in_doubt = trial->outcome == PQTX_OUTCOME_IN_DOUBT;
    bool ok = trial->status == PQTX_OK;
    ck_assert_int_eq(trial->status == PQTX_IN_DOUBT, in_doubt);
    if (!in_doubt)
        ck_assert_int_eq(trial->outcome, outcomes[ok]);
    ck_assert_int_eq(trial->committed, ok);
    ck_assert_int_eq(trial->rolled_back, trial->runs - ok - in_doubt);
    if (in_doubt)
        ck_assert(!(trial->flags & PQTX_RESOLVED));
    if (!in_doubt && trial->id) {
        ck_assert_int_eq(rows_of(monitor, trial, false), ok);
        ck_assert_int_eq(rows_of(monitor, trial, true), ok);
    }
    for (uint32_t i = 0; i < trial->evidence.count; i++) {
        const pqtx_record *record = &trial->evidence.records[i];
        ck_assert_uint_eq(record->attempt, i + 1);
        ck_assert(record->flags & PQTX_ERROR_CONNECTION);
    }
}

static void assert_recorded(const struct trial *trial, uint32_t count, pqtx_status status,
                            bool in_commit)
{
    ck_assert_uint_eq(trial->evidence.count, count);
    for (uint32_t i = 0; i < count; i++) {
        ck_assert_int_eq(trial->evidence.records[i].status, status);
        ck_assert_int_eq(trial->evidence.records[i].phase == PQTX_PHASE_COMMIT, in_commit);
    }
}

/* The event is done, or not, and a second run finds it so. */
static void assert_event(const struct trial *trial, bool done)
{
    struct trial again = *trial;
    if (!trial->options.event_id)
        return;
    again.point = 0;
    trial_run(&again);
    assert_trial(&again, done ? PQTX_DONE_BEFORE : PQTX_OK);
    ck_assert_int_eq(again.runs, !done);
    ck_assert_int_eq(rows_of(monitor, &again, true), 1);
    ck_assert_uint_eq(again.answer_len, 4);
    ck_assert_mem_eq(again.answer, "done", 4);
}

/* ---- Before COMMIT has begun: surely rolled back, and run again.
 *
 * An answer that came in between STATEMENT_SENT and the cut is still read; the loss is then found
 * before COMMIT begins. */

static const pqtx_point before_commit[] = {PQTX_POINT_STATEMENT, PQTX_POINT_STATEMENT_SENT,
                                           PQTX_POINT_COMMIT};

/* The body runs in each attempt, unless the event's row could not be written before it. */
static void assert_runs(const struct trial *trial, int attempts)
{
    bool may_not = trial->options.event_id && trial->point != PQTX_POINT_COMMIT;
    ck_assert_int_le(trial->runs, attempts);
    ck_assert_int_ge(trial->runs, may_not ? attempts - trial->cuts : attempts);
}

START_TEST(before_commit_a_cut_costs_an_attempt)
{
    for (size_t p = 0; p < 3; p++) {
        struct trial trial = trial_of(_i, before_commit[p], 1);
        char event[16];
        snprintf(event, sizeof event, "event %zu", p);
        trial.options.event_id = has_event(_i) ? event : NULL;
        trial_run(&trial);
        assert_trial(&trial, PQTX_OK);
        ck_assert_uint_eq(trial.attempts, 2);
        assert_runs(&trial, 2);
        ck_assert_uint_eq(trial.flags, 0);
        assert_recorded(&trial, 1, PQTX_NO_CONNECTION, false);
        judge(&trial);
        assert_event(&trial, true);
    }
}
END_TEST

START_TEST(before_commit_a_cut_each_time_ends_rolled_back)
{
    for (size_t p = 0; p < 3; p++) {
        struct trial trial = trial_of(_i, before_commit[p], UINT32_MAX);
        trial_run(&trial);
        assert_trial(&trial, PQTX_NO_CONNECTION);
        ck_assert_uint_eq(trial.attempts, 3);
        assert_runs(&trial, 3);
        ck_assert(trial.error.flags & PQTX_ERROR_ATTEMPTS);
        ck_assert_uint_eq(trial.flags, 0);
        assert_recorded(&trial, 3, PQTX_NO_CONNECTION, false);
        judge(&trial);
        if (p == 2)
            assert_event(&trial, false);
    }
}
END_TEST

/* ---- COMMIT has begun, and nothing of it was sent: in fact rolled back */

START_TEST(a_commit_that_was_not_sent_is_in_doubt_or_run_again)
{
    struct trial trial = trial_of(_i, PQTX_POINT_COMMIT_BEGUN, 1);
    trial_run(&trial);
    assert_trial(&trial, resolves(_i) ? PQTX_OK : PQTX_IN_DOUBT);
    ck_assert_int_eq(trial.runs, resolves(_i) ? 2 : 1);
    ck_assert_uint_eq(trial.flags, resolves(_i) ? PQTX_RESOLVED : 0);
    assert_recorded(&trial, 1, PQTX_IN_DOUBT, true);
    judge(&trial);
    ck_assert_int_eq(rows_of(monitor, &trial, true), resolves(_i));
    assert_event(&trial, true);
}
END_TEST

/* A token and an xid find out each time; an event only by the attempt that follows. */
START_TEST(a_commit_that_is_never_sent_ends_rolled_back_or_in_doubt)
{
    struct trial trial = trial_of(_i, PQTX_POINT_COMMIT_BEGUN, UINT32_MAX);
    bool found_out = doubt_of(_i) != PQTX_DOUBT_REPORT;
    trial_run(&trial);
    assert_trial(&trial, found_out ? PQTX_NO_CONNECTION : PQTX_IN_DOUBT);
    ck_assert_int_eq(trial.runs, resolves(_i) ? 3 : 1);
    ck_assert_int_eq(!!(trial.flags & PQTX_RESOLVED), found_out);
    assert_recorded(&trial, resolves(_i) ? 3 : 1, PQTX_IN_DOUBT, true);
    judge(&trial);
    ck_assert_int_eq(rows_of(monitor, &trial, true), 0);
    assert_event(&trial, false);
}
END_TEST

/* ---- COMMIT is on its way: in fact either; where the answer was quicker than the cut, there is
 * not even doubt */

START_TEST(a_commit_on_its_way_is_in_doubt_or_done_once)
{
    struct trial trial = trial_of(_i, PQTX_POINT_COMMIT_SENT, _i % 2 ? 1 : UINT32_MAX);
    trial_run(&trial);
    if (trial.evidence.count == 0)
        assert_trial(&trial, PQTX_OK);
    else if (!resolves(_i))
        assert_trial(&trial, PQTX_IN_DOUBT);
    else if (trial.last == 1)
        assert_trial(&trial, PQTX_OK);
    else
        ck_assert(trial.status != PQTX_IN_DOUBT || doubt_of(_i) == PQTX_DOUBT_REPORT);
    for (uint32_t i = 0; i < trial.evidence.count; i++)
        ck_assert_int_eq(trial.evidence.records[i].status, PQTX_IN_DOUBT);
    judge(&trial);
    ck_assert_int_le(rows_of(monitor, &trial, true), 1);
    if (trial.status == PQTX_OK)
        assert_event(&trial, true);
}
END_TEST

/* ---- The answer to COMMIT is thrown away: in fact committed */

START_TEST(a_commit_whose_answer_is_lost_is_in_doubt_or_found_out)
{
    struct trial trial = trial_of(_i, PQTX_POINT_COMMIT_ANSWERED, _i % 2 ? 1 : UINT32_MAX);
    trial_run(&trial);
    assert_trial(&trial, resolves(_i) ? PQTX_OK : PQTX_IN_DOUBT);
    ck_assert_int_eq(trial.runs, 1);
    ck_assert_uint_eq(trial.flags, resolves(_i) ? PQTX_RESOLVED : 0);
    assert_recorded(&trial, 1, PQTX_IN_DOUBT, true);
    judge(&trial);
    ck_assert_int_eq(rows_of(monitor, &trial, true), 1);
    if (has_event(_i)) {
        ck_assert_uint_eq(trial.answer_len, 4);
        ck_assert_mem_eq(trial.answer, "done", 4);
    }
    assert_event(&trial, true);
}
END_TEST

/* ---- ROLLBACK */

START_TEST(a_rollback_that_is_cut_is_a_rollback)
{
    struct trial trial = trial_of(_i, PQTX_POINT_ROLLBACK, UINT32_MAX);
    trial.fail = PQTX_STOPPED;
    trial_run(&trial);
    assert_trial(&trial, PQTX_STOPPED);
    ck_assert_int_eq(trial.cuts, 1);
    ck_assert_int_eq(trial.runs, 1);
    ck_assert(trial.error.flags & PQTX_ERROR_CONNECTION);
    judge(&trial);
    trial.fail = PQTX_OK;
    assert_event(&trial, false);
}
END_TEST

/* ---- On a connection of the caller's: resolved alike, and never run again */

static struct trial trial_on_own(int i, pqtx_point point)
{
    struct trial trial = trial_of(i, point, UINT32_MAX);
    trial.pool = NULL;
    trial.own = open_own();
    trial_run(&trial);
    PQfinish(trial.own);
    ck_assert_int_ge(trial.cuts, 1);
    ck_assert_uint_eq(trial.attempts, 1);
    ck_assert(trial.error.flags & PQTX_ERROR_CONNECTION);
    trial.pool = pool;
    trial.own = NULL;
    return trial;
}

START_TEST(before_commit_a_cut_ends_a_run_on_the_callers_connection)
{
    for (size_t p = 0; p < 3; p++) {
        struct trial trial = trial_on_own(_i, before_commit[p]);
        assert_trial(&trial, PQTX_NO_CONNECTION);
        ck_assert_uint_eq(trial.flags, 0);
        judge(&trial);
        if (p == 2)
            assert_event(&trial, false);
    }
}
END_TEST

START_TEST(a_commit_that_was_not_sent_is_resolved_on_a_connection_like_the_callers)
{
    struct trial trial = trial_on_own(_i, PQTX_POINT_COMMIT_BEGUN);
    bool found_out = doubt_of(_i) != PQTX_DOUBT_REPORT;
    assert_trial(&trial, found_out ? PQTX_NO_CONNECTION : PQTX_IN_DOUBT);
    ck_assert_uint_eq(trial.flags, found_out ? PQTX_RESOLVED : 0);
    ck_assert_int_eq(trial.runs, 1);
    judge(&trial);
    ck_assert_int_eq(rows_of(monitor, &trial, true), 0);
    assert_event(&trial, false);
}
END_TEST

START_TEST(a_lost_answer_is_resolved_on_a_connection_like_the_callers)
{
    struct trial trial = trial_on_own(_i, PQTX_POINT_COMMIT_ANSWERED);
    bool found_out = doubt_of(_i) != PQTX_DOUBT_REPORT;
    assert_trial(&trial, found_out ? PQTX_OK : PQTX_IN_DOUBT);
    ck_assert_uint_eq(trial.flags, found_out ? PQTX_RESOLVED : 0);
    judge(&trial);
    ck_assert_int_eq(rows_of(monitor, &trial, true), 1);
    assert_event(&trial, true);
}
END_TEST

/* ---- The hook itself */

static char points[1024];

static pqtx_fault note_point(pqtx_point point, uint32_t attempt, void *arg)
{
    char line[64];
    (void)arg;
    snprintf(line, sizeof line, "%u %s\n", attempt, pqtx_point_name(point));
    ck_assert_uint_lt(strlen(points) + strlen(line), sizeof points);
    strcat(points, line);
    return PQTX_FAULT_NONE;
}

START_TEST(the_hook_is_asked_at_each_point_in_its_order)
{
    struct trial trial;
    trial_init(&trial, pool, PQTX_DOUBT_REPORT);
    trial.options.fault = note_point;
    trial_run(&trial);
    assert_trial(&trial, PQTX_OK);
    ck_assert_str_eq(points, "1 statement\n1 statement_sent\n1 commit\n1 commit_begun\n"
                             "1 commit_sent\n1 commit_answered\n");
    points[0] = '\0';
    trial.fail = PQTX_SERIALIZATION;
    trial.options.max_attempts = 2;
    trial_run(&trial);
    ck_assert_str_eq(points, "1 statement\n1 statement_sent\n1 rollback\n"
                             "2 statement\n2 statement_sent\n2 rollback\n");
}
END_TEST

START_TEST(each_point_has_a_name)
{
    static const char *const names[] = {"statement",   "statement_sent",  "commit",  "commit_begun",
                                        "commit_sent", "commit_answered", "rollback"};
    for (int point = 1; point <= 7; point++)
        ck_assert_str_eq(pqtx_point_name((pqtx_point)point), names[point - 1]);
    ck_assert_str_eq(pqtx_point_name((pqtx_point)8), "unknown");
    ck_assert_str_eq(pqtx_point_name((pqtx_point)-1), "unknown");
}
END_TEST

static Suite *suite(void)
{
    Suite *suite = suite_create("points");
    TCase *tests = tcase_create("points");
    tcase_add_unchecked_fixture(tests, make, NULL);
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_set_timeout(tests, 60);
    tcase_add_loop_test(tests, before_commit_a_cut_costs_an_attempt, 0, ALL);
    tcase_add_loop_test(tests, before_commit_a_cut_each_time_ends_rolled_back, 0, ALL);
    tcase_add_loop_test(tests, a_commit_that_was_not_sent_is_in_doubt_or_run_again, 0, ALL);
    tcase_add_loop_test(tests, a_commit_that_is_never_sent_ends_rolled_back_or_in_doubt, 0, ALL);
    tcase_add_loop_test(tests, a_commit_on_its_way_is_in_doubt_or_done_once, 0, ALL);
    tcase_add_loop_test(tests, a_commit_whose_answer_is_lost_is_in_doubt_or_found_out, 0, ALL);
    tcase_add_loop_test(tests, a_rollback_that_is_cut_is_a_rollback, 0, ALL);
    tcase_add_loop_test(tests, before_commit_a_cut_ends_a_run_on_the_callers_connection, 0, ALL);
    tcase_add_loop_test(
        tests, a_commit_that_was_not_sent_is_resolved_on_a_connection_like_the_callers, 0, ALL);
    tcase_add_loop_test(tests, a_lost_answer_is_resolved_on_a_connection_like_the_callers, 0, ALL);
    tcase_add_test(tests, the_hook_is_asked_at_each_point_in_its_order);
    tcase_add_test(tests, each_point_has_a_name);
    suite_add_tcase(suite, tests);
    return suite;
}

int main(void)
{
    return run_suite(suite());
}
