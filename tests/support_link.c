/* support_link.c: the bytes of one connection, seen from the server. */
#define _DEFAULT_SOURCE
#include "support_link.h"

#include <arpa/inet.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

void link_close(struct link *link)
{
    close(link->fd);
    link->fd = -1;
    bytes_free(&link->in);
    bytes_free(&link->out);
}

void link_receive(struct link *link)
{
    char bytes[65536];
    ssize_t len;
    if (link->read == link->in.len)
        link->read = link->in.len = 0;
    while ((len = recv(link->fd, bytes, sizeof bytes, MSG_DONTWAIT)) > 0)
        bytes_add(&link->in, bytes, (size_t)len);
    if (len == 0)
        link_close(link);
}

const char *link_next(struct link *link, size_t head, char *type)
{
    uint32_t len;
    size_t left = link->in.len - link->read;
    const char *message = link->in.data + link->read;
    if (left < head + sizeof len)
        return NULL;
    memcpy(&len, message + head, sizeof len);
    if (left < head + ntohl(len))
        return NULL;
    *type = head ? message[0] : '\0';
    link->read += head + ntohl(len);
    return message + head + sizeof len;
}

void link_send(struct link *link, size_t most)
{
    while (link_unsent(link) > 0 && most > 0) {
        size_t part = link_unsent(link) < most ? link_unsent(link) : most;
        ssize_t sent =
            send(link->fd, link->out.data + link->sent, part, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent <= 0)
            return;
        most -= (size_t)sent;
        link->sent += (size_t)sent;
    }
    if (link_unsent(link) == 0)
        link->sent = link->out.len = 0;
}

size_t link_unsent(const struct link *link)
{
    return link->out.len - link->sent;
}
