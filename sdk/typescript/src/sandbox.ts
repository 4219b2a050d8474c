// One sandbox: its commands, its files, its life.
import type { Api } from "./api.js";
import { Files } from "./files.js";
import type * as models from "./models.js";
import { type ExecResult, Process, WAIT_MS, WAIT_SLACK_MS } from "./process.js";
import { Terminal } from "./terminal.js";
import { type Content, every } from "./transport.js";

export const LIFE_MS = 120_000;
const STDIN_INLINE = 262144; // bytes of input that go with the request itself

/** A list is a program and its arguments, a text a line for the shell. */
/** For whom a rule is. */
export type EgressLevel = "sandbox" | "project" | "tenant" | "node";
export type Command = string | readonly string[];
export type SpawnOptions = Omit<models.ExecSpec, "argv" | "command">;
export type ExecOptions = Omit<SpawnOptions, "tty" | "rows" | "cols" | "stdin_open" | "stdin" | "stdin_base64"> & {
    stdin?: Content;
    /** Anything but exit code 0 is a CommandFailed. */
    check?: boolean;
};

/** `info` is what was last heard of it. */
export class Sandbox {
    readonly files: Files;

    constructor(private readonly api: Api, public info: models.SandboxInfo) {
        this.files = new Files(api, info.id);
    }

    get id(): string {
        return this.info.id;
    }

    get name(): string | null {
        return this.info.name;
    }

    /** creating, running, paused, stopped or failed, as last heard; see refresh(). */
    get state(): string {
        return this.info.state;
    }

    // ---- commands ----

    /** Starts a command. */
    spawn(command: Command, options: SpawnOptions = {}): Promise<Process> {
        return this.start_(command, options, undefined);
    }

    /** Runs a command and waits for its end. `timeout_ms` kills it and everything that it started. */
    async exec(command: Command, { stdin, check, ...options }: ExecOptions = {}): Promise<ExecResult> {
        const text = typeof stdin === "string" && stdin.length * 3 <= STDIN_INLINE ? stdin : undefined;
        const feeds = stdin !== undefined && text === undefined;
        const process = feeds ? await this.start_(command, { ...options, stdin_open: true, hold: true }, undefined)
            : await this.start_(command, { ...options, stdin: text, hold: true }, WAIT_MS);
        const result = feeds ? await process.communicate(stdin) : await process.wait();
        return check ? result.check() : result;
    }

    private async start_(command: Command, options: SpawnOptions, wait: number | undefined): Promise<Process> {
        const what = typeof command === "string" ? { command } : { argv: [...command] };
        const timeoutMs = (wait ?? 0) + WAIT_SLACK_MS + this.api.transport.timeoutMs;
        const inputAt = options.stdin === undefined && options.stdin_base64 === undefined ? 0 : null;
        const info = await this.api.execCreate(this.id, { wait }, { ...options, ...what }, { timeoutMs });
        return new Process(this.api, this.id, info, inputAt);
    }

    /** Its commands that are kept, oldest first. */
    async processes(): Promise<Process[]> {
        return (await this.api.execList(this.id)).items.map((info) => new Process(this.api, this.id, info));
    }

    /** One of them, to be read or waited for by another client than the one that started it. */
    async process(id: string): Promise<Process> {
        return new Process(this.api, this.id, await this.api.execRead(this.id, id, {}));
    }

    // ---- terminals ----

    /** Starts a terminal: a shell, unless a command is given. It runs on when nobody is attached. */
    async openTerminal(command?: Command, options: Omit<models.ExecSpec, "argv" | "command"> = {}): Promise<Terminal> {
        const what = command === undefined ? {} : typeof command === "string" ? { command } : { argv: [...command] };
        const info = await this.api.terminalCreate(this.id, { ...options, ...what }, { timeoutMs: LIFE_MS });
        return new Terminal(this.api, this.id, info);
    }

    async terminals(): Promise<Terminal[]> {
        return (await this.api.terminalList(this.id)).items.map((info) => new Terminal(this.api, this.id, info));
    }

    /** By id or name. */
    async terminal(id: string): Promise<Terminal> {
        return new Terminal(this.api, this.id, await this.api.terminalRead(this.id, id));
    }

    // ---- life ----

    async refresh(): Promise<models.SandboxInfo> {
        return (this.info = await this.api.sandboxRead(this.id));
    }

    async pause(): Promise<void> {
        this.info = await this.api.sandboxPause(this.id);
    }

    async resume(): Promise<void> {
        this.info = await this.api.sandboxResume(this.id);
    }

    /** Kills everything in it; its files stay (storage disk). */
    async stop(): Promise<void> {
        this.info = await this.api.sandboxStop(this.id, { timeoutMs: LIFE_MS });
    }

    /** Lets a stopped one run again. */
    async start(): Promise<void> {
        this.info = await this.api.sandboxStart(this.id, { timeoutMs: LIFE_MS });
    }

    /** It and everything in it, for good. */
    async delete(): Promise<void> {
        this.info = await this.api.sandboxDelete(this.id, { timeoutMs: LIFE_MS });
    }

    /** Other limits, lifetime, labels or idle policy, while it runs or not; what is not named stays. */
    async update(change: models.SandboxChange): Promise<void> {
        this.info = await this.api.sandboxChange(this.id, change);
    }

    /** Another sandbox with a copy of its files as they are now. */
    async fork(wish: models.SandboxForkRequest = {}): Promise<Sandbox> {
        return new Sandbox(this.api, await this.api.sandboxFork(this.id, wish, { timeoutMs: LIFE_MS }));
    }

    // ---- what it may reach ----

    /** Every rule that counts for it and whose it is, its limits, and what it has used. */
    egress(): Promise<models.EgressPolicy> {
        return this.api.egressSandboxRead(this.id);
    }

    /** Would it reach this, and by which rule? Nothing is looked up or sent. */
    explain(url: string, method?: string): Promise<models.EgressExplanation> {
        return this.api.egressExplain(this.id, { url, method });
    }

    /** Allows a host, for it or for all of its project, its tenant or the node. */
    async allow(rule: string, level?: EgressLevel): Promise<void> {
        await this.api.egressRuleAdd(this.id, { rule, verdict: "allow", level });
    }

    /** Denies a host; that wins over every allow. */
    async deny(rule: string, level?: EgressLevel): Promise<void> {
        await this.api.egressRuleAdd(this.id, { rule, verdict: "deny", level });
    }

    /** What it reached or tried to: the newest, or those after the number `since`. */
    async egressRecords(
        page: { denied?: boolean; since?: number; limit?: number } = {},
    ): Promise<models.EgressRecord[]> {
        const { denied, ...rest } = page;
        return (await this.api.egressSandboxRecords(this.id, { ...rest, denied: denied ? "true" : undefined })).items;
    }

    /** The same counted by host, the most denied first. */
    async egressHosts(): Promise<models.EgressHost[]> {
        return (await this.api.egressSandboxHosts(this.id)).items;
    }

    // ---- snapshots ----

    /** Keeps its files as they are now, under a name. */
    snapshot(name: string): Promise<models.SnapshotInfo> {
        return this.api.snapshotCreate(this.id, { name }, { timeoutMs: LIFE_MS });
    }

    /** When and how its process 1 died by itself, newest first. */
    async crashes(): Promise<models.CrashInfo[]> {
        return (await this.api.sandboxCrashes(this.id)).items;
    }

    async snapshots(): Promise<models.SnapshotInfo[]> {
        return every((part) => this.api.snapshotListOf(this.id, part));
    }

    deleteSnapshot(snapshot: string): Promise<models.SnapshotInfo> {
        return this.api.snapshotDeleteOf(this.id, snapshot);
    }

    /** Gives it back the files of a snapshot; its commands end. */
    async rollback(snapshot: string): Promise<models.SandboxRollbackResult> {
        const done = await this.api.sandboxRollback(this.id, { snapshot }, { timeoutMs: LIFE_MS });
        await this.refresh();
        return done;
    }

    // ---- what it uses, what holds it ----

    stats(): Promise<models.SandboxStats> {
        return this.api.sandboxStats(this.id);
    }

    async ps(): Promise<models.ProcessInfo[]> {
        return (await this.api.processList(this.id)).items;
    }

    /** What programs in it listen on. */
    async ports(): Promise<models.PortInfo[]> {
        return (await this.api.portList(this.id)).items;
    }

    /** A link for a browser to what listens on a port; it lets in whoever opens it within ten minutes. */
    async preview(port: number, path?: string): Promise<string> {
        return (await this.api.portPreview(this.id, { port, path })).url;
    }

    /** What isolates it, as the kernel tells. */
    applied(): Promise<unknown> {
        return this.api.sandboxApplied(this.id);
    }
}
