/* check_tls_refusal.c: what a connection by TLS is refused for, whose words say so, and that they
 * hold no secret. */
#define _DEFAULT_SOURCE
#include "support.h"
#include "support_tls.h"

#include <stdio.h>
#include <string.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

static pqtx_error opening_error(const char *changed, uint32_t flags)
{
    pqtx_pool_options options = PQTX_POOL_OPTIONS;
    pqtx_error error = PQTX_ERROR;
    pqtx_pool *pool;
    options.conninfo = tls_conninfo(changed);
    options.flags = flags;
    pqtx_status status = pqtx_pool_open(&options, &pool, &error);
    ck_assert_msg(status != PQTX_OK, "opened: %s", changed);
    ck_assert_ptr_null(pool);
    assert_status(error.status, status, &error);
    ck_assert_int_eq(error.phase, PQTX_PHASE_CONNECT);
    return error;
}

static bool holds(const pqtx_error *error, const char *text)
{
    const char *bytes = (const char *)error;
    for (size_t at = 0; at + strlen(text) <= sizeof *error; at++)
        if (memcmp(bytes + at, text, strlen(text)) == 0)
            return true;
    return false;
}

#define BY_CERTIFICATE "user=pqtx_cert password='' channel_binding=prefer "

/* ---- on this side */

static const struct doubtful {
    enum tls_server server;
    const char *changed;
    const char *reason; /* libpq's or OpenSSL's */
} doubtful[] = {
    {TLS_FORGED, "", "certificate verify failed"},
    {TLS_ELSEWHERE, "", "does not match host name"},
    {TLS_OLD, "", "SSL"},
    {TLS_UNPROVEN, "", "channel binding"},
    {TLS_NONE, "", "does not support SSL"},
    {TLS_NONE, "sslmode=require sslrootcert=''", "does not support SSL"},
    {TLS_GOOD, "host=other.pqtx.test", "does not match host name"},
    {TLS_GOOD, "host=127.0.0.1", "does not match host name"},
    {TLS_GOOD, "sslrootcert=@/stranger.crt", "certificate verify failed"},
    {TLS_GOOD, "sslrootcert=@/no-" TLS_SECRET ".crt", "root certificate file"},
    {TLS_GOOD, "ssl_min_protocol_version=wr0ng", "ssl_min_protocol_version"},
    {TLS_GOOD,
     BY_CERTIFICATE "sslcert=@/client.crt sslkey=@/client-locked.key sslpassword=wr0ng-" TLS_SECRET,
     "private key"},
    {TLS_GOOD, BY_CERTIFICATE "sslcert=@/client.crt sslkey=@/server.key", "private key"},
    {TLS_GOOD, BY_CERTIFICATE "sslcert=@/openssl.cnf sslkey=@/client.key", "certificate file"},
};

START_TEST(what_this_side_refuses_is_no_connection_and_its_words_are_kept_back)
{
    const struct doubtful *d = &doubtful[_i];
    tls_serve(d->server);
    pqtx_error plain = opening_error(d->changed, 0);
    pqtx_error raw = opening_error(d->changed, PQTX_POOL_RAW_ERRORS);
    assert_status(plain.status, PQTX_NO_CONNECTION, &plain);
    assert_status(raw.status, PQTX_NO_CONNECTION, &raw);
    ck_assert_int_eq(plain.origin, PQTX_ORIGIN_LIBPQ);
    ck_assert_str_eq(plain.sqlstate, "");
    ck_assert_msg(strstr(raw.message, d->reason), "%s: %s", d->changed, raw.message);
    ck_assert_msg(!holds(&plain, d->reason), "%s: %s", d->changed, plain.message);
    ck_assert_msg(!holds(&plain, TLS_SECRET), "%s: %s", d->changed, plain.message);
}
END_TEST

/* ---- by the server */

static const struct unwanted {
    const char *changed, *sqlstate, *reason;
} unwanted[] = {
    {"sslmode=disable channel_binding=prefer", "28000", "no pg_hba.conf entry"},
    {"sslmode=allow sslrootcert='' channel_binding=prefer password=wr0ng-" TLS_SECRET, "28P01",
     "password authentication failed"},
    {"password=wr0ng-" TLS_SECRET, "28P01", "password authentication failed"},
    {BY_CERTIFICATE, "28000", "client certificate"},
    {BY_CERTIFICATE "user=pqtx_tls sslcert=@/client.crt sslkey=@/client-locked.key"
                    " sslpassword=key-" TLS_SECRET " password=wr0ng-" TLS_SECRET,
     "28P01", "password authentication failed"},
};

START_TEST(what_the_server_refuses_is_denied_in_its_own_words)
{
    tls_serve(TLS_GOOD);
    pqtx_error error = opening_error(unwanted[_i].changed, 0);
    assert_status(error.status, PQTX_DENIED, &error);
    ck_assert_str_eq(error.sqlstate, unwanted[_i].sqlstate);
    ck_assert_int_eq(error.origin, PQTX_ORIGIN_SERVER);
    ck_assert_msg(strstr(error.message, unwanted[_i].reason), "%s", error.message);
    ck_assert_msg(!holds(&error, TLS_SECRET), "%s", error.message);
}
END_TEST

/* An alert comes when the handshake is over for this side: how it is met is a matter of chance. */
START_TEST(a_certificate_that_a_stranger_signed_does_not_let_one_in)
{
    tls_serve(TLS_GOOD);
    pqtx_error error =
        opening_error(BY_CERTIFICATE "sslcert=@/forged-client.crt sslkey=@/forged-client.key", 0);
    assert_status(error.status, PQTX_NO_CONNECTION, &error);
    ck_assert(!holds(&error, TLS_SECRET) && !holds(&error, "SSL"));
}
END_TEST

START_TEST(one_without_a_certificate_is_not_taken_for_another_who_has_one)
{
    pqtx_pool_options options = PQTX_POOL_OPTIONS;
    pqtx_error error = PQTX_ERROR;
    pqtx_pool *pool;
    tls_serve(TLS_GOOD);
    options.conninfo = tls_conninfo(
        BY_CERTIFICATE "sslcert=@/client.crt sslkey=@/client-locked.key sslpassword=key-s3cret");
    assert_status(pqtx_pool_open(&options, &pool, &error), PQTX_OK, &error);
    pqtx_error refused = opening_error(BY_CERTIFICATE, 0);
    assert_status(refused.status, PQTX_DENIED, &refused);
    pqtx_pool_close(pool);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tls_refusal");
    TCase *tcase = tcase_create("refusal");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, what_this_side_refuses_is_no_connection_and_its_words_are_kept_back,
                        0, COUNT(doubtful));
    tcase_add_loop_test(tcase, what_the_server_refuses_is_denied_in_its_own_words, 0,
                        COUNT(unwanted));
    tcase_add_test(tcase, a_certificate_that_a_stranger_signed_does_not_let_one_in);
    tcase_add_test(tcase, one_without_a_certificate_is_not_taken_for_another_who_has_one);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
