/* support_reply.c: error results as libpq makes them of a server's bytes, without a server.
 *
 * A socket in a folder of our own plays the server: it says that the session stands, and then the
 * error.  What it says is small enough for the socket's buffer, so one thread plays both sides. */
#define _DEFAULT_SOURCE
#include "support_reply.h"

#include <arpa/inet.h>
#include <check.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define HELLO "R\0\0\0\x08\0\0\0\0" READY /* no password is asked for */
#define READY "Z\0\0\0\x05I"

static void say(int peer, const void *bytes, size_t len)
{
    ck_assert_int_eq(write(peer, bytes, len), (ssize_t)len);
}

static void say_error(int peer, const struct field *fields)
{
    static char message[65536];
    size_t len = 5;
    for (; fields->code; fields++) {
        size_t size = strlen(fields->text) + 1;
        ck_assert_uint_lt(len + 1 + size, sizeof message);
        message[len++] = fields->code;
        memcpy(message + len, fields->text, size);
        len += size;
    }
    message[len++] = '\0';
    uint32_t announced = htonl((uint32_t)len - 1);
    message[0] = 'E';
    memcpy(message + 1, &announced, sizeof announced);
    say(peer, message, len);
}

/* A session whose other end is *peer. */
static PGconn *connect_to_peer(int *peer)
{
    char folder[] = "/tmp/pqtx-reply.XXXXXX";
    char conninfo[128];
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(address.sun_path, sizeof address.sun_path, "%s/.s.PGSQL.1", folder);
    snprintf(conninfo, sizeof conninfo, "host=%s port=1 user=nobody dbname=nothing", folder);

    int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    int bound = bind(listener, (struct sockaddr *)&address, sizeof address);
    int listening = listen(listener, 1);
    PGconn *conn = PQconnectStart(conninfo);
    unlink(address.sun_path);
    rmdir(folder);
    ck_assert_msg(bound == 0 && listening == 0 && PQstatus(conn) != CONNECTION_BAD, "%s",
                  PQerrorMessage(conn));
    *peer = accept(listener, NULL, NULL);
    close(listener);

    say(*peer, HELLO, sizeof HELLO - 1);
    for (PostgresPollingStatusType poll; (poll = PQconnectPoll(conn)) != PGRES_POLLING_OK;)
        ck_assert_msg(poll != PGRES_POLLING_FAILED, "%s", PQerrorMessage(conn));
    return conn;
}

PGresult *result_of_error(const struct field *fields)
{
    int peer;
    PGconn *conn = connect_to_peer(&peer);
    ck_assert_msg(PQsendQuery(conn, "SELECT 1"), "%s", PQerrorMessage(conn));
    say_error(peer, fields);
    say(peer, READY, sizeof READY - 1);
    PGresult *result = PQgetResult(conn);
    ck_assert_int_eq(PQresultStatus(result), PGRES_FATAL_ERROR);
    ck_assert_ptr_null(PQgetResult(conn));
    PQfinish(conn);
    close(peer);
    return result;
}
