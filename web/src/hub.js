// What the hub's views share: agents, projects and proposals, read once and again when an event says so.
import { batch, computed, effect, signal } from "@preact/signals";
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

// ---- which project is looked at ----

const KEY = "atoll-project";
const kept = () => {
    try {
        return localStorage.getItem(KEY) ?? "";
    } catch {
        return "";
    }
};
export const chosenId = signal(kept()); // "": all of them
effect(() => {
    try {
        localStorage.setItem(KEY, chosenId.value);
    } catch {
        /* then for this page alone */
    }
});
export const chosen = computed(() => projects.value.find((one) => one.id === chosenId.value) ?? null);
// Agents are in the projects that they are members of; people are in all of them.
export const inProject = (name) => !chosen.value || name === "human" || (chosen.value.members ?? []).includes(name);
export const eventInProject = ({ data, object }) =>
    !chosen.value ||
    data?.project === chosen.value.id ||
    String(object).includes(chosen.value.id) ||
    (data?.from !== undefined && inProject(data.from) && inProject(data.to ?? "human")) ||
    [data?.agent, data?.name].some((name) => name && inProject(name));

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

const begun = new Map(); // what is kept true → at which reset it was read
hear((event) => {
    const names = touches(event.type).filter((name) => name && begun.has(name));
    if (names.length) readHub(...names);
});
// Whoever is drawn asks for what it shows; after a gap that is read anew.
export function useHub(...names) {
    const late = (names.length ? names : Object.keys(readers)).filter((name) => begun.get(name) !== resets.value);
    if (!late.length) return;
    for (const name of late) begun.set(name, resets.value);
    readHub(...late);
}
