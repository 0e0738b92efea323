/* wait.c: threads that wait for one another, for a limited time. */
#define _DEFAULT_SOURCE
#include "wait.h"

#include <errno.h>
#include <time.h>

bool pqtx__condition_init(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;
    if (pthread_condattr_init(&attributes) != 0)
        return false;
    bool ok = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0 &&
              pthread_cond_init(condition, &attributes) == 0;
    pthread_condattr_destroy(&attributes);
    return ok;
}

bool pqtx__condition_wait(pthread_cond_t *condition, pthread_mutex_t *lock, int64_t left_us)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_sec += (time_t)(left_us / 1000000);
    at.tv_nsec += (long)(left_us % 1000000) * 1000;
    if (at.tv_nsec >= 1000000000) {
        at.tv_sec++;
        at.tv_nsec -= 1000000000;
    }
    int error = pthread_cond_timedwait(condition, lock, &at);
    return error == 0 || error == ETIMEDOUT;
}
