#ifndef PQTX_LIB_OPTIONS_H
#define PQTX_LIB_OPTIONS_H

#include <pqtx/options.h>
#include <pqtx/pool.h>

/* The largest time that the server takes for a timeout, and so the largest of any option. */
#define PQTX__MS_MAX 2147483647

/* Copies a caller's struct of size `given` over one of ours of size `known`: fields that the caller
 * does not know become 0, and it must not have set any that we do not know. */
pqtx_status pqtx__import(void *ours, size_t known, const void *theirs, size_t given);

/* Reads a caller's options (or NULL) and puts the defaults in.  PQTX_MISUSE with *why otherwise;
 * the options are then all default. */
pqtx_status pqtx__options_read(pqtx_options *options, const pqtx_options *given, const char **why);
pqtx_status pqtx__pool_options_read(pqtx_pool_options *options, const pqtx_pool_options *given,
                                    const char **why);

#endif
