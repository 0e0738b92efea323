/* check_live_table.c: the table of events and tokens: made, kept small, and used by nobody's
 * functions but PostgreSQL's own. */
#define _DEFAULT_SOURCE
#include "support.h"
#include "support_doubt.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static PGconn *monitor;
static pqtx_pool *pool;

static void make(void)
{
    make_doubt("pqtx_table");
}

static void set_up(void)
{
    monitor = open_doubt();
    pool = open_pool(8);
}

static void tear_down(void)
{
    pqtx_pool_close(pool);
    PQfinish(monitor);
}

static void install(const char *schema, pqtx_status expected)
{
    pqtx_error error = PQTX_ERROR;
    assert_status(pqtx_once_install(pool, schema, &error), expected, &error);
}

/* ---- Making it */

/* Everything that the catalogs know of a table of this name, but the names of its schema. */
static const char *shape_of(const char *schema)
{
    char query[2048];
    snprintf(
        query, sizeof query,
        "SELECT concat_ws(E'\\n', c.relkind, c.relpersistence, c.reloptions, c.relacl,"
        " (SELECT string_agg(concat_ws(' ', a.attname, n.nspname, t.typname, a.atttypmod,"
        "   a.attnotnull, l.collname, pg_get_expr(d.adbin, d.adrelid)), E'\\n' ORDER BY a.attnum)"
        "  FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid"
        "  JOIN pg_namespace n ON n.oid = t.typnamespace"
        "  LEFT JOIN pg_collation l ON l.oid = a.attcollation"
        "  LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum"
        "  WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),"
        " (SELECT string_agg(conname || ' ' || pg_get_constraintdef(oid), E'\\n' ORDER BY conname)"
        "  FROM pg_constraint WHERE conrelid = c.oid),"
        " (SELECT string_agg(replace(pg_get_indexdef(indexrelid), c.relnamespace::regnamespace"
        "   || '.', ''), E'\\n' ORDER BY indexrelid::regclass::text) FROM pg_index"
        "  WHERE indrelid = c.oid))"
        " FROM pg_class c WHERE c.relname = 'pqtx_once'"
        " AND c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = '%s')",
        schema);
    return ask(monitor, query);
}

/* The same text under a fresh schema, run as a migration would. */
static void run_ddl(const char *schema)
{
    char statement[128];
    snprintf(statement, sizeof statement,
             "DROP SCHEMA IF EXISTS %s CASCADE; CREATE SCHEMA %s; SET search_path = %s", schema,
             schema, schema);
    PGconn *session = open_session();
    sql(session, statement);
    sql(session, pqtx_once_ddl());
    sql(session, pqtx_once_ddl()); /* a second time is harmless */
    PQfinish(session);
}

START_TEST(the_text_makes_what_install_makes)
{
    run_ddl("pqtx_table_text");
    char *installed = strdup(shape_of("pqtx_table"));
    ck_assert_ptr_nonnull(installed);
    ck_assert_ptr_nonnull(strstr(installed, "PRIMARY KEY (id)"));
    ck_assert_ptr_nonnull(strstr(installed, "id pg_catalog text"));
    ck_assert_str_eq(shape_of("pqtx_table_text"), installed);
    free(installed);
    sql(monitor, "DROP SCHEMA pqtx_table_text CASCADE");
}
END_TEST

START_TEST(ids_compare_bytewise_in_any_database)
{
    ck_assert_str_eq(ask(monitor, "SELECT collname FROM pg_attribute a JOIN pg_collation c"
                                  " ON c.oid = attcollation WHERE attname = 'id'"
                                  " AND attrelid = 'pqtx_once'::regclass"),
                     "C");
}
END_TEST

START_TEST(a_second_install_changes_nothing)
{
    sql(monitor, "INSERT INTO pqtx_once (id) VALUES ('kept')");
    char *before = strdup(shape_of("pqtx_table"));
    ck_assert_ptr_nonnull(before);
    install("pqtx_table", PQTX_OK);
    ck_assert_str_eq(shape_of("pqtx_table"), before);
    ck_assert_int_eq(ask_int(monitor, "SELECT count(*) FROM pqtx_once"), 1);
    free(before);
}
END_TEST

static void *install_on_thread(void *arg)
{
    *(pqtx_status *)arg = pqtx_once_install(pool, "pqtx_table_many", NULL);
    return NULL;
}

START_TEST(eight_that_install_at_once_do_not_meet)
{
    enum { THREADS = 8, ROUNDS = 10 };
    for (int round = 0; round < ROUNDS; round++) {
        pthread_t threads[THREADS];
        pqtx_status statuses[THREADS];
        sql(monitor, "DROP SCHEMA IF EXISTS pqtx_table_many CASCADE;"
                     "CREATE SCHEMA pqtx_table_many");
        for (int i = 0; i < THREADS; i++)
            ck_assert(pthread_create(&threads[i], NULL, install_on_thread, &statuses[i]) == 0);
        for (int i = 0; i < THREADS; i++) {
            pthread_join(threads[i], NULL);
            assert_status(statuses[i], PQTX_OK, NULL);
        }
        pqtx_stats stats = PQTX_STATS;
        pqtx_pool_stats(pool, &stats);
        ck_assert_uint_eq(stats.commits, stats.attempts); /* none lost a race */
    }
    sql(monitor, "DROP SCHEMA pqtx_table_many CASCADE");
}
END_TEST

static struct trial event_in(const char *schema, pqtx_pool *where, pqtx_doubt in_doubt)
{
    struct trial trial;
    trial_init(&trial, where, in_doubt);
    trial.options.once_schema = schema;
    trial.options.event_id = "event";
    return trial;
}

START_TEST(a_schema_may_have_capitals)
{
    sql(monitor, "DROP SCHEMA IF EXISTS \"Pqtx_Table_9\" CASCADE; CREATE SCHEMA \"Pqtx_Table_9\"");
    install("Pqtx_Table_9", PQTX_OK);
    struct trial trial = event_in("Pqtx_Table_9", pool, PQTX_DOUBT_TOKEN);
    trial.point = PQTX_POINT_COMMIT_ANSWERED;
    trial.last = 1;
    trial_run(&trial);
    assert_trial(&trial, PQTX_OK);
    trial_run(&trial);
    assert_trial(&trial, PQTX_DONE_BEFORE);
    int64_t deleted;
    ck_assert_int_eq(pqtx_once_reap(pool, "Pqtx_Table_9", 0, 0, &deleted, NULL), PQTX_OK);
    ck_assert_int_eq(deleted, 2); /* the event, and the token of the run that was in doubt */
    sql(monitor, "DROP SCHEMA \"Pqtx_Table_9\" CASCADE");
}
END_TEST

START_TEST(a_schema_that_is_not_there_is_not_made)
{
    install("pqtx_nowhere", PQTX_BAD_STATEMENT);
    install("a.b", PQTX_MISUSE);
    install("", PQTX_MISUSE);
    install("a\"b", PQTX_MISUSE);
    struct trial trial = event_in("pqtx_nowhere", pool, PQTX_DOUBT_REPORT);
    trial_run(&trial);
    assert_trial(&trial, PQTX_BAD_STATEMENT);
    ck_assert_int_eq(trial.runs, 0);
}
END_TEST

/* ---- Keeping it small */

static void fill(int old, int young)
{
    char statement[256];
    snprintf(statement, sizeof statement,
             "INSERT INTO pqtx_once (id, at) SELECT 'old ' || n, now() - interval '1 hour' - n *"
             " interval '1 second' FROM generate_series(1, %d) n;"
             "INSERT INTO pqtx_once (id) SELECT 'young ' || n FROM generate_series(1, %d) n",
             old, young);
    sql(monitor, statement);
}

static int64_t reap(int64_t age_s, int64_t batch)
{
    int64_t deleted = -1;
    pqtx_error error = PQTX_ERROR;
    pqtx_status status = pqtx_once_reap(pool, "pqtx_table", age_s, batch, &deleted, &error);
    assert_status(status, PQTX_OK, &error);
    return deleted;
}

START_TEST(the_old_ones_go_in_batches_and_the_young_stay)
{
    fill(25, 5);
    ck_assert_int_eq(reap(1800, 10), 10);
    ck_assert_str_eq(ask(monitor, "SELECT string_agg(id, ',') FROM pqtx_once WHERE id IN"
                                  " ('old 25', 'old 16', 'old 15')"),
                     "old 15"); /* the oldest first */
    ck_assert_int_eq(reap(1800, 10), 10);
    ck_assert_int_eq(reap(1800, 10), 5);
    ck_assert_int_eq(reap(1800, 10), 0);
    ck_assert_int_eq(ask_int(monitor, "SELECT count(*) FROM pqtx_once"), 5);
    ck_assert_int_eq(reap(0, 1), 1);
    ck_assert_int_eq(reap(0, 0), 4);
}
END_TEST

START_TEST(a_batch_is_1000_unless_one_says_otherwise)
{
    fill(1001, 0);
    ck_assert_int_eq(reap(1800, 0), 1000);
    ck_assert_int_eq(reap(1800, 0), 1);
}
END_TEST

static void *reap_on_thread(void *arg)
{
    int64_t *sum = arg, deleted;
    while (pqtx_once_reap(pool, "pqtx_table", 1800, 7, &deleted, NULL) == PQTX_OK && deleted > 0)
        *sum += deleted;
    return NULL;
}

/* One row is locked by somebody for all the while: nobody waits for him, and the row stays. */
START_TEST(two_reapers_share_the_work_and_pass_over_a_locked_row)
{
    pthread_t threads[2];
    int64_t sums[2] = {0};
    PGconn *holder = open_session();
    fill(500, 3);
    sql(holder, "BEGIN; SELECT FROM pqtx_once WHERE id = 'old 250' FOR UPDATE");
    for (int i = 0; i < 2; i++)
        ck_assert(pthread_create(&threads[i], NULL, reap_on_thread, &sums[i]) == 0);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    ck_assert_int_eq(sums[0] + sums[1], 499);
    ck_assert_int_eq(ask_int(monitor, "SELECT count(*) FROM pqtx_once"), 4);
    sql(holder, "COMMIT");
    PQfinish(holder);
    ck_assert_int_eq(reap(1800, 0), 1);
}
END_TEST

START_TEST(an_id_that_is_gone_can_be_applied_anew)
{
    struct trial trial = event_in("pqtx_table", pool, PQTX_DOUBT_REPORT);
    trial_run(&trial);
    assert_trial(&trial, PQTX_OK);
    ck_assert_int_eq(reap(3600, 0), 0);
    trial_run(&trial);
    assert_trial(&trial, PQTX_DONE_BEFORE);
    ck_assert_int_eq(reap(0, 0), 1);
    trial_run(&trial);
    assert_trial(&trial, PQTX_OK);
    ck_assert_int_eq(rows_of(monitor, &trial, true), 2);
}
END_TEST

START_TEST(a_reaper_that_is_told_nonsense_says_so)
{
    int64_t deleted = -1;
    pqtx_error error = PQTX_ERROR;
    ck_assert_int_eq(pqtx_once_reap(pool, "pqtx_table", -1, 0, &deleted, &error), PQTX_MISUSE);
    ck_assert_int_eq(deleted, 0);
    ck_assert_int_eq(error.status, PQTX_MISUSE);
    ck_assert_int_eq(pqtx_once_reap(pool, "pqtx_table", 0, -1, NULL, NULL), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_once_reap(pool, "a b", 0, 0, NULL, NULL), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_once_reap(NULL, "pqtx_table", 0, 0, NULL, NULL), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_once_reap(pool, "pqtx_nowhere", 0, 0, NULL, NULL), PQTX_BAD_STATEMENT);
    ck_assert_int_eq(pqtx_once_install(NULL, "pqtx_table", NULL), PQTX_MISUSE);
}
END_TEST

/* ---- Sessions in which nothing means what it should */

/* A schema that comes before pg_catalog, and has a trap for every name that one might use. */
static void lay_traps(void)
{
    static const char *const functions[] = {"now()",
                                            "pg_advisory_xact_lock(bigint)",
                                            "count()",
                                            "make_interval(bigint)",
                                            "pg_backend_pid()",
                                            "pg_terminate_backend(integer)",
                                            "pg_cancel_backend(integer)",
                                            "pg_xact_status(pg_catalog.xid8)",
                                            "pg_current_xact_id_if_assigned()",
                                            "pg_current_wal_lsn()",
                                            "pg_walfile_name(pg_catalog.pg_lsn)",
                                            "pg_is_in_recovery()",
                                            "pg_control_system()",
                                            "encode(pg_catalog.bytea, pg_catalog.text)",
                                            "\"left\"(pg_catalog.text, integer)"};
    static const char *const operands[] = {
        "pg_catalog.text", "pg_catalog.bytea",       "integer",
        "bigint",          "pg_catalog.timestamptz", "pg_catalog.name"};
    static const char *const operators[] = {"=", "<", "-"};
    char statement[512];
    sql(monitor, "DROP SCHEMA IF EXISTS pqtx_evil CASCADE; CREATE SCHEMA pqtx_evil;"
                 "CREATE DOMAIN pqtx_evil.text AS pg_catalog.text CHECK (VALUE = 'evil');"
                 "CREATE DOMAIN pqtx_evil.bytea AS pg_catalog.bytea CHECK (false);"
                 "CREATE DOMAIN pqtx_evil.int8 AS pg_catalog.int8 CHECK (false);"
                 "CREATE DOMAIN pqtx_evil.timestamptz AS pg_catalog.timestamptz CHECK (false);"
                 "CREATE COLLATION pqtx_evil.\"C\" FROM \"POSIX\";"
                 "CREATE VIEW pqtx_evil.pg_stat_activity AS SELECT 1 / 0 AS pid;"
                 "CREATE TABLE pqtx_evil.pqtx_once (trap int)");
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        snprintf(statement, sizeof statement,
                 "CREATE FUNCTION pqtx_evil.%s RETURNS pg_catalog.text LANGUAGE plpgsql AS"
                 " $$ BEGIN RAISE 'trapped'; END $$",
                 functions[i]);
        sql(monitor, statement);
    }
    for (size_t i = 0; i < sizeof operands / sizeof operands[0]; i++) {
        snprintf(statement, sizeof statement,
                 "CREATE FUNCTION pqtx_evil.trap(%s, %s) RETURNS boolean LANGUAGE plpgsql AS"
                 " $$ BEGIN RAISE 'trapped'; END $$",
                 operands[i], operands[i]);
        sql(monitor, statement);
        for (size_t j = 0; j < sizeof operators / sizeof operators[0]; j++) {
            snprintf(statement, sizeof statement,
                     "CREATE OPERATOR pqtx_evil.%s (FUNCTION = pqtx_evil.trap, LEFTARG = %s,"
                     " RIGHTARG = %s)",
                     operators[j], operands[i], operands[i]);
            sql(monitor, statement);
        }
    }
}

static pqtx_pool *open_with(const char *more)
{
    char conninfo[2200];
    pqtx_pool_options options = PQTX_POOL_OPTIONS;
    pqtx_error error = PQTX_ERROR;
    pqtx_pool *other;
    snprintf(conninfo, sizeof conninfo, "%s %s", pool_conninfo(), more);
    options.conninfo = conninfo;
    assert_status(pqtx_pool_open(&options, &other, &error), PQTX_OK, &error);
    return other;
}

static pqtx_status mark(pqtx_tx *tx, void *arg)
{
    (void)arg;
    pqtx_once_store(tx, "a\\b\0'c", 6);
    return pqtx_exec(tx, "INSERT INTO pqtx_table.mark VALUES (1)", PQTX_NO_ARGS, NULL);
}

/* The whole life of an event and of a doubt, by token and by xid, in such sessions. */
static void live_with(const char *settings)
{
    pqtx_pool *other = open_with(settings);
    for (int by = PQTX_DOUBT_XID; by <= PQTX_DOUBT_TOKEN; by++) {
        for (int point = PQTX_POINT_STATEMENT_SENT; point <= PQTX_POINT_COMMIT_ANSWERED; point++) {
            pqtx_error error = PQTX_ERROR;
            struct trial trial = event_in("pqtx_table", other, (pqtx_doubt)by);
            trial.options.fingerprint = "f'\\";
            trial.options.fingerprint_len = 3;
            trial.point = (pqtx_point)point;
            trial.last = 1;
            sql(monitor, "TRUNCATE mark, pqtx_once");
            assert_status(pqtx_run(other, trial_options(&trial), mark, NULL, &error), PQTX_OK,
                          &error);
            pqtx_tx *tx = pqtx_new(other, &trial.options);
            ck_assert_int_eq(pqtx_attempt(tx), 0);
            pqtx_get_error(tx, &error);
            assert_status(pqtx_result(tx), PQTX_DONE_BEFORE, &error);
            char answer[8];
            size_t len;
            ck_assert_int_eq(pqtx_once_answer(tx, answer, sizeof answer, &len), PQTX_OK);
            ck_assert_uint_eq(len, 6);
            ck_assert_mem_eq(answer, "a\\b\0'c", 6);
            pqtx_free(tx);
            ck_assert_int_eq(ask_int(monitor, "SELECT count(*) FROM mark"), 1);
        }
    }
    int64_t deleted;
    pqtx_error error = PQTX_ERROR;
    assert_status(pqtx_once_reap(other, "pqtx_table", 0, 0, &deleted, &error), PQTX_OK, &error);
    ck_assert_int_gt(deleted, 0);
    pqtx_pool_close(other);
}

START_TEST(a_search_path_full_of_traps_catches_nothing)
{
    lay_traps();
    live_with("options='-c search_path=pqtx_evil,pg_catalog'");
    sql(monitor, "DROP SCHEMA pqtx_evil CASCADE");
}
END_TEST

START_TEST(install_uses_no_type_of_a_stranger)
{
    pqtx_error error = PQTX_ERROR;
    lay_traps();
    sql(monitor, "DROP SCHEMA IF EXISTS pqtx_table_two CASCADE; CREATE SCHEMA pqtx_table_two");
    pqtx_pool *other = open_with("options='-c search_path=pqtx_evil,pg_catalog'");
    assert_status(pqtx_once_install(other, "pqtx_table_two", &error), PQTX_OK, &error);
    pqtx_pool_close(other);
    char *expected = strdup(shape_of("pqtx_table"));
    ck_assert_ptr_nonnull(expected);
    ck_assert_str_eq(shape_of("pqtx_table_two"), expected);
    free(expected);
    sql(monitor, "DROP SCHEMA pqtx_table_two, pqtx_evil CASCADE");
}
END_TEST

START_TEST(an_odd_encoding_changes_nothing)
{
    live_with("client_encoding=SJIS");
    live_with("client_encoding=BIG5");
    live_with("client_encoding=GBK");
}
END_TEST

START_TEST(odd_settings_of_the_session_change_nothing)
{
    live_with("options='-c standard_conforming_strings=off -c backslash_quote=off'");
    live_with("options='-c bytea_output=escape -c DateStyle=German -c IntervalStyle=sql_standard'");
    live_with("client_encoding=GBK options='-c bytea_output=escape'");
    live_with("options='-c default_transaction_isolation=serializable -c lock_timeout=1'");
}
END_TEST

static Suite *suite(void)
{
    Suite *suite = suite_create("table");
    TCase *tests = tcase_create("table");
    tcase_add_unchecked_fixture(tests, make, NULL);
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, the_text_makes_what_install_makes);
    tcase_add_test(tests, ids_compare_bytewise_in_any_database);
    tcase_add_test(tests, a_second_install_changes_nothing);
    tcase_add_test(tests, eight_that_install_at_once_do_not_meet);
    tcase_add_test(tests, a_schema_may_have_capitals);
    tcase_add_test(tests, a_schema_that_is_not_there_is_not_made);
    tcase_add_test(tests, the_old_ones_go_in_batches_and_the_young_stay);
    tcase_add_test(tests, a_batch_is_1000_unless_one_says_otherwise);
    tcase_add_test(tests, two_reapers_share_the_work_and_pass_over_a_locked_row);
    tcase_add_test(tests, an_id_that_is_gone_can_be_applied_anew);
    tcase_add_test(tests, a_reaper_that_is_told_nonsense_says_so);
    add_direct_test(tests, a_search_path_full_of_traps_catches_nothing, NO_OPTIONS);
    add_direct_test(tests, install_uses_no_type_of_a_stranger, NO_OPTIONS);
    tcase_add_test(tests, an_odd_encoding_changes_nothing);
    add_direct_test(tests, odd_settings_of_the_session_change_nothing, NO_OPTIONS);
    suite_add_tcase(suite, tests);
    return suite;
}

int main(void)
{
    return run_suite(suite());
}
