/* api.h: what every header of pqtx needs: the export mark, and libpq's two types.
 *
 * <libpq-fe.h> is not included, so that a foreign-function generator needs no libpq headers.
 * Repeating these two typedefs is valid in C11 and in C++. */
#ifndef PQTX_API_H
#define PQTX_API_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define PQTX_API __attribute__((visibility("default")))
#else
#define PQTX_API
#endif

/* What the initialisers PQTX_OPTIONS, PQTX_ERROR, … are made of: the size set, the rest 0. */
/* clang-format off */
#ifdef __cplusplus
#define PQTX_SIZED(type) {sizeof(type)}
#else
#define PQTX_SIZED(type) {.size = sizeof(type)}
#endif
/* clang-format on */

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pg_conn PGconn;
typedef struct pg_result PGresult;

typedef struct pqtx_pool pqtx_pool; /* pool.h: a thread-safe source of connections */
typedef struct pqtx_tx pqtx_tx;     /* run.h: one transaction, begun again until it is decided */
typedef struct pqtx_gate pqtx_gate; /* gate.h: one at a time, among those of this process */

#ifdef __cplusplus
}
#endif

#endif
