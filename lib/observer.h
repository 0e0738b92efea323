#ifndef PQTX_LIB_OBSERVER_H
#define PQTX_LIB_OBSERVER_H

#include <pqtx/options.h>

/* Tells the observer, if there is one.  size, sqlstate and message come from `error`, which may be
 * NULL for none. */
void pqtx__observe(const pqtx_options *options, pqtx_event event, const pqtx_error *error);

#endif
