#ifndef PQTX_LIB_ERROR_H
#define PQTX_LIB_ERROR_H

#include <pqtx/error.h>

#include <libpq-fe.h>
#include <stdbool.h>

#if defined(__GNUC__)
#define PQTX_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define PQTX_PRINTF(text, first)
#endif

/* Copies what fits, never half a UTF-8 character; false if that was not all. */
bool pqtx__text_copy(char *to, size_t size, const char *from);

/* Both replace the whole error and keep its size. */
void pqtx__error_set(pqtx_error *error, pqtx_status status, pqtx_phase phase, pqtx_origin origin,
                     const char *format, ...) PQTX_PRINTF(5, 6);
void pqtx__error_from_result(pqtx_error *error, const PGresult *result, pqtx_phase phase);

/* No error, all texts empty. */
void pqtx__error_clear(pqtx_error *error);

/* Whether a caller's struct is NULL or has a size that can be. */
bool pqtx__error_is_open(const pqtx_error *error);

/* To a caller's struct, which may be shorter or longer than ours; PQTX_MISUSE if it has no size. */
pqtx_status pqtx__error_export(const pqtx_error *from, pqtx_error *to);

/* Fills a caller's error, if there is one, with an error of the library's own; returns `status`. */
pqtx_status pqtx__error_report(pqtx_error *to, pqtx_status status, const char *why);

#endif
