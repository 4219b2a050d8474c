/*
 * See away.h. Whoever writes the text chooses it, so each byte is looked at a bounded number of
 * times: a scheme begins with its own letter and not with the lines before it, and what stands
 * between the slashes is read up to AUTHORITY_MAX, which no host that is allowed reaches.
 */
#include "hub/away.h"

#include "base/mem.h"
#include "policy/host.h"

#define SCHEMES_MAX 16
#define SCHEME_LEN_MAX 16
#define ALLOWED_MAX 64
#define AUTHORITY_MAX 512

struct allowed {
    struct host host; /* HOST_NAME: exactly this; HOST_ADDR: within the prefix */
    unsigned prefix;
};

struct away {
    struct allowed allowed[ALLOWED_MAX];
    size_t allowed_count;
    char schemes[SCHEMES_MAX][SCHEME_LEN_MAX + 1];
    size_t scheme_count;
};

/* ---- settings ---- */

static int allow_one(struct away *filter, const char *text, struct err *err)
{
    struct allowed *one = &filter->allowed[filter->allowed_count];
    bool range = strchr(text, '/');
    struct str rest = str_of(text), base = str_cut(&rest, '/');
    uint64_t prefix;

    if (filter->allowed_count == ALLOWED_MAX)
        return err_set(err, ERR_INVALID, "hub_url_allow may have %d items", ALLOWED_MAX);
    if (addr_parse(base, &one->host.addr)) {
        unsigned most = one->host.addr.family == 4 ? 32 : 128;

        one->host.kind = HOST_ADDR;
        one->prefix = most;
        if (range && (!str_to_u64(rest, &prefix) || prefix > most))
            return err_set(err, ERR_INVALID, "hub_url_allow: %s is no range of addresses", text);
        if (range)
            one->prefix = (unsigned)prefix;
    } else if (range || host_parse_name(base, &one->host, err) < 0) {
        return err_set(err, ERR_INVALID, "hub_url_allow: %s is no host, address or range", text);
    }
    filter->allowed_count++;
    return 0;
}

static int scheme_one(struct away *filter, const char *text, struct err *err)
{
    size_t len = strlen(text);

    if (filter->scheme_count == SCHEMES_MAX || !len || len > SCHEME_LEN_MAX ||
        strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789+-.") != len)
        return err_set(err, ERR_INVALID, "hub_url_schemes: up to %d of at most %d letters, not %s",
                       SCHEMES_MAX, SCHEME_LEN_MAX, text);
    memcpy(filter->schemes[filter->scheme_count++], text, len + 1);
    return 0;
}

void away_free(struct away *filter)
{
    free(filter);
}

int away_new(struct away **out, const char *const *allow, const char *const *schemes,
             struct err *err)
{
    struct away *filter = xnew(struct away);
    int rc = 0;

    for (; rc == 0 && *allow; allow++)
        rc = allow_one(filter, *allow, err);
    for (; rc == 0 && *schemes; schemes++)
        rc = scheme_one(filter, *schemes, err);
    if (rc < 0)
        away_free(filter);
    else
        *out = filter;
    return rc;
}

/* ---- hosts ---- */

static bool host_allowed(const struct away *filter, const struct host *host)
{
    for (size_t i = 0; i < filter->allowed_count; i++) {
        const struct allowed *one = &filter->allowed[i];

        if (one->host.kind != host->kind)
            continue;
        if (host->kind == HOST_ADDR ? addr_within(&host->addr, &one->host.addr, one->prefix)
                                    : host_eq(host, &one->host))
            return true;
    }
    return host->kind == HOST_NAME && !memchr(host->text, '.', host->len);
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* The host without percent signs; false: too long, or they mean nothing. */
static bool undo_percent(struct str text, char out[HOST_NAME_MAX_LEN + 3], size_t *len)
{
    *len = 0;
    for (size_t i = 0; i < text.n; i++) {
        char c = text.p[i];

        if (*len > HOST_NAME_MAX_LEN)
            return false;
        if (c == '%') {
            int high = i + 2 < text.n ? hex_digit(text.p[i + 1]) : -1;
            int low = i + 2 < text.n ? hex_digit(text.p[i + 2]) : -1;

            if (high < 0 || low < 0)
                return false;
            c = (char)(high << 4 | low);
            i += 2;
        }
        out[(*len)++] = c;
    }
    return true;
}

static bool is_port(struct str text)
{
    for (size_t i = 0; i < text.n; i++)
        if (text.p[i] < '0' || text.p[i] > '9')
            return false;
    return text.n <= 5;
}

/* "host:port" as it stands between the slashes. */
static bool leads_away(const struct away *filter, struct str authority)
{
    char text[HOST_NAME_MAX_LEN + 3];
    struct str rest = authority, name;
    struct host host = { 0 };
    size_t len;

    if (authority.p[0] == '[') {
        name = str_cut(&rest, ']');
        name.n++; /* the bracket, which is there or makes no host */
        if (name.n > authority.n || (rest.n && rest.p[0] != ':'))
            return true;
        rest = str_from(rest, 1);
    } else {
        name = str_cut(&rest, ':');
    }
    return !is_port(rest) || !undo_percent(name, text, &len) ||
           host_parse((struct str){ text, len }, &host, &(struct err){ 0 }) < 0 ||
           !host_allowed(filter, &host);
}

/* ---- text ---- */

static bool is_line(char c) /* what browsers leave out of a URL */
{
    return c == '\t' || c == '\r' || c == '\n';
}

/* The bytes behind "scheme:" at `at`, or NULL. */
static const char *behind_scheme(const char *at, const char *end, const char *scheme)
{
    if (is_line(*at))
        return NULL; /* it begins behind these */
    for (; *scheme; scheme++, at++) {
        while (at < end && is_line(*at))
            at++;
        if (at == end || (*at | (*scheme >= 'a' ? 0x20 : 0)) != *scheme)
            return NULL;
    }
    while (at < end && is_line(*at))
        at++;
    return at < end && *at == ':' ? at + 1 : NULL;
}

/* What ends an authority. Much else may stand in a user name, and in a host that somebody serves.
 */
static bool ends_authority(char c)
{
    return (unsigned char)c <= ' ' || c == '\x7f' || strchr("/\\?#\"<>`", c);
}

/* The sentence goes on behind the URL: a full stop, a bracket that was opened before it. */
static struct str without_stops(struct str text)
{
    while (text.n && strchr(text.p[0] == '[' ? ".,;:!)}'*|" : ".,;:!)]}'*|", text.p[text.n - 1]))
        text.n--;
    return text;
}

static bool url_hit(const struct away *filter, const char *at, const char *end)
{
    bool slashes = false;

    for (; at < end && (*at == '/' || *at == '\\' || is_line(*at)); at++)
        slashes |= !is_line(*at);
    struct str run = { at, 0 };
    while (at < end && at - run.p <= AUTHORITY_MAX && !ends_authority(*at))
        at++;
    run.n = (size_t)(at - run.p);
    if (run.n > AUTHORITY_MAX)
        return true;
    if (!run.n || (!slashes && !memchr(run.p, '.', run.n) && !memchr(run.p, '%', run.n)))
        return false; /* "http:8080" is no URL to people, and no name to machines */
    /* Behind a backslash some read a path and some a user name; with an @ it is no host or port. */
    if (at < end && *at == '\\')
        return true;
    run = without_stops(run);
    return run.n && leads_away(filter, run);
}

bool away_hit(const struct away *filter, struct str text)
{
    const char *end = text.p + text.n;

    for (const char *at = text.p; at < end; at++)
        for (size_t i = 0; i < filter->scheme_count; i++) {
            const char *behind = behind_scheme(at, end, filter->schemes[i]);

            if (behind && url_hit(filter, behind, end))
                return true;
        }
    return false;
}
