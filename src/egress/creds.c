/*
 * Needles are what must not be seen: the secrets and, of "Basic" credentials, the base64 that was
 * sent. They are few (one for each secret and each rule) and looked for by memmem one after the
 * other, the longest first: one may stand inside another, and what is left of a needle after a
 * shorter one was overwritten in it would be found by nobody.
 *
 * Buffers that hold a value are overwritten when they are freed.
 */
#include "egress/creds.h"

#include <assert.h>
#include <stdlib.h>

#include "base/hash.h"
#include "base/mem.h"

struct line {
    struct rule match;
    struct str header; /* borrowed from `bytes` */
    size_t secret;     /* its index */
    struct buf value;  /* what the header becomes; of a rule without one: empty */
};

struct value {
    struct buf text;
    struct str placeholder; /* borrowed from `bytes` */
    struct rule *hosts;     /* owned: where it may go, whatever a rule says */
    int host_count;
};

struct creds {
    unsigned refs;    /* besides the first */
    struct buf bytes; /* as they came; no secret can be read in them */
    size_t line_count, value_count, needle_count;
    struct line lines[INJECT_RULES_MAX];
    struct value values[INJECT_SECRETS_MAX];
    struct str needles[INJECT_RULES_MAX + INJECT_SECRETS_MAX]; /* borrowed from the others */
};
static_assert(INJECT_RULES_MAX <= 64, "a plan has a bit for each");

static void overwrite(struct buf *buf)
{
    if (buf->data)
        explicit_bzero(buf->data, buf->cap);
    buf_free(buf);
}

struct creds *creds_ref(struct creds *creds)
{
    if (creds)
        creds->refs++;
    return creds;
}

void creds_free(struct creds *creds)
{
    if (!creds || creds->refs-- > 0)
        return;
    for (size_t i = 0; i < creds->line_count; i++)
        overwrite(&creds->lines[i].value);
    for (size_t i = 0; i < creds->value_count; i++) {
        overwrite(&creds->values[i].text);
        free(creds->values[i].hosts);
    }
    buf_free(&creds->bytes);
    free(creds);
}

/* ---- making ---- */

/* Room first: a buffer that grows leaves copies behind. */
static int open_value(struct creds *creds, const struct seal_private *key,
                      const struct inject_secret *secret, struct err *err)
{
    struct value *value = &creds->values[creds->value_count++];
    struct rule hosts[INJECT_HOSTS_MAX];

    buf_reserve(&value->text, INJECT_VALUE_MAX + 1);
    value->placeholder = secret->placeholder;
    value->host_count = inject_hosts(secret->context, hosts); /* which the seal vouches for */
    if (value->host_count < 0 ||
        unseal_mine(key, secret->context, secret->sealed, &value->text, err) < 0 ||
        inject_value_check(buf_view(&value->text), err) < 0)
        return err_wrap(err, "secret %.*s", STR_FMT(secret->name));
    value->hosts = xmalloc((size_t)value->host_count * sizeof(*hosts));
    memcpy(value->hosts, hosts, (size_t)value->host_count * sizeof(*hosts));
    creds->needles[creds->needle_count++] = buf_view(&value->text);
    return 0;
}

static void put_basic(struct buf *out, struct str user, struct str value)
{
    struct buf pair = { 0 };

    buf_reserve(&pair, user.n + value.n + 2);
    buf_str(&pair, user);
    buf_putc(&pair, ':');
    buf_str(&pair, value);
    base64_put(out, pair.data, pair.len);
    overwrite(&pair);
}

static size_t index_of(const struct inject_set *set, struct str name)
{
    size_t at = 0;

    while (!str_eq(set->secrets[at].name, name))
        at++; /* inject_parse has seen that it is there */
    return at;
}

static void render(struct creds *creds, const struct inject_set *set,
                   const struct inject_rule *rule, struct line *line)
{
    struct inject_piece piece;
    struct str rest = rule->value;

    buf_reserve(&line->value, 2 * INJECT_VALUE_MAX + INJECT_TEMPLATE_MAX);
    while (inject_next(&rest, &piece) > 0) {
        size_t start = line->value.len;

        if (piece.kind == INJECT_TEXT) {
            buf_str(&line->value, piece.text);
            continue;
        }
        line->secret = index_of(set, piece.name);
        struct str value = buf_view(&creds->values[line->secret].text);
        if (piece.kind == INJECT_SECRET) {
            buf_str(&line->value, value);
            continue;
        }
        put_basic(&line->value, piece.text, value);
        creds->needles[creds->needle_count++] = str_from(buf_view(&line->value), start);
    }
}

static int longer_first(const void *a, const void *b)
{
    size_t one = ((const struct str *)a)->n, other = ((const struct str *)b)->n;

    return one < other ? 1 : one > other ? -1 : 0;
}

static int fill(struct creds *creds, const struct seal_private *key, struct err *err)
{
    autofree struct inject_set *set = xnew(struct inject_set);

    if (inject_parse(buf_view(&creds->bytes), set, err) < 0)
        return -1;
    for (size_t i = 0; i < set->secret_count; i++)
        if (open_value(creds, key, &set->secrets[i], err) < 0)
            return -1;
    for (size_t i = 0; i < set->rule_count; i++) {
        struct line *line = &creds->lines[creds->line_count++];

        if (rule_parse(set->rules[i].match, &line->match, err) < 0)
            return -1;
        line->header = set->rules[i].header;
        render(creds, set, &set->rules[i], line);
    }
    qsort(creds->needles, creds->needle_count, sizeof(creds->needles[0]), longer_first);
    return 0;
}

int creds_new(struct creds **out, const struct seal_private *key, struct str bytes, struct err *err)
{
    struct creds *creds = xnew(struct creds);

    buf_str(&creds->bytes, bytes);
    if (fill(creds, key, err) < 0) {
        creds_free(creds);
        return -1;
    }
    *out = creds;
    return 0;
}

/* ---- requests ---- */

static bool may_go(const struct value *value, const struct inject_question *question)
{
    for (int i = 0; i < value->host_count; i++)
        if (inject_meets(&value->hosts[i], question))
            return true;
    return false;
}

struct creds_plan creds_plan(const struct creds *creds, const struct inject_question *question)
{
    struct creds_plan plan = { .creds = creds };

    for (size_t i = 0; creds && i < creds->line_count; i++)
        if (inject_meets(&creds->lines[i].match, question) &&
            may_go(&creds->values[creds->lines[i].secret], question))
            plan.rules |= UINT64_C(1) << i;
    return plan;
}

static bool holds(const struct creds_plan *plan, size_t at)
{
    return plan->rules >> at & 1;
}

/* Appends `text` with the placeholder's every occurrence replaced; false: there is none. */
static bool swap(struct str text, struct str placeholder, struct str value, struct buf *out)
{
    const char *hit = memmem(text.p, text.n, placeholder.p, placeholder.n);

    if (!hit)
        return false;
    for (; hit; hit = text.n ? memmem(text.p, text.n, placeholder.p, placeholder.n) : NULL) {
        size_t before = (size_t)(hit - text.p);

        buf_append(out, text.p, before);
        buf_str(out, value);
        text = str_from(text, before + placeholder.n);
    }
    buf_str(out, text);
    return true;
}

/* All placeholders that a rule of the plan replaces. `out` is empty at first. */
static bool swap_all(const struct creds_plan *plan, struct str text, struct buf *out)
{
    const struct creds *creds = plan->creds;
    uint64_t done = 0; /* secrets: two rules may be about one */
    bool any = false;

    for (size_t i = 0; i < creds->line_count; i++) {
        size_t at = creds->lines[i].secret;
        struct buf next = { 0 };

        if (!holds(plan, i) || creds->lines[i].header.n || done >> at & 1)
            continue;
        done |= UINT64_C(1) << at;
        if (!swap(any ? buf_view(out) : text, creds->values[at].placeholder,
                  buf_view(&creds->values[at].text), &next))
            continue;
        overwrite(out);
        *out = next;
        any = true;
    }
    return any;
}

/*
 * "Basic" with a placeholder as its password or user: what git, pip and npm make of one that they
 * find in an address or a file of theirs.
 */
static bool swap_basic(const struct creds_plan *plan, struct str value, struct buf *out)
{
    static const size_t word = sizeof("Basic ") - 1;
    struct buf pair = { 0 }, changed = { 0 };
    bool any = false;

    if (value.n > word && str_eq_nocase((struct str){ value.p, word }, STR("Basic ")) &&
        base64_get(&pair, str_trim(str_from(value, word))))
        any = swap_all(plan, buf_view(&pair), &changed);
    if (any) {
        buf_puts(out, "Basic ");
        base64_put(out, changed.data, changed.len);
    }
    overwrite(&pair);
    overwrite(&changed);
    return any;
}

enum creds_fate creds_header(const struct creds_plan *plan, struct str name, struct str value,
                             struct buf *out)
{
    struct buf changed = { 0 };

    if (!plan->rules)
        return CREDS_KEEP;
    for (size_t i = 0; i < plan->creds->line_count; i++)
        if (holds(plan, i) && plan->creds->lines[i].header.n &&
            str_eq_nocase(plan->creds->lines[i].header, name))
            return CREDS_DROP;
    bool any = swap_all(plan, value, &changed);
    if (any)
        buf_str(out, buf_view(&changed));
    else if (str_eq_nocase(name, STR("authorization")))
        any = swap_basic(plan, value, out);
    overwrite(&changed);
    return any ? CREDS_CHANGED : CREDS_KEEP;
}

void creds_add(const struct creds_plan *plan, struct buf *out)
{
    const struct creds *creds = plan->creds;

    for (size_t i = 0; plan->rules && i < creds->line_count; i++) {
        const struct line *line = &creds->lines[i];
        bool said = !holds(plan, i) || !line->header.n;

        for (size_t k = 0; k < i && !said; k++)
            said = holds(plan, k) && str_eq_nocase(creds->lines[k].header, line->header);
        if (said)
            continue;
        buf_str(out, line->header);
        buf_puts(out, ": ");
        buf_str(out, buf_view(&line->value));
        buf_puts(out, "\r\n");
    }
}

/* ---- replies ---- */

/* Those that begin before `until`. */
static void hide_one(struct str needle, char *data, size_t len, size_t until)
{
    char *hit, *from = data;

    while ((hit = memmem(from, len - (size_t)(from - data), needle.p, needle.n)) &&
           (size_t)(hit - data) < until) {
        memset(hit, '*', needle.n);
        from = hit + needle.n;
    }
}

static void hide(const struct creds *creds, char *data, size_t len, size_t until)
{
    for (size_t i = 0; len && i < creds->needle_count; i++)
        hide_one(creds->needles[i], data, len, until);
}

void creds_hide(const struct creds *creds, char *data, size_t len)
{
    if (creds)
        hide(creds, data, len, len);
}

/* How many bytes at the end of `data` are the beginning of the needle, but not all of it. */
static size_t begun(struct str needle, const char *data, size_t len)
{
    for (size_t n = MIN(len, needle.n - 1); n > 0; n--)
        if (memcmp(data + len - n, needle.p, n) == 0)
            return n;
    return 0;
}

/* What begins where a longer one may have begun stays as it is until that is known. */
size_t creds_scrub(const struct creds *creds, char *data, size_t len, bool end)
{
    size_t keep = 0;

    if (!creds)
        return len;
    for (size_t i = 0; !end && i < creds->needle_count; i++)
        keep = MAX(keep, begun(creds->needles[i], data, len));
    hide(creds, data, len, len - keep);
    return len - keep;
}
