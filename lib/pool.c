/* pool.c: a pool opened, counted and closed; lend.c has what it does in between. */
#define _DEFAULT_SOURCE
#include "pool.h"
#include "clock.h"
#include "error.h"
#include "options.h"
#include "size.h"

#include <stdlib.h>
#include <string.h>

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
    pqtx__birth_forget(&pool->birth);
    pqtx__hosts_free(&pool->hosts);
    free(pool->conninfo);
    free(pool);
}

const struct pqtx__birth *pqtx__pool_birth(const pqtx_pool *pool)
{
    return &pool->birth;
}

bool pqtx__pool_is_foreign(const pqtx_pool *pool)
{
    return !pqtx__born_here(&pool->birth);
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

void pqtx__pool_end(pqtx_pool *pool, size_t field, bool busy, int64_t wait_us, int64_t run_us)
{
    pthread_mutex_lock(&pool->lock);
    ++*(uint64_t *)((char *)&pool->stats + field);
    pool->stats.busy += busy;
    pool->stats.wait_us += (uint64_t)wait_us;
    pool->stats.run_us += (uint64_t)run_us;
    pool->stats.wait_us_buckets[bucket_of(wait_us)]++;
    pool->stats.run_us_buckets[bucket_of(run_us)]++;
    pthread_mutex_unlock(&pool->lock);
}

static pqtx_pool *create(const pqtx_pool_options *options)
{
    pqtx_pool *pool = calloc(1, sizeof *pool);
    if (!pool)
        return NULL;
    const char *conninfo = options->conninfo ? options->conninfo : "";
    size_t size = strlen(conninfo) + 1;
    pool->conninfo = malloc(size);
    if (pool->conninfo)
        memcpy(pool->conninfo, conninfo, size);
    if (!pool->conninfo || !pqtx__hosts_read(&pool->hosts, pool->conninfo) ||
        pthread_mutex_init(&pool->lock, NULL) != 0) {
        pqtx__hosts_free(&pool->hosts);
        free(pool->conninfo);
        free(pool);
        return NULL;
    }
    pool->options = *options;
    pool->options.conninfo = pool->conninfo;
    pool->clock = options->clock;
    pool->never_prepares = options->flags & PQTX_POOL_PREPARE_NEVER;
    pool->birth = pqtx__birth_note(true);
    pqtx__turns_init(&pool->turns);
    pqtx__budget_init(&pool->budget, options->retry_percent, options->retry_burst);
    pool->suspect_us = INT64_MIN;
    atomic_init(&pool->refs, 1);
    return pool;
}

/* libpq's complaint quotes what it could not parse, which may be half a password; without memory it
 * has none. */
static const char *parse(const char *conninfo, pqtx_status *status)
{
    char *complaint = NULL;
    PQconninfoOption *parsed = PQconninfoParse(conninfo ? conninfo : "", &complaint);
    *status = parsed ? PQTX_OK : complaint ? PQTX_MISUSE : PQTX_NO_MEMORY;
    PQconninfoFree(parsed);
    PQfreemem(complaint);
    return *status == PQTX_MISUSE
               ? "libpq cannot parse the connection string (not shown: it may hold a password)"
               : "no memory for the connection string";
}

/* Fills the pool to its least size, which proves the connection string. */
static pqtx_status warm_up(pqtx_pool *pool, pqtx_error *error)
{
    int32_t count = pool->options.min_count > 0 ? pool->options.min_count : 1;
    struct pqtx__wire *made = NULL;
    pqtx_status status = PQTX_OK;
    for (int32_t i = 0; i < count && status == PQTX_OK; i++) {
        struct pqtx__wire *wire;
        status = pqtx__pool_acquire(pool, INT64_MAX / 2, &wire, error);
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
    if (!pool || !pqtx__error_is_open(error))
        return PQTX_MISUSE;
    pqtx_status status = pqtx__pool_options_read(&read, options, &why);
    if (status == PQTX_OK)
        why = parse(read.conninfo, &status);
    if (status != PQTX_OK) {
        pqtx__error_report(&first, status, why);
    } else if (!(*pool = create(&read))) {
        status = pqtx__error_report(&first, PQTX_NO_MEMORY, "no memory for a pool");
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
    size_t size = stats ? stats->size : 0;
    if (!pool || size < sizeof size || size > PQTX__SIZE_MAX || pqtx__pool_is_foreign(pool))
        return PQTX_MISUSE;
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
