/* support_fault.c: this program's own malloc(), calloc() and realloc(), in front of the real ones.
 *
 * A program's definition comes before that of any library, libpq included; the next one in the
 * order of search is libc's, or a sanitizer's. */
#define _GNU_SOURCE
#include "support_fault.h"

#include <stdlib.h>

#ifdef __GLIBC__

#include <dlfcn.h>
#include <errno.h>

static _Thread_local struct {
    unsigned long countdown; /* 0: nothing is to fail */
    bool for_good;
    enum fault first;
} state;

/* Where this program's code begins and ends, as the linker knows it. */
extern const char __executable_start, etext;

typedef void *(*malloc_function)(size_t);
typedef void *(*calloc_function)(size_t, size_t);
typedef void *(*realloc_function)(void *, size_t);

/* Of a sanitizer that is part of this very program. */
__attribute__((weak)) void *__interceptor_malloc(size_t size);
__attribute__((weak)) void *__interceptor_calloc(size_t count, size_t size);
__attribute__((weak)) void *__interceptor_realloc(void *old, size_t size);

/* The first allocations come before a sanitizer is ready for code that it watches. */
#define UNWATCHED __attribute__((no_sanitize("address", "thread", "undefined")))

UNWATCHED static bool must_fail(const char *caller)
{
    if (state.countdown == 0 || --state.countdown > 0)
        return false;
    state.countdown = state.for_good;
    if (state.first == FAULT_NONE)
        state.first = caller >= &__executable_start && caller < &etext ? FAULT_OURS : FAULT_OTHERS;
    errno = ENOMEM;
    return true;
}

#define MUST_FAIL must_fail(__builtin_return_address(0))

/* Two threads that look the function up at once find the same one. */
UNWATCHED void *malloc(size_t size)
{
    static _Atomic(malloc_function) found;
    malloc_function real = __interceptor_malloc ? __interceptor_malloc : found;
    if (!real)
        found = real = (malloc_function)dlsym(RTLD_NEXT, "malloc");
    return MUST_FAIL ? NULL : real(size);
}

UNWATCHED void *calloc(size_t count, size_t size)
{
    static _Atomic(calloc_function) found;
    calloc_function real = __interceptor_calloc ? __interceptor_calloc : found;
    if (!real)
        found = real = (calloc_function)dlsym(RTLD_NEXT, "calloc");
    return MUST_FAIL ? NULL : real(count, size);
}

UNWATCHED void *realloc(void *old, size_t size)
{
    static _Atomic(realloc_function) found;
    realloc_function real = __interceptor_realloc ? __interceptor_realloc : found;
    if (!real)
        found = real = (realloc_function)dlsym(RTLD_NEXT, "realloc");
    return MUST_FAIL ? NULL : real(old, size);
}

void fault_arm(unsigned long n, bool for_good)
{
    state.countdown = n;
    state.for_good = for_good;
    state.first = FAULT_NONE;
}

enum fault fault_so_far(void)
{
    return state.first;
}

enum fault fault_disarm(void)
{
    state.countdown = 0;
    return state.first;
}

/* Under valgrind its own malloc() comes before this one. */
bool fault_is_possible(void)
{
    fault_arm(1, false);
    void *volatile block = malloc(1);
    fault_disarm();
    free(block);
    return !block;
}

#else

void fault_arm(unsigned long n, bool for_good)
{
    (void)n;
    (void)for_good;
}

enum fault fault_so_far(void)
{
    return FAULT_NONE;
}

enum fault fault_disarm(void)
{
    return FAULT_NONE;
}

bool fault_is_possible(void)
{
    return false;
}

#endif
