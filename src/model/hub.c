/*
 * See hub.h. Where the words differ from those of other tables they are the words of clients that
 * were there before: naive times, plain arrays, names instead of ids.
 */
#include "model/hub.h"

#include "base/limits.h"

#define TEXT(struct_, member_, ...) FIELD(struct_, member_, F_STRING, F_READONLY, __VA_ARGS__)
#define NUM(struct_, member_, ...) FIELD(struct_, member_, F_INT, F_READONLY, __VA_ARGS__)
#define WHEN(struct_, member_, ...) FIELD(struct_, member_, F_NAIVE, F_READONLY, __VA_ARGS__)
#define FLAG(struct_, member_, ...) FIELD(struct_, member_, F_BOOL, F_READONLY, __VA_ARGS__)
#define MANY(struct_, member_, ...) FIELD(struct_, member_, F_STRINGS, F_READONLY, __VA_ARGS__)
#define NAME(struct_, member_, flags_, ...)                                                        \
    FIELD(struct_, member_, F_STRING, flags_, .max = HUB_NAME_MAX, __VA_ARGS__)
#define NOTE(struct_, member_, ...)                                                                \
    FIELD(struct_, member_, F_STRING, 0, .max = HUB_NOTE_MAX, __VA_ARGS__)
#define TAGS(struct_, member_, ...)                                                                \
    FIELD(struct_, member_, F_STRINGS, 0, .max = HUB_TAGS_MAX, .each_max = HUB_TAG_MAX, __VA_ARGS__)

/* ---- agents ---- */

const struct field hub_register_fields[] = {
    NAME(hub_register, name, F_REQUIRED, .help = "Who it is"),
    NAME(hub_register, type, 0, .help = "What kind of agent; unknown unless said"),
    NAME(hub_register, agent_type, 0, .help = "The same as type"),
    FIELD(hub_register, metadata, F_JSON, 0, .help = "An object to be kept"),
    NAME(hub_register, autonomy_mode, 0, .help = "fully_autonomous, advisory or manual"),
    TAGS(hub_register, capabilities, .help = "What it can do"),
    { 0 },
};

const struct field hub_registered_fields[] = {
    TEXT(hub_agent, id, .help = "Its name"),
    TEXT(hub_agent, type, .help = "What kind of agent"),
    WHEN(hub_agent, registered_at, .help = "When it registered"),
    TEXT(hub_agent, autonomy_mode, .help = "What it may do by itself"),
    MANY(hub_agent, capabilities, .help = "As they were sent"),
    TEXT(hub_agent, status, .help = "Whether it is paused or revoked"),
    { 0 },
};

const struct field hub_agent_fields[] = {
    TEXT(hub_agent, name, .help = "Who it is"),
    TEXT(hub_agent, type, .help = "What kind of agent"),
    TEXT(hub_agent, status, .help = "online, busy (paused), offline, stalled or revoked"),
    WHEN(hub_agent, registered_at, .help = "When it registered"),
    WHEN(hub_agent, last_heartbeat, .help = "When it was heard"),
    TEXT(hub_agent, autonomy_mode, .help = "What it may do by itself"),
    MANY(hub_agent, capabilities, .help = "What it can do, as it was said"),
    TEXT(hub_agent, current_task_id, .help = "What it works on"),
    NUM(hub_agent, checkpoint_sequence, .help = "Checkpoints since it registered"),
    TEXT(hub_agent, description, .help = "What it said about its capabilities"),
    TEXT(hub_agent, paused_reason, .help = "Why it was paused"),
    NUM(hub_agent, unacknowledged, .help = "Messages to it that it has not acknowledged"),
    FLAG(hub_agent, pending_revocation, .help = "Whether a revocation waits to be acknowledged"),
    { 0 },
};

const struct field hub_mode_fields[] = {
    NAME(hub_mode_wish, mode, 0, .help = "fully_autonomous (unless said), advisory or manual"),
    { 0 },
};

const struct field hub_global_mode_fields[] = {
    NAME(hub_mode_wish, mode, 0, .help = "fully_autonomous (unless said), advisory or manual"),
    NAME(hub_mode_wish, agent_type, 0, .help = "Only agents of this type"),
    { 0 },
};

const struct field hub_tags_fields[] = {
    FIELD(hub_tags_wish, tags, F_JSON, 0, .help = "A list, or one text with commas"),
    NOTE(hub_tags_wish, description, .help = "About them"),
    { 0 },
};

const struct field hub_profile_fields[] = {
    TEXT(hub_profile, agent, .help = "Whose"),
    MANY(hub_profile, tags, .help = "In lower case"),
    TEXT(hub_profile, description, .help = "What it said about them"),
    { 0 },
};

const struct field hub_reason_fields[] = {
    NOTE(hub_reason, reason, .help = "Why"),
    { 0 },
};

const struct field hub_revoke_fields[] = {
    NOTE(hub_reason, reason, .help = "Why"),
    FIELD(hub_reason, flush_required, F_BOOL, 0,
          .help = "Whether it should save its work; true unless said"),
    { 0 },
};

const struct field hub_checkpoint_wish_fields[] = {
    NAME(hub_checkpoint, task_id, 0, .help = "What it works on"),
    NOTE(hub_checkpoint, state, .help = "How far it is"),
    NOTE(hub_checkpoint, rationale, .help = "And why"),
    FIELD(hub_checkpoint, metadata, F_JSON, 0, .help = "An object to be kept"),
    { 0 },
};

const struct field hub_checkpoint_fields[] = {
    TEXT(hub_checkpoint, id, .help = "Its id"),
    TEXT(hub_checkpoint, agent_name, .help = "Whose"),
    TEXT(hub_checkpoint, task_id, .help = "What it worked on"),
    TEXT(hub_checkpoint, state, .help = "How far it was"),
    TEXT(hub_checkpoint, rationale, .help = "And why"),
    NUM(hub_checkpoint, sequence, .help = "Its number, from 1"),
    WHEN(hub_checkpoint, timestamp, .help = "When"),
    FIELD(hub_checkpoint, metadata, F_JSON, F_READONLY, .help = "As it was sent"),
    { 0 },
};

const struct field hub_revocation_fields[] = {
    TEXT(hub_revocation, id, .help = "Its id"),
    TEXT(hub_revocation, agent, .help = "Who is to stop"),
    TEXT(hub_revocation, reason, .help = "Why"),
    WHEN(hub_revocation, issued_at, .help = "When"),
    FLAG(hub_revocation, acknowledged, .help = "Whether the agent has answered"),
    WHEN(hub_revocation, acknowledged_at, .help = "When it did"),
    FLAG(hub_revocation, flush_required, .help = "Whether it should save its work"),
    TEXT(hub_revocation, state, .help = "pending, acknowledged, superseded or withdrawn"),
    { 0 },
};

const struct field hub_ack_fields[] = {
    NAME(hub_ack, revocation_id, 0, .help = "Which one; the pending one unless said"),
    { 0 },
};

const struct field hub_agent_named_fields[] = {
    NAME(hub_agent_named, agent, F_REQUIRED, .help = "Who"),
    { 0 },
};

const struct field hub_assign_fields[] = {
    NAME(hub_agent_named, agent, F_REQUIRED, .help = "To whom"),
    NAME(hub_agent_named, assigned_by, 0, .help = "By whom; human unless said"),
    { 0 },
};

/* ---- messages ---- */

static const struct field attachment_fields[] = {
    NAME(hub_attachment, project, F_REQUIRED, .help = "A project's id"),
    FIELD(hub_attachment, filename, F_STRING, F_REQUIRED, .max = HUB_FILE_NAME_MAX,
          .help = "A file of it"),
    FIELD(hub_attachment, version, F_INT, 0, .min = 0, .max = INT64_MAX,
          .help = "Which one; 0: the newest"),
    { 0 },
};

#define MESSAGE_WISH                                                                               \
    FIELD(hub_send, content, F_STRING, 0, .max = HUB_TEXT_MAX, .help = "What to say"),             \
        NAME(hub_send, type, 0, .help = "text unless said"),                                       \
        NAME(hub_send, thread, 0, .help = "What conversation it belongs to"),                      \
        NAME(hub_send, reply_to, 0, .help = "The message it answers"),                             \
        FIELD(hub_send, attachments, F_LIST, 0, .of = attachment_fields,                           \
              .of_size = sizeof(struct hub_attachment), .max = HUB_ATTACHMENTS_MAX,                \
              .help = "Files of projects")

const struct field hub_send_fields[] = {
    NAME(hub_send, from, F_REQUIRED, .help = "Who says it"),
    NAME(hub_send, to, F_REQUIRED, .help = "To whom"),
    MESSAGE_WISH,
    { 0 },
};

const struct field hub_publish_fields[] = {
    NAME(hub_send, from, F_REQUIRED, .help = "Who says it"),
    MESSAGE_WISH,
    { 0 },
};

const struct field hub_message_fields[] = {
    TEXT(hub_message, id, .help = "Its id"),
    TEXT(hub_message, from, .help = "Who wrote it"),
    TEXT(hub_message, to, .help = "To whom"),
    TEXT(hub_message, content, .help = "What it says"),
    TEXT(hub_message, type, .help = "text, unless the sender said otherwise"),
    WHEN(hub_message, timestamp, .help = "When"),
    FLAG(hub_message, delivered, .help = "Whether it was read"),
    FLAG(hub_message, acknowledged, .help = "Whether that was confirmed"),
    TEXT(hub_message, channel, .help = "The channel it came by"),
    TEXT(hub_message, thread, .help = "The conversation it belongs to"),
    TEXT(hub_message, reply_to, .help = "The message it answers"),
    FIELD(hub_message, attachments, F_JSON, F_READONLY, .help = "Files of projects"),
    NUM(hub_message, seq, .help = "Its place"),
    { 0 },
};

const struct field hub_channel_fields[] = {
    TEXT(hub_channel, name, .help = "Its name"),
    MANY(hub_channel, members, .help = "Who gets what is sent to it"),
    WHEN(hub_channel, created_at, .help = "When the first one joined"),
    { 0 },
};

/* ---- projects and tasks ---- */

const struct field hub_project_wish_fields[] = {
    FIELD(hub_project, name, F_STRING, F_REQUIRED, .max = HUB_TITLE_MAX,
          .help = "What it is called"),
    NAME(hub_project, creator, F_REQUIRED, .help = "Who makes it, and is its first member"),
    { 0 },
};

#define PROJECT                                                                                    \
    TEXT(hub_project, id, .help = "Its id"), TEXT(hub_project, name, .help = "What it is called"), \
        MANY(hub_project, members, .help = "Who works on it"),                                     \
        WHEN(hub_project, created_at, .help = "When it was made"),                                 \
        TEXT(hub_project, creator, .help = "Who made it")

const struct field hub_project_fields[] = { PROJECT, { 0 } };

const struct field hub_project_one_fields[] = {
    PROJECT,
    FIELD(hub_project, files, F_JSON, F_READONLY, .help = "By name: checksum, size, updated_at"),
    FIELD(hub_project, wip_limits, F_JSON, F_READONLY,
          .help = "By column: most tasks of one agent"),
    { 0 },
};

const struct field hub_wip_fields[] = {
    NAME(hub_wip_wish, status, F_REQUIRED, .help = "A column"),
    FIELD(hub_wip_wish, limit, F_JSON, F_REQUIRED, .help = "Most tasks of one agent in it"),
    { 0 },
};

#define TASK_WISH_LABELS(struct_)                                                                  \
    FIELD(struct_, labels, F_STRINGS, 0, .max = HUB_LABELS_MAX, .each_max = HUB_NAME_MAX,          \
          .help = "Words to sort it by")

const struct field hub_task_wish_fields[] = {
    FIELD(hub_task_wish, title, F_STRING, F_REQUIRED, .max = HUB_TITLE_MAX,
          .help = "What is to be done"),
    FIELD(hub_task_wish, description, F_STRING, 0, .max = HUB_TEXT_MAX, .help = "In more words"),
    NAME(hub_task_wish, assigned_to, 0, .help = "Who is to do it"),
    NAME(hub_task_wish, priority, 0, .help = "P0 to P3; P2 unless said"),
    TAGS(hub_task_wish, required_capabilities, .help = "What is needed for it"),
    FIELD(hub_task_wish, required_reviewers, F_INT, 0, .min = 0, .max = HUB_REVIEWERS_MAX,
          .help = "Approvals it needs before it is done"),
    NAME(hub_task_wish, created_by, 0, .help = "Who makes it"),
    NAME(hub_task_wish, parent_task_id, 0, .help = "The task it is a part of"),
    TASK_WISH_LABELS(hub_task_wish),
    { 0 },
};

const struct field hub_created_fields[] = {
    TEXT(hub_task, id, .help = "Its id"),
    TEXT(hub_task, title, .help = "What is to be done"),
    TEXT(hub_task, description, .help = "In more words"),
    TEXT(hub_task, status, .help = "backlog"),
    TEXT(hub_task, priority, .help = "P0 to P3"),
    TEXT(hub_task, assigned_to, .help = "Who is to do it"),
    MANY(hub_task, required_capabilities, .help = "What is needed for it"),
    WHEN(hub_task, created_at, .help = "When it was made"),
    { 0 },
};

const struct field hub_transition_fields[] = {
    TEXT(hub_transition, from, .help = "Column it left"),
    TEXT(hub_transition, to, .help = "Column it entered"),
    WHEN(hub_transition, at, .help = "When"),
    TEXT(hub_transition, by, .help = "By whom"),
    TEXT(hub_transition, note, .help = "What they said about it"),
    { 0 },
};

const struct field hub_review_fields[] = {
    TEXT(hub_review, reviewer, .help = "Who looked"),
    TEXT(hub_review, verdict, .help = "approved or changes_requested"),
    TEXT(hub_review, note, .help = "What they said about it"),
    WHEN(hub_review, at, .help = "When"),
    FLAG(hub_review, counts, .help = "Whether it is about the newest work"),
    { 0 },
};

const struct field hub_task_fields[] = {
    TEXT(hub_task, id, .help = "Its id"),
    TEXT(hub_task, project_id, .help = "Whose board it is on"),
    TEXT(hub_task, title, .help = "What is to be done"),
    TEXT(hub_task, description, .help = "In more words"),
    TEXT(hub_task, status, .help = "backlog, ready, in_progress, in_review, blocked or done"),
    TEXT(hub_task, priority, .help = "P0 to P3"),
    TEXT(hub_task, assigned_to, .help = "Who is to do it"),
    TEXT(hub_task, claimed_by, .help = "Who took it"),
    MANY(hub_task, required_capabilities, .help = "What is needed for it"),
    TEXT(hub_task, blocked_reason, .help = "Why it is blocked"),
    FIELD(hub_task, blocked_by, F_JSON, F_READONLY, .help = "By which tasks"),
    MANY(hub_task, subtasks, .help = "Its parts"),
    TEXT(hub_task, parent_task_id, .help = "What it is a part of"),
    WHEN(hub_task, created_at, .help = "When it was made"),
    WHEN(hub_task, updated_at, .help = "When it last changed"),
    WHEN(hub_task, started_at, .help = "When work on it began"),
    WHEN(hub_task, review_started_at, .help = "When it was first up for review"),
    WHEN(hub_task, completed_at, .help = "When it was last done"),
    MANY(hub_task, reviewers, .help = "Who is to look at it"),
    NUM(hub_task, required_reviewers, .help = "How many of them have to approve"),
    NUM(hub_task, approvals, .help = "How many did, this time"),
    NUM(hub_task, approvals_required, .help = "How many are needed before it is done"),
    MANY(hub_task, labels, .help = "Words to sort it by"),
    TEXT(hub_task, created_by, .help = "Who made it"),
    FIELD(hub_task, transitions, F_LIST, F_READONLY, .of = hub_transition_fields,
          .of_size = sizeof(struct hub_transition), .help = "The newest ones, oldest first"),
    FIELD(hub_task, reviews, F_LIST, F_READONLY, .of = hub_review_fields,
          .of_size = sizeof(struct hub_review), .help = "Of this round"),
    { 0 },
};

const struct field hub_task_short_fields[] = {
    TEXT(hub_task, id, .help = "Its id"),
    TEXT(hub_task, project_id, .help = "Whose board it is on"),
    TEXT(hub_task, title, .help = "What is to be done"),
    TEXT(hub_task, status, .help = "Its column"),
    TEXT(hub_task, priority, .help = "P0 to P3"),
    TEXT(hub_task, assigned_to, .help = "Who is to do it"),
    { 0 },
};

const struct field hub_ready_fields[] = {
    TEXT(hub_task, id, .help = "Its id"),
    TEXT(hub_task, title, .help = "What is to be done"),
    TEXT(hub_task, priority, .help = "P0 to P3"),
    MANY(hub_task, required_capabilities, .help = "What is needed for it"),
    { 0 },
};

const struct field hub_patch_fields[] = {
    NAME(hub_patch, status, 0, .help = "The column to go to"),
    NAME(hub_patch, agent, 0, .help = "Who moves it"),
    NOTE(hub_patch, blocked_reason, .help = "Why it is blocked"),
    FIELD(hub_patch, blocked_by, F_JSON, 0, .help = "A task, or a list of them"),
    NOTE(hub_patch, note, .help = "To be kept with the move"),
    FIELD(hub_patch, title, F_STRING, 0, .min = 1, .max = HUB_TITLE_MAX,
          .help = "What is to be done"),
    FIELD(hub_patch, description, F_STRING, 0, .max = HUB_TEXT_MAX, .help = "In more words"),
    NAME(hub_patch, priority, 0, .help = "P0 to P3"),
    TASK_WISH_LABELS(hub_patch),
    { 0 },
};

const struct field hub_patched_fields[] = {
    TEXT(hub_task, id, .help = "Its id"),
    TEXT(hub_task, title, .help = "What is to be done"),
    TEXT(hub_task, status, .help = "Its column"),
    TEXT(hub_task, assigned_to, .help = "Who is to do it"),
    TEXT(hub_task, priority, .help = "P0 to P3"),
    TEXT(hub_task, blocked_reason, .help = "Why it is blocked"),
    FIELD(hub_task, blocked_by, F_JSON, F_READONLY, .help = "By which tasks"),
    { 0 },
};

const struct field hub_verdict_fields[] = {
    NAME(hub_verdict, reviewer, 0, .help = "Who looked; human unless said"),
    NOTE(hub_verdict, note, .help = "What they say about it"),
    { 0 },
};

const struct field hub_note_fields[] = {
    FIELD(hub_verdict, note, F_STRING, 0, .max = ASK_NOTE_MAX, .help = "Why"),
    { 0 },
};

const struct field hub_comment_wish_fields[] = {
    NAME(hub_comment, author, 0, .help = "Who says it; human unless said, or the agent that asks"),
    FIELD(hub_comment, text, F_STRING, F_REQUIRED, .min = 1, .max = HUB_COMMENT_MAX,
          .help = "What they say"),
    { 0 },
};

const struct field hub_comment_fields[] = {
    NUM(hub_comment, number, .help = "From 1, of its task"),
    TEXT(hub_comment, author, .help = "Who said it"),
    TEXT(hub_comment, text, .help = "What they said"),
    WHEN(hub_comment, at, .help = "When"),
    { 0 },
};

const struct field hub_proposal_fields[] = {
    TEXT(hub_proposal, id, .help = "The ask's id"),
    TEXT(hub_proposal, state, .help = "pending, approved, rejected or expired"),
    TEXT(hub_proposal, agent, .help = "Which agent proposes it"),
    TEXT(hub_proposal, project, .help = "In which project"),
    TEXT(hub_proposal, task_id, .help = "Which task"),
    TEXT(hub_proposal, title, .help = "What is to be done"),
    TEXT(hub_proposal, status, .help = "The column to move it to; null for a claim"),
    WHEN(hub_proposal, created_at, .help = "When it was proposed"),
    WHEN(hub_proposal, expires_at, .help = "When it ends by itself"),
    WHEN(hub_proposal, decided_at, .help = "When it was decided"),
    TEXT(hub_proposal, by, .help = "Who decided"),
    TEXT(hub_proposal, note, .help = "What they said about it"),
    { 0 },
};

/* ---- files and leases ---- */

const struct field hub_uploaded_fields[] = {
    TEXT(hub_file, filename, .help = "Its name"),
    TEXT(hub_file, checksum, .help = "SHA-256 of its bytes"),
    NUM(hub_file, size, .help = "In bytes"),
    NUM(hub_file, version, .help = "From 1"),
    TEXT(hub_file, project, .help = "Whose it is"),
    { 0 },
};

const struct field hub_file_fields[] = {
    TEXT(hub_file, filename, .help = "Its name"),
    TEXT(hub_file, checksum, .help = "SHA-256 of its bytes"),
    NUM(hub_file, size, .help = "In bytes"),
    NUM(hub_file, version, .help = "From 1"),
    TEXT(hub_file, uploader, .help = "Who brought it"),
    WHEN(hub_file, updated_at, .help = "When"),
    { 0 },
};

const struct field hub_lease_wish_fields[] = {
    NAME(hub_lease_wish, agent, F_REQUIRED, .help = "For whom"),
    FIELD(hub_lease_wish, paths, F_STRINGS, F_REQUIRED, .min = 1, .max = HUB_LEASE_PATHS_MAX,
          .each_max = HUB_LEASE_PATH_MAX, .help = "What is to be edited; each with all beneath it"),
    FIELD(hub_lease_wish, mode, F_ENUM, 0, .choices = "exclusive|shared",
          .help = "exclusive unless said"),
    FIELD(hub_lease_wish, ttl_seconds, F_INT, 0, .min = 1, .max = HUB_LEASE_MAX_S,
          .help = "For how long"),
    NOTE(hub_lease_wish, reason, .help = "What for"),
    { 0 },
};

const struct field hub_renew_fields[] = {
    FIELD(hub_lease_wish, ttl_seconds, F_INT, 0, .min = 1, .max = HUB_LEASE_MAX_S,
          .help = "For how long from now"),
    { 0 },
};

const struct field hub_lease_fields[] = {
    TEXT(hub_lease, id, .help = "Its id"),
    TEXT(hub_lease, project, .help = "Where"),
    TEXT(hub_lease, agent, .help = "Whose it is"),
    MANY(hub_lease, paths, .help = "What it covers, with all beneath"),
    TEXT(hub_lease, mode, .help = "exclusive or shared"),
    TEXT(hub_lease, reason, .help = "What for"),
    WHEN(hub_lease, created_at, .help = "When it was taken"),
    WHEN(hub_lease, expires_at, .help = "When it ends by itself"),
    { 0 },
};
