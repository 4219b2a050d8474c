/*
 * The library verifies during the handshake, which fails at the first thing that is wrong;
 * trust_checked asks again afterwards, so that a verification that was never done is no success.
 */
#include "egress/trust.h"

#include <limits.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "base/mem.h"

#define ROOTS_MAX 4096

struct trust {
    SSL_CTX *client, *server;
};

/* Where systems keep one file of all authorities that they trust. */
static const char *const bundles[] = {
    "/etc/ssl/certs/ca-certificates.crt", /* Debian, Alpine, Arch */
    "/etc/pki/tls/certs/ca-bundle.crt",   /* Fedora, RHEL */
    "/etc/ssl/ca-bundle.pem",             /* openSUSE */
    "/etc/ssl/cert.pem",
};

static int failed(struct err *err, const char *what)
{
    ERR_clear_error();
    return err_set(err, ERR_INTERNAL, "%s: the library failed", what);
}

void trust_free(struct trust *trust)
{
    if (!trust)
        return;
    SSL_CTX_free(trust->client);
    SSL_CTX_free(trust->server);
    free(trust);
}

/* ---- towards the sandbox ---- */

/* HTTP/1.1 for who offers it or offers nothing; who wants something else alone is told so. */
static int choose_http1(SSL *ssl, const unsigned char **out, unsigned char *out_len,
                        const unsigned char *in, unsigned in_len, void *ctx)
{
    static const unsigned char ours[] = "\x08http/1.1";
    unsigned char *chosen;

    (void)ssl, (void)ctx;
    if (SSL_select_next_proto(&chosen, out_len, ours, sizeof(ours) - 1, in, in_len) !=
        OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

/*
 * The name in the ClientHello must be the one that the certificate is for. Called for a hello
 * without a name, too.
 */
static int check_name(SSL *ssl, int *alert, void *ctx)
{
    const char *name = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);
    struct host host;

    (void)ctx;
    *alert = SSL_AD_UNRECOGNIZED_NAME;
    if (!name || host_parse_name(str_of(name), &host, NULL) < 0 ||
        X509_check_host(SSL_get_certificate(ssl), host.text, host.len,
                        X509_CHECK_FLAG_NEVER_CHECK_SUBJECT, NULL) != 1)
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    return SSL_TLSEXT_ERR_OK;
}

/* The first one counts: what is said after it is about it. */
#define ALERT_KEPT 256
#define ALERT_OURS 512
static int alert_index = -1;

static void on_info(const SSL *ssl, int where, int value)
{
    SSL *mine = (SSL *)(uintptr_t)ssl;

    if (!(where & SSL_CB_ALERT) || SSL_get_ex_data(mine, alert_index))
        return;
    intptr_t kept = ALERT_KEPT | (where & SSL_CB_WRITE ? ALERT_OURS : 0) | (value & 255);
    (void)SSL_set_ex_data(mine, alert_index, (void *)kept);
}

static SSL_CTX *context(const SSL_METHOD *method)
{
    SSL_CTX *ctx = SSL_CTX_new(method);

    if (ctx && SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION) == 1 &&
        SSL_CTX_set_cipher_list(ctx, "ECDHE+AESGCM:ECDHE+CHACHA20") == 1) {
        SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                     SSL_OP_NO_TICKET | SSL_OP_IGNORE_UNEXPECTED_EOF);
        SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
        SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                                  SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
        return ctx;
    }
    SSL_CTX_free(ctx);
    return NULL;
}

int trust_empty(struct trust **out, struct err *err)
{
    static const unsigned char http1[] = "\x08http/1.1";
    struct trust *trust = xnew(struct trust);

    trust->client = context(TLS_client_method());
    trust->server = context(TLS_server_method());
    if (!trust->client || !trust->server ||
        SSL_CTX_set_alpn_protos(trust->client, http1, sizeof(http1) - 1) != 0 ||
        SSL_CTX_set_num_tickets(trust->server, 0) != 1) {
        trust_free(trust);
        return failed(err, "TLS set-up");
    }
    if (alert_index < 0)
        alert_index = SSL_get_ex_new_index(0, NULL, NULL, NULL, NULL);
    SSL_CTX_set_info_callback(trust->server, on_info);
    SSL_CTX_set_verify(trust->client, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_alpn_select_cb(trust->server, choose_http1, NULL);
    SSL_CTX_set_tlsext_servername_callback(trust->server, check_name);
    *out = trust;
    return 0;
}

/* ---- authorities ---- */

int trust_new(struct trust **out, struct err *err)
{
    struct trust *trust;

    if (trust_empty(&trust, err) < 0)
        return -1;
    for (size_t i = 0; i < ARRAY_LEN(bundles); i++)
        if (SSL_CTX_load_verify_file(trust->client, bundles[i]) == 1) {
            ERR_clear_error();
            *out = trust;
            return 0;
        }
    ERR_clear_error();
    trust_free(trust);
    return err_set(err, ERR_NOT_FOUND, "this machine has no bundle of certificate authorities");
}

int trust_add(struct trust *trust, struct str pem, struct err *err)
{
    BIO *bio = BIO_new_mem_buf(pem.p, (int)MIN(pem.n, (size_t)INT_MAX));
    X509_STORE *store = SSL_CTX_get_cert_store(trust->client);
    int count = 0;
    bool good = bio != NULL;
    X509 *cert;

    while (good && count < ROOTS_MAX && (cert = PEM_read_bio_X509(bio, NULL, NULL, NULL))) {
        good = X509_STORE_add_cert(store, cert) == 1;
        X509_free(cert);
        count++;
    }
    /* An end without another beginning is how a good file ends. */
    good = good && ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
    ERR_clear_error();
    BIO_free(bio);
    if (!good || !count)
        return err_set(err, ERR_INVALID, "not a list of certificates in PEM");
    return count;
}

/* ---- connections ---- */

/*
 * What was read from the socket before is read from memory, as far as it goes; the library asks for
 * more only when it has used all of it up, and from then on it reads from the socket. If the
 * handshake has failed by then, tls_handshake will say so.
 */
static bool feed(SSL *ssl, int fd, struct str first)
{
    BIO *memory = BIO_new_mem_buf(first.p, (int)first.n);
    BIO *socket = BIO_new_socket(fd, BIO_NOCLOSE);

    if (!memory || !socket) {
        BIO_free(memory);
        BIO_free(socket);
        return false;
    }
    BIO_set_mem_eof_return(memory, -1);
    SSL_set0_rbio(ssl, memory);
    int rc = SSL_do_handshake(ssl);
    bool good = SSL_get_error(ssl, rc) != SSL_ERROR_WANT_READ || BIO_pending(memory) == 0;
    ERR_clear_error();
    SSL_set0_rbio(ssl, socket);
    return good;
}

int trust_server(struct trust *trust, struct mint *mint, const struct host *host, int64_t now_s,
                 int fd, struct str first, struct tls_conn **out, struct err *err)
{
    SSL *ssl = SSL_new(trust->server);

    if (!ssl || SSL_set_fd(ssl, fd) != 1) {
        SSL_free(ssl);
        return failed(err, "a connection");
    }
    if (mint_use(mint, host, now_s, ssl, err) < 0) {
        SSL_free(ssl);
        return -1;
    }
    SSL_set_accept_state(ssl);
    if (first.n && !feed(ssl, fd, first)) {
        SSL_free(ssl);
        return failed(err, "a connection");
    }
    *out = tls_conn_wrap(ssl);
    return 0;
}

int trust_alert(const struct tls_conn *conn, bool *ours)
{
    intptr_t kept = (intptr_t)SSL_get_ex_data(tls_conn_ssl(conn), alert_index);

    *ours = kept & ALERT_OURS;
    return kept ? (int)(kept & 255) : -1;
}

int trust_client(struct trust *trust, const struct host *host, int fd, struct tls_conn **out,
                 struct err *err)
{
    if (host->kind != HOST_NAME)
        return err_set(err, ERR_INVALID, "certificates are for names");
    SSL *ssl = SSL_new(trust->client);
    if (!ssl || SSL_set_fd(ssl, fd) != 1 || SSL_set_tlsext_host_name(ssl, host->text) != 1 ||
        SSL_set1_host(ssl, host->text) != 1) {
        SSL_free(ssl);
        return failed(err, "a connection");
    }
    SSL_set_hostflags(ssl,
                      X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS | X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
    SSL_set_connect_state(ssl);
    *out = tls_conn_wrap(ssl);
    return 0;
}

int trust_checked(const struct tls_conn *conn, struct err *err)
{
    SSL *ssl = tls_conn_ssl(conn);
    long why = SSL_get_verify_result(ssl);

    if (why != X509_V_OK)
        return err_set(err, ERR_FORBIDDEN, "its certificate is refused: %s",
                       X509_verify_cert_error_string(why));
    if (!SSL_is_init_finished(ssl) || !SSL_get0_peer_certificate(ssl) ||
        !(SSL_get_verify_mode(ssl) & SSL_VERIFY_PEER) || !SSL_get0_peername(ssl))
        return err_set(err, ERR_FORBIDDEN, "it has not shown who it is");
    return 0;
}
