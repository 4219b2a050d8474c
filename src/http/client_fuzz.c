/* Any bytes as a server's reply: the client must end, within limits, and never with more than came.
 */
#include <sys/socket.h>

#include "base/clock.h"
#include "http/client.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct client_target target = { .host = "localhost" };
    const struct client_request get = { .method = "GET", .path = "/" };
    struct client_options options = { .deadline_ms = clock_mono_ms() + 10000 };
    struct client *client = NULL;
    struct client_reply reply;
    struct err err = { 0 };
    size_t total = 0;
    char part[777];
    int pair[2];

    if (size > 100000 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return 0;
    if (send(pair[0], data, size, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)size && size)
        abort();
    shutdown(pair[0], SHUT_WR);
    int rc = client_start_on(&client, pair[1], &target, &get, &options, &reply, &err);
    ssize_t got = rc;
    while (rc == 0 && (got = client_read(client, part, sizeof(part), &err)) > 0)
        total += (size_t)got;
    if (total > size || (got < 0 && (!err.code || err.code == ERR_TIMEOUT)))
        abort();
    client_free(client);
    close(pair[0]);
    return 0;
}
