/* each.c: many statements, each a transaction by itself, under way at once on one connection.
 *
 * Each has a transaction of its own.  Their first attempts share a connection and a flight, with
 * one Sync each, so that one that fails takes none of the others along; what is to be begun again,
 * or is in doubt, goes on by itself. */
#include "clock.h"
#include "commit.h"
#include "connect.h"
#include "fly.h"
#include "lead.h"
#include "loop.h"
#include "one.h"
#include "options.h"
#include "retry.h"

#include <pqtx/one.h>

#include <stdlib.h>
#include <string.h>

#define WINDOW 64

/* The first version's: a result that could not be handed out would be lost. */
#define ITEM_SIZE_MIN (offsetof(pqtx_item, result) + sizeof(PGresult *))

/* A caller's item, which may be shorter or longer than ours, and its transaction. */
struct one {
    pqtx_item *theirs, item;
    pqtx_tx *tx;
    struct pqtx__flight_plan plan;
    pqtx_status status;
    bool flown;
};

struct window {
    struct one ones[WINDOW];
    size_t count;
    struct pqtx__wire *wire;
};

/* ---- the first attempts, together */

/* Only what goes without BEGIN, and waits for its answer, leaves room for others; and behind a gate
 * there is no room. */
static bool may_share(const struct one *one, const struct pqtx__wire *wire)
{
    const pqtx_options *options = &one->tx->options;
    struct pqtx__request request = {.sql = one->item.sql};
    if (!request.sql || !pqtx__lead_suits(options, wire) || (options->flags & PQTX_PIN_SNAPSHOT) ||
        options->gate)
        return false;
    request.kind = pqtx__statement_kind(request.sql);
    if (one->item.expected != PQTX_ANY_ROWS)
        request.rule.count = PQTX__COUNT_EXACT;
    return pqtx__kind_is_plain(request.kind) && pqtx__call_can_wait(&request);
}

static void send(struct one *one, struct pqtx__wire *wire)
{
    pqtx_tx *tx = one->tx;
    if (wire->lost || !may_share(one, wire))
        return;
    tx->given = wire;
    if (!pqtx_attempt(tx))
        return;
    pqtx__one_queue(tx, one->item.sql, one->item.count, one->item.values, one->item.expected);
    one->flown = tx->mark == PQTX_OK;
    if (one->flown)
        pqtx__commit_send(tx, pqtx__now(tx->clock), &one->plan);
    else
        pqtx_commit(tx); /* nothing was sent */
}

/* A notice belongs to what is being answered. */
static void hear(void *arg, const PGresult *notice)
{
    struct window *w = arg;
    for (size_t i = 0; i < w->count; i++) {
        const struct one *one = &w->ones[i];
        if (one->flown && one->plan.begin <= w->wire->landed && w->wire->landed < one->plan.end)
            pqtx__attempt_hear(one->tx, notice);
    }
}

/* A cancel ends one item, and the next one may wait as long as that did. */
static void break_off(struct pqtx__wire *wire, const pqtx_tx *first)
{
    int64_t pause_us = (first->deadline_us - first->give_up_us) / WINDOW;
    enum pqtx__flight flight = PQTX__FLYING;
    while (flight == PQTX__FLYING && pqtx__left(first->clock, first->deadline_us) > 0) {
        pqtx__cancel(wire, NULL, 0, first->deadline_us);
        int64_t until_us = pqtx__now(first->clock) + pause_us;
        flight =
            pqtx__wire_land(wire, until_us < first->deadline_us ? until_us : first->deadline_us);
    }
}

/* The server works in order: what stands behind its last word was not reached. */
static pqtx_status judge(struct one *one, size_t last_word)
{
    if (one->plan.begin <= last_word)
        return pqtx__commit_judge(one->tx, &one->plan);
    pqtx__fail(one->tx, PQTX_NO_CONNECTION, "the session ended before the statement was reached");
    pqtx__batch_clear(&one->tx->batch, &one->tx->wire->store);
    return one->tx->mark;
}

static void land(struct window *w)
{
    struct pqtx__wire *wire = w->wire;
    const pqtx_tx *first = w->ones[0].tx;
    wire->notice = hear;
    wire->notice_arg = w;
    bool late = pqtx__wire_land(wire, first->give_up_us) == PQTX__FLYING;
    if (late)
        break_off(wire, first);
    if (wire->landed < wire->count)
        wire->lost = true;
    size_t last_word = pqtx__wire_last_word(wire);
    for (size_t i = 0; i < w->count; i++) {
        struct one *one = &w->ones[i];
        if (!one->flown)
            continue;
        one->plan.cancelled = late;
        one->status = judge(one, last_word);
        pqtx__retry_leave_standby(one->tx);
    }
    pqtx__wire_clear(wire);
}

/* The connection is given back before what became of them is followed up, which may need it. */
static void fly(struct window *w, pqtx_pool *pool)
{
    for (size_t i = 0; i < w->count; i++)
        send(&w->ones[i], w->wire);
    land(w);
    for (size_t i = 0; i < w->count; i++)
        if (w->ones[i].flown)
            pqtx__attempt_end(w->ones[i].tx);
    pqtx__pool_release(pool, w->wire);
    for (size_t i = 0; i < w->count; i++) {
        w->ones[i].tx->given = NULL;
        if (w->ones[i].flown)
            pqtx__loop_end(w->ones[i].tx, w->ones[i].status, false);
    }
}

/* ---- what is left, one by one */

static void finish(struct one *one)
{
    pqtx_tx *tx = one->tx;
    while (pqtx_attempt(tx)) {
        pqtx__one_queue(tx, one->item.sql, one->item.count, one->item.values, one->item.expected);
        pqtx_commit(tx);
    }
    one->item.status = pqtx_result(tx);
    one->item.outcome = tx->outcome;
    one->item.flags = tx->flags;
    one->item.attempts = tx->attempts;
    if (one->item.status == PQTX_OK)
        one->item.result = pqtx__one_take(tx, &one->item.rows);
}

static void run_window(struct window *w, pqtx_pool *pool)
{
    pqtx_error error = PQTX_ERROR;
    if (w->count == 0)
        return;
    for (size_t i = 0; i < w->count; i++)
        pqtx__loop_start(w->ones[i].tx);
    int64_t left_us = pqtx__left(w->ones[0].tx->clock, w->ones[0].tx->give_up_us);
    if (w->count > 1 && pqtx__pool_acquire(pool, left_us, &w->wire, &error) == PQTX_OK)
        fly(w, pool);
    for (size_t i = 0; i < w->count; i++)
        finish(&w->ones[i]);
}

/* ---- the caller's items */

static pqtx_item *item_at(pqtx_item *items, size_t i)
{
    return (pqtx_item *)(void *)((char *)items + i * items->size);
}

static bool read_item(pqtx_item *item, const pqtx_item *theirs, size_t size)
{
    return theirs->size == size && size >= ITEM_SIZE_MIN &&
           pqtx__import(item, sizeof *item, theirs, size) == PQTX_OK &&
           item->expected >= PQTX_ANY_ROWS;
}

static const char *fault_of(pqtx_item *items, size_t count)
{
    pqtx_item item;
    if (!items)
        return "the items are NULL";
    for (size_t i = 0; i < count; i++)
        if (!read_item(&item, item_at(items, i), items->size))
            return "an item has no size (start from PQTX_ITEM), or another one than the first, or "
                   "its expected rows are negative";
    return NULL;
}

static void write_item(const struct one *one)
{
    size_t size = one->theirs->size;
    memcpy(one->theirs, &one->item, size < sizeof one->item ? size : sizeof one->item);
    one->theirs->size = size;
}

/* Makes the transactions; false without memory. */
static bool prepare(struct window *w, pqtx_item *items, pqtx_pool *pool,
                    const pqtx_options *options)
{
    for (size_t i = 0; i < w->count; i++) {
        struct one *one = &w->ones[i];
        *one = (struct one){.theirs = item_at(items, i), .tx = pqtx_new(pool, options)};
        read_item(&one->item, one->theirs, items->size);
        one->item.result = NULL;
        one->item.rows = 0;
        if (!one->tx) {
            w->count = i;
            return false;
        }
    }
    return true;
}

/* Hands the answers out; the first failure is kept in `error`. */
static void collect(struct window *w, size_t before, pqtx_status *first, pqtx_error *error)
{
    for (size_t i = 0; i < w->count; i++) {
        struct one *one = &w->ones[i];
        write_item(one);
        if (*first == PQTX_OK && one->item.status != PQTX_OK) {
            *first = one->item.status;
            one->tx->error.call = (int32_t)(before + i) + 1;
            pqtx_get_error(one->tx, error);
        }
        pqtx_free(one->tx);
    }
}

/* These are not run. */
static pqtx_status leave(pqtx_item *items, size_t begin, size_t end, pqtx_status status,
                         const char *why, pqtx_error *error)
{
    for (size_t i = begin; i < end; i++) {
        struct one one = {.theirs = item_at(items, i)};
        read_item(&one.item, one.theirs, items->size);
        one.item.status = status;
        one.item.outcome = PQTX_OUTCOME_ROLLED_BACK;
        one.item.result = NULL;
        write_item(&one);
    }
    return pqtx__error_report(error, status, why);
}

static pqtx_status run_all(struct window *w, pqtx_pool *pool, const pqtx_options *options,
                           pqtx_item *items, size_t item_count, pqtx_error *error)
{
    pqtx_status first = PQTX_OK;
    for (size_t i = 0; i < item_count; i += w->count) {
        w->count = item_count - i < WINDOW ? item_count - i : WINDOW;
        bool prepared = prepare(w, item_at(items, i), pool, options);
        run_window(w, pool);
        collect(w, i, &first, error);
        if (prepared)
            continue;
        return leave(items, i + w->count, item_count, PQTX_NO_MEMORY, "no memory for a transaction",
                     error);
    }
    return first;
}

pqtx_status pqtx_run_each(pqtx_pool *pool, const pqtx_options *options, pqtx_item *items,
                          size_t item_count, pqtx_error *error)
{
    const char *why = item_count > 0 ? fault_of(items, item_count) : NULL;
    if (why)
        return pqtx__error_report(error, PQTX_MISUSE, why);
    if (!pool || !pqtx__error_is_open(error))
        return leave(items, 0, item_count, PQTX_MISUSE,
                     "the pool is NULL, or the error has no size", error);
    if (options && options->event_id)
        return leave(items, 0, item_count, PQTX_MISUSE,
                     "options.event_id would stand for all of the items", error);
    struct window *w = malloc(sizeof *w);
    if (!w)
        return leave(items, 0, item_count, PQTX_NO_MEMORY, "no memory for the items", error);
    if (error)
        pqtx_error_init(error, error->size);
    pqtx_status status = run_all(w, pool, options, items, item_count, error);
    free(w);
    return status;
}
