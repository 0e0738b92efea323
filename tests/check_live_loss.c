/* check_live_loss.c: connections that go: ended by the server, cut in COMMIT, taken over a fork. */
#define _DEFAULT_SOURCE
#include "support.h"
#include "support_proxy.h"
#include "support_tx.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static PGconn *monitor;

static void set_up(void)
{
    char name[32];
    snprintf(name, sizeof name, "check_loss_%d", (int)getpid());
    setenv("PGAPPNAME", name, 1); /* tells this test's sessions from all others */
    fresh_schema("pqtx_loss");
    monitor = open_session();
    sql(monitor, "CREATE TABLE mark (id bigint PRIMARY KEY)");
}

static void tear_down(void)
{
    PQfinish(monitor);
}

static pqtx_pool *open_through(const struct proxy *proxy)
{
    pqtx_pool_options options = PQTX_POOL_OPTIONS;
    pqtx_error error = PQTX_ERROR;
    pqtx_pool *pool;
    options.conninfo = proxy_conninfo(proxy);
    assert_status(pqtx_pool_open(&options, &pool, &error), PQTX_OK, &error);
    return pool;
}

#define OUR_SESSIONS                                                                               \
    " FROM pg_stat_activity WHERE application_name = current_setting('application_name')"          \
    " AND pid <> pg_backend_pid()"

static void terminate_all(void)
{
    sql(monitor, "SELECT pg_terminate_backend(pid)" OUR_SESSIONS);
}

/* A pooler's sessions stay, but do nothing. */
static void wait_until_none_is_left(void)
{
    wait_until_true(monitor, is_pooled() ? "SELECT count(*) = 0" OUR_SESSIONS
                                           " AND xact_start IS NOT NULL"
                                         : "SELECT count(*) = 0" OUR_SESSIONS);
}

static bool is_marked(int64_t id)
{
    char query[64];
    snprintf(query, sizeof query, "SELECT count(*) FROM mark WHERE id = %lld", (long long)id);
    return ask_int(monitor, query) == 1;
}

/* ---- ended by the server */

START_TEST(a_pool_whose_idle_connections_were_all_ended_goes_on)
{
    enum { COUNT = 15 }; /* more than the attempts that a run has */
    pqtx_tx *held[COUNT];
    int64_t pid;
    pqtx_pool *pool = open_pool(COUNT);
    for (int i = 0; i < COUNT; i++)
        held[i] = hold_tx(pool, NULL, NULL);
    for (int i = 0; i < COUNT; i++)
        end_tx(held[i]);
    ck_assert_uint_eq(stats_of(pool).idle_count, COUNT);
    terminate_all();
    wait_until_none_is_left();
    for (int i = 0; i < COUNT; i++)
        assert_status(pqtx_run(pool, NULL, ask_pid, &pid, NULL), PQTX_OK, NULL);
    pqtx_stats stats = stats_of(pool);
    ck_assert_uint_eq(stats.commits, 2 * COUNT);
    /* A pooler lends what it does not yet know to be gone. */
    ck_assert(stats.rollbacks == 0 || is_pooled());
    pqtx_pool_close(pool);
}
END_TEST

START_TEST(a_pool_whose_lines_were_all_cut_goes_on)
{
    struct proxy *proxy = proxy_open();
    pqtx_pool *pool = open_through(proxy);
    int64_t pid;
    pqtx_tx *one = hold_tx(pool, NULL, NULL), *two = hold_tx(pool, NULL, NULL);
    end_tx(one);
    end_tx(two);
    proxy_cut(proxy);
    for (int i = 0; i < 3; i++)
        assert_status(pqtx_run(pool, NULL, ask_pid, &pid, NULL), PQTX_OK, NULL);
    ck_assert_uint_eq(stats_of(pool).drops, 2);
    pqtx_pool_close(pool);
    proxy_close(proxy);
}
END_TEST

START_TEST(a_body_whose_connection_was_ended_runs_again_on_another)
{
    int64_t first, second;
    pqtx_pool *pool = open_pool(2);
    pqtx_tx *tx = hold_tx(pool, NULL, &first);
    terminate_all();
    wait_until_none_is_left();
    pqtx_status status = pqtx_exec(tx, "SELECT 1", PQTX_NO_ARGS, NULL);
    pqtx_error error = PQTX_ERROR;
    pqtx_get_error(tx, &error);
    assert_status(status, PQTX_NO_CONNECTION, &error);
    ck_assert_str_eq(error.sqlstate, "57P01");
    ck_assert(error.flags & PQTX_ERROR_CONNECTION);
    assert_status(pqtx_commit(tx), PQTX_NO_CONNECTION, NULL);
    ck_assert_int_eq(pqtx_attempt(tx), 1);
    assert_status(ask_pid(tx, &second), PQTX_OK, NULL);
    ck_assert_int_ne(first, second);
    end_tx(tx);
    ck_assert_uint_eq(stats_of(pool).retries_connection, 1);
    pqtx_pool_close(pool);
}
END_TEST

/* Threads that write a row each time, and note what the runner said about it. */
enum { WRITERS = 4, ROWS_MAX = 100000 };

struct writers {
    pqtx_pool *pool;
    atomic_bool stop;
    struct writer {
        struct writers *all;
        pthread_t thread;
        int64_t first;
        atomic_long count; /* rows tried */
        pqtx_error error;  /* of the last one that failed */
        signed char status[ROWS_MAX];
    } writer[WRITERS];
};

static pqtx_status write_mark(pqtx_tx *tx, void *arg)
{
    return pqtx_exec(tx, "INSERT INTO mark VALUES ($1)", PQTX_ARGS(PQTX_INT(*(int64_t *)arg)),
                     NULL);
}

static void *write_marks(void *arg)
{
    struct writer *writer = arg;
    for (long i = 0; i < ROWS_MAX && !atomic_load(&writer->all->stop); i++) {
        pqtx_error error = PQTX_ERROR;
        int64_t id = writer->first + i;
        pqtx_status status = pqtx_run(writer->all->pool, NULL, write_mark, &id, &error);
        writer->status[i] = (signed char)status;
        if (status != PQTX_OK)
            writer->error = error;
        atomic_store(&writer->count, i + 1);
    }
    return NULL;
}

static struct writers *start_writers(pqtx_pool *pool)
{
    struct writers *writers = calloc(1, sizeof *writers);
    ck_assert_ptr_nonnull(writers);
    writers->pool = pool;
    for (int i = 0; i < WRITERS; i++) {
        writers->writer[i].all = writers;
        writers->writer[i].first = (int64_t)i * ROWS_MAX;
        ck_assert(pthread_create(&writers->writer[i].thread, NULL, write_marks,
                                 &writers->writer[i]) == 0);
    }
    return writers;
}

/* Until each has finished two more runs, so that one was begun after this call. */
static void wait_for_progress(struct writers *writers)
{
    for (int i = 0; i < WRITERS; i++) {
        long wanted = atomic_load(&writers->writer[i].count) + 2;
        while (atomic_load(&writers->writer[i].count) < wanted)
            poll(NULL, 0, 1); /* only between questions; Check's time limit ends it */
    }
}

/* A row is there if, and only if, the runner said so; in doubt it may be or not. */
static void judge_writers(struct writers *writers)
{
    atomic_store(&writers->stop, true);
    for (int i = 0; i < WRITERS; i++) {
        struct writer *writer = &writers->writer[i];
        pthread_join(writer->thread, NULL);
        for (long row = 0; row < atomic_load(&writer->count); row++) {
            pqtx_status status = (pqtx_status)writer->status[row];
            if (status != PQTX_IN_DOUBT) {
                assert_status(status, PQTX_OK, &writer->error);
                ck_assert(is_marked(writer->first + row));
            }
        }
    }
    free(writers);
}

START_TEST(a_pool_whose_busy_connections_are_ended_again_and_again_goes_on)
{
    pqtx_pool *pool = open_pool(WRITERS);
    struct writers *writers = start_writers(pool);
    for (int i = 0; i < 20; i++) {
        wait_for_progress(writers);
        terminate_all();
    }
    wait_for_progress(writers);
    judge_writers(writers);
    ck_assert_uint_gt(stats_of(pool).retries_connection, 0);
    pqtx_pool_close(pool);
}
END_TEST

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

START_TEST(a_restart_of_the_server_costs_no_more_than_retries)
{
    pqtx_pool *pool = open_pool(WRITERS);
    struct writers *writers = start_writers(pool);
    wait_for_progress(writers);
    if (!restart_server())
        puts("the server is not ours (PQTX_TEST_PGDATA is not set): no restart is tried");
    wait_for_progress(writers);
    judge_writers(writers);
    pqtx_pool_close(pool);
}
END_TEST

/* ---- lost in COMMIT */

struct marker {
    int64_t id;
    int runs, committed, rolled_back;
};

static void count_up(void *arg)
{
    ++*(int *)arg;
}

static pqtx_status mark_and_count(pqtx_tx *tx, void *arg)
{
    struct marker *marker = arg;
    marker->runs++;
    pqtx_on_commit(tx, count_up, &marker->committed);
    pqtx_on_rollback(tx, count_up, &marker->rolled_back);
    return write_mark(tx, &marker->id);
}

static void lose(enum proxy_trap trap, const char *text, pqtx_status expected, int runs,
                 bool marked)
{
    struct proxy *proxy = proxy_open();
    pqtx_pool *pool = open_through(proxy);
    struct marker marker = {.id = 1};
    struct task task = {.pool = pool, .work = mark_and_count, .arg = &marker};
    proxy_set_trap(proxy, trap, text);
    run_task(&task, expected);
    ck_assert_int_eq(marker.runs, runs);
    ck_assert_int_eq(marker.committed, expected == PQTX_OK);
    ck_assert_int_eq(marker.rolled_back, runs - 1);
    ck_assert_uint_eq(stats_of(pool).in_doubt, expected == PQTX_IN_DOUBT);
    if (expected == PQTX_IN_DOUBT) {
        ck_assert(task.error.flags & PQTX_ERROR_CONNECTION);
        ck_assert_int_eq(task.error.phase, PQTX_PHASE_COMMIT);
        ck_assert_int_eq(task.error.advice, PQTX_ADVICE_RESOLVE);
    }
    /* The pool itself has taken no harm. */
    ck_assert_int_gt(run_for_pid(pool, NULL), 0);
    pqtx_pool_close(pool);
    proxy_close(proxy);
    /* The backend of a cut line may still be at it. */
    wait_until_none_is_left();
    ck_assert_int_eq(is_marked(1), marked);
}

START_TEST(a_connection_lost_before_commit_arrived_leaves_doubt)
{
    lose(PROXY_CUT_BEFORE, "COMMIT", PQTX_IN_DOUBT, 1, false);
}
END_TEST

START_TEST(a_connection_lost_after_commit_arrived_leaves_doubt)
{
    lose(PROXY_CUT_AFTER, "COMMIT", PQTX_IN_DOUBT, 1, true);
}
END_TEST

START_TEST(a_connection_lost_in_the_body_begins_again)
{
    lose(PROXY_CUT_BEFORE, "INSERT", PQTX_OK, 2, true);
}
END_TEST

START_TEST(a_connection_lost_after_the_statement_arrived_begins_again)
{
    lose(PROXY_CUT_AFTER, "INSERT", PQTX_OK, 2, true);
}
END_TEST

/* ---- over a fork */

/* A child of many threads can inherit a lock of AddressSanitizer's own, and hang in malloc(). */
#if defined(__SANITIZE_ADDRESS__)
#define MAY_FORK_THREADS 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define MAY_FORK_THREADS 0
#endif
#endif
#ifndef MAY_FORK_THREADS
#define MAY_FORK_THREADS 1
#endif

/* Runs `work` in a child, and takes its answer: 0, or the line that was not as it should be. */
static void in_child(int (*work)(pqtx_pool *pool, pqtx_tx *tx), pqtx_pool *pool, pqtx_tx *tx)
{
    int status;
    fflush(NULL);
    pid_t child = fork();
    ck_assert(child >= 0);
    if (child == 0)
        _exit(work(pool, tx) ? 1 : 0);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child: status %d", status);
}

/* A parent with a transaction open and a connection idle lives on after what the child did. */
static void outlive(int (*work)(pqtx_pool *pool, pqtx_tx *tx))
{
    int64_t pid, again, idle_pid;
    pqtx_pool *pool = open_pool(2);
    pqtx_tx *tx = hold_tx(pool, NULL, &pid), *other = hold_tx(pool, NULL, &idle_pid);
    end_tx(other);
    in_child(work, pool, tx);
    assert_status(ask_pid(tx, &again), PQTX_OK, NULL);
    ck_assert_int_eq(again, pid);
    ck_assert_int_eq(run_for_pid(pool, NULL), idle_pid);
    end_tx(tx);
    ck_assert_uint_eq(stats_of(pool).drops, 0);
    pqtx_pool_close(pool);
}

#define EXPECT(truth)                                                                              \
    do {                                                                                           \
        if (!(truth)) {                                                                            \
            fprintf(stderr, "in the child, line %d: %s\n", __LINE__, #truth);                      \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

static int use_pool(pqtx_pool *pool, pqtx_tx *tx)
{
    int64_t pid;
    pqtx_stats stats = PQTX_STATS;
    pqtx_error error = PQTX_ERROR;
    (void)tx;
    pqtx_tx *own = pqtx_new(pool, NULL);
    EXPECT(own && pqtx_attempt(own) == 0);
    EXPECT(pqtx_result(own) == PQTX_MISUSE);
    pqtx_free(own);
    EXPECT(pqtx_run(pool, NULL, ask_pid, &pid, &error) == PQTX_MISUSE);
    EXPECT(error.message[0]);
    EXPECT(pqtx_pool_stats(pool, &stats) == PQTX_MISUSE);
    return 0;
}

static int drive(pqtx_pool *pool, pqtx_tx *tx)
{
    (void)pool;
    EXPECT(pqtx_commit(tx) == PQTX_MISUSE);
    EXPECT(pqtx_attempt(tx) == 0);
    return 0;
}

static int send_statements(pqtx_pool *pool, pqtx_tx *tx)
{
    int64_t rows;
    (void)pool;
    EXPECT(pqtx_exec(tx, "SELECT 1", PQTX_NO_ARGS, NULL) == PQTX_MISUSE);
    EXPECT(pqtx_update(tx, "DELETE FROM mark", PQTX_NO_ARGS, &rows) == PQTX_MISUSE);
    EXPECT(pqtx_lock(tx, 1) == PQTX_MISUSE);
    return 0;
}

static int free_all(pqtx_pool *pool, pqtx_tx *tx)
{
    pqtx_free(tx);
    pqtx_pool_close(pool);
    return 0;
}

static int close_first(pqtx_pool *pool, pqtx_tx *tx)
{
    pqtx_pool_close(pool);
    pqtx_free(tx);
    return 0;
}

static int open_one_more(pqtx_pool *pool, pqtx_tx *tx)
{
    int64_t pid;
    pqtx_pool_options options = PQTX_POOL_OPTIONS;
    pqtx_pool *own;
    options.conninfo = pool_conninfo();
    pqtx_pool_close(pool);
    pqtx_free(tx);
    EXPECT(pqtx_pool_open(&options, &own, NULL) == PQTX_OK);
    EXPECT(pqtx_run(own, NULL, ask_pid, &pid, NULL) == PQTX_OK);
    pqtx_pool_close(own);
    return 0;
}

static int close_unused(pqtx_pool *pool, pqtx_tx *tx)
{
    (void)tx;
    pqtx_tx *own = pqtx_new(pool, NULL);
    EXPECT(pqtx_attempt(own) == 0);
    pqtx_free(own);
    pqtx_pool_close(pool);
    return 0;
}

START_TEST(a_child_may_not_use_its_parents_pool)
{
    outlive(use_pool);
}
END_TEST

START_TEST(a_child_may_not_drive_its_parents_transaction)
{
    outlive(drive);
}
END_TEST

START_TEST(a_child_may_not_send_statements_in_its_parents_transaction)
{
    outlive(send_statements);
}
END_TEST

START_TEST(a_child_may_free_what_it_has_got_from_its_parent)
{
    outlive(free_all);
    outlive(close_first);
}
END_TEST

START_TEST(a_child_may_open_a_pool_of_its_own)
{
    outlive(open_one_more);
}
END_TEST

/* The child has no other threads, but the locks as they were when it was made. */
START_TEST(a_child_made_while_others_use_the_pool_does_not_hang)
{
    pqtx_pool *pool = open_pool(2);
    struct writers *writers = start_writers(pool);
    wait_for_progress(writers);
    for (int i = 0; i < 50; i++)
        in_child(close_unused, pool, NULL);
    judge_writers(writers);
    ck_assert_uint_eq(stats_of(pool).drops, 0);
    pqtx_pool_close(pool);
}
END_TEST

static int use_connection(pqtx_pool *pool, pqtx_tx *tx)
{
    int rc = drive(pool, tx) || send_statements(pool, tx);
    pqtx_free(tx);
    return rc;
}

START_TEST(a_child_may_free_a_transaction_on_its_parents_own_connection)
{
    PGconn *session = open_own();
    pqtx_tx *tx = pqtx_new_on(session, NULL);
    int64_t pid, again;
    ck_assert_int_eq(pqtx_attempt(tx), 1);
    assert_status(ask_pid(tx, &pid), PQTX_OK, NULL);
    in_child(use_connection, NULL, tx);
    assert_status(ask_pid(tx, &again), PQTX_OK, NULL);
    ck_assert_int_eq(again, pid);
    end_tx(tx);
    PQfinish(session);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("live_loss");
    TCase *c = tcase_create("loss");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_set_timeout(c, 120);
    tcase_add_test(c, a_pool_whose_idle_connections_were_all_ended_goes_on);
    tcase_add_test(c, a_pool_whose_lines_were_all_cut_goes_on);
    tcase_add_test(c, a_body_whose_connection_was_ended_runs_again_on_another);
    tcase_add_test(c, a_pool_whose_busy_connections_are_ended_again_and_again_goes_on);
    tcase_add_test(c, a_restart_of_the_server_costs_no_more_than_retries);
    tcase_add_test(c, a_connection_lost_before_commit_arrived_leaves_doubt);
    tcase_add_test(c, a_connection_lost_after_commit_arrived_leaves_doubt);
    tcase_add_test(c, a_connection_lost_in_the_body_begins_again);
    tcase_add_test(c, a_connection_lost_after_the_statement_arrived_begins_again);
    tcase_add_test(c, a_child_may_not_use_its_parents_pool);
    tcase_add_test(c, a_child_may_not_drive_its_parents_transaction);
    tcase_add_test(c, a_child_may_not_send_statements_in_its_parents_transaction);
    tcase_add_test(c, a_child_may_free_what_it_has_got_from_its_parent);
    tcase_add_test(c, a_child_may_open_a_pool_of_its_own);
    if (MAY_FORK_THREADS)
        tcase_add_test(c, a_child_made_while_others_use_the_pool_does_not_hang);
    tcase_add_test(c, a_child_may_free_a_transaction_on_its_parents_own_connection);
    suite_add_tcase(s, c);
    return s;
}

int main(void)
{
    return run_suite(suite());
}
