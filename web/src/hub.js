// What the hub's views share: agents, projects and proposals, read once and again when an event says so.
import { batch, signal } from "@preact/signals";
import { get, request } from "./api.js";
import { hear, resets } from "./state.js";

export const COLUMNS = [
    ["backlog", "Backlog"],
    ["ready", "Ready"],
    ["in_progress", "In progress"],
    ["in_review", "In review"],
    ["blocked", "Blocked"],
    ["done", "Done"],
];
export const MODES = [
    ["fully_autonomous", "acts by itself"],
    ["advisory", "proposes"],
    ["manual", "is told"],
];
export const PRIORITIES = ["P0", "P1", "P2", "P3"];

export const agents = signal([]);
export const projects = signal([]);
export const proposals = signal([]);
export const globalMode = signal("");
export const hubState = signal("starting"); // "starting", "there", "none"
export const hubError = signal(null);

// hub`projects/${id}`: what is put in is escaped.
export const hub = (strings, ...values) =>
    "/" + strings.map((part, i) => part + (i < values.length ? encodeURIComponent(values[i]) : "")).join("");
// Its times are UTC and do not say so.
export const utc = (text) => (text && !/Z|[+-]\d\d:\d\d$/.test(text) ? text + "Z" : text);
export const isHub = (event) => /^[a-z]+_[a-z_]+$/.test(event.type);
export const change = (method, path, body) => request(method, path, body ?? {});

const readers = {
    agents: async () => {
        agents.value = await get("/agents");
    },
    projects: async () => {
        projects.value = await get("/projects");
    },
    proposals: async () => {
        proposals.value = await get("/proposals?state=pending").catch(() => []);
    },
    mode: async () => {
        globalMode.value = (await get("/autonomy").catch(() => null))?.default_mode ?? "";
    },
};
const touches = (type) => [
    /^(agent_|checkpoint_|global_|task_(claimed|assigned|transition|unassigned))/.test(type) && "agents",
    /^(project_|agent_joined)/.test(type) && "projects",
    /^(proposal_|ask\.)/.test(type) && "proposals",
    /^global_/.test(type) && "mode",
];

const stale = new Set();
let due = null;
async function readStale() {
    due = null;
    const names = [...stale];
    stale.clear();
    try {
        await Promise.all(names.map((name) => readers[name]()));
        batch(() => {
            hubState.value = "there";
            hubError.value = null;
        });
    } catch (error) {
        hubState.value = error.status === 404 ? "none" : hubState.value;
        hubError.value = error;
    }
}
export function readHub(...names) {
    for (const name of names.length ? names : Object.keys(readers)) stale.add(name);
    due ??= setTimeout(readStale, 50);
}

let begun = -1;
// A view that is drawn asks for it; after a gap everything is read anew.
export function useHub() {
    if (begun === resets.value) return;
    if (begun < 0)
        hear((event) => {
            const names = touches(event.type).filter(Boolean);
            if (names.length) readHub(...names);
        });
    begun = resets.value;
    readHub();
}
