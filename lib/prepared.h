#ifndef PQTX_LIB_PREPARED_H
#define PQTX_LIB_PREPARED_H

#include "value.h"

#include <stdbool.h>

#define PQTX__PREPARED_MAX  128  /* statements known on one connection */
#define PQTX__PREPARED_SIZE 8192 /* longer texts are not worth keeping */

enum pqtx__prepared_state {
    PQTX__SEEN,      /* once: whether it comes again is open */
    PQTX__PREPARING, /* its Parse is on its way */
    PQTX__READY,
    PQTX__LEAVING /* its DEALLOCATE is on its way */
};

/* A statement that this connection has met. */
struct pqtx__prepared {
    char name[40];
    enum pqtx__prepared_state state;
    size_t sql_len;
    int count;
    Oid *types; /* behind it in the same block: the types, the text */
    char *sql;
};

/* The newest use first. */
struct pqtx__cache {
    bool paused;
    uint64_t prefix, last; /* of the names: no other connection has the same */
    size_t count, doomed_count;
    struct pqtx__prepared *entries[PQTX__PREPARED_MAX];
    struct pqtx__prepared *doomed[PQTX__PREPARED_MAX]; /* to be deallocated on the server */
};

/* NULL without memory, or random numbers for the names: then nothing is prepared. */
struct pqtx__cache *pqtx__cache_new(void);
void pqtx__cache_free(struct pqtx__cache *cache);

/* The entry for this text with these types; NULL where it is to be sent as it is: the cache is NULL
 * or paused, the text too long, or never met before.  An entry that is only SEEN is to be prepared.
 */
struct pqtx__prepared *pqtx__cache_meet(struct pqtx__cache *cache, const char *sql,
                                        const struct pqtx__params *params);

/* The server does not have it as we thought: it is deallocated, if it is there, and met anew. */
void pqtx__cache_doom(struct pqtx__cache *cache, struct pqtx__prepared *entry);

/* The session has lost all of them. */
void pqtx__cache_forget(struct pqtx__cache *cache);

/* One that was doomed is gone from the server. */
void pqtx__cache_bury(struct pqtx__cache *cache, struct pqtx__prepared *entry);

#endif
