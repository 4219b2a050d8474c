// The shell around every view: who we are, where we are, whether the line is alive, what waits for us.
import { useEffect, useRef } from "preact/hooks";
import { effect } from "@preact/signals";
import { Audit } from "./audit.jsx";
import { Create } from "./create.jsx";
import { Detail } from "./detail.jsx";
import { Events } from "./events.jsx";
import { Health } from "./health.jsx";
import { Linked } from "./linked.jsx";
import { chosen, chosenId, projects, useHub } from "./hub.js";
import { Help, Palette, openHelp, openPalette } from "./palette.jsx";
import { Questions } from "./questions.jsx";
import { Sandboxes } from "./sandboxes.jsx";
import { go, route, to } from "./router.js";
import { api, get } from "./api.js";
import { boxName, connection, hear, logout, maySteer, moveTo, session, waiting, whoami } from "./state.js";
import { nextTheme, theme } from "./theme.js";
import { Asking, Lazy, Toasts, act, toast, useLoad } from "./ui.jsx";

const words = { connecting: "Connecting…", live: "Live", lost: "Connection lost, trying again…" };

const hubViews = () => import("./hubviews.jsx");

// One line a view: its first part of the address, its name, a sign, its key behind "g", what draws it.
export const views = [
    ["sandboxes", "Sandboxes", "▦", "s", Sandboxes],
    ["questions", "Questions", "?", "q", Questions],
    ["board", "Board", "▤", "b", (props) => <Lazy load={hubViews} name="Board" {...props} />],
    ["communications", "Talk", "⇄", "c", (props) => <Lazy load={hubViews} name="Comms" {...props} />],
    ["agents", "Agents", "☺", "a", (props) => <Lazy load={hubViews} name="Agents" {...props} />],
    ["linked", "Linked", "⌁", "l", Linked],
    ["events", "Events", "≋", "e", Events],
    ["audit", "Audit", "§", "u", Audit],
    ["health", "Health", "♥", "h", Health],
];
const allowed = (key) => !(key === "audit" && !maySteer.value);

function View() {
    const { parts } = route.value;
    const [first = "sandboxes", second, third, ...rest] = parts;
    if (first === "sandboxes" && second)
        return <Detail key={second} id={second} tab={third || "overview"} rest={rest} />;
    if (first === "new") return <Create />;
    const view = views.find(([key]) => key === first);
    if (!view)
        return (
            <main id="main" tabindex={-1} class="page">
                <h1>Nothing is here</h1>
                <p>
                    <a href={to`sandboxes`}>To the sandboxes</a>
                </p>
            </main>
        );
    const Body = view[4];
    return <Body second={second} third={third} />;
}

function titleOf({ parts: [first = "sandboxes", second] }) {
    if (first === "sandboxes" && second) return boxName(second);
    return views.find(([key]) => key === first)?.[1] ?? (first === "new" ? "New sandbox" : "");
}

// New questions are told wherever one looks: in the title, in a corner, and by the system if allowed.
function Watch() {
    useEffect(
        () =>
            effect(() => {
                const count = waiting.value.length,
                    name = titleOf(route.value);
                document.title = (count ? `(${count}) ` : "") + (name ? `${name} · Atoll` : "Atoll");
            }),
        [],
    );
    useEffect(
        () =>
            hear(({ type, data }) => {
                if (type !== "ask.created") return;
                const who = data.sandbox ? boxName(data.sandbox) : (data.action?.agent ?? "somebody");
                const text = `${who} asks: ${describe(data)}`;
                toast(text, { link: to`questions`, linkText: "Answer", ms: 15000 });
                if (document.hidden && globalThis.Notification?.permission === "granted")
                    new Notification("Atoll", { body: text, tag: data.id });
            }),
        [],
    );
    return null;
}
export const describe = (one) =>
    one.action?.host ? `${one.action.do} ${one.action.host}:${one.action.port}` : one.kind;

function Keys() {
    useEffect(() => {
        let g = 0;
        const on = (event) => {
            if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
                event.preventDefault();
                return openPalette();
            }
            if (
                event.ctrlKey ||
                event.metaKey ||
                event.altKey ||
                event.target.closest?.("input, textarea, select, dialog, .xterm")
            )
                return;
            if (event.key === "?") return openHelp();
            if (event.key === "/") {
                const box = document.querySelector("input[type=search]");
                if (box) {
                    event.preventDefault();
                    box.focus();
                }
            } else if (event.key === "g") {
                g = Date.now();
            } else if (Date.now() - g < 1500) {
                g = 0;
                const view = views.find((one) => one[3] === event.key);
                if (view && allowed(view[0])) go(to`${view[0]}`);
            } else if (event.key === "n" && maySteer.value) {
                go(to`new`);
            }
        };
        addEventListener("keydown", on);
        return () => removeEventListener("keydown", on);
    }, []);
    return null;
}

// What the hub's views show: everything, or one project. On a board the address follows.
function ProjectSwitch() {
    useHub("projects");
    if (!projects.value.length) return null;
    const choose = (id) => {
        chosenId.value = id;
        if (id && route.value.parts[0] === "board") go(to`board/${id}`);
    };
    return (
        <select
            class="project"
            aria-label="Project switch"
            value={chosen.value?.id ?? ""}
            onChange={(e) => choose(e.currentTarget.value)}>
            <option value="">all projects</option>
            {projects.value.map((one) => (
                <option key={one.id} value={one.id}>
                    {one.name}
                </option>
            ))}
        </select>
    );
}

// Who owns the server looks at other tenants too; for everybody else it is the name of theirs.
function Tenant() {
    const me = whoami.value;
    const found = useLoad(() => get(api`tenants`).then((page) => page.items.map((one) => one.name)), [me?.tenant]);
    const names = found.data ?? [];
    if (names.length < 2)
        return (
            <span class="who quiet" title={`${me?.role} of ${me?.tenant}`}>
                {me?.tenant === "default" ? me.role : `${me?.tenant} · ${me?.role}`}
            </span>
        );
    return (
        <select
            class="project"
            aria-label="Tenant switch"
            value={me.tenant}
            onChange={(e) => act(() => moveTo(e.currentTarget.value))}>
            {names.map((name) => (
                <option key={name} value={name}>
                    {name}
                </option>
            ))}
        </select>
    );
}

function Header() {
    const [first = "sandboxes"] = route.value.parts;
    return (
        <header>
            <a
                class="skip"
                href="#main"
                onClick={(e) => {
                    e.preventDefault();
                    document.getElementById("main")?.focus();
                }}>
                Skip to the view
            </a>
            <a class="brand" href={to`sandboxes`}>
                <img src="/assets/icon.svg" alt="" width="22" height="22" />
                <span>Atoll</span>
            </a>
            <nav class="views" aria-label="Views">
                {views
                    .filter(([key]) => allowed(key))
                    .map(([key, text, sign]) => (
                        <a key={key} href={to`${key}`} aria-current={first === key ? "page" : undefined}>
                            <span class="sign" aria-hidden="true">
                                {sign}
                            </span>
                            <span class="word">{text}</span>
                            {key === "questions" && waiting.value.length > 0 && (
                                <span class="count hot" aria-label={`${waiting.value.length} waiting`}>
                                    {waiting.value.length}
                                </span>
                            )}
                        </a>
                    ))}
            </nav>
            <ProjectSwitch />
            <p class={"state " + connection.value} role="status" aria-label="Connection">
                {words[connection.value]}
            </p>
            <Tenant />
            <button type="button" class="find" onClick={openPalette} title="Ctrl-K">
                <span>Find</span> <kbd>Ctrl K</kbd>
            </button>
            <button
                type="button"
                class="icon"
                onClick={nextTheme}
                aria-label={`Colours: ${theme.value}`}
                title={`Colours: ${theme.value}`}>
                {{ system: "◐", dark: "☾", light: "☀" }[theme.value]}
            </button>
            <button type="button" class="out" onClick={logout}>
                Log out
            </button>
        </header>
    );
}

function LoggedOut({ why }) {
    return (
        <main class="middle">
            <h1>Atoll</h1>
            {why && <p role="alert">{why}</p>}
            <p>You are not logged in. On the machine that runs the server, type</p>
            <pre>
                <code>atoll login</code>
            </pre>
            <p>and open the link it prints. It works once, for ten minutes.</p>
        </main>
    );
}

// Keyboards and screen readers land in the view that was asked for.
function Focus() {
    const path = route.value.parts.join("/");
    const begun = useRef(false);
    useEffect(() => {
        if (begun.current && !document.activeElement?.closest("main, dialog"))
            document.getElementById("main")?.focus();
        begun.current = true;
    }, [path]);
    return null;
}

export function App() {
    const { state, why } = session.value;
    if (state === "starting")
        return (
            <main class="middle">
                <p>Connecting…</p>
            </main>
        );
    if (state === "out") return <LoggedOut why={why} />;
    return (
        <>
            <Watch />
            <Keys />
            <Focus />
            <Header />
            <View />
            <Palette />
            <Help />
            <Asking />
            <Toasts />
        </>
    );
}
