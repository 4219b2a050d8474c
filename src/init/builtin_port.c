/*
 * Ports of the sandbox: which are listened on, and a connection to one of them.
 *
 * The network namespace has nothing but loopback, and only a process in it can connect there. The
 * bytes are relayed over the operation's input and output rather than the socket handed out: the
 * api then holds no descriptor that something inside has made (it could be anything, and would have
 * to be watched, judged and counted), and pace, end, restart and limits are those of every other
 * operation. What that costs is one copy; the bytes themselves are spliced.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "init/init.h"
#include "wire/egress.h"

#define CONNECT_MS 10000
#define SPLICE_MAX 262144
#define STATE_LISTEN 0x0a

/* ---- which ---- */

struct ports {
    struct init_port found[INIT_PORTS_MAX];
    size_t count;
};

/* "  0: 0100007F:1F90 00000000:0000 0A … uid": the address is hexadecimal words, as in memory. */
static void take_line(struct ports *ports, const char *line, bool six)
{
    char address[33];
    unsigned port, state, uid;
    const unsigned ours = htonl(EGRESS_SELF); /* the way out: nothing that anybody here serves */

    if (sscanf(line, " %*u: %32[0-9A-F]:%4x %*[0-9A-F]:%*x %2x %*s %*s %*s %u", address, &port,
               &state, &uid) != 4 ||
        state != STATE_LISTEN || ports->count == INIT_PORTS_MAX ||
        (!six && strtoul(address, NULL, 16) == ours))
        return;
    ports->found[ports->count++] =
        (struct init_port){ .port = (uint16_t)port,
                            .six = six,
                            .open = strspn(address, "0") == strlen(address),
                            .uid = uid };
}

static void take_table(struct ports *ports, const char *path, bool six)
{
    char line[512];
    FILE *table = fopen(path, "re");

    if (!table)
        return; /* a kernel without IPv6 */
    while (fgets(line, sizeof(line), table))
        take_line(ports, line, six);
    fclose(table);
}

int builtin_ports(struct builtin *job)
{
    struct ports *ports = calloc(1, sizeof(*ports));

    if (!ports)
        return builtin_sys(job, NULL);
    take_table(ports, "/proc/self/net/tcp", false);
    take_table(ports, "/proc/self/net/tcp6", true);
    return job->out.put(job->out.ctx, ports->found, ports->count * sizeof(ports->found[0])) < 0
               ? builtin_sys(job, NULL)
               : 0;
}

/* ---- a connection ---- */

static int finish_connect(int fd)
{
    struct pollfd wait = { .fd = fd, .events = POLLOUT };
    int error = ETIMEDOUT;
    socklen_t size = sizeof(error);

    if (poll(&wait, 1, CONNECT_MS) > 0)
        getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
    errno = error;
    return error ? -1 : 0;
}

static int connect_to(const struct sockaddr *address, socklen_t size)
{
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int on = 1;

    if (fd < 0)
        return -1;
    if (connect(fd, address, size) == 0 || (errno == EINPROGRESS && finish_connect(fd) == 0)) {
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        return fd;
    }
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

/* Of two refusals the first is told: most programs listen on IPv4. */
static int connect_loopback(uint16_t port)
{
    struct sockaddr_in four = { .sin_family = AF_INET, .sin_port = htons(port) };
    struct sockaddr_in6 six = { .sin6_family = AF_INET6, .sin6_port = htons(port) };

    four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    six.sin6_addr = in6addr_loopback;
    int fd = connect_to((struct sockaddr *)&four, sizeof(four));
    if (fd >= 0 || errno != ECONNREFUSED)
        return fd;
    fd = connect_to((struct sockaddr *)&six, sizeof(six));
    if (fd < 0)
        errno = ECONNREFUSED;
    return fd;
}

/* What is known to be ready; the other end of the same direction is then waited for. */
struct relay {
    int fd;
    bool in_open;           /* the input has not ended */
    bool has_in, has_reply; /* there is something to move */
};

static int await(struct relay *relay, bool *in_fits, bool *reply_fits)
{
    struct pollfd wait[] = {
        { .fd = relay->in_open && !relay->has_in ? 0 : -1, .events = POLLIN },
        { .fd = !relay->has_reply || relay->has_in ? relay->fd : -1,
          .events = (short)((relay->has_reply ? 0 : POLLIN) | (relay->has_in ? POLLOUT : 0)) },
        { .fd = relay->has_reply ? 1 : -1, .events = POLLOUT },
    };

    if (poll(wait, ARRAY_LEN(wait), -1) < 0)
        return errno == EINTR ? 0 : -1;
    relay->has_in |= wait[0].revents != 0;
    relay->has_reply |= (wait[1].revents & (POLLIN | POLLHUP | POLLERR)) != 0;
    *in_fits = relay->has_in && wait[1].revents & (POLLOUT | POLLERR);
    *reply_fits = relay->has_reply && wait[2].revents;
    return 0;
}

/* Input that nobody takes any more is dropped: what was answered may still be read. */
static void move_in(struct relay *relay)
{
    ssize_t got = splice(0, NULL, relay->fd, NULL, SPLICE_MAX, SPLICE_F_NONBLOCK | SPLICE_F_MOVE);

    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    relay->has_in = false;
    if (got > 0)
        return;
    shutdown(relay->fd, SHUT_WR);
    relay->in_open = false;
}

/* 1 go on, 0 it has closed, -1. */
static int move_out(struct relay *relay)
{
    ssize_t got = splice(relay->fd, NULL, 1, NULL, SPLICE_MAX, SPLICE_F_NONBLOCK | SPLICE_F_MOVE);

    if (got < 0 && errno != EAGAIN && errno != EINTR)
        return -1;
    relay->has_reply = false;
    return got != 0;
}

static int relay_all(int fd)
{
    struct relay relay = { .fd = fd, .in_open = true };

    for (;;) {
        bool in_fits = false, reply_fits = false;

        if (await(&relay, &in_fits, &reply_fits) < 0)
            return -1;
        if (in_fits)
            move_in(&relay);
        int rc = reply_fits ? move_out(&relay) : 1;
        if (rc <= 0)
            return rc;
    }
}

int builtin_connect(struct builtin *job)
{
    const char connected = INIT_CONNECTED;
    uint64_t port;

    if (builtin_number(job, job->args[0], 10, UINT16_MAX, &port) < 0)
        return -1;
    autoclose int fd = connect_loopback((uint16_t)port);
    if (fd < 0 || job->out.put(job->out.ctx, &connected, 1) < 0 || builtin_flush() < 0 ||
        relay_all(fd) < 0)
        return builtin_sys(job, NULL);
    return 0;
}
