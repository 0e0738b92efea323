/* bench_trial.c: one run of one contestant: some threads, for some time. */
#define _GNU_SOURCE
#include "bench_trial.h"
#include "bench_pgbench.h"
#include "bench_pqtx.h"
#include "bench_pqxx.h"
#include "bench_raw.h"

#include <libpq-fe.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

#define WARM_UP 3 /* transactions of each thread, on a row of its own, before the clock starts */

static PGconn *monitor;

void die(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fflush(stdout);
    fputs("bench: ", stderr);
    vfprintf(stderr, format, arguments);
    fputs("\n", stderr);
    exit(EXIT_FAILURE);
}

/* ---- the tables */

static int64_t ask(const char *sql)
{
    PGresult *result = PQexec(monitor, sql);
    ExecStatusType status = PQresultStatus(result);
    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
        die("%s", PQerrorMessage(monitor));
    int64_t answer = PQntuples(result) > 0 ? strtoll(PQgetvalue(result, 0, 0), NULL, 10) : 0;
    PQclear(result);
    return answer;
}

static void ignore(void *arg, const PGresult *notice)
{
    (void)arg;
    (void)notice;
}

void trial_open(const char *conninfo)
{
    monitor = PQconnectdb(conninfo);
    PQsetNoticeReceiver(monitor, ignore, NULL);
    ask("DROP TABLE IF EXISTS bench_stock, bench_counter;"
        "CREATE TABLE bench_stock (id int PRIMARY KEY, left_over int NOT NULL)"
        " WITH (fillfactor = 50, autovacuum_enabled = off);"
        "CREATE TABLE bench_counter (id int PRIMARY KEY, value int NOT NULL)"
        " WITH (fillfactor = 50, autovacuum_enabled = off)");
}

void trial_close(void)
{
    ask("DROP TABLE bench_stock, bench_counter");
    PQfinish(monitor);
}

static void fill_tables(void)
{
    char sql[256];
    snprintf(sql, sizeof sql,
             "TRUNCATE bench_stock, bench_counter;"
             "INSERT INTO bench_stock SELECT i, %d FROM generate_series(1, %d) i",
             BENCH_STOCK, BENCH_ROWS);
    ask(sql);
}

static void check_tables(const struct trial *trial, int64_t committed)
{
    int64_t shown = ask(trial->workload->done);
    int64_t expected = trial->contestant->idle ? 0 : committed;
    if (shown != expected)
        die("%s, %s: %lld transactions are in the tables, %lld were told", trial->workload->name,
            trial->contestant->name, (long long)shown, (long long)expected);
}

/* ---- the threads */

struct crew {
    const struct trial *trial;
    pqtx_pool *pool;
    pthread_barrier_t all;
};

struct worker {
    struct crew *crew;
    int number;
    pthread_t thread;
    int64_t count; /* without the warm-up */
    double start, end, cpu_us;
};

static double now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static double thread_cpu_us(void)
{
    struct rusage used;
    getrusage(RUSAGE_THREAD, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1e6 +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

static void sit_down(struct seat *seat, struct crew *crew)
{
    const struct trial *trial = crew->trial;
    switch (trial->contestant->library) {
    case RAW:
        seat->conn = raw_open(trial->conninfo);
        break;
    case PQTX:
        seat->pool = crew->pool;
        ours_warm(seat->pool, &crew->all);
        break;
    case PQXX:
        seat->pqxx = peer_open(trial->conninfo);
        break;
    case PGBENCH:
        die("pgbench has threads of its own");
    }
}

static void stand_up(struct seat *seat)
{
    PQfinish(seat->conn);
    if (seat->pqxx)
        peer_close(seat->pqxx);
}

static void work(struct worker *worker, struct seat *seat)
{
    const struct trial *trial = worker->crew->trial;
    bench_run run = trial->contestant->run;
    double cpu_us = thread_cpu_us(), until;
    worker->start = now();
    until = worker->start + trial->seconds;
    do {
        run(seat);
        worker->count++;
        worker->end = now();
    } while (trial->transactions ? worker->count < trial->transactions : worker->end < until);
    worker->cpu_us = thread_cpu_us() - cpu_us;
}

static void *begin(void *arg)
{
    struct worker *worker = arg;
    struct crew *crew = worker->crew;
    int32_t own = 2 * worker->number + 1;
    struct seat seat = {.row = own, .other_row = own + 1};
    sit_down(&seat, crew);
    for (int i = 0; i < WARM_UP; i++)
        crew->trial->contestant->run(&seat);
    if (crew->trial->workload->is_hot)
        seat.row = 1;
    pthread_barrier_wait(&crew->all);
    work(worker, &seat);
    pthread_barrier_wait(&crew->all); /* nobody's good-bye disturbs those who still work */
    stand_up(&seat);
    return NULL;
}

static struct sample run_threads(const struct trial *trial, int64_t *committed)
{
    struct crew crew = {.trial = trial};
    struct worker workers[BENCH_ROWS / 2];
    int64_t count = 0;
    double start = 0, end = 0, cpu_us = 0;
    if (trial->contestant->library == PQTX)
        crew.pool = ours_open(trial->conninfo, trial->threads);
    pthread_barrier_init(&crew.all, NULL, (unsigned)trial->threads);
    for (int i = 0; i < trial->threads; i++) {
        workers[i] = (struct worker){.crew = &crew, .number = i};
        if (pthread_create(&workers[i].thread, NULL, begin, &workers[i]) != 0)
            die("no more threads");
    }
    for (int i = 0; i < trial->threads; i++) {
        const struct worker *worker = &workers[i];
        pthread_join(worker->thread, NULL);
        start = i == 0 || worker->start < start ? worker->start : start;
        end = worker->end > end ? worker->end : end;
        count += worker->count;
        cpu_us += worker->cpu_us;
    }
    pthread_barrier_destroy(&crew.all);
    pqtx_pool_close(crew.pool);
    *committed = count + WARM_UP * trial->threads;
    return (struct sample){(double)count / (end - start), cpu_us / (double)count};
}

struct sample trial_run(const struct trial *trial)
{
    int64_t committed;
    struct sample sample;
    fill_tables();
    if (trial->contestant->library == PGBENCH)
        sample = pgbench_run(trial, &committed);
    else
        sample = run_threads(trial, &committed);
    check_tables(trial, committed);
    return sample;
}

bool trial_is_possible(const struct contestant *contestant)
{
    if (contestant->library == PQXX)
        return peer_open != NULL;
    return contestant->library != PGBENCH || pgbench_is_there();
}
