/* stampede.c: a crowd books the same seats at once, with pqtx and without.
 *
 * cc stampede.c -o stampede $(pkg-config --cflags --libs pqtx libpq) -pthread
 * ./stampede [-t threads] [-s seats] [-d seconds]
 *
 * The server is that of PQTX_TEST_CONNINFO, or else of libpq's environment.  Each sale is appended
 * to pqtx_stampede_sale in the transaction that takes the seat, and the verdict is SQL over that
 * table.  It lacks the unique index that a real one has, so that a double booking can be seen. */
#define _POSIX_C_SOURCE 200809L

#include <libpq-fe.h>
#include <pqtx.h>

#include <inttypes.h>
#include <langinfo.h>
#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define LOOK "SELECT taken_by FROM pqtx_stampede_seat WHERE show = $1 AND seat = $2"
#define TAKE "UPDATE pqtx_stampede_seat SET taken_by = $3 WHERE show = $1 AND seat = $2"
#define SELL "INSERT INTO pqtx_stampede_sale VALUES ($1, $2, $3)"

/* A house full of seats, sold in one way. */
struct show {
    const char *name;
    int by_hand;
    int64_t id;
    pqtx_pool *pool;
    atomic_bool *taken;  /* the seat map, from 1, as customers see it: it can be out of date */
    int64_t *latency_us; /* by customer */
    atomic_int taken_count, customers, running, sold, gone, unanswered;
    atomic_bool stop, broken;
    pqtx_error trouble; /* the first */
    int quarter;        /* of the seats: the last one told */
    int64_t start_us, end_us;
    int64_t seats_sold, double_seats, extra_tickets; /* by SQL, when all is over */
    pqtx_stats stats;
};

struct worker {
    struct show *show;
    PGconn *conn; /* of a show that is sold by hand */
    pthread_t thread;
    unsigned seed;
};

struct booking {
    int64_t show;
    int seat, customer;
    const char *look; /* the statement that looks first, or NULL */
};

static int threads = 16, seats = 1000, seconds = 60;
static int crowd; /* customers at most: enough for each thread to try each seat, and then some */
static int on_terminal, in_utf8, in_color;
static volatile sig_atomic_t interrupted;
static pthread_mutex_t door = PTHREAD_MUTEX_INITIALIZER; /* locked until all threads are there */

static void die(const char *what)
{
    fprintf(stderr, "stampede: %.*s\n", (int)strcspn(what, "\n"), what);
    exit(EXIT_FAILURE);
}

static void *zeroed(int count, size_t size)
{
    void *memory = calloc((size_t)count, size);

    if (!memory)
        die("out of memory");
    return memory;
}

static int64_t now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* ---- booking with pqtx ---- */

static pqtx_status take_seat(pqtx_tx *tx, void *arg)
{
    const struct booking *b = arg;
    const pqtx_value values[] = {PQTX_INT(b->show), PQTX_INT(b->seat), PQTX_INT(b->customer)};
    const PGresult *row;

    if (b->look) {
        pqtx_status status = pqtx_exec_one(tx, b->look, 2, values, &row);
        if (status != PQTX_OK)
            return status;
        if (!PQgetisnull(row, 0, 0))
            return PQTX_NO_MATCH;
    }
    pqtx_update_one(tx, b->look ? TAKE : TAKE " AND taken_by IS NULL", 3, values);
    return pqtx_exec(tx, SELL, 3, values, NULL);
}

/* Three ways that hold, and hold beside each other: half of the customers put the condition into
 * the UPDATE, a quarter locks the row before it looks, and a quarter does what by_hand() does, at
 * SERIALIZABLE. */
static pqtx_status by_pqtx(pqtx_pool *pool, struct booking *b, pqtx_error *error)
{
    pqtx_options options = PQTX_OPTIONS;

    options.deadline_ms = 5000; /* Ctrl-C never waits longer */
    b->look = NULL;
    if (b->customer % 4 == 1) {
        b->look = LOOK " FOR NO KEY UPDATE NOWAIT";
    } else if (b->customer % 4 == 3) {
        b->look = LOOK;
        options.isolation = PQTX_ISO_SERIALIZABLE;
    }
    return pqtx_run(pool, &options, take_seat, b, error);
}

/* ---- booking by hand ---- */

static int command(PGconn *conn, const char *sql, int count, const char *const *values)
{
    PGresult *result = PQexecParams(conn, sql, count, NULL, values, NULL, NULL, 0);
    int done = PQresultStatus(result) == PGRES_COMMAND_OK;

    PQclear(result);
    return done;
}

/* What everybody writes first.  Between the SELECT and the COMMIT others can read the same. */
static pqtx_status by_hand(PGconn *conn, const struct booking *b, pqtx_error *error)
{
    char show[24], seat[24], customer[24];
    const char *const values[] = {show, seat, customer};

    snprintf(show, sizeof show, "%" PRId64, b->show);
    snprintf(seat, sizeof seat, "%d", b->seat);
    snprintf(customer, sizeof customer, "%d", b->customer);
    int begun = command(conn, "BEGIN ISOLATION LEVEL READ COMMITTED", 0, NULL);
    PGresult *row = PQexecParams(conn, LOOK, 2, NULL, values, NULL, NULL, 0);
    int found = begun && PQntuples(row) == 1, vacant = found && PQgetisnull(row, 0, 0);
    PQclear(row);
    if (found && !vacant && command(conn, "ROLLBACK", 0, NULL))
        return PQTX_NO_MATCH;
    if (vacant && command(conn, TAKE, 3, values) && command(conn, SELL, 3, values) &&
        command(conn, "COMMIT", 0, NULL))
        return PQTX_OK;
    const char *text = PQerrorMessage(conn);
    snprintf(error->message, sizeof error->message, "%.*s", (int)strcspn(text, "\n"), text);
    return error->status = PQTX_SERVER_ERROR;
}

/* ---- the customers ---- */

/* A seat at random among those that look free, 0 if none does. */
static int pick_seat(struct worker *w)
{
    int first = rand_r(&w->seed) % seats;

    for (int i = 0; i < seats; i++) {
        int seat = 1 + (first + i) % seats;
        if (!atomic_load(&w->show->taken[seat]))
            return seat;
    }
    return 0;
}

/* Someone gave up after all retries, or is in doubt: that is life.  Anything else ends the show. */
static void leave_unanswered(struct show *show, pqtx_status status, const pqtx_error *error)
{
    if (atomic_fetch_add(&show->unanswered, 1) == 0)
        show->trouble = *error;
    if (!pqtx_is_retryable(status) && !pqtx_maybe_committed(status)) {
        atomic_store(&show->broken, 1);
        atomic_store(&show->stop, 1);
    }
}

static void *serve_customers(void *arg)
{
    struct worker *w = arg;
    struct show *show = w->show;
    struct booking b = {.show = show->id};
    pqtx_error error = PQTX_ERROR;

    pthread_mutex_lock(&door);
    pthread_mutex_unlock(&door);
    while (!atomic_load(&show->stop) && (b.seat = pick_seat(w)) &&
           (b.customer = atomic_fetch_add(&show->customers, 1)) < crowd) {
        int64_t start_us = now_us();
        pqtx_status status =
            w->conn ? by_hand(w->conn, &b, &error) : by_pqtx(show->pool, &b, &error);
        show->latency_us[b.customer] = now_us() - start_us;
        if (status == PQTX_OK || status == PQTX_NO_MATCH) {
            atomic_fetch_add(status == PQTX_OK ? &show->sold : &show->gone, 1);
            if (!atomic_exchange(&show->taken[b.seat], 1))
                atomic_fetch_add(&show->taken_count, 1);
        } else {
            leave_unanswered(show, status, &error);
        }
    }
    if (atomic_fetch_sub(&show->running, 1) == 1)
        show->end_us = now_us();
    return NULL;
}

/* ---- what is seen meanwhile ---- */

static const char *paint(const char *escape)
{
    return in_color ? escape : "";
}

static void put_bar(int cells, double share)
{
    static const char *const eighths[] = {" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    int filled = (int)(share * cells * 8);

    for (int i = 0; i < cells; i++, filled -= 8)
        if (in_utf8)
            fputs(filled >= 8 ? "█" : eighths[filled > 0 ? filled : 0], stdout);
        else
            putchar(filled >= 8 ? '#' : '.');
}

/* On a terminal one line, drawn over and over; elsewhere one for each quarter of the seats. */
static void draw(struct show *show, int64_t elapsed_us, int last)
{
    int taken = atomic_load(&show->taken_count), quarter = 4 * taken / seats;
    int width = snprintf(NULL, 0, "%d", seats);
    char text[128];
    int len = snprintf(text, sizeof text, "%*d/%d seats, %*d tickets, %.1f s", width, taken, seats,
                       width, atomic_load(&show->sold), (double)elapsed_us / 1e6);

    if (on_terminal) {
        struct winsize size;
        int columns = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) || !size.ws_col ? 80 : size.ws_col;
        int room = columns - 22; /* right of the name; the last column stays free */
        printf("\r  %-16s %s", show->name, paint(show->by_hand ? "\033[33m" : "\033[32m"));
        put_bar(room - 2 - len, (double)taken / seats);
        printf("%s  %.*s\033[K", paint("\033[0m"), room > 0 ? room : 0, text);
        fputs(last ? "\n" : "", stdout);
        fflush(stdout);
    } else if (last || (quarter > show->quarter && quarter < 4)) {
        show->quarter = quarter;
        printf("  %-16s  %s\n", show->name, text);
    }
}

static void watch(struct show *show)
{
    const struct timespec tick = {.tv_nsec = 40000000};

    while (atomic_load(&show->running)) {
        int64_t elapsed_us = now_us() - show->start_us;
        if (interrupted || elapsed_us > seconds * INT64_C(1000000))
            atomic_store(&show->stop, 1);
        draw(show, elapsed_us, 0);
        nanosleep(&tick, NULL);
    }
}

/* ---- one show ---- */

/* Stampedes may run beside each other, and CREATE TABLE IF NOT EXISTS is not safe against itself:
 * the lock makes it so. */
static pqtx_status open_show(pqtx_tx *tx, void *arg)
{
    static const char seat_table[] =
        "CREATE TABLE IF NOT EXISTS pqtx_stampede_seat (show int, seat int, taken_by int,"
        " PRIMARY KEY (show, seat)) WITH (fillfactor = 50)";
    static const char sale_table[] =
        "CREATE TABLE IF NOT EXISTS pqtx_stampede_sale (show int, seat int, customer int)";
    struct show *show = arg;
    const PGresult *row;

    pqtx_lock(tx, 7077004);
    pqtx_exec(tx, seat_table, PQTX_NO_ARGS, NULL);
    pqtx_exec(tx, sale_table, PQTX_NO_ARGS, NULL);
    pqtx_status status = pqtx_exec_one(
        tx, "SELECT coalesce(max(show), 0) + 1 FROM pqtx_stampede_seat", PQTX_NO_ARGS, &row);
    if (status || (status = pqtx_get_int(row, 0, 0, &show->id)))
        return status;
    return pqtx_exec(tx,
                     "INSERT INTO pqtx_stampede_seat SELECT $1::int, generate_series(1, $2::int)",
                     PQTX_ARGS(PQTX_INT(show->id), PQTX_INT(seats)), NULL);
}

static pqtx_status close_show(pqtx_tx *tx, void *arg)
{
    static const char sql[] =
        "SELECT count(*), count(*) FILTER (WHERE n > 1), coalesce(sum(n - 1), 0)::bigint"
        " FROM (SELECT count(*) AS n FROM pqtx_stampede_sale WHERE show = $1 GROUP BY seat) seats";
    struct show *show = arg;
    int64_t *const columns[] = {&show->seats_sold, &show->double_seats, &show->extra_tickets};
    const pqtx_value id = PQTX_INT(show->id);
    const PGresult *row;
    pqtx_status status = pqtx_exec_one(tx, sql, 1, &id, &row);

    for (int i = 0; i < 3 && status == PQTX_OK; i++)
        status = pqtx_get_int(row, 0, i, columns[i]);
    if (status != PQTX_OK)
        return status;
    pqtx_exec(tx, "DELETE FROM pqtx_stampede_sale WHERE show = $1", 1, &id, NULL);
    return pqtx_exec(tx, "DELETE FROM pqtx_stampede_seat WHERE show = $1", 1, &id, NULL);
}

static int by_size(const void *a, const void *b)
{
    int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;

    return (left > right) - (left < right);
}

static void sell(struct show *show, struct worker *workers)
{
    pthread_mutex_lock(&door);
    show->running = threads;
    for (int i = 0; i < threads; i++) {
        workers[i].show = show;
        workers[i].seed = (unsigned)now_us() + (unsigned)i * 7919;
        if (pthread_create(&workers[i].thread, NULL, serve_customers, &workers[i]))
            die("no more threads");
    }
    show->start_us = now_us();
    pthread_mutex_unlock(&door);
    watch(show);
    for (int i = 0; i < threads; i++)
        pthread_join(workers[i].thread, NULL);
    draw(show, show->end_us - show->start_us, 1);
    if (show->customers > crowd)
        show->customers = crowd;
    qsort(show->latency_us, (size_t)show->customers, sizeof *show->latency_us, by_size);
    pqtx_pool_stats(show->pool, &show->stats);
}

/* Whoever sells, all connections stand before the first customer comes. */
static void run_show(struct show *show, const char *conninfo)
{
    struct worker *workers = zeroed(threads, sizeof *workers);
    pqtx_pool_options pool_options = PQTX_POOL_OPTIONS;
    pqtx_options options = PQTX_OPTIONS;
    pqtx_error error = PQTX_ERROR;
    char line[1024];

    show->taken = zeroed(seats + 1, sizeof *show->taken);
    show->latency_us = zeroed(crowd, sizeof *show->latency_us);
    for (int i = 0; i < threads && show->by_hand; i++) {
        workers[i].conn = PQconnectdb(conninfo);
        if (PQstatus(workers[i].conn) != CONNECTION_OK)
            die(PQerrorMessage(workers[i].conn));
    }
    pool_options.conninfo = conninfo;
    pool_options.min_count = pool_options.max_count = show->by_hand ? 1 : threads;
    options.isolation = PQTX_ISO_READ_COMMITTED; /* pqtx_lock() asks for it */
    int failed = pqtx_pool_open(&pool_options, &show->pool, &error) ||
                 pqtx_run(show->pool, &options, open_show, show, &error);
    if (!failed) {
        sell(show, workers);
        failed = pqtx_run(show->pool, NULL, close_show, show, &error) != PQTX_OK;
    }
    if (failed) {
        pqtx_error_format(&error, line, sizeof line);
        die(line);
    }
    pqtx_pool_close(show->pool);
    for (int i = 0; i < threads; i++)
        PQfinish(workers[i].conn);
    free(workers);
}

/* ---- the report ---- */

static int64_t percentile(const struct show *show, int percent)
{
    int64_t count = show->customers;

    return count ? show->latency_us[(count * percent + 99) / 100 - 1] : 0;
}

static void report(const struct show *a, const struct show *b, int count)
{
    const pqtx_stats *s = &a->stats;
    int64_t a_us = a->end_us - a->start_us + 1, b_us = b->end_us - b->start_us + 1;
    const struct {
        const char *label;
        int64_t values[2]; /* -1: there is no such thing */
        int unit, alarm;   /* unit 0: a heading */
    } rows[] = {
        {"seats sold", {a->seats_sold, b->seats_sold}, 1, 0},
        {"seats sold more than once", {a->double_seats, b->double_seats}, 1, 1},
        {"double bookings", {a->extra_tickets, b->extra_tickets}, 1, 1},
        {"told that it is gone", {a->gone, b->gone}, 1, 0},
        {"customers", {a->customers, b->customers}, 1, 0},
        {"  per second", {a->customers * 1000000LL / a_us, b->customers * 1000000LL / b_us}, 1, 0},
        {"latency of a booking, ms", {0}, 0, 0},
        {"  p50", {percentile(a, 50), percentile(b, 50)}, 1000, 0},
        {"  p95", {percentile(a, 95), percentile(b, 95)}, 1000, 0},
        {"  p99", {percentile(a, 99), percentile(b, 99)}, 1000, 0},
        {"  max", {percentile(a, 100), percentile(b, 100)}, 1000, 0},
        {"begun again", {0}, 0, 0},
        {"  lost a race (40001)", {(int64_t)s->retries_serialization, -1}, 1, 0},
        {"  row was busy (55P03)", {(int64_t)s->retries_busy, -1}, 1, 0},
        {"  deadlock (40P01)", {(int64_t)s->retries_deadlock, -1}, 1, 0},
        {"  connection lost", {(int64_t)s->retries_connection, -1}, 1, 0},
        {"  other cause", {(int64_t)s->retries_other, -1}, 1, 0},
    };

    printf("\n%s%48s%*s%s\n", paint("\033[1m"), a->name, count > 1 ? 18 : 0,
           count > 1 ? b->name : "", paint("\033[0m"));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        printf("  %-*s", rows[i].unit ? 28 : 0, rows[i].label);
        for (int k = 0; k < count && rows[i].unit > 0; k++) {
            int64_t value = rows[i].values[k];
            if (rows[i].alarm)
                fputs(paint(value ? "\033[1;31m" : "\033[1;32m"), stdout);
            if (value < 0)
                printf("%18s", "-");
            else
                printf("%18.*f%s", rows[i].unit > 1 ? 2 : 0, (double)value / rows[i].unit,
                       paint("\033[0m"));
        }
        putchar('\n');
    }
    putchar('\n');
}

/* Says how a show ended; 1 if it sold what it said, and nothing twice. */
static int verdict(const struct show *show)
{
    int64_t tickets = show->seats_sold + show->extra_tickets;
    int truthful = tickets >= show->sold && tickets <= show->sold + show->unanswered;
    char line[1024];

    printf("%s sold %" PRId64 " of %d seats%s, ", show->name, show->seats_sold, seats,
           show->stop ? " before it was stopped" : "");
    if (show->double_seats > 0)
        printf("%" PRId64 " of them more than once.\n", show->double_seats);
    else
        printf("none of them twice%s.\n",
               show->by_hand ? ", though nothing in it prevents that" : "");
    if (show->unanswered > 0) {
        pqtx_error_format(&show->trouble, line, sizeof line);
        printf("%s left %d customers without an answer: %s\n", show->name, show->unanswered, line);
    }
    if (!truthful)
        printf("%s confirmed %d tickets, but %" PRId64 " are in the table.\n", show->name,
               show->sold, tickets);
    return truthful && show->extra_tickets == 0 && !show->broken &&
           (show->stop || show->seats_sold == seats);
}

/* ---- the program ---- */

static void interrupt(int number)
{
    (void)number;
    interrupted = 1;
}

static int usage(FILE *stream, int exit_status)
{
    fputs("usage: stampede [-t threads] [-s seats] [-d seconds] [-h]\n", stream);
    return exit_status;
}

static int number(int option, int max)
{
    char *end;
    long value = strtol(optarg, &end, 10);

    if (end != optarg && *end == '\0' && value >= 1 && value <= max)
        return (int)value;
    fprintf(stderr, "stampede: -%c takes a number from 1 to %d\n", option, max);
    exit(usage(stderr, 2));
}

static void look_around(void)
{
    const char *term = getenv("TERM"), *no_color = getenv("NO_COLOR");
    const struct sigaction stop = {.sa_handler = interrupt, .sa_flags = (int)SA_RESETHAND};
    const struct sigaction ignore = {.sa_handler = SIG_IGN};

    setlocale(LC_CTYPE, "");
    setvbuf(stdout, NULL, _IOLBF, 0);
    on_terminal = isatty(STDOUT_FILENO) && term && strcmp(term, "dumb") != 0;
    in_utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
    in_color = on_terminal && !(no_color && *no_color);
    sigaction(SIGINT, &stop, NULL);
    sigaction(SIGTERM, &stop, NULL);
    sigaction(SIGPIPE, &ignore, NULL); /* a closed pipe must not leave a show behind */
}

int main(int argc, char **argv)
{
    static struct show shows[2] = {{.name = "pqtx", .stats = PQTX_STATS},
                                   {.name = "read-check-write", .by_hand = 1, .stats = PQTX_STATS}};
    const char *conninfo = getenv("PQTX_TEST_CONNINFO");
    int option, count = 0;

    while ((option = getopt(argc, argv, "t:s:d:h")) != -1) {
        if (option == 't')
            threads = number(option, 80); /* fits the default of 100 connections */
        else if (option == 's')
            seats = number(option, 100000);
        else if (option == 'd')
            seconds = number(option, 3600);
        else
            return option == 'h' ? usage(stdout, 0) : usage(stderr, 2);
    }
    if (optind < argc)
        return usage(stderr, 2);
    crowd = threads * seats + 1000;
    look_around();
    printf("Seats: %d.  Customers at a time: %d.\n\n", seats, threads);
    while (count < 2 && !interrupted)
        run_show(&shows[count++], conninfo ? conninfo : "");
    report(&shows[0], &shows[1], count);
    int good = count > 0 && verdict(&shows[0]);
    if (count > 1)
        verdict(&shows[1]);
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
