/* check_tls_further.c: every connection that the library makes by itself, beside one that stands,
 * is as safe as that one.
 *
 * The one that stands was made to a good server.  Then the server becomes one that the settings
 * must refuse, by one of them alone: a setting that is lost on the way makes a test fail. */
#define _DEFAULT_SOURCE
#include "support.h"
#include "support_doubt.h"
#include "support_tls.h"
#include "support_tx.h"

#include <poll.h>
#include <stdio.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))
#define SCHEMA       "pqtx_tls"
#define SLEEP        "SELECT pg_sleep(600)"
#define OURS         " FROM pg_stat_activity WHERE usename LIKE 'pqtx\\_%' "

static PGconn *monitor;

static void make(void)
{
    make_doubt(SCHEMA);
}

static void set_up(void)
{
    tls_serve(TLS_GOOD);
    monitor = open_doubt();
    sql(monitor, "SELECT pg_terminate_backend(pid)" OURS);
    wait_until_true(monitor, "SELECT count(*) = 0" OURS);
    tls_log_mark();
}

static void tear_down(void)
{
    PQfinish(monitor);
}

/* ---- a clock on which sleeping takes no time of the world, and waiting none of its own */

static struct {
    int64_t now_us;
    int fd;         /* where the statement runs whose deadline comes; -1: not known yet */
    int hopeless;   /* how many waits for it are over at once */
    int waits_seen; /* of those */
} at;

static int64_t now_us(void *arg)
{
    (void)arg;
    return at.now_us;
}

/* The first of these waits lasts until the server is at work on the statement.  The second one is
 * for an answer that comes if, and only if, there has been a cancel: it is listened for. */
static int give_up(int fd, int64_t timeout_us)
{
    struct pollfd one = {.fd = at.fd = fd, .events = POLLIN};
    if (at.waits_seen++ == 0)
        wait_until_true(monitor, "SELECT count(*) = 1" OURS "AND wait_event = 'PgSleep'");
    else if (poll(&one, 1, 200) > 0)
        return PQTX_WAIT_READ;
    at.now_us += timeout_us;
    return 0;
}

static int wait_us(void *arg, int fd, int events, int64_t timeout_us)
{
    struct pollfd one = {.fd = fd};
    (void)arg;
    if (fd >= 0 && (at.fd == -1 || fd == at.fd) && at.waits_seen < at.hopeless)
        return give_up(fd, timeout_us);
    if (fd < 0) {
        at.now_us += timeout_us;
        return 0;
    }
    one.events = (short)(((events & PQTX_WAIT_READ) ? POLLIN : 0) |
                         ((events & PQTX_WAIT_WRITE) ? POLLOUT : 0));
    if (poll(&one, 1, timeout_us > 0 ? 20000 : 0) > 0)
        return events;
    return timeout_us > 0 ? -1 : 0; /* a server that is silent for so long is broken */
}

static uint64_t throw_dice(void *arg)
{
    (void)arg;
    return UINT64_C(1) << 63;
}

static const pqtx_clock still = {sizeof still, NULL, now_us, wait_us, throw_dice};

/* ---- ways to a further connection */

struct way {
    const char *name;
    bool own; /* beside a connection of the caller's */
    enum { BORROW, CANCEL, RESOLVE } what;
};

static const struct way ways[] = {
    {"the pool's second", false, BORROW},         {"to cancel on the pool's", false, CANCEL},
    {"to cancel on the caller's", true, CANCEL},  {"to resolve for the pool", false, RESOLVE},
    {"to resolve for the caller", true, RESOLVE},
};

enum { WAYS = sizeof ways / sizeof ways[0] };

struct trip {
    const struct way *way;
    pqtx_pool *pool;
    PGconn *own;
    enum tls_server then; /* what the server becomes */
    pqtx_error error;
};

static pqtx_status sleep_long(pqtx_tx *tx, void *trip)
{
    at.fd = -1;
    at.waits_seen = 0;
    at.hopeless = ((struct trip *)trip)->then == TLS_GOOD ? 1 : 2;
    return pqtx_exec(tx, SLEEP, PQTX_NO_ARGS, NULL);
}

/* At the deadline the statement is cancelled; or the connection is dropped, if that cannot be. */
static bool cancels(struct trip *trip)
{
    pqtx_options options = PQTX_OPTIONS;
    options.clock = &still;
    pqtx_status status = trip->own
                             ? pqtx_run_on(trip->own, &options, sleep_long, trip, &trip->error)
                             : pqtx_run(trip->pool, &options, sleep_long, trip, &trip->error);
    assert_status(status, PQTX_TIMEOUT, &trip->error);
    return !(trip->error.flags & PQTX_ERROR_CONNECTION);
}

/* COMMIT is not sent, but nobody knows. */
static bool resolves(struct trip *trip)
{
    struct trial trial;
    trial_init(&trial, trip->pool, PQTX_DOUBT_TOKEN);
    trial.own = trip->own;
    trial.point = PQTX_POINT_COMMIT_BEGUN;
    trial.last = 1;
    trial.options.clock = &still;
    trial.options.max_attempts = 1;
    trial_run(&trial);
    trip->error = trial.error;
    ck_assert_int_eq(trial.cuts, 1);
    ck_assert_int_eq(rows_of(monitor, &trial, true), 0);
    bool found_out = trial.outcome == PQTX_OUTCOME_ROLLED_BACK;
    assert_trial(&trial, found_out ? PQTX_NO_CONNECTION : PQTX_IN_DOUBT);
    return found_out;
}

static bool borrows(struct trip *trip, pqtx_tx *first)
{
    pqtx_options options = PQTX_OPTIONS;
    int64_t pid;
    options.retry_mask = PQTX_RETRY_NOTHING;
    pqtx_status status = pqtx_run(trip->pool, &options, ask_pid, &pid, &trip->error);
    end_tx(first);
    assert_status(status, status == PQTX_OK ? PQTX_OK : PQTX_NO_CONNECTION, &trip->error);
    return status == PQTX_OK;
}

/* Makes a connection to a good server and then needs another one; whether it gets it. */
static bool travel(struct trip *trip, const char *changed)
{
    const char *conninfo = tls_conninfo(changed);
    pqtx_pool_options options = PQTX_POOL_OPTIONS;
    pqtx_tx *first = NULL;
    options.conninfo = conninfo;
    options.clock = trip->way->what == BORROW ? NULL : &still;
    trip->error = (pqtx_error)PQTX_ERROR;
    if (trip->way->own) {
        trip->own = PQconnectdb(conninfo);
        ck_assert_msg(PQstatus(trip->own) == CONNECTION_OK, "%s", PQerrorMessage(trip->own));
    } else {
        pqtx_status status = pqtx_pool_open(&options, &trip->pool, &trip->error);
        assert_status(status, PQTX_OK, &trip->error);
    }
    if (trip->way->what == BORROW)
        first = hold_tx(trip->pool, NULL, NULL);
    if (trip->then != TLS_GOOD)
        tls_serve(trip->then);
    bool there = first                       ? borrows(trip, first)
                 : trip->way->what == CANCEL ? cancels(trip)
                                             : resolves(trip);
    pqtx_pool_close(trip->pool);
    PQfinish(trip->own);
    return there;
}

/* ---- a server that stays good */

static const char *const identities[] = {
    "options='-c search_path=" SCHEMA "'",
    /* By a certificate, and so by a name that has to be looked up in the settings as well. */
    "options='-c search_path=" SCHEMA "' user=pqtx_cert password='' channel_binding=prefer"
    " sslcert=@/client.crt sslkey=@/client-locked.key sslpassword=key-s3cret",
    /* Found by its address, known by its name. */
    "options='-c search_path=" SCHEMA "' sslmode=verify-ca host='' channel_binding=prefer",
};

START_TEST(a_further_connection_is_encrypted)
{
    struct trip trip = {.way = &ways[_i % WAYS]};
    bool there = travel(&trip, identities[_i / WAYS]);
    ck_assert_msg(there, "%s: %s", trip.way->name, trip.error.message);
    ck_assert_int_eq(tls_log_taken(false), 2);
    ck_assert_int_eq(tls_log_taken(true), 0);
}
END_TEST

START_TEST(the_server_sees_the_connections_of_a_pool_encrypted)
{
    pqtx_pool_options options = PQTX_POOL_OPTIONS;
    pqtx_error error = PQTX_ERROR;
    pqtx_pool *pool;
    pqtx_tx *held[3];
    options.conninfo = tls_conninfo("");
    assert_status(pqtx_pool_open(&options, &pool, &error), PQTX_OK, &error);
    for (int i = 0; i < 3; i++)
        held[i] = hold_tx(pool, NULL, NULL);
    ck_assert_int_eq(ask_int(monitor, "SELECT count(*) FROM pg_stat_ssl WHERE ssl"
                                      " AND version = 'TLSv1.3' AND pid IN (SELECT pid" OURS ")"),
                     3);
    for (int i = 0; i < 3; i++)
        end_tx(held[i]);
    pqtx_pool_close(pool);
}
END_TEST

/* ---- a server that is not the one it was */

#define PLAIN "sslmode=require sslrootcert='' channel_binding=prefer ssl_min_protocol_version=TLSv1"

static const struct fall {
    enum tls_server then;
    const char *changed; /* leaves one setting to notice it */
} falls[] = {
    {TLS_FORGED, PLAIN " sslmode=verify-full sslrootcert=@/root.crt"},
    {TLS_FORGED, PLAIN " sslmode=verify-ca sslrootcert=@/root.crt"},
    {TLS_ELSEWHERE, PLAIN " sslmode=verify-full sslrootcert=@/root.crt"},
    {TLS_OLD, PLAIN " ssl_min_protocol_version=TLSv1.3"},
    {TLS_UNPROVEN, PLAIN " channel_binding=require"},
    {TLS_NONE, PLAIN},
};

START_TEST(a_further_connection_checks_what_the_first_one_checked)
{
    const struct fall *fall = &falls[_i / WAYS];
    struct trip trip = {.way = &ways[_i % WAYS], .then = fall->then};
    char changed[512];
    snprintf(changed, sizeof changed, "options='-c search_path=" SCHEMA "' %s", fall->changed);
    ck_assert_msg(!travel(&trip, changed), "%s was made: %s", trip.way->name, fall->changed);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tls_further");
    TCase *tcase = tcase_create("further");
    tcase_add_unchecked_fixture(tcase, make, NULL);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, a_further_connection_is_encrypted, 0, WAYS * COUNT(identities));
    tcase_add_test(tcase, the_server_sees_the_connections_of_a_pool_encrypted);
    tcase_add_loop_test(tcase, a_further_connection_checks_what_the_first_one_checked, 0,
                        WAYS * COUNT(falls));
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
