/*
 * Commands of agentbox. The caller owns what it started: when it cancels, leaves or its deadline
 * passes, the command and everything it started is killed. When the server stops, it goes on.
 *
 * Output is read from where the box room keeps it, by position, so a stream needs no queue: it
 * reads on when its client has, and the command is held back meanwhile. A text of proto3 must be
 * UTF-8; a character that lies across two reads is left for the next one, and bytes that are no
 * text travel beside a text that shows where they were.
 */
#include "api/agentbox.h"

#include <signal.h>

#include "base/limits.h"

#define TIMEOUT_DEFAULT_MS 30000
#define PIP_TIMEOUT_MS 120000
#define LATE_MS 5000 /* for a sandbox that does not keep its timeouts by itself */
#define CHUNK 32768  /* of a stream, in one message */
#define MARGIN 4096  /* of a message, for all but output */
#define TIMED_OUT "Command timed out"

struct command {
    struct box_op op, kill;
    struct box_wait wait;
    struct box_reader reader;
    struct rpc *rpc;
    struct exec_spec spec;
    struct box_exec *exec; /* once it runs; NULL when it is forgotten */
    uint64_t at[INIT_STREAMS];
    bool following;
    bool till_end; /* nothing is said before it has ended */
};

/* ---- its end before its time ---- */

static void killed(struct box_op *op, const struct err *err)
{
    (void)err;
    rpc_drop(container_of(op, struct command, kill)->rpc);
}

static void kill_command(struct command *command)
{
    struct call *call = command->rpc->call;
    struct err err = { 0 };

    if (!command->exec)
        return;
    command->kill =
        (struct box_op){ .tenant = call->who.tenant, .by = call->who.id, .done = killed };
    rpc_hold(command->rpc);
    if (box_exec_signal(command->exec, SIGKILL, true, &command->kill, &err) < 0)
        rpc_drop(command->rpc); /* it has ended by itself */
}

static void let_go(struct command *command)
{
    command->reader.pace.holds = false; /* such a client cannot come back */
    if (command->following)
        box_exec_unfollow(&command->reader);
    command->following = false;
    if (command->wait.exec) {
        box_exec_unwait(&command->wait);
        rpc_drop(command->rpc);
    }
    command->exec = NULL;
}

static void command_over(struct rpc *rpc, enum rpc_end why)
{
    struct command *command = rpc->state;

    if (why == RPC_CANCELLED)
        kill_command(command);
    let_go(command);
}

/* ---- starting ---- */

static void command_prepare(struct box_op *op)
{
    call_exec_audit(container_of(op, struct command, op)->rpc->call, op->exec);
}

static int command_record(struct box_op *op, struct db *db, struct err *err)
{
    return call_record(container_of(op, struct command, op)->rpc->call, db, err);
}

static bool command_audit(struct box_op *op, struct audit *out)
{
    return call_audit_only(container_of(op, struct command, op)->rpc->call, out);
}

/* Bytes of a message as the input of a command; `said` even when there are none. */
static struct str input_of(bool said, ProtobufCBinaryData data)
{
    return said ? (struct str){ data.len ? (char *)data.data : "", data.len } : STR_NONE;
}

static struct command *command_new(struct rpc *rpc, const char *line, const char *cwd)
{
    struct command *command = arena_new(&rpc->call->arena, struct command);

    command->rpc = rpc;
    if (*cwd && *cwd != '/') /* as paths of files are meant */
        cwd = arena_printf(&rpc->call->arena, "/workspace/%s", cwd);
    command->spec = (struct exec_spec){ .command = line, .cwd = *cwd ? cwd : NULL };
    rpc->state = command;
    return command;
}

static int command_start(struct rpc *rpc, struct box *box, struct err *err)
{
    struct command *command = rpc->state;

    if (box_exec(box, &command->spec, &command->op, err) < 0)
        return -1;
    rpc_hold(rpc);
    return 0;
}

/* `done` when it runs, or cannot. */
static int command_run(struct command *command, struct box *box,
                       void (*done)(struct box_op *op, const struct err *err), struct err *err)
{
    struct call *call = command->rpc->call;

    if (!*command->spec.command)
        return err_field(err, "command", "command is empty");
    if (strlen(command->spec.command) > AGENTBOX_COMMAND_MAX)
        return err_field(err, "command", "command has more than %d bytes", AGENTBOX_COMMAND_MAX);
    if (command->spec.cwd && strlen(command->spec.cwd) > AGENTBOX_PATH_MAX)
        return err_field(err, "workdir", "workdir has more than %d bytes", AGENTBOX_PATH_MAX);
    command->op = (struct box_op){ .tenant = call->who.tenant,
                                   .by = call->who.id,
                                   .prepare = command_prepare,
                                   .record = command_record,
                                   .audit = command_audit,
                                   .done = done,
                                   .till_end = command->till_end };
    return session_awake(command->rpc, box, command_start, err);
}

/* Is this the command's own fault, which agentbox tells inside of an answer that is well? */
static bool is_its_own(const struct err *err)
{
    return err->code == ERR_UNPROCESSABLE;
}

/* 0: goes on; otherwise nobody waits, and it is killed. */
static int command_began(struct command *command, struct box_exec *exec)
{
    struct rpc *rpc = command->rpc;

    command->exec = exec;
    rpc->over = command_over;
    if (rpc->grpc)
        return 0;
    command_over(rpc, RPC_CANCELLED);
    return -1;
}

/* ---- run and wait ---- */

static void reply_failed(struct rpc *rpc, const char *text)
{
    Sandbox__V1__ExecResponse reply = SANDBOX__V1__EXEC_RESPONSE__INIT;

    reply.exit_code = -1;
    reply.stderr = (char *)text;
    rpc_reply(rpc, &reply.base);
}

/* As many bytes of a stream as `room` lets into a message, each as text and perhaps once more. */
static struct str read_stream(struct command *command, unsigned stream, size_t room, bool *cut)
{
    uint64_t begin, end;
    struct err err;

    box_exec_range(command->exec, stream, &begin, &end);
    size_t want = (size_t)MIN(end - begin, (uint64_t)room), len = 0;
    char *data = arena_raw(&command->rpc->call->arena, want + 1);
    while (len < want) {
        ssize_t got =
            box_exec_read(command->exec, stream, begin + len, data + len, want - len, &err);

        if (got <= 0)
            break;
        len += (size_t)got;
    }
    *cut |= begin > 0 || len < end - begin;
    return (struct str){ data, len };
}

static size_t put_stream(struct command *command, unsigned stream, size_t room, char **text,
                         struct str *bytes, bool *cut)
{
    struct arena *arena = &command->rpc->call->arena;

    *bytes = read_stream(command, stream, room, cut);
    size_t used = bytes->n;
    if (session_text(arena, *bytes, text)) {
        *bytes = STR_NONE;
        return used;
    }
    /* Not text: it is told twice, and a bad byte takes three in the text. */
    used = strlen(*text) + bytes->n;
    if (used <= room)
        return used;
    *cut = true;
    bytes->n = room / 4;
    (void)session_text(arena, *bytes, text);
    return strlen(*text) + bytes->n;
}

static char *with_line(struct arena *arena, const char *text, const char *line)
{
    size_t len = strlen(text);

    return arena_printf(arena, "%s%s%s", text, len && text[len - 1] != '\n' ? "\n" : "", line);
}

static void put_end(struct command *command, Sandbox__V1__ExecResponse *reply)
{
    struct arena *arena = &command->rpc->call->arena;
    struct exec_view view;

    box_exec_view(command->exec, &view);
    reply->exec_id = arena_strdup(arena, view.id);
    reply->out_of_memory = view.oom;
    reply->exit_code = view.signal > 0 ? -(int32_t)view.signal : (int32_t)view.exit_code;
    if (strcmp(view.state, "exited") != 0) {
        reply->exit_code = -1;
        reply->stderr = with_line(arena, reply->stderr, "the sandbox ended");
    }
    if (view.timed_out) {
        reply->timed_out = true;
        reply->exit_code = -1;
        reply->stderr = with_line(arena, reply->stderr, TIMED_OUT);
    }
}

static void reply_ended(struct command *command)
{
    Sandbox__V1__ExecResponse reply = SANDBOX__V1__EXEC_RESPONSE__INIT;
    size_t room = GRPC_MESSAGE_MAX - MARGIN;
    struct str out, errors;
    bool cut = false;

    size_t used = put_stream(command, INIT_OUT, room / 2, &reply.stdout, &out, &cut);
    put_stream(command, INIT_ERR, room - used, &reply.stderr, &errors, &cut);
    if (out.n)
        RPC_SET(&reply, stdout_bytes, 100, ((ProtobufCBinaryData){ out.n, (uint8_t *)out.p }));
    if (errors.n)
        RPC_SET(&reply, stderr_bytes, 101,
                ((ProtobufCBinaryData){ errors.n, (uint8_t *)errors.p }));
    reply.truncated = cut;
    put_end(command, &reply);
    rpc_reply(command->rpc, &reply.base);
}

static void reply_late(struct command *command)
{
    Sandbox__V1__ExecResponse reply = SANDBOX__V1__EXEC_RESPONSE__INIT;

    kill_command(command);
    reply.exit_code = -1;
    reply.timed_out = true;
    reply.stderr = (char *)TIMED_OUT;
    rpc_reply(command->rpc, &reply.base);
}

static void waited(struct box_wait *wait)
{
    struct command *command = container_of(wait, struct command, wait);
    struct rpc *rpc = command->rpc;
    struct err err = { 0 };

    if (box_exec_ended(command->exec)) {
        reply_ended(command);
    } else if (rpc->call->api->draining) {
        err_set(&err, ERR_UNAVAILABLE, "the server is about to stop; the command goes on");
        rpc_finish(rpc, &err);
    } else {
        reply_late(command);
    }
    command->exec = NULL;
    rpc->over = NULL;
    rpc_drop(rpc);
}

static void exec_began(struct box_op *op, const struct err *err)
{
    struct command *command = container_of(op, struct command, op);
    struct rpc *rpc = command->rpc;

    if (err && is_its_own(err)) {
        reply_failed(rpc, err->msg);
    } else if (err) {
        rpc_finish(rpc, err);
    } else if (command_began(command, op->exec) == 0) {
        rpc_hold(rpc);
        command->wait.done = waited;
        box_exec_wait(op->exec, command->spec.timeout_ms + LATE_MS, &command->wait);
    }
    rpc_drop(rpc);
}

static int exec(struct rpc *rpc, ProtobufCMessage *message, struct err *err)
{
    const Sandbox__V1__ExecRequest *request = (void *)message;
    struct box *box = session_find(rpc, request->session_id);

    if (!box) {
        reply_failed(rpc, NO_SESSION);
        return 0;
    }
    if (request->timeout < 0 || request->timeout > EXEC_TIMEOUT_MAX_MS / 1000)
        return err_field(err, "timeout", "timeout must be from 0 to %d seconds",
                         (int)(EXEC_TIMEOUT_MAX_MS / 1000));
    struct command *command = command_new(rpc, request->command, request->workdir);
    command->spec.input = input_of(request->stdin_is_case, request->stdin);
    command->spec.timeout_ms =
        request->timeout ? (int64_t)request->timeout * 1000 : TIMEOUT_DEFAULT_MS;
    command->till_end = true;
    return command_run(command, box, exec_began, err);
}

/* ---- pip ---- */

static const char *const pip_hosts[] = { "pypi.org", "files.pythonhosted.org" };

/* Distributions keep pip from what they manage; a sandbox is nobody's but the caller's. */
static struct field_pair pip_env[] = { { "PIP_BREAK_SYSTEM_PACKAGES", "1" }, { 0 } };

/* Do the lines hold the host, by name or by a pattern such as *.example.com? */
static bool has_host(const char *lines, const char *wanted)
{
    struct str rest = str_of(lines), name = str_of(wanted);

    while (rest.n) {
        struct str host = str_cut(&rest, '\n');

        if (str_eq_nocase(host, name))
            return true;
        if (!str_starts(host, STR("*.")))
            continue;
        struct str suffix = str_from(host, 1), domain = str_from(host, 2);
        if (str_eq_nocase(domain, name) ||
            (name.n > suffix.n && str_eq_nocase(str_from(name, name.n - suffix.n), suffix)))
            return true;
    }
    return false;
}

static size_t span(const char *text, const char *more)
{
    size_t n = 0;

    while (text[n] && ((text[n] >= '0' && text[n] <= '9') || (text[n] >= 'a' && text[n] <= 'z') ||
                       (text[n] >= 'A' && text[n] <= 'Z') || strchr(more, text[n])))
        n++;
    return n;
}

/* name[extra,extra]==1.0,!=2.0: nothing that a shell or pip could take for something else. */
static bool package_ok(const char *text)
{
    size_t n = span(text, "");

    if (n == 0)
        return false;
    text += span(text, "._-");
    if (*text == '[') {
        n = span(text + 1, "._-,");
        if (n == 0 || text[n + 1] != ']')
            return false;
        text += n + 2;
    }
    while (*text) {
        n = strspn(text, "=<>!~");
        if (n == 0 || n > 3)
            return false;
        text += n;
        n = span(text, "._-*+!");
        if (n == 0)
            return false;
        text += n;
        if (*text == ',' && text[1])
            text++;
        else if (*text)
            return false;
    }
    return true;
}

static int pip_install(struct rpc *rpc, ProtobufCMessage *message, struct err *err)
{
    const Sandbox__V1__PipInstallRequest *request = (void *)message;
    struct box *box = session_find(rpc, request->session_id);
    autobuf struct buf line = { .max = AGENTBOX_COMMAND_MAX };
    struct sandbox_view view;

    if (!box) {
        reply_failed(rpc, NO_SESSION);
        return 0;
    }
    box_view(box, &view);
    const char *hosts = session_label(&view, HOSTS_LABEL);
    for (size_t i = 0; i < ARRAY_LEN(pip_hosts); i++)
        if (!has_host(hosts, pip_hosts[i])) {
            reply_failed(rpc, "pip install requires pypi.org and files.pythonhosted.org "
                              "in allowed_hosts");
            return 0;
        }
    buf_puts(&line, "pip install --user");
    for (size_t i = 0; i < request->n_packages; i++) {
        if (!package_ok(request->packages[i])) {
            reply_failed(rpc, arena_printf(&rpc->call->arena, "Invalid package specifier: %s",
                                           request->packages[i]));
            return 0;
        }
        buf_printf(&line, " '%s'", request->packages[i]);
    }
    if (!buf_ok(&line))
        return err_field(err, "packages", "packages are too many");
    struct command *command =
        command_new(rpc, arena_strdup(&rpc->call->arena, buf_cstr(&line)), "");
    command->spec.timeout_ms = PIP_TIMEOUT_MS;
    command->spec.env = pip_env;
    return command_run(command, box, exec_began, err);
}

/* ---- a stream ---- */

static enum http_flow send_piece(struct command *command, unsigned stream, struct str bytes)
{
    Sandbox__V1__ExecStreamResponse piece = SANDBOX__V1__EXEC_STREAM_RESPONSE__INIT;
    autoarena struct arena arena = { 0 };

    piece.type = stream == INIT_ERR ? (char *)"stderr" : (char *)"stdout";
    if (!session_text(&arena, bytes, &piece.data))
        RPC_SET(&piece, data_bytes, 100, ((ProtobufCBinaryData){ bytes.n, (uint8_t *)bytes.p }));
    return rpc_send(command->rpc, &piece.base);
}

static void send_error(struct rpc *rpc, const char *text)
{
    Sandbox__V1__ExecStreamResponse piece = SANDBOX__V1__EXEC_STREAM_RESPONSE__INIT;

    piece.type = (char *)"error";
    piece.data = (char *)text;
    rpc_send(rpc, &piece.base);
    rpc_finish(rpc, NULL);
}

/* How much of it ends with a whole character; all of it where the last is not the begin of one. */
static size_t whole_part(struct str bytes)
{
    for (size_t back = 1; back <= 3 && back <= bytes.n; back++) {
        unsigned char c = (unsigned char)bytes.p[bytes.n - back];

        if ((c & 0xc0) == 0x80)
            continue; /* inside of one */
        size_t need = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 ? 2 : 1;
        return need > back ? bytes.n - back : bytes.n;
    }
    return bytes.n;
}

/* 1: the client must read first; 0: everything was given; -1: cannot go on. */
static int give(struct command *command, unsigned stream, bool ended)
{
    static char data[CHUNK]; /* the loop thread's */
    struct err err;

    for (;;) {
        ssize_t got =
            box_exec_read(command->exec, stream, command->at[stream], data, sizeof(data), &err);
        if (got <= 0)
            return got < 0 ? -1 : 0;
        size_t take = whole_part((struct str){ data, (size_t)got });
        if (ended && take == 0)
            take = (size_t)got; /* the rest of it will not come */
        if (take == 0)
            return 0;
        command->at[stream] += take;
        box_exec_advance(&command->reader, stream, command->at[stream]);
        if (send_piece(command, stream, (struct str){ data, take }) != HTTP_OK)
            return 1;
    }
}

static void stream_end(struct command *command)
{
    Sandbox__V1__ExecStreamResponse piece = SANDBOX__V1__EXEC_STREAM_RESPONSE__INIT;
    struct rpc *rpc = command->rpc;
    struct exec_view view;

    box_exec_view(command->exec, &view);
    rpc->over = NULL;
    rpc->drained = NULL;
    let_go(command);
    if (strcmp(view.state, "exited") != 0) {
        send_error(rpc, "the sandbox ended");
        return;
    }
    piece.type = (char *)"exit";
    RPC_SET(&piece, exit_code, 3,
            view.signal > 0 ? -(int32_t)view.signal : (int32_t)view.exit_code);
    piece.out_of_memory = view.oom;
    rpc_send(rpc, &piece.base);
    rpc_finish(rpc, NULL);
}

static void pump(struct command *command)
{
    struct rpc *rpc = command->rpc;
    bool ended = box_exec_ended(command->exec);

    for (unsigned s = INIT_OUT; s <= INIT_ERR; s++) {
        int rc = give(command, s, ended);

        if (rc > 0)
            return;
        if (rc < 0) { /* the output cannot be read */
            kill_command(command);
            rpc->over = NULL;
            let_go(command);
            send_error(rpc, "output beyond what is kept");
            return;
        }
    }
    if (ended)
        stream_end(command);
}

static void stream_drained(struct rpc *rpc)
{
    pump(rpc->state);
}

static void stream_more(struct box_reader *reader)
{
    struct command *command = container_of(reader, struct command, reader);

    if (!rpc_full(command->rpc))
        pump(command);
}

static void stream_gone(struct box_reader *reader)
{
    struct command *command = container_of(reader, struct command, reader);
    struct rpc *rpc = command->rpc;

    command->following = false;
    command->exec = NULL;
    rpc->over = NULL;
    rpc->drained = NULL;
    send_error(rpc, "the command is no longer kept");
}

static void stream_began(struct box_op *op, const struct err *err)
{
    struct command *command = container_of(op, struct command, op);
    struct rpc *rpc = command->rpc;

    if (err && is_its_own(err)) {
        send_error(rpc, err->msg);
    } else if (err) {
        rpc_finish(rpc, err);
    } else if (command_began(command, op->exec) == 0) {
        command->reader =
            (struct box_reader){ .more = stream_more, .gone = stream_gone, .pace.holds = true };
        command->following = true;
        rpc->drained = stream_drained;
        box_exec_follow(op->exec, &command->reader);
        pump(command);
    }
    rpc_drop(rpc);
}

static int exec_stream(struct rpc *rpc, ProtobufCMessage *message, struct err *err)
{
    const Sandbox__V1__ExecStreamRequest *request = (void *)message;
    struct box *box = session_find(rpc, request->session_id);

    if (!box) {
        send_error(rpc, NO_SESSION);
        return 0;
    }
    struct command *command = command_new(rpc, request->command, request->workdir);
    command->spec.input = input_of(request->stdin_is_case, request->stdin);
    command->spec.hold = true;
    return command_run(command, box, stream_began, err);
}

const struct rpc_method agentbox_exec = {
    .takes = &sandbox__v1__exec_request__descriptor,
    .gives = &sandbox__v1__exec_response__descriptor,
    .fn = exec,
};
const struct rpc_method agentbox_exec_stream = {
    .takes = &sandbox__v1__exec_stream_request__descriptor,
    .gives = &sandbox__v1__exec_stream_response__descriptor,
    .fn = exec_stream,
    .streams_out = true,
};
const struct rpc_method agentbox_pip_install = {
    .takes = &sandbox__v1__pip_install_request__descriptor,
    .gives = &sandbox__v1__exec_response__descriptor,
    .fn = pip_install,
};
