/* support_tls.c: a server that wants TLS, and ways for it to be less than it was. */
#define _DEFAULT_SOURCE
#include "support_tls.h"
#include "support.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *given(const char *name)
{
    const char *value = getenv(name);
    ck_assert_msg(value && *value, "%s is not set: run me under tests/with-tls", name);
    return value;
}

/* ---- the way there */

const char *tls_conninfo(const char *changed)
{
    static char text[4096];
    int len = snprintf(text, sizeof text, "%s ", given("PQTX_TEST_TLS"));
    const char *at;
    for (; (at = strchr(changed, '@')) != NULL; changed = at + 1)
        len += snprintf(text + len, sizeof text - (size_t)len, "%.*s%s", (int)(at - changed),
                        changed, given("PQTX_TEST_TLS_DIR"));
    len += snprintf(text + len, sizeof text - (size_t)len, "%s", changed);
    ck_assert_int_lt(len, sizeof text);
    return text;
}

/* ---- the server */

static FILE *open_in(const char *directory, const char *name, const char *mode)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, mode);
    ck_assert_msg(file, "%s cannot be opened", path);
    return file;
}

static void write_settings(enum tls_server how)
{
    const char *certificate = how == TLS_FORGED ? "forged" : "elsewhere";
    FILE *file = open_in(given("PQTX_TEST_PGDATA"), "tls.conf", "w");
    if (how == TLS_FORGED || how == TLS_ELSEWHERE)
        fprintf(file, "ssl_cert_file = '%s/%s.crt'\nssl_key_file = '%s/%s.key'\n",
                given("PQTX_TEST_TLS_DIR"), certificate, given("PQTX_TEST_TLS_DIR"), certificate);
    else if (how == TLS_OLD)
        fputs("ssl_max_protocol_version = 'TLSv1.2'\n", file);
    else if (how == TLS_NONE)
        fputs("ssl = off\n", file);
    fclose(file);
}

static void write_hba(enum tls_server how)
{
    char rules[4096];
    FILE *file = open_in(given("PQTX_TEST_TLS_DIR"), "pg_hba.conf", "r");
    size_t len = fread(rules, 1, sizeof rules, file);
    fclose(file);
    file = open_in(given("PQTX_TEST_PGDATA"), "pg_hba.conf", "w");
    if (how == TLS_UNPROVEN)
        fputs("hostssl all all 127.0.0.1/32 trust\n", file);
    else if (how == TLS_NONE)
        fputs("host all all 127.0.0.1/32 scram-sha-256\n", file);
    fwrite(rules, 1, len, file);
    fclose(file);
}

void tls_serve(enum tls_server how)
{
    ConnStatusType expected = how == TLS_GOOD ? CONNECTION_OK : CONNECTION_BAD, status;
    PGconn *session = open_session();
    write_settings(how);
    write_hba(how);
    sql(session, "SELECT pg_reload_conf()");
    PQfinish(session);
    for (int i = 0; i < 6000; i++) {
        session = PQconnectdb(tls_conninfo(""));
        status = PQstatus(session);
        PQfinish(session);
        if (status == expected)
            return;
        poll(NULL, 0, 10); /* the server rereads its settings a little later */
    }
    ck_abort_msg("the server does not heed its settings");
}

void tls_serve_well(void)
{
    tls_serve(TLS_GOOD);
}

/* ---- its log */

static long log_mark;

void tls_log_mark(void)
{
    FILE *file = open_in(given("PQTX_TEST_PGDATA"), "server.log", "r");
    ck_assert_int_eq(fseek(file, 0, SEEK_END), 0);
    log_mark = ftell(file);
    fclose(file);
}

int tls_log_taken(bool clear)
{
    char line[4096];
    int count = 0;
    FILE *file = open_in(given("PQTX_TEST_PGDATA"), "server.log", "r");
    ck_assert_int_eq(fseek(file, log_mark, SEEK_SET), 0);
    while (fgets(line, sizeof line, file))
        if (strstr(line, "connection authorized: user=pqtx_"))
            count += !clear || !strstr(line, "SSL enabled");
    fclose(file);
    return count;
}
