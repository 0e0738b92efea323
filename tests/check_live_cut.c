/* check_live_cut.c: the line is cut at every message of a transaction, and at every byte of COMMIT
 * and of its answer; a marker row, asked for over a line of its own, is the judge. */
#define _DEFAULT_SOURCE
#include "support.h"
#include "support_cut.h"
#include "support_tx.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define SCHEMA "pqtx_cut"

static PGconn *monitor;
static struct cut *cut;
static pqtx_pool *pool;

/* Numbers of one width: a message must not change its length between two runs. */
static int64_t next_id = 1000000;

static void open_through(void)
{
    pqtx_pool_options options = PQTX_POOL_OPTIONS;
    pqtx_error error = PQTX_ERROR;
    options.conninfo = cut_conninfo(cut);
    options.flags = PQTX_POOL_PREPARE_NEVER; /* the same messages each time */
    assert_status(pqtx_pool_open(&options, &pool, &error), PQTX_OK, &error);
}

static void set_up(void)
{
    fresh_schema(SCHEMA);
    monitor = open_session();
    sql(monitor, "CREATE TABLE mark (id bigint NOT NULL);"
                 "CREATE TABLE side (id bigint NOT NULL);"
                 "CREATE TABLE counter (value bigint NOT NULL);"
                 "INSERT INTO counter VALUES (0)");
    sql(monitor, pqtx_once_ddl());
    cut = cut_open();
    open_through();
}

static void tear_down(void)
{
    pqtx_pool_close(pool);
    cut_close(cut);
    PQfinish(monitor);
}

/* ---- the bodies */

static pqtx_status write_mark(pqtx_tx *tx, void *id)
{
    return pqtx_exec(tx, "INSERT INTO mark VALUES ($1)", PQTX_ARGS(PQTX_INT(*(int64_t *)id)), NULL);
}

static pqtx_status write_side(pqtx_tx *tx, void *id)
{
    return pqtx_exec(tx, "INSERT INTO side VALUES ($1)", PQTX_ARGS(PQTX_INT(*(int64_t *)id)), NULL);
}

static pqtx_status write_side_in_vain(pqtx_tx *tx, void *id)
{
    pqtx_status status = write_side(tx, id);
    return status == PQTX_OK ? PQTX_USER : status;
}

static pqtx_status write_several(pqtx_tx *tx, void *id)
{
    pqtx_status status = write_mark(tx, id);
    if (status == PQTX_OK)
        status = pqtx_savepoint(tx, write_side_in_vain, id);
    return status == PQTX_USER ? pqtx_savepoint(tx, write_side, id) : status;
}

static pqtx_status read_then_write(pqtx_tx *tx, void *id)
{
    const PGresult *result;
    int64_t value;
    pqtx_status status = pqtx_exec(tx, "SELECT value FROM counter", PQTX_NO_ARGS, &result);
    if (status == PQTX_OK)
        status = pqtx_get_int(result, 0, 0, &value);
    if (status != PQTX_OK)
        return status;
    pqtx_exec(tx, "UPDATE counter SET value = $1", PQTX_ARGS(PQTX_INT(value + 1)), NULL);
    return write_mark(tx, id);
}

static const struct body {
    const char *name;
    pqtx_isolation isolation;
    pqtx_work work;
    const char *sound; /* what must be true of the tables afterwards */
} bodies[] = {
    {"one statement", PQTX_ISO_DEFAULT, write_mark, "SELECT true"},
    {"several with savepoints", PQTX_ISO_DEFAULT, write_several,
     "SELECT array(SELECT id FROM mark ORDER BY id) = array(SELECT id FROM side ORDER BY id)"},
    {"serializable read, then write", PQTX_ISO_SERIALIZABLE, read_then_write,
     "SELECT value = (SELECT count(*) FROM mark) FROM counter"},
};

static const struct mode {
    const char *name;
    pqtx_doubt in_doubt;
    bool event;
} modes[] = {
    {"report", PQTX_DOUBT_REPORT, false},        {"xid", PQTX_DOUBT_XID, false},
    {"token", PQTX_DOUBT_TOKEN, false},          {"event", PQTX_DOUBT_REPORT, true},
    {"event and token", PQTX_DOUBT_TOKEN, true},
};

enum { BODIES = sizeof bodies / sizeof bodies[0], MODES = sizeof modes / sizeof modes[0] };

/* ---- one run */

struct trial {
    const struct body *body;
    const struct mode *mode;
    struct cut_point point;
    bool may_doubt; /* COMMIT may have been on its way */
    int64_t id;
    pqtx_status status;
    pqtx_error error;
    struct cut_count count[2];
    char text[256];
};

static void describe(struct trial *trial)
{
    static const char *const where[] = {"nowhere", "before message", "after message", "at byte"};
    const struct cut_point *point = &trial->point;
    snprintf(trial->text, sizeof trial->text, "%s, %s: cut %s %zu%s of the %s", trial->mode->name,
             trial->body->name, where[point->where], point->n,
             point->where == CUT_INSIDE ? " of COMMIT" : "",
             point->from == CUT_CLIENT ? "client" : "server");
}

/* A cut after a message is at the same place as one before the next: the former is tried with a
 * single attempt, which shows what it came to, the latter with as many as it takes.  An event that
 * has no other resolver needs a second attempt in any case. */
static pqtx_options options_of(const struct trial *trial, const char *event_id)
{
    pqtx_options options = PQTX_OPTIONS;
    bool resolves_by_attempt = trial->mode->event && trial->mode->in_doubt == PQTX_DOUBT_REPORT;
    options.isolation = trial->body->isolation;
    options.in_doubt = trial->mode->in_doubt;
    options.once_schema = SCHEMA;
    options.wait_first_ms = 1;
    options.event_id = trial->mode->event ? event_id : NULL;
    options.max_attempts = trial->point.where == CUT_BEFORE || resolves_by_attempt ? 10 : 1;
    return options;
}

/* The lock waits for whoever may still commit: COMMIT is sent when the mark has been written. */
static int64_t count_marks(int64_t id)
{
    char query[64];
    snprintf(query, sizeof query, "SELECT count(*) FROM mark WHERE id = %lld", (long long)id);
    sql(monitor, "BEGIN; LOCK TABLE mark IN SHARE MODE");
    int64_t marks = ask_int(monitor, query);
    sql(monitor, "COMMIT");
    return marks;
}

static void judge(const struct trial *trial)
{
    char said[4096];
    int64_t marks = count_marks(trial->id);
    bool resolver = trial->mode->event || trial->mode->in_doubt != PQTX_DOUBT_REPORT;
    pqtx_error_format(&trial->error, said, sizeof said);
    ck_assert_msg(marks <= 1, "%s: applied %d times\n  %s", trial->text, (int)marks, said);
    if (trial->status == PQTX_OK)
        ck_assert_msg(marks == 1, "%s: committed, and not there\n  %s", trial->text, said);
    else if (trial->status == PQTX_IN_DOUBT)
        ck_assert_msg(!resolver && trial->may_doubt, "%s: in doubt\n  %s", trial->text, said);
    else
        ck_assert_msg(marks == 0 && trial->status == PQTX_NO_CONNECTION,
                      "%s: %s, and %d marks\n  %s", trial->text, pqtx_status_name(trial->status),
                      (int)marks, said);
    ck_assert_msg(trial->status == PQTX_OK || trial->point.where != CUT_BEFORE ||
                      trial->status == PQTX_IN_DOUBT,
                  "%s: not begun again: %s", trial->text, said);
}

/* An event that was applied is not applied again; one that was not, is. */
static void run_again(const struct trial *trial, pqtx_options options)
{
    pqtx_error error = PQTX_ERROR;
    int64_t id = trial->id;
    options.max_attempts = 10;
    pqtx_status status = pqtx_run(pool, &options, trial->body->work, &id, &error);
    assert_status(status, trial->status == PQTX_OK ? PQTX_DONE_BEFORE : PQTX_OK, &error);
    ck_assert_msg(count_marks(id) == 1, "%s: run again", trial->text);
}

static void run_trial(struct trial *trial)
{
    char event_id[32];
    size_t cuts = cut_done(cut);
    describe(trial);
    trial->id = next_id++;
    trial->error = (pqtx_error)PQTX_ERROR;
    snprintf(event_id, sizeof event_id, "event %lld", (long long)trial->id);
    pqtx_options options = options_of(trial, event_id);
    run_for_pid(pool, NULL); /* the last cut may have left a dead connection there */
    cut_arm(cut, &trial->point);
    trial->status = pqtx_run(pool, &options, trial->body->work, &trial->id, &trial->error);
    for (int from = 0; from < 2; from++)
        trial->count[from] = cut_count(cut, (enum cut_from)from);
    if (trial->point.where != CUT_NOWHERE) {
        judge(trial);
        ck_assert_msg(cut_done(cut) == cuts + 1, "%s: was not cut", trial->text);
    }
    if (trial->mode->event && trial->point.where != CUT_NOWHERE)
        run_again(trial, options);
}

/* ---- all of them */

struct tally {
    unsigned points, committed, rolled_back, in_doubt;
    uint64_t resolved;
};

static void add_trial(struct tally *tally, struct trial *trial)
{
    run_trial(trial);
    tally->points++;
    tally->committed += trial->status == PQTX_OK;
    tally->in_doubt += trial->status == PQTX_IN_DOUBT;
    tally->rolled_back += trial->status == PQTX_NO_CONNECTION;
    tally->resolved = stats_of(pool).resolved;
}

static void print_tally(const char *what, const struct mode *mode, const struct tally *tally)
{
    printf("%s, %-15s: %4u cut points, %4u committed, %3u rolled back, %2u in doubt, "
           "%3" PRIu64 " resolved\n",
           what, mode->name, tally->points, tally->committed, tally->rolled_back, tally->in_doubt,
           tally->resolved);
    fflush(stdout);
}

/* Runs it uncut, and counts. */
static void rehearse(struct trial *trial, struct cut_count count[2])
{
    trial->point = (struct cut_point){.where = CUT_NOWHERE};
    run_trial(trial);
    assert_status(trial->status, PQTX_OK, &trial->error);
    for (int from = 0; from < 2; from++) {
        count[from] = trial->count[from];
        ck_assert_uint_ge(count[from].flights, 2);
    }
}

static void cut_every_message(const struct mode *mode, const struct body *body, struct tally *tally)
{
    struct trial trial = {.mode = mode, .body = body};
    struct cut_count count[2];
    rehearse(&trial, count);
    for (int from = 0; from < 2; from++) {
        for (size_t n = 1; n <= count[from].messages; n++) {
            for (int where = CUT_BEFORE; where <= CUT_AFTER; where++) {
                size_t passed = where == CUT_AFTER ? n : n - 1;
                trial.may_doubt = passed >= count[from].messages - count[from].last_messages;
                trial.point = (struct cut_point){(enum cut_from)from, (enum cut_where)where, n, 0};
                add_trial(tally, &trial);
            }
        }
    }
    ck_assert_msg(strcmp(ask(monitor, body->sound), "t") == 0, "%s: %s", mode->name, body->sound);
}

START_TEST(an_outcome_is_true_whatever_message_was_the_last)
{
    struct tally tally = {0};
    for (int i = 0; i < BODIES; i++) {
        sql(monitor, "TRUNCATE mark, side; UPDATE counter SET value = 0");
        cut_every_message(&modes[_i], &bodies[i], &tally);
    }
    print_tally("every message", &modes[_i], &tally);
    ck_assert_uint_ge(tally.points, 200);
    ck_assert_uint_eq(tally.in_doubt > 0, _i == 0);
    ck_assert_uint_eq(tally.resolved > 0, _i != 0);
}
END_TEST

START_TEST(an_outcome_is_true_at_whatever_byte_of_commit_the_line_was_cut)
{
    struct tally tally = {0};
    struct trial trial = {.mode = &modes[_i], .body = &bodies[0]};
    struct cut_count count[2];
    rehearse(&trial, count);
    trial.may_doubt = true;
    for (int from = 0; from < 2; from++) {
        for (size_t n = 1; n <= count[from].last_bytes; n++) {
            trial.point =
                (struct cut_point){(enum cut_from)from, CUT_INSIDE, n, count[from].flights};
            add_trial(&tally, &trial);
        }
    }
    print_tally("every byte", &modes[_i], &tally);
    ck_assert_uint_ge(tally.points, 80);
    ck_assert_uint_eq(tally.in_doubt > 0, _i == 0);
    ck_assert_uint_eq(tally.resolved > 0, _i != 0);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("live_cut");
    TCase *c = tcase_create("cut");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_set_timeout(c, 300);
    tcase_add_loop_test(c, an_outcome_is_true_whatever_message_was_the_last, 0, MODES);
    tcase_add_loop_test(c, an_outcome_is_true_at_whatever_byte_of_commit_the_line_was_cut, 0,
                        MODES);
    suite_add_tcase(s, c);
    return s;
}

int main(void)
{
    return run_suite(suite());
}
