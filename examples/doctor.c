/* doctor.c: checks a database for what makes concurrent writes wrong or slow, with the statements
 * that mend it.  Exit status: 0 nothing but notes, 1 warnings, 2 errors, 3 it could not be checked.
 *
 * cc doctor.c -o doctor $(pkg-config --cflags --libs pqtx libpq)
 * ./doctor [-d] [-s schema] [-t kind/table/key/value/order]... [connection string]
 * A table is described as in -t stock/shop.stock/id/left_over or -t queue/job/id/lease/prio,run_at;
 * kinds are keyed, counter, stock, queue, intervals.  -d: an ill schema is made, checked, mended.
 */
#define _POSIX_C_SOURCE 200809L

#include <libpq-fe.h>
#include <pqtx.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_TABLES = 100, MAX_FINDINGS = 1000, FAILED = 3 };

static pqtx_finding findings[MAX_FINDINGS];
static pqtx_subject tables[MAX_TABLES];
static pqtx_schema schema = PQTX_SCHEMA;
static size_t found;

/* Takes the next part of a description, up to a slash; NULL if it is empty. */
static const char *part(char **rest)
{
    char *begin = *rest, *end = begin ? strchr(begin, '/') : NULL;

    *rest = end ? end + 1 : NULL;
    if (end)
        *end = '\0';
    return begin && *begin ? begin : NULL;
}

static int describe(char *text)
{
    static const char *const kinds[] = {"", "keyed", "counter", "stock", "queue", "intervals"};
    pqtx_subject *table = &tables[schema.table_count];
    const char *kind = part(&text);

    if (schema.table_count == MAX_TABLES)
        return 0;
    *table = (pqtx_subject)PQTX_SUBJECT;
    for (int i = 1; kind && i <= PQTX_SUBJECT_INTERVALS; i++)
        if (strcmp(kind, kinds[i]) == 0)
            table->kind = (pqtx_subject_kind)i;
    char *name = (char *)(size_t)part(&text), *dot = name ? strchr(name, '.') : NULL;
    if (dot) {
        *dot = '\0';
        table->schema = name;
    }
    table->table = dot ? dot + 1 : name;
    table->key = part(&text);
    table->value = part(&text);
    table->order = part(&text);
    schema.table_count++;
    return table->kind && table->table;
}

static void print_findings(void)
{
    for (size_t i = 0; i < found && i < MAX_FINDINGS; i++) {
        const pqtx_finding *f = &findings[i];
        printf("%s: %s: %s\n    %s\n", pqtx_severity_name(f->severity), f->object, f->what, f->why);
        if (f->mend[0])
            printf("    %s;\n", f->mend);
    }
    if (found > MAX_FINDINGS)
        printf("… and %zu more.\n", found - MAX_FINDINGS);
}

static int check(pqtx_pool *pool)
{
    static const char *const verdicts[] = {"Healthy", "Healthy", "Warnings", "Ill"};
    pqtx_severity worst;
    pqtx_error error = PQTX_ERROR;
    findings[0].size = sizeof findings[0];
    schema.tables = tables;
    if (pqtx_check_schema(pool, NULL, &schema, findings, MAX_FINDINGS, &found, &worst, &error)) {
        fprintf(stderr, "doctor: %s\n", error.message);
        return FAILED;
    }
    print_findings();
    printf("%s, %zu finding%s.\n", verdicts[worst], found, found == 1 ? "" : "s");
    return worst <= PQTX_SEVERITY_NOTE ? 0 : (int)worst - 1;
}

static int run(PGconn *conn, const char *sql)
{
    PGresult *result = PQexec(conn, sql);
    int good = PQresultStatus(result) == PGRES_COMMAND_OK;

    if (!good)
        fprintf(stderr, "doctor: %s", PQresultErrorMessage(result));
    PQclear(result);
    return good;
}

/* A stock that anyone can oversell; each statement that mends it is run as it is given. */
static int demonstrate(pqtx_pool *pool, const char *conninfo)
{
    char table[] = "stock/pqtx_doctor.stock/id/left_over";
    PGconn *conn = PQconnectdb(conninfo ? conninfo : "");
    int good =
        run(conn, "SET client_min_messages = warning") &&
        run(conn, "DROP SCHEMA IF EXISTS pqtx_doctor CASCADE; CREATE SCHEMA pqtx_doctor;"
                  "CREATE TABLE pqtx_doctor.stock (id int, left_over int);"
                  "CREATE INDEX ON pqtx_doctor.stock (left_over);"
                  "CREATE FUNCTION pqtx_doctor.has(int) RETURNS bool LANGUAGE sql IMMUTABLE AS"
                  " 'SELECT left_over > 0 FROM pqtx_doctor.stock WHERE id = $1'");

    schema.schema = "pqtx_doctor";
    good = good && describe(table) && check(pool) == 2;
    for (size_t i = 0; good && i < found; i++)
        if (strncmp(findings[i].object, "pqtx_doctor.", 12) == 0) /* and nothing else */
            good = run(conn, findings[i].mend);
    puts("\nMended:");
    good = good && check(pool) != FAILED;
    PQfinish(conn);
    return good ? 0 : FAILED;
}

int main(int argc, char **argv)
{
    pqtx_pool_options options = PQTX_POOL_OPTIONS;
    pqtx_error error = PQTX_ERROR;
    pqtx_pool *pool;
    int demo = 0, good = 1;

    for (int c; (c = getopt(argc, argv, "ds:t:")) != -1;) {
        demo |= c == 'd';
        good = good && c != '?' && (c != 't' || describe(optarg));
        if (c == 's')
            schema.schema = optarg;
    }
    if (!good || argc > optind + 1) {
        fputs("usage: doctor [-d] [-s schema] [-t kind/table/...]... [conninfo]\n", stderr);
        return FAILED;
    }
    options.conninfo = argc > optind ? argv[optind] : getenv("PQTX_TEST_CONNINFO");
    if (pqtx_pool_open(&options, &pool, &error)) {
        fprintf(stderr, "doctor: %s\n", error.message);
        return FAILED;
    }
    int status = demo ? demonstrate(pool, options.conninfo) : check(pool);
    pqtx_pool_close(pool);
    return status;
}
