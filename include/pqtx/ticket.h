/* ticket.h: what a transaction in doubt can be resolved by, now or later (resolve.h). */
#ifndef PQTX_TICKET_H
#define PQTX_TICKET_H

#include <pqtx/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What to do when the answer to COMMIT was lost (resolve.h tells how). */
typedef enum pqtx_doubt {
    PQTX_DOUBT_DEFAULT = 0, /* PQTX_DOUBT_REPORT */
    PQTX_DOUBT_REPORT = 1,  /* PQTX_IN_DOUBT, at once */
    PQTX_DOUBT_XID = 2,     /* ask pg_xact_status(); needs no table, blind after a failover */
    PQTX_DOUBT_TOKEN = 3,   /* a token in pqtx_once: final */
    PQTX_DOUBT_MAX = 0x7fffffff
} pqtx_doubt;

/* Everything needed to resolve a transaction later.  Plain data: copy it, store it. */
typedef struct pqtx_ticket {
    size_t size;
    pqtx_doubt by; /* PQTX_DOUBT_REPORT: there is nothing to resolve by */
    int32_t timeline;
    uint64_t system_identifier;
    uint64_t xid;
    int64_t
        era; /* the last checkpoint: another one after a crash, which can give an xid out again */
    char token[40];
    char schema[64]; /* of pqtx_once */
} pqtx_ticket;

#define PQTX_TICKET PQTX_SIZED(pqtx_ticket)

/* One line of plain text, "pqtx1 token public 6f…", and back.  At most PQTX_TICKET_TEXT bytes with
 * the NUL; PQTX_MISUSE for text that is no ticket. */
#define PQTX_TICKET_TEXT 256
PQTX_API pqtx_status pqtx_ticket_format(const pqtx_ticket *ticket, char *buffer, size_t size);
PQTX_API pqtx_status pqtx_ticket_parse(const char *text, pqtx_ticket *ticket);

#ifdef __cplusplus
}
#endif

#endif
