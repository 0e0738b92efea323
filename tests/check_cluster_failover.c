/* check_cluster_failover.c: the primary is lost and the standby takes its place: what was said to
 * be committed is there, nothing is there twice, and no number of the old history is believed. */
#define _DEFAULT_SOURCE
#include "support.h"
#include "support_clock.h"
#include "support_cluster.h"
#include "support_tx.h"

#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

static const char *program;
static PGconn *primary, *standby;
static char first[] = "first", second[] = "second"; /* ids of rows */

static void renew(void)
{
    cluster_do("renew");
}

static void set_up(void)
{
    primary = cluster_session(primary_conninfo());
    standby = cluster_session(standby_conninfo());
    sql(primary, "DROP TABLE IF EXISTS mark, counter; CREATE TABLE mark (id text);"
                 "CREATE TABLE counter (value bigint); INSERT INTO counter VALUES (0)");
    sql(primary, pqtx_once_ddl());
    cluster_catch_up(primary, standby);
}

static void tear_down(void)
{
    PQfinish(primary);
    PQfinish(standby);
}

static int64_t count_marks(PGconn *session, const char *id)
{
    char query[96];
    snprintf(query, sizeof query, "SELECT count(*) FROM mark WHERE id = '%s'", id);
    return ask_int(session, query);
}

/* ---- the pool follows */

static pqtx_status write_mark(pqtx_tx *tx, void *id)
{
    return pqtx_exec(tx, "INSERT INTO mark VALUES ($1)", PQTX_ARGS(PQTX_TEXT(id)), NULL);
}

START_TEST(the_pool_finds_the_new_primary)
{
    pqtx_pool *pool = open_pool(2);
    pqtx_error error = PQTX_ERROR;
    assert_status(pqtx_run(pool, NULL, write_mark, first, &error), PQTX_OK, &error);
    cluster_catch_up(primary, standby);
    cluster_do("crash primary");
    cluster_do("promote");
    assert_status(pqtx_run(pool, NULL, write_mark, second, &error), PQTX_OK, &error);
    ck_assert_int_eq(count_marks(standby, first), 1);
    ck_assert_int_eq(count_marks(standby, second), 1);
    pqtx_pool_close(pool);
}
END_TEST

/* The first attempt is cut short by the whole failover. */
static pqtx_status write_mark_in_a_bad_hour(pqtx_tx *tx, void *id)
{
    pqtx_status status = write_mark(tx, id);
    if (pqtx_attempts(tx) == 1) {
        cluster_do("crash primary");
        cluster_do("promote");
    }
    return status;
}

START_TEST(a_body_whose_primary_is_lost_runs_again_on_the_new_one)
{
    pqtx_pool *pool = open_pool(2);
    pqtx_error error = PQTX_ERROR;
    assert_status(pqtx_run(pool, NULL, write_mark_in_a_bad_hour, first, &error), PQTX_OK, &error);
    ck_assert_int_eq(count_marks(standby, first), 1);
    ck_assert_uint_eq(stats_of(pool).retries_connection, 1);
    pqtx_pool_close(pool);
}
END_TEST

/* ---- under load */

enum { WORKERS = 4, EVENTS_MAX = 20000, STEADY = 10 };

struct load {
    pqtx_pool *pool;
    atomic_bool stop;
    struct worker {
        struct load *all;
        pthread_t thread;
        int number;
        atomic_int count; /* events that have ended */
        int done;         /* of them, those that were said to be applied */
        pqtx_status status;
        pqtx_error error;
    } worker[WORKERS];
};

static pqtx_status apply(pqtx_tx *tx, void *id)
{
    pqtx_update_one(tx, "UPDATE counter SET value = value + 1", PQTX_NO_ARGS);
    return write_mark(tx, id);
}

#define APPLY "WITH up AS (UPDATE counter SET value = value + 1) INSERT INTO mark VALUES ($1)"

static pqtx_status apply_in_one_flight(pqtx_pool *pool, const pqtx_options *options, char *id,
                                       pqtx_error *error)
{
    return pqtx_run_one(pool, options, APPLY, PQTX_ARGS(PQTX_TEXT(id)), 1, NULL, error);
}

/* The first two round trip by round trip, the others in one flight; one of each pair with a token
 * besides. */
static void *apply_events(void *arg)
{
    struct worker *worker = arg;
    for (int i = 0; i < EVENTS_MAX && !atomic_load(&worker->all->stop); i++) {
        char id[32];
        snprintf(id, sizeof id, "%d.%d", worker->number, i);
        pqtx_options options = PQTX_OPTIONS;
        options.event_id = id;
        options.max_attempts = 1000;
        options.deadline_ms = 60000;
        options.in_doubt = worker->number % 2 ? PQTX_DOUBT_TOKEN : PQTX_DOUBT_REPORT;
        pqtx_error error = PQTX_ERROR;
        pqtx_status status = worker->number < 2
                                 ? pqtx_run(worker->all->pool, &options, apply, id, &error)
                                 : apply_in_one_flight(worker->all->pool, &options, id, &error);
        worker->done += status == PQTX_OK;
        if (status != PQTX_OK) {
            worker->status = status;
            worker->error = error;
        }
        atomic_store(&worker->count, i + 1);
    }
    return NULL;
}

static struct load *start_load(pqtx_pool *pool)
{
    struct load *load = calloc(1, sizeof *load);
    ck_assert_ptr_nonnull(load);
    load->pool = pool;
    for (int i = 0; i < WORKERS; i++) {
        struct worker *worker = &load->worker[i];
        worker->all = load;
        worker->number = i;
        ck_assert(pthread_create(&worker->thread, NULL, apply_events, worker) == 0);
    }
    return load;
}

/* Until each worker has ended some more events. */
static void wait_for_progress(struct load *load)
{
    for (int i = 0; i < WORKERS; i++) {
        int wanted = atomic_load(&load->worker[i].count) + STEADY;
        while (atomic_load(&load->worker[i].count) < wanted)
            poll(NULL, 0, 1); /* only between questions; Check's time limit ends it */
    }
}

/* Ends it; returns how many events were said to be applied.  The test fails if one ended in any
 * other way. */
static int64_t end_load(struct load *load)
{
    int64_t done = 0;
    atomic_store(&load->stop, true);
    for (int i = 0; i < WORKERS; i++) {
        pthread_join(load->worker[i].thread, NULL);
        assert_status(load->worker[i].status, PQTX_OK, &load->worker[i].error);
        done += load->worker[i].done;
    }
    free(load);
    return done;
}

START_TEST(under_load_each_event_is_applied_once_through_a_failover)
{
    static const char *const orders[][2] = {
        {"crash primary", "promote"},
        {"stop primary", "promote"},
        {"promote", "crash primary"}, /* for a while there are two that take writes */
    };
    cluster_confirm(primary);
    pqtx_pool *pool = open_pool(WORKERS);
    struct load *load = start_load(pool);
    wait_for_progress(load);
    cluster_do(orders[_i][0]);
    cluster_do(orders[_i][1]);
    wait_for_progress(load);
    int64_t done = end_load(load);
    ck_assert_int_eq(ask_int(standby, "SELECT value FROM counter"), done);
    ck_assert_int_eq(ask_int(standby, "SELECT count(*) FROM mark"), done);
    ck_assert_int_eq(ask_int(standby, "SELECT count(DISTINCT id) FROM mark"), done);
    ck_assert_uint_gt(stats_of(pool).retries_connection, 0);
    pqtx_pool_close(pool);
}
END_TEST

/* ---- in doubt, and then a failover */

/* What becomes of the cluster between a COMMIT whose answer is thrown away and the question what
 * became of the transaction. */
struct fate {
    pqtx_point point;
    void (*befall)(uint64_t xid);
    uint64_t xid; /* of the first attempt */
};

static pqtx_fault throw_away(pqtx_point point, uint32_t attempt, void *arg)
{
    const struct fate *fate = arg;
    if (point != fate->point || attempt != 1)
        return PQTX_FAULT_NONE;
    fate->befall(fate->xid);
    return PQTX_FAULT_CUT;
}

static pqtx_status write_and_note_xid(pqtx_tx *tx, void *arg)
{
    struct fate *fate = arg;
    const PGresult *result;
    int64_t xid;
    write_mark(tx, first);
    pqtx_status status =
        pqtx_exec(tx, "SELECT pg_current_xact_id()::text::bigint", PQTX_NO_ARGS, &result);
    if (status == PQTX_OK)
        status = pqtx_get_int(result, 0, 0, &xid);
    if (status == PQTX_OK && pqtx_attempts(tx) == 1)
        fate->xid = (uint64_t)xid;
    return status;
}

static const char *status_of(PGconn *session, uint64_t xid)
{
    char query[96];
    snprintf(query, sizeof query, "SELECT pg_xact_status('%llu')", (unsigned long long)xid);
    return ask(session, query);
}

/* Others commit until one of them has got the xid. */
static void use_up_xids(PGconn *session, uint64_t xid)
{
    uint64_t next = 0;
    while (next < xid) {
        uint64_t now = (uint64_t)ask_int(session, "SELECT pg_current_xact_id()::text::bigint");
        ck_assert_msg(next != 0 || now <= xid, "the xid was passed before");
        next = now;
    }
    ck_assert_str_eq(status_of(session, xid), "committed");
}

static void fail_over(uint64_t xid)
{
    (void)xid;
    ck_assert_int_eq(count_marks(primary, first), 1);
    cluster_do("crash primary");
    cluster_do("promote");
    ck_assert_int_eq(count_marks(standby, first), 0);
}

/* The standby is behind by our transaction, takes over, and gives its xid to another. */
static void fail_over_behind(uint64_t xid)
{
    ck_assert_str_eq(status_of(primary, xid), "committed");
    fail_over(xid);
    use_up_xids(standby, xid);
}

static void fail_over_in_step(uint64_t xid)
{
    (void)xid;
    cluster_catch_up(primary, standby);
    cluster_do("crash primary");
    cluster_do("promote");
    ck_assert_int_eq(count_marks(standby, first), 1);
}

static void restart(uint64_t xid)
{
    (void)xid;
    cluster_do("stop primary");
    cluster_do("start primary");
}

static void crash(uint64_t xid)
{
    (void)xid;
    cluster_do("crash primary");
    cluster_do("start primary");
    PQreset(primary);
}

/* What is not written out yet is lost in a crash, even that the xid was in use. */
static void crash_and_use_up_xids(uint64_t xid)
{
    crash(xid);
    use_up_xids(primary, xid);
}

/* One run that meets this fate.  `options` says how doubt is settled. */
struct trial {
    struct fate fate;
    pqtx_options options;
    pqtx_ticket ticket;
    pqtx_outcome outcome;
    uint32_t flags;
    uint32_t attempts;
};

static void note_end(const pqtx_event *event, void *arg)
{
    struct trial *trial = arg;
    if (event->type != PQTX_EVENT_END)
        return;
    trial->outcome = event->outcome;
    trial->flags = event->flags;
    trial->attempts = event->attempt;
}

static struct trial *new_trial(void (*befall)(uint64_t xid), pqtx_doubt in_doubt)
{
    struct trial *trial = calloc(1, sizeof *trial);
    ck_assert_ptr_nonnull(trial);
    trial->fate.point = PQTX_POINT_COMMIT_ANSWERED;
    trial->fate.befall = befall;
    trial->ticket = (pqtx_ticket)PQTX_TICKET;
    trial->options = (pqtx_options)PQTX_OPTIONS;
    trial->options.in_doubt = in_doubt;
    trial->options.fault = throw_away;
    trial->options.fault_arg = &trial->fate;
    trial->options.ticket = &trial->ticket;
    trial->options.observer = note_end;
    trial->options.observer_arg = trial;
    return trial;
}

static pqtx_status write_mark_once(pqtx_tx *tx, void *arg)
{
    (void)arg;
    return write_mark(tx, first);
}

/* Which xid it was is not known before COMMIT is answered. */
static void run_trial_in_one_flight(struct trial *trial, pqtx_isolation isolation,
                                    pqtx_status expected)
{
    pqtx_pool *pool = open_pool(2);
    pqtx_error error = PQTX_ERROR;
    trial->options.flags |= PQTX_PIPELINE;
    trial->options.isolation = isolation;
    pqtx_status status = pqtx_run(pool, &trial->options, write_mark_once, NULL, &error);
    assert_status(status, expected, &error);
    pqtx_pool_close(pool);
}

static void run_trial(struct trial *trial, pqtx_status expected)
{
    pqtx_pool *pool = open_pool(2);
    pqtx_error error = PQTX_ERROR;
    pqtx_status status = pqtx_run(pool, &trial->options, write_and_note_xid, &trial->fate, &error);
    assert_status(status, expected, &error);
    pqtx_pool_close(pool);
}

/* What this program says of a ticket when another process runs it: see main(). */
static pqtx_outcome resolve_elsewhere(const pqtx_ticket *ticket)
{
    char text[PQTX_TICKET_TEXT], command[1024];
    ck_assert_int_eq(pqtx_ticket_format(ticket, text, sizeof text), PQTX_OK);
    snprintf(command, sizeof command, "'%s' '%s'", program, text);
    int status = system(command);
    ck_assert_msg(WIFEXITED(status), "failed: %s", command);
    return (pqtx_outcome)WEXITSTATUS(status);
}

static int resolve_here(const char *text)
{
    pqtx_pool_options options = PQTX_POOL_OPTIONS;
    pqtx_pool *pool;
    pqtx_ticket ticket = PQTX_TICKET;
    pqtx_outcome outcome = PQTX_OUTCOME_OPEN;
    options.conninfo = getenv("PQTX_TEST_CONNINFO");
    if (pqtx_ticket_parse(text, &ticket) != PQTX_OK ||
        pqtx_pool_open(&options, &pool, NULL) != PQTX_OK)
        return PQTX_OUTCOME_OPEN;
    pqtx_resolve(pool, &ticket, 0, &outcome, NULL);
    pqtx_pool_close(pool);
    return (int)outcome;
}

START_TEST(an_xid_is_not_believed_on_another_timeline)
{
    cluster_detach(standby);
    struct trial *trial = new_trial(fail_over_behind, PQTX_DOUBT_XID);
    run_trial(trial, PQTX_IN_DOUBT);
    ck_assert_int_eq(trial->outcome, PQTX_OUTCOME_IN_DOUBT);
    ck_assert_uint_eq(trial->attempts, 1);
    ck_assert_uint_eq(trial->ticket.xid, trial->fate.xid);
    ck_assert_int_eq(resolve_elsewhere(&trial->ticket), PQTX_OUTCOME_IN_DOUBT);
    free(trial);
}
END_TEST

START_TEST(an_xid_stays_in_doubt_even_where_the_failover_lost_nothing)
{
    struct trial *trial = new_trial(fail_over_in_step, PQTX_DOUBT_XID);
    run_trial(trial, PQTX_IN_DOUBT);
    ck_assert_int_eq(resolve_elsewhere(&trial->ticket), PQTX_OUTCOME_IN_DOUBT);
    free(trial);
}
END_TEST

/* A shutdown leaves a checkpoint behind, as recovery does: which of the two it was nobody can tell.
 */
START_TEST(an_xid_is_not_believed_after_a_restart)
{
    struct trial *trial = new_trial(restart, PQTX_DOUBT_XID);
    run_trial(trial, PQTX_IN_DOUBT);
    ck_assert_int_eq(trial->outcome, PQTX_OUTCOME_IN_DOUBT);
    ck_assert_uint_eq(trial->attempts, 1);
    ck_assert_int_eq(resolve_elsewhere(&trial->ticket), PQTX_OUTCOME_IN_DOUBT);
    free(trial);
}
END_TEST

/* Not even where it would be right: nobody can tell. */
START_TEST(an_xid_is_not_believed_after_a_crash)
{
    static const struct {
        pqtx_point point;
        void (*befall)(uint64_t xid);
        int rows;
    } cases[] = {
        {PQTX_POINT_COMMIT_BEGUN, crash_and_use_up_xids, 0},
        {PQTX_POINT_COMMIT_BEGUN, crash, 0},
        {PQTX_POINT_COMMIT_ANSWERED, crash, 1},
    };
    struct trial *trial = new_trial(cases[_i].befall, PQTX_DOUBT_XID);
    trial->fate.point = cases[_i].point;
    run_trial(trial, PQTX_IN_DOUBT);
    ck_assert_int_eq(count_marks(primary, first), cases[_i].rows);
    ck_assert_int_eq(resolve_elsewhere(&trial->ticket), PQTX_OUTCOME_IN_DOUBT);
    free(trial);
}
END_TEST

START_TEST(what_a_crash_has_swallowed_is_done_again)
{
    struct trial *trial = new_trial(crash_and_use_up_xids, PQTX_DOUBT_TOKEN);
    trial->fate.point = PQTX_POINT_COMMIT_BEGUN;
    run_trial(trial, PQTX_OK);
    ck_assert_uint_eq(trial->attempts, 2);
    ck_assert_int_eq(count_marks(primary, first), 1);
    free(trial);
}
END_TEST

START_TEST(a_token_is_found_after_a_crash)
{
    struct trial *trial = new_trial(crash, PQTX_DOUBT_TOKEN);
    run_trial(trial, PQTX_OK);
    ck_assert_uint_eq(trial->flags, PQTX_RESOLVED);
    ck_assert_uint_eq(trial->attempts, 1);
    ck_assert_int_eq(count_marks(primary, first), 1);
    free(trial);
}
END_TEST

START_TEST(a_token_that_was_lost_with_the_primary_is_rolled_back)
{
    cluster_detach(standby);
    struct trial *trial = new_trial(fail_over_behind, PQTX_DOUBT_TOKEN);
    trial->options.max_attempts = 1;
    run_trial(trial, PQTX_NO_CONNECTION);
    ck_assert_int_eq(trial->outcome, PQTX_OUTCOME_ROLLED_BACK);
    ck_assert_uint_eq(trial->flags, PQTX_RESOLVED);
    ck_assert_int_eq(count_marks(standby, first), 0);
    free(trial);
}
END_TEST

START_TEST(what_was_lost_with_the_primary_is_done_again)
{
    static const pqtx_doubt ways[] = {PQTX_DOUBT_TOKEN, PQTX_DOUBT_REPORT};
    cluster_detach(standby);
    struct trial *trial = new_trial(fail_over_behind, ways[_i]);
    if (ways[_i] == PQTX_DOUBT_REPORT)
        trial->options.event_id = "event";
    run_trial(trial, PQTX_OK);
    ck_assert_uint_eq(trial->attempts, 2);
    ck_assert_int_eq(count_marks(standby, first), 1);
    free(trial);
}
END_TEST

START_TEST(what_has_reached_the_new_primary_is_not_done_again)
{
    static const pqtx_doubt ways[] = {PQTX_DOUBT_TOKEN, PQTX_DOUBT_REPORT};
    struct trial *trial = new_trial(fail_over_in_step, ways[_i]);
    if (ways[_i] == PQTX_DOUBT_REPORT)
        trial->options.event_id = "event";
    run_trial(trial, PQTX_OK);
    ck_assert_int_eq(trial->outcome, PQTX_OUTCOME_COMMITTED);
    ck_assert_uint_eq(trial->flags, PQTX_RESOLVED);
    ck_assert_int_eq(count_marks(standby, first), 1);
    free(trial);
}
END_TEST

/* ---- the same in one flight, which only a token resolves */

static const pqtx_isolation forms[] = {PQTX_ISO_DEFAULT, PQTX_ISO_READ_COMMITTED};

START_TEST(one_flight_that_was_lost_with_the_primary_is_made_again)
{
    cluster_detach(standby);
    struct trial *trial = new_trial(fail_over, PQTX_DOUBT_TOKEN);
    run_trial_in_one_flight(trial, forms[_i], PQTX_OK);
    ck_assert_int_eq(trial->outcome, PQTX_OUTCOME_COMMITTED);
    ck_assert_uint_eq(trial->attempts, 2);
    ck_assert_int_eq(count_marks(standby, first), 1);
    free(trial);
}
END_TEST

START_TEST(one_flight_that_has_reached_the_new_primary_is_not_made_again)
{
    struct trial *trial = new_trial(fail_over_in_step, PQTX_DOUBT_TOKEN);
    run_trial_in_one_flight(trial, forms[_i], PQTX_OK);
    ck_assert_uint_eq(trial->flags, PQTX_RESOLVED);
    ck_assert_uint_eq(trial->attempts, 1);
    ck_assert_int_eq(count_marks(standby, first), 1);
    free(trial);
}
END_TEST

START_TEST(one_flight_before_a_failover_stays_in_doubt_without_a_token)
{
    struct trial *trial = new_trial(fail_over_in_step, PQTX_DOUBT_XID);
    run_trial_in_one_flight(trial, forms[_i], PQTX_IN_DOUBT);
    ck_assert_int_eq(trial->outcome, PQTX_OUTCOME_IN_DOUBT);
    ck_assert_uint_eq(trial->attempts, 1);
    free(trial);
}
END_TEST

START_TEST(one_flight_is_settled_after_a_crash)
{
    static const struct {
        pqtx_point point;
        uint32_t attempts;
    } cases[] = {{PQTX_POINT_COMMIT_BEGUN, 2}, {PQTX_POINT_COMMIT_ANSWERED, 1}};
    struct trial *trial = new_trial(crash, PQTX_DOUBT_TOKEN);
    trial->fate.point = cases[_i / 2].point;
    run_trial_in_one_flight(trial, forms[_i % 2], PQTX_OK);
    ck_assert_uint_eq(trial->attempts, cases[_i / 2].attempts);
    ck_assert_int_eq(count_marks(primary, first), 1);
    free(trial);
}
END_TEST

/* ---- settled elsewhere */

static struct test_clock test_clock;

static void lose_the_primary_and_all_the_time(uint64_t xid)
{
    (void)xid;
    cluster_do("crash primary");
    test_clock_forward(&test_clock, 3600000);
}

START_TEST(another_process_settles_a_saved_ticket_once_and_for_all)
{
    bool behind = _i == 0;
    if (behind)
        cluster_detach(standby);
    else
        cluster_confirm(primary);
    test_clock_init(&test_clock);
    struct trial *trial = new_trial(lose_the_primary_and_all_the_time, PQTX_DOUBT_TOKEN);
    trial->options.clock = &test_clock.clock;
    trial->options.resolve_ms = 1;
    run_trial(trial, PQTX_IN_DOUBT);
    cluster_do("promote");
    pqtx_outcome outcome = behind ? PQTX_OUTCOME_ROLLED_BACK : PQTX_OUTCOME_COMMITTED;
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(resolve_elsewhere(&trial->ticket), outcome);
    ck_assert_int_eq(count_marks(standby, first), behind ? 0 : 1);
    free(trial);
}
END_TEST

/* ---- committed, but only here */

START_TEST(a_commit_that_no_standby_has_confirmed_says_so)
{
    struct trial *trial = new_trial(NULL, PQTX_DOUBT_TOKEN);
    trial->options.fault = NULL;
    if (_i > 0) {
        trial->options.flags |= PQTX_PIPELINE;
        trial->options.isolation = forms[_i - 1];
    }
    cluster_confirm(primary);
    cluster_do("promote");
    struct task task = {.pool = open_pool(1), .options = &trial->options, .work = write_mark};
    task.arg = first;
    start_task(&task);
    wait_until_true(primary,
                    "SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'");
    ck_assert_int_eq(count_marks(standby, first), 0);
    cluster_do("stop primary");
    join_task(&task, PQTX_OK);
    ck_assert_uint_eq(trial->flags, PQTX_LOCAL_ONLY);
    ck_assert_int_eq(count_marks(standby, first), 0);
    pqtx_pool_close(task.pool);
    free(trial);
}
END_TEST

int main(int argc, char **argv)
{
    if (argc == 2)
        return resolve_here(argv[1]);
    program = argv[0];
    Suite *suite = suite_create("failover");
    TCase *tcase = tcase_create("failover");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, renew, NULL);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, the_pool_finds_the_new_primary);
    tcase_add_test(tcase, a_body_whose_primary_is_lost_runs_again_on_the_new_one);
    tcase_add_loop_test(tcase, under_load_each_event_is_applied_once_through_a_failover, 0, 3);
    tcase_add_test(tcase, an_xid_is_not_believed_on_another_timeline);
    tcase_add_test(tcase, an_xid_stays_in_doubt_even_where_the_failover_lost_nothing);
    tcase_add_test(tcase, a_token_that_was_lost_with_the_primary_is_rolled_back);
    tcase_add_loop_test(tcase, what_was_lost_with_the_primary_is_done_again, 0, 2);
    tcase_add_loop_test(tcase, what_has_reached_the_new_primary_is_not_done_again, 0, 2);
    tcase_add_loop_test(tcase, another_process_settles_a_saved_ticket_once_and_for_all, 0, 2);
    tcase_add_loop_test(tcase, a_commit_that_no_standby_has_confirmed_says_so, 0, 3);
    tcase_add_loop_test(tcase, one_flight_that_was_lost_with_the_primary_is_made_again, 0, 2);
    tcase_add_loop_test(tcase, one_flight_that_has_reached_the_new_primary_is_not_made_again, 0, 2);
    tcase_add_loop_test(tcase, one_flight_before_a_failover_stays_in_doubt_without_a_token, 0, 2);
    suite_add_tcase(suite, tcase);
    TCase *same = tcase_create("the same primary again"); /* and so the cluster is not used up */
    tcase_set_timeout(same, 120);
    tcase_add_unchecked_fixture(same, renew, NULL);
    tcase_add_checked_fixture(same, set_up, tear_down);
    tcase_add_test(same, an_xid_is_not_believed_after_a_restart);
    tcase_add_loop_test(same, an_xid_is_not_believed_after_a_crash, 0, 3);
    tcase_add_test(same, what_a_crash_has_swallowed_is_done_again);
    tcase_add_test(same, a_token_is_found_after_a_crash);
    tcase_add_loop_test(same, one_flight_is_settled_after_a_crash, 0, 4);
    suite_add_tcase(suite, same);
    return run_suite(suite);
}
