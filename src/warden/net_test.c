/*
 * What leads where in a sandbox's network. Each check is made by a child that steps into a new
 * network, so that this needs root and leaves nothing behind.
 */
#include "warden/net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/limits.h"
#include "base/test.h"

static struct sockaddr_in at(const char *text, uint16_t port)
{
    struct sockaddr_in addr = { .sin_family = AF_INET, .sin_port = htons(port) };

    CHECK(inet_pton(AF_INET, text, &addr.sin_addr) == 1);
    return addr;
}

/* Runs it in a network of its own, with the sockets made. */
static void inside(void (*fn)(struct net *net))
{
    if (geteuid() != 0)
        test_skip("stepping into a network needs root");
    pid_t pid = fork();
    if (pid == 0) {
        struct net net = NET_NONE;

        CHECK(unshare(CLONE_NEWNET) == 0 && loopback_up() == 0 && net_make(&net) == 0);
        fn(&net);
        net_close(&net);
        _exit(0);
    }
    int status = -1;
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK_INT(status, 0);
}

static int client(const char *text, uint16_t port)
{
    struct sockaddr_in to = at(text, port);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0)
        return fd;
    close(fd);
    return -1;
}

static int server(const char *text, uint16_t port)
{
    struct sockaddr_in on = at(text, port);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    CHECK(bind(fd, (struct sockaddr *)&on, sizeof(on)) == 0 && listen(fd, 4) == 0);
    return fd;
}

/* Who connected came to this listener, and meant this address. */
static void check_got(int listener, const char *text, uint16_t port)
{
    struct sockaddr_in meant, want = at(text, port);
    socklen_t len = sizeof(meant);
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

    CHECK(fd >= 0 && getsockname(fd, (struct sockaddr *)&meant, &len) == 0);
    CHECK(meant.sin_addr.s_addr == want.sin_addr.s_addr && meant.sin_port == want.sin_port);
    close(fd);
}

static void check_none(int listener)
{
    CHECK(accept4(listener, NULL, NULL, SOCK_CLOEXEC) < 0 && errno == EAGAIN);
}

static void every_address(struct net *net)
{
    CHECK(net->steer >= 0);
    CHECK(client("8.8.8.8", 443) >= 0);
    check_got(net->listeners[0], "8.8.8.8", 443);
    CHECK(client("10.1.2.3", 1) >= 0);
    check_got(net->listeners[0], "10.1.2.3", 1);
    CHECK(client(EGRESS_SELF_TEXT, EGRESS_PORT) >= 0);
    check_got(net->listeners[0], EGRESS_SELF_TEXT, EGRESS_PORT);
    check_none(net->listeners[0]);
}

TEST(every_connection_comes_to_the_one_listener)
{
    inside(every_address);
}

/* The kernel counts from 0: one more than it is told. Nobody takes them. */
static void many_at_once(struct net *net)
{
    struct sockaddr_in to = at("8.8.8.8", 443);
    unsigned there = 0;

    (void)net;
    CHECK(setrlimit(RLIMIT_NOFILE, &(struct rlimit){ 2 * EGRESS_BACKLOG, 2 * EGRESS_BACKLOG }) ==
          0);
    for (unsigned i = 0; i < EGRESS_BACKLOG + 2; i++) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

        CHECK(connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0 && errno == EINPROGRESS);
        there += connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0;
    }
    CHECK_INT(there, EGRESS_BACKLOG + 1);
}

TEST(so_many_come_at_once_without_waiting)
{
    inside(many_at_once);
}

/* The program of a box that ended leads nobody to that box's socket, also while that is open. */
static void used_again(struct net *first)
{
    int held = fcntl(first->listeners[0], F_DUPFD_CLOEXEC, 0); /* as the egress process may */
    struct net second = NET_NONE;

    CHECK(held >= 0 && net_spares() == 0);
    net_close(first);
    CHECK_INT(net_spares(), 1);
    CHECK(unshare(CLONE_NEWNET) == 0 && loopback_up() == 0 && net_make(&second) == 0);
    CHECK_INT(net_spares(), 0);
    every_address(&second);
    check_none(held);
    for (unsigned i = 0; i < NET_SPARES + 2; i++) { /* and no more are kept than that */
        struct net more = NET_NONE;

        net_close(&second);
        CHECK(unshare(CLONE_NEWNET) == 0 && loopback_up() == 0 && net_make(&second) == 0);
        CHECK(unshare(CLONE_NEWNET) == 0 && loopback_up() == 0 && net_make(&more) == 0);
        net_close(&more);
        CHECK(net_spares() <= NET_SPARES);
    }
    net_close(&second);
    net_spares_close();
    CHECK_INT(net_spares(), 0);
}

TEST(a_program_is_used_again_for_another_box)
{
    inside(used_again);
}

/* ---- one that may serve again ---- */

static void send_to(const char *text)
{
    struct sockaddr_in to = at(text, 9);
    autoclose int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    (void)!sendto(fd, "x", 1, 0, (struct sockaddr *)&to, sizeof(to));
}

static void nothing_done(struct net *net)
{
    struct net fewer = *net;
    int fds[NET_LISTENERS + 1];

    CHECK(!net_unused(net)); /* nobody knows yet how one looks that is new */
    net_learn();
    CHECK(net_unused(net));
    int own = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(!net_unused(net));
    close(own);
    CHECK(net_unused(net));
    own = server("127.0.0.1", 4000);
    CHECK(!net_unused(net));
    close(own);
    CHECK(net_unused(net) && net_fds(net, fds) == 2);
    fewer.dns = -1;
    CHECK(!net_unused(&fewer));
}

TEST(a_network_is_unused_while_nobodys_socket_is_in_it)
{
    inside(nothing_done);
}

static void was_sent(struct net *net)
{
    net_learn();
    CHECK(net_unused(net));
    send_to("127.0.0.1");
    CHECK(!net_unused(net));
}

static void was_not_sent(struct net *net)
{
    net_learn();
    CHECK(net_unused(net));
    send_to("224.0.0.1"); /* no route: nothing leaves */
    CHECK(!net_unused(net));
}

static void was_connected(struct net *net)
{
    net_learn();
    CHECK(net_unused(net));
    int there = server("127.0.0.1", 4000), here = client("127.0.0.1", 4000);
    CHECK(here >= 0);
    close(here);
    close(there);
    CHECK(!net_unused(net)); /* there is one in TIME_WAIT at least */
}

/* A label outlives its socket. */
static void was_labelled(struct net *net)
{
    struct {
        uint8_t to[16];
        uint32_t label;
        uint8_t action, share;
        uint16_t flags, expires, linger;
        uint32_t pad;
    } wish = { .to = { [15] = 1 },
               .label = htonl(1),
               .action = 0, /* IPV6_FL_A_GET */
               .share = 255,
               .flags = 1, /* IPV6_FL_F_CREATE */
               .expires = 6,
               .linger = 6 };
    net_learn();
    CHECK(net_unused(net));
    int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0 &&
          setsockopt(fd, IPPROTO_IPV6, 32 /* FLOWLABEL_MGR */, &wish, sizeof(wish)) == 0);
    close(fd);
    CHECK(!net_unused(net));
}

TEST(a_network_in_which_something_was_done_is_not_unused)
{
    inside(was_sent);
    inside(was_not_sent);
    inside(was_connected);
    inside(was_labelled);
}

/* In a network of this test's own, which stands for the host's. */
static void same_network(struct net *net)
{
    struct net more = NET_NONE;

    net_close(net);
    CHECK(unshare(CLONE_NEWNET) == 0 && loopback_up() == 0);
    autoclose int here = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    CHECK(here >= 0 && net_make_in(here, &more) < 0 && errno == EXDEV && more.dns < 0);
    CHECK(client("10.1.2.3", 80) < 0 && errno == ENETUNREACH); /* no route was left */
    CHECK(unshare(CLONE_NEWNET) == 0);
    CHECK(net_make_in(here, &more) == 0);
    net_close(&more);
}

TEST(the_hosts_own_network_is_left_alone)
{
    inside(same_network);
}

static void own_servers(struct net *net)
{
    int local = server("127.0.0.1", 5000), any = server("0.0.0.0", 5001);

    CHECK(client("127.0.0.1", 5000) >= 0);
    check_got(local, "127.0.0.1", 5000);
    CHECK(client("127.0.0.1", 5001) >= 0 && client("127.9.9.9", 5001) >= 0);
    check_got(any, "127.0.0.1", 5001);
    check_got(any, "127.9.9.9", 5001);
    CHECK(client("127.0.0.1", EGRESS_PORT) < 0); /* ours is not there */
    check_none(net->listeners[0]);
}

TEST(servers_inside_are_reached_as_ever)
{
    inside(own_servers);
}

static void nobody_between(struct net *net)
{
    int any = server("0.0.0.0", 443), exact = server("9.9.9.9", 444);

    CHECK(client("9.9.9.9", 444) >= 0 && client("1.1.1.1", 443) >= 0);
    check_got(net->listeners[0], "9.9.9.9", 444);
    check_got(net->listeners[0], "1.1.1.1", 443);
    check_none(any);
    check_none(exact);
}

TEST(no_server_inside_stands_in_the_way)
{
    inside(nobody_between);
}

static void names_and_datagrams(struct net *net)
{
    struct sockaddr_in dns = at("8.8.4.4", 53), other = at("8.8.4.4", 443);
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    char byte;

    CHECK(sendto(fd, "x", 1, 0, (struct sockaddr *)&dns, sizeof(dns)) == 1);
    CHECK(recv(net->dns, &byte, 1, MSG_DONTWAIT) == 1 && byte == 'x');
    CHECK(connect(fd, (struct sockaddr *)&other, sizeof(other)) == 0);
    CHECK(send(fd, "x", 1, 0) == 1);
    CHECK(recv(fd, &byte, 1, 0) < 0 && errno == ECONNREFUSED); /* at once, so that QUIC gives up */
}

TEST(any_resolver_is_ours_and_other_datagrams_are_refused)
{
    inside(names_and_datagrams);
}

static void no_version_6(struct net *net)
{
    struct sockaddr_in6 to = { .sin6_family = AF_INET6, .sin6_port = htons(443) };
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);

    (void)net;
    CHECK(inet_pton(AF_INET6, "2606:4700::1111", &to.sin6_addr) == 1);
    CHECK(fd < 0 || (connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0 && errno == ENETUNREACH));
}

TEST(there_is_no_way_by_ipv6)
{
    inside(no_version_6);
}

static void again(struct net *net)
{
    struct net second = NET_NONE;

    CHECK(net_make(&second) < 0 && errno == EADDRINUSE && second.dns == -1);
    net_close(net);
    CHECK(client("8.8.8.8", 443) < 0); /* with the last descriptor all is gone */
    CHECK(net_make(&second) == 0);
    CHECK(client("8.8.8.8", 443) >= 0);
    check_got(second.listeners[0], "8.8.8.8", 443);
    net_close(&second);
}

TEST(sockets_are_made_again_once_nobody_holds_the_old_ones)
{
    inside(again);
}
