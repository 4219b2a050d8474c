// The page. Everything the server or a peer wrote is put in as text, never as markup.
import { useSignal } from "@preact/signals";
import { EVENTS_KEPT, connection, events, gap, health, logout, notice, session, whoami, writeNote } from "./state.js";

const time = (text) => {
    const when = new Date(text);
    return Number.isNaN(when.getTime()) ? String(text) : when.toLocaleTimeString([], { hour12: false });
};

function duration(ms) {
    const seconds = Math.floor(ms / 1000);
    if (seconds < 120) return `${seconds} s`;
    if (seconds < 7200) return `${Math.floor(seconds / 60)} min`;
    return seconds < 172800 ? `${Math.floor(seconds / 3600)} h` : `${Math.floor(seconds / 86400)} days`;
}

const words = { connecting: "Connecting…", live: "Live", lost: "Connection lost, trying again…" };

function Facts({ title, rows }) {
    return (
        <section class="card">
            <h2>{title}</h2>
            <dl>
                {rows.map(([name, value]) => (
                    <div key={name}><dt>{name}</dt><dd>{value}</dd></div>
                ))}
            </dl>
        </section>
    );
}

function Server() {
    const now = health.value;
    return <Facts title="Server" rows={now ? [
        ["state", now.ready ? now.status : "not ready"], ["version", now.version],
        ["up for", duration(now.uptime_ms)], ["event streams", now.subscribers],
    ] : [["state", "asking…"]]} />;
}

function You() {
    const me = whoami.value;
    return <Facts title="You" rows={me ? [
        ["role", me.role], ["tenant", me.tenant], ["known by", me.via],
        ["until", me.expires_at ? new Date(me.expires_at).toLocaleString() : "for ever"],
    ] : [["role", "asking…"]]} />;
}

function Note() {
    const text = useSignal("");
    const send = async (submit) => {
        submit.preventDefault();
        if (text.value.trim() && await writeNote(text.value.trim())) text.value = "";
    };
    return (
        <form class="note" onSubmit={send}>
            <label for="note">Write a note</label>
            <input id="note" autocomplete="off" maxlength={16384} value={text.value}
                onInput={(input) => { text.value = input.currentTarget.value; }} />
            <button type="submit">Write</button>
            <output role="alert">{notice.value}</output>
        </form>
    );
}

function Events() {
    const filter = useSignal("");
    const held = useSignal(null);
    const list = (held.value ?? events.value).filter((event) =>
        `${event.type} ${event.object}`.includes(filter.value.trim()));
    return (
        <section class="card wide">
            <div class="bar">
                <h2>Events</h2>
                <label for="filter" class="quiet">Filter</label>
                <input id="filter" type="search" placeholder="type or object" value={filter.value}
                    onInput={(input) => { filter.value = input.currentTarget.value; }} />
                <button type="button" aria-pressed={held.value !== null}
                    onClick={() => { held.value = held.value ? null : events.value; }}>
                    {held.value ? "Go on" : "Hold"}
                </button>
            </div>
            {gap.value && <p class="warn">Some events were too old to be shown.</p>}
            {list.length === 0 && <p class="quiet">Nothing has happened yet.</p>}
            <ol class="events" aria-live="off">
                {list.slice(0, EVENTS_KEPT).map((event) => (
                    <li key={event.seq}>
                        <details>
                            <summary>
                                <time dateTime={event.time}>{time(event.time)}</time>
                                <span class="seq">{event.seq}</span>
                                <strong>{event.type}</strong>
                                <span class="object">{event.object || event.data?.text || ""}</span>
                            </summary>
                            <pre>{JSON.stringify(event.data, null, 2)}</pre>
                        </details>
                    </li>
                ))}
            </ol>
        </section>
    );
}

function LoggedOut({ why }) {
    return (
        <main class="middle">
            <h1>Atoll</h1>
            {why && <p role="alert">{why}</p>}
            <p>You are not logged in. On the machine that runs the server, type</p>
            <pre><code>atoll login</code></pre>
            <p>and open the link it prints. It works once, for ten minutes.</p>
        </main>
    );
}

export function App() {
    const { state, why } = session.value;
    if (state === "starting") return <main class="middle"><p>Connecting…</p></main>;
    if (state === "out") return <LoggedOut why={why} />;
    const may = ["admin", "operator", "agent"].includes(whoami.value?.role);
    return (
        <>
            <header>
                <a class="skip" href="#main">Skip to the events</a>
                <h1>Atoll</h1>
                <p class={"state " + connection.value} role="status">{words[connection.value]}</p>
                <button type="button" onClick={logout}>Log out</button>
            </header>
            <main id="main" tabindex={-1}>
                <Server />
                <You />
                {may && <Note />}
                <Events />
            </main>
        </>
    );
}
