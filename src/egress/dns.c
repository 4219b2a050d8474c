/*
 * RFC 1035, one question at a time. No compression is followed: a question has no reason to have
 * any. What the fields of the head cannot be is FORMERR, a name that is none (labels with an
 * underscore, other scripts) does not exist, and of names that are only A has an answer: AAAA is
 * empty, so that everybody connects by IPv4, which is the only way there is.
 */
#include "egress/dns.h"

#include <string.h>

#include "wire/egress.h"

#define HEAD 12
#define TYPE_A 1
#define CLASS_IN 1
#define QUESTION_MAX (255 + 4) /* a name as it is sent, type and class */

enum rcode { NOERROR = 0, FORMERR = 1, NXDOMAIN = 3, NOTIMP = 4, REFUSED = 5 };

static uint16_t get16(const uint8_t *at)
{
    return (uint16_t)(at[0] << 8 | at[1]);
}

static void put16(uint8_t *at, uint32_t value)
{
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
}

/*
 * The name at the beginning of a question, with dots; its length as it was sent, or 0 when it is
 * not one. A label may hold any byte, a dot too: then the text is no name either.
 */
static size_t name_take(const uint8_t *at, size_t len, char text[256], size_t *text_len)
{
    size_t used = 0, n = 0;

    while (used < len && at[used]) {
        size_t label = at[used];

        if (label > 63 || used + 1 + label >= len || n + label + 1 > 254)
            return 0;
        if (memchr(at + used + 1, '.', label))
            return 0;
        memcpy(text + n, at + used + 1, label);
        n += label;
        text[n++] = '.';
        used += 1 + label;
    }
    if (used >= len)
        return 0;
    *text_len = n ? n - 1 : 0; /* without the last dot */
    return used + 1;
}

static size_t reply(const uint8_t *ask, size_t question, enum rcode rcode, uint32_t address,
                    uint8_t *out)
{
    size_t len = HEAD + question;

    memset(out, 0, HEAD);
    memcpy(out, ask, 2);
    out[2] = (uint8_t)(0x84 | (ask[2] & 0x79)); /* an answer, ours, to the same opcode and wish */
    out[3] = (uint8_t)(0x80 | rcode);           /* recursion is to be had */
    put16(out + 4, question ? 1 : 0);
    memcpy(out + HEAD, ask + HEAD, question);
    if (!address)
        return len;
    put16(out + 6, 1);
    uint8_t *at = out + len;
    put16(at, 0xc000 | HEAD); /* the name is that of the question */
    put16(at + 2, TYPE_A);
    put16(at + 4, CLASS_IN);
    put16(at + 6, 0);
    put16(at + 8, DNS_TTL_S);
    put16(at + 10, 4);
    put16(at + 12, address >> 16);
    put16(at + 14, address & 0xffff);
    return len + 16;
}

static uint32_t address_of(const struct host *host, dns_name_fn *name, void *ctx)
{
    struct str text = host_str(host), local = STR("localhost");

    if (str_is(text, EGRESS_NAME))
        return EGRESS_SELF;
    if (text.n >= local.n && str_eq(str_from(text, text.n - local.n), local) &&
        (text.n == local.n || text.p[text.n - local.n - 1] == '.')) /* RFC 6761 */
        return 0x7f000001;
    return name(ctx, host);
}

size_t dns_answer(const uint8_t *ask, size_t len, dns_name_fn *name, void *ctx,
                  uint8_t out[DNS_ANSWER_MAX])
{
    char text[256];
    size_t text_len = 0;
    struct host host;

    if (len < HEAD || ask[2] & 0x80)
        return 0; /* no message, or an answer: nobody is answered twice */
    if (ask[2] & 0x78)
        return reply(ask, 0, NOTIMP, 0, out);
    if (get16(ask + 4) != 1 || get16(ask + 6) || get16(ask + 8) || get16(ask + 10) > 1)
        return reply(ask, 0, FORMERR, 0, out);
    size_t used = name_take(ask + HEAD, len - HEAD, text, &text_len);
    if (!used || len - HEAD - used < 4)
        return reply(ask, 0, FORMERR, 0, out);
    const uint8_t *kind = ask + HEAD + used;
    size_t question = used + 4;
    if (get16(kind + 2) != CLASS_IN)
        return reply(ask, question, NOTIMP, 0, out);
    if (host_parse_name((struct str){ text, text_len }, &host, NULL) < 0)
        return reply(ask, question, NXDOMAIN, 0, out);
    if (get16(kind) != TYPE_A)
        return reply(ask, question, NOERROR, 0, out);
    uint32_t address = address_of(&host, name, ctx);
    return reply(ask, question, address ? NOERROR : REFUSED, address, out);
}

_Static_assert(HEAD + QUESTION_MAX + 16 <= DNS_ANSWER_MAX, "an answer fits");
