/* budget.c: how many further attempts a pool's transactions may make.
 *
 * A storm of lost races would otherwise multiply the load that caused it. */
#include "budget.h"

void pqtx__budget_init(struct pqtx__budget *budget, int32_t percent, int32_t burst)
{
    budget->earned = percent;
    budget->most = (int64_t)burst * 100;
    budget->left = budget->most;
}

void pqtx__budget_earn(struct pqtx__budget *budget)
{
    budget->left += budget->earned;
    if (budget->left > budget->most)
        budget->left = budget->most;
}

bool pqtx__budget_spend(struct pqtx__budget *budget)
{
    if (budget->earned < 0)
        return true;
    if (budget->left < 100)
        return false;
    budget->left -= 100;
    return true;
}
