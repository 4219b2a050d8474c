/*
 * What an agent says, message by message. Everything is copied or counted here before it is used,
 * and what does not fit ends the connection: an agent that is ours does not send such things.
 */
#include <stdio.h>

#include "base/clock.h"
#include "link/own.h"

/* ---- registration ---- */

static int check_text(const char *text, size_t max, const char *what, struct err *err)
{
    if (strlen(text) > max)
        return err_field(err, what, "longer than %zu bytes", max);
    return 0;
}

static int check_registration(const struct linked *agent, const V1(AgentRegistration) * said,
                              struct err *err)
{
    if (strcmp(said->agent_id, agent->id) != 0)
        return err_field(err, "agent_id", "is not the agent that connected");
    if (check_text(said->ip_address, LINK_TEXT_MAX, "ip_address", err) < 0 ||
        check_text(said->hostname, LINK_TEXT_MAX, "hostname", err) < 0 ||
        check_text(said->profile, LINK_TEXT_MAX, "profile", err) < 0 ||
        check_text(said->loadout, LINK_TEXT_MAX, "loadout", err) < 0)
        return -1;
    if (said->instance_id[0] && !uuid_shaped(str_of(said->instance_id)))
        return err_field(err, "instance_id", "is no UUID");
    if (said->system && (check_text(said->system->os, LINK_TEXT_MAX, "system.os", err) < 0 ||
                         check_text(said->system->kernel, LINK_TEXT_MAX, "system.kernel", err) < 0))
        return -1;
    if (said->n_aiwg_frameworks > LINK_FRAMEWORKS_MAX)
        return err_field(err, "aiwg_frameworks", "more than %d", LINK_FRAMEWORKS_MAX);
    for (size_t i = 0; i < said->n_aiwg_frameworks; i++) {
        const V1(AiwgFramework) *one = said->aiwg_frameworks[i];

        if (check_text(one->name, LINK_TEXT_MAX, "aiwg_frameworks.name", err) < 0)
            return -1;
        if (one->n_providers > LINK_PROVIDERS_MAX)
            return err_field(err, "aiwg_frameworks.providers", "more than %d", LINK_PROVIDERS_MAX);
        for (size_t k = 0; k < one->n_providers; k++)
            if (check_text(one->providers[k], LINK_TEXT_MAX, "aiwg_frameworks.providers", err) < 0)
                return -1;
    }
    return 0;
}

static void keep_frameworks(struct linked *agent, const V1(AgentRegistration) * said)
{
    size_t count = said->n_aiwg_frameworks;

    agent->frameworks = arena_alloc(&agent->arena, (count + 1) * sizeof(struct agent_framework));
    for (size_t i = 0; i < count; i++) {
        const V1(AiwgFramework) *one = said->aiwg_frameworks[i];
        const char **providers =
            arena_alloc(&agent->arena, (one->n_providers + 1) * sizeof(char *));

        for (size_t k = 0; k < one->n_providers; k++)
            providers[k] = arena_strdup(&agent->arena, one->providers[k]);
        agent->frameworks[i] =
            (struct agent_framework){ arena_strdup(&agent->arena, one->name), providers };
    }
}

static void keep_registration(struct linked *agent, const V1(AgentRegistration) * said)
{
    arena_free(&agent->arena);
    agent->hostname = arena_strdup(&agent->arena, said->hostname);
    agent->ip_address = arena_strdup(&agent->arena, said->ip_address);
    agent->profile = arena_strdup(&agent->arena, said->profile);
    agent->loadout = arena_strdup(&agent->arena, said->loadout);
    agent->has_system = said->system != NULL;
    if (said->system)
        agent->system =
            (struct agent_system){ .os = arena_strdup(&agent->arena, said->system->os),
                                   .kernel = arena_strdup(&agent->arena, said->system->kernel),
                                   .cpu_cores = said->system->cpu_cores,
                                   .memory_bytes = said->system->memory_bytes,
                                   .disk_bytes = said->system->disk_bytes };
    keep_frameworks(agent, said);
    if (said->instance_id[0])
        snprintf(agent->instance_id, sizeof(agent->instance_id), "%s", said->instance_id);
    else if (!agent->instance_id[0])
        uuid_v7(agent->instance_id);
}

static void tell_registered(struct linked *agent)
{
    V1(RegistrationAck) ack = AGENTIC__SANDBOX__V1__REGISTRATION_ACK__INIT;
    V1(SessionQuery) query = AGENTIC__SANDBOX__V1__SESSION_QUERY__INIT;
    V1(ManagementMessage) message = AGENTIC__SANDBOX__V1__MANAGEMENT_MESSAGE__INIT;

    ack.accepted = true;
    ack.message = (char *)(uintptr_t) "Welcome to Atoll";
    ack.heartbeat_interval_seconds = LINK_HEARTBEAT_S;
    message.payload_case = AGENTIC__SANDBOX__V1__MANAGEMENT_MESSAGE__PAYLOAD_REGISTRATION_ACK;
    message.registration_ack = &ack;
    links_tell(agent, &message);
    query.report_all = true;
    message.payload_case = AGENTIC__SANDBOX__V1__MANAGEMENT_MESSAGE__PAYLOAD_SESSION_QUERY;
    message.session_query = &query;
    links_tell(agent, &message);
    links_event(agent, "session.query_sent", STR("{\"report_all\":true}"));
}

static int hear_registration(struct link_peer *peer, const V1(AgentRegistration) * said,
                             struct err *err)
{
    struct linked *agent = peer->agent;
    autobuf struct buf body = { 0 };
    struct json_out json = json_to(&body);

    if (peer->registered)
        return err_set(err, ERR_INVALID, "registered already");
    if (check_registration(agent, said, err) < 0)
        return -1;
    keep_registration(agent, said);
    peer->registered = true;
    peer->version = said->atoll_link;
    links_seen(agent);
    json_open(&json, '{');
    json_kv_text(&json, "hostname", agent->hostname);
    json_kv_text(&json, "ip_address", agent->ip_address);
    json_close(&json, '}');
    links_event(agent, "agent.registered", buf_view(&body));
    tell_registered(agent);
    return 0;
}

/* ---- heartbeat and metrics ---- */

static void keep_owned(char **slot, const char *text)
{
    if (*slot && strcmp(*slot, text) == 0)
        return;
    free(*slot);
    *slot = xstrdup(text);
}

static int hear_heartbeat(struct link_peer *peer, const V1(Heartbeat) * said, struct err *err)
{
    struct linked *agent = peer->agent;

    if (check_text(said->setup_status, LINK_TEXT_MAX, "setup_status", err) < 0 ||
        check_text(said->setup_progress_json, LINK_PROGRESS_MAX, "setup_progress_json", err) < 0)
        return -1;
    /* Whether it is stale or gone is for us to say. */
    unsigned status = (unsigned)said->status;
    bool ours = status == AGENT_STALE || status == AGENT_DISCONNECTED;
    agent->status = status < AGENT_STATUSES && !ours ? (enum agent_status)status : AGENT_UNKNOWN;
    if (agent->status == AGENT_SHUTTING_DOWN)
        peer->asked = true;
    agent->metrics.cpu_percent = (double)said->cpu_percent;
    agent->metrics.memory_used = said->memory_used_bytes;
    agent->metrics.uptime_s = said->uptime_seconds;
    agent->has_metrics = true;
    keep_owned(&agent->setup_status, said->setup_status);
    keep_owned(&agent->setup_progress, said->setup_progress_json);
    if (agent->status == AGENT_READY && !peer->told_ready)
        links_event(agent, "agent.ready", STR("{}"));
    if (agent->status == AGENT_PROVISIONING && !peer->told_setup)
        links_event(agent, "agent.provisioning", STR("{}"));
    peer->told_ready |= agent->status == AGENT_READY;
    peer->told_setup |= agent->status == AGENT_PROVISIONING;
    return 0;
}

static int hear_metrics(struct link_peer *peer, const V1(Metrics) * said)
{
    struct agent_metrics *metrics = &peer->agent->metrics;

    metrics->cpu_percent = (double)said->cpu_percent;
    metrics->memory_used = said->memory_used_bytes;
    metrics->memory_total = said->memory_total_bytes;
    metrics->disk_used = said->disk_used_bytes;
    metrics->disk_total = said->disk_total_bytes;
    for (size_t i = 0; i < ARRAY_LEN(metrics->load_avg); i++)
        metrics->load_avg[i] = i < said->n_load_avg ? (double)said->load_avg[i] : 0;
    peer->agent->has_metrics = true;
    return 0;
}

/* ---- commands ---- */

/* Output for a command that is unknown, or that had ended, is dropped. */
static int hear_output(struct link_peer *peer, unsigned stream, const V1(OutputChunk) * chunk,
                       struct err *err)
{
    struct link_command *command = command_of(peer->agent, chunk->stream_id);

    if (command && command->state == COMMAND_RUNNING && !command->ending)
        return command_output(command, stream, chunk, err);
    return 0;
}

static int hear_result(struct link_peer *peer, const V1(CommandResult) * said, struct err *err)
{
    struct link_command *command = command_of(peer->agent, said->command_id);

    if (check_text(said->error, LINK_PROGRESS_MAX, "error", err) < 0)
        return -1;
    if (!command)
        return 0;
    if (command->state != COMMAND_RUNNING)
        command_ack(command); /* it did not hear us the first time */
    else
        command_end(command, COMMAND_EXITED, said->exit_code, said->error, said->duration_ms);
    return 0;
}

/* ---- all of them ---- */

static bool is_output(const V1(AgentMessage) * message)
{
    switch (message->payload_case) {
    case AGENTIC__SANDBOX__V1__AGENT_MESSAGE__PAYLOAD_STDOUT:
        return message->stdout->data.len > 0;
    case AGENTIC__SANDBOX__V1__AGENT_MESSAGE__PAYLOAD_STDERR:
        return message->stderr->data.len > 0;
    default:
        return false;
    }
}

/* Bytes have the pace of the network; everything else has ours. */
static int check_rate(struct link_peer *peer, const V1(AgentMessage) * message, struct err *err)
{
    int64_t now_ms = loop_now(peer->agent->links->options.loop);

    if (is_output(message))
        return 0;
    if (now_ms - peer->window_ms >= 1000) {
        peer->window_ms = now_ms;
        peer->control = 0;
    }
    /* Results come as fast as commands end. */
    if (message->payload_case == AGENTIC__SANDBOX__V1__AGENT_MESSAGE__PAYLOAD_COMMAND_RESULT ||
        ++peer->control <= LINK_CONTROL_PER_SECOND)
        return 0;
    return err_set(err, ERR_RATE, "more than %d messages a second", LINK_CONTROL_PER_SECOND);
}

int links_hear(struct link_peer *peer, const V1(AgentMessage) * message, struct err *err)
{
    if (!peer->agent)
        return err_set(err, ERR_CONFLICT, "this connection is over");
    if (check_rate(peer, message, err) < 0)
        return -1;
    if (!peer->registered &&
        message->payload_case != AGENTIC__SANDBOX__V1__AGENT_MESSAGE__PAYLOAD_REGISTRATION)
        return err_set(err, ERR_INVALID, "the first message must be the registration");
    peer->agent->heard_ms = clock_wall_ms();
    switch (message->payload_case) {
    case AGENTIC__SANDBOX__V1__AGENT_MESSAGE__PAYLOAD_REGISTRATION:
        return hear_registration(peer, message->registration, err);
    case AGENTIC__SANDBOX__V1__AGENT_MESSAGE__PAYLOAD_HEARTBEAT:
        return hear_heartbeat(peer, message->heartbeat, err);
    case AGENTIC__SANDBOX__V1__AGENT_MESSAGE__PAYLOAD_METRICS:
        return hear_metrics(peer, message->metrics);
    case AGENTIC__SANDBOX__V1__AGENT_MESSAGE__PAYLOAD_STDOUT:
        return hear_output(peer, 0, message->stdout, err);
    case AGENTIC__SANDBOX__V1__AGENT_MESSAGE__PAYLOAD_STDERR:
        return hear_output(peer, 1, message->stderr, err);
    case AGENTIC__SANDBOX__V1__AGENT_MESSAGE__PAYLOAD_COMMAND_RESULT:
        return hear_result(peer, message->command_result, err);
    case AGENTIC__SANDBOX__V1__AGENT_MESSAGE__PAYLOAD_SESSION_REPORT:
        return reconcile_report(peer, message->session_report, err);
    case AGENTIC__SANDBOX__V1__AGENT_MESSAGE__PAYLOAD_SESSION_RECONCILE_ACK:
        reconcile_acked(peer, message->session_reconcile_ack);
        return 0;
    case AGENTIC__SANDBOX__V1__AGENT_MESSAGE__PAYLOAD_LOG: /* of no command: nothing to keep it by
                                                            */
    default:
        return 0;
    }
}
