#ifndef PQTX_LIB_FORK_H
#define PQTX_LIB_FORK_H

#include <stdbool.h>
#include <sys/types.h>

/* Remembers the process that made a handle. */
struct pqtx__birth {
    pid_t pid;
    volatile char *page; /* holds a 1 that a fork wipes out; NULL where that cannot be had */
};

/* With a page, pqtx__born_here() costs no system call. */
struct pqtx__birth pqtx__birth_note(bool with_page);
void pqtx__birth_forget(struct pqtx__birth *birth);

/* False in a forked child. */
bool pqtx__born_here(const struct pqtx__birth *birth);

#endif
