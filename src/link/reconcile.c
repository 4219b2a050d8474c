/*
 * After a registration the agent says what runs there, and we say what of it is to go on.
 *
 * What we know goes on; with the positions that we have, an agent of ours says the rest from there.
 * What we do not know is taken in: it runs, so somebody wanted it, and a server whose store was set
 * back must not kill work for that. Killed is what we know to have ended: a command that was given
 * up while its agent was away. What we thought to be running and the agent does not name is lost;
 * an agent of ours names commands until we have said that we keep their end.
 */
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "link/own.h"

struct verdict {
    char *keep[LINK_REPORT_MAX], *kill[LINK_REPORT_MAX];
    size_t keeps, kills;
};

static struct link_command *take_in(struct linked *agent, const V1(ActiveSession) * session)
{
    struct link_command *command = command_new(agent, session->command_id);

    command->line = xmemdup0(session->command, strnlen(session->command, 4096));
    command->session_name = xmemdup0(session->session_name, strnlen(session->session_name, 63));
    command->background =
        session->session_type == AGENTIC__SANDBOX__V1__SESSION_TYPE__SESSION_TYPE_BACKGROUND;
    command->pty = session->is_pty;
    command->started_ms = clock_wall_ms();
    snprintf(command->by, sizeof(command->by), "agent");
    link_store_new(command, NULL);
    return command;
}

static unsigned running(const struct linked *agent)
{
    unsigned count = 0;

    list_each (pos, &agent->commands)
        count += !command_ended(list_entry(pos, struct link_command, node));
    return count;
}

static void judge(struct linked *agent, const V1(ActiveSession) * session, struct verdict *verdict)
{
    struct link_command *command = command_of(agent, session->command_id);

    if (!uuid_shaped(str_of(session->command_id)))
        return; /* not ours to judge: it names none of our files */
    if (!command && running(agent) < LINK_RUNNING_MAX)
        command = take_in(agent, session);
    if (!command)
        return;
    command->kept = true;
    if (command_ended(command))
        verdict->kill[verdict->kills++] = command->id;
    else
        verdict->keep[verdict->keeps++] = command->id;
    command_ack(command);
}

static void drop_unnamed(struct linked *agent)
{
    list_each_safe (pos, &agent->commands) {
        struct link_command *command = list_entry(pos, struct link_command, node);

        /* One whose row is just being written was asked for after the agent spoke. */
        if (!command->kept && command->stored)
            command_end(command, COMMAND_LOST, -1, "Agent restarted without the command", 0);
        command->kept = false;
    }
}

static void each_event(const struct linked *agent, const char *type, char *const *ids, size_t count,
                       const char *reason)
{
    for (size_t i = 0; i < count; i++) {
        autobuf struct buf body = { 0 };
        struct json_out json = json_to(&body);

        if (!uuid_shaped(str_of(ids[i])))
            continue;
        json_open(&json, '{');
        json_kv_text(&json, "session_id", ids[i]);
        if (reason)
            json_kv_text(&json, "reason", reason);
        json_close(&json, '}');
        links_event(agent, type, buf_view(&body));
    }
}

static void counts_event(const struct linked *agent, const char *type, size_t keeps, size_t kills,
                         ssize_t failed)
{
    autobuf struct buf body = { 0 };
    struct json_out json = json_to(&body);

    json_open(&json, '{');
    json_kv_int(&json, "keep_count", (int64_t)keeps);
    json_kv_int(&json, "kill_count", (int64_t)kills);
    if (failed >= 0)
        json_kv_int(&json, "failed_count", failed);
    json_close(&json, '}');
    links_event(agent, type, buf_view(&body));
}

int reconcile_report(struct link_peer *peer, const V1(SessionReport) * report, struct err *err)
{
    struct linked *agent = peer->agent;
    struct verdict verdict = { 0 };
    V1(SessionReconcile) decision = AGENTIC__SANDBOX__V1__SESSION_RECONCILE__INIT;
    V1(ManagementMessage) message = AGENTIC__SANDBOX__V1__MANAGEMENT_MESSAGE__INIT;

    if (report->n_sessions > LINK_REPORT_MAX)
        return err_field(err, "sessions", "more than %d", LINK_REPORT_MAX);
    if (peer->reported) /* once for each registration: later ones would be about newer commands */
        return 0;
    peer->reported = true;
    links_event_count(agent, "session.report_received", "session_count",
                      (int64_t)report->n_sessions);
    for (size_t i = 0; i < report->n_sessions; i++)
        judge(agent, report->sessions[i], &verdict);
    drop_unnamed(agent);
    counts_event(agent, "session.reconcile_started", verdict.keeps, verdict.kills, -1);
    decision.n_keep_session_ids = verdict.keeps;
    decision.keep_session_ids = verdict.keep;
    decision.n_kill_session_ids = verdict.kills;
    decision.kill_session_ids = verdict.kill;
    decision.grace_period_seconds = LINK_GRACE_S;
    message.payload_case = AGENTIC__SANDBOX__V1__MANAGEMENT_MESSAGE__PAYLOAD_SESSION_RECONCILE;
    message.session_reconcile = &decision;
    links_tell(agent, &message);
    return 0;
}

void reconcile_acked(struct link_peer *peer, const V1(SessionReconcileAck) * ack)
{
    struct linked *agent = peer->agent;

    if (!peer->reported || peer->settled || ack->n_killed_session_ids > LINK_REPORT_MAX ||
        ack->n_kept_session_ids > LINK_REPORT_MAX || ack->n_failed_to_kill > LINK_REPORT_MAX)
        return;
    peer->settled = true;
    each_event(agent, "session.killed", ack->killed_session_ids, ack->n_killed_session_ids, NULL);
    each_event(agent, "session.preserved", ack->kept_session_ids, ack->n_kept_session_ids, NULL);
    each_event(agent, "session.reconcile_failed", ack->failed_to_kill, ack->n_failed_to_kill,
               "it did not end");
    counts_event(agent, "session.reconcile_complete", ack->n_kept_session_ids,
                 ack->n_killed_session_ids, (ssize_t)ack->n_failed_to_kill);
}
