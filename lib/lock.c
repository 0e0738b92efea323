/* lock.c: one at a time, by transaction-level advisory locks.
 *
 * The lock is a statement of its own and asks for the isolation level in the same breath: its WHERE
 * is decided before a lock is taken, so a refusal takes none.  Names are qualified, so that no
 * search_path can put another function in their place. */
#include "clock.h"
#include "name.h"
#include "options.h"
#include "tx.h"

#include <pqtx/lock.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SOUND                                                                                      \
    " WHERE pg_catalog.\"left\"(pg_catalog.current_setting('transaction_isolation'), 4)"           \
    " OPERATOR(pg_catalog.=) 'read'"

/* The same statement, with and without the question. */
struct lock {
    const char *anywhere, *sound;
};

#define LOCK(function, arguments)                                                                  \
    {                                                                                              \
        "SELECT pg_catalog." function "(" arguments ")",                                           \
            "SELECT pg_catalog." function "(" arguments ")" SOUND                                  \
    }
#define KEY  "$1::pg_catalog.int8"
#define PAIR "$1::pg_catalog.int4, $2::pg_catalog.int4"

static const struct lock key_lock = LOCK("pg_advisory_xact_lock", KEY);
static const struct lock key_shared = LOCK("pg_advisory_xact_lock_shared", KEY);
static const struct lock key_try = LOCK("pg_try_advisory_xact_lock", KEY);
static const struct lock key_try_shared = LOCK("pg_try_advisory_xact_lock_shared", KEY);
static const struct lock pair_lock = LOCK("pg_advisory_xact_lock", PAIR);
static const struct lock pair_shared = LOCK("pg_advisory_xact_lock_shared", PAIR);
static const struct lock pair_try = LOCK("pg_try_advisory_xact_lock", PAIR);
static const struct lock pair_try_shared = LOCK("pg_try_advisory_xact_lock_shared", PAIR);

/* A function scan gives the keys in the array's order, which is ascending. */
#define MANY " FROM pg_catalog.unnest($1::pg_catalog.int8[]) AS u(key)"

static const struct lock many_lock = {"SELECT pg_catalog.pg_advisory_xact_lock(u.key)" MANY,
                                      "SELECT pg_catalog.pg_advisory_xact_lock(u.key)" MANY SOUND};
static const struct lock many_shared = {
    "SELECT pg_catalog.pg_advisory_xact_lock_shared(u.key)" MANY,
    "SELECT pg_catalog.pg_advisory_xact_lock_shared(u.key)" MANY SOUND};

/* Fewer rows than keys: the WHERE has refused. */
static pqtx_status meaning(int64_t code, const char **why)
{
    (void)code;
    *why = "an advisory lock at this isolation level would be taken after the snapshot: use READ "
           "COMMITTED, or PQTX_LOCK_ANY_ISOLATION";
    return PQTX_WRONG_ISOLATION;
}

static struct pqtx__request ask_for(const pqtx_tx *tx, const struct lock *lock, int64_t rows,
                                    int count, const pqtx_value *values)
{
    bool anywhere = tx && tx->options.flags & PQTX_LOCK_ANY_ISOLATION;
    return (struct pqtx__request){.sql = anywhere ? lock->anywhere : lock->sound,
                                  .count = count,
                                  .values = values,
                                  .rule = {PQTX__COUNT_EXACT, rows},
                                  .meaning = meaning};
}

static pqtx_status take(pqtx_tx *tx, const struct lock *lock, int64_t rows, int count,
                        const pqtx_value *values)
{
    struct pqtx__request request = ask_for(tx, lock, rows, count, values);
    return pqtx__tx_call(tx, &request);
}

/* Asks for it now, by those who have entered; a try that is refused is PQTX_BUSY, unmarked. */
static pqtx_status ask_now(pqtx_tx *tx, const struct lock *lock, int count,
                           const pqtx_value *values)
{
    struct pqtx__request request = ask_for(tx, lock, 1, count, values);
    const char *why;
    PGresult *result;
    pqtx_status status = pqtx__tx_exec(tx, request.sql, count, values, &result);
    if (status == PQTX_OK && PQntuples(result) == 0) {
        status = meaning(0, &why);
        pqtx__fail(tx, status, "%s", why);
    } else if (status == PQTX_OK && strcmp(PQgetvalue(result, 0, 0), "f") == 0) {
        status = PQTX_BUSY;
    }
    PQclear(result);
    return status;
}

/* The answer is whether the lock was got, so it cannot wait. */
static pqtx_status try(pqtx_tx *tx, const struct lock *lock, int count, const pqtx_value *values)
{
    pqtx_status status = pqtx__tx_enter(tx);
    if (status != PQTX_OK)
        return status;
    status = ask_now(tx, lock, count, values);
    pqtx__tx_leave(tx);
    return status;
}

static pqtx_status take_key(pqtx_tx *tx, const struct lock *lock, int64_t key)
{
    return take(tx, lock, 1, PQTX_ARGS(PQTX_INT(key)));
}

static pqtx_status take_pair(pqtx_tx *tx, const struct lock *lock, int32_t group, int32_t key)
{
    return take(tx, lock, 1, PQTX_ARGS(PQTX_INT(group), PQTX_INT(key)));
}

static pqtx_status try_key(pqtx_tx *tx, const struct lock *lock, int64_t key)
{
    return try(tx, lock, PQTX_ARGS(PQTX_INT(key)));
}

static pqtx_status try_pair(pqtx_tx *tx, const struct lock *lock, int32_t group, int32_t key)
{
    return try(tx, lock, PQTX_ARGS(PQTX_INT(group), PQTX_INT(key)));
}

pqtx_status pqtx_lock(pqtx_tx *tx, int64_t key)
{
    return take_key(tx, &key_lock, key);
}

pqtx_status pqtx_lock_shared(pqtx_tx *tx, int64_t key)
{
    return take_key(tx, &key_shared, key);
}

pqtx_status pqtx_try_lock(pqtx_tx *tx, int64_t key)
{
    return try_key(tx, &key_try, key);
}

pqtx_status pqtx_try_lock_shared(pqtx_tx *tx, int64_t key)
{
    return try_key(tx, &key_try_shared, key);
}

pqtx_status pqtx_lock_pair(pqtx_tx *tx, int32_t group, int32_t key)
{
    return take_pair(tx, &pair_lock, group, key);
}

pqtx_status pqtx_lock_pair_shared(pqtx_tx *tx, int32_t group, int32_t key)
{
    return take_pair(tx, &pair_shared, group, key);
}

pqtx_status pqtx_try_lock_pair(pqtx_tx *tx, int32_t group, int32_t key)
{
    return try_pair(tx, &pair_try, group, key);
}

pqtx_status pqtx_try_lock_pair_shared(pqtx_tx *tx, int32_t group, int32_t key)
{
    return try_pair(tx, &pair_try_shared, group, key);
}

int64_t pqtx_lock_key(const char *name)
{
    return pqtx__name_key(name ? name : "");
}

/* Whether nothing of the attempt has been sent or is queued. */
static bool is_fresh(const pqtx_tx *tx)
{
    return !tx->begun && tx->batch.count == 0 && tx->pending.count == 0;
}

/* After a slice that was not had: whether there is time for another.  One that was cut short, by
 * the time left, was the last. */
static bool may_wait_on(pqtx_tx *tx)
{
    const struct pqtx__lock_timeout *timeout = &tx->lock_timeout;
    if (timeout->sent_ms >= timeout->wanted_ms && pqtx__left(tx->clock, tx->give_up_us) > 0)
        return true;
    tx->error.flags |= PQTX_ERROR_DEADLINE;
    tx->final = true;
    return false;
}

pqtx_status pqtx_lock_wait(pqtx_tx *tx, int64_t key)
{
    pqtx_status status = pqtx__tx_enter(tx);
    if (status != PQTX_OK)
        return status;
    if (!is_fresh(tx))
        status = pqtx__fail(tx, PQTX_MISUSE,
                            "pqtx_lock_wait() must come before everything else of its attempt, an "
                            "event_id and PQTX_PIN_SNAPSHOT included");
    else
        do
            status = ask_now(tx, &key_lock, PQTX_ARGS(PQTX_INT(key)));
        while (status == PQTX_BUSY && may_wait_on(tx) && pqtx__attempt_rewind(tx));
    pqtx__tx_leave(tx);
    return status;
}

static int compare(const void *a, const void *b)
{
    int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
    return (left > right) - (left < right);
}

/* "{-3,5,8}": ascending and each once, *rows of them; or NULL. */
static char *array_of(const int64_t *keys, size_t count, int64_t *rows)
{
    enum { KEY_SIZE = 21 }; /* "-9223372036854775808" and a comma */
    int64_t *sorted = count <= (SIZE_MAX - 3) / KEY_SIZE ? malloc(count * sizeof *sorted) : NULL;
    char *text = sorted ? malloc(count * KEY_SIZE + 3) : NULL;
    *rows = 0;
    if (text) {
        memcpy(sorted, keys, count * sizeof *sorted);
        qsort(sorted, count, sizeof *sorted, compare);
        char *at = text;
        *at++ = '{';
        for (size_t i = 0; i < count; i++)
            if (i == 0 || sorted[i] != sorted[i - 1])
                at += snprintf(at, KEY_SIZE + 1, "%s%lld", (*rows)++ ? "," : "",
                               (long long)sorted[i]);
        memcpy(at, "}", 2);
    }
    free(sorted);
    return text;
}

/* Fails the attempt from outside a call, where there was nothing to ask the server for. */
static pqtx_status refuse(pqtx_tx *tx, pqtx_status status, const char *why)
{
    pqtx_status mark = pqtx__tx_enter(tx);
    if (mark != PQTX_OK)
        return mark;
    if (status != PQTX_OK)
        pqtx__fail(tx, status, "%s", why);
    pqtx__tx_leave(tx);
    return status;
}

static pqtx_status take_many(pqtx_tx *tx, const struct lock *lock, const int64_t *keys,
                             size_t count)
{
    if (count == 0)
        return refuse(tx, PQTX_OK, "");
    if (!keys)
        return refuse(tx, PQTX_MISUSE, "the keys are NULL");
    int64_t rows;
    char *array = array_of(keys, count, &rows);
    if (!array)
        return refuse(tx, PQTX_NO_MEMORY, "no memory for the keys");
    pqtx_status status = take(tx, lock, rows, PQTX_ARGS(PQTX_TEXT(array)));
    free(array);
    return status;
}

pqtx_status pqtx_lock_many(pqtx_tx *tx, const int64_t *keys, size_t count)
{
    return take_many(tx, &many_lock, keys, count);
}

pqtx_status pqtx_lock_many_shared(pqtx_tx *tx, const int64_t *keys, size_t count)
{
    return take_many(tx, &many_shared, keys, count);
}

pqtx_status pqtx_set_lock_timeout(pqtx_tx *tx, int64_t timeout_ms)
{
    pqtx_status status = pqtx__tx_enter(tx);
    if (status != PQTX_OK)
        return status;
    if (timeout_ms == PQTX_NO_TIMEOUT)
        tx->lock_timeout.wanted_ms = 0;
    else if (timeout_ms == 0)
        tx->lock_timeout.wanted_ms = tx->options.lock_timeout_ms;
    else if (timeout_ms > 0 && timeout_ms <= PQTX__MS_MAX)
        tx->lock_timeout.wanted_ms = timeout_ms;
    else
        status = pqtx__fail(tx, PQTX_MISUSE,
                            "the lock_timeout is not within 0 … 2147483647 or PQTX_NO_TIMEOUT");
    pqtx__tx_leave(tx);
    return status;
}
