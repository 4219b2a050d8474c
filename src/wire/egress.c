/*
 * The table of verbs says how long each body is and which function looks at what is in it. A text
 * without its NUL, a number that stands for nothing or a byte too many makes it no message.
 */
#include "wire/egress.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/limits.h"
#include "base/mem.h"

_Static_assert(sizeof(struct egress_head) == 16, "fixed");
_Static_assert(sizeof(struct egress_addr) == 20, "fixed");
_Static_assert(sizeof(struct egress_box) == 48, "fixed");
_Static_assert(sizeof(struct egress_policy) == 64, "fixed");
_Static_assert(sizeof(struct egress_inject) == 48, "fixed");
_Static_assert(sizeof(struct egress_authority) == 48, "fixed");
_Static_assert(sizeof(struct egress_decision) == 872, "fixed");
_Static_assert(sizeof(struct egress_flow) == 368, "fixed");
_Static_assert(sizeof(struct egress_hub) == 56, "fixed");
_Static_assert(sizeof(struct egress_holds) == 56, "fixed");

#define text_ok(text) (memchr(text, 0, sizeof(text)) != NULL)

_Static_assert(EGRESS_MANY *(sizeof(struct egress_head) + sizeof(struct egress_decision)) <=
                   EGRESS_MSG_MAX,
               "all of them are read at once");

static bool addr_ok(const struct egress_addr *addr)
{
    return (addr->family == 0 || addr->family == 4 || addr->family == 6) && addr->zero == 0;
}

static bool config_ok(const union egress_body *body)
{
    const struct egress_config *config = &body->config;

    if (config->own_count > EGRESS_OWN_MAX)
        return false;
    for (unsigned i = 0; i < EGRESS_RESOLVERS; i++)
        if (!addr_ok(&config->resolvers[i]))
            return false;
    for (unsigned i = 0; i < EGRESS_OWN_MAX; i++)
        if (!addr_ok(&config->own[i]) || !config->own[i].family != (i >= config->own_count))
            return false;
    return true;
}

static bool policy_ok(const union egress_body *body)
{
    return box_name_ok(&body->policy.name) && body->policy.size <= EGRESS_POLICY_MAX &&
           body->policy.zero == 0;
}

static bool inject_ok(const union egress_body *body)
{
    return box_name_ok(&body->inject.name) && body->inject.size <= EGRESS_POLICY_MAX &&
           body->inject.zero == 0;
}

/* The alphabet of PEM: it is written into files of the sandbox. */
static bool pem_ok(const char *pem, size_t len)
{
    static const char begin[] = "-----BEGIN CERTIFICATE-----\n";

    for (size_t i = 0; i < len; i++)
        if (!(pem[i] >= 'a' && pem[i] <= 'z') && !(pem[i] >= 'A' && pem[i] <= 'Z') &&
            !(pem[i] >= '0' && pem[i] <= '9') && (!pem[i] || !strchr("+/=- \n", pem[i])))
            return false;
    return len > sizeof(begin) && memcmp(pem, begin, sizeof(begin) - 1) == 0 &&
           pem[len - 1] == '\n';
}

static bool authority_ok(const union egress_body *body)
{
    return box_name_ok(&body->authority.name) && body->authority.size &&
           body->authority.size <= EGRESS_AUTHORITY_MAX;
}

static bool forget_ok(const union egress_body *body)
{
    return box_name_ok(&body->forget);
}

static bool answer_ok(const union egress_body *body)
{
    return body->answer.allow <= 1 && body->answer.zero == 0;
}

static bool decision_ok(const union egress_body *body)
{
    const struct egress_decision *one = &body->decision;

    return box_name_ok(&one->name) && one->kind > 0 && one->kind < EGRESS_KINDS &&
           one->verdict > 0 && one->verdict < EGRESS_VERDICTS && text_ok(one->host) &&
           text_ok(one->rule) && text_ok(one->text) && text_ok(one->method) && text_ok(one->path);
}

static bool flow_ok(const union egress_body *body)
{
    const struct egress_flow *one = &body->flow;

    return box_name_ok(&one->name) && addr_ok(&one->addr) && one->zero == 0 && one->kind > 0 &&
           one->kind < EGRESS_KINDS && one->revoked <= 1 && text_ok(one->host);
}

static bool used_ok(const union egress_body *body)
{
    return box_name_ok(&body->used.name);
}

static bool holds_ok(const union egress_body *body)
{
    const struct egress_holds *holds = &body->holds;

    return box_name_ok(&holds->name) && !(holds->flags & ~(uint32_t)EGRESS_STEERED) &&
           holds->zero == 0;
}

static bool own_ok(const union egress_body *body)
{
    const struct egress_own *own = &body->own;

    return box_name_ok(&own->name) && own->wish > 0 && own->wish < EGRESS_WISHES &&
           own->zero == 0 && text_ok(own->host) && text_ok(own->id) && text_ok(own->reason);
}

static bool hub_ok(const union egress_body *body)
{
    const struct egress_hub *hub = &body->hub;

    return box_name_ok(&hub->name) && text_ok(hub->method) && hub->path_size > 0 &&
           hub->path_size <= EGRESS_HUB_PATH_MAX && hub->body_size <= EGRESS_HUB_BODY_MAX;
}

static bool told_ok(const union egress_body *body)
{
    return body->told.status >= 200 && body->told.status < 600 &&
           body->told.size <= EGRESS_TOLD_MAX;
}

static bool any(const union egress_body *body)
{
    (void)body;
    return true;
}

/* clang-format off */
static const struct verb {
    size_t size;
    bool (*ok)(const union egress_body *body);
} verbs[EGRESS_VERBS] = {
    [EGRESS_CONFIG]   = { sizeof(struct egress_config), config_ok },
    [EGRESS_POLICY]   = { sizeof(struct egress_policy), policy_ok },
    [EGRESS_INJECT]   = { sizeof(struct egress_inject), inject_ok },
    [EGRESS_FORGET]   = { sizeof(struct box_name), forget_ok },
    [EGRESS_SYNCED]   = { 0, any },
    [EGRESS_ANSWER]   = { sizeof(struct egress_answer), answer_ok },
    [EGRESS_DECISION] = { sizeof(struct egress_decision), decision_ok },
    [EGRESS_FLOW]     = { sizeof(struct egress_flow), flow_ok },
    [EGRESS_ASK]      = { sizeof(struct egress_decision), decision_ok },
    [EGRESS_UNASK]    = { sizeof(struct egress_asked), any },
    [EGRESS_AUTHORITY] = { sizeof(struct egress_authority), authority_ok },
    [EGRESS_LOST]     = { sizeof(struct egress_lost), any },
    [EGRESS_OWN]      = { sizeof(struct egress_own), own_ok },
    [EGRESS_TOLD]     = { sizeof(struct egress_told), told_ok },
    [EGRESS_USED]     = { sizeof(struct egress_used), used_ok },
    [EGRESS_HUB]      = { sizeof(struct egress_hub), hub_ok },
    [EGRESS_HOLDS]    = { sizeof(struct egress_holds), holds_ok },
};
/* clang-format on */

static bool verb_ok(unsigned verb)
{
    return verb > 0 && verb < EGRESS_VERBS;
}

/* Bytes behind the body. */
static size_t tail_of(const struct egress_msg *msg)
{
    switch ((enum egress_verb)msg->head.verb) {
    case EGRESS_POLICY:
        return msg->body.policy.size;
    case EGRESS_INJECT:
        return msg->body.inject.size;
    case EGRESS_AUTHORITY:
        return msg->body.authority.size;
    case EGRESS_TOLD:
        return msg->body.told.size;
    case EGRESS_HUB:
        return (size_t)msg->body.hub.path_size + msg->body.hub.body_size;
    default:
        return 0;
    }
}

int egress_send(int fd, struct egress_msg *msg)
{
    bool good = verb_ok(msg->head.verb) && verbs[msg->head.verb].ok(&msg->body);
    ssize_t sent;

    if (!good || (tail_of(msg) && !msg->tail)) {
        errno = EINVAL;
        return -1;
    }
    size_t size = verbs[msg->head.verb].size, tail = tail_of(msg);
    struct iovec parts[] = { { &msg->head, sizeof(msg->head) },
                             { &msg->body, size },
                             { (void *)(uintptr_t)msg->tail, tail } };
    const struct msghdr out = { .msg_iov = parts, .msg_iovlen = ARRAY_LEN(parts) };

    msg->head.magic = EGRESS_MAGIC;
    msg->head.version = EGRESS_VERSION;
    msg->head.size = (uint32_t)(size + tail);
    do
        sent = sendmsg(fd, &out, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (sent < 0 && errno == EINTR);
    return sent < 0 ? -1 : 0;
}

int egress_send_many(int fd, struct egress_msg *msgs, unsigned count)
{
    struct iovec parts[EGRESS_MANY][2];
    const struct msghdr out = { .msg_iov = parts[0], .msg_iovlen = 2 * (size_t)count };
    ssize_t sent;

    if (count == 0 || count > EGRESS_MANY) {
        errno = EINVAL;
        return -1;
    }
    for (unsigned i = 0; i < count; i++) {
        struct egress_msg *msg = &msgs[i];

        if (!verb_ok(msg->head.verb) || !verbs[msg->head.verb].ok(&msg->body) || tail_of(msg)) {
            errno = EINVAL;
            return -1;
        }
        msg->head.magic = EGRESS_MAGIC;
        msg->head.version = EGRESS_VERSION;
        msg->head.size = (uint32_t)verbs[msg->head.verb].size;
        parts[i][0] = (struct iovec){ &msg->head, sizeof(msg->head) };
        parts[i][1] = (struct iovec){ &msg->body, msg->head.size };
    }
    do
        sent = sendmsg(fd, &out, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (sent < 0 && errno == EINTR);
    return sent < 0 ? -1 : 0;
}

/* The first of `len` bytes at `space`: how long it is; 0: it is no message. */
static size_t take(const char *space, size_t len, struct egress_msg *msg)
{
    *msg = (struct egress_msg){ 0 };
    if (len < sizeof(msg->head))
        return 0;
    memcpy(&msg->head, space, sizeof(msg->head));
    if (msg->head.magic != EGRESS_MAGIC || msg->head.version != EGRESS_VERSION ||
        !verb_ok(msg->head.verb) || len - sizeof(msg->head) < msg->head.size ||
        msg->head.size < verbs[msg->head.verb].size)
        return 0;
    size_t size = verbs[msg->head.verb].size;
    memcpy(&msg->body, space + sizeof(msg->head), size);
    msg->tail = space + sizeof(msg->head) + size;
    if (!verbs[msg->head.verb].ok(&msg->body) || msg->head.size != size + tail_of(msg) ||
        (msg->head.verb == EGRESS_AUTHORITY && !pem_ok(msg->tail, msg->body.authority.size)))
        return 0;
    return sizeof(msg->head) + msg->head.size;
}

void egress_in_init(struct egress_in *in)
{
    *in = (struct egress_in){ .space = xmalloc(EGRESS_MSG_MAX) };
}

void egress_in_free(struct egress_in *in)
{
    free(in->space);
    *in = (struct egress_in){ 0 };
}

void egress_in_reset(struct egress_in *in)
{
    in->at = in->len = 0;
}

/* 1: there are bytes; otherwise as egress_recv. */
static int fill(int fd, struct egress_in *in)
{
    struct iovec part = { in->space, EGRESS_MSG_MAX };
    struct msghdr head = { .msg_iov = &part, .msg_iovlen = 1 }; /* no room for descriptors */
    ssize_t got;

    egress_in_reset(in);
    do
        got = recvmsg(fd, &head, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    while (got < 0 && errno == EINTR);
    if (got <= 0)
        return (int)got;
    if (head.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) {
        errno = EPROTO;
        return -1;
    }
    in->len = (size_t)got;
    return 1;
}

int egress_recv(int fd, struct egress_in *in, struct egress_msg *msg)
{
    int got = egress_in_more(in) ? 1 : fill(fd, in);

    if (got <= 0)
        return got;
    size_t size = take(in->space + in->at, in->len - in->at, msg);
    if (!size) {
        egress_in_reset(in);
        errno = EPROTO;
        return -1;
    }
    in->at += size;
    return 1;
}
