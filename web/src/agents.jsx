// Agents of the hub: who they are, what they may by themselves, and the people's brakes.
import { api, get } from "./api.js";
import { NoHub } from "./board.jsx";
import { number } from "./format.js";
import {
    MODES,
    agents,
    change,
    chosen as project,
    globalMode,
    hub,
    hubError,
    hubState,
    inProject,
    proposals,
    readHub,
    useHub,
    utc,
} from "./hub.js";
import { go, route, setQuery, to } from "./router.js";
import { events, maySteer, resets } from "./state.js";
import { Age, Clock, Empty, Facts, Failed, State, act, ask, useLoad, useReloadOn } from "./ui.jsx";

const STATUSES = ["online", "busy", "stalled", "offline", "revoked"];
const does = (method, path, body, done) =>
    act(async () => {
        await change(method, path, body);
        readHub();
    }, done);

export async function pause(name) {
    const said = await ask({
        title: `Pause ${name}?`,
        yes: "Pause",
        danger: false,
        text: "It takes no tasks and sends nothing until it is resumed.",
        fields: [{ name: "reason", label: "Reason" }],
    });
    if (said) await does("POST", hub`agents/${name}/pause`, { reason: said.reason }, `${name} is paused`);
}
async function revoke(name) {
    const said = await ask({
        title: `Revoke ${name}?`,
        yes: "Revoke",
        text: "It must stop; sandboxes with the label agent=" + name + " are frozen at once.",
        fields: [
            { name: "reason", label: "Reason", required: true },
            {
                name: "flush",
                label: "Its work",
                options: [
                    ["1", "it may save it"],
                    ["", "is dropped"],
                ],
            },
        ],
    });
    if (said)
        await does(
            "POST",
            hub`agents/${name}/revoke`,
            { reason: said.reason, flush_required: said.flush === "1" },
            `${name} is revoked`,
        );
}
async function capabilities(one) {
    const said = await ask({
        title: `What ${one.name} can`,
        yes: "Set it",
        danger: false,
        fields: [
            { name: "tags", label: "Capabilities", value: one.capabilities.join(", "), placeholder: "code, review" },
            { name: "description", label: "Description", rows: 2, value: one.description ?? "" },
        ],
    });
    if (said)
        await does("POST", hub`agents/${one.name}/capabilities`, {
            tags: said.tags
                .split(",")
                .map((tag) => tag.trim())
                .filter(Boolean),
            description: said.description,
        });
}

export function Agents({ second: chosen }) {
    useHub();
    const { query } = route.value;
    const work = useLoad(
        () => (hubState.value === "there" ? get(hub`tasks` + "?status=in_progress") : null),
        [hubState.value, resets.value],
    );
    useReloadOn(work.reload, ({ type }) => type.startsWith("task_") || type === "project_deleted", []);
    if (hubState.value === "none") return <NoHub />;
    const status = query.get("status") ?? "",
        words = (query.get("q") ?? "").toLowerCase();
    const list = agents.value.filter(
        (one) =>
            inProject(one.name) &&
            (!status || one.status === status) &&
            `${one.name} ${one.type} ${one.capabilities.join(" ")}`.toLowerCase().includes(words),
    );
    const one = agents.value.find((each) => each.name === chosen);
    return (
        <main id="main" tabindex={-1} class="page">
            <div class="bar">
                <h1>Agents</h1>
                <span class="quiet">
                    {list.length}
                    {project.value && ` in ${project.value.name}`}
                </span>
                <input
                    type="search"
                    aria-label="Filter"
                    placeholder="name, type, capability"
                    value={query.get("q") ?? ""}
                    onInput={(e) => setQuery({ q: e.currentTarget.value })}
                />
                <select
                    aria-label="Status"
                    value={status}
                    onChange={(e) => setQuery({ status: e.currentTarget.value })}>
                    <option value="">any status</option>
                    {STATUSES.map((each) => (
                        <option key={each} value={each}>
                            {each}
                        </option>
                    ))}
                </select>
                {maySteer.value && (
                    <select
                        aria-label="Mode of all"
                        value=""
                        onChange={(e) =>
                            does(
                                "POST",
                                "/autonomy/set-mode",
                                { mode: e.currentTarget.value },
                                "All of them, and those to come",
                            )
                        }>
                        <option value="">
                            everyone: {MODES.find(([mode]) => mode === globalMode.value)?.[1] ?? "as it is"}
                        </option>
                        {MODES.map(([mode, text]) => (
                            <option key={mode} value={mode}>
                                everyone {text}
                            </option>
                        ))}
                    </select>
                )}
            </div>
            {hubError.value && <Failed error={hubError.value} again={() => readHub()} />}
            <Proposals />
            {hubState.value === "there" && list.length === 0 && (
                <Empty>{agents.value.length ? "None is like that." : "No agent has registered."}</Empty>
            )}
            {list.length > 0 && (
                <div class="sideways card registry" tabindex={0} role="region" aria-label="Registry">
                    <table>
                        <thead>
                            <tr>
                                <th>name</th>
                                <th>status</th>
                                <th>mode</th>
                                <th>capabilities</th>
                                <th>task</th>
                                <th>heard</th>
                                <th>unread</th>
                                <th>
                                    <span class="sr">steps</span>
                                </th>
                            </tr>
                        </thead>
                        <tbody>
                            {list.map((each) => (
                                <Row
                                    key={each.name}
                                    one={each}
                                    work={(work.data ?? []).filter((task) => task.assigned_to === each.name)}
                                />
                            ))}
                        </tbody>
                    </table>
                </div>
            )}
            {one && <One key={one.name} one={one} />}
            <Revocations />
        </main>
    );
}

function Row({ one, work }) {
    const halted = ["busy", "revoked"].includes(one.status);
    return (
        <tr>
            <th scope="row">
                <a href={to`agents/${one.name}`}>{one.name}</a> <span class="quiet">{one.type}</span>
            </th>
            <td>
                <State state={one.status} />
                {one.paused_reason && <div class="quiet">{one.paused_reason}</div>}
            </td>
            <td>
                {maySteer.value ? (
                    <select
                        aria-label={`Mode of ${one.name}`}
                        value={one.autonomy_mode}
                        onChange={(e) =>
                            does("POST", hub`agents/${one.name}/autonomy`, { mode: e.currentTarget.value })
                        }>
                        {MODES.map(([mode, text]) => (
                            <option key={mode} value={mode}>
                                {text}
                            </option>
                        ))}
                    </select>
                ) : (
                    one.autonomy_mode
                )}
            </td>
            <td>
                {one.capabilities.map((tag) => (
                    <span key={tag} class="label">
                        {tag}
                    </span>
                ))}
            </td>
            <td>
                {work.map((task) => (
                    <div key={task.id} class="cut">
                        <a href={to`board/${task.project_id}/${task.id}`}>{task.title}</a>
                    </div>
                ))}
            </td>
            <td>
                {one.last_heartbeat ? (
                    <>
                        <Age since={utc(one.last_heartbeat)} /> ago
                    </>
                ) : (
                    "never"
                )}
            </td>
            <td class="unread">{number(one.unread ?? 0)}</td>
            <td>
                {maySteer.value && (
                    <div class="bar">
                        {halted ? (
                            <button
                                type="button"
                                onClick={() =>
                                    does("POST", hub`agents/${one.name}/resume`, {}, `${one.name} goes on`)
                                }>
                                Resume
                            </button>
                        ) : (
                            <button type="button" onClick={() => pause(one.name)}>
                                Pause
                            </button>
                        )}
                        {one.status !== "revoked" && (
                            <button type="button" class="danger" onClick={() => revoke(one.name)}>
                                Revoke
                            </button>
                        )}
                    </div>
                )}
            </td>
        </tr>
    );
}

// Those among the newest events, also from before this page was opened. The log has no index of them, so that
// it is read backwards, and not without end.
const CHECKPOINTS = 200,
    PAGE = 1000,
    PAGES = 10;
async function checkpointsOf(name) {
    const filter = `type=checkpoint_submitted&object=${encodeURIComponent("hub/agent/" + name)}`;
    const { head, floor } = await get(api`events` + "?limit=1");
    const found = [];
    for (let end = head, pages = 0; end > (floor ?? 0) && pages < PAGES && found.length < CHECKPOINTS; pages++) {
        const since = Math.max(floor ?? 0, end - PAGE);
        const page = await get(api`events` + `?${filter}&limit=${PAGE}&since=${since}`);
        found.push(...page.items.filter((event) => event.seq <= end));
        end = since;
    }
    return found;
}

function One({ one }) {
    const newest = useLoad(
        () => (one.checkpoint_sequence > 0 ? get(hub`agents/${one.name}/checkpoint`) : null),
        [one.name, one.checkpoint_sequence, resets.value],
    );
    const earlier = useLoad(() => checkpointsOf(one.name), [one.name, resets.value]);
    const live = events.value.filter(({ type, data }) => type === "checkpoint_submitted" && data.agent === one.name);
    const past = [...new Map([...(earlier.data ?? []), ...live].map((event) => [event.seq, event])).values()]
        .sort((a, b) => b.seq - a.seq)
        .slice(0, CHECKPOINTS);
    return (
        <section class="card" aria-label={`Agent ${one.name}`}>
            <div class="bar">
                <h2>{one.name}</h2>
                {maySteer.value && (
                    <button type="button" onClick={() => capabilities(one)}>
                        Capabilities
                    </button>
                )}
                <a class="button" href={to`communications/${one.name}`}>
                    Messages
                </a>
                <button type="button" class="icon" aria-label="Close the agent" onClick={() => go(to`agents`)}>
                    ×
                </button>
            </div>
            <Facts
                rows={[
                    ["type", one.type],
                    ["registered", <Clock at={utc(one.registered_at)} />],
                    one.description && ["about", one.description],
                    ["checkpoints", number(Math.max(one.checkpoint_sequence, past.length))],
                ]}
            />
            <h3>Checkpoints</h3>
            {newest.error && <Failed error={newest.error} />}
            {newest.data && (
                <Facts
                    rows={[
                        ["newest", `number ${newest.data.sequence}`],
                        ["task", newest.data.task_id ?? "none"],
                        ["state", newest.data.state],
                        newest.data.rationale && ["why", newest.data.rationale],
                    ]}
                />
            )}
            {!newest.data && past.length === 0 && <Empty>It has left none.</Empty>}
            <ol class="timeline" aria-label="Checkpoints">
                {past.map((event) => (
                    <li key={event.seq}>
                        <Clock at={event.time} /> <b>{event.data.sequence}</b> {event.data.state}{" "}
                        <span class="quiet">{event.data.task_id ?? ""}</span>
                    </li>
                ))}
            </ol>
        </section>
    );
}

function Proposals() {
    const decide = async (one, what) => {
        const said = await ask({
            title: `${what === "approve" ? "Approve" : "Reject"}: ${one.agent} wants "${one.title}"`,
            yes: what === "approve" ? "Approve" : "Reject",
            danger: what !== "approve",
            fields: [{ name: "note", label: "Note" }],
        });
        if (said)
            await does(
                "POST",
                hub`proposals/${one.id}/${what}`,
                said.note ? { note: said.note } : {},
                what === "approve" ? "Approved" : "Rejected",
            );
    };
    const list = proposals.value.filter((one) => !project.value || one.project === project.value.id);
    if (!list.length) return null;
    return (
        <section class="card" aria-label="Proposals">
            <h2>Proposals</h2>
            <ul class="rows">
                {list.map((one) => (
                    <li key={one.id} class="bar">
                        <b>{one.agent}</b>
                        <span>{one.status ? `wants to move to ${one.status}` : "wants"}</span>
                        <a href={to`board/${one.project}/${one.task_id}`}>{one.title}</a>
                        <span class="quiet">
                            <Age since={utc(one.created_at)} /> ago
                        </span>
                        {maySteer.value && (
                            <>
                                <button type="button" class="primary" onClick={() => decide(one, "approve")}>
                                    Approve
                                </button>
                                <button type="button" class="danger" onClick={() => decide(one, "reject")}>
                                    Reject
                                </button>
                            </>
                        )}
                    </li>
                ))}
            </ul>
        </section>
    );
}

function Revocations() {
    const list = useLoad(() => get("/revocation/history?limit=50"), [resets.value]);
    useReloadOn(list.reload, ({ type }) => /^agent_(revoked|recovered|resumed)$/.test(type), []);
    if (!list.data?.length) return null;
    return (
        <section class="card" aria-label="Revocations">
            <h2>Revocations</h2>
            <div class="sideways" tabindex={0} role="region" aria-label="All revocations">
                <table>
                    <thead>
                        <tr>
                            <th>when</th>
                            <th>who</th>
                            <th>why</th>
                            <th>came of it</th>
                        </tr>
                    </thead>
                    <tbody>
                        {[...list.data].reverse().map((one) => (
                            <tr key={one.id}>
                                <td>
                                    <Clock at={utc(one.issued_at)} />
                                </td>
                                <td>{one.agent}</td>
                                <td>{one.reason}</td>
                                <td>{one.state ?? (one.acknowledged ? "acknowledged" : "pending")}</td>
                            </tr>
                        ))}
                    </tbody>
                </table>
            </div>
        </section>
    );
}
