/*
 * What of the event log, and of lists that are read from the store, a caller may see who does not
 * reach the whole tenant (model/access.h). The body of an event about an object names its owner and
 * those it was given to, so its deletion is told too. Where a body says nothing, the sandbox or the
 * linked agent that it names decides, while that exists. Events that say neither are for operators,
 * except what is meant for all: notes, the hub's events, and events from outside.
 *
 * Sandboxes and agents belong to the loop thread. For a call that goes to a reader, the ones within
 * reach are written down first (call->within).
 */
#include "api/own.h"

#include "box/boxes.h"
#include "link/links.h"

const char *within_list(struct call *call)
{
    struct reach reach = call_reach(call);
    autobuf struct buf ids = { 0 };
    struct linked *agent = NULL;
    struct box *box = NULL;

    if (reach.all)
        return NULL;
    buf_puts(&ids, ",");
    while ((box = boxes_next(call->api->boxes, reach, box))) {
        struct sandbox_view view;

        box_view(box, &view);
        buf_printf(&ids, "%s,", view.id);
        if (view.name)
            buf_printf(&ids, "vm/%s,", view.name);
    }
    while ((agent = links_next(call->api->links, reach, agent))) {
        struct agent_view view;

        linked_view(agent, &view);
        buf_printf(&ids, "agent/%s,", view.id);
    }
    return arena_memdup0(&call->arena, ids.data, ids.len);
}

bool within_has(const char *list, struct str id)
{
    autobuf struct buf item = { 0 };

    buf_printf(&item, ",%.*s,", STR_FMT(id));
    return strstr(list, buf_cstr(&item)) != NULL;
}

/* Do the sandbox with this id, "agent/" with that of a linked agent, or "vm/" with the name of a
 * sandbox lie within reach? */
static bool reaches(const struct within *within, struct str id)
{
    char text[SECRET_NAME_MAX + sizeof("agent/")];
    struct linked *agent;
    struct box *box;

    if (!id.n || id.n >= sizeof(text))
        return false;
    if (within->list)
        return within_has(within->list, id);
    memcpy(text, id.p, id.n);
    text[id.n] = 0;
    if (str_starts(id, STR("agent/")))
        return links_find(within->api->links, within->reach, text + 6, &agent, NULL) == 0;
    if (str_starts(id, STR("vm/")))
        return boxes_find(within->api->boxes, within->reach, text + 3, &box, NULL) == 0;
    box = boxes_by_id(within->api->boxes, text);
    return box && box_within(box, within->reach);
}

/* What the body says of the object's access. */
static bool by_body(const struct within *within, const struct json *body)
{
    const struct reach *reach = &within->reach;
    struct str owner = json_text(body, "owner"), by = json_text(body, "by");

    if (reach->id && (str_is(owner, reach->id) || str_is(by, reach->id)))
        return true;
    if (!reach->name)
        return false;
    if (str_is(owner, reach->name) || str_is(json_text(body, "visibility"), "tenant"))
        return true;
    json_each(name, json_get(body, "shared_with")) if (name->type == JSON_STRING &&
                                                       str_is(name->text, reach->name)) return true;
    return false;
}

bool within_event(const struct within *within, const struct event *event)
{
    static const struct {
        const char *prefix; /* of the type */
    } for_all[] = { { "note." }, { "external." } };
    struct str object = str_of(event->object), type = str_of(event->type);
    autoarena struct arena arena = { 0 };
    struct json *body;

    if (within->reach.all || str_starts(object, STR("hub/")))
        return true;
    for (size_t i = 0; i < ARRAY_LEN(for_all); i++)
        if (str_starts(type, str_of(for_all[i].prefix)))
            return true;
    if (str_starts(object, STR("sandbox/")) && reaches(within, str_from(object, 8)))
        return true;
    if ((str_starts(object, STR("agent/")) || str_starts(object, STR("vm/"))) &&
        reaches(within, object))
        return true;
    if (json_parse(&arena, event->body, &body, NULL) < 0)
        return false;
    return by_body(within, body) || reaches(within, json_text(body, "sandbox"));
}
