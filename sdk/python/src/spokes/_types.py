"""What the hub answers, as dictionaries with known keys. Times are ISO 8601, UTC, without a zone."""
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, TypedDict


class Registration(TypedDict):
    id: str
    type: str
    registered_at: str
    autonomy_mode: str
    capabilities: List[str]


class AgentRecord(TypedDict):
    name: str
    type: str
    status: str  # online, busy (paused), offline, stalled, revoked
    registered_at: str
    last_heartbeat: str
    autonomy_mode: str
    capabilities: List[str]
    current_task_id: Optional[str]
    checkpoint_sequence: int
    description: str
    paused_reason: str
    unread: int
    pending_revocation: bool


class Beat(TypedDict, total=False):
    status: str
    checkpoint_tick: int  # heartbeats since the last checkpoint
    checkpoint_due: bool
    pending_revocation: Optional["Revocation"]
    agent_status: str


# "from" is a word of the language: these are written the other way.
Sent = TypedDict("Sent", {"id": str, "from": str, "to": str, "timestamp": str, "thread": Optional[str]})
Posted = TypedDict("Posted", {"id": str, "from": str, "channel": str, "timestamp": str, "recipients": int})
Message = TypedDict("Message", {
    "id": str, "from": str, "to": str, "content": str, "type": str, "timestamp": str, "delivered": bool,
    "acknowledged": bool, "channel": Optional[str], "thread": Optional[str], "reply_to": Optional[str],
    "attachments": List["Attachment"], "seq": int})
Said = TypedDict("Said", {"id": str, "from": str, "to": str, "content": str, "timestamp": str, "type": str,
                          "thread": Optional[str]})
Edge = TypedDict("Edge", {"from": str, "to": str, "count": int})
Transition = TypedDict("Transition", {"from": str, "to": str, "at": str, "by": str, "note": str})


class _Attached(TypedDict):
    project: str
    filename: str


class Attachment(_Attached, total=False):
    version: int


class Channel(TypedDict):
    name: str
    members: List[str]
    created_at: str


class Graph(TypedDict):
    nodes: List[Dict[str, str]]
    edges: List[Edge]


class Project(TypedDict):
    id: str
    name: str
    members: List[str]
    created_at: str


class ProjectDetail(Project):
    creator: str
    files: Dict[str, Dict[str, Any]]
    wip_limits: Dict[str, int]


class FileInfo(TypedDict):
    filename: str
    checksum: str  # SHA-256, hexadecimal
    size: int
    version: int
    uploader: str
    updated_at: str


class Uploaded(TypedDict):
    filename: str
    checksum: str
    size: int
    version: int
    project: str


class Lease(TypedDict):
    id: str
    project: str
    agent: str
    paths: List[str]
    mode: str  # exclusive or shared
    reason: str
    created_at: str
    expires_at: str


class ReadyTask(TypedDict):
    id: str
    title: str
    priority: str
    required_capabilities: List[str]


class TaskLine(TypedDict):
    id: str
    project_id: str
    title: str
    status: str
    priority: str
    assigned_to: Optional[str]


class Task(TypedDict):
    id: str
    title: str
    description: str
    status: str
    priority: str
    assigned_to: Optional[str]
    claimed_by: Optional[str]
    required_capabilities: List[str]
    blocked_reason: str
    blocked_by: Optional[str]
    subtasks: List[str]
    parent_task_id: Optional[str]
    created_at: str
    updated_at: str
    started_at: Optional[str]
    completed_at: Optional[str]
    reviewers: List[str]
    required_reviewers: int
    transitions: List[Transition]
    project_id: str
    created_by: str
    review_started_at: Optional[str]
    labels: List[str]
    reviews: List["Review"]
    approvals: int
    approvals_required: int


class Review(TypedDict):
    reviewer: str
    verdict: str  # approved or changes_requested
    note: str
    at: str
    counts: bool


class Comment(TypedDict):
    number: int  # from 1, of its task
    author: str
    text: str
    at: str


class Verdict(TypedDict):
    ok: bool
    task_id: str
    status: str
    approvals: int
    required: int


class _Claimed(TypedDict):
    ok: bool
    task_id: str


class Claim(_Claimed, total=False):
    """ok, or of an advisory agent: status "proposed", until an operator decides."""
    status: str
    proposal_id: str
    agent: str
    expires_at: str


class Proposal(TypedDict):
    id: str
    state: str  # pending, approved, rejected, expired
    agent: str
    project: str
    task_id: str
    title: str
    status: Optional[str]  # the column to move the task to; None: a claim
    created_at: str
    expires_at: str
    decided_at: Optional[str]
    by: Optional[str]
    note: str


class Revocation(TypedDict, total=False):
    pending: bool
    revocation_id: str
    reason: str
    flush_required: bool


class Checkpoint(TypedDict):
    id: str
    sequence: int
    timestamp: str


@dataclass(frozen=True)
class HubEvent:
    """Something that happened; `id` is where to go on from."""
    id: str
    type: str
    data: Dict[str, Any]
