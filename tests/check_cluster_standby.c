/* check_cluster_standby.c: a server that only reads: what is refused there, and what is not. */
#include "support.h"
#include "support_cluster.h"
#include "support_doubt.h"
#include "support_tx.h"

#include <stdio.h>
#include <stdlib.h>

static PGconn *primary, *standby;

static void renew(void)
{
    cluster_do("renew");
}

static void set_up(void)
{
    primary = cluster_session(primary_conninfo());
    standby = cluster_session(standby_conninfo());
    sql(primary, "DROP TABLE IF EXISTS mark; CREATE TABLE mark (id bigint)");
    sql(primary, pqtx_once_ddl());
    sql(primary, "INSERT INTO mark VALUES (0)");
    cluster_catch_up(primary, standby);
}

static void tear_down(void)
{
    PQfinish(primary);
    PQfinish(standby);
}

static pqtx_status write_mark(pqtx_tx *tx, void *arg)
{
    (void)arg;
    return pqtx_exec(tx, "INSERT INTO mark VALUES (1)", PQTX_NO_ARGS, NULL);
}

static pqtx_status count_marks(pqtx_tx *tx, void *count)
{
    const PGresult *result;
    pqtx_status status = pqtx_exec(tx, "SELECT count(*) FROM mark", PQTX_NO_ARGS, &result);
    return status == PQTX_OK ? pqtx_get_int(result, 0, 0, count) : status;
}

START_TEST(a_write_on_a_standby_is_tried_again_each_time_on_a_new_connection)
{
    pqtx_pool *pool = cluster_pool(standby_conninfo());
    pqtx_options options = PQTX_OPTIONS;
    pqtx_error error = PQTX_ERROR;
    options.max_attempts = 3;
    assert_status(pqtx_run(pool, &options, write_mark, NULL, &error), PQTX_READ_ONLY, &error);
    ck_assert_str_eq(error.sqlstate, "25006");
    ck_assert_uint_eq(error.attempt, 3);
    ck_assert(error.flags & PQTX_ERROR_ATTEMPTS);
    ck_assert(error.flags & PQTX_ERROR_CONNECTION);
    pqtx_stats stats = stats_of(pool);
    ck_assert_uint_eq(stats.connects, 3);
    ck_assert_uint_eq(stats.drops, 3);
    pqtx_pool_close(pool);
}
END_TEST

START_TEST(a_write_in_a_read_only_run_is_refused_once_and_the_connection_kept)
{
    const char *const servers[] = {primary_conninfo(), standby_conninfo()};
    pqtx_pool *pool = cluster_pool(servers[_i]);
    pqtx_options options = PQTX_OPTIONS;
    pqtx_error error = PQTX_ERROR;
    options.access = PQTX_ACCESS_READ_ONLY;
    assert_status(pqtx_run(pool, &options, write_mark, NULL, &error), PQTX_READ_ONLY, &error);
    ck_assert_uint_eq(error.attempt, 1);
    ck_assert_uint_eq(stats_of(pool).drops, 0);
    pqtx_pool_close(pool);
}
END_TEST

START_TEST(of_several_hosts_the_pool_takes_the_one_that_writes)
{
    char conninfo[512];
    snprintf(conninfo, sizeof conninfo,
             "host=%s,%s user=%s dbname=%s target_session_attrs=read-write", PQhost(standby),
             PQhost(primary), PQuser(primary), PQdb(primary));
    pqtx_pool *pool = cluster_pool(conninfo);
    pqtx_error error = PQTX_ERROR;
    assert_status(pqtx_run(pool, NULL, write_mark, NULL, &error), PQTX_OK, &error);
    ck_assert_int_eq(ask_int(primary, "SELECT count(*) FROM mark WHERE id = 1"), 1);
    pqtx_pool_close(pool);
}
END_TEST

START_TEST(reading_on_a_standby_is_like_reading_elsewhere)
{
    pqtx_pool *pool = cluster_pool(standby_conninfo());
    pqtx_options options = PQTX_OPTIONS;
    pqtx_error error = PQTX_ERROR;
    int64_t count = 0;
    options.isolation = PQTX_ISO_REPEATABLE_READ;
    options.in_doubt = PQTX_DOUBT_XID;
    assert_status(pqtx_run(pool, &options, count_marks, &count, &error), PQTX_OK, &error);
    ck_assert_int_eq(count, 1);
    pqtx_pool_close(pool);
}
END_TEST

START_TEST(serializable_on_a_standby_is_refused_once)
{
    pqtx_pool *pool = cluster_pool(standby_conninfo());
    pqtx_options options = PQTX_OPTIONS;
    pqtx_error error = PQTX_ERROR;
    options.isolation = PQTX_ISO_SERIALIZABLE;
    options.flags = _i == 0 ? 0 : PQTX_PIPELINE; /* then COMMIT is under way when BEGIN fails */
    assert_status(pqtx_run(pool, &options, write_mark, NULL, &error), PQTX_BAD_STATEMENT, &error);
    ck_assert_str_eq(error.sqlstate, "0A000");
    ck_assert_uint_eq(error.attempt, 1);
    pqtx_pool_close(pool);
}
END_TEST

/* BEGIN itself fails there, and what follows in the flight is passed over up to the first Sync; the
 * COMMIT behind that is answered with its tag all the same. */
START_TEST(one_flight_whose_begin_is_refused_is_not_committed)
{
    pqtx_pool *pool = cluster_pool(standby_conninfo());
    pqtx_options options = PQTX_OPTIONS;
    pqtx_error error = PQTX_ERROR;
    options.flags = PQTX_PIPELINE;
    if (_i == 0)
        options.isolation = PQTX_ISO_SERIALIZABLE;
    else
        options.access = PQTX_ACCESS_READ_WRITE;
    assert_status(pqtx_run(pool, &options, write_mark, NULL, &error), PQTX_BAD_STATEMENT, &error);
    ck_assert_str_eq(error.sqlstate, "0A000");
    ck_assert_uint_eq(error.attempt, 1);
    ck_assert_uint_eq(stats_of(pool).commits, 0);
    pqtx_pool_close(pool);
}
END_TEST

/* The first attempt holds a snapshot that the primary's VACUUM makes impossible. */
static pqtx_status read_in_the_way(pqtx_tx *tx, void *count)
{
    int64_t pid;
    char gone[96];
    pqtx_status status = ask_pid(tx, &pid);
    if (status == PQTX_OK)
        status = count_marks(tx, count);
    if (status != PQTX_OK || pqtx_attempts(tx) > 1)
        return status;
    sql(primary, "DELETE FROM mark");
    sql(primary, "VACUUM mark");
    snprintf(gone, sizeof gone, "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = %lld",
             (long long)pid);
    cluster_wait(standby, gone);
    return count_marks(tx, count);
}

START_TEST(a_reader_that_stood_in_the_way_of_replay_begins_again)
{
    pqtx_pool *pool = cluster_pool(standby_conninfo());
    pqtx_options options = PQTX_OPTIONS;
    pqtx_error error = PQTX_ERROR;
    pqtx_evidence evidence = PQTX_EVIDENCE;
    int64_t count = -1;
    options.isolation = PQTX_ISO_REPEATABLE_READ;
    options.evidence = &evidence;
    assert_status(pqtx_run(pool, &options, read_in_the_way, &count, &error), PQTX_OK, &error);
    ck_assert_int_eq(count, 0);
    ck_assert_uint_ge(evidence.count, 1);
    ck_assert_str_eq(evidence.records[0].sqlstate, "40001");
    assert_status(evidence.records[0].status, PQTX_SERIALIZATION, &error);
    ck_assert(evidence.records[0].flags & PQTX_ERROR_CONNECTION);
    pqtx_pool_close(pool);
}
END_TEST

static pqtx_outcome resolve_on(const char *conninfo, const pqtx_ticket *ticket)
{
    pqtx_pool *pool = cluster_pool(conninfo);
    pqtx_outcome outcome;
    pqtx_resolve(pool, ticket, 300, &outcome, NULL);
    pqtx_pool_close(pool);
    return outcome;
}

/* There a token cannot be voided, and an xid may be one of another history. */
START_TEST(a_standby_settles_no_doubt)
{
    static const pqtx_doubt ways[] = {PQTX_DOUBT_TOKEN, PQTX_DOUBT_XID};
    make_doubt("pqtx_standby");
    pqtx_ticket ticket = leave_in_doubt(ways[_i], 1, false);
    ck_assert_int_eq(resolve_on(standby_conninfo(), &ticket), PQTX_OUTCOME_IN_DOUBT);
    ck_assert_int_eq(resolve_on(primary_conninfo(), &ticket), PQTX_OUTCOME_COMMITTED);
    cluster_catch_up(primary, standby);
    ck_assert_int_eq(resolve_on(standby_conninfo(), &ticket), PQTX_OUTCOME_IN_DOUBT);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("standby");
    TCase *tcase = tcase_create("standby");
    tcase_set_timeout(tcase, 60);
    tcase_add_unchecked_fixture(tcase, renew, NULL);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, a_write_on_a_standby_is_tried_again_each_time_on_a_new_connection);
    tcase_add_loop_test(tcase, a_write_in_a_read_only_run_is_refused_once_and_the_connection_kept,
                        0, 2);
    tcase_add_test(tcase, of_several_hosts_the_pool_takes_the_one_that_writes);
    tcase_add_test(tcase, reading_on_a_standby_is_like_reading_elsewhere);
    tcase_add_loop_test(tcase, serializable_on_a_standby_is_refused_once, 0, 2);
    tcase_add_loop_test(tcase, one_flight_whose_begin_is_refused_is_not_committed, 0, 2);
    tcase_add_test(tcase, a_reader_that_stood_in_the_way_of_replay_begins_again);
    tcase_add_loop_test(tcase, a_standby_settles_no_doubt, 0, 2);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
