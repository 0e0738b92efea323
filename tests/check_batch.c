/* check_batch.c: statements that wait for one flight, with copies of all that they need. */
#include "batch.h"
#include "support.h"
#include "support_fault.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct pqtx__store store;
static struct pqtx__batch batch;
static pqtx_status status;
static const char *why;

static const struct pqtx__rule any = {PQTX__COUNT_ANY, 0}, one = {PQTX__COUNT_EXACT, 1};

static void set_up(void)
{
    store = (struct pqtx__store){NULL, 0};
    pqtx__batch_init(&batch);
}

static void tear_down(void)
{
    pqtx__batch_clear(&batch, &store);
    pqtx__store_free(&store);
}

static struct pqtx__command *try_add(const char *sql, struct pqtx__rule rule, int count,
                                     const pqtx_value *values)
{
    status = PQTX_OK;
    why = NULL;
    return pqtx__batch_add(&batch, &store, sql, pqtx__statement_kind(sql), rule, count, values,
                           &status, &why);
}

static struct pqtx__command *add(const char *sql, int count, const pqtx_value *values)
{
    struct pqtx__command *command = try_add(sql, any, count, values);
    ck_assert_ptr_nonnull(command);
    ck_assert_int_eq(status, PQTX_OK);
    return command;
}

static char *long_text(size_t len)
{
    char *text = malloc(len + 1);
    ck_assert_ptr_nonnull(text);
    memset(text, 'x', len);
    text[len] = '\0';
    return text;
}

/* ---- In order, and whole */

START_TEST(an_empty_batch_has_nothing)
{
    ck_assert_ptr_null(batch.first);
    ck_assert_uint_eq(batch.count, 0);
    ck_assert_uint_eq(batch.bytes, 0);
    pqtx__batch_clear(&batch, &store);
    pqtx__batch_clear(&batch, &store);
    ck_assert_ptr_null(batch.first);
}
END_TEST

START_TEST(statements_wait_in_the_order_in_which_they_came)
{
    enum { MANY = 200 };
    char sql[32];
    for (int i = 0; i < MANY; i++) {
        snprintf(sql, sizeof sql, "SELECT %d + $1", i);
        struct pqtx__command *command = add(sql, PQTX_ARGS(PQTX_INT(i)));
        ck_assert(command->answers);
        ck_assert_ptr_null(command->next);
        command->call = (uint32_t)i;
    }
    ck_assert_uint_eq(batch.count, MANY);
    int i = 0;
    for (const struct pqtx__command *c = batch.first; c; c = c->next, i++) {
        snprintf(sql, sizeof sql, "SELECT %d + $1", i);
        ck_assert_str_eq(c->sql, sql);
        ck_assert_int_eq(atoi(c->params.values[0]), i);
        ck_assert_uint_eq(c->call, (uint32_t)i);
    }
    ck_assert_int_eq(i, MANY);
}
END_TEST

START_TEST(the_callers_buffers_need_not_live_on)
{
    char sql[] = "SELECT $1, $2, $3", text[] = "text", bytes[] = "by\0es";
    char *much = long_text(5000);
    pqtx_value values[] = {pqtx_text(text), pqtx_bytes(bytes, 5), pqtx_bytes(much, 5000)};
    const struct pqtx__command *small = add(sql, 2, values), *large = add(sql, 3, values);
    memset(sql, '?', sizeof sql - 1);
    memset(text, '?', sizeof text - 1);
    memset(bytes, '?', sizeof bytes - 1);
    memset(values, 0, sizeof values);
    memset(much, '?', 5000);
    free(much);
    for (int i = 0; i < 2; i++) {
        const struct pqtx__command *c = i == 0 ? small : large;
        ck_assert_str_eq(c->sql, "SELECT $1, $2, $3");
        ck_assert_int_eq(c->params.count, 2 + i);
        ck_assert_str_eq(c->params.values[0], "text");
        ck_assert_int_eq(c->params.lengths[1], 5);
        ck_assert_mem_eq(c->params.values[1], "by\0es", 5);
    }
    for (int i = 0; i < 5000; i++)
        ck_assert_int_eq(large->params.values[2][i], 'x');
}
END_TEST

START_TEST(a_rule_makes_a_guard)
{
    struct pqtx__command *bare = try_add("  UPDATE t SET a = 1;", one, PQTX_NO_ARGS);
    char expected[1024];
    int32_t shift;
    pqtx__guard_write(expected, sizeof expected, "  UPDATE t SET a = 1;", PQTX__KIND_WRITE, one,
                      &shift);
    ck_assert_ptr_nonnull(bare);
    ck_assert_str_eq(bare->sql, expected);
    ck_assert_int_eq(bare->shift, shift);
    ck_assert_int_ne(shift, 0);
    const struct pqtx__command *free_one = add("UPDATE t SET a = 1;", PQTX_NO_ARGS);
    ck_assert_str_eq(free_one->sql, "UPDATE t SET a = 1;");
    ck_assert_int_eq(free_one->shift, 0);
}
END_TEST

START_TEST(what_waits_is_weighed)
{
    add("SELECT 1", PQTX_NO_ARGS);
    size_t before = batch.bytes;
    ck_assert_uint_ge(before, sizeof "SELECT 1");
    char *much = long_text(100000);
    add(much, PQTX_NO_ARGS);
    ck_assert_uint_ge(batch.bytes - before, 100000);
    before = batch.bytes;
    pqtx_value values[] = {pqtx_bytes(much, 100000), pqtx_text(much)};
    add("SELECT $1, $2", 2, values);
    ck_assert_uint_ge(batch.bytes - before, 200000);
    free(much);
    pqtx__batch_clear(&batch, &store);
    ck_assert_uint_eq(batch.bytes, 0);
    ck_assert_uint_eq(batch.count, 0);
}
END_TEST

/* ---- What is used again */

START_TEST(memory_is_used_again)
{
    const struct pqtx__command *first = add("SELECT 1", PQTX_NO_ARGS);
    const char *text = first->sql;
    pqtx__batch_clear(&batch, &store);
    ck_assert_uint_eq(store.count, 1);
    const struct pqtx__command *second = add("SELECT 2", PQTX_NO_ARGS);
    ck_assert_ptr_eq(second, first);
    ck_assert_ptr_eq(second->sql, text);
    ck_assert_str_eq(second->sql, "SELECT 2");
    ck_assert_uint_eq(store.count, 0);
}
END_TEST

START_TEST(a_second_flight_needs_no_memory)
{
    if (!fault_is_possible())
        return;
    for (int round = 0; round < 3; round++) {
        fault_arm(round > 0 ? 1 : 1000, false);
        for (int i = 0; i < 20; i++)
            try_add("SELECT $1", one, PQTX_ARGS(PQTX_INT(i), PQTX_TEXT("a"), PQTX_BYTES("b", 1)));
        enum fault fault = fault_disarm();
        ck_assert_int_eq(fault, FAULT_NONE);
        ck_assert_uint_eq(batch.count, 20);
        pqtx__batch_clear(&batch, &store);
    }
}
END_TEST

/* What another statement left behind is not to be seen. */
START_TEST(nothing_of_an_earlier_statement_is_left)
{
    struct pqtx__command *first = try_add("UPDATE a_long_name SET a = 1", one, PQTX_NO_ARGS);
    ck_assert_ptr_nonnull(first);
    first->call = 4711;
    first->answers = false;
    pqtx__batch_clear(&batch, &store);
    struct pqtx__command *second = add("SELECT 1", PQTX_NO_ARGS);
    ck_assert_ptr_eq(second, first);
    ck_assert_str_eq(second->sql, "SELECT 1");
    ck_assert_int_eq(second->shift, 0);
    ck_assert_int_eq(second->params.count, 0);
    ck_assert(second->answers);
    ck_assert_ptr_null(second->next);
}
END_TEST

START_TEST(a_longer_text_fits_as_well)
{
    for (size_t len = 1; len < 3000; len += 7) {
        char *text = long_text(len);
        const struct pqtx__command *command = add(text, PQTX_NO_ARGS);
        ck_assert_str_eq(command->sql, text);
        ck_assert_uint_gt(command->capacity, len);
        free(text);
        pqtx__batch_clear(&batch, &store);
        ck_assert_uint_eq(store.count, 1);
    }
}
END_TEST

static struct pqtx__command *add_guarded(const char *sql, struct pqtx__rule rule)
{
    struct pqtx__command *command = try_add(sql, rule, PQTX_NO_ARGS);
    ck_assert_ptr_nonnull(command);
    return command;
}

/* Its guard is not written anew, whatever came in between. */
START_TEST(the_same_statement_finds_its_command_again)
{
    static const struct pqtx__rule two = {PQTX__COUNT_EXACT, 2};
    const struct pqtx__command *update = add_guarded("UPDATE t SET a = 1", one);
    const struct pqtx__command *remove = add_guarded("DELETE FROM t", one);
    pqtx__batch_clear(&batch, &store);
    const char *sql = update->sql;
    ck_assert_ptr_eq(add_guarded("DELETE FROM t", one), remove);
    ck_assert_ptr_eq(add_guarded("UPDATE t SET a = 1", one), update);
    ck_assert_ptr_eq(update->sql, sql);
    pqtx__batch_clear(&batch, &store);
    const struct pqtx__command *other = add_guarded("UPDATE t SET a = 1", two);
    ck_assert_ptr_nonnull(strstr(other->sql, "2 THEN"));
}
END_TEST

START_TEST(large_texts_are_not_kept)
{
    char *text = long_text(8192);
    add(text, PQTX_NO_ARGS);
    pqtx__batch_clear(&batch, &store);
    ck_assert_uint_eq(store.count, 0);
    text[8191] = '\0';
    add(text, PQTX_NO_ARGS);
    pqtx__batch_clear(&batch, &store);
    ck_assert_uint_eq(store.count, 1);
    free(text);
}
END_TEST

START_TEST(no_more_than_64_are_kept)
{
    for (int i = 0; i < 300; i++)
        add("SELECT 1", PQTX_NO_ARGS);
    pqtx__batch_clear(&batch, &store);
    ck_assert_uint_eq(store.count, 64);
    pqtx__store_free(&store);
    ck_assert_uint_eq(store.count, 0);
    ck_assert_ptr_null(store.spare);
    pqtx__store_free(&store);
    add("SELECT 1", PQTX_NO_ARGS);
}
END_TEST

/* ---- What cannot be added */

START_TEST(wrong_values_are_refused_and_leave_the_rest_alone)
{
    const pqtx_value wrong = {.type = PQTX_TYPE_INT, .reserved = 1};
    add("SELECT 1", PQTX_NO_ARGS);
    size_t bytes = batch.bytes;
    ck_assert_ptr_null(try_add("SELECT $1", any, 1, &wrong));
    ck_assert_int_eq(status, PQTX_MISUSE);
    ck_assert_ptr_nonnull(why);
    ck_assert_ptr_null(try_add("SELECT $1", one, 1, NULL));
    ck_assert_int_eq(status, PQTX_MISUSE);
    ck_assert_uint_eq(batch.count, 1);
    ck_assert_uint_eq(batch.bytes, bytes);
    add("SELECT 2", PQTX_NO_ARGS);
    ck_assert_str_eq(batch.first->sql, "SELECT 1");
    ck_assert_str_eq(batch.first->next->sql, "SELECT 2");
    ck_assert_ptr_null(batch.first->next->next);
}
END_TEST

/* A command, its text, and its values. */
START_TEST(without_memory_nothing_is_added)
{
    if (!fault_is_possible())
        return;
    char *text = long_text(1000);
    pqtx_value value = pqtx_text(text);
    add("SELECT 1", PQTX_NO_ARGS);
    unsigned long n = 1;
    for (;; n++) {
        pqtx__store_free(&store);
        fault_arm(n, false);
        struct pqtx__command *command = try_add(text, n % 2 ? any : one, 1, &value);
        if (fault_disarm() == FAULT_NONE)
            break;
        ck_assert_ptr_null(command);
        ck_assert_int_eq(status, PQTX_NO_MEMORY);
        ck_assert_uint_eq(batch.count, 1);
        ck_assert_ptr_null(batch.first->next);
    }
    ck_assert_uint_eq(n, 4);
    ck_assert_int_eq(status, PQTX_OK);
    ck_assert_uint_eq(batch.count, 2);
    free(text);
}
END_TEST

/* A spare command that could not grow can be used for a shorter text. */
START_TEST(without_memory_a_spare_one_stays_as_it_was)
{
    if (!fault_is_possible())
        return;
    char *text = long_text(1000);
    add("SELECT 1", PQTX_NO_ARGS);
    pqtx__batch_clear(&batch, &store);
    fault_arm(1, false);
    const struct pqtx__command *command = try_add(text, any, PQTX_NO_ARGS);
    ck_assert_int_eq(fault_disarm(), FAULT_OURS);
    ck_assert_ptr_null(command);
    ck_assert_int_eq(status, PQTX_NO_MEMORY);
    add("SELECT 2", PQTX_NO_ARGS);
    ck_assert_str_eq(batch.first->sql, "SELECT 2");
    free(text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("batch");
    TCase *tcase = tcase_create("batch");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, an_empty_batch_has_nothing);
    tcase_add_test(tcase, statements_wait_in_the_order_in_which_they_came);
    tcase_add_test(tcase, the_callers_buffers_need_not_live_on);
    tcase_add_test(tcase, a_rule_makes_a_guard);
    tcase_add_test(tcase, what_waits_is_weighed);
    tcase_add_test(tcase, memory_is_used_again);
    tcase_add_test(tcase, a_second_flight_needs_no_memory);
    tcase_add_test(tcase, nothing_of_an_earlier_statement_is_left);
    tcase_add_test(tcase, a_longer_text_fits_as_well);
    tcase_add_test(tcase, the_same_statement_finds_its_command_again);
    tcase_add_test(tcase, large_texts_are_not_kept);
    tcase_add_test(tcase, no_more_than_64_are_kept);
    tcase_add_test(tcase, wrong_values_are_refused_and_leave_the_rest_alone);
    tcase_add_test(tcase, without_memory_nothing_is_added);
    tcase_add_test(tcase, without_memory_a_spare_one_stays_as_it_was);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
