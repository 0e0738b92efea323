#ifndef PQTX_LIB_VERDICT_H
#define PQTX_LIB_VERDICT_H

#include "guard.h"
#include "names.h"
#include "tx.h"

#include <pqtx/pool.h>

/* Statements of which the last one tells what a call came to, by a code: 0 for done; -1 and -2 for
 * an answer, where nothing was changed; any other for what must not stay.  All are templates of
 * names.h. */
enum pqtx__form {
    PQTX__PLAIN,  /* returns value and code */
    PQTX__MILD,   /* the same, but fails on the server for what must not stay */
    PQTX__STRICT, /* returns the value, and fails for any code but 0 */
    PQTX__FORM_COUNT
};

struct pqtx__verdict {
    const char *first[3]; /* what goes before, up to NULL */
    const char *last[PQTX__FORM_COUNT];
};

/* The last one, of a WITH query that ends with pqtx_v(code, value): at least one row, and the same
 * code in all of them. */
/* clang-format off */
#define PQTX__LAST(with, order)                                                                    \
    {                                                                                              \
        with " SELECT v.value, v.code FROM pqtx_v AS v" order,                                     \
        with " SELECT v.value, v.code FROM pqtx_v AS v"                                            \
             " WHERE CASE WHEN v.code @<= 0 AND v.code @>= -2" PQTX__OR_RAISE order,               \
        with " SELECT v.value FROM pqtx_v AS v WHERE CASE WHEN v.code @= 0" PQTX__OR_RAISE order   \
    }
#define PQTX__OR_RAISE " THEN true ELSE " PQTX__GUARD_RAISE("v.code, ':', v.value") " END"
/* clang-format on */

/* How a statement leaves word for the later ones of the call that it has done it, as a column of
 * RETURNING; and whether one has. */
#define PQTX__LEAVE_WORD(word) "@.set_config('pqtx.done', " word ", true)"
#define PQTX__IS_DONE(word)                                                                        \
    "CASE WHEN @.current_setting('pqtx.done', true) @= " word "::@.text THEN true ELSE false END"

/* What a call asks.  Every statement takes all of the values; where one leaves word, the last value
 * is that: it is filled in. */
struct pqtx__question {
    const struct pqtx__names *names;
    const struct pqtx__verdict *verdict;
    int count;
    pqtx_value *values;
    pqtx_status (*meaning)(int64_t code, const char **why); /* of any code but 0 */
    int64_t *out; /* gets the values, also where the code is not 0; or NULL */
    size_t out_count;
};

/* In a body, where in pipeline mode it is queued; or now: as a transaction of its own, in one round
 * trip. */
struct pqtx__way {
    bool now;
    pqtx_tx *tx;
    pqtx_pool *pool;
    const pqtx_options *options;
    pqtx_error *error;
};

/* Asks; or, with a fault of the caller's, fails with PQTX_MISUSE. */
pqtx_status pqtx__ask(struct pqtx__way way, const struct pqtx__question *question,
                      const char *fault);

/* Ends a call that asked nothing, with PQTX_OK too. */
pqtx_status pqtx__ask_nothing(struct pqtx__way way, pqtx_status status, const char *why);

#endif
