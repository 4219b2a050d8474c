/* tap - what the files behind agentic's agent-scoped messages share; see tap.c. Loop thread. */
#pragma once

#include "api/session_ws.h"
#include "link/links.h"

/* The output of what was begun or asked for here, from its beginning to its end, once. */
void tap_exec(struct hub *hub, struct box_exec *exec, const char *agent);
void tap_command(struct hub *hub, struct link_command *command);

/* tap_run.c: a sandbox, by the name of an agent; and what is the same for linked agents. */
must_use int tap_box(struct hub *hub, const char *name, struct box **out, struct err *err);
must_use int tap_may_use(const struct hub *hub, struct err *err);
/* argv of a message: command and args. */
const char **tap_argv(struct arena *arena, const struct json *json, const char *otherwise);
/* The type of session that a message asks for, in our own memory; NULL: an error. */
const char *tap_session_type(struct hub *hub, const struct json *json, struct err *err);
/* agent_id and session_name of the message back, and the command's id unless NULL. */
void tap_answer(struct hub *hub, const char *type, const struct json *json, const char *id);
struct tap_begun {
    const char *reply, *agent, *id, *command;
    const char *type, *name; /* NULL: not a session */
};
void tap_say_started(struct hub *hub, const struct tap_begun *begun);
void tap_put_session(struct json_out *json, const char *id, const char *name, const char *type,
                     const char *command);
/* The row that a request would leave; texts in the arena, all but object and detail set. */
struct audit tap_row(struct hub *hub, struct arena *arena, const char *action);
void tap_starts_free(struct hub *hub);

/* tap_link.c: the linked agent that a message is about, or NULL; and its commands. */
struct linked *tap_linked(struct hub *hub, const struct json *json);
/* One that runs and has this name, or this id; NULL: none. */
struct link_command *link_named(const struct linked *agent, const char *name);
/* What the tables check in a request for a command. */
must_use int link_check_wish(struct command_wish *wish, struct err *err);
void link_put_sessions(struct json_out *json, const struct linked *agent);
int link_send_command(struct hub *hub, struct linked *agent, const struct json *json,
                      struct err *err);
int link_start_shell(struct hub *hub, struct linked *agent, const struct json *json,
                     struct err *err);
int link_create_session(struct hub *hub, struct linked *agent, const struct json *json,
                        struct err *err);
int link_attach_session(struct hub *hub, struct linked *agent, const struct json *json,
                        struct err *err);
int link_kill_session(struct hub *hub, struct linked *agent, const struct json *json,
                      struct err *err);
int link_send_input(struct hub *hub, struct linked *agent, const struct json *json,
                    struct err *err);
int link_pty_resize(struct hub *hub, struct linked *agent, const struct json *json,
                    struct err *err);
void link_starts_free(struct hub *hub);
