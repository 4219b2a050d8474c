/*
 * What the files of this room share. Everything is of the one thread.
 *
 * A connection of a sandbox, whatever it speaks:
 *
 *   accepted ─▶ POLICY? ─▶ HEAD (HTTP, CONNECT) ─┐                      ┌─▶ HTTP ─▶ HEAD, the next
 *                      ├─▶ HELLO (port 443) ─────┼▶ decided ─▶ LOOKUP ─▶ CONNECT
 *                      ├─▶ (other ports) ────────┘      │               ├─▶ HELLO (in a tunnel)
 *                      └─▶ DNS                          └─▶ END         └─▶ TUNNEL
 *
 * (A decision may be to ask somebody: ASK, which ends as if it had been made then. What becomes of
 * TLS that is opened is in intercept.c.)
 *
 * Nothing is looked up before a decision allowed it, nothing is connected to that was not looked at
 * after the lookup, and what comes out of a lookup is used once.
 */
#pragma once

#include <sys/socket.h>

#include "base/buf.h"
#include "base/guard.h"
#include "base/limits.h"
#include "base/list.h"
#include "base/map.h"
#include "egress/creds.h"
#include "egress/egress.h"
#include "egress/kept.h"
#include "egress/names.h"
#include "egress/trust.h"
#include "policy/policy.h"
#include "wire/wire.h"

#define LISTENERS 3 /* of a sandbox, at most */

struct resolver;
struct signer;
struct h1_head;
struct lookup;

struct egress {
    struct loop *loop;
    struct seal_private key;     /* opens what is sealed to this process */
    struct watch link;           /* the warden's */
    struct watch peer;           /* the api process's; fd -1: none yet */
    bool synced;                 /* it has said every policy there is */
    bool hearing;                /* what it says is being done right now */
    bool heard;                  /* and the kernel too, since those came that are judged now */
    struct egress_config config; /* what it said */
    struct box *slots[BOX_SLOTS];
    struct map by_id; /* struct box */
    unsigned boxes;
    uint32_t asked;             /* number of the last question */
    struct map asks;            /* struct conn, by the number of what it waits for */
    uint64_t serial;            /* of the last connection */
    uint64_t lost;              /* records that nobody took */
    struct egress_msg *records; /* EGRESS_MANY, that wait to be told together */
    unsigned record_count;
    struct timer flush; /* when they are */
    int64_t flushed_ms;
    uint32_t pid;
    struct egress_in in; /* what it says */
    struct resolver *resolver;
    struct trust *trust;   /* for TLS that is opened; NULL: none is */
    struct signer *signer; /* of `atoll proxy`; NULL for sandboxes */
    int routes, changes;   /* netlink: what is asked, and what is told of changes */
    struct route *ways;    /* reach.c: what was answered */
    int pipes[EGRESS_PIPES_MAX][2];
    unsigned pipe_count, pipes_open; /* those in use too */
};

/* A sandbox: something is known of it, by the warden (it has sockets) or by the api process. */
struct box {
    struct egress *egress;
    char id[BOX_ID_SIZE];
    bool here;    /* it has sockets, and a slot */
    bool held;    /* it is not accepted from for now */
    bool steered; /* its listener gets every connection, as the warden says */
    bool deaf;    /* its sockets could not be watched */
    uint32_t slot;
    struct watch listeners[LISTENERS], dns; /* fd -1: none */
    struct timer hold, tell; /* until it accepts again; until it is told how much was used */
    uint64_t said_used;      /* bytes, by the api process */
    int64_t self_ms;         /* since when requests to atoll.internal are counted */
    unsigned self_count;
    struct buf bytes;     /* of the policy, as the api process said it */
    bool said;            /* it has said one */
    struct policy policy; /* a view of them; policy_none */
    struct creds *creds;  /* what goes into its requests; NULL: nothing */
    struct kept *kept;    /* while it is here */
    struct mint *mint;    /* its authority; NULL: no TLS of it is opened */
    struct timer retell;  /* the authority was not taken */
    struct timer holds;   /* until the api process is told which policy holds */
    struct names names;
    struct list conns;
    unsigned conn_count;
};

/* ---- egress.c ---- */

/* All that the api process has said by now. Connections that are judged already may end of it. */
void egress_hear(struct egress *egress);

/* ---- box.c ---- */

/* Of the warden: takes the descriptors, the last of which is the DNS socket. */
void box_comes(struct egress *egress, const struct egress_box *what, const int *fds,
               unsigned count);
void box_goes(struct egress *egress, uint32_t slot);
/* Of the api process. */
void box_policy(struct egress *egress, const struct box_name *name, uint64_t used,
                struct str bytes);
void box_forget(struct egress *egress, const struct box_name *name);
/* Of the sandboxes of which a policy was said. */
void box_inject(struct egress *egress, const struct box_name *name, struct str bytes);
/* Nothing more will be said of those of which nothing was. */
void boxes_synced(struct egress *egress);
void box_init(struct box *box, struct egress *egress, const char *id);
/*
 * Bytes that it may still send and receive, UINT64_MAX without a limit; and so many were. Those
 * that are taken from a socket count, so that never more than allowed get to the other.
 */
uint64_t box_left(const struct box *box);
void box_uses(struct box *box, size_t bytes);
unsigned box_conns_max(const struct box *box); /* open at once */
/* One of its connections has ended: there may be room for another. */
void box_has_room(struct box *box);
uint32_t box_name_addr(void *box, const struct host *host); /* a dns_name_fn */
void egress_boxes_free(struct egress *egress);

/* ---- conn.c ---- */

enum stage {
    STAGE_POLICY, /* waits to be told what holds */
    STAGE_HEAD,   /* reads a request */
    STAGE_HELLO,  /* reads the first message of TLS */
    STAGE_TLS_IN, /* TLS with the program inside */
    STAGE_DNS,    /* questions over TCP */
    STAGE_SELF,   /* reads a request to atoll.internal, or waits for its answer */
    STAGE_ASK,    /* somebody is asked whether it may */
    STAGE_LOOKUP,
    STAGE_CONNECT,
    STAGE_TLS_OUT, /* TLS with the far end */
    STAGE_TUNNEL,
    STAGE_HTTP, /* one request and its answer */
    STAGE_END,  /* the last bytes go out */
};

/* One direction of a tunnel. */
struct lane {
    int from, to;
    struct buf *first; /* bytes that go before all others */
    int pipe[2];       /* held while there are bytes in it; -1: none */
    size_t held;
    bool eof, shut;
    uint64_t *count;
};

struct http; /* http.c */

struct conn {
    struct list link;
    struct list turn; /* of accept_from: it has spoken, and is to be judged */
    struct box *box;
    struct watch down, up;         /* the program inside, and the far end; fd -1: none */
    bool watched;                  /* down is; up always */
    uint32_t down_wants, up_wants; /* of their events: what counts of those that are watched for */
    struct timer timer;
    enum stage stage;
    unsigned in_vain; /* so often was it woken by what did not count */
    uint8_t kind;     /* enum egress_kind */
    bool revoked, flowing;
    enum { OPENED_NO, OPENED_SOON, OPENED_YES } opened; /* is its TLS? (intercept.c) */
    struct tls_conn *down_tls, *up_tls;                 /* NULL: in clear */
    uint16_t to_port; /* where the program inside thinks it is going */
    struct addr to;
    uint64_t serial;
    uint32_t request;
    struct host host; /* who it is to */
    uint16_t port;
    int64_t asked_ms;          /* wall: since when it waits for an answer */
    uint32_t ask;              /* number of the question that waits for an answer; 0: none */
    bool granted;              /* it was allowed by an answer */
    bool unchecked;            /* any bytes may be sent to this port of the host */
    bool in_tunnel;            /* its requests came in a tunnel: to conn->host and port alone */
    bool far_spoke;            /* in a tunnel, before the program inside */
    struct buf in, out, ahead; /* read from inside; to be written inside, to the far end */
    struct lookup *lookup;
    struct addr addrs[EGRESS_ADDRS_MAX];
    unsigned addr_count, addr_at;
    struct lane lanes[2];
    uint64_t sent, received;
    int64_t started_ms;
    struct http *http;
};

/* One that has spoken already is put at the end of `spoken`, and judged by conn_spoken. */
void conn_new(struct box *box, int fd, struct list *spoken);
void conn_spoken(struct egress *egress, struct list *spoken);
/* For whom there is nothing but a proxy. */
void conn_proxy(struct box *box, int fd);
void conn_close(struct conn *conn);
/* A policy has come, or will not come. */
void conn_policy(struct conn *conn);
void conn_timer(struct conn *conn, int64_t ms);
void conn_stage(struct conn *conn, enum stage stage, int64_t ms);
/* What it wants to be woken by. */
void conn_wants(struct conn *conn, uint32_t down, uint32_t up);
/* Reads from inside into conn->in; false when nothing more comes, or it was closed. */
must_use bool conn_read(struct conn *conn, size_t max);
/* Ends it with a record; what is said inside depends on its kind. */
void conn_refuse(struct conn *conn, enum egress_verdict verdict, const struct policy_answer *answer,
                 const char *text);
/* Sends what is in conn->out, waits a little for it to be taken, and closes. */
void conn_end(struct conn *conn);
void conn_flush(struct conn *conn);
/* Its far end has something to say: a watch's fn. */
void conn_up_woken(struct watch *watch, uint32_t events);

/* The first message of TLS is there, or a part of it. */
void conn_hello(struct conn *conn);
void conn_hello_tls(struct conn *conn); /* it is TLS, or must be */

/* ---- judge.c ---- */

/* Asks the policy about host and port, perhaps somebody too; it goes on (conn_reach), or is over.
 */
void conn_decide(struct conn *conn, enum policy_view view, uint8_t method, struct str path);
/* What it was allowed may be no more: closed then. */
void conn_judge_again(struct conn *conn);
/* Of the api process: what it was asked by this number may be, or may not. */
void conn_answered(struct egress *egress, uint32_t number, bool allow);
/* Gives it a number by which an answer finds it; until it is over. */
void conn_ask_begin(struct conn *conn);
void conn_ask_over(struct conn *conn);
void conn_ask_give_up(struct conn *conn); /* it does not wait any more */
/* There is another api process, or it was not told all: it hears of the question again. */
void conn_ask_again(struct conn *conn);
struct conn *conn_by_ask(struct egress *egress, uint32_t number);
/* There is more to be moved than the sandbox may. */
void conn_over_limit(struct conn *conn);
/* How much may be read from a socket now; 0: nothing, and there is something to be read. */
size_t conn_may_take(struct conn *conn, int fd, size_t most);

/* ---- dial.c ---- */

/* Looks the host up and connects to it; it goes on from there, or is over. */
void conn_reach(struct conn *conn);
void dial_next(struct conn *conn); /* this address does not answer */
void dial_woken(struct conn *conn, bool down, uint32_t events);
/* The far end is let go of, with the record of what flowed. */
void conn_up_close(struct conn *conn);

/* ---- intercept.c ---- */

/* As recv and send on either socket, through TLS where there is some. */
ssize_t conn_get(struct conn *conn, bool down, void *out, size_t len);
ssize_t conn_put(struct conn *conn, bool down, const void *data, size_t len);
/* Does the policy say that TLS to conn->host is opened? Then it goes on from here, or is over. */
must_use bool intercept_takes(struct conn *conn);
void intercept_hello(struct conn *conn); /* the first message is good */
void intercept_connected(struct conn *conn);
void intercept_woken(struct conn *conn, bool down);
void intercept_late(struct conn *conn);
void intercept_free(struct conn *conn, bool down); /* with a word that nothing more comes */
/* What to wait for, and what it means: the library may hold bytes that no socket announces. */
uint32_t intercept_wants(const struct tls_conn *tls, uint32_t events);
uint32_t intercept_events(const struct tls_conn *tls, const struct watch *watch, uint32_t events);
/* The policy may have changed: it has an authority and its sandbox knows it, or has none. */
void authority_keep(struct box *box);
void authority_drop(struct box *box);

/* ---- http.c ---- */

void http_head(struct conn *conn); /* bytes have come, or are there already */
void http_connected(struct conn *conn);
void http_woken(struct conn *conn, bool down, uint32_t events);
void http_free(struct conn *conn);
void http_late(struct conn *conn); /* nothing has moved for too long */
/* What a refusal says inside. */
void http_refusal(struct conn *conn, enum egress_verdict verdict,
                  const struct policy_answer *answer, const char *text);
/* An answer of our own, after which the connection is to be ended. */
void http_answer(struct conn *conn, int status, const char *reason, struct str body);
const struct h1_head *http_head_of(const struct conn *conn); /* of the request */

/* ---- self.c ---- */

void self_asked(struct conn *conn); /* http://atoll.internal/: the head is there */
void self_woken(struct conn *conn); /* and more of the body */
/* Of the api process: the answer to what it was asked by this number. */
void self_told(struct egress *egress, uint32_t number, int status, struct str body);
void self_late(struct conn *conn);

/* ---- signed.c ---- */

must_use int signed_open(struct egress *egress, const struct egress_signed *how, struct err *err);
void signed_close(struct egress *egress);
/* Gives the connection the policy of the token in this head; false: it was answered 407. */
must_use bool signed_enter(struct conn *conn, const struct h1_head *head);
/* A connection of it has ended. Nothing happens to a sandbox. */
void signed_idle(struct box *box);
/* Who the token was made for; NULL: nobody, or a sandbox. */
const char *signed_session(const struct box *box);
void signed_record(const struct box *box, const struct egress_msg *msg);

/* ---- tunnel.c ---- */

/* The far end is connected. False: the bytes may flow without being looked at. */
must_use bool tunnel_begins(struct conn *conn);
void tunnel_opens(struct conn *conn); /* the first bytes from inside, or some of them */
void tunnel_far_spoke(struct conn *conn, uint32_t events);
void tunnel_late(struct conn *conn);

/* ---- relay.c ---- */

void relay_start(struct conn *conn);
void relay_woken(struct conn *conn, bool down, uint32_t events);
void relay_free(struct conn *conn);
void pipes_free(struct egress *egress);

/* ---- reach.c ---- */

enum reach {
    REACH_OUT,  /* elsewhere */
    REACH_OWN,  /* this machine, everybody, or one of our listeners */
    REACH_NONE, /* there is no way */
};

must_use int reach_open(struct egress *egress, struct err *err);
void reach_close(struct egress *egress);
/* All changes that the kernel has told of by now. */
void reach_hear(struct egress *egress);
enum reach reach(struct egress *egress, const struct addr *addr, uint16_t port);
socklen_t addr_sock(const struct addr *addr, uint16_t port, struct sockaddr_storage *out);

/* ---- resolve.c ---- */

must_use int resolver_new(struct egress *egress, struct err *err);
void resolver_free(struct egress *egress);
/* The servers of egress->config; without any, those of the machine. */
void resolver_config(struct egress *egress);
/* Sets conn->lookup; conn_resolved comes later, never from inside. */
void resolve(struct conn *conn);
void resolve_cancel(struct conn *conn);
/* dial.c: conn->addrs are there, or `error` says why not. */
void conn_resolved(struct conn *conn, const char *error);

/* ---- record.c ---- */

void record_decision(struct conn *conn, enum egress_verdict verdict,
                     const struct policy_answer *answer, const char *text);
void record_flow(struct conn *conn);
/* Sends what waits. */
void record_flush(struct egress *egress);
void record_turn(void *egress); /* the same, before each wait and once in a millisecond */
must_use bool record_used(struct box *box); /* false: it was not taken */
must_use bool record_holds(struct box *box);
/* A question of the connection that waits by conn->ask; false: it has not got there. */
must_use bool record_own(struct conn *conn, struct egress_own *own);
/* The same of a request to the hub. */
must_use bool record_hub(struct conn *conn, struct str method, struct str path, struct str body);
must_use bool record_ask(struct conn *conn, const struct policy_answer *answer);
void record_unask(struct conn *conn);
