/* ready.c: the ready-made tables of the helpers: their CREATE TABLE printed, or run. */
#include "ready.h"
#include "tx.h"

#include <stdlib.h>

size_t pqtx__ready_print(const struct pqtx__names *names, const char *fault, const char *template,
                         char *buffer, size_t size)
{
    struct pqtx__quoted quoted;
    if (!buffer)
        size = 0;
    if (size > 0)
        buffer[0] = '\0';
    if (fault || pqtx__names_quote(names, NULL, &quoted, &fault) != PQTX_OK)
        return 0;
    size_t len = pqtx__names_write(&quoted, template, buffer, size);
    pqtx__names_free(&quoted);
    return len;
}

struct job {
    const struct pqtx__names *names;
    const char *template;
};

/* Two that create a table at once must not meet: IF NOT EXISTS is no lock.  The number is
 * "pqtx_mak" in ASCII. */
#define INSTALL_LOCK INT64_C(0x707174785f6d616b)

static pqtx_status create(pqtx_tx *tx, const struct pqtx__quoted *quoted, const char *template)
{
    char *sql = pqtx__names_text(quoted, template);
    if (!sql)
        return pqtx__fail(tx, PQTX_NO_MEMORY, "no memory for the statement");
    pqtx_exec(tx, "SELECT pg_catalog.pg_advisory_xact_lock($1::pg_catalog.int8)",
              PQTX_ARGS(PQTX_INT(INSTALL_LOCK)), NULL);
    pqtx_status status = pqtx_exec(tx, sql, PQTX_NO_ARGS, NULL);
    free(sql);
    return status;
}

static pqtx_status install(pqtx_tx *tx, void *arg)
{
    const struct job *job = arg;
    struct pqtx__quoted quoted;
    const char *why;
    pqtx_status status = pqtx__names_quote(job->names, tx->wire->conn, &quoted, &why);
    if (status != PQTX_OK)
        return pqtx__fail(tx, status, "%s", why);
    status = create(tx, &quoted, job->template);
    pqtx__names_free(&quoted);
    return status;
}

pqtx_status pqtx__ready_install(pqtx_pool *pool, const struct pqtx__names *names, const char *fault,
                                const char *template, pqtx_error *error)
{
    pqtx_options options = PQTX_OPTIONS;
    options.isolation = PQTX_ISO_READ_COMMITTED;
    options.access = PQTX_ACCESS_READ_WRITE;
    struct job job = {names, template};
    if (!pqtx__error_is_open(error))
        return PQTX_MISUSE;
    if (fault)
        return pqtx__error_report(error, PQTX_MISUSE, fault);
    return pqtx_run(pool, &options, install, &job, error);
}
