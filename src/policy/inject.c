/*
 * The bytes: a head, then secrets, then rules, each a row of texts with their lengths before them
 * (two bytes, in the order of the machine: both ends are one program). The reader checks every rule
 * again as the writer did, so there is one idea of what a rule is.
 */
#include "policy/inject.h"

#include <assert.h>

#include "base/limits.h"

#define MAGIC 0x4a4e4941u /* "AINJ" */
#define FORMAT 1
#define SEALED_MAX (INJECT_VALUE_MAX + 64)

static_assert(INJECT_NAME_MAX == SECRET_NAME_MAX, "names are those of the vault");

struct head {
    uint32_t magic;
    uint16_t format, secrets, rules, zero;
};
static_assert(sizeof(struct head) == 12, "no holes");

/* ---- words ---- */

static const char hex[] = "0123456789abcdef";
static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
static const char token_marks[] = "!#$%&'*+-.^_`|~";

static bool made_of(struct str text, const char *some, const char *more)
{
    for (size_t i = 0; i < text.n; i++)
        if (!text.p[i] || (!strchr(some, text.p[i]) && !strchr(more, text.p[i])))
            return false;
    return text.n > 0;
}

/* Visible ASCII, and spaces inside. */
static bool line_ok(struct str text)
{
    for (size_t i = 0; i < text.n; i++)
        if (text.p[i] < ' ' || text.p[i] > '~')
            return false;
    return text.n && text.p[0] != ' ' && text.p[text.n - 1] != ' ';
}

static bool name_ok(struct str name)
{
    return name.n <= INJECT_NAME_MAX && made_of(name, letters, "_.-") && name.p[0] != '.' &&
           name.p[0] != '-';
}

bool inject_placeholder_ok(struct str text)
{
    static const struct str prefix = STR_INIT(INJECT_PLACEHOLDER_PREFIX);

    return text.n == INJECT_PLACEHOLDER_LEN && str_starts(text, prefix) &&
           made_of(str_from(text, prefix.n), hex, "");
}

int inject_value_check(struct str value, struct err *err)
{
    if (value.n < INJECT_VALUE_MIN || value.n > INJECT_VALUE_MAX)
        return err_set(err, ERR_INVALID, "a value for requests has %d to %d bytes",
                       INJECT_VALUE_MIN, INJECT_VALUE_MAX);
    if (!line_ok(value))
        return err_set(err, ERR_INVALID,
                       "a value for requests is one line of visible ASCII, without spaces at its "
                       "ends");
    return 0;
}

/* ---- templates ---- */

/* What is between the braces. */
static bool reference(struct str inside, struct inject_piece *out)
{
    struct str kind = str_cut(&inside, ':');

    if (str_is(kind, "secret")) {
        *out = (struct inject_piece){ .kind = INJECT_SECRET, .name = inside };
        return name_ok(inside);
    }
    if (!str_is(kind, "basic"))
        return false;
    struct str user = str_cut(&inside, ':');
    *out = (struct inject_piece){ .kind = INJECT_BASIC, .text = user, .name = inside };
    return made_of(user, letters, "_.-@+") && name_ok(inside);
}

int inject_next(struct str *rest, struct inject_piece *out)
{
    if (!rest->n)
        return 0;
    if (rest->p[0] == '}')
        return -1;
    if (rest->p[0] == '{') {
        const char *end = memchr(rest->p, '}', rest->n);
        size_t len = end ? (size_t)(end - rest->p) : 0;

        if (!end || !reference((struct str){ rest->p + 1, len - 1 }, out))
            return -1;
        *rest = str_from(*rest, len + 1);
        return 1;
    }
    size_t len = 0;
    while (len < rest->n && rest->p[len] != '{' && rest->p[len] != '}')
        len++;
    *out = (struct inject_piece){ .kind = INJECT_TEXT, .text = { rest->p, len } };
    *rest = str_from(*rest, len);
    return 1;
}

static int template_check(struct str value, bool alone, struct err *err)
{
    struct inject_piece piece;
    struct str rest = value;
    int secrets = 0, pieces = 0, rc;

    if (value.n > INJECT_TEMPLATE_MAX || !line_ok(value))
        return err_set(err, ERR_INVALID, "value: one line of at most %d visible ASCII characters",
                       INJECT_TEMPLATE_MAX);
    for (; (rc = inject_next(&rest, &piece)) > 0; pieces++)
        secrets += piece.kind != INJECT_TEXT;
    if (rc < 0)
        return err_set(err, ERR_INVALID,
                       "value: braces hold {secret:NAME} or {basic:USER:NAME}, and nothing else");
    if (secrets != 1)
        return err_set(err, ERR_INVALID, "value: it names one secret");
    if (alone && (pieces != 1 || piece.kind != INJECT_SECRET))
        return err_set(err, ERR_INVALID,
                       "value: without a header it is {secret:NAME} and nothing else");
    return 0;
}

/* ---- rules ---- */

/* Those that say how a message is framed and where it goes are the proxy's own. */
static int header_check(struct str header, struct err *err)
{
    static const char *const own[] = {
        "host",       "content-length",   "transfer-encoding",
        "connection", "keep-alive",       "te",
        "trailer",    "upgrade",          "expect",
        "via",        "content-encoding",
    };

    if (header.n > INJECT_HEADER_MAX || !made_of(header, letters, token_marks))
        return err_set(err, ERR_INVALID, "header: at most %d letters, digits and hyphens",
                       INJECT_HEADER_MAX);
    for (size_t i = 0; i < ARRAY_LEN(own); i++)
        if (str_eq_nocase(header, str_of(own[i])))
            return err_set(err, ERR_INVALID, "header: %s is not for a rule to set", own[i]);
    if (header.n >= 6 && str_eq_nocase((struct str){ header.p, 6 }, STR("proxy-")))
        return err_set(err, ERR_INVALID, "header: those of proxies are not for a rule to set");
    return 0;
}

int inject_host_check(struct str host, struct err *err)
{
    struct rule match;

    if (rule_parse(host, &match, err) < 0)
        return -1;
    if (match.kind == RULE_ADDR)
        return err_set(err, ERR_INVALID, "a credential is for a name, not for an address");
    if (match.raw)
        return err_set(err, ERR_INVALID, "a credential is for requests, not for raw bytes");
    return 0;
}

/* tenant NUL name NUL host, and for each further one a newline and the host. */
int inject_context(struct buf *out, const char *tenant, const char *name, const char *const *hosts,
                   struct err *err)
{
    size_t count = 0;

    buf_append(out, tenant, strlen(tenant) + 1);
    buf_append(out, name, strlen(name) + 1);
    for (; hosts && hosts[count]; count++) {
        if (inject_host_check(str_of(hosts[count]), err) < 0)
            return -1;
        buf_puts(out, count ? "\n" : "");
        buf_puts(out, hosts[count]);
    }
    if (!count || count > INJECT_HOSTS_MAX || out->len > INJECT_CONTEXT_MAX)
        return err_set(err, ERR_INVALID, "a secret for requests has 1 to %d hosts",
                       INJECT_HOSTS_MAX);
    return 0;
}

int inject_hosts(struct str context, struct rule out[INJECT_HOSTS_MAX])
{
    int count = 0;

    if (context.n > INJECT_CONTEXT_MAX || !str_cut(&context, 0).n || !str_cut(&context, 0).n)
        return -1;
    for (; context.n; count++) {
        struct str host = str_cut(&context, '\n');

        if (count == INJECT_HOSTS_MAX || inject_host_check(host, NULL) < 0 ||
            rule_parse(host, &out[count], NULL) < 0)
            return -1;
    }
    return count ? count : -1;
}

int inject_rule_check(const struct inject_rule *rule, struct err *err)
{
    if (inject_host_check(rule->match, err) < 0)
        return err_wrap(err, "match");
    if (rule->header.n && header_check(rule->header, err) < 0)
        return -1;
    return template_check(rule->value, !rule->header.n, err);
}

int inject_rule_parse(struct str text, struct inject_rule *out, struct err *err)
{
    static const struct str arrow = STR_INIT(" => ");
    const char *at = text.n ? memmem(text.p, text.n, arrow.p, arrow.n) : NULL;

    if (text.n > INJECT_TEXT_MAX || !at)
        return err_set(err, ERR_INVALID,
                       "write \"HOST => HEADER: VALUE\" or \"HOST => {secret:NAME}\", in %d bytes",
                       INJECT_TEXT_MAX);
    size_t len = (size_t)(at - text.p);
    struct inject_rule rule = { .match = { text.p, len }, .value = str_from(text, len + arrow.n) };
    if (rule.value.n && rule.value.p[0] != '{') {
        rule.header = str_cut(&rule.value, ':');
        rule.value = str_trim(rule.value);
        if (!rule.header.n) /* it would mean the placeholder */
            return err_set(err, ERR_INVALID, "header: it has no name");
    }
    if (inject_rule_check(&rule, err) < 0)
        return -1;
    *out = rule;
    return 0;
}

int inject_wish_parse(struct str text, struct str *variable, struct str *name, struct err *err)
{
    bool said = text.n && memchr(text.p, '=', text.n);
    struct str rest = text, one = said ? str_cut(&rest, '=') : text;

    if (text.n > INJECT_WISH_MAX || !made_of(one, letters, "_") ||
        (one.p[0] >= '0' && one.p[0] <= '9') || !name_ok(rest))
        return err_set(err, ERR_INVALID,
                       "write NAME, or VARIABLE=NAME where the name is none of a variable");
    *variable = one;
    *name = rest;
    return 0;
}

struct str inject_opened(struct str match)
{
    struct rule rule;

    if (inject_host_check(match, NULL) < 0 || rule_parse(match, &rule, NULL) < 0 ||
        !(rule.ports == RULE_PORTS_UNSAID || (rule.ports == RULE_PORTS_ONE && rule.port == 443)))
        return STR_NONE;
    return str_cut(&match, ' ');
}

bool inject_meets(const struct rule *match, const struct inject_question *q)
{
    struct str host = host_str(q->host), name = host_str(&match->host);
    bool beneath = host.n > name.n && host.p[host.n - name.n - 1] == '.' &&
                   memcmp(host.p + host.n - name.n, name.p, name.n) == 0;

    if (q->host->kind != HOST_NAME || match->kind == RULE_ADDR)
        return false;
    if (!(match->kind != RULE_HOST && beneath) &&
        !(match->kind != RULE_SUFFIX && str_eq(host, name)))
        return false;
    if (match->ports == RULE_PORTS_ONE
            ? q->port != match->port
            : !q->tls || (match->ports == RULE_PORTS_UNSAID && q->port != 443))
        return false;
    if (match->methods && !(match->methods & q->method))
        return false;
    return !match->path.n || rule_path_match(match->path, q->path) == RULE_PATH_IN;
}

/* ---- compiled ---- */

static void put(struct buf *out, struct str text)
{
    uint16_t len = (uint16_t)text.n;

    buf_append(out, &len, sizeof(len));
    buf_str(out, text);
}

static bool take(struct str *rest, struct str *out, size_t max)
{
    uint16_t len;

    if (rest->n < sizeof(len))
        return false;
    memcpy(&len, rest->p, sizeof(len));
    *rest = str_from(*rest, sizeof(len));
    if (len > rest->n || len > max)
        return false;
    *out = (struct str){ rest->p, len };
    *rest = str_from(*rest, len);
    return true;
}

static bool secret_ok(const struct inject_secret *secret)
{
    struct rule hosts[INJECT_HOSTS_MAX];

    return name_ok(secret->name) && inject_hosts(secret->context, hosts) > 0 &&
           inject_placeholder_ok(secret->placeholder) && secret->sealed.n &&
           secret->sealed.n <= SEALED_MAX;
}

/* All rules name one. */
struct str inject_named(const struct inject_rule *rule)
{
    struct inject_piece piece = { 0 };
    struct str rest = rule->value;

    while (inject_next(&rest, &piece) > 0 && piece.kind == INJECT_TEXT)
        ;
    return piece.name;
}

static int names_check(const struct inject_rule *rule, const struct inject_secret *secrets,
                       size_t count, struct err *err)
{
    struct str name = inject_named(rule);

    for (size_t i = 0; i < count; i++)
        if (str_eq(secrets[i].name, name))
            return 0;
    return err_set(err, ERR_INVALID, "there is no secret \"%.*s\" for requests", STR_FMT(name));
}

int inject_compile(const struct inject_rule *rules, size_t rule_count,
                   const struct inject_secret *secrets, size_t secret_count, struct buf *out,
                   struct err *err)
{
    struct head head = { MAGIC, FORMAT, (uint16_t)secret_count, (uint16_t)rule_count, 0 };
    size_t start = out->len;

    if (rule_count > INJECT_RULES_MAX || secret_count > INJECT_SECRETS_MAX)
        return err_set(err, ERR_LIMIT, "a sandbox has at most %d such rules, of %d secrets",
                       INJECT_RULES_MAX, INJECT_SECRETS_MAX);
    buf_append(out, &head, sizeof(head));
    for (size_t i = 0; i < secret_count; i++) {
        if (!secret_ok(&secrets[i]))
            return err_set(err, ERR_INVALID, "a secret that is none");
        put(out, secrets[i].name);
        put(out, secrets[i].context);
        put(out, secrets[i].placeholder);
        put(out, secrets[i].sealed);
    }
    for (size_t i = 0; i < rule_count; i++) {
        if (inject_rule_check(&rules[i], err) < 0 ||
            names_check(&rules[i], secrets, secret_count, err) < 0)
            return -1;
        put(out, rules[i].match);
        put(out, rules[i].header);
        put(out, rules[i].value);
    }
    if (!buf_ok(out) || out->len - start > INJECT_BYTES_MAX)
        return err_set(err, ERR_LIMIT, "credentials of one sandbox take more than %d bytes",
                       INJECT_BYTES_MAX);
    return 0;
}

static bool take_secret(struct str *rest, struct inject_secret *out)
{
    return take(rest, &out->name, INJECT_NAME_MAX) &&
           take(rest, &out->context, INJECT_CONTEXT_MAX) &&
           take(rest, &out->placeholder, INJECT_PLACEHOLDER_LEN) &&
           take(rest, &out->sealed, SEALED_MAX) && secret_ok(out);
}

static bool take_rule(struct str *rest, struct inject_rule *out)
{
    return take(rest, &out->match, RULE_TEXT_MAX) && take(rest, &out->header, INJECT_HEADER_MAX) &&
           take(rest, &out->value, INJECT_TEMPLATE_MAX) && inject_rule_check(out, NULL) == 0;
}

int inject_parse(struct str bytes, struct inject_set *out, struct err *err)
{
    struct head head = { 0 };
    struct str rest = str_from(bytes, sizeof(head));

    if (bytes.n >= sizeof(head))
        memcpy(&head, bytes.p, sizeof(head));
    bool good = bytes.n <= INJECT_BYTES_MAX && head.magic == MAGIC && head.format == FORMAT &&
                !head.zero && head.secrets <= INJECT_SECRETS_MAX && head.rules <= INJECT_RULES_MAX;
    *out = (struct inject_set){ 0 };
    while (good && out->secret_count < head.secrets)
        good = take_secret(&rest, &out->secrets[out->secret_count++]);
    while (good && out->rule_count < head.rules) {
        struct inject_rule *rule = &out->rules[out->rule_count++];

        good =
            take_rule(&rest, rule) && names_check(rule, out->secrets, out->secret_count, NULL) == 0;
    }
    if (good && !rest.n)
        return 0;
    *out = (struct inject_set){ 0 };
    return err_set(err, ERR_INVALID, "credentials that are no such bytes");
}
