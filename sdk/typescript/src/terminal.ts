// Terminals: commands that draw on a screen, watched and typed into over a WebSocket.
//
// A terminal runs whether or not anybody is attached, and every byte that it prints has a position. An attachment whose
// connection breaks comes back by itself and goes on at the position it had; what the server no longer keeps is told as
// a gap, followed by a picture of the screen.
import type { Api } from "./api.js";
import { ConnectionFailed, RequestTimeout, Unavailable } from "./errors.js";
import type { TerminalInfo } from "./models.js";
import { Closed, type Socket } from "./socket.js";
import { type Answer, Patience } from "./transport.js";

const INPUT_MAX = 65536;
const STOPPING = 1001;

export type Role = "observer" | "controller";

/** What was printed; position is the place behind it. */
export interface TerminalOutput {
    type: "output";
    data: Uint8Array;
    position: number;
}

/**
 * Everything else. `screen` is a keyframe's bytes: written to a terminal of that size they show what the program has
 * drawn; raw is the message as it came.
 */
export interface TerminalEvent {
    type: "hello" | "gap" | "keyframe" | "resize" | "role" | "members" | "error" | "detached" | "exit" | "pong";
    position: number;
    screen: Uint8Array;
    raw: Record<string, unknown>;
}

export interface AttachOptions {
    role?: Role;
    /** Control, even if somebody else has it. */
    take?: boolean;
    /** A position; without it the first thing that comes is a picture of the screen. */
    from?: number;
    /** After so long a silence the connection is tried, and made anew if it is dead. */
    idleMs?: number;
    patienceMs?: number;
}

/** A viewer of a terminal: iterate over what comes. */
export class Attachment {
    /** How far it has read. */
    position: number | undefined;
    /** What it may do now. */
    role: string = "observer";
    /** How the command ended, once it has. */
    exit: Record<string, unknown> | null = null;
    private readonly tries: Patience;

    private constructor(private readonly open: (from: number | undefined, role: Role, take: boolean) => Promise<Socket>,
                        private wanted: Role, private readonly idleMs: number, patienceMs: number,
                        private socket: Socket) {
        this.tries = new Patience(patienceMs);
    }

    /** @internal */
    static async begin(api: Api, sandbox: string, terminal: string, options: AttachOptions): Promise<Attachment> {
        const open = (from: number | undefined, role: Role, take: boolean) =>
            api.terminalAttach(sandbox, terminal, { from, role, take: take ? 1 : undefined });
        const role = options.role ?? "controller";
        const socket = await open(options.from, role, options.take ?? false);
        const made = new Attachment(open, role, options.idleMs ?? 60_000, options.patienceMs ?? 60_000, socket);
        made.position = options.from;
        return made;
    }

    async *[Symbol.asyncIterator](): AsyncGenerator<TerminalOutput | TerminalEvent, void, undefined> {
        while (!this.exit) {
            let found: TerminalOutput | TerminalEvent;
            try {
                found = await this.receive(this.idleMs);
            } catch (error) {
                if (error instanceof RequestTimeout) await this.ping();
                else if (error instanceof ConnectionFailed || (error instanceof Closed && error.code === STOPPING))
                    await this.again(error);
                else throw error;
                continue;
            }
            this.tries.progress();
            yield found;
        }
    }

    /** The next thing that comes; RequestTimeout when nothing does. */
    async receive(timeoutMs: number): Promise<TerminalOutput | TerminalEvent> {
        const message = await this.socket.receive(timeoutMs);
        if (typeof message !== "string") {
            this.position = (this.position ?? 0) + message.length;
            return { type: "output", data: message, position: this.position };
        }
        const raw = JSON.parse(message) as Record<string, unknown>;
        const type = raw["type"] as TerminalEvent["type"];
        if (type === "hello" || type === "keyframe") this.position = Number(raw["position"]);
        if (type === "gap") this.position = Number(raw["to"]);
        if (type === "exit") this.exit = raw;
        if (type === "hello" || type === "role") this.role = String(raw["role"]);
        const data = type === "keyframe" ? String(raw["data"]) : "";
        const screen = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
        return { type, position: this.position ?? 0, screen, raw };
    }

    /** Silence may be a connection that is gone; an answer says that it is not. */
    private async ping(): Promise<void> {
        try {
            this.say("ping");
            while ((await this.receive(this.idleMs)).type !== "pong");
        } catch (error) {
            if (!(error instanceof RequestTimeout || error instanceof ConnectionFailed)) throw error;
            await this.again(error);
        }
    }

    private async again(why: unknown): Promise<void> {
        this.socket.close();
        for (;;) {
            await this.tries.wait(why);
            try {
                this.socket = await this.open(this.position, this.wanted, false);
                return;
            } catch (error) {
                const hope = [ConnectionFailed, RequestTimeout, Unavailable].some((kind) => error instanceof kind);
                if (!hope) throw error;
            }
        }
    }

    /** Output until this has come; RequestTimeout when it has not, ConnectionFailed when the command ended. */
    async readUntil(wanted: string, timeoutMs = 30_000): Promise<string> {
        const decoder = new TextDecoder();
        const until = Date.now() + timeoutMs;
        let got = "";
        while (!got.includes(wanted)) {
            const found = await this.receive(Math.max(0, until - Date.now()));
            got += decoder.decode(found.type === "output" ? found.data : found.screen, { stream: true });
            if (this.exit && !got.includes(wanted))
                throw new ConnectionFailed(`the command ended before it printed ${JSON.stringify(wanted)}`);
        }
        return got;
    }

    // ---- what a viewer says ----

    private say(type: string, members: object = {}): void {
        this.socket.send(JSON.stringify({ type, ...members }));
    }

    /** What is typed; of a controller. */
    write(data: string | Uint8Array): void {
        const bytes = typeof data === "string" ? new TextEncoder().encode(data) : data;
        for (let at = 0; at < bytes.length; at += INPUT_MAX) this.socket.send(bytes.subarray(at, at + INPUT_MAX));
    }

    resize(rows: number, cols: number): void {
        this.say("resize", { rows, cols });
    }

    /** Asks for control; the answer is an event `role`. With take, also of one that others have. */
    control(take = false): void {
        this.wanted = "controller";
        this.say("control", { take });
    }

    release(): void {
        this.wanted = "observer";
        this.say("release");
    }

    signal(signal: string | number, tree = false): void {
        this.say("signal", { signal: String(signal), tree });
    }

    /** Asks for a picture of the screen now; what was not sent yet becomes a gap. */
    keyframe(): void {
        this.say("keyframe");
    }

    /** Detaches; the command goes on. */
    close(): void {
        this.socket.close();
    }
}

/** `info` is what was last heard of it. */
export class Terminal {
    constructor(private readonly api: Api, readonly sandboxId: string, public info: TerminalInfo) {}

    get id(): string {
        return this.info.id;
    }

    async refresh(): Promise<TerminalInfo> {
        return (this.info = await this.api.terminalRead(this.sandboxId, this.id));
    }

    /** Watches it, and types if nobody else does. */
    attach(options: AttachOptions = {}): Promise<Attachment> {
        return Attachment.begin(this.api, this.sandboxId, this.id, options);
    }

    /** What is on it now: text, cursor, the newest rows above; with "cells" every character with its looks. */
    async screen(format?: "cells"): Promise<Record<string, unknown>> {
        return (await this.api.terminalScreen(this.sandboxId, this.id, { format })) as Record<string, unknown>;
    }

    /** All that is kept of it as asciicast, version 2. */
    recording(): Promise<Answer> {
        return this.api.terminalRecording(this.sandboxId, this.id, { timeoutMs: 600_000 });
    }

    async resize(rows: number, cols: number): Promise<void> {
        this.info = await this.api.terminalResize(this.sandboxId, this.id, { rows, cols });
    }

    async signal(signal: string | number, tree = false): Promise<void> {
        this.info = await this.api.terminalSignal(this.sandboxId, this.id, { signal: String(signal), tree });
    }

    /** It and everything that it started. */
    async kill(): Promise<void> {
        this.info = await this.api.terminalKill(this.sandboxId, this.id);
    }
}
