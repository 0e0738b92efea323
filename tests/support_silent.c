/* support_silent.c: hosts that never say a word. */
#define _DEFAULT_SOURCE
#include "support_silent.h"

#include <check.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static struct silent *listen_at(int family, const void *address, socklen_t size)
{
    struct silent *silent = calloc(1, sizeof *silent);
    ck_assert_ptr_nonnull(silent);
    silent->listener = socket(family, SOCK_STREAM, 0);
    ck_assert_int_eq(bind(silent->listener, address, size), 0);
    ck_assert_int_eq(listen(silent->listener, family == AF_UNIX ? 64 : 0), 0);
    ck_assert_int_eq(fcntl(silent->listener, F_SETFL, O_NONBLOCK), 0);
    return silent;
}

struct silent *silent_open(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char folder[32] = "/tmp/pqtx-silent.XXXXXX";
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(address.sun_path, sizeof address.sun_path, "%s/.s.PGSQL.1", folder);
    struct silent *silent = listen_at(AF_UNIX, &address, sizeof address);
    memcpy(silent->host, folder, sizeof folder);
    strcpy(silent->port, "1");
    return silent;
}

struct silent *silent_open_tcp(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t size = sizeof address;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    struct silent *silent = listen_at(AF_INET, &address, sizeof address);
    ck_assert_int_eq(getsockname(silent->listener, (struct sockaddr *)&address, &size), 0);
    strcpy(silent->host, "127.0.0.1");
    snprintf(silent->port, sizeof silent->port, "%d", ntohs(address.sin_port));
    return silent;
}

static void keep(struct silent *silent, int fd)
{
    ck_assert_int_lt(silent->count, (int)(sizeof silent->taken / sizeof silent->taken[0]));
    silent->taken[silent->count++] = fd;
}

int silent_count(struct silent *silent)
{
    int fd;
    while ((fd = accept(silent->listener, NULL, NULL)) >= 0)
        keep(silent, fd);
    return silent->count;
}

/* Nobody takes what comes, and the queue has no more room. */
void silent_fill(struct silent *silent)
{
    struct sockaddr_in address;
    socklen_t size = sizeof address;
    struct pollfd one = {.events = POLLOUT};
    ck_assert_int_eq(getsockname(silent->listener, (struct sockaddr *)&address, &size), 0);
    do {
        one.fd = socket(AF_INET, SOCK_STREAM, 0);
        ck_assert_int_eq(fcntl(one.fd, F_SETFL, O_NONBLOCK), 0);
        connect(one.fd, (struct sockaddr *)&address, size);
        keep(silent, one.fd);
    } while (poll(&one, 1, 0) > 0);
}

void silent_close(struct silent *silent)
{
    char path[64];
    for (int i = 0; i < silent->count; i++)
        close(silent->taken[i]);
    close(silent->listener);
    snprintf(path, sizeof path, "%s/.s.PGSQL.1", silent->host);
    unlink(path);
    rmdir(silent->host);
    free(silent);
}
