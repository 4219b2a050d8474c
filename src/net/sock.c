/*
 * Addresses are parsed strictly and by hand as far as the port; inet_pton does the numbers.
 *
 * A Unix path may be longer than sun_path (108 bytes): then its directory is opened and the socket
 * is named /proc/self/fd/N/name, which the kernel resolves to the same place. A file that is
 * already there is tried by connecting: refused means that its server is dead, and only then, and
 * only if it is a socket, is it removed.
 */
#include "net/sock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>

#include "base/clock.h"

#define UNIX_PREFIX "unix:"

/* ---- text ---- */

/* Splits "host:port" or "[v6]:port"; false when it is neither. */
static bool split_port(struct str text, struct str *host, struct str *port, bool *bracketed)
{
    const char *colon;

    *bracketed = text.n && text.p[0] == '[';
    if (*bracketed) {
        const char *close = memchr(text.p, ']', text.n);

        if (!close || close + 1 == text.p + text.n || close[1] != ':')
            return false;
        *host = (struct str){ text.p + 1, (size_t)(close - text.p - 1) };
        colon = close + 1;
    } else {
        colon = memchr(text.p, ':', text.n);
        if (!colon)
            return false;
        *host = (struct str){ text.p, (size_t)(colon - text.p) };
    }
    *port = str_from(text, (size_t)(colon + 1 - text.p));
    return true;
}

static bool parse_host(struct str host, bool bracketed, uint16_t port, struct sock_addr *out)
{
    char text[INET6_ADDRSTRLEN];
    struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons(port) };
    struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = htons(port) };

    if (host.n >= sizeof(text))
        return false;
    memcpy(text, host.p, host.n);
    text[host.n] = 0;
    if (bracketed) {
        if (inet_pton(AF_INET6, text, &v6.sin6_addr) != 1)
            return false;
        memcpy(&out->inet, &v6, sizeof(v6));
        out->inet_len = sizeof(v6);
        return true;
    }
    if (host.n == 0 || str_is(host, "localhost"))
        v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    else if (inet_pton(AF_INET, text, &v4.sin_addr) != 1)
        return false;
    memcpy(&out->inet, &v4, sizeof(v4));
    out->inet_len = sizeof(v4);
    return true;
}

static int parse_port(const char *text, struct str port, uint16_t *out, struct err *err)
{
    uint64_t number;

    if (!str_to_u64(port, &number) || number > 65535)
        return err_set(err, ERR_INVALID, "address \"%s\": the port is a number up to 65535", text);
    *out = (uint16_t)number;
    return 0;
}

static bool is_unix(const char *text)
{
    return strncmp(text, UNIX_PREFIX, sizeof(UNIX_PREFIX) - 1) == 0;
}

static int parse_unix(const char *text, struct sock_addr *out, struct err *err)
{
    const char *path = text + sizeof(UNIX_PREFIX) - 1;
    size_t len = strlen(path);

    if (path[0] != '/' || path[len - 1] == '/')
        return err_set(err, ERR_INVALID,
                       "address \"%s\": the path must be absolute and name a file", text);
    if (len >= sizeof(out->path))
        return err_set(err, ERR_LIMIT, "the path of a socket has at most %zu bytes",
                       sizeof(out->path) - 1);
    *out = (struct sock_addr){ .unix_socket = true };
    memcpy(out->path, path, len + 1);
    return 0;
}

int sock_parse(const char *text, struct sock_addr *out, struct err *err)
{
    struct str host, port_text;
    struct sock_addr addr = { 0 };
    bool bracketed;
    uint16_t port;

    if (is_unix(text))
        return parse_unix(text, out, err);
    if (!split_port(str_of(text), &host, &port_text, &bracketed))
        return err_set(err, ERR_INVALID, "address \"%s\" is not HOST:PORT or unix:/PATH", text);
    if (parse_port(text, port_text, &port, err) < 0)
        return -1;
    if (!parse_host(host, bracketed, port, &addr))
        return err_set(err, ERR_INVALID, "address \"%s\": not an IPv4 or [IPv6] address", text);
    *out = addr;
    return 0;
}

static void text_of(const struct sockaddr_storage *addr, char out[SOCK_TEXT_SIZE])
{
    char host[INET6_ADDRSTRLEN] = "";

    if (addr->ss_family == AF_INET6) {
        struct sockaddr_in6 v6;

        memcpy(&v6, addr, sizeof(v6));
        inet_ntop(AF_INET6, &v6.sin6_addr, host, sizeof(host));
        snprintf(out, SOCK_TEXT_SIZE, "[%s]:%u", host, ntohs(v6.sin6_port));
    } else {
        struct sockaddr_in v4;

        memcpy(&v4, addr, sizeof(v4));
        inet_ntop(AF_INET, &v4.sin_addr, host, sizeof(host));
        snprintf(out, SOCK_TEXT_SIZE, "%s:%u", host, ntohs(v4.sin_port));
    }
}

/* ---- Unix sockets ---- */

/*
 * The kernel's form of a path. *dir_fd becomes the directory when the path is too long for
 * sun_path; it must stay open as long as the address is used.
 */
static int unix_addr(const char *path, struct sockaddr_un *out, int *dir_fd, struct err *err)
{
    size_t len = strlen(path);
    const char *slash = strrchr(path, '/');
    char dir[SOCK_TEXT_SIZE];

    *out = (struct sockaddr_un){ .sun_family = AF_UNIX };
    if (len < sizeof(out->sun_path)) {
        memcpy(out->sun_path, path, len + 1);
        return 0;
    }
    snprintf(dir, sizeof(dir), "%.*s/", (int)(slash - path), path);
    *dir_fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (*dir_fd < 0)
        return err_sys(err, "open the directory %s", dir);
    int n =
        snprintf(out->sun_path, sizeof(out->sun_path), "/proc/self/fd/%d/%s", *dir_fd, slash + 1);
    if (n < 0 || (size_t)n >= sizeof(out->sun_path))
        return err_set(err, ERR_LIMIT, "the file name of socket %s is too long", path);
    return 0;
}

/* Removes a socket file whose server is dead. */
static int remove_stale(const char *path, const struct sockaddr_un *addr, struct err *err)
{
    struct stat st;

    if (lstat(addr->sun_path, &st) < 0)
        return errno == ENOENT ? 0 : err_sys(err, "look at %s", path);
    if (!S_ISSOCK(st.st_mode))
        return err_set(err, ERR_CONFLICT, "%s exists and is not a socket", path);

    autoclose int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (probe < 0)
        return err_sys(err, "socket");
    if (connect(probe, (const struct sockaddr *)addr, sizeof(*addr)) == 0 || errno == EAGAIN)
        return err_set(err, ERR_CONFLICT, "somebody already listens on %s", path);
    if (errno != ECONNREFUSED)
        return err_sys(err, "is somebody listening on %s?", path);
    if (unlink(addr->sun_path) < 0 && errno != ENOENT)
        return err_sys(err, "remove the dead socket %s", path);
    return 0;
}

static int listen_unix(const char *path, int backlog, struct err *err)
{
    autoclose int dir_fd = -1;
    struct sockaddr_un addr;

    if (unix_addr(path, &addr, &dir_fd, err) < 0 || remove_stale(path, &addr, err) < 0)
        return -1;
    autoclose int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_sys(err, "socket");
    /* Before bind: the file then has this mode from the start, whatever the umask. */
    if (fchmod(fd, 0600) < 0 || bind(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0 ||
        listen(fd, backlog) < 0)
        return err_sys(err, "listen on %s", path);
    return take_fd(&fd);
}

/* ---- listening ---- */

static int listen_inet(const struct sock_addr *addr, int backlog, char actual[SOCK_TEXT_SIZE],
                       const char *text, struct err *err)
{
    struct sockaddr_storage bound = { 0 };
    socklen_t len = sizeof(bound);
    int on = 1;

    autoclose int fd = socket(addr->inet.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_sys(err, "socket");
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0)
        return err_sys(err, "SO_REUSEADDR");
    /* Without this "[::]:80" would also take IPv4, and refuse when 0.0.0.0:80 is listed too. */
    if (addr->inet.ss_family == AF_INET6 &&
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on)) < 0)
        return err_sys(err, "IPV6_V6ONLY");
    if (bind(fd, (const struct sockaddr *)&addr->inet, addr->inet_len) < 0 ||
        listen(fd, backlog) < 0) {
        if (errno == EADDRINUSE)
            return err_set(err, ERR_CONFLICT, "somebody already listens on %s", text);
        return err_sys(err, "listen on %s", text);
    }
    if (getsockname(fd, (struct sockaddr *)&bound, &len) < 0)
        return err_sys(err, "getsockname");
    text_of(&bound, actual);
    return take_fd(&fd);
}

int sock_listen(const char *text, int backlog, char actual[SOCK_TEXT_SIZE], struct err *err)
{
    struct sock_addr addr;

    if (sock_parse(text, &addr, err) < 0)
        return -1;
    if (!addr.unix_socket)
        return listen_inet(&addr, backlog, actual, text, err);
    int fd = listen_unix(addr.path, backlog, err);
    if (fd >= 0)
        snprintf(actual, SOCK_TEXT_SIZE, "%s", text);
    return fd;
}

/* ---- connecting ---- */

static int wait_connected(int fd, int timeout_ms)
{
    struct pollfd poll_fd = { .fd = fd, .events = POLLOUT };
    int64_t until = clock_mono_ms() + timeout_ms;
    int failed = 0;
    socklen_t len = sizeof(failed);

    for (;;) {
        int64_t left = until - clock_mono_ms();
        int n = poll(&poll_fd, 1, left > 0 ? (int)left : 0);

        if (n > 0)
            break;
        if (n == 0)
            return ETIMEDOUT;
        if (errno != EINTR)
            return errno;
    }
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &failed, &len) < 0 ? errno : failed;
}

/* Connected and blocking again, or -1 with errno. */
static int connect_addr(const struct sockaddr *addr, socklen_t len, int timeout_ms)
{
    autoclose int fd = socket(addr->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int on = 1, flags, failed = 0;

    if (fd < 0)
        return -1;
    if (connect(fd, addr, len) < 0)
        failed = errno == EINPROGRESS ? wait_connected(fd, timeout_ms) : errno;
    if (failed) {
        errno = failed;
        return -1;
    }
    if (addr->sa_family != AF_UNIX)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) < 0)
        return -1;
    return take_fd(&fd);
}

static int connect_failed(const char *text, struct err *err)
{
    switch (errno) {
    case ETIMEDOUT:
        return err_set(err, ERR_TIMEOUT, "no answer from %s", text);
    case ECONNREFUSED:
    case ENOENT:
    case EAGAIN: /* a Unix socket whose backlog is full */
        return err_set(err, ERR_UNAVAILABLE, "nobody listens on %s", text);
    default:
        return err_sys(err, "connect to %s", text);
    }
}

static int connect_name(const char *text, int timeout_ms, struct err *err)
{
    struct str host, port_text;
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *found = NULL;
    char name[256], port_digits[8];
    bool bracketed;
    uint16_t port;
    int fd = -1;

    if (!split_port(str_of(text), &host, &port_text, &bracketed) || bracketed ||
        host.n >= sizeof(name))
        return err_set(err, ERR_INVALID, "address \"%s\" is not HOST:PORT or unix:/PATH", text);
    if (parse_port(text, port_text, &port, err) < 0)
        return -1;
    memcpy(name, host.p, host.n);
    name[host.n] = 0;
    snprintf(port_digits, sizeof(port_digits), "%u", port);
    int failed = getaddrinfo(name, port_digits, &hints, &found);
    if (failed)
        return err_set(err, ERR_UNAVAILABLE, "find %s: %s", name, gai_strerror(failed));
    for (struct addrinfo *at = found; at && fd < 0; at = at->ai_next)
        fd = connect_addr(at->ai_addr, at->ai_addrlen, timeout_ms);
    int why = errno;
    freeaddrinfo(found);
    errno = why;
    return fd < 0 ? connect_failed(text, err) : fd;
}

int sock_connect(const char *text, int timeout_ms, struct err *err)
{
    autoclose int dir_fd = -1;
    struct sock_addr addr;
    struct sockaddr_un un;
    int fd;

    if (sock_parse(text, &addr, err) < 0)
        return is_unix(text) ? -1 : connect_name(text, timeout_ms, err);
    if (addr.unix_socket) {
        if (unix_addr(addr.path, &un, &dir_fd, err) < 0)
            return -1;
        fd = connect_addr((struct sockaddr *)&un, sizeof(un), timeout_ms);
    } else {
        fd = connect_addr((struct sockaddr *)&addr.inet, addr.inet_len, timeout_ms);
    }
    return fd < 0 ? connect_failed(text, err) : fd;
}
