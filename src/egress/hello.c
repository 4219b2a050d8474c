/* RFC 8446 section 4.1.2, RFC 6066 section 3: lengths within lengths, each taken by cut(). */
#include "egress/hello.h"

#define RECORD_HEAD 5
#define HANDSHAKE 22
#define CLIENT_HELLO 1
#define SERVER_NAME 0
#define HOST_NAME_TYPE 0

struct part {
    const uint8_t *p;
    size_t n;
};

/* The next `len` bytes; false when there are fewer. */
static bool take(struct part *from, size_t len, struct part *out)
{
    if (from->n < len)
        return false;
    *out = (struct part){ from->p, len };
    from->p += len;
    from->n -= len;
    return true;
}

static bool number(struct part *from, size_t width, size_t *out)
{
    struct part bytes;

    if (!take(from, width, &bytes))
        return false;
    *out = 0;
    for (size_t i = 0; i < width; i++)
        *out = *out << 8 | bytes.p[i];
    return true;
}

/* A length of `width` bytes, then so many bytes. */
static bool cut(struct part *from, size_t width, struct part *out)
{
    size_t len;

    return number(from, width, &len) && take(from, len, out);
}

static bool server_name(struct part data, struct host *host)
{
    struct part list, name;
    size_t type;

    return cut(&data, 2, &list) && data.n == 0 && number(&list, 1, &type) &&
           type == HOST_NAME_TYPE && cut(&list, 2, &name) && list.n == 0 &&
           host_parse_name((struct str){ (const char *)name.p, name.n }, host, NULL) == 0 &&
           name.p[name.n - 1] != '.';
}

static enum hello extensions(struct part all, struct host *host)
{
    enum hello found = HELLO_UNNAMED;
    struct part data;
    size_t type;

    while (all.n) {
        if (!number(&all, 2, &type) || !cut(&all, 2, &data))
            return HELLO_BAD;
        if (type != SERVER_NAME)
            continue;
        if (found == HELLO_NAMED || !server_name(data, host))
            return HELLO_BAD;
        found = HELLO_NAMED;
    }
    return found;
}

static enum hello client_hello(struct part body, struct host *host)
{
    struct part fixed, session, suites, methods, all;

    if (!take(&body, 2 + 32, &fixed) || fixed.p[0] != 3 || !cut(&body, 1, &session) ||
        session.n > 32 || !cut(&body, 2, &suites) || suites.n < 2 || suites.n % 2 ||
        !cut(&body, 1, &methods) || methods.n < 1)
        return HELLO_BAD;
    if (body.n == 0)
        return HELLO_UNNAMED; /* as old as TLS 1.0 */
    return cut(&body, 2, &all) && body.n == 0 ? extensions(all, host) : HELLO_BAD;
}

enum hello hello_read(const uint8_t *data, size_t len, struct host *host)
{
    static const uint8_t begin[] = { HANDSHAKE, 3 };
    struct part record, body, rest = { data, len };
    size_t length, type;

    for (size_t i = 0; i < len && i < sizeof(begin); i++)
        if (data[i] != begin[i])
            return HELLO_BAD; /* at its first byte: nobody waits for the rest of a plain request */
    if (len < RECORD_HEAD)
        return HELLO_MORE;
    length = (size_t)(data[3] << 8 | data[4]);
    if (data[2] > 4 || length < 4 || length > HELLO_MAX - RECORD_HEAD)
        return HELLO_BAD;
    if (len > RECORD_HEAD && data[RECORD_HEAD] != CLIENT_HELLO)
        return HELLO_BAD;
    if (len < RECORD_HEAD + length)
        return HELLO_MORE;
    (void)take(&rest, RECORD_HEAD, &record);
    if (!take(&rest, length, &record) || !number(&record, 1, &type) || !cut(&record, 3, &body) ||
        record.n)
        return HELLO_BAD;
    return client_hello(body, host);
}
