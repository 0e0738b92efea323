/* support_doubt.h: transactions whose connection goes at a chosen point, and a row that tells what
 * became of them. */
#ifndef PQTX_TESTS_SUPPORT_DOUBT_H
#define PQTX_TESTS_SUPPORT_DOUBT_H

#include <pqtx.h>

#include <libpq-fe.h>
#include <stdatomic.h>
#include <stdbool.h>

/* Makes a fresh schema with the tables mark and pqtx_once: once, in an unchecked fixture. */
void make_doubt(const char *schema);

/* Empties them, and returns a session on the schema.  All sessions that this process opens from now
 * on are named alike, so that they can be told from others. */
PGconn *open_doubt(void);

/* One run, all of it: set the first part after trial_init(), read the second after trial_run(). */
struct trial {
    pqtx_pool *pool; /* or: */
    PGconn *own;
    pqtx_options options;
    pqtx_point point; /* the connection goes there, … */
    uint32_t last;    /* … in the attempts 1 … last; 0: in none */
    int64_t id;       /* of the row that the body writes; 0: it only reads */
    pqtx_status fail; /* what the body gives up with, or PQTX_OK */

    _Atomic uint32_t commit_sent; /* the last attempt that sent COMMIT */
    int cuts, runs, committed, rolled_back;
    pqtx_status status;
    pqtx_outcome outcome;
    uint32_t flags, attempts;
    pqtx_error error;
    pqtx_evidence evidence;
    pqtx_ticket ticket;
    char answer[16]; /* stored with the event, or found there */
    size_t answer_len;
};

void trial_init(struct trial *trial, pqtx_pool *pool, pqtx_doubt in_doubt);
void trial_run(struct trial *trial);

/* The options as trial_run() gives them, for a test that runs its own body; clears what was there
 * to read. */
const pqtx_options *trial_options(struct trial *trial);

#define assert_trial(trial, expected) assert_status((trial)->status, expected, &(trial)->error)

/* How many rows the trial has left.  With `settled`, when no session of ours is at work any more.
 */
int64_t rows_of(PGconn *monitor, const struct trial *trial, bool settled);

/* A clock that runs away when it is told to: then each look at it is a minute later, so that a
 * transaction has no time left even to be resolved. */
struct runaway_clock {
    pqtx_clock clock;
    atomic_bool away;
    _Atomic int64_t ahead_us;
};

void runaway_init(struct runaway_clock *clock);

/* Commits this row so that the answer is lost and the outcome stays in doubt: the server gets
 * COMMIT, or, with `before`, does not.  The ticket is what it can be resolved by. */
pqtx_ticket leave_in_doubt(pqtx_doubt in_doubt, int64_t id, bool before);

/* A gate: from now on whoever passes it waits while the test holds it closed. */
#define PASS_GATE "pg_advisory_xact_lock_shared(735117400)"
void close_gate(PGconn *holder);
void open_gate(PGconn *holder);

#endif
