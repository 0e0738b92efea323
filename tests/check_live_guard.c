/* check_live_guard.c: statements that must touch so many rows, on a real server: with the guard
 * they do what they do without it, or fail and say how many rows there were.  Never is a miss
 * committed. */
#define _DEFAULT_SOURCE
#include "guard.h"
#include "support.h"
#include "support_doubt.h"
#include "support_random.h"
#include "support_tx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (int)(sizeof(array) / sizeof((array)[0]))

static PGconn *session, *monitor;

/* Items 1 to 3, and the same in several disguises.  What triggers and rules do is logged. */
static void make(void)
{
    fresh_schema("pqtx_guard");
    PGconn *maker = open_session();
    sql(maker,
        "CREATE TABLE item (id int PRIMARY KEY, v int NOT NULL DEFAULT 0, note text, lsn pg_lsn);"
        "CREATE TABLE log (what text);"
        "CREATE SEQUENCE calls;"
        "CREATE FUNCTION noted(int) RETURNS int LANGUAGE sql VOLATILE AS"
        " $$ SELECT nextval('calls')::int * 0 + $1 $$;"

        "CREATE TABLE swallowing (id int PRIMARY KEY, v int NOT NULL DEFAULT 0);"
        "CREATE FUNCTION swallow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " INSERT INTO log VALUES (TG_OP); IF coalesce(NEW.id, OLD.id) = 2 THEN RETURN NULL; END IF;"
        " IF TG_OP = 'DELETE' THEN RETURN OLD; END IF; RETURN NEW; END $$;"
        "CREATE TRIGGER swallow BEFORE INSERT OR UPDATE OR DELETE ON swallowing FOR EACH ROW"
        " EXECUTE FUNCTION swallow();"

        "CREATE VIEW simple AS SELECT id, v FROM item WHERE id < 3;"
        "CREATE VIEW viewed AS SELECT id, sum(v) AS v FROM item GROUP BY id;"
        "CREATE FUNCTION instead() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " INSERT INTO log VALUES (TG_OP || coalesce(NEW.id, OLD.id));"
        " IF coalesce(NEW.id, OLD.id) = 2 THEN RETURN NULL; END IF;"
        " IF TG_OP = 'DELETE' THEN RETURN OLD; END IF; RETURN NEW; END $$;"
        "CREATE TRIGGER instead INSTEAD OF INSERT OR UPDATE OR DELETE ON viewed FOR EACH ROW"
        " EXECUTE FUNCTION instead();"

        "CREATE TABLE parted (id int, v int NOT NULL DEFAULT 0) PARTITION BY LIST (id);"
        "CREATE TABLE part_one PARTITION OF parted FOR VALUES IN (1, 11);"
        "CREATE TABLE part_rest PARTITION OF parted DEFAULT;"
        "CREATE TABLE parent (id int, v int NOT NULL DEFAULT 0);"
        "CREATE TABLE child () INHERITS (parent);"

        "CREATE TABLE also (id int, v int NOT NULL DEFAULT 0);"
        "CREATE RULE also AS ON UPDATE TO also DO ALSO INSERT INTO log VALUES ('also');"
        "CREATE TABLE nothing (id int, v int NOT NULL DEFAULT 0);"
        "CREATE RULE nothing AS ON UPDATE TO nothing DO INSTEAD NOTHING;"
        "CREATE TABLE other (id int, v int NOT NULL DEFAULT 0);"
        "CREATE RULE other AS ON UPDATE TO other DO INSTEAD"
        " UPDATE item SET v = NEW.v WHERE id = OLD.id;"
        "CREATE TABLE redirected (id int, v int NOT NULL DEFAULT 0);"
        "CREATE RULE redirected AS ON INSERT TO redirected DO INSTEAD"
        " INSERT INTO item VALUES (NEW.id, NEW.v) RETURNING id, v;"
        "CREATE TABLE \"returning\" (\"returning\" int, \"a;b\" int);"
        "CREATE TABLE pqtx_q (id int, v int NOT NULL DEFAULT 0);"
        "CREATE TABLE empty ();");
    PQfinish(maker);
}

static void set_up(void)
{
    session = open_session();
    monitor = open_session();
    sql(monitor,
        "TRUNCATE item, swallowing, parted, parent, log, also, nothing, other, redirected,"
        " \"returning\", pqtx_q, empty;"
        "INSERT INTO item SELECT i, 0, 'note' FROM generate_series(1, 3) AS i;"
        "ALTER TABLE swallowing DISABLE TRIGGER ALL;"
        "INSERT INTO swallowing SELECT id FROM item;"
        "ALTER TABLE swallowing ENABLE TRIGGER ALL;"
        "INSERT INTO parted SELECT id FROM item; INSERT INTO parent SELECT id FROM item;"
        "INSERT INTO child SELECT id FROM item; INSERT INTO also SELECT id FROM item;"
        "INSERT INTO nothing SELECT id FROM item; INSERT INTO other SELECT id FROM item;"
        "INSERT INTO \"returning\" SELECT id, id FROM item; INSERT INTO pqtx_q SELECT id FROM item;"
        "INSERT INTO empty DEFAULT VALUES; INSERT INTO empty DEFAULT VALUES");
}

static void tear_down(void)
{
    PQfinish(session);
    PQfinish(monitor);
}

/* ---- One statement, with the guard and without */

/* All that a statement here can change. */
static const char all_tables[] =
    "SELECT concat_ws('|', (SELECT string_agg(t::text, ' ' ORDER BY id) FROM item t),"
    " (SELECT string_agg(t::text, ' ' ORDER BY id) FROM swallowing t),"
    " (SELECT string_agg(t::text, ' ' ORDER BY id) FROM parted t),"
    " (SELECT string_agg(t::text, ' ' ORDER BY id, tableoid) FROM parent t),"
    " (SELECT string_agg(t::text, ' ' ORDER BY t) FROM \"returning\" t),"
    " (SELECT string_agg(t::text, ' ' ORDER BY id) FROM pqtx_q t),"
    " (SELECT string_agg(what, ' ' ORDER BY what) FROM log))";

struct outcome {
    PGresult *result;
    int64_t rows; /* -1: it failed, and no count is known */
    char tables[4096];
};

static void free_outcome(struct outcome *outcome)
{
    PQclear(outcome->result);
}

static PGresult *run(const char *text, const char *value)
{
    const char *const values[] = {value};
    return PQexecParams(session, text, value ? 1 : 0, NULL, values, NULL, NULL, 0);
}

static bool is_done(const PGresult *result)
{
    return PQresultStatus(result) == PGRES_TUPLES_OK || PQresultStatus(result) == PGRES_COMMAND_OK;
}

/* Runs it in a transaction that is rolled back, after `first` has prepared the ground. */
static struct outcome try(const char *first, const char *text, const char *value)
{
    struct outcome outcome = {.rows = -1};
    sql(session, "BEGIN");
    if (first)
        sql(session, first);
    outcome.result = run(text, value);
    if (is_done(outcome.result)) {
        if (pqtx_get_rows(outcome.result, &outcome.rows) != PQTX_OK)
            outcome.rows = -1;
        snprintf(outcome.tables, sizeof outcome.tables, "%s", ask(session, all_tables));
    }
    sql(session, "ROLLBACK");
    return outcome;
}

static char *guarded(const char *text, struct pqtx__rule rule)
{
    int32_t shift;
    size_t size = pqtx__guard_write(NULL, 0, text, pqtx__statement_kind(text), rule, &shift) + 1;
    char *whole = malloc(size);
    ck_assert_ptr_nonnull(whole);
    pqtx__guard_write(whole, size, text, pqtx__statement_kind(text), rule, &shift);
    return whole;
}

static bool meets(struct pqtx__rule rule, int64_t rows)
{
    return rule.count == PQTX__COUNT_AT_MOST ? rows <= rule.rows : rows == rule.rows;
}

/* The same columns, and the same rows in the same order. */
static void assert_same_rows(const PGresult *actual, const PGresult *expected, const char *text)
{
    ck_assert_msg(PQnfields(actual) == PQnfields(expected) &&
                      PQntuples(actual) == PQntuples(expected),
                  "%d rows of %d columns, expected %d of %d: %s", PQntuples(actual),
                  PQnfields(actual), PQntuples(expected), PQnfields(expected), text);
    for (int at = 0; at < PQnfields(expected); at++) {
        ck_assert_str_eq(PQfname(actual, at), PQfname(expected, at));
        ck_assert_uint_eq(PQftype(actual, at), PQftype(expected, at));
        for (int row = 0; row < PQntuples(expected); row++) {
            ck_assert_int_eq(PQgetisnull(actual, row, at), PQgetisnull(expected, row, at));
            ck_assert_str_eq(PQgetvalue(actual, row, at), PQgetvalue(expected, row, at));
        }
    }
}

static void assert_passed(const struct outcome *actual, const struct outcome *bare,
                          const char *text)
{
    ck_assert_msg(is_done(actual->result), "%s%s", PQresultErrorMessage(actual->result), text);
    ck_assert_str_eq(actual->tables, bare->tables);
    if (PQresultStatus(bare->result) == PGRES_TUPLES_OK) {
        assert_same_rows(actual->result, bare->result, text);
        return;
    }
    ck_assert_msg(PQntuples(actual->result) == 0 && PQnfields(actual->result) == 0,
                  "something came back: %s", text);
}

static void assert_told(const struct outcome *actual, int64_t rows, const char *text)
{
    int64_t code = -42, value;
    ck_assert_msg(!is_done(actual->result), "it passed, with %lld rows: %s", (long long)rows, text);
    ck_assert_msg(pqtx__guard_read(actual->result, &code, &value), "%s%s",
                  PQresultErrorMessage(actual->result), text);
    ck_assert_msg(code == rows, "%lld rows, where there were %lld: %s", (long long)code,
                  (long long)rows, text);
}

static const struct pqtx__rule rules[] = {
    {PQTX__COUNT_EXACT, 0},   {PQTX__COUNT_EXACT, 1},   {PQTX__COUNT_EXACT, 2},
    {PQTX__COUNT_AT_MOST, 0}, {PQTX__COUNT_AT_MOST, 1}, {PQTX__COUNT_AT_MOST, 2},
};

static int64_t compare_on(const char *first, const char *text, const char *value)
{
    struct outcome bare = try(first, text, value);
    ck_assert_msg(is_done(bare.result), "%s%s", PQresultErrorMessage(bare.result), text);
    ck_assert_msg(bare.rows >= 0, "no count: %s", text);
    for (int i = 0; i < COUNT(rules); i++) {
        char *whole = guarded(text, rules[i]);
        struct outcome outcome = try(first, whole, value);
        if (meets(rules[i], bare.rows))
            assert_passed(&outcome, &bare, whole);
        else
            assert_told(&outcome, bare.rows, whole);
        free_outcome(&outcome);
        free(whole);
    }
    free_outcome(&bare);
    return bare.rows;
}

static int64_t compare(const char *text, const char *value)
{
    return compare_on(NULL, text, value);
}

/* With $1 from 0 to 3: as many rows. */
static void compare_all(const char *text)
{
    static const char *const numbers[] = {"0", "1", "2", "3"};
    for (int i = 0; i < COUNT(numbers); i++)
        ck_assert_msg(compare(text, numbers[i]) == i, "not %d rows: %s", i, text);
}

/* ---- The shapes */

static const char *const shapes[] = {
    "UPDATE item SET v = 1 WHERE id <= $1",
    "DELETE FROM item WHERE id <= $1",
    "INSERT INTO item SELECT 10 + i FROM generate_series(1, $1) AS i",
    "UPDATE item SET v = 1 WHERE id <= $1 RETURNING id, note AS n, id AS id",
    "DELETE FROM item WHERE id <= $1 RETURNING *",
    "INSERT INTO item SELECT 10 + i FROM generate_series(1, $1) AS i RETURNING v, id",
    "UPDATE item SET v = 1 WHERE id <= $1 returning (id)",
    "UPDATE item SET v = (1)WHERE(id<=$1)RETURNING(id)",
    "SELECT id, note FROM item WHERE id <= $1 ORDER BY id DESC",
    "SELECT FROM item WHERE id <= $1",
    "SELECT NULL, 'text', 1 AS one, 2 AS one FROM item WHERE id <= $1",
    "SELECT i, $1 FROM generate_series(1, $1::int) AS i ORDER BY i DESC",
    "SELECT id FROM item WHERE id <= $1 UNION ALL SELECT id FROM item WHERE false ORDER BY 1 DESC",
    "VALUES (10, 'a'), (20, 'b'), (30, NULL) ORDER BY 1 DESC LIMIT $1",
    "TABLE item ORDER BY id DESC LIMIT $1",
    "SELECT * FROM item WHERE id <= $1 ORDER BY id DESC FOR UPDATE",
    "SELECT * FROM item ORDER BY id LIMIT $1 FOR NO KEY UPDATE SKIP LOCKED",
    "SELECT * FROM item WHERE id <= $1 FOR SHARE OF item NOWAIT",

    /* around it and inside */
    " \n\t;; UPDATE item SET v = 1 WHERE id <= $1 ; ; ",
    "/* RETURNING ; ( */ UPDATE item SET v = 1 WHERE id <= $1 -- RETURNING ; )",
    "/* a */; ; -- b\n; /* c */ UPDATE item SET v = 1 WHERE id <= $1; -- d",
    "-- RETURNING ; (\nDELETE FROM item WHERE id <= $1 RETURNING id -- ;",
    "UPDATE item SET v = 1 WHERE id <= $1 /* /* RETURNING */ ; ( */",
    "SELECT id FROM item WHERE id <= $1 ORDER BY id -- )",
    "UPDATE item SET note = 'RETURNING note; (' WHERE id <= $1",
    "UPDATE item SET note = 'it''s )' WHERE id <= $1 RETURNING note",
    "UPDATE item SET note = 'a\\' WHERE id <= $1 RETURNING note || '\\'",
    "UPDATE item SET note = E'\\' RETURNING ; \\\\' WHERE id <= $1",
    "UPDATE item SET note = E'\\\\' WHERE id <= $1 RETURNING note",
    "UPDATE item SET note = E'it''s \\'; \\'' WHERE id <= $1 RETURNING note",
    "UPDATE item SET note = U&'\\0041 RETURNING' WHERE id <= $1",
    "UPDATE item SET note = $$ RETURNING ' ; ( $$ WHERE id <= $1",
    "UPDATE item SET note = $x$ RETURNING $$ ; $y$ ( $x$ WHERE id <= $1 RETURNING note",
    "UPDATE \"returning\" SET \"a;b\" = 0 WHERE \"returning\" <= $1",
    "DELETE FROM \"returning\" WHERE \"returning\" <= $1 RETURNING \"returning\", \"a;b\" AS \"(\"",
    "SELECT \"returning\" FROM \"returning\" WHERE \"returning\" <= $1 ORDER BY 1 DESC;",
    "UPDATE item SET v = (SELECT count(*) FROM \"returning\") WHERE id <= $1",
    "INSERT INTO item WITH more AS (SELECT 10 + i AS id FROM generate_series(1, $1) AS i)"
    " SELECT * FROM more RETURNING id",
    "UPDATE item SET v = more.v FROM (VALUES (1, 5), (2, 6), (3, 7)) AS more (id, v)"
    " WHERE item.id = more.id AND more.id <= $1 RETURNING item.v, more.*",
    "DELETE FROM item USING parted WHERE item.id = parted.id AND parted.id <= $1",
    "UPDATE pqtx_q SET v = 1 WHERE id <= $1",
    "UPDATE pqtx_q SET v = 1 WHERE id <= $1 RETURNING pqtx_q.*",
    "SELECT pqtx_q.id FROM pqtx_q WHERE id <= $1 ORDER BY id DESC",

    /* disguises */
    "UPDATE parted SET v = 1 WHERE id <= $1",
    "UPDATE parted SET id = 13 - id WHERE id <= $1 RETURNING id",
    "DELETE FROM parted WHERE id <= $1",
    "INSERT INTO parted SELECT i FROM generate_series(1, $1) AS i",
    "SELECT count(*) OVER () FROM parted WHERE id <= $1",
    "UPDATE ONLY parent SET v = 1 WHERE id <= $1",
};

START_TEST(a_guarded_statement_does_the_same_or_says_how_many)
{
    compare_all(shapes[_i]);
}
END_TEST

START_TEST(rows_of_children_count_too)
{
    ck_assert_int_eq(compare("UPDATE parent SET v = 1 WHERE id <= $1", "1"), 2);
    ck_assert_int_eq(compare("DELETE FROM parent WHERE id <= $1 RETURNING *", "1"), 2);
}
END_TEST

START_TEST(a_conflict_counts_as_it_does_without_a_guard)
{
    static const struct {
        const char *text;
        int64_t rows;
    } inserts[] = {
        {"INSERT INTO item VALUES (1) ON CONFLICT DO NOTHING", 0},
        {"INSERT INTO item VALUES (1), (7) ON CONFLICT DO NOTHING", 1},
        {"INSERT INTO item VALUES (1), (7) ON CONFLICT (id) DO NOTHING RETURNING id", 1},
        {"INSERT INTO item VALUES (1) ON CONFLICT (id) DO UPDATE SET v = 5", 1},
        {"INSERT INTO item VALUES (1), (7) ON CONFLICT (id) DO UPDATE SET v = 5 RETURNING id, v",
         2},
        {"INSERT INTO item VALUES (1) ON CONFLICT (id) DO UPDATE SET v = 5 WHERE false", 0},
        {"INSERT INTO item VALUES (1) ON CONFLICT (id) DO UPDATE SET v = 5 WHERE item.v > 0"
         " RETURNING v",
         0},
    };
    for (int i = 0; i < COUNT(inserts); i++)
        ck_assert_msg(compare(inserts[i].text, NULL) == inserts[i].rows, "%s", inserts[i].text);
}
END_TEST

/* The trigger passes over 2. */
START_TEST(rows_that_a_trigger_swallows_do_not_count)
{
    ck_assert_int_eq(compare("UPDATE swallowing SET v = 1 WHERE id = $1", "2"), 0);
    ck_assert_int_eq(compare("UPDATE swallowing SET v = 1 WHERE id <= $1", "2"), 1);
    ck_assert_int_eq(compare("UPDATE swallowing SET v = 1 WHERE id <= $1 RETURNING id", "3"), 2);
    ck_assert_int_eq(compare("DELETE FROM swallowing WHERE id = $1", "2"), 0);
    ck_assert_int_eq(compare("DELETE FROM swallowing WHERE id <= $1 RETURNING id", "2"), 1);
    ck_assert_int_eq(compare_on("DELETE FROM item; DELETE FROM swallowing WHERE id <> 2",
                                "INSERT INTO swallowing VALUES ($1)", "2"),
                     0);
    ck_assert_int_eq(compare_on("DELETE FROM swallowing WHERE id <> 2",
                                "INSERT INTO swallowing SELECT * FROM generate_series(1, $1)", "3"),
                     2);
}
END_TEST

START_TEST(a_view_counts_what_its_trigger_says)
{
    ck_assert_int_eq(compare("UPDATE viewed SET v = 1 WHERE id = $1", "1"), 1);
    ck_assert_int_eq(compare("UPDATE viewed SET v = 1 WHERE id = $1", "2"), 0);
    ck_assert_int_eq(compare("UPDATE viewed SET v = 1 WHERE id <= $1 RETURNING id", "3"), 2);
    ck_assert_int_eq(compare("INSERT INTO viewed VALUES ($1, 0)", "1"), 1);
    ck_assert_int_eq(compare("INSERT INTO viewed VALUES ($1, 0)", "2"), 0);
    ck_assert_int_eq(compare("DELETE FROM viewed WHERE id <= $1", "3"), 2);
}
END_TEST

START_TEST(a_view_without_triggers_counts_the_rows_of_its_table)
{
    ck_assert_int_eq(compare("UPDATE simple SET v = 1 WHERE id <= $1", "3"), 2);
    ck_assert_int_eq(compare("UPDATE simple SET v = 1 WHERE id = $1 RETURNING *", "3"), 0);
    ck_assert_int_eq(compare("DELETE FROM simple WHERE id = $1", "1"), 1);
    ck_assert_int_eq(compare("INSERT INTO simple VALUES ($1, 0)", "7"), 1);
}
END_TEST

START_TEST(the_row_of_a_cursor_can_be_guarded)
{
    static const char open[] =
        "DECLARE c CURSOR FOR SELECT * FROM item ORDER BY id FOR UPDATE; FETCH 2 FROM c";
    ck_assert_int_eq(compare_on(open, "UPDATE item SET v = 1 WHERE CURRENT OF c", NULL), 1);
    ck_assert_int_eq(compare_on(open, "DELETE FROM item WHERE CURRENT OF c RETURNING id", NULL), 1);
}
END_TEST

/* ---- Volatile functions, locks, privileges */

static int64_t calls_of(const char *text)
{
    int64_t before = ask_int(monitor, "SELECT nextval('calls')");
    struct outcome outcome = try(NULL, text, NULL);
    free_outcome(&outcome);
    return ask_int(monitor, "SELECT nextval('calls')") - before - 1;
}

START_TEST(a_volatile_function_runs_as_often_as_without_a_guard)
{
    static const char *const texts[] = {
        "SELECT noted(7)",
        "SELECT noted(id) FROM item",
        "SELECT noted(id), noted(v) FROM item ORDER BY 1",
        "VALUES (noted(1)), (noted(2))",
        "SELECT id FROM item WHERE noted(id) = 2",
        "SELECT noted(id) FROM item LIMIT 1",
        "UPDATE item SET v = noted(v)",
        "UPDATE item SET v = 1 RETURNING noted(id)",
        "INSERT INTO item VALUES (noted(10))",
        "DELETE FROM item WHERE noted(id) < 3 RETURNING noted(id)",
    };
    for (int i = 0; i < COUNT(texts); i++) {
        int64_t calls = calls_of(texts[i]);
        ck_assert_int_gt(calls, 0);
        for (int j = 0; j < COUNT(rules); j++) {
            char *whole = guarded(texts[i], rules[j]);
            int64_t guarded_calls = calls_of(whole);
            ck_assert_msg(guarded_calls == calls, "%lld calls, not %lld: %s",
                          (long long)guarded_calls, (long long)calls, whole);
            free(whole);
        }
    }
}
END_TEST

START_TEST(a_guarded_select_holds_the_locks_that_it_asks_for)
{
    static const struct pqtx__rule one = {PQTX__COUNT_EXACT, 1};
    char *whole = guarded("SELECT id FROM item WHERE id = 2 FOR UPDATE", one);
    sql(session, "BEGIN");
    PQclear(run(whole, NULL));
    ck_assert_str_eq(ask(monitor, "SELECT string_agg(id::text, ' ' ORDER BY id) FROM"
                                  " (SELECT id FROM item FOR UPDATE SKIP LOCKED) AS free"),
                     "1 3");
    sql(session, "ROLLBACK");
    free(whole);
    whole = guarded("SELECT id FROM item ORDER BY id FOR UPDATE SKIP LOCKED LIMIT 1", one);
    sql(monitor, "BEGIN; SELECT FROM item WHERE id = 1 FOR UPDATE");
    PGresult *result = run(whole, NULL);
    ck_assert_int_eq(PQntuples(result), 1);
    ck_assert_str_eq(PQgetvalue(result, 0, 0), "2");
    PQclear(result);
    sql(monitor, "ROLLBACK");
    free(whole);
}
END_TEST

/* To return nothing of a row needs no right to read it; nor does a policy that hides it. */
START_TEST(a_guard_needs_no_further_privilege)
{
    sql(monitor, "DROP TABLE IF EXISTS guarded; DROP ROLE IF EXISTS pqtx_guard_writer;"
                 "CREATE ROLE pqtx_guard_writer; CREATE TABLE guarded (id int);"
                 "INSERT INTO guarded VALUES (1); ALTER TABLE guarded ENABLE ROW LEVEL SECURITY;"
                 "CREATE POLICY writes ON guarded FOR INSERT WITH CHECK (true);"
                 "GRANT USAGE ON SCHEMA pqtx_guard TO pqtx_guard_writer;"
                 "GRANT SELECT ON item, swallowing, parted, parent, \"returning\", pqtx_q, log TO"
                 " pqtx_guard_writer; GRANT INSERT ON guarded TO pqtx_guard_writer");
    sql(session, "SET ROLE pqtx_guard_writer");
    ck_assert_int_eq(compare("INSERT INTO guarded VALUES ($1)", "7"), 1);
    ck_assert_int_eq(compare("INSERT INTO guarded SELECT generate_series(1, $1)", "2"), 2);
    sql(session, "RESET ROLE");
    sql(monitor, "DROP TABLE guarded; DROP OWNED BY pqtx_guard_writer;"
                 "DROP ROLE pqtx_guard_writer");
}
END_TEST

/* ---- Plans that are used again */

/* From the sixth execution on the plan can be one for any values. */
static void execute_often(const char *text, struct pqtx__rule rule)
{
    static const char *const numbers[] = {"1", "0", "2", "1", "1", "3"};
    char *whole = guarded(text, rule);
    PGresult *result = PQprepare(session, "guarded", whole, 0, NULL);
    ck_assert_msg(is_done(result), "%s", PQresultErrorMessage(result));
    PQclear(result);
    for (int i = 0; i < 24; i++) {
        const char *number = numbers[i % COUNT(numbers)];
        sql(session, "BEGIN");
        struct outcome outcome = {
            .result = PQexecPrepared(session, "guarded", 1, &number, NULL, NULL, 0)};
        if (meets(rule, atoi(number)))
            ck_assert_msg(is_done(outcome.result), "%s", PQresultErrorMessage(outcome.result));
        else
            assert_told(&outcome, atoi(number), whole);
        free_outcome(&outcome);
        sql(session, "ROLLBACK");
    }
    sql(session, "DEALLOCATE guarded");
    free(whole);
}

START_TEST(a_plan_for_any_values_counts_anew_each_time)
{
    static const char *const modes[] = {"auto", "force_generic_plan", "force_custom_plan"};
    char set[64];
    for (int i = 0; i < COUNT(modes); i++) {
        snprintf(set, sizeof set, "SET plan_cache_mode = %s", modes[i]);
        sql(session, set);
        for (int j = 0; j < COUNT(rules); j++) {
            execute_often("UPDATE item SET v = 1 WHERE id <= $1", rules[j]);
            execute_often("SELECT id FROM item WHERE id <= $1", rules[j]);
            execute_often("DELETE FROM item WHERE id <= $1 RETURNING id", rules[j]);
        }
    }
}
END_TEST

/* ---- Sessions that are set up oddly */

static void compare_some(void)
{
    compare_all("UPDATE item SET v = 1 WHERE id OPERATOR(pg_catalog.<=) $1");
    compare_all("DELETE FROM item WHERE id OPERATOR(pg_catalog.<=) $1 RETURNING *");
    compare_all("SELECT * FROM item WHERE id OPERATOR(pg_catalog.<=) $1");
}

/* The traps are for the names and the operators that a guard uses. */
static void lay_traps(void)
{
    static const char *const operands[] = {"pg_catalog.int8", "pg_catalog.int4", "pg_catalog.bool",
                                           "pg_catalog.text", "pg_catalog.pg_lsn"};
    static const char *const operators[] = {"=", "<=", "<>"};
    char statement[512];
    sql(monitor, "DROP SCHEMA IF EXISTS pqtx_evil CASCADE; CREATE SCHEMA pqtx_evil;"
                 "CREATE DOMAIN pqtx_evil.pg_lsn AS pg_catalog.text;"
                 "CREATE DOMAIN pqtx_evil.bool AS pg_catalog.bool CHECK (false);"
                 "CREATE FUNCTION pqtx_evil.concat(VARIADIC pg_catalog.text[]) RETURNS"
                 " pg_catalog.text LANGUAGE sql AS $$ SELECT '0/0'::pg_catalog.text $$;"
                 "CREATE FUNCTION pqtx_evil.concat(pg_catalog.text, pg_catalog.int8) RETURNS"
                 " pg_catalog.text LANGUAGE sql AS $$ SELECT '0/0'::pg_catalog.text $$;"
                 "CREATE FUNCTION pqtx_evil.always_one(pg_catalog.int8) RETURNS pg_catalog.int8"
                 " LANGUAGE sql AS $$ SELECT 1::pg_catalog.int8 $$;"
                 "CREATE AGGREGATE pqtx_evil.count(*) (SFUNC = pqtx_evil.always_one,"
                 " STYPE = pg_catalog.int8, INITCOND = '1');"
                 "CREATE VIEW pqtx_evil.pqtx_q AS SELECT 1 AS id;"
                 "CREATE FUNCTION pqtx_evil.n(pqtx_evil.pqtx_q) RETURNS pg_catalog.int8"
                 " LANGUAGE sql AS $$ SELECT 1::pg_catalog.int8 $$");
    for (int i = 0; i < COUNT(operands); i++) {
        for (int j = 0; j < COUNT(operands); j++) {
            snprintf(statement, sizeof statement,
                     "CREATE FUNCTION pqtx_evil.trap(%s, %s) RETURNS pg_catalog.bool LANGUAGE sql"
                     " AS $$ SELECT true $$",
                     operands[i], operands[j]);
            sql(monitor, statement);
            for (int k = 0; k < COUNT(operators); k++) {
                snprintf(statement, sizeof statement,
                         "CREATE OPERATOR pqtx_evil.%s (FUNCTION = pqtx_evil.trap, LEFTARG = %s,"
                         " RIGHTARG = %s)",
                         operators[k], operands[i], operands[j]);
                sql(monitor, statement);
            }
        }
    }
}

START_TEST(a_search_path_full_of_traps_makes_no_miss_a_match)
{
    lay_traps();
    sql(session, "SET search_path = pqtx_evil, pg_catalog, pqtx_guard");
    ck_assert_str_eq(ask(session, "SELECT count(*) FROM item WHERE 1 = 2"), "1");
    compare_some();
    sql(session, "SET search_path = pqtx_guard");
    sql(monitor, "DROP SCHEMA pqtx_evil CASCADE");
}
END_TEST

/* Those that the server has messages for, if the system knows the locale. */
START_TEST(a_guard_is_understood_in_any_language)
{
    static const char *const locales[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "ja_JP.UTF-8",
                                          "ru_RU.UTF-8", "es_ES.UTF-8", "ko_KR.UTF-8"};
    int spoken = 0;
    for (int i = 0; i < COUNT(locales); i++) {
        char set[64];
        snprintf(set, sizeof set, "SET lc_messages = '%s'", locales[i]);
        PGresult *result = PQexec(session, set);
        bool known = is_done(result);
        PQclear(result);
        if (known)
            compare_some();
        spoken += known;
    }
    if (spoken == 0)
        printf("check_live_guard: the server knows no other language, skipped\n");
}
END_TEST

START_TEST(a_guard_works_whatever_the_session_has_set)
{
    static const char *const settings[] = {
        "standard_conforming_strings = off",
        "transform_null_equals = on",
        "backslash_quote = on",
        "default_transaction_isolation = 'serializable'",
        "default_transaction_isolation = 'repeatable read'",
        "enable_nestloop = off",
        "enable_hashagg = off",
        "force_parallel_mode = on",
        "debug_parallel_query = on",
        "jit = on",
        "jit_above_cost = 0",
        "extra_float_digits = 0",
        "quote_all_identifiers = on",
        "constraint_exclusion = on",
        "from_collapse_limit = 1",
        "join_collapse_limit = 1",
        "geqo_threshold = 2",
        "cursor_tuple_fraction = 0",
        "row_security = off",
        "lc_monetary = 'C'",
        "array_nulls = off",
    };
    for (int i = 0; i < COUNT(settings); i++) {
        char set[128];
        snprintf(set, sizeof set, "SET %s", settings[i]);
        PGresult *result = PQexec(session, set);
        if (is_done(result)) /* not every version knows them all */
            compare_some();
        PQclear(result);
        sql(session, "RESET ALL");
    }
}
END_TEST

/* ---- Texts that can be read in two ways */

/* Two bytes that are one character, the second of which is a backslash to who does not know. */
static const struct encoding {
    const char *name, *character;
} encodings[] = {
    {"UTF8", "\xc3\xa9"}, {"SJIS", "\x95\x5c"},    {"BIG5", "\xa5\x5c"}, {"GBK", "\x95\x5c"},
    {"UHC", "\xb0\xa1"},  {"GB18030", "\x95\x5c"}, {"LATIN1", "\xe9\\"},
};

/* What passed has to have done what the bare statement does, on as many rows as the rule says. */
static void assert_no_miss_passes(const char *text, struct pqtx__rule rule, int *passed)
{
    struct outcome bare = try(NULL, text, NULL);
    char *whole = guarded(text, rule);
    struct outcome outcome = try(NULL, whole, NULL);
    if (is_done(outcome.result)) {
        ck_assert_msg(is_done(bare.result) && meets(rule, bare.rows),
                      "%lld rows, and it passed: %s\n%s", (long long)bare.rows, whole,
                      PQresultErrorMessage(bare.result));
        assert_passed(&outcome, &bare, whole);
        ++*passed;
    }
    free_outcome(&outcome);
    free_outcome(&bare);
    free(whole);
}

static void set_odd(const struct encoding *encoding, bool conforming)
{
    char set[128];
    ck_assert_int_eq(PQsetClientEncoding(session, encoding->name), 0);
    snprintf(set, sizeof set,
             "SET standard_conforming_strings = %s; SET escape_string_warning = off;"
             "SET backslash_quote = on",
             conforming ? "on" : "off");
    sql(session, set);
}

/* `%` stands for the character. */
static void fill_in(char *text, size_t size, const char *pattern, const char *character)
{
    size_t len = 0;
    for (; *pattern && len + 3 < size; pattern++)
        len += (size_t)snprintf(text + len, size - len, *pattern == '%' ? "%s" : "%.1s",
                                *pattern == '%' ? character : pattern);
}

START_TEST(a_character_that_ends_like_a_backslash_makes_no_miss_a_match)
{
    static const char *const patterns[] = {
        "UPDATE item SET note = '%' WHERE id = 1",
        "UPDATE item SET note = '%' WHERE id = 7",
        "UPDATE item SET note = '%' WHERE id <= 2 RETURNING note",
        "UPDATE item SET note = E'%' WHERE id = 1",
        "UPDATE item SET note = E'%' WHERE id = 7 -- '",
        "UPDATE item SET note = E'%' WHERE id = 1 RETURNING note",
        "UPDATE item SET note = E'%'; -- ' WHERE id = 1",
        "UPDATE item SET note = '%' RETURNING id -- ' WHERE id = 1",
        "UPDATE item SET note = '\\'; -- ' WHERE id = 1",
        "UPDATE item SET note = '\\' RETURNING id -- ' WHERE id = 1",
        "UPDATE item SET note = '\\'' WHERE id = 1 RETURNING '\\'''",
        "UPDATE item SET note = '%\\'; ' WHERE id = 1",
        "UPDATE item SET note = '%''; ' WHERE id = 1",
        "UPDATE item SET note = E'\\'%'; ' WHERE id = 1",
        "UPDATE item SET note = E'%\\' WHERE id = 7; ' WHERE id = 1",
        "UPDATE item SET note = \"%\" WHERE id = 1",
        "UPDATE item SET note = '/*%' WHERE id = 1 -- */'",
        "UPDATE item SET note = 'x' /* % */ WHERE id = 1",
        "UPDATE item SET note = $%$;$%$ WHERE id = 1",
        "DELETE FROM item WHERE note = '%' OR id = 1",
        "SELECT '%' AS \"%\" FROM item WHERE id = 1",
        "SELECT E'%' FROM item WHERE id = 1 -- ;'",
    };
    for (int i = 0; i < COUNT(encodings); i++) {
        int passed = 0;
        for (int conforming = 0; conforming < 2; conforming++) {
            set_odd(&encodings[i], conforming);
            for (int j = 0; j < COUNT(patterns); j++) {
                char text[256];
                fill_in(text, sizeof text, patterns[j], encodings[i].character);
                for (int k = 0; k < COUNT(rules); k++)
                    assert_no_miss_passes(text, rules[k], &passed);
            }
        }
        ck_assert_int_gt(passed, 40);
    }
}
END_TEST

static void append_piece(char *text, size_t size, const char *character)
{
    static const char *const pieces[] = {"'",
                                         "''",
                                         "\\'",
                                         "\\",
                                         "%",
                                         "\"",
                                         "$$",
                                         "$a$",
                                         "--",
                                         "\n",
                                         "/*",
                                         "*/",
                                         " RETURNING id ",
                                         "id",
                                         " (",
                                         ") ",
                                         "E'",
                                         " ",
                                         "'%'",
                                         "'x' ",
                                         ", v = 1 ",
                                         " WHERE id <= 1 ",
                                         " WHERE false "};
    size_t len = strlen(text);
    fill_in(text + len, size - len, pieces[random_below(sizeof pieces / sizeof pieces[0])],
            character);
}

/* Most of these are no SQL at all, one way or the other. */
START_TEST(no_text_that_can_be_written_makes_a_miss_a_match)
{
    static const char *const beginnings[] = {"UPDATE item SET note = 'x' WHERE id = 1",
                                             "UPDATE item SET note = '",
                                             "UPDATE item SET note = E'",
                                             "UPDATE item SET note = $$",
                                             "DELETE FROM item WHERE note <> '",
                                             "SELECT id FROM item WHERE note <> E'"};
    int passed = 0;
    start_random();
    for (int i = 0; i < 3000; i++) {
        char text[256];
        const struct encoding *encoding = &encodings[random_below(COUNT(encodings))];
        if (i % 100 == 0)
            set_odd(encoding, i / 100 % 2);
        encoding = &encodings[0];
        for (int j = 0; j < COUNT(encodings); j++)
            if (strcmp(pg_encoding_to_char(PQclientEncoding(session)), encodings[j].name) == 0)
                encoding = &encodings[j];
        snprintf(text, sizeof text, "%s", beginnings[random_below(COUNT(beginnings))]);
        for (size_t n = random_below(7); n > 0; n--)
            append_piece(text, sizeof text, encoding->character);
        assert_no_miss_passes(text, rules[random_below(COUNT(rules))], &passed);
    }
    ck_assert_int_gt(passed, 20);
}
END_TEST

/* ---- Through the library: what is committed */

static pqtx_pool *pool;

static void open_one_connection(void)
{
    set_up();
    pool = open_pool(1);
}

static void close_all(void)
{
    pqtx_pool_close(pool);
    tear_down();
}

static pqtx_status run_one(const char *text, int64_t expected, pqtx_error *error)
{
    *error = (pqtx_error)PQTX_ERROR;
    return pqtx_run_one(pool, NULL, text, PQTX_NO_ARGS, expected, NULL, error);
}

static void assert_one(const char *text, int64_t expected, pqtx_status status)
{
    pqtx_error error;
    pqtx_status actual = run_one(text, expected, &error);
    assert_status(actual, status, &error);
}

START_TEST(a_miss_is_not_committed)
{
    static const char *const texts[] = {
        "UPDATE item SET v = v + 1 WHERE id <= 2",
        "UPDATE item SET v = v + 1 WHERE id <= 2 RETURNING id",
        "DELETE FROM item WHERE id <= 2",
        "INSERT INTO item VALUES (10), (11)",
        "SELECT noted(id) FROM item WHERE id <= 2",
    };
    char before[4096];
    snprintf(before, sizeof before, "%s", ask(monitor, all_tables));
    for (int round = 0; round < 8; round++) /* the first ones are not prepared */
        for (int i = 0; i < COUNT(texts); i++) {
            assert_one(texts[i], 0, PQTX_TOO_MANY);
            assert_one(texts[i], 1, PQTX_TOO_MANY);
            assert_one(texts[i], 3, PQTX_NO_MATCH);
        }
    ck_assert_str_eq(ask(monitor, all_tables), before);
    ck_assert_uint_eq(stats_of(pool).commits, 0);
    for (int i = 0; i < 2; i++)
        assert_one(texts[i], 2, PQTX_OK);
    ck_assert_int_eq(ask_int(monitor, "SELECT sum(v) FROM item"), 4);
}
END_TEST

START_TEST(two_statements_are_refused_as_elsewhere)
{
    static const char *const texts[] = {
        "UPDATE item SET v = 1 WHERE id = 1; DELETE FROM item",
        "UPDATE item SET v = 1 WHERE id = 1 RETURNING id; SELECT 1",
        "SELECT id FROM item WHERE id = 1;\n-- more\nDELETE FROM item;",
        "UPDATE item SET v = 1 WHERE id = 1; x",
    };
    for (int i = 0; i < COUNT(texts); i++) {
        assert_one(texts[i], 1, PQTX_BAD_STATEMENT);
        assert_one(texts[i], PQTX_ANY_ROWS, PQTX_BAD_STATEMENT);
    }
    ck_assert_int_eq(ask_int(monitor, "SELECT count(*) FROM item WHERE v = 0"), 3);
}
END_TEST

/* What another has committed meanwhile is looked at, as it is without a guard. */
static pqtx_status take_one(pqtx_tx *tx, void *arg)
{
    (void)arg;
    pqtx_pipeline(tx);
    return pqtx_update_one(tx, "UPDATE item SET v = v + 1 WHERE id = 1 AND v = 0", PQTX_NO_ARGS);
}

static void meet_a_rival(const char *rival, pqtx_status expected)
{
    struct task task = {.pool = pool, .work = take_one};
    sql(session, "BEGIN");
    sql(session, rival);
    start_task(&task);
    wait_for_blocked(monitor, PQbackendPID(session));
    sql(session, "COMMIT");
    join_task(&task, expected);
}

START_TEST(the_condition_is_checked_on_the_newest_row)
{
    meet_a_rival("UPDATE item SET note = 'rival' WHERE id = 1", PQTX_OK);
    ck_assert_str_eq(ask(monitor, "SELECT v || note FROM item WHERE id = 1"), "1rival");
    sql(monitor, "UPDATE item SET v = 0");
    meet_a_rival("UPDATE item SET v = 5 WHERE id = 1", PQTX_NO_MATCH);
    ck_assert_int_eq(ask_int(monitor, "SELECT v FROM item WHERE id = 1"), 5);
    sql(monitor, "UPDATE item SET v = 0");
    meet_a_rival("DELETE FROM item WHERE id = 1", PQTX_NO_MATCH);
}
END_TEST

/* A rule that makes other statements of it cannot stand in a WITH query: the server refuses it,
 * whatever the count would have been. */
START_TEST(a_table_with_rules_is_refused)
{
    static const char *const tables[] = {"also", "nothing", "other"};
    for (int i = 0; i < COUNT(tables); i++) {
        char text[128];
        pqtx_error error;
        snprintf(text, sizeof text, "UPDATE %s SET v = 1 WHERE id = 1", tables[i]);
        for (int64_t expected = 0; expected < 3; expected++) {
            pqtx_status status = run_one(text, expected, &error);
            ck_assert_msg(status == pqtx_status_of_sqlstate("0A000"), "%s: %s",
                          pqtx_status_name(status), error.message);
            ck_assert_str_eq(error.sqlstate, "0A000");
            ck_assert_int_eq(error.attempt, 1);
        }
    }
    ck_assert_int_eq(ask_int(monitor, "SELECT count(*) FROM log"), 0);
    ck_assert_int_eq(ask_int(monitor, "SELECT sum(v) FROM item"), 0);
    assert_one("UPDATE also SET v = 1 WHERE id = 1", PQTX_ANY_ROWS, PQTX_OK);
    ck_assert_int_eq(ask_int(monitor, "SELECT count(*) FROM log"), 1);
}
END_TEST

START_TEST(a_rule_that_returns_its_rows_counts_them)
{
    assert_one("INSERT INTO redirected VALUES (10, 1), (11, 1)", 1, PQTX_TOO_MANY);
    assert_one("INSERT INTO redirected VALUES (10, 1), (11, 1)", 2, PQTX_OK);
    assert_one("INSERT INTO redirected VALUES (12, 1) RETURNING v", 1, PQTX_OK);
    ck_assert_int_eq(ask_int(monitor, "SELECT count(*) FROM item WHERE v = 1"), 3);
}
END_TEST

/* ---- Errors of the caller's own */

static pqtx_error fail_with(const char *text, pqtx_value value, int64_t expected)
{
    pqtx_error error = PQTX_ERROR;
    pqtx_status status = pqtx_run_one(pool, NULL, text, 1, &value, expected, NULL, &error);
    ck_assert_int_ne(status, PQTX_OK);
    ck_assert_int_eq(status, error.status);
    ck_assert_int_eq(error.attempt, 1);
    return error;
}

static void assert_bad_data(const char *text, const char *value, int64_t expected)
{
    pqtx_error error = fail_with(text, pqtx_text(value), expected);
    assert_status(error.status, PQTX_BAD_DATA, &error);
    ck_assert_str_eq(error.sqlstate, "22P02");
    ck_assert_int_eq(error.origin, PQTX_ORIGIN_SERVER);
}

START_TEST(bad_data_is_not_taken_for_a_miss)
{
    for (int round = 0; round < 3; round++) {
        assert_bad_data("UPDATE item SET v = $1 WHERE id = 1", "pqtx_guard:1", 1);
        assert_bad_data("UPDATE item SET v = $1::text::int WHERE id = 1", "pqtx_guard:1", 1);
        assert_bad_data("UPDATE item SET lsn = $1 WHERE id = 1", "nonsense", 1);
        assert_bad_data("UPDATE item SET lsn = $1::text::pg_lsn WHERE id = 1", "", 1);
        assert_bad_data("SELECT $1::text::pg_lsn", "guard:1", 1);
        assert_bad_data("UPDATE item SET lsn = $1 WHERE id = 1", "pqtx_guard:1", PQTX_ANY_ROWS);
    }
    ck_assert_uint_eq(stats_of(pool).commits, 0);
}
END_TEST

/* Nobody writes that; who does gets a failure, and nothing is committed. */
START_TEST(data_that_looks_like_a_guard_fails_all_the_same)
{
    static const char *const texts[] = {"pqtx_guard:0", "pqtx_guard:1", "pqtx_guard:2",
                                        "0/0 pqtx_guard:", "pqtx_guard:-1"};
    for (int i = 0; i < COUNT(texts); i++)
        for (int64_t expected = 0; expected < 3; expected++) {
            pqtx_value value = pqtx_text(texts[i]);
            pqtx_error error = fail_with("UPDATE item SET lsn = $1 WHERE id = 1", value, expected);
            ck_assert_msg(error.status == PQTX_BAD_DATA || error.status == PQTX_NO_MATCH ||
                              error.status == PQTX_TOO_MANY,
                          "%s", pqtx_status_name(error.status));
        }
    ck_assert_uint_eq(stats_of(pool).commits, 0);
    ck_assert_int_eq(ask_int(monitor, "SELECT count(lsn) FROM item"), 0);
}
END_TEST

/* Counted in characters of the caller's text, wherever the guard has moved it. */
START_TEST(an_errors_position_is_in_the_callers_text)
{
    static const char *const texts[] = {
        "UPDATE item SET nothing = 1",
        "  \n UPDATE item SET nothing = 1",
        ";;;;;;;;;;;;;;;;;;;;;;;;; UPDATE item SET nothing = 1",
        "/* \xc3\xa9 */ UPDATE item SET nothing = 1",
        "SELECT nothing FROM item",
        "DELETE FROM item WHERE '\xc3\xa9' = nothing RETURNING id;",
    };
    for (int i = 0; i < COUNT(texts); i++) {
        pqtx_error error;
        int characters = 1;
        for (const char *at = texts[i]; at < strstr(texts[i], "nothing"); at++)
            characters += ((unsigned char)*at & 0xc0) != 0x80;
        assert_status(run_one(texts[i], 1, &error), PQTX_BAD_STATEMENT, &error);
        ck_assert_msg(error.statement_position == characters, "%d, expected %d: %s",
                      error.statement_position, characters, texts[i]);
    }
}
END_TEST

static Suite *suite(void)
{
    Suite *suite = suite_create("live_guard");
    TCase *tcase = tcase_create("statements");
    tcase_add_unchecked_fixture(tcase, make, NULL);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, a_guarded_statement_does_the_same_or_says_how_many, 0,
                        COUNT(shapes));
    tcase_add_test(tcase, rows_of_children_count_too);
    tcase_add_test(tcase, a_conflict_counts_as_it_does_without_a_guard);
    tcase_add_test(tcase, rows_that_a_trigger_swallows_do_not_count);
    tcase_add_test(tcase, a_view_counts_what_its_trigger_says);
    tcase_add_test(tcase, a_view_without_triggers_counts_the_rows_of_its_table);
    tcase_add_test(tcase, the_row_of_a_cursor_can_be_guarded);
    tcase_add_test(tcase, a_volatile_function_runs_as_often_as_without_a_guard);
    tcase_add_test(tcase, a_guarded_select_holds_the_locks_that_it_asks_for);
    tcase_add_test(tcase, a_guard_needs_no_further_privilege);
    tcase_add_test(tcase, a_plan_for_any_values_counts_anew_each_time);
    tcase_add_test(tcase, a_search_path_full_of_traps_makes_no_miss_a_match);
    tcase_add_test(tcase, a_guard_is_understood_in_any_language);
    tcase_add_test(tcase, a_guard_works_whatever_the_session_has_set);
    tcase_add_test(tcase, a_character_that_ends_like_a_backslash_makes_no_miss_a_match);
    tcase_add_test(tcase, no_text_that_can_be_written_makes_a_miss_a_match);
    suite_add_tcase(suite, tcase);

    tcase = tcase_create("transactions");
    tcase_add_unchecked_fixture(tcase, make, NULL);
    tcase_add_checked_fixture(tcase, open_one_connection, close_all);
    tcase_add_test(tcase, a_miss_is_not_committed);
    tcase_add_test(tcase, two_statements_are_refused_as_elsewhere);
    tcase_add_test(tcase, the_condition_is_checked_on_the_newest_row);
    tcase_add_test(tcase, a_table_with_rules_is_refused);
    tcase_add_test(tcase, a_rule_that_returns_its_rows_counts_them);
    tcase_add_test(tcase, bad_data_is_not_taken_for_a_miss);
    tcase_add_test(tcase, data_that_looks_like_a_guard_fails_all_the_same);
    tcase_add_test(tcase, an_errors_position_is_in_the_callers_text);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return run_suite(suite());
}
