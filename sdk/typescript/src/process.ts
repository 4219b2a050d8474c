// Commands in a sandbox: started, waited for, read from any position, given input and signals.
//
// The server keeps what a command prints, by position, so a reader that lost its connection comes back and names
// the position it had: no byte twice, none missing. Where the position is no longer kept, Gone says so.
//
// Input has positions too. A piece whose answer was lost is sent again with its position, and the server leaves out
// what the command has of it.
import type { Api } from "./api.js";
import { CommandFailed, Conflict, ConnectionFailed, RequestTimeout, Unavailable } from "./errors.js";
import type { ExecInfo, ExecStdinResult } from "./models.js";
import { events } from "./sse.js";
import { type Content, Patience } from "./transport.js";

export const WAIT_MS = 25_000;
export const WAIT_SLACK_MS = 15_000;
const STDIN_MS = 600_000;
const STDIN_PIECE = 1 << 20;
const STDIN_PATIENCE_MS = 60_000; // with a server that is away while input is sent
const STDIN_LONG_MS = 5_000; // an attempt that lasted so long had found the server

/** How many bytes of each stream have been read. */
export interface Position {
    stdout: number;
    stderr: number;
}

/** A piece of what a command printed; position is the place behind it, to go on from. */
export interface Output {
    stream: "stdout" | "stderr";
    data: Uint8Array;
    position: Position;
}

const decode = (bytes: Uint8Array) => new TextDecoder().decode(bytes);

/** How a command ended, with all that it printed. */
export class ExecResult {
    constructor(readonly info: ExecInfo, readonly stdout: Uint8Array, readonly stderr: Uint8Array) {}

    /** As a shell says it: 128 + signal for one that a signal ended. */
    get exitCode(): number {
        return this.info.exit_code;
    }

    get signal(): number {
        return this.info.signal;
    }

    get timedOut(): boolean {
        return this.info.timed_out;
    }

    /** It failed, and the kernel killed something in its sandbox for lack of memory. */
    get oom(): boolean {
        return this.info.oom;
    }

    /** It ended with its sandbox or the machine; nobody knows how. */
    get lost(): boolean {
        return this.info.state === "lost";
    }

    /** HOST:PORT of what was denied to the sandbox while the command ran; `atoll egress allow` allows one. */
    get blocked(): string[] {
        return this.info.blocked ?? [];
    }

    get ok(): boolean {
        return this.exitCode === 0 && !this.timedOut && !this.lost;
    }

    get text(): string {
        return decode(this.stdout);
    }

    get errorText(): string {
        return decode(this.stderr);
    }

    /** Itself if the command succeeded, otherwise CommandFailed. */
    check(): this {
        if (this.ok) return this;
        const how = this.lost ? "was lost" : this.timedOut ? "took too long"
            : this.oom ? "was out of memory" : `exited with ${this.exitCode}`;
        const last = this.errorText.trim().split("\n").pop() ?? "";
        const what = this.info.argv.join(" ").slice(0, 200);
        const blocked = this.blocked.length
            ? ` (blocked: ${this.blocked.join(", ")}; \`atoll egress allow ${this.info.sandbox} HOST\` allows a host)`
            : "";
        throw new CommandFailed(`${what} ${how}${last ? ": " + last.slice(0, 500) : ""}${blocked}`);
    }
}

/** Input in pieces that one request can carry. */
async function* pieces(data: Content): AsyncGenerator<Uint8Array, void, undefined> {
    if (typeof data === "string") data = new TextEncoder().encode(data);
    if (data instanceof Blob) data = new Uint8Array(await data.arrayBuffer());
    if (data instanceof Uint8Array) {
        for (let at = 0; at < data.length; at += STDIN_PIECE) yield data.subarray(at, at + STDIN_PIECE);
    } else if (data instanceof ReadableStream) {
        const reader = data.getReader();
        for (let next = await reader.read(); !next.done; next = await reader.read()) yield* pieces(next.value);
    } else {
        for await (const part of data) yield* pieces(part);
    }
}

/** One command. `info` is what was last heard of it. */
export class Process {
    /** inputAt: how far its input is, by the last answer; null when none was heard. */
    constructor(private readonly api: Api, readonly sandboxId: string, public info: ExecInfo,
                private inputAt: number | null = null) {}

    get id(): string {
        return this.info.id;
    }

    get ended(): boolean {
        return this.info.state === "exited" || this.info.state === "lost";
    }

    async refresh(): Promise<ExecInfo> {
        return (this.info = await this.api.execRead(this.sandboxId, this.id, {}));
    }

    /** Waits until it has ended; RequestTimeout when that takes longer than so many milliseconds. It goes on then. */
    async wait(timeoutMs?: number): Promise<ExecResult> {
        const until = timeoutMs === undefined ? Infinity : Date.now() + timeoutMs;
        while (!(this.ended && this.info.output !== null)) {
            const left = until - Date.now();
            if (left <= 0 && !this.ended) throw new RequestTimeout(`${this.id} has not ended within ${timeoutMs} ms`);
            const wait = Math.max(1, Math.min(WAIT_MS, Math.floor(left)));
            this.info = await this.api.execRead(this.sandboxId, this.id, { wait }, { timeoutMs: wait + WAIT_SLACK_MS });
        }
        return new ExecResult(this.info, await this.whole("stdout", this.info.output, this.info.stdout_bytes),
                              await this.whole("stderr", this.info.errors, this.info.stderr_bytes));
    }

    private async whole(stream: "stdout" | "stderr", text: string | null, size: number): Promise<Uint8Array> {
        // The text in the answer is cut at its limit, and bytes that are no UTF-8 are shown as U+FFFD.
        const told = new TextEncoder().encode(text ?? "");
        return told.length === size && !(text ?? "").includes("\ufffd") ? told : this.read(stream);
    }

    /** What is there of one stream, from a position or from the oldest byte kept. */
    async read(stream: "stdout" | "stderr" = "stdout", from?: number): Promise<Uint8Array> {
        return (await this.api.execOutput(this.sandboxId, this.id, { stream, from, follow: 0 })).bytes();
    }

    /**
     * What it prints, as it does, from a position on until it has ended; `info` then says how. A connection that
     * breaks, or is silent for `idleMs`, is made anew and the output goes on where it was; ConnectionFailed when that
     * does not help for `patienceMs`.
     */
    async *output(position?: Position,
                  { idleMs = 60_000, patienceMs = 60_000 } = {}): AsyncGenerator<Output, void, undefined> {
        const tries = new Patience(patienceMs);
        for (;;) {
            try {
                for await (const one of this.outputOnce(position, idleMs)) {
                    tries.progress();
                    position = one.position;
                    yield one;
                }
                if (this.ended) return;
                await tries.wait(new ConnectionFailed("the output ends again and again before the command"));
            } catch (error) {
                if (error instanceof RequestTimeout) tries.progress(); // nothing was printed
                else if (error instanceof ConnectionFailed || error instanceof Unavailable) await tries.wait(error);
                else throw error;
            }
        }
    }

    private async *outputOnce(at: Position | undefined, timeoutMs: number): AsyncGenerator<Output, void, undefined> {
        const headers: Record<string, string> = { accept: "text/event-stream" };
        if (at) headers["last-event-id"] = `${at.stdout},${at.stderr}`;
        const answer = await this.api.execOutput(this.sandboxId, this.id, {}, { timeoutMs, headers });
        for await (const event of events(answer)) {
            if (event.event === "exit") {
                this.info = JSON.parse(event.data) as ExecInfo;
                return;
            }
            const [stdout = 0, stderr = 0] = event.id.split(",").map(Number);
            const data = Uint8Array.from(atob(event.data), (letter) => letter.charCodeAt(0));
            yield { stream: event.event === "stderr" ? "stderr" : "stdout", data, position: { stdout, stderr } };
        }
    }

    /** Its standard output line by line, without line ends; standard error is passed over. */
    async *lines(): AsyncGenerator<string, void, undefined> {
        const decoder = new TextDecoder();
        let rest = "";
        for await (const one of this.output()) {
            if (one.stream !== "stdout") continue;
            const parts = (rest + decoder.decode(one.data, { stream: true })).split("\n");
            rest = parts.pop() ?? "";
            yield* parts;
        }
        rest += decoder.decode();
        if (rest) yield rest;
    }

    /**
     * To its standard input (stdin_open); settles when the command's pipe has taken all of it. What was on its way
     * when a connection broke is sent again, and arrives once, as long as nobody else writes to the same command
     * meanwhile. Not on a terminal: ConnectionFailed.
     */
    async write(data: Content, { eof = false } = {}): Promise<number> {
        let total = 0;
        for await (const piece of pieces(data)) {
            // Another client started it: how far is it?
            if (this.inputAt === null && !this.info.tty) await this.put(new Uint8Array(0));
            total += (await this.put(piece)).bytes;
        }
        if (eof) await this.closeStdin();
        return total;
    }

    async closeStdin(): Promise<void> {
        await this.put(new Uint8Array(0), 1);
    }

    private async put(piece: Uint8Array, eof?: number): Promise<ExecStdinResult> {
        const tries = new Patience(STDIN_PATIENCE_MS);
        let at: number | undefined;
        for (let again = false; ; again = true) {
            const began = Date.now();
            try {
                const done = await this.api.execStdin(this.sandboxId, this.id, { eof, at }, piece,
                                                      { timeoutMs: STDIN_MS });
                this.inputAt = done.position;
                return done;
            } catch (error) {
                const closed = again && piece.length === 0 && error instanceof Conflict; // by the first attempt
                if (closed) return { bytes: 0, position: this.inputAt ?? 0, eof: true };
                const away = error instanceof ConnectionFailed || error instanceof Unavailable;
                if (!away || (this.info.tty && piece.length)) throw error;
                if (Date.now() - began > STDIN_LONG_MS) tries.progress(); // it was there, and the command did not read
                await tries.wait(error);
                at = piece.length ? this.inputAt ?? undefined : undefined;
            }
        }
    }

    /** All of its input and the end of it. One that ends without reading it is no error. */
    async feed(data: Content): Promise<void> {
        try {
            await this.write(data, { eof: true });
        } catch (error) {
            if (!(error instanceof Conflict)) throw error;
        }
    }

    /** "TERM", "SIGINT", 9…; to its process group, or with tree to everything that it started. */
    async signal(signal: string | number, tree = false): Promise<void> {
        this.info = await this.api.execSignal(this.sandboxId, this.id, { signal: String(signal), tree });
    }

    /** Kills it and everything that it started, and waits until all of that is gone. */
    async cancel(): Promise<ExecResult> {
        this.info = await this.api.execCancel(this.sandboxId, this.id, { wait: WAIT_MS },
                                              { timeoutMs: WAIT_MS + WAIT_SLACK_MS });
        return this.wait();
    }

    async kill(): Promise<void> {
        await this.signal("KILL", true);
    }

    async resize(rows: number, cols: number): Promise<void> {
        this.info = await this.api.execResize(this.sandboxId, this.id, { rows, cols });
    }
}

