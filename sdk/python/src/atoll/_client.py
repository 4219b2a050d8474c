"""The client: which server, and its nouns."""
import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Dict, Iterator, List, Literal, Mapping, Optional, Sequence, Union

from . import _endpoint
from . import _models as models
from ._api import Api
from ._errors import ConnectionFailed, RequestTimeout, Unavailable
from ._model import parse_time
from ._process import Patience
from ._sandbox import LIFE_SECONDS, Sandbox, User, Visibility
from ._sse import events
from ._transport import Content, Options, Stream, Transport, every

Storage = Literal["memory", "disk"]
Tier = Literal["T1", "T3"]
Role = Literal["admin", "operator", "viewer", "agent", "sandbox"]
IMPORT_SECONDS = 1800.0  # an image is unpacked before the answer


@dataclass(frozen=True)
class Event:
    """Something that happened; seq is its number, to go on from."""
    seq: int
    time: datetime
    type: str
    object: str
    data: Dict[str, Any]

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> "Event":
        return cls(raw["seq"], parse_time(raw["time"]), raw["type"], raw["object"], raw["data"])


class Sandboxes:
    def __init__(self, client: "Client") -> None:
        self._client, self._api = client, client.api

    def create(self, *, name: Optional[str] = None, image: Optional[str] = None, user: Optional[User] = None,
               storage: Optional[Storage] = None, memory: Optional[int] = None, pids: Optional[int] = None,
               cpu_percent: Optional[int] = None, disk: Optional[int] = None, inodes: Optional[int] = None,
               io_bytes: Optional[int] = None, io_ops: Optional[int] = None,
               nofile: Optional[int] = None, ttl_ms: Optional[int] = None, env: Optional[Mapping[str, str]] = None,
               labels: Optional[Mapping[str, str]] = None, from_snapshot: Optional[str] = None,
               volumes: Optional[Sequence[models.VolumeMount]] = None,
               binds: Optional[Sequence[models.BindMount]] = None,
               files: Optional[Sequence[models.FileRule]] = None, idle: Optional[models.IdlePolicy] = None,
               egress: Optional[models.EgressSpec] = None, nesting: Optional[bool] = None,
               sys: Optional[bool] = None, tier: Optional[Tier] = None, template: Optional[str] = None,
               warm: Optional[bool] = None, owner: Optional[str] = None, visibility: Optional[Visibility] = None,
               shared_with: Optional[Sequence[str]] = None,
               idempotency_key: Optional[str] = None) -> Sandbox:
        """Makes one, which runs when this returns. Limits are bytes, times milliseconds; what is not said is as
        the template says, if there is one. `shared_with` names tokens of role agent that may use it."""
        return Sandbox(self._client, self._api.sandbox_create(
            name=name, image=image, user=user, storage=storage, memory=memory, pids=pids, cpu_percent=cpu_percent,
            io_bytes=io_bytes, io_ops=io_ops,
            disk=disk, inodes=inodes, nofile=nofile, ttl_ms=ttl_ms, env=env, labels=labels,
            from_snapshot=from_snapshot, volumes=volumes, binds=binds, files=files, idle=idle, egress=egress,
            nesting=nesting, sys=sys, tier=tier, template=template, warm=warm,
            owner=owner, visibility=visibility, shared_with=shared_with,
            options=Options(timeout=LIFE_SECONDS, idempotency_key=idempotency_key)))

    def list(self, *, state: Optional[str] = None, label: Optional[str] = None,
             name: Optional[str] = None) -> List[Sandbox]:
        """The caller's, oldest first; label is KEY or KEY=VALUE, name the beginning of one."""
        return [Sandbox(self._client, info)
                for info in every(lambda after, limit: self._api.sandbox_list(
                    state=state, label=label, name=name, after=after, limit=limit))]

    def get(self, id: str) -> Sandbox:
        """By id, by name, or by the beginning of its id."""
        return Sandbox(self._client, self._api.sandbox_read(id))


class Images:
    def __init__(self, api: Api) -> None:
        self._api = api

    def load(self, archive: Content, name: str) -> models.ImageInfo:
        """A root tree, a `docker save` archive or an OCI layout as tar (plain, gzip, xz, zstd): bytes, an open file
        or an iterable of bytes."""
        return self._api.image_import(archive, name=name, options=Options(timeout=IMPORT_SECONDS))

    def list(self) -> List[models.ImageInfo]:
        return self._api.image_list().items

    def get(self, name: str) -> models.ImageInfo:
        return self._api.image_read(name)

    def delete(self, name: str) -> models.ImageInfo:
        return self._api.image_delete(name)


class Volumes:
    def __init__(self, api: Api) -> None:
        self._api = api

    def create(self, name: str, bytes: int, *, owner: Optional[str] = None, visibility: Optional[Visibility] = None,
               shared_with: Optional[Sequence[str]] = None) -> models.VolumeInfo:
        return self._api.volume_create(name=name, bytes=bytes, owner=owner, visibility=visibility,
                                       shared_with=shared_with)

    def list(self) -> List[models.VolumeInfo]:
        return every(lambda after, limit: self._api.volume_list(after=after, limit=limit))

    def get(self, name: str) -> models.VolumeDetail:
        """With how much of it is used."""
        return self._api.volume_read(name)

    def resize(self, name: str, bytes: int) -> models.VolumeInfo:
        return self.update(name, bytes=bytes)

    def update(self, name: str, *, bytes: Optional[int] = None,
               owner: Optional[str] = None, visibility: Optional[Visibility] = None,
               shared_with: Optional[Sequence[str]] = None) -> models.VolumeInfo:
        """Another size or access; what is not named stays."""
        return self._api.volume_change(name, bytes=bytes, owner=owner, visibility=visibility, shared_with=shared_with)

    def delete(self, name: str) -> models.VolumeInfo:
        return self._api.volume_delete(name)


class Snapshots:
    """All of the caller's; they outlive their sandboxes. Made by Sandbox.snapshot()."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def list(self) -> List[models.SnapshotInfo]:
        return every(lambda after, limit: self._api.snapshot_list(after=after, limit=limit))

    def delete(self, snapshot: str) -> models.SnapshotInfo:
        return self._api.snapshot_delete(snapshot)


class Templates:
    """Wishes for sandboxes that have a name; `sandboxes.create(template=…)` makes one of them."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def set(self, template: str, *, image: Optional[str] = None, user: Optional[User] = None,
            storage: Optional[Storage] = None, memory: Optional[int] = None, pids: Optional[int] = None,
            cpu_percent: Optional[int] = None, disk: Optional[int] = None, inodes: Optional[int] = None,
            io_bytes: Optional[int] = None, io_ops: Optional[int] = None,
            nofile: Optional[int] = None, ttl_ms: Optional[int] = None, env: Optional[Mapping[str, str]] = None,
            labels: Optional[Mapping[str, str]] = None, from_snapshot: Optional[str] = None,
            volumes: Optional[Sequence[models.VolumeMount]] = None,
            files: Optional[Sequence[models.FileRule]] = None, idle: Optional[models.IdlePolicy] = None,
            egress: Optional[models.EgressSpec] = None, nesting: Optional[bool] = None,
            sys: Optional[bool] = None, tier: Optional[Tier] = None,
            warm: Optional[bool] = None) -> models.TemplateInfo:
        """Makes or changes one; sandboxes made of it before stay as they are."""
        return self._api.template_set(
            template, name=None, template=None, binds=None, owner=None, visibility=None, shared_with=None,
            image=image, user=user, storage=storage, memory=memory,
            pids=pids, cpu_percent=cpu_percent, io_bytes=io_bytes, io_ops=io_ops, disk=disk, inodes=inodes,
            nofile=nofile, ttl_ms=ttl_ms, env=env,
            labels=labels, from_snapshot=from_snapshot, volumes=volumes, files=files, idle=idle, egress=egress,
            nesting=nesting, sys=sys, tier=tier, warm=warm)

    def get(self, template: str) -> models.TemplateInfo:
        return self._api.template_read(template)

    def list(self) -> List[models.TemplateInfo]:
        return self._api.template_list().items

    def delete(self, template: str) -> models.TemplateInfo:
        return self._api.template_delete(template)


class Pools:
    """Sandboxes made ahead, which a creation takes."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def set(self, name: str, size: int, *, image: Optional[str] = None, user: Optional[User] = None,
            storage: Optional[Storage] = None, template: Optional[str] = None) -> models.PoolInfo:
        """Makes or changes one; size 0 removes it. With a template it holds what that one says."""
        return self._api.pool_set(name, size=size, image=image, user=user, storage=storage, template=template)

    def list(self) -> List[models.PoolInfo]:
        return self._api.pool_list().items


class Quotas:
    """How much the sandboxes of a tenant, role, principal or label may have."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def set(self, subject: str, *, sandboxes: Optional[int] = None, memory: Optional[int] = None,
            cpu_percent: Optional[int] = None, disk: Optional[int] = None, sandbox_memory: Optional[int] = None,
            sandbox_cpu_percent: Optional[int] = None, sandbox_disk: Optional[int] = None) -> models.QuotaInfo:
        """Replaces the quota of "tenant:acme", "role:agent", "by:ID" or "label:user=ann"; with * for each of
        them. A limit that is not named does not exist."""
        return self._api.quota_set(subject, sandboxes=sandboxes, memory=memory, cpu_percent=cpu_percent, disk=disk,
                                   sandbox_memory=sandbox_memory, sandbox_cpu_percent=sandbox_cpu_percent,
                                   sandbox_disk=sandbox_disk)

    def list(self) -> List[models.QuotaInfo]:
        """With what is used of each."""
        return self._api.quota_list().items

    def delete(self, subject: str) -> models.QuotaInfo:
        return self._api.quota_delete(subject)


class Tokens:
    def __init__(self, api: Api) -> None:
        self._api = api

    def create(self, name: str, role: Role, *, tenant: Optional[str] = None, scopes: Optional[Sequence[str]] = None,
               ttl_ms: Optional[int] = None, signing: Optional[bool] = None) -> models.NewToken:
        """The token itself is in the answer, this once."""
        return self._api.token_create(name=name, role=role, tenant=tenant, scopes=scopes, ttl_ms=ttl_ms,
                                      signing=signing)

    def list(self, tenant: Optional[str] = None) -> List[models.TokenInfo]:
        return self._api.token_list(tenant=tenant).items

    def revoke(self, id: str, tenant: Optional[str] = None) -> models.TokenInfo:
        """By id or name; it stops working at once."""
        return self._api.token_revoke(id, tenant=tenant)


class Asks:
    """Questions to people, each decided at most once; operators decide."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def list(self, *, state: Optional[str] = "pending", after: Optional[str] = None,
             limit: Optional[int] = None) -> List[models.AskInfo]:
        """Oldest first; a page goes on behind the id `after`."""
        return self._api.ask_list(state=state, after=after, limit=limit).items

    def get(self, ask: str) -> models.AskInfo:
        return self._api.ask_read(ask)

    def allow(self, ask: str, *, hash: Optional[str] = None, note: Optional[str] = None) -> models.AskInfo:
        """For those who wait now; with the digest of what was seen, nothing else is allowed."""
        return self._api.ask_decide(ask, verdict="allow", hash=hash, note=note)

    def deny(self, ask: str, *, hash: Optional[str] = None, note: Optional[str] = None) -> models.AskInfo:
        return self._api.ask_decide(ask, verdict="deny", hash=hash, note=note)


class Secrets:
    """Values that the server keeps sealed and never gives back, and what agents connect with."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def put(self, name: str, value: str, *, hosts: Optional[Sequence[str]] = None,
            use: Optional[Literal["server", "request"]] = None) -> models.SecretInfo:
        """With hosts it is for requests to them, and the process that makes these is the only one that can open it."""
        return self._api.secret_put(name, value=value, hosts=hosts, use=use)

    def create_for_agent(self, agent_id: str) -> models.NewSecret:
        """The secret itself is in the answer, this once."""
        return self._api.secret_create(agent_id=agent_id)

    def list(self) -> List[models.SecretInfo]:
        """Names and ages, never a value."""
        return self._api.secret_list().items

    def delete(self, name: str) -> None:
        self._api.secret_delete(name)


class Events:
    def __init__(self, api: Api) -> None:
        self._api = api

    def list(self, since: int = 0, *, limit: Optional[int] = None, type: Optional[str] = None,
             object: Optional[str] = None) -> List[Event]:
        """A page of those after a number, oldest first."""
        page = self._api.event_read(since=since, limit=limit, type=type, object=object)
        return [Event.from_json(raw) for raw in page["items"]]

    def note(self, text: str) -> models.NoteInfo:
        """Writes an event that everyone who listens sees."""
        return self._api.note_create(text=text)

    def stream(self, since: Optional[int] = None, *, type: Optional[str] = None, object: Optional[str] = None,
               idle: float = 60.0, patience: float = 60.0) -> Iterator[Event]:
        """Events as they happen: after number `since`, or from now on. Comes back after a broken connection and
        goes on behind the last one it gave. Gone when the server no longer keeps what would be next."""
        tries = Patience(patience)
        if since is None:
            since = int(self._api.event_read(limit=1, since=0)["head"])
        while True:
            try:
                with self._open(since, type, object, idle) as answer:
                    for event in events(answer):
                        if event.event == "reset":
                            break
                        tries.progress()
                        since = int(event.id)
                        yield Event.from_json(json.loads(event.data))
                tries.wait(ConnectionFailed("the stream of events ends again and again"))
            except RequestTimeout:
                tries.progress()  # nothing happened
            except (ConnectionFailed, Unavailable) as e:
                tries.wait(e)

    def _open(self, since: int, type: Optional[str], object: Optional[str], idle: float) -> Stream:
        options = Options(timeout=idle, headers={"Accept": "text/event-stream"})
        return self._api.event_stream(since=since, type=type, object=object, options=options)


class Audit:
    def __init__(self, api: Api) -> None:
        self._api = api

    def list(self, since: Optional[int] = None, limit: Optional[int] = None) -> List[Dict[str, Any]]:
        """Rows after a number, oldest first; without it the newest."""
        rows: List[Dict[str, Any]] = self._api.audit_read(since=since, limit=limit)["items"]
        return rows

    def verify(self) -> models.AuditVerdict:
        return self._api.audit_verify(options=Options(timeout=IMPORT_SECONDS))


class Backups:
    def __init__(self, api: Api) -> None:
        self._api = api

    def create(self, name: str) -> models.BackupInfo:
        return self._api.backup_create(name=name, options=Options(timeout=IMPORT_SECONDS))

    def download(self, name: str) -> Stream:
        return self._api.backup_read(name)

    def delete(self, name: str) -> None:
        self._api.backup_delete(name)


class Client:
    """A server and its nouns. Without arguments it is found as the command line finds it: ATOLL_ADDR and
    ATOLL_TOKEN, ATOLL_CONTEXT, ATOLL_STATE, the current context, the local server's socket.

    `timeout` is seconds for each step of a request (to connect, to send, to be answered), `retries` how often
    one is repeated where that is safe. Usable from several threads.
    """

    def __init__(self, address: Optional[str] = None, token: Optional[str] = None, *, state: Optional[str] = None,
                 context: Optional[str] = None, ca: Optional[str] = None, timeout: float = 30.0,
                 retries: int = 5) -> None:
        self.endpoint = _endpoint.find(address, token, state, context, ca)
        self.timeout = timeout
        self._transport = Transport(self.endpoint, timeout, retries)
        self.api = Api(self._transport)  # every operation as it is; the rest is comfort over it
        self.sandboxes = Sandboxes(self)
        self.images = Images(self.api)
        self.volumes = Volumes(self.api)
        self.snapshots = Snapshots(self.api)
        self.templates = Templates(self.api)
        self.pools = Pools(self.api)
        self.quotas = Quotas(self.api)
        self.tokens = Tokens(self.api)
        self.secrets = Secrets(self.api)
        self.asks = Asks(self.api)
        self.events = Events(self.api)
        self.audit = Audit(self.api)
        self.backups = Backups(self.api)

    def health(self) -> models.Health:
        return self.api.health_read()

    def version(self) -> Dict[str, Any]:
        found: Dict[str, Any] = self.api.version_read()
        return found

    def doctor(self) -> Dict[str, Any]:
        """What the server's machine can do, as it found out at its start; for operators."""
        found: Dict[str, Any] = self.api.doctor_read()
        return found

    def limits(self) -> Dict[str, Any]:
        """What this server allows at most."""
        found: Dict[str, Any] = self.api.limits_read()
        return found

    def whoami(self) -> models.Whoami:
        return self.api.whoami_read()

    def metrics(self) -> str:
        """Prometheus text."""
        with self.api.metrics_read() as answer:
            return answer.read().decode()

    def login_link(self) -> models.LoginLink:
        """A one-time link that logs a browser in."""
        return self.api.login_link()

    def close(self) -> None:
        self._transport.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
