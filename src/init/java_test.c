/* java: a store as others read it; keytool itself is asked in tests/e2e/test_credentials.py. */
#include "init/java.c"

#include "base/buf.h"
#include "base/hash.h"
#include "base/test.h"

static const char pem[] = "-----BEGIN CERTIFICATE-----\nAAEC\nAwQ=\n-----END CERTIFICATE-----\n";
static const char other_pem[] =
    "-----BEGIN CERTIFICATE-----\n/////w==\n-----END CERTIFICATE-----\n";

static void add_number(struct buf *out, uint64_t value, unsigned bytes)
{
    while (bytes--)
        buf_putc(out, (char)(value >> (8 * bytes)));
}

static void add_text(struct buf *out, const char *text)
{
    add_number(out, strlen(text), 2);
    buf_puts(out, text);
}

static void add_certificate(struct buf *out, const char *data)
{
    add_text(out, "X.509");
    add_number(out, strlen(data), 4);
    buf_puts(out, data);
}

static void add_authority(struct buf *out, const char *name, const char *data)
{
    add_number(out, 2, 4);
    add_text(out, name);
    add_number(out, 12345, 8);
    add_certificate(out, data);
}

static void add_key(struct buf *out)
{
    add_number(out, 1, 4);
    add_text(out, "own key");
    add_number(out, 12345, 8);
    add_number(out, 3, 4);
    buf_puts(out, "key");
    add_number(out, 2, 4);
    add_certificate(out, "leaf");
    add_certificate(out, "root");
}

static void add_head(struct buf *out, uint32_t count)
{
    add_number(out, 0xfeedfeed, 4);
    add_number(out, 2, 4);
    add_number(out, count, 4);
}

/* As the library of the other programs computes it. */
static void add_digest(struct buf *out, const char *password)
{
    autobuf struct buf wide = { 0 };
    unsigned char digest[SHA1_SIZE];

    for (const char *at = password; *at; at++) {
        buf_putc(&wide, 0);
        buf_putc(&wide, *at);
    }
    const struct str parts[] = { buf_view(&wide), STR("Mighty Aphrodite"), buf_view(out) };
    sha1_parts(parts, ARRAY_LEN(parts), digest);
    buf_append(out, digest, sizeof(digest));
}

static enum java trust(struct buf *store, const char *what)
{
    uint8_t *out = NULL;
    size_t len = 0;
    enum java got =
        java_trust((const uint8_t *)store->data, store->len, what, strlen(what), 12345, &out, &len);

    if (got == JAVA_NEW) {
        buf_clear(store);
        buf_append(store, out, len);
    } else {
        CHECK(!out);
    }
    free(out);
    return got;
}

static bool same(const struct buf *a, const struct buf *b)
{
    return a->len == b->len && memcmp(a->data, b->data, a->len) == 0;
}

static void expect(struct buf *out, const char *ours, size_t ours_len)
{
    add_head(out, 4);
    add_authority(out, "one", "first");
    add_key(out);
    add_authority(out, "two", "");
    add_number(out, 2, 4);
    add_text(out, "atoll");
    add_number(out, 12345, 8);
    add_text(out, "X.509");
    add_number(out, ours_len, 4);
    buf_append(out, ours, ours_len);
    add_digest(out, "changeit");
}

TEST(an_authority_is_added_and_the_next_takes_its_place)
{
    autobuf struct buf store = { 0 }, first = { 0 }, second = { 0 };

    add_head(&store, 3);
    add_authority(&store, "one", "first");
    add_key(&store);
    add_authority(&store, "two", "");
    add_digest(&store, "changeit");
    expect(&first, "\0\1\2\3\4", 5);
    expect(&second, "\xff\xff\xff\xff", 4);
    CHECK_INT(trust(&store, pem), JAVA_NEW);
    CHECK(same(&store, &first));
    CHECK_INT(trust(&store, pem), JAVA_SAME);
    CHECK(same(&store, &first));
    CHECK_INT(trust(&store, other_pem), JAVA_NEW);
    CHECK(same(&store, &second));
}

TEST(an_empty_store_is_one)
{
    autobuf struct buf store = { 0 };

    add_head(&store, 0);
    add_digest(&store, "changeit");
    CHECK_INT(trust(&store, pem), JAVA_NEW);
    CHECK_INT(trust(&store, pem), JAVA_SAME);
}

TEST(what_is_no_store_is_left_alone)
{
    autobuf struct buf store = { 0 };

    add_head(&store, 1);
    add_authority(&store, "one", "first");
    add_digest(&store, "changeit");
    for (size_t i = 0; i < store.len; i++) { /* whatever is wrong with it */
        store.data[i] ^= 1;
        CHECK_INT(trust(&store, pem), JAVA_OTHER);
        store.data[i] ^= 1;
    }
    for (size_t len = store.len; len--;) {
        struct buf cut = store;

        cut.len = len;
        CHECK_INT(trust(&cut, pem), JAVA_OTHER);
    }
    CHECK_INT(trust(&store, ""), JAVA_OTHER);
    CHECK_INT(trust(&store, "-----BEGIN CERTIFICATE-----\nAAEC"), JAVA_OTHER);
    CHECK_INT(trust(&store, pem), JAVA_NEW);
}

static void check_other(struct buf *store)
{
    CHECK_INT(trust(store, pem), JAVA_OTHER);
    buf_clear(store);
}

TEST(what_says_more_than_it_has_is_left_alone)
{
    autobuf struct buf store = { 0 };

    add_head(&store, 1);
    add_authority(&store, "one", "first");
    add_digest(&store, "secret");
    check_other(&store); /* another password */
    add_head(&store, 2);
    add_authority(&store, "one", "first");
    add_digest(&store, "changeit");
    check_other(&store); /* fewer entries */
    add_head(&store, 0);
    add_authority(&store, "one", "first");
    add_digest(&store, "changeit");
    check_other(&store); /* more */
    add_head(&store, 1);
    add_number(&store, 3, 4);
    add_digest(&store, "changeit");
    check_other(&store); /* of another kind */
    add_head(&store, 1);
    add_number(&store, 1, 4);
    add_text(&store, "x");
    add_number(&store, 0, 8);
    add_number(&store, UINT32_MAX, 4);
    add_digest(&store, "changeit");
    check_other(&store); /* a key as large as can be said */
}
