/* seat.c: book a seat if it is still free; that it is gone is an answer, not an error.
 *
 * cc seat.c -o seat $(pkg-config --cflags --libs pqtx libpq)
 * ./seat [connection string] */
#include <libpq-fe.h>
#include <pqtx.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

struct booking {
    int64_t seat;
    const char *customer;
};

/* Puts up one new seat.  CREATE TABLE IF NOT EXISTS is not safe against itself: the lock makes it
 * so.  A call after a failed one returns the same failure and sends nothing, so only the last one
 * is looked at. */
static pqtx_status open_sale(pqtx_tx *tx, void *arg)
{
    struct booking *booking = arg;
    const PGresult *row;

    pqtx_lock(tx, 7077001);
    pqtx_exec(tx,
              "CREATE TABLE IF NOT EXISTS pqtx_seat"
              " (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, taken_by text)",
              PQTX_NO_ARGS, NULL);
    pqtx_status status =
        pqtx_exec_one(tx, "INSERT INTO pqtx_seat DEFAULT VALUES RETURNING id", PQTX_NO_ARGS, &row);
    return status ? status : pqtx_get_int(row, 0, 0, &booking->seat);
}

/* The condition stands in the statement, so the server checks it on the newest row, under its lock:
 * of any number of customers exactly one changes a row, and the others get PQTX_NO_MATCH. */
static pqtx_status book(pqtx_tx *tx, void *arg)
{
    const struct booking *booking = arg;

    return pqtx_update_one(tx,
                           "UPDATE pqtx_seat SET taken_by = $2 WHERE id = $1 AND taken_by IS NULL",
                           PQTX_ARGS(PQTX_INT(booking->seat), PQTX_TEXT(booking->customer)));
}

static int failed(const pqtx_error *error)
{
    char line[1024];

    pqtx_error_format(error, line, sizeof line);
    fprintf(stderr, "seat: %s\n", line);
    return EXIT_FAILURE;
}

static int sell(pqtx_pool *pool)
{
    static const char *const customers[] = {"Ann", "Bob"};
    struct booking booking = {0};
    pqtx_options options = PQTX_OPTIONS;
    pqtx_error error = PQTX_ERROR;

    options.isolation = PQTX_ISO_READ_COMMITTED; /* pqtx_lock() asks for it */
    if (pqtx_run(pool, &options, open_sale, &booking, &error))
        return failed(&error);
    for (size_t i = 0; i < sizeof customers / sizeof *customers; i++) {
        booking.customer = customers[i];
        pqtx_status status = pqtx_run(pool, NULL, book, &booking, &error);
        if (status == PQTX_OK)
            printf("%s has seat %" PRId64 ".\n", booking.customer, booking.seat);
        else if (status == PQTX_NO_MATCH)
            printf("Sorry, %s: seat %" PRId64 " is gone.\n", booking.customer, booking.seat);
        else
            return failed(&error);
    }
    return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
    pqtx_pool_options options = PQTX_POOL_OPTIONS;
    pqtx_error error = PQTX_ERROR;
    pqtx_pool *pool;

    options.conninfo = argc > 1 ? argv[1] : getenv("PQTX_TEST_CONNINFO");
    if (pqtx_pool_open(&options, &pool, &error))
        return failed(&error);
    int exit_status = sell(pool);
    pqtx_pool_close(pool);
    return exit_status;
}
