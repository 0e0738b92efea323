/* whoblocks.c: who waits for whom in a database, as a tree: at the roots those who wait for nobody.
 *
 * cc whoblocks.c -o whoblocks $(pkg-config --cflags --libs pqtx libpq)
 * ./whoblocks [-a] [-d] [connection string], where -a shows every one of many in the same place,
 * and -d makes a little jam of its own first */
#include <libpq-fe.h>
#include <pqtx.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX = 4000, SHOWN = 5, NOBODY = -1, UNKNOWN = -2 };

/* Each row says that one session blocks another one.  The first row of a session stands for it. */
static pqtx_blocker rows[MAX];
static int count, who[MAX], whom[MAX];
static int parent[MAX], level[MAX]; /* of a session: below whom it stands, and how deep */
static int all;                     /* -a */

static int session_of(int pid, const char *gid)
{
    int i = 0;
    while (i < count && (rows[i].pid != pid || strcmp(rows[i].gid, gid)))
        i++;
    return i < count ? i : NOBODY;
}

static void number_sessions(void)
{
    for (int i = 0; i < count; i++) {
        who[i] = session_of(rows[i].pid, rows[i].gid); /* prepared ones have no pid, but a name */
        whom[i] = rows[i].blocks_pid ? session_of(rows[i].blocks_pid, "") : NOBODY;
        parent[i] = rows[i].flags & PQTX_BLOCKER_WAITS ? UNKNOWN : NOBODY;
        level[i] = 0;
        for (char *c = rows[i].query; *c; c++)
            *c = (unsigned char)*c < ' ' || *c == 0x7f ? ' ' : *c; /* it is somebody else's text */
    }
}

/* Whoever waits for several, as each one in a queue does for all before him, stands below the one
 * that is nearest to a root: so it is built level by level. */
static void place_below_roots(void)
{
    for (int depth = 0, placed = 1; placed; depth++) {
        placed = 0;
        for (int i = 0; i < count; i++) {
            if (whom[i] == NOBODY || parent[whom[i]] != UNKNOWN || parent[who[i]] == UNKNOWN ||
                level[who[i]] != depth)
                continue;
            parent[whom[i]] = who[i];
            level[whom[i]] = depth + 1;
            placed = 1;
        }
    }
}

static void place_all(void)
{
    for (int i = 0; i < count; i++) {
        place_below_roots();
        if (parent[who[i]] == UNKNOWN)
            parent[who[i]] = NOBODY; /* in a circle, which may begin anywhere */
    }
}

static void print_one(int session, int depth)
{
    char line[1024];
    int others = -1;

    for (int i = 0; i < count; i++)
        others += whom[i] == session;
    pqtx_blocker_format(&rows[session], line, sizeof line);
    printf("%*s%s", depth * 4, "", line);
    if (depth && others > 0)
        printf(", and for %d more", others);
    if (!depth && rows[session].flags & PQTX_BLOCKER_WAITS)
        printf(", in a circle, or its blocker has just gone");
    printf(rows[session].query[0] ? "\n%*s  %.100s\n" : "\n", depth * 4, "", rows[session].query);
}

static void print_below(int above, int depth)
{
    int found = 0;

    for (int i = 0; i < count; i++) {
        if (who[i] != i || parent[i] != above || (++found > SHOWN && depth && !all))
            continue;
        print_one(i, depth);
        print_below(i, depth + 1);
    }
    if (found > SHOWN && depth && !all)
        printf("%*s… and %d more, and who waits for those (-a shows all)\n", depth * 4, "",
               found - SHOWN);
}

static pqtx_status look(pqtx_pool *pool, pqtx_error *error)
{
    size_t found;
    rows[0].size = sizeof rows[0];
    pqtx_status status = pqtx_blockers(pool, NULL, 0, rows, MAX, &found, error);
    count = found < MAX ? (int)found : MAX;
    number_sessions();
    place_all();
    print_below(NOBODY, 0);
    if (status == PQTX_OK && count == 0)
        puts("Nobody waits for a lock.");
    return status;
}

/* The first has a row and thinks; the other two want it. */
static void jam(const char *conninfo, PGconn *sessions[3], pqtx_pool *pool)
{
    size_t found = 0;

    for (int i = 0; i < 3; i++)
        sessions[i] = PQconnectdb(conninfo);
    PQclear(PQexec(sessions[0], "CREATE TABLE IF NOT EXISTS pqtx_jam (n int)"));
    PQclear(PQexec(sessions[0], "TRUNCATE pqtx_jam; INSERT INTO pqtx_jam VALUES (1)"));
    PQclear(PQexec(sessions[0], "BEGIN; UPDATE pqtx_jam SET n = 2"));
    for (int i = 1; i < 3; i++)
        PQsendQuery(sessions[i], "UPDATE pqtx_jam SET n = n + 1");
    for (int tries = 0; tries < 2000 && found < 3; tries++)
        pqtx_blockers(pool, NULL, 0, NULL, 0, &found, NULL);
}

int main(int argc, char **argv)
{
    pqtx_pool_options options = PQTX_POOL_OPTIONS;
    pqtx_error error = PQTX_ERROR;
    PGconn *sessions[3] = {NULL};
    pqtx_pool *pool;
    int demo = 0;

    for (; argc > 1 && argv[1][0] == '-'; argc--, argv++)
        *(argv[1][1] == 'd' ? &demo : &all) = 1;
    options.conninfo = argc > 1 ? argv[1] : getenv("PQTX_TEST_CONNINFO");
    pqtx_status status = pqtx_pool_open(&options, &pool, &error);
    if (status == PQTX_OK && demo)
        jam(options.conninfo ? options.conninfo : "", sessions, pool);
    if (status == PQTX_OK)
        status = look(pool, &error);
    for (int i = 0; i < 3; i++)
        PQfinish(sessions[i]);
    pqtx_pool_close(pool);
    if (status)
        fprintf(stderr, "whoblocks: %s\n", error.message);
    return status != PQTX_OK;
}
