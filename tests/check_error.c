/* check_error.c: what went wrong, copied out of results and to callers, and as one line. */
#include "error.h"
#include "status.h"
#include "support.h"
#include "support_header.h"
#include "support_random.h"
#include "support_reply.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (int)(sizeof(array) / sizeof((array)[0]))
#define SIZE_MIN     (offsetof(pqtx_error, sqlstate) + 8)

static pqtx_error error;

/* What was there before must not show through. */
static void spoil(void)
{
    memset(&error, 'z', sizeof error);
    error.size = sizeof error;
}

static bool is_filled(const void *from, size_t len, unsigned char with)
{
    const unsigned char *bytes = from;
    size_t i = 0;
    while (i < len && bytes[i] == with)
        i++;
    return i == len;
}

static bool is_printable(const char *text)
{
    while ((unsigned char)*text >= 0x20 && *text != 0x7f)
        text++;
    return *text == '\0';
}

/* ---- From a result */

static void read_fields(const struct field *fields)
{
    PGresult *result = result_of_error(fields);
    spoil();
    pqtx__error_from_result(&error, result, PQTX_PHASE_BODY);
    PQclear(result);
}

START_TEST(every_field_of_a_servers_error_is_kept)
{
    read_fields((const struct field[]){
        {PG_DIAG_SEVERITY, "FEHLER"},
        {PG_DIAG_SEVERITY_NONLOCALIZED, "ERROR"},
        {PG_DIAG_SQLSTATE, "23505"},
        {PG_DIAG_MESSAGE_PRIMARY, "a message"},
        {PG_DIAG_MESSAGE_DETAIL, "a detail"},
        {PG_DIAG_MESSAGE_HINT, "a hint"},
        {PG_DIAG_STATEMENT_POSITION, "15"},
        {PG_DIAG_INTERNAL_POSITION, "7"},
        {PG_DIAG_INTERNAL_QUERY, "an inner query"},
        {PG_DIAG_CONTEXT, "a context"},
        {PG_DIAG_SCHEMA_NAME, "a schema"},
        {PG_DIAG_TABLE_NAME, "a table"},
        {PG_DIAG_COLUMN_NAME, "a column"},
        {PG_DIAG_DATATYPE_NAME, "a type"},
        {PG_DIAG_CONSTRAINT_NAME, "a constraint"},
        {PG_DIAG_SOURCE_FILE, "nbtinsert.c"},
        {PG_DIAG_SOURCE_LINE, "664"},
        {PG_DIAG_SOURCE_FUNCTION, "_bt_check_unique"},
        {0},
    });
    ck_assert_uint_eq(error.size, sizeof error);
    ck_assert_int_eq(error.status, PQTX_DUPLICATE);
    ck_assert_int_eq(error.advice, PQTX_ADVICE_DECIDE);
    ck_assert_int_eq(error.phase, PQTX_PHASE_BODY);
    ck_assert_int_eq(error.origin, PQTX_ORIGIN_SERVER);
    ck_assert_uint_eq(error.flags, 0);
    ck_assert_str_eq(error.sqlstate, "23505");
    ck_assert_str_eq(error.severity, "ERROR");
    ck_assert_str_eq(error.message, "a message");
    ck_assert_str_eq(error.detail, "a detail");
    ck_assert_str_eq(error.hint, "a hint");
    ck_assert_int_eq(error.statement_position, 15);
    ck_assert_int_eq(error.internal_position, 7);
    ck_assert_str_eq(error.internal_query, "an inner query");
    ck_assert_str_eq(error.context, "a context");
    ck_assert_str_eq(error.schema_name, "a schema");
    ck_assert_str_eq(error.table_name, "a table");
    ck_assert_str_eq(error.column_name, "a column");
    ck_assert_str_eq(error.datatype_name, "a type");
    ck_assert_str_eq(error.constraint_name, "a constraint");
    ck_assert_str_eq(error.source_file, "nbtinsert.c");
    ck_assert_int_eq(error.source_line, 664);
    ck_assert_str_eq(error.source_function, "_bt_check_unique");
}
END_TEST

START_TEST(what_the_server_left_out_is_empty)
{
    read_fields(
        (const struct field[]){{PG_DIAG_SQLSTATE, "40001"}, {PG_DIAG_SOURCE_FUNCTION, "x"}, {0}});
    pqtx_error bare = PQTX_ERROR;
    bare.status = PQTX_SERIALIZATION;
    bare.advice = PQTX_ADVICE_AGAIN;
    bare.phase = PQTX_PHASE_BODY;
    bare.origin = PQTX_ORIGIN_SERVER;
    strcpy(bare.sqlstate, "40001");
    strcpy(bare.source_function, "x");
    ck_assert_mem_eq(&error, &bare, sizeof error);
}
END_TEST

START_TEST(an_error_without_a_source_function_is_a_poolers)
{
    read_fields((const struct field[]){{PG_DIAG_SEVERITY, "FATAL"},
                                       {PG_DIAG_SQLSTATE, "08P01"},
                                       {PG_DIAG_MESSAGE_PRIMARY, "server conn crashed?"},
                                       {0}});
    ck_assert_int_eq(error.origin, PQTX_ORIGIN_POOLER);
    ck_assert_int_eq(error.status, PQTX_NO_CONNECTION);
    ck_assert_str_eq(error.severity, "");
}
END_TEST

/* As when a statement has more or fewer parameters than it was given values: the connection is as
 * good as before, and the same again would fail again. */
START_TEST(a_protocol_violation_that_the_server_outlives_is_the_programs)
{
    read_fields((const struct field[]){
        {PG_DIAG_SEVERITY, "ERROR"},
        {PG_DIAG_SEVERITY_NONLOCALIZED, "ERROR"},
        {PG_DIAG_SQLSTATE, "08P01"},
        {PG_DIAG_MESSAGE_PRIMARY, "bind message supplies 0 parameters, but prepared statement "
                                  "\"\" requires 1"},
        {PG_DIAG_SOURCE_FUNCTION, "exec_bind_message"},
        {0}});
    ck_assert_int_eq(error.origin, PQTX_ORIGIN_SERVER);
    ck_assert_int_eq(error.advice, PQTX_ADVICE_FIX);
    ck_assert_msg(!pqtx_is_retryable(error.status), "%s", pqtx_status_name(error.status));
}
END_TEST

START_TEST(an_error_is_no_success_whatever_its_code)
{
    static const char *const codes[] = {"00000", "01000", "02000"};
    for (int i = 0; i < COUNT(codes); i++) {
        read_fields((const struct field[]){
            {PG_DIAG_SQLSTATE, codes[i]}, {PG_DIAG_SOURCE_FUNCTION, "exec_stmt_raise"}, {0}});
        ck_assert_int_eq(error.status, PQTX_RAISED);
        ck_assert_int_eq(error.advice, PQTX_ADVICE_DECIDE);
        ck_assert_str_eq(error.sqlstate, codes[i]);
    }
}
END_TEST

START_TEST(a_cached_plan_that_must_change_is_a_stale_statement)
{
    const struct field stale[] = {
        {PG_DIAG_SQLSTATE, "0A000"}, {PG_DIAG_SOURCE_FUNCTION, "RevalidateCachedQuery"}, {0}};
    const struct field missing[] = {
        {PG_DIAG_SQLSTATE, "0A000"}, {PG_DIAG_SOURCE_FUNCTION, "transformInsertStmt"}, {0}};
    read_fields(stale);
    ck_assert_int_eq(error.status, PQTX_STALE_STATEMENT);
    ck_assert_int_eq(error.advice, PQTX_ADVICE_REPREPARE);
    read_fields(missing);
    ck_assert_int_eq(error.status, PQTX_BAD_STATEMENT);
    ck_assert_int_eq(error.advice, PQTX_ADVICE_FIX);
}
END_TEST

START_TEST(without_an_sqlstate_the_connection_is_gone)
{
    PGresult *empty = PQmakeEmptyPGresult(NULL, PGRES_FATAL_ERROR);
    const PGresult *const results[] = {empty, NULL};
    for (int i = 0; i < COUNT(results); i++) {
        spoil();
        pqtx__error_from_result(&error, results[i], PQTX_PHASE_COMMIT);
        ck_assert_int_eq(error.status, PQTX_NO_CONNECTION);
        ck_assert_int_eq(error.advice, PQTX_ADVICE_RECONNECT);
        ck_assert_int_eq(error.origin, PQTX_ORIGIN_LIBPQ);
        ck_assert_int_eq(error.phase, PQTX_PHASE_COMMIT);
        ck_assert_str_eq(error.sqlstate, "");
        ck_assert_str_eq(error.severity, "");
        ck_assert_int_ne(error.message[0], '\0');
        ck_assert_ptr_null(strchr(error.message, '\n'));
    }
    PQclear(empty);
}
END_TEST

/* ---- Texts that are too long */

static void read_text(char code, const char *text)
{
    read_fields((const struct field[]){
        {PG_DIAG_SQLSTATE, "P0001"}, {PG_DIAG_SOURCE_FUNCTION, "f"}, {code, text}, {0}});
}

START_TEST(a_text_that_just_fits_is_whole)
{
    char name[64], message[sizeof error.message];
    memset(name, 'n', sizeof name);
    name[63] = '\0';
    read_text(PG_DIAG_CONSTRAINT_NAME, name);
    ck_assert_str_eq(error.constraint_name, name);
    ck_assert_uint_eq(error.flags, 0);

    memset(message, 'm', sizeof message);
    message[sizeof message - 1] = '\0';
    read_text(PG_DIAG_MESSAGE_PRIMARY, message);
    ck_assert_str_eq(error.message, message);
    ck_assert_uint_eq(error.flags, 0);
}
END_TEST

START_TEST(a_text_that_is_too_long_is_cut_and_says_so)
{
    const struct {
        char code;
        const char *field;
        size_t size;
    } fields[] = {
        {PG_DIAG_SEVERITY_NONLOCALIZED, error.severity, sizeof error.severity},
        {PG_DIAG_SCHEMA_NAME, error.schema_name, sizeof error.schema_name},
        {PG_DIAG_TABLE_NAME, error.table_name, sizeof error.table_name},
        {PG_DIAG_COLUMN_NAME, error.column_name, sizeof error.column_name},
        {PG_DIAG_DATATYPE_NAME, error.datatype_name, sizeof error.datatype_name},
        {PG_DIAG_CONSTRAINT_NAME, error.constraint_name, sizeof error.constraint_name},
        {PG_DIAG_SOURCE_FILE, error.source_file, sizeof error.source_file},
        {PG_DIAG_MESSAGE_PRIMARY, error.message, sizeof error.message},
        {PG_DIAG_MESSAGE_DETAIL, error.detail, sizeof error.detail},
        {PG_DIAG_MESSAGE_HINT, error.hint, sizeof error.hint},
        {PG_DIAG_CONTEXT, error.context, sizeof error.context},
        {PG_DIAG_INTERNAL_QUERY, error.internal_query, sizeof error.internal_query},
    };
    for (int i = 0; i < COUNT(fields); i++) {
        char text[2048] = "";
        memset(text, 'a', fields[i].size);
        read_text(fields[i].code, text);
        ck_assert_uint_eq(strlen(fields[i].field), fields[i].size - 1);
        ck_assert_uint_eq(strspn(fields[i].field, "a"), fields[i].size - 1);
        ck_assert_uint_eq(error.flags, PQTX_ERROR_TRUNCATED);
    }
}
END_TEST

/* Whether a text ends within a UTF-8 character. */
static bool ends_torn(const char *text)
{
    size_t len = strlen(text), back = 1;
    while (back < len && back < 4 && ((unsigned char)text[len - back] & 0xc0) == 0x80)
        back++;
    unsigned char lead = (unsigned char)text[len - back];
    size_t size = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    return len == 0 || size != back;
}

static const char *const characters[] = {"\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x90\x98"};

/* Characters of so many bytes, from an offset on, longer than any text of an error. */
static void write_long(char *text, size_t size, const char *character, size_t offset)
{
    memset(text, 'a', offset);
    for (size_t at = offset; at + strlen(character) < size; at += strlen(character))
        strcpy(text + at, character);
}

START_TEST(a_servers_text_is_cut_between_characters)
{
    for (int i = 0; i < COUNT(characters); i++)
        for (size_t offset = 0; offset < 4; offset++) {
            char text[2048];
            write_long(text, sizeof text, characters[i], offset);
            read_text(PG_DIAG_MESSAGE_PRIMARY, text);
            ck_assert(!ends_torn(error.message));
            ck_assert_uint_gt(strlen(error.message), sizeof error.message - 5);
            ck_assert_mem_eq(error.message, text, strlen(error.message));
            read_text(PG_DIAG_TABLE_NAME, text);
            ck_assert(!ends_torn(error.table_name));
            ck_assert_uint_gt(strlen(error.table_name), sizeof error.table_name - 5);
        }
}
END_TEST

/* The library's own messages can quote a server's, as when a connection is refused. */
START_TEST(the_librarys_text_is_cut_between_characters)
{
    for (int i = 0; i < COUNT(characters); i++)
        for (size_t offset = 0; offset < 4; offset++) {
            char text[2048];
            write_long(text, sizeof text, characters[i], offset);
            pqtx__error_set(&error, PQTX_DENIED, PQTX_PHASE_CONNECT, PQTX_ORIGIN_SERVER, "%s",
                            text);
            ck_assert(!ends_torn(error.message));
            ck_assert_uint_gt(strlen(error.message), sizeof error.message - 5);
            ck_assert_uint_eq(error.flags, PQTX_ERROR_TRUNCATED);
        }
}
END_TEST

/* Every byte of it looks like the inside of a UTF-8 character: Japanese in EUC_JP can be so. */
START_TEST(a_long_text_in_another_encoding_is_not_lost)
{
    char text[2048] = "";
    memset(text, 0xa4, sizeof text - 1);
    read_text(PG_DIAG_MESSAGE_PRIMARY, text);
    ck_assert_uint_eq(error.flags, PQTX_ERROR_TRUNCATED);
    ck_assert_uint_gt(strlen(error.message), sizeof error.message - 5);
}
END_TEST

/* ---- The library's own errors */

START_TEST(an_error_of_the_librarys_own_replaces_all)
{
    spoil();
    pqtx__error_set(&error, PQTX_NO_MATCH, PQTX_PHASE_BODY, PQTX_ORIGIN_LIBRARY, "%s, %d", "no", 7);
    pqtx_error expected = PQTX_ERROR;
    expected.status = PQTX_NO_MATCH;
    expected.advice = PQTX_ADVICE_DECIDE;
    expected.phase = PQTX_PHASE_BODY;
    expected.origin = PQTX_ORIGIN_LIBRARY;
    strcpy(expected.message, "no, 7");
    ck_assert_mem_eq(&error, &expected, sizeof error);
}
END_TEST

START_TEST(an_error_of_the_librarys_own_has_its_statuss_advice)
{
    for (int number = 0; number <= 1200; number++) {
        pqtx_status status = (pqtx_status)number;
        pqtx__error_set(&error, status, PQTX_PHASE_NONE, PQTX_ORIGIN_LIBRARY, "x");
        ck_assert_int_eq(error.advice, pqtx__advice_of_status(status));
    }
}
END_TEST

/* ---- To a caller */

START_TEST(a_cleared_error_is_empty)
{
    for (size_t size = SIZE_MIN; size <= sizeof error; size++) {
        spoil();
        ck_assert_int_eq(pqtx_error_init(&error, size), PQTX_OK);
        ck_assert_uint_eq(error.size, size);
        ck_assert(is_filled((char *)&error + sizeof size, size - sizeof size, 0));
        ck_assert(is_filled((char *)&error + size, sizeof error - size, 'z'));
    }
}
END_TEST

START_TEST(an_error_that_ends_before_its_sqlstate_is_refused)
{
    const pqtx_error from = PQTX_ERROR;
    for (size_t size = 0; size < SIZE_MIN; size++) {
        pqtx_error before;
        spoil();
        error.size = size;
        before = error;
        ck_assert_int_eq(pqtx_error_init(&error, size), PQTX_MISUSE);
        ck_assert_int_eq(pqtx__error_export(&from, &error), PQTX_MISUSE);
        ck_assert_int_eq(pqtx_get_error(NULL, &error), PQTX_MISUSE);
        ck_assert_mem_eq(&error, &before, sizeof error);
    }
    ck_assert_int_eq(pqtx_error_init(NULL, sizeof error), PQTX_MISUSE);
    ck_assert_int_eq(pqtx__error_export(&from, NULL), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_get_error(NULL, NULL), PQTX_MISUSE);
}
END_TEST

/* Where each text ends, as the struct has them. */
#define END(name) (offsetof(pqtx_error, name) + sizeof error.name)
static const size_t text_ends[] = {
    END(sqlstate),        END(severity),       END(schema_name),     END(table_name),
    END(column_name),     END(datatype_name),  END(constraint_name), END(source_file),
    END(source_function), END(message),        END(detail),          END(hint),
    END(context),         END(internal_query),
};

/* An error with something in every byte, but for the ends of the texts. */
static pqtx_error full_error(void)
{
    pqtx_error from;
    unsigned char *bytes = (unsigned char *)&from;
    for (size_t i = 0; i < sizeof from; i++)
        bytes[i] = (unsigned char)(1 + i % 255);
    for (size_t i = 0; i < sizeof text_ends / sizeof text_ends[0]; i++)
        bytes[text_ends[i] - 1] = '\0';
    from.size = sizeof from;
    return from;
}

/* Where the last text ends that is wholly within this size. */
static size_t last_end(size_t size)
{
    size_t end = 0;
    for (size_t i = 0; i < sizeof text_ends / sizeof text_ends[0] && text_ends[i] <= size; i++)
        end = text_ends[i];
    return end;
}

START_TEST(the_first_constraint_of_that_name_gives_its_status)
{
    static const pqtx_constraint list[] = {{NULL, PQTX_USER},
                                           {"other", (pqtx_status)(PQTX_USER + 1)},
                                           {"ours", (pqtx_status)(PQTX_USER + 2)},
                                           {"ours", (pqtx_status)(PQTX_USER + 3)}};
    static const char *const violations[] = {"23505", "23P01", "23514", "23503", "23001",
                                             "23502", "44000", "P0001", "ZZ123"};
    static const char *const others[] = {"", "40001", "40003", "57014", "22003", "08006", "00000"};
    pqtx_error from = PQTX_ERROR;
    from.status = PQTX_STOPPED;
    strcpy(from.constraint_name, "ours");
    for (size_t i = 0; i < sizeof violations / sizeof violations[0]; i++) {
        strcpy(from.sqlstate, violations[i]);
        ck_assert_int_eq(pqtx_status_of_constraint(&from, list, 4), PQTX_USER + 2);
        ck_assert_int_eq(pqtx_status_of_constraint(&from, list, 2), PQTX_STOPPED);
    }
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        strcpy(from.sqlstate, others[i]);
        ck_assert_int_eq(pqtx_status_of_constraint(&from, list, 4), PQTX_STOPPED);
    }
    strcpy(from.sqlstate, "23505");
    strcpy(from.constraint_name, "Ours");
    ck_assert_int_eq(pqtx_status_of_constraint(&from, list, 4), PQTX_STOPPED);
}
END_TEST

START_TEST(an_error_too_short_for_a_constraint_keeps_its_status)
{
    static const pqtx_constraint list[] = {{"ours", (pqtx_status)(PQTX_USER + 2)}};
    pqtx_error from = PQTX_ERROR;
    from.status = PQTX_DUPLICATE;
    strcpy(from.sqlstate, "23505");
    strcpy(from.constraint_name, "ours");
    from.size = END(constraint_name);
    ck_assert_int_eq(pqtx_status_of_constraint(&from, list, 1), PQTX_USER + 2);
    from.size--;
    ck_assert_int_eq(pqtx_status_of_constraint(&from, list, 1), PQTX_DUPLICATE);
    from.size = 0;
    ck_assert_int_eq(pqtx_status_of_constraint(&from, list, 1), PQTX_MISUSE);
    ck_assert_int_eq(pqtx_status_of_constraint(NULL, list, 1), PQTX_MISUSE);
    from.size = sizeof from;
    ck_assert_int_eq(pqtx_status_of_constraint(&from, NULL, 1), PQTX_MISUSE);
}
END_TEST

START_TEST(an_older_caller_gets_the_fields_it_knows)
{
    const pqtx_error from = full_error();
    for (size_t size = SIZE_MIN; size <= sizeof error; size++) {
        spoil();
        error.size = size;
        ck_assert_int_eq(pqtx__error_export(&from, &error), PQTX_OK);
        ck_assert_uint_eq(error.size, size);
        size_t end = last_end(size);
        ck_assert_mem_eq((char *)&error + sizeof size, (const char *)&from + sizeof size,
                         end - sizeof size);
        ck_assert(size == sizeof error || is_filled((char *)&error + end, size - end, 0));
        ck_assert(is_filled((char *)&error + size, sizeof error - size, 'z'));
    }
}
END_TEST

START_TEST(a_newer_caller_finds_its_fields_empty)
{
    const pqtx_error from = full_error();
    struct {
        pqtx_error known;
        unsigned char unknown[100], guard[8];
    } to;
    memset(&to, 0xee, sizeof to);
    to.known.size = sizeof to.known + sizeof to.unknown;
    ck_assert_int_eq(pqtx__error_export(&from, &to.known), PQTX_OK);
    ck_assert_uint_eq(to.known.size, sizeof to.known + sizeof to.unknown);
    ck_assert_mem_eq((char *)&to + sizeof(size_t), (const char *)&from + sizeof(size_t),
                     last_end(sizeof from) - sizeof(size_t));
    ck_assert(is_filled(to.unknown, sizeof to.unknown, 0));
    ck_assert(is_filled(to.guard, sizeof to.guard, 0xee));
}
END_TEST

START_TEST(no_transaction_is_an_error_too)
{
    spoil();
    ck_assert_int_eq(pqtx_get_error(NULL, &error), PQTX_MISUSE);
    ck_assert_int_eq(error.status, PQTX_MISUSE);
    ck_assert_int_eq(error.advice, PQTX_ADVICE_FIX);
    ck_assert_int_eq(error.origin, PQTX_ORIGIN_LIBRARY);
    ck_assert_int_ne(error.message[0], '\0');
}
END_TEST

/* ---- As one line */

static char line[65536];

static const char *format(void)
{
    size_t len = pqtx_error_format(&error, line, sizeof line);
    ck_assert_uint_eq(len, strlen(line));
    return line;
}

START_TEST(a_line_begins_with_status_sqlstate_and_message)
{
    error = (pqtx_error)PQTX_ERROR;
    ck_assert_str_eq(format(), "ok");
    error.status = PQTX_NO_MATCH;
    strcpy(error.message, "no row");
    ck_assert_str_eq(format(), "no_match: no row");
    error.status = PQTX_DUPLICATE;
    strcpy(error.sqlstate, "23505");
    strcpy(error.message, "duplicate key");
    ck_assert_str_eq(format(), "duplicate 23505: duplicate key");
    error.status = (pqtx_status)77;
    ck_assert_str_eq(format(), "unknown 23505: duplicate key");
}
END_TEST

START_TEST(a_line_tells_what_helps_to_find_the_cause)
{
    error = (pqtx_error)PQTX_ERROR;
    strcpy(error.detail, "THE DETAIL");
    strcpy(error.hint, "THE HINT");
    strcpy(error.constraint_name, "THE CONSTRAINT");
    strcpy(error.table_name, "THE TABLE");
    strcpy(error.column_name, "THE COLUMN");
    strcpy(error.context, "THE CONTEXT");
    format();
    ck_assert_ptr_nonnull(strstr(line, "detail: THE DETAIL"));
    ck_assert_ptr_nonnull(strstr(line, "hint: THE HINT"));
    ck_assert_ptr_nonnull(strstr(line, "constraint: THE CONSTRAINT"));
    ck_assert_ptr_nonnull(strstr(line, "table: THE TABLE"));
    ck_assert_ptr_nonnull(strstr(line, "column: THE COLUMN"));
    ck_assert_ptr_nonnull(strstr(line, "context: THE CONTEXT"));
}
END_TEST

START_TEST(control_bytes_are_written_in_hex)
{
    error = (pqtx_error)PQTX_ERROR;
    strcpy(error.message, "a\nb\r\x1b[2J\x01\x7f\t\xc3\xa9");
    ck_assert_str_eq(format(), "ok: a\\x0ab\\x0d\\x1b[2J\\x01\\x7f\\x09\xc3\xa9");
    for (int c = 1; c < 256; c++) {
        error.message[0] = (char)c;
        error.message[1] = '\0';
        strcpy(error.constraint_name, error.message);
        ck_assert(is_printable(format()));
    }
}
END_TEST

START_TEST(a_line_that_is_too_long_is_cut_and_counted)
{
    error = (pqtx_error)PQTX_ERROR;
    strcpy(error.message, "one\ntwo");
    const char *whole = format();
    size_t len = strlen(whole);
    ck_assert_uint_eq(pqtx_error_format(&error, NULL, 0), len);
    ck_assert_uint_eq(pqtx_error_format(&error, NULL, 100), len);
    for (size_t size = 0; size <= len + 2; size++) {
        char *buffer = malloc(size + 1);
        ck_assert_ptr_nonnull(buffer);
        memset(buffer, 'z', size + 1);
        ck_assert_uint_eq(pqtx_error_format(&error, buffer, size), len);
        size_t written = len < size ? len : size - (size > 0);
        ck_assert_mem_eq(buffer, whole, written);
        if (size > 0)
            ck_assert_int_eq(buffer[written], '\0');
        size_t used = size > 0 ? written + 1 : 0;
        ck_assert(is_filled(buffer + used, size + 1 - used, 'z'));
        free(buffer);
    }
}
END_TEST

START_TEST(an_error_without_its_size_is_not_read)
{
    spoil();
    for (size_t size = 0; size < SIZE_MIN; size++) {
        error.size = size;
        ck_assert_ptr_nonnull(strstr(format(), "misuse"));
    }
    ck_assert_uint_gt(pqtx_error_format(NULL, line, sizeof line), 0);
    ck_assert_ptr_nonnull(strstr(line, "misuse"));
    ck_assert_uint_gt(pqtx_error_format(NULL, NULL, 0), 0);
}
END_TEST

START_TEST(an_older_callers_error_is_a_line_as_well)
{
    void *shorter = malloc(SIZE_MIN);
    ck_assert_ptr_nonnull(shorter);
    spoil();
    ck_assert_int_eq(pqtx_error_init(&error, SIZE_MIN), PQTX_OK);
    error.status = PQTX_DEADLOCK;
    strcpy(error.sqlstate, "40P01");
    memcpy(shorter, &error, SIZE_MIN);
    pqtx_error_format(shorter, line, sizeof line);
    ck_assert_str_eq(line, "deadlock 40P01");
    free(shorter);
}
END_TEST

/* A caller may set nothing but the size: then the texts need not even end. */
START_TEST(any_bytes_are_a_line)
{
    start_random();
    for (int round = 0; round < 2000; round++) {
        size_t size = sizeof error;
        if (random_below(2))
            size = SIZE_MIN + random_below(sizeof error - SIZE_MIN + 1);
        void *copy = malloc(size);
        unsigned char *bytes = copy;
        ck_assert_ptr_nonnull(copy);
        size_t ends = random_below(3) ? 300 : SIZE_MAX; /* one byte in so many */
        for (size_t i = 0; i < size; i++)
            bytes[i] = random_below(ends) ? (unsigned char)(1 + random_below(255)) : 0;
        memcpy(bytes, &size, sizeof size);
        size_t len = pqtx_error_format(copy, line, sizeof line);
        ck_assert_uint_lt(len, sizeof line);
        ck_assert_uint_eq(len, strlen(line));
        ck_assert(is_printable(line));
        free(copy);
    }
}
END_TEST

/* ---- Names */

START_TEST(each_phase_has_the_name_of_its_enumerator)
{
    static struct enumerator list[20];
    size_t count = read_enumerators("error.h", "pqtx_phase", "PQTX_PHASE_", list, COUNT(list));
    for (size_t i = 0; i < count; i++)
        ck_assert_str_eq(pqtx_phase_name((pqtx_phase)list[i].number), list[i].name);
    ck_assert_str_eq(pqtx_phase_name((pqtx_phase)6), "unknown");
    ck_assert_str_eq(pqtx_phase_name((pqtx_phase)-1), "unknown");
    ck_assert_str_eq(pqtx_phase_name((pqtx_phase)INT_MIN), "unknown");
    ck_assert_str_eq(pqtx_phase_name(PQTX_PHASE_MAX), "unknown");
}
END_TEST

START_TEST(each_origin_has_the_name_of_its_enumerator)
{
    static struct enumerator list[20];
    size_t count = read_enumerators("error.h", "pqtx_origin", "PQTX_ORIGIN_", list, COUNT(list));
    for (size_t i = 0; i < count; i++)
        ck_assert_str_eq(pqtx_origin_name((pqtx_origin)list[i].number), list[i].name);
    ck_assert_str_eq(pqtx_origin_name((pqtx_origin)5), "unknown");
    ck_assert_str_eq(pqtx_origin_name((pqtx_origin)-1), "unknown");
    ck_assert_str_eq(pqtx_origin_name((pqtx_origin)INT_MIN), "unknown");
    ck_assert_str_eq(pqtx_origin_name(PQTX_ORIGIN_MAX), "unknown");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("error");
    TCase *tcase = tcase_create("from a result");
    tcase_add_test(tcase, every_field_of_a_servers_error_is_kept);
    tcase_add_test(tcase, what_the_server_left_out_is_empty);
    tcase_add_test(tcase, an_error_without_a_source_function_is_a_poolers);
    tcase_add_test(tcase, a_protocol_violation_that_the_server_outlives_is_the_programs);
    tcase_add_test(tcase, an_error_is_no_success_whatever_its_code);
    tcase_add_test(tcase, a_cached_plan_that_must_change_is_a_stale_statement);
    tcase_add_test(tcase, without_an_sqlstate_the_connection_is_gone);
    tcase_add_test(tcase, a_text_that_just_fits_is_whole);
    tcase_add_test(tcase, a_text_that_is_too_long_is_cut_and_says_so);
    tcase_add_test(tcase, a_servers_text_is_cut_between_characters);
    tcase_add_test(tcase, a_long_text_in_another_encoding_is_not_lost);
    suite_add_tcase(suite, tcase);

    tcase = tcase_create("of the library's own");
    tcase_add_test(tcase, an_error_of_the_librarys_own_replaces_all);
    tcase_add_test(tcase, an_error_of_the_librarys_own_has_its_statuss_advice);
    tcase_add_test(tcase, the_librarys_text_is_cut_between_characters);
    suite_add_tcase(suite, tcase);

    tcase = tcase_create("to a caller");
    tcase_add_test(tcase, a_cleared_error_is_empty);
    tcase_add_test(tcase, an_error_that_ends_before_its_sqlstate_is_refused);
    tcase_add_test(tcase, an_older_caller_gets_the_fields_it_knows);
    tcase_add_test(tcase, a_newer_caller_finds_its_fields_empty);
    tcase_add_test(tcase, no_transaction_is_an_error_too);
    suite_add_tcase(suite, tcase);

    tcase = tcase_create("of a constraint");
    tcase_add_test(tcase, the_first_constraint_of_that_name_gives_its_status);
    tcase_add_test(tcase, an_error_too_short_for_a_constraint_keeps_its_status);
    suite_add_tcase(suite, tcase);

    tcase = tcase_create("as one line");
    tcase_add_test(tcase, a_line_begins_with_status_sqlstate_and_message);
    tcase_add_test(tcase, a_line_tells_what_helps_to_find_the_cause);
    tcase_add_test(tcase, control_bytes_are_written_in_hex);
    tcase_add_test(tcase, a_line_that_is_too_long_is_cut_and_counted);
    tcase_add_test(tcase, an_error_without_its_size_is_not_read);
    tcase_add_test(tcase, an_older_callers_error_is_a_line_as_well);
    tcase_add_test(tcase, any_bytes_are_a_line);
    tcase_add_test(tcase, each_phase_has_the_name_of_its_enumerator);
    tcase_add_test(tcase, each_origin_has_the_name_of_its_enumerator);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
