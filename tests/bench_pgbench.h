/* bench_pgbench.h: the same work by PostgreSQL's own pgbench, a program, where it is installed. */
#ifndef PQTX_TESTS_BENCH_PGBENCH_H
#define PQTX_TESTS_BENCH_PGBENCH_H

#include "bench_trial.h"

bool pgbench_is_there(void);

/* Of the CPU time that of the whole process is told, and no run is shorter than a second. */
struct sample pgbench_run(const struct trial *trial, int64_t *committed);

/* The scripts: on row 1, with no look at the row count, which pgbench cannot take. */
extern const char pgbench_take[], pgbench_take_flight[];

#endif
