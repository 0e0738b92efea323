/* support_proxy.c: a relay between libpq and the server, in a thread.
 *
 * The lock is held while bytes are moved, so that what a test orders holds when the call returns.
 */
#define _GNU_SOURCE
#include "support_proxy.h"
#include "support.h"

#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define PAIRS_MAX 64

/* client, server: -1 once closed */
struct pair {
    int end[2];
};

struct proxy {
    char directory[32];
    struct sockaddr_un address;
    char conninfo[2560];
    char server_host[1024], server_port[16];
    int listener;
    int wake[2]; /* a pipe that ends a poll() */
    pthread_t thread;

    pthread_mutex_t lock;
    bool closing, frozen, lingers;
    const char *trap_text; /* NULL: none is set */
    enum proxy_trap trap;
    struct pair pairs[PAIRS_MAX];
    int pair_count;
};

/* The socket of a server in `directory`, as libpq names it. */
static struct sockaddr_un address_of(const char *directory, const char *port)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int len =
        snprintf(address.sun_path, sizeof address.sun_path, "%s/.s.PGSQL.%s", directory, port);
    ck_assert_int_lt(len, sizeof address.sun_path);
    return address;
}

static int connect_unix(const char *directory, const char *port)
{
    struct sockaddr_un address = address_of(directory, port);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0)
        return fd;
    close(fd);
    return -1;
}

static int connect_inet(const char *host, const char *port)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
    int fd = -1;
    if (getaddrinfo(host, port, &hints, &found) != 0)
        return -1;
    for (struct addrinfo *at = found; at && fd < 0; at = at->ai_next) {
        fd = socket(at->ai_family, at->ai_socktype, at->ai_protocol);
        if (connect(fd, at->ai_addr, at->ai_addrlen) == 0)
            break;
        close(fd);
        fd = -1;
    }
    freeaddrinfo(found);
    return fd;
}

static int connect_to_server(const struct proxy *proxy)
{
    if (proxy->server_host[0] == '/')
        return connect_unix(proxy->server_host, proxy->server_port);
    return connect_inet(proxy->server_host, proxy->server_port);
}

static void accept_one(struct proxy *proxy)
{
    int client = accept(proxy->listener, NULL, NULL);
    int server = client < 0 ? -1 : connect_to_server(proxy);
    if (client >= 0 && (server < 0 || proxy->pair_count == PAIRS_MAX)) {
        close(client);
        if (server >= 0)
            close(server);
    } else if (client >= 0) {
        proxy->pairs[proxy->pair_count++] = (struct pair){{client, server}};
    }
}

static void close_pair(struct pair *pair)
{
    close(pair->end[0]);
    close(pair->end[1]);
    pair->end[0] = pair->end[1] = -1;
}

static void drop_closed(struct proxy *proxy)
{
    int kept = 0;
    for (int i = 0; i < proxy->pair_count; i++)
        if (proxy->pairs[i].end[0] >= 0)
            proxy->pairs[kept++] = proxy->pairs[i];
    proxy->pair_count = kept;
}

static bool send_all(int fd, const char *bytes, ssize_t len)
{
    while (len > 0) {
        ssize_t sent = send(fd, bytes, (size_t)len, MSG_NOSIGNAL);
        if (sent <= 0)
            return false;
        bytes += sent;
        len -= sent;
    }
    return true;
}

static void cut_all(struct proxy *proxy)
{
    for (int i = 0; i < proxy->pair_count; i++) {
        shutdown(proxy->pairs[i].end[0], SHUT_RDWR);
        shutdown(proxy->pairs[i].end[1], SHUT_RDWR);
    }
}

static void move(struct proxy *proxy, struct pair *pair, int from)
{
    char bytes[65536];
    ssize_t len = recv(pair->end[from], bytes, sizeof bytes, 0);
    if (len <= 0 && from == 1 && proxy->lingers) {
        close(pair->end[1]);
        pair->end[1] = -1;
        return;
    }
    if (len <= 0) {
        close_pair(pair);
        return;
    }
    const char *text = from == 0 ? proxy->trap_text : NULL;
    bool sprung = text && memmem(bytes, (size_t)len, text, strlen(text));
    bool after = proxy->trap == PROXY_FREEZE_AFTER || proxy->trap == PROXY_CUT_AFTER;
    if ((!sprung || after) && !send_all(pair->end[1 - from], bytes, len))
        close_pair(pair);
    if (!sprung)
        return;
    proxy->trap_text = NULL;
    if (proxy->trap == PROXY_CUT_BEFORE || proxy->trap == PROXY_CUT_AFTER)
        cut_all(proxy);
    else
        proxy->frozen = true;
}

/* What to look at: a frozen end is not looked at, so that its closing goes unnoticed as well. */
static nfds_t fill(struct proxy *proxy, struct pollfd *polled)
{
    nfds_t count = 0;
    polled[count++] = (struct pollfd){.fd = proxy->wake[0], .events = POLLIN};
    polled[count++] = (struct pollfd){.fd = proxy->listener, .events = POLLIN};
    for (int i = 0; i < proxy->pair_count; i++)
        for (int end = 0; end < 2; end++)
            polled[count++] = (struct pollfd){.fd = proxy->frozen ? -1 : proxy->pairs[i].end[end],
                                              .events = POLLIN};
    return count;
}

static void turn(struct proxy *proxy, const struct pollfd *polled, int pair_count)
{
    char byte;
    if (polled[0].revents && read(proxy->wake[0], &byte, 1) < 0)
        proxy->closing = true;
    for (int i = 0; i < pair_count; i++)
        for (int end = 0; end < 2; end++)
            if (polled[2 + 2 * i + end].revents && !proxy->frozen && proxy->pairs[i].end[end] >= 0)
                move(proxy, &proxy->pairs[i], end);
    drop_closed(proxy);
    if (polled[1].revents)
        accept_one(proxy);
}

static void *relay(void *arg)
{
    struct proxy *proxy = arg;
    struct pollfd polled[2 + 2 * PAIRS_MAX];
    pthread_mutex_lock(&proxy->lock);
    while (!proxy->closing) {
        nfds_t count = fill(proxy, polled);
        int pair_count = proxy->pair_count;
        pthread_mutex_unlock(&proxy->lock);
        int ready = poll(polled, count, -1);
        pthread_mutex_lock(&proxy->lock);
        if (ready > 0)
            turn(proxy, polled, pair_count);
    }
    for (int i = 0; i < proxy->pair_count; i++)
        close_pair(&proxy->pairs[i]);
    pthread_mutex_unlock(&proxy->lock);
    return NULL;
}

static void wake_up(struct proxy *proxy)
{
    ck_assert(write(proxy->wake[1], "", 1) == 1);
}

static void listen_in(struct proxy *proxy)
{
    strcpy(proxy->directory, "/tmp/pqtx-proxy.XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(proxy->directory));
    proxy->address = address_of(proxy->directory, "5432");
    proxy->listener = socket(AF_UNIX, SOCK_STREAM, 0);
    ck_assert(bind(proxy->listener, (struct sockaddr *)&proxy->address, sizeof proxy->address) ==
              0);
    ck_assert(listen(proxy->listener, 64) == 0);
}

struct proxy *proxy_open(void)
{
    struct proxy *proxy = calloc(1, sizeof *proxy);
    PGconn *session = open_own();
    ck_assert_ptr_nonnull(proxy);
    snprintf(proxy->server_host, sizeof proxy->server_host, "%s", PQhost(session));
    snprintf(proxy->server_port, sizeof proxy->server_port, "%s", PQport(session));
    PQfinish(session);
    listen_in(proxy);
    /* Of a keyword twice the last one counts; and a proxy reads no TLS. */
    snprintf(proxy->conninfo, sizeof proxy->conninfo,
             "%s host=%s port=5432 hostaddr='' sslmode=disable gssencmode=disable", pool_conninfo(),
             proxy->directory);
    ck_assert(pipe(proxy->wake) == 0);
    pthread_mutex_init(&proxy->lock, NULL);
    ck_assert(pthread_create(&proxy->thread, NULL, relay, proxy) == 0);
    return proxy;
}

void proxy_close(struct proxy *proxy)
{
    pthread_mutex_lock(&proxy->lock);
    proxy->closing = true;
    wake_up(proxy);
    pthread_mutex_unlock(&proxy->lock);
    pthread_join(proxy->thread, NULL);
    pthread_mutex_destroy(&proxy->lock);
    close(proxy->listener);
    close(proxy->wake[0]);
    close(proxy->wake[1]);
    unlink(proxy->address.sun_path);
    rmdir(proxy->directory);
    free(proxy);
}

const char *proxy_conninfo(const struct proxy *proxy)
{
    return proxy->conninfo;
}

static void set_frozen(struct proxy *proxy, bool frozen)
{
    pthread_mutex_lock(&proxy->lock);
    proxy->frozen = frozen;
    wake_up(proxy);
    pthread_mutex_unlock(&proxy->lock);
}

void proxy_freeze(struct proxy *proxy)
{
    set_frozen(proxy, true);
}

void proxy_thaw(struct proxy *proxy)
{
    set_frozen(proxy, false);
}

void proxy_linger(struct proxy *proxy)
{
    pthread_mutex_lock(&proxy->lock);
    proxy->lingers = true;
    pthread_mutex_unlock(&proxy->lock);
}

void proxy_cut(struct proxy *proxy)
{
    pthread_mutex_lock(&proxy->lock);
    cut_all(proxy);
    pthread_mutex_unlock(&proxy->lock);
}

void proxy_set_trap(struct proxy *proxy, enum proxy_trap trap, const char *text)
{
    pthread_mutex_lock(&proxy->lock);
    proxy->trap = trap;
    proxy->trap_text = text;
    pthread_mutex_unlock(&proxy->lock);
}
