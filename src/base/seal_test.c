/* What is sealed opens with its key and its context, and with nothing else. */
#include "base/seal.h"

#include <fcntl.h>
#include <openssl/core_names.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/id.h"
#include "base/test.h"

static int open_dir(const char *name)
{
    char path[4096];

    snprintf(path, sizeof(path), "%s/%s", test_dir(), name);
    CHECK(mkdir(path, 0700) == 0);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK(fd >= 0);
    return fd;
}

TEST(a_value_comes_back_and_does_not_show)
{
    struct seal_key key;
    struct err err;

    random_bytes(&key, sizeof(key));
    for (size_t size = 0; size < 300; size += 1 + test_rand(20)) {
        autobuf struct buf sealed = { 0 }, plain = { 0 }, again = { 0 };
        char text[300];

        memset(text, 'x', size);
        CHECK_OK(seal(&key, STR("t\0name"), (struct str){ text, size }, &sealed, &err), &err);
        CHECK_INT(sealed.len, size + SEAL_OVERHEAD);
        CHECK(size < 8 || !memmem(sealed.data, sealed.len, "xxxxxxxx", 8));
        CHECK_OK(seal(&key, STR("t\0name"), (struct str){ text, size }, &again, &err), &err);
        CHECK(!str_eq(buf_view(&sealed), buf_view(&again))); /* a nonce of its own */
        CHECK_OK(unseal(&key, STR("t\0name"), buf_view(&sealed), &plain, &err), &err);
        CHECK(str_eq(buf_view(&plain), (struct str){ text, size }));
    }
}

TEST(nothing_but_the_same_key_context_and_bytes_opens_it)
{
    autobuf struct buf sealed = { 0 }, plain = { 0 };
    struct seal_key key, other;
    struct err err;

    random_bytes(&key, sizeof(key));
    other = key;
    other.bytes[31] ^= 1;
    CHECK_OK(seal(&key, STR("a\0b"), STR("the value"), &sealed, &err), &err);
    CHECK(unseal(&other, STR("a\0b"), buf_view(&sealed), &plain, &err) < 0);
    CHECK(unseal(&key, STR("a\0c"), buf_view(&sealed), &plain, &err) < 0);
    CHECK_INT(err.code, ERR_INTERNAL);
    for (size_t i = 0; i < sealed.len; i++) {
        sealed.data[i] ^= 1;
        CHECK(unseal(&key, STR("a\0b"), buf_view(&sealed), &plain, &err) < 0);
        sealed.data[i] ^= 1;
        CHECK(unseal(&key, STR("a\0b"), (struct str){ sealed.data, i }, &plain, &err) < 0);
    }
    CHECK_INT(plain.len, 0);
    CHECK_OK(unseal(&key, STR("a\0b"), buf_view(&sealed), &plain, &err), &err);
}

TEST(the_key_is_made_once_for_its_owner_alone)
{
    autoclose int dir = open_dir("key");
    struct seal_key first, second;
    struct err err;
    struct stat st;

    CHECK_OK(seal_key_load(&first, dir, "k", &err), &err);
    CHECK(fstatat(dir, "k", &st, 0) == 0);
    CHECK_INT(st.st_mode & 07777, 0600);
    CHECK_OK(seal_key_load(&second, dir, "k", &err), &err);
    CHECK(memcmp(&first, &second, sizeof(first)) == 0);
}

TEST(a_key_that_others_can_read_or_that_is_none_is_refused)
{
    autoclose int dir = open_dir("bad");
    struct seal_key key;
    struct err err;

    CHECK_OK(seal_key_load(&key, dir, "k", &err), &err);
    CHECK(fchmodat(dir, "k", 0640, 0) == 0);
    CHECK(seal_key_load(&key, dir, "k", &err) < 0);
    CHECK_INT(err.code, ERR_FORBIDDEN);
    for (int extra = -1; extra <= 1; extra += 2) {
        autoclose int fd = openat(dir, "k", O_WRONLY | O_TRUNC | O_CLOEXEC);
        char bytes[SEAL_KEY_SIZE + 1] = "";
        size_t size = (size_t)(SEAL_KEY_SIZE + extra);

        CHECK(fchmodat(dir, "k", 0600, 0) == 0);
        CHECK(write(fd, bytes, size) == (ssize_t)size);
        CHECK(seal_key_load(&key, dir, "k", &err) < 0);
        CHECK_INT(err.code, ERR_INTERNAL);
    }
    CHECK(unlinkat(dir, "k", 0) == 0 && symlinkat("elsewhere", dir, "k") == 0);
    CHECK(seal_key_load(&key, dir, "k", &err) < 0);
}

TEST(what_is_sealed_to_a_key_opens_for_its_holder_alone)
{
    struct seal_private mine, other;
    struct seal_public to;
    struct err err;

    random_bytes(&mine, sizeof(mine));
    random_bytes(&other, sizeof(other));
    CHECK_OK(seal_public_of(&mine, &to, &err), &err);
    for (size_t size = 0; size < 300; size += 1 + test_rand(40)) {
        autobuf struct buf sealed = { 0 }, plain = { 0 }, again = { 0 };
        char text[300];

        memset(text, 'x', size);
        CHECK_OK(seal_to(&to, STR("t\0name"), (struct str){ text, size }, &sealed, &err), &err);
        CHECK_INT(sealed.len, size + SEAL_TO_OVERHEAD);
        CHECK(size < 8 || !memmem(sealed.data, sealed.len, "xxxxxxxx", 8));
        CHECK_OK(seal_to(&to, STR("t\0name"), (struct str){ text, size }, &again, &err), &err);
        CHECK(memcmp(sealed.data, again.data, SEAL_TO_OVERHEAD) != 0); /* a pair of its own */
        CHECK(unseal_mine(&other, STR("t\0name"), buf_view(&sealed), &plain, &err) < 0);
        CHECK(unseal_mine(&mine, STR("t\0nam"), buf_view(&sealed), &plain, &err) < 0);
        CHECK_INT(err.code, ERR_INTERNAL);
        CHECK_INT(plain.len, 0);
        CHECK_OK(unseal_mine(&mine, STR("t\0name"), buf_view(&sealed), &plain, &err), &err);
        CHECK(str_eq(buf_view(&plain), (struct str){ text, size }));
    }
}

TEST(no_changed_byte_and_no_cut_opens)
{
    autobuf struct buf sealed = { 0 }, plain = { 0 };
    struct seal_private mine;
    struct seal_public to, zero = { 0 };
    struct err err;

    random_bytes(&mine, sizeof(mine));
    CHECK_OK(seal_public_of(&mine, &to, &err), &err);
    CHECK_OK(seal_to(&to, STR("c"), STR("the value"), &sealed, &err), &err);
    for (size_t i = 0; i < sealed.len; i++) {
        sealed.data[i] ^= 1;
        CHECK(unseal_mine(&mine, STR("c"), buf_view(&sealed), &plain, &err) < 0);
        sealed.data[i] ^= 1;
        CHECK(unseal_mine(&mine, STR("c"), (struct str){ sealed.data, i }, &plain, &err) < 0);
    }
    CHECK_INT(plain.len, 0);
    CHECK(seal_to(&zero, STR("c"), STR("v"), &plain, &err) < 0); /* a key that agrees on nothing */
    CHECK_INT(plain.len, 0);
}

/* Who seals has the public key, the sealed bytes and what it made on the way. */
TEST(who_sealed_cannot_open)
{
    autobuf struct buf sealed = { 0 }, plain = { 0 };
    struct seal_private mine, as_private;
    struct seal_public to;
    struct err err;

    random_bytes(&mine, sizeof(mine));
    CHECK_OK(seal_public_of(&mine, &to, &err), &err);
    CHECK_OK(seal_to(&to, STR("c"), STR("the value"), &sealed, &err), &err);
    memcpy(&as_private, &to, sizeof(to));
    CHECK(unseal_mine(&as_private, STR("c"), buf_view(&sealed), &plain, &err) < 0);
    memcpy(&as_private, sealed.data + 1, sizeof(as_private));
    CHECK(unseal_mine(&as_private, STR("c"), buf_view(&sealed), &plain, &err) < 0);
    CHECK(unseal((struct seal_key *)&to, STR("c"), buf_view(&sealed), &plain, &err) < 0);
    CHECK_INT(plain.len, 0);
}

/* libcrypto's own HKDF is the judge of ours. */
TEST(a_derived_key_is_hkdf)
{
    static char salt[] = "atoll: derived", info[] = "a purpose", hash[] = "SHA256";
    unsigned char ours[SEAL_KEY_SIZE], theirs[SEAL_KEY_SIZE], other[SEAL_KEY_SIZE];
    struct seal_private mine;
    struct err err;

    random_bytes(&mine, sizeof(mine));
    CHECK_OK(seal_derive(&mine, STR("a purpose"), ours, &err), &err);
    EVP_KDF *kdf = EVP_KDF_fetch(NULL, "HKDF", NULL);
    EVP_KDF_CTX *ctx = EVP_KDF_CTX_new(kdf);
    const OSSL_PARAM params[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, hash, 0),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, mine.bytes, sizeof(mine.bytes)),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SALT, salt, sizeof(salt) - 1),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, info, sizeof(info) - 1),
        OSSL_PARAM_construct_end(),
    };
    CHECK(EVP_KDF_derive(ctx, theirs, sizeof(theirs), params) == 1);
    EVP_KDF_CTX_free(ctx);
    EVP_KDF_free(kdf);
    CHECK(memcmp(ours, theirs, sizeof(ours)) == 0);
    CHECK_OK(seal_derive(&mine, STR("another"), other, &err), &err);
    CHECK(memcmp(ours, other, sizeof(ours)) != 0);
    CHECK(seal_derive(&mine, STR_NONE, other, &err) < 0);
}
