/* action.c: what is to be done outside the database once the outcome is known. */
#include "action.h"

#include <stdlib.h>

bool pqtx__actions_add(struct pqtx__actions *actions, pqtx_action run, void *arg, bool on_commit)
{
    if (actions->count == actions->capacity) {
        size_t capacity = actions->capacity ? 2 * actions->capacity : 4;
        void *bigger = realloc(actions->list, capacity * sizeof *actions->list);
        if (!bigger)
            return false;
        actions->list = bigger;
        actions->capacity = capacity;
    }
    actions->list[actions->count++] = (struct pqtx__action){run, arg, on_commit};
    return true;
}

void pqtx__actions_commit(struct pqtx__actions *actions)
{
    size_t count = actions->count;
    actions->count = 0;
    for (size_t i = 0; i < count; i++)
        if (actions->list[i].on_commit)
            actions->list[i].run(actions->list[i].arg);
}

void pqtx__actions_rollback(struct pqtx__actions *actions, size_t from)
{
    while (actions->count > from) {
        struct pqtx__action last = actions->list[--actions->count];
        if (!last.on_commit)
            last.run(last.arg);
    }
}

void pqtx__actions_forget(struct pqtx__actions *actions)
{
    free(actions->list);
    *actions = (struct pqtx__actions){0};
}
