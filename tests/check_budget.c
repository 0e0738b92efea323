/* check_budget.c: how many further attempts a pool's transactions may make. */
#include "budget.h"
#include "options.h"
#include "support.h"

static struct pqtx__budget budget;

static int64_t spend_all(int64_t most)
{
    int64_t spent = 0;
    while (spent < most && pqtx__budget_spend(&budget))
        spent++;
    return spent;
}

static void earn(int starts)
{
    for (int i = 0; i < starts; i++)
        pqtx__budget_earn(&budget);
}

START_TEST(what_can_be_saved_up_is_there_at_first)
{
    pqtx__budget_init(&budget, 100, 7);
    ck_assert_int_eq(spend_all(100), 7);
    ck_assert(!pqtx__budget_spend(&budget));
}
END_TEST

START_TEST(a_start_earns_a_share_of_an_attempt)
{
    static const struct {
        int percent, starts, earned;
    } shares[] = {{1, 99, 0}, {1, 100, 1}, {33, 3, 0},    {33, 4, 1},  {50, 1, 0},   {50, 2, 1},
                  {50, 5, 2}, {100, 1, 1}, {100, 30, 30}, {150, 2, 3}, {300, 10, 30}};
    for (size_t i = 0; i < sizeof shares / sizeof shares[0]; i++) {
        pqtx__budget_init(&budget, shares[i].percent, 100);
        spend_all(100);
        earn(shares[i].starts);
        ck_assert_msg(spend_all(100) == shares[i].earned, "%d starts of %d percent",
                      shares[i].starts, shares[i].percent);
    }
}
END_TEST

START_TEST(no_share_is_lost)
{
    pqtx__budget_init(&budget, 30, 10);
    spend_all(100);
    int64_t spent = 0;
    for (int i = 0; i < 100; i++) {
        earn(1);
        spent += spend_all(100);
    }
    ck_assert_int_eq(spent, 30);
}
END_TEST

START_TEST(no_more_is_saved_up_than_the_burst)
{
    pqtx__budget_init(&budget, 300, 5);
    earn(1000);
    ck_assert_int_eq(spend_all(100), 5);
    earn(1000);
    ck_assert_int_eq(spend_all(100), 5);
}
END_TEST

START_TEST(a_refusal_costs_nothing)
{
    pqtx__budget_init(&budget, 50, 1);
    spend_all(100);
    earn(1);
    for (int i = 0; i < 10; i++)
        ck_assert(!pqtx__budget_spend(&budget));
    earn(1);
    ck_assert(pqtx__budget_spend(&budget));
}
END_TEST

START_TEST(without_a_budget_nothing_is_refused)
{
    pqtx__budget_init(&budget, -1, 1);
    ck_assert_int_eq(spend_all(100000), 100000);
    earn(100000);
    ck_assert_int_eq(spend_all(100000), 100000);
}
END_TEST

START_TEST(the_largest_numbers_do_not_overflow)
{
    pqtx__budget_init(&budget, INT32_MAX, INT32_MAX);
    earn(1000);
    ck_assert_int_eq(budget.left, (int64_t)INT32_MAX * 100);
    ck_assert(pqtx__budget_spend(&budget));
    ck_assert_int_eq(budget.left, ((int64_t)INT32_MAX - 1) * 100);
}
END_TEST

/* ---- What a pool is given */

static pqtx_status read_pool(int32_t percent, int32_t burst, pqtx_pool_options *read)
{
    const char *why;
    pqtx_pool_options options = PQTX_POOL_OPTIONS;
    options.retry_percent = percent;
    options.retry_burst = burst;
    return pqtx__pool_options_read(read, &options, &why);
}

START_TEST(there_is_a_generous_one_by_default)
{
    pqtx_pool_options read;
    ck_assert_int_eq(read_pool(0, 0, &read), PQTX_OK);
    ck_assert_int_eq(read.retry_percent, 300);
    ck_assert_int_eq(read.retry_burst, 1000);
}
END_TEST

START_TEST(what_is_asked_for_is_taken)
{
    pqtx_pool_options read;
    ck_assert_int_eq(read_pool(1, 2, &read), PQTX_OK);
    ck_assert_int_eq(read.retry_percent, 1);
    ck_assert_int_eq(read.retry_burst, 2);
    ck_assert_int_eq(read_pool(-1, 0, &read), PQTX_OK);
    ck_assert_int_eq(read.retry_percent, -1);
}
END_TEST

START_TEST(numbers_below_that_are_misuse)
{
    pqtx_pool_options read;
    ck_assert_int_eq(read_pool(-2, 0, &read), PQTX_MISUSE);
    ck_assert_int_eq(read_pool(INT32_MIN, 0, &read), PQTX_MISUSE);
    ck_assert_int_eq(read_pool(0, -1, &read), PQTX_MISUSE);
}
END_TEST

static Suite *suite(void)
{
    Suite *suite = suite_create("budget");
    TCase *tests = tcase_create("budget");
    tcase_add_test(tests, what_can_be_saved_up_is_there_at_first);
    tcase_add_test(tests, a_start_earns_a_share_of_an_attempt);
    tcase_add_test(tests, no_share_is_lost);
    tcase_add_test(tests, no_more_is_saved_up_than_the_burst);
    tcase_add_test(tests, a_refusal_costs_nothing);
    tcase_add_test(tests, without_a_budget_nothing_is_refused);
    tcase_add_test(tests, the_largest_numbers_do_not_overflow);
    tcase_add_test(tests, there_is_a_generous_one_by_default);
    tcase_add_test(tests, what_is_asked_for_is_taken);
    tcase_add_test(tests, numbers_below_that_are_misuse);
    suite_add_tcase(suite, tests);
    return suite;
}

int main(void)
{
    return run_suite(suite());
}
