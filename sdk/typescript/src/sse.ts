// Server-sent events: from the bytes of an answer to events, as the WHATWG standard reads them.
import { ConnectionFailed } from "./errors.js";
import type { Answer } from "./transport.js";

const LINE_MAX = 16 << 20;

export interface ServerEvent {
    id: string;
    event: string;
    data: string;
}

async function* lines(answer: Answer): AsyncGenerator<string, void, undefined> {
    const decoder = new TextDecoder();
    let rest = "";
    for await (const chunk of answer.chunks()) {
        const parts = (rest + decoder.decode(chunk, { stream: true })).split("\n");
        rest = parts.pop() ?? "";
        for (const line of parts) yield line.endsWith("\r") ? line.slice(0, -1) : line;
        if (rest.length > LINE_MAX) throw new ConnectionFailed("a line of the event stream does not end");
    }
}

/** Until the server ends the answer; what is unfinished then is dropped, as it must be. */
export async function* events(answer: Answer): AsyncGenerator<ServerEvent, void, undefined> {
    let id = "";
    let event = "";
    let data: string[] = [];
    for await (const line of lines(answer)) {
        if (!line) {
            if (data.length) yield { id, event: event || "message", data: data.join("\n") };
            event = "";
            data = [];
            continue;
        }
        const colon = line.indexOf(":");
        const name = colon < 0 ? line : line.slice(0, colon);
        const value = colon < 0 ? "" : line.slice(line[colon + 1] === " " ? colon + 2 : colon + 1);
        if (name === "data") data.push(value);
        else if (name === "event") event = value;
        else if (name === "id" && !value.includes("\0")) id = value;
    }
}
