/* check_live_update.c: changing a row only if its condition still holds, while others change it. */
#include "support.h"
#include "support_tx.h"

#include <stdio.h>
#include <string.h>

static PGconn *other, *monitor, *own; /* a rival, one who asks, and the connection under trial */
static pqtx_options options;

static void set_up(void)
{
    fresh_schema("pqtx_update");
    other = open_session();
    monitor = open_session();
    own = open_own();
    sql(monitor, "CREATE TABLE stock (key text PRIMARY KEY, v bigint CHECK (v >= 0), note text)");
    options = (pqtx_options)PQTX_OPTIONS;
}

static void tear_down(void)
{
    PQfinish(other);
    PQfinish(monitor);
    PQfinish(own);
}

/* One pqtx_update_if() in one transaction, and what it said in its last attempt. */
struct
try {
    pqtx_change change;
    int count;
    const pqtx_value *values;
    bool in_savepoint;

    pqtx_status status;
    uint32_t attempts;
    int columns; /* of the row, 0 for none */
    char row[8][64];
};

static pqtx_status change_row(pqtx_tx *tx, void *arg)
{
    struct try *try = arg;
    const PGresult *row;
    try->status = pqtx_update_if(tx, &try->change, try->count, try->values, &row);
    try->attempts = pqtx_attempts(tx);
    try->columns = row ? PQnfields(row) - 1 : 0;
    ck_assert_int_le(try->columns, 8);
    for (int i = 0; i < try->columns; i++)
        snprintf(try->row[i], sizeof try->row[i], "%s", PQgetvalue(row, 0, i));
    return try->status;
}

static pqtx_change take_one(void)
{
    pqtx_change change = PQTX_CHANGE;
    change.table = "stock";
    change.key = "key = $1";
    change.condition = "v >= $2";
    change.set = "v = v - $2";
    return change;
}

static const pqtx_value *kz_and_one(void)
{
    static pqtx_value values[2];
    values[0] = PQTX_TEXT("kz");
    values[1] = PQTX_INT(1);
    return values;
}

static struct task task_of(struct try *try)
{
    return (struct task){.conn = own, .options = &options, .work = change_row, .arg = try};
}

static void run_try(struct try *try, pqtx_status expected)
{
    struct task task = task_of(try);
    run_task(&task, expected);
    assert_status(try->status, expected, &task.error);
}

/* ---- what another session does in the middle, as a table */

struct interleaving {
    const char *start;  /* the value that is there, or NULL */
    const char *change; /* by the other session, before ours looks */
    bool ours_waits;
    pqtx_status expected;
    const char *value;       /* that the row of the answer has */
    const char *final_value; /* in the table, afterwards */
};

static const struct interleaving emptied = {
    "1", "UPDATE stock SET v = 0 WHERE key = 'kz'", true, PQTX_CONDITION_FALSE, "0", "0"};
static const struct interleaving lessened = {
    "5", "UPDATE stock SET v = 4 WHERE key = 'kz'", true, PQTX_OK, "3", "3"};
static const struct interleaving deleted = {
    "5", "DELETE FROM stock WHERE key = 'kz'", true, PQTX_NOT_FOUND, NULL, NULL};
static const struct interleaving renamed = {
    "5", "UPDATE stock SET key = 'other' WHERE key = 'kz'", true, PQTX_NOT_FOUND, NULL, NULL};
static const struct interleaving replaced = {
    "1",  "DELETE FROM stock WHERE key = 'kz'; INSERT INTO stock VALUES ('kz', 10)",
    true, PQTX_OK,
    "9",  "9"};
static const struct interleaving filled = {
    "0", "UPDATE stock SET v = 5 WHERE key = 'kz'", false, PQTX_CONDITION_FALSE, "0", "5"};
static const struct interleaving inserted = {
    NULL, "INSERT INTO stock VALUES ('kz', 5)", false, PQTX_NOT_FOUND, NULL, "5"};

static void start_row(const char *value)
{
    char statement[96];
    sql(monitor, "TRUNCATE stock");
    snprintf(statement, sizeof statement, "INSERT INTO stock VALUES ('kz', %s)",
             value ? value : "0");
    if (value)
        sql(monitor, statement);
}

static void assert_final(const char *value)
{
    const char *found = ask(monitor, "SELECT coalesce(max(v)::text, 'none') FROM stock"
                                     " WHERE key = 'kz'");
    ck_assert_str_eq(found, value ? value : "none");
}

/* The other session changes the row and stays in its transaction; ours comes, and waits, if there
 * is anything to wait for; then the other one commits. */
static void interleave(const struct interleaving *i)
{
    struct try try = {.change = take_one(), .count = 2, .values = kz_and_one()};
    struct task task = task_of(&try);
    start_row(i->start);
    sql(other, "BEGIN");
    sql(other, i->change);
    if (i->ours_waits) {
        start_task(&task);
        wait_for_blocked(monitor, PQbackendPID(other));
        sql(other, "COMMIT");
        join_task(&task, i->expected);
    } else {
        run_task(&task, i->expected);
        sql(other, "COMMIT");
    }
    assert_status(try.status, i->expected, &task.error);
    bool begun_again = i->ours_waits && options.isolation > PQTX_ISO_READ_COMMITTED;
    ck_assert_uint_eq(try.attempts, begun_again ? 2 : 1);
    ck_assert_int_eq(try.columns, i->value ? 3 : 0);
    if (i->value) {
        ck_assert_str_eq(try.row[0], "kz");
        ck_assert_str_eq(try.row[1], i->value);
    }
    assert_final(i->final_value);
}

static void interleave_at_all_levels(const struct interleaving *interleaving)
{
    for (int level = PQTX_ISO_DEFAULT; level <= PQTX_ISO_SERIALIZABLE; level++) {
        options.isolation = (pqtx_isolation)level;
        interleave(interleaving);
    }
}

START_TEST(a_row_emptied_meanwhile_does_not_meet_the_condition)
{
    interleave_at_all_levels(&emptied);
}
END_TEST

START_TEST(a_row_lessened_meanwhile_is_changed_from_its_newest_value)
{
    interleave_at_all_levels(&lessened);
}
END_TEST

START_TEST(a_row_deleted_meanwhile_is_not_found)
{
    interleave_at_all_levels(&deleted);
}
END_TEST

START_TEST(a_row_whose_key_was_changed_meanwhile_is_not_found)
{
    interleave_at_all_levels(&renamed);
}
END_TEST

START_TEST(a_row_deleted_and_inserted_again_meanwhile_is_found)
{
    interleave_at_all_levels(&replaced);
}
END_TEST

START_TEST(a_row_being_filled_is_judged_as_it_was)
{
    interleave_at_all_levels(&filled);
}
END_TEST

START_TEST(a_row_being_inserted_is_not_found)
{
    interleave_at_all_levels(&inserted);
}
END_TEST

START_TEST(a_change_that_is_rolled_back_meanwhile_never_was)
{
    struct try try = {.change = take_one(), .count = 2, .values = kz_and_one()};
    struct task task = task_of(&try);
    start_row("1");
    sql(other, "BEGIN; UPDATE stock SET v = 0");
    start_task(&task);
    wait_for_blocked(monitor, PQbackendPID(other));
    sql(other, "ROLLBACK");
    join_task(&task, PQTX_OK);
    ck_assert_str_eq(try.row[1], "0");
    assert_final("0");
}
END_TEST

START_TEST(two_who_take_the_last_one_get_one_yes_and_one_no)
{
    struct try first = {.change = take_one(), .count = 2, .values = kz_and_one()}, second = first;
    struct task one = task_of(&first), two = task_of(&second);
    for (int i = 0; i < 50; i++) {
        start_row("1");
        two.conn = other;
        start_task(&one);
        start_task(&two);
        pthread_join(one.thread, NULL);
        pthread_join(two.thread, NULL);
        ck_assert_int_eq((one.status == PQTX_OK) + (two.status == PQTX_OK), 1);
        ck_assert_int_eq(
            (one.status == PQTX_CONDITION_FALSE) + (two.status == PQTX_CONDITION_FALSE), 1);
        assert_final("0");
    }
}
END_TEST

/* ---- a row that changes between the two statements: a condition that counts how often it is asked
 */

START_TEST(a_condition_that_comes_true_in_between_is_tried_again)
{
    struct try try = {.change = take_one(), .count = 2, .values = kz_and_one()};
    sql(monitor, "CREATE SEQUENCE asked");
    start_row("5");
    try.change.condition = "nextval('asked') >= 2 AND v >= $2";
    run_try(&try, PQTX_OK);
    ck_assert_str_eq(try.row[1], "4");
    ck_assert_uint_eq(try.attempts, 1);
}
END_TEST

/* The first change moves its row out of its own sight; the second one is another matter. */
static pqtx_status rename_then_change(pqtx_tx *tx, void *arg)
{
    pqtx_change change = take_one();
    change.condition = "v >= $2";
    change.set = "key = 'moved'";
    pqtx_status status =
        pqtx_update_if(tx, &change, PQTX_ARGS(PQTX_TEXT("first"), PQTX_INT(0)), NULL);
    return status == PQTX_OK ? change_row(tx, arg) : status;
}

START_TEST(a_change_before_it_in_the_transaction_does_not_blur_the_verdict)
{
    struct try try = {.change = take_one(), .count = 2, .values = kz_and_one()};
    struct task task = task_of(&try);
    sql(monitor, "CREATE SEQUENCE asked");
    start_row("5");
    sql(monitor, "INSERT INTO stock VALUES ('first', 0)");
    try.change.condition = "nextval('asked') >= 2 AND v >= $2";
    task.work = rename_then_change;
    run_task(&task, PQTX_OK);
    assert_final("4");
}
END_TEST

START_TEST(a_row_that_never_stands_still_is_busy_after_five_tries)
{
    struct try try = {.change = take_one(), .count = 2, .values = kz_and_one()};
    sql(monitor, "CREATE SEQUENCE asked");
    start_row("5");
    options.retry_mask = PQTX_RETRY_NOTHING;
    try.change.condition = "nextval('asked') % 2 = 0 AND v >= $2";
    run_try(&try, PQTX_BUSY);
    ck_assert_int_eq(try.columns, 0);
    ck_assert_int_eq(ask_int(monitor, "SELECT last_value FROM asked"), 10);
    assert_final("5");
}
END_TEST

/* ---- answers */

START_TEST(a_change_without_rivals_gives_the_new_row)
{
    struct try try = {.change = take_one(), .count = 2, .values = kz_and_one()};
    start_row("7");
    run_try(&try, PQTX_OK);
    ck_assert_int_eq(try.columns, 3);
    ck_assert_str_eq(try.row[1], "6");
    assert_final("6");
}
END_TEST

START_TEST(returning_chooses_the_columns)
{
    struct try try = {.change = take_one(), .count = 2, .values = kz_and_one()};
    start_row("1");
    try.change.returning = "v * 10 AS tenfold, key";
    run_try(&try, PQTX_OK);
    ck_assert_int_eq(try.columns, 2);
    ck_assert_str_eq(try.row[0], "0");
    ck_assert_str_eq(try.row[1], "kz");
    run_try(&try, PQTX_CONDITION_FALSE);
    ck_assert_int_eq(try.columns, 2);
    ck_assert_str_eq(try.row[0], "0");
}
END_TEST

START_TEST(a_condition_that_is_null_is_not_met)
{
    struct try try = {.change = take_one(), .count = 2, .values = kz_and_one()};
    start_row("NULL");
    run_try(&try, PQTX_CONDITION_FALSE);
    ck_assert_str_eq(try.row[1], "");
    start_row("5");
    const pqtx_value values[] = {PQTX_TEXT("kz"), PQTX_NULL};
    try.values = values;
    run_try(&try, PQTX_CONDITION_FALSE);
    ck_assert_str_eq(try.row[1], "5");
}
END_TEST

START_TEST(a_key_that_is_null_is_not_found)
{
    struct try try = {.change = take_one(), .count = 2};
    const pqtx_value values[] = {PQTX_NULL, PQTX_INT(1)};
    start_row("5");
    try.values = values;
    run_try(&try, PQTX_NOT_FOUND);
    assert_final("5");
}
END_TEST

START_TEST(a_key_that_meets_two_rows_changes_none)
{
    struct try try = {.change = take_one(), .count = 2, .values = kz_and_one()};
    start_row("5");
    sql(monitor, "INSERT INTO stock VALUES ('kz2', 5), ('kz3', 0)");
    try.change.key = "key LIKE $1 || '%'";
    run_try(&try, PQTX_TOO_MANY); /* two meet the condition */
    ck_assert_int_eq(try.columns, 0);
    sql(monitor, "UPDATE stock SET v = 0 WHERE key = 'kz2'");
    run_try(&try, PQTX_TOO_MANY); /* one does, and two do not */
    sql(monitor, "UPDATE stock SET v = 0");
    run_try(&try, PQTX_TOO_MANY); /* none does */
    ck_assert_int_eq(ask_int(monitor, "SELECT sum(v) FROM stock"), 0);
}
END_TEST

START_TEST(a_change_of_the_key_itself_is_a_change)
{
    struct try try = {.change = take_one(), .count = 2};
    const pqtx_value values[] = {PQTX_TEXT("kz"), PQTX_TEXT("new")};
    start_row("5");
    try.values = values;
    try.change.condition = "v = 5";
    try.change.set = "key = $2";
    run_try(&try, PQTX_OK);
    ck_assert_str_eq(try.row[0], "new");
}
END_TEST

START_TEST(a_condition_that_would_fail_on_the_changed_row_does_not_undo_the_change)
{
    struct try try = {.change = take_one(), .count = 2, .values = kz_and_one()};
    start_row("1");
    try.change.condition = "10 / v >= $2";
    run_try(&try, PQTX_OK);
    ck_assert_str_eq(try.row[1], "0");
    assert_final("0");
}
END_TEST

static pqtx_status change_in_savepoint(pqtx_tx *tx, void *arg)
{
    struct try *try = arg;
    pqtx_status status = pqtx_savepoint(tx, change_row, try);
    if (try->in_savepoint && pqtx_is_answer(status))
        status = pqtx_update_one(tx, "INSERT INTO stock VALUES ('told', 1)", PQTX_NO_ARGS);
    return status;
}

START_TEST(after_a_no_in_a_savepoint_the_body_goes_on)
{
    static const pqtx_status answers[] = {PQTX_CONDITION_FALSE, PQTX_NOT_FOUND};
    for (size_t i = 0; i < 2; i++) {
        struct try try = {
            .change = take_one(), .count = 2, .values = kz_and_one(), .in_savepoint = true};
        struct task task = task_of(&try);
        task.work = change_in_savepoint;
        start_row(i == 0 ? "0" : NULL);
        run_task(&task, PQTX_OK);
        assert_status(try.status, answers[i], NULL);
        ck_assert_int_eq(ask_int(monitor, "SELECT count(*) FROM stock WHERE key = 'told'"), 1);
    }
}
END_TEST

START_TEST(a_no_keeps_no_lock)
{
    struct try try = {.change = take_one(), .count = 2, .values = kz_and_one()};
    start_row("0");
    pqtx_tx *tx = pqtx_new_on(own, NULL);
    ck_assert_int_eq(pqtx_attempt(tx), 1);
    assert_status(change_row(tx, &try), PQTX_CONDITION_FALSE, NULL);
    sql(other, "SET lock_timeout = 1");
    sql(other, "UPDATE stock SET v = 1 WHERE key = 'kz'");
    pqtx_free(tx);
}
END_TEST

/* ---- names */

static void change_in(const char *schema, const char *table)
{
    struct try try = {.change = take_one(), .count = 2, .values = kz_and_one()};
    char statement[512];
    char *name = PQescapeIdentifier(monitor, table, strlen(table));
    char *place = PQescapeIdentifier(monitor, schema ? schema : "pqtx_update",
                                     strlen(schema ? schema : "pqtx_update"));
    snprintf(statement, sizeof statement,
             "CREATE SCHEMA IF NOT EXISTS %s; CREATE TABLE %s.%s AS SELECT 'kz' AS key, 5 AS v",
             place, place, name);
    sql(monitor, statement);
    try.change.schema = schema;
    try.change.table = table;
    run_try(&try, PQTX_OK);
    snprintf(statement, sizeof statement, "SELECT v FROM %s.%s", place, name);
    ck_assert_int_eq(ask_int(monitor, statement), 4);
    if (schema)
        snprintf(statement, sizeof statement, "DROP SCHEMA %s CASCADE", place);
    if (schema)
        sql(monitor, statement);
    PQfreemem(name);
    PQfreemem(place);
}

START_TEST(any_name_may_be_a_tables)
{
    change_in(NULL, "Mixed Case");
    change_in(NULL, "select");
    change_in(NULL, "we\"ird; DROP TABLE stock --");
    change_in(NULL, "caf\xc3\xa9.t");
    change_in(NULL, "exactly_sixty_three_bytes_long_name_of_a_table_________________");
}
END_TEST

START_TEST(a_schema_is_quoted_apart_from_its_table)
{
    change_in("pqtx Other.Schema", "user");
    start_row("5"); /* the one in search_path is another */
    sql(monitor, "CREATE SCHEMA pqtx_elsewhere; CREATE TABLE pqtx_elsewhere.stock AS"
                 " SELECT 'kz' AS key, 100 AS v");
    struct try try = {.change = take_one(), .count = 2, .values = kz_and_one()};
    try.change.schema = "pqtx_elsewhere";
    run_try(&try, PQTX_OK);
    ck_assert_str_eq(try.row[1], "99");
    assert_final("5");
    sql(monitor, "DROP SCHEMA pqtx_elsewhere CASCADE");
}
END_TEST

START_TEST(a_name_that_the_server_would_cut_is_misuse)
{
    struct try try = {.change = take_one(), .count = 2, .values = kz_and_one()};
    try.change.table = "a_name_of_65_bytes_______________________________________________";
    run_try(&try, PQTX_MISUSE);
    try.change.table = "a_name_of_64_bytes______________________________________________";
    run_try(&try, PQTX_MISUSE);
    try.change.schema = try.change.table;
    try.change.table = "stock";
    run_try(&try, PQTX_MISUSE);
}
END_TEST

START_TEST(a_name_in_a_broken_encoding_is_misuse)
{
    struct try try = {.change = take_one(), .count = 2, .values = kz_and_one()};
    try.change.table = "stock\xc3";
    run_try(&try, PQTX_MISUSE);
}
END_TEST

START_TEST(a_change_that_lacks_a_part_is_misuse)
{
    for (int part = 0; part < 6; part++) {
        struct try try = {.change = take_one(), .count = 2, .values = kz_and_one()};
        const char **parts[] = {&try.change.table, &try.change.key, &try.change.condition,
                                &try.change.set};
        start_row("5");
        if (part < 4)
            *parts[part] = NULL;
        else if (part == 4)
            try.change.size = 0;
        else
            try.values = NULL;
        run_try(&try, PQTX_MISUSE);
        assert_final("5");
    }
}
END_TEST

START_TEST(a_decoy_in_the_search_path_changes_nothing)
{
    struct try try = {.change = take_one(), .count = 2, .values = kz_and_one()};
    sql(monitor, "DROP SCHEMA IF EXISTS pqtx_decoys CASCADE; CREATE SCHEMA pqtx_decoys;"
                 "CREATE DOMAIN pqtx_decoys.text AS pg_catalog.int4 CHECK (false);"
                 "CREATE TABLE pqtx_decoys.stock AS SELECT 'kz' AS key, 50 AS v");
    start_row("5");
    sql(own, "SET search_path = pqtx_decoys, pg_catalog, pqtx_update");
    try.change.schema = "pqtx_update";
    run_try(&try, PQTX_OK);
    ck_assert_str_eq(try.row[1], "4");
    ck_assert_int_eq(ask_int(monitor, "SELECT v FROM pqtx_decoys.stock"), 50);
    sql(monitor, "DROP SCHEMA pqtx_decoys CASCADE");
}
END_TEST

START_TEST(parts_that_end_in_a_comment_are_harmless)
{
    struct try try = {.change = take_one(), .count = 2, .values = kz_and_one()};
    start_row("1");
    try.change.key = "key = $1 -- the key";
    try.change.condition = "v >= $2 -- enough";
    try.change.set = "v = v - $2 -- less";
    try.change.returning = "key, v -- both";
    run_try(&try, PQTX_OK);
    ck_assert_str_eq(try.row[1], "0");
    run_try(&try, PQTX_CONDITION_FALSE);
    ck_assert_str_eq(try.row[1], "0");
}
END_TEST

START_TEST(alternatives_in_key_and_condition_stay_apart)
{
    struct try try = {.change = take_one(), .count = 2, .values = kz_and_one()};
    start_row("5");
    sql(monitor, "INSERT INTO stock VALUES ('bystander', 5)");
    try.change.key = "key = 'nobody' OR key = $1";
    try.change.condition = "false OR v >= $2";
    run_try(&try, PQTX_OK);
    ck_assert_int_eq(ask_int(monitor, "SELECT v FROM stock WHERE key = 'bystander'"), 5);
}
END_TEST

/* ---- values */

START_TEST(values_of_every_type_may_be_used_in_set_alone)
{
    static const unsigned char bytes[] = {0, 1, 0xff};
    const pqtx_value values[] = {PQTX_INT(1),
                                 PQTX_INT(-5),
                                 PQTX_REAL(0.5),
                                 PQTX_BOOL(1),
                                 PQTX_TEXT("it's"),
                                 PQTX_BYTES(bytes, 3),
                                 PQTX_TEXT("{\"a\": 1}"),
                                 PQTX_NULL,
                                 PQTX_TEXT("2024-02-29 12:00+00")};
    struct try try = {.change = take_one(), .count = 9, .values = values};
    sql(monitor, "CREATE TABLE wide (id int PRIMARY KEY, i smallint, r numeric, b bool, t text,"
                 " y bytea, j jsonb, n uuid, d timestamptz); INSERT INTO wide VALUES (1)");
    sql(own, "SET TimeZone = 'UTC'");
    try.change.table = "wide";
    try.change.key = "id = $1";
    try.change.condition = "i IS NULL";
    try.change.set = "i = $2, r = $3, b = $4, t = $5, y = $6, j = $7, n = $8, d = $9";
    try.change.returning = "i, r, b, t, y, j, n, d";
    run_try(&try, PQTX_OK);
    static const char *const expected[] = {
        "-5", "0.5", "t", "it's", "\\x0001ff", "{\"a\": 1}", "", "2024-02-29 12:00:00+00"};
    for (int i = 0; i < 8; i++)
        ck_assert_str_eq(try.row[i], expected[i]);
    run_try(&try, PQTX_CONDITION_FALSE);
    ck_assert_str_eq(try.row[0], "-5");
}
END_TEST

START_TEST(a_value_may_be_used_in_every_part_or_in_one)
{
    const pqtx_value values[] = {PQTX_TEXT("kz"), PQTX_INT(1), PQTX_TEXT("why")};
    struct try try = {.change = take_one(), .count = 3, .values = values};
    start_row("5");
    try.change.set = "v = v - $2, note = $3";
    run_try(&try, PQTX_OK);
    ck_assert_str_eq(try.row[2], "why");
    try.change.set = "v = v - $2";
    try.change.condition = "v >= $2 AND note = $3";
    run_try(&try, PQTX_OK);
    try.change.condition = "v >= $2";
    try.change.returning = "key, v, $3::text";
    run_try(&try, PQTX_OK);
    ck_assert_str_eq(try.row[2], "why");
}
END_TEST

START_TEST(the_key_gives_a_value_its_type_for_the_condition_too)
{
    struct try try = {.change = take_one(), .count = 2, .values = kz_and_one()};
    start_row("5");
    try.change.condition = "$1 IS NOT NULL AND v >= $2";
    run_try(&try, PQTX_OK);
    assert_final("4");
}
END_TEST

START_TEST(a_change_without_values_needs_none)
{
    struct try try = {.change = take_one()};
    start_row("5");
    try.change.key = "key = 'kz'";
    try.change.condition = "v >= 1";
    try.change.set = "v = v - 1";
    run_try(&try, PQTX_OK);
    assert_final("4");
}
END_TEST

/* ---- pqtx_update() and pqtx_update_one() */

struct counted {
    const char *statement;
    bool one;
    pqtx_status status;
    int64_t rows;
};

static pqtx_status count_rows(pqtx_tx *tx, void *arg)
{
    struct counted *c = arg;
    c->status = c->one ? pqtx_update_one(tx, c->statement, PQTX_NO_ARGS)
                       : pqtx_update(tx, c->statement, PQTX_NO_ARGS, &c->rows);
    return c->status;
}

static void assert_rows(const char *statement, int64_t rows)
{
    struct counted counted = {.statement = statement, .rows = -1};
    struct task task = {.conn = own, .work = count_rows, .arg = &counted};
    run_task(&task, PQTX_OK);
    ck_assert_int_eq(counted.rows, rows);
}

static void assert_one(const char *statement, pqtx_status expected)
{
    struct counted counted = {.statement = statement, .one = true};
    struct task task = {.conn = own, .work = count_rows, .arg = &counted};
    run_task(&task, expected);
    assert_status(counted.status, expected, &task.error);
}

START_TEST(update_counts_the_rows_of_every_kind_of_change)
{
    assert_rows("INSERT INTO stock SELECT i, i FROM generate_series(1, 5) AS i", 5);
    assert_rows("UPDATE stock SET v = v + 1", 5);
    assert_rows("UPDATE stock SET v = v + 1 WHERE v > 100", 0);
    assert_rows("WITH old AS (SELECT * FROM stock) UPDATE stock SET v = 0 FROM old"
                " WHERE stock.key = old.key AND old.key = '1'",
                1);
    assert_rows("INSERT INTO stock VALUES ('1', 1) ON CONFLICT DO NOTHING", 0);
    assert_rows("DELETE FROM stock", 5);
    if (PQserverVersion(own) >= 150000)
        assert_rows("MERGE INTO stock USING (VALUES ('a'), ('b')) AS n (key)"
                    " ON n.key = stock.key WHEN NOT MATCHED THEN INSERT VALUES (n.key, 1)",
                    2);
}
END_TEST

START_TEST(update_one_wants_exactly_one_row)
{
    sql(monitor, "INSERT INTO stock VALUES ('a', 1), ('b', 1)");
    assert_one("UPDATE stock SET v = 2 WHERE key = 'a'", PQTX_OK);
    assert_one("UPDATE stock SET v = 3 WHERE key = 'z'", PQTX_NO_MATCH);
    assert_one("UPDATE stock SET v = 3", PQTX_TOO_MANY);
    ck_assert_int_eq(ask_int(monitor, "SELECT sum(v) FROM stock"), 3);
    assert_one("DELETE FROM stock WHERE key = 'b' RETURNING key", PQTX_OK);
}
END_TEST

START_TEST(statements_without_a_row_count_are_misuse)
{
    static const char *const statements[] = {"CREATE TABLE made (id int)", "SET TimeZone = 'UTC'",
                                             "LOCK TABLE stock", "DO $$ BEGIN END $$"};
    for (size_t i = 0; i < sizeof statements / sizeof statements[0]; i++) {
        struct counted counted = {.statement = statements[i]};
        struct task task = {.conn = own, .work = count_rows, .arg = &counted};
        run_task(&task, PQTX_MISUSE);
        assert_one(statements[i], PQTX_MISUSE);
    }
    ck_assert_str_eq(ask(monitor, "SELECT to_regclass('made') IS NULL"), "t");
}
END_TEST

START_TEST(update_one_in_a_race_is_met_once)
{
    struct counted counted = {.statement = "UPDATE stock SET v = v - 1 WHERE key = 'kz' AND v >= 1",
                              .one = true};
    struct task task = {.conn = own, .options = &options, .work = count_rows, .arg = &counted};
    for (int level = PQTX_ISO_DEFAULT; level <= PQTX_ISO_SERIALIZABLE; level++) {
        options.isolation = (pqtx_isolation)level;
        start_row("1");
        sql(other, "BEGIN; UPDATE stock SET v = v - 1 WHERE key = 'kz' AND v >= 1");
        start_task(&task);
        wait_for_blocked(monitor, PQbackendPID(other));
        sql(other, "COMMIT");
        join_task(&task, PQTX_NO_MATCH);
        assert_final("0");
    }
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("live_update");
    TCase *c = tcase_create("update");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_set_timeout(c, 60);
    tcase_add_test(c, a_row_emptied_meanwhile_does_not_meet_the_condition);
    tcase_add_test(c, a_row_lessened_meanwhile_is_changed_from_its_newest_value);
    tcase_add_test(c, a_row_deleted_meanwhile_is_not_found);
    tcase_add_test(c, a_row_whose_key_was_changed_meanwhile_is_not_found);
    tcase_add_test(c, a_row_deleted_and_inserted_again_meanwhile_is_found);
    tcase_add_test(c, a_row_being_filled_is_judged_as_it_was);
    tcase_add_test(c, a_row_being_inserted_is_not_found);
    tcase_add_test(c, a_change_that_is_rolled_back_meanwhile_never_was);
    tcase_add_test(c, two_who_take_the_last_one_get_one_yes_and_one_no);
    tcase_add_test(c, a_condition_that_comes_true_in_between_is_tried_again);
    tcase_add_test(c, a_change_before_it_in_the_transaction_does_not_blur_the_verdict);
    tcase_add_test(c, a_row_that_never_stands_still_is_busy_after_five_tries);
    tcase_add_test(c, a_change_without_rivals_gives_the_new_row);
    tcase_add_test(c, returning_chooses_the_columns);
    tcase_add_test(c, a_condition_that_is_null_is_not_met);
    tcase_add_test(c, a_key_that_is_null_is_not_found);
    tcase_add_test(c, a_key_that_meets_two_rows_changes_none);
    tcase_add_test(c, a_change_of_the_key_itself_is_a_change);
    tcase_add_test(c, a_condition_that_would_fail_on_the_changed_row_does_not_undo_the_change);
    tcase_add_test(c, after_a_no_in_a_savepoint_the_body_goes_on);
    tcase_add_test(c, a_no_keeps_no_lock);
    tcase_add_test(c, any_name_may_be_a_tables);
    tcase_add_test(c, a_schema_is_quoted_apart_from_its_table);
    tcase_add_test(c, a_name_that_the_server_would_cut_is_misuse);
    tcase_add_test(c, a_name_in_a_broken_encoding_is_misuse);
    tcase_add_test(c, a_change_that_lacks_a_part_is_misuse);
    add_direct_test(c, a_decoy_in_the_search_path_changes_nothing, SESSION_STATE);
    tcase_add_test(c, parts_that_end_in_a_comment_are_harmless);
    tcase_add_test(c, alternatives_in_key_and_condition_stay_apart);
    tcase_add_test(c, values_of_every_type_may_be_used_in_set_alone);
    tcase_add_test(c, a_value_may_be_used_in_every_part_or_in_one);
    tcase_add_test(c, the_key_gives_a_value_its_type_for_the_condition_too);
    tcase_add_test(c, a_change_without_values_needs_none);
    tcase_add_test(c, update_counts_the_rows_of_every_kind_of_change);
    tcase_add_test(c, update_one_wants_exactly_one_row);
    tcase_add_test(c, statements_without_a_row_count_are_misuse);
    tcase_add_test(c, update_one_in_a_race_is_met_once);
    suite_add_tcase(s, c);
    return s;
}

int main(void)
{
    return run_suite(suite());
}
