/* check_prepared.c: which statements a connection has met, and which are to be prepared. */
#include "prepared.h"
#include "support.h"
#include "support_fault.h"
#include "support_random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct pqtx__cache *cache;
static struct pqtx__params params;

static void set_up(void)
{
    cache = pqtx__cache_new();
    ck_assert_ptr_nonnull(cache);
}

static void tear_down(void)
{
    pqtx__params_free(&params);
    pqtx__cache_free(cache);
}

static const struct pqtx__params *with(int count, const pqtx_value *values)
{
    const char *why;
    pqtx__params_free(&params);
    ck_assert_int_eq(pqtx__params_encode(&params, count, values, &why), PQTX_OK);
    return &params;
}

static struct pqtx__prepared *meet(const char *sql)
{
    return pqtx__cache_meet(cache, sql, with(PQTX_NO_ARGS));
}

/* Met twice and parsed by the server, as wire.c does it. */
static struct pqtx__prepared *prepare(const char *sql)
{
    struct pqtx__prepared *entry = meet(sql);
    if (!entry)
        entry = meet(sql);
    ck_assert_ptr_nonnull(entry);
    entry->state = PQTX__READY;
    return entry;
}

/* The n-th of many statements. */
static const char *numbered(int n)
{
    static char sql[32];
    snprintf(sql, sizeof sql, "SELECT %d", n);
    return sql;
}

static void fill(enum pqtx__prepared_state state)
{
    for (int i = 0; i < PQTX__PREPARED_MAX; i++)
        prepare(numbered(i))->state = state;
    ck_assert_uint_eq(cache->count, PQTX__PREPARED_MAX);
    ck_assert_uint_eq(cache->doomed_count, 0);
}

static bool is_known(const char *sql)
{
    for (size_t i = 0; i < cache->count; i++)
        if (strcmp(cache->entries[i]->sql, sql) == 0)
            return true;
    return false;
}

static bool is_doomed(const struct pqtx__prepared *entry)
{
    for (size_t i = 0; i < cache->doomed_count; i++)
        if (cache->doomed[i] == entry)
            return true;
    return false;
}

/* ---- Meeting */

START_TEST(a_statement_is_prepared_when_it_comes_again)
{
    ck_assert_ptr_null(meet("SELECT 1"));
    struct pqtx__prepared *entry = meet("SELECT 1");
    ck_assert_ptr_nonnull(entry);
    ck_assert_int_eq(entry->state, PQTX__SEEN);
    ck_assert_str_eq(entry->sql, "SELECT 1");
    ck_assert_int_gt((int)strlen(entry->name), 0);
    entry->state = PQTX__READY;
    ck_assert_ptr_eq(meet("SELECT 1"), entry);
    ck_assert_int_eq(entry->state, PQTX__READY);
    ck_assert_uint_eq(cache->count, 1);
}
END_TEST

START_TEST(a_text_is_its_bytes)
{
    static const char *const texts[] = {"SELECT 1",  "SELECT 1 ", "select 1", " SELECT 1",
                                        "SELECT 1;", "SELECT 2",  "SELECT",   ""};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        ck_assert_msg(!meet(texts[i]), "met before: '%s'", texts[i]);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct pqtx__prepared *entry = meet(texts[i]);
        ck_assert_ptr_nonnull(entry);
        ck_assert_str_eq(entry->sql, texts[i]);
    }
}
END_TEST

START_TEST(the_text_and_the_types_are_copied)
{
    char sql[] = "SELECT $1";
    ck_assert_ptr_null(pqtx__cache_meet(cache, sql, with(PQTX_ARGS(PQTX_BYTES("a", 1)))));
    memset(sql, 'x', sizeof sql - 1);
    params.types[0] = 4711;
    struct pqtx__prepared *entry =
        pqtx__cache_meet(cache, "SELECT $1", with(PQTX_ARGS(PQTX_BYTES("b", 1))));
    ck_assert_ptr_nonnull(entry);
    ck_assert_uint_eq(entry->types[0], 17); /* bytea */
}
END_TEST

/* The server chooses a parameter's type once, when the statement is prepared. */
START_TEST(other_types_make_another_statement)
{
    const struct pqtx__prepared *by[4];
    for (int round = 0; round < 2; round++) {
        by[0] = pqtx__cache_meet(cache, "SELECT $1", with(PQTX_NO_ARGS));
        by[1] = pqtx__cache_meet(cache, "SELECT $1", with(PQTX_ARGS(PQTX_INT(1))));
        by[2] = pqtx__cache_meet(cache, "SELECT $1", with(PQTX_ARGS(PQTX_BYTES("", 0))));
        by[3] = pqtx__cache_meet(cache, "SELECT $1", with(PQTX_ARGS(PQTX_INT(1), PQTX_INT(2))));
        for (int i = 0; i < 4; i++)
            ck_assert_int_eq(by[i] != NULL, round == 1);
    }
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < i; j++)
            ck_assert_ptr_ne(by[i], by[j]);
    ck_assert_uint_eq(cache->count, 4);
}
END_TEST

/* All these travel as text, and leave their type to the server. */
START_TEST(other_values_of_the_same_types_make_no_other_statement)
{
    ck_assert_ptr_null(pqtx__cache_meet(cache, "SELECT $1", with(PQTX_ARGS(PQTX_INT(1)))));
    const struct pqtx__prepared *entry =
        pqtx__cache_meet(cache, "SELECT $1", with(PQTX_ARGS(PQTX_INT(2))));
    ck_assert_ptr_nonnull(entry);
    ck_assert_ptr_eq(pqtx__cache_meet(cache, "SELECT $1", with(PQTX_ARGS(PQTX_TEXT("a")))), entry);
    ck_assert_ptr_eq(pqtx__cache_meet(cache, "SELECT $1", with(PQTX_ARGS(PQTX_NULL))), entry);
    ck_assert_ptr_eq(pqtx__cache_meet(cache, "SELECT $1", with(PQTX_ARGS(PQTX_REAL(0.5)))), entry);
    ck_assert_ptr_eq(pqtx__cache_meet(cache, "SELECT $1", with(PQTX_ARGS(PQTX_BOOL(1)))), entry);
}
END_TEST

START_TEST(without_a_cache_or_while_it_rests_nothing_is_met)
{
    ck_assert_ptr_null(pqtx__cache_meet(NULL, "SELECT 1", with(PQTX_NO_ARGS)));
    ck_assert_ptr_null(pqtx__cache_meet(NULL, "SELECT 1", with(PQTX_NO_ARGS)));
    prepare("SELECT 2");
    cache->paused = true;
    for (int i = 0; i < 3; i++) {
        ck_assert_ptr_null(meet("SELECT 1"));
        ck_assert_ptr_null(meet("SELECT 2"));
    }
    ck_assert_uint_eq(cache->count, 1);
    cache->paused = false;
    ck_assert_ptr_null(meet("SELECT 1"));
    ck_assert_ptr_nonnull(meet("SELECT 2"));
}
END_TEST

START_TEST(long_texts_are_not_kept)
{
    char *sql = malloc(PQTX__PREPARED_SIZE + 2);
    ck_assert_ptr_nonnull(sql);
    memset(sql, 'x', PQTX__PREPARED_SIZE + 1);
    sql[PQTX__PREPARED_SIZE + 1] = '\0';
    for (int i = 0; i < 3; i++)
        ck_assert_ptr_null(meet(sql));
    ck_assert_uint_eq(cache->count, 0);
    sql[PQTX__PREPARED_SIZE] = '\0';
    ck_assert_ptr_null(meet(sql));
    ck_assert_ptr_nonnull(meet(sql));
    free(sql);
}
END_TEST

/* ---- Names */

START_TEST(no_name_comes_twice)
{
    enum { MANY = 500 };
    static char names[MANY][sizeof((struct pqtx__prepared *)0)->name];
    for (int i = 0; i < MANY; i++) {
        struct pqtx__prepared *entry = prepare(numbered(i / 2)); /* each of them for two rounds */
        strcpy(names[i], entry->name);
        for (int j = 0; j < i; j++)
            ck_assert_str_ne(names[j], names[i]);
        pqtx__cache_doom(cache, entry);
        pqtx__cache_bury(cache, entry);
    }
}
END_TEST

/* Its Parse was not answered: perhaps the server has it under that name. */
START_TEST(one_that_was_not_prepared_gets_another_name)
{
    meet("SELECT 1");
    struct pqtx__prepared *entry = meet("SELECT 1");
    char name[sizeof entry->name];
    strcpy(name, entry->name);
    ck_assert_ptr_eq(meet("SELECT 1"), entry);
    ck_assert_str_ne(entry->name, name);
    strcpy(name, entry->name);
    entry->state = PQTX__PREPARING;
    ck_assert_ptr_eq(meet("SELECT 1"), entry);
    ck_assert_str_eq(entry->name, name);
}
END_TEST

START_TEST(another_connection_has_other_names)
{
    struct pqtx__cache *mine = cache;
    for (int i = 0; i < 100; i++) {
        char name[sizeof((struct pqtx__prepared *)0)->name];
        struct pqtx__cache *theirs = pqtx__cache_new();
        ck_assert_ptr_nonnull(theirs);
        ck_assert_uint_ne(mine->prefix, theirs->prefix);
        strcpy(name, prepare("SELECT 1")->name);
        cache = theirs;
        ck_assert_str_ne(prepare("SELECT 1")->name, name);
        cache = mine;
        pqtx__cache_free(theirs);
    }
}
END_TEST

START_TEST(a_name_is_plain_and_whole)
{
    cache->prefix = UINT64_MAX;
    cache->last = 99999999999999998;
    ck_assert_str_eq(prepare("SELECT 1")->name, "pqtx_ffffffffffffffff_99999999999999999");
}
END_TEST

/* ---- Making room */

START_TEST(the_one_that_was_not_used_for_longest_goes)
{
    fill(PQTX__READY);
    for (int i = PQTX__PREPARED_MAX - 1; i > 0; i -= 2)
        meet(numbered(i)); /* the odd ones, in falling order */
    for (int n = 0; n < PQTX__PREPARED_MAX; n++) {
        int oldest = n < PQTX__PREPARED_MAX / 2 ? 2 * n : 2 * PQTX__PREPARED_MAX - 1 - 2 * n;
        ck_assert_msg(is_known(numbered(oldest)), "%d went before its time", oldest);
        ck_assert_ptr_null(meet(numbered(1000 + n)));
        ck_assert_msg(!is_known(numbered(oldest)), "%d is still there", oldest);
        ck_assert_str_eq(cache->doomed[n]->sql, numbered(oldest));
        ck_assert_uint_eq(cache->count, PQTX__PREPARED_MAX);
    }
}
END_TEST

START_TEST(one_that_came_only_once_leaves_nothing_behind)
{
    for (int i = 0; i < 10 * PQTX__PREPARED_MAX; i++)
        ck_assert_ptr_null(meet(numbered(i)));
    ck_assert_uint_eq(cache->count, PQTX__PREPARED_MAX);
    ck_assert_uint_eq(cache->doomed_count, 0);
}
END_TEST

START_TEST(one_that_is_on_its_way_stays)
{
    fill(PQTX__PREPARING);
    for (int i = 0; i < 3; i++)
        ck_assert_ptr_null(meet("SELECT 'new'"));
    ck_assert(!is_known("SELECT 'new'"));
    ck_assert(is_known(numbered(0)));
    cache->entries[PQTX__PREPARED_MAX - 1]->state = PQTX__READY;
    ck_assert_ptr_null(meet("SELECT 'new'"));
    ck_assert_ptr_nonnull(meet("SELECT 'new'"));
    ck_assert(!is_known(numbered(0)));
}
END_TEST

START_TEST(no_more_are_doomed_than_there_is_room_for)
{
    fill(PQTX__READY);
    for (int i = 0; i < 2 * PQTX__PREPARED_MAX; i++)
        prepare(numbered(1000 + i % PQTX__PREPARED_MAX))->state = PQTX__READY;
    ck_assert_uint_eq(cache->doomed_count, PQTX__PREPARED_MAX);
    for (int i = 0; i < 10; i++) /* sent as they are */
        ck_assert_ptr_null(meet("SELECT 'new'"));
    ck_assert_uint_eq(cache->count, PQTX__PREPARED_MAX);
    pqtx__cache_bury(cache, cache->doomed[0]);
    ck_assert_ptr_null(meet("SELECT 'new'"));
    ck_assert_ptr_nonnull(meet("SELECT 'new'"));
}
END_TEST

/* ---- Dooming, burying, forgetting */

START_TEST(one_that_is_doomed_is_met_anew)
{
    struct pqtx__prepared *old = prepare("SELECT 1");
    char name[sizeof old->name];
    strcpy(name, old->name);
    prepare("SELECT 2");
    pqtx__cache_doom(cache, old);
    ck_assert(is_doomed(old));
    ck_assert(!is_known("SELECT 1"));
    ck_assert(is_known("SELECT 2"));
    ck_assert_ptr_null(meet("SELECT 1"));
    struct pqtx__prepared *fresh = meet("SELECT 1");
    ck_assert_ptr_ne(fresh, old);
    ck_assert_str_ne(fresh->name, name);
    ck_assert_str_eq(old->name, name); /* by which it is deallocated */
}
END_TEST

START_TEST(dooming_twice_is_harmless)
{
    struct pqtx__prepared *entry = prepare("SELECT 1");
    pqtx__cache_doom(cache, entry);
    pqtx__cache_doom(cache, entry);
    ck_assert_uint_eq(cache->doomed_count, 1);
    ck_assert_uint_eq(cache->count, 0);
}
END_TEST

START_TEST(one_that_cannot_be_buried_is_prepared_under_a_new_name)
{
    char name[sizeof((struct pqtx__prepared *)0)->name];
    fill(PQTX__READY);
    for (int i = 0; i < PQTX__PREPARED_MAX; i++)
        prepare(numbered(1000 + i));
    struct pqtx__prepared *entry = prepare(numbered(1000));
    strcpy(name, entry->name);
    pqtx__cache_doom(cache, entry);
    ck_assert(!is_doomed(entry));
    ck_assert_ptr_eq(meet(numbered(1000)), entry);
    ck_assert_int_eq(entry->state, PQTX__SEEN);
    ck_assert_str_ne(entry->name, name);
}
END_TEST

START_TEST(only_the_doomed_are_buried)
{
    struct pqtx__prepared *doomed[3];
    for (int i = 0; i < 3; i++)
        doomed[i] = prepare(numbered(i));
    struct pqtx__prepared *alive = prepare("SELECT 'alive'");
    for (int i = 0; i < 3; i++)
        pqtx__cache_doom(cache, doomed[i]);
    pqtx__cache_bury(cache, alive);
    ck_assert_uint_eq(cache->doomed_count, 3);
    pqtx__cache_bury(cache, doomed[1]);
    ck_assert_uint_eq(cache->doomed_count, 2);
    ck_assert(is_doomed(doomed[0]) && is_doomed(doomed[2]));
    pqtx__cache_bury(cache, doomed[0]);
    pqtx__cache_bury(cache, doomed[2]);
    ck_assert_uint_eq(cache->doomed_count, 0);
    ck_assert_ptr_eq(meet("SELECT 'alive'"), alive);
}
END_TEST

START_TEST(what_was_forgotten_was_never_met)
{
    char name[sizeof((struct pqtx__prepared *)0)->name];
    fill(PQTX__READY);
    strcpy(name, meet(numbered(0))->name);
    meet("SELECT 'one more'");
    ck_assert_uint_eq(cache->doomed_count, 1);
    pqtx__cache_forget(cache);
    ck_assert_uint_eq(cache->count, 0);
    ck_assert_uint_eq(cache->doomed_count, 0);
    ck_assert_ptr_null(meet(numbered(0)));
    ck_assert_str_ne(meet(numbered(0))->name, name);
    pqtx__cache_forget(cache);
    pqtx__cache_forget(cache);
}
END_TEST

/* ---- No memory */

START_TEST(without_memory_there_is_no_cache)
{
    if (!fault_is_possible())
        return;
    fault_arm(1, false);
    struct pqtx__cache *none = pqtx__cache_new();
    ck_assert_int_eq(fault_disarm(), FAULT_OURS);
    ck_assert_ptr_null(none);
    pqtx__cache_free(none);
}
END_TEST

START_TEST(without_memory_a_statement_is_sent_as_it_is)
{
    if (!fault_is_possible())
        return;
    fill(PQTX__READY);
    with(PQTX_NO_ARGS);
    for (int i = 0; i < 3; i++) {
        fault_arm(1, false);
        struct pqtx__prepared *entry = pqtx__cache_meet(cache, "SELECT 'new'", &params);
        ck_assert_int_eq(fault_disarm(), FAULT_OURS);
        ck_assert_ptr_null(entry);
    }
    ck_assert_ptr_null(meet("SELECT 'new'"));
    ck_assert_ptr_nonnull(meet("SELECT 'new'"));
}
END_TEST

/* ---- Any order of events */

static bool is_twice_or_doomed(size_t at)
{
    for (size_t i = 0; i < at; i++)
        if (strcmp(cache->entries[i]->sql, cache->entries[at]->sql) == 0)
            return true;
    return is_doomed(cache->entries[at]);
}

static void live_one_step(void)
{
    struct pqtx__prepared *entry = meet(numbered((int)random_below(200)));
    size_t chance = random_below(100);
    if (entry && entry->state == PQTX__SEEN && random_below(4) > 0)
        entry->state = PQTX__READY;
    if (entry && chance < 10)
        pqtx__cache_doom(cache, entry);
    else if (chance < 30 && cache->doomed_count > 0)
        pqtx__cache_bury(cache, cache->doomed[random_below(cache->doomed_count)]);
    else if (random_below(2000) == 0)
        pqtx__cache_forget(cache);
}

START_TEST(any_life_keeps_each_statement_in_one_place)
{
    start_random();
    for (int step = 0; step < 20000; step++) {
        live_one_step();
        ck_assert_uint_le(cache->count, PQTX__PREPARED_MAX);
        ck_assert_uint_le(cache->doomed_count, PQTX__PREPARED_MAX);
        for (size_t i = 0; step % 100 == 0 && i < cache->count; i++)
            ck_assert_msg(!is_twice_or_doomed(i), "%s", cache->entries[i]->sql);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("prepared");
    TCase *tcase = tcase_create("prepared");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, a_statement_is_prepared_when_it_comes_again);
    tcase_add_test(tcase, a_text_is_its_bytes);
    tcase_add_test(tcase, the_text_and_the_types_are_copied);
    tcase_add_test(tcase, other_types_make_another_statement);
    tcase_add_test(tcase, other_values_of_the_same_types_make_no_other_statement);
    tcase_add_test(tcase, without_a_cache_or_while_it_rests_nothing_is_met);
    tcase_add_test(tcase, long_texts_are_not_kept);
    tcase_add_test(tcase, no_name_comes_twice);
    tcase_add_test(tcase, one_that_was_not_prepared_gets_another_name);
    tcase_add_test(tcase, another_connection_has_other_names);
    tcase_add_test(tcase, a_name_is_plain_and_whole);
    tcase_add_test(tcase, the_one_that_was_not_used_for_longest_goes);
    tcase_add_test(tcase, one_that_came_only_once_leaves_nothing_behind);
    tcase_add_test(tcase, one_that_is_on_its_way_stays);
    tcase_add_test(tcase, no_more_are_doomed_than_there_is_room_for);
    tcase_add_test(tcase, one_that_is_doomed_is_met_anew);
    tcase_add_test(tcase, dooming_twice_is_harmless);
    tcase_add_test(tcase, one_that_cannot_be_buried_is_prepared_under_a_new_name);
    tcase_add_test(tcase, only_the_doomed_are_buried);
    tcase_add_test(tcase, what_was_forgotten_was_never_met);
    tcase_add_test(tcase, without_memory_there_is_no_cache);
    tcase_add_test(tcase, without_memory_a_statement_is_sent_as_it_is);
    tcase_add_test(tcase, any_life_keeps_each_statement_in_one_place);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
