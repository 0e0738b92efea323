#ifndef PQTX_LIB_PILE_H
#define PQTX_LIB_PILE_H

#include <pqtx/counter.h>

#include <stdbool.h>

/* Increments added up by key, in memory that is bounded when it is made. */
struct pqtx__pile {
    pqtx_increment *increments; /* each key once … */
    char **texts;               /* … and the copies of their texts, or NULL */
    size_t count, capacity;
    uint32_t *slots; /* of a table by hash: the place of an increment, from 1; 0: none */
    size_t slot_count;
    uint64_t adds; /* that were added up */
};

#define PQTX__KEY_BYTES_MAX 1024

/* For at most so many keys; false without memory. */
bool pqtx__pile_make(struct pqtx__pile *pile, size_t capacity);
void pqtx__pile_free(struct pqtx__pile *pile);

/* PQTX_OK; PQTX_TOO_MANY if the key is new and there is no room; PQTX_BAD_DATA if the sum does not
 * fit; PQTX_NO_MEMORY.  Then nothing was added. */
pqtx_status pqtx__pile_add(struct pqtx__pile *pile, const pqtx_value *key, int64_t delta);

void pqtx__pile_clear(struct pqtx__pile *pile);

#endif
