/* support_fake.h: a server that speaks the protocol from a script.
 *
 * It lives in the test's own thread and acts only while somebody waits on its clock.  So every
 * order of events is the same in every run, and what never comes is waited for in no time. */
#ifndef PQTX_TESTS_SUPPORT_FAKE_H
#define PQTX_TESTS_SUPPORT_FAKE_H

#include <pqtx.h>

#include <libpq-fe.h>
#include <stdbool.h>
#include <stddef.h>

struct fake_connection;

/* A statement that came, "(startup)" or "(sync)". */
struct fake_event {
    int connection; /* from 1 */
    bool ran;       /* false: it was passed over, after an error, up to the Sync */
    char text[512];
};

struct fake {
    pqtx_clock clock; /* of which every throw of the dice gives one half */
    int64_t now_us, slept_us;
    size_t chunk; /* how many bytes it says for each wait of the client; 0: all that there are */

    struct fake_event *events;
    size_t event_count, event_capacity;

    char folder[32];
    char conninfo[128]; /* with FAKE_PASSWORD */
    int listener;
    struct fake_connection *connections;
    int connection_count;
    struct fake_rule {
        char *text, *script;
        bool always;
    } * rules;
    size_t rule_count;
};

#define FAKE_PASSWORD "open-sesame"

struct fake *fake_open(void);

/* The test fails if a client has left a connection open. */
void fake_close(struct fake *fake);

/* Without a script it is a server that likes every statement: it knows whether a transaction is
 * under way, answers 25P02 in a failed one and passes over what follows an error up to the Sync.
 * A flight that begins with set_config() is a transaction by itself.  The test fails if a write or
 * a COMMIT comes outside a transaction; but a COMMIT that was under way when BEGIN failed is
 * answered as PostgreSQL does, with a warning and COMMIT.
 *
 * The next statement that holds `text`, or all of them, is answered by the script instead; where
 * several could answer, the one that was given first.  A script is a list of phrases with a ; in
 * between: those of support_message.h, and
 *
 *     times N PHRASE    the phrase N times
 *     late MS           so much of the clock's time passes
 *     mute              from here on nothing that comes is heard
 *     close             the connection is closed, once all that was said has been sent
 *     cut N             of this script only the first N bytes are sent, and then it is closed
 *
 * ParseComplete, BindComplete and, where no columns follow, NoData go in front by themselves.
 * After `fatal` and `panic` the connection is mute.  What a script for "(sync)" says goes in front
 * of ReadyForQuery; one for "(startup)" is all that a new connection hears; one for "(parse) TEXT"
 * is all that follows the Parse of such a statement. */
void fake_on(struct fake *fake, const char *text, const char *script);
void fake_always(struct fake *fake, const char *text, const char *script);

/* Forgets all scripts. */
void fake_forget(struct fake *fake);

/* What a new connection hears without a script, up to ReadyForQuery. */
#define FAKE_WELCOME                                                                               \
    "authenticated; parameter server_version 15.0; parameter client_encoding UTF8;"                \
    " parameter standard_conforming_strings on; parameter in_hot_standby off; key 4711; ready I"

/* Says this now, unasked, to the newest connection. */
void fake_say(struct fake *fake, const char *script);

/* How many of what came hold this text; how many of those were run. */
int fake_heard(const struct fake *fake, const char *text);
int fake_ran(const struct fake *fake, const char *text);

/* A connection of the caller's own. */
PGconn *fake_connect(struct fake *fake);

#endif
