// The files of a sandbox. Paths are relative to /workspace unless absolute; text, or the bytes of a name that is none.
//
// Everything is done inside, with the rights of the sandbox's user, or of `user` ("agent", "root").
import type { Api } from "./api.js";
import { ConnectionFailed, NotFound } from "./errors.js";
import type { FileInfo, TreeWriteResult } from "./models.js";
import { events, type ServerEvent } from "./sse.js";
import type { Answer, Content } from "./transport.js";

const PAGE = 1000;
const TREE_MS = 600_000;

export type RemotePath = string | Uint8Array;
export interface As {
    user?: "agent" | "root";
}

/** A part of a file. */
export interface Span {
    offset?: number;
    length?: number;
}

/** One event of a watch; `lost` when some were missed. */
export interface Change {
    what: string;
    path: string;
    directory: boolean;
}

// Bytes pass through the query as they are; the generated type knows text alone.
const name = (path: RemotePath) => path as string;

export class Files {
    constructor(private readonly api: Api, private readonly id: string) {}

    // ---- one file ----

    /** Its bytes as they come: chunks(), bytes() or text() of the answer. */
    async stream(path: RemotePath, { offset = 0, length, user }: As & Span = {}): Promise<Answer> {
        if (length === 0) throw new RangeError("a range of no bytes cannot be asked for");
        const headers: Record<string, string> = {};
        if (offset || length !== undefined)
            headers["range"] = `bytes=${offset}-${length === undefined ? "" : offset + length - 1}`;
        return this.api.fileRead(this.id, { path: name(path), user }, { headers });
    }

    /** All of it, or a range. */
    async read(path: RemotePath, options: As & Span = {}): Promise<Uint8Array> {
        return (await this.stream(path, options)).bytes();
    }

    async readText(path: RemotePath, options: As = {}): Promise<string> {
        return (await this.stream(path, options)).text();
    }

    /** The file becomes this at once, when all of it has arrived. mode is octal: "755". */
    write(path: RemotePath, data: Content,
          { mode, sync, user }: As & { mode?: string; sync?: boolean } = {}): Promise<FileInfo> {
        return this.api.fileWrite(this.id, { path: name(path), mode, sync: sync ? 1 : undefined, user }, data);
    }

    append(path: RemotePath, data: Content, { sync, user }: As & { sync?: boolean } = {}): Promise<FileInfo> {
        return this.api.fileAppend(this.id, { path: name(path), sync: sync ? 1 : undefined, user }, data);
    }

    // ---- about files ----

    stat(path: RemotePath, { follow, user }: As & { follow?: boolean } = {}): Promise<FileInfo> {
        return this.api.fileStat(this.id, { path: name(path), follow: follow ? 1 : undefined, user });
    }

    async exists(path: RemotePath, options: As = {}): Promise<boolean> {
        try {
            await this.stat(path, options);
            return true;
        } catch (error) {
            if (error instanceof NotFound) return false;
            throw error;
        }
    }

    /** What is in a directory, sorted by name, however much it is. */
    async *list(path: RemotePath = ".", { user }: As = {}): AsyncGenerator<FileInfo, void, undefined> {
        let after: RemotePath | undefined;
        for (;;) {
            const query = { path: name(path), after: after as string, limit: PAGE, user };
            const page = await this.api.fileList(this.id, query);
            yield* page.items;
            const last = page.items.at(-1);
            if (!page["more"] || !last) return;
            after = last.name_base64 ? Uint8Array.from(atob(last.name_base64), (c) => c.charCodeAt(0)) : last.name;
        }
    }

    async mkdir(path: RemotePath,
                { parents, mode, user }: As & { parents?: boolean; mode?: string } = {}): Promise<void> {
        await this.api.fileMkdir(this.id, { path: name(path), parents: parents ? 1 : undefined, mode, user });
    }

    async move(path: RemotePath, to: RemotePath, { replace, user }: As & { replace?: boolean } = {}): Promise<void> {
        await this.api.fileMove(this.id, { path: name(path), to: name(to), replace: replace ? 1 : undefined, user });
    }

    async remove(path: RemotePath, { recursive, user }: As & { recursive?: boolean } = {}): Promise<void> {
        await this.api.fileRemove(this.id, { path: name(path), recursive: recursive ? 1 : undefined, user });
    }

    /** Changes below a directory from now on; the promise settles when the watch has begun. */
    async watch(path: RemotePath = ".", { recursive, user, idleMs = 3_600_000 }: As & {
        recursive?: boolean; idleMs?: number;
    } = {}): Promise<AsyncGenerator<Change, void, undefined>> {
        const query = { path: name(path), recursive: recursive ? 1 : undefined, user };
        const options = { timeoutMs: idleMs, headers: { accept: "text/event-stream" } };
        const answer = await this.api.fileWatch(this.id, query, options);
        const seen = events(answer);
        for (let next = await seen.next(); !next.done; next = await seen.next())
            if (next.value.event === "ready") return changes(seen);
        throw new ConnectionFailed("the watch ended before it began");
    }

    // ---- trees; see also uploadTree and downloadTree of "@atoll/sdk/node" ----

    /** A directory as a tar archive. */
    archive(path: RemotePath = ".", { user }: As = {}): Promise<Answer> {
        return this.api.treeRead(this.id, { path: name(path), user }, { timeoutMs: TREE_MS });
    }

    /** A tar archive, unpacked into a directory that is there. */
    unpack(archive: Content, path: RemotePath = ".", { user }: As = {}): Promise<TreeWriteResult> {
        return this.api.treeWrite(this.id, { path: name(path), user }, archive, { timeoutMs: TREE_MS });
    }

    /** Everything below a directory, sorted, with the digests of regular files. */
    async *manifest(path: RemotePath = ".", { user }: As = {}): AsyncGenerator<FileInfo, void, undefined> {
        const answer = await this.api.treeManifest(this.id, { path: name(path), user }, { timeoutMs: TREE_MS });
        for await (const line of lines(answer)) yield JSON.parse(line) as FileInfo;
    }

    /** What was changed in the view of a directory that the sandbox was made with (`binds` with `view`, as
     *  `atoll run` does), both sides of a changed file. Conflict when it has no view. */
    async *changes({ user }: As = {}): AsyncGenerator<ChangedFile, void, undefined> {
        const answer = await this.api.sandboxChanges(this.id, { user }, { timeoutMs: TREE_MS });
        for await (const line of lines(answer)) yield JSON.parse(line) as ChangedFile;
    }
}

/** One side of a file that changed. */
export interface ChangedFile {
    side: "before" | "after";
    file: FileInfo;
}

async function* lines(answer: Answer): AsyncGenerator<string, void, undefined> {
    const decoder = new TextDecoder();
    let rest = "";
    for await (const chunk of answer.chunks()) {
        const whole = (rest + decoder.decode(chunk, { stream: true })).split("\n");
        rest = whole.pop() ?? "";
        yield* whole;
    }
}

async function* changes(seen: AsyncGenerator<ServerEvent, void, undefined>): AsyncGenerator<Change, void, undefined> {
    for await (const event of seen) {
        const raw = event.data ? (JSON.parse(event.data) as Partial<Change>) : {};
        if (event.event === "lost") yield { what: "lost", path: "", directory: false };
        else if (event.event === "change")
            yield { what: raw.what ?? "", path: raw.path ?? "", directory: raw.directory ?? false };
    }
}
