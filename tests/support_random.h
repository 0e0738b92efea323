/* support_random.h: chance that can be had a second time. */
#ifndef PQTX_TESTS_SUPPORT_RANDOM_H
#define PQTX_TESTS_SUPPORT_RANDOM_H

#include <stddef.h>
#include <stdint.h>

/* Begins a sequence with PQTX_TEST_SEED, else with the time of day, and prints which it is. */
void start_random(void);

/* Begins the sequence of this seed. */
void seed_random(uint64_t seed);

uint64_t random_bits(void);
size_t random_below(size_t limit);

/* One byte of `choice`, a text that is not empty. */
char random_of(const char *choice);

#endif
