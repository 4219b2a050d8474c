/* The tables of a layer of egress policy, and what no table can check: each rule is read once. */
#include "model/egress.h"

#include <stdio.h>

#include "base/limits.h"
#include "base/show.h"
#include "policy/pack.h"

#define COMMON(struct_)                                                                            \
    [EGRESS_MODE] =                                                                                \
        FIELD(struct_, mode, F_ENUM, 0, .choices = "deny|ask|open",                                \
              .help = "What happens to a host that no rule allows: refused, asked about, or "      \
                      "allowed. Unsaid: as the layer outside says, deny in the end"),              \
    [EGRESS_ALLOW] =                                                                               \
        FIELD(struct_, allow, F_STRINGS, 0, .max = EGRESS_RULES_MAX, .each_max = RULE_TEXT_MAX,    \
              .help = "Rules: HOST, *.SUFFIX, .SUFFIX, an address or a network, each with :PORT "  \
                      "or :*; then METHODS and a PATH"),                                           \
    [EGRESS_DENY] = FIELD(struct_, deny, F_STRINGS, 0, .max = EGRESS_RULES_MAX,                    \
                          .each_max = RULE_TEXT_MAX, .help = "Rules that win over every allow"),   \
    [EGRESS_PACKS] = FIELD(struct_, packs, F_STRINGS, 0, .max = EGRESS_PACKS_MAX,                  \
                           .each_max = PACK_NAME_MAX, .help = "Named lists of allow rules"),       \
    [EGRESS_INTERCEPT] = FIELD(                                                                    \
        struct_, intercept, F_STRINGS, 0, .max = EGRESS_RULES_MAX, .each_max = RULE_TEXT_MAX,      \
        .help = "Hosts whose TLS is opened, so that requests can be judged"),                      \
    [EGRESS_UNCHECKED] = FIELD(                                                                    \
        struct_, unchecked, F_STRINGS, 0, .max = EGRESS_RULES_MAX, .each_max = RULE_TEXT_MAX,      \
        .help = "Hosts to which any bytes may be sent; port 443 unless said"),                     \
    [EGRESS_INJECT_FIELD] =                                                                        \
        FIELD(struct_, inject, F_STRINGS, 0, .max = INJECT_RULES_MAX, .each_max = INJECT_TEXT_MAX, \
              .help = "Credentials: \"HOST => HEADER: VALUE\" sets a header, in which "            \
                      "{secret:NAME} or {basic:USER:NAME} stands for a secret; "                   \
                      "\"HOST => {secret:NAME}\" replaces its placeholder. TLS to such a host is " \
                      "opened. Not in the node's layer"),                                          \
    [EGRESS_SECRETS] = FIELD(                                                                      \
        struct_, secrets, F_STRINGS, 0, .max = INJECT_SECRETS_MAX, .each_max = INJECT_WISH_MAX,    \
        .help = "NAME or VARIABLE=NAME: the variable holds the secret's placeholder, which "       \
                "is replaced in requests to the secret's own hosts. Not in the node's "            \
                "layer"),                                                                          \
    [EGRESS_MAX_BYTES] = FIELD(struct_, max_bytes, F_INT, 0, .min = 0, .max = 1ll << 50,           \
                               .help = "Both ways together, of one sandbox; 0 for no limit"),      \
    [EGRESS_MAX_CONNECTIONS] =                                                                     \
        FIELD(struct_, max_connections, F_INT, 0, .min = 0, .max = 65536,                          \
              .help = "Open at once, of one sandbox; 0 for no limit of its own"),                  \
    [EGRESS_ASK_SECONDS] =                                                                         \
        FIELD(struct_, ask_s, F_INT, 0, .min = 0, .max = EGRESS_ASK_MAX_S,                         \
              .help = "How long a connection waits for an answer in mode ask; 0 for 60"),          \
    [EGRESS_VERSION_FIELD] =                                                                       \
        FIELD(struct_, version, F_INT, 0, .min = 0, .max = INT64_MAX,                              \
              .help = "One more with each change. In a request: the version that is to be "        \
                      "changed; 0 or nothing for whichever it is")

const struct field egress_fields[] = {
    COMMON(egress_spec),
    [EGRESS_LAST] = FIELD(egress_spec, locked, F_BOOL, 0,
                          .help = "Layers inside this one can only deny: their allows, packs and "
                                  "modes do not count"),
    { 0 },
};

const struct field sandbox_egress_fields[] = {
    COMMON(egress_spec),
    [EGRESS_LAST] = FIELD(egress_spec, project, F_STRING, 0, .min = 1, .max = PROJECT_NAME_MAX,
                          .help = "The project whose layer counts for it"),
    [EGRESS_AGENT] = FIELD(egress_spec, agent, F_STRING, 0, .max = TOKEN_NAME_MAX,
                           .help = "The agent of the hub that its programs are, at "
                                   "http://atoll.internal/hub/; empty: none"),
    { 0 },
};

static int bad_item(struct err *err, const char *prefix, const char *list, size_t at)
{
    char msg[ERR_MSG_SIZE];
    char field[ERR_FIELD_SIZE];

    snprintf(msg, sizeof(msg), "%s", err->msg);
    snprintf(field, sizeof(field), "%s%s[%zu]", prefix, list, at);
    return err_field(err, field, "%s", msg);
}

static int check_rules(const char **texts, bool marks, const char *prefix, const char *list,
                       struct err *err)
{
    struct rule rule;

    for (size_t i = 0; texts && texts[i]; i++) {
        int rc = rule_parse(str_of(texts[i]), &rule, err);

        if (rc == 0 && strcmp(list, "allow") == 0)
            rc = rule_reachable(&rule, err);
        else if (rc == 0 && rule.raw)
            rc = err_set(err, ERR_INVALID, "\"" RULE_RAW "\" belongs to rules of allow");
        if (rc == 0 && marks && (rule.kind == RULE_ADDR || rule.methods || rule.path.n))
            rc = err_set(err, ERR_INVALID, "here a rule is a name, and perhaps a port");
        if (rc < 0)
            return bad_item(err, prefix, list, i);
    }
    return 0;
}

/* As the hub takes names; whether there is such an agent is seen when it acts. */
static bool agent_ok(struct str name)
{
    static const char *const nobody[] = { ".", "..", "human", "register" };
    uint32_t code;

    for (size_t i = 0; i < ARRAY_LEN(nobody); i++)
        if (str_is(name, nobody[i]))
            return false;
    if (name.p[0] == ' ' || name.p[name.n - 1] == ' ')
        return false;
    while (name.n) {
        size_t len = str_utf8_at(name.p, name.n, &code);

        if (!len || show_hidden(code) || code == '/' || code == '\\')
            return false;
        name = str_from(name, len);
    }
    return true;
}

static int check_names(const struct egress_spec *spec, const char *prefix, struct err *err)
{
    char field[ERR_FIELD_SIZE];

    for (size_t i = 0; spec->packs && spec->packs[i]; i++)
        if (!pack_name_ok(str_of(spec->packs[i]))) {
            err_set(err, ERR_INVALID, "not a name of a pack");
            return bad_item(err, prefix, "packs", i);
        }
    if (spec->project && !pack_name_ok(str_of(spec->project))) {
        snprintf(field, sizeof(field), "%sproject", prefix);
        return err_field(err, field,
                         "lower-case letters, digits and hyphens, beginning with a letter");
    }
    if (spec->agent && spec->agent[0] && !agent_ok(str_of(spec->agent))) {
        snprintf(field, sizeof(field), "%sagent", prefix);
        return err_field(err, field, "not a name of an agent: no slashes, nothing invisible");
    }
    return 0;
}

static int check_credentials(const struct egress_spec *spec, const char *prefix, struct err *err)
{
    struct inject_rule rule;
    struct str variable, name;

    for (size_t i = 0; spec->inject && spec->inject[i]; i++)
        if (inject_rule_parse(str_of(spec->inject[i]), &rule, err) < 0)
            return bad_item(err, prefix, "inject", i);
    for (size_t i = 0; spec->secrets && spec->secrets[i]; i++)
        if (inject_wish_parse(str_of(spec->secrets[i]), &variable, &name, err) < 0)
            return bad_item(err, prefix, "secrets", i);
    return 0;
}

int egress_spec_check(const struct egress_spec *spec, const char *prefix, struct err *err)
{
    if (check_rules(spec->allow, false, prefix, "allow", err) < 0 ||
        check_rules(spec->deny, false, prefix, "deny", err) < 0 ||
        check_rules(spec->intercept, true, prefix, "intercept", err) < 0 ||
        check_rules(spec->unchecked, true, prefix, "unchecked", err) < 0 ||
        check_credentials(spec, prefix, err) < 0)
        return -1;
    return check_names(spec, prefix, err);
}

void egress_spec_merge(struct egress_spec *spec, const struct egress_spec *patch, uint64_t present)
{
#define TAKE(bit, member)                                                                          \
    if (present >> (bit)&1)                                                                        \
    spec->member = patch->member
    TAKE(EGRESS_MODE, mode);
    TAKE(EGRESS_ALLOW, allow);
    TAKE(EGRESS_DENY, deny);
    TAKE(EGRESS_PACKS, packs);
    TAKE(EGRESS_INTERCEPT, intercept);
    TAKE(EGRESS_UNCHECKED, unchecked);
    TAKE(EGRESS_INJECT_FIELD, inject);
    TAKE(EGRESS_SECRETS, secrets);
    TAKE(EGRESS_MAX_BYTES, max_bytes);
    TAKE(EGRESS_MAX_CONNECTIONS, max_connections);
    TAKE(EGRESS_ASK_SECONDS, ask_s);
    TAKE(EGRESS_LAST, locked);
    TAKE(EGRESS_LAST, project);
    TAKE(EGRESS_AGENT, agent);
#undef TAKE
}

static const char **texts_copy(struct arena *arena, const char **from)
{
    size_t count = 0;

    if (!from)
        return NULL;
    while (from[count])
        count++;
    const char **to = arena_alloc(arena, (count + 1) * sizeof(*to));
    for (size_t i = 0; i < count; i++)
        to[i] = arena_strdup(arena, from[i]);
    return to;
}

struct egress_spec *egress_spec_copy(struct arena *arena, const struct egress_spec *from)
{
    struct egress_spec *to = arena_new(arena, struct egress_spec);

    *to = *from;
    to->mode = from->mode ? arena_strdup(arena, from->mode) : NULL;
    to->project = from->project ? arena_strdup(arena, from->project) : NULL;
    to->agent = from->agent ? arena_strdup(arena, from->agent) : NULL;
    to->allow = texts_copy(arena, from->allow);
    to->deny = texts_copy(arena, from->deny);
    to->packs = texts_copy(arena, from->packs);
    to->intercept = texts_copy(arena, from->intercept);
    to->unchecked = texts_copy(arena, from->unchecked);
    to->inject = texts_copy(arena, from->inject);
    to->secrets = texts_copy(arena, from->secrets);
    return to;
}

static bool some(const char **texts)
{
    return texts && texts[0];
}

bool egress_spec_narrows(const struct egress_spec *spec)
{
    return (!spec->mode || strcmp(spec->mode, "deny") == 0) && !some(spec->allow) &&
           !some(spec->packs) && !some(spec->intercept) && !some(spec->unchecked) &&
           !some(spec->inject) && !some(spec->secrets) && !spec->project &&
           (!spec->agent || !spec->agent[0]);
}

struct egress_spec *egress_spec_narrowed(struct arena *arena, const struct egress_spec *from)
{
    struct egress_spec taken = { .mode =
                                     from->mode && strcmp(from->mode, "deny") == 0 ? "deny" : NULL,
                                 .deny = from->deny,
                                 .max_bytes = from->max_bytes,
                                 .max_connections = from->max_connections,
                                 .version = 1 };

    return egress_spec_copy(arena, &taken);
}

bool egress_spec_has_addr(const struct egress_spec *spec)
{
    struct rule rule;

    for (size_t i = 0; spec->allow && spec->allow[i]; i++)
        if (rule_parse(str_of(spec->allow[i]), &rule, NULL) == 0 && rule.kind == RULE_ADDR)
            return true;
    return false;
}
