// Files of somebody's own computer on their way into a sandbox, directories and all: each is a place below
// a directory and its bytes. What was dropped must be taken out of the event before anything is awaited.
import { post, put } from "./api.js";

export const chosen = (input) => [...input.files].map((file) => ({ path: file.webkitRelativePath || file.name, file }));

export function dropped(transfer) {
    const found = [...transfer.items]
        .filter((item) => item.kind === "file")
        .map((item) => item.webkitGetAsEntry?.() ?? item.getAsFile());
    const all = found.map((one) => (one instanceof File ? [{ path: one.name, file: one }] : below(one, "")));
    return Promise.all(all).then((lists) => lists.flat());
}

async function below(entry, dir) {
    const path = dir + entry.name;
    if (entry.isFile) return [{ path, file: await new Promise((done, failed) => entry.file(done, failed)) }];
    const reader = entry.createReader(),
        found = [{ path }];
    for (;;) {
        // some at a time, until there are none
        const some = await new Promise((done, failed) => reader.readEntries(done, failed));
        if (!some.length) return found;
        for (const one of some) found.push(...(await below(one, path + "/")));
    }
}

const encode = (path) => path.split("/").map(encodeURIComponent).join("/");
const above = (path) => path.slice(0, Math.max(0, path.lastIndexOf("/")));

// `dir` is percent-encoded, as everywhere in addresses. Tells how far it is. What fails does not stop the rest; the
// error in the end says how many did not arrive, and why the first of them did not.
export async function uploadAll(base, dir, list, progress = () => {}) {
    const into = dir === "/" ? "" : dir;
    const dirs = new Set(list.map(({ path, file }) => (file ? above(path) : path)).filter(Boolean));
    for (const one of dirs) await post(`${base}/mkdir?path=${into}/${encode(one)}&parents=1`);
    const files = list.filter(({ file }) => file);
    const failed = [];
    for (const [i, { path, file }] of files.entries()) {
        progress(i, files.length);
        await put(`${base}?path=${into}/${encode(path)}`, file).catch((error) => failed.push({ path, error }));
    }
    if (failed.length) {
        const [{ path, error }] = failed;
        throw new Error(`${failed.length} of ${files.length} did not arrive; ${path}: ${error.message}`);
    }
    return files.length;
}
