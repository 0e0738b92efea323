/* flight.c: store many readings, each by itself, up to 64 in one round trip; a bad one is refused
 * and takes none of the others along.
 *
 * cc flight.c -o flight $(pkg-config --cflags --libs pqtx libpq)
 * ./flight [connection string] */
#include <libpq-fe.h>
#include <pqtx.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { COUNT = 200, BAD = 77 };

/* CREATE TABLE IF NOT EXISTS is not safe against itself: the lock makes it so. */
static pqtx_status open_station(pqtx_tx *tx, void *arg)
{
    const PGresult *row;

    pqtx_lock(tx, 7077005);
    pqtx_exec(tx,
              "CREATE TABLE IF NOT EXISTS pqtx_reading (day bigint, hour int, celsius float8"
              " CHECK (celsius > -273.15), PRIMARY KEY (day, hour))",
              PQTX_NO_ARGS, NULL);
    pqtx_status status =
        pqtx_exec_one(tx, "SELECT coalesce(max(day), 0) + 1 FROM pqtx_reading", PQTX_NO_ARGS, &row);
    return status ? status : pqtx_get_int(row, 0, 0, arg);
}

/* Each item is a statement of its own, with values of its own, which live until the call returns.
 * A lost race is begun again for its item alone. */
static void measure(int64_t day, pqtx_value values[COUNT][3], pqtx_item items[COUNT])
{
    for (int i = 0; i < COUNT; i++) {
        values[i][0] = pqtx_int(day);
        values[i][1] = pqtx_int(i);
        values[i][2] = pqtx_real(i == BAD ? -300 : 20 + i % 7 / 10.0);
        items[i] = (pqtx_item)PQTX_ITEM;
        items[i].sql = "INSERT INTO pqtx_reading VALUES ($1, $2, $3)";
        items[i].values = values[i];
        items[i].count = 3;
        items[i].expected = 1;
    }
}

/* Status and error are those of the first item that did not commit, error.call is its place, from
 * 1; each item has its own status as well. */
static int store(pqtx_pool *pool, int64_t day)
{
    static pqtx_value values[COUNT][3];
    static pqtx_item items[COUNT];
    pqtx_error error = PQTX_ERROR;
    int stored = 0;

    measure(day, values, items);
    if (pqtx_run_each(pool, NULL, items, COUNT, &error))
        printf("Reading %" PRId32 " is the first that failed: %s.\n", error.call - 1,
               error.message);
    for (int i = 0; i < COUNT; i++) {
        if (items[i].outcome == PQTX_OUTCOME_COMMITTED)
            stored++;
        else
            printf("Reading %d: %s.\n", i, pqtx_status_name(items[i].status));
        PQclear(items[i].result);
    }
    printf("%d of %d readings are stored.\n", stored, COUNT);
    return stored == COUNT - 1 && items[BAD].status == PQTX_CHECK;
}

int main(int argc, char **argv)
{
    pqtx_pool_options options = PQTX_POOL_OPTIONS;
    pqtx_options run_options = PQTX_OPTIONS;
    pqtx_error error = PQTX_ERROR;
    pqtx_pool *pool = NULL;
    int64_t day = 0;
    int right = 0;

    options.conninfo = argc > 1 ? argv[1] : getenv("PQTX_TEST_CONNINFO");
    run_options.isolation = PQTX_ISO_READ_COMMITTED; /* pqtx_lock() asks for it */
    if (pqtx_pool_open(&options, &pool, &error) ||
        pqtx_run(pool, &run_options, open_station, &day, &error))
        fprintf(stderr, "flight: %s: %s\n", pqtx_status_name(error.status), error.message);
    else
        right = store(pool, day);
    pqtx_pool_close(pool);
    return right ? EXIT_SUCCESS : EXIT_FAILURE;
}
