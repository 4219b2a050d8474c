/*
 * hub - agents, messages, projects, tasks, files and leases as the hub's clients see them, and what
 * they may ask for. Names of members are names on the wire; times are wall ms.
 */
#pragma once

#include "model/field.h"

/* ---- agents ---- */

struct hub_register {
    const char *name, *type, *agent_type, *autonomy_mode;
    const struct json *metadata;
    const char **capabilities;
};
struct hub_agent {
    const char *id, *name, *type, *status, *autonomy_mode, *current_task_id, *description,
        *paused_reason;
    const char **capabilities;
    int64_t registered_at, last_heartbeat, checkpoint_sequence, unacknowledged;
    bool pending_revocation;
};
struct hub_mode_wish {
    const char *mode, *agent_type;
};
struct hub_tags_wish {
    const struct json *tags;
    const char *description;
};
struct hub_profile {
    const char *agent, *description;
    const char **tags;
};
struct hub_reason {
    const char *reason;
    bool flush_required;
};
struct hub_checkpoint {
    const char *id, *agent_name, *task_id, *state, *rationale;
    const struct json *metadata;
    int64_t sequence, timestamp;
};
struct hub_revocation {
    const char *id, *agent, *reason, *state;
    bool flush_required, acknowledged;
    int64_t issued_at, acknowledged_at;
};
struct hub_ack {
    const char *revocation_id;
};
struct hub_agent_named {
    const char *agent, *assigned_by;
};

extern const struct field hub_register_fields[], hub_registered_fields[], hub_agent_fields[];
extern const struct field hub_mode_fields[], hub_global_mode_fields[], hub_tags_fields[];
extern const struct field hub_profile_fields[], hub_reason_fields[], hub_revoke_fields[];
extern const struct field hub_checkpoint_wish_fields[], hub_checkpoint_fields[];
extern const struct field hub_revocation_fields[], hub_ack_fields[];
extern const struct field hub_agent_named_fields[], hub_assign_fields[];

/* ---- messages ---- */

struct hub_attachment {
    const char *project, *filename;
    int64_t version;
};
struct hub_send {
    const char *from, *to, *content, *type, *thread, *reply_to;
    struct field_list attachments; /* hub_attachment */
};
struct hub_message {
    const char *id, *from, *to, *content, *type, *channel, *thread, *reply_to;
    const struct json *attachments;
    int64_t timestamp, seq;
    bool delivered, acknowledged;
};
struct hub_channel {
    const char *name;
    const char **members;
    int64_t created_at;
};

extern const struct field hub_send_fields[], hub_publish_fields[], hub_message_fields[];
extern const struct field hub_channel_fields[];

/* ---- projects and tasks ---- */

struct hub_project {
    const char *id, *name, *creator;
    const char **members;
    const struct json *files, *wip_limits;
    int64_t created_at;
};
struct hub_wip_wish {
    const char *status;
    const struct json *limit;
};
struct hub_transition {
    const char *from, *to, *by, *note;
    int64_t at;
};
struct hub_review {
    const char *reviewer, *verdict, *note;
    int64_t at;
    bool counts;
};
struct hub_task {
    const char *id, *project_id, *title, *description, *status, *priority, *assigned_to,
        *claimed_by, *blocked_reason, *parent_task_id, *created_by;
    const char **required_capabilities, **labels, **subtasks, **reviewers;
    const struct json *blocked_by;
    int64_t created_at, updated_at, started_at, review_started_at, completed_at, required_reviewers,
        approvals, approvals_required;
    struct field_list transitions, reviews;
    /* not shown */
    int64_t seq, rank, gate, round, moves;
    const char *blocked_from;
};
struct hub_task_wish {
    const char *title, *description, *assigned_to, *priority, *created_by, *parent_task_id;
    const char **required_capabilities, **labels;
    int64_t required_reviewers;
};
struct hub_patch {
    const char *status, *agent, *blocked_reason, *note, *title, *description, *priority;
    const char **labels;
    const struct json *blocked_by;
};
enum { /* bits of `present`, in the order of hub_patch_fields */
       HUB_PATCH_TITLE = 1 << 5,
       HUB_PATCH_DESCRIPTION = 1 << 6,
       HUB_PATCH_PRIORITY = 1 << 7,
       HUB_PATCH_LABELS = 1 << 8
};
struct hub_verdict {
    const char *reviewer, *note;
};
struct hub_comment {
    int64_t number, at;
    const char *author, *text;
};
struct hub_proposal {
    const char *id, *state, *agent, *project, *task_id, *title, *by, *note;
    const char *status; /* the column to move to; NULL: a claim */
    int64_t created_at, expires_at, decided_at;
};

extern const struct field hub_project_wish_fields[], hub_project_fields[], hub_project_one_fields[];
extern const struct field hub_wip_fields[], hub_task_wish_fields[], hub_task_fields[];
extern const struct field hub_task_short_fields[], hub_ready_fields[], hub_patch_fields[];
extern const struct field hub_patched_fields[], hub_created_fields[], hub_transition_fields[];
extern const struct field hub_review_fields[], hub_verdict_fields[], hub_proposal_fields[];
extern const struct field hub_note_fields[], hub_comment_wish_fields[], hub_comment_fields[];

/* ---- files and leases ---- */

struct hub_file {
    const char *project, *filename, *checksum, *uploader;
    int64_t size, version, updated_at;
};
struct hub_lease_wish {
    const char *agent, *mode, *reason;
    const char **paths;
    int64_t ttl_seconds;
};
struct hub_lease {
    const char *id, *project, *agent, *mode, *reason;
    const char **paths;
    int64_t created_at, expires_at;
};

extern const struct field hub_file_fields[], hub_uploaded_fields[];
extern const struct field hub_lease_wish_fields[], hub_renew_fields[], hub_lease_fields[];
