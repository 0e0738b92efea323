/* support_form.h: transactions whose calls are queued, in each form that their flight can take. */
#ifndef PQTX_TESTS_SUPPORT_FORM_H
#define PQTX_TESTS_SUPPORT_FORM_H

#include "support_tx.h"

#include <libpq-fe.h>

/* Without BEGIN and COMMIT; with them, for a level of its own; on the caller's connection. */
enum form { FORM_IMPLICIT, FORM_EXPLICIT, FORM_OWN, FORMS };

/* Where they run, and what is theirs to choose; begun in pipeline mode. */
struct forms {
    pqtx_pool *pool;
    PGconn *own;
};

void forms_open(struct forms *forms);
void forms_close(struct forms *forms);

pqtx_options form_options(enum form form);
pqtx_tx *form_new(const struct forms *forms, enum form form, const pqtx_options *options);

/* The same with its options, and an attempt begun. */
pqtx_tx *form_begin(const struct forms *forms, enum form form);

struct task form_task(const struct forms *forms, enum form form, const pqtx_options *options,
                      pqtx_work work, void *arg);

/* The backend that form_new()'s next attempt will have. */
int form_backend(const struct forms *forms, enum form form);

/* Commits; the status must be this one, and the error is what the transaction has. */
void commit_as_at(const char *file, int line, pqtx_tx *tx, pqtx_status expected);
#define commit_as(tx, expected) commit_as_at(__FILE__, __LINE__, tx, expected)

/* What a transaction's error says. */
pqtx_error error_of(const pqtx_tx *tx);

#endif
