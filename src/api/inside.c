/*
 * The hub as programs in sandboxes reach it, at http://atoll.internal/hub/… (egress/self.c, then
 * gate/wishes.c): the routes that an agent needs for its own work, and no other, as the one agent
 * that an operator has named in the sandbox's own layer of policy (`agent`).
 *
 * Nothing inside can choose who it is: no token is looked at, and the sandbox is the one whose
 * socket the request came in by. From there on it is a call like any other of that agent: its role,
 * its rate, the hub's own checks, audit rows with the sandbox's id as the actor.
 */
#include "api/dispatch.h"

#include <stdio.h>

#include "gate/gate.h"
#include "http/url.h"

/* clang-format off */
static const char *const open_routes[] = {
    "hub.ping", "hub.register", "hub.heartbeat", "hub.read_agent", "hub.set_autonomy",
    "hub.set_capabilities", "hub.read_revocation", "hub.revocation_acknowledged",
    "hub.checkpoint", "hub.read_checkpoint",
    "hub.send_message", "hub.read_inbox", "hub.ack_message", "hub.read_thread",
    "hub.join_channel", "hub.leave_channel", "hub.send_channel",
    "hub.create_project", "hub.list_projects", "hub.read_project", "hub.join_project",
    "hub.upload_file", "hub.list_files", "hub.download_file", "hub.delete_file",
    "hub.list_versions",
    "hub.take_lease", "hub.list_leases", "hub.renew_lease", "hub.release_lease",
    "hub.find_tasks", "hub.list_tasks", "hub.list_ready", "hub.read_task", "hub.create_task",
    "hub.claim_task", "hub.unassign_task", "hub.transition_task", "hub.read_board",
    "hub.add_reviewer", "hub.approve_task", "hub.request_changes", "hub.list_reviews",
    "hub.comment_task", "hub.list_comments", "hub.list_proposals", "hub.read_proposal",
};
/* clang-format on */

static bool is_open(const struct route *route)
{
    for (size_t i = 0; i < ARRAY_LEN(open_routes); i++)
        if (strcmp(route->name, open_routes[i]) == 0)
            return true;
    return false;
}

/* Whoever is named in the path or the query is the agent itself; bodies are the hub's to check. */
static int check_named(const struct call *call, struct err *err)
{
    bool of_agents = str_starts(str_of(call->route->path), STR("/agents/"));
    const struct {
        const struct call_param *list;
        unsigned count;
    } said[] = { { call->params, call->param_count }, { call->queries, call->query_count } };

    for (size_t i = 0; i < ARRAY_LEN(said); i++)
        for (unsigned at = 0; at < said[i].count; at++) {
            const struct call_param *one = &said[i].list[at];
            bool names = strcmp(one->name, "agent") == 0 || strcmp(one->name, "assigned_to") == 0 ||
                         (of_agents && strcmp(one->name, "name") == 0);

            if (names && strcmp(one->value, call->who.name) != 0)
                return err_set(err, ERR_FORBIDDEN, "this sandbox is %s and nobody else",
                               call->who.name);
        }
    return 0;
}

/* Of all projects only what is its own; a board is seen whole, as claims are made from it. */
static int own_tasks(struct call *call, struct err *err)
{
    if (strcmp(call->route->name, "hub.find_tasks") != 0 || call_query(call, "agent"))
        return 0;
    if (call->query_count == CALL_QUERIES_MAX)
        return err_set(err, ERR_INVALID, "too many query parameters");
    call->queries[call->query_count++] = (struct call_param){ "agent", call->who.name };
    return 0;
}

static int find(struct call *call, struct str method, struct str path, struct err *err)
{
    const struct router_path *found = url_path_ok(path)
                                          ? router_find(call->api->own->router, path, &call->arena,
                                                        call->params, &call->param_count)
                                          : NULL;
    const struct route *route = found ? router_pick(found, method, 0) : NULL;

    if (!route || !is_open(route))
        return err_set(err, ERR_NOT_FOUND, "no such route for sandboxes: %.*s /hub%.*s",
                       STR_FMT(method), STR_FMT(path));
    call->route = route;
    call->method = route->method;
    call->path = arena_memdup0(&call->arena, path.p, path.n);
    return 0;
}

/*
 * The egress process passes on no headers. The type of a form is what its first line says; a body
 * that is no form is refused where forms are wanted.
 */
static void guess_type(struct call *call)
{
    struct str rest = call->body, first = str_cut(&rest, '\r');

    if (!str_starts(first, STR("--")) || memchr(first.p, '"', first.n))
        return;
    first = str_from(first, 2);
    call->body_type =
        arena_printf(&call->arena, "multipart/form-data; boundary=\"%.*s\"", STR_FMT(first));
}

static int prepare(struct running *run, const struct gate_hub_ask *ask, struct err *err)
{
    struct call *call = &run->call;
    struct str query = ask->path, path = str_cut(&query, '?');

    if (find(call, ask->method, path, err) < 0 || running_take_query(call, query, err) < 0 ||
        check_named(call, err) < 0 || own_tasks(call, err) < 0)
        return -1;
    if (running_take_body(run, ask->body, err) < 0)
        return -1;
    if (call->route->flags & ROUTE_RAW)
        guess_type(call);
    return 0;
}

/* "/hub" itself: who it is there. */
static void tell_who(const struct api *api, const struct gate_hub_ask *ask)
{
    autobuf struct buf body = { 0 };
    struct json_out json = json_to(&body);

    json_open(&json, '{');
    json_kv_text(&json, "sandbox", ask->sandbox);
    json_kv_text(&json, "agent", ask->agent);
    json_close(&json, '}');
    gate_hub_told(api->gate, ask->number, 200, buf_view(&body));
}

void api_inside(void *ctx, const struct gate_hub_ask *ask)
{
    struct api *api = ctx;
    struct err err = { 0 };

    if (str_is(ask->path, "/") && str_is(ask->method, "GET")) {
        tell_who(api, ask);
        return;
    }
    struct running *run = running_new(api, NULL);
    struct call *call = &run->call;
    run->inside = true;
    run->number = ask->number;
    call->peer = "sandbox";
    call->who = (struct principal){ .role = ROLE_AGENT, .via = VIA_INSIDE };
    snprintf(call->who.id, sizeof(call->who.id), "%s", ask->sandbox);
    snprintf(call->who.tenant, sizeof(call->who.tenant), "%s", ask->tenant);
    snprintf(call->who.name, sizeof(call->who.name), "%s", ask->agent ? ask->agent : "");
    if (!ask->agent) {
        err_set(&err, ERR_FORBIDDEN,
                "this sandbox is no agent of the hub; an operator makes it one with --agent");
        running_refuse(run, &err, WHY_FORBIDDEN);
        return;
    }
    if (prepare(run, ask, &err) < 0) {
        if (err.code == ERR_FORBIDDEN)
            running_refuse_audited(run, &err, WHY_FORBIDDEN);
        else
            running_refuse(run, &err, WHY_INVALID);
        return;
    }
    if (!may_role(run))
        running_start(run);
}
