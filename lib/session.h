#ifndef PQTX_LIB_SESSION_H
#define PQTX_LIB_SESSION_H

#include "pool.h"

/* Opens a session to where the pool's connections lead, outside the pool, before `until` and in the
 * time that the pool allows for one; its questions are answered within `answer`.
 *
 * Its transactions are READ COMMITTED, its settings last as long as it does, and nothing but its
 * owner ends it.  PQTX_MISUSE where a pooler stands between: there no session is ours to keep. */
pqtx_status pqtx__session_open(pqtx_pool *pool, int64_t until_us, int64_t answer_us,
                               struct pqtx__wire **wire, pqtx_error *error);

/* Whether it still stands, as far as this side can know: looks at the socket, asks nothing. */
bool pqtx__session_stands(struct pqtx__wire *wire);

#endif
