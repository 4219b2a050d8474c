/*
 * fanout PORT COUNT ROUNDS SSE_PATH POST_PATH TOKEN - COUNT event-stream subscribers; then ROUNDS
 * times one event is published by POST and the time is taken until the last subscriber has it.
 *
 * The same client for every server, so that only they differ. Prints "ready" when every subscriber
 * has its head and then waits for a line on standard input (the caller measures memory meanwhile);
 * afterwards one line per round with the microseconds from sending the POST to the first and to the
 * last delivery. Subscribers are spread over 127.0.0.2…: one source address has too few ports.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define PER_ADDRESS 8000
#define PATIENCE_MS 20000

struct sub {
    int fd;
    int round; /* the newest it has */
    bool open; /* its head has come */
    size_t tail_len;
    char tail[64]; /* end of what was read, for a marker that was cut in two */
};

static struct sub *subs;
static int count;

static _Noreturn void die(const char *what)
{
    fprintf(stderr, "fanout: %s: %s\n", what, strerror(errno));
    exit(1);
}

static double now_us(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec * 1e6 + (double)ts.tv_nsec / 1e3;
}

static int dial(int port, int index)
{
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
    struct sockaddr_in from = { .sin_family = AF_INET };
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    from.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1 + (uint32_t)(index / PER_ADDRESS));
    if (fd < 0)
        die("socket");
    setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof(one));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    if (bind(fd, (struct sockaddr *)&from, sizeof(from)) < 0)
        die("bind");
    if (connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0)
        die("connect");
    return fd;
}

static void say(int fd, const char *text)
{
    for (size_t at = 0, len = strlen(text); at < len;) {
        ssize_t put = write(fd, text + at, len - at);

        if (put < 0)
            die("write");
        at += (size_t)put;
    }
}

/* Looks for the marker of a round, "bench-N.", in what was read before and now. */
static void look(struct sub *sub, const char *data, size_t len)
{
    char both[sizeof(sub->tail) + 65536];

    memcpy(both, sub->tail, sub->tail_len);
    memcpy(both + sub->tail_len, data, len);
    size_t total = sub->tail_len + len;
    for (char *p = both; (p = memmem(p, total - (size_t)(p - both), "bench-", 6)); p += 6) {
        char digits[16] = { 0 };
        size_t left = total - (size_t)(p - both) - 6, n = left < 15 ? left : 15;

        memcpy(digits, p + 6, n);
        if (strchr(digits, '.'))
            sub->round = (int)strtol(digits, NULL, 10);
    }
    sub->tail_len = total < sizeof(sub->tail) ? total : sizeof(sub->tail);
    memmove(sub->tail, both + total - sub->tail_len, sub->tail_len);
}

/* Reads until every subscriber is open (round 0) or has the round; the time of first and last. */
static void collect(int epfd, int round, double *first, double *last)
{
    int missing = count;

    *first = *last = 0;
    while (missing > 0) {
        struct epoll_event events[256];
        int got = epoll_wait(epfd, events, 256, PATIENCE_MS);

        if (got <= 0)
            die("waited too long for the subscribers");
        for (int i = 0; i < got; i++) {
            struct sub *sub = events[i].data.ptr;
            bool had = round ? sub->round >= round : sub->open;
            static char data[65536];
            ssize_t len = read(sub->fd, data, sizeof(data));

            if (len <= 0)
                die("a subscriber was cut off");
            if (!sub->open && (len < 12 || memcmp(data + 9, "200", 3) != 0)) {
                fprintf(stderr, "fanout: answered %.60s\n", data);
                exit(1);
            }
            sub->open = true;
            look(sub, data, (size_t)len);
            if (!had && (round ? sub->round >= round : sub->open)) {
                *last = now_us();
                if (*first == 0)
                    *first = *last;
                missing--;
            }
        }
    }
}

static void publish(int fd, int port, const char *path, const char *token, int round)
{
    char body[300], text[1024];

    /* The marker, and about what a real event weighs. */
    snprintf(body, sizeof(body), "{\"text\":\"bench-%d. %0100d\"}", round, round);
    snprintf(text, sizeof(text),
             "POST %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nAuthorization: Bearer %s\r\n"
             "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
             path, port, token, strlen(body), body);
    say(fd, text);
}

static void swallow_reply(int fd)
{
    char data[8192];
    ssize_t len = read(fd, data, sizeof(data) - 1);

    if (len < 12 || memcmp(data + 9, "20", 2) != 0) {
        fprintf(stderr, "fanout: the POST answered %.*s\n", (int)(len > 0 ? len : 0), data);
        exit(1);
    }
}

int main(int argc, char **argv)
{
    double first, last;

    if (argc != 7) {
        fprintf(stderr, "usage: fanout PORT COUNT ROUNDS SSE_PATH POST_PATH TOKEN\n");
        return 64;
    }
    int port = (int)strtol(argv[1], NULL, 10), rounds = (int)strtol(argv[3], NULL, 10);
    int epfd = epoll_create1(EPOLL_CLOEXEC);
    char ask[1024];

    count = (int)strtol(argv[2], NULL, 10);
    struct rlimit files = { (rlim_t)count + 64, (rlim_t)count + 64 };
    if (setrlimit(RLIMIT_NOFILE, &files) < 0)
        die("more open files");
    subs = calloc((size_t)count, sizeof(*subs));
    snprintf(ask, sizeof(ask),
             "GET %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nAuthorization: Bearer %s\r\n"
             "Accept: text/event-stream\r\n\r\n",
             argv[4], port, argv[6]);
    for (int i = 0; i < count; i++) {
        struct epoll_event event = { .events = EPOLLIN, .data.ptr = &subs[i] };

        subs[i].fd = dial(port, i);
        say(subs[i].fd, ask);
        if (epoll_ctl(epfd, EPOLL_CTL_ADD, subs[i].fd, &event) < 0)
            die("epoll_ctl");
    }
    collect(epfd, 0, &first, &last);
    printf("ready\n");
    fflush(stdout);
    if (getchar() == EOF)
        return 0;

    int poster = dial(port, 0);
    for (int round = 1; round <= rounds; round++) {
        double start = now_us();

        publish(poster, port, argv[5], argv[6], round);
        collect(epfd, round, &first, &last);
        swallow_reply(poster);
        printf("%.0f %.0f\n", first - start, last - start);
    }
    return 0;
}
