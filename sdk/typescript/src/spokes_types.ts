// What the hub answers. Times are ISO 8601, UTC, without a zone.

export type Mode = "fully_autonomous" | "advisory" | "manual";
export type Status = "backlog" | "ready" | "in_progress" | "in_review" | "blocked" | "done";
export type Priority = "P0" | "P1" | "P2" | "P3";

export interface Registration {
    id: string;
    type: string;
    registered_at: string;
    autonomy_mode: Mode;
    capabilities: string[];
}

export interface AgentRecord {
    name: string;
    type: string;
    /** busy is paused */
    status: "online" | "busy" | "offline" | "stalled" | "revoked";
    registered_at: string;
    last_heartbeat: string;
    autonomy_mode: Mode;
    capabilities: string[];
    current_task_id: string | null;
    checkpoint_sequence: number;
    description: string;
    paused_reason: string;
    unread: number;
    pending_revocation: boolean;
}

export interface Beat {
    status: string;
    /** Heartbeats since the last checkpoint. */
    checkpoint_tick: number;
    checkpoint_due: boolean;
    pending_revocation: Omit<Revocation, "pending"> | null;
    agent_status: string;
}

export interface Checkpoint {
    id: string;
    sequence: number;
    timestamp: string;
}

export interface CheckpointDetail extends Checkpoint {
    agent_name: string;
    task_id: string | null;
    state: string;
    rationale: string;
}

export interface Revocation {
    pending: boolean;
    revocation_id?: string;
    reason?: string;
    flush_required?: boolean;
}

export interface Revoked {
    revocation_id: string;
    agent: string;
    issued_at: string;
    /** Sandboxes that were frozen. */
    frozen: string[];
}

export interface PastRevocation {
    id: string;
    agent: string;
    reason: string;
    issued_at: string;
    acknowledged: boolean;
    acknowledged_at: string | null;
    flush_required: boolean;
    state: "pending" | "acknowledged" | "superseded" | "withdrawn";
}

export interface AuditLine {
    timestamp: string;
    agent: string;
    action: string;
    details: Record<string, unknown>;
    outcome: string;
}

export interface Attachment {
    project: string;
    filename: string;
    version?: number;
}

export interface MessageOptions {
    type?: string;
    thread?: string;
    reply_to?: string;
    attachments?: Attachment[];
}

export interface Sent {
    id: string;
    from: string;
    to: string;
    timestamp: string;
    thread: string | null;
}

export interface Posted {
    id: string;
    from: string;
    channel: string;
    timestamp: string;
    recipients: number;
}

export interface Message {
    id: string;
    from: string;
    to: string;
    content: string;
    type: string;
    timestamp: string;
    delivered: boolean;
    acknowledged: boolean;
    channel: string | null;
    thread: string | null;
    reply_to: string | null;
    attachments: Attachment[];
    seq: number;
}

export interface Said {
    id: string;
    from: string;
    to: string;
    content: string;
    timestamp: string;
    type: string;
    thread: string | null;
}

export interface Graph {
    nodes: { id: string; type: string }[];
    edges: { from: string; to: string; count: number }[];
}

export interface Channel {
    name: string;
    members: string[];
    created_at: string;
}

export interface Project {
    id: string;
    name: string;
    members: string[];
    created_at: string;
}

export interface ProjectDetail extends Project {
    creator: string;
    files: Record<string, { checksum: string; size: number; updated_at: string }>;
    wip_limits: Partial<Record<Status, number>>;
}

export interface FileInfo {
    filename: string;
    /** SHA-256, hexadecimal */
    checksum: string;
    size: number;
    version: number;
    uploader: string;
    updated_at: string;
}

export interface Uploaded {
    filename: string;
    checksum: string;
    size: number;
    version: number;
    project: string;
}

export interface Lease {
    id: string;
    project: string;
    agent: string;
    paths: string[];
    mode: "exclusive" | "shared";
    reason: string;
    created_at: string;
    expires_at: string;
}

export interface TaskOptions {
    description?: string;
    assigned_to?: string;
    priority?: Priority;
    required_capabilities?: string[];
    required_reviewers?: number;
    parent_task_id?: string;
    labels?: string[];
}

export interface NewTask {
    id: string;
    title: string;
    description: string;
    status: Status;
    priority: Priority;
    assigned_to: string | null;
    required_capabilities: string[];
    created_at: string;
}

export interface MovedTask {
    id: string;
    title: string;
    status: Status;
    assigned_to: string | null;
    priority: Priority;
    blocked_reason: string;
    blocked_by: string | string[] | null;
    /** Of an agent in advisory mode: the move is proposed, and `id` and the rest are missing. */
    proposal_id?: string;
}

export interface ReadyTask {
    id: string;
    title: string;
    priority: Priority;
    required_capabilities: string[];
}

export interface TaskLine {
    id: string;
    project_id: string;
    title: string;
    status: Status;
    priority: Priority;
    assigned_to: string | null;
}

export interface Review {
    reviewer: string;
    verdict: "approved" | "changes_requested";
    note: string;
    at: string;
    counts: boolean;
}

export interface Comment {
    number: number;
    author: string;
    text: string;
    at: string;
}

export interface Verdict {
    ok: boolean;
    task_id: string;
    status: Status;
    approvals: number;
    required: number;
}

export interface Task extends NewTask {
    project_id: string;
    claimed_by: string | null;
    blocked_reason: string;
    blocked_by: string | string[] | null;
    subtasks: string[];
    parent_task_id: string | null;
    updated_at: string;
    started_at: string | null;
    review_started_at: string | null;
    completed_at: string | null;
    created_by: string;
    labels: string[];
    reviewers: string[];
    required_reviewers: number;
    reviews: Review[];
    approvals: number;
    approvals_required: number;
    transitions: { from: Status; to: Status; at: string; by: string; note: string }[];
}

/** ok, or of an advisory agent: status "proposed", until an operator decides. */
export interface Claim {
    ok: boolean;
    task_id: string;
    status?: string;
    proposal_id?: string;
    agent?: string;
    expires_at?: string;
}

export interface Proposal {
    id: string;
    state: "pending" | "approved" | "rejected" | "expired";
    agent: string;
    project: string;
    task_id: string;
    title: string;
    /** The column to move the task to; null: a claim. */
    status: Status | null;
    created_at: string;
    expires_at: string;
    decided_at: string | null;
    by: string | null;
    note: string;
}

export interface Times {
    count: number;
    avg: number;
    p50: number;
    p90: number;
    p95: number;
    p99: number;
}

export interface Metrics {
    total_tasks: number;
    by_status: Record<Status, number>;
    completed_count: number;
    avg_cycle_time_minutes: number;
    agent_throughput: Record<string, number>;
    cycle_time_minutes: Times;
    lead_time_minutes: Times;
    review_time_minutes: Times;
    throughput: { window_seconds: number; bucket_seconds: number; total: number;
                  buckets: { from: string; to: string; done: number }[] };
}

export interface Board {
    project: string;
    name: string;
    lanes_by: string;
    columns: { status: Status; limit: number | null; count: number }[];
    lanes: { lane: string; columns: Partial<Record<Status, Task[]>> }[];
    leases: Lease[];
}

/** Something that happened; `id` is where to go on from. */
export interface HubEvent {
    id: string;
    type: string;
    data: Record<string, unknown>;
}
