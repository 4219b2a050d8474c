// Snapshots of a sandbox, and what came of what: a small tree of snapshots and forks.
import { snapshot } from "./actions.jsx";
import { all, api, post, request } from "./api.js";
import { bytes } from "./format.js";
import { to } from "./router.js";
import { boxList, boxName, boxes, mayUse } from "./state.js";
import { Age, Empty, Failed, State, act, confirm, useLoad, useReloadOn } from "./ui.jsx";

export function Snapshots({ box }) {
    const mine = useLoad(() => all(api`sandboxes/${box.id}/snapshots`), [box.id]);
    const everyone = useLoad(() => all(api`snapshots`), [box.id]);
    useReloadOn(
        () => {
            mine.reload();
            everyone.reload();
        },
        ({ type }) => type.startsWith("snapshot."),
        [box.id],
    );
    const rollback = async (one) => {
        if (
            await confirm(
                `Back to ${one.name}?`,
                "Its files become those of the snapshot. Its commands end, and what was written since is gone.",
                "Roll back",
            )
        )
            await act(
                () => post(api`sandboxes/${box.id}/rollback`, { snapshot: one.id }),
                `Its files are those of ${one.name}`,
            );
    };
    const remove = async (one) => {
        if (await confirm(`Delete the snapshot ${one.name}?`, "Sandboxes that were made of it stay.", "Delete"))
            await act(() => request("DELETE", api`snapshots/${one.id}`), `${one.name} is deleted`);
    };
    const items = mine.data ?? [];
    return (
        <div class="cards">
            <section class="card wide">
                <div class="bar">
                    <h2>Snapshots</h2>
                    {mayUse.value && box.storage === "disk" && (
                        <button type="button" class="primary" onClick={() => snapshot(box)}>
                            Take one
                        </button>
                    )}
                </div>
                {mine.error && <Failed error={mine.error} again={mine.reload} />}
                {box.storage !== "disk" && <Empty>What it writes is kept in memory, so there are none.</Empty>}
                {mine.data && items.length === 0 && box.storage === "disk" && <Empty>There is none yet.</Empty>}
                <ul class="rows" aria-label="Snapshots">
                    {items.map((one) => (
                        <li key={one.id} class="bar">
                            <b>{one.name}</b>
                            <span class="quiet">
                                of a disk of {bytes(one.bytes)}, <Age since={one.created_at} /> ago
                                {one.state !== "ready" && `, ${one.state}`}
                            </span>
                            {mayUse.value && (
                                <>
                                    <button type="button" onClick={() => rollback(one)}>
                                        Roll back
                                    </button>
                                    <a class="button" href={to`new` + `?from_snapshot=${encodeURIComponent(one.id)}`}>
                                        New sandbox of it
                                    </a>
                                    <button type="button" class="danger" onClick={() => remove(one)}>
                                        Delete
                                    </button>
                                </>
                            )}
                        </li>
                    ))}
                </ul>
            </section>
            <section class="card wide">
                <h2>What came of what</h2>
                <Tree root={rootOf(box)} here={box.id} snapshots={everyone.data ?? []} />
            </section>
        </div>
    );
}

// The way up ends at whoever is gone.
function rootOf(box) {
    let at = box;
    for (let steps = 0; steps < 100; steps++) {
        const up = boxes.value.get(at.parent);
        if (!up) break;
        at = up;
    }
    return at;
}

function Tree({ root, here, snapshots, depth = 0 }) {
    const kept = snapshots.filter((one) => one.sandbox === root.id);
    const forks = boxList.value.filter((one) => one.parent === root.id);
    return (
        <ul class="tree">
            <li>
                {root.id === here ? (
                    <b aria-current="true">{boxName(root.id)}</b>
                ) : (
                    <a href={to`sandboxes/${root.id}/snapshots`}>{boxName(root.id)}</a>
                )}{" "}
                <State state={root.state} asleep={root.asleep} />
                {kept.length > 0 && (
                    <ul>
                        {kept.map((one) => (
                            <li key={one.id}>
                                ◆ {one.name}{" "}
                                <span class="quiet">
                                    <Age since={one.created_at} /> ago
                                </span>
                            </li>
                        ))}
                    </ul>
                )}
                {depth < 20 &&
                    forks.map((one) => (
                        <Tree key={one.id} root={one} here={here} snapshots={snapshots} depth={depth + 1} />
                    ))}
            </li>
        </ul>
    );
}
