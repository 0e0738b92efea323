/* check_cluster_hosts.c: a primary and a standby in one list: the one that is asked for is found,
 * the same that libpq would find. */
#include "support.h"
#include "support_cluster.h"
#include "support_silent.h"
#include "support_tx.h"

#include <stdio.h>
#include <string.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

static PGconn *primary, *standby;
static struct silent *silent;

static void renew(void)
{
    cluster_do("renew");
}

static void set_up(void)
{
    primary = cluster_session(primary_conninfo());
    standby = cluster_session(standby_conninfo());
    silent = silent_open();
}

static void tear_down(void)
{
    PQfinish(primary);
    PQfinish(standby);
    silent_close(silent);
}

/* P is the primary, S the standby, M is mute, - is nobody. */
static const char *leading_to(const char *hosts, const char *wanted)
{
    static char conninfo[1024];
    char names[512] = "", ports[64] = "";
    for (; *hosts; hosts++) {
        PGconn *server = *hosts == 'P' ? primary : *hosts == 'S' ? standby : NULL;
        size_t len = strlen(names), ports_len = strlen(ports);
        snprintf(names + len, sizeof names - len, "%s%s",
                 server          ? PQhost(server)
                 : *hosts == 'M' ? silent->host
                                 : "/nonexistent",
                 hosts[1] ? "," : "");
        snprintf(ports + ports_len, sizeof ports - ports_len, "%s%s", server ? PQport(server) : "1",
                 hosts[1] ? "," : "");
    }
    snprintf(conninfo, sizeof conninfo,
             "host=%s port=%s user=%s dbname=%s target_session_attrs=%s connect_timeout=1", names,
             ports, PQuser(primary), PQdb(primary), wanted);
    return conninfo;
}

static const char *const wishes[] = {"any",     "read-write", "read-only",
                                     "primary", "standby",    "prefer-standby"};

static pqtx_status ask_host(pqtx_tx *tx, void *host)
{
    const PGresult *row;
    pqtx_status status = pqtx_exec(tx, "SELECT CASE WHEN pg_is_in_recovery() THEN 'S' ELSE 'P' END",
                                   PQTX_NO_ARGS, &row);
    if (status == PQTX_OK)
        *(char *)host = PQgetvalue(row, 0, 0)[0];
    return status;
}

/* 'P', 'S', or ' ' if none of them would do. */
static char host_of_pool(const char *conninfo)
{
    pqtx_pool_options options = PQTX_POOL_OPTIONS;
    pqtx_error error = PQTX_ERROR;
    pqtx_pool *pool;
    char host = ' ';
    options.conninfo = conninfo;
    pqtx_status status = pqtx_pool_open(&options, &pool, &error);
    if (status == PQTX_OK)
        assert_status(pqtx_run(pool, NULL, ask_host, &host, &error), PQTX_OK, &error);
    else
        assert_status(status, PQTX_NO_CONNECTION, &error);
    pqtx_pool_close(pool);
    return host;
}

static char host_of_libpq(const char *conninfo)
{
    char host = ' ';
    PGconn *session = PQconnectdb(conninfo);
    if (PQstatus(session) == CONNECTION_OK)
        host = ask_int(session, "SELECT pg_is_in_recovery()::int") ? 'S' : 'P';
    PQfinish(session);
    return host;
}

START_TEST(the_host_is_the_one_that_libpq_finds)
{
    static const char *const lists[] = {"P",  "S",  "PS",  "SP",  "PP",  "SS",
                                        "-P", "S-", "-SP", "P-S", "-PS", "--"};
    for (int i = 0; i < COUNT(lists); i++) {
        const char *conninfo = leading_to(lists[i], wishes[_i]);
        char ours = host_of_pool(conninfo), theirs = host_of_libpq(conninfo);
        ck_assert_msg(ours == theirs, "%s of %s: '%c', not '%c'", wishes[_i], lists[i], ours,
                      theirs);
    }
}
END_TEST

START_TEST(a_primary_that_reads_only_by_choice_is_told_from_a_standby)
{
    char ours[COUNT(wishes)], theirs[COUNT(wishes)];
    sql(primary, "ALTER DATABASE postgres SET default_transaction_read_only = on");
    for (int i = 0; i < COUNT(wishes); i++) {
        const char *conninfo = leading_to("PS", wishes[i]);
        ours[i] = host_of_pool(conninfo);
        theirs[i] = host_of_libpq(conninfo);
    }
    sql(primary, "ALTER DATABASE postgres RESET default_transaction_read_only");
    for (int i = 0; i < COUNT(wishes); i++)
        ck_assert_msg(ours[i] == theirs[i], "%s: '%c', not '%c'", wishes[i], ours[i], theirs[i]);
}
END_TEST

START_TEST(beyond_a_silent_host_the_right_one_is_found)
{
    static const char found[] = {'P', 'P', 'S', 'P', 'S', 'S'};
    const char *list = found[_i] == 'P' ? _i == 0 ? "MPS" : "MSP" : "MPS";
    ck_assert_int_eq(host_of_pool(leading_to(list, wishes[_i])), found[_i]);
    ck_assert_int_ge(silent_count(silent), 1);
}
END_TEST

START_TEST(without_a_standby_the_primary_is_preferred_to_silence)
{
    ck_assert_int_eq(host_of_pool(leading_to("MP", "prefer-standby")), 'P');
    ck_assert_int_eq(silent_count(silent), 2);
}
END_TEST

START_TEST(after_a_failover_the_pool_stays_with_the_new_primary)
{
    pqtx_pool *pool = cluster_pool(leading_to("PSM", "read-write"));
    pqtx_error error = PQTX_ERROR;
    char host = ' ';
    cluster_catch_up(primary, standby);
    cluster_do("crash primary");
    cluster_do("promote");
    assert_status(pqtx_run(pool, NULL, ask_host, &host, &error), PQTX_OK, &error);
    ck_assert_int_eq(host, 'P');
    ck_assert_int_eq(silent_count(silent), 0);
    pqtx_pool_close(pool);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cluster_hosts");
    TCase *tcase = tcase_create("hosts"), *failover = tcase_create("failover");
    tcase_set_timeout(tcase, 60);
    tcase_add_unchecked_fixture(tcase, renew, NULL);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_loop_test(tcase, the_host_is_the_one_that_libpq_finds, 0, COUNT(wishes));
    tcase_add_test(tcase, a_primary_that_reads_only_by_choice_is_told_from_a_standby);
    tcase_add_loop_test(tcase, beyond_a_silent_host_the_right_one_is_found, 0, COUNT(wishes));
    tcase_add_test(tcase, without_a_standby_the_primary_is_preferred_to_silence);
    suite_add_tcase(suite, tcase);
    tcase_set_timeout(failover, 120);
    tcase_add_unchecked_fixture(failover, renew, NULL);
    tcase_add_checked_fixture(failover, set_up, tear_down);
    tcase_add_test(failover, after_a_failover_the_pool_stays_with_the_new_primary);
    suite_add_tcase(suite, failover);
    return run_suite(suite);
}
