/*
 * tunnel - the two ends of what is measured about ways out of a sandbox.
 *
 *   tunnel serve PORT                          the other end: whoever says "b" gets bytes without
 *                                              end, everybody else is heard until he goes
 *   tunnel bulk VIA TARGET SECONDS STREAMS     megabytes per second that come back
 *   tunnel open VIA TARGET COUNT TOGETHER      connections per second until each could be used,
 *                                              and the median of their microseconds
 *   tunnel hold VIA TARGET COUNT               opens them, says "ready", and keeps them until its
 *                                              input ends
 *   tunnel drain                               reads records from its input in place of the api
 *                                              process
 *   tunnel floor PORT NETNS                    a proxy that decides nothing, knows no names, keeps
 *                                              no record and has no limit: it listens where it is
 *                                              started, connects from the network of that path
 *
 * VIA is a proxy that is asked to CONNECT, as ADDRESS:PORT, or "-": straight to TARGET. Whatever is
 * not a 200 is an error.
 *
 * Both ends share two cores with what is measured, so that their own work must not be the limit:
 * bytes are pages of one file on their way in, and thrown away without a copy on their way out. And
 * whoever sends does the work of the receiver's kernel and wakes him, which costs most of all where
 * he sleeps on another core. A far end that is a machine of its own costs a proxy nothing of that.
 * So the other end looks only once in a millisecond at who has come and who has gone, unless it is
 * busy giving bytes.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define STREAMS_MAX 64
#define PIECE (1 << 20)
#define EVENTS 256
#define TURN_US 1000 /* of the other end */
#define FDS 65536

struct way {
    struct sockaddr_in first; /* who is connected to */
    char ask[128];            /* what it is told; empty: nothing */
};

enum state { IDLE, ASKED, OPEN };

struct dial {
    int fd;
    enum state state;
    double since;
    size_t got;
    char reply[512];
};

struct run {
    double *took; /* of those that are done */
    size_t count, begun, done;
    int poller;
};

static void die(const char *what)
{
    fprintf(stderr, "tunnel: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void ready(void)
{
    puts("ready");
    fflush(stdout);
}

static double now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static struct sockaddr_in place(const char *text)
{
    struct sockaddr_in out = { .sin_family = AF_INET };
    char address[64];
    unsigned port;

    if (sscanf(text, "%63[0-9.]:%u", address, &port) != 2 ||
        inet_pton(AF_INET, address, &out.sin_addr) != 1)
        die(text);
    out.sin_port = htons((uint16_t)port);
    return out;
}

static struct way way_of(const char *via, const char *target)
{
    struct way way = { .first = place(strcmp(via, "-") ? via : target) };

    if (strcmp(via, "-"))
        snprintf(way.ask, sizeof(way.ask), "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", target,
                 target);
    return way;
}

/* ---- opening ---- */

/* Whoever listens here answers from the kernel, so nothing is waited for until the proxy speaks. */
static void dial_begin(struct dial *dial, const struct way *way)
{
    size_t len = strlen(way->ask);

    dial->since = now();
    dial->got = 0;
    dial->state = len ? ASKED : OPEN;
    dial->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (dial->fd < 0)
        die("socket");
    if (connect(dial->fd, (const struct sockaddr *)&way->first, sizeof(way->first)) < 0)
        die("connect");
    if (len && send(dial->fd, way->ask, len, 0) != (ssize_t)len)
        die("write");
}

static void dial_told(struct dial *dial)
{
    ssize_t got =
        recv(dial->fd, dial->reply + dial->got, sizeof(dial->reply) - 1 - dial->got, MSG_DONTWAIT);

    if (got < 0 && errno == EAGAIN)
        return;
    if (got <= 0)
        die(got ? "read" : "the proxy closed the connection");
    dial->got += (size_t)got;
    dial->reply[dial->got] = 0;
    if (!strstr(dial->reply, "\r\n\r\n"))
        return;
    if (strncmp(dial->reply, "HTTP/1.", 7) != 0 || strncmp(dial->reply + 8, " 200", 4) != 0) {
        dial->reply[64] = 0;
        die(dial->reply);
    }
    dial->state = OPEN;
}

static int dial_whole(const struct way *way)
{
    struct dial dial;

    dial_begin(&dial, way);
    while (dial.state != OPEN) {
        struct pollfd poller = { .fd = dial.fd, .events = POLLIN };

        if (poll(&poller, 1, 20000) != 1)
            die("no answer");
        dial_told(&dial);
    }
    return dial.fd;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* It is watched until it is closed. */
static void open_begin(struct dial *dial, const struct way *way, const struct run *run)
{
    struct epoll_event event = { .events = EPOLLIN, .data.ptr = dial };

    dial_begin(dial, way);
    if (dial->state == ASKED && epoll_ctl(run->poller, EPOLL_CTL_ADD, dial->fd, &event) < 0)
        die("epoll");
}

/* One that is open is closed, and the next begun in its place. */
static void open_next(struct dial *dial, const struct way *way, struct run *run)
{
    while (dial->state == OPEN) {
        run->took[run->done++] = now() - dial->since;
        close(dial->fd);
        dial->state = IDLE;
        if (run->begun < run->count) {
            run->begun++;
            open_begin(dial, way, run);
        }
    }
}

static int open_many(const struct way *way, size_t count, size_t together)
{
    struct dial dials[STREAMS_MAX] = { 0 };
    struct run run = { .took = calloc(count, sizeof(double)),
                       .count = count,
                       .begun = together,
                       .poller = epoll_create1(EPOLL_CLOEXEC) };
    double start = now();

    if (!run.took || together > STREAMS_MAX || together > count)
        die("how many");
    for (size_t i = 0; i < together; i++)
        open_begin(&dials[i], way, &run);
    for (size_t i = 0; i < together; i++)
        open_next(&dials[i], way, &run);
    while (run.done < count) {
        struct epoll_event events[STREAMS_MAX];
        int ready = epoll_wait(run.poller, events, STREAMS_MAX, 20000);

        if (ready <= 0)
            die("no answer");
        for (int i = 0; i < ready; i++) {
            dial_told(events[i].data.ptr);
            open_next(events[i].data.ptr, way, &run);
        }
    }
    double whole = now() - start;
    qsort(run.took, count, sizeof(*run.took), by_size);
    printf("%.1f %.1f\n", (double)count / whole, run.took[count / 2] * 1e6);
    free(run.took);
    return 0;
}

static int hold(const struct way *way, size_t count)
{
    char byte;

    for (size_t i = 0; i < count; i++)
        (void)dial_whole(way);
    ready();
    while (read(0, &byte, 1) > 0)
        ;
    return 0;
}

static int bulk(const struct way *way, double seconds, size_t streams)
{
    struct pollfd pollers[STREAMS_MAX];
    double bytes = 0;

    if (streams > STREAMS_MAX)
        die("how many");
    for (size_t i = 0; i < streams; i++) {
        pollers[i] = (struct pollfd){ .fd = dial_whole(way), .events = POLLIN };
        if (write(pollers[i].fd, "b", 1) != 1)
            die("write");
    }
    double start = now(), end = start + seconds;
    while (now() < end) {
        if (poll(pollers, streams, 5000) <= 0)
            die("nothing comes");
        for (size_t i = 0; i < streams; i++) {
            ssize_t got =
                pollers[i].revents ? recv(pollers[i].fd, NULL, PIECE, MSG_TRUNC | MSG_DONTWAIT) : 0;

            if (pollers[i].revents && (got == 0 || (got < 0 && errno != EAGAIN)))
                die("it ended");
            bytes += got > 0 ? (double)got : 0;
        }
    }
    printf("%.1f\n", bytes / (now() - start) / 1e6);
    return 0;
}

/* ---- the other end ---- */

static void watch(int poller, int op, int fd, uint32_t events)
{
    struct epoll_event event = { .events = events, .data.fd = fd };

    if (epoll_ctl(poller, op, fd, &event) < 0)
        die("epoll");
}

/* How many more are given bytes than before. */
static int answer(int poller, int fd, uint32_t events, int file)
{
    char said[64];
    off_t from = 0;
    ssize_t got = 1;
    int more = 0;

    if (events & EPOLLIN) {
        got = read(fd, said, sizeof(said));
        more = got > 0 && said[0] == 'b';
        if (more)
            watch(poller, EPOLL_CTL_MOD, fd, EPOLLIN | EPOLLOUT);
    } else if (events & EPOLLOUT) {
        got = sendfile(fd, file, &from, PIECE);
    }
    if (got == 0 || (got < 0 && errno != EAGAIN) || events & EPOLLERR) {
        close(fd);
        more = events & EPOLLOUT ? -1 : 0; /* only they are asked whether they take bytes */
    }
    return more;
}

static int file_of_zeros(void)
{
    static const char zeros[PIECE];
    int file = memfd_create("bytes", MFD_CLOEXEC);

    if (write(file, zeros, sizeof(zeros)) != (ssize_t)sizeof(zeros))
        die("memfd");
    return file;
}

static int listens(unsigned long port)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    const int on = 1;

    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(listener, (struct sockaddr *)&at, sizeof(at)) < 0 || listen(listener, 4096) < 0)
        die("listen");
    return listener;
}

static _Noreturn void serve(unsigned long port)
{
    int listener = listens(port), poller = epoll_create1(EPOLL_CLOEXEC), file = file_of_zeros();

    watch(poller, EPOLL_CTL_ADD, listener, EPOLLIN);
    ready();
    for (int given = 0;;) {
        struct epoll_event events[EVENTS];
        int count = epoll_wait(poller, events, EVENTS, -1);

        for (int i = 0; i < count; i++) {
            if (events[i].data.fd != listener) {
                given += answer(poller, events[i].data.fd, events[i].events, file);
                continue;
            }
            for (int fd; (fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0;)
                watch(poller, EPOLL_CTL_ADD, fd, EPOLLIN);
        }
        if (!given)
            usleep(TURN_US);
    }
}

/* ---- the least that a proxy can do ---- */

static int other[FDS]; /* of a tunnel, by one end: the other end; 0: it is none */

static void floor_opens(int poller, int fd)
{
    static const char good[] = "HTTP/1.1 200 Connection established\r\n\r\n";
    char head[512];
    ssize_t got = recv(fd, head, sizeof(head) - 1, 0); /* it comes whole, and with the connection */

    head[got > 0 ? got : 0] = 0;
    if (strncmp(head, "CONNECT ", 8) != 0) {
        close(fd);
        return;
    }
    const struct sockaddr_in to = place(head + 8);
    int far = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (far < 0 || far >= FDS || fd >= FDS ||
        connect(far, (const struct sockaddr *)&to, sizeof(to)) < 0 ||
        send(fd, good, sizeof(good) - 1, MSG_NOSIGNAL) < 0)
        die("a tunnel");
    other[fd] = far;
    other[far] = fd;
    watch(poller, EPOLL_CTL_ADD, fd, EPOLLIN);
    watch(poller, EPOLL_CTL_ADD, far, EPOLLIN);
}

/* When one end has said all it is over: less than it should be, but the least. */
static void floor_moves(int fd)
{
    char data[16384];
    int to = other[fd];

    if (!to)
        return;
    ssize_t got = recv(fd, data, sizeof(data), MSG_DONTWAIT);
    if (got > 0 ? send(to, data, (size_t)got, MSG_NOSIGNAL) == got : got < 0 && errno == EAGAIN)
        return;
    other[fd] = other[to] = 0;
    close(to);
    close(fd);
}

static _Noreturn void floor_serve(unsigned long port, const char *network)
{
    int listener = listens(port), poller = epoll_create1(EPOLL_CLOEXEC);
    int home = open(network, O_RDONLY | O_CLOEXEC);

    if (home < 0 || setns(home, CLONE_NEWNET) < 0)
        die(network);
    watch(poller, EPOLL_CTL_ADD, listener, EPOLLIN);
    ready();
    for (;;) {
        struct epoll_event events[EVENTS];
        int count = epoll_wait(poller, events, EVENTS, -1);

        for (int i = 0; i < count; i++) {
            if (events[i].data.fd != listener) {
                floor_moves(events[i].data.fd);
                continue;
            }
            for (int n = 0, fd; n < 8 && (fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) >= 0;
                 n++)
                floor_opens(poller, fd);
        }
    }
}

static int drain(void)
{
    static char records[64 << 10];

    while (recv(0, records, sizeof(records), 0) > 0)
        ;
    return 0;
}

static int usage(void)
{
    fprintf(stderr, "usage: tunnel serve PORT | bulk VIA TARGET SECONDS STREAMS | "
                    "open VIA TARGET COUNT TOGETHER | hold VIA TARGET COUNT | drain | "
                    "floor PORT NETNS\n");
    return 64;
}

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN);
    if (argc == 3 && strcmp(argv[1], "serve") == 0)
        serve(strtoul(argv[2], NULL, 10));
    if (argc == 2 && strcmp(argv[1], "drain") == 0)
        return drain();
    if (argc == 4 && strcmp(argv[1], "floor") == 0)
        floor_serve(strtoul(argv[2], NULL, 10), argv[3]);
    if (argc < 5)
        return usage();
    struct way way = way_of(argv[2], argv[3]);
    if (argc == 6 && strcmp(argv[1], "bulk") == 0)
        return bulk(&way, strtod(argv[4], NULL), strtoul(argv[5], NULL, 10));
    if (argc == 6 && strcmp(argv[1], "open") == 0)
        return open_many(&way, strtoul(argv[4], NULL, 10), strtoul(argv[5], NULL, 10));
    if (argc == 5 && strcmp(argv[1], "hold") == 0)
        return hold(&way, strtoul(argv[4], NULL, 10));
    return usage();
}
