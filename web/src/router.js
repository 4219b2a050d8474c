// Where we are, in the address behind "#": every view has one, and the back button works. The part
// before it belongs to the server's own paths.
import { signal } from "@preact/signals";

function parse() {
    const hash = location.hash.startsWith("#login=") ? "" : location.hash; // no view: a code, used up at once
    const [path, query = ""] = hash.replace(/^#\/?/, "").split("?");
    const decode = (part) => {
        try {
            return decodeURIComponent(part);
        } catch {
            return part;
        }
    };
    return { parts: path.split("/").filter(Boolean).map(decode), query: new URLSearchParams(query) };
}

export const route = signal(parse());
addEventListener("hashchange", () => {
    route.value = parse();
});

// to`sandboxes/${id}/files`
export const to = (strings, ...values) =>
    "#/" + strings.map((part, i) => part + (i < values.length ? encodeURIComponent(values[i]) : "")).join("");
export const go = (address) => {
    location.hash = address;
};

// Another query on the same view, without one more step of history.
export function setQuery(changes) {
    const query = new URLSearchParams(route.value.query);
    for (const [key, value] of Object.entries(changes)) value ? query.set(key, value) : query.delete(key);
    const text = query.toString();
    const path = "#/" + route.value.parts.map(encodeURIComponent).join("/");
    history.replaceState(null, "", path + (text ? "?" + text : ""));
    route.value = parse();
}
