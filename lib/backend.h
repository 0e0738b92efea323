#ifndef PQTX_LIB_BACKEND_H
#define PQTX_LIB_BACKEND_H

#include "wire.h"

/* Learns which backend the connection has, if it has one of its own. */
void pqtx__backend_learn(struct pqtx__wire *wire, int64_t until_us);

/* Ends the backend of a connection that was lost, so that it neither holds its locks nor commits
 * later; or cancels what it runs.  Over another wire; true if the server still had exactly that
 * backend. */
bool pqtx__backend_end(struct pqtx__wire *wire, const struct pqtx__backend *backend,
                       int64_t until_us);
bool pqtx__backend_cancel(struct pqtx__wire *wire, const struct pqtx__backend *backend,
                          int64_t until_us);

#endif
