/* bench_table.h: outcomes as a table to read, and as data to plot. */
#ifndef PQTX_TESTS_BENCH_TABLE_H
#define PQTX_TESTS_BENCH_TABLE_H

#include "bench_rounds.h"

/* The lines of one number of threads follow each other under a heading. */
void table_heading(const struct workload *workload, const char *link, double round_trip_ms);
void table_lines(const struct rounds *rounds, int threads, const struct outcome *outcomes,
                 const struct cost *costs);

/* With BENCH_DATA set, transactions per second by threads are added to a file in that directory,
 * WORKLOAD-LINK.dat, a column for each contestant. */
void table_data(const struct rounds *rounds, const char *link, int threads,
                const struct outcome *outcomes);

#endif
