/* fork.c: whether this is still the process that made a handle.
 *
 * A child has copies of its parent's sockets, and one word on them ruins the parent's sessions.
 * getpid() tells, and costs a system call; a page that the kernel wipes on fork tells for nothing.
 */
#define _DEFAULT_SOURCE
#include "fork.h"

#include <sys/mman.h>
#include <unistd.h>

#ifdef MADV_WIPEONFORK
#define PAGE_SIZE_USED 4096

static volatile char *make_page(void)
{
    void *page =
        mmap(NULL, PAGE_SIZE_USED, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return NULL;
    if (madvise(page, PAGE_SIZE_USED, MADV_WIPEONFORK) != 0) {
        munmap(page, PAGE_SIZE_USED);
        return NULL;
    }
    *(char *)page = 1;
    return page;
}

static void free_page(volatile char *page)
{
    munmap((void *)page, PAGE_SIZE_USED);
}
#else
static volatile char *make_page(void)
{
    return NULL;
}

static void free_page(volatile char *page)
{
    (void)page;
}
#endif

struct pqtx__birth pqtx__birth_note(bool with_page)
{
    return (struct pqtx__birth){getpid(), with_page ? make_page() : NULL};
}

void pqtx__birth_forget(struct pqtx__birth *birth)
{
    if (birth->page)
        free_page(birth->page);
    birth->page = NULL;
}

bool pqtx__born_here(const struct pqtx__birth *birth)
{
    return birth->page ? *birth->page == 1 : birth->pid == getpid();
}
