/* check_backoff.c: how long to wait before trying again. */
#include "backoff.h"
#include "support.h"
#include "support_random.h"

#define FIRST 5000
#define MAX   500000

/* The longest wait that chance can choose. */
static int64_t longest(int64_t first_us, int64_t max_us, uint32_t n)
{
    return pqtx__backoff_us(first_us, max_us, n, UINT64_MAX);
}

START_TEST(the_wait_is_a_share_of_its_ceiling)
{
    int64_t least = INT64_MAX, most = INT64_MIN;
    seed_random(1);
    for (int i = 0; i < 100000; i++) {
        int64_t wait = pqtx__backoff_us(FIRST, MAX, 1, random_bits());
        least = wait < least ? wait : least;
        most = wait > most ? wait : most;
    }
    ck_assert_int_eq(least, 0);
    ck_assert_int_eq(most, FIRST - 1);
    ck_assert_int_eq(pqtx__backoff_us(FIRST, MAX, 1, 0), 0);
    ck_assert_int_eq(pqtx__backoff_us(FIRST, MAX, 1, UINT64_C(1) << 63), FIRST / 2);
}
END_TEST

START_TEST(the_ceiling_doubles_with_each_try)
{
    ck_assert_int_eq(longest(FIRST, MAX, 1), FIRST - 1);
    ck_assert_int_eq(longest(FIRST, MAX, 2), 2 * FIRST - 1);
    ck_assert_int_eq(longest(FIRST, MAX, 3), 4 * FIRST - 1);
    ck_assert_int_eq(longest(FIRST, MAX, 7), 64 * FIRST - 1);
}
END_TEST

START_TEST(the_ceiling_stops_at_the_longest_wait)
{
    ck_assert_int_eq(longest(FIRST, MAX, 8), MAX - 1);
    ck_assert_int_eq(longest(FIRST, MAX, 9), MAX - 1);
    ck_assert_int_eq(longest(FIRST, MAX, 1000), MAX - 1);
    ck_assert_int_eq(longest(FIRST, MAX, UINT32_MAX), MAX - 1);
}
END_TEST

START_TEST(a_first_wait_above_the_longest_is_cut)
{
    ck_assert_int_eq(longest(MAX + 1, MAX, 1), MAX - 1);
    ck_assert_int_eq(longest(INT64_MAX, 10, 3), 9);
    ck_assert_int_eq(longest(FIRST, 0, 4), 0);
}
END_TEST

START_TEST(huge_waits_do_not_overflow)
{
    for (uint32_t n = 1; n < 200; n++) {
        ck_assert_int_gt(longest(1, INT64_MAX, n), -1);
        ck_assert_int_gt(longest(INT64_MAX / 2 + 1, INT64_MAX, n), INT64_MAX / 4);
        ck_assert_int_gt(longest(INT64_MAX, INT64_MAX, n), INT64_MAX / 4 * 3);
    }
    ck_assert_int_gt(longest(1, INT64_MAX, UINT32_MAX), INT64_MAX / 4 * 3);
}
END_TEST

/* Ten equal parts of the ceiling are met equally often: the chi-square of 9 degrees of freedom is
 * above 40 less than once in 100,000 sequences, and this sequence is always the same. */
START_TEST(all_waits_up_to_the_ceiling_are_equally_likely)
{
    int met[10] = {0};
    double square = 0;
    seed_random(2);
    for (int i = 0; i < 100000; i++)
        met[pqtx__backoff_us(FIRST, MAX, 3, random_bits()) / (4 * FIRST / 10)]++;
    for (int i = 0; i < 10; i++)
        square += (met[i] - 10000.0) * (met[i] - 10000.0) / 10000.0;
    ck_assert_msg(square < 40, "chi-square %f", square);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("backoff");
    TCase *tcase = tcase_create("backoff");
    tcase_add_test(tcase, the_wait_is_a_share_of_its_ceiling);
    tcase_add_test(tcase, the_ceiling_doubles_with_each_try);
    tcase_add_test(tcase, the_ceiling_stops_at_the_longest_wait);
    tcase_add_test(tcase, a_first_wait_above_the_longest_is_cut);
    tcase_add_test(tcase, huge_waits_do_not_overflow);
    tcase_add_test(tcase, all_waits_up_to_the_ceiling_are_equally_likely);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
