/* bench_rounds.c: contestants in turn, over and over, and what that comes to. */
#define _DEFAULT_SOURCE
#include "bench_rounds.h"

#include <stdlib.h>
#include <string.h>

static int ascending(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

/* Sorts them. */
static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, ascending);
    return (values[(count - 1) / 2] + values[count / 2]) / 2;
}

static int place_of(const struct rounds *rounds, const char *name)
{
    int i = 0;
    while (i < rounds->contestant_count && strcmp(rounds->contestants[i]->name, name) != 0)
        i++;
    return i;
}

static struct outcome sum_up(const struct rounds *rounds, struct sample (*samples)[ROUNDS_MAX],
                             int contestant)
{
    double rates[ROUNDS_MAX], cpu_us[ROUNDS_MAX], by_four[ROUNDS_MAX], by_flight[ROUNDS_MAX];
    int four = place_of(rounds, rounds->workload->four);
    int flight = place_of(rounds, rounds->workload->flight);
    for (int i = 0; i < rounds->count; i++) {
        const struct sample *sample = &samples[contestant][i];
        rates[i] = sample->rate;
        cpu_us[i] = sample->cpu_us;
        by_four[i] = sample->rate / samples[four][i].rate;
        by_flight[i] = sample->rate / samples[flight][i].rate;
    }
    struct outcome outcome = {
        .rate = median(rates, rounds->count),
        .cpu_us = median(cpu_us, rounds->count),
        .by_four = median(by_four, rounds->count),
        .by_flight = median(by_flight, rounds->count),
    };
    outcome.least_by_four = by_four[0];
    outcome.most_by_four = by_four[rounds->count - 1];
    return outcome;
}

/* A B C, then C B A, so that nobody always follows the same one. */
void rounds_run(const struct rounds *rounds, const char *conninfo, int threads,
                struct outcome *outcomes)
{
    struct sample samples[CONTESTANTS_MAX][ROUNDS_MAX];
    int last = rounds->contestant_count - 1;
    for (int round = 0; round < rounds->count; round++) {
        for (int i = 0; i <= last; i++) {
            int at = round % 2 ? last - i : i;
            const struct trial trial = {rounds->workload, rounds->contestants[at], conninfo,
                                        threads,          rounds->seconds,         0};
            samples[at][round] = trial_run(&trial);
        }
    }
    for (int i = 0; i <= last; i++)
        outcomes[i] = sum_up(rounds, samples, i);
}

static struct traffic traffic_of(const struct rounds *rounds, struct proxy *proxy, int contestant,
                                 long transactions)
{
    const struct trial trial = {
        .workload = rounds->workload,
        .contestant = rounds->contestants[contestant],
        .conninfo = proxy_conninfo(proxy),
        .threads = 1,
        .transactions = transactions,
    };
    struct traffic before = proxy_traffic(proxy);
    trial_run(&trial);
    struct traffic after = proxy_traffic(proxy);
    return (struct traffic){after.trips - before.trips, after.up_bytes - before.up_bytes,
                            after.down_bytes - before.down_bytes};
}

/* The difference of two runs, so that what happens once does not count. */
void rounds_count(const struct rounds *rounds, struct proxy *proxy, struct cost *costs)
{
    enum { SHORT = 1, LONG = 6 };
    for (int i = 0; i < rounds->contestant_count; i++) {
        struct traffic a = traffic_of(rounds, proxy, i, SHORT);
        struct traffic b = traffic_of(rounds, proxy, i, LONG);
        costs[i] = (struct cost){(double)(b.trips - a.trips) / (LONG - SHORT),
                                 (double)(b.up_bytes - a.up_bytes) / (LONG - SHORT),
                                 (double)(b.down_bytes - a.down_bytes) / (LONG - SHORT)};
    }
}
