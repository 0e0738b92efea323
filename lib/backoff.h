#ifndef PQTX_LIB_BACKOFF_H
#define PQTX_LIB_BACKOFF_H

#include <stdint.h>

/* The wait before try n + 1, n from 1: a random share of min(first * 2^(n-1), max). */
int64_t pqtx__backoff_us(int64_t first_us, int64_t max_us, uint32_t n, uint64_t random);

#endif
