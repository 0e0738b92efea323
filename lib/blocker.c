/* blocker.c: who is waited for: the questions to the server, and their answers in words.
 *
 * pg_blocking_pids() knows of those who stand before us in the queue, and of parallel workers, as
 * no join over pg_locks does.  Of a prepared transaction it says only 0; which one that is shows in
 * pg_locks. */
#include "blocker.h"
#include "error.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Each view is read once, since to read it costs the server something.  What a lock is on makes one
 * text, to compare by.  waitstart is there from PostgreSQL 14 on. */
#define SEEN                                                                                       \
    "WITH RECURSIVE who AS MATERIALIZED (SELECT * FROM pg_stat_activity),"                         \
    " locks AS MATERIALIZED (SELECT l.*, coalesce(who.leader_pid, l.pid) AS leader,"               \
    "  concat(l.locktype, '/', l.database, '/', l.relation, '/', l.page, '/', l.tuple, '/',"       \
    "   l.virtualxid, '/', l.transactionid, '/', l.classid, '/', l.objid, '/', l.objsubid)"        \
    "   AS object,"                                                                                \
    "  CASE WHEN NOT l.granted THEN (to_jsonb(l) ->> 'waitstart')::timestamptz END AS since"       \
    "  FROM pg_locks AS l LEFT JOIN who ON who.pid = l.pid),"                                      \
    " waiting AS MATERIALIZED (SELECT leader AS pid, min(since) AS since FROM locks"               \
    "  WHERE NOT granted GROUP BY leader"                                                          \
    "  UNION ALL SELECT pid, query_start FROM who WHERE wait_event = 'SafeSnapshot'),"

#define BLOCKING(pid) "pg_blocking_pids(" pid ") || pg_safe_snapshot_blocking_pids(" pid ")"

/* From a backend upwards.  Where all that block it wait as well, the one that waits the longest is
 * next: it is the nearest to the root.  In a circle the eighth step is the last. */
#define UPWARDS                                                                                    \
    " step(n, pid, blockers) AS (SELECT 1, $1::int4, " BLOCKING(                                   \
        "$1::int4") "  UNION ALL SELECT s.n + 1, f.pid, " BLOCKING("f.pid") "  FROM step AS s "    \
                                                                            "CROSS JOIN LATERAL "  \
                                                                            "(SELECT w.pid FROM "  \
                                                                            "waiting AS w"         \
                                                                            "   WHERE w.pid = "    \
                                                                            "ANY (s.blockers) "    \
                                                                            "ORDER BY w.since, "   \
                                                                            "w.pid LIMIT 1) AS f"  \
                                                                            "  WHERE s.n < 8 AND " \
                                                                            "NOT EXISTS (SELECT "  \
                                                                            "FROM "                \
                                                                            "unnest(s.blockers) "  \
                                                                            "AS u(pid)"            \
                                                                            "   WHERE u.pid NOT "  \
                                                                            "IN (SELECT w.pid "    \
                                                                            "FROM waiting AS "     \
                                                                            "w))),"                \
                                                                            " pair(n, waiter, "    \
                                                                            "pid) AS (SELECT "     \
                                                                            "min(s.n), s.pid, "    \
                                                                            "u.pid"                \
                                                                            "  FROM step AS s, "   \
                                                                            "unnest(s.blockers) "  \
                                                                            "AS u(pid) GROUP BY "  \
                                                                            "s.pid, u.pid),"       \
                                                                            " leaf(pid) AS "       \
                                                                            "(SELECT 0 WHERE "     \
                                                                            "false),"

/* Every wait of the database, and who waits and blocks nobody. */
#define EVERYWHERE                                                                                 \
    " here AS (SELECT w.pid FROM waiting AS w INNER JOIN who ON who.pid = w.pid"                   \
    "  WHERE who.datname = current_database()),"                                                   \
    " pair(n, waiter, pid) AS MATERIALIZED (SELECT DISTINCT 1, here.pid, u.pid"                    \
    "  FROM here, unnest(" BLOCKING(                                                               \
        "here.pid") ") AS u(pid)),"                                                                \
                    " leaf(pid) AS (SELECT here.pid FROM here"                                     \
                    "  WHERE NOT EXISTS (SELECT FROM pair WHERE pair.pid = here.pid)),"

/* Which prepared transactions hold what a waiting backend wants, in a mode that is in its way: each
 * mode has its bit, and the bits of those that it conflicts with. */
#define PREPARED                                                                                   \
    " mode(name, bit, against) AS (VALUES ('AccessShareLock', 1, 128), ('RowShareLock', 2, 192),"  \
    "  ('RowExclusiveLock', 4, 240), ('ShareUpdateExclusiveLock', 8, 248),"                        \
    "  ('ShareLock', 16, 236), ('ShareRowExclusiveLock', 32, 252), ('ExclusiveLock', 64, 254),"    \
    "  ('AccessExclusiveLock', 128, 255)),"                                                        \
    " edge(n, waiter, pid, holder) AS (SELECT p.n, p.waiter, p.pid, h.virtualtransaction"          \
    "  FROM pair AS p LEFT JOIN LATERAL (SELECT DISTINCT h.virtualtransaction FROM locks AS w"     \
    "   INNER JOIN locks AS h ON h.object = w.object AND h.granted AND h.pid IS NULL"              \
    "   INNER JOIN mode AS wanted ON wanted.name = w.mode"                                         \
    "   INNER JOIN mode AS held ON held.name = h.mode AND wanted.against & held.bit <> 0"          \
    "   WHERE NOT w.granted AND w.leader = p.waiter) AS h ON p.pid = 0"                            \
    "  UNION ALL SELECT 1, 0, leaf.pid, NULL FROM leaf)"

/* Whoever has an xid holds a lock on it.  Sharers of a row are in a multixact; whether its xmax is
 * the number of one does not show, so it is looked into only where there is such a one, and
 * believed only of those who have locked the table. */
#define OF_ROWS                                                                                    \
    " seen(xmax, tableoid) AS (SELECT * FROM unnest($1::xid[], $2::oid[])),"                       \
    " holding(xid, tableoid) AS (SELECT s.xmax, s.tableoid FROM seen AS s"                         \
    "  UNION SELECT m.xid, s.tableoid FROM seen AS s INNER JOIN pg_class AS c ON c.oid = "         \
    "s.tableoid"                                                                                   \
    "  CROSS JOIN LATERAL pg_get_multixact_members(CASE WHEN mxid_age(s.xmax) > 0"                 \
    "   AND mxid_age(s.xmax) <= mxid_age(c.relminmxid) THEN s.xmax END) AS m(xid, mode)),"         \
    " edge(n, waiter, pid, holder) AS (SELECT DISTINCT 1, 0, coalesce(l.leader, 0),"               \
    "  l.virtualtransaction FROM holding AS h"                                                     \
    "  INNER JOIN locks AS l ON l.locktype = 'transactionid' AND l.granted"                        \
    "   AND l.transactionid = h.xid"                                                               \
    "  WHERE l.pid IS DISTINCT FROM pg_backend_pid() AND EXISTS (SELECT FROM locks AS t"           \
    "   WHERE t.virtualtransaction = l.virtualtransaction AND t.granted"                           \
    "   AND t.locktype = 'relation' AND t.relation = h.tableoid))"

#define OF_LOCKS                                                                                   \
    " edge(n, waiter, pid, holder) AS (SELECT DISTINCT 1, 0, coalesce(l.leader, 0),"               \
    "  l.virtualtransaction FROM locks AS l"                                                       \
    "  WHERE l.locktype = 'advisory' AND l.granted AND l.pid IS DISTINCT FROM pg_backend_pid()"    \
    "  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())"          \
    "  AND l.classid = $1::int8::oid AND l.objid = $2::int8::oid AND l.objsubid = $3::int2)"

#define AGE(time)                                                                                  \
    "coalesce((date_part('epoch', clock_timestamp() - " time ") * 1000000)::int8, -1), "

/* An advisory lock as the program knows it: see lock.h. */
#define WANTED                                                                                     \
    "concat_ws(' ', w.mode, 'on', w.locktype, CASE WHEN w.locktype <> 'advisory'"                  \
    " THEN concat_ws(' ', w.relation::regclass, 'page ' || w.page, 'row ' || w.tuple,"             \
    "  w.transactionid, w.virtualxid, w.classid, w.objid)"                                         \
    " WHEN w.objsubid = 1 THEN 'key ' || (w.classid::int8 << 32 | w.objid::int8)"                  \
    " ELSE concat('pair ', w.classid::int8::bit(32)::int4, ',', w.objid::int8::bit(32)::int4)"     \
    " END)"

/* In the order of pqtx__blocker_read(). */
#define SHOWN                                                                                      \
    " SELECT e.pid, e.waiter, e.n, w.pid IS NOT NULL OR x.pid IS NOT NULL,"                        \
    " e.pid <> 0 AND a.pid IS NULL, a.pid IS NOT NULL AND a.backend_start IS NULL,"                \
    " " AGE("coalesce(a.xact_start, p.prepared)") AGE("a.query_start") AGE("a.state_change")       \
        AGE("x.since") "coalesce(a.usename, p.owner), a.application_name,"                         \
                       " coalesce(a.datname, p.database), host(a.client_addr), a.state,"           \
                       " CASE WHEN w.pid IS NOT NULL THEN " WANTED                                 \
                       " WHEN x.pid IS NOT NULL THEN 'safe snapshot' END,"                         \
                       " p.gid, left(a.query, 511)"                                                \
                       " FROM edge AS e LEFT JOIN who AS a ON a.pid = e.pid"                       \
                       " LEFT JOIN waiting AS x ON x.pid = e.pid"                                  \
                       " LEFT JOIN LATERAL (SELECT * FROM locks AS l WHERE NOT l.granted AND "     \
                       "l.leader = e.pid"                                                          \
                       "  ORDER BY l.since LIMIT 1) AS w ON true"                                  \
                       " LEFT JOIN (SELECT o.virtualtransaction, y.* FROM locks AS o INNER JOIN "  \
                       "pg_prepared_xacts AS"                                                      \
                       "  y ON y.transaction = o.transactionid AND o.pid IS NULL AND o.locktype "  \
                       "= 'transactionid') AS"                                                     \
                       "  p ON e.pid = 0 AND p.virtualtransaction = e.holder"                      \
                       " ORDER BY e.n, 4, e.pid, e.waiter, p.gid"

const char pqtx__blocker_of_pid[] = SEEN UPWARDS PREPARED SHOWN;
const char pqtx__blocker_of_all[] = SEEN EVERYWHERE PREPARED SHOWN;
const char pqtx__blocker_of_rows[] = SEEN OF_ROWS SHOWN;
const char pqtx__blocker_of_locks[] = SEEN OF_LOCKS SHOWN;

static int64_t number(const PGresult *answer, int row, int column)
{
    int64_t value;
    return pqtx_get_int(answer, row, column, &value) == PQTX_OK ? value : -1;
}

static bool truth(const PGresult *answer, int row, int column)
{
    return strcmp(PQgetvalue(answer, row, column), "t") == 0;
}

#define TEXT(field, column)                                                                        \
    pqtx__text_copy(blocker->field, sizeof blocker->field, PQgetvalue(answer, row, column))

void pqtx__blocker_read(const PGresult *answer, int row, pqtx_blocker *blocker)
{
    *blocker = (pqtx_blocker)PQTX_BLOCKER;
    blocker->pid = (int32_t)number(answer, row, 0);
    blocker->blocks_pid = (int32_t)number(answer, row, 1);
    blocker->level = (uint32_t)number(answer, row, 2);
    blocker->flags = (blocker->pid == 0 ? PQTX_BLOCKER_PREPARED : 0) |
                     (truth(answer, row, 3) ? PQTX_BLOCKER_WAITS : 0) |
                     (truth(answer, row, 4) ? PQTX_BLOCKER_GONE : 0) |
                     (truth(answer, row, 5) ? PQTX_BLOCKER_HIDDEN : 0);
    blocker->transaction_us = number(answer, row, 6);
    blocker->query_us = number(answer, row, 7);
    blocker->state_us = number(answer, row, 8);
    blocker->wait_us = number(answer, row, 9);
    TEXT(user_name, 10);
    TEXT(application_name, 11);
    TEXT(database_name, 12);
    TEXT(client, 13);
    TEXT(state, 14);
    TEXT(waits_for, 15);
    TEXT(gid, 16);
    TEXT(query, 17);
    if (blocker->flags & PQTX_BLOCKER_HIDDEN)
        blocker->query[0] = '\0'; /* "<insufficient privilege>" */
}

/* Where a line is written: counts on past the end, as snprintf does. */
struct line {
    char *buffer;
    size_t size, len;
};

static void put(struct line *line, const char *format, ...) PQTX_PRINTF(2, 3);

/* What the server says is not trusted: no control byte reaches a log. */
static void put(struct line *line, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    for (char *at = text; *at; at++, line->len++) {
        if ((unsigned char)*at < 0x20 || *at == 0x7f)
            *at = '?';
        if (line->len + 1 < line->size)
            line->buffer[line->len] = *at;
    }
}

static void put_age(struct line *line, int64_t us)
{
    if (us < 0)
        return;
    if (us < 1000000)
        put(line, " for %d ms", (int)(us / 1000));
    else if (us < INT64_C(300000000))
        put(line, " for %d s", (int)(us / 1000000));
    else if (us < INT64_C(18000000000))
        put(line, " for %d min", (int)(us / 60000000));
    else
        put(line, " for %lld h", (long long)(us / INT64_C(3600000000)));
}

static void put_prepared(struct line *line, const pqtx_blocker *b)
{
    put(line, "prepared transaction");
    if (b->gid[0])
        put(line, " '%.*s'", (int)sizeof b->gid, b->gid);
    if (b->user_name[0])
        put(line, " (user %.*s, prepared", (int)sizeof b->user_name, b->user_name);
    if (b->user_name[0])
        put_age(line, b->transaction_us);
    if (b->user_name[0])
        put(line, ")");
}

static void put_session(struct line *line, const pqtx_blocker *b)
{
    put(line, "pid %d", (int)b->pid);
    if (b->flags & PQTX_BLOCKER_GONE) {
        put(line, " (gone)");
        return;
    }
    put(line, " (user %.*s", (int)sizeof b->user_name, b->user_name);
    if (b->application_name[0])
        put(line, ", application %.*s", (int)sizeof b->application_name, b->application_name);
    if (b->flags & PQTX_BLOCKER_WAITS) {
        put(line, ", waiting");
        put_age(line, b->wait_us);
        if (b->waits_for[0])
            put(line, " for %.*s", (int)sizeof b->waits_for, b->waits_for);
    } else if (b->state[0]) {
        put(line, ", %.*s", (int)sizeof b->state, b->state);
        put_age(line, b->state_us);
    }
    put(line, ")");
}

size_t pqtx_blocker_format(const pqtx_blocker *blocker, char *buffer, size_t size)
{
    struct line line = {buffer, buffer ? size : 0, 0};
    if (!blocker || blocker->size != sizeof *blocker)
        put(&line, "no blocker");
    else if (blocker->flags & PQTX_BLOCKER_PREPARED)
        put_prepared(&line, blocker);
    else
        put_session(&line, blocker);
    if (line.size > 0)
        line.buffer[line.len < line.size ? line.len : line.size - 1] = '\0';
    return line.len;
}

/* The one at the root of it stands on the highest level, and first there if it does not wait. */
static void tell(const PGresult *answer, int pid, char *text, size_t size)
{
    char name[512], before[32] = "";
    pqtx_blocker root, next;
    int at = PQntuples(answer) - 1;
    int64_t top = number(answer, at, 2);
    while (at > 0 && number(answer, at - 1, 2) == top)
        at--;
    pqtx__blocker_read(answer, at, &root);
    pqtx__blocker_read(answer, 0, &next);
    pqtx_blocker_format(&root, name, sizeof name);
    if (root.blocks_pid != pid)
        snprintf(before, sizeof before, "behind pid %d, ", (int)next.pid);
    snprintf(text, size, "%sblocked by %s", before, name);
}

/* The first statement sets the search_path for the second: between two Syncs lies a transaction. */
void pqtx__blocker_tell(struct pqtx__wire *wire, int pid, int64_t until_us, char *text, size_t size)
{
    static const char path[] =
        "SELECT pg_catalog.set_config('search_path', '" PQTX__BLOCKER_PATH "', true)";
    const pqtx_value value = pqtx_int(pid);
    struct pqtx__params params;
    const char *why;
    *text = '\0';
    if (pqtx__params_encode(&params, 1, &value, &why) != PQTX_OK)
        return;
    bool sent = pqtx__wire_send(wire, path, NULL) &&
                pqtx__wire_send(wire, pqtx__blocker_of_pid, &params) && pqtx__wire_sync(wire);
    pqtx__params_free(&params);
    if (!sent || pqtx__wire_land(wire, until_us) != PQTX__LANDED)
        wire->lost = true;
    const PGresult *answer = wire->lost ? NULL : wire->replies[1].result;
    if (PQresultStatus(answer) == PGRES_TUPLES_OK && PQntuples(answer) > 0)
        tell(answer, pid, text, size);
    pqtx__wire_clear(wire);
}
