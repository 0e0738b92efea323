/* batch.c: statements that wait for one flight.
 *
 * Everything is copied when a call is queued, so that the caller's values need not live on and
 * nothing is sent before the whole flight is known. */
#include "batch.h"

#include <stdlib.h>
#include <string.h>

/* Its analyzer forgets a text that hangs in a command that hangs in a list. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wanalyzer-malloc-leak"
#endif

#define SPARE_MAX      64
#define SPARE_LOOK     8    /* how many are asked whether they know the statement */
#define SPARE_TEXT_MAX 8192 /* a larger text is not kept for the next command */

void pqtx__batch_init(struct pqtx__batch *batch)
{
    *batch = (struct pqtx__batch){.first = NULL};
    batch->last = &batch->first;
}

static void free_command(struct pqtx__command *command)
{
    free(command->text);
    free(command);
}

void pqtx__store_free(struct pqtx__store *store)
{
    while (store->spare) {
        struct pqtx__command *command = store->spare;
        store->spare = command->next;
        free_command(command);
    }
    store->count = 0;
}

static bool knows(const struct pqtx__command *command, const char *sql, size_t len,
                  struct pqtx__rule rule)
{
    return command->text && command->len == len && command->rule.count == rule.count &&
           command->rule.rows == rule.rows && memcmp(command->text, sql, len) == 0;
}

/* One that was used for the same statement, if there is, so that nothing is to be written. */
static struct pqtx__command *take(struct pqtx__store *store, const char *sql, size_t len,
                                  struct pqtx__rule rule)
{
    struct pqtx__command *command = store->spare, *before = NULL;
    if (!command)
        return calloc(1, sizeof *command);
    for (int i = 0; i < SPARE_LOOK && command->next && !knows(command, sql, len, rule); i++) {
        before = command;
        command = command->next;
    }
    if (before)
        before->next = command->next;
    else
        store->spare = command->next;
    store->count--;
    return command;
}

static void give_back(struct pqtx__store *store, struct pqtx__command *command)
{
    if (store->count >= SPARE_MAX || command->capacity > SPARE_TEXT_MAX) {
        free_command(command);
        return;
    }
    command->next = store->spare;
    store->spare = command;
    store->count++;
}

static char *make_room(struct pqtx__command *command, size_t size)
{
    if (command->text && size <= command->capacity)
        return command->text;
    free(command->text); /* nothing of it is needed */
    command->text = malloc(size);
    command->capacity = command->text ? size : 0;
    return command->text;
}

/* false without memory. */
static bool write_text(struct pqtx__command *command, const char *sql, size_t len,
                       enum pqtx__kind kind, struct pqtx__rule rule)
{
    bool guarded = rule.count != PQTX__COUNT_ANY;
    size_t more = guarded ? pqtx__guard_write(NULL, 0, sql, kind, rule, &command->shift) + 1 : 0;
    command->len = SIZE_MAX; /* nothing, until all is there */
    char *text = make_room(command, len + 1 + more);
    if (!text)
        return false;
    memcpy(text, sql, len + 1);
    command->sql = text;
    command->shift = 0;
    if (guarded) {
        char *behind = text + len + 1;
        pqtx__guard_write(behind, more, sql, kind, rule, &command->shift);
        command->sql = behind;
    }
    command->len = len;
    command->rule = rule;
    return true;
}

struct pqtx__command *pqtx__batch_add(struct pqtx__batch *batch, struct pqtx__store *store,
                                      const char *sql, enum pqtx__kind kind, struct pqtx__rule rule,
                                      int count, const pqtx_value *values, pqtx_status *status,
                                      const char **why)
{
    size_t len = strlen(sql);
    struct pqtx__command *command = take(store, sql, len, rule);
    *status = PQTX_NO_MEMORY;
    if (!command)
        return NULL;
    if (knows(command, sql, len, rule) || write_text(command, sql, len, kind, rule))
        *status = pqtx__params_keep(&command->params, count, values, why);
    if (*status != PQTX_OK) {
        give_back(store, command);
        return NULL;
    }
    command->next = NULL;
    command->answers = true;
    *batch->last = command;
    batch->last = &command->next;
    batch->count++;
    batch->bytes += command->capacity + sizeof *command;
    for (int i = 0; i < count; i++)
        batch->bytes += values[i].len;
    return command;
}

void pqtx__batch_clear(struct pqtx__batch *batch, struct pqtx__store *store)
{
    while (batch->first) {
        struct pqtx__command *command = batch->first;
        batch->first = command->next;
        pqtx__params_free(&command->params);
        give_back(store, command);
    }
    batch->last = &batch->first;
    batch->count = batch->bytes = 0;
}
