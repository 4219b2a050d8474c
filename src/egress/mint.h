/*
 * mint - the certificate authority of one sandbox, and the certificates of hosts that it makes.
 *
 * Where a policy says that requests to a host are to be seen, the egress process stands in for that
 * host with a certificate of this authority. Only the one sandbox is told to trust it, and only
 * this process can sign with it. The key is derived from the process's own (base/seal.h) and the
 * sandbox's id: after a restart it is the same, so what runs in the sandbox goes on trusting it,
 * and no file holds it.
 *
 * It carries no name constraints: the hosts that are looked into may change while the sandbox runs,
 * and programs read what they trust once. That the policy says so is checked before a certificate
 * is asked for.
 *
 * Certificates of hosts live for MINT_LEAF_S and are kept, MINT_LEAVES_MAX at most, the least
 * recently used goes. One thread.
 */
#pragma once

#include "base/seal.h"
#include "policy/host.h"

#define MINT_CA_S (90 * 86400ll)
#define MINT_LEAF_S (7 * 86400ll)
#define MINT_BACK_S 3600 /* how long ago both began: clocks differ */
#define MINT_LEAVES_MAX 64

struct mint;
struct ssl_st;
struct x509_st;

/* `now_s` is wall time, here and below. */
must_use int mint_new(struct mint **out, const struct seal_private *key, struct str box,
                      int64_t now_s, struct err *err);
void mint_free(struct mint *mint);

/* Appends the authority's certificate as PEM: what the sandbox must trust. */
must_use int mint_ca_pem(const struct mint *mint, struct buf *out, struct err *err);
/* Of its subject, as OpenSSL names files in a directory of authorities. */
uint32_t mint_hash(const struct mint *mint);
/* Is the authority's certificate so old that the sandbox should get another (mint_new)? */
bool mint_stale(const struct mint *mint, int64_t now_s);

/* Borrowed until the next call. ERR_INVALID: an address is no name. */
must_use int mint_leaf(struct mint *mint, const struct host *host, int64_t now_s,
                       struct x509_st **out, struct err *err);
/* Makes this connection answer as the host. */
must_use int mint_use(struct mint *mint, const struct host *host, int64_t now_s, struct ssl_st *ssl,
                      struct err *err);
