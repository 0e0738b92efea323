/* support_fake_clock.c: a clock whose time passes only where the test lets it. */
#define _DEFAULT_SOURCE
#include "support_fake_clock.h"
#include "support.h"

#include <poll.h>

static int64_t now_us(void *arg)
{
    return ((struct fake_clock *)arg)->now_us;
}

static int sleep_on(struct fake_clock *fake, int64_t timeout_us)
{
    ck_assert_int_lt(fake->sleep_count, FAKE_SLEEPS_MAX);
    fake->slept_us[fake->sleep_count++] = timeout_us;
    if (fake->asleep)
        fake->asleep(fake);
    fake->now_us += timeout_us;
    return 0;
}

/* A server that says nothing for a minute is broken. */
static int wait_for(struct fake_clock *fake, int fd, int events, int64_t timeout_us)
{
    struct pollfd one = {.fd = fd};
    one.events = (short)(((events & PQTX_WAIT_READ) ? POLLIN : 0) |
                         ((events & PQTX_WAIT_WRITE) ? POLLOUT : 0));
    if (timeout_us > 0 && fake->waiting)
        fake->waiting(fake, events);
    int ready = poll(&one, 1, timeout_us > 0 ? 60000 : 0);
    if (ready > 0)
        return events;
    return timeout_us > 0 ? -1 : 0;
}

static int wait_or_sleep(void *arg, int fd, int events, int64_t timeout_us)
{
    return fd < 0 ? sleep_on(arg, timeout_us) : wait_for(arg, fd, events, timeout_us);
}

static uint64_t throw_dice(void *arg)
{
    return ((struct fake_clock *)arg)->random;
}

void fake_clock_init(struct fake_clock *fake)
{
    *fake = (struct fake_clock){.now_us = 1000000, .random = FAKE_HALF};
    fake->clock = (pqtx_clock){sizeof fake->clock, fake, now_us, wait_or_sleep, throw_dice};
}

pqtx_pool *open_pool_on(struct fake_clock *fake, int max_count)
{
    pqtx_pool_options options = PQTX_POOL_OPTIONS;
    pqtx_error error = PQTX_ERROR;
    pqtx_pool *pool;
    options.conninfo = pool_conninfo();
    options.max_count = max_count;
    options.clock = &fake->clock;
    assert_status(pqtx_pool_open(&options, &pool, &error), PQTX_OK, &error);
    return pool;
}
