/*
 * What an agent says, from one that may be anybody: messages as they come over its connection, each
 * behind two bytes of length. One that registered has a command running, which messages name as
 * "c0". Whatever is said, the connection goes on or is ended with a reason, and what is kept of the
 * command's output never shrinks, and has more than was said only where a gap is told.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "api/rpc_codec.h"
#include "link/links.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define AGENT "fuzz"
#define V1(name) Agentic__Sandbox__V1__##name
#define SAYS(what) AGENTIC__SANDBOX__V1__AGENT_MESSAGE__PAYLOAD_##what

static struct loop *loop;
static struct links *links;
static struct store *store;
static char command_id[UUID_SIZE]; /* "": none yet */

/* ---- the stage, once ---- */

static int load(struct store_job *job, struct db *db, struct err *err)
{
    (void)job;
    return links_load(links, db, err);
}

static void stop(struct store_job *job)
{
    (void)job;
    loop_stop(loop);
}

static void write_job(int (*run)(struct store_job *, struct db *, struct err *))
{
    struct store_job job = { .run = run, .done = stop };

    store_write(store, &job);
    loop_run(loop);
    if (job.rc < 0)
        abort();
}

static int nothing(struct store_job *job, struct db *db, struct err *err)
{
    (void)job, (void)db, (void)err;
    return 0;
}

static char dir[64];

static void clear_stage(void)
{
    DIR *top = opendir(dir);

    for (struct dirent *one; top && (one = readdir(top));)
        unlinkat(dirfd(top), one->d_name, 0);
    if (top)
        closedir(top);
    rmdir(dir);
}

static void build_stage(void)
{
    static char path[96];
    struct store_options options = { .path = path };
    struct links_options wish = { 0 };
    struct err err;

    snprintf(dir, sizeof(dir), "/tmp/atoll-fuzz-XXXXXX");
    if (!mkdtemp(dir) || atexit(clear_stage) != 0)
        abort();
    snprintf(path, sizeof(path), "%s/db", dir);
    if (loop_new(&loop, &err) < 0 || store_open(&store, loop, &options, &err) < 0)
        abort();
    wish.loop = loop;
    wish.store = store;
    wish.spool_dir = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    links = links_new(&wish);
    write_job(load);
}

/* ---- one connection ---- */

static bool hear_us(struct link_peer *peer, const ProtobufCMessage *bytes)
{
    const V1(ManagementMessage) *message = (const V1(ManagementMessage) *)(const void *)bytes;

    (void)peer;
    if (message->payload_case == AGENTIC__SANDBOX__V1__MANAGEMENT_MESSAGE__PAYLOAD_COMMAND)
        snprintf(command_id, sizeof(command_id), "%s", message->command->command_id);
    return true;
}

static void ended(struct link_peer *peer, const struct err *why)
{
    if (peer->agent || !why->code)
        abort();
}

static void started(struct link_op *op, const struct err *err)
{
    (void)op, (void)err;
    loop_stop(loop);
}

/* A command for it, once it can have one. True: just now. */
static bool run_command(void)
{
    static struct link_op op = { .tenant = "default", .by = "fuzz", .done = started };
    struct command_wish wish = { .command = "x", .pty_cols = 80, .pty_rows = 24 };
    struct linked *agent;
    struct err err;

    if (command_id[0] || links_find(links, reach_all("default"), AGENT, &agent, &err) < 0 ||
        linked_run(agent, &wish, &op, &err) < 0)
        return false;
    loop_run(loop);
    return true;
}

static void name_command(char **id)
{
    if (strcmp(*id, "c0") == 0)
        *id = command_id;
}

static size_t aim(V1(AgentMessage) * message)
{
    switch (message->payload_case) {
    case SAYS(STDOUT):
        name_command(&message->stdout->stream_id);
        return message->stdout->data.len;
    case SAYS(STDERR):
        name_command(&message->stderr->stream_id);
        return message->stderr->data.len;
    case SAYS(LOG):
        name_command(&message->log->stream_id);
        break;
    case SAYS(COMMAND_RESULT):
        name_command(&message->command_result->command_id);
        break;
    case SAYS(SESSION_REPORT):
        for (size_t i = 0; i < message->session_report->n_sessions; i++)
            name_command(&message->session_report->sessions[i]->command_id);
        break;
    default:
        break;
    }
    return 0;
}

static void check(size_t said, bool fresh)
{
    static uint64_t last[2];
    uint64_t begin, end;
    struct command_view view;
    struct link_command *command;
    struct linked *agent;
    struct err err;

    if (!command_id[0] || links_find(links, reach_all("default"), AGENT, &agent, &err) < 0 ||
        linked_command(agent, command_id, &command, &err) < 0)
        return;
    command_view(command, &view);
    for (unsigned i = 0; i < 2; i++) {
        command_range(command, i, &begin, &end);
        if (fresh ? end != 0 : begin > end || end < last[i] || (!view.gap && end - last[i] > said))
            abort();
        last[i] = end;
    }
}

/* False: the connection is over. */
static bool say(struct link_peer *peer, struct str bytes)
{
    autoarena struct arena arena = { 0 };
    ProtobufCMessage *message;
    struct err err = { 0 };

    if (rpc_decode(&agentic__sandbox__v1__agent_message__descriptor, bytes, &arena, &message,
                   &err) < 0)
        return false;
    size_t said = aim((V1(AgentMessage) *)message);
    if (links_hear(peer, (const V1(AgentMessage) *)message, &err) < 0) {
        if (!err.code)
            abort();
        return false;
    }
    check(said, run_command());
    return peer->agent;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct link_peer peer;
    struct secret_row row = { .name = AGENT, .tenant = "default", .agent = true, .version = 1 };
    struct str secret = STR("secret"), rest = { (const char *)data, size };
    struct err err;

    if (!links)
        build_stage();
    sha256(secret.p, secret.n, row.hash);
    links_secret(links, &row);
    peer = (struct link_peer){ .send = hear_us, .end = ended };
    if (links_open(links, STR(AGENT), secret, &peer, &err) < 0)
        abort();
    while (rest.n > 2) {
        size_t len = (unsigned char)rest.p[0] << 8 | (unsigned char)rest.p[1];
        struct str one = { rest.p + 2, MIN(len, rest.n - 2) };

        if (!say(&peer, one))
            break;
        rest = str_from(rest, 2 + one.n);
    }
    links_close(&peer);
    links_secret_gone(links, AGENT);
    command_id[0] = 0;
    write_job(nothing);
    return 0;
}
