/*
 * tls - the server side of TLS over OpenSSL, TLS 1.2 and up, ALPN h2 and http/1.1. The certificate
 * and key come as PEM bytes (the jailed process cannot open the key file). Loop thread.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/str.h"

struct tls;
struct tls_conn;

/*
 * `cert_pem` may hold a chain, the server's own certificate first. The process ignores SIGPIPE from
 * then on.
 */
must_use int tls_new(struct tls **out, struct str cert_pem, struct str key_pem, struct err *err);
/* Another certificate for connections from now on; on failure the old one stays. */
must_use int tls_reload(struct tls *tls, struct str cert_pem, struct str key_pem, struct err *err);
void tls_free(struct tls *tls); /* connections that live keep what they need */

/* ---- one connection; the socket is non-blocking and stays the caller's ---- */

#define TLS_AGAIN (-1)  /* wait for the socket: tls_wants_write says for which direction */
#define TLS_FAILED (-2) /* broken: close */

must_use int tls_conn_new(struct tls_conn **out, struct tls *tls, int fd, struct err *err);
/* Says goodbye if the socket takes it at once. */
void tls_conn_free(struct tls_conn *conn);

/* 0 when done, TLS_AGAIN, TLS_FAILED. */
must_use int tls_handshake(struct tls_conn *conn);
/* Bytes, 0 at the end of the stream, TLS_AGAIN, TLS_FAILED. */
must_use ssize_t tls_read(struct tls_conn *conn, void *out, size_t len);
/* Bytes taken (may be fewer), TLS_AGAIN, TLS_FAILED. */
must_use ssize_t tls_write(struct tls_conn *conn, const void *data, size_t len);
/* Sends our end-of-stream alert, if the socket takes it at once. */
void tls_end(struct tls_conn *conn);
bool tls_wants_write(const struct tls_conn *conn);
/* Has the library bytes that the socket will not announce? */
bool tls_pending(const struct tls_conn *conn);
bool tls_is_h2(const struct tls_conn *conn);

/* For who sets a connection up in another way (egress/trust.h): takes it. */
struct ssl_st;
struct tls_conn *tls_conn_wrap(struct ssl_st *ssl);
struct ssl_st *tls_conn_ssl(const struct tls_conn *conn); /* borrowed */
