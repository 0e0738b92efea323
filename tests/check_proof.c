/* check_proof.c: what rides with a transaction so that its outcome can be proved. */
#include "options.h"
#include "proof.h"
#include "support.h"

#include <stdlib.h>
#include <string.h>

static struct pqtx__proof proof;

/* Fills the proof by these options, with their defaults put in; why not, or NULL. */
static const char *init(const pqtx_options *given)
{
    const char *why;
    pqtx_options options;
    memset(&proof, 0, sizeof proof);
    ck_assert_int_eq(pqtx__options_read(&options, given, &why), PQTX_OK);
    pqtx__proof_init(&proof, &options, &why);
    return why;
}

static void release(void)
{
    pqtx__proof_free(&proof);
    memset(&proof, 0, sizeof proof);
}

static bool is_taken(const pqtx_options *options)
{
    bool taken = !init(options);
    release();
    return taken;
}

/* ---- The schema's name: what is not plain never reaches a statement */

START_TEST(a_plain_name_is_taken_as_it_is)
{
    static const char *const plain[] = {
        "public", "p", "_", "Mixed_Case_9",
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789"};
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++)
        ck_assert_str_eq(pqtx__once_schema(plain[i]), plain[i]);
    ck_assert_str_eq(pqtx__once_schema(NULL), "public");
}
END_TEST

START_TEST(any_other_name_is_refused)
{
    static const char *const others[] = {
        "",
        " ",
        "1a",
        "a b",
        "a.b",
        "a\"b",
        "\"a\"",
        "a'b",
        "a;b",
        "a-b",
        "a$b",
        "a\n",
        "a\\",
        "%s",
        "p\303\274blic",
        "\x83\x5c",
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_01234567890"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        pqtx_options options = PQTX_OPTIONS;
        options.once_schema = others[i];
        ck_assert_ptr_null(pqtx__once_schema(others[i]));
        ck_assert_msg(!is_taken(&options), "it was taken: %s", others[i]);
    }
}
END_TEST

START_TEST(each_byte_is_plain_or_not)
{
    for (int byte = 1; byte < 256; byte++) {
        char first[2] = {(char)byte, '\0'}, second[3] = {'a', (char)byte, '\0'};
        bool digit = byte >= '0' && byte <= '9';
        bool letter = (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || byte == '_';
        ck_assert_int_eq(pqtx__once_schema(first) != NULL, letter);
        ck_assert_int_eq(pqtx__once_schema(second) != NULL, letter || digit);
    }
}
END_TEST

/* ---- The event */

START_TEST(an_id_has_1_to_200_bytes)
{
    char id[202];
    pqtx_options options = PQTX_OPTIONS;
    options.event_id = id;
    for (size_t len = 0; len <= 201; len++) {
        memset(id, 'x', len);
        id[len] = '\0';
        ck_assert_int_eq(is_taken(&options), len >= 1 && len <= 200);
    }
}
END_TEST

START_TEST(a_fingerprint_has_up_to_1024_bytes)
{
    char fingerprint[1025] = "";
    pqtx_options options = PQTX_OPTIONS;
    options.event_id = "event";
    options.fingerprint = fingerprint;
    for (size_t len = 0; len <= 1025; len++) {
        options.fingerprint_len = len;
        ck_assert_int_eq(is_taken(&options), len <= 1024);
    }
}
END_TEST

START_TEST(id_and_fingerprint_are_copied)
{
    char id[] = "event", fingerprint[] = {1, 0, 2};
    pqtx_options options = PQTX_OPTIONS;
    options.event_id = id;
    options.fingerprint = fingerprint;
    options.fingerprint_len = sizeof fingerprint;
    ck_assert_ptr_null(init(&options));
    memset(id, 'x', sizeof id);
    memset(fingerprint, 'x', sizeof fingerprint);
    ck_assert_str_eq(proof.event_id, "event");
    ck_assert_uint_eq(proof.fingerprint_len, 3);
    ck_assert_mem_eq(proof.fingerprint, "\1\0\2", 3);
    release();
}
END_TEST

START_TEST(no_fingerprint_and_an_empty_one_are_two_things)
{
    pqtx_options options = PQTX_OPTIONS;
    options.event_id = "event";
    ck_assert_ptr_null(init(&options));
    ck_assert_ptr_null(proof.fingerprint);
    release();
    options.fingerprint = "";
    ck_assert_ptr_null(init(&options));
    ck_assert_ptr_nonnull(proof.fingerprint);
    release();
}
END_TEST

/* ---- The token */

START_TEST(each_attempt_has_a_token_of_its_own)
{
    char tokens[100][PQTX__TOKEN_SIZE];
    pqtx_options options = PQTX_OPTIONS, read;
    const char *why;
    options.in_doubt = PQTX_DOUBT_TOKEN;
    ck_assert_ptr_null(init(&options));
    pqtx__options_read(&read, &options, &why);
    for (int i = 0; i < 100; i++) {
        pqtx__proof_begin(&proof, (uint32_t)i + 1);
        memcpy(tokens[i], proof.token, sizeof tokens[i]);
        ck_assert_uint_eq(strspn(tokens[i], "0123456789abcdef"), 32);
        for (int j = 0; j < i; j++)
            ck_assert_str_ne(tokens[i], tokens[j]);
    }
    release();
}
END_TEST

static uint64_t always_one(void *arg)
{
    (void)arg;
    return 1;
}

static int64_t no_time(void *arg)
{
    (void)arg;
    return 0;
}

static int no_wait(void *arg, int fd, int events, int64_t timeout_us)
{
    (void)arg;
    (void)fd;
    (void)timeout_us;
    return events;
}

/* Numbers for jitter may repeat; two transactions with one token would prove each other's outcome.
 */
START_TEST(a_token_does_not_come_from_the_clock)
{
    const pqtx_clock clock = {sizeof clock, NULL, no_time, no_wait, always_one};
    pqtx_options options = PQTX_OPTIONS;
    char token[PQTX__TOKEN_SIZE];
    options.in_doubt = PQTX_DOUBT_TOKEN;
    options.clock = &clock;
    ck_assert_ptr_null(init(&options));
    pqtx__proof_begin(&proof, 1);
    memcpy(token, proof.token, sizeof token);
    ck_assert_str_ne(token, proof.run);
    release();
    ck_assert_ptr_null(init(&options));
    pqtx__proof_begin(&proof, 1);
    ck_assert_str_ne(token, proof.token);
    release();
}
END_TEST

START_TEST(two_runs_of_an_event_are_told_apart)
{
    char run[PQTX__TOKEN_SIZE];
    pqtx_options options = PQTX_OPTIONS;
    options.event_id = "event";
    ck_assert_ptr_null(init(&options));
    memcpy(run, proof.run, sizeof run);
    release();
    ck_assert_ptr_null(init(&options));
    ck_assert_str_ne(run, proof.run);
    release();
}
END_TEST

START_TEST(a_new_attempt_forgets_the_answer_of_the_one_before)
{
    pqtx_options options = PQTX_OPTIONS, read;
    const char *why;
    options.event_id = "event";
    ck_assert_ptr_null(init(&options));
    pqtx__options_read(&read, &options, &why);
    proof.answer = malloc(3);
    proof.answer_len = 3;
    pqtx__proof_begin(&proof, 1);
    ck_assert_ptr_null(proof.answer);
    ck_assert_uint_eq(proof.answer_len, 0);
    release();
}
END_TEST

/* ---- The xid */

/* What the server says to the question; NULL for an SQL NULL. */
static PGresult *answer(const char *xid, const char *system_identifier, const char *timeline)
{
    static char names[4][4] = {"a", "b", "c", "d"};
    const char *values[] = {xid, system_identifier, timeline, xid ? "1700000000000000" : NULL};
    PGresAttDesc columns[4] = {{0}};
    PGresult *result = PQmakeEmptyPGresult(NULL, PGRES_TUPLES_OK);
    ck_assert_ptr_nonnull(result);
    for (int i = 0; i < 4; i++)
        columns[i].name = names[i];
    ck_assert(PQsetResultAttrs(result, 4, columns));
    for (int i = 0; i < 4; i++) {
        char text[40];
        snprintf(text, sizeof text, "%s", values[i] ? values[i] : "");
        ck_assert(PQsetvalue(result, 0, i, text, values[i] ? (int)strlen(text) : -1));
    }
    return result;
}

static void begin_by_xid(void)
{
    const char *why;
    pqtx_options options = PQTX_OPTIONS, read;
    options.in_doubt = PQTX_DOUBT_XID;
    ck_assert_ptr_null(init(&options));
    pqtx__options_read(&read, &options, &why);
    pqtx__proof_begin(&proof, 1);
}

static void heed(PGresult *result)
{
    pqtx__proof_heed_xid(&proof, result);
    PQclear(result);
}

START_TEST(it_is_asked_for_until_there_is_one)
{
    begin_by_xid();
    ck_assert(pqtx__proof_rides(&proof));
    heed(answer(NULL, NULL, NULL));
    ck_assert(proof.xid_heard);
    ck_assert(pqtx__proof_rides(&proof));
    heed(answer("4294967999", "18446744073709551615", "0000000A"));
    ck_assert(!pqtx__proof_rides(&proof));
    ck_assert_uint_eq(proof.xid, 4294967999);
    ck_assert_uint_eq(proof.system_identifier, UINT64_MAX);
    ck_assert_int_eq(proof.timeline, 10);
    release();
}
END_TEST

/* Only the server's own word is proof that nothing was written. */
START_TEST(no_answer_is_no_word)
{
    begin_by_xid();
    ck_assert(!proof.xid_heard);
    heed(NULL);
    ck_assert(!proof.xid_heard);
    heed(answer(NULL, NULL, NULL));
    ck_assert(proof.xid_heard);
    heed(PQmakeEmptyPGresult(NULL, PGRES_FATAL_ERROR));
    ck_assert(!proof.xid_heard);
    release();
}
END_TEST

START_TEST(a_new_attempt_asks_anew)
{
    const char *why;
    pqtx_options read;
    begin_by_xid();
    heed(answer("700", "1", "00000001"));
    pqtx__options_read(&read, NULL, &why);
    pqtx__proof_begin(&proof, 1);
    ck_assert(!proof.xid_heard);
    ck_assert(pqtx__proof_rides(&proof));
    release();
}
END_TEST

START_TEST(it_is_not_asked_for_in_vain)
{
    static const pqtx_doubt kinds[] = {PQTX_DOUBT_DEFAULT, PQTX_DOUBT_REPORT, PQTX_DOUBT_TOKEN};
    for (size_t i = 0; i < 3; i++) {
        pqtx_options options = PQTX_OPTIONS;
        options.in_doubt = kinds[i];
        ck_assert_ptr_null(init(&options));
        ck_assert(!pqtx__proof_rides(&proof));
        release();
    }
}
END_TEST

/* ---- The ticket */

START_TEST(a_ticket_holds_what_its_kind_needs)
{
    pqtx_ticket ticket = PQTX_TICKET;
    begin_by_xid();
    ck_assert_int_eq(pqtx__proof_ticket(&proof, &ticket), PQTX_NOT_FOUND);
    heed(answer("700", "71", "00000002"));
    ck_assert_int_eq(pqtx__proof_ticket(&proof, &ticket), PQTX_OK);
    ck_assert_uint_eq(ticket.size, sizeof ticket);
    ck_assert_int_eq(ticket.by, PQTX_DOUBT_XID);
    ck_assert_uint_eq(ticket.xid, 700);
    ck_assert_uint_eq(ticket.system_identifier, 71);
    ck_assert_int_eq(ticket.timeline, 2);
    ck_assert_str_eq(ticket.token, "");
    release();

    const char *why;
    pqtx_options options = PQTX_OPTIONS, read;
    options.in_doubt = PQTX_DOUBT_TOKEN;
    options.once_schema = "Other";
    ck_assert_ptr_null(init(&options));
    pqtx__options_read(&read, &options, &why);
    pqtx__proof_begin(&proof, 1);
    ck_assert_int_eq(pqtx__proof_ticket(&proof, &ticket), PQTX_OK);
    ck_assert_int_eq(ticket.by, PQTX_DOUBT_TOKEN);
    ck_assert_str_eq(ticket.token, proof.token);
    ck_assert_str_eq(ticket.schema, "Other");
    ck_assert_uint_eq(ticket.xid, 0);
    release();
}
END_TEST

START_TEST(without_a_kind_there_is_nothing_to_resolve_by)
{
    pqtx_ticket ticket = PQTX_TICKET;
    ck_assert_ptr_null(init(NULL));
    ck_assert_int_eq(pqtx__proof_ticket(&proof, &ticket), PQTX_NOT_FOUND);
    ck_assert_int_eq(ticket.by, PQTX_DOUBT_REPORT);
    release();
}
END_TEST

static Suite *suite(void)
{
    Suite *suite = suite_create("proof");
    TCase *tests = tcase_create("proof");
    tcase_add_test(tests, a_plain_name_is_taken_as_it_is);
    tcase_add_test(tests, any_other_name_is_refused);
    tcase_add_test(tests, each_byte_is_plain_or_not);
    tcase_add_test(tests, an_id_has_1_to_200_bytes);
    tcase_add_test(tests, a_fingerprint_has_up_to_1024_bytes);
    tcase_add_test(tests, id_and_fingerprint_are_copied);
    tcase_add_test(tests, no_fingerprint_and_an_empty_one_are_two_things);
    tcase_add_test(tests, each_attempt_has_a_token_of_its_own);
    tcase_add_test(tests, a_token_does_not_come_from_the_clock);
    tcase_add_test(tests, two_runs_of_an_event_are_told_apart);
    tcase_add_test(tests, a_new_attempt_forgets_the_answer_of_the_one_before);
    tcase_add_test(tests, it_is_asked_for_until_there_is_one);
    tcase_add_test(tests, no_answer_is_no_word);
    tcase_add_test(tests, a_new_attempt_asks_anew);
    tcase_add_test(tests, it_is_not_asked_for_in_vain);
    tcase_add_test(tests, a_ticket_holds_what_its_kind_needs);
    tcase_add_test(tests, without_a_kind_there_is_nothing_to_resolve_by);
    suite_add_tcase(suite, tests);
    return suite;
}

int main(void)
{
    return run_suite(suite());
}
