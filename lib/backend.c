/* backend.c: which server process a connection has, and how to end it when the connection is gone.
 *
 * A number alone is no identity: it is used again, and a pooler invents one. */
#include "backend.h"

#include <stdio.h>
#include <stdlib.h>

void pqtx__backend_learn(struct pqtx__wire *wire, int64_t until_us)
{
    static const char sql[] = "SELECT a.pid, a.backend_start FROM pg_catalog.pg_stat_activity AS a"
                              " WHERE a.pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid()";
    PGresult *answer = pqtx__wire_ask(wire, sql, NULL, until_us);
    if (pqtx__is_row(answer, 2) &&
        strtol(PQgetvalue(answer, 0, 0), NULL, 10) == PQbackendPID(wire->conn)) {
        wire->backend_pid = PQbackendPID(wire->conn);
        snprintf(wire->backend_start, sizeof wire->backend_start, "%s", PQgetvalue(answer, 0, 1));
    }
    PQclear(answer);
}

void pqtx__backend_end(struct pqtx__wire *wire, int pid, const char *start, int64_t until_us)
{
    static const char sql[] =
        "SELECT pg_catalog.pg_terminate_backend(a.pid) FROM pg_catalog.pg_stat_activity AS a"
        " WHERE a.pid OPERATOR(pg_catalog.=) $1::pg_catalog.int4"
        " AND a.usename OPERATOR(pg_catalog.=) SESSION_USER"
        " AND a.backend_start OPERATOR(pg_catalog.=) $2::pg_catalog.timestamptz";
    const pqtx_value values[] = {pqtx_int(pid), pqtx_text(start)};
    struct pqtx__params params;
    const char *why;
    if (pqtx__params_encode(&params, 2, values, &why) != PQTX_OK)
        return;
    PQclear(pqtx__wire_ask(wire, sql, &params, until_us));
    pqtx__params_free(&params);
}
