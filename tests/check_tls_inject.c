/* check_tls_inject.c: what somebody in between says before TLS stands is not taken for the server's
 * word, and who offers no TLS hears no secret. */
#define _DEFAULT_SOURCE
#include "support.h"
#include "support_tls.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

/* ---- who is in between: it answers a request for TLS, and then hands on, or hangs up */

struct between {
    int listener;
    const char *answer;
    size_t len;
    bool hands_on;
    pthread_t thread;
    int requests;   /* for TLS */
    char first[64]; /* bytes that came when it had answered */
    size_t first_len;
};

static struct sockaddr_in address_of(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

static bool is_request(const char *bytes, ssize_t len)
{
    uint32_t words[2];
    if (len != sizeof words)
        return false;
    memcpy(words, bytes, sizeof words);
    return ntohl(words[0]) == 8 && ntohl(words[1]) == 80877103;
}

/* Hands a request for TLS to the server, and takes its consent. */
static int reach_server(const char *request)
{
    PGconn *session = open_session();
    struct sockaddr_in address = address_of(atoi(PQport(session)));
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    char consent = 0;
    PQfinish(session);
    ck_assert(connect(fd, (struct sockaddr *)&address, sizeof address) == 0);
    ck_assert(send(fd, request, 8, MSG_NOSIGNAL) == 8);
    ck_assert(recv(fd, &consent, 1, 0) == 1 && consent == 'S');
    return fd;
}

static bool move(int from, int to)
{
    char bytes[65536];
    ssize_t len = recv(from, bytes, sizeof bytes, 0);
    return len > 0 && send(to, bytes, (size_t)len, MSG_NOSIGNAL) == len;
}

static void hand_on(int client, int server)
{
    struct pollfd ends[] = {{.fd = client, .events = POLLIN}, {.fd = server, .events = POLLIN}};
    while (poll(ends, 2, -1) > 0)
        if ((ends[0].revents && !move(client, server)) ||
            (ends[1].revents && !move(server, client)))
            return;
}

static void hang_up(struct between *between, int client)
{
    ssize_t len;
    shutdown(client, SHUT_WR);
    len = recv(client, between->first, sizeof between->first, 0);
    between->first_len = len > 0 ? (size_t)len : 0;
}

/* The answer goes out in one piece, so that it is read in one. */
static void meet(struct between *between, int client)
{
    char request[64];
    if (!is_request(request, recv(client, request, sizeof request, 0)))
        return;
    between->requests++;
    int server = between->hands_on ? reach_server(request) : -1;
    send(client, between->answer, between->len, MSG_NOSIGNAL);
    if (!between->hands_on) {
        hang_up(between, client);
        return;
    }
    hand_on(client, server);
    close(server);
}

static void *stand_between(void *arg)
{
    struct between *between = arg;
    int client;
    while ((client = accept(between->listener, NULL, NULL)) >= 0) {
        meet(between, client);
        close(client);
    }
    return NULL;
}

/* Returns the port. */
static int begin(struct between *between)
{
    struct sockaddr_in address = address_of(0);
    socklen_t size = sizeof address;
    between->listener = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert(bind(between->listener, (struct sockaddr *)&address, size) == 0);
    ck_assert(listen(between->listener, 8) == 0);
    ck_assert(getsockname(between->listener, (struct sockaddr *)&address, &size) == 0);
    ck_assert(pthread_create(&between->thread, NULL, stand_between, between) == 0);
    return ntohs(address.sin_port);
}

static void end(struct between *between)
{
    shutdown(between->listener, SHUT_RDWR);
    pthread_join(between->thread, NULL);
    close(between->listener);
}

static pqtx_error open_through(int port, const char *changed, uint32_t flags)
{
    char text[512];
    pqtx_pool_options options = PQTX_POOL_OPTIONS;
    pqtx_error error = PQTX_ERROR;
    pqtx_pool *pool;
    snprintf(text, sizeof text, "port=%d %s", port, changed);
    options.conninfo = tls_conninfo(text);
    options.flags = flags;
    options.connect_timeout_ms = 3600000; /* so it is not the time that ends it */
    ck_assert_int_eq(pqtx_pool_open(&options, &pool, &error), error.status);
    pqtx_pool_close(pool);
    return error;
}

/* ---- words that are slipped in */

#define BYTES(text) text, sizeof(text) - 1

/* A server's welcome, from AuthenticationOk to ReadyForQuery. */
#define WELCOME "R\0\0\0\x08\0\0\0\0K\0\0\0\x0c\0\0\0\x01\0\0\0\x02Z\0\0\0\x05I"
#define FATAL   "E\0\0\0\x28SFATAL\0C57P03\0Mdo as I say\x1b[2J\0\0"

static const struct injection {
    const char *answer;
    size_t len;
    const char *changed;
} injections[] = {
    {BYTES("S" WELCOME), ""},
    {BYTES("S" WELCOME), "sslmode=prefer sslrootcert=''"},
    {BYTES("S" WELCOME), "sslmode=require sslrootcert=''"},
    {BYTES("S" FATAL), ""},
    {BYTES("S\0"), ""},
};

START_TEST(words_slipped_in_before_tls_are_refused)
{
    const struct injection *injection = &injections[_i];
    struct between between = {.answer = injection->answer, .len = injection->len, .hands_on = true};
    int port = begin(&between);
    pqtx_error plain = open_through(port, injection->changed, 0);
    pqtx_error raw = open_through(port, injection->changed, PQTX_POOL_RAW_ERRORS);
    end(&between);
    assert_status(plain.status, PQTX_NO_CONNECTION, &plain);
    assert_status(raw.status, PQTX_NO_CONNECTION, &raw);
    ck_assert_int_eq(between.requests, 2);
    ck_assert_msg(strstr(raw.message, "received unencrypted data after SSL response"), "%s",
                  raw.message);
    ck_assert_ptr_null(strstr(plain.message, "do as I say"));
    ck_assert_ptr_null(strstr(plain.message, TLS_SECRET));
}
END_TEST

START_TEST(one_who_slips_nothing_in_is_not_noticed)
{
    struct between between = {.answer = "S", .len = 1, .hands_on = true};
    pqtx_error error = open_through(begin(&between), "", 0);
    end(&between);
    assert_status(error.status, PQTX_OK, &error);
    ck_assert_int_eq(between.requests, 1);
}
END_TEST

/* ---- other answers */

static const struct {
    const char *answer;
    size_t len;
} answers[] = {
    {BYTES("N")}, {BYTES("N" WELCOME)}, {BYTES(WELCOME)}, {BYTES(FATAL)}, {BYTES("S")}, {BYTES("")},
};

/* Not even the user's name, which a server hears first: nothing at all, or the beginning of a
 * handshake. */
START_TEST(who_offers_no_tls_hears_nothing)
{
    struct between between = {.answer = answers[_i].answer, .len = answers[_i].len};
    pqtx_error error = open_through(begin(&between), "", 0);
    end(&between);
    assert_status(error.status, PQTX_NO_CONNECTION, &error);
    ck_assert_ptr_null(strstr(error.message, "\x1b"));
    ck_assert_ptr_null(strstr(error.message, TLS_SECRET));
    ck_assert_int_eq(between.requests, 1);
    if (between.answer[0] == 'S')
        ck_assert(between.first_len > 0 && between.first[0] == 0x16);
    else
        ck_assert_uint_eq(between.first_len, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tls_inject");
    TCase *tcase = tcase_create("before tls");
    tcase_add_checked_fixture(tcase, tls_serve_well, NULL);
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, words_slipped_in_before_tls_are_refused, 0, COUNT(injections));
    tcase_add_test(tcase, one_who_slips_nothing_in_is_not_noticed);
    tcase_add_loop_test(tcase, who_offers_no_tls_hears_nothing, 0, COUNT(answers));
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
