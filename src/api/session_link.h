/* session_link - sessions of linked agents by requests; see session_link.c. Loop thread. */
#pragma once

#include "api/session.h"
#include "link/links.h"

/* Is the path's {id} a linked agent? */
bool session_linked(struct call *call, struct linked **out);
int session_link_list(struct call *call, const struct linked *agent);
/* Those with a terminal that run, as elements of an open list. */
void session_link_terminals(struct call *call, struct json_out *json);
/* ON_LATER, as all that follow. `wish` needs a name. */
must_use int session_link_post(struct call *call, struct linked *agent, struct command_wish *wish,
                               struct err *err);
must_use int session_link_delete(struct call *call, const struct linked *agent, struct err *err);
/* One that runs, by its id, of any linked agent; NULL: none. */
struct link_command *session_link_find(struct call *call, const char *id);
must_use int session_link_signal(struct call *call, struct link_command *command, int number,
                                 struct err *err);
