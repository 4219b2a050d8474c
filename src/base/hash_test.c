/* hash: published vectors, every length around a block, and strictness of the text forms. */
#include "base/hash.h"

#include <pthread.h>
#include <stdio.h>

#include "base/mem.h"
#include "base/test.h"

static void check_hex(const unsigned char digest[SHA256_SIZE], const char *want)
{
    char hex[SHA256_HEX_SIZE];

    hex_text(digest, SHA256_SIZE, hex);
    CHECK_STR(hex, want);
}

TEST(sha256_gives_the_published_vectors)
{
    /* FIPS 180-4 examples. */
    unsigned char out[SHA256_SIZE];

    sha256("", 0, out);
    check_hex(out, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    sha256("abc", 3, out);
    check_hex(out, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56, out);
    check_hex(out, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    sha256(NULL, 0, out);
    check_hex(out, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST(sha256_of_parts_is_sha256_of_the_whole)
{
    char data[300];

    for (int round = 0; round < 500; round++) {
        size_t len = test_rand(sizeof(data) + 1), cut = len ? test_rand((uint32_t)len + 1) : 0;
        unsigned char whole[SHA256_SIZE], parts[SHA256_SIZE];

        for (size_t i = 0; i < len; i++)
            data[i] = (char)test_rand(256);
        sha256(data, len, whole);
        struct str pieces[] = { { data, cut }, STR_NONE, { data + cut, len - cut } };
        sha256_parts(pieces, 3, parts);
        CHECK(memcmp(whole, parts, sizeof(whole)) == 0);
        struct sha256_stream *stream = sha256_new();
        for (size_t i = 0; i < ARRAY_LEN(pieces); i++)
            sha256_put(stream, pieces[i].p, pieces[i].n);
        sha256_end(stream, parts);
        CHECK(memcmp(whole, parts, sizeof(whole)) == 0);
    }
    sha256_drop(NULL);
    sha256_drop(sha256_new());
}

TEST(hmac_gives_the_vectors_of_rfc_4231)
{
    unsigned char out[SHA256_SIZE];
    char key[131];

    memset(key, 0x0b, 20);
    hmac_sha256((struct str){ key, 20 }, STR("Hi There"), out);
    check_hex(out, "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    hmac_sha256(STR("Jefe"), STR("what do ya want for nothing?"), out);
    check_hex(out, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    memset(key, 0xaa, 131);
    hmac_sha256((struct str){ key, 131 },
                STR("Test Using Larger Than Block-Size Key - Hash Key First"), out);
    check_hex(out, "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(hmac_with_an_empty_key_does_not_reuse_the_last_key)
{
    unsigned char out[SHA256_SIZE];

    hmac_sha256(STR("Jefe"), STR("x"), out);
    hmac_sha256(STR_NONE, STR_NONE, out);
    check_hex(out, "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
}

static void *hash_much(void *arg)
{
    unsigned char first[SHA256_SIZE], again[SHA256_SIZE], mac[SHA256_SIZE], mac_again[SHA256_SIZE];

    sha256(arg, strlen(arg), first);
    hmac_sha256(str_of(arg), STR("data"), mac);
    for (int i = 0; i < 2000; i++) {
        sha256(arg, strlen(arg), again);
        hmac_sha256(str_of(arg), STR("data"), mac_again);
        if (memcmp(first, again, sizeof(first)) != 0 || memcmp(mac, mac_again, sizeof(mac)) != 0)
            return arg;
    }
    return NULL;
}

TEST(threads_do_not_share_a_context)
{
    char names[4][8];
    pthread_t threads[4];

    for (int i = 0; i < 4; i++) {
        snprintf(names[i], sizeof(names[i]), "t%d", i);
        CHECK(pthread_create(&threads[i], NULL, hash_much, names[i]) == 0);
    }
    for (int i = 0; i < 4; i++) {
        void *wrong;

        CHECK(pthread_join(threads[i], &wrong) == 0);
        CHECK(!wrong);
    }
}

TEST(hex_reads_exactly_the_digits_wanted)
{
    unsigned char out[3] = { 9, 9, 9 };

    CHECK(hex_bytes(STR("00fFA7"), out, 3));
    CHECK(out[0] == 0x00 && out[1] == 0xff && out[2] == 0xa7);
    static const char *const bad[] = { "",       "00ffa",  "00ffa70", "00ffa700",
                                       "00ffag", "00ff a", "0x00ff" };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        CHECK(!hex_bytes(str_of(bad[i]), out, 3));
    CHECK(!hex_bytes((struct str){ "00ff\0a", 6 }, out, 3));
    CHECK(out[0] == 0x00 && out[1] == 0xff && out[2] == 0xa7); /* refusals touch nothing */
    CHECK(hex_bytes(STR_NONE, out, 0));
}

TEST(base64_gives_the_vectors_of_rfc_4648)
{
    static const char *const vectors[][2] = {
        { "", "" },
        { "f", "Zg==" },
        { "fo", "Zm8=" },
        { "foo", "Zm9v" },
        { "foob", "Zm9vYg==" },
        { "fooba", "Zm9vYmE=" },
        { "foobar", "Zm9vYmFy" },
    };

    for (size_t i = 0; i < ARRAY_LEN(vectors); i++) {
        autobuf struct buf out = { 0 }, back = { 0 };

        base64_put(&out, vectors[i][0], strlen(vectors[i][0]));
        CHECK_STR(buf_cstr(&out), vectors[i][1]);
        CHECK(base64_get(&back, buf_view(&out)));
        CHECK_STR(buf_cstr(&back), vectors[i][0]);
    }
}

TEST(base64url_has_no_padding_and_its_own_two_digits)
{
    autobuf struct buf url = { 0 }, plain = { 0 }, back = { 0 };

    base64url_put(&url, "\xfb\xff\xfe\xff", 4);
    CHECK_STR(buf_cstr(&url), "-__-_w");
    base64_put(&plain, "\xfb\xff\xfe\xff", 4);
    CHECK_STR(buf_cstr(&plain), "+//+/w==");
    CHECK(base64_get(&back, buf_view(&url)) && base64_get(&back, buf_view(&plain)));
    CHECK(back.len == 8 && memcmp(back.data, "\xfb\xff\xfe\xff\xfb\xff\xfe\xff", 8) == 0);
}

TEST(base64_round_trips_random_bytes)
{
    for (int round = 0; round < 1000; round++) {
        autobuf struct buf out = { 0 }, back = { 0 };
        char data[80];
        size_t len = test_rand(sizeof(data));

        for (size_t i = 0; i < len; i++)
            data[i] = (char)test_rand(256);
        if (test_rand(2))
            base64_put(&out, data, len);
        else
            base64url_put(&out, data, len);
        CHECK(base64_get(&back, buf_view(&out)));
        CHECK(back.len == len && (len == 0 || memcmp(back.data, data, len) == 0));
    }
}

TEST(base64_refuses_every_other_spelling_and_leaves_the_buffer)
{
    static const char *const bad[] = {
        "Z",    "Zg=",  "Zg===", "Z===", "=",    "==",       "====",  "Zm9vY",  "Zm 9v", "Zm9v\n",
        "Zh==", "Zm9=", "Zh",    "Zm9",  "Z=g=", "Zg==Zg==", "Zm9v=", "Zm9v==", "Zm.v",  "Zm9\x80",
    };

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        autobuf struct buf out = { 0 };

        buf_puts(&out, "kept");
        if (base64_get(&out, str_of(bad[i])))
            test_fail(__FILE__, __LINE__, "accepted \"%s\"", bad[i]);
        CHECK_STR(buf_cstr(&out), "kept");
    }
    autobuf struct buf small = { .max = 2 };
    CHECK(base64_get(&small, STR("Zm8=")));
    buf_clear(&small);
    CHECK(!base64_get(&small, STR("Zm9v")));
}

TEST(secrets_compare_by_every_byte)
{
    char a[64], b[64];

    for (size_t i = 0; i < sizeof(a); i++)
        a[i] = b[i] = (char)test_rand(256);
    CHECK(secret_eq(a, b, sizeof(a)));
    for (size_t i = 0; i < sizeof(a); i++) {
        b[i] = (char)(b[i] ^ 1);
        CHECK(!secret_eq(a, b, sizeof(a)));
        b[i] = (char)(b[i] ^ 1);
    }
    CHECK(secret_eq(a, "", 0));
}

TEST(sha1_names_a_file_as_git_does)
{
    const struct str parts[] = { STR("blob 6\0"), STR_NONE, STR("hello\n") };
    unsigned char digest[SHA1_SIZE];
    char text[SHA1_HEX_SIZE];

    sha1_parts(parts, ARRAY_LEN(parts), digest);
    hex_text(digest, sizeof(digest), text);
    CHECK_STR(text, "ce013625030ba8dba906f756967f9e9ca394464a");
}
