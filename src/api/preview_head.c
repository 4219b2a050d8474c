/*
 * What of a head goes through. Inside goes what the caller's program has to say to the one in the
 * sandbox, and never what lets somebody in here; outside comes what is about the answer, and never
 * what is about our origin. Tables, because each line is a guard; tests/e2e/test_ports.py has one
 * check for each.
 */
#include "api/preview.h"

#include <stdio.h>

#include "base/hash.h"
#include "http/ws.h"

enum { PATH = 1u << PREVIEW_BY_PATH, HOST = 1u << PREVIEW_BY_HOST, BOTH = PATH | HOST };

struct rule {
    struct str name; /* ending in '*': the beginning of names */
    unsigned ways;   /* in which it is left out */
};

/* Of the caller's. */
static const struct rule not_inside[] = {
    { STR_INIT("host"), BOTH },
    { STR_INIT("content-length"), BOTH },
    { STR_INIT("expect"), BOTH },
    { STR_INIT("x-atoll-*"), BOTH },
    { STR_INIT("forwarded"), BOTH },
    { STR_INIT("x-forwarded-*"), BOTH },
    { STR_INIT("authorization"), PATH },
    { STR_INIT("cookie"), BOTH }, /* see put_cookies */
    { STR_INIT("origin"), PATH },
    { STR_INIT("referer"), PATH },
    { STR_INIT("sec-websocket-*"), BOTH } /* see put_upgrade */,
};

/* Of the program's. By path, all that is an order to a browser about the origin it came from. */
static const struct rule not_outside[] = {
    { STR_INIT("set-cookie"), BOTH }, /* see keep_cookie */
    { STR_INIT("strict-transport-security"), BOTH },
    { STR_INIT("public-key-pins"), BOTH },
    { STR_INIT("alt-svc"), BOTH },
    { STR_INIT("x-request-id"), BOTH }, /* ours */
    { STR_INIT("clear-site-data"), PATH },
    { STR_INIT("service-worker-allowed"), PATH },
    { STR_INIT("access-control-*"), PATH },
    { STR_INIT("www-authenticate"), PATH },
    { STR_INIT("refresh"), PATH },
    { STR_INIT("link"), PATH },
    { STR_INIT("report-to"), PATH },
    { STR_INIT("reporting-endpoints"), PATH },
    { STR_INIT("nel"), PATH },
};

static bool left_out(const struct rule *rules, size_t count, struct str name, unsigned way)
{
    for (size_t i = 0; i < count; i++) {
        struct str rule = rules[i].name;
        bool begins = rule.p[rule.n - 1] == '*';

        if (rules[i].ways >> way & 1 &&
            (begins ? str_starts(name, (struct str){ rule.p, rule.n - 1 }) : str_eq(name, rule)))
            return true;
    }
    return false;
}

/* Is it named by one of the Connection fields? */
static bool nominated(const struct http_header *headers, size_t count, struct str name)
{
    for (size_t i = 0; i < count; i++)
        if (str_is(headers[i].name, "connection") && header_lists(headers[i].value, name))
            return true;
    return false;
}

/* ---- inside ---- */

static void put_field(struct buf *out, struct str name, struct str value)
{
    buf_str(out, name);
    buf_puts(out, ": ");
    buf_str(out, value);
    buf_puts(out, "\r\n");
}

/* A program's own Authorization goes on to it; a token of ours never does, whoever let it in. */
static bool is_ours(struct str name, struct str value)
{
    if (!str_is(name, "authorization"))
        return false;
    struct str scheme = str_cut(&value, ' ');
    return str_eq_nocase(scheme, STR("Bearer")) && token_shaped(str_trim(value));
}

/* All but ours, in one line, however many there were (HTTP/2 sends one each). */
static void put_cookies(struct buf *out, const struct http_req *req)
{
    bool first = true;

    for (size_t i = 0; i < req->header_count; i++) {
        struct str rest = req->headers[i].value;

        if (!str_is(req->headers[i].name, "cookie"))
            continue;
        while (rest.n) {
            struct str cookie = str_trim(str_cut(&rest, ';')), value = cookie;

            if (!cookie.n || str_starts(str_cut(&value, '='), STR("atoll_")))
                continue;
            buf_puts(out, first ? "cookie: " : "; ");
            buf_str(out, cookie);
            first = false;
        }
    }
    if (!first)
        buf_puts(out, "\r\n");
}

/* What the caller offers, but for a token of ours. */
static void put_offers(struct buf *out, struct str value)
{
    bool first = true;

    while (value.n) {
        struct str item = str_trim(str_cut(&value, ','));
        char token[TOKEN_TEXT_SIZE];

        if (!item.n || token_offered(item, token))
            continue;
        buf_puts(out, first ? "sec-websocket-protocol: " : ", ");
        buf_str(out, item);
        first = false;
    }
    if (!first)
        buf_puts(out, "\r\n");
}

/* HTTP/2 asks for a WebSocket without a key; the program inside wants one. */
static void put_upgrade(struct buf *out, const struct http_req *req)
{
    unsigned char key[16];

    buf_puts(out, "connection: upgrade\r\nupgrade: websocket\r\n");
    for (size_t i = 0; i < req->header_count; i++)
        if (str_is(req->headers[i].name, "sec-websocket-protocol"))
            put_offers(out, req->headers[i].value);
        else if (str_starts(req->headers[i].name, STR("sec-websocket-")))
            put_field(out, req->headers[i].name, req->headers[i].value);
    if (req->version != HTTP_2)
        return;
    random_bytes(key, sizeof(key));
    buf_puts(out, "sec-websocket-key: ");
    base64_put(out, key, sizeof(key));
    buf_puts(out, "\r\n");
}

static void put_forwarded(struct buf *out, const struct preview *preview,
                          const struct http_req *req)
{
    put_field(out, STR("x-forwarded-proto"), req->peer->tls ? STR("https") : STR("http"));
    put_field(out, STR("x-forwarded-host"), req->host);
    if (preview->way == PREVIEW_BY_PATH)
        put_field(out, STR("x-forwarded-prefix"), str_of(preview->prefix));
}

static void put_length(struct buf *out, struct preview *preview, const struct http_req *req)
{
    preview->chunked = req->body_size < 0;
    if (preview->chunked)
        buf_puts(out, "transfer-encoding: chunked\r\n");
    else if (req->body_size > 0 || str_is(req->method, "POST") || str_is(req->method, "PUT") ||
             str_is(req->method, "PATCH"))
        buf_printf(out, "content-length: %lld\r\n", (long long)req->body_size);
}

void preview_request(struct preview *preview, struct buf *out)
{
    const struct http_req *req = preview->call->req;
    bool ws = ws_wanted(req);

    buf_str(out, str_is(req->method, "CONNECT") ? STR("GET") : req->method);
    buf_printf(out, " %s HTTP/1.1\r\n", preview->target);
    if (preview->way == PREVIEW_BY_HOST) /* what its own links and its check of Origin go by */
        put_field(out, STR("host"), req->host);
    else
        buf_printf(out, "host: localhost:%u\r\n", preview->port);
    for (size_t i = 0; i < req->header_count; i++) {
        struct str name = req->headers[i].name, value = req->headers[i].value;

        if (name.n && name.p[0] != ':' && !header_is_hop(name) && !is_ours(name, value) &&
            !nominated(req->headers, req->header_count, name) &&
            !left_out(not_inside, ARRAY_LEN(not_inside), name, preview->way))
            put_field(out, name, value);
    }
    if (preview->way == PREVIEW_BY_HOST)
        put_cookies(out, req);
    put_forwarded(out, preview, req);
    if (ws) {
        put_upgrade(out, req);
    } else {
        buf_puts(out, "connection: close\r\n");
        put_length(out, preview, req);
    }
    buf_puts(out, "\r\n");
}

/* ---- outside ---- */

static void add(struct preview_headers *out, struct str name, struct str value)
{
    if (out->count < ARRAY_LEN(out->list))
        out->list[out->count++] = (struct http_header){ name, value };
}

/* For this host alone, whatever it says, and under no name of ours. */
static void keep_cookie(struct preview *preview, struct preview_headers *out, struct str value)
{
    autobuf struct buf text = { 0 };
    struct str rest = value, pair = str_trim(str_cut(&rest, ';')), name = pair;

    name = str_trim(str_cut(&name, '='));
    if (!name.n || str_starts(name, STR("atoll_")))
        return;
    buf_str(&text, pair);
    while (rest.n) {
        struct str attribute = str_trim(str_cut(&rest, ';')), key = attribute;

        if (str_eq_nocase(str_trim(str_cut(&key, '=')), STR("domain")))
            continue;
        buf_puts(&text, "; ");
        buf_str(&text, attribute);
    }
    add(out, STR("set-cookie"), arena_str(&preview->origin.arena, buf_view(&text)));
}

/* By path, the program's "/x" is below the prefix, and so is what it calls by its own address. */
static struct str relocate(struct preview *preview, struct str value)
{
    char own[64];
    static const char *const names[] = { "localhost", "127.0.0.1", "[::1]" };

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        int len = snprintf(own, sizeof(own), "http://%s:%u", names[i], preview->port);

        if (str_starts(value, (struct str){ own, (size_t)len }) &&
            (value.n == (size_t)len || value.p[len] == '/')) {
            value = str_from(value, (size_t)len);
            if (!value.n)
                value = STR("/");
            break;
        }
    }
    if (!value.n || value.p[0] != '/' || (value.n > 1 && (value.p[1] == '/' || value.p[1] == '\\')))
        return value;
    autobuf struct buf text = { 0 };
    buf_puts(&text, preview->prefix);
    buf_str(&text, value);
    return arena_str(&preview->origin.arena, buf_view(&text));
}

static void add_answered(struct preview *preview, struct preview_headers *out)
{
    const struct origin *origin = &preview->origin;

    for (size_t i = 0; i < origin->count; i++) {
        struct str name = origin->headers[i].name, value = origin->headers[i].value;

        if (header_is_hop(name) || nominated(origin->headers, origin->count, name) ||
            (preview->call->req->version == HTTP_2 && str_is(name, "sec-websocket-accept")))
            continue;
        if (str_is(name, "set-cookie") && preview->way == PREVIEW_BY_HOST)
            keep_cookie(preview, out, value);
        if (left_out(not_outside, ARRAY_LEN(not_outside), name, preview->way))
            continue;
        if (preview->way == PREVIEW_BY_PATH &&
            (str_is(name, "location") || str_is(name, "content-location")))
            value = relocate(preview, value);
        add(out, name, value);
    }
}

void preview_answer(struct preview *preview, struct preview_headers *out)
{
    struct call *call = preview->call;

    out->count = call_headers(call, out->list, CALL_EXTRA_MAX);
    if (preview->origin.status == 101 && call->req->version == HTTP_1_1)
        add(out, STR("upgrade"), STR("websocket"));
    if (preview->way == PREVIEW_BY_PATH) /* with any of its own, both hold */
        add(out, STR("content-security-policy"),
            STR("sandbox allow-scripts allow-forms allow-popups allow-modals allow-downloads"));
    add_answered(preview, out);
}
