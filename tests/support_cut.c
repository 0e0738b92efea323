/* support_cut.c: a relay that follows the messages of the protocol, in a thread.
 *
 * The lock is held while bytes are moved, so that what a test orders holds when the call returns.
 */
#define _DEFAULT_SOURCE
#include "support_cut.h"
#include "support.h"
#include "support_random.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define LINES_MAX 64

/* How far one direction of a line is in a message. */
struct stream {
    bool typeless; /* the client's first message has no type */
    unsigned char type;
    size_t have, length;
};

/* By direction; the ends are -1 where there is no line. */
struct line {
    int end[2];
    struct stream stream[2];
};

struct cut {
    char directory[32];
    struct sockaddr_un address;
    char conninfo[2560];
    int listener;
    int wake[2]; /* a pipe that ends a poll() */
    pthread_t thread;

    pthread_mutex_t lock;
    bool closing;
    struct cut_point point;
    size_t one_in, done;
    struct counter {
        struct cut_count whole;
        size_t bytes; /* of the flight that has not ended */
    } counter[2];
    struct line lines[LINES_MAX];
};

/* libpq knows how to get there; its socket is taken before a byte was sent. */
static int connect_to_server(void)
{
    PGconn *conn = PQconnectStart(pool_conninfo());
    int fd = PQsocket(conn) < 0 ? -1 : dup(PQsocket(conn));
    PQfinish(conn);
    if (fd >= 0)
        fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
    return fd;
}

static void close_line(struct line *line)
{
    for (int i = 0; i < 2; i++) {
        if (line->end[i] >= 0)
            close(line->end[i]);
        line->end[i] = -1;
    }
}

static void accept_one(struct cut *cut)
{
    struct line line = {.end = {accept(cut->listener, NULL, NULL), connect_to_server()}};
    struct line *at = cut->lines;
    while (at < cut->lines + LINES_MAX && at->end[0] >= 0)
        at++;
    line.stream[CUT_CLIENT].typeless = true;
    if (line.end[0] < 0 || line.end[1] < 0 || at == cut->lines + LINES_MAX)
        close_line(&line);
    else
        *at = line;
}

/* Takes one more byte; true if it ends a message, whose type stays readable. */
static bool take(struct stream *stream, unsigned char byte)
{
    size_t before_length = stream->typeless ? 0 : 1;
    size_t at = stream->have++;
    if (at < before_length)
        *stream = (struct stream){.type = byte, .have = 1};
    else if (at < before_length + 4)
        stream->length = stream->length << 8 | byte;
    if (stream->have < before_length + 4 || stream->have < before_length + stream->length)
        return false;
    *stream = (struct stream){.type = stream->type};
    return true;
}

static bool is_due(struct cut *cut, enum cut_from from, enum cut_where where, size_t n)
{
    if (cut->point.where != where || cut->point.from != from || cut->point.n != n)
        return false;
    cut->point.where = CUT_NOWHERE;
    cut->done++;
    return true;
}

static void end_message(struct counter *counter, bool ends_flight)
{
    struct cut_count *whole = &counter->whole;
    whole->messages++;
    if (!ends_flight)
        return;
    if (whole->flights < CUT_FLIGHTS_MAX)
        whole->bytes[whole->flights] = counter->bytes;
    whole->flights++;
    counter->bytes = 0;
}

/* How many of the bytes may pass before the point, if it is among them. */
static size_t admit(struct cut *cut, enum cut_from from, struct stream *stream,
                    const unsigned char *bytes, size_t len)
{
    struct counter *counter = &cut->counter[from];
    for (size_t i = 0; i < len; i++) {
        if (stream->have == 0 && is_due(cut, from, CUT_BEFORE, counter->whole.messages + 1))
            return i;
        bool ended = take(stream, bytes[i]);
        counter->bytes++;
        if (counter->whole.flights + 1 == cut->point.flight &&
            is_due(cut, from, CUT_INSIDE, counter->bytes))
            return i + 1;
        if (ended)
            end_message(counter, stream->type == (from == CUT_CLIENT ? 'S' : 'Z'));
        if (ended && is_due(cut, from, CUT_AFTER, counter->whole.messages))
            return i + 1;
    }
    return len;
}

static bool send_all(int fd, const unsigned char *bytes, size_t len)
{
    while (len > 0) {
        ssize_t sent = send(fd, bytes, len, MSG_NOSIGNAL);
        if (sent <= 0)
            return false;
        bytes += sent;
        len -= (size_t)sent;
    }
    return true;
}

static void move(struct cut *cut, struct line *line, enum cut_from from)
{
    unsigned char bytes[65536];
    ssize_t len = recv(line->end[from], bytes, sizeof bytes, 0);
    size_t done = cut->done;
    if (len <= 0) {
        close_line(line);
        return;
    }
    size_t admitted = admit(cut, from, &line->stream[from], bytes, (size_t)len);
    if (cut->one_in > 0 && random_below(cut->one_in) == 0) {
        admitted = random_below((size_t)len + 1);
        cut->done++;
    }
    if (!send_all(line->end[1 - from], bytes, admitted) || cut->done > done)
        close_line(line);
}

static void *relay(void *arg)
{
    struct cut *cut = arg;
    struct pollfd polled[2 + 2 * LINES_MAX] = {{.fd = cut->wake[0], .events = POLLIN},
                                               {.fd = cut->listener, .events = POLLIN}};
    pthread_mutex_lock(&cut->lock);
    while (!cut->closing) {
        for (int i = 0; i < 2 * LINES_MAX; i++)
            polled[2 + i] = (struct pollfd){.fd = cut->lines[i / 2].end[i % 2], .events = POLLIN};
        pthread_mutex_unlock(&cut->lock);
        int ready = poll(polled, 2 + 2 * LINES_MAX, -1);
        pthread_mutex_lock(&cut->lock);
        for (int i = 0; ready > 0 && i < 2 * LINES_MAX; i++)
            if (polled[2 + i].revents && cut->lines[i / 2].end[i % 2] >= 0)
                move(cut, &cut->lines[i / 2], (enum cut_from)(i % 2));
        if (ready > 0 && polled[1].revents)
            accept_one(cut);
    }
    for (int i = 0; i < LINES_MAX; i++)
        close_line(&cut->lines[i]);
    pthread_mutex_unlock(&cut->lock);
    return NULL;
}

static void listen_in(struct cut *cut)
{
    strcpy(cut->directory, "/tmp/pqtx-cut.XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(cut->directory));
    cut->address.sun_family = AF_UNIX;
    snprintf(cut->address.sun_path, sizeof cut->address.sun_path, "%s/.s.PGSQL.5432",
             cut->directory);
    cut->listener = socket(AF_UNIX, SOCK_STREAM, 0);
    ck_assert(bind(cut->listener, (struct sockaddr *)&cut->address, sizeof cut->address) == 0);
    ck_assert(listen(cut->listener, LINES_MAX) == 0);
}

struct cut *cut_open(void)
{
    struct cut *cut = calloc(1, sizeof *cut);
    ck_assert_ptr_nonnull(cut);
    for (int i = 0; i < LINES_MAX; i++)
        cut->lines[i].end[0] = cut->lines[i].end[1] = -1;
    listen_in(cut);
    /* Of a keyword twice the last one counts; and a relay reads no TLS. */
    snprintf(cut->conninfo, sizeof cut->conninfo,
             "%s host=%s port=5432 hostaddr='' sslmode=disable gssencmode=disable", pool_conninfo(),
             cut->directory);
    ck_assert(pipe(cut->wake) == 0);
    pthread_mutex_init(&cut->lock, NULL);
    ck_assert(pthread_create(&cut->thread, NULL, relay, cut) == 0);
    return cut;
}

void cut_close(struct cut *cut)
{
    pthread_mutex_lock(&cut->lock);
    cut->closing = true;
    ck_assert(write(cut->wake[1], "", 1) == 1);
    pthread_mutex_unlock(&cut->lock);
    pthread_join(cut->thread, NULL);
    pthread_mutex_destroy(&cut->lock);
    close(cut->listener);
    close(cut->wake[0]);
    close(cut->wake[1]);
    unlink(cut->address.sun_path);
    rmdir(cut->directory);
    free(cut);
}

const char *cut_conninfo(const struct cut *cut)
{
    return cut->conninfo;
}

void cut_arm(struct cut *cut, const struct cut_point *point)
{
    static const struct cut_point nowhere = {.where = CUT_NOWHERE};
    pthread_mutex_lock(&cut->lock);
    cut->point = point ? *point : nowhere;
    memset(cut->counter, 0, sizeof cut->counter);
    pthread_mutex_unlock(&cut->lock);
}

struct cut_count cut_count(struct cut *cut, enum cut_from from)
{
    pthread_mutex_lock(&cut->lock);
    struct cut_count count = cut->counter[from].whole;
    pthread_mutex_unlock(&cut->lock);
    return count;
}

void cut_at_random(struct cut *cut, size_t one_in)
{
    pthread_mutex_lock(&cut->lock);
    cut->one_in = one_in;
    pthread_mutex_unlock(&cut->lock);
}

/* Not closed: the relay may be waiting for them, and will see their end. */
void cut_now(struct cut *cut)
{
    pthread_mutex_lock(&cut->lock);
    for (int i = 0; i < LINES_MAX; i++) {
        if (cut->lines[i].end[0] < 0)
            continue;
        shutdown(cut->lines[i].end[CUT_CLIENT], SHUT_RDWR);
        shutdown(cut->lines[i].end[CUT_SERVER], SHUT_RDWR);
        cut->done++;
    }
    pthread_mutex_unlock(&cut->lock);
}

size_t cut_done(struct cut *cut)
{
    pthread_mutex_lock(&cut->lock);
    size_t done = cut->done;
    pthread_mutex_unlock(&cut->lock);
    return done;
}
