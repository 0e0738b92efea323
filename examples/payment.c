/* payment.c: charge a card once, whatever happens: asked twice, or the answer to COMMIT lost.
 *
 * cc payment.c -o payment $(pkg-config --cflags --libs pqtx libpq)
 * ./payment [-l] [connection string], where -l loses the answer to COMMIT, to see it found out */
#include <libpq-fe.h>
#include <pqtx.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pqtx_fault lose_answer(pqtx_point point, uint32_t attempt, void *arg)
{
    (void)arg;
    if (point != PQTX_POINT_COMMIT_ANSWERED || attempt > 1)
        return PQTX_FAULT_NONE;
    puts("  (the answer to COMMIT is lost)");
    return PQTX_FAULT_CUT;
}

/* A new card with 1,000 on it. */
static pqtx_status issue_card(pqtx_tx *tx, void *card)
{
    const PGresult *row;

    pqtx_lock(tx, 7077004);
    pqtx_exec(tx, "CREATE TABLE IF NOT EXISTS pqtx_card (id bigserial PRIMARY KEY, cents bigint)",
              PQTX_NO_ARGS, NULL);
    pqtx_status status = pqtx_exec_one(
        tx, "INSERT INTO pqtx_card (cents) VALUES (1000) RETURNING id", PQTX_NO_ARGS, &row);
    return status ? status : pqtx_get_int(row, 0, 0, card);
}

/* The receipt is stored with the event's id, in the same transaction as the payment. */
static void take_250(pqtx_tx *tx, int64_t card)
{
    static const char sql[] = "UPDATE pqtx_card SET cents = cents - 250 WHERE id = $1 AND cents >="
                              " 250 RETURNING 'card ' || id || ', 250 taken, left ' || cents";
    const PGresult *row;

    if (pqtx_exec_one(tx, sql, PQTX_ARGS(PQTX_INT(card)), &row) == PQTX_OK)
        pqtx_once_store(tx, PQgetvalue(row, 0, 0), strlen(PQgetvalue(row, 0, 0)) + 1);
}

/* OK: done now.  DONE_BEFORE: done by an earlier call, and this is its receipt.  IN_DOUBT: not
 * known yet; to call again with the same id is always safe.  Anything else: nothing was taken. */
static pqtx_status pay(pqtx_pool *pool, const pqtx_options *options, int64_t card, char *receipt,
                       size_t size, pqtx_error *error)
{
    pqtx_tx *tx = pqtx_new(pool, options);

    while (pqtx_attempt(tx)) {
        take_250(tx, card);
        pqtx_commit(tx);
    }
    pqtx_status status = pqtx_result(tx);
    if (pqtx_once_answer(tx, receipt, size, &size))
        receipt[0] = '\0';
    printf("%s: %s%s\n", pqtx_status_name(status), receipt,
           pqtx_get_flags(tx) & PQTX_RESOLVED ? " (found out)" : "");
    pqtx_get_error(tx, error);
    pqtx_free(tx);
    return status;
}

static int charge(pqtx_pool *pool, pqtx_fault_hook fault, pqtx_error *error)
{
    int64_t card = 0;
    char id[64], receipt[2][64] = {"", "none"};
    pqtx_options options = PQTX_OPTIONS;

    options.isolation = PQTX_ISO_READ_COMMITTED; /* pqtx_lock() asks for it */
    if (pqtx_once_install(pool, NULL, error) || pqtx_run(pool, &options, issue_card, &card, error))
        return 0;
    snprintf(id, sizeof id, "payment 1 of card %" PRId64, card); /* as the customer's order has */
    options.event_id = id;
    options.fault = fault;
    for (int press = 0, tries = 0; press < 2 && tries < 10; tries++) /* an impatient customer */
        press += pay(pool, &options, card, receipt[press], 64, error) != PQTX_IN_DOUBT;
    return strcmp(receipt[0], receipt[1]) == 0 && strstr(receipt[1], "left 750");
}

int main(int argc, char **argv)
{
    pqtx_pool_options options = PQTX_POOL_OPTIONS;
    pqtx_error error = PQTX_ERROR;
    pqtx_pool *pool;
    int lose = argc > 1 && strcmp(argv[1], "-l") == 0, right = 0;

    options.conninfo = argc > 1 + lose ? argv[1 + lose] : getenv("PQTX_TEST_CONNINFO");
    if (pqtx_pool_open(&options, &pool, &error) == PQTX_OK)
        right = charge(pool, lose ? lose_answer : NULL, &error);
    pqtx_pool_close(pool);
    if (!right)
        fprintf(stderr, "payment: %s: %s\n", pqtx_status_name(error.status), error.message);
    return right ? EXIT_SUCCESS : EXIT_FAILURE;
}
