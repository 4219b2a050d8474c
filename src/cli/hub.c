/*
 * The hub from the command line: agents that work together, their messages, projects, tasks and
 * leases. Every command is one question and its answer, so all of it is tables (struct cli_view);
 * files of projects are in hub_file.c, the board in board.c.
 *
 * Whoever has an agent's token acts as that agent; people act for anybody, and say for whom.
 */
#include "cli/cli.h"

/* clang-format off */
#define HUB(cmd_, name_, args_, help_, flags_, ...)                                                \
    const struct command cmd_ = { .name = name_,                                                   \
                                  .args = args_,                                                   \
                                  .help = help_,                                                   \
                                  .flags = flags_,                                                 \
                                  .traits = CMD_REMOTE,                                            \
                                  .view = { __VA_ARGS__ },                                         \
                                  .run = cli_view }
/* clang-format on */
#define FLAGS(...) ((const struct cli_flag[]){ __VA_ARGS__, { 0 } })

#define AGENT                                                                                      \
    {                                                                                              \
        "agent", "NAME", "Who acts; must be given by people"                                       \
    }
#define NOTE                                                                                       \
    {                                                                                              \
        "note", "TEXT", "Why; kept with it"                                                        \
    }
#define REASON                                                                                     \
    {                                                                                              \
        "reason", "TEXT", "Why; told to the agent and kept"                                        \
    }

/* ---- agents ---- */

HUB(cmd_agent_peers, "agent peers", NULL, "List the agents of the hub.",
    FLAGS({ "status", "STATUS", "Only these: online, busy, offline, stalled, revoked" },
          { "type", "TYPE", "Only of this type" }),
    .path = "/agents", .query = "status=--status,type=--type",
    .table = "name,type,status,autonomy_mode,capabilities,current_task_id,>unread,last_heartbeat");
HUB(cmd_agent_peer, "agent peer", "NAME", "Show an agent of the hub.", NULL, .path = "/agents/{}",
    .lines = "name,type,status,paused_reason,autonomy_mode,capabilities,description,"
             "current_task_id,checkpoint_sequence,unread,pending_revocation,registered_at,"
             "last_heartbeat");
HUB(cmd_agent_register, "agent register", "NAME", "Register an agent at the hub.",
    FLAGS({ "type", "TYPE", "What kind of agent it is" },
          { "mode", "MODE", "fully_autonomous, advisory or manual" },
          { "capability", "TAG", "What it can do; may repeat" }),
    .method = "POST", .path = "/agents/register",
    .body = "name=@0,type=--type,autonomy_mode=--mode,capabilities=*--capability",
    .lines = "id,type,autonomy_mode,capabilities,registered_at");
HUB(cmd_agent_unregister, "agent unregister", "NAME",
    "Take an agent off the hub; its tasks and messages stay.", NULL, .method = "DELETE",
    .path = "/agents/{}", .lines = "status");
HUB(cmd_agent_heartbeat, "agent heartbeat", "NAME", "Say that an agent is alive.", NULL,
    .method = "POST", .path = "/agents/{}/heartbeat", .body = "",
    .lines = "agent_status,checkpoint_tick,checkpoint_due,pending_revocation");
HUB(cmd_agent_can, "agent can", "NAME TAG…", "Say what an agent can do, instead of what was said.",
    FLAGS({ "description", "TEXT", "In words" }), .method = "POST",
    .path = "/agents/{}/capabilities", .body = "tags=@1+,description=--description",
    .lines = "name,tags");
HUB(cmd_agent_who_can, "agent who-can", "TAG", "List the agents that can do something.", NULL,
    .path = "/capabilities/match", .query = "tag=@0", .lines = "tag,agents");
HUB(cmd_agent_mode, "agent mode", "NAME MODE",
    "Let an agent claim tasks by itself (fully_autonomous), propose them (advisory), or neither "
    "(manual).",
    NULL, .method = "POST", .path = "/agents/{}/autonomy", .body = "mode=@1",
    .lines = "name,autonomy_mode");
HUB(cmd_agent_mode_all, "agent mode-all", "MODE",
    "Set the mode of all agents, and of those who come later.",
    FLAGS({ "type", "TYPE", "Only of agents of this type that are there now" }), .method = "POST",
    .path = "/autonomy/set-mode", .body = "mode=@0,agent_type=--type",
    .lines = "mode,updated_agents");
HUB(cmd_agent_mode_default, "agent mode-default", NULL, "Show the mode that new agents get.", NULL,
    .path = "/autonomy", .lines = "default_mode");
HUB(cmd_agent_pause, "agent pause", "NAME",
    "Stop an agent's claims, moves and messages, until it is resumed.", FLAGS(REASON),
    .method = "POST", .path = "/agents/{}/pause", .body = "reason=--reason",
    .lines = "name,status");
HUB(cmd_agent_resume, "agent resume", "NAME", "Let a paused or revoked agent go on.", NULL,
    .method = "POST", .path = "/agents/{}/resume", .body = "", .lines = "name,status");
HUB(cmd_agent_revoke, "agent revoke", "NAME",
    "Stop an agent at once, its sandboxes and leases too, until it has acknowledged that.",
    FLAGS(REASON), .method = "POST", .path = "/agents/{}/revoke", .body = "reason=--reason",
    .lines = "revocation_id,agent,issued_at,frozen");
HUB(cmd_agent_revocations, "agent revocations", NULL, "List revocations, oldest first.",
    FLAGS({ "limit", "N", "The newest so many (50)" }), .path = "/revocation/history",
    .query = "limit=#--limit", .table = "id,agent,state,reason,issued_at,acknowledged_at");
HUB(cmd_agent_checkpoint, "agent checkpoint", "NAME", "Show what an agent last said of its work.",
    NULL, .path = "/agents/{}/checkpoint",
    .lines = "id,agent_name,task_id,state,rationale,sequence,timestamp");

/* ---- messages ---- */

#define FROM                                                                                       \
    {                                                                                              \
        "from", "NAME", "Who sends it (human)"                                                     \
    }
#define THREAD                                                                                     \
    {                                                                                              \
        "thread", "THREAD", "What it belongs to: a name, or the id of a message of it"             \
    }
#define KIND                                                                                       \
    {                                                                                              \
        "type", "TYPE", "What kind of message it is (text)"                                        \
    }

HUB(cmd_message_send, "message send", "TO TEXT", "Send a message to an agent.",
    FLAGS(FROM, KIND, THREAD, { "reply-to", "ID", "The message that it answers" }),
    .method = "POST", .path = "/messages/send",
    .body = "from=--from|human,to=@0,content=@1,type=--type,thread=--thread,reply_to=--reply-to",
    .lines = "id,from,to,thread,timestamp");
HUB(cmd_message_ls, "message ls", "AGENT", "Show an agent's messages, oldest first.",
    FLAGS({ "unread", NULL, "Only those neither delivered nor acknowledged" },
          { "mark", NULL, "Mark them as delivered" }, { "limit", "N", "At most so many (1000)" },
          { "after", "ID", "Those after this one" }),
    .path = "/messages/{}", .query = "unread=?--unread,peek=^--mark,limit=#--limit,after=--after",
    .table = "id,from,type,content,delivered,acknowledged,timestamp");
HUB(cmd_message_ack, "message ack", "ID", "Acknowledge a message.", NULL, .method = "POST",
    .path = "/messages/{}/ack", .body = "", .lines = "status");
HUB(cmd_message_history, "message history", "AGENT OTHER",
    "Show what two agents said to each other, newest first.",
    FLAGS({ "limit", "N", "At most so many (50)" }, { "before", "ID", "Those before this one" }),
    .path = "/messages/history/{}/{}", .query = "limit=#--limit,before=--before",
    .table = "id,from,to,content,timestamp");
HUB(cmd_message_thread, "message thread", "THREAD", "Show the messages of a thread.",
    FLAGS({ "limit", "N", "At most so many" }, { "after", "ID", "Those after this one" }),
    .path = "/messages/threads/{}", .query = "limit=#--limit,after=--after",
    .table = "id,from,to,content,timestamp");
HUB(cmd_message_graph, "message graph", NULL, "Show who writes to whom, and how often.", NULL,
    .path = "/messages/graph", .member = "edges", .table = "from,to,>count");
HUB(cmd_message_channels, "message channels", NULL, "List channels and who is in them.", NULL,
    .path = "/channels", .table = "name,members,created_at");
HUB(cmd_message_join, "message join", "CHANNEL", "Let an agent into a channel.", FLAGS(AGENT),
    .method = "POST", .path = "/channels/{}/join", .body = "agent=!--agent", .lines = "status");
HUB(cmd_message_leave, "message leave", "CHANNEL", "Take an agent out of a channel.", FLAGS(AGENT),
    .method = "POST", .path = "/channels/{}/leave", .body = "agent=!--agent", .lines = "status");
HUB(cmd_message_post, "message post", "CHANNEL TEXT",
    "Send a message to all members of a channel; \"all\" is everybody.", FLAGS(FROM, KIND, THREAD),
    .method = "POST", .path = "/channels/{}/send",
    .body = "from=--from|human,content=@1,type=--type,thread=--thread",
    .lines = "id,from,channel,recipients,timestamp");

/* ---- projects ---- */

HUB(cmd_project_create, "project create", "NAME", "Make a project with an empty board.",
    FLAGS({ "creator", "NAME", "Whose it is (human)" }), .method = "POST", .path = "/projects",
    .body = "name=@0,creator=--creator|human", .lines = "id,name,created_at");
HUB(cmd_project_ls, "project ls", NULL, "List projects.",
    FLAGS({ "agent", "NAME", "Only those that this agent is a member of" }), .path = "/projects",
    .query = "agent=--agent", .table = "id,name,members,created_at");
HUB(cmd_project_show, "project show", "PROJECT", "Show a project.", NULL, .path = "/projects/{}",
    .lines = "id,name,creator,members,wip_limits,created_at");
HUB(cmd_project_rm, "project rm", "PROJECT", "Delete a project, its tasks, files and leases.", NULL,
    .method = "DELETE", .path = "/projects/{}", .lines = "status");
HUB(cmd_project_join, "project join", "PROJECT AGENT", "Make an agent a member.", NULL,
    .method = "POST", .path = "/projects/{}/join", .body = "agent=@1", .lines = "status");
HUB(cmd_project_limit, "project limit", "PROJECT COLUMN N",
    "Limit how many tasks an agent may have in a column of the board.", NULL, .method = "PATCH",
    .path = "/projects/{}/wip", .body = "status=@1,limit=#@2", .lines = "status");
HUB(cmd_project_metrics, "project metrics", "PROJECT", "Show times and throughput.",
    FLAGS({ "window", "TIME", "How far back (7d)" }, { "bucket", "TIME", "Steps of it (1d)" }),
    .path = "/projects/{}/metrics", .query = "window=~--window,bucket=~--bucket",
    .lines = "total_tasks,by_status,completed_count,avg_cycle_time_minutes,cycle_time_minutes,"
             "lead_time_minutes,review_time_minutes,agent_throughput,throughput");

/* ---- tasks ---- */

#define TASK_LINES                                                                                 \
    "id,title,status,priority,assigned_to,claimed_by,labels,required_capabilities,description,"    \
    "blocked_reason,blocked_by,parent_task_id,subtasks,reviewers,approvals,approvals_required,"    \
    "created_by,created_at,started_at,review_started_at,completed_at"

HUB(cmd_task_create, "task create", "PROJECT TITLE", "Put a task into the backlog.",
    FLAGS({ "description", "TEXT", "What is to be done" },
          { "priority", "P", "P0 (first) to P3; P2 unless said" },
          { "assign", "AGENT", "Whose it is to be" },
          { "needs", "TAG", "A capability that it takes; may repeat" },
          { "label", "LABEL", "For filters and lanes; may repeat" },
          { "reviewers", "N", "Approvals that it needs before it is done" },
          { "parent", "TASK", "The task that it is a part of" },
          { "creator", "NAME", "Who made it" }),
    .method = "POST", .path = "/projects/{}/tasks",
    .body = "title=@1,description=--description,priority=--priority,assigned_to=--assign,"
            "required_capabilities=*--needs,labels=*--label,required_reviewers=#--reviewers,"
            "parent_task_id=--parent,created_by=--creator",
    .lines = "id,title,status,priority,assigned_to,created_at");
HUB(cmd_task_ls, "task ls", "PROJECT", "List tasks, the most urgent first.",
    FLAGS({ "status", "STATUS", "Only of this column" },
          { "agent", "NAME", "Only those that this agent owns" },
          { "label", "LABEL", "Only with this label" }),
    .path = "/projects/{}/tasks", .query = "status=--status,agent=--agent,label=--label",
    .table = "id,priority,status,title,assigned_to,labels,updated_at");
HUB(cmd_task_ready, "task ready", "PROJECT",
    "List tasks that may be claimed, the most urgent first.", NULL,
    .path = "/projects/{}/tasks/ready", .table = "id,priority,title,required_capabilities");
HUB(cmd_task_show, "task show", "PROJECT TASK", "Show a task.", NULL,
    .path = "/projects/{}/tasks/{}", .lines = TASK_LINES);
HUB(cmd_task_claim, "task claim", "PROJECT TASK",
    "Claim a task for an agent; of an advisory one, propose that.", FLAGS(AGENT), .method = "POST",
    .path = "/projects/{}/tasks/{}/claim", .body = "agent=!--agent",
    .lines = "ok,task_id,status,proposal_id,expires_at");
HUB(cmd_task_assign, "task assign", "PROJECT TASK AGENT", "Give a task to an agent.", NULL,
    .method = "POST", .path = "/projects/{}/tasks/{}/assign", .body = "agent=@2", .lines = "ok");
HUB(cmd_task_unassign, "task unassign", "PROJECT TASK",
    "Take a task from its owner, back to the backlog.", NULL, .method = "POST",
    .path = "/projects/{}/tasks/{}/unassign", .body = "", .lines = "ok");
HUB(cmd_task_move, "task move", "PROJECT TASK STATUS",
    "Move a task to another column: backlog, ready, in_progress, in_review, blocked, done.",
    FLAGS({ "agent", "NAME", "Who moves it" }, NOTE, { "reason", "TEXT", "Why it is blocked" },
          { "blocked-by", "TASK", "What it waits for; it goes on by itself then; may repeat" }),
    .method = "PATCH", .path = "/projects/{}/tasks/{}",
    .body = "status=@2,agent=--agent,note=--note,blocked_reason=--reason,blocked_by=*--blocked-by",
    .lines = "id,title,status,assigned_to,priority,blocked_reason,blocked_by,proposal_id");
HUB(cmd_task_edit, "task edit", "PROJECT TASK", "Change what a task says.",
    FLAGS({ "title", "TEXT", "Another title" }, { "description", "TEXT", "Another description" },
          { "priority", "P", "P0 to P3" },
          { "label", "LABEL", "Instead of its labels; may repeat" }),
    .method = "PATCH", .path = "/projects/{}/tasks/{}",
    .body = "title=--title,description=--description,priority=--priority,labels=*--label",
    .lines = "id,title,status,assigned_to,priority");
HUB(cmd_task_reviewer, "task reviewer", "PROJECT TASK AGENT",
    "Make an agent a reviewer of a task, which is not done then without an approval.", NULL,
    .method = "POST", .path = "/projects/{}/tasks/{}/reviewers/{}", .body = "", .lines = "status");
HUB(cmd_task_approve, "task approve", "PROJECT TASK", "Approve a task that is in review.",
    FLAGS({ "reviewer", "NAME", "Who approves (human)" }, NOTE), .method = "POST",
    .path = "/projects/{}/tasks/{}/approve", .body = "reviewer=--reviewer,note=--note",
    .lines = "ok,task_id,status,approvals,required");
HUB(cmd_task_request_changes, "task request-changes", "PROJECT TASK",
    "Send a task that is in review back to work.",
    FLAGS({ "reviewer", "NAME", "Who asks for them (human)" }, NOTE), .method = "POST",
    .path = "/projects/{}/tasks/{}/request-changes", .body = "reviewer=--reviewer,note=--note",
    .lines = "ok,task_id,status,approvals,required");
HUB(cmd_task_reviews, "task reviews", "PROJECT TASK", "List the reviews of a task.", NULL,
    .path = "/projects/{}/tasks/{}/reviews", .table = "reviewer,verdict,counts,note,at");
HUB(cmd_task_comment, "task comment", "PROJECT TASK TEXT", "Say something under a task.",
    FLAGS({ "author", "NAME", "Who says it (human)" }), .method = "POST",
    .path = "/projects/{}/tasks/{}/comments", .body = "text=@2,author=--author",
    .lines = "number,author,text,at");
HUB(cmd_task_comments, "task comments", "PROJECT TASK", "Show what was said under a task.",
    FLAGS({ "after", "N", "Those after this number" }, { "limit", "N", "At most so many (1000)" }),
    .path = "/projects/{}/tasks/{}/comments", .query = "after=#--after,limit=#--limit",
    .table = ">number,author,text,at");
HUB(cmd_task_proposals, "task proposals", NULL, "List what advisory agents want to claim or move.",
    FLAGS({ "which", "STATE", "pending, approved, rejected or expired (pending)" },
          { "agent", "NAME", "Only of this agent" }, { "project", "PROJECT", "Only of this one" }),
    .path = "/proposals", .query = "state=--which|pending,agent=--agent,project=--project",
    .table = "id,state,agent,title,status,project,task_id,created_at,expires_at");
HUB(cmd_task_allow, "task allow", "PROPOSAL", "Approve a proposal: the task is claimed or moved.",
    FLAGS(NOTE), .method = "POST", .path = "/proposals/{}/approve", .body = "note=--note",
    .lines = "id,state,agent,project,task_id,title,status,by,note");
HUB(cmd_task_refuse, "task refuse", "PROPOSAL", "Reject a proposal.", FLAGS(NOTE), .method = "POST",
    .path = "/proposals/{}/reject", .body = "note=--note",
    .lines = "id,state,agent,project,task_id,title,status,by,note");

/* ---- leases ---- */

#define LEASE_LINES "id,agent,mode,paths,reason,created_at,expires_at"
#define TTL                                                                                        \
    {                                                                                              \
        "ttl", "TIME", "For how long (5m)"                                                         \
    }

HUB(cmd_lease_take, "lease take", "PROJECT PATH…",
    "Take paths of a project, with what is beneath them, for an agent alone.",
    FLAGS(AGENT, { "mode", "MODE", "exclusive or shared (exclusive)" }, TTL, REASON),
    .method = "POST", .path = "/projects/{}/leases",
    .body = "agent=!--agent,paths=@1+,mode=--mode,ttl_seconds=~--ttl,reason=--reason",
    .lines = LEASE_LINES);
HUB(cmd_lease_ls, "lease ls", "PROJECT", "List the leases of a project.",
    FLAGS({ "agent", "NAME", "Only of this agent" },
          { "path", "PATH", "Only those that cover this path" }),
    .path = "/projects/{}/leases", .query = "agent=--agent,path=--path", .table = LEASE_LINES);
HUB(cmd_lease_renew, "lease renew", "PROJECT LEASE", "Hold a lease for longer.", FLAGS(TTL),
    .method = "POST", .path = "/projects/{}/leases/{}/renew", .body = "ttl_seconds=~--ttl",
    .lines = LEASE_LINES);
HUB(cmd_lease_release, "lease release", "PROJECT LEASE", "Let a lease go.", NULL,
    .method = "DELETE", .path = "/projects/{}/leases/{}", .lines = "status");

/* ---- files of a project; put and get are in hub_file.c ---- */

HUB(cmd_project_files, "project files", "PROJECT", "List the files of a project.", NULL,
    .path = "/projects/{}/files", .table = "filename,>size,>version,uploader,updated_at,checksum");
