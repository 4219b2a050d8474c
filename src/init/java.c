/*
 * What Java trusts is in a file of its own form (JKS): a head, entries, and a digest over all of it
 * that begins with a password everybody knows. An authority is added as one more entry, under a
 * name that the next one takes over; all others stay as they are, byte for byte.
 *
 *   store  magic, version 2, count · entries · SHA-1 (password, a greeting, all before)
 *   entry  1, alias, date, key, certificates…   |   2, alias, date, certificate
 *
 * Numbers are big-endian, texts have a length of two bytes. A store that is anything else, or whose
 * password is not the usual one, is not touched: whoever made it so must add to it himself.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "init/init.h"

#define DIGEST 20
#define HEAD 12
#define KEY_ENTRY 1
#define AUTHORITY_ENTRY 2
#define DER_MAX 8192

static const uint8_t head_of_store[] = { 0xfe, 0xed, 0xfe, 0xed, 0, 0, 0, 2 };
static const char alias[] = "atoll", type[] = "X.509";

/* ---- SHA-1, which the form wants; nothing rests on its strength ---- */

struct sha1 {
    uint32_t state[5];
    uint64_t size;
    uint8_t block[64];
};

static uint32_t rotl(uint32_t value, unsigned by)
{
    return value << by | value >> (32 - by);
}

static void sha1_block(struct sha1 *sha)
{
    static const uint32_t round[] = { 0x5a827999, 0x6ed9eba1, 0x8f1bbcdc, 0xca62c1d6 };
    uint32_t word[80], v[5];

    for (size_t i = 0; i < 16; i++)
        word[i] = (uint32_t)sha->block[4 * i] << 24 | (uint32_t)sha->block[4 * i + 1] << 16 |
                  (uint32_t)sha->block[4 * i + 2] << 8 | sha->block[4 * i + 3];
    for (unsigned i = 16; i < 80; i++)
        word[i] = rotl(word[i - 3] ^ word[i - 8] ^ word[i - 14] ^ word[i - 16], 1);
    memcpy(v, sha->state, sizeof(v));
    for (unsigned i = 0; i < 80; i++) {
        uint32_t mix = i < 20   ? (v[1] & v[2]) | (~v[1] & v[3])
                       : i < 40 ? v[1] ^ v[2] ^ v[3]
                       : i < 60 ? (v[1] & v[2]) | (v[1] & v[3]) | (v[2] & v[3])
                                : v[1] ^ v[2] ^ v[3];
        uint32_t next = rotl(v[0], 5) + mix + v[4] + round[i / 20] + word[i];

        v[4] = v[3];
        v[3] = v[2];
        v[2] = rotl(v[1], 30);
        v[1] = v[0];
        v[0] = next;
    }
    for (unsigned i = 0; i < 5; i++)
        sha->state[i] += v[i];
}

static void sha1_add(struct sha1 *sha, const void *data, size_t len)
{
    const uint8_t *from = data;

    for (size_t i = 0; i < len; i++) {
        sha->block[sha->size++ % 64] = from[i];
        if (sha->size % 64 == 0)
            sha1_block(sha);
    }
}

static void sha1_end(struct sha1 *sha, uint8_t out[DIGEST])
{
    uint64_t bits = sha->size * 8;
    uint8_t tail[8];

    sha1_add(sha, "\x80", 1);
    while (sha->size % 64 != 56)
        sha1_add(sha, "", 1);
    for (unsigned i = 0; i < 8; i++)
        tail[i] = (uint8_t)(bits >> (56 - 8 * i));
    sha1_add(sha, tail, sizeof(tail));
    for (unsigned i = 0; i < DIGEST; i++)
        out[i] = (uint8_t)(sha->state[i / 4] >> (24 - 8 * (i % 4)));
}

static void digest_of(const uint8_t *store, size_t len, uint8_t out[DIGEST])
{
    static const char password[] = "changeit", greeting[] = "Mighty Aphrodite";
    struct sha1 sha = { .state = { 0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0 } };

    for (size_t i = 0; i < sizeof(password) - 1; i++) {
        const char wide[2] = { 0, password[i] };

        sha1_add(&sha, wide, sizeof(wide));
    }
    sha1_add(&sha, greeting, sizeof(greeting) - 1);
    sha1_add(&sha, store, len);
    sha1_end(&sha, out);
}

/* ---- reading ---- */

struct reader {
    const uint8_t *at, *end;
    bool bad;
};

static const uint8_t *get(struct reader *in, size_t len)
{
    const uint8_t *from = in->at;

    if ((size_t)(in->end - in->at) < len) {
        in->bad = true;
        return NULL;
    }
    in->at += len;
    return from;
}

static uint32_t get_number(struct reader *in, unsigned bytes)
{
    const uint8_t *from = get(in, bytes);
    uint32_t value = 0;

    for (unsigned i = 0; from && i < bytes; i++)
        value = value << 8 | from[i];
    return value;
}

static void skip_certificate(struct reader *in)
{
    (void)get(in, get_number(in, 2));
    (void)get(in, get_number(in, 4));
}

/* Steps over an entry; true: it is the one that we made. */
static bool skip_entry(struct reader *in)
{
    uint32_t tag = get_number(in, 4), count = 1;
    size_t len = get_number(in, 2);
    const uint8_t *name = get(in, len);

    (void)get(in, 8);
    if (tag == KEY_ENTRY) {
        (void)get(in, get_number(in, 4));
        count = get_number(in, 4);
    } else if (tag != AUTHORITY_ENTRY) {
        in->bad = true;
    }
    for (uint32_t i = 0; i < count && !in->bad; i++)
        skip_certificate(in);
    return !in->bad && tag == AUTHORITY_ENTRY && len == sizeof(alias) - 1 &&
           memcmp(name, alias, len) == 0;
}

/* ---- writing ---- */

static uint8_t *put(uint8_t *to, const void *data, size_t len)
{
    memcpy(to, data, len);
    return to + len;
}

static uint8_t *put_number(uint8_t *to, uint64_t value, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++)
        to[i] = (uint8_t)(value >> (8 * (bytes - 1 - i)));
    return to + bytes;
}

static uint8_t *put_entry(uint8_t *to, const uint8_t *der, size_t len, uint64_t date_ms)
{
    to = put_number(to, AUTHORITY_ENTRY, 4);
    to = put_number(to, sizeof(alias) - 1, 2);
    to = put(to, alias, sizeof(alias) - 1);
    to = put_number(to, date_ms, 8);
    to = put_number(to, sizeof(type) - 1, 2);
    to = put(to, type, sizeof(type) - 1);
    to = put_number(to, len, 4);
    return put(to, der, len);
}

#define ENTRY_SIZE (4 + 2 + sizeof(alias) - 1 + 8 + 2 + sizeof(type) - 1 + 4)

/* ---- the certificate ---- */

static int value_of(char c)
{
    static const char all[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *found = c ? strchr(all, c) : NULL;

    return found ? (int)(found - all) : -1;
}

/* The bytes of the first certificate in PEM; 0: there is none. */
static size_t der_of(const char *pem, size_t len, uint8_t out[DER_MAX])
{
    static const char from[] = "-----BEGIN CERTIFICATE-----", to[] = "-----END CERTIFICATE-----";
    const char *at = memmem(pem, len, from, sizeof(from) - 1);
    uint32_t bits = 0;
    unsigned held = 0;
    size_t n = 0;

    if (!at)
        return 0;
    at += sizeof(from) - 1;
    const char *end = memmem(at, len - (size_t)(at - pem), to, sizeof(to) - 1);
    for (; end && at < end; at++) {
        int value = value_of(*at);

        if (value < 0)
            continue;
        bits = bits << 6 | (uint32_t)value;
        held += 6;
        if (held < 8)
            continue;
        held -= 8;
        if (n == DER_MAX)
            return 0;
        out[n++] = (uint8_t)(bits >> held);
    }
    return n;
}

/* Is it one, whole, with the password that everybody knows? */
static bool is_store(const uint8_t *store, size_t len)
{
    uint8_t digest[DIGEST];

    if (len < HEAD + DIGEST || memcmp(store, head_of_store, sizeof(head_of_store)) != 0)
        return false;
    digest_of(store, len - DIGEST, digest);
    return memcmp(digest, store + len - DIGEST, DIGEST) == 0;
}

/* Entries that are not ours go on; JAVA_NEW: ours is to follow them. */
static enum java copy_entries(struct reader *in, const uint8_t *der, size_t der_len, uint8_t **to,
                              uint32_t *kept)
{
    uint32_t count = get_number(in, 4);
    bool same = false;

    for (uint32_t i = 0; i < count && !in->bad; i++) {
        const uint8_t *entry = in->at;
        bool ours = skip_entry(in);
        size_t size = (size_t)(in->at - entry);

        if (ours) {
            same = size == ENTRY_SIZE + der_len && memcmp(in->at - der_len, der, der_len) == 0;
        } else if (!in->bad) {
            *to = put(*to, entry, size);
            ++*kept;
        }
    }
    return in->bad || in->at != in->end ? JAVA_OTHER : same ? JAVA_SAME : JAVA_NEW;
}

enum java java_trust(const uint8_t *store, size_t len, const char *pem, size_t pem_len,
                     uint64_t date_ms, uint8_t **out, size_t *out_len)
{
    uint8_t der[DER_MAX], *data, *to;
    size_t der_len = der_of(pem, pem_len, der);
    uint32_t kept = 0;

    if (!der_len || !is_store(store, len) || !(data = malloc(len + ENTRY_SIZE + der_len)))
        return JAVA_OTHER;
    struct reader in = { store + 8, store + len - DIGEST, false };
    to = put(data, store, HEAD);
    enum java what = copy_entries(&in, der, der_len, &to, &kept);
    if (what != JAVA_NEW) {
        free(data);
        return what;
    }
    to = put_entry(to, der, der_len, date_ms);
    (void)put_number(data + 8, kept + 1, 4);
    digest_of(data, (size_t)(to - data), to);
    *out = data;
    *out_len = (size_t)(to - data) + DIGEST;
    return JAVA_NEW;
}
