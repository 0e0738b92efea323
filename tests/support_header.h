/* support_header.h: the enumerators that a public header declares, read from its text. */
#ifndef PQTX_TESTS_SUPPORT_HEADER_H
#define PQTX_TESTS_SUPPORT_HEADER_H

#include <stddef.h>

struct enumerator {
    char name[32]; /* as the library says it: in lower case and without the prefix */
    int number;
};

/* The enumerators of `enum type` in include/pqtx/HEADER, those that pin its width left out; their
 * count, or 0, and a line that says so, if the header is not beside the tests any more. */
size_t read_enumerators(const char *header, const char *type, const char *prefix,
                        struct enumerator *list, size_t max);

#endif
