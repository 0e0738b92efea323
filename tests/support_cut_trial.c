/* support_cut_trial.c: transactions whose line is cut at a chosen place, and their judge. */
#include "support_cut_trial.h"
#include "support.h"
#include "support_tx.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const struct cut_mode cut_modes[CUT_MODES] = {
    {"report", PQTX_DOUBT_REPORT, false},        {"xid", PQTX_DOUBT_XID, false},
    {"token", PQTX_DOUBT_TOKEN, false},          {"event", PQTX_DOUBT_REPORT, true},
    {"event and token", PQTX_DOUBT_TOKEN, true},
};

static PGconn *monitor;
static struct cut *cut;
static pqtx_pool *pool;
static const char *schema_name;

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

void cut_set_up(const char *schema)
{
    schema_name = schema;
    fresh_schema(schema);
    monitor = open_session();
    sql(monitor, "CREATE TABLE mark (id bigint NOT NULL);"
                 "CREATE TABLE side (id bigint NOT NULL);"
                 "CREATE TABLE counter (value bigint NOT NULL);"
                 "INSERT INTO counter VALUES (0)");
    sql(monitor, pqtx_once_ddl());
    cut = cut_open();
    open_through();
}

void cut_tear_down(void)
{
    pqtx_pool_close(pool);
    cut_close(cut);
    PQfinish(monitor);
}

/* ---- one run */

static int marks_of(const struct cut_trial *trial)
{
    return trial->body->marks ? trial->body->marks : 1;
}

static void describe(struct cut_trial *trial)
{
    static const char *const where[] = {"nowhere", "before message", "after message", "at byte"};
    const struct cut_point *point = &trial->point;
    char flight[32] = "";
    if (point->where == CUT_INSIDE)
        snprintf(flight, sizeof flight, " of flight %zu", point->flight);
    snprintf(trial->text, sizeof trial->text, "%s, %s: cut %s %zu%s of the %s", trial->mode->name,
             trial->body->name, where[point->where], point->n, flight,
             point->from == CUT_CLIENT ? "client" : "server");
}

static pqtx_fault note_commit(pqtx_point point, uint32_t attempt, void *arg)
{
    struct cut_trial *trial = arg;
    (void)attempt;
    if (point != PQTX_POINT_COMMIT_BEGUN || trial->commits)
        return PQTX_FAULT_NONE;
    trial->commits = true;
    for (int from = 0; from < 2; from++)
        trial->before[from] = cut_count(cut, (enum cut_from)from);
    return PQTX_FAULT_NONE;
}

/* A cut after a message is at the same place as one before the next: the former is tried with a
 * single attempt, which shows what it came to, the latter with as many as it takes.  An event that
 * has no other resolver needs a second attempt in any case. */
static pqtx_options options_of(struct cut_trial *trial, const char *event_id)
{
    pqtx_options options = PQTX_OPTIONS;
    bool resolves_by_attempt = trial->mode->event && trial->mode->in_doubt == PQTX_DOUBT_REPORT;
    options.isolation = trial->body->isolation;
    options.flags = trial->body->flags;
    options.in_doubt = trial->mode->in_doubt;
    options.once_schema = schema_name;
    options.wait_first_ms = 1;
    options.event_id = trial->mode->event ? event_id : NULL;
    options.max_attempts = trial->point.where == CUT_BEFORE || resolves_by_attempt ? 10 : 1;
    if (trial->point.where == CUT_NOWHERE) {
        options.fault = note_commit;
        options.fault_arg = trial;
    }
    return options;
}

static void run_body(struct cut_trial *trial, const pqtx_options *options)
{
    trial->error = (pqtx_error)PQTX_ERROR;
    if (trial->body->run)
        trial->body->run(trial, options);
    else
        trial->status[0] =
            pqtx_run(trial->pool, options, trial->body->work, &trial->id, &trial->error);
}

/* The lock waits for whoever may still commit: COMMIT is sent when the mark has been written, or
 * together with it. */
static int64_t count_marks(int64_t id)
{
    char query[64];
    snprintf(query, sizeof query, "SELECT count(*) FROM mark WHERE id = %lld", (long long)id);
    sql(monitor, "BEGIN; LOCK TABLE mark IN SHARE MODE");
    int64_t marks = ask_int(monitor, query);
    sql(monitor, "COMMIT");
    return marks;
}

/* A transaction that writes in the flight that commits has no number to be asked for. */
static bool has_resolver(const struct cut_trial *trial)
{
    if (trial->mode->in_doubt == PQTX_DOUBT_XID)
        return !trial->body->knows_no_xid;
    return trial->mode->event || trial->mode->in_doubt == PQTX_DOUBT_TOKEN;
}

static void judge(const struct cut_trial *trial, int mark)
{
    char said[4096];
    pqtx_status status = trial->status[mark];
    const char *name = pqtx_status_name(status), *text = trial->text;
    int marks = (int)count_marks(trial->id + mark);
    pqtx_error_format(&trial->error, said, sizeof said);
    ck_assert_msg(marks <= 1, "%s: %d applied %d times\n  %s", text, mark, marks, said);
    if (status == PQTX_OK)
        ck_assert_msg(marks == 1, "%s: %d committed, and not there\n  %s", text, mark, said);
    else if (status == PQTX_IN_DOUBT)
        ck_assert_msg(!has_resolver(trial) && trial->may_doubt, "%s: %d in doubt\n  %s", text, mark,
                      said);
    else
        ck_assert_msg(marks == 0 && status == PQTX_NO_CONNECTION, "%s: %d %s, and %d marks\n  %s",
                      text, mark, name, marks, said);
    ck_assert_msg(status == PQTX_OK || trial->point.where != CUT_BEFORE || status == PQTX_IN_DOUBT,
                  "%s: %d not begun again: %s", text, mark, said);
}

/* An event that was applied is not applied again; one that was not, is. */
static void run_again(const struct cut_trial *trial, pqtx_options options)
{
    struct cut_trial again = *trial;
    options.max_attempts = 10;
    run_body(&again, &options);
    assert_status(again.status[0], trial->status[0] == PQTX_OK ? PQTX_DONE_BEFORE : PQTX_OK,
                  &again.error);
    ck_assert_msg(count_marks(trial->id) == 1, "%s: run again", trial->text);
}

static void run_trial(struct cut_trial *trial)
{
    char event_id[32];
    size_t cuts = cut_done(cut);
    describe(trial);
    trial->pool = pool;
    trial->id = next_id;
    next_id += marks_of(trial);
    snprintf(event_id, sizeof event_id, "event %lld", (long long)trial->id);
    pqtx_options options = options_of(trial, event_id);
    run_for_pid(pool, NULL); /* the last cut may have left a dead connection there */
    cut_arm(cut, &trial->point);
    run_body(trial, &options);
    for (int from = 0; from < 2; from++)
        trial->count[from] = cut_count(cut, (enum cut_from)from);
    if (trial->point.where == CUT_NOWHERE)
        return;
    for (int mark = 0; mark < marks_of(trial); mark++)
        judge(trial, mark);
    ck_assert_msg(cut_done(cut) == cuts + 1, "%s: was not cut", trial->text);
    if (trial->mode->event)
        run_again(trial, options);
}

/* ---- all of them */

static void add_trial(struct cut_tally *tally, struct cut_trial *trial)
{
    run_trial(trial);
    tally->points++;
    tally->resolved = stats_of(pool).resolved;
    for (int mark = 0; mark < marks_of(trial); mark++) {
        pqtx_status status = trial->status[mark];
        tally->committed += status == PQTX_OK;
        tally->in_doubt += status == PQTX_IN_DOUBT;
        tally->rolled_back += status == PQTX_NO_CONNECTION;
    }
}

/* Runs it uncut, and counts. */
static struct cut_trial rehearse(const struct cut_mode *mode, const struct cut_body *body)
{
    struct cut_trial trial = {.mode = mode, .body = body, .point = {.where = CUT_NOWHERE}};
    sql(monitor, "TRUNCATE mark, side; UPDATE counter SET value = 0");
    run_trial(&trial);
    for (int mark = 0; mark < marks_of(&trial); mark++)
        assert_status(trial.status[mark], PQTX_OK, &trial.error);
    ck_assert_uint_lt(trial.before[CUT_CLIENT].flights, trial.count[CUT_CLIENT].flights);
    return trial;
}

static void find_sound(const struct cut_mode *mode, const struct cut_body *body)
{
    ck_assert_msg(strcmp(ask(monitor, body->sound), "t") == 0, "%s: %s", mode->name, body->sound);
}

void cut_every_message(const struct cut_mode *mode, const struct cut_body *body, size_t first,
                       size_t step, struct cut_tally *tally)
{
    const struct cut_trial rehearsal = rehearse(mode, body);
    struct cut_trial trial = rehearsal;
    for (int from = 0; from < 2; from++) {
        for (size_t n = first; n <= rehearsal.count[from].messages; n += step) {
            for (int where = CUT_BEFORE; where <= CUT_AFTER; where++) {
                size_t passed = where == CUT_AFTER ? n : n - 1;
                trial.may_doubt = passed >= rehearsal.before[from].messages;
                trial.point = (struct cut_point){(enum cut_from)from, (enum cut_where)where, n, 0};
                add_trial(tally, &trial);
            }
        }
    }
    find_sound(mode, body);
}

void cut_every_byte(const struct cut_mode *mode, const struct cut_body *body, size_t first,
                    size_t step, struct cut_tally *tally)
{
    const struct cut_trial rehearsal = rehearse(mode, body);
    struct cut_trial trial = rehearsal;
    trial.may_doubt = true;
    for (int from = 0; from < 2; from++) {
        const struct cut_count *count = &rehearsal.count[from];
        ck_assert_uint_le(count->flights, CUT_FLIGHTS_MAX);
        for (size_t i = rehearsal.before[from].flights; i < count->flights; i++) {
            for (size_t n = first; n <= count->bytes[i]; n += step) {
                trial.point = (struct cut_point){(enum cut_from)from, CUT_INSIDE, n, i + 1};
                add_trial(tally, &trial);
            }
        }
    }
    find_sound(mode, body);
}

void print_tally(const char *what, const struct cut_mode *mode, const struct cut_tally *tally)
{
    printf("%s, %-15s: %4u cut points, %4u committed, %4u rolled back, %4u in doubt, "
           "%4" PRIu64 " resolved\n",
           what, mode->name, tally->points, tally->committed, tally->rolled_back, tally->in_doubt,
           tally->resolved);
    fflush(stdout);
}
