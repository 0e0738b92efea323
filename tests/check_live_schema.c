/* check_live_schema.c: each finding, in a schema that has it and in one that has not. */
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MANY = 60 };

static PGconn *session;
static pqtx_pool *pool;
static pqtx_subject tables[2];
static pqtx_schema schema;
static pqtx_finding findings[MANY];
static size_t found;
static pqtx_severity worst;

#define HERE "pqtx_schema"

static void set_up(void)
{
    fresh_schema(HERE);
    session = open_session();
    pool = open_pool(2);
    for (int i = 0; i < 2; i++)
        tables[i] = (pqtx_subject)PQTX_SUBJECT;
    schema = (pqtx_schema)PQTX_SCHEMA;
    schema.tables = tables;
    schema.schema = HERE;
    schema.old_ms = 3600000;
    memset(findings, 0, sizeof findings);
    findings[0].size = sizeof findings[0];
}

static void tear_down(void)
{
    pqtx_pool_close(pool);
    PQfinish(session);
}

static void describe(pqtx_subject_kind kind, const char *table, const char *key, const char *value,
                     const char *order)
{
    tables[0].kind = kind;
    tables[0].table = table;
    tables[0].key = key;
    tables[0].value = value;
    tables[0].order = order;
    schema.table_count = 1;
}

static void check_with(pqtx_pool *from)
{
    pqtx_error error = PQTX_ERROR;
    pqtx_status status =
        pqtx_check_schema(from, NULL, &schema, findings, MANY, &found, &worst, &error);
    assert_status(status, PQTX_OK, &error);
    ck_assert_uint_le(found, MANY);
    for (size_t i = 1; i < found; i++)
        ck_assert_int_ge(findings[i - 1].severity, findings[i].severity);
    ck_assert_int_eq(worst, found ? findings[0].severity : PQTX_SEVERITY_NONE);
}

static const pqtx_finding *find(pqtx_finding_code code)
{
    for (size_t i = 0; i < found; i++)
        if (findings[i].code == code)
            return &findings[i];
    return NULL;
}

static int count(pqtx_finding_code code)
{
    int n = 0;
    for (size_t i = 0; i < found; i++)
        n += findings[i].code == code;
    return n;
}

static const pqtx_finding *assert_found(pqtx_finding_code code)
{
    check_with(pool);
    const pqtx_finding *finding = find(code);
    ck_assert_msg(finding != NULL, "%s was not found", pqtx_finding_name(code));
    ck_assert_str_ne(finding->object, "");
    ck_assert_str_ne(finding->what, "");
    ck_assert_str_ne(finding->why, "");
    return finding;
}

static void assert_not_found(pqtx_finding_code code)
{
    check_with(pool);
    const pqtx_finding *finding = find(code);
    ck_assert_msg(!finding, "%s: %s: %s", pqtx_finding_name(code), finding ? finding->object : "",
                  finding ? finding->what : "");
}

/* It is found, with this statement; and after the statement it is not. */
static void assert_mends(pqtx_finding_code code, pqtx_severity severity, const char *object,
                         const char *mend)
{
    const pqtx_finding *finding = assert_found(code);
    char statement[sizeof finding->mend];
    ck_assert_int_eq(count(code), 1);
    ck_assert_int_eq(finding->severity, severity);
    ck_assert_str_eq(finding->object, object);
    ck_assert_str_eq(finding->mend, mend);
    strcpy(statement, finding->mend);
    sql(session, statement);
    assert_not_found(code);
}

#define COUNTER "(name text PRIMARY KEY, value bigint NOT NULL) WITH (fillfactor = 70)"

/* ---- the description */

START_TEST(a_table_that_is_right_has_no_findings)
{
    sql(session, "CREATE TABLE ctr (name text PRIMARY KEY, value bigint NOT NULL"
                 " CHECK (value >= 0)) WITH (fillfactor = 70)");
    describe(PQTX_SUBJECT_COUNTER, "ctr", "name", "value", NULL);
    check_with(pool);
    ck_assert_uint_eq(found, 0);
    describe(PQTX_SUBJECT_STOCK, "ctr", "name", "value", NULL);
    check_with(pool);
    ck_assert_uint_eq(found, 0);
}
END_TEST

START_TEST(a_table_or_column_that_is_not_there_is_found)
{
    sql(session, "CREATE TABLE \"Ctr\" (\"Key\" int PRIMARY KEY, value bigint)");
    describe(PQTX_SUBJECT_COUNTER, "ctr", "Key", "value", NULL);
    ck_assert_str_eq(assert_found(PQTX_FIND_NO_TABLE)->object, "ctr");
    ck_assert_int_eq(worst, PQTX_SEVERITY_ERROR);
    describe(PQTX_SUBJECT_COUNTER, "Ctr", "Key, key", "value", NULL);
    ck_assert_str_eq(assert_found(PQTX_FIND_NO_TABLE)->what, "there is no column key");
    ck_assert_uint_eq(found, 1); /* and nothing is said about the rest of it */
    describe(PQTX_SUBJECT_COUNTER, "Ctr", " Key ", "value", NULL);
    assert_not_found(PQTX_FIND_NO_TABLE);
    tables[0].schema = "nowhere";
    ck_assert_str_eq(assert_found(PQTX_FIND_NO_TABLE)->object, "nowhere.\"Ctr\"");
    tables[0].schema = HERE;
    assert_not_found(PQTX_FIND_NO_TABLE);
}
END_TEST

/* ---- keys */

START_TEST(a_key_without_a_unique_index_is_found)
{
    sql(session, "CREATE TABLE \"Ctr\" (a int NOT NULL, \"B\" text NOT NULL, value bigint)");
    describe(PQTX_SUBJECT_COUNTER, "Ctr", "a,B", "value", NULL);
    assert_mends(PQTX_FIND_KEY_NOT_UNIQUE, PQTX_SEVERITY_ERROR, HERE ".\"Ctr\"",
                 "CREATE UNIQUE INDEX CONCURRENTLY ON " HERE ".\"Ctr\" (a, \"B\")");
}
END_TEST

START_TEST(an_index_that_does_not_keep_the_key_unique_does_not_count)
{
    static const char *const indexes[] = {
        "CREATE INDEX i ON ctr (a, b)",
        "CREATE UNIQUE INDEX i ON ctr (a, b) WHERE value > 0",
        "CREATE UNIQUE INDEX i ON ctr (a, lower(b))",
        "CREATE UNIQUE INDEX i ON ctr (a, b, value)",
        "CREATE UNIQUE INDEX i ON ctr (a) INCLUDE (b)",
        "ALTER TABLE ctr ADD CONSTRAINT i UNIQUE (a, b) DEFERRABLE",
    };
    sql(session, "CREATE TABLE ctr (a int NOT NULL, b text NOT NULL, value bigint)");
    describe(PQTX_SUBJECT_KEYED, "ctr", "a,b", NULL, NULL);
    for (size_t i = 0; i < sizeof indexes / sizeof indexes[0]; i++) {
        sql(session, indexes[i]);
        assert_found(PQTX_FIND_KEY_NOT_UNIQUE);
        sql(session, "ALTER TABLE ctr DROP CONSTRAINT IF EXISTS i; DROP INDEX IF EXISTS i");
    }
    sql(session, "CREATE UNIQUE INDEX ON ctr (b, a) INCLUDE (value)");
    assert_not_found(PQTX_FIND_KEY_NOT_UNIQUE);
}
END_TEST

START_TEST(a_partitioned_table_is_mended_without_concurrently)
{
    sql(session, "CREATE TABLE ctr (a int NOT NULL, value bigint) PARTITION BY LIST (a);"
                 "CREATE TABLE ctr_1 PARTITION OF ctr FOR VALUES IN (1)");
    describe(PQTX_SUBJECT_COUNTER, "ctr", "a", "value", NULL);
    check_with(pool);
    ck_assert_str_eq(find(PQTX_FIND_FILLFACTOR)->object, HERE ".ctr_1");
    assert_mends(PQTX_FIND_KEY_NOT_UNIQUE, PQTX_SEVERITY_ERROR, HERE ".ctr",
                 "CREATE UNIQUE INDEX ON " HERE ".ctr (a)");
}
END_TEST

START_TEST(a_key_that_can_be_null_is_found)
{
    sql(session, "CREATE TABLE ctr (a int NOT NULL, b int, UNIQUE (a, b))");
    describe(PQTX_SUBJECT_KEYED, "ctr", "a,b", NULL, NULL);
    assert_mends(PQTX_FIND_KEY_NULLABLE, PQTX_SEVERITY_WARNING, HERE ".ctr",
                 "ALTER TABLE " HERE ".ctr ALTER COLUMN b SET NOT NULL");
}
END_TEST

START_TEST(the_librarys_own_table_is_known_by_its_name)
{
    sql(session, "CREATE TABLE pqtx_once (id text)");
    schema.table_count = 0;
    ck_assert_str_eq(assert_found(PQTX_FIND_KEY_NOT_UNIQUE)->object, HERE ".pqtx_once");
    sql(session, "DROP TABLE pqtx_once");
    ck_assert_int_eq(pqtx_once_install(pool, HERE, NULL), PQTX_OK);
    check_with(pool);
    ck_assert_uint_eq(found, 0);
}
END_TEST

/* ---- counters */

START_TEST(a_stock_without_a_lower_bound_is_found)
{
    sql(session, "CREATE TABLE stock (id int PRIMARY KEY, \"Left\" bigint, other bigint"
                 " CHECK (other >= 0))");
    describe(PQTX_SUBJECT_COUNTER, "stock", "id", "Left", NULL);
    assert_not_found(PQTX_FIND_NO_LOWER_BOUND);
    describe(PQTX_SUBJECT_STOCK, "stock", "id", "Left", NULL);
    assert_mends(PQTX_FIND_NO_LOWER_BOUND, PQTX_SEVERITY_ERROR, HERE ".stock",
                 "ALTER TABLE " HERE ".stock ADD CHECK (\"Left\" >= 0)");
}
END_TEST

static void assert_bounded(const char *type, const char *check, bool is)
{
    char statement[256];
    snprintf(
        statement, sizeof statement,
        "DROP TABLE IF EXISTS stock; CREATE TABLE stock (id int PRIMARY KEY, n%s, m int%s%s%s)",
        type, *check ? ", CHECK (" : "", check, *check ? ")" : "");
    sql(session, statement);
    check_with(pool);
    ck_assert_msg(!find(PQTX_FIND_NO_LOWER_BOUND) == is, "%s CHECK (%s)", type, check);
}

START_TEST(a_lower_bound_is_recognised_as_the_server_writes_it)
{
    describe(PQTX_SUBJECT_STOCK, "stock", "id", "n", NULL);
    assert_bounded(" int", "n >= 0", true);
    assert_bounded(" bigint", "n >= 5 AND n < 100", true);
    assert_bounded(" bigint", "n BETWEEN 0 AND 9", true);
    assert_bounded(" numeric", "n >= 0.0", true);
    assert_bounded(" numeric", "0 <= n AND m > n", true);
    assert_bounded(" int", "n > -1", true);
    assert_bounded(" int", "-1 < n", true);
    assert_bounded(" float8", "n >= 0", true);
    assert_bounded(" int", "", false);
    assert_bounded(" int", "n >= -1", false);
    assert_bounded(" int", "n > -2", false);
    assert_bounded(" int", "n > -10", false);
    assert_bounded(" int", "m >= 0", false);
    assert_bounded(" int", "n >= 0 OR m = 1", false);
    assert_bounded(" int", "NOT n >= 0", false);
    assert_bounded(" int", "n <= 0", false);
    assert_bounded(" int", "0 >= n", false);
    assert_bounded(" int", "n >= m", false);
    assert_bounded(" int", "n <> 0", false);
    sql(session, "CREATE DOMAIN amount AS bigint CHECK (VALUE >= 0)");
    assert_bounded(" amount", "", true);
    sql(session, "CREATE DOMAIN debt AS bigint CHECK (VALUE >= -100)");
    assert_bounded(" debt", "", false);
    if (PQserverVersion(session) >= 180000)
        assert_bounded(" int CHECK (n >= 0) NOT ENFORCED", "", false);
}
END_TEST

START_TEST(an_index_over_the_value_is_found)
{
    sql(session, "CREATE TABLE ctr " COUNTER "; CREATE INDEX \"By\" ON ctr (value)");
    describe(PQTX_SUBJECT_COUNTER, "ctr", "name", "value", NULL);
    assert_mends(PQTX_FIND_VALUE_INDEXED, PQTX_SEVERITY_WARNING, HERE ".\"By\"",
                 "DROP INDEX CONCURRENTLY " HERE ".\"By\"");
    sql(session, "ALTER TABLE ctr ADD CONSTRAINT u UNIQUE (name, value)");
    assert_mends(PQTX_FIND_VALUE_INDEXED, PQTX_SEVERITY_WARNING, HERE ".u",
                 "ALTER TABLE " HERE ".ctr DROP CONSTRAINT u");
    sql(session, "CREATE INDEX e ON ctr ((value / 2))");
    assert_mends(PQTX_FIND_VALUE_INDEXED, PQTX_SEVERITY_WARNING, HERE ".e",
                 "DROP INDEX CONCURRENTLY " HERE ".e");
    sql(session, "CREATE INDEX p ON ctr (name) WHERE value > 0");
    assert_mends(PQTX_FIND_VALUE_INDEXED, PQTX_SEVERITY_WARNING, HERE ".p",
                 "DROP INDEX CONCURRENTLY " HERE ".p");
    sql(session, "CREATE INDEX i ON ctr (name) INCLUDE (value)");
    assert_mends(PQTX_FIND_VALUE_INDEXED, PQTX_SEVERITY_WARNING, HERE ".i",
                 "DROP INDEX CONCURRENTLY " HERE ".i");
    sql(session, "CREATE INDEX ON ctr USING brin (value)");
    if (PQserverVersion(session) >= 160000)
        assert_not_found(PQTX_FIND_VALUE_INDEXED);
    else
        assert_found(PQTX_FIND_VALUE_INDEXED);
}
END_TEST

START_TEST(a_narrow_counter_is_found)
{
    sql(session, "CREATE TABLE ctr (name text PRIMARY KEY, value int) WITH (fillfactor = 70)");
    describe(PQTX_SUBJECT_COUNTER, "ctr", "name", "value", NULL);
    assert_mends(PQTX_FIND_VALUE_NARROW, PQTX_SEVERITY_NOTE, HERE ".ctr",
                 "ALTER TABLE " HERE ".ctr ALTER COLUMN value TYPE bigint");
}
END_TEST

START_TEST(full_pages_are_found)
{
    sql(session, "CREATE TABLE ctr (name text PRIMARY KEY, value bigint)");
    describe(PQTX_SUBJECT_COUNTER, "ctr", "name", "value", NULL);
    assert_mends(PQTX_FIND_FILLFACTOR, PQTX_SEVERITY_NOTE, HERE ".ctr",
                 "ALTER TABLE " HERE ".ctr SET (fillfactor = 70)");
    sql(session, "ALTER TABLE ctr SET (fillfactor = 100)");
    assert_found(PQTX_FIND_FILLFACTOR);
}
END_TEST

START_TEST(a_trigger_is_found)
{
    sql(session,
        "CREATE TABLE parent (id int PRIMARY KEY); CREATE TABLE ctr (name text PRIMARY KEY,"
        " value bigint, p int REFERENCES parent) WITH (fillfactor = 70);"
        "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN new; END'");
    describe(PQTX_SUBJECT_COUNTER, "ctr", "name", "value", NULL);
    assert_not_found(PQTX_FIND_TRIGGER); /* those of the foreign key are the server's own */
    sql(session, "CREATE TRIGGER \"T\" BEFORE UPDATE ON ctr FOR EACH ROW EXECUTE FUNCTION f()");
    assert_mends(PQTX_FIND_TRIGGER, PQTX_SEVERITY_WARNING, HERE ".ctr",
                 "ALTER TABLE " HERE ".ctr DISABLE TRIGGER \"T\"");
    sql(session, "CREATE TRIGGER t2 AFTER TRUNCATE ON ctr EXECUTE FUNCTION f()");
    assert_not_found(PQTX_FIND_TRIGGER);
}
END_TEST

/* ---- queues */

#define QUEUE                                                                                      \
    "CREATE TABLE job (id bigint PRIMARY KEY, state text, prio int, run_at timestamptz,"           \
    " lease_until timestamptz) WITH (fillfactor = 70);"                                            \
    "CREATE INDEX ON job (state, id) WHERE state = 'leased';"

START_TEST(a_queue_without_its_index_is_found)
{
    sql(session, QUEUE);
    describe(PQTX_SUBJECT_QUEUE, "job", "id", "lease_until", "prio, run_at");
    assert_mends(PQTX_FIND_NO_QUEUE_INDEX, PQTX_SEVERITY_WARNING, HERE ".job",
                 "CREATE INDEX CONCURRENTLY ON " HERE ".job (prio, run_at)");
    check_with(pool);
    ck_assert_uint_eq(found, 0);
    sql(session, "DROP INDEX job_prio_run_at_idx; CREATE INDEX i ON job (run_at, prio)");
    assert_found(PQTX_FIND_NO_QUEUE_INDEX);
    sql(session, "DROP INDEX i; CREATE INDEX i ON job (id, prio, run_at)");
    assert_found(PQTX_FIND_NO_QUEUE_INDEX);
    sql(session, "DROP INDEX i; CREATE INDEX i ON job (prio, run_at, id) WHERE state = 'ready'");
    assert_not_found(PQTX_FIND_NO_QUEUE_INDEX);
}
END_TEST

START_TEST(an_indexed_lease_is_found)
{
    sql(session, QUEUE "CREATE INDEX i ON job (lease_until)");
    describe(PQTX_SUBJECT_QUEUE, "job", "id", "lease_until", NULL);
    assert_mends(PQTX_FIND_VALUE_INDEXED, PQTX_SEVERITY_WARNING, HERE ".i",
                 "DROP INDEX CONCURRENTLY " HERE ".i");
}
END_TEST

/* ---- intervals */

START_TEST(intervals_that_may_overlap_are_found)
{
    if (strcmp(ask(session, "SELECT count(*) FROM pg_available_extensions"
                            " WHERE name = 'btree_gist'"),
               "0") == 0)
        return;
    sql(session, "DROP EXTENSION IF EXISTS btree_gist CASCADE;"
                 "CREATE TABLE booking (\"Room\" int NOT NULL, during tstzrange)");
    describe(PQTX_SUBJECT_INTERVALS, "booking", "Room", "during", NULL);
    assert_mends(PQTX_FIND_NO_BTREE_GIST, PQTX_SEVERITY_ERROR, HERE ".booking",
                 "CREATE EXTENSION btree_gist");
    assert_mends(PQTX_FIND_NO_EXCLUSION, PQTX_SEVERITY_ERROR, HERE ".booking",
                 "ALTER TABLE " HERE ".booking ADD EXCLUDE USING gist"
                 " (\"Room\" WITH =, during WITH &&)");
    check_with(pool);
    ck_assert_uint_eq(found, 0);
    sql(session, "DROP TABLE booking; CREATE TABLE booking (\"Room\" int NOT NULL, guest int,"
                 " during tstzrange, EXCLUDE USING gist (\"Room\" WITH =, guest WITH =,"
                 " during WITH &&))"); /* two guests in one room */
    assert_found(PQTX_FIND_NO_EXCLUSION);
    sql(session, "ALTER TABLE booking ADD EXCLUDE USING gist (\"Room\" WITH <>, during WITH &&)");
    assert_found(PQTX_FIND_NO_EXCLUSION);
    sql(session, "ALTER TABLE booking ADD EXCLUDE USING gist (\"Room\" WITH =, during WITH =)");
    assert_found(PQTX_FIND_NO_EXCLUSION);
    sql(session, "ALTER TABLE booking ADD EXCLUDE USING gist (during WITH &&)");
    assert_not_found(PQTX_FIND_NO_EXCLUSION);
    if (PQserverVersion(session) >= 180000) {
        sql(session, "DROP TABLE booking; CREATE TABLE booking (\"Room\" int, during tstzrange,"
                     " PRIMARY KEY (\"Room\", during WITHOUT OVERLAPS))");
        assert_not_found(PQTX_FIND_NO_EXCLUSION);
    }
    sql(session, "DROP EXTENSION btree_gist CASCADE");
}
END_TEST

START_TEST(intervals_without_a_key_need_no_extension)
{
    sql(session, "DROP EXTENSION IF EXISTS btree_gist CASCADE;"
                 "CREATE TABLE shift (during int4range)");
    describe(PQTX_SUBJECT_INTERVALS, "shift", NULL, "during", NULL);
    assert_not_found(PQTX_FIND_NO_BTREE_GIST);
    assert_mends(PQTX_FIND_NO_EXCLUSION, PQTX_SEVERITY_ERROR, HERE ".shift",
                 "ALTER TABLE " HERE ".shift ADD EXCLUDE USING gist (during WITH &&)");
}
END_TEST

/* ---- functions */

static void assert_function(const char *rest, pqtx_finding_code code, bool is)
{
    char statement[1024];
    sql(session, "DROP FUNCTION IF EXISTS f(int)");
    snprintf(statement, sizeof statement, "CREATE FUNCTION f(int) RETURNS bigint %s", rest);
    sql(session, statement);
    check_with(pool);
    ck_assert_msg(!find(code) == !is, "%s%s: %s", is ? "not " : "", pqtx_finding_name(code), rest);
}

#define SQL_F     "LANGUAGE sql "
#define PLPGSQL_F "LANGUAGE plpgsql "

START_TEST(an_immutable_function_that_reads_tables_is_found)
{
    static const char *const reads[] = {
        SQL_F "IMMUTABLE AS 'SELECT value FROM \"Ctr\"'",
        SQL_F "IMMUTABLE AS 'SELECT value FROM pqtx_schema . \"Ctr\" AS c'",
        SQL_F "IMMUTABLE AS 'SELECT 1::bigint FROM generate_series(1, 2) JOIN Plain ON true'",
        SQL_F "IMMUTABLE AS 'SELECT n FROM look'",
        PLPGSQL_F "IMMUTABLE AS 'BEGIN RETURN (SELECT max(n) FROM ONLY plain); END'",
    };
    static const char *const does_not[] = {
        SQL_F "IMMUTABLE AS 'SELECT $1::bigint'",
        SQL_F "STABLE AS 'SELECT n FROM plain'",
        SQL_F "IMMUTABLE AS 'SELECT 1::bigint FROM unnest(ARRAY[1]) AS plain'",
        SQL_F "IMMUTABLE AS 'SELECT 1::bigint -- FROM plain'",
        SQL_F "IMMUTABLE AS 'SELECT 1::bigint /* FROM * plain **/'",
        SQL_F "IMMUTABLE AS $$SELECT length('from plain it''s')::bigint$$",
        PLPGSQL_F "IMMUTABLE AS 'DECLARE plainly int = 1; BEGIN RETURN plainly; END'",
    };
    sql(session, "CREATE TABLE \"Ctr\" (value bigint); CREATE TABLE plain (n bigint);"
                 "CREATE VIEW look AS SELECT 1::bigint AS n");
    for (size_t i = 0; i < sizeof reads / sizeof reads[0]; i++)
        assert_function(reads[i], PQTX_FIND_IMMUTABLE_READS, true);
    for (size_t i = 0; i < sizeof does_not / sizeof does_not[0]; i++)
        assert_function(does_not[i], PQTX_FIND_IMMUTABLE_READS, false);
    assert_function(SQL_F "IMMUTABLE AS 'SELECT n FROM plain'", PQTX_FIND_IMMUTABLE_READS, true);
    assert_mends(PQTX_FIND_IMMUTABLE_READS, PQTX_SEVERITY_ERROR, HERE ".f(integer)",
                 "ALTER FUNCTION " HERE ".f(integer) STABLE");
}
END_TEST

START_TEST(of_a_function_with_a_parsed_body_the_dependencies_count)
{
    if (PQserverVersion(session) < 140000)
        return;
    sql(session, "CREATE TABLE plain (n bigint)");
    assert_function(SQL_F "IMMUTABLE BEGIN ATOMIC SELECT n FROM plain; END",
                    PQTX_FIND_IMMUTABLE_READS, true);
    assert_function(SQL_F "IMMUTABLE RETURN 1", PQTX_FIND_IMMUTABLE_READS, false);
    assert_function(SQL_F "BEGIN ATOMIC SELECT n FROM plain; END", PQTX_FIND_VOLATILE_ONLY_READS,
                    true);
    assert_function(SQL_F "BEGIN ATOMIC UPDATE plain SET n = 1 RETURNING n; END",
                    PQTX_FIND_VOLATILE_ONLY_READS, false);
}
END_TEST

START_TEST(a_volatile_function_that_only_reads_is_found)
{
    static const char *const does_more[] = {
        SQL_F "AS 'UPDATE plain SET n = 1 RETURNING n'",
        SQL_F "AS 'SELECT n FROM plain FOR UPDATE'",
        SQL_F "AS 'SELECT n FROM plain FOR SHARE'",
        SQL_F "AS 'SELECT n FROM plain WHERE random() > 0.5'",
        SQL_F "AS 'SELECT n FROM plain WHERE clock_timestamp() > now()'",
        SQL_F "AS 'SELECT n FROM plain WHERE writer() = n'",
        PLPGSQL_F "AS 'BEGIN EXECUTE ''DELETE FROM plain''; RETURN 1; END'",
        PLPGSQL_F "AS 'BEGIN PERFORM writer(); RETURN (SELECT n FROM plain); END'",
        PLPGSQL_F "AS 'BEGIN INSERT INTO plain SELECT n FROM plain; RETURN 1; END'",
        SQL_F "AS 'SELECT $1::bigint'", /* reads nothing: nothing would be gained */
        SQL_F "STABLE AS 'SELECT n FROM plain'",
    };
    sql(session, "CREATE TABLE plain (n bigint); CREATE FUNCTION writer() RETURNS bigint"
                 " LANGUAGE sql AS 'INSERT INTO plain VALUES (1) RETURNING n'");
    for (size_t i = 0; i < sizeof does_more / sizeof does_more[0]; i++)
        assert_function(does_more[i], PQTX_FIND_VOLATILE_ONLY_READS, false);
    assert_function(PLPGSQL_F "AS 'DECLARE r bigint; BEGIN SELECT n INTO r FROM plain WHERE"
                              " n = length($1::text); RETURN r; END'",
                    PQTX_FIND_VOLATILE_ONLY_READS, true);
    assert_mends(PQTX_FIND_VOLATILE_ONLY_READS, PQTX_SEVERITY_NOTE, HERE ".f(integer)",
                 "ALTER FUNCTION " HERE ".f(integer) STABLE");
}
END_TEST

START_TEST(functions_of_other_schemas_are_left_out_when_one_is_named)
{
    sql(session, "CREATE TABLE plain (n bigint);"
                 "CREATE FUNCTION g() RETURNS bigint LANGUAGE sql IMMUTABLE AS"
                 " 'SELECT n FROM plain'");
    schema.schema = "pqtx_elsewhere";
    assert_not_found(PQTX_FIND_IMMUTABLE_READS);
    schema.schema = NULL;
    assert_found(PQTX_FIND_IMMUTABLE_READS);
}
END_TEST

/* ---- settings */

START_TEST(a_lock_timeout_set_for_others_is_found)
{
    char mend[256];
    sql(session, "DROP ROLE IF EXISTS pqtx_hasty; CREATE ROLE pqtx_hasty");
    assert_not_found(PQTX_FIND_LOCK_TIMEOUT_SET);
    sql(session, "ALTER ROLE pqtx_hasty SET lock_timeout = '3s'");
    ck_assert_str_eq(assert_found(PQTX_FIND_LOCK_TIMEOUT_SET)->what,
                     "lock_timeout=3s is set for it");
    assert_mends(PQTX_FIND_LOCK_TIMEOUT_SET, PQTX_SEVERITY_WARNING, "role pqtx_hasty",
                 "ALTER ROLE pqtx_hasty RESET lock_timeout");
    snprintf(mend, sizeof mend, "ALTER ROLE pqtx_hasty IN DATABASE %s RESET lock_timeout",
             ask(session, "SELECT quote_ident(current_database())"));
    sql(session, "DO $$ BEGIN EXECUTE format('ALTER ROLE pqtx_hasty IN DATABASE %I SET"
                 " lock_timeout = 7', current_database()); END $$");
    ck_assert_str_eq(assert_found(PQTX_FIND_LOCK_TIMEOUT_SET)->mend, mend);
    sql(session, mend);
    snprintf(mend, sizeof mend, "ALTER DATABASE %s RESET lock_timeout",
             ask(session, "SELECT quote_ident(current_database())"));
    sql(session, "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET lock_timeout = 7',"
                 " current_database()); END $$");
    ck_assert_str_eq(assert_found(PQTX_FIND_LOCK_TIMEOUT_SET)->mend, mend);
    sql(session, mend);
    sql(session, "ALTER ROLE pqtx_hasty SET lock_timeout = 0");
    assert_not_found(PQTX_FIND_LOCK_TIMEOUT_SET); /* that is no limit */
    sql(session, "DROP ROLE pqtx_hasty");
}
END_TEST

/* ---- sessions */

START_TEST(the_session_with_the_oldest_snapshot_is_found)
{
    char object[32];
    PGconn *old = open_session();
    sql(old, "SET application_name = 'old one'");
    sql(old, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1");
    sql(session, "CREATE TABLE t (n int); INSERT INTO t VALUES (1)");
    PGconn *young = open_session();
    sql(young, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1");
    assert_not_found(PQTX_FIND_OLD_SNAPSHOT); /* not for an hour */
    schema.old_ms = 1;
    snprintf(object, sizeof object, "pid %d", PQbackendPID(old));
    const pqtx_finding *finding = assert_found(PQTX_FIND_OLD_SNAPSHOT);
    ck_assert_int_eq(count(PQTX_FIND_OLD_SNAPSHOT), 1);
    ck_assert_int_eq(finding->severity, PQTX_SEVERITY_WARNING);
    ck_assert_str_eq(finding->object, object);
    ck_assert_ptr_ne(strstr(finding->what, "application old one, idle in transaction"), NULL);
    char mend[sizeof finding->mend];
    strcpy(mend, finding->mend);
    sql(young, "COMMIT");
    sql(session, mend);
    wait_until_true(session, "SELECT count(*) = 0 FROM pg_stat_activity"
                             " WHERE application_name = 'old one'");
    assert_not_found(PQTX_FIND_OLD_SNAPSHOT);
    PQfinish(old);
    PQfinish(young);
}
END_TEST

START_TEST(a_session_idle_in_its_transaction_is_found)
{
    char object[32];
    PGconn *idle = open_session();
    sql(idle, "BEGIN");
    assert_not_found(PQTX_FIND_IDLE_IN_TRANSACTION);
    schema.old_ms = 1;
    snprintf(object, sizeof object, "pid %d", PQbackendPID(idle));
    const pqtx_finding *finding = assert_found(PQTX_FIND_IDLE_IN_TRANSACTION);
    ck_assert_str_eq(finding->object, object);
    ck_assert_int_eq(finding->severity, PQTX_SEVERITY_WARNING);
    sql(idle, "ROLLBACK");
    assert_not_found(PQTX_FIND_IDLE_IN_TRANSACTION);
    PQfinish(idle);
}
END_TEST

START_TEST(a_prepared_transaction_is_found)
{
    if (ask_int(session, "SHOW max_prepared_transactions") == 0)
        return;
    sql(session, "CREATE TABLE t (n int)");
    sql(session, "BEGIN; INSERT INTO t VALUES (1); PREPARE TRANSACTION 'it''s left'");
    assert_not_found(PQTX_FIND_PREPARED_TRANSACTION);
    schema.old_ms = 1;
    assert_mends(PQTX_FIND_PREPARED_TRANSACTION, PQTX_SEVERITY_WARNING,
                 "prepared transaction 'it''s left'", "ROLLBACK PREPARED 'it''s left'");
}
END_TEST

START_TEST(a_replication_slot_that_nobody_reads_is_found)
{
    if (strcmp(ask(session, "SHOW wal_level"), "logical") != 0)
        return;
    assert_not_found(PQTX_FIND_REPLICATION_SLOT);
    sql(session, "SELECT pg_create_physical_replication_slot('pqtx_harmless')");
    assert_not_found(PQTX_FIND_REPLICATION_SLOT);
    sql(session, "SELECT pg_create_logical_replication_slot('pqtx_left', 'pgoutput')");
    assert_mends(PQTX_FIND_REPLICATION_SLOT, PQTX_SEVERITY_WARNING, "replication slot 'pqtx_left'",
                 "SELECT pg_drop_replication_slot('pqtx_left')");
    sql(session, "SELECT pg_drop_replication_slot('pqtx_harmless')");
}
END_TEST

START_TEST(a_role_without_privileges_is_told_what_it_is_not_shown)
{
    char conninfo[4096];
    pqtx_pool_options options = PQTX_POOL_OPTIONS;
    pqtx_pool *plain;
    sql(session, "DROP ROLE IF EXISTS pqtx_patient; CREATE ROLE pqtx_patient LOGIN;"
                 "CREATE SCHEMA IF NOT EXISTS pqtx_private; CREATE TABLE IF NOT EXISTS"
                 " pqtx_private.t (n int); CREATE TABLE ctr (name text, value bigint);"
                 "GRANT USAGE ON SCHEMA pqtx_schema TO pqtx_patient");
    assert_not_found(PQTX_FIND_NOT_SEEN);
    snprintf(conninfo, sizeof conninfo, "%s user=pqtx_patient", test_conninfo());
    options.conninfo = conninfo;
    ck_assert_int_eq(pqtx_pool_open(&options, &plain, NULL), PQTX_OK);
    describe(PQTX_SUBJECT_COUNTER, "ctr", "name", "value", NULL);
    tables[1].kind = PQTX_SUBJECT_KEYED;
    tables[1].schema = "pqtx_private"; /* which it may not even enter */
    tables[1].table = "t";
    schema.table_count = 2;
    check_with(plain);
    ck_assert_int_eq(count(PQTX_FIND_NOT_SEEN), 2);
    ck_assert_ptr_ne(find(PQTX_FIND_KEY_NOT_UNIQUE), NULL); /* the rest is checked all the same */
    bool activity = false, refused = false;
    for (size_t i = 0; i < found; i++) {
        activity |= strcmp(findings[i].object, "pg_stat_activity") == 0 &&
                    strcmp(findings[i].mend, "GRANT pg_read_all_stats TO pqtx_patient") == 0;
        refused |= strstr(findings[i].what, "permission denied for schema pqtx_private") != NULL;
    }
    ck_assert(activity);
    ck_assert(refused);
    schema.table_count = 1;
    sql(session, "GRANT pg_read_all_stats TO pqtx_patient");
    check_with(plain);
    ck_assert_int_eq(count(PQTX_FIND_NOT_SEEN), 0);
    pqtx_pool_close(plain);
    sql(session, "DROP SCHEMA pqtx_private CASCADE; DROP OWNED BY pqtx_patient;"
                 "DROP ROLE pqtx_patient");
}
END_TEST

/* ---- the call */

START_TEST(what_does_not_fit_is_the_least_severe)
{
    sql(session, "CREATE TABLE ctr (name text, value int)");
    describe(PQTX_SUBJECT_STOCK, "ctr", "name", "value", NULL);
    ck_assert_int_eq(pqtx_check_schema(pool, NULL, &schema, findings, 1, &found, &worst, NULL),
                     PQTX_OK);
    ck_assert_uint_eq(found, 5);
    ck_assert_int_eq(findings[0].code, PQTX_FIND_KEY_NOT_UNIQUE);
    ck_assert_int_eq(findings[1].code, PQTX_FIND_NONE);
    found = 0;
    ck_assert_int_eq(pqtx_check_schema(pool, NULL, &schema, NULL, 0, &found, &worst, NULL),
                     PQTX_OK);
    ck_assert_uint_eq(found, 5);
    ck_assert_int_eq(worst, PQTX_SEVERITY_ERROR);
    ck_assert_int_eq(pqtx_check_schema(pool, NULL, &schema, NULL, 0, NULL, NULL, NULL), PQTX_OK);
}
END_TEST

static void assert_misuse(void)
{
    pqtx_error error = PQTX_ERROR;
    ck_assert_int_eq(pqtx_check_schema(pool, NULL, &schema, findings, MANY, &found, &worst, &error),
                     PQTX_MISUSE);
    ck_assert_str_ne(error.message, "");
    ck_assert_uint_eq(found, 0);
}

START_TEST(wrong_arguments_are_misuse)
{
    describe((pqtx_subject_kind)0, "ctr", NULL, NULL, NULL);
    assert_misuse();
    describe((pqtx_subject_kind)6, "ctr", NULL, NULL, NULL);
    assert_misuse();
    describe(PQTX_SUBJECT_KEYED, "", NULL, NULL, NULL);
    assert_misuse();
    describe(PQTX_SUBJECT_KEYED, NULL, NULL, NULL, NULL);
    assert_misuse();
    describe(PQTX_SUBJECT_KEYED, "ctr", NULL, NULL, NULL);
    tables[0].size = 0;
    assert_misuse();
    tables[0] = (pqtx_subject)PQTX_SUBJECT;
    describe(PQTX_SUBJECT_KEYED, "ctr", NULL, NULL, NULL);
    schema.tables = NULL;
    assert_misuse();
    schema.table_count = 0;
    schema.old_ms = -1;
    assert_misuse();
    schema.old_ms = 0;
    schema.size = 0;
    assert_misuse();
    schema.size = sizeof schema;
    findings[0].size = 0;
    assert_misuse();
    ck_assert_int_eq(pqtx_check_schema(pool, NULL, NULL, NULL, 1, NULL, NULL, NULL), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_check_schema(NULL, NULL, NULL, NULL, 0, NULL, NULL, NULL), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_check_schema(pool, NULL, NULL, NULL, 0, NULL, NULL, NULL), PQTX_OK);
}
END_TEST

/* Nothing of the database's own is called: what a table's owner wrote is not run by who checks it.
 */
START_TEST(no_function_of_the_database_is_called)
{
    sql(session,
        "CREATE TABLE called (n int); CREATE FUNCTION trap(bigint) RETURNS bool LANGUAGE plpgsql"
        " IMMUTABLE AS 'BEGIN INSERT INTO called VALUES (1); RETURN true; END';"
        "CREATE FUNCTION never(text, text) RETURNS bool LANGUAGE sql AS 'SELECT false';"
        "CREATE OPERATOR = (LEFTARG = text, RIGHTARG = text, FUNCTION = never);"
        "CREATE TABLE ctr (name text PRIMARY KEY, value bigint CHECK (trap(value)))");
    sql(session, "ALTER TABLE ctr ALTER value SET NOT NULL");
    describe(PQTX_SUBJECT_STOCK, "ctr", "name", "value", NULL);
    ck_assert_str_eq(assert_found(PQTX_FIND_NO_LOWER_BOUND)->object, HERE ".ctr");
    ck_assert_int_eq(ask_int(session, "SELECT count(*) FROM called"), 0);
    ck_assert_int_eq(count(PQTX_FIND_KEY_NOT_UNIQUE), 0);
}
END_TEST

/* A name can hold anything, and is not to reach a terminal, or be half of a statement. */
START_TEST(a_statement_that_cannot_be_shown_in_full_is_left_out)
{
    sql(session, "CREATE TABLE \"a\x1b[1mb\" (name text NOT NULL, value bigint)");
    describe(PQTX_SUBJECT_COUNTER, "a\x1b[1mb", "name", "value", NULL);
    const pqtx_finding *finding = assert_found(PQTX_FIND_KEY_NOT_UNIQUE);
    ck_assert_str_eq(finding->object, HERE ".\"a?[1mb\"");
    ck_assert_str_eq(finding->mend, "");
    sql(session, "DO $$ BEGIN EXECUTE format('CREATE TABLE ctr (value bigint, %s)', (SELECT"
                 " string_agg(repeat('x', 60) || g || ' int NOT NULL', ',')"
                 " FROM generate_series(1, 9) AS g)); END $$");
    char key[1024];
    snprintf(key, sizeof key, "%s",
             ask(session, "SELECT string_agg(repeat('x', 60) || g, ',') FROM generate_series(1, 9)"
                          " AS g"));
    describe(PQTX_SUBJECT_COUNTER, "ctr", key, "value", NULL);
    ck_assert_str_eq(assert_found(PQTX_FIND_KEY_NOT_UNIQUE)->mend, "");
}
END_TEST

START_TEST(every_code_and_severity_has_a_name)
{
    for (int code = PQTX_FIND_NONE; code <= PQTX_FIND_NOT_SEEN; code++) {
        ck_assert_str_ne(pqtx_finding_name((pqtx_finding_code)code), "unknown");
        for (int other = 0; other < code; other++)
            ck_assert_str_ne(pqtx_finding_name((pqtx_finding_code)code),
                             pqtx_finding_name((pqtx_finding_code)other));
    }
    ck_assert_str_eq(pqtx_finding_name(PQTX_FIND_NOT_SEEN), "not_seen");
    ck_assert_str_eq(pqtx_finding_name(PQTX_FIND_NO_EXCLUSION), "no_exclusion");
    ck_assert_str_eq(pqtx_finding_name((pqtx_finding_code)20), "unknown");
    ck_assert_str_eq(pqtx_finding_name((pqtx_finding_code)-1), "unknown");
    ck_assert_str_eq(pqtx_severity_name(PQTX_SEVERITY_ERROR), "error");
    ck_assert_str_eq(pqtx_severity_name((pqtx_severity)4), "unknown");
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("live_schema");
    TCase *c = tcase_create("schema");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_set_timeout(c, 60);
    tcase_add_test(c, a_table_that_is_right_has_no_findings);
    tcase_add_test(c, a_table_or_column_that_is_not_there_is_found);
    tcase_add_test(c, a_key_without_a_unique_index_is_found);
    tcase_add_test(c, an_index_that_does_not_keep_the_key_unique_does_not_count);
    tcase_add_test(c, a_partitioned_table_is_mended_without_concurrently);
    tcase_add_test(c, a_key_that_can_be_null_is_found);
    tcase_add_test(c, the_librarys_own_table_is_known_by_its_name);
    tcase_add_test(c, a_stock_without_a_lower_bound_is_found);
    tcase_add_test(c, a_lower_bound_is_recognised_as_the_server_writes_it);
    tcase_add_test(c, an_index_over_the_value_is_found);
    tcase_add_test(c, a_narrow_counter_is_found);
    tcase_add_test(c, full_pages_are_found);
    tcase_add_test(c, a_trigger_is_found);
    tcase_add_test(c, a_queue_without_its_index_is_found);
    tcase_add_test(c, an_indexed_lease_is_found);
    tcase_add_test(c, intervals_that_may_overlap_are_found);
    tcase_add_test(c, intervals_without_a_key_need_no_extension);
    tcase_add_test(c, an_immutable_function_that_reads_tables_is_found);
    tcase_add_test(c, of_a_function_with_a_parsed_body_the_dependencies_count);
    tcase_add_test(c, a_volatile_function_that_only_reads_is_found);
    tcase_add_test(c, functions_of_other_schemas_are_left_out_when_one_is_named);
    tcase_add_test(c, a_lock_timeout_set_for_others_is_found);
    tcase_add_test(c, the_session_with_the_oldest_snapshot_is_found);
    tcase_add_test(c, a_session_idle_in_its_transaction_is_found);
    tcase_add_test(c, a_prepared_transaction_is_found);
    tcase_add_test(c, a_replication_slot_that_nobody_reads_is_found);
    tcase_add_test(c, a_role_without_privileges_is_told_what_it_is_not_shown);
    tcase_add_test(c, what_does_not_fit_is_the_least_severe);
    tcase_add_test(c, wrong_arguments_are_misuse);
    tcase_add_test(c, no_function_of_the_database_is_called);
    tcase_add_test(c, a_statement_that_cannot_be_shown_in_full_is_left_out);
    tcase_add_test(c, every_code_and_severity_has_a_name);
    suite_add_tcase(s, c);
    return s;
}

int main(void)
{
    return run_suite(suite());
}
