/*
 * The client's side of a command: a directory (keeper.h), a connection to its keeper, and how far
 * the server has it. Nothing here is needed for the command to go on.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "agent/own.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

#define CHUNK 32768
#define KNOCK_MS 5        /* between two tries to reach a keeper */
#define KNOCK_MAX_MS 5000 /* then it is not there */
#define INPUT_MAX (4u << 20)
#define ACK_STEP (1u << 18)
#define SPEC_MAX (2u << 20)

/* ---- the object ---- */

static void unwatch(struct command *command)
{
    if (command->ctl.fd < 0)
        return;
    loop_unwatch(command->client->loop, &command->ctl);
    close(command->ctl.fd);
    command->ctl.fd = -1;
}

static void command_drop(struct command *command)
{
    unwatch(command);
    timer_cancel(command->client->loop, &command->knock);
    for (int i = 0; i < 2; i++)
        if (command->files[i] >= 0)
            close(command->files[i]);
    close(command->dir);
    buf_free(&command->input);
    agentic__sandbox__v1__command_request__free_unpacked(command->request, NULL);
    list_remove(&command->node);
    free(command);
}

void commands_free(struct client *client)
{
    list_each_safe (pos, &client->commands)
        command_drop(list_entry(pos, struct command, node));
}

static void forget(struct command *command)
{
    static const char *const files[] = { "spec", "out", "err", "result", "ctl", "part" };

    for (size_t i = 0; i < ARRAY_LEN(files); i++)
        unlinkat(command->dir, files[i], 0);
    if (unlinkat(command->client->cmds, command->id, AT_REMOVEDIR) < 0)
        log_warn("a command's directory stays", kv_str("command", command->id),
                 kv_str("error", strerrordesc_np(errno)));
    command_drop(command);
}

struct command *commands_find(struct client *client, const char *id)
{
    list_each (pos, &client->commands) {
        struct command *command = list_entry(pos, struct command, node);

        if (strcmp(command->id, id) == 0)
            return command;
    }
    return NULL;
}

unsigned commands_running(const struct client *client)
{
    unsigned count = 0;

    list_each (pos, &client->commands)
        count += !list_entry(pos, struct command, node)->done;
    return count;
}

static V1(CommandRequest) * read_spec(int dir)
{
    autoclose int fd = openat(dir, "spec", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    autofree uint8_t *bytes = xmalloc(SPEC_MAX);
    ssize_t got = fd < 0 ? -1 : read(fd, bytes, SPEC_MAX);

    return got <= 0 ? NULL
                    : agentic__sandbox__v1__command_request__unpack(NULL, (size_t)got, bytes);
}

static void on_knock(struct timer *timer);
static void on_ctl(struct watch *watch, uint32_t events);

/* Takes `dir`. */
static struct command *command_new(struct client *client, const char *id, int dir)
{
    struct command *command = xnew(struct command);

    command->client = client;
    snprintf(command->id, sizeof(command->id), "%s", id);
    command->dir = dir;
    command->files[0] = command->files[1] = command->ctl.fd = -1;
    command->input.max = INPUT_MAX;
    command->knock.fn = on_knock;
    command->ctl.fn = on_ctl;
    command->request = read_spec(dir);
    list_append(&client->commands, &command->node);
    return command;
}

/* ---- the keeper ---- */

static bool has_result(const struct command *command)
{
    return faccessat(command->dir, "result", F_OK, 0) == 0;
}

/* One whose keeper was killed: nobody will ever know how it ended. */
static void give_up(struct command *command)
{
    V1(CommandResult) result = AGENTIC__SANDBOX__V1__COMMAND_RESULT__INIT;
    uint8_t packed[512];
    autoclose int fd =
        openat(command->dir, "result", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

    result.command_id = command->id;
    result.exit_code = -1;
    result.error = (char *)(uintptr_t) "The keeper of the command is gone";
    size_t len = agentic__sandbox__v1__command_result__pack(&result, packed);
    if (fd < 0 || write(fd, packed, len) != (ssize_t)len)
        log_warn("a lost command cannot be told", kv_str("command", command->id));
    commands_pump(command->client);
}

static void flush_input(struct command *command)
{
    while (command->ctl.fd >= 0 && command->input.len > sizeof(uint32_t)) {
        uint32_t len;

        memcpy(&len, command->input.data, sizeof(len));
        ssize_t sent = send(command->ctl.fd, command->input.data + sizeof(len), len,
                            MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EAGAIN)
            break;
        if (sent < 0) { /* it has ended */
            buf_clear(&command->input);
            break;
        }
        buf_consume(&command->input, sizeof(len) + len);
    }
    if (command->ctl.fd >= 0)
        loop_change(command->client->loop, &command->ctl,
                    EPOLLIN | (command->input.len ? EPOLLOUT : 0u));
}

static void on_ctl(struct watch *watch, uint32_t events)
{
    struct command *command = container_of(watch, struct command, ctl);
    char data[64];
    ssize_t got;

    (void)events;
    flush_input(command);
    while ((got = recv(watch->fd, data, sizeof(data), 0)) > 0)
        ;
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
        unwatch(command);
        if (!has_result(command))
            give_up(command);
    }
    commands_pump(command->client);
}

static void on_knock(struct timer *timer)
{
    struct command *command = container_of(timer, struct command, knock);
    struct err err;

    if (has_result(command)) {
        commands_pump(command->client);
        return;
    }
    command->ctl.fd = keeper_connect(command->dir);
    if (command->ctl.fd < 0) {
        if (clock_mono_ms() - command->knocking_ms > KNOCK_MAX_MS)
            give_up(command);
        else
            timer_set(command->client->loop, timer, KNOCK_MS);
        return;
    }
    command->ctl.events = EPOLLIN;
    if (loop_watch(command->client->loop, &command->ctl, &err) < 0) {
        close(command->ctl.fd);
        command->ctl.fd = -1;
        timer_set(command->client->loop, timer, KNOCK_MS);
        return;
    }
    flush_input(command);
}

static void knock(struct command *command)
{
    command->knocking_ms = clock_mono_ms();
    timer_set(command->client->loop, &command->knock, 0);
}

void command_give(struct command *command, uint32_t verb, uint32_t number, uint64_t position,
                  struct str data)
{
    struct keeper_msg msg = { verb, number, position };

    do {
        struct str piece = { data.p, MIN(data.n, (size_t)KEEPER_DATA_MAX) };
        uint32_t len = (uint32_t)(sizeof(msg) + piece.n);

        if (command->input.len + len + sizeof(len) > INPUT_MAX) {
            log_warn("input for a command is dropped: it reads too slowly",
                     kv_str("command", command->id));
            break;
        }
        buf_append(&command->input, &len, sizeof(len));
        buf_append(&command->input, &msg, sizeof(msg));
        buf_str(&command->input, piece);
        data = str_from(data, piece.n);
    } while (data.n);
    flush_input(command);
}

/* ---- beginning ---- */

static int put_spec(int dir, const V1(CommandRequest) * request, struct err *err)
{
    size_t len = agentic__sandbox__v1__command_request__get_packed_size(request);
    autofree uint8_t *bytes = xmalloc(len + 1);
    autoclose int fd = openat(dir, "spec", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

    agentic__sandbox__v1__command_request__pack(request, bytes);
    if (len > SPEC_MAX)
        return err_set(err, ERR_LIMIT, "the command is too large");
    if (fd < 0 || write(fd, bytes, len) != (ssize_t)len)
        return err_sys(err, "keep the command");
    return 0;
}

static int begin(struct client *client, const V1(CommandRequest) * request, struct err *err)
{
    if (mkdirat(client->cmds, request->command_id, 0700) < 0)
        return err_sys(err, "make a directory for the command");
    autoclose int dir =
        openat(client->cmds, request->command_id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir < 0)
        return err_sys(err, "open the directory of the command");
    if (put_spec(dir, request, err) < 0 || keeper_start(dir, err) < 0) {
        unlinkat(dir, "spec", 0);
        unlinkat(client->cmds, request->command_id, AT_REMOVEDIR);
        return -1;
    }
    struct command *command = command_new(client, request->command_id, take_fd(&dir));
    command->started_ms = clock_wall_ms();
    command->synced = true;
    knock(command);
    return 0;
}

static int begin_task(struct client *client, const V1(CommandRequest) * request, struct err *err)
{
    autoarena struct arena arena = { 0 };
    V1(CommandRequest) task;

    if (task_command(&arena, request, &task, err) < 0 || begin(client, &task, err) < 0)
        return -1;
    command_give(commands_find(client, request->command_id), KEEPER_EOF, 0, 0, STR_NONE);
    return 0;
}

void commands_begin(struct client *client, const V1(CommandRequest) * request)
{
    V1(CommandResult) result = AGENTIC__SANDBOX__V1__COMMAND_RESULT__INIT;
    V1(AgentMessage) message = AGENTIC__SANDBOX__V1__AGENT_MESSAGE__INIT;
    struct err err = { 0 };

    if (!uuid_shaped(str_of(request->command_id)))
        err_set(&err, ERR_INVALID, "the command's id is no UUID");
    else if (commands_find(client, request->command_id) ||
             (task_is(request) ? begin_task(client, request, &err)
                               : begin(client, request, &err)) == 0)
        return;
    log_warn("a command cannot be started", kv_str("error", err.msg));
    result.command_id = request->command_id;
    result.exit_code = -1;
    result.error = err.msg;
    message.payload_case = AGENTIC__SANDBOX__V1__AGENT_MESSAGE__PAYLOAD_COMMAND_RESULT;
    message.command_result = &result;
    client_say(client, &message);
}

int commands_adopt(struct client *client, struct err *err)
{
    int fd = openat(client->cmds, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *entry;

    if (!dir)
        return err_sys(err, "read the directory of commands");
    while ((entry = readdir(dir))) {
        if (!uuid_shaped(str_of(entry->d_name)))
            continue;
        int one =
            openat(client->cmds, entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        struct stat st;
        if (one < 0)
            continue;
        struct command *command = command_new(client, entry->d_name, one);
        if (fstatat(one, "spec", &st, 0) == 0)
            command->started_ms = (int64_t)st.st_mtim.tv_sec * 1000;
        knock(command);
    }
    closedir(dir);
    return 0;
}

/* ---- to the server ---- */

static bool say_chunk(struct command *command, unsigned stream, struct str data)
{
    V1(OutputChunk) chunk = AGENTIC__SANDBOX__V1__OUTPUT_CHUNK__INIT;
    V1(AgentMessage) message = AGENTIC__SANDBOX__V1__AGENT_MESSAGE__INIT;

    chunk.stream_id = command->id;
    chunk.data = (ProtobufCBinaryData){ data.n, (uint8_t *)(uintptr_t)data.p };
    chunk.timestamp_ms = clock_wall_ms();
    chunk.position = command->sent[stream];
    if (stream) {
        message.payload_case = AGENTIC__SANDBOX__V1__AGENT_MESSAGE__PAYLOAD_STDERR;
        message.stderr = &chunk;
    } else {
        message.payload_case = AGENTIC__SANDBOX__V1__AGENT_MESSAGE__PAYLOAD_STDOUT;
        message.stdout = &chunk;
    }
    client_say(command->client, &message);
    command->sent[stream] += data.n;
    return !dial_full(command->client->dial);
}

/* False: the connection is full for now. */
static bool say_stream(struct command *command, unsigned stream)
{
    static char data[CHUNK];

    if (command->files[stream] < 0)
        command->files[stream] =
            openat(command->dir, stream ? "err" : "out", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (command->files[stream] < 0)
        return true; /* not made yet */
    for (;;) {
        ssize_t got =
            pread(command->files[stream], data, sizeof(data), (off_t)command->sent[stream]);

        if (got <= 0)
            return true;
        if (!say_chunk(command, stream, (struct str){ data, (size_t)got }))
            return false;
    }
}

static void say_result(struct command *command)
{
    autoclose int fd = openat(command->dir, "result", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    V1(AgentMessage) message = AGENTIC__SANDBOX__V1__AGENT_MESSAGE__INIT;
    uint8_t packed[4096];
    ssize_t got = fd < 0 ? -1 : read(fd, packed, sizeof(packed));

    V1(CommandResult) *result =
        got < 0 ? NULL : agentic__sandbox__v1__command_result__unpack(NULL, (size_t)got, packed);
    if (!result)
        return;
    message.payload_case = AGENTIC__SANDBOX__V1__AGENT_MESSAGE__PAYLOAD_COMMAND_RESULT;
    message.command_result = result;
    client_say(command->client, &message);
    command->result_sent = true;
    agentic__sandbox__v1__command_result__free_unpacked(result, NULL);
}

static bool pump(struct command *command)
{
    /* Looked for first: what is written after the result does not exist. */
    command->done = command->done || has_result(command);
    if (!command->synced || command->result_sent)
        return true;
    if (!say_stream(command, 0) || !say_stream(command, 1))
        return false;
    if (command->done)
        say_result(command);
    return true;
}

void commands_pump(struct client *client)
{
    bool sends = client->dial && client->registered && !dial_full(client->dial);

    list_each_safe (pos, &client->commands) {
        struct command *command = list_entry(pos, struct command, node);

        if (!sends)
            command->done = command->done || has_result(command);
        else
            sends = pump(command);
    }
}

void commands_unsync(struct client *client)
{
    list_each (pos, &client->commands) {
        struct command *command = list_entry(pos, struct command, node);

        command->synced = command->result_sent = false;
    }
}

static void tell_keeper(struct command *command, unsigned stream)
{
    if (command->acked[stream] - command->told[stream] < ACK_STEP || command->done)
        return;
    command->told[stream] = command->acked[stream];
    command_give(command, KEEPER_ACK, stream, command->acked[stream], STR_NONE);
}

void command_acked(struct command *command, const V1(OutputAck) * ack)
{
    command->acked[0] = ack->stdout_position;
    command->acked[1] = ack->stderr_position;
    if (!command->synced) {
        command->sent[0] = command->acked[0];
        command->sent[1] = command->acked[1];
        command->synced = true;
    }
    if (ack->ended && (command->done || has_result(command))) {
        forget(command);
        return;
    }
    tell_keeper(command, 0);
    tell_keeper(command, 1);
}
