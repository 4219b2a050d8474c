/* exec - what the files about commands share. */
#pragma once

#include "api/own.h"
#include "api/printed.h"
#include "box/boxes.h"

/* The command that a route names. */
must_use int call_exec(struct call *call, struct box_exec **out, struct err *err);

/* Adds the hosts that were denied to its sandbox while it ran; of the arena. */
void exec_put_blocked(struct gate *gate, struct exec_view *view, struct arena *arena);

/* exec_output.c: its bytes by position, or both streams as events. */
int output_get(struct call *call, struct err *err);
int output_sse(struct call *call, struct err *err);
must_use int output_events(struct call *call, const struct printed *of, struct err *err);

/* exec_input.c: a body to its input. */
int stdin_post(struct call *call, struct err *err);
extern const struct field stdin_fields[];
