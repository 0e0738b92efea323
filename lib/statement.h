#ifndef PQTX_LIB_STATEMENT_H
#define PQTX_LIB_STATEMENT_H

/* Why the runner must not send this statement for a body, or NULL. */
const char *pqtx__statement_fault(const char *sql);

/* Whether it takes a snapshot, so that a question behind it cannot move that; by its first word,
 * and false where that is not certain. */
int pqtx__statement_reads(const char *sql);

#endif
