/* check_guard.c: the text of a statement that fails on the server if its rows are too many or too
 * few, and its error. */
#include "guard.h"
#include "support.h"
#include "support_random.h"
#include "support_reply.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (int)(sizeof(array) / sizeof((array)[0]))

#define BEFORE    "WITH pqtx_q AS ("
#define BARE      "\nRETURNING 1) SELECT FROM (SELECT "
#define RETURNING "\n) SELECT pqtx_q.* FROM (SELECT "

static const struct pqtx__rule one = {PQTX__COUNT_EXACT, 1}, none = {PQTX__COUNT_EXACT, 0},
                               at_most_one = {PQTX__COUNT_AT_MOST, 1};

static int32_t shift;

/* With its guard, in a buffer of exactly its size, so that a byte too many is seen.  The caller's
 * to free. */
static char *guarded(const char *sql, struct pqtx__rule rule)
{
    size_t len = pqtx__guard_write(NULL, 0, sql, pqtx__statement_kind(sql), rule, &shift);
    char *text = malloc(len + 1);
    ck_assert_ptr_nonnull(text);
    ck_assert_uint_eq(
        pqtx__guard_write(text, len + 1, sql, pqtx__statement_kind(sql), rule, &shift), len);
    ck_assert_uint_eq(strlen(text), len);
    return text;
}

static void assert_written(const char *sql, struct pqtx__rule rule, const char *expected)
{
    char *text = guarded(sql, rule);
    ck_assert_str_eq(text, expected);
    free(text);
}

/* ---- Which statements */

START_TEST(what_can_be_counted_in_a_with_query_fits)
{
    static const char *const fit[] = {
        "UPDATE t SET a = 1",
        "insert into t values (1)",
        "Delete From t",
        "SELECT 1",
        "VALUES (1), (2)",
        "TABLE t",
        " \n;;UPDATE t SET a = 1;",
        "/* a */ -- b\n /* /* c */ */ UPDATE t SET a = 1",
        "-- MERGE\nDELETE FROM t",
        "SELECT(1)",
        "VALUES(1)",
        "TABLE\"t\"",
        "UPDATE/**/t SET a = 1",
    };
    for (int i = 0; i < COUNT(fit); i++)
        ck_assert_msg(pqtx__guard_fits(pqtx__statement_kind(fit[i])), "does not fit: %s", fit[i]);
}
END_TEST

START_TEST(what_cannot_stand_in_a_with_query_does_not_fit)
{
    static const char *const unfit[] = {
        "",
        " ",
        ";",
        "-- UPDATE t SET a = 1",
        "/* SELECT 1",
        "WITH a AS (SELECT 1) SELECT * FROM a",
        "MERGE INTO t USING u ON true WHEN MATCHED THEN DELETE",
        "CALL p()",
        "SHOW search_path",
        "EXPLAIN SELECT 1",
        "(SELECT 1)",
        "EXECUTE p",
        "FETCH c",
        "SET LOCAL work_mem = '1MB'",
        "TRUNCATE t",
        "DO ''",
        "COMMIT",
        "COPY t TO STDOUT",
        "PREPARE p AS SELECT 1",
        "SELECTED",
        "UPDATE_ t",
        "\"SELECT\" 1",
    };
    for (int i = 0; i < COUNT(unfit); i++)
        ck_assert_msg(!pqtx__guard_fits(pqtx__statement_kind(unfit[i])), "fits: %s", unfit[i]);
}
END_TEST

/* ---- The text, by the word */

START_TEST(a_write_is_counted_by_a_returning_clause_of_our_own)
{
    assert_written("UPDATE t SET a = $1 WHERE id = $2", one,
                   "WITH pqtx_q AS (UPDATE t SET a = $1 WHERE id = $2"
                   "\nRETURNING 1) SELECT FROM (SELECT pg_catalog.count(*) AS n FROM pqtx_q) AS g"
                   " WHERE CASE WHEN g.n OPERATOR(pg_catalog.=) 1 THEN false ELSE"
                   " pg_catalog.concat('pqtx_guard:', g.n)::pg_catalog.pg_lsn IS NULL END");
}
END_TEST

START_TEST(rows_that_come_back_are_looked_at_even_where_there_is_none)
{
    assert_written("SELECT 7", one,
                   "WITH pqtx_q AS (SELECT 7"
                   "\n) SELECT pqtx_q.* FROM (SELECT CASE WHEN pg_catalog.count(*)"
                   " OPERATOR(pg_catalog.=) 1 THEN true ELSE"
                   " pg_catalog.concat('pqtx_guard:', pg_catalog.count(*))::pg_catalog.pg_lsn"
                   " IS NULL END AS ok FROM pqtx_q) AS g LEFT JOIN pqtx_q ON g.ok");
}
END_TEST

static void assert_rule(struct pqtx__rule rule, const char *compare, const char *join)
{
    char *bare = guarded("DELETE FROM t", rule);
    char *returning = guarded("DELETE FROM t RETURNING a", rule);
    ck_assert_msg(strstr(bare, compare), "%s\nhas no %s", bare, compare);
    ck_assert_msg(strstr(returning, compare), "%s\nhas no %s", returning, compare);
    ck_assert_msg(strstr(returning, join), "%s\nhas no %s", returning, join);
    free(bare);
    free(returning);
}

/* Where no row is right, an outer join would make one up. */
START_TEST(the_rule_is_what_the_count_is_compared_with)
{
    static const int64_t numbers[] = {2, 9, 10, 4711, INT32_MAX, INT64_MAX - 1};
    assert_rule(none, "OPERATOR(pg_catalog.=) 0 THEN", " INNER JOIN ");
    assert_rule(one, "OPERATOR(pg_catalog.=) 1 THEN", " LEFT JOIN ");
    assert_rule((struct pqtx__rule){PQTX__COUNT_EXACT, INT64_MAX},
                "OPERATOR(pg_catalog.=) 9223372036854775807 THEN", " LEFT JOIN ");
    assert_rule((struct pqtx__rule){PQTX__COUNT_AT_MOST, 0}, "OPERATOR(pg_catalog.<=) 0 THEN",
                " INNER JOIN ");
    assert_rule(at_most_one, "OPERATOR(pg_catalog.<=) 1 THEN", " INNER JOIN ");
    for (int i = 0; i < COUNT(numbers); i++) {
        char compare[64];
        snprintf(compare, sizeof compare, "OPERATOR(pg_catalog.=) %lld THEN",
                 (long long)numbers[i]);
        assert_rule((struct pqtx__rule){PQTX__COUNT_EXACT, numbers[i]}, compare, " LEFT JOIN ");
    }
}
END_TEST

/* ---- What is the caller's, and whether it returns rows */

/* `core` is what of it must stand in the WITH query; NULL for all of it. */
static const struct shape {
    const char *sql, *core;
    bool returns;
} shapes[] = {
    {"UPDATE t SET a = 1", NULL, false},
    {"INSERT INTO t VALUES (1)", NULL, false},
    {"DELETE FROM t", NULL, false},
    {"UPDATE t SET a = 1 RETURNING a", NULL, true},
    {"INSERT INTO t VALUES (1) RETURNING *", NULL, true},
    {"DELETE FROM t RETURNING (a)", NULL, true},
    {"SELECT 1", NULL, true},
    {"VALUES (1)", NULL, true},
    {"TABLE t", NULL, true},
    {"update t set a = 1 returning a", NULL, true},
    {"UPDATE t SET a = 1 ReTuRnInG a", NULL, true},
    {"UPDATE t SET a = 1\nRETURNING\na", NULL, true},
    {"UPDATE t SET a = (1)RETURNING(a)", NULL, true},
    {"UPDATE t SET a = 'b'RETURNING a", NULL, true},
    {"UPDATE t SET a = 1/**/RETURNING/**/a", NULL, true},
    {"UPDATE t SET a = 1--\nRETURNING a", NULL, true},

    /* around it */
    {" \t\r\n\f\vUPDATE t SET a = 1", "UPDATE t SET a = 1", false},
    {";; ;UPDATE t SET a = 1", "UPDATE t SET a = 1", false},
    {"UPDATE t SET a = 1;", "UPDATE t SET a = 1", false},
    {"UPDATE t SET a = 1 ; ;\n;", "UPDATE t SET a = 1 ", false},
    {"UPDATE t SET a = 1; -- ;", "UPDATE t SET a = 1", false},
    {"UPDATE t SET a = 1 RETURNING a; /* RETURNING */", "UPDATE t SET a = 1 RETURNING a", true},
    {"/* a ; b */ UPDATE t SET a = 1", NULL, false},
    {"/* a */; -- b ;\n ; -- c\nUPDATE t SET a = 1", "-- c\nUPDATE t SET a = 1", false},
    {"UPDATE t SET a = 1; DELETE FROM u", NULL, false}, /* the server will say so */
    {"UPDATE t SET a = 1 RETURNING a; SELECT 1", NULL, true},
    {"-- a ; b\nUPDATE t SET a = 1", NULL, false},
    {"/* RETURNING */ UPDATE t SET a = 1", NULL, false},
    {"-- RETURNING\nUPDATE t SET a = 1", NULL, false},
    {"UPDATE t SET a = 1 -- the end", NULL, false},
    {"UPDATE t SET a = 1 -- the end; RETURNING a", NULL, false},
    {"UPDATE t SET a = 1 /* the end; RETURNING a */", NULL, false},
    {"UPDATE t SET a = 1 /* /* ; */ RETURNING ; */", NULL, false},
    {"SELECT 1 -- the end;", NULL, true},

    /* quoted */
    {"UPDATE t SET a = 'x RETURNING y'", NULL, false},
    {"UPDATE t SET a = 'x ; y'", NULL, false},
    {"UPDATE t SET a = 'it''s ; RETURNING ''; '", NULL, false},
    {"UPDATE t SET a = '(' RETURNING a", NULL, true},
    {"UPDATE t SET a = ')' RETURNING a", NULL, true},
    {"UPDATE t SET a = '/*' RETURNING a --'*/", NULL, true},
    {"UPDATE t SET a = '--' RETURNING a", NULL, true},
    {"UPDATE t SET a = '\\' RETURNING a", NULL, true},
    {"UPDATE t SET a = E'\\' RETURNING ;'", NULL, false},
    {"UPDATE t SET a = e'\\' ; ' RETURNING a", NULL, true},
    {"UPDATE t SET a = E'\\\\' RETURNING a", NULL, true},
    {"UPDATE t SET a = E'\\\\'; -- '", "UPDATE t SET a = E'\\\\'", false},
    {"UPDATE t SET a = E'''\\'' RETURNING a", NULL, true},
    {"UPDATE t SET a = E'b''\\'; ' RETURNING a", NULL, true},
    {"UPDATE t SET a = U&'\\0041' RETURNING a", NULL, true},
    {"UPDATE t SET a = te'\\' RETURNING a", NULL, true},
    {"UPDATE t SET a = $$ RETURNING ; $$", NULL, false},
    {"UPDATE t SET a = $x$ RETURNING ; $$ ; $y$ $x$", NULL, false},
    {"UPDATE t SET a = $x$ ' $x$ RETURNING a", NULL, true},
    {"UPDATE t SET a = $\xc3\xa9$ RETURNING ; $\xc3\xa9$", NULL, false},
    {"UPDATE t SET a = $$ ( $$ RETURNING a", NULL, true},
    {"UPDATE t SET a = $1 WHERE b = $2 RETURNING a", NULL, true},
    {"UPDATE t SET a = $1||$2;", "UPDATE t SET a = $1||$2", false},
    {"UPDATE t SET a$ = 1, b$ = 2 RETURNING a$", NULL, true},
    {"UPDATE t SET a$x$ = 1; -- $x$", "UPDATE t SET a$x$ = 1", false},
    {"UPDATE t SET \"returning\" = 1", NULL, false},
    {"UPDATE t SET \"RETURNING\" = 1 WHERE \"a;b\" = 2", NULL, false},
    {"UPDATE t SET \"a\"\" RETURNING ;\" = 1", NULL, false},
    {"UPDATE t SET \"(\" = 1 RETURNING \")\"", NULL, true},

    /* not the word, or not its place */
    {"UPDATE t SET returning_at = 1", NULL, false},
    {"UPDATE t SET returning1 = 1, returning$ = 2", NULL, false},
    {"UPDATE t SET _returning = 1, a_returning = 2", NULL, false},
    {"UPDATE t SET returning\xc3\xa9 = 1, \xc3\xa9returning = 2", NULL, false},
    {"UPDATE t SET a = (SELECT json_value(b, '$' RETURNING int) FROM u)", NULL, false},
    {"UPDATE t SET a = f((1), (2)) RETURNING g((a))", NULL, true},
    {"UPDATE t SET a = json_value(b, '$' RETURNING int) RETURNING a", NULL, true},
    {"UPDATE t SET a = 1 RETURNIN a", NULL, false},
    {"UPDATE t SET a = 1 RETU", NULL, false},

    /* without an end: the server will say so */
    {"UPDATE t SET a = ' RETURNING ;", NULL, false},
    {"UPDATE t SET a = E'\\", NULL, false},
    {"UPDATE t SET a = \" ; RETURNING", NULL, false},
    {"UPDATE t SET a = $x$ ; RETURNING $x", NULL, false},
    {"UPDATE t SET a = 1 /* ; RETURNING", NULL, false},
    {"UPDATE t SET a = (1 RETURNING a", NULL, false},
};

START_TEST(the_callers_text_stands_inside_as_it_is)
{
    const struct shape *shape = &shapes[_i];
    const char *core = shape->core ? shape->core : shape->sql;
    const char *after = shape->returns ? RETURNING : BARE;
    char *text = guarded(shape->sql, one);
    size_t len = strlen(core);
    ck_assert_msg(strncmp(text, BEFORE, sizeof BEFORE - 1) == 0, "%s", text);
    ck_assert_msg(strncmp(text + sizeof BEFORE - 1, core, len) == 0, "%s\nis not in\n%s", core,
                  text);
    ck_assert_msg(strncmp(text + sizeof BEFORE - 1 + len, after, strlen(after)) == 0,
                  "behind %s there should be %s, in\n%s", core, after, text);
    free(text);
}
END_TEST

/* An error's position in the text, less the shift, is its position in the caller's. */
START_TEST(the_shift_leads_back_to_the_callers_text)
{
    const struct shape *shape = &shapes[_i];
    const char *core = shape->core ? shape->core : shape->sql;
    char *text = guarded(shape->sql, one);
    for (size_t at = 0; core[at]; at++) {
        size_t place = sizeof BEFORE - 1 + at;
        ck_assert_int_eq(text[place], shape->sql[(int32_t)place - shift]);
    }
    free(text);
}
END_TEST

START_TEST(no_buffer_is_written_past_its_end)
{
    const struct shape *shape = &shapes[_i];
    char *whole = guarded(shape->sql, at_most_one);
    size_t len = strlen(whole);
    for (size_t size = 0; size <= len + 2; size++) {
        char *buffer = malloc(size + (size == 0)); /* so that a sanitizer sees it */
        ck_assert_ptr_nonnull(buffer);
        memset(buffer, '#', size + (size == 0));
        ck_assert_uint_eq(pqtx__guard_write(buffer, size, shape->sql,
                                            pqtx__statement_kind(shape->sql), at_most_one, &shift),
                          len);
        if (size == 0)
            ck_assert_int_eq(buffer[0], '#');
        else if (size <= len)
            ck_assert_int_eq(buffer[size - 1], '\0');
        else
            ck_assert_str_eq(buffer, whole);
        free(buffer);
    }
    free(whole);
}
END_TEST

START_TEST(no_text_leads_past_its_end)
{
    start_random();
    for (int i = 0; i < 20000; i++) {
        size_t len = random_below(40);
        char *sql = malloc(len + 1);
        ck_assert_ptr_nonnull(sql);
        for (size_t at = 0; at < len; at++)
            sql[at] = random_of("//**--;\n\r'\"$$EeRrTU\\_()a1 \x80\xff");
        sql[len] = '\0';
        free(guarded(sql, one));
        pqtx__guard_fits(pqtx__statement_kind(sql));
        free(sql);
    }
}
END_TEST

/* ---- Its error */

#define LSN(text) "invalid input syntax for type pg_lsn: \"" text "\""

static bool read_error(const char *sqlstate, const char *function, const char *message,
                       int64_t *code)
{
    struct field fields[6] = {{'S', "ERROR"}};
    int n = 1;
    if (sqlstate)
        fields[n++] = (struct field){PG_DIAG_SQLSTATE, sqlstate};
    if (message)
        fields[n++] = (struct field){PG_DIAG_MESSAGE_PRIMARY, message};
    if (function)
        fields[n++] = (struct field){PG_DIAG_SOURCE_FUNCTION, function};
    PGresult *result = result_of_error(fields);
    int64_t value;
    bool is_guard = pqtx__guard_read(result, code, &value);
    PQclear(result);
    return is_guard;
}

static void assert_code(const char *message, int64_t expected)
{
    int64_t code = 42;
    ck_assert_msg(read_error("22P02", "pg_lsn_in", message, &code), "not seen: %s", message);
    ck_assert_int_eq(code, expected);
}

START_TEST(a_guard_tells_its_number_in_any_language)
{
    assert_code(LSN("pqtx_guard:0"), 0);
    assert_code(LSN("pqtx_guard:1"), 1);
    assert_code(LSN("pqtx_guard:2"), 2);
    assert_code(LSN("pqtx_guard:-3"), -3);
    assert_code(LSN("pqtx_guard:9223372036854775807"), INT64_MAX);
    assert_code(
        "ung\xc3\xbcltige Eingabesyntax f\xc3\xbcr Typ pg_lsn: \xc2\xbbpqtx_guard:12\xc2\xab", 12);
    assert_code("\xe5\x9e\x8bpg_lsn\xe3\x81\xae\"pqtx_guard:7\"", 7);
}
END_TEST

START_TEST(newer_servers_raise_it_in_another_function)
{
    int64_t code = 42;
    ck_assert(read_error("22P02", "pg_lsn_in_safe", LSN("pqtx_guard:2"), &code));
    ck_assert_int_eq(code, 2);
}
END_TEST

START_TEST(no_other_error_is_taken_for_a_guards)
{
    static const struct {
        const char *sqlstate, *function, *message;
    } others[] = {
        {"22P02", "pg_lsn_in", LSN("x")},
        {"22P02", "pg_lsn_in", LSN("pqtx_guard")},
        {"22P02", "pg_lsn_in", LSN("PQTX_GUARD:1")},
        {"22P02", "pg_lsn_in", ""},
        {"22P02", "pg_lsn_in", NULL},
        {"22P02", "pg_strtoint32", "invalid input syntax for type integer: \"pqtx_guard:1\""},
        {"22P02", "pg_lsn", LSN("pqtx_guard:1")},
        {"22P02", NULL, LSN("pqtx_guard:1")}, /* a pooler's, or a RAISE that says so */
        {"22P02", "exec_stmt_raise", LSN("pqtx_guard:1")},
        {"P0001", "pg_lsn_in", LSN("pqtx_guard:1")},
        {"22P03", "pg_lsn_in", LSN("pqtx_guard:1")},
        {NULL, "pg_lsn_in", LSN("pqtx_guard:1")},
    };
    for (int i = 0; i < COUNT(others); i++) {
        int64_t code = 42;
        bool is_guard =
            read_error(others[i].sqlstate, others[i].function, others[i].message, &code);
        ck_assert_msg(!is_guard, "%d: taken for a guard's", i);
        ck_assert_int_eq(code, 42);
    }
}
END_TEST

START_TEST(no_answer_is_no_guards_error)
{
    int64_t code = 42, value;
    PGresult *empty = PQmakeEmptyPGresult(NULL, PGRES_FATAL_ERROR);
    PGresult *rows = PQmakeEmptyPGresult(NULL, PGRES_TUPLES_OK);
    ck_assert(!pqtx__guard_read(NULL, &code, &value));
    ck_assert(!pqtx__guard_read(empty, &code, &value));
    ck_assert(!pqtx__guard_read(rows, &code, &value));
    ck_assert_int_eq(code, 42);
    PQclear(empty);
    PQclear(rows);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("guard");
    TCase *tcase = tcase_create("text");
    tcase_add_test(tcase, what_can_be_counted_in_a_with_query_fits);
    tcase_add_test(tcase, what_cannot_stand_in_a_with_query_does_not_fit);
    tcase_add_test(tcase, a_write_is_counted_by_a_returning_clause_of_our_own);
    tcase_add_test(tcase, rows_that_come_back_are_looked_at_even_where_there_is_none);
    tcase_add_test(tcase, the_rule_is_what_the_count_is_compared_with);
    tcase_add_loop_test(tcase, the_callers_text_stands_inside_as_it_is, 0, COUNT(shapes));
    tcase_add_loop_test(tcase, the_shift_leads_back_to_the_callers_text, 0, COUNT(shapes));
    tcase_add_loop_test(tcase, no_buffer_is_written_past_its_end, 0, COUNT(shapes));
    tcase_add_test(tcase, no_text_leads_past_its_end);
    suite_add_tcase(suite, tcase);

    tcase = tcase_create("error");
    tcase_add_test(tcase, a_guard_tells_its_number_in_any_language);
    tcase_add_test(tcase, newer_servers_raise_it_in_another_function);
    tcase_add_test(tcase, no_other_error_is_taken_for_a_guards);
    tcase_add_test(tcase, no_answer_is_no_guards_error);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
