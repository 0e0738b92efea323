/* check_prometheus.c: the statistics in the Prometheus text format, read by a parser that forgives
 * nothing. */
#include "support.h"

#include <stdlib.h>
#include <string.h>

/* ---- The text format, version 0.0.4: families of HELP, TYPE and their samples in one piece */

struct sample {
    char name[64];
    char pool[128], label[32], value[64]; /* of pool=, and of one label more */
    char number[40];
};

struct page {
    struct sample samples[256];
    size_t count;
    char families[64][64], types[64][16];
    size_t family_count;
};

static struct page page;

static const char *take(const char *at, const char *text)
{
    ck_assert_msg(strncmp(at, text, strlen(text)) == 0, "not %s: %.80s", text, at);
    return at + strlen(text);
}

/* One or more of the bytes of `set`, the first of them not a digit. */
static const char *take_name(const char *at, char *to, size_t size)
{
    static const char set[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_:0123456789";
    size_t len = strspn(at, set);
    ck_assert_msg(len > 0 && len < size && !strchr("0123456789", at[0]), "no name: %.80s", at);
    memcpy(to, at, len);
    to[len] = '\0';
    return at + len;
}

/* What stands in quotes, with \\, \" and \n undone. */
static const char *take_quoted(const char *at, char *to, size_t size)
{
    size_t len = 0;
    for (at = take(at, "\""); *at != '"'; at++) {
        ck_assert_msg(*at && *at != '\n', "a label without its end");
        char c = *at;
        if (c == '\\') {
            c = *++at;
            ck_assert_msg(c == '\\' || c == '"' || c == 'n', "no escape: \\%c", c);
            c = c == 'n' ? '\n' : c;
        }
        ck_assert_uint_lt(len + 1, size);
        to[len++] = c;
    }
    to[len] = '\0';
    return at + 1;
}

/* Digits, and perhaps a point with digits after it. */
static const char *take_number(const char *at, char *to, size_t size)
{
    size_t len = strspn(at, "0123456789");
    ck_assert_msg(len > 0, "no number: %.40s", at);
    if (at[len] == '.') {
        size_t more = strspn(at + len + 1, "0123456789");
        ck_assert_msg(more > 0, "no number: %.40s", at);
        len += 1 + more;
    }
    ck_assert_uint_lt(len, size);
    memcpy(to, at, len);
    to[len] = '\0';
    return at + len;
}

static const char *take_labels(const char *at, struct sample *sample)
{
    char name[32];
    at = take_name(take(at, "{"), name, sizeof name);
    ck_assert_str_eq(name, "pool");
    at = take_quoted(take(at, "="), sample->pool, sizeof sample->pool);
    if (*at == ',') {
        at = take_name(at + 1, sample->label, sizeof sample->label);
        at = take_quoted(take(at, "="), sample->value, sizeof sample->value);
    }
    return take(at, "}");
}

/* Whether a sample of this name belongs to the family. */
static bool is_of(const char *name, const char *family, const char *type)
{
    static const char *const parts[] = {"_bucket", "_sum", "_count"};
    size_t len = strlen(family);
    if (strncmp(name, family, len) != 0)
        return false;
    if (strcmp(type, "histogram") != 0)
        return name[len] == '\0';
    for (size_t i = 0; i < 3; i++)
        if (strcmp(name + len, parts[i]) == 0)
            return true;
    return false;
}

static bool is_same_series(const struct sample *a, const struct sample *b)
{
    return strcmp(a->name, b->name) == 0 && strcmp(a->label, b->label) == 0 &&
           strcmp(a->value, b->value) == 0;
}

static const char *take_sample(const char *at, const char *family, const char *type)
{
    struct sample *sample = &page.samples[page.count];
    ck_assert_uint_lt(page.count, sizeof page.samples / sizeof page.samples[0]);
    memset(sample, 0, sizeof *sample);
    at = take_labels(take_name(at, sample->name, sizeof sample->name), sample);
    at = take(take_number(take(at, " "), sample->number, sizeof sample->number), "\n");
    ck_assert_msg(is_of(sample->name, family, type), "%s among %s", sample->name, family);
    for (size_t i = 0; i < page.count; i++)
        ck_assert_msg(!is_same_series(&page.samples[i], sample), "twice: %s %s", sample->name,
                      sample->value);
    page.count++;
    return at;
}

static const char *take_family(const char *at)
{
    char *family = page.families[page.family_count], again[64];
    char *type = page.types[page.family_count];
    at = take(take_name(take(at, "# HELP "), family, 64), " ");
    size_t help = strcspn(at, "\n");
    ck_assert_msg(help > 0 && !memchr(at, '\\', help), "no help: %s", family);
    at = take(take_name(take(at + help, "\n# TYPE "), again, 64), " ");
    ck_assert_str_eq(again, family);
    at = take(take_name(at, type, 16), "\n");
    ck_assert_msg(strcmp(type, "counter") == 0 || strcmp(type, "gauge") == 0 ||
                      strcmp(type, "histogram") == 0,
                  "no type: %s", type);
    for (size_t i = 0; i < page.family_count; i++)
        ck_assert_msg(strcmp(page.families[i], family) != 0, "twice: %s", family);
    page.family_count++;
    size_t before = page.count;
    while (*at && *at != '#')
        at = take_sample(at, family, type);
    ck_assert_msg(page.count > before, "without samples: %s", family);
    return at;
}

static void parse(const char *text)
{
    memset(&page, 0, sizeof page);
    ck_assert(*text);
    while (*text)
        text = take_family(text);
}

static const char *number_of(const char *name, const char *label, const char *value)
{
    for (size_t i = 0; i < page.count; i++) {
        const struct sample *s = &page.samples[i];
        if (strcmp(s->name, name) == 0 && strcmp(s->label, label) == 0 &&
            strcmp(s->value, value) == 0)
            return s->number;
    }
    ck_abort_msg("there is no %s{%s=\"%s\"}", name, label, value);
    return NULL;
}

static char text[32768];

static void write_and_parse(const pqtx_stats *stats, const char *name)
{
    size_t len = pqtx_stats_prometheus(stats, name, text, sizeof text);
    ck_assert_uint_eq(len, strlen(text));
    ck_assert_uint_lt(len, sizeof text);
    parse(text);
}

/* ---- What must be in it */

static const struct {
    const char *name, *label, *value;
    size_t field;
} fields[] = {
    {"pqtx_connections", "", "", offsetof(pqtx_stats, open_count)},
    {"pqtx_connections_idle", "", "", offsetof(pqtx_stats, idle_count)},
    {"pqtx_waiting", "", "", offsetof(pqtx_stats, waiting_count)},
    {"pqtx_connects_total", "result", "ok", offsetof(pqtx_stats, connects)},
    {"pqtx_connects_total", "result", "failed", offsetof(pqtx_stats, connect_failures)},
    {"pqtx_drops_total", "", "", offsetof(pqtx_stats, drops)},
    {"pqtx_transactions_started_total", "", "", offsetof(pqtx_stats, starts)},
    {"pqtx_attempts_total", "", "", offsetof(pqtx_stats, attempts)},
    {"pqtx_transactions_total", "outcome", "committed", offsetof(pqtx_stats, commits)},
    {"pqtx_transactions_total", "outcome", "rolled_back", offsetof(pqtx_stats, rollbacks)},
    {"pqtx_transactions_total", "outcome", "in_doubt", offsetof(pqtx_stats, in_doubt)},
    {"pqtx_transactions_total", "outcome", "done_before", offsetof(pqtx_stats, done_before)},
    {"pqtx_resolved_total", "", "", offsetof(pqtx_stats, resolved)},
    {"pqtx_busy_total", "", "", offsetof(pqtx_stats, busy)},
    {"pqtx_retries_total", "cause", "serialization", offsetof(pqtx_stats, retries_serialization)},
    {"pqtx_retries_total", "cause", "deadlock", offsetof(pqtx_stats, retries_deadlock)},
    {"pqtx_retries_total", "cause", "busy", offsetof(pqtx_stats, retries_busy)},
    {"pqtx_retries_total", "cause", "connection", offsetof(pqtx_stats, retries_connection)},
    {"pqtx_retries_total", "cause", "other", offsetof(pqtx_stats, retries_other)},
    {"pqtx_retries_refused_total", "", "", offsetof(pqtx_stats, retries_refused)},
};

enum { FIELDS = sizeof fields / sizeof fields[0] };

/* Every number of its own: 1 in the first field, 2 in the next, … */
static pqtx_stats numbered(void)
{
    pqtx_stats stats = PQTX_STATS;
    uint64_t *numbers = (uint64_t *)((char *)&stats + offsetof(pqtx_stats, open_count));
    size_t count = (sizeof stats - offsetof(pqtx_stats, open_count)) / sizeof *numbers;
    for (size_t i = 0; i < count; i++)
        numbers[i] = i + 1;
    return stats;
}

START_TEST(every_field_is_there_under_its_name)
{
    pqtx_stats stats = numbered();
    write_and_parse(&stats, "main");
    for (size_t i = 0; i < FIELDS; i++) {
        uint64_t number;
        memcpy(&number, (char *)&stats + fields[i].field, sizeof number);
        const char *written = number_of(fields[i].name, fields[i].label, fields[i].value);
        ck_assert_uint_eq(strtoull(written, NULL, 10), number);
    }
    for (size_t i = 0; i < page.count; i++)
        ck_assert_str_eq(page.samples[i].pool, "main");
    size_t histograms = 2 * (PQTX_BUCKET_COUNT + 2);
    ck_assert_uint_eq(page.count, FIELDS + histograms);
    /* … and the structure has no field beside them. */
    size_t count = (sizeof stats - offsetof(pqtx_stats, open_count)) / sizeof(uint64_t);
    ck_assert_uint_eq(count, (size_t)FIELDS + 2 + (size_t)2 * PQTX_BUCKET_COUNT);
}
END_TEST

START_TEST(what_only_grows_is_a_counter_and_named_so)
{
    pqtx_stats stats = PQTX_STATS;
    write_and_parse(&stats, "main");
    for (size_t i = 0; i < page.family_count; i++) {
        const char *end = strstr(page.families[i], "_total");
        bool named = end && end[6] == '\0';
        ck_assert_int_eq(strcmp(page.types[i], "counter") == 0, named);
    }
}
END_TEST

START_TEST(the_largest_number_is_written_whole)
{
    pqtx_stats stats = PQTX_STATS;
    stats.commits = UINT64_MAX;
    stats.run_us = UINT64_MAX;
    write_and_parse(&stats, "main");
    ck_assert_str_eq(number_of("pqtx_transactions_total", "outcome", "committed"),
                     "18446744073709551615");
    ck_assert_str_eq(number_of("pqtx_run_seconds_sum", "", ""), "18446744073709.551615");
}
END_TEST

/* ---- Histograms */

static void assert_histogram(const char *name, const uint64_t buckets[PQTX_BUCKET_COUNT],
                             uint64_t sum_us)
{
    char bucket[64], part[64], sum[40];
    uint64_t total = 0;
    double bound = 0;
    int found = 0;
    snprintf(bucket, sizeof bucket, "%s_bucket", name);
    for (size_t i = 0; i < page.count; i++) {
        const struct sample *s = &page.samples[i];
        if (strcmp(s->name, bucket) != 0)
            continue;
        ck_assert_str_eq(s->label, "le");
        total += buckets[found];
        ck_assert_uint_eq(strtoull(s->number, NULL, 10), total);
        if (++found == PQTX_BUCKET_COUNT) {
            ck_assert_str_eq(s->value, "+Inf");
            continue;
        }
        /* Bucket i holds what is below 2^i microseconds. */
        ck_assert_double_gt(strtod(s->value, NULL), bound);
        bound = strtod(s->value, NULL);
        ck_assert_double_eq_tol(bound * 1e6, (double)(UINT64_C(1) << (found - 1)), 1e-3);
    }
    ck_assert_int_eq(found, PQTX_BUCKET_COUNT);
    snprintf(part, sizeof part, "%s_count", name);
    ck_assert_uint_eq(strtoull(number_of(part, "", ""), NULL, 10), total);
    snprintf(part, sizeof part, "%s_sum", name);
    snprintf(sum, sizeof sum, "%llu.%06llu", (unsigned long long)(sum_us / 1000000),
             (unsigned long long)(sum_us % 1000000));
    ck_assert_str_eq(number_of(part, "", ""), sum);
}

START_TEST(histograms_are_cumulative_and_end_at_infinity)
{
    pqtx_stats stats = numbered();
    write_and_parse(&stats, "main");
    assert_histogram("pqtx_wait_seconds", stats.wait_us_buckets, stats.wait_us);
    assert_histogram("pqtx_run_seconds", stats.run_us_buckets, stats.run_us);
}
END_TEST

START_TEST(empty_histograms_are_written_too)
{
    pqtx_stats stats = PQTX_STATS;
    write_and_parse(&stats, "main");
    assert_histogram("pqtx_wait_seconds", stats.wait_us_buckets, 0);
    assert_histogram("pqtx_run_seconds", stats.run_us_buckets, 0);
}
END_TEST

/* ---- The label, the buffer */

START_TEST(the_name_of_the_pool_comes_back_whatever_is_in_it)
{
    static const char *const names[] = {"",
                                        "main",
                                        "two words",
                                        "quote\" end",
                                        "\\",
                                        "\\n",
                                        "\n",
                                        "a\\\"b\nc\\\\",
                                        "\"} 1\npqtx_attempts_total{pool=\"",
                                        "h\xc3\xb6he",
                                        "tab\there",
                                        "{},=#"};
    pqtx_stats stats = PQTX_STATS;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        write_and_parse(&stats, names[i]);
        for (size_t j = 0; j < page.count; j++)
            ck_assert_str_eq(page.samples[j].pool, names[i]);
    }
    write_and_parse(&stats, NULL);
    ck_assert_str_eq(page.samples[0].pool, "");
}
END_TEST

START_TEST(a_small_buffer_gets_the_beginning_and_its_end)
{
    pqtx_stats stats = numbered();
    size_t whole = pqtx_stats_prometheus(&stats, "a\"b", text, sizeof text);
    ck_assert_uint_eq(pqtx_stats_prometheus(&stats, "a\"b", NULL, 0), whole);
    ck_assert_uint_eq(pqtx_stats_prometheus(&stats, "a\"b", NULL, 100), whole);
    for (size_t size = 0; size <= whole + 1; size++) {
        char *exact = malloc(size + 1); /* the byte beyond is to be left alone */
        ck_assert_ptr_nonnull(exact);
        exact[size] = '#';
        ck_assert_uint_eq(pqtx_stats_prometheus(&stats, "a\"b", exact, size), whole);
        ck_assert_int_eq(exact[size], '#');
        if (size > 0) {
            ck_assert_uint_eq(strlen(exact), size - 1);
            ck_assert_mem_eq(exact, text, size - 1);
        }
        free(exact);
    }
}
END_TEST

START_TEST(the_usual_page_is_about_as_long_as_the_header_says)
{
    pqtx_stats stats = numbered();
    size_t len = pqtx_stats_prometheus(&stats, "main", NULL, 0);
    ck_assert_uint_gt(len, 5000);
    ck_assert_uint_lt(len, 7000);
}
END_TEST

START_TEST(statistics_of_an_older_program_are_taken_as_far_as_they_go)
{
    pqtx_stats stats = numbered();
    stats.size = offsetof(pqtx_stats, rollbacks);
    write_and_parse(&stats, "main");
    ck_assert_str_ne(number_of("pqtx_transactions_total", "outcome", "committed"), "0");
    ck_assert_str_eq(number_of("pqtx_transactions_total", "outcome", "rolled_back"), "0");
    ck_assert_str_eq(number_of("pqtx_run_seconds_count", "", ""), "0");
}
END_TEST

START_TEST(without_statistics_everything_is_0)
{
    pqtx_stats without_size = numbered();
    without_size.size = 0;
    const pqtx_stats *const none[] = {NULL, &without_size};
    for (size_t i = 0; i < 2; i++) {
        write_and_parse(none[i], "main");
        for (size_t j = 0; j < page.count; j++)
            ck_assert(strtod(page.samples[j].number, NULL) == 0);
    }
}
END_TEST

static Suite *suite(void)
{
    Suite *suite = suite_create("prometheus");
    TCase *tests = tcase_create("prometheus");
    tcase_add_test(tests, every_field_is_there_under_its_name);
    tcase_add_test(tests, what_only_grows_is_a_counter_and_named_so);
    tcase_add_test(tests, the_largest_number_is_written_whole);
    tcase_add_test(tests, histograms_are_cumulative_and_end_at_infinity);
    tcase_add_test(tests, empty_histograms_are_written_too);
    tcase_add_test(tests, the_name_of_the_pool_comes_back_whatever_is_in_it);
    tcase_add_test(tests, a_small_buffer_gets_the_beginning_and_its_end);
    tcase_add_test(tests, the_usual_page_is_about_as_long_as_the_header_says);
    tcase_add_test(tests, statistics_of_an_older_program_are_taken_as_far_as_they_go);
    tcase_add_test(tests, without_statistics_everything_is_0);
    suite_add_tcase(suite, tests);
    return suite;
}

int main(void)
{
    return run_suite(suite());
}
