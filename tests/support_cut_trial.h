/* support_cut_trial.h: transactions whose line is cut at a chosen place, and rows that tell, over a
 * line of their own, what became of them. */
#ifndef PQTX_TESTS_SUPPORT_CUT_TRIAL_H
#define PQTX_TESTS_SUPPORT_CUT_TRIAL_H

#include "support_cut.h"

#include <pqtx.h>

#include <libpq-fe.h>
#include <stdint.h>

#define CUT_MARKS_MAX 5

/* How doubt is settled. */
struct cut_mode {
    const char *name;
    pqtx_doubt in_doubt;
    bool event;
};

enum { CUT_REPORT, CUT_XID, CUT_TOKEN, CUT_EVENT, CUT_EVENT_AND_TOKEN, CUT_MODES };
extern const struct cut_mode cut_modes[CUT_MODES];

struct cut_trial;

/* What is run: it writes the rows id, id + 1, … into mark, each in one transaction with all else
 * that is done for it. */
struct cut_body {
    const char *name;
    pqtx_isolation isolation;
    uint32_t flags;
    pqtx_work work; /* with a pointer to the id, for one mark; or else: */
    void (*run)(struct cut_trial *trial, const pqtx_options *options);
    int marks;         /* 0: one */
    bool knows_no_xid; /* the last flight is the first that writes */
    const char *sound; /* what must be true of the tables afterwards */
};

struct cut_trial {
    const struct cut_body *body;
    const struct cut_mode *mode;
    struct cut_point point;
    bool may_doubt; /* COMMIT may have been on its way */
    pqtx_pool *pool;
    int64_t id; /* of the first mark */
    pqtx_status status[CUT_MARKS_MAX];
    pqtx_error error;
    struct cut_count count[2], before[2]; /* of all, and when COMMIT began */
    bool commits;
    char text[256];
};

struct cut_tally {
    unsigned points, committed, rolled_back, in_doubt;
    uint64_t resolved;
};

/* Makes the tables mark, side and counter in a fresh schema, and a pool on a relay: for each test.
 */
void cut_set_up(const char *schema);
void cut_tear_down(void);

/* Cuts before and after every `step`-th message of the run, from the first one on; or at every
 * `step`-th byte of the flights that commit.  The test fails if a trial says something else than
 * the rows do, or is in doubt where it need not be. */
void cut_every_message(const struct cut_mode *mode, const struct cut_body *body, size_t first,
                       size_t step, struct cut_tally *tally);
void cut_every_byte(const struct cut_mode *mode, const struct cut_body *body, size_t first,
                    size_t step, struct cut_tally *tally);

void print_tally(const char *what, const struct cut_mode *mode, const struct cut_tally *tally);

#endif
