// bench_pqxx.cc: the same work with libpqxx, as its manual advises: perform() and work.
#include "bench_pqxx.h"
#include "bench_sql.h"

#include <pqxx/pqxx>

#include <stdexcept>

void *peer_open(const char *conninfo)
{
    try {
        auto *session = new pqxx::connection(conninfo);
        session->prepare("take", SQL_TAKE);
        return session;
    } catch (const std::exception &e) {
        die("libpqxx: %s", e.what());
    }
}

void peer_close(void *session)
{
    delete static_cast<pqxx::connection *>(session);
}

void peer_take(struct seat *seat)
{
    try {
        pqxx::perform([seat] {
            pqxx::work tx(*static_cast<pqxx::connection *>(seat->pqxx));
            tx.exec("SET LOCAL lock_timeout = " LOCK_TIMEOUT_MS);
            if (tx.exec_prepared("take", seat->row, 1).affected_rows() != 1)
                throw std::runtime_error("not one row");
            tx.commit();
        });
    } catch (const std::exception &e) {
        die("libpqxx: %s", e.what());
    }
}
