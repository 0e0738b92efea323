/* oncall.c: of the doctors of a shift one must stay on call: a rule over several rows, which
 * REPEATABLE READ lets break, and SERIALIZABLE keeps.
 *
 * cc oncall.c -o oncall $(pkg-config --cflags --libs pqtx libpq) -pthread
 * ./oncall [connection string] */
#include <libpq-fe.h>
#include <pqtx.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define THE_LAST (PQTX_USER + 1) /* a status of our own: there is nobody else */
#define DOCTORS  8

struct doctor {
    pqtx_pool *pool;
    const pqtx_options *options;
    int64_t shift, number, seen; /* seen: how many are on call */
};

/* A new shift.  CREATE TABLE IF NOT EXISTS is not safe against itself: the lock makes it so. */
static pqtx_status open_shift(pqtx_tx *tx, void *arg)
{
    struct doctor *d = arg;
    const PGresult *row;

    pqtx_lock(tx, 7077005);
    pqtx_exec(tx,
              "CREATE TABLE IF NOT EXISTS pqtx_oncall (shift bigint, doctor bigint,"
              " on_call boolean NOT NULL DEFAULT true, PRIMARY KEY (shift, doctor))",
              PQTX_NO_ARGS, NULL);
    pqtx_status status = pqtx_exec_one(tx, "SELECT coalesce(max(shift), 0) + 1 FROM pqtx_oncall",
                                       PQTX_NO_ARGS, &row);
    if (status || (status = pqtx_get_int(row, 0, 0, &d->shift)))
        return status;
    return pqtx_exec(tx, "INSERT INTO pqtx_oncall SELECT $1, i FROM generate_series(1, $2) AS i",
                     PQTX_ARGS(PQTX_INT(d->shift), PQTX_INT(d->number)), NULL);
}

static pqtx_status look(pqtx_tx *tx, void *arg)
{
    struct doctor *d = arg;
    const PGresult *row;
    pqtx_status status =
        pqtx_exec_one(tx, "SELECT count(*) FROM pqtx_oncall WHERE shift = $1 AND on_call",
                      PQTX_ARGS(PQTX_INT(d->shift)), &row);

    return status ? status : pqtx_get_int(row, 0, 0, &d->seen);
}

static pqtx_status go(pqtx_tx *tx, const struct doctor *d)
{
    if (d->seen < 2)
        return pqtx_fail(tx, THE_LAST);
    return pqtx_update_one(
        tx, "UPDATE pqtx_oncall SET on_call = false WHERE shift = $1 AND doctor = $2",
        PQTX_ARGS(PQTX_INT(d->shift), PQTX_INT(d->number)));
}

/* What each doctor does: look whether somebody else stays, then go.  Nothing is locked. */
static pqtx_status leave(pqtx_tx *tx, void *arg)
{
    pqtx_status status = look(tx, arg);

    return status ? status : go(tx, arg);
}

/* Two doctors, step by step: both have looked before one of them goes. */
static void leave_together(struct doctor *doctors)
{
    pqtx_tx *txs[2];

    for (int i = 0; i < 2; i++) {
        txs[i] = pqtx_new(doctors[i].pool, doctors[i].options);
        if (pqtx_attempt(txs[i]))
            look(txs[i], &doctors[i]);
    }
    for (int i = 0; i < 2; i++) {
        go(txs[i], &doctors[i]);
        pqtx_commit(txs[i]);
        while (pqtx_attempt(txs[i])) { /* who lost the race does all of it again */
            leave(txs[i], &doctors[i]);
            pqtx_commit(txs[i]);
        }
        pqtx_free(txs[i]);
    }
}

static void *leave_by_thread(void *doctor)
{
    const struct doctor *d = doctor;
    pqtx_run(d->pool, d->options, leave, doctor, NULL);
    return NULL;
}

/* All of them at once.  Of those that run at the same time all but one would fail and begin again;
 * with a gate they go one by one. */
static void leave_in_a_crowd(struct doctor *doctors)
{
    pthread_t threads[DOCTORS];

    for (int i = 0; i < DOCTORS; i++)
        if (pthread_create(&threads[i], NULL, leave_by_thread, &doctors[i]) != 0)
            abort();
    for (int i = 0; i < DOCTORS; i++)
        pthread_join(threads[i], NULL);
}

/* One shift; whether as many have stayed as were expected to. */
static int check(pqtx_pool *pool, const char *how, pqtx_isolation isolation, pqtx_gate *gate,
                 int64_t expected)
{
    pqtx_options options = PQTX_OPTIONS;
    struct doctor doctors[DOCTORS], last = {pool, &options, 0, gate ? DOCTORS : 2, -1};
    pqtx_error error = PQTX_ERROR;

    options.isolation = PQTX_ISO_READ_COMMITTED; /* pqtx_lock() asks for it */
    if (pqtx_run(pool, &options, open_shift, &last, &error))
        fprintf(stderr, "oncall: %s\n", error.message);
    for (int i = 0; i < DOCTORS; i++)
        doctors[i] = (struct doctor){pool, &options, last.shift, i + 1, 0};
    options.isolation = isolation;
    options.gate = gate;
    options.gate_key = gate ? last.shift : 0;
    (gate ? leave_in_a_crowd : leave_together)(doctors);
    pqtx_run(pool, NULL, look, &last, NULL);
    printf("%s: of %d doctors who leave at once %d stay on call.\n", how, (int)last.number,
           (int)last.seen);
    return last.seen == expected;
}

int main(int argc, char **argv)
{
    pqtx_pool_options options = PQTX_POOL_OPTIONS;
    pqtx_gate *gate = pqtx_gate_open();
    pqtx_error error = PQTX_ERROR;
    pqtx_pool *pool = NULL;

    options.conninfo = argc > 1 ? argv[1] : getenv("PQTX_TEST_CONNINFO");
    if (pqtx_pool_open(&options, &pool, &error))
        fprintf(stderr, "oncall: %s\n", error.message);
    int right = pool && gate && check(pool, "REPEATABLE READ", PQTX_ISO_REPEATABLE_READ, NULL, 0) &&
                check(pool, "SERIALIZABLE", PQTX_ISO_SERIALIZABLE, NULL, 1) &&
                check(pool, "SERIALIZABLE and a gate", PQTX_ISO_SERIALIZABLE, gate, 1);
    puts(right ? "SERIALIZABLE keeps the rule, REPEATABLE READ does not." : "That is wrong.");
    pqtx_pool_close(pool);
    pqtx_gate_close(gate);
    return !right;
}
