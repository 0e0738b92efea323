/* support_clock.c: the system's clock with a screw to turn. */
#include "support_clock.h"
#include "clock.h"

#define LATE_US     500000
#define HOPELESS_US 50000

static int64_t now_us(void *arg)
{
    struct test_clock *clock = arg;
    return monotonic_us() + atomic_load(&clock->ahead_us);
}

static int wait(void *arg, int fd, int events, int64_t timeout_us)
{
    struct test_clock *clock = arg;
    const pqtx_clock *system = pqtx__clock(NULL);
    unsigned long n = atomic_fetch_add(&clock->waits, 1) + 1;
    bool sprung = n == clock->trap_at;
    if (clock->trap == CLOCK_ALWAYS_EARLY)
        sprung = clock->trap_at > 0 && n >= clock->trap_at && (n - clock->trap_at) % 2 == 0;
    if (sprung && clock->trap == CLOCK_FAILS)
        return -1;
    if (sprung && clock->trap != CLOCK_IS_LATE)
        return 0;
    if (fd < 0 && clock->skips_sleep) {
        atomic_fetch_add(&clock->ahead_us, timeout_us);
        return 0;
    }
    int64_t real_us = timeout_us;
    if (clock->is_hopeless && clock->is_hopeless() && real_us > HOPELESS_US)
        real_us = HOPELESS_US;
    int ready = system->wait(system->arg, fd, events, real_us);
    if (ready == 0 && real_us < timeout_us)
        atomic_fetch_add(&clock->ahead_us, timeout_us - real_us);
    if (sprung)
        atomic_fetch_add(&clock->ahead_us, LATE_US);
    return ready;
}

static uint64_t random_bits(void *arg)
{
    (void)arg;
    const pqtx_clock *system = pqtx__clock(NULL);
    return system->random(system->arg);
}

void test_clock_init(struct test_clock *clock)
{
    *clock = (struct test_clock){
        .clock = {sizeof(pqtx_clock), clock, now_us, wait, random_bits},
    };
}

void test_clock_forward(struct test_clock *clock, int64_t ms)
{
    atomic_fetch_add(&clock->ahead_us, ms * 1000);
}

int64_t monotonic_us(void)
{
    return pqtx__now(pqtx__clock(NULL));
}
