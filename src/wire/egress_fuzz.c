/* Any bytes as one datagram: taken only if the same message, sent again, is the same bytes. */
#include "wire/egress.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char space[EGRESS_MSG_MAX], again[EGRESS_MSG_MAX];
    struct egress_msg msg;
    int pair[2];

    if (size < 1 || size > sizeof(space))
        return 0;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
        abort();
    if (send(pair[0], data, size, MSG_NOSIGNAL) != (ssize_t)size)
        abort();
    if (egress_recv(pair[1], space, &msg) == 1) {
        if (egress_send(pair[0], &msg) < 0 ||
            recv(pair[1], again, sizeof(again), 0) != (ssize_t)size ||
            memcmp(again, data, size) != 0)
            abort();
    }
    close(pair[0]);
    close(pair[1]);
    return 0;
}
