// The client: which server, and its nouns.
import { Api } from "./api.js";
import { ConnectionFailed, NotFound, RequestTimeout, Unavailable } from "./errors.js";
import type * as models from "./models.js";
import { LIFE_MS, Sandbox } from "./sandbox.js";
import { type OpenSocket, platformSocket } from "./socket.js";
import { events } from "./sse.js";
import { type Answer, type Content, every, type Fetch, Patience } from "./transport.js";

const IMPORT_MS = 1_800_000;

export interface ClientOptions {
    /** "http://HOST:PORT" or "https://…"; in a browser, without it, the page's own server. */
    address?: string;
    token?: string | null;
    /** For the answer to begin, and for each next part of it; 30 s unless said. */
    timeoutMs?: number;
    /** How often a request is repeated where that is safe; 5 unless said. */
    retries?: number;
    fetch?: Fetch;
    socket?: OpenSocket;
}

/** Something that happened; seq is its number, to go on from. */
export interface Event {
    seq: number;
    time: string;
    type: string;
    object: string;
    data: Record<string, unknown>;
}

export class Sandboxes {
    constructor(private readonly api: Api) {}

    /** Makes one, which runs when the promise settles. Limits are bytes, times milliseconds. */
    async create(spec: models.SandboxSpec = {},
                 { idempotencyKey }: { idempotencyKey?: string } = {}): Promise<Sandbox> {
        return new Sandbox(this.api, await this.api.sandboxCreate(spec, { timeoutMs: LIFE_MS, idempotencyKey }));
    }

    /** Makes one, gives it to a function, and deletes it however that ends. */
    async use<T>(spec: models.SandboxSpec, work: (sandbox: Sandbox) => Promise<T>): Promise<T> {
        const sandbox = await this.create(spec);
        try {
            return await work(sandbox);
        } finally {
            await sandbox.delete().catch((error: unknown) => {
                if (!(error instanceof NotFound)) throw error;
            });
        }
    }

    /** The caller's, oldest first; label is KEY or KEY=VALUE, name the beginning of one. */
    async list(filter: { state?: string; label?: string; name?: string } = {}): Promise<Sandbox[]> {
        const found = await every((part) => this.api.sandboxList({ ...filter, ...part }));
        return found.map((info) => new Sandbox(this.api, info));
    }

    /** By id, by name, or by the beginning of its id. */
    async get(id: string): Promise<Sandbox> {
        return new Sandbox(this.api, await this.api.sandboxRead(id));
    }
}

export class Images {
    constructor(private readonly api: Api) {}

    /** A root tree, a `docker save` archive or an OCI layout as tar (plain, gzip, xz, zstd). */
    load(archive: Content, name: string): Promise<models.ImageInfo> {
        return this.api.imageImport({ name }, archive, { timeoutMs: IMPORT_MS });
    }

    async list(): Promise<models.ImageInfo[]> {
        return (await this.api.imageList()).items;
    }

    get(name: string): Promise<models.ImageInfo> {
        return this.api.imageRead(name);
    }

    delete(name: string): Promise<models.ImageInfo> {
        return this.api.imageDelete(name);
    }
}

export class Volumes {
    constructor(private readonly api: Api) {}

    create(spec: models.VolumeSpec): Promise<models.VolumeInfo> {
        return this.api.volumeCreate(spec);
    }

    async list(): Promise<models.VolumeInfo[]> {
        return every((part) => this.api.volumeList(part));
    }

    /** With how much of it is used. */
    get(name: string): Promise<models.VolumeDetail> {
        return this.api.volumeRead(name);
    }

    resize(name: string, bytes: number): Promise<models.VolumeInfo> {
        return this.update(name, { bytes });
    }

    /** Another size or access; what is not named stays. */
    update(name: string, change: models.VolumeChangeRequest): Promise<models.VolumeInfo> {
        return this.api.volumeChange(name, change);
    }

    delete(name: string): Promise<models.VolumeInfo> {
        return this.api.volumeDelete(name);
    }
}

/** All of the caller's; they outlive their sandboxes. Made by Sandbox.snapshot(). */
export class Snapshots {
    constructor(private readonly api: Api) {}

    async list(): Promise<models.SnapshotInfo[]> {
        return every((part) => this.api.snapshotList(part));
    }

    delete(snapshot: string): Promise<models.SnapshotInfo> {
        return this.api.snapshotDelete(snapshot);
    }
}

/** Wishes for sandboxes that have a name; `sandboxes.create({ template })` makes one of them. */
export class Templates {
    constructor(private readonly api: Api) {}

    /** Makes or changes one; sandboxes made of it before stay as they are. */
    set(template: string, spec: models.SandboxSpec): Promise<models.TemplateInfo> {
        return this.api.templateSet(template, spec);
    }

    get(template: string): Promise<models.TemplateInfo> {
        return this.api.templateRead(template);
    }

    async list(): Promise<models.TemplateInfo[]> {
        return (await this.api.templateList()).items;
    }

    delete(template: string): Promise<models.TemplateInfo> {
        return this.api.templateDelete(template);
    }
}

/** Questions to people, each decided at most once; operators decide. */
export class Asks {
    constructor(private readonly api: Api) {}

    async list(state: string | undefined = "pending"): Promise<models.AskInfo[]> {
        return (await this.api.askList({ state })).items;
    }

    get(ask: string): Promise<models.AskInfo> {
        return this.api.askRead(ask);
    }

    /** For those who wait now; with the digest of what was seen, nothing else is allowed. */
    allow(ask: string, more: { hash?: string; note?: string } = {}): Promise<models.AskInfo> {
        return this.api.askDecide(ask, { verdict: "allow", ...more });
    }

    deny(ask: string, more: { hash?: string; note?: string } = {}): Promise<models.AskInfo> {
        return this.api.askDecide(ask, { verdict: "deny", ...more });
    }
}

/** Sandboxes made ahead, which a creation takes. */
export class Pools {
    constructor(private readonly api: Api) {}

    /** Makes or changes one; size 0 removes it. */
    set(name: string, spec: models.PoolSpec): Promise<models.PoolInfo> {
        return this.api.poolSet(name, spec);
    }

    async list(): Promise<models.PoolInfo[]> {
        return (await this.api.poolList()).items;
    }
}

/** How much the sandboxes of a tenant, role, principal or label may have. */
export class Quotas {
    constructor(private readonly api: Api) {}

    /**
     * Replaces the quota of "tenant:acme", "role:agent", "by:ID" or "label:user=ann"; with * for each of
     * them. A limit that is not named does not exist.
     */
    set(subject: string, limits: models.QuotaLimits): Promise<models.QuotaInfo> {
        return this.api.quotaSet(subject, limits);
    }

    /** With what is used of each. */
    async list(): Promise<models.QuotaInfo[]> {
        return (await this.api.quotaList()).items;
    }

    delete(subject: string): Promise<models.QuotaInfo> {
        return this.api.quotaDelete(subject);
    }
}

export class Tokens {
    constructor(private readonly api: Api) {}

    /** The token itself is in the answer, this once. */
    create(spec: models.TokenSpec): Promise<models.NewToken> {
        return this.api.tokenCreate(spec);
    }

    async list(tenant?: string): Promise<models.TokenInfo[]> {
        return (await this.api.tokenList({ tenant })).items;
    }

    /** By id or name; it stops working at once. */
    revoke(id: string, tenant?: string): Promise<models.TokenInfo> {
        return this.api.tokenRevoke(id, { tenant });
    }
}

/** Values that the server keeps sealed and never gives back, and what agents connect with. */
export class Secrets {
    constructor(private readonly api: Api) {}

    /** With hosts it is for requests to them, and the process that makes these is the only one that can open it. */
    put(name: string, value: string, how: Omit<models.SecretPutRequest, "value"> = {}): Promise<models.SecretInfo> {
        return this.api.secretPut(name, { value, ...how });
    }

    /** The secret itself is in the answer, this once. */
    createForAgent(agent_id: string): Promise<models.NewSecret> {
        return this.api.secretCreate({ agent_id });
    }

    /** Names and ages, never a value. */
    async list(): Promise<models.SecretInfo[]> {
        return (await this.api.secretList()).items;
    }

    async delete(name: string): Promise<void> {
        await this.api.secretDelete(name);
    }
}

export class Events {
    constructor(private readonly api: Api) {}

    /** A page of those after a number, oldest first. */
    async list(query: { since?: number; limit?: number; type?: string; object?: string } = {}): Promise<Event[]> {
        return ((await this.api.eventRead(query)) as { items: Event[] }).items;
    }

    /** Writes an event that everyone who listens sees. */
    note(text: string): Promise<models.NoteInfo> {
        return this.api.noteCreate({ text });
    }

    /**
     * Events as they happen: after number `since`, or from now on. Comes back after a broken connection and goes on
     * behind the last one it gave. Gone when the server no longer keeps what would be next.
     */
    async *stream({ since, type, object, idleMs = 60_000, patienceMs = 60_000 }: {
        since?: number; type?: string; object?: string; idleMs?: number; patienceMs?: number;
    } = {}): AsyncGenerator<Event, void, undefined> {
        const tries = new Patience(patienceMs);
        since ??= ((await this.api.eventRead({ since: 0, limit: 1 })) as { head: number }).head;
        for (;;) {
            try {
                const options = { timeoutMs: idleMs, headers: { accept: "text/event-stream" } };
                for await (const event of events(await this.api.eventStream({ since, type, object }, options))) {
                    if (event.event === "reset") break;
                    tries.progress();
                    since = Number(event.id);
                    yield JSON.parse(event.data) as Event;
                }
                await tries.wait(new ConnectionFailed("the stream of events ends again and again"));
            } catch (error) {
                if (error instanceof RequestTimeout) tries.progress(); // nothing happened
                else if (error instanceof ConnectionFailed || error instanceof Unavailable) await tries.wait(error);
                else throw error;
            }
        }
    }
}

export class Audit {
    constructor(private readonly api: Api) {}

    /** Rows after a number, oldest first; without it the newest. */
    async list(query: { since?: number; limit?: number } = {}): Promise<Record<string, unknown>[]> {
        return ((await this.api.auditRead(query)) as { items: Record<string, unknown>[] }).items;
    }

    verify(): Promise<models.AuditVerdict> {
        return this.api.auditVerify({ timeoutMs: IMPORT_MS });
    }
}

export class Backups {
    constructor(private readonly api: Api) {}

    create(name: string): Promise<models.BackupInfo> {
        return this.api.backupCreate({ name }, { timeoutMs: IMPORT_MS });
    }

    download(name: string): Promise<Answer> {
        return this.api.backupRead(name);
    }

    async delete(name: string): Promise<void> {
        await this.api.backupDelete(name);
    }
}

/** A server and its nouns. In Node, connect() of "@atoll/sdk/node" finds it as the command line does. */
export class Client {
    /** Every operation as it is; the rest is comfort over it. */
    readonly api: Api;
    readonly sandboxes: Sandboxes;
    readonly images: Images;
    readonly volumes: Volumes;
    readonly snapshots: Snapshots;
    readonly templates: Templates;
    readonly pools: Pools;
    readonly quotas: Quotas;
    readonly tokens: Tokens;
    readonly secrets: Secrets;
    readonly asks: Asks;
    readonly events: Events;
    readonly audit: Audit;
    readonly backups: Backups;

    constructor(options: ClientOptions = {}) {
        this.api = new Api({
            address: (options.address ?? "").replace(/\/$/, ""),
            token: options.token,
            timeoutMs: options.timeoutMs ?? 30_000,
            retries: options.retries ?? 5,
            fetch: options.fetch ?? ((url, init) => fetch(url, init)),
            socket: options.socket ?? platformSocket,
        });
        this.sandboxes = new Sandboxes(this.api);
        this.images = new Images(this.api);
        this.volumes = new Volumes(this.api);
        this.snapshots = new Snapshots(this.api);
        this.templates = new Templates(this.api);
        this.pools = new Pools(this.api);
        this.quotas = new Quotas(this.api);
        this.tokens = new Tokens(this.api);
        this.secrets = new Secrets(this.api);
        this.asks = new Asks(this.api);
        this.events = new Events(this.api);
        this.audit = new Audit(this.api);
        this.backups = new Backups(this.api);
    }

    health(): Promise<models.Health> {
        return this.api.healthRead();
    }

    version(): Promise<unknown> {
        return this.api.versionRead();
    }

    /** What the server's machine can do, as it found out at its start; for operators. */
    doctor(): Promise<unknown> {
        return this.api.doctorRead();
    }

    /** What this server allows at most. */
    limits(): Promise<unknown> {
        return this.api.limitsRead();
    }

    whoami(): Promise<models.Whoami> {
        return this.api.whoamiRead();
    }

    /** Prometheus text. */
    async metrics(): Promise<string> {
        return (await this.api.metricsRead()).text();
    }

    /** A one-time link that logs a browser in. */
    loginLink(): Promise<models.LoginLink> {
        return this.api.loginLink();
    }
}
