/* bench_raw.c: what a C programmer writes with libpq alone: call by call, or as one flight. */
#define _DEFAULT_SOURCE
#include "bench_raw.h"
#include "bench_sql.h"

#include <arpa/inet.h>
#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The guard fails with a division by zero unless `count` rows were changed, and returns no row if
 * they were. */
#define GUARDED(statement)                                                                         \
    "WITH changed AS (" statement " RETURNING 1)"                                                  \
    " SELECT FROM (SELECT count(*) AS n FROM changed) counted WHERE 1 / (n = 1)::int = 0"

/* The names go over the line each time. */
static const char *const statements[][2] = {
    {"begin", "BEGIN"},
    {"limit", "SET LOCAL lock_timeout = " LOCK_TIMEOUT_MS},
    {"commit", "COMMIT"},
    /* The same until the end of the transaction, with nothing to send back, not even a column. */
    {"quiet", "SELECT WHERE set_config('lock_timeout', $1, true) IS NULL"},
    {"take", SQL_TAKE},
    {"take1", GUARDED(SQL_TAKE)},
    {"give", SQL_GIVE},
    {"give1", GUARDED(SQL_GIVE)},
    {"read", SQL_READ},
    {"write", SQL_WRITE},
    {"upsert", SQL_UPSERT},
};

/* Parameters in binary, which is cheapest. */
struct numbers {
    int32_t big_endian[2];
    const char *values[2];
    int lengths[2], formats[2];
};

static void set_numbers(struct numbers *numbers, int32_t first, int32_t second)
{
    for (int i = 0; i < 2; i++) {
        numbers->big_endian[i] = (int32_t)htonl((uint32_t)(i ? second : first));
        numbers->values[i] = (const char *)&numbers->big_endian[i];
        numbers->lengths[i] = (int)sizeof numbers->big_endian[i];
        numbers->formats[i] = 1;
    }
}

/* ---- call by call */

static PGresult *checked(PGconn *conn, PGresult *result)
{
    ExecStatusType status = PQresultStatus(result);
    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK && status != PGRES_EMPTY_QUERY)
        die("raw libpq: %s", PQerrorMessage(conn));
    return result;
}

static void command(PGconn *conn, const char *sql)
{
    PQclear(checked(conn, PQexec(conn, sql)));
}

static void assert_one_row(PGresult *result)
{
    if (strcmp(PQcmdTuples(result), "1") != 0)
        die("raw libpq: not one row");
}

static PGresult *call(PGconn *conn, const char *statement, int count, int32_t first, int32_t second)
{
    struct numbers numbers;
    set_numbers(&numbers, first, second);
    return checked(conn, PQexecPrepared(conn, statement, count, numbers.values, numbers.lengths,
                                        numbers.formats, 0));
}

static void change_one(PGconn *conn, const char *statement, int32_t first, int32_t second)
{
    PGresult *result = call(conn, statement, 2, first, second);
    assert_one_row(result);
    PQclear(result);
}

static void begin(PGconn *conn)
{
    command(conn, "BEGIN");
    command(conn, "SET LOCAL lock_timeout = " LOCK_TIMEOUT_MS);
}

/* ---- as one flight */

static void queue(PGconn *conn, const char *statement, int count, int32_t first, int32_t second)
{
    struct numbers numbers;
    set_numbers(&numbers, first, second);
    if (!PQsendQueryPrepared(conn, statement, count, numbers.values, numbers.lengths,
                             numbers.formats, 0))
        die("raw libpq: %s", PQerrorMessage(conn));
}

static void queue_limit(PGconn *conn)
{
    static const char *const values[] = {LOCK_TIMEOUT_MS};
    if (!PQsendQueryPrepared(conn, "quiet", 1, values, NULL, NULL, 0))
        die("raw libpq: %s", PQerrorMessage(conn));
}

/* Reads up to the Sync, since an error that is found there comes as one more result.  Returns what
 * the last statement said. */
static PGresult *land(PGconn *conn)
{
    PGresult *last = NULL;
    if (!PQpipelineSync(conn))
        die("raw libpq: %s", PQerrorMessage(conn));
    for (;;) {
        PGresult *result = PQgetResult(conn);
        if (!result && PQstatus(conn) == CONNECTION_OK)
            continue;
        if (result && PQresultStatus(result) == PGRES_PIPELINE_SYNC) {
            PQclear(result);
            return last;
        }
        PQclear(last);
        last = checked(conn, result);
    }
}

struct pg_conn *raw_open(const char *conninfo)
{
    PGconn *conn = PQconnectdb(conninfo);
    if (PQstatus(conn) != CONNECTION_OK || !PQenterPipelineMode(conn))
        die("raw libpq: %s", PQerrorMessage(conn));
    for (size_t i = 0; i < sizeof statements / sizeof *statements; i++)
        if (!PQsendPrepare(conn, statements[i][0], statements[i][1], 0, NULL))
            die("raw libpq: %s", PQerrorMessage(conn));
    PQclear(land(conn));
    PQexitPipelineMode(conn);
    return conn;
}

void raw_nothing(struct seat *seat)
{
    command(seat->conn, "");
}

/* ---- one conditional UPDATE */

void raw_take_params(struct seat *seat)
{
    char row[16];
    const char *const values[] = {row, "1"};
    snprintf(row, sizeof row, "%d", seat->row);
    begin(seat->conn);
    PGresult *result =
        checked(seat->conn, PQexecParams(seat->conn, SQL_TAKE, 2, NULL, values, NULL, NULL, 0));
    assert_one_row(result);
    PQclear(result);
    command(seat->conn, "COMMIT");
}

void raw_take_frame(struct seat *seat)
{
    begin(seat->conn);
    change_one(seat->conn, "take", seat->row, 1);
    command(seat->conn, "COMMIT");
}

void raw_take_prepared(struct seat *seat)
{
    PQclear(call(seat->conn, "begin", 0, 0, 0));
    PQclear(call(seat->conn, "limit", 0, 0, 0));
    change_one(seat->conn, "take", seat->row, 1);
    PQclear(call(seat->conn, "commit", 0, 0, 0));
}

/* Without BEGIN all up to the Sync is one transaction.  A wrong row count is learned when it has
 * committed. */
void raw_take_flight(struct seat *seat)
{
    PQenterPipelineMode(seat->conn); /* is quick where it is in it */
    queue_limit(seat->conn);
    queue(seat->conn, "take", 2, seat->row, 1);
    PGresult *result = land(seat->conn);
    assert_one_row(result);
    PQclear(result);
}

void raw_take_guarded(struct seat *seat)
{
    PQenterPipelineMode(seat->conn);
    queue_limit(seat->conn);
    queue(seat->conn, "take1", 2, seat->row, 1);
    PQclear(land(seat->conn));
}

/* ---- read, decide, write */

static int32_t one_less(PGresult *row)
{
    if (PQntuples(row) != 1)
        die("raw libpq: not one row");
    int32_t left = (int32_t)strtol(PQgetvalue(row, 0, 0), NULL, 10);
    if (left < 1)
        die("raw libpq: sold out");
    PQclear(row);
    return left - 1;
}

void raw_decide(struct seat *seat)
{
    begin(seat->conn);
    int32_t left = one_less(call(seat->conn, "read", 1, seat->row, 0));
    change_one(seat->conn, "write", seat->row, left);
    command(seat->conn, "COMMIT");
}

void raw_decide_flights(struct seat *seat)
{
    PQenterPipelineMode(seat->conn);
    queue(seat->conn, "begin", 0, 0, 0);
    queue(seat->conn, "limit", 0, 0, 0);
    queue(seat->conn, "read", 1, seat->row, 0);
    int32_t left = one_less(land(seat->conn));
    queue(seat->conn, "write", 2, seat->row, left); /* the row is ours: it can only be one */
    queue(seat->conn, "commit", 0, 0, 0);
    PQclear(land(seat->conn));
}

/* ---- a transfer */

void raw_transfer(struct seat *seat)
{
    begin(seat->conn);
    change_one(seat->conn, "take", seat->row, 1);
    change_one(seat->conn, "give", seat->other_row, 1);
    command(seat->conn, "COMMIT");
}

void raw_transfer_guarded(struct seat *seat)
{
    PQenterPipelineMode(seat->conn);
    queue_limit(seat->conn);
    queue(seat->conn, "take1", 2, seat->row, 1);
    queue(seat->conn, "give1", 2, seat->other_row, 1);
    PQclear(land(seat->conn));
}

/* ---- a counter */

void raw_upsert(struct seat *seat)
{
    PQclear(call(seat->conn, "upsert", 2, seat->row, 1));
}

void raw_upsert_frame(struct seat *seat)
{
    begin(seat->conn);
    PQclear(call(seat->conn, "upsert", 2, seat->row, 1));
    command(seat->conn, "COMMIT");
}

void raw_upsert_flight(struct seat *seat)
{
    PQenterPipelineMode(seat->conn);
    queue_limit(seat->conn);
    queue(seat->conn, "upsert", 2, seat->row, 1);
    PQclear(land(seat->conn));
}
