/*
 * kept PORT ROUNDS WANTED < REQUEST: the same request again and again over one connection, as
 * bytes; prints the microseconds of each. Every answer must be a success and hold WANTED. A client
 * of an interpreter takes 100 microseconds and more for itself, which would be counted as the
 * server's.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define PAUSE_MS 5 /* as rest.py: what still goes on of the last one is not this one's cost */
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

int main(int argc, char **argv)
{
    static char request[BYTES_MAX], in[BYTES_MAX];
    size_t len = fread(request, 1, sizeof(request), stdin);

    if (argc != 4 || len == 0)
        die("PORT ROUNDS WANTED < REQUEST");
    int sock = connect_to(argv[1]);
    for (long left = strtol(argv[2], NULL, 10); left > 0; left--) {
        poll(NULL, 0, PAUSE_MS);
        double began = now_us();
        if (send(sock, request, len, MSG_NOSIGNAL) != (ssize_t)len)
            die("send");
        answer(sock, in);
        double took = now_us() - began;
        if (strncmp(in, "HTTP/1.1 20", 11) != 0 || !strstr(in, argv[3]))
            die(in);
        printf("%.1f ", took);
    }
    printf("\n");
    return 0;
}
