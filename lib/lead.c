/* lead.c: what goes in front of a transaction's statements.
 *
 * BEGIN, the settings and the savepoint commands ride in front of the statement that follows, in
 * one flight.  Never a Sync between BEGIN and the body: if BEGIN failed, the body would commit by
 * itself. */
#include "lead.h"
#include "clock.h"

#include <stdio.h>
#include <string.h>

static const char *begin_sql(const pqtx_options *options, char sql[96])
{
    static const char *const isolation[] = {"", " ISOLATION LEVEL READ COMMITTED",
                                            " ISOLATION LEVEL REPEATABLE READ",
                                            " ISOLATION LEVEL SERIALIZABLE"};
    static const char *const access[] = {"", " READ WRITE", " READ ONLY", " READ ONLY DEFERRABLE"};
    strcpy(sql, "BEGIN");
    strcat(sql, isolation[options->isolation]);
    return strcat(sql, access[options->access]);
}

/* SET LOCAL, not set_config(): a SELECT would take the snapshot. */
static bool send_timeout(pqtx_tx *tx, const char *name, int64_t ms)
{
    char sql[96] = "SET LOCAL ";
    strcat(strcat(sql, name), " = ");
    pqtx__int_text(ms, sql + strlen(sql));
    return pqtx__wire_send(tx->wire, sql, NULL);
}

/* Less than the time left, so that the server ends the wait and says for what before we have to. */
static int64_t clamp(int64_t wanted_ms, int64_t left_ms)
{
    left_ms -= left_ms / 8;
    if (wanted_ms <= left_ms || wanted_ms <= 0)
        return wanted_ms;
    return left_ms > 0 ? left_ms : 1;
}

/* Sent again only when what the server has is longer than the time left. */
bool pqtx__lead_lock_timeout(pqtx_tx *tx, int64_t wanted_ms)
{
    struct pqtx__lock_timeout *timeout = &tx->lock_timeout;
    int64_t left_ms = pqtx__left(tx->clock, tx->give_up_us) / 1000;
    if (timeout->sent_for_ms == wanted_ms && (wanted_ms <= 0 || timeout->sent_ms <= left_ms))
        return true;
    timeout->sent_for_ms = wanted_ms;
    timeout->sent_ms = clamp(wanted_ms, left_ms);
    if (wanted_ms == PQTX_NO_TIMEOUT)
        return pqtx__wire_send(tx->wire, "SET LOCAL lock_timeout TO DEFAULT", NULL);
    return send_timeout(tx, "lock_timeout", timeout->sent_ms);
}

/* The limits that the server keeps for the whole attempt, each at most the time left. */
static bool send_limits(pqtx_tx *tx)
{
    int64_t left_ms = pqtx__left(tx->clock, tx->deadline_us) / 1000 + 1;
    int64_t statement_ms = tx->options.statement_timeout_ms;
    if (statement_ms > left_ms)
        statement_ms = left_ms;
    if (statement_ms > 0 && !send_timeout(tx, "statement_timeout", statement_ms))
        return false;
    if (!(tx->options.flags & PQTX_SERVER_DEADLINE))
        return true;
    return send_timeout(tx, "idle_in_transaction_session_timeout", left_ms) &&
           (PQserverVersion(tx->wire->conn) < 170000 ||
            send_timeout(tx, "transaction_timeout", left_ms));
}

bool pqtx__lead(pqtx_tx *tx)
{
    char sql[96];
    if (!tx->begun) {
        tx->begun = true;
        if (!pqtx__wire_send(tx->wire, begin_sql(&tx->options, sql), NULL))
            return false;
        if (!send_limits(tx))
            return false;
    }
    for (size_t i = 0; i < tx->pending.count; i++)
        if (!pqtx__wire_send(tx->wire, tx->pending.list[i], NULL))
            return false;
    tx->pending.count = 0;
    tx->flights++;
    return true;
}

#define CLIENT_CHECK    "client_connection_check_interval"
#define CLIENT_CHECK_MS 1000

bool pqtx__lead_client_check(pqtx_tx *tx)
{
    return !tx->wire->checks_client || send_timeout(tx, CLIENT_CHECK, CLIENT_CHECK_MS);
}

/* At the session's own isolation level, over a connection that is known to lead to the server
 * itself: of the poolers only some keep such a flight together. */
bool pqtx__lead_suits(const pqtx_options *o, const struct pqtx__wire *wire)
{
    return wire->backend.pid != 0 && o->isolation == PQTX_ISO_DEFAULT &&
           o->access == PQTX_ACCESS_DEFAULT && !(o->flags & PQTX_SERVER_DEADLINE);
}

bool pqtx__lead_may_be_implicit(const pqtx_tx *tx)
{
    return !tx->begun && !tx->needs_block && tx->pending.count == 0 &&
           pqtx__lead_suits(&tx->options, tx->wire);
}

static char *put_setting(char *at, const char *name, int64_t ms, bool first)
{
    return at + sprintf(at, "%spg_catalog.set_config('%s', '%lld', true) IS NULL",
                        first ? "SELECT WHERE " : " OR ", name, (long long)ms);
}

/* The settings, as one condition that is never true, so that no row comes of it.  Not a part of the
 * statement that they are for: that locks its tables before it runs.  The numbers stand in the
 * text, which is the same each time unless time is short, and is then prepared. */
static void write_settings(struct pqtx__settings *settings, bool checks_client)
{
    char *at = settings->sql;
    *at = '\0';
    if (settings->lock_ms != PQTX_NO_TIMEOUT)
        at = put_setting(at, "lock_timeout", settings->lock_ms, true);
    if (settings->statement_ms > 0)
        at = put_setting(at, "statement_timeout", settings->statement_ms, at == settings->sql);
    if (checks_client)
        put_setting(at, CLIENT_CHECK, CLIENT_CHECK_MS, at == settings->sql);
}

bool pqtx__lead_implicit(pqtx_tx *tx, int64_t now_us)
{
    struct pqtx__settings *settings = &tx->wire->settings;
    int64_t left_ms = tx->give_up_us > now_us ? (tx->give_up_us - now_us) / 1000 : 0;
    int64_t lock_ms = clamp(tx->options.lock_timeout_ms, left_ms);
    int64_t statement_ms = tx->options.statement_timeout_ms;
    if (statement_ms > left_ms)
        statement_ms = left_ms + 1;
    tx->begun = true;
    if (!settings->sql[0] || settings->lock_ms != lock_ms ||
        settings->statement_ms != statement_ms) {
        settings->lock_ms = lock_ms;
        settings->statement_ms = statement_ms;
        write_settings(settings, tx->wire->checks_client);
    }
    return !settings->sql[0] || pqtx__wire_send(tx->wire, settings->sql, NULL);
}
