/*
 * Who may: from where a request comes, by whom, and whether that one may do what it asks for. All
 * of it before the handler, and all of it deny by default: a route names the roles that may use it,
 * and one that names none is used by nobody.
 */
#include "api/dispatch.h"

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
