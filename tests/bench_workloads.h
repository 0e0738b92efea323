/* bench_workloads.h: what is measured, by whom, on how many threads. */
#ifndef PQTX_TESTS_BENCH_WORKLOADS_H
#define PQTX_TESTS_BENCH_WORKLOADS_H

#include "bench.h"

extern const struct workload workloads[]; /* up to one without a name */

#endif
