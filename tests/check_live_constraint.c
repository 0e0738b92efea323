/* check_live_constraint.c: violations of named constraints, as statuses of the program's own. */
#include "support.h"
#include "support_tx.h"

#include <pqtx/one.h>

#include <stdio.h>
#include <string.h>

#define OUR_DUPLICATE ((pqtx_status)(PQTX_USER + 1))
#define OUR_OVERLAP   ((pqtx_status)(PQTX_USER + 2))
#define OUR_CHECK     ((pqtx_status)(PQTX_USER + 3))
#define OUR_PARENT    ((pqtx_status)(PQTX_USER + 4))
#define OUR_DEFERRED  ((pqtx_status)(PQTX_USER + 5))
#define OUR_RAISED    ((pqtx_status)(PQTX_USER + 6))

static const pqtx_constraint constraints[] = {
    {"one_name", OUR_DUPLICATE},        {"no_overlap", OUR_OVERLAP}, {"not_negative", OUR_CHECK},
    {"room_of_booking", OUR_PARENT},    {"deferred", OUR_DEFERRED},  {"raised", OUR_RAISED},
    {"one_name", (pqtx_status)9999999}, /* the first counts */
};

static PGconn *monitor, *own;
static pqtx_options options;
static pqtx_tx *tx;

static void set_up(void)
{
    fresh_schema("pqtx_constraint");
    monitor = open_session();
    own = open_session();
    sql(monitor, "CREATE TABLE room (id int PRIMARY KEY, name text CONSTRAINT one_name UNIQUE,"
                 " chairs int NOT NULL CONSTRAINT not_negative CHECK (chairs >= 0),"
                 " door int CONSTRAINT deferred UNIQUE DEFERRABLE INITIALLY DEFERRED);"
                 "CREATE TABLE booking (room int CONSTRAINT room_of_booking REFERENCES room,"
                 " during int4range, CONSTRAINT no_overlap EXCLUDE USING gist (during WITH &&));"
                 "INSERT INTO room VALUES (1, 'a', 4, 1); INSERT INTO booking VALUES (1, '[1,5)')");
    options = (pqtx_options)PQTX_OPTIONS;
    options.constraints = constraints;
    options.constraint_count = sizeof constraints / sizeof constraints[0];
}

static void tear_down(void)
{
    PQfinish(monitor);
    PQfinish(own);
}

static void begin(void)
{
    tx = pqtx_new_on(own, &options);
    ck_assert_int_eq(pqtx_attempt(tx), 1);
}

static void finish(void)
{
    pqtx_free(tx);
    tx = NULL;
}

static pqtx_error last_error(void)
{
    pqtx_error error = PQTX_ERROR;
    pqtx_get_error(tx, &error);
    return error;
}

static void assert_call(pqtx_status actual, pqtx_status expected)
{
    pqtx_error error = last_error();
    assert_status(actual, expected, &error);
}

struct violation {
    const char *statement;
    pqtx_status status, plain;
    bool at_commit;
};

#define RAISE(code, name)                                                                          \
    "DO $$ BEGIN RAISE USING ERRCODE = '" code "', MESSAGE = 'no', CONSTRAINT = '" name "'; END "  \
    "$$"

static const struct violation violations[] = {
    {"INSERT INTO room VALUES (2, 'a', 4, 2)", OUR_DUPLICATE, PQTX_DUPLICATE, false},
    {"INSERT INTO booking VALUES (1, '[4,6)')", OUR_OVERLAP, PQTX_OVERLAP, false},
    {"UPDATE room SET chairs = chairs - 5", OUR_CHECK, PQTX_CHECK, false},
    {"INSERT INTO booking VALUES (9, '[7,8)')", OUR_PARENT, PQTX_FOREIGN_KEY, false},
    {"DELETE FROM room", OUR_PARENT, PQTX_FOREIGN_KEY, false},
    {"INSERT INTO room VALUES (2, 'b', 4, 1)", OUR_DEFERRED, PQTX_DUPLICATE, true},
    {RAISE("P0001", "raised"), OUR_RAISED, PQTX_RAISED, false},
    {RAISE("23505", "raised"), OUR_RAISED, PQTX_DUPLICATE, false},
    /* without a name, or with another one */
    {"INSERT INTO room VALUES (1, 'b', 4, 2)", PQTX_DUPLICATE, PQTX_DUPLICATE, false},
    {"INSERT INTO room VALUES (2, 'b', NULL, 2)", PQTX_NOT_NULL, PQTX_NOT_NULL, false},
    {"SELECT 1 / 0", PQTX_BAD_DATA, PQTX_BAD_DATA, false},
    /* no violations, whatever they name */
    {RAISE("40001", "raised"), PQTX_SERIALIZATION, PQTX_SERIALIZATION, false},
    {RAISE("40003", "raised"), PQTX_SERVER_ERROR, PQTX_SERVER_ERROR, false},
    {RAISE("57014", "raised"), PQTX_CANCELLED, PQTX_CANCELLED, false},
};
enum { VIOLATIONS = sizeof violations / sizeof violations[0] };

START_TEST(a_violation_has_the_programs_own_status)
{
    const struct violation *v = &violations[_i];
    options.max_attempts = 1;
    for (int pipelined = 0; pipelined < 2; pipelined++) {
        options.flags = pipelined ? PQTX_PIPELINE : 0;
        begin();
        assert_call(pqtx_exec(tx, v->statement, PQTX_NO_ARGS, NULL),
                    pipelined || v->at_commit ? PQTX_OK : v->status);
        assert_call(pqtx_commit(tx), v->status);
        ck_assert_int_eq(pqtx_attempt(tx), 0);
        assert_call(pqtx_result(tx), v->status);
        pqtx_error error = last_error();
        ck_assert_int_eq(error.status, v->status);
        if (v->plain != PQTX_SERVER_ERROR) { /* 40003, which is refined */
            ck_assert_int_eq(pqtx_status_of_sqlstate(error.sqlstate), v->plain);
            if (pipelined && !v->at_commit)
                ck_assert_int_eq(pqtx_answer(tx, 0, NULL, NULL), v->status);
        }
        ck_assert_int_eq(error.phase, v->at_commit ? PQTX_PHASE_COMMIT : PQTX_PHASE_BODY);
        finish();
    }
}
END_TEST

START_TEST(without_a_table_of_them_it_can_be_asked_of_the_error)
{
    const struct violation *v = &violations[_i];
    options.constraints = NULL;
    options.constraint_count = 0;
    options.max_attempts = 1;
    begin();
    pqtx_exec(tx, v->statement, PQTX_NO_ARGS, NULL);
    assert_call(pqtx_commit(tx), v->plain);
    pqtx_error error = last_error();
    ck_assert_int_eq(pqtx_status_of_constraint(&error, constraints, 7), v->status);
    ck_assert_int_eq(pqtx_status_of_constraint(&error, NULL, 0), v->plain);
    finish();
}
END_TEST

START_TEST(a_run_of_one_statement_has_it_too)
{
    const struct violation *v = &violations[_i];
    pqtx_pool *pool = open_pool(1);
    pqtx_error error = PQTX_ERROR;
    options.max_attempts = 1;
    assert_status(
        pqtx_run_one(pool, &options, v->statement, PQTX_NO_ARGS, PQTX_ANY_ROWS, NULL, &error),
        v->status, &error);
    pqtx_pool_close(pool);
}
END_TEST

/* ---- what goes on after it */

static pqtx_status book(pqtx_tx *t, void *arg)
{
    ++*(int *)arg;
    return pqtx_exec(t, "INSERT INTO room VALUES (2, 'a', 4, 2)", PQTX_NO_ARGS, NULL);
}

static pqtx_status book_in_savepoint(pqtx_tx *t, void *arg)
{
    pqtx_status status = pqtx_savepoint(t, book, arg);
    if (status != OUR_DUPLICATE)
        return status == PQTX_OK ? PQTX_STOPPED : status;
    return pqtx_exec(t, "INSERT INTO room VALUES (2, 'b', 4, 2)", PQTX_NO_ARGS, NULL);
}

START_TEST(in_a_savepoint_it_is_an_answer)
{
    int count = 0;
    struct task task = {.conn = own, .options = &options, .work = book_in_savepoint, .arg = &count};
    run_task(&task, PQTX_OK);
    ck_assert_str_eq(ask(monitor, "SELECT name FROM room WHERE id = 2"), "b");
}
END_TEST

START_TEST(whether_it_is_begun_again_is_told_by_the_sqlstate)
{
    int count = 0;
    struct task task = {.conn = own, .options = &options, .work = book, .arg = &count};
    options.max_attempts = 3;
    options.wait_first_ms = options.wait_max_ms = 1;
    run_task(&task, OUR_DUPLICATE);
    ck_assert_int_eq(count, 1);
    options.retry_mask = PQTX_RETRY_DEFAULT | PQTX_RETRY_DUPLICATE;
    run_task(&task, OUR_DUPLICATE);
    ck_assert_int_eq(count, 4);
    ck_assert_uint_eq(task.error.attempt, 3);
    ck_assert(task.error.flags & PQTX_ERROR_ATTEMPTS);
    ck_assert_str_eq(task.error.constraint_name, "one_name");
}
END_TEST

static pqtx_status say_the_same(pqtx_tx *t, void *arg)
{
    ++*(int *)arg;
    (void)t;
    return OUR_DUPLICATE;
}

static pqtx_status say_another(pqtx_tx *t, void *arg)
{
    book(t, arg);
    return (pqtx_status)(PQTX_USER + 77);
}

START_TEST(the_bodys_own_word_is_not_taken_for_a_violation)
{
    int count = 0;
    struct task task = {.conn = own, .options = &options, .work = say_the_same, .arg = &count};
    options.retry_mask = PQTX_RETRY_DEFAULT | PQTX_RETRY_DUPLICATE;
    run_task(&task, OUR_DUPLICATE);
    ck_assert_int_eq(count, 1);
    options.retry_mask = 0;
    task.work = say_another;
    run_task(&task, (pqtx_status)(PQTX_USER + 77));
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("live_constraint");
    TCase *c = tcase_create("constraint");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_set_timeout(c, 60);
    tcase_add_loop_test(c, a_violation_has_the_programs_own_status, 0, VIOLATIONS);
    tcase_add_loop_test(c, without_a_table_of_them_it_can_be_asked_of_the_error, 0, VIOLATIONS);
    tcase_add_loop_test(c, a_run_of_one_statement_has_it_too, 0, VIOLATIONS);
    tcase_add_test(c, in_a_savepoint_it_is_an_answer);
    tcase_add_test(c, whether_it_is_begun_again_is_told_by_the_sqlstate);
    tcase_add_test(c, the_bodys_own_word_is_not_taken_for_a_violation);
    suite_add_tcase(s, c);
    return s;
}

int main(void)
{
    return run_suite(suite());
}
