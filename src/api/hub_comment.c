/* What people and agents say under a task of the hub. */
#include "api/hub_call.h"

static int comment_post(struct call *call, struct err *err)
{
    struct hub_by by = hub_by(call);
    const char *task = call_param(call, "task");
    struct hub_comment wish = { 0 }, made;

    if (hub_take(call, &wish, NULL, err) < 0)
        return -1;
    hub_note(call, hub_who(&by, wish.author), "task", task, "text", wish.text, NULL);
    call->object = arena_printf(&call->arena, "task/%.64s", task);
    return hub_comment_add(&by, call_param(call, "project"), task, &wish, &made, err) < 0
               ? -1
               : call_reply(call, &made);
}

static int comments_get(struct call *call, struct err *err)
{
    struct hub_by by = hub_by(call);
    struct hub_list list = hub_list(call);
    int64_t after, limit;

    if (call_query_int(call, "after", 0, INT64_MAX, 0, &after, err) < 0 ||
        hub_limit(call, HUB_PAGE, HUB_PAGE, &limit, err) < 0)
        return -1;
    return hub_list_end(&list,
                        hub_comments(&by, call_param(call, "project"), call_param(call, "task"),
                                     after, limit, hub_put_item, &list, err));
}

#define PATH "/projects/{project}/tasks/{task}/comments"

const struct route hub_comment_routes[] = {
    { .name = "hub.comment_task",
      .method = "POST",
      .path = PATH,
      .on = ON_WRITER,
      .roles = ROLE_USE,
      .fn = comment_post,
      .takes = hub_comment_wish_fields,
      .gives = hub_comment_fields,
      .surface = SURFACE_HUB,
      .flags = ROUTE_CREATES | HUB_CHANGE,
      .summary = "Say something under a task." },
    { .name = "hub.list_comments",
      .method = "GET",
      .path = PATH,
      .on = ON_READER,
      .roles = ROLE_LOOK,
      .fn = comments_get,
      .items = hub_comment_fields,
      .query = "after:int,limit:int",
      .surface = SURFACE_HUB,
      .flags = ROUTE_BARE,
      .summary = "What was said under it, oldest first." },
    { 0 },
};
