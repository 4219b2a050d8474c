/*
 * boxes - the table of boxes and what its files share. One thread; nothing here waits: a request
 * that takes time is remembered in its box and answered when a descriptor, a SIGCHLD or a deadline
 * says so.
 *
 *   FREE ── CREATE ──▶ CREATING ── init runs, record written ──▶ RUNNING
 *    ▲                    │ a step failed, or too slow              │ DESTROY, or its process 1
 *    │                    ▼                                         ▼ died
 *    └── cgroups and ── ENDING ◀────────────────────────────────────┘
 *        directory gone
 *
 *   table.c  who is where          life.c   how one begins and ends
 *   say.c    answers               verbs.c  what may be asked of one that runs
 *   pool.c   namespaces ahead      boxes.c  start, what wakes us, the end
 */
#pragma once

#include "warden/box.h"

#define TABLE_KEYS 3 /* id, process, disk */

struct box {
    char id[BOX_ID_SIZE];
    uint8_t state; /* enum box_state */
    bool gone;     /* its process 1 has ended and was waited for */
    bool frozen;   /* perhaps: it was asked to be, or nobody knows */
    pid_t pid;
    uint32_t uid_first;   /* of its user ids: those of its index, unless it was made elsewhere */
    int pidfd;            /* while it is made, and of an adopted one; else -1 */
    int link, report;     /* while it is made; else -1 */
    int mounts;           /* while it ends: its mount namespace, or -1 */
    int users;            /* likewise its user namespace, if another may have it */
    uint64_t users_inode; /* which one that is */
    uint32_t landlock_abi;
    bool nested;     /* user namespaces can be made inside */
    bool in_memory;  /* no disk and nothing of the host's is mounted in it */
    uint64_t upper;  /* the disk it writes to, or 0 */
    uint16_t asked;  /* verb that waits for an answer, or 0 */
    uint32_t number; /* of it */
    uint32_t asker;  /* which api process it came from */
    int32_t error;   /* of a creation */
    uint32_t step;
    int status; /* of its process 1; -1 unknown */
    int64_t due_ms;
    uint16_t due_at, next[TABLE_KEYS]; /* table.c: places in its lists */
    unsigned tries;
    struct box_died last;
};

extern struct box_host box_host;

/* ---- table.c: the index of a box is its range of user ids ---- */

uint32_t table_slot(const struct box *box);
struct box *table_at(uint32_t slot);
struct box *table_find(const char *id);
struct box *table_find_child(pid_t pid);
/* Who writes to this disk, or NULL. */
struct box *table_upper(uint64_t disk);
/* The first that is neither in use nor reserved, or NULL. */
struct box *table_free(void);
/* The first at or after `slot` that is in use, or NULL. */
struct box *table_next(uint32_t slot);
/* Kept for the pool; given back when it is taken and left, or here. */
void table_reserve(const struct box *box, bool reserved);
void table_take(struct box *box, const char *id, enum box_state state);
/* Once each, after it was taken. */
void table_set_pid(struct box *box, pid_t pid);
/* Where its ids are not those of its index: no other gets one of them as long as it lives. */
void table_set_ids(struct box *box, uint32_t first, uint32_t count);
void table_set_upper(struct box *box, uint64_t disk);
/* Closes what it holds. */
void table_leave(struct box *box);
void table_due(struct box *box, int64_t in_ms);
void table_due_off(struct box *box);
int64_t table_due_first(void); /* 0: none */
/* Calls fn for each whose time has come; its deadline is off by then. */
void table_run_due(int64_t now_ms, void (*fn)(struct box *box));
/* Those that are being made. */
void table_pending_add(const struct box *box);
void table_pending_remove(const struct box *box);
unsigned table_pending(void);
struct box *table_pending_at(unsigned place);
void close_one(int *fd);

/* ---- say.c ---- */

void say_to(boxes_say_fn *fn, void *owner);
void say(const struct wire_msg *msg, const int *fds, unsigned count);
/* Answers a request that brings nothing back: 0 or an errno. */
void say_status(const struct wire_msg *request, int error);
/* Which api process asks now: an answer for another one is not said. */
uint32_t say_asker(void);
/* The request is answered later, by say_answer. */
void say_later(struct box *box, const struct wire_msg *request);
/* Answers what the box was asked; nothing when whoever asked is gone. */
void say_answer(struct box *box, struct wire_msg *msg, int error, const int *fds, unsigned count);

/* ---- pool.c ---- */

void pool_on(bool on); /* off: nothing is made ahead any more */
/* Something was taken, or an index became free: fills up when all is quiet. */
void pool_wish(void);
void pool_left(void); /* likewise, and a box has left its cgroups */
int64_t pool_due_ms(void);
void pool_run_due(int64_t now_ms);
/* Gives back all, whatever its size. */
void pool_empty(void);
/*
 * A free index with what is there of its box, from the pool or made now; NULL with errno and *step.
 * Nested: user namespaces can be made inside; there are none of that kind in the pool.
 */
struct box *pool_take(bool nested, struct box_ahead *ahead, enum box_step *step);
/* The user namespace of a box that is about to be killed, or -1; and for the next, once it is gone.
 */
#define USERS_MAX 8
must_use int users_hold(const struct box *box, int pidfd);
void users_keep(uint32_t slot, int *fd);
unsigned users_count(void);
uint64_t users_inode(int fd); /* 0: it cannot be told */
/* The network of a box that is gone, with its sockets: perhaps for the next one. */
void network_keep(const struct box *box);
unsigned networks_count(void); /* kept now: a listener, a resolver's socket and a program each */

/* ---- life.c ---- */

void life_create(const struct wire_msg *request);
void life_destroy(const struct wire_msg *request);
/* Its child said what failed, or that it is through, or nothing yet. */
void life_report(struct box *box);
void life_failed(struct box *box, int error, uint32_t step);
/* Its process 1 has ended; -1: nobody knows how. */
void life_died(struct box *box, int status);
void life_kill(const struct box *box);
void life_due(struct box *box);
/* A new descriptor of its process 1, or -1. */
must_use int box_pidfd(const struct box *box);

/* ---- applied.c ---- */

void applied_hear(struct box *box, const struct wire_msg *request);

/* ---- sweep.c ---- */

/* A descriptor that keeps its mounts until sweep_take; -1: it is not to be kept. */
must_use int sweep_hold(const struct box *box, int pidfd);
/* Lets go of it, elsewhere; it is -1 then. */
void sweep_take(int *fd);
bool sweep_own(pid_t pid);
void sweep_reaped(void);
void sweep_stop(void);

/* ---- verbs.c ---- */

/* False when it is no verb about boxes. */
bool verbs_hear(const struct wire_msg *request, bool usable);
void freeze_look(struct box *box);
