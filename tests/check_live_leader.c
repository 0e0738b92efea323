/* check_live_leader.c: one leader at a time, its loss, and writes that only the newest can make. */
#define _DEFAULT_SOURCE
#include "support.h"
#include "support_clock.h"
#include "support_proxy.h"
#include "support_random.h"
#include "support_tx.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SCHEMA "pqtx_leader_test"

static PGconn *monitor;
static pqtx_leader_options options;
static pqtx_error error;

static void set_up(void)
{
    fresh_schema(SCHEMA);
    monitor = open_session();
    sql(monitor, pqtx_leader_ddl());
    sql(monitor, "CREATE TABLE work (id bigserial PRIMARY KEY, epoch bigint)");
    options = (pqtx_leader_options)PQTX_LEADER_OPTIONS;
    options.schema = SCHEMA;
    error = (pqtx_error)PQTX_ERROR;
}

static void tear_down(void)
{
    PQfinish(monitor);
}

/* ---- a candidate, and what it comes to */

static pqtx_pool *pool_to(const char *conninfo)
{
    pqtx_pool_options to = PQTX_POOL_OPTIONS;
    pqtx_pool *pool;
    to.conninfo = conninfo;
    to.flags = PQTX_POOL_LAZY;
    assert_status(pqtx_pool_open(&to, &pool, &error), PQTX_OK, &error);
    return pool;
}

/* With a pool of its own, which it alone keeps, and which names its sessions. */
static pqtx_leader *candidate_to(const char *conninfo, const char *application)
{
    char text[4096];
    pqtx_leader *leader;
    snprintf(text, sizeof text, "%s application_name=%s", conninfo, application);
    pqtx_pool *pool = pool_to(text);
    assert_status(pqtx_leader_open(pool, "boss", &options, &leader, &error), PQTX_OK, &error);
    pqtx_pool_close(pool);
    return leader;
}

static pqtx_leader *candidate(const char *application)
{
    return candidate_to(test_conninfo(), application);
}

static void assert_try(pqtx_leader *leader, pqtx_status expected)
{
    assert_status(pqtx_leader_try(leader, &error), expected, &error);
    ck_assert_int_eq(pqtx_leader_is(leader), expected == PQTX_OK);
    ck_assert_int_eq(pqtx_leader_epoch(leader) != 0, expected == PQTX_OK);
    ck_assert_int_eq(pqtx_leader_fd(leader) >= 0, expected == PQTX_OK);
}

static void assert_wait(pqtx_leader *leader, int64_t ms, pqtx_status expected)
{
    assert_status(pqtx_leader_wait(leader, ms, &error), expected, &error);
    ck_assert_int_eq(pqtx_leader_is(leader), expected == PQTX_OK);
}

static void release(pqtx_leader *leader)
{
    assert_status(pqtx_leader_release(leader, &error), PQTX_OK, &error);
    ck_assert_int_eq(pqtx_leader_is(leader), 0);
}

/* Advisory locks of all kinds, as often as each is held. */
static int64_t locks_of(const char *application)
{
    char query[256];
    snprintf(query, sizeof query,
             "SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid)"
             " WHERE locktype = 'advisory' AND granted AND application_name = '%s'",
             application);
    return ask_int(monitor, query);
}

static int pid_of(const char *application)
{
    char query[128];
    snprintf(query, sizeof query,
             "SELECT max(pid) FROM pg_stat_activity WHERE application_name = '%s'", application);
    return (int)ask_int(monitor, query);
}

static void wait_until_gone(int pid)
{
    char query[128];
    snprintf(query, sizeof query, "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = %d", pid);
    wait_until_true(monitor, query);
}

static void end(const char *application)
{
    char query[64];
    int pid = pid_of(application);
    snprintf(query, sizeof query, "SELECT pg_terminate_backend(%d)", pid);
    ck_assert_str_eq(ask(monitor, query), "t");
    wait_until_gone(pid);
}

static bool is_readable(int fd)
{
    struct pollfd one = {.fd = fd, .events = POLLIN};
    return poll(&one, 1, 20000) == 1;
}

/* ---- on threads of their own */

struct waiter {
    pqtx_leader *leader;
    int64_t timeout_ms, elapsed_us;
    pthread_t thread;
    pqtx_status status;
    pqtx_error error;
};

static void *wait_on(void *arg)
{
    struct waiter *waiter = arg;
    int64_t began = monotonic_us();
    waiter->error = (pqtx_error)PQTX_ERROR;
    waiter->status = pqtx_leader_wait(waiter->leader, waiter->timeout_ms, &waiter->error);
    waiter->elapsed_us = monotonic_us() - began;
    return NULL;
}

static void start_waiter(struct waiter *waiter)
{
    ck_assert(pthread_create(&waiter->thread, NULL, wait_on, waiter) == 0);
}

static void join_waiter(struct waiter *waiter, pqtx_status expected)
{
    pthread_join(waiter->thread, NULL);
    assert_status(waiter->status, expected, &waiter->error);
}

static void wait_until_waiting(const char *application)
{
    char query[256];
    snprintf(query, sizeof query,
             "SELECT count(*) > 0 FROM pg_stat_activity"
             " WHERE application_name = '%s' AND wait_event_type = 'Lock'",
             application);
    wait_until_true(monitor, query);
}

/* ---- fenced writes */

static pqtx_status write_fenced(pqtx_tx *tx, void *epoch)
{
    pqtx_fence(tx, SCHEMA, "boss", *(int64_t *)epoch);
    return pqtx_exec(tx, "INSERT INTO work (epoch) VALUES ($1)",
                     PQTX_ARGS(PQTX_INT(*(int64_t *)epoch)), NULL);
}

static pqtx_status write_then_fence(pqtx_tx *tx, void *epoch)
{
    pqtx_pipeline(tx);
    pqtx_exec(tx, "INSERT INTO work (epoch) VALUES ($1)", PQTX_ARGS(PQTX_INT(*(int64_t *)epoch)),
              NULL);
    return pqtx_fence(tx, SCHEMA, "boss", *(int64_t *)epoch);
}

/* At each level, waiting for answers or not. */
static void assert_fenced(pqtx_pool *pool, int64_t epoch, pqtx_status expected)
{
    char query[96];
    snprintf(query, sizeof query, "SELECT count(*) FROM work WHERE epoch = %lld", (long long)epoch);
    int64_t before = ask_int(monitor, query), written = 0;
    for (int level = PQTX_ISO_DEFAULT; level <= PQTX_ISO_SERIALIZABLE; level++) {
        pqtx_options how = PQTX_OPTIONS;
        how.isolation = (pqtx_isolation)level;
        assert_status(pqtx_run(pool, &how, write_fenced, &epoch, &error), expected, &error);
        assert_status(pqtx_run(pool, &how, write_then_fence, &epoch, &error), expected, &error);
        written += 2;
    }
    if (expected != PQTX_OK)
        written = 0;
    ck_assert_int_eq(ask_int(monitor, query), before + written);
}

/* ---- one leader */

START_TEST(two_leaders_are_never_at_once)
{
    pqtx_leader *first = candidate("first"), *second = candidate("second");
    assert_try(first, PQTX_OK);
    int64_t epoch = pqtx_leader_epoch(first);
    assert_try(second, PQTX_BUSY);
    assert_wait(second, 1, PQTX_BUSY);
    ck_assert_int_eq(pqtx_leader_epoch(first), epoch);
    release(first);
    assert_try(second, PQTX_OK);
    ck_assert_int_gt(pqtx_leader_epoch(second), epoch);
    assert_try(first, PQTX_BUSY);
    pqtx_leader_close(second);
    assert_wait(first, 20000, PQTX_OK);
    pqtx_leader_close(first);
}
END_TEST

START_TEST(a_try_does_not_wait_for_the_leader)
{
    options.slice_ms = 2147483647;
    pqtx_leader *first = candidate("first"), *second = candidate("second");
    int64_t began = monotonic_us();
    assert_try(first, PQTX_OK);
    assert_try(second, PQTX_BUSY);
    ck_assert_int_le(monotonic_us() - began, 20000000);
    pqtx_leader_close(first);
    pqtx_leader_close(second);
}
END_TEST

START_TEST(names_and_schemas_have_leaders_of_their_own)
{
    pqtx_leader *first = candidate("first"), *other, *elsewhere;
    pqtx_pool *pool = open_pool(1);
    assert_status(pqtx_leader_open(pool, "clerk", &options, &other, &error), PQTX_OK, &error);
    sql(monitor, "DROP SCHEMA IF EXISTS \"pqtx_Select\" CASCADE; CREATE SCHEMA \"pqtx_Select\"");
    for (int i = 0; i < 2; i++)
        assert_status(pqtx_leader_install(pool, "pqtx_Select", &error), PQTX_OK, &error);
    options.schema = "pqtx_Select";
    assert_status(pqtx_leader_open(pool, "boss", &options, &elsewhere, &error), PQTX_OK, &error);
    assert_try(first, PQTX_OK);
    assert_try(other, PQTX_OK);
    assert_try(elsewhere, PQTX_OK);
    pqtx_leader_close(first);
    pqtx_leader_close(other);
    pqtx_leader_close(elsewhere);
    pqtx_pool_close(pool);
    sql(monitor, "DROP SCHEMA \"pqtx_Select\" CASCADE");
}
END_TEST

/* The lock of the session is one that counts: taken twice, it would have to be given back twice. */
START_TEST(a_lock_is_held_once_however_often_it_is_asked_for)
{
    pqtx_leader *first = candidate("first"), *second = candidate("second");
    assert_try(first, PQTX_OK);
    int64_t epoch = pqtx_leader_epoch(first);
    assert_try(first, PQTX_OK);
    assert_wait(first, 1000, PQTX_OK);
    ck_assert_int_eq(pqtx_leader_epoch(first), epoch);
    ck_assert_int_eq(locks_of("first"), 1);
    release(first);
    ck_assert_int_eq(locks_of("first"), 0);
    assert_try(second, PQTX_OK);
    release(first);
    ck_assert_int_eq(pqtx_leader_is(second), 1);
    ck_assert_int_eq(locks_of("second"), 1);
    pqtx_leader_close(first);
    pqtx_leader_close(second);
}
END_TEST

START_TEST(the_lock_is_the_documented_one)
{
    char query[128];
    pqtx_leader *first = candidate("first");
    snprintf(query, sizeof query, "SELECT pg_advisory_lock(%lld)",
             (long long)pqtx_lock_key("pqtx_leader:" SCHEMA ":boss"));
    sql(monitor, query);
    assert_try(first, PQTX_BUSY);
    sql(monitor, "SELECT pg_advisory_unlock_all()");
    assert_try(first, PQTX_OK);
    pqtx_leader_close(first);
}
END_TEST

START_TEST(the_row_tells_people_who_leads)
{
    char query[160];
    pqtx_leader *first = candidate("first");
    assert_try(first, PQTX_OK);
    snprintf(query, sizeof query,
             "SELECT name = 'boss' AND epoch = %lld AND application = 'first' AND pid = %d"
             " AND since > now() - interval '1 hour' FROM pqtx_leader",
             (long long)pqtx_leader_epoch(first), pid_of("first"));
    ck_assert_str_eq(ask(monitor, query), "t");
    pqtx_leader_close(first);
}
END_TEST

START_TEST(an_epoch_is_larger_than_any_before)
{
    static const int64_t far = INT64_C(4000000000000000000);
    pqtx_leader *first = candidate("first");
    int64_t last = 0;
    for (int i = 0; i < 20; i++) {
        assert_try(first, PQTX_OK);
        ck_assert_int_gt(pqtx_leader_epoch(first), last);
        last = pqtx_leader_epoch(first);
        release(first);
    }
    sql(monitor, "DELETE FROM pqtx_leader"); /* as where a backup is restored */
    assert_try(first, PQTX_OK);
    ck_assert_int_gt(pqtx_leader_epoch(first), last);
    release(first);
    sql(monitor, "UPDATE pqtx_leader SET epoch = 4000000000000000000"); /* the clock went back */
    assert_try(first, PQTX_OK);
    ck_assert_int_eq(pqtx_leader_epoch(first), far + 1);
    pqtx_leader_close(first);
}
END_TEST

/* ---- losing it */

START_TEST(an_ended_session_is_noticed_without_a_question)
{
    pqtx_leader *first = candidate("first"), *second = candidate("second");
    for (int i = 0; i < 5; i++) {
        assert_wait(first, 20000, PQTX_OK);
        int fd = pqtx_leader_fd(first);
        end("first");
        ck_assert(is_readable(fd));
        ck_assert_int_eq(pqtx_leader_is(first), 0);
        ck_assert_int_eq(pqtx_leader_epoch(first), 0);
        ck_assert_int_eq(pqtx_leader_fd(first), -1);
        assert_try(second, PQTX_OK);
        assert_try(first, PQTX_BUSY);
        release(second);
    }
    pqtx_leader_close(first);
    pqtx_leader_close(second);
}
END_TEST

/* The server lets go of the lock between its last words and the close. */
START_TEST(the_servers_last_words_are_enough)
{
    struct proxy *proxy = proxy_open();
    pqtx_leader *first = candidate_to(proxy_conninfo(proxy), "first");
    assert_try(first, PQTX_OK);
    proxy_linger(proxy);
    int fd = pqtx_leader_fd(first);
    end("first");
    ck_assert(is_readable(fd));
    ck_assert_int_eq(pqtx_leader_is(first), 0);
    pqtx_leader_close(first);
    proxy_close(proxy);
}
END_TEST

START_TEST(every_call_notices_that_the_session_has_ended)
{
    pqtx_leader *first = candidate("first");
    assert_try(first, PQTX_OK);
    int64_t epoch = pqtx_leader_epoch(first);
    end("first");
    assert_status(pqtx_leader_check(first, &error), PQTX_LEASE_LOST, &error);
    assert_status(pqtx_leader_check(first, &error), PQTX_LEASE_LOST, &error);
    ck_assert_int_eq(pqtx_leader_is(first), 0);
    assert_try(first, PQTX_OK);
    ck_assert_int_gt(pqtx_leader_epoch(first), epoch);
    end("first");
    release(first);
    assert_try(first, PQTX_OK);
    end("first");
    pqtx_leader_close(first);
}
END_TEST

START_TEST(a_check_asks_the_server)
{
    pqtx_leader *first = candidate("first");
    assert_status(pqtx_leader_check(first, &error), PQTX_LEASE_LOST, &error);
    assert_try(first, PQTX_OK);
    assert_status(pqtx_leader_check(first, &error), PQTX_OK, &error);
    int pid = pid_of("first");
    sql(monitor, "UPDATE pqtx_leader SET epoch = epoch + 1");
    ck_assert_int_eq(pqtx_leader_is(first), 1);
    assert_status(pqtx_leader_check(first, &error), PQTX_LEASE_LOST, &error);
    ck_assert_int_eq(pqtx_leader_is(first), 0);
    wait_until_gone(pid);
    pqtx_leader_close(first);
}
END_TEST

/* ---- what is fenced */

START_TEST(a_stale_leaders_write_is_refused_even_when_it_comes_later)
{
    pqtx_leader *old = candidate("old"), *new = candidate("new");
    pqtx_pool *pool = open_pool(1);
    assert_try(old, PQTX_OK);
    int64_t epoch = pqtx_leader_epoch(old);
    assert_fenced(pool, epoch, PQTX_OK);
    end("old");
    assert_fenced(pool, epoch, PQTX_OK); /* nobody has taken over */
    assert_try(new, PQTX_OK);
    assert_fenced(pool, epoch, PQTX_LEASE_LOST);
    assert_fenced(pool, pqtx_leader_epoch(new), PQTX_OK);
    assert_fenced(pool, pqtx_leader_epoch(new) + 1, PQTX_LEASE_LOST);
    release(new);
    assert_try(new, PQTX_OK);
    assert_fenced(pool, epoch, PQTX_LEASE_LOST);
    pqtx_leader_close(old);
    pqtx_leader_close(new);
    pqtx_pool_close(pool);
}
END_TEST

START_TEST(a_take_over_waits_for_fenced_writes_under_way)
{
    pqtx_leader *old = candidate("old");
    pqtx_pool *pool = open_pool(2);
    options.slice_ms = 50;
    pqtx_leader *new = candidate("new");
    assert_try(old, PQTX_OK);
    int64_t epoch = pqtx_leader_epoch(old);
    pqtx_tx *tx = pqtx_new(pool, NULL), *beside = pqtx_new(pool, NULL);
    ck_assert_int_eq(pqtx_attempt(tx) + pqtx_attempt(beside), 2);
    assert_status(write_fenced(tx, &epoch), PQTX_OK, NULL);
    assert_status(write_fenced(beside, &epoch), PQTX_OK, NULL); /* they do not exclude each other */
    end("old");
    assert_try(new, PQTX_BUSY);
    ck_assert_int_eq(locks_of("new"), 0);
    end_tx(beside);
    assert_wait(new, 200, PQTX_BUSY);
    ck_assert_int_eq(locks_of("new"), 0);
    struct waiter waiter = {.leader = new, .timeout_ms = 60000};
    start_waiter(&waiter);
    wait_until_waiting("new");
    end_tx(tx);
    join_waiter(&waiter, PQTX_OK);
    ck_assert_int_eq(ask_int(monitor, "SELECT count(*) FROM work"), 2);
    assert_fenced(pool, epoch, PQTX_LEASE_LOST);
    pqtx_leader_close(old);
    pqtx_leader_close(new);
    pqtx_pool_close(pool);
}
END_TEST

/* The take-over is under way when the write asks, and the snapshot is older than it. */
START_TEST(a_fenced_write_waits_for_a_take_over_and_is_refused)
{
    pqtx_leader *old = candidate("old");
    pqtx_pool *pool = open_pool(1);
    PGconn *taking = open_session();
    assert_try(old, PQTX_OK);
    for (int level = PQTX_ISO_READ_COMMITTED; level <= PQTX_ISO_SERIALIZABLE; level++) {
        for (int i = 0; i < 2; i++) {
            int64_t epoch = ask_int(monitor, "SELECT epoch FROM pqtx_leader");
            pqtx_options how = PQTX_OPTIONS;
            how.isolation = (pqtx_isolation)level;
            struct task task = {.pool = pool,
                                .options = &how,
                                .work = i ? write_fenced : write_then_fence,
                                .arg = &epoch};
            sql(taking, "BEGIN; UPDATE pqtx_leader SET epoch = epoch + 1");
            start_task(&task);
            wait_until_true(monitor, "SELECT count(*) > 0 FROM pg_locks WHERE NOT granted");
            sql(taking, "COMMIT");
            join_task(&task, PQTX_LEASE_LOST);
        }
    }
    ck_assert_int_eq(ask_int(monitor, "SELECT count(*) FROM work"), 0);
    pqtx_leader_close(old);
    pqtx_pool_close(pool);
    PQfinish(taking);
}
END_TEST

START_TEST(a_failed_fence_marks_the_attempt)
{
    int64_t epoch = 1;
    pqtx_pool *pool = open_pool(1);
    assert_fenced(pool, epoch, PQTX_LEASE_LOST); /* there is no such leader */
    ck_assert_str_eq(error.message,
                     "this epoch is not the leader's newest: another one has taken over");
    pqtx_tx *tx = pqtx_new(pool, NULL);
    ck_assert_int_eq(pqtx_attempt(tx), 1);
    ck_assert_int_eq(pqtx_fence(tx, SCHEMA, NULL, 1), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_commit(tx), PQTX_MISUSE);
    pqtx_free(tx);
    tx = pqtx_new(pool, NULL);
    ck_assert_int_eq(pqtx_attempt(tx), 1);
    ck_assert_int_eq(pqtx_fence(tx, "no plain name", "boss", 1), PQTX_MISUSE);
    pqtx_free(tx);
    ck_assert_int_eq(pqtx_fence(NULL, SCHEMA, "boss", 1), PQTX_MISUSE);
    pqtx_pool_close(pool);
}
END_TEST

/* ---- waiting */

START_TEST(who_waits_leads_when_the_leader_lets_go)
{
    pqtx_leader *first = candidate("first"), *second = candidate("second");
    assert_try(first, PQTX_OK);
    struct waiter waiter = {.leader = second, .timeout_ms = 60000};
    start_waiter(&waiter);
    wait_until_waiting("second");
    ck_assert_int_eq(pqtx_leader_is(second), 0); /* from another thread, while it waits */
    ck_assert_int_eq(pqtx_leader_try(second, NULL), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_leader_release(second, NULL), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_leader_check(second, NULL), PQTX_MISUSE);
    release(first);
    join_waiter(&waiter, PQTX_OK);
    ck_assert_int_eq(pqtx_leader_is(second), 1);
    pqtx_leader_close(first);
    pqtx_leader_close(second);
}
END_TEST

START_TEST(waiting_ends_in_time)
{
    options.slice_ms = 100;
    pqtx_leader *first = candidate("first"), *second = candidate("second");
    assert_try(first, PQTX_OK);
    struct waiter waiter = {.leader = second, .timeout_ms = 350};
    start_waiter(&waiter);
    join_waiter(&waiter, PQTX_BUSY);
    ck_assert_int_ge(waiter.elapsed_us, 350000);
    ck_assert_int_le(waiter.elapsed_us, 20000000);
    assert_wait(second, -1, PQTX_MISUSE);
    pqtx_leader_close(first);
    pqtx_leader_close(second);
}
END_TEST

/* CREATE INDEX CONCURRENTLY waits for every older snapshot, and who waits for a lock has one. */
START_TEST(a_waiter_does_not_hold_up_an_index_that_is_built_meanwhile)
{
    options.slice_ms = 200;
    pqtx_leader *first = candidate("first"), *second = candidate("second");
    PGconn *builder = open_session();
    assert_try(first, PQTX_OK);
    struct waiter waiter = {.leader = second, .timeout_ms = 60000};
    start_waiter(&waiter);
    for (int i = 0; i < 3; i++) {
        wait_until_waiting("second");
        sql(builder, "SET statement_timeout = '20s'");
        sql(builder, "CREATE INDEX CONCURRENTLY work_epoch ON work (epoch)");
        sql(builder, "DROP INDEX work_epoch");
    }
    release(first);
    join_waiter(&waiter, PQTX_OK);
    pqtx_leader_close(first);
    pqtx_leader_close(second);
    PQfinish(builder);
}
END_TEST

/* ---- 55P03, and held all the same */

/* An error at COMMIT comes when the session has its lock already. */
START_TEST(a_lock_that_is_held_in_spite_of_the_error_is_given_back)
{
    sql(monitor, "CREATE FUNCTION stall() RETURNS trigger LANGUAGE plpgsql AS"
                 " $$ BEGIN PERFORM pg_advisory_xact_lock(4711); RETURN NULL; END $$;"
                 "CREATE CONSTRAINT TRIGGER stall AFTER INSERT OR UPDATE ON pqtx_leader"
                 " DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION stall();"
                 "SELECT pg_advisory_lock(4711)");
    options.slice_ms = 30;
    pqtx_leader *first = candidate("first"), *second = candidate("second");
    for (int i = 0; i < 2; i++) {
        assert_try(first, PQTX_BUSY);
        ck_assert_str_eq(error.sqlstate, "55P03");
        ck_assert_int_eq(locks_of("first"), 0);
        assert_wait(first, 1, PQTX_BUSY);
        ck_assert_int_eq(locks_of("first"), 0);
    }
    sql(monitor, "SELECT pg_advisory_unlock(4711)");
    assert_try(second, PQTX_OK);
    pqtx_leader_close(first);
    pqtx_leader_close(second);
}
END_TEST

enum { RIVALS = 6, REIGNS = 60 };

struct rival {
    pthread_t thread;
    pqtx_leader *leader;
    PGconn *own; /* to ask with, since a session is not for two threads */
    char application[16];
    atomic_int *leaders, *reigns, *met, *left;
};

static int64_t held_by(struct rival *rival)
{
    char query[256];
    snprintf(query, sizeof query,
             "SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid)"
             " WHERE locktype = 'advisory' AND granted AND application_name = '%s'",
             rival->application);
    PGresult *result = PQexec(rival->own, query);
    int64_t held = -1;
    pqtx_get_int(result, 0, 0, &held);
    PQclear(result);
    return held;
}

static void *contend(void *arg)
{
    struct rival *rival = arg;
    while (atomic_load(rival->reigns) < REIGNS) {
        pqtx_status status = pqtx_leader_wait(rival->leader, 1, NULL);
        if (status == PQTX_OK) {
            atomic_fetch_add(rival->met, atomic_fetch_add(rival->leaders, 1) != 0);
            atomic_fetch_add(rival->left, held_by(rival) != 1);
            atomic_fetch_sub(rival->leaders, 1);
            atomic_fetch_add(rival->left, pqtx_leader_release(rival->leader, NULL) != PQTX_OK);
            atomic_fetch_add(rival->reigns, 1);
        }
        atomic_fetch_add(rival->left, held_by(rival) != 0);
    }
    return NULL;
}

/* Slices of a millisecond end as often as not in the moment in which the lock is got. */
START_TEST(who_gives_up_waiting_holds_nothing)
{
    struct rival rivals[RIVALS];
    atomic_int leaders = 0, reigns = 0, met = 0, left = 0;
    for (int i = 0; i < RIVALS; i++) {
        struct rival *rival = &rivals[i];
        *rival = (struct rival){.leaders = &leaders, .reigns = &reigns, .met = &met, .left = &left};
        snprintf(rival->application, sizeof rival->application, "rival_%d", i);
        rival->leader = candidate(rival->application);
        assert_wait(rival->leader, 60000, PQTX_OK); /* so that it has its connection */
        release(rival->leader);
        rival->own = open_session();
    }
    for (int i = 0; i < RIVALS; i++)
        ck_assert(pthread_create(&rivals[i].thread, NULL, contend, &rivals[i]) == 0);
    for (int i = 0; i < RIVALS; i++) {
        pthread_join(rivals[i].thread, NULL);
        pqtx_leader_close(rivals[i].leader);
        PQfinish(rivals[i].own);
    }
    ck_assert_int_eq(met, 0);
    ck_assert_int_eq(left, 0);
    ck_assert_int_ge(reigns, REIGNS);
}
END_TEST

/* ---- take-over under load */

enum { WRITERS = 4, TAKE_OVERS = 12 };

struct band {
    pqtx_pool *pool;
    _Atomic int64_t epoch; /* as the writers know it, who are told late */
    atomic_bool done;
    atomic_int written, refused, failed;
};

/* Numbered while the fence stands, in the order of the epochs. */
static void *write_on(void *arg)
{
    struct band *band = arg;
    while (!atomic_load(&band->done)) {
        int64_t epoch = atomic_load(&band->epoch);
        pqtx_status status = pqtx_run(band->pool, NULL, write_fenced, &epoch, NULL);
        atomic_fetch_add(status == PQTX_OK           ? &band->written
                         : status == PQTX_LEASE_LOST ? &band->refused
                                                     : &band->failed,
                         1);
    }
    return NULL;
}

static void wait_for(atomic_int *count, int more)
{
    int from = atomic_load(count);
    for (int i = 0; i < 60000 && atomic_load(count) < from + more; i++)
        poll(NULL, 0, 1);
    ck_assert_int_ge(atomic_load(count), from + more);
}

START_TEST(no_epoch_is_written_after_a_newer_one)
{
    struct band band = {.pool = open_pool(WRITERS)};
    pthread_t threads[WRITERS];
    pqtx_leader *leaders[] = {candidate("even"), candidate("odd")};
    static const char *const names[] = {"even", "odd"};
    assert_try(leaders[0], PQTX_OK);
    atomic_store(&band.epoch, pqtx_leader_epoch(leaders[0]));
    for (int i = 0; i < WRITERS; i++)
        ck_assert(pthread_create(&threads[i], NULL, write_on, &band) == 0);
    for (int i = 1; i <= TAKE_OVERS; i++) {
        wait_for(&band.written, 10);
        end(names[(i - 1) % 2]);
        assert_wait(leaders[i % 2], 60000, PQTX_OK);
        wait_for(&band.refused, 10); /* the writers go on with the old epoch */
        atomic_store(&band.epoch, pqtx_leader_epoch(leaders[i % 2]));
    }
    atomic_store(&band.done, true);
    for (int i = 0; i < WRITERS; i++)
        pthread_join(threads[i], NULL);
    ck_assert_int_eq(band.failed, 0);
    ck_assert_int_eq(ask_int(monitor, "SELECT count(*) FROM (SELECT epoch - lag(epoch) OVER"
                                      " (ORDER BY id) AS step FROM work) AS s WHERE step < 0"),
                     0);
    ck_assert_int_ge(ask_int(monitor, "SELECT count(DISTINCT epoch) FROM work"), TAKE_OVERS);
    pqtx_leader_close(leaders[0]);
    pqtx_leader_close(leaders[1]);
    pqtx_pool_close(band.pool);
}
END_TEST

/* ---- a server that is not there, or says nothing */

static bool restart_server(void)
{
    if (!getenv("PQTX_TEST_PGDATA") || !*getenv("PQTX_TEST_PGDATA"))
        return false;
    ck_assert(system("cd \"$PQTX_TEST_PGDATA\" && $PQTX_TEST_AS \"$PQTX_TEST_BINDIR/pg_ctl\" -s -w"
                     " -D \"$PQTX_TEST_PGDATA\" -l \"$PQTX_TEST_PGDATA/server.log\" -m fast"
                     " restart") == 0);
    PQreset(monitor);
    return true;
}

START_TEST(a_restart_of_the_server_ends_the_leadership_and_not_the_waiting)
{
    pqtx_leader *first = candidate("first"), *second = candidate("second");
    assert_try(first, PQTX_OK);
    int64_t epoch = pqtx_leader_epoch(first);
    struct waiter waiter = {.leader = second, .timeout_ms = 60000};
    start_waiter(&waiter);
    wait_until_waiting("second");
    if (!restart_server()) {
        puts("the server is not ours (PQTX_TEST_PGDATA is not set): no restart is tried");
        end("first");
    }
    join_waiter(&waiter, PQTX_OK);
    ck_assert_int_eq(pqtx_leader_is(first), 0);
    ck_assert_int_eq(pqtx_leader_is(second), 1);
    ck_assert_int_gt(pqtx_leader_epoch(second), epoch);
    pqtx_leader_close(first);
    pqtx_leader_close(second);
}
END_TEST

/* Two hosts: the proxy, and the server. */
static void lead_through(char *conninfo, size_t size, const struct proxy *proxy)
{
    const char *directory = proxy_conninfo(proxy);
    for (const char *at = directory; (at = strstr(at, " host=")) != NULL; at++)
        directory = at + strlen(" host=");
    snprintf(conninfo, size,
             "%s host=%.*s,%s port=5432,%s hostaddr='' sslmode=disable gssencmode=disable",
             test_conninfo(), (int)strcspn(directory, " "), directory, PQhost(monitor),
             PQport(monitor));
}

START_TEST(a_line_that_has_fallen_silent_holds_nobody_up)
{
    char conninfo[4096];
    struct proxy *proxy = proxy_open();
    options.answer_ms = 300;
    pqtx_leader *near = candidate_to(proxy_conninfo(proxy), "near");
    assert_try(near, PQTX_OK);
    proxy_freeze(proxy);
    int64_t began = monotonic_us();
    ck_assert_int_eq(pqtx_leader_is(near), 1); /* nothing is to be seen */
    assert_status(pqtx_leader_check(near, &error), PQTX_LEASE_LOST, &error);
    ck_assert_int_eq(pqtx_leader_is(near), 0);
    assert_wait(near, 500, PQTX_NO_CONNECTION);
    assert_status(pqtx_leader_release(near, &error), PQTX_OK, &error);
    pqtx_leader_close(near);
    ck_assert_int_le(monotonic_us() - began, 20000000);

    proxy_thaw(proxy);
    lead_through(conninfo, sizeof conninfo, proxy);
    near = candidate_to(conninfo, "near");
    assert_wait(near, 20000, PQTX_OK);
    int lost = pid_of("near");
    proxy_freeze(proxy);
    assert_status(pqtx_leader_release(near, &error), PQTX_NO_CONNECTION, &error);
    ck_assert_int_eq(pqtx_leader_is(near), 0);
    ck_assert_int_eq(locks_of("near"), 1);
    assert_wait(near, 40000, PQTX_OK); /* the other way, where the old session is ended */
    wait_until_gone(lost);
    ck_assert_int_eq(locks_of("near"), 1);
    pqtx_leader_close(near);
    proxy_close(proxy);
}
END_TEST

START_TEST(silence_in_the_middle_of_a_take_over_ends_in_time)
{
    struct proxy *proxy = proxy_open();
    options.answer_ms = 300;
    options.slice_ms = 100;
    for (int trap = PROXY_FREEZE_BEFORE; trap <= PROXY_FREEZE_AFTER; trap++) {
        char *conninfo = strdup(proxy_conninfo(proxy));
        pqtx_leader *near = candidate_to(conninfo, "near"), *other = candidate("other");
        int64_t began = monotonic_us();
        proxy_set_trap(proxy, (enum proxy_trap)trap, "pg_try_advisory_lock");
        assert_try(near, PQTX_NO_CONNECTION);
        pqtx_leader_close(near);
        ck_assert_int_le(monotonic_us() - began, 20000000);
        proxy_thaw(proxy);
        assert_wait(other, 20000, PQTX_OK); /* what was held went with the session */
        pqtx_leader_close(other);
        free(conninfo);
    }
    proxy_close(proxy);
}
END_TEST

/* ---- settings of others */

START_TEST(limits_of_the_role_do_not_end_the_leader)
{
    char conninfo[4096];
    pqtx_leader *other = candidate("other");
    assert_try(other, PQTX_OK);
    snprintf(conninfo, sizeof conninfo,
             "%s options='-c default_transaction_isolation=serializable -c statement_timeout=50ms"
             " -c lock_timeout=1ms -c default_transaction_read_only=on%s"
             " -c synchronous_commit=off -c search_path=%s'",
             test_conninfo(),
             PQserverVersion(monitor) >= 140000 ? " -c idle_session_timeout=50ms" : "", SCHEMA);
    pqtx_leader *first = candidate_to(conninfo, "first");
    struct waiter waiter = {.leader = first, .timeout_ms = 60000};
    start_waiter(&waiter);
    wait_until_waiting("first");
    wait_until_true(monitor, "SELECT now() - state_change > interval '200ms' FROM pg_stat_activity"
                             " WHERE application_name = 'first'");
    release(other);
    join_waiter(&waiter, PQTX_OK);
    wait_until_true(monitor, "SELECT now() - state_change > interval '200ms' FROM pg_stat_activity"
                             " WHERE application_name = 'first'");
    ck_assert_int_eq(pqtx_leader_is(first), 1);
    assert_status(pqtx_leader_check(first, &error), PQTX_OK, &error);
    pqtx_leader_close(first);
    pqtx_leader_close(other);
}
END_TEST

START_TEST(decoys_in_the_search_path_change_nothing)
{
    static const char *const functions[] = {
        "date_part(pg_catalog.text, pg_catalog.timestamptz)",
        "clock_timestamp()",
        "current_setting(pg_catalog.text)",
        "pg_backend_pid()",
        "pg_try_advisory_xact_lock(pg_catalog.int8)",
        "pg_advisory_xact_lock(pg_catalog.int8)",
        "pg_try_advisory_lock(pg_catalog.int8)",
        "pg_advisory_unlock(pg_catalog.int8)",
        "pg_advisory_unlock_all()",
        "set_config(pg_catalog.text, pg_catalog.text, pg_catalog.bool)"};
    static const char *const types[] = {"text", "int8", "float8", "name"};
    char statement[512], conninfo[4096];
    sql(monitor, "DROP SCHEMA IF EXISTS pqtx_decoys CASCADE; CREATE SCHEMA pqtx_decoys;"
                 "CREATE DOMAIN pqtx_decoys.int8 AS pg_catalog.int8 CHECK (false);"
                 "CREATE DOMAIN pqtx_decoys.text AS pg_catalog.text CHECK (false);"
                 "CREATE TABLE pqtx_decoys.pqtx_leader (trap int);"
                 "CREATE VIEW pqtx_decoys.pg_settings AS SELECT 1 / 0 AS name");
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        snprintf(statement, sizeof statement,
                 "CREATE FUNCTION pqtx_decoys.%s RETURNS pg_catalog.text LANGUAGE plpgsql AS"
                 " $$ BEGIN RAISE 'trapped'; END $$",
                 functions[i]);
        sql(monitor, statement);
    }
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        snprintf(statement, sizeof statement,
                 "CREATE FUNCTION pqtx_decoys.trap(pg_catalog.%s, pg_catalog.%s) RETURNS bool"
                 " LANGUAGE plpgsql AS $$ BEGIN RAISE 'trapped'; END $$",
                 types[i], types[i]);
        sql(monitor, statement);
        for (const char *at = "=+*"; *at; at++) {
            snprintf(statement, sizeof statement,
                     "CREATE OPERATOR pqtx_decoys.%c (FUNCTION = pqtx_decoys.trap,"
                     " LEFTARG = pg_catalog.%s, RIGHTARG = pg_catalog.%s)",
                     *at, types[i], types[i]);
            sql(monitor, statement);
        }
    }
    snprintf(conninfo, sizeof conninfo, "%s options='-c search_path=pqtx_decoys,pg_catalog,%s'",
             test_conninfo(), SCHEMA);
    pqtx_leader *first = candidate_to(conninfo, "first");
    pqtx_pool *pool = pool_to(conninfo);
    assert_status(pqtx_leader_install(pool, SCHEMA, &error), PQTX_OK, &error);
    assert_wait(first, 20000, PQTX_OK);
    assert_status(pqtx_leader_check(first, &error), PQTX_OK, &error);
    assert_fenced(pool, pqtx_leader_epoch(first), PQTX_OK);
    assert_fenced(pool, 1, PQTX_LEASE_LOST);
    release(first);
    assert_try(first, PQTX_OK);
    pqtx_leader_close(first);
    pqtx_pool_close(pool);
    sql(monitor, "DROP SCHEMA pqtx_decoys CASCADE");
}
END_TEST

/* ---- who is in the wrong place */

START_TEST(without_its_table_nobody_leads)
{
    pqtx_leader *first = candidate("first");
    sql(monitor, "DROP TABLE pqtx_leader");
    assert_try(first, PQTX_BAD_STATEMENT);
    assert_wait(first, 20000, PQTX_BAD_STATEMENT);
    ck_assert_int_eq(locks_of("first"), 0);
    sql(monitor, pqtx_leader_ddl());
    assert_wait(first, 20000, PQTX_OK);
    pqtx_leader_close(first);
}
END_TEST

START_TEST(what_makes_no_sense_is_misuse)
{
    struct {
        pqtx_leader_options known;
        int64_t unknown;
    } newer = {.known = {.size = sizeof newer}, .unknown = 1};
    char name[202];
    pqtx_leader *leader;
    pqtx_pool *pool = open_pool(1);
    memset(name, 'n', sizeof name);
    name[201] = '\0';
#define OPEN(called, how) pqtx_leader_open(pool, called, how, &leader, NULL)
    ck_assert_int_eq(OPEN(NULL, NULL), PQTX_MISUSE);
    ck_assert_ptr_null(leader);
    ck_assert_int_eq(OPEN("", NULL), PQTX_MISUSE);
    ck_assert_int_eq(OPEN(name, NULL), PQTX_MISUSE);
    ck_assert_int_eq(OPEN("boss", &newer.known), PQTX_MISUSE);
    options.schema = "no plain name";
    ck_assert_int_eq(OPEN("boss", &options), PQTX_MISUSE);
    options.schema = SCHEMA;
    options.slice_ms = -1;
    ck_assert_int_eq(OPEN("boss", &options), PQTX_MISUSE);
    options.slice_ms = 0;
    options.answer_ms = INT64_C(2147483648);
    ck_assert_int_eq(OPEN("boss", &options), PQTX_MISUSE);
    options.answer_ms = 2147483647;
    name[200] = '\0';
    assert_status(OPEN(name, &options), PQTX_OK, NULL);
    assert_try(leader, PQTX_OK);
    pqtx_leader_close(leader);
    error.status = PQTX_BUSY;
    assert_status(pqtx_leader_open(pool, "boss", NULL, &leader, &error), PQTX_OK, &error);
    ck_assert_int_eq(error.status, PQTX_OK);
    pqtx_leader_close(leader);
    ck_assert_int_eq(pqtx_leader_open(NULL, "boss", NULL, &leader, NULL), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_leader_open(pool, "boss", NULL, NULL, NULL), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_leader_try(NULL, &error), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_leader_wait(NULL, 1, NULL), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_leader_release(NULL, NULL), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_leader_check(NULL, NULL), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_leader_is(NULL), 0);
    ck_assert_int_eq(pqtx_leader_epoch(NULL), 0);
    ck_assert_int_eq(pqtx_leader_fd(NULL), -1);
    ck_assert_int_eq(pqtx_leader_install(pool, "a b", &error), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_leader_install(NULL, SCHEMA, NULL), PQTX_MISUSE);
    pqtx_leader_close(NULL);
    pqtx_pool_close(pool);
}
END_TEST

#define EXPECT(truth)                                                                              \
    do {                                                                                           \
        if (!(truth)) {                                                                            \
            fprintf(stderr, "in the child, line %d: %s\n", __LINE__, #truth);                      \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

START_TEST(a_forked_child_is_no_leader_and_harms_none)
{
    int status;
    pqtx_leader *first = candidate("first");
    assert_try(first, PQTX_OK);
    fflush(NULL);
    pid_t child = fork();
    ck_assert(child >= 0);
    if (child == 0) {
        EXPECT(pqtx_leader_is(first) == 0);
        EXPECT(pqtx_leader_epoch(first) == 0);
        EXPECT(pqtx_leader_fd(first) == -1);
        EXPECT(pqtx_leader_try(first, NULL) == PQTX_MISUSE);
        EXPECT(pqtx_leader_wait(first, 1, NULL) == PQTX_MISUSE);
        EXPECT(pqtx_leader_check(first, NULL) == PQTX_MISUSE);
        EXPECT(pqtx_leader_release(first, NULL) == PQTX_MISUSE);
        pqtx_leader_close(first);
        _exit(0);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child: status %d", status);
    ck_assert_int_eq(pqtx_leader_is(first), 1);
    assert_status(pqtx_leader_check(first, &error), PQTX_OK, &error);
    ck_assert_int_eq(locks_of("first"), 1);
    pqtx_leader_close(first);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("live_leader");
    TCase *c = tcase_create("leader");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_set_timeout(c, 120);
    tcase_add_test(c, two_leaders_are_never_at_once);
    tcase_add_test(c, a_try_does_not_wait_for_the_leader);
    tcase_add_test(c, names_and_schemas_have_leaders_of_their_own);
    tcase_add_test(c, a_lock_is_held_once_however_often_it_is_asked_for);
    tcase_add_test(c, the_lock_is_the_documented_one);
    tcase_add_test(c, the_row_tells_people_who_leads);
    tcase_add_test(c, an_epoch_is_larger_than_any_before);
    tcase_add_test(c, an_ended_session_is_noticed_without_a_question);
    tcase_add_test(c, the_servers_last_words_are_enough);
    tcase_add_test(c, every_call_notices_that_the_session_has_ended);
    tcase_add_test(c, a_check_asks_the_server);
    tcase_add_test(c, a_stale_leaders_write_is_refused_even_when_it_comes_later);
    tcase_add_test(c, a_take_over_waits_for_fenced_writes_under_way);
    tcase_add_test(c, a_fenced_write_waits_for_a_take_over_and_is_refused);
    tcase_add_test(c, a_failed_fence_marks_the_attempt);
    tcase_add_test(c, who_waits_leads_when_the_leader_lets_go);
    tcase_add_test(c, waiting_ends_in_time);
    tcase_add_test(c, a_waiter_does_not_hold_up_an_index_that_is_built_meanwhile);
    tcase_add_test(c, a_lock_that_is_held_in_spite_of_the_error_is_given_back);
    tcase_add_test(c, who_gives_up_waiting_holds_nothing);
    tcase_add_test(c, no_epoch_is_written_after_a_newer_one);
    tcase_add_test(c, a_restart_of_the_server_ends_the_leadership_and_not_the_waiting);
    tcase_add_test(c, a_line_that_has_fallen_silent_holds_nobody_up);
    tcase_add_test(c, silence_in_the_middle_of_a_take_over_ends_in_time);
    tcase_add_test(c, limits_of_the_role_do_not_end_the_leader);
    tcase_add_test(c, decoys_in_the_search_path_change_nothing);
    tcase_add_test(c, without_its_table_nobody_leads);
    tcase_add_test(c, what_makes_no_sense_is_misuse);
    tcase_add_test(c, a_forked_child_is_no_leader_and_harms_none);
    suite_add_tcase(s, c);
    return s;
}

int main(void)
{
    return run_suite(suite());
}
