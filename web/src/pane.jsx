/*
 * One terminal, attached. Every byte has a position; we count, and after a break go on exactly where we
 * were. A gap or a picture of the screen moves the position, nothing else does. Who may type is the
 * server's to say, and is shown.
 */
import { FitAddon } from "@xterm/addon-fit";
import { SearchAddon } from "@xterm/addon-search";
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { api, fromBase64, get, hangUp, pause, socket } from "./api.js";
import { leave, mayUse } from "./state.js";
import { copyText, makeTerminal, resizeTerminal } from "./xterm.js";
import { toast } from "./ui.jsx";

const WHOLE_MAX = 4 << 20,
    FIT_MS = 150,
    ROWS_MIN = 5,
    COLS_MIN = 20,
    INPUT_MAX = 32768;
const encoder = new TextEncoder();
const reasons = {
    held: "somebody else types",
    taken: "somebody took control",
    idle: "control ran out",
    released: "given back",
    asked: "",
};

// The terminal that its user has just opened: its pane takes the keyboard.
let opened = null;
export const focusOn = (id) => {
    opened = id;
};

export function Pane({ box, terminal, title }) {
    const place = useRef(null),
        live = useRef(null),
        finding = useRef(null);
    const role = useSignal("observer"),
        why = useSignal(""),
        state = useSignal("connecting"),
        members = useSignal(null),
        ended = useSignal(""),
        gaps = useSignal(0),
        find = useSignal(null),
        position = useSignal(0);
    const base = api`sandboxes/${box.id}/terminals/${terminal.id}`;

    useEffect(() => {
        const { term, close } = makeTerminal({});
        const fit = new FitAddon(),
            search = new SearchAddon();
        term.loadAddon(fit);
        term.loadAddon(search);
        term.open(place.current);
        term.textarea?.setAttribute("aria-label", `Terminal ${title}`);
        if (opened === terminal.id) {
            opened = null;
            term.focus();
        }
        let ws = null,
            at = null,
            mute = true,
            gone = false,
            known = { rows: 0, cols: 0 };
        const say = (message) => {
            if (ws?.readyState === WebSocket.OPEN) ws.send(JSON.stringify(message));
        };

        const fitNow = () => {
            const size = fit.proposeDimensions();
            if (!size || role.value !== "controller") return;
            const rows = Math.max(ROWS_MIN, size.rows),
                cols = Math.max(COLS_MIN, size.cols);
            if (rows !== known.rows || cols !== known.cols) say({ type: "resize", rows, cols });
        };
        let due = null;
        const watch = new ResizeObserver(() => {
            clearTimeout(due);
            due = setTimeout(fitNow, FIT_MS);
        });
        watch.observe(place.current);

        const type = (bytes) => {
            if (mute) return; // an answer of our screen to a question of long ago
            if (role.value !== "controller") {
                why.value ||= mayUse.value ? "take control to type" : "you may only watch";
                return;
            }
            for (let i = 0; i < bytes.length; i += INPUT_MAX)
                if (ws?.readyState === WebSocket.OPEN) ws.send(bytes.slice(i, i + INPUT_MAX));
        };
        term.onData((text) => type(encoder.encode(text)));
        term.onBinary((text) => type(Uint8Array.from(text, (c) => c.charCodeAt(0))));
        term.attachCustomKeyEventHandler((event) => {
            if (event.type !== "keydown" || !event.ctrlKey || !event.shiftKey) return true;
            const does = {
                KeyC: () => copyText(term.getSelection()),
                KeyF: () => {
                    find.value ??= "";
                },
            }[event.code];
            if (does) {
                event.preventDefault();
                does();
            }
            return !does;
        });

        const resize = (rows, cols) => {
            known = { rows, cols };
            term.write("", () => resizeTerminal(term, cols, rows));
        };
        const message = (told) => {
            if (told.type === "hello") {
                state.value = "live";
                role.value = told.role;
                why.value = reasons[told.reason] ?? "";
                if (at === null) at = told.position;
                mute = told.end > told.position;
                unmuteAt = told.end;
                resize(told.rows, told.cols);
                setTimeout(fitNow, FIT_MS);
            } else if (told.type === "gap") {
                gaps.value++;
                at = told.to;
            } else if (told.type === "keyframe") {
                at = told.position;
                const picture = fromBase64(told.data);
                resize(told.rows, told.cols);
                mute = true;
                term.write(picture, () => {
                    mute = at < unmuteAt;
                });
            } else if (told.type === "resize") {
                resize(told.rows, told.cols);
            } else if (told.type === "role") {
                role.value = told.role;
                why.value = reasons[told.reason] ?? told.reason;
                fitNow();
            } else if (told.type === "members") {
                members.value = told;
            } else if (told.type === "error") {
                toast(told.message, { bad: true });
            } else if (told.type === "exit") {
                ended.value = told.signal
                    ? `ended by signal ${told.signal}`
                    : told.state === "lost"
                      ? "lost"
                      : `ended with ${told.exit_code}`;
            }
            position.value = at ?? 0;
        };
        let unmuteAt = 0;
        const output = (data) => {
            const known = unmuteAt - at; // of what was printed before we came; what is asked behind it is asked of us
            at += data.length;
            position.value = at;
            if (known > 0) term.write(data.subarray(0, known), unmute(at));
            if (known < data.length) term.write(known > 0 ? data.subarray(known) : data);
        };
        const unmute = (end) => () => {
            if (end >= unmuteAt) mute = false;
        };

        const attach = (from) =>
            new Promise((done) => {
                const query = [from === null ? "" : `from=${from}`, mayUse.value ? "role=controller" : ""]
                    .filter(Boolean)
                    .join("&");
                ws = socket(`${base}/ws?${query}`, "atoll.terminal.v1");
                ws.binaryType = "arraybuffer";
                let opened = false;
                ws.onopen = () => {
                    opened = true;
                };
                ws.onmessage = ({ data }) =>
                    typeof data === "string" ? message(JSON.parse(data)) : output(new Uint8Array(data));
                ws.onclose = ({ code }) => done({ code, opened });
            });
        (async () => {
            for (let wait = 200; !gone;) {
                try {
                    const now = await get(base); // a socket does not tell why it is refused
                    const from = at ?? (now.begin === 0 && now.end <= WHOLE_MAX ? 0 : null);
                    const { code, opened } = await attach(from);
                    if (gone || ended.value) break;
                    if (opened) wait = 200;
                    if (code === 4401) return leave("The session has ended.");
                } catch (error) {
                    if (error.status === 404) {
                        ended.value = "no longer kept";
                        break;
                    }
                    if (error.status === 401) return leave("The session has ended.");
                }
                if (gone) break;
                state.value = "lost";
                await pause(wait);
                wait = Math.min(2 * wait, 3000);
            }
            if (!gone) {
                state.value = "ended";
                role.value = "observer";
            }
            return undefined;
        })();
        live.current = {
            term,
            search,
            say,
            get ws() {
                return ws;
            },
        };
        place.current.atollPane = {
            get position() {
                return at;
            },
            term,
        }; // for whoever debugs
        return () => {
            gone = true;
            clearTimeout(due);
            watch.disconnect();
            hangUp(ws);
            close();
        };
    }, [terminal.id]);

    const look = (back) =>
        live.current.search[back ? "findPrevious" : "findNext"](find.value, {
            decorations: {
                matchOverviewRuler: "#888",
                activeMatchColorOverviewRuler: "#fa0",
                matchBackground: "#665500",
                activeMatchBackground: "#aa5500",
            },
        });
    useEffect(() => {
        if (find.value !== null) finding.current?.focus();
    }, [find.value === null]);
    const controls = role.value === "controller";
    return (
        <section
            class="pane"
            aria-label={`Terminal ${title}`}
            data-state={state.value}
            data-role={role.value}
            data-position={position.value}>
            <div class="bar">
                <b class="cut">{title}</b>
                <span class={"chip " + (controls ? "s-running" : "")}>
                    {ended.value || (state.value !== "live" ? state.value : controls ? "you type" : "you watch")}
                </span>
                {why.value && !ended.value && <span class="quiet">{why.value}</span>}
                {members.value && (
                    <span class="quiet" title="attached, and who of them may type">
                        {members.value.viewers} here, {members.value.controllers} type
                    </span>
                )}
                {gaps.value > 0 && <span class="warn">some output was too old to be shown</span>}
                <span class="grow" />
                {state.value === "live" &&
                    mayUse.value &&
                    (controls ? (
                        <button type="button" onClick={() => live.current.say({ type: "release" })}>
                            Release
                        </button>
                    ) : (
                        <button
                            type="button"
                            onClick={() => {
                                live.current.say({ type: "control", take: true });
                                live.current.term.focus();
                            }}>
                            Take control
                        </button>
                    ))}
                {state.value === "live" && (
                    <button
                        type="button"
                        title="A picture of the screen now"
                        onClick={() => live.current.say({ type: "keyframe" })}>
                        Resync
                    </button>
                )}
                <button
                    type="button"
                    onClick={() => {
                        find.value = find.value === null ? "" : null;
                    }}
                    aria-pressed={find.value !== null}>
                    Search
                </button>
                <button
                    type="button"
                    onClick={() => {
                        const { term } = live.current;
                        const had = term.hasSelection();
                        if (!had) term.selectAll();
                        copyText(term.getSelection().replace(/\s+$/, "\n"));
                        if (!had) term.clearSelection();
                        toast("Copied");
                    }}>
                    Copy
                </button>
            </div>
            {find.value !== null && (
                <form
                    class="bar findbar"
                    onSubmit={(e) => {
                        e.preventDefault();
                        look(false);
                    }}>
                    <input
                        ref={finding}
                        aria-label="Search in the terminal"
                        value={find.value}
                        class="grow"
                        onInput={(e) => {
                            find.value = e.currentTarget.value;
                        }}
                        onKeyDown={(e) => {
                            if (e.key === "Escape") {
                                find.value = null;
                                live.current.search.clearDecorations();
                                live.current.term.focus();
                            }
                        }}
                    />
                    <button type="submit">Next</button>
                    <button type="button" onClick={() => look(true)}>
                        Previous
                    </button>
                </form>
            )}
            <div ref={place} class="xtermplace" />
        </section>
    );
}
