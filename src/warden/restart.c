/* The decisions of supervision that need no process to be tested. */
#include "base/limits.h"
#include "warden/warden.h"

int64_t restart_delay_ms(unsigned deaths)
{
    int64_t delay = API_RESTART_MIN_MS;

    while (deaths-- > 1 && delay < API_RESTART_MAX_MS)
        delay *= 2;
    return MIN(delay, (int64_t)API_RESTART_MAX_MS);
}

bool wire_budget_take(struct wire_budget *budget, unsigned most, int64_t now_ms)
{
    int64_t second = now_ms / 1000;

    if (second != budget->second)
        *budget = (struct wire_budget){ .second = second };
    return budget->used++ < most;
}
