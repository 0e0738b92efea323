/* error.h: what went wrong, in full.
 *
 * The first error of an attempt is kept: later ones (25P02, "the connection was closed") only
 * follow from it.  Every text is the server's or this library's; of a connection string no more
 * than host and port are shown, never a password.  Texts are bytes in the client encoding; before a
 * connection stands they may be in the server's. */
#ifndef PQTX_ERROR_H
#define PQTX_ERROR_H

#include <pqtx/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum pqtx_phase {
    PQTX_PHASE_NONE = 0,
    PQTX_PHASE_CONNECT = 1, /* getting a connection: nothing ran */
    PQTX_PHASE_BEGIN = 2,   /* BEGIN and the settings that ride with the first statement */
    PQTX_PHASE_BODY = 3,
    PQTX_PHASE_COMMIT = 4, /* from before the first byte of COMMIT was offered to libpq */
    PQTX_PHASE_ROLLBACK = 5,
    PQTX_PHASE_MAX = 0x7fffffff
} pqtx_phase;

typedef enum pqtx_origin {
    PQTX_ORIGIN_NONE = 0,
    PQTX_ORIGIN_SERVER = 1,  /* PostgreSQL itself: it names its source function */
    PQTX_ORIGIN_POOLER = 2,  /* has an SQLSTATE but no source function: never proof of anything */
    PQTX_ORIGIN_LIBPQ = 3,   /* no SQLSTATE: the connection, or memory inside libpq */
    PQTX_ORIGIN_LIBRARY = 4, /* pqtx, or the caller through pqtx_fail() */
    PQTX_ORIGIN_MAX = 0x7fffffff
} pqtx_origin;

/* pqtx_error.flags */
#define PQTX_ERROR_DEADLINE   0x01u /* the deadline is why it was not tried again */
#define PQTX_ERROR_ATTEMPTS   0x02u /* max_attempts is why it was not tried again */
#define PQTX_ERROR_SWALLOWED  0x04u /* the body returned PQTX_OK in spite of it */
#define PQTX_ERROR_TRUNCATED  0x08u /* a text was longer than its field */
#define PQTX_ERROR_CONNECTION 0x10u /* the connection is gone, or not usable any more */
#define PQTX_ERROR_BUDGET     0x20u /* the pool's retry budget is why it was not tried again */

/* Flat and of fixed size: copy it, keep it, nothing is to be freed.  Absent texts are empty.
 * Start from PQTX_ERROR (or set size): a caller built against an older, shorter struct gets the
 * fields it knows. */
typedef struct pqtx_error {
    size_t size;
    pqtx_status status;
    pqtx_advice advice;
    pqtx_phase phase;
    pqtx_origin origin;
    uint32_t flags;
    uint32_t attempt;           /* which attempt it was, from 1; 0: none had begun */
    int64_t elapsed_us;         /* since the first attempt began */
    int32_t statement_position; /* 1-based, in characters of the statement; 0: none */
    int32_t internal_position;  /* the same in internal_query */
    int32_t source_line;
    int32_t call;      /* which queued call it was (pipeline.h), from 1; 0: none */
    char sqlstate[8];  /* five characters, or empty */
    char severity[12]; /* ERROR, FATAL, PANIC: never translated */
    char schema_name[64];
    char table_name[64];
    char column_name[64];
    char datatype_name[64];
    char constraint_name[64];
    char source_file[64];
    char source_function[64];
    char message[1024];
    char detail[1024];
    char hint[512];
    char context[1024];
    char internal_query[512];
} pqtx_error;

#define PQTX_ERROR PQTX_SIZED(pqtx_error)

/* Clears the error and sets its size; PQTX_MISUSE if `size` does not reach past `sqlstate`. */
PQTX_API pqtx_status pqtx_error_init(pqtx_error *error, size_t size);

/* Writes the error as one line, "duplicate 23505: …; constraint: …", control bytes escaped, always
 * terminated if size > 0.  Returns the length it would have without the limit, as snprintf does. */
PQTX_API size_t pqtx_error_format(const pqtx_error *error, char *buffer, size_t size);

/* A constraint of your schema, and what its violation means to your program: PQTX_USER or above. */
typedef struct pqtx_constraint {
    const char *name; /* as in pqtx_error.constraint_name */
    pqtx_status status;
} pqtx_constraint;

/* The status of the first of them that the error names; else error->status.  What counts is a
 * violation (3x), or RAISE … USING CONSTRAINT; a NOT NULL has no name.
 *
 * pqtx_options.constraints has the same done for every call and the result. */
PQTX_API pqtx_status pqtx_status_of_constraint(const pqtx_error *error,
                                               const pqtx_constraint *constraints, size_t count);

PQTX_API const char *pqtx_phase_name(pqtx_phase phase);
PQTX_API const char *pqtx_origin_name(pqtx_origin origin);

#ifdef __cplusplus
}
#endif

#endif
