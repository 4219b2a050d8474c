/*
 * links - agents that connect to us from elsewhere, and the commands that run there.
 *
 * An agent is known by its secret (auth/vault.h). One connection of it lives at a time; a newer one
 * takes over. What an agent says is hostile: sizes, counts, rates and names are checked here.
 *
 * A command has a row, and its output goes to a spool by position, as that of sandboxes does. An
 * agent that says atoll_link keeps each byte until we acknowledge it and says its position, so what
 * comes twice after a cut or a crash on either side is known as such. A command goes on while its
 * agent is away; it is lost when the agent comes back without it, or does not come back.
 *
 * All functions are for the loop thread, except links_load.
 */
#pragma once

#include "agentic/sandbox/v1/agent.pb-c.h"
#include "auth/vault.h"
#include "base/limits.h"
#include "base/uuid.h"
#include "box/pace.h"
#include "loop/loop.h"
#include "model/access.h"
#include "model/agent.h"
#include "store/store.h"

struct links;
struct linked;
struct link_command;

struct links_options {
    struct loop *loop;
    struct store *store;
    int spool_dir; /* takes */
    /* 0: as in limits.h */
    int64_t check_ms, stale_ms, gone_ms, remove_ms;
};

struct links *links_new(const struct links_options *options);
void links_free(struct links *links);
/* Within the first job of a start: reads the rows. */
must_use int links_load(struct links *links, struct db *db, struct err *err);
/* After links_load: time begins. */
void links_start(struct links *links);
/* The server is stopping: connections are ended, and whoever waits for a command is told. */
void links_drain(struct links *links);

/* After the commit: a secret was made or rotated; it is gone, and with it the connection. */
void links_secret(struct links *links, const struct secret_row *row);
void links_secret_gone(struct links *links, const char *agent);

/* ---- one connection; embedded in its owner ---- */

struct link_peer {
    struct linked *agent; /* NULL: over */
    char addr[56];
    bool registered, reported, settled, asked; /* asked: it said that it would go */
    bool told_ready, told_setup;               /* events are made once for a connection */
    uint32_t version;                          /* of Atoll's own additions; 0: none */
    int64_t since_ms, window_ms;
    unsigned control; /* messages in this second that are no output */
    /* False: it does not take any more now. */
    bool (*send)(struct link_peer *peer, const ProtobufCMessage *message);
    /* Ended by us; the last call. */
    void (*end)(struct link_peer *peer, const struct err *why);
};

/*
 * Is the secret the agent's? Then this is its connection, and an older one is ended.
 * ERR_UNAUTHENTICATED, for unknown agents too.
 */
must_use int links_open(struct links *links, struct str agent, struct str secret,
                        struct link_peer *peer, struct err *err);
/* -1: the connection is to be ended with *err (after links_close). */
must_use int links_hear(struct link_peer *peer, const Agentic__Sandbox__V1__AgentMessage *message,
                        struct err *err);
/* It is over. Fine when it is already. */
void links_close(struct link_peer *peer);

/* ---- agents ---- */

/* One within reach that is connected, or was not long ago. ERR_NOT_FOUND. */
must_use int links_find(struct links *links, struct reach reach, const char *id,
                        struct linked **out, struct err *err);
struct linked *links_next(struct links *links, struct reach reach, struct linked *after);
const char *linked_tenant(const struct linked *agent);
/*
 * Changes who reaches an agent, connected or not: the row in a write job, then after the commit
 * what is in memory. *access begins as what is given, and becomes all of it. ERR_NOT_FOUND.
 */
must_use int link_access_write(struct db *db, const char *tenant, const char *id,
                               struct access *access, uint64_t present, struct arena *arena,
                               struct err *err);
void links_give(struct links *links, const char *id, const struct access *access);
void linked_view(const struct linked *agent, struct agent_view *out);
bool linked_connected(const struct linked *agent);
/* Is it in the list? One that is not may still have commands, whose output can be read. */
bool linked_shown(const struct linked *agent);
unsigned links_connected(const struct links *links);
unsigned links_ready(const struct links *links); /* of those: to work, or at work */
/* Tells it its next secret. False: it is not there. */
bool linked_tell_secret(struct linked *agent, const char *plain);

/* ---- commands ---- */

struct link_op {
    const char *tenant, *by; /* borrowed until the end */
    /* On the writer thread, in the transaction that stores the change; may be NULL. */
    int (*record)(struct link_op *op, struct db *db, struct err *err);
    /* Just before that, on the loop thread; may be NULL. */
    void (*prepare)(struct link_op *op);
    /* Exactly once, never from inside the call that began it. */
    void (*done)(struct link_op *op, const struct err *err);
    struct link_command *command;
};

/* ERR_CONFLICT: not connected, or still being set up. ERR_RATE: LINK_RUNNING_MAX run already. */
must_use int linked_run(struct linked *agent, const struct command_wish *wish, struct link_op *op,
                        struct err *err);
must_use int linked_command(struct linked *agent, const char *id, struct link_command **out,
                            struct err *err);
struct link_command *linked_next(const struct linked *agent, struct link_command *after);
void command_view(const struct link_command *command, struct command_view *out);
bool command_ended(const struct link_command *command); /* and that is stored */

/* ERR_CONFLICT: it has ended, or its agent is away. ERR_RATE: its agent reads too slowly. */
must_use int command_input(struct link_command *command, struct str data, bool eof,
                           struct err *err);
must_use int command_signal(struct link_command *command, int number, struct err *err);
must_use int command_resize(struct link_command *command, unsigned rows, unsigned cols,
                            struct err *err);

/* As struct boxes_watch. */
struct links_watch {
    struct list node;
    void (*began)(struct links_watch *watch, struct link_command *command);
};
void links_watch(struct links *links, struct links_watch *watch);
void links_unwatch(struct links_watch *watch);
const char *command_tenant(const struct link_command *command);

/* A reader that holds: see struct box_reader. An agent that is not ours cannot be held back. */
struct link_reader {
    struct pace_reader pace; /* `holds` and `at` are set before it follows */
    bool till_held; /* `more` is called too when the command is held back for one that is away */
    void (*more)(struct link_reader *reader); /* bytes, or the end */
    /* No more follows: the command is forgotten, or the server stops. It is detached already. */
    void (*gone)(struct link_reader *reader, const struct err *why);
};
/* It is held back for a reader that is away. */
bool command_held(const struct link_command *command);
void command_follow(struct link_command *command, struct link_reader *reader);
void command_unfollow(struct link_reader *reader);
/* As box_exec_read; stream 0 is its output, 1 its errors. */
must_use ssize_t command_read(struct link_command *command, unsigned stream, uint64_t from,
                              void *out, size_t len, struct err *err);
void command_range(const struct link_command *command, unsigned stream, uint64_t *begin,
                   uint64_t *end);
