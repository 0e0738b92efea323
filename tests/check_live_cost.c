/* check_live_cost.c: what proof costs on the wire, as pqtx_outcomes(7) promises it. */
#define _DEFAULT_SOURCE
#include "support.h"
#include "support_doubt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static PGconn *monitor, *own;
static FILE *trace;
static char *traced;
static size_t traced_len;

static void make(void)
{
    make_doubt("pqtx_cost");
}

static void set_up(void)
{
    monitor = open_doubt();
    own = open_own();
    trace = open_memstream(&traced, &traced_len);
    ck_assert_ptr_nonnull(trace);
    PQtrace(own, trace);
    PQsetTraceFlags(own, PQTRACE_SUPPRESS_TIMESTAMPS | PQTRACE_REGRESS_MODE);
}

static void tear_down(void)
{
    PQuntrace(own);
    fclose(trace);
    free(traced);
    PQfinish(own);
    PQfinish(monitor);
}

/* How many messages of this kind were sent so far.  A flight ends with Sync, which is a round trip;
 * a statement begins with Parse. */
static int sent(const char *message)
{
    int count = 0;
    char wanted[16];
    snprintf(wanted, sizeof wanted, "\t%s", message);
    fflush(trace);
    for (const char *line = traced; *line; line += strcspn(line, "\n") + 1) {
        /* F, the length, the type, its fields */
        const char *type = line[0] == 'F' && line[1] == '\t' ? strchr(line + 2, '\t') : NULL;
        count += type && strncmp(type, wanted, strlen(wanted)) == 0;
    }
    return count;
}

/* A body that reads `reads` times, then writes `writes` times. */
struct work {
    int reads, writes;
    bool answers;
};

static pqtx_status do_work(pqtx_tx *tx, void *arg)
{
    const struct work *work = arg;
    for (int i = 0; i < work->reads; i++)
        pqtx_exec(tx, "SELECT 1", PQTX_NO_ARGS, NULL);
    for (int i = 0; i < work->writes; i++)
        pqtx_exec(tx, "INSERT INTO mark VALUES (1)", PQTX_NO_ARGS, NULL);
    return work->answers ? pqtx_once_store(tx, "a", 1) : PQTX_OK;
}

static void assert_cost(const pqtx_options *options, struct work work, pqtx_status expected,
                        int round_trips, int statements, int rows)
{
    pqtx_error error = PQTX_ERROR;
    int syncs = sent("Sync"), parses = sent("Parse");
    int64_t before = ask_int(monitor, "SELECT count(*) FROM pqtx_once");
    assert_status(pqtx_run_on(own, options, do_work, &work, &error), expected, &error);
    ck_assert_int_eq(sent("Sync") - syncs, round_trips);
    ck_assert_int_eq(sent("Parse") - parses, statements);
    ck_assert_int_eq(ask_int(monitor, "SELECT count(*) FROM pqtx_once") - before, rows);
}

static pqtx_options options_by(pqtx_doubt in_doubt)
{
    pqtx_options options = PQTX_OPTIONS;
    options.in_doubt = in_doubt;
    options.once_schema = "pqtx_cost";
    return options;
}

START_TEST(a_report_costs_nothing)
{
    pqtx_options options = options_by(PQTX_DOUBT_REPORT);
    for (int n = 1; n <= 3; n++)
        assert_cost(&options, (struct work){0, n, false}, PQTX_OK, n + 1, n + 3, 0);
}
END_TEST

START_TEST(an_xid_costs_a_statement_until_there_is_one)
{
    pqtx_options options = options_by(PQTX_DOUBT_XID);
    for (int n = 1; n <= 3; n++) {
        assert_cost(&options, (struct work){0, n, false}, PQTX_OK, n + 1, n + 4, 0);
        assert_cost(&options, (struct work){n, 1, false}, PQTX_OK, n + 2, 2 * n + 5, 0);
        assert_cost(&options, (struct work){n, 0, false}, PQTX_OK, n + 1, 2 * n + 3, 0);
    }
}
END_TEST

START_TEST(a_token_costs_a_statement_and_a_row)
{
    pqtx_options options = options_by(PQTX_DOUBT_TOKEN);
    for (int n = 1; n <= 3; n++)
        assert_cost(&options, (struct work){0, n, false}, PQTX_OK, n + 1, n + 4, 1);
}
END_TEST

START_TEST(an_event_costs_a_round_trip_two_statements_and_a_row)
{
    pqtx_options options = options_by(PQTX_DOUBT_REPORT);
    for (int n = 1; n <= 3; n++) {
        char id[16];
        snprintf(id, sizeof id, "event %d", n);
        options.event_id = id;
        assert_cost(&options, (struct work){0, n, false}, PQTX_OK, n + 2, n + 5, 1);
        assert_cost(&options, (struct work){0, n, false}, PQTX_DONE_BEFORE, 2, 5, 0);
    }
}
END_TEST

START_TEST(an_answer_costs_a_statement)
{
    pqtx_options options = options_by(PQTX_DOUBT_REPORT);
    options.event_id = "event";
    assert_cost(&options, (struct work){0, 1, true}, PQTX_OK, 3, 7, 1);
    assert_cost(&options, (struct work){0, 1, true}, PQTX_DONE_BEFORE, 2, 5, 0);
}
END_TEST

START_TEST(a_deadline_on_the_server_costs_statements_and_no_round_trip)
{
    pqtx_options options = options_by(PQTX_DOUBT_REPORT);
    int limits = PQserverVersion(own) >= 170000 ? 2 : 1;
    options.flags = PQTX_SERVER_DEADLINE;
    assert_cost(&options, (struct work){0, 1, false}, PQTX_OK, 2, 4 + limits, 0);
}
END_TEST

static Suite *suite(void)
{
    Suite *suite = suite_create("cost");
    TCase *tests = tcase_create("cost");
    tcase_add_unchecked_fixture(tests, make, NULL);
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, a_report_costs_nothing);
    tcase_add_test(tests, an_xid_costs_a_statement_until_there_is_one);
    tcase_add_test(tests, a_token_costs_a_statement_and_a_row);
    tcase_add_test(tests, an_event_costs_a_round_trip_two_statements_and_a_row);
    tcase_add_test(tests, an_answer_costs_a_statement);
    tcase_add_test(tests, a_deadline_on_the_server_costs_statements_and_no_round_trip);
    suite_add_tcase(suite, tests);
    return suite;
}

int main(void)
{
    return run_suite(suite());
}
