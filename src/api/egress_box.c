/*
 * What one sandbox may reach: the policy that counts for it with the reasons, its own layer, and
 * single rules from a denial. Its own layer is part of the sandbox, so changing it is changing the
 * sandbox; rules for its project, tenant or node go to those layers.
 */
#include "api/egress.h"

/* ---- what counts ---- */

struct rule_view {
    const char *list, *rule, *level, *pack;
};

static const struct field rule_fields[] = {
    FIELD(rule_view, list, F_ENUM, F_READONLY, .choices = "allow|deny|intercept|unchecked",
          .help = "What it does"),
    FIELD(rule_view, rule, F_STRING, F_READONLY, .help = "The rule"),
    FIELD(rule_view, level, F_ENUM, F_READONLY, .choices = "node|tenant|project|sandbox",
          .help = "Whose it is"),
    FIELD(rule_view, pack, F_STRING, F_READONLY, .help = "The pack it came with; null for none"),
    { 0 },
};

struct credential_view {
    const char *list, *rule, *level;
    bool missing;
};

static const struct field credential_fields[] = {
    FIELD(credential_view, list, F_ENUM, F_READONLY, .choices = "inject|secret",
          .help = "A rule that puts a secret into requests, or one whose placeholder is in the "
                  "environment"),
    FIELD(credential_view, rule, F_STRING, F_READONLY, .help = "As it was written"),
    FIELD(credential_view, level, F_ENUM, F_READONLY, .choices = "node|tenant|project|sandbox",
          .help = "Whose it is"),
    FIELD(credential_view, missing, F_BOOL, F_READONLY,
          .help = "The secret it names is not there: it says nothing until it is"),
    { 0 },
};

struct effective_view {
    const char *credentials_error;
    struct field_list credentials;
    const char *sandbox, *project, *mode, *mode_level, *error;
    int64_t version, max_bytes, max_connections, ask_s;
    int64_t allowed, denied, sent, received, used, lost;
    bool linked;
    struct field_list rules;
    const struct egress_spec *own;
};

static const struct field effective_fields[] = {
    FIELD(effective_view, sandbox, F_STRING, F_READONLY, .help = "Whose it is"),
    FIELD(effective_view, project, F_STRING, F_READONLY,
          .help = "The project whose layer counts; null for none"),
    FIELD(effective_view, mode, F_ENUM, F_READONLY, .choices = "deny|ask|open",
          .help = "What happens to hosts that no rule allows"),
    FIELD(effective_view, mode_level, F_STRING, F_READONLY,
          .help = "Which layer says so; null when none does"),
    FIELD(effective_view, version, F_INT, F_READONLY, .help = "Rises with every change"),
    FIELD(effective_view, max_bytes, F_INT, F_READONLY, .help = "Both ways; 0 for no limit"),
    FIELD(effective_view, max_connections, F_INT, F_READONLY, .help = "At once; 0 for no limit"),
    FIELD(effective_view, ask_s, F_INT, F_READONLY,
          .help = "How long a connection waits in mode ask"),
    FIELD(effective_view, rules, F_LIST, F_READONLY, .of = rule_fields,
          .of_size = sizeof(struct rule_view),
          .help = "All rules that count, in the order of layers; a deny wins over every allow"),
    FIELD(effective_view, credentials, F_LIST, F_READONLY, .of = credential_fields,
          .of_size = sizeof(struct credential_view),
          .help = "What goes into its requests, in the order of layers; never a value"),
    FIELD(effective_view, credentials_error, F_STRING, F_READONLY,
          .help = "Why none does although layers say so; null when all is well"),
    FIELD(effective_view, own, F_OBJECT, F_READONLY, .of = sandbox_egress_fields,
          .of_size = sizeof(struct egress_spec),
          .help = "The sandbox's own layer; null when it says nothing"),
    FIELD(effective_view, error, F_STRING, F_READONLY,
          .help = "Why nothing is allowed although layers say otherwise; null when all is well"),
    FIELD(effective_view, linked, F_BOOL, F_READONLY,
          .help = "Is there a process that lets anything out?"),
    FIELD(effective_view, allowed, F_INT, F_READONLY, .help = "Connections and requests let out"),
    FIELD(effective_view, denied, F_INT, F_READONLY, .help = "…and refused, for whatever reason"),
    FIELD(effective_view, sent, F_INT, F_READONLY, .help = "Bytes from the sandbox"),
    FIELD(effective_view, received, F_INT, F_READONLY, .help = "Bytes to it"),
    FIELD(effective_view, used, F_INT, F_READONLY,
          .help =
              "Bytes that count for max_bytes: those of open connections too, about a second late"),
    FIELD(effective_view, lost, F_INT, F_READONLY, .help = "Records that were only counted"),
    { 0 },
};

static const char *text_of(struct call *call, struct str text)
{
    return text.n ? arena_memdup0(&call->arena, text.p, text.n) : NULL;
}

static void list_rules(struct call *call, const struct policy *policy, struct field_list *out)
{
    struct rule_view *rules =
        arena_alloc(&call->arena, ((size_t)policy->rule_count + 1) * sizeof(*rules));

    for (uint32_t i = 0; i < policy->rule_count; i++) {
        struct policy_rule rule = policy_rule_at(policy, i);

        rules[i] = (struct rule_view){ rule.list, text_of(call, rule.text),
                                       policy_level_name(rule.level), text_of(call, rule.pack) };
    }
    *out = (struct field_list){ rules, policy->rule_count };
}

static void list_credentials(struct call *call, const struct box *box, struct field_list *out)
{
    enum { MAX = 3 * (INJECT_RULES_MAX + INJECT_SECRETS_MAX) };
    struct gate_credential *got = arena_alloc(&call->arena, MAX * sizeof(*got));
    size_t count = gate_credential_list(call->api->gate, box, got, MAX);
    struct credential_view *views = arena_alloc(&call->arena, (count + 1) * sizeof(*views));

    for (size_t i = 0; i < count; i++)
        views[i] = (struct credential_view){ got[i].list, got[i].text,
                                             policy_level_name(got[i].level), got[i].missing };
    *out = (struct field_list){ views, count };
}

static int effective_get(struct call *call, struct err *err)
{
    struct effective_view view = { 0 };
    struct sandbox_view sandbox;
    struct box *box;

    if (boxes_find_prefix(call->api->boxes, call_reach(call), call_param(call, "id"), &box, err) <
        0)
        return -1;
    const struct policy *policy = gate_policy(call->api->gate, box, &view.error);
    struct gate_totals totals = gate_totals(call->api->gate, box);
    box_view(box, &sandbox);
    view.sandbox = sandbox.id;
    view.own = sandbox.egress;
    view.project = sandbox.egress ? sandbox.egress->project : NULL;
    view.mode = policy_mode_name(policy->mode);
    view.mode_level = policy->mode_said ? policy_level_name(policy->mode_level) : NULL;
    view.version = (int64_t)policy->version;
    view.max_bytes = (int64_t)policy->max_bytes;
    view.max_connections = policy->max_connections;
    view.ask_s = policy->ask_s;
    view.allowed = totals.allowed;
    view.denied = totals.denied;
    view.sent = totals.sent;
    view.received = totals.received;
    view.used = totals.used;
    view.lost = totals.lost;
    view.linked = gate_linked(call->api->gate);
    list_rules(call, policy, &view.rules);
    list_credentials(call, box, &view.credentials);
    view.credentials_error = gate_credentials(call->api->gate, box);
    return call_reply(call, &view);
}

/* ---- why ---- */

struct explain_view {
    const char *host, *verdict, *why, *reason, *rule, *level, *pack, *mode;
    int64_t port;
    bool seen, intercept;
};

static const struct field explain_fields[] = {
    FIELD(explain_view, host, F_STRING, F_READONLY, .help = "The host as it was understood"),
    FIELD(explain_view, port, F_INT, F_READONLY, .help = "The port"),
    FIELD(explain_view, verdict, F_ENUM, F_READONLY, .choices = "allow|deny|ask",
          .help = "What would happen"),
    FIELD(explain_view, why, F_ENUM, F_READONLY,
          .choices = "rule|no_rule|open|port|request|unseen|address|raw|class",
          .help = "A rule says so; none does; the mode is open; the host is allowed on other "
                  "ports, with other requests; requests cannot be seen; an address needs a rule "
                  "of its own; no such address may be reached"),
    FIELD(explain_view, reason, F_STRING, F_READONLY, .help = "The same for people"),
    FIELD(explain_view, rule, F_STRING, F_READONLY,
          .help = "The rule that decided, or that came nearest; null for none"),
    FIELD(explain_view, level, F_STRING, F_READONLY, .help = "Whose rule; null without one"),
    FIELD(explain_view, pack, F_STRING, F_READONLY, .help = "The pack it came with"),
    FIELD(explain_view, mode, F_STRING, F_READONLY, .help = "What happens without a rule"),
    FIELD(explain_view, seen, F_BOOL, F_READONLY, .help = "Were method and path judged?"),
    FIELD(explain_view, intercept, F_BOOL, F_READONLY, .help = "Is its TLS opened?"),
    { 0 },
};

/* "https://host/path", or "host", "host:port" as of a tunnel. */
static int parse_target(const char *text, struct host_url *out, struct err *err)
{
    struct err why = { 0 };
    int rc;

    if (strstr(text, "://")) {
        rc = host_url_parse(str_of(text), out, &why);
    } else {
        out->tls = true;
        out->path = STR("/");
        rc = host_port_parse(str_of(text), 443, &out->host, &out->port, &why);
    }
    return rc < 0 ? err_field(err, "url", "%s", why.msg) : 0;
}

static int explain_get(struct call *call, struct err *err)
{
    const char *url = call_query(call, "url"), *method = call_query(call, "method");
    struct policy_answer answer;
    struct host_url target = { 0 };
    char reason[POLICY_TEXT_SIZE];
    struct box *box;

    if (boxes_find_prefix(call->api->boxes, call_reach(call), call_param(call, "id"), &box, err) <
        0)
        return -1;
    if (!url)
        return err_field(err, "url", "says what it would like to reach");
    if (parse_target(url, &target, err) < 0)
        return -1;
    const struct policy *policy = gate_policy(call->api->gate, box, NULL);
    struct policy_question question = { .host = &target.host,
                                        .port = target.port,
                                        .view = POLICY_PEEK,
                                        .method = rule_method(str_of(method ? method : "GET")),
                                        .path = target.path };
    policy_decide(policy, &question, &answer);
    question.view = !target.tls || answer.intercept ? POLICY_REQUEST : POLICY_OPAQUE;
    policy_decide(policy, &question, &answer);
    policy_say(&answer, reason);
    struct explain_view view = {
        .host = target.host.text,
        .port = target.port,
        .verdict = policy_verdict_name(answer.verdict),
        .why = policy_why_name(answer.why),
        .reason = reason,
        .rule = answer.has_rule ? text_of(call, answer.rule) : NULL,
        .level = answer.has_rule ? policy_level_name(answer.level) : NULL,
        .pack = answer.has_rule ? text_of(call, answer.pack) : NULL,
        .mode = policy_mode_name(policy->mode),
        .seen = question.view == POLICY_REQUEST,
        .intercept = answer.intercept,
    };
    return call_reply(call, &view);
}

/* ---- its own layer ---- */

static const struct field own_layer_fields[] = {
    FIELD(layer_view, level, F_ENUM, F_READONLY, .choices = "node|tenant|project|sandbox",
          .help = "Whom the layer is for that was changed"),
    FIELD(layer_view, name, F_STRING, F_READONLY, .help = "Its name; null for the node"),
    FIELD(layer_view, policy, F_OBJECT, F_READONLY, .of = sandbox_egress_fields,
          .of_size = sizeof(struct egress_spec), .help = "What it says"),
    FIELD(layer_view, by, F_STRING, F_READONLY, .help = "Who changed it last"),
    FIELD(layer_view, changed_at, F_TIME, F_READONLY, .help = "When"),
    { 0 },
};

static void own_prepare(struct box_op *op)
{
    struct call *call = call_of(op);
    struct sandbox_view sandbox;

    box_view(op->box, &sandbox);
    struct layer_view view = { .level = "sandbox",
                               .name = sandbox.id,
                               .policy = sandbox.egress,
                               .by = call->who.id,
                               .changed_at = sandbox.changed_at };
    autobuf struct buf said = { .max = EVENT_BODY_MAX / 2 };
    struct json_out json = json_to(&said);

    buf_clear(&call->reply);
    call_reply(call, &view);
    call->object = arena_printf(&call->arena, "sandbox/%s", sandbox.id);
    field_encode(sandbox_egress_fields, sandbox.egress, &json);
    if (buf_ok(&said))
        call->detail = arena_memdup0(&call->arena, said.data, said.len);
}

/* `record`: what is written with it, in place of the usual. */
static int own_submit_by(struct call *call, struct box *box, const struct layer_change *change,
                         int (*record)(struct box_op *op, struct db *db, struct err *err),
                         struct err *err)
{
    struct sandbox_patch patch = { 0 };
    struct sandbox_view sandbox;
    struct box_op *op = call_op(call);

    box_view(box, &sandbox);
    patch.egress = sandbox.egress ? egress_spec_copy(&call->arena, sandbox.egress)
                                  : arena_new(&call->arena, struct egress_spec);
    if (layer_apply(change, patch.egress, &call->arena, err) < 0 ||
        egress_spec_check(patch.egress, "", err) < 0 ||
        egress_may(call, patch.egress, "", err) < 0 ||
        egress_secrets(call, &change->spec, "", err) < 0 ||
        gate_try(call->api->gate, box, patch.egress, err) < 0)
        return -1;
    op->prepare = record ? NULL : own_prepare; /* whoever records otherwise replies otherwise */
    if (record)
        op->record = record;
    return box_patch(box, &patch, 1ull << PATCH_EGRESS, op, err);
}

static int own_submit(struct call *call, struct box *box, const struct layer_change *change,
                      struct err *err)
{
    return own_submit_by(call, box, change, NULL, err);
}

int own_rule_add(struct call *call, struct box *box, const char *rule,
                 int (*record)(struct box_op *op, struct db *db, struct err *err), struct err *err)
{
    struct layer_change change = { .how = LAYER_RULE, .rule = rule };

    return own_submit_by(call, box, &change, record, err);
}

static int own_change(struct call *call, struct err *err)
{
    struct layer_change change = { .how = call->method[1] == 'A' ? LAYER_PATCH : LAYER_PUT };
    struct box *box;

    if (call_box(call, &box, err) < 0 ||
        call_decode_patch(call, &change.spec, &change.present, err) < 0)
        return -1;
    return own_submit(call, box, &change, err);
}

/* ---- one rule ---- */

struct rule_wish {
    const char *rule, *verdict, *level;
};

static const struct field rule_wish_fields[] = {
    FIELD(rule_wish, rule, F_STRING, F_REQUIRED, .min = 1, .max = RULE_TEXT_MAX,
          .help = "As in a policy; a host from a denial will do"),
    FIELD(rule_wish, verdict, F_ENUM, 0, .choices = "allow|deny", .help = "allow unless said"),
    FIELD(rule_wish, level, F_ENUM, 0, .choices = "sandbox|project|tenant|node",
          .help = "For whom: sandbox unless said"),
    { 0 },
};

/* As it is written in one way, so that it is found again. */
static int canonical(struct call *call, const char *text, bool deny, const char **out,
                     struct err *err)
{
    autobuf struct buf rule_out = { 0 };
    struct err why = { 0 };
    struct rule rule;

    if (rule_parse(str_of(text), &rule, &why) < 0 || (!deny && rule_reachable(&rule, &why) < 0))
        return err_field(err, "rule", "%s", why.msg);
    if (deny && rule.raw)
        return err_field(err, "rule", "\"" RULE_RAW "\" belongs to rules of allow");
    rule_text(&rule, &rule_out);
    *out = arena_memdup0(&call->arena, rule_out.data, rule_out.len);
    return 0;
}

static int rule_post(struct call *call, struct err *err)
{
    struct layer_change change = { .how = LAYER_RULE };
    struct sandbox_view sandbox;
    struct rule_wish wish = { 0 };
    struct box *box;

    if (call_box(call, &box, err) < 0 || call_decode(call, &wish, err) < 0)
        return -1;
    change.deny = wish.verdict && strcmp(wish.verdict, "deny") == 0;
    if (canonical(call, wish.rule, change.deny, &change.rule, err) < 0)
        return -1;
    const char *one[] = { change.rule, NULL };
    struct egress_spec as_layer = { .allow = change.deny ? NULL : one };
    if (egress_may(call, &as_layer, "", err) < 0)
        return -1;
    if (!wish.level || strcmp(wish.level, "sandbox") == 0)
        return own_submit(call, box, &change, err);
    if (strcmp(wish.level, "node") == 0) {
        if (strcmp(call->who.tenant, TENANT_OWNER) != 0)
            return err_role(err, "the node's layer is for the tenant that owns it");
        return layer_submit(call, LEVEL_NODE, "", &change, err);
    }
    if (strcmp(wish.level, "tenant") == 0)
        return layer_submit(call, LEVEL_TENANT, "", &change, err);
    box_view(box, &sandbox);
    if (!sandbox.egress || !sandbox.egress->project)
        return err_field(err, "level", "sandbox %s belongs to no project", sandbox.id);
    return layer_submit(call, LEVEL_PROJECT, arena_strdup(&call->arena, sandbox.egress->project),
                        &change, err);
}

/* clang-format off: a table */
const struct route egress_box_routes[] = {
    { .name = "egress.sandbox.read",
      .method = "GET",
      .path = "/api/v1/sandboxes/{id}/egress",
      .on = ON_LOOP,
      .roles = ROLE_LOOK,
      .fn = effective_get,
      .gives = effective_fields,
      .summary = "What a sandbox may reach: every rule that counts and whose it is, its limits, "
                 "and what it has used." },
    { .name = "egress.sandbox.put",
      .method = "PUT",
      .path = "/api/v1/sandboxes/{id}/egress",
      .on = ON_LATER,
      .roles = ROLE_STEER,
      .fn = own_change,
      .takes = sandbox_egress_fields,
      .gives = own_layer_fields,
      .summary = "Write the sandbox's own layer anew." },
    { .name = "egress.sandbox.change",
      .method = "PATCH",
      .path = "/api/v1/sandboxes/{id}/egress",
      .on = ON_LATER,
      .roles = ROLE_STEER,
      .fn = own_change,
      .takes = sandbox_egress_fields,
      .gives = own_layer_fields,
      .summary = "Change the sandbox's own layer; what is not named stays." },
    { .name = "egress.explain",
      .method = "GET",
      .path = "/api/v1/sandboxes/{id}/egress/explain",
      .on = ON_LOOP,
      .roles = ROLE_LOOK,
      .fn = explain_get,
      .gives = explain_fields,
      .query = "url:string,method:string",
      .summary = "Would it reach this `url` (or HOST[:PORT]) with this `method` (GET), and why? "
                 "Nothing is looked up and nothing is sent." },
    { .name = "egress.rule.add",
      .method = "POST",
      .path = "/api/v1/sandboxes/{id}/egress/rules",
      .on = ON_LATER,
      .roles = ROLE_STEER,
      .fn = rule_post,
      .takes = rule_wish_fields,
      .gives = own_layer_fields,
      .summary = "Allow or deny one thing for the sandbox, or for its project, its tenant or the "
                 "node. The same rule in the opposite list of that layer is taken away." },
    { 0 },
};
/* clang-format on */
