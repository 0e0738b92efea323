#ifndef PQTX_LIB_PROOF_H
#define PQTX_LIB_PROOF_H

#include "wire.h"

#include <pqtx/options.h>
#include <pqtx/ticket.h>

#define PQTX__TOKEN_SIZE 33 /* 128 bits in hex */

/* What a transaction carries so that its outcome can be proved, and its event applied once. */
struct pqtx__proof {
    pqtx_doubt by;
    char schema[64];

    char *event_id; /* or NULL */
    void *fingerprint;
    size_t fingerprint_len;
    uint64_t identity[2];       /* random: the run's name, and the attempts' tokens after it */
    char run[PQTX__TOKEN_SIZE]; /* marks the event's row as this run's own */
    void *answer;               /* to be stored with the event, or found there */
    size_t answer_len;

    /* of the attempt */
    char token[PQTX__TOKEN_SIZE];
    uint64_t xid; /* 0: none was assigned, as far as is known */
    uint64_t system_identifier;
    int64_t era;
    int32_t timeline;
    bool xid_heard; /* xid 0 is the server's word: nothing was written */
};

/* Where the last checkpoint is: a number that each recovery from a crash changes, and so do
 * ordinary checkpoints.  Where it is the same, there was no crash. */
#define PQTX__ERA_SQL                                                                              \
    "(SELECT (k.checkpoint_lsn OPERATOR(pg_catalog.-) '0/0'::pg_catalog.pg_lsn)::pg_catalog.int8"  \
    " FROM pg_catalog.pg_control_checkpoint() AS k)"

/* The name of the schema of pqtx_once, "public" for NULL; NULL if it is not a plain one. */
const char *pqtx__once_schema(const char *given);

/* Whether a caller's ticket is whole: what to resolve by is there, its texts end, and they are
 * ours. */
bool pqtx__ticket_is_good(const pqtx_ticket *ticket);

/* Queues one statement about pqtx_once, whose name stands between the two parts. */
bool pqtx__once_send(const char *schema, struct pqtx__wire *wire, const char *before,
                     const char *after, int count, const pqtx_value *values);

/* Copies what the options say.  PQTX_OK; PQTX_MISUSE or PQTX_NO_MEMORY, and *why. */
pqtx_status pqtx__proof_init(struct pqtx__proof *proof, const pqtx_options *options,
                             const char **why);
void pqtx__proof_free(struct pqtx__proof *proof);

/* For a new attempt: a new token, no xid. */
void pqtx__proof_begin(struct pqtx__proof *proof, uint32_t attempt);

/* Whether the xid is still to be asked for along with the statements; the question, the answer. */
bool pqtx__proof_rides(const struct pqtx__proof *proof);
bool pqtx__proof_send_xid(struct pqtx__wire *wire);
void pqtx__proof_heed_xid(struct pqtx__proof *proof, const PGresult *answer);

/* Queues what must go in front of COMMIT. */
bool pqtx__proof_send_token(const struct pqtx__proof *proof, struct pqtx__wire *wire);

/* Adds the hint that is missing where the table is. */
void pqtx__proof_explain(const struct pqtx__proof *proof, pqtx_error *error);

/* What to resolve the attempt by; PQTX_NOT_FOUND if there is nothing. */
pqtx_status pqtx__proof_ticket(const struct pqtx__proof *proof, pqtx_ticket *ticket);

#endif
