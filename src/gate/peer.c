/* The link to the egress process. */
#include "gate/own.h"

void peer_policy(struct gate *gate, const struct gate_box *box)
{
    (void)gate;
    (void)box;
}

void peer_forget(struct gate *gate, const char *id)
{
    (void)gate;
    (void)id;
}

void gate_peer(struct gate *gate, int fd)
{
    (void)gate;
    close(fd);
}

bool gate_linked(const struct gate *gate)
{
    (void)gate;
    return false;
}
