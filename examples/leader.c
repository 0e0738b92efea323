/* leader.c: one scheduler of two leads, and one that was paused and does not know that it leads no
 * more cannot write.
 *
 * cc leader.c -o leader $(pkg-config --cflags --libs pqtx libpq)
 * ./leader [connection string] */
#include <pqtx.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define ROLE "pqtx example"

struct scheduler {
    const char *name;
    pqtx_leader *leader;
    int64_t epoch; /* of the term of office in which it works */
};

static int failed(const char *what, const pqtx_error *error)
{
    char line[1024];

    pqtx_error_format(error, line, sizeof line);
    fprintf(stderr, "leader: %s: %s\n", what, line);
    return 0;
}

/* The fence rides with the write: one round trip, and no write without it. */
static pqtx_status write_tick(pqtx_tx *tx, void *arg)
{
    const struct scheduler *s = arg;

    pqtx_pipeline(tx);
    pqtx_fence(tx, NULL, ROLE, s->epoch);
    return pqtx_exec(tx, "INSERT INTO pqtx_tick (epoch, who) VALUES ($1, $2)",
                     PQTX_ARGS(PQTX_INT(s->epoch), PQTX_TEXT(s->name)), NULL);
}

/* 1 if that is what comes of it. */
static int tick(pqtx_pool *pool, struct scheduler *s, pqtx_status expected)
{
    pqtx_error error = PQTX_ERROR;
    pqtx_status status = pqtx_run(pool, NULL, write_tick, s, &error);

    printf("  %s writes with epoch %" PRId64 ": %s\n", s->name, s->epoch, pqtx_status_name(status));
    return status == expected || failed("write", &error);
}

static int take_over(struct scheduler *s)
{
    pqtx_error error = PQTX_ERROR;

    if (pqtx_leader_wait(s->leader, 20000, &error) != PQTX_OK)
        return failed(s->name, &error);
    s->epoch = pqtx_leader_epoch(s->leader);
    printf("%s leads, in epoch %" PRId64 ".\n", s->name, s->epoch);
    return 1;
}

/* What a server, a firewall or a network does to the session of a program that stands still. */
static int end_session(pqtx_pool *pool)
{
    pqtx_error error = PQTX_ERROR;
    pqtx_status status = pqtx_run_one(
        pool, NULL, "SELECT pg_terminate_backend(pid) FROM pqtx_leader WHERE name = $1",
        PQTX_ARGS(PQTX_TEXT(ROLE)), 1, NULL, &error);

    return status == PQTX_OK || failed("ending the session", &error);
}

static int play(pqtx_pool *pool, struct scheduler *north, struct scheduler *south)
{
    if (!take_over(north) || !tick(pool, north, PQTX_OK))
        return 0;
    if (pqtx_leader_try(south->leader, NULL) != PQTX_BUSY)
        return 0;
    puts("south has to wait.  Then north's machine stands still, and its session ends.");
    if (!end_session(pool) || !take_over(south) || !tick(pool, south, PQTX_OK))
        return 0;
    puts("north wakes up in the middle of its work:");
    if (!tick(pool, north, PQTX_LEASE_LOST) || pqtx_leader_is(north->leader))
        return 0;
    puts("north has looked at its connection: it does not lead.");
    return tick(pool, south, PQTX_OK);
}

static int prepare(pqtx_pool *pool, struct scheduler schedulers[2])
{
    pqtx_error error = PQTX_ERROR;
    pqtx_status status = pqtx_leader_install(pool, NULL, &error);

    if (status == PQTX_OK)
        status = pqtx_run_one(pool, NULL,
                              "CREATE TABLE IF NOT EXISTS pqtx_tick (epoch bigint, who text)",
                              PQTX_NO_ARGS, PQTX_ANY_ROWS, NULL, &error);
    for (int i = 0; i < 2 && status == PQTX_OK; i++)
        status = pqtx_leader_open(pool, ROLE, NULL, &schedulers[i].leader, &error);
    return status == PQTX_OK || failed("preparing", &error);
}

int main(int argc, char **argv)
{
    pqtx_pool_options options = PQTX_POOL_OPTIONS;
    pqtx_error error = PQTX_ERROR;
    pqtx_pool *pool;
    struct scheduler schedulers[2] = {{.name = "north"}, {.name = "south"}};

    options.conninfo = argc > 1 ? argv[1] : getenv("PQTX_TEST_CONNINFO");
    if (pqtx_pool_open(&options, &pool, &error) != PQTX_OK) {
        failed("connecting", &error);
        return EXIT_FAILURE;
    }
    int right = prepare(pool, schedulers) && play(pool, &schedulers[0], &schedulers[1]);
    for (int i = 0; i < 2; i++)
        pqtx_leader_close(schedulers[i].leader);
    pqtx_pool_close(pool);
    puts(right ? "Nothing was written by one that had been superseded." : "This went wrong.");
    return right ? EXIT_SUCCESS : EXIT_FAILURE;
}
