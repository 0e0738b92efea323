/* check_statement.c: the runner's own words are kept out of a body, and no others are; what a
 * statement is, where it ends, and whether rows come back. */
#include "statement.h"
#include "support.h"
#include "support_random.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (int)(sizeof(array) / sizeof((array)[0]))

static const char *const refused[] = {
    "BEGIN",
    "begin",
    "Begin;",
    "bEgIn ISOLATION LEVEL SERIALIZABLE",
    "START TRANSACTION",
    "start transaction read only",
    "COMMIT",
    "commit",
    "cOMMIT;",
    "COMMIT AND CHAIN",
    "COMMIT PREPARED 'x'",
    "END",
    "end transaction",
    "ROLLBACK",
    "Rollback work",
    "ROLLBACK TO SAVEPOINT a",
    "ROLLBACK PREPARED 'x'",
    "ABORT",
    "abort",
    "SAVEPOINT a",
    "savepoint\"a\"",
    "RELEASE a",
    "Release Savepoint a",
    "COPY t TO STDOUT",
    "copy(SELECT 1) TO STDOUT",
    "Copy t FROM STDIN",
    "PREPARE TRANSACTION 'x'",
    "prepare transaction'x'",
    "Prepare\n\tTransaction 'x'",
    "PREPARE/* x */TRANSACTION 'x'",
    "PREPARE -- x\n /* y /* z */ */ TRANSACTION 'x'",
    " COMMIT",
    "\t\n\r\f\vCOMMIT",
    ";COMMIT",
    " ; ;; COMMIT",
    "--\nCOMMIT",
    "-- SELECT 1\nCOMMIT",
    "-- SELECT 1\rCOMMIT",
    "-- SELECT 1\r\nCOMMIT",
    "--x\n--y\n;--z\nCOMMIT",
    "-- /* \nCOMMIT",
    "/**/COMMIT",
    "/***/COMMIT",
    "/* SELECT 1 */COMMIT",
    "/* SELECT 1 **/ COMMIT",
    "/* -- */ COMMIT",
    "/* -- \n */ COMMIT",
    "/* a /* b */ c */ COMMIT",
    "/*/**//**/*/COMMIT",
    "/*/*/ */ */ COMMIT",
    "/* ' */ COMMIT /* ' */",
    "/* \" */ COMMIT",
    "/**/ -- \n ; /* \n */ COMMIT",
    "COMMIT/**/",
    "COMMIT--",
    "COMMIT\n",
    "COMMIT'",
    "COMMIT(",
};

static const char *const allowed[] = {
    "",
    " ",
    ";",
    ";;;",
    "\n",
    "--",
    "-- COMMIT",
    "--COMMIT;",
    "/*",
    "/* ",
    "/**",
    "/*/",
    "/* COMMIT",
    "/* COMMIT */",
    "/*/ COMMIT",
    "/* /* */ COMMIT",
    "/* /* */ COMMIT */",
    "/* COMMIT */ SELECT 1",
    "-- COMMIT\nSELECT 1",
    "SELECT 1",
    "SELECT 1; COMMIT", /* the server takes one statement at a time */
    "INSERT INTO t VALUES ('COMMIT')",
    "UPDATE t SET a = $1 WHERE b = $2",
    "WITH a AS (SELECT 1) SELECT * FROM a",
    "(SELECT 1)",
    "SET LOCAL work_mem = '1MB'",
    "LOCK TABLE t IN SHARE MODE",
    "PREPARE x AS SELECT 1",
    "PREPARE transactions AS SELECT 1",
    "PREPARE transaction_log AS SELECT 1",
    "PREPARE \"TRANSACTION\" AS SELECT 1",
    "PREPARE",
    "PREPARE ",
    "PREPARED TRANSACTION",
    "PREPARETRANSACTION",
    "PREPARE_TRANSACTION",
    "beginning",
    "BEGINS",
    "starting",
    "start_log",
    "committed",
    "commit_log",
    "COMMIT1",
    "COMMIT$1",
    "COMMIT\xc3\xa9", /* the letter goes on */
    "C",
    "COMM",
    "COMMI",
    "_COMMIT",
    "1COMMIT",
    "\\COMMIT",
    "/ COMMIT",
    "- COMMIT",
    "-",
    "/",
    "*/ COMMIT",
    "endpoint",
    "END2",
    "rollbacks",
    "aborted",
    "savepoints",
    "released",
    "copyright",
    "copy_of",
    "\"COMMIT\"",
    "'COMMIT'",
    "$$COMMIT$$",
    "\xef\xbb\277COMMIT", /* no blank to the server either */
    "C\xcc\xa7OMMIT",
};

static const char *fault(const char *sql)
{
    return pqtx__statement_fault(sql, pqtx__statement_kind(sql));
}

START_TEST(the_runners_own_words_are_refused)
{
    ck_assert_msg(fault(refused[_i]), "let through: %s", refused[_i]);
}
END_TEST

START_TEST(all_other_statements_are_let_through)
{
    const char *why = fault(allowed[_i]);
    ck_assert_msg(!why, "refused: %s\n%s", allowed[_i], why);
}
END_TEST

START_TEST(a_refusal_says_what_to_call_instead)
{
    ck_assert_ptr_nonnull(strstr(fault("COMMIT"), "pqtx_commit()"));
    ck_assert_ptr_nonnull(strstr(fault("ROLLBACK"), "pqtx_fail()"));
    ck_assert_ptr_nonnull(strstr(fault("SAVEPOINT a"), "pqtx_savepoint()"));
    ck_assert_ptr_nonnull(strstr(fault("COPY t TO STDOUT"), "COPY"));
}
END_TEST

START_TEST(deeply_nested_comments_come_to_an_end)
{
    enum { DEPTH = 100000 };
    char *sql = calloc(1, 4 * DEPTH + sizeof "COMMIT");
    ck_assert_ptr_nonnull(sql);
    for (int i = 0; i < DEPTH; i++) {
        memcpy(sql + 2 * i, "/*", 2);
        memcpy(sql + 2 * DEPTH + 2 * i, "*/", 2);
    }
    strcpy(sql + 4 * DEPTH, "COMMIT");
    ck_assert_ptr_nonnull(fault(sql));
    ck_assert_ptr_null(fault(sql + 2));
    sql[2 * DEPTH] = ' '; /* "* /": one comment stays open */
    ck_assert_ptr_null(fault(sql));
    free(sql);
}
END_TEST

/* ---- What a statement is */

static const struct kind {
    const char *sql;
    enum pqtx__kind kind;
} kinds[] = {
    {"SELECT 1", PQTX__KIND_READ},
    {"values (1)", PQTX__KIND_READ},
    {"Table t", PQTX__KIND_READ},
    {"INSERT INTO t VALUES (1)", PQTX__KIND_WRITE},
    {"update t set a = 1", PQTX__KIND_WRITE},
    {"DELETE FROM t", PQTX__KIND_WRITE},
    {"WITH a AS (SELECT 1) TABLE a", PQTX__KIND_PLAIN},
    {"merge INTO t USING u ON a = b WHEN MATCHED THEN DELETE", PQTX__KIND_PLAIN},
    {"CALL p()", PQTX__KIND_CALL},
    {"BEGIN", PQTX__KIND_RUNNER},
    {"START TRANSACTION", PQTX__KIND_RUNNER},
    {"COMMIT", PQTX__KIND_RUNNER},
    {"END", PQTX__KIND_RUNNER},
    {"ROLLBACK", PQTX__KIND_RUNNER},
    {"ABORT", PQTX__KIND_RUNNER},
    {"SAVEPOINT a", PQTX__KIND_RUNNER},
    {"RELEASE a", PQTX__KIND_RUNNER},
    {"PREPARE a AS SELECT 1", PQTX__KIND_PREPARE},
    {"PREPARE TRANSACTION 'a'", PQTX__KIND_PREPARE},
    {"COPY t TO STDOUT", PQTX__KIND_COPY},
    {"", PQTX__KIND_OTHER},
    {";", PQTX__KIND_OTHER},
    {"-- SELECT", PQTX__KIND_OTHER},
    {"/* SELECT */", PQTX__KIND_OTHER},
    {"(SELECT 1)", PQTX__KIND_OTHER},
    {"SHOW a", PQTX__KIND_OTHER},
    {"SET LOCAL a = 1", PQTX__KIND_OTHER},
    {"EXPLAIN SELECT 1", PQTX__KIND_OTHER},
    {"EXECUTE a", PQTX__KIND_OTHER},
    {"FETCH a", PQTX__KIND_OTHER},
    {"DECLARE a CURSOR FOR SELECT 1", PQTX__KIND_OTHER},
    {"LOCK t", PQTX__KIND_OTHER},
    {"TRUNCATE t", PQTX__KIND_OTHER},
    {"CREATE TABLE t ()", PQTX__KIND_OTHER},
    {"VACUUM", PQTX__KIND_OTHER},
    {"DEALLOCATE ALL", PQTX__KIND_OTHER},
    {"DISCARD ALL", PQTX__KIND_OTHER},
    {"DO ''", PQTX__KIND_OTHER},
    {"LISTEN a", PQTX__KIND_OTHER},
    {"SELECTION", PQTX__KIND_OTHER},
    {"SELECT_ 1", PQTX__KIND_OTHER},
    {"UPDATE1", PQTX__KIND_OTHER},
    {"WITHOUT", PQTX__KIND_OTHER},
    {"CALLS", PQTX__KIND_OTHER},
    {"\"SELECT\" 1", PQTX__KIND_OTHER},
};

/* In front of the first word may stand what means nothing. */
START_TEST(the_first_word_tells_what_a_statement_is)
{
    static const char *const before[] = {
        "", " \t\n", ";; ", "-- UPDATE\n", "/* CALL */", "/* /* ; */ */--\r;"};
    for (int i = 0; i < COUNT(before); i++) {
        char sql[128];
        snprintf(sql, sizeof sql, "%s%s", before[i], kinds[_i].sql);
        ck_assert_msg(pqtx__statement_kind(sql) == kinds[_i].kind, "%d, expected %d: %s",
                      (int)pqtx__statement_kind(sql), (int)kinds[_i].kind, sql);
    }
}
END_TEST

/* CALL could commit by itself; what is not known might need a block, or must not have one. */
START_TEST(plain_statements_are_those_that_need_no_transaction_block)
{
    enum pqtx__kind kind = kinds[_i].kind;
    int plain = kind == PQTX__KIND_READ || kind == PQTX__KIND_WRITE || kind == PQTX__KIND_PLAIN;
    int reads = plain || kind == PQTX__KIND_CALL;
    ck_assert_msg(!pqtx__kind_is_plain(kind) == !plain, "%s", kinds[_i].sql);
    ck_assert_msg(!pqtx__statement_reads(kinds[_i].sql) == !reads, "%s", kinds[_i].sql);
}
END_TEST

/* ---- Where it ends, and whether rows come back */

/* What stands before the end. */
static const char *until_end(const char *sql)
{
    static char text[256];
    const char *end = pqtx__statement_end(sql);
    ck_assert_msg(end >= sql && end <= sql + strlen(sql), "%s", sql);
    ck_assert(*end == ';' || *end == '\0');
    snprintf(text, sizeof text, "%.*s", (int)(end - sql), sql);
    return text;
}

START_TEST(a_statement_ends_at_its_own_semicolon)
{
    static const char *const pairs[][2] = {
        {"", ""},
        {";", ""},
        {"SELECT 1", "SELECT 1"},
        {"SELECT 1;", "SELECT 1"},
        {"SELECT 1 ; SELECT 2;", "SELECT 1 "},
        {"SELECT ';'", "SELECT ';'"},
        {"SELECT ';';", "SELECT ';'"},
        {"SELECT ''';'; ", "SELECT ''';'"},
        {"SELECT '\\';'", "SELECT '\\'"},
        {"SELECT E'\\';'; ", "SELECT E'\\';'"},
        {"SELECT E'''\\';'; '", "SELECT E'''\\';'"},
        {"SELECT \"\"\";\";", "SELECT \"\"\";\""},
        {"SELECT e'\\\\'; '", "SELECT e'\\\\'"},
        {"SELECT \";\";", "SELECT \";\""},
        {"SELECT \"'\";'", "SELECT \"'\""},
        {"SELECT '\"';\"", "SELECT '\"'"},
        {"SELECT $$;$$;", "SELECT $$;$$"},
        {"SELECT $a$;$$;$b$;$a$;", "SELECT $a$;$$;$b$;$a$"},
        {"SELECT $a_1$;$a_1$;", "SELECT $a_1$;$a_1$"},
        {"SELECT $1;$2", "SELECT $1"},
        {"SELECT $1$;$1$", "SELECT $1$"},   /* no tag begins with a digit */
        {"SELECT a$b$;$b$", "SELECT a$b$"}, /* the dollar belongs to the name */
        {"SELECT 1 -- ;\n;", "SELECT 1 -- ;\n"},
        {"SELECT 1 -- ;\r;", "SELECT 1 -- ;\r"},
        {"SELECT 1 - - 1;", "SELECT 1 - - 1"},
        {"SELECT 1 /* ; */;", "SELECT 1 /* ; */"},
        {"SELECT 1 /* /* ; */ ; */;", "SELECT 1 /* /* ; */ ; */"},
        {"SELECT 1 / 1 * 1;", "SELECT 1 / 1 * 1"},
        {"SELECT (1;", "SELECT (1"},
        {"SELECT ';", "SELECT ';"},
        {"SELECT E';\\", "SELECT E';\\"},
        {"SELECT E';\\'", "SELECT E';\\'"},
        {"SELECT \";", "SELECT \";"},
        {"SELECT $a$;$a", "SELECT $a$;$a"},
        {"SELECT $;", "SELECT $"},
        {"SELECT $a;", "SELECT $a"},
        {"SELECT 1 /* ;", "SELECT 1 /* ;"},
        {"SELECT 1 -- ;", "SELECT 1 -- ;"},
        {"SELECT \xc3\xa9$$;$$;", "SELECT \xc3\xa9$$"},
        {"SELECT $\xc3\xa9$;$\xc3\xa9$;", "SELECT $\xc3\xa9$;$\xc3\xa9$"},
    };
    for (int i = 0; i < COUNT(pairs); i++)
        ck_assert_str_eq(until_end(pairs[i][0]), pairs[i][1]);
}
END_TEST

START_TEST(only_a_returning_clause_of_the_statement_itself_returns)
{
    static const char *const returning[] = {
        "UPDATE t SET a = 1 RETURNING a",
        "insert into t default values returning *",
        "DELETE FROM t\nReturning\ta",
        "UPDATE t SET a = (1)RETURNING(a)",
        "UPDATE t SET a = ')' RETURNING a",
        "UPDATE t SET a = (SELECT ')') RETURNING a",
        "UPDATE t SET a = '\\' RETURNING a",
        "UPDATE t SET a = E'\\'' RETURNING a",
        "UPDATE t SET a = $$'$$ RETURNING a",
        "UPDATE t SET a = \"'\" RETURNING a",
        "UPDATE t SET a = 1 /* ' */ RETURNING a",
        "UPDATE t SET a = 1 -- '\nRETURNING a",
        "; /* ( */ UPDATE t SET a = $1 RETURNING a",
        "UPDATE t SET a = 1 RETURNING",
    };
    static const char *const silent[] = {
        "",
        "UPDATE t SET a = 1",
        "UPDATE t SET a = (SELECT json_value(b, '$' RETURNING int))",
        "UPDATE t SET a = ' RETURNING a'",
        "UPDATE t SET a = E'\\' RETURNING a'",
        "UPDATE t SET a = $$ RETURNING a $$",
        "UPDATE t SET a = $b$ RETURNING $$ $b$",
        "UPDATE t SET \"returning\" = 1",
        "UPDATE t SET a = 1 -- RETURNING a",
        "UPDATE t SET a = 1 /* RETURNING a */",
        "/* RETURNING a */ UPDATE t SET a = 1",
        "-- RETURNING a\nUPDATE t SET a = 1",
        "UPDATE t SET returning_ = 1, _returning = 2, returning$ = 3, returning4 = 4",
        "UPDATE t SET returned = 1",
        "UPDATE t SET \xc3\xa9returning = 1, returning\xc3\xa9 = 2",
        "UPDATE t SET a = ( RETURNING a",
    };
    for (int i = 0; i < COUNT(returning); i++)
        ck_assert_msg(pqtx__statement_returns(returning[i]), "%s", returning[i]);
    for (int i = 0; i < COUNT(silent); i++)
        ck_assert_msg(!pqtx__statement_returns(silent[i]), "%s", silent[i]);
}
END_TEST

/* ---- Any text at all */

/* A copy of exactly its size, so that a look behind it is seen. */
static const char *fault_of(const char *sql)
{
    size_t size = strlen(sql) + 1;
    char *copy = malloc(size);
    ck_assert_ptr_nonnull(copy);
    memcpy(copy, sql, size);
    const char *why = fault(copy);
    pqtx__statement_returns(copy);
    until_end(copy);
    free(copy);
    return why;
}

static void append(char *sql, size_t size, const char *text)
{
    ck_assert_uint_lt(strlen(sql) + strlen(text), size);
    strcat(sql, text);
}

static void append_blanks(char *sql, size_t size)
{
    static const char *const blanks[] = {
        " ",
        "\n",
        "\t",
        ";",
        "--\n",
        "-- commit\r",
        "/**/",
        "/* /* ; */ commit */",
        "/* select '*/",
        "/*/**/*/",
    };
    for (size_t n = random_below(5); n > 0; n--)
        append(sql, size, blanks[random_below(sizeof blanks / sizeof blanks[0])]);
}

static void append_word(char *sql, size_t size, const char *word)
{
    char mixed[16] = "";
    for (size_t i = 0; word[i]; i++)
        mixed[i] = (char)(random_bits() & 1 ? toupper(word[i]) : tolower(word[i]));
    append(sql, size, mixed);
}

START_TEST(a_refused_word_is_found_in_any_spelling)
{
    static const char *const words[] = {"begin", "start",     "commit",  "end", "rollback",
                                        "abort", "savepoint", "release", "copy"};
    start_random();
    for (int i = 0; i < 3000; i++) {
        char sql[256] = "", tail[8] = "";
        append_blanks(sql, sizeof sql);
        append_word(sql, sizeof sql, words[random_below(sizeof words / sizeof words[0])]);
        ck_assert_msg(fault_of(sql), "let through: %s", sql);

        size_t len = strlen(sql);
        tail[0] = random_of(" \t\r\n;/-('\"+*.,");
        append(sql, sizeof sql, tail);
        ck_assert_msg(fault_of(sql), "let through: %s", sql);

        sql[len] = random_of("abyzABYZ0129_$\x80\xc3\xff");
        ck_assert_msg(!fault_of(sql), "refused: %s", sql);
    }
}
END_TEST

START_TEST(no_text_leads_past_its_end)
{
    start_random();
    for (int i = 0; i < 20000; i++) {
        char sql[32] = "";
        for (size_t n = random_below(sizeof sql); n > 0; n--)
            sql[n - 1] = random_of("//**--;\n\r cCoOmMiItTeEnNdDrRuUgG()\\\"''$$_1\x80\xff");
        fault_of(sql);
        pqtx__statement_locks(sql);
        pqtx__statement_has_from(sql);
        snprintf(sql, sizeof sql, "PREPARE%c%c%c%c", random_of(" /-"), random_of("/*-T"),
                 random_of("*/ "), random_of("*/T"));
        ck_assert_msg(!fault_of(sql), "refused: %s", sql);
    }
}
END_TEST

static const char *const locking[] = {
    "SELECT 1 FROM t FOR UPDATE",
    "select 1 from t for no key update",
    "SELECT 1 FROM t\nFOR--\nSHARE",
    "SELECT 1 FROM t FOR/**/KEY SHARE NOWAIT",
    "SELECT 1 FROM t FOR READ ONLY",
    "SELECT ')' AS for FROM t FOR UPDATE OF t",
    "SELECT \"a(\" FROM t LIMIT (1) FOR UPDATE",
};

static const char *const not_locking[] = {
    "SELECT 1 FROM t",
    "SELECT 1 AS for FROM t",
    "SELECT 1 AS \"FOR\" FROM t",
    "SELECT ' FOR UPDATE ' FROM t",
    "SELECT $a$ FOR UPDATE $a$ FROM t",
    "SELECT substring(a FROM 1 FOR 2) FROM t",
    "SELECT 1 FROM (SELECT * FROM t FOR UPDATE) AS t",
    "SELECT 1 FROM t -- FOR UPDATE",
    "/* FOR UPDATE */ SELECT 1 FROM t /* FOR UPDATE */",
    "SELECT forty, for_update FROM t",
    "SELECT 1 FROM t FOR",
    "",
};

START_TEST(a_locking_clause_is_seen)
{
    ck_assert_msg(pqtx__statement_locks(locking[_i]), "%s", locking[_i]);
}
END_TEST

START_TEST(what_only_looks_like_a_locking_clause_is_none)
{
    ck_assert_msg(!pqtx__statement_locks(not_locking[_i]), "%s", not_locking[_i]);
}
END_TEST

START_TEST(a_from_of_its_own_is_seen)
{
    ck_assert(pqtx__statement_has_from("SELECT 1 FROM t"));
    ck_assert(pqtx__statement_has_from("-- x\nselect(1)from t"));
    ck_assert(pqtx__statement_has_from("TABLE t"));
    ck_assert(!pqtx__statement_has_from("SELECT 1"));
    ck_assert(!pqtx__statement_has_from("SELECT extract(year FROM d), 'FROM', \"from\""));
    ck_assert(!pqtx__statement_has_from("SELECT (SELECT 1 FROM t) -- FROM"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("statement");
    TCase *tcase = tcase_create("statement");
    tcase_add_loop_test(tcase, the_runners_own_words_are_refused, 0, COUNT(refused));
    tcase_add_loop_test(tcase, all_other_statements_are_let_through, 0, COUNT(allowed));
    tcase_add_test(tcase, a_refusal_says_what_to_call_instead);
    tcase_add_test(tcase, deeply_nested_comments_come_to_an_end);
    tcase_add_loop_test(tcase, the_first_word_tells_what_a_statement_is, 0, COUNT(kinds));
    tcase_add_loop_test(tcase, plain_statements_are_those_that_need_no_transaction_block, 0,
                        COUNT(kinds));
    tcase_add_test(tcase, a_statement_ends_at_its_own_semicolon);
    tcase_add_test(tcase, only_a_returning_clause_of_the_statement_itself_returns);
    tcase_add_test(tcase, a_refused_word_is_found_in_any_spelling);
    tcase_add_test(tcase, no_text_leads_past_its_end);
    tcase_add_loop_test(tcase, a_locking_clause_is_seen, 0, COUNT(locking));
    tcase_add_loop_test(tcase, what_only_looks_like_a_locking_clause_is_none, 0,
                        COUNT(not_locking));
    tcase_add_test(tcase, a_from_of_its_own_is_seen);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
