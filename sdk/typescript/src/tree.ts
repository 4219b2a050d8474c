// Directories as tar archives, in Node: made while they are sent, unpacked while they come.
//
// An archive that comes out of a sandbox was written by whoever ran there. Unpacking it here makes directories, regular
// files and symbolic links below the directory that was named, and nothing else: a name that leads out of it ends the
// unpacking, nothing is written through a link, and links are made last and only when they lead to a place inside;
// others are left out and listed.
import { createReadStream } from "node:fs";
import { chmod, lstat, mkdir, open, readdir, readlink, rename, rm, symlink, unlink } from "node:fs/promises";
import { join, resolve } from "node:path";
import { AtollError, UnsafeArchive } from "./errors.js";
import type { As, Files, RemotePath } from "./files.js";
import type { TreeWriteResult } from "./models.js";

const BLOCK = 512;
const PAX_MAX = 1 << 20;

type Wanted = (name: string) => boolean;
type Bytes = AsyncGenerator<Uint8Array, void, undefined>;

/** What a download made: names relative to its directory. */
export interface UnpackedTree {
    files: number;
    bytes: number;
    /** Links that lead out, devices and the like. */
    skipped: string[];
}

// ---- packing ----

function header(name: string, type: string, mode: number, size: number, mtime: number, link: string): Buffer {
    const block = Buffer.alloc(BLOCK);
    const octal = (value: number, at: number, width: number) =>
        block.write(value.toString(8).padStart(width - 1, "0") + "\0", at, "latin1");
    block.write(name, 0, 100, "utf8");
    octal(mode, 100, 8);
    octal(0, 108, 8);
    octal(0, 116, 8);
    octal(size > 0o77777777777 ? 0 : size, 124, 12);
    octal(mtime, 136, 12);
    block.write("        ", 148, "latin1");
    block.write(type, 156, "latin1");
    block.write(link, 157, 100, "utf8");
    block.write("ustar\x0000", 257, "latin1");
    octal(block.reduce((sum, byte) => sum + byte, 0), 148, 7);
    return block;
}

function pax(key: string, value: string): string {
    const rest = ` ${key}=${value}\n`;
    const size = Buffer.byteLength(rest);
    let total = size + String(size).length;
    total = size + String(total).length;
    return total + rest;
}

function pad(data: Buffer): Buffer {
    return data.length % BLOCK ? Buffer.concat([data, Buffer.alloc(BLOCK - (data.length % BLOCK))]) : data;
}

function entry(name: string, type: string, mode: number, size: number, mtime: number, link = ""): Buffer {
    const more = [];
    if (Buffer.byteLength(name) > 99) more.push(pax("path", name));
    if (Buffer.byteLength(link) > 99) more.push(pax("linkpath", link));
    if (size > 0o77777777777) more.push(pax("size", String(size)));
    const plain = header(name, type, mode, size, Math.max(0, Math.floor(mtime / 1000)), link);
    if (!more.length) return plain;
    const text = Buffer.from(more.join(""));
    return Buffer.concat([header("pax", "x", 0o644, text.length, 0, ""), pad(text), plain]);
}

/** Everything below a directory as a tar archive; `wanted` is asked for each relative name. */
export async function* packTree(directory: string, wanted?: Wanted): Bytes {
    yield* packBelow(resolve(directory), "", wanted);
    yield Buffer.alloc(2 * BLOCK);
}

async function* packBelow(top: string, below: string, wanted?: Wanted): Bytes {
    for (const one of (await readdir(join(top, below))).sort()) {
        const name = below ? `${below}/${one}` : one;
        const path = join(top, name);
        if (wanted && !wanted(name)) continue;
        const found = await lstat(path);
        const mode = found.mode & 0o777;
        if (found.isDirectory()) {
            yield entry(name + "/", "5", mode, 0, found.mtimeMs);
            yield* packBelow(top, name, wanted);
        } else if (found.isSymbolicLink()) {
            yield entry(name, "2", 0o777, 0, found.mtimeMs, await readlink(path));
        } else if (found.isFile()) {
            yield entry(name, "0", mode, found.size, found.mtimeMs);
            yield* contents(path, found.size);
        }
    }
}

async function* contents(path: string, size: number): Bytes {
    let left = size;
    if (!left) return;
    for await (const data of createReadStream(path, { end: size - 1, highWaterMark: 1 << 18 })) {
        left -= (data as Buffer).length;
        yield data as Buffer;
    }
    if (left) throw new AtollError(`${path} became shorter while it was sent`);
    if (size % BLOCK) yield Buffer.alloc(BLOCK - (size % BLOCK));
}

// ---- unpacking ----

/** Exactly so many bytes at a time out of pieces of any size. */
class Source {
    private rest: Uint8Array = new Uint8Array(0);
    private readonly iterator: AsyncIterator<Uint8Array>;

    constructor(source: AsyncIterable<Uint8Array>) {
        this.iterator = source[Symbol.asyncIterator]();
    }

    /** At most so many; empty at the end. */
    async some(max: number): Promise<Uint8Array> {
        while (!this.rest.length) {
            const next = await this.iterator.next();
            if (next.done) return this.rest;
            this.rest = next.value;
        }
        const given = this.rest.subarray(0, max);
        this.rest = this.rest.subarray(given.length);
        return given;
    }

    async exactly(size: number): Promise<Buffer> {
        const parts: Uint8Array[] = [];
        for (let left = size; left; ) {
            const part = await this.some(left);
            if (!part.length) throw new AtollError("the archive is broken or was cut off");
            parts.push(part);
            left -= part.length;
        }
        return Buffer.concat(parts);
    }

    async end(): Promise<void> {
        await this.iterator.return?.();
    }
}

interface Member {
    name: string;
    type: string;
    mode: number;
    size: number;
    link: string;
}

const text = (block: Buffer, at: number, width: number) => {
    const field = block.subarray(at, at + width);
    const end = field.indexOf(0);
    return field.toString("utf8", 0, end < 0 ? width : end);
};

function number(block: Buffer, at: number, width: number): number {
    if (block[at]! & 0x80) { // GNU: the number itself
        let value = block[at]! & 0x7f;
        for (let i = 1; i < width; i++) value = value * 256 + block[at + i]!;
        return value;
    }
    return parseInt(text(block, at, width).trim() || "0", 8);
}

function paxFields(data: Buffer): Record<string, string> {
    const found: Record<string, string> = {};
    for (let at = 0; at < data.length; ) {
        const space = data.indexOf(0x20, at);
        const size = Number(data.toString("latin1", at, space));
        if (space < 0 || !Number.isSafeInteger(size) || size <= space - at) break;
        const [key, ...value] = data.toString("utf8", space + 1, at + size - 1).split("=");
        found[key!] = value.join("=");
        at += size;
    }
    return found;
}

async function nextMember(source: Source): Promise<Member | null> {
    let more: Record<string, string> = {};
    for (;;) {
        const block = await source.exactly(BLOCK);
        if (block.every((byte) => byte === 0)) return null;
        const sum = block.reduce((all, byte, at) => all + (at >= 148 && at < 156 ? 32 : byte), 0);
        if (sum !== number(block, 148, 8)) throw new AtollError("the archive is broken");
        const type = String.fromCharCode(block[156]! || 0x30);
        const size = more["size"] === undefined ? number(block, 124, 12) : Number(more["size"]);
        if (!Number.isSafeInteger(size) || size < 0) throw new AtollError("the archive is broken");
        if ("xgLK".includes(type)) {
            if (size > PAX_MAX) throw new AtollError("the archive has a header that is too long");
            const data = (await source.exactly(Math.ceil(size / BLOCK) * BLOCK)).subarray(0, size);
            if (type === "x") more = { ...more, ...paxFields(data) };
            if (type === "L") more["path"] = text(data, 0, data.length);
            if (type === "K") more["linkpath"] = text(data, 0, data.length);
            continue;
        }
        const prefix = text(block, 257, 6) === "ustar" ? text(block, 345, 155) : "";
        const name = text(block, 0, 100);
        return { name: more["path"] ?? (prefix ? `${prefix}/${name}` : name), type, mode: number(block, 100, 8) & 0o777,
                 size, link: more["linkpath"] ?? text(block, 157, 100) };
    }
}

function parts(name: string): string[] {
    const found = name.split("/").filter((part) => part !== "" && part !== ".");
    if (name.startsWith("/") || found.includes("..") || name.includes("\0"))
        throw new UnsafeArchive(`the archive names ${JSON.stringify(name)}`);
    return found;
}

/** Whether a link may end outside. Behind a name, `..` is refused: the name may be a link itself. */
function leadsOut(where: string[], target: string): boolean {
    const steps = target.split("/").filter((step) => step !== "" && step !== ".");
    let up = 0;
    while (steps[up] === "..") up++;
    return target.startsWith("/") || target.includes("\0") || steps.slice(up).includes("..") || up > where.length - 1;
}

class Unpacker {
    readonly result: UnpackedTree = { files: 0, bytes: 0, skipped: [] };
    private readonly links: { where: string[]; target: string }[] = [];
    private count = 0;

    constructor(private readonly top: string) {}

    /** Makes it and those above it; none of them may be a link. */
    async directory(where: string[]): Promise<string> {
        let path = this.top;
        for (const part of where) {
            path = join(path, part);
            try {
                await mkdir(path);
            } catch (error) {
                if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
                if (!(await lstat(path)).isDirectory())
                    throw new UnsafeArchive(`${path} is in the way: it is no directory`);
            }
        }
        return path;
    }

    async file(source: Source, member: Member, where: string[]): Promise<void> {
        const directory = await this.directory(where.slice(0, -1));
        const temporary = join(directory, `.atoll-${process.pid}-${Date.now()}-${this.count++}`);
        const file = await open(temporary, "wx", 0o600);
        try {
            for (let left = member.size; left; ) {
                const part = await source.some(left);
                if (!part.length) throw new AtollError("the archive is broken or was cut off");
                await file.writeFile(part);
                left -= part.length;
            }
            await file.chmod(member.mode);
            await file.close();
            await rename(temporary, join(directory, where.at(-1)!));
        } catch (error) {
            await file.close().catch(() => undefined);
            await rm(temporary, { force: true });
            throw error;
        }
        this.result.files++;
        this.result.bytes += member.size;
        if (member.size % BLOCK) await source.exactly(BLOCK - (member.size % BLOCK));
    }

    async member(source: Source, member: Member): Promise<void> {
        const where = parts(member.name);
        if (member.type === "5") {
            const path = await this.directory(where);
            if (where.length) await chmod(path, member.mode | 0o700);
        } else if ((member.type === "0" || member.type === "7") && where.length) {
            await this.file(source, member, where);
            return;
        } else if (member.type === "2" && where.length && !leadsOut(where, member.link)) {
            this.links.push({ where, target: member.link });
        } else {
            this.result.skipped.push(member.name);
        }
        for (let left = Math.ceil(member.size / BLOCK) * BLOCK; left; ) {
            const part = await source.some(left);
            if (!part.length) throw new AtollError("the archive is broken or was cut off");
            left -= part.length;
        }
    }

    async finish(): Promise<UnpackedTree> {
        for (const { where, target } of this.links) {
            const path = join(await this.directory(where.slice(0, -1)), where.at(-1)!);
            const there = await lstat(path).catch(() => null);
            if (there?.isDirectory()) throw new UnsafeArchive(`${path} is in the way of a link`);
            if (there) await unlink(path);
            await symlink(target, path);
            this.result.files++;
        }
        return this.result;
    }
}

/** A tar archive into a directory, which is made if it is not there. */
export async function unpackTree(archive: AsyncIterable<Uint8Array>, directory: string): Promise<UnpackedTree> {
    const top = resolve(directory);
    await mkdir(top, { recursive: true });
    const source = new Source(archive);
    const unpacker = new Unpacker(top);
    try {
        for (let member = await nextMember(source); member; member = await nextMember(source))
            await unpacker.member(source, member);
        while ((await source.some(1 << 20)).length); // what follows the end
        return await unpacker.finish();
    } finally {
        await source.end();
    }
}

/** Everything below a local directory into one of the sandbox, which is made if it is not there. */
export async function uploadTree(files: Files, local: string, path: RemotePath = ".",
                                 { wanted, user }: As & { wanted?: Wanted } = {}): Promise<TreeWriteResult> {
    await files.mkdir(path, { parents: true, user });
    return files.unpack(packTree(local, wanted), path, { user });
}

/** Everything below a directory of the sandbox into a local one; what is not safe to make is left out, and listed. */
export async function downloadTree(files: Files, path: RemotePath, local: string,
                                   options: As = {}): Promise<UnpackedTree> {
    return unpackTree((await files.archive(path, options)).chunks(), local);
}
