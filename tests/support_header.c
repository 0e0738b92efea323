/* support_header.c: the enumerators that a public header declares, read from its text.
 *
 * So a test sees an enumerator that was added to the header and nowhere else. */
#include "support_header.h"

#include <check.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The tests are run from where they were built, so the way to this file still holds. */
static FILE *open_header(const char *header)
{
    char path[1024];
    int folder = (int)(strlen(__FILE__) - strlen("support_header.c"));
    snprintf(path, sizeof path, "%.*s../include/pqtx/%s", folder, __FILE__, header);
    FILE *file = fopen(path, "r");
    if (!file)
        printf("%s: not to be found from here, skipped\n", path);
    return file;
}

static void blank_out_comments(char *text)
{
    char *end;
    while ((text = strstr(text, "/*")) != NULL && (end = strstr(text, "*/")) != NULL) {
        memset(text, ' ', (size_t)(end + 2 - text));
        text = end + 2;
    }
}

/* `at` is at "PQTX_PHASE_BODY = 3". */
static struct enumerator read_one(const char *at, const char *prefix)
{
    struct enumerator one;
    char name[64];
    ck_assert_msg(sscanf(at, "%63[A-Z0-9_] = %i", name, &one.number) == 2, "not read: %.40s", at);
    ck_assert_msg(strncmp(name, prefix, strlen(prefix)) == 0, "not with %s: %s", prefix, name);
    snprintf(one.name, sizeof one.name, "%.31s", name + strlen(prefix));
    for (char *c = one.name; *c; c++)
        *c = (char)tolower((unsigned char)*c);
    return one;
}

size_t read_enumerators(const char *header, const char *type, const char *prefix,
                        struct enumerator *list, size_t max)
{
    static char text[65536];
    FILE *file = open_header(header);
    if (!file)
        return 0;
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    blank_out_comments(text);

    char first[64], last[64];
    snprintf(first, sizeof first, "enum %s {", type);
    snprintf(last, sizeof last, "} %s;", type);
    char *at = strstr(text, first);
    char *end = at ? strstr(at, last) : NULL;
    ck_assert_msg(end, "%s has no enum %s", header, type);
    *end = '\0';
    size_t count = 0;
    while ((at = strstr(at, "PQTX_")) != NULL) {
        struct enumerator one = read_one(at, prefix);
        at += strcspn(at, ",");
        if (one.number == 0x7fffffff)
            continue;
        ck_assert_msg(count < max, "more than %zu enumerators", max);
        list[count++] = one;
    }
    return count;
}
