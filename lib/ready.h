#ifndef PQTX_LIB_READY_H
#define PQTX_LIB_READY_H

#include "names.h"

#include <pqtx/error.h>

/* A ready-made table, of a template that does nothing where it is there: printed as snprintf does,
 * or made.  `fault` is what is wrong with the names, or NULL. */
size_t pqtx__ready_print(const struct pqtx__names *names, const char *fault, const char *template,
                         char *buffer, size_t size);
pqtx_status pqtx__ready_install(pqtx_pool *pool, const struct pqtx__names *names, const char *fault,
                                const char *template, pqtx_error *error);

#endif
