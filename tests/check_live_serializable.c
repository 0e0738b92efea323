/* check_live_serializable.c: the level asked for, enforced by a trigger, and what a transaction is
 * held to have read. */
#include "support.h"
#include "support_tx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (int)(sizeof(array) / sizeof((array)[0]))

static PGconn *monitor, *own;
static pqtx_options options;
static pqtx_tx *tx; /* the transaction on `own` */

static void set_up(void)
{
    fresh_schema("pqtx_serializable");
    monitor = open_session();
    own = open_session();
    options = (pqtx_options)PQTX_OPTIONS;
    options.isolation = PQTX_ISO_SERIALIZABLE;
    options.retry_mask = PQTX_RETRY_NOTHING;
}

static void tear_down(void)
{
    PQfinish(monitor);
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

static void run(const char *statement)
{
    assert_call(pqtx_exec(tx, statement, PQTX_NO_ARGS, NULL), PQTX_OK);
}

/* ---- asked for */

/* In both modes, a row written before it, and committed only where the level is right. */
static void assert_requires(pqtx_isolation least, pqtx_status expected)
{
    sql(monitor, "DROP TABLE IF EXISTS t; CREATE TABLE t (id int)");
    for (int pipelined = 0; pipelined < 2; pipelined++) {
        begin();
        if (pipelined)
            pqtx_pipeline(tx);
        run("INSERT INTO t VALUES (1)");
        assert_call(pqtx_require_isolation(tx, least), pipelined ? PQTX_OK : expected);
        assert_call(pqtx_commit(tx), expected);
        finish();
        ck_assert_int_eq(ask_int(monitor, "SELECT count(*) FROM t"),
                         expected == PQTX_OK ? 1 + pipelined : 0);
    }
}

static void assert_level_is(pqtx_isolation level)
{
    for (int least = PQTX_ISO_READ_COMMITTED; least <= PQTX_ISO_SERIALIZABLE; least++)
        assert_requires((pqtx_isolation)least,
                        least <= (int)level ? PQTX_OK : PQTX_WRONG_ISOLATION);
}

START_TEST(a_level_satisfies_those_below_it)
{
    for (int level = PQTX_ISO_READ_COMMITTED; level <= PQTX_ISO_SERIALIZABLE; level++) {
        options.isolation = (pqtx_isolation)level;
        assert_level_is(options.isolation);
    }
}
END_TEST

START_TEST(the_sessions_default_counts)
{
    options.isolation = PQTX_ISO_DEFAULT;
    assert_level_is(PQTX_ISO_READ_COMMITTED);
    sql(own, "SET default_transaction_isolation = 'repeatable read'");
    assert_level_is(PQTX_ISO_REPEATABLE_READ);
    sql(own, "SET default_transaction_isolation = 'serializable'");
    assert_level_is(PQTX_ISO_SERIALIZABLE);
    sql(own, "SET default_transaction_isolation = 'read uncommitted'");
    assert_level_is(PQTX_ISO_READ_COMMITTED);
}
END_TEST

START_TEST(what_the_body_has_set_counts)
{
    begin();
    run("SET TRANSACTION ISOLATION LEVEL READ COMMITTED");
    assert_call(pqtx_require_isolation(tx, PQTX_ISO_SERIALIZABLE), PQTX_WRONG_ISOLATION);
    assert_call(pqtx_exec(tx, "SELECT 1", PQTX_NO_ARGS, NULL), PQTX_WRONG_ISOLATION);
    finish();
    options.isolation = PQTX_ISO_READ_COMMITTED;
    begin();
    run("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE");
    assert_call(pqtx_require_isolation(tx, PQTX_ISO_SERIALIZABLE), PQTX_OK);
    finish();
}
END_TEST

START_TEST(what_is_no_level_is_misuse)
{
    static const int wrong[] = {PQTX_ISO_DEFAULT, -1, 4, PQTX_ISO_MAX};
    for (int i = 0; i < COUNT(wrong); i++) {
        begin();
        assert_call(pqtx_require_isolation(tx, (pqtx_isolation)wrong[i]), PQTX_MISUSE);
        assert_call(pqtx_commit(tx), PQTX_MISUSE);
        finish();
    }
    ck_assert_int_eq(pqtx_require_isolation(NULL, PQTX_ISO_SERIALIZABLE), PQTX_MISUSE);
}
END_TEST

START_TEST(decoys_in_the_search_path_change_no_answer)
{
    sql(monitor,
        "DROP SCHEMA IF EXISTS pqtx_decoys CASCADE; CREATE SCHEMA pqtx_decoys;"
        "CREATE FUNCTION pqtx_decoys.current_setting(text) RETURNS text LANGUAGE sql"
        " AS 'SELECT ''serializable''';"
        "CREATE FUNCTION pqtx_decoys.left(text, int) RETURNS text LANGUAGE sql AS 'SELECT $1';"
        "CREATE FUNCTION pqtx_decoys.always(text, text) RETURNS bool LANGUAGE sql"
        " AS 'SELECT true';"
        "CREATE OPERATOR pqtx_decoys.= (LEFTARG = text, RIGHTARG = text,"
        " FUNCTION = pqtx_decoys.always);"
        "CREATE OPERATOR pqtx_decoys.<> (LEFTARG = text, RIGHTARG = text,"
        " FUNCTION = pqtx_decoys.always);"
        "CREATE TABLE pqtx_decoys.pg_locks (pid int)");
    sql(own, "SET search_path = pqtx_decoys, pqtx_serializable, pg_catalog");
    options.isolation = PQTX_ISO_READ_COMMITTED;
    assert_level_is(PQTX_ISO_READ_COMMITTED);
    size_t count;
    begin();
    assert_call(pqtx_predicate_locks(tx, NULL, 0, &count), PQTX_OK);
    finish();
    sql(monitor, "DROP SCHEMA pqtx_decoys CASCADE");
}
END_TEST

/* ---- enforced */

static char ddl[PQTX_SERIALIZABLE_DDL];

static const char *ddl_of(const char *schema, const char *table)
{
    size_t len = pqtx_serializable_ddl(schema, table, ddl, sizeof ddl);
    ck_assert_uint_gt(len, 0);
    ck_assert_uint_eq(len, strlen(ddl));
    return ddl;
}

/* Each way to write to a table t (id int PRIMARY KEY, v int) with a row 1; the server's version. */
static const struct write {
    const char *statement;
    int version;
} writes[] = {
    {"INSERT INTO t VALUES (2)", 0},
    {"INSERT INTO t VALUES (1) ON CONFLICT DO NOTHING", 0},
    {"INSERT INTO t VALUES (1) ON CONFLICT (id) DO UPDATE SET v = 1", 0},
    {"INSERT INTO t SELECT 3 WHERE false", 0},
    {"UPDATE t SET v = 1", 0},
    {"UPDATE t SET v = 1 WHERE false", 0},
    {"DELETE FROM t", 0},
    {"WITH gone AS (DELETE FROM t RETURNING id) SELECT count(*) FROM gone", 0},
    {"TRUNCATE t", 0},
    {"UPDATE seen SET v = 1", 0}, /* through a view */
    {"DELETE FROM parent", 0},    /* by a cascade */
    {"MERGE INTO t USING (SELECT 1 AS id) AS s ON s.id = t.id WHEN MATCHED THEN DELETE", 150000},
};

static void make_table(void)
{
    sql(monitor, "CREATE TABLE parent (id int PRIMARY KEY); INSERT INTO parent VALUES (1);"
                 "CREATE TABLE t (id int PRIMARY KEY,"
                 " v int REFERENCES parent ON DELETE CASCADE);"
                 "INSERT INTO t VALUES (1, 1); CREATE VIEW seen AS SELECT * FROM t");
}

static void write_at(pqtx_isolation level, const struct write *write, pqtx_status expected)
{
    pqtx_error error = PQTX_ERROR;
    options.isolation = level;
    if (PQserverVersion(own) < write->version)
        return;
    begin();
    pqtx_status status = pqtx_exec(tx, write->statement, PQTX_NO_ARGS, NULL);
    pqtx_get_error(tx, &error);
    assert_status(status, expected, &error);
    if (expected != PQTX_OK) {
        ck_assert_str_eq(error.sqlstate, "PQ094");
        ck_assert_str_eq(error.schema_name, "pqtx_serializable");
        ck_assert_str_eq(error.table_name, "t");
        ck_assert_int_eq(error.advice, PQTX_ADVICE_FIX);
    }
    finish();
}

START_TEST(every_writer_of_a_lower_level_is_refused)
{
    make_table();
    sql(monitor, ddl_of(_i ? "pqtx_serializable" : NULL, "t"));
    for (int i = 0; i < COUNT(writes); i++) {
        write_at(PQTX_ISO_DEFAULT, &writes[i], PQTX_WRONG_ISOLATION);
        write_at(PQTX_ISO_READ_COMMITTED, &writes[i], PQTX_WRONG_ISOLATION);
        write_at(PQTX_ISO_REPEATABLE_READ, &writes[i], PQTX_WRONG_ISOLATION);
        write_at(PQTX_ISO_SERIALIZABLE, &writes[i], PQTX_OK);
    }
    ck_assert_str_eq(ask(monitor, "SELECT string_agg(t::text, ' ') FROM t"), "(1,1)");
}
END_TEST

/* The library itself sends no COPY. */
START_TEST(copy_is_refused_as_well)
{
    make_table();
    sql(monitor, ddl_of(NULL, "t"));
    start_sql(own, "COPY t FROM '/dev/null'");
    ck_assert_str_eq(finish_sql(own), "PQ094");
    sql(own, "SET default_transaction_isolation = 'serializable'");
    sql(own, "COPY t FROM '/dev/null'");
}
END_TEST

START_TEST(readers_of_a_lower_level_are_not_refused)
{
    make_table();
    sql(monitor, ddl_of(NULL, "t"));
    options.isolation = PQTX_ISO_READ_COMMITTED;
    begin();
    run("SELECT * FROM t FOR UPDATE");
    assert_call(pqtx_commit(tx), PQTX_OK);
    finish();
}
END_TEST

START_TEST(a_replica_applies_at_its_own_level)
{
    make_table();
    sql(monitor, ddl_of(NULL, "t"));
    sql(own, "SET session_replication_role = replica");
    write_at(PQTX_ISO_READ_COMMITTED, &writes[0], PQTX_OK);
}
END_TEST

/* The trigger belongs to the table that a statement names. */
START_TEST(a_partition_needs_a_trigger_of_its_own)
{
    static const struct write direct = {"INSERT INTO t VALUES (2)", 0};
    sql(monitor, "CREATE TABLE whole (id int) PARTITION BY LIST (id);"
                 "CREATE TABLE t PARTITION OF whole DEFAULT");
    sql(monitor, ddl_of(NULL, "whole"));
    write_at(PQTX_ISO_READ_COMMITTED, &direct, PQTX_OK);
    sql(monitor, ddl_of(NULL, "t"));
    write_at(PQTX_ISO_READ_COMMITTED, &direct, PQTX_WRONG_ISOLATION);
}
END_TEST

static const char *const names[] = {
    "plain",
    "Mixed",
    "select",
    "a b",
    "say \"no\"",
    "\"",
    "\"\"; DROP TABLE plain; --",
    "$pqtx$",
    "$$",
    "back\\slash",
    "it's",
    "%s %I",
    "\xc3\xbc\xe2\x82\xac",
    "a.b",
    "line\nend",
    "sixty-three bytes ............................................." /* 63 */,
};

START_TEST(names_may_be_any)
{
    char *quoted = PQescapeIdentifier(own, names[_i], strlen(names[_i]));
    char statement[512];
    snprintf(statement, sizeof statement,
             "DROP SCHEMA IF EXISTS %s CASCADE; CREATE SCHEMA %s; CREATE TABLE %s.%s (id int)",
             quoted, quoted, quoted, quoted);
    sql(monitor, statement);
    for (int twice = 0; twice < 2; twice++)
        sql(monitor, ddl_of(names[_i], names[_i]));
    snprintf(statement, sizeof statement, "INSERT INTO %s.%s VALUES (1)", quoted, quoted);
    start_sql(own, statement);
    ck_assert_str_eq(finish_sql(own), "PQ094");
    sql(own, "SET default_transaction_isolation = 'serializable'");
    sql(own, statement);
    snprintf(statement, sizeof statement, "DROP SCHEMA %s CASCADE", quoted);
    sql(monitor, statement);
    PQfreemem(quoted);
}
END_TEST

START_TEST(the_text_is_cut_as_snprintf_cuts)
{
    char small[100], worst[64];
    size_t len = strlen(ddl_of("s", "t"));
    ck_assert_uint_eq(pqtx_serializable_ddl("s", "t", NULL, 0), len);
    for (size_t size = 1; size <= sizeof small; size++) {
        memset(small, 'x', sizeof small);
        ck_assert_uint_eq(pqtx_serializable_ddl("s", "t", small, size), len);
        ck_assert_uint_eq(strlen(small), size - 1);
        ck_assert_int_eq(strncmp(small, ddl, size - 1), 0);
        ck_assert(size == sizeof small || small[size] == 'x');
    }
    memset(worst, '"', 63);
    worst[63] = '\0';
    ck_assert_uint_lt(pqtx_serializable_ddl(worst, worst, NULL, 0), PQTX_SERIALIZABLE_DDL);
}
END_TEST

START_TEST(what_is_no_name_has_no_text)
{
    char text[8] = "before";
    char longer[65];
    memset(longer, 'x', 64);
    longer[64] = '\0';
    ck_assert_uint_eq(pqtx_serializable_ddl(NULL, NULL, text, sizeof text), 0);
    ck_assert_str_eq(text, "");
    ck_assert_uint_eq(pqtx_serializable_ddl(NULL, "", NULL, 0), 0);
    ck_assert_uint_eq(pqtx_serializable_ddl("", "t", NULL, 0), 0);
    ck_assert_uint_eq(pqtx_serializable_ddl(NULL, longer, NULL, 0), 0);
    ck_assert_uint_eq(pqtx_serializable_ddl(longer, "t", NULL, 0), 0);
}
END_TEST

/* ---- looked into */

static pqtx_predicate_lock locks[4];
static size_t lock_count;

/* 20,000 rows on about a hundred pages, and a table that nobody has indexed. */
static void make_rows(void)
{
    sql(monitor, "CREATE TABLE \"Rows\" (id int PRIMARY KEY, v int);"
                 "INSERT INTO \"Rows\" SELECT i, i FROM generate_series(1, 20000) AS i;"
                 "CREATE TABLE bare AS SELECT 1 AS id");
    sql(monitor, "ANALYZE \"Rows\"");
}

static void look(void)
{
    for (int i = 0; i < COUNT(locks); i++)
        locks[i] = (pqtx_predicate_lock)PQTX_PREDICATE_LOCK;
    assert_call(pqtx_predicate_locks(tx, locks, (size_t)COUNT(locks), &lock_count), PQTX_OK);
}

/* Of those that were found. */
static const pqtx_predicate_lock *lock_on(const char *relation)
{
    for (size_t i = 0; i < lock_count; i++)
        if (strcmp(locks[i].relation, relation) == 0)
            return &locks[i];
    ck_abort_msg("nothing of %s", relation);
    return NULL;
}

static void assert_lock(const char *relation, int64_t tuples, int64_t pages, int whole)
{
    const pqtx_predicate_lock *lock = lock_on(relation);
    ck_assert_str_eq(lock->schema, "pqtx_serializable");
    ck_assert_int_eq(lock->tuples, tuples);
    ck_assert_int_eq(lock->pages, pages);
    ck_assert_int_eq(lock->whole, whole);
    ck_assert_int_eq(lock->is_index, strstr(relation, "_pkey") != NULL);
    ck_assert_uint_eq(lock->size, sizeof *lock);
}

START_TEST(rows_by_an_index_are_tuples_and_a_page_of_the_index)
{
    make_rows();
    begin();
    run("SELECT v FROM \"Rows\" WHERE id IN (7, 8)");
    look();
    ck_assert_uint_eq(lock_count, 2);
    assert_lock("Rows", 2, 0, 0);
    assert_lock("Rows_pkey", 0, 1, 0);
    finish();
}
END_TEST

START_TEST(many_tuples_of_a_page_are_the_page)
{
    make_rows();
    begin();
    run("SELECT sum(v) FROM \"Rows\" WHERE id BETWEEN 5 AND 14");
    look();
    assert_lock("Rows", 0, 1, 0);
    finish();
}
END_TEST

START_TEST(rows_on_too_many_pages_are_the_whole)
{
    make_rows();
    begin();
    run("SET LOCAL enable_seqscan = off");
    run("SELECT sum(v) FROM \"Rows\" WHERE id = ANY (ARRAY(SELECT generate_series(1, 20000, "
        "250)))");
    look();
    assert_lock("Rows", 0, 0, 1);
    ck_assert_str_eq(locks[0].relation, "Rows"); /* before its index */
    finish();
}
END_TEST

START_TEST(a_sequential_scan_is_the_whole)
{
    make_rows();
    begin();
    run("SELECT v FROM \"Rows\" WHERE id = 7");
    run("SELECT id FROM bare WHERE id = 7");
    look();
    ck_assert_uint_eq(lock_count, 3);
    ck_assert_str_eq(locks[0].relation, "bare");
    assert_lock("bare", 0, 0, 1);
    finish();
}
END_TEST

START_TEST(below_serializable_there_are_none)
{
    make_rows();
    options.isolation = PQTX_ISO_REPEATABLE_READ;
    begin();
    run("SELECT id FROM bare");
    look();
    ck_assert_uint_eq(lock_count, 0);
    finish();
}
END_TEST

START_TEST(those_of_an_earlier_transaction_are_not_counted)
{
    char query[200];
    make_rows();
    sql(monitor, "BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT v FROM \"Rows\" WHERE id = 1");
    begin();
    run("SELECT id FROM bare");
    run("UPDATE \"Rows\" SET v = 0 WHERE id = 9");
    assert_call(pqtx_commit(tx), PQTX_OK);
    finish();
    snprintf(query, sizeof query,
             "SELECT count(*) FROM pg_locks WHERE mode = 'SIReadLock' AND pid = %d"
             " AND relation = 'bare'::regclass",
             PQbackendPID(own));
    ck_assert_int_eq(ask_int(monitor, query), 1);
    begin();
    run("SELECT v FROM \"Rows\" WHERE id = 7");
    look();
    ck_assert_uint_eq(lock_count, 2);
    assert_lock("Rows", 1, 0, 0);
    finish();
}
END_TEST

START_TEST(in_pipeline_mode_what_is_queued_counts)
{
    make_rows();
    begin();
    assert_call(pqtx_pipeline(tx), PQTX_OK);
    run("SELECT id FROM bare");
    look();
    ck_assert_uint_eq(lock_count, 1);
    assert_lock("bare", 0, 0, 1);
    run("SELECT v FROM \"Rows\" WHERE id = 7");
    assert_call(pqtx_commit(tx), PQTX_OK);
    finish();
}
END_TEST

START_TEST(what_has_no_room_is_counted)
{
    make_rows();
    begin();
    run("SELECT v FROM \"Rows\" WHERE id = 7");
    run("SELECT id FROM bare WHERE id = 7");
    assert_call(pqtx_predicate_locks(tx, NULL, 0, &lock_count), PQTX_OK);
    ck_assert_uint_eq(lock_count, 3);
    memset(locks, 0x55, sizeof locks);
    locks[0] = (pqtx_predicate_lock)PQTX_PREDICATE_LOCK;
    assert_call(pqtx_predicate_locks(tx, locks, 1, &lock_count), PQTX_OK);
    ck_assert_uint_eq(lock_count, 3);
    ck_assert_str_eq(locks[0].relation, "bare");
    ck_assert_int_eq(locks[1].whole, 0x55555555);
    finish();
}
END_TEST

START_TEST(locks_without_a_size_are_misuse)
{
    begin();
    memset(locks, 0, sizeof locks);
    assert_call(pqtx_predicate_locks(tx, locks, 1, &lock_count), PQTX_MISUSE);
    finish();
    begin();
    assert_call(pqtx_predicate_locks(tx, NULL, 1, &lock_count), PQTX_MISUSE);
    finish();
    begin();
    assert_call(pqtx_predicate_locks(tx, NULL, 0, NULL), PQTX_MISUSE);
    finish();
    ck_assert_int_eq(pqtx_predicate_locks(NULL, NULL, 0, &lock_count), PQTX_MISUSE);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("live_serializable");
    TCase *c = tcase_create("serializable");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_add_test(c, a_level_satisfies_those_below_it);
    tcase_add_test(c, the_sessions_default_counts);
    tcase_add_test(c, what_the_body_has_set_counts);
    tcase_add_test(c, what_is_no_level_is_misuse);
    tcase_add_test(c, decoys_in_the_search_path_change_no_answer);
    tcase_add_loop_test(c, every_writer_of_a_lower_level_is_refused, 0, 2);
    tcase_add_test(c, copy_is_refused_as_well);
    tcase_add_test(c, readers_of_a_lower_level_are_not_refused);
    tcase_add_test(c, a_replica_applies_at_its_own_level);
    tcase_add_test(c, a_partition_needs_a_trigger_of_its_own);
    tcase_add_loop_test(c, names_may_be_any, 0, COUNT(names));
    tcase_add_test(c, the_text_is_cut_as_snprintf_cuts);
    tcase_add_test(c, what_is_no_name_has_no_text);
    tcase_add_test(c, rows_by_an_index_are_tuples_and_a_page_of_the_index);
    tcase_add_test(c, many_tuples_of_a_page_are_the_page);
    tcase_add_test(c, rows_on_too_many_pages_are_the_whole);
    tcase_add_test(c, a_sequential_scan_is_the_whole);
    tcase_add_test(c, below_serializable_there_are_none);
    tcase_add_test(c, those_of_an_earlier_transaction_are_not_counted);
    tcase_add_test(c, in_pipeline_mode_what_is_queued_counts);
    tcase_add_test(c, what_has_no_room_is_counted);
    tcase_add_test(c, locks_without_a_size_are_misuse);
    suite_add_tcase(s, c);
    return s;
}

int main(void)
{
    return run_suite(suite());
}
