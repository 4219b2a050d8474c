/*
 * Figures of agents under the names that agentic's dashboards and alerts read. An agent is a
 * running sandbox or a linked agent. What can be counted is counted here when somebody asks;
 * figures of the kernel are measured in the background after a scrape, one sandbox at a time, and
 * told with the next: a scrape waits for nothing.
 *
 * AGENT_SERIES_MAX agents have series of their own.
 */
#include "api/own.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/map.h"
#include "box/boxes.h"
#include "link/links.h"
#include "model/agent.h"
#include "model/sandbox.h"
#include "model/tally.h"

struct sample {
    struct box_usage usage;
    double cpu_percent; /* of its limit */
    int64_t at_ms;
    unsigned round;
};

static struct {
    struct map samples; /* by id of a sandbox; owned */
    struct box_op op;
    struct box_usage usage;
    char at[ID_SIZE]; /* the sandbox that is measured; "": no round is under way */
    unsigned round, left;
    int64_t begun_ms;
    const struct api *api;
} sampler; /* loop thread */

/* ---- measuring ---- */

static void measure_next(struct box *after);

static void take(const struct box *box)
{
    struct sample *sample = map_get(&sampler.samples, str_of(sampler.at));
    struct sandbox_view view;
    int64_t now = clock_mono_ms();

    box_view(box, &view);
    if (!sample) {
        sample = xnew(struct sample);
        (void)map_put(&sampler.samples, str_of(view.id), sample);
    }
    int64_t passed = now - sample->at_ms;
    if (sample->at_ms && passed > 0 && sampler.usage.cpu_us >= sample->usage.cpu_us)
        sample->cpu_percent = (double)(sampler.usage.cpu_us - sample->usage.cpu_us) /
                              (double)passed / 10 * 100 / (double)view.cpu_percent;
    sample->usage = sampler.usage;
    sample->at_ms = now;
    sample->round = sampler.round;
}

static void measured(struct box_op *op, const struct err *err)
{
    struct box *box = boxes_by_id(sampler.api->boxes, sampler.at);

    (void)op;
    if (sampler.api->draining) {
        sampler.at[0] = 0;
        return;
    }
    if (box && !err)
        take(box);
    measure_next(box);
}

static void measure_next(struct box *after)
{
    struct box *box = after;
    struct err err;

    sampler.at[0] = 0;
    while (sampler.left && (box = boxes_next(sampler.api->boxes, reach_all(NULL), box))) {
        struct sandbox_view view;

        box_view(box, &view);
        if (strcmp(view.state, "running") != 0)
            continue;
        sampler.left--;
        snprintf(sampler.at, sizeof(sampler.at), "%s", view.id);
        sampler.op = (struct box_op){ .done = measured };
        if (box_stats(box, &sampler.usage, &sampler.op, &err) == 0)
            return;
        sampler.at[0] = 0;
    }
}

static void measure(const struct api *api)
{
    int64_t now = clock_mono_ms();

    if (sampler.at[0] || api->draining ||
        (sampler.begun_ms && now - sampler.begun_ms < AGENT_SAMPLES_MS))
        return;
    sampler.api = api;
    sampler.begun_ms = now;
    sampler.round++;
    sampler.left = AGENT_SERIES_MAX;
    measure_next(NULL);
}

/* ---- telling ---- */

static void head(struct buf *out, const char *name, const char *type, const char *help)
{
    buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void put_one(struct buf *out, const char *name, const char *type, const char *help,
                    double value)
{
    head(out, name, type, help);
    buf_printf(out, "%s %.15g\n", name, value);
}

/* One agent's figures, from wherever they come. */
struct figures {
    const char *id, *tenant, *runtime;
    int64_t sessions, memory_used, memory_total, disk_used, disk_total;
    double cpu_percent;
    bool measured;
};

/* clang-format off */
static const struct {
    const char *name, *help;
} series[] = {
    { "agentic_agent_sessions_active",    "Commands that run" },
    { "agentic_agent_cpu_percent",        "Processor time, of what the agent may use" },
    { "agentic_agent_memory_used_bytes",  "Memory in use" },
    { "agentic_agent_memory_total_bytes", "Memory that it may use" },
    { "agentic_agent_disk_used_bytes",    "Disk in use" },
    { "agentic_agent_disk_total_bytes",   "Disk that it may use" },
};
/* clang-format on */

static void put_figure(struct buf *out, size_t which, const struct figures *agent)
{
    const double values[] = { (double)agent->sessions,    agent->cpu_percent,
                              (double)agent->memory_used, (double)agent->memory_total,
                              (double)agent->disk_used,   (double)agent->disk_total };

    if (which > 0 && !agent->measured)
        return;
    /* Ids of agents and tenants have no letter that would have to be escaped. */
    buf_printf(out, "%s{agent_id=\"%s\",tenant=\"%s\",runtime=\"%s\"} %.15g\n", series[which].name,
               agent->id, agent->tenant, agent->runtime, values[which]);
}

static struct figures of_sandbox(const struct box *box)
{
    struct sandbox_view view;

    box_view(box, &view);
    const struct sample *sample = map_get(&sampler.samples, str_of(view.id));
    struct figures out = { .id = view.name ? view.name : view.id,
                           .tenant = box_tenant(box),
                           .runtime = "sandbox",
                           .sessions = view.execs_running,
                           .memory_total = view.memory,
                           .disk_total = view.disk };
    if (sample) {
        out.measured = true;
        out.cpu_percent = sample->cpu_percent;
        out.memory_used = (int64_t)sample->usage.memory;
        out.disk_used = (int64_t)sample->usage.disk;
    }
    return out;
}

static struct figures of_linked(const struct linked *agent)
{
    struct agent_view view;

    linked_view(agent, &view);
    struct figures out = { .id = view.id,
                           .tenant = linked_tenant(agent),
                           .runtime = "link",
                           .measured = view.metrics != NULL };
    if (view.metrics) {
        out.cpu_percent = view.metrics->cpu_percent;
        out.memory_used = view.metrics->memory_used;
        out.memory_total = view.metrics->memory_total;
        out.disk_used = view.metrics->disk_used;
        out.disk_total = view.metrics->disk_total;
    }
    return out;
}

static void put_series(const struct api *api, struct buf *out)
{
    for (size_t i = 0; i < ARRAY_LEN(series); i++) {
        unsigned left = AGENT_SERIES_MAX;
        struct linked *agent = NULL;
        struct box *box = NULL;

        head(out, series[i].name, "gauge", series[i].help);
        while (left && (box = boxes_next(api->boxes, reach_all(NULL), box))) {
            struct sandbox_view view;

            box_view(box, &view);
            if (strcmp(view.state, "running") != 0)
                continue;
            struct figures figures = of_sandbox(box);
            put_figure(out, i, &figures);
            left--;
        }
        while (left && (agent = links_next(api->links, reach_all(NULL), agent))) {
            if (!linked_connected(agent))
                continue;
            struct figures figures = of_linked(agent);
            put_figure(out, i, &figures);
            left--;
        }
    }
}

static void put_connected(const struct api *api, struct buf *out)
{
    struct linked *agent = NULL;
    unsigned left = AGENT_SERIES_MAX;

    head(out, "agentic_agent_connected", "gauge",
         "Linked agents; one that is away is told of for five minutes");
    while (left-- && (agent = links_next(api->links, reach_all(NULL), agent))) {
        struct figures figures = of_linked(agent);

        buf_printf(out, "agentic_agent_connected{agent_id=\"%s\",tenant=\"%s\"} %d\n", figures.id,
                   figures.tenant, linked_connected(agent));
    }
}

static void forget_gone(const struct api *api)
{
    struct map_slot *slot;
    size_t at = 0;

    while ((slot = map_next(&sampler.samples, &at))) {
        char id[ID_SIZE];

        snprintf(id, sizeof(id), "%s", slot->key);
        if (boxes_by_id(api->boxes, id))
            continue;
        free(map_del(&sampler.samples, str_of(id)));
        at = 0; /* the map has changed */
    }
}

struct counts {
    int64_t running, stopped, busy;
};

static struct counts count(const struct api *api)
{
    struct counts out = { 0 };
    struct box *box = NULL;

    while ((box = boxes_next(api->boxes, reach_all(NULL), box))) {
        struct sandbox_view view;

        box_view(box, &view);
        bool running = strcmp(view.state, "running") == 0;
        out.running += running;
        out.stopped += !running;
        out.busy += running && view.execs_running > 0;
    }
    return out;
}

void agentic_metrics(const struct api *api, struct buf *out)
{
    struct counts boxes = count(api);
    int64_t linked = links_connected(api->links), ready = links_ready(api->links);

    put_one(out, "agentic_uptime_seconds", "gauge", "Since this process began to serve",
            (double)(clock_wall_ms() - api->started_ms) / 1000);
    put_one(out, "agentic_agents_connected", "gauge", "Running sandboxes, and linked agents",
            (double)(boxes.running + linked));
    put_one(out, "agentic_agents_ready", "gauge", "Of these, those that take commands",
            (double)(boxes.running + ready));
    head(out, "agentic_agents_by_status", "gauge", "Of these, with and without a command");
    buf_printf(out, "agentic_agents_by_status{status=\"ready\"} %lld\n",
               (long long)boxes.running - (long long)boxes.busy + (long long)ready);
    buf_printf(out, "agentic_agents_by_status{status=\"busy\"} %lld\n", (long long)boxes.busy);
    head(out, "agentic_containers_by_status", "gauge", "Sandboxes");
    buf_printf(out, "agentic_containers_by_status{status=\"running\"} %lld\n",
               (long long)boxes.running);
    buf_printf(out, "agentic_containers_by_status{status=\"stopped\"} %lld\n",
               (long long)boxes.stopped);
    put_one(out, "agentic_commands_duration_seconds_sum", "counter", "Time that commands ran",
            (double)tally_commands_ms() / 1000);
    put_series(api, out);
    put_connected(api, out);
    forget_gone(api);
    measure(api);
}
