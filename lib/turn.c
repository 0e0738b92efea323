/* turn.c: threads that wait for a connection, first come, first served.
 *
 * Each has a condition of its own, so that the one whose turn it is wakes, and no other. */
#include "turn.h"
#include "clock.h"
#include "wait.h"

struct pqtx__turn {
    pthread_cond_t wake;
    struct pqtx__turn *next;
    bool served;
    struct pqtx__wire *wire;
};

void pqtx__turns_init(struct pqtx__turns *turns)
{
    turns->first = NULL;
    turns->last = &turns->first;
    turns->count = 0;
}

static void leave(struct pqtx__turns *turns, struct pqtx__turn *turn)
{
    struct pqtx__turn **at = &turns->first;
    while (*at != turn)
        at = &(*at)->next;
    *at = turn->next;
    if (turns->last == &turn->next)
        turns->last = at;
    turns->count--;
}

bool pqtx__turns_wait(struct pqtx__turns *turns, pthread_mutex_t *lock, const bool *closed,
                      const pqtx_clock *clock, int64_t until_us, struct pqtx__wire **wire)
{
    struct pqtx__turn turn = {.served = false};
    if (!pqtx__condition_init(&turn.wake))
        return false;
    *turns->last = &turn;
    turns->last = &turn.next;
    turns->count++;
    int64_t left;
    while (!turn.served && !*closed && (left = pqtx__left(clock, until_us)) > 0)
        if (!pqtx__condition_wait(&turn.wake, lock, left))
            break;
    if (!turn.served)
        leave(turns, &turn);
    pthread_cond_destroy(&turn.wake);
    *wire = turn.wire;
    return turn.served;
}

bool pqtx__turns_serve(struct pqtx__turns *turns, struct pqtx__wire *wire)
{
    struct pqtx__turn *turn = turns->first;
    if (!turn)
        return false;
    leave(turns, turn);
    turn->served = true;
    turn->wire = wire;
    pthread_cond_signal(&turn->wake);
    return true;
}

void pqtx__turns_wake(struct pqtx__turns *turns)
{
    for (struct pqtx__turn *turn = turns->first; turn; turn = turn->next)
        pthread_cond_signal(&turn->wake);
}
