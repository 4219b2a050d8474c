// Talking to the server: JSON requests with the session's CSRF value, bytes, event streams for one
// command or directory, and WebSockets, of which a browser may have as many as it has tabs (of
// ordinary requests it opens six to a host, so nothing that lasts is one of those for long).

export class ApiError extends Error {
    constructor(status, error) {
        super(typeof error === "string" ? error : error?.message || `the server answered ${status}`);
        this.status = status;
        this.field = error?.field ?? null;
        this.code = error?.code ?? "";
    }
}

let csrf = "";
export const setCsrf = (value) => {
    csrf = value;
};

const path_ = (text) => encodeURIComponent(text);
// api`sandboxes/${id}`: what is put in is escaped, so that a name cannot lead to another path.
export const api = (strings, ...values) =>
    "/api/v1/" + strings.map((part, i) => part + (i < values.length ? path_(values[i]) : "")).join("");

// The cookie goes along by itself; anything that changes something also proves that this page asks.
async function send(method, path, { body, type, signal, accept = "application/json" } = {}) {
    const headers = { accept };
    if (method !== "GET") headers["x-atoll-csrf"] = csrf;
    if (type) headers["content-type"] = type;
    const reply = await fetch(path, {
        method,
        headers,
        body,
        signal,
        credentials: "same-origin",
        cache: "no-store",
        redirect: "error",
    });
    if (reply.ok) return reply;
    let error = null;
    try {
        error = JSON.parse(await reply.text()).error;
    } catch {
        /* told by its status */
    }
    throw new ApiError(reply.status, error);
}

export async function request(method, path, body, signal) {
    const wish = body === undefined ? { signal } : { body: JSON.stringify(body), type: "application/json", signal };
    const text = await (await send(method, path, wish)).text();
    return text ? JSON.parse(text) : null;
}

export const get = (path, signal) => request("GET", path, undefined, signal);
export const post = (path, body) => request("POST", path, body);
export const text = async (path, signal) => (await send("GET", path, { signal, accept: "*/*" })).text();
export const bytes = async (path, signal) =>
    new Uint8Array(await (await send("GET", path, { signal, accept: "*/*" })).arrayBuffer());
export const put = async (path, body) => (await send("PUT", path, { body, type: "application/octet-stream" })).json();

// All pages of a list.
export async function all(path, limit = 1000) {
    const items = [];
    for (let after = ""; after !== null;) {
        const mark = path.includes("?") ? "&" : "?";
        const page = await get(`${path}${mark}limit=${limit}${after && `&after=${path_(after)}`}`);
        items.push(...page.items);
        after = page.next ?? null;
    }
    return items;
}

// Server-sent events by fetch: EventSource hides the status of a refusal and hands out only those
// types that were named beforehand. Gives blocks as { id, event, data }.
export async function* eventStream(path, signal) {
    const reply = await send("GET", path, { signal, accept: "text/event-stream" });
    const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
        const { value, done } = await reader.read();
        if (done) return;
        text += value;
        for (let end; (end = text.indexOf("\n\n")) >= 0; text = text.slice(end + 2)) {
            const block = {};
            for (const line of text.slice(0, end).split("\n")) {
                const at = line.indexOf(":");
                if (at > 0) block[line.slice(0, at)] = line.slice(at + 1).trimStart();
            }
            if (block.data !== undefined) yield block;
        }
    }
}

export const socket = (path, protocol) =>
    new WebSocket(location.origin.replace(/^http/, "ws") + path, protocol ? [protocol] : []);

// A browser complains about a socket that is closed before it was open; so it is let open first.
export function hangUp(ws) {
    if (ws?.readyState === WebSocket.CONNECTING) ws.onopen = () => ws.close();
    else ws?.close();
}

export const fromBase64 = (data) => Uint8Array.from(atob(data), (c) => c.charCodeAt(0));
export const pause = (ms) => new Promise((done) => setTimeout(done, ms));
