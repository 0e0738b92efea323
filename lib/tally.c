/* tally.c: increments added up in memory, and flushed as one event.
 *
 * One pile is filled while the one before is on its way.  One thread flushes at a time, outside the
 * lock. */
#include "clock.h"
#include "counter.h"
#include "error.h"
#include "options.h"
#include "parcel.h"
#include "pool.h"
#include "wait.h"

#include <pqtx/tally.h>

#include <stdlib.h>

struct pqtx_tally {
    pqtx_pool *pool;
    pqtx_counter counter;
    char *names;
    pqtx_options options; /* of a flush */
    pqtx_tally_options limits;

    pthread_mutex_t lock;
    pthread_cond_t changed; /* a flush has ended, or the last caller has left */
    bool closed;
    size_t callers;
    struct pqtx__pile filling;
    int64_t oldest_us; /* when the first of that was added */
    bool flushing;     /* a thread has the parcel in hand */
    struct pqtx__parcel parcel;
    int64_t again_us; /* when one that has failed may be tried again */
    uint64_t flushes; /* that have been written */
};

static int64_t now(const pqtx_tally *tally)
{
    return pqtx__now(tally->options.clock);
}

/* ---- a flush */

/* Under the lock: what is filled is to leave next, unless something is on its way. */
static pqtx_status turn_over(pqtx_tally *tally)
{
    struct pqtx__pile *leaving = &tally->parcel.pile, empty = *leaving;
    if (leaving->count > 0 || tally->filling.count == 0)
        return PQTX_OK;
    if (!pqtx__parcel_address(&tally->parcel))
        return pqtx__error_report(&tally->parcel.error, PQTX_NO_MEMORY,
                                  "no random bits for an event id");
    *leaving = tally->filling;
    tally->filling = empty;
    return PQTX_OK;
}

/* Under the lock, but for the writing; nobody else may be at it. */
static pqtx_status flush_one(pqtx_tally *tally, struct pqtx__refusal *refusal)
{
    refusal->status = PQTX_OK;
    refusal->told = tally->limits.refused;
    refusal->told_arg = tally->limits.refused_arg;
    pqtx_status status = turn_over(tally);
    if (status != PQTX_OK || tally->parcel.pile.count == 0)
        return status;
    tally->flushing = true;
    pthread_mutex_unlock(&tally->lock);
    status =
        pqtx__parcel_send(&tally->parcel, tally->pool, &tally->options, &tally->counter, refusal);
    pthread_mutex_lock(&tally->lock);
    tally->flushing = false;
    tally->again_us = now(tally) + tally->limits.again_ms * 1000;
    if (status == PQTX_OK) {
        pqtx__pile_clear(&tally->parcel.pile);
        tally->flushes++;
    }
    pthread_cond_broadcast(&tally->changed);
    return status;
}

/* Waits for the flush that another thread makes; false if the time is up. */
static bool wait_for_flush(pqtx_tally *tally, int64_t until_us)
{
    while (tally->flushing) {
        int64_t left_us = pqtx__left(tally->options.clock, until_us);
        if (left_us == 0 || !pqtx__condition_wait(&tally->changed, &tally->lock, left_us))
            return false;
    }
    return true;
}

/* ---- adding */

/* Whether the pile that has failed is to be left alone for now. */
static bool must_rest(const pqtx_tally *tally)
{
    return tally->parcel.pile.count > 0 && now(tally) < tally->again_us;
}

static bool is_full(const pqtx_tally *tally)
{
    return tally->filling.adds >= (uint64_t)tally->limits.max_count ||
           tally->filling.count == tally->filling.capacity;
}

static bool is_due(const pqtx_tally *tally)
{
    if (tally->flushing || must_rest(tally))
        return false;
    return tally->parcel.pile.count > 0 || is_full(tally) ||
           now(tally) - tally->oldest_us >= tally->limits.max_ms * 1000;
}

static pqtx_status put_down(pqtx_tally *tally, const pqtx_value *key, int64_t delta)
{
    if (tally->filling.adds >= (uint64_t)tally->limits.max_count)
        return PQTX_TOO_MANY;
    pqtx_status status = pqtx__pile_add(&tally->filling, key, delta);
    if (status == PQTX_OK && tally->filling.adds == 1)
        tally->oldest_us = now(tally);
    return status;
}

/* A flush makes room, ours or another thread's. */
static pqtx_status make_room(pqtx_tally *tally, int64_t until_us, struct pqtx__refusal *refusal,
                             pqtx_error *error)
{
    if (tally->flushing && wait_for_flush(tally, until_us))
        return PQTX_OK;
    if (tally->flushing)
        return pqtx__error_report(error, PQTX_TIMEOUT,
                                  "the deadline came while a flush was waited for");
    pqtx_status status = must_rest(tally) ? tally->parcel.status : flush_one(tally, refusal);
    if (status != PQTX_OK)
        pqtx__error_export(&tally->parcel.error, error);
    return status;
}

/* Under the lock. */
static pqtx_status add(pqtx_tally *tally, const pqtx_value *key, int64_t delta, pqtx_error *error)
{
    struct pqtx__refusal refusal;
    int64_t until_us = now(tally) + tally->options.deadline_ms * 1000;
    pqtx_status status = put_down(tally, key, delta);
    while (status == PQTX_TOO_MANY) {
        status = make_room(tally, until_us, &refusal, error);
        if (status != PQTX_OK)
            return status;
        status = put_down(tally, key, delta);
    }
    if (status == PQTX_BAD_DATA)
        return pqtx__error_report(error, status,
                                  "the sum of the deltas of one key does not fit into 64 bits");
    if (status != PQTX_OK)
        return pqtx__error_report(error, status, "no memory for the key");
    if (is_due(tally))
        flush_one(tally, &refusal);
    return PQTX_OK;
}

static bool enter(pqtx_tally *tally)
{
    pthread_mutex_lock(&tally->lock);
    if (!tally->closed)
        tally->callers++;
    return !tally->closed;
}

static void leave(pqtx_tally *tally, bool entered)
{
    if (entered && --tally->callers == 0 && tally->closed)
        pthread_cond_broadcast(&tally->changed);
    pthread_mutex_unlock(&tally->lock);
}

#define STOPPED(error) pqtx__error_report(error, PQTX_STOPPED, "the tally is being closed")

pqtx_status pqtx_tally_add(pqtx_tally *tally, pqtx_value key, int64_t delta, pqtx_error *error)
{
    if (!tally || !pqtx__error_is_open(error) || pqtx__pool_is_foreign(tally->pool))
        return PQTX_MISUSE;
    const char *fault = pqtx__key_fault(tally->counter.key_type, &key);
    if (!fault && key.len > PQTX__KEY_BYTES_MAX)
        fault = "the key is longer than 1024 bytes";
    if (fault)
        return pqtx__error_report(error, PQTX_MISUSE, fault);
    bool entered = enter(tally);
    pqtx_status status = entered ? add(tally, &key, delta, error) : STOPPED(error);
    leave(tally, entered);
    return status;
}

/* ---- flushing on demand */

/* Under the lock: the piles that are there now. */
static pqtx_status flush(pqtx_tally *tally, pqtx_error *error)
{
    struct pqtx__refusal refusal, last = {.status = PQTX_OK};
    int64_t until_us = now(tally) + tally->options.deadline_ms * 1000;
    uint64_t wanted = tally->flushes + (tally->parcel.pile.count > 0 ? 1 : 0) +
                      (tally->filling.count > 0 ? 1 : 0);
    while (tally->flushes < wanted) {
        if (!wait_for_flush(tally, until_us))
            return pqtx__error_report(error, PQTX_TIMEOUT,
                                      "the deadline came while a flush was waited for");
        if (tally->flushes >= wanted)
            break;
        pqtx_status status = flush_one(tally, &refusal);
        if (status == PQTX_OK && refusal.status != PQTX_OK)
            last = refusal;
        if (status == PQTX_OK)
            continue;
        pqtx__error_export(&tally->parcel.error, error);
        return status;
    }
    if (last.status == PQTX_OK)
        return pqtx__error_report(error, PQTX_OK, "");
    pqtx__error_export(&last.error, error);
    return last.status;
}

pqtx_status pqtx_tally_flush(pqtx_tally *tally, pqtx_error *error)
{
    if (!tally || !pqtx__error_is_open(error) || pqtx__pool_is_foreign(tally->pool))
        return PQTX_MISUSE;
    bool entered = enter(tally);
    pqtx_status status = entered ? flush(tally, error) : STOPPED(error);
    leave(tally, entered);
    return status;
}

/* ---- the tally */

/* NULL, or what is wrong. */
static const char *read_options(pqtx_tally *tally, const pqtx_tally_options *given)
{
    pqtx_tally_options *limits = &tally->limits;
    const char *why;
    if (given && pqtx__import(limits, sizeof *limits, given, given->size) != PQTX_OK)
        return "the options have no size (start from PQTX_TALLY_OPTIONS), or come from a newer "
               "version and use what this one does not know";
    if (limits->max_count < 0 || limits->max_keys < 0 || limits->max_keys > 1000000)
        return "max_count is negative, or max_keys not within 0 … 1000000";
    if (limits->max_ms < 0 || limits->max_ms > PQTX__MS_MAX || limits->again_ms < 0 ||
        limits->again_ms > PQTX__MS_MAX)
        return "max_ms or again_ms is not within 0 … 2147483647";
    if (pqtx__options_read(&tally->options, limits->run, &why) != PQTX_OK)
        return why;
    if (tally->options.event_id || tally->options.evidence || tally->options.ticket)
        return "event_id, evidence and ticket would stand for several flushes";
    tally->options.size = sizeof tally->options;
    limits->max_count = limits->max_count > 0 ? limits->max_count : 10000;
    limits->max_keys = limits->max_keys > 0 ? limits->max_keys : 1000;
    limits->max_ms = limits->max_ms > 0 ? limits->max_ms : 1000;
    limits->again_ms = limits->again_ms > 0 ? limits->again_ms : 1000;
    return NULL;
}

static pqtx_tally *create(pqtx_pool *pool)
{
    pqtx_tally *tally = calloc(1, sizeof *tally);
    if (!tally)
        return NULL;
    if (pthread_mutex_init(&tally->lock, NULL) != 0) {
        free(tally);
        return NULL;
    }
    if (!pqtx__condition_init(&tally->changed)) {
        pthread_mutex_destroy(&tally->lock);
        free(tally);
        return NULL;
    }
    pqtx__pool_ref(pool);
    tally->pool = pool;
    tally->parcel.error = (pqtx_error)PQTX_ERROR;
    return tally;
}

static void destroy(pqtx_tally *tally)
{
    pqtx__pile_free(&tally->filling);
    pqtx__pile_free(&tally->parcel.pile);
    pqtx__pool_unref(tally->pool);
    pthread_cond_destroy(&tally->changed);
    pthread_mutex_destroy(&tally->lock);
    free(tally->names);
    free(tally);
}

static bool make_piles(pqtx_tally *tally)
{
    return pqtx__pile_make(&tally->filling, (size_t)tally->limits.max_keys) &&
           pqtx__pile_make(&tally->parcel.pile, (size_t)tally->limits.max_keys);
}

pqtx_status pqtx_tally_open(pqtx_pool *pool, const pqtx_counter *counter,
                            const pqtx_tally_options *options, pqtx_tally **tally,
                            pqtx_error *error)
{
    struct pqtx__names names;
    if (tally)
        *tally = NULL;
    if (!pqtx__error_is_open(error))
        return PQTX_MISUSE;
    if (!pool || !tally || pqtx__pool_is_foreign(pool))
        return pqtx__error_report(
            error, PQTX_MISUSE, "the pool or the tally is NULL, or the pool is another process's");
    pqtx_tally *made = create(pool);
    if (!made)
        return pqtx__error_report(error, PQTX_NO_MEMORY, "no memory for a tally");
    const char *why = pqtx__counter_read(counter, &made->counter, &names);
    if (!why)
        why = read_options(made, options);
    if (!why)
        made->names = pqtx__counter_keep(&made->counter);
    if (why || !made->names || !make_piles(made)) {
        destroy(made);
        return pqtx__error_report(error, why ? PQTX_MISUSE : PQTX_NO_MEMORY,
                                  why ? why : "no memory for a tally");
    }
    *tally = made;
    return pqtx__error_report(error, PQTX_OK, "");
}

/* In a forked child nobody is inside, and what was added is the parent's to write. */
pqtx_status pqtx_tally_close(pqtx_tally *tally, pqtx_error *error)
{
    pqtx_status status = PQTX_OK;
    if (!tally)
        return status;
    if (!pqtx__pool_is_foreign(tally->pool)) {
        pthread_mutex_lock(&tally->lock);
        tally->closed = true;
        while (tally->callers > 0)
            pthread_cond_wait(&tally->changed, &tally->lock);
        status = flush(tally, error);
        pthread_mutex_unlock(&tally->lock);
    }
    destroy(tally);
    return status;
}
