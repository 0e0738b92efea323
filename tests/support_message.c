/* support_message.c: what a server says, as bytes, from phrases that can be read. */
#define _DEFAULT_SOURCE
#include "support_message.h"

#include <arpa/inet.h>
#include <check.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define TYPE_TEXT 25

void bytes_add(struct bytes *bytes, const void *data, size_t len)
{
    if (bytes->len + len > bytes->capacity) {
        bytes->capacity = 2 * (bytes->len + len);
        bytes->data = realloc(bytes->data, bytes->capacity);
        ck_assert_ptr_nonnull(bytes->data);
    }
    memcpy(bytes->data + bytes->len, data, len);
    bytes->len += len;
}

void bytes_free(struct bytes *bytes)
{
    free(bytes->data);
    *bytes = (struct bytes){0};
}

static void add_int16(struct bytes *bytes, int value)
{
    uint16_t number = htons((uint16_t)value);
    bytes_add(bytes, &number, sizeof number);
}

static void add_int32(struct bytes *bytes, long value)
{
    uint32_t number = htonl((uint32_t)value);
    bytes_add(bytes, &number, sizeof number);
}

static void add_text(struct bytes *bytes, const char *text, size_t len)
{
    bytes_add(bytes, text, len);
    bytes_add(bytes, "", 1);
}

static void add_string(struct bytes *bytes, const char *text)
{
    add_text(bytes, text, strlen(text));
}

/* The length of a message counts itself and is known only at the end. */
static size_t begin(struct bytes *bytes, char type)
{
    bytes_add(bytes, &type, 1);
    add_int32(bytes, 0);
    return bytes->len - 4;
}

static void finish(struct bytes *bytes, size_t start)
{
    uint32_t len = htonl((uint32_t)(bytes->len - start));
    memcpy(bytes->data + start, &len, sizeof len);
}

bool begins_with(const char *phrase, const char *word)
{
    size_t len = strlen(word);
    return strncmp(phrase, word, len) == 0 && (phrase[len] == ' ' || phrase[len] == '\0');
}

const char *after_word(const char *phrase)
{
    phrase += strcspn(phrase, " ");
    return phrase + strspn(phrase, " ");
}

static void add_field(struct bytes *bytes, char code, const char *text, size_t len)
{
    if (len == 0)
        return;
    bytes_add(bytes, &code, 1);
    add_text(bytes, text, len);
}

static void say_complaint(struct bytes *bytes, char type, const char *severity, const char *rest,
                          bool of_pooler)
{
    const char *function = of_pooler ? rest : after_word(rest);
    const char *text = after_word(function);
    size_t text_len = strcspn(text, "|");
    size_t function_len = strcspn(function, " ");
    size_t start = begin(bytes, type);
    add_field(bytes, 'S', severity, strlen(severity));
    if (!of_pooler)
        add_field(bytes, 'V', severity, strlen(severity));
    add_field(bytes, 'C', rest, strcspn(rest, " "));
    add_field(bytes, 'M', text_len ? text : "as the script says", text_len ? text_len : 18);
    if (text[text_len] == '|')
        add_field(bytes, 'D', text + text_len + 1, strlen(text + text_len + 1));
    if (!of_pooler) {
        add_field(bytes, 'F', "script.c", 8);
        add_field(bytes, 'L', "1", 1);
        add_field(bytes, 'R', function_len ? function : "ProcessScript",
                  function_len ? function_len : 13);
    }
    bytes_add(bytes, "", 1);
    finish(bytes, start);
}

static bool say_as_server(struct bytes *bytes, const char *phrase)
{
    static const struct {
        const char *word, *severity;
        char type;
    } words[] = {
        {"error", "ERROR", 'E'},   {"fatal", "FATAL", 'E'},     {"panic", "PANIC", 'E'},
        {"notice", "NOTICE", 'N'}, {"warning", "WARNING", 'N'},
    };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (begins_with(phrase, words[i].word)) {
            say_complaint(bytes, words[i].type, words[i].severity, after_word(phrase), false);
            return true;
        }
    return false;
}

static void say_as_pooler(struct bytes *bytes, const char *rest)
{
    char severity[8] = "";
    memcpy(severity, rest, strcspn(rest, " "));
    say_complaint(bytes, 'E', severity, after_word(rest), true);
}

static int count_parts(const char *list, char separator)
{
    int count = *list ? 1 : 0;
    for (const char *at = list; *at; at++)
        count += *at == separator;
    return count;
}

static void say_columns(struct bytes *bytes, const char *names)
{
    size_t start = begin(bytes, 'T');
    add_int16(bytes, count_parts(names, ' '));
    for (const char *name = names; *name; name = after_word(name)) {
        add_text(bytes, name, strcspn(name, " "));
        add_int32(bytes, 0); /* of no table … */
        add_int16(bytes, 0); /* … and no column of one */
        add_int32(bytes, TYPE_TEXT);
        add_int16(bytes, -1);
        add_int32(bytes, -1);
        add_int16(bytes, 0);
    }
    finish(bytes, start);
}

static void say_row(struct bytes *bytes, const char *values)
{
    size_t start = begin(bytes, 'D');
    add_int16(bytes, count_parts(values, '|'));
    while (*values) {
        size_t len = strcspn(values, "|");
        bool is_null = len == 4 && strncmp(values, "NULL", 4) == 0;
        add_int32(bytes, is_null ? -1 : (long)len);
        if (!is_null)
            bytes_add(bytes, values, len);
        values += len + (values[len] == '|');
    }
    finish(bytes, start);
}

static void say_parameter(struct bytes *bytes, const char *rest)
{
    size_t start = begin(bytes, 'S');
    add_text(bytes, rest, strcspn(rest, " "));
    add_string(bytes, after_word(rest));
    finish(bytes, start);
}

static void say_notification(struct bytes *bytes, const char *channel)
{
    size_t start = begin(bytes, 'A');
    add_int32(bytes, 1);
    add_string(bytes, channel);
    add_string(bytes, "");
    finish(bytes, start);
}

static void say_key(struct bytes *bytes, const char *pid)
{
    size_t start = begin(bytes, 'K');
    add_int32(bytes, strtol(pid, NULL, 10));
    add_int32(bytes, 1);
    finish(bytes, start);
}

static void say_hex(struct bytes *bytes, const char *digits)
{
    for (; digits[0] && digits[1]; digits += 2) {
        const char two[] = {digits[0], digits[1], '\0'};
        char byte = (char)strtol(two, NULL, 16);
        bytes_add(bytes, &byte, 1);
    }
}

static void say_tag(struct bytes *bytes, const char *tag)
{
    size_t start = begin(bytes, 'C');
    add_string(bytes, tag);
    finish(bytes, start);
}

static bool say_with_rest(struct bytes *bytes, const char *phrase)
{
    static const struct {
        const char *word;
        void (*say)(struct bytes *bytes, const char *rest);
    } words[] = {
        {"complete", say_tag},
        {"pooler", say_as_pooler},
        {"columns", say_columns},
        {"row", say_row},
        {"key", say_key},
        {"parameter", say_parameter},
        {"notify", say_notification},
        {"hex", say_hex},
    };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (begins_with(phrase, words[i].word)) {
            words[i].say(bytes, after_word(phrase));
            return true;
        }
    return false;
}

static bool say_fixed(struct bytes *bytes, const char *phrase)
{
    static const struct {
        const char *phrase;
        char type;
        size_t len;
        const char *body;
    } words[] = {
        {"parsed", '1', 0, ""},         {"bound", '2', 0, ""},
        {"nodata", 'n', 0, ""},         {"ready I", 'Z', 1, "I"},
        {"ready T", 'Z', 1, "T"},       {"ready E", 'Z', 1, "E"},
        {"copyin", 'G', 3, "\0\0\0"},   {"copyout", 'H', 3, "\0\0\0"},
        {"copyboth", 'W', 3, "\0\0\0"}, {"authenticated", 'R', 4, "\0\0\0\0"},
    };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcmp(phrase, words[i].phrase) == 0) {
            size_t start = begin(bytes, words[i].type);
            bytes_add(bytes, words[i].body, words[i].len);
            finish(bytes, start);
            return true;
        }
    return false;
}

void say_phrase(struct bytes *bytes, const char *phrase)
{
    ck_assert_msg(say_fixed(bytes, phrase) || say_as_server(bytes, phrase) ||
                      say_with_rest(bytes, phrase),
                  "no such phrase: %s", phrase);
}
