// Commands in a sandbox: started, waited for, read from any position, given input and signals.
//
// The server keeps what a command prints, by position, so a reader that lost its connection comes back and names
// the position it had: no byte twice, none missing. A reader here holds the command back when it is slower than the
// command. Where a position is no longer kept all the same, Gone says so.
//
// Input has positions too. A piece whose answer was lost is sent again with its position, and the server leaves out
// what the command has of it.
import type { Api } from "./api.js";
import { CommandFailed, Conflict, ConnectionFailed, Forbidden, RequestTimeout, Unavailable } from "./errors.js";
import type { ExecInfo, ExecStdinResult } from "./models.js";
import { type Answer, type Content, Patience, concat } from "./transport.js";

export const WAIT_MS = 25_000;
export const WAIT_SLACK_MS = 15_000;
const FRAME_END = 3; // 1 and 2 are stdout and stderr
const END_MAX = 8 << 20;
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

    /** Bytes of its output that were no longer kept when they were read; 0 for what exec() ran. */
    get missing(): number {
        return this.info.stdout_bytes + this.info.stderr_bytes - this.stdout.length - this.stderr.length;
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

/** Output as it comes: 1 or 2 with a piece of that stream, FRAME_END with the command; see exec.output. */
async function* frames(answer: Answer): AsyncGenerator<{ kind: number; data: Uint8Array }, void, undefined> {
    let head: Uint8Array = new Uint8Array(0);
    let kind = 0;
    let left = 0;
    const end: Uint8Array[] = [];
    for await (const chunk of answer.chunks()) {
        let bytes: Uint8Array = chunk;
        while (bytes.length) {
            if (!kind) {
                const take = 8 - head.length;
                head = concat([head, bytes.subarray(0, take)]);
                bytes = bytes.subarray(take);
                if (head.length < 8) break;
                left = new DataView(head.buffer, head.byteOffset).getUint32(4);
                kind = head[0] ?? 0;
                head = new Uint8Array(0);
                if (kind < 1 || kind > FRAME_END || (kind === FRAME_END && left > END_MAX))
                    throw new ConnectionFailed("the output has a frame that is unknown");
            }
            const data = bytes.subarray(0, left);
            bytes = bytes.subarray(data.length);
            left -= data.length;
            const whole = left === 0;
            if (kind === FRAME_END) end.push(data);
            else if (data.length) yield { kind, data };
            if (whole && kind === FRAME_END) {
                yield { kind, data: concat(end) };
                return;
            }
            if (whole) kind = 0;
        }
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
        if (!this.ended) return this.collect(until);
        if (this.info.output === null) this.info = await this.api.execRead(this.sandboxId, this.id, { wait: 1 });
        return new ExecResult(this.info, await this.whole("stdout", this.info.output, this.info.stdout_bytes),
                              await this.whole("stderr", this.info.errors, this.info.stderr_bytes));
    }

    /** All that is kept and all that comes, as it comes, so that nothing of it has to be dropped. */
    private async collect(until: number): Promise<ExecResult> {
        const parts: { stdout: Uint8Array[]; stderr: Uint8Array[] } = { stdout: [], stderr: [] };
        for await (const one of this.follow(undefined, { until })) parts[one.stream].push(one.data);
        return new ExecResult(this.info, concat(parts.stdout), concat(parts.stderr));
    }

    private async whole(stream: "stdout" | "stderr", text: string | null, size: number): Promise<Uint8Array> {
        // The text in the answer is cut at its limit, and bytes that are no UTF-8 are shown as U+FFFD.
        const told = new TextEncoder().encode(text ?? "");
        return told.length === size && !(text ?? "").includes("\ufffd") ? told : this.read(stream);
    }

    /** What is there of one stream, from a position or from the oldest byte kept. */
    async read(stream: "stdout" | "stderr" = "stdout", from?: number): Promise<Uint8Array> {
        const place = from === undefined ? undefined : String(from);
        return (await this.api.execOutput(this.sandboxId, this.id, { stream, from: place, follow: 0 })).bytes();
    }

    /**
     * What it prints, as it does, from a position on until it has ended; `info` then says how. A connection that
     * breaks, or is silent for `idleMs`, is made anew and the output goes on where it was; ConnectionFailed when that
     * does not help for `patienceMs`. With `hold` the command waits while its output is not taken; without it, Gone
     * says that the reader was too slow. A token that may not run commands never holds one back.
     */
    output(position?: Position, { idleMs = 60_000, patienceMs = 60_000, hold = true } = {}):
        AsyncGenerator<Output, void, undefined> {
        return this.follow(position, { idleMs, patienceMs, hold });
    }

    private async *follow(position: Position | undefined,
                          { idleMs = 60_000, patienceMs = 60_000, hold = true, until = Infinity } = {}):
        AsyncGenerator<Output, void, undefined> {
        const tries = new Patience(patienceMs);
        const late = () => new RequestTimeout(`${this.id} has not ended in time`);
        for (;;) {
            if (Date.now() >= until) throw late();
            try {
                for await (const one of this.outputOnce(position, Math.min(idleMs, until - Date.now()), hold)) {
                    tries.progress();
                    position = one.position;
                    if (one.data.length) yield one;
                    if (Date.now() > until) throw late();
                }
                if (this.ended) return;
                await tries.wait(new ConnectionFailed("the output ends again and again before the command"));
            } catch (error) {
                if (error instanceof RequestTimeout && Date.now() < until) tries.progress(); // nothing was printed
                else if (error instanceof Forbidden && hold) hold = false;
                else if (error instanceof ConnectionFailed || error instanceof Unavailable) await tries.wait(error);
                else throw error;
            }
        }
    }

    private async *outputOnce(at: Position | undefined, timeoutMs: number, hold: boolean):
        AsyncGenerator<Output, void, undefined> {
        const from = at && `${at.stdout},${at.stderr}`;
        const query = { stream: "both", from, hold: hold ? 1 : undefined };
        const answer = await this.api.execOutput(this.sandboxId, this.id, query, { timeoutMs });
        const place = answer.headers.get("atoll-position") ?? "";
        let [stdout = 0, stderr = 0] = place.split(",").map(Number);
        yield { stream: "stdout", data: new Uint8Array(0), position: { stdout, stderr } };
        for await (const { kind, data } of frames(answer)) {
            if (kind === FRAME_END) {
                this.info = JSON.parse(decode(data)) as ExecInfo;
                return;
            }
            if (kind === 1) stdout += data.length;
            else stderr += data.length;
            yield { stream: kind === 1 ? "stdout" : "stderr", data, position: { stdout, stderr } };
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

    /** Feeds it and collects what it prints at the same time, until it has ended. */
    async communicate(data: Content): Promise<ExecResult> {
        const feeding = this.feed(data).catch(async (error: unknown) => {
            await this.kill();
            throw error;
        });
        const [result] = await Promise.all([this.wait(), feeding]);
        return result;
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

