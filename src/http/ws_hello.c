/*
 * The opening handshake (RFC 6455 section 4.2, RFC 8441 section 5): what a request must say to
 * become a WebSocket, and what we answer. Strict, because browsers send exactly this and whoever
 * sends something else is no browser's page.
 */
#include <openssl/evp.h>

#include "http/ws.h"
#include "http/ws_own.h"

/* Is `token` in one of the comma-separated lists that headers of this name hold? */
static bool header_has(const struct http_req *req, const char *name, const char *token, bool nocase)
{
    for (size_t i = 0; i < req->header_count; i++) {
        struct str rest = req->headers[i].value;

        if (!str_is(req->headers[i].name, name))
            continue;
        while (rest.n) {
            struct str item = str_trim(str_cut(&rest, ','));

            if (nocase ? str_eq_nocase(item, str_of(token)) : str_is(item, token))
                return true;
        }
    }
    return false;
}

static size_t header_count(const struct http_req *req, const char *name)
{
    size_t count = 0;

    for (size_t i = 0; i < req->header_count; i++)
        count += str_is(req->headers[i].name, name);
    return count;
}

bool ws_wanted(const struct http_req *req)
{
    if (req->version == HTTP_2)
        return str_is(req->method, "CONNECT") && str_is(http_header(req, ":protocol"), "websocket");
    return req->version == HTTP_1_1 && str_is(req->method, "GET") &&
           header_has(req, "upgrade", "websocket", true);
}

bool ws_offer_next(const struct http_req *req, struct ws_offers *at, struct str *item)
{
    for (;;) {
        while (at->rest.n) {
            *item = str_trim(str_cut(&at->rest, ','));
            if (item->n)
                return true;
        }
        if (at->header == req->header_count)
            return false;
        const struct http_header *header = &req->headers[at->header++];
        if (str_is(header->name, "sec-websocket-protocol"))
            at->rest = header->value;
    }
}

/* The last offer that is a bearer's, or that is not; none: n is 0. */
static struct str last_offer(const struct http_req *req, bool bearer)
{
    struct ws_offers at = { 0 };
    struct str item, last = STR_NONE;

    while (ws_offer_next(req, &at, &item))
        if (str_starts(item, STR(WS_BEARER)) == bearer)
            last = item;
    return last;
}

bool ws_offers_any(const struct http_req *req)
{
    return last_offer(req, false).n > 0;
}

bool ws_offers(const struct http_req *req, const char *protocol)
{
    return header_has(req, "sec-websocket-protocol", protocol, false);
}

/* 16 random bytes in base64: 22 digits and "==". */
static bool key_valid(struct str key)
{
    if (key.n != 24 || key.p[22] != '=' || key.p[23] != '=')
        return false;
    for (size_t i = 0; i < 22; i++) {
        char c = key.p[i];

        if (!((c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
              c == '+' || c == '/'))
            return false;
    }
    return true;
}

/* SHA-1 is what section 4.2.2 asks for; it proves that we speak the protocol and nothing more. */
static struct str accept_value(struct http_req *req, struct str key)
{
    static const char guid[] = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    unsigned char digest[EVP_MAX_MD_SIZE], text[32];
    char joined[24 + sizeof(guid)];
    unsigned len = 0;

    memcpy(joined, key.p, 24);
    memcpy(joined + 24, guid, sizeof(guid) - 1);
    if (!EVP_Digest(joined, sizeof(joined) - 1, digest, &len, EVP_sha1(), NULL))
        return STR_NONE;
    int size = EVP_EncodeBlock(text, digest, (int)len);
    return arena_str(&req->arena, (struct str){ (char *)text, (size_t)size });
}

static bool version_fits(const struct http_req *req)
{
    return header_count(req, "sec-websocket-version") == 1 &&
           str_is(http_header(req, "sec-websocket-version"), "13");
}

int ws_hello_check(const struct http_req *req, const char *protocol, struct err *err)
{
    bool h1 = req->version == HTTP_1_1;

    if (!ws_wanted(req))
        return err_set(err, ERR_INVALID, "not a WebSocket request");
    if (h1 && !header_has(req, "connection", "upgrade", true))
        return err_set(err, ERR_INVALID, "Connection does not say Upgrade");
    if (h1 && req->body_size != 0)
        return err_set(err, ERR_INVALID, "a WebSocket request has no body");
    if (!version_fits(req))
        return err_set(err, ERR_INVALID, "Sec-WebSocket-Version is not 13");
    if (h1 && (header_count(req, "sec-websocket-key") != 1 ||
               !key_valid(http_header(req, "sec-websocket-key"))))
        return err_set(err, ERR_INVALID, "Sec-WebSocket-Key is not 16 bytes in base64");
    if (protocol && !ws_offers(req, protocol))
        return err_set(err, ERR_INVALID, "the client does not offer subprotocol %s", protocol);
    return 0;
}

int ws_check(const struct http_req *req, struct err *err)
{
    return ws_hello_check(req, NULL, err);
}

void ws_hello_answer(struct http_req *req, const char *protocol)
{
    struct http_header headers[4];
    /* A browser ends a connection for which none of its offers was chosen. */
    struct str chosen = protocol ? str_of(protocol) : last_offer(req, true);
    size_t count = 0;

    if (req->version == HTTP_1_1) {
        struct str key = http_header(req, "sec-websocket-key");

        headers[count++] = (struct http_header){ STR("Upgrade"), STR("websocket") };
        headers[count++] =
            (struct http_header){ STR("Sec-WebSocket-Accept"), accept_value(req, key) };
    }
    if (chosen.n)
        headers[count++] = (struct http_header){ STR("Sec-WebSocket-Protocol"), chosen };
    http_reply_begin(req, req->version == HTTP_1_1 ? 101 : 200, headers, count);
}

void ws_refuse(struct http_req *req, const struct err *err)
{
    struct http_header headers[] = {
        { STR("Content-Type"), STR("text/plain; charset=utf-8") },
        { STR("Sec-WebSocket-Version"), STR("13") },
        { STR("Upgrade"), STR("websocket") },
    };
    bool upgrade = ws_wanted(req) && !version_fits(req);
    size_t count = !upgrade ? 1 : req->version == HTTP_2 ? 2 : 3;

    http_reply(req, upgrade ? 426 : err_info(err->code)->http, headers, count, str_of(err->msg));
}
