// What the API takes and gives, as types. Made by tools/gen-sdk from the route tables; do not edit.

export interface HealthAgents {
    /** Linked agents that are there */
    connected: number;
    /** Of those, ready or busy */
    ready: number;
}

export interface Health {
    /** What it is doing; full: no room in the state directory, so nothing is started */
    status: string;
    /** Of full; otherwise null */
    reason: string | null;
    /** Of the program */
    version: string;
    /** Whether it takes requests */
    ready: boolean;
    /** The store's file; a large one is checked while it serves, a damaged one is read but not written */
    store: string;
    /** When this process began to serve */
    started_at: string | null;
    /** Since then, in milliseconds */
    uptime_ms: number;
    /** The same in seconds */
    uptime_seconds: number;
    /** Agents that are linked */
    agents: HealthAgents | null;
    /** Open event streams */
    subscribers: number;
    /** Calls under way on workers */
    calls: number;
}

export interface Whoami {
    /** Token or session id, or unix:UID */
    id: string;
    /** The name it was given */
    name: string;
    /** What it may do */
    role: string;
    /** Whose objects it sees */
    tenant: string;
    /** How it was recognised */
    via: string;
    /** Comma list; empty means all that the role may */
    scopes: string;
    /** When it ends; null for never */
    expires_at: string | null;
}

export interface TokenSpec {
    /** What it is for; unique among live tokens */
    name: string;
    /** What it may do */
    role: "admin" | "operator" | "viewer" | "agent" | "sandbox";
    /** Whose objects it sees; the caller's own unless an admin says otherwise */
    tenant?: string;
    /** Actions such as token.* or event.read; none means all that the role may */
    scopes?: string[];
    /** Lifetime in milliseconds; without it the token does not expire */
    ttl_ms?: number;
    /** It must sign every request (HMAC); the token itself is then not accepted */
    signing?: boolean;
}

export interface NewToken {
    /** tok… */
    id: string;
    /** What it is for */
    name: string;
    /** What it may do */
    role: string;
    /** Whose objects it sees */
    tenant: string;
    /** Comma list; empty means all that the role may */
    scopes: string;
    /** May sign requests */
    signing: boolean;
    /** When it was made */
    created_at: string | null;
    /** When it ends; null for never */
    expires_at: string | null;
    /** The token itself, shown this once; null when replayed by Idempotency-Key */
    token: string | null;
}

export interface TokenInfo {
    /** tok… */
    id: string;
    /** What it is for */
    name: string;
    /** What it may do */
    role: string;
    /** Whose objects it sees */
    tenant: string;
    /** Comma list; empty means all that the role may */
    scopes: string;
    /** May sign requests */
    signing: boolean;
    /** When it was made */
    created_at: string | null;
    /** When it ends; null for never */
    expires_at: string | null;
    /** When it was last used, to about a minute; null for not yet */
    used_at: string | null;
    /** When it was revoked; null while it lives */
    revoked_at: string | null;
}

export interface LoginLink {
    /** To be opened in a browser, once */
    url_path: string;
    /** The same with the address that the server listens on; null when it has only a Unix socket */
    url: string | null;
    /** When the link stops working */
    expires_at: string | null;
}

export interface NoteCreateRequest {
    /** What is to be remembered */
    text: string;
}

export interface NoteInfo {
    /** Its event number */
    seq: number;
    /** When it was written */
    time: string | null;
    /** Who wrote it */
    by: string;
    /** The note */
    text: string;
}

export interface AuditVerdict {
    /** Whether every row fits */
    ok: boolean;
    /** Rows checked */
    rows: number;
    /** The first row that does not fit; 0 when all do */
    bad_seq: number;
    /** What is wrong with it */
    why: string;
    /** Hash of the last row; note it elsewhere to detect a rollback */
    head: string;
}

export interface BackupCreateRequest {
    /** File name: letters, digits, - _ and . */
    name: string;
}

export interface BackupInfo {
    /** File name */
    name: string;
    /** Where the server put it */
    path: string;
    /** Its size */
    bytes: number;
}

export interface VolumeMount {
    /** Name or id of a volume */
    volume: string;
    /** Where it is put; absolute, made if it is not there */
    path: string;
    /** Nothing in it can be changed from here */
    read_only?: boolean;
}

export interface BindMount {
    /** What the server's door gave for a directory of its machine, in hex; good once */
    ticket: string;
    /** Where it is put; absolute, made if it is not there */
    path: string;
    /** Nothing in it can be changed from here */
    read_only?: boolean;
    /** What is changed in it stays in the sandbox until it stops, where its storage is: /changes lists it. Of one
     *  directory, with a server started by root */
    view?: boolean;
}

export interface FileRule {
    /** A file or directory inside, absolute; it and all below it */
    path: string;
    /** read: read and execute; write: everything */
    access: "read" | "write";
}

export interface IdlePolicy {
    /** Milliseconds without a running command, a reader of output or a request about it */
    after_ms: number;
    /** Then it is paused, stopped or deleted; a command wakes it from the first two */
    action: "pause" | "stop" | "delete";
}

export interface EgressSpec {
    /** What happens to a host that no rule allows: refused, asked about, or allowed. Unsaid: as the layer outside
     *  says, deny in the end */
    mode?: "deny" | "ask" | "open";
    /** Rules: HOST, *.SUFFIX, .SUFFIX, an address or a network, each with :PORT or :*; then METHODS and a PATH */
    allow?: string[];
    /** Rules that win over every allow */
    deny?: string[];
    /** Named lists of allow rules */
    packs?: string[];
    /** Hosts whose TLS is opened, so that requests can be judged */
    intercept?: string[];
    /** Hosts to which any bytes may be sent; port 443 unless said */
    unchecked?: string[];
    /** Credentials: "HOST => HEADER: VALUE" sets a header, in which {secret:NAME} or {basic:USER:NAME} stands for
     *  a secret; "HOST => {secret:NAME}" replaces its placeholder. TLS to such a host is opened. Not in the node's
     *  layer */
    inject?: string[];
    /** NAME or VARIABLE=NAME: the variable holds the secret's placeholder, which is replaced in requests to the
     *  secret's own hosts. Not in the node's layer */
    secrets?: string[];
    /** Both ways together, of one sandbox; 0 for no limit */
    max_bytes?: number;
    /** Open at once, of one sandbox; 0 for no limit of its own */
    max_connections?: number;
    /** How long a connection waits for an answer in mode ask; 0 for 60 */
    ask_s?: number;
    /** One more with each change. In a request: the version that is to be changed; 0 or nothing for whichever it
     *  is */
    version?: number;
    /** The project whose layer counts for it */
    project?: string;
    /** The agent of the hub that its programs are, at http://atoll.internal/hub/; empty: none */
    agent?: string;
}

export interface SandboxSpec {
    /** A name of its own within the tenant; may be used instead of the id */
    name?: string;
    /** Who commands run as unless they say otherwise; root is nobody outside, but has a few capabilities inside.
     *  agent unless said */
    user?: "agent" | "root";
    /** Bytes of memory; 1 GiB unless said */
    memory?: number;
    /** Processes and threads at once; 512 unless said */
    pids?: number;
    /** Share of processor time, 100 is one core; 200 unless said */
    cpu_percent?: number;
    /** Bytes a second that it may read from each disk of the machine, and as many that it may write; no limit
     *  unless said */
    io_bytes?: number;
    /** Likewise in operations a second */
    io_ops?: number;
    /** Bytes of everything written inside; with storage memory half of memory unless said, with storage disk 8 GiB */
    disk?: number;
    /** Files and directories made inside, with storage memory; 100000 unless said */
    inodes?: number;
    /** Open descriptors of each process; 1024 unless said */
    nofile?: number;
    /** Lifetime in milliseconds, after which it is deleted; without it, until deleted */
    ttl_ms?: number;
    /** Environment of every command */
    env?: Record<string, string>;
    /** Anything, to find it again */
    labels?: Record<string, string>;
    /** Where what it writes goes: memory is gone when it ends, disk stays over stop and start. disk unless said,
     *  where the machine can */
    storage?: "memory" | "disk";
    /** What it begins with; the programs of this machine unless said */
    image?: string;
    /** Begin with the files of this snapshot (id, or a name that only one has) */
    from_snapshot?: string;
    /** Takes from this template what is not said here; environment and labels of both */
    template?: string;
    /** Volumes in it */
    volumes?: VolumeMount[];
    /** Directories of the machine in it; gone after a stop */
    binds?: BindMount[];
    /** With any, commands can open only what they name, besides the standard places: /usr, /lib*, /bin, /sbin and
     *  /etc to read, /dev, /proc and /tmp to write. Not for file requests of this API */
    files?: FileRule[];
    /** What happens when nobody uses it; without it, nothing */
    idle?: IdlePolicy;
    /** What it may reach, besides what node, tenant and project say. Only operators allow anything; others can
     *  only take away */
    egress?: EgressSpec;
    /** Tools inside may make sandboxes of their own: user namespaces and mounts are allowed, /proc is not masked
     *  and Landlock does not guard files */
    nesting?: boolean;
    /** A read-only /sys; without it, none */
    sys?: boolean;
    /** How strongly it is isolated, in one word. T3 (unless said): namespaces, no capabilities outside its own
     *  user namespace (commands as agent have none, those as root some of that namespace; /applied names them),
     *  seccomp, Landlock, and no way out but through policy. T1: the same as nesting. The others are not offered,
     *  and refused */
    tier?: "T0" | "T1" | "T2" | "T3" | "T4" | "vm";
    /** false: it is made anew, though a pool has one that fits. true unless said; null where a template leaves it
     *  open */
    warm?: boolean;
    /** Name of the token that owns it; the caller unless given. Only an operator may name another owner */
    owner?: string;
    /** private (default): tokens of role agent reach it only as its owner or through shared_with; tenant: every
     *  token of the tenant does */
    visibility?: "private" | "tenant";
    /** Names of tokens of role agent that may use it like its owner */
    shared_with?: string[];
}

export interface SandboxInfoVolume {
    /** Name or id of a volume */
    volume: string;
    /** Where it is put; absolute, made if it is not there */
    path: string;
    /** Nothing in it can be changed from here */
    read_only: boolean;
}

export interface SandboxInfoBind {
    /** Where it is */
    path: string;
    /** Nothing in it can be changed */
    read_only: boolean;
    /** What is changed in it stays in the sandbox */
    view: boolean;
}

export interface SandboxInfoFile {
    /** A file or directory inside, absolute; it and all below it */
    path: string;
    /** read: read and execute; write: everything */
    access: string;
}

export interface SandboxInfoIdle {
    /** Milliseconds without a running command, a reader of output or a request about it */
    after_ms: number;
    /** Then it is paused, stopped or deleted; a command wakes it from the first two */
    action: string;
}

export interface EgressInfo {
    /** What happens to a host that no rule allows: refused, asked about, or allowed. Unsaid: as the layer outside
     *  says, deny in the end */
    mode: string;
    /** Rules: HOST, *.SUFFIX, .SUFFIX, an address or a network, each with :PORT or :*; then METHODS and a PATH */
    allow: string[];
    /** Rules that win over every allow */
    deny: string[];
    /** Named lists of allow rules */
    packs: string[];
    /** Hosts whose TLS is opened, so that requests can be judged */
    intercept: string[];
    /** Hosts to which any bytes may be sent; port 443 unless said */
    unchecked: string[];
    /** Credentials: "HOST => HEADER: VALUE" sets a header, in which {secret:NAME} or {basic:USER:NAME} stands for
     *  a secret; "HOST => {secret:NAME}" replaces its placeholder. TLS to such a host is opened. Not in the node's
     *  layer */
    inject: string[];
    /** NAME or VARIABLE=NAME: the variable holds the secret's placeholder, which is replaced in requests to the
     *  secret's own hosts. Not in the node's layer */
    secrets: string[];
    /** Both ways together, of one sandbox; 0 for no limit */
    max_bytes: number;
    /** Open at once, of one sandbox; 0 for no limit of its own */
    max_connections: number;
    /** How long a connection waits for an answer in mode ask; 0 for 60 */
    ask_s: number;
    /** One more with each change. In a request: the version that is to be changed; 0 or nothing for whichever it
     *  is */
    version: number;
    /** The project whose layer counts for it */
    project: string;
    /** The agent of the hub that its programs are, at http://atoll.internal/hub/; empty: none */
    agent: string;
}

export interface SandboxInfo {
    /** sb… */
    id: string;
    /** Its name; null when it has none */
    name: string | null;
    /** creating, running, paused, stopped or failed */
    state: string;
    /** Why it stopped or failed; null while it is well */
    reason: string | null;
    /** It does not run because its process 1 died by itself; `reason` says how */
    crashed: boolean;
    /** It died 5 times within 10 minutes, after less than 60 s each; false again once it has run for 5 minutes */
    crash_loop: boolean;
    /** Its idle policy paused or stopped it; a command wakes it */
    asleep: boolean;
    /** memory or disk */
    storage: string;
    /** What it began with; null for the programs of the machine */
    image: string | null;
    /** The template that it was made of; null for none */
    template: string | null;
    /** Id of the sandbox whose files it began with, by a fork or a snapshot; null for none. That one may be gone */
    parent: string | null;
    /** Who commands run as */
    user: string;
    /** Bytes of memory it may use */
    memory: number;
    /** Processes and threads it may have */
    pids: number;
    /** 100 is one core */
    cpu_percent: number;
    /** Bytes a second of each disk, each way; 0 for no limit */
    io_bytes: number;
    /** Operations a second of each disk, each way; 0 for no limit */
    io_ops: number;
    /** Bytes it may write */
    disk: number;
    /** Files it may make; 0 on a disk, where its bytes bound them */
    inodes: number;
    /** Open descriptors of each process */
    nofile: number;
    /** Lifetime; 0 for none */
    ttl_ms: number;
    /** Environment of every command */
    env: Record<string, string>;
    /** Anything, to find it again */
    labels: Record<string, string>;
    /** Volumes in it */
    volumes: SandboxInfoVolume[];
    /** Directories of the machine in it */
    binds: SandboxInfoBind[];
    /** What its commands can open besides the standard places; empty: no such policy */
    files: SandboxInfoFile[];
    /** What happens when nobody uses it */
    idle: SandboxInfoIdle | null;
    /** Its own layer of what it may reach; null when it says nothing */
    egress: EgressInfo | null;
    /** May tools inside make sandboxes of their own? */
    nesting: boolean;
    /** Has it a read-only /sys? */
    sys: boolean;
    /** T3, or T1 with nesting; /applied says what the kernel says */
    tier: string;
    /** What happens to hosts that no rule names, by all layers together: deny, ask or open */
    egress_mode: string;
    /** Commands that run now */
    execs_running: number;
    /** Who made it */
    by: string;
    /** Name of the token that owns it; the caller unless given. Only an operator may name another owner */
    owner: string;
    /** private (default): tokens of role agent reach it only as its owner or through shared_with; tenant: every
     *  token of the tenant does */
    visibility: string;
    /** Names of tokens of role agent that may use it like its owner */
    shared_with: string[];
    /** When it was made */
    created_at: string | null;
    /** When its state last changed */
    changed_at: string | null;
    /** When it will be deleted; null for never */
    expires_at: string | null;
    /** In the answer to its creation: cold, or warm out of a pool; otherwise null */
    start: string | null;
    /** Likewise: microseconds from the request until it ran; otherwise 0 */
    create_us: number;
}

export interface SandboxChange {
    /** Bytes of memory */
    memory?: number;
    /** Processes and threads at once */
    pids?: number;
    /** Share of processor time, 100 is one core */
    cpu_percent?: number;
    /** Bytes a second of each disk, each way, at least 65536; 0 for no limit */
    io_bytes?: number;
    /** Operations a second of each disk, each way, at least 10; 0 for no limit */
    io_ops?: number;
    /** Bytes of everything written inside; below what is used, nothing can be written until enough is removed */
    disk?: number;
    /** Files and directories made inside, with storage memory */
    inodes?: number;
    /** Lifetime from now, in milliseconds; 0 until it is deleted */
    ttl_ms?: number;
    /** Instead of those it has */
    labels?: Record<string, string>;
    /** What happens when nobody uses it; null: nothing any more */
    idle?: IdlePolicy | null;
    /** Its own layer of what it may reach, instead of the one it has; operators only */
    egress?: EgressSpec;
    /** Name of the token that owns it; the caller unless given. Only an operator may name another owner */
    owner?: string;
    /** private (default): tokens of role agent reach it only as its owner or through shared_with; tenant: every
     *  token of the tenant does */
    visibility?: "private" | "tenant";
    /** Names of tokens of role agent that may use it like its owner */
    shared_with?: string[];
}

export interface SandboxStatsIo {
    /** Bytes read */
    read: number;
    /** Bytes written */
    written: number;
}

export interface SandboxStats {
    /** Processor time used, microseconds */
    cpu_us: number;
    /** Bytes of memory in use */
    memory: number;
    /** The most it has used */
    memory_peak: number;
    /** Processes and threads */
    pids: number;
    /** Processes that the kernel killed for want of memory */
    oom_kills: number;
    /** Bytes that it has written and that are still there, as of some seconds ago; with storage memory all files
     *  in memory */
    disk: number;
    /** Of disks; null where nobody counts: with cgroup v1, unless it has a limit */
    io: SandboxStatsIo | null;
}

export interface ExecSpec {
    /** Program and arguments; the program is looked for in PATH */
    argv?: string[];
    /** A line for /bin/sh -c, instead of argv */
    command?: string;
    /** Working directory, absolute; unless said /workspace, or what the image says */
    cwd?: string;
    /** Who runs it; the sandbox's user unless said */
    user?: "agent" | "root";
    /** More environment, over the sandbox's */
    env?: Record<string, string>;
    /** A terminal instead of pipes */
    tty?: boolean;
    /** A note for people and for clients of agentic: nobody means to look at it */
    background?: boolean;
    /** More input will follow; otherwise it ends with stdin, or is empty */
    stdin_open?: boolean;
    /** Hold the command back when its output is not read, instead of dropping the oldest bytes; a reader with
     *  `hold`=1 is expected (see exec.output) */
    hold?: boolean;
    /** Its input, as text; of a terminal: what is typed first */
    stdin?: string;
    /** The same for any bytes, in base64; instead of stdin */
    stdin_base64?: string;
    /** Of the terminal (24) */
    rows?: number;
    /** Of the terminal (80) */
    cols?: number;
    /** Then it and everything it started is killed; without it, never */
    timeout_ms?: number;
    /** With any, it can open only what they name, besides the standard places (see the sandbox's); never more than
     *  the sandbox's rules leave open */
    files?: FileRule[];
    /** To find it again; of terminals, no other that runs in the sandbox has it */
    name?: string;
    /** Of a terminal: how many may type at once (1) */
    max_controllers?: number;
    /** Of a terminal: who has typed nothing for this long becomes an observer (10 minutes) */
    lease_ms?: number;
}

export interface ExecInfo {
    /** ex… */
    id: string;
    /** Where it runs */
    sandbox: string;
    /** If it was given one */
    name: string;
    /** starting, running, exited or lost */
    state: string;
    /** Why its output or its end waits, such as a full disk; otherwise null */
    reason: string | null;
    /** Program and arguments */
    argv: string[];
    /** Working directory */
    cwd: string;
    /** Who runs it */
    user: string;
    /** Has it a terminal? */
    tty: boolean;
    /** As it was wished for */
    background: boolean;
    /** Was input to follow? */
    stdin_open: boolean;
    /** 0 for none */
    timeout_ms: number;
    /** Its own rules about files */
    files: SandboxInfoFile[];
    /** It was started under rules about files, the sandbox's or its own */
    file_policy: boolean;
    /** Process id inside */
    pid: number;
    /** As a shell says it (128 + signal); -1 until it has exited */
    exit_code: number;
    /** That ended it, or 0 */
    signal: number;
    /** Ended by timeout_ms */
    timed_out: boolean;
    /** It failed, and the kernel killed something in its sandbox for lack of memory */
    oom: boolean;
    /** Printed so far */
    stdout_bytes: number;
    /** Printed so far */
    stderr_bytes: number;
    /** Processor time, microseconds */
    user_us: number;
    /** Likewise, in the kernel */
    system_us: number;
    /** Most memory, kibibytes */
    maxrss_kb: number;
    /** Who started it */
    by: string;
    /** When it was started */
    started_at: string | null;
    /** When it ended; null until then */
    ended_at: string | null;
    /** HOST:PORT of what was denied to the sandbox while it ran; null in lists */
    blocked: string[];
    /** The first of standard output, when it was waited for; otherwise null */
    output: string | null;
    /** Likewise, of standard error */
    errors: string;
}

export interface ExecStdinResult {
    /** Taken of this body, now or, with `at`, before */
    bytes: number;
    /** Bytes of input from the first one ever, this body included; `at` of the next */
    position: number;
    /** Whether that was the end of input */
    eof: boolean;
}

export interface ExecSignalRequest {
    /** TERM, SIGINT, 9… */
    signal: string;
    /** To everything it started too, not to its process group alone */
    tree?: boolean;
}

export interface ExecResizeRequest {
    /** Lines */
    rows: number;
    /** Columns */
    cols: number;
}

export interface FileInfo {
    /** In a list its name, in a manifest its path below the directory, otherwise the path that was asked for;
     *  bytes that are no UTF-8 are shown as U+FFFD */
    name: string;
    /** The name's bytes where it is no UTF-8; otherwise null */
    name_base64: string | null;
    /** file, directory, symlink, fifo, socket, character_device or block_device */
    type: string;
    /** Permissions, octal: "0644" */
    mode: string;
    /** Owner, as seen inside */
    uid: number;
    /** Group, as seen inside */
    gid: number;
    /** Bytes */
    size: number;
    /** When its contents changed last */
    mtime: string | null;
    /** Where a symlink leads; otherwise null */
    link: string | null;
    /** As name_base64 */
    link_base64: string;
    /** Digest of a readable file, in manifests; otherwise null */
    sha256: string | null;
}

export interface TreeWriteResult {
    /** Where */
    path: string;
    /** Bytes of contents that were unpacked */
    bytes: number;
    /** Files, directories and links */
    entries: number;
}

export interface VolumeSpec {
    /** Lower-case letters, digits and hyphens */
    name: string;
    /** How much may be written to it */
    bytes: number;
    /** Name of the token that owns it; the caller unless given. Only an operator may name another owner */
    owner?: string;
    /** private (default): tokens of role agent reach it only as its owner or through shared_with; tenant: every
     *  token of the tenant does */
    visibility?: "private" | "tenant";
    /** Names of tokens of role agent that may use it like its owner */
    shared_with?: string[];
}

export interface VolumeInfo {
    /** vo… */
    id: string;
    /** Its name */
    name: string;
    /** ready, or lost: its disk is gone */
    state: string;
    /** How much may be written to it */
    bytes: number;
    /** Ids of those that name it */
    sandboxes: string[];
    /** Who made it */
    by: string;
    /** Name of the token that owns it; the caller unless given. Only an operator may name another owner */
    owner: string;
    /** private (default): tokens of role agent reach it only as its owner or through shared_with; tenant: every
     *  token of the tenant does */
    visibility: string;
    /** Names of tokens of role agent that may use it like its owner */
    shared_with: string[];
    /** When it was made */
    created_at: string | null;
}

export interface VolumeDetail {
    /** vo… */
    id: string;
    /** Its name */
    name: string;
    /** ready, or lost: its disk is gone */
    state: string;
    /** How much may be written to it */
    bytes: number;
    /** Ids of those that name it */
    sandboxes: string[];
    /** Who made it */
    by: string;
    /** Name of the token that owns it; the caller unless given. Only an operator may name another owner */
    owner: string;
    /** private (default): tokens of role agent reach it only as its owner or through shared_with; tenant: every
     *  token of the tenant does */
    visibility: string;
    /** Names of tokens of role agent that may use it like its owner */
    shared_with: string[];
    /** When it was made */
    created_at: string | null;
    /** Bytes that are written */
    used: number;
}

export interface VolumeChangeRequest {
    /** How much may be written to it; below what is used, nothing more can be */
    bytes?: number;
    /** Name of the token that owns it; the caller unless given. Only an operator may name another owner */
    owner?: string;
    /** private (default): tokens of role agent reach it only as its owner or through shared_with; tenant: every
     *  token of the tenant does */
    visibility?: "private" | "tenant";
    /** Names of tokens of role agent that may use it like its owner */
    shared_with?: string[];
}

export interface SnapshotSpec {
    /** Lower-case letters, digits and hyphens; its own within the sandbox */
    name: string;
}

export interface SnapshotInfo {
    /** sn… */
    id: string;
    /** Its name */
    name: string;
    /** Whose files it has; that one may be gone */
    sandbox: string;
    /** ready, or lost: its disk is gone */
    state: string;
    /** Size of the disk it was taken of */
    bytes: number;
    /** Who made it */
    by: string;
    /** Name of the token that owns it; the caller unless given. Only an operator may name another owner */
    owner: string;
    /** private (default): tokens of role agent reach it only as its owner or through shared_with; tenant: every
     *  token of the tenant does */
    visibility: string;
    /** Names of tokens of role agent that may use it like its owner */
    shared_with: string[];
    /** When it was made */
    created_at: string | null;
}

export interface SandboxForkRequest {
    /** Of the new one; without it, none */
    name?: string;
    /** Lifetime of the new one; without it, until it is deleted */
    ttl_ms?: number;
    /** Of the new one; without it, the same */
    labels?: Record<string, string>;
}

export interface SandboxRollbackRequest {
    /** Name of a snapshot of this sandbox, or id of any */
    snapshot: string;
}

export interface SandboxRollbackResult {
    /** The sandbox */
    id: string;
    /** Whose files it has now */
    snapshot: string;
    /** running if it ran or was paused before, otherwise stopped */
    state: string;
    /** Commands that ended by this */
    execs_ended: number;
}

export interface PoolInfo {
    /** Its name */
    name: string;
    /** How many are to stand ready */
    size: number;
    /** How many do now */
    ready: number;
    /** null: the programs of this machine */
    image: string | null;
    /** agent or root */
    user: string;
    /** memory or disk */
    storage: string;
    /** Taken since the server process started */
    taken: number;
    /** Creations that fitted and found none ready */
    missed: number;
    /** Why the last making failed; null when it did not */
    error: string | null;
}

export interface PoolSpec {
    /** Sandboxes that stand ready; 0 removes the pool */
    size: number;
    /** What they begin with; the programs of this machine unless said */
    image?: string;
    /** agent unless said */
    user?: "agent" | "root";
    /** memory unless said */
    storage?: "memory" | "disk";
    /** Ready for this template: image, user and storage as it says now */
    template?: string;
}

export interface ImageInfoLayer {
    /** Digest of the layer's tar; one that two images have is kept once */
    diff_id: string;
    /** Bytes in the archive */
    packed: number;
    /** Bytes of its files */
    bytes: number;
    /** Files, directories and links */
    entries: number;
}

export interface ImageInfoConfig {
    /** Environment of every command, below what sandbox and command say */
    env: string[];
    /** root or 0: commands run as root unless said; anybody else: as agent */
    user: string;
    /** Working directory of commands that name none */
    workdir: string;
    /** What `atoll run` without a command runs, followed by `cmd` */
    entrypoint: string[];
    /** See `entrypoint` */
    cmd: string[];
    /** What its maker noted */
    labels: Record<string, string>;
}

export interface ImageInfo {
    /** Its name, as a sandbox's `image` */
    name: string;
    /** Of its manifest (oci), its config (docker) or its tar */
    digest: string;
    /** tar, docker or oci */
    format: string;
    /** amd64, arm64 */
    architecture: string;
    /** Of its files, shared layers included */
    bytes: number;
    /** The lowest first */
    layers: ImageInfoLayer[];
    /** What its maker wishes for commands */
    config: ImageInfoConfig | null;
    /** How many sandboxes and snapshots need it; it can be removed when none does */
    sandboxes: number;
    /** Who imported it */
    by: string;
    /** When that was */
    created_at: string | null;
}

export interface SecretInfo {
    /** What it is asked for by */
    name: string;
    /** A value that was put here, or what an agent connects with */
    kind: string;
    /** Of a value: who can open it */
    use: string;
    /** Of a value for requests: where it may go */
    hosts: string[];
    /** Of a value for requests: what stands for it inside sandboxes */
    placeholder: string;
    /** Of an agent's: whose it is */
    agent_id: string;
    /** Of an agent's: the first 12 digits of its SHA-256 */
    fingerprint: string;
    /** Of an agent's: a new one waits for its first use */
    rotation_pending: boolean;
    /** One more with each new value */
    version: number;
    /** Who put it here last */
    by: string;
    /** When it was first put here */
    created_at: string | null;
    /** When it was last replaced */
    changed_at: string | null;
}

export interface SecretCreateRequest {
    /** The agent that will connect with it */
    agent_id: string;
}

export interface NewSecret {
    /** What it is asked for by */
    name: string;
    /** A value that was put here, or what an agent connects with */
    kind: string;
    /** Of a value: who can open it */
    use: string;
    /** Of a value for requests: where it may go */
    hosts: string[];
    /** Of a value for requests: what stands for it inside sandboxes */
    placeholder: string;
    /** Of an agent's: whose it is */
    agent_id: string;
    /** Of an agent's: the first 12 digits of its SHA-256 */
    fingerprint: string;
    /** Of an agent's: a new one waits for its first use */
    rotation_pending: boolean;
    /** One more with each new value */
    version: number;
    /** Who put it here last */
    by: string;
    /** When it was first put here */
    created_at: string | null;
    /** When it was last replaced */
    changed_at: string | null;
    /** The secret itself, shown this once; null when replayed by Idempotency-Key */
    secret: string | null;
}

export interface SecretPutRequest {
    /** Kept sealed; no route gives it back */
    value: string;
    /** Who can open it: the server for its own needs, or the process that puts it into requests and nobody else;
     *  unsaid: request when there are hosts */
    use?: "server" | "request";
    /** Of one for requests: where it may go, as rules of egress say it; without a port 443 with TLS */
    hosts?: string[];
}

export interface TerminalInfo {
    /** ex…, as of the command it is */
    id: string;
    /** Where it runs */
    sandbox: string;
    /** If it was given one */
    name: string;
    /** running, exited or lost */
    state: string;
    /** Program and arguments */
    argv: string[];
    /** Working directory */
    cwd: string;
    /** Who runs it */
    user: string;
    /** Its size now */
    rows: number;
    /** Its size now */
    cols: number;
    /** The oldest byte that is kept */
    begin: number;
    /** Bytes printed so far */
    end: number;
    /** Who is attached, controllers too */
    viewers: number;
    /** Who may type now */
    controllers: number;
    /** And how many may at once */
    max_controllers: number;
    /** Who types nothing for this long becomes an observer */
    lease_ms: number;
    /** Process id inside */
    pid: number;
    /** As a shell says it (128 + signal); -1 until it has exited */
    exit_code: number;
    /** That ended it, or 0 */
    signal: number;
    /** Who started it */
    by: string;
    /** When it was started */
    started_at: string | null;
    /** When it ended; null until then */
    ended_at: string | null;
}

export interface PortInfo {
    /** Its number */
    port: number;
    /** loopback, or any for every address inside */
    address: string;
    /** Who listens, as seen inside */
    uid: number;
}

export interface PortPreviewRequest {
    /** The port inside */
    port: number;
    /** Where it begins, with its query; / unless said */
    path?: string;
}

export interface PortPreviewResult {
    /** To be opened in a browser on this machine */
    url: string;
    /** The port inside */
    port: number;
    /** Until when it can be opened */
    expires_at: string | null;
}

export interface CrashInfo {
    /** When its process 1 died */
    at: string | null;
    /** How long it had run */
    uptime_ms: number;
    /** How it ended */
    reason: string;
}

export interface QuotaInfo {
    /** tenant:NAME, role:NAME, by:ID or label:KEY=VALUE, or * for each; machine for what the machine has */
    subject: string;
    /** With * and role: the one that `used` is about, which has most sandboxes; null when none has any */
    group: string | null;
    /** In effect because no row says otherwise; it cannot be deleted, only replaced */
    preset: boolean;
    /** Most sandboxes; 0: no limit */
    sandboxes: number;
    /** Most bytes of memory limits; 0: no limit */
    memory: number;
    /** Most processor time; 0: no limit */
    cpu_percent: number;
    /** Most bytes of disks; 0: no limit */
    disk: number;
    /** Most bytes of memory of one; 0: no limit */
    sandbox_memory: number;
    /** Most processor time of one; 0: no limit */
    sandbox_cpu_percent: number;
    /** Most bytes of disk of one; 0: no limit */
    sandbox_disk: number;
    /** Sandboxes that there are */
    used_sandboxes: number;
    /** Bytes of memory limits */
    used_memory: number;
    /** Processor limits */
    used_cpu_percent: number;
    /** Bytes of disks */
    used_disk: number;
    /** Who wrote it; null for a preset */
    by: string | null;
    /** When */
    changed_at: string | null;
}

export interface QuotaLimits {
    /** Sandboxes at once, stopped ones included; 0: no limit */
    sandboxes?: number;
    /** Bytes: sum of the memory limits of those that run or are paused; 0: no limit */
    memory?: number;
    /** Sum of their processor limits, 100 is one core; 0: no limit */
    cpu_percent?: number;
    /** Bytes: sum of the sizes of their disks, of volumes and of snapshots; 0: no limit */
    disk?: number;
    /** Bytes of memory that one may have; 0: no limit */
    sandbox_memory?: number;
    /** Processor time that one may have, 100 is one core; 0: no limit */
    sandbox_cpu_percent?: number;
    /** Bytes of disk that one may have, or a volume; 0: no limit */
    sandbox_disk?: number;
}

export interface TemplateInfoSpecBind {
    /** What the server's door gave for a directory of its machine, in hex; good once */
    ticket: string;
    /** Where it is put; absolute, made if it is not there */
    path: string;
    /** Nothing in it can be changed from here */
    read_only: boolean;
    /** What is changed in it stays in the sandbox until it stops, where its storage is: /changes lists it. Of one
     *  directory, with a server started by root */
    view: boolean;
}

export interface TemplateInfoSpec {
    /** A name of its own within the tenant; may be used instead of the id */
    name: string;
    /** Who commands run as unless they say otherwise; root is nobody outside, but has a few capabilities inside.
     *  agent unless said */
    user: string;
    /** Bytes of memory; 1 GiB unless said */
    memory: number;
    /** Processes and threads at once; 512 unless said */
    pids: number;
    /** Share of processor time, 100 is one core; 200 unless said */
    cpu_percent: number;
    /** Bytes a second that it may read from each disk of the machine, and as many that it may write; no limit
     *  unless said */
    io_bytes: number;
    /** Likewise in operations a second */
    io_ops: number;
    /** Bytes of everything written inside; with storage memory half of memory unless said, with storage disk 8 GiB */
    disk: number;
    /** Files and directories made inside, with storage memory; 100000 unless said */
    inodes: number;
    /** Open descriptors of each process; 1024 unless said */
    nofile: number;
    /** Lifetime in milliseconds, after which it is deleted; without it, until deleted */
    ttl_ms: number;
    /** Environment of every command */
    env: Record<string, string>;
    /** Anything, to find it again */
    labels: Record<string, string>;
    /** Where what it writes goes: memory is gone when it ends, disk stays over stop and start. disk unless said,
     *  where the machine can */
    storage: string;
    /** What it begins with; the programs of this machine unless said */
    image: string;
    /** Begin with the files of this snapshot (id, or a name that only one has) */
    from_snapshot: string;
    /** Takes from this template what is not said here; environment and labels of both */
    template: string;
    /** Volumes in it */
    volumes: SandboxInfoVolume[];
    /** Directories of the machine in it; gone after a stop */
    binds: TemplateInfoSpecBind[];
    /** With any, commands can open only what they name, besides the standard places: /usr, /lib*, /bin, /sbin and
     *  /etc to read, /dev, /proc and /tmp to write. Not for file requests of this API */
    files: SandboxInfoFile[];
    /** What happens when nobody uses it; without it, nothing */
    idle: SandboxInfoIdle | null;
    /** What it may reach, besides what node, tenant and project say. Only operators allow anything; others can
     *  only take away */
    egress: EgressInfo | null;
    /** Tools inside may make sandboxes of their own: user namespaces and mounts are allowed, /proc is not masked
     *  and Landlock does not guard files */
    nesting: boolean;
    /** A read-only /sys; without it, none */
    sys: boolean;
    /** How strongly it is isolated, in one word. T3 (unless said): namespaces, no capabilities outside its own
     *  user namespace (commands as agent have none, those as root some of that namespace; /applied names them),
     *  seccomp, Landlock, and no way out but through policy. T1: the same as nesting. The others are not offered,
     *  and refused */
    tier: string;
    /** false: it is made anew, though a pool has one that fits. true unless said; null where a template leaves it
     *  open */
    warm: boolean | null;
    /** The sandbox whose files it has */
    parent: string;
    /** Name of the token that owns it; the caller unless given. Only an operator may name another owner */
    owner: string;
    /** private (default): tokens of role agent reach it only as its owner or through shared_with; tenant: every
     *  token of the tenant does */
    visibility: string;
    /** Names of tokens of role agent that may use it like its owner */
    shared_with: string[];
}

export interface TemplateInfo {
    /** Its name */
    name: string;
    /** What it says; 0, null and empty is what it leaves open */
    spec: TemplateInfoSpec | null;
    /** Who wrote it */
    by: string;
    /** When */
    changed_at: string | null;
}

export interface ProcessInfo {
    /** Process id inside */
    pid: number;
    /** Of the process that started it */
    parent: number;
    /** Whose it is, as seen inside */
    uid: number;
    /** The kernel's letter: R runs, S sleeps, D waits, T is stopped, Z has ended… */
    state: string;
    /** Threads */
    threads: number;
    /** Bytes of memory that are its own */
    rss: number;
    /** Processor time, microseconds */
    cpu_us: number;
    /** Program and arguments */
    command: string;
}

export interface EgressPolicyRule {
    /** What it does */
    list: string;
    /** The rule */
    rule: string;
    /** Whose it is */
    level: string;
    /** The pack it came with; null for none */
    pack: string | null;
}

export interface EgressPolicyCredential {
    /** A rule that puts a secret into requests, or one whose placeholder is in the environment */
    list: string;
    /** As it was written */
    rule: string;
    /** Whose it is */
    level: string;
    /** The secret it names is not there: it says nothing until it is */
    missing: boolean;
}

export interface EgressPolicy {
    /** Whose it is */
    sandbox: string;
    /** The project whose layer counts; null for none */
    project: string | null;
    /** What happens to hosts that no rule allows */
    mode: string;
    /** Which layer says so; null when none does */
    mode_level: string | null;
    /** Rises with every change */
    version: number;
    /** Both ways; 0 for no limit */
    max_bytes: number;
    /** At once; 0 for no limit */
    max_connections: number;
    /** How long a connection waits in mode ask */
    ask_s: number;
    /** All rules that count, in the order of layers; a deny wins over every allow */
    rules: EgressPolicyRule[];
    /** What goes into its requests, in the order of layers; never a value */
    credentials: EgressPolicyCredential[];
    /** Why none does although layers say so; null when all is well */
    credentials_error: string | null;
    /** The sandbox's own layer; null when it says nothing */
    own: EgressInfo | null;
    /** Why nothing is allowed although layers say otherwise; null when all is well */
    error: string | null;
    /** Is there a process that lets anything out? */
    linked: boolean;
    /** Connections and requests let out */
    allowed: number;
    /** …and refused, for whatever reason */
    denied: number;
    /** Bytes from the sandbox */
    sent: number;
    /** Bytes to it */
    received: number;
    /** Bytes that count for max_bytes: those of open connections too, about a second late */
    used: number;
    /** Records that were only counted */
    lost: number;
}

export interface EgressExplanation {
    /** The host as it was understood */
    host: string;
    /** The port */
    port: number;
    /** What would happen */
    verdict: string;
    /** A rule says so; none does; the mode is open; the host is allowed on other ports, with other requests;
     *  requests cannot be seen; an address needs a rule of its own; no such address may be reached */
    why: string;
    /** The same for people */
    reason: string;
    /** The rule that decided, or that came nearest; null for none */
    rule: string | null;
    /** Whose rule; null without one */
    level: string | null;
    /** The pack it came with */
    pack: string;
    /** What happens without a rule */
    mode: string;
    /** Were method and path judged? */
    seen: boolean;
    /** Is its TLS opened? */
    intercept: boolean;
}

export interface EgressRuleAddRequest {
    /** As in a policy; a host from a denial will do */
    rule: string;
    /** allow unless said */
    verdict?: "allow" | "deny";
    /** For whom: sandbox unless said */
    level?: "sandbox" | "project" | "tenant" | "node";
}

export interface EgressRuleAddResult {
    /** Whom the layer is for that was changed */
    level: string;
    /** Its name; null for the node */
    name: string | null;
    /** What it says */
    policy: EgressInfo | null;
    /** Who changed it last */
    by: string;
    /** When */
    changed_at: string | null;
}

export interface EgressRecord {
    /** Its number; rises */
    seq: number;
    /** When it was decided */
    at_ms: string | null;
    /** Who wanted it */
    sandbox: string;
    /** The run it belongs to; empty for none */
    run: string;
    /** How: a request, a tunnel by the proxy, TLS, another connection, atoll.internal */
    kind: string;
    /** What came of it */
    verdict: string;
    /** As in explain */
    why: string;
    /** The host; empty when none was read */
    host: string;
    /** The port */
    port: number;
    /** The rule that decided; empty for none */
    rule: string;
    /** For people */
    reason: string;
    /** Of a request that was seen */
    method: string;
    /** Likewise, cut off */
    path: string;
    /** Of the policy that decided */
    version: number;
    /** When it ended; null while it lasts */
    ended_ms: string | null;
    /** Bytes from the sandbox */
    sent: number;
    /** Bytes to it */
    received: number;
    /** Where it went; empty for nowhere */
    addr: string;
    /** It was closed because its rule was taken back */
    revoked: boolean;
}

export interface EgressHost {
    /** The host */
    host: string;
    /** The port */
    port: number;
    /** How often it was let out */
    allowed: number;
    /** …and not */
    denied: number;
    /** Bytes from the sandbox */
    sent: number;
    /** Bytes to it */
    received: number;
    /** The first time */
    first_ms: string | null;
    /** The last time */
    last_ms: string | null;
}

export interface AskInfo {
    /** ask… */
    id: string;
    /** egress: a connection waits; rule: a program inside wants a host allowed; claim: an agent proposes to take a
     *  task */
    kind: string;
    /** Who asks */
    sandbox: string;
    /** What came of it */
    state: string;
    /** Exactly what is asked for */
    action: unknown;
    /** SHA-256 of the action's text */
    hash: string;
    /** When it was asked */
    created_at: string | null;
    /** When it is denied for want of an answer */
    expires_at: string | null;
    /** When it was decided; null before */
    decided_at: string | null;
    /** Who decided; null for nobody */
    by: string | null;
    /** What they said about it */
    note: string;
}

export interface AskDecideRequest {
    /** Of kind egress: allows the connections that wait; of kind rule: adds the rule */
    verdict: "allow" | "deny";
    /** Of the action that was seen; another one is not decided */
    hash?: string;
    /** Why */
    note?: string;
}
