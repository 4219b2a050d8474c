/* session_ws - the connection that session_ws.c (joined sessions) and tap.c (agents) share. */
#pragma once

#include "api/session.h"
#include "link/links.h"

/* pulse.c: metrics of agents that were subscribed to, one sandbox after the other. */
struct pulse {
    struct pulse_ask *ask; /* the question that is under way, or NULL */
    struct list samples;   /* how much time each sandbox had used */
    char at[ID_SIZE];      /* the last one that was asked; "": begin with the first */
    int64_t next_ms;       /* when the next round begins */
};

struct hub {
    struct socket socket;
    struct arena arena; /* of the message being read */
    struct list joins;
    /* tap.c, tap_run.c, tap_link.c */
    struct list taps, subscriptions, starts, link_starts;
    struct boxes_watch execs; /* for new commands of agents that were subscribed to */
    struct links_watch commands;
    bool full; /* the peer must read first; taps_drained follows */
    struct timer beat;
    struct pulse pulse;
};

struct json_out hub_open(struct buf *text, const char *type);
bool hub_send(struct hub *hub, struct json_out *json); /* closes the object */
void hub_error(struct hub *hub, const char *message);
/* A text of the message, "" when there is none; until the next message. */
const char *hub_text(struct hub *hub, const struct json *json, const char *key);
/* cols and rows of a message, not below agentic's floor. */
must_use int size_of(const struct json *json, int64_t *rows, int64_t *cols, struct err *err);
/* Has this connection joined it as its controller? */
bool hub_controls(struct hub *hub, const char *session);

void pulse_init(struct hub *hub);
void pulse_beat(struct hub *hub); /* from time to time, while anybody is subscribed to */
void pulse_free(struct hub *hub);
/* Is it subscribed to, by name or with all others? */
bool hub_subscribed(const struct hub *hub, const char *agent, const char *sandbox);

void taps_init(struct hub *hub);
void taps_drained(struct hub *hub);
void taps_free(struct hub *hub);

int hub_subscribe(struct hub *hub, const struct json *json, struct err *err);
int hub_unsubscribe(struct hub *hub, const struct json *json, struct err *err);
int hub_ping(struct hub *hub, const struct json *json, struct err *err);
int hub_list_agents(struct hub *hub, const struct json *json, struct err *err);
int hub_list_sessions(struct hub *hub, const struct json *json, struct err *err);
int hub_send_command(struct hub *hub, const struct json *json, struct err *err);
int hub_start_shell(struct hub *hub, const struct json *json, struct err *err);
int hub_create_session(struct hub *hub, const struct json *json, struct err *err);
int hub_attach_session(struct hub *hub, const struct json *json, struct err *err);
int hub_detach_session(struct hub *hub, const struct json *json, struct err *err);
int hub_kill_session(struct hub *hub, const struct json *json, struct err *err);
int hub_send_input(struct hub *hub, const struct json *json, struct err *err);
int hub_pty_resize(struct hub *hub, const struct json *json, struct err *err);
