// One sandbox: its head with what can be done, and a tab for each side of it.
import { useEffect } from "preact/hooks";
import { Actions } from "./actions.jsx";
import { api, get } from "./api.js";
import { Commands } from "./commands.jsx";
import { Egress } from "./egress.jsx";
import { EventTable } from "./events.jsx";
import { Files } from "./files.jsx";
import { bytes, duration, moment, now, number } from "./format.js";
import { Ports } from "./ports.jsx";
import { to } from "./router.js";
import { Snapshots } from "./snapshots.jsx";
import { boxes, boxesKnown, events, mayUse } from "./state.js";
import { stats, watchStats } from "./stats.js";
import { tier } from "./sandboxes.jsx";
import { Empty, Facts, Failed, Labels, Lazy, State, Tabs, useLoad, useReloadOn } from "./ui.jsx";

const TIER_HELP = {
    T1: "T1: namespaces, limits and seccomp; programs inside may make sandboxes of their own",
    T3: "T3: namespaces, limits, seccomp, Landlock, and a network that only the policy opens",
};

const tabs = [
    ["overview", "Overview", Overview],
    ["terminals", "Terminals", (props) => <Lazy load={() => import("./terminals.jsx")} name="Terminals" {...props} />],
    ["commands", "Commands", Commands],
    ["files", "Files", Files],
    ["ports", "Ports", Ports],
    ["egress", "Network", Egress],
    ["snapshots", "Snapshots", Snapshots],
    ["events", "Events", BoxEvents],
];

export function Detail({ id, tab, rest }) {
    const box = boxes.value.get(id);
    if (!box) {
        if (!boxesKnown.value)
            return (
                <main id="main" tabindex={-1} class="page">
                    <p>Looking…</p>
                </main>
            );
        return <Elsewhere id={id} />;
    }
    const Body = (tabs.find(([key]) => key === tab) ?? tabs[0])[2];
    return (
        <main id="main" tabindex={-1} class="detail">
            <div class="head">
                <div class="bar">
                    <h1>{box.name || box.id}</h1>
                    <State state={box.state} asleep={box.asleep} />
                    {box.name && <code class="quiet id">{box.id}</code>}
                    {mayUse.value && <Actions box={box} />}
                </div>
                {box.reason && <p class="quiet">{box.reason}</p>}
                <Tabs
                    label="Sides of this sandbox"
                    at={tab}
                    tabs={tabs.map(([key, text]) => [
                        key,
                        text,
                        to`sandboxes/${id}/${key}`,
                        key === "commands" ? box.execs_running : 0,
                    ])}
                />
            </div>
            <Body box={box} rest={rest} />
        </main>
    );
}

// It is gone, or the address has its name instead of its id.
function Elsewhere({ id }) {
    const found = useLoad(() => get(api`sandboxes/${id}`), [id, boxes.value.size]);
    useEffect(() => {
        if (found.data && found.data.id !== id) location.replace(to`sandboxes/${found.data.id}`);
    }, [found.data]);
    return (
        <main id="main" tabindex={-1} class="page">
            {found.error?.status === 404 ? (
                <>
                    <h1>It is gone</h1>
                    <p>
                        There is no sandbox {id}. <a href={to`sandboxes`}>To the list</a>
                    </p>
                </>
            ) : found.error ? (
                <Failed error={found.error} again={found.reload} />
            ) : (
                <p>Looking…</p>
            )}
        </main>
    );
}

function Overview({ box }) {
    useEffect(() => {
        watchStats("detail", box.state === "running" ? [box.id] : []);
        return () => watchStats("detail", []);
    }, [box.id, box.state]);
    return (
        <div class="cards">
            <section class="card">
                <h2>About</h2>
                <Facts
                    rows={[
                        ["created", moment(box.created_at)],
                        ["by", box.by],
                        box.owner !== box.by && ["owner", box.owner],
                        box.visibility === "tenant" && ["visibility", "every agent of the tenant may use it"],
                        box.shared_with.length > 0 && ["shared with", box.shared_with.join(", ")],
                        ["image", box.image ?? "this machine's programs, read-only"],
                        box.template && ["template", box.template],
                        ["isolation", <span title={TIER_HELP[box.tier]}>{tier(box)}</span>],
                        ["commands run as", box.user],
                        box.expires_at && ["deleted in", duration(Date.parse(box.expires_at) - now.value)],
                        box.idle && ["when idle", `${box.idle.action} after ${duration(box.idle.after_ms)}`],
                        Object.keys(box.labels).length > 0 && ["labels", <Labels labels={box.labels} />],
                        Object.keys(box.env).length > 0 && ["environment", Object.keys(box.env).join(" ")],
                        ...box.volumes.map((one) => [
                            `volume ${one.volume}`,
                            `${one.path}${one.read_only ? " (read only)" : ""}`,
                        ]),
                        ...box.binds.map((one) => ["directory of the machine", one.path]),
                        ...box.files.map((one) => [`may ${one.access}`, one.path]),
                    ]}
                />
            </section>
            <section class="card">
                <h2>Limits</h2>
                <Facts
                    rows={[
                        ["memory", bytes(box.memory)],
                        ["processor", `${box.cpu_percent} %`],
                        box.io_bytes > 0 && ["disk bytes a second", bytes(box.io_bytes)],
                        box.io_ops > 0 && ["disk operations a second", number(box.io_ops)],
                        ["processes", number(box.pids)],
                        ["disk", bytes(box.disk)],
                        box.inodes > 0 && ["files", number(box.inodes)],
                        ["open files of each", number(box.nofile)],
                    ]}
                />
            </section>
            {box.state === "running" && <Use box={box} />}
            {box.state === "running" && <Processes box={box} />}
            <Applied box={box} />
        </div>
    );
}

function Use({ box }) {
    const use = stats.value.get(box.id);
    return (
        <section class="card wide">
            <h2>Use</h2>
            {use ? (
                <p class="quiet">
                    {Math.round(use.cpu.at(-1))} % processor, {bytes(use.memory.at(-1))} of memory (at most{" "}
                    {bytes(use.last.memory_peak)}), {use.pids.at(-1)} processes
                    {use.last.oom_kills > 0 && `, ${use.last.oom_kills} killed for want of memory`}
                </p>
            ) : (
                <p class="quiet">Looking…</p>
            )}
            {use && use.t.length > 1 && (
                <div class="charts">
                    <Lazy
                        load={() => import("./chart.jsx")}
                        name="Chart"
                        title="Processor, %"
                        t={use.t}
                        values={use.cpu}
                        top={Math.max(10, ...use.cpu)}
                    />
                    <Lazy
                        load={() => import("./chart.jsx")}
                        name="Chart"
                        title="Memory"
                        t={use.t}
                        values={use.memory}
                        top={Math.max(1 << 20, ...use.memory)}
                        format={bytes}
                    />
                </div>
            )}
        </section>
    );
}

function Processes({ box }) {
    const list = useLoad(
        () => get(api`sandboxes/${box.id}/processes`),
        [box.id, stats.value.get(box.id)?.pids.at(-1)],
    );
    useReloadOn(list.reload, ({ type, data }) => type.startsWith("exec.") && data.sandbox === box.id, [box.id]);
    return (
        <section class="card wide">
            <div class="bar">
                <h2>Processes</h2>
                <button type="button" onClick={list.reload}>
                    Look again
                </button>
            </div>
            {list.error && <Failed error={list.error} />}
            <div class="sideways" tabindex={0} role="region" aria-label="Processes">
                <table>
                    <thead>
                        <tr>
                            <th>pid</th>
                            <th>parent</th>
                            <th>user</th>
                            <th>state</th>
                            <th>threads</th>
                            <th>memory</th>
                            <th>processor</th>
                            <th>command</th>
                        </tr>
                    </thead>
                    <tbody>
                        {list.data?.items.map((one) => (
                            <tr key={one.pid}>
                                <td>{one.pid}</td>
                                <td>{one.parent}</td>
                                <td>{one.uid}</td>
                                <td>{one.state}</td>
                                <td>{one.threads}</td>
                                <td>{bytes(one.rss)}</td>
                                <td>{(one.cpu_us / 1e6).toFixed(2)} s</td>
                                <td class="mono cut">{one.command}</td>
                            </tr>
                        ))}
                    </tbody>
                </table>
            </div>
        </section>
    );
}

function Applied({ box }) {
    const up = ["running", "paused"].includes(box.state);
    const found = useLoad(
        () => (up ? get(api`sandboxes/${box.id}/applied`) : null),
        [box.id, box.state, box.memory, box.pids, box.cpu_percent],
    );
    return (
        <section class="card wide" aria-label="Layers">
            <h2>What isolates it, as the kernel says</h2>
            {!up && <Empty>It does not run.</Empty>}
            {found.error && <Failed error={found.error} again={found.reload} />}
            {up && found.data && (
                <div class="sideways" tabindex={0} role="region" aria-label="Layers applied">
                    <table>
                        <thead>
                            <tr>
                                <th>layer</th>
                                <th>asked for</th>
                                <th>applied</th>
                                <th>lost</th>
                            </tr>
                        </thead>
                        <tbody>
                            {found.data.layers.map((one) => (
                                <tr key={one.layer} class={one.lost ? "lost" : ""}>
                                    <th scope="row">{one.layer}</th>
                                    <td>{one.asked}</td>
                                    <td class="cut">{one.applied}</td>
                                    <td>{one.lost ?? "nothing"}</td>
                                </tr>
                            ))}
                        </tbody>
                    </table>
                </div>
            )}
        </section>
    );
}

function BoxEvents({ box }) {
    const list = events.value.filter(
        (event) => event.data?.sandbox === box.id || event.object === `sandbox/${box.id}`,
    );
    return <EventTable list={list} label={`Events of ${box.name || box.id}`} />;
}
