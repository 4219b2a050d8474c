/*
 * c-ares on our loop. It is told never to look at files, never to try a name with something behind
 * it, and not to sort by trying to connect. It is asked once for each connection, after its
 * decision; there is no cache, so what was looked at is what is connected to.
 *
 * Nor does it ask by TCP, where a longer answer would be: it takes a server that does not answer
 * there for gone, and gives up whatever else it has asked it, for other sandboxes too. What fits
 * into one packet is more addresses than are looked at.
 *
 * A lookup outlives the connection that wanted it: c-ares cannot forget a single question.
 */
#include <ares.h>
#include <arpa/inet.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "egress/own.h"

#define SOCKETS 64
#define PACKET 1232 /* goes through every network in one piece */
#define TRY_MS 900
#define TRIES 3

struct lookup {
    struct conn *conn; /* NULL: nobody waits */
    struct egress *egress;
    struct post post;
    const char *error; /* NULL: the addresses are there */
    struct addr addrs[EGRESS_ADDRS_MAX];
    unsigned count;
};

struct source {
    struct watch watch; /* fd -1: free */
    struct resolver *resolver;
};

struct resolver {
    struct egress *egress;
    ares_channel channel;
    struct source sources[SOCKETS];
    struct timer timer;
    struct ares_addr_port_node *machine; /* the servers that it found */
};

static void timer_again(struct resolver *resolver)
{
    struct timeval most = { .tv_sec = 1 }, left;

    ares_timeout(resolver->channel, &most, &left);
    timer_set(resolver->egress->loop, &resolver->timer,
              (int64_t)left.tv_sec * 1000 + left.tv_usec / 1000 + 1);
}

static void on_timer(struct timer *timer)
{
    struct resolver *resolver = container_of(timer, struct resolver, timer);
    bool busy = false;

    ares_process_fd(resolver->channel, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
    for (size_t i = 0; i < SOCKETS; i++)
        busy |= resolver->sources[i].watch.fd >= 0;
    if (busy)
        timer_again(resolver);
}

static void on_source(struct watch *watch, uint32_t events)
{
    struct source *source = container_of(watch, struct source, watch);
    int fd = watch->fd;
    bool in = events & (EPOLLIN | EPOLLERR | EPOLLHUP), out = events & EPOLLOUT;

    ares_process_fd(source->resolver->channel, in ? fd : ARES_SOCKET_BAD,
                    out ? fd : ARES_SOCKET_BAD);
}

static struct source *source_of(struct resolver *resolver, int fd)
{
    for (size_t i = 0; i < SOCKETS; i++)
        if (resolver->sources[i].watch.fd == fd)
            return &resolver->sources[i];
    return NULL;
}

/* c-ares opened, closed or wants something else of a socket. */
static void on_state(void *ctx, ares_socket_t fd, int readable, int writable)
{
    struct resolver *resolver = ctx;
    struct source *source = source_of(resolver, fd);
    uint32_t events = (readable ? EPOLLIN : 0) | (writable ? EPOLLOUT : 0);
    struct err err = { 0 };

    if (source && !events) {
        loop_unwatch(resolver->egress->loop, &source->watch);
        source->watch.fd = -1;
    } else if (source) {
        loop_change(resolver->egress->loop, &source->watch, events);
    } else if (events && (source = source_of(resolver, -1))) {
        source->watch = (struct watch){ .fd = fd, .events = events, .fn = on_source };
        if (loop_watch(resolver->egress->loop, &source->watch, &err) < 0)
            source->watch.fd = -1; /* it will time out */
    }
}

int resolver_new(struct egress *egress, struct err *err)
{
    struct resolver *resolver = xnew(struct resolver);
    char by_dns[] = "b";
    struct ares_options options = { .flags = ARES_FLAG_NOSEARCH | ARES_FLAG_NOALIASES |
                                             ARES_FLAG_IGNTC | ARES_FLAG_EDNS,
                                    .ednspsz = PACKET,
                                    .timeout = TRY_MS,
                                    .tries = TRIES,
                                    .lookups = by_dns,
                                    .sock_state_cb = on_state,
                                    .sock_state_cb_data = resolver };
    int mask = ARES_OPT_FLAGS | ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_LOOKUPS |
               ARES_OPT_SOCK_STATE_CB | ARES_OPT_EDNSPSZ;

    egress->resolver = resolver;
    resolver->egress = egress;
    resolver->timer.fn = on_timer;
    for (size_t i = 0; i < SOCKETS; i++)
        resolver->sources[i] = (struct source){ { .fd = -1 }, resolver };
    int rc = ares_library_init(ARES_LIB_INIT_ALL);
    if (rc == ARES_SUCCESS)
        rc = ares_init_options(&resolver->channel, &options, mask);
    if (rc == ARES_SUCCESS)
        rc = ares_get_servers_ports(resolver->channel, &resolver->machine);
    return rc == ARES_SUCCESS ? 0 : err_set(err, ERR_INTERNAL, "c-ares: %s", ares_strerror(rc));
}

void resolver_free(struct egress *egress)
{
    struct resolver *resolver = egress->resolver;

    if (!resolver)
        return;
    timer_cancel(egress->loop, &resolver->timer);
    if (resolver->channel)
        ares_destroy(resolver->channel);
    ares_free_data(resolver->machine);
    free(resolver);
    egress->resolver = NULL;
}

void resolver_config(struct egress *egress)
{
    struct ares_addr_port_node nodes[EGRESS_RESOLVERS] = { 0 }, *first = NULL;

    for (int i = EGRESS_RESOLVERS - 1; i >= 0; i--) {
        const struct egress_addr *server = &egress->config.resolvers[i];

        if (!server->family)
            continue;
        nodes[i].family = server->family == 4 ? AF_INET : AF_INET6;
        nodes[i].udp_port = nodes[i].tcp_port = server->port ? server->port : 53;
        memcpy(&nodes[i].addr, server->bytes, server->family == 4 ? 4 : 16);
        nodes[i].next = first;
        first = &nodes[i];
    }
    int rc = ares_set_servers_ports(egress->resolver->channel,
                                    first ? first : egress->resolver->machine);
    if (rc != ARES_SUCCESS)
        log_error("resolver not taken", kv_str("error", ares_strerror(rc)));
}

/* ---- lookups ---- */

/* In a round of its own: c-ares is in the middle of something when it tells. */
static void told(struct post *post)
{
    struct lookup *lookup = container_of(post, struct lookup, post);
    struct conn *conn = lookup->conn;

    if (conn) {
        conn->lookup = NULL;
        conn->addr_at = 0;
        conn->addr_count = lookup->count;
        memcpy(conn->addrs, lookup->addrs, sizeof(lookup->addrs));
        conn_resolved(conn, lookup->error);
    }
    free(lookup);
}

/* IPv4 first: of a machine without IPv6 that is the quick way. False: more than are looked at. */
static bool take_addrs(struct lookup *lookup, const struct ares_addrinfo *info, int family)
{
    for (const struct ares_addrinfo_node *node = info->nodes; node; node = node->ai_next) {
        if (node->ai_family != family)
            continue;
        if (lookup->count == EGRESS_ADDRS_MAX)
            return false;
        /* Not unwrapped: an IPv4 address in an IPv6 answer is a trick (policy/addr.h). */
        struct addr *addr = &lookup->addrs[lookup->count++];
        *addr = (struct addr){ .family = family == AF_INET ? 4 : 6 };
        if (family == AF_INET)
            memcpy(addr->bytes,
                   &((const struct sockaddr_in *)(const void *)node->ai_addr)->sin_addr, 4);
        else
            memcpy(addr->bytes,
                   &((const struct sockaddr_in6 *)(const void *)node->ai_addr)->sin6_addr, 16);
    }
    return true;
}

static void on_answer(void *ctx, int status, int timeouts, struct ares_addrinfo *info)
{
    struct lookup *lookup = ctx;

    (void)timeouts;
    if (status == ARES_EDESTRUCTION) {
        free(lookup);
        return;
    }
    if (status != ARES_SUCCESS)
        lookup->error = ares_strerror(status);
    else if (!take_addrs(lookup, info, AF_INET) || !take_addrs(lookup, info, AF_INET6))
        lookup->error = "it has too many addresses";
    else if (!lookup->count)
        lookup->error = "it has no address";
    if (info)
        ares_freeaddrinfo(info);
    lookup->post.fn = told;
    loop_post(lookup->egress->loop, &lookup->post);
}

void resolve(struct conn *conn)
{
    struct egress *egress = conn->box->egress;
    const struct ares_addrinfo_hints hints = { .ai_family = AF_UNSPEC,
                                               .ai_socktype = SOCK_STREAM,
                                               .ai_flags = ARES_AI_NOSORT };
    char name[HOST_TEXT_SIZE + 1];
    struct lookup *lookup = xnew(struct lookup);

    lookup->conn = conn;
    lookup->egress = egress;
    conn->lookup = lookup;
    memcpy(name, conn->host.text, conn->host.len);
    memcpy(name + conn->host.len, "", 1);
    ares_getaddrinfo(egress->resolver->channel, name, NULL, &hints, on_answer, lookup);
    timer_again(egress->resolver);
}

void resolve_cancel(struct conn *conn)
{
    if (conn->lookup)
        conn->lookup->conn = NULL;
    conn->lookup = NULL;
}
