/* support_counter.h: one call on a counter, made in each of the ways there are. */
#ifndef PQTX_TESTS_SUPPORT_COUNTER_H
#define PQTX_TESTS_SUPPORT_COUNTER_H

#include <pqtx.h>

#include <pthread.h>

/* In a body that waits, in one that queues, and as a transaction of its own. */
enum way { IN_BODY, QUEUED, NOW, WAYS };
enum op { ADD, BUMP, TAKE, GET, SET_IF };

/* Fill in the first part; the second is what came of it. */
struct count {
    pqtx_pool *pool;
    const pqtx_counter *counter;
    enum way way;
    enum op op;
    pqtx_value key;
    int64_t amount; /* or what is expected … */
    int64_t wanted; /* … before this is set */
    pqtx_options options;

    pthread_t thread;
    pqtx_status status;
    int64_t value;
    uint32_t attempts; /* not of NOW */
    pqtx_error error;
};

/* All defaults. */
struct count count_of(pqtx_pool *pool, const pqtx_counter *counter, enum op op, pqtx_value key,
                      int64_t amount);

void run_count(struct count *count, pqtx_status expected);

/* The same on a thread of its own. */
void start_count(struct count *count);
void join_count(struct count *count, pqtx_status expected);

/* Runs it as an increment; the test fails if it does not succeed, and on another value. */
#define assert_count(count, expected)                                                              \
    do {                                                                                           \
        run_count(count, PQTX_OK);                                                                 \
        ck_assert_int_eq((count)->value, expected);                                                \
    } while (0)

#endif
