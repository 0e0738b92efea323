/* counter.c: one counter, changed by one statement and judged by the next.
 *
 * Under READ COMMITTED the parts of one statement look at the row at different times, so what
 * changes nothing is explained by a statement of its own, with a snapshot of its own.  That one
 * also tries again, for a row that was deleted and inserted while the first one waited for it. */
#include "counter.h"
#include "options.h"
#include "ready.h"
#include "verdict.h"

#include <stdlib.h>
#include <string.h>

/* clang-format off */
#define VALUE  "t.@V::@.int8"
#define AMOUNT "$2::@.int8"

/* The row is changed where it is there; it is inserted where it is not, or where it came after the
 * snapshot, and then changed. */
static const struct pqtx__verdict add = {
    .last = PQTX__LAST(
        "WITH pqtx_u AS (UPDATE @T AS t SET @V = t.@V @+ " AMOUNT " WHERE t.@K @= $1"
        " RETURNING " VALUE " AS value),"
        " pqtx_i AS (INSERT INTO @T AS t (@K, @V)"
        " SELECT $1, " AMOUNT " WHERE NOT EXISTS (SELECT FROM pqtx_u)"
        " ON CONFLICT (@K) DO UPDATE SET @V = t.@V @+ " AMOUNT " RETURNING " VALUE " AS value),"
        " pqtx_b AS (SELECT u.value FROM pqtx_u AS u UNION ALL SELECT i.value FROM pqtx_i AS i),"
        " pqtx_v AS (SELECT CASE WHEN @.count(b.value) @= 1 THEN 0 ELSE -4 END AS code,"
        " @.max(b.value) AS value FROM pqtx_b AS b)",
        "")};

static const struct pqtx__verdict get = {
    .last = PQTX__LAST(
        "WITH pqtx_s AS (SELECT @.count(t.@V) AS rows, @.max(" VALUE ") AS value"
        " FROM @T AS t WHERE t.@K @= $1),"
        " pqtx_v AS (SELECT CASE WHEN s.rows @= 1 THEN 0 WHEN s.rows @= 0 THEN -1 ELSE 2 END"
        " AS code, s.value FROM pqtx_s AS s)",
        "")};

/* A change of a row that is there.  Where it is there and was not changed, the code depends on
 * whether it meets the condition: if it does, it was put there meanwhile. */
#define UPDATE(set, condition)                                                                     \
    "UPDATE @T AS t SET @V = " set " WHERE t.@K @= $1 AND " condition

#define CHANGE(set, condition, word)                                                               \
    {                                                                                              \
        .first = {UPDATE(set, condition) " RETURNING " PQTX__LEAVE_WORD(word)},                    \
        .last = PQTX__LAST(                                                                        \
            "WITH pqtx_u AS (" UPDATE(set, condition) " AND NOT " PQTX__IS_DONE(word)              \
            " RETURNING " VALUE " AS value),"                                                      \
            " pqtx_n AS (SELECT @.count(*) AS rows, @.max(u.value) AS value FROM pqtx_u AS u),"    \
            " pqtx_s AS (SELECT @.count(t.@V) AS rows, @.max(" VALUE ") AS value,"                 \
            " @.bool_and(" condition ") AS holds FROM @T AS t WHERE t.@K @= $1),"                  \
            " pqtx_v AS (SELECT CASE WHEN s.rows @> 1 THEN 2"                                      \
            " WHEN n.rows @= 1 OR " PQTX__IS_DONE(word) " THEN 0"                                  \
            " WHEN s.rows @= 0 THEN -1 WHEN s.holds THEN -3 ELSE -2 END AS code,"                  \
            " COALESCE(n.value, s.value) AS value FROM pqtx_n AS n CROSS JOIN pqtx_s AS s)",       \
            "")                                                                                    \
    }

static const struct pqtx__verdict bump = CHANGE("t.@V @+ " AMOUNT, "t.@V IS NOT NULL", "$3");
static const struct pqtx__verdict take = CHANGE("t.@V @- " AMOUNT, "t.@V @>= " AMOUNT, "$3");
static const struct pqtx__verdict set_if = CHANGE("$3::@.int8", "t.@V @= " AMOUNT, "$4");
/* clang-format on */

static pqtx_status meaning(int64_t code, const char **why)
{
    switch (code) {
    case -1:
        *why = "there is no such counter";
        return PQTX_NOT_FOUND;
    case -2:
        *why = "too little is left of the counter";
        return PQTX_EXHAUSTED;
    case -3:
        *why = "the counter was replaced while its row was waited for";
        return PQTX_BUSY;
    case -4:
        *why = "nothing was written: a trigger or a policy kept the row back, or its value is NULL";
        return PQTX_NO_MATCH;
    default:
        *why = "the key meets more than one row: it needs a unique index";
        return PQTX_TOO_MANY;
    }
}

static pqtx_status meaning_of_set(int64_t code, const char **why)
{
    if (code != -2)
        return meaning(code, why);
    *why = "the counter has another value than was expected";
    return PQTX_CONDITION_FALSE;
}

/* ---- the caller's counter and key */

const char *pqtx__key_sql(pqtx_key_type type)
{
    static const char *const names[] = {"pg_catalog.text", "pg_catalog.int8", "pg_catalog.uuid"};
    return (unsigned)type < sizeof names / sizeof names[0] ? names[type] : NULL;
}

const char *pqtx__key_fault(pqtx_key_type type, const pqtx_value *key)
{
    if (key->type == (type == PQTX_KEY_INT ? PQTX_TYPE_INT : PQTX_TYPE_TEXT))
        return NULL;
    return "the key is not of its column's key_type: PQTX_INT for PQTX_KEY_INT, else PQTX_TEXT";
}

const char *pqtx__counter_read(const pqtx_counter *counter, pqtx_counter *read,
                               struct pqtx__names *names)
{
    if (!counter || pqtx__import(read, sizeof *read, counter, counter->size) != PQTX_OK)
        return "the counter is NULL, has no size (start from PQTX_COUNTER), or comes from a newer "
               "version and uses what this one does not know";
    *names = (struct pqtx__names){.schema = read->schema,
                                  .table = read->table ? read->table : "counter",
                                  .key = read->key ? read->key : "key",
                                  .value = read->value ? read->value : "value",
                                  .type = pqtx__key_sql(read->key_type)};
    if (!names->type)
        return "counter.key_type is none of PQTX_KEY_…";
    if (read->flags & ~PQTX_COUNTER_BOUNDED)
        return "counter.flags has a bit that this version does not know";
    if (read->flags & PQTX_COUNTER_BOUNDED)
        names->check = " CHECK (@V @>= 0)";
    return pqtx__names_fault(names);
}

char *pqtx__counter_keep(pqtx_counter *counter)
{
    const char **names[] = {&counter->schema, &counter->table, &counter->key, &counter->value};
    size_t size = 1;
    for (size_t i = 0; i < 4; i++)
        size += *names[i] ? strlen(*names[i]) + 1 : 0;
    char *block = malloc(size), *at = block;
    for (size_t i = 0; block && i < 4; i++) {
        if (!*names[i])
            continue;
        size_t len = strlen(*names[i]) + 1;
        *names[i] = memcpy(at, *names[i], len);
        at += len;
    }
    return block;
}

bool pqtx__int_add(int64_t a, int64_t b, int64_t *sum)
{
    if (b > 0 ? a > INT64_MAX - b : a < INT64_MIN - b)
        return false;
    *sum = a + b;
    return true;
}

bool pqtx__is_refusal(pqtx_status status)
{
    return pqtx_is_answer(status) || status == PQTX_BAD_DATA || status == PQTX_RAISED;
}

/* ---- the calls */

static pqtx_status ask(struct pqtx__way way, const pqtx_counter *counter,
                       const struct pqtx__verdict *verdict, int count, pqtx_value *values,
                       int64_t *value)
{
    pqtx_counter read;
    struct pqtx__names names;
    struct pqtx__question question = {.names = &names,
                                      .verdict = verdict,
                                      .count = count,
                                      .values = values,
                                      .meaning = verdict == &set_if ? meaning_of_set : meaning,
                                      .out = value,
                                      .out_count = value ? 1 : 0};
    if (value)
        *value = PQTX_VALUE_UNKNOWN;
    const char *fault = pqtx__counter_read(counter, &read, &names);
    if (!fault)
        fault = pqtx__key_fault(read.key_type, &values[0]);
    if (!fault && verdict == &take && values[1].as.integer < 1)
        fault = "n is not from 1 up";
    return pqtx__ask(way, &question, fault);
}

#define IN_BODY   ((struct pqtx__way){.tx = tx})
#define NOW       ((struct pqtx__way){true, NULL, pool, options, error})
#define VALUES(v) (int)(sizeof(v) / sizeof((v)[0])), v

static pqtx_status do_add(struct pqtx__way way, const pqtx_counter *counter, pqtx_value key,
                          int64_t delta, int64_t *value)
{
    pqtx_value values[] = {key, pqtx_int(delta)};
    return ask(way, counter, &add, VALUES(values), value);
}

static pqtx_status do_bump(struct pqtx__way way, const pqtx_counter *counter, pqtx_value key,
                           int64_t delta, int64_t *value)
{
    pqtx_value values[] = {key, pqtx_int(delta), pqtx_null()};
    return ask(way, counter, &bump, VALUES(values), value);
}

static pqtx_status do_take(struct pqtx__way way, const pqtx_counter *counter, pqtx_value key,
                           int64_t n, int64_t *value)
{
    pqtx_value values[] = {key, pqtx_int(n), pqtx_null()};
    return ask(way, counter, &take, VALUES(values), value);
}

static pqtx_status do_get(struct pqtx__way way, const pqtx_counter *counter, pqtx_value key,
                          int64_t *value)
{
    pqtx_value values[] = {key};
    return ask(way, counter, &get, VALUES(values), value);
}

static pqtx_status do_set_if(struct pqtx__way way, const pqtx_counter *counter, pqtx_value key,
                             int64_t expected, int64_t wanted, int64_t *value)
{
    pqtx_value values[] = {key, pqtx_int(expected), pqtx_int(wanted), pqtx_null()};
    return ask(way, counter, &set_if, VALUES(values), value);
}

pqtx_status pqtx_counter_add(pqtx_tx *tx, const pqtx_counter *counter, pqtx_value key,
                             int64_t delta, int64_t *value)
{
    return do_add(IN_BODY, counter, key, delta, value);
}

pqtx_status pqtx_counter_add_now(pqtx_pool *pool, const pqtx_options *options,
                                 const pqtx_counter *counter, pqtx_value key, int64_t delta,
                                 int64_t *value, pqtx_error *error)
{
    return do_add(NOW, counter, key, delta, value);
}

pqtx_status pqtx_counter_bump(pqtx_tx *tx, const pqtx_counter *counter, pqtx_value key,
                              int64_t delta, int64_t *value)
{
    return do_bump(IN_BODY, counter, key, delta, value);
}

pqtx_status pqtx_counter_bump_now(pqtx_pool *pool, const pqtx_options *options,
                                  const pqtx_counter *counter, pqtx_value key, int64_t delta,
                                  int64_t *value, pqtx_error *error)
{
    return do_bump(NOW, counter, key, delta, value);
}

pqtx_status pqtx_counter_take(pqtx_tx *tx, const pqtx_counter *counter, pqtx_value key, int64_t n,
                              int64_t *value)
{
    return do_take(IN_BODY, counter, key, n, value);
}

pqtx_status pqtx_counter_take_now(pqtx_pool *pool, const pqtx_options *options,
                                  const pqtx_counter *counter, pqtx_value key, int64_t n,
                                  int64_t *value, pqtx_error *error)
{
    return do_take(NOW, counter, key, n, value);
}

pqtx_status pqtx_counter_get(pqtx_tx *tx, const pqtx_counter *counter, pqtx_value key,
                             int64_t *value)
{
    return do_get(IN_BODY, counter, key, value);
}

pqtx_status pqtx_counter_get_now(pqtx_pool *pool, const pqtx_options *options,
                                 const pqtx_counter *counter, pqtx_value key, int64_t *value,
                                 pqtx_error *error)
{
    return do_get(NOW, counter, key, value);
}

pqtx_status pqtx_counter_set_if(pqtx_tx *tx, const pqtx_counter *counter, pqtx_value key,
                                int64_t expected, int64_t wanted, int64_t *value)
{
    return do_set_if(IN_BODY, counter, key, expected, wanted, value);
}

pqtx_status pqtx_counter_set_if_now(pqtx_pool *pool, const pqtx_options *options,
                                    const pqtx_counter *counter, pqtx_value key, int64_t expected,
                                    int64_t wanted, int64_t *value, pqtx_error *error)
{
    return do_set_if(NOW, counter, key, expected, wanted, value);
}

/* ---- a table for it */

#define TABLE                                                                                      \
    "CREATE TABLE IF NOT EXISTS @T (\n"                                                            \
    "    @K @Y PRIMARY KEY,\n"                                                                     \
    "    @V bigint NOT NULL DEFAULT 0@C\n"                                                         \
    ") WITH (fillfactor = 50)"

size_t pqtx_counter_ddl(const pqtx_counter *counter, char *buffer, size_t size)
{
    pqtx_counter read;
    struct pqtx__names names;
    const char *fault = pqtx__counter_read(counter, &read, &names);
    return pqtx__ready_print(&names, fault, TABLE ";\n", buffer, size);
}

pqtx_status pqtx_counter_install(pqtx_pool *pool, const pqtx_counter *counter, pqtx_error *error)
{
    pqtx_counter read;
    struct pqtx__names names;
    const char *fault = pqtx__counter_read(counter, &read, &names);
    return pqtx__ready_install(pool, &names, fault, TABLE, error);
}
