/* check_live_orphan.c: a client is killed while its one flight waits for a row: the server notices,
 * does not wait for the row any longer, and commits nothing of what was still to come. */
#define _DEFAULT_SOURCE
#include "support.h"
#include "support_tx.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SCHEMA "pqtx_orphan"

enum { HELD = 1, FREE, BEFORE }; /* rows and marks */
enum { REHEARSALS = 3 };

static PGconn *monitor;
static char orphans[32]; /* the name of their sessions */

static void set_up(void)
{
    snprintf(orphans, sizeof orphans, "check_orphan_%d", (int)getpid());
    fresh_schema(SCHEMA);
    monitor = open_session();
    sql(monitor, "CREATE TABLE counter (id int PRIMARY KEY, value bigint NOT NULL);"
                 "INSERT INTO counter SELECT id, 0 FROM generate_series(1, 2) AS id;"
                 "CREATE TABLE mark (id bigint NOT NULL)");
}

static void tear_down(void)
{
    PQfinish(monitor);
}

/* From PostgreSQL 14 on, and on Linux alone of what these tests have run on. */
static bool server_looks_after_clients(void)
{
    bool looks = PQserverVersion(monitor) >= 140000 &&
                 ask_int(monitor, "SELECT (version() LIKE '%linux%')::int") == 1;
    if (!looks)
        puts("the server has no client_connection_check_interval that works: left out");
    return looks;
}

/* ---- the forms of one flight */

#define UPDATE "UPDATE counter SET value = value + 1 WHERE id = $1"
#define MARK   "INSERT INTO mark VALUES ($1)"

/* Only for its one row does a client ever wait. */
static pqtx_status mark_and_count(pqtx_tx *tx, void *row)
{
    pqtx_exec(tx, MARK, PQTX_ARGS(PQTX_INT(*(int *)row)), NULL);
    return pqtx_update_one(tx, UPDATE, PQTX_ARGS(PQTX_INT(*(int *)row)));
}

static pqtx_status run_body(pqtx_pool *pool, pqtx_options *options, int row)
{
    options->flags |= PQTX_PIPELINE;
    return pqtx_run(pool, options, mark_and_count, &row, NULL);
}

static pqtx_status run_one(pqtx_pool *pool, pqtx_options *options, int row)
{
    return pqtx_run_one(pool, options, UPDATE, PQTX_ARGS(PQTX_INT(row)), 1, NULL, NULL);
}

/* The row stands in the middle: what is in front of it is committed, what is behind it is not. */
static pqtx_status run_each(pqtx_pool *pool, pqtx_options *options, int row)
{
    pqtx_value values[] = {pqtx_int(BEFORE), pqtx_int(row), pqtx_int(row)};
    pqtx_item items[3];
    for (int i = 0; i < 3; i++) {
        items[i] = (pqtx_item)PQTX_ITEM;
        items[i].sql = i == 1 ? UPDATE : MARK;
        items[i].count = 1;
        items[i].values = &values[i];
        items[i].expected = PQTX_ANY_ROWS;
    }
    pqtx_status status = pqtx_run_each(pool, options, items, 3, NULL);
    for (int i = 0; i < 3; i++)
        PQclear(items[i].result);
    return status;
}

static const struct form {
    pqtx_status (*run)(pqtx_pool *pool, pqtx_options *options, int row);
    pqtx_isolation isolation; /* any but the session's own: with BEGIN and COMMIT */
    int before;               /* what each client commits in front of the row that is held */
} forms[] = {
    {run_body, PQTX_ISO_DEFAULT, 0}, {run_body, PQTX_ISO_READ_COMMITTED, 0},
    {run_one, PQTX_ISO_DEFAULT, 0},  {run_one, PQTX_ISO_READ_COMMITTED, 0},
    {run_each, PQTX_ISO_DEFAULT, 1},
};

enum { FORMS = sizeof forms / sizeof forms[0] };

/* Nothing but a row that is let go, or the server's own doing, ends the wait. */
static pqtx_options options_for(const struct form *form)
{
    pqtx_options options = PQTX_OPTIONS;
    options.isolation = form->isolation;
    options.lock_timeout_ms = PQTX_NO_TIMEOUT;
    options.deadline_ms = 600000;
    return options;
}

/* ---- killed */

/* A process that waits for the row; before, as often as it says, its statements have run, and are
 * prepared. */
static pid_t start_client(const struct form *form, int rehearsals)
{
    fflush(NULL);
    pid_t child = fork();
    ck_assert(child >= 0);
    if (child > 0)
        return child;
    setenv("PGAPPNAME", orphans, 1);
    pqtx_pool *pool = open_pool(1);
    for (int i = 0; i <= rehearsals; i++) {
        pqtx_options options = options_for(form);
        if (form->run(pool, &options, i < rehearsals ? FREE : HELD) != PQTX_OK)
            break;
    }
    fputs("the client was to be killed, and has come to an end\n", stderr);
    _exit(1);
}

static void kill_client(pid_t client)
{
    int status;
    ck_assert(kill(client, SIGKILL) == 0);
    ck_assert_int_eq(waitpid(client, &status, 0), client);
    ck_assert_msg(WIFSIGNALED(status), "it had ended by itself");
}

static void wait_for_orphans(const char *what)
{
    char query[256];
    snprintf(query, sizeof query, "SELECT %s FROM pg_stat_activity WHERE application_name = '%s'",
             what, orphans);
    wait_until_true(monitor, query);
}

START_TEST(the_server_does_not_wait_for_a_row_that_a_dead_client_wanted)
{
    const struct form *form = &forms[_i];
    PGconn *holder = open_session();
    if (!server_looks_after_clients())
        return;
    sql(holder, "BEGIN; UPDATE counter SET value = 100 WHERE id = 1");
    pid_t fresh = start_client(form, 0), rehearsed = start_client(form, REHEARSALS);
    wait_for_orphans("count(*) = 2 AND bool_and(cardinality(pg_blocking_pids(pid)) > 0)");
    kill_client(fresh);
    kill_client(rehearsed);
    wait_for_orphans("count(*) = 0");
    ck_assert_int_eq(PQtransactionStatus(holder), PQTRANS_INTRANS);
    sql(holder, "COMMIT");
    ck_assert_int_eq(ask_int(monitor, "SELECT value FROM counter WHERE id = 1"), 100);
    ck_assert_int_eq(ask_int(monitor, "SELECT count(*) FROM mark WHERE id = 1"), 0);
    ck_assert_int_eq(ask_int(monitor, "SELECT count(*) FROM mark WHERE id = 3"),
                     (2 + REHEARSALS) * form->before);
    PQfinish(holder);
}
END_TEST

/* ---- for the flight alone */

#define CHECK   "current_setting('client_connection_check_interval')"
#define LIMITS  "current_setting('lock_timeout') || current_setting('statement_timeout')"
#define ASK     "SELECT " CHECK
#define ASK_ALL "SELECT " CHECK " || ' ' || " LIMITS

struct answer {
    const char *query;
    const PGresult *result; /* of a flight that has landed */
    char text[64];
};

static void note(struct answer *answer, const PGresult *result)
{
    ck_assert_int_eq(PQntuples(result), 1);
    snprintf(answer->text, sizeof answer->text, "%s", PQgetvalue(result, 0, 0));
}

static pqtx_status ask_and_commit(pqtx_tx *tx, struct answer *answer)
{
    pqtx_exec_one(tx, answer->query, PQTX_NO_ARGS, &answer->result);
    pqtx_status status = pqtx_commit(tx);
    if (status == PQTX_OK)
        note(answer, answer->result);
    return status;
}

/* Without pipeline mode, so as the session has it. */
static const char *session_says(pqtx_pool *pool, struct answer *answer)
{
    answer->query = ASK_ALL;
    pqtx_options options = PQTX_OPTIONS;
    options.lock_timeout_ms = PQTX_NO_TIMEOUT;
    pqtx_tx *tx = pqtx_new(pool, &options);
    while (pqtx_attempt(tx))
        ask_and_commit(tx, answer);
    assert_status(pqtx_result(tx), PQTX_OK, NULL);
    pqtx_free(tx);
    return answer->text;
}

static void ask_in_body(pqtx_pool *pool, pqtx_options *options, struct answer *answer)
{
    options->flags |= PQTX_PIPELINE;
    pqtx_tx *tx = pqtx_new(pool, options);
    while (pqtx_attempt(tx))
        ask_and_commit(tx, answer);
    assert_status(pqtx_result(tx), PQTX_OK, NULL);
    pqtx_free(tx);
}

static void ask_in_one(pqtx_pool *pool, pqtx_options *options, struct answer *answer)
{
    PGresult *result;
    pqtx_error error = PQTX_ERROR;
    pqtx_status status =
        pqtx_run_one(pool, options, answer->query, PQTX_NO_ARGS, 1, &result, &error);
    assert_status(status, PQTX_OK, &error);
    note(answer, result);
    PQclear(result);
}

/* Of several the last one. */
static void ask_in_each(pqtx_pool *pool, pqtx_options *options, struct answer *answer)
{
    pqtx_item items[] = {PQTX_ITEM, PQTX_ITEM};
    pqtx_error error = PQTX_ERROR;
    items[0].sql = items[1].sql = answer->query;
    items[0].expected = items[1].expected = 1;
    assert_status(pqtx_run_each(pool, options, items, 2, &error), PQTX_OK, &error);
    note(answer, items[1].result);
    PQclear(items[0].result);
    PQclear(items[1].result);
}

static const struct {
    void (*ask)(pqtx_pool *pool, pqtx_options *options, struct answer *answer);
    pqtx_isolation isolation;
} ways[] = {
    {ask_in_body, PQTX_ISO_DEFAULT}, {ask_in_body, PQTX_ISO_READ_COMMITTED},
    {ask_in_one, PQTX_ISO_DEFAULT},  {ask_in_one, PQTX_ISO_READ_COMMITTED},
    {ask_in_each, PQTX_ISO_DEFAULT},
};

enum { WAYS = sizeof ways / sizeof ways[0] };

/* What the session had before, be it the server's default or its own, it has afterwards. */
START_TEST(what_a_flight_asks_the_server_to_look_after_is_not_left_in_the_session)
{
    static const char *const own[] = {"SET client_connection_check_interval = 7000",
                                      "RESET client_connection_check_interval"};
    if (!server_looks_after_clients())
        return;
    pqtx_pool *pool = open_pool(1);
    for (int i = 0; i < 2; i++) {
        struct answer answer = {.query = ASK}, before = answer, after = answer;
        pqtx_options options = PQTX_OPTIONS;
        pqtx_error error = PQTX_ERROR;
        assert_status(pqtx_run_one(pool, NULL, own[i], PQTX_NO_ARGS, PQTX_ANY_ROWS, NULL, &error),
                      PQTX_OK, &error);
        session_says(pool, &before);
        options.isolation = ways[_i].isolation;
        for (int j = 0; j < 3; j++) { /* the later ones prepared */
            ways[_i].ask(pool, &options, &answer);
            ck_assert_str_eq(answer.text, "1s");
            ck_assert_str_eq(session_says(pool, &after), before.text);
        }
        ck_assert_int_eq(strncmp(before.text, "7s ", 3) == 0, i == 0);
    }
    ck_assert_uint_eq(stats_of(pool).connects, 1);
    pqtx_pool_close(pool);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("live_orphan");
    TCase *c = tcase_create("orphan");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_set_timeout(c, 120);
    tcase_add_loop_test(c, the_server_does_not_wait_for_a_row_that_a_dead_client_wanted, 0, FORMS);
    tcase_add_loop_test(c, what_a_flight_asks_the_server_to_look_after_is_not_left_in_the_session,
                        0, WAYS);
    suite_add_tcase(s, c);
    return s;
}

int main(void)
{
    return run_suite(suite());
}
