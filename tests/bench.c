/* bench.c: how many transactions a second, and at what cost, beside libpq by hand and peers.
 *
 * bench [WORKLOAD...]                   measures, and prints tables
 * bench -l [WORKLOAD...]                lists the contestants that run inside this program
 * bench -n COUNT WORKLOAD CONTESTANT    runs COUNT transactions, for those who count from outside
 *
 * The server is that of PQTX_TEST_CONNINFO, on a Unix socket.  The environment may say
 *   BENCH_SECONDS  how long one run is
 *   BENCH_ROUNDS   how many there are of each contestant
 *   BENCH_LINKS    the lines: "unix", or a round trip in ms
 *   BENCH_DATA     a directory for data to plot */
#define _DEFAULT_SOURCE
#include "bench_rounds.h"
#include "bench_table.h"
#include "bench_workloads.h"

#include <libpq-fe.h>
#include <pqtx.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct line {
    char name[16];
    const char *conninfo;
    struct proxy *proxy;  /* NULL: the Unix socket */
    double round_trip_ms; /* nominal */
};

static const char *knob(const char *name, const char *otherwise)
{
    const char *value = getenv(name);
    return value && *value ? value : otherwise;
}

static const char *server(void)
{
    const char *conninfo = getenv("PQTX_TEST_CONNINFO");
    if (!conninfo)
        die("PQTX_TEST_CONNINFO is not set: run me under tests/with-bench-server");
    return conninfo;
}

/* ---- lines */

static int open_lines(struct line *lines, int most)
{
    char list[256];
    int count = 0;
    snprintf(list, sizeof list, "%s", knob("BENCH_LINKS", "unix 1 5"));
    for (char *word = strtok(list, " "); word && count < most; word = strtok(NULL, " ")) {
        struct line *line = &lines[count++];
        *line = (struct line){.conninfo = server()};
        snprintf(line->name, sizeof line->name, strcmp(word, "unix") == 0 ? "%s" : "%sms", word);
        if (strcmp(word, "unix") == 0)
            continue;
        line->round_trip_ms = strtod(word, NULL);
        line->proxy = proxy_open(server(), line->round_trip_ms);
        line->conninfo = proxy_conninfo(line->proxy);
    }
    return count;
}

static void close_lines(struct line *lines, int count)
{
    for (int i = 0; i < count; i++)
        if (lines[i].proxy)
            proxy_close(lines[i].proxy);
}

/* The mean of some, as it really is. */
static double round_trip_ms(const char *conninfo)
{
    enum { COUNT = 20 };
    struct timespec start, end;
    PGconn *conn = PQconnectdb(conninfo);
    PQclear(PQexec(conn, ""));
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (int i = 0; i < COUNT; i++)
        PQclear(PQexec(conn, ""));
    clock_gettime(CLOCK_MONOTONIC, &end);
    PQfinish(conn);
    return ((double)(end.tv_sec - start.tv_sec) * 1e3 +
            (double)(end.tv_nsec - start.tv_nsec) / 1e6) /
           COUNT;
}

/* ---- what is to be done */

static bool is_wanted(const struct workload *workload, char *const *names)
{
    if (!*names)
        return true;
    while (*names && strcmp(*names, workload->name) != 0)
        names++;
    return *names;
}

static void assert_known(char *const *names)
{
    for (; *names; names++) {
        const struct workload *workload = workloads;
        while (workload->name && strcmp(workload->name, *names) != 0)
            workload++;
        if (!workload->name)
            die("no workload has the name %s", *names);
    }
}

static struct rounds rounds_of(const struct workload *workload)
{
    struct rounds rounds = {
        .workload = workload,
        .count = (int)strtol(knob("BENCH_ROUNDS", "3"), NULL, 10),
        .seconds = strtod(knob("BENCH_SECONDS", "0.15"), NULL),
    };
    if (rounds.count < 1 || rounds.count > ROUNDS_MAX)
        die("BENCH_ROUNDS must be 1 to %d", ROUNDS_MAX);
    for (const struct contestant *at = workload->contestants; at->name; at++)
        if (trial_is_possible(at))
            rounds.contestants[rounds.contestant_count++] = at;
    return rounds;
}

static void measure(const struct rounds *rounds, const struct line *line, int threads,
                    const struct cost *costs)
{
    struct outcome outcomes[CONTESTANTS_MAX];
    rounds_run(rounds, line->conninfo, threads, outcomes);
    table_lines(rounds, threads, outcomes, costs);
    table_data(rounds, line->name, threads, outcomes);
}

static void measure_workload(const struct workload *workload, const struct line *lines,
                             int line_count, struct proxy *counter)
{
    struct rounds rounds = rounds_of(workload);
    struct cost costs[CONTESTANTS_MAX];
    rounds_count(&rounds, counter, costs);
    for (int i = 0; i < line_count; i++) {
        const struct line *line = &lines[i];
        table_heading(workload, line->name, round_trip_ms(line->conninfo));
        for (const int *threads = workload->threads; *threads; threads++)
            measure(&rounds, line, *threads, costs);
        if (workload->slow_threads && line->round_trip_ms >= 5)
            measure(&rounds, line, workload->slow_threads, costs);
    }
}

static void print_machine(void)
{
    PGconn *conn = PQconnectdb(server());
    if (PQstatus(conn) != CONNECTION_OK)
        die("%s", PQerrorMessage(conn));
    int version = PQserverVersion(conn), library = PQlibVersion();
    printf("%ld cores for client and server; PostgreSQL %d.%d, libpq %d.%d, pqtx %s\n",
           sysconf(_SC_NPROCESSORS_ONLN), version / 10000, version % 10000, library / 10000,
           library % 10000, pqtx_version());
    printf("%s rounds of %s s: medians; a ratio is the median of those within a round\n",
           knob("BENCH_ROUNDS", "3"), knob("BENCH_SECONDS", "0.15"));
    PQfinish(conn);
}

static void measure_all(char *const *names)
{
    struct line lines[8];
    int count = open_lines(lines, (int)(sizeof lines / sizeof *lines));
    struct proxy *counter = proxy_open(server(), 1); /* long enough to tell who spoke first */
    print_machine();
    trial_open(server());
    for (const struct workload *workload = workloads; workload->name; workload++)
        if (is_wanted(workload, names))
            measure_workload(workload, lines, count, counter);
    trial_close();
    proxy_close(counter);
    close_lines(lines, count);
}

static void list(char *const *names)
{
    for (const struct workload *workload = workloads; workload->name; workload++) {
        struct rounds rounds = rounds_of(workload);
        for (int i = 0; i < rounds.contestant_count; i++)
            if (is_wanted(workload, names) && rounds.contestants[i]->library != PGBENCH)
                printf("%s\t%s\n", workload->name, rounds.contestants[i]->name);
    }
}

static void run_some(long transactions, const char *workload_name, const char *name)
{
    const struct workload *workload = workloads;
    while (strcmp(workload->name, workload_name) != 0)
        workload++;
    const struct contestant *contestant = workload->contestants;
    while (contestant->name && strcmp(contestant->name, name) != 0)
        contestant++;
    if (!contestant->name)
        die("%s has no contestant with the name %s", workload_name, name);
    const struct trial trial = {workload, contestant, server(), 1, 0, transactions};
    trial_open(server());
    trial_run(&trial);
    trial_close();
}

int main(int argc, char **argv)
{
    long transactions = 0;
    bool listing = false;
    for (int option; (option = getopt(argc, argv, "ln:")) != -1;) {
        if (option == 'l')
            listing = true;
        else if (option != 'n' || (transactions = strtol(optarg, NULL, 10)) < 1)
            die("usage: bench [-l] [WORKLOAD...], bench -n COUNT WORKLOAD CONTESTANT");
    }
    char *const *names = argv + optind;
    if (transactions > 0 && argc - optind != 2)
        die("which workload, and which contestant?");
    assert_known(transactions > 0 ? (char *[]){argv[optind], NULL} : names);
    if (listing)
        list(names);
    else if (transactions > 0)
        run_some(transactions, argv[optind], argv[optind + 1]);
    else
        measure_all(names);
    return EXIT_SUCCESS;
}
