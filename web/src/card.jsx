// One task: everything about it, its history, and what people do with it.
import { useSignal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import { get } from "./api.js";
import { COLUMNS, PRIORITIES, agents, change, hub, utc } from "./hub.js";
import { ofProject } from "./board.jsx";
import { moment } from "./format.js";
import { go, route, to } from "./router.js";
import { maySteer, mayUse, resets } from "./state.js";
import { Empty, Facts, Failed, act, ask, useLoad, useReloadOn } from "./ui.jsx";

export function Card({ project, id, move }) {
    const base = hub`projects/${project}/tasks/${id}`;
    const found = useLoad(() => get(base), [id, resets.value]);
    const reviews = useLoad(() => get(`${base}/reviews`).catch(() => []), [id, resets.value]);
    useReloadOn(
        () => {
            found.reload();
            reviews.reload();
        },
        ofProject(project),
        [id],
    );
    const dialog = useRef(null);
    useLayoutEffect(() => {
        if (!dialog.current.open) dialog.current.show();
    }, []);
    const close = () => {
        const query = route.value.query.toString();
        go(to`board/${project}` + (query ? "?" + query : ""));
    };
    const one = found.data;
    const does = (method, path, body, done) =>
        act(async () => {
            await change(method, path, body);
            found.reload();
            reviews.reload();
        }, done);

    const edit = async () => {
        const said = await ask({
            title: "Change it",
            yes: "Change",
            fields: [
                { name: "title", label: "Title", required: true, value: one.title },
                { name: "description", label: "Description", rows: 6, value: one.description },
                { name: "labels", label: "Labels", value: (one.labels ?? []).join(", ") },
            ],
        });
        if (said)
            await does("PATCH", base, {
                title: said.title,
                description: said.description,
                labels: said.labels
                    .split(",")
                    .map((label) => label.trim())
                    .filter(Boolean),
            });
    };
    const verdict = async (what, title) => {
        const said = await ask({
            title,
            yes: title,
            danger: what !== "approve",
            fields: [
                { name: "reviewer", label: "In the name of", options: [["", "yourself"], ...one.reviewers] },
                { name: "note", label: "Note", rows: 3 },
            ],
        });
        if (said)
            await does("POST", `${base}/${what}`, {
                ...(said.reviewer ? { reviewer: said.reviewer } : {}),
                note: said.note,
            });
    };
    const reviewer = async () => {
        const said = await ask({
            title: "A reviewer",
            yes: "Add",
            fields: [{ name: "name", label: "Who", options: ["human", ...agents.value.map((each) => each.name)] }],
        });
        if (said) await does("POST", `${base}/reviewers/${encodeURIComponent(said.name)}`);
    };
    const transitions = [...(one?.transitions ?? [])].reverse();
    return (
        <dialog
            ref={dialog}
            class="card side"
            aria-label="Task"
            onKeyDown={(e) => {
                if (e.key === "Escape") close();
            }}>
            <div class="bar">
                <h2>{one?.title ?? "…"}</h2>
                <button type="button" class="icon" aria-label="Close the task" onClick={close}>
                    ×
                </button>
            </div>
            {found.error && <Failed error={found.error} again={found.reload} />}
            {one && (
                <>
                    {one.description && (
                        <pre tabindex={0} aria-label="Description">
                            {one.description}
                        </pre>
                    )}
                    <Facts
                        rows={[
                            [
                                "state",
                                mayUse.value ? (
                                    <select
                                        aria-label="Move to"
                                        value={one.status}
                                        onChange={(e) => move(one, e.currentTarget.value).then(found.reload)}>
                                        {COLUMNS.map(([status, name]) => (
                                            <option key={status} value={status}>
                                                {name}
                                            </option>
                                        ))}
                                    </select>
                                ) : (
                                    one.status
                                ),
                            ],
                            [
                                "priority",
                                mayUse.value ? (
                                    <select
                                        aria-label="Priority"
                                        value={one.priority}
                                        onChange={(e) => does("PATCH", base, { priority: e.currentTarget.value })}>
                                        {PRIORITIES.map((each) => (
                                            <option key={each} value={each}>
                                                {each}
                                            </option>
                                        ))}
                                    </select>
                                ) : (
                                    one.priority
                                ),
                            ],
                            [
                                "whose",
                                maySteer.value ? (
                                    <select
                                        aria-label="Assigned to"
                                        value={one.assigned_to ?? ""}
                                        onChange={(e) =>
                                            e.currentTarget.value
                                                ? does("POST", `${base}/assign`, { agent: e.currentTarget.value })
                                                : does("POST", `${base}/unassign`)
                                        }>
                                        <option value="">nobody</option>
                                        {[...new Set([one.assigned_to, ...agents.value.map((each) => each.name)])]
                                            .filter(Boolean)
                                            .map((each) => (
                                                <option key={each} value={each}>
                                                    {each}
                                                </option>
                                            ))}
                                    </select>
                                ) : (
                                    (one.assigned_to ?? "nobody")
                                ),
                            ],
                            one.required_capabilities?.length > 0 && ["needs", one.required_capabilities.join(", ")],
                            one.labels?.length > 0 && ["labels", one.labels.join(", ")],
                            one.blocked_reason && ["blocked", one.blocked_reason],
                            one.blocked_by &&
                                [].concat(one.blocked_by).length > 0 && [
                                    "blocked by",
                                    [].concat(one.blocked_by).join(", "),
                                ],
                            one.parent_task_id && [
                                "part of",
                                <a href={to`board/${project}/${one.parent_task_id}`}>{one.parent_task_id}</a>,
                            ],
                            ...(one.subtasks ?? []).map((each, i) => [
                                `part ${i + 1}`,
                                <a href={to`board/${project}/${each.id ?? each}`}>{each.title ?? each.id ?? each}</a>,
                            ]),
                            ["made by", `${one.created_by || "somebody"}, ${moment(utc(one.created_at))}`],
                            one.completed_at && ["done", moment(utc(one.completed_at))],
                        ]}
                    />
                    <h3>Review</h3>
                    <Facts
                        rows={[
                            ["reviewers", one.reviewers?.length ? one.reviewers.join(", ") : "none"],
                            one.approvals_required > 0 && [
                                "approvals",
                                `${one.approvals ?? 0} of ${one.approvals_required}`,
                            ],
                        ]}
                    />
                    <ul class="rows" aria-label="Reviews">
                        {(reviews.data ?? []).map((each, i) => (
                            <li key={i} class="bar">
                                <b>{each.reviewer}</b>
                                <span class={"chip " + (each.verdict === "approved" ? "s-allowed" : "s-denied")}>
                                    {each.verdict}
                                </span>
                                <span>{each.note}</span>
                                <span class="quiet">
                                    {moment(utc(each.at))}
                                    {!each.counts && ", before"}
                                </span>
                            </li>
                        ))}
                    </ul>
                    {mayUse.value && (
                        <div class="bar">
                            <button type="button" onClick={reviewer}>
                                Add a reviewer
                            </button>
                            {one.status === "in_review" && (
                                <>
                                    <button
                                        type="button"
                                        class="primary"
                                        onClick={() => verdict("approve", "Approve")}>
                                        Approve
                                    </button>
                                    <button
                                        type="button"
                                        class="danger"
                                        onClick={() => verdict("request-changes", "Request changes")}>
                                        Request changes
                                    </button>
                                </>
                            )}
                            <button type="button" onClick={edit}>
                                Edit
                            </button>
                        </div>
                    )}
                    <Comments key={id} base={base} id={id} />
                    <h3>History</h3>
                    {transitions.length === 0 && <Empty>It has not been moved.</Empty>}
                    <ol class="rows" aria-label="History">
                        {transitions.map((each, i) => (
                            <li key={i} class="bar">
                                <span>
                                    {each.from} → <b>{each.to}</b>
                                </span>
                                <span class="quiet">
                                    {each.by || "somebody"}, {moment(utc(each.at))}
                                </span>
                                {each.note && <span>{each.note}</span>}
                            </li>
                        ))}
                    </ol>
                </>
            )}
        </dialog>
    );
}

// What was said about it, oldest first, and a word of one's own. Read on behind the last one when there is more.
function Comments({ base, id }) {
    const list = useSignal([]),
        text = useSignal("");
    const found = useLoad(async () => {
        const more = await get(`${base}/comments?after=${list.value.at(-1)?.number ?? 0}`);
        const last = list.value.at(-1)?.number ?? 0;
        list.value = [...list.value, ...more.filter((one) => one.number > last)];
    }, [id, resets.value]);
    useReloadOn(found.reload, ({ type, data }) => type === "task_commented" && data.task_id === id, [id]);
    const send = async (event) => {
        event.preventDefault();
        const said = text.value.trim();
        if (!said || !(await act(() => change("POST", `${base}/comments`, { text: said })))) return;
        text.value = "";
        found.reload();
    };
    return (
        <section aria-label="Comments">
            <h3>Comments</h3>
            {found.error && <Failed error={found.error} again={found.reload} />}
            {list.value.length === 0 && <Empty>Nobody has said anything.</Empty>}
            <ol class="talk">
                {list.value.map((one) => (
                    <li key={one.number}>
                        <div class="quiet">
                            <b>{one.author}</b> {moment(utc(one.at))}
                        </div>
                        <div class="said">{one.text}</div>
                    </li>
                ))}
            </ol>
            {mayUse.value && (
                <form class="bar" onSubmit={send}>
                    <textarea
                        rows={2}
                        class="grow"
                        aria-label="Comment"
                        placeholder="Say something about it"
                        maxlength={16384}
                        value={text.value}
                        onInput={(e) => {
                            text.value = e.currentTarget.value;
                        }}
                        onKeyDown={(e) => {
                            if (e.key === "Enter" && (e.ctrlKey || e.metaKey)) {
                                e.preventDefault();
                                e.currentTarget.form.requestSubmit();
                            }
                        }}
                    />
                    <button type="submit" title="Ctrl Enter">
                        Comment
                    </button>
                </form>
            )}
        </section>
    );
}
