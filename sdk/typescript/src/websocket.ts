// A WebSocket (RFC 6455) as a client, in Node: over TCP, TLS or a Unix socket, with headers of ours.
//
// Whatever the server must not do (a mask, a reserved bit, a control frame in pieces, a message over the limit) ends
// the connection. While nobody takes what has come, no more is read.
import { createHash, randomBytes } from "node:crypto";
import * as http from "node:http";
import * as https from "node:https";
import type { Duplex } from "node:stream";
import { ConnectionFailed, RequestTimeout } from "./errors.js";
import { Closed, Inbox, type Message, type OpenSocket, type Socket } from "./socket.js";
import { errorFrom } from "./transport.js";

const GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
const [CONTINUED, TEXT, BINARY, CLOSE, PING, PONG] = [0, 1, 2, 8, 9, 10] as const;
const MESSAGE_MAX = 16 << 20;
const ERROR_MAX = 65536;
const INBOX_HIGH = 256; // messages

class NodeSocket implements Socket {
    private readonly inbox = new Inbox();
    private buffer: Buffer = Buffer.alloc(0);
    private parts: Buffer[] = [];
    private kind = 0;
    private closing = false;

    constructor(private readonly stream: Duplex, head: Buffer) {
        stream.on("data", (data: Buffer) => this.take(data));
        stream.on("error", (error) => this.inbox.end(new ConnectionFailed(`the WebSocket broke: ${error.message}`)));
        stream.on("close", () => this.inbox.end(new ConnectionFailed("the WebSocket broke: the server is gone")));
        if (head.length) this.take(head);
    }

    send(message: Message): void {
        if (typeof message === "string") this.frame(TEXT, Buffer.from(message));
        else this.frame(BINARY, Buffer.from(message));
    }

    async receive(timeoutMs: number): Promise<Message> {
        const next = this.inbox.take(timeoutMs);
        if (this.inbox.length < INBOX_HIGH / 2) this.stream.resume();
        return next;
    }

    close(): void {
        if (this.closing || this.stream.destroyed) return;
        this.closing = true;
        this.frame(CLOSE, Buffer.from([1000 >> 8, 1000 & 255]));
        this.stream.end(() => this.stream.destroy());
    }

    private frame(opcode: number, data: Buffer): void {
        if (this.stream.destroyed || this.stream.writableEnded) throw new ConnectionFailed("the WebSocket is closed");
        const size = data.length;
        const head = Buffer.alloc(size < 126 ? 2 : size < 65536 ? 4 : 10);
        head[0] = 0x80 | opcode;
        head[1] = 0x80 | (size < 126 ? size : size < 65536 ? 126 : 127);
        if (head.length === 4) head.writeUInt16BE(size, 2);
        if (head.length === 10) head.writeBigUInt64BE(BigInt(size), 2);
        const key = randomBytes(4);
        const masked = Buffer.alloc(size);
        for (let at = 0; at < size; at++) masked[at] = data[at]! ^ key[at & 3]!;
        this.stream.write(Buffer.concat([head, key, masked]));
    }

    private take(data: Buffer): void {
        this.buffer = this.buffer.length ? Buffer.concat([this.buffer, data]) : data;
        while (this.one());
        if (this.inbox.length > INBOX_HIGH) this.stream.pause();
    }

    /** Takes one frame off the buffer; false when it is not all there. */
    private one(): boolean {
        const buffer = this.buffer;
        if (buffer.length < 2) return false;
        const first = buffer[0]!;
        let size = buffer[1]!;
        if (first & 0x70 || size & 0x80) return this.wrong();
        const at = size < 126 ? 2 : size === 126 ? 4 : 10;
        if (buffer.length < at) return false;
        if (at === 4) size = buffer.readUInt16BE(2);
        if (at === 10) size = Number(buffer.readBigUInt64BE(2));
        if (size > MESSAGE_MAX || (first & 0x08 && (size > 125 || !(first & 0x80)))) return this.wrong();
        if (buffer.length < at + size) return false;
        this.buffer = buffer.subarray(at + size);
        return this.handle(first & 0x0f, (first & 0x80) !== 0, buffer.subarray(at, at + size));
    }

    private handle(opcode: number, last: boolean, data: Buffer): boolean {
        if (opcode === PING) {
            if (!this.closing) this.frame(PONG, data);
        } else if (opcode === CLOSE) {
            const code = data.length >= 2 ? data.readUInt16BE(0) : 1005;
            this.inbox.end(new Closed(code, data.toString("utf8", 2)));
            this.close();
            return false;
        } else if (opcode !== PONG) {
            if (![CONTINUED, TEXT, BINARY].includes(opcode as 0) || (opcode === CONTINUED) !== (this.kind !== 0))
                return this.wrong();
            this.kind ||= opcode;
            this.parts.push(data);
            if (this.parts.reduce((sum, part) => sum + part.length, 0) > MESSAGE_MAX) return this.wrong();
            if (last) this.whole();
        }
        return true;
    }

    private whole(): void {
        const data = Buffer.concat(this.parts);
        this.inbox.put(this.kind === TEXT ? data.toString("utf8") : new Uint8Array(data));
        this.parts = [];
        this.kind = 0;
    }

    private wrong(): false {
        this.inbox.end(new ConnectionFailed("the server broke the rules of WebSockets"));
        this.stream.destroy();
        return false;
    }
}

export function nodeSocket({ unix, ca }: { unix?: string | null; ca?: Buffer | undefined }): OpenSocket {
    return (url, headers, timeoutMs) => new Promise((done, fail) => {
        const key = randomBytes(16).toString("base64");
        const options: https.RequestOptions = {
            headers: { ...headers, connection: "Upgrade", upgrade: "websocket", "sec-websocket-version": "13",
                       "sec-websocket-key": key },
            agent: false, timeout: timeoutMs, ca, ...(unix ? { socketPath: unix } : {}),
        };
        const request = (url.startsWith("https:") ? https : http).request(url, options);
        request.on("timeout", () => request.destroy(new RequestTimeout(`no WebSocket within ${timeoutMs} ms`)));
        request.on("error", (error) => fail(error instanceof RequestTimeout ? error
            : new ConnectionFailed(`no connection, or it broke: ${error.message}`, { cause: error })));
        request.on("upgrade", (answer, socket, head) => {
            const accept = createHash("sha1").update(key + GUID).digest("base64");
            socket.setTimeout(0);
            if (answer.headers["sec-websocket-accept"] === accept) done(new NodeSocket(socket, head));
            else {
                socket.destroy();
                fail(new ConnectionFailed("the answer to the WebSocket's handshake is not to ours"));
            }
        });
        request.on("response", (answer) => {
            let text = "";
            answer.setEncoding("utf8").on("data", (data: string) => (text = (text + data).slice(0, ERROR_MAX)));
            answer.on("error", fail);
            answer.on("end", () => fail(errorFrom(answer.statusCode ?? 0, new Headers(), text)));
        });
        request.end();
    });
}
