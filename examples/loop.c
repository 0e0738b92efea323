/* loop.c: read a row, decide in C, write it back: the plain loop, without a callback.
 *
 * cc loop.c -o loop $(pkg-config --cflags --libs pqtx libpq)
 * ./loop [connection string] */
#include <libpq-fe.h>
#include <pqtx.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static pqtx_status finish(pqtx_tx *tx, pqtx_error *error)
{
    pqtx_status status = pqtx_result(tx);

    pqtx_get_error(tx, error);
    pqtx_free(tx);
    return status;
}

/* CREATE TABLE IF NOT EXISTS is not safe against itself: the lock makes it so.  After a call that
 * failed the later ones send nothing, and pqtx_commit() rolls back: none needs a check here. */
static pqtx_status open_auction(pqtx_pool *pool, pqtx_error *error)
{
    pqtx_options options = PQTX_OPTIONS;

    options.isolation = PQTX_ISO_READ_COMMITTED; /* pqtx_lock() asks for it */
    pqtx_tx *tx = pqtx_new(pool, &options);
    while (pqtx_attempt(tx)) {
        pqtx_lock(tx, 7077002);
        pqtx_exec(tx, "CREATE TABLE IF NOT EXISTS pqtx_lot (id int PRIMARY KEY, highest bigint)",
                  PQTX_NO_ARGS, NULL);
        pqtx_exec(tx, "INSERT INTO pqtx_lot VALUES (1, 10) ON CONFLICT DO NOTHING", PQTX_NO_ARGS,
                  NULL);
        pqtx_commit(tx);
    }
    return finish(tx, error);
}

static int64_t next_bid(int64_t highest)
{
    return highest + (highest < 100 ? 5 : highest < 1000 ? 10 : 50);
}

/* The lock that the SELECT takes keeps true until COMMIT what was read.  Each round is the whole
 * transaction, so everything is read and decided anew. */
static pqtx_status bid(pqtx_pool *pool, int64_t *before, int64_t *after, pqtx_error *error)
{
    pqtx_tx *tx = pqtx_new(pool, NULL);

    while (pqtx_attempt(tx)) {
        const PGresult *row;
        pqtx_status status =
            pqtx_exec_one(tx, "SELECT highest FROM pqtx_lot WHERE id = $1 FOR NO KEY UPDATE",
                          PQTX_ARGS(PQTX_INT(1)), &row);

        if (status == PQTX_OK)
            status = pqtx_get_int(row, 0, 0, before);
        if (status != PQTX_OK) {
            pqtx_fail(tx, status);
            continue;
        }
        *after = next_bid(*before);
        pqtx_update_one(tx, "UPDATE pqtx_lot SET highest = $2 WHERE id = $1",
                        PQTX_ARGS(PQTX_INT(1), PQTX_INT(*after)));
        pqtx_commit(tx);
    }
    return finish(tx, error);
}

static int failed(const pqtx_error *error)
{
    char line[1024];

    pqtx_error_format(error, line, sizeof line);
    fprintf(stderr, "loop: %s\n", line);
    return EXIT_FAILURE;
}

int main(int argc, char **argv)
{
    pqtx_pool_options options = PQTX_POOL_OPTIONS;
    pqtx_error error = PQTX_ERROR;
    pqtx_pool *pool;
    int64_t before = 0, after = 0;

    options.conninfo = argc > 1 ? argv[1] : getenv("PQTX_TEST_CONNINFO");
    if (pqtx_pool_open(&options, &pool, &error))
        return failed(&error);
    int exit_status = EXIT_SUCCESS;
    if (open_auction(pool, &error) || bid(pool, &before, &after, &error))
        exit_status = failed(&error);
    else
        printf("Lot 1 stood at %" PRId64 ", and %" PRId64 " is the highest bid now.\n", before,
               after);
    pqtx_pool_close(pool);
    return exit_status;
}
