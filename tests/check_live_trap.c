/* check_live_trap.c: counters in sessions where no function, operator or type is what it is called.
 */
#include "support.h"
#include "support_counter.h"

#include <stdio.h>

static PGconn *monitor;

/* A schema that comes before pg_catalog, with a trap for every operator, function and type that one
 * might use. */
static void set_up(void)
{
    fresh_schema("pqtx_trap");
    monitor = open_session();
    sql(monitor,
        "DROP SCHEMA IF EXISTS pqtx_evil CASCADE; CREATE SCHEMA pqtx_evil;"
        "CREATE FUNCTION pqtx_evil.spring() RETURNS pg_catalog.int4 LANGUAGE plpgsql AS"
        " 'BEGIN RAISE ''trapped''; END';"
        "DO $do$ DECLARE o text; a text; b text; f text; BEGIN"
        " FOREACH a IN ARRAY '{text,int8,int4,int2,uuid,numeric,bool}'::text[] LOOP"
        "  FOREACH b IN ARRAY '{text,int8,int4,int2,uuid,numeric,bool}'::text[] LOOP"
        "   EXECUTE format('CREATE FUNCTION pqtx_evil.trap(pg_catalog.%s, pg_catalog.%s) RETURNS"
        "    pg_catalog.bool LANGUAGE sql AS ''SELECT pqtx_evil.spring() IS NULL''', a, b);"
        "   EXECUTE format('CREATE FUNCTION pqtx_evil.sum_trap(pg_catalog.%s, pg_catalog.%s)"
        "    RETURNS pg_catalog.int8 LANGUAGE sql AS ''SELECT pqtx_evil.spring()''', a, b);"
        "   FOREACH o IN ARRAY '{=,<,>,<=,>=,<>}'::text[] LOOP"
        "    EXECUTE format('CREATE OPERATOR pqtx_evil.%s (FUNCTION = pqtx_evil.trap,"
        "     LEFTARG = pg_catalog.%s, RIGHTARG = pg_catalog.%s)', o, a, b);"
        "   END LOOP;"
        "   FOREACH o IN ARRAY '{+,-,/,%}'::text[] LOOP"
        "    EXECUTE format('CREATE OPERATOR pqtx_evil.%s (FUNCTION = pqtx_evil.sum_trap,"
        "     LEFTARG = pg_catalog.%s, RIGHTARG = pg_catalog.%s)', o, a, b);"
        "   END LOOP;"
        "  END LOOP;"
        "  FOREACH f IN ARRAY '{count,max,sum,bool_and,coalesce}'::text[] LOOP"
        "   EXECUTE format('CREATE FUNCTION pqtx_evil.%I(pg_catalog.%s) RETURNS pg_catalog.int8"
        "    LANGUAGE sql AS ''SELECT pqtx_evil.spring()''', f, a);"
        "  END LOOP;"
        " END LOOP;"
        " FOREACH f IN ARRAY ARRAY['count()', 'pg_backend_pid()', 'unnest(pg_catalog.int8[])',"
        "  'unnest(pg_catalog.int4[])', 'unnest(pg_catalog.text[])',"
        "  'string_to_array(pg_catalog.text, pg_catalog.text)',"
        "  'set_config(pg_catalog.text, pg_catalog.text, pg_catalog.bool)',"
        "  'current_setting(pg_catalog.text, pg_catalog.bool)',"
        "  'generate_series(pg_catalog.int4, pg_catalog.int4)',"
        "  'concat(pg_catalog.text, pg_catalog.int4)'] LOOP"
        "  EXECUTE format('CREATE FUNCTION pqtx_evil.%s RETURNS pg_catalog.int4 LANGUAGE sql AS"
        "   ''SELECT pqtx_evil.spring()''', f);"
        " END LOOP;"
        " FOREACH a IN ARRAY '{text,int8,int4,uuid,pg_lsn}'::text[] LOOP"
        "  EXECUTE format('CREATE DOMAIN pqtx_evil.%I AS pg_catalog.%I CHECK (false)', a, a);"
        " END LOOP; END $do$");
}

static void tear_down(void)
{
    sql(monitor, "DROP SCHEMA pqtx_evil CASCADE");
    PQfinish(monitor);
}

static pqtx_pool *open_trapped(void)
{
    char conninfo[2200];
    pqtx_pool_options options = PQTX_POOL_OPTIONS;
    pqtx_error error = PQTX_ERROR;
    pqtx_pool *pool;
    snprintf(conninfo, sizeof conninfo, "%s options='-c search_path=pqtx_evil,pg_catalog'",
             test_conninfo());
    options.conninfo = conninfo;
    assert_status(pqtx_pool_open(&options, &pool, &error), PQTX_OK, &error);
    return pool;
}

START_TEST(the_traps_do_spring)
{
    PGconn *session = open_session();
    sql(session, "SET search_path = pqtx_evil, pg_catalog");
    start_sql(session, "SELECT 1 + 1");
    ck_assert_str_eq(finish_sql(session), "P0001");
    start_sql(session, "SELECT pg_catalog.int8 '1' = 1");
    ck_assert_str_eq(finish_sql(session), "P0001");
    start_sql(session, "SELECT count(1)");
    ck_assert_str_eq(finish_sql(session), "P0001");
    start_sql(session, "SELECT '1'::int8");
    ck_assert_str_eq(finish_sql(session), "23514");
    PQfinish(session);
}
END_TEST

static const pqtx_key_type types[] = {PQTX_KEY_TEXT, PQTX_KEY_INT, PQTX_KEY_UUID};

static pqtx_value key_of(pqtx_key_type type)
{
    return type == PQTX_KEY_INT    ? PQTX_INT(7)
           : type == PQTX_KEY_TEXT ? PQTX_TEXT("seven")
                                   : PQTX_TEXT("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11");
}

static void use_counter(pqtx_pool *pool, pqtx_key_type type)
{
    pqtx_counter counter = PQTX_COUNTER;
    pqtx_error error = PQTX_ERROR;
    char table[16];
    snprintf(table, sizeof table, "counter_%d", (int)type);
    counter.schema = "pqtx_trap";
    counter.table = table;
    counter.key_type = type;
    counter.flags = PQTX_COUNTER_BOUNDED;
    assert_status(pqtx_counter_install(pool, &counter, &error), PQTX_OK, &error);
    for (int way = 0; way < WAYS; way++)
        for (int op = ADD; op <= SET_IF; op++) {
            static const int64_t expected[] = {4, 8, 4, 4, 0};
            struct count one = count_of(pool, &counter, (enum op)op, key_of(type), 4);
            one.way = (enum way)way;
            assert_count(&one, expected[op]);
            one.op = TAKE;
            one.amount = 1000;
            run_count(&one, PQTX_EXHAUSTED);
        }
    pqtx_increment increments[] = {{key_of(type), 1}, {key_of(type), 2}};
    int64_t values[2];
    assert_status(pqtx_counter_add_many_now(pool, NULL, &counter, increments, 2, values, &error),
                  PQTX_OK, &error);
    ck_assert_int_eq(values[1], 3);
}

static void use_shards(pqtx_pool *pool, pqtx_key_type type)
{
    pqtx_shards shards = PQTX_SHARDS;
    pqtx_error error = PQTX_ERROR;
    char table[16];
    int64_t value;
    snprintf(table, sizeof table, "slots_%d", (int)type);
    shards.schema = "pqtx_trap";
    shards.table = table;
    shards.key_type = type;
    shards.flags = PQTX_COUNTER_BOUNDED;
    assert_status(pqtx_shards_install(pool, &shards, &error), PQTX_OK, &error);
    assert_status(pqtx_shards_fill_now(pool, NULL, &shards, key_of(type), 20, &error), PQTX_OK,
                  &error);
    assert_status(pqtx_shards_add_now(pool, NULL, &shards, key_of(type), 1, &error), PQTX_OK,
                  &error);
    assert_status(pqtx_shards_take_now(pool, NULL, &shards, key_of(type), 1, &error), PQTX_OK,
                  &error);
    assert_status(pqtx_shards_take_now(pool, NULL, &shards, key_of(type), 19, &error), PQTX_OK,
                  &error);
    assert_status(pqtx_shards_take_now(pool, NULL, &shards, key_of(type), 2, &error),
                  PQTX_EXHAUSTED, &error);
    assert_status(pqtx_shards_sum_now(pool, NULL, &shards, key_of(type), &value, &error), PQTX_OK,
                  &error);
    ck_assert_int_eq(value, 1);
}

START_TEST(a_search_path_full_of_traps_catches_nothing)
{
    pqtx_pool *pool = open_trapped();
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        use_counter(pool, types[i]);
        use_shards(pool, types[i]);
    }
    pqtx_pool_close(pool);
}
END_TEST

static Suite *suite(void)
{
    Suite *suite = suite_create("trap");
    TCase *tests = tcase_create("trap");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, the_traps_do_spring);
    tcase_add_test(tests, a_search_path_full_of_traps_catches_nothing);
    suite_add_tcase(suite, tests);
    return suite;
}

int main(void)
{
    return run_suite(suite());
}
