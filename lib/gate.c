/* gate.c: one transaction at a time for each key, among those of this process.
 *
 * Who leaves hands the slot to the one who has waited longest, without opening it in between: a
 * newcomer cannot slip in, and nobody waits for ever. */
#include "gate.h"

#include <stdlib.h>

static bool init_slots(pqtx_gate *gate)
{
    for (int i = 0; i < PQTX__GATE_SLOTS; i++) {
        struct pqtx__gate_slot *slot = &gate->slots[i];
        if (pthread_mutex_init(&slot->lock, NULL) != 0) {
            while (i-- > 0)
                pthread_mutex_destroy(&gate->slots[i].lock);
            return false;
        }
        slot->taken = false;
        pqtx__turns_init(&slot->turns);
    }
    return true;
}

pqtx_gate *pqtx_gate_open(void)
{
    pqtx_gate *gate = malloc(sizeof *gate);
    if (!gate || !init_slots(gate)) {
        free(gate);
        return NULL;
    }
    atomic_init(&gate->refs, 1);
    gate->birth = pqtx__birth_note(false);
    return gate;
}

void pqtx__gate_ref(pqtx_gate *gate)
{
    atomic_fetch_add(&gate->refs, 1);
}

void pqtx__gate_unref(pqtx_gate *gate)
{
    if (atomic_fetch_sub(&gate->refs, 1) > 1)
        return;
    for (int i = 0; i < PQTX__GATE_SLOTS; i++)
        pthread_mutex_destroy(&gate->slots[i].lock);
    pqtx__birth_forget(&gate->birth);
    free(gate);
}

void pqtx_gate_close(pqtx_gate *gate)
{
    if (gate)
        pqtx__gate_unref(gate);
}

bool pqtx__gate_is_foreign(const pqtx_gate *gate)
{
    return !pqtx__born_here(&gate->birth);
}

_Static_assert(PQTX__GATE_SLOTS == 1 << (64 - 58), "a slot is the upper 6 bits");

/* Of a product with the golden ratio: neighbouring keys go far apart. */
struct pqtx__gate_slot *pqtx__gate_slot(pqtx_gate *gate, int64_t key)
{
    uint64_t mixed = (uint64_t)key * UINT64_C(0x9e3779b97f4a7c15);
    return &gate->slots[mixed >> 58];
}

bool pqtx__gate_enter(pqtx_gate *gate, int64_t key, const pqtx_clock *clock, int64_t until_us)
{
    static const bool never_closed = false;
    struct pqtx__gate_slot *slot = pqtx__gate_slot(gate, key);
    struct pqtx__wire *nothing;
    pthread_mutex_lock(&slot->lock);
    bool passed = !slot->taken || pqtx__turns_wait(&slot->turns, &slot->lock, &never_closed, clock,
                                                   until_us, &nothing);
    if (passed)
        slot->taken = true;
    pthread_mutex_unlock(&slot->lock);
    return passed;
}

void pqtx__gate_leave(pqtx_gate *gate, int64_t key)
{
    struct pqtx__gate_slot *slot = pqtx__gate_slot(gate, key);
    pthread_mutex_lock(&slot->lock);
    slot->taken = pqtx__turns_serve(&slot->turns, NULL);
    pthread_mutex_unlock(&slot->lock);
}
