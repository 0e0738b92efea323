#ifndef PQTX_LIB_CALL_H
#define PQTX_LIB_CALL_H

#include "attempt.h"
#include "statement.h"

/* What a call asks of the server: one statement, how many rows it must have, and where the answer
 * is to go. */
struct pqtx__request {
    const char *sql;
    enum pqtx__kind kind; /* of it */
    int count;
    const pqtx_value *values;
    struct pqtx__rule rule;
    bool counts; /* PQTX_MISUSE where there is no count of rows */
    pqtx_status (*meaning)(int64_t code, const char **why); /* as in struct pqtx__call */
    const PGresult **result;                                /* or NULL, as the next two */
    int64_t *rows;
    int64_t *integers; /* of what is queued: as in struct pqtx__call */
    size_t integer_count;
};

/* Whether it can be queued: its rows are counted on the server, or by a tag that is sure to come.
 */
bool pqtx__call_can_wait(const struct pqtx__request *request);

/* Queues it; PQTX_OK or the mark. */
pqtx_status pqtx__call_queue(pqtx_tx *tx, const struct pqtx__request *request);

/* The parts of it, for a call of several statements: a call, whose ordinal is *call, and each of
 * its statements, one of which `answers`. */
pqtx_status pqtx__call_open(pqtx_tx *tx, const struct pqtx__request *request, uint32_t *call);
pqtx_status pqtx__call_add(pqtx_tx *tx, uint32_t call, const struct pqtx__request *request,
                           bool answers);

/* Behind its last statement: sends what waits, if that has become much. */
pqtx_status pqtx__call_close(pqtx_tx *tx);

/* Notes a call that did not wait: its result, which is taken over; or that it has failed. */
pqtx_status pqtx__call_landed(pqtx_tx *tx, const struct pqtx__request *request, PGresult *result,
                              int64_t rows);
void pqtx__call_failed(pqtx_tx *tx, const struct pqtx__request *request);

/* Forgets the attempt's calls and their answers. */
void pqtx__calls_forget(pqtx_tx *tx);

#endif
