/* terminal - what the ways of watching a terminal share. Loop thread. */
#pragma once

#include <stdio.h>

#include "api/socket.h"
#include "box/term.h"

#define TERMINAL_PROTOCOL "atoll.terminal.v1" /* what a client may offer as a subprotocol */

/* The terminal that the path names ({id} and {tid}), by id or name. */
must_use int call_terminal(struct call *call, struct box_exec **out, struct err *err);
must_use int terminal_find(struct box *box, const char *text, struct box_exec **out,
                           struct err *err);
/* May this principal have control? */
bool may_type(const struct principal *who);
/* "observer" (also NULL) or "controller". */
must_use int role_of(const char *text, enum attach_role *out, struct err *err);
void attach_prepare(struct attach *attach, const struct attach_ops *ops,
                    const struct principal *who);
/* A shell, for a wish that names no command. */
void shell_unless_said(struct exec_spec *spec);

int terminal_ws(struct call *call, struct err *err);
int terminal_recording(struct call *call, struct err *err);
