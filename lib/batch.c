/* batch.c: statements that wait for one flight.
 *
 * Everything is copied when a call is queued, so that the caller's values need not live on and
 * nothing is sent before the whole flight is known. */
#include "batch.h"

#include <stdlib.h>
#include <string.h>

#define SPARE_MAX     64
#define SPARE_SQL_MAX 4096 /* a larger text is not kept for the next command */

void pqtx__batch_init(struct pqtx__batch *batch)
{
    *batch = (struct pqtx__batch){.first = NULL};
    batch->last = &batch->first;
}

static void free_command(struct pqtx__command *command)
{
    free(command->sql);
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

static struct pqtx__command *take(struct pqtx__store *store)
{
    struct pqtx__command *command = store->spare;
    if (command) {
        store->spare = command->next;
        store->count--;
        return command;
    }
    command = malloc(sizeof *command);
    if (command) {
        command->sql = NULL;
        command->capacity = 0;
    }
    return command;
}

static void give_back(struct pqtx__store *store, struct pqtx__command *command)
{
    if (store->count >= SPARE_MAX || command->capacity > SPARE_SQL_MAX) {
        free_command(command);
        return;
    }
    command->next = store->spare;
    store->spare = command;
    store->count++;
}

static size_t write_sql(struct pqtx__command *command, const char *sql, enum pqtx__kind kind,
                        struct pqtx__rule rule)
{
    if (rule.count != PQTX__COUNT_ANY)
        return pqtx__guard_write(command->sql, command->capacity, sql, kind, rule, &command->shift);
    size_t len = strlen(sql);
    if (len < command->capacity)
        memcpy(command->sql, sql, len + 1);
    command->shift = 0;
    return len;
}

/* false without memory. */
static bool keep_sql(struct pqtx__command *command, const char *sql, enum pqtx__kind kind,
                     struct pqtx__rule rule)
{
    size_t len = write_sql(command, sql, kind, rule);
    if (len < command->capacity)
        return true;
    char *bigger = realloc(command->sql, len + 1);
    if (!bigger)
        return false;
    command->sql = bigger;
    command->capacity = len + 1;
    write_sql(command, sql, kind, rule);
    return true;
}

struct pqtx__command *pqtx__batch_add(struct pqtx__batch *batch, struct pqtx__store *store,
                                      const char *sql, enum pqtx__kind kind, struct pqtx__rule rule,
                                      int count, const pqtx_value *values, pqtx_status *status,
                                      const char **why)
{
    struct pqtx__command *command = take(store);
    *status = PQTX_NO_MEMORY;
    if (!command)
        return NULL;
    if (keep_sql(command, sql, kind, rule))
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
