/*
 * Layout of what is sealed: one byte of version, twelve of nonce, the text, sixteen of tag. A nonce
 * is random: at the few values that one server keeps, two equal ones do not happen.
 */
#include "base/seal.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/id.h"

#define VERSION 1
#define NONCE 12
#define TAG 16
#define PLAIN_MAX (1u << 20)

static_assert(SEAL_OVERHEAD == 1 + NONCE + TAG, "the parts are the whole");

/* ---- the key's file ---- */

static int key_read(struct seal_key *out, int fd, const char *name, struct err *err)
{
    struct seal_key key;
    struct stat st;
    char more;

    if (fstat(fd, &st) < 0)
        return err_sys(err, "look at %s", name);
    if (!S_ISREG(st.st_mode) || st.st_mode & 077)
        return err_set(err, ERR_FORBIDDEN, "%s is open to others than its owner", name);
    if (read(fd, &key, sizeof(key)) != (ssize_t)sizeof(key) || read(fd, &more, 1) != 0)
        return err_set(err, ERR_INTERNAL, "%s is no key of ours", name);
    *out = key;
    explicit_bzero(&key, sizeof(key));
    return 0;
}

/* Whole or not at all: written beside, then renamed. */
static int key_make(int dir, const char *name, struct err *err)
{
    static const char part[] = "key.part";
    struct seal_key key;

    if (unlinkat(dir, part, 0) < 0 && errno != ENOENT)
        return err_sys(err, "remove %s", part);
    autoclose int fd =
        openat(dir, part, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_sys(err, "make %s", name);
    random_bytes(&key, sizeof(key));
    ssize_t done = write(fd, &key, sizeof(key));
    explicit_bzero(&key, sizeof(key));
    if (done != (ssize_t)sizeof(key) || fsync(fd) < 0 ||
        renameat2(dir, part, dir, name, RENAME_NOREPLACE) < 0 || fsync(dir) < 0)
        return err_sys(err, "write %s", name);
    return 0;
}

int seal_key_load(struct seal_key *out, int dir, const char *name, struct err *err)
{
    for (int round = 0; round < 2; round++) {
        autoclose int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

        if (fd >= 0)
            return key_read(out, fd, name, err);
        if (errno != ENOENT || round)
            break;
        if (key_make(dir, name, err) < 0)
            return -1;
    }
    return err_sys(err, "open %s", name);
}

/* ---- sealing ---- */

static void cipher_drop(EVP_CIPHER_CTX **ctx)
{
    EVP_CIPHER_CTX_free(*ctx);
}
#define autocipher auto_with(cipher_drop)

static int refused(struct err *err)
{
    return err_set(err, ERR_INTERNAL,
                   "a sealed value does not open: another key, or changed bytes");
}

int seal(const struct seal_key *key, struct str context, struct str plain, struct buf *out,
         struct err *err)
{
    autocipher EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
    unsigned char head[1 + NONCE] = { VERSION }, tag[TAG];
    int len = 0, rest = 0;

    if (plain.n > PLAIN_MAX || context.n > PLAIN_MAX)
        return err_set(err, ERR_LIMIT, "too large to be sealed");
    random_bytes(head + 1, NONCE);
    autofree unsigned char *text = malloc(plain.n + 1);
    if (!ctx || !text ||
        EVP_EncryptInit_ex(ctx, EVP_chacha20_poly1305(), NULL, key->bytes, head + 1) != 1 ||
        EVP_EncryptUpdate(ctx, NULL, &len, (const unsigned char *)context.p, (int)context.n) != 1 ||
        EVP_EncryptUpdate(ctx, text, &len, (const unsigned char *)plain.p, (int)plain.n) != 1 ||
        EVP_EncryptFinal_ex(ctx, text + len, &rest) != 1 ||
        EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_GET_TAG, TAG, tag) != 1)
        return err_set(err, ERR_INTERNAL, "the cipher failed");
    buf_append(out, head, sizeof(head));
    buf_append(out, text, plain.n);
    buf_append(out, tag, sizeof(tag));
    return buf_ok(out) ? 0 : err_set(err, ERR_LIMIT, "too large to be sealed");
}

int unseal(const struct seal_key *key, struct str context, struct str sealed, struct buf *out,
           struct err *err)
{
    autocipher EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
    int len = 0, rest = 0;

    if (sealed.n < SEAL_OVERHEAD || sealed.n > PLAIN_MAX + SEAL_OVERHEAD || sealed.p[0] != VERSION)
        return refused(err);
    size_t size = sealed.n - SEAL_OVERHEAD;
    const unsigned char *nonce = (const unsigned char *)sealed.p + 1, *from = nonce + NONCE;
    autofree unsigned char *text = malloc(size + 1);
    int rc = 0;

    if (!ctx || !text ||
        EVP_DecryptInit_ex(ctx, EVP_chacha20_poly1305(), NULL, key->bytes, nonce) != 1)
        return err_set(err, ERR_INTERNAL, "the cipher failed");
    if (EVP_DecryptUpdate(ctx, NULL, &len, (const unsigned char *)context.p, (int)context.n) != 1 ||
        EVP_DecryptUpdate(ctx, text, &len, from, (int)size) != 1 ||
        EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_TAG, TAG, (void *)(uintptr_t)(from + size)) !=
            1 ||
        EVP_DecryptFinal_ex(ctx, text + len, &rest) != 1)
        rc = refused(err);
    else
        buf_append(out, text, size);
    explicit_bzero(text, size);
    return rc;
}
