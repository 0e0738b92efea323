/* status.c: every SQLSTATE of PostgreSQL to a status and an advice.
 *
 * Source: the server's errcodes.txt (13 to 18).  An exact code wins over its class; a class that
 * PostgreSQL does not define belongs to the application (RAISE … USING ERRCODE). */
#include "status.h"

#include <string.h>

struct name {
    int number;
    const char *name;
};

static const struct name status_names[] = {
    {PQTX_OK, "ok"},
    {PQTX_DONE_BEFORE, "done_before"},
    {PQTX_NO_MATCH, "no_match"},
    {PQTX_TOO_MANY, "too_many"},
    {PQTX_NOT_FOUND, "not_found"},
    {PQTX_CONDITION_FALSE, "condition_false"},
    {PQTX_EXHAUSTED, "exhausted"},
    {PQTX_EMPTY, "empty"},
    {PQTX_LEASE_LOST, "lease_lost"},
    {PQTX_GONE, "gone"},
    {PQTX_SUPERSEDED, "superseded"},
    {PQTX_KEY_MISMATCH, "key_mismatch"},
    {PQTX_SERIALIZATION, "serialization"},
    {PQTX_DEADLOCK, "deadlock"},
    {PQTX_BUSY, "busy"},
    {PQTX_ROLLED_BACK, "rolled_back"},
    {PQTX_STALE_STATEMENT, "stale_statement"},
    {PQTX_DUPLICATE, "duplicate"},
    {PQTX_OVERLAP, "overlap"},
    {PQTX_FOREIGN_KEY, "foreign_key"},
    {PQTX_CHECK, "check"},
    {PQTX_NOT_NULL, "not_null"},
    {PQTX_CONSTRAINT, "constraint"},
    {PQTX_IN_DOUBT, "in_doubt"},
    {PQTX_TIMEOUT, "timeout"},
    {PQTX_CANCELLED, "cancelled"},
    {PQTX_READ_ONLY, "read_only"},
    {PQTX_NO_CONNECTION, "no_connection"},
    {PQTX_RESOURCES, "resources"},
    {PQTX_DENIED, "denied"},
    {PQTX_BAD_STATEMENT, "bad_statement"},
    {PQTX_BAD_DATA, "bad_data"},
    {PQTX_SERVER_ERROR, "server_error"},
    {PQTX_RAISED, "raised"},
    {PQTX_WRONG_STATE, "wrong_state"},
    {PQTX_NO_MEMORY, "no_memory"},
    {PQTX_MISUSE, "misuse"},
    {PQTX_SWALLOWED, "swallowed"},
    {PQTX_STOPPED, "stopped"},
    {PQTX_WRONG_ISOLATION, "wrong_isolation"},
};

static const struct name advice_names[] = {
    {PQTX_ADVICE_NONE, "none"},         {PQTX_ADVICE_AGAIN, "again"},
    {PQTX_ADVICE_LATER, "later"},       {PQTX_ADVICE_RECONNECT, "reconnect"},
    {PQTX_ADVICE_RESOLVE, "resolve"},   {PQTX_ADVICE_REPREPARE, "reprepare"},
    {PQTX_ADVICE_DECIDE, "decide"},     {PQTX_ADVICE_FIX, "fix"},
    {PQTX_ADVICE_OPERATOR, "operator"},
};

struct rule {
    char code[6]; /* a whole SQLSTATE, or its class alone */
    pqtx_status status;
    pqtx_advice advice;
};

static const struct rule rules[] = {
    {"00", PQTX_OK, PQTX_ADVICE_NONE},
    {"01", PQTX_OK, PQTX_ADVICE_NONE},
    {"02", PQTX_OK, PQTX_ADVICE_NONE},
    {"03", PQTX_BAD_STATEMENT, PQTX_ADVICE_FIX},
    {"08001", PQTX_NO_CONNECTION, PQTX_ADVICE_LATER},
    {"08004", PQTX_NO_CONNECTION, PQTX_ADVICE_LATER},
    {"08007", PQTX_IN_DOUBT, PQTX_ADVICE_RESOLVE},
    {"08", PQTX_NO_CONNECTION, PQTX_ADVICE_RECONNECT},
    {"09", PQTX_BAD_STATEMENT, PQTX_ADVICE_FIX},
    {"0A", PQTX_BAD_STATEMENT, PQTX_ADVICE_FIX},
    {"0B", PQTX_BAD_STATEMENT, PQTX_ADVICE_FIX},
    {"0F", PQTX_BAD_STATEMENT, PQTX_ADVICE_FIX},
    {"0L", PQTX_DENIED, PQTX_ADVICE_FIX},
    {"0P", PQTX_DENIED, PQTX_ADVICE_FIX},
    {"0Z", PQTX_BAD_STATEMENT, PQTX_ADVICE_FIX},
    {"10", PQTX_BAD_DATA, PQTX_ADVICE_FIX},
    {"20", PQTX_BAD_STATEMENT, PQTX_ADVICE_FIX},
    {"21", PQTX_BAD_DATA, PQTX_ADVICE_FIX},
    {"22003", PQTX_BAD_DATA, PQTX_ADVICE_OPERATOR}, /* a counter or a column is full */
    {"2200H", PQTX_BAD_DATA, PQTX_ADVICE_OPERATOR}, /* a sequence is used up */
    {"22", PQTX_BAD_DATA, PQTX_ADVICE_FIX},
    {"23001", PQTX_FOREIGN_KEY, PQTX_ADVICE_DECIDE}, /* RESTRICT, as 18 reports it */
    {"23502", PQTX_NOT_NULL, PQTX_ADVICE_DECIDE},
    {"23503", PQTX_FOREIGN_KEY, PQTX_ADVICE_DECIDE},
    {"23505", PQTX_DUPLICATE, PQTX_ADVICE_DECIDE},
    {"23514", PQTX_CHECK, PQTX_ADVICE_DECIDE},
    {"23P01", PQTX_OVERLAP, PQTX_ADVICE_DECIDE},
    {"23", PQTX_CONSTRAINT, PQTX_ADVICE_DECIDE},
    {"24", PQTX_BAD_STATEMENT, PQTX_ADVICE_FIX},
    {"25006", PQTX_READ_ONLY, PQTX_ADVICE_RECONNECT},
    {"25P02", PQTX_SWALLOWED, PQTX_ADVICE_FIX}, /* only follows from an earlier error */
    {"25P03", PQTX_TIMEOUT, PQTX_ADVICE_FIX},   /* the body was too slow */
    {"25P04", PQTX_TIMEOUT, PQTX_ADVICE_FIX},
    {"25", PQTX_BAD_STATEMENT, PQTX_ADVICE_FIX},
    {"26000", PQTX_STALE_STATEMENT, PQTX_ADVICE_REPREPARE},
    {"26", PQTX_BAD_STATEMENT, PQTX_ADVICE_FIX},
    {"27", PQTX_CONSTRAINT, PQTX_ADVICE_DECIDE},
    {"28", PQTX_DENIED, PQTX_ADVICE_FIX},
    {"2B", PQTX_BAD_STATEMENT, PQTX_ADVICE_FIX},
    {"2D", PQTX_BAD_STATEMENT, PQTX_ADVICE_FIX},
    {"2F", PQTX_BAD_STATEMENT, PQTX_ADVICE_FIX},
    {"34", PQTX_BAD_STATEMENT, PQTX_ADVICE_FIX},
    {"38", PQTX_BAD_STATEMENT, PQTX_ADVICE_FIX},
    {"39", PQTX_BAD_STATEMENT, PQTX_ADVICE_FIX},
    {"3B", PQTX_BAD_STATEMENT, PQTX_ADVICE_FIX},
    {"3D", PQTX_BAD_STATEMENT, PQTX_ADVICE_FIX},
    {"3F", PQTX_BAD_STATEMENT, PQTX_ADVICE_FIX},
    {"40001", PQTX_SERIALIZATION, PQTX_ADVICE_AGAIN},
    {"40002", PQTX_CONSTRAINT, PQTX_ADVICE_DECIDE},
    {"40003", PQTX_IN_DOUBT, PQTX_ADVICE_RESOLVE},
    {"40P01", PQTX_DEADLOCK, PQTX_ADVICE_AGAIN},
    {"40", PQTX_ROLLED_BACK, PQTX_ADVICE_AGAIN},
    {"42501", PQTX_DENIED, PQTX_ADVICE_FIX},
    {"42P05", PQTX_STALE_STATEMENT, PQTX_ADVICE_REPREPARE},
    {"42", PQTX_BAD_STATEMENT, PQTX_ADVICE_FIX},
    {"44", PQTX_CHECK, PQTX_ADVICE_DECIDE},
    {"53300", PQTX_RESOURCES, PQTX_ADVICE_LATER},
    {"53", PQTX_RESOURCES, PQTX_ADVICE_OPERATOR},
    {"54", PQTX_BAD_STATEMENT, PQTX_ADVICE_FIX},
    {"55006", PQTX_WRONG_STATE, PQTX_ADVICE_LATER},
    {"55P03", PQTX_BUSY, PQTX_ADVICE_LATER},
    {"55", PQTX_WRONG_STATE, PQTX_ADVICE_FIX},
    {"57P01", PQTX_NO_CONNECTION, PQTX_ADVICE_RECONNECT},
    {"57P02", PQTX_NO_CONNECTION, PQTX_ADVICE_RECONNECT},
    {"57P03", PQTX_NO_CONNECTION, PQTX_ADVICE_LATER},
    {"57P04", PQTX_NO_CONNECTION, PQTX_ADVICE_FIX}, /* the database was dropped */
    {"57P05", PQTX_NO_CONNECTION, PQTX_ADVICE_RECONNECT},
    {"57", PQTX_CANCELLED, PQTX_ADVICE_DECIDE},
    {"58", PQTX_SERVER_ERROR, PQTX_ADVICE_OPERATOR},
    {"72", PQTX_ROLLED_BACK, PQTX_ADVICE_AGAIN},
    {"F0", PQTX_SERVER_ERROR, PQTX_ADVICE_OPERATOR},
    {"HV", PQTX_SERVER_ERROR, PQTX_ADVICE_DECIDE},
    {"P0", PQTX_RAISED, PQTX_ADVICE_DECIDE},
    {"PQ094", PQTX_WRONG_ISOLATION, PQTX_ADVICE_FIX}, /* serializable.h */
    {"XX", PQTX_SERVER_ERROR, PQTX_ADVICE_OPERATOR},
};

static const struct rule raised = {"", PQTX_RAISED, PQTX_ADVICE_DECIDE};
static const struct rule unreadable = {"", PQTX_SERVER_ERROR, PQTX_ADVICE_OPERATOR};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const char *name_of(const struct name *names, size_t count, int number)
{
    for (size_t i = 0; i < count; i++)
        if (names[i].number == number)
            return names[i].name;
    return "unknown";
}

const char *pqtx_status_name(pqtx_status status)
{
    if ((int)status >= PQTX_USER)
        return "user";
    return name_of(status_names, COUNT(status_names), (int)status);
}

const char *pqtx_advice_name(pqtx_advice advice)
{
    return name_of(advice_names, COUNT(advice_names), (int)advice);
}

static int is_sqlstate(const char *code)
{
    return code && strlen(code) == 5 && strspn(code, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ") == 5;
}

/* Exact codes stand before their class, so the first match is the right one. */
static const struct rule *rule_of(const char *sqlstate)
{
    if (!is_sqlstate(sqlstate))
        return &unreadable;
    for (size_t i = 0; i < COUNT(rules); i++)
        if (strncmp(rules[i].code, sqlstate, strlen(rules[i].code)) == 0)
            return &rules[i];
    return &raised;
}

pqtx_status pqtx_status_of_sqlstate(const char *sqlstate)
{
    return rule_of(sqlstate)->status;
}

pqtx_advice pqtx_advice_of_sqlstate(const char *sqlstate)
{
    return rule_of(sqlstate)->advice;
}

/* The advice for a status that came without an SQLSTATE. */
pqtx_advice pqtx__advice_of_status(pqtx_status status)
{
    switch (status) {
    case PQTX_OK:
    case PQTX_DONE_BEFORE:
        return PQTX_ADVICE_NONE;
    case PQTX_SERIALIZATION:
    case PQTX_DEADLOCK:
    case PQTX_ROLLED_BACK:
        return PQTX_ADVICE_AGAIN;
    case PQTX_BUSY:
        return PQTX_ADVICE_LATER;
    case PQTX_NO_CONNECTION:
    case PQTX_READ_ONLY:
        return PQTX_ADVICE_RECONNECT;
    case PQTX_IN_DOUBT:
        return PQTX_ADVICE_RESOLVE;
    case PQTX_STALE_STATEMENT:
        return PQTX_ADVICE_REPREPARE;
    case PQTX_NO_MEMORY:
    case PQTX_RESOURCES:
    case PQTX_SERVER_ERROR:
        return PQTX_ADVICE_OPERATOR;
    case PQTX_MISUSE:
    case PQTX_SWALLOWED:
    case PQTX_WRONG_ISOLATION:
    case PQTX_DENIED:
    case PQTX_BAD_STATEMENT:
    case PQTX_BAD_DATA:
        return PQTX_ADVICE_FIX;
    default:
        return PQTX_ADVICE_DECIDE;
    }
}

int pqtx_is_retryable(pqtx_status status)
{
    switch (status) {
    case PQTX_SERIALIZATION:
    case PQTX_DEADLOCK:
    case PQTX_BUSY:
    case PQTX_ROLLED_BACK:
    case PQTX_STALE_STATEMENT:
    case PQTX_NO_CONNECTION:
    case PQTX_READ_ONLY:
        return 1;
    default:
        return 0;
    }
}

int pqtx_maybe_committed(pqtx_status status)
{
    return status == PQTX_IN_DOUBT;
}

int pqtx_is_answer(pqtx_status status)
{
    return (status >= PQTX_NO_MATCH && status <= PQTX_KEY_MISMATCH) ||
           (status >= PQTX_DUPLICATE && status <= PQTX_CONSTRAINT);
}
