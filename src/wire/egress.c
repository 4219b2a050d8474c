/*
 * The table of verbs says how long each body is and which function looks at what is in it. A text
 * without its NUL, a number that stands for nothing or a byte too many makes it no message.
 */
#include "wire/egress.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

_Static_assert(sizeof(struct egress_head) == 16, "fixed");
_Static_assert(sizeof(struct egress_addr) == 20, "fixed");
_Static_assert(sizeof(struct egress_box) == 48, "fixed");
_Static_assert(sizeof(struct egress_policy) == 56, "fixed");
_Static_assert(sizeof(struct egress_inject) == 48, "fixed");
_Static_assert(sizeof(struct egress_decision) == 872, "fixed");
_Static_assert(sizeof(struct egress_flow) == 368, "fixed");

#define text_ok(text) (memchr(text, 0, sizeof(text)) != NULL)

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
    [EGRESS_LOST]     = { sizeof(struct egress_lost), any },
};
/* clang-format on */

static bool verb_ok(unsigned verb)
{
    return verb > 0 && verb < EGRESS_VERBS;
}

/* Bytes behind the body. */
static size_t tail_of(const struct egress_msg *msg)
{
    return msg->head.verb == EGRESS_POLICY   ? msg->body.policy.size
           : msg->head.verb == EGRESS_INJECT ? msg->body.inject.size
                                             : 0;
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

/* `len` bytes at `space`: a message, whole and with nothing behind it? */
static bool take(const char *space, size_t len, struct egress_msg *msg)
{
    *msg = (struct egress_msg){ 0 };
    if (len < sizeof(msg->head))
        return false;
    memcpy(&msg->head, space, sizeof(msg->head));
    if (msg->head.magic != EGRESS_MAGIC || msg->head.version != EGRESS_VERSION ||
        !verb_ok(msg->head.verb) || len != sizeof(msg->head) + msg->head.size ||
        msg->head.size < verbs[msg->head.verb].size)
        return false;
    size_t size = verbs[msg->head.verb].size;
    memcpy(&msg->body, space + sizeof(msg->head), size);
    msg->tail = space + sizeof(msg->head) + size;
    return verbs[msg->head.verb].ok(&msg->body) && msg->head.size == size + tail_of(msg);
}

int egress_recv(int fd, void *space, struct egress_msg *msg)
{
    struct iovec part = { space, EGRESS_MSG_MAX };
    struct msghdr in = { .msg_iov = &part, .msg_iovlen = 1 }; /* no room for descriptors */
    ssize_t got;

    do
        got = recvmsg(fd, &in, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    while (got < 0 && errno == EINTR);
    if (got <= 0)
        return (int)got;
    if (!(in.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) && take(space, (size_t)got, msg))
        return 1;
    errno = EPROTO;
    return -1;
}
