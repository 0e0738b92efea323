/* gate.h: transactions of this process that would only make one another fail go one by one.
 *
 * At SERIALIZABLE those that touch the same rule at the same time fail with 40001, all but one, and
 * their work was for nothing.  A gate lets one at a time through for each key, which is a number
 * for the rule (the shift, the day, the account).
 *
 *     options.isolation = PQTX_ISO_SERIALIZABLE;
 *     options.gate = gate;      one for the whole program
 *     options.gate_key = shift;
 *
 * A gate makes nothing correct: other processes do not see it.  SERIALIZABLE does, and the gate
 * spares retries, and the long waits of those who lose several times in a row.  Measured with 16
 * threads on 4 keys, 2 cores, over a Unix socket: transactions of 1 ms made 1.6 times the commits,
 * without a retry instead of 0.84 for each, and the slowest took 57 ms instead of 1.9 s; those of
 * 0.1 ms made 0.8 times the commits, and the slowest took 52 ms instead of 1.4 s.
 *
 * Transactions on one key follow one another with all of their round trips: keep them few
 * (pipeline.h).  Where the rule can be pinned to one row, lock that row instead at READ COMMITTED:
 * it needs no retry either, and holds for other processes too. */
#ifndef PQTX_GATE_H
#define PQTX_GATE_H

#include <pqtx/api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A gate of fixed size, about 5 kB, for any number of keys, threads and pools; NULL without memory.
 * Keys share 64 slots: two that meet in one wait for one another, and no harm is done.
 *
 * A run passes it, first come, first served, before an attempt takes a connection, and holds it
 * until that attempt is over: committed, rolled back or in doubt.  So it is not held while the
 * runner sleeps between attempts, resolves a doubt or tries to connect again.
 * The wait is bounded by the run's deadline: then the run ends with PQTX_TIMEOUT, nothing of it
 * having run.  pqtx_run_each() sends transactions with a gate one after the other.
 *
 * A body must not begin another run with the same gate: it could wait for itself, to the deadline.
 * After fork() the child opens its own: with its parent's a transaction is PQTX_MISUSE. */
PQTX_API pqtx_gate *pqtx_gate_open(void);

/* No transaction may be made with it any more; those that were keep it until they are freed.  NULL
 * is harmless. */
PQTX_API void pqtx_gate_close(pqtx_gate *gate);

#ifdef __cplusplus
}
#endif

#endif
