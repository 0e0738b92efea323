/* backoff.c: how long to wait before trying again.
 *
 * Full jitter: those who lost together must not meet again.  The ceiling doubles, so that a crowd
 * spreads out, and is capped, so that a loser does not starve. */
#include "backoff.h"

int64_t pqtx__backoff_us(int64_t first_us, int64_t max_us, uint32_t n, uint64_t random)
{
    int64_t ceiling = first_us;
    for (uint32_t i = 1; i < n && ceiling < max_us; i++)
        ceiling = ceiling > max_us / 2 ? max_us : ceiling * 2;
    if (ceiling > max_us)
        ceiling = max_us;
    double share = (double)(random >> 11) / (double)(UINT64_C(1) << 53);
    return (int64_t)(share * (double)ceiling);
}
