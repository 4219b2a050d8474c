// The TypeScript SDK for tests/e2e/test_surfaces.py: one call a line in, one answer a line out; bytes as base64.
import { createInterface } from "node:readline";
import { ApiError, connect } from "@atoll/sdk/node";

const client = connect();
const base64 = (bytes) => Buffer.from(bytes).toString("base64");
const calls = {
    create: async ({ name }) => (await client.sandboxes.create({ name, storage: "disk" })).id,
    delete: async ({ id }) => (await client.sandboxes.get(id)).delete(),
    boxes: async () => Object.fromEntries((await client.sandboxes.list()).map((b) => [b.id, b.state])),
    show: async ({ id }) => {
        const box = await client.sandboxes.get(id);
        return [box.id, box.state];
    },
    exec: async ({ id, command, stdin, ...options }) => {
        if (stdin !== undefined) options.stdin = Buffer.from(stdin, "base64");
        const done = await (await client.sandboxes.get(id)).exec(command, options);
        const streams = { stdout: base64(done.stdout), stderr: base64(done.stderr) };
        return { ...streams, code: done.exitCode, timed_out: done.timedOut };
    },
    stream: async ({ id, command }) => {
        const process = await (await client.sandboxes.get(id)).spawn(command), said = { stdout: [], stderr: [] };
        for await (const piece of process.output()) said[piece.stream].push(Buffer.from(piece.data));
        const streams = { stdout: base64(Buffer.concat(said.stdout)), stderr: base64(Buffer.concat(said.stderr)) };
        return { ...streams, code: (await process.wait()).exitCode, timed_out: false };
    },
    append: async ({ id, path, data }) => {
        await (await client.sandboxes.get(id)).files.append(path, Buffer.from(data, "base64"));
    },
    write: async ({ id, path, data }) => {
        await (await client.sandboxes.get(id)).files.write(path, Buffer.from(data, "base64"));
    },
    read: async ({ id, path }) => base64(await (await client.sandboxes.get(id)).files.read(path)),
    list: async ({ id, path }) => {
        const names = [];
        for await (const entry of (await client.sandboxes.get(id)).files.list(path)) names.push(entry.name);
        return names;
    },
};

for await (const line of createInterface({ input: process.stdin })) {
    const { call, ...args } = JSON.parse(line);
    let answer;
    try {
        answer = { ok: (await calls[call](args)) ?? null };
    } catch (error) {
        answer = { error: error instanceof ApiError ? error.code : String(error.stack) };
    }
    console.log(JSON.stringify(answer));
}
