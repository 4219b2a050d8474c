// A new sandbox. One line of the table below is one field of the request; what is left empty is not
// sent, so that the server's own defaults and templates count.
import { useSignal } from "@preact/signals";
import { all, api, get, post } from "./api.js";
import { lines, number, parseBytes, parsePairs, parseTime } from "./format.js";
import { go, route, to } from "./router.js";
import { boxName, maySteer } from "./state.js";
import { Failed, Field, act, toast, useLoad } from "./ui.jsx";
import { chosen, uploadAll } from "./upload.js";

const asBytes = (text) => mustBe(parseBytes(text), text, "a size like 512m or 2g");
const asTime = (text) => mustBe(parseTime(text), text, "a time like 30m or 2h");
const asNumber = (text) => mustBe(Number(text), text, "a number");
function mustBe(value, text, what) {
    if (!Number.isFinite(value)) throw new Error(`"${text}" is not ${what}`);
    return value;
}
// "DATA /data" or "DATA /data ro", a line each
const asVolumes = (text) =>
    text
        .split("\n")
        .map((line) => line.trim())
        .filter(Boolean)
        .map((line) => {
            const [volume, path, mode] = line.split(/\s+/);
            if (!path) throw new Error(`"${line}" is not VOLUME PATH [ro]`);
            return { volume, path, read_only: mode === "ro" };
        });
const asFiles = (text) =>
    text
        .split("\n")
        .map((line) => line.trim())
        .filter(Boolean)
        .map((line) => {
            const [access, path] = line.split(/\s+/);
            if (!path) throw new Error(`"${line}" is not read PATH or write PATH`);
            return { access, path };
        });

// What a warm start would be of; one that fits is taken, whatever its limits.
function readyOnes(pools) {
    const some = pools.filter((pool) => pool.ready > 0);
    const words = ({ ready, image, user, storage }) => `${ready} of ${image ?? "this machine"}, ${user}, ${storage}`;
    return some.length ? `Ready: ${some.map(words).join("; ")}` : "None stands ready now";
}

const groups = (have) => [
    [
        "What it is",
        [
            { name: "name", label: "Name", placeholder: "none", help: "May be used instead of its id" },
            {
                name: "image",
                label: "Image",
                options: [["", "programs of this machine"], ...have.images.map((one) => one.name)],
            },
            { name: "template", label: "Template", options: [["", "none"], ...have.templates.map((one) => one.name)] },
            { name: "labels", label: "Labels", rows: 2, read: parsePairs, placeholder: "KEY=VALUE, a line each" },
            { name: "env", label: "Environment", rows: 2, read: parsePairs, placeholder: "KEY=VALUE, a line each" },
            { name: "owner", label: "Owner", placeholder: "you", help: "Name of a token; only operators name another" },
            {
                name: "visibility",
                label: "Agents",
                options: [
                    ["", "only its owner"],
                    ["tenant", "every agent of the tenant"],
                ],
            },
            {
                name: "shared_with",
                label: "Shared with",
                rows: 2,
                read: lines,
                placeholder: "names of agents' tokens, a line each",
            },
        ],
    ],
    [
        "Files",
        [
            {
                name: "from_snapshot",
                label: "Begin with the files of",
                options: [
                    ["", "nothing"],
                    ...have.snapshots.map((one) => [one.id, `${one.name} of ${boxName(one.sandbox)}`]),
                ],
            },
            {
                name: "workspace",
                label: "Workspace",
                folder: true,
                help: "A folder of your computer, copied into /workspace",
            },
            {
                name: "volumes",
                label: "Volumes",
                rows: 2,
                read: asVolumes,
                placeholder: "NAME /path [ro]",
                help: have.volumes.length
                    ? "There are: " + have.volumes.map((one) => one.name || one.id).join(", ")
                    : "There is none yet",
            },
            {
                name: "storage",
                label: "Storage",
                options: [
                    ["", "as usual"],
                    ["disk", "disk: stays over stop and start"],
                    ["memory", "memory: gone at its end"],
                ],
            },
            { name: "disk", label: "Bytes written", read: asBytes, placeholder: "8g" },
            { name: "inodes", label: "Files (storage memory)", read: asNumber, placeholder: "100000" },
        ],
    ],
    [
        "Limits",
        [
            { name: "memory", label: "Memory", read: asBytes, placeholder: "1g" },
            {
                name: "cpu_percent",
                label: "Processor",
                read: asNumber,
                placeholder: "200",
                help: "Percent; 100 is one core",
            },
            { name: "io_bytes", label: "Disk bytes a second", read: asBytes, placeholder: "no limit" },
            { name: "io_ops", label: "Disk operations a second", read: asNumber, placeholder: "no limit" },
            { name: "pids", label: "Processes", read: asNumber, placeholder: "512" },
            { name: "nofile", label: "Open files of each", read: asNumber, placeholder: "1024" },
        ],
    ],
    [
        "Start and end",
        [
            { name: "ttl_ms", label: "Deleted after", read: asTime, placeholder: "never", help: "30m, 2h, 1d" },
            { name: "idle.after_ms", label: "When idle for", read: asTime, placeholder: "never" },
            {
                name: "idle.action",
                label: "it is",
                options: [
                    ["", "–"],
                    ["pause", "paused"],
                    ["stop", "stopped"],
                    ["delete", "deleted"],
                ],
            },
            {
                name: "warm",
                label: "Start",
                options: [
                    ["", "as usual (warm, if one fits)"],
                    ["warm", "warm: one that stands ready, if it fits"],
                    ["cold", "cold: made anew"],
                ],
                read: (text) => text === "warm",
                help: readyOnes(have.pools),
            },
        ],
    ],
    [
        "Layers",
        [
            {
                name: "tier",
                label: "Tier",
                options: [
                    ["", "as usual (T3)"],
                    ["T3", "T3: no way out but through policy, Landlock, seccomp, namespaces"],
                    ["T1", "T1: for tools that make sandboxes of their own"],
                ],
                help: "In one word; T0, T2, T4 and vm are not offered here",
            },
            { name: "user", label: "Commands run as", options: [["", "as usual (agent)"], "agent", "root"] },
            {
                name: "files",
                label: "Commands may open only",
                rows: 2,
                read: asFiles,
                placeholder: "read /data\nwrite /workspace",
                help: "Besides the standard places; empty for no such rule",
            },
            {
                name: "nesting",
                label: "Tools inside may make sandboxes of their own",
                check: true,
                help: "Takes Landlock's rules about files and the masks of /proc away",
            },
            { name: "sys", label: "A read-only /sys", check: true },
        ],
    ],
    [
        "Network",
        [
            {
                name: "egress.mode",
                label: "Hosts that no rule allows",
                options: [
                    ["", "as the layers outside say"],
                    ["deny", "are refused"],
                    ...(maySteer.value
                        ? [
                              ["ask", "are asked about"],
                              ["open", "are allowed"],
                          ]
                        : []),
                ],
            },
            ...(maySteer.value
                ? [
                      { name: "egress.packs", label: "Packs", packs: have.packs },
                      {
                          name: "egress.allow",
                          label: "Allow",
                          rows: 2,
                          read: lines,
                          placeholder: "api.example.org\n*.example.net GET /v1/",
                      },
                  ]
                : []),
            { name: "egress.deny", label: "Deny", rows: 2, read: lines, placeholder: "*.ads.example" },
            ...(maySteer.value
                ? [
                      {
                          name: "egress.secrets",
                          label: "Secrets",
                          rows: 2,
                          read: lines,
                          placeholder: "API_KEY\nGH_TOKEN=GITHUB",
                          help: "Variables whose placeholders are replaced in requests",
                      },
                      {
                          name: "egress.inject",
                          label: "Headers put in",
                          rows: 2,
                          read: lines,
                          placeholder: "api.example.org => Authorization: Bearer {secret:API_KEY}",
                      },
                      {
                          name: "egress.intercept",
                          label: "TLS is opened to",
                          rows: 2,
                          read: lines,
                          placeholder: "api.example.org",
                          help: "So that requests can be judged, too",
                      },
                      {
                          name: "egress.unchecked",
                          label: "Any bytes may be sent to",
                          rows: 2,
                          read: lines,
                          placeholder: "git.example.org or db.example.org:5432",
                      },
                      { name: "egress.project", label: "Project", placeholder: "none" },
                      {
                          name: "egress.agent",
                          label: "Agent of the hub",
                          placeholder: "nobody",
                          help: "Whom its programs are at http://atoll.internal/hub/",
                      },
                  ]
                : []),
            { name: "egress.max_connections", label: "Connections at once", read: asNumber, placeholder: "no limit" },
            {
                name: "egress.max_bytes",
                label: "Bytes, both ways",
                read: asBytes,
                placeholder: "no limit",
                help: "In its whole life",
            },
            { name: "egress.ask_s", label: "A question waits, seconds", read: asNumber, placeholder: "60" },
        ],
    ],
];

// Of a form's values, the request: empty fields are left out, "a.b" is b inside a.
function wishOf(form, have) {
    const wish = {};
    for (const field of groups(have).flatMap(([, fields]) => fields)) {
        if (field.folder) continue;
        const text = field.packs ? form.getAll(field.name) : (form.get(field.name) ?? "");
        if (!text.length) continue;
        let value;
        try {
            value = field.read ? field.read(text) : field.check ? true : text;
        } catch (error) {
            throw Object.assign(error, { field: field.name });
        }
        const path = field.name.split(".");
        const last = path.pop();
        const into = path.reduce((at, key) => (at[key] ??= {}), wish);
        into[last] = value;
    }
    return wish;
}

function Pack({ packs, name }) {
    return (
        <fieldset class="packs">
            <legend>Packs</legend>
            {packs.map((pack) => (
                <label key={pack.name} title={[...pack.rules, ...pack.added].join(", ")}>
                    <input type="checkbox" name={name} value={pack.name} />
                    {pack.name}
                </label>
            ))}
        </fieldset>
    );
}

function Input({ field, bad }) {
    const { read: _, check, packs, folder, ...rest } = field;
    if (packs) return <Pack packs={packs} name={field.name} />;
    if (folder) return <Field {...rest} type="file" multiple webkitdirectory />;
    if (check)
        return (
            <label class="check">
                <input type="checkbox" name={field.name} value="1" />
                <span>
                    {field.label}
                    {field.help && <small class="quiet">{field.help}</small>}
                </span>
            </label>
        );
    return (
        <Field
            {...rest}
            aria-invalid={bad ? "true" : undefined}
            value={route.value.query.get(field.name) ?? undefined}
        />
    );
}

// A folder's own name is not part of where its files go.
const inFolder = (input) => chosen(input).map(({ path, file }) => ({ path: path.slice(path.indexOf("/") + 1), file }));

const pick = (path) =>
    get(path).then(
        (page) => page.items,
        () => [],
    );

export function Create() {
    const have = useLoad(async () => {
        const [images, templates, snapshots, volumes, packs, pools] = await Promise.all([
            pick(api`images`),
            pick(api`templates`),
            all(api`snapshots`).catch(() => []),
            all(api`volumes`).catch(() => []),
            pick(api`egress/packs`),
            pick(api`pools`),
        ]);
        return {
            images,
            templates,
            snapshots: snapshots.filter((one) => one.state === "ready"),
            volumes,
            packs,
            pools,
        };
    }, []);
    const error = useSignal(null),
        busy = useSignal("");
    if (have.error)
        return (
            <main id="main" tabindex={-1} class="page">
                <Failed error={have.error} again={have.reload} />
            </main>
        );
    if (!have.data)
        return (
            <main id="main" tabindex={-1} class="page">
                <p>Looking what there is…</p>
            </main>
        );
    const submit = async (event) => {
        event.preventDefault();
        error.value = null;
        busy.value = "Making it…";
        const form = event.currentTarget;
        try {
            const made = await post(api`sandboxes`, wishOf(new FormData(form), have.data));
            toast(
                `${made.name || made.id} runs: ${made.start}, in ${number(Math.round(made.create_us / 100) / 10)} ms`,
            );
            // It is there, whatever becomes of the copy.
            await act(() =>
                uploadAll(api`sandboxes/${made.id}/files`, "/workspace", inFolder(form.workspace), (done, of) => {
                    busy.value = `Copying ${done + 1} of ${of}…`;
                }),
            );
            go(to`sandboxes/${made.id}`);
        } catch (refusal) {
            error.value = refusal;
        }
        busy.value = "";
    };
    const field = error.value?.field?.replace(/\[.*/, ""); // "egress.allow[0]" is said of a line of it
    return (
        <main id="main" tabindex={-1} class="page">
            <form class="create" onSubmit={submit}>
                <h1>New sandbox</h1>
                {groups(have.data).map(([title, fields]) => (
                    <fieldset key={title} class="card">
                        <legend>{title}</legend>
                        {fields.map((one) => (
                            <Input key={one.name} field={one} bad={field && one.name.endsWith(field)} />
                        ))}
                        {title === "Files" && (
                            <p class="quiet">
                                A directory of the server's machine is given with <code>atoll run --bind</code> there:
                                the server opens none by itself.
                            </p>
                        )}
                    </fieldset>
                ))}
                {error.value && (
                    <p class="failed" role="alert">
                        {field ? `${error.value.field}: ` : ""}
                        {error.value.message}
                    </p>
                )}
                <div class="bar end">
                    <a class="button" href={to`sandboxes`}>
                        Cancel
                    </a>
                    <button type="submit" class="primary" disabled={busy.value !== ""}>
                        {busy.value || "Make it"}
                    </button>
                </div>
            </form>
        </main>
    );
}
