/* bench_malloc.c: preloaded, counts allocations by the library or program that asks for them.
 *
 * At the end it writes a line "COUNT FILE" for each to the file that BENCH_MALLOC names.  The C
 * library's own (strdup) count as its own.  glibc alone has the functions that are called here. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

enum { OBJECTS_MAX = 64 };

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *memory, size_t size);

static struct object {
    _Atomic(void *) base;
    atomic_long count;
} objects[OBJECTS_MAX];

/* Takes no lock: several threads may ask at once, and the loader may be in the middle of something.
 */
static void note(void *caller)
{
    Dl_info where;
    void *base = dladdr(caller, &where) ? where.dli_fbase : NULL;
    for (int i = 0; base && i < OBJECTS_MAX; i++) {
        void *vacant = NULL;
        if (atomic_compare_exchange_strong(&objects[i].base, &vacant, base) || vacant == base) {
            atomic_fetch_add(&objects[i].count, 1);
            return;
        }
    }
}

void *malloc(size_t size)
{
    note(__builtin_return_address(0));
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    note(__builtin_return_address(0));
    return __libc_calloc(count, size);
}

void *realloc(void *memory, size_t size)
{
    note(__builtin_return_address(0));
    return __libc_realloc(memory, size);
}

__attribute__((destructor)) static void write_counts(void)
{
    const char *path = getenv("BENCH_MALLOC");
    FILE *file = path ? fopen(path, "w") : NULL;
    Dl_info where;
    for (int i = 0; file && i < OBJECTS_MAX; i++)
        if (objects[i].base && dladdr(objects[i].base, &where))
            fprintf(file, "%ld %s\n", objects[i].count, where.dli_fname);
    if (file)
        fclose(file);
}
