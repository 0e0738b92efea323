/* leader.c: one leader among many programs, and writes that only the leader can make.
 *
 * The handle: its connection, made and given up, and one thread at a time inside. */
#include "backend.h"
#include "backoff.h"
#include "clock.h"
#include "name.h"
#include "options.h"
#include "session.h"
#include "takeover.h"
#include "tx.h"

#include <pqtx/leader.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_LEN_MAX 200

/* After a connection that failed, up to so long. */
#define RECONNECT_FIRST_US 50000
#define RECONNECT_MAX_US   2000000

struct pqtx_leader {
    pqtx_pool *pool;
    const pqtx_clock *clock;
    char name[NAME_LEN_MAX + 1], schema[64];
    int64_t key, answer_us, slice_us;
    atomic_int busy;
    _Atomic int64_t epoch;       /* 0: does not lead */
    struct pqtx__wire *wire;     /* or NULL; its session holds the lock only while it leads */
    struct pqtx__backend orphan; /* of a connection that was lost: it may still hold the lock */
};

/* ---- the table */

#define TABLE_NAME PQTX__LEADER_TABLE
#define COLUMNS                                                                                    \
    " (\n"                                                                                         \
    "    name text COLLATE \"C\" PRIMARY KEY,\n"                                                   \
    "    epoch bigint NOT NULL,\n"                                                                 \
    "    since timestamptz NOT NULL,\n"                                                            \
    "    application text NOT NULL,\n"                                                             \
    "    pid integer NOT NULL\n"                                                                   \
    ")"

const char *pqtx_leader_ddl(void)
{
    return "CREATE TABLE IF NOT EXISTS " TABLE_NAME COLUMNS ";\n";
}

/* Two that create the table at once must not meet: IF NOT EXISTS is no lock. */
static pqtx_status install(pqtx_tx *tx, void *sql)
{
    pqtx_exec(tx, "SELECT pg_catalog.pg_advisory_xact_lock($1::pg_catalog.int8)",
              PQTX_ARGS(PQTX_INT(pqtx__name_key(TABLE_NAME))), NULL);
    /* What stands in the columns without a schema is PostgreSQL's own. */
    pqtx_exec(tx, "SET LOCAL search_path = pg_catalog, pg_temp", PQTX_NO_ARGS, NULL);
    return pqtx_exec(tx, sql, PQTX_NO_ARGS, NULL);
}

pqtx_status pqtx_leader_install(pqtx_pool *pool, const char *schema, pqtx_error *error)
{
    char sql[512];
    pqtx_options options = PQTX_OPTIONS;
    const char *plain = pqtx__once_schema(schema);
    if (!plain)
        return pqtx__error_report(error, PQTX_MISUSE, "the schema is not a plain name");
    options.isolation = PQTX_ISO_READ_COMMITTED;
    options.access = PQTX_ACCESS_READ_WRITE;
    snprintf(sql, sizeof sql, "CREATE TABLE IF NOT EXISTS \"%s\"." TABLE_NAME COLUMNS, plain);
    return pqtx_run(pool, &options, install, sql, error);
}

/* ---- opened */

static const char *fault_of(const char *name, const pqtx_leader_options *o)
{
    size_t len = name ? strlen(name) : 0;
    if (len == 0 || len > NAME_LEN_MAX)
        return "the leader's name is missing, empty or longer than 200 bytes";
    if (!pqtx__once_schema(o->schema))
        return "options.schema is not a plain name: letters, digits and _, at most 63";
    if (o->answer_ms < 0 || o->answer_ms > PQTX__MS_MAX || o->slice_ms < 0 ||
        o->slice_ms > PQTX__MS_MAX)
        return "options.answer_ms or slice_ms is not within 0 … 2147483647";
    return NULL;
}

static pqtx_leader *create(pqtx_pool *pool, const char *name, const pqtx_leader_options *o)
{
    char lock[sizeof(TABLE_NAME) + 64 + NAME_LEN_MAX + 2];
    pqtx_leader *leader = calloc(1, sizeof *leader);
    if (!leader)
        return NULL;
    leader->pool = pool;
    leader->clock = pqtx__pool_clock(pool);
    pqtx__text_copy(leader->schema, sizeof leader->schema, pqtx__once_schema(o->schema));
    memcpy(leader->name, name, strlen(name) + 1);
    snprintf(lock, sizeof lock, TABLE_NAME ":%s:%s", leader->schema, name);
    leader->key = pqtx__name_key(lock);
    leader->answer_us = (o->answer_ms ? o->answer_ms : 5000) * 1000;
    leader->slice_us = (o->slice_ms ? o->slice_ms : 5000) * 1000;
    pqtx__pool_ref(pool);
    return leader;
}

pqtx_status pqtx_leader_open(pqtx_pool *pool, const char *name, const pqtx_leader_options *options,
                             pqtx_leader **leader, pqtx_error *error)
{
    pqtx_leader_options read = PQTX_LEADER_OPTIONS;
    const char *why = "the pool is NULL or belongs to the parent process";
    if (leader)
        *leader = NULL;
    if (!leader || !pqtx__error_is_open(error))
        return PQTX_MISUSE;
    if (options && pqtx__import(&read, sizeof read, options, options->size) != PQTX_OK)
        why = "the options have no size (start from PQTX_LEADER_OPTIONS), or come from a newer "
              "version and use what this one does not know";
    else if (pool && !pqtx__pool_is_foreign(pool))
        why = fault_of(name, &read);
    if (why)
        return pqtx__error_report(error, PQTX_MISUSE, why);
    *leader = create(pool, name, &read);
    if (!*leader)
        return pqtx__error_report(error, PQTX_NO_MEMORY, "no memory for a leader");
    if (error)
        pqtx__error_export(&(pqtx_error)PQTX_ERROR, error);
    return PQTX_OK;
}

/* ---- one thread at a time */

static bool is_ours(const pqtx_leader *leader)
{
    return leader && !pqtx__pool_is_foreign(leader->pool);
}

static bool enter(pqtx_leader *leader)
{
    return is_ours(leader) && !atomic_exchange(&leader->busy, 1);
}

static pqtx_status misused(pqtx_error *error)
{
    return pqtx__error_report(error, PQTX_MISUSE,
                              "the leader is NULL, the parent process's, or in another thread's "
                              "hands");
}

static pqtx_status leave(pqtx_leader *leader, const pqtx_error *from, pqtx_error *to)
{
    atomic_store(&leader->busy, 0);
    if (to)
        pqtx__error_export(from, to);
    return from->status;
}

static pqtx_status say(pqtx_error *error, pqtx_status status, const char *what)
{
    pqtx__error_set(error, status, PQTX_PHASE_NONE, PQTX_ORIGIN_LIBRARY, "%s", what);
    return status;
}

/* ---- the connection */

/* Gives it up, and with it whatever its session holds. */
static void drop(pqtx_leader *leader)
{
    atomic_store(&leader->epoch, 0);
    if (!leader->wire)
        return;
    leader->orphan = leader->wire->backend;
    pqtx__wire_close(leader->wire, false);
    leader->wire = NULL;
}

/* Whether it leads, as far as can be seen. */
static bool look(pqtx_leader *leader)
{
    if (leader->wire && !pqtx__session_stands(leader->wire))
        drop(leader);
    return atomic_load(&leader->epoch) != 0;
}

/* A session that was lost on the way, and not ended, would keep us out. */
static pqtx_status reach(pqtx_leader *leader, int64_t until_us, pqtx_error *error)
{
    if (leader->wire)
        return PQTX_OK;
    pqtx_status status =
        pqtx__session_open(leader->pool, until_us, leader->answer_us, &leader->wire, error);
    if (status == PQTX_OK && leader->orphan.pid != 0) {
        pqtx__backend_end(leader->wire, &leader->orphan,
                          pqtx__now(leader->clock) + leader->answer_us);
        leader->orphan.pid = 0;
    }
    return status;
}

static bool confirms(pqtx_leader *leader, const char *sql, int count, const pqtx_value *values)
{
    return pqtx__wire_confirms(leader->wire, sql, count, values,
                               pqtx__now(leader->clock) + leader->answer_us);
}

/* ---- taking over */

/* A session that may hold what it should not is not kept. */
static pqtx_status take(pqtx_leader *leader, bool waits, int64_t lock_us, pqtx_error *error)
{
    struct pqtx__takeover takeover = {.schema = leader->schema,
                                      .name = leader->name,
                                      .key = leader->key,
                                      .waits = waits,
                                      .lock_us = lock_us,
                                      .answer_us = leader->answer_us};
    int64_t epoch;
    pqtx_status status = pqtx__takeover(leader->wire, &takeover, &epoch, error);
    if (status == PQTX_OK)
        atomic_store(&leader->epoch, epoch);
    else if (status != PQTX_BUSY || leader->wire->lost)
        drop(leader);
    return status;
}

pqtx_status pqtx_leader_try(pqtx_leader *leader, pqtx_error *error)
{
    pqtx_error first = PQTX_ERROR;
    if (!pqtx__error_is_open(error) || !enter(leader))
        return misused(error);
    if (!look(leader) && reach(leader, INT64_MAX, &first) == PQTX_OK)
        take(leader, false, leader->slice_us, &first);
    return leave(leader, &first, error);
}

/* Nothing that another try would not mend. */
static bool may_pass(const pqtx_error *error)
{
    return pqtx_is_retryable(error->status) || error->advice == PQTX_ADVICE_LATER ||
           error->advice == PQTX_ADVICE_RECONNECT;
}

static void wait_in_slices(pqtx_leader *leader, int64_t until_us, pqtx_error *error)
{
    for (uint32_t failures = 0;;) {
        *error = (pqtx_error)PQTX_ERROR;
        if (reach(leader, until_us, error) == PQTX_OK) {
            int64_t left_us = pqtx__left(leader->clock, until_us);
            take(leader, true, left_us < leader->slice_us ? left_us : leader->slice_us, error);
        }
        if (error->status == PQTX_OK || !may_pass(error) ||
            pqtx__left(leader->clock, until_us) == 0)
            return;
        failures = error->status == PQTX_BUSY ? 0 : failures + 1;
        if (failures == 0)
            continue;
        uint64_t random = leader->clock->random(leader->clock->arg);
        int64_t next_us = pqtx__now(leader->clock) +
                          pqtx__backoff_us(RECONNECT_FIRST_US, RECONNECT_MAX_US, failures, random);
        pqtx__sleep(leader->clock, next_us < until_us ? next_us : until_us);
    }
}

pqtx_status pqtx_leader_wait(pqtx_leader *leader, int64_t timeout_ms, pqtx_error *error)
{
    pqtx_error first = PQTX_ERROR;
    if (!pqtx__error_is_open(error) || !enter(leader))
        return misused(error);
    if (timeout_ms < 0 || timeout_ms > PQTX__MS_MAX)
        say(&first, PQTX_MISUSE, "timeout_ms is not within 0 … 2147483647");
    else if (!look(leader))
        wait_in_slices(leader, pqtx__now(leader->clock) + (timeout_ms ? timeout_ms : 30000) * 1000,
                       &first);
    return leave(leader, &first, error);
}

/* ---- leading */

int pqtx_leader_is(pqtx_leader *leader)
{
    if (enter(leader)) {
        look(leader);
        atomic_store(&leader->busy, 0);
    }
    return pqtx_leader_epoch(leader) != 0;
}

int64_t pqtx_leader_epoch(const pqtx_leader *leader)
{
    return is_ours(leader) ? atomic_load(&leader->epoch) : 0;
}

int pqtx_leader_fd(const pqtx_leader *leader)
{
    return pqtx_leader_epoch(leader) != 0 && leader->wire ? PQsocket(leader->wire->conn) : -1;
}

#define IS_NEWEST                                                                                  \
    " FROM \"%s\"." TABLE_NAME " AS l WHERE l.name OPERATOR(pg_catalog.=) $1::pg_catalog.text"     \
    " AND l.epoch OPERATOR(pg_catalog.=) $2::pg_catalog.int8"

pqtx_status pqtx_leader_check(pqtx_leader *leader, pqtx_error *error)
{
    pqtx_error first = PQTX_ERROR;
    char sql[256];
    if (!pqtx__error_is_open(error) || !enter(leader))
        return misused(error);
    int64_t epoch = atomic_load(&leader->epoch);
    snprintf(sql, sizeof sql, "SELECT EXISTS (SELECT" IS_NEWEST ")", leader->schema);
    if (!look(leader)) {
        say(&first, PQTX_LEASE_LOST, "it does not lead, or its session has ended");
    } else if (!confirms(leader, sql, PQTX_ARGS(PQTX_TEXT(leader->name), PQTX_INT(epoch)))) {
        say(&first, PQTX_LEASE_LOST, "the server did not confirm in time that it leads");
        drop(leader);
    }
    return leave(leader, &first, error);
}

static pqtx_status release(pqtx_leader *leader, pqtx_error *error)
{
    if (!look(leader))
        return PQTX_OK;
    atomic_store(&leader->epoch, 0);
    if (confirms(leader, "SELECT pg_catalog.pg_advisory_unlock($1::pg_catalog.int8)",
                 PQTX_ARGS(PQTX_INT(leader->key))))
        return PQTX_OK;
    drop(leader);
    return say(error, PQTX_NO_CONNECTION, "the server did not confirm the release in time");
}

pqtx_status pqtx_leader_release(pqtx_leader *leader, pqtx_error *error)
{
    pqtx_error first = PQTX_ERROR;
    if (!pqtx__error_is_open(error) || !enter(leader))
        return misused(error);
    release(leader, &first);
    return leave(leader, &first, error);
}

void pqtx_leader_close(pqtx_leader *leader)
{
    pqtx_error unheard = PQTX_ERROR;
    if (!leader)
        return;
    if (is_ours(leader)) {
        release(leader, &unheard);
        drop(leader);
    } else if (leader->wire) {
        pqtx__wire_close(leader->wire, true);
    }
    pqtx__pool_unref(leader->pool);
    free(leader);
}

/* ---- fenced */

static pqtx_status meaning(int64_t code, const char **why)
{
    (void)code;
    *why = "this epoch is not the leader's newest: another one has taken over";
    return PQTX_LEASE_LOST;
}

static pqtx_status refuse(pqtx_tx *tx, const char *why)
{
    pqtx_status status = pqtx__tx_enter(tx);
    if (status != PQTX_OK)
        return status;
    status = pqtx__fail(tx, PQTX_MISUSE, "%s", why);
    pqtx__tx_leave(tx);
    return status;
}

/* FOR SHARE holds off the UPDATE of a take-over, which FOR KEY SHARE would let through. */
pqtx_status pqtx_fence(pqtx_tx *tx, const char *schema, const char *name, int64_t epoch)
{
    char sql[256];
    const char *plain = pqtx__once_schema(schema);
    if (!plain || !name)
        return refuse(tx, "the schema is not a plain name, or the leader's name is NULL");
    snprintf(sql, sizeof sql, "SELECT l.epoch" IS_NEWEST " FOR SHARE", plain);
    struct pqtx__request request = {
        .sql = sql, .rule = {PQTX__COUNT_EXACT, 1}, .meaning = meaning, .count = 2};
    request.values = (const pqtx_value[]){pqtx_text(name), pqtx_int(epoch)};
    return pqtx__tx_call(tx, &request);
}
