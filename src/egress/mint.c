/*
 * All certificates of hosts share one key pair, made with the mint: what tells them apart is the
 * name in them. Leaves stand in a table in the order of their last use, the newest first; 64 of
 * them are walked faster than a map is kept.
 */
#include "egress/mint.h"

#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/param_build.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "base/id.h"
#include "base/mem.h"

#define SERIAL_SIZE 16
#define POINT_SIZE 65 /* of P-256, uncompressed */

struct leaf {
    char host[HOST_TEXT_SIZE];
    int64_t until_s;
    X509 *cert;
};

struct mint {
    EVP_PKEY *ca_key, *leaf_key;
    X509 *ca;
    int64_t ca_until_s;
    unsigned count;
    struct leaf leaves[MINT_LEAVES_MAX]; /* the last used first */
};

static void drop_bn(BIGNUM **bn)
{
    BN_clear_free(*bn);
}

static void drop_group(EC_GROUP **group)
{
    EC_GROUP_free(*group);
}

static void drop_point(EC_POINT **point)
{
    EC_POINT_free(*point);
}

static void drop_build(OSSL_PARAM_BLD **build)
{
    OSSL_PARAM_BLD_free(*build);
}

static void drop_params(OSSL_PARAM **params)
{
    OSSL_PARAM_free(*params);
}

static void drop_ctx(EVP_PKEY_CTX **ctx)
{
    EVP_PKEY_CTX_free(*ctx);
}

static void drop_cert(X509 **cert)
{
    X509_free(*cert);
}

static void drop_bio(BIO **bio)
{
    BIO_free(*bio);
}

static int failed(struct err *err, const char *what)
{
    ERR_clear_error();
    return err_set(err, ERR_INTERNAL, "%s: the library failed", what);
}

void mint_free(struct mint *mint)
{
    if (!mint)
        return;
    for (unsigned i = 0; i < mint->count; i++)
        X509_free(mint->leaves[i].cert);
    X509_free(mint->ca);
    EVP_PKEY_free(mint->ca_key);
    EVP_PKEY_free(mint->leaf_key);
    free(mint);
}

/* ---- the authority's key ---- */

/* A number from 1 to the order of the curve: one that is not is as good as impossible. */
static BIGNUM *scalar_of(const struct seal_private *key, struct str box, const EC_GROUP *group,
                         struct err *err)
{
    for (char round = 0; round < 4; round++) {
        unsigned char bytes[SEAL_KEY_SIZE];
        autobuf struct buf purpose = { 0 };

        buf_puts(&purpose, "authority ");
        buf_putc(&purpose, round);
        buf_str(&purpose, box);
        if (seal_derive(key, buf_view(&purpose), bytes, err) < 0)
            return NULL;
        BIGNUM *scalar = BN_bin2bn(bytes, sizeof(bytes), NULL);
        explicit_bzero(bytes, sizeof(bytes));
        if (scalar && !BN_is_zero(scalar) && BN_cmp(scalar, EC_GROUP_get0_order(group)) < 0)
            return scalar;
        BN_clear_free(scalar);
    }
    failed(err, "the key of an authority");
    return NULL;
}

static EVP_PKEY *pair_of(const BIGNUM *scalar, const unsigned char point[POINT_SIZE])
{
    OSSL_PARAM_BLD *build auto_with(drop_build) = OSSL_PARAM_BLD_new();
    EVP_PKEY_CTX *ctx auto_with(drop_ctx) = EVP_PKEY_CTX_new_from_name(NULL, "EC", NULL);
    EVP_PKEY *key = NULL;

    if (!build || !ctx ||
        OSSL_PARAM_BLD_push_utf8_string(build, OSSL_PKEY_PARAM_GROUP_NAME, "P-256", 0) != 1 ||
        OSSL_PARAM_BLD_push_BN(build, OSSL_PKEY_PARAM_PRIV_KEY, scalar) != 1 ||
        OSSL_PARAM_BLD_push_octet_string(build, OSSL_PKEY_PARAM_PUB_KEY, point, POINT_SIZE) != 1)
        return NULL;
    OSSL_PARAM *params auto_with(drop_params) = OSSL_PARAM_BLD_to_param(build);
    if (!params || EVP_PKEY_fromdata_init(ctx) != 1 ||
        EVP_PKEY_fromdata(ctx, &key, EVP_PKEY_KEYPAIR, params) != 1)
        return NULL;
    return key;
}

static EVP_PKEY *authority_key(const struct seal_private *key, struct str box, struct err *err)
{
    EC_GROUP *group auto_with(drop_group) = EC_GROUP_new_by_curve_name(NID_X9_62_prime256v1);
    EC_POINT *point auto_with(drop_point) = group ? EC_POINT_new(group) : NULL;
    BIGNUM *scalar auto_with(drop_bn) = point ? scalar_of(key, box, group, err) : NULL;
    unsigned char bytes[POINT_SIZE];

    if (point && !scalar)
        return NULL;
    if (!point || EC_POINT_mul(group, point, scalar, NULL, NULL, NULL) != 1 ||
        EC_POINT_point2oct(group, point, POINT_CONVERSION_UNCOMPRESSED, bytes, sizeof(bytes),
                           NULL) != POINT_SIZE) {
        failed(err, "the key of an authority");
        return NULL;
    }
    EVP_PKEY *pair = pair_of(scalar, bytes);
    if (!pair)
        failed(err, "the key of an authority");
    return pair;
}

/* ---- certificates ---- */

static bool set_times(X509 *cert, int64_t from_s, int64_t until_s)
{
    return ASN1_TIME_set(X509_getm_notBefore(cert), from_s) &&
           ASN1_TIME_set(X509_getm_notAfter(cert), until_s);
}

/* Random and positive: no two certificates of one authority may share one. */
static bool set_serial(X509 *cert)
{
    unsigned char bytes[SERIAL_SIZE];

    random_bytes(bytes, sizeof(bytes));
    bytes[0] = (bytes[0] & 0x7f) | 0x40;
    BIGNUM *number auto_with(drop_bn) = BN_bin2bn(bytes, sizeof(bytes), NULL);
    return number && BN_to_ASN1_INTEGER(number, X509_get_serialNumber(cert));
}

static bool put_name(X509_NAME *name, const char *part, struct str text)
{
    return X509_NAME_add_entry_by_txt(name, part, MBSTRING_ASC, (const unsigned char *)text.p,
                                      (int)text.n, -1, 0) == 1;
}

/* What is signed by whom; `value` in the library's own words. */
static bool put_extension(X509 *cert, X509 *issuer, int nid, const char *value)
{
    X509V3_CTX ctx;

    X509V3_set_ctx_nodb(&ctx);
    X509V3_set_ctx(&ctx, issuer, cert, NULL, NULL, 0);
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
    bool good = extension && X509_add_ext(cert, extension, -1) == 1;
    X509_EXTENSION_free(extension);
    return good;
}

static int make_ca(struct mint *mint, struct str box, int64_t now_s, struct err *err)
{
    X509 *cert auto_with(drop_cert) = X509_new();
    X509_NAME *name = cert ? X509_get_subject_name(cert) : NULL;

    mint->ca_until_s = now_s + MINT_CA_S;
    if (!cert || X509_set_version(cert, X509_VERSION_3) != 1 || !set_serial(cert) ||
        !set_times(cert, now_s - MINT_BACK_S, mint->ca_until_s) ||
        !put_name(name, "O", STR("Atoll")) || !put_name(name, "CN", box) ||
        X509_set_issuer_name(cert, name) != 1 || X509_set_pubkey(cert, mint->ca_key) != 1 ||
        !put_extension(cert, cert, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") ||
        !put_extension(cert, cert, NID_key_usage, "critical,keyCertSign") ||
        !put_extension(cert, cert, NID_ext_key_usage, "serverAuth") ||
        !put_extension(cert, cert, NID_subject_key_identifier, "hash") ||
        X509_sign(cert, mint->ca_key, EVP_sha256()) <= 0)
        return failed(err, "the certificate of an authority");
    mint->ca = take_ptr(&cert);
    return 0;
}

int mint_new(struct mint **out, const struct seal_private *key, struct str box, int64_t now_s,
             struct err *err)
{
    struct mint *mint = xnew(struct mint);
    int rc = -1;

    mint->ca_key = authority_key(key, box, err);
    mint->leaf_key = EVP_EC_gen("P-256");
    if (mint->ca_key && mint->leaf_key)
        rc = make_ca(mint, box, now_s, err);
    else if (mint->ca_key)
        failed(err, "the key of certificates");
    if (rc < 0) {
        mint_free(mint);
        return -1;
    }
    *out = mint;
    return 0;
}

int mint_ca_pem(const struct mint *mint, struct buf *out, struct err *err)
{
    BIO *bio auto_with(drop_bio) = BIO_new(BIO_s_mem());
    char *data = NULL;

    if (!bio || PEM_write_bio_X509(bio, mint->ca) != 1)
        return failed(err, "the certificate of an authority");
    long len = BIO_get_mem_data(bio, &data);
    buf_append(out, data, (size_t)len);
    return 0;
}

uint32_t mint_hash(const struct mint *mint)
{
    return (uint32_t)X509_subject_name_hash(mint->ca);
}

bool mint_stale(const struct mint *mint, int64_t now_s)
{
    return now_s > mint->ca_until_s - MINT_CA_S / 2;
}

/*
 * The name stands in subjectAltName, where clients look, and in the common name where it fits, for
 * people. The host was validated: nothing in it means anything to the library's little language.
 */
static X509 *make_leaf(struct mint *mint, const struct host *host, int64_t now_s, int64_t until_s)
{
    X509 *cert auto_with(drop_cert) = X509_new();
    autobuf struct buf names = { 0 };
    struct str shown = host->len <= 64 ? host_str(host) : STR("a host");

    buf_puts(&names, "DNS:");
    buf_str(&names, host_str(host));
    if (!cert || X509_set_version(cert, X509_VERSION_3) != 1 || !set_serial(cert) ||
        !set_times(cert, now_s - MINT_BACK_S, until_s) ||
        !put_name(X509_get_subject_name(cert), "CN", shown) ||
        X509_set_issuer_name(cert, X509_get_subject_name(mint->ca)) != 1 ||
        X509_set_pubkey(cert, mint->leaf_key) != 1 ||
        !put_extension(cert, mint->ca, NID_basic_constraints, "critical,CA:FALSE") ||
        !put_extension(cert, mint->ca, NID_key_usage, "critical,digitalSignature") ||
        !put_extension(cert, mint->ca, NID_ext_key_usage, "serverAuth") ||
        !put_extension(cert, mint->ca, NID_authority_key_identifier, "keyid:always") ||
        !put_extension(cert, mint->ca, NID_subject_key_identifier, "hash") ||
        !put_extension(cert, mint->ca, NID_subject_alt_name, buf_cstr(&names)) ||
        X509_sign(cert, mint->ca_key, EVP_sha256()) <= 0)
        return NULL;
    return take_ptr(&cert);
}

/* ---- those there are ---- */

static void to_front(struct mint *mint, unsigned at)
{
    struct leaf leaf = mint->leaves[at];

    memmove(&mint->leaves[1], &mint->leaves[0], at * sizeof(leaf));
    mint->leaves[0] = leaf;
}

static unsigned find(const struct mint *mint, const struct host *host)
{
    unsigned at = 0;

    while (at < mint->count && strcmp(mint->leaves[at].host, host->text) != 0)
        at++;
    return at;
}

/* At `at`; the one behind the last takes the last one's place when the table is full. */
static int renew(struct mint *mint, unsigned at, const struct host *host, int64_t now_s,
                 struct err *err)
{
    int64_t until_s = MIN(now_s + MINT_LEAF_S, mint->ca_until_s);
    X509 *cert = make_leaf(mint, host, now_s, until_s);

    if (!cert)
        return failed(err, "the certificate of a host");
    if (at == MINT_LEAVES_MAX)
        at--;
    if (at == mint->count)
        mint->count++;
    X509_free(mint->leaves[at].cert);
    mint->leaves[at].cert = cert;
    mint->leaves[at].until_s = until_s;
    memcpy(mint->leaves[at].host, host->text, sizeof(host->text));
    to_front(mint, at);
    return 0;
}

int mint_leaf(struct mint *mint, const struct host *host, int64_t now_s, X509 **out,
              struct err *err)
{
    if (host->kind != HOST_NAME)
        return err_set(err, ERR_INVALID, "certificates are for names");
    unsigned at = find(mint, host);
    bool good = at < mint->count && now_s < mint->leaves[at].until_s - MINT_LEAF_S / 2;

    if (good)
        to_front(mint, at);
    else if (renew(mint, at, host, now_s, err) < 0)
        return -1;
    *out = mint->leaves[0].cert;
    return 0;
}

int mint_use(struct mint *mint, const struct host *host, int64_t now_s, SSL *ssl, struct err *err)
{
    X509 *cert;

    if (mint_leaf(mint, host, now_s, &cert, err) < 0)
        return -1;
    if (SSL_use_certificate(ssl, cert) != 1 || SSL_use_PrivateKey(ssl, mint->leaf_key) != 1)
        return failed(err, "the certificate of a host");
    return 0;
}
