/* support_counter.c: one call on a counter, made in each of the ways there are. */
#include "support_counter.h"
#include "support.h"

struct count count_of(pqtx_pool *pool, const pqtx_counter *counter, enum op op, pqtx_value key,
                      int64_t amount)
{
    return (struct count){.pool = pool,
                          .counter = counter,
                          .op = op,
                          .key = key,
                          .amount = amount,
                          .options = PQTX_OPTIONS};
}

static pqtx_status call(pqtx_tx *tx, struct count *c)
{
    switch (c->op) {
    case ADD:
        return pqtx_counter_add(tx, c->counter, c->key, c->amount, &c->value);
    case BUMP:
        return pqtx_counter_bump(tx, c->counter, c->key, c->amount, &c->value);
    case TAKE:
        return pqtx_counter_take(tx, c->counter, c->key, c->amount, &c->value);
    case GET:
        return pqtx_counter_get(tx, c->counter, c->key, &c->value);
    default:
        return pqtx_counter_set_if(tx, c->counter, c->key, c->amount, c->wanted, &c->value);
    }
}

static pqtx_status body(pqtx_tx *tx, void *arg)
{
    struct count *c = arg;
    c->attempts = pqtx_attempts(tx);
    if (c->way == QUEUED)
        pqtx_pipeline(tx);
    return call(tx, c);
}

static pqtx_status call_now(struct count *c)
{
    switch (c->op) {
    case ADD:
        return pqtx_counter_add_now(c->pool, &c->options, c->counter, c->key, c->amount, &c->value,
                                    &c->error);
    case BUMP:
        return pqtx_counter_bump_now(c->pool, &c->options, c->counter, c->key, c->amount, &c->value,
                                     &c->error);
    case TAKE:
        return pqtx_counter_take_now(c->pool, &c->options, c->counter, c->key, c->amount, &c->value,
                                     &c->error);
    case GET:
        return pqtx_counter_get_now(c->pool, &c->options, c->counter, c->key, &c->value, &c->error);
    default:
        return pqtx_counter_set_if_now(c->pool, &c->options, c->counter, c->key, c->amount,
                                       c->wanted, &c->value, &c->error);
    }
}

static void *run(void *arg)
{
    struct count *c = arg;
    c->error = (pqtx_error)PQTX_ERROR;
    c->status = c->way == NOW ? call_now(c) : pqtx_run(c->pool, &c->options, body, c, &c->error);
    return NULL;
}

void run_count(struct count *c, pqtx_status expected)
{
    run(c);
    assert_status(c->status, expected, &c->error);
}

void start_count(struct count *c)
{
    ck_assert(pthread_create(&c->thread, NULL, run, c) == 0);
}

void join_count(struct count *c, pqtx_status expected)
{
    pthread_join(c->thread, NULL);
    assert_status(c->status, expected, &c->error);
}
