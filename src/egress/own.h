/* What the files of this room share. Everything is of the one thread. */
#pragma once

#include "base/buf.h"
#include "base/limits.h"
#include "base/list.h"
#include "base/map.h"
#include "egress/egress.h"
#include "wire/wire.h"

#define LISTENERS (WIRE_FDS_MAX - 1)

struct egress {
    struct loop *loop;
    struct watch link; /* the warden's */
    struct watch peer; /* the api process's; fd -1: none yet */
    bool synced;       /* it has said every policy there is */
    struct box *slots[BOX_SLOTS];
    struct map by_id; /* struct box */
    unsigned boxes;
    char *space; /* EGRESS_MSG_MAX bytes to read a message into */
};

/* A sandbox: something is known of it, by the warden (it has sockets) or by the api process. */
struct box {
    struct egress *egress;
    char id[BOX_ID_SIZE];
    bool here; /* it has sockets, and a slot */
    uint32_t slot;
    bool steered;
    struct watch listeners[LISTENERS], dns; /* fd -1: none */
    struct buf policy;                      /* as the api process said it */
    uint64_t policy_version;                /* 0: it has said none */
};

/* ---- box.c ---- */

/* Of the warden: takes the descriptors, the last of which is the DNS socket. */
void box_comes(struct egress *egress, const struct egress_box *what, const int *fds,
               unsigned count);
void box_goes(struct egress *egress, uint32_t slot);
/* Of the api process; 0 forgets. */
void box_policy(struct egress *egress, const struct box_name *name, uint64_t version,
                struct str bytes);
void egress_boxes_free(struct egress *egress);
