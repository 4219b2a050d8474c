/*
 * target - what the name of an agent stands for on the surfaces of agentic: an agent that is linked
 * from elsewhere, or a sandbox. REST, gRPC and the WebSocket find agents and run commands through
 * this table, so each of them reaches the same agents and shows the same of them. Loop thread.
 *
 * A linked agent comes before a sandbox of the same name.
 */
#pragma once

#include "api/own.h"
#include "api/printed.h"

struct target {
    struct linked *linked; /* one of them; the other is NULL */
    struct box *box;
};

/*
 * One within reach: by the id of a linked agent, or by the whole id or the name of a sandbox.
 * ERR_NOT_FOUND.
 */
must_use int target_find(const struct api *api, struct reach reach, const char *name,
                         struct target *out, struct err *err);
/* The agent of the path, {id}. */
must_use int call_target(struct call *call, struct target *out, struct err *err);
/*
 * Linked agents, then sandboxes, that are within reach; begins with a target of two NULLs. False:
 * there are no more.
 */
bool target_next(const struct api *api, struct reach reach, struct target *at);
/* Texts are borrowed from the target. */
void target_view(const struct target *target, struct agent_view *out);

/* ---- commands ---- */

struct target_run {
    const char *tenant, *by; /* borrowed until the end */
    /* On the writer thread, in the transaction that stores the command; may be NULL. */
    int (*record)(struct target_run *run, struct db *db, struct err *err);
    /* Before that, on the loop thread: `command` is known; may be NULL. */
    void (*prepare)(struct target_run *run);
    /* Exactly once, never from inside of target_run. */
    void (*done)(struct target_run *run, const struct err *err);
    struct printed command;

    /* its own */
    struct link_op link_op;
    struct box_op box_op, wake;
    struct exec_spec spec;
    struct box *box;
};

/*
 * Runs a command; a sandbox that sleeps is woken. `wish` was settled; it and `arena` live until the
 * end. Errors are those of linked_run and box_exec.
 */
must_use int target_run(const struct target *target, const struct command_wish *wish,
                        struct arena *arena, struct target_run *run, struct err *err);
/* By its whole id. ERR_NOT_FOUND. */
must_use int target_command(const struct target *target, const char *id, struct printed *out,
                            struct err *err);
/* The oldest first; begins with a `printed` of two NULLs. False: there are no more. */
bool target_command_next(const struct target *target, struct printed *at);
/* A command of either kind in one shape; the line of a sandbox's command is put into the arena. */
void target_command_view(const struct printed *command, struct arena *arena,
                         struct command_view *out);

/*
 * What goes to a command. A change of a sandbox's command is stored and recorded by `op`, and 1 is
 * returned: op->done follows. 0: it is done, and the caller records it.
 */
must_use int target_input(struct printed *command, struct str data, bool eof, struct err *err);
must_use int target_signal(struct printed *command, int number, struct box_op *op, struct err *err);
must_use int target_resize(struct printed *command, unsigned rows, unsigned cols, struct err *err);
