/* check_action.c: what is done outside the database once the outcome is known. */
#include "action.h"
#include "support.h"

#include <string.h>

static struct pqtx__actions actions;
static char done[64];

/* Each action writes down its letter. */
static void write_down(void *letter)
{
    size_t len = strlen(done);
    ck_assert_uint_lt(len, sizeof done - 1);
    done[len] = *(const char *)letter;
    done[len + 1] = '\0';
}

/* Capitals are for a commit, small letters for a rollback. */
static void add(const char *letters)
{
    static char alphabet[128];
    for (; *letters; letters++) {
        alphabet[(unsigned char)*letters] = *letters;
        bool on_commit = *letters >= 'A' && *letters <= 'Z';
        ck_assert(
            pqtx__actions_add(&actions, write_down, &alphabet[(unsigned char)*letters], on_commit));
    }
}

static void assert_done(const char *letters)
{
    ck_assert_str_eq(done, letters);
    done[0] = '\0';
}

static void begin(void)
{
    actions = (struct pqtx__actions){0};
    done[0] = '\0';
}

static void end(void)
{
    pqtx__actions_forget(&actions);
}

START_TEST(a_commit_runs_its_actions_in_order)
{
    add("aAbBCc");
    pqtx__actions_commit(&actions);
    assert_done("ABC");
}
END_TEST

START_TEST(a_rollback_runs_its_actions_last_first)
{
    add("aAbBCc");
    pqtx__actions_rollback(&actions, 0);
    assert_done("cba");
}
END_TEST

START_TEST(each_action_runs_once)
{
    add("aA");
    pqtx__actions_commit(&actions);
    assert_done("A");
    pqtx__actions_commit(&actions);
    pqtx__actions_rollback(&actions, 0);
    assert_done("");
    add("bB");
    pqtx__actions_rollback(&actions, 0);
    assert_done("b");
    pqtx__actions_rollback(&actions, 0);
    pqtx__actions_commit(&actions);
    assert_done("");
}
END_TEST

START_TEST(an_undone_savepoint_takes_only_its_own_actions)
{
    add("aA");
    size_t outer = actions.count;
    add("bB");
    size_t inner = actions.count;
    add("cCdD");
    pqtx__actions_rollback(&actions, inner);
    assert_done("dc");
    add("eE");
    pqtx__actions_rollback(&actions, outer);
    assert_done("eb");
    add("F");
    pqtx__actions_commit(&actions);
    assert_done("AF");
}
END_TEST

START_TEST(a_savepoint_without_actions_undoes_none)
{
    add("aA");
    pqtx__actions_rollback(&actions, actions.count);
    assert_done("");
    pqtx__actions_commit(&actions);
    assert_done("A");
}
END_TEST

START_TEST(forgotten_actions_do_not_run)
{
    add("aAbBcCdDeE");
    pqtx__actions_forget(&actions);
    pqtx__actions_commit(&actions);
    pqtx__actions_rollback(&actions, 0);
    assert_done("");
    add("A");
    pqtx__actions_commit(&actions);
    assert_done("A");
}
END_TEST

static void count_up(void *count)
{
    ++*(int *)count;
}

START_TEST(there_may_be_any_number_of_actions)
{
    int committed = 0, rolled_back = 0;
    for (int i = 0; i < 10000; i++) {
        ck_assert(pqtx__actions_add(&actions, count_up, &committed, true));
        ck_assert(pqtx__actions_add(&actions, count_up, &rolled_back, false));
    }
    pqtx__actions_rollback(&actions, 10000);
    ck_assert_int_eq(rolled_back, 5000);
    pqtx__actions_commit(&actions);
    ck_assert_int_eq(committed, 5000);
    ck_assert_int_eq(rolled_back, 5000);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("action");
    TCase *tcase = tcase_create("action");
    tcase_add_checked_fixture(tcase, begin, end);
    tcase_add_test(tcase, a_commit_runs_its_actions_in_order);
    tcase_add_test(tcase, a_rollback_runs_its_actions_last_first);
    tcase_add_test(tcase, each_action_runs_once);
    tcase_add_test(tcase, an_undone_savepoint_takes_only_its_own_actions);
    tcase_add_test(tcase, a_savepoint_without_actions_undoes_none);
    tcase_add_test(tcase, forgotten_actions_do_not_run);
    tcase_add_test(tcase, there_may_be_any_number_of_actions);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
