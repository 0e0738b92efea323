/* check_hosts.c: the hosts of a connection string are taken apart as libpq does it. */
#define _DEFAULT_SOURCE
#include "clock.h"
#include "hosts.h"
#include "support.h"
#include "support_fake_clock.h"
#include "support_silent.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

static struct pqtx__hosts hosts;

static void forget_environment(void)
{
    static const char *const names[] = {"PGHOST",     "PGHOSTADDR",    "PGPORT",
                                        "PGSERVICE",  "PGSERVICEFILE", "PGTARGETSESSIONATTRS",
                                        "PGPASSFILE", "PGPASSWORD",    "PGCONNECT_TIMEOUT"};
    for (int i = 0; i < COUNT(names); i++)
        unsetenv(names[i]);
}

static void free_hosts(void)
{
    pqtx__hosts_free(&hosts);
}

static const char *shown(const char *part)
{
    return part ? part : "-";
}

/* "host|hostaddr|port" of each, - where there is no list. */
static const char *spell(void)
{
    static char text[1024];
    text[0] = '\0';
    for (size_t i = 0; i < hosts.count && hosts.list; i++) {
        const char *const *part = hosts.list[i].part;
        size_t len = strlen(text);
        snprintf(text + len, sizeof text - len, "%s%s|%s|%s", i ? " " : "", shown(part[0]),
                 shown(part[1]), shown(part[2]));
    }
    return text;
}

/* ---- taken apart */

static const struct {
    const char *lists[PQTX__PARTS], *spelt;
} lists_are_taken_apart_table[] = {
    {{NULL, NULL, NULL}, ""},
    {{"", "", ""}, ""},
    {{"a", NULL, "1"}, ""},
    {{"a", "1.1.1.1", "1"}, ""},
    {{"a,b", NULL, NULL}, "a|-|- b|-|-"},
    {{"a,b", NULL, "1"}, "a|-|1 b|-|1"},
    {{"a,b", NULL, "1,2"}, "a|-|1 b|-|2"},
    {{"a,b", NULL, "1,"}, "a|-|1 b|-|"},
    {{"a,b", NULL, ","}, "a|-| b|-|"},
    {{"a,b", "", ""}, "a|-|- b|-|-"},
    {{",", NULL, "1"}, "|-|1 |-|1"},
    {{"a,,c", NULL, "1"}, "a|-|1 |-|1 c|-|1"},
    {{"/x,[::1],b", NULL, "1,2,3"}, "/x|-|1 [::1]|-|2 b|-|3"},
    {{" a, b", NULL, "1"}, " a|-|1  b|-|1"},
    {{NULL, "1.1.1.1,::1", "1"}, "-|1.1.1.1|1 -|::1|1"},
    {{"", "1.1.1.1,::1", "1"}, "-|1.1.1.1|1 -|::1|1"},
    {{"a,b", "1.1.1.1,", "1"}, "a|1.1.1.1|1 b||1"},
    {{",", "1.1.1.1,2.2.2.2", "1,2"}, "|1.1.1.1|1 |2.2.2.2|2"},
    {{"a,b,c", "1.1.1.1,2.2.2.2,3.3.3.3", "1"}, "a|1.1.1.1|1 b|2.2.2.2|1 c|3.3.3.3|1"},
};

START_TEST(lists_are_taken_apart)
{
    ck_assert(pqtx__hosts_split(&hosts, lists_are_taken_apart_table[_i].lists));
    ck_assert_str_eq(spell(), lists_are_taken_apart_table[_i].spelt);
}
END_TEST

static const char *const lists_that_do_not_match_are_left_to_libpq_table[] = {
    "host=a,b port=1,2,3",
    "host=a,b,c port=1,2",
    "host=a port=1,2",
    "hostaddr=127.0.0.1 port=1,2",
    "port=1,2",
    "host='' port=1,2",
    "host=a,b hostaddr=127.0.0.1",
    "host=a hostaddr=127.0.0.1,127.0.0.1",
    "host=a,b hostaddr=127.0.0.1,127.0.0.1,127.0.0.1",
    "postgresql://a:1,b:2/?port=5",
};

/* Where both have an error of their own, it is the same. */
START_TEST(lists_that_do_not_match_are_left_to_libpq)
{
    const char *conninfo = lists_that_do_not_match_are_left_to_libpq_table[_i];
    ck_assert(pqtx__hosts_read(&hosts, conninfo));
    if (strstr(conninfo, "://")) { /* the later port is that of all */
        ck_assert_str_eq(spell(), "a|-|5 b|-|5");
        return;
    }
    ck_assert_uint_eq(hosts.count, 1);
    ck_assert_ptr_null(hosts.list);
    PGconn *ours = pqtx__hosts_start(&hosts, NULL, NULL), *theirs = PQconnectStart(conninfo);
    ck_assert_int_eq(PQstatus(theirs), CONNECTION_BAD);
    ck_assert_str_eq(PQerrorMessage(ours), PQerrorMessage(theirs));
    PQfinish(ours);
    PQfinish(theirs);
}
END_TEST

/* ---- where they come from */

START_TEST(the_string_counts_more_than_the_environment)
{
    static const char *const cases[][2] = {
        {"", "e|-|7 f|-|7"},
        {"port=8", "e|-|8 f|-|8"},
        {"host=a,b", "a|-|7 b|-|7"},
        {"host=a", ""},
        {"hostaddr=1.1.1.1,2.2.2.2", "e|1.1.1.1|7 f|2.2.2.2|7"},
        {"postgresql://a:1,b:2/", "a|-|1 b|-|2"},
        {"postgresql://a:1,b/", "a|-|1 b|-|"},
        {"postgres://%2Fx,[::1]:2/", "/x|-| ::1|-|2"},
        {"postgresql:///", "e|-|7 f|-|7"},
    };
    setenv("PGHOST", "e,f", 1);
    setenv("PGPORT", "7", 1);
    ck_assert(pqtx__hosts_read(&hosts, cases[_i][0]));
    ck_assert_str_eq(spell(), cases[_i][1]);
}
END_TEST

static void write_file(char *path, mode_t mode, const char *text)
{
    strcpy(path, "/tmp/pqtx-hosts.XXXXXX");
    int fd = mkstemp(path);
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    ck_assert_int_eq(fchmod(fd, mode), 0);
    close(fd);
}

START_TEST(a_service_file_can_name_them)
{
    char path[32];
    write_file(path, 0600,
               "[pair]\nhost=s,t\nport=3,4\ntarget_session_attrs=prefer-standby\n"
               "connect_timeout=6\n[other]\nhost=u\n");
    setenv("PGSERVICEFILE", path, 1);
    setenv("PGHOST", "e,f,g", 1);
    ck_assert(pqtx__hosts_read(&hosts, "service=pair"));
    ck_assert_str_eq(spell(), "s|-|3 t|-|4");
    ck_assert(hosts.prefers_standby);
    ck_assert_int_eq(hosts.timeout_us, 6000000);
    pqtx__hosts_free(&hosts);
    ck_assert(pqtx__hosts_read(&hosts, "service=other"));
    ck_assert_ptr_null(hosts.list);
    pqtx__hosts_free(&hosts);
    setenv("PGSERVICE", "pair", 1);
    ck_assert(pqtx__hosts_read(&hosts, "port=5"));
    ck_assert_str_eq(spell(), "s|-|5 t|-|5");
    pqtx__hosts_free(&hosts);
    ck_assert(pqtx__hosts_read(&hosts, "service=none_of_them"));
    ck_assert_ptr_null(hosts.list);
    unlink(path);
}
END_TEST

static const struct {
    const char *conninfo;
    int64_t timeout_us;
} the_timeout_is_in_seconds_table[] = {
    {"", 0},
    {"connect_timeout=0", 0},
    {"connect_timeout=-1", 0},
    {"connect_timeout=1", 1000000},
    {"connect_timeout=' 12 '", 12000000},
    {"connect_timeout=99999999999999999999", 0},
    {"connect_timeout=soon", 0},
};

START_TEST(the_timeout_is_in_seconds)
{
    ck_assert(pqtx__hosts_read(&hosts, the_timeout_is_in_seconds_table[_i].conninfo));
    ck_assert_int_eq(hosts.timeout_us, the_timeout_is_in_seconds_table[_i].timeout_us);
}
END_TEST

/* ---- led there */

static PGconn *start(size_t i)
{
    ck_assert_uint_lt(i, hosts.count);
    ck_assert_ptr_nonnull(hosts.list);
    return pqtx__hosts_start(&hosts, &hosts.list[i], NULL);
}

static void assert_leads(size_t i, const char *host, const char *port)
{
    PGconn *conn = start(i);
    ck_assert_str_eq(PQhost(conn), host);
    ck_assert_str_eq(PQport(conn), port);
    PQfinish(conn);
}

START_TEST(each_host_is_led_to_alone)
{
    ck_assert(pqtx__hosts_read(&hosts, "host=/nonexistent/a,/nonexistent/b port=1,2 user=me"));
    assert_leads(0, "/nonexistent/a", "1");
    assert_leads(1, "/nonexistent/b", "2");
}
END_TEST

START_TEST(an_address_is_led_to_under_its_name)
{
    ck_assert(pqtx__hosts_read(&hosts, "host=x.invalid,,/nonexistent/c"
                                       " hostaddr=127.0.0.1,127.0.0.2, port=1 user=me"));
    assert_leads(0, "x.invalid", "1");
    assert_leads(1, "127.0.0.2", "1");
    assert_leads(2, "/nonexistent/c", "1");
    PGconn *conn = start(0);
    ck_assert_str_eq(PQhostaddr(conn), "127.0.0.1");
    PQfinish(conn);
}
END_TEST

/* What libpq tells of a host or port that is not named. */
static const char *default_host(void)
{
    static char host[256];
    PGconn *conn = PQconnectStart("host='' port=1 user=me");
    snprintf(host, sizeof host, "%s", PQhost(conn));
    PQfinish(conn);
    return host;
}

static const char *default_port(void)
{
    static char port[16];
    PGconn *conn = PQconnectStart("host=/nonexistent port='' user=me");
    snprintf(port, sizeof port, "%s", PQport(conn));
    PQfinish(conn);
    return port;
}

START_TEST(what_an_entry_leaves_out_is_not_taken_from_elsewhere)
{
    const char *by_default = default_host();
    setenv("PGHOST", "/nonexistent/env", 1);
    setenv("PGHOSTADDR", "127.0.0.9,", 1);
    setenv("PGPORT", "9", 1);
    ck_assert(pqtx__hosts_read(&hosts, "host=/nonexistent/a, hostaddr=, port=,2 user=me"));
    assert_leads(0, "/nonexistent/a", default_port());
    assert_leads(1, by_default, "2");
    pqtx__hosts_free(&hosts);
    ck_assert(pqtx__hosts_read(&hosts, "host=x.invalid,/nonexistent/b port=1 user=me"));
    assert_leads(0, "x.invalid", "1");
    assert_leads(1, "/nonexistent/b", "1");
}
END_TEST

START_TEST(each_host_has_its_password_of_the_file)
{
    char path[32], conninfo[256];
    write_file(path, 0600,
               "/nonexistent/a:1:*:me:of a\n/nonexistent/b:2:*:me:of b\n"
               "127.0.0.1:*:*:me:of the address\n");
    snprintf(conninfo, sizeof conninfo,
             "host=/nonexistent/a,/nonexistent/b, hostaddr=,,127.0.0.1 port=1,2,1 user=me "
             "passfile=%s",
             path);
    static const char *const passwords[] = {"of a", "of b", "of the address"};
    ck_assert(pqtx__hosts_read(&hosts, conninfo));
    for (size_t i = 0; i < 3; i++) {
        PGconn *conn = start(i);
        ck_assert_str_eq(PQpass(conn), passwords[i]);
        PQfinish(conn);
    }
    unlink(path);
}
END_TEST

static const char *setting(PGconn *conn, const char *keyword)
{
    static char value[256];
    PQconninfoOption *options = PQconninfo(conn), *o = options;
    while (strcmp(o->keyword, keyword) != 0)
        o++;
    snprintf(value, sizeof value, "%s", o->val ? o->val : "");
    PQconninfoFree(options);
    return value;
}

START_TEST(the_other_settings_stay)
{
    ck_assert(pqtx__hosts_read(&hosts, "host=/nonexistent/a,/nonexistent/b port=1 user=me"
                                       " password=it dbname=some options='-c a.b=c'"));
    PGconn *conn = pqtx__hosts_start(&hosts, &hosts.list[1], "standby");
    static const char *const expected[][2] = {{"user", "me"},
                                              {"password", "it"},
                                              {"dbname", "some"},
                                              {"options", "-c a.b=c"},
                                              {"fallback_application_name", "pqtx"},
                                              {"sslmode", "prefer"},
                                              {"target_session_attrs", "standby"}};
    for (int i = 0; i < COUNT(expected); i++)
        ck_assert_str_eq(setting(conn, expected[i][0]), expected[i][1]);
    PQfinish(conn);
}
END_TEST

START_TEST(a_connection_tells_where_it_may_be_made_again)
{
    setenv("PGHOST", "/nonexistent/env", 1);
    PGconn *conn = PQconnectStart("host=/nonexistent/a,/nonexistent/b, hostaddr=,, port=1,2,3"
                                  " user=me");
    ck_assert(pqtx__hosts_read_from(&hosts, conn));
    ck_assert_str_eq(spell(), "/nonexistent/a||1 /nonexistent/b||2 ||3");
    assert_leads(1, "/nonexistent/b", "2");
    PQfinish(conn);
}
END_TEST

/* While the first connection is made nobody is at the silent host; and its password is gone from
 * the file when the second one is. */
START_TEST(one_beside_another_leads_to_the_same_host)
{
    static const char *const others[] = {"", "hostaddr=,", "target_session_attrs=primary"};
    struct silent *first = silent_open(), *second = silent_open();
    char path[32], away[64], conninfo[256];
    write_file(path, 0600, "*:*:*:me:it\n");
    snprintf(conninfo, sizeof conninfo, "host=%s,%s port=1 user=me passfile=%s %s", first->host,
             second->host, path, others[_i]);
    snprintf(away, sizeof away, "%s.away", first->host);
    ck_assert_int_eq(rename(first->host, away), 0);
    PGconn *conn = PQconnectStart(conninfo);
    ck_assert_int_eq(rename(away, first->host), 0);
    unlink(path);
    ck_assert(pqtx__hosts_read_from(&hosts, conn));
    PGconn *beside = pqtx__hosts_start_beside(&hosts, conn);
    ck_assert_int_eq(silent_count(first), 0);
    ck_assert_int_eq(silent_count(second), 2);
    ck_assert_str_eq(PQhost(beside), second->host);
    ck_assert_str_eq(PQpass(beside), "it");
    ck_assert_str_eq(setting(beside, "target_session_attrs"), "any");
    if (_i != 1) /* only what would leave something empty is named twice */
        ck_assert_str_eq(setting(beside, "host"), second->host);
    PQfinish(beside);
    PQfinish(conn);
    silent_close(first);
    silent_close(second);
}
END_TEST

static const struct {
    const char *conninfo;
    size_t best;
} the_host_of_a_connection_is_where_to_begin_table[] = {
    {"host=/nonexistent/a,/nonexistent/b port=1", 1},
    {"host=/nonexistent/a,/nonexistent/a port=1,2", 1},
    {"host=/nonexistent/a,/nonexistent/b port=1,", 1},
    {"host=/nonexistent/a, hostaddr=,127.0.0.1 port=1", 1},
    {"host=/nonexistent/a port=1", 0},
};

START_TEST(the_host_of_a_connection_is_where_to_begin)
{
    PGconn *conn = PQconnectStart(the_host_of_a_connection_is_where_to_begin_table[_i].conninfo);
    ck_assert(pqtx__hosts_read_from(&hosts, conn));
    ck_assert_uint_eq(atomic_load(&hosts.best),
                      the_host_of_a_connection_is_where_to_begin_table[_i].best);
    PQfinish(conn);
}
END_TEST

/* ---- in order */

static const char *order_of(uint64_t random)
{
    static char text[16];
    struct fake_clock fake;
    fake_clock_init(&fake);
    fake.random = random;
    size_t *order = pqtx__hosts_order(&hosts, &fake.clock);
    for (size_t i = 0; i < hosts.count; i++)
        text[i] = (char)('a' + order[i]);
    text[hosts.count] = '\0';
    free(order);
    return text;
}

START_TEST(the_best_comes_first_and_the_others_as_they_stand)
{
    static const char *const orders[] = {"abcd", "bacd", "cabd", "dabc"};
    ck_assert(pqtx__hosts_read(&hosts, "host=a,b,c,d"));
    atomic_store(&hosts.best, (size_t)_i);
    ck_assert_str_eq(order_of(FAKE_HALF), orders[_i]);
}
END_TEST

START_TEST(at_random_any_can_be_the_first)
{
    bool was_first[4] = {false};
    ck_assert(pqtx__hosts_read(&hosts, "host=a,b,c,d"));
    hosts.at_random = true;
    for (uint64_t random = 0; random < 12; random++) {
        const char *order = order_of(random);
        for (char host = 'a'; host <= 'd'; host++)
            ck_assert_msg(strchr(order, host), "%s", order);
        was_first[order[0] - 'a'] = true;
    }
    for (int i = 0; i < 4; i++)
        ck_assert(was_first[i]);
}
END_TEST

START_TEST(the_string_says_whether_to_draw)
{
    static const char random[] = "host=a,b load_balance_hosts=random";
    PQconninfoOption *known = PQconninfoParse(random, NULL);
    ck_assert(pqtx__hosts_read(&hosts, random));
    ck_assert_int_eq(hosts.at_random, known != NULL); /* libpq 16 */
    ck_assert_int_eq(hosts.list != NULL, known != NULL);
    PQconninfoFree(known);
}
END_TEST

/* ---- shown */

static const struct {
    const char *conninfo;
    bool showable;
} a_host_that_may_be_a_piece_of_a_password_is_not_shown_table[] = {
    {"host=a,b password=x", true},
    {"postgresql://u:x@a,b/d", true},
    {"postgresql://a,b/d", true},
    {"host=a,b password=x@y", false},
    {"postgresql://u:x@y,z@a,b/d", false},
    {"postgresql://u:12,x/y@a,b/d", false},
    {"postgresql://a,b/d?password=x@y", false},
};

START_TEST(a_host_that_may_be_a_piece_of_a_password_is_not_shown)
{
    const char *conninfo = a_host_that_may_be_a_piece_of_a_password_is_not_shown_table[_i].conninfo;
    ck_assert(pqtx__hosts_read(&hosts, conninfo));
    ck_assert_int_eq(hosts.showable,
                     a_host_that_may_be_a_piece_of_a_password_is_not_shown_table[_i].showable);
}
END_TEST

#define ADD(tcase, test) tcase_add_loop_test(tcase, test, 0, COUNT(test##_table))

int main(void)
{
    Suite *suite = suite_create("hosts");
    TCase *tcase = tcase_create("hosts");
    tcase_add_checked_fixture(tcase, forget_environment, free_hosts);
    ADD(tcase, lists_are_taken_apart);
    ADD(tcase, lists_that_do_not_match_are_left_to_libpq);
    tcase_add_loop_test(tcase, the_string_counts_more_than_the_environment, 0, 9);
    tcase_add_test(tcase, a_service_file_can_name_them);
    ADD(tcase, the_timeout_is_in_seconds);
    tcase_add_test(tcase, each_host_is_led_to_alone);
    tcase_add_test(tcase, an_address_is_led_to_under_its_name);
    tcase_add_test(tcase, what_an_entry_leaves_out_is_not_taken_from_elsewhere);
    tcase_add_test(tcase, each_host_has_its_password_of_the_file);
    tcase_add_test(tcase, the_other_settings_stay);
    tcase_add_test(tcase, a_connection_tells_where_it_may_be_made_again);
    tcase_add_loop_test(tcase, one_beside_another_leads_to_the_same_host, 0, 3);
    ADD(tcase, the_host_of_a_connection_is_where_to_begin);
    tcase_add_loop_test(tcase, the_best_comes_first_and_the_others_as_they_stand, 0, 4);
    tcase_add_test(tcase, at_random_any_can_be_the_first);
    tcase_add_test(tcase, the_string_says_whether_to_draw);
    ADD(tcase, a_host_that_may_be_a_piece_of_a_password_is_not_shown);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
