/* check_live_lock.c: transaction-level advisory locks, and how long to wait for a lock. */
#include "support.h"
#include "support_tx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static PGconn *monitor, *holder, *own;
static pqtx_options options;
static pqtx_tx *tx; /* the transaction on `own` */

static void set_up(void)
{
    fresh_schema("pqtx_lock");
    monitor = open_session();
    holder = open_session();
    own = open_own();
    options = (pqtx_options)PQTX_OPTIONS;
    options.lock_timeout_ms = 50;
    options.retry_mask = PQTX_RETRY_NOTHING;
}

static void tear_down(void)
{
    PQfinish(monitor);
    PQfinish(holder);
    PQfinish(own);
}

static void begin(void)
{
    tx = pqtx_new_on(own, &options);
    ck_assert_int_eq(pqtx_attempt(tx), 1);
}

static void finish(void)
{
    pqtx_free(tx);
    tx = NULL;
}

static void assert_call(pqtx_status actual, pqtx_status expected)
{
    pqtx_error error = PQTX_ERROR;
    pqtx_get_error(tx, &error);
    assert_status(actual, expected, &error);
}

/* Of `own`, whose backend a pooler does not tell: whatever is not the holder's. */
#define OTHERS_LOCKS                                                                               \
    " FROM pg_locks WHERE locktype = 'advisory' AND pid <> %d AND database ="                      \
    " (SELECT oid FROM pg_database WHERE datname = current_database())"

/* What `own` holds, as the server says it: "exclusive key 7", of a pair "shared pair 1,2". */
static const char *held(void)
{
    char query[640];
    snprintf(query, sizeof query,
             "SELECT coalesce(string_agg("
             "  CASE mode WHEN 'ShareLock' THEN 'shared ' ELSE 'exclusive ' END ||"
             "  CASE objsubid WHEN 1 THEN 'key ' || ((classid::bigint << 32) | objid::bigint)"
             "  ELSE 'pair ' || classid::bigint::bit(32)::int || ',' || objid::bigint::bit(32)::int"
             "  END, '; ' ORDER BY objsubid, classid, objid, mode), 'nothing')" OTHERS_LOCKS
             " AND granted",
             PQbackendPID(holder));
    return ask(monitor, query);
}

static void assert_held(const char *expected)
{
    ck_assert_str_eq(held(), expected);
}

/* ---- which lock */

START_TEST(each_call_takes_the_lock_that_it_is_named_for)
{
    begin();
    assert_call(pqtx_lock(tx, 7), PQTX_OK);
    assert_held("exclusive key 7");
    finish();
    begin();
    assert_call(pqtx_lock_shared(tx, -5), PQTX_OK);
    assert_held("shared key -5");
    finish();
    begin();
    assert_call(pqtx_lock_pair(tx, 1, -2), PQTX_OK);
    assert_held("exclusive pair 1,-2");
    finish();
    begin();
    assert_call(pqtx_lock_pair_shared(tx, -1, 2), PQTX_OK);
    assert_held("shared pair -1,2");
    finish();
    begin();
    assert_call(pqtx_try_lock(tx, INT64_MIN), PQTX_OK);
    assert_held("exclusive key -9223372036854775808");
    finish();
    begin();
    assert_call(pqtx_try_lock_shared(tx, INT64_MAX), PQTX_OK);
    assert_held("shared key 9223372036854775807");
    finish();
    begin();
    assert_call(pqtx_try_lock_pair(tx, INT32_MIN, INT32_MAX), PQTX_OK);
    assert_held("exclusive pair -2147483648,2147483647");
    finish();
    begin();
    assert_call(pqtx_try_lock_pair_shared(tx, 0, 0), PQTX_OK);
    assert_held("shared pair 0,0");
    finish();
    assert_held("nothing");
}
END_TEST

START_TEST(keys_and_pairs_are_spaces_apart)
{
    sql(holder, "BEGIN; SELECT pg_advisory_xact_lock((1::bigint << 32) | 2)");
    begin();
    assert_call(pqtx_lock_pair(tx, 1, 2), PQTX_OK);
    assert_call(pqtx_try_lock(tx, (INT64_C(1) << 32) | 2), PQTX_BUSY);
    finish();
}
END_TEST

START_TEST(shared_locks_agree_and_exclusive_ones_do_not)
{
    sql(holder, "BEGIN; SELECT pg_advisory_xact_lock_shared(1), pg_advisory_xact_lock_shared(1, 1),"
                " pg_advisory_xact_lock(2), pg_advisory_xact_lock(2, 2)");
    begin();
    assert_call(pqtx_try_lock_shared(tx, 1), PQTX_OK);
    assert_call(pqtx_try_lock_pair_shared(tx, 1, 1), PQTX_OK);
    assert_call(pqtx_lock_shared(tx, 1), PQTX_OK);
    assert_call(pqtx_lock_pair_shared(tx, 1, 1), PQTX_OK);
    assert_call(pqtx_try_lock(tx, 1), PQTX_BUSY);
    assert_call(pqtx_try_lock_pair(tx, 1, 1), PQTX_BUSY);
    assert_call(pqtx_try_lock_shared(tx, 2), PQTX_BUSY);
    assert_call(pqtx_try_lock_pair_shared(tx, 2, 2), PQTX_BUSY);
    /* A try that was refused is an answer: the attempt goes on. */
    assert_call(pqtx_try_lock(tx, 3), PQTX_OK);
    assert_call(pqtx_commit(tx), PQTX_OK);
    finish();
}
END_TEST

typedef pqtx_status (*key_call)(pqtx_tx *t, int64_t key);
typedef pqtx_status (*pair_call)(pqtx_tx *t, int32_t group, int32_t key);

START_TEST(waiting_for_a_lock_ends_busy_and_marks_the_attempt)
{
    static const key_call by_key[] = {pqtx_lock, pqtx_lock_shared};
    static const pair_call by_pair[] = {pqtx_lock_pair, pqtx_lock_pair_shared};
    sql(holder, "BEGIN; SELECT pg_advisory_xact_lock(1), pg_advisory_xact_lock(1, 1)");
    for (int i = 0; i < 2; i++) {
        begin();
        assert_call(by_key[i](tx, 1), PQTX_BUSY);
        assert_call(by_key[i](tx, 2), PQTX_BUSY);
        assert_call(pqtx_commit(tx), PQTX_BUSY);
        finish();
        begin();
        assert_call(by_pair[i](tx, 1, 1), PQTX_BUSY);
        assert_call(pqtx_commit(tx), PQTX_BUSY);
        finish();
    }
    assert_held("nothing");
}
END_TEST

static pqtx_status lock_one(pqtx_tx *t, void *arg)
{
    (void)arg;
    return pqtx_lock(t, 1);
}

START_TEST(a_waiting_lock_is_had_when_its_holder_lets_go)
{
    struct task task = {.conn = own, .work = lock_one};
    sql(holder, "BEGIN; SELECT pg_advisory_xact_lock(1)");
    start_task(&task);
    wait_for_blocked(monitor, PQbackendPID(holder));
    sql(holder, "COMMIT");
    join_task(&task, PQTX_OK);
}
END_TEST

/* ---- until when */

static pqtx_status lock_in_savepoint(pqtx_tx *t, void *arg)
{
    pqtx_status status = pqtx_lock(t, 2);
    return status == PQTX_OK ? *(pqtx_status *)arg : status;
}

START_TEST(locks_are_released_with_the_transaction_or_the_savepoint)
{
    pqtx_status undo = PQTX_USER, keep = PQTX_OK;
    begin();
    assert_call(pqtx_lock(tx, 1), PQTX_OK);
    assert_call(pqtx_savepoint(tx, lock_in_savepoint, &undo), PQTX_USER);
    assert_call(pqtx_exec(tx, "SELECT 1", PQTX_NO_ARGS, NULL), PQTX_OK);
    assert_held("exclusive key 1");
    assert_call(pqtx_savepoint(tx, lock_in_savepoint, &keep), PQTX_OK);
    assert_held("exclusive key 1; exclusive key 2");
    assert_call(pqtx_commit(tx), PQTX_OK);
    assert_held("nothing");
    finish();
    begin();
    assert_call(pqtx_lock(tx, 1), PQTX_OK);
    assert_call(pqtx_fail(tx, PQTX_STOPPED), PQTX_STOPPED);
    assert_call(pqtx_commit(tx), PQTX_STOPPED);
    assert_held("nothing");
    finish();
}
END_TEST

/* ---- several keys */

START_TEST(several_keys_may_hold_one_twice)
{
    static const int64_t keys[] = {5, -3, 5, INT64_MAX, 0, -3, INT64_MIN};
    begin();
    assert_call(pqtx_lock_many(tx, keys, 7), PQTX_OK);
    assert_held("exclusive key 0; exclusive key 5; exclusive key 9223372036854775807;"
                " exclusive key -9223372036854775808; exclusive key -3");
    finish();
    begin();
    assert_call(pqtx_lock_many_shared(tx, keys, 7), PQTX_OK);
    assert_held("shared key 0; shared key 5; shared key 9223372036854775807;"
                " shared key -9223372036854775808; shared key -3");
    finish();
}
END_TEST

static pqtx_status lock_five(pqtx_tx *t, void *arg)
{
    static const int64_t keys[] = {50, 30, 10, 40, 20};
    (void)arg;
    return pqtx_lock_many(t, keys, 5);
}

/* One in the middle is someone else's: what is taken while we wait for it shows the order. */
START_TEST(several_keys_are_taken_in_ascending_order)
{
    struct task task = {.conn = own, .work = lock_five};
    sql(holder, "BEGIN; SELECT pg_advisory_xact_lock(30)");
    start_task(&task);
    wait_for_blocked(monitor, PQbackendPID(holder));
    assert_held("exclusive key 10; exclusive key 20");
    sql(holder, "COMMIT");
    join_task(&task, PQTX_OK);
}
END_TEST

START_TEST(no_keys_lock_nothing)
{
    static const int64_t key = 1;
    begin();
    assert_call(pqtx_lock_many(tx, NULL, 0), PQTX_OK);
    assert_call(pqtx_lock_many_shared(tx, &key, 0), PQTX_OK);
    assert_call(pqtx_commit(tx), PQTX_OK);
    finish();
    assert_held("nothing");
}
END_TEST

START_TEST(null_keys_are_misuse)
{
    begin();
    assert_call(pqtx_lock_many(tx, NULL, 3), PQTX_MISUSE);
    assert_call(pqtx_commit(tx), PQTX_MISUSE);
    finish();
    begin();
    assert_call(pqtx_lock_many_shared(tx, NULL, 1), PQTX_MISUSE);
    finish();
    ck_assert_int_eq(pqtx_lock(NULL, 1), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_lock_many(NULL, NULL, 0), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_set_lock_timeout(NULL, 1), PQTX_MISUSE);
}
END_TEST

START_TEST(ten_thousand_keys_are_one_call)
{
    enum { COUNT = 10000 };
    static int64_t keys[COUNT];
    char query[256];
    for (int64_t i = 0; i < COUNT; i++)
        keys[i] = -(i * 7919 % COUNT) * 1000000007;
    begin();
    assert_call(pqtx_lock_many(tx, keys, COUNT), PQTX_OK);
    snprintf(query, sizeof query, "SELECT count(*)" OTHERS_LOCKS, PQbackendPID(holder));
    ck_assert_int_eq(ask_int(monitor, query), COUNT);
    finish();
}
END_TEST

enum { RACE_KEYS = 20, ROUNDS = 150 };

struct racer {
    pqtx_pool *pool;
    pthread_t thread;
    int64_t keys[RACE_KEYS];
    unsigned seed;
    int failed;
};

static pqtx_status lock_all(pqtx_tx *t, void *arg)
{
    struct racer *racer = arg;
    return pqtx_lock_many(t, racer->keys, RACE_KEYS);
}

static void *race(void *arg)
{
    struct racer *racer = arg;
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < RACE_KEYS; i++) { /* another order each time */
            racer->seed = racer->seed * 1103515245 + 12345;
            int j = (int)(racer->seed >> 16) % RACE_KEYS;
            int64_t key = racer->keys[i];
            racer->keys[i] = racer->keys[j];
            racer->keys[j] = key;
        }
        racer->failed += pqtx_run(racer->pool, NULL, lock_all, racer, NULL) != PQTX_OK;
    }
    return NULL;
}

START_TEST(callers_with_the_same_keys_in_any_order_never_deadlock)
{
    struct racer racers[4];
    pqtx_pool *pool = open_pool(4);
    for (unsigned i = 0; i < 4; i++) {
        racers[i] = (struct racer){.pool = pool, .seed = i};
        for (int key = 0; key < RACE_KEYS; key++)
            racers[i].keys[key] = key - 10;
        ck_assert(pthread_create(&racers[i].thread, NULL, race, &racers[i]) == 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(racers[i].thread, NULL);
        ck_assert_int_eq(racers[i].failed, 0);
    }
    ck_assert_uint_eq(stats_of(pool).retries_deadlock, 0);
    ck_assert_uint_eq(stats_of(pool).attempts, 4 * ROUNDS);
    pqtx_pool_close(pool);
}
END_TEST

/* ---- by name */

/* PostgreSQL itself must find the same key. */
START_TEST(the_server_finds_the_same_key_for_a_name)
{
    static const char *const names[] = {
        "", "nightly report", "gr\xc3\xbc\xc3\x9f\x65",
        "a name that is longer than one block of sixty-four bytes, and so is hashed in two parts"};
    char query[512], expected[48];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(query, sizeof query,
                 "SELECT ('x' || left(encode(sha256(convert_to('%s', 'UTF8')), 'hex'), 16))"
                 "::bit(64)::bigint",
                 names[i]);
        snprintf(expected, sizeof expected, "%lld", (long long)pqtx_lock_key(names[i]));
        ck_assert_str_eq(ask(monitor, query), expected);
    }
    begin();
    assert_call(pqtx_lock(tx, pqtx_lock_key("nightly report")), PQTX_OK);
    snprintf(expected, sizeof expected, "exclusive key %lld",
             (long long)pqtx_lock_key("nightly report"));
    assert_held(expected);
    finish();
}
END_TEST

/* ---- in slices */

static pqtx_status wait_for_one(pqtx_tx *t, void *arg)
{
    (void)arg;
    return pqtx_lock_wait(t, 1);
}

START_TEST(a_wait_goes_on_slice_after_slice_in_one_attempt)
{
    char query[512];
    pqtx_evidence evidence = PQTX_EVIDENCE;
    struct task task = {.conn = own, .options = &options, .work = wait_for_one};
    options.evidence = &evidence;
    sql(monitor, "CREATE TABLE slice (xact timestamptz PRIMARY KEY)");
    sql(holder, "BEGIN; SELECT pg_advisory_xact_lock(1)");
    start_task(&task);
    snprintf(query, sizeof query,
             "WITH seen AS (INSERT INTO slice SELECT xact_start FROM pg_stat_activity"
             " WHERE pid = %d AND wait_event_type = 'Lock' ON CONFLICT DO NOTHING RETURNING 1)"
             " SELECT count(*) = 1 FROM seen",
             PQbackendPID(own));
    for (int i = 0; i < 5; i++)
        wait_until_true(monitor, query); /* another transaction is seen to wait */
    sql(holder, "COMMIT");
    join_task(&task, PQTX_OK);
    ck_assert_uint_eq(evidence.count, 0);
    assert_held("nothing");
}
END_TEST

START_TEST(a_wait_in_slices_ends_busy_at_the_deadline)
{
    struct task task = {.conn = own, .options = &options, .work = wait_for_one};
    options.retry_mask = PQTX_RETRY_DEFAULT;
    options.deadline_ms = 1000;
    sql(holder, "BEGIN; SELECT pg_advisory_xact_lock(1)");
    run_task(&task, PQTX_BUSY);
    ck_assert_int_ge(task.elapsed_us, 700000);
    ck_assert(took_at_most(&task, 100, 20000));
    ck_assert_uint_eq(task.error.flags & PQTX_ERROR_DEADLINE, PQTX_ERROR_DEADLINE);
    ck_assert_uint_eq(task.error.attempt, 1);
    assert_held("nothing");
    options.lock_timeout_ms = 20000; /* longer than there is time for */
    run_task(&task, PQTX_BUSY);
    ck_assert(took_at_most(&task, 100, 20000));
    options.lock_timeout_ms = PQTX_NO_TIMEOUT;
    run_task(&task, PQTX_TIMEOUT);
    ck_assert(took_at_most(&task, 100, 20000));
}
END_TEST

static pqtx_status wait_and_write(pqtx_tx *t, void *arg)
{
    (void)arg;
    pqtx_pipeline(t);
    pqtx_lock_wait(t, 1);
    pqtx_exec(t, "INSERT INTO t VALUES (2)", PQTX_NO_ARGS, NULL);
    return pqtx_lock(t, 2);
}

/* CREATE INDEX CONCURRENTLY waits for every older snapshot, and who waits for a lock has one. */
START_TEST(a_wait_in_slices_does_not_hold_up_an_index_that_is_built_meanwhile)
{
    struct task task = {.conn = own, .options = &options, .work = wait_and_write};
    PGconn *builder = open_session();
    options.lock_timeout_ms = 200;
    sql(monitor, "CREATE TABLE t (id int)");
    sql(holder, "BEGIN; SELECT pg_advisory_xact_lock(1)");
    start_task(&task);
    sql(builder, "SET statement_timeout = '20s'");
    for (int i = 0; i < 3; i++) {
        wait_until_blocked(monitor, PQbackendPID(own));
        sql(builder, "CREATE INDEX CONCURRENTLY t_id ON t (id)");
        sql(builder, "DROP INDEX t_id");
    }
    sql(holder, "COMMIT");
    join_task(&task, PQTX_OK);
    ck_assert_int_eq(ask_int(monitor, "SELECT count(*) FROM t"), 1);
    PQfinish(builder);
}
END_TEST

START_TEST(a_wait_in_slices_comes_before_everything_else)
{
    begin();
    assert_call(pqtx_exec(tx, "SELECT 1", PQTX_NO_ARGS, NULL), PQTX_OK);
    assert_call(pqtx_lock_wait(tx, 1), PQTX_MISUSE);
    assert_call(pqtx_commit(tx), PQTX_MISUSE);
    finish();
    begin();
    assert_call(pqtx_pipeline(tx), PQTX_OK);
    assert_call(pqtx_lock(tx, 2), PQTX_OK); /* queued */
    assert_call(pqtx_lock_wait(tx, 1), PQTX_MISUSE);
    finish();
    begin();
    assert_call(pqtx_savepoint(tx, wait_for_one, NULL), PQTX_MISUSE);
    finish();
    begin();
    assert_call(pqtx_set_lock_timeout(tx, 30), PQTX_OK); /* sends nothing */
    assert_call(pqtx_lock_wait(tx, 1), PQTX_OK);
    assert_call(pqtx_lock(tx, 2), PQTX_OK);
    assert_held("exclusive key 1; exclusive key 2");
    assert_call(pqtx_commit(tx), PQTX_OK);
    finish();
    ck_assert_int_eq(pqtx_lock_wait(NULL, 1), PQTX_MISUSE);
}
END_TEST

/* ---- at which isolation */

static pqtx_status try_lock_of(int call)
{
    static const int64_t keys[] = {2, 1};
    switch (call) {
    case 0:
        return pqtx_lock(tx, 1);
    case 1:
        return pqtx_lock_shared(tx, 1);
    case 2:
        return pqtx_lock_pair(tx, 1, 1);
    case 3:
        return pqtx_lock_pair_shared(tx, 1, 1);
    case 4:
        return pqtx_try_lock(tx, 1);
    case 5:
        return pqtx_try_lock_shared(tx, 1);
    case 6:
        return pqtx_try_lock_pair(tx, 1, 1);
    case 7:
        return pqtx_try_lock_pair_shared(tx, 1, 1);
    case 8:
        return pqtx_lock_many(tx, keys, 2);
    case 9:
        return pqtx_lock_many_shared(tx, keys, 2);
    default:
        return pqtx_lock_wait(tx, 1);
    }
}

enum { CALLS = 11 };

static void assert_all_refused(void)
{
    for (int call = 0; call < CALLS; call++) {
        begin();
        assert_call(try_lock_of(call), PQTX_WRONG_ISOLATION);
        assert_held("nothing");
        assert_call(pqtx_commit(tx), PQTX_WRONG_ISOLATION);
        finish();
    }
}

static void assert_all_taken(void)
{
    for (int call = 0; call < CALLS; call++) {
        begin();
        assert_call(try_lock_of(call), PQTX_OK);
        ck_assert_str_ne(held(), "nothing");
        assert_call(pqtx_commit(tx), PQTX_OK);
        finish();
    }
}

START_TEST(locks_are_refused_where_the_snapshot_would_be_older)
{
    options.isolation = PQTX_ISO_REPEATABLE_READ;
    assert_all_refused();
    options.isolation = PQTX_ISO_SERIALIZABLE;
    assert_all_refused();
    options.isolation = PQTX_ISO_READ_COMMITTED;
    assert_all_taken();
}
END_TEST

START_TEST(locks_are_refused_where_the_sessions_default_is_such)
{
    sql(own, "SET default_transaction_isolation = 'repeatable read'");
    assert_all_refused();
    sql(own, "SET default_transaction_isolation = 'serializable'");
    assert_all_refused();
    options.isolation = PQTX_ISO_READ_COMMITTED;
    assert_all_taken();
    options.isolation = PQTX_ISO_DEFAULT;
    sql(own, "SET default_transaction_isolation = 'read uncommitted'");
    assert_all_taken();
}
END_TEST

START_TEST(a_refused_lock_does_not_wait_for_its_holder)
{
    sql(holder, "BEGIN; SELECT pg_advisory_xact_lock(1), pg_advisory_xact_lock(1, 1)");
    options.isolation = PQTX_ISO_SERIALIZABLE;
    assert_all_refused();
}
END_TEST

START_TEST(locks_are_taken_at_any_isolation_when_asked_to)
{
    options.flags = PQTX_LOCK_ANY_ISOLATION;
    options.isolation = PQTX_ISO_REPEATABLE_READ;
    assert_all_taken();
    options.isolation = PQTX_ISO_SERIALIZABLE;
    assert_all_taken();
}
END_TEST

START_TEST(decoys_in_the_search_path_take_no_lock_away)
{
    sql(monitor,
        "DROP SCHEMA IF EXISTS pqtx_decoys CASCADE; CREATE SCHEMA pqtx_decoys;"
        "DO $do$ DECLARE f text; BEGIN"
        " FOREACH f IN ARRAY ARRAY['pg_advisory_xact_lock', 'pg_advisory_xact_lock_shared'] LOOP"
        "  EXECUTE format('CREATE FUNCTION pqtx_decoys.%I(bigint) RETURNS void LANGUAGE sql AS "
        "'''''"
        "                 , f);"
        "  EXECUTE format('CREATE FUNCTION pqtx_decoys.%I(int, int) RETURNS void LANGUAGE sql"
        "                 AS ''''', f);"
        "  EXECUTE format('CREATE FUNCTION pqtx_decoys.%I(bigint) RETURNS bool LANGUAGE sql"
        "                 AS ''SELECT true''', replace(f, 'pg_', 'pg_try_'));"
        "  EXECUTE format('CREATE FUNCTION pqtx_decoys.%I(int, int) RETURNS bool LANGUAGE sql"
        "                 AS ''SELECT true''', replace(f, 'pg_', 'pg_try_'));"
        " END LOOP; END $do$;"
        "CREATE FUNCTION pqtx_decoys.left(text, int) RETURNS text LANGUAGE sql AS 'SELECT "
        "''read''';"
        "CREATE FUNCTION pqtx_decoys.current_setting(text) RETURNS text LANGUAGE sql"
        " AS 'SELECT ''read committed''';"
        "CREATE FUNCTION pqtx_decoys.unnest(bigint[]) RETURNS SETOF bigint LANGUAGE sql AS"
        " 'SELECT 666::bigint';"
        "CREATE FUNCTION pqtx_decoys.always(text, text) RETURNS bool LANGUAGE sql"
        " AS 'SELECT true';"
        "CREATE OPERATOR pqtx_decoys.= (LEFTARG = text, RIGHTARG = text,"
        " FUNCTION = pqtx_decoys.always);"
        "CREATE DOMAIN pqtx_decoys.int8 AS pg_catalog.int8 CHECK (false);"
        "CREATE DOMAIN pqtx_decoys.int4 AS pg_catalog.int4 CHECK (false)");
    sql(own, "SET search_path = pqtx_decoys, pg_catalog");
    assert_all_taken();
    options.isolation = PQTX_ISO_REPEATABLE_READ;
    assert_all_refused();
    sql(monitor, "DROP SCHEMA pqtx_decoys CASCADE");
}
END_TEST

/* ---- lock_timeout */

static void assert_lock_timeout(const char *expected)
{
    const PGresult *row;
    assert_call(pqtx_exec_one(tx, "SELECT current_setting('lock_timeout')", PQTX_NO_ARGS, &row),
                PQTX_OK);
    ck_assert_str_eq(PQgetvalue(row, 0, 0), expected);
}

static void set_timeout(int64_t ms)
{
    assert_call(pqtx_set_lock_timeout(tx, ms), PQTX_OK);
}

START_TEST(the_lock_timeout_holds_from_the_next_statement_on)
{
    begin();
    set_timeout(123);
    assert_lock_timeout("123ms");
    assert_lock_timeout("123ms");
    set_timeout(1);
    set_timeout(2); /* the last word counts */
    assert_lock_timeout("2ms");
    set_timeout(0);
    assert_lock_timeout("50ms");
    set_timeout(PQTX_NO_TIMEOUT);
    assert_lock_timeout("0");
    set_timeout(7);
    assert_lock_timeout("7ms");
    assert_call(pqtx_commit(tx), PQTX_OK);
    finish();
    ck_assert_str_eq(ask(own, "SHOW lock_timeout"), "0");
    begin(); /* it was that attempt's */
    assert_lock_timeout("50ms");
    finish();
}
END_TEST

START_TEST(the_lock_timeout_is_never_longer_than_the_time_left)
{
    const PGresult *row;
    int64_t ms = 0;
    options.deadline_ms = 10000;
    begin();
    set_timeout(2147483647);
    assert_call(pqtx_exec_one(tx, "SELECT setting FROM pg_settings WHERE name = 'lock_timeout'",
                              PQTX_NO_ARGS, &row),
                PQTX_OK);
    ck_assert_int_eq(pqtx_get_int(row, 0, 0, &ms), PQTX_OK);
    ck_assert_int_gt(ms, 0);
    ck_assert_int_lt(ms, options.deadline_ms);
    finish();
}
END_TEST

START_TEST(a_lock_timeout_out_of_range_is_misuse)
{
    static const int64_t wrong[] = {-2, INT64_MIN, INT64_C(2147483648), INT64_MAX};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        begin();
        assert_call(pqtx_set_lock_timeout(tx, wrong[i]), PQTX_MISUSE);
        assert_call(pqtx_commit(tx), PQTX_MISUSE);
        finish();
    }
}
END_TEST

START_TEST(without_a_lock_timeout_of_its_own_the_sessions_holds)
{
    char conninfo[4096];
    snprintf(conninfo, sizeof conninfo, "%s options='-c lock_timeout=77ms'", test_conninfo());
    PQfinish(own);
    own = PQconnectdb(conninfo);
    options.lock_timeout_ms = PQTX_NO_TIMEOUT;
    begin();
    assert_lock_timeout("77ms");
    set_timeout(5);
    assert_lock_timeout("5ms");
    set_timeout(0);
    assert_lock_timeout("77ms");
    set_timeout(PQTX_NO_TIMEOUT);
    assert_lock_timeout("0");
    finish();
}
END_TEST

static pqtx_status set_and_undo(pqtx_tx *t, void *arg)
{
    (void)arg;
    pqtx_set_lock_timeout(t, 9);
    assert_lock_timeout("9ms");
    return PQTX_USER;
}

START_TEST(an_undone_savepoint_takes_its_lock_timeout_with_it)
{
    begin();
    assert_call(pqtx_savepoint(tx, set_and_undo, NULL), PQTX_USER);
    assert_lock_timeout("50ms");
    set_timeout(33);
    assert_lock_timeout("33ms");
    assert_call(pqtx_savepoint(tx, set_and_undo, NULL), PQTX_USER);
    assert_lock_timeout("33ms");
    finish();
}
END_TEST

START_TEST(the_lock_timeout_bounds_row_locks_and_table_locks_alike)
{
    sql(monitor, "CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)");
    sql(holder, "BEGIN; SELECT * FROM t FOR UPDATE");
    options.lock_timeout_ms = 20000;
    begin();
    set_timeout(20);
    assert_call(pqtx_exec(tx, "DELETE FROM t", PQTX_NO_ARGS, NULL), PQTX_BUSY);
    finish();
    begin();
    set_timeout(20);
    assert_call(pqtx_exec(tx, "DROP TABLE t", PQTX_NO_ARGS, NULL), PQTX_BUSY);
    finish();
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("live_lock");
    TCase *c = tcase_create("lock");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_set_timeout(c, 60);
    tcase_add_test(c, each_call_takes_the_lock_that_it_is_named_for);
    tcase_add_test(c, keys_and_pairs_are_spaces_apart);
    tcase_add_test(c, shared_locks_agree_and_exclusive_ones_do_not);
    tcase_add_test(c, waiting_for_a_lock_ends_busy_and_marks_the_attempt);
    tcase_add_test(c, a_waiting_lock_is_had_when_its_holder_lets_go);
    tcase_add_test(c, locks_are_released_with_the_transaction_or_the_savepoint);
    tcase_add_test(c, several_keys_may_hold_one_twice);
    tcase_add_test(c, several_keys_are_taken_in_ascending_order);
    tcase_add_test(c, no_keys_lock_nothing);
    tcase_add_test(c, null_keys_are_misuse);
    tcase_add_test(c, ten_thousand_keys_are_one_call);
    tcase_add_test(c, callers_with_the_same_keys_in_any_order_never_deadlock);
    tcase_add_test(c, the_server_finds_the_same_key_for_a_name);
    add_direct_test(c, a_wait_goes_on_slice_after_slice_in_one_attempt, ANY_SESSION);
    tcase_add_test(c, a_wait_in_slices_ends_busy_at_the_deadline);
    add_direct_test(c, a_wait_in_slices_does_not_hold_up_an_index_that_is_built_meanwhile,
                    ANY_SESSION);
    tcase_add_test(c, a_wait_in_slices_comes_before_everything_else);
    tcase_add_test(c, locks_are_refused_where_the_snapshot_would_be_older);
    add_direct_test(c, locks_are_refused_where_the_sessions_default_is_such, SESSION_STATE);
    tcase_add_test(c, a_refused_lock_does_not_wait_for_its_holder);
    tcase_add_test(c, locks_are_taken_at_any_isolation_when_asked_to);
    add_direct_test(c, decoys_in_the_search_path_take_no_lock_away, SESSION_STATE);
    tcase_add_test(c, the_lock_timeout_holds_from_the_next_statement_on);
    tcase_add_test(c, the_lock_timeout_is_never_longer_than_the_time_left);
    tcase_add_test(c, a_lock_timeout_out_of_range_is_misuse);
    add_direct_test(c, without_a_lock_timeout_of_its_own_the_sessions_holds, NO_OPTIONS);
    tcase_add_test(c, an_undone_savepoint_takes_its_lock_timeout_with_it);
    tcase_add_test(c, the_lock_timeout_bounds_row_locks_and_table_locks_alike);
    suite_add_tcase(s, c);
    return s;
}

int main(void)
{
    return run_suite(suite());
}
