/* ticket.c: a ticket as one line of text, and back. */
#include "proof.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

pqtx_status pqtx_ticket_format(const pqtx_ticket *ticket, char *buffer, size_t size)
{
    if (!ticket || ticket->size != sizeof *ticket || !buffer)
        return PQTX_MISUSE;
    int len = -1;
    if (ticket->by == PQTX_DOUBT_TOKEN)
        len = snprintf(buffer, size, "pqtx1 token %.63s %.39s", ticket->schema, ticket->token);
    else if (ticket->by == PQTX_DOUBT_XID)
        len = snprintf(buffer, size, "pqtx1 xid %" PRIu64 " %" PRId32 " %" PRIu64,
                       ticket->system_identifier, ticket->timeline, ticket->xid);
    return len > 0 && (size_t)len < size ? PQTX_OK : PQTX_MISUSE;
}

static int is_token(const char *token)
{
    return strlen(token) == PQTX__TOKEN_SIZE - 1 &&
           strspn(token, "0123456789abcdef") == PQTX__TOKEN_SIZE - 1;
}

pqtx_status pqtx_ticket_parse(const char *text, pqtx_ticket *ticket)
{
    if (!text || !ticket || ticket->size != sizeof *ticket)
        return PQTX_MISUSE;
    pqtx_ticket read = PQTX_TICKET;
    int end = -1;
    if (sscanf(text, "pqtx1 token %63s %39s%n", read.schema, read.token, &end) == 2 && end > 0 &&
        is_token(read.token) && pqtx__once_schema(read.schema))
        read.by = PQTX_DOUBT_TOKEN;
    else if (sscanf(text, "pqtx1 xid %" SCNu64 " %" SCNd32 " %" SCNu64 "%n",
                    &read.system_identifier, &read.timeline, &read.xid, &end) == 3 &&
             read.xid != 0 && read.timeline > 0)
        read.by = PQTX_DOUBT_XID;
    if (read.by == 0 || end < 0 || text[end + (int)strspn(text + end, " \t\r\n")] != '\0')
        return PQTX_MISUSE;
    *ticket = read;
    return PQTX_OK;
}
