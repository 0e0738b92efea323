/* pool.c: whose connection, for how long.
 *
 * One mutex, held for a few instructions and never while anything waits for the network; a stack of
 * idle connections; a queue of waiting threads.
 * `open` counts connections and permissions to make one: who finds none idle takes a permission. */
#define _DEFAULT_SOURCE
#include "pool.h"
#include "budget.h"
#include "clock.h"
#include "connect.h"
#include "error.h"
#include "options.h"
#include "turn.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct pqtx_pool {
    atomic_uint refs;
    pid_t owner;
    pqtx_pool_options options;
    char *conninfo;
    const pqtx_clock *clock;

    pthread_mutex_t lock;
    bool closed;
    int32_t open, idle_count;
    struct pqtx__wire *idle; /* the newest first */
    struct pqtx__turns turns;
    int64_t suspect_us; /* a connection was lost then */
    struct pqtx__budget budget;
    pqtx_stats stats;
};

void pqtx__pool_ref(pqtx_pool *pool)
{
    atomic_fetch_add(&pool->refs, 1);
}

void pqtx__pool_unref(pqtx_pool *pool)
{
    if (atomic_fetch_sub(&pool->refs, 1) != 1)
        return;
    /* In a child the mutex may be held by a thread that is not there. */
    if (!pqtx__pool_is_foreign(pool))
        pthread_mutex_destroy(&pool->lock);
    free(pool->conninfo);
    free(pool);
}

bool pqtx__pool_is_foreign(const pqtx_pool *pool)
{
    return pool->owner != getpid();
}

const pqtx_clock *pqtx__pool_clock(const pqtx_pool *pool)
{
    return pool->clock;
}

void pqtx__pool_count(pqtx_pool *pool, size_t field)
{
    pthread_mutex_lock(&pool->lock);
    ++*(uint64_t *)((char *)&pool->stats + field);
    pthread_mutex_unlock(&pool->lock);
}

void pqtx__pool_earn(pqtx_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    pool->stats.starts++;
    pqtx__budget_earn(&pool->budget);
    pthread_mutex_unlock(&pool->lock);
}

bool pqtx__pool_spend(pqtx_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    bool spent = pqtx__budget_spend(&pool->budget);
    if (!spent)
        pool->stats.retries_refused++;
    pthread_mutex_unlock(&pool->lock);
    return spent;
}

static size_t bucket_of(int64_t us)
{
    size_t bucket = 0;
    while (bucket < PQTX_BUCKET_COUNT - 1 && us >> bucket > 0)
        bucket++;
    return bucket;
}

void pqtx__pool_time(pqtx_pool *pool, int64_t wait_us, int64_t run_us)
{
    pthread_mutex_lock(&pool->lock);
    pool->stats.wait_us += (uint64_t)wait_us;
    pool->stats.run_us += (uint64_t)run_us;
    pool->stats.wait_us_buckets[bucket_of(wait_us)]++;
    pool->stats.run_us_buckets[bucket_of(run_us)]++;
    pthread_mutex_unlock(&pool->lock);
}

/* Hands a wire, or with NULL a permission, to the thread that has waited longest.  Under the lock.
 */
static bool serve(pqtx_pool *pool, struct pqtx__wire *wire)
{
    return !pool->closed && pqtx__turns_serve(&pool->turns, wire);
}

/* A connection is gone: somebody else may make one.  Under the lock. */
static void give_permission_back(pqtx_pool *pool)
{
    if (!serve(pool, NULL))
        pool->open--;
}

static bool queue_up(pqtx_pool *pool, int64_t until_us, struct pqtx__wire **wire)
{
    return pqtx__turns_wait(&pool->turns, &pool->lock, &pool->closed, pool->clock, until_us, wire);
}

/* The idle connection that this thread had last, else the newest.  Under the lock. */
static struct pqtx__wire *take_idle(pqtx_pool *pool)
{
    struct pqtx__wire **at = &pool->idle;
    while (*at && !pthread_equal((*at)->last_thread, pthread_self()))
        at = &(*at)->next;
    if (!*at)
        at = &pool->idle;
    struct pqtx__wire *wire = *at;
    if (wire) {
        *at = wire->next;
        pool->idle_count--;
    }
    return wire;
}

static int64_t us(int64_t ms)
{
    return ms * 1000;
}

/* Whether an idle connection may still be used: too old it may not; idle for long, or from before
 * another one was lost, it is looked at first. */
static bool is_fit(pqtx_pool *pool, struct pqtx__wire *wire, int64_t suspect_us)
{
    int64_t now = pqtx__now(pool->clock);
    if (now - wire->opened_us > us(pool->options.age_limit_ms))
        return false;
    if (now - wire->idle_since_us <= us(pool->options.check_after_ms) &&
        wire->idle_since_us > suspect_us)
        return true;
    return !pqtx__wire_is_stale(wire);
}

/* With a permission in hand: makes the connection, or gives the permission back. */
static pqtx_status open_one(pqtx_pool *pool, int64_t until_us, struct pqtx__wire **wire,
                            pqtx_error *error)
{
    int64_t limit = pqtx__now(pool->clock) + us(pool->options.connect_timeout_ms);
    bool raw = pool->options.flags & PQTX_POOL_RAW_ERRORS;
    pqtx_status status = pqtx__connect(pool->conninfo, raw, pool->clock,
                                       limit < until_us ? limit : until_us, wire, error);
    pthread_mutex_lock(&pool->lock);
    if (status == PQTX_OK) {
        pool->stats.connects++;
    } else {
        pool->stats.connect_failures++;
        give_permission_back(pool);
    }
    pthread_mutex_unlock(&pool->lock);
    return status;
}

static pqtx_status refuse(pqtx_error *error, pqtx_status status, const char *why)
{
    pqtx__error_set(error, status, PQTX_PHASE_CONNECT, PQTX_ORIGIN_LIBRARY, "%s", why);
    return status;
}

/* An idle connection, or a permission to open one (NULL).  False: closed, or no turn in time. */
static bool claim(pqtx_pool *pool, int64_t until_us, struct pqtx__wire **wire)
{
    if (pool->closed)
        return false;
    if (pool->turns.count > 0) /* those who wait already come first */
        return queue_up(pool, until_us, wire);
    *wire = take_idle(pool);
    if (*wire)
        return true;
    if (pool->open == pool->options.max_count)
        return queue_up(pool, until_us, wire);
    pool->open++;
    return true;
}

/* The permission that came with it stays in hand. */
static void discard(pqtx_pool *pool, struct pqtx__wire *wire)
{
    pqtx__wire_close(wire, false);
    pthread_mutex_lock(&pool->lock);
    pool->stats.drops++;
    pool->suspect_us = pqtx__now(pool->clock);
    pthread_mutex_unlock(&pool->lock);
}

static pqtx_status acquire(pqtx_pool *pool, bool new, int64_t until_us, struct pqtx__wire **wire,
                           pqtx_error *error)
{
    *wire = NULL;
    if (pool->options.acquire_timeout_ms > 0) {
        int64_t limit = pqtx__now(pool->clock) + us(pool->options.acquire_timeout_ms);
        until_us = limit < until_us ? limit : until_us;
    }
    pthread_mutex_lock(&pool->lock);
    bool claimed = claim(pool, until_us, wire);
    bool closed = pool->closed;
    int64_t suspect_us = pool->suspect_us;
    pthread_mutex_unlock(&pool->lock);
    if (!claimed && closed)
        return refuse(error, PQTX_MISUSE, "the pool was closed");
    if (!claimed)
        return refuse(error, PQTX_TIMEOUT, "no connection of the pool became free in time");
    if (*wire && (new || !is_fit(pool, *wire, suspect_us))) {
        discard(pool, *wire);
        *wire = NULL;
    }
    if (!*wire && open_one(pool, until_us, wire, error) != PQTX_OK)
        return error->status;
    (*wire)->last_thread = pthread_self();
    return PQTX_OK;
}

pqtx_status pqtx__pool_acquire(pqtx_pool *pool, int64_t until_us, struct pqtx__wire **wire,
                               pqtx_error *error)
{
    return acquire(pool, false, until_us, wire, error);
}

pqtx_status pqtx__pool_acquire_new(pqtx_pool *pool, int64_t until_us, struct pqtx__wire **wire,
                                   pqtx_error *error)
{
    return acquire(pool, true, until_us, wire, error);
}

/* Unlinks what has been idle too long, the oldest at the end of the stack.  Under the lock. */
static struct pqtx__wire *take_expired(pqtx_pool *pool, int64_t now)
{
    struct pqtx__wire **at = &pool->idle;
    while (*at && now - (*at)->idle_since_us <= us(pool->options.idle_limit_ms))
        at = &(*at)->next;
    struct pqtx__wire *expired = *at;
    if (!expired || pool->open <= pool->options.min_count)
        return NULL;
    *at = expired->next;
    pool->idle_count--;
    pool->open--;
    return expired;
}

static bool is_clean(const struct pqtx__wire *wire)
{
    return !wire->lost && wire->count == 0 && PQstatus(wire->conn) == CONNECTION_OK &&
           PQtransactionStatus(wire->conn) == PQTRANS_IDLE;
}

void pqtx__pool_release(pqtx_pool *pool, struct pqtx__wire *wire)
{
    int64_t now = pqtx__now(pool->clock);
    bool clean = is_clean(wire);
    struct pqtx__wire *unwanted = NULL;
    wire->notice = NULL;
    wire->idle_since_us = now;
    pthread_mutex_lock(&pool->lock);
    if (!clean)
        pool->stats.drops++;
    if (wire->lost)
        pool->suspect_us = now;
    if (!clean || pool->closed) {
        give_permission_back(pool);
        unwanted = wire;
    } else if (!serve(pool, wire)) {
        wire->next = pool->idle;
        pool->idle = wire;
        pool->idle_count++;
        unwanted = take_expired(pool, now);
    }
    pthread_mutex_unlock(&pool->lock);
    if (unwanted)
        pqtx__wire_close(unwanted, false);
}

static pqtx_pool *create(const pqtx_pool_options *options)
{
    pqtx_pool *pool = calloc(1, sizeof *pool);
    if (!pool)
        return NULL;
    const char *conninfo = options->conninfo ? options->conninfo : "";
    size_t size = strlen(conninfo) + 1;
    pool->conninfo = malloc(size);
    if (!pool->conninfo || pthread_mutex_init(&pool->lock, NULL) != 0) {
        free(pool->conninfo);
        free(pool);
        return NULL;
    }
    memcpy(pool->conninfo, conninfo, size);
    pool->options = *options;
    pool->options.conninfo = pool->conninfo;
    pool->clock = options->clock;
    pool->owner = getpid();
    pqtx__turns_init(&pool->turns);
    pqtx__budget_init(&pool->budget, options->retry_percent, options->retry_burst);
    pool->suspect_us = INT64_MIN;
    atomic_init(&pool->refs, 1);
    return pool;
}

/* libpq's complaint quotes what it could not parse, which may be half a password. */
static bool parses(const char *conninfo)
{
    char *complaint = NULL;
    PQconninfoOption *parsed = PQconninfoParse(conninfo ? conninfo : "", &complaint);
    PQconninfoFree(parsed);
    PQfreemem(complaint);
    return parsed != NULL;
}

/* Fills the pool to its least size, which proves the connection string. */
static pqtx_status warm_up(pqtx_pool *pool, pqtx_error *error)
{
    int32_t count = pool->options.min_count > 0 ? pool->options.min_count : 1;
    struct pqtx__wire *made = NULL;
    pqtx_status status = PQTX_OK;
    for (int32_t i = 0; i < count && status == PQTX_OK; i++) {
        struct pqtx__wire *wire;
        status = pqtx__pool_acquire(pool, INT64_MAX, &wire, error);
        if (status == PQTX_OK) {
            wire->next = made;
            made = wire;
        }
    }
    while (made) {
        struct pqtx__wire *wire = made;
        made = wire->next;
        pqtx__pool_release(pool, wire);
    }
    return status;
}

pqtx_status pqtx_pool_open(const pqtx_pool_options *options, pqtx_pool **pool, pqtx_error *error)
{
    pqtx_error first = PQTX_ERROR;
    const char *why = NULL;
    pqtx_pool_options read;
    if (pool)
        *pool = NULL;
    if (!pool || (error && pqtx_error_init(error, error->size) != PQTX_OK))
        return PQTX_MISUSE;
    pqtx_status status = pqtx__pool_options_read(&read, options, &why);
    if (status == PQTX_OK && !parses(read.conninfo)) {
        why = "libpq cannot parse the connection string (not shown: it may hold a password)";
        status = PQTX_MISUSE;
    }
    if (status != PQTX_OK) {
        refuse(&first, status, why);
    } else if (!(*pool = create(&read))) {
        status = refuse(&first, PQTX_NO_MEMORY, "no memory for a pool");
    } else if (!(read.flags & PQTX_POOL_LAZY)) {
        status = warm_up(*pool, &first);
    }
    if (status != PQTX_OK) {
        pqtx_pool_close(*pool);
        *pool = NULL;
    }
    if (error)
        pqtx__error_export(&first, error);
    return status;
}

void pqtx_pool_close(pqtx_pool *pool)
{
    if (!pool)
        return;
    bool in_child = pqtx__pool_is_foreign(pool);
    if (!in_child)
        pthread_mutex_lock(&pool->lock);
    struct pqtx__wire *idle = pool->idle;
    pool->idle = NULL;
    pool->open -= pool->idle_count;
    pool->idle_count = 0;
    pool->closed = true;
    if (!in_child) {
        pqtx__turns_wake(&pool->turns);
        pthread_mutex_unlock(&pool->lock);
    }
    while (idle) {
        struct pqtx__wire *wire = idle;
        idle = wire->next;
        pqtx__wire_close(wire, in_child);
    }
    pqtx__pool_unref(pool);
}

pqtx_status pqtx_pool_stats(pqtx_pool *pool, pqtx_stats *stats)
{
    if (!pool || !stats || stats->size < sizeof stats->size || pqtx__pool_is_foreign(pool))
        return PQTX_MISUSE;
    size_t size = stats->size;
    pthread_mutex_lock(&pool->lock);
    pqtx_stats all = pool->stats;
    all.open_count = (uint64_t)pool->open;
    all.idle_count = (uint64_t)pool->idle_count;
    all.waiting_count = pool->turns.count;
    pthread_mutex_unlock(&pool->lock);
    memset(stats, 0, size);
    memcpy(stats, &all, size < sizeof all ? size : sizeof all);
    stats->size = size;
    return PQTX_OK;
}
