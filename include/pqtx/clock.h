/* clock.h: the one seam between the library and time.
 *
 * All that the library knows of time, waiting and chance goes through these three functions, so a
 * test can replace them, and a host can wait in its own way. */
#ifndef PQTX_CLOCK_H
#define PQTX_CLOCK_H

#include <pqtx/api.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PQTX_WAIT_READ  1
#define PQTX_WAIT_WRITE 2

typedef struct pqtx_clock {
    size_t size;
    void *arg; /* handed to each function */

    /* A monotonic time in microseconds; only differences count. */
    int64_t (*now_us)(void *arg);

    /* Waits at most timeout_us (>= 0) until `fd` is ready for `events` (PQTX_WAIT_…).  With fd -1
     * it is a plain sleep.  Returns the events that are ready, 0 after the time or a signal, -1 if
     * waiting is impossible (the connection is then taken for lost).  May return early. */
    int (*wait)(void *arg, int fd, int events, int64_t timeout_us);

    /* 64 random bits: for jitter, never for an identity or a secret. */
    uint64_t (*random)(void *arg);
} pqtx_clock;

#ifdef __cplusplus
}
#endif

#endif
