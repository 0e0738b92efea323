#ifndef PQTX_LIB_ATTEMPT_H
#define PQTX_LIB_ATTEMPT_H

#include "action.h"
#include "error.h"
#include "fork.h"
#include "gate.h"
#include "pool.h"
#include "proof.h"
#include "resolver.h"
#include "value.h"
#include "wire.h"

#include <pqtx/tx.h>

#include <stdatomic.h>

enum pqtx__state {
    PQTX__IDLE,   /* no attempt yet */
    PQTX__OPEN,   /* an attempt is under way */
    PQTX__CLOSED, /* it was rolled back; whether another follows is open */
    PQTX__DECIDED
};

/* Short commands that wait to ride in front of the next statement. */
struct pqtx__pending {
    char (*list)[48];
    size_t count, capacity;
};

/* A call of a body in pipeline mode, and what it came to. */
struct pqtx__call {
    struct pqtx__rule rule;
    /* What the guard's code means, where it is not a number of rows; a static text in *why. */
    pqtx_status (*meaning)(int64_t code, const char **why);
    const PGresult **result; /* the caller's, or NULL, as the next two */
    int64_t *rows;
    int64_t *integers; /* get the first column of the answer, row by row, at most so many */
    size_t integer_count;
    bool landed;
    pqtx_status status;
    PGresult *answer;
};

#define PQTX__CALLS_INLINE 4

struct pqtx_tx {
    pqtx_pool *pool; /* or: */
    PGconn *own;     /* the caller's connection */
    struct pqtx__birth own_birth;
    const struct pqtx__birth *birth; /* the pool's, or own_birth */
    atomic_int busy;                 /* a thread is inside a call */
    pqtx_options options;
    const pqtx_clock *clock;

    enum pqtx__state state;
    uint32_t attempts;
    bool was_stale; /* a stale statement is worth one more attempt, not a series */
    int64_t started_us;
    int64_t give_up_us;  /* statements stop here, so that cancel and rollback fit … */
    int64_t deadline_us; /* … before this */

    /* the attempt */
    bool gated; /* it has passed the gate, and must leave it */
    struct pqtx__wire *wire;
    struct pqtx__wire *given; /* or: one that others use as well, and that stays whose it is */
    bool begun;               /* BEGIN was sent */
    uint64_t flights;         /* sent in it: tells a savepoint whether it has reached the server */
    atomic_int depth;         /* bodies under way: that of pqtx_run(), and savepoints */
    uint32_t savepoints;
    struct pqtx__pending pending;
    struct pqtx__lock_timeout {
        int64_t wanted_ms;   /* > 0, 0 for none, or PQTX_NO_TIMEOUT for the session's own */
        int64_t sent_ms;     /* what the server has: less where time was short … */
        int64_t sent_for_ms; /* … for this wanted_ms */
    } lock_timeout;
    struct pqtx__actions actions;
    PGresult **results; /* handed out in this attempt */
    size_t result_count, result_capacity;
    struct pqtx__batch batch; /* what waits to be sent */
    bool guarded;             /* it was sent so that a wrong count of rows is an error */
    bool pipelined;           /* calls are queued */
    bool needs_block;         /* one of them is not for a transaction without BEGIN */
    bool claim_rides; /* the event's row is queued with the statement, not written beforehand */
    bool implicit;    /* it goes without BEGIN and COMMIT */
    struct pqtx__call *calls; /* first_calls, or allocated */
    uint32_t call_count, call_capacity;

    struct pqtx__proof proof;
    bool doubtful;     /* the answer to a COMMIT was lost, and what became of it is open */
    bool local_only;   /* the server broke off its wait for a standby */
    uint32_t flags;    /* PQTX_RESOLVED, … */
    int64_t waited_us; /* between attempts */
    pqtx_ticket ticket;
    struct pqtx__orphan orphan; /* a backend that may still hold the locks of a lost attempt */

    pqtx_status mark; /* the attempt has failed */
    bool final;       /* and is not to be run again, whatever the status */
    pqtx_status result;
    pqtx_outcome outcome;

    /* Large, and not cleared with the rest. */
    pqtx_error error;
    char blame[512];        /* whom the flight under way waits for; only with PQTX_NAME_BLOCKER */
    struct pqtx__wire lent; /* what `wire` points to on the caller's connection */
    struct pqtx__call first_calls[PQTX__CALLS_INLINE];
};

/* Begins on this wire; nothing is sent yet. */
void pqtx__attempt_begin(pqtx_tx *tx, struct pqtx__wire *wire);

/* Rolls back and begins anew on the same connection, as though nothing had been done; false if it
 * was lost with that. */
bool pqtx__attempt_rewind(pqtx_tx *tx);

/* Rolls back if anything was begun, gives the connection away, and runs the on_rollback actions. */
void pqtx__attempt_rollback(pqtx_tx *tx);

/* Gives the connection away as it is, and leaves the gate: after a commit, or in doubt. */
void pqtx__attempt_end(pqtx_tx *tx);

/* Lets the next one through the gate. */
void pqtx__attempt_leave_gate(pqtx_tx *tx);

/* Takes a notice of the server's: tells the observer, and heeds what it says about COMMIT. */
void pqtx__attempt_hear(pqtx_tx *tx, const PGresult *notice);

/* Asks the fault hook what is to go wrong at this point, and lets it. */
void pqtx__attempt_fault(pqtx_tx *tx, pqtx_point point);

/* Lets a command ride in front of the next statement; marks the attempt without memory. */
pqtx_status pqtx__attempt_defer(pqtx_tx *tx, const char *verb, uint32_t savepoint);

/* Marks the attempt, unless it is marked already, with an error of the library's own; returns the
 * mark. */
pqtx_status pqtx__fail(pqtx_tx *tx, pqtx_status status, const char *format, ...) PQTX_PRINTF(3, 4);

/* The same for a wrong number of rows: PQTX_NO_MATCH if there are too few, else PQTX_TOO_MANY. */
pqtx_status pqtx__fail_by_count(pqtx_tx *tx, struct pqtx__rule rule, int64_t rows);

/* Notes when it happened in an error that has been put into tx->error. */
void pqtx__note_error(pqtx_tx *tx);

#endif
