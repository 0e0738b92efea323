/* support_doubt.c: transactions whose connection goes at a chosen point. */
#define _DEFAULT_SOURCE
#include "support_doubt.h"
#include "clock.h"
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char schema_name[64];

void make_doubt(const char *schema)
{
    pqtx_error error = PQTX_ERROR;
    snprintf(schema_name, sizeof schema_name, "%s", schema);
    fresh_schema(schema);
    PGconn *session = open_session();
    sql(session, "CREATE TABLE mark (id bigint)");
    PQfinish(session);
    pqtx_pool *pool = open_pool(1);
    assert_status(pqtx_once_install(pool, schema, &error), PQTX_OK, &error);
    pqtx_pool_close(pool);
}

PGconn *open_doubt(void)
{
    char name[80];
    snprintf(name, sizeof name, "%s_%d", schema_name, (int)getpid());
    setenv("PGAPPNAME", name, 1);
    PGconn *monitor = open_session();
    sql(monitor, "TRUNCATE mark, pqtx_once");
    return monitor;
}

/* ---- Trials */

static void count_up(void *arg)
{
    ++*(int *)arg;
}

static pqtx_fault cut(pqtx_point point, uint32_t attempt, void *arg)
{
    struct trial *trial = arg;
    if (point == PQTX_POINT_COMMIT_SENT)
        atomic_store(&trial->commit_sent, attempt);
    if (point != trial->point || attempt > trial->last)
        return PQTX_FAULT_NONE;
    trial->cuts++;
    return PQTX_FAULT_CUT;
}

static pqtx_status body(pqtx_tx *tx, struct trial *trial)
{
    trial->runs++;
    pqtx_on_commit(tx, count_up, &trial->committed);
    pqtx_on_rollback(tx, count_up, &trial->rolled_back);
    if (trial->options.event_id)
        pqtx_once_store(tx, "done", 4);
    if (trial->id)
        pqtx_exec(tx, "INSERT INTO mark VALUES ($1)", PQTX_ARGS(PQTX_INT(trial->id)), NULL);
    else
        pqtx_exec(tx, "SELECT count(*) FROM mark", PQTX_NO_ARGS, NULL);
    return trial->fail ? pqtx_fail(tx, trial->fail) : PQTX_OK;
}

void trial_init(struct trial *trial, pqtx_pool *pool, pqtx_doubt in_doubt)
{
    static _Atomic int64_t id;
    memset(trial, 0, sizeof *trial);
    trial->pool = pool;
    trial->id = ++id;
    trial->options = (pqtx_options)PQTX_OPTIONS;
    trial->options.in_doubt = in_doubt;
    trial->options.once_schema = schema_name;
    trial->options.fault = cut;
    trial->options.max_attempts = 3;
}

const pqtx_options *trial_options(struct trial *trial)
{
    trial->evidence = (pqtx_evidence)PQTX_EVIDENCE;
    trial->ticket = (pqtx_ticket)PQTX_TICKET;
    trial->error = (pqtx_error)PQTX_ERROR;
    trial->options.evidence = &trial->evidence;
    trial->options.ticket = &trial->ticket;
    if (trial->options.fault == cut)
        trial->options.fault_arg = trial;
    trial->cuts = trial->runs = trial->committed = trial->rolled_back = 0;
    return &trial->options;
}

void trial_run(struct trial *trial)
{
    const pqtx_options *options = trial_options(trial);
    pqtx_tx *tx = trial->own ? pqtx_new_on(trial->own, options) : pqtx_new(trial->pool, options);
    while (pqtx_attempt(tx)) {
        body(tx, trial);
        pqtx_commit(tx);
    }
    trial->status = pqtx_result(tx);
    trial->outcome = pqtx_get_outcome(tx);
    trial->flags = pqtx_get_flags(tx);
    trial->attempts = pqtx_attempts(tx);
    pqtx_get_error(tx, &trial->error);
    trial->answer_len = 0;
    pqtx_once_answer(tx, trial->answer, sizeof trial->answer, &trial->answer_len);
    pqtx_free(tx);
}

int64_t rows_of(PGconn *monitor, const struct trial *trial, bool settled)
{
    char query[64];
    if (settled)
        wait_until_true(monitor, "SELECT count(*) = 0 FROM pg_stat_activity"
                                 " WHERE application_name = current_setting('application_name')"
                                 " AND pid <> pg_backend_pid() AND xact_start IS NOT NULL");
    snprintf(query, sizeof query, "SELECT count(*) FROM mark WHERE id = %lld",
             (long long)trial->id);
    return ask_int(monitor, query);
}

/* ---- Doubt that lasts */

static int64_t runaway_now(void *arg)
{
    struct runaway_clock *clock = arg;
    if (atomic_load(&clock->away))
        atomic_fetch_add(&clock->ahead_us, INT64_C(60000000));
    return pqtx__now(pqtx__clock(NULL)) + atomic_load(&clock->ahead_us);
}

static int runaway_wait(void *arg, int fd, int events, int64_t timeout_us)
{
    (void)arg;
    const pqtx_clock *system = pqtx__clock(NULL);
    return system->wait(system->arg, fd, events, timeout_us);
}

static uint64_t runaway_random(void *arg)
{
    (void)arg;
    const pqtx_clock *system = pqtx__clock(NULL);
    return system->random(system->arg);
}

void runaway_init(struct runaway_clock *clock)
{
    clock->clock =
        (pqtx_clock){sizeof clock->clock, clock, runaway_now, runaway_wait, runaway_random};
    atomic_init(&clock->away, false);
    atomic_init(&clock->ahead_us, 0);
}

struct departure {
    struct runaway_clock clock;
    pqtx_point point;
    pqtx_fault fault;
};

/* What a pooler has not yet passed on is lost when its client goes. */
static void wait_until_passed_on(void)
{
    PGconn *session = open_session();
    wait_until_true(session, "SELECT count(*) = 0 FROM pg_stat_activity"
                             " WHERE application_name = current_setting('application_name')"
                             " AND state = 'idle in transaction'");
    PQfinish(session);
}

static pqtx_fault depart(pqtx_point point, uint32_t attempt, void *arg)
{
    struct departure *departure = arg;
    (void)attempt;
    if (point != departure->point)
        return PQTX_FAULT_NONE;
    if (is_pooled() && point == PQTX_POINT_COMMIT_SENT)
        wait_until_passed_on();
    atomic_store(&departure->clock.away, true);
    return departure->fault;
}

pqtx_ticket leave_in_doubt(pqtx_doubt in_doubt, int64_t id, bool before)
{
    struct departure departure = {
        .point = before ? PQTX_POINT_COMMIT_BEGUN : PQTX_POINT_COMMIT_SENT,
        .fault = before ? PQTX_FAULT_CUT : PQTX_FAULT_NONE,
    };
    pqtx_pool_options options = PQTX_POOL_OPTIONS;
    pqtx_error error = PQTX_ERROR;
    pqtx_pool *pool;
    struct trial trial;
    runaway_init(&departure.clock);
    options.conninfo = pool_conninfo();
    options.clock = &departure.clock.clock;
    assert_status(pqtx_pool_open(&options, &pool, &error), PQTX_OK, &error);
    trial_init(&trial, pool, in_doubt);
    trial.id = id;
    trial.options.clock = options.clock;
    trial.options.fault = depart;
    trial.options.fault_arg = &departure;
    trial.options.resolve_ms = 1;
    trial.options.lock_timeout_ms = PQTX_NO_TIMEOUT;
    trial_run(&trial);
    assert_trial(&trial, PQTX_IN_DOUBT);
    ck_assert_int_eq(trial.outcome, PQTX_OUTCOME_IN_DOUBT);
    ck_assert_int_eq(trial.runs, 1);
    ck_assert_int_eq(trial.committed + trial.rolled_back, 0);
    pqtx_pool_close(pool);
    return trial.ticket;
}

/* ---- The gate */

void close_gate(PGconn *holder)
{
    sql(holder, "SELECT pg_advisory_lock(735117400)");
}

void open_gate(PGconn *holder)
{
    sql(holder, "SELECT pg_advisory_unlock(735117400)");
}
