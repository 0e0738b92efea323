/* check_live_counter.c: one counter, changed while others change it. */
#include "support.h"
#include "support_counter.h"
#include "support_cut.h"
#include "support_tx.h"

#include <stdio.h>
#include <string.h>

static PGconn *other, *monitor;
static pqtx_pool *pool; /* of one connection */
static pqtx_counter counter;

static void set_up(void)
{
    fresh_schema("pqtx_counter");
    other = open_session();
    monitor = open_session();
    pool = open_pool(1);
    counter = (pqtx_counter)PQTX_COUNTER;
    counter.table = "stock";
    sql(monitor, "CREATE TABLE stock (key text PRIMARY KEY, value bigint NOT NULL"
                 " CHECK (value >= 0))");
}

static void tear_down(void)
{
    pqtx_pool_close(pool);
    PQfinish(other);
    PQfinish(monitor);
}

static struct count count(enum op op, const char *key, int64_t amount)
{
    return count_of(pool, &counter, op, PQTX_TEXT(key), amount);
}

static int64_t value_of(const char *key)
{
    char query[128];
    snprintf(query, sizeof query, "SELECT coalesce(max(value), -1) FROM stock WHERE key = '%s'",
             key);
    return ask_int(monitor, query);
}

/* ---- what each call does */

START_TEST(a_counter_begins_with_the_first_increment)
{
    for (int way = 0; way < WAYS; way++) {
        struct count add = count(ADD, "new", 3);
        add.way = (enum way)way;
        sql(monitor, "TRUNCATE stock");
        assert_count(&add, 3);
        assert_count(&add, 6);
        add.amount = -6;
        assert_count(&add, 0);
        ck_assert_int_eq(value_of("new"), 0);
    }
}
END_TEST

START_TEST(a_bump_is_for_counters_that_are_there)
{
    for (int way = 0; way < WAYS; way++) {
        struct count bump = count(BUMP, "new", 3);
        bump.way = (enum way)way;
        sql(monitor, "TRUNCATE stock");
        run_count(&bump, PQTX_NOT_FOUND);
        ck_assert_int_eq(bump.value, PQTX_VALUE_UNKNOWN);
        ck_assert_int_eq(value_of("new"), -1);
        sql(monitor, "INSERT INTO stock VALUES ('new', 4)");
        assert_count(&bump, 7);
    }
}
END_TEST

START_TEST(taking_tells_exhausted_from_not_found)
{
    for (int way = 0; way < WAYS; way++) {
        struct count take = count(TAKE, "kz", 3);
        take.way = (enum way)way;
        sql(monitor, "TRUNCATE stock");
        run_count(&take, PQTX_NOT_FOUND);
        sql(monitor, "INSERT INTO stock VALUES ('kz', 5)");
        assert_count(&take, 2);
        run_count(&take, PQTX_EXHAUSTED);
        ck_assert_int_eq(take.value, 2); /* what is left */
        take.amount = 2;
        assert_count(&take, 0);
        ck_assert_int_eq(value_of("kz"), 0);
    }
}
END_TEST

START_TEST(getting_reads_it)
{
    for (int way = 0; way < WAYS; way++) {
        struct count get = count(GET, "kz", 0);
        get.way = (enum way)way;
        sql(monitor, "TRUNCATE stock");
        run_count(&get, PQTX_NOT_FOUND);
        sql(monitor, "INSERT INTO stock VALUES ('kz', 5)");
        assert_count(&get, 5);
    }
}
END_TEST

START_TEST(setting_asks_for_the_value_before)
{
    for (int way = 0; way < WAYS; way++) {
        struct count set = count(SET_IF, "kz", 5);
        set.way = (enum way)way;
        set.wanted = 9;
        sql(monitor, "TRUNCATE stock");
        run_count(&set, PQTX_NOT_FOUND);
        sql(monitor, "INSERT INTO stock VALUES ('kz', 5)");
        assert_count(&set, 9);
        run_count(&set, PQTX_CONDITION_FALSE);
        ck_assert_int_eq(set.value, 9);
        set.amount = 9;
        assert_count(&set, 9); /* to what it is */
    }
}
END_TEST

static pqtx_status several(pqtx_tx *tx, void *arg)
{
    int64_t *values = arg;
    pqtx_counter_add(tx, &counter, PQTX_TEXT("a"), 5, &values[0]);
    pqtx_counter_take(tx, &counter, PQTX_TEXT("a"), 2, &values[1]);
    pqtx_counter_take(tx, &counter, PQTX_TEXT("a"), 2, &values[2]);
    pqtx_counter_bump(tx, &counter, PQTX_TEXT("a"), 4, &values[3]);
    pqtx_counter_set_if(tx, &counter, PQTX_TEXT("a"), 5, 7, &values[4]);
    return pqtx_counter_get(tx, &counter, PQTX_TEXT("a"), &values[5]);
}

/* What one call leaves for its own later statements must mean nothing to the next call. */
START_TEST(calls_of_one_transaction_see_one_another)
{
    static const int64_t expected[] = {5, 3, 1, 5, 7, 7};
    for (int queued = 0; queued < 2; queued++) {
        pqtx_options options = PQTX_OPTIONS;
        pqtx_error error = PQTX_ERROR;
        int64_t values[6];
        options.flags = queued ? PQTX_PIPELINE : 0;
        sql(monitor, "TRUNCATE stock");
        assert_status(pqtx_run(pool, &options, several, values, &error), PQTX_OK, &error);
        for (int i = 0; i < 6; i++)
            ck_assert_int_eq(values[i], expected[i]);
    }
}
END_TEST

static pqtx_status take_until_exhausted(pqtx_tx *tx, void *left)
{
    pqtx_counter_add(tx, &counter, PQTX_TEXT("kz"), 5, NULL);
    pqtx_counter_take(tx, &counter, PQTX_TEXT("kz"), 3, NULL);
    return pqtx_counter_take(tx, &counter, PQTX_TEXT("kz"), 3, left);
}

START_TEST(a_call_that_was_done_does_not_stand_for_the_next)
{
    for (int queued = 0; queued < 2; queued++) {
        pqtx_options options = PQTX_OPTIONS;
        pqtx_error error = PQTX_ERROR;
        int64_t left;
        options.flags = queued ? PQTX_PIPELINE : 0;
        assert_status(pqtx_run(pool, &options, take_until_exhausted, &left, &error), PQTX_EXHAUSTED,
                      &error);
        ck_assert_int_eq(left, 2);
    }
}
END_TEST

static pqtx_status add_then_take_too_much(pqtx_tx *tx, void *left)
{
    pqtx_counter_add(tx, &counter, PQTX_TEXT("other"), 1, NULL);
    return pqtx_counter_take(tx, &counter, PQTX_TEXT("kz"), 6, left);
}

START_TEST(a_miss_rolls_the_whole_back_and_names_the_call)
{
    sql(monitor, "INSERT INTO stock VALUES ('kz', 5)");
    for (int queued = 0; queued < 2; queued++) {
        pqtx_options options = PQTX_OPTIONS;
        pqtx_error error = PQTX_ERROR;
        int64_t left = 0;
        options.flags = queued ? PQTX_PIPELINE : 0;
        assert_status(pqtx_run(pool, &options, add_then_take_too_much, &left, &error),
                      PQTX_EXHAUSTED, &error);
        ck_assert_int_eq(left, 5);
        ck_assert_int_eq(error.call, queued ? 2 : 0);
        ck_assert_str_eq(error.sqlstate, "");
        ck_assert_int_eq(value_of("other"), -1);
    }
}
END_TEST

static pqtx_status take_too_much(pqtx_tx *tx, void *arg)
{
    (void)arg;
    return pqtx_counter_take(tx, &counter, PQTX_TEXT("kz"), 6, NULL);
}

static pqtx_status go_on_after_miss(pqtx_tx *tx, void *arg)
{
    pqtx_status status = pqtx_savepoint(tx, take_too_much, NULL);
    if (status != PQTX_EXHAUSTED)
        return pqtx_fail(tx, PQTX_USER);
    sql(other, "SELECT FROM stock WHERE key = 'kz' FOR UPDATE NOWAIT"); /* P20: it is not locked */
    return pqtx_counter_take(tx, &counter, PQTX_TEXT("kz"), 5, arg);
}

START_TEST(a_miss_keeps_no_lock_and_a_savepoint_goes_on_after_it)
{
    int64_t left = -1;
    pqtx_error error = PQTX_ERROR;
    sql(monitor, "INSERT INTO stock VALUES ('kz', 5)");
    assert_status(pqtx_run(pool, NULL, go_on_after_miss, &left, &error), PQTX_OK, &error);
    ck_assert_int_eq(left, 0);
}
END_TEST

/* ---- what another session does in the middle, as a table */

struct interleaving {
    enum op op;
    const char *start;  /* the value that is there, or NULL */
    const char *change; /* by the other session, before ours looks */
    bool ours_waits;
    pqtx_status expected;
    int64_t value, final_value;
};

#define AWAY (-1)
#define NONE PQTX_VALUE_UNKNOWN

static const struct interleaving interleavings[] = {
    /* take 1 */
    {TAKE, "1", "UPDATE stock SET value = 0", true, PQTX_EXHAUSTED, 0, 0},
    {TAKE, "5", "UPDATE stock SET value = 4", true, PQTX_OK, 3, 3},
    {TAKE, "5", "DELETE FROM stock", true, PQTX_NOT_FOUND, NONE, AWAY},
    {TAKE, "5", "UPDATE stock SET key = 'away'", true, PQTX_NOT_FOUND, NONE, AWAY},
    {TAKE, "1", "DELETE FROM stock; INSERT INTO stock VALUES ('kz', 10)", true, PQTX_OK, 9, 9},
    {TAKE, "1", "DELETE FROM stock; INSERT INTO stock VALUES ('kz', 0)", true, PQTX_EXHAUSTED, 0,
     0},
    {TAKE, "0", "UPDATE stock SET value = 5", false, PQTX_EXHAUSTED, 0, 5}, /* P17 */
    {TAKE, NULL, "INSERT INTO stock VALUES ('kz', 5)", false, PQTX_NOT_FOUND, NONE, 5},
    /* bump by 1 */
    {BUMP, "5", "UPDATE stock SET value = 4", true, PQTX_OK, 5, 5},
    {BUMP, "5", "DELETE FROM stock", true, PQTX_NOT_FOUND, NONE, AWAY},
    {BUMP, "5", "UPDATE stock SET key = 'away'", true, PQTX_NOT_FOUND, NONE, AWAY},
    {BUMP, "1", "DELETE FROM stock; INSERT INTO stock VALUES ('kz', 10)", true, PQTX_OK, 11, 11},
    {BUMP, NULL, "INSERT INTO stock VALUES ('kz', 5)", false, PQTX_NOT_FOUND, NONE, 5},
    /* add 1 */
    {ADD, "5", "UPDATE stock SET value = 4", true, PQTX_OK, 5, 5},
    {ADD, "5", "DELETE FROM stock", true, PQTX_OK, 1, 1},
    {ADD, "5", "UPDATE stock SET key = 'away'", true, PQTX_OK, 1, 1},
    {ADD, "1", "DELETE FROM stock; INSERT INTO stock VALUES ('kz', 10)", true, PQTX_OK, 11, 11},
    {ADD, NULL, "INSERT INTO stock VALUES ('kz', 5)", true, PQTX_OK, 6, 6},
    /* set to 7 if it is 1 */
    {SET_IF, "1", "UPDATE stock SET value = 0", true, PQTX_CONDITION_FALSE, 0, 0},
    {SET_IF, "1", "UPDATE stock SET value = value", true, PQTX_OK, 7, 7},
    {SET_IF, "0", "UPDATE stock SET value = 1", false, PQTX_CONDITION_FALSE, 0, 1},
    {SET_IF, "1", "DELETE FROM stock", true, PQTX_NOT_FOUND, NONE, AWAY},
    {SET_IF, "1", "DELETE FROM stock; INSERT INTO stock VALUES ('kz', 1)", true, PQTX_OK, 7, 7},
    {SET_IF, NULL, "INSERT INTO stock VALUES ('kz', 1)", false, PQTX_NOT_FOUND, NONE, 1},
};

#define INTERLEAVINGS (int)(sizeof interleavings / sizeof interleavings[0])

static void start_with(const char *value)
{
    char statement[96];
    sql(monitor, "TRUNCATE stock");
    snprintf(statement, sizeof statement, "INSERT INTO stock VALUES ('kz', %s)",
             value ? value : "0");
    if (value)
        sql(monitor, statement);
}

/* The other session changes the row and stays in its transaction; ours comes, and waits, if there
 * is anything to wait for; then the other one commits. */
static void interleave(const struct interleaving *i, enum way way, pqtx_isolation isolation)
{
    struct count ours = count(i->op, "kz", 1);
    ours.way = way;
    ours.wanted = 7;
    ours.options.isolation = isolation;
    ours.options.max_attempts = isolation > PQTX_ISO_READ_COMMITTED ? 3 : 1;
    start_with(i->start);
    int pid = (int)run_for_pid(pool, NULL);
    sql(other, "BEGIN");
    sql(other, i->change);
    if (i->ours_waits) {
        start_count(&ours);
        wait_until_blocked(monitor, pid);
        sql(other, "COMMIT");
        join_count(&ours, i->expected);
    } else {
        run_count(&ours, i->expected);
        sql(other, "COMMIT");
    }
    ck_assert_int_eq(ours.value, i->value);
    ck_assert_int_eq(value_of("kz"), i->final_value);
}

/* At READ COMMITTED the first attempt gives the verdict; above it, the one that is begun again. */
START_TEST(every_interleaving_ends_with_the_right_verdict)
{
    for (int way = 0; way < WAYS; way++)
        for (int level = PQTX_ISO_DEFAULT; level <= PQTX_ISO_SERIALIZABLE; level++)
            interleave(&interleavings[_i], (enum way)way, (pqtx_isolation)level);
}
END_TEST

/* ---- limits of the value, the key and the table */

START_TEST(past_its_end_a_counter_fails_and_keeps_its_value)
{
    static const enum op ops[] = {ADD, BUMP};
    sql(monitor, "INSERT INTO stock VALUES ('kz', 9223372036854775806)");
    for (int way = 0; way < WAYS; way++)
        for (int i = 0; i < 2; i++) {
            struct count over = count(ops[i], "kz", 2);
            over.way = (enum way)way;
            run_count(&over, PQTX_BAD_DATA);
            ck_assert_str_eq(over.error.sqlstate, "22003");
            ck_assert_int_eq(over.value, PQTX_VALUE_UNKNOWN);
        }
    ck_assert_int_eq(value_of("kz"), INT64_C(9223372036854775806));
}
END_TEST

START_TEST(an_integer_column_ends_earlier)
{
    sql(monitor, "CREATE TABLE small (key text PRIMARY KEY, value integer NOT NULL)");
    counter.table = "small";
    struct count add = count(ADD, "kz", 2147483646);
    assert_count(&add, 2147483646);
    add.amount = 2;
    run_count(&add, PQTX_BAD_DATA);
    ck_assert_str_eq(add.error.sqlstate, "22003");
    add.amount = INT64_MAX;
    run_count(&add, PQTX_BAD_DATA);
    struct count take = count(TAKE, "kz", INT64_MAX);
    run_count(&take, PQTX_EXHAUSTED);
    ck_assert_int_eq(take.value, 2147483646);
}
END_TEST

START_TEST(names_are_quoted_and_keys_are_typed)
{
    static const char *const uuid = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11";
    struct {
        pqtx_key_type type;
        pqtx_value key;
    } keys[] = {{PQTX_KEY_TEXT, PQTX_TEXT("O'Brien \" ; -- $1 @T")},
                {PQTX_KEY_TEXT, PQTX_TEXT("")},
                {PQTX_KEY_INT, PQTX_INT(-7)},
                {PQTX_KEY_UUID, PQTX_TEXT(uuid)}};
    sql(monitor, "DROP SCHEMA IF EXISTS \"Sel\"\"ect\" CASCADE; CREATE SCHEMA \"Sel\"\"ect\"");
    counter.schema = "Sel\"ect";
    counter.key = "from @K";
    counter.value = "Value \xc3\xa4";
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        for (int way = 0; way < WAYS; way++) {
            static const char *const tables[] = {"Table", "user", "@T\"", "$1"};
            pqtx_error error = PQTX_ERROR;
            counter.table = tables[i];
            counter.key_type = keys[i].type;
            assert_status(pqtx_counter_install(pool, &counter, &error), PQTX_OK, &error);
            for (int op = ADD; op <= SET_IF; op++) {
                static const int64_t expected[] = {4, 8, 4, 4, 0};
                struct count one = count((enum op)op, "", 4);
                one.way = (enum way)way;
                one.key = keys[i].key;
                assert_count(&one, expected[op]);
            }
        }
    ck_assert_int_eq(ask_int(monitor, "SELECT count(*) FROM \"Sel\"\"ect\".\"Table\""), 1);
    sql(monitor, "DROP SCHEMA \"Sel\"\"ect\" CASCADE");
}
END_TEST

/* CTEs and aliases of ours must not be taken for a table of that name. */
START_TEST(a_table_may_have_a_name_that_we_use)
{
    static const char *const tables[] = {"t", "u", "i", "b", "v", "s", "n", "value"};
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
        pqtx_error error = PQTX_ERROR;
        counter.table = counter.key = tables[i];
        counter.value = "rows";
        assert_status(pqtx_counter_install(pool, &counter, &error), PQTX_OK, &error);
        for (int op = ADD; op <= SET_IF; op++) {
            static const int64_t expected[] = {4, 8, 4, 4, 0};
            struct count one = count((enum op)op, "kz", 4);
            assert_count(&one, expected[op]);
        }
    }
}
END_TEST

START_TEST(what_is_no_counter_is_misuse)
{
    static char longer[65];
    memset(longer, 'x', 64);
    pqtx_counter wrong[8];
    for (int i = 0; i < 8; i++)
        wrong[i] = counter;
    wrong[0].size = 0;
    wrong[1].table = "";
    wrong[2].table = longer;
    wrong[3].key_type = (pqtx_key_type)3;
    wrong[4].flags = 2;
    wrong[5].key_type = PQTX_KEY_INT; /* but the key is a text */
    wrong[6].value = longer;
    wrong[7].schema = "";
    for (int way = 0; way < WAYS; way++)
        for (int i = 0; i <= 8; i++) {
            struct count add = count(ADD, "kz", 1);
            add.way = (enum way)way;
            add.counter = i < 8 ? &wrong[i] : NULL;
            run_count(&add, PQTX_MISUSE);
            ck_assert_str_ne(add.error.message, "");
        }
    struct count take = count(TAKE, "kz", 0);
    run_count(&take, PQTX_MISUSE);
    take.key = PQTX_NULL;
    run_count(&take, PQTX_MISUSE);
    ck_assert_int_eq(pqtx_counter_add(NULL, &counter, PQTX_TEXT("kz"), 1, NULL), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_counter_add_now(NULL, NULL, &counter, PQTX_TEXT("kz"), 1, NULL, NULL),
                     PQTX_MISUSE);
    ck_assert_int_eq(pqtx_counter_install(pool, NULL, NULL), PQTX_MISUSE);
    ck_assert_uint_eq(pqtx_counter_ddl(NULL, NULL, 0), 0);
    ck_assert_int_eq(value_of("kz"), -1);
}
END_TEST

START_TEST(the_printed_table_is_the_installed_one)
{
    char text[512], cut[20] = "";
    pqtx_error error = PQTX_ERROR;
    counter.table = "Printed";
    counter.flags = PQTX_COUNTER_BOUNDED;
    size_t len = pqtx_counter_ddl(&counter, text, sizeof text);
    ck_assert_uint_eq(len, strlen(text));
    ck_assert_uint_eq(pqtx_counter_ddl(&counter, cut, sizeof cut), len);
    ck_assert_str_eq(cut, "CREATE TABLE IF NOT");
    sql(monitor, text);
    sql(monitor, text); /* a second time is harmless */
    assert_status(pqtx_counter_install(pool, &counter, &error), PQTX_OK, &error);
    ck_assert_str_eq(ask(monitor, "SELECT reloptions FROM pg_class WHERE relname = 'Printed'"),
                     "{fillfactor=50}");
    struct count add = count(ADD, "kz", -1);
    run_count(&add, PQTX_CHECK);
    counter.flags = 0;
    counter.table = "free";
    assert_status(pqtx_counter_install(pool, &counter, &error), PQTX_OK, &error);
    assert_count(&add, -1);
}
END_TEST

/* P21, P23 */
START_TEST(an_update_uses_up_no_number_and_another_unique_column_still_counts)
{
    sql(monitor, "CREATE TABLE wide (id serial UNIQUE, key text PRIMARY KEY, value int NOT NULL,"
                 " label text UNIQUE DEFAULT 'one')");
    counter.table = "wide";
    struct count add = count(ADD, "kz", 1);
    for (int i = 1; i <= 20; i++)
        assert_count(&add, i);
    ck_assert_int_eq(ask_int(monitor, "SELECT last_value FROM wide_id_seq"), 1);
    struct count second = count(ADD, "other", 1);
    run_count(&second, PQTX_DUPLICATE);
    ck_assert_str_eq(second.error.constraint_name, "wide_label_key");
}
END_TEST

START_TEST(what_is_kept_back_is_not_taken_for_done)
{
    sql(monitor, "CREATE TABLE kept (key text PRIMARY KEY, value bigint);"
                 "INSERT INTO kept VALUES ('null', NULL);"
                 "CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS"
                 " 'BEGIN RETURN NULL; END';"
                 "CREATE TRIGGER keep BEFORE INSERT ON kept FOR EACH ROW EXECUTE FUNCTION keep()");
    counter.table = "kept";
    for (int way = 0; way < WAYS; way++) {
        struct count add = count(ADD, "new", 1);
        add.way = (enum way)way;
        run_count(&add, PQTX_NO_MATCH);
        add.key = PQTX_TEXT("null");
        run_count(&add, PQTX_NO_MATCH);
        for (int op = BUMP; op <= SET_IF; op++) {
            struct count one = count((enum op)op, "null", 1);
            one.way = (enum way)way;
            run_count(&one, PQTX_NOT_FOUND);
        }
    }
}
END_TEST

START_TEST(two_rows_of_one_key_are_left_as_they_were)
{
    sql(monitor, "CREATE TABLE twice (key text, value bigint);"
                 "INSERT INTO twice VALUES ('kz', 5), ('kz', 5)");
    counter.table = "twice";
    for (int way = 0; way < WAYS; way++) {
        struct count add = count(ADD, "kz", 1);
        add.way = (enum way)way;
        run_count(&add, PQTX_BAD_STATEMENT); /* no unique index */
        for (int op = BUMP; op <= SET_IF; op++) {
            struct count one = count((enum op)op, "kz", 5);
            one.way = (enum way)way;
            run_count(&one, PQTX_TOO_MANY);
        }
    }
    ck_assert_str_eq(ask(monitor, "SELECT string_agg(value::text, ',') FROM twice"), "5,5");
}
END_TEST

/* P29 */
START_TEST(a_row_that_moves_to_another_partition_is_found_there)
{
    sql(monitor, "CREATE TABLE moved (key text, value bigint NOT NULL, part int,"
                 " PRIMARY KEY (key, part)) PARTITION BY LIST (part);"
                 "CREATE TABLE moved_1 PARTITION OF moved FOR VALUES IN (1);"
                 "CREATE TABLE moved_2 PARTITION OF moved FOR VALUES IN (2);"
                 "INSERT INTO moved VALUES ('kz', 5, 1)");
    counter.table = "moved";
    for (int way = 0; way < WAYS; way++) {
        struct count bump = count(BUMP, "kz", 1);
        bump.way = (enum way)way;
        int pid = (int)run_for_pid(pool, NULL);
        sql(other, "BEGIN; UPDATE moved SET part = 3 - part");
        start_count(&bump);
        wait_until_blocked(monitor, pid);
        sql(other, "COMMIT");
        join_count(&bump, PQTX_OK);
        ck_assert_int_eq(bump.value, 6 + way);
    }
}
END_TEST

/* ---- many at once */

enum { THREADS = 6, ROUNDS = 60 };

struct racer {
    pqtx_pool *pool;
    enum op op;
    enum way way;
    pqtx_isolation isolation;
    pthread_t thread;
    int64_t done, no;
};

static void *race(void *arg)
{
    struct racer *racer = arg;
    for (int i = 0; i < ROUNDS; i++) {
        struct count one = count_of(racer->pool, &counter, racer->op, PQTX_TEXT("hot"), 1);
        one.way = racer->way;
        one.options.isolation = racer->isolation;
        one.options.max_attempts = 1000;
        pqtx_status status = PQTX_EXHAUSTED;
        start_count(&one);
        pthread_join(one.thread, NULL);
        if (one.status != PQTX_OK)
            assert_status(one.status, status, &one.error);
        racer->done += one.status == PQTX_OK;
        racer->no += one.status != PQTX_OK;
    }
    return NULL;
}

/* All at once; how many of the calls succeeded. */
static int64_t race_all(enum op op, enum way way, pqtx_isolation isolation)
{
    struct racer racers[THREADS];
    pqtx_pool *many = open_pool(THREADS);
    int64_t done = 0;
    for (int i = 0; i < THREADS; i++) {
        racers[i] = (struct racer){many, op, way, isolation, 0, 0, 0};
        ck_assert(pthread_create(&racers[i].thread, NULL, race, &racers[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(racers[i].thread, NULL);
        done += racers[i].done;
    }
    pqtx_pool_close(many);
    return done;
}

START_TEST(no_increment_is_lost_in_a_crowd)
{
    for (int way = 0; way < WAYS; way++) {
        sql(monitor, "TRUNCATE stock");
        ck_assert_int_eq(race_all(ADD, (enum way)way, PQTX_ISO_DEFAULT), THREADS * ROUNDS);
        ck_assert_int_eq(value_of("hot"), THREADS * ROUNDS);
    }
}
END_TEST

/* P28 */
START_TEST(no_increment_is_lost_above_read_committed)
{
    ck_assert_int_eq(race_all(ADD, QUEUED, PQTX_ISO_REPEATABLE_READ), THREADS * ROUNDS);
    ck_assert_int_eq(value_of("hot"), THREADS * ROUNDS);
}
END_TEST

START_TEST(a_crowd_takes_what_there_is_and_no_more)
{
    for (int way = 0; way < WAYS; way++) {
        sql(monitor, "TRUNCATE stock; INSERT INTO stock VALUES ('hot', 200)");
        ck_assert_int_eq(race_all(TAKE, (enum way)way, PQTX_ISO_DEFAULT), 200);
        ck_assert_int_eq(value_of("hot"), 0);
    }
}
END_TEST

/* ---- once */

static void with_event(struct count *c, const char *id)
{
    c->way = NOW;
    c->options.event_id = id;
    c->options.once_schema = "pqtx_counter";
}

static void install_once(void)
{
    pqtx_error error = PQTX_ERROR;
    assert_status(pqtx_once_install(pool, "pqtx_counter", &error), PQTX_OK, &error);
}

START_TEST(an_event_is_counted_once)
{
    install_once();
    struct count add = count(ADD, "kz", 5);
    with_event(&add, "event 1");
    assert_count(&add, 5);
    run_count(&add, PQTX_DONE_BEFORE);
    ck_assert_int_eq(add.value, PQTX_VALUE_UNKNOWN);
    ck_assert_int_eq(value_of("kz"), 5);
}
END_TEST

START_TEST(an_event_that_was_refused_may_come_again)
{
    install_once();
    struct count take = count(TAKE, "kz", 5);
    with_event(&take, "event 2");
    run_count(&take, PQTX_NOT_FOUND);
    sql(monitor, "INSERT INTO stock VALUES ('kz', 4)");
    run_count(&take, PQTX_EXHAUSTED);
    ck_assert_int_eq(take.value, 4);
    ck_assert_int_eq(ask_int(monitor, "SELECT count(*) FROM pqtx_once"), 0);
    sql(monitor, "UPDATE stock SET value = 7");
    assert_count(&take, 2);
    run_count(&take, PQTX_DONE_BEFORE);
    ck_assert_int_eq(value_of("kz"), 2);
}
END_TEST

static pqtx_fault throw_away(pqtx_point point, uint32_t attempt, void *arg)
{
    return attempt == 1 && point == *(pqtx_point *)arg ? PQTX_FAULT_CUT : PQTX_FAULT_NONE;
}

/* Whatever the answer's loss left behind, asked again it is counted once. */
START_TEST(an_event_in_doubt_is_counted_once)
{
    install_once();
    for (int point = PQTX_POINT_COMMIT_BEGUN; point <= PQTX_POINT_COMMIT_ANSWERED; point++) {
        char id[32];
        pqtx_point at = (pqtx_point)point;
        snprintf(id, sizeof id, "event at %d", point);
        struct count add = count(ADD, "kz", 5);
        with_event(&add, id);
        add.options.fault = throw_away;
        add.options.fault_arg = &at;
        sql(monitor, "TRUNCATE stock");
        run_count(&add, PQTX_OK);
        if (add.value != PQTX_VALUE_UNKNOWN)
            ck_assert_int_eq(add.value, 5);
        ck_assert_int_eq(value_of("kz"), 5);
        add.options.fault = NULL;
        run_count(&add, PQTX_DONE_BEFORE);
        ck_assert_int_eq(value_of("kz"), 5);
    }
}
END_TEST

START_TEST(without_an_event_doubt_is_told_or_resolved_by_a_token)
{
    install_once();
    pqtx_point at = PQTX_POINT_COMMIT_ANSWERED;
    struct count add = count(ADD, "kz", 5);
    add.way = NOW;
    add.options.fault = throw_away;
    add.options.fault_arg = &at;
    run_count(&add, PQTX_IN_DOUBT);
    ck_assert_int_eq(value_of("kz"), 5);
    add.options.in_doubt = PQTX_DOUBT_TOKEN;
    add.options.once_schema = "pqtx_counter";
    run_count(&add, PQTX_OK);
    ck_assert_int_eq(add.value, PQTX_VALUE_UNKNOWN); /* the answer is lost all the same */
    ck_assert_int_eq(value_of("kz"), 10);
}
END_TEST

/* ---- what it costs */

START_TEST(now_takes_one_round_trip_with_an_event_as_well)
{
    install_once();
    struct cut *line = cut_open();
    pqtx_pool_options options = PQTX_POOL_OPTIONS;
    pqtx_pool *through;
    options.conninfo = cut_conninfo(line);
    ck_assert_int_eq(pqtx_pool_open(&options, &through, NULL), PQTX_OK);
    sql(monitor, "INSERT INTO stock VALUES ('kz', 3)");
    for (int op = ADD; op <= SET_IF; op++)
        for (int event = 0; event < 2; event++) {
            char id[32];
            snprintf(id, sizeof id, "op %d", op);
            struct count one = count((enum op)op, "kz", 1);
            one.pool = through;
            one.way = NOW;
            if (op == SET_IF)
                one.amount = value_of("kz");
            if (event)
                with_event(&one, id);
            cut_arm(line, NULL);
            run_count(&one, PQTX_OK);
            ck_assert_uint_eq(cut_count(line, CUT_CLIENT).flights, 1);
        }
    pqtx_pool_close(through);
    cut_close(line);
}
END_TEST

static Suite *suite(void)
{
    Suite *suite = suite_create("counter");
    TCase *tests = tcase_create("counter");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, a_counter_begins_with_the_first_increment);
    tcase_add_test(tests, a_bump_is_for_counters_that_are_there);
    tcase_add_test(tests, taking_tells_exhausted_from_not_found);
    tcase_add_test(tests, getting_reads_it);
    tcase_add_test(tests, setting_asks_for_the_value_before);
    tcase_add_test(tests, calls_of_one_transaction_see_one_another);
    tcase_add_test(tests, a_call_that_was_done_does_not_stand_for_the_next);
    tcase_add_test(tests, a_miss_rolls_the_whole_back_and_names_the_call);
    tcase_add_test(tests, a_miss_keeps_no_lock_and_a_savepoint_goes_on_after_it);
    tcase_add_loop_test(tests, every_interleaving_ends_with_the_right_verdict, 0, INTERLEAVINGS);
    tcase_add_test(tests, past_its_end_a_counter_fails_and_keeps_its_value);
    tcase_add_test(tests, an_integer_column_ends_earlier);
    tcase_add_test(tests, names_are_quoted_and_keys_are_typed);
    tcase_add_test(tests, a_table_may_have_a_name_that_we_use);
    tcase_add_test(tests, what_is_no_counter_is_misuse);
    tcase_add_test(tests, the_printed_table_is_the_installed_one);
    tcase_add_test(tests, an_update_uses_up_no_number_and_another_unique_column_still_counts);
    tcase_add_test(tests, what_is_kept_back_is_not_taken_for_done);
    tcase_add_test(tests, two_rows_of_one_key_are_left_as_they_were);
    tcase_add_test(tests, a_row_that_moves_to_another_partition_is_found_there);
    tcase_add_test(tests, no_increment_is_lost_in_a_crowd);
    tcase_add_test(tests, no_increment_is_lost_above_read_committed);
    tcase_add_test(tests, a_crowd_takes_what_there_is_and_no_more);
    tcase_add_test(tests, an_event_is_counted_once);
    tcase_add_test(tests, an_event_that_was_refused_may_come_again);
    tcase_add_test(tests, an_event_in_doubt_is_counted_once);
    tcase_add_test(tests, without_an_event_doubt_is_told_or_resolved_by_a_token);
    tcase_add_test(tests, now_takes_one_round_trip_with_an_event_as_well);
    suite_add_tcase(suite, tests);
    return suite;
}

int main(void)
{
    return run_suite(suite());
}
