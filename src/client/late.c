/*
 * OpenSSL, loaded by the first call that needs it. Most commands talk plain HTTP to a server on the
 * same machine and hash nothing; binding libssl and libcrypto takes 1.7 ms of a command that
 * otherwise starts in 0.8 ms.
 *
 * Each line below defines one function of OpenSSL that base/hash.c and http/client_io.c call. The
 * function looks up the real one in the system's library and calls it. The compiler checks each
 * line against OpenSSL's own header; the linker reports a function that is missing here.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#define LIBCRYPTO "libcrypto.so.3"
#define LIBSSL "libssl.so.3"

/* A program linked with the library would not start without it; this one ends here. */
static void *look_up(const char *file, const char *name)
{
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    void *found = library ? dlsym(library, name) : NULL;

    if (found)
        return found;
    fprintf(stderr, "atoll: cannot load %s from %s: %s\n", name, file, dlerror());
    exit(EXIT_FAILURE);
}

/* clang-format off */
#define LATE(file, result, name, params, args)               \
    result name params                                       \
    {                                                        \
        static result (*real) params;                        \
                                                             \
        if (!real)                                           \
            *(void **)&real = look_up(file, #name);          \
        return real args;                                    \
    }
/* The same for a function that returns nothing. */
#define LATE_VOID(file, name, params, args)                  \
    void name params                                         \
    {                                                        \
        static void (*real) params;                          \
                                                             \
        if (!real)                                           \
            *(void **)&real = look_up(file, #name);          \
        real args;                                           \
    }
#define CRYPTO(result, name, params, args) LATE(LIBCRYPTO, result, name, params, args)
#define SSLLIB(result, name, params, args) LATE(LIBSSL, result, name, params, args)

/* ---- digests: base/hash.c ---- */

CRYPTO(EVP_MD *, EVP_MD_fetch, (OSSL_LIB_CTX *lib, const char *name, const char *props), (lib, name, props))
CRYPTO(const EVP_MD *, EVP_sha1, (void), ())
CRYPTO(EVP_MD_CTX *, EVP_MD_CTX_new, (void), ())
LATE_VOID(LIBCRYPTO, EVP_MD_CTX_free, (EVP_MD_CTX *ctx), (ctx))
CRYPTO(int, EVP_DigestInit_ex, (EVP_MD_CTX *ctx, const EVP_MD *type, ENGINE *impl), (ctx, type, impl))
CRYPTO(int, EVP_DigestInit_ex2, (EVP_MD_CTX *ctx, const EVP_MD *type, const OSSL_PARAM *params), (ctx, type, params))
CRYPTO(int, EVP_DigestUpdate, (EVP_MD_CTX *ctx, const void *data, size_t len), (ctx, data, len))
CRYPTO(int, EVP_DigestFinal_ex, (EVP_MD_CTX *ctx, unsigned char *md, unsigned *len), (ctx, md, len))
CRYPTO(EVP_MAC *, EVP_MAC_fetch, (OSSL_LIB_CTX *lib, const char *name, const char *props), (lib, name, props))
CRYPTO(EVP_MAC_CTX *, EVP_MAC_CTX_new, (EVP_MAC *mac), (mac))
LATE_VOID(LIBCRYPTO, EVP_MAC_CTX_free, (EVP_MAC_CTX *ctx), (ctx))
CRYPTO(int, EVP_MAC_CTX_set_params, (EVP_MAC_CTX *ctx, const OSSL_PARAM *params), (ctx, params))
CRYPTO(int, EVP_MAC_init, (EVP_MAC_CTX *ctx, const unsigned char *key, size_t len, const OSSL_PARAM *params), (ctx, key, len, params))
CRYPTO(int, EVP_MAC_update, (EVP_MAC_CTX *ctx, const unsigned char *data, size_t len), (ctx, data, len))
CRYPTO(int, EVP_MAC_final, (EVP_MAC_CTX *ctx, unsigned char *out, size_t *len, size_t room), (ctx, out, len, room))
CRYPTO(OSSL_PARAM, OSSL_PARAM_construct_utf8_string, (const char *key, char *text, size_t len), (key, text, len))
CRYPTO(OSSL_PARAM, OSSL_PARAM_construct_end, (void), ())
CRYPTO(int, CRYPTO_memcmp, (const void *a, const void *b, size_t len), (a, b, len))

/* ---- TLS: http/client_io.c ---- */

CRYPTO(unsigned long, ERR_get_error, (void), ())
LATE_VOID(LIBCRYPTO, ERR_error_string_n, (unsigned long code, char *text, size_t len), (code, text, len))
LATE_VOID(LIBCRYPTO, ERR_clear_error, (void), ())
CRYPTO(const char *, X509_verify_cert_error_string, (long code), (code))
CRYPTO(int, X509_VERIFY_PARAM_set1_ip_asc, (X509_VERIFY_PARAM *param, const char *address), (param, address))
SSLLIB(const SSL_METHOD *, TLS_client_method, (void), ())
SSLLIB(SSL_CTX *, SSL_CTX_new, (const SSL_METHOD *method), (method))
LATE_VOID(LIBSSL, SSL_CTX_free, (SSL_CTX *ctx), (ctx))
SSLLIB(long, SSL_CTX_ctrl, (SSL_CTX *ctx, int cmd, long number, void *ptr), (ctx, cmd, number, ptr))
LATE_VOID(LIBSSL, SSL_CTX_set_verify, (SSL_CTX *ctx, int mode, SSL_verify_cb callback), (ctx, mode, callback))
SSLLIB(int, SSL_CTX_set_default_verify_paths, (SSL_CTX *ctx), (ctx))
SSLLIB(int, SSL_CTX_load_verify_locations, (SSL_CTX *ctx, const char *file, const char *dir), (ctx, file, dir))
SSLLIB(SSL *, SSL_new, (SSL_CTX *ctx), (ctx))
LATE_VOID(LIBSSL, SSL_free, (SSL *ssl), (ssl))
SSLLIB(int, SSL_set_fd, (SSL *ssl, int fd), (ssl, fd))
SSLLIB(int, SSL_set_alpn_protos, (SSL *ssl, const unsigned char *names, unsigned len), (ssl, names, len))
SSLLIB(int, SSL_set1_host, (SSL *ssl, const char *host), (ssl, host))
SSLLIB(X509_VERIFY_PARAM *, SSL_get0_param, (SSL *ssl), (ssl))
SSLLIB(long, SSL_ctrl, (SSL *ssl, int cmd, long number, void *ptr), (ssl, cmd, number, ptr))
SSLLIB(int, SSL_connect, (SSL *ssl), (ssl))
SSLLIB(long, SSL_get_verify_result, (const SSL *ssl), (ssl))
SSLLIB(int, SSL_get_error, (const SSL *ssl, int result), (ssl, result))
SSLLIB(int, SSL_read_ex, (SSL *ssl, void *out, size_t len, size_t *got), (ssl, out, len, got))
SSLLIB(int, SSL_write_ex, (SSL *ssl, const void *data, size_t len, size_t *done), (ssl, data, len, done))
SSLLIB(int, SSL_has_pending, (const SSL *ssl), (ssl))
SSLLIB(int, SSL_shutdown, (SSL *ssl), (ssl))
/* clang-format on */
