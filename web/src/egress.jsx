// What a sandbox may reach and did reach: every decision as it is made, what was denied with one
// step to allow it, counts by host, and why.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { api, get, post, request } from "./api.js";
import { bytes, number } from "./format.js";
import { hear, maySteer } from "./state.js";
import { Clock, Empty, Facts, Failed, act, useLoad, useReloadOn } from "./ui.jsx";

const RECORDS = 500;
const LEVELS = [
    ["sandbox", "for this sandbox"],
    ["project", "for its project"],
    ["tenant", "for the tenant"],
    ["node", "for the node"],
];

export function Egress({ box }) {
    const base = api`sandboxes/${box.id}/egress`;
    const policy = useLoad(() => get(base), [box.id]);
    const hosts = useLoad(() => get(`${base}/hosts`), [box.id]);
    useReloadOn(
        () => {
            policy.reload();
            hosts.reload();
        },
        ({ type, data, object }) =>
            (type.startsWith("egress.") && (!data?.sandbox || data.sandbox === box.id || object?.includes(box.id))) ||
            (type === "sandbox.changed" && data.sandbox === box.id),
        [box.id],
    );
    const now = policy.data;
    return (
        <div class="cards">
            <section class="card">
                <h2>Policy</h2>
                {policy.error && <Failed error={policy.error} again={policy.reload} />}
                {now && (
                    <>
                        {now.error && (
                            <p class="failed" role="alert">
                                {now.error}
                            </p>
                        )}
                        <Facts
                            rows={[
                                [
                                    "hosts without a rule",
                                    maySteer.value ? (
                                        <select
                                            aria-label="Mode"
                                            value={now.own?.mode ?? ""}
                                            onChange={(e) =>
                                                act(
                                                    () => request("PATCH", base, { mode: e.currentTarget.value }),
                                                    "The policy is changed",
                                                )
                                            }>
                                            {!now.own?.mode && (
                                                <option value="">
                                                    {now.mode} ({now.mode_level ?? "unless said"})
                                                </option>
                                            )}
                                            <option value="deny">deny</option>
                                            <option value="ask">ask</option>
                                            <option value="open">open</option>
                                        </select>
                                    ) : (
                                        now.mode
                                    ),
                                ],
                                now.project && ["project", now.project],
                                ["let out", number(now.allowed)],
                                ["refused", number(now.denied)],
                                ["sent", bytes(now.sent)],
                                ["received", bytes(now.received)],
                                now.lost > 0 && ["only counted", number(now.lost)],
                                !now.linked && ["trouble", "nothing is let out now: the egress process is away"],
                            ]}
                        />
                    </>
                )}
            </section>
            <Explain base={base} />
            {maySteer.value && <Rule base={base} />}
            <Rules rules={now?.rules ?? []} base={base} />
            <Hosts hosts={hosts.data?.items ?? []} base={base} />
            <Records box={box} base={base} />
        </div>
    );
}

const addRule = (base, rule, verdict, level) =>
    act(
        () => post(`${base}/rules`, { rule, verdict, level }),
        `${rule} is ${verdict === "allow" ? "allowed" : "denied"} ${LEVELS.find(([key]) => key === level)[1]}`,
    );

function Level({ level }) {
    return (
        <select
            aria-label="For whom"
            value={level.value}
            onChange={(e) => {
                level.value = e.currentTarget.value;
            }}>
            {LEVELS.map(([key, text]) => (
                <option key={key} value={key}>
                    {text}
                </option>
            ))}
        </select>
    );
}

function Rule({ base }) {
    const rule = useSignal(""),
        level = useSignal("sandbox");
    const add = async (verdict) => {
        if (rule.value.trim() && (await addRule(base, rule.value.trim(), verdict, level.value))) rule.value = "";
    };
    return (
        <section class="card">
            <h2>A rule</h2>
            <form
                class="bar"
                onSubmit={(e) => {
                    e.preventDefault();
                    add("allow");
                }}>
                <input
                    class="mono grow"
                    aria-label="Rule"
                    placeholder="api.example.org"
                    value={rule.value}
                    spellcheck={false}
                    onInput={(e) => {
                        rule.value = e.currentTarget.value;
                    }}
                />
                <Level level={level} />
                <button type="submit" class="primary">
                    Allow
                </button>
                <button type="button" class="danger" onClick={() => add("deny")}>
                    Deny
                </button>
            </form>
        </section>
    );
}

function Explain({ base }) {
    const url = useSignal(""),
        found = useSignal(null);
    const look = async (event) => {
        event.preventDefault();
        found.value = null;
        await act(async () => {
            found.value = await get(`${base}/explain?url=${encodeURIComponent(url.value.trim())}`);
        });
    };
    const told = found.value;
    return (
        <section class="card">
            <h2>Would it reach…</h2>
            <form class="bar" onSubmit={look}>
                <input
                    class="mono grow"
                    aria-label="Address"
                    placeholder="https://example.org/"
                    required
                    value={url.value}
                    spellcheck={false}
                    onInput={(e) => {
                        url.value = e.currentTarget.value;
                    }}
                />
                <button type="submit">Explain</button>
            </form>
            {told && (
                <p role="status">
                    <span class={"chip v-" + told.verdict}>{told.verdict}</span> {told.host}:{told.port} –{" "}
                    {told.reason}
                    {told.rule && (
                        <>
                            {" "}
                            (<code>{told.rule}</code>
                            {told.level && ` of the ${told.level}`}
                            {told.pack && `, pack ${told.pack}`})
                        </>
                    )}
                </p>
            )}
        </section>
    );
}

function Rules({ rules, base }) {
    return (
        <section class="card">
            <h2>Rules that count</h2>
            {rules.length === 0 && <Empty>None.</Empty>}
            <ul class="rows short" aria-label="Rules">
                {rules.map((one, i) => (
                    <li key={i} class="bar">
                        <span class={"chip v-" + one.list}>{one.list}</span>
                        <code class="cut">{one.rule}</code>
                        <span class="quiet">
                            {one.level}
                            {one.pack && `, ${one.pack}`}
                        </span>
                        {maySteer.value && one.level === "sandbox" && !one.pack && one.list === "allow" && (
                            <button type="button" onClick={() => addRule(base, one.rule, "deny", "sandbox")}>
                                Deny
                            </button>
                        )}
                    </li>
                ))}
            </ul>
        </section>
    );
}

function Hosts({ hosts, base }) {
    const level = useSignal("sandbox");
    return (
        <section class="card wide" aria-label="Hosts">
            <div class="bar">
                <h2>Hosts</h2>
                {maySteer.value && <Level level={level} />}
            </div>
            {hosts.length === 0 && <Empty>It has tried none.</Empty>}
            {hosts.length > 0 && (
                <div class="sideways" tabindex={0} role="region" aria-label="Hosts tried">
                    <table>
                        <thead>
                            <tr>
                                <th>host</th>
                                <th>let out</th>
                                <th>refused</th>
                                <th>sent</th>
                                <th>received</th>
                                <th>last</th>
                                <th>
                                    <span class="sr">step</span>
                                </th>
                            </tr>
                        </thead>
                        <tbody>
                            {hosts.map((one) => (
                                <tr key={`${one.host}:${one.port}`}>
                                    <td class="mono">
                                        {one.host}:{one.port}
                                    </td>
                                    <td>{number(one.allowed)}</td>
                                    <td class={one.denied ? "warn" : ""}>{number(one.denied)}</td>
                                    <td>{bytes(one.sent)}</td>
                                    <td>{bytes(one.received)}</td>
                                    <td>
                                        <Clock at={one.last_ms} />
                                    </td>
                                    <td>
                                        {one.denied > 0 && maySteer.value && (
                                            <button
                                                type="button"
                                                onClick={() => addRule(base, ruleOf(one), "allow", level.value)}>
                                                Allow
                                            </button>
                                        )}
                                    </td>
                                </tr>
                            ))}
                        </tbody>
                    </table>
                </div>
            )}
        </section>
    );
}
const ruleOf = ({ host, port }) => ([80, 443].includes(port) ? host : `${host}:${port}`);

function Records({ box, base }) {
    const list = useSignal([]),
        denied = useSignal(false),
        error = useSignal(null);
    useEffect(() => {
        let next = null,
            reading = false,
            again = false,
            gone = false;
        const read = async () => {
            if (reading) {
                again = true;
                return;
            }
            reading = true;
            try {
                do {
                    again = false;
                    const page = await get(
                        `${base}/records?limit=200` +
                            (next === null ? "" : `&since=${next}`) +
                            (denied.value ? "&denied=true" : ""),
                    );
                    if (gone) return;
                    const items = [...page.items].sort((a, b) => b.seq - a.seq);
                    list.value = (next === null ? items : [...items, ...list.value]).slice(0, RECORDS);
                    again ||= next !== null && page.items.length === 200;
                    next = Math.max(next ?? 0, page.next, ...page.items.map((one) => one.seq));
                    error.value = null;
                } while (again);
            } catch (failure) {
                error.value = failure;
            }
            reading = false;
        };
        read();
        const stop = hear(({ type }) => {
            if (type === "egress.recorded") read();
        });
        return () => {
            gone = true;
            stop();
        };
    }, [box.id, denied.value]);
    return (
        <section class="card wide" aria-label="Decisions">
            <div class="bar">
                <h2>Decisions</h2>
                <label class="check">
                    <input
                        type="checkbox"
                        checked={denied.value}
                        onChange={(e) => {
                            denied.value = e.currentTarget.checked;
                        }}
                    />
                    denied only
                </label>
            </div>
            {error.value && <Failed error={error.value} />}
            {list.value.length === 0 && <Empty>None yet.</Empty>}
            {list.value.length > 0 && (
                <div class="sideways tall" tabindex={0} role="region" aria-label="Decisions made">
                    <table>
                        <thead>
                            <tr>
                                <th>time</th>
                                <th>what</th>
                                <th>host</th>
                                <th>request</th>
                                <th>why</th>
                                <th>sent</th>
                                <th>received</th>
                            </tr>
                        </thead>
                        <tbody>
                            {list.value.map((one) => (
                                <tr key={one.seq}>
                                    <td>
                                        <Clock at={one.at_ms} />
                                    </td>
                                    <td>
                                        <span class={"chip v-" + one.verdict}>{one.verdict}</span>
                                    </td>
                                    <td class="mono">
                                        {one.host}:{one.port}
                                    </td>
                                    <td class="mono cut">
                                        {one.method} {one.path}
                                    </td>
                                    <td>{one.reason}</td>
                                    <td>{bytes(one.sent)}</td>
                                    <td>{bytes(one.received)}</td>
                                </tr>
                            ))}
                        </tbody>
                    </table>
                </div>
            )}
        </section>
    );
}
