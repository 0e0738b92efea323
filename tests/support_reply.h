/* support_reply.h: error results as libpq makes them of a server's bytes, without a server. */
#ifndef PQTX_TESTS_SUPPORT_REPLY_H
#define PQTX_TESTS_SUPPORT_REPLY_H

#include <libpq-fe.h>

/* One field of an ErrorResponse: PG_DIAG_…, and its text. */
struct field {
    char code;
    const char *text;
};

/* What libpq makes of an ErrorResponse with these fields, the last of which has code 0. */
PGresult *result_of_error(const struct field *fields);

#endif
