/* own - what the files of the agent room share among themselves. */
#pragma once

#include "agent/agent.h"
#include "agent/dial.h"
#include "agent/keeper.h"
#include "agentic/sandbox/v1/agent.pb-c.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/list.h"
#include "base/uuid.h"
#include "loop/loop.h"

#define V1(name) Agentic__Sandbox__V1__##name

struct client {
    const struct agent_options *options;
    struct loop *loop;
    struct dial *dial; /* NULL: not connected */
    bool registered, over, reporting;
    char secret[256], given[256]; /* the one in use, and the other that there may be */
    struct timer retry, heartbeat, grace, shutdown;
    int64_t retry_ms, heartbeat_ms;
    int root, cmds; /* directories */
    struct list commands;
    int exit_status;
    char why[256]; /* of the last failure: said once */
};

/* A command and its keeper. */
struct command {
    struct list node;
    struct client *client;
    char id[UUID_SIZE];
    int dir, files[2];
    struct watch ctl;   /* fd -1: the keeper is not heard (yet) */
    struct timer knock; /* until it is */
    int64_t knocking_ms;
    struct buf input; /* messages that the keeper has not taken: u32 length and bytes, each */
    V1(CommandRequest) * request; /* owned */
    int64_t started_ms;
    uint64_t sent[2], acked[2], told[2]; /* told: to the keeper */
    bool synced; /* the server has said, in this connection, where to go on */
    bool done;   /* its result is there */
    bool result_sent;
    bool killing;
};

/* ---- commands.c ---- */

/* Finds those that an earlier life left. */
must_use int commands_adopt(struct client *client, struct err *err);
void commands_begin(struct client *client, const V1(CommandRequest) * request);
struct command *commands_find(struct client *client, const char *id);
unsigned commands_running(const struct client *client);
void command_give(struct command *command, uint32_t verb, uint32_t number, uint64_t position,
                  struct str data);
/* The server has this much of it. */
void command_acked(struct command *command, const V1(OutputAck) * ack);
/* Sends what can be sent. */
void commands_pump(struct client *client);
/* A new connection: nobody knows yet where to go on. */
void commands_unsync(struct client *client);
void commands_free(struct client *client);

/* ---- task.c ---- */

bool task_is(const V1(CommandRequest) * request);
/* The command that it stands for; *out shares with `request` and the arena. */
must_use int task_command(struct arena *arena, const V1(CommandRequest) * request,
                          V1(CommandRequest) * out, struct err *err);

/* ---- client.c ---- */

void client_say(struct client *client, const V1(AgentMessage) * message);
