/*
 * Who may: from where a request comes, by whom, and whether that one may do what it asks for. All
 * of it before the handler, and all of it deny by default: a route names the roles that may use it,
 * and one that names none is used by nobody.
 */
#include "api/dispatch.h"

#include "hub/hub.h"

/* ---- from where ---- */

bool api_host_known(const struct api *api, struct str host)
{
    for (const char *const *known = api->options.hosts; *known; known++)
        if (str_eq_nocase(host, str_of(*known)))
            return true;
    return false;
}

int may_host(const struct api *api, const struct http_req *req, struct err *err)
{
    if (req->peer->local || api_host_known(api, req->host))
        return 0;
    return err_set(err, ERR_MISDIRECTED,
                   "Host \"%.*s\" is not served here; add it with the setting `host`",
                   STR_FMT(req->host));
}

/* A browser always names where a page came from; anything but our own pages is refused. */
int may_origin(const struct api *api, const struct http_req *req, struct err *err)
{
    struct str origin = http_header(req, "origin");
    struct str scheme = req->peer->tls ? STR("https://") : STR("http://");

    if (!origin.p)
        return 0;
    if (str_starts(origin, scheme) && api_host_known(api, str_from(origin, scheme.n)))
        return 0;
    return err_set(err, ERR_FORBIDDEN, "Origin \"%.*s\" is not ours", STR_FMT(origin));
}

/* Its pages are an origin of their own, and nobody else's pages may speak to it. */
int may_own_origin(const struct http_req *req, struct err *err)
{
    struct str origin = http_header(req, "origin");
    struct str scheme = req->peer->tls ? STR("https://") : STR("http://");

    if (!origin.p ||
        (str_starts(origin, scheme) && str_eq_nocase(str_from(origin, scheme.n), req->host)))
        return 0;
    return err_set(err, ERR_FORBIDDEN, "Origin \"%.*s\" is not this host", STR_FMT(origin));
}

/* ---- what only operators ask for ---- */

/*
 * The contained party does not choose its container: what weakens isolation or shows more of the
 * host is for operators, or for a template that an operator wrote. `user: root` is not in this
 * list, because root of a sandbox is an ordinary user outside.
 */
int may_wish(const struct call *call, const struct sandbox_spec *spec, struct err *err)
{
    const struct {
        bool asked;
        const char *field, *why;
    } weaker[] = {
        { spec->nesting, "nesting", "it opens much more of the kernel to the sandbox" },
        { spec->tier && strcmp(spec->tier, "T1") == 0, "tier", "T1 is the same as nesting" },
        { spec->sys, "sys", "it shows the hardware of the host" },
    };

    if (call->who.role & ROLE_STEER)
        return 0;
    for (size_t i = 0; i < ARRAY_LEN(weaker); i++)
        if (weaker[i].asked) {
            err_role(err, "%s: only an operator may ask for it, or a template of an operator: %s",
                     weaker[i].field, weaker[i].why);
            return -1;
        }
    return 0;
}

int may_own(const struct call *call, struct access *access, struct err *err)
{
    struct reach reach = call_reach(call);

    if (reach.all)
        return 0;
    if (access->owner && (!reach.name || strcmp(access->owner, reach.name) != 0))
        return err_role(err, "owner: only an operator may name another owner than the caller");
    access->owner = reach.name;
    return 0;
}

int may_give(const struct call *call, bool owned, uint64_t present, unsigned first, struct err *err)
{
    present = present >> first &
              ((1u << ACCESS_OWNER) | (1u << ACCESS_VISIBILITY) | (1u << ACCESS_SHARED));
    if (!present || (call->who.role & ROLE_STEER))
        return 0;
    if (present >> ACCESS_OWNER & 1)
        return err_role(err, "owner: only an operator may name another owner");
    return owned ? 0 : err_role(err, "only its owner or an operator may change who reaches it");
}

/* ---- agents that the hub does not know ---- */

/*
 * People pause, revoke and steer agents of the hub by their registration. A token of role agent
 * without a registration could act unstoppably, so such a token only reads, registers, and reports
 * a heartbeat or its end.
 */
static int may_act(const struct call *call, struct err *err)
{
    static const char *const unregistered[] = { "hub.register", "hub.unregister", "hub.heartbeat",
                                                "hub.revocation_acknowledged" };
    const struct route *route = call->route;

    if (call->who.role != ROLE_AGENT || !str_starts(str_of(route->name), STR("hub.")) ||
        !changes_something(route) || hub_known(call->api->hub, call->who.tenant, call->who.name))
        return 0;
    for (size_t i = 0; i < ARRAY_LEN(unregistered); i++)
        if (strcmp(route->name, unregistered[i]) == 0)
            return 0;
    return err_set(err, ERR_FORBIDDEN,
                   "%s is not registered at the hub; register first: POST /agents/register "
                   "{\"name\": \"%s\"}, or atoll agent register %s",
                   call->who.name, call->who.name, call->who.name);
}

/* ---- who ---- */

/* 0: this principal may; 1: already answered. */
int may_role(struct running *run)
{
    struct call *call = &run->call;
    const struct route *route = call->route;
    struct err err = { 0 };

    if (!(route->roles & call->who.role) || !principal_scope(&call->who, route->name)) {
        err_role(&err, "role %s may not do %s", role_name(call->who.role), route->name);
        running_refuse_audited(run, &err, WHY_FORBIDDEN);
        return 1;
    }
    if ((route->flags & ROUTE_NODE) && strcmp(call->who.tenant, TENANT_OWNER) != 0) {
        err_role(&err, "%s is about the whole server; tenant %s may not", route->name,
                 call->who.tenant);
        running_refuse_audited(run, &err, WHY_FORBIDDEN);
        return 1;
    }
    if (may_act(call, &err) < 0) {
        running_refuse_audited(run, &err, WHY_FORBIDDEN);
        return 1;
    }
    if (!(route->flags & ROUTE_NO_RATE) && auth_rate(call->api->auth, &call->who, &err) < 0) {
        running_refuse_audited(run, &err, WHY_RATE);
        return 1;
    }
    return 0;
}

/* 0: go on; 1: already answered. */
int may_who(struct running *run)
{
    struct call *call = &run->call;
    const struct route *route = call->route;
    struct err err = { 0 };

    if (route->roles & ROLE_PUBLIC)
        return 0;
    switch (auth_check(call->api->auth, call->req, &call->who, &err)) {
    case AUTH_OK:
        break;
    case AUTH_BODY:
        if (route->on == ON_STREAM) {
            err_set(&err, ERR_UNAUTHENTICATED, "signed requests cannot open streams; use a token");
            running_refuse_audited(run, &err, WHY_NOBODY);
            return 1;
        }
        run->is_signed = true; /* to be finished in with_body */
        return 0;
    case AUTH_NOBODY:
    case AUTH_REFUSED:
    default:
        running_refuse_audited(run, &err, err.code == ERR_RATE ? WHY_RATE : WHY_NOBODY);
        return 1;
    }
    return may_role(run);
}
