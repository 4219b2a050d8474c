// One method for each operation of the API. Made by tools/gen-sdk from the route tables; do not edit.
import type * as models from "./models.js";
import {
    type Answer, Caller, type Content, type Operation, type Options, type Page, type Socket,
} from "./transport.js";

export const API_VERSION = "0.1.0";

export const operations = {
    "health.read": { method: "GET", path: "/api/v1/health" },
    "version.read": { method: "GET", path: "/api/v1/version" },
    "whoami.read": { method: "GET", path: "/api/v1/whoami" },
    "metrics.read": { method: "GET", path: "/metrics" },
    "doctor.read": { method: "GET", path: "/api/v1/doctor" },
    "limits.read": { method: "GET", path: "/api/v1/limits" },
    "token.create": { method: "POST", path: "/api/v1/tokens", creates: true },
    "token.list": { method: "GET", path: "/api/v1/tokens" },
    "token.revoke": { method: "DELETE", path: "/api/v1/tokens/{id}" },
    "login.link": { method: "POST", path: "/api/v1/login-links", creates: true },
    "event.read": { method: "GET", path: "/api/v1/events" },
    "event.stream": { method: "GET", path: "/api/v1/events" },
    "note.create": { method: "POST", path: "/api/v1/notes", creates: true },
    "audit.read": { method: "GET", path: "/api/v1/audit" },
    "audit.verify": { method: "GET", path: "/api/v1/audit/verify" },
    "backup.create": { method: "POST", path: "/api/v1/backups", creates: true },
    "backup.read": { method: "GET", path: "/api/v1/backups/{name}" },
    "backup.delete": { method: "DELETE", path: "/api/v1/backups/{name}" },
    "sandbox.create": { method: "POST", path: "/api/v1/sandboxes", creates: true },
    "sandbox.list": { method: "GET", path: "/api/v1/sandboxes" },
    "sandbox.read": { method: "GET", path: "/api/v1/sandboxes/{id}" },
    "sandbox.delete": { method: "DELETE", path: "/api/v1/sandboxes/{id}" },
    "sandbox.change": { method: "PATCH", path: "/api/v1/sandboxes/{id}" },
    "sandbox.pause": { method: "POST", path: "/api/v1/sandboxes/{id}/pause" },
    "sandbox.resume": { method: "POST", path: "/api/v1/sandboxes/{id}/resume" },
    "sandbox.stop": { method: "POST", path: "/api/v1/sandboxes/{id}/stop" },
    "sandbox.start": { method: "POST", path: "/api/v1/sandboxes/{id}/start" },
    "sandbox.stats": { method: "GET", path: "/api/v1/sandboxes/{id}/stats" },
    "sandbox.applied": { method: "GET", path: "/api/v1/sandboxes/{id}/applied" },
    "exec.create": { method: "POST", path: "/api/v1/sandboxes/{id}/execs", creates: true },
    "exec.list": { method: "GET", path: "/api/v1/sandboxes/{id}/execs" },
    "exec.read": { method: "GET", path: "/api/v1/sandboxes/{id}/execs/{eid}" },
    "exec.output": { method: "GET", path: "/api/v1/sandboxes/{id}/execs/{eid}/output" },
    "exec.stdin": { method: "POST", path: "/api/v1/sandboxes/{id}/execs/{eid}/stdin" },
    "exec.signal": { method: "POST", path: "/api/v1/sandboxes/{id}/execs/{eid}/signal" },
    "exec.cancel": { method: "POST", path: "/api/v1/sandboxes/{id}/execs/{eid}/cancel" },
    "exec.resize": { method: "POST", path: "/api/v1/sandboxes/{id}/execs/{eid}/resize" },
    "file.read": { method: "GET", path: "/api/v1/sandboxes/{id}/files" },
    "file.write": { method: "PUT", path: "/api/v1/sandboxes/{id}/files" },
    "file.remove": { method: "DELETE", path: "/api/v1/sandboxes/{id}/files" },
    "file.append": { method: "POST", path: "/api/v1/sandboxes/{id}/files/append" },
    "file.list": { method: "GET", path: "/api/v1/sandboxes/{id}/files/list" },
    "file.stat": { method: "GET", path: "/api/v1/sandboxes/{id}/files/stat" },
    "file.mkdir": { method: "POST", path: "/api/v1/sandboxes/{id}/files/mkdir" },
    "file.move": { method: "POST", path: "/api/v1/sandboxes/{id}/files/move" },
    "tree.read": { method: "GET", path: "/api/v1/sandboxes/{id}/files/tree" },
    "tree.write": { method: "PUT", path: "/api/v1/sandboxes/{id}/files/tree" },
    "tree.manifest": { method: "GET", path: "/api/v1/sandboxes/{id}/files/manifest" },
    "sandbox.changes": { method: "GET", path: "/api/v1/sandboxes/{id}/changes" },
    "file.watch": { method: "GET", path: "/api/v1/sandboxes/{id}/files/watch" },
    "volume.create": { method: "POST", path: "/api/v1/volumes", creates: true },
    "volume.list": { method: "GET", path: "/api/v1/volumes" },
    "volume.read": { method: "GET", path: "/api/v1/volumes/{volume}" },
    "volume.change": { method: "PATCH", path: "/api/v1/volumes/{volume}" },
    "volume.delete": { method: "DELETE", path: "/api/v1/volumes/{volume}" },
    "snapshot.create": { method: "POST", path: "/api/v1/sandboxes/{id}/snapshots", creates: true },
    "snapshot.list_of": { method: "GET", path: "/api/v1/sandboxes/{id}/snapshots" },
    "snapshot.delete_of": { method: "DELETE", path: "/api/v1/sandboxes/{id}/snapshots/{snapshot}" },
    "snapshot.list": { method: "GET", path: "/api/v1/snapshots" },
    "snapshot.delete": { method: "DELETE", path: "/api/v1/snapshots/{snapshot}" },
    "sandbox.fork": { method: "POST", path: "/api/v1/sandboxes/{id}/fork", creates: true },
    "sandbox.rollback": { method: "POST", path: "/api/v1/sandboxes/{id}/rollback" },
    "pool.list": { method: "GET", path: "/api/v1/pools" },
    "pool.set": { method: "PUT", path: "/api/v1/pools/{name}" },
    "image.import": { method: "POST", path: "/api/v1/images" },
    "image.list": { method: "GET", path: "/api/v1/images" },
    "image.read": { method: "GET", path: "/api/v1/images/{name}" },
    "image.delete": { method: "DELETE", path: "/api/v1/images/{name}" },
    "secret.list": { method: "GET", path: "/api/v1/secrets" },
    "secret.create": { method: "POST", path: "/api/v1/secrets", creates: true },
    "secret.put": { method: "PUT", path: "/api/v1/secrets/{name}" },
    "secret.delete": { method: "DELETE", path: "/api/v1/secrets/{name}" },
    "terminal.create": { method: "POST", path: "/api/v1/sandboxes/{id}/terminals", creates: true },
    "terminal.list": { method: "GET", path: "/api/v1/sandboxes/{id}/terminals" },
    "terminal.read": { method: "GET", path: "/api/v1/sandboxes/{id}/terminals/{tid}" },
    "terminal.kill": { method: "DELETE", path: "/api/v1/sandboxes/{id}/terminals/{tid}" },
    "terminal.attach": { method: "GET", path: "/api/v1/sandboxes/{id}/terminals/{tid}/ws" },
    "terminal.screen": { method: "GET", path: "/api/v1/sandboxes/{id}/terminals/{tid}/screen" },
    "terminal.recording": { method: "GET", path: "/api/v1/sandboxes/{id}/terminals/{tid}/recording" },
    "terminal.signal": { method: "POST", path: "/api/v1/sandboxes/{id}/terminals/{tid}/signal" },
    "terminal.resize": { method: "POST", path: "/api/v1/sandboxes/{id}/terminals/{tid}/resize" },
    "port.list": { method: "GET", path: "/api/v1/sandboxes/{id}/ports" },
    "port.preview": { method: "POST", path: "/api/v1/sandboxes/{id}/previews" },
    "sandbox.crashes": { method: "GET", path: "/api/v1/sandboxes/{id}/crashes" },
    "quota.list": { method: "GET", path: "/api/v1/quotas" },
    "quota.set": { method: "PUT", path: "/api/v1/quotas/{subject}" },
    "quota.delete": { method: "DELETE", path: "/api/v1/quotas/{subject}" },
    "template.list": { method: "GET", path: "/api/v1/templates" },
    "template.read": { method: "GET", path: "/api/v1/templates/{template_name}" },
    "template.set": { method: "PUT", path: "/api/v1/templates/{template_name}" },
    "template.delete": { method: "DELETE", path: "/api/v1/templates/{template_name}" },
    "process.list": { method: "GET", path: "/api/v1/sandboxes/{id}/processes" },
    "egress.sandbox.read": { method: "GET", path: "/api/v1/sandboxes/{id}/egress" },
    "egress.explain": { method: "GET", path: "/api/v1/sandboxes/{id}/egress/explain" },
    "egress.rule.add": { method: "POST", path: "/api/v1/sandboxes/{id}/egress/rules" },
    "egress.sandbox.records": { method: "GET", path: "/api/v1/sandboxes/{id}/egress/records" },
    "egress.sandbox.hosts": { method: "GET", path: "/api/v1/sandboxes/{id}/egress/hosts" },
    "ask.list": { method: "GET", path: "/api/v1/asks" },
    "ask.read": { method: "GET", path: "/api/v1/asks/{ask}" },
    "ask.decide": { method: "POST", path: "/api/v1/asks/{ask}/decision" },
} satisfies Record<string, Operation>;

export class Api extends Caller {
    /** State, version and load of the server. */
    healthRead(options?: Options): Promise<models.Health> {
        return this.json(operations["health.read"], {}, {}, undefined, options);
    }

    /** Version of the program and of the API. */
    versionRead(options?: Options): Promise<unknown> {
        return this.json(operations["version.read"], {}, {}, undefined, options);
    }

    /** Who the server takes the caller for. */
    whoamiRead(options?: Options): Promise<models.Whoami> {
        return this.json(operations["whoami.read"], {}, {}, undefined, options);
    }

    /** Prometheus text; 404 with the setting metrics_enabled = false. */
    metricsRead(options?: Options): Promise<Answer> {
        return this.stream(operations["metrics.read"], {}, {}, undefined, options);
    }

    /** What `atoll doctor` found when the server started: `ok`, `at`, and `items` with `name`, `state` (ok, lost,
     *  fail, unknown), `found`, `lost` and `fix`. 503 until the checks have ended. */
    doctorRead(options?: Options): Promise<unknown> {
        return this.json(operations["doctor.read"], {}, {}, undefined, options);
    }

    /** What this server allows: `items` with `of`, `name`, `unit`, `least`, `most`, `help`, and the `setting` that
     *  says it, or null. */
    limitsRead(options?: Options): Promise<unknown> {
        return this.json(operations["limits.read"], {}, {}, undefined, options);
    }

    /** Make a token. It is shown this once. */
    tokenCreate(body: models.TokenSpec, options?: Options): Promise<models.NewToken> {
        return this.json(operations["token.create"], {}, {}, body, options);
    }

    /** All tokens of the caller's tenant, oldest first, without the tokens themselves. */
    tokenList(query: { tenant?: string }, options?: Options): Promise<Page<models.TokenInfo>> {
        return this.json(operations["token.list"], {}, query, undefined, options);
    }

    /** Revoke a token, by id or name; it stops working at once. */
    tokenRevoke(id: string, query: { tenant?: string }, options?: Options): Promise<models.TokenInfo> {
        return this.json(operations["token.revoke"], { id }, query, undefined, options);
    }

    /** A one-time link that logs a browser in with the caller's role. */
    loginLink(options?: Options): Promise<models.LoginLink> {
        return this.json(operations["login.link"], {}, {}, undefined, options);
    }

    /** Events after number `since`, oldest first. With Accept: text/event-stream, or as a WebSocket, they go on
     *  live. With `source`, `event_type`, `include_archived`, `follow` or a time as `since` it is agentic's
     *  question and gets its answer: `{events, total_count, last_event_id}`, the newest first. Without any of
     *  these and without `since`, `type` and `object` the answer holds both. */
    eventRead(query: { since?: number; limit?: number; type?: string; object?: string },
        options?: Options): Promise<unknown> {
        return this.json(operations["event.read"], {}, query, undefined, options);
    }

    /** Events after number `since`, oldest first. With Accept: text/event-stream, or as a WebSocket, they go on
     *  live. With `source`, `event_type`, `include_archived`, `follow` or a time as `since` it is agentic's
     *  question and gets its answer: `{events, total_count, last_event_id}`, the newest first. Without any of
     *  these and without `since`, `type` and `object` the answer holds both. */
    eventStream(query: { since?: number; limit?: number; type?: string; object?: string },
        options?: Options): Promise<Answer> {
        return this.stream(operations["event.stream"], {}, query, undefined, options);
    }

    /** Write a note into the event log, where everyone who listens sees it. */
    noteCreate(body: models.NoteCreateRequest, options?: Options): Promise<models.NoteInfo> {
        return this.json(operations["note.create"], {}, {}, body, options);
    }

    /** Audit rows after number `since`, oldest first; without it the newest. */
    auditRead(query: { since?: number; limit?: number }, options?: Options): Promise<unknown> {
        return this.json(operations["audit.read"], {}, query, undefined, options);
    }

    /** Check the hash chain from the first row to the last. */
    auditVerify(options?: Options): Promise<models.AuditVerdict> {
        return this.json(operations["audit.verify"], {}, {}, undefined, options);
    }

    /** A consistent copy of the store, made while it serves. Refuses to overwrite. */
    backupCreate(body: models.BackupCreateRequest, options?: Options): Promise<models.BackupInfo> {
        return this.json(operations["backup.create"], {}, {}, body, options);
    }

    /** Download a backup. */
    backupRead(name: string, options?: Options): Promise<Answer> {
        return this.stream(operations["backup.read"], { name }, {}, undefined, options);
    }

    /** Remove a backup from the server's disk. */
    backupDelete(name: string, options?: Options): Promise<unknown> {
        return this.json(operations["backup.delete"], { name }, {}, undefined, options);
    }

    /** Make a sandbox; answered when it runs. */
    sandboxCreate(body: models.SandboxSpec, options?: Options): Promise<models.SandboxInfo> {
        return this.json(operations["sandbox.create"], {}, {}, body, options);
    }

    /** The caller's sandboxes, oldest first: all, or those with a `label` (KEY or KEY=VALUE), a `state`, a `name`
     *  that begins so; a page of at most `limit` (100) behind the id `after`. `next` is the `after` of the next
     *  page, null at the end; a page may be shorter than `limit` and have a `next`. */
    sandboxList(query: { state?: string; label?: string; name?: string; after?: string; limit?: number },
        options?: Options): Promise<Page<models.SandboxInfo>> {
        return this.json(operations["sandbox.list"], {}, query, undefined, options);
    }

    /** One sandbox, by id, by name, or by the beginning of its id. Calls that stop or delete something take the
     *  whole id or the name. */
    sandboxRead(id: string, options?: Options): Promise<models.SandboxInfo> {
        return this.json(operations["sandbox.read"], { id }, {}, undefined, options);
    }

    /** Kill everything in it and forget it, its commands and their output. */
    sandboxDelete(id: string, options?: Options): Promise<models.SandboxInfo> {
        return this.json(operations["sandbox.delete"], { id }, {}, undefined, options);
    }

    /** Give it other limits, another lifetime, idle policy or labels, while it runs or not. What is not named
     *  stays. */
    sandboxChange(id: string, body: models.SandboxChange, options?: Options): Promise<models.SandboxInfo> {
        return this.json(operations["sandbox.change"], { id }, {}, body, options);
    }

    /** Freeze every process in it. */
    sandboxPause(id: string, options?: Options): Promise<models.SandboxInfo> {
        return this.json(operations["sandbox.pause"], { id }, {}, undefined, options);
    }

    /** Let it go on after a pause. */
    sandboxResume(id: string, options?: Options): Promise<models.SandboxInfo> {
        return this.json(operations["sandbox.resume"], { id }, {}, undefined, options);
    }

    /** Kill everything in it. Its files, its commands and their output stay; refused with storage memory, where
     *  the files would not. */
    sandboxStop(id: string, options?: Options): Promise<models.SandboxInfo> {
        return this.json(operations["sandbox.stop"], { id }, {}, undefined, options);
    }

    /** Let a stopped one run again, with the files and limits it had and its volumes. */
    sandboxStart(id: string, options?: Options): Promise<models.SandboxInfo> {
        return this.json(operations["sandbox.start"], { id }, {}, undefined, options);
    }

    /** What it uses now, as the kernel counts it. */
    sandboxStats(id: string, options?: Options): Promise<models.SandboxStats> {
        return this.json(operations["sandbox.stats"], { id }, {}, undefined, options);
    }

    /** What isolates it, read back from the kernel: namespaces, capabilities, filters, mounts, limits. */
    sandboxApplied(id: string, options?: Options): Promise<unknown> {
        return this.json(operations["sandbox.applied"], { id }, {}, undefined, options);
    }

    /** Run a command; answered when it has started, or with `wait` (milliseconds) when it has ended, that time is
     *  over, or `hold` holds it back. */
    execCreate(id: string, query: { wait?: number }, body: models.ExecSpec,
        options?: Options): Promise<models.ExecInfo> {
        return this.json(operations["exec.create"], { id }, query, body, options);
    }

    /** The commands of a sandbox that are kept, oldest first. */
    execList(id: string, options?: Options): Promise<Page<models.ExecInfo>> {
        return this.json(operations["exec.list"], { id }, {}, undefined, options);
    }

    /** One command; with `wait` (milliseconds), when it has ended or that time is over, and with its output. */
    execRead(id: string, eid: string, query: { wait?: number }, options?: Options): Promise<models.ExecInfo> {
        return this.json(operations["exec.read"], { id, eid }, query, undefined, options);
    }

    /** Bytes of stdout (or `stream`=stderr) from position `from`; with `follow`=1 until the command has ended.
     *  With `stream`=both, both streams in frames until the end: 8 bytes (1 stdout, 2 stderr or 3 the end; three
     *  zeros; the length, 32 bits, highest byte first) and the data, which at the end is the command as JSON;
     *  `from` is then OUT,ERR. With `hold`=1 the command is held back instead of losing bytes that were not read.
     *  410 when that position is no longer kept. */
    execOutput(id: string, eid: string, query: { stream?: string; from?: string; follow?: number; hold?: number },
        options?: Options): Promise<Answer> {
        return this.stream(operations["exec.output"], { id, eid }, query, undefined, options);
    }

    /** The body, of any type, to the command's input; with `eof`=1 that was all. Answered when the command's pipe
     *  has taken it. With `at` it begins at that position of all input: what was taken of it already is left out,
     *  so that a body whose answer was lost can be sent again; 409 when the input is not as far. */
    execStdin(id: string, eid: string, query: { eof?: number; at?: number }, body: Content,
        options?: Options): Promise<models.ExecStdinResult> {
        return this.json(operations["exec.stdin"], { id, eid }, query, body, options);
    }

    /** A signal to the command's process group, or to everything it started. */
    execSignal(id: string, eid: string, body: models.ExecSignalRequest, options?: Options): Promise<models.ExecInfo> {
        return this.json(operations["exec.signal"], { id, eid }, {}, body, options);
    }

    /** Kill the command and everything it started; answered with its output when all of that is gone, or after
     *  `wait` milliseconds (10000), when its state is still running. One that has ended stays as it is. */
    execCancel(id: string, eid: string, query: { wait?: number }, options?: Options): Promise<models.ExecInfo> {
        return this.json(operations["exec.cancel"], { id, eid }, query, undefined, options);
    }

    /** Another size for the command's terminal. */
    execResize(id: string, eid: string, body: models.ExecResizeRequest, options?: Options): Promise<models.ExecInfo> {
        return this.json(operations["exec.resize"], { id, eid }, {}, body, options);
    }

    /** The bytes of a regular file; Range is honoured. In all of these, `path` is percent-encoded bytes, relative
     *  to /workspace unless absolute, and `user` (agent or root) whose rights count. */
    fileRead(id: string, query: { path?: string; user?: string }, options?: Options): Promise<Answer> {
        return this.stream(operations["file.read"], { id }, query, undefined, options);
    }

    /** The body, of any type and size, becomes the file at once when all of it has arrived; `mode` is octal (as
     *  before, or 644), `sync`=1 waits for the disk. */
    fileWrite(id: string, query: { path?: string; user?: string; mode?: string; sync?: number }, body: Content,
        options?: Options): Promise<models.FileInfo> {
        return this.json(operations["file.write"], { id }, query, body, options);
    }

    /** Remove a file or an empty directory, or with `recursive`=1 a whole tree. */
    fileRemove(id: string, query: { path?: string; user?: string; recursive?: number },
        options?: Options): Promise<unknown> {
        return this.json(operations["file.remove"], { id }, query, undefined, options);
    }

    /** The body behind what the file holds; it is made if it is not there. */
    fileAppend(id: string, query: { path?: string; user?: string; sync?: number }, body: Content,
        options?: Options): Promise<models.FileInfo> {
        return this.json(operations["file.append"], { id }, query, body, options);
    }

    /** What is in a directory, sorted by name: `items` behind the name `after`, at most `limit`, and whether there
     *  are `more`. */
    fileList(id: string, query: { path?: string; user?: string; after?: string; limit?: number },
        options?: Options): Promise<Page<models.FileInfo>> {
        return this.json(operations["file.list"], { id }, query, undefined, options);
    }

    /** About one file; of a symlink itself unless `follow`=1. */
    fileStat(id: string, query: { path?: string; user?: string; follow?: number },
        options?: Options): Promise<models.FileInfo> {
        return this.json(operations["file.stat"], { id }, query, undefined, options);
    }

    /** Make a directory (`mode` octal, 755); with `parents`=1 those above it too, and one that is there already
     *  will do. */
    fileMkdir(id: string, query: { path?: string; user?: string; mode?: string; parents?: number },
        options?: Options): Promise<unknown> {
        return this.json(operations["file.mkdir"], { id }, query, undefined, options);
    }

    /** Another name for `path`; one that is taken only with `replace`=1. */
    fileMove(id: string, query: { path?: string; to?: string; user?: string; replace?: number },
        options?: Options): Promise<unknown> {
        return this.json(operations["file.move"], { id }, query, undefined, options);
    }

    /** Everything below a directory as a tar archive, sorted: directories, files, symlinks. Cut off if it cannot
     *  be completed. */
    treeRead(id: string, query: { path?: string; user?: string }, options?: Options): Promise<Answer> {
        return this.stream(operations["tree.read"], { id }, query, undefined, options);
    }

    /** The body, a tar archive (ustar, pax, GNU long names; not compressed), unpacked into a directory that is
     *  there. Names that lead out of it, devices and sparse files are refused; what came before stays. */
    treeWrite(id: string, query: { path?: string; user?: string }, body: Content,
        options?: Options): Promise<models.TreeWriteResult> {
        return this.json(operations["tree.write"], { id }, query, body, options);
    }

    /** Everything below a directory, sorted, one JSON object a line, with the digests of regular files. Cut off if
     *  it cannot be completed. */
    treeManifest(id: string, query: { path?: string; user?: string }, options?: Options): Promise<Answer> {
        return this.stream(operations["tree.manifest"], { id }, query, undefined, options);
    }

    /** What was changed in its view of a directory (`binds` with `view`), one JSON object a line: {"side":
     *  "before" or "after", "file": …}, the file as in a manifest. A changed file has both, a new one only after,
     *  a removed one only before; a touched one has two that are alike. Cut off if it cannot be completed. */
    sandboxChanges(id: string, query: { user?: string }, options?: Options): Promise<Answer> {
        return this.stream(operations["sandbox.changes"], { id }, query, undefined, options);
    }

    /** Changes below a directory as events: `ready`, then `change` with what, path and directory; `lost` when some
     *  were missed. Best effort with `recursive`=1. */
    fileWatch(id: string, query: { path?: string; user?: string; recursive?: number },
        options?: Options): Promise<Answer> {
        return this.stream(operations["file.watch"], { id }, query, undefined, options);
    }

    /** Make a volume: a tree of files that sandboxes can share and that outlives them. */
    volumeCreate(body: models.VolumeSpec, options?: Options): Promise<models.VolumeInfo> {
        return this.json(operations["volume.create"], {}, {}, body, options);
    }

    /** The caller's volumes, oldest first: a page of at most `limit` (100) behind the id `after`. `next` is the
     *  `after` of the next page, null at the end; a page may be shorter than `limit` and have a `next`. */
    volumeList(query: { after?: string; limit?: number }, options?: Options): Promise<Page<models.VolumeInfo>> {
        return this.json(operations["volume.list"], {}, query, undefined, options);
    }

    /** One volume, by name or id, and how much of it is used. */
    volumeRead(volume: string, options?: Options): Promise<models.VolumeDetail> {
        return this.json(operations["volume.read"], { volume }, {}, undefined, options);
    }

    /** Give a volume another size, owner, visibility or list of principals. */
    volumeChange(volume: string, body: models.VolumeChangeRequest, options?: Options): Promise<models.VolumeInfo> {
        return this.json(operations["volume.change"], { volume }, {}, body, options);
    }

    /** Remove a volume and what is in it; refused while a sandbox names it. */
    volumeDelete(volume: string, options?: Options): Promise<models.VolumeInfo> {
        return this.json(operations["volume.delete"], { volume }, {}, undefined, options);
    }

    /** Keep the files of a sandbox as they are now, under a name. What runs is frozen for that moment. Volumes are
     *  not part of it. */
    snapshotCreate(id: string, body: models.SnapshotSpec, options?: Options): Promise<models.SnapshotInfo> {
        return this.json(operations["snapshot.create"], { id }, {}, body, options);
    }

    /** The snapshots of a sandbox, oldest first: a page of at most `limit` (100) behind the id `after`. `next` is
     *  the `after` of the next page, null at the end; a page may be shorter than `limit` and have a `next`. */
    snapshotListOf(id: string, query: { after?: string; limit?: number },
        options?: Options): Promise<Page<models.SnapshotInfo>> {
        return this.json(operations["snapshot.list_of"], { id }, query, undefined, options);
    }

    /** Remove a snapshot of a sandbox, by name or id. */
    snapshotDeleteOf(id: string, snapshot: string, options?: Options): Promise<models.SnapshotInfo> {
        return this.json(operations["snapshot.delete_of"], { id, snapshot }, {}, undefined, options);
    }

    /** All snapshots of the caller, oldest first; they outlive their sandboxes: a page of at most `limit` (100)
     *  behind the id `after`. `next` is the `after` of the next page, null at the end; a page may be shorter than
     *  `limit` and have a `next`. */
    snapshotList(query: { after?: string; limit?: number }, options?: Options): Promise<Page<models.SnapshotInfo>> {
        return this.json(operations["snapshot.list"], {}, query, undefined, options);
    }

    /** Remove a snapshot, by id, or by a name that only one has. */
    snapshotDelete(snapshot: string, options?: Options): Promise<models.SnapshotInfo> {
        return this.json(operations["snapshot.delete"], { snapshot }, {}, undefined, options);
    }

    /** Make another sandbox with a copy of its files as they are now, its limits and its volumes. What runs goes
     *  on there, and does not run in the copy. */
    sandboxFork(id: string, body: models.SandboxForkRequest, options?: Options): Promise<models.SandboxInfo> {
        return this.json(operations["sandbox.fork"], { id }, {}, body, options);
    }

    /** Give it back the files of one of its snapshots. Its commands end. */
    sandboxRollback(id: string, body: models.SandboxRollbackRequest,
        options?: Options): Promise<models.SandboxRollbackResult> {
        return this.json(operations["sandbox.rollback"], { id }, {}, body, options);
    }

    /** The pools of warm sandboxes, and how many stand ready. */
    poolList(options?: Options): Promise<Page<models.PoolInfo>> {
        return this.json(operations["pool.list"], {}, {}, undefined, options);
    }

    /** Make, change or (size 0) remove a pool. Creations of the same image, user and storage take a warm sandbox
     *  from it. */
    poolSet(name: string, body: models.PoolSpec, options?: Options): Promise<models.PoolInfo> {
        return this.json(operations["pool.set"], { name }, {}, body, options);
    }

    /** The body, a root tree, a `docker save` archive or an OCI layout as tar (plain, gzip, xz, zstd), becomes the
     *  image `name`. Answered when it is unpacked; `image.progress` events tell how far it is, and `image.failed`
     *  why it failed. */
    imageImport(query: { name?: string }, body: Content, options?: Options): Promise<models.ImageInfo> {
        return this.json(operations["image.import"], {}, query, body, options);
    }

    /** The images, oldest first. */
    imageList(options?: Options): Promise<Page<models.ImageInfo>> {
        return this.json(operations["image.list"], {}, {}, undefined, options);
    }

    /** One image; a name with slashes as it is, or with %2F for each. */
    imageRead(name: string, options?: Options): Promise<models.ImageInfo> {
        return this.json(operations["image.read"], { name }, {}, undefined, options);
    }

    /** Remove it, and the layers that no other image has. 409 while a sandbox or a snapshot needs it. */
    imageDelete(name: string, options?: Options): Promise<models.ImageInfo> {
        return this.json(operations["image.delete"], { name }, {}, undefined, options);
    }

    /** Names and ages of the tenant's secrets; never a value. */
    secretList(options?: Options): Promise<Page<models.SecretInfo>> {
        return this.json(operations["secret.list"], {}, {}, undefined, options);
    }

    /** Make the secret of an agent; shown this once, kept as a hash. */
    secretCreate(body: models.SecretCreateRequest, options?: Options): Promise<models.NewSecret> {
        return this.json(operations["secret.create"], {}, {}, body, options);
    }

    /** Keep a value under a name (201), or put another in its place (200). It is sealed before it is stored, and
     *  no route gives it back. One for requests is sealed to the egress process and bound to its hosts. */
    secretPut(name: string, body: models.SecretPutRequest, options?: Options): Promise<models.SecretInfo> {
        return this.json(operations["secret.put"], { name }, {}, body, options);
    }

    /** Forget a secret. An agent that had it is disconnected. */
    secretDelete(name: string, options?: Options): Promise<unknown> {
        return this.json(operations["secret.delete"], { name }, {}, undefined, options);
    }

    /** Start a command with a terminal; a shell, unless `argv` or `command` says otherwise. */
    terminalCreate(id: string, body: models.ExecSpec, options?: Options): Promise<models.TerminalInfo> {
        return this.json(operations["terminal.create"], { id }, {}, body, options);
    }

    /** The terminals of a sandbox that are kept, oldest first. */
    terminalList(id: string, options?: Options): Promise<Page<models.TerminalInfo>> {
        return this.json(operations["terminal.list"], { id }, {}, undefined, options);
    }

    /** One terminal, by id or name. */
    terminalRead(id: string, tid: string, options?: Options): Promise<models.TerminalInfo> {
        return this.json(operations["terminal.read"], { id, tid }, {}, undefined, options);
    }

    /** Kill its command and everything that it started; what was printed is kept. */
    terminalKill(id: string, tid: string, options?: Options): Promise<models.TerminalInfo> {
        return this.json(operations["terminal.kill"], { id, tid }, {}, undefined, options);
    }

    /** Watch it, and as `role`=controller type, over a WebSocket (docs/terminals.md): from position `from` on, or
     *  from a picture of the screen. */
    terminalAttach(id: string, tid: string, query: { from?: number; role?: string; take?: number },
        options?: Options): Promise<Socket> {
        return this.socket(operations["terminal.attach"], { id, tid }, query, undefined, options);
    }

    /** What it shows now: text, cursor and the newest rows above as JSON; with `format`=cells every character with
     *  its looks; with `format`=text plain text. */
    terminalScreen(id: string, tid: string, query: { format?: string }, options?: Options): Promise<unknown> {
        return this.json(operations["terminal.screen"], { id, tid }, query, undefined, options);
    }

    /** What is kept of it, with its times, as an asciicast (version 2). */
    terminalRecording(id: string, tid: string, options?: Options): Promise<Answer> {
        return this.stream(operations["terminal.recording"], { id, tid }, {}, undefined, options);
    }

    /** A signal to the command's process group, or to everything it started. */
    terminalSignal(id: string, tid: string, body: models.ExecSignalRequest,
        options?: Options): Promise<models.TerminalInfo> {
        return this.json(operations["terminal.signal"], { id, tid }, {}, body, options);
    }

    /** Another size. */
    terminalResize(id: string, tid: string, body: models.ExecResizeRequest,
        options?: Options): Promise<models.TerminalInfo> {
        return this.json(operations["terminal.resize"], { id, tid }, {}, body, options);
    }

    /** The TCP ports that programs in it listen on. */
    portList(id: string, options?: Options): Promise<Page<models.PortInfo>> {
        return this.json(operations["port.list"], { id }, {}, undefined, options);
    }

    /** A link to a port inside, for a browser: a host of its own (`PORT-ID.localhost`), which lets in whoever
     *  opens the link within ten minutes, for twelve hours, as long as the token or session it was made with
     *  lives. */
    portPreview(id: string, body: models.PortPreviewRequest, options?: Options): Promise<models.PortPreviewResult> {
        return this.json(operations["port.preview"], { id }, {}, body, options);
    }

    /** When and how its process 1 died by itself, newest first; the last 100. */
    sandboxCrashes(id: string, options?: Options): Promise<Page<models.CrashInfo>> {
        return this.json(operations["sandbox.crashes"], { id }, {}, undefined, options);
    }

    /** Quotas with what is used of them: the machine (for the tenant that owns the server), presets, then rows by
     *  subject. */
    quotaList(options?: Options): Promise<Page<models.QuotaInfo>> {
        return this.json(operations["quota.list"], {}, {}, undefined, options);
    }

    /** Set the quota of a subject: tenant:NAME, role:NAME, by:ID or label:KEY=VALUE, with * for each of them. What
     *  is not named has no limit. Only the tenant that owns the server sets quotas of tenants. */
    quotaSet(subject: string, body: models.QuotaLimits, options?: Options): Promise<models.QuotaInfo> {
        return this.json(operations["quota.set"], { subject }, {}, body, options);
    }

    /** Delete a quota. The preset of role:agent is in effect again. */
    quotaDelete(subject: string, options?: Options): Promise<models.QuotaInfo> {
        return this.json(operations["quota.delete"], { subject }, {}, undefined, options);
    }

    /** Wishes for sandboxes that have a name, by name. */
    templateList(options?: Options): Promise<Page<models.TemplateInfo>> {
        return this.json(operations["template.list"], {}, {}, undefined, options);
    }

    /** One template. */
    templateRead(template_name: string, options?: Options): Promise<models.TemplateInfo> {
        return this.json(operations["template.read"], { template_name }, {}, undefined, options);
    }

    /** Make or change a template: the body is a wish for a sandbox, without `name`, `template` and `binds`.
     *  Sandboxes made of it before do not change. */
    templateSet(template_name: string, body: models.SandboxSpec, options?: Options): Promise<models.TemplateInfo> {
        return this.json(operations["template.set"], { template_name }, {}, body, options);
    }

    /** Remove a template; sandboxes made of it stay. */
    templateDelete(template_name: string, options?: Options): Promise<models.TemplateInfo> {
        return this.json(operations["template.delete"], { template_name }, {}, undefined, options);
    }

    /** The processes in it, as its own /proc tells. */
    processList(id: string, options?: Options): Promise<Page<models.ProcessInfo>> {
        return this.json(operations["process.list"], { id }, {}, undefined, options);
    }

    /** What a sandbox may reach: every rule that counts and whose it is, its limits, and what it has used. */
    egressSandboxRead(id: string, options?: Options): Promise<models.EgressPolicy> {
        return this.json(operations["egress.sandbox.read"], { id }, {}, undefined, options);
    }

    /** Would it reach this `url` (or HOST[:PORT]) with this `method` (GET), and why? Nothing is looked up and
     *  nothing is sent. */
    egressExplain(id: string, query: { url?: string; method?: string },
        options?: Options): Promise<models.EgressExplanation> {
        return this.json(operations["egress.explain"], { id }, query, undefined, options);
    }

    /** Allow or deny one thing for the sandbox, or for its project, its tenant or the node. The same rule in the
     *  opposite list of that layer is taken away. */
    egressRuleAdd(id: string, body: models.EgressRuleAddRequest,
        options?: Options): Promise<models.EgressRuleAddResult> {
        return this.json(operations["egress.rule.add"], { id }, {}, body, options);
    }

    /** What a sandbox reached or tried to. The newest, or those after number `since`, oldest first; `denied=true`
     *  for what was not let out. `next` is the `since` of the next page; an event egress.recorded says that there
     *  is one. */
    egressSandboxRecords(id: string, query: { denied?: string; since?: number; limit?: number },
        options?: Options): Promise<Page<models.EgressRecord>> {
        return this.json(operations["egress.sandbox.records"], { id }, query, undefined, options);
    }

    /** The same counted by host and port, the most denied first. */
    egressSandboxHosts(id: string, options?: Options): Promise<Page<models.EgressHost>> {
        return this.json(operations["egress.sandbox.hosts"], { id }, {}, undefined, options);
    }

    /** Questions to people, oldest first: all, or those in a `state`; a page of at most `limit` behind the id
     *  `after`. */
    askList(query: { state?: string; after?: string; limit?: number },
        options?: Options): Promise<Page<models.AskInfo>> {
        return this.json(operations["ask.list"], {}, query, undefined, options);
    }

    /** One of them. */
    askRead(ask: string, options?: Options): Promise<models.AskInfo> {
        return this.json(operations["ask.read"], { ask }, {}, undefined, options);
    }

    /** Allow or deny it, once. Saying the same again changes nothing; saying otherwise, or too late, is 409. */
    askDecide(ask: string, body: models.AskDecideRequest, options?: Options): Promise<models.AskInfo> {
        return this.json(operations["ask.decide"], { ask }, {}, body, options);
    }
}
