/* bench_proxy.c: a relay on loopback TCP that makes a line long, and counts what passes.
 *
 * One thread, which waits in epoll alone, with all signals blocked.  The delay is the same for all,
 * so what came first is due first, and one queue serves every connection. */
#define _GNU_SOURCE
#include "bench_proxy.h"
#include "bench.h"

#include <arpa/inet.h>
#include <errno.h>
#include <libpq-fe.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum side { CLIENT, SERVER };

struct pair {
    struct end {
        struct pair *pair;
        enum side side;
        int fd;
    } ends[2];
    enum side speaker; /* who spoke last */
    int open;          /* directions that have not ended */
};

/* Bytes on their way to `to`; none: the other side has ended. */
struct chunk {
    struct chunk *next;
    int64_t due_ns;
    struct end *to;
    size_t len;
    char bytes[];
};

struct proxy {
    int64_t delay_ns;
    struct sockaddr_un server;
    char conninfo[2048];
    int listener, epoll, timer, stop;
    pthread_t thread;
    bool stopping;
    atomic_int pairs;
    struct chunk *first, **last;
    atomic_int_fast64_t trips, up_bytes, down_bytes;
};

static int checked(int result, const char *what)
{
    if (result < 0)
        die("proxy: %s: %s", what, strerror(errno));
    return result;
}

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static void watch(struct proxy *proxy, int fd, void *what)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = what};
    checked(epoll_ctl(proxy->epoll, EPOLL_CTL_ADD, fd, &event), "epoll_ctl");
}

static void accept_one(struct proxy *proxy)
{
    static const int on = 1;
    struct pair *pair = calloc(1, sizeof *pair);
    if (!pair)
        die("proxy: no memory");
    int client = checked(accept(proxy->listener, NULL, NULL), "accept");
    int server = checked(socket(AF_UNIX, SOCK_STREAM, 0), "socket");
    checked(connect(server, (struct sockaddr *)&proxy->server, sizeof proxy->server), "connect");
    setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    pair->ends[CLIENT] = (struct end){pair, CLIENT, client};
    pair->ends[SERVER] = (struct end){pair, SERVER, server};
    pair->speaker = SERVER;
    pair->open = 2;
    proxy->pairs++;
    watch(proxy, client, &pair->ends[CLIENT]);
    watch(proxy, server, &pair->ends[SERVER]);
}

static void count(struct proxy *proxy, struct pair *pair, enum side from, size_t len)
{
    if (from == CLIENT && pair->speaker == SERVER)
        proxy->trips++;
    pair->speaker = from;
    *(from == CLIENT ? &proxy->up_bytes : &proxy->down_bytes) += (int_fast64_t)len;
}

static void receive(struct proxy *proxy, struct end *from)
{
    char bytes[65536];
    ssize_t received = recv(from->fd, bytes, sizeof bytes, 0);
    size_t len = received > 0 ? (size_t)received : 0;
    struct chunk *chunk = malloc(sizeof *chunk + len);
    if (!chunk)
        die("proxy: no memory");
    *chunk =
        (struct chunk){NULL, now_ns() + proxy->delay_ns, &from->pair->ends[1 - from->side], len};
    memcpy(chunk->bytes, bytes, len);
    *proxy->last = chunk;
    proxy->last = &chunk->next;
    if (len > 0)
        count(proxy, from->pair, from->side, len);
    else
        epoll_ctl(proxy->epoll, EPOLL_CTL_DEL, from->fd, NULL);
}

static void send_all(int fd, const char *bytes, size_t len)
{
    while (len > 0) {
        ssize_t sent = send(fd, bytes, len, MSG_NOSIGNAL);
        if (sent <= 0)
            return; /* that it is gone is seen when it is read from */
        bytes += sent;
        len -= (size_t)sent;
    }
}

static void end(struct proxy *proxy, struct end *to)
{
    struct pair *pair = to->pair;
    shutdown(to->fd, SHUT_WR);
    if (--pair->open > 0)
        return;
    close(pair->ends[CLIENT].fd);
    close(pair->ends[SERVER].fd);
    free(pair);
    proxy->pairs--;
}

/* Sends what is due, and sets the timer for what is due next. */
static void deliver(struct proxy *proxy)
{
    while (proxy->first && proxy->first->due_ns <= now_ns()) {
        struct chunk *chunk = proxy->first;
        proxy->first = chunk->next;
        if (!proxy->first)
            proxy->last = &proxy->first;
        if (chunk->len > 0)
            send_all(chunk->to->fd, chunk->bytes, chunk->len);
        else
            end(proxy, chunk->to);
        free(chunk);
    }
    struct itimerspec at = {0};
    if (proxy->first) {
        at.it_value.tv_sec = proxy->first->due_ns / 1000000000;
        at.it_value.tv_nsec = proxy->first->due_ns % 1000000000;
    }
    timerfd_settime(proxy->timer, TFD_TIMER_ABSTIME, &at, NULL);
}

static void *relay(void *arg)
{
    struct proxy *proxy = arg;
    struct epoll_event events[64];
    eventfd_t value;
    while (!proxy->stopping || proxy->pairs > 0) {
        int ready = epoll_wait(proxy->epoll, events, 64, -1);
        for (int i = 0; i < ready; i++) {
            void *what = events[i].data.ptr;
            if (what == &proxy->stop)
                proxy->stopping = eventfd_read(proxy->stop, &value) == 0;
            else if (what == &proxy->listener)
                accept_one(proxy);
            else if (what != &proxy->timer)
                receive(proxy, what);
        }
        deliver(proxy);
    }
    return NULL;
}

static void start_thread(struct proxy *proxy)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    if (pthread_create(&proxy->thread, NULL, relay, proxy) != 0)
        die("proxy: no thread");
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void find_server(struct proxy *proxy, const char *conninfo)
{
    PGconn *conn = PQconnectdb(conninfo);
    if (PQstatus(conn) != CONNECTION_OK)
        die("proxy: %s", PQerrorMessage(conn));
    if (PQhost(conn)[0] != '/')
        die("proxy: the server must listen on a Unix socket");
    proxy->server.sun_family = AF_UNIX;
    snprintf(proxy->server.sun_path, sizeof proxy->server.sun_path, "%.80s/.s.PGSQL.%.8s",
             PQhost(conn), PQport(conn));
    PQfinish(conn);
}

struct proxy *proxy_open(const char *conninfo, double round_trip_ms)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t len = sizeof address;
    struct proxy *proxy = calloc(1, sizeof *proxy);
    if (!proxy)
        die("proxy: no memory");
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    proxy->delay_ns = (int64_t)(round_trip_ms * 1e6 / 2);
    proxy->last = &proxy->first;
    find_server(proxy, conninfo);
    proxy->listener = checked(socket(AF_INET, SOCK_STREAM, 0), "socket");
    checked(bind(proxy->listener, (struct sockaddr *)&address, len), "bind");
    checked(listen(proxy->listener, 128), "listen");
    checked(getsockname(proxy->listener, (struct sockaddr *)&address, &len), "getsockname");
    /* Of a keyword twice the last one counts. */
    snprintf(proxy->conninfo, sizeof proxy->conninfo,
             "%s host=127.0.0.1 port=%d sslmode=disable gssencmode=disable", conninfo,
             ntohs(address.sin_port));
    proxy->epoll = checked(epoll_create1(0), "epoll_create1");
    proxy->timer = checked(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK), "timerfd_create");
    proxy->stop = checked(eventfd(0, 0), "eventfd");
    watch(proxy, proxy->listener, &proxy->listener);
    watch(proxy, proxy->timer, &proxy->timer);
    watch(proxy, proxy->stop, &proxy->stop);
    start_thread(proxy);
    return proxy;
}

void proxy_close(struct proxy *proxy)
{
    eventfd_write(proxy->stop, 1);
    pthread_join(proxy->thread, NULL);
    close(proxy->listener);
    close(proxy->epoll);
    close(proxy->timer);
    close(proxy->stop);
    free(proxy);
}

const char *proxy_conninfo(const struct proxy *proxy)
{
    return proxy->conninfo;
}

/* The goodbye of the last connection must not be counted with the next one. */
struct traffic proxy_traffic(struct proxy *proxy)
{
    while (proxy->pairs > 0)
        sched_yield();
    return (struct traffic){proxy->trips, proxy->up_bytes, proxy->down_bytes};
}
