// The audit log: search, export, and its chain of hashes checked in this page, not by the server.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { api, get, text as getText } from "./api.js";
import { check, rowsOf } from "./chain.js";
import { save } from "./events.jsx";
import { moment, number } from "./format.js";
import { route, setQuery } from "./router.js";
import { events } from "./state.js";
import { Clock, Empty, Failed, Td, Th, Virtual, act, ask } from "./ui.jsx";

const ROW = 36,
    PAGE = 1000,
    KEPT = 20000;
const page = async (since) =>
    rowsOf(await getText(api`audit` + `?limit=${PAGE}` + (since === null ? "" : `&since=${since}`)));

const showOne = (row) =>
    ask({
        title: `${row.action}, row ${row.seq}`,
        yes: "Close",
        danger: false,
        fields: [
            {
                name: "data",
                label: moment(row.time),
                rows: 16,
                readOnly: true,
                class: "mono",
                value: JSON.stringify({ ...row, detail_text: undefined }, null, 2),
            },
        ],
    });

export function Audit() {
    const rows = useSignal([]),
        error = useSignal(null),
        verdict = useSignal(null),
        busy = useSignal("");
    const filter = route.value.query.get("q") ?? "";
    const newest = events.value[0]?.seq;
    useEffect(() => {
        // what happens also leaves rows
        const due = setTimeout(
            async () => {
                try {
                    const last = rows.value.at(-1)?.seq ?? null;
                    const more = await page(last);
                    if (more.length)
                        rows.value = [...rows.value, ...more.filter((row) => row.seq > (last ?? 0))].slice(-KEPT);
                    error.value = null;
                } catch (failure) {
                    error.value = failure;
                }
            },
            rows.value.length ? 300 : 0,
        );
        return () => clearTimeout(due);
    }, [newest]);

    const verify = () =>
        act(async () => {
            verdict.value = null;
            const all = [];
            for (let since = 0; ;) {
                const part = await page(since);
                if (!part.length) break;
                all.push(...part);
                since = part.at(-1).seq;
                busy.value = `Reading row ${number(since)}…`;
            }
            const found = await check(all, (seq) => {
                busy.value = `Checking row ${number(seq)}…`;
            });
            busy.value = "";
            found.server = await get(api`audit/verify`).catch((failure) => ({ why: failure.message }));
            verdict.value = found;
        }).then(() => {
            busy.value = "";
        });

    const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
    const list = rows.value
        .filter((row) => {
            const text =
                [row.actor, row.role, row.action, row.object, row.outcome, row.peer, row.request_id, row.detail_text]
                    .join(" ")
                    .toLowerCase();
            return words.every((word) => text.includes(word));
        })
        .reverse();
    return (
        <main id="main" tabindex={-1} class="fill">
            <div class="bar">
                <h1>Audit</h1>
                <span class="quiet">{list.length}</span>
                <input
                    type="search"
                    aria-label="Filter"
                    placeholder="who, action, object, outcome…"
                    value={filter}
                    onInput={(e) => setQuery({ q: e.currentTarget.value })}
                />
                <button type="button" class="primary" onClick={verify} disabled={busy.value !== ""}>
                    {busy.value || "Check the chain here"}
                </button>
                <button
                    type="button"
                    onClick={() =>
                        save(
                            "audit.jsonl",
                            "application/x-ndjson",
                            [...list]
                                .reverse()
                                .map((row) => JSON.stringify({ ...row, detail_text: undefined }))
                                .join("\n") + "\n",
                        )
                    }>
                    Export
                </button>
            </div>
            {error.value && <Failed error={error.value} />}
            {verdict.value && <Verdict found={verdict.value} />}
            {rows.value.length === 0 && !error.value && <Empty>Nothing is written yet.</Empty>}
            {list.length > 0 && (
                <Virtual
                    items={list}
                    height={ROW}
                    keyOf={(row) => row.seq}
                    label="Audit"
                    columns="audit"
                    head={
                        <>
                            <Th c="when">Time</Th>
                            <Th c="seq">Row</Th>
                            <Th c="type">Action</Th>
                            <Th c="out">Outcome</Th>
                            <Th c="object">Object</Th>
                            <Th c="by">Who</Th>
                        </>
                    }
                    render={(row) => (
                        <>
                            <Td c="when">
                                <Clock at={row.time} />
                            </Td>
                            <Td c="seq quiet">{row.seq}</Td>
                            <Td c="type">
                                <button type="button" class="plain" onClick={() => showOne(row)}>
                                    {row.action}
                                </button>
                            </Td>
                            <Td c="out">
                                <span class={"chip " + (row.outcome === "ok" ? "" : "s-failed")}>{row.outcome}</span>
                            </Td>
                            <Td c="object">{row.object}</Td>
                            <Td c="by quiet">
                                {row.actor} ({row.role})
                            </Td>
                        </>
                    )}
                />
            )}
        </main>
    );
}

function Verdict({ found }) {
    if (found.bad)
        return (
            <p class="failed" role="alert">
                Row {found.bad} does not fit: it, or the row before it, was changed.
            </p>
        );
    const agrees = found.server?.head && found.head && found.server.head === found.head.hash;
    return (
        <p class="verdict" role="status">
            ✓ {number(found.checked)} rows fit
            {found.unseen > 0 &&
                `, ${number(found.unseen)} follow rows of other tenants and could not be checked here`}
            .{" "}
            {found.head && (
                <>
                    The last is row {number(found.head.seq)}, <code class="hash">{found.head.hash}</code>
                    {agrees && ", as the server says"}.
                </>
            )}
        </p>
    );
}
