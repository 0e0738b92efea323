/* support_trace.h: what libpq's own trace of a connection says, reduced to what all its versions
 * agree on. */
#ifndef PQTX_TESTS_SUPPORT_TRACE_H
#define PQTX_TESTS_SUPPORT_TRACE_H

#include "support_fake_clock.h"

#include <libpq-fe.h>

/* Traces this connection; the clock's waits for it are noted in between.  One at a time.  Stopped
 * before the connection is closed, unless `conn` is NULL: it is closed already. */
void trace_start(PGconn *conn, struct fake_clock *fake);
void trace_stop(PGconn *conn);

/* What has passed since trace_start() or trace_cut().  Static text, overwritten by the next call.
 *
 *     > text   a statement: Parse, Bind, Describe and Execute in this order
 *     > parse 1: text
 *              a statement is prepared, the first one of this connection
 *     > 1      and run: Bind, Describe and Execute in this order
 *     > Sync   the end of a flight
 *     wait     the first wait for an answer after that
 *     < TAG    a statement is done;  < error 23505: it is not
 *     < I      ready, and the transaction's state: I, T or E */
const char *trace_wire(void);
void trace_cut(void);

/* How many flights were sent in it; how often an answer was waited for, which is a round trip. */
int trace_syncs(void);
int trace_trips(void);

#define assert_wire(golden) ck_assert_str_eq(trace_wire(), golden)

#endif
