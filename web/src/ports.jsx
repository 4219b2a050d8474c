// What listens inside, and links to it on hosts of their own.
import { useSignal } from "@preact/signals";
import { api, get, post } from "./api.js";
import { mayUse } from "./state.js";
import { Empty, Failed, act, useLoad, useReloadOn } from "./ui.jsx";

export function Ports({ box }) {
    const up = box.state === "running";
    const list = useLoad(() => (up ? get(api`sandboxes/${box.id}/ports`) : { items: [] }), [box.id, box.state]);
    const links = useSignal({});
    useReloadOn(list.reload, ({ type, data }) => type.startsWith("exec.") && data.sandbox === box.id, [box.id]);
    const open = (port) =>
        act(async () => {
            const { url } = await post(api`sandboxes/${box.id}/previews`, { port });
            links.value = { ...links.value, [port]: url };
            window.open(url, "_blank", "noopener");
        });
    return (
        <section class="card">
            <div class="bar">
                <h2>Ports</h2>
                <button type="button" onClick={list.reload}>
                    Look again
                </button>
            </div>
            {list.error && <Failed error={list.error} again={list.reload} />}
            {list.data?.items.length === 0 && <Empty>Nothing listens inside.</Empty>}
            <ul class="rows" aria-label="Ports">
                {list.data?.items.map(({ port, address, uid }) => (
                    <li key={port} class="bar">
                        <b>{port}</b>
                        <span class="quiet">
                            {address}, user {uid}
                        </span>
                        {mayUse.value && (
                            <button type="button" onClick={() => open(port)}>
                                Preview
                            </button>
                        )}
                        {links.value[port] && (
                            <a href={links.value[port]} target="_blank" rel="noreferrer noopener">
                                {new URL(links.value[port]).host}
                            </a>
                        )}
                    </li>
                ))}
            </ul>
        </section>
    );
}
