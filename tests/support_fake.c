/* support_fake.c: a server that speaks the protocol from a script. */
#define _DEFAULT_SOURCE
#include "support_fake.h"
#include "support_link.h"
#include "support_message.h"

#include <check.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define STARTUP "(startup)"
#define SYNC    "(sync)"
#define PARSE   "(parse) "

/* What begins a flight that is a transaction without BEGIN. */
#define IMPLICIT "SELECT WHERE pg_catalog.set_config("

struct fake_connection {
    struct link link;
    int number;
    char sql[4096]; /* the statement that was parsed last, or is being answered */
    char state;     /* of ReadyForQuery */
    bool started, skipping, mute, closing;
    bool named;     /* `sql` was prepared: its Parse has been answered */
    bool implicit;  /* the flight is a transaction by itself */
    bool not_begun; /* BEGIN has failed, and a COMMIT behind it may be under way already */
    struct prepared {
        char name[48], sql[512];
    } prepared[64];
    int prepared_count;
};

/* ---- what it says */

static void perform(struct fake *fake, struct fake_connection *c, const char *script);

static bool ends_transaction(const char *sql)
{
    return begins_with(sql, "COMMIT") || begins_with(sql, "ROLLBACK");
}

static void fail_statement(struct fake_connection *c)
{
    c->skipping = true;
    c->not_begun = begins_with(c->sql, "BEGIN");
    if (begins_with(c->sql, "COMMIT"))
        c->state = 'I';
    else if (c->state == 'T')
        c->state = 'E';
}

static void heed(struct fake_connection *c, const char *phrase)
{
    if (begins_with(phrase, "error") || strncmp(phrase, "pooler ERROR", 12) == 0)
        fail_statement(c);
    else if (begins_with(phrase, "fatal") || begins_with(phrase, "panic") ||
             strncmp(phrase, "pooler FATAL", 12) == 0)
        c->mute = true;
    else if (begins_with(phrase, "complete") && begins_with(c->sql, "BEGIN"))
        c->state = 'T';
    else if (begins_with(phrase, "complete") && ends_transaction(c->sql))
        c->state = 'I';
}

/* `start` is where the script's bytes begin. */
static void utter(struct fake *fake, struct fake_connection *c, const char *phrase, size_t start)
{
    if (begins_with(phrase, "times")) {
        const char *repeated = after_word(after_word(phrase));
        for (long n = strtol(after_word(phrase), NULL, 10); n > 0; n--)
            utter(fake, c, repeated, start);
    } else if (begins_with(phrase, "late")) {
        fake->now_us += 1000 * strtol(after_word(phrase), NULL, 10);
    } else if (begins_with(phrase, "cut")) {
        size_t len = start + strtoul(after_word(phrase), NULL, 10);
        c->link.out.len = len < c->link.out.len ? len : c->link.out.len;
        c->closing = true;
    } else if (strcmp(phrase, "close") == 0) {
        c->closing = true;
    } else if (strcmp(phrase, "mute") == 0) {
        c->mute = true;
    } else {
        say_phrase(&c->link.out, phrase);
        heed(c, phrase);
    }
}

static void perform(struct fake *fake, struct fake_connection *c, const char *script)
{
    size_t start = c->link.out.len;
    while (*script) {
        char phrase[512];
        size_t len = strcspn(script, ";");
        ck_assert_uint_lt(len, sizeof phrase);
        memcpy(phrase, script, len);
        phrase[len] = '\0';
        if (len > 0)
            utter(fake, c, phrase, start);
        script += len + (script[len] == ';');
        script += strspn(script, " ");
    }
}

/* ---- what it answers */

/* The script for this text, the caller's; NULL if there is none.  `kind` goes in front of it. */
static char *take_rule_of(struct fake *fake, const char *kind, const char *text)
{
    size_t kind_len = strlen(kind);
    for (size_t i = 0; i < fake->rule_count; i++) {
        struct fake_rule *rule = &fake->rules[i];
        if (strncmp(rule->text, kind, kind_len) != 0 || !strstr(text, rule->text + kind_len))
            continue;
        if (rule->always)
            return strdup(rule->script);
        char *script = rule->script;
        free(rule->text);
        memmove(rule, rule + 1, (--fake->rule_count - i) * sizeof *rule);
        return script;
    }
    return NULL;
}

static char *take_rule(struct fake *fake, const char *text)
{
    return take_rule_of(fake, "", text);
}

/* Parse is answered by the statement's script for it; false if there is none. */
static bool parse_by_script(struct fake *fake, struct fake_connection *c)
{
    char *script = take_rule_of(fake, PARSE, c->sql);
    if (script)
        perform(fake, c, script);
    free(script);
    return script != NULL;
}

static void answer_by_itself(struct fake *fake, struct fake_connection *c)
{
    char script[128];
    const char *sql = c->sql;
    if (c->state == 'E' && !ends_transaction(sql))
        snprintf(script, sizeof script, "error 25P02");
    else if (begins_with(sql, "COMMIT") && c->state == 'I')
        snprintf(script, sizeof script, "warning 25P01 EndTransactionBlock; complete COMMIT");
    else if (begins_with(sql, "COMMIT"))
        snprintf(script, sizeof script, "complete %s", c->state == 'E' ? "ROLLBACK" : "COMMIT");
    else if (strstr(sql, "pg_backend_pid()"))
        snprintf(script, sizeof script,
                 "columns pid start version; row 4711|946684800000000|linux; complete SELECT 1");
    else if (begins_with(sql, "SELECT"))
        snprintf(script, sizeof script, "columns nothing; complete SELECT 0");
    else if (begins_with(sql, "INSERT"))
        snprintf(script, sizeof script, "complete INSERT 0 1");
    else
        snprintf(script, sizeof script, "complete %.*s", (int)strcspn(sql, " "), sql);
    if (!begins_with(script, "columns"))
        perform(fake, c, "nodata");
    perform(fake, c, script);
}

static void note(struct fake *fake, const struct fake_connection *c, const char *text)
{
    if (fake->event_count == fake->event_capacity) {
        fake->event_capacity = fake->event_capacity ? 2 * fake->event_capacity : 64;
        fake->events = realloc(fake->events, fake->event_capacity * sizeof *fake->events);
        ck_assert_ptr_nonnull(fake->events);
    }
    struct fake_event *event = &fake->events[fake->event_count++];
    *event = (struct fake_event){.connection = c->number, .ran = !c->skipping};
    snprintf(event->text, sizeof event->text, "%s", text);
}

static void run_statement(struct fake *fake, struct fake_connection *c)
{
    note(fake, c, c->sql);
    if (c->skipping)
        return;
    bool writes = begins_with(c->sql, "INSERT") || begins_with(c->sql, "UPDATE");
    bool commits = begins_with(c->sql, "COMMIT") && !c->not_begun;
    c->implicit |= strncmp(c->sql, IMPLICIT, sizeof IMPLICIT - 1) == 0;
    c->not_begun = false;
    ck_assert_msg(c->state != 'I' || c->implicit || !(writes || commits),
                  "outside a transaction: %s", c->sql);
    if (!c->named && parse_by_script(fake, c))
        return;
    perform(fake, c, c->named ? "bound" : "parsed; bound");
    char *script = take_rule(fake, c->sql);
    if (!script) {
        answer_by_itself(fake, c);
        return;
    }
    if (!begins_with(script, "columns"))
        perform(fake, c, "nodata");
    perform(fake, c, script);
    free(script);
}

static void end_flight(struct fake *fake, struct fake_connection *c)
{
    const char ready[] = {'r', 'e', 'a', 'd', 'y', ' ', c->state, '\0'};
    c->skipping = c->implicit = false;
    note(fake, c, SYNC);
    char *script = take_rule(fake, SYNC);
    if (script)
        perform(fake, c, script);
    free(script);
    c->skipping = false;
    if (!c->mute && !c->closing)
        perform(fake, c, ready);
}

static void start_up(struct fake *fake, struct fake_connection *c)
{
    char *script = take_rule(fake, STARTUP);
    note(fake, c, STARTUP);
    c->started = true;
    perform(fake, c, script ? script : FAKE_WELCOME);
    free(script);
}

/* ---- what it hears */

/* Parse: the statement stands behind its name; without one it is answered at Execute. */
static void parse(struct fake *fake, struct fake_connection *c, const char *name)
{
    const char *sql = name + strlen(name) + 1;
    snprintf(c->sql, sizeof c->sql, "%s", sql);
    if (!*name || c->skipping || parse_by_script(fake, c))
        return;
    ck_assert_int_lt(c->prepared_count, (int)(sizeof c->prepared / sizeof c->prepared[0]));
    struct prepared *prepared = &c->prepared[c->prepared_count++];
    ck_assert_uint_lt(strlen(sql), sizeof prepared->sql);
    strcpy(prepared->sql, sql);
    snprintf(prepared->name, sizeof prepared->name, "%s", name);
    perform(fake, c, "parsed");
}

/* Bind: behind the portal's name stands the statement's. */
static void bind_statement(struct fake_connection *c, const char *portal)
{
    const char *name = portal + strlen(portal) + 1;
    c->named = *name;
    for (int i = 0; *name && i < c->prepared_count; i++)
        if (strcmp(c->prepared[i].name, name) == 0)
            strcpy(c->sql, c->prepared[i].sql);
}

static void hear(struct fake *fake, struct fake_connection *c, char type, const char *body)
{
    switch (type) {
    case 'P':
        parse(fake, c, body);
        break;
    case 'B':
        bind_statement(c, body);
        break;
    case 'E': /* Execute */
        run_statement(fake, c);
        break;
    case 'S':
        end_flight(fake, c);
        break;
    case 'X':
        c->closing = true;
        break;
    default: /* Describe, Flush: the answer comes at Execute */
        break;
    }
}

static void hear_all(struct fake *fake, struct fake_connection *c)
{
    const char *body;
    char type;
    while (!c->mute && !c->closing &&
           (body = link_next(&c->link, c->started ? 1 : 0, &type)) != NULL) {
        if (c->started)
            hear(fake, c, type, body);
        else
            start_up(fake, c);
    }
}

static void accept_all(struct fake *fake)
{
    int fd;
    while ((fd = accept(fake->listener, NULL, NULL)) >= 0) {
        int count = ++fake->connection_count;
        size_t size = (size_t)count * sizeof *fake->connections;
        fake->connections = realloc(fake->connections, size);
        ck_assert_ptr_nonnull(fake->connections);
        fake->connections[count - 1] =
            (struct fake_connection){.link.fd = fd, .number = count, .state = 'I'};
    }
}

/* Where it says little at a time, the end of the connection comes by itself as well. */
static void act(struct fake *fake)
{
    accept_all(fake);
    for (int i = 0; i < fake->connection_count; i++) {
        struct fake_connection *c = &fake->connections[i];
        if (c->link.fd >= 0)
            link_receive(&c->link);
        if (c->link.fd < 0)
            continue;
        hear_all(fake, c);
        bool had_said_all = link_unsent(&c->link) == 0;
        link_send(&c->link, fake->chunk ? fake->chunk : SIZE_MAX);
        if (c->closing && link_unsent(&c->link) == 0 && (had_said_all || fake->chunk == 0))
            link_close(&c->link);
    }
}

/* ---- its clock */

static int64_t now_us(void *arg)
{
    return ((struct fake *)arg)->now_us;
}

/* Where nothing comes although the server has done all it can, nothing will come: the time
 * passes. */
static int wait_for(void *arg, int fd, int events, int64_t timeout_us)
{
    struct fake *fake = arg;
    struct pollfd one = {.fd = fd};
    one.events = (short)(((events & PQTX_WAIT_READ) ? POLLIN : 0) |
                         ((events & PQTX_WAIT_WRITE) ? POLLOUT : 0));
    if (fd >= 0 && timeout_us > 0)
        act(fake);
    if (fd >= 0 && poll(&one, 1, 0) > 0)
        return events;
    fake->now_us += timeout_us;
    if (fd < 0)
        fake->slept_us += timeout_us;
    return 0;
}

static uint64_t throw_dice(void *arg)
{
    (void)arg;
    return UINT64_C(1) << 63;
}

/* ---- for the test */

struct fake *fake_open(void)
{
    struct fake *fake = calloc(1, sizeof *fake);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    ck_assert_ptr_nonnull(fake);
    strcpy(fake->folder, "/tmp/pqtx-fake.XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(fake->folder));
    snprintf(address.sun_path, sizeof address.sun_path, "%s/.s.PGSQL.1", fake->folder);
    snprintf(fake->conninfo, sizeof fake->conninfo,
             "host=%s port=1 user=nobody dbname=nothing password=" FAKE_PASSWORD, fake->folder);
    fake->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    ck_assert_int_eq(bind(fake->listener, (struct sockaddr *)&address, sizeof address), 0);
    ck_assert_int_eq(listen(fake->listener, 64), 0);
    fake->now_us = 1000000;
    fake->clock = (pqtx_clock){sizeof fake->clock, fake, now_us, wait_for, throw_dice};
    return fake;
}

void fake_close(struct fake *fake)
{
    char path[64];
    act(fake);
    for (int i = 0; i < fake->connection_count; i++)
        ck_assert_msg(fake->connections[i].link.fd < 0, "connection %d was left open", i + 1);
    close(fake->listener);
    snprintf(path, sizeof path, "%s/.s.PGSQL.1", fake->folder);
    unlink(path);
    rmdir(fake->folder);
    fake_forget(fake);
    free(fake->rules);
    free(fake->connections);
    free(fake->events);
    free(fake);
}

static void add_rule(struct fake *fake, const char *text, const char *script, bool always)
{
    size_t size = (fake->rule_count + 1) * sizeof *fake->rules;
    fake->rules = realloc(fake->rules, size);
    ck_assert_ptr_nonnull(fake->rules);
    fake->rules[fake->rule_count++] = (struct fake_rule){strdup(text), strdup(script), always};
}

void fake_on(struct fake *fake, const char *text, const char *script)
{
    add_rule(fake, text, script, false);
}

void fake_always(struct fake *fake, const char *text, const char *script)
{
    add_rule(fake, text, script, true);
}

void fake_forget(struct fake *fake)
{
    for (size_t i = 0; i < fake->rule_count; i++) {
        free(fake->rules[i].text);
        free(fake->rules[i].script);
    }
    fake->rule_count = 0;
}

void fake_say(struct fake *fake, const char *script)
{
    ck_assert_int_gt(fake->connection_count, 0);
    struct fake_connection *c = &fake->connections[fake->connection_count - 1];
    ck_assert_int_ge(c->link.fd, 0);
    perform(fake, c, script);
    link_send(&c->link, SIZE_MAX);
    if (c->closing && link_unsent(&c->link) == 0)
        link_close(&c->link);
}

int fake_heard(const struct fake *fake, const char *text)
{
    int count = 0;
    for (size_t i = 0; i < fake->event_count; i++)
        count += strstr(fake->events[i].text, text) != NULL;
    return count;
}

int fake_ran(const struct fake *fake, const char *text)
{
    int count = 0;
    for (size_t i = 0; i < fake->event_count; i++)
        count += fake->events[i].ran && strstr(fake->events[i].text, text);
    return count;
}

PGconn *fake_connect(struct fake *fake)
{
    PGconn *conn = PQconnectStart(fake->conninfo);
    PostgresPollingStatusType poll;
    while ((poll = PQconnectPoll(conn)) != PGRES_POLLING_OK) {
        ck_assert_msg(poll != PGRES_POLLING_FAILED, "%s", PQerrorMessage(conn));
        act(fake);
    }
    return conn;
}
