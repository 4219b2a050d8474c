/*
 * One loop: the connection and its pauses, heartbeats, signals; commands are in commands.c.
 *
 *   connect ─ register ─ (server asks) report ─ (server says how far it is) go on ─ … ─ cut ─ pause
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include "agent/facts.h"
#include "agent/own.h"
#include "base/clock.h"
#include "base/id.h"
#include "base/log.h"
#include "base/mem.h"
#include "http/grpc.h"

#define RETRY_MAX_MS 60000
#define REFUSED_MS 10000 /* a wrong secret is not tried often: the server would stop listening */
#define REPLACED_MS 30000
#define HEARTBEAT_MIN_S 1
#define HEARTBEAT_MAX_S 3600
#define SHUTDOWN_MAX_S 3600

void client_say(struct client *client, const V1(AgentMessage) * message)
{
    size_t len = agentic__sandbox__v1__agent_message__get_packed_size(message);
    autofree uint8_t *bytes = xmalloc(len + 1);

    if (!client->dial)
        return;
    agentic__sandbox__v1__agent_message__pack(message, bytes);
    dial_send(client->dial, (struct str){ (char *)bytes, len });
}

/* ---- who we are, how we are ---- */

static void say_framework(struct arena *arena, const struct json *item, V1(AiwgFramework) * out)
{
    const struct json *providers = json_get(item, "providers");
    struct str name = json_text(item, "name");

    agentic__sandbox__v1__aiwg_framework__init(out);
    out->name = arena_memdup0(arena, name.p, name.n);
    out->providers = arena_alloc(arena, LINK_PROVIDERS_MAX * sizeof(*out->providers));
    json_each(one, providers) if (one->type == JSON_STRING && one->text.n <= LINK_TEXT_MAX &&
                                  out->n_providers < LINK_PROVIDERS_MAX)
        out->providers[out->n_providers++] = arena_memdup0(arena, one->text.p, one->text.n);
}

/* What the server would refuse is left out: a file of others must not keep us from registering. */
static void say_frameworks(struct arena *arena, V1(AgentRegistration) * said)
{
    const struct json *list = facts_frameworks(arena);

    said->aiwg_frameworks =
        arena_alloc(arena, LINK_FRAMEWORKS_MAX * sizeof(*said->aiwg_frameworks));
    json_each(item, list)
    {
        struct str name = json_text(item, "name");

        if (!name.n || name.n > LINK_TEXT_MAX || said->n_aiwg_frameworks == LINK_FRAMEWORKS_MAX)
            continue;
        V1(AiwgFramework) *one = arena_new(arena, V1(AiwgFramework));
        say_framework(arena, item, one);
        said->aiwg_frameworks[said->n_aiwg_frameworks++] = one;
    }
}

static void say_registration(struct client *client)
{
    V1(AgentRegistration) said = AGENTIC__SANDBOX__V1__AGENT_REGISTRATION__INIT;
    V1(SystemInfo) system = AGENTIC__SANDBOX__V1__SYSTEM_INFO__INIT;
    V1(AgentMessage) message = AGENTIC__SANDBOX__V1__AGENT_MESSAGE__INIT;
    const struct agent_options *options = client->options;
    autoarena struct arena arena = { 0 };
    struct facts facts;
    char address[64];

    facts_read(&facts);
    say_frameworks(&arena, &said);
    dial_address(client->dial, address, sizeof(address));
    system.os = facts.os;
    system.kernel = facts.kernel;
    system.cpu_cores = facts.cpu_cores;
    system.memory_bytes = facts.memory_total;
    system.disk_bytes = facts.disk_total;
    said.agent_id = (char *)(uintptr_t)options->id;
    said.ip_address = address;
    said.hostname = facts.hostname;
    said.profile = (char *)(uintptr_t)options->profile;
    said.loadout = (char *)(uintptr_t)options->loadout;
    said.instance_id = (char *)(uintptr_t)options->instance_id;
    said.system = &system;
    said.atoll_link = 1;
    message.payload_case = AGENTIC__SANDBOX__V1__AGENT_MESSAGE__PAYLOAD_REGISTRATION;
    message.registration = &said;
    client_say(client, &message);
}

static void say_heartbeat(struct client *client, const struct facts_now *now)
{
    V1(Heartbeat) said = AGENTIC__SANDBOX__V1__HEARTBEAT__INIT;
    V1(AgentMessage) message = AGENTIC__SANDBOX__V1__AGENT_MESSAGE__INIT;
    static struct facts_setup setup;

    facts_setup(client->options->setup_dir, &setup);
    said.agent_id = (char *)(uintptr_t)client->options->id;
    said.timestamp_ms = clock_wall_ms();
    said.status = client->over   ? AGENTIC__SANDBOX__V1__AGENT_STATUS__AGENT_STATUS_SHUTTING_DOWN
                  : !setup.ready ? AGENTIC__SANDBOX__V1__AGENT_STATUS__AGENT_STATUS_PROVISIONING
                  : commands_running(client)
                      ? AGENTIC__SANDBOX__V1__AGENT_STATUS__AGENT_STATUS_BUSY
                      : AGENTIC__SANDBOX__V1__AGENT_STATUS__AGENT_STATUS_READY;
    said.cpu_percent = (float)now->cpu_percent;
    said.memory_used_bytes = now->memory_used;
    said.uptime_seconds = now->uptime_s;
    said.setup_status = setup.status;
    said.setup_progress_json = setup.progress;
    message.payload_case = AGENTIC__SANDBOX__V1__AGENT_MESSAGE__PAYLOAD_HEARTBEAT;
    message.heartbeat = &said;
    client_say(client, &message);
}

static void say_metrics(struct client *client, const struct facts_now *now)
{
    V1(Metrics) said = AGENTIC__SANDBOX__V1__METRICS__INIT;
    V1(AgentMessage) message = AGENTIC__SANDBOX__V1__AGENT_MESSAGE__INIT;
    float load[3] = { (float)now->load_avg[0], (float)now->load_avg[1], (float)now->load_avg[2] };

    said.agent_id = (char *)(uintptr_t)client->options->id;
    said.timestamp_ms = clock_wall_ms();
    said.cpu_percent = (float)now->cpu_percent;
    said.memory_used_bytes = now->memory_used;
    said.memory_total_bytes = now->memory_total;
    said.disk_used_bytes = now->disk_used;
    said.disk_total_bytes = now->disk_total;
    said.n_load_avg = ARRAY_LEN(load);
    said.load_avg = load;
    message.payload_case = AGENTIC__SANDBOX__V1__AGENT_MESSAGE__PAYLOAD_METRICS;
    message.metrics = &said;
    client_say(client, &message);
}

static void beat(struct client *client)
{
    struct facts_now now;

    if (!client->registered)
        return;
    facts_now(&now);
    say_heartbeat(client, &now);
    say_metrics(client, &now);
    timer_set(client->loop, &client->heartbeat, client->heartbeat_ms);
}

static void on_heartbeat(struct timer *timer)
{
    beat(container_of(timer, struct client, heartbeat));
}

/* ---- what runs here ---- */

static void say_report(struct client *client)
{
    V1(SessionReport) report = AGENTIC__SANDBOX__V1__SESSION_REPORT__INIT;
    V1(AgentMessage) message = AGENTIC__SANDBOX__V1__AGENT_MESSAGE__INIT;
    autoarena struct arena arena = { 0 };
    V1(ActiveSession) **sessions = arena_alloc(&arena, LINK_REPORT_MAX * sizeof(*sessions));
    size_t count = 0;

    list_each (pos, &client->commands) {
        const struct command *command = list_entry(pos, struct command, node);
        V1(ActiveSession) *session = arena_new(&arena, V1(ActiveSession));

        if (count == LINK_REPORT_MAX)
            break;
        agentic__sandbox__v1__active_session__init(session);
        session->command_id = (char *)(uintptr_t)command->id;
        session->started_at_ms = command->started_ms;
        if (command->request) {
            session->session_name = command->request->session_name;
            session->command = command->request->command;
            session->is_pty = command->request->allocate_pty;
            session->session_type =
                session->is_pty ? AGENTIC__SANDBOX__V1__SESSION_TYPE__SESSION_TYPE_INTERACTIVE
                                : AGENTIC__SANDBOX__V1__SESSION_TYPE__SESSION_TYPE_HEADLESS;
        }
        sessions[count++] = session;
    }
    report.agent_id = (char *)(uintptr_t)client->options->id;
    report.timestamp_ms = clock_wall_ms();
    report.n_sessions = count;
    report.sessions = sessions;
    message.payload_case = AGENTIC__SANDBOX__V1__AGENT_MESSAGE__PAYLOAD_SESSION_REPORT;
    message.session_report = &report;
    client_say(client, &message);
}

static void say_reconciled(struct client *client, bool with_kills)
{
    V1(SessionReconcileAck) ack = AGENTIC__SANDBOX__V1__SESSION_RECONCILE_ACK__INIT;
    V1(AgentMessage) message = AGENTIC__SANDBOX__V1__AGENT_MESSAGE__INIT;
    char *killed[LINK_REPORT_MAX], *kept[LINK_REPORT_MAX];

    ack.killed_session_ids = killed;
    ack.kept_session_ids = kept;
    list_each (pos, &client->commands) {
        struct command *command = list_entry(pos, struct command, node);

        if (ack.n_killed_session_ids == LINK_REPORT_MAX ||
            ack.n_kept_session_ids == LINK_REPORT_MAX)
            break;
        if (command->killing && with_kills)
            killed[ack.n_killed_session_ids++] = command->id;
        else
            kept[ack.n_kept_session_ids++] = command->id;
    }
    ack.agent_id = (char *)(uintptr_t)client->options->id;
    ack.timestamp_ms = clock_wall_ms();
    message.payload_case = AGENTIC__SANDBOX__V1__AGENT_MESSAGE__PAYLOAD_SESSION_RECONCILE_ACK;
    message.session_reconcile_ack = &ack;
    client_say(client, &message);
}

/* The grace is over: who has not ended by itself is ended. */
static void on_grace(struct timer *timer)
{
    struct client *client = container_of(timer, struct client, grace);

    list_each (pos, &client->commands) {
        struct command *command = list_entry(pos, struct command, node);

        if (command->killing && !command->done)
            command_give(command, KEEPER_SIGNAL, SIGKILL, 0, STR_NONE);
    }
    say_reconciled(client, true);
}

static void hear_reconcile(struct client *client, const V1(SessionReconcile) * said)
{
    bool kills = false;

    for (size_t i = 0; i < said->n_kill_session_ids; i++) {
        struct command *command = commands_find(client, said->kill_session_ids[i]);

        if (!command)
            continue;
        command->killing = kills = true;
        command_give(command, KEEPER_SIGNAL, SIGTERM, 0, STR_NONE);
    }
    /* A server that does not say positions: on from where we were. */
    list_each (pos, &client->commands)
        list_entry(pos, struct command, node)->synced = true;
    if (kills)
        timer_set(client->loop, &client->grace,
                  (int64_t)MIN(MAX(said->grace_period_seconds, 0), 60) * 1000);
    else
        say_reconciled(client, false);
    commands_pump(client);
}

/* ---- what the server says ---- */

static void keep_secret(struct client *client, const char *secret)
{
    autoclose int fd = openat(client->root, "secret.part",
                              O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    size_t len = strlen(secret);

    if (len == 0 || len >= sizeof(client->secret))
        return;
    if (fd < 0 || write(fd, secret, len) != (ssize_t)len || fsync(fd) < 0 ||
        renameat(client->root, "secret.part", client->root, "secret") < 0) {
        log_warn("the new secret cannot be kept; the old one is used on");
        return;
    }
    memcpy(client->secret, secret, len + 1);
    log_info("the server gave another secret");
}

static void hear_config(struct client *client, const V1(ConfigUpdate) * said)
{
    for (size_t i = 0; i < said->n_config; i++) {
        const char *key = said->config[i]->key, *value = said->config[i]->value;

        if (strcmp(key, "AGENT_SECRET") == 0)
            keep_secret(client, value);
        else if (key[0] && !strchr(key, '='))
            setenv(key, value, 1);
    }
}

static void hear_registered(struct client *client, const V1(RegistrationAck) * said)
{
    if (!said->accepted) {
        log_warn("the server does not accept us", kv_str("message", said->message));
        return;
    }
    client->registered = true;
    client->retry_ms = client->options->retry_ms;
    client->why[0] = 0;
    if (said->heartbeat_interval_seconds > 0)
        client->heartbeat_ms =
            (int64_t)MIN(MAX(said->heartbeat_interval_seconds, HEARTBEAT_MIN_S), HEARTBEAT_MAX_S) *
            1000;
    log_info("connected", kv_str("agent", client->options->id),
             kv_str("server", client->options->target.host));
    beat(client);
}

static void leave(struct client *client, int status)
{
    client->over = true;
    client->exit_status = status;
    if (client->registered) {
        beat(client); /* says that we go, so that it is no crash */
        timer_set(client->loop, &client->retry, 200);
    } else {
        loop_stop(client->loop);
    }
}

static void on_shutdown(struct timer *timer)
{
    leave(container_of(timer, struct client, shutdown), 0);
}

/* What runs has the grace to end, and to tell how; what goes on then has its keeper. */
static void hear_shutdown(struct client *client, const V1(ShutdownSignal) * said)
{
    int64_t grace = MIN(MAX(said->grace_period_seconds, 0), SHUTDOWN_MAX_S);

    log_info("the server asks us to end", kv_str("reason", said->reason), kv_int("seconds", grace));
    timer_set(client->loop, &client->shutdown, grace * 1000);
}

static void hear(struct client *client, const V1(ManagementMessage) * said)
{
    struct command *command;

    switch (said->payload_case) {
    case AGENTIC__SANDBOX__V1__MANAGEMENT_MESSAGE__PAYLOAD_REGISTRATION_ACK:
        hear_registered(client, said->registration_ack);
        break;
    case AGENTIC__SANDBOX__V1__MANAGEMENT_MESSAGE__PAYLOAD_COMMAND:
        commands_begin(client, said->command);
        break;
    case AGENTIC__SANDBOX__V1__MANAGEMENT_MESSAGE__PAYLOAD_CONFIG:
        hear_config(client, said->config);
        break;
    case AGENTIC__SANDBOX__V1__MANAGEMENT_MESSAGE__PAYLOAD_SHUTDOWN:
        hear_shutdown(client, said->shutdown);
        break;
    case AGENTIC__SANDBOX__V1__MANAGEMENT_MESSAGE__PAYLOAD_STDIN:
        command = commands_find(client, said->stdin->command_id);
        if (command && said->stdin->data.len)
            command_give(command, KEEPER_INPUT, 0, 0,
                         (struct str){ (char *)said->stdin->data.data, said->stdin->data.len });
        if (command && said->stdin->eof)
            command_give(command, KEEPER_EOF, 0, 0, STR_NONE);
        break;
    case AGENTIC__SANDBOX__V1__MANAGEMENT_MESSAGE__PAYLOAD_PTY_CONTROL: {
        const V1(PtyControl) *act = said->pty_control;

        command = commands_find(client, act->command_id);
        if (command && act->action_case == AGENTIC__SANDBOX__V1__PTY_CONTROL__ACTION_RESIZE)
            command_give(command, KEEPER_SIZE, act->resize->rows, act->resize->cols, STR_NONE);
        if (command && act->action_case == AGENTIC__SANDBOX__V1__PTY_CONTROL__ACTION_SIGNAL)
            command_give(command, KEEPER_SIGNAL, (uint32_t)act->signal->signal_number, 0, STR_NONE);
        break;
    }
    case AGENTIC__SANDBOX__V1__MANAGEMENT_MESSAGE__PAYLOAD_SESSION_QUERY:
        say_report(client);
        break;
    case AGENTIC__SANDBOX__V1__MANAGEMENT_MESSAGE__PAYLOAD_SESSION_RECONCILE:
        hear_reconcile(client, said->session_reconcile);
        break;
    case AGENTIC__SANDBOX__V1__MANAGEMENT_MESSAGE__PAYLOAD_OUTPUT_ACK:
        command = commands_find(client, said->output_ack->command_id);
        if (command)
            command_acked(command, said->output_ack);
        break;
    default: /* a ping wants no answer */
        break;
    }
}

static void on_message(void *ctx, struct str message)
{
    V1(ManagementMessage) *said = agentic__sandbox__v1__management_message__unpack(
        NULL, message.n, (const uint8_t *)message.p);

    if (!said)
        return;
    hear(ctx, said);
    agentic__sandbox__v1__management_message__free_unpacked(said, NULL);
}

static void on_room(void *ctx)
{
    commands_pump(ctx);
}

/* ---- connecting ---- */

static void later(struct client *client, int64_t least_ms)
{
    /* Agents that lost the same server do not all come back at once. */
    unsigned char chance;

    random_bytes(&chance, 1);
    int64_t wait = MAX(client->retry_ms, least_ms);
    client->retry_ms = MIN(client->retry_ms * 2, (int64_t)RETRY_MAX_MS);
    timer_set(client->loop, &client->retry, wait + wait * chance / 1024);
}

/* Said when it is new, not at every try. */
static void complain(struct client *client, const char *why)
{
    if (strcmp(client->why, why) == 0)
        return;
    snprintf(client->why, sizeof(client->why), "%s", why);
    log_warn("not connected; tried again until it works", kv_str("error", why));
}

static void disconnect(struct client *client)
{
    dial_free(client->dial);
    client->dial = NULL;
    client->registered = false;
    timer_cancel(client->loop, &client->heartbeat);
    timer_cancel(client->loop, &client->grace);
    commands_unsync(client);
}

static void on_end(void *ctx, int status, const char *why)
{
    struct client *client = ctx;

    if (client->over) {
        disconnect(client);
        loop_stop(client->loop);
        return;
    }
    complain(client, why[0] ? why : "the server ended the call");
    disconnect(client); /* `why` is the connection's */
    if (status == GRPC_UNAUTHENTICATED && client->given[0]) {
        char other[sizeof(client->secret)];

        /* The one that is kept may be older than the one we were given. */
        memcpy(other, client->secret, sizeof(other));
        memcpy(client->secret, client->given, sizeof(other));
        memcpy(client->given, other, sizeof(other));
    }
    later(client, status == GRPC_UNAUTHENTICATED ? REFUSED_MS
                  : status == GRPC_ABORTED       ? REPLACED_MS
                                                 : 0);
}

static const struct dial_ops dial_ops = { .on_message = on_message,
                                          .on_room = on_room,
                                          .on_end = on_end };

static void on_retry(struct timer *timer)
{
    struct client *client = container_of(timer, struct client, retry);
    const struct agent_options *options = client->options;
    struct err err = { 0 };

    if (client->over) {
        loop_stop(client->loop);
        return;
    }
    const struct dial_options how = {
        .loop = client->loop,
        .target = &options->target,
        .ca_file = options->ca_file,
        .path = "/agentic.sandbox.v1.AgentService/Connect",
        .headers = { { "x-agent-id", options->id }, { "x-agent-secret", client->secret } },
        .ops = &dial_ops,
        .ctx = client,
    };
    if (dial_open(&client->dial, &how, &err) < 0) {
        complain(client, err.msg);
        later(client, 0);
        return;
    }
    say_registration(client);
}

/* ---- life ---- */

static void on_signal(void *ctx, int number)
{
    struct client *client = ctx;

    if (number != SIGHUP) {
        leave(client, 0);
        return;
    }
    disconnect(client); /* and register again; nothing that runs is touched */
    client->retry_ms = client->options->retry_ms;
    timer_set(client->loop, &client->retry, 0);
}

/* Ours alone: two clients would start each other's commands again. */
static int open_dirs(struct client *client, struct err *err)
{
    const char *dir = client->options->dir;

    if (mkdir(dir, 0700) < 0 && errno != EEXIST)
        return err_sys(err, "make %s", dir);
    client->root = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (client->root < 0)
        return err_sys(err, "open %s", dir);
    if (flock(client->root, LOCK_EX | LOCK_NB) < 0)
        return err_set(err, ERR_CONFLICT, "another agent-client uses %s", dir);
    if (mkdirat(client->root, "commands", 0700) < 0 && errno != EEXIST)
        return err_sys(err, "make %s/commands", dir);
    client->cmds =
        openat(client->root, "commands", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return client->cmds < 0 ? err_sys(err, "open %s/commands", dir) : 0;
}

static void read_secret(struct client *client)
{
    autoclose int fd = openat(client->root, "secret", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, client->secret, sizeof(client->secret) - 1);

    if (got <= 0) {
        snprintf(client->secret, sizeof(client->secret), "%s", client->options->secret);
        return;
    }
    client->secret[got] = 0;
    snprintf(client->given, sizeof(client->given), "%s", client->options->secret);
}

int agent_run(const struct agent_options *options, struct err *err)
{
    static const int signals[] = { SIGTERM, SIGINT, SIGHUP };
    struct client client = { .options = options,
                             .root = -1,
                             .cmds = -1,
                             .retry_ms = options->retry_ms,
                             .heartbeat_ms = options->heartbeat_ms,
                             .retry = { .fn = on_retry },
                             .heartbeat = { .fn = on_heartbeat },
                             .grace = { .fn = on_grace },
                             .shutdown = { .fn = on_shutdown } };
    int rc = -1;

    list_init(&client.commands);
    /* Commands of the same user cannot read the secret out of our memory, or what began it. */
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    sigaction(SIGPIPE, &(struct sigaction){ .sa_handler = SIG_IGN }, NULL);
    /* Keepers are their own; nobody waits for them. */
    sigaction(SIGCHLD, &(struct sigaction){ .sa_handler = SIG_DFL, .sa_flags = SA_NOCLDWAIT },
              NULL);
    if (open_dirs(&client, err) == 0 && loop_new(&client.loop, err) == 0 &&
        loop_signals(client.loop, signals, ARRAY_LEN(signals), on_signal, &client, err) == 0 &&
        commands_adopt(&client, err) == 0) {
        read_secret(&client);
        timer_set(client.loop, &client.retry, 0);
        loop_run(client.loop);
        rc = client.exit_status;
        commands_free(&client);
        dial_free(client.dial);
    }
    loop_free(client.loop);
    explicit_bzero(client.secret, sizeof(client.secret));
    explicit_bzero(client.given, sizeof(client.given));
    for (size_t i = 0; i < 2; i++)
        if ((i ? client.root : client.cmds) >= 0)
            close(i ? client.root : client.cmds);
    return rc;
}
