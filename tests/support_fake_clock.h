/* support_fake_clock.h: a clock whose time passes only where the test lets it. */
#ifndef PQTX_TESTS_SUPPORT_FAKE_CLOCK_H
#define PQTX_TESTS_SUPPORT_FAKE_CLOCK_H

#include <pqtx.h>

#define FAKE_SLEEPS_MAX 64

/* Sleeping takes no time of the world, but all that was asked for of the clock's own.  Waiting for
 * a socket takes the world's time, and none of the clock's. */
struct fake_clock {
    pqtx_clock clock;
    int64_t now_us;
    uint64_t random; /* what every throw of the dice gives */

    int64_t slept_us[FAKE_SLEEPS_MAX];
    int sleep_count;

    void (*asleep)(struct fake_clock *fake);              /* called in each sleep, or NULL */
    void (*waiting)(struct fake_clock *fake, int events); /* when a wait for a socket begins */
    void *arg;
};

/* Half of every wait's ceiling is thrown, so that the waits are known to the microsecond. */
#define FAKE_HALF (UINT64_C(1) << 63)

void fake_clock_init(struct fake_clock *fake);

/* A pool that goes by this clock. */
pqtx_pool *open_pool_on(struct fake_clock *fake, int max_count);

#endif
