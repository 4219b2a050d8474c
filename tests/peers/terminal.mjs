// The `ws` client at a terminal: node terminal.mjs HOST:PORT TOKEN SANDBOX. Starts one, types, counts
// positions by the rules of docs/terminals.md, and comes back in the middle.
import WebSocket from "ws";
import { address, assert, check, once, run } from "./checks.mjs";

const [token, box] = process.argv.slice(3);
const headers = { authorization: `Bearer ${token}` };
const base = `/api/v1/sandboxes/${box}/terminals`;

async function call(method, path, body) {
  const reply = await fetch(`http://${address}${path}`, {
    method, headers: { ...headers, "content-type": "application/json" }, body: body && JSON.stringify(body),
  });
  assert.ok(reply.ok, `${method} ${path}: ${reply.status}`);
  return reply.json();
}

class Terminal {
  output = "";
  told = [];

  constructor(id, query, protocols = ["atoll.terminal.v1"]) {
    this.ws = new WebSocket(`ws://${address}${base}/${id}/ws?${query}`, protocols, { headers });
    this.ws.on("message", (data, binary) => {
      if (binary) {
        this.position += data.length;
        this.output += data.toString("latin1");
      } else {
        const message = JSON.parse(data);
        if (message.type === "hello") this.position = message.position;
        this.told.push(message);
      }
      this.ws.emit("told");
    });
  }

  async until(test) {
    while (!test(this)) await once(this.ws, "told");
  }

  async tell(type) {
    await this.until(() => this.told.some((m) => m.type === type));
    return this.told.find((m) => m.type === type);
  }
}

check("types, resizes and is told the end", async () => {
  const { id } = await call("POST", base, { argv: ["sh"], rows: 10, cols: 40 });
  const term = new Terminal(id, "from=0&role=controller");
  assert.equal((await term.tell("hello")).role, "controller");
  assert.equal(term.ws.protocol, "atoll.terminal.v1");
  term.ws.send(JSON.stringify({ type: "resize", rows: 12, cols: 50 }));
  await term.tell("resize");
  term.ws.send(Buffer.from("stty size\n"));
  await term.until((t) => t.output.includes("12 50"));
  const closed = once(term.ws, "close");
  term.ws.send(Buffer.from("exit 9\n"));
  const end = await term.tell("exit");
  assert.equal(end.exit_code, 9);
  assert.equal(end.position, term.position);
  assert.equal((await closed)[0], 1000);
});

check("comes back by position", async () => {
  const { id } = await call("POST", base, { command: "seq 1 20000; sleep 30" });
  let position = 0, all = "";
  while (!all.endsWith("20000\r\n")) {
    const term = new Terminal(id, `from=${position}`);
    await term.tell("hello");
    assert.equal(term.told[0].position, position);
    await term.until((t) => t.output.length > 0);
    await new Promise((done) => setTimeout(done, 5));
    term.ws.terminate();
    await once(term.ws, "close");
    all += term.output;
    position = term.position;
  }
  assert.equal(all, Array.from({ length: 20000 }, (_, i) => `${i + 1}\r\n`).join(""));
  await call("DELETE", `${base}/${id}`);
});

check("is refused what makes no sense", async () => {
  const { id } = await call("POST", base, { argv: ["cat"] });
  const bad = new WebSocket(`ws://${address}${base}/${id}/ws?from=99`, { headers });
  const [, reply] = await once(bad, "unexpected-response");
  assert.equal(reply.statusCode, 416);
  const term = new Terminal(id, "role=controller");
  await term.tell("hello");
  const closed = once(term.ws, "close");
  term.ws.send("not JSON, and not input either");
  assert.equal((await closed)[0], 4400);
  assert.equal(term.told.at(-1).type, "error");
  await call("DELETE", `${base}/${id}`);
});

await run();
