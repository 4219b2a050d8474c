"""What the API takes and gives, as types. Made by tools/gen-sdk from the route tables; do not edit."""
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, Dict, List, Literal, Optional, Sequence, TypedDict

from ._model import Model, Special


@dataclass(frozen=True)
class HealthAgents(Model):
    # Linked agents that are there
    connected: int = 0
    # Of those, ready or busy
    ready: int = 0


@dataclass(frozen=True)
class Health(Model):
    # What it is doing; full: no room in the state directory, so nothing is started
    status: str = ""
    # Of full; otherwise null
    reason: Optional[str] = None
    # Of the program
    version: str = ""
    # Whether it takes requests
    ready: bool = False
    # The store's file; a large one is checked while it serves, a damaged one is read but not written
    store: str = ""
    # When this process began to serve
    started_at: Optional[datetime] = None
    # Since then, in milliseconds
    uptime_ms: int = 0
    # The same in seconds
    uptime_seconds: int = 0
    # Agents that are linked
    agents: Optional[HealthAgents] = None
    # Open event streams
    subscribers: int = 0
    # Calls under way on workers
    calls: int = 0
    _special: ClassVar[Special] = {
        "started_at": datetime,
        "agents": HealthAgents,
    }


@dataclass(frozen=True)
class Whoami(Model):
    # Token or session id, or unix:UID
    id: str = ""
    # The name it was given
    name: str = ""
    # What it may do
    role: str = ""
    # Whose objects it sees
    tenant: str = ""
    # How it was recognised
    via: str = ""
    # Comma list; empty means all that the role may
    scopes: str = ""
    # When it ends; null for never
    expires_at: Optional[datetime] = None
    _special: ClassVar[Special] = {
        "expires_at": datetime,
    }


@dataclass(frozen=True)
class NewToken(Model):
    # tok…
    id: str = ""
    # What it is for
    name: str = ""
    # What it may do
    role: str = ""
    # Whose objects it sees
    tenant: str = ""
    # Comma list; empty means all that the role may
    scopes: str = ""
    # May sign requests
    signing: bool = False
    # When it was made
    created_at: Optional[datetime] = None
    # When it ends; null for never
    expires_at: Optional[datetime] = None
    # The token itself, shown this once; null when replayed by Idempotency-Key
    token: Optional[str] = None
    _special: ClassVar[Special] = {
        "created_at": datetime,
        "expires_at": datetime,
    }


@dataclass(frozen=True)
class TokenInfo(Model):
    # tok…
    id: str = ""
    # What it is for
    name: str = ""
    # What it may do
    role: str = ""
    # Whose objects it sees
    tenant: str = ""
    # Comma list; empty means all that the role may
    scopes: str = ""
    # May sign requests
    signing: bool = False
    # When it was made
    created_at: Optional[datetime] = None
    # When it ends; null for never
    expires_at: Optional[datetime] = None
    # When it was last used, to about a minute; null for not yet
    used_at: Optional[datetime] = None
    # When it was revoked; null while it lives
    revoked_at: Optional[datetime] = None
    _special: ClassVar[Special] = {
        "created_at": datetime,
        "expires_at": datetime,
        "used_at": datetime,
        "revoked_at": datetime,
    }


@dataclass(frozen=True)
class LoginLink(Model):
    # To be opened in a browser, once
    url_path: str = ""
    # The same with the address that the server listens on; null when it has only a Unix socket
    url: Optional[str] = None
    # When the link stops working
    expires_at: Optional[datetime] = None
    _special: ClassVar[Special] = {
        "expires_at": datetime,
    }


@dataclass(frozen=True)
class NoteInfo(Model):
    # Its event number
    seq: int = 0
    # When it was written
    time: Optional[datetime] = None
    # Who wrote it
    by: str = ""
    # The note
    text: str = ""
    _special: ClassVar[Special] = {
        "time": datetime,
    }


@dataclass(frozen=True)
class AuditVerdict(Model):
    # Whether every row fits
    ok: bool = False
    # Rows checked
    rows: int = 0
    # The first row that does not fit; 0 when all do
    bad_seq: int = 0
    # What is wrong with it
    why: str = ""
    # Hash of the last row; note it elsewhere to detect a rollback
    head: str = ""


@dataclass(frozen=True)
class BackupInfo(Model):
    # File name
    name: str = ""
    # Where the server put it
    path: str = ""
    # Its size
    bytes: int = 0


class _VolumeMountRequired(TypedDict):
    volume: str
    path: str


class VolumeMount(_VolumeMountRequired, total=False):
    read_only: bool


class _BindMountRequired(TypedDict):
    ticket: str
    path: str


class BindMount(_BindMountRequired, total=False):
    read_only: bool
    view: bool


class FileRule(TypedDict):
    path: str
    access: Literal["read", "write"]


class IdlePolicy(TypedDict):
    after_ms: int
    action: Literal["pause", "stop", "delete"]


class EgressSpec(TypedDict, total=False):
    mode: Literal["deny", "ask", "open"]
    allow: List[str]
    deny: List[str]
    packs: List[str]
    intercept: List[str]
    unchecked: List[str]
    inject: List[str]
    secrets: List[str]
    max_bytes: int
    max_connections: int
    ask_s: int
    version: int
    project: str
    agent: str


@dataclass(frozen=True)
class SandboxInfoVolume(Model):
    # Name or id of a volume
    volume: str = ""
    # Where it is put; absolute, made if it is not there
    path: str = ""
    # Nothing in it can be changed from here
    read_only: bool = False


@dataclass(frozen=True)
class SandboxInfoBind(Model):
    # Where it is
    path: str = ""
    # Nothing in it can be changed
    read_only: bool = False
    # What is changed in it stays in the sandbox
    view: bool = False


@dataclass(frozen=True)
class SandboxInfoFile(Model):
    # A file or directory inside, absolute; it and all below it
    path: str = ""
    # read: read and execute; write: everything
    access: str = ""


@dataclass(frozen=True)
class SandboxInfoIdle(Model):
    # Milliseconds without a running command, a reader of output or a request about it
    after_ms: int = 0
    # Then it is paused, stopped or deleted; a command wakes it from the first two
    action: str = ""


@dataclass(frozen=True)
class EgressInfo(Model):
    # What happens to a host that no rule allows: refused, asked about, or allowed. Unsaid: as the layer outside
    # says, deny in the end
    mode: str = ""
    # Rules: HOST, *.SUFFIX, .SUFFIX, an address or a network, each with :PORT or :*; then METHODS and a PATH
    allow: List[str] = field(default_factory=list)
    # Rules that win over every allow
    deny: List[str] = field(default_factory=list)
    # Named lists of allow rules
    packs: List[str] = field(default_factory=list)
    # Hosts whose TLS is opened, so that requests can be judged
    intercept: List[str] = field(default_factory=list)
    # Hosts to which any bytes may be sent; port 443 unless said
    unchecked: List[str] = field(default_factory=list)
    # Credentials: "HOST => HEADER: VALUE" sets a header, in which {secret:NAME} or {basic:USER:NAME} stands for
    # a secret; "HOST => {secret:NAME}" replaces its placeholder. TLS to such a host is opened. Not in the node's
    # layer
    inject: List[str] = field(default_factory=list)
    # NAME or VARIABLE=NAME: the variable holds the secret's placeholder, which is replaced in requests to the
    # secret's own hosts. Not in the node's layer
    secrets: List[str] = field(default_factory=list)
    # Both ways together, of one sandbox; 0 for no limit
    max_bytes: int = 0
    # Open at once, of one sandbox; 0 for no limit of its own
    max_connections: int = 0
    # How long a connection waits for an answer in mode ask; 0 for 60
    ask_s: int = 0
    # One more with each change. In a request: the version that is to be changed; 0 or nothing for whichever it
    # is
    version: int = 0
    # The project whose layer counts for it
    project: str = ""
    # The agent of the hub that its programs are, at http://atoll.internal/hub/; empty: none
    agent: str = ""


@dataclass(frozen=True)
class SandboxInfo(Model):
    # sb…
    id: str = ""
    # Its name; null when it has none
    name: Optional[str] = None
    # creating, running, paused, stopped or failed
    state: str = ""
    # Why it stopped or failed; null while it is well
    reason: Optional[str] = None
    # It does not run because its process 1 died by itself; `reason` says how
    crashed: bool = False
    # It died 5 times within 10 minutes, after less than 60 s each; false again once it has run for 5 minutes
    crash_loop: bool = False
    # Its idle policy paused or stopped it; a command wakes it
    asleep: bool = False
    # memory or disk
    storage: str = ""
    # What it began with; null for the programs of the machine
    image: Optional[str] = None
    # The template that it was made of; null for none
    template: Optional[str] = None
    # Id of the sandbox whose files it began with, by a fork or a snapshot; null for none. That one may be gone
    parent: Optional[str] = None
    # Who commands run as
    user: str = ""
    # Bytes of memory it may use
    memory: int = 0
    # Processes and threads it may have
    pids: int = 0
    # 100 is one core
    cpu_percent: int = 0
    # Bytes a second of each disk, each way; 0 for no limit
    io_bytes: int = 0
    # Operations a second of each disk, each way; 0 for no limit
    io_ops: int = 0
    # Bytes it may write
    disk: int = 0
    # Files it may make; 0 on a disk, where its bytes bound them
    inodes: int = 0
    # Open descriptors of each process
    nofile: int = 0
    # Lifetime; 0 for none
    ttl_ms: int = 0
    # Environment of every command
    env: Dict[str, str] = field(default_factory=dict)
    # Anything, to find it again
    labels: Dict[str, str] = field(default_factory=dict)
    # Volumes in it
    volumes: List[SandboxInfoVolume] = field(default_factory=list)
    # Directories of the machine in it
    binds: List[SandboxInfoBind] = field(default_factory=list)
    # What its commands can open besides the standard places; empty: no such policy
    files: List[SandboxInfoFile] = field(default_factory=list)
    # What happens when nobody uses it
    idle: Optional[SandboxInfoIdle] = None
    # Its own layer of what it may reach; null when it says nothing
    egress: Optional[EgressInfo] = None
    # May tools inside make sandboxes of their own?
    nesting: bool = False
    # Has it a read-only /sys?
    sys: bool = False
    # T3, or T1 with nesting; /applied says what the kernel says
    tier: str = ""
    # What happens to hosts that no rule names, by all layers together: deny, ask or open
    egress_mode: str = ""
    # Commands that run now
    execs_running: int = 0
    # Who made it
    by: str = ""
    # Name of the token that owns it; the caller unless given. Only an operator may name another owner
    owner: str = ""
    # private (default): tokens of role agent reach it only as its owner or through shared_with; tenant: every
    # token of the tenant does
    visibility: str = ""
    # Names of tokens of role agent that may use it like its owner
    shared_with: List[str] = field(default_factory=list)
    # When it was made
    created_at: Optional[datetime] = None
    # When its state last changed
    changed_at: Optional[datetime] = None
    # When it will be deleted; null for never
    expires_at: Optional[datetime] = None
    # In the answer to its creation: cold, or warm out of a pool; otherwise null
    start: Optional[str] = None
    # Likewise: microseconds from the request until it ran; otherwise 0
    create_us: int = 0
    _special: ClassVar[Special] = {
        "volumes": SandboxInfoVolume,
        "binds": SandboxInfoBind,
        "files": SandboxInfoFile,
        "idle": SandboxInfoIdle,
        "egress": EgressInfo,
        "created_at": datetime,
        "changed_at": datetime,
        "expires_at": datetime,
    }


@dataclass(frozen=True)
class SandboxStatsIo(Model):
    # Bytes read
    read: int = 0
    # Bytes written
    written: int = 0


@dataclass(frozen=True)
class SandboxStats(Model):
    # Processor time used, microseconds
    cpu_us: int = 0
    # Bytes of memory in use
    memory: int = 0
    # The most it has used
    memory_peak: int = 0
    # Processes and threads
    pids: int = 0
    # Processes that the kernel killed for want of memory
    oom_kills: int = 0
    # Bytes that it has written and that are still there, as of some seconds ago; with storage memory all files
    # in memory
    disk: int = 0
    # Of disks; null where nobody counts: with cgroup v1, unless it has a limit
    io: Optional[SandboxStatsIo] = None
    _special: ClassVar[Special] = {
        "io": SandboxStatsIo,
    }


@dataclass(frozen=True)
class ExecInfo(Model):
    # ex…
    id: str = ""
    # Where it runs
    sandbox: str = ""
    # If it was given one
    name: str = ""
    # starting, running, exited or lost
    state: str = ""
    # Why its output or its end waits, such as a full disk; otherwise null
    reason: Optional[str] = None
    # Program and arguments
    argv: List[str] = field(default_factory=list)
    # Working directory
    cwd: str = ""
    # Who runs it
    user: str = ""
    # Has it a terminal?
    tty: bool = False
    # As it was wished for
    background: bool = False
    # Was input to follow?
    stdin_open: bool = False
    # 0 for none
    timeout_ms: int = 0
    # Its own rules about files
    files: List[SandboxInfoFile] = field(default_factory=list)
    # It was started under rules about files, the sandbox's or its own
    file_policy: bool = False
    # Process id inside
    pid: int = 0
    # As a shell says it (128 + signal); -1 until it has exited
    exit_code: int = 0
    # That ended it, or 0
    signal: int = 0
    # Ended by timeout_ms
    timed_out: bool = False
    # It failed, and the kernel killed something in its sandbox for lack of memory
    oom: bool = False
    # Printed so far
    stdout_bytes: int = 0
    # Printed so far
    stderr_bytes: int = 0
    # Processor time, microseconds
    user_us: int = 0
    # Likewise, in the kernel
    system_us: int = 0
    # Most memory, kibibytes
    maxrss_kb: int = 0
    # Who started it
    by: str = ""
    # When it was started
    started_at: Optional[datetime] = None
    # When it ended; null until then
    ended_at: Optional[datetime] = None
    # HOST:PORT of what was denied to the sandbox while it ran; null in lists
    blocked: List[str] = field(default_factory=list)
    # The first of standard output, when it was waited for; otherwise null
    output: Optional[str] = None
    # Likewise, of standard error
    errors: str = ""
    _special: ClassVar[Special] = {
        "files": SandboxInfoFile,
        "started_at": datetime,
        "ended_at": datetime,
    }


@dataclass(frozen=True)
class ExecStdinResult(Model):
    # Taken of this body, now or, with `at`, before
    bytes: int = 0
    # Bytes of input from the first one ever, this body included; `at` of the next
    position: int = 0
    # Whether that was the end of input
    eof: bool = False


@dataclass(frozen=True)
class FileInfo(Model):
    # In a list its name, in a manifest its path below the directory, otherwise the path that was asked for;
    # bytes that are no UTF-8 are shown as U+FFFD
    name: str = ""
    # The name's bytes where it is no UTF-8; otherwise null
    name_base64: Optional[str] = None
    # file, directory, symlink, fifo, socket, character_device or block_device
    type: str = ""
    # Permissions, octal: "0644"
    mode: str = ""
    # Owner, as seen inside
    uid: int = 0
    # Group, as seen inside
    gid: int = 0
    # Bytes
    size: int = 0
    # When its contents changed last
    mtime: Optional[datetime] = None
    # Where a symlink leads; otherwise null
    link: Optional[str] = None
    # As name_base64
    link_base64: str = ""
    # Digest of a readable file, in manifests; otherwise null
    sha256: Optional[str] = None
    _special: ClassVar[Special] = {
        "mtime": datetime,
    }


@dataclass(frozen=True)
class TreeWriteResult(Model):
    # Where
    path: str = ""
    # Bytes of contents that were unpacked
    bytes: int = 0
    # Files, directories and links
    entries: int = 0


@dataclass(frozen=True)
class VolumeInfo(Model):
    # vo…
    id: str = ""
    # Its name
    name: str = ""
    # ready, or lost: its disk is gone
    state: str = ""
    # How much may be written to it
    bytes: int = 0
    # Ids of those that name it
    sandboxes: List[str] = field(default_factory=list)
    # Who made it
    by: str = ""
    # Name of the token that owns it; the caller unless given. Only an operator may name another owner
    owner: str = ""
    # private (default): tokens of role agent reach it only as its owner or through shared_with; tenant: every
    # token of the tenant does
    visibility: str = ""
    # Names of tokens of role agent that may use it like its owner
    shared_with: List[str] = field(default_factory=list)
    # When it was made
    created_at: Optional[datetime] = None
    _special: ClassVar[Special] = {
        "created_at": datetime,
    }


@dataclass(frozen=True)
class VolumeDetail(Model):
    # vo…
    id: str = ""
    # Its name
    name: str = ""
    # ready, or lost: its disk is gone
    state: str = ""
    # How much may be written to it
    bytes: int = 0
    # Ids of those that name it
    sandboxes: List[str] = field(default_factory=list)
    # Who made it
    by: str = ""
    # Name of the token that owns it; the caller unless given. Only an operator may name another owner
    owner: str = ""
    # private (default): tokens of role agent reach it only as its owner or through shared_with; tenant: every
    # token of the tenant does
    visibility: str = ""
    # Names of tokens of role agent that may use it like its owner
    shared_with: List[str] = field(default_factory=list)
    # When it was made
    created_at: Optional[datetime] = None
    # Bytes that are written
    used: int = 0
    _special: ClassVar[Special] = {
        "created_at": datetime,
    }


@dataclass(frozen=True)
class SnapshotInfo(Model):
    # sn…
    id: str = ""
    # Its name
    name: str = ""
    # Whose files it has; that one may be gone
    sandbox: str = ""
    # ready, or lost: its disk is gone
    state: str = ""
    # Size of the disk it was taken of
    bytes: int = 0
    # Who made it
    by: str = ""
    # Name of the token that owns it; the caller unless given. Only an operator may name another owner
    owner: str = ""
    # private (default): tokens of role agent reach it only as its owner or through shared_with; tenant: every
    # token of the tenant does
    visibility: str = ""
    # Names of tokens of role agent that may use it like its owner
    shared_with: List[str] = field(default_factory=list)
    # When it was made
    created_at: Optional[datetime] = None
    _special: ClassVar[Special] = {
        "created_at": datetime,
    }


@dataclass(frozen=True)
class SandboxRollbackResult(Model):
    # The sandbox
    id: str = ""
    # Whose files it has now
    snapshot: str = ""
    # running if it ran or was paused before, otherwise stopped
    state: str = ""
    # Commands that ended by this
    execs_ended: int = 0


@dataclass(frozen=True)
class PoolInfo(Model):
    # Its name
    name: str = ""
    # How many are to stand ready
    size: int = 0
    # How many do now
    ready: int = 0
    # null: the programs of this machine
    image: Optional[str] = None
    # agent or root
    user: str = ""
    # memory or disk
    storage: str = ""
    # Taken since the server process started
    taken: int = 0
    # Creations that fitted and found none ready
    missed: int = 0
    # Why the last making failed; null when it did not
    error: Optional[str] = None


@dataclass(frozen=True)
class ImageInfoLayer(Model):
    # Digest of the layer's tar; one that two images have is kept once
    diff_id: str = ""
    # Bytes in the archive
    packed: int = 0
    # Bytes of its files
    bytes: int = 0
    # Files, directories and links
    entries: int = 0


@dataclass(frozen=True)
class ImageInfoConfig(Model):
    # Environment of every command, below what sandbox and command say
    env: List[str] = field(default_factory=list)
    # root or 0: commands run as root unless said; anybody else: as agent
    user: str = ""
    # Working directory of commands that name none
    workdir: str = ""
    # What `atoll run` without a command runs, followed by `cmd`
    entrypoint: List[str] = field(default_factory=list)
    # See `entrypoint`
    cmd: List[str] = field(default_factory=list)
    # What its maker noted
    labels: Dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ImageInfo(Model):
    # Its name, as a sandbox's `image`
    name: str = ""
    # Of its manifest (oci), its config (docker) or its tar
    digest: str = ""
    # tar, docker or oci
    format: str = ""
    # amd64, arm64
    architecture: str = ""
    # Of its files, shared layers included
    bytes: int = 0
    # The lowest first
    layers: List[ImageInfoLayer] = field(default_factory=list)
    # What its maker wishes for commands
    config: Optional[ImageInfoConfig] = None
    # How many sandboxes and snapshots need it; it can be removed when none does
    sandboxes: int = 0
    # Who imported it
    by: str = ""
    # When that was
    created_at: Optional[datetime] = None
    _special: ClassVar[Special] = {
        "layers": ImageInfoLayer,
        "config": ImageInfoConfig,
        "created_at": datetime,
    }


@dataclass(frozen=True)
class SecretInfo(Model):
    # What it is asked for by
    name: str = ""
    # A value that was put here, or what an agent connects with
    kind: str = ""
    # Of a value: who can open it
    use: str = ""
    # Of a value for requests: where it may go
    hosts: List[str] = field(default_factory=list)
    # Of a value for requests: what stands for it inside sandboxes
    placeholder: str = ""
    # Of an agent's: whose it is
    agent_id: str = ""
    # Of an agent's: the first 12 digits of its SHA-256
    fingerprint: str = ""
    # Of an agent's: a new one waits for its first use
    rotation_pending: bool = False
    # One more with each new value
    version: int = 0
    # Who put it here last
    by: str = ""
    # When it was first put here
    created_at: Optional[datetime] = None
    # When it was last replaced
    changed_at: Optional[datetime] = None
    _special: ClassVar[Special] = {
        "created_at": datetime,
        "changed_at": datetime,
    }


@dataclass(frozen=True)
class NewSecret(Model):
    # What it is asked for by
    name: str = ""
    # A value that was put here, or what an agent connects with
    kind: str = ""
    # Of a value: who can open it
    use: str = ""
    # Of a value for requests: where it may go
    hosts: List[str] = field(default_factory=list)
    # Of a value for requests: what stands for it inside sandboxes
    placeholder: str = ""
    # Of an agent's: whose it is
    agent_id: str = ""
    # Of an agent's: the first 12 digits of its SHA-256
    fingerprint: str = ""
    # Of an agent's: a new one waits for its first use
    rotation_pending: bool = False
    # One more with each new value
    version: int = 0
    # Who put it here last
    by: str = ""
    # When it was first put here
    created_at: Optional[datetime] = None
    # When it was last replaced
    changed_at: Optional[datetime] = None
    # The secret itself, shown this once; null when replayed by Idempotency-Key
    secret: Optional[str] = None
    _special: ClassVar[Special] = {
        "created_at": datetime,
        "changed_at": datetime,
    }


@dataclass(frozen=True)
class TerminalInfo(Model):
    # ex…, as of the command it is
    id: str = ""
    # Where it runs
    sandbox: str = ""
    # If it was given one
    name: str = ""
    # running, exited or lost
    state: str = ""
    # Program and arguments
    argv: List[str] = field(default_factory=list)
    # Working directory
    cwd: str = ""
    # Who runs it
    user: str = ""
    # Its size now
    rows: int = 0
    # Its size now
    cols: int = 0
    # The oldest byte that is kept
    begin: int = 0
    # Bytes printed so far
    end: int = 0
    # Who is attached, controllers too
    viewers: int = 0
    # Who may type now
    controllers: int = 0
    # And how many may at once
    max_controllers: int = 0
    # Who types nothing for this long becomes an observer
    lease_ms: int = 0
    # Process id inside
    pid: int = 0
    # As a shell says it (128 + signal); -1 until it has exited
    exit_code: int = 0
    # That ended it, or 0
    signal: int = 0
    # Who started it
    by: str = ""
    # When it was started
    started_at: Optional[datetime] = None
    # When it ended; null until then
    ended_at: Optional[datetime] = None
    _special: ClassVar[Special] = {
        "started_at": datetime,
        "ended_at": datetime,
    }


@dataclass(frozen=True)
class PortInfo(Model):
    # Its number
    port: int = 0
    # loopback, or any for every address inside
    address: str = ""
    # Who listens, as seen inside
    uid: int = 0


@dataclass(frozen=True)
class PortPreviewResult(Model):
    # To be opened in a browser on this machine
    url: str = ""
    # The port inside
    port: int = 0
    # Until when it can be opened
    expires_at: Optional[datetime] = None
    _special: ClassVar[Special] = {
        "expires_at": datetime,
    }


@dataclass(frozen=True)
class CrashInfo(Model):
    # When its process 1 died
    at: Optional[datetime] = None
    # How long it had run
    uptime_ms: int = 0
    # How it ended
    reason: str = ""
    _special: ClassVar[Special] = {
        "at": datetime,
    }


@dataclass(frozen=True)
class QuotaInfo(Model):
    # tenant:NAME, role:NAME, by:ID or label:KEY=VALUE, or * for each; machine for what the machine has
    subject: str = ""
    # With * and role: the one that `used` is about, which has most sandboxes; null when none has any
    group: Optional[str] = None
    # In effect because no row says otherwise; it cannot be deleted, only replaced
    preset: bool = False
    # Most sandboxes; 0: no limit
    sandboxes: int = 0
    # Most bytes of memory limits; 0: no limit
    memory: int = 0
    # Most processor time; 0: no limit
    cpu_percent: int = 0
    # Most bytes of disks; 0: no limit
    disk: int = 0
    # Most bytes of memory of one; 0: no limit
    sandbox_memory: int = 0
    # Most processor time of one; 0: no limit
    sandbox_cpu_percent: int = 0
    # Most bytes of disk of one; 0: no limit
    sandbox_disk: int = 0
    # Sandboxes that there are
    used_sandboxes: int = 0
    # Bytes of memory limits
    used_memory: int = 0
    # Processor limits
    used_cpu_percent: int = 0
    # Bytes of disks
    used_disk: int = 0
    # Who wrote it; null for a preset
    by: Optional[str] = None
    # When
    changed_at: Optional[datetime] = None
    _special: ClassVar[Special] = {
        "changed_at": datetime,
    }


@dataclass(frozen=True)
class TemplateInfoSpecBind(Model):
    # What the server's door gave for a directory of its machine, in hex; good once
    ticket: str = ""
    # Where it is put; absolute, made if it is not there
    path: str = ""
    # Nothing in it can be changed from here
    read_only: bool = False
    # What is changed in it stays in the sandbox until it stops, where its storage is: /changes lists it. Of one
    # directory, with a server started by root
    view: bool = False


@dataclass(frozen=True)
class TemplateInfoSpec(Model):
    # A name of its own within the tenant; may be used instead of the id
    name: str = ""
    # Who commands run as unless they say otherwise; root is nobody outside, but has a few capabilities inside.
    # agent unless said
    user: str = ""
    # Bytes of memory; 1 GiB unless said
    memory: int = 0
    # Processes and threads at once; 512 unless said
    pids: int = 0
    # Share of processor time, 100 is one core; 200 unless said
    cpu_percent: int = 0
    # Bytes a second that it may read from each disk of the machine, and as many that it may write; no limit
    # unless said
    io_bytes: int = 0
    # Likewise in operations a second
    io_ops: int = 0
    # Bytes of everything written inside; with storage memory half of memory unless said, with storage disk 8 GiB
    disk: int = 0
    # Files and directories made inside, with storage memory; 100000 unless said
    inodes: int = 0
    # Open descriptors of each process; 1024 unless said
    nofile: int = 0
    # Lifetime in milliseconds, after which it is deleted; without it, until deleted
    ttl_ms: int = 0
    # Environment of every command
    env: Dict[str, str] = field(default_factory=dict)
    # Anything, to find it again
    labels: Dict[str, str] = field(default_factory=dict)
    # Where what it writes goes: memory is gone when it ends, disk stays over stop and start. disk unless said,
    # where the machine can
    storage: str = ""
    # What it begins with; the programs of this machine unless said
    image: str = ""
    # Begin with the files of this snapshot (id, or a name that only one has)
    from_snapshot: str = ""
    # Takes from this template what is not said here; environment and labels of both
    template: str = ""
    # Volumes in it
    volumes: List[SandboxInfoVolume] = field(default_factory=list)
    # Directories of the machine in it; gone after a stop
    binds: List[TemplateInfoSpecBind] = field(default_factory=list)
    # With any, commands can open only what they name, besides the standard places: /usr, /lib*, /bin, /sbin and
    # /etc to read, /dev, /proc and /tmp to write. Not for file requests of this API
    files: List[SandboxInfoFile] = field(default_factory=list)
    # What happens when nobody uses it; without it, nothing
    idle: Optional[SandboxInfoIdle] = None
    # What it may reach, besides what node, tenant and project say. Only operators allow anything; others can
    # only take away
    egress: Optional[EgressInfo] = None
    # Tools inside may make sandboxes of their own: user namespaces and mounts are allowed, /proc is not masked
    # and Landlock does not guard files
    nesting: bool = False
    # A read-only /sys; without it, none
    sys: bool = False
    # How strongly it is isolated, in one word. T3 (unless said): namespaces, no capabilities outside its own
    # user namespace (commands as agent have none, those as root some of that namespace; /applied names them),
    # seccomp, Landlock, and no way out but through policy. T1: the same as nesting. The others are not offered,
    # and refused
    tier: str = ""
    # false: it is made anew, though a pool has one that fits. true unless said; null where a template leaves it
    # open
    warm: Optional[bool] = None
    # The sandbox whose files it has
    parent: str = ""
    # Name of the token that owns it; the caller unless given. Only an operator may name another owner
    owner: str = ""
    # private (default): tokens of role agent reach it only as its owner or through shared_with; tenant: every
    # token of the tenant does
    visibility: str = ""
    # Names of tokens of role agent that may use it like its owner
    shared_with: List[str] = field(default_factory=list)
    _special: ClassVar[Special] = {
        "volumes": SandboxInfoVolume,
        "binds": TemplateInfoSpecBind,
        "files": SandboxInfoFile,
        "idle": SandboxInfoIdle,
        "egress": EgressInfo,
    }


@dataclass(frozen=True)
class TemplateInfo(Model):
    # Its name
    name: str = ""
    # What it says; 0, null and empty is what it leaves open
    spec: Optional[TemplateInfoSpec] = None
    # Who wrote it
    by: str = ""
    # When
    changed_at: Optional[datetime] = None
    _special: ClassVar[Special] = {
        "spec": TemplateInfoSpec,
        "changed_at": datetime,
    }


@dataclass(frozen=True)
class ProcessInfo(Model):
    # Process id inside
    pid: int = 0
    # Of the process that started it
    parent: int = 0
    # Whose it is, as seen inside
    uid: int = 0
    # The kernel's letter: R runs, S sleeps, D waits, T is stopped, Z has ended…
    state: str = ""
    # Threads
    threads: int = 0
    # Bytes of memory that are its own
    rss: int = 0
    # Processor time, microseconds
    cpu_us: int = 0
    # Program and arguments
    command: str = ""


@dataclass(frozen=True)
class EgressPolicyRule(Model):
    # What it does
    list: str = ""
    # The rule
    rule: str = ""
    # Whose it is
    level: str = ""
    # The pack it came with; null for none
    pack: Optional[str] = None


@dataclass(frozen=True)
class EgressPolicyCredential(Model):
    # A rule that puts a secret into requests, or one whose placeholder is in the environment
    list: str = ""
    # As it was written
    rule: str = ""
    # Whose it is
    level: str = ""
    # The secret it names is not there: it says nothing until it is
    missing: bool = False


@dataclass(frozen=True)
class EgressPolicy(Model):
    # Whose it is
    sandbox: str = ""
    # The project whose layer counts; null for none
    project: Optional[str] = None
    # What happens to hosts that no rule allows
    mode: str = ""
    # Which layer says so; null when none does
    mode_level: Optional[str] = None
    # Rises with every change
    version: int = 0
    # Both ways; 0 for no limit
    max_bytes: int = 0
    # At once; 0 for no limit
    max_connections: int = 0
    # How long a connection waits in mode ask
    ask_s: int = 0
    # All rules that count, in the order of layers; a deny wins over every allow
    rules: List[EgressPolicyRule] = field(default_factory=list)
    # What goes into its requests, in the order of layers; never a value
    credentials: List[EgressPolicyCredential] = field(default_factory=list)
    # Why none does although layers say so; null when all is well
    credentials_error: Optional[str] = None
    # The sandbox's own layer; null when it says nothing
    own: Optional[EgressInfo] = None
    # Why nothing is allowed although layers say otherwise; null when all is well
    error: Optional[str] = None
    # Is there a process that lets anything out?
    linked: bool = False
    # Connections and requests let out
    allowed: int = 0
    # …and refused, for whatever reason
    denied: int = 0
    # Bytes from the sandbox
    sent: int = 0
    # Bytes to it
    received: int = 0
    # Bytes that count for max_bytes: those of open connections too, about a second late
    used: int = 0
    # Records that were only counted
    lost: int = 0
    _special: ClassVar[Special] = {
        "rules": EgressPolicyRule,
        "credentials": EgressPolicyCredential,
        "own": EgressInfo,
    }


@dataclass(frozen=True)
class EgressExplanation(Model):
    # The host as it was understood
    host: str = ""
    # The port
    port: int = 0
    # What would happen
    verdict: str = ""
    # A rule says so; none does; the mode is open; the host is allowed on other ports, with other requests;
    # requests cannot be seen; an address needs a rule of its own; no such address may be reached
    why: str = ""
    # The same for people
    reason: str = ""
    # The rule that decided, or that came nearest; null for none
    rule: Optional[str] = None
    # Whose rule; null without one
    level: Optional[str] = None
    # The pack it came with
    pack: str = ""
    # What happens without a rule
    mode: str = ""
    # Were method and path judged?
    seen: bool = False
    # Is its TLS opened?
    intercept: bool = False


@dataclass(frozen=True)
class EgressRuleAddResult(Model):
    # Whom the layer is for that was changed
    level: str = ""
    # Its name; null for the node
    name: Optional[str] = None
    # What it says
    policy: Optional[EgressInfo] = None
    # Who changed it last
    by: str = ""
    # When
    changed_at: Optional[datetime] = None
    _special: ClassVar[Special] = {
        "policy": EgressInfo,
        "changed_at": datetime,
    }


@dataclass(frozen=True)
class EgressRecord(Model):
    # Its number; rises
    seq: int = 0
    # When it was decided
    at_ms: Optional[datetime] = None
    # Who wanted it
    sandbox: str = ""
    # The run it belongs to; empty for none
    run: str = ""
    # How: a request, a tunnel by the proxy, TLS, another connection, atoll.internal
    kind: str = ""
    # What came of it
    verdict: str = ""
    # As in explain
    why: str = ""
    # The host; empty when none was read
    host: str = ""
    # The port
    port: int = 0
    # The rule that decided; empty for none
    rule: str = ""
    # For people
    reason: str = ""
    # Of a request that was seen
    method: str = ""
    # Likewise, cut off
    path: str = ""
    # Of the policy that decided
    version: int = 0
    # When it ended; null while it lasts
    ended_ms: Optional[datetime] = None
    # Bytes from the sandbox
    sent: int = 0
    # Bytes to it
    received: int = 0
    # Where it went; empty for nowhere
    addr: str = ""
    # It was closed because its rule was taken back
    revoked: bool = False
    _special: ClassVar[Special] = {
        "at_ms": datetime,
        "ended_ms": datetime,
    }


@dataclass(frozen=True)
class EgressHost(Model):
    # The host
    host: str = ""
    # The port
    port: int = 0
    # How often it was let out
    allowed: int = 0
    # …and not
    denied: int = 0
    # Bytes from the sandbox
    sent: int = 0
    # Bytes to it
    received: int = 0
    # The first time
    first_ms: Optional[datetime] = None
    # The last time
    last_ms: Optional[datetime] = None
    _special: ClassVar[Special] = {
        "first_ms": datetime,
        "last_ms": datetime,
    }


@dataclass(frozen=True)
class AskInfo(Model):
    # ask…
    id: str = ""
    # egress: a connection waits; rule: a program inside wants a host allowed; claim: an agent proposes to take a
    # task
    kind: str = ""
    # Who asks
    sandbox: str = ""
    # What came of it
    state: str = ""
    # Exactly what is asked for
    action: Any = None
    # SHA-256 of the action's text
    hash: str = ""
    # When it was asked
    created_at: Optional[datetime] = None
    # When it is denied for want of an answer
    expires_at: Optional[datetime] = None
    # When it was decided; null before
    decided_at: Optional[datetime] = None
    # Who decided; null for nobody
    by: Optional[str] = None
    # What they said about it
    note: str = ""
    _special: ClassVar[Special] = {
        "created_at": datetime,
        "expires_at": datetime,
        "decided_at": datetime,
    }


__all__ = [
    "AskInfo",
    "AuditVerdict",
    "BackupInfo",
    "BindMount",
    "CrashInfo",
    "EgressExplanation",
    "EgressHost",
    "EgressInfo",
    "EgressPolicy",
    "EgressPolicyCredential",
    "EgressPolicyRule",
    "EgressRecord",
    "EgressRuleAddResult",
    "EgressSpec",
    "ExecInfo",
    "ExecStdinResult",
    "FileInfo",
    "FileRule",
    "Health",
    "HealthAgents",
    "IdlePolicy",
    "ImageInfo",
    "ImageInfoConfig",
    "ImageInfoLayer",
    "LoginLink",
    "NewSecret",
    "NewToken",
    "NoteInfo",
    "PoolInfo",
    "PortInfo",
    "PortPreviewResult",
    "ProcessInfo",
    "QuotaInfo",
    "SandboxInfo",
    "SandboxInfoBind",
    "SandboxInfoFile",
    "SandboxInfoIdle",
    "SandboxInfoVolume",
    "SandboxRollbackResult",
    "SandboxStats",
    "SandboxStatsIo",
    "SecretInfo",
    "SnapshotInfo",
    "TemplateInfo",
    "TemplateInfoSpec",
    "TemplateInfoSpecBind",
    "TerminalInfo",
    "TokenInfo",
    "TreeWriteResult",
    "VolumeDetail",
    "VolumeInfo",
    "VolumeMount",
    "Whoami",
]
