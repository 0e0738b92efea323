/* support_trips.c: round trips, counted. */
#define _DEFAULT_SOURCE
#include "support_trips.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

void trips_start(struct trips *trips, PGconn *conn)
{
    *trips = (struct trips){.conn = conn};
    trips->trace = open_memstream(&trips->text, &trips->len);
    ck_assert_ptr_nonnull(trips->trace);
    PQtrace(conn, trips->trace);
    PQsetTraceFlags(conn, PQTRACE_SUPPRESS_TIMESTAMPS);
}

int trips_stop(struct trips *trips)
{
    int count = 0;
    char last = 'B';
    PQuntrace(trips->conn);
    fclose(trips->trace);
    for (const char *line = trips->text; *line; line += strcspn(line, "\n") + 1) {
        count += line[0] == 'B' && last == 'F';
        if (line[1] == '\t' && (line[0] == 'B' || line[0] == 'F'))
            last = line[0];
        if (!strchr(line, '\n'))
            break;
    }
    free(trips->text);
    return count;
}
