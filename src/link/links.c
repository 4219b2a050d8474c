/*
 * The registry: who may connect, who has, and who has fallen silent.
 *
 * An agent is in it as long as it has a secret. It is shown while it is connected and for
 * remove_ms after; then it counts as gone and its commands as lost.
 */
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/metric.h"
#include "link/own.h"

METRIC_GAUGE(connected_now, "atoll_link_agents", "Agents that are connected");

static void on_check(struct timer *timer);

struct links *links_new(const struct links_options *options)
{
    struct links *links = xnew(struct links);

    links->options = *options;
    links->options.check_ms = options->check_ms ? options->check_ms : LINK_CHECK_MS;
    links->options.stale_ms = options->stale_ms ? options->stale_ms : LINK_STALE_MS;
    links->options.gone_ms = options->gone_ms ? options->gone_ms : LINK_GONE_MS;
    links->options.remove_ms = options->remove_ms ? options->remove_ms : LINK_REMOVE_MS;
    links->check.fn = on_check;
    list_init(&links->agents);
    list_init(&links->watches);
    return links;
}

static void linked_free(struct linked *agent)
{
    list_each_safe (pos, &agent->commands)
        command_free(list_entry(pos, struct link_command, node));
    map_del(&agent->links->by_id, str_of(agent->id));
    list_remove(&agent->node);
    explicit_bzero(agent->hash, sizeof(agent->hash));
    free(agent->setup_status);
    free(agent->setup_progress);
    arena_free(&agent->arena);
    arena_free(&agent->given);
    free(agent);
}

void links_free(struct links *links)
{
    if (!links)
        return;
    timer_cancel(links->options.loop, &links->check);
    while (list_pop(&links->watches))
        ;
    list_each_safe (pos, &links->agents) {
        struct linked *agent = list_entry(pos, struct linked, node);

        if (agent->peer)
            agent->peer->agent = NULL; /* its owner ends by itself */
        linked_free(agent);
    }
    map_free(&links->by_id);
    close(links->options.spool_dir);
    free(links);
}

int links_load(struct links *links, struct db *db, struct err *err)
{
    return link_rows_load(links, db, err);
}

void links_start(struct links *links)
{
    timer_set(links->options.loop, &links->check, links->options.check_ms);
}

void links_drain(struct links *links)
{
    struct err why = { 0 };

    err_set(&why, ERR_UNAVAILABLE, "the server is about to stop");
    list_each (pos, &links->agents) {
        struct linked *agent = list_entry(pos, struct linked, node);
        struct link_peer *peer = agent->peer;

        list_each (at, &agent->commands)
            command_cut(list_entry(at, struct link_command, node), &why);
        if (!peer)
            continue;
        peer->asked = true;
        links_close(peer);
        peer->end(peer, &why);
    }
}

struct linked *linked_new(struct links *links, const char *id, const char *tenant)
{
    struct linked *agent = xnew(struct linked);

    agent->links = links;
    snprintf(agent->id, sizeof(agent->id), "%s", id);
    snprintf(agent->tenant, sizeof(agent->tenant), "%s", tenant);
    agent->status = AGENT_DISCONNECTED;
    list_init(&agent->commands);
    list_append(&links->agents, &agent->node);
    map_put(&links->by_id, str_of(agent->id), agent);
    return agent;
}

/* ---- secrets ---- */

void links_secret(struct links *links, const struct secret_row *row)
{
    struct str name = { row->name, strlen(row->name) };
    struct linked *agent = linked_get(links, name);

    if (!agent)
        agent = linked_new(links, row->name, row->tenant);
    memcpy(agent->hash, row->hash, sizeof(agent->hash));
    memcpy(agent->next, row->next, sizeof(agent->next));
    agent->next_until_ms = row->next_until_ms;
}

void links_give(struct links *links, const char *id, const struct access *access)
{
    struct linked *agent = linked_get(links, str_of(id));

    if (!agent)
        return;
    arena_free(&agent->given);
    agent->given = (struct arena){ 0 };
    agent->access = access_copy(&agent->given, access);
}

void links_secret_gone(struct links *links, const char *id)
{
    struct linked *agent = linked_get(links, str_of(id));
    struct err why = { 0 };

    if (!agent)
        return;
    links_give(links, id, &(struct access){ 0 }); /* the next one of the name is another machine */
    struct link_peer *peer = agent->peer;
    if (peer) {
        err_set(&why, ERR_UNAUTHENTICATED, "the secret of this agent was deleted");
        links_close(peer);
        peer->end(peer, &why);
    }
    memset(agent->hash, 0, sizeof(agent->hash)); /* nobody knows what has this hash */
    agent->next_until_ms = 0;
    agent->heard_ms = 0;
    commands_lost(agent, "The agent's secret was deleted");
}

/* Is it the secret, or the one that is to follow? The second then takes the place of the first. */
static bool verify(struct linked *agent, struct str secret)
{
    unsigned char hash[SHA256_SIZE];

    sha256(secret.p, secret.n, hash);
    if (secret_eq(agent->hash, hash, sizeof(hash)))
        return true;
    if (agent->next_until_ms <= clock_wall_ms() || !secret_eq(agent->next, hash, sizeof(hash)))
        return false;
    memcpy(agent->hash, agent->next, sizeof(agent->hash));
    agent->next_until_ms = 0;
    link_settle_secret(agent);
    return true;
}

/* ---- connections ---- */

static void count_connected(const struct links *links)
{
    metric_set(&connected_now, 0, links_connected(links));
}

int links_open(struct links *links, struct str id, struct str secret, struct link_peer *peer,
               struct err *err)
{
    struct linked *agent = linked_get(links, id);
    struct err why = { 0 };

    /* One answer for both: who has no secret learns no names. */
    if (!agent || !verify(agent, secret))
        return err_set(err, ERR_UNAUTHENTICATED, "Invalid agent secret");
    struct link_peer *old = agent->peer;
    if (old) {
        old->asked = true; /* no crash of its own */
        err_set(&why, ERR_CONFLICT, "replaced by a newer connection of this agent");
        links_close(old);
        old->end(old, &why);
    }
    peer->agent = agent;
    peer->since_ms = agent->connected_ms = agent->heard_ms = clock_wall_ms();
    agent->peer = peer;
    agent->status = AGENT_STARTING;
    count_connected(links);
    links_event(agent, "agent.connected", STR("{\"address\":\"pending\"}"));
    return 0;
}

void links_close(struct link_peer *peer)
{
    struct linked *agent = peer->agent;

    if (!agent)
        return;
    peer->agent = NULL;
    agent->peer = NULL;
    agent->heard_ms = clock_wall_ms();
    count_connected(agent->links);
    links_event(agent, "agent.disconnected", STR("{}"));
    if (crash_ended(&agent->crash, peer->since_ms, agent->heard_ms, peer->asked)) {
        log_warn("an agent keeps leaving soon after it came", kv_str("agent", agent->id));
        links_event(agent, "agent.crash_loop", STR("{\"reason\":\"short connections\"}"));
    }
    links_seen(agent);
}

bool links_tell(struct linked *agent, const V1(ManagementMessage) * message)
{
    return agent->peer && agent->peer->registered && agent->peer->send(agent->peer, &message->base);
}

/* ---- time ---- */

static enum agent_status status_now(const struct linked *agent, int64_t now_ms)
{
    const struct links_options *options = &agent->links->options;
    int64_t silent = now_ms - agent->heard_ms;

    if (!agent->peer)
        return AGENT_DISCONNECTED;
    if (silent > options->gone_ms)
        return AGENT_DISCONNECTED;
    if (silent > options->stale_ms)
        return AGENT_STALE;
    return agent->status;
}

static bool shown(const struct linked *agent, int64_t now_ms)
{
    return agent->peer || now_ms - agent->heard_ms <= agent->links->options.remove_ms;
}

/* To one that is silent: if its machine is gone, the kernel finds out by what is not acknowledged.
 */
static void ping(struct linked *agent, int64_t now_ms)
{
    V1(Ping) said = AGENTIC__SANDBOX__V1__PING__INIT;
    V1(ManagementMessage) message = AGENTIC__SANDBOX__V1__MANAGEMENT_MESSAGE__INIT;

    said.timestamp_ms = now_ms;
    message.payload_case = AGENTIC__SANDBOX__V1__MANAGEMENT_MESSAGE__PAYLOAD_PING;
    message.ping = &said;
    links_tell(agent, &message);
}

static void on_check(struct timer *timer)
{
    struct links *links = container_of(timer, struct links, check);
    int64_t now_ms = clock_wall_ms();

    list_each_safe (pos, &links->agents) {
        struct linked *agent = list_entry(pos, struct linked, node);

        if (agent->peer)
            crash_alive(&agent->crash, agent->peer->since_ms, now_ms);
        if (now_ms - agent->heard_ms > links->options.stale_ms)
            ping(agent, now_ms);
        if (!shown(agent, now_ms))
            commands_lost(agent, "Agent disconnected");
    }
    timer_set(links->options.loop, timer, links->options.check_ms);
}

/* ---- looking ---- */

static bool within(const struct linked *agent, struct reach reach)
{
    return reach_has(reach, agent->tenant, NULL, &agent->access);
}

int links_find(struct links *links, struct reach reach, const char *id, struct linked **out,
               struct err *err)
{
    struct linked *agent = linked_get(links, str_of(id));

    if (!agent || !within(agent, reach) ||
        (!shown(agent, clock_wall_ms()) && list_empty(&agent->commands)))
        return err_set(err, ERR_NOT_FOUND, "Agent '%.63s' not found", id);
    *out = agent;
    return 0;
}

const char *linked_tenant(const struct linked *agent)
{
    return agent->tenant;
}

struct linked *links_next(struct links *links, struct reach reach, struct linked *after)
{
    struct list *pos = after ? after->node.next : links->agents.next;
    int64_t now_ms = clock_wall_ms();

    for (; pos != &links->agents; pos = pos->next) {
        struct linked *agent = list_entry(pos, struct linked, node);

        if (within(agent, reach) && shown(agent, now_ms))
            return agent;
    }
    return NULL;
}

void linked_view(const struct linked *agent, struct agent_view *out)
{
    *out = (struct agent_view){ .id = agent->id,
                                .instance_id = agent->instance_id,
                                .access = agent->access,
                                .hostname = agent->hostname,
                                .ip_address = agent->ip_address,
                                .profile = agent->profile,
                                .loadout = agent->loadout,
                                .status = status_now(agent, clock_wall_ms()),
                                .setup_status = agent->setup_status,
                                .setup_progress_json = agent->setup_progress,
                                .connected_at = agent->connected_ms,
                                .last_heartbeat = agent->heard_ms,
                                .metrics = agent->has_metrics ? &agent->metrics : NULL,
                                .system = agent->has_system ? &agent->system : NULL,
                                .frameworks = agent->frameworks,
                                .runtime = "link",
                                .crash_loop = agent->crash.loop };
}

bool linked_shown(const struct linked *agent)
{
    return shown(agent, clock_wall_ms());
}

bool linked_connected(const struct linked *agent)
{
    return agent->peer != NULL;
}

unsigned links_connected(const struct links *links)
{
    unsigned count = 0;

    list_each (pos, &links->agents)
        count += list_entry(pos, struct linked, node)->peer != NULL;
    return count;
}

unsigned links_ready(const struct links *links)
{
    unsigned count = 0;

    list_each (pos, &links->agents) {
        const struct linked *agent = list_entry(pos, struct linked, node);

        count += agent->peer && (agent->status == AGENT_READY || agent->status == AGENT_BUSY);
    }
    return count;
}

bool linked_tell_secret(struct linked *agent, const char *plain)
{
    V1(ConfigUpdate__ConfigEntry) entry = AGENTIC__SANDBOX__V1__CONFIG_UPDATE__CONFIG_ENTRY__INIT;
    V1(ConfigUpdate__ConfigEntry) * entries[] = { &entry };
    V1(ConfigUpdate) config = AGENTIC__SANDBOX__V1__CONFIG_UPDATE__INIT;
    V1(ManagementMessage) message = AGENTIC__SANDBOX__V1__MANAGEMENT_MESSAGE__INIT;

    entry.key = (char *)(uintptr_t) "AGENT_SECRET";
    entry.value = (char *)(uintptr_t)plain;
    config.n_config = 1;
    config.config = entries;
    message.payload_case = AGENTIC__SANDBOX__V1__MANAGEMENT_MESSAGE__PAYLOAD_CONFIG;
    message.config = &config;
    return links_tell(agent, &message);
}
