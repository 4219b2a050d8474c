// The TypeScript SDK against the real server: run by tests/e2e/test_sdk_typescript.py, which makes a test of each
// check. What only the harness can do is asked for on stdout ("@kill", "@cut 1") and acknowledged on stdin.
import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { createReadStream } from "node:fs";
import { lstat, mkdir, mkdtemp, readdir, readFile, rm, stat, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import * as atoll from "@atoll/sdk/node";

const env = (name: string) => process.env[name] ?? assert.fail(`${name} is not set`);
const answers = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
async function harness(wish: string): Promise<void> {
    console.log("@" + wish);
    await answers.next();
}

const called = new Set<string>();
const client = atoll.connect({ state: env("STATE") });
{
    // Notes which operations were used, under the comfortable layer.
    const caller = Object.getPrototypeOf(Object.getPrototypeOf(client.api));
    for (const method of ["stream", "socket"]) {
        const real = caller[method];
        caller[method] = function (operation: unknown, ...rest: unknown[]) {
            for (const [name, one] of Object.entries(atoll.operations)) if (one === operation) called.add(name);
            return real.call(this, operation, ...rest);
        };
    }
}

const checks: [string, () => Promise<void>][] = [];
const check = (name: string, work: () => Promise<void>) => checks.push([name, work]);
const inBox = (work: (box: atoll.Sandbox) => Promise<void>) => () => client.sandboxes.use({ ttl_ms: 600_000 }, work);
const sha256 = (data: Uint8Array) => createHash("sha256").update(data).digest("hex");
const collect = async <T>(source: AsyncIterable<T>) => {
    const all: T[] = [];
    for await (const one of source) all.push(one);
    return all;
};
const text = (data: Uint8Array) => new TextDecoder().decode(data);

// ---- which server ----

check("finds the server by state, address and context", async () => {
    assert.equal((await client.whoami()).role, "admin");
    const there = atoll.connect({ address: env("ADDRESS"), token: env("TOKEN") });
    assert.equal((await there.whoami()).role, "admin");
    const plain = new atoll.Client({ address: env("ADDRESS"), token: env("TOKEN") }); // over fetch
    assert.equal((await plain.whoami()).role, "admin");
    process.env["ATOLL_ADDR"] = env("ADDRESS");
    assert.equal(atoll.findEndpoint().token, null); // an address alone gets nobody's token
    process.env["ATOLL_STATE"] = env("STATE");
    assert.equal(atoll.findEndpoint().token, env("TOKEN"));
    delete process.env["ATOLL_ADDR"];
    assert.equal(atoll.findEndpoint().unix, join(env("STATE"), "atoll.sock"));
    delete process.env["ATOLL_STATE"];
    const config = await mkdtemp(join(tmpdir(), "atoll-config-"));
    process.env["XDG_CONFIG_HOME"] = config;
    await mkdir(join(config, "atoll"));
    const known = { current: "lab", contexts: [{ name: "lab", addr: "https://lab.example", token: "t" }] };
    await writeFile(join(config, "atoll", "contexts.json"), JSON.stringify(known), { mode: 0o600 });
    assert.deepEqual(atoll.findEndpoint(), { address: "https://lab.example", unix: null, token: "t", ca: null });
    assert.throws(() => atoll.findEndpoint({ context: "other" }), atoll.AtollError);
    for (const bad of ["localhost:80", "ftp://x", "http://", "http://a/b", "unix:relative"])
        assert.throws(() => atoll.findEndpoint({ address: bad }), atoll.AtollError);
    delete process.env["XDG_CONFIG_HOME"];
    await rm(config, { recursive: true });
});

check("checks certificates", async () => {
    const options = { address: env("TLS_ADDRESS"), token: env("TLS_TOKEN"), retries: 0 };
    assert.equal((await atoll.connect({ ...options, ca: env("TLS_CA") }).whoami()).role, "admin");
    await assert.rejects(atoll.connect(options).whoami(), atoll.ConnectionFailed);
});

// ---- commands ----

check("runs and waits", inBox(async (box) => {
    const result = await box.exec("echo out; echo err >&2; exit 3");
    assert.deepEqual([result.text, result.errorText, result.exitCode, result.ok], ["out\n", "err\n", 3, false]);
    assert.throws(() => result.check(), /exited with 3: err/);
    await assert.rejects(box.exec("exit 4", { check: true }), atoll.CommandFailed);
    assert.equal((await box.exec(["printf", "%s|", "a b", "c"])).text, "a b|c|");
    assert.equal((await box.exec("echo $A; pwd", { env: { A: "1" }, cwd: "/tmp" })).text, "1\n/tmp\n");
}));

check("keeps bytes exact", inBox(async (box) => {
    const all = Uint8Array.from({ length: 256_000 }, (_, at) => at % 256);
    for (const data of [Uint8Array.of(255, 254), Uint8Array.of(97, 0, 98), new TextEncoder().encode("\ufffd"), all])
        assert.deepEqual(Buffer.from((await box.exec(["cat"], { stdin: data })).stdout), Buffer.from(data));
}));

check("collects all output, however much", inBox(async (box) => {
    const result = await box.exec("yes 0123456789abcde | head -c 150000000; exit 3");
    assert.equal(result.stdout.length, 150_000_000);
    assert.equal(sha256(result.stdout), sha256(new Uint8Array(Buffer.alloc(150_000_000, "0123456789abcde\n"))));
    assert.deepEqual([result.exitCode, result.missing], [3, 0]);
    const given = new Uint8Array(randomBytes(1 << 20).buffer.slice(0));
    const much = new Uint8Array(Buffer.concat(Array(100).fill(given)));
    assert.equal(sha256((await box.exec(["cat"], { stdin: much })).stdout), sha256(much));
}));

check("takes input from anywhere", inBox(async (box) => {
    const data = new Uint8Array(randomBytes(3_000_000));
    const parts = async function* () { yield data.subarray(0, 10); yield data.subarray(10); };
    for (const stdin of [data, parts(), new Blob([data]), new Blob([data]).stream() as ReadableStream<Uint8Array>])
        assert.ok((await box.exec("sha256sum", { stdin })).text.startsWith(sha256(data)));
    assert.ok((await box.exec("exit 0", { stdin: new Uint8Array(1_000_000) })).ok); // ends without reading it
    const cat = await box.spawn("cat", { stdin_open: true });
    assert.equal(await cat.write("one "), 4);
    await cat.write("two", { eof: true });
    assert.equal((await cat.wait(10_000)).text, "one two");
}));

check("times, signals and terminals", inBox(async (box) => {
    const slow = await box.exec("echo before; sleep 1000", { timeout_ms: 300 });
    assert.deepEqual([slow.timedOut, slow.signal, slow.text], [true, 9, "before\n"]);
    const sleeper = await box.spawn(["sleep", "1000"]);
    await assert.rejects(sleeper.wait(200), atoll.RequestTimeout);
    await sleeper.signal("TERM");
    assert.equal((await sleeper.wait(10_000)).signal, 15);
    await assert.rejects(sleeper.signal("TERM"), atoll.Conflict);
    const tree = await box.spawn("sleep 1000 & wait");
    await tree.kill();
    assert.equal((await tree.wait(10_000)).exitCode, 137);
    const gone = await (await box.spawn("echo so far; sleep 1000 & wait")).cancel();
    assert.deepEqual([gone.exitCode, gone.oom, gone.timedOut], [137, false, false]);
    const term = await box.spawn("stty size; read x; stty size", { tty: true, rows: 33, cols: 77, stdin_open: true });
    while (!text(await term.read()).includes("33 77"));
    await term.resize(44, 88);
    await term.write("\n");
    assert.ok((await term.wait(10_000)).text.includes("44 88"));
}));

check("reads output from any position", inBox(async (box) => {
    const process_ = await box.spawn("echo one; echo two >&2; sleep 0.3; echo three");
    const pieces = await collect(process_.output());
    const of = (stream: string) => pieces.filter((p) => p.stream === stream).map((p) => text(p.data)).join("");
    assert.deepEqual([of("stdout"), of("stderr"), process_.info.exit_code], ["one\nthree\n", "two\n", 0]);
    const rest = await collect(process_.output(pieces.at(-2)!.position));
    assert.deepEqual(rest.map((p) => text(p.data)), [text(pieces.at(-1)!.data)]);
    assert.equal(text(await process_.read("stdout", 4)), "three\n");
    assert.deepEqual((await box.processes()).map((p) => p.id), [process_.id]);
    const other = await (await client.sandboxes.get(box.id)).process(process_.id);
    assert.deepEqual(await collect(other.lines()), ["one", "three"]);
    assert.equal((await process_.refresh()).stdout_bytes, 10);
}));

check("goes on over a kill of the server", inBox(async (box) => {
    const process_ = await box.spawn("i=0; while [ $i -lt 3000 ]; do echo line $i; i=$((i+1)); " +
                                     "[ $((i % 100)) = 0 ] && sleep 0.05; done; true");
    let got = "";
    let kills = 0;
    for await (const piece of process_.output()) {
        got += text(piece.data);
        if (got.length > 8000 * (kills + 1) && kills < 2) {
            kills++;
            await harness("kill");
        }
    }
    assert.equal(kills, 2);
    assert.equal(got, Array.from({ length: 3000 }, (_, i) => `line ${i}\n`).join(""));
    const wait = box.exec("echo begun; sleep 1.5; echo done");
    await new Promise((done) => setTimeout(done, 500));
    await harness("kill");
    assert.equal((await wait).text, "begun\ndone\n");
}));

check("input goes on over a kill of the server", inBox(async (box) => {
    const data = new Uint8Array(randomBytes(3_000_000));
    for (const mine of [true, false]) { // who started the command writes, or another
        const cat = await box.spawn("until test -e go; do sleep 0.05; done; rm go; cat", { stdin_open: true });
        const writer = mine ? cat : await (await client.sandboxes.get(box.id)).process(cat.id);
        const writing = writer.write(data, { eof: true });
        for (let kills = 0; kills < 2; kills++) {
            await new Promise((done) => setTimeout(done, 400));
            await harness("kill");
        }
        await box.files.write("go", "");
        assert.equal(await writing, data.length);
        assert.equal(sha256((await cat.wait(30_000)).stdout), sha256(data));
    }
}));

check("input whose answer is lost arrives once", inBox(async (box) => {
    const broken = await atoll.connect({ address: env("FLAKY"), token: env("TOKEN") }).sandboxes.get(box.id);
    const cat = await broken.spawn("cat", { stdin_open: true });
    for (const piece of ["one ", "two ", "three"]) {
        await harness("cut 2");
        assert.equal(await cat.write(piece), piece.length);
    }
    await harness("cut 1");
    await cat.closeStdin();
    assert.equal((await cat.wait(10_000)).text, "one two three");
    const term = await broken.spawn("cat", { tty: true }); // others type there, too
    await harness("cut 1");
    await assert.rejects(term.write("one "), atoll.ConnectionFailed);
    await term.kill();
}));

// ---- terminals ----

check("a terminal", inBox(async (box) => {
    const terminal = await box.openTerminal(undefined, { name: "main", rows: 30, cols: 100 });
    assert.deepEqual((await box.terminals()).map((t) => t.id), [terminal.id]);
    assert.equal((await box.terminal("main")).id, terminal.id);
    const viewer = await terminal.attach({ from: 0 });
    viewer.write("stty size; echo $((6 * 7))\n");
    assert.ok((await viewer.readUntil("\n42")).includes("30 100"));
    assert.equal(viewer.role, "controller");
    const becomes = async (who: atoll.Attachment, role: string) => {
        while (who.role !== role) await who.receive(10_000);
    };
    const other = await terminal.attach();
    await other.readUntil("42"); // a picture of the screen
    assert.equal(other.role, "observer");
    other.control(true);
    await becomes(other, "controller");
    await becomes(viewer, "observer");
    other.resize(40, 120);
    other.keyframe();
    other.write("stty size\n");
    await other.readUntil("40 120");
    other.release();
    await becomes(other, "observer");
    other.close();
    assert.ok(String((await terminal.screen())["text"]).includes("42") && (await terminal.screen("cells"))["screen"]);
    viewer.control();
    await becomes(viewer, "controller");
    viewer.signal("WINCH");
    await terminal.resize(20, 60);
    await terminal.signal("WINCH");
    viewer.write("exit 3\n");
    await collect(viewer);
    assert.equal(viewer.exit!["exit_code"], 3);
    viewer.close();
    assert.equal((await terminal.refresh()).exit_code, 3);
    assert.equal(JSON.parse((await (await terminal.recording()).text()).split("\n")[0]!).version, 2);
    await assert.rejects(terminal.attach({ from: 1e9 }), (error) =>
        error instanceof atoll.RangeNotSatisfiable && !!error.requestId);
    const sleeper = await box.openTerminal(["sleep", "1000"]);
    await sleeper.kill();
    assert.equal((await collect(await sleeper.attach())).at(-1)!.type, "exit");
}));

check("a terminal goes on over a kill of the server", inBox(async (box) => {
    const terminal = await box.openTerminal("stty -opost; i=0; while [ $i -lt 3000 ]; do echo line $i; i=$((i+1)); " +
                                            "[ $((i % 100)) = 0 ] && sleep 0.05; done; true");
    let got = "";
    let kills = 0;
    const viewer = await terminal.attach({ role: "observer", from: 0 });
    for await (const what of viewer) {
        if (what.type === "output") got += text(what.data);
        if (got.length > 8000 * (kills + 1) && kills < 2) {
            kills++;
            await harness("kill");
        }
    }
    assert.equal(kills, 2);
    assert.equal(got, Array.from({ length: 3000 }, (_, i) => `line ${i}\n`).join(""));
    assert.deepEqual([viewer.exit!["exit_code"], viewer.position], [0, got.length]);
    const quiet = await box.openTerminal("sleep 1.2; echo late");
    const late = await quiet.attach({ role: "observer", from: 0, idleMs: 300 });
    const output = (await collect(late)).map((what) => (what.type === "output" ? text(what.data) : "")).join("");
    assert.equal(output, "late\r\n");
}));

// ---- files ----

check("files", inBox(async (box) => {
    const files = box.files;
    const made = await files.write("f", Uint8Array.of(111, 110, 101, 0, 116, 119, 111), { mode: "600" });
    assert.deepEqual([made.size, made.mode, made.type], [7, "0600", "file"]);
    assert.equal((await files.append("f", "!", { sync: true })).size, 8);
    assert.equal(await files.readText("f"), "one\0two!");
    assert.equal(text(await files.read("f", { offset: 4 })), "two!");
    assert.equal(text(await files.read("f", { offset: 4, length: 3 })), "two");
    await assert.rejects(files.read("f", { offset: 100 }), atoll.RangeNotSatisfiable);
    await files.mkdir("d/e", { parents: true });
    await files.move("f", "d/f");
    await files.write("g", "g");
    await assert.rejects(files.move("g", "d/f"), atoll.Conflict);
    await files.move("g", "d/f", { replace: true });
    const list = (await collect(files.list("d"))).map((e) => [e.name, e.type]);
    assert.deepEqual(list, [["e", "directory"], ["f", "file"]]);
    await box.exec("ln -s f d/link", { check: true });
    assert.equal((await files.stat("d/link")).link, "f");
    assert.equal((await files.stat("d/link", { follow: true })).type, "file");
    assert.deepEqual([await files.exists("d/f"), await files.exists("d/none")], [true, false]);
    const digests = Object.fromEntries((await collect(files.manifest("d"))).map((e) => [e.name, e.sha256]));
    assert.equal(digests["f"], sha256(Buffer.from("g")));
    await files.remove("d/f");
    await assert.rejects(files.remove("d"), atoll.ApiError);
    await files.remove("d", { recursive: true });
    assert.equal(await files.exists("d"), false);
}));

check("names of any bytes and many of them", inBox(async (box) => {
    const odd = Uint8Array.of(...Buffer.from("many/"), 255, 254);
    await box.files.mkdir("many");
    await box.files.write(odd, "odd");
    await box.files.write("many/ü %2F?&#", "text");
    assert.equal(await box.files.readText(odd), "odd");
    assert.equal(await box.files.readText("many/ü %2F?&#"), "text");
    await box.exec("cd many && seq 1 2500 | xargs touch", { check: true });
    const names = (await collect(box.files.list("many"))).map((e) => e.name);
    assert.deepEqual([names.length, new Set(names).size], [2502, 2502]);
}));

check("a large file both ways", inBox(async (box) => {
    const here = await mkdtemp(join(tmpdir(), "atoll-large-"));
    const data = randomBytes(64 << 20);
    await writeFile(join(here, "up"), data);
    assert.equal((await box.files.write("big", createReadStream(join(here, "up")))).size, data.length);
    assert.ok((await box.exec("sha256sum big")).text.startsWith(sha256(data)));
    const back = createHash("sha256");
    for await (const chunk of (await box.files.stream("big")).chunks()) back.update(chunk);
    assert.equal(back.digest("hex"), sha256(data));
    await rm(here, { recursive: true });
}));

check("a watch", inBox(async (box) => {
    const watch = await box.files.watch(".", { recursive: true });
    await box.exec("mkdir sub; echo x > sub/file", { check: true });
    for await (const change of watch)
        if (change.path === "sub") {
            assert.equal(change.directory, true);
            break;
        }
}));

check("trees", inBox(async (box) => {
    const here = await mkdtemp(join(tmpdir(), "atoll-tree-"));
    const long = "long".repeat(50);
    await mkdir(join(here, "in/a/b"), { recursive: true });
    await mkdir(join(here, "in/skip"));
    await writeFile(join(here, "in/skip/me"), "no");
    await writeFile(join(here, "in/a/b/x"), randomBytes(100_000));
    await writeFile(join(here, "in/run"), "#!/bin/sh\n", { mode: 0o755 });
    await writeFile(join(here, "in", long), "a name that needs more than a plain header");
    await symlink("a/b/x", join(here, "in/link"));
    const wanted = (name: string) => !name.startsWith("skip");
    const done = await atoll.uploadTree(box.files, join(here, "in"), "tree", { wanted });
    assert.equal(done.entries, 6);
    await box.exec("ln -s /etc/passwd tree/out; ln -s ../../../.. tree/a/up", { check: true });
    for (let i = 0; i < 2; i++) { // the second time over what is there
        const back = await atoll.downloadTree(box.files, "tree", join(here, "back"));
        assert.deepEqual(back.skipped.sort(), ["a/up", "out"]);
    }
    assert.deepEqual((await readdir(join(here, "back"))).sort(), ["a", "link", long, "run"].sort());
    assert.deepEqual(await readFile(join(here, "back/a/b/x")), await readFile(join(here, "in/a/b/x")));
    assert.equal((await stat(join(here, "back/run"))).mode & 0o777, 0o755);
    await rm(here, { recursive: true });
}));

check("a hostile archive writes nothing outside", async () => {
    // Archives made by the harness: {"name": base64 of a tar}, with what is to become of them.
    type Case = { tar: string; skipped: string[] | null };
    const hostile = JSON.parse(await readFile(env("HOSTILE"), "utf8")) as Record<string, Case>;
    for (const [name, { tar, skipped }] of Object.entries(hostile)) {
        const here = await mkdtemp(join(tmpdir(), "atoll-hostile-"));
        await mkdir(join(here, "outside"));
        await mkdir(join(here, "t"));
        await symlink(join(here, "outside"), join(here, "t/there"));
        const source = (async function* () { yield Buffer.from(tar, "base64"); })();
        const work = atoll.unpackTree(source, join(here, "t"));
        if (skipped === null) await assert.rejects(work, atoll.UnsafeArchive, name);
        else assert.deepEqual((await work).skipped.sort(), skipped, name);
        assert.deepEqual(await readdir(join(here, "outside")), [], name);
        assert.deepEqual((await readdir(here)).sort(), ["outside", "t"], name);
        await rm(here, { recursive: true });
    }
    await assert.rejects(lstat("/tmp/atoll-evil"));
    const whole = Buffer.from(Object.values(hostile)[0]!.tar, "base64");
    const cut = (async function* () { yield whole.subarray(0, 700); })();
    await assert.rejects(atoll.unpackTree(cut, join(tmpdir(), "atoll-cut")), atoll.AtollError);
    await rm(join(tmpdir(), "atoll-cut"), { recursive: true });
});

// ---- life and the other nouns ----

check("a life", async () => {
    await client.sandboxes.use({ name: "ts-life", storage: "disk", labels: { job: "42" } }, async (box) => {
        assert.deepEqual([box.name, box.state], ["ts-life", "running"]);
        assert.deepEqual((await client.sandboxes.list({ label: "job=42" })).map((b) => b.id), [box.id]);
        await box.exec("echo one > state", { check: true });
        await box.snapshot("before");
        await box.exec("echo two > state", { check: true });
        await box.allow("a.test");
        await box.deny("b.test");
        assert.equal((await box.explain("https://a.test/")).verdict, "allow");
        assert.deepEqual((await box.egress()).rules.map((one) => one.rule), ["b.test", "a.test"]);
        assert.deepEqual(await box.egressRecords({ denied: true }), []);
        assert.deepEqual(await box.egressHosts(), []);
        assert.deepEqual(await client.asks.list(), []);
        const unknown = "ask00000000000000000000000000";
        await assert.rejects(client.asks.get(unknown), atoll.NotFound);
        await assert.rejects(client.asks.allow(unknown), atoll.NotFound);
        await assert.rejects(client.asks.deny(unknown), atoll.NotFound);
        const copy = await box.fork({ name: "ts-copy" });
        assert.equal(await copy.files.readText("state"), "two\n");
        await copy.delete();
        await assert.rejects(copy.refresh(), atoll.NotFound);
        await box.rollback("before");
        assert.equal(await box.files.readText("state"), "one\n");
        await box.pause();
        assert.equal(box.state, "paused");
        await box.resume();
        await box.stop();
        assert.equal(box.state, "stopped");
        await assert.rejects(box.exec("true"), atoll.Conflict);
        await box.start();
        await box.update({ memory: 128 << 20 });
        assert.equal(box.info.memory, 128 << 20);
        await box.update({ idle: { after_ms: 600_000, action: "pause" } });
        assert.equal(box.info.idle?.action, "pause");
        await box.update({ idle: null });
        assert.equal(box.info.idle, null);
        assert.ok((await box.stats()).pids >= 1 && (await box.applied()));
        assert.ok((await box.ps()).some((p) => p.pid === 1));
        assert.deepEqual(await box.ports(), []);
        assert.match(await box.preview(8123), /^http:\/\/8123-/);
        await box.snapshot("again");
        await box.deleteSnapshot("again");
        assert.deepEqual((await client.snapshots.list()).map((s) => s.name), ["before"]);
        assert.deepEqual(await box.crashes(), []);
        await client.snapshots.delete((await box.snapshots())[0]!.id);
    });
    assert.deepEqual(await client.sandboxes.list(), []);
});

check("the other nouns", async () => {
    await client.volumes.create({ name: "ts-vol", bytes: 64 << 20 });
    assert.equal((await client.volumes.resize("ts-vol", 128 << 20)).bytes, 128 << 20);
    assert.deepEqual((await client.volumes.list()).map((v) => v.name), ["ts-vol"]);
    assert.ok((await client.volumes.get("ts-vol")).used >= 0);
    await client.volumes.delete("ts-vol");
    await client.images.load(await readFile(env("IMAGE")), "ts-tiny");
    assert.deepEqual((await client.images.list()).map((i) => i.name), ["ts-tiny"]);
    assert.equal((await client.images.get("ts-tiny")).format, "tar");
    await client.images.delete("ts-tiny");
    await client.templates.set("ts-wish", { storage: "memory" });
    assert.equal((await client.templates.get("ts-wish")).name, "ts-wish");
    assert.ok((await client.templates.list()).some((t) => t.name === "ts-wish"));
    await client.templates.delete("ts-wish");
    await client.quotas.set("label:user=ts", { sandboxes: 3 });
    assert.ok((await client.quotas.list()).some((q) => q.subject === "label:user=ts" && q.sandboxes === 3));
    await client.quotas.delete("label:user=ts");
    await client.pools.set("ts-pool", { size: 1, storage: "memory" });
    assert.ok((await client.pools.list()).some((p) => p.name === "ts-pool"));
    const anew = await client.sandboxes.create({ storage: "memory", warm: false });
    assert.equal(anew.info.start, "cold");
    await assert.rejects(async () => {
        for await (const one of anew.files.changes()) assert.fail(one.path);
    }, /view/);
    await anew.delete();
    await client.pools.set("ts-pool", { size: 0 });
    await client.secrets.put("ts-key", "hush");
    const bound = await client.secrets.put("ts-token", "hush-hush", { hosts: ["api.example.com"] });
    assert.equal(bound.use, "request");
    await client.secrets.delete("ts-token");
    const secret = await client.secrets.createForAgent("ts-agent");
    assert.deepEqual((await client.secrets.list()).map((s) => s.name).sort(), [secret.name, "ts-key"].sort());
    await client.secrets.delete("ts-key");
    await client.secrets.delete(secret.name);
    const token = await client.tokens.create({ name: "ts-tok", role: "viewer" });
    assert.ok((await client.tokens.list()).some((t) => t.name === "ts-tok"));
    const viewer = atoll.connect({ address: env("ADDRESS"), token: token.token! });
    await assert.rejects(viewer.sandboxes.create(),
                         (error) => error instanceof atoll.Forbidden && error.reason === "role");
    await client.tokens.revoke("ts-tok");
    await assert.rejects(viewer.whoami(), (e) => e instanceof atoll.Unauthenticated && e instanceof atoll.AuthError);
});

check("the server itself", async () => {
    assert.equal((await client.health()).status, "ok");
    assert.deepEqual(await client.version(), { version: atoll.API_VERSION, api: "v1" });
    assert.ok((await client.metrics()).includes("atoll_"));
    type Named = { items: { name: string }[] };
    const names = async (list: Promise<unknown>) => ((await list) as Named).items.map((one) => one.name);
    assert.ok((await names(client.api.doctorRead())).includes("seccomp"));
    assert.ok((await names(client.api.limitsRead())).includes("memory"));
    assert.ok((await client.loginLink()).url_path.includes("login="));
    assert.ok((await client.audit.verify()).ok && (await client.audit.list({ limit: 1 })).length === 1);
    await client.backups.create("ts-backup");
    assert.equal(text((await (await client.backups.download("ts-backup")).bytes()).subarray(0, 15)), "SQLite format 3");
    await client.backups.delete("ts-backup");
});

check("events go on over a kill of the server", async () => {
    const { seq } = await client.events.note("0");
    const got: unknown[] = [];
    for await (const event of client.events.stream({ since: seq - 1, type: "note.created" })) {
        got.push(event.data["text"]);
        if (got.length === 3) await harness("kill");
        if (got.length === 6) break;
        await client.events.note(String(got.length));
    }
    assert.deepEqual(got, ["0", "1", "2", "3", "4", "5"]);
    assert.equal((await client.events.list({ since: seq, type: "note.created" })).length, 5);
    setTimeout(() => void client.events.note("new"), 500);
    for await (const event of client.events.stream({ idleMs: 200, type: "note.created" })) {
        assert.equal(event.data["text"], "new");
        break;
    }
});

// ---- what goes wrong ----

check("errors by code", inBox(async () => {
    await assert.rejects(client.sandboxes.get("sb-none"), (error) =>
        error instanceof atoll.NotFound && error.code === "not_found" && error.status === 404 && !!error.requestId);
    await assert.rejects(client.sandboxes.create({ memory: 1 }), (error) =>
        error instanceof atoll.InvalidRequest && error.field === "memory" && error.message.startsWith("memory: "));
    for (const bad of ["", ".", ".."]) await assert.rejects(client.sandboxes.get(bad), atoll.AtollError);
}));

check("a rate limit says when", async () => {
    const limited = atoll.connect({ address: env("RATED_ADDRESS"), token: env("RATED_TOKEN") });
    await assert.rejects(async () => { for (let i = 0; i < 100; i++) await limited.whoami(); },
                         (error) => error instanceof atoll.RateLimited && error.retryAfter! >= 1);
});

check("a creation whose answer is lost is made once", async () => {
    for (const broken of [atoll.connect({ address: env("FLAKY"), token: env("TOKEN") }),
                          new atoll.Client({ address: env("FLAKY"), token: env("TOKEN") })]) {
        await broken.health(); // a connection that is kept
        await harness("cut 2");
        const box = await broken.sandboxes.create({ labels: { once: "1" } });
        assert.deepEqual((await client.sandboxes.list({ label: "once" })).map((b) => b.id), [box.id]);
        await harness("cut 1");
        assert.equal((await box.exec("echo x >> once; echo ran")).text, "ran\n");
        assert.equal(await box.files.readText("once"), "x\n");
        await harness("cut 1");
        await assert.rejects(box.files.append("log", "x"), atoll.ConnectionFailed); // this is not safe to repeat
        assert.equal(await box.files.readText("log"), "x");
        await harness("cut 1");
        assert.equal((await box.files.write("file", "again")).size, 5); // this is
        await box.delete();
    }
});

check("nobody there and nobody answering", async () => {
    await assert.rejects(atoll.connect({ address: "unix:/nonexistent", retries: 1 }).health(), atoll.ConnectionFailed);
    await assert.rejects(atoll.connect({ address: env("SILENT"), timeoutMs: 200 }).health(), atoll.RequestTimeout);
    await assert.rejects(new atoll.Client({ address: env("SILENT"), timeoutMs: 200 }).health(), atoll.RequestTimeout);
});

check("every operation was called", async () => {
    assert.deepEqual(Object.keys(atoll.operations).filter((name) => !called.has(name)), []);
});

for (const [name, work] of checks) {
    try {
        await work();
        console.log(JSON.stringify({ name, ok: true }));
    } catch (error) {
        console.log(JSON.stringify({ name, ok: false, why: error instanceof Error ? error.stack : String(error) }));
    }
}
process.exit(0);
