/* prometheus.c: a pool's statistics in the Prometheus text format. */
#include "size.h"

#include <pqtx/pool.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Counts on past the end, as snprintf does. */
struct page {
    char *buffer;
    size_t size, len;
    const char *pool;
};

static void put(struct page *page, const char *text)
{
    for (; *text; text++, page->len++)
        if (page->len + 1 < page->size)
            page->buffer[page->len] = *text;
}

static void put_escaped(struct page *page, const char *text)
{
    for (; *text; text++) {
        char one[3] = {*text, '\0', '\0'};
        if (*text == '"' || *text == '\\' || *text == '\n') {
            one[0] = '\\';
            one[1] = *text == '\n' ? 'n' : *text;
        }
        put(page, one);
    }
}

static void put_head(struct page *page, const char *name, const char *type, const char *help)
{
    const char *const parts[] = {"# HELP ", name, " ", help, "\n# TYPE ", name, " ", type, "\n"};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        put(page, parts[i]);
}

/* One line: name{pool="…",label="value"} text */
static void put_line(struct page *page, const char *name, const char *suffix, const char *label,
                     const char *value, const char *text)
{
    put(page, name);
    put(page, suffix);
    put(page, "{pool=\"");
    put_escaped(page, page->pool);
    if (label) {
        put(page, "\",");
        put(page, label);
        put(page, "=\"");
        put(page, value);
    }
    put(page, "\"} ");
    put(page, text);
    put(page, "\n");
}

static void put_number(struct page *page, const char *name, const char *label, const char *value,
                       uint64_t number)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, number);
    put_line(page, name, "", label, value, text);
}

/* Microseconds as seconds, with the point whatever the locale. */
static const char *seconds(char *text, size_t size, uint64_t us)
{
    snprintf(text, size, "%" PRIu64 ".%06" PRIu64, us / 1000000, us % 1000000);
    return text;
}

static void put_histogram(struct page *page, const char *name, const char *help,
                          const uint64_t buckets[PQTX_BUCKET_COUNT], uint64_t sum_us)
{
    char bound[40], text[40];
    uint64_t total = 0;
    put_head(page, name, "histogram", help);
    for (int i = 0; i < PQTX_BUCKET_COUNT - 1; i++) {
        total += buckets[i];
        snprintf(text, sizeof text, "%" PRIu64, total);
        put_line(page, name, "_bucket", "le", seconds(bound, sizeof bound, UINT64_C(1) << i), text);
    }
    total += buckets[PQTX_BUCKET_COUNT - 1];
    snprintf(text, sizeof text, "%" PRIu64, total);
    put_line(page, name, "_bucket", "le", "+Inf", text);
    put_line(page, name, "_sum", NULL, NULL, seconds(bound, sizeof bound, sum_us));
    put_line(page, name, "_count", NULL, NULL, text);
}

/* One line of a metric: a label's value, and where its number is. */
struct series {
    const char *value;
    size_t field;
};

static void put_metric(struct page *page, const pqtx_stats *stats, const char *name,
                       const char *type, const char *help, const char *label,
                       const struct series *series, size_t count)
{
    put_head(page, name, type, help);
    for (size_t i = 0; i < count; i++) {
        uint64_t number;
        memcpy(&number, (const char *)stats + series[i].field, sizeof number);
        put_number(page, name, label, series[i].value, number);
    }
}

#define FIELD(name) offsetof(pqtx_stats, name)
#define PUT(page, stats, name, type, help, label, ...)                                             \
    put_metric(page, stats, name, type, help, label, (const struct series[]){__VA_ARGS__},         \
               sizeof((const struct series[]){__VA_ARGS__}) / sizeof(struct series))

static void put_all(struct page *page, const pqtx_stats *s)
{
    PUT(page, s, "pqtx_connections", "gauge", "Connections that stand or are being made.", NULL,
        {NULL, FIELD(open_count)});
    PUT(page, s, "pqtx_connections_idle", "gauge", "Connections that nobody uses.", NULL,
        {NULL, FIELD(idle_count)});
    PUT(page, s, "pqtx_waiting", "gauge", "Threads that wait for a connection.", NULL,
        {NULL, FIELD(waiting_count)});
    PUT(page, s, "pqtx_connects_total", "counter", "Connections asked for.", "result",
        {"ok", FIELD(connects)}, {"failed", FIELD(connect_failures)});
    PUT(page, s, "pqtx_drops_total", "counter", "Connections lost or not clean.", NULL,
        {NULL, FIELD(drops)});
    PUT(page, s, "pqtx_transactions_started_total", "counter", "Transactions started.", NULL,
        {NULL, FIELD(starts)});
    PUT(page, s, "pqtx_attempts_total", "counter", "Attempts begun.", NULL,
        {NULL, FIELD(attempts)});
    PUT(page, s, "pqtx_transactions_total", "counter", "Transactions ended.", "outcome",
        {"committed", FIELD(commits)}, {"rolled_back", FIELD(rollbacks)},
        {"in_doubt", FIELD(in_doubt)}, {"done_before", FIELD(done_before)});
    PUT(page, s, "pqtx_resolved_total", "counter", "Lost answers to COMMIT found out.", NULL,
        {NULL, FIELD(resolved)});
    PUT(page, s, "pqtx_busy_total", "counter", "Transactions that ended busy.", NULL,
        {NULL, FIELD(busy)});
    PUT(page, s, "pqtx_retries_total", "counter", "Further attempts.", "cause",
        {"serialization", FIELD(retries_serialization)}, {"deadlock", FIELD(retries_deadlock)},
        {"busy", FIELD(retries_busy)}, {"connection", FIELD(retries_connection)},
        {"other", FIELD(retries_other)});
    PUT(page, s, "pqtx_retries_refused_total", "counter", "Further attempts beyond the budget.",
        NULL, {NULL, FIELD(retries_refused)});
    put_histogram(page, "pqtx_wait_seconds", "Slept between attempts.", s->wait_us_buckets,
                  s->wait_us);
    put_histogram(page, "pqtx_run_seconds", "From the first attempt to the end.", s->run_us_buckets,
                  s->run_us);
}

size_t pqtx_stats_prometheus(const pqtx_stats *stats, const char *name, char *buffer, size_t size)
{
    struct page page = {buffer, buffer ? size : 0, 0, name ? name : ""};
    pqtx_stats whole = PQTX_STATS;
    if (stats && stats->size >= sizeof stats->size && stats->size <= PQTX__SIZE_MAX)
        memcpy(&whole, stats, stats->size < sizeof whole ? stats->size : sizeof whole);
    put_all(&page, &whole);
    if (page.size > 0)
        buffer[page.len < page.size ? page.len : page.size - 1] = '\0';
    return page.len;
}
