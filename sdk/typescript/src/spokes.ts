// Agents at an Atoll hub: they find work, do it, talk to each other and stop when told to. Runs in Node and in
// browsers and needs nothing but fetch.
import { AtollError, ConnectionFailed, RequestTimeout, Unauthenticated, Unavailable } from "./errors.js";
import { platformSocket } from "./socket.js";
import { type LoopOptions, type MessageHandler, runLoop } from "./spokes_loop.js";
import type * as types from "./spokes_types.js";
import { events as parseEvents } from "./sse.js";
import { Caller, concat, type Fetch, type Options, Patience, sleep } from "./transport.js";

export * from "./errors.js";
export { type Journal, type LoopOptions, memoryJournal, type MessageHandler, type TaskHandler,
         Work } from "./spokes_loop.js";
export type * from "./spokes_types.js";

export interface AgentOptions {
    /** The agent's own; the password of the address or ATOLL_TOKEN by default. A hub with auth = open needs none. */
    token?: string | null;
    /** The token's id: requests are then signed with the token, which does not travel. */
    keyId?: string;
    /** For the answer to begin, and for each next part of it; 30 s unless said. */
    timeoutMs?: number;
    /** How often a request is repeated where that is safe; 3 unless said. */
    retries?: number;
    autonomyMode?: types.Mode;
    capabilities?: string[];
    fetch?: Fetch;
}

interface Wish {
    query?: Record<string, unknown>;
    body?: unknown;
    /** Done twice is the same as done once. */
    again?: boolean;
    /** Must not be done twice: carries a key to be repeated by. */
    once?: boolean;
    options?: Options;
}

type At = Record<string, string>;

const hex = (bytes: ArrayBuffer) => Array.from(new Uint8Array(bytes), (b) => b.toString(16).padStart(2, "0")).join("");

async function webCrypto(): Promise<Crypto> {
    if (globalThis.crypto?.subtle) return globalThis.crypto;
    return (await import("node:crypto")).webcrypto as unknown as Crypto; // Node 18
}

/** Proofs as src/auth/auth.h of the server describes them. */
function signer(keyId: string, token: string) {
    let key: Promise<CryptoKey> | undefined;
    const algorithm = { name: "HMAC", hash: "SHA-256" };
    const bytes = (text: string) => new TextEncoder().encode(text);
    const derive = async (): Promise<CryptoKey> => {
        const { subtle } = await webCrypto();
        const own = await subtle.importKey("raw", bytes(token), algorithm, false, ["sign"]);
        const derived = await subtle.sign("HMAC", own, bytes("atoll-sign-v1"));
        return subtle.importKey("raw", derived, algorithm, false, ["sign"]);
    };
    return async (method: string, target: string, body: Uint8Array): Promise<Record<string, string>> => {
        const { subtle, getRandomValues } = await webCrypto().then((c) => ({
            subtle: c.subtle, getRandomValues: c.getRandomValues.bind(c) }));
        const time = String(Date.now());
        const nonce = hex(getRandomValues(new Uint8Array(16)).buffer);
        const digest = hex(await subtle.digest("SHA-256", body as BufferSource));
        const text = [method, target, time, nonce, digest, keyId].join("\n");
        const signature = hex(await subtle.sign("HMAC", await (key ??= derive()), bytes(text)));
        return { "x-atoll-key": keyId, "x-atoll-time": time, "x-atoll-nonce": nonce, "x-atoll-signature": signature };
    };
}

/** The hub as programs in a sandbox reach it; who they are the server knows, and no token is sent there. */
const INSIDE = "atoll.internal";

function environment(name: string): string {
    return typeof process === "undefined" ? "" : process.env?.[name] ?? "";
}

/** http://NAME:TOKEN@HOST/PATH: fetch refuses addresses with a password. */
function addressOf(text: string): { address: string; token: string | undefined } {
    const found = /^(https?:\/\/)([^/@?#]*)@(.*)$/.exec(text);
    const [, scheme = "", who = "", rest = text] = found ?? [];
    const colon = who.indexOf(":");
    return { address: (scheme + rest).replace(/\/+$/, ""),
             token: colon < 0 ? undefined : decodeURIComponent(who.slice(colon + 1)) };
}

/** True when it was done, false when it was refused or failed. */
async function done(work: Promise<unknown>): Promise<boolean> {
    try {
        await work;
        return true;
    } catch (error) {
        if (error instanceof AtollError) return false;
        throw error;
    }
}

/** One agent at a hub, or a human who looks after it. */
export class AgentClient {
    readonly hubUrl: string;
    autonomyMode: types.Mode | undefined;
    capabilities: string[] | undefined;
    private readonly caller: Caller;
    private beating: ReturnType<typeof setInterval> | undefined;

    constructor(hubUrl: string, readonly agentName: string, readonly agentType = "unknown",
                options: AgentOptions = {}) {
        const given = addressOf(hubUrl || environment("HUB_URL"));
        this.hubUrl = given.address;
        this.autonomyMode = options.autonomyMode;
        this.capabilities = options.capabilities;
        const inside = new URL(given.address, "http://page").hostname === INSIDE;
        const token = inside ? null : options.token ?? given.token ?? (environment("ATOLL_TOKEN") || null);
        if (options.keyId && !token) throw new AtollError("keyId names a token to sign with: give that token too");
        this.caller = new Caller({
            address: this.hubUrl, token, timeoutMs: options.timeoutMs ?? 30_000, retries: options.retries ?? 3,
            fetch: options.fetch ?? ((url, init) => fetch(url, init)), socket: platformSocket,
            ...(options.keyId && token ? { sign: signer(options.keyId, token) } : {}),
        });
    }

    private operation(method: string, path: string, at: At, wish: Wish) {
        for (const [name, value] of Object.entries(at)) {
            if (!value) throw new AtollError(`${name} must not be empty`);
            const parts = name === "filename" ? value.split("/") : [value];
            // However they are written, URLs take these two for steps.
            if (parts.includes(".") || parts.includes("..")) throw new AtollError(`${name} must not be ${value}`);
            path = path.replace(`{${name}}`, parts.map(encodeURIComponent).join("/"));
        }
        return { method, path, creates: wish.once === true, again: wish.again === true };
    }

    private call<T>(method: string, path: string, at: At = {}, wish: Wish = {}): Promise<T> {
        return this.caller.json<T>(this.operation(method, path, at, wish), {}, wish.query ?? {}, wish.body,
                                   wish.options);
    }

    async ping(): Promise<boolean> {
        return (await this.call<{ status: string }>("GET", "/ping")).status === "ok";
    }

    // ---- this agent ----

    /** With the type, mode and capabilities that this client has, so that none is lost by registering again. */
    register(metadata?: Record<string, unknown>): Promise<types.Registration> {
        const body = { name: this.agentName, type: this.agentType, metadata, autonomy_mode: this.autonomyMode,
                       capabilities: this.capabilities };
        return this.call("POST", "/agents/register", {}, { body, again: true });
    }

    async ensureRegistered(metadata?: Record<string, unknown>): Promise<boolean> {
        return done(this.join(metadata));
    }

    /** As ensureRegistered; rejects with what went wrong. */
    async join(metadata?: Record<string, unknown>): Promise<void> {
        try {
            await this.beat();
        } catch (error) {
            if (error instanceof Unauthenticated || !(error instanceof AtollError)) throw error;
            await this.register(metadata);
        }
    }

    unregister(): Promise<boolean> {
        return done(this.call("DELETE", "/agents/{name}", { name: this.agentName }));
    }

    /** A heartbeat, and what the hub has to say to it. */
    beat(): Promise<types.Beat> {
        return this.call("POST", "/agents/{name}/heartbeat", { name: this.agentName });
    }

    heartbeat(): Promise<boolean> {
        return done(this.beat());
    }

    startHeartbeat(intervalMs = 10_000): void {
        this.stopHeartbeat();
        const beat = () => this.beat().catch((error: unknown) => {
            if (error instanceof Unauthenticated) this.stopHeartbeat(); // asking again does not make the token valid
        });
        void beat();
        this.beating = setInterval(() => void beat(), intervalMs);
    }

    stopHeartbeat(): void {
        clearInterval(this.beating);
        this.beating = undefined;
    }

    /** Of this agent, or of another one: then as an operator. */
    async setAutonomyMode(mode: types.Mode, agent = this.agentName): Promise<{ name: string; autonomy_mode: string }> {
        const found = await this.call<{ name: string; autonomy_mode: string }>(
            "POST", "/agents/{name}/autonomy", { name: agent }, { body: { mode }, again: true });
        if (agent === this.agentName) this.autonomyMode = mode;
        return found;
    }

    async setCapabilities(tags: string[], description = ""): Promise<{ name: string; tags: string[] }> {
        const found = await this.call<{ name: string; tags: string[] }>(
            "POST", "/agents/{name}/capabilities", { name: this.agentName },
            { body: { tags, description }, again: true });
        this.capabilities = tags;
        return found;
    }

    // ---- checkpoints and revocations ----

    submitCheckpoint(taskId: string | null = null, state = "", rationale = "",
                     metadata?: Record<string, unknown>): Promise<types.Checkpoint> {
        return this.call("POST", "/agents/{name}/checkpoint", { name: this.agentName },
                         { body: { task_id: taskId, state, rationale, metadata }, once: true });
    }

    getCheckpoint(agent = this.agentName): Promise<types.CheckpointDetail> {
        return this.call("GET", "/agents/{name}/checkpoint", { name: agent });
    }

    checkRevocation(): Promise<types.Revocation> {
        return this.call("GET", "/agents/{name}/revocation", { name: this.agentName });
    }

    acknowledgeRevocation(revocationId: string): Promise<boolean> {
        return done(this.call("POST", "/agents/{name}/revocation/ack", { name: this.agentName },
                              { body: { revocation_id: revocationId }, again: true }));
    }

    // ---- everyone ----

    listAgents(filter: { status?: string; type?: string } = {}): Promise<types.AgentRecord[]> {
        return this.call("GET", "/agents", {}, { query: filter });
    }

    getAgent(agent = this.agentName): Promise<types.AgentRecord> {
        return this.call("GET", "/agents/{name}", { name: agent });
    }

    listCapabilities(): Promise<{ agent: string; tags: string[]; description: string }[]> {
        return this.call("GET", "/capabilities");
    }

    async agentsWithCapability(tag: string): Promise<string[]> {
        return (await this.call<{ agents: string[] }>("GET", "/capabilities/match", {}, { query: { tag } })).agents;
    }

    // ---- in charge: for humans, who have a token of an operator ----

    setGlobalMode(mode: types.Mode, agentType?: string): Promise<{ mode: string; updated_agents: string[] }> {
        return this.call("POST", "/autonomy/set-mode", {}, { body: { mode, agent_type: agentType }, again: true });
    }

    async getDefaultMode(): Promise<types.Mode> {
        return (await this.call<{ default_mode: types.Mode }>("GET", "/autonomy")).default_mode;
    }

    listProposals(filter: { state?: string; agent?: string; project?: string } = {}): Promise<types.Proposal[]> {
        return this.call("GET", "/proposals", {}, { query: filter });
    }

    getProposal(proposal: string): Promise<types.Proposal> {
        return this.call("GET", "/proposals/{proposal}", { proposal });
    }

    approveProposal(proposal: string, note = ""): Promise<types.Proposal> {
        return this.call("POST", "/proposals/{proposal}/approve", { proposal }, { body: { note } });
    }

    rejectProposal(proposal: string, note = ""): Promise<types.Proposal> {
        return this.call("POST", "/proposals/{proposal}/reject", { proposal }, { body: { note } });
    }

    pauseAgent(agent: string, reason = ""): Promise<{ name: string; status: string }> {
        return this.call("POST", "/agents/{name}/pause", { name: agent }, { body: { reason }, again: true });
    }

    resumeAgent(agent: string): Promise<{ name: string; status: string }> {
        return this.call("POST", "/agents/{name}/resume", { name: agent }, { again: true });
    }

    revokeAgent(agent: string, reason = "", flushRequired = true): Promise<types.Revoked> {
        return this.call("POST", "/agents/{name}/revoke", { name: agent },
                         { body: { reason, flush_required: flushRequired }, once: true });
    }

    revocationHistory(limit = 50): Promise<types.PastRevocation[]> {
        return this.call("GET", "/revocation/history", {}, { query: { limit } });
    }

    auditLog(limit = 100): Promise<types.AuditLine[]> {
        return this.call("GET", "/audit/log", {}, { query: { limit } });
    }

    // ---- messages ----

    sendMessage(to: string, content: string, more: types.MessageOptions = {}): Promise<types.Sent> {
        return this.call("POST", "/messages/send", {},
                         { body: { from: this.agentName, to, content, ...more }, once: true });
    }

    /** Oldest first, up to 1000; `after`: the id of the last of the page before; `peek` marks nothing as delivered. */
    getMessages({ unread = false, ...more }: { unread?: boolean; limit?: number; after?: string;
                                               peek?: boolean } = {}): Promise<types.Message[]> {
        const query = { ...more, unread: String(unread), peek: more.peek ? "true" : undefined };
        return this.call("GET", "/messages/{agent}", { agent: this.agentName }, { query });
    }

    ack(message: string): Promise<boolean> {
        return done(this.call("POST", "/messages/{message}/ack", { message }, { again: true }));
    }

    /** What two said to each other, newest first. */
    messageHistory(other: string, { agent = this.agentName, limit, before }:
                   { agent?: string; limit?: number; before?: string } = {}): Promise<types.Said[]> {
        return this.call("GET", "/messages/history/{a}/{b}", { a: agent, b: other }, { query: { limit, before } });
    }

    getThread(thread: string, page: { limit?: number; after?: string } = {}): Promise<types.Message[]> {
        return this.call("GET", "/messages/threads/{thread}", { thread }, { query: page });
    }

    messageGraph(): Promise<types.Graph> {
        return this.call("GET", "/messages/graph");
    }

    listChannels(): Promise<types.Channel[]> {
        return this.call("GET", "/channels");
    }

    joinChannel(channel: string): Promise<{ status: string }> {
        return this.call("POST", "/channels/{channel}/join", { channel },
                         { body: { agent: this.agentName }, again: true });
    }

    leaveChannel(channel: string): Promise<{ status: string }> {
        return this.call("POST", "/channels/{channel}/leave", { channel },
                         { body: { agent: this.agentName }, again: true });
    }

    /** To every other member; the channel "all" is everyone who is registered. */
    sendToChannel(channel: string, content: string,
                  more: Omit<types.MessageOptions, "reply_to"> = {}): Promise<types.Posted> {
        return this.call("POST", "/channels/{channel}/send", { channel },
                         { body: { from: this.agentName, content, ...more }, once: true });
    }

    /** Handles what is there, oldest first, and acknowledges each; how many. An error of the handler goes through,
     * and its message stays unread. */
    async processInbox(handler: MessageHandler, { unread = true, autoAck = true, max = Infinity } = {}):
        Promise<number> {
        let count = 0;
        for (const message of (await this.getMessages({ unread })).slice(0, max)) {
            await handler(message);
            count++;
            if (autoAck) await this.ack(message.id);
        }
        return count;
    }

    async waitForMessages({ timeoutMs = 30_000, pollMs = 1000, unread = true } = {}): Promise<types.Message[]> {
        const end = Date.now() + timeoutMs;
        for (;;) {
            const found = await this.getMessages({ unread });
            const left = end - Date.now();
            if (found.length || left <= 0) return found;
            await sleep(Math.min(pollMs, left));
        }
    }

    // ---- projects and files ----

    createProject(name: string): Promise<{ id: string; name: string; created_at: string }> {
        return this.call("POST", "/projects", {}, { body: { name, creator: this.agentName }, once: true });
    }

    listProjects(agent?: string): Promise<types.Project[]> {
        return this.call("GET", "/projects", {}, { query: { agent } });
    }

    getProject(project: string): Promise<types.ProjectDetail> {
        return this.call("GET", "/projects/{project}", { project });
    }

    deleteProject(project: string): Promise<boolean> {
        return done(this.call("DELETE", "/projects/{project}", { project }));
    }

    joinProject(project: string): Promise<boolean> {
        return done(this.call("POST", "/projects/{project}/join", { project },
                              { body: { agent: this.agentName }, again: true }));
    }

    setWipLimit(project: string, status: types.Status, limit: number): Promise<{ status: string }> {
        return this.call("PATCH", "/projects/{project}/wip", { project }, { body: { status, limit }, again: true });
    }

    /** Times and throughput; `window` and `bucket` are seconds. */
    getMetrics(project: string, query: { window?: number; bucket?: number } = {}): Promise<types.Metrics> {
        return this.call("GET", "/projects/{project}/metrics", { project }, { query });
    }

    getBoard(project: string, lanes: "none" | "agent" | "priority" | "label" = "none"): Promise<types.Board> {
        return this.call("GET", "/projects/{project}/board", { project }, { query: { lanes } });
    }

    uploadFile(project: string, filename: string, data: Uint8Array | string): Promise<types.Uploaded> {
        if (/["\r\n]/.test(filename)) throw new AtollError(`${JSON.stringify(filename)} is no name of a file`);
        const edge = "spokes-" + Math.random().toString(36).slice(2) + Date.now().toString(36);
        const text = (value: string) => new TextEncoder().encode(value);
        const part = (rest: string) => `--${edge}\r\nContent-Disposition: form-data; ${rest}`;
        const body = concat([
            text(part(`name="uploader"\r\n\r\n${this.agentName}\r\n`)),
            text(part(`name="file"; filename="${filename}"\r\nContent-Type: application/octet-stream\r\n\r\n`)),
            typeof data === "string" ? text(data) : data, text(`\r\n--${edge}--\r\n`),
        ]);
        const headers = { "content-type": `multipart/form-data; boundary=${edge}` };
        return this.call("POST", "/projects/{project}/files", { project }, { body, once: true, options: { headers } });
    }

    listFiles(project: string): Promise<types.FileInfo[]> {
        return this.call("GET", "/projects/{project}/files", { project });
    }

    /** Newest first. */
    fileVersions(project: string, filename: string): Promise<types.FileInfo[]> {
        return this.call("GET", "/projects/{project}/versions/{filename}", { project, filename });
    }

    async downloadFile(project: string, filename: string, version?: number): Promise<Uint8Array> {
        const where = this.operation("GET", "/projects/{project}/files/{filename}", { project, filename }, {});
        const answer = await this.caller.stream(where, {}, { version }, undefined, { headers: { accept: "*/*" } });
        return answer.bytes();
    }

    deleteFile(project: string, filename: string): Promise<{ status: string }> {
        return this.call("DELETE", "/projects/{project}/files/{filename}", { project, filename });
    }

    // ---- leases: who edits which paths of a project ----

    /** All of these paths, each with what is beneath it, or a Conflict whose `more.holder` stands in the way. */
    takeLease(project: string, paths: string[],
              more: { mode?: "exclusive" | "shared"; ttl_seconds?: number; reason?: string } = {}):
        Promise<types.Lease> {
        return this.call("POST", "/projects/{project}/leases", { project },
                         { body: { agent: this.agentName, paths, ...more }, once: true });
    }

    listLeases(project: string, filter: { agent?: string; path?: string } = {}): Promise<types.Lease[]> {
        return this.call("GET", "/projects/{project}/leases", { project }, { query: filter });
    }

    renewLease(project: string, lease: string, ttlSeconds?: number): Promise<types.Lease> {
        return this.call("POST", "/projects/{project}/leases/{lease}/renew", { project, lease },
                         { body: { ttl_seconds: ttlSeconds }, again: true });
    }

    releaseLease(project: string, lease: string): Promise<{ status: string }> {
        return this.call("DELETE", "/projects/{project}/leases/{lease}", { project, lease });
    }

    // ---- tasks ----

    createTask(project: string, title: string, more: types.TaskOptions = {}): Promise<types.NewTask> {
        return this.call("POST", "/projects/{project}/tasks", { project },
                         { body: { title, created_by: this.agentName, ...more }, once: true });
    }

    listTasks(project: string, { include_blocked, ...filter }: {
        status?: types.Status; agent?: string; assigned_to?: string; include_blocked?: boolean; label?: string;
    } = {}): Promise<types.Task[]> {
        const blocked = include_blocked === undefined ? undefined : String(include_blocked);
        const query = { ...filter, include_blocked: blocked };
        return this.call("GET", "/projects/{project}/tasks", { project }, { query });
    }

    getTask(project: string, task: string): Promise<types.Task> {
        return this.call("GET", "/projects/{project}/tasks/{task}", { project, task });
    }

    /** What may be begun, most urgent first: of what this agent can do, if it has capabilities. */
    getReadyTasks(project: string, capabilities = this.capabilities): Promise<types.ReadyTask[]> {
        return this.call("GET", "/projects/{project}/tasks/ready", { project },
                         { query: { agent: this.agentName, capabilities } });
    }

    getMyTasks(project?: string): Promise<types.TaskLine[]> {
        return this.findTasks({ agent: this.agentName, project_id: project });
    }

    findTasks(filter: { agent?: string; project_id?: string; status?: types.Status; assigned_to?: string }):
        Promise<types.TaskLine[]> {
        return this.call("GET", "/tasks", {}, { query: filter });
    }

    /** ok; an agent in advisory mode gets a proposal instead, which an operator decides. */
    claimTask(project: string, task: string): Promise<types.Claim> {
        return this.call("POST", "/projects/{project}/tasks/{task}/claim", { project, task },
                         { body: { agent: this.agentName }, again: true });
    }

    changeTask(project: string, task: string,
               change: { title?: string; description?: string; priority?: types.Priority; labels?: string[] }):
        Promise<types.MovedTask> {
        return this.call("PATCH", "/projects/{project}/tasks/{task}", { project, task },
                         { body: { agent: this.agentName, ...change }, again: true });
    }

    moveTask(project: string, task: string, status: types.Status,
             more: { blocked_reason?: string; blocked_by?: string | string[]; note?: string } = {}):
        Promise<types.MovedTask> {
        return this.call("PATCH", "/projects/{project}/tasks/{task}", { project, task },
                         { body: { status, agent: this.agentName, ...more }, once: true });
    }

    assignTask(project: string, task: string, agent: string): Promise<{ ok: boolean }> {
        return this.call("POST", "/projects/{project}/tasks/{task}/assign", { project, task },
                         { body: { agent, assigned_by: this.agentName }, again: true });
    }

    unassignTask(project: string, task: string): Promise<{ ok: boolean }> {
        return this.call("POST", "/projects/{project}/tasks/{task}/unassign", { project, task }, { again: true });
    }

    addReviewer(project: string, task: string, reviewer: string): Promise<{ status: string }> {
        return this.call("POST", "/projects/{project}/tasks/{task}/reviewers/{name}", { project, task, name: reviewer },
                         { again: true });
    }

    /** As a reviewer of a task in review; `reviewer` is this agent unless said. */
    approveTask(project: string, task: string, { note = "", reviewer = this.agentName } = {}): Promise<types.Verdict> {
        return this.call("POST", "/projects/{project}/tasks/{task}/approve", { project, task },
                         { body: { reviewer, note }, again: true });
    }

    /** The task goes back to in_progress. */
    requestChanges(project: string, task: string, { note = "", reviewer = this.agentName } = {}):
        Promise<types.Verdict> {
        return this.call("POST", "/projects/{project}/tasks/{task}/request-changes", { project, task },
                         { body: { reviewer, note } });
    }

    listReviews(project: string, task: string): Promise<types.Review[]> {
        return this.call("GET", "/projects/{project}/tasks/{task}/reviews", { project, task });
    }

    commentTask(project: string, task: string, text: string): Promise<types.Comment> {
        return this.call("POST", "/projects/{project}/tasks/{task}/comments", { project, task },
                         { body: { author: this.agentName, text } });
    }

    /** What was said under a task, oldest first; only what came behind number `after`. */
    listComments(project: string, task: string, page: { after?: number; limit?: number } = {}):
        Promise<types.Comment[]> {
        return this.call("GET", "/projects/{project}/tasks/{task}/comments", { project, task }, { query: page });
    }

    // ---- events ----

    /** What happens in the hub, from now on or after the event `since`; comes back by itself over breaks and restarts.
     * `idleMs`: silence, with not even a sign of life, after which the connection counts as broken. */
    async *events({ types: names, project, agent, since, idleMs = 60_000, patienceMs = 120_000, signal }: {
        types?: string[]; project?: string; agent?: string; since?: string; idleMs?: number; patienceMs?: number;
        signal?: AbortSignal;
    } = {}): AsyncGenerator<types.HubEvent, void, undefined> {
        const tries = new Patience(patienceMs);
        for (let last = since; !signal?.aborted;) {
            const hub = project || agent ? undefined : "true"; // one of them at a time
            const query = { type: names?.join(","), project, agent, hub, since: last };
            const headers = { accept: "text/event-stream" };
            const operation = this.operation("GET", "/events", {}, {});
            try {
                const answer = await this.caller.stream(operation, {}, query, undefined,
                                                        { headers, timeoutMs: idleMs, signal });
                for await (const one of parseEvents(answer)) {
                    tries.progress();
                    last = one.id || last;
                    yield { id: one.id, type: one.event, data: JSON.parse(one.data) };
                }
                await tries.wait(new ConnectionFailed("the events end again and again"));
            } catch (error) {
                if (signal?.aborted) return;
                if (!(error instanceof ConnectionFailed || error instanceof RequestTimeout
                      || error instanceof Unavailable)) throw error;
                await tries.wait(error);
            }
        }
    }

    // ---- a life of its own ----

    /** Until `signal` is aborted: heartbeats, messages to `handler`, tasks to `taskHandler`, checkpoints when due,
     * revocations as they come. See spokes_loop.ts. */
    runAutonomousLoop(options: LoopOptions): Promise<void> {
        return runLoop(this, options);
    }
}
