/* line.c: the callers of a group in line, one line for each key.
 *
 * All calls are made under the group's lock. */
#include "line.h"
#include "value.h"

#include <stdlib.h>
#include <string.h>

#define KEPT_MAX 1000

static bool is_key(const struct pqtx__line *line, const pqtx_value *key)
{
    if (key->type == PQTX_TYPE_INT)
        return line->key.as.integer == key->as.integer;
    return line->key.len == key->len &&
           (key->len == 0 || memcmp(line->text, key->as.data, key->len) == 0);
}

static bool is_idle(const struct pqtx__line *line)
{
    return line->waiting == 0 && line->flights == 0;
}

static void forget(struct pqtx__lines *lines, bool also_busy)
{
    for (size_t i = 0; i < PQTX__LINE_BUCKETS; i++) {
        struct pqtx__line **at = &lines->buckets[i];
        while (*at) {
            struct pqtx__line *line = *at;
            if (!also_busy && !is_idle(line)) {
                at = &line->next;
                continue;
            }
            *at = line->next;
            free(line);
            lines->count--;
        }
    }
}

void pqtx__lines_free(struct pqtx__lines *lines)
{
    forget(lines, true);
}

struct pqtx__line *pqtx__line_find(struct pqtx__lines *lines, const pqtx_value *key)
{
    struct pqtx__line **bucket = &lines->buckets[pqtx__key_hash(key) % PQTX__LINE_BUCKETS];
    for (struct pqtx__line *line = *bucket; line; line = line->next)
        if (is_key(line, key))
            return line;
    if (lines->count >= KEPT_MAX)
        forget(lines, false);
    struct pqtx__line *line = key->len < SIZE_MAX / 2 ? malloc(sizeof *line + key->len) : NULL;
    if (!line)
        return NULL;
    *line = (struct pqtx__line){.next = *bucket, .key = *key, .crowd = 1};
    line->last = &line->first;
    if (key->type == PQTX_TYPE_TEXT && key->len > 0)
        memcpy(line->text, key->as.data, key->len);
    if (key->type == PQTX_TYPE_TEXT)
        line->key.as.data = line->text;
    lines->count++;
    return *bucket = line;
}

void pqtx__line_enter(struct pqtx__line *line, struct pqtx__caller *caller)
{
    *line->last = caller;
    line->last = &caller->next;
    line->waiting++;
}

void pqtx__line_leave(struct pqtx__line *line, struct pqtx__caller *caller)
{
    struct pqtx__caller **at = &line->first;
    while (*at != caller)
        at = &(*at)->next;
    *at = caller->next;
    if (line->last == &caller->next)
        line->last = at;
    line->waiting--;
    caller->next = NULL;
}
