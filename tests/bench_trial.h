/* bench_trial.h: one run of one contestant: some threads, for some time. */
#ifndef PQTX_TESTS_BENCH_TRIAL_H
#define PQTX_TESTS_BENCH_TRIAL_H

#include "bench.h"

struct trial {
    const struct workload *workload;
    const struct contestant *contestant;
    const char *conninfo; /* of the line that is measured */
    int threads;
    double seconds;
    long transactions; /* if not 0, so many by each thread, instead of a time */
};

struct sample {
    double rate;   /* transactions per second, of all threads */
    double cpu_us; /* the client's, user and system, for each transaction */
};

/* The tables are filled and counted over this connection, which must be on a line of its own. */
void trial_open(const char *conninfo);
void trial_close(void);

/* The program dies where the tables do not show exactly what the contestant says it has done. */
struct sample trial_run(const struct trial *trial);

/* Whether what it needs is installed. */
bool trial_is_possible(const struct contestant *contestant);

#endif
