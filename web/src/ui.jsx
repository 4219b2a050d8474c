// Parts that every view is made of. Whatever a server, an agent or a peer wrote is put in as text,
// never as markup; nothing here takes HTML.
import { signal, useSignal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { clock, duration, moment, now } from "./format.js";
import { hear } from "./state.js";

// ---- reading ----

// Runs `fn` when `deps` change; keeps what it gave before while it is read again.
export function useLoad(fn, deps) {
    const state = useSignal({ data: null, error: null });
    const turn = useRef(0);
    const reload = async () => {
        const mine = ++turn.current;
        try {
            const data = await fn();
            if (mine === turn.current) state.value = { data, error: null };
        } catch (error) {
            if (mine === turn.current) state.value = { data: state.value.data, error };
        }
    };
    useEffect(() => {
        reload();
        return () => {
            turn.current++;
        };
    }, deps);
    return { ...state.value, reload };
}

// Reads again a moment after an event for which `matches` holds; a storm of them is one reading.
export function useReloadOn(reload, matches, deps) {
    const newest = useRef(reload);
    newest.current = reload;
    useEffect(() => {
        let due = null;
        const stop = hear((event) => {
            if (matches(event))
                due ??= setTimeout(() => {
                    due = null;
                    newest.current();
                }, 150);
        });
        return () => {
            stop();
            clearTimeout(due);
        };
    }, deps);
}

export function Failed({ error, again }) {
    return (
        <p class="failed" role="alert">
            {error.message}{" "}
            {again && (
                <button type="button" onClick={again}>
                    Try again
                </button>
            )}
        </p>
    );
}

// ---- saying ----

export const toasts = signal([]);
let toastCount = 0;
export function toast(text, { bad = false, link = null, linkText = "", ms = bad ? 10000 : 4000 } = {}) {
    const id = ++toastCount;
    toasts.value = [...toasts.value.slice(-4), { id, text, bad, link, linkText }];
    setTimeout(() => untoast(id), ms);
}
const untoast = (id) => {
    toasts.value = toasts.value.filter((one) => one.id !== id);
};

export function Toasts() {
    return (
        <div class="toasts" role="status" aria-live="polite">
            {toasts.value.map(({ id, text, bad, link, linkText }) => (
                <div key={id} class={"toast" + (bad ? " bad" : "")}>
                    <span>{text}</span>
                    {link && (
                        <a href={link} onClick={() => untoast(id)}>
                            {linkText}
                        </a>
                    )}
                    <button type="button" class="icon" aria-label="Dismiss" onClick={() => untoast(id)}>
                        ×
                    </button>
                </div>
            ))}
        </div>
    );
}

// Does it, says what went wrong; true when it was done.
export async function act(fn, done) {
    try {
        await fn();
        if (done) toast(done);
        return true;
    } catch (error) {
        toast(error.message, { bad: true });
        return false;
    }
}

// ---- asking ----

const question = signal(null);
// A dialogue; resolves with the values of its fields, or null.
export const ask = (what) =>
    new Promise((done) => {
        question.value = { ...what, done };
    });
export const confirm = (title, text, yes, danger = true) => ask({ title, text, yes, danger, fields: [] });

export function Asking() {
    const what = question.value;
    const dialog = useRef(null);
    useLayoutEffect(() => {
        if (what && !dialog.current.open) dialog.current.showModal();
    }, [what]);
    if (!what) return null;
    const close = (value) => {
        question.value = null;
        what.done(value);
    };
    const submit = (event) => {
        event.preventDefault();
        close(Object.fromEntries(new FormData(event.currentTarget)));
    };
    return (
        <dialog
            ref={dialog}
            class="ask"
            aria-labelledby="ask-title"
            onCancel={(e) => {
                e.preventDefault();
                close(null);
            }}>
            <form onSubmit={submit}>
                <h2 id="ask-title">{what.title}</h2>
                {what.text && <p>{what.text}</p>}
                {what.fields.map((field) => (
                    <Field key={field.name} {...field} />
                ))}
                <div class="bar end">
                    <button type="button" onClick={() => close(null)}>
                        Cancel
                    </button>
                    <button type="submit" class={what.danger ? "danger" : "primary"}>
                        {what.yes}
                    </button>
                </div>
            </form>
        </dialog>
    );
}

let fieldCount = 0;
export function Field({ label, name, help, rows, options, ...rest }) {
    const [id] = useState(() => `f${++fieldCount}`);
    const common = { id, name, "aria-describedby": help ? id + "h" : undefined, autocomplete: "off", ...rest };
    return (
        <div class="field">
            <label for={id}>{label}</label>
            {options ? (
                <select {...common}>
                    {options.map((one) => {
                        const [value, text] = Array.isArray(one) ? one : [one, one];
                        return (
                            <option key={value} value={value} selected={value === rest.value}>
                                {text}
                            </option>
                        );
                    })}
                </select>
            ) : rows ? (
                <textarea rows={rows} spellcheck={false} {...common} />
            ) : (
                <input {...common} />
            )}
            {help && (
                <small id={id + "h"} class="quiet">
                    {help}
                </small>
            )}
        </div>
    );
}

// ---- showing ----

export const State = ({ state, asleep }) => (
    <span class={"chip s-" + (asleep ? "asleep" : state)}>{asleep ? "asleep" : state}</span>
);
export const Age = ({ since }) => (
    <time dateTime={since} title={moment(since)}>
        {duration(now.value - Date.parse(since))}
    </time>
);
export const Clock = ({ at }) => (
    <time dateTime={at} title={moment(at)}>
        {clock(at)}
    </time>
);

export function Facts({ rows }) {
    return (
        <dl class="facts">
            {rows.filter(Boolean).map(([name, value]) => (
                <div key={name}>
                    <dt>{name}</dt>
                    <dd>{value}</dd>
                </div>
            ))}
        </dl>
    );
}

export function Labels({ labels }) {
    return Object.entries(labels ?? {}).map(([key, value]) => (
        <span key={key} class="label">
            {key}
            {value !== "" && (
                <>
                    =<b>{value}</b>
                </>
            )}
        </span>
    ));
}

export function Tabs({ tabs, at, label }) {
    const nav = useRef(null);
    useEffect(() => {
        // where not all have room, the chosen one is in sight
        const here = nav.current.querySelector("[aria-current]");
        if (here) nav.current.scrollLeft =
                here.offsetLeft - nav.current.offsetLeft - (nav.current.clientWidth - here.offsetWidth) / 2;
    }, [at]);
    const move = (event) => {
        const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (!step) return;
        const links = [...event.currentTarget.querySelectorAll("a")];
        links[(links.indexOf(document.activeElement) + step + links.length) % links.length].focus();
    };
    return (
        <nav ref={nav} class="tabs" aria-label={label} onKeyDown={move}>
            {tabs.map(([key, text, href, count]) => (
                <a key={key} href={href} aria-current={key === at ? "page" : undefined}>
                    {text}
                    {count > 0 && <span class="count">{count}</span>}
                </a>
            ))}
        </nav>
    );
}

export const Empty = ({ children }) => <p class="quiet empty">{children}</p>;

// A line of newest values, oldest left. The scale begins at 0 and reaches `max` or their greatest.
export function Spark({ values, max, label }) {
    const top = Math.max(max ?? 0, ...values, 1e-9);
    const points = values.map(
        (value, i) => `${(60 - (values.length - 1 - i) * 2).toFixed(1)},${(17 - (16 * value) / top).toFixed(1)}`,
    );
    return (
        <svg class="spark" viewBox="0 0 60 18" width="60" height="18" role="img" aria-label={label}>
            {points.length > 1 && <polyline points={points.join(" ")} />}
        </svg>
    );
}

/*
 * Only the rows in sight are in the page, so that 5,000 are as smooth as 50. All have one height; the
 * page itself scrolls inside `.scroll`. `onRange` hears which rows those are.
 */
export function Virtual({ items, height, render, keyOf, head, label, onRange, columns }) {
    const scroller = useRef(null);
    const [view, setView] = useState({ top: 0, room: 800 });
    useEffect(() => {
        const el = scroller.current;
        const look = () =>
            setView((was) => {
                const top = Math.floor(el.scrollTop / height) * height,
                    room = el.clientHeight;
                return was.top === top && was.room === room ? was : { top, room };
            });
        let due = 0;
        const watch = new ResizeObserver(() => {
            cancelAnimationFrame(due); // what is drawn anew may have another size: not while sizes are told
            due = requestAnimationFrame(look);
        });
        watch.observe(el);
        el.addEventListener("scroll", look, { passive: true });
        look();
        return () => {
            cancelAnimationFrame(due);
            watch.disconnect();
            el.removeEventListener("scroll", look);
        };
    }, [height]);
    const first = Math.max(0, view.top / height - 5);
    const end = Math.min(items.length, Math.ceil((view.top + view.room) / height) + 5);
    const shown = items.slice(first, end);
    const range = shown.map(keyOf).join();
    useEffect(() => {
        onRange?.(shown);
    }, [range]);
    const move = (event) => {
        const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
        const row = event.target.closest?.("[data-row]");
        if (!step || !row || event.target.closest("input, textarea, select")) return;
        event.preventDefault();
        const next = Number(row.dataset.row) + step;
        if (next < 0 || next >= items.length) return;
        const el = scroller.current;
        if (next * height < el.scrollTop) el.scrollTop = next * height;
        if ((next + 2) * height > el.scrollTop + el.clientHeight) el.scrollTop = (next + 2) * height - el.clientHeight;
        requestAnimationFrame(() =>
            requestAnimationFrame(() => el.querySelector(`[data-row="${next}"] :is(a, button, summary)`)?.focus()),
        );
    };
    return (
        <div class="scroll" ref={scroller} tabindex={-1} onKeyDown={move}>
            <div role="table" aria-label={label} aria-rowcount={items.length + 1} class={"table " + columns}>
                <div role="rowgroup" class="thead">
                    <div role="row" aria-rowindex={1}>
                        {head}
                    </div>
                </div>
                <div role="rowgroup" class="tbody" style={{ height: `${items.length * height}px` }}>
                    <div role="presentation" class="block" style={{ transform: `translateY(${first * height}px)` }}>
                        {shown.map((item, i) => (
                            <div
                                role="row"
                                key={keyOf(item)}
                                data-row={first + i}
                                aria-rowindex={first + i + 2}
                                style={{ height: `${height}px` }}>
                                {render(item)}
                            </div>
                        ))}
                    </div>
                </div>
            </div>
        </div>
    );
}
export const Th = ({ children, c }) => (
    <div role="columnheader" class={c}>
        {children}
    </div>
);
export const Td = ({ children, c }) => (
    <div role="cell" class={c}>
        {children}
    </div>
);

// A view whose code is fetched when it is first looked at.
const parts = new Map();
export function Lazy({ load, name, ...props }) {
    const [Part, setPart] = useState(() => parts.get(name));
    const [error, setError] = useState(null);
    useEffect(() => {
        if (Part) return;
        load().then((module) => {
            parts.set(name, module[name]);
            setPart(() => module[name]);
        }, setError);
    }, []);
    if (error) return <Failed error={error} again={() => location.reload()} />;
    return Part ? <Part {...props} /> : <p class="quiet">Loading…</p>;
}
