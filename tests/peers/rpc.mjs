// Calls of any method by other people's clients: rpc.mjs URL TRANSPORT DESCRIPTORS reads one wish a line, as
// JSON, and answers each with a line; tests/rpc.py is at the other end.
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { createFileRegistry, create, fromBinary, fromJson, toBinary, toJson } from "@bufbuild/protobuf";
import { FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import * as node from "@connectrpc/connect-node";
import * as web from "@connectrpc/connect-web";
import grpc from "@grpc/grpc-js";

const [baseUrl, name, descriptors] = process.argv.slice(2);
const registry = createFileRegistry(fromBinary(FileDescriptorSetSchema, readFileSync(descriptors)));
const transports = {
  "connect-node-json": () => node.createConnectTransport({ baseUrl, httpVersion: "1.1", useBinaryFormat: false }),
  "connect-node-binary": () => node.createConnectTransport({ baseUrl, httpVersion: "1.1", useBinaryFormat: true,
    useHttpGet: true }),
  "connect-node-http2": () => node.createConnectTransport({ baseUrl, httpVersion: "2" }),
  "connect-node-grpc": () => node.createGrpcTransport({ baseUrl }),
  "connect-node-grpc-web": () => node.createGrpcWebTransport({ baseUrl, httpVersion: "1.1" }),
  "connect-web-json": () => web.createConnectTransport({ baseUrl, useBinaryFormat: false, useHttpGet: true }),
  "connect-web-binary": () => web.createConnectTransport({ baseUrl, useBinaryFormat: true }),
  "connect-web-grpc-web": () => web.createGrpcWebTransport({ baseUrl }),
};

const snake = (code) => Code[code].replace(/(?!^)[A-Z]/g, (c) => "_" + c).toLowerCase();
const clients = new Map();
const headers = (wish) => ({ ...wish.headers, ...(wish.token ? { authorization: "Bearer " + wish.token } : {}) });
const requests = (wish, method) => wish.requests.map((r) => fromJson(method.input, r));
const streamsIn = (method) => ["client_streaming", "bidi_streaming"].includes(method.methodKind);

async function callConnect(wish, method) {
  if (!clients.has(wish.service))
    clients.set(wish.service, createClient(registry.getService(wish.service), transports[name]()));
  const client = clients.get(wish.service), messages = [], abort = new AbortController();
  const options = { signal: abort.signal, timeoutMs: wish.timeoutMs ?? undefined, headers: headers(wish) };
  const fn = client[method.localName], said = requests(wish, method);
  let enough, wait = new Promise((resolve) => { enough = resolve; });
  if (!wish.holdFor) enough();
  async function* stream() { // stays open until holdFor messages are there
    yield* said;
    await wait;
  }
  try {
    if (wish.cancelAfter === 0) setTimeout(() => abort.abort(), 0);
    const reply = fn.call(client, streamsIn(method) ? stream() : said[0], options);
    if (method.methodKind === "unary") messages.push(toJson(method.output, await reply));
    else for await (const message of reply) {
      messages.push(toJson(method.output, message));
      if (messages.length >= wish.holdFor) enough();
      if (wish.cancelAfter !== null && messages.length >= wish.cancelAfter) abort.abort();
    }
    return { code: "ok", message: "", messages };
  } catch (err) {
    const error = ConnectError.from(err);
    return { code: snake(error.code), message: error.rawMessage, messages };
  }
}

const channel = name === "grpc-js"
  ? new grpc.Client(baseUrl.replace("http://", ""), grpc.credentials.createInsecure()) : null;

function callGrpcJs(wish, method) {
  const metadata = new grpc.Metadata(), messages = [];
  for (const [key, value] of Object.entries(headers(wish))) metadata.set(key, value);
  const options = wish.timeoutMs === null ? {} : { deadline: Date.now() + wish.timeoutMs };
  return new Promise((resolve) => {
    const path = `/${wish.service}/${method.name}`, said = requests(wish, method);
    const pack = (m) => Buffer.from(toBinary(method.input, m)), unpack = (b) => fromBinary(method.output, b);
    const call = streamsIn(method) ? channel.makeBidiStreamRequest(path, pack, unpack, metadata, options)
      : channel.makeServerStreamRequest(path, pack, unpack, said[0], metadata, options);
    if (streamsIn(method)) for (const message of said) call.write(message);
    if (streamsIn(method) && !wish.holdFor) call.end();
    call.on("data", (message) => {
      messages.push(toJson(method.output, message));
      if (wish.holdFor && messages.length === wish.holdFor) call.end();
      if (wish.cancelAfter !== null && messages.length >= wish.cancelAfter) call.cancel();
    });
    call.on("error", (err) => resolve({ code: snake(err.code), message: err.details, messages }));
    call.on("end", () => resolve({ code: "ok", message: "", messages }));
    if (wish.cancelAfter === 0) setTimeout(() => call.cancel(), 0); // what is not sent yet never is
  });
}

createInterface({ input: process.stdin }).on("line", async (line) => {
  const wish = JSON.parse(line);
  const method = registry.getService(wish.service).methods.find((m) => m.name === wish.method);
  const answer = await (channel ? callGrpcJs : callConnect)(wish, method);
  process.stdout.write(JSON.stringify({ id: wish.id, ...answer }) + "\n");
}).on("close", () => process.exit(0));
