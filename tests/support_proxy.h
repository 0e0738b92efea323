/* support_proxy.h: a relay in front of the test server that can fall silent or cut the line. */
#ifndef PQTX_TESTS_SUPPORT_PROXY_H
#define PQTX_TESTS_SUPPORT_PROXY_H

struct proxy;

/* Listens on a Unix socket in a fresh directory; a thread relays.  It is the test server that
 * pool_conninfo() names. */
struct proxy *proxy_open(void);
void proxy_close(struct proxy *proxy);

/* pool_conninfo(), led through the proxy; lives as long as the proxy. */
const char *proxy_conninfo(const struct proxy *proxy);

/* From now on nothing passes in either direction, while every connection stands and new ones are
 * accepted: half-open.  Until proxy_thaw(); what was sent meanwhile comes through then. */
void proxy_freeze(struct proxy *proxy);
void proxy_thaw(struct proxy *proxy);

/* From now on the end of a server's side is kept from its client: its last words come, the close
 * does not. */
void proxy_linger(struct proxy *proxy);

/* Breaks the connections that stand; new ones pass. */
void proxy_cut(struct proxy *proxy);

/* Does the same once, as soon as a client sends bytes that hold `text`: before the server has got
 * those bytes, which are then lost, or after, so that only its answer is missing. */
enum proxy_trap { PROXY_FREEZE_BEFORE, PROXY_FREEZE_AFTER, PROXY_CUT_BEFORE, PROXY_CUT_AFTER };
void proxy_set_trap(struct proxy *proxy, enum proxy_trap trap, const char *text);

#endif
