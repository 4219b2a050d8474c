/*
 * sd_notify by hand: one datagram of "KEY=value" lines to the socket that systemd named. The path
 * is read once at start; nothing here can fail in a way that matters to serving.
 */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "warden/warden.h"

static int notify_fd = -1;
static struct sockaddr_un notify_addr = { .sun_family = AF_UNIX };
static socklen_t notify_len;

void notify_open(void)
{
    const char *path = getenv("NOTIFY_SOCKET");
    size_t len = path ? strlen(path) : 0;

    if (len < 2 || len >= sizeof(notify_addr.sun_path) || (path[0] != '/' && path[0] != '@'))
        return;
    memcpy(notify_addr.sun_path, path, len + 1);
    if (path[0] == '@')
        notify_addr.sun_path[0] = 0; /* an abstract name */
    notify_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
    notify_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (notify_fd < 0)
        log_warn("cannot tell the service manager", kv_str("error", strerror(errno)));
}

void notify_send(const char *text)
{
    if (notify_fd < 0)
        return;
    if (sendto(notify_fd, text, strlen(text), MSG_NOSIGNAL, (struct sockaddr *)&notify_addr,
               notify_len) < 0)
        log_debug("the service manager did not take a message", kv_str("error", strerror(errno)));
}

int64_t notify_watchdog_ms(void)
{
    const char *usec = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
    uint64_t value, owner;

    if (notify_fd < 0 || !usec || !str_to_u64(str_of(usec), &value) || value < 2000)
        return 0;
    if (pid && (!str_to_u64(str_of(pid), &owner) || owner != (uint64_t)getpid()))
        return 0;
    return (int64_t)MIN(value / 2000, (uint64_t)3600000); /* half of it, in milliseconds */
}
