#ifndef PQTX_LIB_STATEMENT_H
#define PQTX_LIB_STATEMENT_H

/* Why the runner must not send this statement for a body, or NULL. */
const char *pqtx__statement_fault(const char *sql);

#endif
