#ifndef PQTX_LIB_WAIT_H
#define PQTX_LIB_WAIT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* A condition that is waited on by the monotonic clock. */
bool pqtx__condition_init(pthread_cond_t *condition);

/* False if waiting is impossible; true after any wake-up, or the time. */
bool pqtx__condition_wait(pthread_cond_t *condition, pthread_mutex_t *lock, int64_t left_us);

#endif
