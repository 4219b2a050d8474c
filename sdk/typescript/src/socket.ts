// WebSockets behind one small interface: messages are sent, and received one by one. In browsers (and newer Nodes) over
// the platform's own; "@atoll/sdk/node" brings one for every Node, which can also send a token and use a Unix socket.
import { AtollError, ConnectionFailed, RequestTimeout } from "./errors.js";

export type Message = string | Uint8Array;

export interface Socket {
    send(message: Message): void;
    /** The next message; RequestTimeout, ConnectionFailed, or Closed with the server's code. */
    receive(timeoutMs: number): Promise<Message>;
    close(): void;
}

export type OpenSocket = (url: string, headers: Record<string, string>, timeoutMs: number) => Promise<Socket>;

/** The server closed the WebSocket, with this code. */
export class Closed extends AtollError {
    constructor(readonly code: number, readonly reason: string) {
        super(`closed by the server: ${code} ${reason}`.trimEnd());
    }
}

/** What has come and was not asked for yet, and who waits for more. */
export class Inbox {
    private readonly messages: Message[] = [];
    private waiting: { done: (message: Message) => void; fail: (error: Error) => void } | undefined;
    private over: Error | undefined;

    put(message: Message): void {
        const waiting = this.waiting;
        this.waiting = undefined;
        if (waiting) waiting.done(message);
        else if (!this.over) this.messages.push(message);
    }

    end(error: Error): void {
        this.over ??= error;
        this.waiting?.fail(this.over);
        this.waiting = undefined;
    }

    get length(): number {
        return this.messages.length;
    }

    take(timeoutMs: number): Promise<Message> {
        const next = this.messages.shift();
        if (next !== undefined) return Promise.resolve(next);
        if (this.over) return Promise.reject(this.over);
        return new Promise((done, fail) => {
            const late = () => {
                this.waiting = undefined;
                fail(new RequestTimeout("nothing came over the WebSocket"));
            };
            const timer = setTimeout(late, timeoutMs);
            this.waiting = {
                done: (message) => { clearTimeout(timer); done(message); },
                fail: (error) => { clearTimeout(timer); fail(error); },
            };
        });
    }
}

/** A token as a subprotocol: a page's WebSocket sends no headers, and an address is no place for a token. */
function bearer(headers: Record<string, string>): string[] {
    const token = /^Bearer (.+)$/.exec(headers["authorization"] ?? headers["Authorization"] ?? "")?.[1];
    if (token === undefined) return [];
    return [`bearer.${btoa(token).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "")}`];
}

/** Over the platform's WebSocket, which sends the cookies of a page that is logged in, or a token as a subprotocol. */
export const platformSocket: OpenSocket = (url, headers, timeoutMs) => new Promise((done, fail) => {
    const base = url.startsWith("/") ? new URL(url, globalThis.location.href).href : url;
    const socket = new WebSocket(base.replace(/^http/, "ws"), bearer(headers));
    const inbox = new Inbox();
    const timer = setTimeout(() => {
        fail(new RequestTimeout(`no WebSocket within ${timeoutMs} ms`));
        socket.close();
    }, timeoutMs);
    socket.binaryType = "arraybuffer";
    socket.onopen = () => {
        clearTimeout(timer);
        done({
            send: (message) => socket.send(message as string),
            receive: (ms) => inbox.take(ms),
            close: () => socket.close(1000),
        });
    };
    socket.onmessage = ({ data }) => inbox.put(typeof data === "string" ? data : new Uint8Array(data as ArrayBuffer));
    socket.onclose = ({ code, reason }) => {
        clearTimeout(timer);
        const why = code === 1006 ? new ConnectionFailed("the WebSocket broke, or was refused")
            : new Closed(code, reason);
        inbox.end(why);
        fail(why);
    };
});
