/* options.c: a caller's options, checked and completed. */
#include "options.h"
#include "clock.h"
#include "size.h"

#include <string.h>

static pqtx_status init(void *options, size_t size, size_t least)
{
    if (!options || size < least)
        return PQTX_MISUSE;
    memset(options, 0, size);
    memcpy(options, &size, sizeof size);
    return PQTX_OK;
}

pqtx_status pqtx_options_init(pqtx_options *options, size_t size)
{
    return init(options, size, sizeof size);
}

pqtx_status pqtx_pool_options_init(pqtx_pool_options *options, size_t size)
{
    return init(options, size, sizeof size);
}

pqtx_status pqtx__import(void *ours, size_t known, const void *theirs, size_t given)
{
    memset(ours, 0, known);
    if (given < sizeof given || given > PQTX__SIZE_MAX)
        return PQTX_MISUSE;
    const unsigned char *bytes = theirs;
    for (size_t i = known; i < given; i++)
        if (bytes[i] != 0)
            return PQTX_MISUSE;
    memcpy(ours, theirs, given < known ? given : known);
    memcpy(ours, &known, sizeof known);
    return PQTX_OK;
}

static void default_ms(int64_t *field, int64_t value)
{
    if (*field == 0)
        *field = value;
}

static int is_ms(int64_t field)
{
    return field >= 0 && field <= PQTX__MS_MAX;
}

static const char *fault_of_constraints(const pqtx_options *o)
{
    if (!o->constraints && o->constraint_count > 0)
        return "options.constraints is NULL, and constraint_count is not 0";
    for (size_t i = 0; i < o->constraint_count; i++) {
        const pqtx_constraint *constraint = &o->constraints[i];
        if (!constraint->name || !*constraint->name || strlen(constraint->name) > 63)
            return "a name in options.constraints is NULL, empty, or longer than 63 bytes";
        if (constraint->status < PQTX_USER)
            return "a status in options.constraints is not from PQTX_USER up";
    }
    return NULL;
}

/* NULL if all is well, else what is not. */
static const char *fault_of(const pqtx_options *o)
{
    if (o->isolation < 0 || o->isolation > PQTX_ISO_SERIALIZABLE)
        return "options.isolation is none of PQTX_ISO_…";
    if (o->access < 0 || o->access > PQTX_ACCESS_DEFERRABLE)
        return "options.access is none of PQTX_ACCESS_…";
    if (!is_ms(o->lock_timeout_ms) && o->lock_timeout_ms != PQTX_NO_TIMEOUT)
        return "options.lock_timeout_ms is not within 0 … 2147483647 or PQTX_NO_TIMEOUT";
    if (!is_ms(o->statement_timeout_ms) || !is_ms(o->deadline_ms))
        return "options.statement_timeout_ms or deadline_ms is not within 0 … 2147483647";
    if (!is_ms(o->wait_first_ms) || !is_ms(o->wait_max_ms))
        return "options.wait_first_ms or wait_max_ms is not within 0 … 2147483647";
    if (o->max_attempts < 0)
        return "options.max_attempts is negative";
    if (o->flags & ~(PQTX_PIN_SNAPSHOT | PQTX_LOCK_ANY_ISOLATION | PQTX_SERVER_DEADLINE |
                     PQTX_PIPELINE | PQTX_NAME_BLOCKER))
        return "options.flags has a bit that this version does not know";
    if ((o->flags & PQTX_PIN_SNAPSHOT) && o->isolation == PQTX_ISO_READ_COMMITTED)
        return "PQTX_PIN_SNAPSHOT means nothing at READ COMMITTED: each statement has its own";
    if (o->retry_mask &
        ~(PQTX_RETRY_DEFAULT | PQTX_RETRY_DUPLICATE | PQTX_RETRY_OVERLAP | PQTX_RETRY_NOTHING))
        return "options.retry_mask has a bit that this version does not know";
    if (o->in_doubt < 0 || o->in_doubt > PQTX_DOUBT_TOKEN)
        return "options.in_doubt is none of PQTX_DOUBT_…";
    if (!is_ms(o->resolve_ms))
        return "options.resolve_ms is not within 0 … 2147483647";
    if (o->evidence && o->evidence->size != sizeof *o->evidence)
        return "options.evidence has no size (start from PQTX_EVIDENCE)";
    if (o->ticket && o->ticket->size != sizeof *o->ticket)
        return "options.ticket has no size (start from PQTX_TICKET)";
    if (!pqtx__clock(o->clock))
        return "options.clock lacks its size or a function";
    if (o->gate_key != 0 && !o->gate)
        return "options.gate_key is set, and options.gate is not";
    return fault_of_constraints(o);
}

pqtx_status pqtx__options_read(pqtx_options *options, const pqtx_options *given, const char **why)
{
    *why = NULL;
    if (!given)
        memset(options, 0, sizeof *options);
    else if (pqtx__import(options, sizeof *options, given, given->size))
        *why = "the options have no size (start from PQTX_OPTIONS), or come from a newer version "
               "and use what this one does not know";
    else
        *why = fault_of(options);
    if (*why)
        memset(options, 0, sizeof *options);
    default_ms(&options->lock_timeout_ms, 5000);
    default_ms(&options->deadline_ms, 30000);
    default_ms(&options->resolve_ms, 5000);
    default_ms(&options->wait_first_ms, 5);
    default_ms(&options->wait_max_ms, 500);
    if (options->max_attempts == 0)
        options->max_attempts = 10;
    if (options->retry_mask == 0)
        options->retry_mask = PQTX_RETRY_DEFAULT;
    options->clock = pqtx__clock(options->clock);
    return *why ? PQTX_MISUSE : PQTX_OK;
}

static const char *fault_of_pool(const pqtx_pool_options *o)
{
    if (o->max_count < 0 || o->max_count > 10000)
        return "max_count is not within 0 … 10000";
    if (o->min_count < 0 || o->min_count > (o->max_count ? o->max_count : 8))
        return "min_count is negative or larger than max_count";
    if (o->flags & ~(PQTX_POOL_LAZY | PQTX_POOL_RAW_ERRORS | PQTX_POOL_PREPARE_NEVER |
                     PQTX_POOL_PREPARE_ALWAYS))
        return "flags has a bit that this version does not know";
    if ((o->flags & PQTX_POOL_PREPARE_NEVER) && (o->flags & PQTX_POOL_PREPARE_ALWAYS))
        return "flags has both PQTX_POOL_PREPARE_NEVER and PQTX_POOL_PREPARE_ALWAYS";
    if (o->reserved != 0)
        return "reserved is not 0";
    if (!is_ms(o->connect_timeout_ms) || !is_ms(o->acquire_timeout_ms) ||
        !is_ms(o->idle_limit_ms) || !is_ms(o->age_limit_ms) || !is_ms(o->check_after_ms))
        return "a time is not within 0 … 2147483647";
    if (o->retry_percent < -1 || o->retry_burst < 0)
        return "retry_percent is below -1, or retry_burst negative";
    if (!pqtx__clock(o->clock))
        return "clock lacks its size or a function";
    return NULL;
}

pqtx_status pqtx__pool_options_read(pqtx_pool_options *options, const pqtx_pool_options *given,
                                    const char **why)
{
    *why = NULL;
    if (!given)
        memset(options, 0, sizeof *options);
    else if (pqtx__import(options, sizeof *options, given, given->size))
        *why = "the options have no size (start from PQTX_POOL_OPTIONS), or come from a newer "
               "version and use what this one does not know";
    else
        *why = fault_of_pool(options);
    if (*why)
        memset(options, 0, sizeof *options);
    if (options->max_count == 0)
        options->max_count = 8;
    if (options->retry_percent == 0)
        options->retry_percent = 300;
    if (options->retry_burst == 0)
        options->retry_burst = 1000;
    default_ms(&options->connect_timeout_ms, 10000);
    default_ms(&options->idle_limit_ms, 600000);
    default_ms(&options->age_limit_ms, 3600000);
    default_ms(&options->check_after_ms, 100);
    options->clock = pqtx__clock(options->clock);
    return *why ? PQTX_MISUSE : PQTX_OK;
}
