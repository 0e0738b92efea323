#ifndef PQTX_LIB_LINE_H
#define PQTX_LIB_LINE_H

#include <pqtx/error.h>
#include <pqtx/value.h>

#include <pthread.h>
#include <stdbool.h>

/* A thread that adds to a key, and waits for others to have done it. */
struct pqtx__caller {
    struct pqtx__caller *next;
    pthread_cond_t wake;
    enum {
        PQTX__IN_LINE, /* in line */
        PQTX__LEADS,   /* in line, and to take off with the others */
        PQTX__ON_BOARD,
        PQTX__TOLD,
        PQTX__ALONE /* to go by itself */
    } state;
    struct pqtx__ride *ride;
    int64_t delta, deadline_us;
    int64_t part; /* of the flight's sum: up to this caller's delta */
    int64_t value;
    pqtx_status status;
    pqtx_error *error; /* or NULL */
};

/* A transaction for several. */
struct pqtx__ride {
    struct pqtx__caller *first; /* in the order in which they are counted, the leader before all */
    size_t count;
    int64_t sum;
};

/* A key, and who waits there in the order they came, the leader among them. */
struct pqtx__line {
    struct pqtx__line *next;
    pqtx_value key;
    struct pqtx__caller *first, **last;
    size_t waiting;
    struct pqtx__caller *leader; /* or NULL */
    int32_t flights;             /* under way */
    size_t crowd;                /* how many callers there are at a time, by what was seen last */
    int64_t flight_us;           /* how long the last flight took */
    char text[];                 /* of the key */
};

#define PQTX__LINE_BUCKETS 64

/* All of them.  Lines that nobody needs are kept for what they remember, up to a thousand. */
struct pqtx__lines {
    size_t count;
    struct pqtx__line *buckets[PQTX__LINE_BUCKETS];
};

/* The line of this key, made if there was none; NULL without memory. */
struct pqtx__line *pqtx__line_find(struct pqtx__lines *lines, const pqtx_value *key);
void pqtx__lines_free(struct pqtx__lines *lines);

void pqtx__line_enter(struct pqtx__line *line, struct pqtx__caller *caller);
void pqtx__line_leave(struct pqtx__line *line, struct pqtx__caller *caller);

#endif
