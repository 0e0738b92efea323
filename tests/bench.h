/* bench.h: who is measured against whom, at what, and what one transaction is given. */
#ifndef PQTX_TESTS_BENCH_H
#define PQTX_TESTS_BENCH_H

#ifdef __cplusplus
extern "C" {
#else
#include <stdbool.h>
#endif

#include <stddef.h>
#include <stdint.h>

struct pg_conn;
struct pqtx_pool;

#define BENCH_STOCK 1000000000 /* what each row holds when a run begins */
#define BENCH_ROWS  64         /* two for each thread */

/* One thread's place.  Of the lines to the server it has the one that its contestant uses. */
struct seat {
    int32_t row, other_row;
    struct pg_conn *conn;
    struct pqtx_pool *pool; /* shared by all threads, and as large as they are many */
    void *pqxx;
};

/* Runs one transaction, which commits; or else the program dies. */
typedef void (*bench_run)(struct seat *seat);

struct contestant {
    const char *name;
    enum library { RAW, PQTX, PQXX, PGBENCH } library;
    bench_run run;
    const char *script; /* instead, of PGBENCH */
    int idle;           /* it changes no row */
};

/* Everybody does the same work, in his own way. */
struct workload {
    const char *name, *title;
    const struct contestant *contestants; /* up to one without a name */
    const char *four, *flight;            /* the names of those that the others are compared with */
    const int *threads;                   /* up to a 0 */
    int slow_threads;                     /* one more number, where the round trip is the longest */
    int is_hot;                           /* all threads work on one row */
    const char *done;                     /* a query: how many transactions the tables show */
};

/* Prints the message, as printf() does, and ends the program. */
#ifdef __cplusplus
[[noreturn]] void die(const char *format, ...);
#else
_Noreturn void die(const char *format, ...) __attribute__((format(printf, 1, 2)));
#endif

#ifdef __cplusplus
}
#endif

#endif
