#ifndef PQTX_LIB_SIZE_H
#define PQTX_LIB_SIZE_H

/* The size that a caller's struct states is believed up to here: a larger one was never set, and
 * what it spans must not be touched. */
#define PQTX__SIZE_MAX 65536

#endif
