/* pile.c: increments added up by key. */
#include "pile.h"
#include "counter.h"
#include "value.h"

#include <stdlib.h>
#include <string.h>

bool pqtx__pile_make(struct pqtx__pile *pile, size_t capacity)
{
    *pile = (struct pqtx__pile){.capacity = capacity, .slot_count = 2 * capacity + 1};
    pile->increments = calloc(capacity, sizeof *pile->increments);
    pile->texts = calloc(capacity, sizeof *pile->texts);
    pile->slots = calloc(pile->slot_count, sizeof *pile->slots);
    if (pile->increments && pile->texts && pile->slots)
        return true;
    pqtx__pile_free(pile);
    return false;
}

void pqtx__pile_clear(struct pqtx__pile *pile)
{
    for (size_t i = 0; pile->texts && i < pile->count; i++)
        free(pile->texts[i]);
    if (pile->slots)
        memset(pile->slots, 0, pile->slot_count * sizeof *pile->slots);
    pile->count = 0;
    pile->adds = 0;
}

void pqtx__pile_free(struct pqtx__pile *pile)
{
    pqtx__pile_clear(pile);
    free(pile->increments);
    free(pile->texts);
    free(pile->slots);
    *pile = (struct pqtx__pile){.count = 0};
}

static bool is_same(const pqtx_value *a, const pqtx_value *b)
{
    if (a->type == PQTX_TYPE_INT)
        return a->as.integer == b->as.integer;
    return a->len == b->len && (a->len == 0 || memcmp(a->as.data, b->as.data, a->len) == 0);
}

/* The slot of this key, or the free one where it would be: there are more of them than keys. */
static uint32_t *slot_of(struct pqtx__pile *pile, const pqtx_value *key)
{
    size_t at = pqtx__key_hash(key) % pile->slot_count;
    while (pile->slots[at] != 0 && !is_same(&pile->increments[pile->slots[at] - 1].key, key))
        at = (at + 1) % pile->slot_count;
    return &pile->slots[at];
}

/* A new key, with a text of its own; false without memory. */
static bool append(struct pqtx__pile *pile, const pqtx_value *key, int64_t delta)
{
    pqtx_increment increment = {*key, delta};
    char *text = NULL;
    if (key->type == PQTX_TYPE_TEXT) {
        text = malloc(key->len + 1);
        if (!text)
            return false;
        if (key->len > 0)
            memcpy(text, key->as.data, key->len);
        increment.key.as.data = text;
    }
    pile->texts[pile->count] = text;
    pile->increments[pile->count++] = increment;
    return true;
}

pqtx_status pqtx__pile_add(struct pqtx__pile *pile, const pqtx_value *key, int64_t delta)
{
    uint32_t *slot = slot_of(pile, key);
    if (*slot != 0) {
        int64_t *sum = &pile->increments[*slot - 1].delta;
        if (!pqtx__int_add(*sum, delta, sum))
            return PQTX_BAD_DATA;
    } else if (pile->count == pile->capacity) {
        return PQTX_TOO_MANY;
    } else if (append(pile, key, delta)) {
        *slot = (uint32_t)pile->count;
    } else {
        return PQTX_NO_MEMORY;
    }
    pile->adds++;
    return PQTX_OK;
}
