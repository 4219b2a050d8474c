// node sse.mjs PORT - an event stream and a way to publish, on node's own http module: GET keeps the
// subscriber, POST sends what it was given to all of them.
import { createServer } from "node:http";

const subscribers = new Set();
let number = 0;

createServer((request, reply) => {
    if (request.method === "GET") {
        reply.writeHead(200, { "content-type": "text/event-stream", "cache-control": "no-store" });
        reply.write("retry: 1000\n\n");
        subscribers.add(reply);
        reply.on("close", () => subscribers.delete(reply));
        return;
    }
    const parts = [];
    request.on("data", (part) => parts.push(part));
    request.on("end", () => {
        const data = JSON.parse(Buffer.concat(parts).toString());
        const text = `id: ${++number}\nevent: note.created\ndata: ${JSON.stringify({ seq: number, data })}\n\n`;
        for (const subscriber of subscribers) subscriber.write(text);
        reply.writeHead(201, { "content-type": "application/json" });
        reply.end(JSON.stringify({ seq: number }));
    });
}).listen({ port: Number(process.argv[2]), host: "127.0.0.1", backlog: 4096 });
