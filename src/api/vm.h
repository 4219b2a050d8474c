/* vm - what the views of agentic have in common: sandboxes that are started, stopped, deleted. */
#pragma once

#include "api/own.h"
#include "model/sandbox.h"

#define VM_STOP_MS 15000 /* how long commands are waited for unless somebody says otherwise */

struct vm_change {
    const char *state, *message;
    const char *already; /* said when it is so already; NULL: then it is refused */
    const char *event, *reason;
    bool deletes, force;
    bool keeps;        /* delete_disk=false: its files stay, as a snapshot */
    int64_t gentle_ms; /* so long commands are asked and waited for before */
    int (*fn)(struct box *box, struct box_op *op, struct err *err);
};

/* Those that say the same of a VM and of an agent. */
extern const struct vm_change vm_starting, vm_destroying;
must_use int vm_deleting(struct call *call, bool force, struct vm_change *out, struct err *err);

/* What agentic calls a sandbox, and the state in its words. */
const char *vm_name(const struct sandbox_view *view);
const char *vm_state(const struct sandbox_view *view);

/* For ON_LATER: does it, and answers as agentic does. */
must_use int vm_change(struct call *call, struct box *box, const struct vm_change *wish,
                       struct err *err);
