/*
 * session - terminals in the words of agentic: an agent is a sandbox (by its name, or its id), a
 * session is a command in it, and its session_id and command_id are both the command's id. Loop
 * thread.
 */
#pragma once

#include "api/terminal.h"

#define SESSION_ROWS 50 /* of one made by a request; of a shell on the socket TERM_ROWS */
#define SESSION_COLS 220

/* The command by its id, or by the beginning of it, in any sandbox within reach. */
must_use int terminal_by_id(struct api *api, struct reach reach, const char *id,
                            struct box_exec **out, struct err *err);
/* The newest of a sandbox under this name, or with this id; that runs if `running`. NULL: none. */
struct box_exec *session_named(struct box *box, const char *name, bool running);
/* call_box in the words of this surface. */
must_use int session_box(struct call *call, struct box **out, struct err *err);
const char *session_name(const struct exec_view *view);
const char *session_type(bool tty, bool background);
/* "" and "~" mean home. */
const char *session_cwd(const char *wish, bool root);
const char *agent_name(const struct sandbox_view *view);

/* {session_id, seq, ts, kind, …}, left open for more. */
struct json_out session_frame_open(struct buf *out, const char *type, const char *session,
                                   uint64_t seq, int64_t ts, const char *kind);
/* A frame of the log as one of these; false: it is none that is told. */
bool session_frame_put(struct buf *out, const char *type, const char *session,
                       const struct term_frame *frame, struct str data);
void session_keyframe_put(struct buf *out, const char *type, const char *session, uint64_t seq,
                          struct str data);
void session_closed_put(struct buf *out, const char *type, struct box_exec *exec);

/* The members of screen_update's `screen`, or of the answer to GET …/screen (`flat`). */
void session_screen_put(struct json_out *json, const struct screen *screen, bool flat);

/* Where agentic's socket is. */
const char *session_ws_endpoint(struct call *call);

int session_stream(struct call *call, struct err *err); /* session_sse.c */
