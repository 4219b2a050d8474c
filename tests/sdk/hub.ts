// The TypeScript client of the hub against the real server: run by tests/e2e/test_hub_sdk_typescript.py, which makes
// a test of each check. What only the harness can do is asked for on stdout ("@kill", "@cut 1") and acknowledged on
// stdin.
import assert from "node:assert/strict";
import { appendFile, mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileJournal } from "@atoll/sdk/node";
import * as spokes from "@atoll/sdk/spokes";

const env = (name: string) => process.env[name] ?? assert.fail(`${name} is not set`);
const answers = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
async function harness(wish: string): Promise<void> {
    console.log("@" + wish);
    await answers.next();
}

const called = new Set<string>();
const methods = Object.getOwnPropertyNames(spokes.AgentClient.prototype)
    .filter((name) => !["constructor", "call", "operation"].includes(name));
for (const name of methods) {
    const prototype = spokes.AgentClient.prototype as unknown as Record<string, (...args: unknown[]) => unknown>;
    const real = prototype[name]!;
    prototype[name] = function (this: unknown, ...args: unknown[]) {
        called.add(name);
        return real.apply(this, args);
    };
}

const checks: [string, () => Promise<void>][] = [];
const check = (name: string, work: () => Promise<void>) => checks.push([name, work]);
let number = 0;
const unique = (prefix = "agent") => `${prefix}-${process.pid}-${++number}`;
async function agent(options: spokes.AgentOptions = {}, name = unique()): Promise<spokes.AgentClient> {
    const client = new spokes.AgentClient(env("HUB") + "/", name, "test", options);
    await client.register({ from: "the tests" });
    return client;
}
async function until<T>(condition: () => Promise<T> | T, what: string): Promise<T> {
    for (const end = Date.now() + 60_000; Date.now() < end;) {
        const found = await condition();
        if (found) return found;
        await new Promise((done) => setTimeout(done, 10));
    }
    return assert.fail(`waited for ${what}`);
}
/** The loop, beside `work`; ended after it. */
async function looping(client: spokes.AgentClient, options: spokes.LoopOptions, work: () => Promise<void>) {
    const stop = new AbortController();
    const life = client.runAutonomousLoop({ pollMs: 20, heartbeatMs: 50, signal: stop.signal, ...options });
    try {
        await work();
    } finally {
        stop.abort();
        await life;
    }
}
const bytes = (text: string) => new TextEncoder().encode(text);

check("an agent", async () => {
    const one = await agent({ capabilities: ["Code"], autonomyMode: "advisory" });
    assert.ok((await one.ping()) && (await one.heartbeat()) && (await one.ensureRegistered()));
    await one.register(); // keeps mode and capabilities
    assert.deepEqual((await one.getAgent()).capabilities, ["Code"]);
    assert.equal((await one.setAutonomyMode("manual")).autonomy_mode, "manual");
    const tag = unique("tag");
    assert.deepEqual((await one.setCapabilities([tag], "words")).tags, [tag]);
    assert.deepEqual(await one.agentsWithCapability(tag), [one.agentName]);
    assert.ok((await one.listCapabilities()).some((c) => c.agent === one.agentName && c.description === "words"));
    assert.ok((await one.listAgents({ type: "test", status: "online" })).some((a) => a.name === one.agentName));
    assert.equal((await one.submitCheckpoint(null, "s", "r")).sequence, 1);
    assert.equal((await one.getCheckpoint()).rationale, "r");
    assert.equal((await one.beat()).checkpoint_due, false);
    const before = (await one.getAgent()).last_heartbeat;
    one.startHeartbeat(10);
    await until(async () => (await one.getAgent()).last_heartbeat > before, "a heartbeat");
    one.stopHeartbeat();
    assert.ok(await one.unregister());
    assert.ok(!(await one.unregister()) && !(await one.heartbeat()));
});

check("people in charge", async () => {
    const human = await agent();
    const one = await agent();
    await human.setAutonomyMode("advisory", one.agentName);
    const project = (await human.createProject("p")).id;
    const tasks = [await human.createTask(project, "a"), await human.createTask(project, "b")];
    const wishes = [];
    for (const task of tasks) wishes.push(await one.claimTask(project, task.id));
    assert.ok(!wishes[0]!.ok && wishes[0]!.status === "proposed");
    assert.equal((await human.listProposals({ state: "pending", agent: one.agentName, project })).length, 2);
    assert.equal((await human.approveProposal(wishes[0]!.proposal_id!, "yes")).state, "approved");
    assert.equal((await human.rejectProposal(wishes[1]!.proposal_id!)).state, "rejected");
    assert.equal((await one.getProposal(wishes[0]!.proposal_id!)).note, "yes");
    assert.equal((await human.pauseAgent(one.agentName, "r")).status, "busy");
    await assert.rejects(one.sendMessage("x", "y"), spokes.Conflict);
    assert.equal((await human.resumeAgent(one.agentName)).status, "online");
    const { revocation_id } = await human.revokeAgent(one.agentName, "r", false);
    assert.deepEqual(await one.checkRevocation(), { pending: true, revocation_id, reason: "r", flush_required: false });
    assert.ok(!(await one.acknowledgeRevocation("none")) && (await one.acknowledgeRevocation(revocation_id)));
    assert.ok((await human.revocationHistory(1000)).some((h) => h.id === revocation_id && h.acknowledged));
    assert.equal(await human.getDefaultMode(), "fully_autonomous");
    assert.deepEqual((await human.setGlobalMode("fully_autonomous", "nobody")).updated_agents, []);
    assert.ok((await human.auditLog(200)).some((line) => line.action === "pause_agent"));
});

check("messages", async () => {
    const [one, two] = [await agent(), await agent()];
    const first = await one.sendMessage(two.agentName, "1", { thread: unique("thread") });
    const second = await two.sendMessage(one.agentName, "2", { reply_to: first.id });
    assert.deepEqual((await one.getThread(second.thread!)).map((m) => m.content), ["1", "2"]);
    assert.deepEqual((await one.messageHistory(two.agentName, { limit: 1 })).map((m) => m.content), ["2"]);
    assert.equal((await two.waitForMessages())[0]!.id, first.id);
    assert.equal((await two.getMessages({ unread: true, peek: true }))[0]!.content, "1");
    assert.ok((await two.ack(first.id)) && !(await two.ack("none")));
    assert.deepEqual(await two.waitForMessages({ timeoutMs: 30, pollMs: 10 }), []);
    assert.ok((await one.messageGraph()).edges.some((e) => e.from === one.agentName && e.count === 1));
    const channel = unique("channel");
    await one.joinChannel(channel), await two.joinChannel(channel);
    assert.ok((await one.listChannels()).some((c) => c.name === channel && c.members.length === 2));
    assert.equal((await one.sendToChannel(channel, "all")).recipients, 1);
    await two.leaveChannel(channel);
    const got: string[] = [];
    assert.equal(await two.processInbox((message) => got.push(message.content)), 1);
    assert.deepEqual(got, ["all"]);
});

check("projects, files and leases", async () => {
    const [one, two] = [await agent(), await agent()];
    const project = (await one.createProject("named")).id;
    assert.ok((await two.joinProject(project)) && !(await two.joinProject("none")));
    assert.deepEqual((await two.listProjects(two.agentName)).map((p) => p.id), [project]);
    await one.setWipLimit(project, "in_progress", 7);
    assert.equal((await one.getProject(project)).wip_limits.in_progress, 7);
    const data = Uint8Array.from({ length: 256 }, (_, n) => n);
    await two.uploadFile(project, "d/e.bin", "one");
    assert.equal((await two.uploadFile(project, "d/e.bin", data)).version, 2);
    assert.deepEqual(await one.downloadFile(project, "d/e.bin"), data);
    assert.deepEqual(await one.downloadFile(project, "d/e.bin", 1), bytes("one"));
    assert.deepEqual((await one.fileVersions(project, "d/e.bin")).map((f) => f.version), [2, 1]);
    assert.equal((await one.listFiles(project))[0]!.uploader, two.agentName);
    await assert.rejects(async () => one.uploadFile(project, "../x", "x"), spokes.AtollError);
    await one.deleteFile(project, "d/e.bin");
    await assert.rejects(one.downloadFile(project, "d/e.bin"), spokes.NotFound);
    const lease = await one.takeLease(project, ["src"], { ttl_seconds: 60 });
    await assert.rejects(two.takeLease(project, ["src/x"]), (error: unknown) =>
        error instanceof spokes.Conflict && (error.more["holder"] as spokes.Lease).id === lease.id);
    assert.ok((await one.renewLease(project, lease.id, 600)).expires_at > lease.expires_at);
    assert.equal((await two.listLeases(project, { path: "src/x" })).length, 1);
    assert.equal((await one.getBoard(project)).leases.length, 1);
    await one.releaseLease(project, lease.id);
    assert.ok((await one.deleteProject(project)) && !(await one.deleteProject(project)));
});

check("tasks", async () => {
    const [one, two] = [await agent({ capabilities: ["code"] }), await agent()];
    const project = (await one.createProject("p")).id;
    const parent = (await one.createTask(project, "parent", { priority: "P0", labels: ["l"] })).id;
    const more = { required_capabilities: ["code"], required_reviewers: 1, parent_task_id: parent };
    const task = (await one.createTask(project, "t", more)).id;
    await one.createTask(project, "not ours", { required_capabilities: ["data"] });
    assert.deepEqual((await one.getReadyTasks(project)).map((t) => t.id), [parent, task]);
    assert.ok((await one.claimTask(project, task)).ok);
    await assert.rejects(two.claimTask(project, task), spokes.Conflict);
    assert.deepEqual((await one.getMyTasks(project)).map((t) => t.id), [task]);
    await one.moveTask(project, task, "in_progress");
    await assert.rejects(one.moveTask(project, task, "done"), spokes.InvalidRequest);
    await one.addReviewer(project, task, two.agentName);
    await one.moveTask(project, task, "in_review", { note: "please" });
    assert.equal((await two.requestChanges(project, task, { note: "no" })).status, "in_progress");
    await one.moveTask(project, task, "in_review");
    assert.equal((await two.approveTask(project, task)).approvals, 1);
    await one.moveTask(project, task, "done");
    assert.equal((await one.listReviews(project, task)).length, 2);
    assert.equal((await two.commentTask(project, task, "well done")).number, 1);
    await one.commentTask(project, task, "thank you");
    assert.deepEqual((await one.listComments(project, task)).map((c) => c.text), ["well done", "thank you"]);
    assert.deepEqual((await one.listComments(project, task, { after: 1, limit: 5 })).map((c) => c.author),
                     [one.agentName]);
    await one.changeTask(project, parent, { title: "new", labels: ["m"] });
    assert.equal((await one.listTasks(project, { label: "m" }))[0]!.title, "new");
    await one.assignTask(project, parent, two.agentName);
    assert.equal((await two.findTasks({ assigned_to: two.agentName })).length, 1);
    await one.unassignTask(project, parent);
    await one.moveTask(project, parent, "blocked", { blocked_reason: "why" });
    assert.deepEqual(await one.listTasks(project, { include_blocked: false, status: "blocked" }), []);
    assert.equal((await one.getTask(project, parent)).blocked_reason, "why");
    assert.equal((await one.getMetrics(project, { window: 3600, bucket: 600 })).completed_count, 1);
});

check("the loop handles messages and does tasks", async () => {
    const [human, one] = [await agent(), await agent()];
    const project = (await human.createProject("p")).id;
    await one.joinProject(project);
    const [got, done]: [string[], string[]] = [[], []];
    for (const [title, priority] of [["second", "P2"], ["first", "P0"], ["bad", "P3"]] as const)
        await human.createTask(project, title, { priority });
    await human.sendMessage(one.agentName, "hi");
    await looping(one, {
        handler: (message) => got.push(message.content),
        taskHandler: async (work) => {
            done.push(work.task.title);
            await work.checkpoint("begun");
            if (work.task.title === "bad") throw new Error("it is bad");
            return "in_review";
        },
    }, async () => {
        await until(async () => (await human.listTasks(project, { status: "blocked" })).length, "the bad one");
        await until(async () => !(await one.getMessages({ unread: true })).length, "the message");
    });
    assert.deepEqual([got, done], [["hi"], ["first", "second", "bad"]]);
    assert.match((await human.listTasks(project, { status: "blocked" }))[0]!.blocked_reason, /it is bad/);
});

check("no message is handled twice", async () => {
    const [one, two] = [await agent(), await agent()];
    const where = await mkdtemp(join(tmpdir(), "spokes-"));
    const journal = join(where, "journal");
    const got: string[] = [];
    const handler = (message: spokes.Message) => got.push(message.content);
    let given = 0;
    const real = two.ack.bind(two);
    two.ack = async () => ++given < 0; // acknowledgements get lost
    for (const text of ["1", "2"]) await one.sendMessage(two.agentName, text);
    await looping(two, { handler, journal: fileJournal(journal) }, async () => {
        await until(() => given > 20, "many deliveries");
    });
    await appendFile(journal, "half of an i"); // as a crash leaves it
    two.ack = real;
    await one.sendMessage(two.agentName, "3");
    await looping(two, { handler, journal: fileJournal(journal) }, async () => {
        await until(async () => !(await two.getMessages({ unread: true })).length, "all acknowledged");
    });
    assert.deepEqual(got, ["1", "2", "3"]);
    assert.equal((await readFile(journal, "utf8")).split("\n").length, 4);
    await rm(where, { recursive: true });
});

check("a revocation is honoured", async () => {
    for (const after of ["resume", "stop"] as const) {
        const [human, one] = [await agent(), await agent()];
        const project = (await human.createProject("p")).id;
        await human.createTask(project, "t");
        let begun = 0;
        const saved: string[] = [];
        const stop = new AbortController();
        const life = one.runAutonomousLoop({
            projects: [project], pollMs: 20, heartbeatMs: 50, signal: stop.signal, afterRevocation: after,
            onRevoked: (revocation) => saved.push(revocation.reason ?? ""),
            taskHandler: async (work) => {
                begun++;
                await new Promise((done) => work.signal.addEventListener("abort", done));
            },
        });
        await until(() => begun, "the task");
        await human.revokeAgent(one.agentName, "enough");
        await until(async () => !(await one.checkRevocation()).pending, "the acknowledgement");
        assert.deepEqual(saved, ["enough"]);
        if (after === "resume") {
            await until(() => begun === 2, "the task again");
            stop.abort();
        }
        await life;
        assert.equal((await human.getAgent(one.agentName)).status, "online");
    }
});

check("a checkpoint comes when due", async () => {
    const one = await agent();
    await looping(one, { heartbeatMs: 10 }, async () => {
        await until(async () => (await one.getAgent()).checkpoint_sequence > 0, "a checkpoint");
    });
    assert.equal((await one.getCheckpoint()).state, "idle");
});

check("a send whose answer is lost is sent once", async () => {
    const two = await agent();
    const one = new spokes.AgentClient(env("FLAKY"), unique());
    await one.register();
    await harness("cut 2");
    await one.sendMessage(two.agentName, "once");
    assert.deepEqual((await two.getMessages()).map((m) => m.content), ["once"]);
});

check("signatures", async () => {
    const options = { token: env("SIGNER_TOKEN"), keyId: env("SIGNER_ID") };
    const one = new spokes.AgentClient(env("CLOSED"), env("SIGNER_NAME"), "t", options);
    await one.register();
    const project = (await one.createProject("signed")).id;
    await one.uploadFile(project, "f", "signed too");
    assert.deepEqual(await one.downloadFile(project, "f"), bytes("signed too"));
    const other = new spokes.AgentClient(env("CLOSED"), "another", "t", options);
    await assert.rejects(other.sendMessage("x", "y"), spokes.Forbidden);
    await assert.rejects(new spokes.AgentClient(env("CLOSED"), "x").listAgents(), spokes.Unauthenticated);
    assert.throws(() => new spokes.AgentClient(env("CLOSED"), "x", "t", { keyId: "y" }), spokes.AtollError);
});

check("a token that is not accepted ends the loop", async () => {
    const one = new spokes.AgentClient(env("CLOSED"), "x", "t", { token: "wrong" });
    await assert.rejects(one.runAutonomousLoop({}), (error: spokes.AtollError) =>
        error.cause instanceof spokes.Unauthenticated && /cannot register x .*begin with atl_/.test(error.message));
    one.join = async () => undefined; // as if the token had been valid then
    await assert.rejects(one.runAutonomousLoop({ pollMs: 20, heartbeatMs: 20, handler: () => undefined }),
                         /does not accept the token of x/);
});

check("the token in the address", async () => {
    const url = env("CLOSED").replace("://", `://${env("PLAIN_NAME")}:${env("PLAIN_TOKEN")}@`);
    const one = new spokes.AgentClient(url, env("PLAIN_NAME"));
    assert.ok(!one.hubUrl.includes("@"));
    assert.ok(await one.ensureRegistered());
});

check("events go on over a kill", async () => {
    const one = await agent();
    const project = (await one.createProject("p")).id;
    const got: string[] = [];
    const follow = (async () => {
        for await (const event of one.events({ types: ["task_created"], project, since: "0" })) {
            got.push((event.data["task"] as { title: string }).title);
            if (got.length === 6) return;
        }
    })();
    for (let n = 0; n < 6; n++) {
        await one.createTask(project, String(n));
        if (n !== 2) continue;
        await until(() => got.length, "the first");
        await harness("kill");
    }
    await follow;
    assert.deepEqual(got, ["0", "1", "2", "3", "4", "5"]);
});

check("every method was called", async () => {
    assert.deepEqual(methods.filter((name) => !called.has(name)), []);
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
