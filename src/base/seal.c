/*
 * Layout of what is sealed under a key: one byte of version, twelve of nonce, the text, sixteen of
 * tag. A nonce is random: at the few values that one server keeps, two equal ones do not happen.
 *
 * What is sealed to the holder of a private key has a public key in place of the nonce: of a pair
 * that was made for this one value. Its private half is dropped when the value is sealed.
 */
#include "base/seal.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/hash.h"
#include "base/id.h"

#define VERSION 1
#define VERSION_TO 2
#define NONCE 12
#define TAG 16
#define PLAIN_MAX (1u << 20)

static_assert(SEAL_OVERHEAD == 1 + NONCE + TAG, "the parts are the whole");
static_assert(SEAL_TO_OVERHEAD == 1 + SEAL_KEY_SIZE + TAG, "the parts are the whole");

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

/* ---- the cipher ---- */

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

static int failed(struct err *err)
{
    return err_set(err, ERR_INTERNAL, "the cipher failed");
}

/* Appends head, text and tag. */
static int close_up(const unsigned char *key, const unsigned char *nonce, struct str head,
                    struct str context, struct str plain, struct buf *out, struct err *err)
{
    autocipher EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
    unsigned char tag[TAG];
    int len = 0, rest = 0;

    if (plain.n > PLAIN_MAX || context.n > PLAIN_MAX)
        return err_set(err, ERR_LIMIT, "too large to be sealed");
    autofree unsigned char *text = malloc(plain.n + 1);
    if (!ctx || !text || EVP_EncryptInit_ex(ctx, EVP_chacha20_poly1305(), NULL, key, nonce) != 1 ||
        EVP_EncryptUpdate(ctx, NULL, &len, (const unsigned char *)context.p, (int)context.n) != 1 ||
        EVP_EncryptUpdate(ctx, text, &len, (const unsigned char *)plain.p, (int)plain.n) != 1 ||
        EVP_EncryptFinal_ex(ctx, text + len, &rest) != 1 ||
        EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_GET_TAG, TAG, tag) != 1)
        return failed(err);
    buf_append(out, head.p, head.n);
    buf_append(out, text, plain.n);
    buf_append(out, tag, sizeof(tag));
    return buf_ok(out) ? 0 : err_set(err, ERR_LIMIT, "too large to be sealed");
}

/* `sealed` is text and tag: at least TAG bytes. */
static int open_up(const unsigned char *key, const unsigned char *nonce, struct str context,
                   struct str sealed, struct buf *out, struct err *err)
{
    autocipher EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
    const unsigned char *from = (const unsigned char *)sealed.p;
    size_t size = sealed.n - TAG;
    autofree unsigned char *text = malloc(size + 1);
    int len = 0, rest = 0, rc = 0;

    if (!ctx || !text || EVP_DecryptInit_ex(ctx, EVP_chacha20_poly1305(), NULL, key, nonce) != 1)
        return failed(err);
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

/* Of the right version, and not so small or so large that it cannot be ours. */
static bool shaped(struct str sealed, char version, size_t overhead)
{
    return sealed.n >= overhead && sealed.n <= PLAIN_MAX + overhead && sealed.p[0] == version;
}

/* ---- under one key ---- */

int seal(const struct seal_key *key, struct str context, struct str plain, struct buf *out,
         struct err *err)
{
    unsigned char head[1 + NONCE] = { VERSION };

    random_bytes(head + 1, NONCE);
    return close_up(key->bytes, head + 1, (struct str){ (char *)head, sizeof(head) }, context,
                    plain, out, err);
}

int unseal(const struct seal_key *key, struct str context, struct str sealed, struct buf *out,
           struct err *err)
{
    if (!shaped(sealed, VERSION, SEAL_OVERHEAD))
        return refused(err);
    return open_up(key->bytes, (const unsigned char *)sealed.p + 1, context,
                   str_from(sealed, 1 + NONCE), out, err);
}

/* ---- to the holder of a private key ---- */

static void pkey_drop(EVP_PKEY **key)
{
    EVP_PKEY_free(*key);
}
#define autopkey auto_with(pkey_drop)

static void agree_drop(EVP_PKEY_CTX **ctx)
{
    EVP_PKEY_CTX_free(*ctx);
}
#define autoagree auto_with(agree_drop)

static EVP_PKEY *private_key(const unsigned char *bytes)
{
    return EVP_PKEY_new_raw_private_key(EVP_PKEY_X25519, NULL, bytes, SEAL_KEY_SIZE);
}

int seal_public_of(const struct seal_private *mine, struct seal_public *out, struct err *err)
{
    autopkey EVP_PKEY *key = private_key(mine->bytes);
    struct seal_public made;
    size_t len = sizeof(made);

    if (!key || EVP_PKEY_get_raw_public_key(key, made.bytes, &len) != 1 || len != sizeof(made))
        return failed(err);
    *out = made;
    return 0;
}

/* HKDF with SHA-256 (RFC 5869); 32 bytes are its first block. */
static void stretch(struct str salt, struct str secret, struct str info,
                    unsigned char out[SEAL_KEY_SIZE])
{
    unsigned char middle[SHA256_SIZE];
    autobuf struct buf last = { 0 };

    hmac_sha256(salt, secret, middle);
    buf_append(&last, info.p, info.n);
    buf_putc(&last, 1);
    hmac_sha256((struct str){ (char *)middle, sizeof(middle) }, buf_view(&last), out);
    explicit_bzero(middle, sizeof(middle));
}

/*
 * The key of one sealed value, out of what only both ends can know and of both public keys: with
 * another of either, it is another key. libcrypto refuses a peer whose every agreement is zero.
 */
static int agree(EVP_PKEY *mine, const unsigned char *theirs, const unsigned char *first,
                 const unsigned char *second, unsigned char key[SEAL_KEY_SIZE], struct err *err)
{
    autopkey EVP_PKEY *peer =
        EVP_PKEY_new_raw_public_key(EVP_PKEY_X25519, NULL, theirs, SEAL_KEY_SIZE);
    autoagree EVP_PKEY_CTX *ctx = mine ? EVP_PKEY_CTX_new(mine, NULL) : NULL;
    unsigned char shared[SEAL_KEY_SIZE], both[2 * SEAL_KEY_SIZE];
    size_t len = sizeof(shared);

    if (!peer || !ctx || EVP_PKEY_derive_init(ctx) != 1 ||
        EVP_PKEY_derive_set_peer(ctx, peer) != 1 || EVP_PKEY_derive(ctx, shared, &len) != 1 ||
        len != sizeof(shared))
        return refused(err);
    memcpy(both, first, SEAL_KEY_SIZE);
    memcpy(both + SEAL_KEY_SIZE, second, SEAL_KEY_SIZE);
    stretch((struct str){ (char *)both, sizeof(both) }, (struct str){ (char *)shared, len },
            STR("atoll: sealed to a key"), key);
    explicit_bzero(shared, sizeof(shared));
    return 0;
}

/* A key is used once, so every nonce may be this one. */
static const unsigned char once[NONCE];

int seal_to(const struct seal_public *to, struct str context, struct str plain, struct buf *out,
            struct err *err)
{
    autopkey EVP_PKEY *mine = EVP_PKEY_Q_keygen(NULL, NULL, "X25519");
    unsigned char head[1 + SEAL_KEY_SIZE] = { VERSION_TO }, key[SEAL_KEY_SIZE];
    size_t len = SEAL_KEY_SIZE;

    if (!mine || EVP_PKEY_get_raw_public_key(mine, head + 1, &len) != 1)
        return failed(err);
    if (agree(mine, to->bytes, head + 1, to->bytes, key, err) < 0)
        return -1;
    int rc =
        close_up(key, once, (struct str){ (char *)head, sizeof(head) }, context, plain, out, err);
    explicit_bzero(key, sizeof(key));
    return rc;
}

int unseal_mine(const struct seal_private *mine, struct str context, struct str sealed,
                struct buf *out, struct err *err)
{
    autopkey EVP_PKEY *own = private_key(mine->bytes);
    unsigned char key[SEAL_KEY_SIZE];
    struct seal_public to;

    if (!shaped(sealed, VERSION_TO, SEAL_TO_OVERHEAD))
        return refused(err);
    const unsigned char *from = (const unsigned char *)sealed.p + 1;
    if (seal_public_of(mine, &to, err) < 0 || agree(own, from, from, to.bytes, key, err) < 0)
        return -1;
    int rc = open_up(key, once, context, str_from(sealed, 1 + SEAL_KEY_SIZE), out, err);
    explicit_bzero(key, sizeof(key));
    return rc;
}

int seal_derive(const struct seal_private *mine, struct str purpose,
                unsigned char out[SEAL_KEY_SIZE], struct err *err)
{
    if (!purpose.n)
        return err_set(err, ERR_INTERNAL, "a derived key needs a purpose");
    stretch(STR("atoll: derived"), (struct str){ (const char *)mine->bytes, sizeof(mine->bytes) },
            purpose, out);
    return 0;
}
