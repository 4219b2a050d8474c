/*
 * net - the only way out of a box: sockets in its network that the egress process (src/egress)
 * answers at.
 *
 * A box's network has a loopback interface and nothing else. A route makes every IPv4 address one
 * of its own, a program of a few instructions (sk_lookup) leads every TCP connection but those to
 * 127.0.0.0/8 to one listener, and a UDP socket on port 53 answers whatever resolver is asked. The
 * sockets are made here and answered elsewhere; this process never reads from one of them. They
 * are kept while the box lives, so that the death of the egress process closes nothing. Beside them
 * is kept a piece of memory for that process alone: what it gave out names for, and what was used
 * up.
 *
 *   net.c     making them           egress.c   the egress process, and who gets what
 *   net_used.c   which of them may serve twice
 */
#pragma once

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/auto.h"
#include "warden/box.h"
#include "warden/warden.h"

#define NET_LISTENERS 3 /* without the program: one for each port that counts */

struct net {
    int listeners[NET_LISTENERS]; /* -1: none */
    int dns;
    int steer; /* keeps the program where it is; -1: there is none */
};
#define NET_NONE ((struct net){ { -1, -1, -1 }, -1, -1 })

/*
 * In the network that the caller has just entered: all of it, or -1 with errno and nothing. Without
 * rights to load programs there is a listener for each port that counts instead.
 */
must_use int net_make(struct net *out);
/*
 * Into the network of a process, which is never the one that we are in: that is the host's, and a
 * route that leads everything here would cut it off. EXDEV then.
 */
must_use int net_enter(int netns);
/* net_make in that of a process; not for a warden that an ordinary user started. */
must_use int net_make_in(int netns, struct net *out);
/* The network that these sockets are in: a descriptor, or -1 with errno. */
must_use int net_where(const struct net *net);
/* net_unused, in that one. */
bool net_as_new(int netns, struct net *net);
void net_close(struct net *net);
/* Out of the way of children (clone.c): it is kept as long as its box. */
void net_lift(struct net *net);
/* Programs without a box, kept for the next ones: two descriptors each. */
#define NET_SPARES 8
unsigned net_spares(void);
void net_spares_close(void);
/* The descriptors in the order in which they are handed over: listeners, then dns. How many. */
unsigned net_fds(const struct net *net, int fds[NET_LISTENERS + 1]);

/* ---- net_used.c: in the network that the caller has entered ---- */

/* After net_make, while nobody was in it: how one looks that is new. Once is enough. */
void net_learn(void);
/* Nothing was ever done in it, and all sockets that are in it are these. */
bool net_unused(const struct net *net);

/* ---- egress.c ---- */

/* The sockets of a slot's box, taken; they are kept until net_leave. */
void net_keep(uint32_t slot, struct net *net);
void net_leave(uint32_t slot);
/* Instead of net_leave: they are the caller's now. False: there are none. */
bool net_take_back(uint32_t slot, struct net *out);
/* The egress process knows that what was in this slot is no box's any more; or there is none. */
bool net_forgotten(uint32_t slot);
/* The box in this slot runs: the egress process is told. */
void net_tell(uint32_t slot);
/* An earlier warden's box runs in this slot: its sockets are made anew. */
void net_adopt(uint32_t slot);

#define EGRESS_WAITS 2
/* From here on there is an egress process. `to_api` reaches the api process. */
void egress_begin(const struct warden_args *args, boxes_say_fn *to_api, void *owner);
/* A new api process has said hello. */
void egress_api_is_new(void);
unsigned egress_waits(struct pollfd waits[EGRESS_WAITS]);
void egress_woken(const struct pollfd *waits, unsigned count);
void egress_run_due(void);
int64_t egress_due_ms(void); /* 0: never */
void egress_end(void);
pid_t egress_pid(void); /* 0: none */
