// Terminals of a sandbox: a tab each, up to four side by side, and recordings. Fetched with xterm when
// the first one is looked at.
import "./csp.js";
import "@xterm/xterm/css/xterm.css";
import { api, get, post, request } from "./api.js";
import { commandOf } from "./commands.jsx";
import { go, route, setQuery, to } from "./router.js";
import { mayUse } from "./state.js";
import { Pane, focusOn } from "./pane.jsx";
import { Player } from "./player.jsx";
import { Empty, Failed, act, ask, confirm, useLoad, useReloadOn } from "./ui.jsx";

const PANES_MAX = 4;
const nameOf = (one) =>
    one.name || (one.argv[0] === "/bin/sh" && one.argv[2]?.startsWith("command -v bash") ? "shell" : commandOf(one));

export function Terminals({ box, rest: [open] }) {
    const list = useLoad(() => get(api`sandboxes/${box.id}/terminals`), [box.id]);
    useReloadOn(list.reload, ({ type, data }) => type.startsWith("exec.") && data.sandbox === box.id, [box.id]);
    const { query } = route.value;
    const items = list.data?.items ?? [];
    const known = (id) => items.find((one) => one.id === id);
    const first = open ?? [...items].reverse().find((one) => one.state === "running")?.id ?? items.at(-1)?.id;
    const beside = (query.get("beside") ?? "").split(",").filter((id) => id && id !== first && known(id));
    const shown = [first, ...beside].map(known).filter(Boolean).slice(0, PANES_MAX);
    const recording = query.get("recording");

    const begin = async (wish) =>
        act(async () => {
            const made = await post(api`sandboxes/${box.id}/terminals`, wish);
            focusOn(made.id);
            await list.reload();
            go(to`sandboxes/${box.id}/terminals/${made.id}`);
        });
    const beginOther = async () => {
        const said = await ask({
            title: "New terminal",
            yes: "Open",
            fields: [
                { name: "command", label: "Command", placeholder: "a shell", class: "mono" },
                { name: "name", label: "Name", placeholder: "none" },
                { name: "cwd", label: "Directory", placeholder: "/workspace" },
                { name: "user", label: "As", options: [["", "as usual"], "agent", "root"] },
                { name: "max_controllers", label: "How many may type", type: "number", min: 1, value: 1 },
            ],
        });
        if (said)
            await begin(
                Object.fromEntries(
                    Object.entries(said)
                        .filter(([, value]) => value !== "")
                        .map(([key, value]) => [key, key === "max_controllers" ? Number(value) : value]),
                ),
            );
    };
    const end = async (one) => {
        if (await confirm(`End ${nameOf(one)}?`, "It and all that it started is killed.", "End it"))
            await act(() => request("DELETE", api`sandboxes/${box.id}/terminals/${one.id}`));
    };
    return (
        <div class="terminals">
            <div class="bar" role="group" aria-label="Terminals">
                {items.map((one) => (
                    <span key={one.id} class="termtab" data-on={shown.includes(one) ? "" : undefined}>
                        <a
                            href={to`sandboxes/${box.id}/terminals/${one.id}`}
                            aria-current={one.id === first ? "true" : undefined}>
                            <span class={"dot s-" + one.state} aria-hidden="true" />
                            {nameOf(one)}
                            {one.state !== "running" && <span class="quiet"> (ended)</span>}
                        </a>
                        {one.id !== first && shown.length < PANES_MAX && !shown.includes(one) && (
                            <button
                                type="button"
                                class="icon"
                                aria-label={`${nameOf(one)} beside`}
                                title="Beside"
                                onClick={() => setQuery({ beside: [...beside, one.id].join(",") })}>
                                ◫
                            </button>
                        )}
                        {beside.includes(one.id) && (
                            <button
                                type="button"
                                class="icon"
                                aria-label={`Close the pane of ${nameOf(one)}`}
                                title="Close the pane"
                                onClick={() => setQuery({ beside: beside.filter((id) => id !== one.id).join(",") })}>
                                ×
                            </button>
                        )}
                        {one.state === "running" && mayUse.value && (
                            <button
                                type="button"
                                class="icon"
                                aria-label={`End ${nameOf(one)}`}
                                title="End it"
                                onClick={() => end(one)}>
                                end
                            </button>
                        )}
                    </span>
                ))}
                {mayUse.value && box.state !== "failed" && (
                    <>
                        <button type="button" class="primary" onClick={() => begin({})}>
                            New shell
                        </button>
                        <button type="button" onClick={beginOther}>
                            New…
                        </button>
                    </>
                )}
                {known(first) && (
                    <button
                        type="button"
                        aria-pressed={recording === first}
                        onClick={() => setQuery({ recording: recording === first ? "" : first })}>
                        Recording
                    </button>
                )}
            </div>
            {list.error && <Failed error={list.error} again={list.reload} />}
            {list.data && items.length === 0 && <Empty>There is no terminal yet.</Empty>}
            <div class={"panes n" + shown.length}>
                {shown.map((one) =>
                    recording === one.id ? (
                        <Player key={one.id + "r"} box={box} terminal={one} />
                    ) : (
                        <Pane key={one.id} box={box} terminal={one} title={nameOf(one)} />
                    ),
                )}
            </div>
        </div>
    );
}
