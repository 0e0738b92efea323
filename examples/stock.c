/* stock.c: take from a stock in two ways, and sell exactly what is there by both: read the row
 * under a lock, decide in code and write it back; or let one conditional UPDATE decide.
 *
 * cc stock.c -o stock $(pkg-config --cflags --libs pqtx libpq)
 * ./stock [connection string] */
#include <libpq-fe.h>
#include <pqtx.h>

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { STOCK = 200, CLIENTS = 4 };
#define ARTICLE PQTX_INT(7)

/* CREATE TABLE IF NOT EXISTS is not safe against itself: the lock makes it so. */
static pqtx_status fill(pqtx_tx *tx, void *arg)
{
    (void)arg;
    pqtx_lock(tx, 7077005);
    pqtx_exec(tx, "CREATE TABLE IF NOT EXISTS pqtx_stock (id int PRIMARY KEY, left_over int)",
              PQTX_NO_ARGS, NULL);
    return pqtx_exec(tx,
                     "INSERT INTO pqtx_stock VALUES ($1, $2)"
                     " ON CONFLICT (id) DO UPDATE SET left_over = EXCLUDED.left_over",
                     PQTX_ARGS(ARTICLE, PQTX_INT(STOCK)), NULL);
}

/* Read, decide, write.  Nobody changes the row between the two calls, so the decision may be as
 * long as a page of code.  In pipeline mode the write leaves together with COMMIT. */
static pqtx_status take_by_lock(pqtx_tx *tx, void *arg)
{
    static const char *const key[] = {"id", NULL}, *const columns[] = {"left_over", NULL};
    const PGresult *row;
    int64_t left, *taken = arg;
    pqtx_table table = PQTX_TABLE;

    table.name = "pqtx_stock";
    table.key = key;
    table.columns = columns;
    pqtx_status status =
        pqtx_row_read(tx, &table, PQTX_FOR_NO_KEY_UPDATE, PQTX_WAIT, PQTX_ARGS(ARTICLE), &row);
    if (status || (status = pqtx_get_int(row, 0, 1, &left)))
        return status;
    if (left == 0)
        return PQTX_EXHAUSTED;
    *taken = left > 100 ? 2 : 1; /* whatever one can think of */
    return pqtx_row_write(tx, &table, PQTX_ARGS(ARTICLE, PQTX_INT(left - *taken)));
}

/* The condition is all of the decision: no lock is held while anything travels. */
static pqtx_status take_by_update(pqtx_tx *tx, void *arg)
{
    *(int64_t *)arg = 1;
    return pqtx_update_one(
        tx, "UPDATE pqtx_stock SET left_over = left_over - 1 WHERE id = $1 AND left_over >= 1",
        PQTX_ARGS(ARTICLE));
}

struct client {
    pqtx_pool *pool;
    pqtx_work take;
    pthread_t thread;
    int64_t taken;
    pqtx_status status; /* that ended it */
};

static void *buy(void *arg)
{
    struct client *client = arg;
    pqtx_options options = PQTX_OPTIONS;
    int64_t taken;

    options.flags = PQTX_PIPELINE;
    while (!(client->status = pqtx_run(client->pool, &options, client->take, &taken, NULL)))
        client->taken += taken;
    return NULL;
}

static int sell(pqtx_pool *pool, const char *how, pqtx_work take)
{
    struct client clients[CLIENTS];
    pqtx_options options = PQTX_OPTIONS;
    int64_t taken = 0;
    int failed = 0;

    options.isolation = PQTX_ISO_READ_COMMITTED; /* pqtx_lock() asks for it */
    if (pqtx_run(pool, &options, fill, NULL, NULL))
        return 1;
    for (int i = 0; i < CLIENTS; i++) {
        clients[i] = (struct client){.pool = pool, .take = take};
        if (pthread_create(&clients[i].thread, NULL, buy, &clients[i]))
            abort();
    }
    for (int i = 0; i < CLIENTS; i++) {
        pthread_join(clients[i].thread, NULL);
        taken += clients[i].taken;
        failed |= clients[i].status != PQTX_EXHAUSTED && clients[i].status != PQTX_NO_MATCH;
    }
    printf("%s: %d clients took %" PRId64 " of %d\n", how, CLIENTS, taken, STOCK);
    return failed || taken != STOCK;
}

int main(int argc, char **argv)
{
    pqtx_pool_options options = PQTX_POOL_OPTIONS;
    pqtx_error error = PQTX_ERROR;
    pqtx_pool *pool;
    char line[1024];

    options.conninfo = argc > 1 ? argv[1] : getenv("PQTX_TEST_CONNINFO");
    if (pqtx_pool_open(&options, &pool, &error)) {
        pqtx_error_format(&error, line, sizeof line);
        fprintf(stderr, "stock: %s\n", line);
        return EXIT_FAILURE;
    }
    int failed = sell(pool, "read, decide, write", take_by_lock) ||
                 sell(pool, "one conditional UPDATE", take_by_update);
    pqtx_pool_close(pool);
    return failed;
}
