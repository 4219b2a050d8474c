/*
 * tls_rig - certificates made on the spot and a blocking client, for tests. Included once per
 * program.
 */
#pragma once

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include "base/mem.h"
#include "base/test.h"
#include "net/tls.h"

struct tls_pem {
    char *cert, *key; /* owned */
};

static inline void tls_pem_free(struct tls_pem *pem)
{
    free(pem->cert);
    free(pem->key);
}
#define autopem auto_with(tls_pem_free)

static inline char *tls_bio_text(BIO *bio)
{
    char *data;
    long len = BIO_get_mem_data(bio, &data);
    char *text = xmemdup0(data, (size_t)len);

    BIO_free(bio);
    return text;
}

/* A self-signed certificate and its key. */
static inline struct tls_pem tls_pem_new(const char *name)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *cert = X509_new();
    BIO *cert_bio = BIO_new(BIO_s_mem()), *key_bio = BIO_new(BIO_s_mem());

    CHECK(key && cert && cert_bio && key_bio);
    X509_set_version(cert, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(cert), 1);
    X509_gmtime_adj(X509_getm_notBefore(cert), -3600);
    X509_gmtime_adj(X509_getm_notAfter(cert), 3600);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(cert), "CN", MBSTRING_ASC,
                               (const unsigned char *)name, -1, -1, 0);
    X509_set_issuer_name(cert, X509_get_subject_name(cert));
    X509_set_pubkey(cert, key);
    CHECK(X509_sign(cert, key, EVP_sha256()) > 0);
    CHECK(PEM_write_bio_X509(cert_bio, cert) == 1);
    CHECK(PEM_write_bio_PrivateKey(key_bio, key, NULL, NULL, 0, NULL, NULL) == 1);
    X509_free(cert);
    EVP_PKEY_free(key);
    return (struct tls_pem){ tls_bio_text(cert_bio), tls_bio_text(key_bio) };
}

/* A client on this socket that offers the protocols of `alpn` ("\x02h2"; NULL: none). */
static inline SSL *tls_client(int fd, const char *alpn, int version_max)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    SSL *ssl;

    CHECK(ctx);
    if (version_max)
        SSL_CTX_set_max_proto_version(ctx, version_max);
    if (version_max && version_max < TLS1_2_VERSION) { /* or it would not even try */
        SSL_CTX_set_min_proto_version(ctx, version_max);
        SSL_CTX_set_cipher_list(ctx, "ALL:@SECLEVEL=0");
    }
    SSL_CTX_set_options(ctx, SSL_OP_IGNORE_UNEXPECTED_EOF);
    ssl = SSL_new(ctx);
    CHECK(ssl && SSL_set_fd(ssl, fd) == 1);
    if (alpn)
        CHECK(SSL_set_alpn_protos(ssl, (const unsigned char *)alpn, (unsigned)strlen(alpn)) == 0);
    SSL_CTX_free(ctx);
    return ssl;
}
