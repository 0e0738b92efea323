#ifndef PQTX_LIB_VALUE_H
#define PQTX_LIB_VALUE_H

#include <pqtx/value.h>

#include <libpq-fe.h>
#include <stdbool.h>

/* The parameters of one statement, as libpq takes them.  Small lists need no allocation; so it must
 * not be copied. */
struct pqtx__params {
    int count;
    Oid *types;
    const char **values;
    int *lengths;
    int *formats;
    void *heap;
    struct {
        Oid types[8];
        const char *values[8];
        int lengths[8];
        int formats[8];
        char text[256];
    } small;
};

/* Of an integer or a text, for a table in memory. */
uint32_t pqtx__key_hash(const pqtx_value *key);

/* Writes an integer, of at most 20 characters, and a NUL; returns the length. */
size_t pqtx__int_text(int64_t integer, char *text);

/* PQTX_OK; PQTX_NO_MEMORY; or PQTX_MISUSE with *why set to static text.  Bytes are borrowed. */
pqtx_status pqtx__params_encode(struct pqtx__params *params, int count, const pqtx_value *values,
                                const char **why);

/* The same with a copy of everything, for a statement that is sent later. */
pqtx_status pqtx__params_keep(struct pqtx__params *params, int count, const pqtx_value *values,
                              const char **why);
void pqtx__params_free(struct pqtx__params *params);

#endif
