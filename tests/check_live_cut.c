/* check_live_cut.c: the line is cut at every message of a transaction, and at every byte of COMMIT
 * and of its answer; a marker row, asked for over a line of its own, is the judge. */
#include "support.h"
#include "support_cut_trial.h"

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

static const struct cut_body bodies[] = {
    {.name = "one statement", .work = write_mark, .sound = "SELECT true"},
    {.name = "several with savepoints",
     .work = write_several,
     .sound = "SELECT array(SELECT id FROM mark ORDER BY id) ="
              " array(SELECT id FROM side ORDER BY id)"},
    {.name = "serializable read, then write",
     .isolation = PQTX_ISO_SERIALIZABLE,
     .work = read_then_write,
     .sound = "SELECT value = (SELECT count(*) FROM mark) FROM counter"},
};

enum { BODIES = sizeof bodies / sizeof bodies[0] };

/* ---- the cuts */

static void set_up(void)
{
    cut_set_up("pqtx_cut");
}

START_TEST(an_outcome_is_true_whatever_message_was_the_last)
{
    struct cut_tally tally = {0};
    for (int i = 0; i < BODIES; i++)
        cut_every_message(&cut_modes[_i], &bodies[i], 1, 1, &tally);
    print_tally("every message", &cut_modes[_i], &tally);
    ck_assert_uint_ge(tally.points, 200);
    ck_assert_uint_eq(tally.in_doubt > 0, _i == CUT_REPORT);
    ck_assert_uint_eq(tally.resolved > 0, _i != CUT_REPORT);
}
END_TEST

START_TEST(an_outcome_is_true_at_whatever_byte_of_commit_the_line_was_cut)
{
    struct cut_tally tally = {0};
    cut_every_byte(&cut_modes[_i], &bodies[0], 1, 1, &tally);
    print_tally("every byte", &cut_modes[_i], &tally);
    ck_assert_uint_ge(tally.points, 80);
    ck_assert_uint_eq(tally.in_doubt > 0, _i == CUT_REPORT);
    ck_assert_uint_eq(tally.resolved > 0, _i != CUT_REPORT);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("live_cut");
    TCase *c = tcase_create("cut");
    tcase_add_checked_fixture(c, set_up, cut_tear_down);
    tcase_set_timeout(c, 300);
    tcase_add_loop_test(c, an_outcome_is_true_whatever_message_was_the_last, 0, CUT_MODES);
    tcase_add_loop_test(c, an_outcome_is_true_at_whatever_byte_of_commit_the_line_was_cut, 0,
                        CUT_MODES);
    suite_add_tcase(s, c);
    return s;
}

int main(void)
{
    return run_suite(suite());
}
