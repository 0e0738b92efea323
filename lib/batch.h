#ifndef PQTX_LIB_BATCH_H
#define PQTX_LIB_BATCH_H

#include "guard.h"
#include "value.h"

/* A statement that waits for its flight, with copies of all that it needs. */
struct pqtx__command {
    struct pqtx__command *next;
    char *text; /* as the caller gave it, and behind it, if there is a rule, with its guard */
    size_t capacity, len;
    struct pqtx__rule rule;
    const char *sql; /* which of the two is sent */
    int32_t shift;   /* how far the guard moved the caller's text */
    struct pqtx__params params;
    bool answers;            /* its result is the answer of its call */
    uint32_t call;           /* the ordinal of the call it belongs to */
    int64_t lock_timeout_ms; /* wanted for it */
    size_t reply;            /* its place in the flight, once that was sent */
};

/* Commands to be used again.  Belongs to a connection. */
struct pqtx__store {
    struct pqtx__command *spare;
    size_t count;
};

void pqtx__store_free(struct pqtx__store *store);

/* Belongs to a transaction: in the order they were queued. */
struct pqtx__batch {
    struct pqtx__command *first, **last;
    size_t count, bytes;
};

void pqtx__batch_init(struct pqtx__batch *batch);

/* Adds a statement, with a guard by `rule`.  NULL with *status PQTX_NO_MEMORY, or PQTX_MISUSE and
 * *why. */
struct pqtx__command *pqtx__batch_add(struct pqtx__batch *batch, struct pqtx__store *store,
                                      const char *sql, enum pqtx__kind kind, struct pqtx__rule rule,
                                      int count, const pqtx_value *values, pqtx_status *status,
                                      const char **why);

/* Forgets all of them. */
void pqtx__batch_clear(struct pqtx__batch *batch, struct pqtx__store *store);

#endif
