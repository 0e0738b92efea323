#ifndef PQTX_LIB_CONNECT_H
#define PQTX_LIB_CONNECT_H

#include "hosts.h"
#include "wire.h"

/* Makes a connection to one of the hosts before `until`, and notes which it was.  With `raw`,
 * libpq's own words about a failure, which may hold secrets, become the message. */
pqtx_status pqtx__connect(struct pqtx__hosts *hosts, bool raw, const pqtx_clock *clock,
                          int64_t until_us, struct pqtx__wire **wire, pqtx_error *error);

/* Makes a connection by the settings of one that is the caller's, its list of hosts included; the
 * host of that one is tried first. */
pqtx_status pqtx__connect_like(PGconn *conn, const pqtx_clock *clock, int64_t until_us,
                               struct pqtx__wire **wire, pqtx_error *error);

/* Asks the server, over a second connection, to cancel whichever of the statements runs on this
 * one.  true: it was asked, and the request is over, so that it cannot hit a later statement. Costs
 * a connection and needs a direct one: behind a pooler the backend is not to be identified, and the
 * answer is false. */
bool pqtx__cancel(const struct pqtx__wire *wire, const struct pqtx__statement *statements,
                  size_t count, int64_t until_us);

#endif
