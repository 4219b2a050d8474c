// A recording (asciicast, version 2) played again: run, hold, faster, and a scrubber to any moment.
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { api, text as getText } from "./api.js";
import { clock } from "./format.js";
import { makeTerminal } from "./xterm.js";
import { Failed } from "./ui.jsx";

const IDLE_MAX = 2; // seconds: longer pauses are cut short
export function parseCast(text) {
    const [first, ...rest] = text.split("\n").filter(Boolean);
    const head = JSON.parse(first);
    let at = 0,
        before = 0;
    const frames = [];
    for (const line of rest) {
        const [time, kind, data] = JSON.parse(line);
        at += Math.min(IDLE_MAX, Math.max(0, time - before));
        before = time;
        frames.push({ at, time, kind, data });
    }
    return { head, frames, length: at };
}

export function Player({ box, terminal }) {
    const place = useRef(null),
        live = useRef(null);
    const cast = useSignal(null),
        error = useSignal(null),
        at = useSignal(0),
        runs = useSignal(false),
        speed = useSignal(1);
    useEffect(() => {
        let made = null,
            gone = false;
        getText(api`sandboxes/${box.id}/terminals/${terminal.id}/recording`).then(
            (text) => {
                if (gone) return;
                const parsed = parseCast(text);
                made = makeTerminal({
                    rows: parsed.head.height,
                    cols: parsed.head.width,
                    disableStdin: true,
                    cursorBlink: false,
                });
                made.term.open(place.current);
                made.term.textarea?.setAttribute("aria-label", "Recording");
                live.current = { term: made.term, next: 0, shown: 0 };
                cast.value = parsed;
                show(parsed.length); // its end, until somebody moves
            },
            (failure) => {
                error.value = failure;
            },
        );
        return () => {
            gone = true;
            runs.value = false;
            made?.close();
        };
    }, [terminal.id]);

    // Everything up to that moment; backwards begins anew.
    const show = (time) => {
        const { term } = live.current,
            { frames, head } = cast.value;
        if (time < live.current.shown) {
            term.reset();
            term.resize(head.width, head.height);
            live.current.next = 0;
        }
        let text = "";
        const flush = () => {
            if (text) term.write(text);
            text = "";
        };
        for (; live.current.next < frames.length && frames[live.current.next].at <= time; live.current.next++) {
            const { kind, data } = frames[live.current.next];
            if (kind === "o") text += data;
            const size = kind === "r" && /^(\d+)x(\d+)$/.exec(data);
            if (size) {
                flush();
                term.write("", () => term.resize(Number(size[1]), Number(size[2])));
            }
        }
        flush();
        live.current.shown = time;
        at.value = time;
    };
    useEffect(() => {
        if (!runs.value || !cast.value) return undefined;
        let frame,
            before = performance.now();
        const step = (now) => {
            const time = Math.min(cast.value.length, at.value + (speed.value * (now - before)) / 1000);
            before = now;
            show(time);
            if (time >= cast.value.length) runs.value = false;
            else frame = requestAnimationFrame(step);
        };
        frame = requestAnimationFrame(step);
        return () => cancelAnimationFrame(frame);
    }, [runs.value, cast.value]);

    const play = () => {
        if (!runs.value && at.value >= cast.value.length) show(0);
        runs.value = !runs.value;
    };
    return (
        <section class="pane player" aria-label="Recording" data-at={at.value}>
            {error.value && <Failed error={error.value} />}
            {cast.value && (
                <div class="bar">
                    <button type="button" class="primary" onClick={play}>
                        {runs.value ? "Hold" : "Play"}
                    </button>
                    <input
                        type="range"
                        class="grow"
                        aria-label="Moment"
                        min="0"
                        max={cast.value.length}
                        step="0.01"
                        value={at.value}
                        onInput={(e) => {
                            runs.value = false;
                            show(Number(e.currentTarget.value));
                        }}
                    />
                    <span class="mono">
                        {at.value.toFixed(1)} / {cast.value.length.toFixed(1)} s
                    </span>
                    <select
                        aria-label="Speed"
                        value={speed.value}
                        onChange={(e) => {
                            speed.value = Number(e.currentTarget.value);
                        }}>
                        {[0.5, 1, 2, 4, 8].map((one) => (
                            <option key={one} value={one}>
                                {one}×
                            </option>
                        ))}
                    </select>
                    <span class="quiet">{clock(cast.value.head.timestamp * 1000)}</span>
                    <a
                        class="button"
                        href={api`sandboxes/${box.id}/terminals/${terminal.id}/recording`}
                        download={`${terminal.id}.cast`}>
                        Download
                    </a>
                </div>
            )}
            <div ref={place} class="xtermplace" />
        </section>
    );
}
