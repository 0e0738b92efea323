#ifndef PQTX_LIB_WIRE_H
#define PQTX_LIB_WIRE_H

#include "batch.h"
#include "prepared.h"

#include <pqtx/clock.h>
#include <pqtx/error.h>

#include <libpq-fe.h>
#include <pthread.h>
#include <stdbool.h>

/* What one command of a flight came to: its result, or its first error.  NULL: no answer came. */
struct pqtx__reply {
    PGresult *result;
    bool is_sync; /* an error found at the Sync itself (a deferred constraint) is kept here */
    bool parses;  /* the answer to the statement's Parse comes first */
    bool buries;  /* the statement is deallocated */
    struct pqtx__prepared *statement; /* or NULL: sent as it is */
};

struct pqtx__statement {
    const char *sql;
    const struct pqtx__params *params; /* or NULL */
};

typedef void (*pqtx__notice)(void *arg, const PGresult *notice);

/* A connection and the flight under way on it: commands queued since the last clear, in pipeline
 * mode, and their replies in the same order. */
struct pqtx__wire {
    PGconn *conn;
    const pqtx_clock *clock;
    bool lost;         /* gone, or out of step: good for nothing but closing */
    bool unsent;       /* it was lost for want of memory, while a command was queued */
    bool was_blocking; /* how a borrowed connection is given back */

    struct pqtx__reply *replies;
    size_t count, capacity;
    size_t landed; /* replies that are complete */
    bool flushed;  /* libpq has handed all of them to the system */
    bool answered; /* the command that is next to end has answered something */

    struct pqtx__store store;
    struct pqtx__cache *cache; /* or NULL: statements are sent as they are */
    bool stale;                /* the server did not know a statement that we had prepared */

    pqtx__notice notice;
    void *notice_arg;

    struct pqtx__backend {
        int pid; /* 0: a pooler stands between, or nobody asked */
        int64_t start_us;
    } backend;
    struct pqtx__settings { /* as they were last sent without a BEGIN */
        int64_t lock_ms, statement_ms;
        char sql[256];
    } settings;
    bool checks_client; /* the server can look whether its client is still there */

    /* for the pool */
    int64_t opened_us, idle_since_us;
    pthread_t last_thread;
    struct pqtx__wire *next;
};

enum pqtx__flight { PQTX__FLYING, PQTX__LANDED, PQTX__LOST };

/* Takes the connection over: non-blocking, pipeline mode.  false if it is not idle and clean. */
bool pqtx__wire_attach(struct pqtx__wire *wire, PGconn *conn, const pqtx_clock *clock);

/* Gives a borrowed connection back as it was, unless it is lost; frees what the wire holds. */
void pqtx__wire_detach(struct pqtx__wire *wire);

/* Frees what the wire of a borrowed connection holds, and leaves that alone. */
void pqtx__wire_abandon(struct pqtx__wire *wire);

/* Queue a command, or the Sync that ends a flight.  Nothing waits.  On false the wire is lost. */
bool pqtx__wire_send(struct pqtx__wire *wire, const char *sql, const struct pqtx__params *params);
bool pqtx__wire_sync(struct pqtx__wire *wire);

/* One turn of the machine.  `ready`: what the socket is ready for (PQTX_WAIT_…), 0 at first.
 * While it is flying, *wants is what to wait for on PQsocket(), which may change between turns. */
enum pqtx__flight pqtx__wire_step(struct pqtx__wire *wire, int ready, int *wants);

/* Turns it until the flight has landed, is lost, or `until` has passed (PQTX__FLYING). */
enum pqtx__flight pqtx__wire_land(struct pqtx__wire *wire, int64_t until_us);

/* The place of the first error in order, from `begin` on and before `end`; `end` if there is none.
 */
size_t pqtx__wire_error(const struct pqtx__wire *wire, size_t begin, size_t end);

/* The place where PostgreSQL itself said that the session is over; the count of replies if nowhere.
 */
size_t pqtx__wire_last_word(const struct pqtx__wire *wire);

/* A reply's result, which is the caller's from then on. */
PGresult *pqtx__wire_take(struct pqtx__wire *wire, size_t i);

/* Forgets a flight that has landed. */
void pqtx__wire_clear(struct pqtx__wire *wire);

/* One statement in a flight of its own, outside a transaction: its result or error, the caller's;
 * NULL if the wire was lost without a word, or the time was up (then it is lost too). */
PGresult *pqtx__wire_ask(struct pqtx__wire *wire, const char *sql,
                         const struct pqtx__params *params, int64_t until_us);

/* The same with values, for a question that is answered with one boolean; false for anything else.
 */
bool pqtx__wire_confirms(struct pqtx__wire *wire, const char *sql, int count,
                         const pqtx_value *values, int64_t until_us);

/* Whether it is one row of so many columns, as our own questions are answered. */
bool pqtx__is_row(const PGresult *result, int columns);

/* Breaks the connection off, as a network would. */
void pqtx__wire_cut(struct pqtx__wire *wire);

/* Whether the server has said something that no command asked for: a notice, or the end. */
bool pqtx__wire_has_input(struct pqtx__wire *wire);

/* Whether the peer has closed an idle connection: looks at the socket, asks the server nothing. */
bool pqtx__wire_is_stale(struct pqtx__wire *wire);

/* Closes a connection.  In a forked child the parent's session must not be ended with it. */
void pqtx__wire_close(struct pqtx__wire *wire, bool in_child);

#endif
