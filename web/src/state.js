// What the page knows, as signals, and what keeps it true: one WebSocket of events, which after a
// break goes on behind the last event that was seen. Lists are read once and then follow events; when
// the events we missed are no longer kept (410) everything is read anew.
import { batch, computed, signal } from "@preact/signals";
import { ApiError, all, api, get, hangUp, pause, post, request, setCsrf, socket } from "./api.js";

export const EVENTS_KEPT = 10000;
const ASKS_KEPT = 1000;
const OLDER = 1000; // events read at a time when older ones are wanted
const RETRY_MIN_MS = 300,
    RETRY_MAX_MS = 5000,
    QUIET_MS = 30000,
    REREAD_MS = 250,
    REREAD_ONE_BY_ONE = 20;

export const session = signal({ state: "starting" }); // "starting", "out" (no session), "in"
export const connection = signal("connecting"); // "connecting", "live", "lost"
export const whoami = signal(null);
export const events = signal([]); // newest first
export const gap = signal(false);
export const boxes = signal(new Map());
export const boxesKnown = signal(false);
export const asks = signal(new Map());
export const resets = signal(0); // counts up when everything must be read anew

export const boxList = computed(() => [...boxes.value.values()]);
export const waiting = computed(() =>
    [...asks.value.values()]
        .filter((ask) => ask.state === "pending")
        .sort((a, b) => (a.created_at < b.created_at ? -1 : 1)),
);
const role = computed(() => whoami.value?.role);
export const maySteer = computed(() => ["admin", "operator"].includes(role.value));
export const mayUse = computed(() => ["admin", "operator", "agent"].includes(role.value));
const names = new Map(); // told by events before a row was read
export const boxName = (id) => boxes.value.get(id)?.name || names.get(id) || id;

let last = null; // number of the newest event seen; null: before the first
let stop = new AbortController();
const ears = new Set();
// Calls fn with each new event until the function it gives is called.
export const hear = (fn) => {
    ears.add(fn);
    return () => ears.delete(fn);
};

// ---- in and out ----

// The code is taken out of the address at once: it is used up, and history need not keep it.
function takeLoginCode() {
    const match = /^#login=([\w-]+)$/.exec(location.hash);
    if (match) history.replaceState(null, "", location.pathname + location.search);
    return match ? match[1] : null;
}

export function leave(why) {
    stop.abort();
    setCsrf("");
    last = null;
    batch(() => {
        session.value = { state: "out", why };
        whoami.value = null;
        events.value = [];
        boxes.value = new Map();
        asks.value = new Map();
        boxesKnown.value = false;
    });
}

export async function begin() {
    const code = takeLoginCode();
    try {
        const made = code ? await post("/login", { code }) : await get(api`session`);
        setCsrf(made.csrf);
    } catch (error) {
        if (error instanceof ApiError && error.status < 500)
            return leave(code ? "That link was used already, or is older than ten minutes." : "");
        await pause(RETRY_MAX_MS); // the server is away: a login that is good stays good
        return begin();
    }
    stop = new AbortController();
    whoami.value = await get(api`whoami`);
    session.value = { state: "in" };
    follow(stop.signal);
}

// Another tenant is another page: everything that is shown, and the session itself, is replaced.
export async function moveTo(tenant) {
    await post(api`session/tenant`, { tenant });
    location.hash = "";
    location.reload();
}

export async function logout() {
    try {
        await post("/logout");
    } catch {
        /* gone either way */
    }
    leave("You are logged out.");
}

// ---- the stream ----

// What events change, in one copy for all that came together.
let draft = null;
const rows = () => draft ?? boxes.value;
const edit = () => (draft ??= new Map(boxes.value));

function take(list) {
    if (!list.length) return;
    events.value = [...list.slice().reverse(), ...events.value].slice(0, EVENTS_KEPT);
    last = list[list.length - 1].seq;
    for (const event of list) {
        apply(event);
        for (const fn of ears) {
            try {
                fn(event);
            } catch (error) {
                console.error(error);
            }
        }
    }
    if (draft) boxes.value = draft;
    draft = null;
}

// The newest that are there already; `last` then is the place to go on from.
async function backlog() {
    const { head } = await get(api`events` + "?limit=1");
    const page = await get(api`events` + `?since=${Math.max(0, head - 200)}&limit=500`);
    events.value = page.items.slice().reverse();
    last = page.next;
}

// Reads events that are older than those in the page; false when no older ones are kept.
export async function readOlder() {
    const oldest = events.value.at(-1)?.seq ?? 0;
    const { floor } = await get(api`events` + "?limit=1");
    if (oldest <= (floor ?? 0)) return false;
    const page = await get(api`events` + `?since=${Math.max(floor ?? 0, oldest - OLDER - 1)}&limit=${OLDER}`);
    const before = page.items.filter((event) => event.seq < oldest).reverse();
    events.value = [...events.value, ...before];
    return before.length > 0;
}

async function readAll() {
    const [rows, open] = await Promise.all([
        all(api`sandboxes`),
        maySteer.value || role.value === "viewer" ? all(api`asks`) : [],
    ]);
    batch(() => {
        boxes.value = new Map(rows.map((row) => [row.id, row]));
        asks.value = new Map(open.map((ask) => [ask.id, ask]));
        boxesKnown.value = true;
        resets.value++;
    });
}

// Until it closes; its code and whether it ever was open.
function readSocket(ended) {
    return new Promise((done) => {
        const ws = socket(api`events` + `?since=${last}`);
        let opened = false,
            fresh = [],
            due = null,
            heard = Date.now(),
            checking = false;
        const flush = () => {
            due = null;
            const list = fresh;
            fresh = [];
            batch(() => take(list));
        };
        // A line may be dead without anybody knowing; a browser cannot ping, but it can ask.
        const watch = setInterval(async () => {
            if (checking || !opened || Date.now() - heard < QUIET_MS) return;
            checking = true;
            try {
                await get(api`session`, AbortSignal.timeout(QUIET_MS / 3));
                heard = Date.now();
            } catch {
                ws.close();
            }
            checking = false;
        }, QUIET_MS / 3);
        const bye = () => hangUp(ws);
        ended.addEventListener("abort", bye);
        ws.onopen = () => {
            opened = true;
            connection.value = "live";
        };
        ws.onmessage = ({ data }) => {
            heard = Date.now();
            fresh.push(JSON.parse(data));
            due ??= setTimeout(flush, 16); // many at once are drawn once
        };
        ws.onclose = ({ code }) => {
            clearInterval(watch);
            clearTimeout(due);
            ended.removeEventListener("abort", bye);
            flush();
            done({ code, opened });
        };
    });
}

async function follow(ended) {
    let wait = RETRY_MIN_MS;
    let known = false;
    while (!ended.aborted) {
        try {
            if (last === null) {
                await backlog();
                known = false;
            } else await get(api`events` + `?since=${last}&limit=1`); // a socket would not tell 401 from 410
            const over = readSocket(ended);
            if (!known) {
                await readAll();
                known = true;
            }
            const { code, opened } = await over;
            if (opened) wait = RETRY_MIN_MS;
            if (code === 4410) {
                last = null;
                gap.value = true;
            }
        } catch (error) {
            if (error.status === 401 || error.status === 403) return leave("The session has ended.");
            if (error.status === 410) {
                last = null;
                gap.value = true;
                continue;
            }
            if (error.status === 400) last = null; // another life of the server, with fewer events
        }
        if (ended.aborted) return;
        connection.value = "lost";
        await pause(wait);
        wait = Math.min(2 * wait, RETRY_MAX_MS);
    }
}

// ---- what events change ----

const stale = new Set();
let reread = null;

// Rows are read again a moment later, each once, or all of them when they are many.
async function readStale() {
    reread = null;
    const ids = [...stale];
    stale.clear();
    try {
        if (ids.length > REREAD_ONE_BY_ONE) {
            const rows = await all(api`sandboxes`);
            boxes.value = new Map(rows.map((row) => [row.id, row]));
            return;
        }
        const rows = await Promise.all(ids.map((id) => get(api`sandboxes/${id}`).catch(() => null)));
        const next = new Map(boxes.value);
        rows.forEach((row, i) => (row ? next.set(row.id, row) : next.delete(ids[i])));
        boxes.value = next;
    } catch {
        /* the connection is lost: it is all read again afterwards */
    }
}

export function refresh(id) {
    stale.add(id);
    reread ??= setTimeout(readStale, REREAD_MS);
}

function apply({ type, data, time }) {
    if (type === "sandbox.deleted") {
        names.delete(data.sandbox);
        edit().delete(data.sandbox);
    } else if (type.startsWith("sandbox.")) {
        const row = rows().get(data.sandbox);
        if (data.name) names.set(data.sandbox, data.name);
        if (row)
            // what is known at once is shown at once
            edit().set(row.id, {
                ...row,
                state: data.state ?? row.state,
                reason: data.reason ?? null,
                changed_at: time,
            });
        refresh(data.sandbox);
    } else if (type.startsWith("exec.")) {
        refresh(data.sandbox);
    } else if (type.startsWith("ask.")) {
        const before = asks.value.get(data.id);
        asks.value = bounded(new Map(asks.value).set(data.id, { created_at: time, ...before, ...data }));
        readAsk(data.id);
    }
}

// Decided ones are history: of them the newest.
function bounded(map) {
    for (const [id, ask] of map) {
        if (map.size <= ASKS_KEPT) break;
        if (ask.state !== "pending") map.delete(id);
    }
    return map;
}

async function readAsk(id) {
    try {
        const read = await get(api`asks/${id}`);
        asks.value = new Map(asks.value).set(id, read);
    } catch {
        /* may not look */
    }
}

export const change = (method, path, body) => request(method, path, body);
