/*
 * job - a file operation in a sandbox, run by its init's own code (INIT_BUILTIN in wire/init.h), or
 * a program of ours in a helper sandbox.
 *
 * Transient: no row, no spool, not among the commands. Output goes straight to a callback and is
 * acknowledged unless the caller has paused it, so a slow reader slows the operation and nothing
 * piles up here; input is taken as fast as the operation reads it. What an init still runs of an
 * earlier life of this process is killed when it is found (link.c). Loop thread.
 */
#pragma once

#include "box/boxes.h"
#include "tree/tree.h"

struct box_job {
    /* Set by the caller, who owns the object until `done`, or until box_job_drop. */
    void (*data)(struct box_job *job, struct str data); /* output; NULL: dropped */
    void (*room)(struct box_job *job);                  /* more input may be put; may be NULL */
    /* Exactly once, never from inside the call that began it; it is over then. */
    void (*done)(struct box_job *job, const struct err *err);
    bool endless; /* no time limit; ended when the server stops */
    bool conn;    /* a connection to a port: counted apart from file operations */
    int code;     /* of a program, when it is done without an error */

    /* the room's own */
    struct list node;
    struct box *box; /* NULL: not under way */
    uint32_t number;
    bool started, paused, ack_due, stalled, program;
    uint64_t got[INIT_STREAMS], acked[INIT_STREAMS];
    struct buf errors;
    struct buf in;
    uint64_t in_sent, in_taken;
    bool in_open, in_eof;
    int64_t moved_ms, start_due_ms;
    struct timer timer;
    struct watch side;          /* side.c: a stream for bytes alone; fd 0: none */
    uint64_t side_left;         /* of what was asked for there */
    bool side_on, side_watched; /* bytes are to come there, or wait for room */
    bool side_in;               /* it is for input */
    uint64_t side_sent;
    bool exited; /* it has ended well, and not all of them have come yet */
};

struct box_job_spec {
    const char *user;        /* "agent", "root", or NULL: the sandbox's own */
    const char *const *args; /* the operation and its arguments, NULL-terminated */
    bool input;              /* input will follow */
    bool side;               /* much may come: give it a stream for that, if there is one */
    bool side_in;            /* likewise: much will be put */
    bool ours;               /* nobody's wish: as root whoever the sandbox was made for */
    bool program;            /* args are a program and its arguments instead */
};

must_use int box_job_start(struct box *box, struct box_job *job, const struct box_job_spec *spec,
                           struct err *err);
/* Kills it and forgets the caller; fine on one that is over. */
void box_job_drop(struct box_job *job);
/* Output may still come that is under way: INIT_RING_SIZE bytes at most. */
void box_job_pause(struct box_job *job);
void box_job_resume(struct box_job *job);

/*
 * What follows is so many bytes in the stream that was asked for; `data` gets them. False: there is
 * none, and they come as output. Not before it has started.
 */
bool box_job_expect(struct box_job *job, uint64_t len);

/* How much was taken; `room` tells when there is more. */
size_t box_job_put(struct box_job *job, struct str data);
void box_job_eof(struct box_job *job); /* after what was put */

/* A change that an operation made, for the record in the store; `op` as for other changes. */
void box_note(struct box *box, struct box_op *op);
