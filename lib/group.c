/* group.c: the callers that meet on a counter, added up and committed together.
 *
 * Each key has a queue.  The caller who finds no transaction under way for its key leads: it takes
 * the others along, runs one transaction for the sum, and tells each its value.  Whoever has come
 * meanwhile waits, and one of those leads next: it is appointed when there is room for another
 * ride, by whoever makes the room, under the lock.  So no wake-up can be lost. */
#include "clock.h"
#include "counter.h"
#include "error.h"
#include "line.h"
#include "options.h"
#include "pool.h"
#include "wait.h"

#include <pqtx/group.h>

#include <stdlib.h>
#include <string.h>

#define LINGER_OF 8 /* a leader waits for others that part of what a flight takes */

struct pqtx_group {
    pqtx_pool *pool;
    pqtx_counter counter;
    char *names;
    pqtx_options options;
    int32_t max_flights;

    pthread_mutex_t lock;
    pthread_cond_t left; /* the last caller has */
    bool closed;
    size_t callers;
    struct pqtx__lines lines;
};

/* Whenever callers wait and there is room for a flight, one of them is to lead it. */
static void appoint(pqtx_group *group, struct pqtx__line *line)
{
    if (line->leader || !line->first || line->flights >= group->max_flights)
        return;
    line->leader = line->first;
    line->leader->state = PQTX__LEADS;
    pthread_cond_signal(&line->leader->wake);
}

/* ---- a flight */

static int64_t now(const pqtx_group *group)
{
    return pqtx__now(group->options.clock);
}

/* Those who have just landed are likely to come again at once: without a moment for them they would
 * miss every second flight. */
static void linger(pqtx_group *group, struct pqtx__line *line, struct pqtx__caller *leader)
{
    int64_t until_us = now(group) + line->flight_us / LINGER_OF, left_us;
    if (until_us > leader->deadline_us)
        until_us = leader->deadline_us;
    while (line->waiting < line->crowd && (left_us = until_us - now(group)) > 0)
        if (!pqtx__condition_wait(&leader->wake, &group->lock, left_us))
            return;
}

/* Increments of one sign only: so each of the values is between the first and the last, and fits.
 * And none who may wait much longer than the leader, whose deadline is the flight's. */
static bool may_join(const struct pqtx__ride *ride, const struct pqtx__caller *leader,
                     const struct pqtx__caller *caller, int64_t now_us)
{
    int64_t sum;
    if ((leader->delta > 0 && caller->delta < 0) || (leader->delta < 0 && caller->delta > 0) ||
        (leader->delta == 0 && caller->delta != 0))
        return false;
    return (caller->deadline_us - now_us) / 2 <= leader->deadline_us - now_us &&
           pqtx__int_add(ride->sum, caller->delta, &sum);
}

static void board(struct pqtx__ride *ride, struct pqtx__line *line, struct pqtx__caller *caller)
{
    pqtx__line_leave(line, caller);
    ride->sum += caller->delta;
    ride->count++;
    caller->ride = ride;
    caller->part = ride->sum;
    caller->state = PQTX__ON_BOARD;
}

static void board_others(struct pqtx__ride *ride, struct pqtx__line *line, int64_t now_us)
{
    struct pqtx__caller *leader = ride->first, **last = &leader->next;
    for (struct pqtx__caller *caller = line->first, *next; caller; caller = next) {
        next = caller->next;
        if (!may_join(ride, leader, caller, now_us))
            continue;
        board(ride, line, caller);
        *last = caller;
        last = &caller->next;
    }
}

/* The deadline came in the air: the flight goes on without somebody to tell. */
static void jump_off(struct pqtx__caller *caller)
{
    struct pqtx__caller **at = &caller->ride->first;
    while (*at != caller)
        at = &(*at)->next;
    *at = caller->next;
}

static pqtx_status add(const pqtx_group *group, pqtx_value key, int64_t delta, int64_t deadline_us,
                       int64_t *value, pqtx_error *error)
{
    pqtx_options options = group->options;
    int64_t left_us = deadline_us - now(group);
    options.deadline_ms = left_us > 1000 ? left_us / 1000 : 1;
    return pqtx_counter_add_now(group->pool, &options, &group->counter, key, delta, value, error);
}

static void tell(const struct pqtx__ride *ride, pqtx_status status, int64_t value,
                 const pqtx_error *error)
{
    bool apart = ride->count > 1 && pqtx__is_refusal(status);
    for (struct pqtx__caller *caller = ride->first, *next; caller; caller = next) {
        next = caller->next;
        caller->value = value == PQTX_VALUE_UNKNOWN ? value : value - ride->sum + caller->part;
        caller->status = status;
        caller->state = apart ? PQTX__ALONE : PQTX__TOLD;
        if (status != PQTX_OK)
            pqtx__error_export(error, caller->error);
        pthread_cond_signal(&caller->wake);
    }
}

/* Under the lock, but for the flight itself. */
static void fly(pqtx_group *group, struct pqtx__line *line, struct pqtx__caller *leader,
                pqtx_value key)
{
    struct pqtx__ride ride = {.first = leader};
    pqtx_error error = PQTX_ERROR;
    int64_t began_us = now(group), value;
    board(&ride, line, leader);
    board_others(&ride, line, began_us);
    line->leader = NULL;
    line->flights++;
    appoint(group, line);
    pthread_mutex_unlock(&group->lock);
    pqtx_status status = add(group, key, ride.sum, leader->deadline_us, &value, &error);
    pthread_mutex_lock(&group->lock);
    size_t seen = ride.count + line->waiting, less = line->crowd - line->crowd / LINGER_OF - 1;
    line->crowd = seen > less ? seen : less;
    line->flight_us = now(group) - began_us;
    line->flights--;
    tell(&ride, status, value, &error);
    appoint(group, line);
}

/* ---- a caller */

static pqtx_status say(struct pqtx__caller *caller, pqtx_status status, const char *why)
{
    caller->state = PQTX__TOLD;
    caller->status = status;
    pqtx__error_report(caller->error, status, why);
    return status;
}

/* Gives up, since the time is up. */
static void give_up(pqtx_group *group, struct pqtx__line *line, struct pqtx__caller *caller)
{
    if (caller->state == PQTX__ON_BOARD) {
        jump_off(caller);
        say(caller, PQTX_IN_DOUBT, "the deadline came while the transaction was under way");
        return;
    }
    pqtx__line_leave(line, caller);
    if (line->leader == caller)
        line->leader = NULL;
    appoint(group, line);
    say(caller, PQTX_TIMEOUT, "the deadline came before the increment was sent");
}

static bool is_late(const pqtx_group *group, const struct pqtx__caller *caller)
{
    return pqtx__left(group->options.clock, caller->deadline_us) == 0;
}

/* Waits until the caller is told, or leads. */
static void wait_for(pqtx_group *group, struct pqtx__line *line, struct pqtx__caller *caller)
{
    while (caller->state == PQTX__IN_LINE || caller->state == PQTX__ON_BOARD) {
        int64_t left_us = pqtx__left(group->options.clock, caller->deadline_us);
        if (left_us == 0 || !pqtx__condition_wait(&caller->wake, &group->lock, left_us)) {
            give_up(group, line, caller);
            return;
        }
    }
}

/* Under the lock. */
static void stand_in_line(pqtx_group *group, struct pqtx__line *line, struct pqtx__caller *caller,
                          pqtx_value key)
{
    pqtx__line_enter(line, caller);
    if (line->leader && line->waiting >= line->crowd)
        pthread_cond_signal(&line->leader->wake); /* it lingers for us */
    appoint(group, line);
    wait_for(group, line, caller);
    if (caller->state == PQTX__LEADS)
        linger(group, line, caller);
    if (caller->state == PQTX__LEADS && is_late(group, caller))
        give_up(group, line, caller);
    else if (caller->state == PQTX__LEADS)
        fly(group, line, caller, key);
    if (caller->state == PQTX__ALONE) {
        pthread_mutex_unlock(&group->lock);
        caller->status =
            add(group, key, caller->delta, caller->deadline_us, &caller->value, caller->error);
        pthread_mutex_lock(&group->lock);
    }
}

static void join(pqtx_group *group, struct pqtx__caller *caller, pqtx_value key)
{
    pthread_mutex_lock(&group->lock);
    struct pqtx__line *line = group->closed ? NULL : pqtx__line_find(&group->lines, &key);
    if (group->closed) {
        say(caller, PQTX_STOPPED, "the group is being closed");
    } else if (!line) {
        say(caller, PQTX_NO_MEMORY, "no memory for the key");
    } else {
        group->callers++;
        stand_in_line(group, line, caller, key);
        if (--group->callers == 0 && group->closed)
            pthread_cond_signal(&group->left);
    }
    pthread_mutex_unlock(&group->lock);
}

pqtx_status pqtx_group_add(pqtx_group *group, pqtx_value key, int64_t delta, int64_t deadline_ms,
                           int64_t *value, pqtx_error *error)
{
    struct pqtx__caller caller = {.delta = delta, .value = PQTX_VALUE_UNKNOWN, .error = error};
    if (value)
        *value = PQTX_VALUE_UNKNOWN;
    if (!group || !pqtx__error_is_open(error) || pqtx__pool_is_foreign(group->pool))
        return PQTX_MISUSE;
    const char *fault = pqtx__key_fault(group->counter.key_type, &key);
    if (deadline_ms < 0 || deadline_ms > PQTX__MS_MAX)
        fault = "deadline_ms is not within 0 … 2147483647";
    if (fault)
        return pqtx__error_report(error, PQTX_MISUSE, fault);
    if (!pqtx__condition_init(&caller.wake))
        return pqtx__error_report(error, PQTX_NO_MEMORY, "no memory to wait");
    if (deadline_ms == 0)
        deadline_ms = group->options.deadline_ms;
    caller.deadline_us = now(group) + deadline_ms * 1000;
    join(group, &caller, key);
    pthread_cond_destroy(&caller.wake);
    if (value)
        *value = caller.value;
    if (caller.status == PQTX_OK)
        pqtx__error_report(error, PQTX_OK, "");
    return caller.status;
}

size_t pqtx_group_callers(pqtx_group *group)
{
    if (!group || pqtx__pool_is_foreign(group->pool))
        return 0;
    pthread_mutex_lock(&group->lock);
    size_t callers = group->callers;
    pthread_mutex_unlock(&group->lock);
    return callers;
}

/* ---- the group */

/* NULL, or what is wrong. */
static const char *read_options(pqtx_group *group, const pqtx_group_options *given)
{
    pqtx_group_options read = PQTX_GROUP_OPTIONS;
    const char *why;
    if (given && pqtx__import(&read, sizeof read, given, given->size) != PQTX_OK)
        return "the options have no size (start from PQTX_GROUP_OPTIONS), or come from a newer "
               "version and use what this one does not know";
    if (read.max_flights < 0 || read.max_flights > 10000 || read.reserved != 0)
        return "max_flights is not within 0 … 10000, or reserved is not 0";
    if (pqtx__options_read(&group->options, read.run, &why) != PQTX_OK)
        return why;
    if (group->options.event_id || group->options.evidence || group->options.ticket)
        return "event_id, evidence and ticket would stand for several increments";
    group->options.size = sizeof group->options;
    group->max_flights = read.max_flights > 0 ? read.max_flights : 1;
    return NULL;
}

static pqtx_group *create(pqtx_pool *pool)
{
    pqtx_group *group = calloc(1, sizeof *group);
    if (!group)
        return NULL;
    if (pthread_mutex_init(&group->lock, NULL) != 0) {
        free(group);
        return NULL;
    }
    if (!pqtx__condition_init(&group->left)) {
        pthread_mutex_destroy(&group->lock);
        free(group);
        return NULL;
    }
    pqtx__pool_ref(pool);
    group->pool = pool;
    return group;
}

static void destroy(pqtx_group *group)
{
    pqtx__lines_free(&group->lines);
    pqtx__pool_unref(group->pool);
    pthread_cond_destroy(&group->left);
    pthread_mutex_destroy(&group->lock);
    free(group->names);
    free(group);
}

pqtx_status pqtx_group_open(pqtx_pool *pool, const pqtx_counter *counter,
                            const pqtx_group_options *options, pqtx_group **group,
                            pqtx_error *error)
{
    struct pqtx__names names;
    if (group)
        *group = NULL;
    if (!pqtx__error_is_open(error))
        return PQTX_MISUSE;
    if (!pool || !group || pqtx__pool_is_foreign(pool))
        return pqtx__error_report(
            error, PQTX_MISUSE, "the pool or the group is NULL, or the pool is another process's");
    pqtx_group *made = create(pool);
    if (!made)
        return pqtx__error_report(error, PQTX_NO_MEMORY, "no memory for a group");
    const char *why = pqtx__counter_read(counter, &made->counter, &names);
    if (!why)
        why = read_options(made, options);
    if (!why)
        made->names = pqtx__counter_keep(&made->counter);
    if (why || !made->names) {
        destroy(made);
        return pqtx__error_report(error, why ? PQTX_MISUSE : PQTX_NO_MEMORY,
                                  why ? why : "no memory for the names");
    }
    *group = made;
    return pqtx__error_report(error, PQTX_OK, "");
}

/* In a forked child nobody is inside, whatever the copy says. */
void pqtx_group_close(pqtx_group *group)
{
    if (!group)
        return;
    if (!pqtx__pool_is_foreign(group->pool)) {
        pthread_mutex_lock(&group->lock);
        group->closed = true;
        while (group->callers > 0)
            pthread_cond_wait(&group->left, &group->lock);
        pthread_mutex_unlock(&group->lock);
    }
    destroy(group);
}
