/* support_link.h: the bytes of one connection, seen from the server. */
#ifndef PQTX_TESTS_SUPPORT_LINK_H
#define PQTX_TESTS_SUPPORT_LINK_H

#include "support_message.h"

#include <stddef.h>

struct link {
    int fd; /* -1: closed */
    struct bytes in, out;
    size_t read, sent; /* of each, how much is done with */
};

void link_close(struct link *link);

/* Takes in what has come; closes where the client has. */
void link_receive(struct link *link);

/* The next message that is there as a whole, without the `head` bytes in front of its length and
 * the length itself; NULL if there is none. */
const char *link_next(struct link *link, size_t head, char *type);

/* Sends what the socket takes, but not more than this many bytes. */
void link_send(struct link *link, size_t most);

/* How much is still to be sent. */
size_t link_unsent(const struct link *link);

#endif
