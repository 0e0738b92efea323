/* quote.c: a name of the caller's as an identifier, by libpq, which knows the client encoding. */
#include "quote.h"

#include <libpq-fe.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static bool is_ascii(const char *text)
{
    while (*text && (unsigned char)*text < 0x80)
        text++;
    return *text == '\0';
}

/* libpq's memory is freed by libpq's own call on some systems, so it is not kept.  What is in ASCII
 * is valid in every client encoding, so that only memory can be missing. */
char *pqtx__quote(PGconn *conn, const char *name, pqtx_status *status)
{
    char *quoted = PQescapeIdentifier(conn, name, strlen(name));
    size_t size = quoted ? strlen(quoted) + 1 : 0;
    char *copy = quoted ? malloc(size) : NULL;
    if (copy)
        memcpy(copy, quoted, size);
    else
        *status = quoted || is_ascii(name) ? PQTX_NO_MEMORY : PQTX_MISUSE;
    PQfreemem(quoted);
    return copy;
}
