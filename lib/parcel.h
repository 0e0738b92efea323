#ifndef PQTX_LIB_PARCEL_H
#define PQTX_LIB_PARCEL_H

#include "pile.h"

#include <pqtx/error.h>
#include <pqtx/options.h>

/* A pile that is to be written, as one event, until it is. */
struct pqtx__parcel {
    struct pqtx__pile pile;
    char id[64];
    size_t alone;       /* 0; or each key by itself, and this is the one that is next, from 1 */
    pqtx_status status; /* of the last try */
    pqtx_error error;
};

/* The last key that the database has refused for good. */
struct pqtx__refusal {
    pqtx_status status; /* PQTX_OK: none */
    pqtx_error error;
    void (*told)(void *arg, const pqtx_increment *increment, const pqtx_error *error); /* or NULL */
    void *told_arg;
};

/* Draws an id that nobody else has; false if the system has no random bits. */
bool pqtx__parcel_address(struct pqtx__parcel *parcel);

/* Tries to write it.  PQTX_OK: it is written, but for what was refused.  Else it is to be tried
 * again, and status and error are noted in it. */
pqtx_status pqtx__parcel_send(struct pqtx__parcel *parcel, pqtx_pool *pool,
                              const pqtx_options *options, const pqtx_counter *counter,
                              struct pqtx__refusal *refusal);

#endif
