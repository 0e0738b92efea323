/* check_status.c: what an SQLSTATE means, and what the predicates say of any number. */
#define _DEFAULT_SOURCE
#include "status.h"
#include "support.h"
#include "support_header.h"

#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (int)(sizeof(array) / sizeof((array)[0]))

static const struct expected {
    const char *sqlstate;
    pqtx_status status;
    pqtx_advice advice;
} expected[] = {
    {"00000", PQTX_OK, PQTX_ADVICE_NONE},
    {"01000", PQTX_OK, PQTX_ADVICE_NONE},
    {"01P01", PQTX_OK, PQTX_ADVICE_NONE},
    {"02000", PQTX_OK, PQTX_ADVICE_NONE},
    /* lost races */
    {"40000", PQTX_ROLLED_BACK, PQTX_ADVICE_AGAIN},
    {"40001", PQTX_SERIALIZATION, PQTX_ADVICE_AGAIN},
    {"40002", PQTX_CONSTRAINT, PQTX_ADVICE_DECIDE},
    {"40003", PQTX_IN_DOUBT, PQTX_ADVICE_RESOLVE},
    {"40P01", PQTX_DEADLOCK, PQTX_ADVICE_AGAIN},
    {"55P03", PQTX_BUSY, PQTX_ADVICE_LATER},
    {"72000", PQTX_ROLLED_BACK, PQTX_ADVICE_AGAIN},
    /* constraints */
    {"23000", PQTX_CONSTRAINT, PQTX_ADVICE_DECIDE},
    {"23001", PQTX_FOREIGN_KEY, PQTX_ADVICE_DECIDE},
    {"23502", PQTX_NOT_NULL, PQTX_ADVICE_DECIDE},
    {"23503", PQTX_FOREIGN_KEY, PQTX_ADVICE_DECIDE},
    {"23505", PQTX_DUPLICATE, PQTX_ADVICE_DECIDE},
    {"23514", PQTX_CHECK, PQTX_ADVICE_DECIDE},
    {"23P01", PQTX_OVERLAP, PQTX_ADVICE_DECIDE},
    {"27000", PQTX_CONSTRAINT, PQTX_ADVICE_DECIDE},
    {"44000", PQTX_CHECK, PQTX_ADVICE_DECIDE},
    /* data */
    {"21000", PQTX_BAD_DATA, PQTX_ADVICE_FIX},
    {"22000", PQTX_BAD_DATA, PQTX_ADVICE_FIX},
    {"22001", PQTX_BAD_DATA, PQTX_ADVICE_FIX},
    {"22003", PQTX_BAD_DATA, PQTX_ADVICE_OPERATOR},
    {"22012", PQTX_BAD_DATA, PQTX_ADVICE_FIX},
    {"22021", PQTX_BAD_DATA, PQTX_ADVICE_FIX},
    {"2200H", PQTX_BAD_DATA, PQTX_ADVICE_OPERATOR},
    {"22P02", PQTX_BAD_DATA, PQTX_ADVICE_FIX},
    {"10608", PQTX_BAD_DATA, PQTX_ADVICE_FIX},
    /* the connection */
    {"08000", PQTX_NO_CONNECTION, PQTX_ADVICE_RECONNECT},
    {"08001", PQTX_NO_CONNECTION, PQTX_ADVICE_LATER},
    {"08003", PQTX_NO_CONNECTION, PQTX_ADVICE_RECONNECT},
    {"08004", PQTX_NO_CONNECTION, PQTX_ADVICE_LATER},
    {"08006", PQTX_NO_CONNECTION, PQTX_ADVICE_RECONNECT},
    {"08007", PQTX_IN_DOUBT, PQTX_ADVICE_RESOLVE},
    {"57P01", PQTX_NO_CONNECTION, PQTX_ADVICE_RECONNECT},
    {"57P02", PQTX_NO_CONNECTION, PQTX_ADVICE_RECONNECT},
    {"57P03", PQTX_NO_CONNECTION, PQTX_ADVICE_LATER},
    {"57P04", PQTX_NO_CONNECTION, PQTX_ADVICE_FIX},
    {"57P05", PQTX_NO_CONNECTION, PQTX_ADVICE_RECONNECT},
    /* refused for now or for good */
    {"25006", PQTX_READ_ONLY, PQTX_ADVICE_RECONNECT},
    {"25P03", PQTX_TIMEOUT, PQTX_ADVICE_FIX},
    {"25P04", PQTX_TIMEOUT, PQTX_ADVICE_FIX},
    {"57014", PQTX_CANCELLED, PQTX_ADVICE_DECIDE},
    {"53000", PQTX_RESOURCES, PQTX_ADVICE_OPERATOR},
    {"53100", PQTX_RESOURCES, PQTX_ADVICE_OPERATOR},
    {"53200", PQTX_RESOURCES, PQTX_ADVICE_OPERATOR},
    {"53300", PQTX_RESOURCES, PQTX_ADVICE_LATER},
    {"53400", PQTX_RESOURCES, PQTX_ADVICE_OPERATOR},
    {"28000", PQTX_DENIED, PQTX_ADVICE_FIX},
    {"28P01", PQTX_DENIED, PQTX_ADVICE_FIX},
    {"42501", PQTX_DENIED, PQTX_ADVICE_FIX},
    {"0L000", PQTX_DENIED, PQTX_ADVICE_FIX},
    {"0P000", PQTX_DENIED, PQTX_ADVICE_FIX},
    {"55000", PQTX_WRONG_STATE, PQTX_ADVICE_FIX},
    {"55006", PQTX_WRONG_STATE, PQTX_ADVICE_LATER},
    {"55P02", PQTX_WRONG_STATE, PQTX_ADVICE_FIX},
    {"55P04", PQTX_WRONG_STATE, PQTX_ADVICE_FIX},
    /* the statement, the schema, the state of the session */
    {"26000", PQTX_STALE_STATEMENT, PQTX_ADVICE_REPREPARE},
    {"42P05", PQTX_STALE_STATEMENT, PQTX_ADVICE_REPREPARE},
    {"25P02", PQTX_SWALLOWED, PQTX_ADVICE_FIX},
    {"25000", PQTX_BAD_STATEMENT, PQTX_ADVICE_FIX},
    {"25001", PQTX_BAD_STATEMENT, PQTX_ADVICE_FIX},
    {"25P01", PQTX_BAD_STATEMENT, PQTX_ADVICE_FIX},
    {"0A000", PQTX_BAD_STATEMENT, PQTX_ADVICE_FIX},
    {"0B000", PQTX_BAD_STATEMENT, PQTX_ADVICE_FIX},
    {"24000", PQTX_BAD_STATEMENT, PQTX_ADVICE_FIX},
    {"2D000", PQTX_BAD_STATEMENT, PQTX_ADVICE_FIX},
    {"2F005", PQTX_BAD_STATEMENT, PQTX_ADVICE_FIX},
    {"34000", PQTX_BAD_STATEMENT, PQTX_ADVICE_FIX},
    {"38000", PQTX_BAD_STATEMENT, PQTX_ADVICE_FIX},
    {"39000", PQTX_BAD_STATEMENT, PQTX_ADVICE_FIX},
    {"3B001", PQTX_BAD_STATEMENT, PQTX_ADVICE_FIX},
    {"3D000", PQTX_BAD_STATEMENT, PQTX_ADVICE_FIX},
    {"3F000", PQTX_BAD_STATEMENT, PQTX_ADVICE_FIX},
    {"42601", PQTX_BAD_STATEMENT, PQTX_ADVICE_FIX},
    {"42703", PQTX_BAD_STATEMENT, PQTX_ADVICE_FIX},
    {"42804", PQTX_BAD_STATEMENT, PQTX_ADVICE_FIX},
    {"42883", PQTX_BAD_STATEMENT, PQTX_ADVICE_FIX},
    {"42P01", PQTX_BAD_STATEMENT, PQTX_ADVICE_FIX},
    {"42P02", PQTX_BAD_STATEMENT, PQTX_ADVICE_FIX},
    {"42P07", PQTX_BAD_STATEMENT, PQTX_ADVICE_FIX},
    {"42P18", PQTX_BAD_STATEMENT, PQTX_ADVICE_FIX},
    {"54000", PQTX_BAD_STATEMENT, PQTX_ADVICE_FIX},
    {"54023", PQTX_BAD_STATEMENT, PQTX_ADVICE_FIX},
    /* the server is ill */
    {"58000", PQTX_SERVER_ERROR, PQTX_ADVICE_OPERATOR},
    {"58030", PQTX_SERVER_ERROR, PQTX_ADVICE_OPERATOR},
    {"F0001", PQTX_SERVER_ERROR, PQTX_ADVICE_OPERATOR},
    {"HV000", PQTX_SERVER_ERROR, PQTX_ADVICE_DECIDE},
    {"HV00N", PQTX_SERVER_ERROR, PQTX_ADVICE_DECIDE},
    {"XX000", PQTX_SERVER_ERROR, PQTX_ADVICE_OPERATOR},
    {"XX001", PQTX_SERVER_ERROR, PQTX_ADVICE_OPERATOR},
    {"XX002", PQTX_SERVER_ERROR, PQTX_ADVICE_OPERATOR},
    /* RAISE */
    {"P0000", PQTX_RAISED, PQTX_ADVICE_DECIDE},
    {"P0001", PQTX_RAISED, PQTX_ADVICE_DECIDE},
    {"P0002", PQTX_RAISED, PQTX_ADVICE_DECIDE},
    {"P0003", PQTX_RAISED, PQTX_ADVICE_DECIDE},
    {"P0004", PQTX_RAISED, PQTX_ADVICE_DECIDE},
    /* of the library's own triggers */
    {"PQ094", PQTX_WRONG_ISOLATION, PQTX_ADVICE_FIX},
    {"PQ095", PQTX_RAISED, PQTX_ADVICE_DECIDE},
};

static void assert_sqlstate(const char *sqlstate, pqtx_status status, pqtx_advice advice)
{
    pqtx_status actual = pqtx_status_of_sqlstate(sqlstate);
    pqtx_advice advised = pqtx_advice_of_sqlstate(sqlstate);
    ck_assert_msg(actual == status && advised == advice, "%s: %s %s, expected %s %s",
                  sqlstate ? sqlstate : "NULL", pqtx_status_name(actual), pqtx_advice_name(advised),
                  pqtx_status_name(status), pqtx_advice_name(advice));
}

START_TEST(each_sqlstate_has_its_status_and_advice)
{
    for (int i = 0; i < COUNT(expected); i++)
        assert_sqlstate(expected[i].sqlstate, expected[i].status, expected[i].advice);
}
END_TEST

START_TEST(an_exact_code_wins_over_its_class)
{
    assert_sqlstate("40001", PQTX_SERIALIZATION, PQTX_ADVICE_AGAIN);
    assert_sqlstate("40999", PQTX_ROLLED_BACK, PQTX_ADVICE_AGAIN);
    assert_sqlstate("42P05", PQTX_STALE_STATEMENT, PQTX_ADVICE_REPREPARE);
    assert_sqlstate("42P99", PQTX_BAD_STATEMENT, PQTX_ADVICE_FIX);
    assert_sqlstate("55P03", PQTX_BUSY, PQTX_ADVICE_LATER);
    assert_sqlstate("55P99", PQTX_WRONG_STATE, PQTX_ADVICE_FIX);
}
END_TEST

START_TEST(a_new_code_of_a_known_class_is_read_by_its_class)
{
    assert_sqlstate("23999", PQTX_CONSTRAINT, PQTX_ADVICE_DECIDE);
    assert_sqlstate("22ZZZ", PQTX_BAD_DATA, PQTX_ADVICE_FIX);
    assert_sqlstate("08ZZZ", PQTX_NO_CONNECTION, PQTX_ADVICE_RECONNECT);
    assert_sqlstate("53999", PQTX_RESOURCES, PQTX_ADVICE_OPERATOR);
    assert_sqlstate("XX999", PQTX_SERVER_ERROR, PQTX_ADVICE_OPERATOR);
}
END_TEST

START_TEST(a_class_that_the_server_does_not_know_is_the_callers_own)
{
    static const char *const own[] = {"45000", "MY001", "ZZZZZ", "99999", "A0000", "U0001"};
    for (int i = 0; i < COUNT(own); i++)
        assert_sqlstate(own[i], PQTX_RAISED, PQTX_ADVICE_DECIDE);
}
END_TEST

START_TEST(what_is_no_sqlstate_is_a_server_error)
{
    static const char *const garbage[] = {
        "",      "40001 ",       "40001x",
        "4",     "4000",         "400011",
        "40p01", "23p01",        "xx000",
        "4000 ", " 40001",       "40\n01",
        "40-01", "4000\xc3\xa9", "\xff\xff\xff\xff\xff",
        "-----",
    };
    assert_sqlstate(NULL, PQTX_SERVER_ERROR, PQTX_ADVICE_OPERATOR);
    for (int i = 0; i < COUNT(garbage); i++)
        assert_sqlstate(garbage[i], PQTX_SERVER_ERROR, PQTX_ADVICE_OPERATOR);
}
END_TEST

/* ---- The server's own list */

/* A line of the list, "40001  E  ERRCODE_T_R_SERIALIZATION_FAILURE …".  No error may be read as a
 * success, and only PL/pgSQL's class as the caller's own: that is what an unmapped class gives. */
static int check_line(const char *line)
{
    char code[6], kind;
    if (sscanf(line, "%5[0-9A-Z] %c ", code, &kind) != 2 || strlen(code) != 5)
        return 0;
    pqtx_status status = pqtx_status_of_sqlstate(code);
    pqtx_advice advice = pqtx_advice_of_sqlstate(code);
    ck_assert_msg(strcmp(pqtx_status_name(status), "unknown") != 0, "%s: %d", code, (int)status);
    ck_assert_msg(strcmp(pqtx_advice_name(advice), "unknown") != 0, "%s: %d", code, (int)advice);
    ck_assert_msg((status == PQTX_OK) == (kind != 'E'), "%s: %s", code, pqtx_status_name(status));
    ck_assert_msg((advice == PQTX_ADVICE_NONE) == (kind != 'E'), "%s: %s", code,
                  pqtx_advice_name(advice));
    ck_assert_msg((status == PQTX_RAISED) == (strncmp(code, "P0", 2) == 0), "%s is not mapped",
                  code);
    return 1;
}

static void check_list(const char *path)
{
    char line[1024];
    int codes = 0;
    FILE *list = fopen(path, "r");
    if (!list)
        return;
    while (fgets(line, sizeof line, list))
        codes += check_line(line);
    fclose(list);
    ck_assert_msg(codes > 200, "%s: only %d codes", path, codes);
}

/* Where pg_config says, and where systems put it. */
static glob_t find_lists(void)
{
    char path[1024] = "";
    glob_t lists = {0};
    FILE *pipe = popen("pg_config --sharedir 2>/dev/null", "r");
    if (pipe) {
        if (fgets(path, sizeof path - sizeof "/errcodes.txt", pipe))
            strcpy(path + strcspn(path, "\n"), "/errcodes.txt");
        pclose(pipe);
    }
    glob(path, 0, NULL, &lists);
    glob("/usr/share/postgresql/*/errcodes.txt", GLOB_APPEND, NULL, &lists);
    glob("/usr/share/postgresql*/errcodes.txt", GLOB_APPEND, NULL, &lists);
    glob("/usr/pgsql-*/share/errcodes.txt", GLOB_APPEND, NULL, &lists);
    glob("/usr/local/share/postgresql*/errcodes.txt", GLOB_APPEND, NULL, &lists);
    glob("/opt/homebrew/share/postgresql*/errcodes.txt", GLOB_APPEND, NULL, &lists);
    return lists;
}

START_TEST(every_code_of_the_servers_list_is_mapped)
{
    glob_t lists = find_lists();
    for (size_t i = 0; i < lists.gl_pathc; i++)
        check_list(lists.gl_pathv[i]);
    if (lists.gl_pathc == 0)
        printf("check_status: there is no errcodes.txt of a server, skipped\n");
    globfree(&lists);
}
END_TEST

/* ---- Names */

static void assert_names(const struct enumerator *list, size_t count,
                         const char *(*name_of)(int number))
{
    for (size_t i = 0; i < count; i++) {
        ck_assert_str_eq(name_of(list[i].number), list[i].name);
        for (size_t k = 0; k < i; k++)
            ck_assert_msg(list[k].number != list[i].number && strcmp(list[k].name, list[i].name),
                          "%s and %s", list[k].name, list[i].name);
    }
}

static const char *status_name(int number)
{
    return pqtx_status_name((pqtx_status)number);
}

static const char *advice_name(int number)
{
    return pqtx_advice_name((pqtx_advice)number);
}

START_TEST(each_status_has_the_name_of_its_enumerator)
{
    static struct enumerator list[100];
    size_t count = read_enumerators("status.h", "pqtx_status", "PQTX_", list, COUNT(list));
    assert_names(list, count, status_name);
}
END_TEST

START_TEST(each_advice_has_the_name_of_its_enumerator)
{
    static struct enumerator list[100];
    size_t count = read_enumerators("status.h", "pqtx_advice", "PQTX_ADVICE_", list, COUNT(list));
    assert_names(list, count, advice_name);
}
END_TEST

START_TEST(other_numbers_are_the_users_or_unknown)
{
    static const int unknown[] = {INT_MIN, -1000, -1, 2, 9, 25, 36, 41, 61, 95, 100, 999};
    for (int i = 0; i < COUNT(unknown); i++)
        ck_assert_str_eq(status_name(unknown[i]), "unknown");
    ck_assert_str_eq(status_name(PQTX_USER), "user");
    ck_assert_str_eq(status_name(PQTX_USER + 1), "user");
    ck_assert_str_eq(status_name(INT_MAX), "user");
    ck_assert_str_eq(advice_name(-1), "unknown");
    ck_assert_str_eq(advice_name(9), "unknown");
    ck_assert_str_eq(advice_name(INT_MAX), "unknown");
}
END_TEST

/* ---- Predicates */

static const int retryable[] = {
    PQTX_SERIALIZATION,   PQTX_DEADLOCK,      PQTX_BUSY,      PQTX_ROLLED_BACK,
    PQTX_STALE_STATEMENT, PQTX_NO_CONNECTION, PQTX_READ_ONLY,
};

static const int answers[] = {
    PQTX_NO_MATCH,    PQTX_TOO_MANY,     PQTX_NOT_FOUND,  PQTX_CONDITION_FALSE,
    PQTX_EXHAUSTED,   PQTX_EMPTY,        PQTX_LEASE_LOST, PQTX_GONE,
    PQTX_SUPERSEDED,  PQTX_KEY_MISMATCH, PQTX_DUPLICATE,  PQTX_OVERLAP,
    PQTX_FOREIGN_KEY, PQTX_CHECK,        PQTX_NOT_NULL,   PQTX_CONSTRAINT,
};

static int is_in(const int *list, int count, int number)
{
    for (int i = 0; i < count; i++)
        if (list[i] == number)
            return 1;
    return 0;
}

static void assert_predicates(int number)
{
    pqtx_status status = (pqtx_status)number;
    ck_assert_msg(pqtx_is_retryable(status) == is_in(retryable, COUNT(retryable), number),
                  "%d retryable: %d", number, pqtx_is_retryable(status));
    ck_assert_msg(pqtx_is_answer(status) == is_in(answers, COUNT(answers), number),
                  "%d an answer: %d", number, pqtx_is_answer(status));
    ck_assert_msg(pqtx_maybe_committed(status) == (number == PQTX_IN_DOUBT),
                  "%d maybe committed: %d", number, pqtx_maybe_committed(status));
}

START_TEST(the_predicates_have_an_answer_for_any_number)
{
    for (int number = -1200; number <= 1200; number++)
        assert_predicates(number);
    assert_predicates(INT_MIN);
    assert_predicates(INT_MAX);
}
END_TEST

static int says_again(pqtx_advice advice)
{
    return advice == PQTX_ADVICE_AGAIN || advice == PQTX_ADVICE_LATER ||
           advice == PQTX_ADVICE_RECONNECT || advice == PQTX_ADVICE_REPREPARE;
}

START_TEST(the_advice_on_a_status_agrees_with_the_predicates)
{
    for (int number = -1200; number <= 1200; number++) {
        pqtx_status status = (pqtx_status)number;
        pqtx_advice advice = pqtx__advice_of_status(status);
        ck_assert_msg(says_again(advice) == pqtx_is_retryable(status), "%d: %s", number,
                      pqtx_advice_name(advice));
        ck_assert_msg((advice == PQTX_ADVICE_RESOLVE) == pqtx_maybe_committed(status), "%d: %s",
                      number, pqtx_advice_name(advice));
        ck_assert_msg((advice == PQTX_ADVICE_NONE) ==
                          (number == PQTX_OK || number == PQTX_DONE_BEFORE),
                      "%d: %s", number, pqtx_advice_name(advice));
        if (pqtx_is_answer(status) || number >= PQTX_USER)
            ck_assert_int_eq(advice, PQTX_ADVICE_DECIDE);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("status");
    TCase *tcase = tcase_create("status");
    tcase_add_test(tcase, each_sqlstate_has_its_status_and_advice);
    tcase_add_test(tcase, an_exact_code_wins_over_its_class);
    tcase_add_test(tcase, a_new_code_of_a_known_class_is_read_by_its_class);
    tcase_add_test(tcase, a_class_that_the_server_does_not_know_is_the_callers_own);
    tcase_add_test(tcase, what_is_no_sqlstate_is_a_server_error);
    tcase_add_test(tcase, every_code_of_the_servers_list_is_mapped);
    tcase_add_test(tcase, each_status_has_the_name_of_its_enumerator);
    tcase_add_test(tcase, each_advice_has_the_name_of_its_enumerator);
    tcase_add_test(tcase, other_numbers_are_the_users_or_unknown);
    tcase_add_test(tcase, the_predicates_have_an_answer_for_any_number);
    tcase_add_test(tcase, the_advice_on_a_status_agrees_with_the_predicates);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
