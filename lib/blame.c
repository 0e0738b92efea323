/* blame.c: whom a statement waits for, asked over another connection while it waits.
 *
 * A wait that fails has lasted a whole lock_timeout.  The server is asked each three quarters of
 * it, and the asking takes at most the fourth: so one of the answers was of that very wait. */
#include "blame.h"
#include "blocker.h"
#include "clock.h"
#include "error.h"

/* What the server was told, or 0: then it is not known when the wait will end. */
static int64_t lock_timeout_us(const pqtx_tx *tx)
{
    int64_t ms = tx->implicit ? tx->wire->settings.lock_ms : tx->lock_timeout.sent_ms;
    return ms > 0 ? ms * 1000 : 0;
}

static bool is_wanted(const pqtx_tx *tx)
{
    return tx->options.flags & PQTX_NAME_BLOCKER && tx->pool && tx->wire->backend.pid != 0 &&
           lock_timeout_us(tx) > 0;
}

/* Half of the time is for a connection, half for the answer.  Where one of them is not to be had,
 * nobody is named. */
static void ask(pqtx_tx *tx, int64_t half_us)
{
    struct pqtx__wire *wire;
    pqtx_error error = PQTX_ERROR;
    tx->blame[0] = '\0';
    if (pqtx__pool_acquire(tx->pool, half_us, &wire, &error) != PQTX_OK)
        return;
    wire->clock = tx->clock;
    pqtx__blocker_tell(wire, tx->wire->backend.pid, pqtx__now(tx->clock) + half_us, tx->blame,
                       sizeof tx->blame);
    pqtx__pool_release(tx->pool, wire);
}

enum pqtx__flight pqtx__blame_land(pqtx_tx *tx)
{
    tx->blame[0] = '\0';
    while (is_wanted(tx)) {
        int64_t limit_us = lock_timeout_us(tx);
        int64_t ask_us = pqtx__now(tx->clock) + limit_us - limit_us / 4;
        if (ask_us + limit_us / 4 >= tx->give_up_us)
            break;
        enum pqtx__flight flight = pqtx__wire_land(tx->wire, ask_us);
        if (flight != PQTX__FLYING)
            return flight;
        ask(tx, limit_us / 8);
    }
    return pqtx__wire_land(tx->wire, tx->give_up_us);
}

void pqtx__blame(pqtx_tx *tx)
{
    if (tx->options.flags & PQTX_NAME_BLOCKER && tx->error.status == PQTX_BUSY && tx->blame[0] &&
        !tx->error.detail[0])
        pqtx__text_copy(tx->error.detail, sizeof tx->error.detail, tx->blame);
}
