#ifndef PQTX_LIB_GATE_H
#define PQTX_LIB_GATE_H

#include "fork.h"
#include "turn.h"

#include <pqtx/gate.h>

#include <pthread.h>
#include <stdatomic.h>

#define PQTX__GATE_SLOTS 64

struct pqtx_gate {
    atomic_uint refs;
    struct pqtx__birth birth;
    struct pqtx__gate_slot {
        pthread_mutex_t lock;
        bool taken;
        struct pqtx__turns turns;
    } slots[PQTX__GATE_SLOTS];
};

/* A transaction keeps the gate's memory alive until it is freed, closed or not. */
void pqtx__gate_ref(pqtx_gate *gate);
void pqtx__gate_unref(pqtx_gate *gate);

/* Whether this process is a child of the one that opened it, and so must not use it: a lock in it
 * may have been held by a thread that is not here. */
bool pqtx__gate_is_foreign(const pqtx_gate *gate);

struct pqtx__gate_slot *pqtx__gate_slot(pqtx_gate *gate, int64_t key);

/* Waits for the caller's turn.  True: it has passed and must leave, by the same key, on whatever
 * thread.  False: the time was up. */
bool pqtx__gate_enter(pqtx_gate *gate, int64_t key, const pqtx_clock *clock, int64_t until_us);
void pqtx__gate_leave(pqtx_gate *gate, int64_t key);

#endif
