#ifndef PQTX_LIB_NAME_H
#define PQTX_LIB_NAME_H

#include <stdint.h>

/* The first eight bytes of the name's SHA-256, the most significant first. */
int64_t pqtx__name_key(const char *name);

#endif
