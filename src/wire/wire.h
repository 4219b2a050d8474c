/*
 * wire - what atoll's own processes say to each other: fixed-size, versioned messages over a
 * SOCK_SEQPACKET pair, descriptors beside them. The warden and the static init speak it too, so it
 * needs libc alone. Every message is checked as hostile input: the api process may be taken over,
 * and the warden must not care.
 */
#pragma once

#include <stdint.h>

#include "base/auto.h"
#include "base/str.h"
#include "wire/box.h"
#include "wire/egress.h"

#define WIRE_MAGIC 0x4c4f5441u /* "ATOL" */
#define WIRE_VERSION 5
#define WIRE_SIZE 512
#define WIRE_PAYLOAD (WIRE_SIZE - 16)
#define WIRE_FDS_MAX 6 /* an even number: the kernel fills the space of a pair */

enum wire_role { WIRE_ROLE_WARDEN = 1, WIRE_ROLE_API, WIRE_ROLE_EGRESS };

enum wire_verb {
    WIRE_HELLO = 1, /* child → warden: version, role, pid; the warden answers with its own */
    WIRE_READY,     /* child → warden: serving */
    WIRE_STOP,      /* warden → child: drain and exit */
    WIRE_RELOAD,    /* warden → child: new settings, in descriptor 0 (a sealed memfd) */
    WIRE_RELOADED,  /* child → warden: applied, or status says why not */
    WIRE_PING,      /* either way; answered with the same number */
    WIRE_PONG,
    WIRE_BOX_CREATE, /* and on: box.h */
    WIRE_BOX_OPEN,
    WIRE_BOX_SIGNAL,
    WIRE_BOX_FREEZE,
    WIRE_BOX_THAW,
    WIRE_BOX_LIMITS,
    WIRE_BOX_STAT,
    WIRE_BOX_APPLIED,
    WIRE_BOX_DESTROY,
    WIRE_BOX_LIST,
    WIRE_BOX_DIED,
    WIRE_BOX_MOUNT,
    WIRE_DISK_MAKE,
    WIRE_DISK_LIMIT,
    WIRE_DISK_STAT,
    WIRE_DISK_DROP,
    WIRE_DISK_LIST,
    WIRE_EGRESS_PEER, /* and on: egress.h; all of them the warden's */
    WIRE_EGRESS_BOX,
    WIRE_EGRESS_GONE,
    WIRE_VERBS
};

struct wire_msg {
    uint32_t magic;
    uint16_t version;
    uint16_t verb;
    uint32_t number; /* of the request; a reply repeats it */
    int32_t status;  /* 0, or an errno in replies */
    union {
        struct {
            uint32_t role, pid;
            uint32_t readies; /* from the warden: api processes of this server that were READY */
        } hello;
        char text[WIRE_PAYLOAD]; /* WIRE_RELOADED: why not; read it with wire_text */
        uint8_t bytes[WIRE_PAYLOAD];
        struct box_spec spec;
        struct box_name name;
        struct box_created created;
        struct box_signal signal;
        struct box_limits limits;
        struct box_usage usage;
        struct box_applied applied;
        struct box_page page;
        struct box_rows rows;
        struct box_died died;
        struct box_mount mount;
        struct disk_wish disk;
        struct disk_usage disk_usage;
        struct disk_page disk_page;
        struct disk_rows disk_rows;
        struct egress_box egress;
    };
};
_Static_assert(sizeof(struct wire_msg) == WIRE_SIZE, "the wire is fixed");

/* What `text` holds up to its first NUL, or all of it. */
struct str wire_text(const struct wire_msg *msg);

/* One message with up to WIRE_FDS_MAX descriptors; -1 with errno (EAGAIN on a non-blocking end). */
must_use int wire_send(int fd, const struct wire_msg *msg, const int *fds, unsigned count);
/*
 * 1: got one, checked (magic, version, known verb, exact size, no cut-off descriptors); 0: the
 * other end closed, or sent an empty datagram, which is the same to us; -1: errno, EPROTO for a
 * malformed message (its descriptors are closed). The descriptors are close-on-exec.
 */
must_use int wire_recv(int fd, struct wire_msg *msg, int fds[WIRE_FDS_MAX], unsigned *count);
