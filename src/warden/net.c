/*
 * Raw system calls: a route by netlink, a program by bpf(). The program, as C would have it:
 *
 *     if (ctx->protocol != TCP || ctx->family != AF_INET || first byte of ctx->local_ip4 == 127)
 *         return SK_PASS;                                   the box's own servers, as ever
 *     sk = map[0];  if (sk) { assign(ctx, sk); release(sk); }
 *     return SK_PASS;
 *
 * It runs before the kernel looks for a listener, so that no server inside, on whatever address,
 * can stand between its neighbours and ours. IPv6 has a loopback address and no route.
 */
#include "warden/net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <sched.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/limits.h"
#include "warden/boxes.h"

#define OWN_NETWORK "/proc/self/ns/net"
#define LOOPBACK_INDEX 1 /* in every network namespace */

/* ---- the route ---- */

static int route_answer(int nl)
{
    struct {
        struct nlmsghdr head;
        struct nlmsgerr error;
        char echo[128];
    } answer;
    ssize_t got = recv(nl, &answer, sizeof(answer), 0);

    if (got < (ssize_t)offsetof(typeof(answer), echo) || answer.head.nlmsg_type != NLMSG_ERROR) {
        errno = EPROTO;
        return -1;
    }
    if (answer.error.error == 0 || answer.error.error == -EEXIST) /* of an earlier warden */
        return 0;
    errno = -answer.error.error;
    return -1;
}

/* ip route add local 0.0.0.0/0 dev lo */
static int route_all_here(void)
{
    struct {
        struct nlmsghdr head;
        struct rtmsg route;
        struct rtattr attr;
        uint32_t oif;
    } ask = {
        .head = { .nlmsg_len = sizeof(ask),
                  .nlmsg_type = RTM_NEWROUTE,
                  .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL },
        .route = { .rtm_family = AF_INET,
                   .rtm_table = RT_TABLE_LOCAL,
                   .rtm_protocol = RTPROT_STATIC,
                   .rtm_scope = RT_SCOPE_HOST,
                   .rtm_type = RTN_LOCAL },
        .attr = { RTA_LENGTH(sizeof(uint32_t)), RTA_OIF },
        .oif = LOOPBACK_INDEX,
    };
    autoclose int nl = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);

    if (nl < 0 || send(nl, &ask, sizeof(ask), 0) != (ssize_t)sizeof(ask))
        return -1;
    return route_answer(nl);
}

/* ---- the program ---- */

static int bpf(int command, union bpf_attr *attr, size_t size)
{
    return (int)syscall(SYS_bpf, command, attr, size);
}

/*
 * To check and to compile the program takes longer than all else here, and to free it makes every
 * processor stop for a moment. So of a box that ends, program and map are kept for the next; the
 * socket in the map is replaced before the program leads anybody to it.
 */
struct steering {
    int map, program;
};
static struct steering spare[NET_SPARES];
static unsigned spares;

static int map_put(int map, int listener)
{
    const uint32_t key = 0;
    const uint64_t value = (uint64_t)listener;
    union bpf_attr put = { .map_fd = (uint32_t)map,
                           .key = (uint64_t)(uintptr_t)&key,
                           .value = (uint64_t)(uintptr_t)&value };

    return bpf(BPF_MAP_UPDATE_ELEM, &put, sizeof(put));
}

static int map_make(void)
{
    union bpf_attr map = { .map_type = BPF_MAP_TYPE_SOCKMAP,
                           .key_size = sizeof(uint32_t),
                           .value_size = sizeof(uint64_t),
                           .max_entries = 1 };

    return bpf(BPF_MAP_CREATE, &map, sizeof(map));
}

#define LOAD(dst, field)                                                                           \
    {                                                                                              \
        .code = BPF_LDX | BPF_MEM | BPF_W, .dst_reg = (dst), .src_reg = 1,                         \
        .off = offsetof(struct bpf_sk_lookup, field)                                               \
    }
#define MOVE(dst, src)                                                                             \
    {                                                                                              \
        .code = BPF_ALU64 | BPF_MOV | BPF_X, .dst_reg = (dst), .src_reg = (src)                    \
    }
#define ALU(op, dst, value)                                                                        \
    {                                                                                              \
        .code = BPF_ALU64 | (op) | BPF_K, .dst_reg = (dst), .imm = (value)                         \
    }
#define SKIP(op, dst, value, count)                                                                \
    {                                                                                              \
        .code = BPF_JMP | (op) | BPF_K, .dst_reg = (dst), .off = (count), .imm = (value)           \
    }
#define CALL(what)                                                                                 \
    {                                                                                              \
        .code = BPF_JMP | BPF_CALL, .imm = (what)                                                  \
    }

static int program_for(int map)
{
    /* clang-format off */
    const struct bpf_insn code[] = {
        MOVE(6, 1),
        LOAD(2, protocol),            SKIP(BPF_JNE, 2, IPPROTO_TCP, 19),
        LOAD(2, family),              SKIP(BPF_JNE, 2, AF_INET, 17),
        LOAD(2, local_ip4),           ALU(BPF_AND, 2, (int32_t)htonl(0xff000000)),
                                      SKIP(BPF_JEQ, 2, (int32_t)htonl(0x7f000000), 14),
        { .code = BPF_ST | BPF_MEM | BPF_W, .dst_reg = 10, .off = -4 }, /* the key: 0 */
        { .code = BPF_LD | BPF_DW | BPF_IMM, .dst_reg = 1, .src_reg = BPF_PSEUDO_MAP_FD, .imm = map },
        { 0 },
        MOVE(2, 10),                  ALU(BPF_ADD, 2, -4),
        CALL(BPF_FUNC_map_lookup_elem),
        SKIP(BPF_JEQ, 0, 0, 7),
        MOVE(7, 0),
        MOVE(1, 6),                   MOVE(2, 0),                   ALU(BPF_MOV, 3, 0),
        CALL(BPF_FUNC_sk_assign),
        MOVE(1, 7),
        CALL(BPF_FUNC_sk_release),
        ALU(BPF_MOV, 0, SK_PASS),
        { .code = BPF_JMP | BPF_EXIT },
    };
    /* clang-format on */
    union bpf_attr load = { .prog_type = BPF_PROG_TYPE_SK_LOOKUP,
                            .expected_attach_type = BPF_SK_LOOKUP,
                            .insn_cnt = ARRAY_LEN(code),
                            .insns = (uint64_t)(uintptr_t)code,
                            .license = (uint64_t)(uintptr_t) "" };

    return bpf(BPF_PROG_LOAD, &load, sizeof(load));
}

/* The link holds the program, and that the map; all end with the link. */
static int steer_to(int listener)
{
    struct steering had = spares ? spare[--spares] : (struct steering){ -1, -1 };
    autoclose int map = had.map < 0 ? map_make() : had.map;
    autoclose int program = had.program < 0 && map >= 0 ? program_for(map) : had.program;
    autoclose int here =
        program < 0 || map_put(map, listener) < 0 ? -1 : ioctl(listener, SIOCGSKNS, 0);

    if (here < 0)
        return -1;
    union bpf_attr link = { .link_create = { .prog_fd = (uint32_t)program,
                                             .target_fd = (uint32_t)here,
                                             .attach_type = BPF_SK_LOOKUP } };
    return bpf(BPF_LINK_CREATE, &link, sizeof(link));
}

static int fd_by_id(int command, uint32_t id)
{
    union bpf_attr attr = { .prog_id = id }; /* of a map: in the same place */

    return id ? bpf(command, &attr, sizeof(attr)) : -1;
}

static int info_of(int fd, void *info, uint32_t len)
{
    union bpf_attr attr = {
        .info = { .bpf_fd = (uint32_t)fd, .info_len = len, .info = (uint64_t)(uintptr_t)info }
    };

    return bpf(BPF_OBJ_GET_INFO_BY_FD, &attr, sizeof(attr));
}

/* What a link holds, for the next one; or nothing, and then it ends with the link. */
static void steer_keep(int link)
{
    struct bpf_link_info of_link = { 0 };
    uint32_t map_id = 0;
    struct bpf_prog_info of_program = { .nr_map_ids = 1, .map_ids = (uint64_t)(uintptr_t)&map_id };

    if (spares == NET_SPARES || info_of(link, &of_link, sizeof(of_link)) < 0)
        return;
    autoclose int program = fd_by_id(BPF_PROG_GET_FD_BY_ID, of_link.prog_id);
    if (program < 0 || info_of(program, &of_program, sizeof(of_program)) < 0)
        return;
    autoclose int map = fd_by_id(BPF_MAP_GET_FD_BY_ID, map_id);
    if (map >= 0)
        spare[spares++] = (struct steering){ take_fd(&map), take_fd(&program) };
}

unsigned net_spares(void)
{
    return spares;
}

void net_spares_close(void)
{
    while (spares) {
        close(spare[--spares].map);
        close(spare[spares].program);
    }
}

/* ---- the sockets ---- */

static int socket_at(int type, uint32_t address, uint16_t port)
{
    const struct sockaddr_in at = { .sin_family = AF_INET,
                                    .sin_port = htons(port),
                                    .sin_addr.s_addr = htonl(address) };
    const int on = 1;
    autoclose int fd = socket(AF_INET, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0 ||
        (type == SOCK_STREAM && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0) ||
        bind(fd, (const struct sockaddr *)&at, sizeof(at)) < 0 ||
        (type == SOCK_STREAM && listen(fd, EGRESS_BACKLOG) < 0) ||
        (type == SOCK_DGRAM && setsockopt(fd, IPPROTO_IP, IP_PKTINFO, &on, sizeof(on)) < 0))
        return -1;
    return take_fd(&fd);
}

/* Bound to an address nobody else can want: what is asked of 127.0.0.1 never comes here. */
static int make_steered(struct net *net)
{
    net->listeners[0] = socket_at(SOCK_STREAM, EGRESS_SELF, EGRESS_PORT);
    if (net->listeners[0] < 0)
        return -1;
    net->steer = steer_to(net->listeners[0]);
    return net->steer < 0 ? -1 : 0;
}

/* Whatever the address, and only these ports. */
static int make_by_port(struct net *net)
{
    static const uint16_t ports[NET_LISTENERS] = { EGRESS_PORT, 80, 443 };

    net->listeners[0] = -1;
    for (size_t i = 0; i < NET_LISTENERS; i++)
        if ((net->listeners[i] = socket_at(SOCK_STREAM, i ? INADDR_ANY : EGRESS_SELF, ports[i])) <
            0)
            return -1;
    return 0;
}

static int make(struct net *net)
{
    if (route_all_here() < 0)
        return -1;
    if (make_steered(net) < 0) {
        if (errno != EPERM && errno != ENOSYS && errno != EINVAL)
            return -1;
        net_close(net);
        if (make_by_port(net) < 0)
            return -1;
    }
    net->dns = socket_at(SOCK_DGRAM, INADDR_ANY, 53);
    return net->dns < 0 ? -1 : 0;
}

int net_make(struct net *out)
{
    struct net net = NET_NONE;

    if (make(&net) < 0) {
        int error = errno;

        net_close(&net);
        errno = error;
        return -1;
    }
    *out = net;
    return 0;
}

int net_enter(int netns)
{
    struct stat before, after;

    if (stat(OWN_NETWORK, &before) < 0 || setns(netns, CLONE_NEWNET) < 0 ||
        stat(OWN_NETWORK, &after) < 0)
        return -1;
    if (before.st_ino != after.st_ino)
        return 0;
    errno = EXDEV;
    return -1;
}

/* Calls fn in another network, and comes back. */
static int elsewhere(int netns, int (*fn)(struct net *net), struct net *net)
{
    autoclose int home = open(OWN_NETWORK, O_RDONLY | O_CLOEXEC);

    if (home < 0)
        return -1;
    int rc = net_enter(netns) < 0 ? -1 : fn(net), error = errno;
    if (setns(home, CLONE_NEWNET) < 0)
        abort(); /* never go on in a stranger's network */
    errno = error;
    return rc;
}

int net_make_in(int netns, struct net *out)
{
    return elsewhere(netns, net_make, out);
}

int net_where(const struct net *net)
{
    return ioctl(net->dns, SIOCGSKNS, 0);
}

static int look(struct net *net)
{
    return net_unused(net);
}

bool net_as_new(int netns, struct net *net)
{
    return elsewhere(netns, look, net) > 0;
}

static void each_fd(struct net *net, void (*fn)(int *fd))
{
    for (size_t i = 0; i < NET_LISTENERS; i++)
        fn(&net->listeners[i]);
    fn(&net->dns);
    fn(&net->steer);
}

void net_close(struct net *net)
{
    if (net->steer >= 0)
        steer_keep(net->steer);
    each_fd(net, close_one);
}

void net_lift(struct net *net)
{
    each_fd(net, fd_lift);
}

unsigned net_fds(const struct net *net, int fds[NET_LISTENERS + 1])
{
    unsigned count = 0;

    for (size_t i = 0; i < NET_LISTENERS; i++)
        if (net->listeners[i] >= 0)
            fds[count++] = net->listeners[i];
    if (net->dns >= 0)
        fds[count++] = net->dns;
    return count;
}
