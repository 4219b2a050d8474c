/*
 * hub - agents that work together, and people who stay in charge: registry, modes, messages,
 * projects, boards, files, leases.
 *
 * What happens is rows: each call below runs inside a job with the caller's db (struct hub_by),
 * most of them inside a write job, where a claim is a look and a change that nothing comes between.
 * What happened is events of the tenant's numbered log, whose object begins with "hub/".
 *
 * Only heartbeats live in memory (live.c, loop thread): they come often and say little. Which
 * agents there are is learned there from the committed events; who is silent or stalled is written
 * down.
 *
 * An error's text is what the hub's clients know: E(400) is ERR_INVALID, 409 ERR_CONFLICT…
 */
#pragma once

#include "base/err.h"
#include "base/limits.h"
#include "model/hub.h"
#include "store/store.h"

struct hub;

enum hub_filter { HUB_FILTER_MESSAGES, HUB_FILTER_ALL, HUB_FILTER_OFF };

/* They stay as they are until the process ends: the writer thread reads them too. */
struct hub_options {
    struct loop *loop;
    struct store *store;
    int64_t message_rate, heartbeat_rate; /* in any 60 seconds, of one agent */
    int64_t stale_ms, keep_ms;
    enum hub_filter filter;
    const char *const *url_allow, *const *url_schemes; /* NULL-terminated; copied */
};

must_use int hub_new(struct hub **out, const struct hub_options *options, struct err *err);
void hub_free(struct hub *hub);
/* Within the first job of a start; then from the loop thread. */
must_use int hub_load(struct hub *hub, struct db *db, struct err *err);
void hub_start(struct hub *hub);
void hub_drain(struct hub *hub);
/* Every committed event, before anybody else hears of it. */
void hub_heard(struct hub *hub, const struct event *event);

/* ---- on whose behalf, within one job ---- */

struct hub_by {
    struct db *db;
    struct arena *arena;
    struct hub *hub;
    const char *tenant;
    const char *agent; /* bound to this name; NULL: a person, or auth = open */
    const char *actor; /* who that is, for records that people make */
    const char
        *mover; /* a person who moves a card without saying for whom; NULL with auth = open */
    bool looks; /* may not mark anything as read */
    int64_t now_ms;
};

#define HUB_HUMAN "human"

/* Called with each thing of a list: what it points to is that list's struct. */
typedef void hub_item_fn(void *ctx, const void *item);

/* May it act as `name`? ERR_FORBIDDEN, or ERR_NOT_FOUND when nobody has that name. */
must_use int hub_acts(const struct hub_by *by, const char *name, struct err *err);
/* Who that is, for records: what they said, or the agent, or human. */
const char *hub_who(const struct hub_by *by, const char *said);
/* A name as field `field` may hold it; a title, which may have slashes. */
must_use int hub_name_check(const char *name, const char *field, struct err *err);
must_use int hub_title_check(const char *title, const char *field, struct err *err);
bool hub_mode_ok(const char *mode);

/* ---- heartbeats: loop thread ---- */

struct hub_beat {
    int64_t tick;
    bool due;
    const char *status;
    const char *revocation, *reason; /* NULL: none is pending; borrowed until the next event */
    bool flush;
};
/* ERR_NOT_FOUND; ERR_RATE with retry_after. */
must_use int hub_heartbeat(struct hub *hub, const char *tenant, const char *name,
                           struct hub_beat *out, struct err *err);
bool hub_known(const struct hub *hub, const char *tenant, const char *name);
/* What heartbeats said is stored, then `done`; at once when there is nothing to store. */
void hub_settle(struct hub *hub, void (*done)(void *ctx), void *ctx);

/* ---- agents ---- */

must_use int hub_register(const struct hub_by *by, const struct hub_register *wish,
                          struct hub_agent *out, struct err *err);
must_use int hub_unregister(const struct hub_by *by, const char *name, struct err *err);
/* `fn` with each, in the order they came; status and type may be NULL. */
must_use int hub_agents(const struct hub_by *by, const char *status, const char *type,
                        hub_item_fn *fn, void *ctx, struct err *err);
must_use int hub_agent_get(const struct hub_by *by, const char *name, struct hub_agent *out,
                           struct err *err);
must_use int hub_set_mode(const struct hub_by *by, const char *name, const char *mode,
                          struct err *err);
/* The names that it concerned, NULL-terminated. */
must_use int hub_set_global_mode(const struct hub_by *by, const char *mode, const char *type,
                                 const char ***out, struct err *err);
must_use int hub_default_mode(const struct hub_by *by, const char **out, struct err *err);
must_use int hub_set_tags(const struct hub_by *by, const char *name,
                          const struct hub_tags_wish *wish, const char ***out, struct err *err);
must_use int hub_profiles(const struct hub_by *by, hub_item_fn *fn, void *ctx, struct err *err);
must_use int hub_match(const struct hub_by *by, const char *tag, const char ***out,
                       struct err *err);

must_use int hub_pause(const struct hub_by *by, const char *name, const char *reason,
                       struct err *err);
must_use int hub_resume(const struct hub_by *by, const char *name, struct err *err);
must_use int hub_revoke(const struct hub_by *by, const char *name, const struct hub_reason *wish,
                        struct hub_revocation *out, struct err *err);
/* False in *pending when none is. */
must_use int hub_revocation_get(const struct hub_by *by, const char *name, bool *pending,
                                struct hub_revocation *out, struct err *err);
/* 1: it was pending; 0: nothing to do. */
must_use int hub_revocation_ack(const struct hub_by *by, const char *name, const char *id,
                                struct err *err);
must_use int hub_revocations(const struct hub_by *by, int64_t limit, hub_item_fn *fn, void *ctx,
                             struct err *err);

must_use int hub_checkpoint_put(const struct hub_by *by, const char *name,
                                struct hub_checkpoint *checkpoint, struct err *err);
must_use int hub_checkpoint_get(const struct hub_by *by, const char *name,
                                struct hub_checkpoint *out, struct err *err);

/* ---- messages ---- */

must_use int hub_message_send(const struct hub_by *by, const struct hub_send *wish,
                              struct hub_message *out, struct err *err);
/* To a channel; *recipients is how many got it. */
must_use int hub_publish(const struct hub_by *by, const char *channel, const struct hub_send *wish,
                         struct hub_message *out, int64_t *recipients, struct err *err);
struct hub_inbox {
    const char *name, *after, *thread; /* after and thread may be NULL */
    bool unread, peek;
    unsigned limit;
};
struct hub_page {
    struct hub_message *items; /* in the arena */
    size_t count;
    bool mark; /* some are to be marked as delivered: hub_inbox_mark */
};
must_use int hub_inbox(const struct hub_by *by, const struct hub_inbox *wish, struct hub_page *out,
                       struct err *err);
must_use int hub_inbox_mark(const struct hub_by *by, const char *name, const struct hub_page *page,
                            struct err *err);
must_use int hub_message_ack(const struct hub_by *by, const char *id, struct err *err);
must_use int hub_history(const struct hub_by *by, const char *a, const char *b, const char *before,
                         unsigned limit, struct hub_page *out, struct err *err);
must_use int hub_thread(const struct hub_by *by, const char *thread, const char *after,
                        unsigned limit, struct hub_page *out, struct err *err);
must_use int hub_graph(const struct hub_by *by, struct json_out *json, struct err *err);
must_use int hub_channel_join(const struct hub_by *by, const char *channel, const char *agent,
                              struct err *err);
must_use int hub_channel_leave(const struct hub_by *by, const char *channel, const char *agent,
                               struct err *err);
must_use int hub_channels(const struct hub_by *by, hub_item_fn *fn, void *ctx, struct err *err);

/* ---- projects ---- */

must_use int hub_project_create(const struct hub_by *by, struct hub_project *project,
                                struct err *err);
/* With its files and limits; ERR_NOT_FOUND. */
must_use int hub_project_get(const struct hub_by *by, const char *id, struct hub_project *out,
                             struct err *err);
must_use int hub_projects(const struct hub_by *by, const char *member, hub_item_fn *fn, void *ctx,
                          struct err *err);
must_use int hub_project_delete(const struct hub_by *by, const char *id, struct err *err);
must_use int hub_project_join(const struct hub_by *by, const char *id, const char *agent,
                              struct err *err);
must_use int hub_wip_set(const struct hub_by *by, const char *id, const struct hub_wip_wish *wish,
                         struct err *err);

/*
 * The id of a project, or of a task of a project, that has this name or title, or whose id begins
 * so (HUB_ID_PREFIX_MIN characters at least). 1: *out is it; 0: none; ERR_CONFLICT: several.
 */
must_use int hub_project_named(const struct hub_by *by, const char *name, const char **out,
                               struct err *err);
must_use int hub_task_named(const struct hub_by *by, const char *project, const char *name,
                            const char **out, struct err *err);

/* ---- tasks ---- */

must_use int hub_task_create(const struct hub_by *by, const char *project,
                             const struct hub_task_wish *wish, bool gate, struct hub_task *out,
                             struct err *err);
struct hub_tasks_wish {
    const char *project, *status, *agent, *assigned_to, *label; /* each may be NULL */
    bool no_blocked;
    bool whole; /* with transitions, reviews and subtasks */
};
must_use int hub_tasks(const struct hub_by *by, const struct hub_tasks_wish *wish, hub_item_fn *fn,
                       void *ctx, struct err *err);
/* One with all of its transitions; ERR_NOT_FOUND. */
must_use int hub_task_get(const struct hub_by *by, const char *project, const char *id,
                          struct hub_task *out, struct err *err);
/* Backlog and ready, those that somebody with `tags` (NULL: anybody) could do. */
must_use int hub_ready(const struct hub_by *by, const char *project, const char *const *tags,
                       hub_item_fn *fn, void *ctx, struct err *err);
/* 0: claimed; 1: proposed, and *out says as what. */
must_use int hub_claim(const struct hub_by *by, const char *project, const char *id,
                       const char *agent, struct hub_proposal *out, struct err *err);
must_use int hub_assign(const struct hub_by *by, const char *project, const char *id,
                        const struct hub_agent_named *wish, struct err *err);
must_use int hub_unassign(const struct hub_by *by, const char *project, const char *id,
                          struct err *err);
/* 0: changed; 1: the move is proposed, and *proposal says as what. */
must_use int hub_patch(const struct hub_by *by, const char *project, const char *id,
                       const struct hub_patch *wish, uint64_t present, struct hub_task *out,
                       struct hub_proposal *proposal, struct err *err);
must_use int hub_reviewer_add(const struct hub_by *by, const char *project, const char *id,
                              const char *name, struct err *err);
must_use int hub_review(const struct hub_by *by, const char *project, const char *id,
                        const struct hub_verdict *wish, bool approve, struct hub_task *out,
                        struct err *err);
/* `fn` with each of its comments after number `after`, oldest first. */
must_use int hub_comments(const struct hub_by *by, const char *project, const char *id,
                          int64_t after, int64_t limit, hub_item_fn *fn, void *ctx,
                          struct err *err);
/* Of `wish` author (may be NULL) and text count. */
must_use int hub_comment_add(const struct hub_by *by, const char *project, const char *id,
                             const struct hub_comment *wish, struct hub_comment *out,
                             struct err *err);
must_use int hub_metrics(const struct hub_by *by, const char *project, int64_t window_s,
                         int64_t bucket_s, bool windowed, struct json_out *json, struct err *err);
must_use int hub_board(const struct hub_by *by, const char *project, const char *lanes,
                       struct json_out *json, struct err *err);

/* ---- proposals: asks of these kinds ---- */

#define HUB_ASK_CLAIM "claim"
#define HUB_ASK_MOVE "move"

static inline bool hub_ask_is(const char *kind)
{
    return strcmp(kind, HUB_ASK_CLAIM) == 0 || strcmp(kind, HUB_ASK_MOVE) == 0;
}

must_use int hub_proposals(const struct hub_by *by, const char *state, const char *agent,
                           const char *project, hub_item_fn *fn, void *ctx, struct err *err);
must_use int hub_proposal_get(const struct hub_by *by, const char *id, struct hub_proposal *out,
                              struct err *err);
/* An ask of our kind was decided within this job: does what was asked for. `ask` is its action. */
must_use int hub_decided(const struct hub_by *by, const char *id, const char *action, bool allow,
                         struct err *err);

/* An ask was not decided in its time; of gate_options. */
struct ask_row;
must_use int hub_expired(struct db *db, const struct ask_row *row, struct err *err);

/* ---- files ---- */

must_use int hub_file_put(const struct hub_by *by, const char *project, struct str filename,
                          const char *uploader, struct str data, struct hub_file *out,
                          struct err *err);
/* version 0: the newest. `data`, when not NULL, gets its bytes (in the arena), checked. */
must_use int hub_file_get(const struct hub_by *by, const char *project, const char *filename,
                          int64_t version, struct hub_file *out, struct str *data, struct err *err);
/* filename NULL: the newest of each; otherwise all versions of one, newest first. */
must_use int hub_files(const struct hub_by *by, const char *project, const char *filename,
                       hub_item_fn *fn, void *ctx, struct err *err);
must_use int hub_file_delete(const struct hub_by *by, const char *project, const char *filename,
                             struct err *err);

/* multipart/form-data: the file and the uploader; borrowed from `body`. */
struct hub_form {
    bool has_file;
    struct str filename, data, uploader;
};
must_use int hub_form_parse(struct str content_type, struct str body, struct hub_form *out,
                            struct err *err);

/* ---- leases ---- */

/* 0: taken; 1: *out is the one that stands in the way. */
must_use int hub_lease_take(const struct hub_by *by, const char *project,
                            const struct hub_lease_wish *wish, struct hub_lease *out,
                            struct err *err);
must_use int hub_lease_renew(const struct hub_by *by, const char *project, const char *id,
                             int64_t ttl_s, struct hub_lease *out, struct err *err);
must_use int hub_lease_release(const struct hub_by *by, const char *project, const char *id,
                               struct err *err);
must_use int hub_leases(const struct hub_by *by, const char *project, const char *agent,
                        const char *path, hub_item_fn *fn, void *ctx, struct err *err);
