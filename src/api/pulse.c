/*
 * metrics_update on agentic's socket: how the agents do that somebody subscribed to. Agents from
 * elsewhere have told it with their heartbeat. Of sandboxes the kernel is asked, one after the
 * other and one question at a time, so that a connection costs a few questions a second at most,
 * however many sandboxes there are; a round is made every METRICS_MS.
 */
#include <stdio.h>

#include "api/session_ws.h"
#include "base/clock.h"
#include "link/links.h"

/* Of one sandbox: what it had used when, so that the next time tells the share. */
struct sample {
    struct list node;
    char sandbox[ID_SIZE];
    uint64_t cpu_us;
    int64_t at_ms;
};

struct pulse_ask {
    struct box_op op;
    struct box_usage usage;
    struct hub *hub; /* NULL: the connection is gone */
    char sandbox[ID_SIZE], tenant[TENANT_MAX + 1], by[ID_SIZE];
};

static void tell(struct hub *hub, const char *agent, const struct agent_metrics *metrics,
                 const struct agent_system *system)
{
    autobuf struct buf text = { 0 };
    struct json_out json = hub_open(&text, "metrics_update");

    json_kv_text(&json, "agent_id", agent);
    agent_metrics_put(&json, metrics);
    if (system) {
        json_kv_int(&json, "cpu_cores", system->cpu_cores);
        if (system->os && system->os[0])
            json_kv_text(&json, "os", system->os);
        if (system->kernel && system->kernel[0])
            json_kv_text(&json, "kernel", system->kernel);
    }
    (void)hub_send(hub, &json);
}

/* ---- sandboxes ---- */

static struct sample *sample_of(struct hub *hub, const char *sandbox)
{
    struct sample *sample;

    list_each (pos, &hub->pulse.samples) {
        sample = list_entry(pos, struct sample, node);
        if (strcmp(sample->sandbox, sandbox) == 0)
            return sample;
    }
    sample = xnew(struct sample);
    snprintf(sample->sandbox, sizeof(sample->sandbox), "%s", sandbox);
    list_append(&hub->pulse.samples, &sample->node);
    return sample;
}

static double cpu_share(struct sample *sample, uint64_t cpu_us)
{
    int64_t now = clock_mono_ms(), passed = now - sample->at_ms;
    bool known = sample->at_ms && passed > 0 && cpu_us >= sample->cpu_us;
    double share = known ? (double)(cpu_us - sample->cpu_us) / (double)passed / 10 : 0;

    sample->cpu_us = cpu_us;
    sample->at_ms = now;
    return share;
}

static void heard(struct box_op *op, const struct err *err)
{
    struct pulse_ask *ask = container_of(op, struct pulse_ask, op);
    struct hub *hub = ask->hub;
    struct box *box = hub ? boxes_by_id(hub->socket.api->boxes, ask->sandbox) : NULL;
    struct sandbox_view view;

    if (box && !err) {
        box_view(box, &view);
        struct agent_metrics metrics = {
            .cpu_percent = cpu_share(sample_of(hub, ask->sandbox), ask->usage.cpu_us),
            .load_avg = { -1 },
            .memory_used = (int64_t)ask->usage.memory,
            .memory_total = view.memory,
            .disk_used = (int64_t)ask->usage.disk,
            .disk_total = view.disk,
            .uptime_s = MAX(clock_wall_ms() - view.changed_at, 0) / 1000,
        };
        struct agent_system system = { .cpu_cores = (view.cpu_percent + 99) / 100 };
        tell(hub, agent_name(&view), &metrics, &system);
    }
    if (hub)
        hub->pulse.ask = NULL;
    free(ask);
}

static void ask_about(struct hub *hub, struct box *box, const struct sandbox_view *view)
{
    struct pulse_ask *ask = xnew(struct pulse_ask);
    struct err ignored;

    ask->hub = hub;
    snprintf(ask->sandbox, sizeof(ask->sandbox), "%s", view->id);
    snprintf(ask->tenant, sizeof(ask->tenant), "%s", hub->socket.who.tenant);
    snprintf(ask->by, sizeof(ask->by), "%s", hub->socket.who.id);
    ask->op = (struct box_op){ .tenant = ask->tenant, .by = ask->by, .done = heard };
    hub->pulse.ask = ask;
    if (box_stats(box, &ask->usage, &ask->op, &ignored) == 0)
        return;
    hub->pulse.ask = NULL;
    free(ask);
}

/* The next one that runs and is subscribed to; without one the round is over. */
static void ask_next(struct hub *hub)
{
    struct boxes *boxes = hub->socket.api->boxes;
    struct pulse *pulse = &hub->pulse;
    struct box *box = pulse->at[0] ? boxes_by_id(boxes, pulse->at) : NULL;
    struct sandbox_view view;

    while ((box = boxes_next(boxes, principal_reach(&hub->socket.who), box))) {
        box_view(box, &view);
        if (strcmp(view.state, "running") != 0 || !hub_subscribed(hub, agent_name(&view), view.id))
            continue;
        snprintf(pulse->at, sizeof(pulse->at), "%s", view.id);
        ask_about(hub, box, &view);
        return;
    }
    pulse->at[0] = 0;
}

static void forget_gone(struct hub *hub)
{
    list_each_safe (pos, &hub->pulse.samples) {
        struct sample *sample = list_entry(pos, struct sample, node);

        if (boxes_by_id(hub->socket.api->boxes, sample->sandbox))
            continue;
        list_remove(&sample->node);
        free(sample);
    }
}

/* ---- agents from elsewhere ---- */

static void tell_linked(struct hub *hub)
{
    struct linked *agent = NULL;
    struct agent_view view;

    while ((agent = links_next(hub->socket.api->links, principal_reach(&hub->socket.who), agent))) {
        linked_view(agent, &view);
        if (view.metrics && linked_connected(agent) && hub_subscribed(hub, view.id, NULL))
            tell(hub, view.id, view.metrics, view.system);
    }
}

/* ---- rounds ---- */

void pulse_beat(struct hub *hub)
{
    struct pulse *pulse = &hub->pulse;
    bool begins = !pulse->at[0];

    if (pulse->ask || (begins && clock_mono_ms() < pulse->next_ms))
        return;
    if (begins) {
        pulse->next_ms = clock_mono_ms() + METRICS_MS;
        forget_gone(hub);
        tell_linked(hub);
    }
    ask_next(hub);
}

void pulse_init(struct hub *hub)
{
    list_init(&hub->pulse.samples);
}

void pulse_free(struct hub *hub)
{
    struct list *node;

    if (hub->pulse.ask)
        hub->pulse.ask->hub = NULL; /* `heard` frees it */
    while ((node = list_pop(&hub->pulse.samples)))
        free(list_entry(node, struct sample, node));
}
