/* value.h: typed parameters in, typed columns out.
 *
 * Parameters travel as text and the server chooses their type, so an integer fits int4, int8
 * and numeric columns, and a text fits uuid, enum and timestamptz.  Bytes travel as binary
 * bytea.  Nothing is ever pasted into SQL. */
#ifndef PQTX_VALUE_H
#define PQTX_VALUE_H

#include <pqtx/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum pqtx_type {
    PQTX_TYPE_NULL = 0,
    PQTX_TYPE_INT = 1,
    PQTX_TYPE_REAL = 2,
    PQTX_TYPE_BOOL = 3,
    PQTX_TYPE_TEXT = 4,
    PQTX_TYPE_BYTES = 5,
    PQTX_TYPE_MAX = 0x7fffffff
} pqtx_type;

/* One parameter.  Text and bytes are borrowed: they must live until the call that takes them
 * returns, and no longer. */
typedef struct pqtx_value {
    pqtx_type type;
    int32_t reserved; /* 0 */
    size_t len;       /* bytes of text or bytes; else 0 */
    union {
        int64_t integer; /* also bool: 0 or 1 */
        double real;
        const void *data;
    } as;
} pqtx_value;

/* A NULL pointer makes an SQL NULL.  Text is in the client encoding, without a NUL inside. */
PQTX_API pqtx_value pqtx_null(void);
PQTX_API pqtx_value pqtx_int(int64_t integer);
PQTX_API pqtx_value pqtx_real(double real);
PQTX_API pqtx_value pqtx_bool(int truth);
PQTX_API pqtx_value pqtx_text(const char *text);
PQTX_API pqtx_value pqtx_text_n(const char *text, size_t len);
PQTX_API pqtx_value pqtx_bytes(const void *bytes, size_t len);

#define PQTX_NULL              pqtx_null()
#define PQTX_INT(integer)      pqtx_int(integer)
#define PQTX_REAL(real)        pqtx_real(real)
#define PQTX_BOOL(truth)       pqtx_bool(truth)
#define PQTX_TEXT(text)        pqtx_text(text)
#define PQTX_BYTES(bytes, len) pqtx_bytes(bytes, len)

/* The two arguments "count, values" of a call, in C: PQTX_ARGS(PQTX_INT(7), PQTX_TEXT("ann")).
 * PQTX_NO_ARGS is the call without any.  Every call takes a plain count and array as well. */
#define PQTX_ARGS(...)                                                                             \
    (int)(sizeof((const pqtx_value[]){__VA_ARGS__}) / sizeof(pqtx_value)),                         \
        ((const pqtx_value[]){__VA_ARGS__})
#define PQTX_NO_ARGS 0, NULL

/* Reads one column of a result; row and column count from 0.
 * PQTX_OK; PQTX_BAD_DATA if it is NULL, of another shape or out of range (ask PQgetisnull first
 * where NULL is expected); PQTX_MISUSE if there is no such row or column, or a pointer is NULL.
 * *out is set only on PQTX_OK.
 *
 * int takes any integer type; real any number, NaN and the infinities included; bool takes t and
 * f; text is libpq's own, NUL-terminated, and lives as long as the result. */
PQTX_API pqtx_status pqtx_get_int(const PGresult *result, int row, int column, int64_t *out);
PQTX_API pqtx_status pqtx_get_real(const PGresult *result, int row, int column, double *out);
PQTX_API pqtx_status pqtx_get_bool(const PGresult *result, int row, int column, int *out);
PQTX_API pqtx_status pqtx_get_text(const PGresult *result, int row, int column, const char **out);

/* How many rows the statement returned or, without RETURNING, affected.  PQTX_MISUSE for a
 * statement that has no such count. */
PQTX_API pqtx_status pqtx_get_rows(const PGresult *result, int64_t *out);

/* Copies a bytea column into `buffer` of `size` bytes; *len is its whole length.  PQTX_TOO_MANY,
 * with *len set and nothing copied, if it does not fit: ask with size 0 for the length. */
PQTX_API pqtx_status pqtx_get_bytes(const PGresult *result, int row, int column, void *buffer,
                                    size_t size, size_t *len);

#ifdef __cplusplus
}
#endif

#endif
