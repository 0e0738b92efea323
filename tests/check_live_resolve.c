/* check_live_resolve.c: what became of a COMMIT whose answer was lost, found out at once or later,
 * here or in another process. */
#define _DEFAULT_SOURCE
#include "attempt.h"
#include "support.h"
#include "support_doubt.h"
#include "support_pooler.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *program; /* this one */
static PGconn *monitor, *holder;
static pqtx_pool *pool;

static void make(void)
{
    make_doubt("pqtx_resolve");
    PGconn *session = open_session();
    sql(session, "CREATE FUNCTION pass() RETURNS trigger LANGUAGE plpgsql AS"
                 " $$ BEGIN PERFORM " PASS_GATE "; RETURN NEW; END $$");
    PQfinish(session);
}

static void set_up(void)
{
    monitor = open_doubt();
    holder = open_session();
    sql(monitor, "DROP TRIGGER IF EXISTS pass ON mark; DROP TRIGGER IF EXISTS pass ON pqtx_once");
    pool = open_pool(2);
}

static void tear_down(void)
{
    pqtx_pool_close(pool);
    PQfinish(holder);
    PQfinish(monitor);
}

/* COMMIT waits at the gate with everything written: the row, the token. */
static void put_gate_into_commit(void)
{
    sql(monitor, "CREATE CONSTRAINT TRIGGER pass AFTER INSERT ON mark DEFERRABLE INITIALLY DEFERRED"
                 " FOR EACH ROW EXECUTE FUNCTION pass()");
    close_gate(holder);
}

/* The token waits at the gate, before it is in the table. */
static void put_gate_before_token(void)
{
    sql(monitor, "CREATE TRIGGER pass BEFORE INSERT ON pqtx_once FOR EACH ROW"
                 " WHEN (NOT NEW.void) EXECUTE FUNCTION pass()");
    close_gate(holder);
}

static int first_blocked(void)
{
    return wait_for_blocked(monitor, PQbackendPID(holder));
}

static bool is_marked(int64_t id)
{
    struct trial trial = {.id = id};
    return rows_of(monitor, &trial, true) == 1;
}

static void assert_resolved(const pqtx_ticket *ticket, pqtx_outcome expected)
{
    pqtx_outcome outcome;
    pqtx_error error = PQTX_ERROR;
    assert_status(pqtx_resolve(pool, ticket, 0, &outcome, &error), PQTX_OK, &error);
    ck_assert_int_eq(outcome, expected);
}

static void assert_in_doubt(const pqtx_ticket *ticket, int64_t timeout_ms, const char *why)
{
    pqtx_outcome outcome = PQTX_OUTCOME_OPEN;
    pqtx_error error = PQTX_ERROR;
    assert_status(pqtx_resolve(pool, ticket, timeout_ms, &outcome, &error), PQTX_IN_DOUBT, &error);
    ck_assert_int_eq(outcome, PQTX_OUTCOME_IN_DOUBT);
    ck_assert_int_eq(error.status, PQTX_IN_DOUBT);
    ck_assert_msg(strstr(error.message, why), "%s", error.message);
}

/* ---- Later: every test for xid and token */

enum { KINDS_FROM = PQTX_DOUBT_XID, KINDS_TO = PQTX_DOUBT_TOKEN + 1 };

START_TEST(what_was_committed_is_found_out_as_often_as_one_asks)
{
    pqtx_ticket ticket = leave_in_doubt((pqtx_doubt)_i, 1, false);
    for (int times = 0; times < 3; times++)
        assert_resolved(&ticket, PQTX_OUTCOME_COMMITTED);
    ck_assert(is_marked(1));
}
END_TEST

START_TEST(what_was_not_committed_is_found_out_as_often_as_one_asks)
{
    pqtx_ticket ticket = leave_in_doubt((pqtx_doubt)_i, 1, true);
    for (int times = 0; times < 3; times++)
        assert_resolved(&ticket, PQTX_OUTCOME_ROLLED_BACK);
    ck_assert(!is_marked(1));
}
END_TEST

/* The whole life of the other process: its exit status tells the outcome. */
static int resolve_and_exit(const char *text)
{
    pqtx_pool_options options = PQTX_POOL_OPTIONS;
    pqtx_ticket ticket = PQTX_TICKET;
    pqtx_outcome outcome = PQTX_OUTCOME_OPEN;
    pqtx_pool *own;
    options.conninfo = getenv(is_pooled() ? "PQTX_TEST_POOLER" : "PQTX_TEST_CONNINFO");
    if (pqtx_ticket_parse(text, &ticket) != PQTX_OK || pqtx_pool_open(&options, &own, NULL))
        return 1;
    pqtx_status status = pqtx_resolve(own, &ticket, 0, &outcome, NULL);
    pqtx_pool_close(own);
    return status == PQTX_OK ? 10 + (int)outcome : 2;
}

static void assert_resolved_elsewhere(const pqtx_ticket *ticket, pqtx_outcome expected)
{
    int status;
    char text[PQTX_TICKET_TEXT];
    ck_assert_int_eq(pqtx_ticket_format(ticket, text, sizeof text), PQTX_OK);
    pid_t child = fork();
    ck_assert(child >= 0);
    if (child == 0) {
        execl(program, program, "resolve", text, (char *)NULL);
        _exit(127);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 10 + (int)expected,
                  "the other process: status %d for %s", status, text);
}

START_TEST(another_process_finds_out_from_the_text)
{
    pqtx_ticket committed = leave_in_doubt((pqtx_doubt)_i, 1, false);
    pqtx_ticket lost = leave_in_doubt((pqtx_doubt)_i, 2, true);
    assert_resolved_elsewhere(&committed, PQTX_OUTCOME_COMMITTED);
    assert_resolved_elsewhere(&lost, PQTX_OUTCOME_ROLLED_BACK);
    assert_resolved(&lost, PQTX_OUTCOME_ROLLED_BACK);
    assert_resolved(&committed, PQTX_OUTCOME_COMMITTED);
    ck_assert(is_marked(1) && !is_marked(2));
}
END_TEST

/* ---- While it is still under way */

struct question {
    pqtx_ticket ticket;
    pqtx_status status;
    pqtx_outcome outcome;
    pqtx_error error;
};

static void *ask_resolver(void *arg)
{
    struct question *question = arg;
    question->error = (pqtx_error)PQTX_ERROR;
    question->status =
        pqtx_resolve(pool, &question->ticket, 60000, &question->outcome, &question->error);
    return NULL;
}

START_TEST(the_resolver_waits_while_the_transaction_is_under_way)
{
    pthread_t thread;
    put_gate_into_commit();
    struct question question = {.ticket = leave_in_doubt((pqtx_doubt)_i, 1, false)};
    int original = first_blocked();
    ck_assert(pthread_create(&thread, NULL, ask_resolver, &question) == 0);
    if (_i == PQTX_DOUBT_TOKEN)
        wait_for_blocked(monitor, original);
    else
        wait_until_true(monitor, "SELECT count(*) > 0 FROM pg_stat_activity WHERE state = 'idle'"
                                 " AND application_name = current_setting('application_name')"
                                 " AND query LIKE '%pg_xact_status%' AND pid <> pg_backend_pid()");
    open_gate(holder);
    pthread_join(thread, NULL);
    assert_status(question.status, PQTX_OK, &question.error);
    ck_assert_int_eq(question.outcome, PQTX_OUTCOME_COMMITTED);
    ck_assert(is_marked(1));
}
END_TEST

START_TEST(in_doubt_is_the_answer_when_the_time_is_up)
{
    put_gate_into_commit();
    pqtx_ticket ticket = leave_in_doubt((pqtx_doubt)_i, 1, false);
    first_blocked();
    for (int64_t ms = 1; ms <= 1000; ms *= 10)
        assert_in_doubt(&ticket, ms, "");
    open_gate(holder);
    assert_resolved(&ticket, PQTX_OUTCOME_COMMITTED);
    ck_assert(is_marked(1));
}
END_TEST

/* The answer is given while the original still stands in the server, and holds. */
START_TEST(a_void_token_stops_the_original_for_good)
{
    put_gate_before_token();
    pqtx_ticket ticket = leave_in_doubt(PQTX_DOUBT_TOKEN, 1, false);
    char gone[96];
    snprintf(gone, sizeof gone, "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = %d",
             first_blocked());
    assert_resolved(&ticket, PQTX_OUTCOME_ROLLED_BACK);
    open_gate(holder);
    wait_until_true(monitor, gone);
    ck_assert(!is_marked(1));
    assert_resolved(&ticket, PQTX_OUTCOME_ROLLED_BACK);
}
END_TEST

START_TEST(the_original_dies_of_the_void_token)
{
    pqtx_ticket ticket = PQTX_TICKET;
    pqtx_error error = PQTX_ERROR;
    struct trial trial;
    trial_init(&trial, pool, PQTX_DOUBT_TOKEN);
    trial.options.isolation = (pqtx_isolation)_i;
    pqtx_tx *tx = pqtx_new(pool, trial_options(&trial));
    ck_assert_int_eq(pqtx_attempt(tx), 1);
    pqtx_exec(tx, "INSERT INTO mark VALUES ($1)", PQTX_ARGS(PQTX_INT(trial.id)), NULL);
    ck_assert_int_eq(pqtx__proof_ticket(&tx->proof, &ticket), PQTX_OK);
    assert_resolved(&ticket, PQTX_OUTCOME_ROLLED_BACK);
    pqtx_status status = pqtx_commit(tx);
    pqtx_get_error(tx, &error);
    assert_status(status, PQTX_DUPLICATE, &error);
    ck_assert_str_eq(error.sqlstate, "23505");
    ck_assert_str_eq(error.constraint_name, "pqtx_once_pkey");
    ck_assert_int_eq(pqtx_attempt(tx), 0);
    pqtx_free(tx);
    ck_assert(!is_marked(trial.id));
}
END_TEST

static void *run_trial(void *trial)
{
    trial_run(trial);
    return NULL;
}

/* The run's own resolver knows whose backend it is, and need not wait. */
START_TEST(the_run_ends_its_orphan_and_goes_again)
{
    pthread_t thread;
    struct trial trial;
    put_gate_into_commit();
    trial_init(&trial, pool, (pqtx_doubt)_i);
    trial.options.lock_timeout_ms = PQTX_NO_TIMEOUT;
    trial.point = PQTX_POINT_COMMIT_SENT;
    trial.last = 1;
    ck_assert(pthread_create(&thread, NULL, run_trial, &trial) == 0);
    while (atomic_load(&trial.commit_sent) < 2)
        poll(NULL, 0, 1); /* only between questions; Check's time limit ends it */
    first_blocked();
    open_gate(holder);
    pthread_join(thread, NULL);
    assert_trial(&trial, PQTX_OK);
    ck_assert_int_eq(trial.runs, 2);
    ck_assert_int_eq(trial.rolled_back, 1);
    ck_assert_int_eq(trial.committed, 1);
    ck_assert_uint_eq(trial.flags, PQTX_RESOLVED);
    ck_assert_int_eq(rows_of(monitor, &trial, true), 1);
}
END_TEST

/* ---- Where it cannot be known */

START_TEST(without_its_table_a_token_stays_in_doubt)
{
    pqtx_ticket ticket = leave_in_doubt(PQTX_DOUBT_TOKEN, 1, false);
    ck_assert(is_marked(1));
    sql(monitor, "ALTER TABLE pqtx_once RENAME TO pqtx_away");
    assert_in_doubt(&ticket, 0, "does not exist");
    sql(monitor, "ALTER TABLE pqtx_away RENAME TO pqtx_once");
    pqtx_ticket elsewhere = ticket;
    strcpy(elsewhere.schema, "pqtx_nowhere");
    assert_in_doubt(&elsewhere, 0, "does not exist");
    assert_resolved(&ticket, PQTX_OUTCOME_COMMITTED);
}
END_TEST

START_TEST(an_xid_of_elsewhere_proves_nothing)
{
    pqtx_ticket ticket = leave_in_doubt(PQTX_DOUBT_XID, 1, false), other = ticket;
    other.timeline++;
    assert_in_doubt(&other, 0, "timeline");
    other = ticket;
    other.system_identifier ^= 1;
    assert_in_doubt(&other, 0, "timeline");
    other = ticket;
    other.xid += 1000000; /* not begun yet */
    assert_in_doubt(&other, 0, "future");
    assert_resolved(&ticket, PQTX_OUTCOME_COMMITTED);
}
END_TEST

START_TEST(a_server_that_cannot_be_reached_leaves_doubt)
{
    pqtx_pool_options options = PQTX_POOL_OPTIONS;
    pqtx_ticket ticket = leave_in_doubt((pqtx_doubt)_i, 1, false);
    options.conninfo = "host=/nonexistent";
    options.flags = PQTX_POOL_LAZY;
    pqtx_pool_close(pool);
    ck_assert_int_eq(pqtx_pool_open(&options, &pool, NULL), PQTX_OK);
    assert_in_doubt(&ticket, 100, "cannot connect");
}
END_TEST

START_TEST(what_is_no_ticket_is_misuse)
{
    pqtx_ticket none = PQTX_TICKET, good = PQTX_TICKET, ticket;
    pqtx_outcome outcome = PQTX_OUTCOME_OPEN;
    pqtx_error error = PQTX_ERROR;
    ck_assert_int_eq(pqtx_ticket_parse("pqtx1 xid 1 1 700 0", &good), PQTX_OK);
    ck_assert_int_eq(pqtx_resolve(NULL, &good, 0, &outcome, &error), PQTX_MISUSE);
    ck_assert_int_eq(outcome, PQTX_OUTCOME_IN_DOUBT);
    ck_assert_int_eq(pqtx_resolve(pool, NULL, 0, &outcome, &error), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_resolve(pool, &good, 0, NULL, &error), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_resolve(pool, &good, -1, &outcome, &error), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_resolve(pool, &none, 0, &outcome, &error), PQTX_MISUSE);
    none.by = PQTX_DOUBT_REPORT;
    ck_assert_int_eq(pqtx_resolve(pool, &none, 0, &outcome, &error), PQTX_MISUSE);
    ticket = good;
    ticket.size = 0;
    ck_assert_int_eq(pqtx_resolve(pool, &ticket, 0, &outcome, &error), PQTX_MISUSE);
    ticket = (pqtx_ticket)PQTX_TICKET;
    ticket.by = PQTX_DOUBT_TOKEN;
    strcpy(ticket.schema, "a\"b");
    ck_assert_int_eq(pqtx_resolve(pool, &ticket, 0, &outcome, &error), PQTX_MISUSE);
    ck_assert_int_eq(error.status, PQTX_MISUSE);
    ck_assert_int_eq(outcome, PQTX_OUTCOME_IN_DOUBT);
}
END_TEST

/* ---- In the run */

START_TEST(there_is_a_ticket_only_after_doubt)
{
    pqtx_ticket ticket = PQTX_TICKET;
    struct trial trial;
    trial_init(&trial, pool, (pqtx_doubt)_i);
    trial_run(&trial);
    ck_assert_int_eq(trial.ticket.by, PQTX_DOUBT_DEFAULT);
    trial.point = PQTX_POINT_COMMIT_ANSWERED;
    trial.last = 1;
    pqtx_tx *tx = pqtx_new(pool, trial_options(&trial));
    ck_assert_int_eq(pqtx_attempt(tx), 1);
    pqtx_exec(tx, "INSERT INTO mark VALUES (1000)", PQTX_NO_ARGS, NULL);
    ck_assert_int_eq(pqtx_get_ticket(tx, &ticket), PQTX_NOT_FOUND);
    assert_status(pqtx_commit(tx), PQTX_OK, NULL);
    ck_assert_int_eq(pqtx_get_ticket(tx, &ticket), PQTX_OK);
    ck_assert_int_eq(ticket.by, _i);
    ck_assert_int_eq(pqtx_get_ticket(NULL, &ticket), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_get_ticket(tx, NULL), PQTX_MISUSE);
    pqtx_free(tx);
    assert_resolved(&ticket, PQTX_OUTCOME_COMMITTED);
}
END_TEST

START_TEST(a_ticket_of_a_run_that_only_reports_holds_nothing)
{
    char text[PQTX_TICKET_TEXT];
    struct trial trial;
    trial_init(&trial, pool, PQTX_DOUBT_REPORT);
    trial.point = PQTX_POINT_COMMIT_ANSWERED;
    trial.last = 1;
    trial_run(&trial);
    assert_trial(&trial, PQTX_IN_DOUBT);
    ck_assert_int_eq(trial.ticket.by, PQTX_DOUBT_REPORT);
    ck_assert_int_eq(pqtx_ticket_format(&trial.ticket, text, sizeof text), PQTX_MISUSE);
}
END_TEST

START_TEST(a_run_without_the_table_fails_before_there_is_doubt)
{
    struct trial trial;
    trial_init(&trial, pool, PQTX_DOUBT_TOKEN);
    trial.options.once_schema = "pqtx_nowhere";
    trial_run(&trial);
    assert_trial(&trial, PQTX_BAD_STATEMENT);
    ck_assert_int_eq(trial.outcome, PQTX_OUTCOME_ROLLED_BACK);
    ck_assert_int_eq(trial.runs, 1);
    ck_assert_int_eq(rows_of(monitor, &trial, true), 0);
}
END_TEST

/* What has no xid may still have notified, or have written elsewhere. */
START_TEST(without_a_change_a_lost_answer_is_in_doubt_and_says_so)
{
    struct trial trial;
    trial_init(&trial, pool, PQTX_DOUBT_XID);
    trial.id = 0;
    trial.point = PQTX_POINT_COMMIT_ANSWERED;
    trial.last = 1;
    trial_run(&trial);
    assert_trial(&trial, PQTX_IN_DOUBT);
    ck_assert_int_eq(trial.runs, 1);
    ck_assert_uint_eq(trial.flags, PQTX_NO_CHANGE);
    trial.options.access = PQTX_ACCESS_READ_ONLY;
    trial_run(&trial);
    assert_trial(&trial, PQTX_OK);
    ck_assert_int_eq(trial.runs, 2);
    ck_assert_uint_eq(trial.flags, PQTX_NO_CHANGE);
}
END_TEST

/* Reads, with the question for the xid; then writes without it: by DO, or in one flight with
 * COMMIT. */
static pqtx_status read_then_write(pqtx_tx *tx, void *arg)
{
    bool pipelined = *(const int *)arg;
    if (pipelined)
        pqtx_pipeline(tx);
    pqtx_exec(tx, "SELECT 1", PQTX_NO_ARGS, NULL);
    pqtx_flush(tx);
    if (pipelined)
        return pqtx_exec(tx, "INSERT INTO mark VALUES (1)", PQTX_NO_ARGS, NULL);
    return pqtx_exec(tx, "DO $$ BEGIN INSERT INTO mark VALUES (1); END $$", PQTX_NO_ARGS, NULL);
}

START_TEST(a_write_that_was_not_asked_about_is_not_called_no_change)
{
    struct trial trial;
    trial_init(&trial, pool, PQTX_DOUBT_XID);
    trial.point = PQTX_POINT_COMMIT_ANSWERED;
    trial.last = 1;
    pqtx_tx *tx = pqtx_new(pool, trial_options(&trial));
    while (pqtx_attempt(tx)) {
        read_then_write(tx, &_i);
        pqtx_commit(tx);
    }
    ck_assert_int_eq(pqtx_result(tx), PQTX_IN_DOUBT);
    ck_assert_uint_eq(pqtx_get_flags(tx), 0);
    pqtx_free(tx);
    ck_assert_int_eq(ask_int(monitor, "SELECT count(*) FROM mark"), 1);
}
END_TEST

/* A transaction that cannot write has no token to write, and needs none. */
START_TEST(a_read_only_transaction_can_be_resolved_by_anything)
{
    struct trial trial;
    trial_init(&trial, pool, (pqtx_doubt)_i);
    trial.id = 0;
    trial.options.access = PQTX_ACCESS_READ_ONLY;
    trial_run(&trial);
    assert_trial(&trial, PQTX_OK);
    trial.point = PQTX_POINT_COMMIT_ANSWERED;
    trial.last = 1;
    trial_run(&trial);
    assert_trial(&trial, PQTX_OK);
}
END_TEST

/* ---- What the session's defaults and rights are does not matter */

static void lose_and_find(const char *more)
{
    char conninfo[2200];
    pqtx_pool_options options = PQTX_POOL_OPTIONS;
    pqtx_error error = PQTX_ERROR;
    pqtx_pool *other;
    snprintf(conninfo, sizeof conninfo, "%s %s", pool_conninfo(), more);
    options.conninfo = conninfo;
    assert_status(pqtx_pool_open(&options, &other, &error), PQTX_OK, &error);
    for (int by = KINDS_FROM; by < KINDS_TO; by++) {
        for (int answered = 0; answered < 2; answered++) {
            struct trial trial;
            trial_init(&trial, other, (pqtx_doubt)by);
            trial.options.access = PQTX_ACCESS_READ_WRITE;
            trial.point = answered ? PQTX_POINT_COMMIT_ANSWERED : PQTX_POINT_COMMIT_BEGUN;
            trial.last = 1;
            trial_run(&trial);
            assert_trial(&trial, PQTX_OK);
            ck_assert_int_eq(trial.runs, answered ? 1 : 2);
            ck_assert_int_eq(rows_of(monitor, &trial, true), 1);
        }
    }
    pqtx_pool_close(other);
}

static void make_role(void)
{
    sql(monitor, "DO $$ BEGIN CREATE ROLE pqtx_resolve_plain LOGIN;"
                 " EXCEPTION WHEN duplicate_object THEN NULL; END $$;"
                 "GRANT USAGE ON SCHEMA pqtx_resolve TO pqtx_resolve_plain;"
                 "GRANT SELECT, INSERT ON mark, pqtx_once TO pqtx_resolve_plain;"
                 "GRANT UPDATE, DELETE ON pqtx_once TO pqtx_resolve_plain");
}

static void drop_role(void)
{
    sql(monitor, "DROP OWNED BY pqtx_resolve_plain; DROP ROLE pqtx_resolve_plain");
    if (is_pooled())
        pooler_do("RECONNECT"); /* what it keeps is that role's */
}

/* Settings of the role, since a pooler takes none from its clients. */
START_TEST(sessions_that_read_only_and_serializable_by_default_resolve)
{
    make_role();
    sql(monitor, "ALTER ROLE pqtx_resolve_plain SET default_transaction_read_only = on;"
                 "ALTER ROLE pqtx_resolve_plain SET default_transaction_deferrable = on;"
                 "ALTER ROLE pqtx_resolve_plain SET default_transaction_isolation = serializable");
    lose_and_find("user=pqtx_resolve_plain");
    drop_role();
}
END_TEST

START_TEST(a_role_without_privileges_but_on_the_tables_resolves)
{
    make_role();
    lose_and_find("user=pqtx_resolve_plain");
    drop_role();
}
END_TEST

static Suite *suite(void)
{
    Suite *suite = suite_create("resolve");
    TCase *tests = tcase_create("resolve");
    tcase_add_unchecked_fixture(tests, make, NULL);
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_set_timeout(tests, 60);
#define ADD_FOR_EACH_KIND(test) tcase_add_loop_test(tests, test, KINDS_FROM, KINDS_TO)
    ADD_FOR_EACH_KIND(what_was_committed_is_found_out_as_often_as_one_asks);
    ADD_FOR_EACH_KIND(what_was_not_committed_is_found_out_as_often_as_one_asks);
    ADD_FOR_EACH_KIND(another_process_finds_out_from_the_text);
    ADD_FOR_EACH_KIND(the_resolver_waits_while_the_transaction_is_under_way);
    ADD_FOR_EACH_KIND(in_doubt_is_the_answer_when_the_time_is_up);
    tcase_add_test(tests, a_void_token_stops_the_original_for_good);
    tcase_add_loop_test(tests, the_original_dies_of_the_void_token, PQTX_ISO_READ_COMMITTED,
                        PQTX_ISO_SERIALIZABLE + 1);
    add_direct_loop_test(tests, the_run_ends_its_orphan_and_goes_again, KINDS_FROM, KINDS_TO,
                         INVENTED_PID);
    tcase_add_test(tests, without_its_table_a_token_stays_in_doubt);
    tcase_add_test(tests, an_xid_of_elsewhere_proves_nothing);
    ADD_FOR_EACH_KIND(a_server_that_cannot_be_reached_leaves_doubt);
    tcase_add_test(tests, what_is_no_ticket_is_misuse);
    ADD_FOR_EACH_KIND(there_is_a_ticket_only_after_doubt);
    tcase_add_test(tests, a_ticket_of_a_run_that_only_reports_holds_nothing);
    tcase_add_test(tests, a_run_without_the_table_fails_before_there_is_doubt);
    tcase_add_test(tests, without_a_change_a_lost_answer_is_in_doubt_and_says_so);
    tcase_add_loop_test(tests, a_write_that_was_not_asked_about_is_not_called_no_change, 0, 2);
    ADD_FOR_EACH_KIND(a_read_only_transaction_can_be_resolved_by_anything);
    tcase_add_test(tests, sessions_that_read_only_and_serializable_by_default_resolve);
    tcase_add_test(tests, a_role_without_privileges_but_on_the_tables_resolves);
    suite_add_tcase(suite, tests);
    return suite;
}

int main(int argc, char **argv)
{
    program = argv[0];
    if (argc == 3 && strcmp(argv[1], "resolve") == 0)
        return resolve_and_exit(argv[2]);
    return run_suite(suite());
}
