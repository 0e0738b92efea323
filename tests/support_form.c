/* support_form.c: transactions whose calls are queued, in each form that their flight can take. */
#include "support_form.h"
#include "support.h"

void forms_open(struct forms *forms)
{
    forms->pool = open_pool(4);
    forms->own = open_session();
}

void forms_close(struct forms *forms)
{
    pqtx_pool_close(forms->pool);
    PQfinish(forms->own);
}

pqtx_options form_options(enum form form)
{
    pqtx_options options = PQTX_OPTIONS;
    options.flags = PQTX_PIPELINE;
    if (form == FORM_EXPLICIT)
        options.isolation = PQTX_ISO_READ_COMMITTED;
    return options;
}

pqtx_tx *form_new(const struct forms *forms, enum form form, const pqtx_options *options)
{
    return form == FORM_OWN ? pqtx_new_on(forms->own, options) : pqtx_new(forms->pool, options);
}

pqtx_tx *form_begin(const struct forms *forms, enum form form)
{
    pqtx_options options = form_options(form);
    pqtx_tx *tx = form_new(forms, form, &options);
    ck_assert_int_eq(pqtx_attempt(tx), 1);
    return tx;
}

struct task form_task(const struct forms *forms, enum form form, const pqtx_options *options,
                      pqtx_work work, void *arg)
{
    return (struct task){.pool = form == FORM_OWN ? NULL : forms->pool,
                         .conn = form == FORM_OWN ? forms->own : NULL,
                         .options = options,
                         .work = work,
                         .arg = arg};
}

int form_backend(const struct forms *forms, enum form form)
{
    return form == FORM_OWN ? PQbackendPID(forms->own) : (int)run_for_pid(forms->pool, NULL);
}

pqtx_error error_of(const pqtx_tx *tx)
{
    pqtx_error error = PQTX_ERROR;
    ck_assert_int_eq(pqtx_get_error(tx, &error), PQTX_OK);
    return error;
}

void commit_as_at(const char *file, int line, pqtx_tx *tx, pqtx_status expected)
{
    pqtx_status status = pqtx_commit(tx);
    pqtx_error error = error_of(tx);
    assert_status_at(file, line, status, expected, &error);
}
