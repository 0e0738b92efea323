/* check_live_cut_flight.c: the line is cut at every message and byte of a transaction that commits
 * in one flight; marker rows, asked for over a line of their own, are the judge. */
#include "support.h"
#include "support_cut_trial.h"

/* ---- the bodies */

static pqtx_status count_up(pqtx_tx *tx)
{
    return pqtx_update_one(tx, "UPDATE counter SET value = value + 1", PQTX_NO_ARGS);
}

static pqtx_status write_mark(pqtx_tx *tx, void *id)
{
    return pqtx_update_one(tx, "INSERT INTO mark VALUES ($1)", PQTX_ARGS(PQTX_INT(*(int64_t *)id)));
}

static pqtx_status count_and_mark(pqtx_tx *tx, void *id)
{
    count_up(tx);
    return write_mark(tx, id);
}

static pqtx_status write_side_in_vain(pqtx_tx *tx, void *id)
{
    pqtx_status status =
        pqtx_exec(tx, "INSERT INTO side VALUES ($1)", PQTX_ARGS(PQTX_INT(*(int64_t *)id)), NULL);
    return status == PQTX_OK ? PQTX_USER : status;
}

static pqtx_status mark_behind_savepoint(pqtx_tx *tx, void *id)
{
    count_up(tx);
    pqtx_status status = pqtx_savepoint(tx, write_side_in_vain, id);
    return status == PQTX_USER ? write_mark(tx, id) : status;
}

static pqtx_status read_flush_write(pqtx_tx *tx, void *id)
{
    const PGresult *result;
    int64_t value;
    pqtx_exec_one(tx, "SELECT value FROM counter", PQTX_NO_ARGS, &result);
    pqtx_status status = pqtx_flush(tx);
    if (status == PQTX_OK)
        status = pqtx_get_int(result, 0, 0, &value);
    if (status != PQTX_OK)
        return status;
    pqtx_update_one(tx, "UPDATE counter SET value = $1", PQTX_ARGS(PQTX_INT(value + 1)));
    return write_mark(tx, id);
}

#define INSERT "WITH up AS (UPDATE counter SET value = value + 1) INSERT INTO mark VALUES ($1)"

static void run_one(struct cut_trial *trial, const pqtx_options *options)
{
    trial->status[0] = pqtx_run_one(trial->pool, options, "INSERT INTO mark VALUES ($1)",
                                    PQTX_ARGS(PQTX_INT(trial->id)), 1, NULL, &trial->error);
}

static void run_each(struct cut_trial *trial, const pqtx_options *options)
{
    pqtx_item items[CUT_MARKS_MAX];
    pqtx_value values[CUT_MARKS_MAX];
    for (int i = 0; i < CUT_MARKS_MAX; i++) {
        values[i] = pqtx_int(trial->id + i);
        items[i] = (pqtx_item)PQTX_ITEM;
        items[i].sql = INSERT;
        items[i].count = 1;
        items[i].values = &values[i];
        items[i].expected = PQTX_ANY_ROWS;
    }
    pqtx_run_each(trial->pool, options, items, CUT_MARKS_MAX, &trial->error);
    for (int i = 0; i < CUT_MARKS_MAX; i++) {
        trial->status[i] = items[i].status;
        PQclear(items[i].result);
    }
}

#define COUNTED "SELECT value = (SELECT count(*) FROM mark) FROM counter"

static const struct cut_body bodies[] = {
    {.name = "one statement",
     .flags = PQTX_PIPELINE,
     .work = write_mark,
     .knows_no_xid = true,
     .sound = "SELECT true"},
    {.name = "run one", .run = run_one, .knows_no_xid = true, .sound = "SELECT true"},
    {.name = "run each",
     .run = run_each,
     .marks = CUT_MARKS_MAX,
     .knows_no_xid = true,
     .sound = COUNTED},
    {.name = "two guarded updates",
     .flags = PQTX_PIPELINE,
     .work = count_and_mark,
     .knows_no_xid = true,
     .sound = COUNTED},
    {.name = "serializable",
     .isolation = PQTX_ISO_SERIALIZABLE,
     .flags = PQTX_PIPELINE,
     .work = count_and_mark,
     .knows_no_xid = true,
     .sound = COUNTED},
    {.name = "behind a savepoint",
     .flags = PQTX_PIPELINE,
     .work = mark_behind_savepoint,
     .sound = "SELECT value = (SELECT count(*) FROM mark) AND NOT EXISTS (SELECT FROM side)"
              " FROM counter"},
    {.name = "read, flush, write",
     .flags = PQTX_PIPELINE,
     .work = read_flush_write,
     .knows_no_xid = true,
     .sound = COUNTED},
};

enum { ONE, RUN_ONE, RUN_EACH, TWO, SERIALIZABLE, BODIES = sizeof bodies / sizeof bodies[0] };

/* An event would stand for all of them. */
static bool goes_together(int mode, int body)
{
    return body != RUN_EACH || !cut_modes[mode].event;
}

/* ---- the cuts */

static void set_up(void)
{
    cut_set_up("pqtx_cut_flight");
}

static void expect_doubt_only_without_resolver(int mode, const struct cut_tally *tally)
{
    ck_assert_uint_eq(tally->in_doubt > 0, mode == CUT_REPORT || mode == CUT_XID);
    ck_assert(tally->resolved > 0 || mode == CUT_REPORT || mode == CUT_XID);
}

/* Each place is that after one message and before the next, and is tried in one of these ways. */
START_TEST(an_outcome_is_true_whatever_message_of_a_flight_was_the_last)
{
    struct cut_tally tally = {0};
    for (int body = 0; body < BODIES; body++)
        if (goes_together(_i, body))
            cut_every_message(&cut_modes[_i], &bodies[body], 1 + (size_t)_i % 2, 2, &tally);
    print_tally("every message", &cut_modes[_i], &tally);
    ck_assert_uint_ge(tally.points, 200);
    expect_doubt_only_without_resolver(_i, &tally);
}
END_TEST

/* Other bytes in each mode and body, so that all of them are tried. */
START_TEST(an_outcome_is_true_at_whatever_byte_of_the_flight_the_line_was_cut)
{
    enum { STEP = 23 };
    struct cut_tally tally = {0};
    for (int body = ONE; body <= SERIALIZABLE; body++)
        if (goes_together(_i, body))
            cut_every_byte(&cut_modes[_i], &bodies[body], 1 + (size_t)(5 * _i + body) % STEP, STEP,
                           &tally);
    print_tally("every 23rd byte", &cut_modes[_i], &tally);
    ck_assert_uint_ge(tally.points, 100);
    expect_doubt_only_without_resolver(_i, &tally);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("live_cut_flight");
    TCase *c = tcase_create("cut");
    tcase_add_checked_fixture(c, set_up, cut_tear_down);
    tcase_set_timeout(c, 300);
    tcase_add_loop_test(c, an_outcome_is_true_whatever_message_of_a_flight_was_the_last, 0,
                        CUT_MODES);
    tcase_add_loop_test(c, an_outcome_is_true_at_whatever_byte_of_the_flight_the_line_was_cut, 0,
                        CUT_MODES);
    suite_add_tcase(s, c);
    return s;
}

int main(void)
{
    return run_suite(suite());
}
