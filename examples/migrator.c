/* migrator.c: schema migrations, one migrator at a time, and never in the way of those who read.
 *
 * cc migrator.c -o migrator $(pkg-config --cflags --libs pqtx libpq) -pthread
 * ./migrator [connection string] */
#define _POSIX_C_SOURCE 200809L
#include <libpq-fe.h>
#include <pqtx.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { LOCK_MIGRATION = 7077010, MIGRATORS = 3 }; /* the number is the same in every program */

/* Appended to, never changed. */
static const char *const migrations[] = {
    "CREATE TABLE pqtx_parcel (id bigint PRIMARY KEY, address text)",
    "ALTER TABLE pqtx_parcel ADD COLUMN grams bigint",
    "ALTER TABLE pqtx_parcel ADD CONSTRAINT pqtx_parcel_grams CHECK (grams > 0) NOT VALID",
};
enum { NEWEST = sizeof migrations / sizeof *migrations };

struct migrator {
    pthread_t thread;
    pqtx_pool *pool;
    int64_t version, target, applied; /* at which it is, to which it goes, steps of its own */
    pqtx_status status;
    pqtx_error error;
};

/* DDL waits for those who use the table, and whoever comes next waits behind it, readers too: so it
 * waits for a moment only.  PQTX_BUSY begins the transaction again, after a pause in which all of
 * them pass. */
static pqtx_status step(pqtx_tx *tx, void *arg)
{
    struct migrator *m = arg;
    const PGresult *row;

    pqtx_lock_wait(tx, LOCK_MIGRATION); /* as long as another one is at it, up to the deadline */
    pqtx_exec(tx, "CREATE TABLE IF NOT EXISTS pqtx_migration (version bigint PRIMARY KEY)",
              PQTX_NO_ARGS, NULL);
    pqtx_status status = pqtx_exec_one(tx, "SELECT coalesce(max(version), 0) FROM pqtx_migration",
                                       PQTX_NO_ARGS, &row);
    if (status == PQTX_OK)
        status = pqtx_get_int(row, 0, 0, &m->version);
    if (status != PQTX_OK || m->version >= m->target)
        return status;
    pqtx_set_lock_timeout(tx, 50);
    pqtx_exec(tx, migrations[m->version], PQTX_NO_ARGS, NULL);
    return pqtx_exec(tx, "INSERT INTO pqtx_migration VALUES ($1)",
                     PQTX_ARGS(PQTX_INT(m->version + 1)), NULL);
}

static void *migrate(void *arg)
{
    struct migrator *m = arg;
    pqtx_options options = PQTX_OPTIONS;

    options.isolation = PQTX_ISO_READ_COMMITTED; /* pqtx_lock_wait() asks for it */
    options.deadline_ms = 60000;
    options.max_attempts = 1000;
    options.lock_timeout_ms = 1000; /* of one slice of the wait for the other migrators */
    m->error = (pqtx_error)PQTX_ERROR;
    do {
        m->status = pqtx_run(m->pool, &options, step, m, &m->error);
        m->applied += m->status == PQTX_OK && m->version < m->target;
    } while (m->status == PQTX_OK && m->version < m->target);
    return NULL;
}

/* Goes on reading until the migrators have met it in their way. */
static void read_for_a_while(pqtx_pool *pool, pqtx_tx *reader)
{
    pqtx_stats stats = PQTX_STATS;

    for (int i = 0; i < 10000 && stats.retries_busy == 0; i++) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        pqtx_pool_stats(pool, &stats);
    }
    pqtx_commit(reader);
}

static int64_t run_all(pqtx_pool *pool)
{
    struct migrator first = {.pool = pool, .target = 1}, migrators[MIGRATORS];
    pqtx_tx *reader = pqtx_new(pool, NULL);
    int64_t applied = 0;

    migrate(&first);
    if (!pqtx_attempt(reader) ||
        pqtx_exec(reader, "SELECT count(*) FROM pqtx_parcel", PQTX_NO_ARGS, NULL) != PQTX_OK)
        exit(EXIT_FAILURE);
    for (int i = 0; i < MIGRATORS; i++)
        migrators[i] = (struct migrator){.pool = pool, .target = NEWEST};
    for (int i = 0; i < MIGRATORS; i++)
        if (pthread_create(&migrators[i].thread, NULL, migrate, &migrators[i]) != 0)
            exit(EXIT_FAILURE);
    read_for_a_while(pool, reader);
    pqtx_free(reader);
    for (int i = 0; i < MIGRATORS; i++) {
        pthread_join(migrators[i].thread, NULL);
        printf("migrator %d: %s, %d steps\n", i, pqtx_status_name(migrators[i].status),
               (int)migrators[i].applied);
        if (migrators[i].status != PQTX_OK)
            fprintf(stderr, "migrator: %s\n", migrators[i].error.message);
        applied += migrators[i].applied;
    }
    return first.applied + applied;
}

int main(int argc, char **argv)
{
    pqtx_pool_options options = PQTX_POOL_OPTIONS;
    pqtx_error error = PQTX_ERROR;
    pqtx_stats stats = PQTX_STATS;
    pqtx_pool *pool;

    options.conninfo = argc > 1 ? argv[1] : getenv("PQTX_TEST_CONNINFO");
    if (pqtx_pool_open(&options, &pool, &error) != PQTX_OK ||
        pqtx_run_one(pool, NULL, "DROP TABLE IF EXISTS pqtx_parcel, pqtx_migration", PQTX_NO_ARGS,
                     PQTX_ANY_ROWS, NULL, &error) != PQTX_OK) {
        fprintf(stderr, "migrator: %s\n", error.message);
        return EXIT_FAILURE;
    }
    int64_t applied = run_all(pool);
    pqtx_pool_stats(pool, &stats);
    pqtx_pool_close(pool);
    printf("%d of %d steps applied, each once; the way was barred %d times, and tried again.\n",
           (int)applied, NEWEST, (int)stats.retries_busy);
    return applied == NEWEST && stats.retries_busy > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
