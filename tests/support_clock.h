/* support_clock.h: time as a test wants it. */
#ifndef PQTX_TESTS_SUPPORT_CLOCK_H
#define PQTX_TESTS_SUPPORT_CLOCK_H

#include <pqtx.h>

#include <stdatomic.h>
#include <stdbool.h>

/* What becomes of the wait that was chosen. */
enum clock_trap {
    CLOCK_FAILS,       /* waiting is impossible */
    CLOCK_IS_EARLY,    /* nothing is ready, and no time has passed */
    CLOCK_IS_LATE,     /* it ends when it may, and then half a second more is gone */
    CLOCK_ALWAYS_EARLY /* from that wait on every second one is early */
};

/* The system's clock, set forward at will, and with one wait, counted from 1, that goes wrong. */
struct test_clock {
    pqtx_clock clock;
    _Atomic int64_t ahead_us;
    atomic_ulong waits;
    unsigned long trap_at; /* 0: none */
    enum clock_trap trap;
    bool skips_sleep; /* a plain sleep sets the clock forward instead */

    /* Where it says that nothing more will come, a wait is soon over and the clock set forward. */
    bool (*is_hopeless)(void);
};

void test_clock_init(struct test_clock *clock);
void test_clock_forward(struct test_clock *clock, int64_t ms);

int64_t monotonic_us(void);

#endif
