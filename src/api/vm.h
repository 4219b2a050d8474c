/* vm - what the views of agentic have in common: sandboxes that are started, stopped, deleted. */
#pragma once

#include "api/own.h"

struct vm_change {
    const char *state, *message;
    const char *already; /* said when it is so already; NULL: then it is refused */
    bool deletes, force;
    int (*fn)(struct box *box, struct box_op *op, struct err *err);
};

/* For ON_LATER: does it, and answers as agentic does. */
must_use int vm_change(struct call *call, struct box *box, const struct vm_change *wish,
                       struct err *err);
