// The life of an autonomous agent: heartbeats, messages, tasks, checkpoints, revocations.
//
// Heartbeats go on beside the work, so that a long piece of it does not look like a dead agent; the answer to each
// tells whether a checkpoint is due and whether the agent was revoked.
//
// A message that was handled is never handled again. The hub gives a message until it is acknowledged, and an
// acknowledgement can get lost; so ids are noted in a journal when the handler has returned and before the hub hears
// of it. A handler that throws has not handled its message, which is given to it again after a growing pause.
//
// When the agent is revoked, the work in hand is told so (Work.signal), nothing new is begun, `onRevoked` may save
// what there is, the revocation is acknowledged, the agent registers anew and goes on; or, with afterRevocation
// "stop", ends.
//
// A token that the hub does not accept any more (401) ends the loop with an error: no later request would succeed.
import { AtollError, Conflict, ConnectionFailed, Forbidden, InvalidRequest, NotFound, RequestTimeout,
         Unauthenticated, Unavailable } from "./errors.js";
import type { AgentClient } from "./spokes.js";
import type { Message, Revocation, Status, Task } from "./spokes_types.js";

const REMEMBERED = 10_000; // handled messages that are kept in mind
const PAUSE_FIRST_MS = 1000; // before a message whose handler failed is tried again
const PAUSE_MAX_MS = 300_000;

export type MessageHandler = (message: Message) => unknown;
/** Gives the state that the task is to have: "in_review", say; nothing when it did not finish. */
export type TaskHandler = (work: Work) => Promise<Status | void>;

/** Which messages were handled. fileJournal of @atoll/sdk/node outlives the process. */
export interface Journal {
    has(message: string): boolean;
    add(message: string): void | Promise<void>;
    close?(): void;
}

export function memoryJournal(): Journal {
    const known = new Set<string>(); // in the order in which they came
    return {
        has: (message) => known.has(message),
        add: (message) => {
            known.add(message);
            if (known.size > REMEMBERED) for (const oldest of known) return void known.delete(oldest);
        },
    };
}

export interface LoopOptions {
    handler?: MessageHandler;
    taskHandler?: TaskHandler;
    /** Whose tasks; all that the agent has joined unless said. */
    projects?: string[];
    pollMs?: number;
    heartbeatMs?: number;
    signal?: AbortSignal;
    metadata?: Record<string, unknown>;
    autoAck?: boolean;
    journal?: Journal;
    onRevoked?: (revocation: Revocation) => unknown;
    afterRevocation?: "resume" | "stop";
    onError?: (error: unknown) => unknown;
}

/** A task in the hands of its handler. `signal` is aborted when the agent is revoked or the loop is to end. */
export class Work {
    /** What the next checkpoint says. */
    state = "working";

    constructor(readonly client: AgentClient, readonly project: string, readonly task: Task,
                readonly signal: AbortSignal) {}

    /** Says how far it is. Also done by itself whenever one is due, with the last state said. */
    async checkpoint(state: string, rationale = ""): Promise<void> {
        this.state = state;
        await this.client.submitCheckpoint(this.task.id, state, rationale);
    }
}

class Loop {
    private readonly journal: Journal;
    private readonly failed = new Map<string, { again: number; pause: number }>();
    private readonly proposed = new Set<string>(); // an operator decides about them
    private readonly finished = new Map<string, { project: string; state: Status; reason?: string }>();
    private readonly left = new Map<string, string>(); // tasks that were begun: when they last changed then
    private work: Work | undefined;
    private revoked = false;
    private refused: Unauthenticated | undefined; // the token is not valid any more
    private interrupt = new AbortController(); // of the work in hand
    private wake: () => void = () => undefined;

    constructor(private readonly client: AgentClient, private readonly options: LoopOptions) {
        this.journal = options.journal ?? memoryJournal();
    }

    private get stopped(): boolean {
        return this.options.signal?.aborted === true;
    }

    private get busy(): boolean {
        return this.ending || this.revoked;
    }

    private get ending(): boolean {
        return this.stopped || this.refused !== undefined;
    }

    private fail(error: unknown): void {
        if (error instanceof Unauthenticated) {
            this.refused = error;
            this.interrupt.abort();
            this.wake();
        }
        this.options.onError?.(error);
    }

    async run(): Promise<void> {
        const { agentName, hubUrl } = this.client;
        try {
            await this.client.join(this.options.metadata);
        } catch (error) {
            if (!(error instanceof AtollError)) throw error;
            throw new AtollError(`cannot register ${agentName} at ${hubUrl}: ${error.message}`, { cause: error });
        }
        let ended = false;
        const stop = () => {
            this.interrupt.abort();
            this.wake();
        };
        this.options.signal?.addEventListener("abort", stop);
        const heart = this.heartbeats(() => ended);
        try {
            while (!this.ending) {
                if (this.revoked && !(await this.revocation())) return;
                await this.attempt(() => this.messages());
                if (!this.busy) await this.attempt(() => this.tasks());
                if (!this.busy) await this.rest(this.options.pollMs ?? 2000);
            }
            if (this.refused)
                throw new AtollError(`${hubUrl} does not accept the token of ${agentName}: ${this.refused.message}`,
                                     { cause: this.refused });
        } finally {
            ended = true;
            this.options.signal?.removeEventListener("abort", stop);
            stop();
            this.stopHeart();
            await heart;
            this.journal.close?.();
        }
    }

    /** Nothing that fails ends the loop. */
    private async attempt(work: () => Promise<void>): Promise<void> {
        try {
            await work();
        } catch (error) {
            this.fail(error);
        }
    }

    private rest(ms: number): Promise<void> {
        return new Promise((done) => {
            const timer = setTimeout(done, ms);
            this.wake = () => {
                clearTimeout(timer);
                done();
            };
        });
    }

    // ---- heartbeats ----

    private stopHeart: () => void = () => undefined;

    private async heartbeats(ended: () => boolean): Promise<void> {
        while (!ended()) {
            await this.attempt(() => this.heartbeat());
            if (ended() || this.refused) return;
            await new Promise<void>((done) => {
                const timer = setTimeout(done, this.options.heartbeatMs ?? 10_000);
                this.stopHeart = () => {
                    clearTimeout(timer);
                    done();
                };
            });
        }
    }

    private async heartbeat(): Promise<void> {
        let beat;
        try {
            beat = await this.client.beat();
        } catch (error) {
            if (!(error instanceof NotFound)) throw error;
            await this.client.register(this.options.metadata); // the hub does not know us (any more)
            return;
        }
        if (beat.pending_revocation) {
            this.revoked = true;
            this.interrupt.abort();
            this.wake();
        } else if (beat.checkpoint_due) {
            const { work } = this;
            await this.client.submitCheckpoint(work?.task.id ?? null, work?.state ?? "idle", "a checkpoint was due");
        }
    }

    // ---- revocations ----

    /** True to go on. */
    private async revocation(): Promise<boolean> {
        const resume = (this.options.afterRevocation ?? "resume") === "resume";
        try {
            const found = await this.client.checkRevocation();
            if (found.pending) {
                await this.options.onRevoked?.(found);
                if (!(await this.client.acknowledgeRevocation(found.revocation_id ?? "")))
                    throw new AtollError("the revocation was not acknowledged");
                if (resume) await this.client.register(this.options.metadata);
            }
        } catch (error) { // it stays pending; once more, later
            this.fail(error);
            await this.rest(this.options.pollMs ?? 2000);
            return !this.stopped;
        }
        this.revoked = false;
        this.left.clear();
        if (!this.stopped) this.interrupt = new AbortController();
        return resume;
    }

    // ---- messages ----

    private async messages(): Promise<void> {
        const { handler, autoAck = true } = this.options;
        if (!handler) return;
        for (const message of await this.client.getMessages({ unread: true })) {
            if (this.busy) return;
            if (!this.journal.has(message.id)) {
                const before = this.failed.get(message.id);
                if (before && Date.now() < before.again) continue;
                try {
                    await handler(message);
                } catch (error) {
                    const pause = Math.min(PAUSE_MAX_MS, before ? before.pause * 2 : PAUSE_FIRST_MS);
                    this.failed.set(message.id, { again: Date.now() + pause, pause });
                    this.fail(error);
                    continue;
                }
                this.failed.delete(message.id);
                await this.journal.add(message.id);
            }
            if (autoAck) await this.client.ack(message.id);
        }
    }

    // ---- tasks ----

    private async tasks(): Promise<void> {
        if (!this.options.taskHandler) return;
        await this.finish();
        const projects = this.options.projects
            ?? (await this.client.listProjects(this.client.agentName)).map((project) => project.id);
        for (const project of projects) {
            await this.own(project);
            for (const task of await this.client.getReadyTasks(project)) {
                if (this.busy || this.proposed.has(task.id)) continue;
                if (await this.claim(project, task.id)) await this.own(project);
            }
        }
    }

    private async claim(project: string, task: string): Promise<boolean> {
        try {
            const claim = await this.client.claimTask(project, task);
            if (!claim.ok) this.proposed.add(task); // an operator decides; if for us, it becomes ours
            return claim.ok;
        } catch (error) {
            if (error instanceof Conflict || error instanceof Forbidden || error instanceof InvalidRequest
                || error instanceof NotFound) return false; // somebody else's, or not for us
            throw error;
        }
    }

    /** Works on what is ours: claimed, assigned by a human, approved, or left by an earlier run. */
    private async own(project: string): Promise<void> {
        for (const task of await this.client.listTasks(project, { agent: this.client.agentName })) {
            const mine = task.assigned_to === this.client.agentName && ["ready", "in_progress"].includes(task.status);
            if (!mine || this.left.get(task.id) === task.updated_at) continue;
            if (this.busy) return;
            await this.do(project, task.id, task.status);
        }
    }

    private async do(project: string, id: string, status: Status): Promise<void> {
        const moved = status === "ready" ? await this.client.moveTask(project, id, "in_progress") : undefined;
        const task = await this.client.getTask(project, id);
        if (moved?.proposal_id && task.status === "ready") {
            this.left.set(id, task.updated_at); // people decide; once they approve, it has changed
            return;
        }
        this.left.set(id, task.updated_at); // begun again only when something has happened to it
        this.work = new Work(this.client, project, task, this.interrupt.signal);
        let state: Status | void;
        let reason = "";
        try {
            state = await this.options.taskHandler!(this.work);
        } catch (error) {
            this.fail(error);
            state = "blocked";
            reason = String(error).slice(0, 500);
        } finally {
            this.work = undefined;
        }
        if (!state) return;
        this.finished.set(id, { project, state, ...(reason ? { reason } : {}) });
        await this.finish();
    }

    /** Tells the hub what became of tasks; what it could not be told now, it is told later. */
    private async finish(): Promise<void> {
        for (const [id, { project, state, reason }] of [...this.finished]) {
            try {
                await this.client.moveTask(project, id, state, reason ? { blocked_reason: reason } : {});
            } catch (error) {
                if (error instanceof ConnectionFailed || error instanceof RequestTimeout
                    || error instanceof Unavailable) throw error;
                this.fail(error);
                if (error instanceof Conflict || String(error).includes("WIP limit"))
                    continue; // paused, or no room there: not now
            }
            this.finished.delete(id);
        }
    }
}

export function runLoop(client: AgentClient, options: LoopOptions): Promise<void> {
    return new Loop(client, options).run();
}
