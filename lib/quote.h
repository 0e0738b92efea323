#ifndef PQTX_LIB_QUOTE_H
#define PQTX_LIB_QUOTE_H

#include <pqtx/status.h>

/* A name as an identifier, malloc'ed.  NULL with *status PQTX_NO_MEMORY, or PQTX_MISUSE if it is
 * not valid in the client encoding. */
char *pqtx__quote(PGconn *conn, const char *name, pqtx_status *status);

#endif
