// What can be done with a sandbox, in its state: one line each. The detail view, the list and the
// palette take them from here.
import { api, post, request } from "./api.js";
import { go, to } from "./router.js";
import { act, ask, confirm, toast } from "./ui.jsx";
import { parsePairs, parseTime } from "./format.js";

const name = (box) => box.name || box.id;
const plain = (box, verb) => act(() => post(api`sandboxes/${box.id}/${verb}`));

async function fork(box) {
    const said = await ask({
        title: `Fork ${name(box)}`,
        yes: "Fork",
        text: "Another sandbox with a copy of its files as they are now. What runs stays here.",
        fields: [
            { name: "name", label: "Name of the copy", placeholder: "none" },
            { name: "ttl", label: "Lifetime", placeholder: "until it is deleted", help: "30m, 2h, 1d" },
        ],
    });
    if (!said) return;
    await act(async () => {
        const wish = {};
        if (said.name) wish.name = said.name;
        if (said.ttl) wish.ttl_ms = parseTime(said.ttl);
        const made = await post(api`sandboxes/${box.id}/fork`, wish);
        toast(`${name(made)} was made`, { link: to`sandboxes/${made.id}`, linkText: "Look" });
    });
}

export async function snapshot(box) {
    const said = await ask({
        title: `Snapshot of ${name(box)}`,
        yes: "Take it",
        text: "Keeps its files as they are now. What runs is frozen for that moment.",
        fields: [
            {
                name: "name",
                label: "Name",
                required: true,
                pattern: "[a-z0-9][a-z0-9\\-]*",
                help: "Lower-case letters, digits and hyphens",
            },
        ],
    });
    if (said)
        await act(
            () => post(api`sandboxes/${box.id}/snapshots`, { name: said.name }),
            `Snapshot ${said.name} is kept`,
        );
}

async function stop(box) {
    if (await confirm(`Stop ${name(box)}?`, "Its commands end. Its files stay, and it can be started again.", "Stop"))
        await plain(box, "stop");
}

async function remove(box) {
    if (
        !(await confirm(
            `Delete ${name(box)}?`,
            "Everything in it is killed and its files are gone. Snapshots stay.",
            "Delete",
        ))
    )
        return;
    if (await act(() => request("DELETE", api`sandboxes/${box.id}`), `${name(box)} is deleted`)) go(to`sandboxes`);
}

export async function limits(box) {
    const said = await ask({
        title: `Change ${name(box)}`,
        yes: "Change",
        text: "While it runs, or not. What is left as it is stays.",
        fields: [
            { name: "memory", label: "Memory, bytes", type: "number", min: 1, value: box.memory },
            {
                name: "cpu_percent",
                label: "Processor, percent of a core",
                type: "number",
                min: 1,
                value: box.cpu_percent,
            },
            { name: "pids", label: "Processes", type: "number", min: 1, value: box.pids },
            {
                name: "ttl",
                label: "Lifetime from now",
                placeholder: "as it is",
                help: "30m, 2h, 1d; 0: until it is deleted",
            },
            {
                name: "labels",
                label: "Labels",
                rows: 3,
                help: "KEY=VALUE, a line each",
                value: Object.entries(box.labels)
                    .map(([k, v]) => `${k}=${v}`)
                    .join("\n"),
            },
        ],
    });
    if (!said) return;
    await act(
        async () => {
            const wish = { labels: parsePairs(said.labels) };
            for (const key of ["memory", "cpu_percent", "pids"])
                if (Number(said[key]) !== box[key]) wish[key] = Number(said[key]);
            if (said.ttl) wish.ttl_ms = parseTime(said.ttl);
            await request("PATCH", api`sandboxes/${box.id}`, wish);
        },
        `${name(box)} is changed`,
    );
}

const table = [
    { text: "Start", on: (box) => box.state === "stopped", run: (box) => plain(box, "start") },
    { text: "Resume", on: (box) => box.state === "paused", run: (box) => plain(box, "resume") },
    { text: "Pause", on: (box) => box.state === "running", run: (box) => plain(box, "pause") },
    { text: "Stop", on: (box) => ["running", "paused"].includes(box.state) && box.storage === "disk", run: stop },
    { text: "Snapshot", on: (box) => box.storage === "disk" && box.state !== "failed", run: snapshot },
    { text: "Fork", on: (box) => box.storage === "disk" && box.state !== "failed", run: fork },
    { text: "Change", on: (box) => box.state !== "failed", run: limits },
    { text: "Delete", on: () => true, run: remove, danger: true },
];
export const actionsOf = (box) =>
    table.filter((one) => one.on(box)).map((one) => ({ ...one, run: () => one.run(box) }));

export function Actions({ box }) {
    return (
        <div class="bar actions" role="group" aria-label="Actions">
            {actionsOf(box).map((one) => (
                <button key={one.text} type="button" class={one.danger ? "danger" : ""} onClick={one.run}>
                    {one.text}
                </button>
            ))}
        </div>
    );
}
