/* check_value.c: parameters to libpq's arrays, and columns back to C. */
#define _DEFAULT_SOURCE
#include "value.h"
#include "support.h"
#include "support_random.h"

#include <float.h>
#include <limits.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (int)(sizeof(array) / sizeof((array)[0]))
#define SMALL_COUNT  COUNT(((struct pqtx__params *)0)->small.values)
#define SMALL_TEXT   sizeof(((struct pqtx__params *)0)->small.text)

/* ---- Parameters */

static struct pqtx__params params;

static void free_params(void)
{
    pqtx__params_free(&params);
}

static void encode(int count, const pqtx_value *values)
{
    const char *why = NULL;
    pqtx__params_free(&params);
    ck_assert_int_eq(pqtx__params_encode(&params, count, values, &why), PQTX_OK);
    ck_assert_ptr_null(why);
    ck_assert_int_eq(params.count, count);
}

static void assert_refused(int count, const pqtx_value *values)
{
    const char *why = NULL;
    pqtx__params_free(&params);
    ck_assert_int_eq(pqtx__params_encode(&params, count, values, &why), PQTX_MISUSE);
    ck_assert_ptr_nonnull(why);
}

/* The text that libpq gets for this value; the server is left to choose its type. */
static const char *text_of(pqtx_value value)
{
    encode(1, &value);
    ck_assert_int_eq(params.formats[0], 0);
    ck_assert_uint_eq(params.types[0], 0);
    return params.values[0];
}

START_TEST(integers_are_written_in_decimal)
{
    ck_assert_str_eq(text_of(pqtx_int(0)), "0");
    ck_assert_str_eq(text_of(pqtx_int(-1)), "-1");
    ck_assert_str_eq(text_of(pqtx_int(INT32_MIN)), "-2147483648");
    ck_assert_str_eq(text_of(pqtx_int(INT64_MAX)), "9223372036854775807");
    ck_assert_str_eq(text_of(pqtx_int(INT64_MIN)), "-9223372036854775808");
}
END_TEST

/* Each number of digits, and both sides of where one more begins. */
START_TEST(integers_of_any_length_are_written_whole)
{
    char expected[32];
    int64_t power = 1;
    for (int digits = 1; digits <= 19; digits++) {
        for (int step = -1; step <= 1; step++)
            for (int sign = -1; sign <= 1; sign += 2) {
                snprintf(expected, sizeof expected, "%lld", (long long)(sign * (power + step)));
                ck_assert_str_eq(text_of(pqtx_int(sign * (power + step))), expected);
            }
        if (digits < 19)
            power *= 10;
    }
    start_random();
    for (int i = 0; i < 2000; i++) {
        int64_t integer = (int64_t)(random_bits() >> random_below(64));
        integer = i % 2 ? integer : -integer;
        snprintf(expected, sizeof expected, "%lld", (long long)integer);
        ck_assert_str_eq(text_of(pqtx_int(integer)), expected);
    }
}
END_TEST

START_TEST(truth_is_one_letter)
{
    ck_assert_str_eq(text_of(pqtx_bool(0)), "f");
    ck_assert_str_eq(text_of(pqtx_bool(1)), "t");
    ck_assert_str_eq(text_of(pqtx_bool(2)), "t");
    ck_assert_str_eq(text_of(pqtx_bool(INT_MIN)), "t");
    ck_assert_int_eq(pqtx_bool(2).as.integer, 1);
}
END_TEST

START_TEST(short_reals_stay_short)
{
    ck_assert_str_eq(text_of(pqtx_real(0.0)), "0");
    ck_assert_str_eq(text_of(pqtx_real(-0.0)), "-0");
    ck_assert_str_eq(text_of(pqtx_real(1.0)), "1");
    ck_assert_str_eq(text_of(pqtx_real(0.1)), "0.1");
    ck_assert_str_eq(text_of(pqtx_real(-2.5)), "-2.5");
    ck_assert_str_eq(text_of(pqtx_real(0.30000000000000004)), "0.30000000000000004");
    ck_assert_str_eq(text_of(pqtx_real(1e300)), "1e+300");
    ck_assert_str_eq(text_of(pqtx_real(123456.789)), "123456.789");
}
END_TEST

START_TEST(reals_without_a_finite_value_have_the_servers_names)
{
    ck_assert_str_eq(text_of(pqtx_real((double)NAN)), "NaN");
    ck_assert_str_eq(text_of(pqtx_real(-(double)NAN)), "NaN");
    ck_assert_str_eq(text_of(pqtx_real((double)INFINITY)), "Infinity");
    ck_assert_str_eq(text_of(pqtx_real(-(double)INFINITY)), "-Infinity");
}
END_TEST

static void assert_reads_back(double real)
{
    const char *text = text_of(pqtx_real(real));
    double back = strtod(text, NULL);
    ck_assert_msg(memcmp(&back, &real, sizeof real) == 0, "%a became %s", real, text);
}

START_TEST(every_real_reads_back_as_the_same_number)
{
    static const double reals[] = {
        DBL_MIN,
        DBL_MAX,
        DBL_EPSILON,
        1.0 / 3,
        2.0 / 3,
        1e22,
        1e23,
        5e-324,
        -4.9406564584e-320,
        2.2250738585072011e-308,
        9007199254740992.0,
        4.35,
        0x1p-44,
        -0.0,
        0x1.fffffffffffffp+1023,
        5.684341886080802e-14,
    };
    for (int i = 0; i < COUNT(reals); i++) {
        assert_reads_back(reals[i]);
        assert_reads_back(-reals[i]);
    }
    start_random();
    for (int i = 0; i < 2000; i++) {
        uint64_t bits = random_bits();
        double real;
        memcpy(&real, &bits, sizeof real);
        if (isfinite(real))
            assert_reads_back(real);
    }
}
END_TEST

START_TEST(text_is_copied_with_its_end)
{
    char borrowed[] = "gone soon";
    ck_assert_str_eq(text_of(pqtx_text("")), "");
    ck_assert_str_eq(text_of(pqtx_text("it's \"x\" \\ \xc3\xa9\n")), "it's \"x\" \\ \xc3\xa9\n");
    ck_assert_str_eq(text_of(pqtx_text_n("abcdef", 3)), "abc");
    ck_assert_str_eq(text_of(pqtx_text_n("abc\0def", 3)), "abc");
    ck_assert_str_eq(text_of(pqtx_text_n("abc", 0)), "");
    const char *text = text_of(pqtx_text(borrowed));
    memset(borrowed, 'x', sizeof borrowed - 1);
    ck_assert_str_eq(text, "gone soon");
}
END_TEST

START_TEST(a_null_pointer_is_an_sql_null)
{
    ck_assert_ptr_null(text_of(pqtx_null()));
    ck_assert_ptr_null(text_of(pqtx_text(NULL)));
    ck_assert_ptr_null(text_of(pqtx_text_n(NULL, 5)));
    ck_assert_ptr_null(text_of(pqtx_bytes(NULL, 5)));
    ck_assert_ptr_null(text_of(pqtx_bytes(NULL, 0)));
}
END_TEST

static void assert_bytes(const void *bytes, size_t len)
{
    pqtx_value value = pqtx_bytes(bytes, len);
    encode(1, &value);
    ck_assert_uint_eq(params.types[0], 17); /* bytea */
    ck_assert_int_eq(params.formats[0], 1);
    ck_assert_int_eq(params.lengths[0], (int)len);
    ck_assert_ptr_nonnull(params.values[0]);
    ck_assert_mem_eq(params.values[0], bytes, len);
}

START_TEST(bytes_travel_as_they_are)
{
    assert_bytes("a\0b", 3);
    assert_bytes("\0\0\0\0", 4);
    assert_bytes("\xff\x00\xfe", 3);
    assert_bytes("", 0);
}
END_TEST

START_TEST(a_text_with_a_nul_inside_is_refused)
{
    pqtx_value inside = pqtx_text_n("a\0b", 3), last = pqtx_text_n("ab", 3);
    pqtx_value first = pqtx_text_n("\0ab", 3), only = pqtx_text_n("", 1);
    assert_refused(1, &inside);
    assert_refused(1, &last);
    assert_refused(1, &first);
    assert_refused(1, &only);
}
END_TEST

START_TEST(a_length_beyond_what_libpq_can_say_is_refused)
{
    static const size_t lens[] = {INT_MAX, (size_t)INT_MAX + 1, SIZE_MAX / 2, SIZE_MAX - 1,
                                  SIZE_MAX};
    for (int i = 0; i < COUNT(lens); i++) {
        pqtx_value text = pqtx_text_n("x", lens[i]), bytes = pqtx_bytes("x", lens[i]);
        pqtx_value many[] = {PQTX_INT(1), bytes, PQTX_INT(2)};
        assert_refused(1, &text);
        assert_refused(1, &bytes);
        assert_refused(3, many);
    }
    pqtx_value longest = pqtx_bytes("x", INT_MAX - 1); /* not looked at before it is sent */
    encode(1, &longest);
    ck_assert_int_eq(params.lengths[0], INT_MAX - 1);
}
END_TEST

START_TEST(a_value_that_no_constructor_made_is_refused)
{
    const pqtx_value made_up[] = {
        {.type = (pqtx_type)6},
        {.type = (pqtx_type)-1},
        {.type = PQTX_TYPE_MAX},
        {.type = PQTX_TYPE_TEXT},
        {.type = PQTX_TYPE_BYTES},
        {.type = PQTX_TYPE_TEXT, .len = 5},
        {.type = PQTX_TYPE_NULL, .reserved = 1},
        {.type = PQTX_TYPE_INT, .reserved = 1},
        {.type = PQTX_TYPE_REAL, .reserved = -1},
        {.type = PQTX_TYPE_BOOL, .reserved = INT32_MIN},
        {.type = PQTX_TYPE_TEXT, .reserved = 1, .as = {.data = ""}},
        {.type = PQTX_TYPE_BYTES, .reserved = INT32_MAX, .as = {.data = ""}},
    };
    for (int i = 0; i < COUNT(made_up); i++) {
        pqtx_value among[] = {PQTX_TEXT("a"), made_up[i], PQTX_TEXT("b")};
        assert_refused(1, &made_up[i]);
        assert_refused(3, among);
    }
}
END_TEST

START_TEST(a_wrong_count_is_refused)
{
    pqtx_value value = pqtx_int(1);
    assert_refused(-1, &value);
    assert_refused(INT_MIN, &value);
    assert_refused(65536, &value);
    assert_refused(INT_MAX, &value);
    assert_refused(1, NULL);
    assert_refused(65535, NULL);
    assert_refused(-1, NULL);
}
END_TEST

START_TEST(no_values_need_no_array)
{
    encode(0, NULL);
    ck_assert_ptr_null(params.heap);
    encode(PQTX_NO_ARGS);
    ck_assert_int_eq(params.count, 0);
}
END_TEST

START_TEST(args_are_a_count_and_an_array)
{
    encode(PQTX_ARGS(PQTX_INT(7)));
    ck_assert_int_eq(params.count, 1);
    encode(PQTX_ARGS(PQTX_INT(7), PQTX_TEXT("ann"), PQTX_NULL, PQTX_REAL(0.5), PQTX_BOOL(1),
                     PQTX_BYTES("\0", 1)));
    ck_assert_int_eq(params.count, 6);
    ck_assert_str_eq(params.values[0], "7");
    ck_assert_str_eq(params.values[1], "ann");
    ck_assert_ptr_null(params.values[2]);
    ck_assert_str_eq(params.values[3], "0.5");
    ck_assert_str_eq(params.values[4], "t");
    ck_assert_int_eq(params.lengths[5], 1);
}
END_TEST

START_TEST(a_few_small_values_need_no_memory)
{
    pqtx_value values[SMALL_COUNT + 1];
    for (int i = 0; i <= SMALL_COUNT; i++)
        values[i] = pqtx_int(INT64_MIN + i);
    for (int count = SMALL_COUNT; count <= SMALL_COUNT + 1; count++) {
        encode(count, values);
        ck_assert_int_eq(params.heap == NULL, count == SMALL_COUNT);
        for (int i = 0; i < count; i++)
            ck_assert_int_eq(strtoll(params.values[i], NULL, 10), values[i].as.integer);
    }
}
END_TEST

START_TEST(a_long_text_has_memory_of_its_own)
{
    char text[SMALL_TEXT + 1];
    memset(text, 'x', sizeof text);
    for (size_t len = SMALL_TEXT - 2; len <= SMALL_TEXT + 1; len++) {
        pqtx_value value = pqtx_text_n(text, len);
        encode(1, &value);
        ck_assert_int_eq(params.heap == NULL, len < SMALL_TEXT);
        ck_assert_uint_eq(strlen(params.values[0]), len);
    }
    pqtx_value halves[] = {pqtx_text_n(text, SMALL_TEXT / 2), pqtx_text_n(text, SMALL_TEXT / 2)};
    encode(2, halves);
    ck_assert_ptr_nonnull(params.heap);
    ck_assert_mem_eq(params.values[1], text, SMALL_TEXT / 2);
}
END_TEST

static void keep(int count, const pqtx_value *values)
{
    const char *why = NULL;
    pqtx__params_free(&params);
    ck_assert_int_eq(pqtx__params_keep(&params, count, values, &why), PQTX_OK);
    ck_assert_ptr_null(why);
    ck_assert_int_eq(params.count, count);
}

/* In a small list and in one that has memory of its own. */
START_TEST(what_is_kept_outlives_the_callers_buffers)
{
    static const size_t lens[] = {1, 5, SMALL_TEXT / 2 - 1, SMALL_TEXT, 10 * SMALL_TEXT};
    for (int i = 0; i < COUNT(lens); i++) {
        size_t len = lens[i];
        char *text = malloc(len), *bytes = malloc(len);
        ck_assert(text && bytes);
        memset(text, 't', len);
        memset(bytes, 'b', len);
        bytes[len / 2] = '\0';
        pqtx_value values[] = {pqtx_bytes(bytes, len), pqtx_text_n(text, len),
                               pqtx_bytes(bytes, len), PQTX_INT(INT64_MIN)};
        keep(COUNT(values), values);
        memset(text, '?', len);
        memset(bytes, '?', len);
        free(text);
        free(bytes);
        memset(values, 0, sizeof values);
        for (int at = 0; at <= 2; at += 2) {
            ck_assert_uint_eq(params.types[at], 17); /* bytea */
            ck_assert_int_eq(params.formats[at], 1);
            ck_assert_int_eq(params.lengths[at], (int)len);
            for (size_t j = 0; j < len; j++)
                ck_assert_int_eq(params.values[at][j], j == len / 2 ? '\0' : 'b');
        }
        ck_assert_uint_eq(strlen(params.values[1]), len);
        ck_assert_uint_eq(strspn(params.values[1], "t"), len);
        ck_assert_str_eq(params.values[3], "-9223372036854775808");
    }
}
END_TEST

/* No bytes are not NULL. */
START_TEST(no_bytes_are_kept_as_such)
{
    char big[SMALL_TEXT] = "";
    keep(PQTX_ARGS(PQTX_BYTES("", 0)));
    ck_assert_ptr_nonnull(params.values[0]);
    ck_assert_int_eq(params.lengths[0], 0);
    keep(PQTX_ARGS(PQTX_BYTES(big, sizeof big), PQTX_BYTES("", 0), PQTX_NULL));
    ck_assert_ptr_null(params.heap);
    ck_assert_ptr_nonnull(params.values[1]);
    ck_assert_ptr_null(params.values[2]);
    keep(PQTX_ARGS(PQTX_BYTES(big, sizeof big), PQTX_INT(1), PQTX_BYTES("", 0)));
    ck_assert_ptr_nonnull(params.heap);
    ck_assert_ptr_nonnull(params.values[2]);
}
END_TEST

START_TEST(what_is_kept_is_refused_for_the_same_reasons)
{
    const pqtx_value wrong[] = {
        pqtx_text_n("a\0b", 3), pqtx_bytes("x", INT_MAX), {.type = PQTX_TYPE_INT, .reserved = 1}};
    for (int i = 0; i < COUNT(wrong); i++) {
        const char *why = NULL;
        ck_assert_int_eq(pqtx__params_keep(&params, 1, &wrong[i], &why), PQTX_MISUSE);
        ck_assert_ptr_nonnull(why);
    }
}
END_TEST

START_TEST(freeing_twice_is_harmless)
{
    pqtx_value values[100];
    for (int i = 0; i < COUNT(values); i++)
        values[i] = pqtx_real(i);
    encode(COUNT(values), values);
    ck_assert_ptr_nonnull(params.heap);
    pqtx__params_free(&params);
    pqtx__params_free(&params);
}
END_TEST

START_TEST(there_may_be_65535_values)
{
    enum { MOST = 65535 };
    pqtx_value *values = calloc(MOST + 1, sizeof *values);
    ck_assert_ptr_nonnull(values);
    for (int i = 0; i <= MOST; i++)
        values[i] = i % 2 ? pqtx_text("odd") : pqtx_int(i);
    encode(MOST, values);
    int right = 0;
    for (int i = 0; i < MOST; i++)
        if (params.types[i] == 0 && params.formats[i] == 0)
            right += i % 2 ? strcmp(params.values[i], "odd") == 0 : atoi(params.values[i]) == i;
    ck_assert_int_eq(right, MOST);
    pqtx__params_free(&params);
    assert_refused(MOST + 1, values);
    free(values);
}
END_TEST

/* ---- Any value at all */

/* What a random value should come to; its data is of exactly its length. */
struct sample {
    pqtx_value value;
    char *data;
    bool wrong;
};

static struct sample draw(void)
{
    struct sample sample = {.value = {.type = (pqtx_type)random_below(6)}};
    pqtx_value *value = &sample.value;
    value->as.integer = (int64_t)random_bits();
    if (value->type == PQTX_TYPE_TEXT || value->type == PQTX_TYPE_BYTES) {
        value->len = random_below(random_below(20) ? 40 : 4000);
        sample.data = malloc(value->len + (value->len == 0));
        ck_assert_ptr_nonnull(sample.data);
        for (size_t i = 0; i < value->len; i++)
            sample.data[i] = (char)(1 + random_below(255));
        value->as.data = sample.data;
    }
    switch (random_below(200)) {
    case 0:
        value->reserved = (int32_t)(1 + random_below(1000));
        sample.wrong = true;
        break;
    case 1:
        value->type = (pqtx_type)(6 + random_below(1000));
        sample.wrong = true;
        break;
    case 2:
        if (value->type == PQTX_TYPE_TEXT && value->len > 0) {
            sample.data[random_below(value->len)] = '\0';
            sample.wrong = true;
        }
        break;
    default:
        break;
    }
    return sample;
}

static void assert_encoded(int i, const pqtx_value *value)
{
    const char *text = params.values[i];
    double back;
    switch (value->type) {
    case PQTX_TYPE_INT:
        ck_assert_int_eq(strtoll(text, NULL, 10), value->as.integer);
        break;
    case PQTX_TYPE_REAL:
        back = strtod(text, NULL);
        ck_assert(back == value->as.real || (isnan(back) && isnan(value->as.real)));
        break;
    case PQTX_TYPE_BOOL:
        ck_assert_str_eq(text, value->as.integer ? "t" : "f");
        break;
    case PQTX_TYPE_TEXT:
        ck_assert_uint_eq(strlen(text), value->len);
        ck_assert_mem_eq(text, value->as.data, value->len);
        break;
    case PQTX_TYPE_BYTES:
        ck_assert_int_eq(params.lengths[i], (int)value->len);
        ck_assert_mem_eq(text, value->as.data, value->len);
        break;
    default:
        ck_assert_ptr_null(text);
    }
}

START_TEST(any_values_are_written_or_refused)
{
    enum { MOST = 40 };
    start_random();
    for (int round = 0; round < 500; round++) {
        struct sample samples[MOST];
        pqtx_value values[MOST];
        int count = (int)random_below(MOST + 1);
        bool wrong = false;
        for (int i = 0; i < count; i++) {
            samples[i] = draw();
            values[i] = samples[i].value;
            wrong |= samples[i].wrong;
        }
        if (wrong)
            assert_refused(count, values);
        else if (round % 2)
            keep(count, values);
        else
            encode(count, values);
        for (int i = 0; i < count; i++) {
            if (!wrong)
                assert_encoded(i, &values[i]);
            free(samples[i].data);
        }
    }
}
END_TEST

/* ---- Columns */

static PGresult *result;

static void clear_result(void)
{
    PQclear(result);
    result = NULL;
}

/* A result of one row and one column, in text or binary; NULL is an SQL NULL. */
static const PGresult *one_column(const char *text, int format)
{
    char name[] = "c";
    PGresAttDesc column = {.name = name, .format = format, .typlen = -1, .atttypmod = -1};
    char *copy = text ? strdup(text) : NULL;
    clear_result();
    result = PQmakeEmptyPGresult(NULL, PGRES_TUPLES_OK);
    ck_assert(PQsetResultAttrs(result, 1, &column));
    ck_assert(PQsetvalue(result, 0, 0, copy, copy ? (int)strlen(copy) : -1));
    free(copy);
    return result;
}

static const PGresult *column(const char *text)
{
    return one_column(text, 0);
}

static int64_t int_of(const char *text)
{
    int64_t out;
    ck_assert_msg(pqtx_get_int(column(text), 0, 0, &out) == PQTX_OK, "\"%s\"", text);
    return out;
}

static double real_of(const char *text)
{
    double out;
    ck_assert_msg(pqtx_get_real(column(text), 0, 0, &out) == PQTX_OK, "\"%s\"", text);
    return out;
}

START_TEST(integer_columns_are_read_over_their_whole_range)
{
    ck_assert_int_eq(int_of("0"), 0);
    ck_assert_int_eq(int_of("-1"), -1);
    ck_assert_int_eq(int_of("007"), 7);
    ck_assert_int_eq(int_of("9223372036854775807"), INT64_MAX);
    ck_assert_int_eq(int_of("-9223372036854775808"), INT64_MIN);
}
END_TEST

START_TEST(what_is_no_integer_is_bad_data)
{
    static const char *const bad[] = {
        NULL,
        "",
        " ",
        "-",
        "abc",
        "9223372036854775808",
        "-9223372036854775809",
        "1.5",
        "1.0",
        "1e3",
        "12x",
        "1 ",
        "99999999999999999999999999",
        " 7",
        "\n7",
        "+7",
        "0x1",
        "NaN",
        "t",
        "--1",
        "1,000",
        "1\xc2\xa0",
    };
    for (int i = 0; i < COUNT(bad); i++) {
        int64_t out = 42;
        ck_assert_msg(pqtx_get_int(column(bad[i]), 0, 0, &out) == PQTX_BAD_DATA, "\"%s\" is %lld",
                      bad[i] ? bad[i] : "(null)", (long long)out);
        ck_assert_int_eq(out, 42);
    }
}
END_TEST

START_TEST(real_columns_are_read_exactly)
{
    ck_assert(real_of("0") == 0.0);
    ck_assert(signbit(real_of("-0")));
    ck_assert(real_of("0.1") == 0.1);
    ck_assert(real_of("-12") == -12.0);
    ck_assert(real_of("1e+300") == 1e300);
    ck_assert(real_of("1.7976931348623157e+308") == DBL_MAX);
    ck_assert(real_of("5e-324") == 5e-324);
    ck_assert(real_of("2.2250738585072011e-308") == 2.2250738585072011e-308);
    ck_assert(real_of("123456789012345678901234567890.5") == 123456789012345678901234567890.5);
    ck_assert(isnan(real_of("NaN")));
    ck_assert(isinf(real_of("Infinity")) && real_of("Infinity") > 0);
    ck_assert(isinf(real_of("-Infinity")) && real_of("-Infinity") < 0);
}
END_TEST

START_TEST(what_is_no_real_is_bad_data)
{
    static const char *const bad[] = {
        NULL,     "",   " ",     "-",    ".",   "x",    "1,5",   "1.5x",   "1.5 ", "1e309",
        "-1e400", "e5", "1.2.3", " 1.5", "\t1", "0x10", "0x1p3", "nan(1)", "t",    "--1",
    };
    for (int i = 0; i < COUNT(bad); i++) {
        double out = 42;
        ck_assert_msg(pqtx_get_real(column(bad[i]), 0, 0, &out) == PQTX_BAD_DATA, "\"%s\" is %g",
                      bad[i] ? bad[i] : "(null)", out);
        ck_assert(out == 42);
    }
}
END_TEST

START_TEST(truth_columns_are_t_or_f)
{
    static const char *const bad[] = {NULL, "", "true", "false", "T", "F", "1", "0", " t", "tt"};
    int out = 42;
    ck_assert_int_eq(pqtx_get_bool(column("t"), 0, 0, &out), PQTX_OK);
    ck_assert_int_eq(out, 1);
    ck_assert_int_eq(pqtx_get_bool(column("f"), 0, 0, &out), PQTX_OK);
    ck_assert_int_eq(out, 0);
    for (int i = 0; i < COUNT(bad); i++) {
        out = 42;
        ck_assert_int_eq(pqtx_get_bool(column(bad[i]), 0, 0, &out), PQTX_BAD_DATA);
        ck_assert_int_eq(out, 42);
    }
}
END_TEST

START_TEST(text_columns_are_libpqs_own)
{
    const char *out;
    ck_assert_int_eq(pqtx_get_text(column(""), 0, 0, &out), PQTX_OK);
    ck_assert_str_eq(out, "");
    ck_assert_int_eq(pqtx_get_text(column("it's \xc3\xa9"), 0, 0, &out), PQTX_OK);
    ck_assert_str_eq(out, "it's \xc3\xa9");
    ck_assert_ptr_eq(out, PQgetvalue(result, 0, 0));
    const char *before = out;
    ck_assert_int_eq(pqtx_get_text(column(NULL), 0, 0, &out), PQTX_BAD_DATA);
    ck_assert_ptr_eq(out, before);
}
END_TEST

START_TEST(bytea_columns_are_read_from_hex)
{
    unsigned char buffer[4] = {0xee, 0xee, 0xee, 0xee};
    size_t len = 42;
    ck_assert_int_eq(pqtx_get_bytes(column("\\x"), 0, 0, buffer, sizeof buffer, &len), PQTX_OK);
    ck_assert_uint_eq(len, 0);
    ck_assert_int_eq(pqtx_get_bytes(column("\\x"), 0, 0, NULL, 0, &len), PQTX_OK);
    ck_assert_int_eq(buffer[0], 0xee);

    ck_assert_int_eq(pqtx_get_bytes(column("\\x00ff1a"), 0, 0, buffer, 3, &len), PQTX_OK);
    ck_assert_uint_eq(len, 3);
    ck_assert_mem_eq(buffer, "\x00\xff\x1a\xee", 4);
}
END_TEST

START_TEST(bytes_that_do_not_fit_are_left_and_counted)
{
    unsigned char buffer[2] = {0xee, 0xee};
    size_t len = 42;
    ck_assert_int_eq(pqtx_get_bytes(column("\\x010203"), 0, 0, NULL, 0, &len), PQTX_TOO_MANY);
    ck_assert_uint_eq(len, 3);
    len = 42;
    ck_assert_int_eq(pqtx_get_bytes(column("\\x010203"), 0, 0, buffer, 2, &len), PQTX_TOO_MANY);
    ck_assert_uint_eq(len, 3);
    ck_assert_mem_eq(buffer, "\xee\xee", 2);
    ck_assert_int_eq(pqtx_get_bytes(column("\\x010203"), 0, 0, NULL, 3, &len), PQTX_MISUSE);
}
END_TEST

START_TEST(what_is_no_hex_is_bad_data)
{
    static const char *const bad[] = {
        NULL,    "",      "\\",        "x",     "\\x0",    "\\x000", "\\xzz",
        "\\x0g", "\\xg0", "00",        "0x00",  "\\x 00",  "\\x00 ", "\\y00",
        "abc",   "\\000", "\\x00\xff", "\\X00", "\\\\x00",
    };
    for (int i = 0; i < COUNT(bad); i++) {
        unsigned char buffer[16] = {0xee};
        size_t len = 42;
        ck_assert_int_eq(pqtx_get_bytes(column(bad[i]), 0, 0, buffer, sizeof buffer, &len),
                         PQTX_BAD_DATA);
        ck_assert_uint_eq(len, 42);
        ck_assert_int_eq(buffer[0], 0xee);
    }
}
END_TEST

/* Each getter on the same place; none may write to what it was given. */
static void assert_misuse(const PGresult *from, int row, int at)
{
    int64_t integer = 42;
    double real = 42;
    int truth = 42;
    const char *text = "42";
    unsigned char bytes[4] = {42};
    size_t len = 42;
    ck_assert_int_eq(pqtx_get_int(from, row, at, &integer), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_get_real(from, row, at, &real), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_get_bool(from, row, at, &truth), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_get_text(from, row, at, &text), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_get_bytes(from, row, at, bytes, sizeof bytes, &len), PQTX_MISUSE);
    ck_assert(integer == 42 && real == 42 && truth == 42 && len == 42 && bytes[0] == 42);
    ck_assert_str_eq(text, "42");
}

START_TEST(a_row_or_column_that_is_not_there_is_misuse)
{
    static const int none[] = {1, 2, -1, INT_MAX, INT_MIN};
    assert_misuse(NULL, 0, 0);
    column("1");
    for (int i = 0; i < COUNT(none); i++) {
        assert_misuse(result, none[i], 0);
        assert_misuse(result, 0, none[i]);
        assert_misuse(result, none[i], none[i]);
    }
    clear_result();
    result = PQmakeEmptyPGresult(NULL, PGRES_COMMAND_OK);
    assert_misuse(result, 0, 0);
}
END_TEST

START_TEST(a_binary_column_is_misuse)
{
    assert_misuse(one_column("1", 1), 0, 0);
}
END_TEST

START_TEST(a_getter_needs_a_place_for_its_answer)
{
    char buffer[4];
    column("1");
    ck_assert_int_eq(pqtx_get_int(result, 0, 0, NULL), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_get_real(result, 0, 0, NULL), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_get_bool(result, 0, 0, NULL), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_get_text(result, 0, 0, NULL), PQTX_MISUSE);
    column("\\x00");
    ck_assert_int_eq(pqtx_get_bytes(result, 0, 0, buffer, sizeof buffer, NULL), PQTX_MISUSE);
}
END_TEST

START_TEST(each_row_and_column_is_found)
{
    char names[] = "a\0b\0c";
    PGresAttDesc columns[3] = {{.name = names}, {.name = names + 2}, {.name = names + 4}};
    result = PQmakeEmptyPGresult(NULL, PGRES_TUPLES_OK);
    ck_assert(PQsetResultAttrs(result, 3, columns));
    for (int row = 0; row < 4; row++)
        for (int at = 0; at < 3; at++) {
            char text[] = {(char)('0' + row), (char)('0' + at), '\0'};
            ck_assert(PQsetvalue(result, row, at, text, 2));
        }
    for (int row = 0; row < 4; row++)
        for (int at = 0; at < 3; at++) {
            int64_t out;
            ck_assert_int_eq(pqtx_get_int(result, row, at, &out), PQTX_OK);
            ck_assert_int_eq(out, 10 * row + at);
        }
}
END_TEST

/* ---- How many rows */

/* An answer without columns, with this tag: there is no other way to have one without a server. */
static const PGresult *tagged(const char *tag)
{
    clear_result();
    result = PQmakeEmptyPGresult(NULL, PGRES_COMMAND_OK);
    strcpy(PQcmdStatus(result), tag);
    return result;
}

START_TEST(affected_rows_are_in_the_tag)
{
    static const struct {
        const char *tag;
        int64_t rows;
    } tags[] = {
        {"INSERT 0 1", 1}, {"INSERT 0 0", 0}, {"INSERT 0 123", 123},
        {"UPDATE 0", 0},   {"UPDATE 7", 7},   {"UPDATE 5000000000", 5000000000},
        {"DELETE 2", 2},   {"MERGE 3", 3},    {"MERGE 0", 0},
        {"SELECT 4", 4}, /* CREATE TABLE … AS */
    };
    for (int i = 0; i < COUNT(tags); i++) {
        int64_t rows = 42;
        ck_assert_int_eq(pqtx_get_rows(tagged(tags[i].tag), &rows), PQTX_OK);
        ck_assert_int_eq(rows, tags[i].rows);
    }
}
END_TEST

START_TEST(returned_rows_are_counted_whatever_the_tag)
{
    int64_t rows = 42;
    ck_assert_int_eq(pqtx_get_rows(column("1"), &rows), PQTX_OK);
    ck_assert_int_eq(rows, 1);
    strcpy(PQcmdStatus(result), "UPDATE 7");
    ck_assert_int_eq(pqtx_get_rows(result, &rows), PQTX_OK);
    ck_assert_int_eq(rows, 1);
    clear_result();
    result = PQmakeEmptyPGresult(NULL, PGRES_TUPLES_OK);
    strcpy(PQcmdStatus(result), "SELECT 0");
    ck_assert_int_eq(pqtx_get_rows(result, &rows), PQTX_OK);
    ck_assert_int_eq(rows, 0);
}
END_TEST

START_TEST(what_counts_no_rows_is_misuse)
{
    static const char *const tags[] = {"",           "BEGIN", "SET",          "CALL",
                                       "LOCK TABLE", "DO",    "CREATE TABLE", "MERGER 3"};
    int64_t rows = 42;
    for (int i = 0; i < COUNT(tags); i++)
        ck_assert_int_eq(pqtx_get_rows(tagged(tags[i]), &rows), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_get_rows(NULL, &rows), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_get_rows(tagged("UPDATE 1"), NULL), PQTX_MISUSE);
    clear_result();
    result = PQmakeEmptyPGresult(NULL, PGRES_FATAL_ERROR);
    ck_assert_int_eq(pqtx_get_rows(result, &rows), PQTX_MISUSE);
    clear_result();
    result = PQmakeEmptyPGresult(NULL, PGRES_EMPTY_QUERY);
    ck_assert_int_eq(pqtx_get_rows(result, &rows), PQTX_MISUSE);
    ck_assert_int_eq(rows, 42);
}
END_TEST

/* ---- A locale with a decimal comma */

static bool has_comma(const char *locale)
{
    return setlocale(LC_ALL, locale) && strcmp(localeconv()->decimal_point, ",") == 0;
}

/* One is made, where there is none, in a folder that is gone when it has been read. */
static bool set_locale_with_comma(void)
{
    static const char *const locales[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "es_ES.UTF-8",
                                          "it_IT.UTF-8", "pt_BR.UTF-8", "ru_RU.UTF-8"};
    for (int i = 0; i < COUNT(locales); i++)
        if (has_comma(locales[i]))
            return true;
    char folder[] = "/tmp/pqtx-locale.XXXXXX", command[128];
    ck_assert_ptr_nonnull(mkdtemp(folder));
    setenv("LOCPATH", folder, 1);
    snprintf(command, sizeof command, "localedef -i de_DE -f UTF-8 %s/de_DE.UTF-8 2>/dev/null",
             folder);
    bool made = system(command) == 0 && has_comma("de_DE.UTF-8");
    snprintf(command, sizeof command, "rm -r %s", folder);
    ck_assert_int_eq(system(command), 0);
    return made;
}

START_TEST(a_decimal_comma_in_the_locale_changes_nothing)
{
    char text[8];
    double real;
    if (!set_locale_with_comma()) {
        printf("check_value: no locale with a decimal comma, skipped\n");
        return;
    }
    ck_assert_str_eq(text_of(pqtx_real(1.5)), "1.5");
    ck_assert_str_eq(text_of(pqtx_real(0.30000000000000004)), "0.30000000000000004");
    ck_assert_str_eq(text_of(pqtx_real(-2.5e-300)), "-2.5e-300");
    ck_assert(real_of("1.5") == 1.5);
    ck_assert_int_eq(pqtx_get_real(column("1,5"), 0, 0, &real), PQTX_BAD_DATA);
    snprintf(text, sizeof text, "%.1f", 1.5);
    ck_assert_str_eq(text, "1,5"); /* and it is still the caller's */
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("value");
    TCase *tcase = tcase_create("parameters");
    tcase_add_checked_fixture(tcase, NULL, free_params);
    tcase_add_test(tcase, integers_are_written_in_decimal);
    tcase_add_test(tcase, integers_of_any_length_are_written_whole);
    tcase_add_test(tcase, truth_is_one_letter);
    tcase_add_test(tcase, short_reals_stay_short);
    tcase_add_test(tcase, reals_without_a_finite_value_have_the_servers_names);
    tcase_add_test(tcase, every_real_reads_back_as_the_same_number);
    tcase_add_test(tcase, text_is_copied_with_its_end);
    tcase_add_test(tcase, a_null_pointer_is_an_sql_null);
    tcase_add_test(tcase, bytes_travel_as_they_are);
    tcase_add_test(tcase, a_text_with_a_nul_inside_is_refused);
    tcase_add_test(tcase, a_length_beyond_what_libpq_can_say_is_refused);
    tcase_add_test(tcase, a_value_that_no_constructor_made_is_refused);
    tcase_add_test(tcase, a_wrong_count_is_refused);
    tcase_add_test(tcase, no_values_need_no_array);
    tcase_add_test(tcase, args_are_a_count_and_an_array);
    tcase_add_test(tcase, a_few_small_values_need_no_memory);
    tcase_add_test(tcase, a_long_text_has_memory_of_its_own);
    tcase_add_test(tcase, what_is_kept_outlives_the_callers_buffers);
    tcase_add_test(tcase, no_bytes_are_kept_as_such);
    tcase_add_test(tcase, what_is_kept_is_refused_for_the_same_reasons);
    tcase_add_test(tcase, freeing_twice_is_harmless);
    tcase_add_test(tcase, there_may_be_65535_values);
    tcase_add_test(tcase, any_values_are_written_or_refused);
    suite_add_tcase(suite, tcase);

    tcase = tcase_create("columns");
    tcase_add_checked_fixture(tcase, NULL, clear_result);
    tcase_add_test(tcase, integer_columns_are_read_over_their_whole_range);
    tcase_add_test(tcase, what_is_no_integer_is_bad_data);
    tcase_add_test(tcase, real_columns_are_read_exactly);
    tcase_add_test(tcase, what_is_no_real_is_bad_data);
    tcase_add_test(tcase, truth_columns_are_t_or_f);
    tcase_add_test(tcase, text_columns_are_libpqs_own);
    tcase_add_test(tcase, bytea_columns_are_read_from_hex);
    tcase_add_test(tcase, bytes_that_do_not_fit_are_left_and_counted);
    tcase_add_test(tcase, what_is_no_hex_is_bad_data);
    tcase_add_test(tcase, a_row_or_column_that_is_not_there_is_misuse);
    tcase_add_test(tcase, a_binary_column_is_misuse);
    tcase_add_test(tcase, a_getter_needs_a_place_for_its_answer);
    tcase_add_test(tcase, each_row_and_column_is_found);
    tcase_add_test(tcase, affected_rows_are_in_the_tag);
    tcase_add_test(tcase, returned_rows_are_counted_whatever_the_tag);
    tcase_add_test(tcase, what_counts_no_rows_is_misuse);
    suite_add_tcase(suite, tcase);

    tcase = tcase_create("locale");
    tcase_set_timeout(tcase, 60); /* making one takes a while */
    tcase_add_checked_fixture(tcase, NULL, free_params);
    tcase_add_checked_fixture(tcase, NULL, clear_result);
    tcase_add_test(tcase, a_decimal_comma_in_the_locale_changes_nothing);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
