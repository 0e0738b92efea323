/* check_pooler_doubt.c: connections that go on either side of PgBouncer, and what is said then of
 * the transaction. */
#define _DEFAULT_SOURCE
#include "support.h"
#include "support_doubt.h"
#include "support_pooler.h"
#include "support_tx.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SCHEMA "pqtx_pooler"
#define GATE   "735117401" /* an advisory lock */

static PGconn *monitor; /* on the server itself */

static void set_up(void)
{
    char name[32];
    snprintf(name, sizeof name, "check_pooler_%d", (int)getpid());
    setenv("PGAPPNAME", name, 1); /* tells this test's sessions from all others */
    fresh_schema(SCHEMA);
    monitor = open_session();
    sql(monitor, pqtx_once_ddl());
    sql(monitor, "CREATE TABLE mark (id text)");
    sql(monitor, "CREATE FUNCTION pass_gate() RETURNS trigger LANGUAGE plpgsql AS"
                 " 'BEGIN PERFORM pg_advisory_xact_lock_shared(" GATE "); RETURN NULL; END'");
    sql(monitor, "CREATE CONSTRAINT TRIGGER gate AFTER INSERT ON mark"
                 " DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION pass_gate()");
}

static void tear_down(void)
{
    pooler_end_orphans(monitor);
    PQfinish(monitor);
}

static int64_t count_marks(const char *id)
{
    char query[96];
    snprintf(query, sizeof query, "SELECT count(*) FROM mark WHERE id = '%s'", id);
    return ask_int(monitor, query);
}

static pqtx_status write_mark(pqtx_tx *tx, void *id)
{
    return pqtx_exec(tx, "INSERT INTO " SCHEMA ".mark VALUES ($1)", PQTX_ARGS(PQTX_TEXT(id)), NULL);
}

/* The ways to settle a doubt. */
static const struct way {
    const char *name;
    pqtx_doubt in_doubt;
    bool event;
} ways[] = {
    {"report", PQTX_DOUBT_REPORT, false},        {"xid", PQTX_DOUBT_XID, false},
    {"token", PQTX_DOUBT_TOKEN, false},          {"event", PQTX_DOUBT_REPORT, true},
    {"event and token", PQTX_DOUBT_TOKEN, true},
};
enum { WAYS = sizeof ways / sizeof ways[0] };

static pqtx_options options_for(const struct way *way, const char *id)
{
    pqtx_options options = PQTX_OPTIONS;
    options.in_doubt = way->in_doubt;
    options.event_id = way->event ? id : NULL;
    options.once_schema = SCHEMA;
    return options;
}

/* ---- the client's side is cut */

struct cut {
    pqtx_point point;
    uint32_t last; /* in the attempts 1 … last */
};

static pqtx_fault cut(pqtx_point point, uint32_t attempt, void *arg)
{
    const struct cut *cut = arg;
    return point == cut->point && attempt <= cut->last ? PQTX_FAULT_CUT : PQTX_FAULT_NONE;
}

/* Committed and rolled back are never wrong, and doubt remains only where nothing settles it: with
 * an event, in the last attempt. */
static void judge(const struct way *way, const struct cut *cut, const char *id, pqtx_status status,
                  const pqtx_error *error)
{
    char text[1024];
    pqtx_error_format(error, text, sizeof text);
    int64_t rows = count_marks(id);
    bool may_doubt = way->in_doubt == PQTX_DOUBT_REPORT && (!way->event || cut->last > 1);
    bool right = status == PQTX_OK         ? rows == 1
                 : status == PQTX_IN_DOUBT ? may_doubt && rows <= 1
                                           : status == PQTX_NO_CONNECTION && rows == 0;
    ck_assert_msg(right, "%s, cut at %s in %u: %s, and %lld rows\n  %s", way->name,
                  pqtx_point_name(cut->point), (unsigned)cut->last, pqtx_status_name(status),
                  (long long)rows, text);
}

START_TEST(a_cut_line_to_the_pooler_is_never_judged_wrongly)
{
    enum { MAX_ATTEMPTS = 3 };
    static const uint32_t lasts[] = {1, MAX_ATTEMPTS};
    pqtx_pool *pool = pooler_pool(pooler_conninfo(), 2);
    int runs = 0, counts[3] = {0, 0, 0};
    for (int i = 0; i < WAYS * 7 * 2; i++) {
        const struct way *way = &ways[i / 14];
        struct cut where = {(pqtx_point)(PQTX_POINT_STATEMENT + i / 2 % 7), lasts[i % 2]};
        char id[16];
        snprintf(id, sizeof id, "%d", i);
        pqtx_options options = options_for(way, id);
        options.max_attempts = MAX_ATTEMPTS;
        options.fault = cut;
        options.fault_arg = &where;
        pqtx_error error = PQTX_ERROR;
        pqtx_status status = pqtx_run(pool, &options, write_mark, id, &error);
        judge(way, &where, id, status, &error);
        counts[status == PQTX_OK ? 0 : status == PQTX_IN_DOUBT ? 2 : 1]++;
        runs++;
    }
    printf("through the pooler %d runs were cut: %d committed, %d rolled back, %d in doubt\n", runs,
           counts[0], counts[1], counts[2]);
    ck_assert_int_gt(counts[0], 0);
    ck_assert_int_gt(counts[1], 0);
    ck_assert_int_gt(counts[2], 0);
    pqtx_pool_close(pool);
}
END_TEST

static struct runaway_clock runaway;

/* No time is left to settle the doubt: the ticket has to serve for that. */
static pqtx_fault cut_and_use_up_the_time(pqtx_point point, uint32_t attempt, void *arg)
{
    pqtx_fault fault = cut(point, attempt, arg);
    if (fault == PQTX_FAULT_CUT)
        atomic_store(&runaway.away, true);
    return fault;
}

START_TEST(a_ticket_is_settled_through_the_pooler)
{
    static const struct {
        pqtx_point point;
        pqtx_outcome outcome;
    } cases[] = {
        {PQTX_POINT_COMMIT_BEGUN, PQTX_OUTCOME_ROLLED_BACK},
        {PQTX_POINT_COMMIT_ANSWERED, PQTX_OUTCOME_COMMITTED},
    };
    pqtx_pool *pool = pooler_pool(pooler_conninfo(), 2);
    struct cut where = {cases[_i % 2].point, 1};
    pqtx_options options = options_for(&ways[1 + _i / 2], NULL);
    pqtx_ticket ticket = PQTX_TICKET;
    pqtx_outcome outcome;
    pqtx_error error = PQTX_ERROR;
    char id[] = "once";
    runaway_init(&runaway);
    options.clock = &runaway.clock;
    options.resolve_ms = 1;
    options.fault = cut_and_use_up_the_time;
    options.fault_arg = &where;
    options.ticket = &ticket;
    assert_status(pqtx_run(pool, &options, write_mark, id, &error), PQTX_IN_DOUBT, &error);
    for (int i = 0; i < 2; i++) {
        assert_status(pqtx_resolve(pool, &ticket, 0, &outcome, &error), PQTX_OK, &error);
        ck_assert_int_eq(outcome, cases[_i % 2].outcome);
    }
    ck_assert_int_eq(count_marks(id), outcome == PQTX_OUTCOME_COMMITTED);
    pqtx_pool_close(pool);
}
END_TEST

START_TEST(an_event_is_applied_once_and_its_answer_kept)
{
    pqtx_pool *pool = pooler_pool(pooler_conninfo(), 2);
    pqtx_options options = options_for(&ways[3], "event");
    char id[] = "once", answer[8];
    size_t len = 0;
    for (int i = 0; i < 3; i++) {
        pqtx_tx *tx = pqtx_new(pool, &options);
        while (pqtx_attempt(tx)) {
            write_mark(tx, id);
            pqtx_once_store(tx, "answer", 6);
            pqtx_commit(tx);
        }
        assert_status(pqtx_result(tx), i == 0 ? PQTX_OK : PQTX_DONE_BEFORE, NULL);
        ck_assert_int_eq(pqtx_once_answer(tx, answer, sizeof answer, &len), PQTX_OK);
        ck_assert_mem_eq(answer, "answer", 6);
        ck_assert_uint_eq(len, 6);
        pqtx_free(tx);
    }
    ck_assert_int_eq(count_marks(id), 1);
    pqtx_pool_close(pool);
}
END_TEST

/* ---- the pooler goes */

/* One for each way that settles every doubt. */
enum { WORKERS = WAYS - 1, EVENTS_MAX = 20000, STEADY = 10, KILLS = 3 };

struct worker {
    pqtx_pool *pool;
    atomic_bool *stop;
    const struct way *way;
    pthread_t thread;
    atomic_int count; /* runs that have ended, … */
    pqtx_status status;
    pqtx_error error; /* … the last one so */
};

static void *write_marks(void *arg)
{
    struct worker *worker = arg;
    for (int i = 0; i < EVENTS_MAX && !atomic_load(worker->stop); i++) {
        char id[64];
        snprintf(id, sizeof id, "%s %d", worker->way->name, i);
        pqtx_options options = options_for(worker->way, id);
        options.max_attempts = 1000;
        options.deadline_ms = 60000;
        worker->error = (pqtx_error)PQTX_ERROR;
        worker->status = pqtx_run(worker->pool, &options, write_mark, id, &worker->error);
        if (worker->status != PQTX_OK)
            return NULL;
        atomic_store(&worker->count, i + 1);
    }
    return NULL;
}

/* Until each worker has ended some more runs, or the last of its runs. */
static void wait_for_progress(struct worker *workers)
{
    for (int i = 0; i < WORKERS; i++) {
        int wanted = atomic_load(&workers[i].count) + STEADY;
        while (atomic_load(&workers[i].count) < wanted)
            poll(NULL, 0, 1); /* only between questions; Check's time limit ends it */
    }
}

START_TEST(a_pooler_that_is_killed_again_and_again_loses_and_doubles_nothing)
{
    pqtx_pool *pool = pooler_pool(pooler_conninfo(), WORKERS);
    atomic_bool stop = false;
    struct worker workers[WORKERS] = {0};
    for (int i = 0; i < WORKERS; i++) {
        workers[i].pool = pool;
        workers[i].stop = &stop;
        workers[i].way = &ways[1 + i];
        ck_assert(pthread_create(&workers[i].thread, NULL, write_marks, &workers[i]) == 0);
    }
    for (int i = 0; i < KILLS; i++) {
        wait_for_progress(workers);
        pooler_kill();
    }
    wait_for_progress(workers);
    atomic_store(&stop, true);
    int64_t done = 0;
    for (int i = 0; i < WORKERS; i++) {
        pthread_join(workers[i].thread, NULL);
        assert_status(workers[i].status, PQTX_OK, &workers[i].error);
        done += atomic_load(&workers[i].count);
    }
    ck_assert_int_eq(ask_int(monitor, "SELECT count(*) FROM mark"), done);
    ck_assert_int_eq(ask_int(monitor, "SELECT count(DISTINCT id) FROM mark"), done);
    ck_assert_uint_gt(stats_of(pool).retries_connection, 0);
    pqtx_pool_close(pool);
}
END_TEST

/* ---- the server's side goes */

static pid_t find_backend(const char *where)
{
    char query[256];
    snprintf(query, sizeof query,
             "SELECT count(*) = 1 FROM pg_stat_activity WHERE application_name ="
             " current_setting('application_name') AND %s",
             where);
    wait_until_true(monitor, query);
    snprintf(query, sizeof query,
             "SELECT pid FROM pg_stat_activity WHERE application_name ="
             " current_setting('application_name') AND %s",
             where);
    return (pid_t)ask_int(monitor, query);
}

static void terminate(pid_t backend)
{
    char query[96];
    snprintf(query, sizeof query, "SELECT pg_terminate_backend(%d)", (int)backend);
    sql(monitor, query);
    snprintf(query, sizeof query, "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = %d",
             (int)backend);
    wait_until_true(monitor, query);
}

/* The server ends all sessions and recovers. */
static void kill_hard(pid_t backend)
{
    ck_assert(kill(backend, SIGKILL) == 0);
    while (PQconsumeInput(monitor))
        poll(NULL, 0, 10); /* only between questions; Check's time limit ends it */
    for (PQreset(monitor); PQstatus(monitor) != CONNECTION_OK; PQreset(monitor))
        poll(NULL, 0, 10);
}

static pqtx_status write_mark_between_deaths(pqtx_tx *tx, void *die)
{
    int64_t pid;
    char id[] = "once";
    pqtx_status status = write_mark(tx, id);
    if (status == PQTX_OK && pqtx_attempts(tx) == 1) {
        status = ask_pid(tx, &pid);
        (*(void (**)(pid_t))die)((pid_t)pid);
    }
    return status == PQTX_OK ? ask_pid(tx, &pid) : status;
}

START_TEST(a_session_that_ends_behind_the_pooler_is_begun_again)
{
    static void (*const deaths[])(pid_t) = {terminate, kill_hard};
    void (*die)(pid_t) = deaths[_i];
    pqtx_pool *pool = pooler_pool(pooler_conninfo(), 2);
    pqtx_options options = PQTX_OPTIONS;
    pqtx_evidence evidence = PQTX_EVIDENCE;
    pqtx_error error = PQTX_ERROR;
    options.evidence = &evidence;
    pqtx_status status = pqtx_run(pool, &options, write_mark_between_deaths, &die, &error);
    assert_status(status, PQTX_OK, &error);
    ck_assert_uint_gt(evidence.count, 0);
    assert_status(evidence.records[0].status, PQTX_NO_CONNECTION, NULL);
    ck_assert_int_eq(evidence.records[0].phase, PQTX_PHASE_BODY);
    ck_assert_int_eq(count_marks("once"), 1);
    pqtx_pool_close(pool);
}
END_TEST

/* This transaction alone waits for the standby that there is not; its commit record is safe. */
static pqtx_status write_mark_for_a_standby(pqtx_tx *tx, void *id)
{
    if (pqtx_attempts(tx) == 1)
        pqtx_exec(tx, "SET LOCAL synchronous_commit = on", PQTX_NO_ARGS, NULL);
    return write_mark(tx, id);
}

static void want_standby(bool wanted)
{
    static const char *const names[] = {"synchronous_standby_names", "synchronous_commit"};
    static const char *const values[] = {"ghost", "local"};
    for (int i = 0; i < 2; i++) {
        char statement[96];
        snprintf(statement, sizeof statement,
                 wanted ? "ALTER SYSTEM SET %s = %s" : "ALTER SYSTEM RESET %s", names[i],
                 values[i]);
        sql(monitor, statement);
    }
    sql(monitor, "SELECT pg_reload_conf()");
    wait_until_true(monitor, wanted ? "SELECT current_setting('synchronous_commit') = 'local'"
                                    : "SELECT current_setting('synchronous_commit') = 'on'");
}

struct ending {
    pqtx_outcome outcome;
    uint32_t flags, attempts;
};

static void note_end(const pqtx_event *event, void *arg)
{
    if (event->type == PQTX_EVENT_END)
        *(struct ending *)arg = (struct ending){event->outcome, event->flags, event->attempt};
}

/* How a backend dies in COMMIT, what PgBouncer makes of it, and what has become of the row. */
static const struct death {
    void (*die)(pid_t);
    bool committed;
    const char *sqlstate;
    pqtx_origin origin;
} deaths[] = {
    {terminate, false, "57P01", PQTX_ORIGIN_SERVER},
    {kill_hard, false, "08P01", PQTX_ORIGIN_POOLER},
    {kill_hard, true, "08P01", PQTX_ORIGIN_POOLER},
};
enum { DEATHS = sizeof deaths / sizeof deaths[0] };

static void die_in_commit(const struct death *death)
{
    death->die(find_backend(death->committed ? "wait_event = 'SyncRep'"
                                             : "query = 'COMMIT' AND wait_event = 'advisory'"));
    if (!death->committed && death->die == terminate)
        sql(monitor, "SELECT pg_advisory_unlock(" GATE ")");
}

static void assert_settled(const struct way *way, const struct death *death,
                           const struct ending *ending)
{
    ck_assert_int_eq(ending->outcome, PQTX_OUTCOME_COMMITTED);
    ck_assert_uint_eq(ending->flags, PQTX_RESOLVED);
    bool found = death->committed && way->in_doubt != PQTX_DOUBT_REPORT;
    ck_assert_uint_eq(ending->attempts, found ? 1 : 2);
    ck_assert_int_eq(count_marks("once"), 1);
}

/* After a crash an xid may be another's. */
static bool is_settled_by(const struct way *way, const struct death *death)
{
    if (way->in_doubt == PQTX_DOUBT_XID)
        return death->die == terminate;
    return way->event || way->in_doubt == PQTX_DOUBT_TOKEN;
}

START_TEST(a_session_that_ends_in_commit_is_in_doubt_and_settled)
{
    const struct death *death = &deaths[_i / WAYS];
    const struct way *way = &ways[_i % WAYS];
    bool settled = is_settled_by(way, death);
    pqtx_options options = options_for(way, "event");
    pqtx_evidence evidence = PQTX_EVIDENCE;
    struct ending ending = {PQTX_OUTCOME_OPEN, 0, 0};
    char id[] = "once";
    options.evidence = &evidence;
    options.observer = note_end;
    options.observer_arg = &ending;
    struct task task = {.pool = pooler_pool(pooler_conninfo(), 2), .options = &options, .arg = id};
    task.work = death->committed ? write_mark_for_a_standby : write_mark;
    if (death->committed)
        want_standby(true);
    else
        sql(monitor, "SELECT pg_advisory_lock(" GATE ")");
    start_task(&task);
    die_in_commit(death);
    join_task(&task, settled ? PQTX_OK : PQTX_IN_DOUBT);
    assert_status(evidence.records[0].status, PQTX_IN_DOUBT, &task.error);
    ck_assert_int_eq(evidence.records[0].phase, PQTX_PHASE_COMMIT);
    ck_assert_str_eq(evidence.records[0].sqlstate, death->sqlstate);
    ck_assert_int_eq(evidence.records[0].origin, death->origin);
    if (settled)
        assert_settled(way, death, &ending);
    else
        ck_assert_int_eq(count_marks("once"), death->committed);
    if (death->committed)
        want_standby(false);
    pqtx_pool_close(task.pool);
}
END_TEST

int main(void)
{
    bool own = getenv("PQTX_TEST_PGDATA"); /* a throw-away server: it may crash, or be altered */
    Suite *suite = suite_create("doubt through a pooler");
    TCase *tcase = tcase_create("doubt through a pooler");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, a_cut_line_to_the_pooler_is_never_judged_wrongly);
    tcase_add_loop_test(tcase, a_ticket_is_settled_through_the_pooler, 0, 4);
    tcase_add_test(tcase, an_event_is_applied_once_and_its_answer_kept);
    tcase_add_test(tcase, a_pooler_that_is_killed_again_and_again_loses_and_doubles_nothing);
    tcase_add_loop_test(tcase, a_session_that_ends_behind_the_pooler_is_begun_again, 0,
                        own ? 2 : 1);
    tcase_add_loop_test(tcase, a_session_that_ends_in_commit_is_in_doubt_and_settled, 0,
                        (own ? DEATHS : 1) * WAYS);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
