/* value.c: parameters to libpq's arrays, and columns back to C.
 *
 * Numbers are written and read in the C locale, whatever the host has set. */
#define _DEFAULT_SOURCE
#include "value.h"

#include <errno.h>
#include <limits.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef __APPLE__
#include <xlocale.h>
#endif

#define BYTEA_OID   17
#define NUMBER_SIZE 32 /* "-1.7976931348623157e+308" and a NUL fit with room */
#define COUNT_MAX   65535

pqtx_value pqtx_null(void)
{
    return (pqtx_value){.type = PQTX_TYPE_NULL};
}

pqtx_value pqtx_int(int64_t integer)
{
    return (pqtx_value){.type = PQTX_TYPE_INT, .as = {.integer = integer}};
}

pqtx_value pqtx_real(double real)
{
    return (pqtx_value){.type = PQTX_TYPE_REAL, .as = {.real = real}};
}

pqtx_value pqtx_bool(int truth)
{
    return (pqtx_value){.type = PQTX_TYPE_BOOL, .as = {.integer = truth != 0}};
}

pqtx_value pqtx_text(const char *text)
{
    return pqtx_text_n(text, text ? strlen(text) : 0);
}

pqtx_value pqtx_text_n(const char *text, size_t len)
{
    if (!text)
        return pqtx_null();
    return (pqtx_value){.type = PQTX_TYPE_TEXT, .len = len, .as = {.data = text}};
}

pqtx_value pqtx_bytes(const void *bytes, size_t len)
{
    if (!bytes)
        return pqtx_null();
    return (pqtx_value){.type = PQTX_TYPE_BYTES, .len = len, .as = {.data = bytes}};
}

/* FNV-1a. */
uint32_t pqtx__key_hash(const pqtx_value *key)
{
    bool is_text = key->type == PQTX_TYPE_TEXT;
    const unsigned char *bytes = is_text ? key->as.data : (const void *)&key->as.integer;
    size_t len = is_text ? key->len : sizeof key->as.integer;
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ bytes[i]) * 16777619u;
    return hash;
}

/* Bytes of room that the value needs; SIZE_MAX if the value is not one of ours. */
static size_t room_of(const pqtx_value *value, bool own, const char **why)
{
    if (value->reserved != 0) {
        *why = "a value was not made by pqtx_int(), pqtx_text(), …";
        return SIZE_MAX;
    }
    switch (value->type) {
    case PQTX_TYPE_NULL:
    case PQTX_TYPE_BOOL:
        return 0;
    case PQTX_TYPE_INT:
    case PQTX_TYPE_REAL:
        return NUMBER_SIZE;
    case PQTX_TYPE_TEXT:
    case PQTX_TYPE_BYTES:
        break;
    default:
        *why = "a value has an unknown type";
        return SIZE_MAX;
    }
    if (!value->as.data || value->len >= INT_MAX) {
        *why = "a text or bytes value has no data, or is larger than 2 GB";
        return SIZE_MAX;
    }
    if (value->type == PQTX_TYPE_BYTES)
        return own ? value->len : 0;
    if (memchr(value->as.data, 0, value->len)) {
        *why = "a text value has a NUL inside; use pqtx_bytes() for a bytea column";
        return SIZE_MAX;
    }
    return value->len + 1;
}

/* The digits, the last one first: a fifth of what snprintf() costs, on the way of every call. */
size_t pqtx__int_text(int64_t integer, char *text)
{
    char digits[NUMBER_SIZE];
    size_t len = 0, at = 0;
    uint64_t rest = integer < 0 ? 0 - (uint64_t)integer : (uint64_t)integer;
    do
        digits[len++] = (char)('0' + rest % 10);
    while ((rest /= 10) > 0);
    if (integer < 0)
        digits[len++] = '-';
    while (len > 0)
        text[at++] = digits[--len];
    text[at] = '\0';
    return at;
}

/* The shortest form that reads back as the same number. */
static int write_real(double real, char *text)
{
    if (real != real)
        return snprintf(text, NUMBER_SIZE, "NaN");
    if (real - real != 0)
        return snprintf(text, NUMBER_SIZE, "%sInfinity", real < 0 ? "-" : "");
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (!c)
        return -1;
    locale_t before = uselocale(c);
    int len = 0;
    for (int digits = 15; digits <= 17; digits++) {
        len = snprintf(text, NUMBER_SIZE, "%.*g", digits, real);
        if (strtod(text, NULL) == real)
            break;
    }
    uselocale(before);
    freelocale(c);
    return len;
}

/* Fills slot i; returns the end of the text it wrote, or NULL without memory. */
static char *encode_one(struct pqtx__params *params, int i, const pqtx_value *value, bool own,
                        char *text)
{
    params->types[i] = 0; /* the server decides */
    params->formats[i] = 0;
    params->lengths[i] = 0;
    params->values[i] = text;
    switch (value->type) {
    case PQTX_TYPE_INT:
        return text + pqtx__int_text(value->as.integer, text) + 1;
    case PQTX_TYPE_REAL: {
        int len = write_real(value->as.real, text);
        return len < 0 ? NULL : text + len + 1;
    }
    case PQTX_TYPE_BOOL:
        params->values[i] = value->as.integer ? "t" : "f";
        return text;
    case PQTX_TYPE_TEXT:
        memcpy(text, value->as.data, value->len);
        text[value->len] = '\0';
        return text + value->len + 1;
    case PQTX_TYPE_BYTES:
        params->types[i] = BYTEA_OID;
        params->formats[i] = 1;
        params->lengths[i] = (int)value->len;
        if (!own) {
            params->values[i] = value->as.data;
            return text;
        }
        memcpy(text, value->as.data, value->len);
        return text + value->len;
    default:
        params->values[i] = NULL;
        return text;
    }
}

/* Points the arrays at the small store, or at one block that holds them all and `text_len`. */
static char *make_room(struct pqtx__params *params, size_t count, size_t text_len)
{
    if (count <= sizeof params->small.types / sizeof params->small.types[0] &&
        text_len <= sizeof params->small.text) {
        params->types = params->small.types;
        params->values = params->small.values;
        params->lengths = params->small.lengths;
        params->formats = params->small.formats;
        return params->small.text;
    }
    size_t each = sizeof(char *) + sizeof(Oid) + 2 * sizeof(int);
    params->heap = malloc(count * each + text_len);
    if (!params->heap)
        return NULL;
    params->values = params->heap;
    params->types = (Oid *)(params->values + count);
    params->lengths = (int *)(params->types + count);
    params->formats = params->lengths + count;
    return (char *)(params->formats + count);
}

static pqtx_status encode(struct pqtx__params *params, int count, const pqtx_value *values,
                          bool own, const char **why)
{
    params->count = count;
    params->heap = NULL;
    if (count < 0 || count > COUNT_MAX || (count > 0 && !values)) {
        *why = "the count of values is not within 0 … 65535, or the values are NULL";
        return PQTX_MISUSE;
    }
    size_t room = 0;
    for (int i = 0; i < count; i++) {
        size_t more = room_of(&values[i], own, why);
        if (more == SIZE_MAX)
            return PQTX_MISUSE;
        if (more > SIZE_MAX / 2 - room)
            return PQTX_NO_MEMORY;
        room += more;
    }
    char *text = make_room(params, (size_t)count, room);
    for (int i = 0; text && i < count; i++)
        text = encode_one(params, i, &values[i], own, text);
    if (!text)
        pqtx__params_free(params);
    return text ? PQTX_OK : PQTX_NO_MEMORY;
}

pqtx_status pqtx__params_encode(struct pqtx__params *params, int count, const pqtx_value *values,
                                const char **why)
{
    return encode(params, count, values, false, why);
}

pqtx_status pqtx__params_keep(struct pqtx__params *params, int count, const pqtx_value *values,
                              const char **why)
{
    return encode(params, count, values, true, why);
}

void pqtx__params_free(struct pqtx__params *params)
{
    free(params->heap);
    params->heap = NULL;
}

/* The column's text, or NULL with *status set. */
static const char *column_text(const PGresult *result, int row, int column, const void *out,
                               pqtx_status *status)
{
    *status = PQTX_MISUSE;
    if (!result || !out || row < 0 || column < 0 || row >= PQntuples(result) ||
        column >= PQnfields(result) || PQfformat(result, column) != 0)
        return NULL;
    *status = PQTX_BAD_DATA;
    if (PQgetisnull(result, row, column))
        return NULL;
    *status = PQTX_OK;
    return PQgetvalue(result, row, column);
}

/* As the server writes them: strtoll and strtod also take blanks, a plus sign and hexadecimals. */
static int begins_as_number(const char *text)
{
    text += *text == '-';
    return *text >= '0' && *text <= '9' && text[1] != 'x' && text[1] != 'X';
}

static int is_special_real(const char *text)
{
    return strcmp(text, "NaN") == 0 || strcmp(text, "Infinity") == 0 ||
           strcmp(text, "-Infinity") == 0;
}

pqtx_status pqtx_get_int(const PGresult *result, int row, int column, int64_t *out)
{
    pqtx_status status;
    const char *text = column_text(result, row, column, out, &status);
    if (!text)
        return status;
    char *end;
    errno = 0;
    long long integer = strtoll(text, &end, 10);
    if (errno || end == text || *end || !begins_as_number(text))
        return PQTX_BAD_DATA;
    *out = integer;
    return PQTX_OK;
}

pqtx_status pqtx_get_real(const PGresult *result, int row, int column, double *out)
{
    pqtx_status status;
    const char *text = column_text(result, row, column, out, &status);
    if (!text)
        return status;
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (!c)
        return PQTX_NO_MEMORY;
    locale_t before = uselocale(c);
    char *end;
    errno = 0;
    double real = strtod(text, &end);
    uselocale(before);
    freelocale(c);
    int overflow = errno == ERANGE && (real > 1 || real < -1);
    if (overflow || end == text || *end || !(begins_as_number(text) || is_special_real(text)))
        return PQTX_BAD_DATA;
    *out = real;
    return PQTX_OK;
}

pqtx_status pqtx_get_bool(const PGresult *result, int row, int column, int *out)
{
    pqtx_status status;
    const char *text = column_text(result, row, column, out, &status);
    if (!text)
        return status;
    if (strcmp(text, "t") != 0 && strcmp(text, "f") != 0)
        return PQTX_BAD_DATA;
    *out = text[0] == 't';
    return PQTX_OK;
}

pqtx_status pqtx_get_text(const PGresult *result, int row, int column, const char **out)
{
    pqtx_status status;
    const char *text = column_text(result, row, column, out, &status);
    if (text)
        *out = text;
    return status;
}

pqtx_status pqtx_get_rows(const PGresult *result, int64_t *out)
{
    PGresult *r = (PGresult *)(uintptr_t)result; /* which libpq does not change */
    if (!result || !out)
        return PQTX_MISUSE;
    const char *text = PQcmdTuples(r);
    if (!*text && strncmp(PQcmdStatus(r), "MERGE ", 6) == 0)
        text = PQcmdStatus(r) + 6; /* libpq 14 does not know it */
    bool returns = PQresultStatus(result) == PGRES_TUPLES_OK;
    if (!*text && !returns) /* LOCK and SET count nothing */
        return PQTX_MISUSE;
    *out = returns ? PQntuples(result) : strtoll(text, NULL, 10);
    return PQTX_OK;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

pqtx_status pqtx_get_bytes(const PGresult *result, int row, int column, void *buffer, size_t size,
                           size_t *len)
{
    pqtx_status status;
    const char *text = column_text(result, row, column, len, &status);
    if (!text)
        return status;
    /* bytea_output = hex, the default since 9.0 */
    size_t digits = strlen(text);
    if (digits < 2 || text[0] != '\\' || text[1] != 'x' || digits % 2 != 0)
        return PQTX_BAD_DATA;
    for (size_t i = 2; i < digits; i++)
        if (hex_digit(text[i]) < 0)
            return PQTX_BAD_DATA;
    *len = digits / 2 - 1;
    if (*len > size)
        return PQTX_TOO_MANY;
    if (*len > 0 && !buffer)
        return PQTX_MISUSE;
    unsigned char *to = buffer;
    for (size_t i = 0; i < *len; i++)
        to[i] = (unsigned char)(hex_digit(text[2 + 2 * i]) << 4 | hex_digit(text[3 + 2 * i]));
    return PQTX_OK;
}
