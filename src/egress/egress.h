/*
 * egress - the room of the process that all traffic of sandboxes goes through (the role `egress`).
 *
 * One thread, one loop. It is told by the warden which sandboxes there are and by the api process
 * what each of them may reach; it decides, connects, relays and records. It holds no key that it
 * does not itself put into requests, opens no file and starts no program.
 *
 *   egress.c  who it talks to        box.c   one sandbox: sockets, policy, its connections
 *   conn.c    one connection         judge.c may it?   dial.c  to the far end   relay.c  its bytes
 */
#pragma once

#include "base/seal.h"
#include "base/str.h"
#include "loop/loop.h"
#include "wire/egress.h"

struct egress;

/*
 * Before the jail: everything that needs a file or an unusual socket. `link` is the warden's; `key`
 * opens the secrets that are to go into requests. `roots` are authorities in PEM that hosts may be
 * certified by besides those that the machine trusts; empty: none.
 */
must_use int egress_new(struct egress **out, struct loop *loop, int link,
                        const struct seal_private *key, struct str roots, struct err *err);

/* Not for sandboxes: one listener, to which callers bring signed tokens (signed.c, policy/grant.h).
 */
struct egress_signed {
    int listener;   /* borrowed */
    struct str key; /* borrowed */
    int64_t life_s; /* that a token may have before it */
    struct egress_config config;
};
must_use int egress_new_signed(struct egress **out, struct loop *loop,
                               const struct egress_signed *how, struct err *err);
void egress_free(struct egress *egress);
