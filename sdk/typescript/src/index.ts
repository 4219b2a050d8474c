// Atoll: sandboxes for agents. This entry runs in Node and in browsers and needs nothing but fetch.
export { API_VERSION, operations } from "./api.js";
export * from "./client.js";
export * from "./errors.js";
export { type Change, type ChangedFile, Files, type RemotePath } from "./files.js";
export type * from "./models.js";
export { ExecResult, type Output, type Position, Process } from "./process.js";
export { type Command, type ExecOptions, Sandbox, type SpawnOptions } from "./sandbox.js";
export { Closed, type Message, type OpenSocket, type Socket } from "./socket.js";
export * from "./terminal.js";
export { Answer, type Content, type Fetch, type Options, type Page, VERSION } from "./transport.js";
