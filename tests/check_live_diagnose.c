/* check_live_diagnose.c: who is in the way: as the server sees it, in words, and in a busy error.
 */
#include "support.h"
#include "support_tx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MANY = 40 };

static PGconn *monitor, *holder, *second, *third;
static pqtx_pool *pool;
static pqtx_blocker blockers[MANY];
static size_t found;

/* What a test that failed has left behind would be in the way of all that follow. */
static void end_prepared(void)
{
    char statement[256];
    PGconn *session = open_session();
    PGresult *left = PQexec(session, "SELECT format('ROLLBACK PREPARED %L', gid)"
                                     " FROM pg_prepared_xacts WHERE database = current_database()");
    for (int i = 0; i < PQntuples(left); i++) {
        snprintf(statement, sizeof statement, "%s", PQgetvalue(left, i, 0));
        sql(session, statement);
    }
    PQclear(left);
    PQfinish(session);
}

static void set_up(void)
{
    end_prepared();
    fresh_schema("pqtx_diagnose");
    monitor = open_session();
    holder = open_session();
    second = open_session();
    third = open_session();
    pool = open_pool(3);
    memset(blockers, 0, sizeof blockers);
    blockers[0].size = sizeof blockers[0];
    sql(monitor, "CREATE TABLE \"Seat\" (id int PRIMARY KEY, v int, u int UNIQUE);"
                 "INSERT INTO \"Seat\" SELECT g, 0, g FROM generate_series(1, 9) AS g");
    sql(holder, "SET application_name = 'the holder'");
    sql(second, "SET application_name = 'the second'; SET deadlock_timeout = '1h'");
    sql(third, "SET application_name = 'the third'; SET deadlock_timeout = '1h'");
}

static void tear_down(void)
{
    PQfinish(holder);
    PQfinish(second);
    PQfinish(third);
    pqtx_pool_close(pool);
    PQfinish(monitor);
}

static void look(int pid)
{
    pqtx_error error = PQTX_ERROR;
    pqtx_status status = pqtx_blockers(pool, NULL, pid, blockers, MANY, &found, &error);
    assert_status(status, PQTX_OK, &error);
}

/* The row that says that `pid` blocks `waiter`. */
static const pqtx_blocker *edge(int pid, int waiter)
{
    for (size_t i = 0; i < found; i++)
        if (blockers[i].pid == pid && blockers[i].blocks_pid == waiter)
            return &blockers[i];
    ck_abort_msg("nobody says that %d blocks %d", pid, waiter);
    return NULL;
}

static int pid_of(PGconn *session)
{
    return PQbackendPID(session);
}

static void block(PGconn *session, const char *statement)
{
    start_sql(session, statement);
    wait_until_blocked(monitor, pid_of(session));
}

static void let_go(PGconn *session)
{
    sql(session, "ROLLBACK");
}

static void end(PGconn *session, const char *sqlstate)
{
    ck_assert_str_eq(finish_sql(session), sqlstate);
}

#define UPDATE_1 "UPDATE \"Seat\" SET v = 2 WHERE id = 1"

/* ---- who blocks a backend */

START_TEST(nobody_blocks_who_does_not_wait)
{
    look(pid_of(holder));
    ck_assert_uint_eq(found, 0);
    sql(holder, "BEGIN; " UPDATE_1);
    look(pid_of(holder));
    ck_assert_uint_eq(found, 0);
}
END_TEST

START_TEST(nobody_blocks_who_has_gone)
{
    look(2147483647);
    ck_assert_uint_eq(found, 0);
    int pid = pid_of(holder);
    char query[96];
    PQfinish(holder);
    holder = open_session();
    snprintf(query, sizeof query, "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = %d", pid);
    wait_until_true(monitor, query);
    look(pid);
    ck_assert_uint_eq(found, 0);
}
END_TEST

START_TEST(the_blocker_is_shown_in_full)
{
    sql(holder, "BEGIN; " UPDATE_1);
    block(second, UPDATE_1);
    look(pid_of(second));
    ck_assert_uint_eq(found, 1);
    const pqtx_blocker *b = edge(pid_of(holder), pid_of(second));
    ck_assert_uint_eq(b->size, sizeof *b);
    ck_assert_uint_eq(b->flags, 0);
    ck_assert_uint_eq(b->level, 1);
    ck_assert_str_eq(b->user_name, ask(monitor, "SELECT session_user"));
    ck_assert_str_eq(b->database_name, ask(monitor, "SELECT current_database()"));
    ck_assert_str_eq(b->application_name, "the holder");
    ck_assert_str_eq(b->client, "");
    ck_assert_str_eq(b->state, "idle in transaction");
    ck_assert_str_eq(b->query, "BEGIN; " UPDATE_1);
    ck_assert_str_eq(b->waits_for, "");
    ck_assert_str_eq(b->gid, "");
    ck_assert_int_ge(b->transaction_us, b->state_us);
    ck_assert_int_ge(b->query_us, b->state_us);
    ck_assert_int_ge(b->state_us, 0);
    ck_assert_int_lt(b->transaction_us, 60000000);
    ck_assert_int_eq(b->wait_us, -1);
    let_go(holder);
    end(second, "");
}
END_TEST

/* Who is third in the queue waits for the second, who waits for the holder. */
START_TEST(where_a_blocker_waits_it_is_looked_up_to_the_root)
{
    sql(holder, "BEGIN; " UPDATE_1);
    block(second, UPDATE_1);
    block(third, UPDATE_1);
    look(pid_of(third));
    ck_assert_uint_eq(found, 2);
    const pqtx_blocker *next = edge(pid_of(second), pid_of(third));
    const pqtx_blocker *root = edge(pid_of(holder), pid_of(second));
    ck_assert_uint_eq(next->level, 1);
    ck_assert_uint_eq(next->flags, PQTX_BLOCKER_WAITS);
    ck_assert_ptr_ne(strstr(next->waits_for, "ShareLock on transactionid "), NULL);
    ck_assert_str_eq(next->state, "active");
    if (PQserverVersion(monitor) >= 140000)
        ck_assert_int_ge(next->wait_us, 0);
    else
        ck_assert_int_eq(next->wait_us, -1);
    ck_assert_uint_eq(root->level, 2);
    ck_assert_uint_eq(root->flags, 0);
    let_go(holder);
    end(second, "");
    end(third, "");
}
END_TEST

START_TEST(several_blockers_are_all_shown)
{
    sql(holder, "BEGIN; SELECT FROM \"Seat\" WHERE id = 1 FOR SHARE");
    sql(second, "BEGIN; SELECT FROM \"Seat\" WHERE id = 1 FOR SHARE");
    block(third, "BEGIN; LOCK TABLE \"Seat\"");
    look(pid_of(third));
    ck_assert_uint_eq(found, 2);
    edge(pid_of(holder), pid_of(third));
    edge(pid_of(second), pid_of(third));
    let_go(holder);
    let_go(second);
    end(third, "");
    let_go(third);
}
END_TEST

/* What the waiting one waits for, seen from somebody whom it blocks. */
static void assert_waits_for(const char *hold, const char *want, const char *expected)
{
    sql(holder, hold);
    sql(second, "BEGIN; LOCK TABLE pqtx_gate");
    block(second, want);
    block(third, "SELECT * FROM pqtx_gate");
    look(pid_of(third));
    const char *waits_for = edge(pid_of(second), pid_of(third))->waits_for;
    ck_assert_msg(strncmp(waits_for, expected, strlen(expected)) == 0, "%s", waits_for);
    let_go(holder);
    end(second, "");
    let_go(second);
    end(third, "");
}

START_TEST(what_a_blocker_waits_for_is_told)
{
    sql(monitor, "CREATE TABLE pqtx_gate ()");
    assert_waits_for("BEGIN; LOCK TABLE \"Seat\"", "SELECT * FROM \"Seat\"",
                     "AccessShareLock on relation pqtx_diagnose.\"Seat\"");
    assert_waits_for("BEGIN; SELECT pg_advisory_xact_lock(-5)", "SELECT pg_advisory_xact_lock(-5)",
                     "ExclusiveLock on advisory key -5");
    assert_waits_for("BEGIN; SELECT pg_advisory_xact_lock(-1, 7)",
                     "SELECT pg_advisory_xact_lock_shared(-1, 7)",
                     "ShareLock on advisory pair -1,7");
    assert_waits_for("BEGIN; " UPDATE_1, UPDATE_1, "ShareLock on transactionid ");
}
END_TEST

/* ---- prepared transactions */

#define PREPARE_AS(gid) "PREPARE TRANSACTION '" gid "'"

static void need_prepared(void)
{
    if (ask_int(monitor, "SHOW max_prepared_transactions") == 0)
        sql(holder, "max_prepared_transactions is 0 on this server");
}

START_TEST(a_prepared_transaction_is_named)
{
    need_prepared();
    sql(holder, "BEGIN; " UPDATE_1 "; " PREPARE_AS("it''s gone"));
    sql(holder, "BEGIN; UPDATE \"Seat\" SET v = 2 WHERE id = 2; " PREPARE_AS("another"));
    block(second, UPDATE_1);
    look(pid_of(second));
    ck_assert_uint_eq(found, 1);
    const pqtx_blocker *b = edge(0, pid_of(second));
    ck_assert_uint_eq(b->flags, PQTX_BLOCKER_PREPARED);
    ck_assert_str_eq(b->gid, "it's gone");
    ck_assert_str_eq(b->user_name, ask(monitor, "SELECT session_user"));
    ck_assert_str_eq(b->database_name, ask(monitor, "SELECT current_database()"));
    ck_assert_int_ge(b->transaction_us, 0);
    look(0);
    ck_assert_uint_eq(found, 2); /* and the one who waits */
    ck_assert_str_eq(edge(0, pid_of(second))->gid, "it's gone");
    sql(holder, "ROLLBACK PREPARED 'it''s gone'");
    sql(holder, "ROLLBACK PREPARED 'another'");
    end(second, "");
}
END_TEST

/* Two of them have locked the table, one in a mode that does not matter to who waits. */
START_TEST(a_prepared_transaction_that_is_not_in_the_way_is_left_out)
{
    need_prepared();
    sql(holder, "BEGIN; LOCK TABLE \"Seat\" IN SHARE MODE; " PREPARE_AS("in the way"));
    sql(holder, "BEGIN; LOCK TABLE \"Seat\" IN ROW SHARE MODE; " PREPARE_AS("harmless"));
    block(second, UPDATE_1);
    look(pid_of(second));
    ck_assert_uint_eq(found, 1);
    ck_assert_str_eq(blockers[0].gid, "in the way");
    sql(holder, "ROLLBACK PREPARED 'in the way'");
    sql(holder, "ROLLBACK PREPARED 'harmless'");
    end(second, "");
}
END_TEST

START_TEST(a_prepared_transaction_with_savepoints_is_found)
{
    need_prepared();
    sql(holder, "BEGIN; SAVEPOINT s; " UPDATE_1 "; RELEASE s; SAVEPOINT r; "
                "UPDATE \"Seat\" SET v = 1 WHERE id = 3; " PREPARE_AS("deep"));
    block(second, "UPDATE \"Seat\" SET v = 2 WHERE id = 3");
    look(pid_of(second));
    ck_assert_uint_eq(found, 1);
    ck_assert_str_eq(blockers[0].gid, "deep");
    sql(holder, "ROLLBACK PREPARED 'deep'");
    end(second, "");
}
END_TEST

/* ---- the whole database */

START_TEST(every_wait_of_the_database_is_shown)
{
    sql(holder, "BEGIN; " UPDATE_1);
    block(second, "BEGIN; " UPDATE_1);
    block(third, UPDATE_1);
    look(0);
    ck_assert_uint_eq(found, 3);
    ck_assert_uint_eq(edge(pid_of(holder), pid_of(second))->flags, 0);
    ck_assert_uint_eq(edge(pid_of(second), pid_of(third))->flags, PQTX_BLOCKER_WAITS);
    const pqtx_blocker *leaf = edge(pid_of(third), 0);
    ck_assert_uint_eq(leaf->flags, PQTX_BLOCKER_WAITS);
    ck_assert_ptr_ne(strstr(leaf->waits_for, "tuple pqtx_diagnose.\"Seat\" page 0 row 1"), NULL);
    let_go(holder);
    end(second, "");
    let_go(second);
    end(third, "");
    look(0);
    ck_assert_uint_eq(found, 0);
}
END_TEST

/* deadlock_timeout is an hour: nobody breaks it. */
START_TEST(a_circle_is_shown_and_ends_the_search)
{
    sql(second, "BEGIN; " UPDATE_1);
    sql(third, "BEGIN; UPDATE \"Seat\" SET v = 2 WHERE id = 2");
    block(second, "UPDATE \"Seat\" SET v = 2 WHERE id = 2");
    block(third, UPDATE_1);
    look(0);
    ck_assert_uint_eq(found, 2);
    edge(pid_of(second), pid_of(third));
    edge(pid_of(third), pid_of(second));
    look(pid_of(second));
    ck_assert_uint_eq(found, 2);
    edge(pid_of(second), pid_of(third));
    edge(pid_of(third), pid_of(second));
    char query[64];
    snprintf(query, sizeof query, "SELECT pg_cancel_backend(%d)", pid_of(third));
    sql(monitor, query);
    end(third, "57014");
    let_go(third);
    end(second, "");
    let_go(second);
}
END_TEST

/* A parallel worker waits, or holds; who is known to clients is its leader. */
START_TEST(a_parallel_worker_counts_as_its_leader)
{
    const char *force =
        PQserverVersion(monitor) >= 160000 ? "debug_parallel_query" : "force_parallel_mode";
    char setting[256];
    sql(monitor, "CREATE FUNCTION take(int) RETURNS bool LANGUAGE plpgsql PARALLEL SAFE AS"
                 " 'BEGIN PERFORM pg_advisory_xact_lock_shared(77); RETURN true; END'");
    snprintf(setting, sizeof setting,
             "SET %s = on; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0;"
             "SET min_parallel_table_scan_size = 0; SET parallel_leader_participation = off",
             force);
    sql(holder, "BEGIN; SELECT pg_advisory_xact_lock(77)");
    sql(second, setting);
    block(second, "BEGIN; SELECT count(*) FROM \"Seat\" WHERE take(id)");
    ck_assert_str_eq(ask(monitor, "SELECT bool_and(a.leader_pid IS NOT NULL) FROM pg_locks AS l"
                                  " JOIN pg_stat_activity AS a USING (pid) WHERE NOT l.granted"),
                     "t"); /* else nothing is tried here */
    look(pid_of(second));
    ck_assert_uint_eq(found, 1);
    edge(pid_of(holder), pid_of(second));
    look(0);
    ck_assert_uint_eq(found, 2);
    edge(pid_of(holder), pid_of(second));
    edge(pid_of(second), 0);
    let_go(holder);
    end(second, "");
    let_go(second);
}
END_TEST

START_TEST(a_deferrable_transaction_is_blocked_by_the_writers_before_it)
{
    char query[128];
    sql(holder, "BEGIN ISOLATION LEVEL SERIALIZABLE; " UPDATE_1);
    start_sql(second, "BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY DEFERRABLE; SELECT 1");
    snprintf(query, sizeof query, "SELECT cardinality(pg_safe_snapshot_blocking_pids(%d)) > 0",
             pid_of(second));
    wait_until_true(monitor, query);
    look(pid_of(second));
    ck_assert_uint_eq(found, 1);
    edge(pid_of(holder), pid_of(second));
    look(0);
    ck_assert_uint_eq(found, 2);
    ck_assert_str_eq(edge(pid_of(second), 0)->waits_for, "safe snapshot");
    let_go(holder);
    end(second, "");
    let_go(second);
}
END_TEST

/* ---- the caller's array */

START_TEST(what_does_not_fit_is_counted)
{
    sql(holder, "BEGIN; " UPDATE_1);
    block(second, UPDATE_1);
    block(third, UPDATE_1);
    ck_assert_int_eq(pqtx_blockers(pool, NULL, pid_of(third), blockers, 1, &found, NULL), PQTX_OK);
    ck_assert_uint_eq(found, 2);
    ck_assert_int_eq(blockers[0].pid, pid_of(second));
    ck_assert_int_eq(blockers[1].pid, 0);
    found = 0;
    ck_assert_int_eq(pqtx_blockers(pool, NULL, pid_of(third), NULL, 0, &found, NULL), PQTX_OK);
    ck_assert_uint_eq(found, 2);
    ck_assert_int_eq(pqtx_blockers(pool, NULL, pid_of(third), blockers, MANY, NULL, NULL), PQTX_OK);
    let_go(holder);
    end(second, "");
    end(third, "");
}
END_TEST

struct longer {
    pqtx_blocker known;
    char tail[40];
};

START_TEST(structs_of_other_versions_are_filled_as_far_as_they_go)
{
    size_t shorter = offsetof(pqtx_blocker, application_name);
    struct longer list[2] = {{.tail = "x"}, {.tail = "y"}};
    sql(holder, "BEGIN; " UPDATE_1);
    block(second, UPDATE_1);
    block(third, UPDATE_1);
    list[0].known.size = sizeof list[0];
    ck_assert_int_eq(pqtx_blockers(pool, NULL, pid_of(third), &list[0].known, 2, &found, NULL),
                     PQTX_OK);
    ck_assert_int_eq(list[0].known.pid, pid_of(second));
    ck_assert_int_eq(list[1].known.pid, pid_of(holder));
    ck_assert_uint_eq(list[1].known.size, sizeof list[1]);
    ck_assert_str_eq(list[1].tail, "");
    blockers[0].size = shorter;
    ck_assert_int_eq(pqtx_blockers(pool, NULL, pid_of(third), blockers, 2, &found, NULL), PQTX_OK);
    int32_t pid;
    memcpy(&pid, (char *)blockers + shorter + offsetof(pqtx_blocker, pid), sizeof pid);
    ck_assert_int_eq(pid, pid_of(holder));
    let_go(holder);
    end(second, "");
    end(third, "");
}
END_TEST

START_TEST(wrong_arguments_are_misuse)
{
    pqtx_error error = PQTX_ERROR;
    ck_assert_int_eq(pqtx_blockers(pool, NULL, -1, blockers, MANY, &found, &error), PQTX_MISUSE);
    ck_assert_str_ne(error.message, "");
    ck_assert_int_eq(pqtx_blockers(pool, NULL, 0, NULL, 1, &found, NULL), PQTX_MISUSE);
    blockers[0].size = 0;
    ck_assert_int_eq(pqtx_blockers(pool, NULL, 0, blockers, 1, &found, NULL), PQTX_MISUSE);
    blockers[0].size = 1 << 20;
    ck_assert_int_eq(pqtx_blockers(pool, NULL, 0, blockers, 1, &found, NULL), PQTX_MISUSE);
    blockers[0].size = sizeof blockers[0];
    ck_assert_int_eq(pqtx_blockers(NULL, NULL, 0, blockers, 1, &found, NULL), PQTX_MISUSE);
    pqtx_options options = PQTX_OPTIONS;
    options.flags = 0x80000000u;
    ck_assert_int_eq(pqtx_blockers(pool, &options, 0, blockers, 1, &found, NULL), PQTX_MISUSE);
    options.size = 0;
    ck_assert_int_eq(pqtx_blockers(pool, &options, 0, blockers, 1, &found, NULL), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_row_holders(NULL, "SELECT 1", PQTX_NO_ARGS, blockers, 1, &found),
                     PQTX_MISUSE);
    ck_assert_int_eq(pqtx_lock_holders(NULL, 1, blockers, 1, &found), PQTX_MISUSE);
}
END_TEST

/* ---- whose eyes */

static pqtx_pool *pool_as(const char *more)
{
    char conninfo[4096];
    pqtx_pool_options options = PQTX_POOL_OPTIONS;
    pqtx_pool *other;
    snprintf(conninfo, sizeof conninfo, "%s %s", test_conninfo(), more);
    options.conninfo = conninfo;
    ck_assert_int_eq(pqtx_pool_open(&options, &other, NULL), PQTX_OK);
    return other;
}

START_TEST(a_role_without_privileges_sees_who_but_not_what)
{
    sql(monitor, "DO $$ BEGIN CREATE ROLE pqtx_onlooker LOGIN;"
                 " EXCEPTION WHEN duplicate_object THEN NULL; END $$");
    pqtx_pool *plain = pool_as("user=pqtx_onlooker");
    sql(holder, "BEGIN; " UPDATE_1);
    block(second, UPDATE_1);
    ck_assert_int_eq(pqtx_blockers(plain, NULL, 0, blockers, MANY, &found, NULL), PQTX_OK);
    ck_assert_uint_eq(found, 2);
    const pqtx_blocker *b = edge(pid_of(holder), pid_of(second));
    ck_assert_uint_eq(b->flags, PQTX_BLOCKER_HIDDEN);
    ck_assert_str_eq(b->user_name, ask(monitor, "SELECT session_user"));
    ck_assert_str_eq(b->application_name, "the holder");
    ck_assert_str_eq(b->state, "");
    ck_assert_str_eq(b->query, "");
    ck_assert_int_eq(b->transaction_us, -1);
    ck_assert_int_eq(b->state_us, -1);
    const pqtx_blocker *leaf = edge(pid_of(second), 0);
    ck_assert_uint_eq(leaf->flags, PQTX_BLOCKER_HIDDEN | PQTX_BLOCKER_WAITS);
    ck_assert_str_ne(leaf->waits_for, "");
    char line[256];
    pqtx_blocker_format(b, line, sizeof line);
    ck_assert_ptr_ne(strstr(line, ", application the holder)"), NULL);
    let_go(holder);
    end(second, "");
    pqtx_pool_close(plain);
    sql(monitor, "DROP ROLE pqtx_onlooker");
}
END_TEST

START_TEST(decoys_in_the_search_path_are_not_believed)
{
    sql(monitor,
        "DROP SCHEMA IF EXISTS pqtx_decoys CASCADE; CREATE SCHEMA pqtx_decoys;"
        "CREATE VIEW pqtx_decoys.pg_locks AS SELECT * FROM pg_catalog.pg_locks WHERE false;"
        "CREATE VIEW pqtx_decoys.pg_stat_activity AS SELECT * FROM pg_catalog.pg_stat_activity"
        " WHERE false;"
        "CREATE FUNCTION pqtx_decoys.pg_blocking_pids(int) RETURNS int[] LANGUAGE sql AS"
        " 'SELECT ARRAY[666]';"
        "CREATE FUNCTION pqtx_decoys.never(int, int) RETURNS bool LANGUAGE sql AS 'SELECT false';"
        "CREATE OPERATOR pqtx_decoys.= (LEFTARG = int, RIGHTARG = int,"
        " FUNCTION = pqtx_decoys.never)");
    pqtx_pool *trapped = pool_as("options='-c search_path=pqtx_decoys,pg_catalog,pqtx_diagnose'");
    pqtx_options options = PQTX_OPTIONS;
    pqtx_error error = PQTX_ERROR;
    sql(holder, "BEGIN; " UPDATE_1);
    block(second, UPDATE_1);
    ck_assert_int_eq(pqtx_blockers(trapped, NULL, pid_of(second), blockers, MANY, &found, NULL),
                     PQTX_OK);
    ck_assert_uint_eq(found, 1);
    edge(pid_of(holder), pid_of(second));
    options.flags = PQTX_NAME_BLOCKER;
    options.lock_timeout_ms = 400;
    options.retry_mask = PQTX_RETRY_NOTHING;
    ck_assert_int_eq(pqtx_run_one(trapped, &options, "UPDATE \"Seat\" SET v = 3", PQTX_NO_ARGS,
                                  PQTX_ANY_ROWS, NULL, &error),
                     PQTX_BUSY);
    ck_assert_msg(strstr(error.detail, "the holder") != NULL, "%s", error.detail);
    let_go(holder);
    end(second, "");
    pqtx_pool_close(trapped);
    sql(monitor, "DROP SCHEMA pqtx_decoys CASCADE");
}
END_TEST

/* ---- after the fact, on the same connection */

#define HOLDERS_OF_1 "SELECT xmax, tableoid FROM \"Seat\" WHERE id = $1"

struct trial {
    const char *sql, *want;
    pqtx_status expected;
};

static pqtx_status want(pqtx_tx *tx, void *arg)
{
    return pqtx_exec(tx, arg, PQTX_NO_ARGS, NULL);
}

/* Is refused in a savepoint, asks who was in the way, and goes on. */
static pqtx_status ask_after(pqtx_tx *tx, void *arg)
{
    const struct trial *trial = arg;
    pqtx_error error = PQTX_ERROR;
    pqtx_status status = pqtx_savepoint(tx, want, (char *)(uintptr_t)trial->want);
    pqtx_get_error(tx, &error);
    assert_status(status, trial->expected, &error);
    status = pqtx_row_holders(tx, trial->sql ? trial->sql : HOLDERS_OF_1, PQTX_ARGS(PQTX_INT(1)),
                              blockers, MANY, &found);
    return status == PQTX_OK ? pqtx_exec(tx, "SELECT * FROM \"Seat\"", PQTX_NO_ARGS, NULL) : status;
}

static void look_after(const char *statement, pqtx_status expected, uint32_t flags)
{
    struct trial trial = {.want = statement, .expected = expected};
    pqtx_options options = PQTX_OPTIONS;
    pqtx_error error = PQTX_ERROR;
    options.lock_timeout_ms = 20;
    options.retry_mask = PQTX_RETRY_NOTHING;
    options.flags = flags;
    found = 99;
    pqtx_status status = pqtx_run(pool, &options, ask_after, &trial, &error);
    assert_status(status, PQTX_OK, &error);
}

START_TEST(after_a_busy_row_its_holder_is_found)
{
    static const char *const holds[] = {
        UPDATE_1,
        "DELETE FROM \"Seat\" WHERE id = 1",
        "SELECT FROM \"Seat\" WHERE id = 1 FOR NO KEY UPDATE",
        "SELECT FROM \"Seat\" WHERE id = 1 FOR KEY SHARE",
        ("SAVEPOINT s; " UPDATE_1),
    };
    for (size_t i = 0; i < sizeof holds / sizeof holds[0]; i++) {
        sql(holder, "BEGIN");
        sql(holder, holds[i]);
        look_after("SELECT FROM \"Seat\" WHERE id = 1 FOR UPDATE NOWAIT", PQTX_BUSY, 0);
        ck_assert_msg(found == 1, "%zu found after %s", found, holds[i]);
        edge(pid_of(holder), 0);
        look_after("DELETE FROM \"Seat\" WHERE id = 1", PQTX_BUSY, PQTX_PIPELINE);
        ck_assert_uint_eq(found, 1);
        ck_assert_str_eq(edge(pid_of(holder), 0)->application_name, "the holder");
        let_go(holder);
    }
}
END_TEST

START_TEST(all_the_sharers_of_a_row_are_found)
{
    sql(holder, "BEGIN; SELECT FROM \"Seat\" WHERE id = 1 FOR SHARE");
    sql(second, "BEGIN; SELECT FROM \"Seat\" WHERE id = 1 FOR KEY SHARE");
    look_after(UPDATE_1, PQTX_BUSY, 0);
    ck_assert_uint_eq(found, 2);
    edge(pid_of(holder), 0);
    edge(pid_of(second), 0);
    let_go(holder);
    let_go(second);
}
END_TEST

START_TEST(who_let_go_is_not_found)
{
    sql(holder, "BEGIN; " UPDATE_1);
    let_go(holder);
    look_after("SELECT 1", PQTX_OK, 0);
    ck_assert_uint_eq(found, 0);
    sql(holder, "BEGIN; SELECT FROM \"Seat\" WHERE id = 1 FOR SHARE");
    sql(second, "BEGIN; SELECT FROM \"Seat\" WHERE id = 1 FOR SHARE");
    let_go(holder);
    let_go(second);
    look_after("SELECT 1", PQTX_OK, 0);
    ck_assert_uint_eq(found, 0);
}
END_TEST

/* Its number is that of a subtransaction, on which nobody holds a lock any more. */
START_TEST(a_released_savepoint_hides_who_holds_a_row_but_not_from_who_waits)
{
    sql(holder, "BEGIN; SAVEPOINT s; " UPDATE_1 "; RELEASE s");
    look_after(UPDATE_1, PQTX_BUSY, 0);
    ck_assert_uint_eq(found, 0);
    block(second, UPDATE_1);
    look(pid_of(second));
    edge(pid_of(holder), pid_of(second));
    let_go(holder);
    end(second, "");
}
END_TEST

START_TEST(a_prepared_holder_of_a_row_is_named)
{
    need_prepared();
    sql(holder, "BEGIN; " UPDATE_1 "; " PREPARE_AS("kept"));
    look_after(UPDATE_1, PQTX_BUSY, 0);
    ck_assert_uint_eq(found, 1);
    ck_assert_str_eq(edge(0, 0)->gid, "kept");
    sql(holder, "ROLLBACK PREPARED 'kept'");
}
END_TEST

static pqtx_status look_twice(pqtx_tx *tx, void *arg)
{
    (void)arg;
    pqtx_update_one(tx, "UPDATE \"Seat\" SET v = 4 WHERE id = 2", PQTX_NO_ARGS);
    ck_assert_int_eq(pqtx_row_holders(tx, "SELECT xmax, tableoid FROM \"Seat\" WHERE id <= 2",
                                      PQTX_NO_ARGS, blockers, MANY, &found),
                     PQTX_OK);
    ck_assert_uint_eq(found, 0); /* one's own lock is in nobody's way */
    PGconn *late = open_session();
    sql(late, "BEGIN; " UPDATE_1);
    ck_assert_int_eq(
        pqtx_row_holders(tx, HOLDERS_OF_1, PQTX_ARGS(PQTX_INT(1)), blockers, MANY, &found),
        PQTX_OK);
    ck_assert_uint_eq(found, 1);
    ck_assert_uint_eq(edge(pid_of(late), 0)->flags, 0); /* and not PQTX_BLOCKER_GONE */
    let_go(late);
    PQfinish(late);
    const PGresult *path;
    ck_assert_int_eq(pqtx_exec(tx, "SHOW search_path", PQTX_NO_ARGS, &path), PQTX_OK);
    ck_assert_str_eq(PQgetvalue(path, 0, 0), "pqtx_diagnose,public");
    return PQTX_OK;
}

START_TEST(a_session_that_came_later_is_seen_in_the_same_transaction)
{
    pqtx_error error = PQTX_ERROR;
    assert_status(pqtx_run(pool, NULL, look_twice, NULL, &error), PQTX_OK, &error);
}
END_TEST

static pqtx_status look_wrongly(pqtx_tx *tx, void *statement)
{
    return pqtx_row_holders(tx, statement, PQTX_NO_ARGS, blockers, MANY, &found);
}

START_TEST(a_statement_that_does_not_select_xmax_and_tableoid_is_misuse)
{
    static char good[] = "SELECT xmax, tableoid FROM \"Seat\"", nowhere[] = "SELECT xmax FROM no";
    static char wrong[][48] = {"SELECT 1", "SELECT tableoid, xmax FROM \"Seat\"",
                               "SELECT xmax FROM \"Seat\"", "COMMIT"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        ck_assert_int_eq(pqtx_run(pool, NULL, look_wrongly, wrong[i], NULL), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_run(pool, NULL, look_wrongly, NULL, NULL), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_run(pool, NULL, look_wrongly, nowhere, NULL), PQTX_BAD_STATEMENT);
    ck_assert_int_eq(pqtx_run(pool, NULL, look_wrongly, good, NULL), PQTX_OK);
    blockers[0].size = 0;
    ck_assert_int_eq(pqtx_run(pool, NULL, look_wrongly, good, NULL), PQTX_MISUSE);
}
END_TEST

static pqtx_status look_at_locks(pqtx_tx *tx, void *arg)
{
    (void)arg;
    size_t pairs;
    ck_assert_int_eq(pqtx_try_lock(tx, -5), PQTX_BUSY);
    ck_assert_int_eq(pqtx_lock_holders(tx, -5, blockers, MANY, &found), PQTX_OK);
    ck_assert_uint_eq(found, 1);
    edge(pid_of(holder), 0);
    ck_assert_int_eq(pqtx_lock_pair_holders(tx, -1, 7, blockers, MANY, &pairs), PQTX_OK);
    ck_assert_uint_eq(pairs, 2);
    found = pairs;
    edge(pid_of(holder), 0);
    edge(pid_of(second), 0);
    ck_assert_int_eq(pqtx_lock(tx, 6), PQTX_OK);
    ck_assert_int_eq(pqtx_lock_holders(tx, 6, blockers, MANY, &found), PQTX_OK);
    ck_assert_uint_eq(found, 0);
    ck_assert_int_eq(pqtx_lock_holders(tx, (int64_t)(((uint64_t)-1 << 32) | 7), NULL, 0, &found),
                     PQTX_OK);
    ck_assert_uint_eq(found, 0); /* a pair is no key */
    return pqtx_lock_pair_holders(tx, -1, 7, NULL, 3, &found);
}

START_TEST(the_holders_of_an_advisory_lock_are_found)
{
    sql(holder, "BEGIN; SELECT pg_advisory_xact_lock(-5), pg_advisory_xact_lock_shared(-1, 7)");
    sql(second, "SELECT pg_advisory_lock_shared(-1, 7)");
    ck_assert_int_eq(pqtx_run(pool, NULL, look_at_locks, NULL, NULL), PQTX_MISUSE);
    let_go(holder);
}
END_TEST

/* ---- a busy error that names the blocker */

struct attempt {
    pqtx_options options;
    struct task task;
    int64_t pid;
};

static pqtx_status update_both(pqtx_tx *tx, void *arg)
{
    (void)arg;
    return pqtx_exec(tx, "UPDATE \"Seat\" SET v = 3 WHERE id <= 2", PQTX_NO_ARGS, NULL);
}

static void try_update(struct attempt *attempt, pqtx_pool *from, uint32_t flags)
{
    attempt->options = (pqtx_options)PQTX_OPTIONS;
    attempt->options.flags = flags;
    attempt->options.lock_timeout_ms = 600;
    attempt->options.retry_mask = PQTX_RETRY_NOTHING;
    attempt->task = (struct task){.pool = from, .options = &attempt->options, .work = update_both};
    start_task(&attempt->task);
}

static const char *detail_of(pqtx_pool *from, uint32_t flags)
{
    static struct attempt attempt;
    try_update(&attempt, from, flags);
    join_task(&attempt.task, PQTX_BUSY);
    return attempt.task.error.detail;
}

START_TEST(a_busy_error_names_the_blocker_when_asked_to)
{
    char expected[128];
    snprintf(expected, sizeof expected,
             "blocked by pid %d (user %s, application the holder, idle in transaction for ",
             pid_of(holder), ask(monitor, "SELECT session_user"));
    sql(holder, "BEGIN; " UPDATE_1);
    const char *detail = detail_of(pool, PQTX_NAME_BLOCKER);
    ck_assert_msg(strncmp(detail, expected, strlen(expected)) == 0, "%s", detail);
    detail = detail_of(pool, PQTX_NAME_BLOCKER | PQTX_PIPELINE);
    ck_assert_msg(strncmp(detail, expected, strlen(expected)) == 0, "%s", detail);
    ck_assert_str_eq(detail_of(pool, 0), "");
    let_go(holder);
}
END_TEST

START_TEST(behind_others_the_one_at_the_root_is_named)
{
    char expected[128];
    snprintf(expected, sizeof expected, "behind pid %d, blocked by pid %d (user ", pid_of(second),
             pid_of(holder));
    sql(holder, "BEGIN; " UPDATE_1);
    block(second, UPDATE_1);
    const char *detail = detail_of(pool, PQTX_NAME_BLOCKER);
    ck_assert_msg(strncmp(detail, expected, strlen(expected)) == 0, "%s", detail);
    let_go(holder);
    end(second, "");
}
END_TEST

START_TEST(a_prepared_blocker_is_named_in_the_error)
{
    need_prepared();
    sql(holder, "BEGIN; " UPDATE_1 "; " PREPARE_AS("left behind"));
    const char *detail = detail_of(pool, PQTX_NAME_BLOCKER);
    ck_assert_ptr_ne(strstr(detail, "blocked by prepared transaction 'left behind' (user "), NULL);
    sql(holder, "ROLLBACK PREPARED 'left behind'");
}
END_TEST

/* One statement, two waits; the first ends well, whenever that is. */
START_TEST(of_several_waits_the_one_that_failed_is_told)
{
    struct attempt attempt;
    char query[160];
    sql(holder, "BEGIN; " UPDATE_1);
    sql(second, "BEGIN; UPDATE \"Seat\" SET v = 5 WHERE id = 2");
    try_update(&attempt, pool, PQTX_NAME_BLOCKER);
    snprintf(query, sizeof query,
             "SELECT count(*) = 1 FROM pg_stat_activity WHERE pg_blocking_pids(pid) = '{%d}'",
             pid_of(holder));
    wait_until_true(monitor, query);
    let_go(holder);
    join_task(&attempt.task, PQTX_BUSY);
    ck_assert_msg(strstr(attempt.task.error.detail, "application the second") != NULL, "%s",
                  attempt.task.error.detail);
    let_go(second);
}
END_TEST

START_TEST(without_a_long_wait_or_the_wish_nobody_is_asked)
{
    pqtx_pool *own = open_pool(2);
    pqtx_options options = PQTX_OPTIONS;
    options.flags = PQTX_NAME_BLOCKER;
    for (int i = 0; i < 20; i++)
        ck_assert_int_eq(pqtx_run(own, &options, update_both, NULL, NULL), PQTX_OK);
    sql(holder, "BEGIN; " UPDATE_1);
    ck_assert_str_eq(detail_of(own, 0), ""); /* nor without being asked to */
    ck_assert_uint_eq(stats_of(own).connects, 1);
    ck_assert_str_ne(detail_of(own, PQTX_NAME_BLOCKER), "");
    ck_assert_uint_eq(stats_of(own).connects, 2);
    ck_assert_uint_eq(stats_of(own).drops, 0);
    let_go(holder);
    pqtx_pool_close(own);
}
END_TEST

START_TEST(without_a_free_connection_nobody_is_named_and_nothing_takes_longer)
{
    pqtx_pool *narrow = open_pool(1);
    struct attempt attempt;
    sql(holder, "BEGIN; " UPDATE_1);
    try_update(&attempt, narrow, PQTX_NAME_BLOCKER);
    join_task(&attempt.task, PQTX_BUSY);
    ck_assert_str_eq(attempt.task.error.detail, "");
    ck_assert_str_eq(attempt.task.error.sqlstate, "55P03");
    let_go(holder);
    try_update(&attempt, narrow, PQTX_NAME_BLOCKER);
    join_task(&attempt.task, PQTX_OK);
    pqtx_pool_close(narrow);
}
END_TEST

START_TEST(another_failure_than_busy_names_nobody)
{
    struct attempt attempt;
    pqtx_error error = PQTX_ERROR;
    sql(holder, "BEGIN; " UPDATE_1);
    ck_assert_str_ne(detail_of(pool, PQTX_NAME_BLOCKER), "");
    pqtx_options options = PQTX_OPTIONS;
    options.flags = PQTX_NAME_BLOCKER;
    ck_assert_int_eq(
        pqtx_run_one(pool, &options, "SELECT 1 / 0", PQTX_NO_ARGS, PQTX_ANY_ROWS, NULL, &error),
        PQTX_BAD_DATA);
    ck_assert_str_eq(error.detail, "");
    let_go(holder);
    try_update(&attempt, pool, PQTX_NAME_BLOCKER);
    join_task(&attempt.task, PQTX_OK);
    ck_assert_str_eq(attempt.task.error.detail, "");
}
END_TEST

static pqtx_status wait_then_not(pqtx_tx *tx, void *arg)
{
    pqtx_status status = pqtx_exec(tx, UPDATE_1, PQTX_NO_ARGS, NULL);
    if (status != PQTX_OK)
        return status;
    *(bool *)arg = true;
    return pqtx_exec(tx, "SELECT FROM \"Seat\" WHERE id = 2 FOR UPDATE NOWAIT", PQTX_NO_ARGS, NULL);
}

/* Somebody was named, and let go in time.  On a slow machine that can be too late: again then. */
START_TEST(who_was_named_and_let_go_is_not_blamed_for_the_next)
{
    bool waited = false;
    struct attempt attempt;
    sql(second, "BEGIN; UPDATE \"Seat\" SET v = 5 WHERE id = 2");
    for (int tries = 0; !waited && tries < 20; tries++) {
        pqtx_pool *own = open_pool(2);
        sql(holder, "BEGIN; " UPDATE_1);
        attempt.options = (pqtx_options)PQTX_OPTIONS;
        attempt.options.flags = PQTX_NAME_BLOCKER;
        attempt.options.lock_timeout_ms = 1000;
        attempt.options.retry_mask = PQTX_RETRY_NOTHING;
        attempt.task = (struct task){
            .pool = own, .options = &attempt.options, .work = wait_then_not, .arg = &waited};
        start_task(&attempt.task);
        pqtx_stats stats = stats_of(own);
        while (stats.connects < 2 || stats.idle_count < 1)
            stats = stats_of(own);
        let_go(holder);
        join_task(&attempt.task, PQTX_BUSY);
        pqtx_pool_close(own);
    }
    ck_assert(waited);
    ck_assert_str_eq(attempt.task.error.detail, "");
    let_go(second);
}
END_TEST

/* ---- in words */

static const char *line_of(const pqtx_blocker *b)
{
    static char line[1024];
    size_t len = pqtx_blocker_format(b, line, sizeof line);
    ck_assert_uint_eq(len, strlen(line));
    return line;
}

START_TEST(a_blocker_is_written_as_one_line)
{
    pqtx_blocker b = PQTX_BLOCKER;
    b.pid = 7;
    b.wait_us = b.state_us = b.query_us = b.transaction_us = -1;
    strcpy(b.user_name, "ann");
    ck_assert_str_eq(line_of(&b), "pid 7 (user ann)");
    strcpy(b.application_name, "shop\x1b[31m\n");
    strcpy(b.state, "active");
    b.state_us = 999999;
    ck_assert_str_eq(line_of(&b), "pid 7 (user ann, application shop?[31m?, active for 999 ms)");
    b.state_us = 12000000;
    strcpy(b.application_name, "shop");
    ck_assert_str_eq(line_of(&b), "pid 7 (user ann, application shop, active for 12 s)");
    b.state_us = INT64_C(3600000000);
    ck_assert_str_eq(line_of(&b), "pid 7 (user ann, application shop, active for 60 min)");
    b.state_us = INT64_C(360000000000);
    ck_assert_str_eq(line_of(&b), "pid 7 (user ann, application shop, active for 100 h)");
    b.flags = PQTX_BLOCKER_WAITS;
    b.wait_us = 2000000;
    strcpy(b.waits_for, "ShareLock on transactionid 9");
    ck_assert_str_eq(line_of(&b), "pid 7 (user ann, application shop, waiting for 2 s for"
                                  " ShareLock on transactionid 9)");
    b.flags = PQTX_BLOCKER_GONE;
    ck_assert_str_eq(line_of(&b), "pid 7 (gone)");
    b.flags = PQTX_BLOCKER_PREPARED;
    b.transaction_us = 1000000;
    strcpy(b.gid, "g");
    ck_assert_str_eq(line_of(&b), "prepared transaction 'g' (user ann, prepared for 1 s)");
    char small[8];
    ck_assert_uint_eq(pqtx_blocker_format(&b, small, sizeof small), strlen(line_of(&b)));
    ck_assert_str_eq(small, "prepare");
    ck_assert_uint_eq(pqtx_blocker_format(&b, NULL, 0), strlen(line_of(&b)));
    b.size = 0;
    ck_assert_str_eq(line_of(&b), "no blocker");
    ck_assert_str_eq(line_of(NULL), "no blocker");
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("live_diagnose");
    TCase *c = tcase_create("diagnose");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_set_timeout(c, 60);
    tcase_add_test(c, nobody_blocks_who_does_not_wait);
    tcase_add_test(c, nobody_blocks_who_has_gone);
    tcase_add_test(c, the_blocker_is_shown_in_full);
    tcase_add_test(c, where_a_blocker_waits_it_is_looked_up_to_the_root);
    tcase_add_test(c, several_blockers_are_all_shown);
    tcase_add_test(c, what_a_blocker_waits_for_is_told);
    tcase_add_test(c, a_prepared_transaction_is_named);
    tcase_add_test(c, a_prepared_transaction_that_is_not_in_the_way_is_left_out);
    tcase_add_test(c, a_prepared_transaction_with_savepoints_is_found);
    tcase_add_test(c, every_wait_of_the_database_is_shown);
    tcase_add_test(c, a_circle_is_shown_and_ends_the_search);
    tcase_add_test(c, a_parallel_worker_counts_as_its_leader);
    tcase_add_test(c, a_deferrable_transaction_is_blocked_by_the_writers_before_it);
    tcase_add_test(c, what_does_not_fit_is_counted);
    tcase_add_test(c, structs_of_other_versions_are_filled_as_far_as_they_go);
    tcase_add_test(c, wrong_arguments_are_misuse);
    tcase_add_test(c, a_role_without_privileges_sees_who_but_not_what);
    tcase_add_test(c, decoys_in_the_search_path_are_not_believed);
    tcase_add_test(c, after_a_busy_row_its_holder_is_found);
    tcase_add_test(c, all_the_sharers_of_a_row_are_found);
    tcase_add_test(c, who_let_go_is_not_found);
    tcase_add_test(c, a_released_savepoint_hides_who_holds_a_row_but_not_from_who_waits);
    tcase_add_test(c, a_prepared_holder_of_a_row_is_named);
    tcase_add_test(c, a_session_that_came_later_is_seen_in_the_same_transaction);
    tcase_add_test(c, a_statement_that_does_not_select_xmax_and_tableoid_is_misuse);
    tcase_add_test(c, the_holders_of_an_advisory_lock_are_found);
    tcase_add_test(c, a_busy_error_names_the_blocker_when_asked_to);
    tcase_add_test(c, behind_others_the_one_at_the_root_is_named);
    tcase_add_test(c, a_prepared_blocker_is_named_in_the_error);
    tcase_add_test(c, of_several_waits_the_one_that_failed_is_told);
    tcase_add_test(c, without_a_long_wait_or_the_wish_nobody_is_asked);
    tcase_add_test(c, without_a_free_connection_nobody_is_named_and_nothing_takes_longer);
    tcase_add_test(c, another_failure_than_busy_names_nobody);
    tcase_add_test(c, who_was_named_and_let_go_is_not_blamed_for_the_next);
    tcase_add_test(c, a_blocker_is_written_as_one_line);
    suite_add_tcase(s, c);
    return s;
}

int main(void)
{
    return run_suite(suite());
}
