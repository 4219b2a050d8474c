/*
 * Files of a sandbox: a tree of directories, a look into one file, editing, uploads by drop, downloads.
 *
 * A path here is percent-encoded from the start, because a name inside may be any bytes; it is decoded
 * only to be shown.
 */
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { api, bytes as readBytes, eventStream, fromBase64, get, post, put, request } from "./api.js";
import { bytes, moment } from "./format.js";
import { go, route, setQuery } from "./router.js";
import { mayUse } from "./state.js";
import { Empty, Failed, act, ask, confirm, toast, useLoad } from "./ui.jsx";
import { chosen, dropped, uploadAll } from "./upload.js";

const TEXT_MAX = 1 << 20,
    IMAGE_MAX = 4 << 20,
    PAGE = 1000,
    LOOK_MS = 150;
const encodeBytes = (raw) => [...raw].map((byte) => "%" + byte.toString(16).padStart(2, "0")).join("");
const partOf = (file) =>
    file.name_base64 ? encodeBytes(fromBase64(file.name_base64)) : encodeURIComponent(file.name);
const show = (part) => {
    try {
        return decodeURIComponent(part);
    } catch {
        return part;
    }
};
const under = (dir, part) => (dir === "/" ? "" : dir) + "/" + part;
const above = (path) => path.slice(0, path.lastIndexOf("/")) || "/";
const images = { png: "image/png", jpg: "image/jpeg", jpeg: "image/jpeg", gif: "image/gif", webp: "image/webp" };

export function Files({ box }) {
    const { query } = route.value;
    const dir = query.get("dir") || "/workspace",
        file = query.get("file");
    const base = api`sandboxes/${box.id}/files`;
    const list = useLoad(() => get(`${base}/list?path=${dir}&limit=${PAGE}`), [box.id, dir, box.state]);
    const over = useSignal(false),
        open = useSignal(new Set()), // directories of the tree whose contents are shown, too
        changes = useSignal(0);
    const deep = open.value.size > 0 ? 1 : 0;
    useEffect(() => {
        open.value = new Set();
    }, [box.id, dir]);
    useEffect(() => {
        // the directory in sight is watched, while it runs
        if (box.state !== "running") return undefined;
        const stop = new AbortController();
        let due = null; // a storm of changes is one look
        (async () => {
            try {
                const path = `${base}/watch?path=${dir}&recursive=${deep}`;
                for await (const block of eventStream(path, stop.signal))
                    if (block.event !== "ready")
                        due ??= setTimeout(() => {
                            due = null;
                            changed();
                        }, LOOK_MS);
            } catch {
                /* looked at again by hand */
            }
        })();
        return () => {
            stop.abort();
            clearTimeout(due);
        };
    }, [box.id, dir, box.state, deep]);
    const changed = () => {
        list.reload();
        changes.value++;
    };

    const upload = async (coming) => {
        await act(async () => {
            const count = await uploadAll(base, dir, await coming);
            toast(`${count} ${count === 1 ? "file is" : "files are"} there`);
        });
        changed();
    };
    const drop = (event) => {
        event.preventDefault();
        over.value = false;
        if (mayUse.value) upload(dropped(event.dataTransfer));
    };
    const mkdir = async () => {
        const said = await ask({
            title: "New directory",
            yes: "Make it",
            fields: [{ name: "name", label: "Name", required: true }],
        });
        if (said && (await act(() => post(`${base}/mkdir?path=${under(dir, encodeURIComponent(said.name))}`))))
            list.reload();
    };
    const newFile = async () => {
        const said = await ask({
            title: "New file",
            yes: "Make it",
            fields: [{ name: "name", label: "Name", required: true }],
        });
        if (!said) return;
        const path = under(dir, encodeURIComponent(said.name));
        if (await act(() => put(`${base}?path=${path}`, ""))) {
            list.reload();
            setQuery({ file: path });
        }
    };
    return (
        <div class="halves">
            <section
                class={"card drop" + (over.value ? " over" : "")}
                aria-label="Directory"
                onDragOver={(e) => {
                    e.preventDefault();
                    over.value = true;
                }}
                onDragLeave={() => {
                    over.value = false;
                }}
                onDrop={drop}>
                <div class="bar">
                    <Crumbs dir={dir} box={box} />
                    {mayUse.value && (
                        <>
                            <button type="button" onClick={mkdir}>
                                New directory
                            </button>
                            <button type="button" onClick={newFile}>
                                New file
                            </button>
                            <label class="button">
                                Upload
                                <input
                                    type="file"
                                    multiple
                                    class="hidden-input"
                                    aria-label="Upload"
                                    onChange={(e) => {
                                        upload(chosen(e.currentTarget));
                                        e.currentTarget.value = "";
                                    }}
                                />
                            </label>
                        </>
                    )}
                    <a
                        class="button"
                        href={`${base}/tree?path=${dir}`}
                        download={`${show(dir.split("/").pop() || "root")}.tar`}>
                        As tar
                    </a>
                </div>
                {list.error && <Failed error={list.error} again={list.reload} />}
                {list.data?.items.length === 0 && <Empty>Nothing is in it. Drop files here.</Empty>}
                <ul class="rows files" aria-label="Files">
                    {dir !== "/" && (
                        <li>
                            <div class="entry">
                                <span class="twist" aria-hidden="true">
                                    ↑
                                </span>
                                <button
                                    type="button"
                                    class="row"
                                    aria-label="The directory above"
                                    onClick={() => goDir(box, above(dir))}>
                                    ..
                                </button>
                            </div>
                        </li>
                    )}
                    {list.data?.items.map((one) => (
                        <Entry
                            key={partOf(one)}
                            {...{ box, base, one, open, changes }}
                            path={under(dir, partOf(one))}
                            chosen={file}
                        />
                    ))}
                </ul>
                {list.data?.more && <p class="quiet">Only the first {PAGE} are shown.</p>}
            </section>
            {file && <One key={file} box={box} base={base} path={file} changed={changed} />}
        </div>
    );
}

const goDir = (box, dir) => go(`#/sandboxes/${encodeURIComponent(box.id)}/files?` + new URLSearchParams({ dir }));

function Crumbs({ dir, box }) {
    const parts = dir.split("/").filter(Boolean);
    return (
        <nav class="crumbs" aria-label="Path">
            <button type="button" onClick={() => goDir(box, "/")}>
                /
            </button>
            {parts.map((part, i) => (
                <button
                    key={i}
                    type="button"
                    aria-current={i === parts.length - 1 ? "location" : undefined}
                    onClick={() => goDir(box, "/" + parts.slice(0, i + 1).join("/"))}>
                    {show(part)}
                </button>
            ))}
        </nav>
    );
}

function Entry(props) {
    const { box, one, path, chosen: at, open } = props;
    const isDir = one.type === "directory",
        shown = open.value.has(path);
    const sign = { symlink: "↪", file: "▫" }[one.type] ?? "◇";
    const toggle = () => {
        const next = new Set(open.value);
        if (!next.delete(path)) next.add(path);
        open.value = next;
    };
    return (
        <li>
            <div class="entry">
                {isDir ? (
                    <button
                        type="button"
                        class="icon twist"
                        aria-expanded={shown ? "true" : "false"}
                        aria-label={`What is in ${one.name}`}
                        onClick={toggle}>
                        {shown ? "▾" : "▸"}
                    </button>
                ) : (
                    <span class="twist" aria-hidden="true">
                        {sign}
                    </span>
                )}
                <button
                    type="button"
                    class="row"
                    aria-current={path === at ? "true" : undefined}
                    onClick={() => (isDir ? goDir(box, path) : setQuery({ file: path }))}>
                    <span class="cut">
                        {one.name}
                        {one.link && <span class="quiet"> → {one.link}</span>}
                    </span>
                    <span class="quiet">{one.type === "file" ? bytes(one.size) : one.type}</span>
                    <span class="quiet mono">{one.mode}</span>
                </button>
            </div>
            {isDir && shown && <Branch {...props} />}
        </li>
    );
}

// What is in a directory of the tree, below its row.
function Branch({ one, path, ...rest }) {
    const list = useLoad(() => get(`${rest.base}/list?path=${path}&limit=${PAGE}`), [path, rest.changes.value]);
    return (
        <ul class="rows branch" aria-label={one.name}>
            {list.error && (
                <li>
                    <Failed error={list.error} again={list.reload} />
                </li>
            )}
            {list.data?.items.length === 0 && <li class="quiet">empty</li>}
            {list.data?.items.map((each) => (
                <Entry key={partOf(each)} {...rest} one={each} path={under(path, partOf(each))} />
            ))}
            {list.data?.more && <li class="quiet">Only the first {PAGE} are shown.</li>}
        </ul>
    );
}

const dataUrl = (raw, type) =>
    new Promise((done, failed) => {
        const reader = new FileReader();
        reader.onload = () => done(reader.result);
        reader.onerror = () => failed(reader.error);
        reader.readAsDataURL(new Blob([raw], { type }));
    });

async function look(base, path) {
    const stat = await get(`${base}/stat?path=${path}&follow=1`);
    if (stat.type !== "file") return { stat };
    const type = images[show(path).split(".").pop().toLowerCase()];
    if (type && stat.size <= IMAGE_MAX)
        return { stat, image: await dataUrl(await readBytes(`${base}?path=${path}`), type) };
    if (stat.size > TEXT_MAX) return { stat };
    const raw = await readBytes(`${base}?path=${path}`);
    try {
        return { stat, text: raw.includes(0) ? undefined : new TextDecoder("utf-8", { fatal: true }).decode(raw) };
    } catch {
        return { stat };
    }
}

function One({ box, base, path, changed }) {
    const found = useLoad(() => look(base, path), [path]);
    const draft = useSignal(null);
    const name = show(path.split("/").pop());
    const save = () =>
        act(async () => {
            await put(`${base}?path=${path}`, draft.value);
            draft.value = null;
            await found.reload();
            changed();
        }, `${name} is saved`);
    const remove = async () => {
        if (
            (await confirm(`Delete ${name}?`, "It cannot be brought back, except from a snapshot.", "Delete")) &&
            (await act(() => request("DELETE", `${base}?path=${path}&recursive=1`)))
        ) {
            changed();
            setQuery({ file: "" });
        }
    };
    const move = async () => {
        const said = await ask({
            title: `Another name for ${name}`,
            yes: "Move",
            fields: [{ name: "to", label: "Path", required: true, value: show(path) }],
        });
        if (said && (await act(() => post(`${base}/move?path=${path}&to=${encodeURIComponent(said.to)}`)))) {
            changed();
            setQuery({ file: said.to.split("/").map(encodeURIComponent).join("/") });
        }
    };
    const { stat, text, image } = found.data ?? {};
    return (
        <section class="card output" aria-label="File">
            <div class="bar">
                <h2 class="mono cut">{name}</h2>
                {stat && (
                    <span class="quiet">
                        {bytes(stat.size)}, {stat.mode}, {moment(stat.mtime)}
                    </span>
                )}
                <a class="button" href={`${base}?path=${path}`} download={name}>
                    Download
                </a>
                {mayUse.value && (
                    <>
                        <button type="button" onClick={move}>
                            Move
                        </button>
                        <button type="button" class="danger" onClick={remove}>
                            Delete
                        </button>
                    </>
                )}
                <button type="button" class="icon" aria-label="Close the file" onClick={() => setQuery({ file: "" })}>
                    ×
                </button>
            </div>
            {found.error && <Failed error={found.error} again={found.reload} />}
            {text !== undefined && (
                <>
                    <textarea
                        class="mono edit"
                        aria-label={`Contents of ${name}`}
                        spellcheck={false}
                        readOnly={!mayUse.value}
                        value={draft.value ?? text}
                        onInput={(e) => {
                            draft.value = e.currentTarget.value;
                        }}
                        onKeyDown={(e) => {
                            if ((e.ctrlKey || e.metaKey) && e.key === "s") {
                                e.preventDefault();
                                if (draft.value !== null) save();
                            }
                        }}
                    />
                    {draft.value !== null && draft.value !== text && (
                        <div class="bar end">
                            <span class="quiet">Changed</span>
                            <button
                                type="button"
                                onClick={() => {
                                    draft.value = null;
                                }}>
                                Undo
                            </button>
                            <button type="button" class="primary" onClick={save}>
                                Save
                            </button>
                        </div>
                    )}
                </>
            )}
            {image && <img class="preview" src={image} alt={name} />}
            {stat && text === undefined && !image && (
                <Empty>{stat.type === "file" ? "No text, or too large to be shown." : `It is a ${stat.type}.`}</Empty>
            )}
        </section>
    );
}
