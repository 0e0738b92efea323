/* ticket.c: a ticket as one line of text, and back.
 *
 * Each ticket has exactly one text, so a text that was damaged is none. */
#include "proof.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_token(const char token[40])
{
    static const char digits[] = "0123456789abcdef";
    return memchr(token, '\0', 40) && strlen(token) == PQTX__TOKEN_SIZE - 1 &&
           strspn(token, digits) == PQTX__TOKEN_SIZE - 1;
}

static bool is_schema(const char schema[64])
{
    return memchr(schema, '\0', 64) && pqtx__once_schema(schema);
}

bool pqtx__ticket_is_good(const pqtx_ticket *ticket)
{
    if (ticket->by == PQTX_DOUBT_TOKEN)
        return is_schema(ticket->schema) && is_token(ticket->token);
    return ticket->by == PQTX_DOUBT_XID && ticket->xid != 0 && ticket->timeline > 0;
}

pqtx_status pqtx_ticket_format(const pqtx_ticket *ticket, char *buffer, size_t size)
{
    if (!ticket || ticket->size != sizeof *ticket || !buffer || !pqtx__ticket_is_good(ticket))
        return PQTX_MISUSE;
    int len;
    if (ticket->by == PQTX_DOUBT_TOKEN)
        len = snprintf(buffer, size, "pqtx1 token %s %s", ticket->schema, ticket->token);
    else
        len = snprintf(buffer, size, "pqtx1 xid %" PRIu64 " %" PRId32 " %" PRIu64 " %" PRId64,
                       ticket->system_identifier, ticket->timeline, ticket->xid, ticket->era);
    return len > 0 && (size_t)len < size ? PQTX_OK : PQTX_MISUSE;
}

pqtx_status pqtx_ticket_parse(const char *text, pqtx_ticket *ticket)
{
    if (!text || !ticket || ticket->size != sizeof *ticket)
        return PQTX_MISUSE;
    pqtx_ticket read = PQTX_TICKET;
    char system_identifier[21], timeline[11], xid[21], era[21], again[PQTX_TICKET_TEXT];
    if (sscanf(text, "pqtx1 token %63s %39s", read.schema, read.token) == 2) {
        read.by = PQTX_DOUBT_TOKEN;
    } else if (sscanf(text, "pqtx1 xid %20[0-9] %10[0-9] %20[0-9] %20[0-9]", system_identifier,
                      timeline, xid, era) == 4) {
        read.by = PQTX_DOUBT_XID;
        read.system_identifier = strtoull(system_identifier, NULL, 10);
        read.timeline = (int32_t)strtoll(timeline, NULL, 10);
        read.xid = strtoull(xid, NULL, 10);
        read.era = strtoll(era, NULL, 10);
    }
    /* What was read too leniently, or did not fit, is written otherwise than it stood there. */
    if (pqtx_ticket_format(&read, again, sizeof again) != PQTX_OK)
        return PQTX_MISUSE;
    size_t len = strlen(again);
    if (strncmp(text, again, len) != 0 || text[len + strspn(text + len, " \t\r\n")] != '\0')
        return PQTX_MISUSE;
    *ticket = read;
    return PQTX_OK;
}
