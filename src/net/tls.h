/*
 * tls - the server side of TLS over OpenSSL, TLS 1.2 and up, ALPN h2 and http/1.1. The certificate
 * and key come as PEM bytes (the jailed process cannot open the key file). Loop thread.
 */
#pragma once

#include "base/err.h"
#include "base/str.h"

struct tls;

must_use int tls_new(struct tls **out, struct str cert_pem, struct str key_pem, struct err *err);
void tls_free(struct tls *tls);
