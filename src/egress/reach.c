/*
 * Whose is an address? The kernel's own tables answer: an address that a packet would be delivered
 * to here, broadcast or multicast is no way out, whatever a policy says. A list of interfaces would
 * be old by the time it is used, and would not know of routes.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/rtnetlink.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "egress/own.h"

int reach_open(struct egress *egress, struct err *err)
{
    egress->routes = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    return egress->routes < 0 ? err_sys(err, "ask for routes") : 0;
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

enum reach reach(struct egress *egress, const struct addr *addr, uint16_t port)
{
    if (is_listener(egress, addr, port))
        return REACH_OWN;
    switch (route_type(egress, addr)) {
    case RTN_UNICAST:
        return REACH_OUT;
    case -1:
    case RTN_UNREACHABLE:
    case RTN_BLACKHOLE:
    case RTN_PROHIBIT:
        return REACH_NONE;
    default:
        return REACH_OWN;
    }
}
