/*
 * Whose is an address? The kernel's own tables answer: an address that a packet would be delivered
 * to here, broadcast or multicast is no way out, whatever a policy says. A list of interfaces would
 * be old by the time it is used, and would not know of routes.
 *
 * An answer is good until the kernel tells of a change, which it has done by the time that the
 * change counts, and for a second at most.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/rtnetlink.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "egress/own.h"

#define WAYS 256
#define WAY_MS 1000
#define GROUP(n) (1u << ((n)-1))

struct route {
    struct addr addr; /* family 0: none */
    int type;
    int64_t until_ms;
};

int reach_open(struct egress *egress, struct err *err)
{
    const struct sockaddr_nl all = { .nl_family = AF_NETLINK,
                                     .nl_groups =
                                         GROUP(RTNLGRP_LINK) | GROUP(RTNLGRP_IPV4_IFADDR) |
                                         GROUP(RTNLGRP_IPV4_ROUTE) | GROUP(RTNLGRP_IPV4_RULE) |
                                         GROUP(RTNLGRP_IPV6_IFADDR) | GROUP(RTNLGRP_IPV6_ROUTE) |
                                         GROUP(RTNLGRP_IPV6_RULE) };

    egress->routes = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    egress->changes = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    if (egress->routes < 0 || egress->changes < 0 ||
        bind(egress->changes, (const struct sockaddr *)&all, sizeof(all)) < 0)
        return err_sys(err, "ask for routes");
    egress->ways = xcalloc(WAYS, sizeof(*egress->ways));
    return 0;
}

void reach_close(struct egress *egress)
{
    if (egress->routes >= 0)
        close(egress->routes);
    if (egress->changes >= 0)
        close(egress->changes);
    free(egress->ways);
}

/* Reads what it is told until there is no more. */
void reach_hear(struct egress *egress)
{
    char waste[4096];
    bool changed = false;

    if (egress->heard)
        return;
    while (recv(egress->changes, waste, sizeof(waste), MSG_DONTWAIT | MSG_TRUNC) >= 0 ||
           errno == ENOBUFS || errno == EINTR)
        changed = true;
    if (changed)
        memset(egress->ways, 0, WAYS * sizeof(*egress->ways));
}

static struct route *way_of(const struct egress *egress, const struct addr *addr)
{
    uint32_t hash = addr->family;

    for (size_t i = 0; i < sizeof(addr->bytes); i++)
        hash = hash * 31 + addr->bytes[i];
    return &egress->ways[hash % WAYS];
}

socklen_t addr_sock(const struct addr *addr, uint16_t port, struct sockaddr_storage *out)
{
    *out = (struct sockaddr_storage){ 0 };
    if (addr->family == 4) {
        struct sockaddr_in *in = (struct sockaddr_in *)out;

        in->sin_family = AF_INET;
        in->sin_port = htons(port);
        memcpy(&in->sin_addr, addr->bytes, 4);
        return sizeof(*in);
    }
    struct sockaddr_in6 *in = (struct sockaddr_in6 *)out;
    in->sin6_family = AF_INET6;
    in->sin6_port = htons(port);
    memcpy(&in->sin6_addr, addr->bytes, 16);
    return sizeof(*in);
}

static bool is_listener(const struct egress *egress, const struct addr *addr, uint16_t port)
{
    for (uint32_t i = 0; i < egress->config.own_count; i++) {
        const struct egress_addr *own = &egress->config.own[i];

        if (own->family == addr->family && (own->port == 0 || own->port == port) &&
            memcmp(own->bytes, addr->bytes, addr->family == 4 ? 4 : 16) == 0)
            return true;
    }
    return false;
}

/* RTN_ of the route that a packet would take; -1: none. */
static int route_type(struct egress *egress, const struct addr *addr)
{
    struct {
        struct nlmsghdr head;
        struct rtmsg route;
        struct rtattr attr;
        uint8_t bytes[16];
    } ask = { 0 };
    static uint32_t number;
    size_t size = addr->family == 4 ? 4 : 16;
    char back[2048];

    ask.head.nlmsg_len = (uint32_t)(NLMSG_LENGTH(sizeof(ask.route)) + RTA_LENGTH(size));
    ask.head.nlmsg_type = RTM_GETROUTE;
    ask.head.nlmsg_flags = NLM_F_REQUEST;
    ask.head.nlmsg_seq = ++number;
    ask.route.rtm_family = addr->family == 4 ? AF_INET : AF_INET6;
    ask.route.rtm_dst_len = (uint8_t)(size * 8);
    ask.attr.rta_type = RTA_DST;
    ask.attr.rta_len = (unsigned short)RTA_LENGTH(size);
    memcpy(ask.bytes, addr->bytes, size);
    if (send(egress->routes, &ask, ask.head.nlmsg_len, 0) < 0)
        return -1;
    for (int i = 0; i < 8; i++) { /* the answer is there when send returns */
        const struct nlmsghdr *head = (const struct nlmsghdr *)back;
        ssize_t got = recv(egress->routes, back, sizeof(back), MSG_DONTWAIT);

        if (got < (ssize_t)NLMSG_LENGTH(sizeof(struct rtmsg)))
            return -1;
        if (head->nlmsg_seq != number)
            continue;
        if (head->nlmsg_type != RTM_NEWROUTE)
            return -1;
        return ((const struct rtmsg *)NLMSG_DATA(head))->rtm_type;
    }
    return -1;
}

static int route_known(struct egress *egress, const struct addr *addr)
{
    struct route *way = way_of(egress, addr);
    int64_t now = loop_now(egress->loop);

    reach_hear(egress);
    if (way->until_ms <= now || memcmp(&way->addr, addr, sizeof(*addr)) != 0)
        *way = (struct route){ *addr, route_type(egress, addr), now + WAY_MS };
    return way->type;
}

enum reach reach(struct egress *egress, const struct addr *addr, uint16_t port)
{
    if (is_listener(egress, addr, port) && guard(own_listener))
        return REACH_OWN;
    switch (route_known(egress, addr)) {
    case RTN_UNICAST:
        return REACH_OUT;
    case -1:
    case RTN_UNREACHABLE:
    case RTN_BLACKHOLE:
    case RTN_PROHIBIT:
        return REACH_NONE;
    default:
        return guard(own_host) ? REACH_OWN : REACH_OUT;
    }
}
