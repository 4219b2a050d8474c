/*
 * agentic.sandbox.v1.AgentService: the link of agents (Connect), and running a command on one of
 * them (Exec).
 *
 * Connect needs no token: the agent shows the secret that was made for it. Exec is for whoever may
 * use sandboxes.
 */
#include <stdio.h>

#include "api/rpc.h"
#include "api/target.h"
#include "base/log.h"
#include "http/grpc.h"
#include "link/links.h"

#define QUEUE_MAX (1u << 20) /* bytes that an agent has not taken yet */

/* ---- Connect ---- */

struct connection {
    struct link_peer peer;
    struct grpc *grpc;
    struct call *call;
};

static void connection_free(struct connection *connection)
{
    links_close(&connection->peer);
    connection->call->req = NULL;
    call_free(connection->call);
    free(connection);
}

static bool peer_send(struct link_peer *peer, const ProtobufCMessage *message)
{
    struct connection *connection = container_of(peer, struct connection, peer);
    struct http_req *req = grpc_req(connection->grpc);

    if (!req || http_unsent(req) > QUEUE_MAX / 2)
        return false;
    return rpc_write(connection->grpc, message) != HTTP_CUT;
}

static void finish(struct connection *connection, const struct err *why)
{
    /* A connection that was taken over is ABORTED: trying again at once would take it back. */
    int status = why->code == ERR_CONFLICT ? GRPC_ABORTED : err_info(why->code)->grpc;

    grpc_finish(connection->grpc, status, why->msg);
    connection_free(connection);
}

static void peer_end(struct link_peer *peer, const struct err *why)
{
    finish(container_of(peer, struct connection, peer), why);
}

static void connect_message(struct grpc *grpc, struct str bytes)
{
    struct connection *connection = grpc_ctx(grpc);
    autoarena struct arena arena = { 0 };
    ProtobufCMessage *message;
    struct err err = { 0 };
    int rc = bytes.n > LINK_MESSAGE_MAX
                 ? err_set(&err, ERR_LIMIT, "a message has at most %d bytes", LINK_MESSAGE_MAX)
                 : rpc_read(grpc, &agentic__sandbox__v1__agent_message__descriptor, bytes, &arena,
                            &message, &err);

    if (rc == 0)
        rc = links_hear(&connection->peer, (const Agentic__Sandbox__V1__AgentMessage *)message,
                        &err);
    if (rc < 0) {
        log_warn("an agent's connection is ended", kv_str("peer", connection->peer.addr),
                 kv_str("error", err.msg));
        finish(connection, &err);
    }
}

static void connect_end(struct grpc *grpc)
{
    struct connection *connection = grpc_ctx(grpc);

    connection->peer.asked = true;
    grpc_finish(grpc, GRPC_OK, NULL);
    connection_free(connection);
}

static void connect_cancel(struct grpc *grpc)
{
    connection_free(grpc_ctx(grpc));
}

static const struct grpc_ops connect_ops = { .on_message = connect_message,
                                             .on_end = connect_end,
                                             .on_cancel = connect_cancel };

static int connect_open(struct call *call, struct err *err)
{
    struct http_req *req = call->req;
    struct str id = http_header(req, "x-agent-id"), secret = http_header(req, "x-agent-secret");

    if (rpc_shape(call, true, err) < 0)
        return -1;
    if (!id.n)
        return err_set(err, ERR_UNAUTHENTICATED, "Missing x-agent-id header");
    struct connection *connection = xnew(struct connection);
    connection->call = call;
    connection->peer.send = peer_send;
    connection->peer.end = peer_end;
    snprintf(connection->peer.addr, sizeof(connection->peer.addr), "%s", req->peer->text);
    if (links_open(call->api->links, id, secret, &connection->peer, err) < 0) {
        auth_failed(call->api->auth, req->peer, secret, err);
        free(connection);
        return -1;
    }
    connection->grpc = grpc_begin(req, &connect_ops, connection);
    return 0;
}

/* ---- Exec ---- */

struct exec_call {
    struct target_run run;
    struct printed command; /* followed, once it has started */
    struct grpc *grpc;      /* NULL: the client is gone */
    struct call *call;
    uint64_t at[2];
    bool begun, starting;
};

static bool exec_follows(const struct exec_call *exec)
{
    return exec->command.linked || exec->command.exec;
}

static void exec_free(struct exec_call *exec)
{
    printed_leave(&exec->command); /* such a client cannot come back */
    if (exec_follows(exec))
        printed_unfollow(&exec->command);
    exec->call->req = NULL;
    call_free(exec->call);
    free(exec);
}

static void exec_fail(struct exec_call *exec, const struct err *err)
{
    grpc_finish(exec->grpc, err_info(err->code)->grpc, err->msg);
    exec_free(exec);
}

/* False: the client must read first. */
static bool exec_give(struct exec_call *exec, unsigned stream, const struct command_view *view)
{
    static char data[32768]; /* the loop thread's */
    Agentic__Sandbox__V1__ExecOutput out = AGENTIC__SANDBOX__V1__EXEC_OUTPUT__INIT;
    struct err err;

    for (;;) {
        ssize_t got =
            printed_read(&exec->command, stream, exec->at[stream], data, sizeof(data), &err);

        if (got <= 0)
            return true;
        exec->at[stream] += (uint64_t)got;
        printed_advance(&exec->command, stream, exec->at[stream]);
        out.stream = stream ? AGENTIC__SANDBOX__V1__OUTPUT_STREAM__OUTPUT_STREAM_STDERR
                            : AGENTIC__SANDBOX__V1__OUTPUT_STREAM__OUTPUT_STREAM_STDOUT;
        out.data = (ProtobufCBinaryData){ (size_t)got, (uint8_t *)data };
        out.command_id = (char *)(uintptr_t)view->command_id;
        if (rpc_write(exec->grpc, &out.base) != HTTP_OK)
            return false;
    }
}

static void exec_pump(struct exec_call *exec)
{
    Agentic__Sandbox__V1__ExecOutput out = AGENTIC__SANDBOX__V1__EXEC_OUTPUT__INIT;
    autoarena struct arena arena = { 0 };
    bool ended = printed_ended(&exec->command);
    struct command_view view;

    target_command_view(&exec->command, &arena, &view);
    if (!exec_give(exec, 0, &view) || !exec_give(exec, 1, &view) || !ended)
        return;
    out.complete = true;
    out.exit_code = (int32_t)view.exit_code;
    out.error = (char *)(uintptr_t)(view.error ? view.error : "");
    out.command_id = (char *)(uintptr_t)view.command_id;
    (void)rpc_write(exec->grpc, &out.base);
    grpc_finish(exec->grpc, GRPC_OK, NULL);
    exec_free(exec);
}

static void exec_more(struct printed *printed)
{
    struct exec_call *exec = container_of(printed, struct exec_call, command);

    if (!grpc_full(exec->grpc))
        exec_pump(exec);
}

static void exec_gone(struct printed *printed)
{
    struct exec_call *exec = container_of(printed, struct exec_call, command);
    struct err why = { 0 };

    err_set(&why, ERR_UNAVAILABLE, "the command was deleted, or the server is about to stop");
    exec->command = (struct printed){ 0 }; /* detached already */
    exec_fail(exec, &why);
}

static int exec_record(struct target_run *run, struct db *db, struct err *err)
{
    return call_record(container_of(run, struct exec_call, run)->call, db, err);
}

static void exec_started(struct target_run *run, const struct err *err)
{
    struct exec_call *exec = container_of(run, struct exec_call, run);

    exec->starting = false;
    if (!exec->grpc) {
        exec_free(exec);
        return;
    }
    if (err) {
        exec_fail(exec, err);
        return;
    }
    exec->command = run->command;
    exec->command.more = exec_more;
    exec->command.gone = exec_gone;
    exec->command.holds = true;
    printed_follow(&exec->command, exec->at);
    exec_pump(exec);
}

static int exec_wish(struct call *call, const Agentic__Sandbox__V1__ExecRequest *request,
                     struct command_wish *wish, struct err *err)
{
    const char **args = arena_alloc(&call->arena, (request->n_args + 1) * sizeof(char *));
    struct field_pair *env =
        arena_alloc(&call->arena, (request->n_env + 1) * sizeof(struct field_pair));

    if (!request->command[0])
        return err_field(err, "command", "command is needed");
    if (request->n_args > LINK_ARGS_MAX)
        return err_field(err, "args", "more than %d args", LINK_ARGS_MAX);
    if (request->timeout_seconds < 0 || request->timeout_seconds > LINK_TIMEOUT_MAX_S)
        return err_field(err, "timeout_seconds", "timeout_seconds must be 0 to %d",
                         LINK_TIMEOUT_MAX_S);
    for (size_t i = 0; i < request->n_args; i++)
        args[i] = request->args[i];
    for (size_t i = 0; i < request->n_env; i++)
        env[i] = (struct field_pair){ request->env[i]->key, request->env[i]->value };
    *wish = (struct command_wish){ .command = request->command,
                                   .args = args,
                                   .working_dir = request->working_dir,
                                   .env = env,
                                   .timeout_seconds = request->timeout_seconds
                                                          ? request->timeout_seconds
                                                          : LINK_EXEC_TIMEOUT_S };
    return command_wish_settle(wish, err);
}

static int exec_start(struct exec_call *exec, struct str bytes, struct err *err)
{
    struct call *call = exec->call;
    struct command_wish *wish = arena_new(&call->arena, struct command_wish);
    struct target target;
    ProtobufCMessage *message;

    if (rpc_read(exec->grpc, &agentic__sandbox__v1__exec_request__descriptor, bytes, &call->arena,
                 &message, err) < 0)
        return -1;
    const Agentic__Sandbox__V1__ExecRequest *request =
        (const Agentic__Sandbox__V1__ExecRequest *)message;
    if (target_find(call->api, call_reach(call), request->agent_id, &target, err) < 0 ||
        exec_wish(call, request, wish, err) < 0)
        return -1;
    exec->run = (struct target_run){
        .tenant = call->who.tenant, .by = call->who.id, .record = exec_record, .done = exec_started
    };
    call->object = arena_printf(&call->arena, "agent/%s", request->agent_id);
    return target_run(&target, wish, &call->arena, &exec->run, err);
}

static void exec_message(struct grpc *grpc, struct str bytes)
{
    struct exec_call *exec = grpc_ctx(grpc);
    struct err err = { 0 };
    int rc = exec->begun ? err_set(&err, ERR_INVALID, "one request message is enough")
                         : exec_start(exec, bytes, &err);

    if (rc == 0)
        exec->begun = exec->starting = true;
    else if (!exec->begun)
        exec_fail(exec, &err);
}

static void exec_end(struct grpc *grpc)
{
    struct exec_call *exec = grpc_ctx(grpc);
    struct err err = { 0 };

    if (exec->begun)
        return;
    err_set(&err, ERR_INVALID, "a request message is needed");
    exec_fail(exec, &err);
}

static void exec_drain(struct grpc *grpc)
{
    struct exec_call *exec = grpc_ctx(grpc);

    if (exec_follows(exec))
        exec_pump(exec);
}

/* Who only watched is gone; the command goes on, and can be found again by its id. */
static void exec_cancel(struct grpc *grpc)
{
    struct exec_call *exec = grpc_ctx(grpc);

    exec->grpc = NULL;
    exec->call->req = NULL;
    if (!exec->starting)
        exec_free(exec);
}

static const struct grpc_ops exec_ops = {
    .on_message = exec_message, .on_end = exec_end, .on_drain = exec_drain, .on_cancel = exec_cancel
};

static int exec_open(struct call *call, struct err *err)
{
    if (rpc_shape(call, true, err) < 0)
        return -1;
    struct exec_call *exec = xnew(struct exec_call);
    call->peer = arena_strdup(&call->arena, call->req->peer->text); /* for the audit row */
    exec->call = call;
    exec->grpc = grpc_begin(call->req, &exec_ops, exec);
    return 0;
}

const struct route agent_link_routes[] = {
    { .name = "agent.connect",
      .method = "POST",
      .path = "/agentic.sandbox.v1.AgentService/Connect",
      .on = ON_STREAM,
      .roles = ROLE_PUBLIC,
      .fn = connect_open,
      .flags = ROUTE_HIDDEN | ROUTE_BODY,
      .surface = SURFACE_RPC,
      .summary = "The link of an agent, which shows its own secret." },
    { .name = "agent.exec",
      .method = "POST",
      .path = "/agentic.sandbox.v1.AgentService/Exec",
      .on = ON_STREAM,
      .roles = ROLE_USE,
      .fn = exec_open,
      .flags = ROUTE_HIDDEN | ROUTE_BODY,
      .surface = SURFACE_RPC,
      .summary = "Run a command on a linked agent or in a sandbox and stream its output." },
    { 0 },
};
