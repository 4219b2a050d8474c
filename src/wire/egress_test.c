/* Every message there and back, and what is none: other sizes, texts without an end, odd numbers.
 */
#include "wire/egress.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/limits.h"
#include "base/test.h"

static char space[EGRESS_MSG_MAX];
static struct egress_in in = { .space = space };

static void pair_open(int pair[2])
{
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0);
}

static void pair_close(const int pair[2])
{
    close(pair[0]);
    close(pair[1]);
}

static struct egress_msg decision(void)
{
    return (struct egress_msg){ .head.verb = EGRESS_DECISION,
                                .body.decision = { .name.id = "sb1",
                                                   .kind = EGRESS_KIND_HTTP,
                                                   .verdict = EGRESS_DENIED,
                                                   .host = "example.test" } };
}

static struct egress_msg flow(void)
{
    return (struct egress_msg){ .head.verb = EGRESS_FLOW,
                                .body.flow = { .name.id = "sb1", .kind = EGRESS_KIND_TLS } };
}

static struct egress_msg config(void)
{
    struct egress_msg msg = { .head.verb = EGRESS_CONFIG };

    msg.body.config.own_count = 1;
    msg.body.config.own[0].family = 4;
    return msg;
}

static struct egress_msg policy(uint32_t size)
{
    static char bytes[EGRESS_POLICY_MAX];

    return (struct egress_msg){ .head.verb = EGRESS_POLICY,
                                .body.policy = { .name.id = "sb1", .size = size },
                                .tail = bytes };
}

static struct egress_msg inject(uint32_t size)
{
    static char bytes[EGRESS_POLICY_MAX];

    return (struct egress_msg){ .head.verb = EGRESS_INJECT,
                                .body.inject = { .name.id = "sb1", .size = size },
                                .tail = bytes };
}

static const char pem[] = "-----BEGIN CERTIFICATE-----\nAb+/09==\n-----END CERTIFICATE-----\n";

static struct egress_msg authority(void)
{
    return (struct egress_msg){
        .head.verb = EGRESS_AUTHORITY,
        .body.authority = { .name.id = "sb1", .size = sizeof(pem) - 1, .hash = 7 },
        .tail = pem
    };
}

static void check_through(struct egress_msg msg)
{
    struct egress_msg got;
    int pair[2];

    pair_open(pair);
    CHECK(egress_send(pair[0], &msg) == 0);
    CHECK(egress_recv(pair[1], &in, &got) == 1);
    CHECK(got.head.verb == msg.head.verb && got.head.number == msg.head.number);
    CHECK(memcmp(&got.body, &msg.body, sizeof(got.body)) == 0);
    pair_close(pair);
}

TEST(egress_messages_go_there_and_back)
{
    struct egress_msg answer = { .head = { .verb = EGRESS_ANSWER, .number = 7 } };

    answer.body.answer.allow = 1;
    check_through(decision());
    check_through(flow());
    check_through(config());
    check_through(policy(0));
    check_through(policy(EGRESS_POLICY_MAX));
    check_through(answer);
    check_through((struct egress_msg){ .head.verb = EGRESS_SYNCED });
    check_through((struct egress_msg){ .head.verb = EGRESS_FORGET, .body.forget.id = "sb1" });
    check_through((struct egress_msg){ .head.verb = EGRESS_LOST, .body.lost.count = 3 });
    check_through((struct egress_msg){ .head.verb = EGRESS_UNASK, .body.asked.serial = 3 });
}

/* In one datagram, as they are told in one turn; each is checked when its turn comes. */
TEST(egress_messages_that_come_together_are_read_one_by_one)
{
    static struct egress_msg many[EGRESS_MANY + 1];
    struct egress_msg got;
    int pair[2];

    for (unsigned i = 0; i < ARRAY_LEN(many); i++) {
        many[i] = i % 3 ? decision() : flow();
        many[i].head.number = i;
    }
    pair_open(pair);
    CHECK(egress_send_many(pair[0], many, EGRESS_MANY) == 0);
    for (unsigned i = 0; i < EGRESS_MANY; i++) {
        CHECK(egress_in_more(&in) == (i > 0));
        CHECK(egress_recv(pair[1], &in, &got) == 1);
        CHECK(got.head.number == i && got.head.verb == many[i].head.verb);
        CHECK(memcmp(&got.body, &many[i].body, sizeof(got.body)) == 0);
    }
    CHECK(!egress_in_more(&in));
    errno = 0;
    CHECK(egress_recv(pair[1], &in, &got) == -1 && errno == EAGAIN);
    errno = 0;
    CHECK(egress_send_many(pair[0], many, EGRESS_MANY + 1) == -1 && errno == EINVAL);
    errno = 0;
    CHECK(egress_send_many(pair[0], many, 0) == -1 && errno == EINVAL);
    many[1].body.decision.kind = EGRESS_KINDS;
    errno = 0;
    CHECK(egress_send_many(pair[0], many, 3) == -1 && errno == EINVAL);
    pair_close(pair);
}

TEST(egress_what_is_behind_a_message_is_one_too_or_none)
{
    struct egress_msg many[2] = { decision(), decision() }, got;
    const struct {
        size_t at; /* in the second head */
        int more;  /* bytes behind it, or missing */
    } wrong[] = { { offsetof(struct egress_head, magic), 0 },
                  { offsetof(struct egress_head, version), 0 },
                  { offsetof(struct egress_head, size), 0 },
                  { SIZE_MAX, -1 },
                  { SIZE_MAX, 1 } };
    size_t each = sizeof(many[0].head) + sizeof(struct egress_decision);
    int pair[2];

    for (unsigned i = 0; i < ARRAY_LEN(wrong); i++) {
        char bytes[4096] = { 0 };

        pair_open(pair);
        CHECK(egress_send_many(pair[0], many, 2) == 0);
        CHECK(recv(pair[1], bytes, sizeof(bytes), 0) == (ssize_t)(2 * each));
        if (wrong[i].at != SIZE_MAX)
            bytes[each + wrong[i].at]++;
        CHECK(send(pair[0], bytes, (size_t)((int)(2 * each) + wrong[i].more), 0) > 0);
        CHECK(egress_recv(pair[1], &in, &got) == 1);
        int second = egress_recv(pair[1], &in, &got);
        if (wrong[i].more == 1) {
            CHECK(second == 1);
            second = egress_recv(pair[1], &in, &got);
        }
        CHECK(second == -1 && errno == EPROTO && !egress_in_more(&in));
        pair_close(pair);
    }
}

/* What is left of a link is not taken for the words of the next. */
TEST(egress_what_a_link_said_last_goes_with_it)
{
    struct egress_msg many[2] = { decision(), decision() }, got;
    int pair[2];

    pair_open(pair);
    CHECK(egress_send_many(pair[0], many, 2) == 0);
    CHECK(egress_recv(pair[1], &in, &got) == 1 && egress_in_more(&in));
    egress_in_reset(&in);
    errno = 0;
    CHECK(egress_recv(pair[1], &in, &got) == -1 && errno == EAGAIN);
    pair_close(pair);
}

static void check_unsendable(struct egress_msg msg)
{
    int pair[2];

    pair_open(pair);
    errno = 0;
    CHECK(egress_send(pair[0], &msg) == -1 && errno == EINVAL);
    pair_close(pair);
}

/* Sent as bytes, by somebody who does not check. */
static void check_refused(struct egress_msg msg, size_t body, int more)
{
    struct egress_msg got;
    char *bytes = calloc(1, EGRESS_MSG_MAX + 64);
    size_t len = sizeof(msg.head) + body + (size_t)more;
    int pair[2];

    msg.head.magic = EGRESS_MAGIC;
    msg.head.version = EGRESS_VERSION;
    msg.head.size = (uint32_t)(body + (size_t)more);
    memcpy(bytes, &msg.head, sizeof(msg.head));
    memcpy(bytes + sizeof(msg.head), &msg.body, MIN(body, sizeof(msg.body)));
    pair_open(pair);
    CHECK(send(pair[0], bytes, len, 0) == (ssize_t)len);
    errno = 0;
    CHECK(egress_recv(pair[1], &in, &got) == -1 && errno == EPROTO);
    pair_close(pair);
    free(bytes);
}

static void check_bad(struct egress_msg msg, size_t body)
{
    check_unsendable(msg);
    check_refused(msg, body, 0);
}

#define WRONG(make, size, field, value)                                                            \
    do {                                                                                           \
        struct egress_msg msg_ = make();                                                           \
        msg_.body.field = (value);                                                                 \
        check_bad(msg_, sizeof(struct size));                                                      \
    } while (0)

TEST(egress_messages_with_odd_contents_are_none)
{
    struct egress_msg msg = decision();

    WRONG(decision, egress_decision, decision.kind, 0);
    WRONG(decision, egress_decision, decision.kind, EGRESS_KINDS);
    WRONG(decision, egress_decision, decision.verdict, 0);
    WRONG(decision, egress_decision, decision.verdict, EGRESS_VERDICTS);
    WRONG(decision, egress_decision, decision.name.id[0], 'A');
    memset(msg.body.decision.host, 'x', sizeof(msg.body.decision.host));
    check_bad(msg, sizeof(struct egress_decision));
    msg = decision();
    memset(msg.body.decision.rule, 'x', sizeof(msg.body.decision.rule));
    check_bad(msg, sizeof(struct egress_decision));
    msg = decision();
    memset(msg.body.decision.text, 'x', sizeof(msg.body.decision.text));
    check_bad(msg, sizeof(struct egress_decision));
    msg = decision();
    memset(msg.body.decision.method, 'x', sizeof(msg.body.decision.method));
    check_bad(msg, sizeof(struct egress_decision));
    msg = decision();
    memset(msg.body.decision.path, 'x', sizeof(msg.body.decision.path));
    check_bad(msg, sizeof(struct egress_decision));

    WRONG(flow, egress_flow, flow.kind, EGRESS_KINDS);
    WRONG(flow, egress_flow, flow.revoked, 2);
    WRONG(flow, egress_flow, flow.addr.family, 5);
    msg = flow();
    memset(msg.body.flow.host, 'x', sizeof(msg.body.flow.host));
    check_bad(msg, sizeof(struct egress_flow));

    WRONG(config, egress_config, config.own_count, EGRESS_OWN_MAX + 1);
    WRONG(config, egress_config, config.own_count, 2);
    WRONG(config, egress_config, config.own_count, 0);
    WRONG(config, egress_config, config.resolvers[0].family, 9);
}

TEST(egress_messages_of_another_size_are_none)
{
    check_refused(decision(), sizeof(struct egress_decision), 1);
    check_refused(decision(), sizeof(struct egress_decision) - 1, 0);
    check_refused(policy(10), sizeof(struct egress_policy), 9);
    check_refused(policy(10), sizeof(struct egress_policy), 11);
    check_unsendable(policy(EGRESS_POLICY_MAX + 1));
    check_refused(policy(EGRESS_POLICY_MAX + 1), sizeof(struct egress_policy),
                  EGRESS_POLICY_MAX + 1);
    check_refused((struct egress_msg){ .head.verb = EGRESS_SYNCED }, 0, 1);
    check_refused((struct egress_msg){ .head.verb = EGRESS_VERBS }, 0, 0);
    check_refused((struct egress_msg){ .head.verb = 0 }, 0, 0);
}

TEST(egress_secrets_are_as_long_as_their_message_says)
{
    check_through(inject(0));
    check_through(inject(EGRESS_POLICY_MAX));
    check_refused(inject(10), sizeof(struct egress_inject), 9);
    check_refused(inject(10), sizeof(struct egress_inject), 11);
    check_unsendable(inject(EGRESS_POLICY_MAX + 1));
}

static struct egress_msg hub(uint32_t path, uint32_t body)
{
    static char bytes[EGRESS_HUB_PATH_MAX + EGRESS_HUB_BODY_MAX + 2];

    return (struct egress_msg){
        .head = { .verb = EGRESS_HUB, .number = 5 },
        .body.hub = { .name.id = "sb1", .method = "GET", .path_size = path, .body_size = body },
        .tail = bytes
    };
}

TEST(egress_requests_to_the_hub_have_a_path_and_limits)
{
    check_through(hub(1, 0));
    check_through(hub(EGRESS_HUB_PATH_MAX, EGRESS_HUB_BODY_MAX));
    check_unsendable(hub(0, 0));
    check_unsendable(hub(EGRESS_HUB_PATH_MAX + 1, 0));
    check_unsendable(hub(1, EGRESS_HUB_BODY_MAX + 1));
}

TEST(egress_requests_to_the_hub_are_as_long_as_they_say)
{
    struct egress_msg msg = hub(1, 0);

    check_refused(hub(0, 0), sizeof(struct egress_hub), 0);
    check_refused(hub(EGRESS_HUB_PATH_MAX + 1, 0), sizeof(struct egress_hub),
                  EGRESS_HUB_PATH_MAX + 1);
    check_refused(hub(1, 10), sizeof(struct egress_hub), 10);
    memset(msg.body.hub.method, 'x', sizeof(msg.body.hub.method));
    check_bad(msg, sizeof(struct egress_hub));
}

TEST(egress_descriptors_beside_a_message_are_refused_and_closed)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = { 0 };
    struct egress_head head = { .magic = EGRESS_MAGIC,
                                .version = EGRESS_VERSION,
                                .verb = EGRESS_SYNCED };
    struct iovec part = { &head, sizeof(head) };
    struct msghdr out = { .msg_iov = &part,
                          .msg_iovlen = 1,
                          .msg_control = control.bytes,
                          .msg_controllen = sizeof(control.bytes) };
    struct egress_msg got;
    int pair[2], pipe_fds[2];

    control.align = (struct cmsghdr){ .cmsg_level = SOL_SOCKET,
                                      .cmsg_type = SCM_RIGHTS,
                                      .cmsg_len = CMSG_LEN(sizeof(int)) };
    CHECK(pipe(pipe_fds) == 0);
    memcpy(CMSG_DATA(&control.align), &pipe_fds[1], sizeof(int));
    pair_open(pair);
    CHECK(sendmsg(pair[0], &out, 0) == (ssize_t)sizeof(head));
    close(pipe_fds[1]);
    errno = 0;
    CHECK(egress_recv(pair[1], &in, &got) == -1 && errno == EPROTO);
    CHECK(read(pipe_fds[0], space, 1) == 0); /* nobody holds the other end */
    close(pipe_fds[0]);
    pair_close(pair);
}

TEST(egress_the_end_and_nothing_yet_are_told_apart)
{
    struct egress_msg got;
    int pair[2];

    pair_open(pair);
    errno = 0;
    CHECK(egress_recv(pair[1], &in, &got) == -1 && errno == EAGAIN);
    close(pair[0]);
    CHECK(egress_recv(pair[1], &in, &got) == 0);
    close(pair[1]);
}

TEST(what_goes_into_requests_and_what_is_trusted_go_there_and_back)
{
    check_through(inject(0));
    check_through(inject(EGRESS_POLICY_MAX));
    check_through(authority());
}

/* It is written into files of a sandbox: nothing that is not of PEM gets there. */
TEST(an_authority_is_pem_and_nothing_else)
{
    static char text[EGRESS_AUTHORITY_MAX + 1];
    struct egress_msg got, msg = authority();
    int pair[2];

    memset(text, 'A', sizeof(text));
    memcpy(text, pem, 28);
    for (size_t i = 0; i < sizeof(pem) - 1; i++) {
        char changed[sizeof(pem)];

        memcpy(changed, pem, sizeof(pem));
        changed[i] = i % 2 ? '#' : 0;
        msg.tail = changed;
        pair_open(pair);
        CHECK(egress_send(pair[0], &msg) == 0);
        CHECK(egress_recv(pair[1], &in, &got) == -1 && errno == EPROTO);
        pair_close(pair);
    }
    text[EGRESS_AUTHORITY_MAX - 1] = '\n';
    msg.body.authority.size = EGRESS_AUTHORITY_MAX;
    msg.tail = text;
    check_through(msg);
    msg.body.authority.size++;
    check_unsendable(msg);
    msg.body.authority.size = 0;
    check_unsendable(msg);
}

TEST(which_policy_holds_is_said_and_checked)
{
    struct egress_msg msg = { .head.verb = EGRESS_HOLDS,
                              .body.holds = { { "sb1" }, 7, EGRESS_STEERED, 0 } };

    check_through(msg);
    msg.body.holds.flags = EGRESS_KEPT;
    check_bad(msg, sizeof(msg.body.holds));
    msg.body.holds.flags = 0;
    msg.body.holds.zero = 1;
    check_bad(msg, sizeof(msg.body.holds));
}
