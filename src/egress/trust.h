/*
 * trust - the two TLS connections of an interception: as the host towards the sandbox, as a client
 * towards the host.
 *
 * Towards the host nothing is ever taken on faith: its chain must lead to the machine's own trust
 * store, the certificate must be of the name that was allowed, and that name is sent as SNI. There
 * is no setting that turns this off. Towards the sandbox we answer for that one name alone; a
 * ClientHello that names another host, or none, is refused. Both sides speak HTTP/1.1 and nothing
 * else, TLS 1.2 and up, without tickets and sessions, so that nothing of one sandbox can be resumed
 * by another. Connections are those of net/tls.h from then on. One thread.
 */
#pragma once

#include "egress/mint.h"
#include "net/tls.h"

struct trust;

/* Reads the machine's bundle of authorities: before the jail. ERR_NOT_FOUND: it has none. */
must_use int trust_new(struct trust **out, struct err *err);
/* Without any authority; trust_add gives it some. */
must_use int trust_empty(struct trust **out, struct err *err);
void trust_free(struct trust *trust);
/* Further authorities (an operator's own), as PEM. How many they were. */
must_use int trust_add(struct trust *trust, struct str pem, struct err *err);

/*
 * The socket is non-blocking and stays the caller's; tls_handshake comes next. `first` is what was
 * read from it already.
 */
must_use int trust_server(struct trust *trust, struct mint *mint, const struct host *host,
                          int64_t now_s, int fd, struct str first, struct tls_conn **out,
                          struct err *err);
/* After a handshake with the sandbox that failed: the alert of who ended it; -1: there was none. */
int trust_alert(const struct tls_conn *conn, bool *ours);
must_use int trust_client(struct trust *trust, const struct host *host, int fd,
                          struct tls_conn **out, struct err *err);
/*
 * After the handshake with the host: is it who it should be? Nothing may be sent before.
 * ERR_FORBIDDEN says why not, in words that hold nothing of what the host sent. After a handshake
 * that failed it says whether that was the reason.
 */
must_use int trust_checked(const struct tls_conn *conn, struct err *err);
