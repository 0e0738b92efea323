/* check_blame.c: when a failure tells whom it waited for. */
#include "blame.h"
#include "support.h"

#include <stdlib.h>
#include <string.h>

static pqtx_tx *tx;

static void set_up(void)
{
    tx = calloc(1, sizeof *tx);
    ck_assert(tx != NULL);
    tx->options.flags = PQTX_NAME_BLOCKER;
    tx->error.status = PQTX_BUSY;
    strcpy(tx->blame, "blocked by pid 7");
}

static void tear_down(void)
{
    free(tx);
}

START_TEST(a_busy_error_without_a_detail_gets_one)
{
    pqtx__blame(tx);
    ck_assert_str_eq(tx->error.detail, "blocked by pid 7");
}
END_TEST

START_TEST(the_servers_own_detail_is_kept)
{
    strcpy(tx->error.detail, "the server's");
    pqtx__blame(tx);
    ck_assert_str_eq(tx->error.detail, "the server's");
}
END_TEST

START_TEST(another_error_names_nobody)
{
    tx->error.status = PQTX_CANCELLED;
    pqtx__blame(tx);
    ck_assert_str_eq(tx->error.detail, "");
}
END_TEST

START_TEST(without_the_wish_nobody_is_named)
{
    tx->options.flags = 0;
    pqtx__blame(tx);
    ck_assert_str_eq(tx->error.detail, "");
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("blame");
    TCase *c = tcase_create("blame");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_add_test(c, a_busy_error_without_a_detail_gets_one);
    tcase_add_test(c, the_servers_own_detail_is_kept);
    tcase_add_test(c, another_error_names_nobody);
    tcase_add_test(c, without_the_wish_nobody_is_named);
    suite_add_tcase(s, c);
    return s;
}

int main(void)
{
    return run_suite(suite());
}
