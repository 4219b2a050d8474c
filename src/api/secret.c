/*
 * Secrets. A value goes in by PUT and never comes out: replies, events and audit rows know its name
 * alone. One for requests is sealed to the egress process: not even this one can open it again. The
 * secret of an agent is made here and shown once, in the reply that made it.
 */
#include "api/own.h"

#include <stdio.h>

#include "auth/vault.h"
#include "gate/gate.h"
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
    const char *value, *use, **hosts;
};

static const struct field value_wish_fields[] = {
    FIELD(value_wish, value, F_STRING, F_REQUIRED | F_SECRET, .min = 1, .max = SECRET_VALUE_MAX,
          .help = "Kept sealed; no route gives it back"),
    FIELD(value_wish, use, F_ENUM, 0, .choices = "server|request",
          .help = "Who can open it: the server for its own needs, or the process that puts it into "
                  "requests and nobody else; unsaid: request when there are hosts"),
    FIELD(value_wish, hosts, F_STRINGS, 0, .max = INJECT_HOSTS_MAX, .each_max = RULE_TEXT_MAX,
          .help = "Of one for requests: where it may go, as rules of egress say it; without a port "
                  "443 with TLS"),
    { 0 },
};

struct secret_view {
    const char *name, *kind, *use, **hosts, *placeholder, *agent_id, *fingerprint, *by, *secret;
    int64_t version, created_at, changed_at;
    bool rotation_pending;
};

#define SECRET_FIELDS                                                                              \
    FIELD(secret_view, name, F_STRING, F_READONLY, .help = "What it is asked for by"),             \
        FIELD(secret_view, kind, F_ENUM, F_READONLY, .choices = "value|agent",                     \
              .help = "A value that was put here, or what an agent connects with"),                \
        FIELD(secret_view, use, F_ENUM, F_READONLY, .choices = "server|request",                   \
              .help = "Of a value: who can open it"),                                              \
        FIELD(secret_view, hosts, F_STRINGS, F_READONLY,                                           \
              .help = "Of a value for requests: where it may go"),                                 \
        FIELD(secret_view, placeholder, F_STRING, F_READONLY,                                      \
              .help = "Of a value for requests: what stands for it inside sandboxes"),             \
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

/* What a view points to. */
struct view_space {
    char fingerprint[FINGERPRINT_SIZE];
    char text[INJECT_CONTEXT_MAX + 1];
    const char *hosts[INJECT_HOSTS_MAX + 1];
};

static void cut_hosts(struct view_space *space, const char *text)
{
    size_t count = 0;

    snprintf(space->text, sizeof(space->text), "%s", text);
    for (char *at = space->text; *at && count < INJECT_HOSTS_MAX;) {
        char *end = strchrnul(at, '\n');

        space->hosts[count++] = at;
        at = *end ? end + 1 : end;
        *end = 0;
    }
    space->hosts[count] = NULL;
}

static struct secret_view view_of(const struct secret_row *row, struct view_space *space)
{
    hex_text(row->hash, (FINGERPRINT_SIZE - 1) / 2, space->fingerprint);
    cut_hosts(space, row->hosts);
    return (struct secret_view){ .name = row->name,
                                 .kind = row->agent ? "agent" : "value",
                                 .agent_id = row->agent ? row->name : NULL,
                                 .use = row->agent     ? NULL
                                        : row->request ? "request"
                                                       : "server",
                                 .hosts = space->hosts,
                                 .placeholder = row->request ? row->placeholder : NULL,
                                 .fingerprint = row->agent ? space->fingerprint : NULL,
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
    if (row->request)
        json_kv_text(&json, "hosts", row->hosts);
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
    char plain[AGENT_SECRET_SIZE];
    struct view_space space;
    struct secret_wish wish = { 0 };

    if (call_decode(call, &wish, err) < 0 ||
        agent_secret_create(call->db, call->who.tenant, wish.agent_id, call->who.id, row, plain,
                            err) < 0 ||
        secret_event(call, "secret.created", row, err) < 0)
        return -1;
    struct secret_view view = view_of(row, &space);
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

static void value_kept(struct call *call)
{
    gate_secret_set(call->api->gate, call->state);
}

/* What the gate is told once it is stored: sealed as it is, or that there is none for requests. */
static int tell_gate(struct call *call, const struct secret_row *row, bool gone, struct err *err)
{
    struct gate_secret *told = arena_new(&call->arena, struct gate_secret);
    autobuf struct buf context = { 0 }, sealed = { 0 };

    *told = (struct gate_secret){ .tenant = arena_strdup(&call->arena, call->who.tenant),
                                  .name = arena_strdup(&call->arena, row->name),
                                  .hosts = arena_strdup(&call->arena, row->hosts),
                                  .placeholder = arena_strdup(&call->arena, row->placeholder) };
    if (!gone && row->request) {
        struct secret_row again;

        if (vault_sealed(call->db, call->who.tenant, row->name, &again, &context, &sealed, err) < 0)
            return -1;
        told->sealed = arena_str(&call->arena, buf_view(&sealed));
    }
    call->state = told;
    call->committed = value_kept;
    return 0;
}

static int secret_put(struct call *call, struct err *err)
{
    struct secret_row row = { 0 };
    struct value_wish wish = { 0 };
    struct view_space space;
    int rc = call_decode(call, &wish, err);

    if (rc == 0) {
        bool hosts = wish.hosts && wish.hosts[0];
        const struct vault_value value = { .value = str_of(wish.value),
                                           .request =
                                               wish.use ? strcmp(wish.use, "request") == 0 : hosts,
                                           .hosts = wish.hosts };

        rc = vault_put(call->db, call->api->options.keys, call->who.tenant,
                       call_param(call, "name"), &value, call->who.id, &row, err);
    }
    forget_body(call, &wish);
    if (rc < 0 || tell_gate(call, &row, false, err) < 0 ||
        secret_event(call, row.version == 1 ? "secret.created" : "secret.changed", &row, err) < 0)
        return -1;
    struct secret_view view = view_of(&row, &space);
    call->status = row.version == 1 ? 201 : 200;
    return call_reply(call, &view);
}

static void list_one(void *ctx, const struct secret_row *row)
{
    struct view_space space;
    struct secret_view view = view_of(row, &space);

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
    call->committed = agent_removed;
    if (!row->agent && tell_gate(call, row, true, err) < 0)
        return -1;
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
                 "before it is stored, and no route gives it back. One for requests is sealed to "
                 "the egress process and bound to its hosts." },
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
