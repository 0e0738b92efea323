/* check_live_pipeline.c: calls that are queued, what they hand out when their flight lands, and
 * what is left of them when one fails. */
#include "support.h"
#include "support_form.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static PGconn *monitor, *other; /* one who asks, and a rival */
static struct forms forms;

static void set_up(void)
{
    fresh_schema("pqtx_pipeline");
    monitor = open_session();
    other = open_session();
    sql(monitor, "CREATE TABLE account (id int PRIMARY KEY, v bigint NOT NULL CHECK (v >= 0));"
                 "INSERT INTO account SELECT i, 10 * i FROM generate_series(1, 5) AS i;"
                 "CREATE TABLE log (line text);"
                 "CREATE TABLE twin (id int, v int);"
                 "INSERT INTO twin VALUES (1, 0), (1, 1), (2, 1), (2, 1);"
                 "CREATE TABLE late (id int UNIQUE DEFERRABLE INITIALLY DEFERRED);"
                 "CREATE SEQUENCE asked");
    forms_open(&forms);
}

static void tear_down(void)
{
    forms_close(&forms);
    PQfinish(monitor);
    PQfinish(other);
}

static pqtx_status write_log(pqtx_tx *tx, const char *line)
{
    return pqtx_exec(tx, "INSERT INTO log VALUES ($1)", PQTX_ARGS(PQTX_TEXT(line)), NULL);
}

static int64_t log_lines(void)
{
    return ask_int(monitor, "SELECT count(*) FROM log");
}

static int64_t value_of(int id)
{
    char query[64];
    snprintf(query, sizeof query, "SELECT v FROM account WHERE id = %d", id);
    return ask_int(monitor, query);
}

/* ---- What calls hand out */

struct handed {
    const PGresult *read, *one, *row;
    int64_t changed;
};

enum { QUEUED = 5 };

static void queue_all(pqtx_tx *tx, struct handed *out)
{
    pqtx_change change = PQTX_CHANGE;
    change.table = "account";
    change.key = "id = $1";
    change.condition = "v >= $2";
    change.set = "v = v - $2";
    uint32_t before = pqtx_queued(tx);
    /* What was there before must not be taken for an answer. */
    out->read = out->one = out->row = (const PGresult *)out;
    out->changed = -1;
    ck_assert_int_eq(pqtx_exec(tx, "SELECT v FROM account ORDER BY id", PQTX_NO_ARGS, &out->read),
                     PQTX_OK);
    ck_assert_int_eq(pqtx_update(tx, "UPDATE account SET v = v + 1 WHERE id <= $1",
                                 PQTX_ARGS(PQTX_INT(3)), &out->changed),
                     PQTX_OK);
    ck_assert_int_eq(pqtx_exec_one(tx, "UPDATE account SET v = v + 1 WHERE id = $1 RETURNING id, v",
                                   PQTX_ARGS(PQTX_INT(4)), &out->one),
                     PQTX_OK);
    ck_assert_int_eq(pqtx_update_one(tx, "INSERT INTO log VALUES ('x')", PQTX_NO_ARGS), PQTX_OK);
    ck_assert_int_eq(pqtx_update_if(tx, &change, PQTX_ARGS(PQTX_INT(5), PQTX_INT(7)), &out->row),
                     PQTX_OK);
    ck_assert_uint_eq(pqtx_queued(tx), before + QUEUED);
}

static void assert_nothing_handed(const pqtx_tx *tx, uint32_t first, const struct handed *out)
{
    const PGresult *result = (const PGresult *)out;
    int64_t rows = -1;
    ck_assert_ptr_null(out->read);
    ck_assert_ptr_null(out->one);
    ck_assert_ptr_null(out->row);
    ck_assert_int_eq(out->changed, 0);
    for (uint32_t i = first; i <= first + QUEUED; i++) {
        ck_assert_int_eq(pqtx_answer(tx, i, &result, &rows), PQTX_MISUSE);
        ck_assert_ptr_null(result);
        ck_assert_int_eq(rows, 0);
    }
}

static int64_t number(const PGresult *result, int row, int column)
{
    int64_t value;
    ck_assert_int_eq(pqtx_get_int(result, row, column, &value), PQTX_OK);
    return value;
}

static const PGresult *answer(const pqtx_tx *tx, uint32_t call, int64_t rows)
{
    const PGresult *result;
    int64_t answered;
    ck_assert_int_eq(pqtx_answer(tx, call, NULL, NULL), PQTX_OK);
    ck_assert_int_eq(pqtx_answer(tx, call, &result, &answered), PQTX_OK);
    ck_assert_int_eq(answered, rows);
    return result;
}

/* `turn`: how often it was done before. */
static void assert_handed(const pqtx_tx *tx, uint32_t first, const struct handed *out, int turn)
{
    ck_assert_int_eq(PQntuples(out->read), 5);
    ck_assert_int_eq(number(out->read, 0, 0), 10 + turn);
    ck_assert_int_eq(out->changed, 3);
    ck_assert_int_eq(PQntuples(out->one), 1);
    ck_assert_int_eq(number(out->one, 0, 0), 4);
    ck_assert_int_eq(number(out->one, 0, 1), 41 + turn);
    ck_assert_int_eq(number(out->row, 0, 1), 50 - 7 * (turn + 1));
    ck_assert_ptr_eq(answer(tx, first, 5), out->read);
    ck_assert_int_eq(PQntuples(answer(tx, first + 1, 3)), 0);
    ck_assert_ptr_eq(answer(tx, first + 2, 1), out->one);
    ck_assert_int_eq(PQntuples(answer(tx, first + 3, 1)), 0);
    ck_assert_ptr_eq(answer(tx, first + 4, 1), out->row);
}

START_TEST(answers_come_with_the_commit_and_stay)
{
    struct handed out;
    pqtx_tx *tx = form_begin(&forms, (enum form)_i);
    ck_assert_uint_eq(pqtx_queued(tx), 0);
    queue_all(tx, &out);
    assert_nothing_handed(tx, 0, &out);
    ck_assert_int_eq(log_lines(), 0);
    commit_as(tx, PQTX_OK);
    assert_handed(tx, 0, &out, 0);
    ck_assert_int_eq(pqtx_attempt(tx), 0);
    assert_handed(tx, 0, &out, 0);
    ck_assert_uint_eq(pqtx_queued(tx), QUEUED);
    ck_assert_int_eq(pqtx_answer(tx, QUEUED, NULL, NULL), PQTX_MISUSE);
    ck_assert_int_eq(log_lines(), 1);
    pqtx_free(tx);
}
END_TEST

START_TEST(answers_come_with_a_flush_and_stay)
{
    struct handed first, second;
    pqtx_tx *tx = form_begin(&forms, (enum form)_i);
    ck_assert_int_eq(pqtx_flush(tx), PQTX_OK);
    queue_all(tx, &first);
    ck_assert_int_eq(pqtx_flush(tx), PQTX_OK);
    assert_handed(tx, 0, &first, 0);
    ck_assert_int_eq(pqtx_flush(tx), PQTX_OK);
    queue_all(tx, &second);
    assert_nothing_handed(tx, QUEUED, &second);
    assert_handed(tx, 0, &first, 0);
    commit_as(tx, PQTX_OK);
    assert_handed(tx, 0, &first, 0);
    assert_handed(tx, QUEUED, &second, 1);
    ck_assert_int_eq(log_lines(), 2);
    pqtx_free(tx);
}
END_TEST

START_TEST(pipeline_mode_begins_where_it_is_asked_for)
{
    const PGresult *waited, *queued;
    pqtx_options options = form_options((enum form)_i);
    options.flags = 0;
    pqtx_tx *tx = form_new(&forms, (enum form)_i, &options);
    ck_assert_int_eq(pqtx_pipeline(tx), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_attempt(tx), 1);
    ck_assert_int_eq(pqtx_exec_one(tx, "SELECT 7", PQTX_NO_ARGS, &waited), PQTX_OK);
    ck_assert_int_eq(number(waited, 0, 0), 7);
    ck_assert_uint_eq(pqtx_queued(tx), 0);
    ck_assert_int_eq(pqtx_pipeline(tx), PQTX_OK);
    ck_assert_int_eq(pqtx_pipeline(tx), PQTX_OK);
    ck_assert_int_eq(pqtx_exec_one(tx, "SELECT 8", PQTX_NO_ARGS, &queued), PQTX_OK);
    ck_assert_ptr_null(queued);
    commit_as(tx, PQTX_OK);
    ck_assert_int_eq(number(waited, 0, 0), 7);
    ck_assert_int_eq(number(queued, 0, 0), 8);
    ck_assert_int_eq(pqtx_pipeline(tx), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_flush(tx), PQTX_MISUSE);
    pqtx_free(tx);
    ck_assert_int_eq(pqtx_pipeline(NULL), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_flush(NULL), PQTX_MISUSE);
    ck_assert_uint_eq(pqtx_queued(NULL), 0);
    ck_assert_int_eq(pqtx_answer(NULL, 0, NULL, NULL), PQTX_MISUSE);
}
END_TEST

/* The next attempt is not in pipeline mode, and has no calls. */
START_TEST(what_was_queued_and_answered_ends_with_the_attempt)
{
    pqtx_options options = form_options((enum form)_i);
    const PGresult *result;
    options.flags = 0;
    pqtx_tx *tx = form_new(&forms, (enum form)_i, &options);
    ck_assert_int_eq(pqtx_attempt(tx), 1);
    pqtx_pipeline(tx);
    pqtx_exec(tx, "SELECT 1", PQTX_NO_ARGS, NULL);
    ck_assert_int_eq(pqtx_flush(tx), PQTX_OK);
    write_log(tx, "never");
    pqtx_fail(tx, PQTX_SERIALIZATION);
    ck_assert_int_eq(pqtx_answer(tx, 0, NULL, NULL), PQTX_OK);
    ck_assert_int_eq(pqtx_answer(tx, 1, NULL, NULL), PQTX_SERIALIZATION);
    ck_assert_int_eq(pqtx_attempt(tx), 1);
    ck_assert_uint_eq(pqtx_queued(tx), 0);
    ck_assert_int_eq(pqtx_answer(tx, 0, NULL, NULL), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_exec(tx, "SELECT 2", PQTX_NO_ARGS, &result), PQTX_OK);
    ck_assert_int_eq(number(result, 0, 0), 2);
    commit_as(tx, PQTX_OK);
    ck_assert_int_eq(log_lines(), 0);
    pqtx_free(tx);
}
END_TEST

START_TEST(every_kind_of_change_counts_its_rows)
{
    static const struct {
        const char *statement;
        int64_t rows;
    } changes[] = {
        {"INSERT INTO log SELECT 'x' FROM generate_series(1, 5)", 5},
        {"UPDATE log SET line = 'y'", 5},
        {"UPDATE log SET line = 'z' WHERE line = 'nowhere'", 0},
        {"WITH w AS (SELECT 1) UPDATE log SET line = 'z'", 5},
        {"INSERT INTO account VALUES (1, 1) ON CONFLICT DO NOTHING", 0},
        {"DELETE FROM log RETURNING line", 5},
        {"SELECT FROM account", 5},
    };
    enum { CHANGES = sizeof changes / sizeof changes[0] };
    int64_t rows[CHANGES];
    pqtx_tx *tx = form_begin(&forms, (enum form)_i);
    for (int i = 0; i < CHANGES; i++)
        ck_assert_int_eq(pqtx_update(tx, changes[i].statement, PQTX_NO_ARGS, &rows[i]), PQTX_OK);
    ck_assert_uint_eq(pqtx_queued(tx), CHANGES);
    commit_as(tx, PQTX_OK);
    for (int i = 0; i < CHANGES; i++) {
        ck_assert_int_eq(rows[i], changes[i].rows);
        answer(tx, (uint32_t)i, changes[i].rows);
    }
    pqtx_free(tx);
}
END_TEST

/* What cannot be counted on the server is sent at once, with what is queued in front of it. */
START_TEST(a_call_that_cannot_wait_lands_those_before_it)
{
    const PGresult *first, *second;
    pqtx_tx *tx = form_begin(&forms, (enum form)_i);
    pqtx_exec(tx, "SELECT 5", PQTX_NO_ARGS, &first);
    ck_assert_int_eq(
        pqtx_exec_one(tx, "WITH w AS (SELECT 6 AS x) SELECT x FROM w", PQTX_NO_ARGS, &second),
        PQTX_OK);
    ck_assert_int_eq(number(first, 0, 0), 5);
    ck_assert_int_eq(number(second, 0, 0), 6);
    ck_assert_uint_eq(pqtx_queued(tx), 2);
    ck_assert_ptr_eq(answer(tx, 1, 1), second);
    ck_assert_int_eq(
        pqtx_exec_one(tx, "WITH w AS (SELECT 6) SELECT FROM w WHERE false", PQTX_NO_ARGS, &second),
        PQTX_NO_MATCH);
    ck_assert_ptr_null(second);
    ck_assert_int_eq(error_of(tx).call, 3);
    ck_assert_int_eq(pqtx_answer(tx, 2, NULL, NULL), PQTX_NO_MATCH);
    commit_as(tx, PQTX_NO_MATCH);
    pqtx_free(tx);
}
END_TEST

START_TEST(a_call_without_a_count_is_misuse_and_nothing_is_left)
{
    static const char *const statements[] = {"CREATE TABLE made (id int)", "SET TimeZone = 'UTC'",
                                             "LOCK TABLE log", "DO $$ BEGIN END $$"};
    for (size_t i = 0; i < sizeof statements / sizeof statements[0]; i++) {
        int64_t rows;
        pqtx_tx *tx = form_begin(&forms, (enum form)_i);
        write_log(tx, "never");
        ck_assert_int_eq(pqtx_update(tx, statements[i], PQTX_NO_ARGS, &rows), PQTX_MISUSE);
        ck_assert_int_eq(error_of(tx).call, 2);
        commit_as(tx, PQTX_MISUSE);
        pqtx_free(tx);
        tx = form_begin(&forms, (enum form)_i);
        write_log(tx, "never");
        ck_assert_int_eq(pqtx_update_one(tx, statements[i], PQTX_NO_ARGS), PQTX_MISUSE);
        commit_as(tx, PQTX_MISUSE);
        pqtx_free(tx);
    }
    ck_assert_str_eq(ask(monitor, "SELECT to_regclass('made') IS NULL"), "t");
    ck_assert_int_eq(log_lines(), 0);
}
END_TEST

/* ---- A call that fails */

enum how { EXEC, EXEC_ONE, UPDATE, UPDATE_ONE };

struct failing {
    enum how how;
    pqtx_status status;
    const char *statement, *sqlstate;
};

static const struct failing failing[] = {
    {EXEC, PQTX_BAD_DATA, "SELECT 1 / 0", "22012"},
    {EXEC, PQTX_DUPLICATE, "INSERT INTO account VALUES (1, 1)", "23505"},
    {EXEC, PQTX_BAD_STATEMENT, "SELECT nowhere FROM log", "42703"},
    {UPDATE, PQTX_CHECK, "UPDATE account SET v = -1 WHERE id = 2", "23514"},
    {UPDATE_ONE, PQTX_CHECK, "UPDATE account SET v = -1 WHERE id = 2", "23514"},
    {UPDATE_ONE, PQTX_NO_MATCH, "UPDATE account SET v = 0 WHERE id = 9", ""},
    {UPDATE_ONE, PQTX_TOO_MANY, "UPDATE account SET v = 0", ""},
    {UPDATE_ONE, PQTX_NO_MATCH, "DELETE FROM account WHERE id = 9 RETURNING v", ""},
    {UPDATE_ONE, PQTX_TOO_MANY, "DELETE FROM account WHERE id < 3 RETURNING v", ""},
    {UPDATE_ONE, PQTX_NO_MATCH, "INSERT INTO account VALUES (1, 1) ON CONFLICT DO NOTHING", ""},
    {EXEC_ONE, PQTX_NO_MATCH, "SELECT v FROM account WHERE id = 9 FOR UPDATE", ""},
    {EXEC_ONE, PQTX_TOO_MANY, "TABLE account", ""},
    {EXEC_ONE, PQTX_TOO_MANY, "VALUES (1), (2)", ""},
};
enum { FAILING = sizeof failing / sizeof failing[0] };

static pqtx_status queue_failing(pqtx_tx *tx, const struct failing *f, const PGresult **result,
                                 int64_t *rows)
{
    switch (f->how) {
    case EXEC:
        return pqtx_exec(tx, f->statement, PQTX_NO_ARGS, result);
    case EXEC_ONE:
        return pqtx_exec_one(tx, f->statement, PQTX_NO_ARGS, result);
    case UPDATE:
        return pqtx_update(tx, f->statement, PQTX_NO_ARGS, rows);
    default:
        return pqtx_update_one(tx, f->statement, PQTX_NO_ARGS);
    }
}

static void assert_message(const struct failing *f, const pqtx_error *error)
{
    ck_assert_str_eq(error->sqlstate, f->sqlstate);
    ck_assert_int_eq(error->phase, PQTX_PHASE_BODY);
    if (f->status == PQTX_NO_MATCH)
        ck_assert_str_eq(error->message, "no row, where one was expected");
    if (f->status == PQTX_TOO_MANY)
        ck_assert_ptr_nonnull(strstr(error->message, " rows, where one was expected"));
}

enum { PLACES = 4 };

/* One that fails among others that would do, at each place. */
static void fail_at(enum form form, const struct failing *f, uint32_t place)
{
    const PGresult *result = NULL, *reads[PLACES] = {NULL};
    int64_t rows = 0;
    pqtx_tx *tx = form_begin(&forms, form);
    for (uint32_t i = 0; i < PLACES; i++) {
        pqtx_status status = i == place
                                 ? queue_failing(tx, f, &result, &rows)
                                 : pqtx_exec(tx, "INSERT INTO log VALUES ('never') RETURNING line",
                                             PQTX_NO_ARGS, &reads[i]);
        ck_assert_int_eq(status, PQTX_OK);
    }
    commit_as(tx, f->status);
    pqtx_error error = error_of(tx);
    assert_message(f, &error);
    ck_assert_int_eq(error.call, (int)place + 1);
    ck_assert_ptr_null(result);
    ck_assert_int_eq(rows, 0);
    for (uint32_t i = 0; i < PLACES; i++) {
        ck_assert_ptr_null(reads[i]);
        ck_assert_int_eq(pqtx_answer(tx, i, NULL, NULL), f->status);
    }
    ck_assert_int_eq(pqtx_attempt(tx), 0);
    ck_assert_int_eq(pqtx_get_outcome(tx), PQTX_OUTCOME_ROLLED_BACK);
    ck_assert_uint_eq(pqtx_attempts(tx), 1);
    pqtx_free(tx);
}

START_TEST(one_call_that_fails_takes_the_whole_flight_along)
{
    for (int i = 0; i < FAILING; i++)
        for (uint32_t place = 0; place < PLACES; place++)
            fail_at((enum form)_i, &failing[i], place);
    ck_assert_int_eq(log_lines(), 0);
    ck_assert_int_eq(ask_int(monitor, "SELECT sum(v) FROM account"), 150);
}
END_TEST

START_TEST(a_flush_tells_and_what_landed_before_it_stays_readable)
{
    for (int i = 0; i < FAILING; i++) {
        const struct failing *f = &failing[i];
        const PGresult *before;
        int64_t rows;
        pqtx_tx *tx = form_begin(&forms, (enum form)_i);
        write_log(tx, "never");
        pqtx_exec(tx, "SELECT 7", PQTX_NO_ARGS, &before);
        ck_assert_int_eq(pqtx_flush(tx), PQTX_OK);
        write_log(tx, "never");
        queue_failing(tx, f, NULL, &rows);
        write_log(tx, "never");
        ck_assert_int_eq(pqtx_flush(tx), f->status);
        ck_assert_int_eq(error_of(tx).call, 4);
        ck_assert_int_eq(write_log(tx, "never"), f->status);
        ck_assert_int_eq(pqtx_flush(tx), f->status);
        ck_assert_int_eq(pqtx_pipeline(tx), f->status);
        ck_assert_uint_eq(pqtx_queued(tx), 5);
        ck_assert_int_eq(pqtx_answer(tx, 2, NULL, NULL), f->status);
        ck_assert_int_eq(pqtx_answer(tx, 3, NULL, NULL), f->status);
        ck_assert_int_eq(pqtx_answer(tx, 4, NULL, NULL), f->status);
        commit_as(tx, f->status);
        answer(tx, 0, 1);
        ck_assert_ptr_eq(answer(tx, 1, 1), before);
        ck_assert_int_eq(number(before, 0, 0), 7);
        pqtx_free(tx);
    }
    ck_assert_int_eq(log_lines(), 0);
}
END_TEST

/* The guard stands in front of the caller's text. */
START_TEST(an_error_points_into_the_callers_own_text)
{
    static const char *const statements[] = {
        "SELECT nowhere", "  \n SELECT nowhere",
        "\t\n\n\n                                      UPDATE account SET v = nowhere"};
    for (size_t i = 0; i < sizeof statements / sizeof statements[0]; i++) {
        pqtx_tx *tx = form_begin(&forms, (enum form)_i);
        pqtx_exec_one(tx, statements[i], PQTX_NO_ARGS, NULL);
        commit_as(tx, PQTX_BAD_STATEMENT);
        ck_assert_int_eq(error_of(tx).statement_position,
                         strstr(statements[i], "nowhere") - statements[i] + 1);
        pqtx_free(tx);
    }
}
END_TEST

START_TEST(a_constraint_that_is_deferred_fails_at_the_commit)
{
    const PGresult *result;
    pqtx_tx *tx = form_begin(&forms, (enum form)_i);
    write_log(tx, "never");
    pqtx_exec(tx, "INSERT INTO late VALUES (1), (1) RETURNING id", PQTX_NO_ARGS, &result);
    commit_as(tx, PQTX_DUPLICATE);
    pqtx_error error = error_of(tx);
    ck_assert_str_eq(error.sqlstate, "23505");
    ck_assert_str_eq(error.table_name, "late");
    ck_assert_int_eq(error.phase, PQTX_PHASE_COMMIT);
    ck_assert_int_eq(error.call, 0);
    ck_assert_ptr_null(result);
    ck_assert_int_eq(pqtx_answer(tx, 0, NULL, NULL), PQTX_DUPLICATE);
    ck_assert_int_eq(pqtx_answer(tx, 1, NULL, NULL), PQTX_DUPLICATE);
    ck_assert_int_eq(pqtx_attempt(tx), 0);
    ck_assert_int_eq(pqtx_get_outcome(tx), PQTX_OUTCOME_ROLLED_BACK);
    pqtx_free(tx);
    ck_assert_int_eq(log_lines(), 0);
    ck_assert_int_eq(ask_int(monitor, "SELECT count(*) FROM late"), 0);
}
END_TEST

START_TEST(a_wrong_call_marks_the_attempt_and_nothing_is_committed)
{
    static const char text[] = "a\0b";
    const struct {
        const char *statement;
        int count;
        pqtx_value value;
    } wrong[] = {
        {NULL, 0, PQTX_NULL},
        {"COMMIT", 0, PQTX_NULL},
        {"SAVEPOINT mine", 0, PQTX_NULL},
        {"COPY log FROM stdin", 0, PQTX_NULL},
        {"PREPARE TRANSACTION 'x'", 0, PQTX_NULL},
        {"SELECT $1", -1, PQTX_NULL},
        {"SELECT $1", 1, pqtx_text_n(text, 3)},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        pqtx_tx *tx = form_begin(&forms, (enum form)_i);
        write_log(tx, "never");
        ck_assert_int_eq(pqtx_exec(tx, wrong[i].statement, wrong[i].count, &wrong[i].value, NULL),
                         PQTX_MISUSE);
        commit_as(tx, PQTX_MISUSE);
        pqtx_free(tx);
    }
    ck_assert_int_eq(log_lines(), 0);
}
END_TEST

/* ---- pqtx_update_if() */

struct verdict {
    const char *table, *key, *condition;
    pqtx_status status;
};

static const struct verdict verdicts[] = {
    {"account", "id = $1", "v >= $2", PQTX_OK},
    {"account", "id = $1", "v < $2", PQTX_CONDITION_FALSE},
    {"account", "id = $1", "NULL AND v < $2", PQTX_CONDITION_FALSE},
    {"account", "id = $1 + 100", "v >= $2", PQTX_NOT_FOUND},
    {"account", "id = $1 AND NULL", "v >= $2", PQTX_NOT_FOUND},
    {"twin", "id = $1 + 1", "v >= $2", PQTX_TOO_MANY},
    {"twin", "id = $1", "v >= $2", PQTX_TOO_MANY},
    {"twin", "id = $1", "v > 100 + $2", PQTX_TOO_MANY},
};
enum { VERDICTS = sizeof verdicts / sizeof verdicts[0] };

static pqtx_error change_by(enum form form, const struct verdict *v, bool waits, int calls_before)
{
    pqtx_change change = PQTX_CHANGE;
    pqtx_options options = form_options(form);
    change.table = v->table;
    change.key = v->key;
    change.condition = v->condition;
    change.set = "v = v + $2";
    if (waits)
        options.flags = 0;
    pqtx_tx *tx = form_new(&forms, form, &options);
    ck_assert_int_eq(pqtx_attempt(tx), 1);
    for (int i = 0; i < calls_before; i++)
        write_log(tx, "before");
    pqtx_update_if(tx, &change, PQTX_ARGS(PQTX_INT(1), PQTX_INT(1)), NULL);
    commit_as(tx, v->status);
    pqtx_error error = error_of(tx);
    pqtx_free(tx);
    return error;
}

START_TEST(every_verdict_of_a_change_is_that_of_a_call_that_waits)
{
    for (int i = 0; i < VERDICTS; i++) {
        pqtx_error queued = change_by((enum form)_i, &verdicts[i], false, 2);
        pqtx_error waited = change_by((enum form)_i, &verdicts[i], true, 2);
        ck_assert_str_eq(queued.message, waited.message);
        ck_assert_str_eq(queued.sqlstate, "");
        ck_assert_int_eq(queued.phase, waited.phase);
        ck_assert_int_eq(queued.origin, waited.origin);
        ck_assert_int_eq(queued.call, verdicts[i].status == PQTX_OK ? 0 : 3);
    }
    ck_assert_int_eq(log_lines(), 4);
    ck_assert_int_eq(ask_int(monitor, "SELECT sum(v) FROM twin"), 3);
    ck_assert_int_eq(value_of(1), 12);
}
END_TEST

static pqtx_status take(pqtx_tx *tx, int id, int64_t count, const PGresult **row)
{
    pqtx_change change = PQTX_CHANGE;
    change.table = "account";
    change.key = "id = $1";
    change.condition = "v >= $2";
    change.set = "v = v - $2";
    change.returning = "v";
    return pqtx_update_if(tx, &change, PQTX_ARGS(PQTX_INT(id), PQTX_INT(count)), row);
}

START_TEST(changes_in_one_flight_do_not_blur_one_another)
{
    const PGresult *first, *second, *third;
    pqtx_tx *tx = form_begin(&forms, (enum form)_i);
    take(tx, 1, 10, &first);
    take(tx, 2, 5, &second);
    take(tx, 2, 15, &third);
    commit_as(tx, PQTX_OK);
    ck_assert_int_eq(number(first, 0, 0), 0);
    ck_assert_int_eq(number(second, 0, 0), 15);
    ck_assert_int_eq(number(third, 0, 0), 0);
    answer(tx, 0, 1);
    answer(tx, 2, 1);
    pqtx_free(tx);
    tx = form_begin(&forms, (enum form)_i);
    take(tx, 3, 1, &first);
    take(tx, 2, 1, &second);
    take(tx, 4, 1, &third);
    commit_as(tx, PQTX_CONDITION_FALSE);
    ck_assert_int_eq(error_of(tx).call, 2);
    ck_assert_ptr_null(first);
    pqtx_free(tx);
    tx = form_begin(&forms, (enum form)_i);
    take(tx, 3, 1, &first);
    take(tx, 9, 1, &second);
    commit_as(tx, PQTX_NOT_FOUND);
    ck_assert_int_eq(error_of(tx).call, 2);
    pqtx_free(tx);
    ck_assert_int_eq(value_of(3), 30);
}
END_TEST

/* The condition is false for the UPDATE, and true for the SELECT behind it. */
START_TEST(a_condition_that_comes_true_in_between_begins_the_attempt_again)
{
    pqtx_change change = PQTX_CHANGE;
    pqtx_options options = form_options((enum form)_i);
    change.table = "account";
    change.key = "id = 1";
    change.condition = "nextval('asked') >= 2";
    change.set = "v = v - 1";
    pqtx_tx *tx = form_new(&forms, (enum form)_i, &options);
    while (pqtx_attempt(tx)) {
        write_log(tx, "once");
        pqtx_update_if(tx, &change, PQTX_NO_ARGS, NULL);
        pqtx_commit(tx);
    }
    ck_assert_int_eq(pqtx_result(tx), PQTX_OK);
    ck_assert_uint_eq(pqtx_attempts(tx), 2);
    pqtx_error error = error_of(tx);
    ck_assert_int_eq(error.status, PQTX_BUSY);
    ck_assert_int_eq(error.call, 2);
    ck_assert_str_eq(error.message, "the row changed between UPDATE and SELECT");
    pqtx_free(tx);
    ck_assert_int_eq(log_lines(), 1);
    ck_assert_int_eq(value_of(1), 9);
}
END_TEST

static pqtx_status take_ten(pqtx_tx *tx, void *arg)
{
    (void)arg;
    write_log(tx, "took");
    return take(tx, 1, 10, NULL);
}

/* What another session does with the row while the flight waits for it. */
static const struct meanwhile {
    const char *change;
    pqtx_status status;
    int64_t value; /* in the end */
} meanwhile[] = {
    {"UPDATE account SET v = 9 WHERE id = 1", PQTX_CONDITION_FALSE, 9},
    {"UPDATE account SET v = 100 WHERE id = 1", PQTX_OK, 90},
    {"DELETE FROM account WHERE id = 1", PQTX_NOT_FOUND, -1},
    {"UPDATE account SET id = 77 WHERE id = 1", PQTX_NOT_FOUND, -1},
    {"DELETE FROM account WHERE id = 1; INSERT INTO account VALUES (1, 50)", PQTX_OK, 40},
};

START_TEST(a_row_changed_meanwhile_is_judged_as_it_has_become)
{
    for (size_t i = 0; i < sizeof meanwhile / sizeof meanwhile[0]; i++) {
        const struct meanwhile *m = &meanwhile[i];
        pqtx_options options = form_options((enum form)_i);
        struct task task = form_task(&forms, (enum form)_i, &options, take_ten, NULL);
        sql(monitor, "DELETE FROM account WHERE id IN (1, 77); INSERT INTO account VALUES (1, 10);"
                     "TRUNCATE log");
        int pid = form_backend(&forms, (enum form)_i);
        sql(other, "BEGIN");
        sql(other, m->change);
        start_task(&task);
        wait_until_blocked(monitor, pid);
        sql(other, "COMMIT");
        join_task(&task, m->status);
        ck_assert_int_eq(log_lines(), m->status == PQTX_OK);
        if (m->status != PQTX_OK)
            ck_assert_int_eq(task.error.call, 2);
        ck_assert_int_eq(ask_int(monitor, "SELECT coalesce(max(v), -1) FROM account WHERE id = 1"),
                         m->value);
    }
}
END_TEST

/* ---- Advisory locks */

#define HELD "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted AND pid = "

static int64_t locks_of(int pid)
{
    char query[160];
    snprintf(query, sizeof query, HELD "%d", pid);
    return ask_int(monitor, query);
}

static void queue_locks(pqtx_tx *tx)
{
    static const int64_t keys[] = {735118004, 735118003, 735118004};
    ck_assert_int_eq(pqtx_lock(tx, 735118001), PQTX_OK);
    ck_assert_int_eq(pqtx_lock_shared(tx, 735118002), PQTX_OK);
    ck_assert_int_eq(pqtx_lock_many(tx, keys, 3), PQTX_OK);
    ck_assert_int_eq(pqtx_lock_many_shared(tx, keys + 1, 1), PQTX_OK);
    ck_assert_int_eq(pqtx_lock_many(tx, keys, 0), PQTX_OK);
    ck_assert_int_eq(pqtx_lock_pair(tx, 735118, 5), PQTX_OK);
    ck_assert_int_eq(pqtx_lock_pair_shared(tx, 735118, 6), PQTX_OK);
}

START_TEST(locks_are_queued_and_taken_when_they_land)
{
    int pid = form_backend(&forms, (enum form)_i);
    pqtx_tx *tx = form_begin(&forms, (enum form)_i);
    queue_locks(tx);
    ck_assert_uint_eq(pqtx_queued(tx), 6);
    ck_assert_int_eq(locks_of(pid), 0);
    ck_assert_int_eq(pqtx_flush(tx), PQTX_OK);
    ck_assert_int_eq(locks_of(pid), 7); /* one key in both ways */
    answer(tx, 0, 1);
    answer(tx, 2, 2);
    commit_as(tx, PQTX_OK);
    ck_assert_int_eq(locks_of(pid), 0);
    pqtx_free(tx);
}
END_TEST

START_TEST(a_lock_would_be_older_than_the_snapshot_and_is_refused)
{
    for (int level = PQTX_ISO_REPEATABLE_READ; level <= PQTX_ISO_SERIALIZABLE; level++) {
        pqtx_options options = form_options((enum form)_i);
        options.isolation = (pqtx_isolation)level;
        int pid = form_backend(&forms, (enum form)_i);
        pqtx_tx *tx = form_new(&forms, (enum form)_i, &options);
        ck_assert_int_eq(pqtx_attempt(tx), 1);
        write_log(tx, "never");
        queue_locks(tx);
        ck_assert_int_eq(pqtx_flush(tx), PQTX_WRONG_ISOLATION);
        ck_assert_int_eq(error_of(tx).call, 2);
        ck_assert_int_eq(locks_of(pid), 0);
        commit_as(tx, PQTX_WRONG_ISOLATION);
        pqtx_free(tx);
        tx = form_new(&forms, (enum form)_i, &options);
        ck_assert_int_eq(pqtx_attempt(tx), 1);
        pqtx_lock(tx, 735118001);
        write_log(tx, "never");
        commit_as(tx, PQTX_WRONG_ISOLATION);
        ck_assert_int_eq(error_of(tx).call, 1);
        pqtx_free(tx);
        options.flags |= PQTX_LOCK_ANY_ISOLATION;
        tx = form_new(&forms, (enum form)_i, &options);
        ck_assert_int_eq(pqtx_attempt(tx), 1);
        queue_locks(tx);
        commit_as(tx, PQTX_OK);
        pqtx_free(tx);
    }
    ck_assert_int_eq(log_lines(), 0);
}
END_TEST

/* The session's own level counts as well, where no other was asked for. */
START_TEST(a_lock_is_refused_at_the_sessions_level_too)
{
    pqtx_tx *tx;
    sql(forms.own, "SET default_transaction_isolation = 'repeatable read'");
    tx = form_begin(&forms, FORM_OWN);
    pqtx_lock(tx, 735118001);
    commit_as(tx, PQTX_WRONG_ISOLATION);
    pqtx_free(tx);
    tx = form_begin(&forms, FORM_IMPLICIT);
    pqtx_exec(tx, "SET default_transaction_isolation = 'repeatable read'", PQTX_NO_ARGS, NULL);
    commit_as(tx, PQTX_OK);
    pqtx_free(tx);
    tx = form_begin(&forms, FORM_IMPLICIT);
    pqtx_lock(tx, 735118001);
    write_log(tx, "never");
    commit_as(tx, PQTX_WRONG_ISOLATION);
    pqtx_free(tx);
    ck_assert_int_eq(log_lines(), 0);
}
END_TEST

static pqtx_status lock_and_read(pqtx_tx *tx, void *row)
{
    pqtx_lock(tx, 735118001);
    return pqtx_exec(tx, "SELECT v FROM account WHERE id = 1", PQTX_NO_ARGS,
                     (const PGresult **)row);
}

static pqtx_status lock_read_and_flush(pqtx_tx *tx, void *value)
{
    const PGresult *row;
    lock_and_read(tx, (void *)&row);
    pqtx_status status = pqtx_flush(tx);
    return status == PQTX_OK ? pqtx_get_int(row, 0, 0, value) : status;
}

START_TEST(what_is_read_behind_a_lock_in_the_same_flight_is_newer_than_it)
{
    int64_t value = 0;
    pqtx_options options = form_options((enum form)_i);
    struct task task = form_task(&forms, (enum form)_i, &options, lock_read_and_flush, &value);
    int pid = form_backend(&forms, (enum form)_i);
    sql(other, "BEGIN; SELECT pg_advisory_xact_lock(735118001);"
               "UPDATE account SET v = 77 WHERE id = 1");
    start_task(&task);
    wait_until_blocked(monitor, pid);
    sql(other, "COMMIT");
    join_task(&task, PQTX_OK);
    ck_assert_int_eq(value, 77);
}
END_TEST

START_TEST(a_try_lock_lands_what_is_queued_and_answers_at_once)
{
    int64_t rows;
    sql(other, "SELECT pg_advisory_lock(735118001), pg_advisory_lock(735118, 2)");
    pqtx_tx *tx = form_begin(&forms, (enum form)_i);
    pqtx_update(tx, "INSERT INTO log VALUES ('kept')", PQTX_NO_ARGS, &rows);
    ck_assert_int_eq(pqtx_try_lock(tx, 735118001), PQTX_BUSY);
    ck_assert_int_eq(rows, 1);
    ck_assert_uint_eq(pqtx_queued(tx), 1);
    ck_assert_int_eq(pqtx_try_lock(tx, 735118009), PQTX_OK);
    ck_assert_int_eq(pqtx_try_lock_shared(tx, 735118001), PQTX_BUSY);
    ck_assert_int_eq(pqtx_try_lock_pair(tx, 735118, 2), PQTX_BUSY);
    ck_assert_int_eq(pqtx_try_lock_pair_shared(tx, 735118, 3), PQTX_OK);
    write_log(tx, "kept");
    commit_as(tx, PQTX_OK);
    pqtx_free(tx);
    ck_assert_int_eq(log_lines(), 2);
    tx = form_begin(&forms, (enum form)_i);
    write_log(tx, "never");
    pqtx_exec(tx, "SELECT 1 / 0", PQTX_NO_ARGS, NULL);
    ck_assert_int_eq(pqtx_try_lock(tx, 735118009), PQTX_BAD_DATA);
    ck_assert_int_eq(error_of(tx).call, 2);
    commit_as(tx, PQTX_BAD_DATA);
    pqtx_free(tx);
    ck_assert_int_eq(log_lines(), 2);
}
END_TEST

/* ---- Savepoints */

/* What one does in a savepoint: a line, and then perhaps a failure. */
struct part {
    const char *statement; /* or NULL */
    pqtx_status says;
    struct part *inner; /* or NULL */
    pqtx_status inner_status;
    const PGresult *line;
};

static pqtx_status do_part(pqtx_tx *tx, void *arg)
{
    struct part *part = arg;
    pqtx_exec(tx, "INSERT INTO log VALUES ('inside') RETURNING line", PQTX_NO_ARGS, &part->line);
    if (part->inner)
        part->inner_status = pqtx_savepoint(tx, do_part, part->inner);
    if (part->statement)
        pqtx_exec_one(tx, part->statement, PQTX_NO_ARGS, NULL);
    return part->says;
}

START_TEST(a_savepoint_lands_what_is_queued_before_and_inside_it)
{
    const PGresult *before;
    struct part part = {.says = PQTX_OK};
    pqtx_tx *tx = form_begin(&forms, (enum form)_i);
    pqtx_exec(tx, "SELECT 7", PQTX_NO_ARGS, &before);
    ck_assert_int_eq(pqtx_savepoint(tx, do_part, &part), PQTX_OK);
    ck_assert_int_eq(number(before, 0, 0), 7);
    ck_assert_int_eq(PQntuples(part.line), 1);
    write_log(tx, "after");
    commit_as(tx, PQTX_OK);
    ck_assert_uint_eq(pqtx_queued(tx), 3);
    answer(tx, 1, 1);
    pqtx_free(tx);
    ck_assert_int_eq(log_lines(), 2);
}
END_TEST

static const struct {
    const char *statement;
    pqtx_status says, status;
} undone[] = {
    {"UPDATE account SET v = 0 WHERE id = 9", PQTX_OK, PQTX_NO_MATCH},
    {"UPDATE account SET v = 0", PQTX_OK, PQTX_TOO_MANY},
    {"INSERT INTO account VALUES (1, 1)", PQTX_OK, PQTX_DUPLICATE},
    {"UPDATE account SET v = -1 WHERE id = 2", PQTX_OK, PQTX_CHECK},
    {"SELECT 1 / 0", PQTX_OK, PQTX_BAD_DATA},
    {NULL, (pqtx_status)(PQTX_USER + 1), (pqtx_status)(PQTX_USER + 1)},
    {"SELECT 1", PQTX_STOPPED, PQTX_STOPPED},
};

START_TEST(what_a_savepoint_undoes_is_gone_and_the_rest_stays)
{
    for (size_t i = 0; i < sizeof undone / sizeof undone[0]; i++) {
        struct part part = {.statement = undone[i].statement, .says = undone[i].says};
        pqtx_tx *tx = form_begin(&forms, (enum form)_i);
        sql(monitor, "TRUNCATE log");
        write_log(tx, "before");
        ck_assert_int_eq(pqtx_savepoint(tx, do_part, &part), undone[i].status);
        ck_assert_ptr_null(part.line);
        ck_assert_int_ne(pqtx_answer(tx, 1, NULL, NULL), PQTX_OK);
        ck_assert_int_eq(write_log(tx, "after"), PQTX_OK);
        commit_as(tx, PQTX_OK);
        pqtx_free(tx);
        ck_assert_str_eq(ask(monitor, "SELECT string_agg(line, ' ' ORDER BY line) FROM log"),
                         "after before");
        ck_assert_int_eq(ask_int(monitor, "SELECT sum(v) FROM account"), 150);
    }
}
END_TEST

START_TEST(the_call_that_failed_in_a_savepoint_is_told_by_its_answer)
{
    struct part part = {.statement = "UPDATE account SET v = 0 WHERE id = 9", .says = PQTX_OK};
    pqtx_tx *tx = form_begin(&forms, (enum form)_i);
    write_log(tx, "before");
    ck_assert_int_eq(pqtx_savepoint(tx, do_part, &part), PQTX_NO_MATCH);
    ck_assert_int_eq(error_of(tx).call, 3);
    ck_assert_int_eq(pqtx_answer(tx, 2, NULL, NULL), PQTX_NO_MATCH);
    pqtx_exec(tx, "SELECT 1 / 0", PQTX_NO_ARGS, NULL);
    commit_as(tx, PQTX_BAD_DATA);
    ck_assert_int_eq(error_of(tx).call, 4);
    pqtx_free(tx);
}
END_TEST

START_TEST(savepoints_nest_and_each_undoes_its_own)
{
    struct part inner = {.statement = "SELECT 1 / 0"};
    struct part outer = {.inner = &inner};
    pqtx_tx *tx = form_begin(&forms, (enum form)_i);
    write_log(tx, "before");
    ck_assert_int_eq(pqtx_savepoint(tx, do_part, &outer), PQTX_OK);
    ck_assert_int_eq(outer.inner_status, PQTX_BAD_DATA);
    inner.statement = NULL;
    outer.statement = "SELECT WHERE false";
    ck_assert_int_eq(pqtx_savepoint(tx, do_part, &outer), PQTX_NO_MATCH);
    ck_assert_int_eq(outer.inner_status, PQTX_OK);
    commit_as(tx, PQTX_OK);
    pqtx_free(tx);
    ck_assert_str_eq(ask(monitor, "SELECT string_agg(line, ' ' ORDER BY line) FROM log"),
                     "before inside");
}
END_TEST

START_TEST(a_failure_queued_before_a_savepoint_keeps_it_from_beginning)
{
    struct part part = {.says = PQTX_OK};
    pqtx_tx *tx = form_begin(&forms, (enum form)_i);
    pqtx_exec(tx, "SELECT 1 / 0", PQTX_NO_ARGS, NULL);
    ck_assert_int_eq(pqtx_savepoint(tx, do_part, &part), PQTX_BAD_DATA);
    ck_assert_uint_eq(pqtx_queued(tx), 1);
    commit_as(tx, PQTX_BAD_DATA);
    pqtx_free(tx);
}
END_TEST

/* ---- lock_timeout, by call */

START_TEST(a_lock_timeout_holds_for_the_calls_behind_it)
{
    static const int64_t wanted[] = {7, 7, 0, PQTX_NO_TIMEOUT, 900, 0};
    static const char *const found[] = {"7ms", "7ms", "5s", "0", "900ms", "5s"};
    const PGresult *results[7];
    pqtx_tx *tx = form_begin(&forms, (enum form)_i);
    pqtx_exec(tx, "SHOW lock_timeout", PQTX_NO_ARGS, &results[6]);
    for (int i = 0; i < 6; i++) {
        ck_assert_int_eq(pqtx_set_lock_timeout(tx, wanted[i]), PQTX_OK);
        pqtx_exec_one(tx, "SELECT current_setting('lock_timeout')", PQTX_NO_ARGS, &results[i]);
    }
    commit_as(tx, PQTX_OK);
    ck_assert_str_eq(PQgetvalue(results[6], 0, 0), "5s");
    for (int i = 0; i < 6; i++)
        ck_assert_str_eq(PQgetvalue(results[i], 0, 0), found[i]);
    pqtx_free(tx);
}
END_TEST

/* ---- How much one may queue */

/* Each call takes its own row and is told its own value. */
static void queue_many(enum form form, int count)
{
    pqtx_tx *tx = form_begin(&forms, form);
    for (int i = 0; i < count; i++)
        ck_assert_int_eq(pqtx_exec_one(tx, "INSERT INTO log VALUES ($1) RETURNING line",
                                       PQTX_ARGS(PQTX_INT(i)), NULL),
                         PQTX_OK);
    commit_as(tx, PQTX_OK);
    ck_assert_uint_eq(pqtx_queued(tx), (uint32_t)count);
    for (int i = 0; i < count; i++)
        ck_assert_int_eq(number(answer(tx, (uint32_t)i, 1), 0, 0), i);
    pqtx_free(tx);
    ck_assert_int_eq(log_lines(), count);
    sql(monitor, "TRUNCATE log");
}

START_TEST(as_many_calls_as_one_likes_may_be_queued)
{
    static const int counts[] = {999, 1000, 1001, 2000, 10000};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        queue_many((enum form)_i, counts[i]);
}
END_TEST

START_TEST(a_failure_among_very_many_calls_leaves_nothing)
{
    pqtx_tx *tx = form_begin(&forms, (enum form)_i);
    pqtx_status status = PQTX_OK;
    for (int i = 0; i < 2500 && status == PQTX_OK; i++)
        status =
            i == 1200 ? pqtx_exec(tx, "SELECT 1 / 0", PQTX_NO_ARGS, NULL) : write_log(tx, "never");
    ck_assert_int_eq(status, PQTX_BAD_DATA);
    ck_assert_int_eq(error_of(tx).call, 1201);
    commit_as(tx, PQTX_BAD_DATA);
    ck_assert_int_eq(pqtx_answer(tx, 999, NULL, NULL), PQTX_OK);
    ck_assert_int_eq(pqtx_answer(tx, 1000, NULL, NULL), PQTX_BAD_DATA);
    ck_assert_int_eq(pqtx_answer(tx, 1200, NULL, NULL), PQTX_BAD_DATA);
    pqtx_free(tx);
    ck_assert_int_eq(log_lines(), 0);
}
END_TEST

/* Both ways at once: the server sends while it is still being sent to. */
START_TEST(values_and_answers_may_be_large)
{
    enum { LARGE = 1048576, LINES = 8 };
    const PGresult *results[LINES];
    char *text = malloc(LARGE + 1);
    ck_assert_ptr_nonnull(text);
    memset(text, 'x', LARGE);
    text[LARGE] = '\0';
    for (int size = LARGE; size >= LARGE / 16; size /= 4) {
        pqtx_tx *tx = form_begin(&forms, (enum form)_i);
        for (int i = 0; i < LINES; i++)
            ck_assert_int_eq(pqtx_exec_one(tx,
                                           "INSERT INTO log VALUES ($1) RETURNING line, $2::bytea",
                                           PQTX_ARGS(pqtx_text_n(text, (size_t)(size - i)),
                                                     PQTX_BYTES(text, (size_t)(size - i))),
                                           &results[i]),
                             PQTX_OK);
        commit_as(tx, PQTX_OK);
        for (int i = 0; i < LINES; i++) {
            ck_assert_int_eq(PQgetlength(results[i], 0, 0), size - i);
            ck_assert_int_eq(PQgetlength(results[i], 0, 1), 2 + 2 * (size - i));
        }
        pqtx_free(tx);
    }
    free(text);
}
END_TEST

START_TEST(values_may_be_changed_as_soon_as_the_call_returns)
{
    char text[8] = "first", bytes[4] = "abc", statement[64];
    const PGresult *row, *second;
    pqtx_value values[4] = {PQTX_TEXT(text), PQTX_BYTES(bytes, 3), PQTX_INT(5), PQTX_REAL(0.5)};
    pqtx_tx *tx = form_begin(&forms, (enum form)_i);
    strcpy(statement, "SELECT $1, encode($2, 'escape'), $3::int, $4::real");
    pqtx_exec_one(tx, statement, 4, values, &row);
    memset(text, 'z', sizeof text - 1);
    memset(bytes, 'z', sizeof bytes);
    memset(statement, 'z', sizeof statement - 1);
    memset(values, 0, sizeof values);
    strcpy(text, "second");
    pqtx_exec(tx, "SELECT $1", PQTX_ARGS(PQTX_TEXT(text)), &second);
    text[0] = '\0';
    commit_as(tx, PQTX_OK);
    ck_assert_str_eq(PQgetvalue(row, 0, 0), "first");
    ck_assert_str_eq(PQgetvalue(row, 0, 1), "abc");
    ck_assert_str_eq(PQgetvalue(row, 0, 2), "5");
    ck_assert_str_eq(PQgetvalue(row, 0, 3), "0.5");
    ck_assert_str_eq(PQgetvalue(second, 0, 0), "second");
    pqtx_free(tx);
}
END_TEST

/* ---- The caller's connection */

static void assert_own_is_clean(void)
{
    ck_assert_int_eq(PQstatus(forms.own), CONNECTION_OK);
    ck_assert_int_eq(PQpipelineStatus(forms.own), PQ_PIPELINE_OFF);
    ck_assert_int_eq(PQtransactionStatus(forms.own), PQTRANS_IDLE);
    ck_assert_int_eq(PQisnonblocking(forms.own), 0);
    ck_assert_str_eq(ask(forms.own, "SHOW lock_timeout"), "0");
    ck_assert_str_eq(ask(forms.own, "SHOW statement_timeout"), "0");
    ck_assert_str_eq(ask(forms.own, "SELECT coalesce(current_setting("
                                    "'client_connection_check_interval', true), '0')"),
                     "0");
    ck_assert_int_eq(ask_int(forms.own, "SELECT count(*) FROM pg_prepared_statements"), 0);
}

START_TEST(the_callers_connection_is_given_back_clean)
{
    pqtx_tx *tx = form_begin(&forms, FORM_OWN);
    write_log(tx, "kept");
    commit_as(tx, PQTX_OK);
    assert_own_is_clean();
    pqtx_free(tx);
    tx = form_begin(&forms, FORM_OWN);
    write_log(tx, "never");
    pqtx_exec(tx, "SELECT 1 / 0", PQTX_NO_ARGS, NULL);
    commit_as(tx, PQTX_BAD_DATA);
    assert_own_is_clean();
    pqtx_free(tx);
    tx = form_begin(&forms, FORM_OWN);
    write_log(tx, "never");
    pqtx_free(tx);
    assert_own_is_clean();
    tx = form_begin(&forms, FORM_OWN);
    write_log(tx, "never");
    pqtx_flush(tx);
    write_log(tx, "never");
    pqtx_free(tx);
    assert_own_is_clean();
    tx = form_begin(&forms, FORM_OWN);
    pqtx_exec(tx, "INSERT INTO late VALUES (1), (1)", PQTX_NO_ARGS, NULL);
    commit_as(tx, PQTX_DUPLICATE);
    pqtx_free(tx);
    assert_own_is_clean();
    ck_assert_int_eq(log_lines(), 1);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("live_pipeline");
    TCase *c = tcase_create("pipeline");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_set_timeout(c, 60);
    tcase_add_loop_test(c, answers_come_with_the_commit_and_stay, 0, FORMS);
    tcase_add_loop_test(c, answers_come_with_a_flush_and_stay, 0, FORMS);
    tcase_add_loop_test(c, pipeline_mode_begins_where_it_is_asked_for, 0, FORMS);
    tcase_add_loop_test(c, what_was_queued_and_answered_ends_with_the_attempt, 0, FORMS);
    tcase_add_loop_test(c, every_kind_of_change_counts_its_rows, 0, FORMS);
    tcase_add_loop_test(c, a_call_that_cannot_wait_lands_those_before_it, 0, FORMS);
    tcase_add_loop_test(c, a_call_without_a_count_is_misuse_and_nothing_is_left, 0, FORMS);
    tcase_add_loop_test(c, one_call_that_fails_takes_the_whole_flight_along, 0, FORMS);
    tcase_add_loop_test(c, a_flush_tells_and_what_landed_before_it_stays_readable, 0, FORMS);
    tcase_add_loop_test(c, an_error_points_into_the_callers_own_text, 0, FORMS);
    tcase_add_loop_test(c, a_constraint_that_is_deferred_fails_at_the_commit, 0, FORMS);
    tcase_add_loop_test(c, a_wrong_call_marks_the_attempt_and_nothing_is_committed, 0, FORMS);
    tcase_add_loop_test(c, every_verdict_of_a_change_is_that_of_a_call_that_waits, 0, FORMS);
    tcase_add_loop_test(c, changes_in_one_flight_do_not_blur_one_another, 0, FORMS);
    tcase_add_loop_test(c, a_condition_that_comes_true_in_between_begins_the_attempt_again, 0,
                        FORMS);
    tcase_add_loop_test(c, a_row_changed_meanwhile_is_judged_as_it_has_become, 0, FORMS);
    tcase_add_loop_test(c, locks_are_queued_and_taken_when_they_land, 0, FORMS);
    tcase_add_loop_test(c, a_lock_would_be_older_than_the_snapshot_and_is_refused, 0, FORMS);
    tcase_add_test(c, a_lock_is_refused_at_the_sessions_level_too);
    add_direct_loop_test(c, what_is_read_behind_a_lock_in_the_same_flight_is_newer_than_it, 0,
                         FORMS, ANY_SESSION);
    add_direct_loop_test(c, a_try_lock_lands_what_is_queued_and_answers_at_once, 0, FORMS,
                         SESSION_STATE);
    tcase_add_loop_test(c, a_savepoint_lands_what_is_queued_before_and_inside_it, 0, FORMS);
    tcase_add_loop_test(c, what_a_savepoint_undoes_is_gone_and_the_rest_stays, 0, FORMS);
    tcase_add_loop_test(c, the_call_that_failed_in_a_savepoint_is_told_by_its_answer, 0, FORMS);
    tcase_add_loop_test(c, savepoints_nest_and_each_undoes_its_own, 0, FORMS);
    tcase_add_loop_test(c, a_failure_queued_before_a_savepoint_keeps_it_from_beginning, 0, FORMS);
    tcase_add_loop_test(c, a_lock_timeout_holds_for_the_calls_behind_it, 0, FORMS);
    tcase_add_loop_test(c, as_many_calls_as_one_likes_may_be_queued, 0, FORMS);
    tcase_add_loop_test(c, a_failure_among_very_many_calls_leaves_nothing, 0, FORMS);
    tcase_add_loop_test(c, values_and_answers_may_be_large, 0, FORMS);
    tcase_add_loop_test(c, values_may_be_changed_as_soon_as_the_call_returns, 0, FORMS);
    tcase_add_test(c, the_callers_connection_is_given_back_clean);
    suite_add_tcase(s, c);
    return s;
}

int main(void)
{
    return run_suite(suite());
}
