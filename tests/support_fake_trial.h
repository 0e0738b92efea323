/* support_fake_trial.h: one transaction on the fake server, and all that came of it. */
#ifndef PQTX_TESTS_SUPPORT_FAKE_TRIAL_H
#define PQTX_TESTS_SUPPORT_FAKE_TRIAL_H

#include "support_fake.h"

#include <pqtx.h>

struct fake_trial {
    struct fake *fake;
    pqtx_pool *pool; /* of one connection */
    PGconn *own;     /* if set, the transaction runs on this one instead */
    pqtx_options options;

    /* Called in the body of each attempt, after its INSERT INTO mark; or NULL. */
    void (*inside)(struct fake_trial *trial, pqtx_tx *tx);
    const void *arg; /* the test's own */

    pqtx_status status;
    pqtx_outcome outcome;
    uint32_t flags, attempts;
    pqtx_error error;
    pqtx_evidence evidence;
    pqtx_ticket ticket;
    int bodies, commit_actions, rollback_actions, notices, failures, ends;
    int64_t began_us, ended_us; /* by the fake's clock */
};

/* A fake server and a pool that has just been connected to it. */
void fake_trial_begin(struct fake_trial *trial);

/* The same, but nothing is connected yet. */
void fake_trial_begin_lazily(struct fake_trial *trial);

/* Runs the transaction.  The test fails unless what it says of itself in all its ways agrees:
 * status, outcome, the actions that ran, the observer's events and the evidence; and if the
 * password of the connection string is to be read anywhere. */
void fake_trial_run(struct fake_trial *trial);

/* The test fails unless every script was used, the pool goes on as if nothing had happened, and
 * no connection is left open. */
void fake_trial_end(struct fake_trial *trial);

#endif
