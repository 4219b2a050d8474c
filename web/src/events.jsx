// The event log: the newest as they come, older ones read on demand, searchable, exportable. And notes.
import { useSignal } from "@preact/signals";
import { api, get, post } from "./api.js";
import { moment } from "./format.js";
import { route, setQuery, to } from "./router.js";
import { events, gap, mayUse, readOlder } from "./state.js";
import { Clock, Empty, Td, Th, Virtual, act, ask } from "./ui.jsx";

const ROW = 36;
const about = (event) => event.object || event.data?.text || "";
// Where an event's object is shown.
function linkOf({ object, data }) {
    const box = data?.sandbox;
    if (object?.startsWith("exec/") && box) return to`sandboxes/${box}/commands/${object.slice(5)}`;
    if (object?.startsWith("ask/")) return to`questions`;
    if (box && typeof box === "string") return to`sandboxes/${box}`;
    return null;
}

export function save(name, type, text) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

// What can be searched of an event, made once: a filter looks at all of them whenever one more comes.
const searched = new WeakMap();
function textOf(event) {
    let text = searched.get(event);
    if (text === undefined)
        searched.set(
            event,
            (text = `${event.type} ${event.object} ${JSON.stringify(event.data)}`.toLowerCase()),
        );
    return text;
}

const showOne = (event) =>
    ask({
        title: `${event.type}, number ${event.seq}`,
        yes: "Close",
        danger: false,
        fields: [
            {
                name: "data",
                label: moment(event.time),
                rows: 14,
                readOnly: true,
                class: "mono",
                value: JSON.stringify({ object: event.object, ...event.data }, null, 2),
            },
        ],
    });

export function EventTable({ list, label }) {
    if (list.length === 0) return <Empty>Nothing has happened yet.</Empty>;
    return (
        <Virtual
            items={list}
            height={ROW}
            keyOf={(event) => event.seq}
            label={label}
            columns="events"
            head={
                <>
                    <Th c="when">Time</Th>
                    <Th c="seq">Number</Th>
                    <Th c="type">Type</Th>
                    <Th c="object">About</Th>
                    <Th c="by">By</Th>
                </>
            }
            render={(event) => {
                const link = linkOf(event);
                return (
                    <>
                        <Td c="when">
                            <Clock at={event.time} />
                        </Td>
                        <Td c="seq quiet">{event.seq}</Td>
                        <Td c="type">
                            <button type="button" class="plain" onClick={() => showOne(event)}>
                                {event.type}
                            </button>
                        </Td>
                        <Td c="object">{link ? <a href={link}>{about(event)}</a> : about(event)}</Td>
                        <Td c="by quiet">{event.data?.by ?? ""}</Td>
                    </>
                );
            }}
        />
    );
}

function Note() {
    const text = useSignal("");
    const send = async (submit) => {
        submit.preventDefault();
        if (text.value.trim() && (await act(() => post(api`notes`, { text: text.value.trim() })))) text.value = "";
    };
    return (
        <form class="note bar" onSubmit={send}>
            <label for="note">Write a note</label>
            <input
                id="note"
                class="grow"
                autocomplete="off"
                maxlength={16384}
                value={text.value}
                onInput={(input) => {
                    text.value = input.currentTarget.value;
                }}
            />
            <button type="submit">Write</button>
        </form>
    );
}

export function Events() {
    const held = useSignal(null),
        older = useSignal(false);
    const filter = route.value.query.get("q") ?? "";
    const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
    const source = held.value ?? events.value;
    const list = words.length
        ? source.filter((event) => words.every((word) => textOf(event).includes(word)))
        : source;
    const oldest = events.value.at(-1)?.seq ?? 0;
    const more = () =>
        act(async () => {
            older.value = !(await readOlder());
        });
    return (
        <main id="main" tabindex={-1} class="fill">
            <div class="bar">
                <h1>Events</h1>
                <span class="quiet">{list.length}</span>
                <input
                    id="filter"
                    type="search"
                    aria-label="Filter"
                    placeholder="type, object or anything in it"
                    value={filter}
                    onInput={(input) => setQuery({ q: input.currentTarget.value })}
                />
                <button
                    type="button"
                    aria-pressed={held.value !== null}
                    onClick={() => {
                        held.value = held.value ? null : events.value;
                    }}>
                    {held.value ? "Go on" : "Hold"}
                </button>
                {oldest > 1 && (
                    <button type="button" onClick={more} disabled={older.value}>
                        {older.value ? "No older ones are kept" : "Older"}
                    </button>
                )}
                <button
                    type="button"
                    onClick={() =>
                        save(
                            "events.jsonl",
                            "application/x-ndjson",
                            list.map((event) => JSON.stringify(event)).join("\n") + "\n",
                        )
                    }>
                    Export
                </button>
            </div>
            {mayUse.value && <Note />}
            {gap.value && <p class="warn">Some events were too old to be shown.</p>}
            <EventTable list={list} label="Events" />
        </main>
    );
}
