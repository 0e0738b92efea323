/* check_live_rowlock.c: rows read under a lock, and what others may do to them meanwhile. */
#include "support.h"
#include "support_trips.h"
#include "support_tx.h"

#include <stdio.h>
#include <string.h>

static PGconn *other, *monitor, *own; /* a rival, one who asks, and the connection under trial */
static pqtx_options options;
static pqtx_tx *tx; /* the transaction on `own` */

static const char *const stock_key[] = {"id", NULL};
static const char *const stock_columns[] = {"v", NULL};
static pqtx_table stock;

static void set_up(void)
{
    fresh_schema("pqtx_rowlock");
    other = open_session();
    monitor = open_session();
    own = open_session();
    sql(monitor, "CREATE TABLE stock (id int PRIMARY KEY, v bigint, name text UNIQUE);"
                 "CREATE TABLE sale (stock int REFERENCES stock);"
                 "INSERT INTO stock SELECT i, 10 * i, 'n' || i FROM generate_series(1, 3) AS i");
    options = (pqtx_options)PQTX_OPTIONS;
    options.lock_timeout_ms = 50;
    options.retry_mask = PQTX_RETRY_NOTHING;
    stock = (pqtx_table)PQTX_TABLE;
    stock.name = "stock";
    stock.key = stock_key;
    stock.columns = stock_columns;
}

static void tear_down(void)
{
    PQfinish(other);
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

/* The numbers of one column, "1 3". */
static const char *numbers(const PGresult *result, int column)
{
    static char text[128];
    text[0] = '\0';
    for (int i = 0; i < PQntuples(result); i++) {
        size_t len = strlen(text);
        snprintf(text + len, sizeof text - len, "%s%s", i ? " " : "",
                 PQgetvalue(result, i, column));
    }
    return text;
}

static pqtx_status lock_all(pqtx_row_lock lock, pqtx_row_wait wait, const PGresult **rows)
{
    return pqtx_select_for(tx, "SELECT id FROM stock ORDER BY id", lock, wait, PQTX_NO_ARGS, rows);
}

static bool is_of_the_timeout(void)
{
    return strcmp(last_error().source_function, "ProcessInterrupts") == 0;
}

/* ---- which lock */

static const char *const clauses[] = {"FOR NO KEY UPDATE", "FOR UPDATE", "FOR SHARE",
                                      "FOR KEY SHARE"};

START_TEST(each_lock_shuts_out_what_it_is_named_for)
{
    /* by the holder's, whether the other's is refused */
    static const bool refused[4][4] = {{true, true, true, false},
                                       {true, true, true, true},
                                       {true, true, false, false},
                                       {false, true, false, false}};
    for (int held = 0; held < 4; held++) {
        begin();
        assert_call(lock_all((pqtx_row_lock)held, PQTX_WAIT, NULL), PQTX_OK);
        for (int wanted = 0; wanted < 4; wanted++) {
            char statement[96];
            snprintf(statement, sizeof statement, "SELECT FROM stock %s NOWAIT", clauses[wanted]);
            start_sql(other, statement);
            const char *state = finish_sql(other);
            ck_assert_msg(strcmp(state, refused[held][wanted] ? "55P03" : "") == 0,
                          "%s beside %s: %s", clauses[wanted], clauses[held], state);
        }
        assert_call(pqtx_commit(tx), PQTX_OK);
        finish();
    }
}
END_TEST

START_TEST(who_refers_to_the_row_waits_beside_for_update_alone)
{
    for (int held = 0; held < 4; held++) {
        begin();
        assert_call(lock_all((pqtx_row_lock)held, PQTX_WAIT, NULL), PQTX_OK);
        start_sql(other, "INSERT INTO sale VALUES (1)");
        if (held == PQTX_FOR_UPDATE)
            wait_until_blocked(monitor, PQbackendPID(other));
        else
            ck_assert_str_eq(finish_sql(other), "");
        assert_call(pqtx_commit(tx), PQTX_OK);
        if (held == PQTX_FOR_UPDATE)
            ck_assert_str_eq(finish_sql(other), "");
        finish();
    }
    ck_assert_int_eq(ask_int(monitor, "SELECT count(*) FROM sale"), 4);
}
END_TEST

static pqtx_status lock_then_undo(pqtx_tx *t, void *arg)
{
    (void)arg;
    pqtx_select_for(t, "SELECT FROM stock", PQTX_FOR_UPDATE, PQTX_WAIT, PQTX_NO_ARGS, NULL);
    return PQTX_USER;
}

START_TEST(an_undone_savepoint_takes_its_locks_with_it)
{
    begin();
    assert_call(pqtx_savepoint(tx, lock_then_undo, NULL), PQTX_USER);
    assert_call(pqtx_exec(tx, "SELECT 1", PQTX_NO_ARGS, NULL), PQTX_OK);
    sql(other, "SELECT FROM stock FOR UPDATE NOWAIT");
    finish();
}
END_TEST

START_TEST(two_who_share_and_then_write_wait_for_each_other)
{
    options.lock_timeout_ms = 20000;
    for (int held = PQTX_FOR_SHARE; held <= PQTX_FOR_KEY_SHARE; held++) {
        begin();
        assert_call(lock_all((pqtx_row_lock)held, PQTX_WAIT, NULL), PQTX_OK);
        sql(other, "BEGIN");
        sql(other, held == PQTX_FOR_SHARE ? "SELECT FROM stock FOR SHARE"
                                          : "SELECT FROM stock FOR KEY SHARE");
        start_sql(other, "UPDATE stock SET v = 0");
        if (held == PQTX_FOR_SHARE)
            wait_until_blocked(monitor, PQbackendPID(other));
        else
            ck_assert_str_eq(finish_sql(other), "");
        if (held == PQTX_FOR_KEY_SHARE)
            sql(other, "COMMIT");
        pqtx_status status = pqtx_update(tx, "UPDATE stock SET v = 1", PQTX_NO_ARGS, NULL);
        pqtx_commit(tx);
        finish();
        if (held == PQTX_FOR_SHARE) {
            bool other_lost = strcmp(finish_sql(other), "40P01") == 0;
            ck_assert_int_eq(status, other_lost ? PQTX_OK : PQTX_DEADLOCK);
            sql(other, "ROLLBACK");
        } else {
            ck_assert_int_eq(status, PQTX_OK);
        }
    }
}
END_TEST

/* ---- how long to wait */

START_TEST(nowait_is_busy_at_once)
{
    sql(other, "BEGIN; SELECT FROM stock WHERE id = 2 FOR UPDATE");
    options.lock_timeout_ms = 20000;
    begin();
    assert_call(lock_all(PQTX_FOR_SHARE, PQTX_NOWAIT, NULL), PQTX_BUSY);
    ck_assert(!is_of_the_timeout());
    assert_call(pqtx_commit(tx), PQTX_BUSY);
    finish();
    begin();
    assert_call(
        pqtx_row_read(tx, &stock, PQTX_FOR_UPDATE, PQTX_NOWAIT, PQTX_ARGS(PQTX_INT(2)), NULL),
        PQTX_BUSY);
    ck_assert(!is_of_the_timeout());
    finish();
}
END_TEST

static pqtx_status lock_nowait(pqtx_tx *t, void *arg)
{
    (void)arg;
    return pqtx_select_for(t, "SELECT FROM stock", PQTX_FOR_UPDATE, PQTX_NOWAIT, PQTX_NO_ARGS,
                           NULL);
}

START_TEST(nowait_begins_again_as_any_busy_does)
{
    struct task task = {.conn = own, .options = &options, .work = lock_nowait};
    sql(other, "BEGIN; SELECT FROM stock FOR UPDATE");
    options.retry_mask = 0;
    options.max_attempts = 3;
    run_task(&task, PQTX_BUSY);
    ck_assert_uint_eq(task.error.attempt, 3);
    ck_assert(task.error.flags & PQTX_ERROR_ATTEMPTS);
}
END_TEST

START_TEST(waiting_ends_busy_by_the_lock_timeout)
{
    sql(other, "BEGIN; SELECT FROM stock WHERE id = 2 FOR UPDATE");
    begin();
    assert_call(lock_all(PQTX_FOR_NO_KEY_UPDATE, PQTX_WAIT, NULL), PQTX_BUSY);
    ck_assert(is_of_the_timeout());
    finish();
}
END_TEST

START_TEST(skip_locked_passes_over_the_rows_of_others)
{
    const PGresult *rows;
    sql(other, "BEGIN; SELECT FROM stock WHERE id = 2 FOR UPDATE");
    begin();
    assert_call(lock_all(PQTX_FOR_UPDATE, PQTX_SKIP_LOCKED, &rows), PQTX_OK);
    ck_assert_str_eq(numbers(rows, 0), "1 3");
    finish();
}
END_TEST

/* Neither NOWAIT nor SKIP LOCKED is about the table. */
START_TEST(whatever_the_wait_a_locked_table_is_waited_for_within_lock_timeout)
{
    sql(other, "BEGIN; LOCK TABLE stock IN ACCESS EXCLUSIVE MODE");
    for (int wait = PQTX_WAIT; wait <= PQTX_SKIP_LOCKED; wait++) {
        begin();
        assert_call(lock_all(PQTX_FOR_UPDATE, (pqtx_row_wait)wait, NULL), PQTX_BUSY);
        ck_assert(is_of_the_timeout());
        finish();
        begin();
        assert_call(pqtx_row_read(tx, &stock, PQTX_FOR_UPDATE, (pqtx_row_wait)wait,
                                  PQTX_ARGS(PQTX_INT(1)), NULL),
                    PQTX_BUSY);
        ck_assert(is_of_the_timeout());
        assert_call(pqtx_commit(tx), PQTX_BUSY);
        finish();
    }
}
END_TEST

START_TEST(a_reading_transaction_cannot_lock)
{
    options.access = PQTX_ACCESS_READ_ONLY;
    begin();
    assert_call(lock_all(PQTX_FOR_SHARE, PQTX_WAIT, NULL), PQTX_READ_ONLY);
    finish();
}
END_TEST

/* ---- after a wait */

struct read {
    const char *statement;
    uint32_t attempts;
    char rows[64];
};

static pqtx_status read_rows(pqtx_tx *t, void *arg)
{
    struct read *read = arg;
    const PGresult *rows;
    pqtx_status status =
        pqtx_select_for(t, read->statement, PQTX_FOR_NO_KEY_UPDATE, PQTX_WAIT, PQTX_NO_ARGS, &rows);
    read->attempts = pqtx_attempts(t);
    if (status == PQTX_OK)
        snprintf(read->rows, sizeof read->rows, "%s", numbers(rows, 0));
    return status;
}

/* The other session changes something and commits when we wait for it. */
static struct read read_after(const char *change, const char *statement)
{
    struct read read = {.statement = statement};
    struct task task = {.conn = own, .options = &options, .work = read_rows, .arg = &read};
    options.lock_timeout_ms = 20000;
    options.retry_mask = 0;
    sql(other, "BEGIN");
    sql(other, change);
    start_task(&task);
    wait_until_blocked(monitor, PQbackendPID(own));
    sql(other, "COMMIT");
    join_task(&task, PQTX_OK);
    return read;
}

START_TEST(after_a_wait_the_newest_row_is_read)
{
    for (int level = PQTX_ISO_DEFAULT; level <= PQTX_ISO_SERIALIZABLE; level++) {
        options.isolation = (pqtx_isolation)level;
        struct read read = read_after("UPDATE stock SET v = v + 1 WHERE id = 1",
                                      "SELECT v FROM stock WHERE id = 1");
        ck_assert_uint_eq(read.attempts, level > PQTX_ISO_READ_COMMITTED ? 2 : 1);
        ck_assert_str_eq(read.rows, ask(monitor, "SELECT v FROM stock WHERE id = 1"));
    }
}
END_TEST

START_TEST(after_a_wait_a_row_that_no_longer_meets_the_condition_is_left_out)
{
    struct read read =
        read_after("UPDATE stock SET v = 0 WHERE id = 2", "SELECT id FROM stock WHERE v > 0");
    ck_assert_str_eq(read.rows, "1 3");
}
END_TEST

START_TEST(after_a_wait_order_limit_and_new_rows_are_those_of_before)
{
    struct read read =
        read_after("UPDATE stock SET v = 99 WHERE id = 1", "SELECT v FROM stock ORDER BY v");
    ck_assert_str_eq(read.rows, "99 20 30");
    read = read_after("UPDATE stock SET v = 40 WHERE id = 2",
                      "SELECT id FROM stock ORDER BY v LIMIT 1");
    ck_assert_str_eq(read.rows, "2"); /* though 3 has the least by now */
    read = read_after("UPDATE stock SET v = CASE id WHEN 1 THEN 0 ELSE 99 END WHERE id <= 2",
                      "SELECT id FROM stock WHERE v = 99");
    ck_assert_str_eq(read.rows, ""); /* though 2 meets it by now */
}
END_TEST

START_TEST(a_row_that_moves_to_another_partition_begins_again_at_any_level)
{
    sql(monitor, "CREATE TABLE parted (id int, part int) PARTITION BY LIST (part);"
                 "CREATE TABLE one PARTITION OF parted FOR VALUES IN (1);"
                 "CREATE TABLE two PARTITION OF parted FOR VALUES IN (2);"
                 "INSERT INTO parted VALUES (1, 1)");
    struct read read =
        read_after("UPDATE parted SET part = 2", "SELECT part FROM parted WHERE id = 1");
    ck_assert_uint_eq(read.attempts, 2);
    ck_assert_str_eq(read.rows, "2");
}
END_TEST

/* ---- which statements */

START_TEST(what_cannot_carry_the_clause_is_refused)
{
    static const char *const statements[] = {"SELECT id FROM stock FOR UPDATE",
                                             "SELECT id FROM stock for share of stock",
                                             "SELECT id FROM stock FOR/**/KEY SHARE LIMIT 1",
                                             "SELECT id AS for FROM stock FOR NO KEY UPDATE",
                                             "SELECT id FROM stock FOR READ ONLY",
                                             "WITH s AS (SELECT * FROM stock) SELECT * FROM s",
                                             "(SELECT id FROM stock)",
                                             "UPDATE stock SET v = 0 RETURNING id",
                                             "DELETE FROM stock",
                                             "EXPLAIN SELECT id FROM stock",
                                             "COMMIT",
                                             "SELECT 1",
                                             "SELECT (SELECT 1 FROM stock LIMIT 1)",
                                             "",
                                             NULL};
    for (size_t i = 0; i < sizeof statements / sizeof statements[0]; i++) {
        begin();
        assert_call(
            pqtx_select_for(tx, statements[i], PQTX_FOR_UPDATE, PQTX_WAIT, PQTX_NO_ARGS, NULL),
            PQTX_MISUSE);
        ck_assert_int_eq(last_error().origin, PQTX_ORIGIN_LIBRARY);
        assert_call(pqtx_commit(tx), PQTX_MISUSE);
        finish();
    }
    ck_assert_int_eq(ask_int(monitor, "SELECT count(*) FROM stock WHERE v > 0"), 3);
}
END_TEST

START_TEST(what_can_carry_the_clause_is_taken)
{
    static const char *const statements[] = {
        "SELECT id FROM stock ORDER BY id",
        "SELECT id FROM stock ORDER BY id;",
        "  ; SELECT id FROM stock ORDER BY id ; -- FOR UPDATE",
        "SELECT id FROM stock ORDER BY id -- the end",
        "/* FOR UPDATE */ SELECT id FROM stock ORDER BY id /* ; */",
        "SELECT id AS for FROM stock ORDER BY id",
        "SELECT id, substring(name FROM 1 FOR 1), ' FOR UPDATE' FROM stock ORDER BY id",
        "SELECT id, $$ FOR UPDATE $$ AS \"FOR UPDATE\" FROM stock ORDER BY id",
        "select id from (select * from stock for share) as stock order by id limit 3",
        "TABLE stock ORDER BY id"};
    for (size_t i = 0; i < sizeof statements / sizeof statements[0]; i++) {
        const PGresult *rows;
        begin();
        assert_call(
            pqtx_select_for(tx, statements[i], PQTX_FOR_UPDATE, PQTX_WAIT, PQTX_NO_ARGS, &rows),
            PQTX_OK);
        ck_assert_str_eq(numbers(rows, 0), "1 2 3");
        start_sql(other, "SELECT FROM stock FOR KEY SHARE NOWAIT");
        ck_assert_str_eq(finish_sql(other), "55P03");
        finish();
    }
}
END_TEST

START_TEST(what_the_server_cannot_lock_it_says)
{
    static const char *const statements[] = {"SELECT DISTINCT v FROM stock",
                                             "SELECT count(*) FROM stock",
                                             "SELECT v FROM stock GROUP BY v",
                                             "SELECT v FROM stock UNION SELECT v FROM stock",
                                             "VALUES (1)",
                                             "SELECT * FROM sale LEFT JOIN stock ON id = stock"};
    for (size_t i = 0; i < sizeof statements / sizeof statements[0]; i++) {
        begin();
        assert_call(pqtx_select_for(tx, statements[i], PQTX_FOR_NO_KEY_UPDATE, PQTX_WAIT,
                                    PQTX_NO_ARGS, NULL),
                    PQTX_BAD_STATEMENT);
        ck_assert_ptr_nonnull(strstr(last_error().message, "FOR NO KEY UPDATE"));
        finish();
    }
}
END_TEST

START_TEST(a_second_statement_behind_it_is_refused_by_the_server)
{
    begin();
    assert_call(pqtx_select_for(tx, "SELECT id FROM stock; DELETE FROM stock", PQTX_FOR_UPDATE,
                                PQTX_WAIT, PQTX_NO_ARGS, NULL),
                PQTX_BAD_STATEMENT);
    finish();
    ck_assert_int_eq(ask_int(monitor, "SELECT count(*) FROM stock"), 3);
}
END_TEST

START_TEST(a_lock_or_a_wait_that_does_not_exist_is_misuse)
{
    for (int i = 0; i < 4; i++) {
        pqtx_row_lock lock = (pqtx_row_lock)(i == 0 ? 4 : i == 1 ? -1 : 0);
        pqtx_row_wait wait = (pqtx_row_wait)(i == 2 ? 3 : i == 3 ? -1 : 0);
        begin();
        assert_call(lock_all(lock, wait, NULL), PQTX_MISUSE);
        finish();
        begin();
        assert_call(pqtx_row_read(tx, &stock, lock, wait, PQTX_ARGS(PQTX_INT(1)), NULL),
                    PQTX_MISUSE);
        finish();
    }
    ck_assert_int_eq(
        pqtx_select_for(NULL, "TABLE stock", PQTX_FOR_UPDATE, PQTX_WAIT, PQTX_NO_ARGS, NULL),
        PQTX_MISUSE);
    ck_assert_int_eq(pqtx_row_read(NULL, &stock, PQTX_FOR_UPDATE, PQTX_WAIT, PQTX_NO_ARGS, NULL),
                     PQTX_MISUSE);
    ck_assert_int_eq(pqtx_row_write(NULL, &stock, PQTX_NO_ARGS), PQTX_MISUSE);
}
END_TEST

START_TEST(select_one_for_wants_exactly_one_row)
{
    static const pqtx_status expected[] = {PQTX_NO_MATCH, PQTX_OK, PQTX_TOO_MANY};
    for (int pipelined = 0; pipelined < 2; pipelined++) {
        options.flags = pipelined ? PQTX_PIPELINE : 0;
        for (int rows = 0; rows < 3; rows++) {
            const PGresult *result;
            begin();
            pqtx_status status =
                pqtx_select_one_for(tx, "SELECT id FROM stock WHERE id <= $1 ORDER BY id;",
                                    PQTX_FOR_UPDATE, PQTX_WAIT, PQTX_ARGS(PQTX_INT(rows)), &result);
            assert_call(status, pipelined ? PQTX_OK : expected[rows]);
            assert_call(pqtx_commit(tx), expected[rows]);
            ck_assert_int_eq(last_error().call, pipelined && rows != 1 ? 1 : 0);
            ck_assert_int_eq(result != NULL, rows == 1);
            if (result)
                ck_assert_str_eq(numbers(result, 0), "1");
            finish();
        }
    }
}
END_TEST

START_TEST(in_pipeline_mode_the_rows_come_with_the_flight_and_stay_locked)
{
    const PGresult *rows, *one;
    options.flags = PQTX_PIPELINE;
    begin();
    assert_call(lock_all(PQTX_FOR_UPDATE, PQTX_SKIP_LOCKED, &rows), PQTX_OK);
    assert_call(pqtx_select_one_for(tx, "SELECT v FROM stock WHERE id = $1", PQTX_FOR_UPDATE,
                                    PQTX_NOWAIT, PQTX_ARGS(PQTX_INT(2)), &one),
                PQTX_OK);
    ck_assert_ptr_null(rows);
    assert_call(pqtx_flush(tx), PQTX_OK);
    ck_assert_str_eq(numbers(rows, 0), "1 2 3");
    ck_assert_str_eq(numbers(one, 0), "20");
    start_sql(other, "SELECT FROM stock FOR KEY SHARE NOWAIT");
    ck_assert_str_eq(finish_sql(other), "55P03");
    assert_call(pqtx_commit(tx), PQTX_OK);
    finish();
}
END_TEST

/* ---- read, decide, write */

static pqtx_status take_one(pqtx_tx *t, void *arg)
{
    const PGresult *row;
    int64_t left;
    (void)arg;
    pqtx_status status =
        pqtx_row_read(t, &stock, PQTX_FOR_NO_KEY_UPDATE, PQTX_WAIT, PQTX_ARGS(PQTX_INT(1)), &row);
    if (status == PQTX_OK)
        status = pqtx_get_int(row, 0, 1, &left);
    if (status != PQTX_OK)
        return status;
    if (left == 0)
        return PQTX_EXHAUSTED;
    return pqtx_row_write(t, &stock, PQTX_ARGS(PQTX_INT(1), PQTX_INT(left - 1)));
}

enum { THREADS = 4, ROUNDS = 30 };

START_TEST(many_who_read_decide_and_write_take_exactly_what_is_there)
{
    for (int pipelined = 0; pipelined < 2; pipelined++) {
        struct task tasks[THREADS];
        int taken = 0;
        pqtx_pool *pool = open_pool(THREADS);
        options = (pqtx_options)PQTX_OPTIONS;
        options.flags = pipelined ? PQTX_PIPELINE : 0;
        sql(monitor, "UPDATE stock SET v = 100 WHERE id = 1");
        for (int round = 0; round < ROUNDS; round++) {
            for (int i = 0; i < THREADS; i++) {
                tasks[i] = (struct task){.pool = pool, .options = &options, .work = take_one};
                start_task(&tasks[i]);
            }
            for (int i = 0; i < THREADS; i++) {
                pthread_join(tasks[i].thread, NULL);
                assert_status(tasks[i].status,
                              tasks[i].status == PQTX_OK ? PQTX_OK : PQTX_EXHAUSTED,
                              &tasks[i].error);
                taken += tasks[i].status == PQTX_OK;
            }
        }
        ck_assert_int_eq(taken, 100);
        ck_assert_int_eq(ask_int(monitor, "SELECT v FROM stock WHERE id = 1"), 0);
        pqtx_pool_close(pool);
    }
}
END_TEST

START_TEST(in_pipeline_mode_it_takes_two_round_trips_else_three)
{
    struct trips trips;
    for (int pipelined = 0; pipelined < 2; pipelined++) {
        struct task task = {.conn = own, .options = &options, .work = take_one};
        options.flags = pipelined ? PQTX_PIPELINE : 0;
        trips_start(&trips, own);
        run_task(&task, PQTX_OK);
        ck_assert_int_eq(trips_stop(&trips), pipelined ? 2 : 3);
    }
    ck_assert_int_eq(ask_int(monitor, "SELECT v FROM stock WHERE id = 1"), 8);
}
END_TEST

START_TEST(reading_lands_what_was_queued_before_it)
{
    const PGresult *row;
    int64_t rows = -1;
    options.flags = PQTX_PIPELINE;
    begin();
    assert_call(pqtx_update(tx, "UPDATE stock SET v = v + 1", PQTX_NO_ARGS, &rows), PQTX_OK);
    assert_call(pqtx_row_read(tx, &stock, PQTX_FOR_UPDATE, PQTX_WAIT, PQTX_ARGS(PQTX_INT(3)), &row),
                PQTX_OK);
    ck_assert_int_eq(rows, 3);
    ck_assert_str_eq(numbers(row, 1), "31");
    assert_call(pqtx_commit(tx), PQTX_OK);
    finish();
}
END_TEST

struct found {
    pqtx_row_wait wait;
    uint32_t attempts;
    char v[24];
};

static pqtx_status find(pqtx_tx *t, void *arg)
{
    struct found *found = arg;
    const PGresult *row;
    pqtx_status status =
        pqtx_row_read(t, &stock, PQTX_FOR_NO_KEY_UPDATE, found->wait, PQTX_ARGS(PQTX_INT(1)), &row);
    found->attempts = pqtx_attempts(t);
    snprintf(found->v, sizeof found->v, "%s", row ? PQgetvalue(row, 0, 1) : "");
    return status;
}

START_TEST(a_row_is_found_or_not_as_it_is_after_the_wait)
{
    static const struct {
        const char *change;
        pqtx_status expected;
        const char *v;
    } cases[] = {
        {"UPDATE stock SET v = 7 WHERE id = 1", PQTX_OK, "7"},
        {"DELETE FROM stock WHERE id = 1", PQTX_NOT_FOUND, ""},
        {"UPDATE stock SET id = 11 WHERE id = 1", PQTX_NOT_FOUND, ""},
        {"DELETE FROM stock WHERE id = 1; INSERT INTO stock VALUES (1, 8)", PQTX_OK, "8"},
    };
    options.lock_timeout_ms = 20000;
    options.retry_mask = 0;
    for (int level = PQTX_ISO_DEFAULT; level <= PQTX_ISO_SERIALIZABLE; level++) {
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
            struct found found = {.wait = PQTX_WAIT};
            struct task task = {.conn = own, .options = &options, .work = find, .arg = &found};
            options.isolation = (pqtx_isolation)level;
            sql(monitor, "TRUNCATE stock, sale; INSERT INTO stock VALUES (1, 10)");
            sql(other, "BEGIN");
            sql(other, cases[i].change);
            start_task(&task);
            wait_until_blocked(monitor, PQbackendPID(own));
            sql(other, "COMMIT");
            join_task(&task, cases[i].expected);
            ck_assert_str_eq(found.v, cases[i].v);
            ck_assert_uint_eq(found.attempts, level > PQTX_ISO_READ_COMMITTED ? 2 : 1);
        }
    }
}
END_TEST

START_TEST(with_skip_locked_that_another_has_it_is_an_answer)
{
    sql(other, "BEGIN; SELECT FROM stock WHERE id = 1 FOR KEY SHARE");
    for (int pipelined = 0; pipelined < 2; pipelined++) {
        options.flags = pipelined ? PQTX_PIPELINE : 0;
        begin();
        assert_call(pqtx_row_read(tx, &stock, PQTX_FOR_UPDATE, PQTX_SKIP_LOCKED,
                                  PQTX_ARGS(PQTX_INT(1)), NULL),
                    PQTX_BUSY);
        assert_call(pqtx_row_read(tx, &stock, PQTX_FOR_UPDATE, PQTX_SKIP_LOCKED,
                                  PQTX_ARGS(PQTX_INT(2)), NULL),
                    PQTX_OK);
        assert_call(pqtx_row_write(tx, &stock, PQTX_ARGS(PQTX_INT(2), PQTX_INT(0))), PQTX_OK);
        assert_call(pqtx_commit(tx), PQTX_OK);
        finish();
    }
    begin();
    assert_call(
        pqtx_row_read(tx, &stock, PQTX_FOR_UPDATE, PQTX_SKIP_LOCKED, PQTX_ARGS(PQTX_INT(99)), NULL),
        PQTX_NOT_FOUND);
    assert_call(pqtx_commit(tx), PQTX_NOT_FOUND);
    finish();
    ck_assert_int_eq(ask_int(monitor, "SELECT v FROM stock WHERE id = 2"), 0);
}
END_TEST

/* A view that hides the row every other time it is asked. */
START_TEST(a_row_that_comes_and_goes_is_busy_after_five_tries)
{
    sql(monitor, "CREATE SEQUENCE asked; CREATE VIEW blinking AS SELECT * FROM stock"
                 " WHERE id = 1 AND nextval('asked') % 2 = 0");
    stock.name = "blinking";
    begin();
    assert_call(pqtx_row_read(tx, &stock, PQTX_FOR_UPDATE, PQTX_WAIT, PQTX_ARGS(PQTX_INT(1)), NULL),
                PQTX_BUSY);
    assert_call(pqtx_commit(tx), PQTX_BUSY);
    finish();
    ck_assert_int_eq(ask_int(monitor, "SELECT last_value FROM asked"), 10);
}
END_TEST

START_TEST(a_row_that_is_not_there_is_not_written)
{
    for (int pipelined = 0; pipelined < 2; pipelined++) {
        options.flags = pipelined ? PQTX_PIPELINE : 0;
        begin();
        assert_call(pqtx_row_write(tx, &stock, PQTX_ARGS(PQTX_INT(99), PQTX_INT(0))),
                    pipelined ? PQTX_OK : PQTX_NOT_FOUND);
        assert_call(pqtx_commit(tx), PQTX_NOT_FOUND);
        finish();
    }
}
END_TEST

START_TEST(a_key_that_meets_two_rows_is_neither_read_nor_written)
{
    static const char *const loose[] = {"v", NULL}, *const id[] = {"id", NULL};
    sql(monitor, "UPDATE stock SET v = 20");
    stock.key = loose;
    stock.columns = id;
    for (int pipelined = 0; pipelined < 2; pipelined++) {
        options.flags = pipelined ? PQTX_PIPELINE : 0;
        begin();
        assert_call(
            pqtx_row_read(tx, &stock, PQTX_FOR_UPDATE, PQTX_WAIT, PQTX_ARGS(PQTX_INT(20)), NULL),
            PQTX_TOO_MANY);
        finish();
        begin();
        pqtx_row_write(tx, &stock, PQTX_ARGS(PQTX_INT(20), PQTX_INT(5)));
        assert_call(pqtx_commit(tx), pipelined ? PQTX_DUPLICATE : PQTX_DUPLICATE);
        finish();
    }
    sql(monitor, "ALTER TABLE sale DROP CONSTRAINT sale_stock_fkey;"
                 "ALTER TABLE stock DROP CONSTRAINT stock_pkey");
    for (int pipelined = 0; pipelined < 2; pipelined++) {
        options.flags = pipelined ? PQTX_PIPELINE : 0;
        begin();
        pqtx_row_write(tx, &stock, PQTX_ARGS(PQTX_INT(20), PQTX_INT(5)));
        assert_call(pqtx_commit(tx), PQTX_TOO_MANY);
        finish();
    }
    ck_assert_int_eq(ask_int(monitor, "SELECT count(*) FROM stock WHERE id = 5"), 0);
}
END_TEST

/* ---- the description */

static void read_and_write(const pqtx_table *table, int count, const pqtx_value *values,
                           const char *expected)
{
    const PGresult *row;
    char text[64];
    begin();
    assert_call(pqtx_row_read(tx, table, PQTX_FOR_UPDATE, PQTX_WAIT, count - 1, values, &row),
                PQTX_OK);
    snprintf(text, sizeof text, "%s", PQgetvalue(row, 0, count - 1));
    assert_call(pqtx_row_write(tx, table, count, values), PQTX_OK);
    assert_call(pqtx_row_read(tx, table, PQTX_FOR_UPDATE, PQTX_WAIT, count - 1, values, &row),
                PQTX_OK);
    ck_assert_str_eq(text, "before");
    ck_assert_str_eq(PQgetvalue(row, 0, count - 1), expected);
    assert_call(pqtx_commit(tx), PQTX_OK);
    finish();
}

START_TEST(a_key_may_be_of_any_type)
{
    static const struct {
        const char *type, *value;
    } keys[] = {{"int", "-7"},
                {"smallint", "7"},
                {"bigint", "9223372036854775807"},
                {"numeric(20, 2)", "7.25"},
                {"text", "it's \"so\""},
                {"varchar(8)", "short"},
                {"char(8)", "short"},
                {"uuid", "5d2f0f5e-0000-4000-8000-0123456789ab"},
                {"timestamptz", "2024-02-29 12:00+00"},
                {"date", "2024-02-29"},
                {"mood", "sad"},
                {"few", "12"},
                {"boolean", "t"},
                {"inet", "10.0.0.1"},
                {"int4range", "[1,5)"},
                {"text[]", "{a,b}"}};
    static const char *const key[] = {"k", NULL}, *const columns[] = {"c", NULL};
    pqtx_table table = PQTX_TABLE;
    table.name = "typed";
    table.key = key;
    table.columns = columns;
    sql(monitor, "CREATE TYPE mood AS ENUM ('sad', 'glad'); CREATE DOMAIN few AS int CHECK (VALUE "
                 "< 100)");
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        char statement[256],
            *literal = PQescapeLiteral(monitor, keys[i].value, strlen(keys[i].value));
        snprintf(statement, sizeof statement,
                 "DROP TABLE IF EXISTS typed; CREATE TABLE typed (k %s PRIMARY KEY, c text);"
                 "INSERT INTO typed VALUES (%s, 'before')",
                 keys[i].type, literal);
        sql(monitor, statement);
        PQfreemem(literal);
        read_and_write(&table, PQTX_ARGS(PQTX_TEXT(keys[i].value), PQTX_TEXT("after")), "after");
    }
}
END_TEST

START_TEST(a_key_may_have_several_columns_and_any_name_is_taken_as_written)
{
    static const char *const key[] = {"Order", "we\"ird; --", "caf\xc3\xa9", NULL};
    static const char *const columns[] = {"select", NULL};
    pqtx_table table = PQTX_TABLE;
    table.schema = "pqtx Odd.Schema";
    table.name = "user";
    table.key = key;
    table.columns = columns;
    sql(monitor, "DROP SCHEMA IF EXISTS \"pqtx Odd.Schema\" CASCADE;"
                 "CREATE SCHEMA \"pqtx Odd.Schema\";"
                 "CREATE TABLE \"pqtx Odd.Schema\".\"user\" (\"Order\" int, \"we\"\"ird; --\" text,"
                 " caf\xc3\xa9 uuid, \"select\" text);"
                 "INSERT INTO \"pqtx Odd.Schema\".\"user\" VALUES"
                 " (1, 'a', '5d2f0f5e-0000-4000-8000-0123456789ab', 'before'),"
                 " (1, 'b', '5d2f0f5e-0000-4000-8000-0123456789ab', 'before'),"
                 " (2, 'a', '5d2f0f5e-0000-4000-8000-0123456789ab', 'before')");
    read_and_write(&table,
                   PQTX_ARGS(PQTX_INT(1), PQTX_TEXT("a"),
                             PQTX_TEXT("5d2f0f5e-0000-4000-8000-0123456789ab"), PQTX_TEXT("after")),
                   "after");
    ck_assert_int_eq(
        ask_int(monitor,
                "SELECT count(*) FROM \"pqtx Odd.Schema\".\"user\" WHERE \"select\" = 'before'"),
        2);
    sql(monitor, "DROP SCHEMA \"pqtx Odd.Schema\" CASCADE");
}
END_TEST

START_TEST(returning_chooses_the_columns)
{
    static const char *const returning[] = {"name", "id", NULL};
    const PGresult *row;
    stock.returning = returning;
    begin();
    assert_call(pqtx_row_read(tx, &stock, PQTX_FOR_SHARE, PQTX_WAIT, PQTX_ARGS(PQTX_INT(2)), &row),
                PQTX_OK);
    ck_assert_int_eq(PQnfields(row), 2);
    ck_assert_str_eq(PQgetvalue(row, 0, 0), "n2");
    ck_assert_str_eq(PQgetvalue(row, 0, 1), "2");
    finish();
}
END_TEST

START_TEST(a_type_may_have_an_equality_of_its_own)
{
    static const char *const key[] = {"name", NULL};
    const PGresult *row;
    sql(monitor, "CREATE FUNCTION same(text, text) RETURNS bool LANGUAGE sql AS"
                 " 'SELECT lower($1) = lower($2)';"
                 "CREATE OPERATOR =~ (LEFTARG = text, RIGHTARG = text, FUNCTION = same)");
    stock.key = key;
    begin();
    assert_call(
        pqtx_row_read(tx, &stock, PQTX_FOR_SHARE, PQTX_WAIT, PQTX_ARGS(PQTX_TEXT("N2")), NULL),
        PQTX_NOT_FOUND);
    finish();
    stock.equal = "OPERATOR(pqtx_rowlock.=~)";
    begin();
    assert_call(
        pqtx_row_read(tx, &stock, PQTX_FOR_SHARE, PQTX_WAIT, PQTX_ARGS(PQTX_TEXT("N2")), &row),
        PQTX_OK);
    ck_assert_str_eq(PQgetvalue(row, 0, 1), "20");
    assert_call(pqtx_row_write(tx, &stock, PQTX_ARGS(PQTX_TEXT("N2"), PQTX_INT(21))), PQTX_OK);
    finish();
}
END_TEST

START_TEST(a_trap_in_the_search_path_catches_nothing)
{
    sql(monitor, "DROP SCHEMA IF EXISTS pqtx_traps CASCADE; CREATE SCHEMA pqtx_traps;"
                 "CREATE FUNCTION pqtx_traps.trap(int, int) RETURNS bool LANGUAGE sql AS"
                 " 'SELECT true';"
                 "CREATE OPERATOR pqtx_traps.= (LEFTARG = int, RIGHTARG = int,"
                 " FUNCTION = pqtx_traps.trap);"
                 "CREATE TABLE pqtx_traps.stock (trap int)");
    sql(own, "SET search_path = pqtx_traps, pg_catalog, pqtx_rowlock");
    stock.schema = "pqtx_rowlock";
    begin();
    assert_call(pqtx_row_read(tx, &stock, PQTX_FOR_UPDATE, PQTX_WAIT, PQTX_ARGS(PQTX_INT(2)), NULL),
                PQTX_OK);
    assert_call(pqtx_row_write(tx, &stock, PQTX_ARGS(PQTX_INT(2), PQTX_INT(5))), PQTX_OK);
    assert_call(pqtx_commit(tx), PQTX_OK);
    finish();
    ck_assert_int_eq(ask_int(monitor, "SELECT sum(v) FROM stock"), 45);
    sql(monitor, "DROP SCHEMA pqtx_traps CASCADE");
}
END_TEST

START_TEST(a_description_that_lacks_something_is_misuse)
{
    static const char *const empty[] = {NULL}, *const unnamed[] = {"", NULL};
    static const char *const longer[] = {
        "a_name_of_64_bytes______________________________________________", NULL};
    const pqtx_table whole = stock;
    for (int fault = 0; fault < 13; fault++) {
        pqtx_table table = whole;
        table.size = fault == 0 ? 0 : sizeof table;
        table.name = fault == 1 ? NULL : fault == 2 ? "" : fault == 3 ? longer[0] : whole.name;
        table.schema = fault == 4 ? longer[0] : NULL;
        table.key = fault == 5   ? NULL
                    : fault == 6 ? empty
                    : fault == 7 ? unnamed
                    : fault == 8 ? longer
                                 : whole.key;
        table.columns = fault == 9 ? unnamed : fault == 10 ? longer : whole.columns;
        table.returning = fault == 11 ? unnamed : NULL;
        begin();
        assert_call(pqtx_row_read(tx, fault == 12 ? NULL : &table, PQTX_FOR_UPDATE, PQTX_WAIT,
                                  PQTX_ARGS(PQTX_INT(1)), NULL),
                    PQTX_MISUSE);
        finish();
    }
    stock.name = "stock\xc3";
    begin();
    assert_call(pqtx_row_read(tx, &stock, PQTX_FOR_UPDATE, PQTX_WAIT, PQTX_ARGS(PQTX_INT(1)), NULL),
                PQTX_MISUSE);
    finish();
}
END_TEST

START_TEST(as_many_values_as_columns_are_wanted)
{
    const pqtx_value values[] = {PQTX_INT(1), PQTX_INT(2), PQTX_INT(3)};
    for (int count = -1; count <= 3; count++) {
        if (count != 1) {
            begin();
            assert_call(pqtx_row_read(tx, &stock, PQTX_FOR_UPDATE, PQTX_WAIT, count, values, NULL),
                        PQTX_MISUSE);
            finish();
        }
        if (count != 2) {
            begin();
            assert_call(pqtx_row_write(tx, &stock, count, values), PQTX_MISUSE);
            finish();
        }
    }
    begin();
    assert_call(pqtx_row_read(tx, &stock, PQTX_FOR_UPDATE, PQTX_WAIT, 1, NULL, NULL), PQTX_MISUSE);
    finish();
    stock.columns = NULL;
    begin();
    assert_call(pqtx_row_write(tx, &stock, 1, values), PQTX_MISUSE);
    finish();
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("live_rowlock");
    TCase *c = tcase_create("rowlock");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_set_timeout(c, 60);
    tcase_add_test(c, each_lock_shuts_out_what_it_is_named_for);
    tcase_add_test(c, who_refers_to_the_row_waits_beside_for_update_alone);
    tcase_add_test(c, an_undone_savepoint_takes_its_locks_with_it);
    tcase_add_test(c, two_who_share_and_then_write_wait_for_each_other);
    tcase_add_test(c, nowait_is_busy_at_once);
    tcase_add_test(c, nowait_begins_again_as_any_busy_does);
    tcase_add_test(c, waiting_ends_busy_by_the_lock_timeout);
    tcase_add_test(c, skip_locked_passes_over_the_rows_of_others);
    tcase_add_test(c, whatever_the_wait_a_locked_table_is_waited_for_within_lock_timeout);
    tcase_add_test(c, a_reading_transaction_cannot_lock);
    tcase_add_test(c, after_a_wait_the_newest_row_is_read);
    tcase_add_test(c, after_a_wait_a_row_that_no_longer_meets_the_condition_is_left_out);
    tcase_add_test(c, after_a_wait_order_limit_and_new_rows_are_those_of_before);
    tcase_add_test(c, a_row_that_moves_to_another_partition_begins_again_at_any_level);
    tcase_add_test(c, what_cannot_carry_the_clause_is_refused);
    tcase_add_test(c, what_can_carry_the_clause_is_taken);
    tcase_add_test(c, what_the_server_cannot_lock_it_says);
    tcase_add_test(c, a_second_statement_behind_it_is_refused_by_the_server);
    tcase_add_test(c, a_lock_or_a_wait_that_does_not_exist_is_misuse);
    tcase_add_test(c, select_one_for_wants_exactly_one_row);
    tcase_add_test(c, in_pipeline_mode_the_rows_come_with_the_flight_and_stay_locked);
    tcase_add_test(c, many_who_read_decide_and_write_take_exactly_what_is_there);
    tcase_add_test(c, in_pipeline_mode_it_takes_two_round_trips_else_three);
    tcase_add_test(c, reading_lands_what_was_queued_before_it);
    tcase_add_test(c, a_row_is_found_or_not_as_it_is_after_the_wait);
    tcase_add_test(c, with_skip_locked_that_another_has_it_is_an_answer);
    tcase_add_test(c, a_row_that_comes_and_goes_is_busy_after_five_tries);
    tcase_add_test(c, a_row_that_is_not_there_is_not_written);
    tcase_add_test(c, a_key_that_meets_two_rows_is_neither_read_nor_written);
    tcase_add_test(c, a_key_may_be_of_any_type);
    tcase_add_test(c, a_key_may_have_several_columns_and_any_name_is_taken_as_written);
    tcase_add_test(c, returning_chooses_the_columns);
    tcase_add_test(c, a_type_may_have_an_equality_of_its_own);
    tcase_add_test(c, a_trap_in_the_search_path_catches_nothing);
    tcase_add_test(c, a_description_that_lacks_something_is_misuse);
    tcase_add_test(c, as_many_values_as_columns_are_wanted);
    suite_add_tcase(s, c);
    return s;
}

int main(void)
{
    return run_suite(suite());
}
