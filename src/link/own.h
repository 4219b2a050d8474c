/* own - what the files of the link room share among themselves. */
#pragma once

#include "base/crash.h"
#include "base/map.h"
#include "box/spool.h"
#include "link/links.h"

#define V1(name) Agentic__Sandbox__V1__##name

enum command_state { COMMAND_RUNNING, COMMAND_EXITED, COMMAND_LOST };
const char *command_state_name(enum command_state state);

struct link_command {
    struct list node; /* in its agent's, oldest first */
    struct linked *agent;
    char id[UUID_SIZE], by[ID_SIZE];
    char *line, *session_name; /* owned */
    char *error;               /* owned; NULL: none */
    bool pty, gap, background;
    bool stored; /* its row is on disk, and it was sent */
    bool ending; /* its end is on the way to the store */
    bool kept;   /* named by the report that is being looked at */
    enum command_state state, end_state;
    struct link_packed *packed; /* owned: what is to be sent when the row is on disk */
    int64_t exit_code, duration_ms, started_ms, ended_ms;
    struct spool spools[2];
    bool lacks_room;  /* its output could not be kept, and is asked for again */
    struct pace pace; /* has the readers */
};

struct linked {
    struct list node; /* in the registry's, by age of their rows */
    struct links *links;
    char id[SECRET_NAME_MAX + 1], tenant[TENANT_MAX + 1];
    unsigned char hash[SHA256_SIZE], next[SHA256_SIZE];
    int64_t next_until_ms;
    struct arena given; /* of access */
    struct access access;
    char instance_id[UUID_SIZE];
    struct link_peer *peer; /* NULL: not connected */
    struct list commands;
    struct crash crash;

    /* what it says about itself; texts in the arena, which each registration replaces */
    struct arena arena;
    char *hostname, *ip_address, *profile, *loadout;
    struct agent_system system;
    bool has_system, has_metrics;
    struct agent_framework *frameworks;
    struct agent_metrics metrics;
    enum agent_status status; /* as it says; linked_view knows better when it is silent */
    char *setup_status, *setup_progress; /* owned */
    int64_t connected_ms, heard_ms;      /* wall */
};

struct links {
    struct links_options options;
    struct map by_id;   /* of struct linked, not owned */
    struct list agents; /* owned */
    struct list watches;
    struct timer check;
};

/* ---- rows.c ---- */

/* An event of the agent's tenant, by itself. `body` is JSON. */
void links_event(const struct linked *agent, const char *type, struct str body);
void links_event_count(const struct linked *agent, const char *type, const char *key,
                       int64_t count);
/* The agent's row: instance and time. */
void links_seen(const struct linked *agent);
void link_settle_secret(const struct linked *agent);
/* Stores a new command; then command_started and the op's end. Without an op: adopted, no word. */
void link_store_new(struct link_command *command, struct link_op *op);
/* Stores its end; command_stored follows. */
void link_store_end(struct link_command *command);
void link_store_forget(const struct link_command *command);
must_use int link_rows_load(struct links *links, struct db *db, struct err *err);

/* ---- command.c ---- */

void command_tell_begun(struct link_command *command);
struct link_command *command_new(struct linked *agent, const char *id);
struct link_command *command_of(struct linked *agent, const char *id); /* NULL: none */
void command_free(struct link_command *command);
void command_started(struct link_command *command);
must_use int command_load(struct link_command *command, struct err *err); /* its spools */
/* -1: it cannot be kept, and the agent is to say it again over another connection. */
must_use int command_output(struct link_command *command, unsigned stream,
                            const V1(OutputChunk) * chunk, struct err *err);
/* It has ended; nothing happens when it had already. */
void command_end(struct link_command *command, enum command_state state, int64_t exit_code,
                 const char *error, int64_t duration_ms);
void command_stored(struct link_command *command);
/* How far it has come, to an agent that wants to know. */
void command_ack(struct link_command *command);
void commands_lost(struct linked *agent, const char *why);
void command_cut(struct link_command *command, const struct err *why); /* its readers */

/* ---- links.c ---- */

struct linked *linked_new(struct links *links, const char *id, const char *tenant);

/* One of ours, or NULL. */
static inline struct linked *linked_get(struct links *links, struct str id)
{
    return map_get(&links->by_id, id);
}

/* ---- reconcile.c ---- */

must_use int reconcile_report(struct link_peer *peer, const V1(SessionReport) * report,
                              struct err *err);
void reconcile_acked(struct link_peer *peer, const V1(SessionReconcileAck) * ack);

/* To the agent, if it is there. False: it is not, or takes no more. */
bool links_tell(struct linked *agent, const V1(ManagementMessage) * message);
