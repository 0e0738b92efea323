/* shard.c: one counter in several rows.
 *
 * Taking is three statements of one flight, of which most often the first does it: from a slot that
 * is free; from one that must be waited for; from several, all locked, which alone can tell that
 * too little is left.  Values are computed from the version that was locked. */
#include "counter.h"
#include "options.h"
#include "ready.h"
#include "verdict.h"

#include <pqtx/shard.h>

/* clang-format off */
#define AMOUNT "$2::@.int8"

/* The slot of the process that serves us: two transactions at once are never served by one. */
#define OWN "(@.pg_backend_pid() @% @N)"

static const struct pqtx__verdict add = {
    .last = PQTX__LAST(
        "WITH pqtx_u AS (UPDATE @T AS t SET @V = t.@V @+ " AMOUNT
        " WHERE t.@K @= $1 AND t.@S @= " OWN " RETURNING t.@V AS value),"
        " pqtx_i AS (INSERT INTO @T AS t (@K, @S, @V)"
        " SELECT $1, " OWN ", " AMOUNT " WHERE NOT EXISTS (SELECT FROM pqtx_u)"
        " ON CONFLICT (@K, @S) DO UPDATE SET @V = t.@V @+ " AMOUNT " RETURNING t.@V AS value),"
        " pqtx_b AS (SELECT u.value FROM pqtx_u AS u UNION ALL SELECT i.value FROM pqtx_i AS i),"
        " pqtx_v AS (SELECT CASE WHEN @.count(b.value) @= 1 THEN 0 ELSE -4 END AS code,"
        " NULL::@.int8 AS value FROM pqtx_b AS b)",
        "")};

/* The first slots get what is left over from an even part for each. */
static const struct pqtx__verdict fill = {
    .last = PQTX__LAST(
        "WITH pqtx_i AS (INSERT INTO @T AS t (@K, @S, @V)"
        " SELECT $1::@Y, g.slot, " AMOUNT " @/ @N @+ CASE WHEN g.slot @< (" AMOUNT " @% @N)"
        " THEN 1 ELSE 0 END"
        " FROM @.generate_series(0, @N @- 1) AS g(slot) ORDER BY g.slot"
        " ON CONFLICT (@K, @S) DO UPDATE SET @V = t.@V @+ EXCLUDED.@V RETURNING t.@V AS value),"
        " pqtx_v AS (SELECT CASE WHEN @.count(i.value) @= @N THEN 0 ELSE -4 END AS code,"
        " NULL::@.int8 AS value FROM pqtx_i AS i)",
        "")};

static const struct pqtx__verdict sum = {
    .last = PQTX__LAST(
        "WITH pqtx_s AS (SELECT @.count(t.@V) AS rows, @.sum(t.@V)::@.int8 AS value"
        " FROM @T AS t WHERE t.@K @= $1),"
        " pqtx_v AS (SELECT CASE WHEN s.rows @> 0 THEN 0 ELSE -1 END AS code, s.value"
        " FROM pqtx_s AS s)",
        "")};

/* A slot that has enough, the own one first. */
#define ONE_SLOT(lock)                                                                             \
    "UPDATE @T AS t SET @V = t.@V @- " AMOUNT " WHERE t.@K @= $1 AND t.@V @>= " AMOUNT             \
    " AND NOT " PQTX__IS_DONE("$3") " AND t.@S @= (SELECT s.@S FROM @T AS s"                       \
    " WHERE s.@K @= $1 AND s.@V @>= " AMOUNT                                                       \
    " ORDER BY (s.@S @+ @N @- " OWN ") @% @N, s.@S LIMIT 1" lock ")"                             \
    " RETURNING " PQTX__LEAVE_WORD("$3")

/* Where all together have enough, they are locked in order, and each gives what those before it do
 * not have. */
static const struct pqtx__verdict take = {
    .first = {ONE_SLOT(" FOR NO KEY UPDATE SKIP LOCKED"), ONE_SLOT("")},
    .last = PQTX__LAST(
        "WITH pqtx_s AS MATERIALIZED (SELECT @.count(t.@V) AS rows, @.sum(t.@V) AS value"
        " FROM @T AS t WHERE t.@K @= $1),"
        " pqtx_l AS MATERIALIZED (SELECT t.@S AS slot, t.@V AS value FROM @T AS t"
        " WHERE t.@K @= $1 AND t.@V @> 0 AND NOT " PQTX__IS_DONE("$3")
        " AND (SELECT s.value FROM pqtx_s AS s) @>= " AMOUNT
        " ORDER BY t.@S FOR NO KEY UPDATE),"
        " pqtx_p AS MATERIALIZED (SELECT l.slot, l.value, @.sum(l.value) OVER () AS whole,"
        " @.sum(l.value) OVER (ORDER BY l.slot) @- l.value AS before FROM pqtx_l AS l),"
        " pqtx_u AS (UPDATE @T AS t SET @V = p.value @- LEAST(p.value, " AMOUNT " @- p.before)"
        " FROM pqtx_p AS p WHERE t.@K @= $1 AND t.@S @= p.slot AND p.before @< " AMOUNT
        " AND p.whole @>= " AMOUNT " RETURNING LEAST(p.value, " AMOUNT " @- p.before) AS taken),"
        " pqtx_n AS (SELECT COALESCE(@.sum(u.taken), 0) AS taken FROM pqtx_u AS u),"
        " pqtx_h AS (SELECT COALESCE(@.sum(l.value), 0) AS held FROM pqtx_l AS l),"
        " pqtx_v AS (SELECT CASE WHEN " PQTX__IS_DONE("$3") " OR n.taken @= " AMOUNT " THEN 0"
        " WHEN n.taken @> 0 OR h.held @>= " AMOUNT " THEN -4"
        " WHEN s.rows @= 0 THEN -1 ELSE -2 END AS code, NULL::@.int8 AS value"
        " FROM pqtx_s AS s CROSS JOIN pqtx_n AS n CROSS JOIN pqtx_h AS h)",
        "")};
/* clang-format on */

static pqtx_status meaning(int64_t code, const char **why)
{
    switch (code) {
    case -1:
        *why = "there is no such counter";
        return PQTX_NOT_FOUND;
    case -2:
        *why = "too little is left in all slots together";
        return PQTX_EXHAUSTED;
    default:
        *why = "not all was written: a trigger or a policy kept a row back, or a value is NULL";
        return PQTX_NO_MATCH;
    }
}

static const char *read_shards(const pqtx_shards *shards, pqtx_shards *read,
                               struct pqtx__names *names)
{
    if (!shards || pqtx__import(read, sizeof *read, shards, shards->size) != PQTX_OK)
        return "the shards are NULL, have no size (start from PQTX_SHARDS), or come from a newer "
               "version and use what this one does not know";
    *names = (struct pqtx__names){.schema = read->schema,
                                  .table = read->table ? read->table : "counter_slot",
                                  .key = read->key ? read->key : "key",
                                  .slot = read->slot ? read->slot : "slot",
                                  .value = read->value ? read->value : "value",
                                  .type = pqtx__key_sql(read->key_type),
                                  .slots = read->slot_count ? read->slot_count : 8};
    if (!names->type)
        return "shards.key_type is none of PQTX_KEY_…";
    if (names->slots < 1 || names->slots > 1000)
        return "shards.slot_count is not within 0 … 1000";
    if ((read->flags & ~PQTX_COUNTER_BOUNDED) || read->reserved != 0)
        return "shards.flags has a bit that this version does not know, or reserved is not 0";
    if (read->flags & PQTX_COUNTER_BOUNDED)
        names->check = " CHECK (@V @>= 0)";
    return pqtx__names_fault(names);
}

/* Every statement has the key, all but the sum an amount, and that which leaves word the word. */
static pqtx_status ask(struct pqtx__way way, const pqtx_shards *shards,
                       const struct pqtx__verdict *verdict, pqtx_value key, int64_t amount,
                       int64_t least, int64_t *value)
{
    pqtx_shards read;
    struct pqtx__names names;
    pqtx_value values[] = {key, pqtx_int(amount), pqtx_null()};
    if (value)
        *value = PQTX_VALUE_UNKNOWN;
    const char *fault = read_shards(shards, &read, &names);
    if (!fault)
        fault = pqtx__key_fault(read.key_type, &key);
    if (!fault && amount < least)
        fault = "the amount is too small: take from 1 up, fill from 0 up";
    return pqtx__ask(way,
                     &(struct pqtx__question){.names = &names,
                                              .verdict = verdict,
                                              .count = verdict == &sum    ? 1
                                                       : verdict == &take ? 3
                                                                          : 2,
                                              .values = values,
                                              .meaning = meaning,
                                              .out = value,
                                              .out_count = value ? 1 : 0},
                     fault);
}

#define IN_BODY ((struct pqtx__way){.tx = tx})
#define NOW     ((struct pqtx__way){true, NULL, pool, options, error})

pqtx_status pqtx_shards_add(pqtx_tx *tx, const pqtx_shards *shards, pqtx_value key, int64_t delta)
{
    return ask(IN_BODY, shards, &add, key, delta, INT64_MIN, NULL);
}

pqtx_status pqtx_shards_add_now(pqtx_pool *pool, const pqtx_options *options,
                                const pqtx_shards *shards, pqtx_value key, int64_t delta,
                                pqtx_error *error)
{
    return ask(NOW, shards, &add, key, delta, INT64_MIN, NULL);
}

pqtx_status pqtx_shards_fill(pqtx_tx *tx, const pqtx_shards *shards, pqtx_value key, int64_t amount)
{
    return ask(IN_BODY, shards, &fill, key, amount, 0, NULL);
}

pqtx_status pqtx_shards_fill_now(pqtx_pool *pool, const pqtx_options *options,
                                 const pqtx_shards *shards, pqtx_value key, int64_t amount,
                                 pqtx_error *error)
{
    return ask(NOW, shards, &fill, key, amount, 0, NULL);
}

pqtx_status pqtx_shards_take(pqtx_tx *tx, const pqtx_shards *shards, pqtx_value key, int64_t n)
{
    return ask(IN_BODY, shards, &take, key, n, 1, NULL);
}

pqtx_status pqtx_shards_take_now(pqtx_pool *pool, const pqtx_options *options,
                                 const pqtx_shards *shards, pqtx_value key, int64_t n,
                                 pqtx_error *error)
{
    return ask(NOW, shards, &take, key, n, 1, NULL);
}

pqtx_status pqtx_shards_sum(pqtx_tx *tx, const pqtx_shards *shards, pqtx_value key, int64_t *value)
{
    return ask(IN_BODY, shards, &sum, key, 0, 0, value);
}

pqtx_status pqtx_shards_sum_now(pqtx_pool *pool, const pqtx_options *options,
                                const pqtx_shards *shards, pqtx_value key, int64_t *value,
                                pqtx_error *error)
{
    return ask(NOW, shards, &sum, key, 0, 0, value);
}

/* ---- a table for it */

#define TABLE                                                                                      \
    "CREATE TABLE IF NOT EXISTS @T (\n"                                                            \
    "    @K @Y,\n"                                                                                 \
    "    @S integer,\n"                                                                            \
    "    @V bigint NOT NULL DEFAULT 0@C,\n"                                                        \
    "    PRIMARY KEY (@K, @S)\n"                                                                   \
    ") WITH (fillfactor = 50)"

size_t pqtx_shards_ddl(const pqtx_shards *shards, char *buffer, size_t size)
{
    pqtx_shards read;
    struct pqtx__names names;
    const char *fault = read_shards(shards, &read, &names);
    return pqtx__ready_print(&names, fault, TABLE ";\n", buffer, size);
}

pqtx_status pqtx_shards_install(pqtx_pool *pool, const pqtx_shards *shards, pqtx_error *error)
{
    pqtx_shards read;
    struct pqtx__names names;
    const char *fault = read_shards(shards, &read, &names);
    return pqtx__ready_install(pool, &names, fault, TABLE, error);
}
