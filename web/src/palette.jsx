// Ctrl-K: everything that has a name, and everything that can be done here, by typing some of it.
import { signal, useSignal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import { actionsOf } from "./actions.jsx";
import { views } from "./app.jsx";
import { agents, chosenId, projects } from "./hub.js";
import { go, route, to } from "./router.js";
import { boxList, boxes, logout, maySteer, mayUse } from "./state.js";
import { nextTheme } from "./theme.js";

const SHOWN = 50;
const open = signal(false),
    help = signal(false);
export const openPalette = () => {
    open.value = true;
};
export const openHelp = () => {
    help.value = true;
};

function* choices() {
    const [first, id] = route.value.parts;
    const here = first === "sandboxes" && boxes.value.get(id);
    if (here && mayUse.value)
        for (const one of actionsOf(here)) yield [`${one.text} ${here.name || here.id}`, "action", one.run];
    for (const [key, text] of views) if (key !== "audit" || maySteer.value) yield [text, "view", () => go(to`${key}`)];
    if (mayUse.value) yield ["New sandbox", "action", () => go(to`new`)];
    yield ["Change colours", "action", nextTheme];
    yield ["Keys and shortcuts", "help", openHelp];
    yield ["Log out", "action", logout];
    for (const one of projects.value) yield [one.name, "project", () => go(to`board/${one.id}`)];
    if (chosenId.value)
        yield [
            "All projects",
            "action",
            () => {
                chosenId.value = "";
            },
        ];
    for (const one of agents.value) yield [one.name, "agent", () => go(to`agents/${one.name}`)];
    for (const box of boxList.value) {
        const labels = Object.entries(box.labels)
            .map(([k, v]) => `${k}=${v}`)
            .join(" ");
        yield [
            `${box.name ? box.name + " " : ""}${box.id} ${labels}`.trim(),
            box.state,
            () => go(to`sandboxes/${box.id}`),
        ];
    }
}

function find(text) {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean),
        found = [];
    for (const choice of choices()) {
        const name = choice[0].toLowerCase();
        if (words.every((word) => name.includes(word))) found.push(choice);
        if (found.length === SHOWN) break;
    }
    return found;
}

export function Palette() {
    const text = useSignal(""),
        at = useSignal(0),
        dialog = useRef(null);
    useLayoutEffect(() => {
        if (open.value && !dialog.current.open) {
            text.value = "";
            at.value = 0;
            dialog.current.showModal();
        }
    }, [open.value]);
    if (!open.value) return null;
    const found = find(text.value);
    const close = () => {
        open.value = false;
    };
    const run = (choice) => {
        close();
        choice[2]();
    };
    const key = (event) => {
        const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
        if (step && found.length) {
            event.preventDefault();
            at.value = (at.value + step + found.length) % found.length;
            document.getElementById(`choice${at.value}`)?.scrollIntoView({ block: "nearest" });
        } else if (event.key === "Enter" && found[at.value]) {
            event.preventDefault();
            run(found[at.value]);
        }
    };
    return (
        <dialog
            ref={dialog}
            class="palette"
            aria-label="Find and do"
            onClose={close}
            onClick={(e) => e.target === dialog.current && close()}>
            <input
                type="text"
                role="combobox"
                aria-expanded="true"
                aria-controls="choices"
                aria-label="What?"
                autocomplete="off"
                aria-activedescendant={found.length ? `choice${at.value}` : undefined}
                placeholder="A sandbox, a view, an action…"
                value={text.value}
                onKeyDown={key}
                onInput={(e) => {
                    text.value = e.currentTarget.value;
                    at.value = 0;
                }}
            />
            <ul id="choices" role="listbox" aria-label="Choices">
                {found.map((choice, i) => (
                    <li
                        key={i}
                        id={`choice${i}`}
                        role="option"
                        aria-selected={i === at.value}
                        onClick={() => run(choice)}>
                        <span>{choice[0]}</span>
                        <span class="quiet">{choice[1]}</span>
                    </li>
                ))}
                {found.length === 0 && (
                    <li class="quiet" role="option" aria-selected="false">
                        Nothing has such a name.
                    </li>
                )}
            </ul>
        </dialog>
    );
}

const keys = [
    ["Ctrl K", "Find anything"],
    ["/", "Into the search field"],
    ["n", "New sandbox"],
    ["↑ ↓", "From row to row"],
    ["a d", "Allow, deny: the question in focus"],
    ["Esc", "Close"],
];
export function Help() {
    const dialog = useRef(null);
    useLayoutEffect(() => {
        if (help.value && !dialog.current.open) dialog.current.showModal();
    }, [help.value]);
    if (!help.value) return null;
    return (
        <dialog
            ref={dialog}
            class="ask"
            aria-labelledby="keys-title"
            onClose={() => {
                help.value = false;
            }}>
            <h2 id="keys-title">Keys</h2>
            <dl class="facts">
                {[...keys, ...views.map(([, text, , key]) => [`g ${key}`, text])].map(([key, text]) => (
                    <div key={key}>
                        <dt>
                            <kbd>{key}</kbd>
                        </dt>
                        <dd>{text}</dd>
                    </div>
                ))}
            </dl>
            <div class="bar end">
                <button type="button" class="primary" onClick={() => dialog.current.close()}>
                    Close
                </button>
            </div>
        </dialog>
    );
}
