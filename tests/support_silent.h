/* support_silent.h: hosts that take a connection, or do not even that, and never say a word. */
#ifndef PQTX_TESTS_SUPPORT_SILENT_H
#define PQTX_TESTS_SUPPORT_SILENT_H

/* What a connection string names it by: a directory and port 1, or 127.0.0.1 and a port. */
struct silent {
    char host[32], port[8];
    int listener;
    int taken[64], count;
};

/* Listens on a Unix socket in a fresh directory, or on a TCP port. */
struct silent *silent_open(void);
struct silent *silent_open_tcp(void);
void silent_close(struct silent *silent);

/* How many connections have come so far. */
int silent_count(struct silent *silent);

/* From now on the system answers no further client, as where a firewall drops what comes (TCP). */
void silent_fill(struct silent *silent);

#endif
