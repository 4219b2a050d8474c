/*
 * Pausing, revoking, checkpoints: how people stop an agent, and how it says where it is.
 *
 * A revocation is a row from its issue to for ever. At most one of an agent is pending; the agent's
 * row names it, and only an acknowledgement, a person's resume or a newer one takes that away.
 */
#include "hub/own.h"

static int set_paused(const struct hub_by *by, const char *name, bool paused, const char *reason,
                      struct err *err)
{
    autoquery struct query *q = db_query(by->db, "UPDATE hub_agent SET paused = $1,"
                                                 " paused_reason = $2 WHERE tenant = $3"
                                                 " AND name = $4");

    query_i64(q, 1, paused);
    query_text(q, 2, reason);
    query_text(q, 3, by->tenant);
    query_text(q, 4, name);
    return query_run(q, err);
}

int hub_pause(const struct hub_by *by, const char *name, const char *reason, struct err *err)
{
    struct hub_standing standing;

    reason = reason ? reason : "";
    if (hub_standing_known(by, name, &standing, err) < 0 || hub_text_check(by, reason, err) < 0 ||
        set_paused(by, name, true, reason, err) < 0)
        return -1;
    return hub_tell(by, "agent_paused", hub_agent_object(by, name), err, "name", name, "reason",
                    reason, NULL);
}

/* ---- revocations ---- */

/* The pending one, if any, ends in `state`. How many there were. */
static int end_pending(const struct hub_by *by, const char *name, const char *state,
                       struct err *err)
{
    autoquery struct query *q =
        db_query(by->db, "UPDATE hub_revocation SET state = $1, acked_ms = $2"
                         " WHERE tenant = $3 AND agent = $4 AND state = 'pending'"
                         " AND id = (SELECT revocation FROM hub_agent WHERE tenant = $3"
                         " AND name = $4)");

    query_text(q, 1, state);
    query_i64(q, 2, strcmp(state, "acknowledged") == 0 ? by->now_ms : 0);
    query_text(q, 3, by->tenant);
    query_text(q, 4, name);
    return query_run(q, err);
}

static int set_revocation(const struct hub_by *by, const char *name, const char *id,
                          struct err *err)
{
    return hub_set(by, "UPDATE hub_agent SET revocation = $1 WHERE tenant = $2 AND name = $3", id,
                   name, err);
}

int hub_resume(const struct hub_by *by, const char *name, struct err *err)
{
    struct hub_standing standing;

    if (hub_standing_known(by, name, &standing, err) < 0 ||
        end_pending(by, name, "withdrawn", err) < 0 || set_revocation(by, name, "", err) < 0 ||
        set_paused(by, name, false, "", err) < 0)
        return -1;
    return hub_tell(by, "agent_resumed", hub_agent_object(by, name), err, "name", name, NULL);
}

static int insert(const struct hub_by *by, const struct hub_revocation *row, int64_t seq,
                  struct err *err)
{
    autoquery struct query *q =
        db_query(by->db, "INSERT INTO hub_revocation (tenant, id, seq, agent, reason, flush, state,"
                         " issued_ms) VALUES ($1, $2, $3, $4, $5, $6, 'pending', $7)");

    query_text(q, 1, by->tenant);
    query_text(q, 2, row->id);
    query_i64(q, 3, seq);
    query_text(q, 4, row->agent);
    query_text(q, 5, row->reason);
    query_i64(q, 6, row->flush_required);
    query_i64(q, 7, row->issued_at);
    return query_run(q, err) < 0 ? -1 : 0;
}

int hub_revoke(const struct hub_by *by, const char *name, const struct hub_reason *wish,
               struct hub_revocation *out, struct err *err)
{
    autobuf struct buf body = { 0 };
    struct json_out json = json_to(&body);
    struct hub_standing standing;

    *out = (struct hub_revocation){ .id = hub_uuid(by),
                                    .agent = name,
                                    .reason = wish->reason ? wish->reason : "",
                                    .flush_required = wish->flush_required,
                                    .state = "pending",
                                    .issued_at = by->now_ms };
    if (hub_standing_known(by, name, &standing, err) < 0 ||
        hub_text_check(by, out->reason, err) < 0)
        return -1;
    json_open(&json, '{');
    json_kv_text(&json, "agent", name);
    json_kv_text(&json, "revocation_id", out->id);
    json_kv_text(&json, "reason", out->reason);
    json_kv_bool(&json, "flush_required", out->flush_required);
    json_close(&json, '}');
    if (hub_tell_json(by, "agent_revoked", hub_agent_object(by, name), &body, err) < 0)
        return -1;
    int64_t seq = event_last_seq(by->db);
    if (end_pending(by, name, "superseded", err) < 0 || insert(by, out, seq, err) < 0 ||
        set_revocation(by, name, out->id, err) < 0)
        return -1;
    return hub_leases_end(by, name, "revoked", err);
}

#define REVOCATION "id, agent, reason, flush, state, issued_ms, acked_ms FROM hub_revocation"

static void take_row(const struct hub_by *by, struct query *q, struct hub_revocation *out)
{
    *out = (struct hub_revocation){ .id = query_col_dup(q, 0, by->arena),
                                    .agent = query_col_dup(q, 1, by->arena),
                                    .reason = query_col_dup(q, 2, by->arena),
                                    .flush_required = query_col_i64(q, 3),
                                    .state = query_col_dup(q, 4, by->arena),
                                    .issued_at = query_col_i64(q, 5),
                                    .acknowledged_at = query_col_i64(q, 6) };
    out->acknowledged = strcmp(out->state, "acknowledged") == 0;
}

int hub_revocation_get(const struct hub_by *by, const char *name, bool *pending,
                       struct hub_revocation *out, struct err *err)
{
    autoquery struct query *q =
        hub_query(by,
                  "SELECT " REVOCATION " WHERE tenant = $1 AND id = (SELECT revocation FROM"
                  " hub_agent WHERE tenant = $1 AND name = $2)",
                  name);

    if (hub_acts(by, name, err) < 0)
        return -1;
    int rc = query_step(q, err);
    if (rc < 0)
        return -1;
    *pending = rc > 0;
    if (rc)
        take_row(by, q, out);
    return 0;
}

/* In *state, when it is one of the agent's. */
static int state_of(const struct hub_by *by, const char *name, const char *id, const char **state,
                    struct err *err)
{
    autoquery struct query *q = hub_query(
        by, "SELECT state FROM hub_revocation WHERE tenant = $1 AND id = $2 AND agent = $3", id,
        name);

    if (hub_row(q, "revocation not found", err) < 0)
        return -1;
    *state = query_col_dup(q, 0, by->arena);
    return 0;
}

int hub_checkpoint_drop(const struct hub_by *by, const char *name, struct err *err)
{
    return hub_change(by, err, "DELETE FROM hub_checkpoint WHERE tenant = $1 AND agent = $2", name);
}

static int acknowledge(const struct hub_by *by, const char *name, struct err *err)
{
    if (end_pending(by, name, "acknowledged", err) < 0 ||
        hub_change(by, err,
                   "UPDATE hub_agent SET revocation = '', tick = 0, stalled = 0"
                   " WHERE tenant = $1 AND name = $2",
                   name) < 0 ||
        hub_checkpoint_drop(by, name, err) < 0)
        return -1;
    return hub_tell(by, "agent_recovered", hub_agent_object(by, name), err, "name", name, NULL) < 0
               ? -1
               : 1;
}

int hub_revocation_ack(const struct hub_by *by, const char *name, const char *id, struct err *err)
{
    struct hub_standing standing;
    const char *state = "pending";

    if (hub_standing_known(by, name, &standing, err) < 0 || hub_acts(by, name, err) < 0)
        return -1;
    if (id && id[0] && state_of(by, name, id, &state, err) < 0)
        return -1;
    if (!standing.revoked || strcmp(state, "pending") != 0)
        return 0;
    return acknowledge(by, name, err);
}

int hub_revocations(const struct hub_by *by, int64_t limit, hub_item_fn *fn, void *ctx,
                    struct err *err)
{
    autoquery struct query *q = db_query(
        by->db, "SELECT id, agent, reason, flush, state, issued_ms, acked_ms FROM"
                " (SELECT * FROM hub_revocation WHERE tenant = $1 ORDER BY seq DESC LIMIT $2) r"
                " ORDER BY seq");
    int rc;

    query_text(q, 1, by->tenant);
    query_i64(q, 2, limit > 0 && limit < PAGE_MAX ? limit : PAGE_MAX);
    while ((rc = query_step(q, err)) > 0) {
        struct hub_revocation one;

        take_row(by, q, &one);
        fn(ctx, &one);
    }
    return rc;
}

/* ---- checkpoints ---- */

static int next_sequence(const struct hub_by *by, const char *name, int64_t *out, struct err *err)
{
    autoquery struct query *q =
        hub_query(by, "SELECT sequence FROM hub_checkpoint WHERE tenant = $1 AND agent = $2", name);

    if (hub_number(q, 0, out, err) < 0)
        return -1;
    ++*out;
    return 0;
}

static int put_checkpoint(const struct hub_by *by, const struct hub_checkpoint *one,
                          struct err *err)
{
    autoquery struct query *q = db_query(
        by->db,
        "INSERT INTO hub_checkpoint (tenant, agent, id, sequence, task, state, rationale, metadata,"
        " at_ms) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)"
        " ON CONFLICT (tenant, agent) DO UPDATE SET id = excluded.id,"
        " sequence = excluded.sequence, task = excluded.task, state = excluded.state,"
        " rationale = excluded.rationale, metadata = excluded.metadata, at_ms = excluded.at_ms");

    query_text(q, 1, by->tenant);
    query_text(q, 2, one->agent_name);
    query_text(q, 3, one->id);
    query_i64(q, 4, one->sequence);
    query_text(q, 5, one->task_id);
    query_text(q, 6, one->state);
    query_text(q, 7, one->rationale);
    query_text(q, 8, one->metadata ? hub_json_text(by, one->metadata) : "{}");
    query_i64(q, 9, one->timestamp);
    if (query_run(q, err) < 0)
        return -1;
    return hub_set(by,
                   "UPDATE hub_agent SET task = $1, checkpoint_seq = checkpoint_seq + 1,"
                   " tick = 0, stalled = 0 WHERE tenant = $2 AND name = $3",
                   one->task_id, one->agent_name, err);
}

int hub_checkpoint_put(const struct hub_by *by, const char *name, struct hub_checkpoint *one,
                       struct err *err)
{
    autobuf struct buf body = { 0 };
    struct json_out json = json_to(&body);

    if (hub_name_check(name, "name", err) < 0 || hub_acts(by, name, err) < 0 ||
        hub_metadata_check(one->metadata, err) < 0 ||
        (one->task_id && hub_shown_check(one->task_id, "task_id", err) < 0) ||
        hub_text_check(by, one->state, err) < 0 || hub_text_check(by, one->rationale, err) < 0 ||
        next_sequence(by, name, &one->sequence, err) < 0)
        return -1;
    one->id = hub_uuid(by);
    one->agent_name = name;
    one->task_id = hub_or_null(one->task_id);
    one->state = one->state ? one->state : "";
    one->rationale = one->rationale ? one->rationale : "";
    one->timestamp = by->now_ms;
    if (put_checkpoint(by, one, err) < 0)
        return -1;
    json_open(&json, '{');
    json_kv_text(&json, "agent", name);
    json_kv_text(&json, "task_id", one->task_id);
    json_kv_text(&json, "state", one->state);
    json_kv_int(&json, "sequence", one->sequence);
    json_close(&json, '}');
    return hub_tell_json(by, "checkpoint_submitted", hub_agent_object(by, name), &body, err);
}

int hub_checkpoint_get(const struct hub_by *by, const char *name, struct hub_checkpoint *out,
                       struct err *err)
{
    autoquery struct query *q =
        hub_query(by,
                  "SELECT id, sequence, task, state, rationale, metadata, at_ms FROM"
                  " hub_checkpoint WHERE tenant = $1 AND agent = $2",
                  name);

    if (hub_row(q, "No checkpoint found", err) < 0)
        return -1;
    *out = (struct hub_checkpoint){ .id = query_col_dup(q, 0, by->arena),
                                    .agent_name = name,
                                    .sequence = query_col_i64(q, 1),
                                    .task_id = query_col_dup(q, 2, by->arena),
                                    .state = query_col_dup(q, 3, by->arena),
                                    .rationale = query_col_dup(q, 4, by->arena),
                                    .metadata = hub_json(by, query_col_str(q, 5)),
                                    .timestamp = query_col_i64(q, 6) };
    return 0;
}
