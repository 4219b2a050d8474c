/*
 * kept PORT ROUNDS WANTED < REQUESTS: the same requests (with a zero byte between them) again and
 * again over one connection, as bytes; prints the microseconds of each round. Every answer must be
 * a success, and one of a round hold WANTED. A client of an interpreter takes 100 microseconds and
 * more for each request, which would be counted as the server's.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define PAUSE_MS 5 /* as box.c: what still goes on of the last one is not this one's cost */
#define BYTES_MAX 65536

static void die(const char *what)
{
    fprintf(stderr, "kept: %s\n", what);
    exit(1);
}

static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int connect_to(const char *port)
{
    struct sockaddr_in at = { .sin_family = AF_INET,
                              .sin_port = htons((uint16_t)strtoul(port, NULL, 10)) };
    int sock = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (sock < 0 || connect(sock, (struct sockaddr *)&at, sizeof(at)) < 0)
        die("connect");
    setsockopt(sock, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    return sock;
}

/* One whole answer, as a string. */
static void answer(int sock, char *in)
{
    size_t got = 0, whole = 0;

    while (!whole || got < whole) {
        ssize_t n = recv(sock, in + got, BYTES_MAX - 1 - got, 0);

        if (n <= 0)
            die("the server closed the connection");
        got += (size_t)n;
        in[got] = 0;
        const char *body = strstr(in, "\r\n\r\n"), *length = strstr(in, "content-length: ");
        if (body && length && length < body)
            whole = (size_t)(body + 4 - in) + strtoul(length + 16, NULL, 10);
        if (whole >= BYTES_MAX)
            die("the answer is too long");
    }
}

/* The id of what the first request of a round made takes the place of every '@' in the others. */
static size_t fill_in(char *to, const char *request, const char *id)
{
    size_t len = 0, id_len = strlen(id);

    for (; *request; request++) {
        if (len + id_len >= BYTES_MAX)
            die("the request is too long");
        if (*request == '@' && id_len) {
            memcpy(to + len, id, id_len);
            len += id_len;
        } else {
            to[len++] = *request;
        }
    }
    return len;
}

static void take_id(const char *in, char id[64])
{
    const char *at = strstr(in, "\"id\":\"");

    if (!at || sscanf(at + 6, "%63[a-z0-9]", id) != 1)
        die("the answer has no id");
}

/* All requests of a round, one after the other: its microseconds. */
static double ask_all(int sock, const char *requests, size_t len, const char *wanted)
{
    static char out[BYTES_MAX], in[BYTES_MAX];
    char id[64] = "";
    bool found = false;
    double began = now_us();

    for (const char *at = requests; at < requests + len; at += strlen(at) + 1) {
        size_t n = fill_in(out, at, id);

        if (send(sock, out, n, MSG_NOSIGNAL) != (ssize_t)n)
            die("send");
        answer(sock, in);
        if (strncmp(in, "HTTP/1.1 20", 11) != 0)
            die(in);
        found |= strstr(in, wanted) != NULL;
        if (at == requests && strlen(at) + 1 < len)
            take_id(in, id);
    }
    double took = now_us() - began;
    if (!found)
        die(in);
    return took;
}

int main(int argc, char **argv)
{
    static char requests[BYTES_MAX];
    size_t len = fread(requests, 1, sizeof(requests) - 1, stdin);

    if (argc != 4 || len == 0)
        die("PORT ROUNDS WANTED < REQUESTS");
    int sock = connect_to(argv[1]);
    for (long left = strtol(argv[2], NULL, 10); left > 0; left--) {
        poll(NULL, 0, PAUSE_MS);
        printf("%.1f ", ask_all(sock, requests, len + 1, argv[3]));
    }
    printf("\n");
    return 0;
}
