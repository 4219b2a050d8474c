// How the server is: its state, what this machine can do, limits, and its own figures.
import { api, get, text as getText } from "./api.js";
import { bytes, duration, moment, now, number } from "./format.js";
import { connection, maySteer, whoami } from "./state.js";
import { Facts, Failed, useLoad, useReloadOn } from "./ui.jsx";

// Prometheus text to [name, help, [[labels, value]]].
export function parseMetrics(text) {
    const found = new Map();
    for (const line of text.split("\n")) {
        const help = /^# HELP (\S+) (.*)$/.exec(line);
        if (help) {
            found.set(help[1], { name: help[1], help: help[2], rows: [] });
            continue;
        }
        const row = /^(\w+?)(_bucket|_sum|_count)?(\{.*\})? (\S+)$/.exec(line);
        if (!row || row[2] === "_bucket") continue;
        const at = found.get(row[1]) ?? found.get(row[1] + (row[2] ?? ""));
        at?.rows.push([(row[2] ?? "").slice(1) + (row[3] ?? ""), Number(row[4])]);
    }
    return [...found.values()];
}

export function Health() {
    const health = useLoad(() => get(api`health`), [connection.value]);
    const metrics = useLoad(() => (whoami.value?.role === "agent" ? "" : getText("/metrics")), [connection.value]);
    useReloadOn(
        () => {
            health.reload();
            metrics.reload();
        },
        () => true,
        [],
    );
    const is = health.data;
    return (
        <main id="main" tabindex={-1} class="page">
            <div class="bar">
                <h1>Health</h1>
                <button
                    type="button"
                    onClick={() => {
                        health.reload();
                        metrics.reload();
                    }}>
                    Look again
                </button>
            </div>
            <div class="cards">
                <section class="card">
                    <h2>Server</h2>
                    {health.error && <Failed error={health.error} />}
                    {is && (
                        <Facts
                            rows={[
                                ["state", is.ready ? is.status : "not ready"],
                                ["version", is.version],
                                ["store", is.store],
                                ["up for", duration(now.value - Date.parse(is.started_at))],
                                ["since", moment(is.started_at)],
                                ["event streams", number(is.subscribers)],
                                ["calls under way", number(is.calls)],
                            ]}
                        />
                    )}
                </section>
                <section class="card">
                    <h2>You</h2>
                    <Facts
                        rows={[
                            ["role", whoami.value?.role],
                            ["tenant", whoami.value?.tenant],
                            ["known by", whoami.value?.via],
                            ["until", whoami.value?.expires_at ? moment(whoami.value.expires_at) : "for ever"],
                        ]}
                    />
                </section>
                {maySteer.value && <Machine />}
                <Limits />
                {metrics.error && maySteer.value && <Failed error={metrics.error} />}
                {metrics.data && (
                    <section class="card wide">
                        <h2>Figures</h2>
                        <div class="sideways tall" tabindex={0} role="region" aria-label="Figures">
                            <table class="stack">
                                <thead>
                                    <tr>
                                        <th>figure</th>
                                        <th>of</th>
                                        <th>value</th>
                                    </tr>
                                </thead>
                                <tbody>
                                    {parseMetrics(metrics.data).flatMap((one) =>
                                        one.rows
                                            .filter(([, value]) => value !== 0)
                                            .map(([labels, value]) => (
                                                <tr key={one.name + labels}>
                                                    <th scope="row" title={one.name}>
                                                        {one.help}
                                                    </th>
                                                    <td class="mono cut">{labels}</td>
                                                    <td>{number(value)}</td>
                                                </tr>
                                            )),
                                    )}
                                </tbody>
                            </table>
                        </div>
                    </section>
                )}
            </div>
        </main>
    );
}

// What `atoll doctor` said when the server started: what is missing first, then how to get it.
const badness = { fail: 0, lost: 1, unknown: 2, ok: 3 };
const words = { fail: "failed", lost: "missing", unknown: "unknown", ok: "ok" };

function Machine() {
    const found = useLoad(() => get(api`doctor`), [connection.value]);
    const items = [...(found.data?.items ?? [])].sort((a, b) => badness[a.state] - badness[b.state]);
    const bad = items.filter((one) => one.state !== "ok").length;
    return (
        <section class="card wide" aria-label="This machine">
            <div class="bar">
                <h2>This machine</h2>
                {found.data && (
                    <>
                        <span class={"chip " + (found.data.ok ? (bad ? "" : "s-running") : "s-failed")}>
                            {!found.data.ok ? "something failed" : bad ? `${bad} missing or unknown` : "all is there"}
                        </span>
                        <span class="quiet">
                            as <code>atoll doctor</code> found it at {moment(found.data.at)}
                        </span>
                    </>
                )}
            </div>
            {found.error && <Failed error={found.error} again={found.reload} />}
            {found.data && (
                <div class="sideways tall" tabindex={0} role="region" aria-label="Checks">
                    <table class="stack">
                        <thead>
                            <tr>
                                <th>check</th>
                                <th>state</th>
                                <th>found</th>
                                <th>lost without it</th>
                                <th>how to get it</th>
                            </tr>
                        </thead>
                        <tbody>
                            {items.map((one) => (
                                <tr key={one.name} data-check={one.state}>
                                    <th scope="row">{one.name}</th>
                                    <td>
                                        <span class={"chip d-" + one.state}>{words[one.state] ?? one.state}</span>
                                    </td>
                                    <td>{one.found}</td>
                                    <td>{one.lost ?? ""}</td>
                                    <td>{one.fix ?? ""}</td>
                                </tr>
                            ))}
                        </tbody>
                    </table>
                </div>
            )}
        </section>
    );
}

const inUnits = {
    bytes,
    ms: duration,
    "per second": (value) => `${number(value)} a second`,
    count: number,
};

function Limits() {
    const found = useLoad(() => get(api`limits`), [connection.value]);
    return (
        <section class="card wide" aria-label="Limits">
            <h2>Limits</h2>
            {found.error && <Failed error={found.error} again={found.reload} />}
            {found.data && (
                <div class="sideways tall" tabindex={0} role="region" aria-label="What the server allows">
                    <table class="stack">
                        <thead>
                            <tr>
                                <th>of</th>
                                <th>limit</th>
                                <th>at least</th>
                                <th>at most</th>
                                <th>what</th>
                            </tr>
                        </thead>
                        <tbody>
                            {found.data.items.map((one) => (
                                <tr key={`${one.of} ${one.name}`}>
                                    <td>{one.of}</td>
                                    <th scope="row">{one.name}</th>
                                    <td>{one.least === undefined ? "" : inUnits[one.unit](one.least)}</td>
                                    <td>{inUnits[one.unit](one.most)}</td>
                                    <td>
                                        {one.help}
                                        {one.setting && (
                                            <span class="quiet">
                                                {" "}
                                                (setting <code>{one.setting}</code>)
                                            </span>
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
