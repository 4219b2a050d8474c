// How the server is: its state, what this machine can do, limits, and its own figures.
import { api, get, text as getText } from "./api.js";
import { duration, moment, now, number } from "./format.js";
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
                <section class="card">
                    <h2>This machine</h2>
                    <p>What it can do, what is lost without it and how to get it: on the machine itself, type</p>
                    <pre>
                        <code>atoll doctor</code>
                    </pre>
                    <p class="quiet">What a sandbox lacks is shown with the sandbox, layer by layer.</p>
                </section>
                {metrics.error && maySteer.value && <Failed error={metrics.error} />}
                {metrics.data && (
                    <section class="card wide">
                        <h2>Figures</h2>
                        <div class="sideways tall" tabindex={0} role="region" aria-label="Figures">
                            <table>
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
