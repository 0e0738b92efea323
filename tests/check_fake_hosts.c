/* check_fake_hosts.c: of several hosts each has its part of the time, and target_session_attrs its
 * way. */
#define _DEFAULT_SOURCE
#include "support.h"
#include "support_fake_trial.h"
#include "support_silent.h"

#include <stdio.h>
#include <string.h>

#define COUNT(array)     ((int)(sizeof(array) / sizeof((array)[0])))
#define ADD(tcase, test) tcase_add_loop_test(tcase, test, 0, COUNT(test##_table))
#define STARTUP          "(startup)"

static struct fake *fake;
static struct silent *silent;
static pqtx_pool_options options;
static pqtx_pool *pool;
static pqtx_error error;
static int64_t began_us;

static void set_up(void)
{
    fake = fake_open();
    silent = silent_open();
    options = (pqtx_pool_options)PQTX_POOL_OPTIONS;
    options.clock = &fake->clock;
    error = (pqtx_error)PQTX_ERROR;
    pool = NULL;
    began_us = fake->now_us;
}

static void tear_down(void)
{
    pqtx_pool_close(pool);
    silent_close(silent);
    fake_close(fake);
}

/* A connection string whose hosts are these: F is the fake server, S the silent one, - nobody. */
static const char *leading_to(const char *hosts, const char *others)
{
    static char conninfo[1024];
    size_t len = (size_t)snprintf(
        conninfo, sizeof conninfo,
        "port=1 user=nobody dbname=nothing password=" FAKE_PASSWORD " %s host=", others);
    for (; *hosts; hosts++)
        len += (size_t)snprintf(conninfo + len, sizeof conninfo - len, "%s%s",
                                *hosts == 'F'   ? fake->folder
                                : *hosts == 'S' ? silent->host
                                                : "/nonexistent",
                                hosts[1] ? "," : "");
    return conninfo;
}

static pqtx_status open_pool_to(const char *hosts, const char *others)
{
    options.conninfo = leading_to(hosts, others);
    pqtx_status status = pqtx_pool_open(&options, &pool, &error);
    ck_assert_msg(!strstr(error.message, FAKE_PASSWORD), "%s", error.message);
    return status;
}

static int64_t gone_ms(void)
{
    return (fake->now_us - began_us) / 1000;
}

static void assert_said(const char *text)
{
    ck_assert_msg(strstr(error.message, text), "%s", error.message);
}

/* Each connection to the fake finds the next of these: Primary, Standby, Read-only primary. */
static void let_them_be(const char *servers)
{
    for (; *servers; servers++) {
        char script[512];
        snprintf(script, sizeof script,
                 "authenticated; parameter server_version 15.0; parameter in_hot_standby %s;"
                 " parameter default_transaction_read_only %s; key 4711; ready I",
                 *servers == 'S' ? "on" : "off", *servers == 'R' ? "on" : "off");
        fake_on(fake, STARTUP, script);
    }
}

/* ---- time */

static const struct {
    const char *hosts, *others;
    int64_t connect_timeout_ms, gone_ms;
} a_silent_host_has_its_part_of_the_time_table[] = {
    {"SF", "", 0, 5000},
    {"SF", "", 700, 350},
    {"SSF", "", 9000, 6000}, /* 3 s each */
    {"-SF", "", 0, 5000},    /* who says no at once leaves its part to the others */
    {"S-F", "", 9000, 3000},
    {"SF", "connect_timeout=2", 0, 2000},
    {"SF", "connect_timeout=7", 0, 5000},
    {"SSSF", "connect_timeout=2", 9000, 2000 + 2000 + 2000},
    {"SF", "target_session_attrs=prefer-standby", 8000, 2000}, /* of four tries */
};

START_TEST(a_silent_host_has_its_part_of_the_time)
{
    options.connect_timeout_ms =
        a_silent_host_has_its_part_of_the_time_table[_i].connect_timeout_ms;
    fake_always(fake, STARTUP,
                "authenticated; parameter server_version 15.0; parameter in_hot_standby on;"
                " key 4711; ready I");
    pqtx_status status = open_pool_to(a_silent_host_has_its_part_of_the_time_table[_i].hosts,
                                      a_silent_host_has_its_part_of_the_time_table[_i].others);
    assert_status(status, PQTX_OK, &error);
    ck_assert_int_eq(gone_ms(), a_silent_host_has_its_part_of_the_time_table[_i].gone_ms);
    ck_assert_int_eq(fake->connection_count, 1);
}
END_TEST

static const struct {
    const char *hosts, *others;
    int64_t gone_ms;
} where_all_are_silent_the_time_is_kept_table[] = {
    {"SS", "", 10000},
    {"SSS", "target_session_attrs=prefer-standby", 10000},
    {"S", "", 10000},
    {"S", "connect_timeout=3", 3000},
    {"SS", "connect_timeout=3", 6000},
    {"SS", "connect_timeout=8", 10000}, /* half, and then the rest */
};

START_TEST(where_all_are_silent_the_time_is_kept)
{
    pqtx_status status = open_pool_to(where_all_are_silent_the_time_is_kept_table[_i].hosts,
                                      where_all_are_silent_the_time_is_kept_table[_i].others);
    assert_status(status, PQTX_NO_CONNECTION, &error);
    ck_assert_int_eq(gone_ms(), where_all_are_silent_the_time_is_kept_table[_i].gone_ms);
}
END_TEST

START_TEST(a_deadline_is_shared_as_well)
{
    pqtx_options run = PQTX_OPTIONS;
    options.flags = PQTX_POOL_LAZY;
    assert_status(open_pool_to("SS", ""), PQTX_OK, &error);
    run.clock = &fake->clock;
    run.deadline_ms = 4000;
    pqtx_tx *tx = pqtx_new(pool, &run);
    ck_assert(!pqtx_attempt(tx));
    pqtx_get_error(tx, &error);
    assert_status(pqtx_result(tx), PQTX_NO_CONNECTION, &error);
    ck_assert(error.flags & PQTX_ERROR_DEADLINE);
    ck_assert_int_le(gone_ms(), 4000);
    ck_assert_int_eq(silent_count(silent), 2);
    pqtx_free(tx);
}
END_TEST

/* With a Unix socket in the list, whose address is empty. */
static void open_past(const struct silent *inet)
{
    static char conninfo[512];
    snprintf(conninfo, sizeof conninfo,
             "host=x.invalid,%s hostaddr=%s, port=%s,1 user=nobody dbname=nothing", fake->folder,
             inet->host, inet->port);
    options.conninfo = conninfo;
    assert_status(pqtx_pool_open(&options, &pool, &error), PQTX_OK, &error);
    ck_assert_int_eq(gone_ms(), 5000);
}

START_TEST(an_address_that_is_silent_has_its_part_of_the_time)
{
    struct silent *inet = silent_open_tcp();
    open_past(inet);
    ck_assert_int_eq(silent_count(inet), 1);
    silent_close(inet);
}
END_TEST

START_TEST(an_address_that_swallows_what_comes_has_its_part_of_the_time)
{
    struct silent *inet = silent_open_tcp();
    silent_fill(inet);
    open_past(inet);
    silent_close(inet);
}
END_TEST

/* ---- the next one */

START_TEST(the_next_connection_begins_where_the_last_one_was_made)
{
    options.min_count = 5;
    let_them_be("PPPPP");
    assert_status(open_pool_to("-SSF", _i == 0 ? "" : "target_session_attrs=primary"), PQTX_OK,
                  &error);
    ck_assert_int_eq(silent_count(silent), 2);
    ck_assert_int_eq(fake->connection_count, 5);
    ck_assert_int_eq(gone_ms(), 3333 + 3333);
}
END_TEST

/* Of a first host that was away for once. */
START_TEST(where_any_will_do_a_host_that_said_no_is_asked_again)
{
    char away[64];
    pqtx_tx *tx[2];
    pqtx_options run = PQTX_OPTIONS;
    snprintf(away, sizeof away, "%s.away", silent->host);
    ck_assert_int_eq(rename(silent->host, away), 0);
    let_them_be("PP");
    assert_status(open_pool_to("SF", _i == 0 ? "" : "target_session_attrs=primary"), PQTX_OK,
                  &error);
    ck_assert_int_eq(rename(away, silent->host), 0);
    run.clock = &fake->clock;
    for (int i = 0; i < 2; i++)
        ck_assert(pqtx_attempt(tx[i] = pqtx_new(pool, &run)));
    ck_assert_int_eq(silent_count(silent), _i == 0);
    for (int i = 0; i < 2; i++)
        pqtx_free(tx[i]);
}
END_TEST

START_TEST(where_the_last_one_was_made_is_silence_now_the_others_are_tried)
{
    pqtx_options run = PQTX_OPTIONS;
    pqtx_stats stats = PQTX_STATS;
    assert_status(open_pool_to("F-F", ""), PQTX_OK, &error);
    fake_on(fake, "INSERT INTO mark", "close");
    fake_on(fake, STARTUP, "mute");
    run.clock = &fake->clock;
    pqtx_tx *tx = pqtx_new(pool, &run);
    while (pqtx_attempt(tx)) {
        pqtx_exec(tx, "INSERT INTO mark VALUES (1)", PQTX_NO_ARGS, NULL);
        pqtx_commit(tx);
    }
    pqtx_get_error(tx, &error);
    assert_status(pqtx_result(tx), PQTX_OK, &error);
    pqtx_pool_stats(pool, &stats);
    ck_assert_uint_eq(stats.connects, 2);
    ck_assert_uint_eq(stats.connect_failures, 0);
    ck_assert_int_eq(fake->connection_count, 3);
    pqtx_free(tx);
}
END_TEST

/* The fake's dice turn a pair round.  libpq 16 was the first to draw. */
START_TEST(with_load_balance_hosts_each_connection_draws_anew)
{
    PQconninfoOption *known = PQconninfoParse("load_balance_hosts=random", NULL);
    PQconninfoFree(known);
    if (!known)
        return;
    options.min_count = 2;
    assert_status(open_pool_to("FS", "load_balance_hosts=random"), PQTX_OK, &error);
    ck_assert_int_eq(fake->connection_count, 2);
    ck_assert_int_eq(silent_count(silent), 2);
    ck_assert_int_eq(gone_ms(), 5000 + 5000);
}
END_TEST

/* ---- what a server says */

static const struct {
    const char *script;
    pqtx_status status;
    const char *message;
} a_refusal_for_good_ends_the_search_table[] = {
    {"fatal 28P01 auth_failed no such password; close", PQTX_DENIED, "no such password"},
    {"fatal 3D000 InitPostgres no such database; close", PQTX_BAD_STATEMENT, "no such database"},
    {"fatal 53300 InitProcess too many; close", PQTX_RESOURCES, "too many"},
};

START_TEST(a_refusal_for_good_ends_the_search)
{
    fake_on(fake, STARTUP, a_refusal_for_good_ends_the_search_table[_i].script);
    assert_status(open_pool_to("-FSF", ""), a_refusal_for_good_ends_the_search_table[_i].status,
                  &error);
    assert_said("tried 2 of 4 hosts: cannot connect to host ");
    assert_said(fake->folder);
    assert_said(a_refusal_for_good_ends_the_search_table[_i].message);
    ck_assert_int_eq(silent_count(silent), 0);
    ck_assert_int_eq(fake->connection_count, 1);
}
END_TEST

static const char *const a_refusal_for_now_leads_to_the_next_host_table[] = {
    "fatal 57P03 ProcessStartupPacket starting up; close",
    "fatal 57P03 ProcessStartupPacket starting up",
    "fatal 57P01 ProcessInterrupts going down; close",
    "pooler FATAL 08P01 no more connections allowed; close",
    "close",
    "authenticated; close",
    "hex 485454502f312e31203430302042616420526571756573740d0a; close",
    "authenticated; parameter server_version 15.0; close",
};

START_TEST(a_refusal_for_now_leads_to_the_next_host)
{
    fake_on(fake, STARTUP, a_refusal_for_now_leads_to_the_next_host_table[_i]);
    assert_status(open_pool_to("FF", ""), PQTX_OK, &error);
    ck_assert_int_eq(fake->connection_count, 2);
    ck_assert_int_eq(gone_ms(), 0);
}
END_TEST

START_TEST(a_connection_that_ends_before_it_is_of_use_leads_to_the_next_host)
{
    fake_on(fake, "pg_backend_pid()", _i == 0 ? "close" : "mute");
    assert_status(open_pool_to("FF", ""), PQTX_OK, &error);
    ck_assert_int_eq(fake->connection_count, 2);
    ck_assert_int_eq(gone_ms(), _i == 0 ? 0 : 5000);
}
END_TEST

/* ---- target_session_attrs */

static const struct {
    const char *wanted, *servers;
    bool found; /* the last of them, else none */
} the_server_that_is_asked_for_is_found_table[] = {
    {"any", "P", true},
    {"any", "S", true},
    {"read-write", "P", true},
    {"read-write", "SP", true},
    {"read-write", "RP", true},
    {"read-write", "SRP", true},
    {"read-write", "SRS", false},
    {"read-only", "S", true},
    {"read-only", "PR", true},
    {"read-only", "PPS", true},
    {"read-only", "PPP", false},
    {"primary", "SSP", true},
    {"primary", "R", true},
    {"primary", "SSS", false},
    {"standby", "PRS", true},
    {"standby", "PRP", false},
    {"prefer-standby", "S", true},
    {"prefer-standby", "PPS", true},
    {"prefer-standby", "PRPP", true}, /* found in the second pass */
    {"prefer-standby", "PRPS", true},
};

START_TEST(the_server_that_is_asked_for_is_found)
{
    char others[64];
    const char *servers = the_server_that_is_asked_for_is_found_table[_i].servers;
    bool found = the_server_that_is_asked_for_is_found_table[_i].found;
    snprintf(others, sizeof others, "target_session_attrs=%s",
             the_server_that_is_asked_for_is_found_table[_i].wanted);
    let_them_be(servers);
    assert_status(open_pool_to("FFF", others), found ? PQTX_OK : PQTX_NO_CONNECTION, &error);
    ck_assert_int_eq(fake->connection_count, (int)strlen(servers));
    ck_assert_int_eq(gone_ms(), 0);
    if (!found)
        assert_said("the server is not one that target_session_attrs asks for");
}
END_TEST

START_TEST(of_one_host_libpq_asks_the_same)
{
    let_them_be("S");
    assert_status(open_pool_to("F", "target_session_attrs=primary"), PQTX_NO_CONNECTION, &error);
    assert_said("the server is not one that target_session_attrs asks for");
    ck_assert_ptr_null(strstr(error.message, "tried"));
}
END_TEST

/* ---- what is told when all fail */

static const struct {
    const char *hosts, *first, *second, *message;
    char about;
} the_failure_that_tells_most_is_told_table[] = {
    {"S-", NULL, NULL, "tried 2 of 2 hosts: cannot connect to host ", 'S'},
    {"-S", NULL, NULL, "tried 2 of 2 hosts: cannot connect to host ", '-'},
    {"-S-S", NULL, NULL, "no answer", '-'},
    {"FS", "standby", NULL, "no answer", 'S'},
    {"SF", "standby", NULL, "no answer", 'S'},
    {"-F", "standby", NULL, "no answer", '-'},
    {"FF", "standby", "close", "no answer", 'F'},
    {"FF", "standby", "authenticated; parameter server_version 15.0; close", "no answer", 'F'},
    {"-SF", "fatal 57P03 X starting up; close", NULL, "starting up", 'F'},
    {"FF", "standby", "fatal 57P03 X starting up; close", "starting up", 'F'},
    {"FF", "fatal 57P03 X starting up; close", "fatal 57P01 X down; close", "starting up", 'F'},
    {"FF", "standby", "standby", "target_session_attrs", 'F'},
};

static void let_it_answer(const char *script)
{
    if (script && strcmp(script, "standby") == 0)
        let_them_be("S");
    else if (script)
        fake_on(fake, STARTUP, script);
}

START_TEST(the_failure_that_tells_most_is_told)
{
    char host[64];
    char about = the_failure_that_tells_most_is_told_table[_i].about;
    let_it_answer(the_failure_that_tells_most_is_told_table[_i].first);
    let_it_answer(the_failure_that_tells_most_is_told_table[_i].second);
    assert_status(open_pool_to(the_failure_that_tells_most_is_told_table[_i].hosts,
                               "target_session_attrs=read-write"),
                  PQTX_NO_CONNECTION, &error);
    assert_said(the_failure_that_tells_most_is_told_table[_i].message);
    snprintf(host, sizeof host, "host %s port 1:",
             about == 'F'   ? fake->folder
             : about == 'S' ? silent->host
                            : "/nonexistent");
    assert_said(host);
    ck_assert_int_eq(error.phase, PQTX_PHASE_CONNECT);
}
END_TEST

/* ---- a connection of the caller's own */

/* Begins a transaction on a connection to these hosts, made while nobody was at the silent one,
 * whose COMMIT gets no answer. */
static void lose_commit(struct fake_trial *trial, const char *first, const char *second)
{
    char away[64];
    fake_trial_begin(trial);
    snprintf(away, sizeof away, "%s.away", silent->host);
    ck_assert_int_eq(rename(silent->host, away), 0);
    snprintf(trial->fake->conninfo, sizeof trial->fake->conninfo,
             "host=%s,%s port=1 user=nobody dbname=nothing", first ? first : trial->fake->folder,
             second ? second : trial->fake->folder);
    trial->own = fake_connect(trial->fake);
    ck_assert_int_eq(rename(away, silent->host), 0);
    trial->options.in_doubt = PQTX_DOUBT_TOKEN;
    trial->options.deadline_ms = 10000;
    fake_on(trial->fake, "COMMIT", "close");
    fake_on(trial->fake, "SELECT void FROM", "columns void; row f; complete SELECT 1");
}

START_TEST(doubt_is_resolved_first_where_the_connection_led)
{
    struct fake_trial trial;
    lose_commit(&trial, silent->host, NULL);
    fake_trial_run(&trial);
    assert_status(trial.status, PQTX_OK, &trial.error);
    ck_assert_int_eq(silent_count(silent), 0);
    ck_assert_int_eq(trial.ended_us, trial.began_us);
    fake_trial_end(&trial);
}
END_TEST

START_TEST(doubt_is_resolved_at_another_host_if_that_one_is_silent)
{
    struct fake_trial trial;
    lose_commit(&trial, NULL, NULL);
    fake_on(trial.fake, STARTUP, "mute");
    fake_trial_run(&trial);
    assert_status(trial.status, PQTX_OK, &trial.error);
    ck_assert_int_gt(trial.ended_us, trial.began_us);
    fake_trial_end(&trial);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("fake_hosts");
    TCase *tcase = tcase_create("hosts");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    ADD(tcase, a_silent_host_has_its_part_of_the_time);
    ADD(tcase, where_all_are_silent_the_time_is_kept);
    tcase_add_test(tcase, a_deadline_is_shared_as_well);
    tcase_add_test(tcase, an_address_that_is_silent_has_its_part_of_the_time);
    tcase_add_test(tcase, an_address_that_swallows_what_comes_has_its_part_of_the_time);
    tcase_add_loop_test(tcase, the_next_connection_begins_where_the_last_one_was_made, 0, 2);
    tcase_add_loop_test(tcase, where_any_will_do_a_host_that_said_no_is_asked_again, 0, 2);
    tcase_add_test(tcase, where_the_last_one_was_made_is_silence_now_the_others_are_tried);
    tcase_add_test(tcase, with_load_balance_hosts_each_connection_draws_anew);
    ADD(tcase, a_refusal_for_good_ends_the_search);
    ADD(tcase, a_refusal_for_now_leads_to_the_next_host);
    tcase_add_loop_test(tcase, a_connection_that_ends_before_it_is_of_use_leads_to_the_next_host, 0,
                        2);
    ADD(tcase, the_server_that_is_asked_for_is_found);
    tcase_add_test(tcase, of_one_host_libpq_asks_the_same);
    ADD(tcase, the_failure_that_tells_most_is_told);
    tcase_add_test(tcase, doubt_is_resolved_first_where_the_connection_led);
    tcase_add_test(tcase, doubt_is_resolved_at_another_host_if_that_one_is_silent);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
