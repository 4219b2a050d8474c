// Talking to the server: JSON requests with the session's CSRF value, and one event stream.

export class ApiError extends Error {
    constructor(status, error) {
        super(typeof error === "string" ? error : error?.message || `the server answered ${status}`);
        this.status = status;
        this.field = error?.field ?? null;
    }
}

let csrf = "";
export const setCsrf = (value) => { csrf = value; };

// The cookie goes along by itself; anything that changes something also proves that this page asks.
export async function request(method, path, body) {
    const headers = { accept: "application/json" };
    if (method !== "GET") headers["x-atoll-csrf"] = csrf;
    if (body !== undefined) headers["content-type"] = "application/json";
    const reply = await fetch(path, {
        method, headers, credentials: "same-origin", cache: "no-store", redirect: "error",
        body: body === undefined ? undefined : JSON.stringify(body),
    });
    const text = await reply.text();
    let data = null;
    try { data = text ? JSON.parse(text) : null; } catch { /* shown by its status below */ }
    if (!reply.ok) throw new ApiError(reply.status, data?.error);
    return data;
}

// Server-sent events by fetch instead of EventSource, which hides the status of a refusal and hands
// out only those event types that were named to it beforehand. Gives blocks as { id, event, data }.
export async function* eventStream(path, signal) {
    const reply = await fetch(path, {
        headers: { accept: "text/event-stream" }, credentials: "same-origin", cache: "no-store", signal,
    });
    if (!reply.ok) throw new ApiError(reply.status, null);
    const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    yield { event: "open" };
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
            yield block; // also of a comment: the caller sees that the line is alive
        }
    }
}
