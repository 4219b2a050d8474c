/*
 * Thin over libcrypto. What costs there is not hashing 40 bytes but looking the algorithm up and
 * making a context, so both happen once: algorithms per process, contexts per thread. A failure
 * inside libcrypto means that the machine is out of memory or the library is broken; nothing
 * sensible follows from a wrong digest, so it aborts.
 *
 * Hex and base64 are our own: libcrypto's base64 accepts whitespace and forgives bad padding.
 */
#include "base/hash.h"

#include <pthread.h>

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/params.h>

#include "base/mem.h"

struct contexts {
    EVP_MD_CTX *md;
    EVP_MAC_CTX *mac;
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t contexts_key;
static EVP_MD *md_sha256;
static EVP_MAC *mac_hmac;

static void must(bool worked)
{
    if (!worked)
        abort();
}

static void contexts_free(void *ptr)
{
    struct contexts *own = ptr;

    EVP_MD_CTX_free(own->md);
    EVP_MAC_CTX_free(own->mac);
    free(own);
}

static void fetch(void)
{
    md_sha256 = EVP_MD_fetch(NULL, "SHA256", NULL);
    mac_hmac = EVP_MAC_fetch(NULL, "HMAC", NULL);
    must(md_sha256 && mac_hmac && pthread_key_create(&contexts_key, contexts_free) == 0);
}

static struct contexts *contexts(void)
{
    pthread_once(&once, fetch);
    struct contexts *own = pthread_getspecific(contexts_key);

    if (own)
        return own;
    own = xnew(struct contexts);
    own->md = EVP_MD_CTX_new();
    own->mac = EVP_MAC_CTX_new(mac_hmac);
    char name[] = "SHA256";
    OSSL_PARAM params[] = { OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, name, 0),
                            OSSL_PARAM_construct_end() };
    must(own->md && own->mac && EVP_MAC_CTX_set_params(own->mac, params) == 1);
    must(EVP_DigestInit_ex2(own->md, md_sha256, NULL) == 1);
    must(pthread_setspecific(contexts_key, own) == 0);
    return own;
}

void sha256_parts(const struct str *parts, size_t count, unsigned char out[SHA256_SIZE])
{
    EVP_MD_CTX *md = contexts()->md;

    /* NULL keeps the algorithm that is already there: no look-up, no allocation. */
    must(EVP_DigestInit_ex2(md, NULL, NULL) == 1);
    for (size_t i = 0; i < count; i++)
        if (parts[i].n)
            must(EVP_DigestUpdate(md, parts[i].p, parts[i].n) == 1);
    must(EVP_DigestFinal_ex(md, out, NULL) == 1);
}

void sha256(const void *data, size_t len, unsigned char out[SHA256_SIZE])
{
    sha256_parts(&(struct str){ data, len }, 1, out);
}

struct sha256_stream {
    EVP_MD_CTX *md;
};

struct sha256_stream *sha256_new(void)
{
    struct sha256_stream *stream = xnew(struct sha256_stream);

    contexts(); /* the algorithm is there */
    stream->md = EVP_MD_CTX_new();
    must(stream->md && EVP_DigestInit_ex2(stream->md, md_sha256, NULL) == 1);
    return stream;
}

void sha256_put(struct sha256_stream *stream, const void *data, size_t len)
{
    if (len)
        must(EVP_DigestUpdate(stream->md, data, len) == 1);
}

void sha256_end(struct sha256_stream *stream, unsigned char out[SHA256_SIZE])
{
    must(EVP_DigestFinal_ex(stream->md, out, NULL) == 1);
    sha256_drop(stream);
}

void sha256_drop(struct sha256_stream *stream)
{
    if (stream)
        EVP_MD_CTX_free(stream->md);
    free(stream);
}

void sha1_parts(const struct str *parts, size_t count, unsigned char out[SHA1_SIZE])
{
    EVP_MD_CTX *md = EVP_MD_CTX_new();

    must(md && EVP_DigestInit_ex(md, EVP_sha1(), NULL) == 1);
    for (size_t i = 0; i < count; i++)
        if (parts[i].n)
            must(EVP_DigestUpdate(md, parts[i].p, parts[i].n) == 1);
    must(EVP_DigestFinal_ex(md, out, NULL) == 1);
    EVP_MD_CTX_free(md);
}

void hmac_sha256(struct str key, struct str data, unsigned char out[SHA256_SIZE])
{
    EVP_MAC_CTX *mac = contexts()->mac;
    size_t len = 0;

    /* A NULL key would mean "the key of the last call". */
    must(EVP_MAC_init(mac, (const unsigned char *)(key.n ? key.p : ""), key.n, NULL) == 1);
    if (data.n)
        must(EVP_MAC_update(mac, (const unsigned char *)data.p, data.n) == 1);
    must(EVP_MAC_final(mac, out, &len, SHA256_SIZE) == 1 && len == SHA256_SIZE);
}

bool secret_eq(const void *a, const void *b, size_t len)
{
    return CRYPTO_memcmp(a, b, len) == 0;
}

void hex_text(const void *data, size_t len, char *out)
{
    static const char digits[] = "0123456789abcdef";
    const unsigned char *p = data;

    for (size_t i = 0; i < len; i++) {
        out[2 * i] = digits[p[i] >> 4];
        out[2 * i + 1] = digits[p[i] & 15];
    }
    out[2 * len] = 0;
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

bool hex_bytes(struct str text, void *out, size_t len)
{
    unsigned char *p = out;

    if (text.n % 2 != 0 || text.n / 2 != len)
        return false;
    for (size_t i = 0; i < text.n; i++)
        if (hex_value(text.p[i]) < 0)
            return false;
    for (size_t i = 0; i < len; i++)
        p[i] = (unsigned char)((unsigned)hex_value(text.p[2 * i]) << 4 |
                               (unsigned)hex_value(text.p[2 * i + 1]));
    return true;
}

static void put_64(struct buf *out, const unsigned char *p, size_t len, const char *alphabet,
                   bool pad)
{
    for (size_t i = 0; i < len; i += 3) {
        size_t left = MIN(len - i, (size_t)3);
        uint32_t bits = (uint32_t)p[i] << 16;

        if (left > 1)
            bits |= (uint32_t)p[i + 1] << 8;
        if (left > 2)
            bits |= p[i + 2];
        char quad[4] = { alphabet[bits >> 18], alphabet[bits >> 12 & 63], alphabet[bits >> 6 & 63],
                         alphabet[bits & 63] };
        for (size_t k = left + 1; k < 4; k++)
            quad[k] = '=';
        buf_append(out, quad, pad ? 4 : left + 1);
    }
}

#define ALPHANUMERIC "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

void base64url_put(struct buf *out, const void *data, size_t len)
{
    put_64(out, data, len, ALPHANUMERIC "-_", false);
}

void base64_put(struct buf *out, const void *data, size_t len)
{
    put_64(out, data, len, ALPHANUMERIC "+/", true);
}

static int value_64(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    if (c == '-' || c == '+')
        return 62;
    if (c == '_' || c == '/')
        return 63;
    return -1;
}

/*
 * One meaning has one spelling (per alphabet): bits that no byte uses must be zero, and padding
 * either fills the last group exactly or is absent.
 */
bool base64_get(struct buf *out, struct str text)
{
    size_t before = out->len, pad = 0;
    uint32_t bits = 0;
    unsigned have = 0;

    while (pad < 2 && pad < text.n && text.p[text.n - 1 - pad] == '=')
        pad++;
    if (pad && text.n % 4 != 0)
        return false;
    text.n -= pad;
    if (text.n % 4 == 1)
        return false;
    for (size_t i = 0; i < text.n; i++) {
        int value = value_64(text.p[i]);

        if (value < 0) {
            out->len = before;
            return false;
        }
        bits = bits << 6 | (uint32_t)value;
        have += 6;
        if (have >= 8) {
            have -= 8;
            buf_putc(out, (char)(bits >> have & 0xff));
        }
    }
    if ((bits & ((1u << have) - 1)) != 0 || !buf_ok(out)) {
        out->len = before;
        return false;
    }
    return true;
}
