/* bench_pool.c: what it costs to borrow a connection of a pool and to give it back.
 *
 * Nothing is sent in between.  BENCH_ROUNDS and BENCH_SECONDS are as in bench.c. */
#define _DEFAULT_SOURCE
#include "error.h"
#include "lend.h"

#include <pqtx.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { THREADS_MAX = 2, ROUNDS_MAX = 99, SLOTS = 8 };

static pqtx_pool *pool;
static pthread_barrier_t all;
static double seconds;

static double now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static struct pqtx__wire *borrow(void)
{
    pqtx_error error = PQTX_ERROR;
    struct pqtx__wire *wire;
    if (pqtx__pool_acquire(pool, INT64_MAX / 2, &wire, &error) != PQTX_OK) {
        fprintf(stderr, "bench_pool: %s\n", error.message);
        exit(EXIT_FAILURE);
    }
    return wire;
}

/* Everyone first holds a connection while the others do, so that each has one that it meets again.
 */
static void *lend_and_take_back(void *arg)
{
    double *pair_ns = arg, start, end;
    long pairs = 0;
    struct pqtx__wire *wire = borrow();
    pthread_barrier_wait(&all);
    pqtx__pool_release(pool, wire);
    pthread_barrier_wait(&all);
    start = now();
    do {
        for (int i = 0; i < 1000; i++)
            pqtx__pool_release(pool, borrow());
        pairs += 1000;
        end = now();
    } while (end - start < seconds);
    *pair_ns = (end - start) * 1e9 / (double)pairs;
    return NULL;
}

/* Nanoseconds for a pair, as each of the threads sees it. */
static double run(int threads)
{
    pthread_t thread[THREADS_MAX];
    double pair_ns[THREADS_MAX], sum = 0;
    pthread_barrier_init(&all, NULL, (unsigned)threads);
    for (int i = 0; i < threads; i++)
        if (pthread_create(&thread[i], NULL, lend_and_take_back, &pair_ns[i]) != 0)
            exit(EXIT_FAILURE);
    for (int i = 0; i < threads; i++) {
        pthread_join(thread[i], NULL);
        sum += pair_ns[i];
    }
    pthread_barrier_destroy(&all);
    return sum / threads;
}

static int ascending(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static const char *knob(const char *name, const char *otherwise)
{
    const char *value = getenv(name);
    return value && *value ? value : otherwise;
}

int main(void)
{
    pqtx_pool_options options = PQTX_POOL_OPTIONS;
    pqtx_error error = PQTX_ERROR;
    double runs[THREADS_MAX][ROUNDS_MAX];
    int rounds = (int)strtol(knob("BENCH_ROUNDS", "3"), NULL, 10);
    seconds = strtod(knob("BENCH_SECONDS", "0.15"), NULL);
    options.conninfo = getenv("PQTX_TEST_CONNINFO");
    options.min_count = options.max_count = SLOTS;
    if (rounds < 1 || rounds > ROUNDS_MAX || pqtx_pool_open(&options, &pool, &error) != PQTX_OK) {
        fprintf(stderr, "bench_pool: %s\n", error.message);
        return EXIT_FAILURE;
    }
    for (int round = 0; round < rounds; round++)
        for (int threads = 1; threads <= THREADS_MAX; threads++)
            runs[threads - 1][round] = run(threads);
    printf("\npool: borrow a connection and give it back, %d in the pool\n", SLOTS);
    printf("%-8s%12s%16s\n", "threads", "ns per pair", "least, most");
    for (int threads = 1; threads <= THREADS_MAX; threads++) {
        double *ns = runs[threads - 1];
        char range[32];
        qsort(ns, (size_t)rounds, sizeof *ns, ascending);
        snprintf(range, sizeof range, "%.0f, %.0f", ns[0], ns[rounds - 1]);
        printf("%-8d%12.0f%16s\n", threads, (ns[(rounds - 1) / 2] + ns[rounds / 2]) / 2, range);
    }
    pqtx_pool_close(pool);
    return EXIT_SUCCESS;
}
