"""The life of an autonomous agent: heartbeats, messages, tasks, checkpoints, revocations.

Two threads. The one that was called looks for work: messages first, then a task. The other one sends heartbeats, so
that a long piece of work does not look like a dead agent; the answer to each tells whether a checkpoint is due and
whether the agent was revoked.

A message that was handled is never handled again. The hub gives a message until it is acknowledged, and an
acknowledgement can get lost; so ids are noted, in memory or in a journal that outlives the process, when the handler
has returned and before the hub hears of it. A handler that raises has not handled its message, which is given to it
again after a growing pause.

When the agent is revoked, the work in hand is told so (Work.stop), nothing new is begun, `on_revoked` may save what
there is, the revocation is acknowledged, the agent registers anew and goes on; or, with after_revocation="stop", ends.

A token that the hub does not accept any more (401) ends the loop with a RuntimeError: no later request would succeed.
"""
import collections
import os
import threading
import time
from typing import TYPE_CHECKING, Any, Callable, Deque, Dict, List, Optional, Set, Tuple

from atoll._errors import (AtollError, Conflict, ConnectionFailed, Forbidden, InvalidRequest, NotFound, RequestTimeout,
                           Unauthenticated, Unavailable)

from ._types import Beat, Message, Revocation, Task

if TYPE_CHECKING:
    from ._client import AgentClient

REMEMBERED = 10000  # handled messages that are kept in mind
PAUSE_FIRST, PAUSE_MAX = 1.0, 300.0  # before a message whose handler failed is tried again

MessageHandler = Callable[[Message], object]
TaskHandler = Callable[["Work"], Optional[str]]


class Journal:
    """Which messages were handled: the last REMEMBERED, in a file if there is to be one."""

    def __init__(self, path: Optional[str] = None) -> None:
        self._order: Deque[str] = collections.deque()
        self._known: Set[str] = set()
        self._path = path
        self._file: Optional[int] = None
        if path is not None:
            self._load(path)

    def _load(self, path: str) -> None:
        try:
            with open(path, encoding="ascii", errors="replace") as file:
                for line in file:
                    if line.endswith("\n"):  # the last one may be half of an id
                        self._remember(line.strip())
        except FileNotFoundError:
            pass
        with open(path + ".new", "w", encoding="ascii") as file:  # what was forgotten goes
            file.writelines(one + "\n" for one in self._order)
            file.flush()
            os.fsync(file.fileno())
        os.replace(path + ".new", path)
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)

    def _remember(self, message: str) -> None:
        if message in self._known:
            return
        self._known.add(message)
        self._order.append(message)
        if len(self._order) > REMEMBERED:
            self._known.discard(self._order.popleft())

    def __contains__(self, message: str) -> bool:
        return message in self._known

    def add(self, message: str) -> None:
        self._remember(message)
        if self._file is not None:
            os.write(self._file, (message + "\n").encode("ascii"))
            os.fsync(self._file)

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


class Work:
    """A task in the hands of its handler. `stop` is set when the agent is revoked or the loop is to end: return soon.

    The handler returns the state that the task is to have: "in_review", say; None when it did not finish."""

    def __init__(self, client: "AgentClient", project_id: str, task: Task, stop: threading.Event) -> None:
        self.client, self.project_id, self.task, self.stop = client, project_id, task, stop
        self.state = "working"  # what the next checkpoint says

    @property
    def task_id(self) -> str:
        return self.task["id"]

    def checkpoint(self, state: str, rationale: str = "") -> None:
        """Says how far it is. Also done by itself whenever one is due, with the last state said."""
        self.state = state
        self.client.submit_checkpoint(self.task_id, state, rationale)


class Loop:
    def __init__(self, client: "AgentClient", handler: Optional[MessageHandler], task_handler: Optional[TaskHandler],
                 projects: Optional[List[str]], poll_interval: float, heartbeat_interval: float,
                 stop_event: Optional[threading.Event], metadata: Optional[Dict[str, Any]], auto_ack: bool,
                 journal: Optional[str], on_revoked: Optional[Callable[[Revocation], object]],
                 after_revocation: str, on_error: Optional[Callable[[Exception], object]]) -> None:
        if after_revocation not in ("resume", "stop"):
            raise ValueError("after_revocation is resume or stop")
        self.client, self.handler, self.task_handler = client, handler, task_handler
        self.projects, self.poll, self.beat = projects, poll_interval, heartbeat_interval
        self.stop = stop_event or threading.Event()
        self.metadata, self.auto_ack = metadata, auto_ack
        self.handled = Journal(journal)
        self.on_revoked, self.after, self.on_error = on_revoked, after_revocation, on_error
        self.revoked = threading.Event()
        self.refused: Optional[Unauthenticated] = None  # the token is not valid any more
        self.interrupt = threading.Event()  # of the work in hand: revoked, or the loop is to end
        self.work: Optional[Work] = None
        self.failed: Dict[str, Tuple[float, float]] = {}  # message: (when again, pause)
        self.seen: Set[str] = set()  # tasks that were proposed: an operator decides about them
        self.finished: Dict[str, Tuple[str, str, str]] = {}  # tasks: project, state and reason to be told to the hub
        self.left: Dict[str, str] = {}  # tasks that were begun: when they last changed then

    def run(self) -> None:
        try:
            self.client._join(self.metadata)
        except AtollError as error:
            raise RuntimeError(f"cannot register {self.client.agent_name} at {self.client.hub_url}: "
                               f"{error}") from error
        ended = threading.Event()
        heart = threading.Thread(target=self._heartbeats, args=(ended,), name="spokes-heartbeat", daemon=True)
        heart.start()
        try:
            while not self._ending():
                if self.revoked.is_set() and not self._revocation():
                    return
                self._attempt(self._messages)
                if not self._busy():
                    self._attempt(self._tasks)
                self._rest(self.poll)
            if self.refused is not None:
                raise RuntimeError(f"{self.client.hub_url} does not accept the token of {self.client.agent_name}: "
                                   f"{self.refused}") from self.refused
        finally:
            ended.set()
            self.interrupt.set()
            heart.join(self.client.timeout + 1)
            self.handled.close()

    # ---- both threads ----

    def _ending(self) -> bool:
        return self.stop.is_set() or self.refused is not None

    def _failed(self, error: Exception) -> None:
        if isinstance(error, Unauthenticated):
            self.refused = error
            self.interrupt.set()
        if self.on_error:
            self.on_error(error)

    def _attempt(self, work: Callable[[], None]) -> None:
        """Nothing that fails ends the loop."""
        try:
            work()
        except Exception as error:
            self._failed(error)

    def _rest(self, seconds: float) -> None:
        """Until then, or until there is something to see to."""
        end = time.monotonic() + seconds
        while not self._busy():
            left = end - time.monotonic()
            if left <= 0:
                return
            self.stop.wait(min(left, 0.2))

    # ---- the heartbeat's thread ----

    def _heartbeats(self, ended: threading.Event) -> None:
        while True:
            self._attempt(self._heartbeat)
            if self.refused is not None:
                return
            end = time.monotonic() + self.beat
            while (left := end - time.monotonic()) > 0:
                if self.stop.is_set():
                    self.interrupt.set()
                if ended.wait(min(left, 0.2)):
                    return

    def _heartbeat(self) -> None:
        try:
            beat: Beat = self.client.beat()
        except NotFound:  # the hub does not know us (any more)
            self.client.register(self.metadata)
            return
        if beat.get("pending_revocation"):
            self.revoked.set()
            self.interrupt.set()
        elif beat.get("checkpoint_due"):
            work = self.work
            self.client.submit_checkpoint(work.task_id if work else None, work.state if work else "idle",
                                          "a checkpoint was due")

    # ---- revocations ----

    def _revocation(self) -> bool:
        """True to go on."""
        try:
            found = self.client.check_revocation()
            if found.get("pending"):
                if self.on_revoked:
                    self.on_revoked(found)
                if not self.client.acknowledge_revocation(found.get("revocation_id", "")):
                    raise AtollError("the revocation was not acknowledged")
                if self.after == "resume":
                    self.client.register(self.metadata)
        except Exception as error:  # it stays pending; once more, later
            self._failed(error)
            self.stop.wait(self.poll)
            return not self._ending()
        self.interrupt.clear()
        self.revoked.clear()
        self.left.clear()
        return self.after == "resume"

    # ---- messages ----

    def _due(self, message: Message) -> bool:
        return time.monotonic() >= self.failed.get(message["id"], (0.0, 0.0))[0]

    def _messages(self) -> None:
        if self.handler is None:
            return
        for message in self.client.get_messages(unread_only=True):
            if self._busy():
                return
            if message["id"] not in self.handled:
                if not self._due(message):
                    continue
                try:
                    self.handler(message)
                except Exception as error:
                    pause = min(PAUSE_MAX, 2 * self.failed.get(message["id"], (0.0, PAUSE_FIRST / 2))[1])
                    self.failed[message["id"]] = (time.monotonic() + pause, pause)
                    self._failed(error)
                    continue
                self.failed.pop(message["id"], None)
                self.handled.add(message["id"])
            if self.auto_ack:
                self.client.ack(message["id"])

    # ---- tasks ----

    def _tasks(self) -> None:
        if self.task_handler is None:
            return
        self._finish()
        projects = self.projects
        if projects is None:
            projects = [one["id"] for one in self.client.list_projects(self.client.agent_name)]
        for project in projects:
            self._own(project)
            for task in self.client.get_ready_tasks(project):
                if not self._busy() and task["id"] not in self.seen and self._claim(project, task["id"]):
                    self._own(project)

    def _busy(self) -> bool:
        return self._ending() or self.revoked.is_set()

    def _claim(self, project: str, task: str) -> bool:
        try:
            claim = self.client.claim_task(project, task)
        except (Conflict, Forbidden, InvalidRequest, NotFound):
            return False  # somebody else's, or not for us
        if not claim.get("ok"):
            self.seen.add(task)  # an operator decides; if for us, it becomes ours
        return bool(claim.get("ok"))

    def _own(self, project: str) -> None:
        """Works on what is ours: claimed, assigned by a human, approved, or left by an earlier run."""
        for task in self.client.list_tasks(project, agent=self.client.agent_name):
            mine = task["assigned_to"] == self.client.agent_name
            known = self.left.get(task["id"]) == task["updated_at"]
            if mine and task["status"] in ("ready", "in_progress") and not known:
                if self._busy():
                    return
                self._do(project, task["id"], task["status"])

    def _do(self, project: str, task_id: str, status: str) -> None:
        client, handler = self.client, self.task_handler
        if handler is None:
            return
        proposed = status == "ready" and "proposal_id" in client.move_task(project, task_id, "in_progress")
        task = client.get_task(project, task_id)
        if proposed and task["status"] == "ready":
            self.left[task_id] = task["updated_at"]  # people decide; once they approve, it has changed
            return
        self.left[task_id] = task["updated_at"]  # begun again only when something has happened to it
        self.work, reason = Work(client, project, task, self.interrupt), ""
        try:
            state = handler(self.work)
        except Exception as error:
            self._failed(error)
            state, reason = "blocked", f"{type(error).__name__}: {error}"[:500]
        finally:
            self.work = None
        if state:
            self.finished[task_id] = (project, state, reason)
            self._finish()

    def _finish(self) -> None:
        """Tells the hub what became of tasks; what it could not be told now, it is told later."""
        for task_id, (project, state, reason) in list(self.finished.items()):
            try:
                self.client.move_task(project, task_id, state, blocked_reason=reason or None)
            except (ConnectionFailed, RequestTimeout, Unavailable):
                raise
            except AtollError as error:
                self._failed(error)
                if isinstance(error, Conflict) or "WIP limit" in str(error):
                    continue  # paused, or no room there: not now
            del self.finished[task_id]
