/* check_pooler_leader.c: behind PgBouncer in transaction mode nobody leads, and fences hold. */
#define _DEFAULT_SOURCE
#include "support.h"
#include "support_pooler.h"
#include "support_tx.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define SCHEMA "pqtx_pooler"

static PGconn *monitor; /* on the server itself */
static pqtx_leader_options options;
static pqtx_error error;

static void set_up(void)
{
    char name[32];
    snprintf(name, sizeof name, "check_pooler_%d", (int)getpid());
    setenv("PGAPPNAME", name, 1); /* tells this test's sessions from all others */
    fresh_schema(SCHEMA);
    monitor = open_session();
    sql(monitor, pqtx_leader_ddl());
    sql(monitor, "CREATE TABLE work (epoch bigint)");
    options = (pqtx_leader_options)PQTX_LEADER_OPTIONS;
    options.schema = SCHEMA;
    error = (pqtx_error)PQTX_ERROR;
}

static void tear_down(void)
{
    pooler_end_orphans(monitor);
    PQfinish(monitor);
}

static pqtx_leader *candidate(pqtx_pool *pool)
{
    pqtx_leader *leader;
    assert_status(pqtx_leader_open(pool, "boss", &options, &leader, &error), PQTX_OK, &error);
    return leader;
}

START_TEST(a_leader_is_refused_and_leaves_nothing_behind)
{
    pqtx_pool *pool = pooler_pool(pooler_conninfo(), 1);
    pqtx_leader *leader = candidate(pool);
    for (int i = 0; i < 2; i++) {
        assert_status(pqtx_leader_try(leader, &error), PQTX_MISUSE, &error);
        ck_assert_str_eq(error.message,
                         "the connection leads through a pooler, which may give its session to "
                         "others: use one to the server itself");
        assert_status(pqtx_leader_wait(leader, 20000, &error), PQTX_MISUSE, &error);
        ck_assert_int_eq(pqtx_leader_is(leader), 0);
        ck_assert_int_eq(pqtx_leader_fd(leader), -1);
    }
    ck_assert_int_eq(ask_int(monitor, "SELECT count(*) FROM pqtx_leader"), 0);
    ck_assert_int_eq(ask_int(monitor, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"),
                     0);
    pqtx_leader_close(leader);
    pqtx_pool_close(pool);
}
END_TEST

static pqtx_status write_fenced(pqtx_tx *tx, void *epoch)
{
    pqtx_fence(tx, SCHEMA, "boss", *(int64_t *)epoch);
    return pqtx_exec(tx, "INSERT INTO " SCHEMA ".work VALUES ($1)",
                     PQTX_ARGS(PQTX_INT(*(int64_t *)epoch)), NULL);
}

static pqtx_status write_in_one_flight(pqtx_tx *tx, void *epoch)
{
    pqtx_pipeline(tx);
    return write_fenced(tx, epoch);
}

static void assert_fenced(pqtx_pool *pool, int64_t epoch, pqtx_status expected)
{
    assert_status(pqtx_run(pool, NULL, write_fenced, &epoch, &error), expected, &error);
    assert_status(pqtx_run(pool, NULL, write_in_one_flight, &epoch, &error), expected, &error);
}

START_TEST(those_behind_it_write_with_the_epoch_of_a_leader_that_is_not)
{
    pqtx_pool *near = pooler_pool(test_conninfo(), 1), *far = pooler_pool(pooler_one_conninfo(), 1);
    pqtx_leader *leader = candidate(near);
    assert_status(pqtx_leader_try(leader, &error), PQTX_OK, &error);
    int64_t epoch = pqtx_leader_epoch(leader);
    assert_fenced(far, epoch, PQTX_OK);
    assert_status(pqtx_leader_release(leader, &error), PQTX_OK, &error);
    assert_status(pqtx_leader_try(leader, &error), PQTX_OK, &error);
    assert_fenced(far, epoch, PQTX_LEASE_LOST);
    assert_fenced(far, pqtx_leader_epoch(leader), PQTX_OK);
    ck_assert_int_eq(ask_int(monitor, "SELECT count(*) FROM work"), 4);
    pqtx_leader_close(leader);
    pqtx_pool_close(near);
    pqtx_pool_close(far);
}
END_TEST

static pqtx_status wait_for_one(pqtx_tx *tx, void *arg)
{
    (void)arg;
    return pqtx_lock_wait(tx, 815);
}

START_TEST(a_wait_in_slices_is_had_in_the_end)
{
    PGconn *holder = open_session();
    pqtx_options how = PQTX_OPTIONS;
    how.lock_timeout_ms = 20;
    struct task task = {
        .pool = pooler_pool(pooler_conninfo(), 1), .options = &how, .work = wait_for_one};
    sql(holder, "SELECT pg_advisory_lock(815)");
    sql(monitor, "CREATE TABLE slice (xact timestamptz PRIMARY KEY)");
    start_task(&task);
    for (int i = 0; i < 5; i++)
        wait_until_true(monitor, "WITH seen AS (INSERT INTO slice SELECT xact_start"
                                 " FROM pg_stat_activity JOIN pg_locks USING (pid)"
                                 " WHERE locktype = 'advisory' AND objid = 815 AND NOT granted"
                                 " ON CONFLICT DO NOTHING RETURNING 1)"
                                 " SELECT count(*) = 1 FROM seen");
    sql(holder, "SELECT pg_advisory_unlock(815)");
    join_task(&task, PQTX_OK);
    pqtx_pool_close(task.pool);
    PQfinish(holder);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("pooler_leader");
    TCase *c = tcase_create("leader");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_set_timeout(c, 60);
    tcase_add_test(c, a_leader_is_refused_and_leaves_nothing_behind);
    tcase_add_test(c, those_behind_it_write_with_the_epoch_of_a_leader_that_is_not);
    tcase_add_test(c, a_wait_in_slices_is_had_in_the_end);
    suite_add_tcase(s, c);
    return s;
}

int main(void)
{
    return run_suite(suite());
}
