// What the page knows, as signals, and the two loops that keep it true: the event stream and, slower,
// the server's health.
import { signal } from "@preact/signals";
import { ApiError, eventStream, request, setCsrf } from "./api.js";

export const EVENTS_KEPT = 500;
const RETRY_MIN_MS = 500, RETRY_MAX_MS = 10000, HEALTH_MS = 10000, SILENT_MS = 45000;

// "starting", "out" (no session), "in"
export const session = signal({ state: "starting" });
// "connecting", "live", "lost"
export const connection = signal("connecting");
export const health = signal(null);
export const whoami = signal(null);
export const events = signal([]);
export const gap = signal(false);
export const notice = signal("");

let last = null; // number of the newest event shown; null before the first look
let stop = new AbortController();
const pause = (ms) => new Promise((done) => setTimeout(done, ms));

// The code is taken out of the address at once: it is used up, and history need not keep it.
function takeLoginCode() {
    const match = /^#login=([\w-]+)$/.exec(location.hash);
    if (location.hash) history.replaceState(null, "", location.pathname + location.search);
    return match ? match[1] : null;
}

function enter(made) {
    setCsrf(made.csrf);
    session.value = { state: "in", role: made.role, tenant: made.tenant, expires: made.expires_at };
}

export function leave(why) {
    stop.abort();
    setCsrf("");
    session.value = { state: "out", why };
    whoami.value = health.value = null;
    events.value = [];
}

export async function begin() {
    const code = takeLoginCode();
    try {
        enter(code ? await request("POST", "/login", { code }) : await request("GET", "/api/v1/session"));
    } catch (error) {
        const why = code && error instanceof ApiError
            ? "That link was used already, or is older than ten minutes." : "";
        leave(why);
        return;
    }
    stop = new AbortController();
    whoami.value = await request("GET", "/api/v1/whoami");
    watchHealth(stop.signal);
    follow(stop.signal);
}

async function watchHealth(signal_) {
    while (!signal_.aborted) {
        try {
            health.value = await request("GET", "/api/v1/health");
        } catch (error) {
            if (error.status === 401) return leave("The session has ended.");
        }
        await pause(HEALTH_MS);
    }
}

function add(list) {
    events.value = [...list.reverse(), ...events.value].slice(0, EVENTS_KEPT);
}

// The newest events that are there already; `last` then is the place to go on from.
async function backlog() {
    const { head } = await request("GET", "/api/v1/events?limit=1");
    const page = await request("GET", `/api/v1/events?since=${Math.max(0, head - 50)}&limit=100`);
    add(page.items);
    last = page.next;
}

async function readStream(signal_) {
    const silence = new AbortController();
    const both = AbortSignal.any([signal_, silence.signal]);
    let timer = setTimeout(() => silence.abort(), SILENT_MS);
    try {
        for await (const block of eventStream("/events" + (last === null ? "" : `?since=${last}`), both)) {
            clearTimeout(timer);
            timer = setTimeout(() => silence.abort(), SILENT_MS);
            connection.value = "live";
            if (!block.id) continue;
            last = Number(block.id);
            add([JSON.parse(block.data)]);
        }
    } finally {
        clearTimeout(timer);
    }
}

// Until the session ends: catch up, follow, and after a break come back where it stopped.
async function follow(signal_) {
    let wait = RETRY_MIN_MS;
    while (!signal_.aborted) {
        try {
            if (last === null && !gap.value) await backlog();
            await readStream(signal_);
            wait = RETRY_MIN_MS;
        } catch (error) {
            if (error.status === 401 || error.status === 403) return leave("The session has ended.");
            if (error.status === 410) { last = null; gap.value = true; }
        }
        if (session.value.state !== "in") return;
        connection.value = "lost";
        await pause(wait);
        wait = Math.min(2 * wait, RETRY_MAX_MS);
    }
}

export async function logout() {
    try { await request("POST", "/logout"); } catch { /* gone either way */ }
    leave("You are logged out.");
}

export async function writeNote(text) {
    notice.value = "";
    try {
        await request("POST", "/api/v1/notes", { text });
        return true;
    } catch (error) {
        notice.value = error.message;
        return false;
    }
}
