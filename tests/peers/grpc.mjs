// @grpc/grpc-js against the test server's calls, and gRPC-Web by fetch. Messages are plain bytes.
import grpc from "@grpc/grpc-js";
import { readFileSync } from "node:fs";
import { randomBytes } from "node:crypto";
import { address, assert, check, once, run } from "./checks.mjs";

const identity = (b) => b;
const method = (name, requestStream, responseStream) => ({
  path: `/test.Echo/${name}`, requestStream, responseStream,
  requestSerialize: identity, requestDeserialize: identity,
  responseSerialize: identity, responseDeserialize: identity,
});
const Client = grpc.makeClientConstructor({
  unary: method("Unary", false, false),
  collect: method("Collect", true, false),
  count: method("Count", false, true),
  chat: method("Chat", true, true),
  fail: method("Fail", false, false),
  wait: method("Wait", false, false),
  missing: method("Missing", false, false),
}, "Echo");
const tls = process.argv[3] === "tls";
const credentials = tls ? grpc.credentials.createSsl(readFileSync(process.argv[4]))
  : grpc.credentials.createInsecure();
const options = tls ? { "grpc.ssl_target_name_override": "localhost" } : {};
const client = new Client(address, credentials, options);

const call = (name, message, opts = {}) => new Promise((resolve) => {
  client[name](Buffer.from(message), new grpc.Metadata(), opts, (err, reply) =>
    resolve(err ? { code: err.code, details: err.details } : { reply }));
});

check("unary", async () => {
  assert.equal((await call("unary", "hello")).reply.toString(), "hello");
  assert.equal((await call("unary", "")).reply.length, 0);
});

check("unary of many sizes at once", async () => {
  await Promise.all(Array.from({ length: 120 }, async (_, i) => {
    const data = randomBytes(i * i * 7);
    assert.ok((await call("unary", data)).reply.equals(data));
  }));
});

check("message of 4 MiB less a little", async () => {
  const data = randomBytes(4194304 - 100);
  assert.ok((await call("unary", data)).reply.equals(data));
});

check("message over 4 MiB", async () =>
  assert.equal((await call("unary", Buffer.alloc(4194305))).code, grpc.status.RESOURCE_EXHAUSTED));

check("status and message, percent-encoded", async () => {
  assert.deepEqual(await call("fail", "5 nichts für 100% ☃\nda"),
    { code: grpc.status.NOT_FOUND, details: "nichts für 100% ☃\nda" });
  assert.deepEqual(await call("fail", "16"), { code: grpc.status.UNAUTHENTICATED, details: "" });
});

check("method that is not there", async () =>
  assert.equal((await call("missing", "x")).code, grpc.status.UNIMPLEMENTED));

check("compressed messages are refused by name", async () => {
  const gzip = new Client(address, credentials, { ...options, "grpc.default_compression_algorithm": 2 });
  const err = await new Promise((resolve) => gzip.unary(Buffer.from("x".repeat(5000)), resolve));
  gzip.close();
  assert.equal(err.code, grpc.status.UNIMPLEMENTED);
  assert.match(err.details, /identity/);
});

check("client stream", async () => {
  const reply = await new Promise((resolve, reject) => {
    const stream = client.collect((err, r) => (err ? reject(err) : resolve(r)));
    for (let i = 0; i < 1000; i++) stream.write(Buffer.from(`${i},`));
    stream.end();
  });
  assert.equal(reply.toString(), Array.from({ length: 1000 }, (_, i) => `${i},`).join(""));
});

check("server stream of 20,000 messages", async () => {
  let next = 0;
  for await (const message of client.count(Buffer.from("20000")))
    assert.equal(message.toString(), String(next++));
  assert.equal(next, 20000);
});

check("server stream read slowly", async () => {
  let next = 0;
  for await (const message of client.count(Buffer.from("300000"))) {
    assert.equal(message.toString(), String(next++));
    if (next % 50000 === 0) await new Promise((r) => setTimeout(r, 50));
  }
  assert.equal(next, 300000);
});

check("both ways with large messages", async () => {
  const stream = client.chat();
  const sent = Array.from({ length: 100 }, () => randomBytes(70000));
  let at = 0;
  stream.on("data", (d) => assert.ok(sent[at++].equals(d)));
  for (const data of sent) stream.write(data);
  stream.end();
  await once(stream, "end");
  assert.equal(at, 100);
});

check("both ways, one by one", async () => {
  const stream = client.chat();
  for (let i = 0; i < 50; i++) {
    stream.write(Buffer.from(`m${i}`));
    assert.equal((await once(stream, "data"))[0].toString(), `m${i}`);
  }
  stream.end();
  stream.resume();
  await once(stream, "end");
});

check("deadline", async () => {
  const start = Date.now();
  const got = await call("wait", "x", { deadline: start + 200 });
  assert.equal(got.code, grpc.status.DEADLINE_EXCEEDED);
  assert.ok(Date.now() - start < 2000);
});

check("cancel", async () => {
  const stream = client.count(Buffer.from("100000000"));
  await once(stream, "data");
  stream.cancel();
  const [err] = await once(stream, "error");
  assert.equal(err.code, grpc.status.CANCELLED);
});

check("compressed messages are refused by name", async () => {
  const zipped = new Client(address, credentials,
    { ...options, "grpc.default_compression_algorithm": 2 });
  const err = await new Promise((resolve) =>
    zipped.unary(Buffer.from("x".repeat(1000)), (e) => resolve(e)));
  assert.equal(err.code, grpc.status.UNIMPLEMENTED);
  zipped.close();
});

// ---- gRPC-Web, over HTTP/1.1 ----

const prefix = (data, flag = 0) => {
  const head = Buffer.alloc(5);
  head[0] = flag;
  head.writeUInt32BE(data.length, 1);
  return Buffer.concat([head, Buffer.from(data)]);
};

async function web(name, type, body) {
  const res = await fetch(`http://${address}/test.Echo/${name}`,
    { method: "POST", headers: { "content-type": type }, body });
  assert.equal(res.status, 200);
  assert.equal(res.headers.get("content-type"), type);
  let bytes = Buffer.from(await res.arrayBuffer());
  if (type.includes("text")) // pieces, each padded
    bytes = Buffer.concat(bytes.toString().match(/[^=]+=*/g).map((t) => Buffer.from(t, "base64")));
  const frames = [];
  for (let at = 0; at < bytes.length;) {
    const len = bytes.readUInt32BE(at + 1);
    frames.push({ flag: bytes[at], data: bytes.subarray(at + 5, at + 5 + len).toString() });
    at += 5 + len;
  }
  return frames;
}

if (!tls) {
  check("gRPC-Web", async () => {
    assert.deepEqual(await web("Unary", "application/grpc-web+proto", prefix("hello")),
      [{ flag: 0, data: "hello" }, { flag: 0x80, data: "grpc-status: 0\r\n" }]);
    assert.deepEqual(await web("Fail", "application/grpc-web", prefix("7 no")),
      [{ flag: 0x80, data: "grpc-status: 7\r\ngrpc-message: no\r\n" }]);
    assert.equal((await web("Count", "application/grpc-web", prefix("1000"))).length, 1001);
  });
  check("gRPC-Web text", async () => {
    const text = prefix("hello").toString("base64");
    assert.deepEqual(await web("Unary", "application/grpc-web-text", text),
      [{ flag: 0, data: "hello" }, { flag: 0x80, data: "grpc-status: 0\r\n" }]);
  });
  check("gRPC without HTTP/2 is refused", async () => {
    const res = await fetch(`http://${address}/test.Echo/Unary`, { method: "POST",
      headers: { "content-type": "application/grpc" }, body: prefix("x") });
    assert.equal(res.status, 505);
  });
}

await run();
