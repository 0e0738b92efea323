/* check_pooler_prepare.c: prepared statements through PgBouncer, where whoever comes next gets the
 * session that was used before, with what is prepared there: never the wrong statement, no error on
 * the surface, and nothing left behind. */
#define _DEFAULT_SOURCE
#include "support.h"
#include "support_pooler.h"
#include "support_tx.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SCHEMA "pqtx_prepare"

static PGconn *monitor; /* on the server itself */

/* A pooler that can is told to keep track of prepared statements, or not to; one that cannot does
 * not. */
static bool track_statements(bool wanted)
{
    PGconn *console = pooler_session(getenv("PQTX_TEST_POOLER_ADMIN"));
    PGresult *answer = PQexec(console, wanted ? "SET max_prepared_statements = 200"
                                              : "SET max_prepared_statements = 0");
    bool told = PQresultStatus(answer) == PGRES_COMMAND_OK;
    PQclear(answer);
    PQfinish(console);
    return told || !wanted;
}

static void set_up(void)
{
    char name[32];
    snprintf(name, sizeof name, "check_prepare_%d", (int)getpid());
    setenv("PGAPPNAME", name, 1); /* tells this test's sessions from all others */
    fresh_schema(SCHEMA);
    pooler_do("RECONNECT"); /* sessions in which nothing is prepared */
    monitor = open_session();
    sql(monitor, "CREATE TABLE tally (id int PRIMARY KEY, value bigint NOT NULL)");
    sql(monitor, "INSERT INTO tally SELECT i, 0 FROM generate_series(0, 15) AS i");
}

static void tear_down(void)
{
    pooler_do("RELOAD");
    PQfinish(monitor);
}

/* ---- statements that are alike, and tell by their answers which of them ran */

enum { KINDS = 8, ROUNDS = 60 };

struct call {
    int kind;       /* of the statement */
    int64_t number; /* its parameter */
};

/* Each adds to a row of its own, and says which. */
static pqtx_status run_kind(pqtx_tx *tx, void *arg)
{
    const struct call *call = arg;
    const PGresult *row;
    char text[160], expected[32];
    snprintf(text, sizeof text,
             "UPDATE " SCHEMA ".tally SET value = value + 1 WHERE id = %d"
             " RETURNING 'kind %d: ' || $1::int8",
             call->kind, call->kind);
    snprintf(expected, sizeof expected, "kind %d: %lld", call->kind, (long long)call->number);
    pqtx_status status = pqtx_exec_one(tx, text, PQTX_ARGS(PQTX_INT(call->number)), &row);
    if (status == PQTX_OK && strcmp(PQgetvalue(row, 0, 0), expected) != 0)
        return pqtx_fail(tx, PQTX_STOPPED);
    return status;
}

static void call_kind(pqtx_pool *pool, int kind, int64_t number)
{
    struct call call = {kind, number};
    pqtx_error error = PQTX_ERROR;
    assert_status(pqtx_run(pool, NULL, run_kind, &call, &error), PQTX_OK, &error);
}

static void assert_tally(int64_t each)
{
    char query[96];
    snprintf(query, sizeof query, "SELECT bool_and(value = %lld) FROM tally WHERE id < %d",
             (long long)each, KINDS);
    ck_assert_str_eq(ask(monitor, query), "t");
}

/* In all sessions that the pooler has: as many clients, each with a transaction open, see them. */
static void assert_nothing_is_left(const char *conninfo, int sessions)
{
    PGconn *clients[4];
    for (int i = 0; i < sessions; i++) {
        clients[i] = pooler_session(conninfo);
        sql(clients[i], "BEGIN");
        ck_assert_str_eq(ask(clients[i],
                             "SELECT coalesce(left(string_agg(name || ': ' || statement,"
                             " '; '), 500), 'nothing') FROM pg_prepared_statements"
                             " WHERE NOT from_sql"),
                         "nothing");
    }
    for (int i = 0; i < sessions; i++)
        PQfinish(clients[i]);
}

START_TEST(on_the_server_itself_a_statement_is_prepared_at_its_second_use)
{
    pqtx_pool *pool = pooler_pool(test_conninfo(), 1);
    pqtx_tx *tx = pqtx_new(pool, NULL);
    struct call call = {0, 1};
    const PGresult *row;
    int64_t prepared;
    call_kind(pool, 0, 1);
    call_kind(pool, 0, 2);
    ck_assert_int_eq(pqtx_attempt(tx), 1);
    assert_status(run_kind(tx, &call), PQTX_OK, NULL);
    pqtx_exec_one(tx, "SELECT count(*) FROM pg_prepared_statements WHERE NOT from_sql",
                  PQTX_NO_ARGS, &row);
    ck_assert_int_eq(pqtx_get_int(row, 0, 0, &prepared), PQTX_OK);
    ck_assert_int_eq(prepared, 1);
    end_tx(tx);
    pqtx_pool_close(pool);
}
END_TEST

/* Each pool has statements of its own, and all of them meet in one session. */
START_TEST(two_pools_in_one_session_never_run_each_others_statements)
{
    pqtx_pool *pools[2];
    if (!track_statements(_i == 1)) {
        puts("this pooler cannot keep track of prepared statements: not tried");
        return;
    }
    for (int i = 0; i < 2; i++)
        pools[i] = pooler_pool(pooler_one_conninfo(), 1);
    for (int round = 0; round < ROUNDS; round++)
        for (int kind = 0; kind < KINDS; kind++)
            call_kind(pools[kind % 2], kind, round);
    assert_tally(ROUNDS);
    for (int i = 0; i < 2; i++) {
        ck_assert_uint_eq(stats_of(pools[i]).drops, 0);
        ck_assert_uint_eq(stats_of(pools[i]).connects, 1);
        pqtx_pool_close(pools[i]);
    }
    if (_i == 0)
        assert_nothing_is_left(pooler_one_conninfo(), 1);
}
END_TEST

START_TEST(two_pools_in_one_session_may_run_the_same_statements)
{
    pqtx_pool *pools[2];
    if (!track_statements(_i == 1))
        return;
    for (int i = 0; i < 2; i++)
        pools[i] = pooler_pool(pooler_one_conninfo(), 1);
    for (int round = 0; round < ROUNDS; round++)
        for (int kind = 0; kind < KINDS; kind++)
            call_kind(pools[(round / 3 + kind) % 2], kind, round);
    assert_tally(ROUNDS);
    for (int i = 0; i < 2; i++)
        pqtx_pool_close(pools[i]);
    if (_i == 0)
        assert_nothing_is_left(pooler_one_conninfo(), 1);
}
END_TEST

/* ---- more clients than sessions: what is prepared is there in one, and not in the next */

enum { THREADS = 6 };

struct crowd {
    pqtx_pool *pool;
    int number;
    pthread_t thread;
    pqtx_status status;
    pqtx_error error;
};

static void *call_all_kinds(void *arg)
{
    struct crowd *crowd = arg;
    pqtx_options options = PQTX_OPTIONS;
    options.lock_timeout_ms = PQTX_NO_TIMEOUT;
    for (int i = 0; i < ROUNDS * KINDS && crowd->status == PQTX_OK; i++) {
        struct call call = {(i + crowd->number) % KINDS, i};
        crowd->error = (pqtx_error)PQTX_ERROR;
        crowd->status = pqtx_run(crowd->pool, &options, run_kind, &call, &crowd->error);
    }
    return NULL;
}

START_TEST(threads_that_meet_in_few_sessions_never_run_a_wrong_statement)
{
    pqtx_pool *pools[2];
    struct crowd crowds[THREADS];
    if (!track_statements(_i == 1))
        return;
    for (int i = 0; i < 2; i++)
        pools[i] = pooler_pool(pooler_conninfo(), THREADS / 2);
    for (int i = 0; i < THREADS; i++) {
        crowds[i] = (struct crowd){.pool = pools[i % 2], .number = i};
        ck_assert(pthread_create(&crowds[i].thread, NULL, call_all_kinds, &crowds[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(crowds[i].thread, NULL);
        assert_status(crowds[i].status, PQTX_OK, &crowds[i].error);
    }
    assert_tally(ROUNDS * THREADS);
    for (int i = 0; i < 2; i++)
        pqtx_pool_close(pools[i]);
    if (_i == 0)
        assert_nothing_is_left(pooler_conninfo(), 4);
}
END_TEST

/* The pooler's new session knows nothing of what was prepared in the old one. */
START_TEST(a_session_that_is_replaced_surfaces_no_error)
{
    pqtx_pool *pool = pooler_pool(pooler_one_conninfo(), 1);
    if (!track_statements(_i == 1)) {
        pqtx_pool_close(pool);
        return;
    }
    for (int round = 0; round < 20; round++) {
        pooler_do("RECONNECT pooled_one");
        for (int twice = 0; twice < 2; twice++)
            for (int kind = 0; kind < KINDS; kind++)
                call_kind(pool, kind, round);
    }
    assert_tally(2 * 20);
    ck_assert_uint_eq(stats_of(pool).connects, 1);
    pqtx_pool_close(pool);
    if (_i == 0)
        assert_nothing_is_left(pooler_one_conninfo(), 1);
}
END_TEST

/* One that failed for want of it begins again, but not in a savepoint, which cannot mend that. */
static pqtx_status run_kinds_in_savepoint(pqtx_tx *tx, void *arg)
{
    struct call call = {0, *(int64_t *)arg};
    for (call.kind = 0; call.kind < KINDS; call.kind++) {
        pqtx_status status = pqtx_savepoint(tx, run_kind, &call);
        if (status != PQTX_OK)
            return status;
    }
    return PQTX_OK;
}

START_TEST(a_savepoint_hides_no_missing_statement)
{
    pqtx_pool *pools[2];
    for (int i = 0; i < 2; i++)
        pools[i] = pooler_pool(pooler_one_conninfo(), 1);
    track_statements(false);
    for (int64_t round = 0; round < 20; round++) {
        pqtx_error error = PQTX_ERROR;
        assert_status(pqtx_run(pools[round / 3 % 2], NULL, run_kinds_in_savepoint, &round, &error),
                      PQTX_OK, &error);
        if (round % 7 == 3)
            pooler_do("RECONNECT pooled_one");
    }
    assert_tally(20);
    for (int i = 0; i < 2; i++)
        pqtx_pool_close(pools[i]);
    assert_nothing_is_left(pooler_one_conninfo(), 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("statements prepared through a pooler");
    TCase *tcase = tcase_create("statements prepared through a pooler");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, on_the_server_itself_a_statement_is_prepared_at_its_second_use);
    tcase_add_loop_test(tcase, two_pools_in_one_session_never_run_each_others_statements, 0, 2);
    tcase_add_loop_test(tcase, two_pools_in_one_session_may_run_the_same_statements, 0, 2);
    tcase_add_loop_test(tcase, threads_that_meet_in_few_sessions_never_run_a_wrong_statement, 0, 2);
    tcase_add_loop_test(tcase, a_session_that_is_replaced_surfaces_no_error, 0, 2);
    tcase_add_test(tcase, a_savepoint_hides_no_missing_statement);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
