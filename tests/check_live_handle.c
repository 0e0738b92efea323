/* check_live_handle.c: what was freed is given back at once, so that AddressSanitizer catches a
 * program that goes on using it.  Nothing else can: a handle is an address. */
#include "support.h"
#include "support_tx.h"

#include <stdio.h>

#if defined(__SANITIZE_ADDRESS__)
#define TELLS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TELLS 1
#endif
#endif

#ifdef TELLS
#include <sanitizer/asan_interface.h>

static bool is_given_back(const void *memory)
{
    return __asan_address_is_poisoned(memory);
}

START_TEST(a_transaction_that_was_freed_may_not_be_used)
{
    pqtx_pool *pool = open_pool(1);
    pqtx_tx *tx = pqtx_new(pool, NULL), *open = hold_tx(pool, NULL, NULL);
    ck_assert(!is_given_back(tx) && !is_given_back(open));
    pqtx_free(tx);
    ck_assert(is_given_back(tx) && !is_given_back(open));
    pqtx_free(open);
    ck_assert(is_given_back(open));
    pqtx_pool_close(pool);
}
END_TEST

static const PGresult *ask_one(pqtx_tx *tx)
{
    const PGresult *result;
    ck_assert_int_eq(pqtx_exec_one(tx, "SELECT 1", PQTX_NO_ARGS, &result), PQTX_OK);
    return result;
}

START_TEST(a_result_may_not_be_used_in_the_next_attempt)
{
    pqtx_pool *pool = open_pool(1);
    pqtx_tx *tx = pqtx_new(pool, NULL);
    ck_assert_int_eq(pqtx_attempt(tx), 1);
    const PGresult *first = ask_one(tx);
    pqtx_fail(tx, PQTX_SERIALIZATION);
    ck_assert(!is_given_back(first));
    ck_assert_int_eq(pqtx_attempt(tx), 1);
    ck_assert(is_given_back(first));
    const PGresult *second = ask_one(tx), *third = ask_one(tx);
    ck_assert_int_eq(pqtx_commit(tx), PQTX_OK);
    ck_assert(!is_given_back(second) && !is_given_back(third));
    pqtx_free(tx);
    ck_assert(is_given_back(second) && is_given_back(third));
    pqtx_pool_close(pool);
}
END_TEST

START_TEST(a_pool_that_was_closed_may_not_be_used_when_its_transactions_are_freed)
{
    pqtx_pool *pool = open_pool(2);
    pqtx_tx *open = hold_tx(pool, NULL, NULL), *other = hold_tx(pool, NULL, NULL);
    pqtx_pool_close(pool);
    end_tx(open);
    ck_assert(!is_given_back(pool));
    pqtx_free(other);
    ck_assert(is_given_back(pool));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("live_handle");
    TCase *tcase = tcase_create("handle");
    tcase_add_test(tcase, a_transaction_that_was_freed_may_not_be_used);
    tcase_add_test(tcase, a_result_may_not_be_used_in_the_next_attempt);
    tcase_add_test(tcase, a_pool_that_was_closed_may_not_be_used_when_its_transactions_are_freed);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
#else
int main(void)
{
    puts("check_live_handle: only AddressSanitizer tells, skipped");
    return 0;
}
#endif
