/* backend.c: which server process a connection has, and how to end it when the connection is gone.
 *
 * A number alone is no identity: it is used again, and a pooler invents one. */
#include "backend.h"

#include <string.h>

#define START_US                                                                                   \
    "(pg_catalog.date_part('epoch', a.backend_start)"                                              \
    " OPERATOR(pg_catalog.*) 1000000)::pg_catalog.int8"

void pqtx__backend_learn(struct pqtx__wire *wire, int64_t until_us)
{
    static const char sql[] = "SELECT a.pid, " START_US ", pg_catalog.version()"
                              " FROM pg_catalog.pg_stat_activity AS a"
                              " WHERE a.pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid()";
    PGresult *answer = pqtx__wire_ask(wire, sql, NULL, until_us);
    int64_t pid, start_us;
    if (pqtx__is_row(answer, 3) && pqtx_get_int(answer, 0, 0, &pid) == PQTX_OK &&
        pqtx_get_int(answer, 0, 1, &start_us) == PQTX_OK && pid == PQbackendPID(wire->conn)) {
        wire->backend = (struct pqtx__backend){(int)pid, start_us};
        /* Other systems refuse to set client_connection_check_interval. */
        wire->checks_client = PQserverVersion(wire->conn) >= 140000 &&
                              strstr(PQgetvalue(answer, 0, 2), "linux") != NULL;
    }
    PQclear(answer);
}

static const char end_sql[] =
    "SELECT pg_catalog.pg_terminate_backend(a.pid) FROM pg_catalog.pg_stat_activity AS a"
    " WHERE a.pid OPERATOR(pg_catalog.=) $1::pg_catalog.int4"
    " AND a.usename OPERATOR(pg_catalog.=) SESSION_USER"
    " AND " START_US " OPERATOR(pg_catalog.=) $2::pg_catalog.int8";

static const char cancel_sql[] =
    "SELECT pg_catalog.pg_cancel_backend(a.pid) FROM pg_catalog.pg_stat_activity AS a"
    " WHERE a.pid OPERATOR(pg_catalog.=) $1::pg_catalog.int4"
    " AND a.usename OPERATOR(pg_catalog.=) SESSION_USER"
    " AND " START_US " OPERATOR(pg_catalog.=) $2::pg_catalog.int8";

static bool signal_backend(struct pqtx__wire *wire, const char *sql,
                           const struct pqtx__backend *backend, int64_t until_us)
{
    const pqtx_value values[] = {pqtx_int(backend->pid), pqtx_int(backend->start_us)};
    return pqtx__wire_confirms(wire, sql, 2, values, until_us);
}

bool pqtx__backend_end(struct pqtx__wire *wire, const struct pqtx__backend *backend,
                       int64_t until_us)
{
    return signal_backend(wire, end_sql, backend, until_us);
}

bool pqtx__backend_cancel(struct pqtx__wire *wire, const struct pqtx__backend *backend,
                          int64_t until_us)
{
    return signal_backend(wire, cancel_sql, backend, until_us);
}
