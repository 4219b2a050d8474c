/*
 * How it works: the socket is non-blocking, so the one place that waits (wait_for) knows the
 * deadline. TLS asks for reading or writing as it likes; the answer to both is the same wait.
 * A TLS stream that ends without close_notify was cut, perhaps by somebody in between, and is an
 * error here.
 */
#include "http/client_io.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "http/client.h"

void client_io_free(struct client_io *io)
{
    if (io->ssl_ctx) { /* without TLS the library may not be loaded: client/late.c */
        SSL_free(io->ssl);
        SSL_CTX_free(io->ssl_ctx);
    }
    if (io->fd >= 0)
        close(io->fd);
    *io = (struct client_io){ .fd = -1 };
}

static int wait_for(const struct client_io *io, short events, struct err *err)
{
    for (;;) {
        int64_t left = io->deadline_ms - clock_mono_ms();
        struct pollfd pfd = { .fd = io->fd, .events = events };

        if (left <= 0)
            return err_set(err, ERR_TIMEOUT, "no answer in time");
        int ready = poll(&pfd, 1, (int)MIN(left, INT_MAX));
        if (ready > 0)
            return 0;
        if (ready < 0 && errno != EINTR)
            return err_sys(err, "wait for the server");
    }
}

/* ---- TLS ---- */

static int tls_failed(const char *doing, struct err *err)
{
    unsigned long code = ERR_get_error();
    char text[256] = "connection lost";

    if (code)
        ERR_error_string_n(code, text, sizeof(text));
    ERR_clear_error();
    return err_set(err, ERR_UNAVAILABLE, "%s: %s", doing, text);
}

/* What to do about a TLS call that gave `rc`: 0 try again, 1 orderly end, -1 failed. */
static int tls_again(struct client_io *io, int rc, const char *doing, struct err *err)
{
    switch (SSL_get_error(io->ssl, rc)) {
    case SSL_ERROR_WANT_READ:
        return wait_for(io, POLLIN, err);
    case SSL_ERROR_WANT_WRITE:
        return wait_for(io, POLLOUT, err);
    case SSL_ERROR_ZERO_RETURN:
        return 1;
    default:
        return tls_failed(doing, err);
    }
}

/* Who must the certificate be for? An address is matched as such, never as a name. */
static bool expect_name(SSL *ssl, const char *name)
{
    unsigned char addr[16];

    if (inet_pton(AF_INET, name, addr) == 1 || inet_pton(AF_INET6, name, addr) == 1)
        return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), name) == 1;
    return SSL_set1_host(ssl, name) == 1 && SSL_set_tlsext_host_name(ssl, name) == 1;
}

static int tls_setup(struct client_io *io, const char *name, const char *protocol,
                     const char *ca_file, struct err *err)
{
    unsigned char alpn[16];
    size_t len = strlen(protocol);

    if (len >= sizeof(alpn))
        abort();
    alpn[0] = (unsigned char)len;
    memcpy(alpn + 1, protocol, len);
    ERR_clear_error();
    io->ssl_ctx = SSL_CTX_new(TLS_client_method());
    if (!io->ssl_ctx || SSL_CTX_set_min_proto_version(io->ssl_ctx, TLS1_2_VERSION) != 1)
        return tls_failed("set up TLS", err);
    SSL_CTX_set_verify(io->ssl_ctx, SSL_VERIFY_PEER, NULL);
    if (ca_file ? SSL_CTX_load_verify_locations(io->ssl_ctx, ca_file, NULL) != 1
                : SSL_CTX_set_default_verify_paths(io->ssl_ctx) != 1)
        return tls_failed(ca_file ? ca_file : "the system's certificates", err);
    io->ssl = SSL_new(io->ssl_ctx);
    if (!io->ssl || SSL_set_alpn_protos(io->ssl, alpn, (unsigned)len + 1) != 0 ||
        !expect_name(io->ssl, name) || SSL_set_fd(io->ssl, io->fd) != 1)
        return tls_failed("set up TLS", err);
    return 0;
}

static int tls_connect(struct client_io *io, struct err *err)
{
    for (;;) {
        ERR_clear_error();
        int rc = SSL_connect(io->ssl);

        if (rc == 1)
            return 0;
        long verdict = SSL_get_verify_result(io->ssl);
        if (verdict != X509_V_OK)
            return err_set(err, ERR_UNAUTHENTICATED, "the server's certificate: %s",
                           X509_verify_cert_error_string(verdict));
        rc = tls_again(io, rc, "TLS", err);
        if (rc != 0)
            return rc < 0 ? -1 : err_set(err, ERR_UNAVAILABLE, "TLS: closed in the handshake");
    }
}

/* ---- both ---- */

int client_io_init(struct client_io *io, int fd, const char *tls_name, const char *alpn,
                   const char *ca_file, int64_t deadline_ms, struct err *err)
{
    int flags = fcntl(fd, F_GETFL);

    *io = (struct client_io){ .fd = fd, .deadline_ms = deadline_ms };
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
        err_sys(err, "set up the connection");
    else if (!tls_name ||
             (tls_setup(io, tls_name, alpn, ca_file, err) == 0 && tls_connect(io, err) == 0))
        return 0;
    client_io_free(io);
    return -1;
}

static ssize_t tls_read(struct client_io *io, void *out, size_t len, struct err *err)
{
    for (;;) {
        size_t got = 0;

        ERR_clear_error();
        int rc = SSL_read_ex(io->ssl, out, len, &got);
        if (rc == 1)
            return (ssize_t)got;
        rc = tls_again(io, rc, "read", err);
        if (rc != 0)
            return rc < 0 ? -1 : 0;
    }
}

ssize_t client_io_read(struct client_io *io, void *out, size_t len, struct err *err)
{
    if (io->ssl)
        return tls_read(io, out, len, err);
    for (;;) {
        ssize_t got = recv(io->fd, out, len, 0);

        if (got >= 0)
            return got;
        if (errno == ECONNRESET)
            return err_set(err, ERR_UNAVAILABLE, "the server closed the connection");
        if (errno != EAGAIN && errno != EINTR)
            return err_sys(err, "read from the server");
        if (wait_for(io, POLLIN, err) < 0)
            return -1;
    }
}

static ssize_t write_some(struct client_io *io, const char *data, size_t len, struct err *err)
{
    size_t done = 0;

    if (io->ssl) {
        ERR_clear_error();
        int rc = SSL_write_ex(io->ssl, data, len, &done);
        if (rc == 1)
            return (ssize_t)done;
        rc = tls_again(io, rc, "write", err);
        return rc == 1 ? err_set(err, ERR_UNAVAILABLE, "the server closed the connection") : rc;
    }
    ssize_t sent = send(io->fd, data, len, MSG_NOSIGNAL);
    if (sent >= 0)
        return sent;
    if (errno == EPIPE || errno == ECONNRESET)
        return err_set(err, ERR_UNAVAILABLE, "the server closed the connection");
    if (errno != EAGAIN && errno != EINTR)
        return err_sys(err, "write to the server");
    return wait_for(io, POLLOUT, err);
}

int client_io_write(struct client_io *io, const void *data, size_t len, struct err *err)
{
    const char *at = data;

    while (len) {
        ssize_t sent = write_some(io, at, len, err);

        if (sent < 0)
            return -1;
        at += sent;
        len -= (size_t)sent;
    }
    return 0;
}

/* ---- without waiting ---- */

/* What a TLS call that moved nothing means: CLIENT_LATER, 0 for an orderly end, -1. */
static ssize_t tls_later(struct client_io *io, int rc, const char *doing, struct err *err)
{
    switch (SSL_get_error(io->ssl, rc)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
        return CLIENT_LATER;
    case SSL_ERROR_ZERO_RETURN:
        return 0;
    default:
        return tls_failed(doing, err);
    }
}

static ssize_t failed(ssize_t moved, const char *doing, struct err *err)
{
    if (moved >= 0)
        return moved;
    if (errno == EAGAIN || errno == EINTR)
        return CLIENT_LATER;
    if (errno == EPIPE || errno == ECONNRESET)
        return err_set(err, ERR_UNAVAILABLE, "the server closed the connection");
    return err_sys(err, "%s the server", doing);
}

ssize_t client_io_take(struct client_io *io, void *out, size_t len, struct err *err)
{
    size_t got = 0;

    if (!io->ssl)
        return failed(recv(io->fd, out, len, MSG_DONTWAIT), "read from", err);
    ERR_clear_error();
    int rc = SSL_read_ex(io->ssl, out, len, &got);
    return rc == 1 ? (ssize_t)got : tls_later(io, rc, "read", err);
}

ssize_t client_io_give(struct client_io *io, const void *data, size_t len, struct err *err)
{
    size_t done = 0;

    if (!io->ssl)
        return failed(send(io->fd, data, len, MSG_DONTWAIT | MSG_NOSIGNAL), "write to", err);
    ERR_clear_error();
    int rc = SSL_write_ex(io->ssl, data, len, &done);
    if (rc == 1)
        return (ssize_t)done;
    ssize_t later = tls_later(io, rc, "write", err);
    return later == 0 ? err_set(err, ERR_UNAVAILABLE, "the server closed the connection") : later;
}

void client_io_shut(struct client_io *io)
{
    if (io->ssl)
        (void)SSL_shutdown(io->ssl);
    else
        shutdown(io->fd, SHUT_WR);
}

bool client_io_pending(const struct client_io *io)
{
    return io->ssl && SSL_has_pending(io->ssl);
}
