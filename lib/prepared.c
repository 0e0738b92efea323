/* prepared.c: which statements a connection has met, and which of them are prepared on it.
 *
 * A statement is prepared when it comes for the second time, so that those that come once leave
 * nothing behind.  Names are random: behind a pooler that knows nothing of them, a name that two
 * clients had in common would run the other one's statement. */
#define _DEFAULT_SOURCE
#include "prepared.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef __APPLE__
#include <sys/random.h>
#endif

struct pqtx__cache *pqtx__cache_new(void)
{
    struct pqtx__cache *cache = calloc(1, sizeof *cache);
    if (cache && getentropy(&cache->prefix, sizeof cache->prefix) == 0)
        return cache;
    free(cache);
    return NULL;
}

static void drop_all(struct pqtx__prepared **entries, size_t *count)
{
    while (*count > 0)
        free(entries[--*count]);
}

void pqtx__cache_forget(struct pqtx__cache *cache)
{
    drop_all(cache->entries, &cache->count);
    drop_all(cache->doomed, &cache->doomed_count);
}

void pqtx__cache_free(struct pqtx__cache *cache)
{
    if (cache)
        pqtx__cache_forget(cache);
    free(cache);
}

static bool is_same(const struct pqtx__prepared *entry, const char *sql, size_t len,
                    const struct pqtx__params *params)
{
    size_t types_size = (size_t)params->count * sizeof(Oid);
    return entry->sql_len == len && entry->count == params->count &&
           memcmp(entry->sql, sql, len) == 0 &&
           (types_size == 0 || memcmp(entry->types, params->types, types_size) == 0);
}

static struct pqtx__prepared *make(const char *sql, size_t len, const struct pqtx__params *params)
{
    size_t types_size = (size_t)params->count * sizeof(Oid);
    struct pqtx__prepared *entry = malloc(sizeof *entry + types_size + len + 1);
    if (!entry)
        return NULL;
    entry->name[0] = '\0';
    entry->state = PQTX__SEEN;
    entry->sql_len = len;
    entry->count = params->count;
    entry->types = (Oid *)(entry + 1);
    entry->sql = (char *)(entry + 1) + types_size;
    if (types_size > 0)
        memcpy(entry->types, params->types, types_size);
    memcpy(entry->sql, sql, len + 1);
    return entry;
}

static void remove_at(struct pqtx__prepared **entries, size_t *count, size_t i)
{
    --*count;
    memmove(entries + i, entries + i + 1, (*count - i) * sizeof *entries);
}

static void move_to_front(struct pqtx__cache *cache, size_t i)
{
    struct pqtx__prepared *entry = cache->entries[i];
    memmove(cache->entries + 1, cache->entries, i * sizeof *cache->entries);
    cache->entries[0] = entry;
}

/* Makes room for one more: the one that was not used for longest goes.  One whose Parse is on its
 * way stays, since its answer will look for it. */
static bool make_room(struct pqtx__cache *cache)
{
    if (cache->count < PQTX__PREPARED_MAX)
        return true;
    struct pqtx__prepared *last = cache->entries[cache->count - 1];
    if (last->state == PQTX__PREPARING)
        return false;
    if (last->state == PQTX__READY) {
        if (cache->doomed_count == PQTX__PREPARED_MAX)
            return false;
        cache->doomed[cache->doomed_count++] = last;
    } else {
        free(last);
    }
    cache->count--;
    return true;
}

static void remember(struct pqtx__cache *cache, const char *sql, size_t len,
                     const struct pqtx__params *params)
{
    struct pqtx__prepared *entry = make_room(cache) ? make(sql, len, params) : NULL;
    if (!entry)
        return; /* it is sent as it is */
    cache->entries[cache->count++] = entry;
    move_to_front(cache, cache->count - 1);
}

struct pqtx__prepared *pqtx__cache_meet(struct pqtx__cache *cache, const char *sql,
                                        const struct pqtx__params *params)
{
    size_t len = cache && !cache->paused ? strlen(sql) : SIZE_MAX;
    if (len > PQTX__PREPARED_SIZE)
        return NULL;
    for (size_t i = 0; i < cache->count; i++) {
        struct pqtx__prepared *entry = cache->entries[i];
        if (!is_same(entry, sql, len, params))
            continue;
        if (i > 0)
            move_to_front(cache, i);
        if (entry->state == PQTX__SEEN)
            snprintf(entry->name, sizeof entry->name, "pqtx_%016llx_%llu",
                     (unsigned long long)cache->prefix, (unsigned long long)++cache->last);
        return entry;
    }
    remember(cache, sql, len, params);
    return NULL;
}

void pqtx__cache_doom(struct pqtx__cache *cache, struct pqtx__prepared *entry)
{
    size_t i = 0;
    while (i < cache->count && cache->entries[i] != entry)
        i++;
    if (i == cache->count)
        return;
    entry->state = PQTX__SEEN; /* to be prepared under a new name, where it cannot be buried */
    if (cache->doomed_count == PQTX__PREPARED_MAX)
        return;
    remove_at(cache->entries, &cache->count, i);
    cache->doomed[cache->doomed_count++] = entry;
}

void pqtx__cache_bury(struct pqtx__cache *cache, struct pqtx__prepared *entry)
{
    for (size_t i = 0; i < cache->doomed_count; i++) {
        if (cache->doomed[i] != entry)
            continue;
        remove_at(cache->doomed, &cache->doomed_count, i);
        free(entry);
        return;
    }
}
