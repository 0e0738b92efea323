/* support_fake_trial.c: one transaction on the fake server, and all that came of it. */
#include "support_fake_trial.h"
#include "support.h"

#include <string.h>

static void find_no_secret(const char *text)
{
    ck_assert_msg(!strstr(text, FAKE_PASSWORD), "the password is to be read: %s", text);
}

static void observe(const pqtx_event *event, void *arg)
{
    struct fake_trial *trial = arg;
    find_no_secret(event->message);
    switch (event->type) {
    case PQTX_EVENT_NOTICE:
        trial->notices++;
        break;
    case PQTX_EVENT_FAILED:
        trial->failures++;
        break;
    case PQTX_EVENT_END:
        trial->ends++;
        trial->status = event->status;
        trial->outcome = event->outcome;
        trial->flags = event->flags;
        break;
    default:
        break;
    }
}

static void ignore(void *arg, const PGresult *notice)
{
    (void)arg;
    (void)notice;
}

static void begin(struct fake_trial *trial, uint32_t flags)
{
    pqtx_pool_options options = PQTX_POOL_OPTIONS;
    pqtx_error error = PQTX_ERROR;
    memset(trial, 0, sizeof *trial);
    trial->fake = fake_open();
    trial->options = (pqtx_options)PQTX_OPTIONS;
    trial->options.clock = &trial->fake->clock;
    trial->options.observer = observe;
    trial->options.observer_arg = trial;
    trial->options.evidence = &trial->evidence;
    trial->options.ticket = &trial->ticket;
    trial->error = (pqtx_error)PQTX_ERROR;
    trial->evidence = (pqtx_evidence)PQTX_EVIDENCE;
    trial->ticket = (pqtx_ticket)PQTX_TICKET;
    options.conninfo = trial->fake->conninfo;
    options.max_count = 1;
    options.flags = flags;
    options.clock = &trial->fake->clock;
    assert_status(pqtx_pool_open(&options, &trial->pool, &error), PQTX_OK, &error);
}

void fake_trial_begin(struct fake_trial *trial)
{
    begin(trial, 0);
}

void fake_trial_begin_lazily(struct fake_trial *trial)
{
    begin(trial, PQTX_POOL_LAZY);
}

static void count_commit(void *arg)
{
    ((struct fake_trial *)arg)->commit_actions++;
}

static void count_rollback(void *arg)
{
    ((struct fake_trial *)arg)->rollback_actions++;
}

static void body(struct fake_trial *trial, pqtx_tx *tx)
{
    trial->bodies++;
    pqtx_on_commit(tx, count_commit, trial);
    pqtx_on_rollback(tx, count_rollback, trial);
    pqtx_exec(tx, "INSERT INTO mark VALUES ($1)", PQTX_ARGS(PQTX_INT(1)), NULL);
    if (trial->inside)
        trial->inside(trial, tx);
}

/* What the caller is told when it asks is what the observer was told at the end. */
static void read_end(struct fake_trial *trial, pqtx_tx *tx)
{
    assert_status(pqtx_get_error(tx, &trial->error), PQTX_OK, NULL);
    if (!trial->options.observer) {
        trial->status = pqtx_result(tx);
        trial->outcome = pqtx_get_outcome(tx);
        trial->flags = pqtx_get_flags(tx);
    }
    assert_status(pqtx_result(tx), trial->status, &trial->error);
    ck_assert_int_eq(pqtx_get_outcome(tx), trial->outcome);
    ck_assert_uint_eq(pqtx_get_flags(tx), trial->flags);
    trial->attempts = pqtx_attempts(tx);
}

static void compare(const struct fake_trial *trial)
{
    bool succeeded = trial->status == PQTX_OK;
    bool in_doubt = trial->status == PQTX_IN_DOUBT;
    ck_assert_int_eq(trial->ends, trial->options.observer != NULL);
    ck_assert_int_eq(trial->outcome, succeeded || trial->status == PQTX_DONE_BEFORE
                                         ? PQTX_OUTCOME_COMMITTED
                                     : in_doubt ? PQTX_OUTCOME_IN_DOUBT
                                                : PQTX_OUTCOME_ROLLED_BACK);
    ck_assert_int_eq(trial->commit_actions, succeeded);
    ck_assert_int_eq(trial->rollback_actions, trial->bodies - (succeeded || in_doubt ? 1 : 0));
    if (trial->options.observer)
        ck_assert_uint_eq(trial->evidence.count, (uint32_t)trial->failures);
}

static void find_no_secrets(const struct fake_trial *trial)
{
    char line[8192];
    pqtx_error_format(&trial->error, line, sizeof line);
    find_no_secret(line);
    for (uint32_t i = 0; i < trial->evidence.count && i < PQTX_RECORD_COUNT; i++)
        find_no_secret(trial->evidence.records[i].message);
}

void fake_trial_run(struct fake_trial *trial)
{
    if (trial->own)
        PQsetNoticeReceiver(trial->own, ignore, NULL);
    trial->began_us = trial->fake->now_us;
    pqtx_tx *tx = trial->own ? pqtx_new_on(trial->own, &trial->options)
                             : pqtx_new(trial->pool, &trial->options);
    while (pqtx_attempt(tx)) {
        body(trial, tx);
        pqtx_commit(tx);
    }
    trial->ended_us = trial->fake->now_us;
    read_end(trial, tx);
    pqtx_free(tx);
    compare(trial);
    find_no_secrets(trial);
}

static void forget_standing_scripts(struct fake *fake)
{
    for (size_t i = 0; i < fake->rule_count; i++)
        ck_assert_msg(fake->rules[i].always, "was not used: %s", fake->rules[i].script);
    fake_forget(fake);
}

static pqtx_status write_mark(pqtx_tx *tx, void *arg)
{
    (void)arg;
    return pqtx_exec_one(tx, "INSERT INTO mark VALUES (2)", PQTX_NO_ARGS, NULL);
}

void fake_trial_end(struct fake_trial *trial)
{
    pqtx_options options = PQTX_OPTIONS;
    pqtx_error error = PQTX_ERROR;
    pqtx_stats stats = PQTX_STATS;
    options.clock = trial->options.clock;
    options.max_attempts = 1;
    forget_standing_scripts(trial->fake);
    assert_status(pqtx_run(trial->pool, &options, write_mark, NULL, &error), PQTX_OK, &error);
    pqtx_pool_stats(trial->pool, &stats);
    ck_assert_uint_eq(stats.open_count, 1);
    ck_assert_uint_eq(stats.idle_count, 1);
    pqtx_pool_close(trial->pool);
    PQfinish(trial->own);
    fake_close(trial->fake);
}
