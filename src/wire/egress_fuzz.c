/* Any bytes as one datagram: taken only if the same messages, sent again, are the same bytes. */
#include "wire/egress.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char space[EGRESS_MSG_MAX], again[EGRESS_MSG_MAX];
    struct egress_in in = { .space = space };
    struct egress_msg msg;
    int pair[2];

    if (size < 1 || size > sizeof(space))
        return 0;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
        abort();
    if (send(pair[0], data, size, MSG_NOSIGNAL) != (ssize_t)size)
        abort();
    for (size_t at = 0; egress_recv(pair[1], &in, &msg) == 1; at = in.at) {
        if (egress_send(pair[0], &msg) < 0 ||
            recv(pair[1], again, sizeof(again), 0) != (ssize_t)(in.at - at) ||
            memcmp(again, data + at, in.at - at) != 0)
            abort();
    }
    close(pair[0]);
    close(pair[1]);
    return 0;
}
