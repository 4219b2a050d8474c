/*
 * The audit chain, computed here anew: h(n) = SHA-256(h(n-1) || canonical(row n)), h(0) = 32 zero bytes;
 * canonical() is seq and time in milliseconds as 8 bytes each, then nine texts, each its length in 8
 * bytes and its bytes; numbers most significant byte first.
 *
 * `detail` is hashed as it was written, so its own bytes are taken out of the answer's text: a parsed
 * and printed object may differ from them.
 */
const TEXTS = ["tenant", "actor", "role", "action", "object", "outcome", "request_id", "peer"];
const utf8 = new TextEncoder();

// The end of the JSON value that begins at `at`.
function skip(text, at) {
    if (text[at] === '"') {
        for (at++; text[at] !== '"'; at++) if (text[at] === "\\") at++;
        return at + 1;
    }
    if (text[at] !== "{" && text[at] !== "[") {
        while (at < text.length && !",]}".includes(text[at])) at++;
        return at;
    }
    for (let depth = 0; ;) {
        const c = text[at];
        if (c === undefined) throw new Error("the answer is cut off");
        if (c === '"') {
            at = skip(text, at);
            continue;
        }
        if (c === "{" || c === "[") depth++;
        if ((c === "}" || c === "]") && --depth === 0) return at + 1;
        at++;
    }
}

// {"items":[{…,"detail":RAW,…}]} to its rows, each with the text of its detail.
export function rowsOf(text) {
    const rows = JSON.parse(text).items;
    let at = text.indexOf("[") + 1;
    for (const row of rows) {
        while (text[at] !== "{") at++;
        const end = skip(text, at);
        for (let i = at + 1; i < end - 1;) {
            const key = text.slice(i, skip(text, i));
            const from = skip(text, i) + 1,
                to = skip(text, from);
            if (key === '"detail"') row.detail_text = text.slice(from, to);
            i = to + 1;
        }
        at = end;
    }
    return rows;
}

const number = (view, at, value) => view.setBigUint64(at, BigInt(value));

export async function rowHash(before, row) {
    const texts = [...TEXTS.map((name) => row[name] ?? ""), row.detail_text].map((text) => utf8.encode(text));
    const bytes = new Uint8Array(32 + 16 + texts.reduce((sum, one) => sum + 8 + one.length, 0));
    const view = new DataView(bytes.buffer);
    bytes.set(before);
    number(view, 32, row.seq);
    number(view, 40, Date.parse(row.time));
    let at = 48;
    for (const one of texts) {
        number(view, at, one.length);
        bytes.set(one, at + 8);
        at += 8 + one.length;
    }
    return new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
}

export const hex = (bytes) => [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
export const unhex = (text) => Uint8Array.from(text.match(/../g) ?? [], (pair) => parseInt(pair, 16));

/*
 * Rows in their order. A row can be checked when the one before it is here or when it is the first of
 * all; rows of other tenants are not ours to see, and leave holes.
 */
export async function check(rows, tell) {
    const result = { checked: 0, unseen: 0, bad: null, head: null };
    let before = null;
    for (const row of rows) {
        const hash = row.seq === 1 ? new Uint8Array(32) : before?.seq === row.seq - 1 ? unhex(before.hash) : null;
        if (!hash) result.unseen++;
        else if (hex(await rowHash(hash, row)) !== row.hash) {
            result.bad = row.seq;
            return result;
        } else result.checked++;
        before = row;
        result.head = row;
        if (row.seq % 500 === 0) tell?.(row.seq);
    }
    return result;
}
