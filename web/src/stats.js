// Figures of the sandboxes in sight, over one WebSocket: it is told whom to watch, and tells what
// they use every two seconds. The newest are kept here for lines and charts.
import { signal } from "@preact/signals";
import { api, hangUp, pause, socket } from "./api.js";
import { boxes, boxesKnown, session } from "./state.js";

export const KEPT = 150,
    EVERY_MS = 2000,
    WATCHED_MAX = 100;
export const stats = signal(new Map()); // id → { t: [s], cpu: [percent], memory: [bytes], pids: [n], last }

const wishes = new Map(); // who looks → ids
let ws = null,
    sent = "",
    running = false;

function tell() {
    const ids = [...new Set([...wishes.values()].flat())].sort().slice(0, WATCHED_MAX);
    const text = JSON.stringify({ sandboxes: ids, every_ms: EVERY_MS });
    if (ws?.readyState === WebSocket.OPEN && text !== sent) {
        ws.send(text);
        sent = text;
    }
    if (ids.length && !running) run();
    if (!ids.length && ws) hangUp(ws);
}

function take({ items }) {
    // of those that are gone nothing is kept
    const next = new Map([...stats.value].filter(([id]) => !boxesKnown.value || boxes.value.has(id))),
        t = Date.now() / 1000;
    for (const one of items) {
        const was = next.get(one.sandbox) ?? { t: [], cpu: [], memory: [], pids: [], last: null };
        const past = was.last && one.cpu_us >= was.last.cpu_us ? one.at_us - was.last.at_us : 0;
        const cpu = past > 0 ? (100 * (one.cpu_us - was.last.cpu_us)) / past : 0;
        const add = (list, value) => [...list, value].slice(-KEPT);
        next.set(one.sandbox, {
            t: add(was.t, t),
            cpu: add(was.cpu, cpu),
            memory: add(was.memory, one.memory),
            pids: add(was.pids, one.pids),
            last: one,
        });
    }
    stats.value = next;
}

async function run() {
    running = true;
    while (wishes.size && session.value.state === "in") {
        await new Promise((done) => {
            ws = socket(api`stats`);
            sent = "";
            ws.onopen = tell;
            ws.onmessage = ({ data }) => take(JSON.parse(data));
            ws.onclose = done;
        });
        ws = null;
        if ([...wishes.values()].some((ids) => ids.length)) await pause(1000);
        else break;
    }
    running = false;
    if ([...wishes.values()].some((ids) => ids.length)) run();
}

let due = null;
// `who` wants figures of `ids` now; none: of nobody any more.
export function watchStats(who, ids) {
    if (ids?.length) wishes.set(who, ids);
    else wishes.delete(who);
    due ??= setTimeout(() => {
        due = null;
        tell();
    }, 100);
}
