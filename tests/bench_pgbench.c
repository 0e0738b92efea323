/* bench_pgbench.c: the same work by PostgreSQL's own pgbench, a program, where it is installed. */
#define _GNU_SOURCE
#include "bench_pgbench.h"
#include "bench_sql.h"

#include <fcntl.h>
#include <math.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

#define TAKE "UPDATE bench_stock SET left_over = left_over - 1 WHERE id = 1 AND left_over >= 1;\n"

const char pgbench_take[] =
    "BEGIN;\nSET LOCAL lock_timeout = " LOCK_TIMEOUT_MS ";\n" TAKE "COMMIT;\n";
const char pgbench_take_flight[] = "\\startpipeline\n"
                                   "SELECT 1 WHERE set_config('lock_timeout', '" LOCK_TIMEOUT_MS
                                   "', true) IS NULL;\n" TAKE "\\endpipeline\n";

/* Beside the server's programs, or on PATH. */
static const char *program(void)
{
    static char path[1024];
    const char *directory = getenv("PQTX_TEST_BINDIR");
    snprintf(path, sizeof path, "%s/pgbench", directory ? directory : "");
    return directory && access(path, X_OK) == 0 ? path : "pgbench";
}

static pid_t start(const char *const *arguments, int output)
{
    posix_spawn_file_actions_t actions;
    pid_t pid;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    int error = posix_spawnp(&pid, arguments[0], &actions, NULL, (char *const *)arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    return error == 0 ? pid : -1;
}

/* What it prints, and its CPU time; false if it cannot be run, or fails. */
static bool run(const char *const *arguments, char *text, size_t size, double *cpu_us)
{
    int ends[2], status;
    struct rusage used;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return false;
    pid_t pid = start(arguments, ends[1]);
    close(ends[1]);
    FILE *output = fdopen(ends[0], "r");
    size_t len = fread(text, 1, size - 1, output);
    fclose(output);
    text[len] = '\0';
    if (pid < 0 || wait4(pid, &status, 0, &used) != pid || status != 0)
        return false;
    *cpu_us = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1e6 +
              (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
    return true;
}

bool pgbench_is_there(void)
{
    char text[256];
    double cpu_us;
    const char *const arguments[] = {program(), "--version", NULL};
    return run(arguments, text, sizeof text, &cpu_us);
}

static void write_script(char *path, const char *script)
{
    int fd = mkstemp(path);
    if (fd < 0 || write(fd, script, strlen(script)) != (ssize_t)strlen(script))
        die("pgbench: no file for its script");
    close(fd);
}

static double number_after(const char *text, const char *label)
{
    const char *at = strstr(text, label);
    return at ? strtod(at + strlen(label), NULL) : 0;
}

struct sample pgbench_run(const struct trial *trial, int64_t *committed)
{
    char path[] = "/tmp/pqtx-bench.XXXXXX", length[32], threads[16], text[8192];
    double cpu_us;
    write_script(path, trial->contestant->script);
    if (trial->transactions)
        snprintf(length, sizeof length, "-t%ld", trial->transactions);
    else
        snprintf(length, sizeof length, "-T%.0f", ceil(trial->seconds));
    snprintf(threads, sizeof threads, "%d", trial->threads);
    const char *const arguments[] = {program(), "-n",    "-M",   "prepared", "-c", threads,
                                     "-j",      threads, length, "-f",       path, trial->conninfo,
                                     NULL};
    bool done = run(arguments, text, sizeof text, &cpu_us);
    unlink(path);
    *committed = (int64_t)number_after(text, "actually processed: ");
    if (!done || *committed == 0)
        die("pgbench failed: %s", text);
    return (struct sample){number_after(text, "tps = "), cpu_us / (double)*committed};
}
