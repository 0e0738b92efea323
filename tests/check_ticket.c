/* check_ticket.c: a ticket as one line of text, and back. */
#include "support.h"

#include <stdlib.h>
#include <string.h>

#define TOKEN   "0123456789abcdef0123456789abcdef"
#define NAME_63 "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789"

static pqtx_ticket by_token(const char *schema, const char *token)
{
    pqtx_ticket ticket = PQTX_TICKET;
    ticket.by = PQTX_DOUBT_TOKEN;
    strncpy(ticket.schema, schema, sizeof ticket.schema - 1);
    strncpy(ticket.token, token, sizeof ticket.token - 1);
    return ticket;
}

static pqtx_ticket by_xid(uint64_t system_identifier, int32_t timeline, uint64_t xid, int64_t era)
{
    pqtx_ticket ticket = PQTX_TICKET;
    ticket.by = PQTX_DOUBT_XID;
    ticket.system_identifier = system_identifier;
    ticket.timeline = timeline;
    ticket.xid = xid;
    ticket.era = era;
    return ticket;
}

static void assert_same(const pqtx_ticket *actual, const pqtx_ticket *expected)
{
    ck_assert_uint_eq(actual->size, expected->size);
    ck_assert_int_eq(actual->by, expected->by);
    ck_assert_int_eq(actual->timeline, expected->timeline);
    ck_assert_uint_eq(actual->system_identifier, expected->system_identifier);
    ck_assert_uint_eq(actual->xid, expected->xid);
    ck_assert_int_eq(actual->era, expected->era);
    ck_assert_str_eq(actual->token, expected->token);
    ck_assert_str_eq(actual->schema, expected->schema);
}

static void assert_round_trip(const pqtx_ticket *ticket, const char *expected)
{
    char text[PQTX_TICKET_TEXT];
    pqtx_ticket read = PQTX_TICKET;
    ck_assert_int_eq(pqtx_ticket_format(ticket, text, sizeof text), PQTX_OK);
    ck_assert_str_eq(text, expected);
    ck_assert_int_eq(pqtx_ticket_parse(text, &read), PQTX_OK);
    assert_same(&read, ticket);
}

START_TEST(a_token_comes_back_as_it_was)
{
    pqtx_ticket plain = by_token("public", TOKEN), longest = by_token(NAME_63, TOKEN);
    pqtx_ticket mixed = by_token("_Mixed_1", "ffffffffffffffffffffffffffffffff");
    assert_round_trip(&plain, "pqtx1 token public " TOKEN);
    assert_round_trip(&longest, "pqtx1 token " NAME_63 " " TOKEN);
    assert_round_trip(&mixed, "pqtx1 token _Mixed_1 ffffffffffffffffffffffffffffffff");
}
END_TEST

START_TEST(an_xid_comes_back_as_it_was)
{
    pqtx_ticket plain = by_xid(7300000000000000001, 1, 735, 1700000000000000);
    pqtx_ticket largest = by_xid(UINT64_MAX, INT32_MAX, UINT64_MAX, INT64_MAX);
    assert_round_trip(&plain, "pqtx1 xid 7300000000000000001 1 735 1700000000000000");
    assert_round_trip(&largest, "pqtx1 xid 18446744073709551615 2147483647 18446744073709551615 "
                                "9223372036854775807");
}
END_TEST

/* What an editor or a shell leaves at the end of a line. */
START_TEST(white_space_at_the_end_is_no_part_of_it)
{
    static const char *const ends[] = {"\n", "\r\n", " ", "\t", " \n\n"};
    const pqtx_ticket token = by_token("public", TOKEN), xid = by_xid(1, 2, 3, 4);
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        char text[PQTX_TICKET_TEXT];
        pqtx_ticket read = PQTX_TICKET;
        snprintf(text, sizeof text, "pqtx1 token public " TOKEN "%s", ends[i]);
        ck_assert_int_eq(pqtx_ticket_parse(text, &read), PQTX_OK);
        assert_same(&read, &token);
        snprintf(text, sizeof text, "pqtx1 xid 1 2 3 4%s", ends[i]);
        read = (pqtx_ticket)PQTX_TICKET;
        ck_assert_int_eq(pqtx_ticket_parse(text, &read), PQTX_OK);
        assert_same(&read, &xid);
    }
}
END_TEST

/* ---- Texts that are none */

static const char *const malformed[] = {
    "",
    " ",
    "pqtx1",
    "token public " TOKEN,
    "pqtx2 token public " TOKEN,
    "pqtx token public " TOKEN,
    "PQTX1 token public " TOKEN,
    "pqtx1 Token public " TOKEN,
    "pqtx1 report public " TOKEN,
    " pqtx1 token public " TOKEN,
    "\npqtx1 token public " TOKEN,
    "pqtx1  token public " TOKEN,
    "pqtx1 token  public " TOKEN,
    "pqtx1 token public  " TOKEN,
    "pqtx1\ttoken public " TOKEN,
    "pqtx1 token\npublic " TOKEN,
    "pqtx1token public " TOKEN,
    "pqtx1 tokenpublic " TOKEN,
    "pqtx1 token " TOKEN,
    "pqtx1 token public",
    "pqtx1 token public " TOKEN "0",
    "pqtx1 token public 0123456789abcdef0123456789abcde",
    "pqtx1 token public 0123456789ABCDEF0123456789ABCDEF",
    "pqtx1 token public 0123456789abcdef0123456789abcdeg",
    "pqtx1 token public " TOKEN " more",
    "pqtx1 token public " TOKEN "\nmore",
    "pqtx1 token public " TOKEN " " TOKEN,
    "pqtx1 token pub\"lic " TOKEN,
    "pqtx1 token pub;lic " TOKEN,
    "pqtx1 token 1public " TOKEN,
    "pqtx1 token a.b " TOKEN,
    "pqtx1 token p\303\274blic " TOKEN,
    "pqtx1 token " NAME_63 "x " TOKEN,
    "pqtx1 token " NAME_63 TOKEN,
    "pqtx1 xid",
    "pqtx1 xid 1",
    "pqtx1 xid 1 2",
    "pqtx1 xid 1 2 ",
    "pqtx1 xid 1 2 x 4",
    "pqtx1 xid 1 2 3 4 4",
    "pqtx1 xid 1 2 3x 4",
    "pqtx1xid 1 2 3 4",
    "pqtx1 xid1 2 3 4",
    "pqtx1 xid 1  2 3 4",
    "pqtx1 xid\n1 2 3 4",
    "pqtx1 xid 1 2 0 4",
    "pqtx1 xid 1 0 3 4",
    "pqtx1 xid 1 -2 3 4",
    "pqtx1 xid -1 2 3 4",
    "pqtx1 xid 1 2 -3 4",
    "pqtx1 xid +1 2 3 4",
    "pqtx1 xid 1 +2 3 4",
    "pqtx1 xid 1 2 +3 4",
    "pqtx1 xid 0x1 2 3 4",
    "pqtx1 xid 1.0 2 3 4",
    "pqtx1 xid 1 2147483648 3 4",
    "pqtx1 xid 1 4294967297 3 4",
    "pqtx1 xid 18446744073709551616 2 3 4",
    "pqtx1 xid 1 2 18446744073709551616 4",
    "pqtx1 xid 1 2 99999999999999999999999999999999999999 4",
};

enum { MALFORMED = sizeof malformed / sizeof malformed[0] };

static void assert_no_ticket(const char *text)
{
    pqtx_ticket ticket = by_xid(4, 5, 6, 7), before = ticket;
    ck_assert_msg(pqtx_ticket_parse(text, &ticket) == PQTX_MISUSE, "it was taken: %s", text);
    ck_assert_mem_eq(&ticket, &before, sizeof ticket);
}

START_TEST(a_text_that_is_none_is_refused_and_changes_nothing)
{
    assert_no_ticket(malformed[_i]);
}
END_TEST

START_TEST(every_shorter_text_is_refused)
{
    static const char *const whole[] = {"pqtx1 token public " TOKEN, "pqtx1 xid 1 2 3 4"};
    for (size_t i = 0; i < 2; i++) {
        char text[PQTX_TICKET_TEXT];
        snprintf(text, sizeof text, "%s", whole[i]);
        for (size_t len = strlen(text); len-- > 0;) {
            text[len] = '\0';
            assert_no_ticket(text);
        }
    }
}
END_TEST

/* A changed byte either makes another good ticket, which says exactly what the text says, or none:
 * nothing is passed over. */
static void assert_says_the_same(const char *text)
{
    char written[PQTX_TICKET_TEXT];
    pqtx_ticket read = PQTX_TICKET;
    if (pqtx_ticket_parse(text, &read) != PQTX_OK)
        return;
    ck_assert_int_eq(pqtx_ticket_format(&read, written, sizeof written), PQTX_OK);
    size_t len = strlen(written);
    ck_assert_msg(strncmp(text, written, len) == 0 &&
                      text[len + strspn(text + len, " \t\r\n")] == 0,
                  "%s was read as %s", text, written);
}

START_TEST(no_changed_byte_is_passed_over)
{
    static const char *const whole[] = {"pqtx1 token public " TOKEN,
                                        "pqtx1 xid 7300000000000000001 1 735 1700000000000000"};
    for (size_t i = 0; i < 2; i++) {
        for (size_t at = 0; at < strlen(whole[i]); at++) {
            for (int byte = 1; byte < 256; byte++) {
                char text[PQTX_TICKET_TEXT];
                strcpy(text, whole[i]);
                text[at] = (char)byte;
                assert_says_the_same(text);
            }
        }
    }
}
END_TEST

/* ---- Tickets that are none */

START_TEST(a_ticket_with_nothing_to_resolve_by_has_no_text)
{
    static const pqtx_doubt kinds[] = {PQTX_DOUBT_DEFAULT, PQTX_DOUBT_REPORT, (pqtx_doubt)4,
                                       (pqtx_doubt)-1};
    char text[PQTX_TICKET_TEXT];
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        pqtx_ticket ticket = by_token("public", TOKEN);
        ticket.by = kinds[i];
        ck_assert_int_eq(pqtx_ticket_format(&ticket, text, sizeof text), PQTX_MISUSE);
    }
}
END_TEST

/* Half-filled ones: a text that is written can be read. */
START_TEST(what_is_written_can_be_read)
{
    const pqtx_ticket tickets[] = {by_token("public", ""),       by_token("", TOKEN),
                                   by_token("public", "00"),     by_token("a b", TOKEN),
                                   by_token("a\nb", TOKEN),      by_token("1a", TOKEN),
                                   by_xid(1, 1, 0, 1),           by_xid(1, 0, 1, 1),
                                   by_xid(1, -1, 1, 1),          by_token("public", TOKEN "00"),
                                   by_token("public", "A" TOKEN)};
    for (size_t i = 0; i < sizeof tickets / sizeof tickets[0]; i++) {
        char text[PQTX_TICKET_TEXT];
        pqtx_ticket read = PQTX_TICKET;
        if (pqtx_ticket_format(&tickets[i], text, sizeof text) == PQTX_OK)
            ck_assert_msg(pqtx_ticket_parse(text, &read) == PQTX_OK, "number %zu: %s", i, text);
    }
}
END_TEST

START_TEST(fields_without_an_end_are_not_read_beyond)
{
    char text[PQTX_TICKET_TEXT];
    pqtx_ticket ticket = by_token("public", TOKEN);
    memset(ticket.token, 'a', sizeof ticket.token);
    memset(ticket.schema, 'b', sizeof ticket.schema);
    if (pqtx_ticket_format(&ticket, text, sizeof text) == PQTX_OK)
        ck_assert_uint_lt(strlen(text), sizeof text);
}
END_TEST

START_TEST(a_buffer_that_is_too_short_is_refused_and_not_overrun)
{
    const pqtx_ticket tickets[] = {by_token("public", TOKEN), by_xid(UINT64_MAX, 1, UINT64_MAX, 1)};
    char text[PQTX_TICKET_TEXT];
    for (size_t i = 0; i < 2; i++) {
        ck_assert_int_eq(pqtx_ticket_format(&tickets[i], text, sizeof text), PQTX_OK);
        size_t whole = strlen(text) + 1;
        for (size_t size = 0; size <= whole; size++) {
            char *exact = malloc(size + 1);
            ck_assert_ptr_nonnull(exact);
            exact[size] = '#';
            ck_assert_int_eq(pqtx_ticket_format(&tickets[i], exact, size),
                             size == whole ? PQTX_OK : PQTX_MISUSE);
            ck_assert_int_eq(exact[size], '#');
            free(exact);
        }
    }
}
END_TEST

START_TEST(the_longest_text_fits)
{
    char text[PQTX_TICKET_TEXT];
    pqtx_ticket token = by_token(NAME_63, TOKEN);
    pqtx_ticket xid = by_xid(UINT64_MAX, INT32_MAX, UINT64_MAX, INT64_MAX);
    ck_assert_int_eq(pqtx_ticket_format(&token, text, sizeof text), PQTX_OK);
    ck_assert_int_eq(pqtx_ticket_format(&xid, text, sizeof text), PQTX_OK);
}
END_TEST

START_TEST(what_is_not_there_is_misuse)
{
    char text[PQTX_TICKET_TEXT];
    pqtx_ticket ticket = by_token("public", TOKEN), without_size = ticket;
    without_size.size = 0;
    ck_assert_int_eq(pqtx_ticket_format(NULL, text, sizeof text), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_ticket_format(&ticket, NULL, sizeof text), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_ticket_format(&without_size, text, sizeof text), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_ticket_parse(NULL, &ticket), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_ticket_parse("pqtx1 xid 1 2 3", NULL), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_ticket_parse("pqtx1 xid 1 2 3", &without_size), PQTX_MISUSE);
}
END_TEST

static Suite *suite(void)
{
    Suite *suite = suite_create("ticket");
    TCase *tests = tcase_create("ticket");
    tcase_add_test(tests, a_token_comes_back_as_it_was);
    tcase_add_test(tests, an_xid_comes_back_as_it_was);
    tcase_add_test(tests, white_space_at_the_end_is_no_part_of_it);
    tcase_add_loop_test(tests, a_text_that_is_none_is_refused_and_changes_nothing, 0, MALFORMED);
    tcase_add_test(tests, every_shorter_text_is_refused);
    tcase_add_test(tests, no_changed_byte_is_passed_over);
    tcase_add_test(tests, a_ticket_with_nothing_to_resolve_by_has_no_text);
    tcase_add_test(tests, what_is_written_can_be_read);
    tcase_add_test(tests, fields_without_an_end_are_not_read_beyond);
    tcase_add_test(tests, a_buffer_that_is_too_short_is_refused_and_not_overrun);
    tcase_add_test(tests, the_longest_text_fits);
    tcase_add_test(tests, what_is_not_there_is_misuse);
    suite_add_tcase(suite, tests);
    return suite;
}

int main(void)
{
    return run_suite(suite());
}
