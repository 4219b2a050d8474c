"""One method for each operation of the API. Made by tools/gen-sdk from the route tables; do not edit."""
from typing import Any, Dict, Literal, Mapping, Optional, Sequence, Union

from . import _models as models
from ._model import Nothing
from ._transport import Caller, Content, Operation, Options, Page, Stream
from ._websocket import WebSocket

API_VERSION = "0.1.0"
OPERATIONS: Dict[str, Operation] = {
    "health.read": Operation("GET", "/api/v1/health"),
    "version.read": Operation("GET", "/api/v1/version"),
    "whoami.read": Operation("GET", "/api/v1/whoami"),
    "metrics.read": Operation("GET", "/metrics"),
    "doctor.read": Operation("GET", "/api/v1/doctor"),
    "limits.read": Operation("GET", "/api/v1/limits"),
    "token.create": Operation("POST", "/api/v1/tokens", creates=True),
    "token.list": Operation("GET", "/api/v1/tokens"),
    "token.revoke": Operation("DELETE", "/api/v1/tokens/{id}"),
    "login.link": Operation("POST", "/api/v1/login-links", creates=True),
    "event.read": Operation("GET", "/api/v1/events"),
    "event.stream": Operation("GET", "/api/v1/events"),
    "note.create": Operation("POST", "/api/v1/notes", creates=True),
    "audit.read": Operation("GET", "/api/v1/audit"),
    "audit.verify": Operation("GET", "/api/v1/audit/verify"),
    "backup.create": Operation("POST", "/api/v1/backups", creates=True),
    "backup.read": Operation("GET", "/api/v1/backups/{name}"),
    "backup.delete": Operation("DELETE", "/api/v1/backups/{name}"),
    "sandbox.create": Operation("POST", "/api/v1/sandboxes", creates=True),
    "sandbox.list": Operation("GET", "/api/v1/sandboxes"),
    "sandbox.read": Operation("GET", "/api/v1/sandboxes/{id}"),
    "sandbox.delete": Operation("DELETE", "/api/v1/sandboxes/{id}"),
    "sandbox.change": Operation("PATCH", "/api/v1/sandboxes/{id}"),
    "sandbox.pause": Operation("POST", "/api/v1/sandboxes/{id}/pause"),
    "sandbox.resume": Operation("POST", "/api/v1/sandboxes/{id}/resume"),
    "sandbox.stop": Operation("POST", "/api/v1/sandboxes/{id}/stop"),
    "sandbox.start": Operation("POST", "/api/v1/sandboxes/{id}/start"),
    "sandbox.stats": Operation("GET", "/api/v1/sandboxes/{id}/stats"),
    "sandbox.applied": Operation("GET", "/api/v1/sandboxes/{id}/applied"),
    "exec.create": Operation("POST", "/api/v1/sandboxes/{id}/execs", creates=True),
    "exec.list": Operation("GET", "/api/v1/sandboxes/{id}/execs"),
    "exec.read": Operation("GET", "/api/v1/sandboxes/{id}/execs/{eid}"),
    "exec.output": Operation("GET", "/api/v1/sandboxes/{id}/execs/{eid}/output"),
    "exec.stdin": Operation("POST", "/api/v1/sandboxes/{id}/execs/{eid}/stdin"),
    "exec.signal": Operation("POST", "/api/v1/sandboxes/{id}/execs/{eid}/signal"),
    "exec.cancel": Operation("POST", "/api/v1/sandboxes/{id}/execs/{eid}/cancel"),
    "exec.resize": Operation("POST", "/api/v1/sandboxes/{id}/execs/{eid}/resize"),
    "file.read": Operation("GET", "/api/v1/sandboxes/{id}/files"),
    "file.write": Operation("PUT", "/api/v1/sandboxes/{id}/files"),
    "file.remove": Operation("DELETE", "/api/v1/sandboxes/{id}/files"),
    "file.append": Operation("POST", "/api/v1/sandboxes/{id}/files/append"),
    "file.list": Operation("GET", "/api/v1/sandboxes/{id}/files/list"),
    "file.stat": Operation("GET", "/api/v1/sandboxes/{id}/files/stat"),
    "file.mkdir": Operation("POST", "/api/v1/sandboxes/{id}/files/mkdir"),
    "file.move": Operation("POST", "/api/v1/sandboxes/{id}/files/move"),
    "tree.read": Operation("GET", "/api/v1/sandboxes/{id}/files/tree"),
    "tree.write": Operation("PUT", "/api/v1/sandboxes/{id}/files/tree"),
    "tree.manifest": Operation("GET", "/api/v1/sandboxes/{id}/files/manifest"),
    "sandbox.changes": Operation("GET", "/api/v1/sandboxes/{id}/changes"),
    "file.watch": Operation("GET", "/api/v1/sandboxes/{id}/files/watch"),
    "volume.create": Operation("POST", "/api/v1/volumes", creates=True),
    "volume.list": Operation("GET", "/api/v1/volumes"),
    "volume.read": Operation("GET", "/api/v1/volumes/{volume}"),
    "volume.change": Operation("PATCH", "/api/v1/volumes/{volume}"),
    "volume.delete": Operation("DELETE", "/api/v1/volumes/{volume}"),
    "snapshot.create": Operation("POST", "/api/v1/sandboxes/{id}/snapshots", creates=True),
    "snapshot.list_of": Operation("GET", "/api/v1/sandboxes/{id}/snapshots"),
    "snapshot.delete_of": Operation("DELETE", "/api/v1/sandboxes/{id}/snapshots/{snapshot}"),
    "snapshot.list": Operation("GET", "/api/v1/snapshots"),
    "snapshot.delete": Operation("DELETE", "/api/v1/snapshots/{snapshot}"),
    "sandbox.fork": Operation("POST", "/api/v1/sandboxes/{id}/fork", creates=True),
    "sandbox.rollback": Operation("POST", "/api/v1/sandboxes/{id}/rollback"),
    "pool.list": Operation("GET", "/api/v1/pools"),
    "pool.set": Operation("PUT", "/api/v1/pools/{name}"),
    "image.import": Operation("POST", "/api/v1/images"),
    "image.list": Operation("GET", "/api/v1/images"),
    "image.read": Operation("GET", "/api/v1/images/{name}"),
    "image.delete": Operation("DELETE", "/api/v1/images/{name}"),
    "secret.list": Operation("GET", "/api/v1/secrets"),
    "secret.create": Operation("POST", "/api/v1/secrets", creates=True),
    "secret.put": Operation("PUT", "/api/v1/secrets/{name}"),
    "secret.delete": Operation("DELETE", "/api/v1/secrets/{name}"),
    "terminal.create": Operation("POST", "/api/v1/sandboxes/{id}/terminals", creates=True),
    "terminal.list": Operation("GET", "/api/v1/sandboxes/{id}/terminals"),
    "terminal.read": Operation("GET", "/api/v1/sandboxes/{id}/terminals/{tid}"),
    "terminal.kill": Operation("DELETE", "/api/v1/sandboxes/{id}/terminals/{tid}"),
    "terminal.attach": Operation("GET", "/api/v1/sandboxes/{id}/terminals/{tid}/ws"),
    "terminal.screen": Operation("GET", "/api/v1/sandboxes/{id}/terminals/{tid}/screen"),
    "terminal.recording": Operation("GET", "/api/v1/sandboxes/{id}/terminals/{tid}/recording"),
    "terminal.signal": Operation("POST", "/api/v1/sandboxes/{id}/terminals/{tid}/signal"),
    "terminal.resize": Operation("POST", "/api/v1/sandboxes/{id}/terminals/{tid}/resize"),
    "port.list": Operation("GET", "/api/v1/sandboxes/{id}/ports"),
    "port.preview": Operation("POST", "/api/v1/sandboxes/{id}/previews"),
    "sandbox.crashes": Operation("GET", "/api/v1/sandboxes/{id}/crashes"),
    "quota.list": Operation("GET", "/api/v1/quotas"),
    "quota.set": Operation("PUT", "/api/v1/quotas/{subject}"),
    "quota.delete": Operation("DELETE", "/api/v1/quotas/{subject}"),
    "template.list": Operation("GET", "/api/v1/templates"),
    "template.read": Operation("GET", "/api/v1/templates/{template_name}"),
    "template.set": Operation("PUT", "/api/v1/templates/{template_name}"),
    "template.delete": Operation("DELETE", "/api/v1/templates/{template_name}"),
    "process.list": Operation("GET", "/api/v1/sandboxes/{id}/processes"),
    "egress.sandbox.read": Operation("GET", "/api/v1/sandboxes/{id}/egress"),
    "egress.explain": Operation("GET", "/api/v1/sandboxes/{id}/egress/explain"),
    "egress.rule.add": Operation("POST", "/api/v1/sandboxes/{id}/egress/rules"),
    "egress.sandbox.records": Operation("GET", "/api/v1/sandboxes/{id}/egress/records"),
    "egress.sandbox.hosts": Operation("GET", "/api/v1/sandboxes/{id}/egress/hosts"),
    "ask.list": Operation("GET", "/api/v1/asks"),
    "ask.read": Operation("GET", "/api/v1/asks/{ask}"),
    "ask.decide": Operation("POST", "/api/v1/asks/{ask}/decision"),
}


class Api(Caller):
    def health_read(self, *, options: Optional[Options] = None) -> models.Health:
        """State, version and load of the server."""
        return self._json(OPERATIONS["health.read"], {}, {}, None, models.Health, options)

    def version_read(self, *, options: Optional[Options] = None) -> Any:
        """Version of the program and of the API."""
        return self._any(OPERATIONS["version.read"], {}, {}, None, options)

    def whoami_read(self, *, options: Optional[Options] = None) -> models.Whoami:
        """Who the server takes the caller for."""
        return self._json(OPERATIONS["whoami.read"], {}, {}, None, models.Whoami, options)

    def metrics_read(self, *, options: Optional[Options] = None) -> Stream:
        """Prometheus text; 404 with the setting metrics_enabled = false."""
        return self.send(OPERATIONS["metrics.read"], {}, {}, None, options)

    def doctor_read(self, *, options: Optional[Options] = None) -> Any:
        """What `atoll doctor` found when the server started: `ok`, `at`, and `items` with `name`, `state` (ok,
        lost, fail, unknown), `found`, `lost` and `fix`. 503 until the checks have ended."""
        return self._any(OPERATIONS["doctor.read"], {}, {}, None, options)

    def limits_read(self, *, options: Optional[Options] = None) -> Any:
        """What this server allows: `items` with `of`, `name`, `unit`, `least`, `most`, `help`, and the `setting`
        that says it, or null."""
        return self._any(OPERATIONS["limits.read"], {}, {}, None, options)

    def token_create(self, *, name: str, role: Literal["admin", "operator", "viewer", "agent", "sandbox"],
                     tenant: Optional[str] = None, scopes: Optional[Sequence[str]] = None,
                     ttl_ms: Optional[int] = None, signing: Optional[bool] = None,
                     options: Optional[Options] = None) -> models.NewToken:
        """Make a token. It is shown this once."""
        body = {"name": name, "role": role, "tenant": tenant, "scopes": scopes, "ttl_ms": ttl_ms, "signing": signing}
        return self._json(OPERATIONS["token.create"], {}, {}, body, models.NewToken, options)

    def token_list(self, *, tenant: Optional[str] = None,
                   options: Optional[Options] = None) -> Page[models.TokenInfo]:
        """All tokens of the caller's tenant, oldest first, without the tokens themselves."""
        return self._page(OPERATIONS["token.list"], {}, {"tenant": tenant}, None, models.TokenInfo, options)

    def token_revoke(self, id: str, *, tenant: Optional[str] = None,
                     options: Optional[Options] = None) -> models.TokenInfo:
        """Revoke a token, by id or name; it stops working at once."""
        return self._json(OPERATIONS["token.revoke"], {"id": id}, {"tenant": tenant}, None, models.TokenInfo, options)

    def login_link(self, *, options: Optional[Options] = None) -> models.LoginLink:
        """A one-time link that logs a browser in with the caller's role."""
        return self._json(OPERATIONS["login.link"], {}, {}, None, models.LoginLink, options)

    def event_read(self, *, since: Optional[int] = None, limit: Optional[int] = None, type: Optional[str] = None,
                   object: Optional[str] = None, options: Optional[Options] = None) -> Any:
        """Events after number `since`, oldest first. With Accept: text/event-stream, or as a WebSocket, they go
        on live. With `source`, `event_type`, `include_archived`, `follow` or a time as `since` it is agentic's
        question and gets its answer: `{events, total_count, last_event_id}`, the newest first. Without any of
        these and without `since`, `type` and `object` the answer holds both."""
        return self._any(OPERATIONS["event.read"], {},
                         {"since": since, "limit": limit, "type": type, "object": object}, None, options)

    def event_stream(self, *, since: Optional[int] = None, limit: Optional[int] = None, type: Optional[str] = None,
                     object: Optional[str] = None, options: Optional[Options] = None) -> Stream:
        """Events after number `since`, oldest first. With Accept: text/event-stream, or as a WebSocket, they go
        on live. With `source`, `event_type`, `include_archived`, `follow` or a time as `since` it is agentic's
        question and gets its answer: `{events, total_count, last_event_id}`, the newest first. Without any of
        these and without `since`, `type` and `object` the answer holds both."""
        return self.send(OPERATIONS["event.stream"], {},
                         {"since": since, "limit": limit, "type": type, "object": object}, None, options)

    def note_create(self, *, text: str, options: Optional[Options] = None) -> models.NoteInfo:
        """Write a note into the event log, where everyone who listens sees it."""
        body = {"text": text}
        return self._json(OPERATIONS["note.create"], {}, {}, body, models.NoteInfo, options)

    def audit_read(self, *, since: Optional[int] = None, limit: Optional[int] = None,
                   options: Optional[Options] = None) -> Any:
        """Audit rows after number `since`, oldest first; without it the newest."""
        return self._any(OPERATIONS["audit.read"], {}, {"since": since, "limit": limit}, None, options)

    def audit_verify(self, *, options: Optional[Options] = None) -> models.AuditVerdict:
        """Check the hash chain from the first row to the last."""
        return self._json(OPERATIONS["audit.verify"], {}, {}, None, models.AuditVerdict, options)

    def backup_create(self, *, name: str, options: Optional[Options] = None) -> models.BackupInfo:
        """A consistent copy of the store, made while it serves. Refuses to overwrite."""
        body = {"name": name}
        return self._json(OPERATIONS["backup.create"], {}, {}, body, models.BackupInfo, options)

    def backup_read(self, name: str, *, options: Optional[Options] = None) -> Stream:
        """Download a backup."""
        return self.send(OPERATIONS["backup.read"], {"name": name}, {}, None, options)

    def backup_delete(self, name: str, *, options: Optional[Options] = None) -> Any:
        """Remove a backup from the server's disk."""
        return self._any(OPERATIONS["backup.delete"], {"name": name}, {}, None, options)

    def sandbox_create(self, *, name: Optional[str] = None, user: Optional[Literal["agent", "root"]] = None,
                       memory: Optional[int] = None, pids: Optional[int] = None, cpu_percent: Optional[int] = None,
                       io_bytes: Optional[int] = None, io_ops: Optional[int] = None, disk: Optional[int] = None,
                       inodes: Optional[int] = None, nofile: Optional[int] = None, ttl_ms: Optional[int] = None,
                       env: Optional[Mapping[str, str]] = None, labels: Optional[Mapping[str, str]] = None,
                       storage: Optional[Literal["memory", "disk"]] = None, image: Optional[str] = None,
                       from_snapshot: Optional[str] = None, template: Optional[str] = None,
                       volumes: Optional[Sequence[models.VolumeMount]] = None,
                       binds: Optional[Sequence[models.BindMount]] = None,
                       files: Optional[Sequence[models.FileRule]] = None, idle: Optional[models.IdlePolicy] = None,
                       egress: Optional[models.EgressSpec] = None, nesting: Optional[bool] = None,
                       sys: Optional[bool] = None, tier: Optional[Literal["T0", "T1", "T2", "T3", "T4", "vm"]] = None,
                       warm: Optional[bool] = None, owner: Optional[str] = None,
                       visibility: Optional[Literal["private", "tenant"]] = None,
                       shared_with: Optional[Sequence[str]] = None,
                       options: Optional[Options] = None) -> models.SandboxInfo:
        """Make a sandbox; answered when it runs."""
        body = {"name": name, "user": user, "memory": memory, "pids": pids, "cpu_percent": cpu_percent,
                "io_bytes": io_bytes, "io_ops": io_ops, "disk": disk, "inodes": inodes, "nofile": nofile,
                "ttl_ms": ttl_ms, "env": env, "labels": labels, "storage": storage, "image": image,
                "from_snapshot": from_snapshot, "template": template, "volumes": volumes, "binds": binds,
                "files": files, "idle": idle, "egress": egress, "nesting": nesting, "sys": sys, "tier": tier,
                "warm": warm, "owner": owner, "visibility": visibility, "shared_with": shared_with}
        return self._json(OPERATIONS["sandbox.create"], {}, {}, body, models.SandboxInfo, options)

    def sandbox_list(self, *, state: Optional[str] = None, label: Optional[str] = None, name: Optional[str] = None,
                     after: Optional[str] = None, limit: Optional[int] = None,
                     options: Optional[Options] = None) -> Page[models.SandboxInfo]:
        """The caller's sandboxes, oldest first: all, or those with a `label` (KEY or KEY=VALUE), a `state`, a
        `name` that begins so; a page of at most `limit` (100) behind the id `after`. `next` is the `after` of
        the next page, null at the end; a page may be shorter than `limit` and have a `next`."""
        return self._page(OPERATIONS["sandbox.list"], {},
                          {"state": state, "label": label, "name": name, "after": after, "limit": limit}, None,
                          models.SandboxInfo, options)

    def sandbox_read(self, id: str, *, options: Optional[Options] = None) -> models.SandboxInfo:
        """One sandbox, by id, by name, or by the beginning of its id. Calls that stop or delete something take
        the whole id or the name."""
        return self._json(OPERATIONS["sandbox.read"], {"id": id}, {}, None, models.SandboxInfo, options)

    def sandbox_delete(self, id: str, *, options: Optional[Options] = None) -> models.SandboxInfo:
        """Kill everything in it and forget it, its commands and their output."""
        return self._json(OPERATIONS["sandbox.delete"], {"id": id}, {}, None, models.SandboxInfo, options)

    def sandbox_change(self, id: str, *, memory: Optional[int] = None, pids: Optional[int] = None,
                       cpu_percent: Optional[int] = None, io_bytes: Optional[int] = None,
                       io_ops: Optional[int] = None, disk: Optional[int] = None, inodes: Optional[int] = None,
                       ttl_ms: Optional[int] = None, labels: Optional[Mapping[str, str]] = None,
                       idle: Union[models.IdlePolicy, Nothing, None] = None,
                       egress: Optional[models.EgressSpec] = None, owner: Optional[str] = None,
                       visibility: Optional[Literal["private", "tenant"]] = None,
                       shared_with: Optional[Sequence[str]] = None,
                       options: Optional[Options] = None) -> models.SandboxInfo:
        """Give it other limits, another lifetime, idle policy or labels, while it runs or not. What is not named
        stays."""
        body = {"memory": memory, "pids": pids, "cpu_percent": cpu_percent, "io_bytes": io_bytes, "io_ops": io_ops,
                "disk": disk, "inodes": inodes, "ttl_ms": ttl_ms, "labels": labels, "idle": idle, "egress": egress,
                "owner": owner, "visibility": visibility, "shared_with": shared_with}
        return self._json(OPERATIONS["sandbox.change"], {"id": id}, {}, body, models.SandboxInfo, options)

    def sandbox_pause(self, id: str, *, options: Optional[Options] = None) -> models.SandboxInfo:
        """Freeze every process in it."""
        return self._json(OPERATIONS["sandbox.pause"], {"id": id}, {}, None, models.SandboxInfo, options)

    def sandbox_resume(self, id: str, *, options: Optional[Options] = None) -> models.SandboxInfo:
        """Let it go on after a pause."""
        return self._json(OPERATIONS["sandbox.resume"], {"id": id}, {}, None, models.SandboxInfo, options)

    def sandbox_stop(self, id: str, *, options: Optional[Options] = None) -> models.SandboxInfo:
        """Kill everything in it. Its files, its commands and their output stay; refused with storage memory,
        where the files would not."""
        return self._json(OPERATIONS["sandbox.stop"], {"id": id}, {}, None, models.SandboxInfo, options)

    def sandbox_start(self, id: str, *, options: Optional[Options] = None) -> models.SandboxInfo:
        """Let a stopped one run again, with the files and limits it had and its volumes."""
        return self._json(OPERATIONS["sandbox.start"], {"id": id}, {}, None, models.SandboxInfo, options)

    def sandbox_stats(self, id: str, *, options: Optional[Options] = None) -> models.SandboxStats:
        """What it uses now, as the kernel counts it."""
        return self._json(OPERATIONS["sandbox.stats"], {"id": id}, {}, None, models.SandboxStats, options)

    def sandbox_applied(self, id: str, *, options: Optional[Options] = None) -> Any:
        """What isolates it, read back from the kernel: namespaces, capabilities, filters, mounts, limits."""
        return self._any(OPERATIONS["sandbox.applied"], {"id": id}, {}, None, options)

    def exec_create(self, id: str, *, wait: Optional[int] = None, argv: Optional[Sequence[str]] = None,
                    command: Optional[str] = None, cwd: Optional[str] = None,
                    user: Optional[Literal["agent", "root"]] = None, env: Optional[Mapping[str, str]] = None,
                    tty: Optional[bool] = None, background: Optional[bool] = None, stdin_open: Optional[bool] = None,
                    hold: Optional[bool] = None, stdin: Optional[str] = None, stdin_base64: Optional[str] = None,
                    rows: Optional[int] = None, cols: Optional[int] = None, timeout_ms: Optional[int] = None,
                    files: Optional[Sequence[models.FileRule]] = None, name: Optional[str] = None,
                    max_controllers: Optional[int] = None, lease_ms: Optional[int] = None,
                    options: Optional[Options] = None) -> models.ExecInfo:
        """Run a command; answered when it has started, or with `wait` (milliseconds) when it has ended, that time
        is over, or `hold` holds it back."""
        body = {"argv": argv, "command": command, "cwd": cwd, "user": user, "env": env, "tty": tty,
                "background": background, "stdin_open": stdin_open, "hold": hold, "stdin": stdin,
                "stdin_base64": stdin_base64, "rows": rows, "cols": cols, "timeout_ms": timeout_ms, "files": files,
                "name": name, "max_controllers": max_controllers, "lease_ms": lease_ms}
        return self._json(OPERATIONS["exec.create"], {"id": id}, {"wait": wait}, body, models.ExecInfo, options)

    def exec_list(self, id: str, *, options: Optional[Options] = None) -> Page[models.ExecInfo]:
        """The commands of a sandbox that are kept, oldest first."""
        return self._page(OPERATIONS["exec.list"], {"id": id}, {}, None, models.ExecInfo, options)

    def exec_read(self, id: str, eid: str, *, wait: Optional[int] = None,
                  options: Optional[Options] = None) -> models.ExecInfo:
        """One command; with `wait` (milliseconds), when it has ended or that time is over, and with its output."""
        return self._json(OPERATIONS["exec.read"], {"id": id, "eid": eid}, {"wait": wait}, None, models.ExecInfo,
                          options)

    def exec_output(self, id: str, eid: str, *, stream: Optional[str] = None, from_: Optional[str] = None,
                    follow: Optional[int] = None, hold: Optional[int] = None,
                    options: Optional[Options] = None) -> Stream:
        """Bytes of stdout (or `stream`=stderr) from position `from`; with `follow`=1 until the command has ended.
        With `stream`=both, both streams in frames until the end: 8 bytes (1 stdout, 2 stderr or 3 the end;
        three zeros; the length, 32 bits, highest byte first) and the data, which at the end is the command as
        JSON; `from` is then OUT,ERR. With `hold`=1 the command is held back instead of losing bytes that were
        not read. 410 when that position is no longer kept."""
        return self.send(OPERATIONS["exec.output"], {"id": id, "eid": eid},
                         {"stream": stream, "from": from_, "follow": follow, "hold": hold}, None, options)

    def exec_stdin(self, id: str, eid: str, content: Content, *, eof: Optional[int] = None, at: Optional[int] = None,
                   options: Optional[Options] = None) -> models.ExecStdinResult:
        """The body, of any type, to the command's input; with `eof`=1 that was all. Answered when the command's
        pipe has taken it. With `at` it begins at that position of all input: what was taken of it already is
        left out, so that a body whose answer was lost can be sent again; 409 when the input is not as far."""
        return self._json(OPERATIONS["exec.stdin"], {"id": id, "eid": eid}, {"eof": eof, "at": at}, content,
                          models.ExecStdinResult, options)

    def exec_signal(self, id: str, eid: str, *, signal: str, tree: Optional[bool] = None,
                    options: Optional[Options] = None) -> models.ExecInfo:
        """A signal to the command's process group, or to everything it started."""
        body = {"signal": signal, "tree": tree}
        return self._json(OPERATIONS["exec.signal"], {"id": id, "eid": eid}, {}, body, models.ExecInfo, options)

    def exec_cancel(self, id: str, eid: str, *, wait: Optional[int] = None,
                    options: Optional[Options] = None) -> models.ExecInfo:
        """Kill the command and everything it started; answered with its output when all of that is gone, or after
        `wait` milliseconds (10000), when its state is still running. One that has ended stays as it is."""
        return self._json(OPERATIONS["exec.cancel"], {"id": id, "eid": eid}, {"wait": wait}, None, models.ExecInfo,
                          options)

    def exec_resize(self, id: str, eid: str, *, rows: int, cols: int,
                    options: Optional[Options] = None) -> models.ExecInfo:
        """Another size for the command's terminal."""
        body = {"rows": rows, "cols": cols}
        return self._json(OPERATIONS["exec.resize"], {"id": id, "eid": eid}, {}, body, models.ExecInfo, options)

    def file_read(self, id: str, *, path: Optional[str] = None, user: Optional[str] = None,
                  options: Optional[Options] = None) -> Stream:
        """The bytes of a regular file; Range is honoured. In all of these, `path` is percent-encoded bytes,
        relative to /workspace unless absolute, and `user` (agent or root) whose rights count."""
        return self.send(OPERATIONS["file.read"], {"id": id}, {"path": path, "user": user}, None, options)

    def file_write(self, id: str, content: Content, *, path: Optional[str] = None, user: Optional[str] = None,
                   mode: Optional[str] = None, sync: Optional[int] = None,
                   options: Optional[Options] = None) -> models.FileInfo:
        """The body, of any type and size, becomes the file at once when all of it has arrived; `mode` is octal
        (as before, or 644), `sync`=1 waits for the disk."""
        return self._json(OPERATIONS["file.write"], {"id": id},
                          {"path": path, "user": user, "mode": mode, "sync": sync}, content, models.FileInfo, options)

    def file_remove(self, id: str, *, path: Optional[str] = None, user: Optional[str] = None,
                    recursive: Optional[int] = None, options: Optional[Options] = None) -> Any:
        """Remove a file or an empty directory, or with `recursive`=1 a whole tree."""
        return self._any(OPERATIONS["file.remove"], {"id": id}, {"path": path, "user": user, "recursive": recursive},
                         None, options)

    def file_append(self, id: str, content: Content, *, path: Optional[str] = None, user: Optional[str] = None,
                    sync: Optional[int] = None, options: Optional[Options] = None) -> models.FileInfo:
        """The body behind what the file holds; it is made if it is not there."""
        return self._json(OPERATIONS["file.append"], {"id": id}, {"path": path, "user": user, "sync": sync}, content,
                          models.FileInfo, options)

    def file_list(self, id: str, *, path: Optional[str] = None, user: Optional[str] = None,
                  after: Optional[str] = None, limit: Optional[int] = None,
                  options: Optional[Options] = None) -> Page[models.FileInfo]:
        """What is in a directory, sorted by name: `items` behind the name `after`, at most `limit`, and whether
        there are `more`."""
        return self._page(OPERATIONS["file.list"], {"id": id},
                          {"path": path, "user": user, "after": after, "limit": limit}, None, models.FileInfo,
                          options)

    def file_stat(self, id: str, *, path: Optional[str] = None, user: Optional[str] = None,
                  follow: Optional[int] = None, options: Optional[Options] = None) -> models.FileInfo:
        """About one file; of a symlink itself unless `follow`=1."""
        return self._json(OPERATIONS["file.stat"], {"id": id}, {"path": path, "user": user, "follow": follow}, None,
                          models.FileInfo, options)

    def file_mkdir(self, id: str, *, path: Optional[str] = None, user: Optional[str] = None,
                   mode: Optional[str] = None, parents: Optional[int] = None,
                   options: Optional[Options] = None) -> Any:
        """Make a directory (`mode` octal, 755); with `parents`=1 those above it too, and one that is there
        already will do."""
        return self._any(OPERATIONS["file.mkdir"], {"id": id},
                         {"path": path, "user": user, "mode": mode, "parents": parents}, None, options)

    def file_move(self, id: str, *, path: Optional[str] = None, to: Optional[str] = None, user: Optional[str] = None,
                  replace: Optional[int] = None, options: Optional[Options] = None) -> Any:
        """Another name for `path`; one that is taken only with `replace`=1."""
        return self._any(OPERATIONS["file.move"], {"id": id},
                         {"path": path, "to": to, "user": user, "replace": replace}, None, options)

    def tree_read(self, id: str, *, path: Optional[str] = None, user: Optional[str] = None,
                  options: Optional[Options] = None) -> Stream:
        """Everything below a directory as a tar archive, sorted: directories, files, symlinks. Cut off if it
        cannot be completed."""
        return self.send(OPERATIONS["tree.read"], {"id": id}, {"path": path, "user": user}, None, options)

    def tree_write(self, id: str, content: Content, *, path: Optional[str] = None, user: Optional[str] = None,
                   options: Optional[Options] = None) -> models.TreeWriteResult:
        """The body, a tar archive (ustar, pax, GNU long names; not compressed), unpacked into a directory that is
        there. Names that lead out of it, devices and sparse files are refused; what came before stays."""
        return self._json(OPERATIONS["tree.write"], {"id": id}, {"path": path, "user": user}, content,
                          models.TreeWriteResult, options)

    def tree_manifest(self, id: str, *, path: Optional[str] = None, user: Optional[str] = None,
                      options: Optional[Options] = None) -> Stream:
        """Everything below a directory, sorted, one JSON object a line, with the digests of regular files. Cut
        off if it cannot be completed."""
        return self.send(OPERATIONS["tree.manifest"], {"id": id}, {"path": path, "user": user}, None, options)

    def sandbox_changes(self, id: str, *, user: Optional[str] = None, options: Optional[Options] = None) -> Stream:
        """What was changed in its view of a directory (`binds` with `view`), one JSON object a line: {"side":
        "before" or "after", "file": …}, the file as in a manifest. A changed file has both, a new one only
        after, a removed one only before; a touched one has two that are alike. Cut off if it cannot be
        completed."""
        return self.send(OPERATIONS["sandbox.changes"], {"id": id}, {"user": user}, None, options)

    def file_watch(self, id: str, *, path: Optional[str] = None, user: Optional[str] = None,
                   recursive: Optional[int] = None, options: Optional[Options] = None) -> Stream:
        """Changes below a directory as events: `ready`, then `change` with what, path and directory; `lost` when
        some were missed. Best effort with `recursive`=1."""
        return self.send(OPERATIONS["file.watch"], {"id": id}, {"path": path, "user": user, "recursive": recursive},
                         None, options)

    def volume_create(self, *, name: str, bytes: int, owner: Optional[str] = None,
                      visibility: Optional[Literal["private", "tenant"]] = None,
                      shared_with: Optional[Sequence[str]] = None,
                      options: Optional[Options] = None) -> models.VolumeInfo:
        """Make a volume: a tree of files that sandboxes can share and that outlives them."""
        body = {"name": name, "bytes": bytes, "owner": owner, "visibility": visibility, "shared_with": shared_with}
        return self._json(OPERATIONS["volume.create"], {}, {}, body, models.VolumeInfo, options)

    def volume_list(self, *, after: Optional[str] = None, limit: Optional[int] = None,
                    options: Optional[Options] = None) -> Page[models.VolumeInfo]:
        """The caller's volumes, oldest first: a page of at most `limit` (100) behind the id `after`. `next` is
        the `after` of the next page, null at the end; a page may be shorter than `limit` and have a `next`."""
        return self._page(OPERATIONS["volume.list"], {}, {"after": after, "limit": limit}, None, models.VolumeInfo,
                          options)

    def volume_read(self, volume: str, *, options: Optional[Options] = None) -> models.VolumeDetail:
        """One volume, by name or id, and how much of it is used."""
        return self._json(OPERATIONS["volume.read"], {"volume": volume}, {}, None, models.VolumeDetail, options)

    def volume_change(self, volume: str, *, bytes: Optional[int] = None, owner: Optional[str] = None,
                      visibility: Optional[Literal["private", "tenant"]] = None,
                      shared_with: Optional[Sequence[str]] = None,
                      options: Optional[Options] = None) -> models.VolumeInfo:
        """Give a volume another size, owner, visibility or list of principals."""
        body = {"bytes": bytes, "owner": owner, "visibility": visibility, "shared_with": shared_with}
        return self._json(OPERATIONS["volume.change"], {"volume": volume}, {}, body, models.VolumeInfo, options)

    def volume_delete(self, volume: str, *, options: Optional[Options] = None) -> models.VolumeInfo:
        """Remove a volume and what is in it; refused while a sandbox names it."""
        return self._json(OPERATIONS["volume.delete"], {"volume": volume}, {}, None, models.VolumeInfo, options)

    def snapshot_create(self, id: str, *, name: str, options: Optional[Options] = None) -> models.SnapshotInfo:
        """Keep the files of a sandbox as they are now, under a name. What runs is frozen for that moment. Volumes
        are not part of it."""
        body = {"name": name}
        return self._json(OPERATIONS["snapshot.create"], {"id": id}, {}, body, models.SnapshotInfo, options)

    def snapshot_list_of(self, id: str, *, after: Optional[str] = None, limit: Optional[int] = None,
                         options: Optional[Options] = None) -> Page[models.SnapshotInfo]:
        """The snapshots of a sandbox, oldest first: a page of at most `limit` (100) behind the id `after`. `next`
        is the `after` of the next page, null at the end; a page may be shorter than `limit` and have a `next`."""
        return self._page(OPERATIONS["snapshot.list_of"], {"id": id}, {"after": after, "limit": limit}, None,
                          models.SnapshotInfo, options)

    def snapshot_delete_of(self, id: str, snapshot: str, *, options: Optional[Options] = None) -> models.SnapshotInfo:
        """Remove a snapshot of a sandbox, by name or id."""
        return self._json(OPERATIONS["snapshot.delete_of"], {"id": id, "snapshot": snapshot}, {}, None,
                          models.SnapshotInfo, options)

    def snapshot_list(self, *, after: Optional[str] = None, limit: Optional[int] = None,
                      options: Optional[Options] = None) -> Page[models.SnapshotInfo]:
        """All snapshots of the caller, oldest first; they outlive their sandboxes: a page of at most `limit`
        (100) behind the id `after`. `next` is the `after` of the next page, null at the end; a page may be
        shorter than `limit` and have a `next`."""
        return self._page(OPERATIONS["snapshot.list"], {}, {"after": after, "limit": limit}, None,
                          models.SnapshotInfo, options)

    def snapshot_delete(self, snapshot: str, *, options: Optional[Options] = None) -> models.SnapshotInfo:
        """Remove a snapshot, by id, or by a name that only one has."""
        return self._json(OPERATIONS["snapshot.delete"], {"snapshot": snapshot}, {}, None, models.SnapshotInfo,
                          options)

    def sandbox_fork(self, id: str, *, name: Optional[str] = None, ttl_ms: Optional[int] = None,
                     labels: Optional[Mapping[str, str]] = None,
                     options: Optional[Options] = None) -> models.SandboxInfo:
        """Make another sandbox with a copy of its files as they are now, its limits and its volumes. What runs
        goes on there, and does not run in the copy."""
        body = {"name": name, "ttl_ms": ttl_ms, "labels": labels}
        return self._json(OPERATIONS["sandbox.fork"], {"id": id}, {}, body, models.SandboxInfo, options)

    def sandbox_rollback(self, id: str, *, snapshot: str,
                         options: Optional[Options] = None) -> models.SandboxRollbackResult:
        """Give it back the files of one of its snapshots. Its commands end."""
        body = {"snapshot": snapshot}
        return self._json(OPERATIONS["sandbox.rollback"], {"id": id}, {}, body, models.SandboxRollbackResult, options)

    def pool_list(self, *, options: Optional[Options] = None) -> Page[models.PoolInfo]:
        """The pools of warm sandboxes, and how many stand ready."""
        return self._page(OPERATIONS["pool.list"], {}, {}, None, models.PoolInfo, options)

    def pool_set(self, name: str, *, size: int, image: Optional[str] = None,
                 user: Optional[Literal["agent", "root"]] = None, storage: Optional[Literal["memory", "disk"]] = None,
                 template: Optional[str] = None, options: Optional[Options] = None) -> models.PoolInfo:
        """Make, change or (size 0) remove a pool. Creations of the same image, user and storage take a warm
        sandbox from it."""
        body = {"size": size, "image": image, "user": user, "storage": storage, "template": template}
        return self._json(OPERATIONS["pool.set"], {"name": name}, {}, body, models.PoolInfo, options)

    def image_import(self, content: Content, *, name: Optional[str] = None,
                     options: Optional[Options] = None) -> models.ImageInfo:
        """The body, a root tree, a `docker save` archive or an OCI layout as tar (plain, gzip, xz, zstd), becomes
        the image `name`. Answered when it is unpacked; `image.progress` events tell how far it is, and
        `image.failed` why it failed."""
        return self._json(OPERATIONS["image.import"], {}, {"name": name}, content, models.ImageInfo, options)

    def image_list(self, *, options: Optional[Options] = None) -> Page[models.ImageInfo]:
        """The images, oldest first."""
        return self._page(OPERATIONS["image.list"], {}, {}, None, models.ImageInfo, options)

    def image_read(self, name: str, *, options: Optional[Options] = None) -> models.ImageInfo:
        """One image; a name with slashes as it is, or with %2F for each."""
        return self._json(OPERATIONS["image.read"], {"name": name}, {}, None, models.ImageInfo, options)

    def image_delete(self, name: str, *, options: Optional[Options] = None) -> models.ImageInfo:
        """Remove it, and the layers that no other image has. 409 while a sandbox or a snapshot needs it."""
        return self._json(OPERATIONS["image.delete"], {"name": name}, {}, None, models.ImageInfo, options)

    def secret_list(self, *, options: Optional[Options] = None) -> Page[models.SecretInfo]:
        """Names and ages of the tenant's secrets; never a value."""
        return self._page(OPERATIONS["secret.list"], {}, {}, None, models.SecretInfo, options)

    def secret_create(self, *, agent_id: str, options: Optional[Options] = None) -> models.NewSecret:
        """Make the secret of an agent; shown this once, kept as a hash."""
        body = {"agent_id": agent_id}
        return self._json(OPERATIONS["secret.create"], {}, {}, body, models.NewSecret, options)

    def secret_put(self, name: str, *, value: str, use: Optional[Literal["server", "request"]] = None,
                   hosts: Optional[Sequence[str]] = None, options: Optional[Options] = None) -> models.SecretInfo:
        """Keep a value under a name (201), or put another in its place (200). It is sealed before it is stored,
        and no route gives it back. One for requests is sealed to the egress process and bound to its hosts."""
        body = {"value": value, "use": use, "hosts": hosts}
        return self._json(OPERATIONS["secret.put"], {"name": name}, {}, body, models.SecretInfo, options)

    def secret_delete(self, name: str, *, options: Optional[Options] = None) -> Any:
        """Forget a secret. An agent that had it is disconnected."""
        return self._any(OPERATIONS["secret.delete"], {"name": name}, {}, None, options)

    def terminal_create(self, id: str, *, argv: Optional[Sequence[str]] = None, command: Optional[str] = None,
                        cwd: Optional[str] = None, user: Optional[Literal["agent", "root"]] = None,
                        env: Optional[Mapping[str, str]] = None, tty: Optional[bool] = None,
                        background: Optional[bool] = None, stdin_open: Optional[bool] = None,
                        hold: Optional[bool] = None, stdin: Optional[str] = None, stdin_base64: Optional[str] = None,
                        rows: Optional[int] = None, cols: Optional[int] = None, timeout_ms: Optional[int] = None,
                        files: Optional[Sequence[models.FileRule]] = None, name: Optional[str] = None,
                        max_controllers: Optional[int] = None, lease_ms: Optional[int] = None,
                        options: Optional[Options] = None) -> models.TerminalInfo:
        """Start a command with a terminal; a shell, unless `argv` or `command` says otherwise."""
        body = {"argv": argv, "command": command, "cwd": cwd, "user": user, "env": env, "tty": tty,
                "background": background, "stdin_open": stdin_open, "hold": hold, "stdin": stdin,
                "stdin_base64": stdin_base64, "rows": rows, "cols": cols, "timeout_ms": timeout_ms, "files": files,
                "name": name, "max_controllers": max_controllers, "lease_ms": lease_ms}
        return self._json(OPERATIONS["terminal.create"], {"id": id}, {}, body, models.TerminalInfo, options)

    def terminal_list(self, id: str, *, options: Optional[Options] = None) -> Page[models.TerminalInfo]:
        """The terminals of a sandbox that are kept, oldest first."""
        return self._page(OPERATIONS["terminal.list"], {"id": id}, {}, None, models.TerminalInfo, options)

    def terminal_read(self, id: str, tid: str, *, options: Optional[Options] = None) -> models.TerminalInfo:
        """One terminal, by id or name."""
        return self._json(OPERATIONS["terminal.read"], {"id": id, "tid": tid}, {}, None, models.TerminalInfo, options)

    def terminal_kill(self, id: str, tid: str, *, options: Optional[Options] = None) -> models.TerminalInfo:
        """Kill its command and everything that it started; what was printed is kept."""
        return self._json(OPERATIONS["terminal.kill"], {"id": id, "tid": tid}, {}, None, models.TerminalInfo, options)

    def terminal_attach(self, id: str, tid: str, *, from_: Optional[int] = None, role: Optional[str] = None,
                        take: Optional[int] = None, options: Optional[Options] = None) -> WebSocket:
        """Watch it, and as `role`=controller type, over a WebSocket (docs/terminals.md): from position `from` on,
        or from a picture of the screen."""
        return self.socket(OPERATIONS["terminal.attach"], {"id": id, "tid": tid},
                           {"from": from_, "role": role, "take": take}, None, options)

    def terminal_screen(self, id: str, tid: str, *, format: Optional[str] = None,
                        options: Optional[Options] = None) -> Any:
        """What it shows now: text, cursor and the newest rows above as JSON; with `format`=cells every character
        with its looks; with `format`=text plain text."""
        return self._any(OPERATIONS["terminal.screen"], {"id": id, "tid": tid}, {"format": format}, None, options)

    def terminal_recording(self, id: str, tid: str, *, options: Optional[Options] = None) -> Stream:
        """What is kept of it, with its times, as an asciicast (version 2)."""
        return self.send(OPERATIONS["terminal.recording"], {"id": id, "tid": tid}, {}, None, options)

    def terminal_signal(self, id: str, tid: str, *, signal: str, tree: Optional[bool] = None,
                        options: Optional[Options] = None) -> models.TerminalInfo:
        """A signal to the command's process group, or to everything it started."""
        body = {"signal": signal, "tree": tree}
        return self._json(OPERATIONS["terminal.signal"], {"id": id, "tid": tid}, {}, body, models.TerminalInfo,
                          options)

    def terminal_resize(self, id: str, tid: str, *, rows: int, cols: int,
                        options: Optional[Options] = None) -> models.TerminalInfo:
        """Another size."""
        body = {"rows": rows, "cols": cols}
        return self._json(OPERATIONS["terminal.resize"], {"id": id, "tid": tid}, {}, body, models.TerminalInfo,
                          options)

    def port_list(self, id: str, *, options: Optional[Options] = None) -> Page[models.PortInfo]:
        """The TCP ports that programs in it listen on."""
        return self._page(OPERATIONS["port.list"], {"id": id}, {}, None, models.PortInfo, options)

    def port_preview(self, id: str, *, port: int, path: Optional[str] = None,
                     options: Optional[Options] = None) -> models.PortPreviewResult:
        """A link to a port inside, for a browser: a host of its own (`PORT-ID.localhost`), which lets in whoever
        opens the link within ten minutes, for twelve hours, as long as the token or session it was made with
        lives."""
        body = {"port": port, "path": path}
        return self._json(OPERATIONS["port.preview"], {"id": id}, {}, body, models.PortPreviewResult, options)

    def sandbox_crashes(self, id: str, *, options: Optional[Options] = None) -> Page[models.CrashInfo]:
        """When and how its process 1 died by itself, newest first; the last 100."""
        return self._page(OPERATIONS["sandbox.crashes"], {"id": id}, {}, None, models.CrashInfo, options)

    def quota_list(self, *, options: Optional[Options] = None) -> Page[models.QuotaInfo]:
        """Quotas with what is used of them: the machine (for the tenant that owns the server), presets, then rows
        by subject."""
        return self._page(OPERATIONS["quota.list"], {}, {}, None, models.QuotaInfo, options)

    def quota_set(self, subject: str, *, sandboxes: Optional[int] = None, memory: Optional[int] = None,
                  cpu_percent: Optional[int] = None, disk: Optional[int] = None, sandbox_memory: Optional[int] = None,
                  sandbox_cpu_percent: Optional[int] = None, sandbox_disk: Optional[int] = None,
                  options: Optional[Options] = None) -> models.QuotaInfo:
        """Set the quota of a subject: tenant:NAME, role:NAME, by:ID or label:KEY=VALUE, with * for each of them.
        What is not named has no limit. Only the tenant that owns the server sets quotas of tenants."""
        body = {"sandboxes": sandboxes, "memory": memory, "cpu_percent": cpu_percent, "disk": disk,
                "sandbox_memory": sandbox_memory, "sandbox_cpu_percent": sandbox_cpu_percent,
                "sandbox_disk": sandbox_disk}
        return self._json(OPERATIONS["quota.set"], {"subject": subject}, {}, body, models.QuotaInfo, options)

    def quota_delete(self, subject: str, *, options: Optional[Options] = None) -> models.QuotaInfo:
        """Delete a quota. The preset of role:agent is in effect again."""
        return self._json(OPERATIONS["quota.delete"], {"subject": subject}, {}, None, models.QuotaInfo, options)

    def template_list(self, *, options: Optional[Options] = None) -> Page[models.TemplateInfo]:
        """Wishes for sandboxes that have a name, by name."""
        return self._page(OPERATIONS["template.list"], {}, {}, None, models.TemplateInfo, options)

    def template_read(self, template_name: str, *, options: Optional[Options] = None) -> models.TemplateInfo:
        """One template."""
        return self._json(OPERATIONS["template.read"], {"template_name": template_name}, {}, None,
                          models.TemplateInfo, options)

    def template_set(self, template_name: str, *, name: Optional[str] = None,
                     user: Optional[Literal["agent", "root"]] = None, memory: Optional[int] = None,
                     pids: Optional[int] = None, cpu_percent: Optional[int] = None, io_bytes: Optional[int] = None,
                     io_ops: Optional[int] = None, disk: Optional[int] = None, inodes: Optional[int] = None,
                     nofile: Optional[int] = None, ttl_ms: Optional[int] = None,
                     env: Optional[Mapping[str, str]] = None, labels: Optional[Mapping[str, str]] = None,
                     storage: Optional[Literal["memory", "disk"]] = None, image: Optional[str] = None,
                     from_snapshot: Optional[str] = None, template: Optional[str] = None,
                     volumes: Optional[Sequence[models.VolumeMount]] = None,
                     binds: Optional[Sequence[models.BindMount]] = None,
                     files: Optional[Sequence[models.FileRule]] = None, idle: Optional[models.IdlePolicy] = None,
                     egress: Optional[models.EgressSpec] = None, nesting: Optional[bool] = None,
                     sys: Optional[bool] = None, tier: Optional[Literal["T0", "T1", "T2", "T3", "T4", "vm"]] = None,
                     warm: Optional[bool] = None, owner: Optional[str] = None,
                     visibility: Optional[Literal["private", "tenant"]] = None,
                     shared_with: Optional[Sequence[str]] = None,
                     options: Optional[Options] = None) -> models.TemplateInfo:
        """Make or change a template: the body is a wish for a sandbox, without `name`, `template` and `binds`.
        Sandboxes made of it before do not change."""
        body = {"name": name, "user": user, "memory": memory, "pids": pids, "cpu_percent": cpu_percent,
                "io_bytes": io_bytes, "io_ops": io_ops, "disk": disk, "inodes": inodes, "nofile": nofile,
                "ttl_ms": ttl_ms, "env": env, "labels": labels, "storage": storage, "image": image,
                "from_snapshot": from_snapshot, "template": template, "volumes": volumes, "binds": binds,
                "files": files, "idle": idle, "egress": egress, "nesting": nesting, "sys": sys, "tier": tier,
                "warm": warm, "owner": owner, "visibility": visibility, "shared_with": shared_with}
        return self._json(OPERATIONS["template.set"], {"template_name": template_name}, {}, body, models.TemplateInfo,
                          options)

    def template_delete(self, template_name: str, *, options: Optional[Options] = None) -> models.TemplateInfo:
        """Remove a template; sandboxes made of it stay."""
        return self._json(OPERATIONS["template.delete"], {"template_name": template_name}, {}, None,
                          models.TemplateInfo, options)

    def process_list(self, id: str, *, options: Optional[Options] = None) -> Page[models.ProcessInfo]:
        """The processes in it, as its own /proc tells."""
        return self._page(OPERATIONS["process.list"], {"id": id}, {}, None, models.ProcessInfo, options)

    def egress_sandbox_read(self, id: str, *, options: Optional[Options] = None) -> models.EgressPolicy:
        """What a sandbox may reach: every rule that counts and whose it is, its limits, and what it has used."""
        return self._json(OPERATIONS["egress.sandbox.read"], {"id": id}, {}, None, models.EgressPolicy, options)

    def egress_explain(self, id: str, *, url: Optional[str] = None, method: Optional[str] = None,
                       options: Optional[Options] = None) -> models.EgressExplanation:
        """Would it reach this `url` (or HOST[:PORT]) with this `method` (GET), and why? Nothing is looked up and
        nothing is sent."""
        return self._json(OPERATIONS["egress.explain"], {"id": id}, {"url": url, "method": method}, None,
                          models.EgressExplanation, options)

    def egress_rule_add(self, id: str, *, rule: str, verdict: Optional[Literal["allow", "deny"]] = None,
                        level: Optional[Literal["sandbox", "project", "tenant", "node"]] = None,
                        options: Optional[Options] = None) -> models.EgressRuleAddResult:
        """Allow or deny one thing for the sandbox, or for its project, its tenant or the node. The same rule in
        the opposite list of that layer is taken away."""
        body = {"rule": rule, "verdict": verdict, "level": level}
        return self._json(OPERATIONS["egress.rule.add"], {"id": id}, {}, body, models.EgressRuleAddResult, options)

    def egress_sandbox_records(self, id: str, *, denied: Optional[str] = None, since: Optional[int] = None,
                               limit: Optional[int] = None,
                               options: Optional[Options] = None) -> Page[models.EgressRecord]:
        """What a sandbox reached or tried to. The newest, or those after number `since`, oldest first;
        `denied=true` for what was not let out. `next` is the `since` of the next page; an event
        egress.recorded says that there is one."""
        return self._page(OPERATIONS["egress.sandbox.records"], {"id": id},
                          {"denied": denied, "since": since, "limit": limit}, None, models.EgressRecord, options)

    def egress_sandbox_hosts(self, id: str, *, options: Optional[Options] = None) -> Page[models.EgressHost]:
        """The same counted by host and port, the most denied first."""
        return self._page(OPERATIONS["egress.sandbox.hosts"], {"id": id}, {}, None, models.EgressHost, options)

    def ask_list(self, *, state: Optional[str] = None, after: Optional[str] = None, limit: Optional[int] = None,
                 options: Optional[Options] = None) -> Page[models.AskInfo]:
        """Questions to people, oldest first: all, or those in a `state`; a page of at most `limit` behind the id
        `after`."""
        return self._page(OPERATIONS["ask.list"], {}, {"state": state, "after": after, "limit": limit}, None,
                          models.AskInfo, options)

    def ask_read(self, ask: str, *, options: Optional[Options] = None) -> models.AskInfo:
        """One of them."""
        return self._json(OPERATIONS["ask.read"], {"ask": ask}, {}, None, models.AskInfo, options)

    def ask_decide(self, ask: str, *, verdict: Literal["allow", "deny"], hash: Optional[str] = None,
                   note: Optional[str] = None, options: Optional[Options] = None) -> models.AskInfo:
        """Allow or deny it, once. Saying the same again changes nothing; saying otherwise, or too late, is 409."""
        body = {"verdict": verdict, "hash": hash, "note": note}
        return self._json(OPERATIONS["ask.decide"], {"ask": ask}, {}, body, models.AskInfo, options)
