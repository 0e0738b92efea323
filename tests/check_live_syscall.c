/* check_live_syscall.c: the n-th send, recv, poll or connect of a whole run fails, for every n; a
 * marker row, asked for over a line of its own, is the judge.
 *
 * The program's own definitions of these calls come before the C library's, for libpq too. */
#define _GNU_SOURCE
#undef _FORTIFY_SOURCE /* which would rename them */
#include "support.h"
#include "support_tx.h"

#include "clock.h"

#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#define SCHEMA "pqtx_syscall"

/* ---- the calls */

enum call { SEND, RECV, POLL, CONNECT, CALLS };

static const char *const call_names[CALLS] = {"send", "recv", "poll", "connect"};

/* An error that breaks the line; one that does not, and is over when the call is made again; one
 * after which libpq throws away what it had to send, and the line stands; or a call that does less
 * than it was asked. */
struct fault {
    const char *name;
    int error;
    enum { BREAKS, PASSES, DISCARDS, CURTAILS } kind;
    bool calls[CALLS]; /* which of them can fail so */
};

static const struct fault faults[] = {
    {"EIO", EIO, BREAKS, {true, true, true, true}},
    {"ECONNRESET", ECONNRESET, BREAKS, {true, true, false, true}},
    {"EPIPE", EPIPE, BREAKS, {true, true, false, false}},
    {"ETIMEDOUT", ETIMEDOUT, BREAKS, {true, true, false, true}},
    {"ENOMEM", ENOMEM, PASSES, {false, true, true, false}},
    {"ENOBUFS", ENOBUFS, DISCARDS, {true, false, false, false}},
    {"EAGAIN", EAGAIN, PASSES, {true, true, false, false}},
    {"EINTR", EINTR, PASSES, {true, true, true, true}},
    {"one byte", 0, CURTAILS, {true, true, false, false}},
};

enum { FAULTS = sizeof faults / sizeof faults[0] };

/* What is to go wrong; the calls are counted while it is armed. */
static struct plan {
    bool armed;
    const struct fault *fault;
    enum call call;
    size_t from, to; /* the n-th calls, from 1; to: the last one */
    size_t count[CALLS];
    size_t struck;
} plan;

static const struct fault *fault_at(enum call call)
{
    if (!plan.armed)
        return NULL;
    size_t n = ++plan.count[call];
    if (plan.call != call || n < plan.from || n > plan.to)
        return NULL;
    plan.struck++;
    return plan.fault;
}

static int refuse(const struct fault *fault, int fd)
{
    if (fault->kind == BREAKS && fd >= 0)
        shutdown(fd, SHUT_RDWR);
    errno = fault->error;
    return -1;
}

ssize_t send(int fd, const void *bytes, size_t len, int flags)
{
    ssize_t (*real)(int, const void *, size_t, int);
    *(void **)&real = dlsym(RTLD_NEXT, "send");
    const struct fault *fault = fault_at(SEND);
    if (fault && fault->kind != CURTAILS)
        return refuse(fault, fd);
    return real(fd, bytes, fault && len > 1 ? 1 : len, flags);
}

ssize_t recv(int fd, void *bytes, size_t len, int flags)
{
    ssize_t (*real)(int, void *, size_t, int);
    *(void **)&real = dlsym(RTLD_NEXT, "recv");
    const struct fault *fault = fault_at(RECV);
    if (fault && fault->kind != CURTAILS)
        return refuse(fault, fd);
    return real(fd, bytes, fault && len > 1 ? 1 : len, flags);
}

int poll(struct pollfd *polled, nfds_t count, int timeout)
{
    int (*real)(struct pollfd *, nfds_t, int);
    *(void **)&real = dlsym(RTLD_NEXT, "poll");
    const struct fault *fault = fault_at(POLL);
    return fault ? refuse(fault, count ? polled[0].fd : -1) : real(polled, count, timeout);
}

/* Where the library is built with _FORTIFY_SOURCE. */
int __poll_chk(struct pollfd *polled, nfds_t count, int timeout, size_t size);
int __poll_chk(struct pollfd *polled, nfds_t count, int timeout, size_t size)
{
    (void)size;
    return poll(polled, count, timeout);
}

/* An interrupted connect goes on by itself. */
int connect(int fd, const struct sockaddr *address, socklen_t len)
{
    int (*real)(int, const struct sockaddr *, socklen_t);
    *(void **)&real = dlsym(RTLD_NEXT, "connect");
    const struct fault *fault = fault_at(CONNECT);
    if (!fault || fault->kind == PASSES) {
        int rc = real(fd, address, len);
        return fault && rc == 0 ? refuse(fault, fd) : rc;
    }
    return refuse(fault, fd);
}

/* ---- the runs */

static PGconn *monitor;
static int64_t next_id;

static void set_up(void)
{
    fresh_schema(SCHEMA);
    monitor = open_session();
    sql(monitor, "CREATE TABLE mark (id bigint NOT NULL)");
    sql(monitor, pqtx_once_ddl());
}

static void tear_down(void)
{
    PQfinish(monitor);
}

enum { MARKS_MAX = 3 };

struct mode;

/* One run: what each of its marks came to. */
struct trial {
    const struct mode *mode;
    int64_t id; /* of the first mark */
    pqtx_status status[MARKS_MAX];
    pqtx_error error;
};

typedef void (*runner)(struct trial *trial, pqtx_pool *pool, const pqtx_options *options);

static void run_body(struct trial *trial, pqtx_pool *pool, const pqtx_options *options);
static void run_one(struct trial *trial, pqtx_pool *pool, const pqtx_options *options);
static void run_each(struct trial *trial, pqtx_pool *pool, const pqtx_options *options);
static void run_in_vain(struct trial *trial, pqtx_pool *pool, const pqtx_options *options);

#define BEGUN PQTX_ISO_SERIALIZABLE /* with BEGIN and COMMIT in the flight */

static const struct mode {
    const char *name;
    runner run;
    int marks;
    pqtx_doubt in_doubt;
    bool event, resolves;
    uint32_t flags;
    pqtx_isolation isolation;
    pqtx_status expected;
} modes[] = {
    {"report", run_body, 1, PQTX_DOUBT_REPORT, .event = false},
    {"xid", run_body, 1, PQTX_DOUBT_XID, .resolves = true},
    {"token", run_body, 1, PQTX_DOUBT_TOKEN, .resolves = true},
    {"event", run_body, 1, PQTX_DOUBT_REPORT, .event = true, .resolves = true},
    {"one flight", run_body, 1, PQTX_DOUBT_REPORT, .flags = PQTX_PIPELINE},
    {"one flight with BEGIN", run_body, 1, PQTX_DOUBT_REPORT, .flags = PQTX_PIPELINE,
     .isolation = BEGUN},
    {"one flight, token", run_body, 1, PQTX_DOUBT_TOKEN, .resolves = true, .flags = PQTX_PIPELINE},
    {"run one, event", run_one, 1, PQTX_DOUBT_REPORT, .event = true, .resolves = true},
    {"run each", run_each, MARKS_MAX, PQTX_DOUBT_REPORT, .event = false},
    {"in vain", run_in_vain, 1, PQTX_DOUBT_REPORT, .flags = PQTX_PIPELINE,
     .expected = PQTX_BAD_DATA},
    {"in vain with BEGIN", run_in_vain, 1, PQTX_DOUBT_REPORT, .flags = PQTX_PIPELINE,
     .isolation = BEGUN, .expected = PQTX_BAD_DATA},
};

enum { MODES = sizeof modes / sizeof modes[0], LASTING_MODES = 5 };

/* A clock on which sleeping takes no time of the world. */
static int64_t slept_us;

static int64_t now_us(void *arg)
{
    struct timespec now;
    (void)arg;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000 + slept_us;
}

static int wait_us(void *arg, int fd, int events, int64_t timeout_us)
{
    (void)arg;
    if (fd >= 0)
        return pqtx__clock(NULL)->wait(NULL, fd, events, timeout_us);
    slept_us += timeout_us;
    return 0;
}

static pqtx_status write_mark(pqtx_tx *tx, void *id)
{
    pqtx_exec(tx, "INSERT INTO mark VALUES ($1)", PQTX_ARGS(PQTX_INT(*(int64_t *)id)), NULL);
    return pqtx_exec(tx, "SELECT 1", PQTX_NO_ARGS, NULL);
}

static pqtx_status write_in_vain(pqtx_tx *tx, void *id)
{
    write_mark(tx, id);
    pqtx_exec(tx, "SELECT 1 / ($1::bigint - $1::bigint)", PQTX_ARGS(PQTX_INT(*(int64_t *)id)),
              NULL);
    return write_mark(tx, id);
}

static void run_body(struct trial *trial, pqtx_pool *pool, const pqtx_options *options)
{
    trial->status[0] = pqtx_run(pool, options, write_mark, &trial->id, &trial->error);
}

static void run_in_vain(struct trial *trial, pqtx_pool *pool, const pqtx_options *options)
{
    trial->status[0] = pqtx_run(pool, options, write_in_vain, &trial->id, &trial->error);
}

#define INSERT "INSERT INTO mark VALUES ($1)"

static void run_one(struct trial *trial, pqtx_pool *pool, const pqtx_options *options)
{
    trial->status[0] =
        pqtx_run_one(pool, options, INSERT, PQTX_ARGS(PQTX_INT(trial->id)), 1, NULL, &trial->error);
}

static void run_each(struct trial *trial, pqtx_pool *pool, const pqtx_options *options)
{
    pqtx_item items[MARKS_MAX];
    pqtx_value values[MARKS_MAX];
    for (int i = 0; i < MARKS_MAX; i++) {
        values[i] = pqtx_int(trial->id + i);
        items[i] = (pqtx_item)PQTX_ITEM;
        items[i].sql = INSERT;
        items[i].count = 1;
        items[i].values = &values[i];
        items[i].expected = 1;
    }
    pqtx_run_each(pool, options, items, MARKS_MAX, &trial->error);
    for (int i = 0; i < MARKS_MAX; i++) {
        trial->status[i] = items[i].status;
        PQclear(items[i].result);
    }
}

/* From opening the pool to closing it. */
static void run_whole(struct trial *trial, int64_t deadline_ms)
{
    char event_id[32];
    const struct mode *mode = trial->mode;
    pqtx_pool_options pool_options = PQTX_POOL_OPTIONS;
    pqtx_options options = PQTX_OPTIONS;
    pqtx_clock clock = *pqtx__clock(NULL);
    pqtx_pool *pool;
    clock.now_us = now_us;
    clock.wait = wait_us;
    snprintf(event_id, sizeof event_id, "event %lld", (long long)trial->id);
    pool_options.conninfo = test_conninfo();
    pool_options.flags = PQTX_POOL_LAZY;
    pool_options.clock = options.clock = &clock;
    options.in_doubt = mode->in_doubt;
    options.event_id = mode->event ? event_id : NULL;
    options.once_schema = SCHEMA;
    options.deadline_ms = deadline_ms;
    options.flags = mode->flags;
    options.isolation = mode->isolation;
    pqtx_status status = pqtx_pool_open(&pool_options, &pool, &trial->error);
    assert_status(status, PQTX_OK, &trial->error);
    mode->run(trial, pool, &options);
    pqtx_pool_close(pool);
}

/* The lock waits for whoever may still commit. */
static int64_t count_marks(int64_t id)
{
    char query[64];
    snprintf(query, sizeof query, "SELECT count(*) FROM mark WHERE id = %lld", (long long)id);
    sql(monitor, "BEGIN; LOCK TABLE mark IN SHARE MODE");
    int64_t marks = ask_int(monitor, query);
    sql(monitor, "COMMIT");
    return marks;
}

static void run_trial(struct trial *trial)
{
    trial->id = next_id;
    next_id += trial->mode->marks;
    trial->error = (pqtx_error)PQTX_ERROR;
    /* Nobody hears of what was thrown away: only the deadline ends the wait for an answer. */
    int64_t deadline_ms = plan.fault && plan.fault->kind == DISCARDS ? 100 : 30000;
    memset(plan.count, 0, sizeof plan.count);
    plan.struck = 0;
    plan.armed = true;
    run_whole(trial, deadline_ms);
    plan.armed = false;
}

static void judge_mark(const struct trial *trial, int mark, bool passing)
{
    char text[4096], what[128];
    pqtx_status status = trial->status[mark];
    const struct mode *mode = trial->mode;
    int64_t marks = count_marks(trial->id + mark);
    snprintf(what, sizeof what, "%s: %s at %s %zu: %d", mode->name, plan.fault->name,
             call_names[plan.call], plan.from, mark);
    pqtx_error_format(&trial->error, text, sizeof text);
    /* In how many pieces the answers come is not always the same. */
    ck_assert_msg(plan.struck > 0 || plan.from > 1, "%s: was not struck", what);
    ck_assert_msg(marks <= 1, "%s: applied %d times\n  %s", what, (int)marks, text);
    ck_assert_msg(mode->expected == PQTX_OK || (marks == 0 && status != PQTX_OK),
                  "%s: %s, although it cannot be\n  %s", what, pqtx_status_name(status), text);
    if (status != PQTX_IN_DOUBT)
        ck_assert_msg(marks == (status == PQTX_OK), "%s: %s, and %d marks\n  %s", what,
                      pqtx_status_name(status), (int)marks, text);
    /* What fails once only costs another attempt, or an answer that nobody finds out. */
    if (passing && (status != PQTX_IN_DOUBT || mode->resolves))
        ck_assert_msg(status == mode->expected, "%s: %s\n  %s", what, pqtx_status_name(status),
                      text);
}

static void judge(const struct trial *trial, bool passing)
{
    for (int mark = 0; mark < trial->mode->marks; mark++)
        judge_mark(trial, mark, passing);
}

/* As many of each call as there are without a fault. */
static void rehearse(struct trial *trial, size_t count[CALLS])
{
    plan = (struct plan){.fault = NULL};
    run_trial(trial);
    for (int mark = 0; mark < trial->mode->marks; mark++)
        assert_status(trial->status[mark], trial->mode->expected, &trial->error);
    memcpy(count, plan.count, sizeof plan.count);
    for (int call = 0; call < CALLS; call++)
        ck_assert_msg(count[call] > 0, "%s is not ours", call_names[call]);
}

/* An error that changes nothing, without end, is no failure, but a machine that stands still. */
static bool is_possible(const struct fault *fault, enum call call, bool lasting)
{
    return fault->calls[call] && !(lasting && fault->kind != BREAKS && fault->kind != CURTAILS);
}

static void strike(struct trial *trial, enum call call, size_t count, bool lasting)
{
    for (int i = 0; i < FAULTS; i++) {
        for (size_t n = 1; n <= count && is_possible(&faults[i], call, lasting); n++) {
            plan = (struct plan){.fault = &faults[i], .call = call, .from = n, .to = n};
            if (lasting)
                plan.to = SIZE_MAX;
            run_trial(trial);
            judge(trial, lasting ? faults[i].kind == CURTAILS : faults[i].kind != DISCARDS);
        }
    }
}

START_TEST(an_outcome_is_true_whichever_call_fails_once)
{
    struct trial trial = {.mode = &modes[_i / CALLS]};
    size_t count[CALLS];
    rehearse(&trial, count);
    strike(&trial, (enum call)(_i % CALLS), count[_i % CALLS], false);
    printf("%s: %s failed at each of its %zu calls\n", trial.mode->name, call_names[_i % CALLS],
           count[_i % CALLS]);
}
END_TEST

START_TEST(an_outcome_is_true_from_whichever_call_on_all_fail)
{
    struct trial trial = {.mode = &modes[_i / CALLS]};
    size_t count[CALLS];
    rehearse(&trial, count);
    strike(&trial, (enum call)(_i % CALLS), count[_i % CALLS], true);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("live_syscall");
    TCase *c = tcase_create("syscall");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_set_timeout(c, 60);
    tcase_add_loop_test(c, an_outcome_is_true_whichever_call_fails_once, 0, MODES * CALLS);
    tcase_add_loop_test(c, an_outcome_is_true_from_whichever_call_on_all_fail, 0,
                        LASTING_MODES * CALLS);
    suite_add_tcase(s, c);
    return s;
}

int main(void)
{
    return run_suite(suite());
}
