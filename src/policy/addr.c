/* One table of ranges; the first that holds an address is its class. */
#include "policy/addr.h"

#include <arpa/inet.h>
#include <string.h>

#include "base/auto.h"

struct range {
    uint8_t family, prefix;
    uint8_t bytes[16];
    enum addr_class class;
};

#define V4(a, b, c, d, bits, class_)                                                               \
    {                                                                                              \
        4, bits, { a, b, c, d }, class_                                                            \
    }
#define V6(bits, class_, ...)                                                                      \
    {                                                                                              \
        6, bits, { __VA_ARGS__ }, class_                                                           \
    }

/* The first that holds an address is its class; so the narrow ones stand before the wide ones. */
/* clang-format off */
static const struct range ranges[] = {
    V4(169, 254, 169,   0, 24, ADDR_METADATA), /* the usual one, and what stands beside it */
    V4(169, 254, 170,   0, 24, ADDR_METADATA),
    V4(100, 100, 100, 200, 32, ADDR_METADATA),
    V4(168,  63, 129,  16, 32, ADDR_METADATA), /* would be public */
    V4(192,   0,   0, 192, 32, ADDR_METADATA),
    V4(  0,   0,   0,   0,  8, ADDR_UNSPECIFIED),
    V4( 10,   0,   0,   0,  8, ADDR_PRIVATE),
    V4(100,  64,   0,   0, 10, ADDR_SHARED),
    V4(127,   0,   0,   0,  8, ADDR_LOOPBACK),
    V4(169, 254,   0,   0, 16, ADDR_LINK_LOCAL),
    V4(172,  16,   0,   0, 12, ADDR_PRIVATE),
    V4(192,   0,   0,   0, 24, ADDR_RESERVED), /* RFC 6890: protocols */
    V4(192,   0,   2,   0, 24, ADDR_DOCUMENTATION),
    V4(192,  88,  99,   0, 24, ADDR_RESERVED), /* RFC 7526: relays of 6to4 */
    V4(192, 168,   0,   0, 16, ADDR_PRIVATE),
    V4(198,  18,   0,   0, 15, ADDR_BENCHMARK),
    V4(198,  51, 100,   0, 24, ADDR_DOCUMENTATION),
    V4(203,   0, 113,   0, 24, ADDR_DOCUMENTATION),
    V4(224,   0,   0,   0,  4, ADDR_MULTICAST),
    V4(240,   0,   0,   0,  4, ADDR_RESERVED),
    V4(  0,   0,   0,   0,  0, ADDR_PUBLIC),

    V6(128, ADDR_UNSPECIFIED, 0),
    V6(128, ADDR_LOOPBACK, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1),
    V6( 32, ADDR_METADATA, 0xfd, 0, 0x0e, 0xc2),
    V6( 32, ADDR_METADATA, 0xfd, 0x20, 0, 0xce),
    V6( 96, ADDR_EMBEDDED, 0),                                           /* compatible */
    V6( 96, ADDR_EMBEDDED, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff),    /* mapped */
    V6( 96, ADDR_EMBEDDED, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0),    /* translated */
    V6( 96, ADDR_EMBEDDED, 0, 0x64, 0xff, 0x9b),                         /* NAT64 */
    V6( 48, ADDR_EMBEDDED, 0, 0x64, 0xff, 0x9b, 0, 1),                   /* NAT64, local */
    V6( 32, ADDR_EMBEDDED, 0x20, 0x01, 0, 0),                            /* Teredo */
    V6( 16, ADDR_EMBEDDED, 0x20, 0x02),                                  /* 6to4 */
    V6(  7, ADDR_PRIVATE, 0xfc),
    V6( 10, ADDR_LINK_LOCAL, 0xfe, 0x80),
    V6( 10, ADDR_PRIVATE, 0xfe, 0xc0),                                   /* site-local, once */
    V6(  8, ADDR_MULTICAST, 0xff),
    V6( 48, ADDR_BENCHMARK, 0x20, 0x01, 0, 0x02, 0, 0),
    V6( 32, ADDR_DOCUMENTATION, 0x20, 0x01, 0x0d, 0xb8),
    V6( 20, ADDR_DOCUMENTATION, 0x3f, 0xff),
    V6( 23, ADDR_RESERVED, 0x20, 0x01, 0),                               /* RFC 2928: protocols */
    V6(  3, ADDR_PUBLIC, 0x20),
    V6(  0, ADDR_RESERVED, 0),
};

static const struct {
    const char *name;
    bool never;
} classes[ADDR_CLASSES] = {
    [ADDR_PUBLIC]        = { "public",        false },
    [ADDR_UNSPECIFIED]   = { "unspecified",   true  },
    [ADDR_LOOPBACK]      = { "loopback",      true  },
    [ADDR_PRIVATE]       = { "private",       false },
    [ADDR_SHARED]        = { "shared",        false },
    [ADDR_LINK_LOCAL]    = { "link-local",    false },
    [ADDR_METADATA]      = { "metadata",      true  },
    [ADDR_DOCUMENTATION] = { "documentation", false },
    [ADDR_BENCHMARK]     = { "benchmark",     true  },
    [ADDR_MULTICAST]     = { "multicast",     true  },
    [ADDR_RESERVED]      = { "reserved",      false },
    [ADDR_EMBEDDED]      = { "embedded",      true  },
};
/* clang-format on */

struct addr addr_from_bytes(const void *bytes, size_t len)
{
    static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
    struct addr addr = { .family = len == 4 ? 4 : 6 };

    if (len == 16 && memcmp(bytes, mapped, sizeof(mapped)) == 0) {
        addr.family = 4;
        memcpy(addr.bytes, (const uint8_t *)bytes + sizeof(mapped), 4);
    } else {
        memcpy(addr.bytes, bytes, len == 4 ? 4 : 16);
    }
    return addr;
}

bool addr_parse(struct str text, struct addr *out)
{
    struct addr addr = { .family = memchr(text.n ? text.p : "", ':', text.n) ? 6 : 4 };
    char cstr[ADDR_TEXT_SIZE], back[ADDR_TEXT_SIZE];

    if (text.n == 0 || text.n >= sizeof(cstr) || str_has_nul(text))
        return false;
    memcpy(cstr, text.p, text.n);
    cstr[text.n] = 0;
    if (inet_pton(addr.family == 4 ? AF_INET : AF_INET6, cstr, addr.bytes) != 1)
        return false;
    addr_text(&addr, back);
    if (addr.family == 4 && strcmp(back, cstr) != 0) /* some libraries take "010" */
        return false;
    *out = addr;
    return true;
}

void addr_text(const struct addr *addr, char out[ADDR_TEXT_SIZE])
{
    if (!inet_ntop(addr->family == 4 ? AF_INET : AF_INET6, addr->bytes, out, ADDR_TEXT_SIZE))
        out[0] = 0;
}

bool addr_eq(const struct addr *a, const struct addr *b)
{
    return a->family == b->family && memcmp(a->bytes, b->bytes, a->family == 4 ? 4 : 16) == 0;
}

static bool bits_eq(const uint8_t *a, const uint8_t *b, unsigned bits)
{
    unsigned whole = bits / 8, rest = bits % 8;

    return memcmp(a, b, whole) == 0 &&
           (rest == 0 || ((a[whole] ^ b[whole]) & (0xff00 >> rest & 0xff)) == 0);
}

bool addr_within(const struct addr *addr, const struct addr *base, unsigned prefix)
{
    return addr->family == base->family && prefix <= (addr->family == 4 ? 32u : 128u) &&
           bits_eq(addr->bytes, base->bytes, prefix);
}

enum addr_class addr_class(const struct addr *addr)
{
    for (size_t i = 0; i < ARRAY_LEN(ranges); i++)
        if (addr->family == ranges[i].family &&
            bits_eq(addr->bytes, ranges[i].bytes, ranges[i].prefix))
            return ranges[i].class;
    return ADDR_RESERVED; /* of no family that we know */
}

const char *addr_class_name(enum addr_class class)
{
    return classes[class].name;
}

bool addr_never(enum addr_class class)
{
    return classes[class].never;
}
