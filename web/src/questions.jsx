// Everything that waits for a person: exactly what is asked for, in full, and how long there is left.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { api, post } from "./api.js";
import { duration, moment, now } from "./format.js";
import { to } from "./router.js";
import { asks, boxName, maySteer, waiting } from "./state.js";
import { Empty, State, act, ask, toast } from "./ui.jsx";

const HISTORY = 100;
const ruleOf = ({ host, port }) => ([80, 443].includes(port) ? host : `${host}:${port}`);

// The hash says which action was seen: another one under the same id is not decided.
const decide = (one, verdict, note) =>
    post(api`asks/${one.id}/decision`, { verdict, hash: one.hash, ...(note ? { note } : {}) });

async function allow(one, level) {
    await act(
        async () => {
            // The rule first: whoever asks again meanwhile is let out by it.
            if (level)
                await post(api`sandboxes/${one.sandbox}/egress/rules`, {
                    rule: ruleOf(one.action),
                    verdict: "allow",
                    level,
                });
            await decide(one, "allow");
        },
        one.kind === "rule"
            ? `${ruleOf(one.action)} is allowed for this sandbox from now on`
            : "Allowed" + ({ sandbox: " for this sandbox", tenant: " always" }[level] ?? " once"),
    );
}

async function deny(one, at_once) {
    const said = at_once
        ? {}
        : await ask({
              title: `Deny it?`,
              yes: "Deny",
              fields: [{ name: "note", label: "Why", placeholder: "they are told nothing more" }],
          });
    if (said) await act(() => decide(one, "deny", said.note), "Denied");
}

// A sandbox, or an agent of the hub.
const whose = (one) => (one.sandbox ? boxName(one.sandbox) : (one.action?.agent ?? "somebody"));

function Question({ one }) {
    const left = Date.parse(one.expires_at) - now.value;
    const key = (event) => {
        if (
            !maySteer.value ||
            event.target.closest("input, textarea, select") ||
            event.ctrlKey ||
            event.metaKey ||
            event.altKey
        )
            return;
        const does = {
            a: () => allow(one),
            s: () => one.kind === "egress" && allow(one, "sandbox"),
            d: () => deny(one),
        }[event.key];
        if (does) {
            event.preventDefault();
            event.stopPropagation();
            does();
        }
    };
    return (
        <li>
            <article
                class="card question"
                tabindex={0}
                onKeyDown={key}
                aria-label={`Question of ${whose(one)}`}
                data-ask={one.id}>
                <div class="bar">
                    <h2>
                        {one.sandbox ? (
                            <a href={to`sandboxes/${one.sandbox}`}>{boxName(one.sandbox)}</a>
                        ) : (
                            <a href={to`agents/${whose(one)}`}>{whose(one)}</a>
                        )}{" "}
                        asks: {one.kind}
                    </h2>
                    {one.expires_at && (
                        <span class={"chip " + (left < 15000 ? "s-failed" : "")} role="timer">
                            {left > 0 ? `${duration(left)} left` : "over"}
                        </span>
                    )}
                </div>
                {one.action?.title && (
                    <p class="big">
                        {one.action.do}{" "}
                        <a href={to`board/${one.action.project}/${one.action.task}`}>{one.action.title}</a>
                    </p>
                )}
                {one.action?.host && (
                    <p class="big mono">
                        {one.action.do} {one.action.host}:{one.action.port}{" "}
                        <span class="quiet">({one.action.kind})</span>
                    </p>
                )}
                <pre tabindex={0} aria-label="The action in full">
                    {JSON.stringify(one.action, null, 2)}
                </pre>
                <p class="quiet mono hash">
                    sha256 {one.hash}
                </p>
                {maySteer.value && (
                    <div class="bar">
                        <button type="button" class="primary" onClick={() => allow(one)}>
                            {one.kind === "rule" ? "Allow for this sandbox" : "Allow once"} <kbd>a</kbd>
                        </button>
                        {one.kind === "egress" && (
                            <>
                                <button type="button" onClick={() => allow(one, "sandbox")}>
                                    For this sandbox <kbd>s</kbd>
                                </button>
                                <button type="button" onClick={() => allow(one, "tenant")}>
                                    Always
                                </button>
                            </>
                        )}
                        <button type="button" class="danger" onClick={() => deny(one)}>
                            Deny <kbd>d</kbd>
                        </button>
                    </div>
                )}
            </article>
        </li>
    );
}

function Notices() {
    const may = useSignal(globalThis.Notification?.permission ?? "denied");
    if (may.value !== "default") return null;
    return (
        <button
            type="button"
            onClick={async () => {
                may.value = await Notification.requestPermission();
                toast(may.value === "granted" ? "New questions are told by the system" : "The system tells nothing");
            }}>
            Tell me when there is one
        </button>
    );
}

export function Questions() {
    const open = waiting.value;
    const over = [...asks.value.values()]
        .filter((one) => one.state !== "pending")
        .sort((a, b) => (a.created_at < b.created_at ? 1 : -1))
        .slice(0, HISTORY);
    const first = open[0]?.id;
    useEffect(() => {
        // answered by keys, one after the other
        const here = document.activeElement;
        if (first && (!here || here === document.body || here.id === "main" || !document.contains(here)))
            document.querySelector(`[data-ask="${CSS.escape(first)}"]`)?.focus();
    }, [first]);
    return (
        <main id="main" tabindex={-1} class="page">
            <div class="bar">
                <h1>Questions</h1>
                <span class="quiet">{open.length} waiting</span>
                <Notices />
            </div>
            {open.length === 0 && <Empty>Nobody waits for an answer.</Empty>}
            <ul class="plain-list">
                {open.map((one) => (
                    <Question key={one.id} one={one} />
                ))}
            </ul>
            {over.length > 0 && (
                <>
                    <h2>Before</h2>
                    <div class="sideways" tabindex={0} role="region" aria-label="Earlier questions">
                        <table>
                            <thead>
                                <tr>
                                    <th>asked</th>
                                    <th>who</th>
                                    <th>what</th>
                                    <th>came of it</th>
                                    <th>by</th>
                                    <th>said</th>
                                </tr>
                            </thead>
                            <tbody>
                                {over.map((one) => (
                                    <tr key={one.id}>
                                        <td>{moment(one.created_at)}</td>
                                        <td>{whose(one)}</td>
                                        <td class="mono">
                                            {one.action?.host
                                                ? `${one.action.host}:${one.action.port}`
                                                : (one.action?.title ?? one.kind)}
                                        </td>
                                        <td>
                                            <State state={one.state} />
                                        </td>
                                        <td>{one.by ?? "nobody"}</td>
                                        <td>{one.note ?? ""}</td>
                                    </tr>
                                ))}
                            </tbody>
                        </table>
                    </div>
                </>
            )}
        </main>
    );
}
