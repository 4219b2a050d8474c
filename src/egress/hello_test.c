/* A real client's message, and every byte of its structure wrong once. */
#include "egress/hello.h"

#include <stdlib.h>
#include <string.h>

#include <openssl/ssl.h>

#include "base/test.h"

/* What OpenSSL says first, for this name (NULL: none); its length. */
static size_t real(const char *name, uint8_t *out, size_t size)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    SSL *ssl = SSL_new(ctx);
    BIO *in = BIO_new(BIO_s_mem()), *sent = BIO_new(BIO_s_mem());

    SSL_set_bio(ssl, in, sent);
    if (name)
        SSL_set_tlsext_host_name(ssl, name);
    (void)SSL_connect(ssl);
    int got = BIO_read(sent, out, (int)size);
    CHECK(got > 100);
    SSL_free(ssl);
    SSL_CTX_free(ctx);
    return (size_t)got;
}

TEST(a_real_client_is_understood)
{
    uint8_t data[4096];
    struct host host = { 0 };
    size_t len = real("Example.TEST", data, sizeof(data));

    CHECK(hello_read(data, len, &host) == HELLO_NAMED);
    CHECK(str_is(host_str(&host), "example.test"));
    for (size_t i = 0; i < len; i++)
        CHECK(hello_read(data, i, &host) == HELLO_MORE);
    len = real(NULL, data, sizeof(data));
    CHECK(hello_read(data, len, &host) == HELLO_UNNAMED);
}

static enum hello named(const char *name)
{
    uint8_t data[4096];
    struct host host;

    return hello_read(data, real(name, data, sizeof(data)), &host);
}

TEST(a_server_name_is_a_name)
{
    CHECK(named("a-1.test") == HELLO_NAMED);
    CHECK(named("1.2.3.4") == HELLO_BAD);
    CHECK(named("a_b.test") == HELLO_BAD);
    CHECK(named("a.test.") == HELLO_BAD);
    CHECK(named("caf\xc3\xa9.test") == HELLO_BAD);
    CHECK(named("a..test") == HELLO_BAD);
}

TEST(anything_else_is_not_tls)
{
    struct host host;

    CHECK(hello_read((const uint8_t *)"GET / HTTP/1.1\r\n", 16, &host) == HELLO_BAD);
    CHECK(hello_read((const uint8_t *)"S", 1, &host) == HELLO_BAD); /* at the first byte */
    CHECK(hello_read((const uint8_t *)"\x16\x03\x01\x00\x03", 5, &host) == HELLO_BAD);
    CHECK(hello_read((const uint8_t *)"\x16\x03\x01\x40\x01", 5, &host) == HELLO_BAD);
    CHECK(hello_read((const uint8_t *)"\x16\x03\x05\x01\x00", 5, &host) == HELLO_BAD);
    CHECK(hello_read((const uint8_t *)"\x16\x03\x01\x01\x00\x02", 6, &host) == HELLO_BAD);
    CHECK(hello_read((const uint8_t *)"\x16\x02", 2, &host) == HELLO_BAD);
}

/* Where the extension of the server name begins: its type, 0, and then a list of one. */
static size_t name_at(const uint8_t *data, size_t len)
{
    for (size_t i = 40; i + 9 < len; i++)
        if (data[i] == 0 && data[i + 1] == 0 && data[i + 2] == 0 && data[i + 4] == 0 &&
            data[i + 6] == 0 && data[i + 3] == data[i + 5] + 2 && data[i + 5] == data[i + 8] + 3)
            return i;
    CHECK(false);
    return 0;
}

TEST(every_length_counts)
{
    uint8_t data[4096];
    struct host host;
    size_t len = real("example.test", data, sizeof(data)), at = name_at(data, len);
    const size_t lengths[] = { 8, at + 3, at + 5, at + 8 };

    for (size_t i = 0; i < ARRAY_LEN(lengths); i++)
        for (int by = -1; by <= 1; by += 2) {
            data[lengths[i]] = (uint8_t)(data[lengths[i]] + by);
            CHECK(hello_read(data, len, &host) == HELLO_BAD);
            data[lengths[i]] = (uint8_t)(data[lengths[i]] - by);
        }
    data[at + 6] = 1; /* a name of another type */
    CHECK(hello_read(data, len, &host) == HELLO_BAD);
}

TEST(two_server_names_are_one_too_many)
{
    uint8_t data[4096], twice[4096];
    struct host host;
    size_t len = real("example.test", data, sizeof(data)), at = name_at(data, len),
           size = 4u + data[at + 3];

    memcpy(twice, data, at + size);
    memcpy(twice + at + size, data + at, len - at);
    len += size;
    for (size_t place = 3; place <= 7; place += 4) { /* record, message */
        size_t value = (size_t)(twice[place] << 8 | twice[place + 1]) + size;

        twice[place] = (uint8_t)(value >> 8);
        twice[place + 1] = (uint8_t)value;
    }
    size_t list = 5 + 4 + 34;
    list += 1u + twice[list];
    list += 2u + (size_t)(twice[list] << 8 | twice[list + 1]);
    list += 1u + twice[list];
    size_t all = (size_t)(twice[list] << 8 | twice[list + 1]) + size;
    twice[list] = (uint8_t)(all >> 8);
    twice[list + 1] = (uint8_t)all;
    CHECK(hello_read(twice, len, &host) == HELLO_BAD);
    twice[at + 1] = 99; /* the first is something else: then it is fine */
    CHECK(hello_read(twice, len, &host) == HELLO_NAMED);
}
