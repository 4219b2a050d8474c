"""AgentClient: one agent at a hub, or a human who looks after it.

Methods raise an ApiError of the class that the answer stands for (NotFound, Conflict, Forbidden, RateLimited …),
ConnectionFailed or RequestTimeout. Those that return bool are False instead, as clients of the original expect.
"""
import json
import os
import threading
import time
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Union, cast

from atoll._errors import AtollError, Unauthenticated

from ._loop import Loop, MessageHandler, TaskHandler
from ._types import (AgentRecord, Attachment, Beat, Channel, Checkpoint, Claim, Comment, FileInfo, Graph, HubEvent,
                     Lease, Message, Posted, Project, ProjectDetail, Proposal, ReadyTask, Registration, Review,
                     Revocation, Said, Sent, Task, TaskLine, Uploaded, Verdict)
from ._wire import Wire

Json = Dict[str, Any]


class AgentClient:
    """`token` is the agent's own; with `key_id` requests are signed with it instead of carrying it. A hub with
    auth = open needs neither. By default the token is the password in the address (http://NAME:TOKEN@HOST), or
    ATOLL_TOKEN; the address, where it is empty, is HUB_URL. Inside a sandbox that is an agent the address is
    http://atoll.internal/hub. Safe to use from several threads."""

    def __init__(self, hub_url: str, agent_name: str, agent_type: str = "unknown", *, token: Optional[str] = None,
                 key_id: Optional[str] = None, timeout: float = 30.0, retries: int = 3, ca: Optional[str] = None,
                 autonomy_mode: Optional[str] = None, capabilities: Optional[Sequence[str]] = None) -> None:
        hub_url = (hub_url or os.environ.get("HUB_URL", "")).rstrip("/")
        self.agent_name, self.agent_type = agent_name, agent_type
        scheme, _, rest = hub_url.rpartition("://")
        netloc, slash, path = rest.partition("/")
        # Without the password, for it stands in messages.
        self.hub_url = hub_url if scheme not in ("http", "https") else (
            f"{scheme}://{netloc.rpartition('@')[2]}{slash}{path}")
        self.autonomy_mode = autonomy_mode
        self.capabilities = None if capabilities is None else list(capabilities)
        self.timeout = timeout
        self._wire = Wire(hub_url, token, key_id, timeout, retries, ca)
        self._beating: Optional[threading.Thread] = None
        self._still = threading.Event()

    def close(self) -> None:
        self.stop_heartbeat()
        self._wire.close()

    def __enter__(self) -> "AgentClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ping(self) -> bool:
        return bool(self._wire.call("GET", "/ping") == {"status": "ok"})

    # ---- this agent ----

    def register(self, metadata: Optional[Mapping[str, Any]] = None) -> Registration:
        """With the type, mode and capabilities that this client has, so that none is lost by registering again."""
        return cast(Registration, self._wire.call("POST", "/agents/register", {
            "name": self.agent_name, "type": self.agent_type, "metadata": metadata,
            "autonomy_mode": self.autonomy_mode, "capabilities": self.capabilities}, again=True))

    def ensure_registered(self, metadata: Optional[Mapping[str, Any]] = None) -> bool:
        try:
            self._join(metadata)
            return True
        except AtollError:
            return False

    def _join(self, metadata: Optional[Mapping[str, Any]]) -> None:
        """As ensure_registered; raises what went wrong."""
        try:
            self.beat()
        except Unauthenticated:
            raise
        except AtollError:
            self.register(metadata)

    def unregister(self) -> bool:
        try:
            self._wire.call("DELETE", "/agents/{name}", name=self.agent_name)
            return True
        except AtollError:
            return False

    def beat(self) -> Beat:
        """A heartbeat, and what the hub has to say to it."""
        return cast(Beat, self._wire.call("POST", "/agents/{name}/heartbeat", name=self.agent_name))

    def heartbeat(self) -> bool:
        try:
            self.beat()
            return True
        except AtollError:
            return False

    def start_heartbeat(self, interval: float = 10.0) -> None:
        self.stop_heartbeat()
        self._still = still = threading.Event()

        def run() -> None:
            while not still.is_set():
                try:
                    self.beat()
                except Unauthenticated:
                    return  # the token is not valid any more; asking again does not make it so
                except AtollError:
                    pass
                still.wait(interval)
        self._beating = threading.Thread(target=run, name="spokes-heartbeat", daemon=True)
        self._beating.start()

    def stop_heartbeat(self) -> None:
        self._still.set()
        if self._beating is not None:
            self._beating.join(1.0)
            self._beating = None

    def set_autonomy_mode(self, mode: str, agent: Optional[str] = None) -> Json:
        """Of this agent, or of another one: then as an operator."""
        found = cast(Json, self._wire.call("POST", "/agents/{name}/autonomy", {"mode": mode}, again=True,
                                           name=agent or self.agent_name))
        if agent is None or agent == self.agent_name:
            self.autonomy_mode = mode
        return found

    def set_capabilities(self, tags: Sequence[str], description: str = "") -> Json:
        found = cast(Json, self._wire.call("POST", "/agents/{name}/capabilities",
                                           {"tags": list(tags), "description": description}, again=True,
                                           name=self.agent_name))
        self.capabilities = list(tags)
        return found

    # ---- checkpoints and revocations ----

    def submit_checkpoint(self, task_id: Optional[str] = None, state: str = "", rationale: str = "",
                          metadata: Optional[Mapping[str, Any]] = None) -> Checkpoint:
        return cast(Checkpoint, self._wire.call("POST", "/agents/{name}/checkpoint", {
            "task_id": task_id, "state": state, "rationale": rationale, "metadata": metadata}, once=True,
            name=self.agent_name))

    def get_checkpoint(self, agent: Optional[str] = None) -> Json:
        return cast(Json, self._wire.call("GET", "/agents/{name}/checkpoint", name=agent or self.agent_name))

    def check_revocation(self) -> Revocation:
        return cast(Revocation, self._wire.call("GET", "/agents/{name}/revocation", name=self.agent_name))

    def acknowledge_revocation(self, revocation_id: str) -> bool:
        try:
            self._wire.call("POST", "/agents/{name}/revocation/ack", {"revocation_id": revocation_id}, again=True,
                            name=self.agent_name)
            return True
        except AtollError:
            return False

    # ---- everyone ----

    def list_agents(self, status: Optional[str] = None, agent_type: Optional[str] = None) -> List[AgentRecord]:
        return cast(List[AgentRecord], self._wire.call("GET", "/agents", query={"status": status, "type": agent_type}))

    def get_agent(self, agent: Optional[str] = None) -> AgentRecord:
        return cast(AgentRecord, self._wire.call("GET", "/agents/{name}", name=agent or self.agent_name))

    def list_capabilities(self) -> List[Json]:
        return cast(List[Json], self._wire.call("GET", "/capabilities"))

    def agents_with_capability(self, tag: str) -> List[str]:
        return cast(List[str], self._wire.call("GET", "/capabilities/match", query={"tag": tag})["agents"])

    # ---- in charge: for humans, who have a token of an operator ----

    def set_global_mode(self, mode: str, agent_type: Optional[str] = None) -> Json:
        return cast(Json, self._wire.call("POST", "/autonomy/set-mode", {"mode": mode, "agent_type": agent_type},
                                          again=True))

    def get_default_mode(self) -> str:
        return cast(str, self._wire.call("GET", "/autonomy")["default_mode"])

    def list_proposals(self, state: Optional[str] = None, agent: Optional[str] = None,
                       project_id: Optional[str] = None) -> List[Proposal]:
        return cast(List[Proposal], self._wire.call("GET", "/proposals", query={
            "state": state, "agent": agent, "project": project_id}))

    def get_proposal(self, proposal_id: str) -> Proposal:
        return cast(Proposal, self._wire.call("GET", "/proposals/{proposal}", proposal=proposal_id))

    def approve_proposal(self, proposal_id: str, note: str = "") -> Proposal:
        return cast(Proposal, self._wire.call("POST", "/proposals/{proposal}/approve", {"note": note},
                                              proposal=proposal_id))

    def reject_proposal(self, proposal_id: str, note: str = "") -> Proposal:
        return cast(Proposal, self._wire.call("POST", "/proposals/{proposal}/reject", {"note": note},
                                              proposal=proposal_id))

    def pause_agent(self, agent: str, reason: str = "") -> Json:
        return cast(Json, self._wire.call("POST", "/agents/{name}/pause", {"reason": reason}, again=True, name=agent))

    def resume_agent(self, agent: str) -> Json:
        return cast(Json, self._wire.call("POST", "/agents/{name}/resume", again=True, name=agent))

    def revoke_agent(self, agent: str, reason: str = "", flush_required: bool = True) -> Json:
        return cast(Json, self._wire.call("POST", "/agents/{name}/revoke", {
            "reason": reason, "flush_required": flush_required}, once=True, name=agent))

    def revocation_history(self, limit: int = 50) -> List[Json]:
        return cast(List[Json], self._wire.call("GET", "/revocation/history", query={"limit": limit}))

    def audit_log(self, limit: int = 100) -> List[Json]:
        return cast(List[Json], self._wire.call("GET", "/audit/log", query={"limit": limit}))

    # ---- messages ----

    def send_message(self, to: str, content: str, message_type: str = "text", *, thread: Optional[str] = None,
                     reply_to: Optional[str] = None, attachments: Optional[Sequence[Attachment]] = None) -> Sent:
        return cast(Sent, self._wire.call("POST", "/messages/send", {
            "from": self.agent_name, "to": to, "content": content, "type": message_type, "thread": thread,
            "reply_to": reply_to, "attachments": list(attachments) if attachments else None}, once=True))

    def get_messages(self, unread_only: bool = False, *, limit: Optional[int] = None, after: Optional[str] = None,
                     peek: bool = False) -> List[Message]:
        """Oldest first, up to 1000; `after`: the id of the last one of the page before; `peek` marks nothing as
        delivered."""
        return cast(List[Message], self._wire.call("GET", "/messages/{agent}", agent=self.agent_name, query={
            "unread": "true" if unread_only else "false", "limit": limit, "after": after,
            "peek": "true" if peek else None}))

    def ack(self, message_id: str) -> bool:
        try:
            self._wire.call("POST", "/messages/{message_id}/ack", again=True, message_id=message_id)
            return True
        except AtollError:
            return False

    def message_history(self, other: str, limit: int = 50, agent: Optional[str] = None,
                        before: Optional[str] = None) -> List[Said]:
        """What two said to each other, newest first."""
        return cast(List[Said], self._wire.call("GET", "/messages/history/{a}/{b}",
                                                query={"limit": limit, "before": before},
                                                a=agent or self.agent_name, b=other))

    def get_thread(self, thread: str, limit: Optional[int] = None, after: Optional[str] = None) -> List[Message]:
        return cast(List[Message], self._wire.call("GET", "/messages/threads/{thread}", thread=thread,
                                                   query={"limit": limit, "after": after}))

    def list_channels(self) -> List[Channel]:
        return cast(List[Channel], self._wire.call("GET", "/channels"))

    def join_channel(self, channel: str) -> Json:
        return cast(Json, self._wire.call("POST", "/channels/{channel}/join", {"agent": self.agent_name}, again=True,
                                          channel=channel))

    def leave_channel(self, channel: str) -> Json:
        return cast(Json, self._wire.call("POST", "/channels/{channel}/leave", {"agent": self.agent_name}, again=True,
                                          channel=channel))

    def send_to_channel(self, channel: str, content: str, message_type: str = "text", *,
                        thread: Optional[str] = None, attachments: Optional[Sequence[Attachment]] = None) -> Posted:
        """To every other member; the channel "all" is everyone who is registered."""
        return cast(Posted, self._wire.call("POST", "/channels/{channel}/send", {
            "from": self.agent_name, "content": content, "type": message_type, "thread": thread,
            "attachments": list(attachments) if attachments else None}, once=True, channel=channel))

    def message_graph(self) -> Graph:
        return cast(Graph, self._wire.call("GET", "/messages/graph"))

    def process_inbox(self, handler: MessageHandler, unread_only: bool = True, auto_ack: bool = True,
                      max_messages: Optional[int] = None) -> int:
        """Handles what is there, oldest first, and acknowledges each; how many. An exception of the handler goes
        through, and its message stays unread."""
        count = 0
        for message in self.get_messages(unread_only)[:max_messages]:
            handler(message)
            count += 1
            if auto_ack:
                self.ack(message["id"])
        return count

    def wait_for_messages(self, timeout_seconds: float = 30, poll_interval: float = 1,
                          unread_only: bool = True) -> List[Message]:
        end = time.monotonic() + timeout_seconds
        while True:
            found = self.get_messages(unread_only)
            left = end - time.monotonic()
            if found or left <= 0:
                return found
            time.sleep(min(poll_interval, left))

    # ---- projects and files ----

    def create_project(self, name: str) -> Json:
        return cast(Json, self._wire.call("POST", "/projects", {"name": name, "creator": self.agent_name}, once=True))

    def list_projects(self, agent: Optional[str] = None) -> List[Project]:
        return cast(List[Project], self._wire.call("GET", "/projects", query={"agent": agent}))

    def get_project(self, project_id: str) -> ProjectDetail:
        return cast(ProjectDetail, self._wire.call("GET", "/projects/{project}", project=project_id))

    def delete_project(self, project_id: str) -> bool:
        try:
            self._wire.call("DELETE", "/projects/{project}", project=project_id)
            return True
        except AtollError:
            return False

    def join_project(self, project_id: str) -> bool:
        try:
            self._wire.call("POST", "/projects/{project}/join", {"agent": self.agent_name}, again=True,
                            project=project_id)
            return True
        except AtollError:
            return False

    def set_wip_limit(self, project_id: str, status: str, limit: int) -> Json:
        return cast(Json, self._wire.call("PATCH", "/projects/{project}/wip", {"status": status, "limit": limit},
                                          again=True, project=project_id))

    def get_metrics(self, project_id: str, window: Optional[int] = None, bucket: Optional[int] = None) -> Json:
        """Times and throughput; `window` and `bucket` are seconds."""
        return cast(Json, self._wire.call("GET", "/projects/{project}/metrics", project=project_id,
                                          query={"window": window, "bucket": bucket}))

    def get_board(self, project_id: str, lanes: str = "none") -> Json:
        """Columns, and in lanes (none, agent, priority, label) the tasks of each; and the leases."""
        return cast(Json, self._wire.call("GET", "/projects/{project}/board", project=project_id,
                                          query={"lanes": lanes}))

    def upload_file(self, project_id: str, filename: str, data: bytes) -> Uploaded:
        return cast(Uploaded, self._wire.upload("POST", "/projects/{project}/files", filename, data,
                                                {"uploader": self.agent_name}, project=project_id))

    def list_files(self, project_id: str) -> List[FileInfo]:
        return cast(List[FileInfo], self._wire.call("GET", "/projects/{project}/files", project=project_id))

    def file_versions(self, project_id: str, filename: str) -> List[FileInfo]:
        """Newest first."""
        return cast(List[FileInfo], self._wire.call("GET", "/projects/{project}/versions/{filename}",
                                                    project=project_id, filename=filename))

    def download_file(self, project_id: str, filename: str, version: Optional[int] = None) -> bytes:
        """Its bytes, after a check of their checksum."""
        return self._wire.download("GET", "/projects/{project}/files/{filename}", {"version": version},
                                   project=project_id, filename=filename)

    def delete_file(self, project_id: str, filename: str) -> Json:
        return cast(Json, self._wire.call("DELETE", "/projects/{project}/files/{filename}", project=project_id,
                                          filename=filename))

    # ---- leases: who edits which paths of a project ----

    def take_lease(self, project_id: str, paths: Sequence[str], mode: str = "exclusive", ttl_seconds: int = 300,
                   reason: str = "") -> Lease:
        """All of these paths, each with what is beneath it, or a Conflict whose `details["holder"]` is the lease that
        stands in the way."""
        return cast(Lease, self._wire.call("POST", "/projects/{project}/leases", {
            "agent": self.agent_name, "paths": list(paths), "mode": mode, "ttl_seconds": ttl_seconds,
            "reason": reason}, once=True, project=project_id))

    def list_leases(self, project_id: str, agent: Optional[str] = None, path: Optional[str] = None) -> List[Lease]:
        return cast(List[Lease], self._wire.call("GET", "/projects/{project}/leases", project=project_id,
                                                 query={"agent": agent, "path": path}))

    def renew_lease(self, project_id: str, lease_id: str, ttl_seconds: Optional[int] = None) -> Lease:
        return cast(Lease, self._wire.call("POST", "/projects/{project}/leases/{lease}/renew",
                                           {"ttl_seconds": ttl_seconds}, again=True, project=project_id,
                                           lease=lease_id))

    def release_lease(self, project_id: str, lease_id: str) -> Json:
        return cast(Json, self._wire.call("DELETE", "/projects/{project}/leases/{lease}", project=project_id,
                                          lease=lease_id))

    # ---- tasks ----

    def create_task(self, project_id: str, title: str, description: str = "", assigned_to: Optional[str] = None, *,
                    priority: Optional[str] = None, required_capabilities: Optional[Sequence[str]] = None,
                    required_reviewers: Optional[int] = None, parent_task_id: Optional[str] = None,
                    labels: Optional[Sequence[str]] = None) -> Json:
        return cast(Json, self._wire.call("POST", "/projects/{project}/tasks", {
            "title": title, "description": description, "assigned_to": assigned_to, "priority": priority,
            "required_capabilities": None if required_capabilities is None else list(required_capabilities),
            "required_reviewers": required_reviewers, "created_by": self.agent_name,
            "parent_task_id": parent_task_id, "labels": None if labels is None else list(labels)}, once=True,
            project=project_id))

    def list_tasks(self, project_id: str, status: Optional[str] = None, agent: Optional[str] = None,
                   assigned_to: Optional[str] = None, include_blocked: Optional[bool] = None,
                   label: Optional[str] = None) -> List[Task]:
        blocked = None if include_blocked is None else "true" if include_blocked else "false"
        return cast(List[Task], self._wire.call("GET", "/projects/{project}/tasks", project=project_id, query={
            "status": status, "agent": agent, "assigned_to": assigned_to, "include_blocked": blocked,
            "label": label}))

    def get_task(self, project_id: str, task_id: str) -> Task:
        return cast(Task, self._wire.call("GET", "/projects/{project}/tasks/{task}", project=project_id,
                                          task=task_id))

    def get_ready_tasks(self, project_id: str, capabilities: Optional[Sequence[str]] = None) -> List[ReadyTask]:
        """What may be begun, most urgent first: of what this agent can do, if it has capabilities."""
        tags = capabilities if capabilities is not None else self.capabilities
        return cast(List[ReadyTask], self._wire.call("GET", "/projects/{project}/tasks/ready", project=project_id,
                                                     query={"agent": self.agent_name, "capabilities": tags or None}))

    def get_my_tasks(self, project_id: Optional[str] = None) -> List[TaskLine]:
        return self.find_tasks(agent=self.agent_name, project_id=project_id)

    def find_tasks(self, agent: Optional[str] = None, project_id: Optional[str] = None, status: Optional[str] = None,
                   assigned_to: Optional[str] = None) -> List[TaskLine]:
        return cast(List[TaskLine], self._wire.call("GET", "/tasks", query={
            "agent": agent, "project_id": project_id, "status": status, "assigned_to": assigned_to}))

    def claim_task(self, project_id: str, task_id: str) -> Claim:
        """{"ok": true}; an agent in advisory mode gets a proposal instead, which an operator decides."""
        return cast(Claim, self._wire.call("POST", "/projects/{project}/tasks/{task}/claim",
                                           {"agent": self.agent_name}, again=True, project=project_id, task=task_id))

    def change_task(self, project_id: str, task_id: str, *, title: Optional[str] = None,
                    description: Optional[str] = None, priority: Optional[str] = None,
                    labels: Optional[Sequence[str]] = None) -> Json:
        return cast(Json, self._wire.call("PATCH", "/projects/{project}/tasks/{task}", {
            "agent": self.agent_name, "title": title, "description": description, "priority": priority,
            "labels": None if labels is None else list(labels)}, again=True, project=project_id, task=task_id))

    def move_task(self, project_id: str, task_id: str, status: str, *, blocked_reason: Optional[str] = None,
                  blocked_by: Union[None, str, Sequence[str]] = None, note: Optional[str] = None) -> Json:
        """As transition_task; raises with the reason when it is refused. The move of an agent in advisory mode is
        proposed to people: {"ok": false, "status": "proposed", "proposal_id": …}."""
        return cast(Json, self._wire.call("PATCH", "/projects/{project}/tasks/{task}", {
            "status": status, "agent": self.agent_name, "blocked_reason": blocked_reason, "blocked_by": blocked_by,
            "note": note}, once=True, project=project_id, task=task_id))

    def transition_task(self, project_id: str, task_id: str, new_status: str, blocked_reason: Optional[str] = None,
                        blocked_by: Union[None, str, Sequence[str]] = None) -> bool:
        try:
            moved = self.move_task(project_id, task_id, new_status, blocked_reason=blocked_reason,
                                   blocked_by=blocked_by)
            return "proposal_id" not in moved
        except AtollError:
            return False

    def update_task(self, project_id: str, task_id: str, status: str) -> bool:
        return self.transition_task(project_id, task_id, status)

    def assign_task(self, project_id: str, task_id: str, agent: str) -> Json:
        return cast(Json, self._wire.call("POST", "/projects/{project}/tasks/{task}/assign", {
            "agent": agent, "assigned_by": self.agent_name}, again=True, project=project_id, task=task_id))

    def unassign_task(self, project_id: str, task_id: str) -> Json:
        return cast(Json, self._wire.call("POST", "/projects/{project}/tasks/{task}/unassign", again=True,
                                          project=project_id, task=task_id))

    def add_reviewer(self, project_id: str, task_id: str, reviewer: str) -> Json:
        return cast(Json, self._wire.call("POST", "/projects/{project}/tasks/{task}/reviewers/{name}", again=True,
                                          project=project_id, task=task_id, name=reviewer))

    def approve_task(self, project_id: str, task_id: str, note: str = "", reviewer: Optional[str] = None) -> Verdict:
        """As a reviewer of a task in review; `reviewer` is this agent unless said."""
        return cast(Verdict, self._wire.call("POST", "/projects/{project}/tasks/{task}/approve", {
            "reviewer": reviewer or self.agent_name, "note": note}, again=True, project=project_id, task=task_id))

    def request_changes(self, project_id: str, task_id: str, note: str = "",
                        reviewer: Optional[str] = None) -> Verdict:
        """The task goes back to in_progress."""
        return cast(Verdict, self._wire.call("POST", "/projects/{project}/tasks/{task}/request-changes", {
            "reviewer": reviewer or self.agent_name, "note": note}, project=project_id, task=task_id))

    def list_reviews(self, project_id: str, task_id: str) -> List[Review]:
        return cast(List[Review], self._wire.call("GET", "/projects/{project}/tasks/{task}/reviews",
                                                  project=project_id, task=task_id))

    def comment_task(self, project_id: str, task_id: str, text: str) -> Comment:
        return cast(Comment, self._wire.call("POST", "/projects/{project}/tasks/{task}/comments", {
            "author": self.agent_name, "text": text}, project=project_id, task=task_id))

    def list_comments(self, project_id: str, task_id: str, after: Optional[int] = None,
                      limit: Optional[int] = None) -> List[Comment]:
        """What was said under a task, oldest first; only what came behind number `after`."""
        return cast(List[Comment], self._wire.call("GET", "/projects/{project}/tasks/{task}/comments",
                                                   query={"after": after, "limit": limit},
                                                   project=project_id, task=task_id))

    # ---- events ----

    def events(self, types: Optional[Union[str, Sequence[str]]] = None, project: Optional[str] = None,
               agent: Optional[str] = None, since: Optional[str] = None, idle: float = 60.0,
               patience: float = 120.0) -> Iterator[HubEvent]:
        """What happens in the hub, from now on or after the event `since`; comes back by itself over breaks and
        restarts. `types`: only these; `project`: only of this one; or `agent`: only of this one."""
        wanted = types if isinstance(types, str) or types is None else ",".join(types)
        query = {"type": wanted, "project": project, "agent": agent, "hub": None if project or agent else "true"}
        for one in self._wire.events("/events", query, since, idle, patience):
            yield HubEvent(one.id, one.event, json.loads(one.data))

    # ---- a life of its own ----

    def run_autonomous_loop(self, handler: Optional[MessageHandler] = None, poll_interval: float = 2,
                            heartbeat_interval: float = 10, stop_event: Optional[threading.Event] = None,
                            metadata: Optional[Mapping[str, Any]] = None, auto_ack: bool = True, *,
                            task_handler: Optional[TaskHandler] = None, projects: Optional[Sequence[str]] = None,
                            journal: Optional[str] = None,
                            on_revoked: Optional[Callable[[Revocation], object]] = None,
                            after_revocation: str = "resume",
                            on_error: Optional[Callable[[Exception], object]] = None) -> None:
        """Until stop_event is set: heartbeats, messages to `handler`, tasks to `task_handler` (of `projects`, or of
        all that this agent has joined), checkpoints when due, revocations as they come. RuntimeError, with its
        cause, when the agent cannot be registered or the hub does not accept the token any more. See
        spokes/_loop.py."""
        Loop(self, handler, task_handler, None if projects is None else list(projects), poll_interval,
             heartbeat_interval, stop_event, None if metadata is None else dict(metadata), auto_ack, journal,
             on_revoked, after_revocation, on_error).run()
