/* support.h: what the tests share: sessions on the test server, statuses that explain themselves.
 */
#ifndef PQTX_TESTS_SUPPORT_H
#define PQTX_TESTS_SUPPORT_H

#include <pqtx.h>

#include <check.h>
#include <libpq-fe.h>
#include <stdbool.h>

/* The server of PQTX_TEST_CONNINFO, with `schema`, dropped and made anew, first in search_path.
 * Static text: one schema per test process. */
const char *fresh_schema(const char *schema);
const char *test_conninfo(void);

/* The same, but under tests/with-pooler through the pooler, which gives a connection to the server
 * to one transaction at a time: the way of whatever the library runs on. */
const char *pool_conninfo(void);
bool is_pooled(void);

/* The step of a test that goes through all cases: behind a pooler some of them will do. */
unsigned step_of_cases(void);

/* A pool, a plain libpq session beside it, which talks to the server itself, and one for
 * pqtx_run_on(), which goes the pool's way; the test fails if there is none. */
pqtx_pool *open_pool(int max_count);
PGconn *open_session(void);
PGconn *open_own(void);

/* Runs SQL on a plain session; the test fails if the server does not like it. */
void sql(PGconn *session, const char *statement);

/* The first column of the first row, as text (static, overwritten by the next call) or a number. */
const char *ask(PGconn *session, const char *query);
int64_t ask_int(PGconn *session, const char *query);

/* Asks the server until the backend waits for a lock (or, until it does not); fails after a
 * generous while. */
void wait_until_blocked(PGconn *monitor, int backend_pid);

/* A backend that waits for this one, which must be no pooler's client; asks until there is one. */
int wait_for_blocked(PGconn *monitor, int holder_pid);

/* Asks until the query, of one boolean, answers true. */
void wait_until_true(PGconn *monitor, const char *query);

/* Sends without waiting, and later takes the result's SQLSTATE ("" for success; static text). */
void start_sql(PGconn *session, const char *statement);
const char *finish_sql(PGconn *session);

/* A failure says both names, and what the error holds. */
void assert_status_at(const char *file, int line, pqtx_status actual, pqtx_status expected,
                      const pqtx_error *error);
#define assert_status(actual, expected, error)                                                     \
    assert_status_at(__FILE__, __LINE__, actual, expected, error)

/* Adds a test that cannot work behind a pooler: there it is left out, and the reason said. */
#define add_direct_loop_test(tcase, test, first, end, reason)                                      \
    do {                                                                                           \
        if (!is_left_out(#test, reason))                                                           \
            tcase_add_loop_test(tcase, test, first, end);                                          \
    } while (0)
#define add_direct_test(tcase, test, reason) add_direct_loop_test(tcase, test, 0, 1, reason)
bool is_left_out(const char *test, const char *reason);

/* Reasons. */
#define INVENTED_PID                                                                               \
    "the pooler invents the backend's number: it can be neither cancelled nor ended"
#define ANY_SESSION   "the pooler lends any of its sessions: a backend does not tell the connection"
#define SESSION_STATE "what is set for a session stays in it, and the pooler lends it to others"
#define NO_OPTIONS    "the pooler takes no settings from its clients"

/* Runs the suite as Check does, and returns main()'s status.  Live suites fork for each test, so a
 * connection must be opened inside the test that uses it. */
int run_suite(Suite *suite);

#endif
