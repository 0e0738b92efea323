/* support_tls.h: a server that wants TLS, and ways for it to be less than it was.  For programs
 * that run under tests/with-tls; test_conninfo() is the same server by its Unix socket. */
#ifndef PQTX_TESTS_SUPPORT_TLS_H
#define PQTX_TESTS_SUPPORT_TLS_H

#include <stdbool.h>

/* In every password and passphrase. */
#define TLS_SECRET "s3cret"

/* The way by TLS with every check that libpq knows, and then these settings, which overrule it.  In
 * them @ stands for the directory of the certificates.  Static text. */
const char *tls_conninfo(const char *changed);

/* How the server meets new connections; those that stand are not touched. */
enum tls_server {
    TLS_GOOD,
    TLS_FORGED,    /* its certificate is signed by a stranger */
    TLS_ELSEWHERE, /* its certificate is another host's */
    TLS_OLD,       /* it speaks TLS 1.2 at most */
    TLS_UNPROVEN,  /* it asks for no password, so it need not show that it knows it */
    TLS_NONE       /* it has no TLS, and wants none */
};

/* Returns when tls_conninfo("") is refused, or, with TLS_GOOD, taken. */
void tls_serve(enum tls_server how);
void tls_serve_well(void); /* TLS_GOOD, as a fixture */

/* Begins anew to count the connections that the server takes by TCP, by what its log says. */
void tls_log_mark(void);

/* How many those are; with `clear`, how many of them are not encrypted. */
int tls_log_taken(bool clear);

#endif
