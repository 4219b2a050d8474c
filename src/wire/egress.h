/*
 * egress - what the egress process, the api process and the warden say to each other.
 *
 * Warden and egress speak wire.h over their link: the warden hands over the sockets that it made in
 * each sandbox's network, and both ends of a socket pair over which api and egress then talk
 * without it:
 *
 *   WIRE_EGRESS_BOX   warden → egress   egress_box; descriptors: listeners, the DNS socket, then,
 *                                       with EGRESS_KEPT, memory that outlives the egress process
 *   WIRE_EGRESS_GONE  warden → egress   egress_box: whatever had this slot is no more
 *   WIRE_EGRESS_PEER  warden → both     descriptor 0: the own end of a new pair; it replaces the
 *                                       last one, because either side was started again
 *
 * On that pair (SOCK_SEQPACKET) a message is an egress_head and its body, one datagram each:
 *
 *   verb              direction      body               means
 *   EGRESS_CONFIG     api → egress   egress_config      resolver, addresses that are never reached
 *   EGRESS_POLICY     api → egress   egress_policy, then `size` bytes of src/policy's own form:
 *                                                       all that holds for this sandbox from now on
 *   EGRESS_INJECT     api → egress   egress_inject, then `size` bytes of policy/inject.h: what goes
 *                                                       into its requests; sealed. 0 bytes: nothing
 *   EGRESS_FORGET     api → egress   box_name           the sandbox is gone, or has no policy
 *   EGRESS_SYNCED     api → egress   -                  every policy there is was said
 *   EGRESS_ANSWER     api → egress   egress_answer      of an EGRESS_ASK, by its number
 *   EGRESS_DECISION   egress → api   egress_decision    each one, when it is made
 *   EGRESS_FLOW       egress → api   egress_flow        what was let out has ended
 *   EGRESS_ASK        egress → api   egress_decision    may it? The connection waits for the answer
 *   EGRESS_UNASK      egress → api   egress_asked       nobody waits for the answer any more
 *   EGRESS_LOST       egress → api   egress_lost        records that the api did not take in time
 *   EGRESS_AUTHORITY  egress → api   egress_authority, then `size` bytes of PEM: what the sandbox
 *                                                       must trust, because TLS of it is opened
 *   EGRESS_OWN        egress → api   egress_own         a request to atoll.internal, by its number
 *   EGRESS_TOLD       api → egress   egress_told, then `size` bytes of JSON: its answer
 *   EGRESS_HOLDS      egress → api   egress_holds       the sandbox's sockets are open, and this
 *                                                       version of its policy holds for them
 *   EGRESS_USED       egress → api   egress_used        bytes so far, of sandboxes with a limit
 *
 * A new pair begins with CONFIG, then every POLICY, then SYNCED; POLICY replaces what was said
 * before. A sandbox without one reaches nothing: until SYNCED (EGRESS_POLICY_MS at most) its
 * connections wait for it, from then on they are denied. After each SYNCED egress repeats the ASK
 * of every connection that still waits, with the time of the first one: the api process may be
 * another, or an ANSWER may have been lost.
 *
 * What egress says is hostile input to the api, which checks it with egress_check and limits how
 * often it is said. Numbers and flags mean what src/policy says; texts are NUL-terminated.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/auto.h"
#include "wire/box.h"

#define EGRESS_MAGIC 0x53524745u /* "EGRS" */
#define EGRESS_VERSION 1
#define EGRESS_POLICY_MAX 131072 /* bytes of one policy */
#define EGRESS_HOST_SIZE 256     /* a name of 253 bytes, or an address, and the NUL */
#define EGRESS_TEXT_SIZE 128
#define EGRESS_RESOLVERS 3
#define EGRESS_OWN_MAX 64     /* listeners that are never reached */
#define EGRESS_POLICY_MS 1000 /* that a connection waits for a policy */
#define EGRESS_AUTHORITY_MAX 4096

/* ---- warden and egress ---- */

/* The addresses of a sandbox's network that mean something; all of it is inside. */
#define EGRESS_NET 0xc6120000u      /* 198.18.0.0/15: what names are answered with */
#define EGRESS_NET_MASK 0xfffe0000u /* never routed (RFC 2544) */
#define EGRESS_SELF 0xc6120001u     /* 198.18.0.1: proxy, resolver and atoll.internal */
#define EGRESS_SELF_TEXT "198.18.0.1"
#define EGRESS_PORT 3128
#define EGRESS_NAME "atoll.internal"

enum egress_box_flag {
    EGRESS_STEERED = 1, /* its listener gets every connection, not only those to its own port */
    EGRESS_KEPT = 2,    /* the last descriptor is memory of EGRESS_KEPT_SIZE bytes */
};

/* What of a sandbox must outlive the egress process (egress/kept.h); of the warden it is unread. */
#define EGRESS_KEPT_SIZE ((size_t)1120 << 10)

struct egress_box {
    struct box_name name; /* of GONE: empty */
    uint32_t slot;
    uint32_t flags; /* enum egress_box_flag */
};

/* ---- api and egress ---- */

enum egress_verb {
    EGRESS_CONFIG = 1,
    EGRESS_POLICY,
    EGRESS_FORGET,
    EGRESS_SYNCED,
    EGRESS_ANSWER,
    EGRESS_DECISION,
    EGRESS_FLOW,
    EGRESS_ASK,
    EGRESS_UNASK,
    EGRESS_LOST,
    EGRESS_INJECT,
    EGRESS_AUTHORITY,
    EGRESS_USED,
    EGRESS_OWN,
    EGRESS_TOLD,
    EGRESS_HUB,
    EGRESS_HOLDS,
    EGRESS_VERBS
};

struct egress_head {
    uint32_t magic;
    uint16_t version;
    uint16_t verb;
    uint32_t number; /* of an ask, in ASK, UNASK, ANSWER, OWN, HUB and TOLD; else 0 */
    uint32_t size;   /* of what follows */
};

/* An IPv4 address is the first four bytes. */
struct egress_addr {
    uint8_t family; /* 4, 6; 0: none */
    uint8_t zero;
    uint16_t port; /* in the host's order; 0 in `own`: every port */
    uint8_t bytes[16];
};

struct egress_config {
    struct egress_addr resolvers[EGRESS_RESOLVERS]; /* none: those of the machine */
    uint32_t own_count;
    struct egress_addr own[EGRESS_OWN_MAX]; /* our listeners, besides all addresses of the host */
    uint32_t answer_ms; /* until the answer to a request begins; 0: EGRESS_ANSWER_MS */
    uint32_t stream_ms; /* without a byte of an answer that has begun; 0: EGRESS_STREAM_MS */
};

struct egress_policy {
    struct box_name name;
    uint64_t version; /* rises with every change; repeated in decisions */
    uint64_t used;    /* bytes that count for max_bytes, as far as the api knows */
    uint32_t size;    /* of the bytes behind this */
    uint32_t zero;
};

/* After the sandbox's POLICY, and as long as that holds. */
struct egress_inject {
    struct box_name name;
    uint32_t size; /* of the bytes behind this; EGRESS_POLICY_MAX at most */
    uint32_t zero;
};

struct egress_authority {
    struct box_name name;
    uint32_t size; /* of the bytes behind this: one certificate, in PEM */
    uint32_t hash; /* of its subject, as OpenSSL names files */
};

struct egress_answer {
    uint32_t allow;
    uint32_t zero;
};

enum egress_kind {
    EGRESS_KIND_HTTP = 1, /* a request to the proxy, or on port 80 */
    EGRESS_KIND_CONNECT,
    EGRESS_KIND_TLS,   /* port 443, without knowing of the proxy */
    EGRESS_KIND_TCP,   /* another port */
    EGRESS_KIND_SELF,  /* atoll.internal */
    EGRESS_KIND_HTTPS, /* a request in TLS that was opened */
    EGRESS_KINDS
};

/* How it came out. `rule` says which rule it was, `text` what went wrong. */
enum egress_verdict {
    EGRESS_ALLOWED = 1,
    EGRESS_DENIED,     /* by a rule, or because none allows it */
    EGRESS_REFUSED,    /* allowed, but it resolves to what nobody may reach */
    EGRESS_MALFORMED,  /* what it said is not what it may say */
    EGRESS_MISLED,     /* the name inside (SNI, Host) is not the one that was allowed */
    EGRESS_UNRESOLVED, /* allowed, but the name has no address */
    EGRESS_UNREACHED,  /* allowed, but nobody answers there */
    EGRESS_LIMITED,    /* over a limit of this sandbox */
    EGRESS_DISTRUSTED, /* TLS that was to be opened: one of its two ends does not trust the other */
    EGRESS_TIMED_OUT,  /* allowed, but the answer did not come, or stopped in the middle */
    EGRESS_ASKED,      /* waits for an answer (EGRESS_ASK alone) */
    EGRESS_VERDICTS
};

struct egress_decision {
    struct box_name name;
    uint64_t serial;  /* of the connection, in this egress process; with pid, unique */
    uint64_t version; /* of the policy, 0: there was none */
    int64_t time_ms;  /* wall */
    uint32_t pid;     /* of the egress process */
    uint32_t request; /* of this connection, from 1: a connection may carry several */
    uint16_t port;
    uint8_t kind;                /* enum egress_kind */
    uint8_t verdict;             /* enum egress_verdict */
    uint32_t reason;             /* src/policy's */
    char host[EGRESS_HOST_SIZE]; /* a name, an address; "" when there was none to be read */
    char rule[EGRESS_TEXT_SIZE]; /* as it was written, or "" */
    char text[EGRESS_TEXT_SIZE]; /* why, for people */
    char method[24], path[EGRESS_HOST_SIZE]; /* of plain HTTP, cut off; else "" */
};

struct egress_flow {
    struct box_name name;
    uint64_t serial;
    int64_t started_ms, ended_ms;
    uint64_t sent, received; /* bytes, as the sandbox sees it */
    uint32_t pid, request;
    struct egress_addr addr; /* where it went */
    uint16_t zero;
    uint8_t kind, revoked; /* revoked: closed because its rule was taken back */
    char host[EGRESS_HOST_SIZE];
};

struct egress_asked {
    uint64_t serial;
};

struct egress_lost {
    uint64_t count; /* since the last time */
};

/* What a program inside wants of the api process; what is not answered by the egress process. */
enum egress_wish {
    EGRESS_WISH_ASK = 1, /* that somebody allows host and port */
    EGRESS_WISH_LIST,    /* what became of its questions */
    EGRESS_WISH_READ,    /* of the one with this id */
    EGRESS_WISHES
};

struct egress_own {
    struct box_name name;
    uint32_t wish; /* enum egress_wish */
    uint16_t port; /* 0: the usual ones */
    uint16_t zero;
    char host[EGRESS_HOST_SIZE];
    char id[40];
    char reason[EGRESS_HOST_SIZE];
};

/* A request of a program inside to the hub; path and body are behind this. */
struct egress_hub {
    struct box_name name;
    char method[8];
    uint32_t path_size, body_size;
};

#define EGRESS_TOLD_MAX 65536
struct egress_told {
    uint32_t status; /* of HTTP */
    uint32_t size;   /* of the bytes behind this */
};

struct egress_used {
    struct box_name name;
    uint64_t bytes; /* sent and received, since the sandbox was made */
};

struct egress_holds {
    struct box_name name;
    uint64_t version; /* of the policy; 0: all is denied, whatever was said */
    uint32_t flags;   /* of enum egress_box_flag: EGRESS_STEERED */
    uint32_t zero;
};

/* The largest message there is. */
#define EGRESS_MSG_MAX                                                                             \
    (sizeof(struct egress_head) + sizeof(struct egress_policy) + EGRESS_POLICY_MAX)

union egress_body {
    struct egress_config config;
    struct egress_policy policy;
    struct egress_inject inject;
    struct egress_authority authority;
    struct box_name forget;
    struct egress_answer answer;
    struct egress_decision decision; /* and ASK */
    struct egress_flow flow;
    struct egress_asked asked;
    struct egress_lost lost;
    struct egress_used used;
    struct egress_own own;
    struct egress_told told;
    struct egress_hub hub;
    struct egress_holds holds;
};

struct egress_msg {
    struct egress_head head;
    union egress_body body;
    const void *tail; /* the bytes behind the body, in the space of egress_recv */
};

/*
 * One message; `tail` with as many bytes as the body says goes behind those that have one. Magic,
 * version and sizes are filled in. -1 with errno: EAGAIN when the other side does not read, EINVAL.
 */
must_use int egress_send(int fd, struct egress_msg *msg);
/*
 * Several with no tails, in one datagram, which costs little more than one of them. All of them
 * were taken, or none was: -1 as above.
 */
#define EGRESS_MANY 32
must_use int egress_send_many(int fd, struct egress_msg *msgs, unsigned count);

/* A datagram, and how far it was read. */
struct egress_in {
    char *space; /* owned, EGRESS_MSG_MAX bytes */
    size_t at, len;
};

void egress_in_init(struct egress_in *in);
void egress_in_free(struct egress_in *in);
/* It is of another link from now on. */
void egress_in_reset(struct egress_in *in);
/* There is more of it, of which no descriptor tells. */
static inline bool egress_in_more(const struct egress_in *in)
{
    return in->at < in->len;
}
/*
 * The next message, checked: 1 got one; 0 the other end closed; -1 with errno, EPROTO for what is
 * no message. No descriptors are taken. Its tail is good until the next call.
 */
must_use int egress_recv(int fd, struct egress_in *in, struct egress_msg *msg);
