/*
 * grant - a policy that whoever asks carries with him, signed: the tokens of agentbox's proxy.
 *
 * It comes in Proxy-Authorization, as the password "jwt_TOKEN" of any user (Basic) or by itself
 * (Bearer). One algorithm, one key: the signature is checked as HMAC-SHA-256 before anything of the
 * token is read, and its own "alg" must then say the same. No field of it names a key, a place to
 * fetch one, or an extension that would have to be understood.
 *
 * `allowed_hosts` is a list, or a text of items between commas. An item is a name, or "*." and a
 * name, which here means that name and all beneath it, as the clients of that proxy expect; ":443"
 * may follow. Without a port it is for 80 and 443 (there: every port). Every other item (an
 * address, "*") allows nothing, as there. Nothing else is ever allowed: no list is taken for
 * granted, whatever is wrong with a token.
 *
 * Pure; the caller says what time it is. Any thread.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"

#define GRANT_BYTES_MAX 16384 /* of the header's value */
#define GRANT_ID_MAX 128      /* of a session, of a tenant */
#define GRANT_LIFE_S 86400    /* a token may be good for so long, unless the operator says more */
#define GRANT_SKEW_S 60       /* that clocks may differ: for beginnings, never for the end */
#define GRANT_ISSUER "sandbox-egress-control"

struct grant_terms {
    struct str key;
    int64_t now_s;  /* wall */
    int64_t life_s; /* until its end, at most */
};

/* Zero is a valid empty one; freed by grant_free. */
struct grant {
    char session[GRANT_ID_MAX + 1], tenant[GRANT_ID_MAX + 1]; /* tenant "": none */
    int64_t ends_s;
    struct buf policy; /* for policy_open */
};

void grant_free(struct grant *grant);

/*
 * An item of allowed_hosts as the rule that it means ("*.a.test" is a.test and all beneath it),
 * borrowed from it; empty for what names nothing that could be meant: it allows nothing.
 */
struct str grant_host(struct str item);

/*
 * The value of a Proxy-Authorization field. ERR_UNAUTHENTICATED says what is wrong with it, without
 * any of its bytes; ERR_LIMIT when it is too long or has too many hosts.
 */
must_use int grant_read(struct str credentials, const struct grant_terms *terms, struct grant *out,
                        struct err *err);
