/* check_pooler_run.c: the runner and the helpers through PgBouncer in transaction mode.
 *
 * Statements travel unnamed, so there is nothing that a pooler could lose between transactions, and
 * nothing that has to be done in another way. */
#define _DEFAULT_SOURCE
#include "support.h"
#include "support_pooler.h"
#include "support_tx.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SCHEMA "pqtx_pooler"

static PGconn *monitor; /* on the server itself, like every session whose name does not tell */

static void set_up(void)
{
    char name[32];
    snprintf(name, sizeof name, "check_pooler_%d", (int)getpid());
    setenv("PGAPPNAME", name, 1); /* tells this test's sessions from all others */
    fresh_schema(SCHEMA);
    monitor = open_session();
    sql(monitor, "CREATE TABLE seat (id bigint PRIMARY KEY, free bigint NOT NULL)");
    sql(monitor, "INSERT INTO seat SELECT i, 10 FROM generate_series(1, 4) AS i");
}

static void tear_down(void)
{
    pooler_end_orphans(monitor);
    PQfinish(monitor);
}

static int64_t free_seats(int64_t id)
{
    char query[64];
    snprintf(query, sizeof query, "SELECT free FROM seat WHERE id = %lld", (long long)id);
    return ask_int(monitor, query);
}

static pqtx_status take(pqtx_tx *tx, int64_t id)
{
    return pqtx_update_one(tx, "UPDATE " SCHEMA ".seat SET free = free - 1 WHERE id = $1",
                           PQTX_ARGS(PQTX_INT(id)));
}

static pqtx_status read_free(pqtx_tx *tx, int64_t *free)
{
    const PGresult *result;
    pqtx_status status =
        pqtx_exec(tx, "SELECT sum(free)::bigint FROM " SCHEMA ".seat", PQTX_NO_ARGS, &result);
    return status == PQTX_OK ? pqtx_get_int(result, 0, 0, free) : status;
}

static void assert_failed_once(const pqtx_evidence *evidence, pqtx_status status, pqtx_phase phase)
{
    ck_assert_uint_eq(evidence->count, 1);
    assert_status(evidence->records[0].status, status, NULL);
    ck_assert_str_eq(pqtx_phase_name(evidence->records[0].phase), pqtx_phase_name(phase));
    ck_assert_int_eq(evidence->records[0].origin, PQTX_ORIGIN_SERVER);
}

/* ---- lost races */

static pqtx_status be_overtaken(pqtx_tx *tx, void *arg)
{
    (void)arg;
    int64_t free;
    pqtx_status status = read_free(tx, &free);
    if (status == PQTX_OK && pqtx_attempts(tx) == 1)
        sql(monitor, "UPDATE seat SET free = free - 1 WHERE id = 1");
    return take(tx, 1);
}

START_TEST(a_race_lost_at_a_statement_is_begun_again)
{
    pqtx_pool *pool = pooler_pool(pooler_conninfo(), 1);
    pqtx_options options = PQTX_OPTIONS;
    pqtx_evidence evidence = PQTX_EVIDENCE;
    pqtx_error error = PQTX_ERROR;
    options.isolation = PQTX_ISO_REPEATABLE_READ;
    options.evidence = &evidence;
    assert_status(pqtx_run(pool, &options, be_overtaken, NULL, &error), PQTX_OK, &error);
    assert_failed_once(&evidence, PQTX_SERIALIZATION, PQTX_PHASE_BODY);
    ck_assert_int_eq(free_seats(1), 8);
    ck_assert_uint_eq(stats_of(pool).connects, 1);
    pqtx_pool_close(pool);
}
END_TEST

static pqtx_status skew(pqtx_tx *tx, void *arg)
{
    (void)arg;
    int64_t free;
    read_free(tx, &free);
    pqtx_status status = take(tx, 1);
    if (status == PQTX_OK && pqtx_attempts(tx) == 1)
        sql(monitor, "BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT sum(free) FROM seat;"
                     "UPDATE seat SET free = free - 1 WHERE id = 2; COMMIT");
    return status;
}

START_TEST(a_race_lost_at_commit_is_begun_again)
{
    pqtx_pool *pool = pooler_pool(pooler_conninfo(), 1);
    pqtx_options options = PQTX_OPTIONS;
    pqtx_evidence evidence = PQTX_EVIDENCE;
    pqtx_error error = PQTX_ERROR;
    options.isolation = PQTX_ISO_SERIALIZABLE;
    options.evidence = &evidence;
    assert_status(pqtx_run(pool, &options, skew, NULL, &error), PQTX_OK, &error);
    assert_failed_once(&evidence, PQTX_SERIALIZATION, PQTX_PHASE_COMMIT);
    ck_assert_int_eq(free_seats(1), 9);
    ck_assert_uint_eq(stats_of(pool).connects, 1);
    pqtx_pool_close(pool);
}
END_TEST

struct crossing {
    pthread_barrier_t *met;
    int64_t first, second;
};

static pqtx_status cross(pqtx_tx *tx, void *arg)
{
    const struct crossing *crossing = arg;
    pqtx_status status = take(tx, crossing->first);
    if (pqtx_attempts(tx) == 1)
        pthread_barrier_wait(crossing->met);
    return status == PQTX_OK ? take(tx, crossing->second) : status;
}

START_TEST(a_deadlock_is_begun_again)
{
    pthread_barrier_t met;
    pthread_barrier_init(&met, NULL, 2);
    struct crossing ways[2] = {{&met, 1, 2}, {&met, 2, 1}};
    pqtx_pool *pool = pooler_pool(pooler_conninfo(), 2);
    struct task tasks[2] = {{.pool = pool, .work = cross, .arg = &ways[0]},
                            {.pool = pool, .work = cross, .arg = &ways[1]}};
    for (int i = 0; i < 2; i++)
        start_task(&tasks[i]);
    for (int i = 0; i < 2; i++)
        join_task(&tasks[i], PQTX_OK);
    ck_assert_uint_eq(stats_of(pool).retries_deadlock, 1);
    ck_assert_int_eq(free_seats(1), 8);
    ck_assert_int_eq(free_seats(2), 8);
    pqtx_pool_close(pool);
    pthread_barrier_destroy(&met);
}
END_TEST

/* The row is locked by another until the second attempt. */
static pqtx_status wait_for_row(pqtx_tx *tx, void *holder)
{
    if (pqtx_attempts(tx) == 2)
        sql(holder, "COMMIT");
    return take(tx, 1);
}

START_TEST(a_row_that_stays_locked_is_waited_for_again)
{
    PGconn *holder = open_session();
    sql(holder, "BEGIN; UPDATE seat SET free = free - 1 WHERE id = 1");
    pqtx_pool *pool = pooler_pool(pooler_conninfo(), 1);
    pqtx_options options = PQTX_OPTIONS;
    pqtx_evidence evidence = PQTX_EVIDENCE;
    pqtx_error error = PQTX_ERROR;
    options.lock_timeout_ms = 20;
    options.evidence = &evidence;
    assert_status(pqtx_run(pool, &options, wait_for_row, holder, &error), PQTX_OK, &error);
    assert_failed_once(&evidence, PQTX_BUSY, PQTX_PHASE_BODY);
    ck_assert_int_eq(free_seats(1), 8);
    ck_assert_uint_eq(stats_of(pool).connects, 1);
    pqtx_pool_close(pool);
    PQfinish(holder);
}
END_TEST

static pqtx_status read_then_write(pqtx_tx *tx, void *arg)
{
    (void)arg;
    const PGresult *result;
    int64_t free = 0;
    pqtx_exec_one(tx, "SELECT free FROM " SCHEMA ".seat WHERE id = 1", PQTX_NO_ARGS, &result);
    if (result)
        pqtx_get_int(result, 0, 0, &free);
    return pqtx_update_one(tx, "UPDATE " SCHEMA ".seat SET free = $1 WHERE id = 1",
                           PQTX_ARGS(PQTX_INT(free + 1)));
}

enum { THREADS = 6, ROUNDS = 40 }; /* more threads than the pooler has connections */

struct crowd {
    pqtx_pool *pool;
    const pqtx_options *options;
    pqtx_work work;
    pqtx_status status;
    pqtx_error error;
};

static void *run_often(void *arg)
{
    struct crowd *crowd = arg;
    crowd->error = (pqtx_error)PQTX_ERROR;
    for (int i = 0; i < ROUNDS && crowd->status == PQTX_OK; i++)
        crowd->status = pqtx_run(crowd->pool, crowd->options, crowd->work, NULL, &crowd->error);
    return NULL;
}

static void run_crowd(const pqtx_options *options, pqtx_work work)
{
    pqtx_pool *pool = pooler_pool(pooler_conninfo(), THREADS);
    struct crowd crowds[THREADS];
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        crowds[i] = (struct crowd){.pool = pool, .options = options, .work = work};
        ck_assert(pthread_create(&threads[i], NULL, run_often, &crowds[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_status(crowds[i].status, PQTX_OK, &crowds[i].error);
    }
    pqtx_pool_close(pool);
}

START_TEST(no_serializable_increment_is_lost)
{
    pqtx_options options = PQTX_OPTIONS;
    options.isolation = PQTX_ISO_SERIALIZABLE;
    options.max_attempts = 1000;
    run_crowd(&options, read_then_write);
    ck_assert_int_eq(free_seats(1), 10 + THREADS * ROUNDS);
}
END_TEST

/* ---- what must not stay with the session that the next client gets */

/* What a transaction may have set, as the session has it now. */
#define SETTINGS                                                                                   \
    "SELECT string_agg(name || '=' || setting, ' ' ORDER BY name) FROM pg_settings"                \
    " WHERE name IN ('lock_timeout', 'statement_timeout', 'transaction_timeout',"                  \
    " 'idle_in_transaction_session_timeout', 'transaction_isolation',"                             \
    " 'transaction_read_only', 'transaction_deferrable', 'search_path', 'synchronous_commit')"

static pqtx_status set_everything(pqtx_tx *tx, void *status)
{
    pqtx_set_lock_timeout(tx, 1234);
    pqtx_exec_one(tx, "SELECT 1 WHERE current_setting('lock_timeout') = '1234ms'", PQTX_NO_ARGS,
                  NULL);
    return *(pqtx_status *)status;
}

START_TEST(no_setting_stays_with_the_session)
{
    static const pqtx_status ends[] = {PQTX_OK, PQTX_STOPPED};
    PGconn *next = pooler_session(pooler_one_conninfo());
    pqtx_pool *pool = pooler_pool(pooler_one_conninfo(), 1);
    pqtx_options options = PQTX_OPTIONS;
    pqtx_status status = ends[_i];
    options.isolation = PQTX_ISO_SERIALIZABLE;
    options.access = PQTX_ACCESS_DEFERRABLE;
    options.lock_timeout_ms = 111;
    options.statement_timeout_ms = 22222;
    options.flags = PQTX_SERVER_DEADLINE;
    int64_t pid = ask_int(next, "SELECT pg_backend_pid()");
    char before[1024];
    snprintf(before, sizeof before, "%s", ask(next, SETTINGS));
    assert_status(pqtx_run(pool, &options, set_everything, &status, NULL), status, NULL);
    ck_assert_str_eq(ask(next, SETTINGS), before);
    ck_assert_int_eq(ask_int(next, "SELECT pg_backend_pid()"), pid);
    pqtx_pool_close(pool);
    PQfinish(next);
}
END_TEST

static pqtx_status do_a_bit_of_all(pqtx_tx *tx, void *arg)
{
    (void)arg;
    int64_t free;
    pqtx_lock(tx, 1);
    pqtx_lock_pair_shared(tx, 2, 3);
    take(tx, 1);
    return read_free(tx, &free);
}

START_TEST(no_prepared_statement_or_lock_stays_with_the_session)
{
    PGconn *next = pooler_session(pooler_one_conninfo());
    pqtx_pool *pool = pooler_pool(pooler_one_conninfo(), 2);
    int64_t pid = run_for_pid(pool, NULL);
    for (int i = 0; i < 3; i++)
        assert_status(pqtx_run(pool, NULL, do_a_bit_of_all, NULL, NULL), PQTX_OK, NULL);
    ck_assert_int_eq(ask_int(next, "SELECT count(*) FROM pg_prepared_statements"), 0);
    ck_assert_int_eq(ask_int(next, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"
                                   " AND pid = pg_backend_pid()"),
                     0);
    ck_assert_int_eq(ask_int(next, "SELECT pg_backend_pid()"), pid);
    pqtx_pool_close(pool);
    PQfinish(next);
}
END_TEST

/* ---- helpers */

static pqtx_status insert_seat(pqtx_tx *tx, void *id)
{
    return pqtx_exec(tx, "INSERT INTO " SCHEMA ".seat VALUES ($1, 0)",
                     PQTX_ARGS(PQTX_INT(*(int64_t *)id)), NULL);
}

static pqtx_status insert_what_is_missing(pqtx_tx *tx, void *arg)
{
    (void)arg;
    for (int64_t id = 3; id <= 6; id++) {
        pqtx_status status = pqtx_savepoint(tx, insert_seat, &id);
        if (status != (id <= 4 ? PQTX_DUPLICATE : PQTX_OK))
            return pqtx_fail(tx, PQTX_STOPPED);
    }
    return PQTX_OK;
}

START_TEST(a_savepoint_answers_and_the_rest_commits)
{
    pqtx_pool *pool = pooler_pool(pooler_conninfo(), 1);
    pqtx_error error = PQTX_ERROR;
    assert_status(pqtx_run(pool, NULL, insert_what_is_missing, NULL, &error), PQTX_OK, &error);
    ck_assert_int_eq(ask_int(monitor, "SELECT count(*) FROM seat"), 6);
    pqtx_pool_close(pool);
}
END_TEST

START_TEST(a_duplicate_names_its_constraint)
{
    pqtx_pool *pool = pooler_pool(pooler_conninfo(), 1);
    pqtx_error error = PQTX_ERROR;
    int64_t id = 1;
    assert_status(pqtx_run(pool, NULL, insert_seat, &id, &error), PQTX_DUPLICATE, &error);
    ck_assert_str_eq(error.constraint_name, "seat_pkey");
    ck_assert_int_eq(error.origin, PQTX_ORIGIN_SERVER);
    ck_assert_uint_eq(error.attempt, 1);
    pqtx_pool_close(pool);
}
END_TEST

/* Arguments: seat 1 has ten places, seat 9 is not there. */
struct wish {
    int64_t id, places;
    pqtx_status answer;
};

static pqtx_status take_places(pqtx_tx *tx, void *arg)
{
    const struct wish *wish = arg;
    pqtx_change change = PQTX_CHANGE;
    const PGresult *row;
    change.schema = SCHEMA;
    change.table = "seat";
    change.key = "id = $1";
    change.condition = "free >= $2";
    change.set = "free = free - $2";
    return pqtx_update_if(tx, &change, PQTX_ARGS(PQTX_INT(wish->id), PQTX_INT(wish->places)), &row);
}

START_TEST(a_conditional_update_tells_why_not)
{
    static struct wish wishes[] = {
        {1, 4, PQTX_OK}, {1, 7, PQTX_CONDITION_FALSE}, {9, 1, PQTX_NOT_FOUND}};
    pqtx_pool *pool = pooler_pool(pooler_conninfo(), 1);
    for (int i = 0; i < 3; i++) {
        pqtx_error error = PQTX_ERROR;
        assert_status(pqtx_run(pool, NULL, take_places, &wishes[i], &error), wishes[i].answer,
                      &error);
    }
    ck_assert_int_eq(free_seats(1), 6);
    pqtx_pool_close(pool);
}
END_TEST

static pqtx_status read_then_write_alone(pqtx_tx *tx, void *arg)
{
    pqtx_lock(tx, 42);
    return read_then_write(tx, arg);
}

START_TEST(an_advisory_lock_lets_in_one_at_a_time)
{
    run_crowd(NULL, read_then_write_alone);
    ck_assert_int_eq(free_seats(1), 10 + THREADS * ROUNDS);
}
END_TEST

static pqtx_status try_lock(pqtx_tx *tx, void *key)
{
    return pqtx_try_lock(tx, *(int64_t *)key);
}

START_TEST(an_advisory_lock_that_is_held_is_seen_through_the_pooler)
{
    int64_t key = 7;
    pqtx_pool *pool = pooler_pool(pooler_conninfo(), 1);
    pqtx_options options = PQTX_OPTIONS;
    options.max_attempts = 1;
    sql(monitor, "BEGIN; SELECT pg_advisory_xact_lock(7)");
    assert_status(pqtx_run(pool, &options, try_lock, &key, NULL), PQTX_BUSY, NULL);
    sql(monitor, "COMMIT");
    assert_status(pqtx_run(pool, &options, try_lock, &key, NULL), PQTX_OK, NULL);
    pqtx_pool_close(pool);
}
END_TEST

/* ---- the deadline: PgBouncer invents the backend's number, so nothing can be cancelled */

#define SLEEP "SELECT pg_sleep(600)"

static pqtx_status sleep_long(pqtx_tx *tx, void *arg)
{
    (void)arg;
    return pqtx_exec(tx, SLEEP, PQTX_NO_ARGS, NULL);
}

START_TEST(the_deadline_holds_and_no_stranger_is_cancelled)
{
    PGconn *decoy = open_session(); /* of the same role, with the same statement */
    start_sql(decoy, SLEEP);
    wait_until_true(monitor, "SELECT count(*) = 1 FROM pg_stat_activity"
                             " WHERE query = '" SLEEP "' AND wait_event = 'PgSleep'");
    pqtx_options options = PQTX_OPTIONS;
    options.deadline_ms = 2000;
    struct task task = {
        .pool = pooler_pool(pooler_conninfo(), 1), .options = &options, .work = sleep_long};
    run_task(&task, PQTX_TIMEOUT);
    ck_assert(took_at_most(&task, 120, options.deadline_ms));
    ck_assert(task.error.flags & PQTX_ERROR_DEADLINE);
    ck_assert(task.error.flags & PQTX_ERROR_CONNECTION);
    ck_assert_uint_eq(stats_of(task.pool).drops, 1);
    assert_status(pqtx_run(task.pool, NULL, do_a_bit_of_all, NULL, NULL), PQTX_OK, NULL);
    pqtx_pool_close(task.pool);
    pooler_end_orphans(monitor);
    ck_assert_str_eq(finish_sql(decoy), "57P01"); /* ended now, and not cancelled before */
    PQfinish(decoy);
}
END_TEST

static pqtx_status take_first(pqtx_tx *tx, void *arg)
{
    (void)arg;
    return take(tx, 1);
}

/* Its statement goes on behind the pooler, gets the lock in the end, and finds nobody there. */
START_TEST(a_statement_given_up_at_the_deadline_changes_nothing)
{
    PGconn *holder = open_session();
    sql(holder, "BEGIN; UPDATE seat SET free = free - 1 WHERE id = 1");
    pqtx_options options = PQTX_OPTIONS;
    options.deadline_ms = 1500;
    options.lock_timeout_ms = PQTX_NO_TIMEOUT;
    struct task task = {
        .pool = pooler_pool(pooler_conninfo(), 1), .options = &options, .work = take_first};
    start_task(&task);
    wait_until_true(monitor, "SELECT count(*) = 1 FROM pg_locks WHERE NOT granted");
    join_task(&task, PQTX_TIMEOUT);
    sql(holder, "COMMIT");
    wait_until_true(monitor, "SELECT count(*) = 0 FROM pg_locks WHERE NOT granted");
    wait_until_true(monitor, "SELECT count(*) = 0 FROM pg_stat_activity"
                             " WHERE application_name = current_setting('application_name')"
                             " AND xact_start IS NOT NULL AND pid <> pg_backend_pid()");
    ck_assert_int_eq(free_seats(1), 9);
    pqtx_pool_close(task.pool);
    PQfinish(holder);
}
END_TEST

START_TEST(a_run_that_the_pooler_keeps_waiting_ends_at_the_deadline)
{
    pqtx_pool *pool = pooler_pool(pooler_one_conninfo(), 2);
    pqtx_tx *holder = hold_tx(pool, NULL, NULL);
    pqtx_options options = PQTX_OPTIONS;
    options.deadline_ms = 1000;
    struct task task = {.pool = pool, .options = &options, .work = take_first};
    run_task(&task, PQTX_NO_CONNECTION);
    ck_assert(took_at_most(&task, 120, options.deadline_ms));
    end_tx(holder);
    run_task(&task, PQTX_OK);
    ck_assert_int_eq(free_seats(1), 9);
    pqtx_pool_close(pool);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("run through a pooler");
    TCase *tcase = tcase_create("run through a pooler");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, a_race_lost_at_a_statement_is_begun_again);
    tcase_add_test(tcase, a_race_lost_at_commit_is_begun_again);
    tcase_add_test(tcase, a_deadlock_is_begun_again);
    tcase_add_test(tcase, a_row_that_stays_locked_is_waited_for_again);
    tcase_add_test(tcase, no_serializable_increment_is_lost);
    tcase_add_loop_test(tcase, no_setting_stays_with_the_session, 0, 2);
    tcase_add_test(tcase, no_prepared_statement_or_lock_stays_with_the_session);
    tcase_add_test(tcase, a_savepoint_answers_and_the_rest_commits);
    tcase_add_test(tcase, a_duplicate_names_its_constraint);
    tcase_add_test(tcase, a_conditional_update_tells_why_not);
    tcase_add_test(tcase, an_advisory_lock_lets_in_one_at_a_time);
    tcase_add_test(tcase, an_advisory_lock_that_is_held_is_seen_through_the_pooler);
    tcase_add_test(tcase, the_deadline_holds_and_no_stranger_is_cancelled);
    tcase_add_test(tcase, a_statement_given_up_at_the_deadline_changes_nothing);
    tcase_add_test(tcase, a_run_that_the_pooler_keeps_waiting_ends_at_the_deadline);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
