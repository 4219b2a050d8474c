// For Node: a client that finds its server as the command line does, over a Unix socket where that is where it is,
// and trees of files.
//
// Which server, most explicit first: the address given, or ATOLL_ADDR (the token of a state directory goes there only
// when that directory was named too); ATOLL_CONTEXT; ATOLL_STATE: its Unix socket and its admin.token; the current
// context of ~/.config/atoll/contexts.json; the state directories that a server uses by itself.
import { appendFileSync, closeSync, constants, existsSync, fstatSync, fsyncSync, openSync, readFileSync, renameSync,
         statSync, writeFileSync } from "node:fs";
import * as http from "node:http";
import * as https from "node:https";
import { homedir } from "node:os";
import { isAbsolute, join, resolve } from "node:path";
import { Readable } from "node:stream";
import type { ReadableStream as NodeStream } from "node:stream/web";
import { Client, type ClientOptions } from "./client.js";
import { AtollError } from "./errors.js";
import { type Journal, memoryJournal } from "./spokes_loop.js";
import type { Fetch } from "./transport.js";
import { nodeSocket } from "./websocket.js";

export * from "./index.js";
export { downloadTree, packTree, type UnpackedTree, unpackTree, uploadTree } from "./tree.js";

const MACHINE_STATE = "/var/lib/atoll";

export interface ConnectOptions extends Omit<ClientOptions, "fetch" | "socket"> {
    /** A state directory of a local server. */
    state?: string;
    context?: string;
    /** A file of certificates to trust, instead of the system's. */
    ca?: string;
}

export interface Endpoint {
    address: string;
    unix: string | null;
    token: string | null;
    ca: string | null;
}

function readPrivate(path: string, ownerOnly: boolean): string | null {
    let fd: number;
    try {
        fd = openSync(path, constants.O_RDONLY | (constants.O_NOFOLLOW ?? 0) | (constants.O_NONBLOCK ?? 0));
    } catch {
        return null;
    }
    try {
        const found = fstatSync(fd);
        if (!found.isFile()) return null;
        if (ownerOnly && found.mode & 0o077)
            throw new AtollError(`${path}: others may read it though it holds tokens; chmod 600 it`);
        return readFileSync(fd, "utf8");
    } finally {
        closeSync(fd);
    }
}

const uid = () => process.geteuid?.() ?? -1;
const tokenOf = (state: string) => readPrivate(join(state, "admin.token"), false)?.split("\n")[0]?.trim() || null;

function ownSocket(state: string): boolean {
    const path = join(state, "atoll.sock");
    return existsSync(path) && (uid() === 0 || statSync(path).uid === uid());
}

function below(variable: string, otherwise: string): string {
    const base = process.env[variable] ?? "";
    return join(isAbsolute(base) ? base : join(homedir(), otherwise), "atoll");
}

function defaultState(): string {
    const own = uid() === 0 ? MACHINE_STATE : below("XDG_STATE_HOME", ".local/state");
    return ownSocket(MACHINE_STATE) && !ownSocket(own) ? MACHINE_STATE : own;
}

function fromState(state: string): Endpoint {
    return { address: "http://localhost", unix: join(resolve(state), "atoll.sock"), token: tokenOf(state), ca: null };
}

function fromAddress(address: string): Endpoint {
    if (address.startsWith("unix:/"))
        return { address: "http://localhost", unix: address.slice("unix:".length), token: null, ca: null };
    if (!/^https?:\/\/(\[[0-9A-Fa-f:.]+\]|[^/:[\]@?#\s]+)(:\d{1,5})?\/?$/.test(address))
        throw new AtollError(`"${address}" is no address: http://HOST:PORT, https://HOST:PORT or unix:/PATH`);
    return { address, unix: null, token: null, ca: null };
}

interface Context {
    name: string;
    addr: string;
    token?: string | null;
    ca?: string | null;
}

function fromContext(name: string | undefined): Endpoint | null {
    const text = readPrivate(join(below("XDG_CONFIG_HOME", ".config"), "contexts.json"), true);
    const known = (text ? JSON.parse(text) : {}) as { current?: string; contexts?: Context[] };
    const wanted = name || known.current;
    if (!wanted) return null;
    const found = known.contexts?.find((context) => context.name === wanted);
    if (!found) throw new AtollError(`there is no context "${wanted}"`);
    return { ...fromAddress(found.addr), token: found.token ?? null, ca: found.ca ?? null };
}

export function findEndpoint(options: ConnectOptions = {}): Endpoint {
    const env = process.env;
    let { address, context, state } = options;
    if (!(address || context || state))
        [address, context, state] = [env["ATOLL_ADDR"], env["ATOLL_CONTEXT"], env["ATOLL_STATE"]];
    let found: Endpoint;
    if (address) found = { ...fromAddress(address), token: state ? tokenOf(state) : null };
    else if (state && !context) found = fromState(state);
    else found = fromContext(context) ?? fromState(defaultState());
    found.token = options.token || env["ATOLL_TOKEN"] || found.token;
    found.ca = options.ca || env["ATOLL_CA"] || found.ca;
    return found;
}

/** fetch over a Unix socket, or with a certificate authority of one's own: neither can be told to Node's own. */
export function nodeFetch({ unix, ca }: { unix?: string | null; ca?: string | null }): Fetch {
    const certificates = ca ? readFileSync(ca) : undefined;
    const plain = new http.Agent({ keepAlive: true });
    const secure = new https.Agent({ keepAlive: true, ca: certificates });
    return (url, init) => new Promise((done, fail) => {
        const tls = url.startsWith("https:");
        const options: https.RequestOptions = {
            method: init.method ?? "GET", headers: init.headers as Record<string, string>,
            signal: init.signal ?? undefined,
            agent: tls ? secure : plain, ...(unix ? { socketPath: unix } : {}),
        };
        const request = (tls ? https : http).request(url, options, (incoming) => {
            const status = incoming.statusCode ?? 0;
            const empty = status === 204 || status === 304;
            const headers = Object.entries(incoming.headersDistinct).flatMap(([name, values]) =>
                (values ?? []).map((value): [string, string] => [name, value]));
            if (empty) incoming.resume();
            const content = empty ? null : (Readable.toWeb(incoming) as ReadableStream<Uint8Array>);
            done(new Response(content, { status, headers }));
        });
        request.on("error", fail);
        const body = init.body;
        if (body === undefined || body === null) request.end();
        else if (typeof body === "string" || body instanceof Uint8Array) request.end(body);
        else {
            const content = body instanceof Blob ? body.stream() : body;
            Readable.fromWeb(content as NodeStream).on("error", (error) => request.destroy(error)).pipe(request);
        }
    });
}

/** A client of the server that the command line would talk to. */
export function connect(options: ConnectOptions = {}): Client {
    const { address, unix, token, ca } = findEndpoint(options);
    const { timeoutMs, retries } = options;
    const socket = nodeSocket({ unix, ca: ca ? readFileSync(ca) : undefined });
    return new Client({ address, token, timeoutMs, retries, fetch: nodeFetch({ unix, ca }), socket });
}

/** Handled messages in a file, for the loop of an agent (@atoll/sdk/spokes): they stay handled after a crash. */
export function fileJournal(path: string): Journal {
    const known = memoryJournal();
    const lines = existsSync(path) ? readFileSync(path, "utf8").split("\n").slice(0, -1) : []; // the last may be cut
    for (const line of lines) void known.add(line);
    const kept = [...new Set(lines)].filter((line) => known.has(line)).map((line) => line + "\n");
    writeFileSync(path + ".new", kept.join(""), { flush: true } as object);
    renameSync(path + ".new", path);
    const fd = openSync(path, "a");
    return {
        has: (message) => known.has(message),
        add: (message) => {
            void known.add(message);
            appendFileSync(fd, message + "\n");
            fsyncSync(fd);
        },
        close: () => closeSync(fd),
    };
}
