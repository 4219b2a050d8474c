/*
 * OpenSSL on the connection's own descriptor: no memory BIO, no copy of ours. A struct tls_conn is
 * OpenSSL's SSL under another name, so a connection costs no allocation of ours on top.
 *
 * Reading ahead is on: one recv brings in a whole small request instead of header and record
 * apart. The price is that bytes may wait inside the library while the socket is silent;
 * tls_pending says so. Buffers are released between records, so an idle connection keeps none.
 */
#include "net/tls.h"

#include <limits.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <signal.h>

#include "base/mem.h"

struct tls {
    SSL_CTX *ctx; /* owned; counted by the connections too */
};

static SSL *ssl_of(const struct tls_conn *conn)
{
    return (SSL *)(uintptr_t)conn;
}

SSL *tls_conn_ssl(const struct tls_conn *conn)
{
    return ssl_of(conn);
}

struct tls_conn *tls_conn_wrap(SSL *ssl)
{
    return (struct tls_conn *)(void *)ssl;
}

static int err_tls(struct err *err, const char *what)
{
    char text[256] = "no reason given";
    unsigned long code = ERR_get_error();

    if (code)
        ERR_error_string_n(code, text, sizeof(text));
    ERR_clear_error();
    return err_set(err, ERR_INVALID, "%s: %s", what, text);
}

static void free_bio(BIO **bio)
{
    BIO_free(*bio);
}

static void free_x509(X509 **cert)
{
    X509_free(*cert);
}

static void free_pkey(EVP_PKEY **key)
{
    EVP_PKEY_free(*key);
}

static void free_ctx(SSL_CTX **ctx)
{
    SSL_CTX_free(*ctx);
}

static int use_chain(SSL_CTX *ctx, struct str pem, struct err *err)
{
    BIO *bio auto_with(free_bio) = BIO_new_mem_buf(pem.p, (int)MIN(pem.n, (size_t)INT_MAX));
    X509 *cert auto_with(free_x509) = bio ? PEM_read_bio_X509_AUX(bio, NULL, NULL, NULL) : NULL;

    if (!cert || SSL_CTX_use_certificate(ctx, cert) != 1)
        return err_tls(err, "TLS certificate");
    for (;;) {
        X509 *next = PEM_read_bio_X509(bio, NULL, NULL, NULL);

        if (!next)
            break;
        if (SSL_CTX_add0_chain_cert(ctx, next) != 1) {
            X509_free(next);
            return err_tls(err, "TLS certificate chain");
        }
    }
    if (ERR_GET_REASON(ERR_peek_last_error()) != PEM_R_NO_START_LINE)
        return err_tls(err, "TLS certificate chain");
    ERR_clear_error();
    return 0;
}

static int no_password(char *out, int size, int writing, void *ctx)
{
    (void)out, (void)size, (void)writing, (void)ctx;
    return 0; /* an encrypted key fails instead of asking on the terminal */
}

static int use_key(SSL_CTX *ctx, struct str pem, struct err *err)
{
    BIO *bio auto_with(free_bio) = BIO_new_mem_buf(pem.p, (int)MIN(pem.n, (size_t)INT_MAX));
    EVP_PKEY *key auto_with(free_pkey) =
        bio ? PEM_read_bio_PrivateKey(bio, NULL, no_password, NULL) : NULL;

    if (!key || SSL_CTX_use_PrivateKey(ctx, key) != 1)
        return err_tls(err, "TLS key");
    if (SSL_CTX_check_private_key(ctx) != 1)
        return err_tls(err, "TLS key does not fit the certificate");
    return 0;
}

static int choose_protocol(SSL *ssl, const unsigned char **out, unsigned char *out_len,
                           const unsigned char *in, unsigned in_len, void *ctx)
{
    static const unsigned char ours[] = "\x02h2\x08http/1.1";
    unsigned char *chosen;

    (void)ssl, (void)ctx;
    if (SSL_select_next_proto(&chosen, out_len, ours, sizeof(ours) - 1, in, in_len) !=
        OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

static int make_ctx(SSL_CTX **out, struct str cert_pem, struct str key_pem, struct err *err)
{
    SSL_CTX *ctx auto_with(free_ctx) = SSL_CTX_new(TLS_server_method());

    if (!ctx || SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION) != 1)
        return err_tls(err, "TLS set-up");
    /* Only ciphers with forward secrecy and authenticated encryption in TLS 1.2. */
    if (SSL_CTX_set_cipher_list(ctx, "ECDHE+AESGCM:ECDHE+CHACHA20") != 1)
        return err_tls(err, "TLS ciphers");
    SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                 SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_IGNORE_UNEXPECTED_EOF |
                                 SSL_OP_PRIORITIZE_CHACHA);
    SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                              SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_read_ahead(ctx, 1);
    SSL_CTX_set_alpn_select_cb(ctx, choose_protocol, NULL);
    if (use_chain(ctx, cert_pem, err) < 0 || use_key(ctx, key_pem, err) < 0)
        return -1;
    *out = take_ptr(&ctx);
    return 0;
}

int tls_new(struct tls **out, struct str cert_pem, struct str key_pem, struct err *err)
{
    const struct sigaction ignore = { .sa_handler = SIG_IGN };
    SSL_CTX *ctx;

    sigaction(SIGPIPE, &ignore, NULL); /* OpenSSL writes by write(2), not with MSG_NOSIGNAL */
    if (make_ctx(&ctx, cert_pem, key_pem, err) < 0)
        return -1;
    *out = xnew(struct tls);
    (*out)->ctx = ctx;
    return 0;
}

int tls_reload(struct tls *tls, struct str cert_pem, struct str key_pem, struct err *err)
{
    SSL_CTX *ctx;

    if (make_ctx(&ctx, cert_pem, key_pem, err) < 0)
        return -1;
    SSL_CTX_free(tls->ctx);
    tls->ctx = ctx;
    return 0;
}

void tls_free(struct tls *tls)
{
    if (!tls)
        return;
    SSL_CTX_free(tls->ctx);
    free(tls);
}

/* ---- connections ---- */

int tls_conn_new(struct tls_conn **out, struct tls *tls, int fd, struct err *err)
{
    SSL *ssl = SSL_new(tls->ctx);

    if (!ssl || SSL_set_fd(ssl, fd) != 1) {
        SSL_free(ssl);
        return err_tls(err, "TLS connection");
    }
    SSL_set_accept_state(ssl);
    *out = tls_conn_wrap(ssl);
    return 0;
}

void tls_end(struct tls_conn *conn)
{
    SSL *ssl = ssl_of(conn);

    if (SSL_is_init_finished(ssl) && !(SSL_get_shutdown(ssl) & SSL_SENT_SHUTDOWN))
        SSL_shutdown(ssl);
    ERR_clear_error();
}

void tls_conn_free(struct tls_conn *conn)
{
    if (!conn)
        return;
    tls_end(conn);
    SSL_free(ssl_of(conn));
}

/* What a call that did not succeed means. After a failure OpenSSL must not be asked to shut down.
 */
static int outcome(SSL *ssl, int result)
{
    int why = SSL_get_error(ssl, result);

    ERR_clear_error();
    switch (why) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
        return TLS_AGAIN;
    case SSL_ERROR_ZERO_RETURN:
        return 0;
    default:
        SSL_set_quiet_shutdown(ssl, 1);
        return TLS_FAILED;
    }
}

int tls_handshake(struct tls_conn *conn)
{
    SSL *ssl = ssl_of(conn);
    int result = SSL_do_handshake(ssl);

    if (result == 1)
        return 0;
    result = outcome(ssl, result);
    return result == TLS_AGAIN ? TLS_AGAIN : TLS_FAILED;
}

ssize_t tls_read(struct tls_conn *conn, void *out, size_t len)
{
    int n = SSL_read(ssl_of(conn), out, (int)MIN(len, (size_t)INT_MAX));

    return n > 0 ? n : outcome(ssl_of(conn), n);
}

ssize_t tls_write(struct tls_conn *conn, const void *data, size_t len)
{
    int n = SSL_write(ssl_of(conn), data, (int)MIN(len, (size_t)INT_MAX));

    if (n > 0)
        return n;
    n = outcome(ssl_of(conn), n);
    return n == 0 ? TLS_FAILED : n;
}

bool tls_wants_write(const struct tls_conn *conn)
{
    return SSL_want_write(ssl_of(conn));
}

bool tls_pending(const struct tls_conn *conn)
{
    return SSL_has_pending(ssl_of(conn));
}

bool tls_is_h2(const struct tls_conn *conn)
{
    const unsigned char *name = NULL;
    unsigned len = 0;

    SSL_get0_alpn_selected(ssl_of(conn), &name, &len);
    return len == 2 && memcmp(name, "h2", 2) == 0;
}
