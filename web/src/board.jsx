/*
 * A project's board: six columns, lanes, cards that are dragged or moved by keys. A card that is moved
 * is shown in its new place at once and goes back when the server says no.
 */
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { Card } from "./card.jsx";
import { get } from "./api.js";
import { COLUMNS, PRIORITIES, change, chosenId, hub, hubState, projects, readHub, useHub } from "./hub.js";
import { go, route, setQuery, to } from "./router.js";
import { maySteer, mayUse, resets } from "./state.js";
import { Metrics } from "./metrics.jsx";
import { Empty, Failed, act, ask, confirm, toast, useLoad, useReloadOn } from "./ui.jsx";

export const NoHub = () => (
    <main id="main" tabindex={-1} class="page">
        <h1>Not here</h1>
        <Empty>This server has no hub.</Empty>
    </main>
);

export function Board({ second: project, third: task }) {
    useHub();
    if (hubState.value === "none") return <NoHub />;
    const known = projects.value.find((one) => one.id === project);
    useEffect(() => {
        // an address without a project is that of the one that all views show; another one is then shown by all
        const last = projects.value.find((one) => one.id === chosenId.value) ?? projects.value[0];
        if (!project && last) location.replace(to`board/${last.id}`);
        else if (known && chosenId.value) chosenId.value = project;
    }, [project, projects.value]);
    const make = async () => {
        const said = await ask({
            title: "New project",
            yes: "Make it",
            fields: [{ name: "name", label: "Name", required: true }],
        });
        if (!said) return;
        await act(async () => {
            const made = await change("POST", "/projects", { name: said.name, creator: "human" });
            readHub("projects");
            go(to`board/${made.id}`);
        });
    };
    const remove = async () => {
        if (
            (await confirm(`Delete ${known.name}?`, "Its tasks, files and leases go with it.", "Delete")) &&
            (await act(() => change("DELETE", hub`projects/${project}`), `${known.name} is deleted`))
        ) {
            readHub("projects");
            go(to`board`);
        }
    };
    return (
        <main id="main" tabindex={-1} class="fill">
            <div class="bar">
                <h1>Board</h1>
                {projects.value.length > 0 && (
                    <select
                        aria-label="Project"
                        value={project ?? ""}
                        onChange={(e) => go(to`board/${e.currentTarget.value}`)}>
                        {!known && <option value="">choose…</option>}
                        {projects.value.map((one) => (
                            <option key={one.id} value={one.id}>
                                {one.name}
                            </option>
                        ))}
                    </select>
                )}
                {mayUse.value && (
                    <button type="button" onClick={make}>
                        New project
                    </button>
                )}
                {known && <Tools project={project} />}
                {known && maySteer.value && (
                    <details class="more">
                        <summary>More</summary>
                        <button type="button" class="danger" onClick={remove}>
                            Delete project
                        </button>
                    </details>
                )}
            </div>
            {hubState.value === "there" && projects.value.length === 0 && <Empty>There is no project yet.</Empty>}
            {known &&
                (route.value.query.get("view") === "metrics" ? (
                    <Metrics key={project} project={project} />
                ) : (
                    <Columns key={project} project={project} task={task} />
                ))}
        </main>
    );
}

function Tools({ project }) {
    const { query } = route.value;
    const newTask = async () => {
        const said = await ask({
            title: "New task",
            yes: "Make it",
            fields: [
                { name: "title", label: "Title", required: true },
                { name: "description", label: "Description", rows: 4 },
                { name: "priority", label: "Priority", options: PRIORITIES, value: "P2" },
                { name: "labels", label: "Labels", placeholder: "a, b" },
                { name: "capabilities", label: "Needs", placeholder: "capabilities: code, review" },
                {
                    name: "required_reviewers",
                    label: "Approvals needed",
                    type: "number",
                    min: 0,
                    placeholder: "none unless reviewers are added",
                },
            ],
        });
        if (!said) return;
        const list = (text) =>
            text
                .split(",")
                .map((one) => one.trim())
                .filter(Boolean);
        const wish = {
            title: said.title,
            description: said.description,
            priority: said.priority,
            labels: list(said.labels),
            required_capabilities: list(said.capabilities),
            created_by: "human",
        };
        if (said.required_reviewers) wish.required_reviewers = Number(said.required_reviewers);
        await act(() => change("POST", hub`projects/${project}/tasks`, wish));
    };
    const metrics = query.get("view") === "metrics";
    return (
        <>
            {mayUse.value && (
                <button type="button" class="primary" onClick={newTask}>
                    New task
                </button>
            )}
            {!metrics && (
                <>
                    <select
                        aria-label="Lanes"
                        value={query.get("lanes") ?? "none"}
                        onChange={(e) => setQuery({ lanes: e.currentTarget.value })}>
                        <option value="none">no lanes</option>
                        <option value="agent">a lane for each agent</option>
                        <option value="priority">by priority</option>
                        <option value="label">by label</option>
                    </select>
                    <input
                        type="search"
                        aria-label="Filter"
                        placeholder="title, agent, label, P0…"
                        value={query.get("q") ?? ""}
                        onInput={(e) => setQuery({ q: e.currentTarget.value })}
                    />
                </>
            )}
            <button type="button" aria-pressed={metrics} onClick={() => setQuery({ view: metrics ? "" : "metrics" })}>
                Metrics
            </button>
        </>
    );
}

export const ofProject =
    (project) =>
    ({ type, data, object }) =>
        /^(task_|wip_|lease_|proposal_|project_)/.test(type) &&
        (data?.project === project || String(object).includes(project));

function Columns({ project, task }) {
    const lanesBy = route.value.query.get("lanes") ?? "none";
    const board = useLoad(
        () => get(hub`projects/${project}/board` + `?lanes=${lanesBy}`),
        [project, lanesBy, resets.value],
    );
    const moved = useSignal({}); // task id → status, until the server has said so
    useReloadOn(board.reload, ofProject(project), [project]);
    const over = useSignal("");

    const move = async (one, status) => {
        if (one.status === status) return;
        const wish = { status };
        if (status === "blocked") {
            const said = await ask({
                title: `What blocks "${one.title}"?`,
                yes: "Block it",
                danger: false,
                fields: [
                    { name: "blocked_reason", label: "Reason", required: true },
                    { name: "blocked_by", label: "Task that blocks it", placeholder: "its id, or nothing" },
                ],
            });
            if (!said) return;
            wish.blocked_reason = said.blocked_reason;
            if (said.blocked_by) wish.blocked_by = said.blocked_by;
        }
        moved.value = { ...moved.value, [one.id]: status };
        try {
            await change("PATCH", hub`projects/${project}/tasks/${one.id}`, wish);
            await board.reload();
        } catch (error) {
            toast(`"${one.title}" stays in ${one.status}: ${error.message}`, { bad: true });
        }
        const { [one.id]: _, ...rest } = moved.value;
        moved.value = rest;
    };
    const limit = async (column) => {
        const said = await ask({
            title: `Limit of ${column.status}`,
            yes: "Set it",
            text: "So many may an agent have there at once.",
            fields: [
                {
                    name: "limit",
                    label: "Limit",
                    type: "number",
                    min: 0,
                    max: 10000,
                    required: true,
                    value: column.limit ?? 3,
                },
            ],
        });
        if (said)
            await act(() =>
                change("PATCH", hub`projects/${project}/wip`, { status: column.status, limit: Number(said.limit) }),
            );
    };

    if (board.error && !board.data) return <Failed error={board.error} again={board.reload} />;
    if (!board.data) return <p class="quiet">Looking…</p>;
    const words = (route.value.query.get("q") ?? "").toLowerCase().split(/\s+/).filter(Boolean);
    const fits = (one) =>
        words.every((word) =>
            [
                one.title,
                one.priority,
                one.assigned_to,
                one.claimed_by,
                ...(one.labels ?? []),
                ...(one.required_capabilities ?? []),
            ]
                .join(" ")
                .toLowerCase()
                .includes(word),
        );
    const lanes = board.data.lanes.map(({ lane, columns }) => {
        const all = Object.values(columns)
            .flat()
            .filter(fits)
            .map((one) => ({ ...one, shown: moved.value[one.id] ?? one.status }));
        return { lane, of: (status) => all.filter((one) => one.shown === status) };
    });
    const everyone = lanes.flatMap((lane) => COLUMNS.flatMap(([status]) => lane.of(status)));
    const drop = (event, status) => {
        event.preventDefault();
        over.value = "";
        const one = everyone.find((each) => each.id === event.dataTransfer.getData("text/plain"));
        if (one) move(one, status);
    };
    return (
        <>
            <div class="board" role="region" aria-label="Board" tabindex={0}>
                <div class="columns heads">
                    {COLUMNS.map(([status, name]) => {
                        const column = board.data.columns.find((each) => each.status === status) ?? {
                            status,
                            count: 0,
                            limit: null,
                        };
                        const full = Object.values(
                            lanes
                                .flatMap((lane) => lane.of(status))
                                .reduce((sum, one) => {
                                    const who = one.claimed_by || one.assigned_to;
                                    return who ? { ...sum, [who]: (sum[who] ?? 0) + 1 } : sum;
                                }, {}),
                        ).some((count) => column.limit && count >= column.limit);
                        return (
                            <div key={status} class="bar">
                                <h2>{name}</h2>
                                <span class="count">
                                    {lanes.reduce((sum, lane) => sum + lane.of(status).length, 0)}
                                </span>
                                {(column.limit || maySteer.value) && (
                                    <button
                                        type="button"
                                        class={"icon quiet" + (full ? " warn" : "")}
                                        disabled={!maySteer.value}
                                        aria-label={`Limit of ${name}: ${column.limit ?? "none"}`}
                                        onClick={() => limit(column)}>
                                        {column.limit ? `≤ ${column.limit} each` : "no limit"}
                                    </button>
                                )}
                            </div>
                        );
                    })}
                </div>
                {lanes.map(({ lane, of }) => (
                    <section key={lane} aria-label={lanesBy === "none" ? "Tasks" : `Lane ${lane || "without"}`}>
                        {lanesBy !== "none" && (
                            <h3 class="lane">{lane || (lanesBy === "agent" ? "nobody" : "without a label")}</h3>
                        )}
                        <div class="columns">
                            {COLUMNS.map(([status, name]) => (
                                <ul
                                    key={status}
                                    class={"column" + (over.value === lane + status ? " over" : "")}
                                    aria-label={name}
                                    data-column={status}
                                    onDragOver={(e) => {
                                        e.preventDefault();
                                        over.value = lane + status;
                                    }}
                                    onDragLeave={() => {
                                        over.value = "";
                                    }}
                                    onDrop={(e) => drop(e, status)}>
                                    {of(status).map((one) => (
                                        <Small key={one.id} one={one} project={project} move={move} />
                                    ))}
                                </ul>
                            ))}
                        </div>
                    </section>
                ))}
            </div>
            {task && <Card key={task} project={project} id={task} move={move} />}
        </>
    );
}

function Small({ one, project, move }) {
    const key = (event) => {
        const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (!step || !event.shiftKey) return;
        event.preventDefault();
        const at = COLUMNS.findIndex(([status]) => status === one.shown) + step;
        if (COLUMNS[at]) move(one, COLUMNS[at][0]);
    };
    const who = one.claimed_by || one.assigned_to;
    return (
        <li
            class={"task " + one.priority}
            draggable={mayUse.value}
            data-task={one.id}
            onDragStart={(e) => e.dataTransfer.setData("text/plain", one.id)}>
            <a
                href={
                    to`board/${project}/${one.id}` +
                    (location.hash.includes("?") ? "?" + location.hash.split("?")[1] : "")
                }
                onKeyDown={key}
                draggable={false}
                title="Shift and an arrow move it">
                {one.title}
            </a>
            <div class="bar">
                <span class={"chip " + one.priority}>{one.priority}</span>
                {who && <span class="quiet">{who}</span>}
                {one.approvals_required > 0 && (
                    <span class="quiet" title="approvals">
                        ✓ {one.approvals ?? 0}/{one.approvals_required}
                    </span>
                )}
                {(one.labels ?? []).map((label) => (
                    <span key={label} class="label">
                        {label}
                    </span>
                ))}
            </div>
            {one.blocked_reason && <p class="warn">{one.blocked_reason}</p>}
        </li>
    );
}
