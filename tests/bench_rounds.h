/* bench_rounds.h: contestants in turn, over and over, and what that comes to. */
#ifndef PQTX_TESTS_BENCH_ROUNDS_H
#define PQTX_TESTS_BENCH_ROUNDS_H

#include "bench_proxy.h"
#include "bench_trial.h"

#define ROUNDS_MAX      99
#define CONTESTANTS_MAX 16

struct rounds {
    const struct workload *workload;
    const struct contestant *contestants[CONTESTANTS_MAX]; /* those that are possible here */
    int contestant_count;
    int count;
    double seconds; /* of one run */
};

/* Of each contestant: medians; the ratios are those of runs of the same round, since a machine is
 * now faster, now slower. */
struct outcome {
    double rate, cpu_us;
    double by_four, least_by_four, most_by_four;
    double by_flight;
};

void rounds_run(const struct rounds *rounds, const char *conninfo, int threads,
                struct outcome *outcomes);

/* What passes over the line for one transaction. */
struct cost {
    double trips, up_bytes, down_bytes;
};

void rounds_count(const struct rounds *rounds, struct proxy *proxy, struct cost *costs);

#endif
