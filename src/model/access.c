/* See access.h. Names are compared with names and ids with ids, so that a token cannot be named
 * like the id of another principal to become it. */
#include "model/access.h"

#include <string.h>

const struct field access_fields[] = {
    ACCESS_FIELDS(access_wish, 0),
    { 0 },
};

static const char *text_copy(struct arena *arena, const char *text)
{
    return text ? arena_strdup(arena, text) : NULL;
}

struct reach reach_copy(struct arena *arena, struct reach from)
{
    return (struct reach){ .tenant = text_copy(arena, from.tenant),
                           .all = from.all,
                           .id = text_copy(arena, from.id),
                           .name = text_copy(arena, from.name),
                           .box = text_copy(arena, from.box) };
}

static bool same(const char *a, const char *b)
{
    return a && b && strcmp(a, b) == 0;
}

static bool in_tenant(struct reach reach, const char *tenant)
{
    return same(reach.tenant, tenant) || (reach.all && !reach.tenant);
}

bool reach_owns(struct reach reach, const char *tenant, const char *by, const struct access *access)
{
    if (!in_tenant(reach, tenant))
        return false;
    return reach.all || (access->owner ? same(reach.name, access->owner) : same(reach.id, by));
}

bool reach_has(struct reach reach, const char *tenant, const char *by, const struct access *access)
{
    if (reach_owns(reach, tenant, by, access))
        return true;
    if (!in_tenant(reach, tenant) || !reach.name)
        return false;
    if (same(access->visibility, "tenant"))
        return true;
    for (const char **name = access->shared_with; name && *name; name++)
        if (same(reach.name, *name))
            return true;
    return false;
}

struct access access_copy(struct arena *arena, const struct access *from)
{
    struct access to = { .owner = text_copy(arena, from->owner) };
    size_t count = 0;

    if (from->visibility)
        to.visibility = strcmp(from->visibility, "tenant") == 0 ? "tenant" : "private";
    while (from->shared_with && from->shared_with[count])
        count++;
    if (!count)
        return to;
    to.shared_with = arena_alloc(arena, (count + 1) * sizeof(*to.shared_with));
    for (size_t i = 0; i < count; i++)
        to.shared_with[i] = arena_strdup(arena, from->shared_with[i]);
    to.shared_with[count] = NULL;
    return to;
}

struct access access_shown(const struct access *access, const char *by)
{
    return (struct access){ .owner = access->owner ? access->owner : by,
                            .visibility = access->visibility ? access->visibility : "private",
                            .shared_with = access->shared_with };
}

static void put_shared(struct json_out *json, const struct access *access)
{
    json_key(json, "shared_with");
    json_open(json, '[');
    for (const char **name = access->shared_with; name && *name; name++)
        json_put_str(json, str_of(*name));
    json_close(json, ']');
}

void access_put(struct json_out *json, const struct access *access, const char *by)
{
    const char *owner = access->owner ? access->owner : by;

    if (owner)
        json_kv_text(json, "owner", owner);
    if (same(access->visibility, "tenant"))
        json_kv_text(json, "visibility", access->visibility);
    if (access->shared_with && access->shared_with[0])
        put_shared(json, access);
}

const char *access_text(struct arena *arena, const struct access *access)
{
    autobuf struct buf text = { 0 };
    struct json_out json = json_to(&text);

    if (!access->owner && !access->visibility && !access->shared_with)
        return "";
    json_open(&json, '{');
    if (access->owner)
        json_kv_text(&json, "owner", access->owner);
    if (access->visibility)
        json_kv_text(&json, "visibility", access->visibility);
    if (access->shared_with)
        put_shared(&json, access);
    json_close(&json, '}');
    return arena_memdup0(arena, text.data, text.len);
}

int access_read(struct arena *arena, struct str text, struct access *out, struct err *err)
{
    struct access_wish wish = { 0 };
    struct json *json;

    if (text.n && (json_parse(arena, arena_str(arena, text), &json, err) < 0 ||
                   field_decode(access_fields, json, &wish, arena, NULL, err) < 0))
        return -1;
    *out = wish.access;
    return 0;
}

void access_merge(struct access *access, const struct access *wish, uint64_t present,
                  unsigned first)
{
    present >>= first;
    if (present >> ACCESS_OWNER & 1)
        access->owner = wish->owner;
    if (present >> ACCESS_VISIBILITY & 1)
        access->visibility = wish->visibility;
    if (present >> ACCESS_SHARED & 1)
        access->shared_with = wish->shared_with;
}
