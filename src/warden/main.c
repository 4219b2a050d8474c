/*
 * atoll-warden: `atoll serve` becomes this program once everything is opened and resolved. It has
 * the same process id, so whoever started the server sees one main process throughout.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

#include "warden/warden.h"

/* All inherited descriptors are there, and none of them reaches a child by accident. */
static int fds_check(unsigned listeners)
{
    for (int fd = WARDEN_FD_START; fd < WARDEN_FD_LISTENERS + (int)listeners; fd++)
        if (fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
            return -1;
    return 0;
}

int main(int argc, char **argv)
{
    struct warden_args args;

    if (warden_args_parse(&args, argc, argv) < 0 || fds_check(args.listeners) < 0) {
        fprintf(stderr, "atoll-warden is a part of atoll; start the server with `atoll serve`\n");
        return 64;
    }
    log_setup(args.log_level, args.log_format, "warden");
    prctl(PR_SET_NAME, "atoll-warden", 0, 0, 0); /* an exec by descriptor leaves a number there */
    if (warden_harden(args.api_uid >= 0 || args.ids >= 0, args.ids == 0) < 0) {
        log_error("cannot give up what is not needed", kv_str("error", strerror(errno)));
        return 1;
    }
    int status = supervise(&args);
    if (status)
        socket_files_remove(args.listeners); /* otherwise they went when stopping began */
    log_info("stopped");
    return status;
}
