/*
 * Secrets. A value goes in by PUT and never comes out: replies, events and audit rows know its name
 * alone. The secret of an agent is made here and shown once, in the reply that made it.
 */
#include "api/own.h"

#include <stdio.h>

#include "auth/vault.h"
#include "link/links.h"

struct secret_wish {
    const char *agent_id;
};

static const struct field secret_wish_fields[] = {
    FIELD(secret_wish, agent_id, F_STRING, F_REQUIRED, .min = 1, .max = SECRET_NAME_MAX,
          .help = "The agent that will connect with it"),
    { 0 },
};

struct value_wish {
    const char *value;
};

static const struct field value_wish_fields[] = {
    FIELD(value_wish, value, F_STRING, F_REQUIRED | F_SECRET, .min = 1, .max = SECRET_VALUE_MAX,
          .help = "Kept sealed; no route gives it back"),
    { 0 },
};

struct secret_view {
    const char *name, *kind, *agent_id, *fingerprint, *by, *secret;
    int64_t version, created_at, changed_at;
    bool rotation_pending;
};

#define SECRET_FIELDS                                                                              \
    FIELD(secret_view, name, F_STRING, F_READONLY, .help = "What it is asked for by"),             \
        FIELD(secret_view, kind, F_ENUM, F_READONLY, .choices = "value|agent",                     \
              .help = "A value that was put here, or what an agent connects with"),                \
        FIELD(secret_view, agent_id, F_STRING, F_READONLY, .help = "Of an agent's: whose it is"),  \
        FIELD(secret_view, fingerprint, F_STRING, F_READONLY,                                      \
              .help = "Of an agent's: the first 12 digits of its SHA-256"),                        \
        FIELD(secret_view, rotation_pending, F_BOOL, F_READONLY,                                   \
              .help = "Of an agent's: a new one waits for its first use"),                         \
        FIELD(secret_view, version, F_INT, F_READONLY, .help = "One more with each new value"),    \
        FIELD(secret_view, by, F_STRING, F_READONLY, .help = "Who put it here last"),              \
        FIELD(secret_view, created_at, F_TIME, F_READONLY, .help = "When it was first put here"),  \
        FIELD(secret_view, changed_at, F_TIME, F_READONLY, .help = "When it was last replaced")

static const struct field secret_fields[] = { SECRET_FIELDS, { 0 } };

static const struct field secret_made_fields[] = {
    SECRET_FIELDS,
    FIELD(secret_view, secret, F_STRING, F_READONLY | F_SECRET,
          .help = "The secret itself, shown this once; null when replayed by Idempotency-Key"),
    { 0 },
};

#define FINGERPRINT_SIZE 13

static struct secret_view view_of(const struct secret_row *row, char fingerprint[FINGERPRINT_SIZE])
{
    hex_text(row->hash, (FINGERPRINT_SIZE - 1) / 2, fingerprint);
    return (struct secret_view){ .name = row->name,
                                 .kind = row->agent ? "agent" : "value",
                                 .agent_id = row->agent ? row->name : NULL,
                                 .fingerprint = row->agent ? fingerprint : NULL,
                                 .rotation_pending = row->next_until_ms != 0,
                                 .version = row->version,
                                 .by = row->by,
                                 .created_at = row->created_ms,
                                 .changed_at = row->changed_ms };
}

static int secret_event(struct call *call, const char *type, const struct secret_row *row,
                        struct err *err)
{
    autobuf struct buf body = { 0 };
    struct json_out json = json_to(&body);

    json_open(&json, '{');
    json_kv_text(&json, "name", row->name);
    json_kv_text(&json, "kind", row->agent ? "agent" : "value");
    json_kv_int(&json, "version", row->version);
    json_kv_text(&json, "by", call->who.id);
    json_close(&json, '}');
    call->object = arena_printf(&call->arena, "secret/%s", row->name);
    call->detail = arena_memdup0(&call->arena, body.data, body.len);
    return call_event(call, type, call->object, buf_view(&body), err);
}

static void agent_added(struct call *call)
{
    links_secret(call->api->links, call->state);
}

static int secret_post(struct call *call, struct err *err)
{
    struct secret_row *row = arena_new(&call->arena, struct secret_row);
    char plain[AGENT_SECRET_SIZE], fingerprint[FINGERPRINT_SIZE];
    struct secret_wish wish = { 0 };

    if (call_decode(call, &wish, err) < 0 ||
        agent_secret_create(call->db, call->who.tenant, wish.agent_id, call->who.id, row, plain,
                            err) < 0 ||
        secret_event(call, "secret.created", row, err) < 0)
        return -1;
    struct secret_view view = view_of(row, fingerprint);
    view.secret = plain;
    call->state = row;
    call->committed = agent_added;
    call_reply(call, &view);
    explicit_bzero(plain, sizeof(plain));
    return 0;
}

/* The copies that this call made of the body; others may sit in freed memory, nowhere on disk. */
static void forget_body(struct call *call, const struct value_wish *wish)
{
    explicit_bzero((char *)(uintptr_t)call->body.p, call->body.n);
    if (wish->value)
        explicit_bzero((char *)(uintptr_t)wish->value, strlen(wish->value));
}

static int secret_put(struct call *call, struct err *err)
{
    struct secret_row row = { 0 };
    struct value_wish wish = { 0 };
    char fingerprint[FINGERPRINT_SIZE];
    int rc = call_decode(call, &wish, err);

    if (rc == 0)
        rc = vault_put(call->db, call->api->options.key, call->who.tenant, call_param(call, "name"),
                       str_of(wish.value), call->who.id, &row, err);
    forget_body(call, &wish);
    if (rc < 0 ||
        secret_event(call, row.version == 1 ? "secret.created" : "secret.changed", &row, err) < 0)
        return -1;
    struct secret_view view = view_of(&row, fingerprint);
    call->status = row.version == 1 ? 201 : 200;
    return call_reply(call, &view);
}

static void list_one(void *ctx, const struct secret_row *row)
{
    char fingerprint[FINGERPRINT_SIZE];
    struct secret_view view = view_of(row, fingerprint);

    field_encode(secret_fields, &view, ctx);
}

static int secret_list(struct call *call, struct err *err)
{
    struct json_out json = call_json(call);

    json_open(&json, '{');
    json_key(&json, "items");
    json_open(&json, '[');
    if (secret_each(call->db, call->who.tenant, list_one, &json, err) < 0)
        return -1;
    json_close(&json, ']');
    json_close(&json, '}');
    return 0;
}

static void agent_removed(struct call *call)
{
    const struct secret_row *row = call->state;

    links_secret_gone(call->api->links, row->name);
}

static int forget(struct call *call, const char *name, struct err *err)
{
    struct secret_row *row = arena_new(&call->arena, struct secret_row);

    if (secret_delete(call->db, call->who.tenant, name, row, err) < 0)
        return -1;
    call->status = 204;
    call->state = row;
    call->committed = row->agent ? agent_removed : NULL;
    return secret_event(call, "secret.deleted", row, err);
}

static int secret_delete_named(struct call *call, struct err *err)
{
    return forget(call, call_param(call, "name"), err);
}

static int secret_delete_agent(struct call *call, struct err *err)
{
    const char *agent = call_query(call, "agent_id");

    if (!agent)
        return err_field(err, "agent_id", "says whose secret is to be deleted");
    return forget(call, agent, err);
}

const struct route secret_routes[] = {
    { .name = "secret.list",
      .method = "GET",
      .path = "/api/v1/secrets",
      .on = ON_READER,
      .roles = ROLE_ADMIN,
      .fn = secret_list,
      .items = secret_fields,
      .summary = "Names and ages of the tenant's secrets; never a value." },
    { .name = "secret.create",
      .method = "POST",
      .path = "/api/v1/secrets",
      .on = ON_WRITER,
      .roles = ROLE_ADMIN,
      .fn = secret_post,
      .takes = secret_wish_fields,
      .gives = secret_made_fields,
      .flags = ROUTE_CREATES,
      .summary = "Make the secret of an agent; shown this once, kept as a hash." },
    { .name = "secret.put",
      .method = "PUT",
      .path = "/api/v1/secrets/{name}",
      .on = ON_WRITER,
      .roles = ROLE_ADMIN,
      .fn = secret_put,
      .takes = value_wish_fields,
      .gives = secret_fields,
      .summary = "Keep a value under a name (201), or put another in its place (200). It is sealed "
                 "before it is stored, and no route gives it back." },
    { .name = "secret.delete",
      .method = "DELETE",
      .path = "/api/v1/secrets/{name}",
      .on = ON_WRITER,
      .roles = ROLE_ADMIN,
      .fn = secret_delete_named,
      .summary = "Forget a secret. An agent that had it is disconnected." },
    { .name = "secret.delete_of",
      .method = "DELETE",
      .path = "/api/v1/secrets",
      .on = ON_WRITER,
      .roles = ROLE_ADMIN,
      .fn = secret_delete_agent,
      .query = "agent_id:string",
      .summary = "The same, by the id of an agent." },
    { 0 },
};
