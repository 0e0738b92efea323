/* hosts.c: the hosts that a connection string names, taken apart as libpq does it.
 *
 * libpq tries them one after the other by itself, but goes on only when a host says no: to one that
 * says nothing PQconnectPoll gives all the time there is. */
#define _DEFAULT_SOURCE
#include "hosts.h"
#include "clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const part_names[PQTX__PARTS] = {"host", "hostaddr", "port"};

/* libpq makes no difference between an empty value and none. */
static const char *value_of(const PQconninfoOption *options, const char *keyword)
{
    for (const PQconninfoOption *o = options; o && o->keyword; o++)
        if (strcmp(o->keyword, keyword) == 0)
            return o->val && o->val[0] ? o->val : NULL;
    return NULL;
}

static bool is(const char *value, const char *word)
{
    return value && strcmp(value, word) == 0;
}

/* ---- the lists */

static size_t count_items(const char *list)
{
    size_t count = 1;
    for (; (list = strchr(list, ',')) != NULL; list++)
        count++;
    return count;
}

/* A port that stands alone is that of every host. */
static bool fill_in(struct pqtx__hosts *hosts, int part, const char *list)
{
    char *item = hosts->lists[part] = strdup(list);
    bool alone = item && part == PQTX__PORT && !strchr(item, ',');
    for (size_t i = 0; item && i < hosts->count; i++) {
        hosts->list[i].part[part] = item;
        char *comma = strchr(item, ',');
        if (comma)
            *comma = '\0';
        item = alone ? item : comma ? comma + 1 : NULL;
    }
    return hosts->lists[part] != NULL;
}

bool pqtx__hosts_split(struct pqtx__hosts *hosts, const char *const lists[PQTX__PARTS])
{
    size_t counts[PQTX__PARTS];
    for (int part = 0; part < PQTX__PARTS; part++)
        counts[part] = lists[part] && lists[part][0] ? count_items(lists[part]) : 0;
    size_t hostaddrs = counts[PQTX__HOSTADDR], names = counts[PQTX__HOST];
    size_t count = hostaddrs ? hostaddrs : names, ports = counts[PQTX__PORT];
    hosts->count = 1;
    if (count < 2 || (names && names != count) || (ports > 1 && ports != count))
        return true;
    hosts->list = calloc(count, sizeof *hosts->list);
    if (!hosts->list)
        return false;
    hosts->count = count;
    bool filled = true;
    for (int part = 0; part < PQTX__PARTS; part++)
        filled &= counts[part] == 0 || fill_in(hosts, part, lists[part]);
    return filled;
}

/* ---- where they come from */

static bool read_options(struct pqtx__hosts *hosts, const PQconninfoOption *options)
{
    const char *lists[PQTX__PARTS];
    for (int part = 0; part < PQTX__PARTS; part++)
        lists[part] = value_of(options, part_names[part]);
    const char *timeout = value_of(options, "connect_timeout");
    long seconds = timeout ? strtol(timeout, NULL, 10) : 0;
    if (seconds > 0 && seconds <= INT32_MAX)
        hosts->timeout_us = (int64_t)seconds * 1000000;
    const char *wanted = value_of(options, "target_session_attrs");
    hosts->is_choosy = wanted && !is(wanted, "any");
    hosts->prefers_standby = is(wanted, "prefer-standby");
    hosts->at_random = is(value_of(options, "load_balance_hosts"), "random");
    return pqtx__hosts_split(hosts, lists);
}

/* A password with an '@' or a '/' in a URI makes libpq take a part of it for the host or the port.
 * Shown is only what such a mistake cannot have made: no '@' but before the host. */
static bool may_show(const char *conninfo)
{
    const char *at = strrchr(conninfo, '@');
    const char *host = strstr(conninfo, "://");
    if (!at)
        return true;
    return host && strchr(conninfo, '@') == at &&
           strcspn(host + 3, "/?#") > (size_t)(at - host - 3);
}

/* Only libpq knows what the environment and a service file add, and tells it of a connection alone.
 * So one is begun, and fails before it touches the network or the password file. */
bool pqtx__hosts_read(struct pqtx__hosts *hosts, const char *conninfo)
{
    static const char *const names[] = {"dbname", "password", "sslmode", NULL};
    const char *const values[] = {conninfo, "none", "no such mode", NULL};
    *hosts = (struct pqtx__hosts){.conninfo = conninfo, .count = 1, .showable = may_show(conninfo)};
    PGconn *none = PQconnectStartParams(names, values, 1);
    PQconninfoOption *options = PQconninfo(none);
    bool done = options && read_options(hosts, options);
    PQconninfoFree(options);
    PQfinish(none);
    return done;
}

/* Where the connection leads: that host is the one to begin with.  A newer libpq tells the port
 * that an empty one stands for, an older one does not. */
static size_t find(const struct pqtx__hosts *hosts, PGconn *conn)
{
    for (size_t i = 0; hosts->list && i < hosts->count; i++) {
        const char *host = hosts->list[i].part[PQTX__HOST];
        const char *port = hosts->list[i].part[PQTX__PORT];
        if (!host || !*host)
            host = hosts->list[i].part[PQTX__HOSTADDR];
        if (is(host, PQhost(conn)) && (!port || !*port || is(port, PQport(conn))))
            return i;
    }
    return 0;
}

bool pqtx__hosts_read_from(struct pqtx__hosts *hosts, PGconn *conn)
{
    *hosts = (struct pqtx__hosts){.options = PQconninfo(conn), .count = 1, .showable = true};
    static const char *const misled[] = {"host", "hostaddr", "port", "dbname"};
    for (size_t i = 0; i < sizeof misled / sizeof misled[0]; i++) {
        const char *value = value_of(hosts->options, misled[i]);
        hosts->showable &= !value || !strchr(value, '@');
    }
    bool done = hosts->options && read_options(hosts, hosts->options);
    if (done)
        atomic_store(&hosts->best, find(hosts, conn));
    return done;
}

void pqtx__hosts_free(struct pqtx__hosts *hosts)
{
    for (int part = 0; part < PQTX__PARTS; part++)
        free(hosts->lists[part]);
    free(hosts->list);
    PQconninfoFree(hosts->options);
    *hosts = (struct pqtx__hosts){.count = 1};
}

/* ---- in order */

size_t *pqtx__hosts_order(const struct pqtx__hosts *hosts, const pqtx_clock *clock)
{
    size_t *order = calloc(hosts->count, sizeof *order), n = 0;
    if (!order)
        return NULL;
    order[n++] = atomic_load(&hosts->best);
    for (size_t i = 0; i < hosts->count; i++)
        if (i != order[0])
            order[n++] = i;
    for (size_t left = n; hosts->at_random && left > 1; left--) {
        size_t drawn = (size_t)(clock->random(clock->arg) % left);
        size_t last = order[left - 1];
        order[left - 1] = order[drawn];
        order[drawn] = last;
    }
    return order;
}

/* ---- a connection started */

/* Of the same name twice, the last counts. */
struct settings {
    const char **names, **values;
    size_t count;
    char *doubled[PQTX__PARTS];
};

static void set(struct settings *settings, const char *name, const char *value)
{
    settings->names[settings->count] = name;
    settings->values[settings->count++] = value;
}

/* All but the host. */
static bool begin(struct settings *settings, const struct pqtx__hosts *hosts)
{
    enum { OWN = 8 };
    size_t count = OWN;
    for (PQconninfoOption *o = hosts->options; o && o->keyword; o++)
        count++;
    *settings = (struct settings){.names = calloc(2 * count, sizeof *settings->names)};
    if (!settings->names)
        return false;
    settings->values = settings->names + count;
    for (PQconninfoOption *o = hosts->options; o && o->keyword; o++)
        if (o->val)
            set(settings, o->keyword, o->val);
    if (hosts->conninfo) {
        set(settings, "dbname", hosts->conninfo);
        set(settings, "fallback_application_name", "pqtx");
    }
    return true;
}

static char *twice(const char *item)
{
    size_t size = 2 * strlen(item) + 2;
    char *list = malloc(size);
    if (list)
        snprintf(list, size, "%s,%s", item, item);
    return list;
}

/* An empty value would leave the whole list standing; so a host of which something is empty is
 * named twice, in lists of two. */
static bool lead_to(struct settings *settings, const struct pqtx__host *at)
{
    bool gap = false, done = true;
    for (int part = 0; part < PQTX__PARTS; part++)
        gap |= at->part[part] && !at->part[part][0];
    for (int part = 0; part < PQTX__PARTS; part++) {
        if (!at->part[part])
            continue;
        if (gap)
            settings->doubled[part] = twice(at->part[part]);
        done &= !gap || settings->doubled[part];
        set(settings, part_names[part], gap ? settings->doubled[part] : at->part[part]);
    }
    return done;
}

static PGconn *start(const struct pqtx__hosts *hosts, const struct pqtx__host *at,
                     const char *target, const char *password)
{
    struct settings settings;
    if (!begin(&settings, hosts))
        return NULL;
    PGconn *conn = NULL;
    if (target)
        set(&settings, "target_session_attrs", target);
    if (password)
        set(&settings, "password", password);
    if (!at || lead_to(&settings, at))
        conn = PQconnectStartParams(settings.names, settings.values, hosts->conninfo != NULL);
    for (int part = 0; part < PQTX__PARTS; part++)
        free(settings.doubled[part]);
    free(settings.names);
    return conn;
}

PGconn *pqtx__hosts_start(const struct pqtx__hosts *hosts, const struct pqtx__host *at,
                          const char *target)
{
    return start(hosts, at, target, NULL);
}

PGconn *pqtx__hosts_start_beside(const struct pqtx__hosts *hosts, PGconn *conn)
{
    struct pqtx__host here = {{PQhost(conn), PQhostaddr(conn), PQport(conn)}};
    for (int part = 0; part < PQTX__PARTS; part++)
        if (!here.part[part][0] && !value_of(hosts->options, part_names[part]))
            here.part[part] = NULL;
    return start(hosts, &here, "any", PQpass(conn));
}
