/* The end of the listeners: their files and their descriptors. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "warden/warden.h"

/*
 * The files of Unix listeners, by the names they were bound to. The one in the state directory goes
 * by descriptor: its directory may have too long a path for a socket's address.
 */
void socket_files_remove(unsigned listeners)
{
    if (unlinkat(WARDEN_FD_STATE, STATE_SOCKET, 0) < 0 && errno != ENOENT)
        log_warn("cannot remove the socket file", kv_str("error", strerror(errno)));
    for (unsigned i = 0; i < listeners; i++) {
        struct sockaddr_un addr = { 0 };
        socklen_t len = sizeof(addr) - 1;

        if (getsockname(WARDEN_FD_LISTENERS + (int)i, (struct sockaddr *)&addr, &len) < 0 ||
            addr.sun_family != AF_UNIX || addr.sun_path[0] != '/' ||
            strncmp(addr.sun_path, "/proc/", 6) == 0)
            continue;
        if (unlink(addr.sun_path) < 0 && errno != ENOENT)
            log_warn("cannot remove a socket file", kv_str("file", addr.sun_path),
                     kv_str("error", strerror(errno)));
    }
}

void listeners_close(unsigned listeners)
{
    for (unsigned i = 0; i < listeners; i++)
        close(WARDEN_FD_LISTENERS + (int)i);
}
