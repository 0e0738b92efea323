/* check_name.c: the key of a name, which must be the same in every version and language. */
#include "support.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void assert_key(const char *name, uint64_t expected)
{
    uint64_t key = (uint64_t)pqtx_lock_key(name);
    ck_assert_msg(key == expected, "\"%.40s\": %016" PRIx64 ", expected %016" PRIx64, name, key,
                  expected);
}

/* sha256sum(1) says the same. */
START_TEST(a_name_has_the_key_that_it_always_had)
{
    assert_key("", 0xe3b0c44298fc1c14);
    assert_key("abc", 0xba7816bf8f01cfea);
    assert_key("nightly report", 0x1425b8cd4af8d2ad);
    assert_key("Nightly report", 0x06f212f846957fbc);
    assert_key("gr\xc3\xbc\xc3\x9f"
               "e",
               0x8285d1ad84c6b6e4);
    assert_key("pqtx_leader:public:scheduler", 0x8e8edf43bb9e3078);
    ck_assert_int_eq(pqtx_lock_key("nightly report"), INT64_C(1451769646762480301));
    ck_assert_int_eq(pqtx_lock_key(NULL), pqtx_lock_key(""));
}
END_TEST

/* At each of these lengths the last block is filled in another way. */
START_TEST(names_of_any_length_have_keys)
{
    static const struct {
        size_t len;
        uint64_t key;
    } golden[] = {
        {1, 0x8e35c2cd3bf6641b},   {54, 0xe9c779786a64f922},   {55, 0x85528b5baff5639c},
        {56, 0xf8ce2f8d6990c639},  {57, 0x243be04ce55d6616},   {63, 0x9b49777003a4143d},
        {64, 0xee8e658590c9a5e1},  {65, 0x2b6c3f7f12b1b12f},   {119, 0xc8bc8a6e9626586b},
        {120, 0x77a2d49d72a11e41}, {127, 0xbf378e224a950932},  {128, 0x652713bcb795a697},
        {129, 0xf0886d9cc70695b4}, {1000, 0x2e6bba1f3cf48fe4},
    };
    char name[1001];
    for (size_t i = 0; i < sizeof golden / sizeof golden[0]; i++) {
        memset(name, 'q', golden[i].len);
        name[golden[i].len] = '\0';
        assert_key(name, golden[i].key);
    }
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("name");
    TCase *c = tcase_create("name");
    tcase_add_test(c, a_name_has_the_key_that_it_always_had);
    tcase_add_test(c, names_of_any_length_have_keys);
    suite_add_tcase(s, c);
    return s;
}

int main(void)
{
    return run_suite(suite());
}
