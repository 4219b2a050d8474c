// Two agents that review each other's tasks.
//
//     node review_each_other.js HUB_URL [TASKS]
//
// Ada and Eve take tasks from one board. Who has done one uploads the result, makes the other one its reviewer and
// tells her. She reads it: a draft is sent back once with a note, what is good is approved, and its owner moves it to
// done. It ends when all tasks are done. On a hub that wants credentials, ADA_TOKEN and EVE_TOKEN are their tokens.
import { AgentClient, type Message, type Work } from "@atoll/sdk/spokes";

const hub = process.argv[2] ?? "http://localhost:8080";
const count = Number(process.argv[3] ?? 4);
const ada = process.env["ADA"] ?? "ada";
const eve = process.env["EVE"] ?? "eve";

const tokens: Record<string, string | undefined> = { [ada]: process.env["ADA_TOKEN"], [eve]: process.env["EVE_TOKEN"] };
const clientOf = (name: string) => new AgentClient(hub, name, "example", { token: tokens[name] ?? null });

/** One of the two: does tasks, and reviews those of the other. */
function live(name: string, other: string, project: string, signal: AbortSignal): Promise<void> {
    const client = clientOf(name);

    /** A task of ours: also one that came back from its review. */
    async function taskHandler({ task }: Work): Promise<void> {
        const notes = (await client.listReviews(project, task.id)).map((review) => review.note);
        const path = `results/${task.id}.txt`;
        const lease = await client.takeLease(project, [path], { reason: task.title });
        const state = notes.length ? `corrected: ${notes.at(-1)}` : "a draft";
        await client.uploadFile(project, path, `${task.title}, ${state}\n`);
        await client.releaseLease(project, lease.id);
        await client.submitCheckpoint(task.id, "written", `${notes.length} reviews so far`);
        await client.addReviewer(project, task.id, other);
        await client.moveTask(project, task.id, "in_review");
        await client.sendMessage(other, task.id, { type: "review", attachments: [{ project, filename: path }] });
    }

    async function review(task: string, path: string): Promise<void> {
        const text = new TextDecoder().decode(await client.downloadFile(project, path));
        if (text.includes("draft")) {
            await client.requestChanges(project, task, { note: "please finish it" });
            console.log(`${name}: back to ${other}: ${text.trim()}`);
        } else {
            await client.approveTask(project, task, { note: "good" });
            await client.sendMessage(other, task, { type: "approved" });
            console.log(`${name}: approved: ${text.trim()}`);
        }
    }

    async function handler(message: Message): Promise<void> {
        if (message.type === "review") await review(message.content, message.attachments[0]!.filename);
        else if (message.type === "approved") await client.moveTask(project, message.content, "done");
    }

    return client.runAutonomousLoop({
        handler, taskHandler, projects: [project], pollMs: 100, heartbeatMs: 1000, signal,
        onError: (error) => console.error(`${name}:`, error),
    });
}

const first = clientOf(ada);
await first.register();
const project = (await first.createProject("reviewed by each other")).id;
for (let n = 0; n < count; n++)
    await first.createTask(project, `chapter ${n + 1}`, { priority: `P${n % 4}` as "P0", required_reviewers: 1 });
const stop = new AbortController();
const both = [live(ada, eve, project, stop.signal), live(eve, ada, project, stop.signal)];
while ((await first.listTasks(project)).some((task) => task.status !== "done"))
    await new Promise((done) => setTimeout(done, 200));
stop.abort();
await Promise.all(both);
const metrics = await first.getMetrics(project);
console.log(`done: ${metrics.by_status.done} of ${metrics.total_tasks}, by`, metrics.agent_throughput);
