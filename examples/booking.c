/* booking.c: two bookings of a room never overlap; each rule of the schema that says no has a
 * status of our own.
 *
 * cc booking.c -o booking $(pkg-config --cflags --libs pqtx libpq)
 * ./booking [connection string] */
#include <libpq-fe.h>
#include <pqtx.h>

#include <stdio.h>
#include <stdlib.h>

enum { TAKEN = PQTX_USER + 1, NO_SUCH_ROOM, NO_TIME };

/* From the constraints' names to what they mean. */
static const pqtx_constraint rules[] = {
    {"pqtx_booking_no_overlap", (pqtx_status)TAKEN},
    {"pqtx_booking_room", (pqtx_status)NO_SUCH_ROOM},
    {"pqtx_booking_takes_time", (pqtx_status)NO_TIME},
};

/* A range of one room, so that && compares rooms too; `room WITH =` would need btree_gist.  CREATE
 * TABLE IF NOT EXISTS is not safe against itself: the lock makes it so. */
static pqtx_status open_house(pqtx_tx *tx, void *arg)
{
    (void)arg;
    pqtx_lock(tx, 7077004);
    pqtx_exec(tx, "CREATE TABLE IF NOT EXISTS pqtx_room (id int PRIMARY KEY)", PQTX_NO_ARGS, NULL);
    pqtx_exec(tx,
              "CREATE TABLE IF NOT EXISTS pqtx_booking ("
              " room int CONSTRAINT pqtx_booking_room REFERENCES pqtx_room,"
              " hours int4range CONSTRAINT pqtx_booking_takes_time CHECK (NOT isempty(hours)),"
              " guest text NOT NULL,"
              " CONSTRAINT pqtx_booking_no_overlap EXCLUDE USING gist"
              " (int4range(room, room, '[]') WITH &&, hours WITH &&))",
              PQTX_NO_ARGS, NULL);
    pqtx_exec(tx, "TRUNCATE pqtx_booking", PQTX_NO_ARGS, NULL);
    return pqtx_exec(tx, "INSERT INTO pqtx_room VALUES (1), (2) ON CONFLICT DO NOTHING",
                     PQTX_NO_ARGS, NULL);
}

struct booking {
    int room, from, to;
    const char *guest;
    int expected;
};

static const char *meaning(pqtx_status status)
{
    switch ((int)status) {
    case PQTX_OK:
        return "booked";
    case TAKEN:
        return "no, the room is taken";
    case NO_SUCH_ROOM:
        return "no, there is no such room";
    case NO_TIME:
        return "no, that is no time at all";
    default:
        return NULL;
    }
}

/* Nothing is looked up first: the constraint decides, also between two who book at once, of whom
 * the second waits for the first to commit. */
static int book_all(pqtx_pool *pool, pqtx_error *error)
{
    static const struct booking day[] = {
        {1, 9, 12, "Ann", PQTX_OK},  {1, 11, 13, "Bob", TAKEN},       {1, 12, 13, "Bob", PQTX_OK},
        {2, 11, 13, "Eve", PQTX_OK}, {7, 9, 10, "Cid", NO_SUCH_ROOM}, {2, 15, 15, "Cid", NO_TIME},
    };
    pqtx_options options = PQTX_OPTIONS;
    int surprises = 0;

    options.constraints = rules;
    options.constraint_count = sizeof rules / sizeof *rules;
    for (const struct booking *b = day; b < day + sizeof day / sizeof *day; b++) {
        pqtx_status status = pqtx_run_one(
            pool, &options, "INSERT INTO pqtx_booking VALUES ($1, int4range($2, $3), $4)",
            PQTX_ARGS(PQTX_INT(b->room), PQTX_INT(b->from), PQTX_INT(b->to), PQTX_TEXT(b->guest)),
            1, NULL, error);
        if (!meaning(status))
            return -1;
        printf("%s, room %d, %d to %d: %s\n", b->guest, b->room, b->from, b->to, meaning(status));
        surprises += (int)status != b->expected;
    }
    return surprises;
}

int main(int argc, char **argv)
{
    pqtx_pool_options pool_options = PQTX_POOL_OPTIONS;
    pqtx_options options = PQTX_OPTIONS;
    pqtx_error error = PQTX_ERROR;
    pqtx_pool *pool = NULL;
    char line[1024];

    pool_options.conninfo = argc > 1 ? argv[1] : getenv("PQTX_TEST_CONNINFO");
    options.isolation = PQTX_ISO_READ_COMMITTED; /* pqtx_lock() asks for it */
    int surprises = -1;
    if (pqtx_pool_open(&pool_options, &pool, &error) == PQTX_OK &&
        pqtx_run(pool, &options, open_house, NULL, &error) == PQTX_OK)
        surprises = book_all(pool, &error);
    pqtx_pool_close(pool);
    if (surprises < 0) {
        pqtx_error_format(&error, line, sizeof line);
        fprintf(stderr, "booking: %s\n", line);
    }
    return surprises != 0;
}
