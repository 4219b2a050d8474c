// All sandboxes, in a list that draws only what is in sight; lines of cpu and memory for those rows.
import { useEffect } from "preact/hooks";
import { computed } from "@preact/signals";
import { bytes } from "./format.js";
import { route, setQuery, to } from "./router.js";
import { boxList, boxesKnown, mayUse } from "./state.js";
import { stats, watchStats } from "./stats.js";
import { Age, Empty, Labels, Spark, State, Td, Th, Virtual } from "./ui.jsx";

const ROW = 44;
const STATES = ["running", "paused", "stopped", "failed", "creating"];

const TIERS = ["T3", "T1"];

// Words must all be found; "label:env=prod", "state:running", "tier:T1", "image:…" and "project:…" mean that alone.
const tests = {
    label: (box, value) => {
        const [key, ...rest] = value.split("=");
        return key in box.labels && (!rest.length || box.labels[key] === rest.join("="));
    },
    state: (box, value) => box.state === value,
    tier: (box, value) => box.tier === value,
    image: (box, value) => (box.image ?? "").includes(value),
    project: (box, value) => box.egress?.project === value,
};
// What can be searched of a row, made once: a row that changes is another object.
const searched = new WeakMap();
function textOf(box) {
    let text = searched.get(box);
    if (text === undefined) {
        const labels = Object.entries(box.labels).flat().join(" ");
        text = `${box.name ?? ""} ${box.id} ${box.image ?? ""} ${labels}`.toLowerCase();
        searched.set(box, text);
    }
    return text;
}
const testOf = (word) => {
    const [, key, value] = /^(\w+):(.+)$/.exec(word) ?? [];
    if (Object.hasOwn(tests, key ?? "")) return (box) => tests[key](box, value);
    const small = word.toLowerCase();
    return (box) => textOf(box).includes(small);
};

// Times and names are plain ASCII: comparing them by the rules of a language takes longer than all the rest.
const order = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
const sorters = {
    age: (a, b) => order(b.created_at, a.created_at),
    name: (a, b) => order(a.name ?? a.id, b.name ?? b.id),
    cpu: (a, b) => (stats.peek().get(b.id)?.cpu.at(-1) ?? -1) - (stats.peek().get(a.id)?.cpu.at(-1) ?? -1),
    memory: (a, b) => (stats.peek().get(b.id)?.memory.at(-1) ?? -1) - (stats.peek().get(a.id)?.memory.at(-1) ?? -1),
};

const shown = computed(() => {
    const { query } = route.value;
    const fits = (query.get("q") ?? "").split(/\s+/).filter(Boolean).map(testOf),
        state = query.get("state"),
        tier = query.get("tier"),
        project = query.get("project");
    return boxList.value
        .filter(
            (box) =>
                (!state || box.state === state) &&
                (!tier || box.tier === tier) &&
                (!project || box.egress?.project === project) &&
                fits.every((test) => test(box)),
        )
        .sort(sorters[query.get("by")] ?? sorters.age);
});
const projects = computed(() => [...new Set(boxList.value.map((box) => box.egress?.project).filter(Boolean))].sort());

export const tier = (box) => [box.tier, box.user === "root" && "root", box.storage].filter(Boolean).join(" · ");

function Row({ box }) {
    const use = stats.value.get(box.id);
    return (
        <>
            <Td c="name">
                <a href={to`sandboxes/${box.id}`}>{box.name || box.id}</a>
                {box.name && <span class="quiet id">{box.id}</span>}
            </Td>
            <Td c="st">
                <State state={box.state} asleep={box.asleep} />
            </Td>
            <Td c="cpu">
                {box.state === "running" && use && (
                    <>
                        <Spark
                            values={use.cpu.slice(-30)}
                            max={box.cpu_percent / 8}
                            label={`Processor ${Math.round(use.cpu.at(-1))} percent`}
                        />
                        <span class="quiet">{Math.round(use.cpu.at(-1))} %</span>
                    </>
                )}
            </Td>
            <Td c="mem">
                {box.state === "running" && use && (
                    <>
                        <Spark
                            values={use.memory.slice(-30)}
                            max={box.memory / 32}
                            label={`Memory ${bytes(use.memory.at(-1))}`}
                        />
                        <span class="quiet">{bytes(use.memory.at(-1))}</span>
                    </>
                )}
            </Td>
            <Td c="run">{box.execs_running > 0 && `${box.execs_running} run`}</Td>
            <Td c="tier quiet">{tier(box)}</Td>
            <Td c="labels">
                <Labels labels={box.labels} />
            </Td>
            <Td c="age">
                <Age since={box.created_at} />
            </Td>
        </>
    );
}

// What a person who has just installed the server needs next.
function FirstSteps() {
    const steps = [
        ["Run one command in a fresh sandbox, with the files of this directory", "atoll run -- python3 -V"],
        ["Create a sandbox that stays, and open a shell in it", "atoll create --name box && atoll shell box"],
        [
            "Let an agent work on a repository: its key stays outside, the network is limited to one provider",
            "atoll secret set ANTHROPIC_API_KEY --host api.anthropic.com\n" +
                "atoll run --pack anthropic --secret ANTHROPIC_API_KEY --patch fix.patch -- " +
                'claude -p "make the tests pass"',
        ],
    ];
    return (
        <section class="card" aria-label="First steps">
            <h2>There is no sandbox yet</h2>
            <p>
                {mayUse.value ? (
                    <>
                        <a href={to`new`}>Create one here</a>, or type one of these commands on the machine of this
                        server:
                    </>
                ) : (
                    "Sandboxes appear here as soon as somebody creates one."
                )}
            </p>
            {mayUse.value &&
                steps.map(([text, command]) => (
                    <div key={text}>
                        <p class="quiet">{text}</p>
                        <pre tabindex={0}>{command}</pre>
                    </div>
                ))}
        </section>
    );
}

export function Sandboxes() {
    const { query } = route.value;
    useEffect(() => () => watchStats("list", []), []);
    const list = shown.value;
    return (
        <main id="main" tabindex={-1} class="fill">
            <div class="bar">
                <h1>Sandboxes</h1>
                <span class="quiet">
                    {list.length === boxList.value.length ? list.length : `${list.length} of ${boxList.value.length}`}
                </span>
                <input
                    type="search"
                    aria-label="Filter"
                    placeholder="name, id, label:env=prod, image:…"
                    value={query.get("q") ?? ""}
                    onInput={(e) => setQuery({ q: e.currentTarget.value })}
                />
                <select
                    aria-label="State"
                    value={query.get("state") ?? ""}
                    onChange={(e) => setQuery({ state: e.currentTarget.value })}>
                    <option value="">any state</option>
                    {STATES.map((state) => (
                        <option key={state} value={state}>
                            {state}
                        </option>
                    ))}
                </select>
                <select
                    aria-label="Tier"
                    value={query.get("tier") ?? ""}
                    onChange={(e) => setQuery({ tier: e.currentTarget.value })}>
                    <option value="">any tier</option>
                    {TIERS.map((one) => (
                        <option key={one} value={one}>
                            {one}
                        </option>
                    ))}
                </select>
                {projects.value.length > 0 && (
                    <select
                        aria-label="Project"
                        value={query.get("project") ?? ""}
                        onChange={(e) => setQuery({ project: e.currentTarget.value })}>
                        <option value="">any project</option>
                        {projects.value.map((one) => (
                            <option key={one} value={one}>
                                {one}
                            </option>
                        ))}
                    </select>
                )}
                <select
                    aria-label="Order"
                    value={query.get("by") ?? "age"}
                    onChange={(e) => setQuery({ by: e.currentTarget.value })}>
                    <option value="age">newest first</option>
                    <option value="name">by name</option>
                    <option value="cpu">by processor</option>
                    <option value="memory">by memory</option>
                </select>
                {mayUse.value && (
                    <a class="button primary" href={to`new`}>
                        New sandbox
                    </a>
                )}
            </div>
            {boxesKnown.value && list.length === 0 ? (
                boxList.value.length ? (
                    <Empty>No sandbox matches the filter.</Empty>
                ) : (
                    <FirstSteps />
                )
            ) : (
                <Virtual
                    items={list}
                    height={ROW}
                    keyOf={(box) => box.id}
                    label="Sandboxes"
                    columns="boxes"
                    onRange={(rows) =>
                        watchStats(
                            "list",
                            rows.filter((box) => box.state === "running").map((box) => box.id),
                        )
                    }
                    head={
                        <>
                            <Th c="name">Name</Th>
                            <Th c="st">State</Th>
                            <Th c="cpu">Processor</Th>
                            <Th c="mem">Memory</Th>
                            <Th c="run">Commands</Th>
                            <Th c="tier">Tier</Th>
                            <Th c="labels">Labels</Th>
                            <Th c="age">Age</Th>
                        </>
                    }
                    render={(box) => <Row box={box} />}
                />
            )}
        </main>
    );
}
