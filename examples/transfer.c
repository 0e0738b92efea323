/* transfer.c: move money between two accounts at SERIALIZABLE, and never overdraw one: two round
 * trips, one to read and one to write.
 *
 * cc transfer.c -o transfer $(pkg-config --cflags --libs pqtx libpq)
 * ./transfer [connection string] */
#include <libpq-fe.h>
#include <pqtx.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define OVERDRAFT (PQTX_USER + 1) /* a status of our own: pqtx_run() passes it through */

struct transfer {
    int from, to, amount;
};

/* CREATE TABLE IF NOT EXISTS is not safe against itself: the lock makes it so. */
static pqtx_status open_bank(pqtx_tx *tx, void *arg)
{
    (void)arg;
    pqtx_lock(tx, 7077003);
    pqtx_exec(tx, "CREATE TABLE IF NOT EXISTS pqtx_account (id int PRIMARY KEY, balance bigint)",
              PQTX_NO_ARGS, NULL);
    return pqtx_exec(tx, "INSERT INTO pqtx_account VALUES (1, 90), (2, 90) ON CONFLICT DO NOTHING",
                     PQTX_NO_ARGS, NULL);
}

static pqtx_status read_number(pqtx_tx *tx, const char *sql, int count, const pqtx_value *values,
                               int64_t *number)
{
    const PGresult *row;
    pqtx_status status = pqtx_exec_one(tx, sql, count, values, &row);

    return status ? status : pqtx_get_int(row, 0, 0, number);
}

/* Nothing is locked.  If what was read is not true any more, the server says so, at the latest at
 * COMMIT, and the whole body runs again: sound as long as every writer is SERIALIZABLE.
 *
 * In pipeline mode calls are queued.  pqtx_flush() sends the two reads and waits for them; the two
 * writes leave with COMMIT when the body has returned. */
static pqtx_status move(pqtx_tx *tx, void *arg)
{
    static const char get[] = "SELECT balance FROM pqtx_account WHERE id = $1";
    static const char set[] = "UPDATE pqtx_account SET balance = $2 WHERE id = $1";
    const struct transfer *t = arg;
    const PGresult *giver, *taker;
    int64_t from, to;

    pqtx_pipeline(tx);
    pqtx_exec_one(tx, get, PQTX_ARGS(PQTX_INT(t->from)), &giver);
    pqtx_exec_one(tx, get, PQTX_ARGS(PQTX_INT(t->to)), &taker);
    pqtx_status status = pqtx_flush(tx);
    if (status || (status = pqtx_get_int(giver, 0, 0, &from)) ||
        (status = pqtx_get_int(taker, 0, 0, &to)))
        return status;
    if (from < t->amount)
        return OVERDRAFT;
    pqtx_update_one(tx, set, PQTX_ARGS(PQTX_INT(t->from), PQTX_INT(from - t->amount)));
    return pqtx_update_one(tx, set, PQTX_ARGS(PQTX_INT(t->to), PQTX_INT(to + t->amount)));
}

static pqtx_status count_money(pqtx_tx *tx, void *arg)
{
    return read_number(tx, "SELECT sum(balance)::bigint FROM pqtx_account", PQTX_NO_ARGS, arg);
}

static pqtx_status trade(pqtx_pool *pool, int64_t *before, int64_t *after, pqtx_error *error)
{
    static struct transfer day[] = {{1, 2, 5}, {2, 1, 5}, {1, 2, 1000}};
    pqtx_options options = PQTX_OPTIONS;

    options.isolation = PQTX_ISO_READ_COMMITTED; /* pqtx_lock() asks for it */
    pqtx_status status = pqtx_run(pool, &options, open_bank, NULL, error);
    options.isolation = PQTX_ISO_SERIALIZABLE;
    if (status || (status = pqtx_run(pool, &options, count_money, before, error)))
        return status;
    for (struct transfer *t = day; t < day + sizeof day / sizeof *day; t++) {
        status = pqtx_run(pool, &options, move, t, error);
        if (status != PQTX_OK && status != OVERDRAFT)
            return status;
        printf("%d from account %d to %d: %s.\n", t->amount, t->from, t->to,
               status == OVERDRAFT ? "refused, there is not that much" : "done");
    }
    return pqtx_run(pool, &options, count_money, after, error);
}

int main(int argc, char **argv)
{
    pqtx_pool_options options = PQTX_POOL_OPTIONS;
    pqtx_error error = PQTX_ERROR;
    pqtx_pool *pool = NULL;
    int64_t before = 0, after = 0;
    char line[1024];

    options.conninfo = argc > 1 ? argv[1] : getenv("PQTX_TEST_CONNINFO");
    int failed = pqtx_pool_open(&options, &pool, &error) || trade(pool, &before, &after, &error);
    if (failed) {
        pqtx_error_format(&error, line, sizeof line);
        fprintf(stderr, "transfer: %s\n", line);
    } else {
        printf("The bank held %" PRId64 " and holds %" PRId64 ".\n", before, after);
    }
    pqtx_pool_close(pool);
    return failed || before != after;
}
