// Agents that are linked from other machines: their state, what they are, their commands, and their removal.
import { api, get, request } from "./api.js";
import { moment, number } from "./format.js";
import { connection, whoami } from "./state.js";
import { Age, Empty, Failed, State, act, ask, useLoad, useReloadOn } from "./ui.jsx";

async function readLinked() {
    const { agents } = await get(api`agents`);
    const linked = agents.filter((one) => one.runtime === "link");
    return Promise.all(
        linked.map(async (one) => {
            const { items } = await get(api`agents/${one.id}/commands`);
            return { ...one, commands: items, running: items.filter((each) => each.state === "running").length };
        }),
    );
}

async function remove(one) {
    const text = one.running
        ? `${number(one.running)} of its commands run, and are lost. Its machine is not touched.`
        : "Its secret is deleted, so it cannot connect again. Its machine is not touched.";
    const said = await ask({ title: `Remove ${one.id}?`, yes: "Remove", text, fields: [] });
    return said && act(() => request("DELETE", api`agents/${one.id}`), `${one.id} is removed`);
}

const systemOf = (one) => [one.system_info?.os, one.system_info?.kernel].filter(Boolean).join(" · ") || "unknown";
const ROOMY = ["address", "system", "heard of"]; // left out where the page is narrow
const newest = (one) => one.commands[one.commands.length - 1];

function Row({ one, reload }) {
    const last = newest(one);
    return (
        <tr>
            <th scope="row" class="mono">
                {one.id}
            </th>
            <td>
                <State state={one.status} />
                {one.crash_loop && <span class="chip s-failed">crash loop</span>}
            </td>
            <td>{one.hostname || "unknown"}</td>
            <td class="roomy mono">{one.ip_address}</td>
            <td class="roomy">{systemOf(one)}</td>
            <td class="roomy" title={moment(new Date(one.last_heartbeat).toISOString())}>
                <Age since={new Date(one.last_heartbeat).toISOString()} />
            </td>
            <td>
                {number(one.running)} run, {number(one.commands.length)} kept
                {last && <div class="mono cut">{last.command}</div>}
            </td>
            <td>
                {whoami.value?.role === "admin" && (
                    <button
                        type="button"
                        class="danger"
                        aria-label={`Remove ${one.id}`}
                        onClick={async () => (await remove(one)) && reload()}>
                        Remove
                    </button>
                )}
            </td>
        </tr>
    );
}

export function Linked() {
    const { data, error, reload } = useLoad(readLinked, [connection.value]);
    useReloadOn(reload, ({ type }) => /^(agent|session)\./.test(type), []);
    return (
        <main id="main" tabindex={-1} class="page">
            <div class="bar">
                <h1>Linked agents</h1>
                <button type="button" onClick={reload}>
                    Look again
                </button>
            </div>
            {error && <Failed error={error} again={reload} />}
            {data && !data.length && (
                <Empty>
                    No agent is linked. <code>atoll secret agent NAME</code> makes a secret, and{" "}
                    <code>atoll agent-client</code> connects a machine with it.
                </Empty>
            )}
            {data && data.length > 0 && (
                <div class="sideways" tabindex={0} role="region" aria-label="Linked agents">
                    <table>
                        <thead>
                            <tr>
                                {["agent", "state", "host", "address", "system", "heard of", "commands", "remove"].map(
                                    (name) => (
                                        <th key={name} class={ROOMY.includes(name) ? "roomy" : ""}>
                                            {name}
                                        </th>
                                    ),
                                )}
                            </tr>
                        </thead>
                        <tbody>
                            {data.map((one) => (
                                <Row key={one.id} one={one} reload={reload} />
                            ))}
                        </tbody>
                    </table>
                </div>
            )}
        </main>
    );
}
