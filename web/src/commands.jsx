// The commands of a sandbox, newest first; one opened shows its output as it comes, by position.
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { Printed } from "./ansi.js";
import { api, eventStream, fromBase64, get, pause, post } from "./api.js";
import { bytes, duration, number } from "./format.js";
import { go, to } from "./router.js";
import { mayUse } from "./state.js";
import { Age, Clock, Empty, Facts, Failed, act, useLoad, useReloadOn } from "./ui.jsx";

const KEPT = 1 << 20; // characters of output in the page; the rest can be downloaded
export const commandOf = (exec) =>
    exec.argv[0] === "/bin/sh" && exec.argv[1] === "-c" && exec.argv.length === 3
        ? exec.argv[2]
        : exec.argv.map((one) => (/^[\w./:=@%+-]+$/.test(one) ? one : `'${one.replaceAll("'", "'\\''")}'`)).join(" ");
const ending = (exec) =>
    exec.state !== "exited" ? exec.state : exec.signal ? `signal ${exec.signal}` : `exit ${exec.exit_code}`;

export function Commands({ box, rest: [open] }) {
    const list = useLoad(() => get(api`sandboxes/${box.id}/execs`), [box.id]);
    useReloadOn(list.reload, ({ type, data }) => type.startsWith("exec.") && data.sandbox === box.id, [box.id]);
    const execs = [...(list.data?.items ?? [])].reverse();
    const chosen = execs.find((exec) => exec.id === open);
    return (
        <div class="halves">
            <section class="card">
                {mayUse.value && <Run box={box} />}
                {list.error && <Failed error={list.error} again={list.reload} />}
                {list.data && execs.length === 0 && <Empty>Nothing has run here.</Empty>}
                <ul class="rows" aria-label="Commands">
                    {execs.map((exec) => (
                        <li key={exec.id}>
                            <a
                                href={to`sandboxes/${box.id}/commands/${exec.id}`}
                                aria-current={exec.id === open ? "true" : undefined}>
                                <code class="cut">{commandOf(exec)}</code>
                                <span
                                    class={
                                        "chip " +
                                        (exec.state === "running"
                                            ? "s-running"
                                            : exec.exit_code === 0
                                              ? ""
                                              : "s-failed")
                                    }>
                                    {ending(exec)}
                                </span>
                                <span class="quiet">
                                    <Age since={exec.started_at} /> ago
                                </span>
                            </a>
                        </li>
                    ))}
                </ul>
            </section>
            {chosen && <One key={chosen.id} box={box} exec={chosen} />}
        </div>
    );
}

function Run({ box }) {
    const line = useSignal(""),
        past = useSignal([]),
        at = useSignal(-1);
    const run = async (event) => {
        event.preventDefault();
        const command = line.value.trim();
        if (!command) return;
        await act(async () => {
            const exec = await post(api`sandboxes/${box.id}/execs`, { command });
            past.value = [command, ...past.value];
            at.value = -1;
            line.value = "";
            go(to`sandboxes/${box.id}/commands/${exec.id}`);
        });
    };
    const key = (event) => {
        const step = { ArrowUp: 1, ArrowDown: -1 }[event.key];
        if (!step || at.value + step >= past.value.length) return;
        event.preventDefault();
        at.value = Math.max(-1, at.value + step);
        line.value = past.value[at.value] ?? "";
    };
    return (
        <form class="bar" onSubmit={run}>
            <input
                class="mono grow"
                aria-label="Command"
                placeholder="a command for /bin/sh"
                autocomplete="off"
                spellcheck={false}
                value={line.value}
                onKeyDown={key}
                onInput={(e) => {
                    line.value = e.currentTarget.value;
                }}
            />
            <button type="submit" class="primary">
                Run
            </button>
        </form>
    );
}

// Both streams in the order they came. After a break the reading continues at the position it had.
function useOutput(box, exec) {
    const parts = useSignal([]),
        cut = useSignal(false),
        trouble = useSignal("");
    useEffect(() => {
        const stop = new AbortController(),
            decoders = { stdout: new TextDecoder(), stderr: new TextDecoder() },
            printed = new Printed(KEPT);
        let from = "0,0",
            due = null;
        const flush = () => {
            due = null;
            cut.value = printed.dropped;
            parts.value = [...printed.parts];
        };
        (async () => {
            while (!stop.signal.aborted) {
                try {
                    for await (const block of eventStream(
                        api`sandboxes/${box.id}/execs/${exec.id}/output` + `?from=${from}`,
                        stop.signal,
                    )) {
                        if (block.id) from = block.id;
                        trouble.value = "";
                        if (block.event === "exit") {
                            flush();
                            return;
                        }
                        if (!(block.event in decoders)) continue;
                        printed.push(
                            block.event,
                            decoders[block.event].decode(fromBase64(block.data), { stream: true }),
                        );
                        due ??= setTimeout(flush, 50);
                    }
                } catch (error) {
                    if (stop.signal.aborted) return;
                    if (error.status === 410 || error.status === 404) {
                        trouble.value = error.message;
                        return;
                    }
                    trouble.value = "The connection is lost, trying again…";
                }
                await pause(1000);
            }
        })();
        return () => {
            stop.abort();
            clearTimeout(due);
        };
    }, [exec.id]);
    return { parts: parts.value, cut: cut.value, trouble: trouble.value };
}

function One({ box, exec }) {
    const { parts, cut, trouble } = useOutput(box, exec);
    const place = useRef(null),
        stick = useRef(true);
    useEffect(() => {
        if (stick.current) place.current.scrollTop = place.current.scrollHeight;
    }, [parts]);
    const base = api`sandboxes/${box.id}/execs/${exec.id}`;
    const running = exec.state === "running";
    return (
        <section class="card output">
            <div class="bar">
                <h2 class="mono cut">{commandOf(exec)}</h2>
                {running && mayUse.value && (
                    <>
                        <button type="button" onClick={() => act(() => post(`${base}/signal`, { signal: "INT" }))}>
                            Interrupt
                        </button>
                        <button
                            type="button"
                            class="danger"
                            onClick={() => act(() => post(`${base}/signal`, { signal: "KILL", tree: true }))}>
                            Kill
                        </button>
                    </>
                )}
                <a class="button" href={`${base}/output`} download={`${exec.id}.txt`}>
                    Download
                </a>
            </div>
            {cut && <p class="quiet">The beginning is left out here.</p>}
            {trouble && (
                <p class="warn" role="status">
                    {trouble}
                </p>
            )}
            <pre
                ref={place}
                tabindex={0}
                role="log"
                aria-label="Output"
                onScroll={(e) => {
                    const el = e.currentTarget;
                    stick.current = el.scrollHeight - el.scrollTop - el.clientHeight < 40;
                }}>
                {parts.map((part, i) =>
                    part.stream === "stderr" || part.class || Object.keys(part.style).length ? (
                        <span
                            key={i}
                            class={(part.stream === "stderr" ? "err " : "") + part.class}
                            style={part.style}>
                            {part.text}
                        </span>
                    ) : (
                        part.text
                    ),
                )}
            </pre>
            <Facts
                rows={[
                    ["state", ending(exec)],
                    ["started", <Clock at={exec.started_at} />],
                    exec.ended_at && ["took", duration(Date.parse(exec.ended_at) - Date.parse(exec.started_at))],
                    ["in", exec.cwd],
                    ["as", exec.user],
                    ["by", exec.by],
                    !running && ["processor", `${((exec.user_us + exec.system_us) / 1e6).toFixed(2)} s`],
                    !running && exec.maxrss_kb > 0 && ["most memory", bytes(exec.maxrss_kb * 1024)],
                    ["printed", `${number(exec.stdout_bytes)} + ${number(exec.stderr_bytes)} bytes`],
                    exec.timed_out && ["ended by", "its time limit"],
                    exec.oom && ["ended by", "want of memory"],
                ]}
            />
        </section>
    );
}
