/* bench_proxy.h: a relay on loopback TCP that makes a line long, and counts what passes. */
#ifndef PQTX_TESTS_BENCH_PROXY_H
#define PQTX_TESTS_BENCH_PROXY_H

#include <stdint.h>

struct proxy;

/* A thread relays to the server of the connection string, and hands on what it got half a round
 * trip later. */
struct proxy *proxy_open(const char *conninfo, double round_trip_ms);

/* Waits for the clients to hang up. */
void proxy_close(struct proxy *proxy);

/* The connection string, led through the proxy; lives as long as the proxy. */
const char *proxy_conninfo(const struct proxy *proxy);

/* Since it was opened.  A round trip begins when a client speaks first, or after it was answered.
 */
struct traffic {
    int64_t trips, up_bytes, down_bytes;
};

struct traffic proxy_traffic(struct proxy *proxy);

#endif
