"""One sandbox: its commands, its files, its life."""
import base64
from typing import TYPE_CHECKING, Any, List, Literal, Mapping, Optional, Sequence, Union

from . import _models as models
from ._errors import NotFound
from ._files import Files
from ._model import Nothing
from ._process import WAIT_MS, WAIT_SLACK, ExecResult, Process
from ._terminal import Terminal
from ._transport import Content, Options, every

if TYPE_CHECKING:
    from ._client import Client

User = Literal["agent", "root"]
Visibility = Literal["private", "tenant"]
Command = Union[str, Sequence[str]]
LIFE_SECONDS = 120.0  # to start, stop, copy
STDIN_INLINE = 262144  # bytes of input that go with the request itself


class Sandbox:
    """`info` is what was last heard of it. As a context manager it is deleted in the end."""

    def __init__(self, client: "Client", info: models.SandboxInfo) -> None:
        self.client, self.info = client, info
        self._api = client.api
        self.files = Files(self)

    @property
    def id(self) -> str:
        return self.info.id

    @property
    def name(self) -> Optional[str]:
        return self.info.name

    @property
    def state(self) -> str:
        """creating, running, paused, stopped or failed, as last heard; see refresh()."""
        return self.info.state

    def __repr__(self) -> str:
        return f"<atoll.Sandbox {self.id} {self.state}>"

    def __enter__(self) -> "Sandbox":
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.delete()
        except NotFound:
            pass

    # ---- commands ----

    def spawn(self, command: Command, *, name: Optional[str] = None, cwd: Optional[str] = None,
              user: Optional[User] = None, env: Optional[Mapping[str, str]] = None, tty: bool = False,
              stdin_open: bool = False, rows: Optional[int] = None, cols: Optional[int] = None,
              timeout_ms: Optional[int] = None, files: Optional[Sequence[models.FileRule]] = None) -> Process:
        """Starts a command: a list is a program and its arguments, a text a line for the shell."""
        return self._exec(0, command, name=name, cwd=cwd, user=user, env=env, tty=tty, stdin_open=stdin_open,
                          rows=rows, cols=cols, timeout_ms=timeout_ms, files=files)

    def exec(self, command: Command, *, stdin: Union[None, str, Content] = None, cwd: Optional[str] = None,
             user: Optional[User] = None, env: Optional[Mapping[str, str]] = None,
             timeout_ms: Optional[int] = None, files: Optional[Sequence[models.FileRule]] = None,
             check: bool = False) -> ExecResult:
        """Runs a command and waits for its end. `timeout_ms` kills it and everything that it started; `check`
        makes a CommandFailed of anything but exit code 0."""
        given = stdin.encode() if isinstance(stdin, str) else stdin
        if given is None or (isinstance(given, (bytes, bytearray)) and len(given) <= STDIN_INLINE):
            process = self._exec(WAIT_MS, command, cwd=cwd, user=user, env=env, timeout_ms=timeout_ms, files=files,
                                 stdin=None if given is None else bytes(given), hold=True)
            result = process.wait()
        else:
            process = self._exec(0, command, cwd=cwd, user=user, env=env, timeout_ms=timeout_ms, files=files,
                                 stdin_open=True, hold=True)
            result = process.communicate(given)
        return result.check() if check else result

    def _exec(self, wait: int, command: Command, *, cwd: Optional[str], user: Optional[User],
              env: Optional[Mapping[str, str]], timeout_ms: Optional[int],
              files: Optional[Sequence[models.FileRule]], tty: bool = False, stdin_open: bool = False,
              rows: Optional[int] = None, cols: Optional[int] = None, name: Optional[str] = None,
              stdin: Optional[bytes] = None, hold: bool = False) -> Process:
        line, argv = (command, None) if isinstance(command, str) else (None, list(command))
        info = self._api.exec_create(
            self.id, wait=wait or None, argv=argv, command=line, name=name, cwd=cwd, user=user, env=env,
            tty=tty or None, stdin_open=stdin_open or None, hold=hold or None, rows=rows, cols=cols,
            timeout_ms=timeout_ms, files=files,
            stdin_base64=None if stdin is None else base64.b64encode(stdin).decode(),
            options=Options(timeout=wait / 1000 + self.client.timeout + WAIT_SLACK))
        return Process(self, info, input_at=0 if stdin is None else None)

    def processes(self) -> List[Process]:
        """Its commands that are kept, oldest first."""
        return [Process(self, info) for info in self._api.exec_list(self.id).items]

    def process(self, id: str) -> Process:
        """One of them, to be read or waited for by another client than the one that started it."""
        return Process(self, self._api.exec_read(self.id, id))

    # ---- terminals ----

    def open_terminal(self, command: Optional[Command] = None, *, name: Optional[str] = None,
                      rows: Optional[int] = None, cols: Optional[int] = None, cwd: Optional[str] = None,
                      user: Optional[User] = None, env: Optional[Mapping[str, str]] = None,
                      timeout_ms: Optional[int] = None, max_controllers: Optional[int] = None,
                      lease_ms: Optional[int] = None,
                      files: Optional[Sequence[models.FileRule]] = None) -> Terminal:
        """Starts a terminal: a shell, unless a command is given. It runs on when nobody is attached."""
        line, argv = (command, None) if command is None or isinstance(command, str) else (None, list(command))
        return Terminal(self, self._api.terminal_create(
            self.id, argv=argv, command=line, name=name, rows=rows, cols=cols, cwd=cwd, user=user, env=env,
            timeout_ms=timeout_ms, max_controllers=max_controllers, lease_ms=lease_ms, files=files,
            options=Options(timeout=LIFE_SECONDS)))

    def terminals(self) -> List[Terminal]:
        return [Terminal(self, info) for info in self._api.terminal_list(self.id).items]

    def terminal(self, id: str) -> Terminal:
        """By id or name."""
        return Terminal(self, self._api.terminal_read(self.id, id))

    # ---- life ----

    def refresh(self) -> models.SandboxInfo:
        self.info = self._api.sandbox_read(self.id)
        return self.info

    def pause(self) -> None:
        self.info = self._api.sandbox_pause(self.id)

    def resume(self) -> None:
        self.info = self._api.sandbox_resume(self.id)

    def stop(self) -> None:
        """Kills everything in it; its files stay (storage disk)."""
        self.info = self._api.sandbox_stop(self.id, options=Options(timeout=LIFE_SECONDS))

    def start(self) -> None:
        """Lets a stopped one run again."""
        self.info = self._api.sandbox_start(self.id, options=Options(timeout=LIFE_SECONDS))

    def delete(self) -> None:
        """It and everything in it, for good."""
        self.info = self._api.sandbox_delete(self.id, options=Options(timeout=LIFE_SECONDS))

    def update(self, *, memory: Optional[int] = None, pids: Optional[int] = None, cpu_percent: Optional[int] = None,
               io_bytes: Optional[int] = None, io_ops: Optional[int] = None,
               disk: Optional[int] = None, inodes: Optional[int] = None, ttl_ms: Optional[int] = None,
               labels: Optional[Mapping[str, str]] = None, idle: Union[models.IdlePolicy, Nothing, None] = None,
               egress: Optional[models.EgressSpec] = None, owner: Optional[str] = None,
               visibility: Optional[Visibility] = None,
               shared_with: Optional[Sequence[str]] = None) -> None:
        """Other limits, lifetime, labels, idle policy or access, while it runs or not; what is not named stays. An
        idle policy is taken back by `NOTHING`. `shared_with` names tokens of role agent."""
        self.info = self._api.sandbox_change(self.id, memory=memory, pids=pids, cpu_percent=cpu_percent,
                                             io_bytes=io_bytes, io_ops=io_ops, disk=disk, inodes=inodes,
                                             ttl_ms=ttl_ms, labels=labels, idle=idle, egress=egress,
                                             owner=owner, visibility=visibility, shared_with=shared_with)

    def fork(self, *, name: Optional[str] = None, ttl_ms: Optional[int] = None,
             labels: Optional[Mapping[str, str]] = None) -> "Sandbox":
        """Another sandbox with a copy of its files as they are now."""
        return Sandbox(self.client, self._api.sandbox_fork(self.id, name=name, ttl_ms=ttl_ms, labels=labels,
                                                           options=Options(timeout=LIFE_SECONDS)))

    # ---- what it may reach ----

    def egress(self) -> models.EgressPolicy:
        """Every rule that counts for it and whose it is, its limits, and what it has used."""
        return self._api.egress_sandbox_read(self.id)

    def explain(self, url: str, *, method: Optional[str] = None) -> models.EgressExplanation:
        """Would it reach this, and by which rule? Nothing is looked up or sent."""
        return self._api.egress_explain(self.id, url=url, method=method)

    def allow(self, rule: str, *, level: Optional[Literal["sandbox", "project", "tenant", "node"]] = None) -> None:
        """Allows a host, for it or for all of its project, its tenant or the node."""
        self._api.egress_rule_add(self.id, rule=rule, verdict="allow", level=level)

    def deny(self, rule: str, *, level: Optional[Literal["sandbox", "project", "tenant", "node"]] = None) -> None:
        """Denies a host; that wins over every allow."""
        self._api.egress_rule_add(self.id, rule=rule, verdict="deny", level=level)

    def egress_records(self, *, denied: bool = False, since: Optional[int] = None,
                       limit: Optional[int] = None) -> List[models.EgressRecord]:
        """What it reached or tried to: the newest, or those after the number `since`."""
        return self._api.egress_sandbox_records(self.id, denied="true" if denied else None, since=since,
                                                limit=limit).items

    def egress_hosts(self) -> List[models.EgressHost]:
        """The same counted by host, the most denied first."""
        return self._api.egress_sandbox_hosts(self.id).items

    def crashes(self) -> List[models.CrashInfo]:
        """When and how its process 1 died by itself, newest first."""
        return self._api.sandbox_crashes(self.id).items

    # ---- snapshots ----

    def snapshot(self, name: str) -> models.SnapshotInfo:
        """Keeps its files as they are now, under a name."""
        return self._api.snapshot_create(self.id, name=name, options=Options(timeout=LIFE_SECONDS))

    def snapshots(self) -> List[models.SnapshotInfo]:
        return every(lambda after, limit: self._api.snapshot_list_of(self.id, after=after, limit=limit))

    def delete_snapshot(self, snapshot: str) -> models.SnapshotInfo:
        return self._api.snapshot_delete_of(self.id, snapshot)

    def rollback(self, snapshot: str) -> models.SandboxRollbackResult:
        """Gives it back the files of a snapshot; its commands end."""
        done = self._api.sandbox_rollback(self.id, snapshot=snapshot, options=Options(timeout=LIFE_SECONDS))
        self.refresh()
        return done

    # ---- what it uses, what holds it ----

    def stats(self) -> models.SandboxStats:
        return self._api.sandbox_stats(self.id)

    def ps(self) -> List[models.ProcessInfo]:
        return self._api.process_list(self.id).items

    def ports(self) -> List[models.PortInfo]:
        """What programs in it listen on."""
        return self._api.port_list(self.id).items

    def preview(self, port: int, path: Optional[str] = None) -> str:
        """A link for a browser to what listens on a port; it lets in whoever opens it within ten minutes."""
        return self._api.port_preview(self.id, port=port, path=path).url

    def applied(self) -> Any:
        """What isolates it, as the kernel tells."""
        return self._api.sandbox_applied(self.id)
