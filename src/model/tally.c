/* See tally.h. A histogram of base/metric.h counts seconds; the one in milliseconds is told so. */
#include "model/tally.h"

#include "base/metric.h"

METRIC_COUNTER(commands, "agentic_commands_total", "Commands started");
METRIC_COUNTER(results, "agentic_commands_by_result", "Commands ended", "result", "success",
               "failed");
METRIC_HISTOGRAM(latency, "agentic_command_latency_seconds", "Time that commands ran", 0.01, 0.05,
                 0.1, 0.5, 1, 5, 10, 30, 60);
METRIC_HISTOGRAM(duration, "agentic_commands_duration_ms", "The same in milliseconds", 10, 50, 100,
                 500, 1000, 5000, 10000, 30000, 60000);

static _Atomic int64_t all_ms;

void tally_command_started(void)
{
    metric_add(&commands, 0, 1);
}

void tally_command_ended(bool success, int64_t ms)
{
    if (ms < 0)
        ms = 0;
    metric_add(&results, success ? 0 : 1, 1);
    metric_observe_us(&latency, ms * 1000);
    metric_observe_us(&duration, ms * 1000000);
    atomic_fetch_add_explicit(&all_ms, ms, memory_order_relaxed);
}

int64_t tally_commands_ms(void)
{
    return atomic_load_explicit(&all_ms, memory_order_relaxed);
}
