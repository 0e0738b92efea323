/* parcel.c: a pile of increments, written once however often it is tried.
 *
 * It keeps its event id from the first try on.  Where the database refuses one of its increments,
 * each goes as an event of its own: that is sure not to count twice, since a refusal is proof that
 * the whole was not committed before. */
#define _DEFAULT_SOURCE
#include "parcel.h"

#include "counter.h"

#include <stdio.h>
#include <unistd.h>
#ifdef __APPLE__
#include <sys/random.h>
#endif

bool pqtx__parcel_address(struct pqtx__parcel *parcel)
{
    uint64_t bits[2];
    if (getentropy(bits, sizeof bits) != 0)
        return false;
    snprintf(parcel->id, sizeof parcel->id, "pqtx_tally %016llx%016llx",
             (unsigned long long)bits[0], (unsigned long long)bits[1]);
    parcel->alone = 0;
    return true;
}

/* What is needed to write something. */
struct way {
    pqtx_pool *pool;
    pqtx_options options;
    const pqtx_counter *counter;
    pqtx_error *error;
};

/* PQTX_OK: it is written, by this call or by one before. */
static pqtx_status write_out(struct way *way, const char *id, const pqtx_increment *increments,
                             size_t count)
{
    way->options.event_id = id;
    pqtx_status status = pqtx_counter_add_many_now(way->pool, &way->options, way->counter,
                                                   increments, count, NULL, way->error);
    return status == PQTX_DONE_BEFORE ? PQTX_OK : status;
}

static pqtx_status write_alone(struct pqtx__parcel *parcel, struct way *way,
                               struct pqtx__refusal *refusal)
{
    char id[sizeof parcel->id + 24];
    for (; parcel->alone <= parcel->pile.count; parcel->alone++) {
        const pqtx_increment *increment = &parcel->pile.increments[parcel->alone - 1];
        snprintf(id, sizeof id, "%s.%zu", parcel->id, parcel->alone);
        pqtx_status status = write_out(way, id, increment, 1);
        if (status == PQTX_OK)
            continue;
        if (!pqtx__is_refusal(status))
            return status;
        refusal->status = status;
        refusal->error = parcel->error;
        if (refusal->told)
            refusal->told(refusal->told_arg, increment, &parcel->error);
    }
    return PQTX_OK;
}

pqtx_status pqtx__parcel_send(struct pqtx__parcel *parcel, pqtx_pool *pool,
                              const pqtx_options *options, const pqtx_counter *counter,
                              struct pqtx__refusal *refusal)
{
    struct way way = {pool, *options, counter, &parcel->error};
    pqtx_status status = PQTX_OK;
    parcel->error = (pqtx_error)PQTX_ERROR;
    if (parcel->alone == 0)
        status = write_out(&way, parcel->id, parcel->pile.increments, parcel->pile.count);
    if (pqtx__is_refusal(status))
        parcel->alone = 1;
    if (parcel->alone > 0)
        status = write_alone(parcel, &way, refusal);
    return parcel->status = status;
}
