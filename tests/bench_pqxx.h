/* bench_pqxx.h: the same work with libpqxx, a C++ library over libpq, where that is installed. */
#ifndef PQTX_TESTS_BENCH_PQXX_H
#define PQTX_TESTS_BENCH_PQXX_H

#include "bench.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Not linked in where it is not installed: then their addresses are NULL. */
#pragma weak peer_open
#pragma weak peer_close
#pragma weak peer_take
void *peer_open(const char *conninfo);
void peer_close(void *session);
void peer_take(struct seat *seat);

#ifdef __cplusplus
}
#endif

#endif
