/* counter.c: many threads count on one row; every number is drawn once, and none is lost.
 *
 * cc -pthread counter.c -o counter $(pkg-config --cflags --libs pqtx)
 * ./counter [connection string] */
#include <pqtx.h>

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { THREADS = 16, ROUNDS = 200 };

static const char *const key = "visitors";

struct visitor {
    pqtx_group *group;
    pthread_t thread;
    int64_t numbers[ROUNDS];
    pqtx_error error;
};

/* Each call returns when its own increment is committed, and says which number it made. */
static void *visit(void *arg)
{
    struct visitor *visitor = arg;

    for (int i = 0; i < ROUNDS; i++)
        if (pqtx_group_add(visitor->group, PQTX_TEXT(key), 1, 0, &visitor->numbers[i],
                           &visitor->error))
            break;
    return NULL;
}

static int failed(const pqtx_error *error)
{
    char line[1024];

    pqtx_error_format(error, line, sizeof line);
    fprintf(stderr, "counter: %s\n", line);
    return EXIT_FAILURE;
}

/* How many of the numbers after `before` were drawn exactly once. */
static int count_single(const struct visitor *visitors, int64_t before)
{
    static char drawn[THREADS * ROUNDS];
    int single = 0;

    for (int i = 0; i < THREADS; i++)
        for (int j = 0; j < ROUNDS; j++) {
            int64_t at = visitors[i].numbers[j] - before - 1;
            if (at >= 0 && at < THREADS * ROUNDS)
                single += !drawn[at]++;
        }
    return single;
}

static int run_all(pqtx_group *group, struct visitor *visitors)
{
    int exit_status = EXIT_SUCCESS, started = 0;

    for (; started < THREADS; started++) {
        struct visitor *visitor = &visitors[started];
        visitor->group = group;
        visitor->error = (pqtx_error)PQTX_ERROR;
        if (pthread_create(&visitor->thread, NULL, visit, visitor))
            break;
    }
    for (int i = 0; i < started; i++) {
        pthread_join(visitors[i].thread, NULL);
        if (visitors[i].error.status)
            exit_status = failed(&visitors[i].error);
    }
    return started == THREADS ? exit_status : EXIT_FAILURE;
}

static int count(pqtx_pool *pool)
{
    static struct visitor visitors[THREADS];
    pqtx_counter counter = PQTX_COUNTER;
    pqtx_stats stats = PQTX_STATS;
    pqtx_error error = PQTX_ERROR;
    pqtx_group *group;
    int64_t before, after;

    counter.table = "pqtx_visit";
    if (pqtx_counter_install(pool, &counter, &error) ||
        pqtx_counter_add_now(pool, NULL, &counter, PQTX_TEXT(key), 0, &before, &error) ||
        pqtx_group_open(pool, &counter, NULL, &group, &error))
        return failed(&error);
    pqtx_pool_stats(pool, &stats);
    uint64_t commits = stats.commits;
    int exit_status = run_all(group, visitors);
    pqtx_group_close(group);
    pqtx_pool_stats(pool, &stats);
    if (exit_status)
        return exit_status;
    if (pqtx_counter_get_now(pool, NULL, &counter, PQTX_TEXT(key), &after, &error))
        return failed(&error);

    int single = count_single(visitors, before);
    printf("%d threads counted from %" PRId64 " to %" PRId64 " in %" PRIu64 " transactions;"
           " %d of %d numbers were drawn once.\n",
           THREADS, before, after, stats.commits - commits, single, THREADS * ROUNDS);
    return after - before == THREADS * ROUNDS && single == THREADS * ROUNDS ? EXIT_SUCCESS
                                                                            : EXIT_FAILURE;
}

int main(int argc, char **argv)
{
    pqtx_pool_options options = PQTX_POOL_OPTIONS;
    pqtx_error error = PQTX_ERROR;
    pqtx_pool *pool;

    options.conninfo = argc > 1 ? argv[1] : getenv("PQTX_TEST_CONNINFO");
    options.max_count = 2; /* enough for all of them */
    if (pqtx_pool_open(&options, &pool, &error))
        return failed(&error);
    int exit_status = count(pool);
    pqtx_pool_close(pool);
    return exit_status;
}
