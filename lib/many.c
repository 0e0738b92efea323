/* many.c: many counters in one statement, whose rows are locked in one order.
 *
 * INSERT … ON CONFLICT takes the rows in the order that its SELECT gives them, whatever the plan.
 * An UPDATE of many rows takes them as a hash join or a bitmap comes to them, and two of them
 * deadlock.  Equal keys are added up here, since one statement may not change a row twice. */
#include "counter.h"
#include "value.h"
#include "verdict.h"

#include <stdlib.h>
#include <string.h>

/* $1 are the keys, each behind the separator $2, so that none needs an escape in any encoding; $3
 * their deltas; $4 which of the keys each of the caller's increments was added to. */
/* clang-format off */
static const struct pqtx__verdict add_many = {
    .last = PQTX__LAST(
        "WITH pqtx_k AS (SELECT k.key, k.delta, k.n FROM ROWS FROM ("
        "@.unnest((@.string_to_array($1::@.text, $2::@.text))[2:]::@Y[]),"
        " @.unnest($3::@.int8[])) WITH ORDINALITY AS k(key, delta, n)),"
        " pqtx_i AS (INSERT INTO @T AS t (@K, @V) SELECT k.key, k.delta FROM pqtx_k AS k"
        " ORDER BY k.n ON CONFLICT (@K) DO UPDATE SET @V = t.@V @+ EXCLUDED.@V"
        " RETURNING t.@K AS key, t.@V::@.int8 AS value),"
        " pqtx_g AS (SELECT CASE WHEN (SELECT @.count(i.value) FROM pqtx_i AS i)"
        " @= (SELECT @.count(*) FROM pqtx_k AS k) THEN 0 ELSE -4 END AS code),"
        " pqtx_r AS (SELECT i.value, p.n FROM @.unnest($4::@.int4[]) WITH ORDINALITY AS p(at, n)"
        " INNER JOIN pqtx_k AS k ON k.n @= p.at INNER JOIN pqtx_i AS i ON i.key @= k.key),"
        " pqtx_v AS (SELECT g.code, r.value, r.n FROM pqtx_g AS g LEFT JOIN pqtx_r AS r ON true)",
        " ORDER BY v.n")};
/* clang-format on */

static pqtx_status meaning(int64_t code, const char **why)
{
    (void)code;
    *why = "not all were written: a trigger or a policy kept a row back, or a value is NULL";
    return PQTX_NO_MATCH;
}

/* ---- the caller's increments, in order */

#define UUID_DIGITS 32

struct item {
    pqtx_value key; /* of a uuid: its digits */
    int64_t delta;
    size_t place; /* among the caller's */
};

static int compare(const void *a, const void *b)
{
    const pqtx_value *left = &((const struct item *)a)->key;
    const pqtx_value *right = &((const struct item *)b)->key;
    if (left->type == PQTX_TYPE_INT)
        return (left->as.integer > right->as.integer) - (left->as.integer < right->as.integer);
    size_t len = left->len < right->len ? left->len : right->len;
    int order = len > 0 ? memcmp(left->as.data, right->as.data, len) : 0;
    return order != 0 ? order : (left->len > right->len) - (left->len < right->len);
}

/* One uuid can be written in many ways: in capitals, with or without hyphens, in braces.  What is
 * none stays as it is, for the server to say so. */
static void take_digits(pqtx_value *key, char digits[UUID_DIGITS])
{
    static const char hex[] = "0123456789abcdef0123456789ABCDEF";
    const char *text = key->as.data;
    size_t count = 0;
    for (size_t i = 0; i < key->len; i++) {
        const char *digit = text[i] ? strchr(hex, text[i]) : NULL;
        if (!digit && !(text[i] && strchr("-{}", text[i])))
            return;
        if (digit && count++ < UUID_DIGITS)
            digits[count - 1] = hex[(digit - hex) % 16];
    }
    if (count == UUID_DIGITS)
        *key = pqtx_text_n(digits, UUID_DIGITS);
}

/* The items in order, malloc'ed; NULL without memory, or with *why. */
static struct item *sort(pqtx_key_type type, const pqtx_increment *increments, size_t count,
                         const char **why)
{
    size_t more = type == PQTX_KEY_UUID ? UUID_DIGITS : 0;
    if (count > SIZE_MAX / 2 / (sizeof(struct item) + more))
        return NULL;
    struct item *items = malloc(count * (sizeof *items + more));
    char *digits = (char *)(items + count);
    for (size_t i = 0; items && i < count; i++) {
        *why = pqtx__key_fault(type, &increments[i].key);
        if (*why) {
            free(items);
            return NULL;
        }
        items[i] = (struct item){increments[i].key, increments[i].delta, i};
        if (more)
            take_digits(&items[i].key, digits + i * more);
    }
    if (items)
        qsort(items, count, sizeof *items, compare);
    return items;
}

/* ---- as parameters */

/* The texts of one malloc'ed block. */
struct merged {
    char *keys, *deltas, *places;
    size_t keys_len;
    char separator;
};

/* A byte below the blank, which is never a part of a longer character, and stands in none of the
 * keys; 0 if there is none. */
static char choose_separator(const struct item *items, size_t count)
{
    bool used[' '] = {true};
    for (size_t i = 0; i < count; i++) {
        const unsigned char *text = items[i].key.as.data;
        for (size_t j = 0; items[i].key.type == PQTX_TYPE_TEXT && j < items[i].key.len; j++)
            if (text[j] < ' ')
                used[text[j]] = true;
    }
    for (size_t i = 1; i < sizeof used; i++)
        if (!used[i])
            return (char)i;
    return 0;
}

static size_t put_key(char *at, char separator, const pqtx_value *key)
{
    *at = separator;
    if (key->type == PQTX_TYPE_INT)
        return 1 + pqtx__int_text(key->as.integer, at + 1);
    if (key->len > 0)
        memcpy(at + 1, key->as.data, key->len);
    return 1 + key->len;
}

static char *put_number(char *at, int64_t number)
{
    at += pqtx__int_text(number, at);
    *at++ = ',';
    return at;
}

/* Ends "{1,2," as an array. */
static void end_array(char *array, char *at)
{
    if (at > array + 1)
        at--;
    memcpy(at, "}", 2);
}

#define NUMBER_MAX 21 /* with its comma */

static bool make_room(struct merged *m, const struct item *items, size_t count)
{
    size_t keys = 0, array = count * NUMBER_MAX + 3;
    for (size_t i = 0; i < count; i++) {
        if (items[i].key.len > SIZE_MAX / 4 - keys - NUMBER_MAX)
            return false;
        keys += items[i].key.len + NUMBER_MAX;
    }
    m->keys = malloc(keys + 1 + 2 * array);
    m->deltas = m->keys + keys + 1;
    m->places = m->deltas + array;
    return m->keys != NULL;
}

/* Writes each key once with the sum of its deltas.  `where[i]` gets the place of the key of the
 * caller's increment i. */
static pqtx_status add_up(struct merged *m, const struct item *items, size_t count, int32_t *where,
                          const char **why)
{
    char *delta = m->deltas;
    int32_t place = 0;
    *delta++ = '{';
    m->keys_len = 0;
    for (size_t i = 0; i < count;) {
        size_t first = i;
        int64_t sum = 0;
        m->keys_len += put_key(m->keys + m->keys_len, m->separator, &items[first].key);
        place++;
        for (; i < count && compare(&items[first], &items[i]) == 0; i++) {
            *why = "the sum of the deltas of one key does not fit into 64 bits";
            if (!pqtx__int_add(sum, items[i].delta, &sum))
                return PQTX_BAD_DATA;
            where[items[i].place] = place;
        }
        delta = put_number(delta, sum);
    }
    end_array(m->deltas, delta);
    return PQTX_OK;
}

static pqtx_status merge(struct merged *m, pqtx_key_type type, const pqtx_increment *increments,
                         size_t count, const char **why)
{
    *why = NULL;
    struct item *items = sort(type, increments, count, why);
    if (*why)
        return PQTX_MISUSE;
    int32_t *where = items ? malloc(count * sizeof *where) : NULL;
    pqtx_status status = PQTX_NO_MEMORY;
    *why = "no memory for the increments";
    m->keys = NULL;
    if (where && make_room(m, items, count)) {
        m->separator = choose_separator(items, count);
        *why = "the keys hold every control character that there is";
        status = m->separator ? add_up(m, items, count, where, why) : PQTX_MISUSE;
        char *at = m->places;
        *at++ = '{';
        for (size_t i = 0; status == PQTX_OK && i < count; i++)
            at = put_number(at, where[i]);
        end_array(m->places, at);
    }
    free(where);
    free(items);
    if (status != PQTX_OK)
        free(m->keys);
    return status;
}

/* ---- the calls */

static pqtx_status do_many(struct pqtx__way way, const pqtx_counter *counter,
                           const pqtx_increment *increments, size_t count, int64_t *values)
{
    pqtx_counter read;
    struct pqtx__names names;
    struct merged merged;
    const char *why = pqtx__counter_read(counter, &read, &names);
    if (!why && count > 0 && !increments)
        why = "the increments are NULL";
    if (!why && count > INT32_MAX)
        why = "there are more than 2147483647 increments";
    if (why || count == 0)
        return pqtx__ask_nothing(way, why ? PQTX_MISUSE : PQTX_OK, why ? why : "");
    for (size_t i = 0; values && i < count; i++)
        values[i] = PQTX_VALUE_UNKNOWN;
    pqtx_status status = merge(&merged, read.key_type, increments, count, &why);
    if (status != PQTX_OK)
        return pqtx__ask_nothing(way, status, why);
    pqtx_value parameters[] = {pqtx_text_n(merged.keys, merged.keys_len),
                               pqtx_text_n(&merged.separator, 1), pqtx_text(merged.deltas),
                               pqtx_text(values ? merged.places : "{}")};
    status = pqtx__ask(way,
                       &(struct pqtx__question){.names = &names,
                                                .verdict = &add_many,
                                                .count = 4,
                                                .values = parameters,
                                                .meaning = meaning,
                                                .out = values,
                                                .out_count = values ? count : 0},
                       NULL);
    free(merged.keys);
    return status;
}

pqtx_status pqtx_counter_add_many(pqtx_tx *tx, const pqtx_counter *counter,
                                  const pqtx_increment *increments, size_t count, int64_t *values)
{
    return do_many((struct pqtx__way){.tx = tx}, counter, increments, count, values);
}

pqtx_status pqtx_counter_add_many_now(pqtx_pool *pool, const pqtx_options *options,
                                      const pqtx_counter *counter, const pqtx_increment *increments,
                                      size_t count, int64_t *values, pqtx_error *error)
{
    return do_many((struct pqtx__way){true, NULL, pool, options, error}, counter, increments, count,
                   values);
}
