#ifndef PQTX_LIB_ACTION_H
#define PQTX_LIB_ACTION_H

#include <pqtx/tx.h>

#include <stdbool.h>
#include <stddef.h>

/* What is to be done outside the database once the outcome is known, in the order of asking. */
struct pqtx__actions {
    struct pqtx__action {
        pqtx_action run;
        void *arg;
        bool on_commit;
    } * list;
    size_t count, capacity;
};

bool pqtx__actions_add(struct pqtx__actions *actions, pqtx_action run, void *arg, bool on_commit);

/* Each takes off the list what it ran or passed over. */
void pqtx__actions_commit(struct pqtx__actions *actions);
void pqtx__actions_rollback(struct pqtx__actions *actions, size_t from);
void pqtx__actions_forget(struct pqtx__actions *actions);

#endif
