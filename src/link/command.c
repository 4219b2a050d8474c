/*
 * One command of a linked agent: asked for, its output kept by position, its end stored before it
 * is told. Input, signals and sizes go straight to the agent.
 */
#include <stdio.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/metric.h"
#include "link/own.h"
#include "model/tally.h"

METRIC_COUNTER(output_bytes, "atoll_link_output_bytes_total", "Output of commands of linked agents",
               "what", "new", "again", "missing");
enum { BYTES_NEW, BYTES_AGAIN, BYTES_MISSING };

const char *command_state_name(enum command_state state)
{
    static const char *const names[] = { "running", "exited", "lost" };

    return names[state];
}

/* ---- the object ---- */

/* What is sent, with its strings in one arena. */
struct link_packed {
    struct arena arena;
    V1(CommandRequest) request;
    V1(ManagementMessage) message;
};

static void link_packed_free(struct link_packed *packed)
{
    if (packed)
        arena_free(&packed->arena);
    free(packed);
}

static bool pace_over(const struct pace *pace)
{
    return command_ended(container_of((struct pace *)(uintptr_t)pace, struct link_command, pace));
}

static void pace_room(struct pace *pace)
{
    command_ack(container_of(pace, struct link_command, pace));
}

static void pace_held_back(struct pace *pace)
{
    list_each_safe (pos, &pace->readers) {
        struct link_reader *reader = list_entry(pos, struct link_reader, pace.node);

        if (reader->till_held)
            reader->more(reader);
    }
}

static const struct pace_kind command_pace = { .over = pace_over,
                                               .room = pace_room,
                                               .held = pace_held_back };

struct link_command *command_new(struct linked *agent, const char *id)
{
    struct link_command *command = xnew(struct link_command);

    command->agent = agent;
    snprintf(command->id, sizeof(command->id), "%s", id);
    command->exit_code = -1;
    command->spools[0] = command->spools[1] = SPOOL_NONE;
    command->pace = (struct pace){ .kind = &command_pace,
                                   .loop = agent->links->options.loop,
                                   .id = command->id,
                                   .spools = command->spools,
                                   .dir = agent->links->options.spool_dir,
                                   .away_ms = EXEC_AWAY_MS };
    pace_init(&command->pace);
    list_append(&agent->commands, &command->node);
    return command;
}

void command_cut(struct link_command *command, const struct err *why)
{
    struct list *pos;

    while ((pos = list_pop(&command->pace.readers))) {
        struct link_reader *reader = list_entry(pos, struct link_reader, pace.node);

        reader->pace.pace = NULL;
        reader->gone(reader, why);
    }
}

void command_free(struct link_command *command)
{
    struct err why = { 0 };

    err_set(&why, ERR_GONE, "the command was forgotten");
    command_cut(command, &why);
    pace_end(&command->pace);
    list_remove(&command->node);
    spool_close(&command->spools[0]);
    spool_close(&command->spools[1]);
    link_packed_free(command->packed);
    free(command->line);
    free(command->session_name);
    free(command->error);
    free(command);
}

struct link_command *command_of(struct linked *agent, const char *id)
{
    list_each (pos, &agent->commands) {
        struct link_command *command = list_entry(pos, struct link_command, node);

        if (strcmp(command->id, id) == 0)
            return command;
    }
    return NULL;
}

static int spool_dir(const struct link_command *command)
{
    return command->agent->links->options.spool_dir;
}

int command_load(struct link_command *command, struct err *err)
{
    char name[SPOOL_NAME_SIZE];

    for (unsigned stream = 0; stream < 2; stream++) {
        spool_name(name, command->id, stream);
        if (spool_load(&command->spools[stream], spool_dir(command), name, err) < 0)
            return -1;
    }
    if (!command_ended(command))
        pace_load(&command->pace);
    return 0;
}

static void forget(struct link_command *command)
{
    char name[SPOOL_NAME_SIZE];

    link_store_forget(command);
    for (unsigned stream = 0; stream < 2; stream++) {
        spool_name(name, command->id, stream);
        unlinkat(spool_dir(command), name, 0);
    }
    command_free(command);
}

/* Makes room for one more: the oldest that has ended goes. */
static void make_room(struct linked *agent)
{
    unsigned ended = 0;
    struct link_command *oldest = NULL;

    list_each (pos, &agent->commands) {
        struct link_command *command = list_entry(pos, struct link_command, node);

        if (!command_ended(command))
            continue;
        oldest = oldest ? oldest : command;
        ended++;
    }
    if (ended >= LINK_KEPT_MAX)
        forget(oldest);
}

/* ---- beginning ---- */

static int check_ready(struct linked *agent, struct err *err)
{
    unsigned running = 0;

    if (!agent->peer || !agent->peer->registered)
        return err_set(err, ERR_CONFLICT, "Agent '%s' is not connected", agent->id);
    if (agent->status == AGENT_PROVISIONING)
        return err_set(err, ERR_CONFLICT, "Agent '%s' is still being set up: %.100s", agent->id,
                       agent->setup_status ? agent->setup_status : "");
    list_each (pos, &agent->commands)
        running += !command_ended(list_entry(pos, struct link_command, node));
    if (running >= LINK_RUNNING_MAX)
        return err_set(err, ERR_RATE, "%d commands run there already", LINK_RUNNING_MAX);
    return 0;
}

static char *text_or_empty(struct arena *arena, const char *text)
{
    return arena_strdup(arena, text ? text : "");
}

static void pack_env(struct link_packed *packed, const struct field_pair *env, size_t *bytes)
{
    size_t count = 0;

    while (env && env[count].key)
        count++;
    packed->request.n_env = count;
    packed->request.env =
        arena_alloc(&packed->arena, (count + 1) * sizeof(V1(CommandRequest__EnvEntry) *));
    for (size_t i = 0; i < count; i++) {
        V1(CommandRequest__EnvEntry) *entry =
            arena_new(&packed->arena, V1(CommandRequest__EnvEntry));

        agentic__sandbox__v1__command_request__env_entry__init(entry);
        entry->key = arena_strdup(&packed->arena, env[i].key);
        entry->value = arena_strdup(&packed->arena, env[i].value);
        *bytes += strlen(entry->key) + strlen(entry->value) + 2;
        packed->request.env[i] = entry;
    }
}

static int pack(struct link_packed *packed, const struct command_wish *wish, const char *id,
                struct err *err)
{
    struct arena *arena = &packed->arena;
    V1(CommandRequest) *request = &packed->request;
    size_t count = 0, bytes = strlen(wish->command);

    agentic__sandbox__v1__command_request__init(request);
    agentic__sandbox__v1__management_message__init(&packed->message);
    while (wish->args && wish->args[count])
        count++;
    request->n_args = count;
    request->args = arena_alloc(arena, (count + 1) * sizeof(char *));
    for (size_t i = 0; i < count; i++) {
        request->args[i] = arena_strdup(arena, wish->args[i]);
        bytes += strlen(wish->args[i]) + 1;
    }
    pack_env(packed, wish->env, &bytes);
    if (bytes > LINK_COMMAND_MAX)
        return err_field(err, "args", "arguments and environment are over %d bytes",
                         LINK_COMMAND_MAX);
    request->command_id = arena_strdup(arena, id);
    request->command = arena_strdup(arena, wish->command);
    request->working_dir = text_or_empty(arena, wish->working_dir);
    request->run_as = text_or_empty(arena, wish->run_as);
    request->session_name = text_or_empty(arena, wish->session_name);
    request->pty_term = arena_strdup(arena, wish->pty_term ? wish->pty_term : "xterm-256color");
    request->timeout_seconds = (int32_t)wish->timeout_seconds;
    request->capture_output = true;
    request->allocate_pty = wish->allocate_pty;
    request->pty_cols = (uint32_t)wish->pty_cols;
    request->pty_rows = (uint32_t)wish->pty_rows;
    packed->message.payload_case = AGENTIC__SANDBOX__V1__MANAGEMENT_MESSAGE__PAYLOAD_COMMAND;
    packed->message.command = request;
    return 0;
}

/* Program and arguments as people read them; as much as is bearable. */
static char *line_of(const struct command_wish *wish)
{
    autobuf struct buf line = { .max = 4096 };

    buf_puts(&line, wish->command);
    for (const char **arg = wish->args; arg && *arg; arg++) {
        buf_putc(&line, ' ');
        buf_puts(&line, *arg);
    }
    return xmemdup0(line.data, line.len);
}

/* The row is on disk: now it may run. */
void command_started(struct link_command *command)
{
    struct link_packed *packed = take_ptr(&command->packed);

    command->stored = true;
    if (!packed)
        return; /* taken in: it runs already */
    if (command->state == COMMAND_RUNNING && !links_tell(command->agent, &packed->message))
        command_end(command, COMMAND_LOST, -1, "Agent disconnected", 0);
    link_packed_free(packed);
}

void links_watch(struct links *links, struct links_watch *watch)
{
    list_append(&links->watches, &watch->node);
}

void links_unwatch(struct links_watch *watch)
{
    list_remove(&watch->node);
}

void command_tell_begun(struct link_command *command)
{
    list_each_safe (pos, &command->agent->links->watches) {
        struct links_watch *watch = list_entry(pos, struct links_watch, node);

        watch->began(watch, command);
    }
}

int linked_run(struct linked *agent, const struct command_wish *wish, struct link_op *op,
               struct err *err)
{
    char id[UUID_SIZE];
    struct link_packed *packed = xnew(struct link_packed);

    uuid_v4(id);
    if (check_ready(agent, err) < 0 || pack(packed, wish, id, err) < 0) {
        link_packed_free(packed);
        return -1;
    }
    make_room(agent);
    struct link_command *command = command_new(agent, id);
    command->packed = packed;
    snprintf(command->by, sizeof(command->by), "%s", op->by);
    command->line = line_of(wish);
    command->session_name = xstrdup(wish->session_name ? wish->session_name : "");
    command->pty = wish->allocate_pty;
    command->background = wish->background;
    command->pace.hold = wish->hold;
    pace_started(&command->pace);
    command->started_ms = clock_wall_ms();
    op->command = command;
    link_store_new(command, op);
    tally_command_started();
    return 0;
}

/* ---- output ---- */

static void tell_readers(struct link_command *command)
{
    list_each_safe (pos, &command->pace.readers) {
        struct link_reader *reader = list_entry(pos, struct link_reader, pace.node);

        reader->more(reader);
    }
}

void command_ack(struct link_command *command)
{
    struct linked *agent = command->agent;
    V1(OutputAck) ack = AGENTIC__SANDBOX__V1__OUTPUT_ACK__INIT;
    V1(ManagementMessage) message = AGENTIC__SANDBOX__V1__MANAGEMENT_MESSAGE__INIT;

    if (!agent->peer || !agent->peer->version)
        return;
    const uint64_t limit[INIT_STREAMS] = { pace_limit(&command->pace, INIT_OUT),
                                           pace_limit(&command->pace, INIT_ERR) };
    ack.command_id = command->id;
    ack.stdout_position = limit[INIT_OUT];
    ack.stderr_position = limit[INIT_ERR];
    ack.ended = command->state != COMMAND_RUNNING;
    message.payload_case = AGENTIC__SANDBOX__V1__MANAGEMENT_MESSAGE__PAYLOAD_OUTPUT_ACK;
    message.output_ack = &ack;
    if (links_tell(agent, &message) && !ack.ended)
        pace_acked(&command->pace, limit);
}

/* What of this chunk is new? Who says no positions sends everything once. */
static struct str new_bytes(struct link_command *command, unsigned stream,
                            const V1(OutputChunk) * chunk)
{
    struct str data = { (const char *)chunk->data.data, chunk->data.len };
    uint64_t end = command->spools[stream].end;

    if (!command->agent->peer->version)
        return data;
    if (chunk->position > end) {
        metric_add(&output_bytes, BYTES_MISSING, (int64_t)MIN(chunk->position - end, INT32_MAX));
        command->gap = true;
        return data;
    }
    size_t again = (size_t)MIN(end - chunk->position, (uint64_t)data.n);
    metric_add(&output_bytes, BYTES_AGAIN, (int64_t)again);
    return str_from(data, again);
}

/* An agent of ours keeps what is not acknowledged, and says it again when it comes back. */
static int no_room(struct link_command *command, const struct err *why, struct err *err)
{
    if (!command->lacks_room)
        log_error("output of a linked command waits at its agent: it cannot be kept",
                  kv_str("command", command->id), kv_str("error", why->msg));
    command->lacks_room = true;
    if (command->agent->peer->version) {
        *err = *why;
        return -1;
    }
    command->gap = true;
    return 0;
}

static void room_again(struct link_command *command)
{
    if (command->lacks_room)
        log_info("output of a linked command is kept again", kv_str("command", command->id));
    command->lacks_room = false;
}

int command_output(struct link_command *command, unsigned stream, const V1(OutputChunk) * chunk,
                   struct err *err)
{
    struct str data = new_bytes(command, stream, chunk);
    char name[SPOOL_NAME_SIZE];
    struct err why = { 0 };

    spool_name(name, command->id, stream);
    /* The spool takes a frame at a time (its SLACK). */
    for (struct str rest = data; rest.n; rest = str_from(rest, MIN(rest.n, (size_t)65536)))
        if (spool_add(&command->spools[stream], spool_dir(command), name, rest.p,
                      MIN(rest.n, (size_t)65536), &why) < 0)
            return no_room(command, &why, err);
    metric_add(&output_bytes, BYTES_NEW, (int64_t)data.n);
    if (data.n)
        room_again(command);
    command_ack(command);
    if (data.n)
        tell_readers(command);
    return 0;
}

/* ---- the end ---- */

void command_end(struct link_command *command, enum command_state state, int64_t exit_code,
                 const char *error, int64_t duration_ms)
{
    if (command->state != COMMAND_RUNNING || command->ending)
        return;
    command->ending = true;
    command->end_state = state;
    command->exit_code = exit_code;
    command->duration_ms = duration_ms;
    command->ended_ms = clock_wall_ms();
    free(command->error);
    command->error = error && error[0] ? xstrdup(error) : NULL;
    tally_command_ended(state == COMMAND_EXITED && exit_code == 0, duration_ms);
    link_store_end(command);
}

void command_stored(struct link_command *command)
{
    command->ending = false;
    command->state = command->end_state;
    pace_end(&command->pace);
    spool_close(&command->spools[0]);
    spool_close(&command->spools[1]);
    command_ack(command);
    tell_readers(command);
}

void commands_lost(struct linked *agent, const char *why)
{
    list_each_safe (pos, &agent->commands)
        command_end(list_entry(pos, struct link_command, node), COMMAND_LOST, -1, why, 0);
}

bool command_ended(const struct link_command *command)
{
    return command->state != COMMAND_RUNNING;
}

/* ---- looking ---- */

int linked_command(struct linked *agent, const char *id, struct link_command **out, struct err *err)
{
    *out = command_of(agent, id);
    return *out ? 0 : err_set(err, ERR_NOT_FOUND, "Agent '%s' has no such command", agent->id);
}

const char *command_tenant(const struct link_command *command)
{
    return command->agent->tenant;
}

struct link_command *linked_next(const struct linked *agent, struct link_command *after)
{
    const struct list *pos = after ? after->node.next : agent->commands.next;

    return pos == &agent->commands
               ? NULL
               : list_entry((struct list *)(uintptr_t)pos, struct link_command, node);
}

void command_view(const struct link_command *command, struct command_view *out)
{
    bool ended = command_ended(command);

    *out = (struct command_view){ .command_id = command->id,
                                  .agent_id = command->agent->id,
                                  .state = command_state_name(command->state),
                                  .command = command->line,
                                  .session_name =
                                      command->session_name[0] ? command->session_name : NULL,
                                  .error = ended ? command->error : NULL,
                                  .by = command->by,
                                  .pty = command->pty,
                                  .background = command->background,
                                  .gap = command->gap,
                                  .exit_code = ended ? command->exit_code : -1,
                                  .duration_ms = ended ? command->duration_ms : 0,
                                  .stdout_bytes = (int64_t)command->spools[0].end,
                                  .stderr_bytes = (int64_t)command->spools[1].end,
                                  .started_at = command->started_ms,
                                  .ended_at = ended ? command->ended_ms : 0 };
}

bool command_held(const struct link_command *command)
{
    return pace_held(&command->pace);
}

void command_follow(struct link_command *command, struct link_reader *reader)
{
    pace_follow(&command->pace, &reader->pace);
}

void command_unfollow(struct link_reader *reader)
{
    pace_unfollow(&reader->pace);
}

ssize_t command_read(struct link_command *command, unsigned stream, uint64_t from, void *out,
                     size_t len, struct err *err)
{
    char name[SPOOL_NAME_SIZE];

    spool_name(name, command->id, stream);
    ssize_t got =
        spool_read(&command->spools[stream], spool_dir(command), name, from, out, len, err);
    if (command_ended(command))
        spool_close(&command->spools[stream]); /* many may be kept; few are read */
    return got;
}

void command_range(const struct link_command *command, unsigned stream, uint64_t *begin,
                   uint64_t *end)
{
    *begin = spool_begin(&command->spools[stream]);
    *end = command->spools[stream].end;
}

/* ---- what goes to it ---- */

static int tell_running(struct link_command *command, const V1(ManagementMessage) * message,
                        struct err *err)
{
    if (command->state != COMMAND_RUNNING || command->ending)
        return err_set(err, ERR_CONFLICT, "the command has ended");
    if (!command->stored || !linked_connected(command->agent))
        return err_set(err, ERR_CONFLICT, "Agent '%s' is not connected", command->agent->id);
    if (!links_tell(command->agent, message))
        return err_set(err, ERR_RATE, "Agent '%s' has not taken yet what it was sent before",
                       command->agent->id);
    return 0;
}

int command_input(struct link_command *command, struct str data, bool eof, struct err *err)
{
    V1(StdinChunk) chunk = AGENTIC__SANDBOX__V1__STDIN_CHUNK__INIT;
    V1(ManagementMessage) message = AGENTIC__SANDBOX__V1__MANAGEMENT_MESSAGE__INIT;

    chunk.command_id = command->id;
    chunk.data = (ProtobufCBinaryData){ data.n, (uint8_t *)(uintptr_t)data.p };
    chunk.eof = eof;
    message.payload_case = AGENTIC__SANDBOX__V1__MANAGEMENT_MESSAGE__PAYLOAD_STDIN;
    message.stdin = &chunk;
    return tell_running(command, &message, err);
}

static int control(struct link_command *command, V1(PtyControl) * act, struct err *err)
{
    V1(ManagementMessage) message = AGENTIC__SANDBOX__V1__MANAGEMENT_MESSAGE__INIT;

    act->command_id = command->id;
    message.payload_case = AGENTIC__SANDBOX__V1__MANAGEMENT_MESSAGE__PAYLOAD_PTY_CONTROL;
    message.pty_control = act;
    return tell_running(command, &message, err);
}

int command_signal(struct link_command *command, int number, struct err *err)
{
    V1(PtySignal) signal = AGENTIC__SANDBOX__V1__PTY_SIGNAL__INIT;
    V1(PtyControl) act = AGENTIC__SANDBOX__V1__PTY_CONTROL__INIT;

    signal.signal_number = number;
    act.action_case = AGENTIC__SANDBOX__V1__PTY_CONTROL__ACTION_SIGNAL;
    act.signal = &signal;
    return control(command, &act, err);
}

int command_resize(struct link_command *command, unsigned rows, unsigned cols, struct err *err)
{
    V1(PtyResize) size = AGENTIC__SANDBOX__V1__PTY_RESIZE__INIT;
    V1(PtyControl) act = AGENTIC__SANDBOX__V1__PTY_CONTROL__INIT;

    if (!command->pty)
        return err_set(err, ERR_CONFLICT, "the command has no terminal");
    size.cols = cols;
    size.rows = rows;
    act.action_case = AGENTIC__SANDBOX__V1__PTY_CONTROL__ACTION_RESIZE;
    act.resize = &size;
    return control(command, &act, err);
}
