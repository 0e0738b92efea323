/* support_trips.h: how often one waits for the server, seen from the messages of one connection. */
#ifndef PQTX_TESTS_SUPPORT_TRIPS_H
#define PQTX_TESTS_SUPPORT_TRIPS_H

#include <libpq-fe.h>
#include <stdio.h>

struct trips {
    PGconn *conn;
    FILE *trace;
    char *text;
    size_t len;
};

/* Between the two, what is sent in a row counts as one trip if something comes back. */
void trips_start(struct trips *trips, PGconn *conn);
int trips_stop(struct trips *trips);

#endif
