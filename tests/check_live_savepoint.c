/* check_live_savepoint.c: what a savepoint keeps, what it undoes, and what goes past it to the top.
 */
#include "support.h"

#include <stdio.h>
#include <string.h>

static char undo[] = "undo"; /* for works that are kept with NULL, and undone with this */
static pqtx_pool *pool;
static PGconn *own, *other, *monitor;

static void open_all(void)
{
    fresh_schema("pqtx_savepoint");
    own = open_own();
    other = open_session();
    monitor = open_session();
    sql(other, "CREATE TABLE mark (id int PRIMARY KEY, CHECK (id < 1000));"
               "CREATE TABLE account (id int PRIMARY KEY, value int NOT NULL);"
               "INSERT INTO account VALUES (1, 0), (2, 0)");
    pool = open_pool(2);
}

static void close_all(void)
{
    pqtx_pool_close(pool);
    PQfinish(own);
    PQfinish(other);
    PQfinish(monitor);
}

static pqtx_status mark(pqtx_tx *tx, int id)
{
    return pqtx_exec(tx, "INSERT INTO mark VALUES ($1)", PQTX_ARGS(PQTX_INT(id)), NULL);
}

static const char *marks(void)
{
    return ask(monitor, "SELECT coalesce(string_agg(id::text, ' ' ORDER BY id), '') FROM mark");
}

static pqtx_tx *begin_on_own(const pqtx_options *options)
{
    pqtx_tx *tx = pqtx_new_on(own, options);
    ck_assert_int_eq(pqtx_attempt(tx), 1);
    return tx;
}

static void commit_and_free(pqtx_tx *tx)
{
    pqtx_error error = PQTX_ERROR;
    pqtx_status status = pqtx_commit(tx);
    pqtx_get_error(tx, &error);
    assert_status(status, PQTX_OK, &error);
    ck_assert_uint_eq(pqtx_attempts(tx), 1);
    pqtx_free(tx);
    ck_assert_int_eq(PQtransactionStatus(own), PQTRANS_IDLE);
}

/* ---- What savepoints are filled with: a script of a few letters.
 *
 *     1 … 9  mark it         d  a duplicate          c  a CHECK that fails
 *     (   )  a savepoint     r  leave with an answer of our own */
#define OURS ((pqtx_status)(PQTX_USER + 5))

struct script {
    const char *at;
    pqtx_status inner; /* what the last savepoint inside came to */
};

static const char *skip_to_end(const char *at)
{
    for (int depth = 1; depth > 0; at++)
        depth += (*at == '(') - (*at == ')');
    return at;
}

static pqtx_status play(pqtx_tx *tx, void *arg)
{
    struct script *script = arg;
    while (*script->at && *script->at != ')') {
        const char *end;
        switch (*script->at++) {
        case '(':
            end = skip_to_end(script->at);
            script->inner = pqtx_savepoint(tx, play, script);
            script->at = end;
            break;
        case 'd':
            mark(tx, 1);
            break;
        case 'c':
            mark(tx, 1000);
            break;
        case 'r':
            return OURS;
        default:
            mark(tx, script->at[-1] - '0');
        }
    }
    return PQTX_OK;
}

/* `1` is marked before each script. */
static const struct scene {
    const char *script;
    pqtx_status inner;
    const char *left; /* after the commit */
} scenes[] = {
    {"()", PQTX_OK, "1"},
    {"(2)", PQTX_OK, "1 2"},
    {"(2)(3)", PQTX_OK, "1 2 3"},
    {"(2d)", PQTX_DUPLICATE, "1"},
    {"(2d)3", PQTX_DUPLICATE, "1 3"},
    {"(2c)3", PQTX_CHECK, "1 3"},
    {"(2d4)3", PQTX_DUPLICATE, "1 3"},
    {"(2r)3", OURS, "1 3"},
    {"(r)3", OURS, "1 3"},
    {"(r)", OURS, "1"},
    {"2(3(4)5)6", PQTX_OK, "1 2 3 4 5 6"},
    {"2(3(4d)5)6", PQTX_OK, "1 2 3 5 6"},
    {"2(3(4r)5)6", PQTX_OK, "1 2 3 5 6"},
    {"2(3(4)5r)6", OURS, "1 2 6"},
    {"2(3(4d)5d)6", PQTX_DUPLICATE, "1 2 6"},
    {"2((3))4", PQTX_OK, "1 2 3 4"},
    {"2(((3r)r)r)4", OURS, "1 2 4"},
    {"2(((r)r)r)4", OURS, "1 2 4"},
    {"2((3)r)4", OURS, "1 2 4"},
    {"(2)(3r)(4)(5d)(6)", PQTX_OK, "1 2 4 6"},
    {"(2r)(2r)(2)", PQTX_OK, "1 2"},
    {"((2)(3d)(4))", PQTX_OK, "1 2 4"},
    {"((2)(3)(4)d)5", PQTX_DUPLICATE, "1 5"},
    {"(()()2())()", PQTX_OK, "1 2"},
    {"(()r)()3", PQTX_OK, "1 3"},
    {"(2(3d))", PQTX_OK, "1 2"},
    {"(2(3d)r)", OURS, "1"},
};

START_TEST(what_is_undone_is_gone_and_what_is_kept_stays)
{
    const struct scene *scene = &scenes[_i];
    pqtx_tx *tx = begin_on_own(NULL);
    struct script script = {.at = scene->script};
    mark(tx, 1);
    ck_assert_int_eq(play(tx, &script), PQTX_OK);
    assert_status(script.inner, scene->inner, NULL);
    commit_and_free(tx);
    ck_assert_str_eq(marks(), scene->left);
}
END_TEST

START_TEST(a_savepoint_can_be_the_first_thing_in_a_transaction)
{
    pqtx_tx *tx = begin_on_own(NULL);
    struct script undone = {.at = "23r"}, kept = {.at = "4"};
    ck_assert_int_eq(pqtx_savepoint(tx, play, &undone), OURS);
    ck_assert_int_eq(pqtx_savepoint(tx, play, &kept), PQTX_OK);
    commit_and_free(tx);
    ck_assert_str_eq(marks(), "4");
}
END_TEST

START_TEST(a_transaction_of_which_all_is_undone_commits_nothing)
{
    pqtx_tx *tx = begin_on_own(NULL);
    struct script undone = {.at = "23r"};
    ck_assert_int_eq(pqtx_savepoint(tx, play, &undone), OURS);
    commit_and_free(tx);
    ck_assert_str_eq(marks(), "");
}
END_TEST

START_TEST(what_is_rolled_back_takes_its_savepoints_with_it)
{
    pqtx_tx *tx = begin_on_own(NULL);
    struct script script = {.at = "1(2)(3r)"};
    ck_assert_int_eq(play(tx, &script), PQTX_OK);
    pqtx_fail(tx, PQTX_STOPPED);
    ck_assert_int_eq(pqtx_commit(tx), PQTX_STOPPED);
    pqtx_free(tx);
    ck_assert_str_eq(marks(), "");
    ck_assert_int_eq(PQtransactionStatus(own), PQTRANS_IDLE);
}
END_TEST

static pqtx_status nest_to(pqtx_tx *tx, void *arg)
{
    int *left = arg;
    mark(tx, 100 + *left);
    if (--*left > 0)
        return pqtx_savepoint(tx, nest_to, left);
    return PQTX_OK;
}

START_TEST(savepoints_nest_deeply_and_follow_in_great_number)
{
    int depth = 100;
    pqtx_tx *tx = begin_on_own(NULL);
    ck_assert_int_eq(pqtx_savepoint(tx, nest_to, &depth), PQTX_OK);
    for (int i = 0; i < 300; i++) {
        struct script script = {.at = i % 3 ? "5r" : ""};
        ck_assert_int_eq(pqtx_savepoint(tx, play, &script), i % 3 ? OURS : PQTX_OK);
    }
    commit_and_free(tx);
    ck_assert_int_eq(ask_int(monitor, "SELECT count(*) FROM mark"), 100);
}
END_TEST

/* ---- Answers */

static pqtx_status duplicate(pqtx_tx *tx, void *arg)
{
    (void)arg;
    mark(tx, 7);
    return mark(tx, 1);
}

START_TEST(an_answer_tells_its_constraint_and_leaves_the_attempt_unmarked)
{
    pqtx_error error = PQTX_ERROR;
    pqtx_tx *tx = begin_on_own(NULL);
    mark(tx, 1);
    ck_assert_int_eq(pqtx_savepoint(tx, duplicate, NULL), PQTX_DUPLICATE);
    ck_assert_int_eq(pqtx_get_error(tx, &error), PQTX_OK);
    ck_assert_int_eq(error.status, PQTX_DUPLICATE);
    ck_assert_str_eq(error.constraint_name, "mark_pkey");
    ck_assert_int_eq(mark(tx, 2), PQTX_OK);
    commit_and_free(tx);
    ck_assert_str_eq(marks(), "1 2");
}
END_TEST

static pqtx_status pass_on_the_answer(pqtx_tx *tx, void *arg)
{
    (void)arg;
    mark(tx, 1);
    return pqtx_savepoint(tx, duplicate, NULL);
}

START_TEST(an_answer_that_the_body_passes_on_keeps_its_details)
{
    pqtx_error error = PQTX_ERROR;
    assert_status(pqtx_run(pool, NULL, pass_on_the_answer, NULL, &error), PQTX_DUPLICATE, &error);
    ck_assert_str_eq(error.sqlstate, "23505");
    ck_assert_str_eq(error.constraint_name, "mark_pkey");
    ck_assert_str_eq(marks(), "");
}
END_TEST

static pqtx_status go_on_after_the_answer(pqtx_tx *tx, void *arg)
{
    (void)arg;
    ck_assert_int_eq(pass_on_the_answer(tx, NULL), PQTX_DUPLICATE);
    return PQTX_OK;
}

START_TEST(an_undone_error_does_not_reach_the_commit)
{
    pqtx_error error = PQTX_ERROR;
    pqtx_options options = PQTX_OPTIONS;
    options.retry_mask = PQTX_RETRY_DEFAULT | PQTX_RETRY_DUPLICATE;
    pqtx_status status = pqtx_run(pool, &options, go_on_after_the_answer, NULL, &error);
    assert_status(status, PQTX_OK, &error);
    ck_assert_uint_eq(error.flags & PQTX_ERROR_SWALLOWED, 0);
    ck_assert_str_eq(marks(), "1");
}
END_TEST

static pqtx_status fail_later(pqtx_tx *tx, void *arg)
{
    (void)arg;
    go_on_after_the_answer(tx, NULL);
    return mark(tx, 1000);
}

START_TEST(an_undone_error_does_not_hide_a_later_one)
{
    pqtx_error error = PQTX_ERROR;
    assert_status(pqtx_run(pool, NULL, fail_later, NULL, &error), PQTX_CHECK, &error);
    ck_assert_int_eq(error.status, PQTX_CHECK);
    ck_assert_str_eq(error.constraint_name, "mark_id_check");
    ck_assert_str_eq(marks(), "");
}
END_TEST

static pqtx_status update_nothing(pqtx_tx *tx, void *arg)
{
    (void)arg;
    mark(tx, 2);
    return pqtx_update_one(tx, "UPDATE account SET value = 1 WHERE id = 99", PQTX_NO_ARGS);
}

START_TEST(no_match_is_an_answer_too)
{
    pqtx_tx *tx = begin_on_own(NULL);
    mark(tx, 1);
    ck_assert_int_eq(pqtx_savepoint(tx, update_nothing, NULL), PQTX_NO_MATCH);
    commit_and_free(tx);
    ck_assert_str_eq(marks(), "1");
}
END_TEST

static pqtx_status sleep_long(pqtx_tx *tx, void *arg)
{
    (void)arg;
    mark(tx, 2);
    return pqtx_exec(tx, "SELECT pg_sleep(600)", PQTX_NO_ARGS, NULL);
}

START_TEST(a_statement_too_long_is_an_answer_too)
{
    pqtx_options options = PQTX_OPTIONS;
    options.statement_timeout_ms = 20;
    pqtx_tx *tx = begin_on_own(&options);
    mark(tx, 1);
    ck_assert_int_eq(pqtx_savepoint(tx, sleep_long, NULL), PQTX_TIMEOUT);
    mark(tx, 3);
    commit_and_free(tx);
    ck_assert_str_eq(marks(), "1 3");
}
END_TEST

static pqtx_status fail_with(pqtx_tx *tx, void *arg)
{
    mark(tx, 2);
    pqtx_fail(tx, *(pqtx_status *)arg);
    return PQTX_OK;
}

START_TEST(what_the_work_asks_for_is_an_answer_too)
{
    pqtx_status asked = _i ? PQTX_STOPPED : OURS;
    pqtx_tx *tx = begin_on_own(NULL);
    mark(tx, 1);
    ck_assert_int_eq(pqtx_savepoint(tx, fail_with, &asked), asked);
    mark(tx, 3);
    commit_and_free(tx);
    ck_assert_str_eq(marks(), "1 3");
}
END_TEST

/* ---- What no savepoint can mend */

struct race {
    int runs;
    pqtx_work inside;
    bool swallow;
};

static pqtx_status race(pqtx_tx *tx, void *arg)
{
    struct race *race = arg;
    race->runs++;
    mark(tx, race->runs);
    pqtx_status status = pqtx_savepoint(tx, race->inside, race);
    if (race->runs == 1)
        ck_assert_int_ne(status, PQTX_OK);
    pqtx_status after = mark(tx, 9);
    if (race->runs == 1)
        ck_assert_int_eq(after, status);
    return race->swallow ? PQTX_OK : status;
}

static pqtx_status lose_to_a_newer_row(pqtx_tx *tx, void *arg)
{
    struct race *race = arg;
    if (race->runs == 1)
        sql(other, "UPDATE account SET value = value + 1 WHERE id = 1");
    return pqtx_exec(tx, "UPDATE account SET value = value + 1 WHERE id = 1", PQTX_NO_ARGS, NULL);
}

static pqtx_status add_one(pqtx_tx *tx, int account)
{
    return pqtx_update_one(tx, "UPDATE account SET value = value + 1 WHERE id = $1",
                           PQTX_ARGS(PQTX_INT(account)));
}

static pqtx_status cross(pqtx_tx *tx, void *arg)
{
    struct race *race = arg;
    if (race->runs == 2) {
        ck_assert_str_eq(finish_sql(other), "");
        sql(other, "COMMIT");
    }
    add_one(tx, 1);
    if (race->runs == 1) {
        sql(other, "SET deadlock_timeout = '1h'; BEGIN;"
                   "UPDATE account SET value = value + 1 WHERE id = 2");
        start_sql(other, "UPDATE account SET value = value + 1 WHERE id = 1");
        wait_until_blocked(monitor, PQbackendPID(other));
    }
    return add_one(tx, 2);
}

static pqtx_status call_it_lost(pqtx_tx *tx, void *arg)
{
    struct race *race = arg;
    return race->runs == 1 ? pqtx_fail(tx, PQTX_SERIALIZATION) : PQTX_OK;
}

static pqtx_status lose_deep_inside(pqtx_tx *tx, void *arg)
{
    pqtx_status status = pqtx_savepoint(tx, lose_to_a_newer_row, arg);
    mark(tx, 8);
    return status;
}

static pqtx_status lose_the_connection(pqtx_tx *tx, void *arg)
{
    struct race *race = arg;
    if (race->runs == 1)
        pqtx_exec(tx, "SELECT pg_terminate_backend(pg_backend_pid())", PQTX_NO_ARGS, NULL);
    return PQTX_OK;
}

static const struct {
    pqtx_work inside;
    pqtx_isolation isolation;
    pqtx_status status;
    const char *left;
} races[] = {
    {lose_to_a_newer_row, PQTX_ISO_REPEATABLE_READ, PQTX_SERIALIZATION, "2 9"},
    {cross, PQTX_ISO_READ_COMMITTED, PQTX_DEADLOCK, "2 9"},
    {call_it_lost, PQTX_ISO_READ_COMMITTED, PQTX_SERIALIZATION, "2 9"},
    {lose_deep_inside, PQTX_ISO_REPEATABLE_READ, PQTX_SERIALIZATION, "2 8 9"},
    {lose_the_connection, PQTX_ISO_READ_COMMITTED, PQTX_NO_CONNECTION, "2 9"},
};

/* Whether the body passes it on or not. */
START_TEST(a_lost_race_goes_past_the_savepoint_and_begins_again_whole)
{
    struct race story = {.inside = races[_i / 2].inside, .swallow = _i % 2};
    pqtx_options options = PQTX_OPTIONS;
    pqtx_error error = PQTX_ERROR;
    options.isolation = races[_i / 2].isolation;
    pqtx_status status = pqtx_run(pool, &options, race, &story, &error);
    assert_status(status, PQTX_OK, &error);
    assert_status(error.status, races[_i / 2].status, &error);
    ck_assert_int_eq(story.runs, 2);
    ck_assert_str_eq(marks(), races[_i / 2].left);
}
END_TEST

static pqtx_status misuse(pqtx_tx *tx, void *arg)
{
    mark(tx, 2);
    return pqtx_exec(tx, arg, PQTX_NO_ARGS, NULL);
}

START_TEST(misuse_inside_a_savepoint_ends_the_run)
{
    static char commit[] = "COMMIT", rollback[] = "ROLLBACK TO SAVEPOINT pqtx_1";
    pqtx_tx *tx = begin_on_own(NULL);
    mark(tx, 1);
    ck_assert_int_eq(pqtx_savepoint(tx, misuse, _i ? commit : rollback), PQTX_MISUSE);
    ck_assert_int_eq(mark(tx, 3), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_commit(tx), PQTX_MISUSE);
    pqtx_free(tx);
    ck_assert_str_eq(marks(), "");
    ck_assert_int_eq(PQtransactionStatus(own), PQTRANS_IDLE);
}
END_TEST

START_TEST(a_marked_attempt_begins_no_savepoint)
{
    struct script script = {.at = "2"};
    pqtx_tx *tx = begin_on_own(NULL);
    pqtx_fail(tx, PQTX_STOPPED);
    ck_assert_int_eq(pqtx_savepoint(tx, play, &script), PQTX_STOPPED);
    ck_assert_str_eq(script.at, "2");
    pqtx_free(tx);
}
END_TEST

/* ---- Locks and settings */

static pqtx_status take_row(pqtx_tx *tx, void *arg)
{
    (void)arg;
    return pqtx_exec(tx, "SELECT FROM account WHERE id = 1 FOR UPDATE NOWAIT", PQTX_NO_ARGS, NULL);
}

START_TEST(busy_can_be_tried_again_in_the_same_transaction)
{
    pqtx_tx *tx = begin_on_own(NULL);
    mark(tx, 1);
    sql(other, "BEGIN; UPDATE account SET value = 1 WHERE id = 1");
    ck_assert_int_eq(pqtx_savepoint(tx, take_row, NULL), PQTX_BUSY);
    ck_assert_int_eq(pqtx_savepoint(tx, take_row, NULL), PQTX_BUSY);
    sql(other, "COMMIT");
    ck_assert_int_eq(pqtx_savepoint(tx, take_row, NULL), PQTX_OK);
    commit_and_free(tx);
    ck_assert_str_eq(marks(), "1");
}
END_TEST

#define KEY 735117001

static pqtx_status take_lock(pqtx_tx *tx, void *arg)
{
    ck_assert_int_eq(pqtx_lock(tx, KEY), PQTX_OK);
    return arg ? OURS : PQTX_OK;
}

static bool is_locked(void)
{
    char query[64];
    snprintf(query, sizeof query, "SELECT pg_try_advisory_xact_lock(%d)", KEY);
    return strcmp(ask(other, query), "f") == 0;
}

START_TEST(a_lock_taken_inside_is_freed_by_the_undo_and_kept_otherwise)
{
    pqtx_tx *tx = begin_on_own(NULL);
    ck_assert_int_eq(pqtx_savepoint(tx, take_lock, undo), OURS);
    mark(tx, 1); /* the undo rides in front of it */
    ck_assert(!is_locked());
    ck_assert_int_eq(pqtx_savepoint(tx, take_lock, NULL), PQTX_OK);
    mark(tx, 2);
    ck_assert(is_locked());
    commit_and_free(tx);
    ck_assert(!is_locked());
}
END_TEST

START_TEST(a_lock_taken_before_outlives_the_undo)
{
    pqtx_tx *tx = begin_on_own(NULL);
    ck_assert_int_eq(pqtx_lock(tx, KEY), PQTX_OK);
    ck_assert_int_eq(pqtx_savepoint(tx, take_lock, undo), OURS);
    mark(tx, 1);
    ck_assert(is_locked());
    commit_and_free(tx);
}
END_TEST

static const char *lock_timeout(pqtx_tx *tx)
{
    const PGresult *row;
    const char *text;
    ck_assert_int_eq(pqtx_exec_one(tx, "SHOW lock_timeout", PQTX_NO_ARGS, &row), PQTX_OK);
    ck_assert_int_eq(pqtx_get_text(row, 0, 0, &text), PQTX_OK);
    return text;
}

static pqtx_status change_lock_timeout(pqtx_tx *tx, void *arg)
{
    ck_assert_int_eq(pqtx_set_lock_timeout(tx, 123), PQTX_OK);
    ck_assert_str_eq(lock_timeout(tx), "123ms");
    return arg ? OURS : PQTX_OK;
}

static pqtx_status change_it_unseen(pqtx_tx *tx, void *arg)
{
    ck_assert_int_eq(pqtx_set_lock_timeout(tx, 456), PQTX_OK);
    return arg ? OURS : PQTX_OK;
}

START_TEST(a_lock_timeout_set_inside_is_restored_by_the_undo_and_kept_otherwise)
{
    pqtx_tx *tx = begin_on_own(NULL);
    if (_i)
        ck_assert_str_eq(lock_timeout(tx), "5s");
    ck_assert_int_eq(pqtx_savepoint(tx, change_lock_timeout, undo), OURS);
    ck_assert_str_eq(lock_timeout(tx), "5s");
    ck_assert_int_eq(pqtx_savepoint(tx, change_it_unseen, undo), OURS);
    ck_assert_str_eq(lock_timeout(tx), "5s");
    ck_assert_int_eq(pqtx_savepoint(tx, change_lock_timeout, NULL), PQTX_OK);
    ck_assert_str_eq(lock_timeout(tx), "123ms");
    ck_assert_int_eq(pqtx_savepoint(tx, change_it_unseen, NULL), PQTX_OK);
    ck_assert_str_eq(lock_timeout(tx), "456ms");
    ck_assert_int_eq(pqtx_savepoint(tx, change_lock_timeout, undo), OURS);
    ck_assert_str_eq(lock_timeout(tx), "456ms");
    commit_and_free(tx);
}
END_TEST

/* ---- Actions, each of which writes its letter down */

static char written[64];
static char letters[] = "abcdefghijklmnopqrstuvwxyz";

static void write_down(void *arg)
{
    size_t len = strlen(written);
    ck_assert_uint_lt(len + 1, sizeof written);
    written[len] = *(char *)arg;
    written[len + 1] = '\0';
}

static void promise(pqtx_tx *tx, char letter)
{
    ck_assert_int_eq(pqtx_on_commit(tx, write_down, &letters[letter - 'a']), PQTX_OK);
    ck_assert_int_eq(pqtx_on_rollback(tx, write_down, &letters[letter - 'a' + 13]), PQTX_OK);
}

static pqtx_status promise_kept(pqtx_tx *tx, void *arg)
{
    (void)arg;
    mark(tx, 2);
    promise(tx, 'b');
    return PQTX_OK;
}

static pqtx_status promise_undone(pqtx_tx *tx, void *arg)
{
    (void)arg;
    mark(tx, 3);
    promise(tx, 'c');
    promise(tx, 'd');
    ck_assert_str_eq(written, "");
    return OURS;
}

static pqtx_status promise_both(pqtx_tx *tx, void *arg)
{
    (void)arg;
    promise(tx, 'e');
    pqtx_savepoint(tx, promise_kept, NULL);
    pqtx_savepoint(tx, promise_undone, NULL);
    return arg ? OURS : PQTX_OK;
}

START_TEST(actions_of_an_undone_savepoint_run_once_at_the_undo)
{
    pqtx_tx *tx = begin_on_own(NULL);
    promise(tx, 'a');
    ck_assert_int_eq(pqtx_savepoint(tx, promise_kept, NULL), PQTX_OK);
    ck_assert_str_eq(written, "");
    ck_assert_int_eq(pqtx_savepoint(tx, promise_undone, NULL), OURS);
    ck_assert_str_eq(written, "qp"); /* d and c rolled back, last first */
    promise(tx, 'f');
    if (_i) {
        commit_and_free(tx);
        ck_assert_str_eq(written, "qpabf");
    } else {
        pqtx_free(tx);
        ck_assert_str_eq(written, "qpson");
    }
}
END_TEST

START_TEST(actions_of_nested_savepoints_follow_the_outer_one)
{
    pqtx_tx *tx = begin_on_own(NULL);
    ck_assert_int_eq(pqtx_savepoint(tx, promise_both, NULL), PQTX_OK);
    ck_assert_str_eq(written, "qp");
    written[0] = '\0';
    sql(other, "DELETE FROM mark");
    ck_assert_int_eq(pqtx_commit(tx), PQTX_OK);
    ck_assert_str_eq(written, "eb");
    pqtx_free(tx);
    written[0] = '\0';
    sql(other, "DELETE FROM mark");
    tx = begin_on_own(NULL);
    ck_assert_int_eq(pqtx_savepoint(tx, promise_both, undo), OURS);
    ck_assert_str_eq(written, "qpor");
    commit_and_free(tx);
    ck_assert_str_eq(written, "qpor");
}
END_TEST

static pqtx_status lose_with_a_promise(pqtx_tx *tx, void *arg)
{
    struct race *race = arg;
    promise(tx, race->runs == 1 ? 'a' : 'b');
    return lose_to_a_newer_row(tx, arg);
}

START_TEST(actions_inside_a_lost_race_run_once)
{
    struct race story = {.inside = lose_with_a_promise};
    pqtx_options options = PQTX_OPTIONS;
    options.isolation = PQTX_ISO_REPEATABLE_READ;
    ck_assert_int_eq(pqtx_run(pool, &options, race, &story, NULL), PQTX_OK);
    ck_assert_str_eq(written, "nb");
}
END_TEST

static TCase *add_case(Suite *suite, const char *name)
{
    TCase *tests = tcase_create(name);
    tcase_add_checked_fixture(tests, open_all, close_all);
    tcase_set_timeout(tests, 30);
    suite_add_tcase(suite, tests);
    return tests;
}

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

static Suite *suite(void)
{
    Suite *suite = suite_create("live_savepoint");

    TCase *scene = add_case(suite, "scene");
    tcase_add_loop_test(scene, what_is_undone_is_gone_and_what_is_kept_stays, 0, COUNT(scenes));
    tcase_add_test(scene, a_savepoint_can_be_the_first_thing_in_a_transaction);
    tcase_add_test(scene, a_transaction_of_which_all_is_undone_commits_nothing);
    tcase_add_test(scene, what_is_rolled_back_takes_its_savepoints_with_it);
    tcase_add_test(scene, savepoints_nest_deeply_and_follow_in_great_number);

    TCase *answer = add_case(suite, "answer");
    tcase_add_test(answer, an_answer_tells_its_constraint_and_leaves_the_attempt_unmarked);
    tcase_add_test(answer, an_answer_that_the_body_passes_on_keeps_its_details);
    tcase_add_test(answer, an_undone_error_does_not_reach_the_commit);
    tcase_add_test(answer, an_undone_error_does_not_hide_a_later_one);
    tcase_add_test(answer, no_match_is_an_answer_too);
    tcase_add_test(answer, a_statement_too_long_is_an_answer_too);
    tcase_add_loop_test(answer, what_the_work_asks_for_is_an_answer_too, 0, 2);

    TCase *unwind = add_case(suite, "unwind");
    tcase_add_loop_test(unwind, a_lost_race_goes_past_the_savepoint_and_begins_again_whole, 0,
                        2 * COUNT(races));
    tcase_add_loop_test(unwind, misuse_inside_a_savepoint_ends_the_run, 0, 2);
    tcase_add_test(unwind, a_marked_attempt_begins_no_savepoint);

    TCase *lock = add_case(suite, "lock");
    tcase_add_test(lock, busy_can_be_tried_again_in_the_same_transaction);
    tcase_add_test(lock, a_lock_taken_inside_is_freed_by_the_undo_and_kept_otherwise);
    tcase_add_test(lock, a_lock_taken_before_outlives_the_undo);
    tcase_add_loop_test(lock, a_lock_timeout_set_inside_is_restored_by_the_undo_and_kept_otherwise,
                        0, 2);

    TCase *action = add_case(suite, "action");
    tcase_add_loop_test(action, actions_of_an_undone_savepoint_run_once_at_the_undo, 0, 2);
    tcase_add_test(action, actions_of_nested_savepoints_follow_the_outer_one);
    tcase_add_test(action, actions_inside_a_lost_race_run_once);
    return suite;
}

int main(void)
{
    return run_suite(suite());
}
