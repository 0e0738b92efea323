/* clock.c: time, waiting and chance, behind one seam. */
#define _DEFAULT_SOURCE
#include "clock.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <time.h>
#include <unistd.h>
#ifdef __APPLE__
#include <sys/random.h>
#endif

static int64_t system_now_us(void *arg)
{
    (void)arg;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* Rounded up, so that a wait for the last fraction of a millisecond does not spin. */
static int poll_timeout(int64_t timeout_us)
{
    int64_t ms = timeout_us / 1000 + (timeout_us % 1000 != 0);
    return ms > INT_MAX ? INT_MAX : (int)ms;
}

/* An error on the socket is for libpq to find, so it counts as readiness. */
static int ready_events(short revents, int events)
{
    if (revents & (POLLERR | POLLHUP | POLLNVAL))
        return events;
    return (revents & POLLIN ? PQTX_WAIT_READ : 0) | (revents & POLLOUT ? PQTX_WAIT_WRITE : 0);
}

static int system_wait(void *arg, int fd, int events, int64_t timeout_us)
{
    (void)arg;
    struct pollfd one = {.fd = fd};
    if (events & PQTX_WAIT_READ)
        one.events |= POLLIN;
    if (events & PQTX_WAIT_WRITE)
        one.events |= POLLOUT;
    int ready = poll(&one, fd < 0 ? 0 : 1, poll_timeout(timeout_us));
    if (ready < 0)
        return errno == EINTR ? 0 : -1;
    return ready == 0 ? 0 : ready_events(one.revents, events);
}

static uint64_t system_random(void *arg)
{
    uint64_t bits;
    if (getentropy(&bits, sizeof bits) == 0)
        return bits;
    return (uint64_t)system_now_us(arg) * UINT64_C(0x9e3779b97f4a7c15);
}

static const pqtx_clock system_clock = {
    .size = sizeof(pqtx_clock),
    .now_us = system_now_us,
    .wait = system_wait,
    .random = system_random,
};

const pqtx_clock *pqtx__clock(const pqtx_clock *given)
{
    if (!given)
        return &system_clock;
    if (given->size < sizeof *given || !given->now_us || !given->wait || !given->random)
        return NULL;
    return given;
}

int64_t pqtx__now(const pqtx_clock *clock)
{
    return clock->now_us(clock->arg);
}

int64_t pqtx__left(const pqtx_clock *clock, int64_t until_us)
{
    int64_t left = until_us - pqtx__now(clock);
    return left > 0 ? left : 0;
}

void pqtx__sleep(const pqtx_clock *clock, int64_t until_us)
{
    int64_t left;
    while ((left = pqtx__left(clock, until_us)) > 0)
        if (clock->wait(clock->arg, -1, 0, left) < 0)
            return;
}
