/*
 * Rows of agents and commands. A job carries copies of all it writes, because it runs on the writer
 * thread; what it is about is found again by name when it comes back, because that may have gone.
 */
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "link/own.h"

/* The column `pty` is two bits. */
#define HAS_PTY 1
#define IN_BACKGROUND 2

struct note {
    struct store_job job;
    struct arena arena;
    struct links *links;
    const char *tenant, *type, *object; /* of its event; type NULL: none */
    struct str body;
    char agent[SECRET_NAME_MAX + 1], command[UUID_SIZE];
    /* of the row */
    const char *instance_id, *line, *session_name, *by, *state, *error;
    bool pty, gap, background;
    int64_t exit_code, duration_ms, at_ms;
    unsigned char hash[SHA256_SIZE];
    struct link_op *op;
};

static struct note *note_new(const struct linked *agent)
{
    struct note *note = xnew(struct note);

    note->links = agent->links;
    note->tenant = arena_strdup(&note->arena, agent->tenant);
    snprintf(note->agent, sizeof(note->agent), "%s", agent->id);
    return note;
}

static void note_free(struct note *note)
{
    arena_free(&note->arena);
    free(note);
}

static void note_done(struct store_job *job)
{
    if (job->rc < 0)
        log_warn("a note about a linked agent was not kept", kv_str("error", job->err.msg));
    note_free(container_of(job, struct note, job));
}

static int put_event(struct note *note, struct db *db, struct err *err)
{
    return event_add(db, note->tenant, note->type, note->object, note->body, err);
}

/* ---- events ---- */

static int event_run(struct store_job *job, struct db *db, struct err *err)
{
    return put_event(container_of(job, struct note, job), db, err);
}

static void set_event(struct note *note, const char *type, struct str body)
{
    note->type = type;
    note->object = arena_printf(&note->arena, "agent/%s", note->agent);
    note->body = arena_str(&note->arena, body);
}

void links_event(const struct linked *agent, const char *type, struct str body)
{
    struct note *note = note_new(agent);

    set_event(note, type, body);
    note->job = (struct store_job){ .run = event_run, .done = note_done };
    store_write(agent->links->options.store, &note->job);
}

void links_event_count(const struct linked *agent, const char *type, const char *key, int64_t count)
{
    autobuf struct buf body = { 0 };
    struct json_out json = json_to(&body);

    json_open(&json, '{');
    json_kv_int(&json, key, count);
    json_close(&json, '}');
    links_event(agent, type, buf_view(&body));
}

/* ---- the agent ---- */

static int seen_run(struct store_job *job, struct db *db, struct err *err)
{
    struct note *note = container_of(job, struct note, job);
    autoquery struct query *q =
        db_query(db, "INSERT INTO link_agent (id, tenant, instance_id, seen_ms)"
                     " VALUES ($1, $2, $3, $4) ON CONFLICT (id) DO UPDATE SET"
                     " tenant = excluded.tenant, instance_id = excluded.instance_id,"
                     " seen_ms = excluded.seen_ms");

    query_text(q, 1, note->agent);
    query_text(q, 2, note->tenant);
    query_text(q, 3, note->instance_id);
    query_i64(q, 4, note->at_ms);
    return query_run(q, err) < 0 ? -1 : 0;
}

void links_seen(const struct linked *agent)
{
    struct note *note = note_new(agent);

    note->instance_id = arena_strdup(&note->arena, agent->instance_id);
    note->at_ms = agent->heard_ms;
    note->job = (struct store_job){ .run = seen_run, .done = note_done };
    store_write(agent->links->options.store, &note->job);
}

static int settle_run(struct store_job *job, struct db *db, struct err *err)
{
    struct note *note = container_of(job, struct note, job);

    return agent_secret_settle(db, note->agent, note->hash, err);
}

void link_settle_secret(const struct linked *agent)
{
    struct note *note = note_new(agent);

    memcpy(note->hash, agent->hash, sizeof(note->hash));
    note->job = (struct store_job){ .run = settle_run, .done = note_done };
    store_write(agent->links->options.store, &note->job);
}

/* ---- commands ---- */

static struct note *note_of(const struct link_command *command)
{
    struct note *note = note_new(command->agent);

    snprintf(note->command, sizeof(note->command), "%s", command->id);
    note->line = arena_strdup(&note->arena, command->line);
    note->session_name = arena_strdup(&note->arena, command->session_name);
    note->by = arena_strdup(&note->arena, command->by);
    note->error = arena_strdup(&note->arena, command->error ? command->error : "");
    note->pty = command->pty;
    note->background = command->background;
    note->gap = command->gap;
    note->exit_code = command->exit_code;
    note->duration_ms = command->duration_ms;
    return note;
}

static struct link_command *command_again(const struct note *note)
{
    struct linked *agent = linked_get(note->links, str_of(note->agent));

    return agent ? command_of(agent, note->command) : NULL;
}

static void set_command_event(struct note *note, const char *type, bool ended)
{
    autobuf struct buf body = { 0 };
    struct json_out json = json_to(&body);

    json_open(&json, '{');
    json_kv_text(&json, "command_id", note->command);
    json_kv_text(&json, "command", note->line);
    if (ended) {
        json_kv_text(&json, "state", note->state);
        json_kv_int(&json, "exit_status", note->exit_code);
        json_kv_int(&json, "duration_ms", note->duration_ms);
    }
    json_close(&json, '}');
    set_event(note, type, buf_view(&body));
}

static int new_run(struct store_job *job, struct db *db, struct err *err)
{
    struct note *note = container_of(job, struct note, job);
    autoquery struct query *q =
        db_query(db, "INSERT INTO link_command (id, agent, tenant, command, session_name, pty,"
                     " state, by, started_ms) VALUES ($1, $2, $3, $4, $5, $6, 'running', $7, $8)");

    query_text(q, 1, note->command);
    query_text(q, 2, note->agent);
    query_text(q, 3, note->tenant);
    query_text(q, 4, note->line);
    query_text(q, 5, note->session_name);
    query_i64(q, 6, (note->pty ? HAS_PTY : 0) | (note->background ? IN_BACKGROUND : 0));
    query_text(q, 7, note->by);
    query_i64(q, 8, note->at_ms);
    if (query_run(q, err) < 0 || put_event(note, db, err) < 0)
        return err_wrap(err, "keep a command");
    return note->op && note->op->record ? note->op->record(note->op, db, err) : 0;
}

static void new_done(struct store_job *job)
{
    struct note *note = container_of(job, struct note, job);
    struct link_command *command = command_again(note);
    struct link_op *op = note->op;
    struct err err = job->err;

    if (command && job->rc < 0) {
        if (op)
            op->command = NULL;
        command_free(command);
    } else if (command) {
        command_started(command);
    }
    if (op)
        op->done(op, job->rc < 0 ? &err : NULL);
    command = job->rc < 0 ? NULL : command_again(note); /* `done` may have ended it */
    if (command)
        command_tell_begun(command);
    note_free(note);
}

void link_store_new(struct link_command *command, struct link_op *op)
{
    struct note *note = note_of(command);

    note->op = op;
    note->at_ms = command->started_ms;
    set_command_event(note, command->pty ? "agent.pty.created" : "agent.command.started", false);
    if (op && op->prepare)
        op->prepare(op);
    note->job = (struct store_job){ .run = new_run, .done = new_done };
    store_write(command->agent->links->options.store, &note->job);
}

static int end_run(struct store_job *job, struct db *db, struct err *err)
{
    struct note *note = container_of(job, struct note, job);
    autoquery struct query *q =
        db_query(db, "UPDATE link_command SET state = $1, exit_code = $2, error = $3, gap = $4,"
                     " duration_ms = $5, ended_ms = $6 WHERE id = $7");

    query_text(q, 1, note->state);
    query_i64(q, 2, note->exit_code);
    query_text(q, 3, note->error);
    query_i64(q, 4, note->gap);
    query_i64(q, 5, note->duration_ms);
    query_i64(q, 6, note->at_ms);
    query_text(q, 7, note->command);
    if (query_run(q, err) < 0)
        return err_wrap(err, "keep the end of a command");
    return put_event(note, db, err);
}

static void end_done(struct store_job *job)
{
    struct note *note = container_of(job, struct note, job);
    struct link_command *command = command_again(note);

    if (job->rc < 0) /* not acknowledged: an agent of ours says it again when it comes back */
        log_warn("the end of a linked command was not kept", kv_str("command", note->command),
                 kv_str("error", job->err.msg));
    if (command && job->rc < 0)
        command->ending = false;
    else if (command)
        command_stored(command);
    note_free(note);
}

void link_store_end(struct link_command *command)
{
    struct note *note = note_of(command);

    note->state = command_state_name(command->end_state);
    note->at_ms = command->ended_ms;
    set_command_event(note, command->pty ? "agent.pty.closed" : "agent.command.completed", true);
    note->job = (struct store_job){ .run = end_run, .done = end_done };
    store_write(command->agent->links->options.store, &note->job);
}

static int forget_run(struct store_job *job, struct db *db, struct err *err)
{
    autoquery struct query *q = db_query(db, "DELETE FROM link_command WHERE id = $1");

    query_text(q, 1, container_of(job, struct note, job)->command);
    return query_run(q, err) < 0 ? -1 : 0;
}

void link_store_forget(const struct link_command *command)
{
    struct note *note = note_new(command->agent);

    snprintf(note->command, sizeof(note->command), "%s", command->id);
    note->job = (struct store_job){ .run = forget_run, .done = note_done };
    store_write(command->agent->links->options.store, &note->job);
}

/* ---- reading them all ---- */

static void load_secret(void *ctx, const struct secret_row *row)
{
    links_secret(ctx, row);
}

static int load_agents(struct links *links, struct db *db, struct err *err)
{
    autoquery struct query *q = db_query(db, "SELECT id, instance_id, seen_ms FROM link_agent");
    int rc;

    while ((rc = query_step(q, err)) > 0) {
        struct linked *agent = linked_get(links, query_col_str(q, 0));
        struct str instance = query_col_str(q, 1);

        if (!agent)
            continue; /* its secret was deleted */
        if (instance.n < sizeof(agent->instance_id))
            memcpy(agent->instance_id, instance.p, instance.n);
        agent->heard_ms = query_col_i64(q, 2);
    }
    return rc;
}

static int load_access(struct links *links, struct db *db, struct err *err)
{
    autoquery struct query *q =
        db_query(db, "SELECT name, access FROM secret WHERE kind = 'agent' AND access <> ''");
    int rc;

    while ((rc = query_step(q, err)) > 0) {
        autoarena struct arena arena = { 0 };
        struct access access;

        if (access_read(&arena, query_col_str(q, 1), &access, err) < 0)
            return -1;
        links_give(links, query_col_dup(q, 0, &arena), &access);
    }
    return rc;
}

int link_access_write(struct db *db, const char *tenant, const char *id, struct access *access,
                      uint64_t present, struct arena *arena, struct err *err)
{
    autoquery struct query *q = db_query(
        db, "SELECT access FROM secret WHERE kind = 'agent' AND tenant = $1 AND name = $2");
    autoquery struct query *put =
        db_query(db, "UPDATE secret SET access = $1 WHERE kind = 'agent' AND name = $2");
    struct access was;

    query_text(q, 1, tenant);
    query_text(q, 2, id);
    int rc = query_step(q, err);
    if (rc == 0)
        return err_set(err, ERR_NOT_FOUND, "Agent '%.63s' not found", id);
    if (rc < 0 || access_read(arena, query_col_str(q, 0), &was, err) < 0)
        return -1;
    access_merge(&was, access, present, 0);
    *access = was;
    query_text(put, 1, access_text(arena, access));
    query_text(put, 2, id);
    return query_run(put, err) < 0 ? -1 : 0;
}

static int load_command(struct links *links, struct query *q, struct err *err)
{
    autoarena struct arena arena = { 0 };
    struct linked *agent = linked_get(links, query_col_str(q, 1));
    struct str id = query_col_str(q, 0);

    if (!uuid_shaped(id))
        return err_set(err, ERR_INTERNAL, "a command's row is not readable");
    if (!agent) /* its secret was deleted: what it ran is still to be read */
        agent = linked_new(links, query_col_dup(q, 1, &arena), query_col_dup(q, 2, &arena));
    struct link_command *command = command_new(agent, arena_memdup0(&arena, id.p, id.n));
    struct str state = query_col_str(q, 6);
    command->line = xstrdup(query_col_dup(q, 3, &arena));
    command->session_name = xstrdup(query_col_dup(q, 4, &arena));
    command->pty = query_col_i64(q, 5) & HAS_PTY;
    command->background = query_col_i64(q, 5) & IN_BACKGROUND;
    command->state = str_is(state, "running") ? COMMAND_RUNNING
                     : str_is(state, "lost")  ? COMMAND_LOST
                                              : COMMAND_EXITED;
    command->exit_code = query_col_i64(q, 7);
    struct str error = query_col_str(q, 8);
    command->error = error.n ? xmemdup0(error.p, error.n) : NULL;
    command->gap = query_col_i64(q, 9) != 0;
    command->duration_ms = query_col_i64(q, 10);
    snprintf(command->by, sizeof(command->by), "%s", query_col_dup(q, 11, &arena));
    command->started_ms = query_col_i64(q, 12);
    command->ended_ms = query_col_i64(q, 13);
    command->stored = true;
    return command_load(command, err);
}

int link_rows_load(struct links *links, struct db *db, struct err *err)
{
    int rc;

    if (secret_each(db, NULL, load_secret, links, err) < 0 || load_agents(links, db, err) < 0 ||
        load_access(links, db, err) < 0)
        return err_wrap(err, "linked agents");
    autoquery struct query *q = db_query(
        db, "SELECT id, agent, tenant, command, session_name, pty, state, exit_code, error,"
            " gap, duration_ms, by, started_ms, ended_ms FROM link_command"
            " ORDER BY started_ms, id");
    while ((rc = query_step(q, err)) > 0)
        if (load_command(links, q, err) < 0)
            return err_wrap(err, "commands of linked agents");
    return rc;
}
