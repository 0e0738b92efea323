/* observer.c: one event to the one function that asked for it. */
#include "observer.h"

#include <string.h>

void pqtx__observe(const pqtx_options *options, pqtx_event event, const pqtx_error *error)
{
    if (!options->observer)
        return;
    event.size = sizeof event;
    event.message = error ? error->message : "";
    if (error) {
        event.phase = error->phase;
        memcpy(event.sqlstate, error->sqlstate, sizeof event.sqlstate);
    }
    options->observer(&event, options->observer_arg);
}
