// The `ws` client against /ws: echoes of every size, closing from both sides, and each rule of
// RFC 6455 that a client can break, by bytes written past the library.
import net from "node:net";
import { randomBytes } from "node:crypto";
import WebSocket from "ws";
import { address, assert, check, host, once, port, run } from "./checks.mjs";

const url = `ws://${address}/ws`;

async function open(protocols, options) {
  const ws = new WebSocket(url, protocols, { perMessageDeflate: false, ...options });
  await once(ws, "open");
  return ws;
}

async function echo(ws, data, binary) {
  ws.send(data, { binary });
  const [got, isBinary] = await once(ws, "message");
  assert.equal(isBinary, binary);
  assert.ok(Buffer.from(data).equals(got), `${got.length} bytes came back, not ${data.length}`);
}

async function closed(ws) {
  const [code, reason] = await once(ws, "close");
  return { code, reason: reason.toString() };
}

// A frame by hand: first byte, payload, mask or not.
function frame(first, payload = "", mask = true) {
  const data = Buffer.from(payload);
  const key = mask ? randomBytes(4) : Buffer.alloc(0);
  let head;
  if (data.length < 126) head = Buffer.from([first, data.length]);
  else if (data.length < 65536) {
    head = Buffer.alloc(4);
    head[0] = first, head[1] = 126;
    head.writeUInt16BE(data.length, 2);
  } else {
    head = Buffer.alloc(10);
    head[0] = first, head[1] = 127;
    head.writeBigUInt64BE(BigInt(data.length), 2);
  }
  if (mask) head[1] |= 0x80;
  return Buffer.concat([head, key, mask ? data.map((b, i) => b ^ key[i % 4]) : data]);
}

// What the server closes with when it gets these bytes.
async function closesWith(code, ...bytes) {
  const ws = await open();
  ws.on("error", () => {});
  for (const b of bytes) ws._socket.write(b);
  assert.equal((await closed(ws)).code, code);
}

const FIN = 0x80;

check("echo of small and large messages", async () => {
  const ws = await open();
  for (const size of [0, 1, 125, 126, 127, 128, 65535, 65536, 65537, 1048576]) {
    await echo(ws, "x".repeat(size), false);
    await echo(ws, randomBytes(size), true);
  }
  await echo(ws, "κόσμε 🏝", false);
  ws.close(1000, "bye");
  assert.deepEqual(await closed(ws), { code: 1000, reason: "" });
});

check("echo of many messages at once", async () => {
  const ws = await open();
  const sent = [];
  let at = 0;
  const all = new Promise((resolve) => {
    ws.on("message", (data) => {
      assert.ok(sent[at++].equals(data));
      if (at === 2000) resolve();
    });
  });
  for (let i = 0; i < 2000; i++) {
    sent.push(randomBytes(Math.floor(Math.random() * 3000)));
    ws.send(sent[i]);
  }
  await all;
  ws.close();
  assert.equal((await closed(ws)).code, 1005);
});

check("fragments with a ping between them", async () => {
  const ws = await open();
  const pong = once(ws, "pong");
  ws.send("frag", { fin: false });
  ws.send("men", { fin: false });
  ws.ping("between");
  ws.send("", { fin: false });
  ws.send("ts", { fin: true });
  const [got] = await once(ws, "message");
  assert.equal(got.toString(), "fragments");
  assert.equal((await pong)[0].toString(), "between");
  ws.terminate();
});

check("a character split between fragments", async () => {
  const ws = await open();
  ws._socket.write(Buffer.concat([frame(1, Buffer.from([0xe2])), frame(0, Buffer.from([0x82])),
    frame(FIN, Buffer.from([0xac]))]));
  const [got] = await once(ws, "message");
  assert.equal(got.toString(), "€");
  ws.terminate();
});

check("frames byte by byte", async () => {
  const ws = await open();
  const message = once(ws, "message");
  ws._socket.setNoDelay(true);
  for (const b of frame(FIN | 1, "one at a time")) {
    ws._socket.write(Buffer.from([b]));
    await new Promise((r) => setTimeout(r, 1));
  }
  const [got] = await message;
  assert.equal(got.toString(), "one at a time");
  ws.terminate();
});

check("the server closes with a code and reason", async () => {
  const ws = await open();
  ws.send("close 4321");
  assert.deepEqual(await closed(ws), { code: 4321, reason: "as you wish" });
});

check("subprotocol is chosen when offered", async () => {
  const ws = await open(["other", "echo.v1"]);
  assert.equal(ws.protocol, "echo.v1");
  ws.terminate();
});

check("compression is not negotiated", async () => {
  const ws = await open([], { perMessageDeflate: true });
  assert.equal(ws.extensions, "");
  await echo(ws, "plain", false);
  ws.terminate();
});

check("ping payload of 125 bytes comes back", async () => {
  const ws = await open();
  const data = randomBytes(125);
  ws.ping(data);
  assert.ok((await once(ws, "pong"))[0].equals(data));
  ws.terminate();
});

check("reserved bits", () => closesWith(1002, frame(FIN | 0x40 | 1, "x")));
check("reserved opcode", () => closesWith(1002, frame(FIN | 3, "x")));
check("reserved control opcode", () => closesWith(1002, frame(FIN | 11)));
check("no mask", () => closesWith(1002, frame(FIN | 1, "x", false)));
check("continuation of nothing", () => closesWith(1002, frame(FIN, "x")));
check("message inside a message", () => closesWith(1002, frame(1, "a"), frame(FIN | 1, "b")));
check("fragmented ping", () => closesWith(1002, frame(9, "x")));
check("ping too long", () => closesWith(1002, frame(FIN | 9, "x".repeat(126))));
check("text that is not UTF-8", () => closesWith(1007, frame(FIN | 1, Buffer.from([0xc0, 0xaf]))));
check("text that is not UTF-8, in fragments",
  () => closesWith(1007, frame(1, "ok"), frame(FIN, Buffer.from([0xff]))));
check("close of one byte", () => closesWith(1002, frame(FIN | 8, "x")));
check("close with a code of no meaning", () => closesWith(1002, frame(FIN | 8, Buffer.from([3, 237]))));
check("close reason not UTF-8",
  () => closesWith(1007, frame(FIN | 8, Buffer.from([3, 232, 0xff]))));
check("message over the limit", () => closesWith(1009, frame(FIN | 2, Buffer.alloc(1048577))));
check("message over the limit in fragments",
  () => closesWith(1009, frame(2, Buffer.alloc(1048576)), frame(FIN, "x")));
check("length announced and never sent", () =>
  closesWith(1009, Buffer.from([FIN | 2, 0xff, 0x7f, 255, 255, 255, 255, 255, 255, 255, 1, 2, 3, 4, 0])));
check("too many pings", () =>
  closesWith(1008, Buffer.concat(Array.from({ length: 61 }, () => frame(FIN | 9)))));

check("a reader that stops is told 1013", async () => {
  const ws = await open();
  ws.pause();
  ws.send("flood");
  await new Promise((r) => setTimeout(r, 300));
  ws.resume();
  assert.deepEqual(await closed(ws), { code: 1013, reason: "reading too slowly" });
});

// ---- the handshake, by hand ----

function handshake(headers, method = "GET") {
  return new Promise((resolve, reject) => {
    const socket = net.connect(port, host);
    let text = "";
    socket.on("data", (d) => {
      text += d.toString("latin1");
      if (text.includes("\r\n\r\n")) socket.destroy(), resolve(text);
    });
    socket.on("error", reject);
    socket.write(`${method} /ws HTTP/1.1\r\nHost: x\r\n${headers.join("\r\n")}\r\n\r\n`);
  });
}

const good = ["Upgrade: websocket", "Connection: keep-alive, Upgrade",
  "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version: 13"];

check("handshake by hand", async () => {
  const text = await handshake(good);
  assert.match(text, /^HTTP\/1\.1 101 /);
  assert.match(text, /sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK\+xOo=\r\n/i);
  assert.match(text, /\r\nupgrade: websocket\r\n/i);
  assert.match(text, /\r\nconnection: upgrade\r\n/i);
});
// The good one with a line replaced, or left out. (Node 18 has neither with() nor toSpliced().)
const but = (at, ...lines) => [...good.slice(0, at), ...lines, ...good.slice(at + 1)];
check("handshake of another version is 426", async () => {
  const text = await handshake(but(3, "Sec-WebSocket-Version: 8"));
  assert.match(text, /^HTTP\/1\.1 426 /);
  assert.match(text, /\r\nsec-websocket-version: 13\r\n/i);
});
check("handshake without a key is 400",
  async () => assert.match(await handshake(but(2)), /^HTTP\/1\.1 400 /));
check("handshake with a short key is 400", async () =>
  assert.match(await handshake(but(2, "Sec-WebSocket-Key: c2hvcnQ=")), /^HTTP\/1\.1 400 /));
check("handshake without Connection: Upgrade is 400", async () =>
  assert.match(await handshake(but(1, "Connection: close")), /^HTTP\/1\.1 400 /));
check("an offer of permessage-deflate is declined", async () => {
  const ws = await open(undefined, { perMessageDeflate: { threshold: 0 } });
  assert.equal(ws.extensions, "");
  await echo(ws, "x".repeat(5000), false);
  ws.close();
  await closed(ws);
  const offer = "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits, x";
  assert.doesNotMatch(await handshake([...good, offer]), /sec-websocket-extensions/i);
});
check("a compressed frame all the same is a protocol error",
  async () => closesWith(1002, frame(FIN | 0x40 | 1, "x")));
check("frames right behind the handshake are not lost", async () => {
  const socket = net.connect(port, host);
  const got = [];
  socket.on("data", (d) => got.push(d));
  socket.write(Buffer.concat([
    Buffer.from(`GET /ws HTTP/1.1\r\nHost: x\r\n${good.join("\r\n")}\r\n\r\n`),
    frame(FIN | 1, "early"), frame(FIN | 8, Buffer.from([3, 232]))]));
  await once(socket, "close");
  const tail = Buffer.concat(got).subarray(-11);
  assert.deepEqual([...tail], [0x81, 5, ...Buffer.from("early"), 0x88, 2, 3, 232]);
});

await run();
