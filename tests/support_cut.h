/* support_cut.h: a relay in front of the test server that counts the messages that pass, and cuts
 * the line at one of them, or anywhere. */
#ifndef PQTX_TESTS_SUPPORT_CUT_H
#define PQTX_TESTS_SUPPORT_CUT_H

#include <stdbool.h>
#include <stddef.h>

struct cut;

/* Listens on a Unix socket in a fresh directory; a thread relays to the server that
 * pool_conninfo() names. */
struct cut *cut_open(void);
void cut_close(struct cut *cut);

/* pool_conninfo(), led through the relay; lives as long as it. */
const char *cut_conninfo(const struct cut *cut);

enum cut_from { CUT_CLIENT, CUT_SERVER };
enum cut_where { CUT_NOWHERE, CUT_BEFORE, CUT_AFTER, CUT_INSIDE };

/* Before or after the n-th message of a direction; or inside, when n bytes of this flight (the
 * messages up to a Sync or ReadyForQuery) have passed.  All numbers from 1. */
struct cut_point {
    enum cut_from from;
    enum cut_where where;
    size_t n, flight;
};

/* Counts anew from here on, and cuts at the point, once; with NULL nowhere. */
void cut_arm(struct cut *cut, const struct cut_point *point);

/* Whole messages and flights since then, and how many bytes each of the first flights had. */
#define CUT_FLIGHTS_MAX 16

struct cut_count {
    size_t messages, flights;
    size_t bytes[CUT_FLIGHTS_MAX];
};
struct cut_count cut_count(struct cut *cut, enum cut_from from);

/* From now on one piece of traffic in so many is cut somewhere inside, at random (support_random.h,
 * which nobody else may use meanwhile); 0: none. */
void cut_at_random(struct cut *cut, size_t one_in);

/* Cuts every line that stands. */
void cut_now(struct cut *cut);

/* How many lines were cut so far. */
size_t cut_done(struct cut *cut);

#endif
