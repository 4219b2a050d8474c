/*
 * hub_call - what the routes of the hub share: who calls, what they ask for in the hub's own loose
 * way, and what the audit log is told. Inside the api room.
 */
#pragma once

#include "api/own.h"
#include "hub/hub.h"

/* On whose behalf; with call->db, or another one. */
struct hub_by hub_by(struct call *call);
struct hub_by hub_by_db(struct call *call, struct db *db);

/*
 * Decodes the body by the route's `takes`, as the hub's clients write it: nothing is an empty
 * object, null is nothing, unknown fields are ignored, and what is required and missing is told
 * together ("from and to required").
 */
must_use int hub_take(struct call *call, void *out, uint64_t *present, struct err *err);
/*
 * Before a handler: a {project} and a {task} of the path, or project_id and project of the query,
 * that are names or beginnings of ids become ids. To read from a project that never was is
 * ERR_NOT_FOUND.
 */
must_use int hub_resolve(struct call *call, struct err *err);
/* Where an error of the hub's names a field, its text begins with that (answer.c). */
void hub_name_field(const struct route *route, struct err *err);
/* A `limit` of the query: over `most` it is `most`; -1 is no number of anything. */
must_use int hub_limit(struct call *call, int64_t otherwise, int64_t most, int64_t *out,
                       struct err *err);
bool hub_true(struct call *call, const char *query); /* "true" in any case */
/* The same of a parameter that is ours: anything else than true or false is refused. */
must_use int hub_yes(struct call *call, const char *query, bool *out, struct err *err);

/*
 * What the audit row says, also when the call is refused from here on: who acts, and texts by name
 * (NULL ones are left out), ended by a NULL name.
 */
void hub_note_words(struct call *call, const char *agent, const char *const *words);
#define hub_note(call, agent, ...) hub_note_words(call, agent, (const char *const[]){ __VA_ARGS__ })

/* The answer: keys and texts, ended by a NULL key. 0. */
int hub_say_words(struct call *call, const char *const *words);
#define hub_say(call, ...) hub_say_words(call, (const char *const[]){ __VA_ARGS__ })
int hub_ok(struct call *call); /* {"status":"ok"} */

/* The answer is a list of what the route's `items` are: begun, item by item, ended. */
struct hub_list {
    struct json_out json;
    const struct field *fields;
};
struct hub_list hub_list(struct call *call);
void hub_put_item(void *list, const void *item); /* a hub_item_fn */
must_use int hub_list_end(struct hub_list *list, int rc);

extern const struct field hub_nothing[]; /* a body that is not looked at */

/* What changes something is on record, refused or not, takes JSON loosely, and is done once. */
#define HUB_CHANGE (ROUTE_LOOSE | ROUTE_ON_RECORD | ROUTE_ONCE)
