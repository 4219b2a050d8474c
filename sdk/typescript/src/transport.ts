// Requests and answers over fetch: timeouts, retries, errors.
//
// What is repeated by itself, with a growing pause: a connection that could not be made (nothing was sent); and,
// where doing it twice is the same as doing it once, a connection that broke and the answer 503. That holds for
// GET, for PUT of bytes, and for creations, which carry an Idempotency-Key: the server answers the second with
// the first one's answer.
import { ApiError, AtollError, ConnectionFailed, errorsByCode, RequestTimeout } from "./errors.js";

import type { OpenSocket, Socket } from "./socket.js";

export type { Socket } from "./socket.js";
export const VERSION = "0.1.0";
const PAUSE_FIRST_MS = 100;
const PAUSE_MAX_MS = 5000;
const NOTHING_SENT = new Set(["ECONNREFUSED", "ENOENT", "ENOTFOUND", "EAI_AGAIN", "EHOSTUNREACH", "ENETUNREACH"]);

export interface Operation {
    method: string;
    path: string;
    creates?: boolean;
    /** Done twice is the same as done once. */
    again?: boolean;
}

/** Of one request: what is to differ from the client's own. */
export interface Options {
    /** Milliseconds for the answer to begin, and for each next part of it. */
    timeoutMs?: number;
    headers?: Record<string, string>;
    idempotencyKey?: string;
    retries?: number;
    signal?: AbortSignal;
}

export interface Page<T> {
    items: T[];
    [more: string]: unknown;
}

const PAGE = 500; // items asked for at once

/** All items of a list; `page` asks for one page of it. */
export async function every<T>(page: (part: { after?: string; limit: number }) => Promise<Page<T>>): Promise<T[]> {
    const found: T[] = [];
    for (let after: string | undefined; ;) {
        const got = await page({ after, limit: PAGE });
        found.push(...got.items);
        if (!got.next) return found;
        after = String(got.next);
    }
}

/** Streams can be sent from Node, and by browsers over HTTP/2. */
export type Content = string | Uint8Array | Blob | ReadableStream<Uint8Array> | AsyncIterable<Uint8Array>;
export type Fetch = (url: string, init: RequestInit & { duplex?: "half" }) => Promise<Response>;

export interface TransportOptions {
    /** "http://HOST:PORT"; in a browser "" is the page's own server. */
    address: string;
    token?: string | null;
    timeoutMs: number;
    retries: number;
    fetch: Fetch;
    socket: OpenSocket;
    /** Headers that prove who asks, made anew for each attempt; instead of the token. */
    sign?: (method: string, target: string, body: Uint8Array) => Promise<Record<string, string>>;
}

export const sleep = (ms: number) => new Promise<void>((done) => setTimeout(done, ms));

/** Pauses between attempts to come back; gives up when that has not helped for a while. */
export class Patience {
    private until = 0;
    private pause = 0;

    constructor(private readonly ms: number) {
        this.progress();
    }

    progress(): void {
        this.until = Date.now() + this.ms;
        this.pause = PAUSE_FIRST_MS;
    }

    async wait(error: unknown): Promise<void> {
        if (Date.now() + this.pause > this.until) throw error;
        await sleep(this.pause);
        this.pause = Math.min(PAUSE_MAX_MS, this.pause * 2);
    }
}

/** An answer whose body is read as it comes: once, by one of these; or cancelled. */
export class Answer {
    readonly status: number;
    readonly headers: Headers;

    constructor(private readonly response: Response, private readonly abort: AbortController,
                private readonly timeoutMs: number) {
        this.status = response.status;
        this.headers = response.headers;
    }

    /** Parts of the body, as they arrive. Leaving the loop early ends the request. */
    async *chunks(): AsyncGenerator<Uint8Array, void, undefined> {
        if (!this.response.body) return;
        const reader = this.response.body.getReader();
        let whole = false;
        try {
            for (;;) {
                const next = timed(reader.read(), this.timeoutMs, this.abort, "the answer does not go on");
                const { done, value } = await next;
                if (done) break;
                if (value.length) yield value;
            }
            whole = true;
        } catch (error) {
            if (error instanceof AtollError) throw error;
            throw new ConnectionFailed("the connection broke while its answer came", { cause: error });
        } finally {
            if (!whole) this.cancel();
        }
    }

    async bytes(): Promise<Uint8Array> {
        const parts: Uint8Array[] = [];
        for await (const part of this.chunks()) parts.push(part);
        return concat(parts);
    }

    async text(): Promise<string> {
        return new TextDecoder().decode(await this.bytes());
    }

    cancel(): void {
        this.abort.abort();
    }
}

export function concat(parts: Uint8Array[]): Uint8Array {
    const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
    let at = 0;
    for (const part of parts) {
        whole.set(part, at);
        at += part.length;
    }
    return whole;
}

async function timed<T>(work: Promise<T>, ms: number, abort: AbortController, what: string): Promise<T> {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const late = new Promise<never>((_, fail) => {
        timer = setTimeout(() => {
            fail(new RequestTimeout(`${what} within ${ms} ms`));
            abort.abort();
        }, ms);
    });
    try {
        return await Promise.race([work, late]);
    } finally {
        clearTimeout(timer);
        work.catch(() => undefined); // of one that lost the race
    }
}

function codeOf(error: unknown): string {
    const cause = (error as { cause?: { code?: unknown } }).cause ?? error;
    const code = (cause as { code?: unknown }).code;
    return typeof code === "string" ? code : "";
}

const codesByStatus: Record<number, string> = {
    400: "invalid", 401: "unauthenticated", 403: "forbidden", 404: "not_found", 405: "method_not_allowed",
    409: "conflict", 410: "gone", 413: "too_large", 415: "unsupported_media", 421: "misdirected",
    429: "rate_limited", 500: "internal", 503: "unavailable", 507: "no_space",
};

function retryAfter(headers: Headers): number | null {
    const seconds = Number(headers.get("retry-after") ?? NaN);
    return Number.isFinite(seconds) ? seconds : null;
}

async function pause(attempt: number, told: number | null): Promise<void> {
    const ms = Math.min(PAUSE_MAX_MS, PAUSE_FIRST_MS * 2 ** attempt) * (0.5 + Math.random() / 2);
    await sleep(Math.max(ms, Math.min((told ?? 0) * 1000, PAUSE_MAX_MS)));
}

export function errorFrom(status: number, headers: Headers, text: string): ApiError {
    const details = {
        status, code: "", message: text.slice(0, 200) || `status ${status}`,
        field: null, requestId: headers.get("x-request-id"), retryAfter: retryAfter(headers),
    };
    try {
        const whole = JSON.parse(text);
        if (typeof whole.error === "string") { // as the hub says it
            Object.assign(details, { code: codesByStatus[status] ?? "", message: whole.error, more: whole });
        } else {
            const { error } = whole;
            Object.assign(details, { code: String(error.code), message: String(error.message) });
            Object.assign(details, { reason: error.reason ?? null, field: error.field ?? null });
            Object.assign(details, { requestId: error.request_id ?? details.requestId });
        }
    } catch {
        // not one of ours: a proxy's, say
    }
    return new (errorsByCode[details.code] ?? ApiError)(details);
}

/** What a request carries, and whether it can be sent a second time. */
function bodyOf(body: unknown): { body: BodyInit | undefined; type: string; again: boolean } {
    const bytes = "application/octet-stream";
    if (body === undefined) return { body: undefined, type: "", again: true };
    if (typeof body === "string" || body instanceof Uint8Array || body instanceof Blob)
        return { body: body as BodyInit, type: bytes, again: true };
    if (body instanceof ReadableStream) return { body, type: bytes, again: false };
    if (typeof body === "object" && body !== null && Symbol.asyncIterator in body)
        return { body: streamOf(body as AsyncIterable<Uint8Array>), type: bytes, again: false };
    return { body: JSON.stringify(body), type: "application/json", again: true };
}

export function streamOf(source: AsyncIterable<Uint8Array>): ReadableStream<Uint8Array> {
    const iterator = source[Symbol.asyncIterator]();
    return new ReadableStream<Uint8Array>({
        async pull(controller) {
            const { done, value } = await iterator.next();
            if (done) controller.close();
            else if (value.length) controller.enqueue(value);
            else await this.pull!(controller);
        },
        async cancel() {
            await iterator.return?.();
        },
    });
}

/** What the generated methods stand on. */
export class Caller {
    constructor(readonly transport: TransportOptions) {}

    async stream(operation: Operation, path: Record<string, string>, query: Record<string, unknown>, body: unknown,
                 options: Options = {}): Promise<Answer> {
        const target = this.target(operation, path, query);
        const sent = bodyOf(body);
        const headers = this.headers();
        if (sent.type) headers["content-type"] = sent.type;
        if (operation.creates) headers["idempotency-key"] = options.idempotencyKey ?? randomKey();
        Object.assign(headers, options.headers);
        const init: RequestInit & { duplex?: "half" } = { method: operation.method, headers, redirect: "error" };
        if (sent.body !== undefined) init.body = sent.body;
        if (!sent.again) init.duplex = "half";
        const safe = operation.creates === true || operation.again === true;
        const repeatable = sent.again && (safe || ["GET", "PUT"].includes(operation.method));
        const answer = await this.attempts(target, init, options, repeatable, sent.again);
        if (answer.status < 200 || answer.status > 299)
            throw errorFrom(answer.status, answer.headers, await answer.text());
        return answer;
    }

    /** An operation that is a WebSocket. */
    socket(operation: Operation, path: Record<string, string>, query: Record<string, unknown>, _body: undefined,
           options: Options = {}): Promise<Socket> {
        return this.transport.socket(this.target(operation, path, query), { ...this.headers(), ...options.headers },
                                     options.timeoutMs ?? this.transport.timeoutMs);
    }

    private headers(): Record<string, string> {
        const { token, sign } = this.transport;
        return { accept: "application/json", ...(token && !sign ? { authorization: `Bearer ${token}` } : {}) };
    }

    private async signed(url: string, init: RequestInit): Promise<RequestInit> {
        const { sign, address } = this.transport;
        if (!sign) return init;
        const body = typeof init.body === "string" ? new TextEncoder().encode(init.body) : init.body;
        if (body && !(body instanceof Uint8Array)) throw new AtollError("a stream cannot be signed");
        const proof = await sign(init.method ?? "GET", url.slice(address.length), body ?? new Uint8Array());
        return { ...init, headers: { ...(init.headers as Record<string, string>), ...proof } };
    }

    private target(operation: Operation, path: Record<string, string>, query: Record<string, unknown>): string {
        let target = operation.path;
        for (const [name, value] of Object.entries(path)) {
            if (!value) throw new AtollError(`${name} must not be empty`);
            // However they are written, URLs take these two for steps.
            if (value === "." || value === "..") throw new AtollError(`${name} must not be ${value}`);
            target = target.replace(`{${name}}`, encodeURIComponent(value));
        }
        const pairs = Object.entries(query).filter(([, value]) => value !== undefined && value !== null)
            .flatMap(([name, value]) => (Array.isArray(value) ? value : [value]).map((one) => [name, one] as const));
        if (pairs.length) target += "?" + pairs.map(([name, value]) => `${name}=${parameter(value)}`).join("&");
        return this.transport.address + target;
    }

    private async attempts(url: string, init: RequestInit, options: Options, repeatable: boolean,
                           again: boolean): Promise<Answer> {
        const timeoutMs = options.timeoutMs ?? this.transport.timeoutMs;
        const retries = options.retries ?? this.transport.retries;
        for (let attempt = 0; ; attempt++) {
            const abort = new AbortController();
            options.signal?.addEventListener("abort", () => abort.abort(), { once: true });
            if (options.signal?.aborted) abort.abort();
            let response: Response;
            try {
                const request = await this.signed(url, init);
                const work = this.transport.fetch(url, { ...request, signal: abort.signal });
                response = await timed(work, timeoutMs, abort, "no answer");
            } catch (error) {
                if (error instanceof AtollError || options.signal?.aborted) throw error;
                const retry = attempt < retries && again && (repeatable || NOTHING_SENT.has(codeOf(error)));
                if (!retry)
                    throw new ConnectionFailed(`no connection, or it broke: ${String(error)}`, { cause: error });
                await pause(attempt, null);
                continue;
            }
            const answer = new Answer(response, abort, timeoutMs);
            if (response.status === 503 && repeatable && attempt < retries) {
                answer.cancel();
                await pause(attempt, retryAfter(response.headers));
                continue;
            }
            return answer;
        }
    }

    async json<T>(operation: Operation, path: Record<string, string>, query: Record<string, unknown>, body: unknown,
                  options?: Options): Promise<T> {
        const text = await (await this.stream(operation, path, query, body, options)).text();
        return (text ? JSON.parse(text) : undefined) as T;
    }
}

/** 128 bits; where the platform has no generator of its own (Node 18), good enough not to meet another's. */
function randomKey(): string {
    const bytes = new Uint8Array(16);
    if (globalThis.crypto) globalThis.crypto.getRandomValues(bytes);
    else bytes.forEach((_, at) => (bytes[at] = Math.floor(Math.random() * 256)));
    return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** As it stands in a query; bytes that are no text are percent-encoded one by one. */
function parameter(value: unknown): string {
    if (typeof value === "boolean") return value ? "1" : "0";
    if (value instanceof Uint8Array)
        return Array.from(value, (byte) => "%" + byte.toString(16).padStart(2, "0")).join("");
    return encodeURIComponent(String(value));
}
