/* dispatch - the way of a request, among the files that it leads through. Loop thread. */
#pragma once

#include "api/own.h"

/* Why a request was refused before its handler; a label of the metric. */
enum why { WHY_HOST, WHY_ORIGIN, WHY_NOBODY, WHY_FORBIDDEN, WHY_RATE, WHY_NOT_FOUND, WHY_INVALID };

static inline bool changes_something(const struct route *route)
{
    return strcmp(route->method, "GET") != 0;
}

/* may.c: from where it came. */
must_use int may_host(const struct api *api, const struct http_req *req, struct err *err);
must_use int may_origin(const struct api *api, const struct http_req *req, struct err *err);
must_use int may_own_origin(const struct http_req *req, struct err *err);
/* may.c: by whom. 0: go on; 1: already answered. */
must_use int may_who(struct running *run);
must_use int may_role(struct running *run);

/* dispatch.c: `req` NULL: it is none of a peer. */
struct running *running_new(struct api *api, struct http_req *req);
must_use int running_take_query(struct call *call, struct str query, struct err *err);
must_use int running_take_body(struct running *run, struct str body, struct err *err);

/* run.c: the handler, and what follows. A signed request uses its signature up first. */
void running_start(struct running *run);
void running_start_signed(struct running *run);

/* answer.c: ends the call, as `failed` and `err` say. */
void running_finish(struct running *run);
/* answer.c: refuses it and ends it; audited when it says something about who asked. */
void running_refuse(struct running *run, const struct err *err, enum why why);
void running_refuse_audited(struct running *run, const struct err *err, enum why why);
