/* lend.c: whose connection, for how long.
 *
 * One mutex, held for a few instructions and never while anything waits for the network; a stack of
 * idle connections; a queue of waiting threads. */
#include "lend.h"
#include "clock.h"
#include "connect.h"
#include "error.h"

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

/* Idle or alive for longer than it should be. */
static bool is_worn(const pqtx_pool *pool, const struct pqtx__wire *wire, int64_t now)
{
    return now - wire->opened_us > us(pool->options.age_limit_ms) ||
           now - wire->idle_since_us > us(pool->options.idle_limit_ms);
}

/* Idle for long, or from before another one was lost, it is looked at before it is used. */
static bool is_dead(const pqtx_pool *pool, struct pqtx__wire *wire, int64_t suspect_us, int64_t now)
{
    int64_t idle_us = now - wire->idle_since_us;
    bool trusted = idle_us <= us(pool->options.check_after_ms) && wire->idle_since_us > suspect_us;
    return !trusted && pqtx__wire_is_stale(wire);
}

/* With a permission in hand: makes the connection, or gives the permission back. */
static pqtx_status open_one(pqtx_pool *pool, int64_t until_us, struct pqtx__wire **wire,
                            pqtx_error *error)
{
    int64_t limit = pqtx__now(pool->clock) + us(pool->options.connect_timeout_ms);
    bool raw = pool->options.flags & PQTX_POOL_RAW_ERRORS;
    pqtx_status status = pqtx__connect(&pool->hosts, raw, pool->clock,
                                       limit < until_us ? limit : until_us, wire, error);
    pthread_mutex_lock(&pool->lock);
    bool prepares = !pool->never_prepares;
    if (status == PQTX_OK) {
        pool->stats.connects++;
    } else {
        pool->stats.connect_failures++;
        give_permission_back(pool);
    }
    pthread_mutex_unlock(&pool->lock);
    if (status == PQTX_OK && prepares &&
        ((*wire)->backend.pid != 0 || (pool->options.flags & PQTX_POOL_PREPARE_ALWAYS)))
        (*wire)->cache = pqtx__cache_new();
    return status;
}

static pqtx_status refuse(pqtx_error *error, pqtx_status status, const char *why)
{
    pqtx__error_set(error, status, PQTX_PHASE_CONNECT, PQTX_ORIGIN_LIBRARY, "%s", why);
    return status;
}

/* An idle connection, or a permission to open one (NULL).  False: closed, or no turn in time. */
static bool claim(pqtx_pool *pool, bool new, int64_t until_us, struct pqtx__wire **wire)
{
    if (pool->closed && new) { /* to find out what became of a transaction that is under way */
        pool->open++;
        return true;
    }
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

static void count_loss(pqtx_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    pool->stats.drops++;
    pool->suspect_us = pqtx__now(pool->clock);
    pthread_mutex_unlock(&pool->lock);
}

static pqtx_status acquire(pqtx_pool *pool, bool new, int64_t timeout_us, struct pqtx__wire **wire,
                           pqtx_error *error)
{
    *wire = NULL;
    int64_t now = pqtx__now(pool->clock), until_us = now + timeout_us;
    int64_t limit_us = us(pool->options.acquire_timeout_ms);
    bool limited = limit_us > 0 && limit_us < timeout_us;
    pthread_mutex_lock(&pool->lock);
    bool claimed = claim(pool, new, limited ? now + limit_us : until_us, wire);
    bool closed = pool->closed, never_prepares = pool->never_prepares;
    int64_t suspect_us = pool->suspect_us;
    pthread_mutex_unlock(&pool->lock);
    if (!claimed && closed)
        return refuse(error, PQTX_MISUSE, "the pool was closed");
    if (!claimed)
        return refuse(error, PQTX_TIMEOUT, "no connection of the pool became free in time");
    if (*wire && is_dead(pool, *wire, suspect_us, now)) {
        count_loss(pool);
        pqtx__wire_close(*wire, false);
        *wire = NULL;
    } else if (*wire && (new || is_worn(pool, *wire, now))) {
        pqtx__wire_close(*wire, false);
        *wire = NULL;
    }
    if (!*wire && open_one(pool, until_us, wire, error) != PQTX_OK)
        return error->status;
    if ((*wire)->cache && never_prepares) {
        pqtx__cache_free((*wire)->cache);
        (*wire)->cache = NULL;
    }
    (*wire)->last_thread = pthread_self();
    return PQTX_OK;
}

pqtx_status pqtx__pool_acquire(pqtx_pool *pool, int64_t timeout_us, struct pqtx__wire **wire,
                               pqtx_error *error)
{
    return acquire(pool, false, timeout_us, wire, error);
}

pqtx_status pqtx__pool_acquire_new(pqtx_pool *pool, int64_t timeout_us, struct pqtx__wire **wire,
                                   pqtx_error *error)
{
    return acquire(pool, true, timeout_us, wire, error);
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

/* A pooler that gives each transaction another session loses what was prepared: then statements are
 * sent as they are, by all connections of the pool.  Under the lock. */
static void heed_stale(pqtx_pool *pool, struct pqtx__wire *wire)
{
    pool->never_prepares |= wire->stale && wire->backend.pid == 0;
    wire->stale = false;
}

void pqtx__pool_release(pqtx_pool *pool, struct pqtx__wire *wire)
{
    int64_t now = pqtx__now(pool->clock);
    bool clean = is_clean(wire);
    struct pqtx__wire *unwanted = NULL;
    for (PGnotify *note; (note = PQnotifies(wire->conn)) != NULL; PQfreemem(note))
        continue; /* nobody else would take them */
    wire->notice = NULL;
    wire->clock = pool->clock;
    wire->idle_since_us = now;
    pthread_mutex_lock(&pool->lock);
    if (!clean)
        pool->stats.drops++;
    heed_stale(pool, wire);
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
