/* support_random.c: chance that can be had a second time (splitmix64). */
#include "support_random.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static uint64_t state;

void seed_random(uint64_t seed)
{
    state = seed;
}

void start_random(void)
{
    const char *given = getenv("PQTX_TEST_SEED");
    struct timespec now;
    timespec_get(&now, TIME_UTC);
    uint64_t time = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
    seed_random(given ? strtoull(given, NULL, 10) : time);
    printf("PQTX_TEST_SEED=%" PRIu64 "\n", state);
}

uint64_t random_bits(void)
{
    uint64_t bits = state += UINT64_C(0x9e3779b97f4a7c15);
    bits = (bits ^ (bits >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    bits = (bits ^ (bits >> 27)) * UINT64_C(0x94d049bb133111eb);
    return bits ^ (bits >> 31);
}

size_t random_below(size_t limit)
{
    return (size_t)(random_bits() % limit);
}

char random_of(const char *choice)
{
    return choice[random_below(strlen(choice))];
}
