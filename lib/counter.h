#ifndef PQTX_LIB_COUNTER_H
#define PQTX_LIB_COUNTER_H

#include "names.h"

#include <pqtx/counter.h>

#include <stdbool.h>

/* Reads a caller's counter; NULL, or why it is not valid. */
const char *pqtx__counter_read(const pqtx_counter *counter, pqtx_counter *read,
                               struct pqtx__names *names);

/* Moves its names into one malloc'ed block, which it then points to; NULL without memory. */
char *pqtx__counter_keep(pqtx_counter *counter);

/* Why the key is not of the type, or NULL. */
const char *pqtx__key_fault(pqtx_key_type type, const pqtx_value *key);

/* The key's type as SQL text; NULL for none of ours. */
const char *pqtx__key_sql(pqtx_key_type type);

/* a + b; false, and nothing is set, where that does not fit. */
bool pqtx__int_add(int64_t a, int64_t b, int64_t *sum);

/* What the database says of a value; of several written together it may be meant for one only. */
bool pqtx__is_refusal(pqtx_status status);

#endif
