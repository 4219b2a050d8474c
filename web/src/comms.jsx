// Who talks to whom: a graph that moves as they do, what happens as it happens, conversations, and a word of one's own.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { get } from "./api.js";
import { NoHub } from "./board.jsx";
import { agents, change, chosen, eventInProject, hub, hubState, inProject, isHub, useHub, utc } from "./hub.js";
import { moment } from "./format.js";
import { go, route, setQuery, to } from "./router.js";
import { events, hear, mayUse, readOlder, resets } from "./state.js";
import { Clock, Empty, Failed, act, useLoad, useReloadOn } from "./ui.jsx";

const W = 520,
    H = 340,
    FEED = 300,
    FEED_MIN = 100, // entries that are looked for among older events when the view opens
    PAGES_MAX = 10, // of events, for that
    PULSE_MS = 1500;

export function Comms({ second: one, third: two }) {
    useHub();
    if (hubState.value === "none") return <NoHub />;
    return (
        <main id="main" tabindex={-1} class="page">
            <div class="bar">
                <h1>Communications</h1>
                {chosen.value && <span class="quiet">in {chosen.value.name}</span>}
            </div>
            <div class="cards">
                <Graph one={one} two={two} />
                {one ? <Conversation key={one + "/" + two} one={one} two={two} /> : <Feed />}
                {mayUse.value && <Compose key={`${one}/${two}`} one={one} two={two} />}
                {one && <Feed />}
            </div>
        </main>
    );
}

function Graph({ one, two }) {
    const graph = useLoad(() => get("/messages/graph"), [agents.value.length, resets.value]);
    const pulses = useSignal({}); // "a b" → when
    useReloadOn(graph.reload, ({ type }) => type === "message_sent", []);
    useEffect(
        () =>
            hear(({ type, data }) => {
                if (type !== "message_sent") return;
                const key = JSON.stringify([data.from, data.to]);
                pulses.value = { ...pulses.value, [key]: Date.now() };
                setTimeout(() => {
                    const { [key]: _, ...rest } = pulses.value;
                    pulses.value = rest;
                }, PULSE_MS);
            }),
        [],
    );
    const nodes = (graph.data?.nodes ?? []).filter((node) => inProject(node.id)),
        edges = (graph.data?.edges ?? []).filter((edge) => inProject(edge.from) && inProject(edge.to));
    const place = new Map(
        nodes.map((node, i) => {
            const turn = (2 * Math.PI * i) / nodes.length - Math.PI / 2;
            return [
                node.id,
                {
                    x: W / 2 + (nodes.length > 1 ? (W / 2 - 60) * Math.cos(turn) : 0),
                    y: H / 2 + (nodes.length > 1 ? (H / 2 - 50) * Math.sin(turn) : 0),
                },
            ];
        }),
    );
    const select = (id) => go(one && one !== id ? to`communications/${one}/${id}` : to`communications/${id}`);
    return (
        <section class="card" aria-label="Message flow">
            <h2>Who talks to whom</h2>
            {graph.error && <Failed error={graph.error} again={graph.reload} />}
            {graph.data && nodes.length === 0 && (
                <Empty>{chosen.value ? "No agent is a member of it." : "No agent has registered."}</Empty>
            )}
            {nodes.length > 0 && (
                <svg
                    class="graph"
                    viewBox={`0 0 ${W} ${H}`}
                    role="group"
                    aria-label={`${nodes.length} agents, ${edges.length} ways`}>
                    {edges.map(({ from, to: into, count }) => {
                        const a = place.get(from),
                            b = place.get(into);
                        if (!a || !b) return null;
                        const bend = {
                            x: (a.x + b.x) / 2 + (b.y - a.y) * 0.12,
                            y: (a.y + b.y) / 2 - (b.x - a.x) * 0.12,
                        };
                        const hot = pulses.value[JSON.stringify([from, into])];
                        return (
                            <g
                                key={JSON.stringify([from, into])}
                                class={"edge" + (hot ? " hot" : "")}
                                data-edge={`${from} ${into}`}>
                                <path
                                    d={`M${a.x} ${a.y} Q${bend.x} ${bend.y} ${b.x} ${b.y}`}
                                    stroke-width={Math.min(5, 1 + count * 0.5)}
                                />
                                <text x={bend.x} y={bend.y}>
                                    {count}
                                </text>
                            </g>
                        );
                    })}
                    {nodes.map((node) => {
                        const at = place.get(node.id);
                        return (
                            <a
                                key={node.id}
                                href={to`communications/${node.id}`}
                                onClick={(e) => {
                                    e.preventDefault();
                                    select(node.id);
                                }}
                                aria-label={`Messages of ${node.id}`}
                                class={"node" + ([one, two].includes(node.id) ? " on" : "")}>
                                <circle cx={at.x} cy={at.y} r="18" />
                                <text x={at.x} y={at.y + 34}>
                                    {node.id.length > 18 ? node.id.slice(0, 17) + "…" : node.id}
                                </text>
                                <text x={at.x} y={at.y + 5} class="short">
                                    {[...node.id].slice(0, 2).join("")}
                                </text>
                            </a>
                        );
                    })}
                </svg>
            )}
            <p class="quiet">Choose one for its mail, and another for what the two said.</p>
        </section>
    );
}

const people = {
    message_sent: (d) => `${d.from} → ${d.to ?? "#" + d.channel}: ${d.content}`,
    task_transition: (d) => `${d.by || "somebody"} moved "${d.title}" to ${d.new_status}`,
    task_claimed: (d) => `${d.agent} claimed "${d.title}"`,
    task_created: (d) => `new task "${d.task?.title}"`,
    agent_registered: (d) => `${d.name} registered (${d.type})`,
    agent_offline: (d) => `${d.name} is silent`,
    agent_online: (d) => `${d.name} is heard again`,
    agent_paused: (d) => `${d.name} is paused: ${d.reason}`,
    agent_revoked: (d) => `${d.agent} is revoked: ${d.reason}`,
    task_commented: (d) => `${d.author} about "${d.title}": ${d.text}`,
    checkpoint_submitted: (d) => `${d.agent} left checkpoint ${d.sequence}: ${d.state}`,
};
const sentence = ({ type, data }) =>
    people[type]?.(data ?? {}) ??
    Object.values(data ?? {})
        .filter((value) => typeof value !== "object")
        .join(", ");

function Feed() {
    const { query } = route.value;
    const kind = query.get("kind") ?? "",
        words = (query.get("q") ?? "").toLowerCase();
    const shown = useSignal(FEED),
        none = useSignal(false);
    const more = () =>
        act(async () => {
            shown.value += FEED;
            none.value = !(await readOlder());
        });
    // Events of sandboxes may have pushed those of the hub out of the newest ones.
    useEffect(() => {
        (async () => {
            for (let page = 0; page < PAGES_MAX && events.value.filter(isHub).length < FEED_MIN; page++)
                if (!(await readOlder())) {
                    none.value = true;
                    return;
                }
        })().catch(() => {}); // the button tries again, and says why not
    }, [resets.value]);
    const list = [];
    for (const event of events.value) {
        if (list.length === shown.value) break; // the newest: the rest is not looked at
        if (
            isHub(event) &&
            event.type.startsWith(kind) &&
            eventInProject(event) &&
            `${event.type} ${sentence(event)}`.toLowerCase().includes(words)
        )
            list.push(event);
    }
    return (
        <section class="card" aria-label="Feed">
            <div class="bar">
                <h2>As it happens</h2>
                <select aria-label="Kind" value={kind} onChange={(e) => setQuery({ kind: e.currentTarget.value })}>
                    {[
                        ["", "everything"],
                        ["message_", "messages"],
                        ["task_", "tasks"],
                        ["agent_", "agents"],
                        ["proposal_", "proposals"],
                        ["file_", "files"],
                        ["lease_", "leases"],
                    ].map(([value, text]) => (
                        <option key={value} value={value}>
                            {text}
                        </option>
                    ))}
                </select>
                <input
                    type="search"
                    aria-label="Filter"
                    placeholder="any word"
                    value={query.get("q") ?? ""}
                    onInput={(e) => setQuery({ q: e.currentTarget.value })}
                />
            </div>
            {list.length === 0 && <Empty>Nothing has happened yet.</Empty>}
            <ol class="rows feed" tabindex={0} aria-label="Events of the hub">
                {list.map((event) => (
                    <li key={event.seq} class="bar">
                        <Clock at={event.time} />
                        <span class={"chip k-" + event.type.split("_")[0]}>{event.type}</span>
                        <span class="grow">{sentence(event)}</span>
                    </li>
                ))}
            </ol>
            <button type="button" onClick={more} disabled={none.value && list.length < shown.value}>
                {none.value && list.length < shown.value ? "No older ones are kept" : "Older"}
            </button>
        </section>
    );
}

function Conversation({ one, two }) {
    const path = two
        ? hub`messages/history/${one}/${two}` + "?limit=200"
        : hub`messages/${one}` + "?peek=true&limit=200";
    const list = useLoad(async () => {
        const items = await get(path);
        return two ? items.reverse() : items;
    }, [one, two, resets.value]);
    useReloadOn(list.reload, ({ type, data }) => type === "message_sent" && [data.from, data.to].includes(one), [
        one,
        two,
    ]);
    return (
        <section class="card" aria-label="Conversation">
            <div class="bar">
                <h2>{two ? `${one} and ${two}` : `Mail of ${one}`}</h2>
                <a class="button" href={to`communications`}>
                    All
                </a>
            </div>
            {list.error && <Failed error={list.error} again={list.reload} />}
            {list.data?.length === 0 && <Empty>Not a word yet.</Empty>}
            <ol class="talk" tabindex={0} aria-label="Messages">
                {list.data?.map((each) => (
                    <li key={each.id} class={each.from === one ? "mine" : ""}>
                        <div class="quiet">
                            <b>{each.from}</b>
                            {each.channel && ` in #${each.channel}`} {moment(utc(each.timestamp))}
                            {each.acknowledged ? ", read" : ""}
                        </div>
                        <div class="said">{each.content}</div>
                    </li>
                ))}
            </ol>
        </section>
    );
}

function Compose({ one, two }) {
    const text = useSignal(""),
        whom = useSignal(two ?? one ?? "");
    const channels = useLoad(() => get("/channels").catch(() => []), [resets.value]);
    const send = async (event) => {
        event.preventDefault();
        if (!text.value.trim() || !whom.value) return;
        const channel = whom.value.startsWith("#") && whom.value.slice(1);
        if (
            await act(
                () =>
                    channel
                        ? change("POST", hub`channels/${channel}/send`, { from: "human", content: text.value })
                        : change("POST", "/messages/send", { from: "human", to: whom.value, content: text.value }),
                "Sent",
            )
        )
            text.value = "";
    };
    return (
        <section class="card" aria-label="Compose">
            <h2>Say something</h2>
            <form class="bar" onSubmit={send}>
                <select
                    aria-label="To"
                    value={whom.value}
                    onChange={(e) => {
                        whom.value = e.currentTarget.value;
                    }}>
                    <option value="">to…</option>
                    {agents.value.map((each) => (
                        <option key={each.name} value={each.name}>
                            {each.name}
                        </option>
                    ))}
                    <option value="#all">#all</option>
                    {(channels.data ?? [])
                        .filter((each) => each.name !== "all")
                        .map((each) => (
                            <option key={each.name} value={"#" + each.name}>
                                #{each.name}
                            </option>
                        ))}
                </select>
                <textarea
                    rows={2}
                    class="grow"
                    aria-label="Message"
                    value={text.value}
                    onInput={(e) => {
                        text.value = e.currentTarget.value;
                    }}
                    onKeyDown={(e) => {
                        if (e.key === "Enter" && !e.shiftKey) {
                            e.preventDefault();
                            e.currentTarget.form.requestSubmit();
                        }
                    }}
                />
                <button type="submit" class="primary">
                    Send
                </button>
            </form>
        </section>
    );
}
