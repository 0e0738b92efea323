#ifndef PQTX_LIB_HOSTS_H
#define PQTX_LIB_HOSTS_H

#include <pqtx/clock.h>

#include <libpq-fe.h>
#include <stdatomic.h>
#include <stdbool.h>

enum { PQTX__HOST, PQTX__HOSTADDR, PQTX__PORT, PQTX__PARTS };

/* What the lists say of one host; NULL where there is no such list. */
struct pqtx__host {
    const char *part[PQTX__PARTS];
};

/* Where connections lead to, and what else they are made by: a connection string, or settings. */
struct pqtx__hosts {
    const char *conninfo; /* the caller's */
    PQconninfoOption *options;

    size_t count;
    struct pqtx__host *list;  /* NULL: one host, which is libpq's to find */
    char *lists[PQTX__PARTS]; /* that the list points into */
    bool is_choosy;           /* not any server will do */
    bool prefers_standby;     /* to be tried twice: as standbys, then as anything */
    bool at_random;           /* in an order drawn anew for each connection */
    bool showable;            /* a host or port cannot be a piece of a misplaced password */
    int64_t timeout_us;       /* connect_timeout, for each host; 0: none */
    atomic_size_t best;       /* where to begin */
};

/* By a connection string, which must outlive it: with the environment and the service file as they
 * are now.  The other: by what an established connection was made by.  False: no memory. */
bool pqtx__hosts_read(struct pqtx__hosts *hosts, const char *conninfo);
bool pqtx__hosts_read_from(struct pqtx__hosts *hosts, PGconn *conn);
void pqtx__hosts_free(struct pqtx__hosts *hosts);

/* Takes the lists apart; NULL or empty is no list.  Lists that do not match are left to libpq,
 * whose error that is.  False: no memory. */
bool pqtx__hosts_split(struct pqtx__hosts *hosts, const char *const lists[PQTX__PARTS]);

/* In which order to try them, to be freed; NULL: no memory. */
size_t *pqtx__hosts_order(const struct pqtx__hosts *hosts, const pqtx_clock *clock);

/* Starts a connection to one of the list, or with NULL as libpq finds its way; `target`, unless
 * NULL, is its target_session_attrs. */
PGconn *pqtx__hosts_start(const struct pqtx__hosts *hosts, const struct pqtx__host *at,
                          const char *target);

/* Starts one to the very server that the connection leads to that the hosts were read from. */
PGconn *pqtx__hosts_start_beside(const struct pqtx__hosts *hosts, PGconn *conn);

#endif
