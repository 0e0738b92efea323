/* bench_table.c: outcomes as a table to read, and as data to plot. */
#define _DEFAULT_SOURCE
#include "bench_table.h"

#include <stdio.h>
#include <stdlib.h>

void table_heading(const struct workload *workload, const char *link, double round_trip_ms)
{
    printf("\n%s: %s\n", workload->name, workload->title);
    printf("line: %s, round trip of an empty query %.2f ms; x a: \"%s\"; x b: \"%s\"\n", link,
           round_trip_ms, workload->four, workload->flight);
    printf("%-8s%-42s%8s%7s%14s%7s%10s%7s%12s\n", "threads", "contestant", "tx/s", "x a",
           "least, most", "x b", "client us", "trips", "bytes");
}

void table_lines(const struct rounds *rounds, int threads, const struct outcome *outcomes,
                 const struct cost *costs)
{
    for (int i = 0; i < rounds->contestant_count; i++) {
        const struct outcome *outcome = &outcomes[i];
        char range[32], bytes[32];
        snprintf(range, sizeof range, "%.2f, %.2f", outcome->least_by_four, outcome->most_by_four);
        snprintf(bytes, sizeof bytes, "%.0f+%.0f", costs[i].up_bytes, costs[i].down_bytes);
        printf("%-8d%-42s%8.0f%7.2f%14s%7.2f%10.1f%7.2f%12s\n", threads,
               rounds->contestants[i]->name, outcome->rate, outcome->by_four, range,
               outcome->by_flight, outcome->cpu_us, costs[i].trips, bytes);
    }
    fflush(stdout);
}

void table_data(const struct rounds *rounds, const char *link, int threads,
                const struct outcome *outcomes)
{
    const char *directory = getenv("BENCH_DATA");
    char path[1024];
    if (!directory)
        return;
    snprintf(path, sizeof path, "%s/%s-%s.dat", directory, rounds->workload->name, link);
    FILE *data = fopen(path, "a");
    if (!data)
        die("%s cannot be written", path);
    if (ftell(data) == 0) {
        fprintf(data, "threads");
        for (int i = 0; i < rounds->contestant_count; i++)
            fprintf(data, "\t%s", rounds->contestants[i]->name);
        fprintf(data, "\n");
    }
    fprintf(data, "%d", threads);
    for (int i = 0; i < rounds->contestant_count; i++)
        fprintf(data, "\t%.0f", outcomes[i].rate);
    fprintf(data, "\n");
    fclose(data);
}
