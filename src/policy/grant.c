/* Header, token, signature, claims, hosts: each step reads only what the one before has proven. */
#include "policy/grant.h"

#include "base/hash.h"
#include "base/json.h"
#include "base/mem.h"
#include "policy/policy.h"

static int bad(struct err *err, const char *what)
{
    return err_set(err, ERR_UNAUTHENTICATED, "%s", what);
}

void grant_free(struct grant *grant)
{
    buf_free(&grant->policy);
}

/* ---- the header ---- */

static bool scheme_is(struct str *value, struct str scheme)
{
    if (value->n <= scheme.n || value->p[scheme.n] != ' ' ||
        !str_eq_nocase((struct str){ value->p, scheme.n }, scheme))
        return false;
    *value = str_trim(str_from(*value, scheme.n));
    return true;
}

/* The token of the value; it may point into `space`. */
static int find_token(struct str value, struct buf *space, struct str *out, struct err *err)
{
    static const struct str mark = STR_INIT("jwt_");

    if (scheme_is(&value, STR("Bearer"))) {
        *out = str_starts(value, mark) ? str_from(value, mark.n) : value;
        return 0;
    }
    if (!scheme_is(&value, STR("Basic")))
        return bad(err, "credentials must be Basic or Bearer");
    if (!base64_get(space, value))
        return bad(err, "the Basic credentials are not base64");
    struct str password = buf_view(space);
    str_cut(&password, ':');
    if (!str_starts(password, mark))
        return bad(err, "the password is not jwt_ and a token");
    *out = str_from(password, mark.n);
    return 0;
}

/* ---- the token ---- */

/* A part as RFC 7515 writes it: of the alphabet for URLs, without padding, in the one way. */
static bool part_get(struct buf *out, struct str part)
{
    for (size_t i = 0; i < part.n; i++)
        if (part.p[i] == '+' || part.p[i] == '/' || part.p[i] == '=')
            return false;
    return base64_get(out, part);
}

struct token {
    struct str head, body;
};

static int check_signature(struct str text, struct str key, struct token *out, struct err *err)
{
    autobuf struct buf given = { .max = SHA256_SIZE };
    unsigned char want[SHA256_SIZE];
    struct str rest = text;

    out->head = str_cut(&rest, '.');
    out->body = str_cut(&rest, '.');
    if (!part_get(&given, rest) || given.len != SHA256_SIZE)
        return bad(err, "the token is not signed as it should be");
    hmac_sha256(key, (struct str){ text.p, text.n - rest.n - 1 }, want);
    if (!secret_eq(given.data, want, SHA256_SIZE))
        return bad(err, "the token is not signed with our key");
    return 0;
}

static int part_json(struct arena *arena, struct str part, const struct json **out, struct err *err)
{
    autobuf struct buf text = { 0 };
    struct json *json;

    if (!part_get(&text, part))
        return bad(err, "the token has a part that is not base64url");
    /* Strings of the tree point into what was read. */
    struct str kept = arena_str(arena, buf_view(&text));
    if (json_parse(arena, kept, &json, NULL) < 0 || json->type != JSON_OBJECT)
        return bad(err, "the token has a part that is not a JSON object");
    *out = json;
    return 0;
}

static int check_head(const struct json *head, struct err *err)
{
    const struct json *type = json_get(head, "typ");

    if (!str_is(json_text(head, "alg"), "HS256"))
        return bad(err, "the token's algorithm is not HS256");
    if (type && !str_eq_nocase(json_text(head, "typ"), STR("JWT")))
        return bad(err, "the token's type is not JWT");
    if (json_get(head, "zip") || json_get(head, "enc"))
        return bad(err,
                   "the token's header has zip or enc, which tokens that are signed do not have");
    if (json_get(head, "crit"))
        return bad(err, "the token has extensions that must be understood");
    return 0;
}

/* ---- claims ---- */

/* Seconds; false when it is there and is no time. */
static bool time_claim(const struct json *claims, const char *name, int64_t *out)
{
    const struct json *claim = json_get(claims, name);

    if (!claim)
        return true;
    *out = claim->num;
    return claim->type == JSON_INT && claim->num >= 0;
}

static int check_times(const struct json *claims, const struct grant_terms *terms, int64_t *ends,
                       struct err *err)
{
    int64_t begins = 0, made = 0;

    *ends = -1;
    if (!time_claim(claims, "exp", ends) || !time_claim(claims, "nbf", &begins) ||
        !time_claim(claims, "iat", &made))
        return bad(err, "the token has a time that is not a number of seconds");
    if (*ends < 0)
        return bad(err, "the token has no end (exp)");
    if (*ends <= terms->now_s)
        return bad(err, "the token has expired");
    if (*ends - terms->now_s > terms->life_s)
        return bad(err, "the token is good for longer than is allowed here");
    if (begins - GRANT_SKEW_S > terms->now_s || made - GRANT_SKEW_S > terms->now_s)
        return bad(err, "the token is not valid yet");
    return 0;
}

/* It is for logs and records: printable, of bounded length. */
static bool id_claim(const struct json *claims, const char *name, char out[GRANT_ID_MAX + 1])
{
    struct str text = json_text(claims, name);

    if (text.n > GRANT_ID_MAX)
        return false;
    for (size_t i = 0; i < text.n; i++)
        if ((unsigned char)text.p[i] < ' ' || text.p[i] == 0x7f)
            return false;
    if (text.n)
        memcpy(out, text.p, text.n);
    out[text.n] = 0;
    return true;
}

static int check_names(const struct json *claims, struct grant *out, struct err *err)
{
    const struct json *tenant = json_get(claims, "tenant_id");

    if (!str_is(json_text(claims, "iss"), GRANT_ISSUER))
        return bad(err, "the token is not of the issuer " GRANT_ISSUER);
    if (json_get(claims, "aud"))
        return bad(err, "the token is for somebody else (aud)");
    if (!id_claim(claims, "session_id", out->session) || !out->session[0])
        return bad(err, "the token names no session");
    if ((tenant && tenant->type != JSON_NULL && tenant->type != JSON_STRING) ||
        !id_claim(claims, "tenant_id", out->tenant))
        return bad(err, "the token's tenant_id is no name");
    return 0;
}

/* ---- hosts ---- */

struct hosts {
    struct arena *arena;
    const char *rules[EGRESS_RULES_MAX + 1];
    size_t count;
};

struct str grant_host(struct str item)
{
    struct rule rule;

    item = str_trim(item);
    if (str_starts(item, STR(".")))
        return STR_NONE;
    if (str_starts(item, STR("*.")))
        item = str_from(item, 1);
    if (rule_parse(item, &rule, NULL) < 0 || (rule.kind != RULE_HOST && rule.kind != RULE_TREE) ||
        rule.methods || rule.path.n || rule.ports == RULE_PORTS_ANY)
        return STR_NONE;
    return item;
}

static int put_host(struct hosts *hosts, struct str item, struct err *err)
{
    item = grant_host(item);
    if (!item.n)
        return 0;
    if (hosts->count == EGRESS_RULES_MAX)
        return err_set(err, ERR_LIMIT, "a token allows at most %d hosts", EGRESS_RULES_MAX);
    hosts->rules[hosts->count++] = arena_memdup0(hosts->arena, item.p, item.n);
    return 0;
}

static int put_text(struct hosts *hosts, struct str text, struct err *err)
{
    while (text.n)
        if (put_host(hosts, str_cut(&text, ','), err) < 0)
            return -1;
    return 0;
}

static int put_claim(struct hosts *hosts, const struct json *claim, struct err *err)
{
    if (claim && claim->type == JSON_STRING)
        return put_text(hosts, claim->text, err);
    if (!claim || claim->type != JSON_ARRAY)
        return bad(err, "the token's allowed_hosts is neither a text nor a list");
    json_each(item, claim)
    {
        if (item->type != JSON_STRING)
            return bad(err, "the token's allowed_hosts holds what is no text");
        if (put_host(hosts, item->text, err) < 0)
            return -1;
    }
    return 0;
}

static int compile(struct arena *arena, const struct json *claims, struct buf *out, struct err *err)
{
    struct policy_layer layers[LEVELS] = { 0 };
    struct hosts *hosts = arena_new(arena, struct hosts);

    hosts->arena = arena;
    if (put_claim(hosts, json_get(claims, "allowed_hosts"), err) < 0)
        return -1;
    layers[LEVEL_SANDBOX] = (struct policy_layer){
        .present = true,
        .mode = POLICY_MODE_DENY,
        .allow = hosts->rules,
    };
    return policy_compile(layers, 1, out, err);
}

static int read_claims(struct arena *arena, const struct token *token,
                       const struct grant_terms *terms, struct grant *out, struct err *err)
{
    const struct json *head, *claims;

    if (part_json(arena, token->head, &head, err) < 0 || check_head(head, err) < 0 ||
        part_json(arena, token->body, &claims, err) < 0 ||
        check_times(claims, terms, &out->ends_s, err) < 0 || check_names(claims, out, err) < 0)
        return -1;
    return compile(arena, claims, &out->policy, err);
}

int grant_read(struct str credentials, const struct grant_terms *terms, struct grant *out,
               struct err *err)
{
    autobuf struct buf space = { 0 };
    autoarena struct arena arena = { 0 };
    struct token token = { 0 };
    struct str text = STR_NONE;

    if (credentials.n > GRANT_BYTES_MAX)
        return err_set(err, ERR_LIMIT, "credentials have at most %d bytes", GRANT_BYTES_MAX);
    if (find_token(credentials, &space, &text, err) < 0 ||
        check_signature(text, terms->key, &token, err) < 0)
        return -1;
    struct grant grant = { 0 };
    if (read_claims(&arena, &token, terms, &grant, err) < 0) {
        grant_free(&grant);
        return -1;
    }
    *out = grant;
    return 0;
}
