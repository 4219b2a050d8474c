// Node's own HTTP/2 client, and WebSocket over HTTP/2 (RFC 8441) by hand on top of it.
import http2 from "node:http2";
import { randomBytes } from "node:crypto";
import { address, assert, check, once, run, slow } from "./checks.mjs";

const url = process.argv[3] === "tls" ? `https://${address}` : `http://${address}`;

async function connect(options) {
  const client = http2.connect(url, { rejectUnauthorized: false, ...options });
  await once(client, "remoteSettings");
  return client;
}

function ask(client, headers, body) {
  return new Promise((resolve, reject) => {
    const stream = client.request({ ":path": "/hello", ...headers }, { endStream: body === undefined });
    const got = { chunks: [], trailers: {} };
    stream.on("response", (h) => (got.headers = h));
    stream.on("data", (d) => got.chunks.push(d));
    stream.on("trailers", (t) => (got.trailers = t));
    stream.on("error", (err) => (got.error = err));
    stream.on("close", () => {
      got.code = stream.rstCode;
      got.body = Buffer.concat(got.chunks);
      resolve(got);
    });
    setTimeout(() => reject(new Error("no answer")), 15000 * slow).unref();
    if (body !== undefined) stream.end(body);
  });
}

async function withClient(fn, options) {
  const client = await connect(options);
  try {
    await fn(client);
  } finally {
    client.destroy();
  }
}

check("a request", () => withClient(async (client) => {
  const got = await ask(client, {});
  assert.equal(got.headers[":status"], 200);
  assert.equal(got.body.toString(), "hello\n");
  assert.equal(got.headers["content-length"], "6");
  assert.equal(got.headers["x-content-type-options"], "nosniff");
}));

check("bodies both ways, many streams", () => withClient(async (client) => {
  await Promise.all(Array.from({ length: 60 }, async (_, i) => {
    const body = randomBytes(i * 5000);
    const got = await ask(client, { ":method": "POST", ":path": i % 2 ? "/echo" : "/all" }, body);
    assert.equal(got.headers[":status"], 200);
    assert.ok(got.body.equals(body), `${got.body.length} of ${body.length} bytes`);
  }));
}));

check("a large answer", () => withClient(async (client) => {
  const got = await ask(client, { ":path": "/bytes?20000000" });
  assert.equal(got.body.length, 20000000);
  for (let i = 0; i < got.body.length; i += 9973) assert.equal(got.body[i], 97 + (i % 26));
}));

check("a reader that pauses loses nothing", () => withClient(async (client) => {
  const stream = client.request({ ":path": "/bytes?5000000" });
  let length = 0;
  stream.pause();
  await new Promise((r) => setTimeout(r, 200));
  for await (const chunk of stream) {
    length += chunk.length;
    if (length % 7 === 0) await new Promise((r) => setTimeout(r, 1));
  }
  assert.equal(length, 5000000);
}));

check("trailers", () => withClient(async (client) => {
  const got = await ask(client, { ":path": "/trailers" });
  assert.equal(got.body.toString(), "body\n");
  assert.equal(got.trailers["x-sum"], "42");
}));

check("HEAD and 204", () => withClient(async (client) => {
  const head = await ask(client, { ":method": "HEAD" });
  assert.equal(head.headers["content-length"], "6");
  assert.equal(head.body.length, 0);
  const none = await ask(client, { ":path": "/status?204" });
  assert.equal(none.headers[":status"], 204);
}));

check("a body over the limit is 413", () => withClient(async (client) => {
  const got = await ask(client, { ":method": "POST", ":path": "/all" }, randomBytes(1048577));
  assert.equal(got.headers[":status"], 413);
}));

check("cookies arrive as one", () => withClient(async (client) => {
  const got = await ask(client, { ":path": "/headers?q", cookie: ["a=1", "b=2"], "x-one": "two" });
  assert.match(got.body.toString(), /\ncookie: a=1; b=2\n/);
  assert.match(got.body.toString(), /\nquery q\n/);
}));

check("a cancelled request frees its stream", () => withClient(async (client) => {
  for (let i = 0; i < 150; i++) {
    const stream = client.request({ ":path": "/bytes?100000000" });
    stream.on("error", () => {});
    await once(stream, "response");
    stream.close(http2.constants.NGHTTP2_CANCEL);
    await once(stream, "close");
  }
  assert.equal((await ask(client, {})).body.toString(), "hello\n");
}));

check("more than 200 resets in ten seconds end the connection", () => withClient(async (client) => {
  let code;
  const gone = new Promise((resolve) => client.on("close", resolve));
  client.on("goaway", (c) => (code = c));
  client.on("error", () => {});
  for (let i = 0; i < 400 && !client.closed && !client.destroyed; i++) {
    const stream = client.request({ ":path": "/bytes?1000000" });
    stream.on("error", () => {});
    stream.close(http2.constants.NGHTTP2_CANCEL);
    await new Promise((r) => setImmediate(r));
  }
  await gone;
  assert.equal(code, http2.constants.NGHTTP2_ENHANCE_YOUR_CALM);
}));

check("the host must be the authority", () => withClient(async (client) => {
  const got = await ask(client, { ":authority": "one", host: "two" });
  assert.equal(got.headers[":status"], 400);
}));

check("over a hundred header fields are 431", () => withClient(async (client) => {
  const headers = {};
  for (let i = 0; i < 110; i++) headers[`x-${i}`] = "y";
  const got = await ask(client, headers);
  assert.equal(got.headers[":status"], 431);
}));

check("ping", () => withClient(async (client) => {
  const payload = randomBytes(8);
  const back = await new Promise((resolve, reject) =>
    client.ping(payload, (err, ms, data) => (err ? reject(err) : resolve(data))));
  assert.ok(back.equals(payload));
}));

check("WebSocket over HTTP/2", () => withClient(async (client) => {
  assert.equal(client.remoteSettings.enableConnectProtocol, true);
  const stream = client.request({ ":method": "CONNECT", ":protocol": "websocket", ":path": "/ws",
    ":scheme": "http", ":authority": address, "sec-websocket-version": "13",
    "sec-websocket-protocol": "echo.v1" });
  const [headers] = await once(stream, "response");
  assert.equal(headers[":status"], 200);
  assert.equal(headers["sec-websocket-protocol"], "echo.v1");
  stream.write(Buffer.from([0x81, 0x85, 0, 0, 0, 0, ...Buffer.from("hello")]));
  assert.deepEqual([...(await once(stream, "data"))[0]], [0x81, 5, ...Buffer.from("hello")]);
  stream.write(Buffer.from([0x88, 0x82, 0, 0, 0, 0, 3, 232]));
  assert.deepEqual([...(await once(stream, "data"))[0]], [0x88, 2, 3, 232]);
  await once(stream, "end");
  assert.equal((await ask(client, {})).body.toString(), "hello\n"); // the connection lives
}));

check("WebSocket over HTTP/2 of another version is 426", () => withClient(async (client) => {
  const stream = client.request({ ":method": "CONNECT", ":protocol": "websocket", ":path": "/ws",
    ":scheme": "http", ":authority": address, "sec-websocket-version": "7" });
  const [headers] = await once(stream, "response");
  assert.equal(headers[":status"], 426);
  assert.equal(headers["sec-websocket-version"], "13");
  stream.close();
}));

await run();
